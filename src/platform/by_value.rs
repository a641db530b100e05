//! `ByValue`: a value whose destructor receives the value, and not a reference to the value.
//!
//! This file has unsafe code, because `Drop::drop` has only a `&mut self`. Safe code could move the value out of an
//! `Option`. But an `Option` occupies a niche (an unused bit pattern) of its value. If an enum contained an `Option`,
//! the enum could not store its own variants in the niche that the `Option` occupies. Therefore some enums would be
//! larger.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;

/// Type whose values can be dropped by value.
pub(crate) trait DropByValue: Sized {
    /// Drops the value, or stores it elsewhere.
    fn drop_by_value(self);
}

/// A value that is dropped with [`DropByValue::drop_by_value`].
#[derive(Debug)]
pub(crate) struct ByValue<T: DropByValue>(ManuallyDrop<T>);

impl<T: DropByValue> ByValue<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: DropByValue> Deref for ByValue<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DropByValue> Drop for ByValue<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `take` duplicates the value, so the value in `self.0` must not be used again. The destructor runs at
        // most once, and nothing uses `self.0` after the destructor.
        T::drop_by_value(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A value that stores itself when it is dropped.
    struct Stored(Rc<RefCell<Vec<Self>>>);

    impl DropByValue for Stored {
        fn drop_by_value(self) {
            let store = Rc::clone(&self.0);
            store.borrow_mut().push(self);
        }
    }

    #[test]
    fn the_destructor_receives_the_value_once() {
        let store = Rc::default();
        let [one, other] = [(); 2].map(|()| ByValue::new(Stored(Rc::clone(&store))));
        assert_eq!(Rc::strong_count(&(*one).0), 3);
        drop(one);
        assert_eq!((store.borrow().len(), Rc::strong_count(&store)), (1, 3));
        drop(other);
        let stored = store.take();
        assert_eq!((stored.len(), Rc::strong_count(&store)), (2, 3));
        drop(stored);
        assert_eq!(Rc::strong_count(&store), 1);
    }
}
