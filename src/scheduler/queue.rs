//! Where work waits on a worker, and in which order that looks for it: its next slot, those that were spawned and have had
//! no turn yet, its local deque. What all share is in `global.rs`.
//!
//! The local queues are crossbeam deques: first in first out, where a thief takes several in one compare-and-swap, or newest
//! first for the owner, where it takes one by one, for a swap of several would lose and double some there. The next slot is
//! a deque too, of at most one: that makes it stealable without a lock.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::cell::Cell;

use crossbeam_deque::{Steal, Stealer, Worker as Deque};

use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::tally::AtomicUsize as Tally;
use crate::platform::sync::{Arc, Lock};
use crate::scheduler::injector::Injector;
use crate::scheduler::spawned::{NewTasks, NewTasksRemote, certain};

/// How many run from the slot, and of those that have had no turn, in a row while others wait.
const BUDGET: u8 = 16;
/// Every so many times that this is spent, one comes that has had no turn.
const NEW_EVERY: u32 = 4;
/// From this many local items on, new arrivals gather for the global queue.
const LOCAL_FULL: usize = 4096;
/// How many gather before they go there under one lock.
const BATCH: usize = 128;
/// How many a thief takes at once: it copies them all, and loses the race if the owner takes one meanwhile.
const STEAL_MOST: usize = 32;

/// In which order a worker runs what waits in its own queue: [`Builder::local_order`](crate::Builder::local_order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LocalOrder {
    /// First in, first out, behind one next slot for what was woken last: who waits longest is next. What is spawned and has
    /// had no turn comes before, the newest first, so that a tree of processes is walked depth first; within a budget.
    #[default]
    Fifo,
    /// Newest first, for what is woken too: it finds its data in the cache. Others take the older half. Who waits longest is
    /// next at every 16th look; whoever yields goes behind all, by way of the queue that the workers share, which costs more
    /// than with `Fifo`.
    Lifo,
}

/// Arrivals that wait to go to the global queue together; older than whatever comes next, so as long as there are some
/// everything goes through here. Others reach them too: whoever gathered them may be in a step that does not return.
#[derive(Debug)]
struct Batch<T> {
    /// Read without the lock. No model fills a queue so far that there is a batch, so this is none of its atomics.
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

    /// Does something to what is there; returns how many are left as well.
    fn with<R>(&self, f: impl FnOnce(&mut Vec<T>) -> R) -> (R, usize) {
        let mut items = self.items.lock();
        let result = f(&mut items);
        self.len.store(items.len(), Ordering::SeqCst);
        (result, items.len())
    }
}

/// What others see of a worker's queues.
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

    /// Half of the deque, rounded up, but no more than 32; or, if there is nothing, the oldest that has had no turn; or the
    /// whole batch. One of them is returned, the others are in `into`. Of newest first that is one by one, and each a
    /// compare-and-swap.
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

    /// What is in the next slot.
    pub(crate) fn steal_slot(&self) -> Steal<T> {
        self.slot.steal()
    }

    /// Takes everything, from whoever has it; the owner may still add.
    pub(crate) fn drain(&self, into: &mut Vec<T>) {
        into.extend(std::iter::from_fn(|| certain(|| self.slot.steal())));
        into.extend(std::iter::from_fn(|| certain(|| self.new_tasks.steal())));
        into.extend(std::iter::from_fn(|| certain(|| self.deque.steal())));
        self.batch.with(|items| into.append(items));
    }
}

/// The queues of one worker, as their owner sees them.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    slot: Deque<T>,
    /// What is in the slot, if it is still there, has had no turn.
    slot_is_new: Cell<bool>,
    /// How many more may run from there, and from the nursery, before the others.
    budget: Cell<u8>,
    /// How often it was spent.
    spent: Cell<u32>,
    new_tasks: NewTasks<T>,
    deque: Deque<T>,
    batch: Arc<Batch<T>>,
    /// The thieves' end of its own deque, if that is newest first.
    oldest: Option<Stealer<T>>,
}

/// What a push means for the others.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the slot and nothing was displaced: this worker runs it next, nobody else need come.
    ToSlot,
    /// Something is in the deque for others to take; so many are there now.
    ToDeque(usize),
    /// A batch is full and has to go to the global queue.
    BatchFull,
}

