//! What a supervisor decides: exits and time in, starts and stops out. Pure data; who starts and stops is
//! `supervisor.rs`.
//!
//! The order of the children is the order in which they were added. What is to be stopped is stopped from the last to
//! the first, one after another; what is to be started together is started from the first to the last, each when the one
//! before it has started. Nothing is started while something is to be stopped, and no child before its last life has
//! ended.
//!
//! Each exit and each action costs the logarithm of the number of children, save where it concerns them all.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::behaviour::intensity::{Intensity, RETRY_PAUSE};
use crate::host::timer::backoff::Backoff;
use crate::platform::clock::Instant;
use crate::process::exit::Exit;

/// Which child is meant; never used for another one. A higher one is later in the order.
pub(crate) type Id = u64;

/// Whom the death of one child concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    OneForOne,
    OneForAll,
    RestForOne,
}

/// Which exits of a child are followed by another life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Restart {
    /// All.
    #[default]
    Permanent,
    /// Those that are neither normal nor a cancel.
    Transient,
    /// None; after its end the child is forgotten.
    Temporary,
}

impl Restart {
    fn follows(self, exit: &Exit) -> bool {
        match self {
            Self::Permanent => true,
            Self::Transient => !matches!(exit, Exit::Normal | Exit::Cancelled(_)),
            Self::Temporary => false,
        }
    }
}

/// What the plan has to know of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) restart: Restart,
    pub(crate) backoff: Option<Backoff>,
}

/// Where a child is in its life.
///
/// ```text
///            next: its turn, its time       started
///   Due ───────────────────────────▶ Starting ──▶ Up
///    ▲                                  │         │
///    │ exited, and the policy says so   │         │ next: to be stopped
///    ├──────────────────────────────────┴────┬────┤
///    │                                       ▼    ▼
///  Down ◀──────────────── exited ─────────── Stopping
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Has no life, and waits for none.
    Down,
    /// Will be started at this time, when its turn has come.
    Due(Instant),
    Starting,
    Up(Instant),
    /// Was told to end.
    Stopping,
}

impl Phase {
    fn lives(self) -> bool {
        matches!(self, Self::Starting | Self::Up(_) | Self::Stopping)
    }
}

/// What becomes of a child that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It stays as it is.
    Stay,
    /// It begins another life, not before this time.
    Start(Instant),
    /// It is forgotten.
    Forget,
}

/// Why a child is to be started. It decides what a start that fails means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The supervisor begins with this child. If the start is refused, the supervisor's own start fails.
    SpawnSettings,
    /// The child was added while the supervisor runs. If the start fails, the plan forgets the child.
    Added,
    /// The child was down, and a caller asked for a start. If the start is refused, the child stays down.
    Requested,
    /// Any other start. If it fails, that counts as a restart.
    Restart,
}

/// How a child came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its life ended.
    Ended,
    /// The function that makes the child failed: there was no life.
    Unmade,
    /// The runtime refused the start: there was no life. Also of a supervisor whose own first start was refused.
    Refused,
}

#[derive(Debug)]
struct Child {
    policy: Policy,
    phase: Phase,
    /// Is to be stopped, and then this.
    stop: Option<Then>,
    cause: Cause,
    /// How many restarts in a row found it unstable.
    attempt: u32,
}

/// What the supervisor has to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Start(Id),
    Stop(Id),
}

/// What an exit means for the child whose it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitAction {
    /// It begins another life, sooner or later.
    Again,
    /// It stays down.
    Down,
    /// It is no child any more.
    Forgotten,
}

/// How a supervisor ends.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// It was asked to.
    Asked,
    /// This child died once too often, of this.
    GaveUp(Id, Exit),
    /// The first start of this child was refused, for this reason.
    StartFailed(Id, Exit),
}

#[derive(Debug)]
pub(crate) struct Plan {
    strategy: Strategy,
    intensity: Intensity,
    children: BTreeMap<Id, Child>,
    next_id: Id,
    /// How many live.
    living: usize,
    /// Those that are to be stopped, and were not told yet.
    stops: BTreeSet<Id>,
    /// One was told, and is not down yet.
    stopping: bool,
    /// Those that start in their turn: the first of them is due or starting, the others are due.
    turns: BTreeSet<Id>,
    /// Those that start at their time, whatever the others do.
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
            stopping: false,
            turns: BTreeSet::new(),
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

