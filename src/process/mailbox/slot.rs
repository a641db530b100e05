//! Slot for one message inside the mailbox. A sender that wakes the process may write the slot without the mailbox's
//! lock.
//!
//! This file contains unsafe code: the slot is untyped memory of a fixed size. A slot of the size of the message type
//! would make each idle process larger. Without a slot each mailbox that ever gets a message would need a buffer, which
//! the sender allocates and the thread that ends the process frees. The slot reduces the cost of a process that gets
//! one message and exits by a quarter (bench `create-1-exit`). For a message to a process that waits for it, the slot
//! saves two lock operations, a quarter of the cost (bench `ping-pong`).
//!
//! # Access to the slot
//!
//! The slot is either *open* (lent to senders) or not open: see [`SlotLoan`]. It has at most one writer and one reader
//! at a time. Each operation takes an argument that proves the right to do it:
//!
//! - **Write while the slot is not open:** the holder of the mailbox's lock. The proof is `&mut SlotLoan`, because the
//!   `SlotLoan` is stored under the lock.
//! - **Write while the slot is open:** the sender that changes the run state of the process from *Open* to *Active*
//!   (`process::state::run_state`). No other thread can make this change until the sender has queued the process. The
//!   proof is the return value of [`Own::deliver`].
//! - **Read:** the current receiver of the mailbox. The proof is [`Receiving`]. A mailbox has one current receiver: a
//!   claim that was replaced gives no proof (`mailbox::read_ahead`). The current receiver reads without the lock only
//!   in the turn of its process; outside the turn it holds the lock. The current receiver is replaced only under the
//!   lock. If it may read without the lock, it is replaced only in the turn of its own process. So two reads cannot
//!   overlap. The thread that closes the mailbox reads under the lock, in the last turn of the process.
//!
//! The run state of a process is *Open* only while its slot is open. The receiver [opens](SlotLoan::lend) the slot
//! under the lock, in the turn of its process. The slot is closed again in one of two ways. Either a turn of the
//! process closes the slot; during a turn the run state is not *Open*. Or a holder of the lock closes the slot, after
//! it has woken the process or after [`Own::recall`] has returned true. In both cases the run state is not *Open* when
//! the slot is closed. The run state becomes *Open* again only in a turn, after the receiver has opened the slot under
//! the lock again. If a holder of the lock finds the slot open, it must first change the run state, as a sender does.
//! If it cannot change the run state, it does not write the slot. If a receiver is polled outside the turn of the
//! process while the process is active, it notifies the process. The process then closes the slot in its next turn.
//!
//! `moves` is odd while a message is in the slot. A writer writes only if `moves` is even, and then makes it odd. A
//! reader reads only if `moves` is odd, and then makes it even.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{UnsafeCell, planted};
use crate::process::mailbox::read_ahead::Receiving;
use crate::process::mailbox::wakes::{Own, PendingSchedule};
use crate::process::state::current::InTurn;

/// Memory of the slot. It is large enough for a `Payload`, and for a request that contains a `Reply` and two more
/// words.
type Room = [u64; 3];

/// Slot for one message. If the message type does not fit, the slot is always empty.
pub(super) struct Slot<M> {
    /// Number of writes plus number of reads: odd while a message is in the slot.
    moves: AtomicU64,
    room: UnsafeCell<MaybeUninit<Room>>,
    _message: PhantomData<M>,
}

// SAFETY: threads that share the slot exchange messages, so `M: Send` is required. No thread gets a `&M`, so `M: Sync`
// is not. The room is accessed by one thread at a time: see "Access to the slot" above.
unsafe impl<M: Send> Sync for Slot<M> {}

/// Whether the slot is open: reserved for the sender that gets the right to run the process.
///
/// A `SlotLoan` is created with its slot, and is stored under the lock of the same mailbox. So `&mut SlotLoan` proves
/// that the lock is held.
#[derive(Debug)]
pub(super) struct SlotLoan(bool);

impl SlotLoan {
    /// Opens or closes the slot. The thread is in the turn of the process, so the run state is not *Open*.
    #[inline]
    pub(super) fn lend(&mut self, yes: bool, _: InTurn) {
        self.0 = yes;
    }

