//! The plan makes the decisions of a supervisor, without side effects. Exits and times are the input of the plan.
//! Starts and stops are the output of the plan. `supervisor.rs` executes the starts and stops.
//!
//! The children are in the order in which they were added. Children are stopped one after another, from the last to the
//! first. Several children may start together, for example when the supervisor starts. They are started from the first
//! to the last. Each of these children is started when the previous child has started. No child is started while
//! another child must still be stopped. A child is started only after its previous instance has exited.
//!
//! There is an exception: if a caller requests a stop from a one-for-one supervisor, this stop delays no other child,
//! because the children are independent. The exception applies only while the supervisor runs. A child may need a long
//! time to exit, or may never exit. But if a restart of a child is requested during the first start of this child, the
//! later children wait for the new instance.
//!
//! For n children, each exit and each action costs O(log n). Only an exit or an action that affects all children costs
//! more.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::behaviour::intensity::{Intensity, RETRY_PAUSE};
use crate::host::timer::backoff::Backoff;
use crate::platform::clock::Instant;
use crate::process::exit::Exit;

/// Identifier of a child. An identifier is never reused. A child with a higher identifier is later in the order.
pub(crate) type Id = u64;

/// Restart strategy. The strategy determines which children are restarted when one child exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    OneForOne,
    OneForAll,
    RestForOne,
}

/// Restart policy of a child. The policy determines after which exits the child is restarted. Default:
/// [`Permanent`](Self::Permanent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RestartPolicy {
    /// The child is restarted after every exit.
    #[default]
    Permanent,
    /// The child is restarted after each exit that is neither normal nor a cancellation. An exit because of the
    /// cancellation of a linked process causes no restart either. Only the exit matters, as with the reason `shutdown`
    /// in OTP: such an exit causes no restart even if the child itself was not cancelled. For example, a child can
    /// return the error of the join handle of another process. If this error is a cancellation, the child is not
    /// restarted.
    Transient,
    /// The child is never restarted. When the child has exited, the child is removed.
    Temporary,
}

impl RestartPolicy {
    fn follows(self, exit: &Exit) -> bool {
        match self {
            Self::Permanent => true,
            Self::Transient => !matches!(exit.unlinked(), Exit::Normal | Exit::Cancelled(_)),
            Self::Temporary => false,
        }
    }
}

/// The data about a child that the plan needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) restart: RestartPolicy,
    pub(crate) backoff: Option<Backoff>,
}

/// Phase in the life cycle of a child.
///
/// ```text
///            next: its position, its time   started
///   Due ───────────────────────────▶ Starting ──▶ Up
///    ▲                                  │         │
///    │ exited, and the policy says so   │         │ next: to be stopped
///    ├──────────────────────────────────┴────┬────┤
///    │                                       ▼    ▼
///  Down ◀──────────────── exited ─────────── Stopping
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildPhase {
    /// The child has no instance, and no start is planned.
    Down,
    /// The child will be started at this time. If other children must start first, the child starts later.
    Due(Instant),
    Starting,
    Up(Instant),
    /// The supervisor has begun to stop the child, and the child has not exited yet.
    Stopping,
}

impl ChildPhase {
    fn has_instance(self) -> bool {
        matches!(self, Self::Starting | Self::Up(_) | Self::Stopping)
    }
}

/// Next action for a child that was stopped and has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The child stays down.
    Stay,
    /// The child is started again at this time or later.
    Start(Instant),
    /// The child is removed.
    Forget,
}

/// Cause of a start. The cause determines the consequence of a failed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// First start of a child that was added before the supervisor began. If the start is refused, the start of the
    /// supervisor fails.
    Initial,
    /// The child was added while the supervisor was running. If the start fails, the plan removes the child.
    Added,
    /// The child was down, and a caller has requested a start. If the start is refused, the child stays down.
    Requested,
    /// A start with any other cause. If the start fails, the failure counts as a restart.
    Restart,
}

