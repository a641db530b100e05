//! Spawns with options. This file defines the builder, and creates processes with options, with a name, or with a first
//! message.

use std::borrow::Cow;
use std::panic::Location;
use std::time::Duration;

use crate::context::Context;
use crate::context::call::{Call, Reply, sent_elsewhere};
use crate::context::me::SelfHandle;
use crate::context::step::Process;
use crate::host::cancel::CancelToken;
use crate::host::cancel::inherited::{CancelSources, InheritedContext};
use crate::host::control::{AnyControl, flag};
use crate::host::job::Anywhere;
use crate::host::link::SpawnLinks;
use crate::host::registry::defer_drops_of_hosts;
use crate::host::registry::names::Unclaimed;
use crate::host::{ControlParts, Host};
use crate::observe::Counter;
use crate::platform::clock::Instant;
use crate::platform::sync::thread;
use crate::process::catch::catch;
use crate::process::error::{SendErrorKind, SpawnError, SpawnErrorKind};
use crate::process::limits::Limits;
use crate::process::mailbox::MailboxCapacity;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::priority::Priority;
use crate::process::state::wake_source::WakeSource;
use crate::process::state::{Ref, RunnableProcess, Schedule};
use crate::task::body::{Body, BodyMachine, IntoBox, with_machine, with_process};
use crate::task::cell::create;
use crate::task::join::JoinHandle;
use crate::task::spawn::{CreateCell, SpawnRequest, Spawned, named_entry};
use crate::task::{Entry, Machine};

/// Builder that spawns a process with options.
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
    inherited: InheritedContext,
    options: SpawnOptions,
}

impl ProcessBuilder {
    fn start_entry(&mut self) -> &mut Entry {
        self.entry.get_or_insert_default()
    }

    /// Sets the entry point of a process that has several entry points. Default: an empty name.
    pub fn entry(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.start_entry().name = name.into();
        self
    }

