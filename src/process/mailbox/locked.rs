//! Operations on a mailbox, for a thread that holds the lock of the mailbox. A mailbox consists of its messages, its
//! signals and the waiting receiver. The messages are in the slot, in the buffer, or in the queue of a bounded
//! mailbox.

use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use crate::platform::sync::{Arc, LockGuard};
use crate::process::catch::Held;
use crate::process::event::Signal;
use crate::process::mailbox::Inbox;
use crate::process::mailbox::bounded::{Bounded, Pushed, RoomWaiter, without_empty_places};
use crate::process::mailbox::drained::Taken;
use crate::process::mailbox::measured::MessageClock;
use crate::process::mailbox::queue::{Buffer, Queue};
use crate::process::mailbox::read_ahead::{ReadAhead, Receiving};
use crate::process::mailbox::routed::{Forwarding, Router};
use crate::process::mailbox::signals::Signals;
use crate::process::mailbox::slot::{Slot, SlotAccess};
use crate::process::mailbox::wakes::{Own, Wakes};
use crate::process::state::current::InTurn;
use crate::process::state::yield_check::YieldCheck;

/// The receiver that waits for the next message.
///
/// ```text
///          drain / receive finds nothing             push
///  Absent ───────────────────────────────▶ Own | Other ────▶ Absent, and the sender must wake the receiver
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Waiting {
    /// No receiver waits. A push in this state causes no wake-up, because the receiver will find the message at its
    /// next check of the mailbox.
    #[default]
    Absent,
    /// The process's own task waits.
    Own,
    /// A combinator, a guest thread or a task of another executor waits. The waker of this receiver is in
    /// [`RareParts`].
    Other,
}

#[derive(Debug)]
pub(super) struct State<M> {
    pub(super) buffer: Buffer<M>,
    pub(super) access: SlotAccess,
    pub(super) aside: Option<Box<RareParts<M>>>,
    pub(super) waiting: Waiting,
    pub(super) last_receive: LastReceive,
    pub(super) closed: bool,
    /// Largest recorded length of the mailbox. The length is recorded when messages are taken out, and when an urgent
    /// message arrives. This number is used only if the mailbox is unbounded.
    pub(super) longest: u32,
}

/// Information about the most recent receive operation. Only the inspection reads this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastReceive {
    Ordinary,
    /// The operation may have skipped messages.
    Selective,
    /// The operation of the registered receiver was dropped.
    Dropped,
    /// Another process or a thread outside the process has polled the operation.
    Elsewhere,
}

/// Rarely used parts of a mailbox. A mailbox allocates these parts at the first use.
#[derive(Debug)]
pub(super) struct RareParts<M> {
    pub(super) signals: Signals,
    /// Waker of the receiver in the state [`Waiting::Other`].
    pub(super) other: Option<Waker>,
    pub(super) bounded: Option<Bounded<M>>,
    /// Unread urgent messages, oldest first. While the receiver looks at a message, the place of the message is `None`.
    /// Therefore the other messages need not move, and the place still counts towards the capacity.
    pub(super) urgent: VecDeque<Option<M>>,
    pub(super) forwarding: Forwarding<M>,
}

impl<M> Default for RareParts<M> {
    fn default() -> Self {
        Self {
            signals: Signals::default(),
            other: None,
            bounded: None,
            urgent: VecDeque::new(),
            forwarding: Forwarding::Here,
        }
    }
}

impl<M> RareParts<M> {
    /// Returns the memory of these parts and of their queues of messages, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let bounded = self.bounded.as_ref().map_or(0, Bounded::bytes);
        size_of::<Self>() + self.urgent.capacity() * size_of::<Option<M>>() + bounded
    }
}

/// An inbox and the guard of its lock.
pub(super) struct Locked<'a, M> {
    pub(super) slot: &'a Slot<M>,
    pub(super) state: LockGuard<'a, State<M>, YieldCheck>,
}

