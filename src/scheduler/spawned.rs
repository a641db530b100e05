//! Queue of the new tasks of a worker. A new task was spawned on the worker and has not run yet.
//!
//! The owner takes the newest task first. If processes spawn a tree of processes, this order is depth first. Therefore
//! the number of live processes grows with the height of the tree, and not with its width. A thief takes the oldest
//! task, because this task has the largest subtree (Blumofe and Leiserson, "Scheduling Multithreaded Computations by
//! Work Stealing", 1999).
//!
//! If the owner always took the newest task, the oldest task might never run. Therefore there are two exceptions. The
//! first exception is a full queue: the owner takes the oldest tasks until half of the queue is empty. While the queue
//! is full, each new task is added to the back of the deque instead. The second exception is every 1,024th time that
//! the owner takes a task (`OLDEST_EVERY`): the owner then takes the oldest task. This exception is for a queue that
//! never becomes full, but always contains a newer task.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::cell::Cell;

use crossbeam_deque::{Steal, Stealer, Worker as Deque};

/// Capacity of the queue.
const ROOM: usize = 4096;
/// If this number is n, the owner takes the oldest task every n-th time that it takes a task. The oldest task often
/// spawns a large subtree of tasks, and these tasks run before all other tasks. With the value 64, nearly all processes
/// of a large tree existed at the same time. With the value 1,024, a tree of thirty million processes needs at most a
/// dozen megabytes.
const OLDEST_EVERY: u32 = 1024;

/// Retries a steal until it succeeds or the queue is empty.
pub(super) fn certain<T>(steal: impl Fn() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(item) => return Some(item),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}

/// The owner's part of the queue.
#[derive(Debug)]
pub(super) struct NewTasks<T> {
    deque: Deque<T>,
    oldest: Stealer<T>,
    /// True if the last `pop` found no task, and no task was pushed since then. A check of this field is cheaper than a
    /// check of the deque.
    idle: Cell<bool>,
    /// True after a push has found the queue full, until the owner has emptied half of the queue.
    is_draining: Cell<bool>,
    taken: Cell<u32>,
}

/// The thieves' part of the queue.
#[derive(Debug)]
pub(super) struct NewTasksRemote<T>(Stealer<T>);

impl<T> NewTasksRemote<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Steals the oldest task.
    pub(super) fn steal(&self) -> Steal<T> {
        self.0.steal()
    }
}

impl<T> NewTasks<T> {
    pub(super) fn new() -> (Self, NewTasksRemote<T>) {
        let deque = Deque::new_lifo();
        let (oldest, remote) = (deque.stealer(), NewTasksRemote(deque.stealer()));
        (Self { deque, oldest, idle: Cell::new(true), is_draining: Cell::new(false), taken: Cell::new(0) }, remote)
    }

    /// Returns true if the last `pop` found no task, and if no task was pushed after this `pop`. In this case the queue
    /// is empty.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.idle.get()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deque.is_empty()
    }

    /// Adds a task. Returns the number of tasks in the queue.
    ///
    /// # Errors
    /// Returns the task if the queue is full.
    #[inline]
    pub(super) fn push(&self, item: T) -> Result<usize, T> {
        let waiting = self.deque.len();
        if waiting >= ROOM {
            self.is_draining.set(true);
            return Err(item);
        }
        self.deque.push(item);
        self.idle.set(false);
        Ok(waiting + 1)
    }

    /// Takes the newest task. There are two exceptions, in which this function takes the oldest task: see the comment
    /// at the start of this file.
    pub(super) fn pop(&self) -> Option<T> {
        let taken = self.taken.get().wrapping_add(1);
        self.taken.set(taken);
        let item = if self.is_draining.get() || taken.is_multiple_of(OLDEST_EVERY) {
            self.is_draining.set(self.is_draining.get() && self.deque.len() > ROOM / 2);
            certain(|| self.oldest.steal())
        } else {
            self.deque.pop()
        };
        self.idle.set(item.is_none());
        item
    }
}
