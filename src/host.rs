//! Everything of a runtime but its threads: the pid table, the handlers, the clock, and the paths by which messages,
//! answers and deaths travel.
//!
//! A [`Host`] is what the threaded runtime and a simulation have in common. Where processes run comes in as one
//! schedule function; what time it is and what chance says come in with the clock and the seed.

pub(crate) mod cancel;
pub(crate) mod control;
pub(crate) mod dispatch;
pub(crate) mod exit;
pub(crate) mod job;
pub(crate) mod link;
pub(crate) mod namespace;
pub(crate) mod refs;
pub(crate) mod registry;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod timer;

use std::any::type_name;
use std::fmt;
use std::time::Duration;

use crate::host::cancel::inherited::Inherited;
use crate::host::control::{AnyControl, Control, Given, Head, flag};
use crate::host::namespace::{HostBuilder, Realm};
pub use crate::host::registry::receiver::{Package, Receiver};
pub use crate::host::registry::target::Target;
pub(crate) use crate::host::registry::target::{Destination, Route, Way};
use crate::host::registry::{Lane, Place};
pub(crate) use crate::host::shared::{Ground, Shared};
pub(crate) use crate::host::shutdown::Phase;
pub use crate::host::shutdown::{Left, Shutdown};
use crate::host::timer::{Fire, pending};
use crate::observe::{Counter, Counters, State, Transition};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::catch;
use crate::process::error::{BuildError, CompleteError, CompleteRefusal, NoProcess, Refusal, SendError};
use crate::process::event::Tag;
use crate::process::exit::{Exit, Reason};
use crate::process::failure::Failure;
use crate::process::limits::Limits;
use crate::process::mailbox::{Bound, Inbox};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::{Counted, Life, Ref, RunState, Stock};
use crate::process::yields::Late;

/// What happens beyond the end of a process that panicked.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnPanic {
    /// The [`Observer`](crate::Observer), if there is one, is told.
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

impl Host {
    /// Has `make` build what a new pid names; `None` when all pids are in use.
    #[inline]
    pub(in crate::host) fn place<T>(&self, make: impl FnOnce(Place, Host) -> (Ref<dyn AnyControl>, T)) -> Option<T> {
        self.shared().relay.insert(registry::own(), self, make)
    }

