//! Holds the state of a runtime: the pid table, the names, the links, the cancel tokens, the timers and the command
//! handlers. This module also delivers messages, answers and exits. The worker threads of the runtime are in another
//! module.
//!
//! The files of this folder import `platform`, `process` and `observe`. The files do not depend on the scheduler, and
//! do not depend on the system's clock. The threaded runtime and the simulation each create a [`Host`]. The new host
//! receives a clock, a seed, and the function that queues jobs. The code of this folder never runs a process.

pub(crate) mod cancel;
pub(crate) mod control;
pub(crate) mod dispatch;
pub(crate) mod exit;
pub(crate) mod inspection;
pub(crate) mod job;
pub(crate) mod link;
pub(crate) mod namespace;
pub(crate) mod refs;
pub(crate) mod registry;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod timer;
pub(crate) mod trace;

use std::fmt;

use crate::host::cancel::inherited::InheritedContext;
use crate::host::control::waits::WaitRecord;
use crate::host::control::{AnyControl, Control, Head, SpawnSettings, flag};
use crate::host::namespace::Namespace;
pub use crate::host::registry::receiver::{Deliver, Envelope};
use crate::host::registry::{EntryHost, LocalId};
pub(crate) use crate::host::shared::{Environment, Phase, Shared};
use crate::host::timer::Fire;
use crate::observe::trace::flight::RecordCause;
use crate::observe::{Counter, Counters, ProcessState, Transition};
use crate::platform::clock::Instant;
use crate::platform::static_ref::AtomicStaticRef;
use crate::platform::sync::{Arc, Weak};
use crate::process::catch::catch;
use crate::process::error::{Addressee, SendError, SendErrorKind, SpawnErrorKind};
use crate::process::event::Tag;
use crate::process::exit::Exit;
use crate::process::failure::Failure;
use crate::process::limits::Limits;
use crate::process::mailbox::{Inbox, MailboxCapacity};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::{CountedRefs, Header, Ref, RefCounted, RunState};
use crate::process::yields::{Answerer, Late};

/// Policy for the panic of a process. Under every policy, the process exits, and the panic becomes the exit reason of
/// the process.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// Calls the [`Observer`](crate::Observer), if the runtime has one. This is the default.
    #[default]
    Observe,
    /// Calls the observer, and then calls the function of this variant on the thread that ran the process. The
    /// runtime catches a panic of the function.
    Call(Arc<dyn Fn(Pid, &str) + Send + Sync>),
    /// Calls the observer, and then begins a shutdown without a deadline. The shutdown cancels every process, and the
    /// runtime refuses new work from outside.
    ShutDown,
}

impl fmt::Debug for PanicPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PanicPolicy::Observe => "Observe",
            PanicPolicy::Call(_) => "Call",
            PanicPolicy::ShutDown => "ShutDown",
        })
    }
}

/// Handle to a runtime or a simulation. A `Host` spawns, cancels and kills processes, and sends messages to processes.
///
/// A `Host` is `Clone`, `Send`, `Sync` and `'static`, and a clone costs one increment of a reference count. A `Host`
/// works on any thread, inside and outside of processes. An application should store a `Host` in the state of its
/// request handlers, and not the [`Runtime`](crate::Runtime). A `Host` does not keep the runtime running. After the
/// runtime has shut down or was dropped, the host refuses every spawn and every send. A host that outlives its runtime
/// keeps about 380 KiB of memory. A command handler must not own a `Host` of the runtime in which the handler is
/// registered: see [`Builder::handler`](crate::Builder::handler).
///
/// This example stores a host in the state of a web application. With the web framework axum, this state would be the
/// argument of a `State` extractor:
///
/// ```
/// use procession::{Address, CallError, Context, Exit, Host, Reply, Runtime};
/// use std::time::Duration;
///
/// #[derive(Clone)]
/// struct AppState {
///     host: Host,
///     visits: Address<Visit>,
/// }
/// struct Visit(Reply<u64>);
///
/// async fn count_visits(mut ctx: Context<Visit>) -> Result<(), Exit> {
///     let mut visits = 0;
///     loop {
///         let Visit(reply) = ctx.receive().await?;
///         visits += 1;
///         reply.send(visits);
///     }
/// }
/// // Handler of `GET /visits`. In axum its argument is `State(state): State<AppState>`.
/// async fn get_visits(state: AppState) -> Result<String, CallError> {
///     Ok(state.visits.call(Visit).timeout(Duration::from_secs(1)).await?.to_string())
/// }
/// // Handler of `POST /shutdown`.
/// async fn shut_down(state: AppState) -> usize {
///     state.host.shutdown(Duration::from_secs(5)).await.left.len()
/// }
///
/// let rt = Runtime::new()?;
/// let state = AppState { host: rt.host().clone(), visits: rt.spawn(count_visits).address() };
/// assert_eq!(rt.block_on(get_visits(state.clone()))?, "1");
/// assert_eq!(rt.block_on(shut_down(state)), 0);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone)]
pub struct Host {
    share: Ref<RefCounted<Share>>,
}

