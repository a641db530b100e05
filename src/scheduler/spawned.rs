//! Those that were spawned here and have had no turn yet.
//!
//! The newest is first, so a tree of processes is walked depth first: there are as many at a time as the tree is high, and
//! not as many as it is wide. What a thief takes is the oldest, which has most of the tree below it (Blumofe and Leiserson,
//! "Scheduling Multithreaded Computations by Work Stealing", 1999).
//!
//! Newest first starves the oldest, so there are two exceptions. When there is no more room, spawning is faster than running:
//! then the oldest is first until half are gone, and what comes goes behind those that had a turn. And where there is always
//! room, and always a newer one, every so many are followed by the oldest.

#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;

use std::cell::Cell;

use crossbeam_deque::{Steal, Stealer, Worker as Deque};

/// How many there is room for.
const ROOM: usize = 4096;
/// After so many of the newest comes the oldest. What the oldest spawns is walked before all others, and is larger: with 64
/// the whole of a large tree was there in the end, and 1,024 keeps one of thirty million in a dozen megabytes.
const OLDEST_EVERY: u32 = 1024;

/// What there is, however often others take one meanwhile.
pub(super) fn certain<T>(steal: impl Fn() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(item) => return Some(item),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}

/// As their owner sees them.
#[derive(Debug)]
pub(super) struct NewTasks<T> {
    deque: Deque<T>,
    oldest: Stealer<T>,
    /// None was there when one was last wanted, and none has come since: costs less than to look.
    idle: Cell<bool>,
    /// There was no more room.
    crowded: Cell<bool>,
    taken: Cell<u32>,
}

/// What others see of it.
#[derive(Debug)]
pub(super) struct NewTasksRemote<T>(Stealer<T>);

impl<T> NewTasksRemote<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The oldest.
    pub(super) fn steal(&self) -> Steal<T> {
        self.0.steal()
    }
}

impl<T> NewTasks<T> {
    pub(super) fn new() -> (Self, NewTasksRemote<T>) {
        let deque = Deque::new_lifo();
        let (oldest, remote) = (deque.stealer(), NewTasksRemote(deque.stealer()));
        (Self { deque, oldest, idle: Cell::new(true), crowded: Cell::new(false), taken: Cell::new(0) }, remote)
    }

    /// Whether none has been here since there was none: then there is none now.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.idle.get()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deque.is_empty()
    }

    /// Adds one; returns how many are there now.
    ///
    /// # Errors
    /// It, when there is no room.
    #[inline]
    pub(super) fn push(&self, item: T) -> Result<usize, T> {
        let waiting = self.deque.len();
        if waiting >= ROOM {
            self.crowded.set(true);
            return Err(item);
        }
        self.deque.push(item);
        self.idle.set(false);
        Ok(waiting + 1)
    }

    /// The next.
    pub(super) fn pop(&self) -> Option<T> {
        let taken = self.taken.get().wrapping_add(1);
        self.taken.set(taken);
        let item = if self.crowded.get() || taken.is_multiple_of(OLDEST_EVERY) {
            self.crowded.set(self.crowded.get() && self.deque.len() > ROOM / 2);
            certain(|| self.oldest.steal())
        } else {
            self.deque.pop()
        };
        self.idle.set(item.is_none());
        item
    }
}
