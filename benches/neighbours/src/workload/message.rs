//! Messages: a mailbox of ours against an unbounded channel of theirs. An operation is one message; of
//! [`ONE_AND_EXIT`], one receiver with its one message.

use std::sync::Arc;

use procession::{Context, Runtime};
use tokio::sync::mpsc;

use super::Workload;
use crate::latch::DONE;
use crate::round::Runner::{AsyncExecutor, Procession, Tokio};

/// Two that answer each other, nobody else.
pub(super) const PING_PONG: Workload = Workload {
    name: "ping-pong",
    ops: 400_000,
    runs: &[
        (Procession, |round| {
            round.procession(Runtime::builder(), |rt, n| {
                DONE.close(1);
                drop(rt.spawn(async move |mut ping: Context<u64>| {
                    let back = ping.address();
                    let pong = ping.spawn(async move |mut pong: Context<u64>| {
                        for _ in 0..n / 2 {
                            let ball = pong.receive().await.expect("nobody ends it");
                            back.send(ball + 1).expect("ping waits");
                        }
                    });
                    let mut ball = 0;
                    for _ in 0..n / 2 {
                        pong.send(ball).expect("pong waits");
                        ball = ping.receive().await.expect("nobody ends it");
                    }
                    assert_eq!(ball, n / 2);
                    DONE.one();
                }));
                DONE.wait();
            })
        }),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(1);
                let (forth, mut pong) = mpsc::unbounded_channel::<u64>();
                let (back, mut ping) = mpsc::unbounded_channel::<u64>();
                drop(rt.spawn(async move {
                    drop(tokio::spawn(async move {
                        for _ in 0..n / 2 {
                            let ball = pong.recv().await.expect("ping sends");
                            back.send(ball + 1).expect("ping waits");
                        }
                    }));
                    let mut ball = 0;
                    for _ in 0..n / 2 {
                        forth.send(ball).expect("pong waits");
                        ball = ping.recv().await.expect("pong sends");
                    }
                    assert_eq!(ball, n / 2);
                    DONE.one();
                }));
                DONE.wait();
            })
        }),
        (AsyncExecutor, |round| {
            round.async_executor(|ex, n| {
                DONE.close(1);
                let (forth, pong) = async_channel::unbounded::<u64>();
                let (back, ping) = async_channel::unbounded::<u64>();
                let inside = Arc::clone(ex);
                ex.spawn(async move {
                    inside
                        .spawn(async move {
                            for _ in 0..n / 2 {
                                let ball = pong.recv().await.expect("ping sends");
                                back.try_send(ball + 1).expect("ping waits");
                            }
                        })
                        .detach();
                    let mut ball = 0;
                    for _ in 0..n / 2 {
                        forth.try_send(ball).expect("pong waits");
                        ball = ping.recv().await.expect("pong sends");
                    }
                    assert_eq!(ball, n / 2);
                    DONE.one();
                })
                .detach();
                DONE.wait();
            })
        }),
    ],
};

/// One sends without pause, one counts what comes.
pub(super) const COUNTING: Workload = Workload {
    name: "counting",
    ops: 500_000,
    runs: &[
        (Procession, |round| {
            round.procession(Runtime::builder(), |rt, n| {
                DONE.close(1);
                let counter = rt.spawn(async move |mut ctx: Context<u64>| {
                    let mut sum = 0;
                    for _ in 0..n {
                        sum += ctx.receive().await.expect("nobody ends it");
                    }
                    assert_eq!(sum, n * (n - 1) / 2);
                    DONE.one();
                });
                drop(rt.spawn(async move |_: Context| {
                    for i in 0..n {
                        counter.send(i).expect("the counter waits");
                    }
                }));
                DONE.wait();
            })
        }),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(1);
                let (sender, mut receiver) = mpsc::unbounded_channel::<u64>();
                drop(rt.spawn(async move {
                    let mut sum = 0;
                    for _ in 0..n {
                        sum += receiver.recv().await.expect("the sender sends");
                    }
                    assert_eq!(sum, n * (n - 1) / 2);
                    DONE.one();
                }));
                drop(rt.spawn(async move {
                    for i in 0..n {
                        sender.send(i).expect("the counter waits");
                    }
                }));
                DONE.wait();
            })
        }),
        (AsyncExecutor, |round| {
            round.async_executor(|ex, n| {
                DONE.close(1);
                let (sender, receiver) = async_channel::unbounded::<u64>();
                ex.spawn(async move {
                    let mut sum = 0;
                    for _ in 0..n {
                        sum += receiver.recv().await.expect("the sender sends");
                    }
                    assert_eq!(sum, n * (n - 1) / 2);
                    DONE.one();
                })
                .detach();
                ex.spawn(async move {
                    for i in 0..n {
                        sender.try_send(i).expect("the counter waits");
                    }
                })
                .detach();
                DONE.wait();
            })
        }),
    ],
};

/// One makes receivers without pause, each with one message in its hands; each ends when it has read it.
pub(super) const ONE_AND_EXIT: Workload = Workload {
    name: "create-1-exit",
    ops: 100_000,
    runs: &[
        (Procession, |round| {
            round.procession(Runtime::builder(), |rt, n| {
                DONE.close(n);
                drop(rt.spawn(async move |ctx: Context| {
                    for i in 0..n {
                        let child = ctx.spawn(async |mut ctx: Context<u64>| {
                            ctx.receive().await.expect("nobody ends it");
                            DONE.one();
                        });
                        child.send(i).expect("the child waits");
                    }
                }));
                DONE.wait();
            })
        }),
        (Tokio, |round| {
            round.tokio(|rt, n| {
                DONE.close(n);
                drop(rt.spawn(async move {
                    for i in 0..n {
                        let (sender, mut receiver) = mpsc::unbounded_channel::<u64>();
                        drop(tokio::spawn(async move {
                            receiver.recv().await.expect("one is sent");
                            DONE.one();
                        }));
                        sender.send(i).expect("the child waits");
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
                    for i in 0..n {
                        let (sender, receiver) = async_channel::unbounded::<u64>();
                        inside
                            .spawn(async move {
                                receiver.recv().await.expect("one is sent");
                                DONE.one();
                            })
                            .detach();
                        sender.try_send(i).expect("the child waits");
                    }
                })
                .detach();
                DONE.wait();
            })
        }),
    ],
};
