//! Savina's counting: one process sends messages without a pause, and a second process adds up the numbers in the
//! messages. An operation is one message.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "counting",
    ops: 5_000_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.60), best(0.60)])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

fn ours(rt: &Runtime, n: u64) {
    DONE.close(1);
    let counter = rt.spawn(async move |mut ctx: Context<u64>| {
        let mut sum = 0;
        for _ in 0..n {
            sum += ctx.receive().await.expect("nobody ends it");
        }
        assert_eq!(sum, n * (n - 1) / 2);
        DONE.count_down();
    });
    drop(rt.spawn(async move |_: Context| {
        for i in 0..n {
            counter.send(i).expect("the counter waits");
        }
    }));
    DONE.wait();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let (sender, mut receiver) = T::channel::<u64>();
    on.spawn(async move {
        let mut sum = 0;
        for _ in 0..n {
            sum += T::receive(&mut receiver).await.expect("the sender sends");
        }
        assert_eq!(sum, n * (n - 1) / 2);
        DONE.count_down();
    });
    on.spawn(async move {
        for i in 0..n {
            T::send(&sender, i);
        }
    });
    DONE.wait();
}

struct Counter {
    n: u64,
    received: u64,
    sum: u64,
}

impl Actor for Counter {
    type Message = u64;

    fn handle(&mut self, i: u64) -> Then {
        self.received += 1;
        self.sum += i;
        if self.received < self.n {
            return Then::Next;
        }
        assert_eq!(self.sum, self.n * (self.n - 1) / 2);
        DONE.count_down();
        Then::Stop
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    DONE.close(1);
    on.enter(move |on| {
        let counter = on.spawn(Counter { n, received: 0, sum: 0 });
        on.task(async move {
            for i in 0..n {
                A::tell::<Counter>(&counter, i);
            }
        });
    });
    DONE.wait();
}
