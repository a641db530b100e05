//! Mailbox of one process: a queue of messages and signals in arrival order. Each mailbox operation returns the
//! wake-ups that the operation causes.
//!
//! A sender appends a message under a short spin lock. Under this lock the sender also marks the process as woken.
//! After the unlock, the sender queues the process. The receiver takes out all queued messages in one lock operation.
//! No user code runs under the lock. Therefore, wakers are called and messages are dropped only after the unlock. A
//! closed mailbox refuses messages and signals. A bounded mailbox stores its messages in another type of queue: see
//! `bounded`.
//!
//! If a process waits for a message, a send to this process takes no lock. A receiver that finds no message opens the
//! mailbox's `slot` before the receiver waits. The sender that wakes the process is then the only thread with access to
//! the open slot. This sender writes its message into the slot and queues the process. The process takes the message in
//! its turn.
//!
//! After the process has taken a message from the slot, the receiver is still registered as waiting for the next
//! message. This registration needs no further lock operation. When the receiver registers itself as waiting, the
//! receiver sets a mark on the lock. The next lock operation of any thread clears the mark. If a sender stores a
//! message outside the slot, the mark is cleared, because the sender locks the mailbox. Therefore,
//! [`glance`](Inbox::glance) can check for messages without the lock: the function reads the slot and the mark. A
//! sender that takes the lock sees that the receiver is registered, and wakes the process. If a process is woken during
//! its turn, the process gets another turn.
//!
//! If a receiver takes a message from the slot and stays registered, the state of the thread contains a note about the
//! registration (`process::state::current`). The next receive operation removes the note. If the note still exists at
//! the end of the turn, the body does not wait for a message, and a new message must not wake the body. Therefore, the
//! end of the turn removes the registration ([`Inbox::unwait`]). If a pending receive operation was dropped, the
//! registration stays at the end of the turn. The inspection then shows that no operation waits ([`Inbox::note_left`]).
//!
//! Urgent messages have a separate queue: see `urgent`. The runtime measures the time that some of the messages spend
//! in the mailbox. The sender of a measured message always takes the lock: see `measured`.

pub(crate) mod bounded;
pub(crate) mod drained;
pub(crate) mod locked;
pub(crate) mod measured;
pub(crate) mod queue;
pub(crate) mod read_ahead;
pub(crate) mod receiver;
pub(crate) mod routed;
pub(crate) mod sender;
pub(crate) mod signals;
pub(crate) mod slot;
pub(crate) mod urgent;
pub(crate) mod wakes;

use std::task::Waker;

use crate::platform::sync::Lock;
use crate::process::mailbox::bounded::Bounded;
pub use crate::process::mailbox::bounded::MailboxCapacity;
pub(crate) use crate::process::mailbox::bounded::RoomWaiter;
pub(crate) use crate::process::mailbox::drained::Taken;
pub(crate) use crate::process::mailbox::locked::{ClosedContents, Unsent};
use crate::process::mailbox::locked::{LastReceive, Locked, RareParts, State, Waiting};
pub(crate) use crate::process::mailbox::measured::{MessageClock, MessageTimer};
use crate::process::mailbox::queue::Buffer;
pub(crate) use crate::process::mailbox::read_ahead::{ReadAhead, ReceiverTurn, Trial};
pub(crate) use crate::process::mailbox::receiver::{Gathered, Glance, Reader, ReceiverDuties};
pub(crate) use crate::process::mailbox::routed::{Router, Unrouted};
use crate::process::mailbox::slot::Slot;
pub(crate) use crate::process::mailbox::wakes::{Own, Wakes};
use crate::process::state::current::InTurn;
use crate::process::state::yield_check::YieldCheck;

/// Numbers that describe a mailbox, for inspection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MailboxFigures {
    /// Number of queued messages.
    pub(crate) messages: usize,
    /// Number of queued signals.
    pub(crate) signals: usize,
    /// Largest number of messages that were queued at one time: see [`Inbox::high`].
    pub(crate) peak: usize,
    /// Whether a receiver waits for the next message or signal.
    pub(crate) is_awaited: bool,
    /// Whether another process, or a thread outside the process, has polled the most recent receive operation.
    pub(crate) is_read_elsewhere: bool,
    /// True if the receiver waits for any message. False for a selective receive, which may have skipped messages.
    is_next_awaited: bool,
    /// Capacity of the mailbox, if the mailbox is full now.
    pub(crate) full_at: Option<usize>,
    /// Number of senders that wait for free space.
    pub(crate) waiting_senders: usize,
    /// Memory of the queues outside the control block, in bytes.
    pub(crate) bytes: usize,
    /// Time, in ns, of the first recorded arrival of a message after the most recent removal of a message. Since this
    /// time, the mailbox has not been empty, and the receiver has taken out no message. `None` if this time is not
    /// known.
    pub(crate) unread_since: Option<u64>,
}

impl MailboxFigures {
    /// Returns whether the process has received all its messages and waits for the next message.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_next_awaited && self.messages == 0
    }
}

/// The part of a mailbox that the senders and the receiver share.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    /// Space for one small message. The receiver reads this message before all other messages.
    slot: Slot<M>,
    /// The lock does not protect the [`YieldCheck`]. This value does not belong to the mailbox. The value is stored
    /// here, because the value fits into the padding of the lock. The control block has no other unused space.
    state: Lock<State<M>, YieldCheck>,
}

