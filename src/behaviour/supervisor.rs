//! Processes that keep others alive: started in order, restarted when they end, ended in reverse.
//!
//! A supervisor is an ordinary process. What it decides is plain data, in `supervisor/plan.rs`; how a child is made and
//! watched is in `supervisor/child.rs`; here the two meet, in its step.

pub(crate) mod child;
pub(crate) mod plan;
pub(crate) mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use crate::behaviour::intensity::Intensity;
pub use crate::behaviour::supervisor::child::Child;
use crate::behaviour::supervisor::child::{ChildReport, LiveChildren, NextNews, NotMade};
pub use crate::behaviour::supervisor::plan::Restart;
use crate::behaviour::supervisor::plan::{Action, End, ExitAction, Id, Over, Phase, Plan, Strategy};
pub use crate::behaviour::supervisor::tree::{ChildState, Tree, TreeChild};
use crate::context::Context;
use crate::context::call::Reply;
use crate::context::me::Me;
use crate::context::names::Name;
use crate::context::step::{Events, Next, Process, StepOutput};
use crate::context::time::Sleep;
use crate::host::control::flag;
use crate::host::link::fate_of_peers;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::error::SpawnRefusal;
use crate::process::event::Event;
use crate::process::exit::{Exit, Reason};
use crate::process::pid::Pid;
use crate::task::body::BodyFuture;

/// How many pieces of news of its children it looks at in a step.
const NEWS_AT_ONCE: usize = 256;

/// A process that keeps others alive, after OTP's `supervisor`.
///
/// Its children are started in the order in which they were added, each when the one before it has
/// [started](crate::JoinHandle::started), and the supervisor itself has started when the last of them has. One that ends is
/// restarted as its [`Restart`] says, and others with it as the strategy says: never before its last life is over.
/// Whoever is stopped is cancelled ([`Reason::PARENT`]), in the reverse order, one after another, each with a
/// [time of its own](Child::shutdown) before it is killed.
///
/// The supervisor gives up if there are too many restarts within a sliding window ([`intensity`](Self::intensity)): it stops
/// all its children and fails with [`GaveUp`], which its own supervisor hears. A failed start counts as a restart.
///
/// The runtime can refuse a start: the limit of processes is reached, or the name is taken. As in OTP:
/// - If the first start of a child is refused, the supervisor's own start fails: it stops the children that it has started,
///   in reverse order, and fails with [`StartFailed`]. For a supervisor above it, that is a refused start too.
/// - If a restart is refused, that counts towards the intensity. The supervisor tries again after the child's
///   [back-off](Child::backoff), and after 1 ms at least.
/// - If the start of a child that was [added](SupervisorMessage::Add) is refused, the answer is the error, and the child is
///   forgotten. If a [requested](SupervisorMessage::Restart) start of a child that was down is refused, the answer is the
///   error, and the child stays down.
/// - After a shutdown of the runtime no start can succeed: the supervisor does not try again, and ends.
///
/// Cancelled, it stops its children, with the reason that it was given, and ends with that; a shutdown of the runtime ends
/// supervisors first, from the top, and what no supervisor keeps after them. So does the abnormal end of a process that it
/// is linked to. Killed, it takes its children with it, but can't wait for them; a supervisor above it does.
///
/// ```
/// use procession::{Context, Exit, Name, Reply, Runtime, Supervisor};
/// use std::time::Duration;
///
/// enum Msg { Get(Reply<u64>), Crash }
/// const COUNTER: Name<Msg> = Name::new("counter");
///
/// async fn counter(mut ctx: Context<Msg>, start: u64) -> Result<(), Exit> {
///     loop {
///         match ctx.receive().await? {
///             Msg::Get(reply) => reply.send(start),
///             Msg::Crash => panic!("boom"),
///         }
///     }
/// }
/// let rt = Runtime::new()?;
/// let tree = Supervisor::one_for_one().intensity(3, Duration::from_secs(5)).child(COUNTER, |ctx| counter(ctx, 7));
/// let tree = rt.spawn_process(tree);
/// rt.block_on(tree.started())?;
/// let first = rt.whereis(COUNTER).expect("it has started");
/// rt.send(COUNTER, Msg::Crash)?;
/// rt.block_on(rt.ended(first));
/// // Until its next life has begun, nobody has the name.
/// let seven = loop {
///     if let Ok(n) = rt.block_on(rt.call(COUNTER, Msg::Get)) {
///         break n;
///     }
/// };
/// assert_eq!(seven, 7);
/// println!("{}", rt.block_on(rt.tree(&tree))?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "a supervisor does nothing before it is spawned"]
pub struct Supervisor {
    plan: Plan,
    /// Those that were given to it before it began.
    unborn: Vec<Child>,
    children: BTreeMap<Id, ChildEntry>,
    names: BTreeMap<Cow<'static, str>, Id>,
    /// By what leads to those that live.
    pids: BTreeMap<Pid, Id>,
    brood: Arc<LiveChildren>,
    lives: FuturesUnordered<NextNews>,
    alarm: Option<(Instant, Sleep)>,
    begun: bool,
    ready: bool,
    ending: Option<Ending>,
}

