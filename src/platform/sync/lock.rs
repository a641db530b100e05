//! `Lock`: a spin lock for critical sections of a few instructions. For a critical section of a few instructions,
//! blocking a waiting thread in the operating system would take more time than spinning. No user code runs while a lock
//! is held. A waiting thread first spins. After some spins, the waiting thread yields its core to other threads,
//! because the system may have preempted the thread that holds the lock.
//!
//! This file has unsafe code, because the unlock of this lock is cheaper than the unlock of the standard library's
//! mutex. The unlock of this lock is a plain store, and the unlock of the standard mutex is a read-modify-write. During
//! the transfer of one message, locks are taken three times. With this type of lock, the transfer takes a sixth less
//! time than with the standard mutex (bench `ring`).

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::{hint, thread};

/// Number of spins before a waiting thread yields its core to other threads.
const SPINS: u32 = 64;

const FREE: u8 = 0;
const HELD: u8 = 1;
/// No thread holds the lock. A thread has [marked](LockGuard::mark) the lock, and no thread has locked the lock since
/// then.
const MARKED: u8 = 2;

/// A lock around plain data. A panic does not poison the lock. The state is directly before the value. So the state and
/// the beginning of the value are usually in the same cache line.
///
/// Usually, the state and the value have padding between them. A small field `beside` fits into this padding. The lock
/// does not protect this field.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Lock<T, B = ()> {
    state: AtomicU8,
    beside: B,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock accesses the value, and there is one holder at a time. Therefore, when several
// threads share a lock, the access to the value only moves from one thread to another. `T: Send` allows this move.
// Several threads may have a `&B` at the same time. `B: Sync` allows these references.
unsafe impl<T: Send, B: Sync> Sync for Lock<T, B> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self::with_beside((), value)
    }
}

impl<T, B> Lock<T, B> {
    /// Creates a lock with a field that the lock does not protect.
    pub(crate) const fn with_beside(beside: B, value: T) -> Self {
        Self { state: AtomicU8::new(FREE), beside, value: UnsafeCell::new(value) }
    }

    /// Returns the field that the lock does not protect.
    #[inline]
    pub(crate) fn beside(&self) -> &B {
        &self.beside
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, T, B> {
        // The acquire swap pairs with the release stores in the guard's `drop` and `mark`. Therefore, this thread sees
        // the writes of the last holder.
        if self.state.swap(HELD, Ordering::Acquire) == HELD {
            self.wait();
        }
        LockGuard { lock: self }
    }

    /// Locks the value, as `lock` does. This method is intended for a thread that competes with exactly one other
    /// thread for the lock. The other thread may take the lock up to a hundred million times per second. While another
    /// thread holds the lock, this method pauses before each further check. The length of the pause doubles up to a
    /// limit. If the method checked the lock continuously, each check would take the cache line from the other thread,
    /// and would often find that the lock is held. A stream of messages between two threads would then cost twice as
    /// much (Anderson, "The Performance of Spin Lock Alternatives", IEEE TPDS 1990). If many threads compete for the
    /// lock and each thread holds the lock briefly, `lock` takes a tenth less time than this method.
    #[inline]
    pub(crate) fn lock_patiently(&self) -> LockGuard<'_, T, B> {
        if self.state.swap(HELD, Ordering::Acquire) == HELD {
            self.wait_patiently();
        }
        LockGuard { lock: self }
    }

    /// Returns the value without locking. No lock is needed, because `&mut self` excludes all other users of the lock.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Accesses the value without locking.
    ///
    /// # Safety
    /// No thread holds the lock, and no thread locks it before this function returns. The last release of the lock
    /// happened before this call.
    #[inline]
    pub(crate) unsafe fn alone<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: by contract no thread holds the lock or locks it until `f` returns, and the last release happened
        // before this call. Therefore, this reference is the only reference to the value, and the writes of the last
        // holder are visible.
        f(unsafe { &mut *self.value.get() })
    }

    /// Returns whether the lock is [marked](LockGuard::mark). Each lock operation removes the mark. The result is only
    /// a hint, because another thread may lock the lock at any time.
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

impl<T: fmt::Debug, B> fmt::Debug for Lock<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("value", &*self.lock()).finish()
    }
}

/// Guard that holds a [`Lock`] until the guard is dropped.
#[must_use]
pub(crate) struct LockGuard<'a, T, B = ()> {
    lock: &'a Lock<T, B>,
}

// SAFETY: a shared guard gives out only `&T`, and `T: Sync` allows several threads to use `&T`. Without this impl, the
// guard would be `Sync` if `T` is only `Send`, because the guard contains only a `&Lock<T, B>`. A guard gives out no
// `&B`.
unsafe impl<T: Sync, B> Sync for LockGuard<'_, T, B> {}

impl<T, B> Deref for LockGuard<'_, T, B> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer comes from a live `UnsafeCell`. As long as this guard exists, no other thread holds the
        // lock, and the shared borrow of the guard excludes a mutable reference.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, B> DerefMut for LockGuard<'_, T, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the pointer comes from a live `UnsafeCell`. As long as this guard exists, no other thread holds the
        // lock, and the mutable borrow of the guard excludes other references.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, B> LockGuard<'_, T, B> {
    /// Marks the lock and releases it. The lock stays marked until a thread locks it again.
    #[inline]
    pub(crate) fn mark(self) {
        let lock = self.lock;
        std::mem::forget(self);
        lock.state.store(MARKED, Ordering::Release);
    }
}

impl<T, B> Drop for LockGuard<'_, T, B> {
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
    fn only_one_thread_at_a_time_holds_the_lock() {
        let lock = Lock::new((0_u64, 0_u64));
        let times = if cfg!(miri) { 50 } else { 20_000 };
        let add = || {
            for _ in 0..times {
                let mut guard = lock.lock();
                guard.0 += 1;
                assert_eq!(guard.0, guard.1 + 1, "another thread holds the lock");
                guard.1 += 1;
            }
        };
        thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(add))));
        assert_eq!(*lock.lock(), (4 * times, 4 * times));
    }

    #[test]
    fn a_mark_stays_until_a_thread_locks_the_lock() {
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
    fn a_panic_releases_the_lock() {
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
    fn a_small_field_beside_the_value_needs_no_memory() {
        assert_eq!(size_of::<Lock<u64, u16>>(), size_of::<Lock<u64>>());
        let lock = Lock::with_beside(7_u16, 1_u64);
        let guard = lock.lock();
        assert_eq!((*lock.beside(), *guard), (7, 1), "the lock does not protect the field");
    }

    #[test]
    fn a_guard_is_sync_only_if_its_value_is_sync() {
        fn sync<T: Sync>() {}
        sync::<Lock<std::cell::Cell<u8>>>();
        sync::<LockGuard<'_, u8>>();
    }
}
