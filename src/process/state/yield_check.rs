//! The most recent step in which a process checked whether to yield. Only inspections read this value.
//!
//! The value contains the low bits of the number of this step. A step without a check writes nothing: a stored check
//! becomes older, because the number of steps grows. After 2^16 steps, the low bits would repeat, and an old check
//! would look recent. Therefore the process [expires](YieldCheck::expire) an old check at least one time in every 2^15
//! steps.
//!
//! The field is a standard atomic even under a model checker, because no decision of the runtime depends on the field.

use crate::platform::sync::tally::{AtomicU16, Ordering, fence};

/// Number of steps during which a check counts as recent.
const RECENT_STEPS: u16 = 64;

/// Low bits of the number of the last step that checked. Only the thread that runs the process writes this value.
#[derive(Debug)]
pub(crate) struct YieldCheck(AtomicU16);

impl YieldCheck {
    /// Creates the value of a process that has run no step.
    pub(crate) const fn new() -> Self {
        Self(AtomicU16::new(0_u16.wrapping_sub(RECENT_STEPS)))
    }

    /// Records a check in the present step. `ended` is the low bits of the number of steps that have ended.
    pub(crate) fn record(&self, ended: u16) {
        // Release pairs with the first load in `is_recent`: a reader that sees this check also sees the earlier steps.
        self.0.store(ended.wrapping_add(1), Ordering::Release);
    }

    /// Prevents an old check from looking recent after a wrap-around. `ended` is the low bits of the number of steps
    /// that have ended. The caller calls this function at least once in 2^15 steps.
    pub(crate) fn expire(&self, ended: u16) {
        if age(self.0.load(Ordering::Relaxed), ended) >= RECENT_STEPS {
            self.0.store(ended.wrapping_sub(RECENT_STEPS), Ordering::Release);
        }
    }

    /// Returns whether the process made a check in one of the last [`RECENT_STEPS`] steps. `ended` reads the low bits
    /// of the number of steps that have ended.
    pub(crate) fn is_recent(&self, ended: impl Fn() -> u16) -> bool {
        loop {
            let check = self.0.load(Ordering::Acquire);
            let ended = ended();
            // `ended` may be the number of a later step that has also checked. In this case, the second load returns
            // the newer check, and the loop runs again.
            fence(Ordering::Acquire);
            if self.0.load(Ordering::Relaxed) == check {
                return age(check, ended) < RECENT_STEPS;
            }
        }
    }
}

/// Returns the number of steps that ended after the step `check`.
fn age(check: u16, ended: u16) -> u16 {
    // The present step records its check before the step ends. Until then, `check` is one more than `ended`.
    if check == ended.wrapping_add(1) { 0 } else { ended.wrapping_sub(check) }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    const BATCH: u32 = 1 << 15;

    /// Counts the steps of a process in the same way as the control block of the process.
    struct Steps {
        check: YieldCheck,
        ended: u32,
    }

    impl Steps {
        fn run(&mut self, checks: bool) {
            if checks {
                self.check.record(self.ended as u16);
                assert!(self.is_recent(), "the present step checks");
            }
            self.ended += 1;
            if self.ended.is_multiple_of(BATCH) {
                self.check.expire(self.ended as u16);
            }
        }

        fn is_recent(&self) -> bool {
            self.check.is_recent(|| self.ended as u16)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter needs hours for these steps, and the code has no unsafe code")]
    fn a_process_that_never_checks_has_no_recent_check() {
        let mut steps = Steps { check: YieldCheck::new(), ended: 0 };
        for _ in 0..5 * BATCH {
            assert!(!steps.is_recent(), "after {} steps", steps.ended);
            steps.run(false);
        }
    }

    /// A check stays recent for exactly 64 steps, and never becomes recent again. The test makes the check in each step
    /// around the end of a batch.
    #[test]
    #[cfg_attr(miri, ignore = "the interpreter needs hours for these steps, and the code has no unsafe code")]
    fn a_check_is_recent_for_64_steps() {
        for before in (0..3).chain(BATCH - 130..BATCH + 3).chain([2 * BATCH - 1, 2 * BATCH]) {
            let mut steps = Steps { check: YieldCheck::new(), ended: 0 };
            (0..before).for_each(|_| steps.run(false));
            steps.run(true);
            for later in 0..3 * BATCH {
                assert_eq!(steps.is_recent(), later < 64, "{later} steps after the check in step {before}");
                steps.run(false);
            }
        }
    }
}