/// What a supervisor did of its plan in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanProgress {
    /// There was nothing to do.
    Idle,
    /// All that could be done.
    Done,
    /// A start failed at once. The rest is for the next turn.
    NotStarted,
}

/// A child that it has.
struct ChildEntry {
    child: Child,
    restarts: u64,
    last: Option<Exit>,
    /// Who wants to know when it has started, and when it has ended.
    starters: Vec<Reply<Result<Pid, Exit>>>,
    stoppers: Vec<Reply<bool>>,
}

/// How it was told to end.
#[derive(Debug)]
struct Ending {
    exit: Exit,
    /// What its children are told.
    reason: Reason,
    deadline: Instant,
}

/// What a [`Supervisor`] does when it is asked.
///
/// A question to one that is ending is answered as for a child that is not there.
#[derive(Debug)]
#[non_exhaustive]
pub enum SupervisorMessage {
    /// Has one more child, the last in the order. Answered when it has started; or with how it ended before that: then it
    /// is none.
    Add(Child, Reply<Result<Pid, Exit>>),
    /// Stops a child, which stays one, down; a [temporary](Restart::Temporary) one is forgotten. Answered when it has ended:
    /// whether there is such a child.
    Stop(ChildKey, Reply<bool>),
    /// Begins another life of a child. If the child lives, it is stopped first. This does not count as a restart, and the
    /// child's [back-off](Child::backoff) begins anew. Answered when the child has started, or with [`Exit::NoProcess`] if
    /// there is no such child.
    Restart(ChildKey, Reply<Result<Pid, Exit>>),
    /// Stops a child and forgets it. Answered when it has ended: whether there was such a child.
    Remove(ChildKey, Reply<bool>),
    /// What it keeps, and how that is. Of the supervisors among its children, [`Host::tree`](crate::Host::tree) asks on.
    List(Reply<Tree>),
    /// How many of its children live.
    Count(Reply<usize>),
}

/// Which child is meant: the one of this name, or the one whose present life this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildKey {
    /// By its name.
    Name(Cow<'static, str>),
    /// By what leads to it.
    Pid(Pid),
}

impl<N> From<Name<N>> for ChildKey {
    fn from(name: Name<N>) -> Self {
        Self::Name(name.as_str().into())
    }
}

impl From<&'static str> for ChildKey {
    fn from(name: &'static str) -> Self {
        Self::Name(name.into())
    }
}

impl From<String> for ChildKey {
    fn from(name: String) -> Self {
        Self::Name(name.into())
    }
}

impl From<Pid> for ChildKey {
    fn from(pid: Pid) -> Self {
        Self::Pid(pid)
    }
}

/// Why a supervisor failed: a child ended more often than the [intensity](Supervisor::intensity) allows. Found by
/// [`Exit::error`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GaveUp {
    /// The child; of one without a name, its pid.
    pub child: String,
    /// How many restarts are allowed, …
    pub restarts: u32,
    /// … and within which time.
    pub within: Duration,
    /// How the child ended the last time.
    pub last: Exit,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { child, restarts, within, last } = self;
        write!(f, "the child {child} ended when no more than {restarts} restarts within {within:?} are allowed: {last}")
    }
}

// How the child ended is no source of this: it would be taken for the exit of whoever lets this error out.
impl Error for GaveUp {}

/// Error of a [`Supervisor`] that could not begin: the first start of a child was refused, because the limit of processes
/// was reached or the name was taken. [`Exit::error`] finds it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StartFailed {
    /// Name of the child, or its number in the order if it has no name.
    pub child: String,
    /// Why the start was refused.
    pub reason: Exit,
}

impl fmt::Display for StartFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the child {} could not be started: {}", self.child, self.reason)
    }
}

