//! Supervisors. A supervisor starts its children in order, restarts children that exit, and stops the children in
//! reverse order.
//!
//! A supervisor is an ordinary process. `supervisor/plan.rs` decides which children to start and stop, without side
//! effects. `supervisor/child.rs` spawns and monitors the children. The method `Supervisor::step` in this file
//! executes the plan.

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
use crate::behaviour::supervisor::child::{ChildReport, LiveChildren, NextReport, NotMade};
pub use crate::behaviour::supervisor::plan::RestartPolicy;
use crate::behaviour::supervisor::plan::{Action, End, ExitAction, Id, Over, Plan, Strategy};
pub use crate::behaviour::supervisor::tree::{ChildInfo, ChildState, SupervisionTree};
use crate::context::Context;
use crate::context::call::Reply;
use crate::context::me::SelfHandle;
use crate::context::names::{IntoName, Name};
use crate::context::step::{Events, Next, Process, StepOutput};
use crate::context::time::Sleep;
use crate::host::Phase;
use crate::host::control::flag;
use crate::host::link::exit_for_peers;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::Held;
use crate::process::error::SpawnErrorKind;
use crate::process::event::Event;
use crate::process::exit::{Exit, Reason};
use crate::process::pid::Pid;
use crate::task::body::Body;

/// Maximum number of child reports that a supervisor handles in one step.
const REPORTS_AT_ONCE: usize = 256;

/// Process that supervises its children. The design follows OTP's `supervisor`.
///
/// The children are started in the order in which they were added. Each child is started when the previous child has
/// [started](crate::JoinHandle::started). The start of the supervisor is complete when its last child has started.
///
/// If a child exits, its [`RestartPolicy`] determines whether the child is restarted. The restart happens only after
/// the previous instance has exited. The strategy determines which other children are also restarted. To stop a child,
/// the supervisor cancels the child with [`Reason::PARENT`]. Children are stopped in reverse order, one after another.
/// But in a running one-for-one supervisor, the requested stop of a child does not delay the other children. If a child
/// does not exit within [its time limit](Child::shutdown), the child is killed.
///
/// If there are more restarts within a sliding window than the [`intensity`](Self::intensity) allows, the supervisor
/// stops all its children and fails with [`SupervisorError::RestartIntensityExceeded`]. The parent supervisor receives
/// this exit. A failed start counts as a restart.
///
/// The runtime can refuse a start, because the limit of processes is reached or the name is taken. For a refused start,
/// the rules are the same as in OTP:
/// - If the first start of a child is refused, the supervisor's own start fails. The supervisor stops the children
///   that have been started, in reverse order, and fails with [`SupervisorError::StartFailed`]. The parent supervisor
///   handles this failure as a refused start.
/// - If a restart is refused, the refusal counts towards the intensity. The supervisor tries again after the child's
///   [back-off](Child::backoff), and at the earliest after 1 ms.
/// - If the start of a child that was [added](SupervisorMessage::StartChild) is refused, the answer is the error, and
///   the child is removed. If a [requested](SupervisorMessage::RestartChild) start of a stopped child is refused, the
///   answer is the error, and the child stays stopped.
/// - After a shutdown of the runtime, no start can succeed. Therefore the supervisor does not try again, and exits.
///
/// If a supervisor is cancelled, the supervisor stops its children with the same reason, and exits with this reason. A
/// token or a deadline of the supervisor may cancel a process that a child has spawned, and only later cancel the
/// supervisor. If the child then exits with [`Exit::Cancelled`], the supervisor does not restart the child. A shutdown
/// of the runtime first cancels the supervisors, from the top of the tree, and then cancels the processes without a
/// supervisor. If a linked process exits abnormally, the supervisor also stops its children and exits. If a supervisor
/// is killed, its children are also killed, but the supervisor cannot wait for the exits of its children. The parent
/// supervisor then waits for these exits.
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
/// rt.block_on(rt.exited(first));
/// // Until the child has been restarted, the name is free.
/// let seven = loop {
///     if let Ok(n) = rt.block_on(rt.call(COUNTER, Msg::Get)) {
///         break n;
///     }
/// };
/// assert_eq!(seven, 7);
/// println!("{}", rt.block_on(rt.supervision_tree(&tree))?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "a supervisor does nothing before it is spawned"]
pub struct Supervisor {
    plan: Plan,
    /// The children that were added before the supervisor was spawned.
    initial_children: Vec<Child>,
    children: BTreeMap<Id, ChildEntry>,
    names: BTreeMap<Cow<'static, str>, Id>,
    /// Maps the pid of each running instance, and the pid of each kept mailbox, to the identifier of the child.
    pids: BTreeMap<Pid, Id>,
    live_children: Arc<LiveChildren>,
    instances: FuturesUnordered<NextReport>,
    alarm: Option<(Instant, Sleep)>,
    begun: bool,
    ready: bool,
    ending: Option<Ending>,
}

