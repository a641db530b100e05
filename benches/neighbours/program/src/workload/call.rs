//! Calls: each client asks a server one question after the other. An operation is one question with its answer.

use procession::{Address, Context, Reply, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "call",
        ops: 1_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[tokio(0.60), best(0.60)])],
        runs: runs!(ours::<1, 1>, tasks: tasks::<_, 1, 1>, actors: actors::<_, 1, 1>),
    },
    Workload {
        name: "call-1000",
        ops: 1_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[tokio(0.65), best(0.65)])],
        runs: runs!(ours::<1_000, 8>, tasks: tasks::<_, 1_000, 8>, actors: actors::<_, 1_000, 8>),
    },
];

type Request = (u64, Reply<u64>);

fn ours<const CLIENTS: usize, const SERVERS: usize>(rt: &Runtime, n: u64) {
    let n = n / CLIENTS as u64;
    DONE.close(CLIENTS as u64);
    let serve = async |mut ctx: Context<Request>| {
        while let Ok((value, reply)) = ctx.receive().await {
            reply.send(value + 1);
        }
    };
    let servers: Vec<Address<Request>> = (0..SERVERS).map(|_| rt.spawn(serve).address()).collect();
    for client in 0..CLIENTS {
        let server = servers[client % SERVERS].clone();
        drop(rt.spawn(async move |_: Context| {
            let mut value = 0;
            for _ in 0..n {
                value = server.call(|reply| (value, reply)).await.expect("the server answers");
            }
            assert_eq!(value, n);
            DONE.count_down();
        }));
    }
    DONE.wait();
}

/// On a runtime without calls, the clients send the questions through a channel, and the server sends each answer
/// through a oneshot channel.
pub(super) fn tasks<T: Tasks, const CLIENTS: usize, const SERVERS: usize>(on: &T, n: u64) {
    let n = n / CLIENTS as u64;
    DONE.close(CLIENTS as u64);
    let servers = (0..SERVERS).map(|_| {
        let (requests, mut served) = T::channel::<(u64, T::Reply<u64>)>();
        on.spawn(async move {
            while let Some((value, reply)) = T::receive(&mut served).await {
                T::reply(reply, value + 1);
            }
        });
        requests
    });
    let servers: Vec<_> = servers.collect();
    for client in 0..CLIENTS {
        let requests = servers[client % SERVERS].clone();
        on.spawn(async move {
            let mut value = 0;
            for _ in 0..n {
                let (reply, answer) = T::oneshot();
                T::send(&requests, (value, reply));
                value = T::answer(answer).await;
            }
            assert_eq!(value, n);
            DONE.count_down();
        });
    }
    DONE.wait();
}

struct Server;

impl Actor for Server {
    type Message = u64;

    fn handle(&mut self, value: u64) -> Then {
        Then::Answer(value + 1)
    }
}

fn actors<A: Actors, const CLIENTS: usize, const SERVERS: usize>(on: &A, n: u64) {
    let n = n / CLIENTS as u64;
    DONE.close(CLIENTS as u64);
    on.enter(move |on| {
        let servers: Vec<_> = (0..SERVERS).map(|_| on.spawn(Server)).collect();
        for client in 0..CLIENTS {
            let server = servers[client % SERVERS].clone();
            on.task(async move {
                let mut value = 0;
                for _ in 0..n {
                    value = A::ask::<Server>(&server, value).await;
                }
                assert_eq!(value, n);
                DONE.count_down();
            });
        }
    });
    DONE.wait();
}