impl<M> Deref for Locked<'_, M> {
    type Target = State<M>;

    #[inline]
    fn deref(&self) -> &State<M> {
        &self.state
    }
}

impl<M> DerefMut for Locked<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State<M> {
        &mut self.state
    }
}

type Discard<M> = (Option<Signals>, Option<Waker>, Option<Arc<dyn Router<M>>>);

/// Content that an inbox had when it was closed.
#[derive(Debug)]
pub(crate) struct ClosedContents<M> {
    /// The unread messages. The urgent messages come first.
    messages: Vec<M>,
    urgent: usize,
    /// Router that takes the unread messages. Most mailboxes have no router for the unread messages.
    inheriting_router: Option<Arc<dyn Router<M>>>,
    /// The unread signals, the waker of a task that waits for room, and the router. When this value is dropped, the
    /// signals, the waker and the router are dropped.
    _rest: Held<Discard<M>>,
}

impl<M> ClosedContents<M> {
    /// Passes the messages to the `inheriting_router`. The receiver may have returned messages to `inbox`. The returned
    /// messages are older than the other messages, so the returned messages come directly behind the urgent messages.
    /// Returns the messages that no router has taken, and that no process will read.
    pub(crate) fn settle(self, inbox: &Inbox<M>) -> Vec<M> {
        let Self { mut messages, urgent, inheriting_router, .. } = self;
        let Some(heir) = inheriting_router else { return messages };
        let mut returned = inbox.take_returned();
        if !returned.is_empty() {
            let mut later = messages.split_off(urgent);
            messages.append(&mut returned);
            messages.append(&mut later);
        }
        if messages.is_empty() { messages } else { heir.inherit(messages).err().unwrap_or_default() }
    }
}

/// Result of a push that did not store the pushed message, or that dropped another message.
#[derive(Debug)]
pub(crate) enum Unsent<M> {
    Closed(M),
    Full(M),
    /// The message must be forwarded to this router or stored in this mailbox.
    Routed(M, Arc<dyn Router<M>>),
    /// There was no room, and the policy dropped this message. The dropped message is either the pushed message or the
    /// oldest message of the mailbox.
    Dropped(M, Wakes),
}

