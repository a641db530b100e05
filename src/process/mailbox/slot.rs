//! Slot for one message inside the mailbox. A sender that wakes the process may write the slot without the mailbox's
//! lock.
//!
//! This file contains unsafe code, because the slot is untyped memory of a fixed size. A slot with the size of the
//! message type would make each idle process larger. Without a slot, each mailbox that receives a message would need a
//! heap buffer. For a process that receives one message and then exits, the slot reduces the total cost by a quarter
//! (bench `create-1-exit`). If a process waits for a message, the slot saves two lock operations for this message. The
//! slot thus reduces the cost of this message by a quarter (bench `ping-pong`).
//!
//! # Access to the slot
//!
//! The slot is either *open* (a sender may write the slot without the lock) or *closed*: see [`SlotAccess`]. The slot
//! has at most one writer and one reader at a time. Each operation takes an argument that proves that the caller may do
//! the operation:
//!
//! - **Write while the slot is closed:** only the thread that holds the mailbox's lock may write. A `&mut SlotAccess`
//!   proves that the thread holds the lock, because the lock protects the `SlotAccess`.
//! - **Write while the slot is open:** only the sender that changes the run state of the process from *Open* to
//!   *Active* may write (`process::state::run_state`). No other thread can make this change until the sender has queued
//!   the process. The return value of [`Own::deliver`] proves that the sender has made this change.
//!   [`Own::owns`] proves that the run state belongs to the process that contains this slot.
//! - **Read:** only the current receiver of the mailbox may read. Each read needs a value of the type [`Receiving`],
//!   which proves that the read is allowed. A mailbox has one current receiver. A receiver that was replaced cannot
//!   obtain a `Receiving` (`mailbox::read_ahead`). In a turn of its process, the current receiver may read without the
//!   lock. Outside the turns, the current receiver holds the lock while it reads. The current receiver is replaced only
//!   under the lock. A receiver that may read without the lock is replaced only in a turn of the process to which this
//!   receiver belongs. Therefore, two reads cannot overlap. The thread that closes the mailbox has the right to run the
//!   process, and reads the slot under the lock. If the mailbox belongs to no process, each receiver reads under the
//!   lock.
//!
//! The run state of a process is *Open* only while its slot is open. The receiver [opens](SlotAccess::set_open) the
//! slot under the lock, in the turn of its process. There are only two ways to close the slot. In both ways, the run
//! state leaves *Open* before the slot is closed. In the first way, a turn of the process closes the slot. During a
//! turn, the run state is not *Open*. In the second way, a thread that holds the lock closes the slot. Before that,
//! this thread has woken the process, or [`Own::recall`] has returned true. After a wake-up, and after a `recall` that
//! returned true, the run state is not *Open*. The run state becomes *Open* again only in a turn, after the receiver
//! has opened the slot under the lock again.
//!
//! The lock alone does not allow a thread to write an open slot. Before a thread writes an open slot, the thread must
//! change the run state from *Open* to *Active*. A sender without the lock must make the same change. If the thread
//! cannot make this change, the thread does not write the slot. A receiver may be polled outside the turns of its
//! process while the process is active. A receiver that is polled outside the turns notifies the process, and the next
//! turn of the process closes the slot.
//!
//! The field `moves` is odd while a message is in the slot. A writer writes only if `moves` is even, and then makes
//! `moves` odd. A reader reads only if `moves` is odd, and then makes `moves` even.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{UnsafeCell, planted};
use crate::process::mailbox::read_ahead::Receiving;
use crate::process::mailbox::wakes::{Own, PendingSchedule};
use crate::process::state::current::InTurn;

/// Memory of the slot. The memory is large enough for a `Payload`. The memory is also large enough for a request that
/// contains a `Reply` and two more words.
type Room = [u64; 3];

/// Slot for one message. If the message type does not fit into the memory, the slot is always empty.
pub(super) struct Slot<M> {
    /// Number of writes plus number of reads. The sum is odd while a message is in the slot.
    moves: AtomicU64,
    room: UnsafeCell<MaybeUninit<Room>>,
    _message: PhantomData<M>,
}

// SAFETY: threads that share the slot exchange messages, so `M: Send` is required. No thread obtains a `&M`, so `M:
// Sync` is not required. Only one thread at a time accesses the field `room`: see "Access to the slot" above.
unsafe impl<M: Send> Sync for Slot<M> {}

