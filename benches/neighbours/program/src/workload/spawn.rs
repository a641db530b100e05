//! Spawns tasks that exit immediately. An operation is one task, from its spawn to its exit.

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[
    // The measuring thread spawns the tasks.
    Workload {
        name: "spawn-outside",
        ops: 1_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[tokio(0.40), best(1.0)])],
        runs: runs!(ours_outside, tasks: tasks_outside),
    },
    // One task spawns all tasks without a pause.
    Workload {
        name: "spawn-inside",
        ops: 1_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[tokio(0.45), best(1.0)])],
        runs: runs!(ours_inside, tasks: tasks_inside),
    },
];

fn ours_outside(rt: &Runtime, n: u64) {
    DONE.close(n);
    for _ in 0..n {
        drop(rt.spawn(async |_: Context| DONE.count_down()));
    }
    DONE.wait();
}

fn tasks_outside<T: Tasks>(on: &T, n: u64) {
    DONE.close(n);
    for _ in 0..n {
        on.spawn(async { DONE.count_down() });
    }
    DONE.wait();
}

fn ours_inside(rt: &Runtime, n: u64) {
    DONE.close(n);
    drop(rt.spawn(async move |ctx: Context| {
        for _ in 0..n {
            drop(ctx.spawn(async |_: Context| DONE.count_down()));
        }
    }));
    DONE.wait();
}

fn tasks_inside<T: Tasks>(on: &T, n: u64) {
    DONE.close(n);
    let inside = on.clone();
    on.spawn(async move {
        for _ in 0..n {
            inside.spawn(async { DONE.count_down() });
        }
    });
    DONE.wait();
}
