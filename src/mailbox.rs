//! The event queue of one process: messages and signals in the order they came, and whom to wake for them.
//!
//! Senders push under a short lock and wake under it; the receiver swaps out everything that is there. Nothing of the
//! user's runs under the lock: not a waker, not a message's `Drop`; and what was woken is queued after it. A closed inbox
//! refuses what comes and hands it back. One with a bound keeps its messages in a queue of another kind: see `bounded`.
//!
//! A message to a process that waits for one takes no lock. Whoever waits for mail, and has none, lends the mailbox's `slot`
//! to whoever wakes it: that one is alone with the process, puts the message there, and queues it; the process takes it out
//! in its turn. It waits for the next one all the while: until somebody comes by the lock, which leaves a mark on it, it knows
//! [at a glance](Inbox::glance) that nothing has come, and need not look under the lock. Whoever has found it waiting there
//! has woken it, and a task that is woken while it runs is run again.
//!
//! A process that takes the one message there is under the lock is set to wait *ahead* in the same breath, the first time
//! in a turn, so that it need not come again to do that. That it waits ahead, or has waited on with a message that was
//! delivered, is noted in its turn (`process::turn`): whatever looks into the mailbox takes the note back, and if nothing does
//! before the turn is over, the body waits for something else, and does not want to be woken for mail ([`Inbox::unwait`]).

mod bounded;
mod front;
mod locked;
mod queue;
mod routed;
mod signals;
mod slot;
mod taken;
mod wakes;

pub use bounded::Bound;
pub(crate) use bounded::Relieved;
pub(crate) use front::Front;
pub(crate) use locked::{Remains, Unsent};
pub(crate) use routed::{Router, Unrouted};
pub(crate) use taken::Taken;
pub(crate) use wakes::{Own, Wakes};

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use self::bounded::Bounded;
use self::locked::{Aside, Locked, State, Waiting};
use self::queue::Buffer;
use self::routed::Way;
use self::slot::{Lent, Slot};
use crate::process::event::{Answer, Completed, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::sync::{Arc, Lock, planted};

/// The shared half of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    /// Room for the oldest message.
    slot: Slot<M>,
    state: Lock<State<M>>,
}

/// Who looks for a message, and waits if there is none.
#[derive(Debug)]
pub(crate) enum Reader {
    /// The process's own task, in its turn.
    Task {
        /// Whether it may lend the slot. One whose steps are counted does not: it might be woken once too often.
        lends: bool,
        /// Whether it may be set to wait ahead.
        ahead: bool,
    },
    /// A combinator, or somebody else, by this waker.
    Other(Waker),
}

/// What is known of an inbox without its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glance {
    /// Its receiver waits as before: nothing has come.
    Empty,
    /// As that, but for a message that was [delivered](Inbox::take_delivered).
    Delivered,
    Unknown,
}

/// What a receiver that took something, or waits, owes when the lock is free.
#[derive(Debug)]
#[must_use = "a sender that is not woken waits for ever"]
pub(crate) struct Spare {
    /// No longer waited with, to be dropped.
    pub(crate) former: Option<Waker>,
    pub(crate) relieved: Option<Relieved>,
    /// Its task is set to wait, and the slot is lent.
    pub(crate) lent: bool,
}

/// The senders whose messages were let in when all others were taken out, and the wakes that those messages owe.
pub(crate) type Admitted = Option<Box<(Vec<Waker>, Wakes)>>;

/// What [`Inbox::gather_or_wait`] found.
#[derive(Debug)]
pub(crate) enum Gathered<M> {
    /// More in front.
    Ahead,
    /// A message to be looked at: it is to be [put back](Inbox::fill), or its place [given up](Inbox::settle).
    One(M),
}