/// Whether the slot is open. While the slot is open, only the sender that obtains the right to run the process may
/// write the slot.
///
/// A mailbox creates its slot and its `SlotAccess` together, and stores the `SlotAccess` under its lock. A caller that
/// has a `&mut SlotAccess` therefore holds the lock of the mailbox.
#[derive(Debug)]
pub(super) struct SlotAccess(bool);

impl SlotAccess {
    /// Opens or closes the slot. The calling thread is in the turn of the process, so the run state is not *Open*.
    #[inline]
    pub(super) fn set_open(&mut self, is_open: bool, _: InTurn) {
        self.0 = is_open;
    }

    /// Wakes the process that owns this mailbox. If the caller obtains the right to run the process, this function
    /// closes the slot.
    #[inline]
    pub(super) fn wake(&mut self, own: &impl Own) -> Option<PendingSchedule> {
        check_owner(own, self);
        let pending = own.wake();
        if pending.is_some() || planted!("slot_is_taken_back_anyway") {
            self.0 = false;
        }
        pending
    }

    /// Closes the slot. The calling thread need not be in a turn of the process. If the process is active, the slot
    /// stays open, and the process closes the slot at the beginning of its next turn.
    pub(super) fn close_or_recall(&mut self, own: &impl Own) {
        check_owner(own, self);
        if self.0 && own.recall() {
            self.0 = false;
        }
    }
}

/// Panics if `field` is not a field in the mailbox of this process. In most callers, the compiler removes the check,
/// because the caller obtains the mailbox from the process.
#[inline]
fn check_owner<T>(own: &impl Own, field: &T) {
    assert!(own.owns(ptr::from_ref(field).cast()), "the mailbox belongs to another process");
}

impl<M> Slot<M> {
    /// Whether a message fits into the memory.
    pub(super) const FITS: bool = size_of::<M>() <= size_of::<Room>() && align_of::<M>() <= align_of::<Room>();

    /// Creates an empty slot that is closed.
    #[inline]
    pub(super) fn new() -> (Self, SlotAccess) {
        // The memory is zeroed, because the new slot is copied to its final place. Without the zeros, one wide load
        // during this copy would read some bytes that were just stored, and some older bytes. The processor cannot
        // forward a store to a load that also reads older bytes, so the copy would be slow.
        let room = UnsafeCell::new(MaybeUninit::zeroed());
        (Self { moves: AtomicU64::new(0), room, _message: PhantomData }, SlotAccess(false))
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full().is_some()
    }

