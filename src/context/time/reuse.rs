//! Reuse of timers: a sleep that is dropped leaves its timer on the thread, for the next sleep of the same process,
//! until the step ends.
//!
//! Time limits are usually set and cancelled one after the other, and rarely pass. The next limit usually ends later
//! than the one before. So its sleep takes over the timer of the previous sleep. When the previous limit would have
//! passed, the timer wakes the process once, and the sleep then sets a timer of its own. Until then, no lock is taken
//! and no timer wheel is changed.
//!
//! A sleep may take over only a timer that has not fired before this turn. The turn notes the first time that it reads.
//! If that time is before the timer is due, the timer had not fired by then. If the timer has fired since, it has woken
//! the running task, which is therefore polled again.

use std::num::NonZeroU64;

use crate::host::control::{Change, Head};
use crate::host::refs::ProcessRef;
use crate::host::timer::Key;
use crate::platform::clock::Instant;
use crate::process::state::current::Current;

/// A timer that wakes a process with the waker of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    /// The time in ns. It is never 0, so an `Option` of it needs no more space. It is a whole word, because it is moved
    /// separately from the key.
    due: NonZeroU64,
    key: Key,
}

impl Timer {
    /// A timer that is due at time 0 is stored as due at 1 ns.
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

/// Keeps a timer for the next sleep of the process. The process still counts it among what it waits for. Returns false
/// if another timer is kept, or if this thread is not in a step of the process in which timers can be kept. The caller
/// then cancels the timer.
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

/// Takes over the timer that is kept for this process, if it is due at `by` or earlier and has not fired before this
/// turn.
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
