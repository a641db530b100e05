//! Section 6.7 of the specification: an upgrade replaces the code of a running process. The tests check which data an
//! upgrade keeps, and which data it drops. The tests also check that an upgrade changes nothing if the new code fails
//! before it has started.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::executor::block_on;
use futures::future::{BoxFuture, Either, join, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use procession::*;

use crate::{alone, within};

const SECOND: Duration = Duration::from_secs(1);

fn rt() -> Runtime {
    Runtime::builder().workers(1).build().expect("a runtime")
}

type Ask = Reply<String>;

fn ask<T>(rt: &Runtime, process: &JoinHandle<T, Ask>) -> String {
    rt.block_on(process.call(|reply| reply)).expect("it answers")
}

/// Body that answers every message with `name` and the pid of its process, forever.
async fn serve(mut ctx: Context<Ask>, name: &'static str) -> Result<(), Exit> {
    loop {
        let reply = ctx.receive().await?;
        reply.send(format!("{name} {}", ctx.pid()));
    }
}

/// A value that counts the live values of its type.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// 6.7a: an upgrade keeps the pid, the names, the links, the monitors and the messages of the process. An upgrade also
/// keeps messages that were read ahead or stashed. The values of the old code are dropped.
#[test]
fn an_upgrade_keeps_the_pid_and_the_messages_of_the_process() {
    within(60, || {
        let rt = rt();
        let count = Arc::new(AtomicUsize::new(0));
        let held = count.clone();
        let old = rt.process().name("it").spawn(async move |mut ctx: Context<u32>| {
            let _held = Counted::new(&held);
            // One message is stashed, one message is read, three messages are read ahead, and the remaining messages
            // arrive later.
            let aside = ctx.receive().await?;
            ctx.stash(aside);
            assert_eq!(ctx.receive().await?, 1);
            let seen = held.clone();
            let exit = ctx
                .upgrade(async move |mut ctx: Context<u32>| {
                    ctx.yield_now().await;
                    let mut read = vec![];
                    ctx.unstash();
                    while read.len() < 6 {
                        read.push(ctx.receive().await?);
                    }
                    Ok::<_, Exit>((read, seen.load(Ordering::SeqCst), ctx.pid()))
                })
                .await
                .1;
            Err::<(Vec<u32>, usize, Pid), _>(exit)
        });
        let old = old.expect("its name is free");
        let pid = old.pid();
        let linked = rt.spawn(async move |mut ctx: Context| {
            ctx.trap_exit(true);
            ctx.link(pid)?;
            let watch = ctx.monitor(pid);
            ctx.mark_started();
            let mut told = vec![];
            while told.len() < 2 {
                match ctx.event().await {
                    Event::Exit { from: pid, exit: reason, .. } => told.push(format!("exit {pid} {reason}")),
                    Event::Down { monitor, pid, exit: reason, .. } if monitor == watch => {
                        told.push(format!("down {pid} {reason}"));
                    }
                    _ => {}
                }
            }
            told.sort();
            Ok::<_, Exit>(told)
        });
        rt.block_on(linked.started()).expect("it links");
        for n in 0..5 {
            old.send(n).expect("it lives");
        }
        while count.load(Ordering::SeqCst) != 0 || rt.whereis("it").is_none() {
            std::thread::yield_now();
        }
        assert_eq!(rt.whereis("it"), Some(pid));
        for n in 5..7 {
            let _ = old.send(n);
        }
        assert_eq!(rt.block_on(old).expect("it ends"), (vec![0, 2, 3, 4, 5, 6], 0, pid));
        let told = rt.block_on(linked).expect("it hears of both");
        assert_eq!(told, [format!("down {pid} exited normally"), format!("exit {pid} exited normally")]);
    });
}

/// 6.7b: if the new code fails, the old code still has its stash and the messages that the old code has read ahead, in
/// the same order. The capacity of the mailbox and the number of nested upgrades do not matter. A message is missing
/// only if the new code has received but not stashed this message.
#[test]
fn a_failed_upgrade_keeps_the_stash() {
    fn all(ctx: &mut Context<u32>) -> Vec<u32> {
        std::iter::from_fn(|| ctx.try_receive()).collect()
    }

    type Read = (usize, Vec<u32>, usize, Vec<u32>);

    async fn body(mut ctx: Context<u32>, reads: bool, depth: u32) -> Result<Read, Exit> {
        for _ in 0..2 {
            let message = ctx.receive().await?;
            ctx.stash(message);
        }
        // The receiver takes all messages out of the mailbox together. Some of these messages are then read ahead.
        let (mut ctx, exit) = ctx.upgrade(move |ctx| fails(ctx, reads, depth)).await;
        assert_eq!(exit.to_string(), "failed: no disk");
        let before = all(&mut ctx);
        let stashed = ctx.unstash();
        let after = all(&mut ctx);
        Ok((before.len(), before, stashed, after))
    }

    fn fails(mut ctx: Context<u32>, reads: bool, depth: u32) -> BoxFuture<'static, Result<Read, Exit>> {
        Box::pin(async move {
            if depth != 0 {
                drop(ctx.upgrade(move |ctx| fails(ctx, reads, depth - 1)).await);
            } else if reads {
                assert_eq!(ctx.receive().await?, 3);
                // Only the new code stashes this message, so the old code receives the message again.
                let message = ctx.receive().await?;
                ctx.stash(message);
            }
            Err(Exit::failed("no disk"))
        })
    }

    within(60, || {
        for capacity in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(8), MailboxCapacity::DropOldest(8)] {
            for (depth, reads) in [(0, false), (0, true), (1, false), (1, true), (2, true)] {
                let rt = Runtime::builder().workers(0).build().expect("no threads");
                let letters = rt.dead_letters();
                let build = rt.process().mailbox_capacity(capacity);
                let process = build.spawn(move |ctx| body(ctx, reads, depth)).expect("there is room");
                (1..=5).for_each(|message| process.send(message).expect("there is room"));
                let (count, before, stashed, after) = rt.block_on(process).expect("it does not fail");
                let left: &[u32] = if reads { &[4, 5] } else { &[3, 4, 5] };
                assert_eq!((&before[..], count, stashed), (left, left.len(), 2), "{capacity:?}, {depth}");
                assert_eq!(after, [1, 2]);
                assert_eq!(rt.counters().dead_letters, 0);
                drop(letters);
            }
        }
    });
}

