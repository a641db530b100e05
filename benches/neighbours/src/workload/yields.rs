//! Yielding: 1,000 tasks, each of which goes to the back of the queue again and again. An operation is one yield.

use procession::{Context, Runtime};

use super::Workload;
use crate::latch::DONE;
use crate::round::Runner::{AsyncExecutor, Procession, Tokio};

const TASKS: u64 = 1_000;

pub(super) const YIELD: Workload = Workload {
    name: "yield",
    ops: 1_000_000,
    runs: &[
        (Procession, |round| {
            round.procession(Runtime::builder(), |rt, n| {
                DONE.close(TASKS);
                for _ in 0..TASKS {
                    drop(rt.spawn(async move |ctx: Context| {
                        for _ in 0..n / TASKS {
                            ctx.yield_now().await;
                        }
                        DONE.one();
                    }));
                }
                DONE.wait();
            })
        }),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(TASKS);
                for _ in 0..TASKS {
                    drop(rt.spawn(async move {
                        for _ in 0..n / TASKS {
                            tokio::task::yield_now().await;
                        }
                        DONE.one();
                    }));
                }
                DONE.wait();
            })
        }),
        (AsyncExecutor, |round| {
            round.async_executor(|ex, n| {
                DONE.close(TASKS);
                for _ in 0..TASKS {
                    ex.spawn(async move {
                        for _ in 0..n / TASKS {
                            futures_lite::future::yield_now().await;
                        }
                        DONE.one();
                    })
                    .detach();
                }
                DONE.wait();
            })
        }),
    ],
};
