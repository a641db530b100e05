//! What the receiver does with its mailbox: it takes what is there, by itself or all at once, or waits.

use std::collections::VecDeque;
use std::task::Waker;

use super::locked::{Locked, Waiting};
use super::{Front, Inbox, Own, Relieved, Taken, Wakes};
use crate::process::event::Signal;
use crate::sync::planted;

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
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::super::Bound;
    use super::super::wakes::Owed;
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
