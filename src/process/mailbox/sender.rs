//! The sending side of a mailbox. The sending side appends messages and signals, and returns the wake-ups that these
//! messages and signals cause. [`Inbox::push`] sends a message: either `deliver` writes the message into the slot
//! without the lock, or `push_locked` appends the message under the lock. Under the lock, the message is stored in the
//! queue or in the slot.

use std::task::{Poll, Waker};

use crate::platform::sync::{Arc, planted};
use crate::process::catch::drop_caught;
use crate::process::event::{Answer, Completed, Signal, Tag};
use crate::process::exit::Exit;
use crate::process::mailbox::routed::Forwarding;
use crate::process::mailbox::slot::Slot;
use crate::process::mailbox::wakes::PendingSchedule;
use crate::process::mailbox::{Inbox, MessageClock, Own, Router, Unsent, Wakes};
use crate::process::pid::Pid;

impl<M> Inbox<M> {
    /// Returns whether the slot is probably open. If the result is true, the sender calls [`deliver`](Self::deliver).
    /// If the result is false, the run state is most likely not *Open*, and the sender takes the lock without reading
    /// the run state. A read of the run state would be slow, because the cache line of the run state belongs to the
    /// core that runs the process.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        Slot::<M>::FITS && self.state.is_marked()
    }

    /// Appends a message. If the message is accepted, calls `accepted` before the process is queued.
    ///
    /// # Errors
    /// Returns the message if the inbox is closed or full, or if the message must be routed. If the policy dropped a
    /// message, returns the dropped message.
    pub(crate) fn push<O: Own + MessageClock>(
        &self,
        own: &O,
        message: M,
        accepted: impl FnOnce(),
    ) -> Result<Wakes, Unsent<M>> {
        if !self.is_open() {
            return self.push_locked(own, message, accepted);
        }
        if own.may_measure() {
            return self.push_measured(own, message, accepted);
        }
        self.deliver_or_push(own, message, accepted)
    }

    fn deliver_or_push<O: Own + MessageClock>(
        &self,
        own: &O,
        message: M,
        accepted: impl FnOnce(),
    ) -> Result<Wakes, Unsent<M>> {
        match self.deliver(own, message) {
            Ok(pending) => {
                accepted();
                Ok(Wakes { own: Some(pending), other: None })
            }
            Err(message) => self.push_locked(own, message, accepted),
        }
    }

    /// Writes a message into the slot, if the slot is open. A message in the slot is not measured.
    ///
    /// # Errors
    /// Returns the message if the slot is not open, or if the message does not fit into the slot.
    #[inline]
    pub(crate) fn deliver(&self, own: &impl Own, message: M) -> Result<PendingSchedule, M> {
        self.slot.deliver(own, message)
    }

    /// Does the same as [`push`](Self::push), but always takes the lock.
    #[inline]
    pub(crate) fn push_locked<O: Own + MessageClock>(
        &self,
        own: &O,
        message: M,
        accepted: impl FnOnce(),
    ) -> Result<Wakes, Unsent<M>> {
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
        // `State::wakes_for_receiver` is called before the push. If this function wakes the process, this function also
        // closes the slot. Then the push may write the message into the slot. A thread that holds the lock may write
        // into a closed slot, but not into an open slot.
        let wakes = state.wakes_for_receiver(own);
        state.messages().push(message, own);
        accepted();
        Ok(wakes)
    }

    /// Appends a message in the same way as [`push`](Self::push). If the inbox is unbounded and empty, and the clock
    /// measures the message, the message is stored in the buffer and not in the slot.
    #[cold]
    pub(crate) fn push_measured<O: Own + MessageClock>(
        &self,
        own: &O,
        message: M,
        accepted: impl FnOnce(),
    ) -> Result<Wakes, Unsent<M>> {
        if let Some(timer) = own.timer() {
            let mut state = self.lock();
            if !state.closed && state.bounded().is_none() && state.messages().len() == 0 {
                let forgets = planted!("measured_message_does_not_wake");
                let wakes = if forgets { Wakes::default() } else { state.wakes_for_receiver(own) };
                state.messages().push_measured(message, timer, own);
                accepted();
                return Ok(wakes);
            }
        }
        self.deliver_or_push(own, message, accepted)
    }

    /// Appends a message. If the mailbox is full, the message waits for free space. In contrast to
    /// [`push`](Self::push), this function does not apply the policy for a full mailbox, and so never drops a
    /// message. If the message waits, the function takes `waker` and returns the number of the waiting sender. If the
    /// mailbox is full and there is no waker, the message is refused.
    ///
    /// # Errors
    /// Returns the message in three cases: the inbox is closed, the message must be routed, or the inbox is full and
    /// the message cannot wait. A message cannot wait if there is no waker or if the capacity is 0.
    pub(crate) fn push_or_wait<O: Own + MessageClock>(
        &self,
        own: &O,
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

    /// Returns `Ready(Ok(()))` if the message of a waiting sender was admitted, that is, moved into the queue. If the
    /// message was not admitted, the sender continues to wait with `waker`. The function stores `waker`, and returns
    /// the sender's previous waker in `waker`. The caller drops the previous waker.
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

    /// Removes a sender from the list of waiting senders. If the sender was still in the list, its message was not
    /// admitted. In this case, returns the message and the sender's waker.
    pub(crate) fn give_up(&self, number: u64) -> Option<(M, Option<Waker>)> {
        self.state.lock().bounded()?.give_up(number)
    }

    /// Returns the reason why a push would be refused now. `Some(true)` means that the inbox is full, and `Some(false)`
    /// means that the inbox is closed. `None` means that a push would be accepted.
    pub(crate) fn refuses(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if state.closed {
            return Some(false);
        }
        let is_full = state.bounded().is_some_and(|bounded| bounded.rejects());
        if let Some(router) = state.router() {
            drop(state);
            return ((is_full || !router.queues()) && router.refuses()).then_some(true);
        }
        is_full.then_some(true)
    }

    /// Registers the waker of a task that waits for free space. The waker is called at most one time: when the receiver
    /// frees space and no waiting sender takes this space. This function does not check whether the mailbox already has
    /// free space. If the mailbox is unbounded, the waker is dropped.
    pub(crate) fn watch(&self, waker: Waker) {
        let mut waker = Some(waker);
        if let Some(bounded) = self.state.lock().bounded() {
            bounded.watch(&mut waker);
        }
        drop(waker);
    }

    /// Appends a signal. The signal wakes the task of the process, and also a receiver that waits in another task.
    ///
    /// An answer to a command wakes only the receiver that is registered as waiting. The answer does not wake a process
    /// that waits only for a future outside the mailbox, because such a process does not read the answer now. The
    /// answer also does not wake a process that was woken and has not read its mailbox since then. If a turn of the
    /// receiving process sends the signal, `wake_own` is false. In this case, the signal wakes the receiver only if the
    /// receiver waits with its own waker, for example in another task or in a future combinator of the process. The
    /// next poll of the process does not poll a receiver that waits with its own waker.
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
            false => Wakes { own: None, other: state.take_other() },
            true if is_answer && planted!("answer_does_not_wake") => Wakes::default(),
            true if is_answer || planted!("signal_wakes_receiver_only") => state.wakes_for_receiver(own),
            true => state.wakes_for_all(own),
        })
    }

    /// Appends an event with the answer to a command, and wakes the same tasks as [`signal`](Self::signal). In contrast
    /// to `signal`, this function moves the answer out of `answer`, and does not copy the answer again. A process may
    /// receive many answers, and each copy of an answer costs time.
    ///
    /// # Errors
    /// Fails if the inbox is closed. After a failure, `answer` is unchanged.
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
        if planted!("answer_does_not_wake") {
            return Ok(Wakes::default());
        }
        Ok(if wake_own { state.wakes_for_receiver(own) } else { Wakes { own: None, other: state.take_other() } })
    }

    /// Appends a `Down` event, which reports the exit of a monitored process. The event wakes the same tasks as an
    /// [`answer`](Self::answer). Returns `None` if the inbox is closed.
    #[inline]
    pub(crate) fn down(&self, own: &impl Own, number: u64, pid: Pid, reason: &Exit, wake_own: bool) -> Option<Wakes> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        // A process may receive a million `Down` events, so each copy of a signal matters. `Normal` is the most
        // frequent exit. The match arm for `Normal` constructs the signal directly in its final place.
        match reason {
            Exit::Normal => state.append(Signal::Down { number, pid, reason: Exit::Normal }),
            _ => state.append(Signal::Down { number, pid, reason: reason.clone() }),
        }
        if planted!("down_does_not_wake") {
            return Some(Wakes::default());
        }
        Some(if wake_own { state.wakes_for_receiver(own) } else { Wakes { own: None, other: state.take_other() } })
    }

    /// Removes the unread `Down` event of the monitor with this number, if the event is one of the newest signals in
    /// the mailbox. An older event stays in the mailbox, and the receiver discards this event when the receiver reads
    /// the event.
    pub(crate) fn discard_down(&self, number: u64) {
        let mut state = self.lock();
        let is_down = |signal: &Signal| matches!(signal, Signal::Down { number: other, .. } if *other == number);
        let discarded = state.aside.as_deref_mut().and_then(|aside| aside.signals.remove_newest(is_down));
        drop(state);
        // The exit in the event may contain an error of the user. The destructor of this error must run without the
        // lock.
        let _ = drop_caught(discarded);
    }

    /// Returns the wake-ups for a kill or a cancellation. The mailbox does not store kills and cancellations.
    pub(crate) fn wake_all(&self, own: &impl Own) -> Wakes {
        self.lock().wakes_for_all(own)
    }
}

