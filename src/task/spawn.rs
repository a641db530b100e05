//! How processes begin: what spawning does, whatever the process. With options it begins in `builder.rs`; what comes back stands
//! in `join.rs`.

pub(crate) mod batch;
pub(crate) mod builder;

use crate::context::me::Me;
use crate::context::step::Process;
use crate::host::cancel::inherited::Inherited;
use crate::host::control::{AnyControl, flag};
use crate::host::job::Anywhere;
use crate::host::link::{SpawnLinks, Watch};
use crate::host::timer::pending::call_at;
use crate::host::{Host, Phase, link as table};
use crate::observe::Counter;
use crate::process::catch::catch;
use crate::process::error::SpawnRefusal;
use crate::process::event::MonitorRef;
use crate::process::exit::{Exit, Reason};
use crate::process::limits::Limits;
use crate::process::mailbox::Bound;
use crate::process::state::current::Current;
use crate::process::state::wake_order::WakeSource;
use crate::process::state::{Ref, RunnableProcess, Schedule};
use crate::task::Machine;
use crate::task::body::{Body, BodyFuture, Output, with_machine, with_process};
use crate::task::cell::{Joined, ReservedProcess};
use crate::task::join::{JoinHandle, KillOnDrop};
use crate::task::monitored::Monitored;
pub use crate::task::spawn::builder::ProcessBuilder;
use crate::task::spawn::builder::{Built, SpawnOptions};

pub(crate) type Spawned<X> = (Joined<<X as Machine>::Output, <X as Machine>::Message>, Option<MonitorRef>);

impl Host {
    /// Spawns an async body as a process. It returns at once; the body runs on a worker.
    ///
    /// If the runtime refuses (it has shut down), the handle says so: [`Exit::Refused`].
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        with_machine!(N, F, Fut, body, None, |machine| {
            self.join_or_refuse(self.launch_anywhere(machine, Inherited::default()))
        })
    }

    /// Spawns a hand-written process.
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        with_process!(Q, process, None, |machine| {
            self.join_or_refuse(self.launch_anywhere(machine, Inherited::default()))
        })
    }

    /// Calls a process as a function: spawns it, starts `method` with `input`, and resolves to its result. Dropped, it
    /// kills the process.
    ///
    /// # Errors
    /// How the process ended instead.
    pub async fn execute<Q: Process + Send, I: Send + 'static>(
        &self,
        process: Q,
        method: &str,
        input: I,
    ) -> Result<Q::Output, Exit> {
        KillOnDrop(self.process().method(method.to_owned()).input(input).spawn_process(process)?).await
    }

    /// Launches a process that may run on any worker.
    fn launch_anywhere<X>(&self, machine: X, wanted: impl Wanted) -> Result<Spawned<X>, (SpawnRefusal, X)>
    where
        X: Machine + Send + 'static,
    {
        self.launch(machine, wanted, Anywhere)
    }

    #[inline]
    pub(crate) fn launch<X: Machine, S: Schedule>(
        &self,
        machine: X,
        wanted: impl Wanted,
        schedule: S,
    ) -> Result<Spawned<X>, (SpawnRefusal, X)> {
        let (spawned, ready) = self.prepare(machine, wanted, schedule)?;
        ready.schedule(WakeSource::Waiting(Some(&self.shared().place)));
        Ok(spawned)
    }

    /// As [`launch`](Self::launch); the process is the caller's to queue.
    #[inline]
    pub(crate) fn prepare<X: Machine, S: Schedule>(
        &self,
        machine: X,
        mut wanted: impl Wanted,
        schedule: S,
    ) -> Result<(Spawned<X>, RunnableProcess), (SpawnRefusal, X)> {
        let heeds = wanted.heeds();
        let admitted = wanted.take_parent().and_then(|parent| Ok((parent, wanted.admit(self, schedule)?)));
        match admitted {
            Ok((parent, embryo)) => Ok(self.begin(machine, embryo, heeds, parent)),
            Err(refusal) => Err((refusal, machine)),
        }
    }

    /// Whether the runtime takes processes now.
    #[inline]
    fn is_open(&self) -> bool {
        let from_inside = || Current::with(Current::pid).is_some_and(|pid| self.shared().pid_table.is_here(pid));
        match self.phase() {
            Phase::Open => true,
            Phase::Closing => from_inside(),
            Phase::Closed => false,
        }
    }

    /// A process that is to begin.
    #[inline]
    fn enlist<X: Machine, S: Schedule>(
        &self,
        inherited: Inherited,
        flags: u16,
        limits: Option<Box<Limits>>,
        bound: Bound,
        schedule: S,
    ) -> Result<ReservedProcess<X, S>, SpawnRefusal> {
        if !self.is_open() {
            return Err(SpawnRefusal::ShutDown);
        }
        self.namespace().enter()?;
        let limits = Limits::both(self.namespace().limits(), limits);
        let make = |blank| ReservedProcess::new(schedule, blank);
        let Some(embryo) = self.enrol(flags, inherited, limits, bound, make) else {
            self.namespace().leave();
            return Err(SpawnRefusal::Limit(u32::MAX as usize));
        };
        Ok(embryo)
    }

    /// Begins a process that was admitted; the caller queues it.
    #[inline]
    fn begin<X: Machine, S: Schedule>(
        &self,
        machine: X,
        embryo: ReservedProcess<X, S>,
        heeds: bool,
        parent: Option<(Ref<dyn AnyControl>, SpawnLinks)>,
    ) -> (Spawned<X>, RunnableProcess) {
        self.shared().metrics.add(Counter::Spawned, 1);
        let (joined, ready) = embryo.start(machine);
        let control = joined.address().control();
        // Whoever shuts down sets the phase first and looks at the table then: what it missed there is seen here.
        match self.phase() {
            Phase::Open => {}
            Phase::Closing if control.head.has(flag::SUPERVISED) => {}
            Phase::Closing => {
                control.any().cancel(Reason::SHUTDOWN, self.shutdown_deadline());
            }
            Phase::Closed => {
                control.head.set(flag::KILLED);
            }
        }
        if heeds {
            self.bind(control.any());
        }
        // Before it can end in any way.
        let monitor = parent.and_then(|(parent, ties)| table::adopt(&parent, &control.any(), ties));
        ((joined, monitor), ready)
    }

    /// Has a process told to end at its deadline, and by its token.
    #[cold]
    fn bind(&self, control: Ref<dyn AnyControl>) {
        let inherited = control.head().inherited();
        if let Some((at, grace)) = inherited.deadline_and_grace() {
            let whom = Ref::downgrade(&control);
            let host = self.clone();
            call_at(&control, at, move || {
                if let Some(control) = whom.upgrade() {
                    host.cancel_until(&control, Reason::DEADLINE, at + grace);
                }
            });
        }
        if let Some(heed) = inherited.cancel_token().and_then(|token| token.adopt(&control)) {
            control.head().heed(heed);
        }
    }

    pub(crate) fn join_or_refuse<X: Machine>(
        &self,
        spawned: Result<Spawned<X>, (SpawnRefusal, X)>,
    ) -> JoinHandle<X::Output, X::Message> {
        match spawned {
            Ok(spawned) => JoinHandle::new(spawned),
            Err((refusal, machine)) => {
                let _ = catch(|| drop(machine));
                self.refuse(refusal)
            }
        }
    }

    fn refuse<T, N: Send + 'static>(&self, refusal: SpawnRefusal) -> JoinHandle<T, N> {
        let exit = Exit::Refused(Reason::from(refusal.to_string()));
        JoinHandle::stillborn(self.stillborn(exit))
    }
}

