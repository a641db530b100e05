//! *Unattended* slots: slots whose tasks wait although the worker of the slot does not sleep. A slot is unattended in
//! four cases. Its step was handed over. Its step has called `block_on`. Its guest has returned to the executor and has
//! left tasks in its queues. Or its worker has left the slot and has left tasks in its queues.
//!
//! A worker without tasks steals from every slot. A worker that always has tasks never searches. Therefore each worker
//! also checks the unattended slots every 61st time that it looks for a task. Otherwise the tasks in these slots would
//! wait until a worker is idle.
//!
//! A bit may be outdated for a moment. This is harmless, because a worker can steal from each slot at any time.

use crate::platform::sync::tally::{AtomicU64, Ordering};

/// Two sets of slots. Each set has one bit for each slot. The model checker does not see these atomics.
#[derive(Debug)]
pub(super) struct Unattended {
    /// The slots whose step was handed over. A thread that changes this set holds the lock of the worker threads.
    taken: AtomicU64,
    /// The other unattended slots. Only the thread that occupies a slot changes the bit of this slot.
    paused: AtomicU64,
}

impl Unattended {
    pub(super) fn new() -> Self {
        Self { taken: AtomicU64::new(0), paused: AtomicU64::new(0) }
    }

    /// Returns the bits of the unattended slots. Relaxed is enough, because a worker that misses a bit now sees the bit
    /// later.
    #[inline]
    pub(super) fn slots(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) | self.paused.load(Ordering::Relaxed)
    }

    /// Returns whether the step of this slot was handed over.
    pub(super) fn is_taken(&self, slot: usize) -> bool {
        self.taken.load(Ordering::Relaxed) & 1 << slot != 0
    }

    pub(super) fn set_taken(&self, slot: usize, is_taken: bool) {
        set(&self.taken, slot, is_taken);
    }

    pub(super) fn set_paused(&self, slot: usize, is_paused: bool) {
        set(&self.paused, slot, is_paused);
    }
}

fn set(slots: &AtomicU64, slot: usize, member: bool) {
    if member {
        slots.fetch_or(1 << slot, Ordering::Relaxed);
    } else {
        slots.fetch_and(!(1 << slot), Ordering::Relaxed);
    }
}
