//! *Unattended* slots: slots whose tasks wait although the worker of the slot does not sleep. A slot is unattended in
//! four cases. First case: the current step of the worker was handed over. Second case: the current step of the worker
//! has called `block_on`. Third case: the guest in the slot has returned to the executor, and tasks are left in the
//! queues of the slot. Fourth case: the worker has left the slot, and tasks are left in the queues of the slot.
//!
//! A worker without tasks steals from every slot. A worker that always has tasks never searches. Therefore each worker
//! also checks the unattended slots every 61st time that it looks for a task. Otherwise the tasks in these slots would
//! wait until a worker is idle.
//!
//! The bit of a slot may be outdated for a moment. An outdated bit is harmless, because a worker can steal from each
//! slot at any time.

use crate::platform::sync::tally::{AtomicU64, Ordering};

/// Two sets of slots. Each set has one bit for each slot. The model checker does not see these atomics.
#[derive(Debug)]
pub(super) struct Unattended {
    /// The slots in which the current step was handed over. A thread that changes this set holds the lock of the worker
    /// threads.
    handed_over: AtomicU64,
    /// The other unattended slots. The worker of each of these slots has marked the slot. Only the thread that occupies
    /// a slot changes the bit of this slot.
    marked: AtomicU64,
}

impl Unattended {
    pub(super) fn new() -> Self {
        Self { handed_over: AtomicU64::new(0), marked: AtomicU64::new(0) }
    }

    /// Returns the bits of the unattended slots. Relaxed is enough: if a worker misses a bit now, it sees the bit
    /// later.
    #[inline]
    pub(super) fn slots(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed) | self.marked.load(Ordering::Relaxed)
    }

    /// Returns whether the step of this slot was handed over.
    pub(super) fn is_handed_over(&self, slot: usize) -> bool {
        self.handed_over.load(Ordering::Relaxed) & 1 << slot != 0
    }

    pub(super) fn set_handed_over(&self, slot: usize, is_handed_over: bool) {
        set(&self.handed_over, slot, is_handed_over);
    }

    pub(super) fn set_marked(&self, slot: usize, is_marked: bool) {
        set(&self.marked, slot, is_marked);
    }
}

fn set(slots: &AtomicU64, slot: usize, member: bool) {
    if member {
        slots.fetch_or(1 << slot, Ordering::Relaxed);
    } else {
        slots.fetch_and(!(1 << slot), Ordering::Relaxed);
    }
}