/// 6.7a, 2.2d: if new code starts and then drops its mailbox, no message is lost: the messages become dead letters when
/// the process exits.
#[test]
fn new_code_without_a_mailbox_loses_no_message() {
    within(60, || {
        for capacity in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(8)] {
            let rt = Runtime::builder().workers(0).build().expect("no threads");
            let build = rt.process().mailbox_capacity(capacity);
            let process = build.spawn(async |mut ctx: Context<u32>| -> Result<(), Exit> {
                let message = ctx.receive().await?;
                ctx.stash(message);
                let (_ctx, exit) = ctx
                    .upgrade(async |ctx: Context<u32>| -> Result<(), Exit> {
                        let (me, mailbox) = ctx.split();
                        drop(mailbox);
                        me.cancelled().await;
                        Ok(())
                    })
                    .await;
                Err(exit)
            });
            let process = process.expect("there is room");
            (1..=5).for_each(|message| process.send(message).expect("there is room"));
            rt.block_on(process.started()).expect("it starts");
            rt.cancel(process.pid(), "test", SECOND * 60).expect("it is alive");
            rt.block_on(process).expect("the new code runs");
            assert_eq!(rt.counters().dead_letters, 5, "{capacity:?}");
        }
    });
}

/// 6.7b: if the new code fails before it has started, the old code continues to run. The messages of the process stay
/// in order.
#[test]
fn an_upgrade_that_does_not_start_changes_nothing() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().expect("a runtime");
        let process = rt.spawn(async |mut ctx: Context<u32>| {
            assert_eq!(ctx.receive().await?, 0);
            let mut exits = vec![];
            let (ctx, exit) = ctx
                .upgrade(async |mut ctx: Context<u32>| {
                    // The old code gets back the messages that the new code has read ahead, but not the message that
                    // the new code has received.
                    assert_eq!(ctx.receive().await?, 1);
                    Err::<Vec<String>, _>(Exit::failed("no disk"))
                })
                .await;
            exits.push(exit.to_string());
            let (ctx, exit) =
                ctx.upgrade(async |_: Context<u32>| -> Result<Vec<String>, Exit> { panic!("boom") }).await;
            exits.push(exit.to_string());
            // The new code panics before its future is created.
            let (ctx, exit) = ctx
                .upgrade(|_: Context<u32>| {
                    assert!(std::hint::black_box(false), "early");
                    std::future::pending::<Result<Vec<String>, Exit>>()
                })
                .await;
            exits.push(exit.to_string());
            let (mut ctx, exit) = ctx.upgrade(async |_: Context<u32>| Ok::<u8, Exit>(1)).await;
            exits.push(exit.to_string());
            for n in 2..5 {
                assert_eq!(ctx.receive().await?, n);
            }
            Ok::<_, Exit>(exits)
        });
        for n in 0..5 {
            process.send(n).expect("it lives");
        }
        let exits = rt.block_on(process).expect("the old one ends");
        assert_eq!(exits[0], "failed: no disk");
        for (exit, text) in exits[1..3].iter().zip(["boom", "early"]) {
            assert!(exit.starts_with(&format!("panicked at {}:", file!())) && exit.ends_with(text), "{exit}");
        }
        assert_eq!(
            exits[3],
            "failed: the output of the process has type alloc::vec::Vec<alloc::string::String>, but the output of the new \
             code has type u8"
        );
        assert_eq!(rt.counters().panics, 2);
    });
}

