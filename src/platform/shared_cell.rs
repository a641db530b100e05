//! A heap cell that two halves share. The [`OwnerHalf`] has a private part of the cell. The [`PeerHalf`] can store an
//! item for the owner half before it leaves the cell. The last half frees the cell.
//!
//! This file has unsafe code. An `Arc` has no private part for one owner, and passes an item to another owner only
//! under a lock. The private part makes a call a seventh cheaper, and the item without a lock makes a call a fifteenth
//! cheaper (bench `call`).
//!
//! # Access to the item
//!
//! The peer half accesses the item until it sets `is_there`. After that point, only the owner half accesses the item.
//! If the owner half is dropped before the peer half has released its count, the peer half is the only remaining owner
//! of the cell, and takes the item back. If the owner half is dropped later and has not taken the item, the owner half
//! is the only remaining owner, and drops the item with the cell.
//!
//! A peer half that leaves the cell releases its count by a `compare_exchange` from [`BOTH`] to [`ONE`]. The exchange
//! succeeds only if the owner half exists and has not called [`hold`](OwnerHalf::hold). `hold` adds a third count. The
//! `compare_exchange` and `hold` are read-modify-writes of one word, so one of the two operations comes first. If the
//! `compare_exchange` comes first, the owner half finds the item, because the item was stored before the exchange. If
//! `hold` comes first, the `compare_exchange` fails, and the peer half notifies the owner half a second time.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{NonNull, drop_in_place};

use crate::platform::alloc as memory;
use crate::platform::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::platform::sync::{UnsafeCell, planted};

/// Value of the count while one half exists.
const ONE: u32 = 1;
/// Value of the count while both halves exist. [`OwnerHalf::hold`] adds one.
const BOTH: u32 = 2;

struct Shared<T, O, G> {
    counts: AtomicU32,
    /// Whether the item was stored and now belongs to the owner half.
    is_there: AtomicBool,
    /// The private part of the owner half, and whether the owner half has called `hold`. After `hold`, the owner half
    /// has a second count.
    own: cell::UnsafeCell<(bool, O)>,
    item: UnsafeCell<Option<G>>,
    value: T,
}

/// The half of the cell that has a private part and receives the item.
pub(crate) struct OwnerHalf<T, O, G>(NonNull<Shared<T, O, G>>);

/// The half of the cell that sends the item. A peer half can exist without an owner half.
pub(crate) struct PeerHalf<T, O, G>(NonNull<Shared<T, O, G>>);

// SAFETY: the thread that receives an owner half shares the value with the peer half (`T: Sync`), accesses `own` (`O:
// Send`), and takes the item (`G: Send`). If the owner half is the last half, it also drops the value (`T: Send`).
unsafe impl<T: Send + Sync, O: Send, G: Send> Send for OwnerHalf<T, O, G> {}
// SAFETY: a shared owner half gives access to `&T` (`T: Sync`) and to the atomics. Access to its private part and to
// the item requires `&mut`.
unsafe impl<T: Send + Sync, O: Send, G: Send> Sync for OwnerHalf<T, O, G> {}
// SAFETY: the thread that receives a peer half shares the value with the owner half (`T: Sync`), and sends the item
// (`G: Send`). If the peer half is the last half, it also drops the value and `own` (`T: Send`, `O: Send`).
unsafe impl<T: Send + Sync, O: Send, G: Send> Send for PeerHalf<T, O, G> {}
// SAFETY: a shared peer half gives access to `&T` (`T: Sync`) and to the atomics. The methods that access the item
// consume the peer half.
unsafe impl<T: Send + Sync, O: Send, G: Send> Sync for PeerHalf<T, O, G> {}

/// Releases this number of counts. Returns true if these counts were the last counts. If the result is true, all
/// accesses of the other half happened before the release. The function receives only the counter, because the other
/// half may free the cell before the function returns.
#[inline]
fn release(all: &AtomicU32, counts: u32) -> bool {
    // Acquire pairs with the release of the other half, either in this function or in the `compare_exchange` in
    // `leave`. Therefore, the accesses of the other half happen before the cell is freed. The last half needs no
    // read-modify-write.
    all.load(Ordering::Acquire) == counts || all.fetch_sub(counts, Ordering::AcqRel) == counts
}