    /// Wakes the process that this mailbox belongs to. If the caller gets the right to run the process, this closes the
    /// slot.
    #[inline]
    pub(super) fn wake(&mut self, own: &impl Own) -> Option<PendingSchedule> {
        let owed = own.wake();
        if owed.is_some() || planted!("slot_is_taken_back_anyway") {
            self.0 = false;
        }
        owed
    }

    /// Closes the slot for a receiver that is polled outside the turn of the process. If the process is active, the
    /// slot stays open: the process closes it at the beginning of its next turn.
    pub(super) fn recall(&mut self, own: &impl Own) {
        if self.0 && own.recall() {
            self.0 = false;
        }
    }
}

impl<M> Slot<M> {
    const FITS: bool = size_of::<M>() <= size_of::<Room>() && align_of::<M>() <= align_of::<Room>();

    /// Creates an empty slot that is not open.
    #[inline]
    pub(super) fn new() -> (Self, SlotLoan) {
        // Zeroed: uninitialised bytes would be copied from where the slot was made, and that copy would miss store
        // forwarding.
        let room = UnsafeCell::new(MaybeUninit::zeroed());
        (Self { moves: AtomicU64::new(0), room, _message: PhantomData }, SlotLoan(false))
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full().is_some()
    }

    /// Number of messages that were taken from the slot.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.moves.load(Ordering::Acquire) / 2
    }

    /// Number of messages that were put into the slot.
    #[inline]
    pub(super) fn put_count(&self) -> u64 {
        self.moves.load(Ordering::Acquire).div_ceil(2)
    }

    /// Writes a message into the slot if the run state of the process is *Open*. The caller then has to queue the
    /// process.
    ///
    /// # Errors
    /// Returns the message if the run state is not *Open*, or if the message does not fit.
    #[inline]
    pub(super) fn deliver(&self, own: &impl Own, message: M) -> Result<PendingSchedule, M> {
        if !Self::FITS {
            return Err(message);
        }
        match own.deliver() {
            Some(owed) => {
                // SAFETY: the message fits. `owed` is the right to run the process of this slot (`Own`). The run state
                // of this process was *Open*, so the slot was open and empty. While the slot is open, only the thread
                // that has this right writes the slot.
                unsafe { self.write(message) };
                Ok(owed)
            }
            None => Err(message),
        }
    }

    /// Writes a message into the slot, under the lock.
    ///
    /// # Errors
    /// Returns the message if the slot contains a message or is open, or if the message does not fit.
    #[inline]
    pub(super) fn put(&self, lent: &mut SlotLoan, message: M) -> Result<(), M> {
        if !Self::FITS || lent.0 || self.is_full() {
            return Err(message);
        }
        // SAFETY: the message fits, and the slot is empty. `lent` is exclusively borrowed, so this thread holds the
        // lock of the mailbox. The slot is not open, so only the holder of the lock writes it.
        unsafe { self.write(message) };
        Ok(())
    }

    /// # Safety
    /// A message of this type fits. The slot is empty, and no other thread writes it until this returns.
    #[inline]
    unsafe fn write(&self, message: M) {
        let moves = self.moves.load(Ordering::Acquire);
        debug_assert!(Self::FITS && moves.is_multiple_of(2), "the slot is empty");
        self.room.with_mut(|room| {
            // SAFETY: the caller guarantees that the message fits, in size and alignment, and that no other thread
            // writes during this write. No thread reads during this write, because `moves` is even. The last read
            // happened before the load above: the load acquires the store that the reader released. The slot is empty,
            // so no message is overwritten.
            unsafe { room.cast::<M>().write(message) };
        });
        self.moves.store(moves + 1, Ordering::Release);
    }

    /// Takes the message out of the slot, if there is one.
    #[inline]
    pub(super) fn take(&self, _: Receiving) -> Option<M> {
        let moves = self.full()?;
        // SAFETY: `full` saw `moves` odd with an acquire load, so a message is there. `Receiving` proves that no other
        // thread takes it. The store below makes `moves` even before the slot is read again.
        let message = unsafe { self.read() };
        self.moves.store(moves + 1, Ordering::Release);
        Some(message)
    }

    /// As [`take`](Self::take), but passes the message to the closure `take`. The message is moved only once: from the
    /// slot to its final place.
    #[inline]
    pub(super) fn take_with(&self, _: Receiving, take: impl FnOnce(M)) {
        let Some(moves) = self.full() else { return };
        // SAFETY: `full` saw `moves` odd with an acquire load, so a message is there. `Receiving` proves that no other
        // thread takes it. The store below makes `moves` even before the slot is read again.
        let message = unsafe { self.read() };
        // Stored before the call of `take`: if `take` panics, the message must not be read again.
        self.moves.store(moves + 1, Ordering::Release);
        take(message);
    }

    /// Returns `moves` if the slot contains a message.
    #[inline]
    fn full(&self) -> Option<u64> {
        // Acquire pairs with the release store in `write`. With a weaker load a reader could read the room before the
        // message is in it, and `Inbox::glance` could miss that the sender held the lock. This load does not order
        // writers: the load in `write` orders a writer after the last read.
        let moves = self.moves.load(Ordering::Acquire);
        (!moves.is_multiple_of(2)).then_some(moves)
    }

    /// # Safety
    /// `moves` was seen odd, with acquire ordering. No other thread takes the message. The caller makes `moves` even
    /// before the slot is read again.
    #[inline]
    unsafe fn read(&self) -> M {
        // SAFETY: a message of type `M` was written before `moves` became odd, and the caller has acquired that write.
        // No thread writes while `moves` is odd, and the caller guarantees that no other thread reads. So the message
        // is moved out once.
        self.room.with_mut(|room| unsafe { room.cast::<M>().read() })
    }
}