/// Result of one call of [`Supervisor::act`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanProgress {
    /// There was no action to execute.
    Idle,
    /// The call has executed all actions that were possible at the time of the call.
    Done,
    /// A start failed immediately. The remaining actions are executed in the next step.
    NotStarted,
}

/// A child of a supervisor, with the history and the pending replies of the child.
struct ChildEntry {
    child: Child,
    restarts: u64,
    /// Last exit of the child. The error in the exit is a user value.
    last: Option<Held<Exit>>,
    /// Pid of the mailbox that the supervisor keeps for the next instance of the child. The pid identifies the child
    /// until the mailbox is closed or replaced.
    mailbox: Option<Pid>,
    /// `starters` are the callers that wait until the child has started. `stoppers` are the callers that wait until the
    /// child has exited.
    starters: Vec<Reply<Result<Pid, Exit>>>,
    stoppers: Vec<Reply<bool>>,
    /// Whether the child was added while the supervisor ran.
    is_dynamic: bool,
}

/// The requested end of the supervisor: its exit, and the reason and the deadline for the cancellation of its children.
/// If the supervisor already exits because of `End::GaveUp` or `End::StartFailed`, `exit` is not used.
#[derive(Debug)]
struct Ending {
    exit: Held<Exit>,
    /// Reason for the cancellation of the children.
    reason: Reason,
    deadline: Instant,
}

/// Request to a [`Supervisor`].
///
/// While a supervisor stops its children before its own exit, the supervisor refuses [`StartChild`](Self::StartChild)
/// with [`Exit::Refused`] and [`SpawnErrorKind::SupervisorExiting`]. A supervisor that stops its children before its
/// own exit answers all other requests for a child as if the child did not exist.
#[derive(Debug)]
#[non_exhaustive]
pub enum SupervisorMessage {
    /// Appends a child to the list of children. The answer is sent when the child has started. If the child exits
    /// before it has started, the answer is the exit of the child, and the child is removed. But if
    /// [`TerminateChild`](Self::TerminateChild) stops the child before the child has started, the rules of
    /// `TerminateChild` determine whether the child is removed. If another child has the same name, the answer is
    /// [`Exit::Refused`] with [`SpawnErrorKind::NameTaken`] or, if no instance of the other child runs,
    /// [`SpawnErrorKind::AlreadyPresent`].
    StartChild(Child, Reply<Result<Pid, Exit>>),
    /// Stops a child. The supervisor keeps the specification of the child, but does not restart the child. A
    /// [temporary](RestartPolicy::Temporary) child is removed. An unnamed child that was added by
    /// [`StartChild`](Self::StartChild) is also removed, because no later request could name this child. When the child
    /// has exited, the supervisor answers true. If there is no such child, the supervisor answers false.
    TerminateChild(ChildId, Reply<bool>),
    /// Restarts a child. If the child runs, the supervisor first stops the child. If the child is in its first start,
    /// the later children wait until the new instance has started. This request does not count towards the intensity,
    /// and resets the child's [back-off](Child::backoff). The answer is sent when the child has started. If the
    /// supervisor does not have this child, the answer is [`Exit::NoProcess`].
    RestartChild(ChildId, Reply<Result<Pid, Exit>>),
    /// Stops a child and removes the child from the supervisor. When the child has exited, the supervisor answers true.
    /// If the supervisor does not have this child, the supervisor answers false.
    DeleteChild(ChildId, Reply<bool>),
    /// Lists the children and their states. [`Host::supervision_tree`](crate::Host::supervision_tree) also lists the
    /// children of each child that is a supervisor.
    WhichChildren(Reply<SupervisionTree>),
    /// Counts the children that have a running instance.
    CountChildren(Reply<usize>),
}