    /// Sets the input of the entry point. Default: `()`.
    pub fn input<I: Send + 'static>(mut self, input: I) -> Self {
        self.start_entry().input = Some(Payload::new(input));
        self
    }

    /// Adds a value that the process inherits. The process and its descendants find the value by the type of the value:
    /// see [`SelfHandle::value`]. If a value of the same type was set or inherited before, the new value replaces that
    /// value.
    pub fn value<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.inherited.give(value);
        self
    }

    /// Sets the limits of the process. If the host or an earlier call sets the same limit, the lower value applies.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = Limits::both(Some(&limits), self.options.limits.take());
        self
    }

    /// Sets a deadline. At the deadline, the process is cancelled with `Reason::DEADLINE`. If the process has not
    /// exited one second after the cancellation, the process is killed.
    ///
    /// A deadline in the past cancels the process immediately. A deadline at the end of the clock's range never cancels
    /// the process. Processes that this process spawns inherit the deadline. If there are several deadlines, the
    /// earliest deadline applies.
    pub fn deadline(self, at: Instant) -> Self {
        self.deadline_within(at, Duration::from_secs(1))
    }

    /// Sets a deadline and the time `grace`: see [`deadline`](Self::deadline). If the process has not exited within the
    /// time `grace` after the cancellation, the process is killed. An earlier cancellation with a longer grace period
    /// does not delay the kill.
    pub fn deadline_within(mut self, at: Instant, grace: Duration) -> Self {
        self.options.own_sources.deadline |= self.inherited.limit(at, grace);
        self
    }

    /// Sets the token that cancels the process and its descendants. This token replaces the inherited token. If the
    /// token is already cancelled, the process is cancelled before its first step.
    ///
    /// If the inherited token must also cancel the process, pass a [child](CancelToken::child) of [the token of the
    /// spawner](SelfHandle::cancel_token).
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.inherited.set_token(token);
        self.options.own_sources.token = true;
        self
    }

    /// Registers the process in its host under this [name](crate::Name). The process has the name from before its first
    /// step until its exit. If the name is taken, the spawn is refused with [`SpawnErrorKind::NameTaken`].
    ///
    /// This method does not know the body. Therefore the compiler cannot check that the name and the body have the same
    /// message type. If the types differ, a send to the name fails with
    /// [`SendErrorKind::WrongType`](crate::SendErrorKind::WrongType), unless the body receives any `Payload`.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Sets the maximum number of messages in the mailbox, and the policy for a full mailbox. Default: unbounded. If
    /// [`Limits::mailbox_capacity`] sets a lower limit, this lower limit applies, together with the policy of `bound`.
    ///
    /// ```
    /// # use procession::{MailboxCapacity, Context, SendErrorKind, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let slow = rt
    ///     .process()
    ///     .mailbox_capacity(MailboxCapacity::Reject(2))
    ///     .spawn(async |mut ctx: Context<u8>| ctx.receive().await)?;
    /// slow.send(1)?;
    /// slow.send(2)?;
    /// let refused = slow.send(3).unwrap_err();
    /// assert_eq!((refused.kind(), refused.into_message()), (SendErrorKind::Full, 3));
    /// // `send_wait` resolves when there is free space for the message.
    /// rt.block_on(slow.send_wait(4))?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn mailbox_capacity(mut self, bound: MailboxCapacity) -> Self {
        self.options.bound = bound;
        self
    }

    /// Sets the priority of the process among the runnable processes: see [`Priority`]. Default: normal.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = priority;
        self
    }

    /// Changes the condition under which the process counts as started. The process has started when it has called
    /// [`SelfHandle::mark_started`], and not when its first step has returned. The future
    /// [`started`](JoinHandle::started) resolves when the process has started.
    pub fn manual_start(mut self) -> Self {
        self.options.by_hand = true;
        self
    }

    /// Links the process to its spawner from the start: see [`SelfHandle::spawn_link`]. If the builder belongs to a
    /// [`Host`], there is no spawner, so the spawn is refused with [`SpawnErrorKind::NoParent`].
    pub fn link(mut self) -> Self {
        self.ties().link = true;
        self
    }

    /// Makes the spawner monitor the process from the start: see [`SelfHandle::spawn_monitor`] and
    /// [`JoinHandle::monitor_ref`]. If the builder belongs to a [`Host`], there is no spawner, so the spawn is refused
    /// with [`SpawnErrorKind::NoParent`].
    pub fn monitor(mut self) -> Self {
        self.ties().monitor = true;
        self
    }

    /// Marks the process as supervised, and removes the name of the process, because the supervisor sets the name of a
    /// child. During a shutdown, the supervisor cancels the process. The runtime itself cancels the process only if the
    /// supervisor belongs to another runtime. A pool is the supervisor of its members.
    pub(crate) fn supervised(mut self) -> Self {
        self.options.name = None;
        self.options.supervised = true;
        self
    }

    /// Makes a full mailbox refuse new messages, even if the policy was set to drop messages.
    pub(crate) fn refuse_when_full(mut self) -> Self {
        if let MailboxCapacity::DropOldest(most) | MailboxCapacity::DropNewest(most) = self.options.bound {
            self.options.bound = MailboxCapacity::Reject(most);
        }
        self
    }

    fn launch<X>(mut self, machine: X) -> Result<Spawned<X>, (SpawnErrorKind, X)>
    where
        X: Machine + Send + 'static,
    {
        self.host.launch_anywhere(machine, WithOptions::new(self.inherited, &mut self.options))
    }

    fn ties(&mut self) -> &mut SpawnLinks {
        &mut self.options.parent.get_or_insert(Parent { process: None, ties: SpawnLinks::default() }).ties
    }

    /// Spawns an async body.
    ///
    /// # Errors
    /// Returns the body and the reason of the refusal.
    pub fn spawn<N, F, Fut>(mut self, body: F) -> Result<JoinHandle<F::Value, N>, SpawnError<F>>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        let entry = self.entry.take();
        with_machine!(N, F, Fut, body, entry, |machine| {
            match self.launch(machine) {
                Ok(spawned) => Ok(JoinHandle::new(spawned)),
                Err((refusal, machine)) => Err(SpawnError::boxed(refusal, machine.into_body())),
            }
        })
    }

    /// Drops the body of a refused spawn, and returns a handle that resolves to the refusal.
    pub(crate) fn refuse<T, N: Send + 'static, F>(self, refusal: SpawnErrorKind, body: F) -> JoinHandle<T, N> {
        let _ = catch(|| drop(body));
        self.host.refuse(refusal)
    }

    /// Spawns an async body. If the spawn is refused, the handle resolves to the refusal.
    pub(crate) fn spawn_or_refuse<N, F>(self, body: F) -> JoinHandle<F::Value, N>
    where
        N: Send + 'static,
        F: Body<N>,
    {
        let Self { host, entry, inherited, options: mut wishes } = self;
        with_machine!(N, F, F::Future, body, entry, |machine| host
            .spawn_or_refuse(machine, WithOptions::new(inherited, &mut wishes)))
    }

    /// Spawns a hand-written process. If the spawn is refused, the handle resolves to the refusal.
    pub(crate) fn spawn_process_or_refuse<Q: Process + Send>(self, process: Q) -> JoinHandle<Q::Output, Q::Message> {
        let Self { host, entry, inherited, options: mut wishes } = self;
        with_process!(Q, process, entry, |machine| host
            .spawn_or_refuse(machine, WithOptions::new(inherited, &mut wishes)))
    }

    /// Sends `message` to the process that has this [name](Self::name). If no process has this name, spawns a process
    /// with `message` as its first message. Returns the pid of the process that gets the message. If several threads
    /// make this call at the same time, exactly one call spawns a process.
    ///
    /// If the builder has no name, the call always spawns a process. If the process with this name is about to exit,
    /// the call blocks until the name is released. The blocked call repeatedly runs `std::thread::yield_now`.
    ///
    /// The options [`link`](Self::link) and [`monitor`](Self::monitor) apply only if the call spawns a process. The
    /// call does not return the `MonitorRef`. To monitor the process in every case, call
    /// [`monitor`](crate::SelfHandle::monitor) with the returned pid.
    ///
    /// # Errors
    /// Returns the message, the body and the reason of the refusal. [`SpawnErrorKind::MessageRefused`] has one of two
    /// causes: the process with this name has refused the message, or the [limit on messages](Limits::mailbox_capacity)
    /// of the new process is 0.
    pub fn spawn_or_send<N, F, Fut>(mut self, message: N, body: F) -> Result<Pid, SpawnError<(N, F)>>
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        let entry = self.entry.take();
        with_machine!(N, F, Fut, body, entry, |machine| {
            self.launch_or_send(message, machine)
                .map_err(|(refusal, message, machine)| SpawnError::new(refusal, (message, *machine.into_body())))
        })
    }

    /// Sends a request to the process that has this [name](Self::name). If no process has this name, spawns a process
    /// with the request as its first message. The returned future resolves to the reply: see
    /// [`Address::call`](crate::Address::call). This method sends the request immediately, before the first poll of the
    /// future. In all other respects, this method is the same as [`spawn_or_send`](Self::spawn_or_send).
    ///
    /// ```
    /// use procession::{Context, Exit, Reply, Runtime};
    ///
    /// async fn counter(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
    ///     for count in 1.. {
    ///         ctx.receive().await?.send(count);
    ///     }
    ///     Ok(())
    /// }
    /// let rt = Runtime::new()?;
    /// let count = |user: &str| rt.process().name(format!("counter-{user}")).spawn_or_call(|reply| reply, counter);
    /// assert_eq!(rt.block_on(count("ann")?)?, 1);
    /// assert_eq!(rt.block_on(count("ann")?)?, 2);
    /// assert_eq!(rt.block_on(count("bob")?)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the body and the reason of the refusal. The request is dropped. The reasons are the same as the reasons
    /// of [`spawn_or_send`](Self::spawn_or_send).
    #[track_caller]
    pub fn spawn_or_call<N, T, F, Fut>(
        mut self,
        request: impl FnOnce(Reply<T>) -> N,
        body: F,
    ) -> Result<Call<T>, SpawnError<F>>
    where
        N: Send + 'static,
        T: Send + 'static,
        F: Body<N, Future = Fut> + FnOnce(Context<N>) -> Fut,
        Fut: Future,
    {
        let entry = self.entry.take();
        let (mut call, request) = sent_elsewhere(&self.host, None, (0, Location::caller()), request);
        with_machine!(N, F, Fut, body, entry, |machine| match self.launch_or_send(request, machine) {
            Ok(callee) => {
                call.set_callee(callee);
                Ok(call)
            }
            Err((refusal, _, machine)) => Err(SpawnError::boxed(refusal, machine.into_body())),
        })
    }

    /// Implements [`spawn_or_send`](Self::spawn_or_send) for a machine.
    fn launch_or_send<X>(self, message: X::Message, machine: X) -> Result<Pid, (SpawnErrorKind, X::Message, X)>
    where
        X: Machine + Send + 'static,
    {
        let (mut message, mut machine) = (Some(message), Some(machine));
        self.launch_or_send_from(&mut message, &mut machine).map_err(|refusal| match (message, machine) {
            (Some(message), Some(machine)) => (refusal, message, machine),
            _ => unreachable!("a refusal moves neither the message nor the machine"),
        })
    }

    /// Implements [`launch_or_send`](Self::launch_or_send). If the call is refused, the message and the machine stay in
    /// `message` and `machine`.
    fn launch_or_send_from<X>(
        self,
        message: &mut Option<X::Message>,
        machine: &mut Option<X>,
    ) -> Result<Pid, SpawnErrorKind>
    where
        X: Machine + Send + 'static,
    {
        let Self { host, inherited, options: mut wishes, .. } = self;
        let (sources, parent) = (wishes.direct_sources(&inherited), wishes.take_parent()?);
        host.check_room_for_first_message(&wishes)?;
        let (mut entry_point, mut created) = (None, None);
        // The admission calls this closure before other threads can find the process by its name. Therefore the
        // message is the first message of the process.
        let mut create = |message: &mut Option<X::Message>, parts| {
            let machine = machine.take().expect("an admission creates one process");
            entry_point = named_entry(machine.entry_name());
            let (entry, new) = create(machine, Anywhere, parts);
            let given = message.take().map(|message| new.joined.address().control().push(message).is_ok());
            debug_assert_ne!(given, Some(false), "the new mailbox has room, and no other sender knows it");
            created = Some(new);
            entry
        };
        if let Some(holder) = host.admit_or_send(&inherited, &wishes, message, &mut create)? {
            return Ok(holder);
        }
        let ((joined, _), ready) =
            host.begin(created.expect("an admitted process was created"), entry_point, sources, parent);
        ready.schedule(WakeSource::Waiting(Some(&host.shared().place)));
        Ok(joined.address().pid())
    }

    /// Spawns a hand-written process.
    ///
    /// # Errors
    /// Returns the process and the reason of the refusal.
    pub fn spawn_process<Q: Process + Send>(
        mut self,
        process: Q,
    ) -> Result<JoinHandle<Q::Output, Q::Message>, SpawnError<Q>> {
        let entry = self.entry.take();
        with_process!(Q, process, entry, |machine| {
            match self.launch(machine) {
                Ok(spawned) => Ok(JoinHandle::new(spawned)),
                Err((refusal, machine)) => {
                    let process = machine.into_inner().expect("a refused process never ran");
                    Err(SpawnError::boxed(refusal, process.into_box()))
                }
            }
        })
    }
}

