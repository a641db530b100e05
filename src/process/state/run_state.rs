//! Run state of a process: one atomic byte, through which the threads that wake the process and the thread that runs it
//! agree.
//!
//! ```text
//!            wake                 wake
//!  Idle ──────────▶ Active ───────────────▶ Notified ──┐ wake
//!    ▲  ▲             │  ▲  ▲                 │  ▲     │
//!    │  └─── wait ────┤  │  └──── begin ──────┘  └─────┘
//!    │ recall         │  │
//!  Open ◀─── wait ────┤  └─ deliver, wake, from Open
//!                     └── end, from anywhere ───▶ Over
//! ```
//!
//! *Active*: the process is queued or running; no thread needs to know which. The thread that changes *Idle* to
//! *Active* queues the process, so one thread at a time queues or runs it. A wake-up that finds *Active* may announce
//! an event that the process has not seen in its last look. So it sets *Notified*. The `wait` at the end of the turn
//! then fails, and the thread that runs the process queues it again.
//!
//! *Open*: as *Idle*, for a process that waits for a message and has an open mailbox slot. The thread that changes
//! *Open* to *Active* gets the right to run the process and, with it, the slot (`mailbox::slot`): it may write the
//! message there that the next turn begins with. A receiver that is polled outside the turn ends this state by a
//! *recall*. If the process does not wait then, the recall sets *Recalled*: as *Notified*, and the next turn first
//! closes the slot.
//!
//! The usual turn costs one read-modify-write, in `wait`. A load is enough in `begin`: if it reads *Active*, a
//! concurrent wake-up leaves *Notified* for the end of the turn, at the cost of one unnecessary turn. If it reads
//! *Notified*, `begin` sets *Active* before the process looks, because the process then sees everything that those
//! wake-ups announced. A process that asks for another turn, or was notified, is queued again without a change of its
//! state.
//!
//! No wake-up is lost. An event is written before the read-modify-write of its wake-up. Or it is written under a lock
//! that the sender holds during both and that the process takes to look. This orders the event with the turns of the
//! process:
//!
//! - If the wake-up comes before `begin` resets *Notified*, or before the process was queued, the turn that begins sees
//!   the event.
//! - If it comes after that and before `wait`, `wait` fails.
//! - If it comes after `wait`, it finds *Idle* or *Open*, and queues the process.
//!
//! A delivered message is written before the process is queued.
//!
//! This file contains unsafe code: `wait` and `end` release the right to run a process. A caller that does not have
//! this right would create a second one.

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
    /// Initial state of a process that is about to be queued for the first time.
    pub(crate) fn active() -> Self {
        Self(AtomicU8::new(ACTIVE))
    }

    /// State of a value that is never run.
    pub(crate) fn over() -> Self {
        Self(AtomicU8::new(OVER))
    }

    /// Wakes the process. Returns true if the caller has to queue it.
    #[inline]
    #[must_use = "if nobody queues it, it never runs again"]
    pub(crate) fn wake(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = match seen {
                IDLE | OPEN => ACTIVE,
                // Also for *Notified*: this write orders the wake-up before the `begin` that resets the state, so that
                // the turn sees its event.
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

    /// As [`wake`](Self::wake), but only for a process that is *Open*. Otherwise it does nothing and returns false.
    #[inline]
    #[must_use = "if nobody queues it, it never runs again"]
    pub(crate) fn deliver(&self) -> bool {
        // Acquire pairs with the release in `wait`: the last accesses of the process to the slot happen before the
        // caller writes it.
        self.0.load(Ordering::Relaxed) == OPEN
            && self.0.compare_exchange(OPEN, ACTIVE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends the *Open* state. Returns false if the process does not wait, or has just been woken: then its next
    /// [`begin`](Self::begin) returns true.
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

    /// Begins a turn: the process was taken from a queue, and is about to look for events. Returns true if it was
    /// recalled.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            NOTIFIED | RECALLED => self.0.swap(ACTIVE, Ordering::AcqRel) == RECALLED,
            _ => false,
        }
    }

    /// Ends a turn: the process waits, as *Open* if `open`, or else as *Idle*. Returns false if the process was woken
    /// meanwhile: then the caller keeps the right to run it, and must queue it again.
    ///
    /// # Safety
    /// The caller has the right to run the process. If this returns true, the caller has released that right, and no
    /// longer accesses what only its owner may access: another thread may run the process immediately. If `open`, the
    /// slot of the process's mailbox is open, and stays so until the process is woken: a sender that finds the state
    /// *Open* writes the slot.
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

    /// Returns whether the process has exited. The acquire load pairs with the release store in `end`: everything that
    /// was done before the exit is visible.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// Records that the process has exited, and is never queued again.
    ///
    /// # Safety
    /// The caller has the right to run the process, and releases it. It does not access the process's outcome any more:
    /// once the handle sees that the process [has exited](Self::is_over), it takes the outcome without a lock.
    #[inline]
    pub(crate) unsafe fn end(&self) {
        self.0.store(OVER, Ordering::Release);
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