/// Identifies a child, either by its name or by the pid of its running instance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ChildId {
    /// Name of the child.
    Name(Cow<'static, str>),
    /// Pid of the running instance, or of the [kept mailbox](Child::keep_mailbox) of the child. The pid of a kept
    /// mailbox also identifies the child while no instance runs.
    Pid(Pid),
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Pid(pid) => pid.fmt(f),
        }
    }
}

impl From<Cow<'static, str>> for ChildId {
    fn from(name: Cow<'static, str>) -> Self {
        Self::Name(name)
    }
}

impl<N> From<Name<N>> for ChildId {
    fn from(name: Name<N>) -> Self {
        Self::Name(name.as_str().into())
    }
}

impl From<&'static str> for ChildId {
    fn from(name: &'static str) -> Self {
        Self::Name(name.into())
    }
}

impl From<String> for ChildId {
    fn from(name: String) -> Self {
        Self::Name(name.into())
    }
}

impl From<Pid> for ChildId {
    fn from(pid: Pid) -> Self {
        Self::Pid(pid)
    }
}

/// Error of a [`Supervisor`] that failed. [`Exit::error`] returns this error.
///
/// The exit of the child is not the `source` of this error. Otherwise, if a process failed with this error, the exit of
/// the process would be the exit of the child, and would not contain this error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SupervisorError {
    /// A child exited or failed to start, and its restart would exceed the [intensity](Supervisor::intensity) of the
    /// supervisor.
    RestartIntensityExceeded {
        /// Name of the child. If the child has no name, this field is `number n`. The supervisor numbers the children
        /// from 0 in the order in which they were added. No later child gets the number of a removed child.
        child: String,
        /// Maximum number of restarts within the window.
        restarts: u32,
        /// Length of the sliding window.
        within: Duration,
        /// Last exit of the child.
        last: Exit,
    },
    /// The supervisor could not start, because the first start of a child was refused. The cause is the limit of
    /// processes or a name that was taken.
    StartFailed {
        /// Name of the child. If the child has no name, this field is `number n`. The supervisor numbers the children
        /// from 0 in the order in which they were added. No later child gets the number of a removed child.
        child: String,
        /// Reason of the refusal.
        exit: Exit,
    },
}

impl fmt::Display for SupervisorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestartIntensityExceeded { child, restarts, within, last } => write!(
                f,
                "child `{child}` exceeded the restart intensity of {restarts} in {within:?} (see `Supervisor::intensity`); \
                 its last exit: {last}"
            ),
            Self::StartFailed { child, exit } => write!(f, "child `{child}` could not be started: {exit}"),
        }
    }
}

impl Error for SupervisorError {}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children: Vec<_> =
            self.initial_children.iter().chain(self.children.values().map(|kept| &kept.child)).collect();
        f.debug_struct("Supervisor").field("strategy", &self.plan.strategy()).field("children", &children).finish()
    }
}