/// 6.7a, 6.7b: new code with a manual start takes over when it calls `mark_started`. If the new code fails before this
/// call, the old code continues.
#[test]
fn new_code_with_a_manual_start_takes_over_when_it_marks_its_start() {
    within(60, || {
        let rt = rt();
        let count = Arc::new(AtomicUsize::new(0));
        let held = count.clone();
        let process = rt.process().manual_start().spawn(async move |ctx: Context<Ask>| {
            let _held = Counted::new(&held);
            ctx.mark_started();
            let (ctx, exit) = ctx
                .upgrade(async |ctx: Context<Ask>| {
                    // The new code runs for some turns without `mark_started`, and then fails.
                    for _ in 0..10 {
                        ctx.yield_now().await;
                    }
                    Err::<(), _>(Exit::failed("too late"))
                })
                .await;
            assert_eq!(exit.to_string(), "failed: too late");
            Err::<(), _>(
                ctx.upgrade(async |mut ctx: Context<Ask>| {
                    ctx.receive().await?.send("not ready yet".into());
                    ctx.receive().await?.send("ready".into());
                    ctx.mark_started();
                    serve(ctx, "new").await
                })
                .await
                .1,
            )
        });
        let process = process.expect("there is room");
        let pid = process.pid();
        assert_eq!(ask(&rt, &process), "not ready yet");
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(ask(&rt, &process), "ready");
        assert_eq!(ask(&rt, &process), format!("new {pid}"));
        assert_eq!(count.load(Ordering::SeqCst), 0);
        rt.block_on(process.started()).expect("the new one has");
    });
}

/// 6.7a, 6.7b: a cancellation, a kill and an exit apply to the code that currently controls the process. If the new
/// code returns in its first poll, the new code counts as started.
#[test]
fn a_cancellation_or_a_kill_during_an_upgrade_reaches_the_running_code() {
    within(60, || {
        let rt = rt();
        // The process is cancelled while the new code starts. Because of this cancellation, the new code exits before
        // its start has succeeded. So the old code continues, and receives the cancellation too.
        let process = rt.process().manual_start().spawn(async |ctx: Context| {
            ctx.mark_started();
            let (mut ctx, exit) = ctx.upgrade(async |mut ctx: Context| ctx.receive().await.map(|_| 1)).await;
            assert!(matches!(exit, Exit::Cancelled(_)), "{exit}");
            assert!(matches!(ctx.receive().await, Err(Exit::Cancelled(_))));
            Ok::<_, Exit>(2)
        });
        let process = process.expect("there is room");
        rt.block_on(process.started()).expect("it starts");
        rt.cancel(process.pid(), "enough", SECOND).expect("it lives");
        assert_eq!(rt.block_on(process).expect("it cleans up"), 2);

        // A kill drops both the old code and the new code. The test kills one process while its new code starts, and
        // another process after its new code has started.
        for by_hand in [true, false] {
            let count = Arc::new(AtomicUsize::new(0));
            let (old, new) = (count.clone(), count.clone());
            let builder = if by_hand { rt.process().manual_start() } else { rt.process() };
            let process = builder.spawn(async move |ctx: Context| {
                let _held = Counted::new(&old);
                let body = async move |mut ctx: Context| {
                    let _held = Counted::new(&new);
                    ctx.receive().await.map(drop)
                };
                Err::<(), _>(ctx.upgrade(body).await.1)
            });
            let process = process.expect("there is room");
            while count.load(Ordering::SeqCst) != if by_hand { 2 } else { 1 } {
                std::thread::yield_now();
            }
            rt.kill(process.pid()).expect("it lives");
            assert!(matches!(rt.block_on(process), Err(Exit::Killed)));
            assert_eq!(count.load(Ordering::SeqCst), 0);
        }

        let at_once =
            rt.spawn(async |ctx: Context| Err::<u32, _>(ctx.upgrade(async |_: Context| Ok::<_, Exit>(7_u32)).await.1));
        assert_eq!(rt.block_on(at_once).expect("the new one ended well"), 7);
        // If the new code fails after it has started, the process exits.
        let late = rt.spawn(async |ctx: Context| {
            let body = async |ctx: Context| {
                ctx.yield_now().await;
                Err::<(), _>("late")
            };
            let _ = ctx.upgrade(body).await;
            assert!(std::hint::black_box(false), "it has started");
            Ok::<(), Exit>(())
        });
        assert_eq!(rt.block_on(late).expect_err("it failed").to_string(), "failed: late");
    });
}

