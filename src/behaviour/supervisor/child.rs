//! A child of a supervisor. This file defines the specification of a child, and spawns and monitors the instances of
//! the child. `plan.rs` decides when to start or stop an instance.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context as Cx, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::behaviour::pool::members::{Members, Routing};
use crate::behaviour::supervisor::plan::{Id, Policy, RestartPolicy};
use crate::behaviour::supervisor::{Supervisor, SupervisorMessage};
use crate::context::Context;
use crate::context::address::Exited;
use crate::context::mailbox::Mailbox;
use crate::context::me::SelfHandle;
use crate::context::names::IntoName;
use crate::context::step::Process;
use crate::host::control::{AnyControl, Control};
use crate::host::timer::backoff::Backoff;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::{Held, catch};
use crate::process::error::{NameError, SpawnError, SpawnErrorKind};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::MailboxCapacity;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::task::body::{Body, Large, ProcessOutput, is_large};
use crate::task::join::{JoinHandle, KillOnDrop, Started};
use crate::task::spawn::{ProcessBuilder, exit_of_refusal};

/// Specification of a child of a [`Supervisor`].
///
/// The body of the child is a function. The supervisor calls this function at each start, so that each instance begins
/// with new state. If the function needs values, the function must clone its captured values, or receive a clone of a
/// seed ([`with_args`](Self::with_args)).
///
/// ```
/// use procession::{Backoff, MailboxCapacity, Child, Context, Exit, Name, RestartPolicy};
/// use std::time::Duration;
///
/// const LOG: Name<String> = Name::new("log");
/// async fn log(mut ctx: Context<String>, prefix: String) -> Result<(), Exit> {
///     loop {
///         println!("{prefix}{}", ctx.receive().await?);
///     }
/// }
/// let child = Child::with_args(LOG, String::from("> "), log)
///     .restart(RestartPolicy::Transient)
///     .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(1)))
///     .options(|process| process.mailbox_capacity(MailboxCapacity::Reject(1_000)))
///     .keep_mailbox();
/// # let _ = child;
/// ```
#[must_use = "a child is for a supervisor"]
pub struct Child {
    pub(super) spec: Spec,
    /// The body of the child is a user value. A supervisor drops the bodies of all its children together, and a second
    /// panic during these drops would abort the program. Therefore `Held` catches each panic.
    pub(super) make: Held<Box<dyn Make>>,
}

/// The options of a child.
pub(super) struct Spec {
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) policy: Policy,
    /// Maximum time between the cancellation of the child and its exit. After this time, the child is killed. `None`
    /// means no limit.
    pub(super) shutdown: Option<Duration>,
    pub(super) is_supervisor: bool,
    kept: bool,
    options: Option<Held<Box<dyn Fn(ProcessBuilder) -> ProcessBuilder + Send>>>,
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.spec.name).field("restart", &self.spec.policy.restart).finish()
    }
}

impl Child {
    /// Creates a child with an async body and a name. The name is a [`Name`](crate::Name) or a text. For a child that
    /// is [added](SupervisorMessage::StartChild) to a running supervisor, the text can be made at run time.
    ///
    /// ```
    /// use procession::{Child, Context, Exit, Runtime, Supervisor, supervisor::SupervisorMessage};
    ///
    /// async fn room(mut ctx: Context<String>) -> Result<(), Exit> {
    ///     loop {
    ///         println!("{}", ctx.receive().await?);
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// let rooms = rt.spawn_process(Supervisor::one_for_one());
    /// for number in 1..=3 {
    ///     let child = Child::new(format!("room-{number}"), room);
    ///     rt.block_on(rooms.call(|reply| SupervisorMessage::StartChild(child, reply)))??;
    /// }
    /// rt.send("room-2", String::from("hello"))?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn new<N, F, Fut>(name: impl IntoName<N>, body: F) -> Self
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + Fn(Context<N>) -> Fut + Sync,
        Fut: Future,
    {
        Self::of_body(Some(name.into()), body)
    }