// The reason is no source, as in `GaveUp`.
impl Error for StartFailed {}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children: Vec<_> = self.unborn.iter().chain(self.children.values().map(|kept| &kept.child)).collect();
        f.debug_struct("Supervisor").field("strategy", &self.plan.strategy()).field("children", &children).finish()
    }
}

impl Supervisor {
    fn new(strategy: Strategy) -> Self {
        Self {
            plan: Plan::new(strategy, Intensity::new(3, Duration::from_secs(5))),
            unborn: Vec::new(),
            children: BTreeMap::new(),
            names: BTreeMap::new(),
            pids: BTreeMap::new(),
            brood: Arc::default(),
            lives: FuturesUnordered::new(),
            alarm: None,
            begun: false,
            ready: false,
            ending: None,
        }
    }

    /// A child that ends is restarted, the others do not care.
    pub fn one_for_one() -> Self {
        Self::new(Strategy::OneForOne)
    }

    /// When a child is restarted, so are all.
    pub fn one_for_all() -> Self {
        Self::new(Strategy::OneForAll)
    }

    /// When a child is restarted, so are those that were added after it.
    pub fn rest_for_one() -> Self {
        Self::new(Strategy::RestForOne)
    }

    /// How many restarts there may be within a time that slides: 3 within 5 s, if nothing else is said. A group that is
    /// restarted together counts as one.
    pub fn intensity(mut self, restarts: u32, within: Duration) -> Self {
        self.plan = Plan::new(self.plan.strategy(), Intensity::new(restarts, within));
        self
    }

    /// Has a child with this body, under this name: [`Child::new`].
    pub fn child<N, F, Fut>(self, name: Name<N>, body: F) -> Self
    where
        N: Send + 'static,
        F: Fn(Context<N>) -> Fut + Send + Sync + 'static,
        Fut: BodyFuture,
    {
        self.add(Child::new(name, body))
    }

    /// Has this child.
    #[expect(clippy::should_implement_trait, reason = "it is what one does with a child, and no sum")]
    pub fn add(mut self, child: Child) -> Self {
        self.unborn.push(child);
        self
    }

    // ---- Its children

    fn adopt(&mut self, child: Child, on_trial: bool, now: Instant) -> Id {
        let id = self.plan.add(child.spec.policy, on_trial, now);
        if let Some(name) = &child.spec.name {
            // Of two with one name the second is refused when it starts, for the name is taken.
            self.names.entry(name.clone()).or_insert(id);
        }
        let kept = ChildEntry { child, restarts: 0, last: None, starters: Vec::new(), stoppers: Vec::new() };
        self.children.insert(id, kept);
        id
    }

    fn find(&self, key: &ChildKey) -> Option<Id> {
        match key {
            ChildKey::Name(name) => self.names.get(name).copied(),
            ChildKey::Pid(pid) => self.pids.get(pid).copied(),
        }
    }

    /// Begins a life of a child. Returns false if there is none: the start failed at once.
    fn start(&mut self, me: &Me<SupervisorMessage>, id: Id) -> bool {
        let Some(ChildEntry { child: Child { spec, make }, .. }) = self.children.get_mut(&id) else { return true };
        match make.make(me, id, spec) {
            Ok((member, life)) => {
                self.pids.insert(member.pid, id);
                self.brood.insert(id, member);
                self.lives.push(NextNews(Some(life)));
                return true;
            }
            Err(NotMade::Panicked(exit)) => self.has_ended(me, id, Over::Unmade, exit),
            Err(NotMade::Refused(exit)) => {
                if exit.error() == Some(&SpawnRefusal::ShutDown) {
                    // No later start can succeed.
                    self.end(Exit::Cancelled(Reason::SHUTDOWN), Reason::SHUTDOWN, me.host().shutdown_deadline());
                }
                self.has_ended(me, id, Over::Refused, exit);
            }
        }
        false
    }

    fn stop(&self, me: &Me<SupervisorMessage>, id: Id) {
        let (Some(kept), Some(member)) = (self.children.get(&id), self.brood.get(id)) else { return };
        let (reason, latest) = match &self.ending {
            Some(ending) => (ending.reason.clone(), ending.deadline),
            None => (Reason::PARENT, Instant::FAR),
        };
        let deadline = match kept.child.spec.shutdown {
            Some(Duration::ZERO) => return member.control.kill(),
            Some(within) => (me.now() + within).min(latest),
            None => latest,
        };
        member.control.cancel(reason, deadline);
        // Also of one that somebody else has told to end, with more time.
        if deadline < Instant::FAR {
            me.host().kill_at(&member.control, deadline);
        }
    }

