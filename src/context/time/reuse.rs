//! Reuse of timers. When a sleep is dropped, its timer is kept on the thread until the step ends. Until the end of the
//! step, the next sleep of the same process can reuse the timer.
//!
//! A process usually sets and cancels many time limits in sequence. A time limit rarely passes before the process
//! cancels the time limit. Each time limit usually ends later than the previous time limit. Therefore a sleep can
//! usually reuse the timer of the previous sleep. The reused timer wakes the process at the deadline of the previous
//! sleep, and the later sleep then sets a new timer. Before this wake-up, the sleeps take no lock and do not change the
//! timer wheel.
//!
//! With the reuse, the bench `timer-cancel` needs 27 % of the CPU time that the bench needs without the reuse.
//!
//! A sleep may reuse a timer only if the timer has not fired before the current turn. To check this condition, the turn
//! records the time of its first clock reading. If the recorded time is before the deadline of the timer, the timer had
//! not fired at the recorded time. The timer may still fire later in this turn. The timer then wakes the running task,
//! and the task is polled again.

use std::num::NonZeroU64;

use crate::host::control::{Change, Head};
use crate::host::refs::SleeperRef;
use crate::host::timer::Key;
use crate::platform::clock::Instant;
use crate::process::state::current::Current;

/// A timer that wakes a process with the waker of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SleepTimer {
    /// Deadline in ns. The deadline is never 0, so an `Option<SleepTimer>` is as small as a `SleepTimer`. The deadline
    /// occupies a whole word, because the code moves the deadline and the key separately.
    due: NonZeroU64,
    key: Key,
}

impl SleepTimer {
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

/// Keeps a timer for the next sleep of the process. This timer still counts as an external event for which the process
/// waits.
///
/// If the timer cannot be kept, this function returns false, and the caller must cancel the timer. The reasons are:
/// - The thread already keeps a timer.
/// - This thread is not in a step of the process.
/// - At this point of the turn, a sleep must not keep a timer: see [`Current::begin_keeping`].
#[inline]
pub(crate) fn keep(of: &SleeperRef, timer: &SleepTimer) -> bool {
    let address = of.address();
    Current::with(|current| {
        let keeps = !current.timer.is_kept() && current.may_keep(address);
        if keeps {
            current.timer.put(address, timer.due(), timer.key.pack());
        }
        keeps
    })
}

/// Takes over the timer that is kept for this process. Returns `None` if there is no kept timer, or if the timer is due
/// after `by`. Also returns `None` if the timer may have fired before this turn.
#[inline]
pub(crate) fn take(of: &SleeperRef, by: Instant) -> Option<SleepTimer> {
    Current::with(|current| {
        let due = current.timer.due(of.address()).filter(|due| *due <= by && current.has_seen_before(*due))?;
        current.timer.take(of.address()).map(|key| SleepTimer::new(Key::unpack(key), due))
    })
}

/// Cancels the timer that is kept for this process. If a sleep has reused the timer, this function has no effect. The
/// task of the process calls this function at the end of each step.
pub(crate) fn cancel(current: &Current, address: usize, of: &Head) {
    if let Some(key) = current.timer.take(address) {
        of.wait_for(Change::Less, current.steps(address));
        drop(of.host().shared().timers.cancel(Key::unpack(key)));
    }
}
