//! How processes begin: spawning, with options and without. What comes back stands in `join.rs`.

use std::borrow::Cow;
use std::time::Duration;

use crate::body::{AsyncBody, Body, BodyFuture, Output};
use crate::cancel::CancelToken;
use crate::cell::{Embryo, Joined};
use crate::clock::Instant;
use crate::control::{AnyControl, Control, flag};
use crate::counted::{Ready, Ref, Schedule};
use crate::host::{Host, Phase};
use crate::inherited::Inherited;
use crate::job::Anywhere;
use crate::join::{JoinHandle, KillOnDrop};
use crate::limits::Limits;
use crate::link::table::{self, Ties, Watch};
use crate::mailbox::Bound;
use crate::me::Me;
use crate::monitored::Monitored;
use crate::observe::Counter;
use crate::process::Process;
use crate::process::event::MonitorRef;
use crate::process::exit::{Exit, Reason};
use crate::process::panic::catch;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::placing::Comes;
use crate::process::priority::Priority;
use crate::process::refusal::{Refusal, SpawnError, SpawnRefusal};
use crate::process::turn;
use crate::relay::names::Unclaimed;
use crate::sync::thread;
use crate::task::{Entry, Machine, Raw};
use crate::time::later::call_at;

/// Machines that are larger than this many bytes have a box of their own: see [`Machine`].
const LARGE: usize = 1024;

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
        self.join_or_refuse(self.launch_anywhere(AsyncBody::new(body, None), Inherited::default()))
    }

    /// Spawns a hand-written process.
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        self.join_or_refuse(self.launch_anywhere(Raw::new(process, None), Inherited::default()))
    }

    /// Spawns with options; a refusal hands the body back.
    pub fn process(&self) -> ProcessBuilder {
        self.process_inheriting(Inherited::default())
    }

    /// As [`process`](Self::process), for one that inherits these values.
    pub(crate) fn process_inheriting(&self, inherited: Inherited) -> ProcessBuilder {
        ProcessBuilder { host: self.clone(), entry: None, inherited, wishes: Wishes::default() }
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
        ready.schedule(Comes::FromRest(Some(&self.shared().place)));
        Ok(spawned)
    }

    /// As [`launch`](Self::launch); the process is the caller's to queue.
    #[inline]
    pub(crate) fn prepare<X: Machine, S: Schedule>(
        &self,
        machine: X,
        wanted: impl Wanted,
        schedule: S,
    ) -> Result<(Spawned<X>, Ready), (SpawnRefusal, X)> {
        if const { size_of::<X>() > LARGE } {
            self.prepare_as(machine, wanted, schedule, Box::pin)
        } else {
            self.prepare_as(machine, wanted, schedule, |machine| machine)
        }
    }

    /// The same of a machine that is put `into` another one, if it is admitted.
    #[inline]
    fn prepare_as<X, Y: Machine, S: Schedule>(
        &self,
        machine: X,
        mut wanted: impl Wanted,
        schedule: S,
        into: impl FnOnce(X) -> Y,
    ) -> Result<(Spawned<Y>, Ready), (SpawnRefusal, X)> {
        let heeds = wanted.heeds();
        let admitted = wanted.take_parent().and_then(|parent| Ok((parent, wanted.admit(self, schedule)?)));
        match admitted {
            Ok((parent, embryo)) => Ok(self.begin(into(machine), embryo, heeds, parent)),
            Err(refusal) => Err((refusal, machine)),
        }
    }

    /// Whether the runtime takes processes now.
    #[inline]
    fn is_open(&self) -> bool {
        let from_inside = || turn::pid().is_some_and(|pid| self.shared().relay.is_here(pid));
        match self.phase() {
            Phase::Open => true,
            Phase::Closing => from_inside(),
            Phase::Closed => false,
        }
    }

    /// A process that is to begin, as its builder was told.
    fn admit<X: Machine, S: Schedule>(
        &self,
        inherited: Inherited,
        wishes: &mut Wishes,
        schedule: S,
    ) -> Result<Embryo<X, S>, SpawnRefusal> {
        let Some(name) = wishes.name.take() else { return self.admit_nameless(inherited, wishes, schedule) };
        self.admit_as(name, inherited, wishes, schedule, |_| {}).map_err(|unclaimed| match unclaimed {
            Unclaimed::Taken(holder) => SpawnRefusal::NameTaken(holder.head().pid()),
            Unclaimed::Refused(refusal) => refusal,
        })
    }

    #[inline(never)]
    fn admit_nameless<X: Machine, S: Schedule>(
        &self,
        inherited: Inherited,
        wishes: &mut Wishes,
        schedule: S,
    ) -> Result<Embryo<X, S>, SpawnRefusal> {
        self.enlist(inherited, wishes.flags(), wishes.limits.take(), wishes.bound, schedule)
    }

    /// As [`admit`](Self::admit), under this name, and `prepare`d before anybody finds it.
    fn admit_as<X: Machine, S: Schedule>(
        &self,
        name: Cow<'static, str>,
        inherited: Inherited,
        wishes: &mut Wishes,
        schedule: S,
        prepare: impl FnOnce(&Control<X::Message>),
    ) -> Result<Embryo<X, S>, Unclaimed<dyn AnyControl, SpawnRefusal>> {
        let embryo = self.realm().names().claim(name.clone(), || {
            let embryo = self.admit_nameless::<X, S>(inherited, wishes, schedule)?;
            prepare(embryo.control());
            Ok((embryo.control().any(), embryo))
        })?;
        // It ends after it has begun: nobody looks into the list before.
        embryo.control().head.names().lock().push(name);
        Ok(embryo)
    }

    /// As [`admit`](Self::admit), with a first message; or the pid of the holder of the name, which took it. A message
    /// that was refused is left where it was.
    fn admit_or_send<X: Machine>(
        &self,
        inherited: Inherited,
        wishes: &Wishes,
        message: &mut Option<X::Message>,
    ) -> Result<Result<Embryo<X, Anywhere>, Pid>, SpawnRefusal> {
        let limits = Limits::both(self.realm().limits(), wishes.limits.clone());
        if limits.is_some_and(|limits| limits.most_mail() == Some(0)) {
            return Err(SpawnRefusal::MessageRefused(Refusal::Full));
        }
        let give = |control: &Control<X::Message>, message: &mut Option<X::Message>| {
            let given = message.take().map(|message| control.push(message).is_ok());
            debug_assert_ne!(given, Some(false), "it has room, and is known to nobody");
        };
        let Some(name) = wishes.name.clone() else {
            let embryo = self.admit_nameless::<X, Anywhere>(inherited, &mut wishes.clone(), Anywhere)?;
            give(embryo.control(), message);
            return Ok(Ok(embryo));
        };
        loop {
            let given = |control: &Control<X::Message>| give(control, message);
            let (inherited, mut wishes) = (inherited.clone(), wishes.clone());
            let holder = match self.admit_as(name.clone(), inherited, &mut wishes, Anywhere, given) {
                Ok(embryo) => return Ok(Ok(embryo)),
                Err(Unclaimed::Refused(refusal)) => return Err(refusal),
                Err(Unclaimed::Taken(holder)) => holder,
            };
            let Err((refusal, refused)) = holder.take(message.take().expect("nobody took it")) else {
                return Ok(Err(holder.head().pid()));
            };
            *message = Some(refused);
            match refusal {
                // Whoever ends closes its mailbox and gives up its names then: that is under way.
                Refusal::NoProcess => thread::yield_now(),
                Refusal::ShutDown => return Err(SpawnRefusal::ShutDown),
                refusal => return Err(SpawnRefusal::MessageRefused(refusal)),
            }
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
    ) -> Result<Embryo<X, S>, SpawnRefusal> {
        if !self.is_open() {
            return Err(SpawnRefusal::ShutDown);
        }
        self.realm().enter()?;
        let limits = Limits::both(self.realm().limits(), limits);
        let make = |blank| Embryo::new(schedule, blank);
        let Some(embryo) = self.enrol(flags, inherited, limits, bound, make) else {
            self.realm().leave();
            return Err(SpawnRefusal::Limit(u32::MAX as usize));
        };
        Ok(embryo)
    }

    /// Begins a process that was admitted; the caller queues it.
    #[inline]
    fn begin<X: Machine, S: Schedule>(
        &self,
        machine: X,
        embryo: Embryo<X, S>,
        heeds: bool,
        parent: Option<(Ref<dyn AnyControl>, Ties)>,
    ) -> (Spawned<X>, Ready) {
        self.shared().metrics.add(Counter::Spawned, 1);
        let (joined, ready) = embryo.hatch(machine);
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
        self.host().join_or_refuse(self.host().launch_anywhere(AsyncBody::new(body, None), self.passes_on()))
    }

    /// Spawns a hand-written process. As [`spawn`](Self::spawn).
    pub fn spawn_process<Q: Process + Send>(&self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        self.host().join_or_refuse(self.host().launch_anywhere(Raw::new(process, None), self.passes_on()))
    }

    /// Spawns an async body that is [linked](Self::link) to this process from its beginning: however early it ends, this
    /// one hears of it. As [`spawn`](Self::spawn) otherwise; refused, it counts as a process that ended so.
    pub fn spawn_link<N, F, Fut>(&self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let ties = Ties { link: true, monitor: false };
        let mut wishes = Wishes { parent: Some(Parent { process: Some(self.any()), ties }), ..Wishes::default() };
        let built = Built { inherited: self.passes_on(), wishes: &mut wishes };
        let handle = self.host().join_or_refuse(self.host().launch_anywhere(AsyncBody::new(body, None), built));
        let pid = handle.pid();
        if let Some(exit) = handle.refused() {
            table::bereave(&self.any(), pid, &exit);
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
        let watch = Watch::set(self.any());
        let monitor = MonitorRef::new(self.pid(), watch.number());
        let machine = Monitored::new(AsyncBody::new(body, None), watch);
        match self.host().launch_anywhere(machine, self.passes_on()) {
            Ok((joined, _)) => (JoinHandle::new((joined, Some(monitor))), monitor),
            Err((refusal, machine)) => {
                let (body, watch) = machine.into_parts();
                let handle = self.host().join_or_refuse(Err((refusal, body)));
                watch.tell(handle.pid(), &handle.refused().unwrap_or(Exit::NoProcess));
                (handle.monitored(monitor), monitor)
            }
        }
    }

    /// Spawns with options; a refusal hands the body back.
    pub fn process(&self) -> ProcessBuilder {
        let parent = Parent { process: Some(self.any()), ties: Ties::default() };
        let wishes = Wishes { parent: Some(parent), ..Wishes::default() };
        ProcessBuilder { wishes, ..self.host().process_inheriting(self.passes_on()) }
    }
}

/// How a process is to be spawned.
pub(crate) trait Wanted {
    /// Whether it is told by its deadline and its token.
    fn heeds(&self) -> bool;

    /// Whom it is to be tied to, if to anybody.
    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, Ties)>, SpawnRefusal>;

    /// The process, if the runtime takes it.
    fn admit<X: Machine, S: Schedule>(self, host: &Host, schedule: S) -> Result<Embryo<X, S>, SpawnRefusal>;
}

