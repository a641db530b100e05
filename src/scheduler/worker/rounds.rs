//! The number of rounds of a search. A worker adapts this number to the sleeps that follow its searches.

use std::cell::Cell;
use std::time::Duration;

/// Maximum number of rounds of a search before the worker parks.
const MAX: u32 = if cfg!(any(procession_loom, procession_shuttle)) { 1 } else { 16 };
/// If a sleep outside the poller was shorter than this time, the next search has all `MAX` rounds. In this case, a
/// longer search would have cost less than the sleep.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

/// Number of rounds in the next search of a worker.
#[derive(Debug)]
pub(super) struct Rounds(Cell<u32>);

impl Rounds {
    pub(super) fn new() -> Self {
        Self(Cell::new(MAX))
    }

    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.0.get()
    }

    /// Sets the maximum number of rounds. Called when a search has found a task.
    pub(super) fn restore(&self) {
        self.0.set(MAX);
    }

    /// Halves the number of rounds, down to 1. The worker calls this function after a search that found a ready socket,
    /// and after a wait in the poller that no push has ended. In both cases, a longer search would only check the
    /// poller more often.
    pub(super) fn shorten(&self) {
        self.0.set((self.0.get() / 2).max(1));
    }

    /// Adapts the number of rounds after a search that found no task and the sleep that followed. If a search costs as
    /// much as one sleep, the total cost is at most twice the cost of an optimal choice (Karlin, Li, Manasse and
    /// Owicki, "Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor", 1991). A search before a
    /// long sleep was useless. Therefore a long sleep halves the number of rounds.
    pub(super) fn adapt(&self, slept: Duration) {
        if slept < SHORT_SLEEP { self.restore() } else { self.shorten() }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_long_sleep_halves_the_rounds_and_a_short_sleep_restores_all_rounds() {
        let rounds = Rounds::new();
        let mut after = |slept: Duration| {
            rounds.adapt(slept);
            rounds.get()
        };
        assert_eq!([SHORT_SLEEP; 5].map(&mut after), [8, 4, 2, 1, 1]);
        assert_eq!(after(SHORT_SLEEP - Duration::from_nanos(1)), MAX);
    }

    #[test]
    fn shorten_halves_the_rounds_and_restore_sets_the_maximum() {
        let rounds = Rounds::new();
        assert_eq!(rounds.get(), MAX);
        rounds.shorten();
        assert_eq!(rounds.get(), MAX / 2);
        rounds.restore();
        assert_eq!(rounds.get(), MAX);
    }
}
