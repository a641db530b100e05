//! Everything of a runtime but its threads: the pid table, the handlers, the clock, and the paths by which messages,
//! answers and deaths travel.
//!
//! A [`Host`] is what the threaded runtime and a simulation have in common. Where processes run comes in as one
//! schedule function; what time it is and what chance says come in with the clock and the seed.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::task::Waker;
use std::time::Duration;

use slab::Slab;

use crate::address::{Address, Ended};
use crate::blocking::Pool;
use crate::chance::Rng;
use crate::clock::{Clock, Instant};
use crate::control::{AnyControl, Control, Head, flag};
use crate::counted::{self, Counted, Life, Ref, RunState, Stock};
use crate::inherited::Inherited;
use crate::job::Job;
use crate::limits::Limits;
use crate::mailbox::{Bound, Inbox, Wakes};
use crate::observe::{Counter, Counters, Metrics, Observer, State, Transition};
use crate::process::event::{Signal, Tag};
use crate::process::exit::{Exit, Reason};
use crate::process::failure::Failure;
use crate::process::panic::{catch, drop_caught};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::refusal::{BuildError, CompleteError, CompleteRefusal, NoProcess, Refusal, SendError};
use crate::process::turn;
use crate::realm::{HostBuilder, Realm};
use crate::relay::{self, Lane, Place, Relay};
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Arc, Event, Mutex};
use crate::time::timers::{Fire, Timers};
use crate::yields::Late;

/// How far a runtime is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Open,
    /// Refuses work from outside, runs what is there.
    Closing,
    /// Refuses all work.
    Closed,
}

/// What happens beyond the end of a process that panicked.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnPanic {
    /// The [`Observer`], if there is one, is told.
    #[default]
    Observe,
    /// As `Observe`, and this function is called on the thread that ran the process.
    Call(Arc<dyn Fn(Pid, &str) + Send + Sync>),
    /// As `Observe`, and the runtime begins to shut down: new work from outside is refused, every process is
    /// cancelled.
    ShutDown,
}

impl fmt::Debug for OnPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnPanic::Observe => "Observe",
            OnPanic::Call(_) => "Call",
            OnPanic::ShutDown => "ShutDown",
        })
    }
}

/// Where a job goes, and whether it is one that has run just now and goes on: the one seam between what runs and where it
/// runs.
pub(crate) type Enqueue = fn(Job, bool);
/// The same for many at once, which are new; with [`Shared::place`].
pub(crate) type EnqueueAll = fn(&Arc<dyn Any + Send + Sync>, Vec<Job>);

/// What a host is made of; the runtime fills it in.
pub(crate) struct Shared {
    pub(crate) relay: Relay<dyn AnyControl, Host>,
    pub(crate) clock: Clock,
    pub(crate) timers: Arc<Timers>,
    pub(crate) pool: Pool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) on_panic: OnPanic,
    pub(crate) schedule: Enqueue,
    pub(crate) schedule_all: EnqueueAll,
    /// Whatever `schedule` needs to find its queues.
    pub(crate) place: Arc<dyn Any + Send + Sync>,
    /// Its address, to compare.
    pub(crate) home: usize,
    /// Tells whoever sleeps until the nearest deadline that there is a nearer one.
    pub(crate) rearm: Box<dyn Fn() + Send + Sync>,
    /// Asks whoever has this word as its pid's to let others run; false if it does not run.
    pub(crate) preempt: Box<dyn Fn(u64) -> bool + Send + Sync>,
    pub(crate) chance: Mutex<Rng>,
    pub(crate) phase: AtomicU8,
    /// When what still runs during a shutdown is killed.
    pub(crate) deadline: AtomicU64,
    /// The futures of nobody's that wait, to be found when the runtime ends.
    pub(crate) futures: Mutex<Slab<Waker>>,
    /// Told when the last process has ended, while the runtime shuts down.
    pub(crate) emptied: Event,
    /// Mailboxes outside any process: they don't keep a shutdown waiting.
    pub(crate) outside: AtomicUsize,
    /// Supervisors that have none themselves, and live.
    pub(crate) roots: AtomicUsize,
    pub(crate) mourners: Mutex<Vec<counted::Weak<Control<Package>>>>,
    pub(crate) nodes: Mutex<BTreeMap<u32, Arc<dyn Receiver>>>,
}

