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
use std::num::NonZeroU64;

use crate::host::control::{Change, Head};
use crate::host::refs::Home;
use crate::host::timer::Key;
use crate::platform::clock::Instant;
use crate::platform::sync::thread_local;
use crate::process::state::current as turn;

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

/// In its parts, each of which is moved by itself.
struct Spare {
    /// 0 for nobody.
    whose: Cell<usize>,
    due: Cell<Instant>,
    key: Cell<Key>,
}

thread_local! {
    static SPARE: Spare =
        const { Spare { whose: Cell::new(0), due: Cell::new(Instant::FAR), key: Cell::new(Key::NONE) } };
}

/// Keeps a timer, which stays counted among what the process waits for. False if it can't, and the timer has to be
/// cancelled: there is one already, its process is not in a step here, or one whose steps are counted would be woken
/// once too often.
#[inline]
pub(crate) fn keep(of: &Home, timer: &Timer) -> bool {
    let address = of.address();
    SPARE.with(|spare| {
        let keeps = spare.whose.get() == 0 && turn::keeps_of(address);
        if keeps {
            spare.whose.set(address);
            spare.due.set(timer.due());
            spare.key.set(timer.key);
        }
        keeps
    })
}

/// The timer that was kept of this process, if it is due by then and has surely not fired.
#[inline]
pub(crate) fn take(of: &Home, by: Instant) -> Option<Timer> {
    SPARE.with(|spare| {
        let due = spare.due.get();
        if spare.whose.get() != of.address() || due > by || !turn::has_seen_before(due) {
            return None;
        }
        spare.whose.set(0);
        Some(Timer::new(spare.key.get(), due))
    })
}

/// The step of this process ends: what nobody has taken over is cancelled.
pub(crate) fn leave(address: usize, of: &Head) {
    let key = SPARE.with(|spare| {
        let is_its = spare.whose.get() == address;
        is_its.then(|| {
            spare.whose.set(0);
            spare.key.get()
        })
    });
    if let Some(key) = key {
        of.wait_for(Change::Less, turn::is_of(address));
        drop(of.host().shared().timers.cancel(key));
    }
}