/// 6.7a: a body calls `upgrade` in a future of a combinator. The upgrade drops the combinator with its wakers and its
/// other futures. Events still wake the new code.
#[test]
fn an_upgrade_works_inside_combinators() {
    within(60, || {
        let rt = rt();
        for beside in [true, false] {
            let process = rt.spawn(async move |ctx: Context<Ask>| {
                let me = SelfHandle::clone(&ctx);
                let upgrade = ctx.upgrade(|ctx| serve(ctx, "new")).boxed();
                if beside {
                    let ticks = async move {
                        loop {
                            me.sleep(Duration::from_millis(1)).await;
                        }
                    };
                    let ((_, exit), ()) = join(upgrade, ticks.boxed()).await;
                    Err::<(), _>(exit)
                } else {
                    match select(upgrade, me.sleep(SECOND * 1000)).await {
                        Either::Left(((_, exit), _)) => Err(exit),
                        Either::Right(_) => Ok(()),
                    }
                }
            });
            let pid = process.pid();
            for _ in 0..3 {
                assert_eq!(ask(&rt, &process), format!("new {pid}"));
            }
            rt.cancel(pid, "enough", SECOND).expect("it lives");
            assert!(matches!(rt.block_on(process), Err(Exit::Cancelled(_))));
        }
    });
}

/// 6.7a: an upgrade also completes in a combinator that polls a future only after this future was woken.
#[test]
fn an_upgrade_works_in_a_combinator_that_polls_only_woken_futures() {
    within(60, || {
        let rt = rt();
        let process = rt.spawn(async |ctx: Context<Ask>| {
            let mut upgrade = FuturesUnordered::from_iter([ctx.upgrade(|ctx| serve(ctx, "new"))]);
            Err::<(), _>(upgrade.next().await.expect("it is there").1)
        });
        for _ in 0..3 {
            assert_eq!(ask(&rt, &process), format!("new {}", process.pid()));
        }
        rt.cancel(process.pid(), "enough", SECOND).expect("it lives");
        assert!(matches!(rt.block_on(process), Err(Exit::Cancelled(_))));
    });
}

/// 4.6b, 6.7a: a process that upgrades itself endlessly does not starve other processes. The process can be killed.
#[test]
fn endless_upgrades_do_not_starve_other_processes() {
    fn turns(ctx: Context<()>) -> BoxFuture<'static, Result<(), Exit>> {
        Box::pin(async move {
            ctx.yield_now().await;
            Err(ctx.upgrade(turns).await.1)
        })
    }
    within(60, || {
        let rt = alone().build().expect("a runtime");
        let process = rt.spawn(turns);
        let other = rt.spawn(async |_: Context| {});
        block_on(other).expect("it has its turn");
        process.abort();
        assert!(matches!(block_on(process), Err(Exit::Killed)));
    });
}

/// 6.7b: if the upgrade future is dropped before the new code has started, the new code is dropped.
#[test]
fn an_upgrade_can_be_dropped_until_its_new_code_has_started() {
    within(60, || {
        let rt = rt();
        let count = Arc::new(AtomicUsize::new(0));
        let held = count.clone();
        let process = rt.process().manual_start().spawn(async move |ctx: Context| {
            let me = SelfHandle::clone(&ctx);
            me.mark_started();
            let new = held.clone();
            let body = async move |mut ctx: Context| {
                let _held = Counted::new(&new);
                ctx.receive().await.map(|_| 0_usize)
            };
            let upgrade = ctx.upgrade(body).boxed();
            let Either::Right(_) = select(upgrade, me.sleep(Duration::from_millis(5))).await else {
                panic!("nobody sends it anything")
            };
            Ok::<_, Exit>(held.load(Ordering::SeqCst))
        });
        let process = process.expect("there is room");
        assert_eq!(rt.block_on(process.started()).map_err(|exit| exit.to_string()), Ok(()));
        assert_eq!(rt.block_on(process).expect("the old one goes on"), 0);
    });
}

