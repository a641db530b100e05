//! Where work waits, and in which order a worker looks for it: its next slot, its local deque, the global queue, the
//! timers, and then the others.
//!
//! The local queues are crossbeam deques: first in first out, where a thief takes half in one compare-and-swap, or newest
//! first for the owner, where it takes one by one, for a swap of several would lose and double some there. The next slot is
//! a deque too, of at most one: that makes it stealable without a lock.

#[cfg(all(test, not(procession_loom)))]
mod tests;

use std::collections::VecDeque;

use crossbeam_deque::{Steal, Stealer, Worker as Deque};

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::tally::AtomicUsize as Tally;
use crate::sync::{Arc, Lock, Mutex};

/// From this many local items on, new arrivals gather for the global queue.
const LOCAL_FULL: usize = 256;
/// How many gather before they go there under one lock.
const BATCH: usize = 128;
/// How many more than one a worker takes from the global queue at most.
const GLOBAL_TAKE: usize = 16;

/// In which order a worker runs what waits in its own queue: [`Builder::local_order`](crate::Builder::local_order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LocalOrder {
    /// First in, first out, behind one next slot for what was woken last: who waits longest is next.
    #[default]
    Fifo,
    /// Newest first: what was woken or spawned last finds its data in the cache, and a tree of processes is walked depth
    /// first, in little memory. Others take the older half. Who waits longest is next at every 16th look; whoever yields goes
    /// behind all, by way of the queue that the workers share, which costs more than with `Fifo`.
    Lifo,
}

/// The queue that all share.
#[derive(Debug)]
pub(crate) struct Global<T> {
    /// Read without the lock: an empty queue costs a load.
    len: AtomicUsize,
    queue: Mutex<(VecDeque<T>, bool)>,
}

impl<T> Global<T> {
    pub(crate) fn new() -> Self {
        Self { len: AtomicUsize::new(0), queue: Mutex::new((VecDeque::new(), false)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Appends one.
    ///
    /// # Errors
    /// It, when the queue is closed: whoever gets it back drops it, outside the lock.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut guard = self.queue.lock();
        if guard.1 {
            return Err(item);
        }
        guard.0.push_back(item);
        self.len.store(guard.0.len(), Ordering::SeqCst);
        Ok(())
    }

    /// Appends many under one lock; leaves them where they are when the queue is closed.
    pub(crate) fn append(&self, items: &mut Vec<T>) {
        let mut guard = self.queue.lock();
        if guard.1 {
            return;
        }
        guard.0.extend(items.drain(..));
        self.len.store(guard.0.len(), Ordering::SeqCst);
    }

    /// Takes one, and moves up to 16 more into `local`, but no more than the share of one of `workers`. Those that will be
    /// taken by this, and by the next such as this, are told to `lead`, with how many of these come first.
    pub(crate) fn take(&self, local: &Queues<T>, workers: usize, lead: impl Fn(&T, usize)) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut guard = self.queue.lock();
        let queue = &mut guard.0;
        let share = GLOBAL_TAKE.min(queue.len() / workers.max(1) + 1);
        for ahead in 0..2 {
            queue.iter().skip(ahead * (share + 1)).take(share + 1).for_each(|item| lead(item, ahead));
        }
        let first = queue.pop_front()?;
        local.refill(queue.drain(..share.min(queue.len())));
        self.len.store(queue.len(), Ordering::SeqCst);
        Some(first)
    }

    /// Takes one.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut guard = self.queue.lock();
        let first = guard.0.pop_front();
        self.len.store(guard.0.len(), Ordering::SeqCst);
        first
    }

    /// Takes everything.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        let mut guard = self.queue.lock();
        self.len.store(0, Ordering::SeqCst);
        std::mem::take(&mut guard.0)
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.queue.lock().1 = true;
    }
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
    deque: Stealer<T>,
    slot: Stealer<T>,
    batch: Arc<Batch<T>>,
}

impl<T> Remote<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.deque.is_empty() && self.slot.is_empty() && self.batch.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.deque.len() + self.slot.len() + self.batch.len()
    }

    /// Half of the deque, rounded up, or, if there is nothing, the whole batch; one of them is returned, the others are
    /// in `into`. Of newest first that is one by one, and each a compare-and-swap.
    pub(crate) fn steal_half(&self, into: &Queues<T>) -> Steal<T> {
        let stolen = self.deque.steal_batch_with_limit_and_pop(&into.deque, usize::MAX);
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
        for stealer in [&self.slot, &self.deque] {
            loop {
                match stealer.steal() {
                    Steal::Success(item) => into.push(item),
                    Steal::Retry => {}
                    Steal::Empty => break,
                }
            }
        }
        self.batch.with(|items| into.append(items));
    }
}

/// The queues of one worker, as their owner sees them.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    deque: Deque<T>,
    slot: Deque<T>,
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
        let oldest = (order == LocalOrder::Lifo).then(|| deque.stealer());
        let remote = Remote { deque: deque.stealer(), slot: slot.stealer(), batch: Arc::clone(&batch) };
        (Self { deque, slot, batch, oldest }, remote)
    }

    /// Whether the deque is newest first.
    #[inline]
    pub(crate) fn is_lifo(&self) -> bool {
        self.oldest.is_some()
    }

    /// Takes over what waited in this order elsewhere, to be run in it.
    fn refill(&self, items: impl DoubleEndedIterator<Item = T>) {
        if self.is_lifo() {
            items.rev().for_each(|item| self.deque.push(item));
        } else {
            items.for_each(|item| self.deque.push(item));
        }
    }

    /// Whether nothing waits behind the slot.
    pub(crate) fn nothing_behind(&self) -> bool {
        self.deque.is_empty() && self.batch.is_empty()
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
        let displaced = self.slot.pop();
        self.slot.push(item);
        match displaced {
            None => Pushed::ToSlot,
            Some(displaced) => self.push_back(displaced),
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

    /// First in first out, puts an item behind all others that was taken from here: it is no new arrival, and stays however many there are.
    /// On the way by the global queue it would end up on another core at every turn.
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
    pub(crate) fn overflow(&self, global: &Global<T>) {
        self.batch.with(|items| global.append(items));
    }

    #[inline]
    pub(crate) fn pop_slot(&self) -> Option<T> {
        self.slot.pop()
    }

    /// The next of the deque, which is refilled from the batch when it runs low.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
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
        loop {
            match oldest.steal() {
                Steal::Success(item) => return Some(item),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// Everything, the slot first.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = std::iter::from_fn(|| self.slot.pop()).collect();
        all.extend(std::iter::from_fn(|| self.deque.pop()));
        self.batch.with(|items| all.append(items));
        all
    }
}
