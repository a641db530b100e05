//! The steps that block their threads in [`Runtime::block_on`](crate::Runtime::block_on), for inspection.
//!
//! If a step calls `block_on`, the process has the state `Running`, but the process waits for a future, the *inner
//! future*. While the inner future is pending, the process waits for each process that the inner future waits for. Only
//! a step that calls `block_on` has a record in this module, so processes without such a step need no memory here.

use std::collections::BTreeSet;

use crate::host::control::waits::Wait;
use crate::platform::sync::tally::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Mutex};
use crate::process::pid::Pid;

/// This bit is set if a waker of the inner future was called after the start of the last poll.
const WOKEN: u64 = 1;
/// This bit is set if the last poll of the inner future has returned `Pending`.
const PENDING: u64 = 1 << 1;
/// The higher bits of the phase count the polls.
const POLL: u64 = 1 << 2;

/// The processes whose join handles were polled by one inner future. Some of these processes may have exited.
#[derive(Debug, Default)]
struct JoinedPids {
    pids: BTreeSet<Pid>,
    /// When the set `pids` reaches this length, the code removes the processes that have exited from the set. The value
    /// 0 stands for the length `FIRST_CLEANUP`.
    next_cleanup: usize,
}

/// Length of the set at its first clean-up.
const FIRST_CLEANUP: usize = 64;

/// A step that blocks its thread until its inner future resolves.
#[derive(Debug)]
pub(crate) struct BlockedStep {
    pid: Pid,
    /// Waits of the process before the call of `block_on`. The inner future does not wait for these operations.
    earlier: Vec<Wait>,
    /// Processes whose join handles the inner future has polled.
    joined: Mutex<JoinedPids>,
    /// True if a receiver is registered in the mailbox although no receive operation waits.
    has_stale_receiver: AtomicBool,
    /// Number of polls, and the bits [`PENDING`] and [`WOKEN`]. Before each poll, the thread of the step stores a new
    /// number of polls and clears the bits [`PENDING`] and [`WOKEN`]. A wake-up first sets `WOKEN`, and then wakes the
    /// thread. Therefore the inner future waits as long as `PENDING` is set and `WOKEN` is not set. All operations are
    /// `SeqCst`, except for the load in `begin_poll`. Therefore, if a thread has seen that another process was woken,
    /// the thread also sees each earlier wake-up of this step.
    phase: AtomicU64,
}

impl BlockedStep {
    /// Creates the record of a step of the process `pid`. `earlier` contains the waits that the process has before the
    /// call of `block_on`.
    pub(crate) fn new(pid: Pid, earlier: Vec<Wait>) -> Arc<Self> {
        Arc::new(Self {
            pid,
            earlier,
            joined: Mutex::default(),
            has_stale_receiver: AtomicBool::new(false),
            phase: AtomicU64::new(0),
        })
    }

    /// Records that a poll of the inner future begins.
    pub(crate) fn begin_poll(&self) {
        let polls = self.phase.load(Ordering::Relaxed) & !(PENDING | WOKEN);
        self.phase.store(polls + POLL, Ordering::SeqCst);
    }

    /// Records that the poll has returned `Pending`. For the parameter, see
    /// [`has_stale_receiver`](Self::has_stale_receiver).
    pub(crate) fn end_poll(&self, has_stale_receiver: bool) {
        self.has_stale_receiver.store(has_stale_receiver, Ordering::SeqCst);
        self.phase.fetch_or(PENDING, Ordering::SeqCst);
    }