/// The data that a [`Host`] points to. The alignment of this type puts the data and the reference count on different
/// cache lines. Without this alignment, false sharing would slow the threads that read the data while other threads
/// change the reference count.
#[repr(align(64))]
pub(crate) struct Share {
    shared: Arc<Shared>,
    namespace: Arc<Namespace<dyn AnyControl>>,
}

/// Weak reference to a host. A weak reference does not keep the state of the runtime alive.
#[derive(Debug)]
pub(crate) struct WeakHost(Weak<Shared>, Weak<Namespace<dyn AnyControl>>);

impl WeakHost {
    /// Returns the host, or `None` if the runtime was dropped.
    pub(crate) fn upgrade(&self) -> Option<Host> {
        let share = Share { shared: self.0.upgrade()?, namespace: self.1.upgrade()? };
        Some(Host { share: Ref::counted(share) })
    }
}

impl Host {
    pub(crate) fn new(shared: Arc<Shared>, namespace: Namespace<dyn AnyControl>) -> Self {
        Self { share: Ref::counted(Share { shared, namespace: Arc::new(namespace) }) }
    }

    /// Returns a weak reference to this host. A weak reference does not keep the state of the runtime alive.
    pub(crate) fn downgrade(&self) -> WeakHost {
        WeakHost(Arc::downgrade(&self.share.shared), Arc::downgrade(&self.share.namespace))
    }

    /// Returns the state that all hosts of the runtime share.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.share.shared
    }

    /// Returns the namespace of this host. Each host that an application adds to the runtime has its own namespace.
    #[inline]
    pub(crate) fn namespace(&self) -> &Namespace<dyn AnyControl> {
        &self.share.namespace
    }
}

impl Host {
    /// Reserves a pid. Returns the id of the pid, and a clone of this host. The control block of the pid will own the
    /// clone. Returns `None` if all pids are in use.
    #[inline]
    pub(in crate::host) fn reserve_pid(&self) -> Option<(LocalId, Self)> {
        self.shared().pid_table.reserve(registry::own(), self)
    }

    /// Publishes the control block of a reserved pid in the pid table.
    ///
    /// This function, [`reserve_control`](Self::reserve_control), `PidTable::publish` and `Host::admit_control` are
    /// always inlined. If the compiler did not inline these functions, a spawn would execute 4 % more instructions
    /// (benchmark `spawn`). For the same reason, the other functions of a spawn without options are always inlined: see
    /// `task/spawn.rs`, `create` in `task/cell.rs`, and `Ref::with`.
    #[inline(always)]
    pub(crate) fn publish_pid(&self, place: LocalId, entry: Ref<dyn AnyControl>) {
        self.shared().pid_table.publish(place, entry);
    }

    /// Removes a pid from the pid table. Returns the table's reference to the control block, or `None` if the pid was
    /// not in the table.
    #[inline]
    pub(in crate::host) fn remove_pid(&self, pid: Pid) -> Option<Ref<dyn AnyControl>> {
        self.shared().pid_table.remove(registry::own(), pid)
    }
}

impl EntryHost for Host {
    type CountedRefs = CountedRefs<RefCounted<Share>>;

    fn counted_refs(&self, count: u32) -> Self::CountedRefs {
        let Share { shared, namespace } = &**self.share;
        CountedRefs::new(Share { shared: Arc::clone(shared), namespace: Arc::clone(namespace) }, count)
    }

    #[inline]
    fn take(&self, stock: &mut Self::CountedRefs) -> Option<Self> {
        if !Arc::ptr_eq(&self.share.namespace, &stock.get().namespace) {
            return None;
        }
        stock.take().map(|share| Self { share })
    }

    /// A shard stores references only to the first host. The program may drop an added host. When the processes of this
    /// host have also exited, the handlers of the host must be dropped.
    fn without_stock(&self) -> Option<Self> {
        (!self.namespace().is_first()).then(|| self.clone())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("node", &self.shared().pid_table.node()).finish_non_exhaustive()
    }
}

/// Contents of a new control block. The function that allocates a control block must itself call [`fill`](Self::fill).
/// Then `fill` writes each field only once, at the final address of the field. A later copy of the fields would be
/// slow. The loads of a later copy would be wider than the stores that first wrote the fields. A processor cannot
/// forward the bytes of several narrow stores to one wide load.
pub(crate) struct ControlParts {
    place: LocalId,
    host: Host,
    flags: u16,
    parent: Option<Pid>,
    given: SpawnSettings,
    bound: MailboxCapacity,
    most: Option<usize>,
}

