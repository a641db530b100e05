//! Savina's fork-join throughput: one process sends to 60 receivers in turn, without a pause. Each receiver exits after
//! its share of the messages. An operation is one message.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "throughput",
    ops: RECEIVERS * 200_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.60), best(0.60)])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

const RECEIVERS: u64 = 60;

/// The computation that a receiver does for each message.
fn compute(i: u64) -> f64 {
    std::hint::black_box((i as f64 * 37.2).sin())
}

fn ours(rt: &Runtime, n: u64) {
    let n = n / RECEIVERS;
    DONE.close(RECEIVERS);
    drop(rt.spawn(async move |ctx: Context| {
        let receivers: Vec<_> = (0..RECEIVERS)
            .map(|_| {
                ctx.spawn(async move |mut ctx: Context<u64>| {
                    for i in 0..n {
                        let received = ctx.receive().await.expect("nobody ends it");
                        assert_eq!(received, i);
                        compute(received);
                    }
                    DONE.count_down();
                })
            })
            .collect();
        for i in 0..n {
            for receiver in &receivers {
                receiver.send(i).expect("it waits");
            }
        }
    }));
    DONE.wait();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    let n = n / RECEIVERS;
    DONE.close(RECEIVERS);
    let inside = on.clone();
    on.spawn(async move {
        let receivers: Vec<_> = (0..RECEIVERS)
            .map(|_| {
                let (sender, mut receiver) = T::channel::<u64>();
                inside.spawn(async move {
                    for i in 0..n {
                        let came = T::receive(&mut receiver).await.expect("the sender sends");
                        assert_eq!(came, i);
                        compute(came);
                    }
                    DONE.count_down();
                });
                sender
            })
            .collect();
        for i in 0..n {
            for receiver in &receivers {
                T::send(receiver, i);
            }
        }
    });
    DONE.wait();
}

struct Receiver {
    n: u64,
    came: u64,
}

impl Actor for Receiver {
    type Message = u64;

    fn handle(&mut self, i: u64) -> Then {
        assert_eq!(i, self.came);
        compute(i);
        self.came += 1;
        if self.came < self.n {
            return Then::Next;
        }
        DONE.count_down();
        Then::Stop
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    let n = n / RECEIVERS;
    DONE.close(RECEIVERS);
    on.enter(move |on| {
        let receivers: Vec<_> = (0..RECEIVERS).map(|_| on.spawn(Receiver { n, came: 0 })).collect();
        on.task(async move {
            for i in 0..n {
                for receiver in &receivers {
                    A::tell::<Receiver>(receiver, i);
                }
            }
        });
    });
    DONE.wait();
}