/// The end of an instance, or of an attempt to start an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The instance exited.
    Ended,
    /// The instance exited because of a cancellation that will soon cancel the supervisor too.
    Cancelled,
    /// The function that makes the child failed, so no instance was created.
    Unmade,
    /// The runtime refused the start, so no instance was created. This variant also applies if the child is a
    /// supervisor, and its own start failed because of a refusal.
    Refused,
}

#[derive(Debug)]
struct PlannedChild {
    policy: Policy,
    phase: ChildPhase,
    /// `Some` if the child must be stopped. The value is the next action after the exit of the child.
    stop: Option<Then>,
    cause: Cause,
    /// Whether the child keeps its position in the start order after a failed start. If a caller requests a restart of
    /// a child that has already started, the child does not keep its position. The same applies if an earlier request
    /// has stopped the child or has cancelled its planned start (`Plan::put_down`).
    keeps_position: bool,
    /// Number of restarts since the last stable instance. This number determines the delay of the back-off. An instance
    /// is stable if the instance was up for long enough.
    attempt: u32,
}

impl PlannedChild {
    /// Counts a restart, and returns the delay before this restart. `phase` is the phase in which the child exited.
    fn back_off(&mut self, phase: ChildPhase, now: Instant, random: impl FnOnce() -> u64) -> Duration {
        let Some(backoff) = self.policy.backoff else { return Duration::ZERO };
        if matches!(phase, ChildPhase::Up(since) if backoff.is_stable(now - since)) {
            self.attempt = 0;
        }
        let wait = backoff.wait(self.attempt, random);
        self.attempt = self.attempt.saturating_add(1);
        wait
    }
}

/// The next action of the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Start(Id),
    Stop(Id),
}

/// Decision of the plan after the exit of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitAction {
    /// The child will be started again.
    Again,
    /// The child stays down. The reason is that a caller has requested the stop, that a start was refused, or that the
    /// supervisor exits.
    Down,
    /// The child has exited by itself and stays down, because of its restart policy.
    Finished,
    /// The child was removed.
    Forgotten,
}

/// Reason for the exit of the supervisor.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// The supervisor was cancelled, or a linked process exited abnormally.
    Asked,
    /// This child exited or failed to start, and its restart would exceed the intensity. The `Exit` is the last exit of
    /// the child.
    GaveUp(Id, Exit),
    /// The first start of this child was refused. The `Exit` is the reason for the refusal.
    StartFailed(Id, Exit),
}

#[derive(Debug)]
pub(crate) struct Plan {
    strategy: Strategy,
    intensity: Intensity,
    children: BTreeMap<Id, PlannedChild>,
    next_id: Id,
    /// Number of children that are starting, up or stopping.
    living: usize,
    /// Children that must be stopped. `next` has not returned the action [`Stop`](Action::Stop) for these children yet.
    stops: BTreeSet<Id>,
    /// Number of children that the supervisor has begun to stop and that have not exited yet.
    stopping: usize,
    /// Children that start one after another, in the order of their identifiers. A child stays in the set until it has
    /// started. A child that must be restarted during its start also stays in the set. A one-for-one supervisor can
    /// stop a child during the start of the child. If this child will not be started again, the child leaves the set.
    start_order: BTreeSet<Id>,
    /// Children that start at a fixed time, independently of the other children.
    due: BTreeSet<(Instant, Id)>,
    end: Option<End>,
}

impl Plan {
    pub(crate) fn new(strategy: Strategy, intensity: Intensity) -> Self {
        Self {
            strategy,
            intensity,
            children: BTreeMap::new(),
            next_id: 0,
            living: 0,
            stops: BTreeSet::new(),
            stopping: 0,
            start_order: BTreeSet::new(),
            due: BTreeSet::new(),
            end: None,
        }
    }

    pub(crate) fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn intensity(&self) -> &Intensity {
        &self.intensity
    }