/// 6.7b: if an upgrade future is polled outside its process, the upgrade fails.
#[test]
fn an_upgrade_that_is_polled_outside_its_process_fails() {
    within(60, || {
        let rt = rt();
        let process = rt.spawn(async |ctx: Context| {
            let (_, exit) = block_on(async {
                std::thread::spawn(move || block_on(ctx.upgrade(async |_: Context| Ok::<(), Exit>(()))))
                    .join()
                    .expect("no panic")
            });
            Err::<(), _>(exit)
        });
        let exit = rt.block_on(process).expect_err("it is told");
        assert!(exit.to_string().contains("turns of its own process"), "{exit}");
    });
}

/// 6.7a: a process performs a hundred thousand upgrades one after the other. Nothing of the old code remains.
#[test]
fn many_upgrades_leave_nothing_behind() {
    fn chain(ctx: Context, n: u32, count: Arc<AtomicUsize>) -> BoxFuture<'static, Result<usize, Exit>> {
        async move {
            let _held = Counted::new(&count);
            if n.is_multiple_of(2) {
                ctx.yield_now().await;
            }
            if n == 0 {
                return Ok(count.load(Ordering::SeqCst));
            }
            let next = {
                let count = count.clone();
                move |ctx| chain(ctx, n - 1, count)
            };
            Err(ctx.upgrade(next).await.1)
        }
        .boxed()
    }
    within(120, || {
        let rt = rt();
        let process = rt.spawn(|ctx| chain(ctx, 100_000, Arc::default()));
        assert_eq!(rt.block_on(process).expect("it ends"), 1);
    });
}

/// 6.7a: the body of an entry point can upgrade itself like any other body, and so can a body in a local set.
#[test]
fn entry_points_and_local_bodies_can_be_upgraded() {
    within(60, || {
        let rt = rt();
        let app = EntryPoints::new().entry("old", async |ctx: Context, n: u32| {
            Err::<u32, _>(
                ctx.upgrade(async move |ctx: Context| {
                    ctx.yield_now().await;
                    Ok::<_, Exit>(n + 1)
                })
                .await
                .1,
            )
        });
        assert_eq!(rt.block_on(rt.execute(app, "old", 3_u32)).expect("it ends"), 4);

        let local = rt.local_set();
        let process = local.spawn(async |ctx: Context| {
            let _not_send = std::rc::Rc::new(());
            Err::<u32, Exit>(
                ctx.upgrade(async |ctx: Context| {
                    ctx.sleep(Duration::from_millis(1)).await;
                    Ok::<_, Exit>(5_u32)
                })
                .await
                .1,
            )
        });
        assert_eq!(rt.block_on(local.run(process)).expect("it ends"), 5);
    });
}

/// A hand-written process that replies with its name. On request, the process upgrades to another process.
struct Raw {
    name: &'static str,
    log: Arc<std::sync::Mutex<Vec<String>>>,
}

enum Msg {
    Who(Ask),
    Become(&'static str, &'static str),
    End,
}

