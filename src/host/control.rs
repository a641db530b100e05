//! Defines the control block of a process. A control block holds the pid, the mailbox, the yields and the exit of the
//! process.
//!
//! The task, the addresses, the pid table and the completions of a process share one control block. Only the mailbox in
//! the control block depends on the message type. [`AnyControl`] is the interface for code that does not know the
//! message type. The body of the process is not part of the control block.

pub(crate) mod blocked_step;
pub(crate) mod forwarded;
pub(crate) mod head;
pub(crate) mod listening;
mod steps;
pub(crate) mod suspension;
pub(crate) mod waits;

use std::any::{Any, type_name};
use std::fmt;
use std::panic::Location;
use std::task::Waker;

pub(crate) use crate::host::control::head::{Change, Head, SpawnSettings, flag};
pub(crate) use crate::host::control::listening::{Listening, poll_news};
use crate::host::control::waits::{Place, Wait, WaitRecord, Waits};
use crate::host::link::{Linkable, Links};
use crate::host::registry::PidEntry;
use crate::observe::{Counter, skips_message};
use crate::platform::clock::Instant;
use crate::platform::static_ref::{AtomicStaticRef, Line};
use crate::process::catch as panic;
use crate::process::catch::{delay_wakers, drop_caught};
use crate::process::error::SendErrorKind;
use crate::process::event::{Answer, Signal, Tag};
use crate::process::exit::{Exit, Reason};
use crate::process::mailbox::{
    Glance, Inbox, MailboxFigures, MessageClock, MessageTimer, Own, ReadAhead, ReceiverTurn, RoomWaiter, Router, Taken,
    Trial, Unrouted, Unsent, Wakes,
};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::current::{Current, InTurn};
use crate::process::state::{Header, HeaderFirst, Ref, RunnableProcess};
use crate::process::yields::{Answered, Answerer, Late};

/// Control block of one process. Each turn needs the fields that come before the mailbox. These fields fit into one
/// cache line. Therefore a turn that reads no message usually accesses only one cache line of the control block.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control<M> {
    pub(crate) header: Header,
    pub(crate) head: Head,
    pub(crate) inbox: Inbox<M>,
    /// Record of the first operation that the process waits for: see [`waits`].
    pub(crate) first_wait: WaitRecord,
    /// Source line of the latest receive operation. A mailbox has only one receive operation at a time. Therefore, if a
    /// process waits for a message, the process waits in the receive operation of this source line. Only inspections
    /// read the line.
    pub(crate) receive_line: AtomicStaticRef<Location<'static>>,
}

