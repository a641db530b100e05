//! The state that the platform layer keeps for each thread.

use std::cell::RefCell;

use crate::platform::delayed_wake::Delayed;
use crate::platform::preempt::PreemptWord;
use crate::platform::sync::{Arc, NeverDropped, thread_local};

/// State of one thread. When the thread exits, the state is not dropped, and the first two fields are empty.
pub(super) struct ThisThread {
    /// The word of the worker slot that this thread uses: see `preempt.rs`.
    pub(super) preempt_word: RefCell<Option<Arc<PreemptWord>>>,
    /// The wakers that this thread calls later: see `delayed_wake.rs`. `None` if no call of `delay` is running.
    pub(super) delayed: RefCell<Option<Delayed>>,
    /// Number of clock readings of this thread, for tests.
    #[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
    pub(super) clock_readings: std::cell::Cell<u64>,
}

thread_local! {
    pub(super) static THIS_THREAD: NeverDropped<ThisThread> = const {
        NeverDropped::new(ThisThread {
            preempt_word: RefCell::new(None),
            delayed: RefCell::new(None),
            #[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
            clock_readings: std::cell::Cell::new(0),
        })
    };
}