    /// Creates a child with an async body that receives a clone of `seed` at each start.
    pub fn with_args<N, S, F, Fut>(name: impl IntoName<N>, seed: S, body: F) -> Self
    where
        N: Send + 'static,
        S: Clone + Send + Sync + 'static,
        F: Fn(Context<N>, S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: ProcessOutput> + Send + 'static,
    {
        Self::new(name, move |ctx| body(ctx, seed.clone()))
    }

    /// Creates a child that is a hand-written process or another [`Supervisor`]. The worker that runs the supervisor
    /// calls `make`.
    pub fn process<Q: Process + Send>(
        name: impl IntoName<Q::Message>,
        make: impl Fn() -> Q + Send + Sync + 'static,
    ) -> Self {
        Self::of_process(Some(name.into()), make)
    }

    /// Creates a child with an async body and without a name. The supervisor identifies the child by the pid of the
    /// child.
    pub fn unnamed<N, F, Fut>(body: F) -> Self
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + Fn(Context<N>) -> Fut + Sync,
        Fut: Future,
    {
        Self::of_body(None, body)
    }

    /// Creates a child that is a hand-written process without a name.
    pub fn unnamed_process<Q: Process + Send>(make: impl Fn() -> Q + Send + Sync + 'static) -> Self {
        Self::of_process(None, make)
    }

    fn of_body<N, F>(name: Option<Cow<'static, str>>, body: F) -> Self
    where
        N: Send + 'static,
        F: Body<N> + Fn(Context<N>) -> <F as Body<N>>::Future + Sync,
    {
        let body = Arc::new(body);
        Self::of(name, false, move |process: ProcessBuilder| {
            let body = Arc::clone(&body);
            Ok((process.spawn(move |ctx| body(ctx))?, None))
        })
    }

    fn of_process<Q: Process + Send>(
        name: Option<Cow<'static, str>>,
        make: impl Fn() -> Q + Send + Sync + 'static,
    ) -> Self {
        let is_supervisor = std::any::TypeId::of::<Q>() == std::any::TypeId::of::<Supervisor>();
        Self::of(name, is_supervisor, move |process: ProcessBuilder| {
            // The process is boxed, because the process may be too large for the stack and is moved later.
            let made = catch(|| Box::new(make())).map_err(NotMade::panicked)?;
            let below = (&*made as &dyn Any).downcast_ref::<Supervisor>().map(|below| Arc::clone(&below.live_children));
            let spawned = if const { is_large::<Q, ()>() } {
                process.spawn_process(Large(made))?
            } else {
                process.spawn_process(*made)?
            };
            Ok((spawned, below))
        })
    }

    fn of<T, N, S>(name: Option<Cow<'static, str>>, is_supervisor: bool, spawn: S) -> Self
    where
        T: Send + 'static,
        N: Send + 'static,
        S: Fn(ProcessBuilder) -> Result<Spawned<T, N>, NotMade> + Send + 'static,
    {
        let spec = Spec {
            name,
            policy: Policy { restart: RestartPolicy::default(), backoff: None },
            shutdown: if is_supervisor { None } else { Some(Duration::from_secs(5)) },
            is_supervisor,
            kept: false,
            options: None,
        };
        Self { spec, make: Held::new(Box::new(Maker { spawn, kept: None })) }
    }

    /// Sets the restart policy of the child. Default: [`RestartPolicy::Permanent`], so the child is restarted after
    /// every exit.
    pub fn restart(mut self, when: RestartPolicy) -> Self {
        self.spec.policy.restart = when;
        self
    }

    /// Sets the delay before each restart. Default: no delay. If a child is restarted because another child exited
    /// ([`Supervisor::one_for_all`]), the delay of the child that exited applies.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.spec.policy.backoff = Some(backoff);
        self
    }

    /// Sets the maximum time between the cancellation of the child and its exit. After this time, the child is killed.
    /// Default: 5 s. With `Duration::ZERO`, the child is killed immediately (OTP: `brutal_kill`). With `Duration::MAX`,
    /// the child is never killed (OTP: `infinity`). `Duration::MAX` is the default for a child that is a supervisor.
    pub fn shutdown(mut self, within: Duration) -> Self {
        self.spec.shutdown = Some(within);
        self
    }

    /// Keeps the mailbox of the child across restarts. By default, each instance has its own mailbox. With this option,
    /// the next instance first receives the messages that the previous instance has not read. The next instance then
    /// receives the messages that were sent between the two instances. During a restart, a send to the name is not
    /// refused. There is one exception: while no instance runs, an [urgent message](crate::Address::send_urgent) is
    /// refused with [`SendErrorKind::Full`](crate::SendErrorKind::Full). If an instance exits while it handles a
    /// message, this message is lost.
    ///
    /// Without this option, unread messages become [dead letters](crate::Host::dead_letters), and a send is refused
    /// while no instance runs.
    ///
    /// With this option, the name of the child belongs to the kept mailbox. The pid of the kept mailbox stays the same
    /// across restarts. A call of [`Host::kill`](crate::Host::kill) or [`Host::cancel`](crate::Host::cancel) with this
    /// pid also ends the running instance. In this case, the unread messages of the kept mailbox become dead letters,
    /// and the next instance gets a new kept mailbox with another pid.
    ///
    /// If the child stays down, the state of the kept mailbox depends on the reason:
    /// - [`TerminateChild`](SupervisorMessage::TerminateChild) has stopped the child: the mailbox stays open, and has
    ///   no limit. Messages and calls wait there until a [request](SupervisorMessage::RestartChild) starts the next
    ///   instance.
    /// - The child has exited by itself, and its [`RestartPolicy`] does not restart the child: the mailbox is closed.
    ///   The unread messages of the mailbox become dead letters, the calls among these messages fail, and the name is
    ///   free. If a request starts the child again, the next instance gets a new kept mailbox with another pid.
    ///
    /// The [`MailboxCapacity`] limits the messages in the mailbox of the instance. If this mailbox is full, and no
    /// message waits in the kept mailbox, a plain send is refused, even with `DropOldest` or `DropNewest`. But
    /// [`send_wait`](crate::Address::send_wait) does not wait: the message enters the kept mailbox, which has no limit.
    /// While messages wait in the kept mailbox, later messages also wait in the kept mailbox.
    pub fn keep_mailbox(mut self) -> Self {
        self.spec.kept = true;
        self
    }

    /// Sets options of each instance, for example limits, values, the capacity of the mailbox, or [`manual_start`]. The
    /// supervisor calls the function at each start. If the function sets a name, the name is ignored.
    ///
    /// [`manual_start`]: ProcessBuilder::manual_start
    pub fn options(mut self, options: impl Fn(ProcessBuilder) -> ProcessBuilder + Send + 'static) -> Self {
        self.spec.options = Some(Held::new(Box::new(options)));
        self
    }
}

type Spawned<T, N> = (JoinHandle<T, N>, Option<Arc<LiveChildren>>);

/// Creates the instances of a child.
pub(super) trait Make: Send {
    /// Spawns an instance.
    fn make(
        &mut self,
        supervisor: &SelfHandle<SupervisorMessage>,
        id: Id,
        spec: &Spec,
    ) -> Result<(Member, Instance), NotMade>;
    /// Closes the kept mailbox of a child that stays down. No later instance reads this mailbox.
    fn close_mailbox(&mut self, exit: &Exit);
    /// Closes the kept mailbox if no instance has ever used this mailbox. An unused kept mailbox was opened for a start
    /// that was refused.
    fn close_unused_mailbox(&mut self, exit: &Exit);
}

/// Reason why no instance was spawned.
#[derive(Debug)]
pub(super) enum NotMade {
    /// A function of the child panicked.
    Panicked(Exit),
    /// The runtime refused the process or its name.
    Refused(Exit),
}

impl NotMade {
    fn panicked(text: Reason) -> Self {
        Self::Panicked(Exit::Panicked(text))
    }
}

impl<B> From<SpawnError<B>> for NotMade {
    fn from(error: SpawnError<B>) -> Self {
        Self::Refused(exit_of_refusal(error))
    }
}

struct Maker<N: Send + 'static, S> {
    spawn: S,
    kept: Option<Arc<PersistentMailbox<N>>>,
}

impl<T, N, S> Make for Maker<N, S>
where
    T: Send + 'static,
    N: Send + 'static,
    S: Fn(ProcessBuilder) -> Result<Spawned<T, N>, NotMade> + Send,
{
    fn make(
        &mut self,
        supervisor: &SelfHandle<SupervisorMessage>,
        id: Id,
        spec: &Spec,
    ) -> Result<(Member, Instance), NotMade> {
        let mut process = supervisor.process();
        if let Some(options) = &spec.options {
            process = catch(|| (options.get())(process)).map_err(NotMade::panicked)?;
        }
        process = process.supervised();
        if spec.kept {
            let kept = match &self.kept {
                Some(kept) if !kept.is_gone() => Arc::clone(kept),
                _ => PersistentMailbox::open(supervisor, spec.name.clone()).map_err(NotMade::Refused)?,
            };
            process = process.refuse_when_full();
            self.kept = Some(kept);
        } else if let Some(name) = &spec.name {
            process = process.name(name.clone());
        }
        let (handle, below) = (self.spawn)(process)?;
        let control = handle.address().control().clone();
        if let Some(kept) = &self.kept {
            kept.forward_to(&control);
        }
        let pid = self.kept.as_ref().map_or_else(|| control.head.pid(), |kept| kept.pid());
        let member = Member { control: control.into_any(), below, pid };
        let started = handle.started();
        let ended = Box::pin(Watched { handle: KillOnDrop(handle), kept: self.kept.clone() });
        let ended = match &member.below {
            Some(below) => {
                let below = Arc::clone(below);
                ended
                    .then(async move |exit| {
                        below.all_exited().await;
                        exit
                    })
                    .boxed()
            }
            None => ended,
        };
        Ok((member, Instance { id, started: Some(started), ended }))
    }

    fn close_mailbox(&mut self, exit: &Exit) {
        if let Some(kept) = self.kept.take() {
            kept.address.end_outside(exit);
        }
    }

    fn close_unused_mailbox(&mut self, exit: &Exit) {
        if self.kept.as_ref().is_some_and(|kept| kept.members.list().is_empty()) {
            self.close_mailbox(exit);
        }
    }
}

/// The running instance of a child. The message type of the instance is erased.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) control: Ref<dyn AnyControl>,
    /// The running children of this child, if this child is a supervisor.
    below: Option<Arc<LiveChildren>>,
    /// Pid for messages to the child. The pid is either the pid of the instance or the pid of the kept mailbox.
    pub(super) pid: Pid,
}