/// A spawn with the options of a builder.
pub(super) struct WithOptions<'a> {
    inherited: InheritedContext,
    options: &'a mut SpawnOptions,
}

impl<'a> WithOptions<'a> {
    pub(super) fn new(inherited: InheritedContext, wishes: &'a mut SpawnOptions) -> Self {
        Self { inherited, options: wishes }
    }
}

impl SpawnRequest for WithOptions<'_> {
    fn prepare<X: Machine, S: Schedule>(
        self,
        host: &Host,
        machine: X,
        schedule: S,
    ) -> Result<(Spawned<X>, RunnableProcess), (SpawnErrorKind, X)> {
        let Self { inherited, options } = self;
        let sources = options.direct_sources(&inherited);
        let parent = match options.take_parent() {
            Ok(parent) => parent,
            Err(refusal) => return Err((refusal, machine)),
        };
        let (mut new, mut entry_point, mut created) = (Some((machine, schedule)), None, None);
        let admitted = host.admit(inherited, options, &mut |parts| {
            let (machine, schedule) = new.take().expect("an admission creates one process");
            entry_point = named_entry(machine.entry_name());
            let (entry, process) = create(machine, schedule, parts);
            created = Some(process);
            entry
        });
        match (admitted, created, new) {
            (Ok(()), Some(created), _) => Ok(host.begin(created, entry_point, sources, parent)),
            (Err(refusal), _, Some((machine, _))) => Err((refusal, machine)),
            _ => unreachable!("an admission either creates the process or is refused"),
        }
    }
}

