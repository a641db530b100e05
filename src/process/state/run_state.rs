//! Run state of a process. The run state is one atomic byte that coordinates the threads that wake the process and the
//! thread that runs the process.
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
//! *Active*: the process is queued or running. The run state does not distinguish between queued and running. The
//! thread that changes *Idle* to *Active* queues the process, so only one thread at a time queues or runs the process.
//! If a wake-up finds *Active*, the process may have checked for events before the event of this wake-up was written.
//! Therefore, the wake-up sets *Notified*. The `wait` at the end of the turn then fails. The process is then queued
//! again, by the thread that runs the process.
//!
//! *Open*: the process waits, as in the state *Idle*. In contrast to *Idle*, the process waits for a message, and its
//! mailbox slot is open. The thread that changes *Open* to *Active* obtains two rights: the thread may run the process,
//! and may write the slot (`mailbox::slot`). A message in the slot is the first message of the next turn. If a receiver
//! is polled outside the turns of its process, the receiver ends the state *Open* by a *recall*. If the recall finds
//! *Active* or *Notified*, the recall sets *Recalled*. The state *Recalled* has the meaning of *Notified*, and in
//! addition the next turn first closes the slot.
//!
//! A typical turn costs one read-modify-write operation, namely the operation in `wait`. The function `begin` needs
//! only a load. If the load reads *Active*, a concurrent wake-up may set *Notified* after the load. The state then
//! stays *Notified* until the end of the turn, and causes at most one unnecessary turn. If the load reads *Notified*,
//! `begin` changes the state to *Active*. The process checks for events after this change. Therefore, the check finds
//! the events of all earlier wake-ups. If a process requests another turn or was notified, the process is queued again
//! without a change of its state.
//!
//! No wake-up is lost, because a process that checks for events after a wake-up finds the event of this wake-up. Each
//! sender uses one of two ways to guarantee that the process finds the event. In the first way, the sender writes the
//! event before the read-modify-write operation of the wake-up. In the second way, the sender performs the write and
//! the wake-up under a lock, and the process takes the same lock when it checks for events. There are three cases:
//!
//! - If the wake-up comes before the process was queued, or before `begin` resets *Notified*, the turn of this `begin`
//!   finds the event.
//! - If the wake-up comes between `begin` and `wait`, `wait` fails.
//! - If the wake-up comes after `wait`, the wake-up finds *Idle* or *Open*, and queues the process.
//!
//! A sender that delivers a message into the slot first writes the message, and then queues the process.
//!
//! This file contains unsafe code, because `wait` and `end` release the right to run a process. If a caller without the
//! right to run a process called one of these functions, two threads could have the right to run the same process.

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
    /// Returns the initial state of a process that is about to be queued for the first time.
    pub(crate) fn active() -> Self {
        Self(AtomicU8::new(ACTIVE))
    }

    /// Returns the state *Over*, for a control block that never runs: a mailbox outside the processes, an attached
    /// receiver, or a process whose spawn was refused.
    pub(crate) fn over() -> Self {
        Self(AtomicU8::new(OVER))
    }

    /// Wakes the process. If the result is true, the caller must queue the process.
    #[inline]
    #[must_use = "if this returns true, the caller must queue the process, or the process never runs again"]
    pub(crate) fn wake(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = match seen {
                IDLE | OPEN => ACTIVE,
                // *Notified* is written again, although the value does not change. This write orders the wake-up before
                // the `begin` that resets the state. Therefore, the turn of this `begin` sees the event of the wake-up.
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

    /// Wakes the process if the state is *Open*, and returns true. The caller must then queue the process. If the state
    /// is not *Open*, this function does nothing and returns false.
    #[inline]
    #[must_use = "if this returns true, the caller must queue the process, or the process never runs again"]
    pub(crate) fn deliver(&self) -> bool {
        // Acquire pairs with the release in `wait`. Therefore, the last accesses of the process to the slot happen
        // before the caller writes the slot.
        self.0.load(Ordering::Relaxed) == OPEN
            && self.0.compare_exchange(OPEN, ACTIVE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends the state *Open*. If the process is queued or running, returns false, and the next [`begin`](Self::begin)
    /// returns true. In all other states, returns true.
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

    /// Begins a turn. The process was taken from a queue, and is about to check for events. Returns true if the process
    /// was [recalled](Self::recall).
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            NOTIFIED | RECALLED => self.0.swap(ACTIVE, Ordering::AcqRel) == RECALLED,
            _ => false,
        }
    }

    /// Ends a turn. If `open` is true, the process waits in the state *Open*. If `open` is false, the process waits in
    /// the state *Idle*. Returns false if the process was woken during the turn. If the result is false, the caller
    /// keeps the right to run the process, and must queue the process again.
    ///
    /// # Safety
    /// The caller has the right to run the process. If the result is true, the caller has released the right to run the
    /// process. The caller then no longer accesses data that only the owner of the right to run the process may access,
    /// because another thread may run the process immediately. If `open` is true, the slot of the process's mailbox is
    /// open, and stays open as long as the run state is *Open*. This condition is necessary, because a sender that
    /// finds the state *Open* writes the slot.
    #[inline]
    #[must_use = "a process that is not queued again never runs again"]
    pub(crate) unsafe fn wait(&self, open: bool) -> bool {
        let next = if open { OPEN } else { IDLE };
        if planted!("run_state_waits_with_a_store") {
            self.0.store(next, Ordering::Release);
            return true;
        }
        self.0.compare_exchange(ACTIVE, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the process waits for a wake-up, and is neither queued nor running. The acquire load pairs with
    /// the release in `wait`. Therefore the caller sees all actions of the process before this wait.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), IDLE | OPEN)
    }

    /// Returns whether the process has exited. The acquire load pairs with the release store in `end`, so all actions
    /// before the exit are visible.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// Records that the process has exited. The process is never queued again.
    ///
    /// # Safety
    /// The caller has the right to run the process, and this call releases the right to run the process. After this
    /// call the caller does not access the outcome of the process. The join handle takes the outcome without a lock as
    /// soon as the handle sees that the process [has exited](Self::is_over).
    #[inline]
    pub(crate) unsafe fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    const STATES: [u8; 6] = [IDLE, ACTIVE, NOTIFIED, OVER, OPEN, RECALLED];

    /// Row of the expected results for one method. For each of [`STATES`], the row contains the return value of the
    /// method and the state after the call.
    type Row = (&'static str, fn(&RunState) -> bool, [(bool, u8); 6]);

    #[test]
    fn every_method_has_the_expected_result_in_every_state() {
        let rows: [Row; 6] = [
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
                "is_waiting",
                RunState::is_waiting,
                [(true, IDLE), (false, ACTIVE), (false, NOTIFIED), (false, OVER), (true, OPEN), (false, RECALLED)],
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
