//! Hooks that a runtime's builder registers for worker threads. They run user code, so they run under no lock. The
//! builder passes hooks that do not unwind.

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
    /// Called when a worker has announced that it sleeps, before it parks.
    pub(crate) park: Option<Hook>,
    /// Called when a worker has been unparked.
    pub(crate) unpark: Option<Hook>,
    /// Called when a thread occupies the slot with this number. Does not unwind.
    pub(crate) seat: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// Calls a hook, if there is one.
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