impl<T> Queues<T> {
    pub(crate) fn new(order: LocalOrder) -> (Self, Remote<T>) {
        let deque = match order {
            LocalOrder::Fifo => Deque::new_fifo(),
            LocalOrder::Lifo => Deque::new_lifo(),
        };
        let (slot, batch) = (Deque::new_fifo(), Batch::new());
        let (new_tasks, nursery_remote) = NewTasks::new();
        let oldest = (order == LocalOrder::Lifo).then(|| deque.stealer());
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

    /// Whether the deque is newest first.
    #[inline]
    pub(crate) fn is_lifo(&self) -> bool {
        self.oldest.is_some()
    }

    /// Takes over what waited in this order elsewhere, to be run in it.
    pub(crate) fn refill(&self, items: impl DoubleEndedIterator<Item = T>) {
        if self.is_lifo() {
            items.rev().for_each(|item| self.deque.push(item));
        } else {
            items.for_each(|item| self.deque.push(item));
        }
    }

    /// Whether nothing waits behind the slot.
    fn nothing_behind(&self) -> bool {
        self.deque.is_empty() && self.new_tasks.is_empty() && self.batch.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nothing_behind() && self.slot.is_empty()
    }

    /// Whether nothing is in the slot.
    pub(crate) fn slot_is_empty(&self) -> bool {
        self.slot.is_empty()
    }

    /// Puts an item into the slot; what was there goes to the back.
    #[inline]
    pub(crate) fn push_next(&self, item: T) -> Pushed {
        self.fill_slot(item, false)
    }

    /// Puts an item into the slot that has had no turn. When another one follows, it waits with its like, if there is room,
    /// and there the newest is first.
    #[inline]
    pub(crate) fn push_new(&self, item: T) -> Pushed {
        // Where the newest is first anyway, all are alike.
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

    /// Puts an item behind all others; newest first, before them.
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

    /// First in first out, puts an item behind all others that was taken from here: it is no new arrival, and stays however
    /// many there are. On the way by the global queue it would end up on another core at every turn.
    #[inline]
    pub(crate) fn push_again(&self, item: T) -> Pushed {
        if !self.batch.is_empty() {
            return self.push_back(item);
        }
        let waiting = self.deque.len();
        self.deque.push(item);
        Pushed::ToDeque(waiting + 1)
    }

    /// Keeps an item that nobody else takes any more.
    pub(crate) fn keep(&self, item: T) {
        self.deque.push(item);
    }

    /// Sends the batch to the global queue.
    pub(crate) fn overflow(&self, global: &Injector<T>) {
        self.batch.with(|items| global.append(items));
    }

    /// The next of what waits here: what is in the slot, then those that have had no turn, and then the others; or these first,
    /// when the budget is spent that the first two share.
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

    /// As [`next`](Self::next), when the budget is spent. What is in the slot goes behind, but not if nobody else waits: a
    /// pair that plays alone goes on, and wakes no second worker. Such a pair must not starve those either that have had no
    /// turn: one of them comes every fourth time.
    #[cold]
    fn next_spent(&self) -> Option<T> {
        self.budget.set(BUDGET);
        if let Some(item) = self.slot.pop() {
            if self.nothing_behind() {
                return Some(item);
            }
            // Whoever is to be told of those who wait has been. It is no arrival: if the batch is full, the next sees to that.
            let _ = self.push_again(item);
        }
        let spent = self.spent.get().wrapping_add(1);
        self.spent.set(spent);
        let new = if spent.is_multiple_of(NEW_EVERY) { self.new_tasks.pop() } else { None };
        new.or_else(|| self.pop()).or_else(|| self.new_tasks.pop())
    }

    /// The next of the deque, which is refilled from the batch when it runs low.
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

    /// Newest first, the oldest of the deque, as a thief takes it.
    pub(crate) fn pop_oldest(&self) -> Option<T> {
        let oldest = self.oldest.as_ref()?;
        certain(|| oldest.steal())
    }

    /// Everything, the slot first.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = std::iter::from_fn(|| self.slot.pop()).collect();
        all.extend(std::iter::from_fn(|| self.new_tasks.pop()));
        all.extend(std::iter::from_fn(|| self.deque.pop()));
        self.batch.with(|items| all.append(items));
        all
    }
}