    fn has_started(&mut self, me: &Me<SupervisorMessage>, id: Id) {
        self.plan.started(id, me.now());
        if let Some(kept) = self.children.get_mut(&id)
            && let Some(Phase::Up(_)) = self.plan.phase(id)
            && let Some(member) = self.brood.get(id)
        {
            kept.starters.drain(..).for_each(|reply| reply.send(Ok(member.pid)));
        }
    }

    /// A life of a child has ended: its start counts as refused if the child is a supervisor and that is why it ended.
    fn life_has_ended(&mut self, me: &Me<SupervisorMessage>, id: Id, exit: Exit) {
        let is_supervisor = self.children.get(&id).is_some_and(|kept| kept.child.spec.is_supervisor);
        let was_refused = is_supervisor && exit.error::<StartFailed>().is_some();
        self.has_ended(me, id, if was_refused { Over::Refused } else { Over::Ended }, exit);
    }

    fn has_ended(&mut self, me: &Me<SupervisorMessage>, id: Id, over: Over, exit: Exit) {
        if let Some(member) = self.brood.remove(id) {
            self.pids.remove(&member.pid);
        }
        let fate = self.plan.exited(id, over, &exit, me.now(), || me.random());
        let Some(kept) = self.children.get_mut(&id) else { return };
        kept.last = Some(exit);
        kept.restarts += u64::from(fate == ExitAction::Again);
        self.settle(id, fate);
    }

    /// What is owed to those who wait for a child to end or to start, now that this has come of it.
    fn settle(&mut self, id: Id, fate: ExitAction) {
        let Some(kept) = self.children.get_mut(&id) else { return };
        if fate == ExitAction::Again {
            return;
        }
        let exit = kept.last.clone().unwrap_or(Exit::NoProcess);
        kept.starters.drain(..).for_each(|reply| reply.send(Err(exit.clone())));
        kept.stoppers.drain(..).for_each(|reply| reply.send(true));
        if fate == ExitAction::Forgotten {
            if let Some(name) = &kept.child.spec.name
                && self.names.get(name) == Some(&id)
            {
                self.names.remove(name);
            }
            self.children.remove(&id);
        }
    }

    // ---- What it hears

    fn answer(&mut self, me: &Me<SupervisorMessage>, message: SupervisorMessage) {
        match message {
            SupervisorMessage::Add(_, reply) if self.plan.is_ending() => {
                reply.send(Err(Exit::Refused(Reason::from("its supervisor ends"))));
            }
            SupervisorMessage::Add(child, reply) => {
                let taken = child.spec.name.as_ref().filter(|name| self.names.contains_key(*name));
                if let Some(name) = taken {
                    return reply.send(Err(Exit::Refused(Reason::from(format!("there is a child {name} already")))));
                }
                let id = self.adopt(child, true, me.now());
                self.kept(id).starters.push(reply);
            }
            SupervisorMessage::Stop(key, reply) => self.put_down(&key, reply, Plan::stop),
            SupervisorMessage::Remove(key, reply) => self.put_down(&key, reply, Plan::remove),
            SupervisorMessage::Restart(key, reply) => match self.find(&key) {
                Some(id) if self.plan.restart(id, me.now()) => self.kept(id).starters.push(reply),
                _ => reply.send(Err(Exit::NoProcess)),
            },
            SupervisorMessage::List(reply) => reply.send(self.tree(me.pid())),
            SupervisorMessage::Count(reply) => reply.send(self.brood.len()),
        }
    }

    fn put_down(&mut self, key: &ChildKey, reply: Reply<bool>, how: fn(&mut Plan, Id) -> Option<ExitAction>) {
        match self.find(key) {
            Some(id) if !self.plan.is_ending() => {
                self.kept(id).stoppers.push(reply);
                if let Some(fate) = how(&mut self.plan, id) {
                    self.settle(id, fate);
                }
            }
            _ => reply.send(false),
        }
    }

    fn kept(&mut self, id: Id) -> &mut ChildEntry {
        self.children.get_mut(&id).expect("it was found")
    }

    fn end(&mut self, exit: Exit, reason: Reason, deadline: Instant) {
        self.plan.shut_down();
        self.ending.get_or_insert(Ending { exit, reason, deadline });
    }

