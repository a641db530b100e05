//! One piece of memory that two share: an [`OwnerHalf`], which has something of its own there, and a [`PeerHalf`], which may leave
//! something for it when it goes. A file with unsafe code: `Arc` has nothing that belongs to one of two, and nothing that one
//! leaves for the other without a lock. A call is a seventh cheaper by the first, and a fifteenth more by the other (bench
//! `call`).
//!
//! # Who may
//!
//! The gift is the guest's until it says that it is *there*, and the owner's from then on. An owner that has gone takes none:
//! then the guest, which is the last, takes it back.
//!
//! A guest that leaves takes back its count, if the owner is there and has not [asked to hear of it](OwnerHalf::hold), by which
//! there is one count more than the two have. Both are read-modify-writes of one word, so one comes first. If it is the
//! guest's, the owner finds the gift, for that was there before; if it is the owner's, the guest is still there, and tells it
//! once more.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{NonNull, drop_in_place};

use crate::platform::alloc as memory;
use crate::platform::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::platform::sync::{UnsafeCell, planted};

/// One of the two has gone.
const ONE: u32 = 1;
const BOTH: u32 = 2;

struct Shared<T, O, G> {
    counts: AtomicU32,
    /// The gift is the owner's.
    is_there: AtomicBool,
    /// The owner's, with whether it has one count more.
    own: cell::UnsafeCell<(bool, O)>,
    gift: UnsafeCell<Option<G>>,
    value: T,
}

/// One of two that share a value, with one that is its own.
pub(crate) struct OwnerHalf<T, O, G>(NonNull<Shared<T, O, G>>);

/// The other; or there is no owner.
pub(crate) struct PeerHalf<T, O, G>(NonNull<Shared<T, O, G>>);

// SAFETY: both reach the value at the same time, whoever is last drops all there is, and a gift goes from one to the other.
unsafe impl<T: Send + Sync, O: Send, G: Send> Send for OwnerHalf<T, O, G> {}
// SAFETY: of a shared one nothing is reached but the value.
unsafe impl<T: Send + Sync, O: Send, G: Send> Sync for OwnerHalf<T, O, G> {}
// SAFETY: as `OwnerHalf`: the guest shares the value with the owner, drops all parts if it is the last, and sends the gift.
unsafe impl<T: Send + Sync, O: Send, G: Send> Send for PeerHalf<T, O, G> {}
// SAFETY: a shared `PeerHalf` gives access to nothing but `&T`.
unsafe impl<T: Send + Sync, O: Send, G: Send> Sync for PeerHalf<T, O, G> {}

/// Gives up so many counts; true if they were the last ones, and what all others did is seen. It is not told what they are of:
/// if they were not the last ones, that may be gone before this returns.
#[inline]
fn release(all: &AtomicU32, counts: u32) -> bool {
    // Acquire pairs with the release of the other: what it did is seen. Who is alone need not write.
    all.load(Ordering::Acquire) == counts || all.fetch_sub(counts, Ordering::AcqRel) == counts
}

impl<T, O, G> Shared<T, O, G> {
    /// Both are made in their place: to move them there would be to wait for what was written of them just now.
    #[inline(always)]
    fn make(counts: u32, value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> NonNull<Self> {
        // SAFETY: it has a size, for it has a count.
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
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `gift` is in bounds.
        let gift_at = unsafe { &raw mut (*at.as_ptr()).gift };
        // SAFETY: the field `gift` is aligned, and nothing else refers to the fresh memory.
        unsafe { gift_at.write(UnsafeCell::new(None)) };
        // SAFETY: `at` points to fresh memory with the layout of `Self`, so the field `value` is in bounds.
        let value_at = unsafe { &raw mut (*at.as_ptr()).value };
        // SAFETY: the field `value` is aligned, and nothing else refers to the fresh memory.
        unsafe { value_at.write(value()) };
        at
    }

    /// Drops all there is, and frees the memory.
    ///
    /// # Safety
    /// The caller is the last that refers to it, and does not look at it again.
    #[inline]
    unsafe fn free(at: NonNull<Self>) {
        /// The memory, given back also if a drop panics.
        struct Rest<S>(NonNull<S>);
        impl<S> Drop for Rest<S> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: it was taken for that, in `make`; what was there is dropped.
                unsafe { memory::give_back(self.0.cast(), Layout::new::<S>()) };
            }
        }
        let _rest = Rest(at);
        // SAFETY: the caller is the last that refers to the memory, and all fields were written by `make`.
        unsafe { drop_in_place(at.as_ptr()) };
    }
}

impl<T, O, G> OwnerHalf<T, O, G> {
    #[inline(always)]
    pub(crate) fn with_guest(value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> (Self, PeerHalf<T, O, G>) {
        let at = Shared::make(BOTH, value, own);
        (Self(at), PeerHalf(at))
    }

    #[inline]
    fn shared(&self) -> &Shared<T, O, G> {
        // SAFETY: this half owns a count, so the memory is not freed while it lives.
        unsafe { self.0.as_ref() }
    }

    /// What both have, and what is its own.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&T, &mut O) {
        let own = self.shared().own.get();
        // SAFETY: there is one owner, and it is borrowed mutably.
        (&self.shared().value, unsafe { &mut (*own).1 })
    }

    /// Whether there is a gift, or was, as far as is known.
    #[inline]
    pub(crate) fn seems_given(&self) -> bool {
        self.shared().is_there.load(Ordering::Relaxed)
    }

