//! Hooks for the worker threads. A hook is a function that a worker thread calls, for example before it parks. A
//! program registers hooks with the builder of a runtime. The hooks are user code, so the scheduler holds no lock when
//! it calls a hook. The builder wraps each hook in code that catches panics.

use std::fmt;

use crate::platform::sync::Arc;

/// A hook without arguments. A call of the hook does not unwind.
pub(crate) type Hook = Arc<dyn Fn() + Send + Sync>;

/// The hooks of a scheduler. Default: no hooks.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    /// Called on a worker thread, before its first task.
    pub(crate) start: Option<Hook>,
    /// Called on a worker thread, after its last task.
    pub(crate) stop: Option<Hook>,
    /// Called before a worker announces that it will park.
    pub(crate) park: Option<Hook>,
    /// Called after a worker was unparked. Also called if a worker found work and therefore did not park.
    pub(crate) unpark: Option<Hook>,
    /// Called with the number of a slot, when a worker thread occupies this slot. The call does not unwind.
    pub(crate) occupied: Option<Arc<dyn Fn(usize) + Send + Sync>>,
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
    pub(super) fn occupied(&self, slot: usize) {
        if let Some(occupied) = &self.occupied {
            occupied(slot);
        }
    }
}
