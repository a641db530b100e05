//! Whether a process is to be run, runs, or waits: one byte, by which those who wake it and whoever runs it agree.
//!
//! ```text
//!            wake                 wake
//!  Idle ──────────▶ Active ───────────────▶ Notified ──┐ wake
//!    ▲  ▲             │  ▲  ▲                 │  ▲     │
//!    │  └─── wait ────┤  │  └──── begin ──────┘  └─────┘
//!    │ recall         │  │
//!  Open ◀─── wait ────┤  └─ deliver, wake, from Open
//!                     └── over, from anywhere ──▶ Over
//! ```
//!
//! *Active* is queued, or running: nobody need know which. Whoever turns *Idle* into *Active* queues it, so it is queued
//! or run by one at a time. A wake that finds it *Active* may come when the process has looked already for what it brings,
//! so it leaves *Notified*; and whoever runs it, if it wants to wait then, does not get to *Idle*, but queues it again.
//!
//! *Open* is *Idle* of a process that waits for mail and has none: whoever turns that into *Active* has the right to run it,
//! and with that the mailbox's slot (`mailbox::slot`), where the message lies that the turn then begins with. A receiver that
//! is polled by somebody else ends that by a *recall*; if the process does not wait then, it leaves *Recalled*, which is
//! *Notified* with the wish that it looks after the slot.
//!
//! The usual turn costs one read-modify-write, for the wait. To begin, a load is enough: if that finds *Active*, a wake
//! that comes now or came just now leaves *Notified* for the end, at the price of a turn too many. Only *Notified* is taken
//! back, before the process looks, for everything that those wakes brought is seen then. A process that goes on, because
//! it wants to or was notified, stays as it is.
//!
//! No wake is lost. What it brings is written before its read-modify-write, or under a lock that is held from before that
//! until it is written and that the process takes to look. That orders it with the one who runs: if it comes before `begin`
//! takes *Notified* back, or before whoever queued the process did, it is seen in the turn that begins; if it comes after
//! that and before the `wait`, that fails; if it comes after the `wait`, it finds *Idle* or *Open*, and queues. What is
//! delivered is written before the process is queued.
//!
//! A file with unsafe code: `wait` and `end` give up the right to run a process. A caller that does not have it would make a
//! second one.

#![allow(unsafe_code)]

use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::planted;

const IDLE: u8 = 0;
const ACTIVE: u8 = 1;
const NOTIFIED: u8 = 2;
const OVER: u8 = 3;
const OPEN: u8 = 4;
const RECALLED: u8 = 5;

#[derive(Debug)]
pub(crate) struct RunState(AtomicU8);

impl RunState {
    /// Of a process that is about to be queued for the first time.
    pub(crate) fn active() -> Self {
        Self(AtomicU8::new(ACTIVE))
    }

    /// Of what is never run.
    pub(crate) fn over() -> Self {
        Self(AtomicU8::new(OVER))
    }

