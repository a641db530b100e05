//! Tests of commands. Commands are answered immediately, later, or on another thread. Commands are cancelled on another
//! thread or together with their process.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot::{self, Canceled};
use procession::*;
use shuttle::thread;

use crate::builder;

/// A drop guard. When the guard is dropped, the receiver resolves to `Canceled`.
struct Probe(#[expect(dead_code, reason = "it is only dropped")] oneshot::Sender<()>);

impl Probe {
    fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, dropped) = oneshot::channel();
        (Self(sender), dropped)
    }
}

/// A command that contains a probe. The handler immediately sends the probe back as the answer.
struct Echo(Probe);
impl Command for Echo {
    type Reply = Probe;
}

/// A command that contains a probe. The handler answers with the probe when its future completes. Another thread wakes
/// this future.
struct Soon(Probe);
impl Command for Soon {
    type Reply = Probe;
}

/// A command that contains a probe. Another thread sends the probe back as the answer.
struct Later(Probe);
impl Command for Later {
    type Reply = Probe;
}

/// A command that is never answered.
struct Never(Probe);
impl Command for Never {
    type Reply = Probe;
}

fn runtime(workers: usize) -> Runtime {
    let rt = builder(workers)
        .handle(|Echo(probe)| probe)
        .handle_async(|Soon(probe)| async {
            let (tell, told) = oneshot::channel();
            thread::spawn(move || tell.send(()));
            told.await.map(|()| probe)
        })
        .handler(|Later(probe), completion: Completion<Probe>| {
            thread::spawn(move || completion.complete(probe));
        })
        .handle_async(|Never(probe)| async {
            std::future::pending::<()>().await;
            probe
        });
    rt.build().expect("a runtime")
}

/// Polls a command once, then drops its future on another thread. Then waits until the probe is dropped, either with
/// the command or with its answer. The process keeps running during this time.
async fn poll_once_and_drop_elsewhere<C: Command>(ctx: &Context<()>, command: impl FnOnce(Probe) -> C) {
    let (probe, dropped) = Probe::new();
    let mut perform = ctx.perform(command(probe));
    let _ = futures::poll!(&mut perform);
    thread::spawn(move || drop(perform));
    assert_eq!(dropped.await, Err(Canceled));
}