impl<M> Inbox<M> {
    /// Creates an inbox with the capacity `bound`. If there is a `limit`, the limit can lower the capacity: see
    /// [`MailboxCapacity::within`].
    #[inline(always)]
    pub(crate) fn new(bound: MailboxCapacity, limit: Option<usize>) -> Self {
        let bounded =
            |(policy, most)| Box::new(RareParts { bounded: Some(Bounded::new(policy, most)), ..RareParts::default() });
        // The value of `aside` is computed before the struct expression. Otherwise, the call of `within` would make the
        // compiler build the struct in one place and then copy the struct to its final place.
        let aside = bound.within(limit).map(bounded);
        let (slot, access) = Slot::new();
        Self {
            slot,
            state: Lock::with_beside(
                YieldCheck::new(),
                State {
                    buffer: Buffer::new(),
                    access,
                    aside,
                    waiting: Waiting::Absent,
                    last_receive: LastReceive::Ordinary,
                    closed: false,
                    longest: 0,
                },
            ),
        }
    }

    /// Creates the closed inbox of a process that never runs.
    pub(crate) fn new_closed() -> Self {
        let inbox = Self::new(MailboxCapacity::Unbounded, None);
        inbox.lock().closed = true;
        inbox
    }

    #[inline]
    fn lock(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock() }
    }

    /// Locks the inbox for the receiver. A sender in a loop may take the lock repeatedly. Therefore, the receiver
    /// pauses between its attempts to take the lock, and each pause is longer than the previous pause.
    #[inline]
    fn lock_to_receive(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock_patiently() }
    }

    /// Returns two numbers: the load, and a number that changes when the receiver takes out messages. The load is the
    /// number of queued messages, plus one while the receiver handles a message. If the mailbox is unbounded, both
    /// numbers are zero.
    pub(crate) fn load(&self) -> (usize, u64) {
        let mut state = self.state.lock();
        let urgent = state.urgent_len();
        state.bounded().map_or((0, 0), |bounded| (bounded.load() + urgent, bounded.taken()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Takes the waker of the receiver and the wakers of the waiting senders. This function is called after the inbox
    /// was closed and the process has exited.
    ///
    /// If a receiver first waits with a stored waker, and later waits through the task of the process, the stored waker
    /// stays in the inbox. This function also takes a waker that has stayed in the inbox. A stored waker may refer to
    /// the process itself. If this function left a stored waker in the inbox, this waker and the process could form a
    /// reference cycle. The memory of the process would then never be freed.
    pub(crate) fn take_wakers(&self) -> (Option<Waker>, Vec<Waker>) {
        let mut state = self.state.lock();
        (state.other(), state.bounded().map_or_else(Vec::new, Bounded::take_sender_wakers))
    }

    /// Takes a waker that a receiver stored after the call of [`take_wakers`](Self::take_wakers). A receiver calls this
    /// function after the receiver has found that the process has exited.
    #[cold]
    pub(crate) fn take_receiver_waker(&self) -> Option<Waker> {
        self.state.lock().other()
    }

    /// Returns the number of queued messages and signals.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.queued_len() + state.urgent_len() + state.aside.as_deref().map_or(0, |aside| aside.signals.len())
    }

    /// Returns the number of queued messages, including the urgent messages.
    pub(crate) fn messages(&self) -> usize {
        let state = self.lock();
        state.queued_len() + state.urgent_len()
    }

    /// Returns the largest number of messages that were queued at one time. For an unbounded mailbox, the result is the
    /// larger of two numbers. The first number is the largest length that was recorded. The length is recorded only
    /// when messages are taken out and when an urgent message arrives. The second number is the number of ordinary
    /// messages that are queued now.
    pub(crate) fn high(&self) -> usize {
        self.lock().peak()
    }

    /// Returns the record of the most recent yield check. In a yield check, the process asks whether the process should
    /// yield.
    pub(crate) fn yield_check(&self) -> &YieldCheck {
        self.state.beside()
    }

    /// Returns the lengths of the queues, and whether a receiver waits. All results are read under one lock operation.
    pub(crate) fn figures(&self) -> MailboxFigures {
        let mut state = self.lock();
        let (full_at, waiting_senders) = state.bounded().map_or((None, 0), |bounded| bounded.fullness());
        let unread_since = match state.bounded() {
            Some(bounded) => bounded.unread_since(),
            None => state.buffer.unread_since(),
        };
        MailboxFigures {
            full_at,
            waiting_senders,
            messages: state.queued_len() + state.urgent_len(),
            signals: state.aside.as_deref().map_or(0, |aside| aside.signals.len()),
            peak: state.peak(),
            is_awaited: state.last_receive != LastReceive::Dropped && !matches!(state.waiting, Waiting::Absent),
            is_read_elsewhere: state.last_receive == LastReceive::Elsewhere,
            is_next_awaited: state.last_receive == LastReceive::Ordinary && !matches!(state.waiting, Waiting::Absent),
            bytes: state.buffer.bytes() + state.aside.as_deref().map_or(0, RareParts::bytes),
            unread_since,
        }
    }

    /// Closes the inbox. The process exits, and the caller has the right to run the process. If no process owns the
    /// inbox, `turn` is `None`. A closed inbox refuses all messages and signals. Returns the content of the inbox, or
    /// `None` if the inbox was empty.
    ///
    /// This function wakes no waiting receiver or sender. [`take_wakers`](Self::take_wakers) takes the wakers of the
    /// receiver and of the senders later, when the exit is known. If this function woke the receiver, the receiver
    /// would not find an exit yet, and would wait again.
    #[inline]
    pub(crate) fn close(&self, turn: Option<InTurn>) -> Option<ClosedContents<M>> {
        let mut state = self.lock();
        state.closed = true;
        let is_bare = state.aside.is_none() && state.messages().is_bare();
        (!is_bare).then(|| state.take_remains(turn))
    }
}
