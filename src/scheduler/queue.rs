//! The local queues of a worker, and the order in which the worker takes tasks from these queues.
//!
//! The worker takes tasks first from the *`next` slot*, then from the *queue of new tasks*, and then from the *deque*.
//! The `next` slot holds at most one task. If the deque is full, further tasks are added to the *batch*. A full batch
//! moves to the global queue. The queues that all workers share are in `injector.rs` and `priority.rs`.
//!
//! The `next` slot, the queue of new tasks and the deque are crossbeam deques, so thieves can steal from them without a
//! lock. With FIFO order, a thief takes several tasks of the deque in one compare-and-swap. With LIFO order, a single
//! compare-and-swap for several tasks could lose a task or take a task twice. Therefore, with LIFO order, a thief takes
//! the tasks one by one.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::cell::Cell;

use crossbeam_deque::{Steal, Stealer, Worker as Deque};

use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::tally::AtomicUsize as Tally;
use crate::platform::sync::{Arc, Lock};
use crate::scheduler::SLOTS;
use crate::scheduler::injector::Injector;
use crate::scheduler::spawned::{NewTasks, NewTasksRemote, certain};

/// Budget that the `next` slot and the queue of new tasks share. While tasks wait in the deque, the worker takes at
/// most this number of tasks in a row from the `next` slot and the queue of new tasks.
const BUDGET: u8 = 16;
/// When the budget is spent, the next task usually comes from the deque. However, every fourth time that the budget is
/// spent, the next task comes from the queue of new tasks.
const NEW_EVERY: u32 = 4;
/// The deque counts as full if it has this number of tasks or more. If the deque is full, further tasks are added to
/// the batch.
const LOCAL_FULL: usize = 4096;
/// Number of tasks in a full batch. A full batch moves to the global queue as a whole, under one lock.
const BATCH: usize = 128;
/// Maximum number of tasks that one steal takes. The thief copies these tasks. If the owner takes a task during
/// the copy, the steal fails and the thief must try again.
const STEAL_MOST: usize = 32;

/// Order in which a worker runs the processes in its own queue: see
/// [`Builder::local_order`](crate::Builder::local_order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum QueueOrder {
    /// First in, first out. However, the process that was woken last runs first. This order is the default.
    ///
    /// A spawned process is *new* until it has run. New processes run before the other waiting processes, and the
    /// newest process runs first. Therefore, if processes spawn a tree of processes, the tree runs depth first. While
    /// other processes wait, new processes and the process that was woken last get at most 16 turns in a row. Then one
    /// of the other processes runs.
    #[default]
    Fifo,
    /// Last in, first out. The process that was woken or spawned last runs first, because its data is still in the
    /// processor's cache.
    ///
    /// If another worker steals processes from the queue, this other worker takes the older half of the queue. Every
    /// 16th time that a worker takes a process, the worker takes the oldest process. A process that yields is added to
    /// the back of the global queue. Therefore a yield costs more than with `Fifo`.
    Lifo,
}

/// Tasks that will move to the global queue together. While the batch is not empty, each task that is pushed to the
/// back is added to the batch instead of the deque. Therefore no newer task overtakes the tasks of the batch. Thieves
/// can also take the batch, because the owner may be in a step that does not return.
#[derive(Debug)]
struct Batch<T> {
    /// Number of tasks in the batch. Threads read this number without the lock. The model checker does not see this
    /// atomic. This is safe, because no model pushes enough tasks to create a batch.
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

    /// Calls `f` with the tasks of the batch. Returns the result of `f`, and the number of tasks that are in the batch
    /// after the call of `f`.
    fn with<R>(&self, f: impl FnOnce(&mut Vec<T>) -> R) -> (R, usize) {
        let mut items = self.items.lock();
        let result = f(&mut items);
        self.len.store(items.len(), Ordering::SeqCst);
        (result, items.len())
    }
}