impl<M> Drop for Slot<M> {
    fn drop(&mut self) {
        if self.is_full() {
            // SAFETY: `is_full` saw `moves` odd with an acquire load, so a message is there. `&mut self` excludes other
            // threads, and nothing reads the slot after this.
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

    fn check_fit<M: Debug + PartialEq + Clone>(one: M, other: M, fits: bool) {
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
        assert_eq!((slot.taken(), slot.put_count()), if fits { (1, 2) } else { (0, 0) });
    }

    #[test]
    fn small_messages_fit_into_the_slot() {
        check_fit((), (), true);
        check_fit(1_u8, 2, true);
        check_fit([1_u8; 23], [2; 23], true);
        check_fit("one".to_owned(), "other".to_owned(), true);
        check_fit([1_u64; 4], [2; 4], false);
        check_fit(1_u128, 2, align_of::<u128>() <= 8);
    }

    #[test]
    fn a_message_taken_by_take_with_is_counted() {
        let (slot, mut lent) = Slot::new();
        let mut taken = Vec::new();
        for n in 1..=3_u64 {
            slot.take_with(Receiving::closing(), |_| unreachable!("it is empty"));
            assert!(slot.put(&mut lent, n).is_ok());
            slot.take_with(Receiving::closing(), |message| taken.push(message));
            assert_eq!((slot.is_full(), slot.taken(), slot.put_count()), (false, n, n));
        }
        assert_eq!(taken, [1, 2, 3]);
    }

    /// A process that counts the calls of `recall`.
    struct RecallCounter {
        waits: bool,
        times: std::cell::Cell<usize>,
    }

    impl Own for RecallCounter {
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

    /// An open slot refuses messages under the lock, because two threads could write it at the same time.
    #[test]
    fn a_slot_is_closed_only_if_its_process_waits() {
        for (is_lent, waits) in [(false, true), (false, false), (true, false), (true, true)] {
            let (slot, mut lent) = Slot::new();
            let own = RecallCounter { waits, times: std::cell::Cell::new(0) };
            lent.lend(is_lent, InTurn::of_right());
            lent.recall(&own);
            assert_eq!(own.times.get(), usize::from(is_lent));
            assert_eq!(slot.put(&mut lent, 1).is_ok(), !is_lent || waits);
            // A wake-up that gives no right to run the process does not close the slot.
            let (slot, mut lent) = Slot::new();
            lent.lend(is_lent, InTurn::of_right());
            assert!(lent.wake(&own).is_none());
            assert_eq!(slot.put(&mut lent, 1).is_ok(), !is_lent);
        }
    }

    #[test]
    fn a_message_in_the_slot_is_dropped_once() {
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