impl<M: Send + 'static> Control<M> {
    /// Returns the address of the control block. The address identifies the process as long as the control block
    /// exists.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Puts a message into the mailbox, and wakes the receiver of the mailbox.
    ///
    /// # Errors
    /// Returns the message if the process has exited, or if the mailbox is full.
    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<(), (SendErrorKind, M)> {
        // This function repeats the code of `Inbox::push`, and does not call `Inbox::push`. Therefore `push_measured`
        // can return the final result directly. If this function called `Inbox::push`, the compiler would write the
        // result of each push to memory.
        let mut message = message;
        if self.inbox.is_open() {
            if self.may_measure() {
                return self.push_measured(message);
            }
            match self.inbox.deliver(self, message) {
                Ok(pending) => {
                    self.accepted();
                    pending.queue(&self.head.host().shared().place);
                    return Ok(());
                }
                Err(back) => message = back,
            }
        }
        match self.inbox.push_locked(self, message, || self.accepted()) {
            Ok(wakes) => {
                self.perform_wakes(wakes);
                Ok(())
            }
            Err(unsent) => self.settle(unsent),
        }
    }

    /// Does the same as [`push`](Self::push). In some cases, this function also measures how long the message stays
    /// in the mailbox.
    #[cold]
    #[inline(never)]
    fn push_measured(&self, message: M) -> Result<(), (SendErrorKind, M)> {
        match self.inbox.push_measured(self, message, || self.accepted()) {
            Ok(wakes) => {
                self.perform_wakes(wakes);
                Ok(())
            }
            Err(unsent) => self.settle(unsent),
        }
    }

    /// Puts an urgent message into the mailbox, and wakes the receiver of the mailbox.
    ///
    /// # Errors
    /// Returns the message if the process has exited, or if the mailbox accepts no more urgent messages.
    #[cold]
    pub(crate) fn push_urgent(&self, message: M) -> Result<(), (SendErrorKind, M)> {
        let accepted = || {
            self.head.set(flag::URGENT);
            self.accepted();
            if self.head.is_observed() {
                self.head.host().trace_reorder(&self.head);
            }
        };
        match self.inbox.push_urgent(self, message, accepted) {
            Ok(wakes) => {
                self.perform_wakes(wakes);
                Ok(())
            }
            Err(Unsent::Routed(message, router)) => {
                router.route_urgent(message).map_err(|message| (SendErrorKind::Full, message))
            }
            Err(unsent) => self.settle(unsent),
        }
    }

    /// Performs the wake-ups that a change of the mailbox requires. The caller must not hold the lock of the mailbox.
    #[inline]
    fn perform_wakes(&self, wakes: Wakes) {
        wakes.wake_in(&self.head.host().shared().place);
    }

    /// Calls `put`, which puts an event into the mailbox. The argument of `put` is true if the event may wake the
    /// process. In a turn of the process, the event must not wake the process, because the same turn runs a further
    /// step.
    #[inline]
    fn put_event<E>(&self, put: impl FnOnce(bool) -> Result<Wakes, E>) -> Result<Wakes, E> {
        let is_own_turn = Current::with(|current| current.is_in_turn_of(self.address()));
        let wakes = put(!is_own_turn)?;
        if is_own_turn {
            Current::with(Current::note_answered);
        }
        Ok(wakes)
    }

    /// Counts a message that the mailbox has accepted. The caller runs on the thread of the sender.
    #[inline]
    fn accepted(&self) {
        self.count_accepted(true);
    }

    /// Counts a message that the mailbox has accepted. `by_sender` is true if this thread runs the sender.
    #[inline]
    fn count_accepted(&self, by_sender: bool) {
        self.head.count(Counter::Messages);
        if self.head.is_observed() {
            self.head.host().observe_send(&self.head, type_name::<M>(), by_sender);
        }
    }

    /// Records a message that the router of another mailbox has passed to this mailbox. The other mailbox has counted
    /// the message.
    #[inline]
    pub(crate) fn accepted_from_router(&self) {
        if self.head.is_observed() {
            self.head.host().log_message(&self.head, type_name::<M>(), true);
        }
    }

    /// Slow path of a push: returns a refused message to the sender, or passes the message to the router. If the
    /// overflow policy dropped a message, the push counts as successful.
    #[cold]
    fn settle(&self, unsent: Unsent<M>) -> Result<(), (SendErrorKind, M)> {
        match unsent {
            Unsent::Closed(message) => Err((self.head.host().gone(), message)),
            Unsent::Full(message) => Err((SendErrorKind::Full, message)),
            Unsent::Dropped(message, wakes) => {
                self.perform_wakes(wakes);
                self.drop_by_policy(message);
                Ok(())
            }
            Unsent::Routed(message, router) => self.route(message, &*router, &mut None).map(|_| ()),
        }
    }

    /// Passes a message to the router of the mailbox. If the router finds no receiver, this function stores the message
    /// in the mailbox or refuses the message. If `waker` is set, the message can wait for free space in the mailbox, as
    /// in [`push_or_wait`](Self::push_or_wait).
    fn route(
        &self,
        message: M,
        router: &dyn Router<M>,
        waker: &mut Option<Waker>,
    ) -> Result<Option<u64>, (SendErrorKind, M)> {
        let message = match router.route(message, &|| self.accepted()) {
            Ok(()) => return Ok(None),
            Err(Unrouted::Full(message)) if waker.is_none() => return Err((SendErrorKind::Full, message)),
            Err(Unrouted::Full(message) | Unrouted::Later(message)) => message,
        };
        match self.inbox.keep(self, message, waker, || self.accepted()) {
            Ok((None, wakes)) => {
                self.perform_wakes(wakes);
                Ok(None)
            }
            Ok((number, _)) => Ok(number),
            Err(unsent) => self.settle(unsent).map(|()| None),
        }
    }

    /// Returns the reason why the mailbox would refuse a message now. Returns `None` if the mailbox would accept a
    /// message.
    pub(crate) fn refuses(&self) -> Option<SendErrorKind> {
        self.inbox.refuses().map(|full| if full { SendErrorKind::Full } else { self.head.host().gone() })
    }

    /// Returns the reason why the mailbox would refuse an urgent message now. Returns `None` if the mailbox would
    /// accept an urgent message.
    pub(crate) fn refuses_urgent(&self) -> Option<SendErrorKind> {
        self.inbox.refuses_urgent().map(|full| if full { SendErrorKind::Full } else { self.head.host().gone() })
    }

    pub(crate) fn drop_by_policy(&self, message: M) {
        let host = self.head.host();
        host.shared().metrics.add(Counter::DroppedByPolicy, 1);
        if self.head.is_observed() {
            host.trace_reorder(&self.head);
        }
        // If the message contains a reply, this reply does not belong to the step of the sender. Therefore this thread
        // must not store the dropped reply.
        let _unstored = Current::with(Current::drop_others);
        host.dead_letters_of(&self.head, std::iter::once(message));
    }

    /// Puts a message into the mailbox and wakes the receiver, as [`push`](Self::push) does. If the mailbox is full,
    /// the result depends on `waker`:
    ///
    /// - If `waker` is set, the message waits for free space, and the mailbox stores the waker with the message. The
    ///   function returns the number of the waiting message. The sender needs this number to ask later whether the
    ///   mailbox has accepted the message.
    /// - If `waker` is `None`, the mailbox refuses the message.
    ///
    /// This function ignores an overflow policy that drops messages.
    ///
    /// # Errors
    /// Returns the message in each of these cases:
    /// - The process has exited, or the mailbox accepts no messages.
    /// - The mailbox is full, and `waker` is `None`.
    pub(crate) fn push_or_wait(&self, message: M, mut waker: Option<Waker>) -> Result<Option<u64>, (SendErrorKind, M)> {
        match self.inbox.push_or_wait(self, message, &mut waker, || self.accepted()) {
            Ok((None, wakes)) => {
                self.perform_wakes(wakes);
                Ok(None)
            }
            Ok((number, _)) => Ok(number),
            Err(Unsent::Routed(message, router)) => self.route(message, &*router, &mut waker),
            Err(unsent) => self.settle(unsent).map(|()| None),
        }
    }

    /// Notifies a task that has waited for free space in the mailbox.
    pub(crate) fn wake_room_waiter(&self, room_waiter: RoomWaiter) {
        match room_waiter {
            RoomWaiter::Sender(sender) => self.admit(sender),
            RoomWaiter::Watcher(watcher) => panic::wake(watcher),
        }
    }

    /// Counts the message of a waiting sender as accepted, and wakes the sender.
    fn admit(&self, sender: Waker) {
        // This thread runs the receiver, and not the sender.
        self.count_accepted(false);
        panic::wake(sender);
    }

    /// Takes the next message, if there is one.
    pub(crate) fn pop(&self, front: &mut ReadAhead<M>) -> Option<M> {
        let (message, room_waiter) = self.inbox.pop(front);
        if let Some(room_waiter) = room_waiter {
            self.wake_room_waiter(room_waiter);
        }
        message
    }

    /// Calls [`Inbox::drain`] in a turn of the process, and notifies the tasks that waited for free space.
    pub(crate) fn drain(&self, receiver_turn: ReceiverTurn, taken: &mut Option<Box<Taken<M>>>) {
        let (admitted, slot_is_open) = self.inbox.drain(self, receiver_turn, taken);
        Current::with(|current| current.note_waits_for_message(slot_is_open));
        if let Some(admitted) = admitted {
            self.wake_room_waiters(*admitted);
        }
    }

    /// Calls [`Inbox::drain_or_pop`] in a turn of the process. If `Inbox::glance` finds the state of the mailbox
    /// without the lock, this function does not take the lock.
    #[inline]
    pub(crate) fn drain_or_pop(&self, receiver_turn: ReceiverTurn, taken: &mut Option<Box<Taken<M>>>) -> Option<M> {
        if taken.as_deref().is_none_or(|taken| taken.len() == 0) {
            match self.inbox.glance() {
                Glance::Unknown => {}
                known => {
                    Current::with(|current| current.note_waits_for_message(true));
                    return if known == Glance::Empty { None } else { self.inbox.take_delivered(receiver_turn) };
                }
            }
        }
        let (message, admitted, slot_is_open) = self.inbox.drain_or_pop(self, receiver_turn, taken);
        Current::with(|current| current.note_waits_for_message(slot_is_open));
        if let Some(admitted) = admitted {
            self.wake_room_waiters(*admitted);
        }
        message
    }

    #[cold]
    fn wake_room_waiters(&self, (room_waiters, wakes): (Vec<RoomWaiter>, Wakes)) {
        // A foreign waker may block until a process that this function wakes has run. Therefore this function first
        // queues all these processes, and then calls the foreign wakers.
        delay_wakers(|| {
            self.perform_wakes(wakes);
            room_waiters.into_iter().for_each(|waiter| self.wake_room_waiter(waiter));
        });
    }

    /// Begins a turn of the process.
    #[inline]
    pub(crate) fn begin_turn(&self, ready: &RunnableProcess) {
        if self.head.run.begin() {
            self.close_slot(ready);
        }
    }

    /// Closes the mailbox slot at the beginning of a turn. A receiver that was split off from the process can run
    /// outside the turns of the process. `begin_turn` calls this function if a split-off receiver has polled the
    /// mailbox while the slot was open. If the slot contains a message, this function wakes the receiver.
    #[cold]
    fn close_slot(&self, ready: &RunnableProcess) {
        if let Some(reader) = self.inbox.close_slot(ready.in_turn()) {
            panic::wake(reader);
        }
    }

    /// Calls [`Inbox::begin_trial`], and wakes the receiver that was replaced.
    pub(crate) fn begin_trial(&self, turn: InTurn, present: &mut ReadAhead<M>) -> Option<(ReadAhead<M>, Trial)> {
        Current::with(Current::looks_into_mailbox);
        let (next, trial, waiting) = self.inbox.begin_trial(turn, present)?;
        waiting.into_iter().for_each(panic::wake);
        Some((next, trial))
    }

    /// Calls [`Inbox::end_trial`], and wakes the receiver that was on trial.
    pub(crate) fn end_trial(&self, trial: &Trial, former: &mut ReadAhead<M>) {
        self.inbox.end_trial(trial, former).into_iter().for_each(panic::wake);
    }

    /// Calls [`Inbox::hand_over`], and wakes the receiver that was replaced.
    pub(crate) fn hand_over(&self, turn: InTurn, taken: &mut Taken<M>) -> ReadAhead<M> {
        Current::with(Current::looks_into_mailbox);
        let (next, waiting) = self.inbox.hand_over(turn, taken);
        waiting.into_iter().for_each(panic::wake);
        next
    }

    /// Calls [`Inbox::reclaim`], and wakes the receiver that was replaced.
    pub(crate) fn reclaim(&self, turn: InTurn, taken: &Taken<M>) {
        Current::with(Current::looks_into_mailbox);
        // From now on, the process reads its events itself, and has no receive operation.
        self.receive_line.store(None);
        self.inbox.reclaim(turn, taken).into_iter().for_each(panic::wake);
    }

    /// Puts the messages in `front` back into the mailbox. A receiver has taken these messages out of the mailbox, but
    /// has not consumed them. If the mailbox is closed or has a bound, the messages go to
    /// [`drop_unread`](Self::drop_unread).
    pub(crate) fn put_back(&self, front: &mut ReadAhead<M>) {
        match self.inbox.put_back(self, front) {
            Ok(wakes) => self.perform_wakes(wakes),
            Err(unread) => self.drop_unread(unread),
        }
    }
}