/// The options of a [`ProcessBuilder`].
#[derive(Debug, Clone, Default)]
pub(super) struct SpawnOptions {
    limits: Option<Box<Limits>>,
    by_hand: bool,
    supervised: bool,
    /// The sources that the builder has set. The set does not contain inherited sources.
    own_sources: CancelSources,
    priority: Priority,
    name: Option<Cow<'static, str>>,
    bound: MailboxCapacity,
    parent: Option<Parent>,
}

impl SpawnOptions {
    /// Returns the options for a new process that `process` spawns. The parameter `ties` says whether `process` is
    /// linked to the new process, and whether `process` monitors the new process.
    pub(super) fn tied(process: Ref<dyn AnyControl>, ties: SpawnLinks) -> Self {
        Self { parent: Some(Parent { process: Some(process), ties }), ..Self::default() }
    }

    /// Returns the sources that cancel the process directly: the cancel token, the deadline, or both. An inherited
    /// deadline or an inherited token does not cancel a supervised process directly. The supervisor has inherited the
    /// same deadline and the same token, and ends its children in order.
    fn direct_sources(&self, inherited: &InheritedContext) -> CancelSources {
        if self.supervised { self.own_sources } else { inherited.cancel_sources() }
    }

    fn take_parent(&mut self) -> Result<Option<(Ref<dyn AnyControl>, SpawnLinks)>, SpawnErrorKind> {
        match self.parent.take() {
            None => Ok(None),
            Some(Parent { ties: SpawnLinks { link: false, monitor: false }, .. }) => Ok(None),
            Some(Parent { process: Some(process), ties }) => Ok(Some((process, ties))),
            Some(Parent { process: None, .. }) => Err(SpawnErrorKind::NoParent),
        }
    }

