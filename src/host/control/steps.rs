//! The number of steps of a process, and the worker that ran the last step. Inspections read both values. The check of
//! the limit on steps reads only the number of steps. No other code reads these values.
//!
//! The number of steps has 47 bits. The head of a control block has room for only 16 bits, because a larger head would
//! need another cache line. The head contains the low bits ([`LowSteps`]). The other bits are the number of *batches*
//! of 2^15 steps ([`StepBatches`]). The number of batches is in another cache line of the control block. Only one step
//! in 2^15 changes this number.
//!
//! The fields are standard atomics even under a model checker, because no decision of the scheduler depends on these
//! fields.

use crate::observe::metrics::NO_WORKER;
use crate::platform::sync::tally::{AtomicU8, AtomicU16, AtomicU32, Ordering, fence};

/// Binary logarithm of the number of steps in a batch.
const BITS: u32 = 15;
/// Mask of the bits that count the steps of one batch.
const IN_BATCH: u16 = (1 << BITS) - 1;

/// The low bits of the number of steps. After each count of a batch, the highest of these bits is equal to the lowest
/// bit of the number of batches.
#[derive(Debug)]
pub(super) struct LowSteps(AtomicU16);

/// The number of complete batches of steps.
#[derive(Debug)]
pub(super) struct StepBatches(AtomicU32);

impl LowSteps {
    pub(super) const fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    /// Counts a step. If the step completes a batch, this function calls `count_batch`. Only the thread that runs the
    /// process calls this function, so no read-modify-write operation is needed.
    #[inline]
    pub(super) fn count(&self, count_batch: impl FnOnce()) {
        let steps = self.0.load(Ordering::Relaxed).wrapping_add(1);
        // Release pairs with the fence in `total`: a reader that sees this step also sees all earlier batches.
        self.0.store(steps, Ordering::Release);
        if steps & IN_BATCH == 0 {
            count_batch();
        }
    }

    /// Returns the low bits of the number of steps.
    pub(super) fn bits(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the number of steps.
    ///
    /// When a step completes a batch, the thread first changes the low bits, and then the number of batches. If a
    /// reader sees only the first change, two bits are not equal: the lowest bit of the number of batches, and the
    /// highest of the low bits.
    pub(super) fn total(&self, batches: &StepBatches) -> u64 {
        loop {
            let batch = batches.0.load(Ordering::Acquire);
            let low = self.0.load(Ordering::Relaxed);
            // If the second load reads a step of a later batch, the third load does not read the same number of batches
            // as the first load.
            fence(Ordering::Acquire);
            if batches.0.load(Ordering::Relaxed) == batch {
                let complete = u64::from(batch) + u64::from(u32::from(low >> BITS) != batch & 1);
                return (complete << BITS) + u64::from(low & IN_BATCH);
            }
        }
    }
}

impl StepBatches {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Counts a batch. Only the thread that runs the process calls this function.
    #[cold]
    pub(super) fn count(&self) {
        // Release pairs with the acquire load in `total`: a reader that sees this batch also sees the change of the low
        // bits that completed the batch.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// The slot of the worker that ran the last step, or [`NO_WORKER`].
#[derive(Debug)]
pub(super) struct LastWorker(AtomicU8);

impl LastWorker {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(NO_WORKER))
    }

    #[inline]
    pub(super) fn set(&self, worker: u8) {
        self.0.store(worker, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<usize> {
        let worker = self.0.load(Ordering::Relaxed);
        (worker != NO_WORKER).then_some(usize::from(worker))
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::sync::tally::AtomicBool;
    use crate::platform::sync::thread;

    #[test]
    fn the_parts_give_the_number_of_steps() {
        let (low, batches) = (LowSteps::new(), StepBatches::new());
        for steps in 0..5 << BITS {
            assert_eq!(low.total(&batches), steps);
            low.count(|| batches.count());
        }
    }

    /// 9.2c: a reader on another thread never combines the parts of two different numbers. Therefore the number that
    /// the reader reads never decreases, and never exceeds the real number of steps.
    #[test]
    fn a_reader_never_mixes_the_parts_of_two_numbers() {
        const STEPS: u64 = 20 << BITS;
        let (low, batches, done) = (LowSteps::new(), StepBatches::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..STEPS).for_each(|_| low.count(|| batches.count()));
                done.store(true, Ordering::Release);
            });
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let total = low.total(&batches);
                assert!((last..=STEPS).contains(&total), "{total} after {last}");
                last = total;
            }
            assert_eq!(low.total(&batches), STEPS);
        });
    }

    #[test]
    fn the_number_of_steps_includes_a_batch_that_is_not_counted_yet() {
        let (low, batches) = (LowSteps::new(), StepBatches::new());
        (0..1 << BITS).for_each(|_| low.count(|| ()));
        assert_eq!(low.total(&batches), 1 << BITS);
        batches.count();
        assert_eq!(low.total(&batches), 1 << BITS);
    }
}