/// Interface of a control block whose message type is not known. The entries of the pid table have this type.
pub(crate) trait AnyControl: HeaderFirst + Send + Sync + 'static {
    fn as_any(&self) -> &dyn Any;
    fn head(&self) -> &Head;
    /// Returns the source line that created the latest receive operation, if the line is known.
    fn receive_line(&self) -> Line {
        None
    }

    /// Returns the head, and the place of the process's first wait record: see [`waits`]. The control block of an
    /// attached receiver has no place for a wait record. A call to another process needs the head and the place, and
    /// one virtual call of this function returns both.
    fn head_and_first_wait(&self) -> (&Head, Option<&WaitRecord>) {
        (self.head(), None)
    }

    /// Closes the mailbox: this is step 2 of an exit (see `host/exit.rs`). Returns a function that performs step 5 of
    /// the exit: the function delivers the unread messages. Returns `None` if the mailbox has no content. An attached
    /// receiver has no mailbox.
    fn close_mailbox(&self, _: Option<InTurn>) -> Option<Box<dyn FnOnce() + '_>> {
        None
    }

    /// Takes the wakers of the tasks that wait on the closed mailbox. The first result is the waker of a receiver that
    /// was split off from its process. The second result contains the wakers of the senders that wait for free space.
    fn take_mailbox_wakers(&self) -> (Option<Waker>, Vec<Waker>) {
        (None, Vec::new())
    }

    /// Counts a batch of steps: see [`steps`].
    fn count_batch(&self) {}

    /// The code at the end of a turn calls this function in one case: a receiver may still be registered in the mailbox
    /// although no receive operation waits.
    fn end_stale_wait(&self, _has_taken_delivered: bool, _: InTurn) {}

    /// Records that the present step of the process has checked for a request to yield. The thread that runs the
    /// process first calls this function, and then counts the step.
    fn record_yield_check(&self) {}

    /// Returns true if one of the last steps of the process has checked for a request to yield.
    fn checks_yield(&self) -> bool {
        false
    }

    /// Returns the number of steps of the process so far.
    fn steps(&self) -> u64 {
        let (head, first) = self.head_and_first_wait();
        first.map_or(0, |first| head.steps(first))
    }

    /// Delivers a message of any type.
    fn deliver(&self, payload: Payload) -> Result<(), (SendErrorKind, Payload)>;
    /// Delivers a message that the process `from` has sent. Only an attached receiver uses `from`.
    fn deliver_by(&self, _from: Option<Pid>, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        self.deliver(payload)
    }
    /// Delivers an urgent message of any type. If the receiver has no queue for urgent messages, the receiver gets the
    /// message as a normal message.
    fn deliver_urgent(&self, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        self.deliver(payload)
    }

    /// Delivers the message in `payload`. A refused message stays in `payload`. The result fits into one word, because
    /// the error is boxed.
    fn deliver_from(&self, payload: &mut Option<Payload>) -> Result<(), Box<SendErrorKind>> {
        let Some(message) = payload.take() else { return Ok(()) };
        self.deliver(message).map_err(|(refusal, message)| {
            *payload = Some(message);
            Box::new(refusal)
        })
    }

    /// Returns the largest number of messages that waited in the mailbox at one time.
    fn high_water(&self) -> usize;
    /// Returns the metrics of the mailbox, for example the length of its queue.
    fn mailbox_figures(&self) -> MailboxFigures;
    /// Puts a signal into the mailbox.
    ///
    /// # Errors
    /// Returns the signal if the mailbox is closed.
    fn put(&self, signal: Signal) -> Result<Wakes, Signal>;
    /// Moves an answer from `answer` into the mailbox.
    ///
    /// # Errors
    /// Fails if the mailbox is closed. In this case the answer stays in `answer`.
    fn put_answer(&self, tag: Tag, answer: &mut Option<Answer>) -> Result<Wakes, ()>;
    /// Puts the `Down` event of a monitor into the mailbox. Returns `None` if the mailbox is closed.
    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes>;
    /// Removes the unread `Down` event of a monitor from the mailbox, if this event is one of the newest events in the
    /// mailbox.
    fn discard_down(&self, _: u64) {}
    /// Wakes the process, and also wakes a receiver that was split off from the process and waits on the mailbox.
    fn wake_all(&self);
    /// Wakes the process, but wakes no receiver that was split off from the process.
    fn wake(&self);
    /// Returns whether the mailbox is closed. An exiting process first closes the mailbox. Afterwards, the exiting
    /// process releases its names, drops its state and publishes its exit.
    fn is_closed(&self) -> bool;
    /// Closes a mailbox that belongs to no process. The caller must be the first thread that has set `KILLED`.
    fn close_outside(&self, exit: &Exit);
}