impl<T, O, G> Shared<T, O, G> {
    /// Allocates a cell and writes each field in place. If the fields were built elsewhere and copied with wider loads,
    /// the loads would miss store forwarding.
    #[inline(always)]
    fn make(counts: u32, value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> NonNull<Self> {
        // SAFETY: `take` requires a layout with a size above zero, and `Self` contains a counter.
        let at = unsafe { memory::take(Layout::new::<Self>()) }.cast::<Self>();
        // If `own` or `value` panics below, the memory leaks.
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `counts` is in bounds.
        let counts_at = unsafe { &raw mut (*at.as_ptr()).counts };
        // SAFETY: the field `counts` is aligned, and nothing else refers to the fresh memory.
        unsafe { counts_at.write(AtomicU32::new(counts)) };
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `is_there` is in bounds.
        let is_there_at = unsafe { &raw mut (*at.as_ptr()).is_there };
        // SAFETY: the field `is_there` is aligned, and nothing else refers to the fresh memory.
        unsafe { is_there_at.write(AtomicBool::new(false)) };
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `own` is in bounds.
        let own_at = unsafe { &raw mut (*at.as_ptr()).own };
        // SAFETY: the field `own` is aligned, and nothing else refers to the fresh memory.
        unsafe { own_at.write(cell::UnsafeCell::new((false, own()))) };
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `item` is in bounds.
        let item_at = unsafe { &raw mut (*at.as_ptr()).item };
        // SAFETY: the field `item` is aligned, and nothing else refers to the fresh memory.
        unsafe { item_at.write(UnsafeCell::new(None)) };
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `value` is in bounds.
        let value_at = unsafe { &raw mut (*at.as_ptr()).value };
        // SAFETY: the field `value` is aligned, and nothing else refers to the fresh memory.
        unsafe { value_at.write(value()) };
        at
    }

    /// Drops all fields and frees the memory.
    ///
    /// # Safety
    /// `at` was created by `make`. The caller is the last half of this cell, and does not access the cell afterwards.
    #[inline]
    unsafe fn free(at: NonNull<Self>) {
        /// Guard that frees the memory when it is dropped, even if the drop of a field panics.
        struct Rest<S>(NonNull<S>);
        impl<S> Drop for Rest<S> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: `make` allocated this memory with the layout of `S`. Only the caller of `free` owns this
                // memory, and the fields were dropped before.
                unsafe { memory::give_back(self.0.cast(), Layout::new::<S>()) };
            }
        }
        let _rest = Rest(at);
        // SAFETY: `make` wrote all fields. The caller is the last half, so no reference to the fields exists. The
        // fields are dropped once.
        unsafe { drop_in_place(at.as_ptr()) };
    }
}

impl<T, O, G> OwnerHalf<T, O, G> {
    #[inline(always)]
    pub(crate) fn with_peer(value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> (Self, PeerHalf<T, O, G>) {
        let at = Shared::make(BOTH, value, own);
        (Self(at), PeerHalf(at))
    }

    #[inline]
    fn shared(&self) -> &Shared<T, O, G> {
        // SAFETY: this half owns a count, so the memory is not freed while the half exists.
        unsafe { self.0.as_ref() }
    }

    /// Returns the shared value and the private part of the owner half.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&T, &mut O) {
        let own = self.shared().own.get();
        // SAFETY: only the owner half accesses `own`. There is one owner half, and this half stays mutably borrowed as
        // long as the result is used.
        (&self.shared().value, unsafe { &mut (*own).1 })
    }

    /// Returns whether an item was stored. The result may be out of date.
    #[inline]
    pub(crate) fn may_have_item(&self) -> bool {
        self.shared().is_there.load(Ordering::Relaxed)
    }