/// The running children of a supervisor. If this supervisor is killed, the supervisor cannot wait for its children. In
/// this case, the parent of this supervisor uses the list to wait for the children.
#[derive(Debug, Default)]
pub(super) struct LiveChildren(Mutex<BTreeMap<Id, Member>>);

impl LiveChildren {
    pub(super) fn insert(&self, id: Id, member: Member) {
        self.0.lock().insert(id, member);
    }

    pub(super) fn remove(&self, id: Id) -> Option<Member> {
        self.0.lock().remove(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn get(&self, id: Id) -> Option<Member> {
        self.0.lock().get(&id).cloned()
    }

    /// Resolves when all children in the list have exited. If a child is a supervisor, the future also waits for the
    /// children of this child. This function must be called after the exit of the supervisor.
    ///
    /// A child stays in the list until the child has exited. The supervisor may be killed while the supervisor polls
    /// the future. The parent of this supervisor then calls this function again, and still finds the child in the list.
    fn all_exited(&self) -> BoxFuture<'_, ()> {
        async {
            loop {
                let first = self.0.lock().first_key_value().map(|(&id, member)| (id, member.clone()));
                let Some((id, member)) = first else { return };
                Exited::new(Some(member.control)).await;
                if let Some(below) = member.below {
                    below.all_exited().await;
                }
                self.remove(id);
            }
        }
        .boxed()
    }
}

/// A running instance that the supervisor monitors. The instance reports its start and its exit. Dropping this value
/// kills the process.
pub(super) struct Instance {
    id: Id,
    started: Option<Started>,
    ended: BoxFuture<'static, Held<Exit>>,
}

/// A report of an instance.
pub(super) enum ChildReport {
    Started,
    Ended(Held<Exit>),
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instance").field(&self.id).finish()
    }
}