/// The thieves' parts of a worker's queues.
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

    /// Steals half of the deque, rounded up, but at most 32 tasks. If the deque is empty, steals the oldest new task.
    /// If there is no new task either, steals the whole batch. Returns one stolen task and pushes the other stolen
    /// tasks to `into`. With LIFO order, the steal needs a separate compare-and-swap for each task.
    pub(crate) fn steal_half(&self, into: &Queues<T>) -> Steal<T> {
        self.steal_at_most(STEAL_MOST, into)
    }

    fn steal_at_most(&self, most: usize, into: &Queues<T>) -> Steal<T> {
        let stolen = self.deque.steal_batch_with_limit_and_pop(&into.deque, most);
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

    /// Steals the task in the `next` slot.
    pub(crate) fn steal_slot(&self) -> Steal<T> {
        self.slot.steal()
    }

    /// Steals the task in the `next` slot. If this slot is empty, steals tasks from the other queues, as
    /// [`steal_half`](Self::steal_half) does. However, if `one` is true and the deque is not empty, steals only one
    /// task from the deque.
    pub(crate) fn steal_any(&self, one: bool, into: &Queues<T>) -> Steal<T> {
        let stolen = self.steal_slot();
        if stolen.is_empty() { self.steal_at_most(if one { 1 } else { STEAL_MOST }, into) } else { stolen }
    }

    /// Moves all tasks to `into`. The owner may push more tasks during this call.
    pub(crate) fn drain(&self, into: &mut Vec<T>) {
        into.extend(std::iter::from_fn(|| certain(|| self.slot.steal())));
        into.extend(std::iter::from_fn(|| certain(|| self.new_tasks.steal())));
        into.extend(std::iter::from_fn(|| certain(|| self.deque.steal())));
        self.batch.with(|items| into.append(items));
    }
}

/// The owner's parts of a worker's queues.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    slot: Deque<T>,
    /// True if the task in the `next` slot is new. A new task has not run yet. If the `next` slot is empty, this field
    /// has no meaning.
    slot_is_new: Cell<bool>,
    /// Remaining budget. The worker runs at most this number of tasks from the `next` slot and the queue of new tasks
    /// together. Then the worker runs a task of the deque.
    budget: Cell<u8>,
    /// Number of times that the budget was used up.
    spent: Cell<u32>,
    /// Number of times that a worker of this slot has looked for a task. At some values of this count, the worker
    /// checks the queues in a different order. The count belongs to the slot and not to the worker, because a guest may
    /// leave the slot after only one attempt.
    looks: Cell<u32>,
    /// The unattended slot that `next_unattended` returned last.
    last_unattended: Cell<usize>,
    new_tasks: NewTasks<T>,
    deque: Deque<T>,
    batch: Arc<Batch<T>>,
    /// A stealer of the worker's own deque. With this stealer, the worker takes the oldest task. Only a LIFO deque
    /// needs this stealer.
    oldest: Option<Stealer<T>>,
}

/// Result of a push. The result helps the caller to decide whether another worker must be woken.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The task is in the `next` slot and displaced no other task. This worker runs the task next, so the caller need
    /// not wake another worker.
    ToSlot,
    /// A task is now in a queue from which thieves steal. The field is the number of waiting tasks, not counting the
    /// task in the `next` slot.
    ToDeque(usize),
    /// The batch is full. The caller must move the batch to the global queue.
    BatchFull,
}

impl<T> Queues<T> {
    pub(crate) fn new(order: QueueOrder) -> (Self, Remote<T>) {
        let deque = match order {
            QueueOrder::Fifo => Deque::new_fifo(),
            QueueOrder::Lifo => Deque::new_lifo(),
        };
        let (slot, batch) = (Deque::new_fifo(), Batch::new());
        let (new_tasks, new_tasks_remote) = NewTasks::new();
        let oldest = (order == QueueOrder::Lifo).then(|| deque.stealer());
        let remote = Remote {
            slot: slot.stealer(),
            new_tasks: new_tasks_remote,
            deque: deque.stealer(),
            batch: Arc::clone(&batch),
        };
        let queues = Self {
            slot,
            slot_is_new: Cell::new(false),
            budget: Cell::new(BUDGET),
            spent: Cell::new(0),
            looks: Cell::new(0),
            last_unattended: Cell::new(0),
            new_tasks,
            deque,
            batch,
            oldest,
        };
        (queues, remote)
    }

    /// Returns how often a worker of this slot has looked for a task.
    pub(crate) fn looks(&self) -> u32 {
        self.looks.get()
    }

    /// Counts one attempt to find a task. Returns the new count.
    #[inline]
    pub(crate) fn count_look(&self) -> u32 {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        looks
    }