/// Methods for a mailbox whose messages are forwarded by a [`Router`].
impl<M> Inbox<M> {
    /// Stores a message in this inbox, because the router did not accept the message. The results are the same as the
    /// results of [`push_or_wait`](Self::push_or_wait). Forwarding then stops, and all later messages are also queued
    /// in this inbox. Forwarding starts again when the receiver finds the inbox empty and calls
    /// [`resume`](Self::resume).
    pub(crate) fn keep<O: Own + MessageClock>(
        &self,
        own: &O,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Wakes), Unsent<M>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        state.some_wait(true);
        let stored = state.store_or_wait(own, message, waker, accepted);
        // If the message was refused and no other message waits, the router may accept the next message.
        if state.queued_len() == 0 {
            state.some_wait(false);
        }
        stored
    }

    /// Sets the router. Unread urgent messages become the oldest messages of this inbox. Forwarding begins when the
    /// receiver calls [`resume`](Self::resume) and no message waits in this inbox.
    pub(crate) fn route_to(&self, own: &impl Own, router: Arc<dyn Router<M>>) {
        let mut state = self.lock();
        state.access.close_or_recall(own);
        Self::demote_urgent(&mut state);
        state.aside.get_or_insert_default().forwarding = Forwarding::Routed { router, some_wait: true };
    }

    /// Returns the router to which messages are forwarded, if there is one.
    pub(crate) fn router(&self) -> Option<Arc<dyn Router<M>>> {
        match self.state.lock().aside.as_deref().map(|aside| &aside.forwarding) {
            Some(Forwarding::Routed { router, .. }) => Some(Arc::clone(router)),
            _ => None,
        }
    }

    /// Starts to forward messages if no message waits in this inbox. If a message waits, later messages are queued in
    /// this inbox.
    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        let some_wait = state.queued_len() != 0;
        state.some_wait(some_wait);
    }

    /// Calls `f` under the lock if messages are forwarded now. Messages are forwarded only while no message waits in
    /// this inbox. If messages are not forwarded, returns `None`.
    pub(crate) fn if_none_waits<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        let state = self.state.lock();
        let forwarding = state.aside.as_deref().map(|aside| &aside.forwarding);
        matches!(forwarding, Some(Forwarding::Routed { some_wait: false, .. })).then(f)
    }

    /// Sets the router that receives the unread messages when the inbox is closed. Does nothing if the inbox is already
    /// closed. A closed inbox would keep the router forever. If the router refers to the process of the inbox, this
    /// would create a reference cycle that is never freed.
    pub(crate) fn leave_to(&self, router: Arc<dyn Router<M>>) {
        // `router` is a parameter, so `router` is dropped after `state`, without the lock. The destructor of `router`
        // runs user code, and user code must not run under the lock.
        let mut state = self.state.lock();
        if !state.closed {
            state.aside.get_or_insert_default().forwarding = Forwarding::Left { router, returned: Vec::new() };
        }
    }

    /// Inserts messages before all queued messages, even if the mailbox then exceeds its capacity.
    ///
    /// # Errors
    /// Returns the messages if the inbox is closed or unbounded.
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
        Ok(state.wakes_for_receiver(own))
    }
}