impl<M> Locked<'_, M> {
    /// Returns the messages of an unbounded mailbox.
    #[inline]
    pub(super) fn messages(&mut self) -> Queue<'_, M> {
        let State { buffer, access, .. } = &mut *self.state;
        buffer.behind(self.slot, access)
    }

    /// Takes the content of a closed inbox, except some wakers.
    #[cold]
    pub(super) fn take_remains(&mut self, turn: Option<InTurn>) -> ClosedContents<M> {
        // The wakers of the receiver and of the waiting senders stay in the inbox. `Inbox::take_wakers` takes these
        // wakers when the exit is known.
        let signals = self.aside.as_deref_mut().map(|aside| mem::take(&mut aside.signals));
        let forwarding = self.aside.as_deref_mut().map(|aside| mem::replace(&mut aside.forwarding, Forwarding::Here));
        let (heir, router) = match (forwarding, self.aside.as_deref_mut()) {
            (Some(Forwarding::Left { router, returned }), Some(aside)) => {
                aside.forwarding = Forwarding::Closing { returned };
                (Some(router), None)
            }
            (Some(Forwarding::Routed { router, .. }), _) => (None, Some(router)),
            _ => (None, None),
        };
        let watcher = self.bounded().and_then(Bounded::take_watcher);
        let urgent = self.aside.as_deref_mut().map(|aside| mem::take(&mut aside.urgent)).unwrap_or_default();
        let mut messages = self.take_all(Receiving::closing(turn));
        let mut urgent_len = 0;
        if !urgent.is_empty() {
            let mut ordinary = mem::replace(&mut messages, without_empty_places(urgent));
            urgent_len = messages.len();
            messages.append(&mut ordinary);
        }
        let rest = Held::new((signals, watcher, router));
        ClosedContents { messages, urgent: urgent_len, inheriting_router: heir, _rest: rest }
    }

    /// Appends a signal behind all messages that are queued now.
    #[inline]
    pub(super) fn append(&mut self, signal: Signal) {
        let others = self.queued_len_without_slot();
        self.state.aside.get_or_insert_default().signals.append(signal, self.slot, others);
    }

    /// Computes the final positions of the new signals: see [`Signals::place`]. Each operation of a receiver begins
    /// with this call.
    #[inline]
    pub(super) fn place_signals(&mut self) {
        if let Some(aside) = self.state.aside.as_deref_mut() {
            aside.signals.place(self.slot);
        }
    }

    /// Moves the unread messages and signals of a process to the next receiver. This function returns the messages, and
    /// puts the signals back into this inbox.
    #[cold]
    pub(super) fn take_over(&mut self, taken: &mut Taken<M>) -> VecDeque<M> {
        taken.hand_over(&mut self.state.aside.get_or_insert_default().signals, self.slot)
    }

    /// Appends a message to this inbox, or lets the message wait for room: see
    /// [`Inbox::push_or_wait`](crate::process::mailbox::Inbox::push_or_wait). The inbox must not be closed. This
    /// function does not forward the message.
    pub(super) fn store_or_wait<O: Own + MessageClock>(
        &mut self,
        own: &O,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Wakes), Unsent<M>> {
        if let Some(bounded) = self.bounded() {
            match bounded.push_or_wait(message, waker, own) {
                Ok(None) => {}
                Ok(number) => return Ok((number, Wakes::default())),
                Err(message) => return Err(Unsent::Full(message)),
            }
            accepted();
            return Ok((None, self.wakes_for_receiver(own)));
        }
        let wakes = self.wakes_for_receiver(own);
        self.messages().push(message, own);
        accepted();
        Ok((None, wakes))
    }

    /// Returns the number of queued messages.
    pub(super) fn queued_len(&self) -> usize {
        usize::from(self.slot.is_full()) + self.queued_len_without_slot()
    }

    /// Returns the largest number of messages: see [`Inbox::high`](crate::process::mailbox::Inbox::high).
    pub(super) fn peak(&mut self) -> usize {
        let present = self.queued_len() + self.urgent_len();
        let peak = match self.bounded() {
            Some(bounded) => bounded.high(),
            // If a message in the slot was the only message of the mailbox, `longest` does not count this message. If
            // `Slot::taken` returns more than 0, the slot contained a message at some time.
            None => (self.longest as usize).max(usize::from(self.slot.taken() != 0)),
        };
        peak.max(present)
    }

    /// Records the length of a mailbox with urgent messages. The other records do not count the urgent messages.
    #[cold]
    pub(super) fn record_with_urgent(&mut self) {
        let len = self.queued_len() + self.urgent_len();
        match self.bounded() {
            Some(bounded) => bounded.record(len),
            None => self.longest = self.longest.max(u32::try_from(len).unwrap_or(u32::MAX)),
        }
    }

    fn take_all(&mut self, by: Receiving) -> Vec<M> {
        match self.bounded() {
            Some(bounded) => bounded.take_all(),
            None => self.messages().take_all(by),
        }
    }

    /// Moves all messages and signals to `taken`. Returns the tasks that the caller must wake, because the mailbox now
    /// has room.
    pub(super) fn drain_into(&mut self, by: Receiving, taken: &mut Taken<M>) -> Vec<RoomWaiter> {
        if let Some(aside) = self.state.aside.as_deref_mut() {
            let ahead = taken.ahead();
            aside.signals.drain(self.slot, &mut taken.signals, ahead);
        }
        let behind = self.queued_len_without_slot();
        self.took(behind);
        match self.bounded() {
            Some(bounded) => bounded.drain_into(&mut taken.messages),
            None => {
                self.record_burst();
                self.messages().drain_into(by, &mut taken.messages);
                Vec::new()
            }
        }
    }

    /// Records the number of messages that the caller is about to take out under this lock.
    #[inline]
    pub(super) fn record_burst(&mut self) {
        let burst = self.messages().len();
        self.longest = self.longest.max(u32::try_from(burst).unwrap_or(u32::MAX));
    }

    /// Returns the next signal if no message comes before this signal. The parameter `front` is the number of messages
    /// that the receiver has taken and not read.
    pub(super) fn pop_signal(&mut self, front: usize) -> Option<Signal> {
        self.state.aside.as_deref_mut()?.signals.pop(self.slot, front)
    }

    /// Takes the oldest message, and moves the other messages to `front`. The buffer `front` must be empty.
    #[inline]
    pub(super) fn pop(&mut self, by: Receiving, front: &mut ReadAhead<M>) -> Option<M> {
        let mut message = None;
        self.pop_into(by, front, &mut message);
        message
    }

    /// Does the same as [`pop`](Self::pop), and stores the message in `message`. The caller passes `None` in `message`.
    #[inline]
    pub(super) fn pop_into(&mut self, by: Receiving, front: &mut ReadAhead<M>, message: &mut Option<M>) {
        if self.messages().len() > 1 {
            self.gather(by, front);
            *message = front.pop();
            return;
        }
        let is_first = self.slot.is_full();
        *message = self.messages().pop_only(by);
        if message.is_none() {
            *message = self.bounded().and_then(Bounded::pop);
            if message.is_none() {
                return front.shrink();
            }
        }
        if !is_first {
            self.took(1);
            self.longest = self.longest.max(1);
        }
    }

    pub(super) fn gather(&mut self, by: Receiving, front: &mut ReadAhead<M>) -> Option<()> {
        if self.messages().len() == 0 {
            front.shrink();
            return None;
        }
        let behind = self.buffer.len();
        self.took(behind);
        self.record_burst();
        self.messages().drain_into(by, &mut front.make().queue);
        Some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued_len() == 0 && self.has_no_signals()
    }

    /// Registers the task as the waiting receiver. The caller has found the mailbox empty, or has taken its whole
    /// content. If `may_open_slot` is set and the mailbox [is plain](State::is_plain), this function opens the slot and
    /// marks the lock. The mark stays until the next lock operation. Returns whether the slot is open.
    #[inline]
    pub(super) fn wait(mut self, may_open_slot: bool, turn: InTurn, receive: LastReceive) -> bool {
        self.register(Waiting::Own, receive);
        let slot_is_open = may_open_slot && self.is_plain();
        self.access.set_open(slot_is_open, turn);
        if slot_is_open {
            self.state.mark();
        }
        slot_is_open
    }
}

