//! Calls of `yield_now`. Each of 1,000 tasks calls `yield_now` repeatedly, and each call puts the task at the back of
//! the queue. An operation is one call of `yield_now`.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "yield",
    ops: 1_000_000,
    shape: Shape::Parallel,
    judged: &[cpu(&[tokio(0.65), best(0.65)])],
    runs: runs!(ours, tasks: tasks),
}];

const TASKS: u64 = 1_000;

fn ours(rt: &Runtime, n: u64) {
    DONE.close(TASKS);
    for _ in 0..TASKS {
        drop(rt.spawn(async move |ctx: Context| {
            for _ in 0..n / TASKS {
                ctx.yield_now().await;
            }
            DONE.count_down();
        }));
    }
    DONE.wait();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(TASKS);
    for _ in 0..TASKS {
        on.spawn(async move {
            for _ in 0..n / TASKS {
                T::yield_now().await;
            }
            DONE.count_down();
        });
    }
    DONE.wait();
}