impl<M: Send + 'static> MessageClock for Control<M> {
    #[inline]
    fn recent(&self) -> u64 {
        let shared = self.head.host().shared();
        // On a worker, the last clock reading is recent. On another thread, the last clock reading may be old, because
        // no thread reads the clock while all workers are parked.
        let now = if shared.metrics.worker().is_some() { shared.timers.recent() } else { shared.timers.now() };
        now.ns().max(1)
    }

    #[inline]
    fn may_measure(&self) -> bool {
        !skips_message()
    }

    #[cold]
    fn timer(&self) -> Option<MessageTimer> {
        self.head.host().message_timer()
    }
}

impl<M: Send + 'static> AnyControl for Control<M> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_and_first_wait(&self) -> (&Head, Option<&WaitRecord>) {
        (&self.head, Some(&self.first_wait))
    }

    fn receive_line(&self) -> Line {
        self.receive_line.load()
    }

    fn close_mailbox(&self, turn: Option<InTurn>) -> Option<Box<dyn FnOnce() + '_>> {
        // In a turn, the process may take messages out of its mailbox without the lock. Therefore, only a thread with
        // the right to run the process may close the mailbox. A mailbox without a process has no turns.
        assert!(turn.is_some() || self.head.is_outside(), "the mailbox of a process is closed in a turn");
        let contents = self.inbox.close(turn)?;
        Some(Box::new(move || {
            self.head.host().dead_letters_of(&self.head, contents.settle(&self.inbox).into_iter());
        }))
    }

    fn take_mailbox_wakers(&self) -> (Option<Waker>, Vec<Waker>) {
        self.inbox.take_wakers()
    }

    fn count_batch(&self) {
        self.first_wait.step_batches.count();
        self.inbox.yield_check().expire(self.head.low_steps());
    }

    fn end_stale_wait(&self, has_taken_delivered: bool, turn: InTurn) {
        if has_taken_delivered { self.inbox.unwait(turn) } else { self.inbox.note_left() }
    }

    fn record_yield_check(&self) {
        self.inbox.yield_check().record(self.head.low_steps());
    }

    fn checks_yield(&self) -> bool {
        self.inbox.yield_check().is_recent(|| self.head.low_steps())
    }

    fn deliver(&self, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        match payload.downcast::<M>() {
            Ok(message) => self.push(message).map_err(|(refusal, message)| (refusal, Payload::new(message))),
            Err(payload) => Err((SendErrorKind::WrongType { expected: type_name::<M>() }, payload)),
        }
    }

    fn deliver_urgent(&self, payload: Payload) -> Result<(), (SendErrorKind, Payload)> {
        match payload.downcast::<M>() {
            Ok(message) => self.push_urgent(message).map_err(|(refusal, message)| (refusal, Payload::new(message))),
            Err(payload) => Err((SendErrorKind::WrongType { expected: type_name::<M>() }, payload)),
        }
    }

    fn deliver_from(&self, payload: &mut Option<Payload>) -> Result<(), Box<SendErrorKind>> {
        match Payload::take(payload) {
            Some(message) => self.push(message).map_err(|(refusal, message)| {
                *payload = Some(Payload::new(message));
                Box::new(refusal)
            }),
            None => Err(Box::new(SendErrorKind::WrongType { expected: type_name::<M>() })),
        }
    }

    fn high_water(&self) -> usize {
        self.inbox.high()
    }

    fn mailbox_figures(&self) -> MailboxFigures {
        self.inbox.figures()
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        // An exiting process has closed its mailbox, and receives no further signal.
        if self.head.is_observed() && !self.inbox.is_closed() {
            self.head.host().log_signal(&self.head, &signal);
        }
        self.put_event(|wake_own| self.inbox.signal(self, signal, wake_own))
    }

    fn put_answer(&self, tag: Tag, answer: &mut Option<Answer>) -> Result<Wakes, ()> {
        self.put_event(|wake_own| self.inbox.answer(self, tag, answer, wake_own))
    }

    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes> {
        if self.head.is_observed() && !self.inbox.is_closed() {
            self.head.host().log_down(&self.head, pid);
        }
        self.put_event(|wake_own| self.inbox.down(self, number, pid, reason, wake_own).ok_or(())).ok()
    }

    fn discard_down(&self, number: u64) {
        self.inbox.discard_down(number);
    }

    fn wake_all(&self) {
        self.perform_wakes(self.inbox.wake_all(self));
    }

    fn wake(&self) {
        if let Some(pending) = Own::wake(self) {
            pending.queue(&self.head.host().shared().place);
        }
    }

    fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    fn close_outside(&self, exit: &Exit) {
        self.run_outside_exit(exit);
    }
}

