//! Room for one message in the mailbox itself, where whoever wakes the process may put one without the mailbox's lock. A file
//! with unsafe code: of the type of a message nothing is known but its size, and a place that were as large as that would be
//! paid for by every idle process. Without it each mailbox that ever has mail has a buffer, which the sender allocates and
//! whoever ends the process frees; processes that get one message, and end, are a quarter cheaper by it (bench
//! `create-1-exit`). And a message to a process that waits for it is cheaper by two locks, which is a quarter of what it costs
//! (bench `ping-pong`).
//!
//! # Who may use the slot
//!
//! The slot has at most one writer and one reader at a time. Each operation takes an argument that proves its right:
//!
//! - **Put, not lent:** the holder of the mailbox's lock. The proof is `&mut SlotLoan`, which lies under the lock.
//! - **Put, lent:** the sender that changes the run state of the process from *open* to *active* (`counted::run_state`).
//!   Until it has queued the process, no other thread can do so. The proof is what [`Own::deliver`] returns.
//! - **Take:** the current receiver of the mailbox. The proof is [`Receiving`]. A mailbox has one current receiver: a
//!   claim that was replaced gives no proof (`mailbox::front`). The current receiver takes without the lock only in its
//!   process's turn; elsewhere it holds the lock. The receiver changes only under the lock. If the former receiver was
//!   one that may take without the lock, it changes only in the process's own turn. So two takes cannot overlap. The
//!   thread that closes the mailbox takes under the lock, in the last turn of the process.
//!
//! A process is open only while its slot is lent. It [lends](SlotLoan::lend) the slot under the lock, in its own turn, and
//! takes it back only in its own turns, in which it is not open. A holder of the lock that finds the slot lent first has to
//! change the run state as a sender does. If it cannot, it leaves the slot alone. A receiver that is polled outside the
//! process's turn notifies the process, which takes the slot back in its next turn.
//!
//! `moves` is odd while a message is in the slot. A writer writes only if it is even, and then makes it odd; a reader reads
//! only if it is odd, and then makes it even.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{UnsafeCell, planted};
use crate::process::mailbox::read_ahead::Receiving;
use crate::process::mailbox::wakes::{Own, PendingSchedule};
use crate::process::state::current::InTurn;

/// What fits: a `Payload` does, and so does a request with a `Reply` and two words beside it.
type Room = [u64; 3];

/// Holds one message, if messages of that type are small; else none, ever.
pub(super) struct Slot<M> {
    /// How often a message was put there, and was taken: odd while one is there.
    moves: AtomicU64,
    room: UnsafeCell<MaybeUninit<Room>>,
    _message: PhantomData<M>,
}

// SAFETY: threads that share the slot exchange messages, so `M: Send` is required. No thread gets a `&M`, so `M: Sync` is
// not. The room is accessed by one thread at a time: see "Who may use the slot" above.
unsafe impl<M: Send> Sync for Slot<M> {}

/// Whether the slot is lent to the sender that gets the right to run the process.
///
/// It is made with its slot, and lies under the lock of the same mailbox. So `&mut SlotLoan` proves that the lock is held.
#[derive(Debug)]
pub(super) struct SlotLoan(bool);

impl SlotLoan {
    /// The receiver waits for mail, or takes the slot back, in its process's turn: so the process is not open.
    #[inline]
    pub(super) fn lend(&mut self, yes: bool, _: InTurn) {
        self.0 = yes;
    }

    /// Wakes the process that this mailbox belongs to. If that gives the caller the right to run it, the caller takes the
    /// slot back.
    #[inline]
    pub(super) fn wake(&mut self, own: &impl Own) -> Option<PendingSchedule> {
        let owed = own.wake();
        if owed.is_some() || planted!("slot_is_taken_back_anyway") {
            self.0 = false;
        }
        owed
    }

