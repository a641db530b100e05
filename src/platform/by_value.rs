//! `ByValue`: a value whose destructor receives the value, and not a reference to the value.
//!
//! This file has unsafe code, because `Drop::drop` has only a `&mut self`. Safe code could move the value out of an
//! `Option`. But the `Option` uses the niche of the value, so some enums that contain the `Option` are larger.

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
