//! Sections 4.8, 11 and 1.1 of the specification: a panic ends at most one process. Each test uses a runtime with one
//! worker, and checks that this worker still runs the other processes afterwards.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use futures::future::FutureExt;
use procession::observe::*;
use procession::supervisor::SupervisorMessage;
use procession::*;

use crate::giver::{Give, Giver};
use crate::lives::{Ask, LONG, Shelf, lone, settle};
use crate::{shut_down, step_aside, within};

/// A value that panics when it is dropped, unless it is defused.
#[derive(Debug)]
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !thread::panicking() {
            panic!("bomb");
        }
    }
}

/// Sends a `Bomb`. If the send is refused, defuses the `Bomb`.
fn offer(to: &Address<Bomb>, bomb: Bomb) {
    if let Err(refused) = to.send(bomb) {
        refused.into_message().0 = false;
    }
}

/// A runtime with one worker, and a bystander: a process that the panics of the test must not affect.
struct Scene {
    rt: Runtime,
    bystander: JoinHandle<(), Reply<u64>>,
}

impl Scene {
    fn new(builder: Builder) -> Self {
        let rt = builder.workers(1).build().expect("a runtime");
        let bystander = rt.spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
            loop {
                ctx.receive().await?.send(1);
            }
        });
        assert_eq!(block_on(bystander.call(|reply| reply)).unwrap(), 1);
        Self { rt, bystander }
    }

    /// Asserts that the worker still runs, that the bystander was not affected, and that every process can exit. Also
    /// asserts that the number of counted panics equals `panics`.
    fn assert_unaffected(self, panics: u64) {
        assert_eq!(block_on(self.bystander.call(|reply| reply)).unwrap(), 1);
        let after = self.rt.spawn(async |ctx: Context| {
            ctx.yield_now().await;
            ctx.sleep(Duration::from_millis(1)).await;
        });
        block_on(after).unwrap();
        let host = self.rt.host().clone();
        assert_eq!(shut_down(self.rt, Duration::from_secs(5)).left, []);
        assert!(matches!(block_on(self.bystander), Err(Exit::Cancelled(_))));
        let counters = host.counters();
        assert_eq!((counters.panics, counters.spawned - counters.exited), (panics, 0));
    }
}

fn panicked<T>(result: Result<T, Exit>, with: &str) {
    match result {
        Err(Exit::Panicked(text)) if text == with => {}
        Err(exit) => panic!("`{with}` was expected, not {exit:?}"),
        Ok(_) => panic!("`{with}` was expected"),
    }
}

/// Place where a hand-written process panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Nowhere,
    Init,
    FirstStep,
    LaterStep,
    CancelStep,
    Close,
    Drop,
}

struct Victim {
    sites: &'static [Site],
    closes: Arc<AtomicUsize>,
    steps: usize,
}

impl Victim {
    fn at(&self, site: Site) {
        if self.sites.contains(&site) {
            panic!("{site:?}");
        }
    }
}

impl Process for Victim {
    type Message = u64;
    type Output = ();
    fn init(&mut self, _: Start<'_>) -> Result<(), InitError> {
        self.at(Site::Init);
        Ok(())
    }
    fn step(&mut self, events: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
        self.steps += 1;
        if self.steps == 1 {
            self.at(Site::FirstStep);
        }
        for event in events {
            match event {
                Event::Message(0) => self.at(Site::LaterStep),
                Event::Message(_) => return Ok(Next::Done(())),
                Event::Cancel { .. } => self.at(Site::CancelStep),
                _ => {}
            }
        }
        Ok(Next::Wait)
    }
    fn close(&mut self) {
        self.closes.fetch_add(1, SeqCst);
        self.at(Site::Close);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.at(Site::Drop);
    }
}

/// 1.1h, 4.8a, 11: if `init`, a step, `close` or the drop of the state panics, only that process exits, with
/// `Exit::Panicked`. If `init` succeeded, `close` runs exactly once. Even if one stage of the exit panics, the later
/// stages run.
#[test]
fn a_panic_in_a_hand_written_process_ends_only_that_process() {
    use Site::*;
    // The columns are: the sites that panic, the number of calls of `close`, the number of panics, and the site of the
    // panic that the exit reports.
    let table: [(&[Site], usize, u64, Option<Site>); 12] = [
        (&[Nowhere], 1, 0, None),
        (&[Init], 0, 1, Some(Init)),
        (&[Init, Drop], 0, 2, Some(Drop)),
        (&[FirstStep], 1, 1, Some(FirstStep)),
        (&[LaterStep], 1, 1, Some(LaterStep)),
        (&[CancelStep], 1, 1, Some(CancelStep)),
        (&[Close], 1, 1, Some(Close)),
        (&[Drop], 1, 1, Some(Drop)),
        (&[Close, Drop], 1, 2, Some(Drop)),
        (&[FirstStep, Close], 1, 2, Some(Close)),
        (&[LaterStep, Close], 1, 2, Some(Close)),
        (&[LaterStep, Close, Drop], 1, 3, Some(Drop)),
    ];
    for (sites, closes, panics, told) in table {
        within(20, move || {
            let scene = Scene::new(Runtime::builder());
            let closed = Arc::new(AtomicUsize::new(0));
            let handle = scene.rt.spawn_process(Victim { sites, closes: closed.clone(), steps: 0 });
            let (pid, ended) = (handle.pid(), handle.exited());
            let _ = block_on(handle.started());
            if sites.contains(&CancelStep) {
                scene.rt.cancel(pid, "cancel", LONG).unwrap();
            }
            let _ = handle.send(if sites.contains(&LaterStep) { 0 } else { 1 });
            let (joined, exit) = (block_on(handle), block_on(ended));
            match told {
                None => assert!(joined.is_ok() && exit.is_normal(), "{sites:?}"),
                Some(site) => {
                    panicked(joined, &format!("{site:?}"));
                    panicked::<()>(Err(exit), &format!("{site:?}"));
                }
            }
            assert_eq!(closed.load(SeqCst), closes, "{sites:?}");
            assert!(scene.rt.send(pid, 1_u64).is_err());
            scene.assert_unaffected(panics);
        });
    }
}

/// A process that returns a result whose drop panics. The `close` of this process panics too.
struct BombOutput;

impl Process for BombOutput {
    type Message = u64;
    type Output = Bomb;
    fn step(&mut self, _: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<Bomb>, Exit> {
        Ok(Next::Done(Bomb(true)))
    }
    fn close(&mut self) {
        panic!("spoilt");
    }
}

/// 1.1h, 4.8a: when `close` panics, the value that the process returned is dropped. This drop may panic too. The exit
/// still reports the panic of `close`.
#[test]
fn the_exit_reports_a_panic_in_close_even_if_the_dropped_result_panics() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let handle = scene.rt.spawn_process(BombOutput);
        let ended = handle.exited();
        panicked(block_on(handle), "spoilt");
        panicked::<()>(Err(block_on(ended)), "spoilt");
        scene.assert_unaffected(1);
    });
}

