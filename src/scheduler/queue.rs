//! Where work waits, and in which order a worker looks for it: its next slot, its local deque, the global queue, the
//! timers, and then the others.
//!
//! The local queues are crossbeam deques, first in first out, so that a thief takes half in one compare-and-swap. The
//! next slot is a deque too, of at most one: that makes it stealable without a lock.

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

    /// Takes one, and moves up to 16 more into `local`, but no more than the share of one of `workers`.
    pub(crate) fn take(&self, local: &Deque<T>, workers: usize) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut guard = self.queue.lock();
        let queue = &mut guard.0;
        let share = GLOBAL_TAKE.min(queue.len() / workers.max(1) + 1);
        let first = queue.pop_front()?;
        for item in queue.drain(..share.min(queue.len())) {
            local.push(item);
        }
        self.len.store(queue.len(), Ordering::SeqCst);
        Some(first)
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
    /// in `into`.
    pub(crate) fn steal_half(&self, into: &Deque<T>) -> Steal<T> {
        let stolen = self.deque.steal_batch_with_limit_and_pop(into, usize::MAX);
        if !stolen.is_empty() || self.batch.is_empty() {
            return stolen;
        }
        let take = |items: &mut Vec<T>| {
            let mut items = items.drain(..);
            let first = items.next();
            items.for_each(|item| into.push(item));
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
    pub(crate) deque: Deque<T>,
    slot: Deque<T>,
    batch: Arc<Batch<T>>,
}

/// What a push means for the others.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the slot and nothing was displaced: this worker runs it next, nobody else need come.
    ToSlot,
    /// Something is in the deque for others to take.
    ToDeque,
    /// A batch is full and has to go to the global queue.
    BatchFull,
}

impl<T> Queues<T> {
    pub(crate) fn new() -> (Self, Remote<T>) {
        let (deque, slot, batch) = (Deque::new_fifo(), Deque::new_fifo(), Batch::new());
        let remote = Remote { deque: deque.stealer(), slot: slot.stealer(), batch: Arc::clone(&batch) };
        (Self { deque, slot, batch }, remote)
    }

    /// Whether nothing waits behind the slot.
    pub(crate) fn nothing_behind(&self) -> bool {
        self.deque.is_empty() && self.batch.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nothing_behind() && self.slot.is_empty()
    }

    /// Puts an item into the slot; what was there goes to the back.
    pub(crate) fn push_next(&mut self, item: T) -> Pushed {
        let displaced = self.slot.pop();
        self.slot.push(item);
        match displaced {
            None => Pushed::ToSlot,
            Some(displaced) => self.push_back(displaced),
        }
    }

    /// Puts an item behind all others.
    pub(crate) fn push_back(&mut self, item: T) -> Pushed {
        if self.batch.is_empty() && self.deque.len() < LOCAL_FULL {
            self.deque.push(item);
            return Pushed::ToDeque;
        }
        if self.batch.with(|items| items.push(item)).1 >= BATCH { Pushed::BatchFull } else { Pushed::ToDeque }
    }

    /// Puts an item behind all others that was taken from here: it is no new arrival, and stays however many there are.
    /// On the way by the global queue it would end up on another core at every turn.
    pub(crate) fn push_again(&mut self, item: T) -> Pushed {
        if !self.batch.is_empty() {
            return self.push_back(item);
        }
        self.deque.push(item);
        Pushed::ToDeque
    }

    /// Keeps an item that nobody else takes any more.
    pub(crate) fn keep(&mut self, item: T) {
        self.deque.push(item);
    }

    /// Sends the batch to the global queue.
    pub(crate) fn overflow(&self, global: &Global<T>) {
        self.batch.with(|items| global.append(items));
    }

    pub(crate) fn pop_slot(&mut self) -> Option<T> {
        self.slot.pop()
    }

