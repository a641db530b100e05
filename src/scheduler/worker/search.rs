//! A worker searches for tasks outside its own queues. The worker steals tasks from other workers, and takes tasks from
//! the shared queues.

use crossbeam_deque::Steal;

use crate::observe::{Counter, WorkerState};
use crate::platform::sync::{hint, thread};
use crate::scheduler::worker::Worker;
use crate::scheduler::{Remote, Task};

/// Number of passes over the other workers in one round of a search.
const PASSES: u32 = 4;
/// Number of rounds at the beginning of a search. Between these rounds, the thread does not yield. After each later
/// round, the thread yields its core to other threads.
const TIGHT_ROUNDS: u32 = 4;

impl<T: Task> Worker<T> {
    /// Steals tasks from one unattended slot: see `unattended.rs`. The task in the victim's `next` slot comes first,
    /// because this task was woken last.
    ///
    /// If the step of the slot was handed over and the global queue is not empty, steals only one task of the deque. A
    /// step that was handed over may spawn many tasks, and most of these tasks then enter the global queue. A worker
    /// that takes tasks from the global queue also prefetches the data of these tasks. (If the worker stole 32 tasks
    /// here, the bench `spawn-inside` would take 1.1 times as long.)
    pub(super) fn take_unattended(&self) -> Option<T> {
        let slots = self.scheduler.unattended.slots() & !(1 << self.slot);
        if slots == 0 {
            return None;
        }
        // A vacant slot may still be marked as unattended although other workers have taken all tasks from the queues
        // of the slot.
        let remotes = self.scheduler.remotes();
        let has_tasks = |victim: &usize| slots & 1 << victim != 0 && !remotes[*victim].is_empty();
        let victim = self.queues.next_unattended(has_tasks)?;
        let one = self.scheduler.unattended.is_handed_over(victim) && self.scheduler.global.len() != 0;
        let task = self.steal_from(victim, |remote| remote.steal_any(one, &self.queues)).success()?;
        // This worker may be the only awake worker. Its later pushes wake no worker, because several tasks already
        // wait.
        self.share();
        Some(task)
    }

    /// Steals tasks. The thief checks all other workers that are not parked, in up to `passes` passes. Each pass begins
    /// at a random worker. The thief takes half of the tasks of one victim. In the last pass, if the victim has no
    /// other task, the thief takes the task in the victim's `next` slot.
    pub(in crate::scheduler) fn steal(&self, passes: u32) -> Option<T> {
        let scheduler = &self.scheduler;
        let remotes = scheduler.remotes();
        let (count, others) = (remotes.len(), remotes.len() - 1);
        for pass in 0..passes {
            let (last, mut lost_a_race) = (pass + 1 == passes, false);
            // The random start is always a slot that was occupied at some time. If a pass could start at a higher slot,
            // nearly all passes would begin at the same worker, namely the first worker after the vacant slots.
            let start = self.rng.borrow_mut().below(others);
            for victim in (start..others).chain(0..start).map(|n| (self.slot + 1 + n) % count) {
                let remote = &remotes[victim];
                if remote.is_empty() || scheduler.idle.is_sleeping(victim) {
                    continue;
                }
                let stolen = self.steal_from(victim, |remote| {
                    let stolen = remote.steal_half(&self.queues);
                    // The victim itself would run the task in its `next` slot immediately. Therefore a thief takes this
                    // task only if there is no other task.
                    if last && stolen.is_empty() { remote.steal_slot() } else { stolen }
                });
                match stolen {
                    Steal::Success(task) => return Some(task),
                    Steal::Empty => {}
                    Steal::Retry => lost_a_race = true,
                }
            }
            if !lost_a_race && !last && remotes.iter().all(Remote::is_empty) {
                return None;
            }
        }
        None
    }

    /// Calls `steal` with the queues of the victim, and counts the result.
    fn steal_from(&self, victim: usize, steal: impl FnOnce(&Remote<T>) -> Steal<T>) -> Steal<T> {
        let metrics = &self.scheduler.metrics;
        metrics.add(Counter::StealsTried, 1);
        let stolen = steal(&self.scheduler.remotes()[victim]);
        match &stolen {
            Steal::Success(_) => {
                metrics.add(Counter::StealsWon, 1);
                self.scheduler.trace_steal(victim);
            }
            Steal::Empty => metrics.add(Counter::StealsEmpty, 1),
            Steal::Retry => metrics.add(Counter::StealsRetried, 1),
        }
        stolen
    }

    #[cold]
    pub(super) fn search(&self, rounds: u32) -> Option<T> {
        self.enter(WorkerState::Searching);
        if !self.searching.get() {
            self.searching.set(self.scheduler.idle.start_searching(self.scheduler.present()));
            if !self.searching.get() {
                return None;
            }
        }
        for round in 0..rounds {
            if let Some(task) = self.steal(PASSES).or_else(|| self.take_global()).or_else(|| self.take_ranked()) {
                self.rounds.restore();
                return Some(task);
            }
            if self.scheduler.is_stopping() {
                return None;
            }
            // In a search of only one round, the worker does not check the poller, because the worker parks next. If
            // the parked worker is the timekeeper, the worker receives the events from the poller.
            if rounds > 1 && self.scheduler.poller().is_some() {
                self.poll_sockets();
                if let Some(task) = self.queues.next() {
                    // The event would also have ended a wait in the poller, with fewer system calls. Therefore, the
                    // next search has half as many rounds, as after a wait in the poller.
                    self.rounds.shorten();
                    return Some(task);
                }
                if !self.searching.get() {
                    // The call of `poll_sockets` has called wakers and has therefore ended the search of this worker.
                    // However, no woken task is in the queues of this worker.
                    return None;
                }
            }
            if round < TIGHT_ROUNDS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        None
    }
}
