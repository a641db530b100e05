//! A mutex for the models. This mutex is for threads that call `try_lock` while another thread holds the mutex for a
//! long time.
//!
//! In loom 0.7, a call of `try_lock` on a held mutex blocks until the mutex is released. If the thread that holds the
//! mutex waits for the calling thread, loom reports a deadlock that cannot happen in the real program. Therefore this
//! mutex stores a flag, and a lock that is held only for a short time protects this flag.

use std::ops::{Deref, DerefMut};

use crate::platform::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct TryMutex<T> {
    is_held: Mutex<bool>,
    released: Condvar,
    /// Only the thread that has set `is_held` locks this inner mutex.
    value: Mutex<T>,
}

#[derive(Debug)]
pub(crate) struct TryMutexGuard<'a, T> {
    mutex: &'a TryMutex<T>,
    value: Option<MutexGuard<'a, T>>,
}

impl<T> TryMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_held: Mutex::new(false), released: Condvar::new(), value: Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> TryMutexGuard<'_, T> {
        let mut is_held = self.is_held.lock();
        while *is_held {
            is_held = self.released.wait(is_held).expect("never poisoned");
        }
        *is_held = true;
        drop(is_held);
        TryMutexGuard { mutex: self, value: Some(self.value.lock()) }
    }

    pub(crate) fn try_lock(&self) -> Option<TryMutexGuard<'_, T>> {
        if std::mem::replace(&mut *self.is_held.lock(), true) {
            return None;
        }
        Some(TryMutexGuard { mutex: self, value: Some(self.value.lock()) })
    }
}

impl<T> Deref for TryMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until the drop")
    }
}

impl<T> DerefMut for TryMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until the drop")
    }
}

impl<T> Drop for TryMutexGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        *self.mutex.is_held.lock() = false;
        self.mutex.released.notify_all();
    }
}
