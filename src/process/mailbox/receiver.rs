//! The receiving side of a mailbox. The receiver takes one message or all messages, or registers itself as waiting.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use crate::platform::sync::planted;
use crate::process::event::Signal;
use crate::process::mailbox::locked::{LastReceive, Locked, Waiting};
use crate::process::mailbox::read_ahead::{Claim, Receiving};
use crate::process::mailbox::routed::Forwarding;
use crate::process::mailbox::{Inbox, Own, ReadAhead, ReceiverTurn, RoomWaiter, Taken, Trial, Wakes};
use crate::process::state::current::InTurn;

/// The receiver that requests a message. If there is no message, the receiver waits.
#[derive(Debug)]
pub(crate) enum Reader {
    /// The process's own task polls the receiver directly, and the current thread is in a turn of the process.
    Task {
        receiver_turn: ReceiverTurn,
        /// Whether the task may open the slot. If the steps of the process are counted, the task does not open the
        /// slot. An open slot may cause an unnecessary wake-up, and the step after this wake-up would be counted.
        may_open_slot: bool,
    },
    /// A combinator, another thread or another process polls the receiver with this waker. The process's own task does
    /// not poll the receiver directly.
    Other(Waker),
}

/// State of an inbox that a thread observes without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glance {
    /// The receiver still waits, and nothing has arrived.
    Empty,
    /// The receiver still waits, and a message was [delivered](Inbox::take_delivered) into the slot.
    Delivered,
    /// The state is unknown without the lock, so the caller must check under the lock.
    Unknown,
}

/// The duties of a receiver after the receiver has released the lock.
#[derive(Debug)]
#[must_use = "a sender that is not woken waits for ever"]
pub(crate) struct ReceiverDuties {
    /// A waker that the receiver no longer uses. The receiver must drop this waker.
    pub(crate) former: Option<Waker>,
    pub(crate) room_waiter: Option<RoomWaiter>,
    /// True if the task is registered as the waiting receiver and the slot is open.
    pub(crate) slot_is_open: bool,
    /// Whether another receiver has replaced this receiver. If the value is true, the receiver has taken nothing and
    /// does not wait.
    pub(crate) replaced: bool,
    /// Whether an urgent message has arrived. If the value is true, the receiver has taken nothing and does not wait,
    /// and must check for urgent messages again.
    pub(crate) urgent: bool,
}

impl ReceiverDuties {
    #[inline]
    fn of_task(slot_is_open: bool, room_waiter: Option<RoomWaiter>) -> Self {
        Self { former: None, room_waiter, slot_is_open, replaced: false, urgent: false }
    }

    #[inline]
    fn of_other(former: Option<Waker>, room_waiter: Option<RoomWaiter>) -> Self {
        Self { former, room_waiter, slot_is_open: false, replaced: false, urgent: false }
    }
}

/// The duties of the caller after all messages were taken out. The caller must wake each task of the list, because the
/// mailbox now has room. The caller must also perform the wake-ups that the admitted messages cause.
pub(crate) type Admitted = Option<Box<(Vec<RoomWaiter>, Wakes)>>;

/// Result of [`Inbox::gather_or_wait`] if there was a message.
#[derive(Debug)]
pub(crate) enum Gathered<M> {
    /// The messages were moved to the read-ahead buffer.
    Ahead,
    /// A message that the receiver inspects. The receiver must either [put the message back](Inbox::fill) or [free the
    /// place](Inbox::settle) of the message.
    One(M),
}

impl<M> Inbox<M> {
    /// Takes the content of the inbox. If the inbox contains one message and nothing else, and `taken` contains nothing
    /// unread, returns this message and moves nothing to `taken`. In all other cases, does the same as
    /// [`drain`](Self::drain). The third value of the result says whether the slot is open.
    #[inline]
    pub(crate) fn drain_or_pop(
        &self,
        own: &impl Own,
        receiver_turn: ReceiverTurn,
        taken: &mut Option<Box<Taken<M>>>,
    ) -> (Option<M>, Admitted, bool) {
        let mut state = self.lock_to_receive();
        let is_only = state.aside.is_none() && state.messages().len() == 1;
        if !is_only || taken.as_deref().is_some_and(|taken| taken.len() != 0) {
            let (admitted, slot_is_open) = Self::drain_from(own, receiver_turn, state, taken);
            return (None, admitted, slot_is_open);
        }
        state.record_burst();
        let message = state.messages().pop_only(receiver_turn.receiving());
        let slot_is_open =
            !planted!("drain_does_not_wait") && state.wait(true, receiver_turn.turn(), LastReceive::Ordinary);
        if let Some(taken) = taken {
            taken.shrink();
        }
        (message, None, slot_is_open)
    }

