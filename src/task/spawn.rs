//! The start of a process. A spawn reserves a pid, creates the cell of the process, sets the links and the monitor of
//! the process, and queues the process for the first time. The options of a spawn are in `builder.rs`, batches are in
//! `batch.rs`, and join handles are in `join.rs`.

pub(crate) mod batch;
pub(crate) mod builder;

use crate::context::Context;
use crate::context::me::SelfHandle;
use crate::context::step::Process;
use crate::host::cancel::inherited::{CancelSources, InheritedContext};
use crate::host::control::{AnyControl, flag};
use crate::host::job::Anywhere;
use crate::host::link::{SpawnLinks, Watch};
use crate::host::timer::owned::call_at;
use crate::host::{ControlParts, Host, Phase, link as table};
use crate::observe::Counter;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::{SpawnError, SpawnErrorKind};
use crate::process::event::MonitorRef;
use crate::process::exit::{Exit, Reason};
use crate::process::limits::Limits;
use crate::process::mailbox::MailboxCapacity;
use crate::process::pid::Pid;
use crate::process::state::current::Current;
use crate::process::state::wake_source::WakeSource;
use crate::process::state::{Ref, RunnableProcess, Schedule};
use crate::task::Machine;
use crate::task::body::{Body, with_machine, with_process};
use crate::task::cell::{Created, Joined, create};
use crate::task::join::{JoinHandle, KillOnDrop};
use crate::task::monitored::Monitored;
pub use crate::task::spawn::builder::ProcessBuilder;
use crate::task::spawn::builder::{SpawnOptions, WithOptions};

pub(crate) type Spawned<X> = (Joined<<X as Machine>::Output, <X as Machine>::Message>, Option<MonitorRef>);