impl ControlParts {
    #[inline]
    pub(crate) fn place(&self) -> LocalId {
        self.place
    }

    #[inline(always)]
    pub(crate) fn fill<M>(self, header: Header, run: RunState) -> Control<M> {
        let Self { place, host, flags, parent, given, bound, most } = self;
        // The inbox is built before the head, because the construction of the inbox branches on the mailbox capacity.
        // If the head were built before this branch, the compiler would build the head on the stack, and then copy the
        // head.
        let inbox = Inbox::new(bound, most);
        let head = Head::new(run, place, host, flags, parent, given);
        let receive_line = AtomicStaticRef::none();
        Control { header, head, inbox, first_wait: WaitRecord::none(), receive_line }
    }
}

impl Host {
    /// Returns the current time of the runtime's clock. The clock is monotonic. In a simulation, the clock shows
    /// virtual time.
    pub fn now(&self) -> Instant {
        self.shared().clock.now()
    }

    /// Returns the next number of the runtime's random number generator. In a simulation, the seed determines this
    /// number. The generator is not suitable for cryptography.
    pub fn random(&self) -> u64 {
        self.shared().chance.lock().next()
    }

    /// Returns the node number of this runtime.
    pub fn node(&self) -> u32 {
        self.shared().pid_table.node()
    }

    /// Returns a snapshot of the counters. The counters are exact, not sampled. The caller can subtract an earlier
    /// snapshot from a later snapshot. The call is cheap, and its duration does not depend on the number of processes.
    /// [`metrics`](Self::metrics) returns the same counters together with all other metrics.
    pub fn counters(&self) -> Counters {
        self.shared().metrics.counters()
    }

    /// Returns the number of processes that were spawned and have not exited.
    ///
    /// This call reads the number of spawned processes and the number of exited processes, one after the other. If a
    /// process exits between the two reads, the call reads the counters again. The number of attempts is limited. After
    /// the last attempt, the result may be higher than the true number. The result is never lower than the true number.
    pub fn processes_alive(&self) -> usize {
        self.shared().metrics.alive() as usize
    }

    /// Returns the name of this host. The host that was created together with the runtime has an empty name.
    pub fn name(&self) -> &str {
        self.namespace().name()
    }

    #[inline]
    /// Returns the error kind for a message to a process that does not exist. The error kind is `ShutDown` if the
    /// runtime has shut down, and `NoProcess` otherwise.
    pub(crate) fn gone(&self) -> SendErrorKind {
        if self.phase() == Phase::Closed { SendErrorKind::ShutDown } else { SendErrorKind::NoProcess }
    }

    /// Returns the value of [`Address::peak_mailbox_len`](crate::Address::peak_mailbox_len), or `None` if no process
    /// has this pid.
    pub fn peak_mailbox_len(&self, pid: Pid) -> Option<usize> {
        self.shared().pid_table.get(pid).map(|control| control.high_water())
    }

