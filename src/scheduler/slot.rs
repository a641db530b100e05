//! Published state of a worker, which other threads read. The state shows whether the worker runs tasks, which task the
//! worker runs, and whether the current step was handed over. This file makes no decisions. The file `threads.rs`
//! starts replacement threads, and the file `monitor.rs` detects long steps.

use std::fmt;
use std::time::Duration;

use crate::platform::clock::Instant;
use crate::platform::preempt::PreemptWord;
use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::tally::AtomicU64;
use crate::platform::sync::{Arc, Mutex, tally};

/// Label of a task that has no label of its own.
pub(crate) const NO_LABEL: u64 = u64::MAX;
/// Label of a guest's own future. This future is not a task, and a poll of this future may take a long time.
pub(super) const OWN_FUTURE: u64 = u64::MAX - 1;

/// States of a worker slot:
///
/// ```text
///           begin        mark_handed_over
///   FREE ─────────▶ BUSY ─────────────────▶ HANDED_OVER
///    ▲  ▲             │                          │
///    │  └──── rest ───┘                          │ resume: the step has returned
///    └───────────────────────────────────────────┘
/// ```
///
/// The worker calls `begin`, `rest` and `resume`. A caller of `mark_handed_over` holds the lock of the worker threads,
/// because the caller also changes the counts that this lock protects. A worker thread also holds this lock when it
/// calls `resume`. There is one exception: a thread that has just occupied the slot calls `resume` without the lock.
const FREE: u8 = 0;
const BUSY: u8 = 1;
const HANDED_OVER: u8 = 2;

/// Bit of [`WorkerSlot::blocked_since`]. The clock reaches a time with this bit only after 292 years.
const ASKED: u64 = 1 << 63;

/// Report about a blocked step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockedReport {
    /// Time since which the step counts as blocked.
    pub(crate) since: Instant,
    /// Whether the monitor has asked the step to yield before the monitor made the report. If the value is false, the
    /// step itself has reported that it blocks.
    pub(crate) was_asked: bool,
}

/// Published state of the worker in one slot.
pub(crate) struct WorkerSlot {
    duty: AtomicU8,
    /// Label of the task that began most recently.
    label: AtomicU64,
    /// Number of times that the worker began to call wakers or a hook. If the number has changed between two checks of
    /// the monitor, the monitor knows that it has not observed the same call twice.
    user_calls: AtomicU64,
    /// Word for preemption requests to the tasks that run in this slot.
    preempt_word: Arc<PreemptWord>,
    /// Whether a guest thread occupies the slot.
    has_guest: tally::AtomicBool,
    /// Time in ns since which a step of the worker counts as blocked. If several steps have blocked, the field contains
    /// the time of the last such step: see [`set_blocked_since`]. The bit [`ASKED`] is set if the monitor has asked the
    /// step to yield.
    ///
    /// [`set_blocked_since`]: Self::set_blocked_since
    blocked_since: AtomicU64,
    /// Orders the reports of a long step. The monitor takes this lock before it hands over the step. The monitor
    /// releases the lock after it has reported that the worker is blocked. The worker of the step takes the lock before
    /// the worker reports its own next state: see [`Scheduler::await_report`](super::Scheduler::await_report).
    pub(super) report: Mutex<()>,
}

impl fmt::Debug for WorkerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.duty.load(Ordering::Relaxed) {
            FREE => "Free",
            BUSY => "Busy",
            _ => "HandedOver",
        })
    }
}

impl WorkerSlot {
    pub(crate) fn new() -> Self {
        Self {
            duty: AtomicU8::new(FREE),
            label: AtomicU64::new(NO_LABEL),
            user_calls: AtomicU64::new(0),
            preempt_word: PreemptWord::new(),
            has_guest: tally::AtomicBool::new(false),
            blocked_since: AtomicU64::new(0),
            report: Mutex::new(()),
        }
    }

    /// Initializes the state. Called when a thread occupies this slot.
    pub(crate) fn initialize(&self, has_guest: bool) {
        self.has_guest.store(has_guest, Ordering::Relaxed);
        // If the scheduler was stopped, the previous worker may have left the slot in the state HANDED_OVER.
        self.resume();
    }

