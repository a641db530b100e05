//! What the runtime is asked to do from inside its own operations: by a destructor, a waker, an observer. No such call
//! deadlocks, panics or is lost, wherever it comes from.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures::executor::block_on;
use procession::*;

use crate::lives::{LONG, lone, settle};
use crate::within;

/// What the actions of a test act on.
struct World {
    host: Host,
    /// A process that traps exits and reads nothing.
    other: Pid,
    /// Mailboxes that are full, and what happens to the next message.
    full: Vec<Address<Thing>>,
    token: CancelToken,
    acted: AtomicUsize,
}

/// What the process of a test is told.
enum Thing {
    /// To read on.
    Plain,
    /// To drop this.
    Drop(#[expect(dead_code)] Act),
    /// To keep this until its end.
    Hold(Act),
    /// To put this aside unread.
    Stash(Act),
    /// To end.
    Leave,
    /// To end and return what it holds.
    Return,
    /// To panic.
    Panic,
}

impl Clone for Thing {
    fn clone(&self) -> Self {
        Self::Plain
    }
}

/// Acts once, when it is dropped or when it is woken.
struct Act {
    world: Arc<World>,
    me: SelfHandle<Thing>,
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

/// Acts in a destructor only.
struct Lazy(#[expect(dead_code)] Act);

impl Wake for Lazy {
    fn wake(self: Arc<Self>) {}
}

/// Drops what a call returned, whatever it is.
fn ignore<T>(_: T) {}

type Action = fn(&Arc<World>, &SelfHandle<Thing>);

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Cx::from_waker(Waker::noop()))
}

const ACTIONS: [(&str, Action); 22] = [
    ("send to the process itself", |_, me| drop(me.address().send(Thing::Plain))),
    ("send to full mailboxes", |world, _| world.full.iter().for_each(|to| drop(to.send(Thing::Plain)))),
    ("wait for room in a full mailbox", |world, me| drop(poll_once(me.send_wait(&world.full[0], Thing::Plain)))),
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
        world.host.broadcast("group", Thing::Plain);
        me.leave_group("group");
        me.join_group("kept");
        me.monitor_group("kept");
    }),
    ("set timers and cancel one", |_, me| {
        let timer = me.send_after(LONG, me.pid(), Thing::Plain);
        me.cancel_timer(timer);
        me.send_interval(LONG, me.pid(), Thing::Plain);
    }),
    ("sleep and give up", |_, me| ignore(poll_once(me.sleep(LONG)))),
    ("call the process itself", |_, me| {
        drop(poll_once(me.call(me.pid(), |_: Reply<u64>| Thing::Plain)));
    }),
    ("ask how the process ended", |world, me| drop(poll_once(world.host.exited(me.pid())))),
    ("preempt the process itself", |world, me| ignore(world.host.preempt(me.pid()))),
];

/// Does as it is told.
async fn obeys(mut ctx: Context<Thing>) -> Result<Option<Act>, Exit> {
    let mut held = None;
    loop {
        match ctx.receive().await? {
            Thing::Plain | Thing::Drop(_) => {}
            Thing::Hold(act) => held = Some(act),
            Thing::Stash(act) => ctx.stash(Thing::Drop(act)),
            Thing::Leave => return Ok(None),
            Thing::Return => return Ok(held),
            Thing::Panic => panic!("as told"),
        }
    }
}