impl<M: Send + 'static> Me<M> {
    /// What a process gets that this one spawns, as it has it itself.
    #[inline]
    pub(crate) fn passes_on(&self) -> Inherited {
        self.control().head.inherited().clone()
    }

    /// Spawns an async body as a process that inherits what this one has to pass on: its [values](Self::value), its
    /// [deadline](Self::deadline), its [cancel token](Self::cancel_token). (What its [host](Self::host) spawns inherits
    /// nothing.) As [`Host::spawn`].
    pub fn spawn<N, F, Fut>(&self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        with_machine!(N, F, Fut, body, None, |machine| {
            self.host().join_or_refuse(self.host().launch_anywhere(machine, self.passes_on()))
        })
    }

    /// Spawns a hand-written process. As [`spawn`](Self::spawn).
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        with_process!(Q, process, None, |machine| {
            self.host().join_or_refuse(self.host().launch_anywhere(machine, self.passes_on()))
        })
    }

    /// Spawns an async body that is [linked](Self::link) to this process from its beginning: however early it ends, this
    /// one hears of it. As [`spawn`](Self::spawn) otherwise; refused, it counts as a process that ended so.
    pub fn spawn_link<N, F, Fut>(&self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let ties = SpawnLinks { link: true, monitor: false };
        let mut wishes = SpawnOptions::tied(self.any(), ties);
        let built = Built::new(self.passes_on(), &mut wishes);
        let handle = with_machine!(N, F, Fut, body, None, |machine| {
            self.host().join_or_refuse(self.host().launch_anywhere(machine, built))
        });
        let pid = handle.pid();
        if let Some(exit) = handle.refused() {
            table::deliver_exit(&self.any(), pid, &exit);
        }
        handle
    }

    /// Spawns an async body that this process [monitors](Self::monitor) from its beginning: however early it ends, its
    /// down comes. As [`spawn`](Self::spawn) otherwise; refused, it counts as a process that ended so.
    ///
    /// ```
    /// # use procession::{Context, Event, Exit, Runtime};
    /// async fn parent(mut ctx: Context) -> Result<(), Exit> {
    ///     let (child, watch) = ctx.spawn_monitor(async |_: Context| Err::<(), _>("no luck"));
    ///     match ctx.event().await {
    ///         Event::Down { monitor, pid, reason: Exit::Failed(_) } => {
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
    pub fn spawn_monitor<N, F, Fut>(&self, body: F) -> (JoinHandle<Output<Fut>, N>, MonitorRef)
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
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
                let handle = self.host().join_or_refuse(Err((refusal, machine)));
                watch.tell(handle.pid(), &handle.refused().unwrap_or(Exit::NoProcess));
                (handle.monitored(monitor), monitor)
            }
        }
    }
}

/// How a process is to be spawned.
pub(crate) trait Wanted {
    /// Whether it is told by its deadline and its token.
    fn heeds(&self) -> bool;

    /// Whom it is to be tied to, if to anybody.
    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, SpawnLinks)>, SpawnRefusal>;

    /// The process, if the runtime takes it.
    fn admit<X: Machine, S: Schedule>(self, host: &Host, schedule: S) -> Result<ReservedProcess<X, S>, SpawnRefusal>;
}

/// As most are: it inherits this, and that is all. A type of its own, so that a body that is spawned so has no code for the rest.
impl Wanted for Inherited {
    #[inline]
    fn heeds(&self) -> bool {
        self.has_end()
    }

    #[inline]
    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, SpawnLinks)>, SpawnRefusal> {
        Ok(None)
    }

    #[inline]
    fn admit<X: Machine, S: Schedule>(self, host: &Host, schedule: S) -> Result<ReservedProcess<X, S>, SpawnRefusal> {
        host.enlist(self, 0, None, Bound::Unbounded, schedule)
    }
}