/// 1.1h, 6.2a, 6.2d: `close` and the drop of a state may panic. In this test, these panics happen after a kill, after
/// the grace period of a cancellation, and during the drop of the runtime. In each case the exit reports the panic.
#[test]
fn a_panic_in_close_or_drop_replaces_the_exit_reason() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let closes = Arc::new(AtomicUsize::new(0));
        let victim = || Victim { sites: &[Site::Close], closes: closes.clone(), steps: 0 };
        let killed = scene.rt.spawn_process(victim());
        block_on(killed.started()).unwrap();
        killed.abort();
        panicked(block_on(killed), "Close");
        let cancelled = scene.rt.spawn_process(victim());
        block_on(cancelled.started()).unwrap();
        scene.rt.cancel(cancelled.pid(), "go", Duration::ZERO).unwrap();
        panicked(block_on(cancelled), "Close");
        assert_eq!(closes.load(SeqCst), 2);
        scene.assert_unaffected(2);

        let rt = lone();
        let handles = [&[Site::Close], &[Site::Drop]]
            .map(|sites: &'static [Site; 1]| rt.spawn_process(Victim { sites, closes: closes.clone(), steps: 0 }));
        settle(&rt);
        drop(rt);
        for handle in handles {
            assert!(matches!(block_on(handle), Err(Exit::Panicked(_))));
        }
        assert_eq!(closes.load(SeqCst), 4);
    });
}

/// 4.8a, 11: a body panics before its future exists, in the first poll of the future, in a later poll, or when the body
/// is dropped. Only the process of this body exits.
#[test]
fn a_panic_in_a_body_ends_only_that_process() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        fn early(_: Context<u64>) -> futures::future::Ready<()> {
            panic!("early")
        }
        panicked(block_on(scene.rt.spawn(early)), "early");
        panicked(block_on(scene.rt.spawn(async |_: Context| -> () { panic!("first") })), "first");
        let later = scene.rt.spawn(async |ctx: Context| -> () {
            ctx.yield_now().await;
            ctx.sleep(Duration::from_millis(1)).await;
            panic!("later")
        });
        panicked(block_on(later), "later");
        // A body holds a value that panics when it is dropped. The process is killed after its start or before its
        // start. After the start, the value is a local variable of the body. Before the start, the value is a captured
        // variable of the body.
        for started in [true, false] {
            let bomb = Bomb(true);
            let gate = scene.rt.spawn(async |ctx: Context| ctx.yield_now().await);
            let holds = scene.rt.spawn(async move |_: Context| {
                let _bomb = bomb;
                pending::<()>().await;
            });
            if started {
                block_on(holds.started()).unwrap();
            }
            holds.abort();
            panicked(block_on(holds), "bomb");
            block_on(gate).unwrap();
        }
        // The body panics, and its local value is still dropped.
        let held = Arc::new(());
        let inside = held.clone();
        let both = scene.rt.spawn(async move |_: Context| -> () {
            let _inside = inside;
            panic!("with a payload of {}", 1);
        });
        panicked(block_on(both), "with a payload of 1");
        assert_eq!(Arc::strong_count(&held), 1);
        scene.assert_unaffected(6);
    });
}

/// 4.8a: a panic may carry any payload. The payload may even panic when it is dropped.
#[test]
fn a_panic_with_any_payload_is_caught() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let strange = scene.rt.spawn(async |_: Context| -> () { panic_any(7_u64) });
        panicked(block_on(strange), "a panic without a text");
        let explosive = scene.rt.spawn(async |_: Context| -> () { panic_any(Bomb(true)) });
        panicked(block_on(explosive), "a panic without a text");
        scene.assert_unaffected(2);
    });
}

/// 11: a message may panic when it is dropped. If a process drops the message, only this process exits. If an unread
/// message panics when it is dropped, the panic ends no process.
#[test]
fn a_panic_in_the_drop_of_a_message_affects_no_other_process() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let reads = scene.rt.spawn(async |mut ctx: Context<Bomb>| -> Result<(), Exit> {
            loop {
                drop(ctx.receive().await?);
            }
        });
        reads.send(Bomb(false)).unwrap();
        (0..3).for_each(|_| offer(&reads, Bomb(true)));
        panicked(block_on(reads), "bomb");

        // Next, a body exits while unread messages are in its mailbox or in its read-ahead buffer. After the exit of
        // this body, a hand-written process also exits with unread messages.
        let (all_sent, are_all_sent) = futures::channel::oneshot::channel();
        let leaves = scene.rt.spawn(async move |mut ctx: Context<Bomb>| {
            are_all_sent.await.expect("the test sends all messages");
            ctx.receive().await?.0 = false;
            Ok::<_, Exit>(())
        });
        (0..3).for_each(|_| leaves.send(Bomb(true)).unwrap());
        all_sent.send(()).unwrap();
        block_on(leaves).unwrap();

        struct One;
        impl Process for One {
            type Message = Bomb;
            type Output = ();
            fn step(&mut self, mut events: Events<'_, Bomb>, _: &mut StepOutput<'_, Bomb>) -> Result<Next<()>, Exit> {
                match events.next() {
                    Some(Event::Message(mut bomb)) => {
                        bomb.0 = false;
                        Ok(Next::Done(()))
                    }
                    _ => Ok(Next::Wait),
                }
            }
        }
        let one = scene.rt.spawn_process(One);
        scene.rt.kill(scene.rt.spawn(async |_: Context| pending::<()>().await).pid()).unwrap();
        (0..3).for_each(|_| offer(&one, Bomb(true)));
        block_on(one).unwrap();
        scene.assert_unaffected(1);
    });
}

/// A process whose first step performs several commands. The field `yields` is the number of these commands. The
/// process exits after it has read `reads` answers. If `reads` is 0, only a kill ends the process.
struct Takes {
    yields: usize,
    reads: usize,
}

impl Process for Takes {
    type Message = ();
    type Output = ();
    fn step(&mut self, mut events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        for _ in 0..std::mem::take(&mut self.yields) {
            let _ = out.perform(Give::<Bomb>::me());
        }
        while self.reads > 0 {
            match events.next() {
                Some(Event::Completed(done)) => {
                    drop(done.into_result().map(|bomb| bomb.downcast::<Bomb>().map(|mut bomb| bomb.0 = false)));
                    self.reads -= 1;
                    if self.reads == 0 {
                        return Ok(Next::Done(()));
                    }
                }
                Some(_) => {}
                None => return Ok(Next::Wait),
            }
        }
        Ok(Next::Wait)
    }
}