impl<M> State<M> {
    /// Registers a receiver that waits.
    #[inline]
    pub(super) fn register(&mut self, receiver: Waiting, receive: LastReceive) {
        self.waiting = receiver;
        self.last_receive = receive;
    }

    /// Records that the waiting receiver is woken, and returns the wake-up. A new message causes this wake-up.
    #[inline]
    pub(super) fn wakes_for_receiver(&mut self, own: &impl Own) -> Wakes {
        match mem::take(&mut self.waiting) {
            Waiting::Absent => Wakes::default(),
            Waiting::Own => Wakes { own: self.access.wake(own), other: None },
            Waiting::Other => Wakes { own: None, other: self.other() },
        }
    }

    /// Returns the wake-ups for a signal. The signal wakes the process's own task and, if a receiver waits in another
    /// task, also this receiver.
    pub(super) fn wakes_for_all(&mut self, own: &impl Own) -> Wakes {
        let other = self.take_other();
        self.waiting = Waiting::Absent;
        Wakes { own: self.access.wake(own), other }
    }

    /// If a receiver waits in the state [`Waiting::Other`], ends this state and returns the waker of the receiver.
    pub(super) fn take_other(&mut self) -> Option<Waker> {
        let Waiting::Other = self.waiting else { return None };
        self.waiting = Waiting::Absent;
        self.other()
    }

    pub(super) fn other(&mut self) -> Option<Waker> {
        self.aside.as_deref_mut()?.other.take()
    }

