//! The timer that a sleep leaves to the next sleep of its process. See `context/time/reuse.rs`.

use std::cell::Cell;

use crate::platform::clock::Instant;

/// A timer that the process of this turn set, and that no sleep uses now. Each part is a cell of its own and is moved
/// by itself.
pub(crate) struct KeptTimer {
    /// Address of the process's control block. 0: no timer is kept.
    process: Cell<usize>,
    due: Cell<Instant>,
    /// The key of the timer, as `host::timer::Key` packs it.
    key: Cell<[u64; 2]>,
}

impl KeptTimer {
    pub(super) const fn new() -> Self {
        Self { process: Cell::new(0), due: Cell::new(Instant::FAR), key: Cell::new([0; 2]) }
    }

    /// Whether a timer is kept.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.process.get() != 0
    }

    /// Keeps a timer of this process. No other timer may be kept.
    #[inline]
    pub(crate) fn put(&self, process: usize, due: Instant, key: [u64; 2]) {
        debug_assert!(!self.is_kept(), "there is room for one timer");
        self.process.set(process);
        self.due.set(due);
        self.key.set(key);
    }

    /// When the timer of this process is due, if one is kept.
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