    /// Appends a child, which starts after the children that wait for their turn. A child that is `on_trial` is forgotten
    /// if its first start fails. If the first start of any other child is refused, all ends.
    pub(crate) fn add(&mut self, policy: Policy, on_trial: bool, now: Instant) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        let cause = if on_trial { Cause::Added } else { Cause::SpawnSettings };
        self.children.insert(id, Child { policy, phase: Phase::Down, stop: None, cause, attempt: 0 });
        self.wait_for_turn(id, now);
        id
    }

    pub(crate) fn phase(&self, id: Id) -> Option<Phase> {
        self.children.get(&id).map(|child| child.phase)
    }

    /// Whether each child has been started, or is not to be; never, when it ends before.
    pub(crate) fn is_settled(&self) -> bool {
        self.turns.is_empty() && self.end.is_none()
    }

    /// How it ends, once everybody is down.
    pub(crate) fn ended(&self) -> Option<&End> {
        self.end.as_ref().filter(|_| self.living == 0)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    fn child(&mut self, id: Id) -> &mut Child {
        self.children.get_mut(&id).expect("whoever is in a list is a child")
    }

    /// It is started in its turn, and not before this time.
    fn wait_for_turn(&mut self, id: Id, at: Instant) {
        self.child(id).phase = Phase::Due(at);
        self.turns.insert(id);
    }

    /// It is started at this time; in its turn, if it waited for that and did not get through.
    fn wait_for_time(&mut self, id: Id, at: Instant) {
        self.child(id).phase = Phase::Due(at);
        if !self.turns.contains(&id) {
            self.due.insert((at, id));
        }
    }

    /// It is not to be started.
    fn give_up_start(&mut self, id: Id) {
        let child = self.child(id);
        if let Phase::Due(at) = std::mem::replace(&mut child.phase, Phase::Down) {
            self.due.remove(&(at, id));
            self.turns.remove(&id);
        }
    }

    /// One that lives is to end; what comes then is what was said last.
    fn wind_up(&mut self, id: Id, then: Then) {
        let child = self.child(id);
        child.stop = Some(then);
        if child.phase != Phase::Stopping {
            self.stops.insert(id);
        }
    }

    // ---- What happened

    /// A child says that it has started.
    pub(crate) fn started(&mut self, id: Id, now: Instant) {
        if let Some(child) = self.children.get_mut(&id)
            && child.phase == Phase::Starting
        {
            child.phase = Phase::Up(now);
            child.cause = Cause::Restart;
            self.turns.remove(&id);
        }
    }

    /// A child has ended, started or not; `random` draws a number.
    pub(crate) fn exited(
        &mut self,
        id: Id,
        over: Over,
        exit: &Exit,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> ExitAction {
        let Some(child) = self.children.get_mut(&id) else { return ExitAction::Forgotten };
        let phase = std::mem::replace(&mut child.phase, Phase::Down);
        debug_assert!(phase.lives(), "who ends has lived");
        self.living -= 1;
        self.stopping &= phase != Phase::Stopping;
        if let Some(then) = child.stop.take() {
            // Whatever it died of, it was to end.
            self.stops.remove(&id);
            self.turns.remove(&id);
            return match then {
                Then::Stay => ExitAction::Down,
                Then::Start(at) => {
                    self.wait_for_turn(id, at);
                    ExitAction::Again
                }
                Then::Forget => self.forget(id),
            };
        }
        if self.end.is_some() {
            return ExitAction::Down;
        }
        let was_refused = over == Over::Refused && phase == Phase::Starting;
        match std::mem::replace(&mut child.cause, Cause::Restart) {
            Cause::Added => return self.forget(id),
            Cause::SpawnSettings if was_refused => {
                self.give_up(End::StartFailed(id, exit.clone()));
                return ExitAction::Down;
            }
            Cause::Requested if was_refused => {
                self.turns.remove(&id);
                return ExitAction::Down;
            }
            _ => {}
        }
        if !child.policy.restart.follows(exit) {
            let is_temporary = child.policy.restart == Restart::Temporary;
            self.turns.remove(&id);
            return if is_temporary { self.forget(id) } else { ExitAction::Down };
        }
        if !self.intensity.allows(now) {
            self.give_up(End::GaveUp(id, exit.clone()));
            return ExitAction::Down;
        }
        let wait = self.back_off(id, phase, now, random);
        // There was no life that took time, so the wait must.
        let wait = if over == Over::Ended { wait } else { wait.max(RETRY_PAUSE) };
        self.start_again(id, now + wait);
        ExitAction::Again
    }

    /// Returns how long a child that ended in this phase has to wait for its next life.
    fn back_off(&mut self, id: Id, phase: Phase, now: Instant, random: impl FnOnce() -> u64) -> Duration {
        let child = self.child(id);
        let Some(backoff) = child.policy.backoff else { return Duration::ZERO };
        if matches!(phase, Phase::Up(since) if backoff.is_stable(now - since)) {
            child.attempt = 0;
        }
        let wait = backoff.wait(child.attempt, random);
        child.attempt = child.attempt.saturating_add(1);
        wait
    }

    /// Starts a child that is down, not before this time, and the others that the strategy restarts with it.
    fn start_again(&mut self, id: Id, at: Instant) {
        let first = match self.strategy {
            // A child that had its turn does not wait for others. A child that did not have its turn keeps it.
            Strategy::OneForOne => return self.wait_for_time(id, at),
            Strategy::OneForAll => 0,
            Strategy::RestForOne => id,
        };
        self.wait_for_turn(id, at);
        let others: Vec<Id> =
            self.children.range(first..).map(|(&other, _)| other).filter(|&other| other != id).collect();
        for other in others {
            let child = self.child(other);
            match child.phase {
                Phase::Down => {}
                Phase::Due(own) => {
                    self.due.remove(&(own, other));
                    self.wait_for_turn(other, own.max(at));
                }
                // A temporary child that is stopped with the others is not started again.
                _ if child.policy.restart == Restart::Temporary => self.wind_up(other, Then::Forget),
                _ => {
                    let then = child.stop.unwrap_or(Then::Start(at));
                    self.wind_up(other, then);
                }
            }
        }
    }

    // ---- What is wanted

    /// Ends all, from the last to the first.
    pub(crate) fn shut_down(&mut self) {
        self.give_up(End::Asked);
    }

    fn give_up(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.turns.clear();
        self.due.clear();
        for (&id, child) in &mut self.children {
            if child.phase.lives() {
                child.stop = Some(Then::Stay);
                if child.phase != Phase::Stopping {
                    self.stops.insert(id);
                }
            } else {
                child.phase = Phase::Down;
            }
        }
    }

    /// Ends a child, or gives up its next life. It stays a child, down, unless it is a temporary one. What comes of it now;
    /// nothing yet, if it lives.
    pub(crate) fn stop(&mut self, id: Id) -> Option<ExitAction> {
        self.put_down(id, Then::Stay)
    }

    /// Ends a child and forgets it. What comes of it now; nothing yet, if it lives.
    pub(crate) fn remove(&mut self, id: Id) -> Option<ExitAction> {
        self.put_down(id, Then::Forget)
    }

    fn put_down(&mut self, id: Id, then: Then) -> Option<ExitAction> {
        let Some(child) = self.children.get(&id) else { return Some(ExitAction::Forgotten) };
        // Of a temporary child nothing is left after its end, whoever ended it.
        let then = if child.policy.restart == Restart::Temporary { Then::Forget } else { then };
        if child.phase.lives() {
            self.wind_up(id, then);
            return None;
        }
        self.give_up_start(id);
        Some(if then == Then::Forget { self.forget(id) } else { ExitAction::Down })
    }

    /// Ends a child and begins another life of it, which does not count as a restart. Its back-off begins anew. Returns
    /// false if there is no such child, or if all are to end.
    pub(crate) fn restart(&mut self, id: Id, now: Instant) -> bool {
        if self.end.is_some() || !self.children.contains_key(&id) {
            return false;
        }
        let child = self.child(id);
        child.attempt = 0;
        if child.phase == Phase::Down && child.cause != Cause::Added {
            child.cause = Cause::Requested;
        }
        if child.phase.lives() {
            self.wind_up(id, Then::Start(now));
        } else {
            self.give_up_start(id);
            self.wait_for_turn(id, now);
        }
        true
    }

    fn forget(&mut self, id: Id) -> ExitAction {
        self.turns.remove(&id);
        self.children.remove(&id);
        ExitAction::Forgotten
    }

    // ---- What is to be done

    /// What can be done now. It counts as done: it is not said again.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Action> {
        // From the last to the first, one at a time.
        if self.stopping {
            return None;
        }
        if let Some(last) = self.stops.pop_last() {
            self.stopping = true;
            self.child(last).phase = Phase::Stopping;
            return Some(Action::Stop(last));
        }
        let id = match self.due.first() {
            Some(&(at, id)) if at <= now => {
                self.due.pop_first();
                id
            }
            _ => self.turns.first().copied().filter(|id| self.is_due(*id, now))?,
        };
        self.child(id).phase = Phase::Starting;
        self.living += 1;
        Some(Action::Start(id))
    }

    fn is_due(&self, id: Id, now: Instant) -> bool {
        matches!(self.children[&id].phase, Phase::Due(at) if at <= now)
    }

    /// When [`next`](Self::next) has something to do if nothing else happens.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        if self.stopping || !self.stops.is_empty() {
            return None;
        }
        let in_turn = self.turns.first().and_then(|first| match self.children[first].phase {
            Phase::Due(at) => Some(at),
            _ => None,
        });
        self.due.first().map(|&(at, _)| at).into_iter().chain(in_turn).min()
    }
}
