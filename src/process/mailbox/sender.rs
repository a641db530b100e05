//! The sending side of a mailbox: it appends messages and signals, and returns the wake-ups that they cause.

use std::task::{Poll, Waker};

use crate::platform::sync::{Arc, planted};
use crate::process::event::{Answer, Completed, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::mailbox::routed::Forwarding;
use crate::process::mailbox::{Inbox, Own, Router, Unsent, Wakes};
use crate::process::pid::Pid;

impl<M> Inbox<M> {
    /// Appends a message. If the message is accepted, calls `accepted` before the process is queued.
    ///
    /// # Errors
    /// Returns the message if the inbox is closed or full, or if the message must be routed. If the policy dropped a
    /// message, returns the dropped message.
    #[inline]
    pub(crate) fn push(&self, own: &impl Own, message: M, accepted: impl FnOnce()) -> Result<Wakes, Unsent<M>> {
        let mut message = message;
        // If the mark is gone, a thread has taken the lock since the receiver began to wait. Then the run state is most
        // likely not *Open*. This check avoids an access to the run state, whose cache line belongs to the core that
        // runs the process.
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
        // Called before the push: if this call wakes the process, it closes the slot, and the push can write the
        // message into the slot.
        let wakes = state.receiver(own);
        state.messages().push(message);
        accepted();
        Ok(wakes)
    }

    /// As [`push`](Self::push), but if there is no room, the message waits for room, whatever the policy. In this case
    /// the function takes `waker` and returns the number of the waiting sender. If there is no waker, the message is
    /// refused.
    ///
    /// # Errors
    /// Returns the message in three cases: the inbox is closed; the inbox must route the message; or the inbox is full,
    /// and there is no waker or the capacity is 0.
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

    /// Returns `Ready(Ok(()))` if the message of a waiting sender was admitted. Otherwise the sender waits with this
    /// waker from now on, and `waker` then holds the former waker, for the caller to drop.
    ///
    /// # Errors
    /// Returns the message and the waker of the sender if the inbox was closed before the message was admitted.
    pub(crate) fn poll_admitted(&self, number: u64, waker: &mut Option<Waker>) -> Poll<Result<(), (M, Option<Waker>)>> {
        let mut state = self.state.lock();
        let closed = state.closed;
        let Some(bounded) = state.bounded() else { unreachable!("senders wait only for a bounded mailbox") };
        if closed {
            return Poll::Ready(bounded.give_up(number).map_or(Ok(()), Err));
        }
        if bounded.still_waits(number, waker) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Ends the wait of a sender. If its message was not admitted, returns the message and the sender's waker.
    pub(crate) fn give_up(&self, number: u64) -> Option<(M, Option<Waker>)> {
        self.state.lock().bounded()?.give_up(number)
    }

    /// Returns why a push would be refused now: `Some(true)` if the inbox is full, `Some(false)` if the inbox is
    /// closed. `None` means that a push would be accepted.
    pub(crate) fn refuses(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if state.closed {
            return Some(false);
        }
        state.bounded().is_some_and(|bounded| bounded.rejects()).then_some(true)
    }

    /// Registers a waker for room. It is woken once, when the receiver next makes room and no waiting sender takes this
    /// room. There may be room already at the time of the call. If the mailbox has no bound, the waker is dropped.
    pub(crate) fn watch(&self, waker: Waker) {
        let mut waker = Some(waker);
        if let Some(bounded) = self.state.lock().bounded() {
            bounded.watch(&mut waker);
        }
        drop(waker);
    }

    /// Appends a signal. The signal wakes the task of the process, and a receiver that waits elsewhere.
    ///
    /// An answer to a yield is meant for the reader of the mailbox, so it wakes only a receiver that waits for the next
    /// event. It does not wake a process that waits for something else. It does not wake a process that was woken and
    /// has not read its mailbox since. `wake_own` is false for an answer that comes from inside the process's own turn:
    /// the answer then wakes nothing.
    ///
    /// # Errors
    /// Returns the signal if the inbox is closed.
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

    /// As [`signal`](Self::signal), for the answer to a yield. The answer is moved only once, out of `answer`, because
    /// a process may get many answers and each copy costs time.
    ///
    /// # Errors
    /// Fails if the inbox is closed. `answer` is then unchanged.
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

    /// As [`signal`](Self::signal), for a `Down` event: the exit of a monitored process. Returns `None` if the inbox is
    /// closed.
    #[inline]
    pub(crate) fn down(&self, own: &impl Own, number: u64, pid: Pid, reason: &Exit, wake_own: bool) -> Option<Wakes> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        // A process may get a million `Down` events, so each copy matters. The arm for the most frequent reason
        // constructs its signal directly in its final place.
        match reason {
            Exit::Normal => state.append(Signal::Down { number, pid, reason: Exit::Normal }),
            _ => state.append(Signal::Down { number, pid, reason: reason.clone() }),
        }
        Some(if wake_own && !planted!("down_wakes_nobody") { state.receiver(own) } else { Wakes::default() })
    }

    /// Returns the wake-ups for an event that is not stored in the queue: a kill or a cancel.
    pub(crate) fn rouse(&self, own: &impl Own) -> Wakes {
        self.lock().everybody(own)
    }
}

/// A mailbox whose messages are forwarded by a [`Router`].
impl<M> Inbox<M> {
    /// As [`push_or_wait`](Self::push_or_wait), for a message that the router did not take. From then on messages are
    /// queued here and not forwarded. Forwarding starts again when the receiver finds the inbox empty and calls
    /// [`resume`](Self::resume).
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

    /// Sets the router. Forwarding begins when the receiver calls [`resume`](Self::resume) while no message waits here.
    pub(crate) fn route_to(&self, own: &impl Own, router: Arc<dyn Router<M>>) {
        let mut state = self.lock();
        state.lent.recall(own);
        state.aside.get_or_insert_default().way = Forwarding::Routed { router, some_wait: true };
    }

    /// Starts to forward messages if no message waits here. Otherwise messages are queued here.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        let some_wait = state.queued_len() != 0;
        state.some_wait(some_wait);
    }

    /// If messages are forwarded now, because no message waits here, calls `f` under the lock. Otherwise returns
    /// `None`.
    pub(crate) fn if_none_waits<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        let way = state.aside.as_deref().map(|aside| &aside.way);
        matches!(way, Some(Forwarding::Routed { some_wait: false, .. })).then(f)
    }

    /// Sets the router that gets the unread messages when the inbox is closed.
    pub(crate) fn leave_to(&self, router: Arc<dyn Router<M>>) {
        self.state.lock().aside.get_or_insert_default().way = Forwarding::Left(router);
    }

    /// Puts messages before all queued messages, even beyond the capacity.
    ///
    /// # Errors
    /// Returns the messages if the inbox is closed or has no bound.
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
