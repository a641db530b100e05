//! Spawning with options: what a builder can be told, and how a process is admitted by that, under a name or with a first
//! message.

use std::borrow::Cow;
use std::time::Duration;

use crate::context::me::Me;
use crate::context::step::Process;
use crate::host::Host;
use crate::host::cancel::CancelToken;
use crate::host::cancel::inherited::Inherited;
use crate::host::control::{AnyControl, Control, flag};
use crate::host::job::Anywhere;
use crate::host::link::SpawnLinks;
use crate::host::registry::names::Unclaimed;
use crate::platform::clock::Instant;
use crate::platform::sync::thread;
use crate::process::catch::catch;
use crate::process::error::{Refusal, SpawnError, SpawnRefusal};
use crate::process::limits::Limits;
use crate::process::mailbox::Bound;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::priority::Priority;
use crate::process::state::wake_order::WakeSource;
use crate::process::state::{Ref, Schedule};
use crate::task::body::{Body, BodyFuture, Output, Whole, with_machine, with_process};
use crate::task::cell::ReservedProcess;
use crate::task::join::JoinHandle;
use crate::task::spawn::{Spawned, Wanted};
use crate::task::{Entry, Machine};

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
    wishes: SpawnOptions,
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
        self.host.launch_anywhere(machine, Built::new(self.inherited, &mut self.wishes))
    }

    fn ties(&mut self) -> &mut SpawnLinks {
        &mut self.wishes.parent.get_or_insert(Parent { process: None, ties: SpawnLinks::default() }).ties
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
        with_machine!(N, F, Fut, body, entry, |machine| match self.launch(machine) {
            Ok(spawned) => Ok(JoinHandle::new(spawned)),
            Err((refusal, machine)) =>
                Err(SpawnError::boxed(refusal, machine.into_inner().expect("it never ran").whole())),
        })
    }

    /// A handle that says that the spawn of this body was refused.
    pub(crate) fn refuse<T, N: Send + 'static, F>(self, refusal: SpawnRefusal, body: F) -> JoinHandle<T, N> {
        let _ = catch(|| drop(body));
        self.host.refuse(refusal)
    }

    /// Spawns an async body; refused, the handle says so.
    pub(crate) fn spawn_or_refuse<N, F, Fut>(self, body: F) -> JoinHandle<Output<Fut>, N>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let Self { host, entry, inherited, mut wishes } = self;
        with_machine!(N, F, Fut, body, entry, |machine| {
            host.join_or_refuse(host.launch_anywhere(machine, Built::new(inherited, &mut wishes)))
        })
    }

    /// Sends a message to the process that has this [name](Self::name), or spawns one whose first message it is. Of
    /// several that do so at once one spawns: there is exactly one process of that name. Returns its pid.
    ///
    /// Without a name it spawns.
    ///
    /// # Errors
    /// The message and the body, and why they were refused: [`SpawnRefusal::MessageRefused`] when the holder of the name
    /// does not take the message, or the new process may have none.
    pub fn spawn_or_send<N, F, Fut>(mut self, message: N, body: F) -> Result<Pid, SpawnError<(N, F)>>
    where
        N: Send + 'static,
        F: Body<N, Fut>,
        Fut: BodyFuture,
    {
        let entry = self.entry.take();
        with_machine!(N, F, Fut, body, entry, |machine| {
            self.launch_or_send(message, machine).map_err(|(refusal, message, machine)| {
                SpawnError::new(refusal, (message, *machine.into_inner().expect("it never ran").whole()))
            })
        })
    }

    /// As [`spawn_or_send`](Self::spawn_or_send), of a machine.
    fn launch_or_send<X>(self, message: X::Message, machine: X) -> Result<Pid, (SpawnRefusal, X::Message, X)>
    where
        X: Machine + Send + 'static,
    {
        let Self { host, inherited, mut wishes, .. } = self;
        let (heeds, mut message) = (wishes.heed(&inherited), Some(message));
        let admitted = wishes.take_parent().and_then(|parent| {
            Ok(host.admit_or_send(inherited, &wishes, &mut message)?.map(|embryo| (parent, embryo)))
        });
        match admitted {
            Ok(Ok((parent, embryo))) => {
                let ((joined, _), ready) = host.begin(machine, embryo, heeds, parent);
                ready.schedule(WakeSource::Waiting(Some(&host.shared().place)));
                Ok(joined.address().pid())
            }
            Ok(Err(holder)) => Ok(holder),
            Err(refusal) => Err((refusal, message.expect("it was refused"), machine)),
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
        with_process!(Q, process, entry, |machine| match self.launch(machine) {
            Ok(spawned) => Ok(JoinHandle::new(spawned)),
            Err((refusal, machine)) =>
                Err(SpawnError::boxed(refusal, machine.into_inner().expect("it never ran").whole())),
        })
    }
}