    /// Takes the item. If no item was stored, or if the item was already taken, returns `None`.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<G> {
        // Acquire pairs with the release store of `is_there` in `leave`, so the item is completely written.
        if !self.shared().is_there.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `is_there` is set, so the peer half does not access the item while the owner half exists. There is
        // one owner half, and this half is mutably borrowed.
        self.shared().item.with_mut(|gift| unsafe { (*gift).take() })
    }

    /// Requests a second notification from a peer half that leaves the cell later. If the peer half has already left
    /// the cell, `take` finds the item after this call.
    pub(crate) fn hold(&mut self) {
        let own = self.shared().own.get();
        // SAFETY: only the owner half accesses `own`. There is one owner half, and this half is mutably borrowed.
        let holds = unsafe { &mut (*own).0 };
        if !*holds && !planted!("pair_holds_nothing") {
            *holds = true;
            // AcqRel pairs with the `compare_exchange` in `leave`. If the `compare_exchange` came first, the acquire
            // makes the item visible to the next `take`. If this operation comes first, the release makes the waker of
            // the owner half visible to the second notification.
            self.shared().counts.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl<T, O, G> Drop for OwnerHalf<T, O, G> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: only the owner half accesses `own`. There is one owner half, and `drop` borrows this half mutably.
        let holds = unsafe { (*self.shared().own.get()).0 };
        if release(&self.shared().counts, 1 + u32::from(holds)) {
            // SAFETY: `release` returned true, so the counts of this half were the last counts, and the accesses of the
            // peer half happened before. `make` created the cell, and the cell is not accessed afterwards.
            unsafe { Shared::free(self.0) };
        }
    }
}

impl<T, O, G> PeerHalf<T, O, G> {
    /// Creates a peer half without an owner half.
    pub(crate) fn alone(value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> Self {
        Self(Shared::make(ONE, value, own))
    }

    #[inline]
    fn shared(&self) -> &Shared<T, O, G> {
        // SAFETY: this half owns a count, so the memory is not freed while the half exists.
        unsafe { self.0.as_ref() }
    }

    /// Stores the item, calls `tell`, and releases this half. If the owner half has called [`hold`](OwnerHalf::hold),
    /// this function also calls `again`. If there was no `hold`, this half does not access the cell after the release.
    /// Therefore, an owner half that has taken the item is usually the last half, and frees the cell without a
    /// read-modify-write.
    ///
    /// # Errors
    /// Returns this half and the item if the owner half was dropped and did not take the item.
    #[inline(always)]
    pub(crate) fn leave(self, gift: G, tell: impl FnOnce(&T), again: impl FnOnce(&T)) -> Result<(), (Self, G)> {
        let shared = self.shared();
        // SAFETY: only the peer half accesses the item until `is_there` is set. There is one peer half, and `leave`
        // consumes this half. `write` does not drop a former item, and no former item exists.
        shared.item.with_mut(|place| unsafe { place.write(Some(gift)) });
        if planted!("pair_tells_early") {
            tell(&shared.value);
            shared.is_there.store(true, Ordering::Release);
        } else {
            // Release pairs with the acquire load in `take`, so the item is written before it is taken. `tell` is
            // called after the store, so an owner that `tell` wakes finds the item.
            shared.is_there.store(true, Ordering::Release);
            tell(&shared.value);
        }
        match shared.counts.compare_exchange(BOTH, ONE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let _gone = ManuallyDrop::new(self);
                Ok(())
            }
            Err(ONE) => self.take_back(),
            Err(_) => {
                again(&shared.value);
                self.go()
            }
        }
    }

    /// Releases this half after the owner half has called `hold`.
    #[cold]
    fn go(self) -> Result<(), (Self, G)> {
        let gone = ManuallyDrop::new(self);
        if !release(&gone.shared().counts, 1) {
            return Ok(());
        }
        // The owner half was dropped, and `release` may have left the counter at 0. This half is the only half, so its
        // count is restored.
        gone.shared().counts.store(ONE, Ordering::Relaxed);
        ManuallyDrop::into_inner(gone).take_back()
    }