impl PidEntry for dyn AnyControl {
    fn generation(&self) -> u32 {
        self.head().place().generation
    }
}

impl Linkable for dyn AnyControl {
    fn pid(&self) -> Pid {
        self.head().pid()
    }

    fn links(&self) -> &Links<Self> {
        self.head().links()
    }

    fn exit(&self) -> Option<Exit> {
        self.head().exit()
    }

    fn has_ended(&self) -> bool {
        self.head().has_ended()
    }

    fn is_closed(&self) -> bool {
        AnyControl::is_closed(self)
    }

    fn put(&self, signal: Signal) -> Result<Wakes, Signal> {
        AnyControl::put(self, signal)
    }

    fn put_down(&self, number: u64, pid: Pid, reason: &Exit) -> Option<Wakes> {
        AnyControl::put_down(self, number, pid, reason)
    }

    fn discard_down(&self, number: u64) {
        AnyControl::discard_down(self, number);
    }

    fn mark_killed(&self) -> bool {
        self.head().set(flag::KILLED)
    }

    fn wake_killed(&self) -> bool {
        let is_process = !self.head().is_outside();
        if is_process {
            self.wake_all();
        }
        is_process
    }

    fn exit_outside(this: &Ref<Self>, exit: &Exit) {
        // The close of this mailbox may also close the mailboxes that are linked to this mailbox. A chain of links may
        // be long. Deeply nested calls are deferred, because recursion could overflow the stack.
        let (outside, exit) = (this.clone(), exit.clone());
        Current::with(|current| current.deferred.call(move || outside.close_outside(&exit)));
    }
}

