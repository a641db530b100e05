//! Commands: one process wants something done a number of times, one after another, and waits for each answer. An
//! operation is one command with its answer. Neighbours have no commands: there a task asks another one.

use std::sync::{Arc, OnceLock};

use procession::{Address, Builder, Command, Completion, Context, Runtime};
use tokio::sync::{mpsc, oneshot};

use super::Workload;
use crate::latch::DONE;
use crate::round::{
    Round,
    Runner::{AsyncExecutor, Procession, Tokio},
    Sample,
};

struct Increment(u64);

impl Command for Increment {
    type Reply = u64;
}

/// Answered by a handler at once; by a task on the neighbours' side, as in [`TASK`].
pub(super) const INLINE: Workload = Workload {
    name: "command-inline",
    ops: 200_000,
    runs: &[
        (Procession, |round| perform(round, Runtime::builder().handle(|c: Increment| c.0 + 1))),
        (Tokio, tokio_asks_a_task),
        (AsyncExecutor, async_executor_asks_a_task),
    ],
};

/// Handed on to another process, which answers.
pub(super) const TASK: Workload = Workload {
    name: "command-task",
    ops: 200_000,
    runs: &[
        (Procession, |round| {
            type Job = (Increment, Completion<u64>);
            // The runtime owns the handler, which knows the server, which knows the runtime: the circle stays behind
            // after each round, with one small process in it.
            let server: Arc<OnceLock<Address<Job>>> = Arc::default();
            let known = Arc::clone(&server);
            let builder = Runtime::builder().handler(move |command: Increment, completion: Completion<u64>| {
                let server = known.get().expect("it was started before the first command");
                server.send((command, completion)).expect("it serves for ever");
            });
            round.procession(builder, |rt, n| {
                server.get_or_init(|| {
                    let serve = async |mut ctx: Context<Job>| {
                        while let Ok((command, completion)) = ctx.receive().await {
                            completion.complete(command.0 + 1);
                        }
                    };
                    rt.spawn(serve).address()
                });
                perform_all(rt, n);
            })
        }),
        (Tokio, tokio_asks_a_task),
        (AsyncExecutor, async_executor_asks_a_task),
    ],
};

/// Answered by a future that the runtime runs for this one command; by a task that is spawned for it and awaited.
pub(super) const ASYNC: Workload = Workload {
    name: "command-async",
    ops: 200_000,
    runs: &[
        (Procession, |round| perform(round, Runtime::builder().handle_async(|c: Increment| async move { c.0 + 1 }))),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(1);
                drop(rt.spawn(async move {
                    let mut value = 0;
                    for _ in 0..n {
                        value = tokio::spawn(async move { value + 1 }).await.expect("it does not panic");
                    }
                    assert_eq!(value, n);
                    DONE.one();
                }));
                DONE.wait();
            })
        }),
        (AsyncExecutor, |round| {
            round.async_executor(|ex, n| {
                DONE.close(1);
                let inside = Arc::clone(ex);
                ex.spawn(async move {
                    let mut value = 0;
                    for _ in 0..n {
                        value = inside.spawn(async move { value + 1 }).await;
                    }
                    assert_eq!(value, n);
                    DONE.one();
                })
                .detach();
                DONE.wait();
            })
        }),
    ],
};

fn perform(round: &Round, builder: Builder) -> Sample {
    round.procession(builder, perform_all)
}

fn perform_all(rt: &Runtime, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |ctx: Context| {
        let mut value = 0;
        for _ in 0..n {
            value = ctx.perform(Increment(value)).await.expect("it has a handler");
        }
        assert_eq!(value, n);
        DONE.one();
    }));
    DONE.wait();
}

/// A request over mpsc, the reply over a oneshot.
fn tokio_asks_a_task(round: &Round) -> Sample {
    round.tokio(|rt, n| {
        DONE.close(1);
        let (requests, mut served) = mpsc::unbounded_channel::<(u64, oneshot::Sender<u64>)>();
        drop(rt.spawn(async move {
            while let Some((value, reply)) = served.recv().await {
                reply.send(value + 1).expect("it is waited for");
            }
        }));
        drop(rt.spawn(async move {
            let mut value = 0;
            for _ in 0..n {
                let (reply, answer) = oneshot::channel();
                requests.send((value, reply)).expect("the server waits");
                value = answer.await.expect("the server answers");
            }
            assert_eq!(value, n);
            DONE.one();
        }));
        DONE.wait();
    })
}

/// The same with a channel for one message, which is the oneshot of this family.
fn async_executor_asks_a_task(round: &Round) -> Sample {
    round.async_executor(|ex, n| {
        DONE.close(1);
        let (requests, served) = async_channel::unbounded::<(u64, async_channel::Sender<u64>)>();
        ex.spawn(async move {
            while let Ok((value, reply)) = served.recv().await {
                reply.try_send(value + 1).expect("it is waited for");
            }
        })
        .detach();
        ex.spawn(async move {
            let mut value = 0;
            for _ in 0..n {
                let (reply, answer) = async_channel::bounded(1);
                requests.try_send((value, reply)).expect("the server waits");
                value = answer.recv().await.expect("the server answers");
            }
            assert_eq!(value, n);
            DONE.one();
        })
        .detach();
        DONE.wait();
    })
}