    fn flags(&self) -> u16 {
        let rank = match self.priority {
            Priority::Normal => 0,
            Priority::High => flag::HIGH,
            Priority::Low => flag::LOW,
        };
        let by_hand = if self.by_hand { flag::MANUAL_START } else { 0 };
        rank | by_hand | if self.supervised { flag::SUPERVISED } else { 0 }
    }
}

/// The spawner, and the requested links and monitors between the spawner and the new process.
#[derive(Debug, Clone)]
struct Parent {
    /// The field is `None` if the builder belongs to a host.
    process: Option<Ref<dyn AnyControl>>,
    ties: SpawnLinks,
}

impl Host {
    /// Returns a builder that spawns a process with options. A refused spawn returns the body.
    pub fn process(&self) -> ProcessBuilder {
        self.process_inheriting(InheritedContext::default())
    }

    /// Returns a builder that spawns a process with options. The new process inherits `inherited`.
    pub(crate) fn process_inheriting(&self, inherited: InheritedContext) -> ProcessBuilder {
        ProcessBuilder { host: self.clone(), entry: None, inherited, options: SpawnOptions::default() }
    }

    /// Adds a process with the options of a builder.
    fn admit(
        &self,
        inherited: InheritedContext,
        wishes: &mut SpawnOptions,
        create: CreateCell<'_>,
    ) -> Result<(), SpawnErrorKind> {
        let Some(name) = wishes.name.take() else { return self.admit_nameless(inherited, wishes, create) };
        self.admit_as(name, inherited, wishes, create).map_err(|unclaimed| match unclaimed {
            Unclaimed::Taken(holder) => SpawnErrorKind::NameTaken(holder.head().pid()),
            Unclaimed::Refused(refusal) => refusal,
        })
    }

    #[inline(never)]
    fn admit_nameless(
        &self,
        inherited: InheritedContext,
        wishes: &mut SpawnOptions,
        create: CreateCell<'_>,
    ) -> Result<(), SpawnErrorKind> {
        self.enlist(inherited, wishes.flags(), wishes.limits.take(), wishes.bound, create)
    }

