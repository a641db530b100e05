//! What a supervisor decides: exits and time in, starts and stops out. Pure data; who starts and stops is
//! `supervisor.rs`.
//!
//! The order of the children is the order in which they were added. What is to be stopped is stopped from the last to
//! the first, one after another; what is to be started together is started from the first to the last, each when the one
//! before it has started. Nothing is started while something is to be stopped, and no child before its last life has
//! ended.
//!
//! Each exit and each action costs the logarithm of the number of children, save where it concerns them all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::backoff::Backoff;
use crate::clock::Instant;
use crate::intensity::Intensity;
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

#[derive(Debug)]
struct Child {
    policy: Policy,
    phase: Phase,
    /// Is to be stopped, and then this.
    stop: Option<Then>,
    /// If its first start fails it is forgotten.
    on_trial: bool,
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
pub(crate) enum Fate {
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

    /// Appends a child, which is started after those that are to be started in their turn. One that is `on_trial` is
    /// forgotten if its first start fails.
    pub(crate) fn add(&mut self, policy: Policy, on_trial: bool, now: Instant) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        self.children.insert(id, Child { policy, phase: Phase::Down, stop: None, on_trial, attempt: 0 });
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
            child.on_trial = false;
            self.turns.remove(&id);
        }
    }

    /// A child has ended, started or not; `random` draws a number.
    pub(crate) fn exited(&mut self, id: Id, exit: &Exit, now: Instant, random: impl FnOnce() -> u64) -> Fate {
        let Some(child) = self.children.get_mut(&id) else { return Fate::Forgotten };
        let phase = std::mem::replace(&mut child.phase, Phase::Down);
        debug_assert!(phase.lives(), "who ends has lived");
        self.living -= 1;
        self.stopping &= phase != Phase::Stopping;
        if let Some(then) = child.stop.take() {
            // Whatever it died of, it was to end.
            self.stops.remove(&id);
            self.turns.remove(&id);
            return match then {
                Then::Stay => Fate::Down,
                Then::Start(at) => {
                    self.wait_for_turn(id, at);
                    Fate::Again
                }
                Then::Forget => self.forget(id),
            };
        }
        if self.end.is_some() {
            return Fate::Down;
        }
        if child.on_trial && phase == Phase::Starting {
            return self.forget(id);
        }
        if !child.policy.restart.follows(exit) {
            let is_temporary = child.policy.restart == Restart::Temporary;
            self.turns.remove(&id);
            return if is_temporary { self.forget(id) } else { Fate::Down };
        }
        if !self.intensity.allows(now) {
            self.give_up(End::GaveUp(id, exit.clone()));
            return Fate::Down;
        }
        let child = self.child(id);
        let wait = match child.policy.backoff {
            None => Duration::ZERO,
            Some(backoff) => {
                if matches!(phase, Phase::Up(since) if backoff.is_stable(now - since)) {
                    child.attempt = 0;
                }
                let wait = backoff.wait(child.attempt, random);
                child.attempt = child.attempt.saturating_add(1);
                wait
            }
        };
        let first = match self.strategy {
            // One that had its turn is on its own now; one that did not keeps it.
            Strategy::OneForOne => {
                self.wait_for_time(id, now + wait);
                return Fate::Again;
            }
            Strategy::OneForAll => 0,
            Strategy::RestForOne => id,
        };
        let at = now + wait;
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
                // A temporary child that has to go with the others does not come back.
                _ if child.policy.restart == Restart::Temporary => self.wind_up(other, Then::Forget),
                _ => {
                    let then = child.stop.unwrap_or(Then::Start(at));
                    self.wind_up(other, then);
                }
            }
        }
        Fate::Again
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
    pub(crate) fn stop(&mut self, id: Id) -> Option<Fate> {
        self.put_down(id, Then::Stay)
    }

    /// Ends a child and forgets it. What comes of it now; nothing yet, if it lives.
    pub(crate) fn remove(&mut self, id: Id) -> Option<Fate> {
        self.put_down(id, Then::Forget)
    }

    fn put_down(&mut self, id: Id, then: Then) -> Option<Fate> {
        let Some(child) = self.children.get(&id) else { return Some(Fate::Forgotten) };
        // Of a temporary child nothing is left after its end, whoever ended it.
        let then = if child.policy.restart == Restart::Temporary { Then::Forget } else { then };
        if child.phase.lives() {
            self.wind_up(id, then);
            return None;
        }
        self.give_up_start(id);
        Some(if then == Then::Forget { self.forget(id) } else { Fate::Down })
    }

    /// Ends a child and begins another life of it, which does not count as a restart. False if there is no such child, or
    /// all are to end.
    pub(crate) fn restart(&mut self, id: Id, now: Instant) -> bool {
        if self.end.is_some() || !self.children.contains_key(&id) {
            return false;
        }
        let child = self.child(id);
        child.attempt = 0;
        if child.phase.lives() {
            self.wind_up(id, Then::Start(now));
        } else {
            self.give_up_start(id);
            self.wait_for_turn(id, now);
        }
        true
    }

    fn forget(&mut self, id: Id) -> Fate {
        self.turns.remove(&id);
        self.children.remove(&id);
        Fate::Forgotten
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

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::chance::Rng;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn boom() -> Exit {
        Exit::Panicked("boom".into())
    }

    fn plan(strategy: Strategy, restarts: &[Restart]) -> Plan {
        let mut plan = Plan::new(strategy, Intensity::new(3, MS(1_000)));
        for &restart in restarts {
            plan.add(Policy { restart, backoff: None }, false, at(0));
        }
        plan
    }

    /// Starts whoever is to be started, at once.
    fn bring_up(plan: &mut Plan, now: Instant) -> Vec<Id> {
        let mut up = Vec::new();
        while let Some(action) = plan.next(now) {
            let Start(id) = action else { panic!("{action:?} while starting") };
            plan.started(id, now);
            up.push(id);
        }
        up
    }

    /// All that is to be done now.
    fn next(plan: &mut Plan, now: Instant) -> Vec<Action> {
        std::iter::from_fn(|| plan.next(now)).collect()
    }

    use Action::{Start, Stop};
    use Restart::{Permanent, Temporary, Transient};

    #[test]
    fn children_start_in_order_each_when_the_one_before_has() {
        let mut plan = plan(Strategy::OneForOne, &[Permanent; 3]);
        assert_eq!(next(&mut plan, at(0)), [Start(0)]);
        assert_eq!(next(&mut plan, at(0)), []);
        plan.started(0, at(1));
        assert_eq!(next(&mut plan, at(1)), [Start(1)]);
        assert!(!plan.is_settled());
        // It fails to start: it is tried again before the third one begins.
        assert_eq!(plan.exited(1, &boom(), at(2), || 0), Fate::Again);
        assert_eq!(next(&mut plan, at(2)), [Start(1)]);
        plan.started(1, at(3));
        assert_eq!(next(&mut plan, at(3)), [Start(2)]);
    }

    #[test]
    fn one_for_one_restarts_the_one_that_died() {
        let mut plan = plan(Strategy::OneForOne, &[Permanent; 3]);
        assert_eq!(bring_up(&mut plan, at(0)), [0, 1, 2]);
        plan.exited(1, &boom(), at(5), || 0);
        assert_eq!(next(&mut plan, at(5)), [Start(1)]);
        // Another one does not wait for it.
        plan.exited(0, &boom(), at(6), || 0);
        assert_eq!(next(&mut plan, at(6)), [Start(0)]);
    }

    #[test]
    fn one_for_all_stops_the_others_in_reverse_and_starts_all_in_order() {
        let mut plan = plan(Strategy::OneForAll, &[Permanent; 3]);
        bring_up(&mut plan, at(0));
        plan.exited(1, &boom(), at(5), || 0);
        assert_eq!(next(&mut plan, at(5)), [Stop(2)]);
        assert_eq!(next(&mut plan, at(5)), []);
        plan.exited(2, &Exit::Cancelled("parent".into()), at(6), || 0);
        assert_eq!(next(&mut plan, at(6)), [Stop(0)]);
        // Dies of something else meanwhile: it was to end, and that is all.
        plan.exited(0, &boom(), at(7), || 0);
        assert_eq!(bring_up(&mut plan, at(7)), [0, 1, 2]);
    }

    #[test]
    fn rest_for_one_leaves_those_before_alone() {
        let mut plan = plan(Strategy::RestForOne, &[Permanent; 4]);
        bring_up(&mut plan, at(0));
        plan.exited(1, &boom(), at(5), || 0);
        for id in [3, 2] {
            assert_eq!(next(&mut plan, at(5)), [Stop(id)]);
            plan.exited(id, &Exit::Killed, at(5), || 0);
        }
        assert_eq!(bring_up(&mut plan, at(6)), [1, 2, 3]);
    }

    #[test]
    fn two_that_die_at_once_are_one_restart_of_the_group_each() {
        let mut plan = plan(Strategy::OneForAll, &[Permanent; 3]);
        bring_up(&mut plan, at(0));
        plan.exited(0, &boom(), at(5), || 0);
        assert_eq!(next(&mut plan, at(5)), [Stop(2)]);
        // It had been told nothing yet, and was to be: its death is no restart of its own.
        plan.exited(1, &boom(), at(5), || 0);
        plan.exited(2, &boom(), at(5), || 0);
        assert_eq!(bring_up(&mut plan, at(6)), [0, 1, 2]);
    }

    #[test]
    fn transient_and_temporary_children() {
        let mut plan = plan(Strategy::OneForOne, &[Transient, Temporary, Permanent]);
        bring_up(&mut plan, at(0));
        plan.exited(0, &boom(), at(1), || 0);
        assert_eq!(next(&mut plan, at(1)), [Start(0)]);
        plan.started(0, at(1));
        plan.exited(0, &Exit::Normal, at(2), || 0);
        assert_eq!(plan.exited(1, &boom(), at(2), || 0), Fate::Forgotten);
        assert_eq!(next(&mut plan, at(2)), []);
        plan.exited(2, &Exit::Normal, at(3), || 0);
        assert_eq!(next(&mut plan, at(3)), [Start(2)]);
        assert_eq!(plan.children.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(plan.phase(0), Some(Phase::Down));
        assert!(plan.restart(0, at(4)));
        assert_eq!(next(&mut plan, at(4)), [Start(0)]);
        // Of a temporary one nothing is left, also when it was stopped by hand.
        let last = plan.add(Policy { restart: Temporary, backoff: None }, false, at(5));
        plan.started(0, at(5));
        assert_eq!(bring_up(&mut plan, at(5)), [last]);
        assert_eq!(plan.stop(last), None);
        assert_eq!(next(&mut plan, at(5)), [Stop(last)]);
        assert_eq!(plan.exited(last, &Exit::Killed, at(5), || 0), Fate::Forgotten);
    }

    #[test]
    fn a_temporary_child_that_goes_with_the_others_does_not_come_back() {
        let mut plan = plan(Strategy::OneForAll, &[Permanent, Temporary, Transient]);
        bring_up(&mut plan, at(0));
        plan.exited(0, &boom(), at(1), || 0);
        assert_eq!(next(&mut plan, at(1)), [Stop(2)]);
        plan.exited(2, &Exit::Normal, at(1), || 0);
        assert_eq!(next(&mut plan, at(1)), [Stop(1)]);
        assert_eq!(plan.exited(1, &Exit::Normal, at(1), || 0), Fate::Forgotten);
        assert_eq!(bring_up(&mut plan, at(1)), [0, 2]);
    }

    #[test]
    fn past_the_intensity_it_stops_all_and_gives_up() {
        let mut plan = plan(Strategy::OneForOne, &[Permanent; 2]);
        bring_up(&mut plan, at(0));
        for ms in 1..=3 {
            plan.exited(1, &boom(), at(ms), || 0);
            assert_eq!(bring_up(&mut plan, at(ms)), [1]);
        }
        plan.exited(1, &boom(), at(4), || 0);
        assert!(plan.ended().is_none());
        assert_eq!(next(&mut plan, at(4)), [Stop(0)]);
        plan.exited(0, &Exit::Normal, at(5), || 0);
        assert!(matches!(plan.ended(), Some(End::GaveUp(1, Exit::Panicked(_)))));
        assert_eq!((next(&mut plan, at(5)), plan.next_time()), (vec![], None));
    }

    #[test]
    fn failed_starts_count() {
        let mut plan = plan(Strategy::OneForOne, &[Permanent]);
        for ms in 0..3 {
            assert_eq!(next(&mut plan, at(ms)), [Start(0)]);
            plan.exited(0, &boom(), at(ms), || 0);
        }
        assert_eq!(next(&mut plan, at(3)), [Start(0)]);
        plan.exited(0, &boom(), at(3), || 0);
        assert!(matches!(plan.ended(), Some(End::GaveUp(0, _))));
        assert!(!plan.is_settled(), "it has not started");
    }

    #[test]
    fn backoff_waits_and_begins_anew_after_a_stable_life() {
        let backoff = Backoff::new(MS(10), MS(40)).jitter(false).reset_after(MS(100));
        let mut plan = Plan::new(Strategy::OneForOne, Intensity::new(100, MS(1)));
        plan.add(Policy { restart: Permanent, backoff: Some(backoff) }, false, at(0));
        bring_up(&mut plan, at(0));
        let mut now = 0;
        for (lives, wait) in [(1, 10), (1, 20), (1, 40), (99, 40), (100, 10), (1, 20)] {
            now += lives;
            plan.exited(0, &boom(), at(now), || 0);
            assert_eq!(plan.next_time(), Some(at(now + wait)));
            assert_eq!(next(&mut plan, at(now + wait - 1)), []);
            now += wait;
            assert_eq!(bring_up(&mut plan, at(now)), [0]);
        }
    }

    #[test]
    fn a_group_waits_for_the_one_that_backs_off() {
        let backoff = Backoff::new(MS(10), MS(40)).jitter(false);
        let mut plan = Plan::new(Strategy::RestForOne, Intensity::new(100, MS(1)));
        for backoff in [Some(backoff), None] {
            plan.add(Policy { restart: Permanent, backoff }, false, at(0));
        }
        bring_up(&mut plan, at(0));
        plan.exited(0, &boom(), at(1), || 0);
        assert_eq!((next(&mut plan, at(1)), plan.next_time()), (vec![Stop(1)], None));
        plan.exited(1, &Exit::Normal, at(2), || 0);
        assert_eq!((next(&mut plan, at(2)), plan.next_time()), (vec![], Some(at(11))));
        assert_eq!(bring_up(&mut plan, at(11)), [0, 1]);

        // Those before it in the order too.
        let mut plan = Plan::new(Strategy::OneForAll, Intensity::new(100, MS(1)));
        for backoff in [None, Some(backoff)] {
            plan.add(Policy { restart: Permanent, backoff }, false, at(0));
        }
        bring_up(&mut plan, at(0));
        plan.exited(1, &boom(), at(1), || 0);
        assert_eq!(next(&mut plan, at(1)), [Stop(0)]);
        plan.exited(0, &Exit::Normal, at(2), || 0);
        assert_eq!((next(&mut plan, at(2)), plan.next_time()), (vec![], Some(at(11))));
        assert_eq!(bring_up(&mut plan, at(11)), [0, 1]);
    }

    #[test]
    fn children_come_and_go_while_it_runs() {
        let mut plan = plan(Strategy::OneForOne, &[Permanent; 2]);
        bring_up(&mut plan, at(0));
        let third = plan.add(Policy { restart: Permanent, backoff: None }, false, at(1));
        assert_eq!(bring_up(&mut plan, at(1)), [third]);
        assert_eq!(plan.stop(0), None);
        assert_eq!(next(&mut plan, at(2)), [Stop(0)]);
        plan.exited(0, &Exit::Killed, at(2), || 0);
        assert_eq!(plan.remove(0), Some(Fate::Forgotten));
        assert_eq!(plan.remove(1), None);
        assert_eq!(next(&mut plan, at(3)), [Stop(1)]);
        assert_eq!(plan.exited(1, &Exit::Normal, at(3), || 0), Fate::Forgotten);
        assert!(plan.restart(third, at(4)));
        assert_eq!(next(&mut plan, at(4)), [Stop(third)]);
        plan.exited(third, &Exit::Normal, at(4), || 0);
        assert_eq!(next(&mut plan, at(4)), [Start(third)]);
        assert!(!plan.restart(1, at(5)));
        assert_eq!((plan.stop(0), plan.remove(77)), (Some(Fate::Forgotten), Some(Fate::Forgotten)));
    }

    #[test]
    fn a_shutdown_stops_in_reverse_whatever_goes_on() {
        let mut plan = plan(Strategy::OneForAll, &[Permanent; 3]);
        assert_eq!(next(&mut plan, at(0)), [Start(0)]);
        plan.started(0, at(0));
        assert_eq!(next(&mut plan, at(0)), [Start(1)]);
        plan.shut_down();
        assert_eq!(next(&mut plan, at(0)), [Stop(1)]);
        // It starts, too late.
        plan.started(1, at(0));
        assert_eq!(next(&mut plan, at(0)), []);
        plan.exited(1, &boom(), at(0), || 0);
        assert_eq!(next(&mut plan, at(0)), [Stop(0)]);
        assert!(plan.ended().is_none());
        plan.exited(0, &Exit::Normal, at(0), || 0);
        assert!(matches!(plan.ended(), Some(End::Asked)));
    }

    /// Deaths at random times, one after another, as a model has them that counts by hand: who is stopped and started, in
    /// which order and when, and which death is one too many within the window.
    #[test]
    fn random_deaths_do_as_the_model_says() {
        for seed in 0..3_000 {
            let mut rng = Rng::seeded(seed);
            let strategy = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne][rng.below(3)];
            let (most, within) = (rng.below(5), 1 + rng.below(60) as u64);
            let mut plan = Plan::new(strategy, Intensity::new(most as u32, MS(within)));
            let kinds: Vec<_> = (0..=rng.below(6))
                .map(|_| ([Permanent, Permanent, Transient, Temporary][rng.below(4)], [0, 0, 10, 25][rng.below(4)]))
                .collect();
            for &(restart, wait) in &kinds {
                let backoff = (wait > 0).then(|| Backoff::new(MS(wait), MS(wait)).jitter(false));
                plan.add(Policy { restart, backoff }, false, at(0));
            }
            let all = 0..kinds.len() as Id;
            assert_eq!(bring_up(&mut plan, at(0)), all.clone().collect::<Vec<_>>());
            let mut up: BTreeSet<Id> = all.collect();
            let (mut now, mut restarts) = (0, Vec::new());
            while !up.is_empty() && restarts.len() < 40 {
                now += rng.below(15) as u64;
                let victim = *up.iter().nth(rng.below(up.len())).expect("it is below");
                up.remove(&victim);
                let exit = [boom(), Exit::Killed, Exit::Normal, Exit::Cancelled("asked".into())][rng.below(4)].clone();
                let fate = plan.exited(victim, &exit, at(now), || 0);
                let (restart, wait) = kinds[victim as usize];
                let is_failure = matches!(exit, Exit::Panicked(_) | Exit::Killed);
                if restart == Temporary || restart == Transient && !is_failure {
                    assert_eq!(fate, if restart == Temporary { Fate::Forgotten } else { Fate::Down }, "seed {seed}");
                    assert_eq!((next(&mut plan, at(now)), plan.next_time()), (vec![], None), "seed {seed}");
                    continue;
                }
                let gives_up = restarts.iter().filter(|&&before| now - before < within).count() >= most;
                restarts.push(now);
                let first = match strategy {
                    _ if gives_up => 0,
                    Strategy::OneForOne => Id::MAX,
                    Strategy::OneForAll => 0,
                    Strategy::RestForOne => victim,
                };
                let stopped: Vec<Id> = up.range(first..).copied().collect();
                for &other in stopped.iter().rev() {
                    assert_eq!(next(&mut plan, at(now)), [Stop(other)], "seed {seed}");
                    assert!(plan.ended().is_none());
                    now += rng.below(2) as u64;
                    plan.exited(other, &Exit::Killed, at(now), || 0);
                }
                if gives_up {
                    let Some(End::GaveUp(who, _)) = plan.ended() else { panic!("seed {seed}: {plan:?}") };
                    assert_eq!((*who, next(&mut plan, at(now)), plan.next_time()), (victim, vec![], None));
                    break;
                }
                up.retain(|id| !stopped.contains(id));
                let until = restarts[restarts.len() - 1] + wait;
                if now < until {
                    assert_eq!((next(&mut plan, at(until - 1)), plan.next_time()), (vec![], Some(at(until))));
                    now = until;
                }
                let comes_back = |id: &Id| kinds[*id as usize].0 != Temporary;
                let back: BTreeSet<Id> = stopped.into_iter().filter(comes_back).chain([victim]).collect();
                assert_eq!(bring_up(&mut plan, at(now)), back.iter().copied().collect::<Vec<_>>(), "seed {seed}");
                up.extend(back);
            }
        }
    }

    /// Whatever happens in whatever order: no child has two lives at once, stops go from the last to the first, and it
    /// comes to an end.
    #[test]
    fn no_child_ever_has_two_lives() {
        for seed in 0..2_000 {
            let mut rng = Rng::seeded(seed);
            let strategy = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne][rng.below(3)];
            let mut plan = Plan::new(strategy, Intensity::new(20, MS(50)));
            let mut alive: Vec<(Id, bool)> = Vec::new();
            let mut now = 0;
            for _ in 0..200 {
                now += rng.below(5) as u64;
                match rng.below(10) {
                    0 if plan.end.is_none() => {
                        let restart = [Permanent, Transient, Temporary][rng.below(3)];
                        let backoff = (rng.below(2) == 0).then_some(Backoff::new(MS(1), MS(10)));
                        plan.add(Policy { restart, backoff }, rng.below(2) == 0, at(now));
                    }
                    1 => {
                        let id = rng.below(10) as Id;
                        let _ = plan.remove(id);
                    }
                    2 => drop(plan.restart(rng.below(10) as Id, at(now))),
                    3 => drop(plan.stop(rng.below(10) as Id)),
                    4..=6 if !alive.is_empty() => {
                        let (id, _) = alive.swap_remove(rng.below(alive.len()));
                        let exit = [boom(), Exit::Normal, Exit::Killed][rng.below(3)].clone();
                        plan.exited(id, &exit, at(now), || rng.next());
                    }
                    _ if !alive.is_empty() => {
                        let which = rng.below(alive.len());
                        plan.started(alive[which].0, at(now));
                    }
                    _ => {}
                }
                if rng.below(500) == 0 {
                    plan.shut_down();
                }
                for action in next(&mut plan, at(now)) {
                    match action {
                        Start(id) => {
                            assert!(!alive.iter().any(|&(other, _)| other == id), "two lives of {id}, seed {seed}");
                            alive.push((id, false));
                        }
                        Stop(id) => {
                            let child = alive.iter_mut().find(|(other, _)| *other == id).expect("it lives");
                            assert!(!std::mem::replace(&mut child.1, true), "stopped twice, seed {seed}");
                        }
                    }
                }
                assert!(alive.iter().filter(|(_, stopping)| *stopping).count() <= 1, "seed {seed}");
            }
            plan.shut_down();
            for _ in 0..1_000 {
                next(&mut plan, at(now));
                match alive.iter().max().copied() {
                    Some(last) => {
                        alive.retain(|&other| other != last);
                        plan.exited(last.0, &Exit::Normal, at(now), || 0);
                    }
                    None => break,
                }
            }
            assert!(plan.ended().is_some(), "seed {seed}");
        }
    }
}