    /// Returns the number of messages that were taken from the slot.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.moves.load(Ordering::Acquire) / 2
    }

    /// Returns the number of messages that were written into the slot.
    #[inline]
    pub(super) fn put_count(&self) -> u64 {
        self.moves.load(Ordering::Acquire).div_ceil(2)
    }

    /// Writes a message into the slot if the run state of the process is *Open*. After a write, the caller must queue
    /// the process.
    ///
    /// # Errors
    /// Returns the message if the run state is not *Open*, or if the message does not fit into the slot.
    #[inline]
    pub(super) fn deliver(&self, own: &impl Own, message: M) -> Result<PendingSchedule, M> {
        if !Self::FITS {
            return Err(message);
        }
        check_owner(own, self);
        match own.deliver() {
            Some(pending) => {
                // SAFETY: the message fits. The value `pending` represents the right to run the process `own`. The
                // check above has shown that this process owns the slot. The run state of this process was *Open*, and
                // a process waits in this state only if its slot is open and empty. While the slot is open, only the
                // thread that owns this right writes the slot. This thread keeps the right to run the process until the
                // write has ended. The results of `own` are correct: except in tests and models, the type of `own`
                // implements the unsafe trait `Stepped` (see `Own`).
                unsafe { self.write(message) };
                Ok(pending)
            }
            None => Err(message),
        }
    }

    /// Writes a message into the slot, under the lock.
    ///
    /// # Errors
    /// Returns the message if the slot contains a message, if the slot is open, or if the message does not fit into the
    /// slot.
    #[inline]
    pub(super) fn put(&self, access: &mut SlotAccess, message: M) -> Result<(), M> {
        if !Self::FITS || access.0 || self.is_full() {
            return Err(message);
        }
        // SAFETY: the message fits, and the slot is empty. The reference `access` is exclusive, and the `SlotAccess` is
        // stored under the lock of the mailbox, so this thread holds this lock. The slot is closed, so only the holder
        // of the lock writes the slot.
        unsafe { self.write(message) };
        Ok(())
    }

    /// # Safety
    /// A message of this type fits into the slot. The slot is empty, and no other thread writes the slot until this
    /// function returns.
    #[inline]
    unsafe fn write(&self, message: M) {
        let moves = self.moves.load(Ordering::Acquire);
        debug_assert!(Self::FITS && moves.is_multiple_of(2), "the slot is empty");
        self.room.with_mut(|room| {
            // SAFETY: the caller guarantees that the message fits in size and alignment, and that no other thread
            // writes during this write. No thread reads during this write, because `moves` is even. The previous read
            // happened before the load of `moves` above, because this acquire load reads the value that the reader
            // stored with release ordering. The slot is empty, so no message is overwritten.
            unsafe { room.cast::<M>().write(message) };
        });
        self.moves.store(moves + 1, Ordering::Release);
    }

    /// Takes the message out of the slot. Returns `None` if the slot is empty.
    #[inline]
    pub(super) fn take(&self, _: Receiving) -> Option<M> {
        let moves = self.full()?;
        // SAFETY: `full` loaded an odd `moves` with acquire ordering, so the slot contains a message. `Receiving`
        // proves that no other thread takes this message. The store below makes `moves` even, so the slot is not read
        // twice.
        let message = unsafe { self.read() };
        self.moves.store(moves + 1, Ordering::Release);
        Some(message)
    }

    /// Takes the message out of the slot, and passes the message to the closure `take`. In contrast to the method
    /// [`take`](Self::take), this method moves the message only once, from the slot to its final place.
    #[inline]
    pub(super) fn take_with(&self, _: Receiving, take: impl FnOnce(M)) {
        let Some(moves) = self.full() else { return };
        // SAFETY: `full` loaded an odd `moves` with acquire ordering, so the slot contains a message. `Receiving`
        // proves that no other thread takes this message. The store below makes `moves` even, so the slot is not read
        // twice.
        let message = unsafe { self.read() };
        // The store precedes the call of `take`, because a panic in `take` must not cause a second read of the message.
        self.moves.store(moves + 1, Ordering::Release);
        take(message);
    }

    /// Returns `moves` if the slot contains a message. Otherwise, returns `None`.
    #[inline]
    fn full(&self) -> Option<u64> {
        // Acquire pairs with the release store in `write`. With a weaker load, a reader could read the memory before
        // the message is in the memory. With a weaker load, `Inbox::glance` could also see the mark although the sender
        // of this message held the lock. This load need not order a write after the previous read, because the load in
        // `write` does this.
        let moves = self.moves.load(Ordering::Acquire);
        (!moves.is_multiple_of(2)).then_some(moves)
    }

    /// # Safety
    /// The caller has loaded an odd value of `moves` with acquire ordering. No other thread takes the message. Before
    /// the slot is read again, the caller makes `moves` even.
    #[inline]
    unsafe fn read(&self) -> M {
        // SAFETY: a message of type `M` was written before `moves` became odd, and the caller has acquired that write.
        // No thread writes while `moves` is odd, and the caller guarantees that no other thread reads. Therefore, the
        // message is moved out once.
        self.room.with_mut(|room| unsafe { room.cast::<M>().read() })
    }
}

