//! What came from outside, and what is too much for one worker.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;

use crate::platform::sync::Mutex;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};

/// How many more than one a worker takes from here at most.
const GLOBAL_TAKE: usize = 16;

/// The queue that all share.
#[derive(Debug)]
pub(crate) struct Injector<T> {
    /// Read without the lock: an empty queue costs a load. Whoever pushes tells somebody after that, behind a fence, and who is
    /// about to sleep looks behind one: see `idle`.
    len: AtomicUsize,
    queue: Mutex<(VecDeque<T>, bool)>,
}

impl<T> Injector<T> {
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
        self.len.store(guard.0.len(), Ordering::Release);
        Ok(())
    }

    /// Appends many under one lock; leaves them where they are when the queue is closed.
    pub(crate) fn append(&self, items: &mut Vec<T>) {
        let mut guard = self.queue.lock();
        if guard.1 {
            return;
        }
        guard.0.extend(items.drain(..));
        self.len.store(guard.0.len(), Ordering::Release);
    }

    /// Takes one, and gives up to 16 more to `refill`, but no more than the share of one of `workers`. Those that will be
    /// taken by this, and by the next such as this, are told to `lead`, with how many of these come first.
    pub(crate) fn take(
        &self,
        workers: usize,
        lead: impl Fn(&T, usize),
        refill: impl FnOnce(Drain<'_, T>),
    ) -> Option<T> {
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
        refill(queue.drain(..share.min(queue.len())));
        self.len.store(queue.len(), Ordering::Release);
        Some(first)
    }

    /// Takes one.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut guard = self.queue.lock();
        let first = guard.0.pop_front();
        self.len.store(guard.0.len(), Ordering::Release);
        first
    }

    /// Takes everything.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        let mut guard = self.queue.lock();
        self.len.store(0, Ordering::Release);
        std::mem::take(&mut guard.0)
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.queue.lock().1 = true;
    }
}
