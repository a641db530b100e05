//! Detects a deadlock while timers still fire. If timers still fire in a deadlock, some processes wait forever, and
//! periodic timers wake other processes again and again.
//!
//! The rule counts time steps. If no process is runnable, the clock jumps to the next deadline, and this jump is a time
//! step. A run is a deadlock if the following conditions are true for a number of consecutive time steps:
//! - The future that the simulation runs has not been polled.
//! - The first check makes a list of all processes that exist. When a process runs, the process is removed from the
//!   list. During these time steps, no process was removed.
//! - Several checks have found that no old timer was pending. At a check, a timer is old if it was set before the
//!   previous check.
//!
//! In this state, no old timer can wake a waiting process. Only the processes that run repeatedly could wake the
//! waiting processes. The rule reports a false deadlock if a process that runs repeatedly wakes a waiting process only
//! after more time steps than the limit. In this case, the user can raise the limit.

use std::collections::BTreeSet;
use std::mem;

use crate::host::timer::Timers;

/// Number of time steps between two checks of the timers.
const STEPS_PER_CHECK: u64 = 1 << 10;
/// A run can be a deadlock only after this number of checks without a pending old timer. A timer is old if it was set
/// before the previous check.
const RENEWALS: u32 = 8;
/// Default limit of time steps without progress. A run can be a deadlock only after this number of time steps without
/// progress.
const LIMIT: u64 = 1 << 16;

/// Counts the time steps without progress, and records the processes that have not run during these steps.
#[derive(Debug)]
pub(super) struct Idle {
    limit: u64,
    /// Number of time steps without progress.
    steps: u64,
    /// Number of checks that found no pending timer with a lower number than `mark`.
    renewals: u32,
    /// Number that the next timer had at the last of these checks, or at the check that stored the `suspects`. All
    /// timers that were set before this check have lower numbers.
    mark: u64,
    /// Labels of the processes that existed at the first check and have not run since the first check.
    suspects: Option<BTreeSet<u64>>,
}

impl Default for Idle {
    fn default() -> Self {
        Self { limit: LIMIT, steps: 0, renewals: 0, mark: 0, suspects: None }
    }
}

impl Idle {
    pub(super) fn set_limit(&mut self, steps: u64) {
        self.limit = steps;
    }

    /// Records that the future of the simulation was polled.
    #[inline]
    pub(super) fn progress(&mut self) {
        self.reset();
        self.suspects = None;
    }

    /// Records that the process with this label has run.
    #[inline]
    pub(super) fn ran(&mut self, process: u64) {
        if let Some(suspects) = &mut self.suspects
            && suspects.remove(&process)
        {
            self.reset();
        }
    }

    fn reset(&mut self) {
        (self.steps, self.renewals) = (0, 0);
    }

    /// Counts a time step. If the run is a deadlock, returns the labels of the deadlocked processes. `alive` returns
    /// the labels of all processes that have not exited.
    #[inline]
    pub(super) fn time_passed(
        &mut self,
        timers: &Timers,
        alive: impl FnOnce() -> BTreeSet<u64>,
    ) -> Option<BTreeSet<u64>> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_CHECK) { self.look(timers, alive) } else { None }
    }

    #[cold]
    fn look(&mut self, timers: &Timers, alive: impl FnOnce() -> BTreeSet<u64>) -> Option<BTreeSet<u64>> {
        if self.suspects.is_none() {
            self.suspects = Some(alive());
            self.mark = timers.next_number();
            self.renewals = 0;
        } else if timers.oldest_number() >= self.mark {
            self.mark = timers.next_number();
            self.renewals += 1;
        }
        let is_deadlock = self.steps >= self.limit && self.renewals >= RENEWALS;
        if is_deadlock {
            self.reset();
            return mem::take(&mut self.suspects);
        }
        None
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::host::timer::{Fire, Key};
    use crate::platform::clock::{Clock, Instant};

    struct Fixture {
        idle: Idle,
        timers: Timers,
        tick: Option<Key>,
    }

    impl Fixture {
        fn new() -> Self {
            Self { idle: Idle::default(), timers: Timers::new(Clock::virtual_(), 0), tick: None }
        }

        fn set(&self, seconds: u64) -> Key {
            self.timers.insert(None, Instant::from_ns(seconds * 1_000_000_000), Fire::Call(Box::new(|| {}))).0
        }

        /// Calls `Idle::time_passed` up to `most` times. Before each call, a periodic timer fires and `also` is called.
        /// If the n-th call reports a deadlock, returns n and the deadlocked processes.
        fn steps(&mut self, most: u64, mut also: impl FnMut(&mut Idle, u64)) -> Option<(u64, BTreeSet<u64>)> {
            (1..=most).find_map(|step| {
                let fired = self.tick.take().map(|tick| self.timers.cancel(tick));
                drop(fired);
                self.tick = Some(self.set(step));
                also(&mut self.idle, step);
                let found = self.idle.time_passed(&self.timers, || BTreeSet::from([1, 2, 3]))?;
                Some((step, found))
            })
        }
    }

    #[test]
    fn a_process_that_waits_forever_is_found_although_a_periodic_timer_fires() {
        let mut fixture = Fixture::new();
        let found = fixture.steps(2 * LIMIT, |idle, _| idle.ran(2));
        let (step, suspects) = found.expect("a deadlock");
        assert!((LIMIT..LIMIT + 2 * STEPS_PER_CHECK).contains(&step), "{step}");
        assert_eq!(suspects, BTreeSet::from([1, 3]));
    }

    #[test]
    fn an_older_pending_timer_prevents_a_deadlock() {
        let mut fixture = Fixture::new();
        let far = fixture.set(1 << 30);
        assert!(fixture.steps(4 * LIMIT, |_, _| {}).is_none());
        drop(fixture.timers.cancel(far));
        assert!(fixture.steps(LIMIT, |_, _| {}).is_some());
    }

    #[test]
    fn a_timer_that_never_fires_does_not_hide_a_deadlock() {
        let mut fixture = Fixture::new();
        fixture.timers.insert(None, Instant::FAR, Fire::Call(Box::new(|| {})));
        assert!(fixture.steps(2 * LIMIT, |_, _| {}).is_some());
    }

    #[test]
    fn progress_resets_the_number_of_time_steps() {
        let mut fixture = Fixture::new();
        let polled = |idle: &mut Idle, step: u64| {
            if step.is_multiple_of(LIMIT - 1) {
                idle.progress();
            }
        };
        assert!(fixture.steps(8 * LIMIT, polled).is_none());
        let mut fixture = Fixture::new();
        let (step, suspects) = fixture
            .steps(8 * LIMIT, |idle, step| {
                if step == LIMIT - 1 {
                    idle.ran(1);
                }
            })
            .expect("the others wait still");
        assert!(step >= 2 * LIMIT - 2 && suspects == BTreeSet::from([2, 3]), "{step} {suspects:?}");
    }

    #[test]
    fn the_deadlock_limit_can_be_changed() {
        let mut fixture = Fixture::new();
        fixture.idle.set_limit(u64::MAX);
        assert!(fixture.steps(4 * LIMIT, |_, _| {}).is_none());
    }
}
