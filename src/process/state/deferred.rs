//! Calls of user code that must not nest deeply. One call may cause another call. For example, a message may own a
//! mailbox whose messages own mailboxes, and a link may end a mailbox whose links end other mailboxes. The stack must
//! not grow with the length of the chain. So beyond a small depth an inner call is deferred: the outermost call runs it
//! after its own user code has returned.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::platform::sync::NeverDropped;
use crate::process::catch::catch;

/// Maximum number of calls that are nested in each other on one thread. Deeper calls are deferred.
const NESTED: u32 = 4;

/// The calls in progress on this thread. The destructors of other thread-locals may cause calls too, so this value
/// remains usable while the thread ends.
pub(crate) struct Deferred {
    /// Number of calls in progress.
    depth: Cell<u32>,
    /// Calls that the outermost call runs at its end. Empty and without memory between calls.
    calls: NeverDropped<RefCell<VecDeque<Box<dyn FnOnce()>>>>,
}

impl Deferred {
    pub(super) const fn new() -> Self {
        Self { depth: Cell::new(0), calls: NeverDropped::new(RefCell::new(VecDeque::new())) }
    }

    /// Calls `f` now, or later if too many calls are nested. A panic of `f` is caught.
    pub(crate) fn call(&self, f: impl FnOnce() + 'static) {
        let depth = self.depth.get();
        if depth == NESTED {
            return self.calls.borrow_mut().push_back(Box::new(f));
        }
        self.depth.set(depth + 1);
        let _ = catch(f);
        if depth == 0 {
            loop {
                let next = self.calls.borrow_mut().pop_front();
                let Some(next) = next else { break };
                let _ = catch(next);
            }
            // Frees the memory of the empty queue, because the thread's end does not.
            drop(self.calls.take());
        }
        self.depth.set(depth);
    }
}