    fn begin(&mut self, me: &Me<SupervisorMessage>) {
        self.begun = true;
        let control = me.any();
        // It says itself when it has started.
        control.head().set(flag::BY_HAND);
        if !control.head().has(flag::SUPERVISED) {
            me.host().root_begins(&*control);
        }
        me.trap_exit(true);
        for child in std::mem::take(&mut self.unborn) {
            self.adopt(child, false, me.now());
        }
    }

    /// Hears what its children do; false if there may be more to hear.
    fn listen(&mut self, me: &Me<SupervisorMessage>, cx: &mut Cx<'_>) -> bool {
        for _ in 0..NEWS_AT_ONCE {
            let Poll::Ready(Some((id, news, life))) = self.lives.poll_next_unpin(cx) else { return true };
            match news {
                ChildReport::Started => self.has_started(me, id),
                ChildReport::Ended(exit) => self.life_has_ended(me, id, exit),
            }
            if let Some(life) = life {
                self.lives.push(NextNews(Some(life)));
            }
        }
        false
    }

    /// Does what the plan says. A start that fails at once ends the turn: the next start may fail at once too, and then a
    /// loop here has no end.
    fn act(&mut self, me: &Me<SupervisorMessage>) -> PlanProgress {
        let mut acted = PlanProgress::Idle;
        while let Some(action) = self.plan.next(me.now()) {
            acted = PlanProgress::Done;
            match action {
                Action::Start(id) if !self.start(me, id) => return PlanProgress::NotStarted,
                Action::Start(_) => {}
                Action::Stop(id) => self.stop(me, id),
            }
        }
        acted
    }

    /// Sees to it that it is stepped when the plan has something to do next; true if that is now.
    fn set_alarm(&mut self, me: &Me<SupervisorMessage>, cx: &mut Cx<'_>) -> bool {
        let next = self.plan.next_time();
        if self.alarm.as_ref().map(|&(at, _)| at) != next {
            self.alarm = next.map(|at| (at, me.sleep_until(at)));
        }
        self.alarm.as_mut().is_some_and(|(_, sleep)| sleep.poll_unpin(cx).is_ready())
    }

    fn exit(&self, end: &End) -> Exit {
        let name = |id: &Id| {
            let name = self.children.get(id).and_then(|kept| kept.child.spec.name.as_deref());
            name.map_or_else(|| format!("number {id}"), str::to_owned)
        };
        match (end, &self.ending) {
            (End::StartFailed(id, reason), _) => Exit::failed(StartFailed { child: name(id), reason: reason.clone() }),
            (End::GaveUp(id, last), _) => {
                let child = name(id);
                let intensity = self.plan.intensity();
                let (restarts, within) = (intensity.most(), intensity.within());
                Exit::failed(GaveUp { child, restarts, within, last: last.clone() })
            }
            (End::Asked, Some(ending)) => ending.exit.clone(),
            (End::Asked, None) => Exit::Normal,
        }
    }
}

impl Process for Supervisor {
    type Message = SupervisorMessage;
    type Output = ();

    fn step(
        &mut self,
        events: Events<'_, SupervisorMessage>,
        out: &mut StepOutput<'_, SupervisorMessage>,
    ) -> Result<Next<()>, Exit> {
        let me: &Me<SupervisorMessage> = out;
        let mut cx = Cx::from_waker(out.waker());
        if !self.begun {
            self.begin(me);
        }
        for event in events {
            match event {
                Event::Message(message) => self.answer(me, message),
                Event::Cancel { reason, deadline } => {
                    self.end(Exit::Cancelled(reason.clone()), reason, deadline);
                }
                Event::Exit { from, reason } if !reason.is_normal() => {
                    self.end(fate_of_peers(from, &reason), Reason::PARENT, Instant::FAR);
                }
                _ => {}
            }
        }
        loop {
            let heard_all = self.listen(me, &mut cx);
            if let Some(end) = self.plan.ended() {
                return Err(self.exit(end));
            }
            let acted = self.act(me);
            if !heard_all || acted == PlanProgress::NotStarted {
                return Ok(Next::Again);
            }
            if acted == PlanProgress::Idle && !self.set_alarm(me, &mut cx) {
                break;
            }
        }
        if let Some(end) = self.plan.ended() {
            return Err(self.exit(end));
        }
        if !self.ready && self.plan.is_settled() {
            self.ready = true;
            me.ready();
        }
        Ok(Next::Wait)
    }
}