/// 11, 3.3: an answer may panic when it is dropped. If a process drops the answer, only this process exits. A process
/// with an unread answer can still exit. The unread answer may be in the mailbox, among the events of a step, or in a
/// future.
#[test]

fn a_panic_in_the_drop_of_an_answer_affects_no_other_process() {
    let start = |giver: &Giver<Bomb>| {
        let rt = Runtime::builder().workers(0).handler(giver.clone()).build().unwrap();
        (rt.host().clone(), rt)
    };
    // The body itself drops the answer.
    let giver = Giver::<Bomb>::default();
    let (host, rt) = start(&giver);
    let body = rt.spawn(async |ctx: Context<()>| {
        drop(ctx.perform(Give::<Bomb>::me()).await?);
        Ok::<_, Exit>(())
    });
    settle(&rt);
    giver.give(|| Bomb(true));
    panicked(rt.block_on(body), "bomb");
    // The answer is in a future that is never polled again.
    let body = rt.spawn(async |ctx: Context<()>| {
        let mut perform = ctx.perform(Give::<Bomb>::me());
        assert!((&mut perform).now_or_never().is_none());
        pending::<()>().await;
    });
    settle(&rt);
    giver.give(|| Bomb(true));
    body.abort();
    let exit = rt.block_on(body).unwrap_err();
    assert!(matches!(exit, Exit::Killed | Exit::Panicked(_)), "{exit:?}");
    // The answers are events in the mailbox.
    let killed = rt.spawn_process(Takes { yields: 2, reads: 0 });
    settle(&rt);
    giver.give(|| Bomb(true));
    killed.abort();
    let ended = killed.exited();
    let exit = rt.block_on(killed).unwrap_err();
    assert!(matches!(exit, Exit::Killed | Exit::Panicked(_)), "{exit:?}");
    let told = rt.block_on(ended);
    assert_eq!(format!("{told:?}"), format!("{exit:?}"));
    // The answers are events of a step, and the step reads only one of these answers.
    let leaves = rt.spawn_process(Takes { yields: 3, reads: 1 });
    settle(&rt);
    giver.give(|| Bomb(true));
    settle(&rt);
    assert!(leaves.is_finished());
    let _ = rt.block_on(leaves);
    assert_eq!((host.counters().spawned, host.counters().exited), (4, 4));
    assert_eq!(shut_down(rt, LONG).left, []);
}

/// 11: the input of a process panics when the input is dropped. No other process is affected, even if the process was
/// killed before its `init` ran.
#[test]

fn a_panic_in_the_drop_of_an_input_affects_no_other_process() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let victim = || Victim { sites: &[], closes: Arc::default(), steps: 0 };
        // `init` runs, but does not read the input.
        let taken = scene.rt.process().input(Bomb(true)).spawn_process(victim()).unwrap();
        let exit = block_on(taken).unwrap_err();
        assert!(matches!(exit, Exit::Panicked(_)), "{exit:?}");
        let rt = lone();
        let killed = rt.process().input(Bomb(true)).spawn_process(victim()).unwrap();
        killed.abort();
        let exit = rt.block_on(killed).unwrap_err();
        assert!(matches!(exit, Exit::Killed | Exit::Panicked(_)), "{exit:?}");
        assert_eq!((rt.counters().spawned, rt.counters().exited), (1, 1));
        drop(rt);
        // A process with an async body accepts no input, so the input is refused in the first turn of the process.
        for method in ["", "unknown"] {
            let ran = Arc::new(AtomicBool::new(false));
            let runs = Arc::clone(&ran);
            let body = async move |_: Context| runs.store(true, SeqCst);
            let refused = scene.rt.process().entry(method).input(Bomb(true)).spawn(body).unwrap();
            panicked(block_on(refused), "bomb");
            assert!(!ran.load(SeqCst));
        }
        let monitored = scene.rt.spawn(async |mut ctx: Context| {
            let child = ctx.process().input(Bomb(true)).monitor().spawn(async |_: Context| {})?;
            match ctx.event().await {
                Event::Down { pid, exit: Exit::Panicked(text), .. } if pid == child.pid() && text == "bomb" => Ok(()),
                other => Err(Exit::failed(format!("{other:?}"))),
            }
        });
        block_on(monitored).unwrap();
        scene.assert_unaffected(4);
    });
}

/// 11: an inherited value that panics when it is dropped affects no process.
#[test]
fn a_panic_in_the_drop_of_an_inherited_value_affects_no_process() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let parent = scene.rt.process().value(Bomb(true)).spawn(async |ctx: Context| {
            ctx.spawn(async |ctx: Context| {
                assert!(ctx.value::<Bomb>().is_some());
            })
            .await
        });
        block_on(parent.unwrap()).unwrap();
        assert_eq!(block_on(scene.bystander.call(|reply| reply)).unwrap(), 1);
        scene.assert_unaffected(0);
    });
}

/// Error that panics when it is dropped.
#[derive(Debug)]
struct Explodes(#[expect(dead_code)] Mutex<Bomb>);

impl Explodes {
    fn new() -> Self {
        Self(Mutex::new(Bomb(true)))
    }
}

impl std::fmt::Display for Explodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("explodes")
    }
}

impl std::error::Error for Explodes {}

/// 11: if an unread result or an unread error panics when it is dropped, no process is affected.
#[test]
fn a_panic_in_the_drop_of_a_result_affects_no_process() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let result = scene.rt.spawn(async |ctx: Context| {
            ctx.yield_now().await;
            Ok::<_, Exit>(Bomb(true))
        });
        let ended = result.exited();
        drop(result);
        assert!(block_on(ended).is_normal());
        scene.assert_unaffected(0);
        let scene = Scene::new(Runtime::builder());
        let error = scene.rt.spawn(async |ctx: Context| {
            ctx.yield_now().await;
            Err::<(), _>(Explodes::new())
        });
        let ended = error.exited();
        drop(error);
        // This variable holds a reference to the exit, so that no other thread drops the last reference.
        let exit = block_on(ended);
        assert!(exit.error::<Explodes>().is_some());
        scene.assert_unaffected(0);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(exit))).is_err(), "it was the last one");
    });
}