/// Where processes live: the handle to a runtime (or a simulation) that everybody may hold.
///
/// Cheap to clone; works on any thread, inside a process or outside. It does not keep the runtime running: once that
/// has shut down or was dropped, spawns and sends are refused.
#[derive(Clone)]
pub struct Host {
    share: Ref<Counted<Share>>,
}

/// What a [`Host`] points to. The count of those that point here stands in another cache line than what they read.
#[repr(align(64))]
pub(crate) struct Share {
    shared: Arc<Shared>,
    realm: Arc<Realm>,
}

impl Host {
    pub(crate) fn new(shared: Arc<Shared>, realm: Realm) -> Self {
        Self { share: Ref::counted(Share { shared, realm: Arc::new(realm) }) }
    }

    /// What all hosts of the runtime share.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.share.shared
    }

    /// What is this host's own.
    #[inline]
    pub(crate) fn realm(&self) -> &Realm {
        &self.share.realm
    }
}

impl Lane for Host {
    type Stock = Stock<Counted<Share>>;

    fn stock(&self, count: u32) -> Self::Stock {
        let Share { shared, realm } = &**self.share;
        Stock::new(Share { shared: Arc::clone(shared), realm: Arc::clone(realm) }, count)
    }

    #[inline]
    fn take(&self, stock: &mut Self::Stock) -> Option<Self> {
        if !Arc::ptr_eq(&self.share.realm, &stock.get().realm) {
            return None;
        }
        stock.take().map(|share| Self { share })
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("node", &self.shared().relay.node()).finish_non_exhaustive()
    }
}

/// A message on its way to a pid.
#[derive(Debug)]
#[non_exhaustive]
pub struct Package {
    /// Who sent it, where that is known.
    pub from: Option<Pid>,
    /// Whom it is for.
    pub to: Pid,
    /// The message.
    pub payload: Payload,
}

impl Package {
    /// A message for `to`, from whoever is being stepped on this thread.
    pub fn new(to: Pid, payload: Payload) -> Self {
        Self { from: turn::pid(), to, payload }
    }
}

/// The one routing interface: delivers a package to a pid.
///
/// A [`Host`] is one; others are attached for other nodes ([`Host::attach_node`]) or under a pid of this one
/// ([`Host::attach`]).
pub trait Receiver: Send + Sync + 'static {
    /// Takes the package, or hands it back. Must not block: it runs on the sender's thread.
    ///
    /// # Errors
    /// The package and why it was refused.
    fn deliver(&self, package: Package) -> Result<(), SendError<Package>>;
}

impl Receiver for Host {
    fn deliver(&self, package: Package) -> Result<(), SendError<Package>> {
        let Package { from, to, payload } = package;
        let refuse = |refusal, payload| Err(SendError::new(refusal, Package { from, to, payload }));
        if self.shared().relay.is_here(to) {
            return match self.shared().relay.get(to) {
                Some(control) => control.deliver(payload).or_else(|(refusal, payload)| refuse(refusal, payload)),
                None => refuse(self.gone(), payload),
            };
        }
        let node = self.shared().nodes.lock().get(&to.node()).cloned();
        match node {
            Some(receiver) => receiver.deliver(Package { from, to, payload }),
            None => refuse(Refusal::NoProcess, payload),
        }
    }
}

/// A receiver attached under a pid: what is sent there goes to it.
struct Attached {
    head: Head,
    receiver: Box<dyn Receiver>,
}

