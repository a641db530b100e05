//! The counters of a slot, which live as long as the program.
//!
//! A worker increments a counter for each message and for each step. The thread of the worker stores a reference to the
//! counters of its slot, so that the thread needs no lookup. Safe code can store a reference in a thread-local only if
//! the reference is `'static`. Therefore the counters are never freed. When a runtime ends, it returns its counters to
//! a pool, and the next runtime uses these counters again. The pool grows to the largest number of slots that existed
//! at one time.

use std::ops::Deref;

use crate::observe::counters::{COUNTERS, Counter};
use crate::platform::sync::tally::AtomicU64;
use crate::platform::sync::tally::Ordering::Relaxed;
use crate::platform::sync::{CachePadded, TallyLock};

/// The counters of one slot, or of one block of threads that are in no slot.
#[derive(Debug)]
pub(super) struct Counts {
    counts: [AtomicU64; COUNTERS],
    /// Number of exits that have ended: see [`Metrics::end_exit`](super::Metrics::end_exit).
    pub(super) ended_exits: AtomicU64,
}

/// Counters that no runtime uses.
static POOL: TallyLock<Vec<&'static CachePadded<Counts>>> = TallyLock::new(Vec::new());

impl Counts {
    pub(super) const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; COUNTERS], ended_exits: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn of(&self, counter: Counter) -> &AtomicU64 {
        &self.counts[counter as usize]
    }
}

/// The counters of the slots of one runtime, in the order of the slots. `Drop` returns the counters to the pool.
#[derive(Debug)]
pub(super) struct SlotCounts(Box<[&'static CachePadded<Counts>]>);

impl SlotCounts {
    /// Takes the counters of `slots` slots from the pool. If the pool has too few counters, allocates the missing
    /// counters. The returned counters are zero.
    pub(super) fn take(slots: usize) -> Self {
        let mut counts = POOL.with(|pool| pool.split_off(pool.len().saturating_sub(slots)));
        for used in &counts {
            used.counts.iter().for_each(|count| count.store(0, Relaxed));
            used.ended_exits.store(0, Relaxed);
        }
        counts.resize_with(slots, || Box::leak(Box::new(CachePadded(Counts::new()))));
        Self(counts.into())
    }
}

impl Deref for SlotCounts {
    type Target = [&'static CachePadded<Counts>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for SlotCounts {
    fn drop(&mut self) {
        // Each `SlotGuard` and each worker keeps the metrics alive. Therefore no thread is in a slot, and no thread
        // increments these counters any more. The next runtime takes the counters under the same lock. Therefore all
        // increments happen before the next runtime sets the counters to zero.
        POOL.with(|pool| pool.extend_from_slice(&self.0));
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn counters_of_an_ended_runtime_are_zero_in_the_next_runtime() {
        // Other tests take counters from the pool at the same time. Therefore a round may get counters that differ from
        // the counters of the ended runtime. The test repeats the round until the round gets the same counters again.
        let reused = (0..1_000).any(|_| {
            let before = SlotCounts::take(2);
            let address = |counts: &SlotCounts| std::ptr::from_ref(counts[1]).addr();
            let first = address(&before);
            before[1].of(Counter::Steps).store(7, Relaxed);
            before[1].ended_exits.store(7, Relaxed);
            drop(before);
            let after = SlotCounts::take(2);
            for counts in &*after {
                assert_eq!((counts.of(Counter::Steps).load(Relaxed), counts.ended_exits.load(Relaxed)), (0, 0));
            }
            address(&after) == first
        });
        assert!(reused, "the pool returned other counters in each round");
    }
}
