//! Room for one message in the mailbox itself, where whoever wakes the process may put one without the mailbox's lock. A file
//! with unsafe code: of the type of a message nothing is known but its size, and a place that were as large as that would be
//! paid for by every idle process. Without it each mailbox that ever has mail has a buffer, which the sender allocates and
//! whoever ends the process frees; processes that get one message, and end, are a quarter cheaper by it (bench
//! `create-1-exit`). And a message to a process that waits for it is cheaper by two locks, which is a quarter of what it costs
//! (bench `ping-pong`).
//!
//! # Who may
//!
//! One *takes*: whoever has the receiving half, of which there is one, or who closes the mailbox, under its lock, in the last
//! turn of its process.
//!
//! Those who *put* exclude each other. While the slot is not [lent](Lent), that is whoever holds the lock of the mailbox.
//! While it is, it is whoever turns the process from *open* to *active* (`counted::run_state`), and has not queued it: by that
//! right nobody else can have. So a holder of the lock that finds it lent has to come by this right and takes the slot back,
//! or leaves it alone; and a process is open only while its slot is lent: it lends that under the lock, in its own turn, and
//! takes it back only in its own turns, where it is not open. (A receiver that is polled elsewhere has no turn: it has the
//! process notified, and looked after there.)
//!
//! A put is seen by who takes, as `moves` is odd then; and a take by who puts, as it is even.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::wakes::{Owed, Own};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::planted;

/// What fits: a `Payload` does, and so does a request with a `Reply` and two words beside it.
type Room = [u64; 3];

/// Holds one message, if messages of that type are small; else none, ever.
pub(super) struct Slot<M> {
    /// How often a message was put there, and was taken: odd while one is there.
    moves: AtomicU64,
    room: UnsafeCell<MaybeUninit<Room>>,
    _message: PhantomData<M>,
}

// SAFETY: a message is put by one thread and taken by another, and never shared.
unsafe impl<M: Send> Sync for Slot<M> {}

/// Whether the slot is lent to whoever comes by the right to run the process. It lies under the mailbox's lock, so whoever
/// has it mutably holds that.
#[derive(Debug)]
pub(super) struct Lent(bool);

impl Lent {
    pub(super) const NOT: Self = Self(false);

    /// By the receiver, in its process's turn.
    #[inline]
    pub(super) fn lend(&mut self, yes: bool) {
        self.0 = yes;
    }

    /// Wakes the process; whoever comes by the right to run it takes the slot back.
    #[inline]
    pub(super) fn wake(&mut self, own: &impl Own) -> Option<Owed> {
        let owed = own.wake();
        if owed.is_some() || planted!("slot_is_taken_back_anyway") {
            self.0 = false;
        }
        owed
    }

    /// By a receiver that is polled elsewhere.
    pub(super) fn recall(&mut self, own: &impl Own) {
        if self.0 && own.recall() {
            self.0 = false;
        }
    }
}

impl<M> Slot<M> {
    const FITS: bool = size_of::<M>() <= size_of::<Room>() && align_of::<M>() <= align_of::<Room>();

    #[inline]
    pub(super) fn new() -> Self {
        // Zeroes, for what is not initialised is copied from where the slot was made, and that is waited for.
        Self { moves: AtomicU64::new(0), room: UnsafeCell::new(MaybeUninit::zeroed()), _message: PhantomData }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        // Acquire pairs with the release of whoever put it there, or took it.
        self.full().is_some()
    }

    /// How many messages were taken from here.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.moves.load(Ordering::Acquire) / 2
    }

    /// How many were put here.
    #[inline]
    pub(super) fn put_so_far(&self) -> u64 {
        self.moves.load(Ordering::Acquire).div_ceil(2)
    }

    /// Puts a message there if the process is open, which then is to be queued.
    ///
    /// # Errors
    /// The message, if it is not.
    #[inline]
    pub(super) fn deliver(&self, own: &impl Own, message: M) -> Result<Owed, M> {
        if !Self::FITS {
            return Err(message);
        }
        match own.deliver() {
            Some(owed) => {
                self.write(message);
                Ok(owed)
            }
            None => Err(message),
        }
    }

    /// Puts a message there, under the lock.
    ///
    /// # Errors
    /// The message, if there is one already, or it is too large, or the slot is lent.
    #[inline]
    pub(super) fn put(&self, lent: &mut Lent, message: M) -> Result<(), M> {
        if !Self::FITS || lent.0 || self.is_full() {
            return Err(message);
        }
        self.write(message);
        Ok(())
    }

    /// For who may put; nothing is there.
    #[inline]
    fn write(&self, message: M) {
        let moves = self.moves.load(Ordering::Acquire);
        debug_assert!(Self::FITS && moves.is_multiple_of(2), "nothing was there when it was lent");
        self.room.with_mut(|room| {
            // SAFETY: it fits, nothing is there that would have to be dropped, and nobody else is at it.
            unsafe { room.cast::<M>().write(message) };
        });
        self.moves.store(moves + 1, Ordering::Release);
    }

    /// What is there, for who may take.
    #[inline]
    pub(super) fn take(&self) -> Option<M> {
        let moves = self.full()?;
        // SAFETY: something is there.
        let message = unsafe { self.read() };
        self.moves.store(moves + 1, Ordering::Release);
        Some(message)
    }

    /// The same, where it is wanted: it is moved once, from here to where it stays.
    #[inline]
    pub(super) fn take_with(&self, take: impl FnOnce(M)) {
        let Some(moves) = self.full() else { return };
        // SAFETY: something is there.
        take(unsafe { self.read() });
        self.moves.store(moves + 1, Ordering::Release);
    }

    /// How often it was moved, if something is there.
    #[inline]
    fn full(&self) -> Option<u64> {
        let moves = self.moves.load(Ordering::Acquire);
        (!moves.is_multiple_of(2)).then_some(moves)
    }

    /// # Safety
    /// A message is there, the caller may take, and notes that it was.
    #[inline]
    unsafe fn read(&self) -> M {
        // SAFETY: says the caller.
        self.room.with_mut(|room| unsafe { room.cast::<M>().read() })
    }
}

impl<M> Drop for Slot<M> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<M> fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("moves", &self.moves).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::sync::Arc;

    fn holds<M: Debug + PartialEq + Clone>(one: M, other: M, fits: bool) {
        let (slot, mut lent) = (Slot::new(), Lent::NOT);
        assert_eq!(slot.take(), None);
        assert_eq!(slot.put(&mut lent, one.clone()).is_ok(), fits);
        assert_eq!(slot.put(&mut lent, other.clone()), Err(other.clone()), "there is one, or it is too large");
        assert_eq!((slot.is_full(), slot.take()), (fits, fits.then_some(one)));
        lent.lend(true);
        assert_eq!(slot.put(&mut lent, other.clone()), Err(other.clone()), "it is not whose lock that is");
        lent.lend(false);
        assert_eq!((slot.is_full(), slot.put(&mut lent, other).is_ok()), (false, fits));
        assert_eq!((slot.taken(), slot.put_so_far()), if fits { (1, 2) } else { (0, 0) });
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
        let (slot, mut lent) = (Slot::new(), Lent::NOT);
        assert!(slot.put(&mut lent, Arc::clone(&told)).is_ok());
        drop(slot);
        assert_eq!(Arc::strong_count(&told), 1);
        let (slot, mut lent) = (Slot::new(), Lent::NOT);
        assert!(slot.put(&mut lent, Arc::clone(&told)).is_ok());
        let taken = slot.take();
        drop(slot);
        assert_eq!((taken.is_some(), Arc::strong_count(&told)), (true, 2));
    }
}
