//! What comes in: messages from their senders, and signals, and whom they wake.

use std::task::{Poll, Waker};

use crate::platform::sync::{Arc, planted};
use crate::process::event::{Answer, Completed, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::mailbox::routed::Forwarding;
use crate::process::mailbox::{Inbox, Own, Router, Unsent, Wakes};
use crate::process::pid::Pid;

impl<M> Inbox<M> {
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

    /// Has whoever makes room next tell this waker, once. Of an inbox with a bound; there may be room already.
    pub(crate) fn watch(&self, waker: Waker) {
        let mut waker = Some(waker);
        if let Some(bounded) = self.state.lock().bounded() {
            bounded.watch(&mut waker);
        }
        drop(waker);
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

    /// Whom to wake for something that is not in the queue: a kill, a cancel.
    pub(crate) fn rouse(&self, own: &impl Own) -> Wakes {
        self.lock().everybody(own)
    }
}

/// Where messages are for others.
impl<M> Inbox<M> {
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
        state.aside.get_or_insert_default().way = Forwarding::Routed { router, some_wait: true };
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
        matches!(way, Some(Forwarding::Routed { some_wait: false, .. })).then(f)
    }

    /// What is unread when this is closed is for this router.
    pub(crate) fn leave_to(&self, router: Arc<dyn Router<M>>) {
        self.state.lock().aside.get_or_insert_default().way = Forwarding::Left(router);
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
}
