//! Whether a process is to be run, runs, or waits: one byte, by which those who wake it and whoever runs it agree.
//!
//! ```text
//!         wake                 wake
//!  Idle ───────▶ Active ───────────────▶ Notified ──┐ wake
//!    ▲             │  ▲                    │  ▲      │
//!    └── wait ─────┤  └───── begin ────────┘  └──────┘
//!                  └── over, from anywhere ──▶ Over
//! ```
//!
//! *Active* is queued, or running: nobody need know which. Whoever turns *Idle* into *Active* queues it, so it is queued
//! or run by one at a time. A wake that finds it *Active* may come when the process has looked already for what it brings,
//! so it leaves *Notified*; and whoever runs it, if it wants to wait then, does not get to *Idle*, but queues it again.
//!
//! The usual turn costs one read-modify-write, for the wait. To begin, a load is enough: if that finds *Active*, a wake
//! that comes now or came just now leaves *Notified* for the end, at the price of a turn too many. Only *Notified* is taken
//! back, before the process looks, for everything that those wakes brought is seen then. A process that goes on, because
//! it wants to or was notified, stays as it is.
//!
//! No wake is lost. What it brings is written before its read-modify-write, which orders it with that of the one who runs:
//! if it comes before `begin` takes *Notified* back, or before whoever queued the process did, it is seen in the turn that
//! begins; if it comes after that and before the `wait`, that fails; if it comes after the `wait`, it finds *Idle*, and
//! queues.

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::planted;

const IDLE: u8 = 0;
const ACTIVE: u8 = 1;
const NOTIFIED: u8 = 2;
const OVER: u8 = 3;

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
                IDLE => ACTIVE,
                // Also of one that was notified before: this wake is to be ordered before the `begin` that takes that back.
                ACTIVE | NOTIFIED => NOTIFIED,
                _ => return false,
            };
            if planted!("run_state_wake_trusts_active") && seen == ACTIVE {
                return false;
            }
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen == IDLE,
                Err(now) => seen = now,
            }
        }
    }

    /// It was taken from a queue and is about to look for what there is.
    #[inline]
    pub(crate) fn begin(&self) {
        if self.0.load(Ordering::Relaxed) == NOTIFIED {
            self.0.swap(ACTIVE, Ordering::AcqRel);
        }
    }

    /// It has looked and wants to wait. False if it was woken meanwhile: then the caller queues it again.
    #[inline]
    #[must_use = "if nobody queues it, it never runs again"]
    pub(crate) fn wait(&self) -> bool {
        if planted!("run_state_waits_blindly") {
            self.0.store(IDLE, Ordering::Release);
            return true;
        }
        self.0.compare_exchange(ACTIVE, IDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether it has ended: then whatever was done before that is seen.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == OVER
    }

    /// It has ended, and is never queued again.
    #[inline]
    pub(crate) fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }
}
