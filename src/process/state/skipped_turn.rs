//! A short check for the turns that a worker discards because of the limit of a trace.
//!
//! Under load, a worker with a trace reaches its limit soon after each collection of the events, and then discards most
//! turns. Therefore the duration of the check for one turn determines the cost of a trace (bench `ping-pong`). The
//! complete check reads the ring of the worker, the number of the traces, the observer, the number of the suspended
//! processes, and whether the traces select only some processes. After a complete check that discards a turn, the
//! thread of the worker stores the number of the present *period* in its thread-local state. While the stored number is
//! the number of the present period, the worker discards turns after a short check, which compares the two numbers.
//!
//! # Ordering
//! - Some changes cause a complete check to discard no more turns, for example a suspension. A thread that makes such a
//!   change ends the period after the change. A worker reads the number of the period before its complete check.
//!   Therefore, if a worker stores the number of the present period, its check has seen each such change.
//! - A number is never used for a second period, also not in another runtime. Therefore the short check need not
//!   compare the runtimes.
//! - The stored number belongs to the worker slot that the thread is in. If the thread enters another slot, the number
//!   is saved until the thread leaves this other slot.
//! - The short check is a relaxed load, so a worker may discard some turns shortly after the end of a period. If the
//!   end of a period happens before a turn, this turn sees the end. For example, a suspension ends the period, and then
//!   wakes the process. The first turn that sees this wake-up therefore does the complete check.

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::tally::AtomicU64 as Tally;

/// The number of the present period of a runtime.
#[derive(Debug)]
pub(crate) struct SkipPeriod(AtomicU64);

impl SkipPeriod {
    /// The number of no period.
    pub(crate) const NONE: u64 = 0;

    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Self::next()))
    }

    fn next() -> u64 {
        static PERIODS: Tally = Tally::new(SkipPeriod::NONE + 1);
        PERIODS.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the period. A worker calls this function before its complete check.
    pub(crate) fn number(&self) -> u64 {
        // Acquire pairs with the release in `end`.
        self.0.load(Ordering::Acquire)
    }

    /// Returns whether `number` is the number of the present period.
    #[inline]
    pub(crate) fn is(&self, number: u64) -> bool {
        self.0.load(Ordering::Relaxed) == number
    }

    /// Ends the period. The caller has made a change after which a complete check may discard fewer turns.
    pub(crate) fn end(&self) {
        // If two threads end periods at the same time, a worker may see only the number of the second thread. The swap
        // is a read-modify-write. Therefore this worker also sees the change of the first thread.
        self.0.swap(Self::next(), Ordering::AcqRel);
    }
}

/// A turn that was discarded after a complete check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SkippedTurn {
    /// Number of the period in which the check began.
    pub(crate) period: u64,
    /// The slot of the worker that ran the turn.
    pub(crate) slot: usize,
}

impl SkippedTurn {
    pub(crate) const NONE: Self = Self { period: SkipPeriod::NONE, slot: 0 };
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_ended_period_is_not_used_again() {
        let (one, other) = (SkipPeriod::new(), SkipPeriod::new());
        let mut numbers = vec![SkipPeriod::NONE];
        for period in [&one, &other, &one, &one, &other] {
            assert!(!numbers.contains(&period.number()));
            assert!(period.is(period.number()));
            numbers.push(period.number());
            period.end();
            assert!(!numbers.iter().any(|number| period.is(*number)));
        }
    }
}
