//! Links, monitors and restarts. There are three kinds of operation. A link or a monitor is set and removed. A
//! monitored child is spawned, and its exit is received. A child is started, killed and restarted.

use std::time::Duration;

use procession::{Child, Context, Event, Runtime, Supervisor, supervisor::SupervisorMessage};
use tokio::task::JoinSet;

use super::Workload;
use crate::latch::DONE;
use crate::round::{Round, Runner};
use crate::verdict::{Shape, cpu, tokio};

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "link-unlink",
        ops: 2_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: &[(Runner::Procession, |round| round.procession(Runtime::builder(), link_unlink))],
    },
    Workload {
        name: "monitor-demonitor",
        ops: 2_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[])],
        runs: &[(Runner::Procession, |round| round.procession(Runtime::builder(), monitor_demonitor))],
    },
    // tokio's counterpart of a monitor is a `JoinSet`, which reports the tasks that have finished.
    Workload {
        name: "spawn-monitor",
        ops: 1_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[tokio(0.60)])],
        runs: &[
            (Runner::Procession, |round| round.procession(Runtime::builder(), spawn_monitor)),
            (Runner::Tokio, |round: &Round| round.tokio(join_set)),
        ],
    },
    // All children of one supervisor are started, killed and restarted.
    Workload {
        name: "restart",
        ops: 100_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[])],
        runs: &[(Runner::Procession, |round| round.procession(Runtime::builder(), restart))],
    },
];

/// Defines work that repeats an operation in a process. The operation gets the pid of a second process, which only
/// waits.
macro_rules! beside_another {
    ($name:ident, |$ctx:ident, $other:ident| $once:expr) => {
        fn $name(rt: &Runtime, n: u64) {
            DONE.close(1);
            drop(rt.spawn(async move |$ctx: Context| {
                let other = $ctx.spawn(async |mut ctx: Context<()>| ctx.receive().await);
                let $other = other.pid();
                for _ in 0..n {
                    $once;
                }
                other.abort();
                DONE.count_down();
            }));
            DONE.wait();
        }
    };
}

beside_another!(link_unlink, |ctx, other| {
    ctx.link(other).expect("it lives");
    ctx.unlink(other);
});

beside_another!(monitor_demonitor, |ctx, other| {
    let watch = ctx.monitor(other);
    ctx.demonitor(watch);
});

fn spawn_monitor(rt: &Runtime, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |mut ctx: Context| {
        for _ in 0..n {
            drop(ctx.spawn_monitor(async |_: Context| {}));
        }
        for _ in 0..n {
            assert!(matches!(ctx.event().await, Event::Down { .. }), "nothing else comes");
        }
        DONE.count_down();
    }));
    DONE.wait();
}

fn join_set(rt: &tokio::runtime::Runtime, n: u64) {
    DONE.close(1);
    rt.spawn(async move {
        let mut children = JoinSet::new();
        for _ in 0..n {
            children.spawn(async {});
        }
        while children.join_next().await.is_some() {}
        DONE.count_down();
    });
    DONE.wait();
}

fn restart(rt: &Runtime, n: u64) {
    let mut tree = Supervisor::one_for_one().intensity(u32::MAX, Duration::from_secs(1));
    for _ in 0..n {
        tree = tree.add(Child::unnamed(async |mut ctx: Context<()>| {
            DONE.count_down();
            ctx.receive().await
        }));
    }
    DONE.close(n);
    let tree = rt.spawn_process(tree);
    DONE.wait();
    let family = rt.block_on(tree.call(SupervisorMessage::WhichChildren)).expect("it lives");
    DONE.close(n);
    for child in &family.children {
        rt.kill(child.pid.expect("it has begun")).expect("it lives");
    }
    DONE.wait();
    tree.abort();
}