impl AnyControl for Counted<Attached> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn deliver(&self, payload: Payload) -> Result<(), (Refusal, Payload)> {
        if self.head.has(flag::KILLED) {
            return Err((self.head.host().gone(), payload));
        }
        self.receiver.deliver(Package::new(self.head.pid(), payload)).map_err(|refused| {
            let refusal = refused.refusal();
            (refusal, refused.into_message().payload)
        })
    }

    fn high_water(&self) -> usize {
        0
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        Err(signal)
    }

    fn put_down(&self, _: u64, _: Pid, _: &Exit) -> Option<Wakes> {
        None
    }

    fn rouse(&self) {}

    fn wake(&self) {}

    fn close_outside(&self, exit: &Exit) {
        drop(self.head.host().forget(&self.head));
        self.head.set_exit(exit);
    }
}

/// What a control block is made of, but for its place.
pub(crate) struct Blank {
    head: Head,
    bound: Bound,
    most: Option<usize>,
}

impl Blank {
    /// Of a process that is about to be queued.
    #[inline]
    pub(crate) fn active(mut self) -> Self {
        self.head.run = RunState::active();
        self
    }

    #[inline]
    pub(crate) fn fill<M>(self, life: Life) -> Control<M> {
        Control { life, inbox: Inbox::new(self.bound, self.most), head: self.head }
    }
}

/// Whom to send to: a typed address or [`Name`](crate::Name) is checked by the compiler, a `Pid` or `&str` at the send.
///
/// A name is looked up in the host that sends, at each send, so it leads to whoever has it then.
pub trait Target<M>: Route<M> {}

#[allow(private_interfaces)]
mod sealed {
    use super::{Control, Pid, Ref};

    /// Where a message for a target goes.
    pub enum Way<'a, M> {
        #[doc(hidden)]
        Here(&'a Ref<Control<M>>),
        #[doc(hidden)]
        Pid(Pid),
        #[doc(hidden)]
        Name(&'a str),
    }

    impl<M> std::fmt::Debug for Way<'_, M> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Way")
        }
    }

    pub trait Route<M> {
        #[doc(hidden)]
        fn way(&self) -> Way<'_, M>;
    }
}
pub(crate) use sealed::{Route, Way};

impl<M> Target<M> for Pid {}
impl<M> Route<M> for Pid {
    fn way(&self) -> Way<'_, M> {
        Way::Pid(*self)
    }
}

impl<M> Target<M> for &str {}
impl<M> Route<M> for &str {
    fn way(&self) -> Way<'_, M> {
        Way::Name(self)
    }
}

/// A [`Way`] for later.
#[derive(Debug)]
pub(crate) enum Destination<M> {
    Here(Ref<Control<M>>),
    Pid(Pid),
    Name(Box<str>),
}

impl<M> Way<'_, M> {
    pub(crate) fn keep(&self) -> Destination<M> {
        match *self {
            Way::Here(control) => Destination::Here(control.clone()),
            Way::Pid(pid) => Destination::Pid(pid),
            Way::Name(name) => Destination::Name(name.into()),
        }
    }
}

impl<M> Destination<M> {
    pub(crate) fn way(&self) -> Way<'_, M> {
        match self {
            Destination::Here(control) => Way::Here(control),
            Destination::Pid(pid) => Way::Pid(*pid),
            Destination::Name(name) => Way::Name(name),
        }
    }
}

impl Host {
    /// The runtime's clock: monotonic, or virtual in a simulation.
    pub fn now(&self) -> Instant {
        self.shared().clock.now()
    }

    /// A random number, from the runtime's seed.
    pub(crate) fn random(&self) -> u64 {
        self.shared().chance.lock().next()
    }

    /// The number of this runtime as a node.
    pub fn node(&self) -> u32 {
        self.shared().relay.node()
    }

    /// A snapshot of the counters; two can be subtracted.
    pub fn counters(&self) -> Counters {
        self.shared().metrics.counters()
    }