    /// Appends a child. The child starts after the children that already wait for their start. If `on_trial` is true
    /// and the first start fails, the child is removed. If `on_trial` is false and the first start is refused, the
    /// supervisor fails.
    pub(crate) fn add(&mut self, policy: Policy, on_trial: bool, now: Instant) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        let cause = if on_trial { Cause::Added } else { Cause::Initial };
        let child =
            PlannedChild { policy, phase: ChildPhase::Down, stop: None, cause, keeps_position: true, attempt: 0 };
        self.children.insert(id, child);
        self.plan_start_in_order(id, now);
        id
    }

    pub(crate) fn phase(&self, id: Id) -> Option<ChildPhase> {
        self.children.get(&id).map(|child| child.phase)
    }

    /// Returns whether the child has started and will not be stopped.
    pub(crate) fn is_up_with_no_stop_planned(&self, id: Id) -> bool {
        self.children.get(&id).is_some_and(|child| matches!(child.phase, ChildPhase::Up(_)) && child.stop.is_none())
    }

    /// Returns true if no child waits in `start_order` for its start. While the supervisor stops its children before
    /// its own exit, the result is always false.
    pub(crate) fn is_settled(&self) -> bool {
        self.start_order.is_empty() && self.end.is_none()
    }

    /// If all children are down, returns the reason for the exit of the supervisor.
    pub(crate) fn ended(&self) -> Option<&End> {
        self.end.as_ref().filter(|_| self.living == 0)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    fn child(&mut self, id: Id) -> &mut PlannedChild {
        self.children.get_mut(&id).expect("each id in a list belongs to a child")
    }

    /// Plans a start at `at` or later. The child takes its position in the start order.
    fn plan_start_in_order(&mut self, id: Id, at: Instant) {
        self.child(id).phase = ChildPhase::Due(at);
        self.start_order.insert(id);
    }

    /// Plans a start at `at`. The child keeps its position in the start order if two conditions hold: the earlier
    /// starts of the child have failed, and the child still waits for its first successful start. A child that does not
    /// keep its position leaves the start order, so that no other child waits for the back-off of this child.
    fn plan_start_at(&mut self, id: Id, at: Instant) {
        let child = self.child(id);
        child.phase = ChildPhase::Due(at);
        if !(child.keeps_position && self.start_order.contains(&id)) {
            self.start_order.remove(&id);
            self.due.insert((at, id));
        }
    }

    /// Cancels the planned start of a child.
    fn cancel_start(&mut self, id: Id) {
        let child = self.child(id);
        if let ChildPhase::Due(at) = std::mem::replace(&mut child.phase, ChildPhase::Down) {
            self.due.remove(&(at, id));
            self.start_order.remove(&id);
        }
    }

    /// Marks a running child, so that the child is stopped later. If the child is marked several times, the latest
    /// `then` applies. But if one mark is [`Then::Forget`], this mark applies.
    fn mark_for_stop(&mut self, id: Id, then: Then) {
        let child = self.child(id);
        if child.stop != Some(Then::Forget) {
            child.stop = Some(then);
        }
        if child.phase == ChildPhase::Stopping {
            self.leave_order(id);
        } else {
            self.stops.insert(id);
        }
    }

    /// Removes a stopping child of a one-for-one supervisor from the start order. But if the child keeps its position
    /// and will be started again, the child stays in the order. Without the removal, the later children would wait for
    /// the exit of this child. The start of the supervisor does not wait for the removed child. Therefore, a later
    /// start of this child is a requested start.
    fn leave_order(&mut self, id: Id) {
        let child = &self.children[&id];
        let stays = child.keeps_position && matches!(child.stop, Some(Then::Start(_)));
        if self.strategy == Strategy::OneForOne && !stays {
            self.start_order.remove(&id);
            let child = self.child(id);
            if matches!(child.cause, Cause::Initial) {
                child.cause = Cause::Requested;
            }
        }
    }

    // ---- Reports to the plan

    /// Handles the report that a child has started.
    pub(crate) fn started(&mut self, id: Id, now: Instant) {
        if let Some(child) = self.children.get_mut(&id)
            && child.phase == ChildPhase::Starting
        {
            child.phase = ChildPhase::Up(now);
            child.cause = Cause::Restart;
            self.start_order.remove(&id);
        }
    }

    /// Handles the exit of an instance or the failure of a start. `random` returns a random number for the jitter of
    /// the back-off. Returns the decision for this child.
    pub(crate) fn exited(
        &mut self,
        id: Id,
        over: Over,
        exit: &Exit,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> ExitAction {
        let Some(child) = self.children.get_mut(&id) else { return ExitAction::Forgotten };
        let phase = std::mem::replace(&mut child.phase, ChildPhase::Down);
        debug_assert!(phase.has_instance(), "the child that exited was running");
        self.living -= 1;
        self.stopping -= usize::from(phase == ChildPhase::Stopping);
        if let Some(then) = child.stop.take() {
            // The plan had to stop the child, so the reason for its exit does not matter.
            self.stops.remove(&id);
            self.start_order.remove(&id);
            return match then {
                Then::Stay => ExitAction::Down,
                Then::Start(at) => {
                    self.plan_start_in_order(id, at);
                    ExitAction::Again
                }
                Then::Forget => self.forget(id),
            };
        }
        if self.end.is_some() {
            return ExitAction::Down;
        }
        let was_refused = over == Over::Refused && phase == ChildPhase::Starting;
        match std::mem::replace(&mut child.cause, Cause::Restart) {
            Cause::Added => return self.forget(id),
            Cause::Initial if was_refused => {
                self.give_up(End::StartFailed(id, exit.clone()));
                return ExitAction::Down;
            }
            Cause::Requested if was_refused => {
                self.start_order.remove(&id);
                return ExitAction::Down;
            }
            _ => {}
        }
        if !child.policy.restart.follows(exit) {
            let is_temporary = child.policy.restart == RestartPolicy::Temporary;
            self.start_order.remove(&id);
            return if is_temporary { self.forget(id) } else { ExitAction::Finished };
        }
        if over == Over::Cancelled {
            self.start_order.remove(&id);
            return ExitAction::Down;
        }
        if !self.intensity.allows(now) {
            self.give_up(End::GaveUp(id, exit.clone()));
            return ExitAction::Down;
        }
        let wait = child.back_off(phase, now, random);
        // An instance runs for some time before it exits, but a failed start may take no time. Therefore only the delay
        // after a failed start has a minimum.
        let wait = if over == Over::Ended { wait } else { wait.max(RETRY_PAUSE) };
        self.start_again(id, now + wait);
        ExitAction::Again
    }

    /// Plans the start of a child that is down. The start happens at `at` or later. Also plans the restart of the other
    /// children that the strategy includes.
    fn start_again(&mut self, id: Id, at: Instant) {
        let first = match self.strategy {
            // A child that has already been up does not wait for the other children. If a child is still in
            // `start_order` and `keeps_position` is true, the child keeps its position there.
            Strategy::OneForOne => return self.plan_start_at(id, at),
            Strategy::OneForAll => 0,
            Strategy::RestForOne => id,
        };
        self.plan_start_in_order(id, at);
        let others: Vec<Id> =
            self.children.range(first..).map(|(&other, _)| other).filter(|&other| other != id).collect();
        for other in others {
            let child = self.child(other);
            match child.phase {
                ChildPhase::Down => {}
                ChildPhase::Due(own) => {
                    self.due.remove(&(own, other));
                    self.plan_start_in_order(other, own.max(at));
                }
                // If a temporary child is stopped because another child restarts, the temporary child is not started
                // again.
                _ if child.policy.restart == RestartPolicy::Temporary => self.mark_for_stop(other, Then::Forget),
                _ => {
                    let then = child.stop.unwrap_or(Then::Start(at));
                    self.mark_for_stop(other, then);
                }
            }
        }
    }

    // ---- Requests to the plan

    /// Stops all children, from the last to the first. When the last child has exited, the supervisor exits.
    pub(crate) fn shut_down(&mut self) {
        self.give_up(End::Asked);
    }

    fn give_up(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.start_order.clear();
        self.due.clear();
        for (&id, child) in &mut self.children {
            if child.phase.has_instance() {
                child.stop = Some(Then::Stay);
                if child.phase != ChildPhase::Stopping {
                    self.stops.insert(id);
                }
            } else {
                child.phase = ChildPhase::Down;
            }
        }
    }

    /// Stops a child, or cancels its planned start. Afterwards a temporary child is removed, and any other child stays
    /// down. Returns the decision. If the child still runs, returns `None`.
    pub(crate) fn stop(&mut self, id: Id) -> Option<ExitAction> {
        self.put_down(id, Then::Stay)
    }

    /// Stops a child and removes the child. Returns the decision. If the child still runs, returns `None`.
    pub(crate) fn remove(&mut self, id: Id) -> Option<ExitAction> {
        self.put_down(id, Then::Forget)
    }

    fn put_down(&mut self, id: Id, then: Then) -> Option<ExitAction> {
        let Some(child) = self.children.get(&id) else { return Some(ExitAction::Forgotten) };
        // A temporary child is always removed after its exit.
        let then = if child.policy.restart == RestartPolicy::Temporary { Then::Forget } else { then };
        if child.phase.has_instance() {
            self.mark_for_stop(id, then);
            return None;
        }
        self.cancel_start(id);
        Some(if then == Then::Forget { self.forget(id) } else { ExitAction::Down })
    }

    /// Stops a running child, and then starts the child again. This operation does not count as a restart, and resets
    /// the back-off. Returns false if the child does not exist, if the child is about to be removed, or if the
    /// supervisor is stopping its children before its own exit.
    pub(crate) fn restart(&mut self, id: Id, now: Instant) -> bool {
        if self.end.is_some() || self.children.get(&id).is_none_or(|child| child.stop == Some(Then::Forget)) {
            return false;
        }
        let is_in_order = self.start_order.contains(&id);
        let child = self.child(id);
        child.attempt = 0;
        child.keeps_position &= is_in_order;
        if child.phase == ChildPhase::Down {
            child.cause = Cause::Requested;
        }
        if child.phase.has_instance() {
            self.mark_for_stop(id, Then::Start(now));
        } else {
            self.cancel_start(id);
            self.plan_start_in_order(id, now);
        }
        true
    }

    pub(super) fn forget(&mut self, id: Id) -> ExitAction {
        self.start_order.remove(&id);
        self.children.remove(&id);
        ExitAction::Forgotten
    }

    // ---- Actions of the plan

    /// Returns an action that is possible now. The caller must execute the action, because the plan does not return the
    /// same action again.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Action> {
        if self.waits_for_stop() {
            return None;
        }
        if let Some(last) = self.stops.pop_last() {
            self.stopping += 1;
            self.child(last).phase = ChildPhase::Stopping;
            self.leave_order(last);
            return Some(Action::Stop(last));
        }
        let id = match self.due.first() {
            Some(&(at, id)) if at <= now => {
                self.due.pop_first();
                id
            }
            _ => *self.start_order.first()?,
        };
        let child = self.child(id);
        if !matches!(child.phase, ChildPhase::Due(at) if at <= now) {
            return None;
        }
        child.phase = ChildPhase::Starting;
        self.living += 1;
        Some(Action::Start(id))
    }

    /// Returns whether all actions must wait until a child has exited. A one-for-all or rest-for-one supervisor stops
    /// its children one at a time, from the last to the first. Any supervisor that exits does the same.
    fn waits_for_stop(&self) -> bool {
        self.stopping > 0 && (self.strategy != Strategy::OneForOne || self.end.is_some())
    }

    /// Returns the time of the next planned action. If no event happens before this time, [`next`](Self::next) returns
    /// an action at this time. `None` means that no action is planned.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        if self.waits_for_stop() || !self.stops.is_empty() {
            return None;
        }
        let in_order = self.start_order.first().and_then(|first| match self.children[first].phase {
            ChildPhase::Due(at) => Some(at),
            _ => None,
        });
        self.due.first().map(|&(at, _)| at).into_iter().chain(in_order).min()
    }
}
