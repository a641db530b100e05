//! The scheduler of a guest that has no worker slot yet. Such a guest polls its own future, but its thread does not act
//! as a worker. In this future, a new socket must still find its scheduler.

use std::any::Any;
use std::cell::RefCell;

use crate::platform::sync::{Arc, NeverDropped, thread_local, with_undropped};

type AnyScheduler = Arc<dyn Any + Send + Sync>;

thread_local! {
    /// The scheduler of the guest without a slot whose future this thread polls.
    static SLOTLESS: NeverDropped<RefCell<Option<AnyScheduler>>> = const { NeverDropped::new(RefCell::new(None)) };
}

/// Guard that restores the previous value of the thread-local.
struct Restored(Option<AnyScheduler>);

impl Drop for Restored {
    fn drop(&mut self) {
        replace(self.0.take());
    }
}

fn replace(scheduler: Option<AnyScheduler>) -> Option<AnyScheduler> {
    with_undropped(&SLOTLESS, |slotless| slotless.replace(scheduler))
}

/// Runs `f`, which polls the own future of a guest without a slot. During the call, [`scheduler_here`] returns the
/// scheduler of this guest.
pub(super) fn with_scheduler<R>(scheduler: AnyScheduler, f: impl FnOnce() -> R) -> R {
    let _restored = Restored(replace(Some(scheduler)));
    f()
}

/// Returns the scheduler of the guest without a slot whose future this thread polls.
pub(super) fn scheduler_here() -> Option<AnyScheduler> {
    with_undropped(&SLOTLESS, |slotless| slotless.borrow().clone())
}
