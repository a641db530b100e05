//! The timer of a sleep that was given up, kept as it is until the step ends, for the next sleep of that process.
//!
//! Time limits are set and taken back, one after the other, far more often than they pass, and the next one ends later
//! than the last. It takes that one's timer over: the process is woken when the former limit would have passed, once, and
//! the sleep that finds itself woken too early then sets a timer of its own. Until then nobody took a lock, nor touched a
//! wheel.
//!
//! Whoever takes a timer over must know that it has not fired. The turn tells: if it has seen a moment before the timer
//! is due, the timer had not fired then, and if it has since, it has woken the task that is running, which is polled again.

use std::num::NonZeroU64;

use crate::host::control::{Change, Head};
use crate::host::refs::ProcessRef;
use crate::host::timer::Key;
use crate::platform::clock::Instant;
use crate::process::state::current::Current;

/// A timer that wakes a process by the waker of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    /// In ns, and never 0: so that there may be none costs no room. A whole word, for it is moved apart from the key.
    due: NonZeroU64,
    key: Key,
}

impl Timer {
    /// Of what is due at the first moment of all it says the next.
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

/// Keeps a timer, which stays counted among what the process waits for. False if it can't, and the timer has to be
/// cancelled: there is one already, its process is not in a step here, or one whose steps are counted would be woken
/// once too often.
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

/// Takes over the timer that was kept for this process, if it is due at `by` or earlier and cannot have fired.
#[inline]
pub(crate) fn take(of: &ProcessRef, by: Instant) -> Option<Timer> {
    Current::with(|current| {
        let due = current.timer.due(of.address()).filter(|due| *due <= by && current.has_seen_before(*due))?;
        current.timer.take(of.address()).map(|key| Timer::new(Key::unpack(key), due))
    })
}

/// Cancels the timer that was kept for this process, if no sleep has taken it over. Called when a step of the process ends.
pub(crate) fn cancel(current: &Current, address: usize, of: &Head) {
    if let Some(key) = current.timer.take(address) {
        of.wait_for(Change::Less, current.steps(address));
        drop(of.host().shared().timers.cancel(Key::unpack(key)));
    }
}
