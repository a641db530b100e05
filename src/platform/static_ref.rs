//! `AtomicStaticRef`: a reference with the lifetime `'static` that several threads can read and replace.
//!
//! This file has unsafe code, because the standard library has no atomic for references.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::{null, null_mut};

use crate::platform::sync::tally::{AtomicPtr, Ordering};

/// Source line of the code that created a future or yielded a command. The value is `None` if the line is not known.
pub(crate) type Line = Option<&'static Location<'static>>;

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
        // - Valid: `at` is null, or `store` made this pointer from a `&'static T`. No code writes the pointer in
        //   another way.
        // - Edge: the value of the reference -> release store in `store` -> acquire load above -> reads of the result.
        // - Threads: this type is `Send` and `Sync` only if `T` is `Sync`, because of `_reference`. So if another
        //   thread called `store`, then `T: Sync`.
        unsafe { at.as_ref() }
    }
}

impl<T> fmt::Debug for AtomicStaticRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtomicStaticRef")
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;
    use crate::platform::sync::thread;

    /// A value that one thread writes before this thread stores the reference to the value.
    struct WrittenOnce(UnsafeCell<u32>);

    // SAFETY: the test writes the value once. After this write, the test stores the only reference that other threads
    // get. The release store and the acquire load order the write before each read.
    unsafe impl Sync for WrittenOnce {}

    /// A `load` that returns a reference also sees the value that the storing thread wrote before the `store`. Miri
    /// reports a data race if `store` or `load` has a weaker ordering.
    #[test]
    fn a_loaded_reference_shows_the_value_that_was_written_before_the_store() {
        static VALUE: WrittenOnce = WrittenOnce(UnsafeCell::new(0));
        static REFERENCE: AtomicStaticRef<WrittenOnce> = AtomicStaticRef::none();
        let writer = thread::spawn(|| {
            // SAFETY: this thread stores the first reference to the value below. Until then, no other thread has a
            // reference.
            unsafe { *VALUE.0.get() = 7 };
            REFERENCE.store(Some(&VALUE));
        });
        let read = loop {
            if let Some(value) = REFERENCE.load() {
                // SAFETY: the write happens before the store of the reference, and no later write exists.
                break unsafe { *value.0.get() };
            }
            thread::yield_now();
        };
        writer.join().unwrap();
        assert_eq!(read, 7);
    }

    #[test]
    fn references_are_compared_by_address() {
        static ONE: u32 = 1;
        static OTHER: u32 = 1;
        let reference = AtomicStaticRef::none();
        assert!(reference.is(None) && !reference.is(Some(&ONE)) && reference.load().is_none());
        reference.store(Some(&ONE));
        assert!(reference.is(Some(&ONE)) && !reference.is(Some(&OTHER)) && !reference.is(None));
        reference.store(None);
        assert!(reference.is(None));
    }
}