    /// Moves all messages and signals to `taken`, and registers the task of the receiver as waiting. The second value
    /// of the result says whether the slot is open.
    pub(crate) fn drain(
        &self,
        own: &impl Own,
        receiver_turn: ReceiverTurn,
        taken: &mut Option<Box<Taken<M>>>,
    ) -> (Admitted, bool) {
        Self::drain_from(own, receiver_turn, self.lock_to_receive(), taken)
    }

    fn drain_from(
        own: &impl Own,
        receiver_turn: ReceiverTurn,
        mut state: Locked<'_, M>,
        taken: &mut Option<Box<Taken<M>>>,
    ) -> (Admitted, bool) {
        state.place_signals();
        let mut room_waiter = Vec::new();
        if !state.is_empty() {
            room_waiter = state.drain_into(receiver_turn.receiving(), taken.get_or_insert_default());
        } else if let Some(taken) = taken {
            taken.shrink();
        }
        state.buffer.shrink();
        if room_waiter.is_empty() || state.is_empty() {
            let slot_is_open =
                !planted!("drain_does_not_wait") && state.wait(true, receiver_turn.turn(), LastReceive::Ordinary);
            let told = (!room_waiter.is_empty()).then(|| Box::new((room_waiter, Wakes::default())));
            return (told, slot_is_open);
        }
        // The messages of waiting senders were admitted after the receiver took out the other messages. The receiver
        // has not seen the admitted messages and waits again, so these messages must wake the receiver.
        state.register(Waiting::Own, LastReceive::Ordinary);
        let wakes = state.wakes_for_receiver(own);
        (Some(Box::new((room_waiter, wakes))), false)
    }

    /// Takes the next message. Also returns the task that the caller must wake, because the mailbox now has room. If
    /// several messages are queued, all messages except the first move to `front` in the same lock operation.
    /// Therefore, a burst costs only one lock operation.
    pub(crate) fn pop(&self, front: &mut ReadAhead<M>) -> (Option<M>, Option<RoomWaiter>) {
        let mut state = self.lock_to_receive();
        let Some(by) = front.receiving() else { return (None, None) };
        state.place_signals();
        (state.pop(by, front), state.take_room_waiter())
    }