/// A hand-written process that waits.
struct Waits(#[expect(dead_code)] Act);

impl Process for Waits {
    type Message = Thing;
    type Output = ();
    fn step(&mut self, events: Events<'_, Thing>, _: &mut StepOutput<'_, Thing>) -> Result<Next<()>, Exit> {
        events.for_each(drop);
        Ok(Next::Wait)
    }
}

/// Where an observer and a panic policy find what they are to do.
type Slot = Arc<Mutex<Option<Act>>>;

struct Watches(Slot);

impl Watches {
    fn act(&self) {
        // The lock is free again before the destructor acts.
        let act = self.0.lock().unwrap().take();
        drop(act);
    }
}

impl Observer for Watches {
    fn transition(&self, _: &Transition) {
        self.act();
    }
}

/// A process that does as it is told, on a runtime without workers.
struct Stage {
    rt: Runtime,
    world: Arc<World>,
    /// The receivers of the full mailboxes.
    full: Vec<Mailbox<Thing>>,
    handle: Option<JoinHandle<Option<Act>, Thing>>,
    me: SelfHandle<Thing>,
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
        let handle = rt.spawn(async move |ctx: Context<Thing>| {
            let _ = told.send((*ctx).clone());
            obeys(ctx).await
        });
        let other = rt.spawn(async |mut ctx: Context| {
            ctx.trap_exit(true);
            let _ = ctx.receive().await;
        });
        settle(&rt);
        let bounds = [MailboxCapacity::Reject(1), MailboxCapacity::DropOldest(1), MailboxCapacity::DropNewest(1)];
        let (to, full) =
            bounds.map(|bound| rt.mailbox_with::<Thing>(bound)).into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        to.iter().for_each(|to| drop(to.send(Thing::Plain)));
        let host = rt.host().clone();
        let (token, acted) = (CancelToken::new(), AtomicUsize::new(0));
        let world = Arc::new(World { host, other: other.pid(), full: to, token, acted });
        let me = hears.recv().unwrap();
        Self { rt, world, full, handle: Some(handle), me, observed, panicked }
    }

    fn tell(&self, thing: Thing) {
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
    ("a message that is read", |stage, act| stage.tell(Thing::Drop(act))),
    ("a message that is never read", |stage, act| {
        stage.tell(Thing::Drop(act));
        stage.kill();
    }),
    ("a message that was put aside", |stage, act| {
        stage.tell(Thing::Stash(act));
        settle(&stage.rt);
        stage.kill();
    }),
    ("a message that is refused", |stage, act| drop(stage.world.full[0].send(Thing::Drop(act)))),
    ("a message that a policy drops", |stage, act| drop(stage.world.full[2].send(Thing::Drop(act)))),
    ("an old message that a policy drops", |stage, act| {
        drop(stage.world.full[1].send(Thing::Drop(act)));
        drop(stage.world.full[1].send(Thing::Plain));
    }),
    ("a message of a mailbox outside", |stage, act| {
        let (to, mailbox) = stage.rt.mailbox();
        drop(to.send(Thing::Drop(act)));
        drop(mailbox);
    }),
    ("a message that waits for room", |stage, act| {
        let mut waits = stage.rt.send_wait(&stage.world.full[0], Thing::Drop(act));
        poll_with(&mut waits, Waker::noop());
    }),
    ("a timer that is cancelled", |stage, act| {
        // The message of an interval is cloned, and the timer keeps the one that it was given.
        let timer = stage.me.send_interval(LONG, stage.me.pid(), Thing::Drop(act));
        stage.me.cancel_timer(timer);
    }),
    ("a timer of a process that ends", |stage, act| {
        stage.me.send_after(LONG, stage.me.pid(), Thing::Drop(act));
        stage.kill();
    }),
    ("a body that ends", |stage, act| {
        stage.tell(Thing::Hold(act));
        stage.tell(Thing::Leave);
    }),
    ("a body that is killed", |stage, act| {
        stage.tell(Thing::Hold(act));
        settle(&stage.rt);
        stage.kill();
    }),
    ("a body that panics", |stage, act| {
        stage.tell(Thing::Hold(act));
        stage.tell(Thing::Panic);
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
        stage.tell(Thing::Hold(act));
        stage.tell(Thing::Return);
        settle(&stage.rt);
        stage.handle = None;
    }),
    ("a result without a handle", |stage, act| {
        stage.handle = None;
        stage.tell(Thing::Hold(act));
        stage.tell(Thing::Return);
    }),
    ("the waker of a receiver", |stage, act| {
        let (to, mut mailbox) = stage.rt.mailbox();
        poll_with(&mut mailbox.receive(), &Waker::from(Arc::new(act)));
        let _ = to.send(Thing::Plain);
    }),
    ("the waker of a handle", |stage, act| {
        poll_with(stage.handle.as_mut().unwrap(), &Waker::from(Arc::new(act)));
        stage.tell(Thing::Leave);
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
        let (_to, mut mailbox) = stage.rt.mailbox::<Thing>();
        poll_with(&mut mailbox.receive(), &Waker::from(Arc::new(Lazy(act))));
        poll_with(&mut mailbox.receive(), Waker::noop());
    }),
    ("an observer", |stage, act| {
        *stage.observed.lock().unwrap() = Some(act);
        stage.tell(Thing::Plain);
    }),
    ("a panic policy", |stage, act| {
        *stage.panicked.lock().unwrap() = Some(act);
        stage.tell(Thing::Panic);
    }),
];

/// 11: every action works in every place where the user's code runs inside an operation of the runtime. It neither
/// deadlocks nor panics, and everything can end afterwards.
#[test]
fn every_action_works_in_every_place() {
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
                assert_eq!(block_on(rt.shutdown(LONG)).left, [], "{action} by {site}");
                let counters = world.host.counters();
                assert_eq!(counters.spawned, counters.exited, "{action} by {site}");
                assert_eq!(counters.panics, u64::from(site.contains("panic")), "{action} by {site}");
                drop(me);
            }
        });
    }
}

/// 11: every action is refused or works while the runtime is dropped with the process that it is about.
#[test]
fn every_action_returns_while_the_runtime_is_dropped() {
    within(60, || {
        for (action, act) in ACTIONS {
            let mut stage = Stage::new();
            let world = stage.world.clone();
            let act = || Act { world: world.clone(), me: stage.me.clone(), action: act, done: AtomicUsize::new(0) };
            stage.tell(Thing::Hold(act()));
            settle(&stage.rt);
            stage.tell(Thing::Drop(act()));
            let waits = stage.rt.spawn_process(Waits(act()));
            let (_to, mut mailbox) = stage.rt.mailbox::<Thing>();
            poll_with(&mut mailbox.receive(), &Waker::from(Arc::new(act())));
            stage.handle = None;
            drop(stage.rt);
            drop(mailbox);
            assert_eq!(world.acted.load(SeqCst), 4, "{action}");
            assert!(block_on(waits).is_err());
        }
    });
}

/// 11: destructors that kill, wake and message the next process in a long chain take no stack for each.
#[test]
fn a_chain_of_destructors_takes_bounded_stack() {
    struct Next(Option<Address<Thing>>);
    impl Drop for Next {
        fn drop(&mut self) {
            if let Some(next) = self.0.take() {
                let _ = next.send(Thing::Leave);
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
                    let handle = rt.spawn(async move |mut ctx: Context<Thing>| {
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
                    assert_eq!(block_on(rt.shutdown(LONG)).left, []);
                } else {
                    drop(rt);
                }
            }
        };
        thread::Builder::new().stack_size(256 << 10).spawn(chain).unwrap().join().unwrap();
    });
}