impl<M> Inbox<M> {
    /// For messages without bound, or with this one, of which nothing is to be got round by `limit`.
    #[inline(always)]
    pub(crate) fn new(bound: Bound, limit: Option<usize>) -> Self {
        let bounded =
            |(policy, most)| Box::new(Aside { bounded: Some(Bounded::new(policy, most)), ..Aside::default() });
        // First, and not in the midst of what is written in its place.
        let aside = bound.within(limit).map(bounded);
        Self {
            slot: Slot::new(),
            state: Lock::new(State {
                buffer: Buffer::new(),
                lent: Lent::NOT,
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

    /// The same for its receiver: there may be one that sends without end.
    #[inline]
    fn lock_to_receive(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock_patiently() }
    }

    /// Appends a message. If it is taken, `accepted` is called before anybody can have read it.
    ///
    /// # Errors
    /// The message, when the inbox is closed or full; or one that was dropped for it, if that is the policy.
    #[inline]
    pub(crate) fn push(&self, own: &impl Own, message: M, accepted: impl FnOnce()) -> Result<Wakes, Unsent<M>> {
        let mut message = message;
        // Without the mark it is not open, but for moments: and then the process is left where it runs.
        if self.state.is_marked() {
            match self.slot.deliver(own, message) {
                Ok(owed) => {
                    accepted();
                    return Ok(Wakes { own: Some(owed), other: None });
                }
                Err(back) => message = back,
            }
        }
        let mut state = self.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        if planted!("push_unlocks") {
            drop(state);
            state = self.lock();
        }
        if state.bounded().is_some() {
            let pushed = state.push_bounded(own, message);
            if matches!(pushed, Ok(_) | Err(Unsent::Dropped(..))) {
                accepted();
            }
            return pushed;
        }
        // Before the message: whoever is woken by this comes by the slot.
        let wakes = state.receiver(own);
        state.messages().push(message);
        accepted();
        Ok(wakes)
    }

    /// As [`push`](Self::push), but where there is no room the message waits for it, and `waker` is taken: then a number
    /// comes back to ask by. Without a waker it is refused.
    ///
    /// # Errors
    /// The message, when the inbox is closed, or takes none.
    pub(crate) fn push_or_wait(
        &self,
        own: &impl Own,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Wakes), Unsent<M>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        if let Some(router) = state.router() {
            return Err(Unsent::Routed(message, router));
        }
        state.store_or_wait(own, message, waker, accepted)
    }

    /// As [`push_or_wait`](Self::push_or_wait), for a message that was not handed on. Until the inbox is empty, and its
    /// receiver has [seen that](Self::resume), no other one is.
    pub(crate) fn keep(
        &self,
        own: &impl Own,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Wakes), Unsent<M>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        state.some_wait(true);
        state.store_or_wait(own, message, waker, accepted)
    }

    /// Messages go on to this router from now on, when those that wait here have.
    pub(crate) fn route_to(&self, own: &impl Own, router: Arc<dyn Router<M>>) {
        let mut state = self.lock();
        state.lent.recall(own);
        state.aside.get_or_insert_default().way = Way::Routed { router, some_wait: true };
    }

    /// Hands messages on again, if none waits here.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        let some_wait = state.untaken() != 0;
        state.some_wait(some_wait);
    }

