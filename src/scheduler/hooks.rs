//! Hooks that the builder of a runtime registers for worker threads. The hooks are user code: they run while no lock is
//! held, and their panics are caught.

use std::fmt;

use crate::platform::sync::Arc;
use crate::process::catch::catch;

/// A hook without arguments.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The hooks of a scheduler. By default there are none.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    /// Called on a worker thread, before its first task.
    pub(crate) start: Option<Hook>,
    /// Called on a worker thread, after its last task.
    pub(crate) stop: Option<Hook>,
    /// Called when a worker has announced that it sleeps, just before it parks.
    pub(crate) park: Option<Hook>,
    /// Called after a worker was unparked.
    pub(crate) unpark: Option<Hook>,
    /// Called when a thread occupies the slot with this number.
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
        // A panic of a hook must not end the worker.
        let _ = catch(|| hook());
    }
}

impl Hooks {
    pub(super) fn seated(&self, slot: usize) {
        if let Some(seat) = &self.seat {
            let _ = catch(|| seat(slot));
        }
    }
}