/// 11: a supervisor drops the outputs and the errors of its children. A panic in one of these drops does not affect the
/// supervisor.
#[test]
fn a_panic_in_the_drop_of_a_result_does_not_affect_the_supervisor() {
    const FAILS: Name<()> = Name::new("fails");
    within(20, || {
        let rt = lone();
        let starts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&starts);
        let returns = Child::unnamed(async |_: Context| Ok::<_, Exit>(Bomb(true))).restart(RestartPolicy::Temporary);
        // The first two instances fail. The exit of the second instance replaces the exit of the first instance.
        let fails = Child::new(FAILS, move |_: Context<()>| {
            let start = count.fetch_add(1, SeqCst);
            async move {
                if start < 2 {
                    Err(Explodes::new())
                } else {
                    pending::<()>().await;
                    Ok(())
                }
            }
        });
        let supervisor = rt.spawn_process(Supervisor::one_for_one().add(returns).add(fails));
        settle(&rt);
        assert_eq!((starts.load(SeqCst), supervisor.is_finished()), (3, false));
        // The supervisor removes the child and drops the last exit of the child.
        let removed = supervisor.call(|reply| SupervisorMessage::DeleteChild(FAILS.into(), reply));
        assert_eq!(rt.block_on(removed), Ok(true));
        assert_eq!(rt.block_on(supervisor.call(SupervisorMessage::CountChildren)), Ok(0));
    });
}

/// Hand-written process that panics when it is dropped.
struct Armed(#[expect(dead_code)] Bomb);

impl Process for Armed {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: Events<'_, ()>, _: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
        Ok(Next::Wait)
    }
}

/// 11: a supervisor drops a child that it refuses or removes. The supervisor also drops a hand-written process whose
/// spawn was refused. A panic in one of these drops does not affect the supervisor.
#[test]
fn a_panic_in_the_drop_of_a_child_does_not_affect_the_supervisor() {
    const TAKEN: Name<()> = Name::new("taken");
    within(20, || {
        let rt = lone();
        let _holder = rt.process().name(TAKEN).spawn(async |_: Context<()>| pending::<()>().await).unwrap();
        let supervisor = rt.spawn_process(Supervisor::one_for_one());
        let start = |child| {
            let started = supervisor.call(|reply| SupervisorMessage::StartChild(child, reply));
            rt.block_on(started).expect("the supervisor answers")
        };
        let armed = |name: &'static str| {
            let bomb = Mutex::new(Bomb(true));
            Child::new(name, move |_: Context<()>| {
                drop(bomb.lock());
                pending::<()>()
            })
        };
        assert!(start(armed("child")).is_ok());
        assert!(matches!(start(armed("child")), Err(Exit::Refused(_))));
        let removed = supervisor.call(|reply| SupervisorMessage::DeleteChild("child".into(), reply));
        assert_eq!(rt.block_on(removed), Ok(true));
        assert!(start(Child::process(TAKEN, || Armed(Bomb(true)))).is_err());
        assert_eq!(rt.block_on(supervisor.call(SupervisorMessage::CountChildren)), Ok(0));
    });
}

/// 11: a supervisor drops the specifications of its children when it exits. Panics in these drops do not change the
/// exit of the supervisor. The supervisor of the first case has not started its children.
#[test]
fn panics_in_the_drops_of_children_do_not_change_the_exit_of_the_supervisor() {
    within(20, || {
        let rt = lone();
        for is_started in [false, true] {
            let armed = || {
                let (body, options) = (Mutex::new(Bomb(true)), Mutex::new(Bomb(true)));
                let child = Child::unnamed(move |_: Context<()>| {
                    drop(body.lock());
                    pending::<()>()
                });
                child.options(move |process| {
                    drop(options.lock());
                    process
                })
            };
            let supervisor = rt.spawn_process(Supervisor::one_for_one().add(armed()).add(armed()));
            if is_started {
                rt.block_on(supervisor.started()).unwrap();
                rt.cancel(supervisor.pid(), "stop", LONG).unwrap();
                assert_eq!(rt.block_on(supervisor), Err(Exit::Cancelled("stop".into())));
            } else {
                supervisor.abort();
                assert_eq!(rt.block_on(supervisor), Err(Exit::Killed));
            }
        }
    });
}

/// 11: a scope fails with its first error, and drops the errors of the other children. A panic in one of these drops
/// does not affect the scope.
#[test]
fn a_panic_in_the_drop_of_an_error_does_not_affect_the_scope() {
    within(20, || {
        let rt = lone();
        let body = rt.spawn(async |ctx: Context| {
            let scope = ctx.scope(async |scope| {
                scope.spawn(async |ctx: Context<()>| {
                    ctx.cancelled().await;
                    Err::<(), _>(Explodes::new())
                });
                scope.spawn(async |_: Context<()>| Err::<(), _>(Exit::failed("the first error")));
                pending::<Result<(), Exit>>().await
            });
            scope.await
        });
        let exit = rt.block_on(body).unwrap_err();
        assert_eq!(exit.to_string(), Exit::failed("the first error").to_string());
    });
}

/// 11: a pool drops the outputs and the errors of its members. A panic in one of these drops does not affect the pool.
#[test]
fn a_panic_in_the_drop_of_a_result_does_not_affect_the_pool() {
    async fn serve(mut ctx: Context<(bool, Reply<()>)>) -> Result<Bomb, Exit> {
        let (succeeds, reply) = ctx.receive().await?;
        reply.send(());
        if succeeds { Ok(Bomb(true)) } else { Err(Exit::failed(Explodes::new())) }
    }
    within(20, || {
        let rt = lone();
        let pool = rt.spawn_pool(Pool::new(2, serve));
        for number in 0..8 {
            assert_eq!(rt.block_on(pool.call(|reply| (number % 2 == 0, reply))), Ok(()));
        }
        settle(&rt);
        assert!(!pool.is_finished());
    });
}

/// 3.2c: if a handler panics, only its command fails. The test uses every kind of handler. In some cases a local value
/// of the handler panics when the value is dropped.
#[test]
fn a_panic_in_a_handler_fails_only_its_command() {
    fn explode(c: Ask) -> u64 {
        assert_eq!(c.0, 0, "told to");
        1
    }
    let raw = |c: Ask, completion: Completion<u64>| completion.complete(explode(c));
    let builders = [
        Runtime::builder().handle(explode),
        Runtime::builder().handle_async(async |c: Ask| explode(c)),
        Runtime::builder().handle_async(|c: Ask| futures::future::ready(explode(c))),
        Runtime::builder().handle_blocking(explode),
        Runtime::builder().handler(raw),
        Runtime::builder().handle_async(async |c: Ask| {
            let _bomb = Bomb(c.0 == 1);
            std::future::ready(()).await;
            1
        }),
    ];
    for builder in builders {
        within(20, move || {
            let scene = Scene::new(builder);
            let asks = scene.rt.spawn(async |ctx: Context| {
                let failure = ctx.perform(Ask(1)).await.unwrap_err();
                assert!(matches!(failure, Failure::Panicked(_)), "{failure:?}");
                // The command is cancelled. The handler may panic before or after the cancellation.
                drop(ctx.perform(Ask(1)).start());
                ctx.perform(Ask(1)).detach();
                ctx.perform(Ask(0)).await
            });
            assert_eq!(block_on(asks).unwrap(), 1);
            let before = scene.rt.counters().panics;
            let after = scene.rt.spawn(async |ctx: Context| ctx.perform(Ask(0)).await);
            assert_eq!(block_on(after).unwrap(), 1);
            // The counter may include the panics of the dropped command and of the detached command.
            assert!(before <= 2);
            assert_eq!(block_on(scene.bystander.call(|reply| reply)).unwrap(), 1);
            assert_eq!(shut_down(scene.rt, Duration::from_secs(5)).left, []);
        });
    }
}

