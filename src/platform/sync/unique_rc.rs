//! `UniqueRc`: an `Rc` without clones. A thread may pass a `UniqueRc` to another thread.
//!
//! This file has unsafe code, because an `Rc` is not `Send`. Safe code could move the value out of the `Rc` and into a
//! new `Rc`. Each move would copy the value and allocate memory.

#![allow(unsafe_code)]

use std::ops::Deref;
use std::rc::Rc;

/// The only reference to a value. [`share`](Self::share) converts a `UniqueRc` to an `Rc`, and [`claim`](Self::claim)
/// converts the last clone of an `Rc` to a `UniqueRc`. Neither function moves the value in memory.
#[derive(Debug)]
pub(crate) struct UniqueRc<T>(Rc<T>);

// SAFETY: an `Rc` is not `Send` for two reasons. Two threads with clones of one `Rc` would change the counts at the
// same time. The two threads would also use the value at the same time, and the value is perhaps not `Sync`. There is
// no other reference to this value: `new` creates the `Rc`, `claim` checks both counts, and `share` consumes the
// `UniqueRc`. So another thread receives the counts and the value together, like a `Box<T>`.
unsafe impl<T: Send> Send for UniqueRc<T> {}

impl<T> UniqueRc<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Rc::new(value))
    }

    /// # Errors
    /// Returns the `Rc` if it has another clone or a `Weak`.
    pub(crate) fn claim(rc: Rc<T>) -> Result<Self, Rc<T>> {
        if Rc::strong_count(&rc) == 1 && Rc::weak_count(&rc) == 0 { Ok(Self(rc)) } else { Err(rc) }
    }

    pub(crate) fn share(self) -> Rc<T> {
        self.0
    }

    pub(crate) fn into_inner(self) -> T {
        Rc::into_inner(self.0).expect("there is no other reference")
    }
}

impl<T> Deref for UniqueRc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::platform::sync::thread;

    #[test]
    fn another_thread_may_own_and_share_a_unique_rc() {
        let unique = UniqueRc::new(Cell::new(1));
        let address: *const Cell<i32> = &*unique;
        let address = address as usize;
        let unique = thread::spawn(move || {
            let first = unique.share();
            let second = Rc::clone(&first);
            second.set(2);
            drop(first);
            UniqueRc::claim(second).unwrap()
        });
        let unique = unique.join().unwrap();
        let now: *const Cell<i32> = &*unique;
        assert_eq!(now as usize, address);
        assert_eq!(unique.into_inner().get(), 2);
    }

    #[test]
    fn a_clone_and_a_weak_reference_prevent_a_claim() {
        let first = Rc::new(1);
        let second = Rc::clone(&first);
        let first = UniqueRc::claim(first).unwrap_err();
        drop(second);
        let weak = Rc::downgrade(&first);
        let first = UniqueRc::claim(first).unwrap_err();
        assert_eq!(weak.upgrade(), Some(1.into()));
        drop(weak);
        assert_eq!(UniqueRc::claim(first).unwrap().into_inner(), 1);
    }
}
