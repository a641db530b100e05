//! Room for one message in the mailbox itself. A file with unsafe code: of the type of a message nothing is known but its
//! size, and a place that were as large as that would be paid for by every idle process. Without it each mailbox that ever
//! has mail has a buffer, which the sender allocates and whoever ends the process frees; processes that get one message,
//! and end, are a quarter cheaper by it (bench `create-1-exit`).

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// What fits: a `Payload` does, and so does a request with a `Reply` and two words beside it.
type Room = [u64; 3];

/// Holds one message, if messages of that type are small; else none, ever.
pub(super) struct Slot<M> {
    /// Whether `room` holds an `M`.
    full: bool,
    room: MaybeUninit<Room>,
    _message: PhantomData<M>,
}

impl<M> Slot<M> {
    const FITS: bool = size_of::<M>() <= size_of::<Room>() && align_of::<M>() <= align_of::<Room>();

    #[inline]
    pub(super) const fn new() -> Self {
        Self { full: false, room: MaybeUninit::uninit(), _message: PhantomData }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Puts a message there.
    ///
    /// # Errors
    /// The message, if there is one already, or it is too large.
    #[inline]
    pub(super) fn put(&mut self, message: M) -> Result<(), M> {
        if !Self::FITS || self.full {
            return Err(message);
        }
        // SAFETY: it fits, and nothing is there that would have to be dropped.
        unsafe { self.room.as_mut_ptr().cast::<M>().write(message) };
        self.full = true;
        Ok(())
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<M> {
        if !self.full {
            return None;
        }
        self.full = false;
        // SAFETY: `put` wrote it there, and it is not looked at again.
        Some(unsafe { self.room.as_ptr().cast::<M>().read() })
    }
}

impl<M> Drop for Slot<M> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<M> fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("full", &self.full).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::sync::Arc;

    fn holds<M: Debug + PartialEq + Clone>(one: M, other: M, fits: bool) {
        let mut slot = Slot::new();
        assert_eq!(slot.take(), None);
        assert_eq!(slot.put(one.clone()).is_ok(), fits);
        assert_eq!(slot.put(other.clone()), Err(other.clone()), "there is one, or it is too large");
        assert_eq!((slot.is_full(), slot.take()), (fits, fits.then_some(one)));
        assert_eq!((slot.is_full(), slot.put(other).is_ok()), (false, fits));
    }

    #[test]
    fn what_is_small_has_a_place_there() {
        holds((), (), true);
        holds(1_u8, 2, true);
        holds([1_u8; 23], [2; 23], true);
        holds("one".to_owned(), "other".to_owned(), true);
        holds([1_u64; 4], [2; 4], false);
        holds(1_u128, 2, align_of::<u128>() <= 8);
    }

    #[test]
    fn it_is_dropped_once() {
        let told = Arc::new(());
        let mut slot = Slot::new();
        assert!(slot.put(Arc::clone(&told)).is_ok());
        drop(slot);
        assert_eq!(Arc::strong_count(&told), 1);
        let mut slot = Slot::new();
        assert!(slot.put(Arc::clone(&told)).is_ok());
        let taken = slot.take();
        drop(slot);
        assert_eq!((taken.is_some(), Arc::strong_count(&told)), (true, 2));
    }
}