impl Supervisor {
    fn new(strategy: Strategy) -> Self {
        Self {
            plan: Plan::new(strategy, Intensity::new(3, Duration::from_secs(5))),
            initial_children: Vec::new(),
            children: BTreeMap::new(),
            names: BTreeMap::new(),
            pids: BTreeMap::new(),
            live_children: Arc::default(),
            instances: FuturesUnordered::new(),
            alarm: None,
            begun: false,
            ready: false,
            ending: None,
        }
    }

    /// Creates a one-for-one supervisor. Only the child that exited is restarted.
    pub fn one_for_one() -> Self {
        Self::new(Strategy::OneForOne)
    }

    /// Creates a one-for-all supervisor. When a child is restarted, all other running children are also restarted. In
    /// contrast to OTP, a child that has finished or was stopped on request stays down.
    pub fn one_for_all() -> Self {
        Self::new(Strategy::OneForAll)
    }

    /// Creates a rest-for-one supervisor. When a child is restarted, all running children that were added after this
    /// child are also restarted. In contrast to OTP, a child that has finished or was stopped on request stays down.
    pub fn rest_for_one() -> Self {
        Self::new(Strategy::RestForOne)
    }

    /// Sets the maximum number of restarts within a sliding window. Default: 3 within 5 s. If several children are
    /// restarted together, their restart counts as one restart.
    pub fn intensity(mut self, restarts: u32, within: Duration) -> Self {
        self.plan = Plan::new(self.plan.strategy(), Intensity::new(restarts, within));
        self
    }

    /// Adds a child with this body and name: see [`Child::new`].
    pub fn child<N, F, Fut>(self, name: impl IntoName<N>, body: F) -> Self
    where
        N: Send + 'static,
        F: Body<N, Future = Fut> + Fn(Context<N>) -> Fut + Sync,
        Fut: Future,
    {
        self.add(Child::new(name, body))
    }

    /// Adds a child. The children start in the order in which they are added.
    #[expect(clippy::should_implement_trait, reason = "it is what one does with a child, and no sum")]
    pub fn add(mut self, child: Child) -> Self {
        self.initial_children.push(child);
        self
    }

    // ---- Children

    fn adopt(&mut self, child: Child, on_trial: bool, now: Instant) -> Id {
        let id = self.plan.add(child.spec.policy, on_trial, now);
        if let Some(name) = &child.spec.name {
            // If two children have the same name, the start of the second child is refused, because the name is taken.
            self.names.entry(name.clone()).or_insert(id);
        }
        let kept = ChildEntry {
            child,
            restarts: 0,
            last: None,
            mailbox: None,
            starters: Vec::new(),
            stoppers: Vec::new(),
            is_dynamic: on_trial,
        };
        self.children.insert(id, kept);
        id
    }

    fn find(&self, key: &ChildId) -> Option<Id> {
        match key {
            ChildId::Name(name) => self.names.get(name).copied(),
            ChildId::Pid(pid) => self.pids.get(pid).copied(),
        }
    }

    /// Starts a child. Returns false if the start failed immediately.
    fn start(&mut self, me: &SelfHandle<SupervisorMessage>, id: Id) -> bool {
        let Some(ChildEntry { child: Child { spec, make }, mailbox, .. }) = self.children.get_mut(&id) else {
            return true;
        };
        match make.get_mut().make(me, id, spec) {
            Ok((member, instance)) => {
                let own = member.control.head().pid();
                // If the child has a kept mailbox, `member.pid` is the pid of this mailbox.
                let kept = Some(member.pid).filter(|pid| *pid != own);
                if let Some(former) = std::mem::replace(mailbox, kept) {
                    self.pids.remove(&former);
                }
                self.pids.insert(own, id);
                if let Some(kept) = kept {
                    self.pids.insert(kept, id);
                }
                self.live_children.insert(id, member);
                self.instances.push(NextReport(Some(instance)));
                return true;
            }
            Err(NotMade::Panicked(exit)) => self.has_ended(me, id, Over::Unmade, Held::new(exit)),
            Err(NotMade::Refused(exit)) => {
                if exit == Exit::Refused(SpawnErrorKind::ShutDown) && me.host().phase() != Phase::Open {
                    // After the shutdown of the runtime, no later start can succeed. If only the runtime of the child
                    // has shut down, the refused start counts towards the restart intensity.
                    self.end(Exit::Cancelled(Reason::SHUTDOWN), Reason::SHUTDOWN, me.host().shutdown_deadline());
                }
                self.has_ended(me, id, Over::Refused, Held::new(exit));
            }
        }
        false
    }

