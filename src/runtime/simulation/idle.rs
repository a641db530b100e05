//! Finds a deadlock beside timers: some processes wait forever while periodic timers keep others busy.
//!
//! The rule counts steps of time, which are jumps of the clock when no process is runnable. A run is a deadlock if, for
//! a number of such steps in a row:
//! - the future that the simulation runs has not been polled;
//! - no process has run that existed at the first check and had not run since then;
//! - at several checks in between, each timer that was set before the previous check had fired or was cancelled.
//!
//! Then no old timer is pending, so only the processes that run repeatedly can wake the waiting ones. A process that
//! counts more ticks than the limit before it wakes another process is reported wrongly. The limit can be raised for
//! it.

use std::collections::BTreeSet;
use std::mem;

use crate::host::timer::Timers;

/// Steps of time between two checks of the timers.
const STEPS_PER_CHECK: u64 = 1 << 10;
/// How many times all pending timers must have been replaced by new ones before the run is a deadlock.
const RENEWALS: u32 = 8;
/// Default number of steps of time without progress before the run is a deadlock.
const LIMIT: u64 = 1 << 16;

/// Counts the steps of time without progress, and knows the processes that have not run meanwhile.
#[derive(Debug)]
pub(super) struct Idle {
    limit: u64,
    /// Steps of time without progress.
    steps: u64,
    /// How many checks have found that no timer from before the mark was left.
    renewals: u32,
    /// The number that the next timer had at the last such check.
    mark: u64,
    /// Labels of the processes that existed at the first check and have not run since.
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

    /// The future that the simulation runs has been polled.
    #[inline]
    pub(super) fn progress(&mut self) {
        self.reset();
        self.suspects = None;
    }

    /// The process with this label has run.
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

    /// Counts a step of time: the clock has moved because no process was runnable. Returns the labels of the deadlocked
    /// processes if this is a deadlock. `alive` returns the labels of all processes that have not exited.
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

        /// Returns after how many steps of time the run is a deadlock. In each step a periodic timer fires and `also`
        /// is called.
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
    fn a_process_that_never_runs_beside_a_periodic_timer_is_found() {
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
    fn a_timer_that_never_fires_hides_no_deadlock() {
        let mut fixture = Fixture::new();
        fixture.timers.insert(None, Instant::FAR, Fire::Call(Box::new(|| {})));
        assert!(fixture.steps(2 * LIMIT, |_, _| {}).is_some());
    }

    #[test]
    fn progress_resets_the_count_of_steps() {
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
    fn the_limit_can_be_changed() {
        let mut fixture = Fixture::new();
        fixture.idle.set_limit(u64::MAX);
        assert!(fixture.steps(4 * LIMIT, |_, _| {}).is_none());
    }
}