/// As most are: it inherits this, and that is all. A type of its own, so that a body that is spawned so has no code for the rest.
impl Wanted for Inherited {
    #[inline]
    fn heeds(&self) -> bool {
        self.has_end()
    }

    #[inline]
    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, Ties)>, SpawnRefusal> {
        Ok(None)
    }

    #[inline]
    fn admit<X: Machine, S: Schedule>(self, host: &Host, schedule: S) -> Result<Embryo<X, S>, SpawnRefusal> {
        host.enlist(self, 0, None, Bound::Unbounded, schedule)
    }
}

/// As its builder was told.
struct Built<'a> {
    inherited: Inherited,
    wishes: &'a mut Wishes,
}

impl Wanted for Built<'_> {
    fn heeds(&self) -> bool {
        self.wishes.heed(&self.inherited)
    }

    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, Ties)>, SpawnRefusal> {
        self.wishes.take_parent()
    }

    fn admit<X: Machine, S: Schedule>(self, host: &Host, schedule: S) -> Result<Embryo<X, S>, SpawnRefusal> {
        host.admit(self.inherited, self.wishes, schedule)
    }
}

/// What a [`ProcessBuilder`] was told.
#[derive(Debug, Clone, Default)]
struct Wishes {
    limits: Option<Box<Limits>>,
    by_hand: bool,
    supervised: bool,
    /// Whether it was given a deadline or a token for itself, beside what it inherits.
    ends_itself: bool,
    priority: Priority,
    name: Option<Cow<'static, str>>,
    bound: Bound,
    parent: Option<Parent>,
}

