//! The latch. The measuring thread waits at the latch until the work ends. The last operation wakes the thread. All
//! runtimes use the same latch. Therefore the measuring thread calls no `block_on` and drives no runtime.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};

/// A countdown latch. The program uses only one latch at a time, so the latch is a static variable.
pub(crate) struct Latch {
    left: AtomicU64,
    waiter: Mutex<Option<Thread>>,
}

/// The latch of the current work.
pub(crate) static DONE: Latch = Latch { left: AtomicU64::new(0), waiter: Mutex::new(None) };

impl Latch {
    /// Closes the latch. After `count` calls of the method [`count_down`](Self::count_down), the latch is open again.
    pub(crate) fn close(&self, count: u64) {
        *self.waiter.lock().expect("nobody panics here") = Some(thread::current());
        self.left.store(count, Ordering::Release);
    }

    /// Decrements the counter of the latch by one.
    pub(crate) fn count_down(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waiter) = &*self.waiter.lock().expect("nobody panics here")
        {
            waiter.unpark();
        }
    }

    /// Sleeps until the latch is open. This method must be called on the thread that closed the latch.
    pub(crate) fn wait(&self) {
        while self.left.load(Ordering::Acquire) != 0 {
            thread::park();
        }
    }
}
