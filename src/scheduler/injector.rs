//! Global queue that all workers share. The queue receives tasks from threads outside the workers, and tasks for which
//! a local queue has no room.
//!
//! A push does not wake a worker. After a push, the caller must wake a worker.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;

use crate::platform::sync::Mutex;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of tasks that a worker takes in addition to the first task.
const GLOBAL_TAKE: usize = 16;

/// If a queue becomes empty and has room for more tasks than this number, the queue frees its memory. Otherwise, after
/// a burst of tasks, the queue would own the memory for this burst until the end of the runtime.
const KEPT_CAPACITY: usize = 4_096;

/// A queue under a lock. The global queue and the two priority queues have this type.
#[derive(Debug)]
pub(crate) struct Injector<T> {
    /// Length of the queue. Workers read this length without the lock, so a check of an empty queue costs only one
    /// load. The fences in `idle.rs` order this load. A pushing thread pushes, executes a fence, and then reads which
    /// workers sleep. A worker announces its sleep, executes a fence, and then reads this length.
    len: AtomicUsize,
    queue: Mutex<(VecDeque<T>, bool)>,
}

/// Takes the memory of an empty queue that has become large. The caller frees the memory after it has released the
/// lock.
fn unused_memory<T>(queue: &mut VecDeque<T>) -> Option<VecDeque<T>> {
    (queue.is_empty() && queue.capacity() > KEPT_CAPACITY).then(|| std::mem::take(queue))
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Self { len: AtomicUsize::new(0), queue: Mutex::new((VecDeque::new(), false)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Appends a task.
    ///
    /// # Errors
    /// Returns the task if the queue is closed. The task must not be dropped under the lock of the queue.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut guard = self.queue.lock();
        if guard.1 {
            return Err(item);
        }
        guard.0.push_back(item);
        self.len.store(guard.0.len(), Ordering::Release);
        Ok(())
    }

    /// Appends the tasks under one lock. If the queue is closed, the tasks stay in `items`.
    pub(crate) fn append(&self, items: &mut Vec<T>) {
        let mut guard = self.queue.lock();
        if guard.1 {
            return;
        }
        guard.0.extend(items.drain(..));
        self.len.store(guard.0.len(), Ordering::Release);
    }

    /// Takes the first task. Also takes more tasks, and passes these additional tasks to `refill`. The number of the
    /// additional tasks is at most 16, and at most the fair share of one worker. The fair share is the number of queued
    /// tasks divided by `workers`, plus one. Calls `lead(task, 0)` for each task that this function takes out of the
    /// queue. Calls `lead(task, 1)` for each task that the next call of this function will probably take.
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
        let freed = unused_memory(queue);
        drop(guard);
        drop(freed);
        Some(first)
    }

    /// Takes the first task.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut guard = self.queue.lock();
        let first = guard.0.pop_front();
        self.len.store(guard.0.len(), Ordering::Release);
        let freed = unused_memory(&mut guard.0);
        drop(guard);
        drop(freed);
        first
    }

    /// Takes all tasks.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        let mut guard = self.queue.lock();
        self.len.store(0, Ordering::Release);
        std::mem::take(&mut guard.0)
    }

    /// Returns the size of the queue's memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().0.capacity() * size_of::<T>()
    }

    /// Closes the queue. Later pushes to the queue fail.
    pub(crate) fn close(&self) {
        self.queue.lock().1 = true;
    }
}