impl Raw {
    fn log(&self, what: &str) {
        self.log.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Process for Raw {
    type Message = Msg;
    type Output = &'static str;

    fn init(&mut self, start: Start<'_>) -> std::result::Result<(), InitError> {
        self.log(start.entry);
        match start.entry {
            "" | "go" => Ok(()),
            "panic" => panic!("boom"),
            _ => Err(InitError::UnknownEntry { entry: start.entry.into(), known: vec!["go"] }),
        }
    }

    fn step(&mut self, events: Events<'_, Msg>, out: &mut StepOutput<'_, Msg>) -> Result<Next<&'static str>, Exit> {
        for event in events {
            match event {
                Event::Message(Msg::Who(reply)) => reply.send(self.name.into()),
                Event::Message(Msg::Become(name, method)) => {
                    match out.upgrade(Raw { name, log: self.log.clone() }, method, ()) {
                        Ok(()) => break,
                        Err(error) => {
                            let SpawnErrorKind::StartFailed(exit) = error.kind() else { panic!("{error}") };
                            self.log(&format!("upgrade refused: {exit:?}"));
                            assert_eq!(error.into_body().name, name);
                        }
                    }
                }
                Event::Message(Msg::End) => return Ok(Next::Done(self.name)),
                _ => {}
            }
        }
        Ok(Next::Wait)
    }

    fn close(&mut self) {
        self.log("close");
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.log("drop");
    }
}

/// 1.1h, 6.7a: a hand-written process upgrades to another hand-written process. The `init` of the new process runs
/// immediately, and the new process gets the unread events. `close` runs only for the last process.
#[test]
fn a_hand_written_process_upgrades_to_another_process() {
    within(60, || {
        let rt = Runtime::builder().workers(1).build().expect("a runtime");
        let log = Arc::new(std::sync::Mutex::new(vec![]));
        let process = rt.spawn_process(Raw { name: "a", log: log.clone() });
        let who = |reply| Msg::Who(reply);
        for (name, method) in [("x", "panic"), ("y", "stay"), ("b", "go")] {
            process.send(Msg::Become(name, method)).expect("it lives");
        }
        assert_eq!(rt.block_on(process.call(who)).expect("it answers"), "b");
        process.send(Msg::Become("c", "go")).expect("it lives");
        process.send(Msg::End).expect("it lives");
        assert_eq!(rt.block_on(process).expect("it ends"), "c");
        let log = std::mem::take(&mut *log.lock().unwrap());
        let expected = [
            "a ",
            "x panic",
            "a upgrade refused: Panicked(\"boom\")",
            "x drop",
            "y stay",
            "a upgrade refused: InitFailed(UnknownEntry { entry: \"stay\", known: [\"go\"] })",
            "y drop",
            "b go",
            "a drop",
            "c go",
            "b drop",
            "c close",
            "c drop",
        ];
        assert_eq!(log, expected);
        assert_eq!(rt.counters().panics, 1);
    });
}

/// 6.7a: a body may poll the future of an upgrade once, and then drop this future. The result of this upgrade does not
/// reach the upgrade of another process on the same thread.
#[test]
fn the_result_of_a_dropped_upgrade_reaches_no_other_upgrade() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        for _ in 0..2 {
            let drops = rt.spawn(async |ctx: Context| -> Result<u64, Exit> {
                let mut upgrade = Box::pin(ctx.upgrade(async |_: Context| Ok::<u64, Exit>(1)));
                assert!(futures::poll!(&mut upgrade).is_pending());
                drop(upgrade);
                Ok(2)
            });
            assert_eq!(rt.block_on(drops).unwrap(), 2);
            let drops = rt.spawn(async |ctx: Context| -> Result<u64, Exit> {
                let host = ctx.host().clone();
                let mut upgrade = Box::pin(ctx.upgrade(async |_: Context| Ok::<u64, Exit>(1)));
                assert!(futures::poll!(&mut upgrade).is_pending());
                drop(upgrade);
                host.sleep(Duration::from_millis(1)).await;
                Ok(3)
            });
            assert_eq!(rt.block_on(drops).unwrap(), 3);
            let wrong = rt.spawn(async |ctx: Context| -> Result<u64, Exit> {
                Err(ctx.upgrade(async |_: Context| Ok::<u32, Exit>(1)).await.1)
            });
            assert!(rt.block_on(wrong).unwrap_err().to_string().contains("u64"));
        }
    });
}

/// 2.3e: after a failed upgrade, the old code receives messages and events in their order of arrival.
#[test]
fn a_failed_upgrade_keeps_the_order_of_events() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let ended = rt.spawn(async |_: Context| {});
    let dead = ended.pid();
    rt.block_on(ended).unwrap();
    let process = rt.spawn(async move |ctx: Context<u32>| {
        for number in 1..=3_u32 {
            ctx.send(ctx.pid(), number).unwrap();
        }
        let (mut ctx, _) = ctx
            .upgrade(async move |mut ctx: Context<u32>| {
                // The receiver takes the messages 2 and 3 out of the queue before these messages are requested
                // (read-ahead). The message 4 is stored in the mailbox slot.
                assert_eq!(ctx.try_receive(), Some(1));
                ctx.send(ctx.pid(), 4_u32).unwrap();
                ctx.monitor(dead);
                Err::<Vec<String>, &str>("no")
            })
            .await;
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(match ctx.event().await {
                Event::Message(number) => number.to_string(),
                _ => "down".into(),
            });
        }
        Ok::<_, Exit>(seen)
    });
    assert_eq!(rt.block_on(process).unwrap(), ["2", "3", "4", "down"]);
}