/// Future that returns the next report of an instance of a child. If the instance will make another report, the output
/// also contains the instance.
#[derive(Debug)]
pub(super) struct NextReport(pub(super) Option<Instance>);

impl Future for NextReport {
    type Output = (Id, ChildReport, Option<Instance>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let Some(instance) = &mut self.0 else { return Poll::Pending };
        let id = instance.id;
        if let Some(started) = &mut instance.started {
            match started.poll_without_budget(cx) {
                Poll::Ready(Ok(())) => {
                    instance.started = None;
                    return Poll::Ready((id, ChildReport::Started, self.0.take()));
                }
                // The instance has exited before its start was complete. The exit is the next report.
                Poll::Ready(Err(_)) => instance.started = None,
                Poll::Pending => {}
            }
        }
        let exit = ready!(instance.ended.as_mut().poll(cx));
        // The instance may have started and exited between the poll of `started` and the poll of `ended`. In this case,
        // this function reports the start now, and reports the exit in the next report.
        if let Some(mut started) = instance.started.take()
            && started.poll_without_budget(cx) == Poll::Ready(Ok(()))
        {
            instance.ended = Box::pin(std::future::ready(exit));
            return Poll::Ready((id, ChildReport::Started, self.0.take()));
        }
        Poll::Ready((id, ChildReport::Ended(exit), None))
    }
}

/// Future of the exit of an instance. Until the exit, each poll of the future forwards the messages that wait in the
/// kept mailbox.
struct Watched<T, N: Send + 'static> {
    handle: KillOnDrop<T, N>,
    kept: Option<Arc<PersistentMailbox<N>>>,
}