    /// Takes the next message in the same way as [`pop`](Self::pop), and stores the message in `message`. If there is no
    /// message, registers the receiver as waiting. The caller passes `None` in `message`. (If this function returned the
    /// message, the message would be copied several times.)
    #[inline]
    pub(crate) fn pop_or_wait(
        &self,
        own: &impl Own,
        front: &mut ReadAhead<M>,
        reader: Reader,
        message: &mut Option<M>,
    ) -> ReceiverDuties {
        let state = self.lock_to_receive();
        let pop = |state: &mut Locked<'_, M>, by, front: &mut ReadAhead<M>| {
            state.pop_into(by, front, message);
            message.is_some().then_some(())
        };
        self.take_or_wait(own, state, front, reader, (LastReceive::Ordinary, 0), pop).1
    }

    /// Calls [`pop_or_wait`](Self::pop_or_wait), and returns the message.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn receive_or_wait(
        &self,
        own: &impl Own,
        front: &mut ReadAhead<M>,
        reader: Reader,
    ) -> (Option<M>, ReceiverDuties) {
        let mut message = None;
        let duties = self.pop_or_wait(own, front, reader, &mut message);
        (message, duties)
    }

    /// Returns the state of the inbox that the task of the process observes without the lock.
    #[inline]
    pub(crate) fn glance(&self) -> Glance {
        // The slot must be read before the mark. The acquire load of the slot pairs with the release store of the
        // sender. If the sender wrote the slot under the lock, the lock operation of the sender is visible here. This
        // lock operation has removed the mark, so this thread then sees no mark. If the mark were read first, this
        // function could return `Delivered` for a message that was written under the lock.
        let is_full = self.slot.is_full();
        match self.state.is_marked() {
            true if is_full => Glance::Delivered,
            true => Glance::Empty,
            false => Glance::Unknown,
        }
    }

    /// Takes the delivered message.
    #[inline]
    pub(crate) fn take_delivered(&self, receiver_turn: ReceiverTurn) -> Option<M> {
        self.slot.take(receiver_turn.receiving())
    }

    /// Takes the delivered message, and passes the message to `take`, so that the message is moved only once.
    #[inline]
    pub(crate) fn take_delivered_with(&self, receiver_turn: ReceiverTurn, take: impl FnOnce(M)) {
        self.slot.take_with(receiver_turn.receiving(), take);
    }

    /// Records that the task no longer waits for a message, and closes the slot.
    pub(crate) fn unwait(&self, turn: InTurn) {
        self.lock().stop_waiting(turn);
    }

    /// Records that no receive operation waits, because the operation of the registered receiver was dropped. The
    /// receiver stays registered. A body may create a new receive operation in each of its polls, and rely on the
    /// registration that the previous receive operation made.
    pub(crate) fn note_left(&self) {
        self.lock().last_receive = LastReceive::Dropped;
    }

    /// Records that another process, or a thread outside the process, has polled a receive operation. The mark is
    /// removed when the next receive operation waits.
    #[cold]
    pub(crate) fn note_elsewhere(&self) {
        self.lock().last_receive = LastReceive::Elsewhere;
    }

    /// Closes the slot. The receiver may have been polled outside the turns of its process while the process was
    /// active. In this case, the worker calls this function at the beginning of the next turn of the process. If a
    /// message was delivered into the slot, returns the waker of the receiver, because the receiver must read the
    /// message.
    #[cold]
    pub(crate) fn close_slot(&self, turn: InTurn) -> Option<Waker> {
        let mut state = self.lock();
        state.access.set_open(false, turn);
        if self.slot.is_full() { state.take_other() } else { None }
    }

    /// Takes the next event. For a message, returns `Some(Some(message))`. For a signal, stores the signal in `signal`
    /// and returns `Some(None)`. The result does not contain the signal, because signals are rare, and a result type
    /// with room for a signal would be larger. If there is no event, the receiver waits as in
    /// [`pop_or_wait`](Self::pop_or_wait).
    #[inline]
    pub(crate) fn next_or_wait(
        &self,
        own: &impl Own,
        front: &mut ReadAhead<M>,
        signal: &mut Option<Signal>,
        reader: Reader,
    ) -> (Option<Option<M>>, ReceiverDuties) {
        self.take_or_wait(own, self.lock_to_receive(), front, reader, (LastReceive::Ordinary, 0), |state, by, front| {
            if !state.has_no_signals() {
                *signal = state.pop_signal(front.len());
                return if signal.is_some() {
                    Some(None)
                } else {
                    front.pop().or_else(|| state.pop(by, front)).map(Some)
                };
            }
            let message = front.pop().or_else(|| state.pop(by, front))?;
            front.set_clear();
            Some(Some(message))
        })
    }

    /// Takes the next event with [`next_or_wait`](Self::next_or_wait), for a task that does not open the slot.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn next(&self, own: &impl Own, front: &mut ReadAhead<M>) -> Option<Result<M, Signal>> {
        let mut signal = None;
        let receiver_turn = ReceiverTurn::in_test();
        let reader = Reader::Task { receiver_turn, may_open_slot: false };
        let (next, _) = self.next_or_wait(own, front, &mut signal, reader);
        next.map(|message| message.ok_or_else(|| signal.expect("the event is a message or a signal")))
    }

    /// If the mailbox is unbounded, moves all messages to the back of `front`. If the mailbox is bounded, takes out
    /// only one message for inspection, namely the message with this `number`. If a bounded mailbox no longer contains
    /// this message, takes out the oldest message. If there is no message, the receiver waits as in
    /// [`pop_or_wait`](Self::pop_or_wait).
    pub(crate) fn gather_or_wait(
        &self,
        own: &impl Own,
        front: &mut ReadAhead<M>,
        number: &mut u64,
        urgent: usize,
        reader: Reader,
    ) -> (Option<Gathered<M>>, ReceiverDuties) {
        self.take_or_wait(
            own,
            self.lock_to_receive(),
            front,
            reader,
            (LastReceive::Selective, urgent),
            |state, by, front| match state.bounded() {
                Some(bounded) => bounded.look(number).map(Gathered::One),
                None => state.gather(by, front).map(|()| Gathered::Ahead),
            },
        )
    }

    /// Puts back a message that the receiver has inspected.
    ///
    /// # Errors
    /// Returns the message if the mailbox no longer has a place for this message. The flag in the error is true if the
    /// mailbox was full and gave the place to another message. The flag is false if the inbox was closed.
    pub(crate) fn fill(&self, number: u64, message: M) -> Result<(), (M, bool)> {
        let mut state = self.state.lock();
        let closed = state.closed;
        let Some(bounded) = state.bounded() else {
            unreachable!("only the receiver of a bounded mailbox looks before it takes")
        };
        bounded.fill(number, message).map_err(|message| (message, !closed))
    }

    /// Frees the place of a message that the receiver has inspected and taken. Returns the task that the caller must
    /// wake, because the mailbox now has room.
    pub(crate) fn settle(&self, number: u64) -> Option<RoomWaiter> {
        let mut state = self.lock();
        state.place_signals();
        let aside = state.aside.as_deref_mut()?;
        let place = aside.bounded.as_mut()?.settle(number)?;
        aside.signals.took_at(place);
        state.take_room_waiter()
    }

    /// Records that a receiver has read a message of its read-ahead buffer out of order. The parameter `passed` is the
    /// number of unread messages before this message. The parameter `left` is the number of messages that are still in
    /// the buffer.
    pub(crate) fn passed_over(&self, passed: usize, left: usize) {
        let mut state = self.lock();
        state.place_signals();
        if let Some(aside) = state.aside.as_deref_mut() {
            aside.signals.passed_over(&self.slot, passed, left);
        }
    }

    #[inline]
    fn take_or_wait<'a, R>(
        &'a self,
        own: &impl Own,
        mut state: Locked<'a, M>,
        front: &mut ReadAhead<M>,
        reader: Reader,
        (receive, urgent): (LastReceive, usize),
        take: impl FnOnce(&mut Locked<'a, M>, Receiving, &mut ReadAhead<M>) -> Option<R>,
    ) -> (Option<R>, ReceiverDuties) {
        let (by, reader) = match reader {
            Reader::Task { receiver_turn, .. } => (receiver_turn.receiving(), reader),
            Reader::Other(waker) => {
                // This check happens under the lock, because another receiver may have replaced this receiver after the
                // poll began.
                let Some(by) = front.receiving() else {
                    return (None, ReceiverDuties { replaced: true, ..ReceiverDuties::of_other(Some(waker), None) });
                };
                if !planted!("other_does_not_recall") {
                    // The receiver first calls `close_or_recall`, and then checks for messages. The check finds each
                    // message that was delivered before the check. For a message that is sent after the check, there
                    // are two cases. Either the sender of this message takes the lock, or the process wakes this
                    // receiver in its next turn (`close_slot`).
                    state.access.close_or_recall(own);
                }
                (by, Reader::Other(waker))
            }
        };
        state.place_signals();
        let taken = take(&mut state, by, front);
        if taken.is_some() {
            let former = match reader {
                Reader::Task { receiver_turn, .. } => {
                    state.stop_waiting(receiver_turn.turn());
                    None
                }
                Reader::Other(waker) => Some(waker),
            };
            return (taken, ReceiverDuties::of_other(former, state.take_room_waiter()));
        }
        if planted!("receiver_unlocks") {
            drop(state);
            state = self.lock();
        }
        if state.urgent_len() > urgent && !planted!("urgent_is_overlooked") {
            // A sender has stored an urgent message after this receiver loaded the flag of urgent messages.
            let former = match reader {
                Reader::Task { receiver_turn, .. } => {
                    state.stop_waiting(receiver_turn.turn());
                    None
                }
                Reader::Other(waker) => Some(waker),
            };
            return (None, ReceiverDuties { urgent: true, ..ReceiverDuties::of_other(former, None) });
        }
        state.buffer.shrink();
        match reader {
            Reader::Task { receiver_turn, may_open_slot, .. } => {
                let slot_is_open = state.wait(may_open_slot, receiver_turn.turn(), receive);
                (None, ReceiverDuties::of_task(slot_is_open, None))
            }
            Reader::Other(other) => {
                state.register(Waiting::Other, receive);
                let former = state.aside.get_or_insert_default().other.replace(other);
                (None, ReceiverDuties::of_other(former, None))
            }
        }
    }

    /// Puts back the messages that a receiver has taken out and not read. Returns the wake-ups that these messages
    /// cause. If the receiver is in its trial period, the messages are stored for the replaced receiver.
    ///
    /// # Errors
    /// Returns the messages if the inbox is closed or bounded.
    pub(crate) fn put_back(&self, own: &impl Own, front: &mut ReadAhead<M>) -> Result<Wakes, VecDeque<M>> {
        front.take_from_trial_place();
        if front.is_empty() {
            return Ok(Wakes::default());
        }
        let mut state = self.lock();
        if front.store_in_trial_place() {
            return Ok(Wakes::default());
        }
        let unread = front.take();
        if state.closed {
            return Err(unread);
        }
        if state.bounded().is_some() {
            // In a bounded mailbox, the receiver has already read these messages and put them aside. These messages
            // cannot return to the queue, because the queue would count them a second time.
            return Err(unread);
        }
        state.place_signals();
        let by = front.receiving();
        // The argument of `took_back` also counts the message in the slot. `put_first` takes this message out of the
        // slot, and puts it back unread.
        let in_slot = usize::from(by.is_some() && state.slot.is_full());
        if let Some(aside) = state.aside.as_deref_mut() {
            aside.signals.took_back(unread.len() + in_slot);
        }
        match by {
            Some(by) => {
                state.messages().put_first(by, unread);
                Ok(Wakes::default())
            }
            // The unread messages must wake the current receiver, because the current receiver may be waiting for a
            // message.
            None => {
                let wakes = state.wakes_for_receiver(own);
                state.messages().put_behind_first(unread);
                Ok(wakes)
            }
        }
    }
}

