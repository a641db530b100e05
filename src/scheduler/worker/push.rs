//! A worker queues tasks. Usually, the worker puts a task into its own queues. The worker uses a queue that all workers
//! share in four cases: the task has high or low priority, this worker does not check its own queues for some time, a
//! batch of tasks is full, or the task has had a turn and the order of the local queue is LIFO.

use crate::observe::Counter;
use crate::scheduler::queue::Pushed;
use crate::scheduler::worker::Worker;
use crate::scheduler::{Placement, Rank, Task};

impl<T: Task> Worker<T> {
    /// Queues a task that code on this thread has woken or spawned. This includes a future that wakes itself in its
    /// turn. Returns true if the caller must [wake](Self::notify_other) another worker.
    #[inline]
    #[must_use]
    pub(in crate::scheduler) fn push(&self, task: T, how: Placement) -> bool {
        if self.worker_slot.is_handed_over() {
            return self.push_for_others(task, how);
        }
        let pushed = match how {
            Placement::New | Placement::Woken if self.shuffles && self.rng.borrow_mut().below(2) == 0 => {
                self.queues.push_back(task)
            }
            Placement::Behind => self.queues.push_back(task),
            Placement::New => self.queues.push_new(task),
            Placement::Woken => self.queues.push_next(task),
            Placement::Yielded => return self.push_yielded(task),
            Placement::Ranked(_) => return self.push_shared(task, how),
        };
        self.is_help_needed(pushed)
    }

    /// Queues a task again, after this worker has run one turn of the task. If the priority of the task is high or low,
    /// `rank` is this priority. Returns true if the caller must [wake](Self::notify_other) another worker.
    #[inline]
    #[must_use]
    pub(super) fn push_again(&self, task: T, rank: Option<Rank>) -> bool {
        if self.worker_slot.is_handed_over() || rank.is_some() {
            return self.push_shared(task, rank.map_or(Placement::Yielded, Placement::Ranked));
        }
        self.push_yielded(task)
    }

    /// Adds a task that had a turn to the back of the deque or, with LIFO order, to the back of the global queue.
    /// Returns true if the caller must [wake](Self::notify_other) another worker.
    #[inline]
    #[must_use]
    fn push_yielded(&self, task: T) -> bool {
        if self.queues.is_lifo() {
            return self.push_behind(task);
        }
        self.is_help_needed(self.queues.push_again(task))
    }

    /// Returns whether another worker must be woken after this push to the local queues.
    #[inline]
    fn is_help_needed(&self, pushed: Pushed) -> bool {
        match pushed {
            // This worker runs the task as soon as the current task returns. The wake-up of a second worker would cost
            // more than this delay.
            Pushed::ToSlot => false,
            // At least two other tasks wait. The push of an earlier task has woken a worker. When the woken worker
            // finds a task, the woken worker wakes the next worker.
            Pushed::ToDeque(3..) => false,
            // The task is the only queued task. This worker runs the task next, so no other worker is needed.
            Pushed::ToDeque(1) if self.queues.slot_is_empty() => false,
            Pushed::ToDeque(_) => true,
            Pushed::BatchFull => {
                self.overflow();
                true
            }
        }
    }

    /// Wakes another worker, which can steal tasks from this worker.
    #[cold]
    pub(in crate::scheduler) fn notify_other(&self) {
        self.scheduler.notify();
    }

    /// Moves a full batch to the global queue.
    #[cold]
    fn overflow(&self) {
        self.scheduler.metrics.add(Counter::Overflows, 1);
        self.queues.overflow(&self.scheduler.global);
    }

    /// Queues a task in the global queue, so that the task runs after the local tasks. Only a worker with LIFO order
    /// calls this function. Returns false if this worker has no local task. In this case the caller need not wake
    /// another worker, because this worker itself takes the task. If this worker leaves its slot or waits before it
    /// takes the task, this worker then wakes another worker.
    #[cold]
    fn push_behind(&self, task: T) -> bool {
        let alone = self.queues.is_empty();
        match self.scheduler.global.push(task) {
            Ok(()) => !alone,
            Err(task) => {
                self.queues.keep(task);
                false
            }
        }
    }

    /// Queues a task while this worker is in a long step that was handed over. A woken task is urgent. Therefore a
    /// woken task is added to a shared queue: workers check the shared queues before they search. A spawned task is
    /// added to the local deque. A step often spawns many tasks, and thieves can take several tasks at a time from the
    /// deque without a lock. The bench `spawn-inside` takes 0.86 times as long with this rule.
    #[cold]
    fn push_for_others(&self, task: T, how: Placement) -> bool {
        if how != Placement::New {
            return self.push_shared(task, how);
        }
        if self.queues.push_back(task) == Pushed::BatchFull {
            self.overflow();
        }
        true
    }

    /// Queues a task in a shared queue. There are two reasons: the priority of the task is high or low, or this worker
    /// does not check its local queues for some time.
    #[cold]
    fn push_shared(&self, task: T, how: Placement) -> bool {
        match self.scheduler.put_where_all_look(task, how) {
            Ok(()) => true,
            Err(task) => {
                // The scheduler is closed. The task must not be dropped here, because the drop would run user code, and
                // the caller of `push` borrows the thread-local. Therefore the task is added to the local deque.
                self.queues.keep(task);
                false
            }
        }
    }
}