    /// The gift, if there is one.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<G> {
        // Acquire pairs with the release in `leave`: it is complete.
        if !self.shared().is_there.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: it is there, so the guest is not at it any more; and there is one owner, which is borrowed mutably.
        self.shared().gift.with_mut(|gift| unsafe { (*gift).take() })
    }

    /// From now on a guest that leaves tells this twice, unless the gift is there already.
    pub(crate) fn hold(&mut self) {
        let own = self.shared().own.get();
        // SAFETY: there is one owner, and it is borrowed mutably.
        let holds = unsafe { &mut (*own).0 };
        if !*holds && !planted!("pair_holds_nothing") {
            *holds = true;
            // Acquire and release: see above.
            self.shared().counts.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl<T, O, G> Drop for OwnerHalf<T, O, G> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: only the owner accesses `own`, there is one owner, and it is borrowed mutably.
        let holds = unsafe { (*self.shared().own.get()).0 };
        if release(&self.shared().counts, 1 + u32::from(holds)) {
            // SAFETY: `release` returned true: these were the last counts, and the guest's accesses happened before.
            unsafe { Shared::free(self.0) };
        }
    }
}

impl<T, O, G> PeerHalf<T, O, G> {
    /// For one alone.
    pub(crate) fn alone(value: impl FnOnce() -> T, own: impl FnOnce() -> O) -> Self {
        Self(Shared::make(ONE, value, own))
    }

    #[inline]
    fn shared(&self) -> &Shared<T, O, G> {
        // SAFETY: this half owns a count, so the memory is not freed while it lives.
        unsafe { self.0.as_ref() }
    }

    /// Leaves a gift, tells the owner, once more if that [asked for it](OwnerHalf::hold), and goes. Nothing of this is touched
    /// after that, so the owner, once it has the gift, is alone, and frees it without a locked operation.
    ///
    /// # Errors
    /// This, and the gift, if the owner had gone, and did not take it.
    #[inline(always)]
    pub(crate) fn leave(self, gift: G, tell: impl FnOnce(&T), again: impl FnOnce(&T)) -> Result<(), (Self, G)> {
        let shared = self.shared();
        // SAFETY: it is the guest's as long as it is not there, and there is one guest, which leaves once. Nothing is dropped,
        // for nothing was there.
        shared.gift.with_mut(|place| unsafe { place.write(Some(gift)) });
        if planted!("pair_tells_early") {
            tell(&shared.value);
            shared.is_there.store(true, Ordering::Release);
        } else {
            // Release pairs with the acquire in `take`.
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

    /// Goes, of an owner that holds it.
    #[cold]
    fn go(self) -> Result<(), (Self, G)> {
        let gone = ManuallyDrop::new(self);
        if !release(&gone.shared().counts, 1) {
            return Ok(());
        }
        // The count that it had, which nobody else has now.
        gone.shared().counts.store(ONE, Ordering::Relaxed);
        ManuallyDrop::into_inner(gone).take_back()
    }

    /// Of one that is the last.
    #[cold]
    fn take_back(self) -> Result<(), (Self, G)> {
        // SAFETY: the owner has gone, and what it did is seen.
        let gift = self.shared().gift.with_mut(|gift| unsafe { (*gift).take() });
        gift.map_or(Ok(()), |gift| Err((self, gift)))
    }

    /// Does something to the value, and drops all there is, if this is the last.
    ///
    /// # Errors
    /// This, if it is not.
    pub(crate) fn finish<R>(self, f: impl FnOnce(&mut T) -> R) -> Result<R, Self> {
        // Acquire pairs with the release of the other's count.
        if self.shared().counts.load(Ordering::Acquire) != ONE {
            return Err(self);
        }
        let at = self.0;
        // SAFETY: the count was `ONE`, which is this guest's: nothing else refers to the memory.
        let result = f(unsafe { &mut (*at.as_ptr()).value });
        drop(self);
        Ok(result)
    }
}

impl<T, O, G> Drop for PeerHalf<T, O, G> {
    #[inline]
    fn drop(&mut self) {
        if release(&self.shared().counts, 1) {
            // SAFETY: `release` returned true: this was the last count, and the owner's accesses happened before.
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
    use super::*;
    use crate::platform::sync::Arc;
    use crate::process::catch::catch;

    type Token = Arc<()>;

    fn pair(token: &Token) -> (OwnerHalf<Token, Token, Token>, PeerHalf<Token, Token, Token>) {
        OwnerHalf::with_guest(|| Arc::clone(token), || Arc::clone(token))
    }

    #[test]
    fn whoever_is_last_drops_all_there_is_once() {
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
    fn a_panic_on_the_way_loses_nothing() {
        let token = Token::default();
        let (mut owner, guest) = pair(&token);
        assert!(catch(|| guest.leave(Arc::clone(&token), |_| panic!("on purpose"), |_| ())).is_err());
        assert!(owner.take().is_some());
        drop(owner);
        assert_eq!(Arc::strong_count(&token), 1);
        let alone = PeerHalf::<_, _, Token>::alone(|| Arc::clone(&token), || Arc::clone(&token));
        assert!(catch(|| alone.finish(|_| panic!("on purpose")).is_ok()).is_err());
        assert_eq!(Arc::strong_count(&token), 1);
        let (owner, guest) = pair(&token);
        let Err(guest) = guest.finish(|_| ()) else { panic!("there is an owner") };
        drop(owner);
        assert!(guest.finish(|_| ()).is_ok());
        assert_eq!(Arc::strong_count(&token), 1);
    }
}
