//! Reuse of timers. When a sleep is dropped, it leaves its timer on the thread until the step ends. The next sleep of
//! the same process can take over this timer.
//!
//! A process usually sets and cancels time limits one after the other, and these limits rarely pass. The next limit
//! usually ends later than the previous limit. Therefore the next sleep can take over the timer of the previous sleep.
//! At the deadline of the previous limit, the timer wakes the process once, and the sleep then sets a timer of its own.
//! Until then, no lock is taken and no timer wheel is changed.
//!
//! A sleep may take over only a timer that has not fired before this turn. The turn records the first time that it
//! reads from the clock. If this time is before the deadline of the timer, the timer had not fired at that time. If the
//! timer has fired since then, it has woken the running task, and the task is polled again.

use std::num::NonZeroU64;

use crate::host::control::{Change, Head};
use crate::host::refs::ProcessRef;
use crate::host::timer::Key;
use crate::platform::clock::Instant;
use crate::process::state::current::Current;

/// A timer that wakes a process with the waker of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    /// Deadline in ns. The deadline is never 0, so an `Option<Timer>` needs no more space than a `Timer`. The deadline
    /// is a whole word, because it is moved separately from the key.
    due: NonZeroU64,
    key: Key,
}

impl Timer {
    /// Creates a timer. If the timer is due at 0 ns, it is stored as due at 1 ns.
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
/// for. Returns false if another timer is already kept, or if this thread is not in a step of the process in which
/// timers can be kept. In this case the caller must cancel the timer.
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

/// Takes over the timer that is kept for this process, if the timer is due at `by` or earlier and has not fired before
/// this turn.
#[inline]
pub(crate) fn take(of: &ProcessRef, by: Instant) -> Option<Timer> {
    Current::with(|current| {
        let due = current.timer.due(of.address()).filter(|due| *due <= by && current.has_seen_before(*due))?;
        current.timer.take(of.address()).map(|key| Timer::new(Key::unpack(key), due))
    })
}

/// Cancels the timer that is kept for this process, if no sleep has taken it over. Called when a step of the process
/// ends.
pub(crate) fn cancel(current: &Current, address: usize, of: &Head) {
    if let Some(key) = current.timer.take(address) {
        of.wait_for(Change::Less, current.steps(address));
        drop(of.host().shared().timers.cancel(Key::unpack(key)));
    }
}
