//! The task that an inbox belongs to.

#[cfg(procession_loom)]
use std::task::Waker;

use crate::counted;

/// Whoever reads an inbox.
pub(crate) trait Own {
    /// Wakes it; if it waited, it is to be queued.
    fn wake(&self) -> Option<Owed>;
}

/// It was woken, and is to be queued, which happens when this is dropped.
#[cfg(not(procession_loom))]
pub(crate) type Owed = counted::Owed;

/// As above; or of a model, which has no tasks.
#[cfg(procession_loom)]
#[derive(Debug)]
pub(crate) enum Owed {
    Task(#[expect(dead_code, reason = "it is dropped")] counted::Owed),
    Waker(Waker),
}

impl<T: counted::Stepped> Own for T {
    #[cfg(not(procession_loom))]
    #[inline]
    fn wake(&self) -> Option<Owed> {
        counted::Stepped::wake(self)
    }

    #[cfg(procession_loom)]
    fn wake(&self) -> Option<Owed> {
        counted::Stepped::wake(self).map(Owed::Task)
    }
}

#[cfg(procession_loom)]
impl Own for Waker {
    fn wake(&self) -> Option<Owed> {
        Some(Owed::Waker(self.clone()))
    }
}

#[cfg(procession_loom)]
impl Drop for Owed {
    fn drop(&mut self) {
        if let Self::Waker(waker) = self {
            waker.wake_by_ref();
        }
    }
}
