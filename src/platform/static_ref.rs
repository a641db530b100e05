//! `AtomicStaticRef`: a reference with the lifetime `'static` that several threads can read and replace.
//!
//! This file has unsafe code, because the standard library has no atomic for references.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

use crate::platform::sync::tally::{AtomicPtr, Ordering};

/// An optional `&'static T`.
pub(crate) struct AtomicStaticRef<T: 'static> {
    at: AtomicPtr<T>,
    /// Makes this type `Send` and `Sync` only if `T` is `Sync`.
    _reference: PhantomData<&'static T>,
}

impl<T> AtomicStaticRef<T> {
    pub(crate) const fn none() -> Self {
        Self { at: AtomicPtr::new(null_mut()), _reference: PhantomData }
    }

    /// Stores the reference. All earlier writes of this thread happen before a [`load`](Self::load) that returns this
    /// reference.
    #[inline]
    pub(crate) fn store(&self, to: Option<&'static T>) {
        self.at.store(to.map_or(null_mut(), |to| std::ptr::from_ref(to).cast_mut()), Ordering::Release);
    }

    /// Returns whether the stored reference and `other` point to the same place. The values at the two places are not
    /// compared.
    #[inline]
    pub(crate) fn is(&self, other: Option<&'static T>) -> bool {
        self.at.load(Ordering::Relaxed).cast_const() == other.map_or(null(), std::ptr::from_ref)
    }

    #[inline]
    pub(crate) fn load(&self) -> Option<&'static T> {
        let at = self.at.load(Ordering::Acquire);
        // SAFETY: `as_ref` needs a null pointer, or a pointer that is valid for shared reads as long as the result
        // lives.
        // - Valid: `at` is null, or `store` made it from a `&'static T`. No code writes the pointer in another way.
        // - Edge: the value of the reference -> release store in `store` -> acquire load above -> reads of the result.
        // - Threads: if another thread called `store`, then `T: Sync`, because `_reference` makes this type `Send` and
        //   `Sync` only if `T` is `Sync`.
        unsafe { at.as_ref() }
    }
}

impl<T> fmt::Debug for AtomicStaticRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtomicStaticRef")
    }
}
