//! One process spawns receivers without a pause, and sends one message to each receiver. A receiver exits when it has
//! read its message. An operation is one receiver with its message.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, actix, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "create-1-exit",
    ops: 1_000_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.20), actix(0.60)])],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

fn ours(rt: &Runtime, n: u64) {
    DONE.close(n);
    drop(rt.spawn(async move |ctx: Context| {
        for i in 0..n {
            let child = ctx.spawn(async |mut ctx: Context<u64>| {
                ctx.receive().await.expect("nobody ends it");
                DONE.count_down();
            });
            child.send(i).expect("the child waits");
        }
    }));
    DONE.wait();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(n);
    let inside = on.clone();
    on.spawn(async move {
        for i in 0..n {
            let (sender, mut receiver) = T::channel::<u64>();
            inside.spawn(async move {
                T::receive(&mut receiver).await.expect("one is sent");
                DONE.count_down();
            });
            T::send(&sender, i);
        }
    });
    DONE.wait();
}

struct Child;

impl Actor for Child {
    type Message = u64;

    fn handle(&mut self, _: u64) -> Then {
        DONE.count_down();
        Then::Stop
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    DONE.close(n);
    on.enter(move |on| {
        for i in 0..n {
            A::tell::<Child>(&on.spawn(Child), i);
        }
    });
    DONE.wait();
}