    fn stop(&self, me: &SelfHandle<SupervisorMessage>, id: Id) {
        let (Some(kept), Some(member)) = (self.children.get(&id), self.live_children.get(id)) else { return };
        // The child may belong to another runtime, and each runtime has its own clock.
        let head = member.control.head();
        let (reason, latest) = match &self.ending {
            Some(ending) => (ending.reason.clone(), me.host().deadline_for(head, ending.deadline)),
            None => (Reason::PARENT, Instant::FAR),
        };
        let deadline = match kept.child.spec.shutdown {
            Some(Duration::ZERO) => return member.control.kill(),
            Some(within) => (head.host().now() + within).min(latest),
            None => latest,
        };
        me.host().cancel_by(&member.control, reason, deadline);
    }

    /// Handles the report that an instance of a child has started, and answers the callers that wait for the start. If
    /// the supervisor must stop this instance, the callers get the pid of the next instance, or the exit.
    fn has_started(&mut self, me: &SelfHandle<SupervisorMessage>, id: Id) {
        self.plan.started(id, me.now());
        if let Some(kept) = self.children.get_mut(&id)
            && !kept.starters.is_empty()
            && self.plan.is_up_with_no_stop_planned(id)
            && let Some(member) = self.live_children.get(id)
        {
            kept.starters.drain(..).for_each(|reply| reply.send(Ok(member.pid)));
        }
    }

    /// Handles the exit of an instance of a child. If the child is a supervisor that failed with `StartFailed`, the
    /// start of this child counts as refused.
    fn instance_has_exited(&mut self, me: &SelfHandle<SupervisorMessage>, id: Id, exit: Held<Exit>) {
        // The check of the error calls user code, so only the error of a supervisor is checked. Most exits have no
        // error, so most exits need no look-up of the child.
        let over = if exit.get().source_of_other().is_some()
            && self.children.get(&id).is_some_and(|kept| kept.child.spec.is_supervisor)
            && matches!(exit.get().error(), Some(SupervisorError::StartFailed { .. }))
        {
            Over::Refused
        } else if me.control().head.shares_cancellation(exit.get()) {
            // The child may wait for a process that the child has spawned. A cancellation may reach this process
            // earlier than the supervisor. The exit of this process may then end the child.
            Over::Cancelled
        } else {
            Over::Ended
        };
        self.has_ended(me, id, over, exit);
    }

    fn has_ended(&mut self, me: &SelfHandle<SupervisorMessage>, id: Id, over: Over, exit: Held<Exit>) {
        if let Some(member) = self.live_children.remove(id) {
            self.pids.remove(&member.control.head().pid());
        }
        let action = self.plan.exited(id, over, exit.get(), me.now(), || me.random());
        if action == ExitAction::Again {
            me.host().report_restart(me.pid(), || self.name(id), exit.get());
        }
        let Some(kept) = self.children.get_mut(&id) else { return };
        match action {
            ExitAction::Again => {
                kept.last = Some(exit);
                kept.restarts += 1;
                // The callers in `stoppers` have requested the stop of an instance. This instance has exited, so the
                // requests succeed, even if another instance starts now.
                kept.stoppers.drain(..).for_each(|reply| reply.send(true));
                return;
            }
            ExitAction::Down => kept.child.make.get_mut().close_unused_mailbox(exit.get()),
            ExitAction::Finished | ExitAction::Forgotten => {
                kept.child.make.get_mut().close_mailbox(exit.get());
                if let Some(mailbox) = kept.mailbox.take() {
                    self.pids.remove(&mailbox);
                }
            }
        }
        kept.last = Some(exit);
        self.settle(id, action);
    }