/// 6.7b: the result of a dropped upgrade does not reach the upgrade of a later process, even if the later process uses
/// the same memory.
#[test]
fn the_result_of_a_dropped_upgrade_reaches_no_later_process() {
    fn first(ctx: Context) -> BoxFuture<'static, Result<u64, Exit>> {
        async move {
            let mut upgrade = Box::pin(ctx.upgrade(async |_: Context| Ok::<i64, Exit>(1)));
            assert!(futures::poll!(&mut upgrade).is_pending());
            drop(upgrade);
            // The runtime stores the result of the upgrade when this body has returned `Pending`.
            let mut polled = false;
            futures::future::poll_fn(|cx| {
                if std::mem::replace(&mut polled, true) {
                    return std::task::Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
            Ok(0)
        }
        .boxed()
    }
    fn second(ctx: Context) -> BoxFuture<'static, Result<i64, Exit>> {
        async move { Err(ctx.upgrade(async |_: Context| Ok::<i64, Exit>(7)).await.1) }.boxed()
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    rt.block_on(rt.spawn(first)).unwrap();
    assert_eq!(rt.block_on(rt.spawn(second)).unwrap(), 7);
}

/// A server whose `init` fails unless the first field is true. The second field is the number of turns that `init`
/// takes.
struct Broken(bool, usize);

impl Server for Broken {
    type Message = ();
    type Output = ();

    async fn init(&mut self, ctx: &mut Context<()>) -> Result<(), Exit> {
        for _ in 0..self.1 {
            ctx.yield_now().await;
        }
        if self.0 { Ok(()) } else { Err(Exit::failed("the init")) }
    }

    async fn handle(&mut self, (): (), _: &mut Context<()>) -> Result<Next<()>, Exit> {
        Err(Exit::failed("broken"))
    }
}

/// 6.7b: if the `init` of a server fails in an upgrade, the old code continues, and counts as started after its first
/// step. A later upgrade to a server succeeds. When the new server starts, its mailbox may contain messages that were
/// sent to the old code. If the new server fails because of a message to the old code, the process exits, because the
/// new server has already started.
#[test]
fn an_upgrade_to_a_server_succeeds_after_a_failed_upgrade_to_a_server() {
    for turns in [0, 3] {
        let mut simulation = Simulation::new(1);
        let process = simulation.spawn(async move |ctx: Context<()>| -> Result<(), Exit> {
            let (mut ctx, exit) = ctx.upgrade(move |ctx| Broken(false, turns).serve(ctx)).await;
            assert!(exit.to_string().contains("the init"), "{exit}");
            ctx.receive().await?;
            let (_, exit) = ctx.upgrade(move |ctx| Broken(true, turns).serve(ctx)).await;
            panic!("the new server has started, so the old code is gone: {exit}");
        });
        simulation.run(process.started()).expect("the old code has started");
        process.send(()).unwrap();
        process.send(()).unwrap();
        assert_eq!(simulation.run(process).unwrap_err().to_string(), "failed: broken");
    }
}

/// 6.7a: new code with a manual start counts as started as soon as the new code has called `mark_started`. If the new
/// code then fails or panics, even in the same poll, the process exits.
#[test]
fn new_code_that_has_reported_its_start_may_fail_in_the_same_poll() {
    for panics in [false, true] {
        let mut simulation = Simulation::new(1);
        let process = simulation.process().manual_start().spawn(async move |ctx: Context| -> Result<(), Exit> {
            let upgrade = ctx.upgrade(async move |ctx: Context| -> Result<(), Exit> {
                ctx.mark_started();
                assert!(!panics, "the new code panics");
                Err(Exit::failed("the new code fails"))
            });
            let (_, exit) = upgrade.await;
            panic!("the old code continues: {exit}");
        });
        let exit = simulation.run(process.unwrap()).unwrap_err().to_string();
        assert!(exit.contains("the new code"), "{exit}");
        assert_eq!(simulation.counters().panics, u64::from(panics));
    }
}

/// 6.7b: new code that has not started yet may itself request an upgrade. If both upgrades fail, the old code
/// continues.
#[test]
fn the_old_code_continues_after_a_failed_upgrade_inside_a_failed_upgrade() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let process = rt.process().manual_start().spawn(async |ctx: Context| {
        let upgrade = ctx.upgrade(async |ctx: Context| -> Result<u64, Exit> {
            let (_, exit) = ctx.upgrade(async |_: Context| Err::<u64, _>("the inner code")).await;
            Err(exit)
        });
        let (ctx, exit) = upgrade.await;
        assert!(exit.to_string().contains("the inner code"), "{exit}");
        ctx.mark_started();
        Ok::<u64, Exit>(7)
    });
    assert_eq!(rt.block_on(process.unwrap()).unwrap(), 7);
}

/// 6.7b: a body awaits two upgrades with different result types at the same time. Both upgrades fail, and each future
/// gets the error of its own upgrade.
#[test]
fn two_upgrades_of_one_body_get_their_own_replies() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let process = rt.spawn(async |ctx: Context<()>| -> Result<u32, Exit> {
            let stale = Arc::new(std::sync::Mutex::new(None));
            let keeps = Arc::clone(&stale);
            let failed = ctx.upgrade(async move |ctx: Context<()>| -> Result<u32, &str> {
                *keeps.lock().unwrap() = Some(ctx);
                Err("no")
            });
            let (ctx, _) = failed.await;
            let stale = stale.lock().unwrap().take().unwrap();
            let one = stale.upgrade(async |_: Context<()>| Ok::<u8, Exit>(1));
            let ((_, one), (_, other)) = join(one, ctx.upgrade(async |_: Context<()>| Ok::<u16, Exit>(2))).await;
            assert!(one.to_string().contains("u8") && other.to_string().contains("u16"), "{one}, {other}");
            Ok(3)
        });
        assert_eq!(rt.block_on(process).unwrap(), 3);
    });
}

