//! While an operation of the runtime runs a destructor, a waker or an observer, this user code calls the runtime again.
//! Each call has its effect, and no call deadlocks or panics. These rules apply to every operation that runs user code.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::observe::*;
use procession::*;

use crate::lives::{LONG, lone, settle};
use crate::{shut_down, within};

/// The objects that the actions of a test use.
struct World {
    host: Host,
    /// A process that traps exits and reads nothing.
    other: Pid,
    /// Addresses of full mailboxes, one for each policy.
    full: Vec<Address<Instruction>>,
    token: CancelToken,
    acted: AtomicUsize,
}

/// Instruction to the process of a test. The variants describe the action of the process.
enum Instruction {
    /// The process continues to read.
    Plain,
    /// The process drops the value.
    Drop(#[expect(dead_code)] Act),
    /// The process keeps the value until the process exits.
    Hold(Act),
    /// The process stashes the value.
    Stash(Act),
    /// The process exits.
    Leave,
    /// The process exits and returns the kept value.
    Return,
    /// The process panics.
    Panic,
}

impl Clone for Instruction {
    fn clone(&self) -> Self {
        Self::Plain
    }
}

/// A value that runs its action when the value is first woken or dropped. The action runs only one time.
struct Act {
    world: Arc<World>,
    me: SelfHandle<Instruction>,
    action: Action,
    done: AtomicUsize,
}

impl Act {
    fn act(&self) {
        if self.done.fetch_add(1, SeqCst) == 0 {
            (self.action)(&self.world, &self.me);
            self.world.acted.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        self.act();
    }
}

impl Wake for Act {
    fn wake(self: Arc<Self>) {
        self.act();
    }
}

/// A waker that polls its future directly inside `wake`, like an executor without a queue.
struct Inline(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);
impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let Some(mut future) = self.0.lock().unwrap().take() else { return };
        if future.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending() {
            *self.0.lock().unwrap() = Some(future);
        }
    }
}

/// A value that runs its action when it is dropped, but not when it is woken.
struct ActsOnDrop(#[expect(dead_code)] Act);

impl Wake for ActsOnDrop {
    fn wake(self: Arc<Self>) {}
}

/// Drops the result of a call. The result may have any type.
fn ignore<T>(_: T) {}

type Action = fn(&Arc<World>, &SelfHandle<Instruction>);

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Cx::from_waker(Waker::noop()))
}

const ACTIONS: [(&str, Action); 22] = [
    ("send to the process itself", |_, me| drop(me.address().send(Instruction::Plain))),
    ("send to full mailboxes", |world, _| world.full.iter().for_each(|to| drop(to.send(Instruction::Plain)))),
    ("wait for room in a full mailbox", |world, me| drop(poll_once(me.send_wait(&world.full[0], Instruction::Plain)))),
    ("spawn and detach", |world, _| drop(world.host.spawn(async |_: Context| {}))),
    ("spawn and kill", |world, _| world.host.spawn(async |_: Context| pending::<()>().await).abort()),
    ("spawn with a link", |_, me| drop(me.spawn_link(async |_: Context| {}))),
    ("spawn with a monitor", |_, me| drop(me.spawn_monitor(async |_: Context| {}))),
    ("link and unlink", |world, me| {
        let _ = me.link(world.other);
        me.unlink(world.other);
    }),
    ("link to the process itself", |_, me| ignore(me.link(me.pid()))),
    ("link to a process and kill that", |world, me| {
        let _ = me.link(world.other);
        let _ = world.host.kill(world.other);
    }),
    ("monitor and demonitor", |world, me| {
        let watch = me.monitor(world.other);
        me.demonitor_flush(watch);
        me.monitor(me.pid());
    }),
    ("kill the process itself", |world, me| ignore(world.host.kill(me.pid()))),
    ("cancel the process itself", |world, me| ignore(world.host.cancel(me.pid(), "own", Duration::ZERO))),
    ("cancel another with a grace", |world, _| ignore(world.host.cancel(world.other, "other", LONG))),
    ("cancel the token", |world, _| ignore(world.token.cancel("token", Duration::ZERO))),
    ("register and unregister", |_, me| {
        let _ = me.register("name");
        me.unregister("name");
        let _ = me.register("kept");
    }),
    ("join, broadcast and leave", |world, me| {
        me.join_group("group");
        world.host.broadcast("group", Instruction::Plain);
        me.leave_group("group");
        me.join_group("kept");
        me.monitor_group("kept");
    }),
    ("set timers and cancel one", |_, me| {
        let timer = me.send_after(LONG, me.pid(), Instruction::Plain);
        me.cancel_timer(timer);
        me.send_interval(LONG, me.pid(), Instruction::Plain);
    }),
    ("sleep and give up", |_, me| ignore(poll_once(me.sleep(LONG)))),
    ("call the process itself", |_, me| {
        drop(poll_once(me.call(me.pid(), |_: Reply<u64>| Instruction::Plain)));
    }),
    ("ask how the process ended", |world, me| drop(poll_once(world.host.exited(me.pid())))),
    ("preempt the process itself", |world, me| ignore(world.host.preempt(me.pid()))),
];