impl Host {
    /// Spawns an async body as a process. The body runs on a worker, and this call does not wait for the body.
    ///
    /// If the runtime refuses the spawn, the handle resolves to [`Exit::Refused`]. A refusal has one of two causes: the
    /// runtime is shutting down, or the limit on the number of processes is reached.
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<F::Value, N>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        with_machine!(N, F, Fut, body, None, |machine| self.spawn_or_refuse(machine, InheritedContext::default()))
    }

    /// Spawns a hand-written process. If the runtime refuses the spawn, the handle resolves to [`Exit::Refused`]: see
    /// [`spawn`](Self::spawn).
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        with_process!(Q, process, None, |machine| self.spawn_or_refuse(machine, InheritedContext::default()))
    }

    /// Calls a process like a function. The returned future spawns the process, starts the entry point `entry` with
    /// `input`, and resolves to the result of the process. The first poll of the future spawns the process.
    ///
    /// # Errors
    /// Returns the exit of the process if the exit is not normal. If the spawn is refused, returns [`Exit::Failed`]
    /// with a [`SpawnError<()>`](crate::SpawnError).
    ///
    /// # Cancel safety
    /// Dropping the future kills the process.
    pub async fn execute<Q: Process + Send, I: Send + 'static>(
        &self,
        process: Q,
        entry: &str,
        input: I,
    ) -> Result<Q::Output, Exit> {
        KillOnDrop(self.process().entry(entry.to_owned()).input(input).spawn_process(process)?).await
    }

    /// Spawns a process that may run on any worker. If the spawn is refused, drops the machine, and the handle resolves
    /// to the refusal.
    fn spawn_or_refuse<X>(&self, machine: X, wanted: impl SpawnRequest) -> JoinHandle<X::Output, X::Message>
    where
        X: Machine + Send + 'static,
    {
        match self.launch_anywhere(machine, wanted) {
            Ok(spawned) => JoinHandle::new(spawned),
            Err((refusal, machine)) => self.refuse_machine(machine, refusal),
        }
    }

    /// Spawns a process that may run on any worker.
    #[inline]
    fn launch_anywhere<X>(&self, machine: X, wanted: impl SpawnRequest) -> Result<Spawned<X>, (SpawnErrorKind, X)>
    where
        X: Machine + Send + 'static,
    {
        self.launch(machine, wanted, Anywhere)
    }

    #[inline(always)]
    pub(crate) fn launch<X: Machine, S: Schedule>(
        &self,
        machine: X,
        wanted: impl SpawnRequest,
        schedule: S,
    ) -> Result<Spawned<X>, (SpawnErrorKind, X)> {
        match wanted.prepare(self, machine, schedule) {
            Ok((spawned, ready)) => {
                ready.schedule(WakeSource::Waiting(Some(&self.shared().place)));
                Ok(spawned)
            }
            Err(refused) => Err(refused),
        }
    }

    /// Returns whether the runtime accepts processes now. During a shutdown, the runtime accepts a process only if
    /// another process of the runtime spawns it.
    #[inline]
    fn is_open(&self) -> bool {
        match self.phase() {
            Phase::Open => true,
            Phase::Closing => self.spawner().is_some(),
            Phase::Closed => false,
        }
    }

    /// Returns the process of this runtime whose step runs on this thread.
    #[inline]
    fn spawner(&self) -> Option<Pid> {
        Current::with(Current::pid).filter(|pid| self.shared().pid_table.is_here(*pid))
    }

    /// Adds a new process: checks the phase of the runtime and the limits, assigns a pid, and calls `create`, which
    /// creates the cell.
    #[inline(always)]
    fn enlist(
        &self,
        inherited: InheritedContext,
        flags: u16,
        limits: Option<Box<Limits>>,
        bound: MailboxCapacity,
        create: CreateCell<'_>,
    ) -> Result<(), SpawnErrorKind> {
        let parts = self.admit_control(inherited, flags, limits, bound)?;
        let place = parts.place();
        self.publish_pid(place, create(parts));
        Ok(())
    }

    /// Checks the phase of the runtime and the limits, and reserves a pid.
    #[inline(always)]
    fn admit_control(
        &self,
        inherited: InheritedContext,
        flags: u16,
        limits: Option<Box<Limits>>,
        bound: MailboxCapacity,
    ) -> Result<ControlParts, SpawnErrorKind> {
        if !self.is_open() {
            return Err(SpawnErrorKind::ShutDown);
        }
        self.namespace().enter()?;
        let limits = Limits::both(self.namespace().limits(), limits);
        self.reserve_control(flags, self.spawner(), inherited, limits, bound).ok_or_else(|| {
            self.namespace().leave();
            SpawnErrorKind::Limit(u32::MAX as usize)
        })
    }

    /// Counts a new process and prepares it for its first turn. The caller must queue the process.
    #[inline(always)]
    fn begin<T, M: Send + 'static>(
        &self,
        Created { joined, ready }: Created<T, M>,
        entry: Option<Box<str>>,
        sources: CancelSources,
        parent: Option<(Ref<dyn AnyControl>, SpawnLinks)>,
    ) -> ((Joined<T, M>, Option<MonitorRef>), RunnableProcess) {
        self.shared().metrics.add(Counter::Spawned, 1);
        let control = joined.address().control();
        let is_plain = self.is_plain_spawn() && !sources.is_any() && parent.is_none();
        let monitor = match is_plain {
            true => None,
            false => self.announce(&ready, &|| control.any(), entry, sources, parent),
        };
        ((joined, monitor), ready)
    }

    /// Returns true if the runtime is open, has no observer and records no trace. In this case,
    /// [`announce`](Self::announce) has nothing to do for a process that has neither cancel sources nor a parent.
    #[inline]
    fn is_plain_spawn(&self) -> bool {
        let shared = self.shared();
        self.phase() == Phase::Open && shared.observer.is_none() && !shared.metrics.recorder().is_on()
    }

    /// Prepares a new process. If the runtime is shutting down, cancels or kills the process. Reports the process to
    /// the observer and to the trace. Sets the cancel sources, the link and the monitor of the process. `any` returns
    /// another reference to the process.
    ///
    /// For a plain spawn, this function has nothing to do. Therefore [`begin`](Self::begin) skips the call, which would
    /// cost 50 instructions.
    #[inline(never)]
    fn announce(
        &self,
        ready: &RunnableProcess,
        any: &dyn Fn() -> Ref<dyn AnyControl>,
        entry: Option<Box<str>>,
        sources: CancelSources,
        parent: Option<(Ref<dyn AnyControl>, SpawnLinks)>,
    ) -> Option<MonitorRef> {
        let head = ready.head();
        // A shutdown sets the phase and then reads the pid table. In contrast, this thread has first added the process
        // to the pid table and now reads the phase. Therefore, either the shutdown finds the process, or this load sees
        // the new phase. `begin` is correct for the same reason. `begin` loads the phase in `is_plain_spawn`, and skips
        // the call of this function only if this load returns `Open`.
        match self.phase() {
            Phase::Open => {}
            Phase::Closing => self.cancel_late_spawn(&any()),
            Phase::Closed => {
                head.set(flag::KILLED);
            }
        }
        if let Some(observer) = &self.shared().observer {
            let first_name = head.first_name();
            let _ = catch(|| observer.started(head.pid(), first_name.as_deref(), ready.type_name()));
        }
        // A new trace first increments the number of traces, and then reads the pid table. This process already has its
        // entry in the pid table. Therefore, either the trace finds the process, or this load sees the trace. The same
        // is true for the load in `is_plain_spawn`.
        if self.shared().metrics.recorder().is_on() {
            self.trace_spawn(head, ready.type_name(), entry.as_deref().unwrap_or_default());
        }
        if sources.is_any() {
            self.bind(any(), sources);
        }
        // The process is not queued yet. Therefore, the process cannot exit before the link and the monitor are set.
        parent.and_then(|(parent, ties)| table::adopt(&parent, &any(), ties))
    }

    /// Registers the process, so that each source in `sources` can cancel the process.
    #[cold]
    fn bind(&self, control: Ref<dyn AnyControl>, sources: CancelSources) {
        let inherited = control.head().inherited();
        let token = inherited.cancel_token().filter(|_| sources.token);
        if let Some(registration) = token.and_then(|token| token.adopt(&control)) {
            control.head().set_cancel_registration(registration);
        }
        let Some((at, grace)) = inherited.deadline_and_grace().filter(|_| sources.deadline) else { return };
        let now = self.now();
        if at <= now {
            // A timer would cancel the process only after the first step of the process. The grace period begins with
            // the cancellation.
            return self.cancel_by(&control, Reason::DEADLINE, now + grace);
        }
        let target = Ref::downgrade(&control);
        let host = self.clone();
        call_at(&control, at, move || {
            if let Some(control) = target.upgrade() {
                // The timer may fire late. The grace period begins with the cancellation.
                host.cancel_by(&control, Reason::DEADLINE, at.max(host.now()) + grace);
            }
        });
    }

    /// Drops the machine of a refused spawn, and returns a handle that resolves to the refusal. Catches a panic of the
    /// machine's destructor.
    #[cold]
    pub(crate) fn refuse_machine<X: Machine>(
        &self,
        machine: X,
        refusal: SpawnErrorKind,
    ) -> JoinHandle<X::Output, X::Message> {
        let _ = drop_caught(machine);
        self.refuse(refusal)
    }

    fn refuse<T, N: Send + 'static>(&self, refusal: SpawnErrorKind) -> JoinHandle<T, N> {
        JoinHandle::refused_at_start(self.refused_control(refusal))
    }
}