/// 6.7b: a body awaits two upgrades at the same time. The new body of the first upgrade waits for a message. This new
/// body then replaces the old body, and the second upgrade has no effect.
#[test]
fn a_second_upgrade_does_not_cancel_an_accepted_upgrade() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let process = rt.spawn(async |ctx: Context<u32>| -> Result<u32, Exit> {
            let stale = Arc::new(std::sync::Mutex::new(None));
            let keeps = Arc::clone(&stale);
            let failed = ctx.upgrade(async move |ctx: Context<u32>| -> Result<u32, &str> {
                *keeps.lock().unwrap() = Some(ctx);
                Err("no")
            });
            let (ctx, _) = failed.await;
            let stale = stale.lock().unwrap().take().unwrap();
            let new = ctx.upgrade(async |mut ctx: Context<u32>| ctx.receive().await);
            let _ = join(new, stale.upgrade(async |_: Context<u32>| Ok::<u32, Exit>(1))).await;
            unreachable!("the new body has replaced this body");
        });
        process.send(7).unwrap();
        assert_eq!(rt.block_on(process).unwrap(), 7);
    });
}

/// 6.7b: the step of a hand-written process polls the upgrade future of an async body. This upgrade never replaces the
/// body of another process.
#[test]
fn a_poll_of_an_upgrade_by_a_hand_written_process_replaces_no_other_body() {
    type Upgraded = BoxFuture<'static, (Context<()>, Exit)>;
    type Slot = Arc<std::sync::Mutex<Option<Context<()>>>>;
    struct Polls(EntryPoints<(), ()>, Slot, Option<Upgraded>, u32);
    impl Process for Polls {
        type Message = ();
        type Output = ();
        fn init(&mut self, start: Start<'_>) -> Result<(), InitError> {
            self.0.init(start)
        }
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            self.3 += 1;
            if self.3 == 1 {
                self.0.step(events, out)?;
                return Ok(Next::Again);
            }
            let slot = &self.1;
            let upgrade = self.2.get_or_insert_with(|| {
                let ctx = slot.lock().unwrap().take().expect("the entry point has run");
                ctx.upgrade(async |_: Context<()>| std::future::pending::<()>().await).boxed()
            });
            let _ = upgrade.poll_unpin(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            Ok(if self.3 == 1_000 { Next::Done(()) } else { Next::Again })
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let slot = Slot::default();
    let puts = Arc::clone(&slot);
    let entry = EntryPoints::new().entry("go", async move |ctx: Context<()>, (): ()| {
        *puts.lock().unwrap() = Some(ctx);
        std::future::pending::<()>().await;
    });
    let polls = rt.process().entry("go").input(()).spawn_process(Polls(entry, slot, None, 0)).unwrap();
    let bystander = rt.spawn(async |ctx: Context| {
        for _ in 0..2_000 {
            ctx.yield_now().await;
        }
    });
    within(60, move || {
        rt.block_on(bystander).unwrap();
        rt.block_on(polls).unwrap();
    });
}