    /// Adds a process in the same way as [`admit`](Self::admit), and registers this name for the process. Calls
    /// `create` before other threads can find the process by its name.
    fn admit_as(
        &self,
        name: Cow<'static, str>,
        inherited: InheritedContext,
        wishes: &mut SpawnOptions,
        create: CreateCell<'_>,
    ) -> Result<(), Unclaimed<dyn AnyControl, SpawnErrorKind>> {
        // `make` runs under the lock of the name. If `make` fails, `make` drops the inherited values. The admission in
        // `make` may also drop the last reference to another host. Both drops run user code, so both must happen after
        // the unlock. The variable `kept` keeps the inherited values alive until the unlock. `defer_drops_of_hosts`
        // delays the drop of the host.
        let kept = inherited.clone();
        let make = || {
            let mut named = None;
            self.admit_nameless(inherited, wishes, &mut |parts| {
                let entry = create(parts);
                named = Some(entry.clone());
                entry
            })?;
            let named = named.expect("an admitted process was created");
            Ok((named.clone(), named))
        };
        let names = self.namespace().names();
        let claimed = defer_drops_of_hosts(|| names.claim(name.clone(), make));
        drop(kept);
        // The exit of the process releases the names in this list. The process has not started. Therefore the exit of
        // the process comes after this push, and finds the name in the list.
        claimed?.head().names().lock().push(name);
        Ok(())
    }

    /// Refuses a spawn with a first message, if the limits of the new process allow no message.
    fn check_room_for_first_message(&self, wishes: &SpawnOptions) -> Result<(), SpawnErrorKind> {
        let limits = Limits::both(self.namespace().limits(), wishes.limits.clone());
        if limits.is_some_and(|limits| limits.mail_limit() == Some(0)) {
            self.shared().metrics.add(Counter::Refused, 1);
            return Err(SpawnErrorKind::MessageRefused(SendErrorKind::Full));
        }
        Ok(())
    }

    /// Adds a process in the same way as [`admit`](Self::admit). `create` takes the first message of the process out of
    /// `message`. If another process already has the name, that process gets the message, and this function returns the
    /// pid of that process. If the message is refused, the message stays in `message`.
    fn admit_or_send<M: Send + 'static>(
        &self,
        inherited: &InheritedContext,
        wishes: &SpawnOptions,
        message: &mut Option<M>,
        create: &mut dyn FnMut(&mut Option<M>, ControlParts) -> Ref<dyn AnyControl>,
    ) -> Result<Option<Pid>, SpawnErrorKind> {
        loop {
            let (inherited, mut wishes) = (inherited.clone(), wishes.clone());
            let create = &mut |parts| create(message, parts);
            let Some(name) = wishes.name.take() else {
                return self.admit_nameless(inherited, &mut wishes, create).map(|()| None);
            };
            let holder = match self.admit_as(name, inherited, &mut wishes, create) {
                Ok(()) => return Ok(None),
                Err(Unclaimed::Refused(refusal)) => return Err(refusal),
                Err(Unclaimed::Taken(holder)) => holder,
            };
            let Err((refusal, refused)) =
                holder.deliver_typed(message.take().expect("the message is in its place until it is sent"))
            else {
                return Ok(Some(holder.head().pid()));
            };
            *message = Some(refused);
            match refusal {
                // The process with this name is exiting. This process has closed its mailbox, and will soon release its
                // names.
                SendErrorKind::NoProcess => thread::yield_now(),
                SendErrorKind::ShutDown => return Err(SpawnErrorKind::ShutDown),
                refusal => {
                    self.shared().metrics.add(Counter::Refused, 1);
                    return Err(SpawnErrorKind::MessageRefused(refusal));
                }
            }
        }
    }
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Returns a builder that spawns a process with options. The new process inherits the values, the deadline and the
    /// cancel token of this process. A refused spawn returns the body.
    pub fn process(&self) -> ProcessBuilder {
        let wishes = SpawnOptions::tied(self.any(), SpawnLinks::default());
        ProcessBuilder { options: wishes, ..self.host().process_inheriting(self.passes_on()) }
    }
}