/// Body that executes the instructions in its messages.
async fn follow_instructions(mut ctx: Context<Instruction>) -> Result<Option<Act>, Exit> {
    let mut held = None;
    loop {
        match ctx.receive().await? {
            Instruction::Plain | Instruction::Drop(_) => {}
            Instruction::Hold(act) => held = Some(act),
            Instruction::Stash(act) => ctx.stash(Instruction::Drop(act)),
            Instruction::Leave => return Ok(None),
            Instruction::Return => return Ok(held),
            Instruction::Panic => panic!("as told"),
        }
    }
}

/// A hand-written process that waits forever.
struct Waits(#[expect(dead_code)] Act);

impl Process for Waits {
    type Message = Instruction;
    type Output = ();
    fn step(&mut self, events: Events<'_, Instruction>, _: &mut StepOutput<'_, Instruction>) -> Result<Next<()>, Exit> {
        events.for_each(drop);
        Ok(Next::Wait)
    }
}

/// Holds an action. When the runtime next calls an observer or a panic policy, this call takes and runs the action.
type Slot = Arc<Mutex<Option<Act>>>;

struct Watches(Slot);

impl Watches {
    fn act(&self) {
        // The lock is released before `act` is dropped, because the destructor of `act` runs the action.
        let act = self.0.lock().unwrap().take();
        drop(act);
    }
}

impl Observer for Watches {
    fn transition(&self, _: &Transition) {
        self.act();
    }
}

/// A runtime without workers, and a process on this runtime. The process follows instructions.
struct Stage {
    rt: Runtime,
    world: Arc<World>,
    /// Receivers of the full mailboxes.
    full: Vec<Mailbox<Instruction>>,
    handle: Option<JoinHandle<Option<Act>, Instruction>>,
    me: SelfHandle<Instruction>,
    observed: Slot,
    panicked: Slot,
}

impl Stage {
    fn new() -> Self {
        let (observed, panicked) = (Slot::default(), Slot::default());
        let policy = Watches(panicked.clone());
        let rt = Runtime::builder().workers(0).observer(Watches(observed.clone()));
        let rt = rt.on_panic(PanicPolicy::Call(Arc::new(move |_, _| policy.act()))).build().unwrap();
        let (told, hears) = mpsc::channel();
        let handle = rt.spawn(async move |ctx: Context<Instruction>| {
            let _ = told.send((*ctx).clone());
            follow_instructions(ctx).await
        });
        let other = rt.spawn(async |mut ctx: Context| {
            ctx.trap_exit(true);
            let _ = ctx.receive().await;
        });
        settle(&rt);
        let bounds = [MailboxCapacity::Reject(1), MailboxCapacity::DropOldest(1), MailboxCapacity::DropNewest(1)];
        let (to, full) =
            bounds.map(|bound| rt.mailbox_with::<Instruction>(bound)).into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        to.iter().for_each(|to| drop(to.send(Instruction::Plain)));
        let host = rt.host().clone();
        let (token, acted) = (CancelToken::new(), AtomicUsize::new(0));
        let world = Arc::new(World { host, other: other.pid(), full: to, token, acted });
        let me = hears.recv().unwrap();
        Self { rt, world, full, handle: Some(handle), me, observed, panicked }
    }

    fn tell(&self, thing: Instruction) {
        let _ = self.me.address().send(thing);
    }

    fn kill(&self) {
        let _ = self.rt.kill(self.me.pid());
    }
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) {
    let _ = Pin::new(future).poll(&mut Cx::from_waker(waker));
}

type Site = fn(&mut Stage, Act);

const SITES: [(&str, Site); 24] = [
    ("a message that is read", |stage, act| stage.tell(Instruction::Drop(act))),
    ("a message that is never read", |stage, act| {
        stage.tell(Instruction::Drop(act));
        stage.kill();
    }),
    ("a message that was put aside", |stage, act| {
        stage.tell(Instruction::Stash(act));
        settle(&stage.rt);
        stage.kill();
    }),
    ("a message that is refused", |stage, act| drop(stage.world.full[0].send(Instruction::Drop(act)))),
    ("a message that a policy drops", |stage, act| drop(stage.world.full[2].send(Instruction::Drop(act)))),
    ("an old message that a policy drops", |stage, act| {
        drop(stage.world.full[1].send(Instruction::Drop(act)));
        drop(stage.world.full[1].send(Instruction::Plain));
    }),
    ("a message of a mailbox outside", |stage, act| {
        let (to, mailbox) = stage.rt.mailbox();
        drop(to.send(Instruction::Drop(act)));
        drop(mailbox);
    }),
    ("a message that waits for room", |stage, act| {
        let mut waits = stage.rt.send_wait(&stage.world.full[0], Instruction::Drop(act));
        poll_with(&mut waits, Waker::noop());
    }),
    ("a timer that is cancelled", |stage, act| {
        // The timer clones the message of an interval and keeps the original.
        let timer = stage.me.send_interval(LONG, stage.me.pid(), Instruction::Drop(act));
        stage.me.cancel_timer(timer);
    }),
    ("a timer of a process that ends", |stage, act| {
        stage.me.send_after(LONG, stage.me.pid(), Instruction::Drop(act));
        stage.kill();
    }),
    ("a body that ends", |stage, act| {
        stage.tell(Instruction::Hold(act));
        stage.tell(Instruction::Leave);
    }),
    ("a body that is killed", |stage, act| {
        stage.tell(Instruction::Hold(act));
        settle(&stage.rt);
        stage.kill();
    }),
    ("a body that panics", |stage, act| {
        stage.tell(Instruction::Hold(act));
        stage.tell(Instruction::Panic);
    }),
    ("a hand-written state that is killed", |stage, act| {
        let handle = stage.rt.spawn_process(Waits(act));
        settle(&stage.rt);
        handle.abort();
    }),
    ("a body that never began", |stage, act| {
        stage.rt.spawn(async move |_: Context| drop(act)).abort();
    }),
    ("a result that is not taken", |stage, act| {
        stage.tell(Instruction::Hold(act));
        stage.tell(Instruction::Return);
        settle(&stage.rt);
        stage.handle = None;
    }),
    ("a result without a handle", |stage, act| {
        stage.handle = None;
        stage.tell(Instruction::Hold(act));
        stage.tell(Instruction::Return);
    }),
    ("the waker of a receiver", |stage, act| {
        let (to, mut mailbox) = stage.rt.mailbox();
        poll_with(&mut mailbox.receive(), &Waker::from(Arc::new(act)));
        let _ = to.send(Instruction::Plain);
    }),
    ("the waker of a handle", |stage, act| {
        poll_with(stage.handle.as_mut().unwrap(), &Waker::from(Arc::new(act)));
        stage.tell(Instruction::Leave);
        settle(&stage.rt);
    }),
    ("the waker of an end", |stage, act| {
        let mut ended = stage.rt.exited(stage.me.pid());
        poll_with(&mut ended, &Waker::from(Arc::new(act)));
        stage.kill();
        settle(&stage.rt);
    }),
    ("the waker of a token", |stage, act| {
        let mut cancelled = stage.world.token.cancelled();
        poll_with(&mut cancelled, &Waker::from(Arc::new(act)));
        stage.world.token.cancel("by the site", LONG);
    }),
    ("a waker that is replaced", |stage, act| {
        let (_to, mut mailbox) = stage.rt.mailbox::<Instruction>();
        poll_with(&mut mailbox.receive(), &Waker::from(Arc::new(ActsOnDrop(act))));
        poll_with(&mut mailbox.receive(), Waker::noop());
    }),
    ("an observer", |stage, act| {
        *stage.observed.lock().unwrap() = Some(act);
        stage.tell(Instruction::Plain);
    }),
    ("a panic policy", |stage, act| {
        *stage.panicked.lock().unwrap() = Some(act);
        stage.tell(Instruction::Panic);
    }),
];

/// 11: operations of the runtime run user code at several sites. At every site, the test runs every action. No action
/// deadlocks or panics, and every process can exit afterwards.
#[test]
fn user_code_can_call_the_runtime_wherever_the_runtime_runs_user_code() {
    for (site, place) in SITES {
        within(60, move || {
            for (action, act) in ACTIONS {
                println!("{action} by {site}");
                let mut stage = Stage::new();
                let world = stage.world.clone();
                let act = Act { world, me: stage.me.clone(), action: act, done: AtomicUsize::new(0) };
                place(&mut stage, act);
                settle(&stage.rt);
                assert_eq!(stage.world.acted.load(SeqCst), 1, "{action} by {site}");
                let Stage { rt, world, full, handle, me, .. } = stage;
                drop((full, handle));
                assert_eq!(shut_down(rt, LONG).left, [], "{action} by {site}");
                let counters = world.host.counters();
                assert_eq!(counters.spawned, counters.exited, "{action} by {site}");
                assert_eq!(counters.panics, u64::from(site.contains("panic")), "{action} by {site}");
                drop(me);
            }
        });
    }
}

/// 11: while the runtime is dropped, the destructors of its values call the runtime. Every call returns, and either
/// succeeds or is refused.
#[test]
fn destructors_can_call_the_runtime_during_the_drop_of_the_runtime() {
    within(60, || {
        for (action, act) in ACTIONS {
            let mut stage = Stage::new();
            let world = stage.world.clone();
            let act = || Act { world: world.clone(), me: stage.me.clone(), action: act, done: AtomicUsize::new(0) };
            stage.tell(Instruction::Hold(act()));
            settle(&stage.rt);
            stage.tell(Instruction::Drop(act()));
            let waits = stage.rt.spawn_process(Waits(act()));
            let (_to, mut mailbox) = stage.rt.mailbox::<Instruction>();
            poll_with(&mut mailbox.receive(), &Waker::from(Arc::new(act())));
            stage.handle = None;
            drop(stage.rt);
            drop(mailbox);
            assert_eq!(world.acted.load(SeqCst), 4, "{action}");
            assert!(block_on(waits).is_err());
        }
    });
}

/// 11: in a long chain of processes, a destructor of each process sends a message to the next process. The chain uses a
/// bounded amount of stack.
#[test]
fn a_chain_of_destructors_uses_a_bounded_amount_of_stack() {
    struct Next(Option<Address<Instruction>>);
    impl Drop for Next {
        fn drop(&mut self) {
            if let Some(next) = self.0.take() {
                let _ = next.send(Instruction::Leave);
            }
        }
    }
    within(60, || {
        let chain = || {
            for killed in [true, false] {
                let rt = lone();
                let mut next = None;
                for _ in 0..20_000 {
                    let held = Next(next.take());
                    let handle = rt.spawn(async move |mut ctx: Context<Instruction>| {
                        let _held = held;
                        ctx.receive().await.map(drop)
                    });
                    next = Some(handle.address());
                }
                let first = next.take().unwrap();
                rt.block_on(crate::step_aside());
                if killed {
                    rt.kill(first.pid()).unwrap();
                    drop(first);
                    assert_eq!(shut_down(rt, LONG).left, []);
                } else {
                    drop(rt);
                }
            }
        };
        thread::Builder::new().stack_size(256 << 10).spawn(chain).unwrap().join().unwrap();
    });
}

/// A start, an exit or a cancellation is an event that calls the wakers of the tasks that wait for the event. The
/// called waker may use the same event or cause another event.
#[test]
fn a_waker_may_use_the_event_that_calls_this_waker() {
    struct Cancels(Host, Pid);
    impl Wake for Cancels {
        fn wake(self: Arc<Self>) {
            self.0.cancel(self.1, "seen", Duration::from_secs(3600)).unwrap();
        }
    }
    within(60, || {
        let rt = lone();
        let process = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
        let mut started = pin!(process.started());
        let waker = Waker::from(Arc::new(Cancels(rt.host().clone(), process.pid())));
        assert!(started.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        assert_eq!(rt.block_on(process), Err(Exit::Cancelled("seen".into())));

        let process = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
        let (token, seen) = (CancelToken::new(), Arc::new(AtomicUsize::new(0)));
        let (exited, cancelled) = (process.exited(), token.clone());
        let counted = |future: Pin<Box<dyn Future<Output = ()> + Send>>| {
            let seen = Arc::clone(&seen);
            let count = async move {
                future.await;
                seen.fetch_add(1, SeqCst);
            };
            Arc::new(Inline(Mutex::new(Some(Box::pin(count))))).wake();
        };
        counted(Box::pin(async move { drop(exited.await) }));
        counted(Box::pin(async move { drop(cancelled.cancelled().await) }));
        process.abort();
        assert_eq!(rt.block_on(process), Err(Exit::Killed));
        token.cancel("done", Duration::MAX);
        assert_eq!(seen.load(SeqCst), 2);
    });
}

/// The waker of the executor of a guest polls the guest directly. When an event wakes a process, the guest runs this
/// process inside the notification of the event. The process may use the same event.
#[test]
fn a_guest_may_run_a_process_inside_the_notification_of_an_event() {
    within(60, || {
        let rt: &'static Runtime = Box::leak(Box::new(lone()));
        let token = CancelToken::new();
        let target = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
        let seen = Arc::new(AtomicUsize::new(0));
        let waits = |future: Pin<Box<dyn Future<Output = ()> + Send>>| {
            let seen = Arc::clone(&seen);
            drop(rt.spawn(async move |_: Context| {
                future.await;
                seen.fetch_add(1, SeqCst);
            }));
        };
        let (exited, cancelled) = (target.exited(), token.clone());
        waits(Box::pin(async move { drop(exited.await) }));
        waits(Box::pin(async move { drop(cancelled.cancelled().await) }));
        let guest: Arc<Inline> = Arc::new(Inline(Mutex::new(Some(Box::pin(rt.run(pending()))))));
        // These polls run both processes until the processes wait. This executor loses a wake-up that arrives during a
        // poll, so one poll may not be enough.
        let poll = || (0..100).for_each(|_| Arc::clone(&guest).wake());
        poll();
        let canceller = thread::spawn(move || token.cancel("done", Duration::MAX));
        canceller.join().unwrap();
        assert_eq!(seen.load(SeqCst), 1);
        rt.kill(target.pid()).unwrap();
        poll();
        assert_eq!(seen.load(SeqCst), 2);
    });
}

/// The waker of the executor of a `LocalSet` polls the `LocalSet` directly.
#[test]
fn a_local_set_may_run_a_process_inside_the_notification_of_an_event() {
    use std::cell::RefCell;
    thread_local! {
        static FUTURE: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>> = const { RefCell::new(None) };
    }
    struct PollsHere;
    impl Wake for PollsHere {
        fn wake(self: Arc<Self>) {
            let Some(mut future) = FUTURE.with(RefCell::take) else { return };
            if future.as_mut().poll(&mut Cx::from_waker(&Waker::from(self))).is_pending() {
                FUTURE.set(Some(future));
            }
        }
    }
    within(60, || {
        let rt: &'static Runtime = Box::leak(Box::new(lone()));
        let local: &'static LocalSet<'_> = Box::leak(Box::new(rt.local_set()));
        let (token, seen) = (CancelToken::new(), Arc::new(AtomicUsize::new(0)));
        let (cancelled, sees) = (token.clone(), Arc::clone(&seen));
        drop(local.spawn(async move |_: Context| {
            let _ = cancelled.cancelled().await;
            sees.fetch_add(1, SeqCst);
        }));
        FUTURE.set(Some(Box::pin(async { local.run(pending()).await })));
        let poll = || (0..100).for_each(|_| Arc::new(PollsHere).wake());
        poll();
        token.cancel("done", Duration::MAX);
        poll();
        assert_eq!(seen.load(SeqCst), 1);
        FUTURE.set(None);
    });
}

/// If an event has notified a future and the future is then dropped, the future passes the notification on to another
/// future. The waker of this other future may use the same event.
#[test]
fn a_waker_may_use_an_event_whose_notification_was_passed_on() {
    struct Drops(Mutex<Option<Pin<Box<dyn Future<Output = Exit> + Send>>>>);
    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    within(60, || {
        let rt = lone();
        let process = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
        let poll = |future: &mut Pin<Box<dyn Future<Output = Exit> + Send>>, waker: &Waker| {
            assert!(future.as_mut().poll(&mut Cx::from_waker(waker)).is_pending());
        };
        let exited = || -> Pin<Box<dyn Future<Output = Exit> + Send>> { Box::pin(process.exited()) };
        let mut first = exited();
        poll(&mut first, Waker::noop());
        // The first step of the process notifies the first future.
        rt.block_on(process.started()).unwrap();
        let (mut second, mut third) = (exited(), exited());
        poll(&mut third, Waker::noop());
        let drops = Arc::new(Drops(Mutex::new(Some(third))));
        poll(&mut second, &Waker::from(Arc::clone(&drops)));
        drop(first);
        rt.kill(process.pid()).unwrap();
        assert_eq!(rt.block_on(process), Err(Exit::Killed));
        assert!(drops.0.lock().unwrap().is_none());
    });
}

/// 11: a process waits for an event of another process. While the event wakes the waiting process, an observer cancels
/// the other process.
#[test]
fn an_observer_may_cancel_a_process_while_the_start_of_this_process_wakes_another_process() {
    #[derive(Clone, Default)]
    struct Cancels(Arc<Mutex<Option<(Host, Pid, Pid)>>>);
    impl Observer for Cancels {
        fn transition(&self, transition: &Transition) {
            let mut pids = self.0.lock().unwrap();
            let is_due = pids
                .as_ref()
                .is_some_and(|(_, waits, _)| transition.pid == *waits && transition.to == ProcessState::Ready);
            if let Some((host, _, starts)) = pids.take_if(|_| is_due) {
                drop(pids);
                host.cancel(starts, "the observer", Duration::MAX).unwrap();
            }
        }
    }
    within(60, || {
        let cancels = Cancels::default();
        let rt = Runtime::builder().workers(0).observer(cancels.clone()).build().unwrap();
        let starts = rt.process().manual_start().spawn(async |mut ctx: Context<()>| {
            ctx.receive().await?;
            ctx.mark_started();
            ctx.receive().await
        });
        let starts = starts.unwrap();
        let started = starts.started();
        let waits = rt.spawn(async move |_: Context| Ok::<_, Exit>(started.await.is_ok()));
        settle(&rt);
        *cancels.0.lock().unwrap() = Some((rt.host().clone(), waits.pid(), starts.pid()));
        starts.send(()).unwrap();
        assert_eq!(rt.block_on(waits), Ok(true));
        assert!(matches!(rt.block_on(starts), Err(Exit::Cancelled(_))));
    });
}

// ---- Wakers that block

/// A waker of another executor. The method `wake` blocks until the sender of the channel sends a value or is dropped.
struct BlockingWaker(Mutex<mpsc::Receiver<()>>);

impl Wake for BlockingWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().recv();
    }
}

