//! Synchronization primitives and threads. This file is the only file that names `std::sync`, `std::thread` or a model
//! checker.
//!
//! Under `--cfg procession_loom` the same names come from loom, so that loom explores the modules of this crate. Under
//! `--cfg procession_shuttle` the same names come from shuttle, so that shuttle explores schedules of whole runtimes.
//! `Arc` is always the standard type, for two reasons. The reference counting of `Arc` is not a protocol of this crate,
//! and loom's `Arc` cannot contain a trait object.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) mod checked;
#[cfg(procession_shuttle)]
pub(crate) mod event;
#[cfg(not(any(procession_loom, procession_shuttle)))]
pub(crate) mod lock;
#[cfg(procession_loom)]
mod try_mutex;
mod undropped;
mod unique_rc;

use std::cell::Cell;
use std::mem::ManuallyDrop;
/// Atomics for counters and for numbers that identify objects. No protocol depends on these atomics. These atomics
/// are the standard atomics, even under the model checkers. Therefore, a model needs fewer executions, and a `static`
/// may contain these atomics.
pub(crate) use std::sync::atomic as tally;
/// Atomics of the reference counts. These atomics are the standard atomics, except in the loom model of the reference
/// counts.
#[cfg(not(procession_loom))]
pub(crate) use std::sync::atomic as counts;
pub(crate) use std::sync::{Arc, OnceLock, Weak};

#[cfg(not(procession_shuttle))]
pub(crate) use event_listener::Event;
#[cfg(not(procession_shuttle))]
pub(crate) use event_listener::EventListener;
#[cfg(procession_loom)]
pub(crate) use loom as checker;
#[cfg(procession_shuttle)]
pub(crate) use shuttle as checker;

/// Lock for the model checkers. This lock uses the checker's own mutex, so that the checker observes the lock.
#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) use crate::platform::sync::checked::Lock;
#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) use crate::platform::sync::checked::LockGuard;
#[cfg(procession_loom)]
pub(crate) use crate::platform::sync::checked::counts;
#[cfg(procession_shuttle)]
pub(crate) use crate::platform::sync::event::Event;
#[cfg(procession_shuttle)]
pub(crate) use crate::platform::sync::event::EventListener;
#[cfg(not(any(procession_loom, procession_shuttle)))]
pub(crate) use crate::platform::sync::lock::Lock;
#[cfg(not(any(procession_loom, procession_shuttle)))]
pub(crate) use crate::platform::sync::lock::LockGuard;
pub(crate) use crate::platform::sync::undropped::{NeverDropped, with_undropped};
pub(crate) use crate::platform::sync::unique_rc::UniqueRc;

#[cfg(not(any(procession_loom, procession_shuttle)))]
mod imp {
    pub(crate) use std::sync::{Condvar, Mutex as RawMutex, MutexGuard, atomic};
    pub(crate) use std::{hint, thread, thread_local};
}

#[cfg(any(procession_loom, procession_shuttle))]
mod imp {
    pub(crate) use checker::hint;
    pub(crate) use checker::sync::{Condvar, Mutex as RawMutex, MutexGuard, atomic};

    use super::checker;

