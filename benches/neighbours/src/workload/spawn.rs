//! Spawning: tasks that do nothing but end. An operation is one task, from its spawn to its end.

use std::sync::Arc;

use procession::{Context, Runtime};

use super::Workload;
use crate::latch::DONE;
use crate::round::Runner::{AsyncExecutor, Procession, Tokio};

/// From the thread that measures.
pub(super) const OUTSIDE: Workload = Workload {
    name: "spawn-outside",
    ops: 100_000,
    runs: &[
        (Procession, |round| {
            round.procession(Runtime::builder(), |rt, n| {
                DONE.close(n);
                for _ in 0..n {
                    drop(rt.spawn(async |_: Context| DONE.one()));
                }
                DONE.wait();
            })
        }),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(n);
                for _ in 0..n {
                    drop(rt.spawn(async { DONE.one() }));
                }
                DONE.wait();
            })
        }),
        (AsyncExecutor, |round| {
            round.async_executor(|ex, n| {
                DONE.close(n);
                for _ in 0..n {
                    ex.spawn(async { DONE.one() }).detach();
                }
                DONE.wait();
            })
        }),
    ],
};

/// All of them from one task, which does not pause.
pub(super) const INSIDE: Workload = Workload {
    name: "spawn-inside",
    ops: 100_000,
    runs: &[
        (Procession, |round| {
            round.procession(Runtime::builder(), |rt, n| {
                DONE.close(n);
                drop(rt.spawn(async move |ctx: Context| {
                    for _ in 0..n {
                        drop(ctx.spawn(async |_: Context| DONE.one()));
                    }
                }));
                DONE.wait();
            })
        }),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(n);
                drop(rt.spawn(async move {
                    for _ in 0..n {
                        drop(tokio::spawn(async { DONE.one() }));
                    }
                }));
                DONE.wait();
            })
        }),
        (AsyncExecutor, |round| {
            round.async_executor(|ex, n| {
                DONE.close(n);
                let inside = Arc::clone(ex);
                ex.spawn(async move {
                    for _ in 0..n {
                        inside.spawn(async { DONE.one() }).detach();
                    }
                })
                .detach();
                DONE.wait();
            })
        }),
    ],
};