impl<T, N: Send + 'static> Future for Watched<T, N> {
    type Output = Held<Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Held<Exit>> {
        if let Some(kept) = &self.kept
            && let Err(exit) = kept.forward_waiting(cx)
        {
            match kept.address.head.cancel() {
                // The kept mailbox was cancelled, so the instance is also cancelled. A cancelled mailbox forwards no
                // more messages. Therefore the mailbox is closed, and the next instance gets a new mailbox.
                Some((reason, deadline)) if matches!(exit, Exit::Cancelled(_)) => {
                    let instance = self.handle.0.address().control().clone().into_any();
                    let host = kept.address.head.host();
                    host.cancel_until(&instance, reason, host.deadline_for(instance.head(), deadline));
                    kept.address.end_outside(&exit);
                }
                // The kept mailbox was killed, so the instance is also killed.
                _ => self.handle.0.abort(),
            }
            self.kept = None;
        }
        self.handle.poll_exit(cx)
    }
}

/// A mailbox that outlives the instances of its child. The mailbox forwards each message to the running instance, like
/// a pool with one member.
struct PersistentMailbox<N: Send + 'static> {
    address: Ref<Control<N>>,
    members: Arc<Members<N>>,
    /// While a thread reads the mailbox, the field is `None`: the thread has taken the mailbox, so that no user code
    /// runs under the lock.
    queue: Mutex<Option<Mailbox<N>>>,
}

impl<N: Send + 'static> PersistentMailbox<N> {
    fn open(supervisor: &SelfHandle<SupervisorMessage>, name: Option<Cow<'static, str>>) -> Result<Arc<Self>, Exit> {
        // The mailbox never reaches this bound. Nevertheless, the mailbox needs a bound, because only a bounded mailbox
        // can take back the messages that an instance refuses or leaves unread.
        let address = supervisor.host().outside_control(MailboxCapacity::Reject(usize::MAX));
        let queue = Mailbox::new(address.clone());
        if let Some(name) = name {
            queue.register(name).map_err(|error| {
                Exit::Refused(match error {
                    NameError::Taken { holder, .. } => SpawnErrorKind::NameTaken(holder),
                    // The mailbox was refused: all pids are in use, or the runtime has shut down.
                    NameError::Exited { .. } => match address.head.exit() {
                        Some(Exit::Refused(kind)) => kind,
                        _ => SpawnErrorKind::ShutDown,
                    },
                })
            })?;
        }
        let members = Arc::new(Members::new(Routing::Key(Box::new(|_| 0)), 1, Ref::downgrade(&address)));
        address.inbox.route_to(&*address, members.clone());
        Ok(Arc::new(Self { address, members, queue: Mutex::new(Some(queue)) }))
    }

    fn pid(&self) -> Pid {
        self.address.head.pid()
    }

    /// Returns whether the next instance needs a new kept mailbox. If the mailbox was cancelled while no instance ran,
    /// this function closes the mailbox.
    fn is_gone(&self) -> bool {
        if let Some((reason, _)) = self.address.head.cancel() {
            self.address.end_outside(&Exit::Cancelled(reason));
        }
        self.address.head.has_ended()
    }

    /// Forwards all later messages to `instance`. If the instance exits with unread messages, these messages return to
    /// the kept mailbox.
    fn forward_to(&self, instance: &Ref<Control<N>>) {
        instance.inbox.leave_to(self.members.clone());
        self.members.set(0, instance.clone());
    }

    /// Forwards the waiting messages in order, until the mailbox of the instance is full.
    fn forward_waiting(&self, cx: &mut Cx<'_>) -> Result<(), Exit> {
        let Some(mut queue) = self.queue.lock().take() else { return Ok(()) };
        let result = self.forward_waiting_from(&mut queue, cx);
        *self.queue.lock() = Some(queue);
        result
    }

    fn forward_waiting_from(&self, queue: &mut Mailbox<N>, cx: &mut Cx<'_>) -> Result<(), Exit> {
        let mut left = self.members.forward_waiting(queue, cx)?;
        if left == Some(true) {
            // If the instance frees space in its mailbox after the call of `watch`, the instance wakes the supervisor.
            // If the instance freed space before the call of `watch`, the second call of `forward_waiting` uses this
            // space.
            self.members.watch(cx.waker());
            left = self.members.forward_waiting(queue, cx)?;
        }
        if left == Some(false) {
            self.address.inbox.resume();
        }
        Ok(())
    }
}
