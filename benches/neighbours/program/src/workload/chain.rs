//! Chained spawns: each task spawns the next task and exits. An operation is one task.

use procession::{Context, Runtime, SelfHandle};

use super::{Workload, runs};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Shape, best, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "chain",
    ops: 1_000_000,
    shape: Shape::Sequential,
    judged: &[cpu(&[tokio(0.45), best(0.75)])],
    runs: runs!(ours, tasks: tasks),
}];

fn ours(rt: &Runtime, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |ctx: Context| link(&ctx, n - 1)));
    DONE.wait();

    fn link(me: &SelfHandle, n: u64) {
        match n {
            0 => DONE.count_down(),
            _ => drop(me.spawn(async move |ctx: Context| link(&ctx, n - 1))),
        }
    }
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    DONE.close(1);
    let inside = on.clone();
    on.spawn(async move { link(inside, n - 1) });
    DONE.wait();

    fn link<T: Tasks>(on: T, n: u64) {
        match n {
            0 => DONE.count_down(),
            _ => on.clone().spawn(async move { link(on, n - 1) }),
        }
    }
}
