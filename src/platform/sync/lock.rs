//! `Lock`: mutual exclusion for a few instructions. A file with unsafe code: unlocking is a store where the standard
//! library's lock needs a read-modify-write, and messages, which take three such locks, are a sixth cheaper by it (bench
//! `ring`).
//!
//! For what is held so briefly that to wait for it by sleeping would cost more than it takes, and in which no user code
//! runs. Whoever finds it taken pauses, and in the end yields its core, for the holder may have lost its own.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::{hint, thread};

/// How often a core looks again before it is yielded.
const SPINS: u32 = 64;

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Free, and not taken since it was [marked](LockGuard::mark).
const MARKED: u8 = 2;

/// A lock around plain data; a panic does not poison it.
#[derive(Default)]
pub(crate) struct Lock<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock accesses the value, and there is one holder at a time. So a shared lock does no more than
// send the value from thread to thread, which `T: Send` allows.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        // Acquire pairs with the release in the guard's drop: what the last holder wrote is seen.
        if self.state.swap(HELD, Ordering::Acquire) == HELD {
            self.wait();
        }
        LockGuard { lock: self }
    }

    /// The same, for one against somebody who may take it again and again, a hundred million times in a second: it looks
    /// again after pauses that grow. If it watched the lock it would take its cache line from the other each time, and meet it
    /// when it is held, half of the time: a stream of messages between two threads would cost twice as much (Anderson, "The
    /// Performance of Spin Lock Alternatives", IEEE TPDS 1990). Where many want it briefly, to watch is a tenth cheaper.
    #[inline]
    pub(crate) fn lock_patiently(&self) -> LockGuard<'_, T> {
        if self.state.swap(HELD, Ordering::Acquire) == HELD {
            self.wait_patiently();
        }
        LockGuard { lock: self }
    }

    /// Gives access to the value without taking the lock.
    ///
    /// # Safety
    /// No thread holds the lock, and none takes it before this returns. The release of the lock by its last holder happened
    /// before this call.
    #[inline]
    pub(crate) unsafe fn alone<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: nothing else has the lock or takes it until `f` returns, by contract, so this is the only reference to the value.
        f(unsafe { &mut *self.value.get() })
    }

    /// Whether it is as somebody left it who [marked](LockGuard::mark) it: nobody has taken it since. A hint, for it may
    /// be taken now.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == MARKED
    }

    #[cold]
    fn wait(&self) {
        let mut spins = 0;
        loop {
            while self.state.load(Ordering::Relaxed) == HELD {
                if spins < SPINS {
                    spins += 1;
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
            if self.state.swap(HELD, Ordering::Acquire) != HELD {
                return;
            }
        }
    }

    #[cold]
    fn wait_patiently(&self) {
        let mut pause = 1;
        loop {
            for _ in 0..pause {
                hint::spin_loop();
            }
            if self.state.load(Ordering::Relaxed) != HELD && self.state.swap(HELD, Ordering::Acquire) != HELD {
                return;
            }
            if pause < SPINS {
                pause *= 2;
            } else {
                thread::yield_now();
            }
        }
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
    lock: &'a Lock<T>,
}

// SAFETY: a shared guard gives out `&T`, which `T: Sync` allows. The derived impl would ask for `T: Send` only.
unsafe impl<T: Sync> Sync for LockGuard<'_, T> {}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives no other thread holds the lock, and this guard is borrowed shared, so nothing writes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: while this guard lives no other thread holds the lock, and this guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> LockGuard<'_, T> {
    /// Lets go of the lock, marked until somebody takes it.
    #[inline]
    pub(crate) fn mark(self) {
        let lock = self.lock;
        std::mem::forget(self);
        lock.state.store(MARKED, Ordering::Release);
    }
}

impl<T> Drop for LockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.state.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::catch::catch;

    #[test]
    fn one_at_a_time() {
        let lock = Lock::new((0_u64, 0_u64));
        let times = if cfg!(miri) { 50 } else { 20_000 };
        let add = || {
            for _ in 0..times {
                let mut guard = lock.lock();
                guard.0 += 1;
                assert_eq!(guard.0, guard.1 + 1, "somebody else is inside");
                guard.1 += 1;
            }
        };
        thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(add))));
        assert_eq!(*lock.lock(), (4 * times, 4 * times));
    }

    #[test]
    fn a_mark_stays_until_it_is_taken() {
        let lock = Lock::new(1_u32);
        assert!(!lock.is_marked());
        lock.lock().mark();
        assert!(lock.is_marked() && lock.is_marked());
        let guard = lock.lock();
        assert!(!lock.is_marked());
        drop(guard);
        assert!(!lock.is_marked());
    }

    #[test]
    fn a_panic_lets_go_of_it() {
        let lock = Lock::new(1_u32);
        let too_much = || {
            let mut guard = lock.lock();
            *guard = guard.checked_sub(2).expect("it is too much");
        };
        assert!(catch(too_much).is_err());
        *lock.lock() += 1;
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn what_is_only_send_is_not_shared_by_a_guard() {
        fn sync<T: Sync>() {}
        sync::<Lock<std::cell::Cell<u8>>>();
        sync::<LockGuard<'_, u8>>();
    }
}