    /// How many processes live.
    pub fn processes_alive(&self) -> usize {
        self.shared().relay.len().saturating_sub(self.shared().outside.load(Ordering::SeqCst))
    }

    /// Another host in the same runtime, with handlers and limits of its own: what its processes perform goes to its
    /// handlers alone, and what they spawn lives there too. Messages go from host to host as within one.
    ///
    /// ```
    /// # use procession::{Command, Context, Failure, HostBuilder, Limits, Runtime};
    /// struct Erase;
    /// impl Command for Erase { type Reply = (); }
    /// struct Log(&'static str);
    /// impl Command for Log { type Reply = (); }
    ///
    /// let rt = Runtime::builder().handle(|_: Erase| ()).build()?;
    /// let plugins = HostBuilder::new("plugins").handle(|log: Log| println!("{}", log.0)).max_processes(100);
    /// let plugins = rt.add_host(plugins.limits(Limits::new().mail(1_000)))?;
    /// let plugin = plugins.spawn(async |ctx: Context| {
    ///     ctx.perform(Log("hello")).await?;
    ///     ctx.perform(Erase).await
    /// });
    /// let failure = rt.block_on(plugin).unwrap_err();
    /// assert!(failure.to_string().ends_with("Erase in the host plugins"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Two handlers for one command.
    pub fn add_host(&self, host: HostBuilder) -> Result<Self, BuildError> {
        Ok(Self::new(Arc::clone(self.shared()), host.build()?))
    }

    /// The name of this host; empty for the runtime's own.
    pub fn name(&self) -> &str {
        self.realm().name()
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.shared().phase.load(Ordering::SeqCst) {
            0 => Phase::Open,
            1 => Phase::Closing,
            _ => Phase::Closed,
        }
    }

    /// Moves on to `phase`; never back.
    pub(crate) fn advance(&self, phase: Phase) {
        self.shared().phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    /// What a sender is told whose receiver is gone.
    pub(crate) fn gone(&self) -> Refusal {
        if self.phase() == Phase::Closed { Refusal::ShutDown } else { Refusal::NoProcess }
    }

    // ---- Messages

    /// Sends a message; never blocks.
    ///
    /// Messages from one sender to one receiver arrive in the order in which they were sent. To another node,
    /// acceptance is all that `Ok` promises.
    ///
    /// # Errors
    /// The message and why it was refused: the process has ended or never was, or it takes another type.
    pub fn send<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> Result<(), SendError<N>> {
        self.send_by(&to.way(), message)
    }

    pub(crate) fn send_by<N: Send + 'static>(&self, way: &Way<'_, N>, message: N) -> Result<(), SendError<N>> {
        self.try_send_by(way, message).map_err(|(refusal, message)| {
            self.shared().metrics.add(Counter::Refused, 1);
            SendError::new(refusal, message)
        })
    }