/// 3.2c: if a command panics when it is dropped, only this command fails. The test drops a command that has no handler,
/// and a command in a handler.
#[test]
fn a_panic_in_the_drop_of_a_command_fails_only_the_command() {
    struct Heavy(#[expect(dead_code)] Bomb);
    impl Command for Heavy {
        type Reply = u64;
    }
    for (builder, text) in [
        (Runtime::builder(), "no handler"),
        (Runtime::builder().handler(|heavy: Heavy, _: Completion<u64>| drop(heavy)), "panicked"),
        (
            Runtime::builder().handle(|heavy: Heavy| {
                drop(heavy);
                1_u64
            }),
            "panicked",
        ),
    ] {
        within(20, move || {
            let scene = Scene::new(builder);
            let asks = scene.rt.spawn(async |ctx: Context| {
                Ok::<_, Exit>(ctx.perform(Heavy(Bomb(true))).await.unwrap_err().to_string())
            });
            let answer = block_on(asks).unwrap();
            assert!(answer.contains(text), "{answer}");
            scene.assert_unaffected(0);
        });
    }
}

// ---- Wakers

/// A foreign waker that panics when it is woken.
struct PanickingWaker(AtomicUsize);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        panic!("in a waker");
    }
}

fn bad() -> (Waker, Arc<PanickingWaker>) {
    let bad = Arc::new(PanickingWaker(AtomicUsize::new(0)));
    (Waker::from(bad.clone()), bad)
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Cx::from_waker(waker))
}

/// 11: a mailbox is polled with a foreign waker that panics. Then a process or a thread sends a message to this
/// mailbox, and the send operation calls the waker. The panic does not affect the sender.
#[test]
fn a_waker_that_panics_does_not_affect_the_sender() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let (to, mut mailbox) = scene.rt.mailbox::<u64>();
        let (waker, bad) = bad();
        assert!(poll_with(&mut mailbox.receive(), &waker).is_pending());
        let address = to.clone();
        let sender = scene.rt.spawn(async move |_: Context| address.send(1));
        block_on(sender).expect("the sender is not hurt");
        assert_eq!((bad.0.load(SeqCst), mailbox.try_receive()), (1, Some(1)));
        assert!(poll_with(&mut mailbox.receive(), &waker).is_pending());
        to.send(2).expect("from outside");
        assert_eq!((bad.0.load(SeqCst), mailbox.try_receive()), (2, Some(2)));
        scene.assert_unaffected(0);
    });
}

/// 11, 8.1d: an executor polls a future of `Runtime::run` with a waker that panics when it is called. The payload of
/// this panic panics too when the payload is dropped. A thread sends a message, and this send calls the waker. The
/// panics do not affect the sender.
#[test]
fn a_panic_in_the_drop_of_a_panic_payload_does_not_affect_the_sender() {
    struct ThrowsBomb(AtomicUsize);
    impl Wake for ThrowsBomb {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
            panic_any(Bomb(true));
        }
    }
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }
    within(20, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let process = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
        let bad = Arc::new(ThrowsBomb(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&bad));
        let address = process.address().clone();
        let mut run = Box::pin(rt.run(process));
        // The first polls run the process until it waits for its message.
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        while flag.0.swap(false, SeqCst) {
            assert!(poll_with(&mut run, &Waker::from(Arc::clone(&flag))).is_pending());
        }
        assert!(poll_with(&mut run, &waker).is_pending());
        address.send(7).expect("the send does not unwind");
        assert_eq!(bad.0.load(SeqCst), 1);
        // A poll also returns when its time limit has passed. Such a poll calls the waker that was passed to this poll.
        flag.0.store(true, SeqCst);
        let mut polled = Poll::Pending;
        while polled.is_pending() && flag.0.swap(false, SeqCst) {
            polled = poll_with(&mut run, &Waker::from(Arc::clone(&flag)));
        }
        assert_eq!(polled, Poll::Ready(Ok(7)));
    });
}

/// 11: a waker that panics affects neither the process that replies to a call nor the thread that completes a command.
#[test]
fn a_waker_that_panics_does_not_affect_the_callee() {
    within(20, || {
        let shelf = Shelf::default();
        let scene = Scene::new(Runtime::builder().handler(shelf.clone()));
        let (waker, bad) = bad();
        // The server replies to the first call only after it has received the second call.
        let server = scene.rt.spawn(async |mut ctx: Context<Reply<u64>>| -> Result<(), Exit> {
            let (first, second) = (ctx.receive().await?, ctx.receive().await?);
            first.send(1);
            second.send(2);
            Ok(())
        });
        let mut call = server.call(|reply| reply);
        assert!(poll_with(&mut call, &waker).is_pending());
        assert_eq!(block_on(server.call(|reply| reply)).expect("the server is not hurt"), 2);
        assert_eq!((bad.0.load(SeqCst), block_on(call).unwrap()), (1, 1));
        block_on(server).unwrap();
        // The process polls the command with the panicking waker. A combinator also polls each inner future with the
        // waker of the combinator.
        let asks = scene.rt.spawn({
            let waker = waker.clone();
            async move |ctx: Context<()>| {
                let mut perform = ctx.perform(Ask(1));
                poll_fn(|_| {
                    let _ = poll_with(&mut perform, &waker);
                    Poll::Ready(())
                })
                .await;
                pending::<()>().await;
            }
        });
        shelf.take().complete(1);
        while bad.0.load(SeqCst) < 2 {
            thread::yield_now();
        }
        asks.abort();
        assert!(matches!(block_on(asks), Err(Exit::Killed)));
        scene.assert_unaffected(0);
    });
}