impl Wishes {
    /// Whether it is told by its deadline and its token. Of what a supervisor inherited itself its children are told by
    /// nobody but it, in its order.
    fn heed(&self, inherited: &Inherited) -> bool {
        inherited.has_end() && (!self.supervised || self.ends_itself)
    }

    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, Ties)>, SpawnRefusal> {
        match self.parent.take() {
            None => Ok(None),
            Some(Parent { ties: Ties { link: false, monitor: false }, .. }) => Ok(None),
            Some(Parent { process: Some(process), ties }) => Ok(Some((process, ties))),
            Some(Parent { process: None, .. }) => Err(SpawnRefusal::NoParent),
        }
    }

    fn flags(&self) -> u16 {
        let rank = match self.priority {
            Priority::Normal => 0,
            Priority::High => flag::HIGH,
            Priority::Low => flag::LOW,
        };
        let by_hand = if self.by_hand { flag::BY_HAND } else { 0 };
        rank | by_hand | if self.supervised { flag::SUPERVISED } else { 0 }
    }
}

/// Whom a process is tied to from its beginning.
#[derive(Debug, Clone)]
struct Parent {
    /// Nobody, if it is a host that spawns.
    process: Option<Ref<dyn AnyControl>>,
    ties: Ties,
}

/// How a process is to be spawned.
///
/// ```
/// # use procession::{Context, Runtime};
/// #[derive(Debug)]
/// struct TraceId(u64);
///
/// async fn child(ctx: Context) -> Result<u64, &'static str> {
///     Ok(ctx.value::<TraceId>().ok_or("no trace id")?.0)
/// }
/// let rt = Runtime::new()?;
/// let parent = rt.process().value(TraceId(7)).spawn(async |ctx: Context| ctx.spawn(child).await)?;
/// assert_eq!(rt.block_on(parent)?, 7);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "a builder spawns nothing by itself"]
#[derive(Debug)]
pub struct ProcessBuilder {
    host: Host,
    entry: Option<Box<Entry>>,
    inherited: Inherited,
    wishes: Wishes,
}

