//! One child of a supervisor: what is said of it once, and how each of its lives is made and watched.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::behaviour::pool::members::{Members, Routing};
use crate::behaviour::supervisor::plan::{Id, Policy, Restart};
use crate::behaviour::supervisor::{Supervisor, SupervisorMessage};
use crate::context::Context;
use crate::context::address::Ended;
use crate::context::mailbox::Mailbox;
use crate::context::me::Me;
use crate::context::names::Name;
use crate::context::step::Process;
use crate::host::control::{AnyControl, Control};
use crate::host::timer::backoff::Backoff;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::catch;
use crate::process::error::SpawnError;
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::Bound;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::task::body::{BodyFuture, Large, is_large};
use crate::task::join::{JoinHandle, KillOnDrop, Started};
use crate::task::spawn::ProcessBuilder;

/// What a [`Supervisor`] is to keep alive, and how.
///
/// A child is made anew for each of its lives: its body is a function that is called again. What it captured it clones,
/// or it is given a seed that is cloned for it ([`with`](Self::with)).
///
/// ```
/// use procession::{Backoff, Bound, Child, Context, Exit, Name, Restart};
/// use std::time::Duration;
///
/// const LOG: Name<String> = Name::new("log");
/// async fn log(mut ctx: Context<String>, prefix: String) -> Result<(), Exit> {
///     loop {
///         println!("{prefix}{}", ctx.receive().await?);
///     }
/// }
/// let child = Child::with(LOG, String::from("> "), log)
///     .restart(Restart::Transient)
///     .backoff(Backoff::new(Duration::from_millis(10), Duration::from_secs(1)))
///     .options(|process| process.mailbox(Bound::Reject(1_000)))
///     .keep_mailbox();
/// # let _ = child;
/// ```
#[must_use = "a child is for a supervisor"]
pub struct Child {
    pub(super) spec: Spec,
    pub(super) make: Box<dyn Make>,
}

/// What is said of a child.
pub(super) struct Spec {
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) policy: Policy,
    /// How long it may take to end before it is killed; `None` for as long as it likes.
    pub(super) shutdown: Option<Duration>,
    pub(super) is_supervisor: bool,
    kept: bool,
    options: Option<Box<dyn Fn(ProcessBuilder) -> ProcessBuilder + Send>>,
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.spec.name).field("restart", &self.spec.policy.restart).finish()
    }
}

impl Child {
    /// An async body, under this name.
    pub fn new<N, F, Fut>(name: Name<N>, body: F) -> Self
    where
        N: Send + 'static,
        F: Fn(Context<N>) -> Fut + Send + Sync + 'static,
        Fut: BodyFuture,
    {
        Self::of_body(Some(name.as_str().into()), body)
    }

    /// An async body that is given a clone of this seed in each of its lives.
    pub fn with<N, S, F, Fut>(name: Name<N>, seed: S, body: F) -> Self
    where
        N: Send + 'static,
        S: Clone + Send + Sync + 'static,
        F: Fn(Context<N>, S) -> Fut + Send + Sync + 'static,
        Fut: BodyFuture,
    {
        Self::new(name, move |ctx| body(ctx, seed.clone()))
    }

    /// A hand-written process, or another [`Supervisor`]; made on the worker that runs its supervisor.
    pub fn process<Q: Process + Send>(name: Name<Q::Message>, make: impl Fn() -> Q + Send + Sync + 'static) -> Self {
        Self::of_process(Some(name.as_str().into()), make)
    }

    /// An async body without a name. Its supervisor knows it by its pid.
    pub fn unnamed<N, F, Fut>(body: F) -> Self
    where
        N: Send + 'static,
        F: Fn(Context<N>) -> Fut + Send + Sync + 'static,
        Fut: BodyFuture,
    {
        Self::of_body(None, body)
    }

    /// A hand-written process without a name.
    pub fn unnamed_process<Q: Process + Send>(make: impl Fn() -> Q + Send + Sync + 'static) -> Self {
        Self::of_process(None, make)
    }