/// Messages that a receiver returns, and that a router will take.
impl<M> Inbox<M> {
    /// Stores messages that a receiver has taken out and not read, and that cannot return to the queue. The mailbox is
    /// closed or has a bound.
    ///
    /// # Errors
    /// Returns the messages if no router will take the messages of this mailbox.
    pub(crate) fn return_unread(&self, unread: VecDeque<M>) -> Result<(), Vec<M>> {
        let mut unread = Vec::from(unread);
        match self.lock().aside.as_deref_mut().map(|aside| &mut aside.forwarding) {
            Some(Forwarding::Left { returned, .. } | Forwarding::Closing { returned }) => {
                if returned.is_empty() {
                    mem::swap(returned, &mut unread);
                } else {
                    returned.append(&mut unread);
                }
                Ok(())
            }
            _ => Err(unread),
        }
    }

    /// Takes the returned messages. From now on, the mailbox stores no returned messages.
    pub(super) fn take_returned(&self) -> Vec<M> {
        let mut state = self.lock();
        let forwarding = state.aside.as_deref_mut().map(|aside| mem::replace(&mut aside.forwarding, Forwarding::Here));
        match forwarding {
            Some(Forwarding::Closing { returned }) => returned,
            _ => Vec::new(),
        }
    }
}

/// Replacement of one receiver by another receiver.
impl<M> Inbox<M> {
    /// Creates a new receiver. The new receiver becomes the current receiver, and its trial period begins: see
    /// [`Trial`]. The new receiver replaces the receiver that owns the buffer `present`. The new receiver takes over
    /// all messages of the replaced receiver: the unread messages, and the messages that are put aside. If the replaced
    /// receiver waits with a waker, returns this waker. Returns `None` if the owner of `present` had already been
    /// replaced.
    pub(crate) fn begin_trial(
        &self,
        turn: InTurn,
        present: &mut ReadAhead<M>,
    ) -> Option<(ReadAhead<M>, Trial, Option<Waker>)> {
        let mut state = self.lock();
        if present.is_replaced() {
            return None;
        }
        // During the trial period, receivers take messages only under the lock. The reason is that the claim of a
        // receiver is not settled while the receiver is in its trial period (`Claim::is_settled`).
        state.stop_waiting(turn);
        let (next, trial) = present.replace_on_trial();
        Some((next, trial, state.take_other()))
    }

