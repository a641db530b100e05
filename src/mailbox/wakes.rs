//! Whom news in an inbox is to wake: the task that it belongs to, and whoever waits in its place.
//!
//! The inbox says who is [`Due`], under its lock; whoever has the inbox, and with it the task, wakes that without the lock;
//! and what is left, to queue it, is done when no other lock is held either.

use std::task::Waker;

use crate::counted;
use crate::process::panic;
use crate::process::placing::{self, Placing};

/// The wakes that a push owes, to be done after the unlock.
#[must_use = "a wake that is not done is a lost wake-up"]
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// That of the process's task.
    pub(super) own: bool,
    pub(super) other: Option<Waker>,
}

impl Due {
    /// Wakes the process's task, which is this: what is left to be done when no lock is held is to queue it.
    #[inline]
    pub(crate) fn of(self, own: &impl Own) -> Wakes {
        Wakes { own: if self.own { own.wake() } else { None }, other: self.other }
    }
}

/// Who was woken, and is to be told so when no lock is held.
#[must_use = "a wake that is not done is a lost wake-up"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    own: Option<Owed>,
    other: Option<Waker>,
}

impl Wakes {
    /// As [`wake`](Self::wake), for news that come in crowds: the task goes behind those that are ready, and finds all of
    /// the crowd that they bring.
    #[inline]
    pub(crate) fn wake_behind(self) {
        placing::at(Placing::Behind, || self.wake());
    }

    #[inline]
    pub(crate) fn wake(self) {
        drop(self.own);
        if let Some(waker) = self.other {
            panic::wake(waker);
        }
    }
}

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
