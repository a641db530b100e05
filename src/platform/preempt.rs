//! Preemption requests. A preemption request asks a process to let other processes run. Each worker slot has one word
//! for a preemption request. The word contains the pid of the process that should yield. The process in the slot calls
//! `should_yield`, and this call reads the word. The scheduler decides when a request is made, and for which process.
//!
//! When the scheduler writes a pid to the word, the process with this pid may already run on another worker. In this
//! case, the request stays in the word. When the process runs in this slot again, the process yields once without need.

use crate::platform::sync::tally::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, CachePadded};
use crate::platform::this_thread::THIS_THREAD;

const NO_PROCESS: u64 = u64::MAX;

/// The word of one worker slot. The word contains the pid of the process that should let other processes run.
#[derive(Debug)]
pub(crate) struct PreemptWord(CachePadded<AtomicU64>);

impl PreemptWord {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(CachePadded(AtomicU64::new(NO_PROCESS))))
    }

    /// Stores a request for this process to yield. Relaxed is sufficient for this store and for the reads. The readers
    /// of the word do not rely on other data of the requesting thread.
    pub(crate) fn request(&self, process: u64) {
        self.0.store(process, Ordering::Relaxed);
    }

    /// Returns whether the word contains a request for this process that the process has not taken yet.
    pub(crate) fn is_requested(&self, process: u64) -> bool {
        self.0.load(Ordering::Relaxed) == process
    }

    /// Assigns this word to the current thread. The thread reads this word until the returned guard is dropped.
    pub(crate) fn assign_to_thread(self: &Arc<Self>) -> PreemptGuard {
        PreemptGuard(THIS_THREAD.with(|this| this.preempt_word.replace(Some(Arc::clone(self)))))
    }
}

/// Removes the word from the current thread until the returned guard is dropped. A simulation calls this function.
/// The word identifies a process only within the runtime to which the word belongs. So without this call, a request
/// for a process of a runtime could reach a process of the simulation.
pub(crate) fn ignore() -> PreemptGuard {
    PreemptGuard(THIS_THREAD.with(|this| this.preempt_word.replace(None)))
}

/// Guard that restores the previous word of this thread.
#[must_use]
pub(crate) struct PreemptGuard(Option<Arc<PreemptWord>>);

impl Drop for PreemptGuard {
    fn drop(&mut self) {
        THIS_THREAD.with(|this| this.preempt_word.replace(self.0.take()));
    }
}

/// Returns whether the word of this thread contains a request for this process. Returns true only once for each
/// request.
pub(crate) fn take(process: u64) -> bool {
    THIS_THREAD.with(|this| {
        let word = this.preempt_word.borrow();
        let Some(PreemptWord(word)) = word.as_deref() else { return false };
        word.load(Ordering::Relaxed) == process
            && word.compare_exchange(process, NO_PROCESS, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    })
}