    /// Declares thread-locals, as `std::thread_local!` does. This macro is needed because loom's macro does not accept
    /// `const`.
    macro_rules! per_model_thread {
        ($($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = const $init:block;)*) => {
            $($crate::platform::sync::checker::thread_local! { $(#[$attr])* $vis static $name: $type = $init })*
        };
    }
    pub(crate) use per_model_thread as thread_local;

    pub(crate) mod thread {
        pub(crate) use std::thread::available_parallelism;

        #[cfg(procession_loom)]
        pub(crate) use super::checker::thread::JoinHandle;
        #[cfg(procession_loom)]
        pub(crate) use super::checker::thread::spawn;
        pub(crate) use super::checker::thread::{Builder, LocalKey, panicking, yield_now};
        use super::{Condvar, RawMutex, thread_local};
        use crate::platform::sync::Arc;

        thread_local! {
            static CURRENT: Thread = const { Thread(Arc::new((RawMutex::new(false), Condvar::new()))) };
        }

        /// Handle that unparks a thread. The handle of loom 0.7.2 loses the token of a thread that blocks on a lock.
        #[derive(Debug, Clone)]
        pub(crate) struct Thread(Arc<(RawMutex<bool>, Condvar)>);

        impl Thread {
            pub(crate) fn unpark(&self) {
                *self.0.0.lock().expect("never poisoned") = true;
                self.0.1.notify_one();
            }

            pub(crate) fn id(&self) -> ThreadId {
                Arc::as_ptr(&self.0) as usize
            }
        }

        /// Number that identifies a thread among the running threads.
        pub(crate) type ThreadId = usize;

        pub(crate) fn current() -> Thread {
            CURRENT.with(Thread::clone)
        }

        pub(crate) fn park() {
            let Thread(parking) = current();
            let mut token = parking.0.lock().expect("never poisoned");
            while !*token {
                token = parking.1.wait(token).expect("never poisoned");
            }
            *token = false;
        }

        /// Parks the thread. In a model, time does not pass. If `time` is zero, returns immediately. If `time` is not
        /// zero, parks without a time limit.
        pub(crate) fn park_timeout(time: std::time::Duration) {
            if !time.is_zero() {
                park();
            }
        }
    }
}

pub(crate) use imp::{Condvar, MutexGuard, atomic, hint, thread, thread_local};

/// Returns true if this run plants the bug with this name. A planted bug is a deliberate fault. The planted bugs test
/// the models: a model must find each planted bug. The environment variable `PROCESSION_BUG` contains the name of the
/// bug to plant. Bugs can be planted only in builds for the model checkers. In all other builds the macro returns
/// `false`, and the compiler removes the dependent code.
#[cfg(any(procession_loom, procession_shuttle))]
macro_rules! planted {
    ($bug:literal) => {
        crate::platform::sync::is_planted($bug)
    };
}
#[cfg(not(any(procession_loom, procession_shuttle)))]
macro_rules! planted {
    ($bug:literal) => {
        false
    };
}
pub(crate) use planted;

/// Mutex for a thread that calls `try_lock` while another thread holds the mutex for a long time.
#[cfg(procession_loom)]
pub(crate) use crate::platform::sync::try_mutex::TryMutex;
#[cfg(all(feature = "net", not(any(procession_loom, procession_shuttle))))]
pub(crate) use Mutex as TryMutex;

#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) fn is_planted(bug: &str) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("PROCESSION_BUG").ok()).as_deref() == Some(bug)
}

/// Mutex that is not poisoned by a panic. The mutex protects plain data, and no panic interrupts a change of this data.
/// No user code runs while the mutex is held.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::RawMutex<T>);

impl<T> Mutex<T> {
    #[cfg(not(any(procession_loom, procession_shuttle)))]
    pub(crate) const fn new(value: T) -> Self {
        Self(imp::RawMutex::new(value))
    }

    #[cfg(any(procession_loom, procession_shuttle))]
    pub(crate) fn new(value: T) -> Self {
        Self(imp::RawMutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// Locks the mutex. Returns `None` if another thread holds the mutex.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value without locking. No lock is needed, because `&mut self` excludes other holders.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        match self.0.get_mut() {
            Ok(value) => value,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(crate) fn into_inner(self) -> T {
        match self.0.into_inner() {
            Ok(value) => value,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// Mutex for data on which no protocol depends. The mutex is the standard mutex, even under the model checkers, for the
/// same reason as the atomics in [`tally`].
#[derive(Debug, Default)]
pub(crate) struct TallyLock<T>(std::sync::Mutex<T>);

impl<T> TallyLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Waits on `condvar`. If `time` is given, waits at most for this duration. The wait may end spuriously.
#[cfg(all(test, not(procession_loom)))]
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    use std::sync::PoisonError;
    match time {
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(time) => condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0,
    }
}

/// Waits on `condvar` for at most `time`. The wait may end spuriously. The second value of the result is true if the
/// time `time` has passed without a notification.
pub(crate) fn wait_within<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: std::time::Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, result) = condvar.wait_timeout(guard, time).unwrap_or_else(std::sync::PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Wrapper that aligns a value, so that two wrapped values never share a cache line. Two wrapped values also never
/// share a pair of cache lines that the processor fetches together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Cell that several threads share. A protocol ensures that only one thread at a time accesses the cell, and the model
/// checker explores this protocol. Loom's cell reports accesses that overlap.
#[cfg(procession_loom)]
pub(crate) use loom::cell::UnsafeCell;

/// Cell that several threads share. A protocol ensures that only one thread at a time accesses the cell.
#[cfg(not(procession_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(procession_loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to the value.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Thread-local cell without a destructor. An access to the cell does not have to check whether the thread-local still
/// exists. The cell must be empty when the thread exits. If the cell is not empty, its value leaks.
pub(crate) struct ThreadCell<T>(Cell<ManuallyDrop<Option<T>>>);

impl<T> ThreadCell<T> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ManuallyDrop::new(None)))
    }

    /// Stores a value. The cell must be empty before the call. If the cell is not empty, the old value leaks.
    #[inline]
    pub(crate) fn put(&self, value: T) {
        self.0.set(ManuallyDrop::new(Some(value)));
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        ManuallyDrop::into_inner(self.0.replace(ManuallyDrop::new(None)))
    }
}

// Loom runs all threads of a model on one system thread. Therefore, all threads of a model share this flag.
#[cfg(procession_loom)]
std::thread_local! {
    /// Whether loom explores the reference counts that are created now: see `counts`.
    static EXPLORED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(not(procession_loom))]
thread_local! {
    static MARK: u8 = const { 0 };
}

// loom runs all threads of a model on one thread of the system, so a standard thread-local would have one value for all
// threads of the model.
#[cfg(procession_loom)]
loom::thread_local! {
    static MARK: Box<u8> = Box::new(0);
}

/// Returns a number that no other running thread has. The number is never 0.
pub(crate) fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

/// Waits on `condvar` while `condition` is true, for at most `time`. Returns false if the time has passed and
/// `condition` is still true.
#[cfg(not(any(procession_loom, procession_shuttle)))]
pub(crate) fn wait_while<T>(
    condvar: &Condvar,
    guard: MutexGuard<'_, T>,
    time: std::time::Duration,
    condition: impl FnMut(&mut T) -> bool,
) -> bool {
    use std::sync::PoisonError;
    let waited = condvar.wait_timeout_while(guard, time, condition);
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

/// Under the model checkers, waits on `condvar` while `condition` is true. In a model, time does not pass, so the
/// wait ends only when `condition` is false.
#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) fn wait_while<T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'_, T>,
    time: std::time::Duration,
    mut condition: impl FnMut(&mut T) -> bool,
) -> bool {
    while condition(&mut guard) {
        guard = wait_within(condvar, guard, time).0;
    }
    true
}
