//! The state that the platform layer stores for each thread.

use std::cell::{Cell, RefCell};

use crate::platform::delayed_wake::Delayed;
use crate::platform::preempt::PreemptWord;
use crate::platform::sync::{Arc, NeverDropped, thread_local};

/// State of one thread. When the thread exits, the state is not dropped. At this time the fields own no memory, so
/// nothing is leaked.
pub(super) struct ThisThread {
    /// The word of the worker slot that this thread uses: see `preempt.rs`.
    pub(super) preempt_word: RefCell<Option<Arc<PreemptWord>>>,
    /// Whether this thread is inside a call of `delay`: see `delayed_wake.rs`.
    pub(super) delays: Cell<bool>,
    /// The wakers that this thread calls at the end of `delay`. Outside `delay`, the lists are empty.
    pub(super) delayed: RefCell<Delayed>,
    /// Number of clock readings of this thread, for tests.
    #[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
    pub(super) clock_readings: Cell<u64>,
}

thread_local! {
    pub(super) static THIS_THREAD: NeverDropped<ThisThread> = const {
        NeverDropped::new(ThisThread {
            preempt_word: RefCell::new(None),
            delays: Cell::new(false),
            delayed: RefCell::new(Delayed::new()),
            #[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
            clock_readings: Cell::new(0),
        })
    };
}
