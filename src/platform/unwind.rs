//! Panics of user code that must not unwind through the scheduler.
//!
//! The payload of a panic has a user type, so the drop of the payload is user code, too, and may panic. Therefore
//! `catch_unwind` alone is not sufficient: its caller drops the payload outside of the catch.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum number of further panics while a panic payload is dropped. The drop of a payload may panic with a new
/// payload. After this number of panics, the last payload is leaked.
const PANICS_IN_PANICS: u32 = 8;

/// Runs `f`. If `f` panics, the panic ends here, and its payload is dropped.
///
/// A panic may leave the state of `f` inconsistent. The caller guarantees that `f` changes no state of the runtime that
/// is used later, or changes it only by complete operations.
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

    /// The payload of a panic. Its drop panics with a payload of the same type, `left` times.
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