    fn of_body<N, F, Fut>(name: Option<Cow<'static, str>>, body: F) -> Self
    where
        N: Send + 'static,
        F: Fn(Context<N>) -> Fut + Send + Sync + 'static,
        Fut: BodyFuture,
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
            // In a box, for a process may be too large for the stack, and is moved on from here.
            let made = catch(|| Box::new(make())).map_err(NotMade::panicked)?;
            let brood = (&*made as &dyn Any).downcast_ref::<Supervisor>().map(|below| Arc::clone(&below.brood));
            let spawned = if const { is_large::<Q, ()>() } {
                process.spawn_process(Large(made))?
            } else {
                process.spawn_process(*made)?
            };
            Ok((spawned, brood))
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
            policy: Policy { restart: Restart::default(), backoff: None },
            shutdown: if is_supervisor { None } else { Some(Duration::from_secs(5)) },
            is_supervisor,
            kept: false,
            options: None,
        };
        Self { spec, make: Box::new(Maker { spawn, kept: None }) }
    }

    /// Which of its exits are followed by another life: all, if nothing else is said.
    pub fn restart(mut self, when: Restart) -> Self {
        self.spec.policy.restart = when;
        self
    }

    /// How long to wait before another life, in place of not at all. A child that goes with another one
    /// ([`Supervisor::one_for_all`]) waits for that one's.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.spec.policy.backoff = Some(backoff);
        self
    }

    /// How long it may take to end when its supervisor tells it to, before it is killed: 5 s; a supervisor as long as it
    /// likes. With zero it is killed at once.
    pub fn shutdown(mut self, within: Duration) -> Self {
        self.spec.shutdown = Some(within);
        self
    }

    /// Its mailbox outlives it: what it had not read is there for its next life, in order, and what is sent in between
    /// too; nobody who uses its name is refused meanwhile. What it had taken and not finished is lost. Without this, what
    /// is unread goes to [dead letters](crate::Host::dead_letters), and a send in between is refused.
    ///
    /// Its name then leads to that mailbox, whose pid stays the same through all lives; killed, that takes the present life
    /// with it. A message that makes it crash is gone, for it was read. A [`Bound`] that drops messages refuses them
    /// instead.
    pub fn keep_mailbox(mut self) -> Self {
        self.spec.kept = true;
        self
    }

    /// Options for each of its lives: limits, values, a bound of the mailbox, [`ready_by_hand`]. A name that is given
    /// there does not hold.
    ///
    /// [`ready_by_hand`]: ProcessBuilder::ready_by_hand
    pub fn options(mut self, options: impl Fn(ProcessBuilder) -> ProcessBuilder + Send + 'static) -> Self {
        self.spec.options = Some(Box::new(options));
        self
    }
}

type Spawned<T, N> = (JoinHandle<T, N>, Option<Arc<LiveChildren>>);

/// What makes the lives of a child.
pub(super) trait Make: Send {
    /// Begins a life.
    fn make(&mut self, supervisor: &Me<SupervisorMessage>, id: Id, spec: &Spec) -> Result<(Member, Instance), NotMade>;
}

/// Why a life did not begin.
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
        Self::Refused(error.into())
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
    fn make(&mut self, supervisor: &Me<SupervisorMessage>, id: Id, spec: &Spec) -> Result<(Member, Instance), NotMade> {
        let mut process = supervisor.process();
        if let Some(options) = &spec.options {
            process = catch(|| options(process)).map_err(NotMade::panicked)?;
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
        let (handle, brood) = (self.spawn)(process)?;
        let control = handle.address().control().clone();
        if let Some(kept) = &self.kept {
            kept.lead_to(&control);
        }
        let pid = self.kept.as_ref().map_or_else(|| control.head.pid(), |kept| kept.pid());
        let member = Member { control: control.into_any(), brood, pid };
        let started = handle.started();
        let ended = Box::pin(Watched { handle: KillOnDrop(handle), kept: self.kept.clone() });
        let ended = match &member.brood {
            Some(brood) => {
                let brood = Arc::clone(brood);
                ended
                    .then(async move |exit| {
                        brood.gone().await;
                        exit
                    })
                    .boxed()
            }
            None => ended,
        };
        Ok((member, Instance { id, started: Some(started), ended }))
    }
}

/// A child that lives, to whoever does not know its type.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) control: Ref<dyn AnyControl>,
    /// The children of this one, if it is a supervisor.
    brood: Option<Arc<LiveChildren>>,
    /// What leads to it.
    pub(super) pid: Pid,
}

/// The children of a supervisor that live: to be found when it has been killed, and could not wait for them.
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

    /// Resolves when all of them have ended, and theirs. For after the supervisor's own end.
    fn gone(&self) -> BoxFuture<'_, ()> {
        async {
            loop {
                let Some((_, member)) = self.0.lock().pop_first() else { return };
                Ended::new(Some(member.control)).await;
                if let Some(brood) = member.brood {
                    brood.gone().await;
                }
            }
        }
        .boxed()
    }
}