    /// Returns the next unattended slot from which the worker of these queues steals. `has_tasks` says whether a slot
    /// is unattended and has tasks. The function begins with the slot after the last result, so successive calls return
    /// the unattended slots one after the other.
    pub(crate) fn next_unattended(&self, has_tasks: impl Fn(&usize) -> bool) -> Option<usize> {
        let start = self.last_unattended.get() + 1;
        let slot = (start..SLOTS).chain(0..start).find(has_tasks)?;
        self.last_unattended.set(slot);
        Some(slot)
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

    /// Returns whether the queue of new tasks, the deque and the batch are empty.
    fn nothing_behind(&self) -> bool {
        self.deque.is_empty() && self.new_tasks.is_empty() && self.batch.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nothing_behind() && self.slot.is_empty()
    }

    /// Returns whether the `next` slot is empty.
    pub(crate) fn slot_is_empty(&self) -> bool {
        self.slot.is_empty()
    }

    /// Puts a task into the `next` slot. If the slot contains a new task, this task moves to the queue of new tasks. If
    /// the slot contains a task that has run before, this task moves to the back of the deque.
    #[inline]
    pub(crate) fn push_next(&self, item: T) -> Pushed {
        self.fill_slot(item, false)
    }

    /// Puts a task that has not run yet into the `next` slot. The next push to the slot moves this task to the queue of
    /// new tasks. If this queue is full, the task moves to the back of the deque instead.
    #[inline]
    pub(crate) fn push_new(&self, item: T) -> Pushed {
        // A LIFO deque already returns the newest task first. Therefore, with LIFO order, the queue of new tasks is not
        // used.
        self.fill_slot(item, !self.is_lifo())
    }

    #[inline]
    fn fill_slot(&self, item: T, is_new: bool) -> Pushed {
        // In most pushes the slot is empty, and this check needs fewer instructions than `pop`.
        let displaced = if self.slot.is_empty() { None } else { self.slot.pop() };
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

    /// Pushes a task to the deque, or to the batch if the deque is full. With FIFO order, this task runs after all
    /// other tasks of the deque. With LIFO order, this task runs before all other tasks of the deque.
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

    /// Pushes a task to the deque after this worker has run one turn of the task. With FIFO order, this task runs after
    /// all other tasks of the deque. The task is added to the deque even if the deque is full. Otherwise the task would
    /// be added to the global queue, and would move to another core at every turn.
    ///
    /// In some builds, `#[inline]` is not enough, and the call takes 2 % of the instructions of the bench `yield`.
    #[inline(always)]
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

    /// Takes the next local task: first from the `next` slot, then from the queue of new tasks, and then from the
    /// deque. The `next` slot and the queue of new tasks share a budget. When the budget is spent, the worker usually
    /// takes a task from the deque first.
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

    /// Takes the next local task when the budget is spent. If other tasks wait, the task in the `next` slot moves to
    /// the back of the deque. If no other task waits, the task in the `next` slot runs. Therefore two processes that
    /// wake each other stay on this worker and wake no second worker, as long as no other task waits. Every fourth time
    /// that the budget is spent, a new task comes first. Otherwise two processes that wake each other would prevent the
    /// new tasks from running.
    #[cold]
    fn next_spent(&self) -> Option<T> {
        self.budget.set(BUDGET);
        if let Some(item) = self.slot.pop() {
            if self.nothing_behind() {
                return Some(item);
            }
            // A worker was already woken for the waiting tasks, so this function ignores the result of the push. If the
            // batch is full now and stays full, the next push to the batch returns `BatchFull`.
            let _ = self.push_again(item);
        }
        let spent = self.spent.get().wrapping_add(1);
        self.spent.set(spent);
        let new = if spent.is_multiple_of(NEW_EVERY) { self.new_tasks.pop() } else { None };
        new.or_else(|| self.pop()).or_else(|| self.new_tasks.pop())
    }

    /// Takes the next task of the deque. If the deque is less than half full, this function moves the batch to the
    /// deque before it takes the task.
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

    /// Takes the oldest task of a LIFO deque. Without this function, the oldest task would never run while newer tasks
    /// are added. Returns `None` if the deque is empty or has FIFO order.
    pub(crate) fn pop_oldest(&self) -> Option<T> {
        let oldest = self.oldest.as_ref()?;
        certain(|| oldest.steal())
    }

    /// Removes and returns all tasks. The task in the `next` slot comes first.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = std::iter::from_fn(|| self.slot.pop()).collect();
        all.extend(std::iter::from_fn(|| self.new_tasks.pop()));
        all.extend(std::iter::from_fn(|| self.deque.pop()));
        self.batch.with(|items| all.append(items));
        all
    }
}
