//! What a worker shows of itself while it runs tasks: that it does, which one, and whether another thread has been put in
//! its place. It decides nothing: see `crew.rs` for who takes over, and `monitor.rs` for who looks.

use std::fmt;

use crate::platform::preempt::Asked;
use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::tally::AtomicU64;
use crate::platform::sync::{Arc, tally};

/// The label of a task that has none.
pub(crate) const NOBODY: u64 = u64::MAX;
/// The label of a lender's own future, which may take as long as it likes.
pub(super) const OWN_FUTURE: u64 = u64::MAX - 1;

/// ```text
///           begin            take: the step is long, or says that it blocks
///   FREE ─────────▶ BUSY ───────────────────────────────▶ TAKEN
///    ▲  ▲             │                                     │
///    │  └──── rest ───┘                                     │ resume: the step has returned
///    └──────────────────────────────────────────────────────┘
/// ```
///
/// The worker begins, rests and resumes; `take` and `resume` happen under the lock of the crew, which counts with them.
const FREE: u8 = 0;
const BUSY: u8 = 1;
const TAKEN: u8 = 2;

/// The post of one place.
pub(crate) struct WorkerSlot {
    duty: AtomicU8,
    /// Which task was begun last.
    label: AtomicU64,
    /// Whether that one is asked to let others run.
    asked: Arc<Asked>,
    /// A lent thread is here, not one of the crew.
    lent: tally::AtomicBool,
}

impl fmt::Debug for WorkerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.duty.load(Ordering::Relaxed) {
            FREE => "Free",
            BUSY => "Busy",
            _ => "Taken",
        })
    }
}

impl WorkerSlot {
    pub(crate) fn new() -> Self {
        Self {
            duty: AtomicU8::new(FREE),
            label: AtomicU64::new(NOBODY),
            asked: Asked::new(),
            lent: tally::AtomicBool::new(false),
        }
    }

    /// Somebody comes to this place.
    pub(crate) fn occupied(&self, lent: bool) {
        self.lent.store(lent, Ordering::Relaxed);
        // At a stop one may have left without seeing that it was taken.
        self.resume();
    }

    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Relaxed)
    }

    /// Its worker runs tasks from now on. One that was taken stays that until its worker has seen it.
    pub(crate) fn begin(&self) {
        // SeqCst here and below: whoever begins and then looks whether the monitor sleeps, and the monitor, which says
        // that it sleeps and then looks whether anybody has begun, must not both miss the other.
        let _ = self.duty.compare_exchange(FREE, BUSY, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Its worker runs none for now. One that was taken stays that, and its worker sees it after this.
    pub(crate) fn rest(&self) {
        let _ = self.duty.compare_exchange(BUSY, FREE, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Somebody else stands in for its worker; false if it runs nothing, or somebody does already.
    pub(crate) fn take(&self) -> bool {
        self.duty.compare_exchange(BUSY, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// It was a mistake: the worker has not seen it, for that needs the lock which is held since `take`.
    pub(crate) fn give_back(&self) {
        self.duty.store(BUSY, Ordering::SeqCst);
    }

    /// Its worker has returned.
    pub(crate) fn resume(&self) {
        self.duty.store(FREE, Ordering::SeqCst);
    }

    /// Whether its worker runs tasks, or is thought to.
    pub(crate) fn is_busy(&self) -> bool {
        self.duty.load(Ordering::SeqCst) != FREE
    }

    /// Whether somebody stands in for its worker. Relaxed: whatever follows from it happens under a lock, and who sees it
    /// late sees it after the next task.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.duty.load(Ordering::Relaxed) == TAKEN
    }

    /// Says which task is run next.
    #[inline]
    pub(crate) fn set_label(&self, label: u64) {
        self.label.store(label, Ordering::Relaxed);
    }

    /// Asks the task that runs here to let others run, if it is that one.
    pub(crate) fn ask(&self, label: u64) -> bool {
        let here = self.is_busy() && self.label() == label;
        if here {
            self.asked.ask(label);
        }
        here
    }

    /// What the thread that works here looks at.
    pub(crate) fn asked(&self) -> &Arc<Asked> {
        &self.asked
    }

    pub(crate) fn label(&self) -> u64 {
        self.label.load(Ordering::Relaxed)
    }
}