/// Polls a future with a [`BlockingWaker`]. Returns the sender that unblocks the waker.
fn poll_with_blocking_waker(future: Pin<&mut impl Future>) -> mpsc::Sender<()> {
    let (ends, end) = mpsc::channel();
    let waker = Waker::from(Arc::new(BlockingWaker(Mutex::new(end))));
    assert!(future.poll(&mut Cx::from_waker(&waker)).is_pending());
    ends
}

/// Spawns a process that polls `body` once, and then awaits `body`. Returns when the process waits in `body`. When
/// `body` has ended, the process unblocks the [`BlockingWaker`].
fn spawn_waiting<F>(rt: &Runtime, ends: mpsc::Sender<()>, body: impl FnOnce(Context) -> F + Send + 'static) -> Parked
where
    F: Future<Output = ()> + Send,
{
    let (begun, begins) = mpsc::channel();
    let process = rt.spawn(async move |ctx: Context| {
        let mut body = Box::pin(body(ctx));
        assert!(futures::poll!(&mut body).is_pending());
        begun.send(()).unwrap();
        body.await;
        ends.send(()).unwrap();
    });
    begins.recv().unwrap();
    process
}

type Parked = JoinHandle<()>;

/// 6.3b: a mailbox has two monitors: another mailbox and a process. The exit of the monitored mailbox calls the waker
/// of the monitoring mailbox, and this waker blocks until the process has received its `Down` event. The process is
/// notified first.
#[test]
fn a_waker_of_a_watcher_may_wait_for_another_watcher() {
    within(60, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let (address, watched) = rt.mailbox::<()>();
        let pid = address.pid();
        let (_, mut first) = rt.mailbox::<()>();
        first.monitor(pid);
        let mut event = Box::pin(first.event());
        let ends = poll_with_blocking_waker(event.as_mut());
        let second = spawn_waiting(&rt, ends, move |mut ctx| async move {
            ctx.monitor(pid);
            drop(ctx.event().await);
        });
        drop(watched);
        block_on(second).unwrap();
        assert!(matches!(poll_once(event), Poll::Ready(Event::Down { .. })));
    });
}

