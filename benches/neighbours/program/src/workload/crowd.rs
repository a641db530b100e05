//! Many processes are alive at the same time. All processes exist before the first process receives its message, and a
//! process exits when it has read its message. An operation is one process.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, cpu};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "crowd",
    ops: 200_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

fn ours(rt: &Runtime, n: u64) {
    DONE.close(n);
    drop(rt.spawn(async move |ctx: Context| {
        let one = async |mut ctx: Context<u64>| {
            ctx.receive().await.expect("nobody ends it");
            DONE.count_down();
        };
        let crowd: Vec<_> = (0..n).map(|_| ctx.spawn(one).address()).collect();
        for (i, one) in (0..).zip(crowd) {
            one.send(i).expect("it waits");
        }
    }));
    DONE.wait();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(n);
    let inside = on.clone();
    on.spawn(async move {
        let one = |_| {
            let (sender, mut receiver) = T::channel::<u64>();
            inside.spawn(async move {
                T::receive(&mut receiver).await.expect("one is sent");
                DONE.count_down();
            });
            sender
        };
        let crowd: Vec<_> = (0..n).map(one).collect();
        for (i, one) in (0..).zip(crowd) {
            T::send(&one, i);
        }
    });
    DONE.wait();
}

struct Receiver;

impl Actor for Receiver {
    type Message = u64;

    fn handle(&mut self, _: u64) -> Then {
        DONE.count_down();
        Then::Stop
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    DONE.close(n);
    on.enter(move |on| {
        let crowd: Vec<_> = (0..n).map(|_| on.spawn(Receiver)).collect();
        for (i, one) in (0..).zip(crowd) {
            A::tell::<Receiver>(&one, i);
        }
    });
    DONE.wait();
}