/// Returns the exit of the process that did not start, and drops the body. If the `Drop` of the body panics, this
/// function catches the panic.
pub(crate) fn exit_of_refusal<B>(refusal: SpawnError<B>) -> Exit {
    let (refusal, body) = refusal.split();
    let _ = drop_caught(body);
    Exit::Refused(refusal.kind().clone())
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Returns the values, the deadline and the cancel token that processes inherit from this process.
    #[inline]
    pub(crate) fn passes_on(&self) -> InheritedContext {
        self.control().head.inherited().clone()
    }

    /// Spawns an async body as a process. The new process inherits the [values](Self::value), the
    /// [deadline](Self::deadline) and the [cancel token](Self::cancel_token) of this process. A process that is spawned
    /// with [`Host::spawn`] inherits nothing. In all other respects, this method is the same as [`Host::spawn`].
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<F::Value, N>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        with_machine!(N, F, Fut, body, None, |machine| self.host().spawn_or_refuse(machine, self.passes_on()))
    }

    /// Spawns a hand-written process in the same way as [`spawn`](Self::spawn) spawns an async body.
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        with_process!(Q, process, None, |machine| self.host().spawn_or_refuse(machine, self.passes_on()))
    }

    /// Spawns an async body that is [linked](Self::link) to this process from the start. Even if the new process exits
    /// immediately, this process receives the exit. A refused spawn has the same effect as a linked process that exits
    /// with [`Exit::Refused`]. In all other respects, this method is the same as [`spawn`](Self::spawn).
    pub fn spawn_link<N, F, Fut>(&self, body: F) -> JoinHandle<F::Value, N>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        let ties = SpawnLinks { link: true, monitor: false };
        let mut wishes = SpawnOptions::tied(self.any(), ties);
        let built = WithOptions::new(self.passes_on(), &mut wishes);
        let handle = with_machine!(N, F, Fut, body, None, |machine| self.host().spawn_or_refuse(machine, built));
        let pid = handle.pid();
        if let Some(exit) = handle.refused() {
            table::deliver_exit(&self.any(), pid, &exit);
        }
        handle
    }

    /// Spawns an async body that this process [monitors](Self::monitor) from the start. Even if the new process exits
    /// immediately, this process receives an `Event::Down`. A refused spawn has the same effect as a monitored process
    /// that exits with [`Exit::Refused`]. In all other respects, this method is the same as [`spawn`](Self::spawn).
    ///
    /// ```
    /// # use procession::{Context, Event, Exit, Runtime};
    /// async fn parent(mut ctx: Context) -> Result<(), Exit> {
    ///     let (child, watch) = ctx.spawn_monitor(async |_: Context| Err::<(), _>("no luck"));
    ///     match ctx.event().await {
    ///         Event::Down { monitor, pid, exit: Exit::Failed(_) } => {
    ///             assert_eq!((monitor, pid), (watch, child.pid()));
    ///             Ok(())
    ///         }
    ///         other => Err(Exit::failed(format!("{other:?}"))),
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// rt.block_on(rt.spawn(parent))?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn spawn_monitor<N, F, Fut>(&self, body: F) -> (JoinHandle<F::Value, N>, MonitorRef)
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        with_machine!(N, F, Fut, body, None, |machine| self.launch_monitored(machine))
    }

    fn launch_monitored<X>(&self, machine: X) -> (JoinHandle<X::Output, X::Message>, MonitorRef)
    where
        X: Machine + Send + 'static,
    {
        let watch = Watch::set(self.any());
        let monitor = MonitorRef::new(self.pid(), watch.number());
        match self.host().launch_anywhere(Monitored::new(machine, watch), self.passes_on()) {
            Ok((joined, _)) => (JoinHandle::new((joined, Some(monitor))), monitor),
            Err((refusal, machine)) => {
                let (machine, watch) = machine.into_parts();
                let handle = self.host().refuse_machine(machine, refusal);
                watch.notify(handle.pid(), &handle.refused().unwrap_or(Exit::NoProcess));
                (handle.monitored(monitor), monitor)
            }
        }
    }
}