impl<M> Drop for Slot<M> {
    fn drop(&mut self) {
        if self.is_full() {
            // SAFETY: `is_full` loaded an odd `moves` with acquire ordering, so the slot contains a message. `&mut
            // self` excludes other threads, and no code reads the slot after this read.
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
        let (slot, mut access) = Slot::new();
        let (receiving, turn) = (Receiving::closing(Some(InTurn::in_test())), InTurn::in_test());
        assert_eq!(slot.take(receiving), None);
        assert_eq!(slot.put(&mut access, one.clone()).is_ok(), fits);
        assert_eq!(
            slot.put(&mut access, other.clone()),
            Err(other.clone()),
            "the slot contains a message, or the message is too large"
        );
        assert_eq!((slot.is_full(), slot.take(receiving)), (fits, fits.then_some(one)));
        access.set_open(true, turn);
        assert_eq!(
            slot.put(&mut access, other.clone()),
            Err(other.clone()),
            "an open slot accepts no message under the lock"
        );
        access.set_open(false, turn);
        assert_eq!((slot.is_full(), slot.put(&mut access, other).is_ok()), (false, fits));
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
    fn the_method_take_with_counts_each_taken_message() {
        let (slot, mut access) = Slot::new();
        let mut taken = Vec::new();
        for n in 1..=3_u64 {
            slot.take_with(Receiving::closing(Some(InTurn::in_test())), |_| unreachable!("it is empty"));
            assert!(slot.put(&mut access, n).is_ok());
            slot.take_with(Receiving::closing(Some(InTurn::in_test())), |message| taken.push(message));
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
        fn owns(&self, _: *const ()) -> bool {
            true
        }

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

    /// An open slot refuses a message from the holder of the lock, because a sender without the lock could write the
    /// slot at the same time.
    #[test]
    fn a_recall_closes_the_slot_only_if_the_process_waits() {
        for (is_open, waits) in [(false, true), (false, false), (true, false), (true, true)] {
            let (slot, mut access) = Slot::new();
            let own = RecallCounter { waits, times: std::cell::Cell::new(0) };
            access.set_open(is_open, InTurn::in_test());
            access.close_or_recall(&own);
            assert_eq!(own.times.get(), usize::from(is_open));
            assert_eq!(slot.put(&mut access, 1).is_ok(), !is_open || waits);
            // If a wake-up does not return the right to run the process, the wake-up does not close the slot.
            let (slot, mut access) = Slot::new();
            access.set_open(is_open, InTurn::in_test());
            assert!(access.wake(&own).is_none());
            assert_eq!(slot.put(&mut access, 1).is_ok(), !is_open);
        }
    }

    /// A process that counts the calls of `deliver`. The run state of the process is never *Open*.
    struct DeliverCounter(std::cell::Cell<usize>);

    impl Own for DeliverCounter {
        fn owns(&self, _: *const ()) -> bool {
            true
        }

        fn wake(&self) -> Option<PendingSchedule> {
            None
        }

        fn deliver(&self) -> Option<PendingSchedule> {
            self.0.set(self.0.get() + 1);
            None
        }

        fn recall(&self) -> bool {
            true
        }
    }

    /// If a process were woken for a message that does not fit into the slot, the process would find no message.
    #[test]
    fn a_delivery_tries_to_wake_the_process_only_if_the_message_fits() {
        let own = DeliverCounter(std::cell::Cell::new(0));
        let (slot, _access) = Slot::new();
        assert_eq!(slot.deliver(&own, [1_u64; 4]).expect_err("it does not fit"), [1; 4]);
        assert_eq!(own.0.get(), 0);
        let (slot, _access) = Slot::new();
        assert_eq!(slot.deliver(&own, 1_u64).expect_err("the process does not wait"), 1);
        assert_eq!((own.0.get(), slot.is_full()), (1, false));
    }

    /// A process with another mailbox.
    struct Stranger;

    impl Own for Stranger {
        fn owns(&self, _: *const ()) -> bool {
            false
        }

        fn wake(&self) -> Option<PendingSchedule> {
            unreachable!("the slot must check the owner first")
        }

        fn deliver(&self) -> Option<PendingSchedule> {
            unreachable!("the slot must check the owner first")
        }

        fn recall(&self) -> bool {
            unreachable!("the slot must check the owner first")
        }
    }

    /// The run state of another process does not guard the slot.
    #[test]
    fn the_slot_refuses_the_run_state_of_another_process() {
        use std::panic::{AssertUnwindSafe, catch_unwind};

        let (slot, mut access) = Slot::new();
        access.set_open(true, InTurn::in_test());
        let refusals = [
            catch_unwind(AssertUnwindSafe(|| drop(slot.deliver(&Stranger, 1)))),
            catch_unwind(AssertUnwindSafe(|| drop(access.wake(&Stranger)))),
            catch_unwind(AssertUnwindSafe(|| access.close_or_recall(&Stranger))),
        ];
        for refusal in refusals {
            let payload = refusal.expect_err("it is another process");
            assert_eq!(payload.downcast_ref(), Some(&"the mailbox belongs to another process"));
        }
        assert!(!slot.is_full() && access.0, "the slot is unchanged");
    }

    #[test]
    fn a_message_in_the_slot_is_dropped_once() {
        let told = Arc::new(());
        let (slot, mut access) = Slot::new();
        assert!(slot.put(&mut access, Arc::clone(&told)).is_ok());
        drop(slot);
        assert_eq!(Arc::strong_count(&told), 1);
        let (slot, mut access) = Slot::new();
        assert!(slot.put(&mut access, Arc::clone(&told)).is_ok());
        let taken = slot.take(Receiving::closing(Some(InTurn::in_test())));
        drop(slot);
        assert_eq!((taken.is_some(), Arc::strong_count(&told)), (true, 2));
    }
}
