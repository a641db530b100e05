//! `Lock` for the model checkers. The lock consists of the checker's own mutex and a flag. The flag is true while the
//! lock is marked: `LockGuard::mark` marks the lock, and the next `lock` removes the mark.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Mutex, MutexGuard};

/// A lock around plain data. A panic does not poison the lock. The lock does not protect the field `beside`.
#[derive(Default)]
pub(crate) struct Lock<T, B = ()> {
    value: Mutex<T>,
    marked: AtomicBool,
    beside: B,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self::with_beside((), value)
    }
}

impl<T, B> Lock<T, B> {
    pub(crate) fn with_beside(beside: B, value: T) -> Self {
        Self { value: Mutex::new(value), marked: AtomicBool::new(false), beside }
    }

    pub(crate) fn beside(&self) -> &B {
        &self.beside
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T, B> {
        let guard = self.value.lock();
        self.marked.store(false, Ordering::Relaxed);
        LockGuard { guard, marked: &self.marked, _beside: PhantomData }
    }

    pub(crate) fn lock_patiently(&self) -> LockGuard<'_, T, B> {
        self.lock()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
    }
}

impl<T: fmt::Debug, B> fmt::Debug for Lock<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("value", &*self.lock()).finish()
    }
}

/// Guard that holds a [`Lock`] until the guard is dropped.
#[must_use]
pub(crate) struct LockGuard<'a, T, B = ()> {
    guard: MutexGuard<'a, T>,
    marked: &'a AtomicBool,
    _beside: PhantomData<&'a B>,
}

impl<T, B> LockGuard<'_, T, B> {
    pub(crate) fn mark(self) {
        self.marked.store(true, Ordering::Relaxed);
    }
}

impl<T, B> Deref for LockGuard<'_, T, B> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, B> DerefMut for LockGuard<'_, T, B> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Atomics of the reference counts. Most models do not explore the reference counts. In these models, the counts are
/// standard atomics, so the counts do not increase the number of executions. Only the model of the counts creates its
/// values inside [`explored`](counts::explored).
#[cfg(procession_loom)]
pub(crate) mod counts {
    use std::cell::Cell;

    use crate::platform::sync::checker::cell::UnsafeCell;
    use crate::platform::sync::checker::sync::atomic as checked;
    use crate::platform::sync::tally as plain;
    pub(crate) use crate::platform::sync::tally::Ordering;

    /// Runs `f`. Loom checks the accesses to each counter that `f` creates.
    pub(crate) fn explored<R>(f: impl FnOnce() -> R) -> R {
        super::super::EXPLORED.set(true);
        let result = f();
        super::super::EXPLORED.set(false);
        result
    }

    /// Fence of the model checker.
    pub(crate) fn fence(order: Ordering) {
        checked::fence(order);
    }

    #[derive(Debug)]
    pub(crate) enum AtomicU32 {
        Plain(plain::AtomicU32),
        Explored(Explored),
    }

    #[derive(Debug)]
    pub(crate) struct Explored {
        count: checked::AtomicU32,
        /// Each operation on the count reads this cell, and [`AtomicU32::freed`] writes this cell. If there is no
        /// happens-before edge between a read and the write, loom reports the two accesses.
        memory: UnsafeCell<()>,
        freed: Cell<bool>,
    }

    #[expect(unsafe_code, reason = "the checker's cell is not `Sync`")]
    // SAFETY: loom runs one thread of a model at a time. If two conflicting accesses to `memory` have no happens-before
    // edge between them, loom reports the two accesses. `freed` is read only during a read of `memory`, and is written
    // only during a write of `memory`. Therefore, loom reports each data race on `freed`.
    unsafe impl Sync for Explored {}

    impl Explored {
        fn count(&self) -> &checked::AtomicU32 {
            self.memory.with(|_| assert!(!self.freed.get(), "a count is used after the memory was freed"));
            &self.count
        }
    }

    impl AtomicU32 {
        pub(crate) fn new(count: u32) -> Self {
            if !super::super::EXPLORED.get() {
                return Self::Plain(plain::AtomicU32::new(count));
            }
            let (count, memory) = (checked::AtomicU32::new(count), UnsafeCell::new(()));
            Self::Explored(Explored { count, memory, freed: Cell::new(false) })
        }

        pub(crate) fn load(&self, order: Ordering) -> u32 {
            match self {
                Self::Plain(count) => count.load(order),
                Self::Explored(explored) => explored.count().load(order),
            }
        }

        pub(crate) fn fetch_add(&self, by: u32, order: Ordering) -> u32 {
            match self {
                Self::Plain(count) => count.fetch_add(by, order),
                Self::Explored(explored) => explored.count().fetch_add(by, order),
            }
        }

        pub(crate) fn fetch_sub(&self, by: u32, order: Ordering) -> u32 {
            match self {
                Self::Plain(count) => count.fetch_sub(by, order),
                Self::Explored(explored) => explored.count().fetch_sub(by, order),
            }
        }

        pub(crate) fn fetch_update(
            &self,
            set: Ordering,
            fetch: Ordering,
            next: impl FnMut(u32) -> Option<u32>,
        ) -> Result<u32, u32> {
            match self {
                Self::Plain(count) => count.fetch_update(set, fetch, next),
                Self::Explored(explored) => explored.count().fetch_update(set, fetch, next),
            }
        }

        /// Records that the memory of this count is freed. Returns true if loom explores the count. In this case, the
        /// caller must not really free the memory, so that loom can report a later access.
        pub(crate) fn freed(&self) -> bool {
            let Self::Explored(explored) = self else { return false };
            explored.count();
            explored.memory.with_mut(|_| explored.freed.set(true));
            true
        }
    }
}
