//! The locks of the poller. These locks determine which thread uses the poller, and which thread waits in the poller.
//! The real poller and the poller of the models share this file, so the models check these locks.
//!
//! At most one thread at a time waits in the poller. During its wait, this thread holds the lock `turn` and the lock
//! `calls`. A thread that checks the poller for events without waiting holds only the lock `calls`, for a short time.
//!
//! # Lost wake-ups
//!
//! The poller needs two locks. Suppose that the poller had only one lock. A worker that checks the poller for events
//! without blocking could hold this lock when the timekeeper begins its wait. The timekeeper would then park outside
//! the poller, and no thread would wait for the sockets.
//!
//! Several threads may call the poller, but the system reports each wake-up of the poller to only one of these calls.
//! Each wake-up is meant for the timekeeper. However, two other calls may receive the wake-up: a call that does not
//! wait, and the wait of the helper thread. In these two cases, the receiving call records the wake-up, and the next
//! wait of the timekeeper ends immediately. Without the record, the wake-up
//! could be lost: the timekeeper checks for wake-ups just before this wake-up, and then waits.

use std::time::Duration;

use crate::platform::poller::Wait;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{TryMutex, planted};

/// Result of a call to the system.
#[cfg_attr(procession_loom, expect(dead_code, reason = "the calls of a model do not fail"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// The call has returned events.
    Events {
        /// Whether one of the events was a wake-up of the poller.
        woken: bool,
    },
    /// A signal interrupted the system call.
    Interrupted,
    Failed,
}

/// The object of the operating system, of type `S`, and the locks around this object.
#[derive(Debug)]
pub(super) struct Turns<S> {
    /// Held by the thread that waits in the poller.
    pub(super) turn: TryMutex<()>,
    pub(super) calls: TryMutex<Calls<S>>,
    /// This flag is set when the scheduler stops. While this flag is set, no call waits.
    is_stopped: AtomicBool,
}

/// State that a call to the system needs.
#[derive(Debug)]
pub(super) struct Calls<S> {
    pub(super) system: S,
    /// True if another call has received a wake-up that was meant for the wait of the timekeeper.
    pub(super) is_woken: bool,
}

impl<S> Turns<S> {
    pub(super) fn new(system: S) -> Self {
        let calls = TryMutex::new(Calls { system, is_woken: false });
        Self { turn: TryMutex::new(()), calls, is_stopped: AtomicBool::new(false) }
    }

    /// After this call, each later wait returns immediately. The caller must then wake the poller, to end the current
    /// wait.
    pub(super) fn stop(&self) {
        // A thread that already waits in the poller has read the flag before this store. The wake-up ends the wait of
        // this thread. No other call can take the wake-up, because the waiting thread holds the lock `calls`. In the
        // model `guest_asks_against_stop`, this flag alone or the record of the wake-up alone is enough. Therefore the
        // planted bug `poller_forgets_wake_ups` removes both.
        self.is_stopped.store(!planted!("poller_forgets_wake_ups"), Ordering::SeqCst);
    }

    /// Calls the system with the time limit of `wait`. Returns false if another thread uses the poller, or if the call
    /// has failed. In both cases, this function has not waited for events.
    pub(super) fn call(&self, wait: Wait, call: impl FnOnce(&mut S, Option<Duration>) -> Called) -> bool {
        let _turn = match wait {
            Wait::No => None,
            Wait::For(_) => match self.turn.try_lock() {
                Some(turn) => Some(turn),
                None => return false,
            },
            Wait::Alone => Some(self.turn.lock()),
        };
        let (guard, limit) = match wait {
            Wait::No => (self.calls.try_lock(), Some(Duration::ZERO)),
            Wait::For(limit) if planted!("timekeeper_only_tries_lock") => (self.calls.try_lock(), limit),
            // A thread that checks for events without blocking may hold this lock, but only for a short time.
            Wait::For(limit) => (Some(self.calls.lock()), limit),
            Wait::Alone => (Some(self.calls.lock()), None),
        };
        let Some(mut calls) = guard else { return false };
        let waits = wait != Wait::No;
        // Each wake-up is meant for the timekeeper. So only the wait of the timekeeper clears the record of a wake-up.
        let is_timekeeper = matches!(wait, Wait::For(_));
        let is_over =
            is_timekeeper && std::mem::take(&mut calls.is_woken) || waits && self.is_stopped.load(Ordering::SeqCst);
        match call(&mut calls.system, if is_over { Some(Duration::ZERO) } else { limit }) {
            Called::Events { woken } => {
                let is_for_timekeeper = woken && !is_timekeeper && !planted!("poll_without_wait_takes_wake_up");
                calls.is_woken |= is_for_timekeeper && !planted!("poller_forgets_wake_ups");
                true
            }
            // The caller checks for work and waits again.
            Called::Interrupted => true,
            Called::Failed => false,
        }
    }
}