    /// Has a pid name nothing; returns what it named.
    #[inline]
    pub(in crate::host) fn displace(&self, pid: Pid) -> Option<Ref<dyn AnyControl>> {
        self.shared().relay.remove(registry::own(), pid)
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

/// What a control block is made of. Each of its fields is written where it is to be, once: whoever makes it from this does
/// so in one function, for what is moved in wider pieces than it was written in is waited for.
pub(crate) struct Blank {
    place: Place,
    host: Host,
    flags: u16,
    given: Given,
    bound: Bound,
    most: Option<usize>,
}

impl Blank {
    #[inline(always)]
    pub(crate) fn fill<M>(self, life: Life, run: RunState) -> Control<M> {
        let Self { place, host, flags, given, bound, most } = self;
        // First, for whether there is a bound is asked here: the head, made before that, would be kept, and moved.
        let inbox = Inbox::new(bound, most);
        Control { life, head: Head::new(run, place, host, flags, given), inbox }
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

    /// The number of processes that were spawned and have not ended.
    ///
    /// The counters of spawned and of ended processes are read one after the other, and again if a process has ended
    /// meanwhile. After a bounded number of attempts the result may be higher than the true number; it is never lower.
    pub fn processes_alive(&self) -> usize {
        self.shared().metrics.alive() as usize
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

    /// As [`Address::high_water`](crate::Address::high_water), if the process lives.
    pub fn high_water(&self, pid: Pid) -> Option<usize> {
        self.shared().relay.get(pid).map(|control| control.high_water())
    }

    /// A mailbox with a pid that is no process: an outside channel, for threads and tasks of any executor.
    ///
    /// It lives until the [`Mailbox`](crate::Mailbox) is dropped, or it is killed.
    pub(crate) fn outside_control<N: Send + 'static>(&self, bound: Bound) -> Ref<Control<N>> {
        let make = |blank: Blank| {
            let (table, owner) = Ref::pair(|life| blank.fill(life, RunState::over()));
            (table.into_any(), owner)
        };
        let flags = flag::OUTSIDE | flag::STARTED;
        let Some(control) = self.enrol(flags, Inherited::default(), None, bound, make) else {
            // No pid is free: a mailbox that is closed from the start.
            return self.stillborn(Exit::Refused(Reason::from("all pids are in use")));
        };
        if self.phase() == Phase::Closed {
            control.close_outside(&Exit::Refused(Reason::from("the runtime has shut down")));
        }
        control
    }

    /// A control block with a pid of its own, which `make` puts into its place, with one reference more for the table.
    /// `None` when all pids are in use.
    #[inline]
    pub(crate) fn enrol<T>(
        &self,
        flags: u16,
        inherited: Inherited,
        limits: Option<Box<Limits>>,
        bound: Bound,
        make: impl FnOnce(Blank) -> (Ref<dyn AnyControl>, T),
    ) -> Option<T> {
        self.place(|place, host| {
            let most = limits.as_deref().and_then(Limits::most_mail);
            make(Blank { place, host, flags, given: Given::new(inherited, limits), bound, most })
        })
    }

    /// A control block of a process that never was: what the handle of a refused spawn points to.
    pub(crate) fn stillborn<N: Send + 'static>(&self, exit: Exit) -> Ref<Control<N>> {
        let head = Head::new(RunState::over(), Place::NOWHERE, self.clone(), 0, Given::default());
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
        let mut answer = Some(answer);
        control.complete(tag, &mut answer, true).map_err(|late| {
            let refusal = match late {
                Late::Spent => CompleteRefusal::Spent,
                Late::Unknown => CompleteRefusal::UnknownTag,
                Late::WrongType(expected) => CompleteRefusal::WrongType { expected },
            };
            CompleteError::new(refusal, answer.take().expect("what is refused stays"))
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
    /// [`cooperative`](crate::cooperative()) tell it, once, in this turn of it. Returns whether it ran: one that does not
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

    /// Kills a process at `deadline`, unless it has ended by then. The timer belongs to the process: it is cancelled when the
    /// process ends, however far the deadline is.
    pub(crate) fn kill_at(&self, control: &Ref<dyn AnyControl>, deadline: Instant) {
        if deadline == Instant::FAR {
            return;
        }
        let condemned = Ref::downgrade(control);
        pending::call_at(control, deadline, move || {
            if let Some(control) = condemned.upgrade() {
                control.kill();
            }
        });
    }

    // ---- Time

    /// Leaves something with the timers.
    pub(crate) fn fire_at(&self, at: Instant, fire: Fire) -> timer::Key {
        let (key, earlier) = self.shared().timers.insert(self.shared().metrics.worker(), at, fire);
        if earlier {
            (self.shared().rearm)();
        }
        key
    }

    /// A process spent its turn's budget and goes behind the others.
    pub(crate) fn count_budget_yield(&self) {
        self.shared().metrics.add(Counter::BudgetYields, 1);
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

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::{Context, Runtime};

    /// The timer of the kill refers to the process: it must not wait for its deadline after the process has ended.
    #[test]
    fn a_cancel_leaves_no_timer_behind_when_the_process_has_ended() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        for grace in [Duration::MAX, Duration::from_secs(86_400), Duration::from_secs(1)] {
            let handle = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
            let control = Ref::downgrade(&handle.address().control().any());
            rt.block_on(handle.started()).unwrap();
            rt.cancel(handle.pid(), Reason::from("test"), grace).unwrap();
            assert!(rt.block_on(handle).is_err());
            assert_eq!(rt.shared().timers.len(), 0, "{grace:?}");
            assert!(control.upgrade().is_none());
        }
    }

    /// It kills a process that ignores the cancel.
    #[test]
    fn a_cancel_kills_at_its_deadline() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let handle = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3_600)).await);
        rt.block_on(handle.started()).unwrap();
        rt.cancel(handle.pid(), Reason::from("test"), Duration::from_millis(1)).unwrap();
        assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
    }
}
