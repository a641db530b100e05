//! The local queues of a worker, and the order in which the worker takes tasks from them: next slot, queue of new
//! tasks, deque. The queues that all workers share are in `injector.rs` and `priority.rs`.
//!
//! The local queues are crossbeam deques. With FIFO order, a thief takes several tasks in one compare-and-swap. With
//! LIFO order for the owner, a thief takes the tasks one by one. With LIFO order, a single compare-and-swap for several
//! tasks could lose tasks or take a task twice. The next slot is also a deque, with at most one task, so that thieves
//! can steal this task without a lock.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::cell::Cell;

use crossbeam_deque::{Steal, Stealer, Worker as Deque};

use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::tally::AtomicUsize as Tally;
use crate::platform::sync::{Arc, Lock};
use crate::scheduler::injector::Injector;
use crate::scheduler::spawned::{NewTasks, NewTasksRemote, certain};

/// Budget of the next slot and the queue of new tasks. While tasks wait in the deque, at most this number of tasks from
/// the next slot and the queue of new tasks run in a row.
const BUDGET: u8 = 16;
/// Usually, when the budget is spent, the oldest task of the deque runs next. If this value is `n`, a new task runs
/// instead at every `n`-th time that the budget is spent.
const NEW_EVERY: u32 = 4;
/// If the deque contains at least this number of tasks, further tasks go to the batch for the global queue.
const LOCAL_FULL: usize = 4096;
/// If a batch contains this number of tasks, the whole batch goes to the global queue under one lock.
const BATCH: usize = 128;
/// Maximum number of tasks of one steal. The thief copies all these tasks. If the owner takes a task during the copy,
/// the steal fails and must be retried.
const STEAL_MOST: usize = 32;

/// Order in which a worker runs the processes in its own queue, see
/// [`Builder::local_order`](crate::Builder::local_order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum QueueOrder {
    /// First in, first out. However, the process that was woken last waits in the next slot and runs first. This is the
    /// default.
    ///
    /// Spawned processes that have not run yet come before all other processes, the newest first. Therefore the
    /// scheduler walks a tree of processes depth first. The next slot and these new processes share a budget of 16 runs
    /// in a row while other processes wait.
    #[default]
    Fifo,
    /// Newest first. A woken process also counts as new, because its data is still in the cache.
    ///
    /// Thieves take processes from the older half. Every 16th time that a worker takes a process, it takes the oldest
    /// process. A process that yields goes to the back of the global queue. With this order, a yield costs more than
    /// with `Fifo`.
    Lifo,
}

/// Tasks that wait to go to the global queue together. These tasks are older than all tasks that are pushed later.
/// Therefore, while the batch is not empty, every push to the back goes to the batch. Other workers can take the batch,
/// because its owner may be in a step that does not return.
#[derive(Debug)]
struct Batch<T> {
    /// Number of tasks in the batch. Threads read this number without the lock. No model pushes enough tasks to create
    /// a batch, so the model checker need not see this atomic.
    len: Tally,
    items: Lock<Vec<T>>,
}

impl<T> Batch<T> {
    fn new() -> Arc<Self> {
        Arc::new(Self { len: Tally::new(0), items: Lock::new(Vec::new()) })
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the tasks of the batch. Returns the result of `f`, and the number of tasks left.
    fn with<R>(&self, f: impl FnOnce(&mut Vec<T>) -> R) -> (R, usize) {
        let mut items = self.items.lock();
        let result = f(&mut items);
        self.len.store(items.len(), Ordering::SeqCst);
        (result, items.len())
    }
}

/// The parts of a worker's queues that thieves use.
#[derive(Debug)]
pub(crate) struct Remote<T> {
    slot: Stealer<T>,
    new_tasks: NewTasksRemote<T>,
    deque: Stealer<T>,
    batch: Arc<Batch<T>>,
}

impl<T> Remote<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.deque.is_empty() && self.new_tasks.is_empty() && self.slot.is_empty() && self.batch.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.deque.len() + self.new_tasks.len() + self.slot.len() + self.batch.len()
    }

    /// Steals half of the deque, rounded up, but at most 32 tasks. If the deque is empty, the thief steals the oldest
    /// new task. If there is no new task, the thief steals the whole batch. Returns one task and pushes the other tasks
    /// to `into`. With LIFO order, the thief needs a separate compare-and-swap for each task.
    pub(crate) fn steal_half(&self, into: &Queues<T>) -> Steal<T> {
        let stolen = self.deque.steal_batch_with_limit_and_pop(&into.deque, STEAL_MOST);
        if !stolen.is_empty() {
            return stolen;
        }
        let stolen = self.new_tasks.steal();
        if !stolen.is_empty() || self.batch.is_empty() {
            return stolen;
        }
        let take = |items: &mut Vec<T>| {
            let mut items = items.drain(..);
            let first = items.next();
            into.refill(items);
            first
        };
        self.batch.with(take).0.map_or(Steal::Empty, Steal::Success)
    }

    /// Steals the task in the next slot.
    pub(crate) fn steal_slot(&self) -> Steal<T> {
        self.slot.steal()
    }

    /// Moves all tasks to `into`. The owner may push more tasks during this call.
    pub(crate) fn drain(&self, into: &mut Vec<T>) {
        into.extend(std::iter::from_fn(|| certain(|| self.slot.steal())));
        into.extend(std::iter::from_fn(|| certain(|| self.new_tasks.steal())));
        into.extend(std::iter::from_fn(|| certain(|| self.deque.steal())));
        self.batch.with(|items| into.append(items));
    }
}