    /// Ends the trial period of a new receiver. If the new receiver was not confirmed, the owner of the buffer `former`
    /// becomes the current receiver again. Otherwise, the owner of `former` never becomes the current receiver again.
    /// In both cases, if the new receiver was dropped during its trial period with unread messages, the owner of
    /// `former` gets these messages. If the new receiver was not confirmed and has stored a waker, returns this waker.
    pub(crate) fn end_trial(&self, trial: &Trial, former: &mut ReadAhead<M>) -> Option<Waker> {
        let mut state = self.lock();
        former.take_from_trial_place();
        if trial.end() {
            return state.take_other();
        }
        former.renounce();
        None
    }

    /// Creates a new receiver, which becomes the current receiver. The new receiver replaces the process that owns
    /// `taken`, or the most recent receiver that replaced this process. The unread messages and signals in `taken`
    /// move to the new receiver. If the replaced receiver waits with a waker, returns this waker.
    pub(crate) fn hand_over(&self, turn: InTurn, taken: &mut Taken<M>) -> (ReadAhead<M>, Option<Waker>) {
        let mut state = self.lock();
        state.stop_waiting(turn);
        let queue = if taken.len() == 0 { VecDeque::new() } else { state.take_over(taken) };
        let next = ReadAhead::replacing(taken.claim.get_or_insert_with(Claim::first), queue);
        (next, state.take_other())
    }

