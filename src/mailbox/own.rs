//! The way from an inbox to the task of its process.

#[cfg(procession_loom)]
use std::task::Waker;

use crate::counted::{self, Ready};

/// How the task is woken.
#[derive(Debug)]
pub(crate) enum Own {
    Task(counted::Own),
    /// Of a model, which has no tasks.
    #[cfg(procession_loom)]
    Waker(Waker),
}

/// It was woken, and is to be queued.
#[must_use = "a task that is woken and not queued is ended"]
#[derive(Debug)]
pub(super) enum Owed {
    Task(Ready),
    #[cfg(procession_loom)]
    Waker(Waker),
}

impl Own {
    #[inline]
    pub(super) fn wake(&self) -> Option<Owed> {
        match self {
            Self::Task(task) => task.wake().map(Owed::Task),
            #[cfg(procession_loom)]
            Self::Waker(waker) => Some(Owed::Waker(waker.clone())),
        }
    }
}

impl Owed {
    #[inline]
    pub(super) fn pay(self) {
        match self {
            Self::Task(ready) => ready.schedule(false),
            #[cfg(procession_loom)]
            Self::Waker(waker) => waker.wake(),
        }
    }
}