scenarios! {
    /// Another thread answers a command while the process cancels the command or is killed.
    fn commands_are_answered_by_another_thread() {
        struct Ask;
        impl Command for Ask { type Reply = u64; }
        let rt = builder(2)
            .handler::<Ask>(|_: Ask, completion: Completion<u64>| {
                thread::spawn(move || completion.complete(7));
            })
            .build()
            .unwrap();
        let asks = rt.spawn(async |ctx: Context| {
            let one = ctx.perform(Ask);
            let mut other = ctx.perform(Ask);
            // The test polls a future and then drops it. The drop cancels the command of the future.
            let _ = futures::poll!(&mut other);
            drop(other);
            one.await
        });
        let killed = rt.spawn(async |ctx: Context| ctx.perform(Ask).await);
        killed.abort();
        assert_eq!(rt.block_on(asks).unwrap(), 7);
        assert!(matches!(rt.block_on(killed), Ok(7) | Err(Exit::Killed)));
    }

    /// A step performs several commands. Each command has at most one answer, even if its handler answers twice. A
    /// cancelled command has no answer.
    fn a_step_performs_several_commands() {
        struct Ask(u64);
        impl Command for Ask { type Reply = u64; }
        #[derive(Default)]
        struct Many { tags: Vec<Tag<Ask>>, wanted: Vec<u64> }
        impl Process for Many {
            type Message = ();
            type Output = ();
            fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
                if self.tags.is_empty() {
                    self.tags = (0..4).map(|n| out.perform(Ask(n))).collect();
                    self.wanted = vec![0, 1, 2, 3];
                }
                for event in events {
                    let Event::Completed(done) = event else { panic!("nobody sends anything") };
                    let n = done.into_result().unwrap().downcast::<u64>().unwrap();
                    let at = self.wanted.iter().position(|wanted| *wanted == n);
                    self.wanted.remove(at.expect("it is wanted, and answered once"));
                    if self.tags.len() == 4 {
                        // The process cancels this command. At this time, the answer may have arrived, the handler may
                        // be sending the answer, or the answer may not exist yet.
                        out.cancel_yield(self.tags[3]);
                        self.wanted.retain(|wanted| *wanted != 3);
                        self.tags.push(out.perform(Ask(4)));
                        self.wanted.push(4);
                    }
                }
                Ok(if self.wanted.is_empty() { Next::Done(()) } else { Next::Wait })
            }
        }
        let rt = builder(2)
            .handler(|ask: Ask, completion: Completion<u64>| {
                if ask.0 % 2 == 0 {
                    thread::spawn(move || completion.complete(ask.0));
                    return;
                }
                let host = completion.host().clone();
                let (pid, tag) = completion.into_tag();
                thread::spawn(move || {
                    let answer = || host.complete_yield(pid, tag, Ok(Payload::new(ask.0))).is_ok();
                    assert!(!(answer() && answer()));
                });
            })
            .build()
            .unwrap();
        rt.block_on(rt.spawn_process(Many::default())).unwrap();
        let killed = rt.spawn_process(Many::default());
        killed.abort();
        assert!(matches!(rt.block_on(killed), Ok(()) | Err(Exit::Killed)));
    }

    /// Each command is answered exactly once. The answer comes inline, from a future or from another thread. Other
    /// commands may be in flight.
    fn commands_are_answered_inline_or_later() {
        let rt = runtime(2);
        let asks = rt.spawn(async |ctx: Context<()>| {
            let mut all = Vec::new();
            let mut probe = || {
                let (probe, dropped) = Probe::new();
                all.push(dropped);
                probe
            };
            drop(ctx.perform(Echo(probe())).await?);
            drop(ctx.perform(Soon(probe())).await?);
            let (echo, soon) = (ctx.perform(Echo(probe())), ctx.perform(Soon(probe())));
            let (later, other) = (ctx.perform(Later(probe())), ctx.perform(Echo(probe())));
            let answers = futures::join!(soon, echo, later, other);
            drop((answers.0?, answers.1?, answers.2?, answers.3?));
            ctx.perform(Soon(probe())).detach();
            ctx.perform(Echo(probe())).detach();
            for dropped in all {
                assert_eq!(dropped.await, Err(Canceled));
            }
            Ok::<_, Failure>(())
        });
        rt.block_on(asks).unwrap();
    }

    /// 1.3d: an inline command is cancelled on another thread. The cancellation happens before the command is
    /// dispatched, while its handler answers, or after the answer.
    fn an_inline_command_is_cancelled_on_another_thread() {
        let rt = runtime(2);
        let poll_once_and_drop_elsewhere = rt.spawn(async |ctx: Context<()>| {
            poll_once_and_drop_elsewhere(&ctx, Echo).await;
            poll_once_and_drop_elsewhere(&ctx, Never).await;
            poll_once_and_drop_elsewhere(&ctx, Soon).await;
        });
        rt.block_on(poll_once_and_drop_elsewhere).unwrap();
    }

    /// After a process was killed, its commands and answers are dropped, and no reference to the process remains.
    fn a_kill_races_with_commands() {
        let rt = runtime(2);
        let held = Arc::new(());
        let (probe, gone) = Probe::new();
        let process = rt.process().value(Arc::clone(&held)).spawn(async move |ctx: Context<()>| {
            let probe = ctx.perform(Echo(probe)).await?;
            let probe = ctx.perform(Soon(probe)).await?;
            let mut never = ctx.perform(Never(Probe::new().0));
            let _ = futures::poll!(&mut never);
            let probe = ctx.perform(Later(probe)).await?;
            drop(never);
            ctx.perform(Echo(probe)).await.map(drop)
        });
        let process = process.unwrap();
        let (host, pid) = (rt.host().clone(), process.pid());
        let kills = thread::spawn(move || host.kill(pid).is_ok());
        assert!(matches!(rt.block_on(process), Ok(()) | Err(Exit::Killed)));
        assert_eq!(rt.block_on(gone), Err(Canceled));
        kills.join().unwrap();
        while Arc::strong_count(&held) != 1 {
            thread::yield_now();
        }
    }

    /// A process is killed while another thread cancels its inline command. No reference to the process remains.
    fn a_kill_races_with_a_cancellation_on_another_thread() {
        let rt = runtime(2);
        let held = Arc::new(());
        let process = rt.process().value(Arc::clone(&held)).spawn(async |ctx: Context<()>| {
            for _ in 0..2 {
                poll_once_and_drop_elsewhere(&ctx, Echo).await;
                poll_once_and_drop_elsewhere(&ctx, Never).await;
            }
        });
        let process = process.unwrap();
        let (host, pid) = (rt.host().clone(), process.pid());
        let kills = thread::spawn(move || host.kill(pid).is_ok());
        assert!(matches!(rt.block_on(process), Ok(()) | Err(Exit::Killed)));
        kills.join().unwrap();
        while Arc::strong_count(&held) != 1 {
            thread::yield_now();
        }
    }

    /// A process runs another process inside its own step, while an inline command of the outer process is pending.
    /// Each process gets its own answer. If the future of a command is dropped inside the inner turn, the command is
    /// cancelled.
    fn a_turn_inside_a_turn_has_its_own_inline_command() {
        let rt = Arc::new(runtime(1));
        let lent = Arc::clone(&rt);
        let outer = rt.spawn(async move |ctx: Context<()>| {
            let (probe, dropped) = Probe::new();
            let mut given_up = ctx.perform(Echo(probe));
            let _ = futures::poll!(&mut given_up);
            let inner = ctx.spawn(async move |ctx: Context<()>| {
                let probe = ctx.perform(Echo(Probe::new().0)).await?;
                drop(given_up);
                ctx.perform(Soon(probe)).await.map(drop)
            });
            let mut kept = ctx.perform(Echo(Probe::new().0));
            let _ = futures::poll!(&mut kept);
            lent.block_on(inner).unwrap();
            assert_eq!(dropped.await, Err(Canceled));
            kept.await.map(drop)
        });
        rt.block_on(outer).unwrap();
    }

    /// 7.1a: a process uses several timeouts in a row. The timeouts elapse, are dropped, or are replaced. When the
    /// process has returned or was killed, no timer keeps a reference to the process.
    fn a_kill_races_with_timeouts() {
        let rt = runtime(2);
        let held = Arc::new(());
        let spawn = || {
            let process = rt.process().value(Arc::clone(&held)).spawn(async move |ctx: Context<()>| {
                let hour = Duration::from_secs(3_600);
                let probe = ctx.timeout(hour, ctx.perform(Echo(Probe::new().0))).await??;
                let probe = ctx.timeout(hour, ctx.perform(Soon(probe))).await??;
                let probe = ctx.timeout(2 * hour, ctx.perform(Later(probe))).await??;
                let never = ctx.timeout(Duration::ZERO, ctx.perform(Never(probe))).await;
                assert!(matches!(never, Err(Failure::TimedOut)));
                ctx.timeout(hour / 2, ctx.perform(Soon(Probe::new().0))).await?.map(drop)
            });
            process.unwrap()
        };
        let (ends, killed) = (spawn(), spawn());
        let (host, pid) = (rt.host().clone(), killed.pid());
        let kills = thread::spawn(move || host.kill(pid).is_ok());
        rt.block_on(ends).unwrap();
        assert!(matches!(rt.block_on(killed), Ok(()) | Err(Exit::Killed)));
        kills.join().unwrap();
        while Arc::strong_count(&held) != 1 {
            thread::yield_now();
        }
    }
}