    /// Takes the slot back for a receiver that is polled outside the turn of the process, unless the process is active. An
    /// active process takes it back itself, at the beginning of its next turn.
    pub(super) fn recall(&mut self, own: &impl Own) {
        if self.0 && own.recall() {
            self.0 = false;
        }
    }
}

impl<M> Slot<M> {
    const FITS: bool = size_of::<M>() <= size_of::<Room>() && align_of::<M>() <= align_of::<Room>();

    /// An empty slot that is not lent.
    #[inline]
    pub(super) fn new() -> (Self, SlotLoan) {
        // Zeroes: uninitialised bytes would be copied from where the slot was made, and the copy would wait for those writes.
        let room = UnsafeCell::new(MaybeUninit::zeroed());
        (Self { moves: AtomicU64::new(0), room, _message: PhantomData }, SlotLoan(false))
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
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

    /// Puts a message there if the process is open. Then the caller has to queue the process.
    ///
    /// # Errors
    /// The message, if the process is not open.
    #[inline]
    pub(super) fn deliver(&self, own: &impl Own, message: M) -> Result<PendingSchedule, M> {
        if !Self::FITS {
            return Err(message);
        }
        match own.deliver() {
            Some(owed) => {
                // SAFETY: the message fits. `owed` is the right to run the process that this slot belongs to (`Own`), which was
                // open: so the slot was lent and empty. While it is lent, only the thread that has this right writes to it.
                unsafe { self.write(message) };
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
    pub(super) fn put(&self, lent: &mut SlotLoan, message: M) -> Result<(), M> {
        if !Self::FITS || lent.0 || self.is_full() {
            return Err(message);
        }
        // SAFETY: the message fits, and the slot is empty. `lent` is exclusively borrowed, so this thread has the lock of the
        // mailbox. As the slot is not lent, only the holder of the lock writes.
        unsafe { self.write(message) };
        Ok(())
    }

    /// # Safety
    /// A message of this type fits. The slot is empty, and no other thread writes to it until this returns.
    #[inline]
    unsafe fn write(&self, message: M) {
        let moves = self.moves.load(Ordering::Acquire);
        debug_assert!(Self::FITS && moves.is_multiple_of(2), "the slot is empty");
        self.room.with_mut(|room| {
            // SAFETY: the caller guarantees that the message fits, in size and alignment, and that no thread writes
            // meanwhile. No thread reads meanwhile, for `moves` is even; the last read happened before the load above, which
            // acquires what the reader released. The slot is empty, so no message is overwritten.
            unsafe { room.cast::<M>().write(message) };
        });
        self.moves.store(moves + 1, Ordering::Release);
    }

    /// Takes the message, if one is there.
    #[inline]
    pub(super) fn take(&self, _: Receiving) -> Option<M> {
        let moves = self.full()?;
        // SAFETY: `moves` is odd, so a message is there. `Receiving` proves that no other thread takes it.
        let message = unsafe { self.read() };
        self.moves.store(moves + 1, Ordering::Release);
        Some(message)
    }

    /// As [`take`](Self::take), by a function that gets the message: so it is moved once, from here to where it stays.
    #[inline]
    pub(super) fn take_with(&self, _: Receiving, take: impl FnOnce(M)) {
        let Some(moves) = self.full() else { return };
        // SAFETY: `moves` is odd, so a message is there. `Receiving` proves that no other thread takes it.
        let message = unsafe { self.read() };
        // Before `take`, which may panic: the message is not to be read again.
        self.moves.store(moves + 1, Ordering::Release);
        take(message);
    }

    /// How often it was moved, if something is there.
    #[inline]
    fn full(&self) -> Option<u64> {
        // Acquire pairs with the release of the thread that put the message there, or took it.
        let moves = self.moves.load(Ordering::Acquire);
        (!moves.is_multiple_of(2)).then_some(moves)
    }

    /// # Safety
    /// `moves` was seen odd, with acquire ordering. No other thread takes the message. The caller makes `moves` even before
    /// it reads again.
    #[inline]
    unsafe fn read(&self) -> M {
        // SAFETY: a message of type `M` was written before `moves` became odd, and the caller has acquired that. No thread
        // writes while it is odd, and the caller guarantees that no other thread reads: so the message is moved out once.
        self.room.with_mut(|room| unsafe { room.cast::<M>().read() })
    }
}

impl<M> Drop for Slot<M> {
    fn drop(&mut self) {
        if self.is_full() {
            // SAFETY: `moves` is odd. `&mut self` excludes other threads, and nothing reads after this.
            drop(unsafe { self.read() });
        }
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
    use crate::platform::sync::Arc;

    fn holds<M: Debug + PartialEq + Clone>(one: M, other: M, fits: bool) {
        let (slot, mut lent) = Slot::new();
        let (receiving, turn) = (Receiving::closing(), InTurn::of_right());
        assert_eq!(slot.take(receiving), None);
        assert_eq!(slot.put(&mut lent, one.clone()).is_ok(), fits);
        assert_eq!(slot.put(&mut lent, other.clone()), Err(other.clone()), "there is one, or it is too large");
        assert_eq!((slot.is_full(), slot.take(receiving)), (fits, fits.then_some(one)));
        lent.lend(true, turn);
        assert_eq!(
            slot.put(&mut lent, other.clone()),
            Err(other.clone()),
            "a slot that is lent takes nothing under the lock"
        );
        lent.lend(false, turn);
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
    fn a_message_that_is_taken_where_it_stays_is_counted() {
        let (slot, mut lent) = Slot::new();
        let mut taken = Vec::new();
        for n in 1..=3_u64 {
            slot.take_with(Receiving::closing(), |_| unreachable!("it is empty"));
            assert!(slot.put(&mut lent, n).is_ok());
            slot.take_with(Receiving::closing(), |message| taken.push(message));
            assert_eq!((slot.is_full(), slot.taken(), slot.put_so_far()), (false, n, n));
        }
        assert_eq!(taken, [1, 2, 3]);
    }

    /// A process that notes how often it is recalled.
    struct Recalled {
        waits: bool,
        times: std::cell::Cell<usize>,
    }

    impl Own for Recalled {
        fn wake(&self) -> Option<PendingSchedule> {
            None
        }

        fn deliver(&self) -> Option<PendingSchedule> {
            None
        }

        fn recall(&self) -> bool {
            self.times.set(self.times.get() + 1);
            self.waits
        }
    }

    /// A slot that stays lent takes no message under the lock: two threads could write to it.
    #[test]
    fn a_slot_is_taken_back_only_from_a_process_that_waits() {
        for (is_lent, waits) in [(false, true), (false, false), (true, false), (true, true)] {
            let (slot, mut lent) = Slot::new();
            let own = Recalled { waits, times: std::cell::Cell::new(0) };
            lent.lend(is_lent, InTurn::of_right());
            lent.recall(&own);
            assert_eq!(own.times.get(), usize::from(is_lent));
            assert_eq!(slot.put(&mut lent, 1).is_ok(), !is_lent || waits);
            // A wake that gives no right to run the process takes nothing back.
            let (slot, mut lent) = Slot::new();
            lent.lend(is_lent, InTurn::of_right());
            assert!(lent.wake(&own).is_none());
            assert_eq!(slot.put(&mut lent, 1).is_ok(), !is_lent);
        }
    }

    #[test]
    fn it_is_dropped_once() {
        let told = Arc::new(());
        let (slot, mut lent) = Slot::new();
        assert!(slot.put(&mut lent, Arc::clone(&told)).is_ok());
        drop(slot);
        assert_eq!(Arc::strong_count(&told), 1);
        let (slot, mut lent) = Slot::new();
        assert!(slot.put(&mut lent, Arc::clone(&told)).is_ok());
        let taken = slot.take(Receiving::closing());
        drop(slot);
        assert_eq!((taken.is_some(), Arc::strong_count(&told)), (true, 2));
    }
}
