//! A heap cell with two owners: an [`OwnerHalf`] and a [`Half`]. Both owners share the value of the cell. In addition,
//! the cell has a part that only the `OwnerHalf` may access. The owner that is dropped last frees the cell. This file
//! has unsafe code, because an `Arc` does not suffice. An `Arc` has no part that belongs to only one of its owners. In
//! addition, the last owner of an `Arc` needs two atomic read-modify-write operations to free the memory, but the last
//! owner of this cell needs none.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::{NonNull, drop_in_place};

use crate::platform::alloc as memory;
use crate::platform::sync::atomic::{AtomicU32, Ordering};

/// The counter and the beginning of the value are in the first cache line of the memory block.
#[repr(C)]
struct CellContents<T, O> {
    halves: AtomicU32,
    value: T,
    own: UnsafeCell<O>,
}

/// An owner of the cell. A `Half` has access to the value.
pub(crate) struct Half<T, O>(NonNull<CellContents<T, O>>);

/// An owner of the cell that also has access to the part `own`. A cell has at most one `OwnerHalf`. An `OwnerHalf`
/// never gives out its inner `Half`, because the part `own` must have only one owner.
pub(crate) struct OwnerHalf<T, O>(Half<T, O>);

// SAFETY: the thread that receives a half shares the value with the owner of the other half, and `T: Sync` allows this.
// The thread may access `own`, and `O: Send` allows this. The thread that drops the last half also drops the value and
// `own`. `T: Send` and `O: Send` allow these drops.
unsafe impl<T: Send + Sync, O: Send> Send for Half<T, O> {}
// SAFETY: a shared half gives access to `&T`, which `T: Sync` allows, and to the counter, which is atomic. Access to
// `own` needs a `&mut OwnerHalf`.
unsafe impl<T: Send + Sync, O: Send> Sync for Half<T, O> {}

impl<T, O> Half<T, O> {
    #[inline(always)]
    fn new(halves: u32, value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> Self {
        // SAFETY: `take` requires a layout with a size above zero, and `CellContents` contains a counter.
        let at = unsafe { memory::take(Layout::new::<CellContents<T, O>>()) }.cast::<CellContents<T, O>>();
        // `own` is created after the value. If `value` were called after `own` and could unwind, the compiler would
        // first build the part `own` on the stack. Then the compiler would copy this part to its final place. The loads
        // of this copy would be wider than the stores that wrote this part. The processor cannot forward stored bytes
        // to a wider load, so the copy would be slow.
        let shared = CellContents { value: value(), own: UnsafeCell::new(own()), halves: AtomicU32::new(halves) };
        // SAFETY: `at` points to fresh memory with the layout of `CellContents`, and nothing else refers to this
        // memory. If `value` or `own` panics, the memory leaks.
        unsafe { at.write(shared) };
        Self(at)
    }

    #[inline]
    fn shared(&self) -> &CellContents<T, O> {
        // SAFETY: `new` wrote the contents of the cell. The counter counts this half, so the memory is not freed while
        // this half exists. A mutable reference to the value exists only while this half is mutably borrowed and no
        // other half exists (`value_if_alone`).
        unsafe { self.0.as_ref() }
    }

    /// Creates a cell whose only owner is the returned half.
    pub(crate) fn alone(value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> Self {
        Self::new(1, value, own)
    }

    /// Returns the value if the other half was dropped or never existed.
    #[inline]
    pub(crate) fn value_if_alone(&mut self) -> Option<&mut T> {
        // The acquire load pairs with the release decrement in the drop of the other half. Therefore, the accesses of
        // the other half happen before the accesses through the result. No new half can be created, so a half that is
        // alone stays alone.
        if self.shared().halves.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: no other half exists, and this half is mutably borrowed as long as the result is used. Therefore, no
        // other reference to the value exists.
        Some(unsafe { &mut (*self.0.as_ptr()).value })
    }
}

impl<T, O> Drop for Half<T, O> {
    #[inline]
    fn drop(&mut self) {
        /// Guard that frees the memory. The guard also frees the memory if the drop of a field panics.
        struct Memory<S>(NonNull<S>);
        impl<S> Drop for Memory<S> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: `new` took this memory for the layout of `S`. Only the half that is dropped last creates this
                // guard, so the memory has no other owner and is freed once. The fields were dropped before this drop.
                unsafe { memory::give_back(self.0.cast(), Layout::new::<S>()) };
            }
        }
        let halves = &self.shared().halves;
        // Each half decrements the counter in its drop. The first decrement has release ordering. This decrement pairs
        // with the acquire load or the acquire decrement in the drop of the last half. Therefore, all accesses of the
        // first half happen before the last half frees the cell. If this half is alone, no other thread accesses the
        // counter, so no decrement is needed.
        if halves.load(Ordering::Acquire) != 1 && halves.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let memory = Memory(self.0);
        // SAFETY: `new` wrote all fields. The other half was already dropped, so no reference to the fields exists.
        // Therefore the fields are dropped only here.
        unsafe { drop_in_place(memory.0.as_ptr()) };
    }
}