/// As its builder was told.
pub(super) struct Built<'a> {
    inherited: Inherited,
    wishes: &'a mut SpawnOptions,
}

impl<'a> Built<'a> {
    pub(super) fn new(inherited: Inherited, wishes: &'a mut SpawnOptions) -> Self {
        Self { inherited, wishes }
    }
}

impl Wanted for Built<'_> {
    fn heeds(&self) -> bool {
        self.wishes.heed(&self.inherited)
    }

    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, SpawnLinks)>, SpawnRefusal> {
        self.wishes.take_parent()
    }

    fn admit<X: Machine, S: Schedule>(self, host: &Host, schedule: S) -> Result<ReservedProcess<X, S>, SpawnRefusal> {
        host.admit(self.inherited, self.wishes, schedule)
    }
}

/// What a [`ProcessBuilder`] was told.
#[derive(Debug, Clone, Default)]
pub(super) struct SpawnOptions {
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

impl SpawnOptions {
    /// Of one that is to be tied to this process, or may be.
    pub(super) fn tied(process: Ref<dyn AnyControl>, ties: SpawnLinks) -> Self {
        Self { parent: Some(Parent { process: Some(process), ties }), ..Self::default() }
    }

    /// Whether it is told by its deadline and its token. Of what a supervisor inherited itself its children are told by
    /// nobody but it, in its order.
    fn heed(&self, inherited: &Inherited) -> bool {
        inherited.has_end() && (!self.supervised || self.ends_itself)
    }

    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, SpawnLinks)>, SpawnRefusal> {
        match self.parent.take() {
            None => Ok(None),
            Some(Parent { ties: SpawnLinks { link: false, monitor: false }, .. }) => Ok(None),
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
    ties: SpawnLinks,
}

impl Host {
    /// Spawns with options; a refusal hands the body back.
    pub fn process(&self) -> ProcessBuilder {
        self.process_inheriting(Inherited::default())
    }

    /// As [`process`](Self::process), for one that inherits these values.
    pub(crate) fn process_inheriting(&self, inherited: Inherited) -> ProcessBuilder {
        ProcessBuilder { host: self.clone(), entry: None, inherited, wishes: SpawnOptions::default() }
    }

    /// A process that is to begin, as its builder was told.
    fn admit<X: Machine, S: Schedule>(
        &self,
        inherited: Inherited,
        wishes: &mut SpawnOptions,
        schedule: S,
    ) -> Result<ReservedProcess<X, S>, SpawnRefusal> {
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
        wishes: &mut SpawnOptions,
        schedule: S,
    ) -> Result<ReservedProcess<X, S>, SpawnRefusal> {
        self.enlist(inherited, wishes.flags(), wishes.limits.take(), wishes.bound, schedule)
    }

    /// As [`admit`](Self::admit), under this name, and `prepare`d before anybody finds it.
    fn admit_as<X: Machine, S: Schedule>(
        &self,
        name: Cow<'static, str>,
        inherited: Inherited,
        wishes: &mut SpawnOptions,
        schedule: S,
        prepare: impl FnOnce(&Control<X::Message>),
    ) -> Result<ReservedProcess<X, S>, Unclaimed<dyn AnyControl, SpawnRefusal>> {
        let embryo = self.namespace().names().claim(name.clone(), || {
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
        wishes: &SpawnOptions,
        message: &mut Option<X::Message>,
    ) -> Result<Result<ReservedProcess<X, Anywhere>, Pid>, SpawnRefusal> {
        let limits = Limits::both(self.namespace().limits(), wishes.limits.clone());
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
}

impl<M: Send + 'static> Me<M> {
    /// Spawns with options; a refusal hands the body back.
    pub fn process(&self) -> ProcessBuilder {
        let wishes = SpawnOptions::tied(self.any(), SpawnLinks::default());
        ProcessBuilder { wishes, ..self.host().process_inheriting(self.passes_on()) }
    }
}
