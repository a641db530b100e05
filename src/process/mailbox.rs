//! Mailbox of one process: the queue of its messages and signals, in arrival order, and the wake-ups that they cause.
//!
//! Senders append under a short spin lock. Under this lock they also mark the process as woken; they queue the process
//! after the unlock. The receiver takes out all queued messages under one lock. No user code runs under the lock:
//! wakers are called, and messages are dropped, after the unlock. A closed mailbox refuses messages and signals. A
//! mailbox with a bound keeps its messages in another queue: see `bounded`.
//!
//! A message to a process that waits for a message takes no lock. A receiver that finds no message opens the mailbox's
//! `slot` before it waits. The sender that wakes the process then has exclusive access to the slot: it writes the
//! message there and queues the process. The process takes the message in its turn.
//!
//! The receiver stays registered for the next message without another lock. Its last unlock left a mark on the lock,
//! and the next lock removes the mark. While the mark is there, only a delivered message can have arrived, so
//! [`glance`](Inbox::glance) answers without the lock. A sender that takes the lock finds the receiver registered and
//! wakes the process. A process that is woken during its turn gets another turn.
//!
//! A receiver that takes a delivered message is still registered for the next one. The turn notes this
//! (`process::state::current`). The next look into the mailbox removes the note. If the note is still there when the
//! turn ends, the body waits for something else, and a message must not wake it ([`Inbox::unwait`]).

pub(crate) mod bounded;
pub(crate) mod drained;
pub(crate) mod locked;
pub(crate) mod queue;
pub(crate) mod read_ahead;
pub(crate) mod receiver;
pub(crate) mod routed;
pub(crate) mod sender;
pub(crate) mod signals;
pub(crate) mod slot;
pub(crate) mod wakes;

use std::task::Waker;

use crate::platform::sync::Lock;
use crate::process::mailbox::bounded::Bounded;
pub use crate::process::mailbox::bounded::MailboxCapacity;
pub(crate) use crate::process::mailbox::bounded::RoomWaiter;
pub(crate) use crate::process::mailbox::drained::Taken;
pub(crate) use crate::process::mailbox::locked::{ClosedContents, Unsent};
use crate::process::mailbox::locked::{Locked, RareParts, State, Waiting};
use crate::process::mailbox::queue::Buffer;
pub(crate) use crate::process::mailbox::read_ahead::{ReadAhead, ReceiverTurn, Trial};
pub(crate) use crate::process::mailbox::receiver::{Gathered, Glance, Reader, Spare};
pub(crate) use crate::process::mailbox::routed::{Router, Unrouted};
use crate::process::mailbox::slot::Slot;
pub(crate) use crate::process::mailbox::wakes::{Own, Wakes};

/// Shared half of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    /// Holds one small message, which the receiver reads before all other messages.
    slot: Slot<M>,
    state: Lock<State<M>>,
}

impl<M> Inbox<M> {
    /// Creates an inbox with this bound. A `limit` applies instead of the bound if it is lower, or if there is no
    /// bound.
    #[inline(always)]
    pub(crate) fn new(bound: MailboxCapacity, limit: Option<usize>) -> Self {
        let bounded =
            |(policy, most)| Box::new(RareParts { bounded: Some(Bounded::new(policy, most)), ..RareParts::default() });
        // Evaluated before the struct expression, so that no call interrupts the construction of the struct in its
        // final place.
        let aside = bound.within(limit).map(bounded);
        let (slot, lent) = Slot::new();
        Self {
            slot,
            state: Lock::new(State {
                buffer: Buffer::new(),
                lent,
                aside,
                waiting: Waiting::Nobody,
                closed: false,
                longest: 0,
            }),
        }
    }

    #[inline]
    fn lock(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock() }
    }

    /// Locks for the receiver, which retries after growing pauses: a sender in a loop may take the lock again and
    /// again.
    #[inline]
    fn lock_to_receive(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock_patiently() }
    }

    /// Returns the number of messages before the receiver, including the message that it handles now, and the number of
    /// the oldest message. That number grows when a message is popped, drained, or dropped as the oldest. Returns zeros
    /// if there is no bound.
    pub(crate) fn load(&self) -> (usize, u64) {
        self.state.lock().bounded().map_or((0, 0), |bounded| (bounded.load(), bounded.taken()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Takes the waker of the receiver and the wakers of the waiting senders, once the inbox is closed and the process
    /// has exited.
    ///
    /// The receiver may have waited as the task of the process since it stored its waker. The waker is taken
    /// nevertheless: it may refer to the process itself, and this reference cycle would keep the memory of the process
    /// allocated for ever.
    pub(crate) fn disperse(&self) -> (Option<Waker>, Vec<Waker>) {
        let mut state = self.state.lock();
        (state.other(), state.bounded().map_or_else(Vec::new, Bounded::take_sender_wakers))
    }

    /// Takes the waker that a receiver stored after [`disperse`](Self::disperse), once the receiver has found that the
    /// process has exited.
    #[cold]
    pub(crate) fn forget_reader(&self) -> Option<Waker> {
        self.state.lock().other()
    }

    /// Number of queued messages and signals.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.queued_len() + state.aside.as_deref().map_or(0, |aside| aside.signals.len())
    }

    /// Largest number of messages that were queued at one time. Without a bound: the largest number that was taken out
    /// under one lock, or is queued now.
    pub(crate) fn high(&self) -> usize {
        let mut state = self.lock();
        match state.bounded() {
            Some(bounded) => bounded.high(),
            // A delivered message was alone, or it was counted together with the messages behind it.
            None => state.messages().len().max(state.longest as usize).max(usize::from(self.slot.taken() != 0)),
        }
    }

    /// Closes the inbox: it refuses all messages and signals from now on. Returns its content, or `None` if it held
    /// nothing.
    ///
    /// This wakes no waiting receiver or sender; [`disperse`](Self::disperse) does, once the exit is known. A receiver
    /// that was woken earlier would find nothing and wait again.
    #[inline]
    pub(crate) fn close(&self) -> Option<ClosedContents<M>> {
        let mut state = self.lock();
        state.closed = true;
        let is_bare = state.aside.is_none() && state.messages().is_bare();
        (!is_bare).then(|| state.take_remains())
    }
}