impl ProcessBuilder {
    fn entry(&mut self) -> &mut Entry {
        self.entry.get_or_insert_default()
    }

    /// The entry method, for processes that have several.
    pub fn method(mut self, method: impl Into<Cow<'static, str>>) -> Self {
        self.entry().method = method.into();
        self
    }

    /// The input of the entry method.
    pub fn input<I: Send + 'static>(mut self, input: I) -> Self {
        self.entry().input = Some(Payload::new(input));
        self
    }

    /// A value that the process, and whatever it spawns, finds by its type.
    pub fn value<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.inherited.give(value);
        self
    }

    /// What the process may use; where its host says something too, the tighter holds.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.wishes.limits = Limits::both(Some(&limits), self.wishes.limits.take());
        self
    }

    /// When it has to end: then it is cancelled with `Reason::DEADLINE`, and killed one second later, whatever it waits for.
    /// In the past that is at once; at the far end of time, never. What it spawns inherits the deadline; of several the
    /// nearest holds.
    pub fn deadline(self, at: Instant) -> Self {
        self.deadline_within(at, Duration::from_secs(1))
    }

    /// The same with another time between the cancel and the kill.
    pub fn deadline_within(mut self, at: Instant, grace: Duration) -> Self {
        self.inherited.limit(at, grace);
        self.wishes.ends_itself = true;
        self
    }

    /// Cancels the process, and whatever it spawns, with this token, in place of the one that it would inherit; cancelled
    /// already, it does so before the first step. To be cancelled by either, give it a [child](CancelToken::child) of the
    /// one that it [would inherit](Me::cancel_token).
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.inherited.put_under(token);
        self.wishes.ends_itself = true;
        self
    }

    /// The [name](crate::Name) of the process in its host, from before its first step until it ends. If it is taken the
    /// spawn is refused: [`SpawnRefusal::NameTaken`].
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.wishes.name = Some(name.into());
        self
    }

    /// How full its mailbox may get, and who loses then. Where [`Limits::mail`] allows less, that holds.
    ///
    /// ```
    /// # use procession::{Bound, Context, Refusal, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let slow = rt.process().mailbox(Bound::Reject(2)).spawn(async |mut ctx: Context<u8>| ctx.receive().await)?;
    /// slow.send(1)?;
    /// slow.send(2)?;
    /// let refused = slow.send(3).unwrap_err();
    /// assert_eq!((refused.refusal(), refused.into_message()), (Refusal::Full, 3));
    /// // Whoever can wait is told when there is room.
    /// rt.block_on(slow.send_wait(4))?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn mailbox(mut self, bound: Bound) -> Self {
        self.wishes.bound = bound;
        self
    }

    /// How urgent it is, among those who are ready: [`Priority`] says what that means.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.wishes.priority = priority;
        self
    }

    /// [`started`](JoinHandle::started) waits for [`Me::ready`], not for the first step.
    pub fn ready_by_hand(mut self) -> Self {
        self.wishes.by_hand = true;
        self
    }

    /// Links the process to the one that spawns it, from its beginning: see [`Me::spawn_link`]. Of a builder that a
    /// [`Host`] gave, the spawn is refused: [`SpawnRefusal::NoParent`].
    pub fn link(mut self) -> Self {
        self.ties().link = true;
        self
    }

    /// Has the process that spawns it monitor it, from its beginning: see [`Me::spawn_monitor`], and
    /// [`JoinHandle::monitor_ref`]. Of a builder that a [`Host`] gave, the spawn is refused:
    /// [`SpawnRefusal::NoParent`].
    pub fn monitor(mut self) -> Self {
        self.ties().monitor = true;
        self
    }

    /// Its end is its supervisor's business, also when the runtime shuts down.
    pub(crate) fn supervised(mut self) -> Self {
        self.wishes.supervised = true;
        self
    }

    /// Whatever its mailbox has no room for is refused: nothing that is there is dropped for it.
    pub(crate) fn refuse_when_full(mut self) -> Self {
        if let Bound::DropOldest(most) | Bound::DropNewest(most) = self.wishes.bound {
            self.wishes.bound = Bound::Reject(most);
        }
        self
    }

    fn launch<X>(mut self, machine: X) -> Result<Spawned<X>, (SpawnRefusal, X)>
    where
        X: Machine + Send + 'static,
    {
        self.host.launch_anywhere(machine, Built { inherited: self.inherited, wishes: &mut self.wishes })
    }

    fn ties(&mut self) -> &mut Ties {
        &mut self.wishes.parent.get_or_insert(Parent { process: None, ties: Ties::default() }).ties
    }

    /// Spawns an async body.
    ///
    /// # Errors
    /// The body and why it was refused.
    pub fn spawn<N, F, Fut>(mut self, body: F) -> Result<JoinHandle<Output<Fut>, N>, SpawnError<F>>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let entry = self.entry.take();
        match self.launch(AsyncBody::new(body, entry)) {
            Ok(spawned) => Ok(JoinHandle::new(spawned)),
            Err((refusal, machine)) => Err(SpawnError::new(refusal, machine.into_inner().expect("it never ran"))),
        }
    }

    /// A handle that says that the spawn of this body was refused.
    pub(crate) fn refuse<T, N: Send + 'static, F>(self, refusal: SpawnRefusal, body: F) -> JoinHandle<T, N> {
        let _ = catch(|| drop(body));
        self.host.refuse(refusal)
    }

    /// Spawns an async body; refused, the handle says so.
    pub(crate) fn spawn_or_refuse<N, F, Fut>(mut self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let (entry, host) = (self.entry.take(), self.host.clone());
        host.join_or_refuse(self.launch(AsyncBody::new(body, entry)))
    }

    /// Sends a message to the process that has this [name](Self::name), or spawns one whose first message it is. Of
    /// several that do so at once one spawns: there is exactly one process of that name. Returns its pid.
    ///
    /// Without a name it spawns.
    ///
    /// # Errors
    /// The message and the body, and why they were refused: [`SpawnRefusal::MessageRefused`] when the holder of the name
    /// does not take the message, or the new process may have none.
    pub fn spawn_or_send<N, F, Fut>(self, message: N, body: F) -> Result<Pid, SpawnError<(N, F)>>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let Self { host, entry, inherited, mut wishes } = self;
        let (heeds, mut message) = (wishes.heed(&inherited), Some(message));
        let admitted = wishes.take_parent().and_then(|parent| {
            Ok(host.admit_or_send(inherited, &wishes, &mut message)?.map(|embryo| (parent, embryo)))
        });
        match admitted {
            Ok(Ok((parent, embryo))) => {
                let ((joined, _), ready) = host.begin(AsyncBody::new(body, entry), embryo, heeds, parent);
                ready.schedule(Comes::FromRest(Some(&host.shared().place)));
                Ok(joined.address().pid())
            }
            Ok(Err(holder)) => Ok(holder),
            Err(refusal) => Err(SpawnError::new(refusal, (message.expect("it was refused"), body))),
        }
    }

    /// Spawns a hand-written process.
    ///
    /// # Errors
    /// The process and why it was refused.
    pub fn spawn_process<Q: Process + Send>(
        mut self,
        process: Q,
    ) -> Result<JoinHandle<Q::Output, Q::Message>, SpawnError<Q>> {
        let entry = self.entry.take();
        match self.launch(Raw::new(process, entry)) {
            Ok(spawned) => Ok(JoinHandle::new(spawned)),
            Err((refusal, machine)) => Err(SpawnError::new(refusal, machine.into_inner().expect("it never ran"))),
        }
    }
}
