//! Calls of user code. These calls must not nest deeply. One call may cause another call. For example, the destructor
//! of a message may drop a mailbox, and the messages in this mailbox may own other mailboxes. In the same way, when a
//! link ends, a mailbox may be closed outside any process, and this mailbox may have links to other mailboxes. The
//! stack must not grow with the length of a chain of calls. Therefore, if calls nest deeper than a small limit, the
//! inner call is deferred. The outermost call runs the deferred calls after its own user code has returned.
//!
//! Code that holds a lock also defers the calls that this code causes, because user code must not run under a lock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::platform::sync::NeverDropped;
use crate::process::catch::catch;

/// Maximum number of nested calls on one thread. Deeper calls are deferred.
const NESTED: u32 = 4;

/// The calls in progress on this thread. This value remains usable while the thread exits, because the destructors of
/// other thread-locals may also cause calls.
pub(crate) struct Deferred {
    /// Number of calls in progress.
    depth: Cell<u32>,
    /// Queue of the deferred calls. The outermost call runs the deferred calls before it returns. While no call is in
    /// progress, the queue is empty and owns no memory.
    calls: NeverDropped<RefCell<VecDeque<Box<dyn FnOnce()>>>>,
}

impl Deferred {
    pub(super) const fn new() -> Self {
        Self { depth: Cell::new(0), calls: NeverDropped::new(RefCell::new(VecDeque::new())) }
    }

    /// Calls `f` immediately, unless too many calls are nested. In that case, the outermost call runs `f` later. A
    /// panic of `f` is caught.
    pub(crate) fn call(&self, f: impl FnOnce() + 'static) {
        let depth = self.depth.get();
        if depth == NESTED {
            return self.calls.borrow_mut().push_back(Box::new(f));
        }
        self.depth.set(depth + 1);
        let _ = catch(f);
        self.finish(depth);
    }

    /// Calls `f`. The code of `f` holds a lock. The calls that `f` makes are deferred until `f` has released the lock
    /// and returned. `f` must not panic.
    pub(crate) fn call_locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let depth = self.depth.replace(NESTED);
        let result = f();
        self.finish(depth);
        result
    }

    /// Ends a call that began at this depth. If the call is the outermost call, this function runs the deferred calls.
    fn finish(&self, depth: u32) {
        if depth == 0 {
            self.depth.set(1);
            loop {
                let next = self.calls.borrow_mut().pop_front();
                let Some(next) = next else { break };
                let _ = catch(next);
            }
            // The memory of the empty queue is freed here, because the end of the thread does not free this memory.
            drop(self.calls.take());
        }
        self.depth.set(depth);
    }
}