    /// Takes the item back if the owner half did not take the item. The caller has seen that the owner half was
    /// dropped, so this half is the last half.
    #[cold]
    fn take_back(self) -> Result<(), (Self, G)> {
        // SAFETY: the owner half was dropped, so only this half accesses the item. The caller has read the counter with
        // acquire, so the accesses of the owner half happened before.
        let gift = self.shared().item.with_mut(|gift| unsafe { (*gift).take() });
        gift.map_or(Ok(()), |gift| Err((self, gift)))
    }

    /// If this half is the only half, applies `f` to the shared value and drops the cell.
    ///
    /// # Errors
    /// Returns this half if an owner half exists.
    pub(crate) fn finish<R>(self, f: impl FnOnce(&mut T) -> R) -> Result<R, Self> {
        // Acquire pairs with the release of the owner's count in `release`, so the accesses of the owner half happen
        // before `f`.
        if self.shared().counts.load(Ordering::Acquire) != ONE {
            return Err(self);
        }
        let at = self.0;
        // SAFETY: the count was `ONE`, and this half owns one count. Therefore, no other half exists, and the reference
        // to the value is exclusive.
        let result = f(unsafe { &mut (*at.as_ptr()).value });
        drop(self);
        Ok(result)
    }
}

impl<T, O, G> Drop for PeerHalf<T, O, G> {
    #[inline]
    fn drop(&mut self) {
        if release(&self.shared().counts, 1) {
            // SAFETY: `release` returned true, so the count of this half was the last count, and the accesses of the
            // owner half happened before. `make` created the cell, and the cell is not accessed afterwards.
            unsafe { Shared::free(self.0) };
        }
    }
}

impl<T, O, G> Deref for OwnerHalf<T, O, G> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T, O, G> Deref for PeerHalf<T, O, G> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::platform::sync::Arc;

    type Token = Arc<()>;

    fn pair(token: &Token) -> (OwnerHalf<Token, Token, Token>, PeerHalf<Token, Token, Token>) {
        OwnerHalf::with_peer(|| Arc::clone(token), || Arc::clone(token))
    }

    #[test]
    fn the_last_half_drops_all_fields_once() {
        let token = Token::default();
        for (takes, holds, guest_first) in (0..8).map(|n| (n & 1 != 0, n & 2 != 0, n & 4 != 0)) {
            let (mut owner, guest) = pair(&token);
            assert_eq!(Arc::strong_count(&token), 3);
            if holds {
                owner.hold();
                owner.hold();
            }
            let told = cell::RefCell::new(Vec::new());
            let leave = |guest: PeerHalf<Token, Token, Token>| {
                let told = &told;
                let tell = |again| move |_: &Token| told.borrow_mut().push(again);
                guest.leave(Arc::clone(&token), tell(false), tell(true)).is_err()
            };
            if guest_first {
                assert!(!leave(guest));
                if takes {
                    assert!(owner.take().is_some() && owner.take().is_none());
                }
                drop(owner);
                assert_eq!(told.take(), if holds { vec![false, true] } else { vec![false] });
            } else {
                drop(owner);
                assert_eq!(Arc::strong_count(&token), 3);
                assert!(leave(guest), "the gift comes back");
            }
            assert_eq!(Arc::strong_count(&token), 1);
        }
    }

    #[test]
    fn a_panic_in_leave_or_finish_leaks_nothing() {
        let token = Token::default();
        let (mut owner, guest) = pair(&token);
        assert!(
            catch_unwind(AssertUnwindSafe(|| guest.leave(Arc::clone(&token), |_| panic!("on purpose"), |_| ())))
                .is_err()
        );
        assert!(owner.take().is_some());
        drop(owner);
        assert_eq!(Arc::strong_count(&token), 1);
        let alone = PeerHalf::<_, _, Token>::alone(|| Arc::clone(&token), || Arc::clone(&token));
        assert!(catch_unwind(AssertUnwindSafe(|| alone.finish(|_| panic!("on purpose")).is_ok())).is_err());
        assert_eq!(Arc::strong_count(&token), 1);
        let (owner, guest) = pair(&token);
        let Err(guest) = guest.finish(|_| ()) else { panic!("there is an owner") };
        drop(owner);
        assert!(guest.finish(|_| ()).is_ok());
        assert_eq!(Arc::strong_count(&token), 1);
    }
}