/// 2.5e: a group has two monitors: a mailbox and a process. A change of the group calls the waker of the mailbox, and
/// this waker blocks until the process has received the change. The process is woken first.
#[test]
fn a_waker_of_a_group_monitor_may_wait_for_another_monitor() {
    within(60, || {
        for change in ["join", "leave", "exit"] {
            let rt = Runtime::builder().workers(2).build().unwrap();
            let (told, hears) = mpsc::channel();
            let member = rt.spawn(async move |mut ctx: Context<()>| {
                told.send((*ctx).clone()).unwrap();
                ctx.receive().await.map(drop)
            });
            let me = hears.recv().unwrap();
            if change != "join" {
                me.join_group("group");
            }
            let (_, mut first) = rt.mailbox::<()>();
            first.monitor_group("group");
            let mut event = Box::pin(first.event());
            let ends = poll_with_blocking_waker(event.as_mut());
            let second = spawn_waiting(&rt, ends, move |mut ctx| async move {
                ctx.monitor_group("group");
                drop(ctx.event().await);
            });
            match change {
                "join" => me.join_group("group"),
                "leave" => me.leave_group("group"),
                _ => member.abort(),
            }
            block_on(second).unwrap();
        }
    });
}

/// 6.3b: a task and a process wait for the exit of a mailbox. The waker of the task blocks until the process has seen
/// the exit. The process is queued first.
#[test]
fn the_waker_of_a_task_that_awaits_an_exit_may_wait_for_a_process() {
    within(60, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let (address, watched) = rt.mailbox::<()>();
        let pid = address.pid();
        let mut exited = Box::pin(rt.exited(pid));
        let ends = poll_with_blocking_waker(exited.as_mut());
        let host = rt.host().clone();
        let second = spawn_waiting(&rt, ends, move |_| async move { drop(host.exited(pid).await) });
        drop(watched);
        block_on(second).unwrap();
    });
}

