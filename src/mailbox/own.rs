//! The way from an inbox to the task of its process.

#[cfg(procession_loom)]
use std::task::Waker;

use crate::counted;

/// How the task is woken.
#[derive(Debug)]
pub(crate) enum Own {
    Task(counted::Own),
    /// Of a model, which has no tasks.
    #[cfg(procession_loom)]
    Waker(Waker),
}

/// It was woken, and is to be queued, which happens when this is dropped.
#[cfg(not(procession_loom))]
pub(super) type Owed = counted::Owed;
#[cfg(procession_loom)]
pub(super) use model::Owed;

impl Own {
    #[inline]
    pub(super) fn wake(&self) -> Option<Owed> {
        match self {
            #[cfg(not(procession_loom))]
            Self::Task(task) => task.wake(),
            #[cfg(procession_loom)]
            Self::Task(task) => task.wake().map(Owed::Task),
            #[cfg(procession_loom)]
            Self::Waker(waker) => Some(Owed::Waker(waker.clone())),
        }
    }
}

#[cfg(procession_loom)]
mod model {
    use std::task::Waker;

    use crate::counted;

    #[derive(Debug)]
    pub(crate) enum Owed {
        Task(counted::Owed),
        Waker(Waker),
    }

    impl Drop for Owed {
        fn drop(&mut self) {
            if let Self::Waker(waker) = self {
                waker.wake_by_ref();
            }
        }
    }
}
