//! Reuse of timers. When a sleep is dropped, its timer stays on the thread until the step ends. During this time, the
//! next sleep of the same process can reuse the timer.
//!
//! A process usually sets and cancels time limits one after the other, and a limit rarely passes before it is
//! cancelled. The next limit usually ends later than the previous limit. Therefore the next sleep can reuse the timer
//! of the previous sleep. The timer then wakes the process at the deadline of the previous sleep, and after this
//! wake-up the next sleep sets a new timer. Before this wake-up, the sleeps take no lock and do not change the timer
//! wheel.
//!
//! A sleep may reuse only a timer that has not fired before this turn. The turn records the time of its first clock
//! reading. If the recorded time is before the deadline of the timer, the timer had not fired at the recorded time. If
//! the timer has fired during this turn, the timer has woken the running task, and the task is polled again.

use std::num::NonZeroU64;

use crate::host::control::{Change, Head};
use crate::host::refs::ProcessRef;
use crate::host::timer::Key;
use crate::platform::clock::Instant;
use crate::process::state::current::Current;

/// A timer that wakes a process with the waker of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    /// Deadline in ns. Because the deadline is never 0, an `Option<Timer>` is as small as a `Timer`. The deadline is a
    /// whole word, because the code moves the deadline separately from the key.
    due: NonZeroU64,
    key: Key,
}

impl Timer {
    /// Creates a timer. A deadline of 0 ns is stored as 1 ns.
    #[inline]
    pub(crate) fn new(key: Key, due: Instant) -> Self {
        Self { due: NonZeroU64::MIN.saturating_add(due.ns().saturating_sub(1)), key }
    }

    #[inline]
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    #[inline]
    pub(crate) fn due(&self) -> Instant {
        Instant::from_ns(self.due.get())
    }
}

/// Keeps a timer for the next sleep of the process. The timer still counts as an external event that the process waits
/// for. Returns false if another timer is already kept, if this thread is not in a step of the process, or if the step
/// cannot keep timers. If this function returns false, the caller must cancel the timer.
#[inline]
pub(crate) fn keep(of: &ProcessRef, timer: &Timer) -> bool {
    let address = of.address();
    Current::with(|current| {
        let keeps = !current.timer.is_kept() && current.may_keep_timer(address);
        if keeps {
            current.timer.put(address, timer.due(), timer.key.pack());
        }
        keeps
    })
}

/// Takes over the timer that is kept for this process. The timer must be due at `by` or earlier, and must not have
/// fired before this turn.
#[inline]
pub(crate) fn take(of: &ProcessRef, by: Instant) -> Option<Timer> {
    Current::with(|current| {
        let due = current.timer.due(of.address()).filter(|due| *due <= by && current.has_seen_before(*due))?;
        current.timer.take(of.address()).map(|key| Timer::new(Key::unpack(key), due))
    })
}

/// Cancels the timer that is kept for this process, if no sleep has reused the timer. The task calls this function when
/// a step of the process ends.
pub(crate) fn cancel(current: &Current, address: usize, of: &Head) {
    if let Some(key) = current.timer.take(address) {
        of.wait_for(Change::Less, current.steps(address));
        drop(of.host().shared().timers.cancel(Key::unpack(key)));
    }
}