/// A life that is watched: tells when it has started and when it has ended. Dropped, it kills.
pub(super) struct Instance {
    id: Id,
    started: Option<Started>,
    ended: BoxFuture<'static, Exit>,
}

/// What a life has to tell.
pub(super) enum ChildReport {
    Started,
    Ended(Exit),
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instance").field(&self.id).finish()
    }
}

/// The next news of a life, which comes back with it if there is more to come.
#[derive(Debug)]
pub(super) struct NextNews(pub(super) Option<Instance>);

impl Future for NextNews {
    type Output = (Id, ChildReport, Option<Instance>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let Some(life) = &mut self.0 else { return Poll::Pending };
        let id = life.id;
        if let Some(started) = &mut life.started {
            match started.poll_unpin(cx) {
                Poll::Ready(Ok(())) => {
                    life.started = None;
                    return Poll::Ready((id, ChildReport::Started, self.0.take()));
                }
                // Its end says the same.
                Poll::Ready(Err(_)) => life.started = None,
                Poll::Pending => {}
            }
        }
        life.ended.as_mut().poll(cx).map(|exit| (id, ChildReport::Ended(exit), None))
    }
}

/// The end of a life; meanwhile, what waits in its kept mailbox is handed on.
struct Watched<T, N: Send + 'static> {
    handle: KillOnDrop<T, N>,
    kept: Option<Arc<PersistentMailbox<N>>>,
}

impl<T, N: Send + 'static> Future for Watched<T, N> {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Exit> {
        if let Some(kept) = &self.kept
            && kept.hand_on(cx).is_err()
        {
            // Somebody has killed the mailbox, which is to say the child.
            self.handle.0.abort();
            self.kept = None;
        }
        self.handle.poll_unpin(cx).map(|result| result.err().unwrap_or(Exit::Normal))
    }
}

/// A mailbox that outlives its readers: what comes there goes on to the present one, by the way in which a pool of one
/// member does it.
struct PersistentMailbox<N: Send + 'static> {
    address: Ref<Control<N>>,
    members: Arc<Members<N>>,
    /// Taken out while it is read, so that nothing runs under the lock.
    queue: Mutex<Option<Mailbox<N>>>,
}

impl<N: Send + 'static> PersistentMailbox<N> {
    fn open(supervisor: &Me<SupervisorMessage>, name: Option<Cow<'static, str>>) -> Result<Arc<Self>, Exit> {
        // With a bound, though it is never reached: only such a queue takes back what was handed on.
        let address = supervisor.host().outside_control(Bound::Reject(usize::MAX));
        let queue = Mailbox::new(address.clone());
        if let Some(name) = name {
            queue.register(name)?;
        }
        let members = Arc::new(Members::new(Routing::Key(Box::new(|_| 0)), 1, Ref::downgrade(&address)));
        address.inbox.route_to(&*address, members.clone());
        Ok(Arc::new(Self { address, members, queue: Mutex::new(Some(queue)) }))
    }

    fn pid(&self) -> Pid {
        self.address.head.pid()
    }

    fn is_gone(&self) -> bool {
        self.address.head.has_ended()
    }

    /// What comes goes to this life from now on, and what it leaves unread comes back.
    fn lead_to(&self, life: &Ref<Control<N>>) {
        life.inbox.leave_to(self.members.clone());
        self.members.set(0, life.clone());
    }

    /// Hands on what waits, in order, as far as there is room.
    fn hand_on(&self, cx: &mut Cx<'_>) -> Result<(), Exit> {
        let Some(mut queue) = self.queue.lock().take() else { return Ok(()) };
        let handed = self.hand_on_from(&mut queue, cx);
        *self.queue.lock() = Some(queue);
        handed
    }

    fn hand_on_from(&self, queue: &mut Mailbox<N>, cx: &mut Cx<'_>) -> Result<(), Exit> {
        let mut left = self.members.hand_on(queue, cx)?;
        if left == Some(true) {
            // Whoever makes room after this wakes; whoever did before is found now.
            self.members.watch(cx.waker());
            left = self.members.hand_on(queue, cx)?;
        }
        if left == Some(false) {
            self.address.inbox.resume();
        }
        Ok(())
    }
}