/// The parts of a worker's queues that the owner uses.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    slot: Deque<T>,
    /// Whether the task in the next slot is new, that is, has not run yet. If the slot is empty, this field has no
    /// meaning.
    slot_is_new: Cell<bool>,
    /// Remaining budget, namely the number of tasks that may still run from the next slot and the queue of new tasks
    /// before a task of the deque runs.
    budget: Cell<u8>,
    /// Number of times that the budget was spent.
    spent: Cell<u32>,
    new_tasks: NewTasks<T>,
    deque: Deque<T>,
    batch: Arc<Batch<T>>,
    /// A stealer of the worker's own deque. The stealer exists only with LIFO order.
    oldest: Option<Stealer<T>>,
}

/// Result of a push. With this result, the caller decides whether it must wake another worker.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The task is in the next slot and displaced no task. This worker runs the task next, so no other worker needs to
    /// be woken.
    ToSlot,
    /// Thieves can take a task now. The number is the number of waiting tasks, without the task in the next slot.
    ToDeque(usize),
    /// The batch is full and must go to the global queue.
    BatchFull,
}

impl<T> Queues<T> {
    pub(crate) fn new(order: QueueOrder) -> (Self, Remote<T>) {
        let deque = match order {
            QueueOrder::Fifo => Deque::new_fifo(),
            QueueOrder::Lifo => Deque::new_lifo(),
        };
        let (slot, batch) = (Deque::new_fifo(), Batch::new());
        let (new_tasks, nursery_remote) = NewTasks::new();
        let oldest = (order == QueueOrder::Lifo).then(|| deque.stealer());
        let remote = Remote {
            slot: slot.stealer(),
            new_tasks: nursery_remote,
            deque: deque.stealer(),
            batch: Arc::clone(&batch),
        };
        let queues = Self {
            slot,
            slot_is_new: Cell::new(false),
            budget: Cell::new(BUDGET),
            spent: Cell::new(0),
            new_tasks,
            deque,
            batch,
            oldest,
        };
        (queues, remote)
    }

    /// Returns whether the deque is LIFO for the owner.
    #[inline]
    pub(crate) fn is_lifo(&self) -> bool {
        self.oldest.is_some()
    }

    /// Adds tasks from another queue. These tasks run in the order of `items`.
    pub(crate) fn refill(&self, items: impl DoubleEndedIterator<Item = T>) {
        if self.is_lifo() {
            items.rev().for_each(|item| self.deque.push(item));
        } else {
            items.for_each(|item| self.deque.push(item));
        }
    }

    /// Returns whether no task waits outside the next slot.
    fn nothing_behind(&self) -> bool {
        self.deque.is_empty() && self.new_tasks.is_empty() && self.batch.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nothing_behind() && self.slot.is_empty()
    }

    /// Returns whether the next slot is empty.
    pub(crate) fn slot_is_empty(&self) -> bool {
        self.slot.is_empty()
    }

    /// Puts a task into the next slot. If the slot contains a new task, this task moves to the queue of new tasks. If
    /// the slot contains a task that has run before, this task moves to the back of the deque.
    #[inline]
    pub(crate) fn push_next(&self, item: T) -> Pushed {
        self.fill_slot(item, false)
    }

    /// Puts a task that has not run yet into the next slot. The next push to the slot moves the task to the queue of
    /// new tasks, if this queue is not full. In the queue of new tasks, the newest task is first.
    #[inline]
    pub(crate) fn push_new(&self, item: T) -> Pushed {
        // A LIFO deque returns the newest task first in any case, so new tasks need no special treatment.
        self.fill_slot(item, !self.is_lifo())
    }

