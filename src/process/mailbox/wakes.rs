//! Whom news in an inbox has woken: the task that it belongs to, and whoever waits in its place.
//!
//! The task is woken under the inbox's lock, or by the sender that finds its process open; what is left, to queue it, is done
//! when no lock is held.

use std::task::Waker;

use crate::process::state::current::Current;
use crate::process::state::wake_order::{SchedulerHandle, WakeOrder};
use crate::process::{catch as panic, state as counted};

/// Who was woken, and is to be told so when no lock is held.
#[must_use = "a wake that is not done is a lost wake-up"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    pub(super) own: Option<PendingSchedule>,
    pub(super) other: Option<Waker>,
}

impl Wakes {
    /// As [`wake`](Self::wake), for news that come in crowds: the task goes behind those that are ready, and finds all of
    /// the crowd that they bring.
    #[inline]
    pub(crate) fn wake_behind(self) {
        Current::with(|current| current.waking(WakeOrder::Back, || self.wake()));
    }

    #[inline]
    pub(crate) fn wake(self) {
        drop(self.own);
        if let Some(waker) = self.other {
            panic::wake(waker);
        }
    }

    /// As [`wake`](Self::wake), of a task of this place, which the caller keeps.
    #[inline]
    pub(crate) fn wake_in(self, place: &SchedulerHandle) {
        if let Some(own) = self.own {
            own.queue(place);
        }
        if let Some(waker) = self.other {
            panic::wake(waker);
        }
    }
}

/// The process that an inbox belongs to. The functions of an inbox that take one get the process of that very inbox: the
/// inbox's slot is guarded by its run state.
pub(crate) trait Own {
    /// Wakes the process. If it waited, the caller gets the right to run it, and has to queue it.
    fn wake(&self) -> Option<PendingSchedule>;

    /// Wakes the process if it is open for a message. Then the caller gets the right to run it, alone, and may put the message
    /// into the slot before it queues the process.
    fn deliver(&self) -> Option<PendingSchedule>;

    /// Has it open no longer. False if it is not known to wait: then it is told that somebody asked.
    fn recall(&self) -> bool;
}

/// It was woken, and is to be queued, which happens when this is dropped.
#[cfg(not(procession_loom))]
pub(crate) type PendingSchedule = counted::PendingSchedule;

/// As above; or of a model, which has no tasks.
#[cfg(procession_loom)]
#[derive(Debug)]
pub(crate) enum PendingSchedule {
    Task(#[expect(dead_code, reason = "it is dropped")] counted::PendingSchedule),
    Waker(Waker),
}

/// What a task comes to as.
#[cfg(not(procession_loom))]
#[inline]
fn of_task(owed: counted::PendingSchedule) -> PendingSchedule {
    owed
}

#[cfg(procession_loom)]
fn of_task(owed: counted::PendingSchedule) -> PendingSchedule {
    PendingSchedule::Task(owed)
}

impl<T: counted::Stepped> Own for T {
    #[inline]
    fn wake(&self) -> Option<PendingSchedule> {
        counted::Stepped::wake(self).map(of_task)
    }

    #[inline]
    fn deliver(&self) -> Option<PendingSchedule> {
        counted::Stepped::deliver(self).map(of_task)
    }

    fn recall(&self) -> bool {
        counted::Stepped::recall(self)
    }
}

/// Of a model, for somebody who never waits by a run state.
#[cfg(procession_loom)]
impl Own for Waker {
    fn wake(&self) -> Option<PendingSchedule> {
        Some(PendingSchedule::Waker(self.clone()))
    }

    fn deliver(&self) -> Option<PendingSchedule> {
        None
    }

    fn recall(&self) -> bool {
        true
    }
}

/// Of a model: a process, with whoever runs it.
#[cfg(procession_loom)]
impl Own for (counted::RunState, Waker) {
    fn wake(&self) -> Option<PendingSchedule> {
        self.0.wake().then(|| PendingSchedule::Waker(self.1.clone()))
    }

    fn deliver(&self) -> Option<PendingSchedule> {
        self.0.deliver().then(|| PendingSchedule::Waker(self.1.clone()))
    }

    fn recall(&self) -> bool {
        self.0.recall()
    }
}

#[cfg(procession_loom)]
impl PendingSchedule {
    pub(crate) fn queue(self, _: &SchedulerHandle) {
        drop(self);
    }
}

#[cfg(procession_loom)]
impl Drop for PendingSchedule {
    fn drop(&mut self) {
        if let Self::Waker(waker) = self {
            waker.wake_by_ref();
        }
    }
}