    /// Answers the callers that wait for the exit or for the start of a child. The plan has decided not to start the
    /// child again.
    fn settle(&mut self, id: Id, mut action: ExitAction) {
        debug_assert_ne!(action, ExitAction::Again);
        let Some(kept) = self.children.get_mut(&id) else { return };
        if action != ExitAction::Forgotten && kept.is_dynamic && kept.child.spec.name.is_none() {
            // No request can address this child any more, because the child has neither a name nor an instance. The
            // kept mailbox of the child is closed together with the child.
            action = self.plan.forget(id);
        }
        let exit = kept.last.clone().unwrap_or(Held::new(Exit::NoProcess));
        kept.starters.drain(..).for_each(|reply| reply.send(Err(exit.get().clone())));
        kept.stoppers.drain(..).for_each(|reply| reply.send(true));
        if action == ExitAction::Forgotten {
            if let Some(name) = &kept.child.spec.name
                && self.names.get(name) == Some(&id)
            {
                self.names.remove(name);
            }
            if let Some(mailbox) = self.children.remove(&id).and_then(|gone| gone.mailbox) {
                self.pids.remove(&mailbox);
            }
        }
    }

    // ---- Requests and reports

    fn answer(&mut self, me: &SelfHandle<SupervisorMessage>, message: SupervisorMessage) {
        match message {
            SupervisorMessage::StartChild(_, reply) if self.plan.is_ending() => {
                reply.send(Err(Exit::Refused(SpawnErrorKind::SupervisorExiting)));
            }
            SupervisorMessage::StartChild(child, reply) => {
                if let Some(present) = child.spec.name.as_ref().and_then(|name| self.names.get(name)) {
                    let refusal = match self.live_children.get(*present) {
                        Some(member) => SpawnErrorKind::NameTaken(member.pid),
                        None => SpawnErrorKind::AlreadyPresent,
                    };
                    reply.send(Err(Exit::Refused(refusal)));
                    return;
                }
                let id = self.adopt(child, true, me.now());
                self.kept(id).starters.push(reply);
            }
            SupervisorMessage::TerminateChild(key, reply) => self.put_down(&key, reply, Plan::stop),
            SupervisorMessage::DeleteChild(key, reply) => self.put_down(&key, reply, Plan::remove),
            SupervisorMessage::RestartChild(key, reply) => match self.find(&key) {
                Some(id) if self.plan.restart(id, me.now()) => self.kept(id).starters.push(reply),
                _ => reply.send(Err(Exit::NoProcess)),
            },
            SupervisorMessage::WhichChildren(reply) => reply.send(self.tree(me.pid(), me.now())),
            SupervisorMessage::CountChildren(reply) => reply.send(self.live_children.len()),
        }
    }