    /// As [`send_by`](Self::send_by); the refusal is the caller's to count.
    pub(crate) fn try_send_by<N: Send + 'static>(&self, way: &Way<'_, N>, message: N) -> Result<(), (Refusal, N)> {
        match way {
            Way::Here(control) => control.push(message),
            Way::Pid(pid) => match self.shared().relay.get(*pid) {
                Some(control) => control.take(message),
                None => self.send_away(*pid, message),
            },
            Way::Name(name) => match self.realm().names().get(name) {
                Some(control) => control.take(message),
                None => Err((self.gone(), message)),
            },
        }
    }

    fn send_away<N: Send + 'static>(&self, pid: Pid, message: N) -> Result<(), (Refusal, N)> {
        self.deliver(Package::new(pid, Payload::new(message)))
            .map_err(|refused| (refused.refusal(), back(refused.into_message().payload)))
    }

    /// The typed address of a process, if it lives and takes messages of type `N`.
    pub fn address<N: Send + 'static>(&self, pid: Pid) -> Option<Address<N>> {
        self.typed(pid).map(Address::new)
    }

    /// The control block of a process that takes `N`.
    fn typed<N: Send + 'static>(&self, pid: Pid) -> Option<Ref<Control<N>>> {
        self.shared().relay.get(pid)?.downcast()
    }

    /// As [`Address::high_water`](crate::Address::high_water), if the process lives.
    pub fn high_water(&self, pid: Pid) -> Option<usize> {
        self.shared().relay.get(pid).map(|control| control.high_water())
    }

    /// Attaches a receiver under a pid of its own: a way for pids to lead to whatever takes packages.
    ///
    /// It is detached by [`kill`](Self::kill), or with the runtime. `None` when the runtime has shut down.
    pub fn attach(&self, receiver: impl Receiver) -> Option<Pid> {
        if self.phase() == Phase::Closed {
            return None;
        }
        let pid = self.shared().relay.insert(0, self, |place, host| {
            let (head, receiver) = (Head::new(place, host, flag::OUTSIDE), Box::new(receiver));
            let attached = Ref::counted(Attached { head, receiver });
            let pid = attached.head.pid();
            (Ref::of(attached), pid)
        });
        self.shared().outside.fetch_add(1, Ordering::SeqCst);
        pid
    }

    /// Attaches the way to another node: what is sent to its pids goes to `receiver`. The last one attached holds.
    pub fn attach_node(&self, node: u32, receiver: impl Receiver) {
        let former = self.shared().nodes.lock().insert(node, Arc::new(receiver));
        drop(former);
    }

    /// A mailbox with a pid that is no process: an outside channel, for threads and tasks of any executor.
    ///
    /// It lives until the [`Mailbox`](crate::Mailbox) is dropped, or it is killed.
    pub(crate) fn outside_control<N: Send + 'static>(&self, bound: Bound) -> Ref<Control<N>> {
        self.shared().outside.fetch_add(1, Ordering::SeqCst);
        let make = |blank: Blank| {
            let (table, owner) = Ref::pair(|life| blank.fill(life));
            (table.into_any(), owner)
        };
        let flags = flag::OUTSIDE | flag::STARTED;
        let Some(control) = self.enrol(0, flags, Inherited::default(), None, bound, make) else {
            self.shared().outside.fetch_sub(1, Ordering::SeqCst);
            // No pid is free: a mailbox that is closed from the start.
            return self.stillborn(Exit::Refused(Reason::from("all pids are in use")));
        };
        if self.phase() == Phase::Closed {
            control.close_outside(&Exit::Refused(Reason::from("the runtime has shut down")));
        }
        control
    }

    /// A control block with a pid of its own, which `make` puts into its place, with one reference more for the table.
    /// `None` when all pids are in use; `hint` spreads callers over the table.
    #[inline]
    pub(crate) fn enrol<T>(
        &self,
        hint: usize,
        flags: u16,
        inherited: Inherited,
        limits: Option<Box<Limits>>,
        bound: Bound,
        make: impl FnOnce(Blank) -> (Ref<dyn AnyControl>, T),
    ) -> Option<T> {
        self.shared().relay.insert(hint, self, |place, host| {
            let most = limits.as_deref().and_then(Limits::most_mail);
            make(Blank { head: Head::new(place, host, flags).given(inherited, limits), bound, most })
        })
    }

    /// A control block of a process that never was: what the handle of a refused spawn points to.
    pub(crate) fn stillborn<N: Send + 'static>(&self, exit: Exit) -> Ref<Control<N>> {
        let head = Head::new(Place::NOWHERE, self.clone(), 0);
        let control = Ref::new(|life| Control { life, head, inbox: Inbox::new(Bound::Unbounded, None) });
        drop(control.inbox.close());
        control.head.set_exit(&exit);
        control
    }

    // ---- Yields

    /// Answers a yield by its tag: the untyped way, for hosts that can't carry a [`Completion`](crate::Completion).
    ///
    /// # Errors
    /// The answer, when there is no such process, its tag is not in flight, was answered before, or wants another
    /// type.
    pub fn complete_yield(&self, pid: Pid, tag: Tag, answer: Result<Payload, Failure>) -> Result<(), CompleteError> {
        let Some(control) = self.shared().relay.get(pid) else {
            return Err(CompleteError::new(CompleteRefusal::NoProcess, answer));
        };
        control.complete(tag, answer, true).map_err(|(late, answer)| {
            let refusal = match late {
                Late::Spent => CompleteRefusal::Spent,
                Late::Unknown => CompleteRefusal::UnknownTag,
                Late::WrongType(expected) => CompleteRefusal::WrongType { expected },
            };
            CompleteError::new(refusal, answer)
        })
    }

    // ---- Lives

    /// Asks a process to end, and kills it if it has not after `grace`.
    ///
    /// It is told once, by a cancel event; asked again, it is not told again. What it does with its grace is its own
    /// affair: clean-up commands are answered as always.
    ///
    /// # Errors
    /// No such process lives.
    pub fn cancel(&self, pid: Pid, reason: impl Into<Reason>, grace: Duration) -> Result<(), NoProcess> {
        let control = self.shared().relay.get(pid).ok_or(NoProcess(pid))?;
        let deadline = self.now() + grace;
        self.cancel_until(&control, reason.into(), deadline);
        Ok(())
    }

    /// Asks a process to end, and kills it at `deadline`; nothing if it was asked before.
    pub(crate) fn cancel_until(&self, control: &Ref<dyn AnyControl>, reason: Reason, deadline: Instant) {
        if control.cancel(reason, deadline) {
            self.kill_at(control, deadline);
        }
    }

    /// Ends a process at its next scheduling point, whatever it is doing; its outstanding yields are cancelled.
    ///
    /// # Errors
    /// No such process lives.
    pub fn kill(&self, pid: Pid) -> Result<(), NoProcess> {
        self.shared().relay.get(pid).ok_or(NoProcess(pid))?.kill();
        Ok(())
    }

    /// Asks a process that runs to let others run: [`should_yield`](crate::should_yield) and
    /// [`cooperative`](crate::cooperative) tell it, once, in this turn of it. Returns whether it ran: one that does not
    /// needs no asking, and one that ends its turn at this moment may be told in its next.
    ///
    /// It is its own to do so: code that never asks can't be interrupted. A process that is not `Send` runs inside
    /// somebody's future, and is not asked.
    ///
    /// # Errors
    /// No such process lives.
    pub fn preempt(&self, pid: Pid) -> Result<bool, NoProcess> {
        let _lives = self.shared().relay.get(pid).ok_or(NoProcess(pid))?;
        Ok((self.shared().preempt)(pid.word()))
    }

    pub(crate) fn kill_at(&self, control: &Ref<dyn AnyControl>, deadline: Instant) {
        let condemned = Ref::downgrade(control);
        self.fire_at(
            deadline,
            Fire::Call(Box::new(move || {
                if let Some(control) = condemned.upgrade() {
                    control.kill();
                }
            })),
        );
    }

    /// Resolves when the process has ended, with how; at once if no such process lives.
    pub fn ended(&self, pid: Pid) -> Ended {
        Ended::new(self.shared().relay.get(pid))
    }

    // ---- Time

    /// Leaves something with the timers.
    pub(crate) fn fire_at(&self, at: Instant, fire: Fire) -> crate::time::timers::Key {
        let (key, earlier) = self.shared().timers.insert(self.shared().metrics.worker(), at, fire);
        if earlier {
            (self.shared().rearm)();
        }
        key
    }

    // ---- The end of a process, in the order in which it happens

    /// Its names are free. Its mailbox has been closed: whoever registers it marks it before it looks at that, see
    /// `relay::names`.
    #[inline]
    pub(crate) fn release(&self, head: &Head) {
        if head.has(flag::KNOWN) {
            self.realm().names().release(head.names());
        }
    }

    /// The pid names nothing from now on, and is in no group. What it held has been let go, so that whoever finds nothing
    /// there, or hears that it left, finds nothing left of it, and nothing of it comes after that. Returns what the table had.
    #[inline]
    pub(crate) fn forget(&self, head: &Head) -> Option<Ref<dyn AnyControl>> {
        // Whoever finds its pid gone, or sees it ended, finds it counted. A mailbox outside any process never was.
        if !head.has(flag::OUTSIDE) {
            self.shared().metrics.add_exited();
        }
        let pid = head.pid();
        let entry = self.shared().relay.remove(relay::own(), pid);
        if entry.is_some() && head.has(flag::OUTSIDE) {
            self.shared().outside.fetch_sub(1, Ordering::SeqCst);
        }
        if head.has(flag::KNOWN) {
            self.leave_groups(head);
        }
        entry
    }

    #[cold]
    fn leave_groups(&self, head: &Head) {
        self.realm().groups().release(head.pid(), head.groups());
    }

    /// The last of it: its yields are given up, and those who want to hear of its end do.
    #[inline]
    pub(crate) fn bury(&self, head: &Head, exit: &Exit) {
        if let Some(yields) = head.yields_if_any() {
            yields.close();
        }
        if let Some(pending) = head.pending_if_any() {
            pending.close(self);
        }
        // A mailbox outside any process has no states, and takes up no place.
        if !head.has(flag::OUTSIDE) {
            head.enter(head.flags(), State::Complete);
            head.host().realm().leave();
        }
        head.set_exit(exit);
        if head.has(flag::ROOT) {
            self.root_ended();
        }
        if self.phase() != Phase::Open {
            // Two that end at the same time each count themselves first: whoever looks last sees both, and they ended.
            fence(Ordering::SeqCst);
            if self.all_ended() {
                self.shared().emptied.notify(usize::MAX);
            }
        }
    }

    /// A process spent its turn's budget and goes behind the others.
    pub(crate) fn count_budget_yield(&self) {
        self.shared().metrics.add(Counter::BudgetYields, 1);
    }

    /// Whether every process that was spawned is at its end: the last that is left of it is to be [buried](Self::bury).
    #[inline]
    pub(crate) fn all_ended(&self) -> bool {
        self.shared().metrics.all_ended()
    }

    /// Mail that was accepted and that nobody will read.
    pub(crate) fn dead_letters_of<M: Send + 'static>(&self, head: &Head, mail: impl ExactSizeIterator<Item = M>) {
        if mail.len() == 0 {
            return;
        }
        let to = head.pid();
        self.shared().metrics.add(Counter::DeadLetters, mail.len() as u64);
        let own_kind = TypeId::of::<M>() == TypeId::of::<Package>();
        for message in mail {
            let mourner = if own_kind { None } else { self.mourner() };
            // Whatever of it nobody takes is dropped, and that is the user's code.
            let _ = match mourner {
                Some(mourner) => {
                    let package = Package { from: None, to, payload: Payload::new(message) };
                    mourner.push(package).or_else(|(_, package)| drop_caught(package))
                }
                None => drop_caught(message),
            };
        }
    }

    fn mourner(&self) -> Option<Ref<Control<Package>>> {
        let mut mourners = self.shared().mourners.lock();
        while let Some(last) = mourners.last() {
            // Its owner has it, and with it the host.
            if let Some(mourner) = last.upgrade().filter(|mourner| !mourner.head.has_ended()) {
                return Some(mourner);
            }
            mourners.pop();
        }
        None
    }

    /// Tells the observer, if there is one, that a process is in another state now.
    #[cold]
    pub(crate) fn observe(&self, head: &Head, from: Option<State>, to: State) {
        if let Some(observer) = &self.shared().observer {
            let transition =
                Transition { pid: head.pid(), from, to, worker: self.shared().metrics.worker(), at: self.now() };
            let _ = catch(|| observer.transition(&transition));
        }
    }

    /// A process panicked: tells whoever the policy says.
    pub(crate) fn panicked(&self, pid: Pid, text: &str) {
        self.shared().metrics.add(Counter::Panics, 1);
        if let Some(observer) = &self.shared().observer {
            let _ = catch(|| observer.panicked(pid, text));
        }
        match &self.shared().on_panic {
            OnPanic::Observe => {}
            OnPanic::Call(f) => drop(catch(|| f(pid, text))),
            OnPanic::ShutDown => self.begin_shutdown(Instant::FAR),
        }
    }

    pub(crate) fn shutdown_deadline(&self) -> Instant {
        Instant::from_ns(self.shared().deadline.load(Ordering::SeqCst))
    }

    /// The processes that have not ended.
    pub(crate) fn alive(&self) -> Vec<Ref<dyn AnyControl>> {
        let mut all = self.shared().relay.all();
        all.retain(|control| !control.head().has(flag::OUTSIDE) && !control.head().has_ended());
        all
    }

    /// Refuses work from outside and tells every process to end: first the supervisors, each of which ends its own
    /// children in its order, and when they have ended, the rest.
    pub(crate) fn begin_shutdown(&self, deadline: Instant) {
        self.shared().deadline.fetch_min(deadline.ns(), Ordering::SeqCst);
        self.advance(Phase::Closing);
        self.cancel_all(|head| head.has(flag::ROOT));
        // Whoever is the last of them counts itself out first and looks at the phase then: one of the two does it.
        if self.shared().roots.load(Ordering::SeqCst) == 0 {
            self.shut_down_rest();
        }
    }

    /// A supervisor begins that nobody supervises.
    pub(crate) fn root_begins(&self, root: &dyn AnyControl) {
        self.shared().roots.fetch_add(1, Ordering::SeqCst);
        root.head().set(flag::ROOT);
        // Whoever shuts down sets the phase first and looks for roots then.
        if self.phase() != Phase::Open {
            root.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    #[cold]
    fn root_ended(&self) {
        if self.shared().roots.fetch_sub(1, Ordering::SeqCst) == 1 && self.phase() != Phase::Open {
            self.shut_down_rest();
        }
    }

    fn shut_down_rest(&self) {
        self.cancel_all(|head| !head.has(flag::SUPERVISED));
    }

    fn cancel_all(&self, concerns: impl Fn(&Head) -> bool) {
        for control in self.alive().iter().filter(|control| concerns(control.head())) {
            control.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    /// The end: refuses all work, and condemns what is left. Whoever calls this runs the queue dry.
    pub(crate) fn condemn(&self) {
        self.advance(Phase::Closed);
        self.shared().relay.close();
        for control in self.shared().relay.all() {
            control.kill();
        }
        let futures: Vec<Waker> = self.shared().futures.lock().iter().map(|(_, waker)| waker.clone()).collect();
        futures.into_iter().for_each(Waker::wake);
    }
}

impl dyn AnyControl {
    /// Delivers a message whose type is known here.
    pub(crate) fn take<N: Send + 'static>(&self, message: N) -> Result<(), (Refusal, N)> {
        match self.as_any().downcast_ref::<Control<N>>() {
            Some(control) => control.push(message),
            None => self.deliver(Payload::new(message)).map_err(|(refusal, payload)| (refusal, back(payload))),
        }
    }
}

/// A refused message as its sender knows it.
fn back<N: Send + 'static>(payload: Payload) -> N {
    payload.downcast::<N>().unwrap_or_else(|payload| {
        unreachable!("a refused `{}` comes back as what it was sent as, `{}`", payload.type_name(), type_name::<N>())
    })
}
