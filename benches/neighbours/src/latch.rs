//! How the thread that measures waits for the end of the work: it sleeps, and the last operation wakes it. Every
//! runtime is waited for in this one way, so that none is charged for its `block_on`, or lends it a thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};

/// Opens when it was counted down. One at a time is in use, so it is a static that the work finds without carrying it.
pub(crate) struct Latch {
    left: AtomicU64,
    waiter: Mutex<Option<Thread>>,
}

/// What the work counts down when it ends.
pub(crate) static DONE: Latch = Latch { left: AtomicU64::new(0), waiter: Mutex::new(None) };

impl Latch {
    /// Closes it: `count` calls of [`one`](Self::one) open it.
    pub(crate) fn close(&self, count: u64) {
        *self.waiter.lock().expect("nobody panics here") = Some(thread::current());
        self.left.store(count, Ordering::Release);
    }

    /// One of them.
    pub(crate) fn one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waiter) = &*self.waiter.lock().expect("nobody panics here")
        {
            waiter.unpark();
        }
    }

    /// Sleeps until it is open, on the thread that closed it.
    pub(crate) fn wait(&self) {
        while self.left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
    }
}