    /// Creates a mailbox that has a pid but no process. The mailbox is a channel for threads and for tasks of any
    /// executor.
    ///
    /// The mailbox stays open until the [`Mailbox`](crate::Mailbox) is dropped, or until [`kill`](Self::kill) is called
    /// with the pid of the mailbox. If no pid is free, or the runtime has shut down, the mailbox is closed from the
    /// beginning.
    pub(crate) fn outside_control<N: Send + 'static>(&self, bound: MailboxCapacity) -> Ref<Control<N>> {
        let flags = flag::OUTSIDE | flag::STARTED;
        let Some(parts) = self.reserve_control(flags, None, InheritedContext::default(), None, bound) else {
            // If no pid is free, this function returns a mailbox that is closed from the beginning.
            return self.refused_control(SpawnErrorKind::Limit(u32::MAX as usize));
        };
        let place = parts.place;
        let (entry, control) = Ref::pair(|header| parts.fill(header, RunState::over()));
        self.publish_pid(place, entry.into_any());
        if self.phase() == Phase::Closed {
            control.end_outside(&Exit::Refused(SpawnErrorKind::ShutDown));
        }
        control
    }

    /// Reserves a pid, and returns the parts of the control block. The caller builds the control block at its final
    /// address, and then calls [`publish_pid`](Self::publish_pid). Returns `None` if all pids are in use.
    #[inline(always)]
    pub(crate) fn reserve_control(
        &self,
        flags: u16,
        parent: Option<Pid>,
        inherited: InheritedContext,
        limits: Option<Box<Limits>>,
        bound: MailboxCapacity,
    ) -> Option<ControlParts> {
        let (place, host) = self.reserve_pid()?;
        let most = limits.as_deref().and_then(Limits::mail_limit);
        let given = SpawnSettings::new(inherited, limits);
        Some(ControlParts { place, host, flags, parent, given, bound, most })
    }

    /// Returns the control block of a process that never runs, because its spawn was refused. The control block has a
    /// closed mailbox, and the exit is already published. The handle of a refused spawn points to the control block
    /// that this function returns.
    pub(crate) fn refused_control<N: Send + 'static>(&self, refusal: SpawnErrorKind) -> Ref<Control<N>> {
        let head = Head::new(RunState::over(), LocalId::NOWHERE, self.clone(), 0, None, SpawnSettings::default());
        let control = Ref::new(|header| Control {
            header,
            head,
            inbox: Inbox::new_closed(),
            first_wait: WaitRecord::none(),
            receive_line: AtomicStaticRef::none(),
        });
        control.head.publish_exit_of_no_process(&Exit::Refused(refusal));
        control
    }

    // ---- Yields

    /// Answers a command of the process `pid`. The yield of the command has the tag `tag`. This function is for callers
    /// that cannot hold a typed [`Completion`](crate::Completion).
    ///
    /// # Errors
    /// Returns the answer in the error, in each of these cases:
    /// - No process has the pid.
    /// - No yield of the process has the tag.
    /// - The yield was already answered or cancelled.
    /// - The type of the answer is not the reply type of the command.
    pub fn complete_yield(
        &self,
        pid: Pid,
        tag: Tag,
        answer: Result<Payload, Failure>,
    ) -> Result<(), SendError<Result<Payload, Failure>>> {
        let refuse = |kind, answer| SendError::new(kind, answer).to(Addressee::Yield(pid));
        let Some(control) = self.shared().pid_table.get(pid) else {
            return Err(refuse(SendErrorKind::NoProcess, answer));
        };
        let mut answer = Some(answer);
        control.complete(tag, &mut answer, Answerer::Application).map_err(|late| {
            let kind = match late {
                Late::Spent => SendErrorKind::Spent,
                Late::Unknown => SendErrorKind::UnknownTag,
                Late::WrongType(expected) => SendErrorKind::WrongType { expected },
            };
            refuse(kind, answer.take().expect("a refused answer is returned"))
        })
    }

    // ---- Time

    /// Adds a timer that fires at the time `at`. If the new timer has the earliest deadline, this call notifies the
    /// thread that waits for the next deadline.
    pub(crate) fn fire_at(&self, at: Instant, fire: Fire) -> timer::Key {
        let (key, earlier) = self.shared().timers.insert(self.shared().metrics.worker(), at, fire);
        if earlier {
            (self.shared().rearm)();
        }
        key
    }

    /// Counts one early end of a turn. A process ends its turn early, and lets other processes run, when the budget of
    /// the turn is spent.
    pub(crate) fn count_budget_yield(&self) {
        self.shared().metrics.add(Counter::BudgetYields, 1);
        self.trace_preempted();
    }

    /// Reports a state change to the observer, if the runtime has one, and to the traces. This function catches a panic
    /// of the observer.
    #[cold]
    pub(crate) fn observe(&self, head: &Head, from: Option<ProcessState>, to: ProcessState) {
        if let Some(observer) = &self.shared().observer {
            let transition =
                Transition { pid: head.pid(), from, to, worker: self.shared().metrics.worker(), at: self.now() };
            let _ = catch(|| observer.transition(&transition));
        }
        self.trace_state(head, to);
    }

    /// Counts the restart of a child, and reports the restart to the observer. A panic of the observer is caught.
    pub(crate) fn report_restart(&self, supervisor: Pid, child: impl FnOnce() -> String, exit: &Exit) {
        self.shared().metrics.add(Counter::Restarts, 1);
        if let Some(observer) = &self.shared().observer {
            let child = child();
            let _ = catch(|| observer.restarted(supervisor, &child, exit));
        }
    }

    /// Counts the panic of a process, reports the panic to the observer, and applies the panic policy. This function
    /// catches a panic of the observer, and a panic of the policy's function.
    pub(crate) fn panicked(&self, pid: Pid, text: &str) {
        self.shared().metrics.add(Counter::Panics, 1);
        if let Some(observer) = &self.shared().observer {
            let _ = catch(|| observer.panicked(pid, text));
        }
        self.shared().metrics.recorder().request_record(RecordCause::Panic);
        match &self.shared().on_panic {
            PanicPolicy::Observe => {}
            PanicPolicy::Call(f) => drop(catch(|| f(pid, text))),
            PanicPolicy::ShutDown => _ = self.begin_shutdown(Instant::FAR),
        }
    }
}
