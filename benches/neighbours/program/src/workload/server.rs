//! Cost of the `Server` trait compared with a hand-written receive loop. An operation is one message.

use procession::{Context, Exit, JoinHandle, Next, Reply, Runtime, Server};

use super::Workload;
use crate::latch::DONE;
use crate::round::Runner;
use crate::verdict::{Shape, by_hand, cpu};

pub(super) const WORKLOADS: &[Workload] = &[
    // One process sends casts without a pause, so the messages arrive in bursts.
    Workload {
        name: "server-cast",
        ops: 5_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[by_hand(1.1)])],
        runs: &[
            (Runner::Procession, |round| round.procession(Runtime::builder(), |rt, n| casts(rt, served(rt), n))),
            (Runner::ByHand, |round| round.procession(Runtime::builder(), |rt, n| casts(rt, looped(rt), n))),
        ],
    },
    // One process makes one call after the other.
    Workload {
        name: "server-call",
        ops: 1_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[by_hand(1.1)])],
        runs: &[
            (Runner::Procession, |round| round.procession(Runtime::builder(), |rt, n| calls(rt, served(rt), n))),
            (Runner::ByHand, |round| round.procession(Runtime::builder(), |rt, n| calls(rt, looped(rt), n))),
        ],
    },
];

enum Msg {
    Add(u64),
    Get(Reply<u64>),
}

struct Sum(u64);

impl Server for Sum {
    type Message = Msg;
    type Output = ();

    async fn handle(&mut self, message: Msg, _: &mut Context<Msg>) -> Result<Next<()>, Exit> {
        match message {
            Msg::Add(n) => self.0 += n,
            Msg::Get(reply) => reply.send(self.0),
        }
        Ok(Next::Wait)
    }
}

fn served(rt: &Runtime) -> JoinHandle<(), Msg> {
    rt.spawn(|ctx| Sum(0).serve(ctx))
}

fn looped(rt: &Runtime) -> JoinHandle<(), Msg> {
    rt.spawn(async |mut ctx: Context<Msg>| -> Result<(), Exit> {
        let mut sum = 0;
        loop {
            match ctx.receive().await? {
                Msg::Add(n) => sum += n,
                Msg::Get(reply) => reply.send(sum),
            }
        }
    })
}

fn casts(rt: &Runtime, sum: JoinHandle<(), Msg>, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
        for i in 0..n {
            sum.send(Msg::Add(i))?;
        }
        let all = ctx.call(&sum, Msg::Get).await?;
        assert_eq!(all, n * (n - 1) / 2);
        sum.abort();
        DONE.count_down();
        Ok(())
    }));
    DONE.wait();
}

fn calls(rt: &Runtime, sum: JoinHandle<(), Msg>, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
        for _ in 0..n {
            assert_eq!(ctx.call(&sum, Msg::Get).await?, 0);
        }
        sum.abort();
        DONE.count_down();
        Ok(())
    }));
    DONE.wait();
}
