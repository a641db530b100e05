//! Hooks that the builder of a runtime registers for the worker threads. The hooks are user code, so the scheduler
//! calls them while it holds no lock. The builder wraps each hook so that it does not unwind.

use std::fmt;

use crate::platform::sync::Arc;

/// A hook without arguments, which does not unwind.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The hooks of a scheduler. By default there are none.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    /// Called on a worker thread, before its first task.
    pub(crate) start: Option<Hook>,
    /// Called on a worker thread, after its last task.
    pub(crate) stop: Option<Hook>,
    /// Called after a worker has announced its sleep, immediately before the worker parks.
    pub(crate) park: Option<Hook>,
    /// Called after a worker was unparked.
    pub(crate) unpark: Option<Hook>,
    /// Called when a thread occupies the slot with this number. Does not unwind.
    pub(crate) seat: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// Calls the hook, if there is one.
pub(super) fn call(hook: Option<&Hook>) {
    if let Some(hook) = hook {
        hook();
    }
}

impl Hooks {
    pub(super) fn seated(&self, slot: usize) {
        if let Some(seat) = &self.seat {
            seat(slot);
        }
    }
}