    fn put_down(&mut self, key: &ChildId, reply: Reply<bool>, how: fn(&mut Plan, Id) -> Option<ExitAction>) {
        match self.find(key) {
            Some(id) if !self.plan.is_ending() => {
                self.kept(id).stoppers.push(reply);
                if let Some(action) = how(&mut self.plan, id) {
                    self.settle(id, action);
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
        // If the supervisor has already stored an earlier exit, the new exit is dropped. This exit may hold the last
        // reference to the error of a linked process. Therefore `Held` catches a panic of the drop.
        let exit = Held::new(exit);
        self.ending.get_or_insert(Ending { exit, reason, deadline });
    }

    fn begin(&mut self, me: &SelfHandle<SupervisorMessage>) {
        self.begun = true;
        let control = me.any();
        // A supervisor reports its own start after all its children have started.
        control.head().set(flag::MANUAL_START);
        if !control.head().has(flag::SUPERVISED) {
            me.host().register_top_level_supervisor(&*control);
        }
        me.trap_exit(true);
        for child in std::mem::take(&mut self.initial_children) {
            self.adopt(child, false, me.now());
        }
    }

    /// Handles at most `left` reports of the children, and subtracts the number of handled reports from `left`. Returns
    /// false if more reports may be waiting.
    fn listen(&mut self, me: &SelfHandle<SupervisorMessage>, cx: &mut Cx<'_>, left: &mut usize) -> bool {
        while *left > 0 {
            let Poll::Ready(Some((id, report, instance))) = self.instances.poll_next_unpin(cx) else { return true };
            *left -= 1;
            match report {
                ChildReport::Started => self.has_started(me, id),
                ChildReport::Ended(exit) => self.instance_has_exited(me, id, exit),
            }
            if let Some(instance) = instance {
                self.instances.push(NextReport(Some(instance)));
            }
        }
        false
    }

    /// Executes the actions of the plan. If a start fails immediately, this function returns, and the next step
    /// executes the remaining actions. A loop over all actions might never end, because each further start may also
    /// fail immediately.
    fn act(&mut self, me: &SelfHandle<SupervisorMessage>) -> PlanProgress {
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

    /// Sets the timer for the next action of the plan. Returns true if this action is due now.
    fn set_alarm(&mut self, me: &SelfHandle<SupervisorMessage>, cx: &mut Cx<'_>) -> bool {
        let next = self.plan.next_time();
        if self.alarm.as_ref().map(|&(at, _)| at) != next {
            self.alarm = next.map(|at| (at, me.sleep_until(at)));
        }
        self.alarm.as_mut().is_some_and(|(_, sleep)| sleep.poll_unpin(cx).is_ready())
    }

    /// Returns the name that errors and reports show for a child.
    fn name(&self, id: Id) -> String {
        let name = self.children.get(&id).and_then(|kept| kept.child.spec.name.as_deref());
        name.map_or_else(|| format!("number {id}"), str::to_owned)
    }

    /// Returns the exit of the supervisor. The process may then continue with code other than the supervisor. This code
    /// again receives the messages of the process.
    fn finish(&self, me: &SelfHandle<SupervisorMessage>, end: &End) -> Exit {
        me.control().head.set_ignores_messages(false);
        self.exit(end)
    }

    fn exit(&self, end: &End) -> Exit {
        match (end, &self.ending) {
            (End::StartFailed(id, reason), _) => {
                Exit::failed(SupervisorError::StartFailed { child: self.name(*id), exit: reason.clone() })
            }
            (End::GaveUp(id, last), _) => {
                let child = self.name(*id);
                let intensity = self.plan.intensity();
                let (restarts, within) = (intensity.most(), intensity.within());
                Exit::failed(SupervisorError::RestartIntensityExceeded { child, restarts, within, last: last.clone() })
            }
            (End::Asked, Some(ending)) => ending.exit.get().clone(),
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
        let me: &SelfHandle<SupervisorMessage> = out;
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
                Event::Exit { from, exit: reason } if !reason.is_normal() => {
                    let reason = Held::new(reason);
                    self.end(exit_for_peers(from, reason.get()), Reason::PARENT, Instant::FAR);
                }
                _ => {}
            }
        }
        if self.plan.is_ending() {
            // The supervisor still answers requests, but its shutdown ends only when its children have exited.
            me.control().head.set_ignores_messages(true);
        }
        // The children can exit on other workers during this step, so each pass of this loop may receive new reports.
        // All passes share one limit. Without this limit, the step might never end, and the supervisor could not be
        // killed.
        let mut left = REPORTS_AT_ONCE;
        loop {
            let heard_all = self.listen(me, &mut cx, &mut left);
            if let Some(end) = self.plan.ended() {
                return Err(self.finish(me, end));
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
            return Err(self.finish(me, end));
        }
        if !self.ready && self.plan.is_settled() {
            self.ready = true;
            me.mark_started();
        }
        Ok(Next::Wait)
    }
}