impl dyn AnyControl {
    /// Puts a signal into the mailbox, and wakes the process. If the process has exited, this function drops the
    /// signal.
    pub(crate) fn signal(&self, signal: Signal) {
        match AnyControl::put(self, signal) {
            Ok(wakes) => wakes.wake_in(&self.head().host().shared().place),
            Err(refused) => drop(drop_caught(refused)),
        }
    }

    /// Answers a yield of this process with the answer in `answer`. If the answer comes from the application, this
    /// function compares the type of the answer with the reply type of the command.
    ///
    /// # Errors
    /// Returns the reason why the answer is refused. The answer is too late, or no yield has this tag, or the answer
    /// has the wrong type. A refused answer stays in `answer`.
    pub(crate) fn complete(&self, tag: Tag, answer: &mut Option<Answer>, from: Answerer) -> Result<(), Late> {
        let head = self.head();
        let taken = |command: &dyn Fn() -> &'static str| {
            head.count(Counter::Completions);
            if head.is_observed() {
                head.host().observe_answer(head, tag, command);
            }
        };
        let measured = |command: &'static str, since| head.host().sample_command(command, since);
        // In a trace, the answer must come before the exit of the process. The exit closes the table of yields under
        // the lock of the table. Therefore an answer that is recorded under this lock comes before the exit.
        let from = if head.is_observed() && from == Answerer::Completion { Answerer::Observed } else { from };
        head.yields().complete(tag, answer, from, taken, &measured, |answered, answer| match answered {
            Answered::Event(tag) => self.answer(tag, answer),
            Answered::Notices(count) => self.notice(tag, count),
            Answered::Own => self.wake_or_note(),
            Answered::Other(waker) => self.wake_other(waker),
            Answered::Discard => drop(drop_caught(answer.take())),
        })
    }

    /// Puts an answer into the mailbox, and wakes the process. If the process has exited, this function drops the
    /// answer.
    fn answer(&self, tag: Tag, answer: &mut Option<Answer>) {
        match self.put_answer(tag, answer) {
            Ok(wakes) => wakes.wake_in(&self.head().host().shared().place),
            Err(()) => drop(drop_caught(answer.take())),
        }
    }

    /// Puts `count` notices of a stream into the mailbox.
    pub(crate) fn notice(&self, tag: Tag, count: usize) {
        for _ in 0..count {
            self.signal(Signal::Notice(tag));
        }
    }

    /// Records an operation that the process waits for. The caller sets `here` to true if this thread runs a step of
    /// the process. If `is_counted` is true, this function also increments the [count](Head::wait_for) of waits. The
    /// returned place makes [`end_wait`](Self::end_wait) cheaper.
    #[inline]
    pub(crate) fn begin_wait(&self, wait: &Wait, is_counted: bool, here: bool) -> Place {
        let (head, first) = self.head_and_first_wait();
        if is_counted {
            head.wait_for(Change::More, here);
        }
        let first = first.filter(|_| here);
        first.and_then(|first| first.begin(wait)).unwrap_or_else(|| {
            head.begin_more_waits(wait, first);
            Place::default()
        })
    }

    /// Removes the record of an operation. The parameter `place` is the result of [`begin_wait`](Self::begin_wait), or
    /// the default value of `Place`. If `is_counted` is true, this function also decrements the count of waits.
    #[inline]
    pub(crate) fn end_wait(&self, place: Place, wait: impl FnOnce() -> Wait, is_counted: bool, here: bool) {
        let (head, first) = self.head_and_first_wait();
        if is_counted {
            head.wait_for(Change::Less, here);
        }
        let first = first.filter(|_| here);
        if !first.is_some_and(|first| first.end(place)) {
            head.end_more_waits(&wait(), first);
        }
    }

    /// Returns the records of the operations that the process waits for.
    pub(crate) fn waits(&self) -> Waits {
        let (head, first) = self.head_and_first_wait();
        first.map_or_else(Waits::default, |first| head.waits(first))
    }

    /// Wakes the task of this process after an answer. In a turn of this process, this function only records the
    /// answer, because the same turn runs a further step.
    pub(crate) fn wake_or_note(&self) {
        if !self.note_answered_in_turn() {
            self.wake();
        }
    }

    /// Calls `waker`. A future combinator in the process has created this waker. If this thread is in a turn of the
    /// process, this function also records the answer.
    pub(crate) fn wake_other(&self, waker: Waker) {
        self.note_answered_in_turn();
        panic::wake(waker);
    }

    /// Returns whether this thread is in a turn of this process. If this thread is in a turn of this process, this
    /// function also records that the process received an answer.
    fn note_answered_in_turn(&self) -> bool {
        Current::with(|current| {
            let is_own_turn = current.is_in_turn_of(std::ptr::from_ref(self).cast::<()>() as usize);
            if is_own_turn {
                current.note_answered();
            }
            is_own_turn
        })
    }

    /// Returns whether a turn of this process is in progress on this thread.
    pub(crate) fn has_turn_here(&self) -> bool {
        Current::with(|current| current.is_in_any_turn_of(std::ptr::from_ref(self).cast::<()>() as usize))
    }

    /// Delivers the cancel event, at most once. Returns false if an earlier cancel request exists. This function does
    /// not set the timer that kills the process at the deadline. The caller must make sure that a timer is set that
    /// kills the process at the deadline.
    pub(crate) fn cancel(&self, reason: Reason, deadline: Instant) -> bool {
        let head = self.head();
        if !head.set_cancel(reason.clone(), deadline) {
            return false;
        }
        self.signal(Signal::Cancel { reason, deadline });
        true
    }

    /// Kills the process. The process exits at its next scheduling point. If the mailbox belongs to no process, this
    /// function closes the mailbox immediately.
    pub(crate) fn kill(&self) {
        if !self.head().set(flag::KILLED) {
            return;
        }
        if self.head().is_outside() {
            self.close_outside(&Exit::Killed);
        } else {
            self.wake_all();
        }
    }
}

impl fmt::Debug for dyn AnyControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.head().pid()).finish()
    }
}
