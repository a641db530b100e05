//! The wake-ups that a message or a signal causes. A wake-up wakes either the task of the process that owns the
//! mailbox, or a receiver that waits in another task.
//!
//! A wake-up changes the run state of the process under the inbox's lock. A sender that finds the run state *Open*
//! needs no lock for this change. No lock is held when the process is queued, or when wakers are called.

use std::task::Waker;

#[cfg(any(test, procession_loom))]
use crate::process::mailbox::measured::{MessageClock, MessageTimer};
use crate::process::state::wake_source::SchedulerHandle;
use crate::process::{catch as panic, state as counted};

/// Pending wake-ups, which must be performed when no lock is held.
#[must_use = "a wake that is not done is a lost wake-up"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    pub(super) own: Option<PendingSchedule>,
    pub(super) other: Option<Waker>,
}

impl Wakes {
    /// Performs the wake-ups for an event that arrives in a batch of events. A woken process is queued behind the
    /// processes that are already runnable. Therefore, the woken process finds the whole batch when it runs.
    #[inline]
    pub(crate) fn wake_behind(self) {
        if let Some(own) = self.own {
            own.queue_behind();
        }
        if let Some(waker) = self.other {
            match counted::PendingSchedule::wake(&waker) {
                Some(process) => process.queue_behind(),
                None => panic::wake(waker),
            }
        }
    }

    #[inline]
    pub(crate) fn wake(self) {
        drop(self.own);
        if let Some(waker) = self.other {
            panic::wake(waker);
        }
    }

    /// Performs the wake-ups. The task of the process belongs to the scheduler with the handle `place`. The caller has
    /// this handle, so the task is queued without a clone of the handle.
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

/// The process that owns an inbox. The run state of this process guards the slot of the inbox. Therefore, the caller of
/// an inbox function must pass the process of that inbox as `Own`. The slot calls [`owns`](Own::owns) to check this.
///
/// The unsafe code of the slot relies on the results of these methods. Except in tests and models, the only
/// implementation is the implementation below for all types that implement `Stepped`, which is an unsafe trait.
pub(crate) trait Own {
    /// Returns true if `field` points into this process, for example into its inbox.
    fn owns(&self, field: *const ()) -> bool;

    /// Wakes the process. If the process waited, the caller obtains the right to run the process, and must queue the
    /// process.
    fn wake(&self) -> Option<PendingSchedule>;

    /// Wakes the process if its run state is *Open*. If the process is woken, the caller obtains the exclusive right to
    /// run the process. The caller may write a message into the slot before the caller queues the process.
    fn deliver(&self) -> Option<PendingSchedule>;

    /// Ends the run state *Open*. If the process is active, returns false, and the next turn of the process closes the
    /// slot.
    fn recall(&self) -> bool;
}

/// A process that was woken and must be queued. When this value is dropped, the process is queued.
#[cfg(not(procession_loom))]
pub(crate) type PendingSchedule = counted::PendingSchedule;

/// In a model, this type represents a process that was woken and must be queued. A model has no tasks, so the value may
/// contain a waker.
#[cfg(procession_loom)]
#[derive(Debug)]
pub(crate) enum PendingSchedule {
    Task(#[expect(dead_code, reason = "it is dropped")] counted::PendingSchedule),
    Waker(Waker),
}

/// Converts the `PendingSchedule` of a task into the type that [`Wakes`] stores.
#[cfg(not(procession_loom))]
#[inline]
fn of_task(pending: counted::PendingSchedule) -> PendingSchedule {
    pending
}

#[cfg(procession_loom)]
fn of_task(pending: counted::PendingSchedule) -> PendingSchedule {
    PendingSchedule::Task(pending)
}

impl<T: counted::Stepped> Own for T {
    #[inline]
    fn owns(&self, field: *const ()) -> bool {
        self.contains(field)
    }

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

/// In a model, the receiver may be only a waker, which has no process and no run state. To wake a receiver that is only
/// a waker, a sender calls the waker.
#[cfg(procession_loom)]
impl Own for Waker {
    fn owns(&self, _: *const ()) -> bool {
        true
    }

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

/// The run state of a process in a model, and the waker of the thread that runs this process.
#[cfg(procession_loom)]
impl Own for (counted::RunState, Waker) {
    fn owns(&self, _: *const ()) -> bool {
        true
    }

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

    fn queue_behind(self) {
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

/// A process that is never woken.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(super) struct NeverWoken;

#[cfg(test)]
impl Own for NeverWoken {
    fn owns(&self, _: *const ()) -> bool {
        true
    }

    fn wake(&self) -> Option<PendingSchedule> {
        None
    }

    fn deliver(&self) -> Option<PendingSchedule> {
        None
    }

    fn recall(&self) -> bool {
        true
    }
}

/// In a model or a test, the time of the clock does not change, and no message is measured.
#[cfg(any(test, procession_loom))]
macro_rules! no_clock {
    ($($own:ty),*) => {
        $(impl MessageClock for $own {
            fn recent(&self) -> u64 {
                1
            }

            fn may_measure(&self) -> bool {
                false
            }

            fn timer(&self) -> Option<MessageTimer> {
                None
            }
        })*
    };
}

#[cfg(test)]
no_clock!(NeverWoken);
#[cfg(procession_loom)]
no_clock!(Waker, (counted::RunState, Waker));