    /// The oldest of the deque, which is refilled from the batch when it runs low.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        if !self.batch.is_empty() && self.deque.len() < LOCAL_FULL / 2 {
            self.batch.with(|items| items.drain(..).for_each(|item| self.deque.push(item)));
        }
        self.deque.pop()
    }

    /// Everything, the slot first.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut all: Vec<T> = std::iter::from_fn(|| self.slot.pop()).collect();
        all.extend(std::iter::from_fn(|| self.deque.pop()));
        self.batch.with(|items| all.append(items));
        all
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_slot_runs_before_the_deque_and_what_it_held_goes_to_the_back() {
        let (mut queues, _remote) = Queues::new();
        assert_eq!(queues.push_back(1), Pushed::ToDeque);
        assert_eq!(queues.push_next(2), Pushed::ToSlot);
        assert_eq!(queues.push_next(3), Pushed::ToDeque);
        assert_eq!(queues.pop_slot(), Some(3));
        assert_eq!((queues.pop_front(), queues.pop_front(), queues.pop_front()), (Some(1), Some(2), None));
    }

    #[test]
    fn an_overflow_keeps_everything_in_order() {
        let (mut queues, _remote) = Queues::new();
        let global = Global::new();
        for n in 0..1000 {
            if queues.push_back(n) == Pushed::BatchFull {
                queues.overflow(&global);
            }
        }
        assert_eq!(global.len(), (1000 - LOCAL_FULL) / BATCH * BATCH);
        let mut local: Vec<_> = std::iter::from_fn(|| queues.pop_front()).collect();
        let shared = global.drain();
        let split = local.split_off(LOCAL_FULL);
        let all: Vec<_> = local.into_iter().chain(shared).chain(split).collect();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_taken_from_here_stays_here_however_long_the_queue_is() {
        let (mut queues, _remote) = Queues::new();
        for n in 0..LOCAL_FULL {
            assert_eq!(queues.push_back(n), Pushed::ToDeque);
        }
        assert_eq!(queues.push_again(LOCAL_FULL), Pushed::ToDeque);
        assert!(queues.batch.is_empty());
        assert_eq!(queues.deque.len(), LOCAL_FULL + 1);
        // Behind a batch that waits it goes the way of all.
        let _ = queues.push_back(LOCAL_FULL + 1);
        let _ = queues.push_again(LOCAL_FULL + 2);
        assert_eq!(queues.batch.len(), 2);
    }

    #[test]
    fn nothing_overtakes_a_batch_that_waits() {
        let (mut queues, _remote) = Queues::new();
        for n in 0..300 {
            let _ = queues.push_back(n);
        }
        for n in 0..200 {
            assert_eq!(queues.pop_front(), Some(n));
            let _ = queues.push_back(n + 300);
            if queues.batch.len() == BATCH {
                return;
            }
        }
        assert_eq!(std::iter::from_fn(|| queues.pop_front()).collect::<Vec<_>>(), (200..500).collect::<Vec<_>>());
    }

    #[test]
    fn a_worker_takes_its_share_of_the_global_queue() {
        let global = Global::new();
        let (queues, _remote) = Queues::new();
        for n in 0..100 {
            global.push(n).unwrap();
        }
        assert_eq!(global.take(&queues.deque, 10), Some(0));
        assert_eq!((queues.deque.len(), global.len()), (11, 88));
        assert_eq!(global.take(&queues.deque, 1), Some(12));
        assert_eq!((queues.deque.len(), global.len()), (27, 71));
        global.close();
        assert_eq!(global.push(7), Err(7));
    }

    #[test]
    fn a_thief_takes_half_rounded_up_and_the_slot_by_itself() {
        let (mut queues, remote) = Queues::new();
        let (thief, _) = Queues::new();
        for n in 0..101 {
            let _ = queues.push_back(n);
        }
        let _ = queues.push_next(1000);
        assert_eq!(remote.len(), 102);
        assert!(matches!(remote.steal_half(&thief.deque), Steal::Success(0)));
        assert_eq!((thief.deque.len(), queues.deque.len()), (50, 50));
        assert!(matches!(remote.steal_slot(), Steal::Success(1000)));
        assert!(matches!(remote.steal_slot(), Steal::Empty));
        assert_eq!(queues.pop_slot(), None);
    }

    #[test]
    fn a_thief_finds_the_batch_too() {
        let (mut queues, remote) = Queues::new();
        let (thief, _) = Queues::new();
        for n in 0..LOCAL_FULL + 3 {
            let _ = queues.push_back(n);
        }
        assert_eq!(remote.len(), LOCAL_FULL + 3);
        while !queues.deque.is_empty() {
            let _ = remote.steal_half(&thief.deque);
        }
        while thief.deque.pop().is_some() {}
        assert!(matches!(remote.steal_half(&thief.deque), Steal::Success(LOCAL_FULL)));
        assert_eq!((thief.deque.len(), remote.is_empty(), queues.is_empty()), (2, true, true));
    }
}