    /// Records that a waker of the inner future was called. The waker then wakes the thread.
    pub(crate) fn wake(&self) {
        self.phase.fetch_or(WOKEN, Ordering::SeqCst);
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a number that identifies the last poll, if the inner future waits. If two calls of this function return
    /// the same number, no wake-up and no poll of the inner future has happened between the calls.
    pub(crate) fn pending(&self) -> Option<u64> {
        let phase = self.phase.load(Ordering::SeqCst);
        (phase & (PENDING | WOKEN) == PENDING).then_some(phase)
    }

    /// Returns the waits that existed before the call of `block_on`.
    pub(crate) fn earlier(&self) -> &[Wait] {
        &self.earlier
    }

    /// Returns the waits of the process without the waits that existed before the call of `block_on`. `waits` contains
    /// all waits of the process.
    pub(crate) fn without_earlier(&self, mut waits: Vec<Wait>) -> Vec<Wait> {
        for earlier in &self.earlier {
            if let Some(at) = waits.iter().position(|wait| wait == earlier) {
                waits.remove(at);
            }
        }
        waits
    }

    /// Returns whether the inner future has polled the join handle of this process.
    pub(crate) fn has_joined(&self, target: Pid) -> bool {
        self.joined.lock().pids.contains(&target)
    }

    /// Returns true if a receiver is registered in the mailbox although no receive operation waits.
    pub(crate) fn has_stale_receiver(&self) -> bool {
        self.has_stale_receiver.load(Ordering::SeqCst)
    }
}

/// The blocked steps of a runtime, in the order of their calls of `block_on`.
#[derive(Debug, Default)]
pub(crate) struct BlockedSteps {
    steps: Mutex<Vec<Arc<BlockedStep>>>,
    /// Length of the list. A thread reads the length without the lock.
    len: AtomicUsize,
}

impl BlockedSteps {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<BlockedStep>>)) {
        let mut steps = self.steps.lock();
        change(&mut steps);
        self.len.store(steps.len(), Ordering::Relaxed);
    }

    pub(crate) fn add(&self, step: &Arc<BlockedStep>) {
        self.change(|steps| steps.push(Arc::clone(step)));
    }

    pub(crate) fn remove(&self, step: &Arc<BlockedStep>) {
        self.change(|steps| steps.retain(|known| !Arc::ptr_eq(known, step)));
    }

    /// Returns the innermost blocked step of each process that has a blocked step. If a step calls `block_on` inside
    /// of another `block_on`, only the innermost call can be pending.
    pub(crate) fn innermost(&self) -> Vec<Arc<BlockedStep>> {
        let mut steps: Vec<Arc<BlockedStep>> = Vec::new();
        for step in self.steps.lock().iter().rev() {
            if steps.iter().all(|inner| inner.pid != step.pid) {
                steps.push(Arc::clone(step));
            }
        }
        steps
    }

    /// Returns the innermost blocked step of a process.
    pub(crate) fn of(&self, pid: Pid) -> Option<Arc<BlockedStep>> {
        self.steps.lock().iter().rev().find(|step| step.pid == pid).cloned()
    }

    /// Records a pending poll of a join handle: on this thread, the process `by` has polled the join handle of the
    /// process `target`. The caller has found that the waker of this poll is not the waker of a process. `exists`
    /// returns whether a process exists.
    #[inline]
    pub(crate) fn note_join(&self, by: Pid, target: Pid, exists: impl Fn(Pid) -> bool) {
        // If `by` has a blocked step, this thread has recorded this step. Therefore this thread sees the changed
        // length.
        if self.len.load(Ordering::Relaxed) != 0 {
            self.note_join_of_step(by, target, exists);
        }
    }

    #[cold]
    fn note_join_of_step(&self, by: Pid, target: Pid, exists: impl Fn(Pid) -> bool) {
        let Some(step) = self.of(by) else { return };
        let mut joined = step.joined.lock();
        joined.pids.insert(target);
        if joined.pids.len() < joined.next_cleanup.max(FIRST_CLEANUP) {
            return;
        }
        // A step may await the join handles of any number of processes, one by one. The function `exists` takes another
        // lock, so this thread first releases the lock of the set, and then calls `exists`.
        let all: Vec<_> = joined.pids.iter().copied().collect();
        drop(joined);
        let gone: Vec<_> = all.into_iter().filter(|pid| !exists(*pid)).collect();
        let mut joined = step.joined.lock();
        gone.iter().for_each(|pid| _ = joined.pids.remove(pid));
        joined.next_cleanup = 2 * joined.pids.len();
    }
}