/// 11: one task waits for the exit of a process, and the waker of this task panics. The process still exits normally,
/// and its result is not lost. The other tasks that wait for the exit are notified.
#[test]
fn a_waker_that_panics_does_not_affect_the_exiting_process() {
    within(20, || {
        let shelf = Shelf::default();
        let scene = Scene::new(Runtime::builder().handler(shelf.clone()));
        let (waker, bad) = bad();
        let ends = scene.rt.spawn(async |mut ctx: Context<u64>| {
            let mut perform = ctx.perform(Ask(1)).start();
            assert!((&mut perform).now_or_never().is_none());
            ctx.receive().await
        });
        block_on(ends.started()).unwrap();
        let completion = shelf.take();
        let (mut ended, mut unwanted, other) = (ends.exited(), completion.cancelled(), ends.exited());
        assert!(poll_with(&mut ended, &waker).is_pending());
        assert!(poll_with(&mut unwanted, &waker).is_pending());
        let hears = thread::spawn(move || block_on(other));
        ends.send(5).unwrap();
        assert_eq!(block_on(ends).expect("its result is not lost"), 5);
        assert!(hears.join().unwrap().is_normal());
        assert!(poll_with(&mut ended, &waker).is_ready() && completion.is_cancelled());
        assert_eq!(bad.0.load(SeqCst), 2);
        drop(completion);
        scene.assert_unaffected(0);
    });
}

/// 11: the waker of a task that awaits a join handle panics. The task still gets the result, and no process is
/// affected.
#[test]
fn a_panicking_waker_of_a_join_handle_affects_no_process() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let (waker, bad) = bad();
        let mut ends = scene.rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
        assert!(poll_with(&mut ends, &waker).is_pending());
        let ended = ends.exited();
        ends.send(5).unwrap();
        assert!(block_on(ended).is_normal());
        while bad.0.load(SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(block_on(ends).unwrap(), 5);
        assert_eq!(bad.0.load(SeqCst), 1);
        scene.assert_unaffected(0);
    });
}

/// 6.2a, 6.2d, 6.5a, 11: a process waits in its mailbox with a waker that panics. The process can be cancelled, killed
/// and shut down like any other process.
#[test]
fn a_process_with_a_waker_that_panics_can_still_exit() {
    #[derive(Debug, Clone, Copy)]
    enum End {
        Cancel,
        Kill,
        Shutdown,
        Drop,
    }
    for end in [End::Cancel, End::Kill, End::Shutdown, End::Drop] {
        within(20, move || {
            let rt = lone();
            let (waker, _bad) = bad();
            let waits = rt.spawn(async move |mut ctx: Context<u64>| {
                poll_fn(|cx| {
                    // The mailbox was polled with the panicking waker. Nevertheless, the process polls this future
                    // again after the cancellation.
                    if ctx.is_cancelled() {
                        return Poll::Ready(Err::<(), _>(Exit::Cancelled(Reason::REQUESTED)));
                    }
                    let _ = cx;
                    let _ = poll_with(&mut ctx.receive(), &waker);
                    Poll::Pending
                })
                .await
            });
            let others: Vec<_> = (0..3).map(|_| rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await)).collect();
            settle(&rt);
            let ended = waits.exited();
            let host = rt.host().clone();
            match end {
                End::Cancel => {
                    rt.cancel(waits.pid(), "go", LONG).expect("told");
                    assert!(matches!(rt.block_on(waits), Err(Exit::Cancelled(_))));
                }
                End::Kill => {
                    rt.kill(waits.pid()).expect("killed");
                    assert!(matches!(rt.block_on(waits), Err(Exit::Killed)));
                }
                End::Shutdown => {
                    assert_eq!(shut_down(rt, LONG).left, []);
                    assert!(block_on(waits).is_err());
                    assert_eq!(others.iter().filter(|other| other.is_finished()).count(), 3);
                }
                End::Drop => {
                    drop(rt);
                    assert!(block_on(waits).is_err());
                    assert_eq!(others.iter().filter(|other| other.is_finished()).count(), 3);
                }
            }
            let exit = block_on(ended);
            assert!(matches!(exit, Exit::Cancelled(_) | Exit::Killed), "{exit:?}");
            assert!(host.counters().exited >= 1);
        });
    }
}

/// 4.4a, 8.3b: the kill of a mailbox wakes a task that waits on the mailbox. The waker may poll the mailbox inside its
/// `wake`. Either this poll reports the kill, or the mailbox later calls the waker `next`.
#[test]
fn a_poll_inside_the_waker_of_a_receiver_sees_the_kill_or_the_receiver_is_woken_again() {
    /// A waker whose `wake` method polls the mailbox and passes the waker `next` to this poll.
    struct Eager {
        mailbox: Mutex<Option<Mailbox<u64>>>,
        next: Waker,
        found: Mutex<Option<bool>>,
    }
    impl Wake for Eager {
        fn wake(self: Arc<Self>) {
            if let Some(mailbox) = self.mailbox.lock().unwrap().as_mut() {
                let ready = poll_with(&mut mailbox.receive(), &self.next).is_ready();
                *self.found.lock().unwrap() = Some(ready);
            }
        }
    }
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    for drops in [false, true] {
        let rt = lone();
        let (to, mut mailbox) = rt.mailbox::<u64>();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let eager =
            Arc::new(Eager { mailbox: Mutex::new(None), next: Waker::from(count.clone()), found: Mutex::new(None) });
        assert!(poll_with(&mut mailbox.receive(), &Waker::from(eager.clone())).is_pending());
        *eager.mailbox.lock().unwrap() = Some(mailbox);
        if drops {
            drop(rt);
        } else {
            rt.kill(to.pid()).unwrap();
        }
        let found = eager.found.lock().unwrap().expect("it was woken");
        assert!(found || count.0.load(SeqCst) > 0, "it waits for ever");
        let mailbox = eager.mailbox.lock().unwrap().take();
        drop(mailbox);
    }
}

// ---- Observers, closures, futures and timers

/// 4.8a: an observer that panics in every method does not affect the processes.
#[test]
fn a_panic_in_an_observer_changes_nothing() {
    struct PanickingObserver;
    impl Observer for PanickingObserver {
        fn transition(&self, _: &Transition) {
            panic!("at a transition");
        }
        fn worker(&self, _: usize, _: WorkerState, _: Instant) {
            panic!("at a worker");
        }
        fn panicked(&self, _: Pid, _: &str) {
            panic!("at a panic");
        }
    }
    within(20, || {
        let scene = Scene::new(Runtime::builder().observer(PanickingObserver));
        panicked(block_on(scene.rt.spawn(async |_: Context| -> () { panic!("own") })), "own");
        scene.assert_unaffected(1);
    });
}