    /// The process that owns `taken` replaces the current receiver of its mailbox. If the replaced receiver waits with
    /// a waker, returns this waker.
    pub(crate) fn reclaim(&self, turn: InTurn, taken: &Taken<M>) -> Option<Waker> {
        let mut state = self.lock();
        state.stop_waiting(turn);
        let had_another = taken.claim.as_ref().is_some_and(Claim::make_current);
        if had_another { state.take_other() } else { None }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::platform::clock::Instant;
    use crate::process::exit::Reason;
    use crate::process::mailbox::MailboxCapacity;
    use crate::process::mailbox::wakes::NeverWoken;

    fn task() -> Reader {
        Reader::Task { receiver_turn: ReceiverTurn::in_test(), may_open_slot: false }
    }

    fn signal(inbox: &Inbox<u32>) {
        let cancel = Signal::Cancel { reason: Reason::from("now"), deadline: Instant::FAR };
        let _no_wakes = inbox.signal(&NeverWoken, cancel, true).expect("it is open");
    }

    /// Returns the next event: a message, or `None` for a signal.
    fn next(inbox: &Inbox<u32>, front: &mut ReadAhead<u32>) -> Option<u32> {
        inbox.next(&NeverWoken, front).expect("something is there").ok()
    }

    fn wants(n: u32) -> impl FnMut(u32) -> Result<u32, u32> {
        move |message| if message == n { Ok(message) } else { Err(message) }
    }

    #[test]
    fn a_signal_keeps_its_position_when_a_later_message_is_picked() {
        for bound in [MailboxCapacity::Unbounded, MailboxCapacity::Reject(9)] {
            for picked in 0..4 {
                let (inbox, mut front) = (Inbox::new(bound, None), ReadAhead::default());
                for message in 0..4 {
                    if message == 2 {
                        signal(&inbox);
                    }
                    let _no_wakes = inbox.push(&NeverWoken, message, || {}).expect("there is room");
                }
                let mut number = 0;
                match inbox.gather_or_wait(&NeverWoken, &mut front, &mut number, 0, task()).0 {
                    Some(Gathered::Ahead) => {
                        let mut looked_at = 0;
                        assert_eq!(front.pick(&mut looked_at, &mut wants(picked)), Some(picked));
                        inbox.passed_over(looked_at, front.len());
                    }
                    Some(Gathered::One(mut message)) => {
                        while message != picked {
                            inbox.fill(number, message).expect("the place of the message is still free");
                            number += 1;
                            let next = inbox.gather_or_wait(&NeverWoken, &mut front, &mut number, 0, task()).0;
                            let Some(Gathered::One(next)) = next else { panic!("there are more") };
                            message = next;
                        }
                        assert!(inbox.settle(number).is_none(), "no sender waits for room");
                    }
                    None => panic!("there are four"),
                }
                let expected = [Some(0), Some(1), None, Some(2), Some(3)];
                let expected: Vec<_> = expected.into_iter().filter(|next| *next != Some(picked)).collect();
                let came: Vec<_> = (0..4).map(|_| next(&inbox, &mut front)).collect();
                assert_eq!(came, expected, "{bound:?}, {picked} picked");
            }
        }
    }

    #[test]
    fn the_next_receiver_reads_the_messages_that_a_hand_written_process_has_left_unread() {
        let (inbox, mut taken) = (Inbox::new(MailboxCapacity::Unbounded, None), None);
        let push = |message| {
            let _no_wakes = inbox.push(&NeverWoken, message, || {}).expect("it is open");
        };
        (0..2).for_each(push);
        signal(&inbox);
        push(2);
        let _ = inbox.drain(&NeverWoken, ReceiverTurn::in_test(), &mut taken);
        let mut taken = taken.expect("there are messages");
        assert_eq!(taken.pop(), Some(0));
        push(3);
        let (mut front, _) = inbox.hand_over(InTurn::in_test(), &mut taken);
        assert_eq!([(); 4].map(|()| next(&inbox, &mut front)), [Some(1), None, Some(2), Some(3)]);
        assert_eq!(taken.len(), 0);
    }
}