    pub(crate) fn has_guest(&self) -> bool {
        self.has_guest.load(Ordering::Relaxed)
    }

    /// Records that the worker begins to run tasks. The state HANDED_OVER does not change, because the worker must
    /// first see this state.
    pub(crate) fn begin(&self) {
        // The operations on `duty` are SeqCst for the following reason. The worker calls `begin` and then checks
        // whether the monitor sleeps. The monitor records that it sleeps, and then checks whether a worker runs tasks.
        // Either the worker must see that the monitor sleeps, or the monitor must see that the worker runs tasks.
        let _ = self.duty.compare_exchange(FREE, BUSY, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Records that the worker runs no task. If the state is HANDED_OVER, this function does not change the state, and
    /// returns false. The worker calls [`resume`](Self::resume) later.
    pub(crate) fn rest(&self) -> bool {
        self.duty.compare_exchange(BUSY, FREE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Marks the current step as handed over. Returns false if the worker runs no task, or if the step was already
    /// handed over. Only the worker may remove this mark, by a call of `resume`. The functions `rest` and
    /// `is_handed_over` read the state without a lock and rely on this rule.
    pub(crate) fn mark_handed_over(&self) -> bool {
        self.duty.compare_exchange(BUSY, HANDED_OVER, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Stores the time since which the current step counts as blocked. `was_asked` says whether the caller has
    /// [asked](Self::ask) the step to yield. Called before [`mark_handed_over`](Self::mark_handed_over).
    pub(crate) fn set_blocked_since(&self, time: Duration, was_asked: bool) {
        let asked = if was_asked { ASKED } else { 0 };
        self.blocked_since.store(time.as_nanos() as u64 & !ASKED | asked, Ordering::Relaxed);
    }

    /// If the current step was handed over, returns the report about this blocked step.
    pub(crate) fn blocked_report(&self) -> Option<BlockedReport> {
        // SeqCst includes acquire, which pairs with the release in `mark_handed_over`. Therefore a thread that sees
        // HANDED_OVER also sees two earlier writes: the time, and the request to yield.
        let is_handed_over = self.duty.load(Ordering::SeqCst) == HANDED_OVER;
        is_handed_over.then(|| {
            let since = self.blocked_since.load(Ordering::Relaxed);
            BlockedReport { since: Instant::from_ns(since & !ASKED), was_asked: since & ASKED != 0 }
        })
    }

    /// Records that a step that was handed over has returned.
    pub(crate) fn resume(&self) {
        self.duty.store(FREE, Ordering::SeqCst);
    }

    /// Returns whether the worker is running tasks or is in a step that was handed over.
    pub(crate) fn is_busy(&self) -> bool {
        self.duty.load(Ordering::SeqCst) != FREE
    }

    /// Returns whether the current step was handed over. Relaxed is enough, because a thread takes a lock before it
    /// acts on the result. If the worker does not see a hand-over now, it sees the hand-over after its next task.
    #[inline]
    pub(crate) fn is_handed_over(&self) -> bool {
        self.duty.load(Ordering::Relaxed) == HANDED_OVER
    }

    /// Records that the worker begins to call wakers or a hook. Such calls do not belong to a task.
    pub(crate) fn begins_user_code(&self) {
        self.set_label(NO_LABEL);
        self.user_calls.store(self.user_calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns how many times the worker began to call wakers or a hook.
    pub(crate) fn user_calls(&self) -> u64 {
        self.user_calls.load(Ordering::Relaxed)
    }

    /// Publishes the label of the task that runs next.
    #[inline]
    pub(crate) fn set_label(&self, label: u64) {
        self.label.store(label, Ordering::Relaxed);
    }

    /// Asks the task with this label to yield, if the worker in this slot runs this task. Returns whether the worker
    /// runs this task.
    pub(crate) fn ask(&self, label: u64) -> bool {
        let here = self.is_busy() && self.label() == label;
        if here {
            self.preempt_word.request(label);
        }
        here
    }

    /// Returns the word for preemption requests to this slot. The thread in this slot checks this word.
    pub(crate) fn preempt_word(&self) -> &Arc<PreemptWord> {
        &self.preempt_word
    }

    pub(crate) fn label(&self) -> u64 {
        self.label.load(Ordering::Relaxed)
    }
}