/// Function that creates the cell of a new process, and returns the reference for the pid table. The admission of a
/// process calls this function at most once.
pub(crate) type CreateCell<'a> = &'a mut dyn FnMut(ControlParts) -> Ref<dyn AnyControl>;

/// Returns a copy of the name of an entry point, for a trace. Returns `None` if the name is empty. Most processes have
/// no entry point. The copy is made even if no trace runs, because a trace may begin before the spawn is recorded.
#[inline]
fn named_entry(name: &str) -> Option<Box<str>> {
    if name.is_empty() { None } else { Some(Box::from(name)) }
}

/// The options of a spawn.
pub(crate) trait SpawnRequest {
    /// Creates a process. The caller must queue the process.
    ///
    /// # Errors
    /// Returns the machine and the reason of the refusal.
    fn prepare<X: Machine, S: Schedule>(
        self,
        host: &Host,
        machine: X,
        schedule: S,
    ) -> Result<(Spawned<X>, RunnableProcess), (SpawnErrorKind, X)>;
}

/// A spawn without options. Most spawns have no options. With this separate implementation, the code that is compiled
/// for each body does not contain the code for options.
impl SpawnRequest for InheritedContext {
    #[inline(always)]
    fn prepare<X: Machine, S: Schedule>(
        self,
        host: &Host,
        machine: X,
        schedule: S,
    ) -> Result<(Spawned<X>, RunnableProcess), (SpawnErrorKind, X)> {
        let sources = self.cancel_sources();
        let parts = match host.admit_control(self, 0, None, MailboxCapacity::Unbounded) {
            Ok(parts) => parts,
            Err(refusal) => return Err((refusal, machine)),
        };
        let entry_point = named_entry(machine.entry_name());
        let place = parts.place();
        let (entry, created) = create(machine, schedule, parts);
        host.publish_pid(place, entry);
        Ok(host.begin(created, entry_point, sources, None))
    }
}
