//! `Lock` as the model checkers know it: by their own mutex, with the mark beside it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::atomic::{AtomicBool, Ordering};
use super::{Mutex, MutexGuard};

/// A lock around plain data; a panic does not poison it.
#[derive(Default)]
pub(crate) struct Lock<T> {
    value: Mutex<T>,
    marked: AtomicBool,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), marked: AtomicBool::new(false) }
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        let guard = self.value.lock();
        self.marked.store(false, Ordering::Relaxed);
        LockGuard { guard, marked: &self.marked }
    }

    pub(crate) fn lock_patiently(&self) -> LockGuard<'_, T> {
        self.lock()
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("value", &*self.lock()).finish()
    }
}

/// Holds a [`Lock`] until it is dropped.
#[must_use]
pub(crate) struct LockGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    marked: &'a AtomicBool,
}

impl<T> LockGuard<'_, T> {
    pub(crate) fn mark(self) {
        self.marked.store(true, Ordering::Relaxed);
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
