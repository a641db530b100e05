//! The timer of a sleep that was given up, kept as it is until the step ends, for the next sleep of that process.
//!
//! Time limits are set and taken back, one after the other, far more often than they pass, and the next one ends later
//! than the last. It takes that one's timer over: the process is woken when the former limit would have passed, once, and
//! the sleep that finds itself woken too early then sets a timer of its own. Until then nobody took a lock, nor touched a
//! wheel.
//!
//! Whoever takes a timer over must know that it has not fired. The turn tells: if it has seen a moment before the timer
//! is due, the timer had not fired then, and if it has since, it has woken the task that is running, which is polled again.

use std::cell::Cell;

use super::timers::Key;
use crate::clock::Instant;
use crate::control::{Change, Head};
use crate::home::Home;
use crate::process::turn;
use crate::sync::thread_local;

/// A timer that wakes a process by the waker of its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    pub(crate) key: Key,
    pub(crate) due: Instant,
}

thread_local! {
    /// Beside whose it is; 0 for nobody's.
    static SPARE: (Cell<usize>, Cell<Option<Timer>>) = const { (Cell::new(0), Cell::new(None)) };
}

/// Keeps a timer, which stays counted among what the process waits for. False if it can't, and the timer has to be
/// cancelled: there is one already, its process is not in a step here, or one whose steps are counted would be woken
/// once too often.
#[inline]
pub(crate) fn keep(of: &Home, timer: Timer) -> bool {
    let address = of.address();
    SPARE.with(|(whose, spare)| {
        let keeps = whose.get() == 0 && turn::keeps_of(address);
        if keeps {
            whose.set(address);
            spare.set(Some(timer));
        }
        keeps
    })
}

/// The timer that was kept of this process, if it is due by then and has surely not fired.
#[inline]
pub(crate) fn take(of: &Home, by: Instant) -> Option<Timer> {
    SPARE.with(|(whose, spare)| {
        if whose.get() != of.address() {
            return None;
        }
        let timer = spare.get().filter(|timer| timer.due <= by && turn::has_seen_before(timer.due))?;
        whose.set(0);
        Some(timer)
    })
}

/// The step of this process ends: what nobody has taken over is cancelled.
pub(crate) fn leave(address: usize, of: &Head) {
    let timer = SPARE.with(|(whose, spare)| {
        if whose.get() != address {
            return None;
        }
        whose.set(0);
        spare.take()
    });
    if let Some(timer) = timer {
        of.wait_for(Change::Less, turn::is_of(address));
        drop(of.host().shared().timers.cancel(timer.key));
    }
}
