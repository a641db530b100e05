//! What threads share: the one file that names `std::sync`, `std::thread` or a model checker.
//!
//! Under `--cfg procession_loom` the same names come from loom, so that the crate's own modules are what is explored;
//! under `--cfg procession_shuttle` from shuttle, for whole schedules of whole runtimes. `Arc` stays the standard one even there: counting references is not a protocol of ours, and loom's can't hold a
//! trait object.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) mod checked;
#[cfg(procession_shuttle)]
pub(crate) mod event;
#[cfg(not(any(procession_loom, procession_shuttle)))]
pub(crate) mod lock;

use std::cell::Cell;
use std::mem::ManuallyDrop;
/// Atomics for what is only counted or numbered. No protocol of ours rests on those: they stay the standard ones for the
/// model checker too, which spares it executions, and may stand in a `static`.
pub(crate) use std::sync::atomic as tally;
/// The atomics of the reference counts: the standard ones, except in the model that explores the counts.
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

/// The model checker knows its own lock, and sees that.
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

    /// Loom's macro does not know `const`.
    macro_rules! per_model_thread {
        ($($(#[$attr:meta])* static $name:ident: $type:ty = const $init:block;)*) => {
            $($crate::platform::sync::checker::thread_local! { $(#[$attr])* static $name: $type = $init })*
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

        /// A thread to be unparked. Not loom's, which loses the token of one that blocks on a lock (0.7.2).
        #[derive(Debug, Clone)]
        pub(crate) struct Thread(Arc<(RawMutex<bool>, Condvar)>);

        impl Thread {
            pub(crate) fn unpark(&self) {
                *self.0.0.lock().expect("never poisoned") = true;
                self.0.1.notify_one();
            }
        }

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

        /// Time does not pass in a model: what is due is due, and nothing else ever is.
        pub(crate) fn park_timeout(time: std::time::Duration) {
            if !time.is_zero() {
                park();
            }
        }
    }
}

pub(crate) use imp::{Condvar, MutexGuard, atomic, hint, thread, thread_local};

/// Whether a model is run to see that it finds this bug, which `PROCESSION_BUG` names. Only the model checker's build
/// can have one: everywhere else this is `false`, and what depends on it does not exist.
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

#[cfg(any(procession_loom, procession_shuttle))]
pub(crate) fn is_planted(bug: &str) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("PROCESSION_BUG").ok()).as_deref() == Some(bug)
}

/// A lock that a panic does not poison: what it guards is plain data, changed in whole steps, and no user code ever
/// runs while it is held.
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

    /// What is inside, for its only holder; costs nothing.
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

/// The same for what no protocol of ours rests on, as [`tally`].
#[derive(Debug)]
pub(crate) struct TallyLock<T>(std::sync::Mutex<T>);

impl<T> TallyLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Waits on `condvar`, at most `time` long if one is given.
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

/// Waits on `condvar` for at most `time`, and says whether all of it passed with no notification.
pub(crate) fn wait_within<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    time: std::time::Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, result) = condvar.wait_timeout(guard, time).unwrap_or_else(std::sync::PoisonError::into_inner);
    (guard, result.timed_out())
}

/// Keeps what two threads write apart: no two of these share a cache line, nor a pair that is fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A cell that several threads know, one of which is at it at a time: by a protocol that the model checker knows, which sees
/// whether that is so.
#[cfg(procession_loom)]
pub(crate) use loom::cell::UnsafeCell;

/// As above.
#[cfg(not(procession_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(procession_loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Where the value is.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A cell among a thread's locals that is empty whenever the thread may end: it is not dropped with the thread, so no
/// access asks whether it was.
pub(crate) struct ThreadCell<T>(Cell<ManuallyDrop<Option<T>>>);

impl<T> ThreadCell<T> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ManuallyDrop::new(None)))
    }

    /// Puts something in; the cell must be empty.
    #[inline]
    pub(crate) fn put(&self, value: T) {
        self.0.set(ManuallyDrop::new(Some(value)));
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        ManuallyDrop::into_inner(self.0.replace(ManuallyDrop::new(None)))
    }
}

/// A value of a thread that is not dropped when the thread ends, so that the destructors of other thread-locals can use it.
/// It must own nothing when the thread ends.
pub(crate) struct NeverDropped<T>(ManuallyDrop<T>);

impl<T> NeverDropped<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> std::ops::Deref for NeverDropped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

// Loom runs all threads of one model on one thread of the system, so this is the model's own.
#[cfg(procession_loom)]
std::thread_local! {
    /// Whether the reference counts that are made now are explored: see `counts`.
    static EXPLORED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other living thread has. It is not 0.
pub(crate) fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

/// Waits on `condvar` while `condition` holds, at most `time` long in all. False if the time was over first.
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

/// The same where time does not pass.
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
