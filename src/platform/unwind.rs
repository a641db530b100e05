//! Panics of user code that must not unwind through the scheduler.
//!
//! The payload of a panic has a user type. Therefore, the drop of the payload is also user code, and may panic.
//! `catch_unwind` alone does not catch this second panic, because the caller of `catch_unwind` drops the payload after
//! the catch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum number of further panics during the drop of a payload. The drop of a payload may panic with a new payload.
/// After this number of panics, the last payload is leaked.
const PANICS_IN_PANICS: u32 = 8;

/// Runs `f`. If `f` panics, catches the panic, and drops its payload.
///
/// A panic may leave the state of `f` inconsistent. The caller guarantees one of two conditions: `f` changes no state
/// of the runtime that is used later, or a panic of `f` cannot interrupt such a change.
#[inline]
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        drop_payload(payload);
    }
}

/// Drops the payload of a panic, and the payloads of the panics that the drop causes.
#[cold]
pub(crate) fn drop_payload(mut payload: Box<dyn Any + Send>) {
    for _ in 0..PANICS_IN_PANICS {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(another) => payload = another,
        }
    }
    std::mem::forget(payload);
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::panic::panic_any;

    use super::*;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// The payload of a panic. If `left` is not 0, the drop of the payload panics with another payload. The field
    /// `left` of this other payload is one less.
    struct Payload {
        left: u32,
    }

    impl Drop for Payload {
        fn drop(&mut self) {
            if self.left != 0 {
                panic_any(Payload { left: self.left - 1 });
            }
        }
    }

    #[test]
    fn a_payload_whose_drop_panics_does_not_unwind() {
        for left in [0, 1, PANICS_IN_PANICS - 1, PANICS_IN_PANICS, 100] {
            contain(|| panic_any(Payload { left }));
        }
    }

    #[test]
    fn a_payload_is_dropped_once() {
        struct Counts(Arc<AtomicU32>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let drops = Arc::new(AtomicU32::new(0));
        let payload = Counts(Arc::clone(&drops));
        contain(|| panic_any(payload));
        assert_eq!(drops.load(Relaxed), 1);
    }
}