    /// Does something under the lock, if messages are handed on now because none waits here.
    pub(crate) fn if_none_waits<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        let way = state.aside.as_deref().map(|aside| &aside.way);
        matches!(way, Some(Way::Routed { some_wait: false, .. })).then(f)
    }

    /// What is unread when this is closed is for this router.
    pub(crate) fn leave_to(&self, router: Arc<dyn Router<M>>) {
        self.state.lock().aside.get_or_insert_default().way = Way::Left(router);
    }

    /// Puts messages before all others, beyond any bound.
    ///
    /// # Errors
    /// The messages, when the inbox is closed.
    pub(crate) fn put_first(&self, own: &impl Own, messages: Vec<M>) -> Result<Wakes, Vec<M>> {
        let mut state = self.lock();
        if state.closed {
            return Err(messages);
        }
        let Some(aside) = state.aside.as_deref_mut() else { return Err(messages) };
        let Some(bounded) = aside.bounded.as_mut() else { return Err(messages) };
        aside.signals.came_before(messages.len());
        bounded.put_first(messages);
        state.some_wait(true);
        Ok(state.receiver(own))
    }

    /// How many messages its receiver has before it, the one in hand included; and a number that grows with each that it
    /// takes. Of an inbox with a bound.
    pub(crate) fn load(&self) -> (usize, u64) {
        self.state.lock().bounded().map_or((0, 0), |bounded| (bounded.load(), bounded.taken()))
    }

    /// Has whoever makes room next tell this waker, once. Of an inbox with a bound; there may be room already.
    pub(crate) fn watch(&self, waker: Waker) {
        let mut waker = Some(waker);
        if let Some(bounded) = self.state.lock().bounded() {
            bounded.watch(&mut waker);
        }
        drop(waker);
    }

    /// Whether the message of a sender was let in. If not, it waits by this waker from now on; what comes back in its
    /// place is to be dropped.
    ///
    /// # Errors
    /// The message, when the inbox was closed first.
    pub(crate) fn poll_admitted(&self, number: u64, waker: &mut Option<Waker>) -> Poll<Result<(), (M, Option<Waker>)>> {
        let mut state = self.state.lock();
        let closed = state.closed;
        let Some(bounded) = state.bounded() else { unreachable!("without a bound nobody waits") };
        if closed {
            return Poll::Ready(bounded.give_up(number).map_or(Ok(()), Err));
        }
        if bounded.still_waits(number, waker) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// The sender waits no longer. What comes back was not let in, and never will be.
    pub(crate) fn give_up(&self, number: u64) -> Option<(M, Option<Waker>)> {
        self.state.lock().bounded()?.give_up(number)
    }

    /// Whether a push would be refused now, and then whether it is full or else closed.
    pub(crate) fn refuses(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if state.closed {
            return Some(false);
        }
        state.bounded().is_some_and(|bounded| bounded.rejects()).then_some(true)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Of an inbox that was closed, whose process has ended: whom to wake who waits to read, and who waits to send.
    pub(crate) fn disperse(&self) -> (Option<Waker>, Vec<Waker>) {
        let mut state = self.state.lock();
        (state.take_other(), state.bounded().map_or_else(Vec::new, Bounded::strand))
    }

    /// How many messages and signals wait here.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.untaken() + state.aside.as_deref().map_or(0, |aside| aside.signals.len())
    }

    /// The most messages that waited here at once; without a bound, that were taken out at once or wait now.
    pub(crate) fn high(&self) -> usize {
        let mut state = self.lock();
        match state.bounded() {
            Some(bounded) => bounded.high(),
            // One that was delivered was alone, or was counted with those that came behind it.
            None => state.messages().len().max(state.longest as usize).max(usize::from(self.slot.taken() != 0)),
        }
    }

    /// Appends a signal, which wakes the task (`wake_own` is false for an answer that comes from inside the process's own
    /// turn) and a receiver that waits elsewhere. What only a reader of the mailbox hears wakes nobody else: neither one that
    /// waits for something else, nor one that was woken and has not come yet.
    ///
    /// # Errors
    /// The signal, when the inbox is closed.
    pub(crate) fn signal(&self, own: &impl Own, signal: Signal, wake_own: bool) -> Result<Wakes, Signal> {
        let mut state = self.lock();
        if state.closed {
            return Err(signal);
        }
        let is_answer = signal.is_answer();
        state.append(signal);
        Ok(match wake_own {
            false => Wakes::default(),
            true if is_answer && planted!("answer_wakes_nobody") => Wakes::default(),
            true if is_answer || planted!("signal_wakes_receiver_only") => state.receiver(own),
            true => state.everybody(own),
        })
    }

    /// As [`signal`](Self::signal), for the answer to a yield, which is taken from where it is: of many of these each copy
    /// counts.
    ///
    /// # Errors
    /// Nothing is taken, when the inbox is closed.
    #[inline]
    pub(crate) fn answer(
        &self,
        own: &impl Own,
        tag: Tag,
        answer: &mut Option<Answer>,
        wake_own: bool,
    ) -> Result<Wakes, ()> {
        let mut state = self.lock();
        if state.closed {
            return Err(());
        }
        if let Some(answer) = answer.take() {
            state.append(Signal::Completed(Completed { tag, answer }));
        }
        let wakes = wake_own && !planted!("answer_wakes_nobody");
        Ok(if wakes { state.receiver(own) } else { Wakes::default() })
    }

    /// As [`signal`](Self::signal), for the news of another's end. Nothing if it is closed.
    #[inline]
    pub(crate) fn down(&self, own: &impl Own, number: u64, pid: Pid, reason: &Exit, wake_own: bool) -> Option<Wakes> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        // Of a million of these each copy counts: the usual one is made in its place.
        match reason {
            Exit::Normal => state.append(Signal::Down { number, pid, reason: Exit::Normal }),
            _ => state.append(Signal::Down { number, pid, reason: reason.clone() }),
        }
        Some(if wake_own && !planted!("down_wakes_nobody") { state.receiver(own) } else { Wakes::default() })
    }

    /// As [`drain`](Self::drain), but if all there is is one message, and nothing unread in `taken`, that is returned.
    #[inline]
    pub(crate) fn drain_or_pop(
        &self,
        own: &impl Own,
        taken: &mut Option<Box<Taken<M>>>,
    ) -> (Option<M>, Admitted, bool) {
        let mut state = self.lock_to_receive();
        let is_only = state.aside.is_none() && state.messages().len() == 1;
        if !is_only || taken.as_deref().is_some_and(|taken| taken.len() != 0) {
            let (admitted, lent) = Self::drain_from(own, state, taken);
            return (None, admitted, lent);
        }
        state.note_burst();
        let message = state.messages().pop_only();
        let lent = !planted!("drain_does_not_wait") && state.wait(true);
        if let Some(taken) = taken {
            taken.shrink();
        }
        (message, None, lent)
    }

    /// Whom to wake for something that is not in the queue: a kill, a cancel.
    pub(crate) fn rouse(&self, own: &impl Own) -> Wakes {
        self.lock().everybody(own)
    }

    /// Moves all messages and signals to the receiver, who waits from now on with its task's own waker; and whether its slot
    /// is lent.
    pub(crate) fn drain(&self, own: &impl Own, taken: &mut Option<Box<Taken<M>>>) -> (Admitted, bool) {
        Self::drain_from(own, self.lock_to_receive(), taken)
    }

    fn drain_from(own: &impl Own, mut state: Locked<'_, M>, taken: &mut Option<Box<Taken<M>>>) -> (Admitted, bool) {
        state.place_signals();
        let mut senders = Vec::new();
        if !state.is_empty() {
            senders = state.drain_into(taken.get_or_insert_default());
        } else if let Some(taken) = taken {
            taken.shrink();
        }
        state.buffer.shrink();
        if senders.is_empty() {
            let lent = !planted!("drain_does_not_wait") && state.wait(true);
            return (None, lent);
        }
        // What was let in is news for the receiver, who waits again.
        state.waiting = Waiting::Own;
        let wakes = state.receiver(own);
        (Some(Box::new((senders, wakes))), false)
    }

    /// The next message, if there is one, and who is to be told of its place. A single one is handed over; of several the
    /// rest moves to `front` at once, so that a burst costs one lock.
    pub(crate) fn pop(&self, front: &mut Front<M>) -> (Option<M>, Option<Relieved>) {
        let mut state = self.lock_to_receive();
        state.place_signals();
        (state.pop(front), state.take_relieved())
    }

    /// As [`pop`](Self::pop), but with nothing there the receiver waits. If it may wait ahead, and takes all there is, it does.
    #[inline]
    pub(crate) fn pop_or_wait(&self, own: &impl Own, front: &mut Front<M>, reader: Reader) -> (Option<M>, Spare) {
        let mut state = self.lock_to_receive();
        let ahead =
            matches!(reader, Reader::Task { ahead: true, .. }) && state.aside.is_none() && state.messages().len() == 1;
        if !ahead {
            return self.take_or_wait(own, state, front, reader, Locked::pop);
        }
        let message = state.messages().pop_only();
        if planted!("ahead_does_not_wait") {
            state.state.mark();
            return (message, Spare { former: None, relieved: None, lent: true });
        }
        let lent = state.wait(true);
        (message, Spare { former: None, relieved: None, lent })
    }

    /// What is known of it without the lock, for its task.
    #[inline]
    pub(crate) fn glance(&self) -> Glance {
        // In this order: what is in the slot while the mark is there came without the lock.
        let is_full = self.slot.is_full();
        match self.state.is_marked() {
            true if is_full => Glance::Delivered,
            true => Glance::Empty,
            false => Glance::Unknown,
        }
    }

    /// The message that was delivered, for its receiver.
    #[inline]
    pub(crate) fn take_delivered(&self) -> Option<M> {
        self.slot.take()
    }

    /// The same, where it is wanted.
    #[inline]
    pub(crate) fn take_delivered_with(&self, take: impl FnOnce(M)) {
        self.slot.take_with(take);
    }

    /// The task that was set to wait does not.
    pub(crate) fn unwait(&self) {
        self.lock().unwait();
    }

    /// In the turn of a process that was open when its receiver was polled elsewhere: what was delivered then is for that one.
    #[cold]
    pub(crate) fn recalled(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.lent.lend(false);
        if self.slot.is_full() { state.take_other() } else { None }
    }

    /// What came next of all that is not read: a message, or nothing and a `signal`, which is larger and rare. Else it
    /// waits as [`pop_or_wait`](Self::pop_or_wait).
    #[inline]
    pub(crate) fn next_or_wait(
        &self,
        own: &impl Own,
        front: &mut Front<M>,
        signal: &mut Option<Signal>,
        reader: Reader,
    ) -> (Option<Option<M>>, Spare) {
        self.take_or_wait(own, self.lock_to_receive(), front, reader, |state, front| {
            if !state.has_no_signals() {
                *signal = state.pop_signal(front.len());
                return if signal.is_some() { Some(None) } else { front.pop().or_else(|| state.pop(front)).map(Some) };
            }
            let message = front.pop().or_else(|| state.pop(front))?;
            front.set_clear();
            Some(Some(message))
        })
    }

    /// As [`next_or_wait`](Self::next_or_wait), with nobody who waits.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn next(&self, own: &impl Own, front: &mut Front<M>) -> Option<Result<M, Signal>> {
        let mut signal = None;
        let reader = Reader::Task { lends: false, ahead: false };
        let (next, _) = self.next_or_wait(own, front, &mut signal, reader);
        next.map(|message| message.ok_or_else(|| signal.expect("it is one or the other")))
    }

    /// Moves all messages behind those of `front`; where there is a bound, takes out the one of this `number`, to be
    /// looked at, or the oldest if that is gone. With nothing there it waits as [`pop_or_wait`](Self::pop_or_wait).
    pub(crate) fn gather_or_wait(
        &self,
        own: &impl Own,
        front: &mut Front<M>,
        number: &mut u64,
        reader: Reader,
    ) -> (Option<Gathered<M>>, Spare) {
        self.take_or_wait(own, self.lock_to_receive(), front, reader, |state, front| match state.bounded() {
            Some(bounded) => bounded.look(number).map(Gathered::One),
            None => state.gather(front).map(|()| Gathered::Ahead),
        })
    }

    /// Puts back a message that was looked at.
    ///
    /// # Errors
    /// The message, when it was dropped meanwhile: true if by the policy, false if with the inbox.
    pub(crate) fn fill(&self, number: u64, message: M) -> Result<(), (M, bool)> {
        let mut state = self.state.lock();
        let closed = state.closed;
        let Some(bounded) = state.bounded() else { unreachable!("without a bound nobody looks before taking") };
        bounded.fill(number, message).map_err(|message| (message, !closed))
    }

    /// Gives up the place of a message that was looked at and taken; who is to be told of it.
    pub(crate) fn settle(&self, number: u64) -> Option<Relieved> {
        let mut state = self.lock();
        state.place_signals();
        let aside = state.aside.as_deref_mut()?;
        let place = aside.bounded.as_mut()?.settle(number)?;
        aside.signals.took_at(place);
        state.take_relieved()
    }

    /// A receiver took a message of its front that stood behind `passed` others; `left` are there now.
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
        front: &mut Front<M>,
        reader: Reader,
        take: impl FnOnce(&mut Locked<'a, M>, &mut Front<M>) -> Option<R>,
    ) -> (Option<R>, Spare) {
        if matches!(reader, Reader::Other(_)) && !planted!("other_does_not_recall") {
            // Before it looks: what was delivered to a process that waits again is seen then.
            state.lent.recall(own);
        }
        state.place_signals();
        let taken = take(&mut state, front);
        if taken.is_some() {
            let former = match reader {
                Reader::Task { .. } => {
                    state.unwait();
                    None
                }
                Reader::Other(waker) => Some(waker),
            };
            return (taken, Spare { former, relieved: state.take_relieved(), lent: false });
        }
        if planted!("receiver_unlocks") {
            drop(state);
            state = self.lock();
        }
        state.buffer.shrink();
        match reader {
            Reader::Task { lends, .. } => {
                let lent = state.wait(lends);
                (None, Spare { former: None, relieved: None, lent })
            }
            Reader::Other(other) => {
                state.waiting = Waiting::Other;
                let former = state.aside.get_or_insert_default().other.replace(other);
                (None, Spare { former, relieved: None, lent: false })
            }
        }
    }

    /// Takes back what a receiver took out and has not read.
    ///
    /// # Errors
    /// The messages, when the inbox is closed.
    pub(crate) fn put_back(&self, unread: VecDeque<M>) -> Result<(), VecDeque<M>> {
        if unread.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        if state.closed {
            return Err(unread);
        }
        if state.bounded().is_some() {
            // Read once, and put aside: there is no place for it in the queue, where it would count again.
            return Err(unread);
        }
        state.place_signals();
        if let Some(aside) = state.aside.as_deref_mut() {
            aside.signals.took_back(unread.len());
        }
        state.messages().put_first(unread);
        Ok(())
    }

    /// Refuses everything from now on, and hands out what was there, if anything was. Whoever waits, or begins to before
    /// the end is known, is woken by [`disperse`](Self::disperse) once it is: sooner it would find nothing and wait again.
    #[inline]
    pub(crate) fn close(&self) -> Option<Remains<M>> {
        let mut state = self.lock();
        state.closed = true;
        let is_bare = state.aside.is_none() && state.messages().is_bare();
        (!is_bare).then(|| state.take_remains())
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::wakes::Owed;
    use super::*;
    use crate::clock::Instant;
    use crate::process::exit::Reason;

    /// Nobody is woken here.
    #[derive(Clone, Copy)]
    struct Nobody;

    impl Own for Nobody {
        fn wake(&self) -> Option<Owed> {
            None
        }

        fn deliver(&self) -> Option<Owed> {
            None
        }

        fn recall(&self) -> bool {
            true
        }
    }

    fn task() -> Reader {
        Reader::Task { lends: false, ahead: false }
    }

    fn signal(inbox: &Inbox<u32>) {
        let cancel = Signal::Cancel { reason: Reason::from("now"), deadline: Instant::FAR };
        let _nobody = inbox.signal(&Nobody, cancel, true).expect("it is open");
    }

    /// What comes next: a message, or None for a signal.
    fn next(inbox: &Inbox<u32>, front: &mut Front<u32>) -> Option<u32> {
        inbox.next(&Nobody, front).expect("something is there").ok()
    }

    fn wants(n: u32) -> impl FnMut(u32) -> Result<u32, u32> {
        move |message| if message == n { Ok(message) } else { Err(message) }
    }

    #[test]
    fn what_is_picked_from_behind_a_signal_does_not_move_it() {
        for bound in [Bound::Unbounded, Bound::Reject(9)] {
            for picked in 0..4 {
                let (inbox, mut front) = (Inbox::new(bound, None), Front::default());
                for message in 0..4 {
                    if message == 2 {
                        signal(&inbox);
                    }
                    let _nobody = inbox.push(&Nobody, message, || {}).expect("there is room");
                }
                let mut number = 0;
                match inbox.gather_or_wait(&Nobody, &mut front, &mut number, task()).0 {
                    Some(Gathered::Ahead) => {
                        let mut looked_at = 0;
                        assert_eq!(front.pick(&mut looked_at, &mut wants(picked)), Some(picked));
                        inbox.passed_over(looked_at, front.len());
                    }
                    Some(Gathered::One(mut message)) => {
                        while message != picked {
                            inbox.fill(number, message).expect("nobody took its place");
                            number += 1;
                            let next = inbox.gather_or_wait(&Nobody, &mut front, &mut number, task()).0;
                            let Some(Gathered::One(next)) = next else { panic!("there are more") };
                            message = next;
                        }
                        assert!(inbox.settle(number).is_none(), "nobody waits");
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
}