    /// Removes the registration of the task as the waiting receiver, and closes the slot.
    #[inline]
    pub(super) fn stop_waiting(&mut self, turn: InTurn) {
        if let Waiting::Own = self.waiting {
            self.waiting = Waiting::Absent;
        }
        self.access.set_open(false, turn);
    }

    /// Returns whether the mailbox is unbounded, contains no signals and no urgent messages, and does not forward its
    /// messages. If the result is true, a new message is stored in the slot or the buffer. A receiver then has to check
    /// only the slot and the buffer.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.aside.as_deref().is_none_or(|aside| {
            aside.signals.is_empty()
                && aside.urgent.is_empty()
                && aside.bounded.is_none()
                && !matches!(aside.forwarding, Forwarding::Routed { .. })
        })
    }

    /// Returns the number of unread urgent messages.
    #[inline]
    pub(super) fn urgent_len(&self) -> usize {
        self.aside.as_deref().map_or(0, |aside| aside.urgent.len())
    }

    #[inline]
    pub(super) fn bounded(&mut self) -> Option<&mut Bounded<M>> {
        self.aside.as_deref_mut()?.bounded.as_mut()
    }

    /// Returns the router to which a new message must be forwarded. Returns `None` if the message is stored in this
    /// mailbox.
    pub(super) fn router(&self) -> Option<Arc<dyn Router<M>>> {
        match &self.aside.as_deref()?.forwarding {
            Forwarding::Routed { router, some_wait: false } => Some(Arc::clone(router)),
            Forwarding::Routed { .. } | Forwarding::Left { .. } | Forwarding::Closing { .. } | Forwarding::Here => None,
        }
    }

    pub(super) fn some_wait(&mut self, yes: bool) {
        if let Some(Forwarding::Routed { some_wait, .. }) = self.aside.as_deref_mut().map(|aside| &mut aside.forwarding)
        {
            *some_wait = yes;
        }
    }

    /// Does the work of [`Inbox::push`](crate::process::mailbox::Inbox::push) for a bounded mailbox. This function is
    /// separate and cold, so that the code of a push to an unbounded mailbox stays small.
    #[cold]
    pub(super) fn push_bounded<O: Own + MessageClock>(&mut self, own: &O, message: M) -> Result<Wakes, Unsent<M>> {
        if let Some(router) = self.router() {
            return Err(Unsent::Routed(message, router));
        }
        match self.bounded().map(|bounded| bounded.push(message, own)) {
            Some(Pushed::Rejected(message)) => Err(Unsent::Full(message)),
            Some(Pushed::Newest(message)) => Err(Unsent::Dropped(message, Wakes::default())),
            Some(Pushed::Oldest(oldest)) => {
                self.took(1);
                match oldest {
                    Some(oldest) => Err(Unsent::Dropped(oldest, self.wakes_for_receiver(own))),
                    None => Ok(self.wakes_for_receiver(own)),
                }
            }
            Some(Pushed::Stored) | None => Ok(self.wakes_for_receiver(own)),
        }
    }

    /// Returns the number of queued messages, without the message in the slot.
    pub(super) fn queued_len_without_slot(&self) -> usize {
        let bounded = self.aside.as_deref().and_then(|aside| aside.bounded.as_ref());
        self.buffer.len() + bounded.map_or(0, Bounded::len)
    }

    /// Takes the task that the caller must wake, because the mailbox now has room.
    #[inline]
    pub(super) fn take_room_waiter(&mut self) -> Option<RoomWaiter> {
        self.bounded()?.take_room_waiter()
    }

    /// Counts messages that were taken from anywhere except the slot.
    #[inline]
    pub(super) fn took(&mut self, messages: usize) {
        if let Some(aside) = self.aside.as_deref_mut() {
            aside.signals.took(messages);
        }
    }

    pub(super) fn has_no_signals(&self) -> bool {
        self.aside.as_deref().is_none_or(|aside| aside.signals.is_empty())
    }
}
