//! What a runtime's builder has the worker threads call: user code, so it runs under no lock and may panic.

use std::fmt;

use crate::platform::sync::Arc;
use crate::process::catch::catch;

/// Something to call.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// When worker threads call what; nothing, by default.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    /// Before its first task, on a thread of the crew.
    pub(crate) start: Option<Hook>,
    /// After its last.
    pub(crate) stop: Option<Hook>,
    /// When a worker has said that it sleeps, and before it does.
    pub(crate) park: Option<Hook>,
    /// When it has slept.
    pub(crate) unpark: Option<Hook>,
    /// When a thread takes the place with this number.
    pub(crate) seat: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// Calls what there is to call.
pub(super) fn call(hook: Option<&Hook>) {
    if let Some(hook) = hook {
        // The worker goes on whatever its hook does.
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