/// 6.4f: a task waits for the cancellation of a child token, and a process waits for the cancellation of the parent
/// token. The waker of the task blocks until the process has run. The process is queued first.
#[test]
fn a_waker_of_a_cancelled_task_may_wait_for_another_task() {
    within(60, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let token = CancelToken::new();
        let child = token.child();
        let mut first = Box::pin(child.cancelled());
        let ends = poll_with_blocking_waker(first.as_mut());
        let watched = token.clone();
        let second = spawn_waiting(&rt, ends, move |_| async move { drop(watched.cancelled().await) });
        token.cancel("over", LONG);
        block_on(second).unwrap();
    });
}

/// 6.4f: two tasks wait for the exits of the processes of a set. Their waker blocks until both processes have exited.
/// All processes of the set are cancelled first.
#[test]
fn a_waker_that_awaits_a_process_of_a_set_may_wait_for_another_process() {
    within(60, || {
        let rt = Runtime::builder().workers(2).build().unwrap();
        let mut set = rt.join_set::<()>();
        let (ends, end) = mpsc::channel::<()>();
        let waker = Waker::from(Arc::new(BlockingWaker(Mutex::new(end))));
        let both = [(); 2].map(|()| {
            let ends = ends.clone();
            set.spawn(async move |ctx: Context<()>| {
                let _ends = ends;
                ctx.cancelled().await;
            })
        });
        drop(ends);
        for process in &both {
            let waits = |details: ProcessDetails| details.info.state == Some(ProcessState::Idle);
            while !rt.process_details(process.pid()).is_some_and(waits) {
                thread::yield_now();
            }
        }
        // The set may cancel its processes in any order. Therefore the waker waits for both processes.
        let mut exits = both.map(|process| Box::pin(rt.exited(process.pid())));
        for exited in &mut exits {
            assert!(exited.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        }
        set.cancel_all("stop", LONG);
        assert_eq!(block_on(set.join_all()).len(), 2);
    });
}

/// Waker of an executor. The waker sends one message for each wake-up.
struct Rings(mpsc::Sender<()>);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// 6.2c, 8.1b: in one case, a process runs only on a polled guest. In the other case, the process runs only in a
/// `LocalSet`. The executor sleeps. The waker of a task blocks until the process has run. The executor is woken first.
#[test]
fn a_waker_of_a_cancelled_task_may_wait_for_a_process_of_a_sleeping_executor() {
    within(60, || {
        for is_local in [false, true] {
            let rt = Runtime::builder().workers(0).build().unwrap();
            let set = rt.local_set();
            let token = CancelToken::new();
            let mut first = Box::pin(token.cancelled());
            let ends = poll_with_blocking_waker(first.as_mut());
            let watched = token.clone();
            let body = async move |_: Context| {
                watched.cancelled().await;
                ends.send(()).unwrap();
            };
            let process = if is_local { set.spawn(body) } else { rt.spawn(body) };
            let mut run = pin!(set.run(process));
            let (rings, bell) = mpsc::channel();
            rings.send(()).unwrap();
            let waker = Waker::from(Arc::new(Rings(rings)));
            // A poll also returns when its budget is spent. In this case, the poll calls the waker that was passed to
            // this poll.
            while bell.try_recv().is_ok() {
                assert!(run.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
            }
            let cancels = thread::spawn({
                let token = token.clone();
                move || token.cancel("over", LONG)
            });
            let polls = || {
                bell.recv().unwrap();
                run.as_mut().poll(&mut Cx::from_waker(&waker))
            };
            let ended = std::iter::repeat_with(polls).find_map(|polled| match polled {
                Poll::Ready(ended) => Some(ended),
                Poll::Pending => None,
            });
            assert_eq!(ended, Some(Ok(())));
            cancels.join().unwrap();
        }
    });
}

/// 2.3d: a task and a process wait for room in a full mailbox. The receiver takes the messages or exits. The waker of
/// the task blocks until the process has run. The process is queued first.
#[test]
fn the_waker_of_a_waiting_sender_may_block_until_another_sender_has_run() {
    struct TakesAll;
    impl Process for TakesAll {
        type Message = u8;
        type Output = ();
        fn step(&mut self, mut events: Events<'_, u8>, _: &mut StepOutput<'_, u8>) -> Result<Next<()>, Exit> {
            while events.next().is_some() {}
            Ok(Next::Wait)
        }
    }
    within(60, || {
        for exits in [false, true] {
            let rt = Runtime::builder().workers(2).build().unwrap();
            let receiver = rt.process().mailbox_capacity(MailboxCapacity::Reject(2)).spawn_process(TakesAll).unwrap();
            rt.suspend(receiver.pid()).unwrap();
            (0..2).for_each(|n| receiver.send(n).unwrap());
            let to = receiver.address().clone();
            let mut first = Box::pin(to.send_wait(2));
            let ends = poll_with_blocking_waker(first.as_mut());
            let address = to.clone();
            let second = spawn_waiting(&rt, ends, move |_| async move { drop(address.send_wait(3).await) });
            if exits {
                receiver.abort();
            } else {
                rt.resume(receiver.pid()).unwrap();
            }
            block_on(second).unwrap();
        }
    });
}

/// Command for [`Kept`].
struct Keep(u8);
impl Command for Keep {
    type Reply = u8;
}
impl StreamCommand for Keep {
    type Item = u8;
    const BUFFER: usize = 1;
}

/// Handler that passes the completions of its commands to the test.
#[derive(Clone)]
struct Kept<T>(mpsc::Sender<(u8, T)>);

impl Handler<Keep> for Kept<Completion<u8>> {
    fn handle(&self, command: Keep, completion: Completion<u8>) {
        self.0.send((command.0, completion)).unwrap();
    }
}

impl StreamHandler<Keep> for Kept<StreamCompletion<Keep>> {
    fn handle(&self, command: Keep, replies: StreamCompletion<Keep>) {
        self.0.send((command.0, replies)).unwrap();
    }
}

/// 3.3c: a task waits for the end of a command. The waker of the task blocks until the process has received the answer
/// to the command. The process is queued first.
#[test]
fn a_waker_for_the_end_of_a_command_may_block_until_the_answer_arrives() {
    within(60, || {
        let (kept, keeps) = mpsc::channel();
        let rt = Runtime::builder().workers(2).handler(Kept(kept)).build().unwrap();
        let (ends, end) = mpsc::channel();
        let process = rt.spawn(async move |ctx: Context| {
            let answer = ctx.perform(Keep(0)).await;
            ends.send(()).unwrap();
            answer
        });
        let (_, completion) = keeps.recv().unwrap();
        let mut unwanted = Box::pin(completion.cancelled());
        let waker = Waker::from(Arc::new(BlockingWaker(Mutex::new(end))));
        assert!(unwanted.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        completion.complete(5);
        assert_eq!(block_on(process).unwrap(), 5);
    });
}

/// 3.3c: a task waits for the end of a stream. A process waits for room in the buffer of this stream, or of another
/// stream of the same consumer. The consumer exits. The waker of the task blocks until the process has run. The process
/// is queued first.
#[test]
fn a_waker_for_the_end_of_a_stream_may_block_until_a_sender_has_run() {
    struct Consumes;
    impl Process for Consumes {
        type Message = ();
        type Output = ();
        fn step(&mut self, _: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            for n in [0, 1] {
                out.stream(Keep(n));
            }
            Ok(Next::Wait)
        }
    }
    within(60, || {
        for watched in [0, 1] {
            let (kept, keeps) = mpsc::channel();
            let rt = Runtime::builder().workers(2).stream_handler(Kept(kept)).build().unwrap();
            let consumer = rt.process().spawn_process(Consumes).unwrap();
            let mut streams = [keeps.recv().unwrap(), keeps.recv().unwrap()];
            streams.sort_by_key(|(n, _)| *n);
            let [first, (_, mut second)] = streams;
            let mut unwanted = Box::pin(if watched == 0 { first.1.cancelled() } else { second.cancelled() });
            let ends = poll_with_blocking_waker(unwanted.as_mut());
            let sender = spawn_waiting(&rt, ends, move |_| async move { while second.send(1).await.is_ok() {} });
            consumer.abort();
            block_on(sender).unwrap();
        }
    });
}
