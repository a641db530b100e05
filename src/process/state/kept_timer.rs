//! The timer that a sleep leaves for the next sleep of the same process: see `context/time/reuse.rs`.

use std::cell::Cell;

use crate::platform::clock::Instant;

/// A timer that no sleep uses now. The process whose turn runs on this thread has set the timer. Each field is a
/// separate cell and is moved separately.
pub(crate) struct KeptTimer {
    /// Address of the process's control block. The value 0 means that no timer is stored.
    process: Cell<usize>,
    due: Cell<Instant>,
    /// The key of the timer in the form that `host::timer::Key` creates.
    key: Cell<[u64; 2]>,
}

impl KeptTimer {
    pub(super) const fn new() -> Self {
        Self { process: Cell::new(0), due: Cell::new(Instant::FAR), key: Cell::new([0; 2]) }
    }

    /// Returns whether a timer is stored.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.process.get() != 0
    }

    /// Stores a timer of this process. The caller ensures that no other timer is stored.
    #[inline]
    pub(crate) fn put(&self, process: usize, due: Instant, key: [u64; 2]) {
        debug_assert!(!self.is_kept(), "there is room for one timer");
        self.process.set(process);
        self.due.set(due);
        self.key.set(key);
    }

    /// Returns the due time of the timer of this process. If no timer of this process is stored, returns `None`.
    #[inline]
    pub(crate) fn due(&self, process: usize) -> Option<Instant> {
        (self.process.get() == process).then(|| self.due.get())
    }

    /// Takes out the timer of this process.
    #[inline]
    pub(crate) fn take(&self, process: usize) -> Option<[u64; 2]> {
        if self.process.get() != process {
            return None;
        }
        self.process.set(0);
        Some(self.key.get())
    }
}