    /// True if the caller has to queue it.
    #[inline]
    #[must_use = "if nobody queues it, it never runs again"]
    pub(crate) fn wake(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = match seen {
                IDLE | OPEN => ACTIVE,
                // Also of one that was notified before: this wake is to be ordered before the `begin` that takes that back.
                ACTIVE | NOTIFIED => NOTIFIED,
                RECALLED => RECALLED,
                _ => return false,
            };
            if planted!("run_state_wake_trusts_active") && seen == ACTIVE {
                return false;
            }
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return next == ACTIVE,
                Err(now) => seen = now,
            }
        }
    }

    /// As [`wake`](Self::wake), of one that is open; else it does nothing.
    #[inline]
    #[must_use = "if nobody queues it, it never runs again"]
    pub(crate) fn deliver(&self) -> bool {
        // Acquire pairs with the `wait`: the slot is as the process left it.
        self.0.load(Ordering::Relaxed) == OPEN
            && self.0.compare_exchange(OPEN, ACTIVE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Has one that waits open no longer. False if it does not wait, or has just been woken: then it will
    /// [know](Self::begin).
    pub(crate) fn recall(&self) -> bool {
        let next = |seen| match seen {
            OPEN => Some(IDLE),
            ACTIVE | NOTIFIED | RECALLED => Some(RECALLED),
            _ => None,
        };
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(seen) => seen == OPEN,
            Err(_) => true,
        }
    }

    /// It was taken from a queue and is about to look for what there is. True if it was recalled.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            NOTIFIED | RECALLED => self.0.swap(ACTIVE, Ordering::AcqRel) == RECALLED,
            _ => false,
        }
    }

    /// The process has looked and wants to wait, open if its mailbox's slot is lent. False if it was woken meanwhile: then the
    /// caller keeps the right to run it, and queues it again.
    ///
    /// # Safety
    /// The caller has the right to run the process. If this returns true it has given up that right, and no longer accesses
    /// what only its owner may: another thread may run the process at once. If `open`, the slot of the process's mailbox is
    /// lent, and stays so until the process is woken: a sender that finds the process open writes to the slot.
    #[inline]
    #[must_use = "a process that is not queued again never runs again"]
    pub(crate) unsafe fn wait(&self, open: bool) -> bool {
        let next = if open { OPEN } else { IDLE };
        if planted!("run_state_waits_blindly") {
            self.0.store(next, Ordering::Release);
            return true;
        }
        self.0.compare_exchange(ACTIVE, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether it has ended: then whatever was done before that is seen.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// The process has ended, and is never queued again.
    ///
    /// # Safety
    /// The caller has the right to run the process, and gives it up. It does not access the process's outcome any more: its
    /// handle, once it sees that the process [is over](Self::is_over), takes the outcome without a lock.
    #[inline]
    pub(crate) unsafe fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }
}

/// For models of processes that have no cell: nothing in memory depends on these states.
#[cfg(procession_loom)]
impl RunState {
    #[must_use = "a process that is not queued again never runs again"]
    pub(crate) fn model_wait(&self, open: bool) -> bool {
        // SAFETY: no cell has this state, so no memory access depends on the right to run. The model itself asserts that the
        // right has one owner.
        unsafe { self.wait(open) }
    }

    pub(crate) fn model_end(&self) {
        // SAFETY: no cell has this state, so there is no outcome that a handle could take.
        unsafe { self.end() }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    const STATES: [u8; 6] = [IDLE, ACTIVE, NOTIFIED, OVER, OPEN, RECALLED];

    /// A method, and for each of [`STATES`] what the method returns there and the state that it leaves.
    type Row = (&'static str, fn(&RunState) -> bool, [(bool, u8); 6]);

    #[test]
    fn every_method_in_every_state() {
        let rows: [Row; 5] = [
            (
                "wake",
                RunState::wake,
                [
                    (true, ACTIVE),
                    (false, NOTIFIED),
                    (false, NOTIFIED),
                    (false, OVER),
                    (true, ACTIVE),
                    (false, RECALLED),
                ],
            ),
            (
                "deliver",
                RunState::deliver,
                [(false, IDLE), (false, ACTIVE), (false, NOTIFIED), (false, OVER), (true, ACTIVE), (false, RECALLED)],
            ),
            (
                "recall",
                RunState::recall,
                [(true, IDLE), (false, RECALLED), (false, RECALLED), (true, OVER), (true, IDLE), (false, RECALLED)],
            ),
            (
                "begin",
                RunState::begin,
                [(false, IDLE), (false, ACTIVE), (false, ACTIVE), (false, OVER), (false, OPEN), (true, ACTIVE)],
            ),
            (
                "is_over",
                RunState::is_over,
                [(false, IDLE), (false, ACTIVE), (false, NOTIFIED), (true, OVER), (false, OPEN), (false, RECALLED)],
            ),
        ];
        for (name, method, expected) in rows {
            for (from, expected) in STATES.into_iter().zip(expected) {
                let state = RunState(AtomicU8::new(from));
                let returned = method(&state);
                assert_eq!((returned, state.0.load(Ordering::Relaxed)), expected, "{name} in state {from}");
            }
        }
    }
}
