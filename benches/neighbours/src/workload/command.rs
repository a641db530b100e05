//! Commands: one process wants something done a number of times, one after another, and waits for each answer. An
//! operation is one command with its answer. Neighbours have no commands: there a task asks another one.

use std::sync::{Arc, OnceLock};
use std::thread;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use procession::{
    Address, Builder, Command, Completion, Context, Event, Events, Exit, Next, Process, Runtime, StepOutput,
};
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

/// How many are in flight at once in [`THREAD`].
const FLYING: u64 = 1_000;

/// Answered by a thread outside, with 1,000 in flight: whichever answer comes makes room for the next command.
pub(super) const THREAD: Workload = Workload {
    name: "command-thread",
    ops: 200_000,
    runs: &[
        (Procession, |round| {
            let (send, receive) = std::sync::mpsc::channel::<(Increment, Completion<u64>)>();
            let answering = thread::spawn(move || {
                for (command, completion) in receive {
                    completion.complete(command.0 + 1);
                }
            });
            let builder = Runtime::builder().handler(move |command: Increment, completion: Completion<u64>| {
                send.send((command, completion)).expect("it is received");
            });
            let sample = round.procession(builder, |rt, n| {
                DONE.close(1);
                drop(rt.spawn_process(Keeping { left: n, flying: 0 }));
                DONE.wait();
            });
            answering.join().expect("it does not panic");
            sample
        }),
        (Tokio, |round| {
            let (send, receive) = std::sync::mpsc::channel::<(u64, oneshot::Sender<u64>)>();
            let answering = thread::spawn(move || {
                for (value, reply) in receive {
                    let _ = reply.send(value + 1);
                }
            });
            let sample = round.tokio(|rt, n| {
                DONE.close(1);
                let send = send.clone();
                drop(rt.spawn(async move {
                    let ask = || {
                        let (reply, answer) = oneshot::channel();
                        send.send((0, reply)).expect("it is received");
                        answer
                    };
                    let mut flying: FuturesUnordered<_> = (0..FLYING.min(n)).map(|_| ask()).collect();
                    let mut left = n - flying.len() as u64;
                    while let Some(answer) = flying.next().await {
                        answer.expect("it is answered");
                        if left > 0 {
                            left -= 1;
                            flying.push(ask());
                        }
                    }
                    DONE.one();
                }));
                DONE.wait();
            });
            drop(send);
            answering.join().expect("it does not panic");
            sample
        }),
    ],
};

/// Keeps so many commands in flight until all are answered.
struct Keeping {
    left: u64,
    flying: u64,
}

impl Process for Keeping {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        for event in events {
            if let Event::Completed(_) = event {
                self.flying -= 1;
            }
        }
        while self.flying < FLYING && self.left > 0 {
            out.perform(Increment(0));
            self.flying += 1;
            self.left -= 1;
        }
        if self.flying > 0 {
            return Ok(Next::Wait);
        }
        DONE.one();
        Ok(Next::Done(()))
    }
}

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