/// 4.7i, 8.2c: the code of a closure on the blocking pool may panic, and the drop of the values of the closure may
/// panic. A poll or the drop of a future without a pid may panic too. The pool and the worker continue to work.
#[test]
fn closures_and_futures_may_panic() {
    within(20, || {
        let scene = Scene::new(Runtime::builder().max_blocking_threads(1));
        let failure = block_on(scene.rt.spawn_blocking(|| -> u64 { panic!("closure") })).unwrap_err();
        assert!(matches!(&failure, Failure::Panicked(text) if *text == "closure"), "{failure:?}");
        let bomb = Bomb(true);
        let failure = block_on(scene.rt.spawn_blocking(move || drop(bomb))).unwrap_err();
        assert!(matches!(&failure, Failure::Panicked(text) if *text == "bomb"), "{failure:?}");
        assert_eq!(block_on(scene.rt.spawn_blocking(|| 5)).unwrap(), 5);
        // The handle is dropped or detached before the closure returns, so the result of the closure is dropped.
        for is_detached in [false, true] {
            let (release, gate) = std::sync::mpsc::channel::<()>();
            let (begins, has_begun) = std::sync::mpsc::channel();
            let handle = scene.rt.spawn_blocking(move || {
                begins.send(()).unwrap();
                let _ = gate.recv();
                Bomb(true)
            });
            has_begun.recv().unwrap();
            if is_detached {
                handle.detach()
            } else {
                drop(handle)
            }
            drop(release);
        }
        assert_eq!(block_on(scene.rt.spawn_blocking(|| 6)).unwrap(), 6);

        scene.rt.spawn_future(async { panic!("first poll") });
        let host = scene.rt.host().clone();
        scene.rt.spawn_future(async move {
            host.sleep(Duration::from_millis(1)).await;
            panic!("later poll")
        });
        let bomb = Bomb(true);
        scene.rt.spawn_future(async move {
            let _bomb = bomb;
        });
        let bomb = Bomb(true);
        // This future is dropped with the runtime.
        scene.rt.spawn_future(async move {
            let _bomb = bomb;
            pending::<()>().await;
        });
        while scene.rt.counters().panics < 3 {
            thread::yield_now();
        }
        scene.assert_unaffected(3);
    });
}

/// 6.5b, 11: a timer with a waker that panics does not affect other timers.
#[test]
fn a_timer_with_a_panicking_waker_does_not_affect_other_timers() {
    within(20, || {
        let scene = Scene::new(Runtime::builder());
        let (waker, bad) = bad();
        let mut sleep = scene.rt.sleep(Duration::from_millis(2));
        if poll_with(&mut sleep, &waker).is_pending() {
            while bad.0.load(SeqCst) == 0 {
                thread::yield_now();
            }
        }
        block_on(scene.rt.sleep(Duration::from_millis(1)));
        scene.assert_unaffected(0);
    });
}

/// 2.6c: while a process exits, a destructor of its state may run another process on the same thread. The exit of this
/// other process does not answer the calls to the first process.
#[test]
fn a_nested_exit_does_not_answer_the_calls_to_the_outer_process() {
    struct Holds {
        reply: Option<Reply<u32>>,
        _flush: Flush,
    }
    struct Flush(std::sync::Weak<Runtime>, Address<Reply<u32>>);
    impl Drop for Flush {
        fn drop(&mut self) {
            let rt = self.0.upgrade().expect("the test holds the runtime");
            assert!(rt.block_on(self.1.call(|reply| reply)).is_err());
        }
    }
    impl Process for Holds {
        type Message = Reply<u32>;
        type Output = ();
        fn step(
            &mut self,
            events: Events<'_, Reply<u32>>,
            _: &mut StepOutput<'_, Reply<u32>>,
        ) -> Result<Next<()>, Exit> {
            for event in events {
                if let Event::Message(reply) = event {
                    self.reply = Some(reply);
                }
            }
            Ok(Next::Wait)
        }
    }
    for panics in [false, true] {
        let rt = Arc::new(Runtime::builder().workers(0).build().unwrap());
        let other = rt.spawn(async move |mut ctx: Context<Reply<u32>>| {
            let held = ctx.receive().await?;
            assert!(!panics, "on purpose");
            drop(held);
            Ok::<_, Exit>(())
        });
        let holds = Holds { reply: None, _flush: Flush(Arc::downgrade(&rt), other.address()) };
        let process = rt.spawn_process(holds);
        let mut call = process.address().call(|reply| reply);
        rt.block_on(async {
            assert!(futures::poll!(&mut call).is_pending());
            for _ in 0..10 {
                step_aside().await;
            }
        });
        rt.kill(process.pid()).unwrap();
        let answer = rt.block_on(call);
        assert!(matches!(answer, Err(CallError::Died(Exit::Killed))), "{answer:?}");
    }
}

