//! Finds a deadlock beside timers: processes that wait for ever while periodic timers keep others busy.
//!
//! The rule: for a number of steps of time in a row, the future that the simulation runs has not been polled, none of the
//! processes that were there has run except those that run again and again, and each timer that was set at any of
//! several moments in between has fired or was cancelled. So no timer that was set before is still to come: only
//! what the running processes do in future can wake the others. A process that counts more ticks than the limit before it
//! wakes another one breaks the rule; the limit can be raised for it.

use std::collections::BTreeSet;
use std::mem;

use crate::host::timer::Timers;

/// Steps of time between two looks at the timers.
const STRETCH: u64 = 1 << 10;
/// How often all timers have been replaced by new ones before it is a deadlock.
const RENEWALS: u32 = 8;
/// How many steps of time pass without progress before it is a deadlock.
const LIMIT: u64 = 1 << 16;

/// What has not run for how long, while time passed.
#[derive(Debug)]
pub(super) struct Idle {
    limit: u64,
    /// Steps of time without progress.
    steps: u64,
    /// How often no timer was left of those that were set before the last time.
    renewals: u32,
    /// The number of the first timer that was set since then.
    mark: u64,
    /// The processes that lived when it began to look, and have not run since.
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
        self.begin_again();
        self.suspects = None;
    }

    /// The process with this word has run.
    #[inline]
    pub(super) fn ran(&mut self, process: u64) {
        if let Some(suspects) = &mut self.suspects
            && suspects.remove(&process)
        {
            self.begin_again();
        }
    }

    fn begin_again(&mut self) {
        (self.steps, self.renewals) = (0, 0);
    }

    /// Time has passed, for no process was ready. Returns those that wait for ever, if it is a deadlock; `alive` says which
    /// processes live.
    #[inline]
    pub(super) fn time_passed(
        &mut self,
        timers: &Timers,
        alive: impl FnOnce() -> BTreeSet<u64>,
    ) -> Option<BTreeSet<u64>> {
        self.steps += 1;
        if self.steps.is_multiple_of(STRETCH) { self.look(timers, alive) } else { None }
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
            self.begin_again();
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

        /// After how many of these steps of time, in each of which a periodic timer fires and `also` happens, it is a deadlock.
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
    fn what_never_runs_beside_a_periodic_timer_is_found() {
        let mut fixture = Fixture::new();
        let found = fixture.steps(2 * LIMIT, |idle, _| idle.ran(2));
        let (step, suspects) = found.expect("a deadlock");
        assert!((LIMIT..LIMIT + 2 * STRETCH).contains(&step), "{step}");
        assert_eq!(suspects, BTreeSet::from([1, 3]));
    }

    #[test]
    fn it_is_no_deadlock_while_an_older_timer_is_to_come() {
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
    fn progress_begins_the_count_again() {
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