    #[inline]
    fn fill_slot(&self, item: T, is_new: bool) -> Pushed {
        let displaced = self.slot.pop();
        self.slot.push(item);
        let was_new = self.slot_is_new.replace(is_new);
        let Some(displaced) = displaced else { return Pushed::ToSlot };
        if !was_new {
            return self.push_back(displaced);
        }
        match self.new_tasks.push(displaced) {
            Ok(waiting) => Pushed::ToDeque(waiting + self.deque.len()),
            Err(displaced) => self.push_back(displaced),
        }
    }

    /// Pushes a task to the deque. With FIFO order the task runs after all other tasks. With LIFO order the task runs
    /// before all other tasks.
    #[inline]
    pub(crate) fn push_back(&self, item: T) -> Pushed {
        let waiting = self.deque.len();
        if waiting < LOCAL_FULL && self.batch.is_empty() {
            self.deque.push(item);
            return Pushed::ToDeque(waiting + 1);
        }
        self.gather(item)
    }

    #[cold]
    fn gather(&self, item: T) -> Pushed {
        let gathered = self.batch.with(|items| items.push(item)).1;
        if gathered >= BATCH { Pushed::BatchFull } else { Pushed::ToDeque(LOCAL_FULL + gathered) }
    }

    /// Pushes to the deque a task that this worker has just run. With FIFO order, this task runs after all other tasks.
    /// The task goes to the deque even if the deque is full. If the task went through the global queue, the task would
    /// move to another core at every turn.
    #[inline]
    pub(crate) fn push_again(&self, item: T) -> Pushed {
        if !self.batch.is_empty() {
            return self.push_back(item);
        }
        let waiting = self.deque.len();
        self.deque.push(item);
        Pushed::ToDeque(waiting + 1)
    }

    /// Pushes a task to the deque because the shared queues are closed.
    pub(crate) fn keep(&self, item: T) {
        self.deque.push(item);
    }

    /// Moves the batch to the global queue.
    pub(crate) fn overflow(&self, global: &Injector<T>) {
        self.batch.with(|items| global.append(items));
    }

    /// Returns the next local task. The next slot comes before the queue of new tasks, and the queue of new tasks comes
    /// before the deque. The next slot and the queue of new tasks share a budget. When the budget is spent, the deque
    /// comes first.
    #[inline]
    pub(crate) fn next(&self) -> Option<T> {
        let budget = self.budget.get();
        if budget == 0 {
            return self.next_spent();
        }
        if let Some(item) = self.slot.pop() {
            self.budget.set(budget - 1);
            return Some(item);
        }
        if !self.new_tasks.is_idle()
            && let Some(item) = self.new_tasks.pop()
        {
            self.budget.set(budget - 1);
            return Some(item);
        }
        self.budget.set(BUDGET);
        self.pop()
    }

    /// Returns the next local task when the budget is spent. The task in the next slot goes to the back, unless it is
    /// the only task. Therefore two processes that wake each other continue on this worker and wake no second worker,
    /// if no other task waits. Every fourth time, a new task comes first, because two processes that wake each other
    /// must not starve the new tasks.
    #[cold]
    fn next_spent(&self) -> Option<T> {
        self.budget.set(BUDGET);
        if let Some(item) = self.slot.pop() {
            if self.nothing_behind() {
                return Some(item);
            }
            // A worker was already woken for the waiting tasks, so the result is not needed. If the batch is full, the
            // next push reports the full batch.
            let _ = self.push_again(item);
        }
        let spent = self.spent.get().wrapping_add(1);
        self.spent.set(spent);
        let new = if spent.is_multiple_of(NEW_EVERY) { self.new_tasks.pop() } else { None };
        new.or_else(|| self.pop()).or_else(|| self.new_tasks.pop())
    }

    /// Takes the next task of the deque. If the deque is less than half full, the function first moves the batch to the
    /// deque.
    #[inline]
    fn pop(&self) -> Option<T> {
        if !self.batch.is_empty() {
            self.take_batch();
        }
        self.deque.pop()
    }

    #[cold]
    fn take_batch(&self) {
        if self.deque.len() < LOCAL_FULL / 2 {
            self.batch.with(|items| self.refill(items.drain(..)));
        }
    }

    /// Takes the oldest task of the deque if the deque has LIFO order. With LIFO order, the oldest task would otherwise
    /// never run while newer tasks are added. If the deque has FIFO order, this function returns `None`.
    pub(crate) fn pop_oldest(&self) -> Option<T> {
        let oldest = self.oldest.as_ref()?;
        certain(|| oldest.steal())
    }

    /// Removes and returns all tasks. The task in the next slot comes first.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = std::iter::from_fn(|| self.slot.pop()).collect();
        all.extend(std::iter::from_fn(|| self.new_tasks.pop()));
        all.extend(std::iter::from_fn(|| self.deque.pop()));
        self.batch.with(|items| all.append(items));
        all
    }
}