/// A command that contains a reply. The handler of the command panics, and so drops the reply.
struct AskAndPanic(#[expect(dead_code)] Reply<u64>);

impl Command for AskAndPanic {
    type Reply = ();
}

/// 2.6b, 3.2c: an inline handler panics while it owns the reply of a call. The call fails immediately, although the
/// process neither exits nor gets another step. The call also fails immediately if the process performs the command in
/// its last step.
#[test]
fn a_handler_that_panics_drops_the_reply_of_its_command() {
    for exits in [false, true] {
        let rt = Runtime::builder().workers(0).handle(|_: AskAndPanic| -> () { panic!("on purpose") }).build().unwrap();
        let asked = rt.spawn(async move |mut ctx: Context<Reply<u64>>| {
            loop {
                let reply = ctx.receive().await?;
                ctx.perform(AskAndPanic(reply)).detach();
                if exits {
                    return Ok::<(), Exit>(());
                }
            }
        });
        let mut call = asked.call(|reply| reply);
        let answer = rt.block_on(async {
            for _ in 0..10 {
                if let Poll::Ready(answer) = futures::poll!(&mut call) {
                    return Some(answer);
                }
                step_aside().await;
            }
            None
        });
        assert!(matches!(answer, Some(Err(CallError::Dropped))), "{answer:?}");
    }
}

/// 2.6b: the exit of a process wakes a caller, and the waker of this caller drops the reply of another call. The other
/// call fails immediately.
#[test]
fn a_call_fails_if_a_waker_drops_the_reply_of_this_call_during_an_exit() {
    struct Drops(Mutex<Option<Reply<u64>>>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let (other, mut asked) = rt.mailbox::<Reply<u64>>();
    let mut other_call = other.call(|reply| reply).start();
    let waker = Waker::from(Arc::new(Drops(Mutex::new(rt.block_on(asked.receive()).ok()))));
    let holds = rt.spawn(async |mut ctx: Context<Reply<u64>>| {
        let _held = ctx.receive().await?;
        pending::<Result<(), Exit>>().await
    });
    let mut call = holds.call(|reply| reply);
    assert!(poll_with(&mut call, &waker).is_pending());
    settle(&rt);
    rt.kill(holds.pid()).unwrap();
    settle(&rt);
    let answer = (&mut other_call).now_or_never();
    assert!(matches!(answer, Some(Err(CallError::Dropped))), "{answer:?}");
    let answer = call.now_or_never();
    assert!(matches!(answer, Some(Err(CallError::Died(Exit::Killed)))), "{answer:?}");
}

/// 1.1h, 2.6c: a step panics while it owns a reply, and `close` panics afterwards. The caller and a monitor receive the
/// same exit. When the caller receives the exit, the process has no name and no pid any more.
#[test]
fn a_caller_receives_the_final_exit_of_a_process_whose_step_panicked() {
    struct Panics;
    impl Process for Panics {
        type Message = Reply<u64>;
        type Output = ();
        fn step(
            &mut self,
            mut events: Events<'_, Reply<u64>>,
            _: &mut StepOutput<'_, Reply<u64>>,
        ) -> Result<Next<()>, Exit> {
            let event = events.next();
            assert!(event.is_none(), "step");
            Ok(Next::Wait)
        }
        fn close(&mut self) {
            panic!("close");
        }
    }
    struct Looks(Host, Pid, Mutex<Vec<bool>>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.2.lock().unwrap().extend([self.0.whereis("panics").is_some(), self.0.kill(self.1).is_ok()]);
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let process = rt.process().name("panics").spawn_process(Panics).unwrap();
    settle(&rt);
    let looks = Arc::new(Looks(rt.host().clone(), process.pid(), Mutex::default()));
    let mut call = process.address().call(|reply| reply);
    assert!(poll_with(&mut call, &Waker::from(looks.clone())).is_pending());
    settle(&rt);
    assert_eq!(*looks.2.lock().unwrap(), [false, false]);
    match call.now_or_never() {
        Some(Err(CallError::Died(exit))) => panicked(Err::<(), _>(exit), "close"),
        other => panic!("{other:?}"),
    }
    panicked(rt.block_on(process), "close");
}

// ---- Attached receivers and hosts

/// A receiver that panics when it is dropped.
struct PanickingReceiver(#[expect(dead_code)] Bomb);

impl Deliver for PanickingReceiver {
    fn deliver(&self, _: Envelope) -> std::result::Result<(), SendError<Envelope>> {
        Ok(())
    }
}

/// 11, 6.3b: a process is linked with an attached receiver, and another process monitors the first process. The exit of
/// the first process detaches the receiver. The receiver panics when it is dropped, and the monitor still reports the
/// exit.
#[test]
fn a_panic_in_the_drop_of_a_linked_receiver_does_not_interrupt_the_exit() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    let receiver = rt.attach(PanickingReceiver(Bomb(true))).unwrap();
    let linked = rt.spawn(async move |mut ctx: Context| {
        ctx.link(receiver)?;
        ctx.receive().await.map(drop)
    });
    let pid = linked.pid();
    settle(&rt);
    let watcher = rt.spawn(async move |mut ctx: Context| {
        ctx.monitor(pid);
        Ok::<_, Exit>(ctx.event().await)
    });
    settle(&rt);
    rt.kill(pid).unwrap();
    assert!(matches!(rt.block_on(linked), Err(Exit::Killed)));
    settle(&rt);
    let event = watcher.now_or_never();
    assert!(matches!(event, Some(Ok(Event::Down { exit: Exit::Killed, .. }))), "{event:?}");
    assert!(rt.kill(receiver).is_err());
}

/// 11: a future without a pid may own the last reference to its host. The drops of several handlers of this host panic.
/// The panics do not abort the program, and all handlers are dropped.
#[test]
fn a_future_may_own_the_last_reference_to_a_host_whose_handlers_panic_in_their_drops() {
    /// Panics at each drop, even on a thread that is already unwinding.
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("bomb");
        }
    }
    struct Never;
    impl Command for Never {
        type Reply = ();
    }
    struct NeverEither;
    impl Command for NeverEither {
        type Reply = ();
    }
    let rt = lone();
    let alive = Arc::new(());
    let kept = || (Arc::clone(&alive), Panics);
    let (one, other, third, fourth) = (kept(), kept(), kept(), kept());
    let builder = HostBuilder::new("other")
        .handle(move |_: Never| {
            let _ = &one;
        })
        .handle(move |_: NeverEither| {
            let _ = &other;
        })
        .handler_named("third", move |_: NamedCommand, _: Completion<Payload>| {
            let _ = &third;
        })
        .handler_named("fourth", move |_: NamedCommand, _: Completion<Payload>| {
            let _ = &fourth;
        });
    let other = rt.add_host(builder).unwrap();
    other.spawn_future(async {});
    drop(other);
    settle(&rt);
    assert_eq!(Arc::strong_count(&alive), 1, "the host was dropped");
    rt.block_on(rt.spawn(async |_: Context| {})).unwrap();
}

/// 11, 6.5a: at the end of a runtime, the drop of an attached receiver or of a handler may panic. The end of the
/// runtime still kills each process.
#[test]
fn all_processes_are_killed_even_if_a_drop_panics_at_the_end_of_a_runtime() {
    struct Never;
    impl Command for Never {
        type Reply = ();
    }
    let held = Arc::new(());
    let builds: [fn(&Runtime); 2] = [
        |rt| (0..2).for_each(|_| assert!(rt.attach(PanickingReceiver(Bomb(true))).is_some())),
        |rt| {
            let bomb = Bomb(true);
            let builder = HostBuilder::new("other").handle(move |_: Never| {
                let _ = &bomb;
            });
            let other = rt.add_host(builder).unwrap();
            // The process refers to the host until the end of the runtime.
            drop(other.spawn(async |_: Context| pending::<()>().await));
        },
    ];
    for build in builds {
        for is_shut_down in [false, true] {
            let rt = Runtime::builder().workers(0).build().unwrap();
            build(&rt);
            let value = Arc::clone(&held);
            let waits = rt.spawn(async move |_: Context| {
                let _value = value;
                pending::<()>().await;
            });
            settle(&rt);
            if is_shut_down {
                drop(rt.shutdown(Duration::ZERO).now_or_never());
            }
            drop(rt);
            assert_eq!(waits.now_or_never().map(|exit| exit.unwrap_err()), Some(Exit::Killed));
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }
}

/// 11: a process kills an attached receiver, and the drop of the receiver panics. The process continues.
#[test]
fn a_panic_in_the_drop_of_a_killed_receiver_does_not_affect_the_killer() {
    struct Bomb;
    impl Deliver for Bomb {
        fn deliver(&self, envelope: Envelope) -> Result<(), SendError<Envelope>> {
            drop(envelope);
            Ok(())
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the receiver");
        }
    }
    let rt = Runtime::builder().workers(0).build().unwrap();
    let receiver = rt.attach(Bomb).unwrap();
    let killer = rt.spawn(async move |ctx: Context| ctx.host().kill(receiver));
    rt.block_on(killer).unwrap();
}