impl<T, O> Deref for Half<T, O> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T, O> OwnerHalf<T, O> {
    /// Creates a cell with two owners.
    #[inline(always)]
    pub(crate) fn with_peer(value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> (Self, Half<T, O>) {
        let half = Half::new(2, value, own);
        let peer = Half(half.0);
        (Self(half), peer)
    }

    /// Returns the shared value, and the part that belongs to the `OwnerHalf`.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&T, &mut O) {
        let shared = self.0.shared();
        // SAFETY: only the `OwnerHalf` accesses `own`. There is one `OwnerHalf`, and the `OwnerHalf` stays mutably
        // borrowed as long as the result is used. Therefore, no other reference to `own` exists. `shared.value` is
        // another field.
        (&shared.value, unsafe { &mut *shared.own.get() })
    }

    /// Returns the same result as [`Half::value_if_alone`].
    #[inline]
    pub(crate) fn value_if_alone(&mut self) -> Option<&mut T> {
        self.0.value_if_alone()
    }
}

impl<T, O> Deref for OwnerHalf<T, O> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::platform::sync::{Arc, Lock, thread};

    type Token = Arc<()>;

    /// A value whose drop panics. After the panic, the field of the value is still dropped.
    struct Bomb(#[expect(dead_code, reason = "it is only dropped")] Token);

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }

    #[test]
    fn the_last_half_drops_both_fields_once() {
        let token = Token::default();
        for owner_first in [false, true] {
            let (mut owner, mut peer) = OwnerHalf::with_peer(|| Arc::clone(&token), || Arc::clone(&token));
            assert!(owner.value_if_alone().is_none() && peer.value_if_alone().is_none());
            assert!(Arc::ptr_eq(owner.parts().1, &peer));
            if owner_first {
                drop(owner);
                assert!(peer.value_if_alone().is_some());
                assert_eq!(Arc::strong_count(&token), 3);
                drop(peer);
            } else {
                drop(peer);
                assert!(owner.value_if_alone().is_some());
                assert_eq!(Arc::strong_count(&token), 3);
                drop(owner);
            }
            assert_eq!(Arc::strong_count(&token), 1);
        }
    }

    #[test]
    fn a_panic_in_a_drop_leaks_nothing() {
        let token = Token::default();
        let alone = Half::alone(|| Bomb(Arc::clone(&token)), || Arc::clone(&token));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(alone))).is_err());
        assert_eq!(Arc::strong_count(&token), 1);
    }

    /// Miri and the thread sanitizer report an access without a happens-before edge.
    #[test]
    fn the_last_half_sees_the_writes_of_the_other_half() {
        for _ in 0..if cfg!(miri) { 20 } else { 500 } {
            let (mut owner, peer) = OwnerHalf::with_peer(|| Lock::new(0_u32), || 0_u32);
            let other = thread::spawn(move || {
                *peer.lock() += 1;
                drop(peer);
            });
            *owner.parts().1 += 1;
            while owner.value_if_alone().is_none() {
                thread::yield_now();
            }
            assert_eq!(owner.value_if_alone().map(|value| *value.get_mut()), Some(1));
            drop(owner);
            other.join().expect("the other thread does not panic");
        }
    }
}
