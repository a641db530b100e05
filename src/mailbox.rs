//! The event queue of one process: messages and signals in the order they came, and whom to wake for them.
//!
//! Senders push under a short lock and wake after it; the receiver swaps out everything that is there. Nothing of the
//! user's runs under the lock: not a waker, not a message's `Drop`. A closed inbox refuses what comes and hands it back.
//! One with a bound keeps its messages in a queue of another kind: see `bounded`.
//!
//! A process that takes the one message there is, deals with it and asks for the next would take the lock twice. So the
//! first time it is set to wait *ahead*, in the same breath in which the mailbox is emptied; when it asks for the next, and
//! none has come, it waits already. It may then return without a look under the lock, whatever has come since: who sets
//! `waiting` back wakes the task, and a task that is woken while it runs is run again. The note that it waits ahead is its
//! turn's (`process::turn`): whatever goes under the lock to take or to wait takes it back, and if nothing does before the
//! turn is over, the body waits for something else, and does not want to be woken for mail ([`Inbox::unwait`]).

mod bounded;
mod front;
mod queue;
mod routed;
mod slot;
mod wakes;

pub use bounded::Bound;
pub(crate) use bounded::Relieved;
pub(crate) use front::{Front, Taken};
pub(crate) use routed::{Router, Unrouted};
pub(crate) use wakes::{Due, Own, Wakes};

use std::collections::VecDeque;
use std::mem;
use std::task::{Poll, Waker};

use self::bounded::{Bounded, Pushed};
use self::queue::Queue;
use self::routed::Way;
use crate::process::event::Signal;
use crate::process::exit::Exit;
use crate::process::panic::Held;
use crate::process::pid::Pid;
use crate::sync::{Arc, Lock, LockGuard, planted};

/// Who waits for the next message.
///
/// ```text
///          drain / receive finds nothing             push
///  Nobody ───────────────────────────────▶ Own | Other ────▶ Nobody, and the pusher owes one wake
/// ```
#[derive(Debug, Clone, Copy, Default)]
enum Waiting {
    /// The receiver has not looked since the last wake: it will find what is pushed now.
    #[default]
    Nobody,
    /// The process's own task.
    Own,
    /// A combinator, a lent thread, or a task of another executor, by the waker that is kept [aside](Aside).
    Other,
}

#[derive(Debug)]
struct State<M> {
    messages: Queue<M>,
    aside: Option<Box<Aside<M>>>,
    waiting: Waiting,
    closed: bool,
    /// The longest burst that was taken out at once, where there is no bound.
    longest: u32,
}

/// What most mailboxes never need.
#[derive(Debug)]
struct Aside<M> {
    /// How many messages were taken out since this was made: what places signals among messages.
    taken: i64,
    /// Each signal with what `taken` will be when all messages that came before it are.
    signals: VecDeque<(i64, Signal)>,
    /// Whom to wake when [`Waiting::Other`].
    other: Option<Waker>,
    bounded: Option<Bounded<M>>,
    way: Way<M>,
}

impl<M> Aside<M> {
    /// The message of this number was read before some that came earlier: signals that came before it don't come nearer
    /// for that.
    fn keep_apart(&mut self, number: i64) {
        self.signals.iter_mut().take_while(|(before, _)| *before <= number).for_each(|(before, _)| *before += 1);
    }
}

impl<M> Default for Aside<M> {
    fn default() -> Self {
        Self { taken: 0, signals: VecDeque::new(), other: None, bounded: None, way: Way::Here }
    }
}

type Unheard<M> = (Option<VecDeque<(i64, Signal)>>, Option<Waker>, Option<Arc<dyn Router<M>>>);

/// What was in an inbox when it was closed.
#[derive(Debug)]
pub(crate) struct Remains<M> {
    messages: Vec<M>,
    /// Who may want them.
    heir: Option<Arc<dyn Router<M>>>,
    /// Dropped with this: the signals that nobody heard, and the ways to others.
    _rest: Held<Unheard<M>>,
}

impl<M> Remains<M> {
    /// The messages that nobody will read.
    pub(crate) fn settle(self) -> Vec<M> {
        match self.heir {
            Some(heir) if !self.messages.is_empty() => heir.inherit(self.messages).err().unwrap_or_default(),
            _ => self.messages,
        }
    }
}

/// The shared half of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    state: Lock<State<M>>,
}

/// What a push that was not plain comes to.
#[derive(Debug)]
pub(crate) enum Unsent<M> {
    Closed(M),
    Full(M),
    /// It is to be handed on, or [kept](Inbox::keep) here.
    Routed(M, Arc<dyn Router<M>>),
    /// There was no room, and by the policy this message was dropped: the one that was pushed, or the oldest for it.
    Dropped(M, Due),
}

/// What a receiver that took something, or waits, owes when the lock is free.
#[derive(Debug)]
#[must_use = "a sender that is not woken waits for ever"]
pub(crate) struct Spare {
    /// No longer waited with, to be dropped.
    pub(crate) former: Option<Waker>,
    pub(crate) relieved: Option<Relieved>,
}

/// The senders whose messages were let in when all others were taken out, and the wakes that those messages owe.
pub(crate) type Admitted = Option<Box<(Vec<Waker>, Due)>>;

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
    #[inline]
    pub(crate) fn new(bound: Bound, limit: Option<usize>) -> Self {
        let bounded =
            |(policy, most)| Box::new(Aside { bounded: Some(Bounded::new(policy, most)), ..Aside::default() });
        Self {
            state: Lock::new(State {
                messages: Queue::new(),
                aside: bound.within(limit).map(bounded),
                waiting: Waiting::Nobody,
                closed: false,
                longest: 0,
            }),
        }
    }

    /// Appends a message. If it is taken, `accepted` is called before anybody can have read it.
    ///
    /// # Errors
    /// The message, when the inbox is closed or full; or one that was dropped for it, if that is the policy.
    #[inline]
    pub(crate) fn push(&self, message: M, accepted: impl FnOnce()) -> Result<Due, Unsent<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        if planted!("push_unlocks") {
            drop(state);
            state = self.state.lock();
        }
        if state.bounded().is_some() {
            let pushed = state.push_bounded(message);
            if matches!(pushed, Ok(_) | Err(Unsent::Dropped(..))) {
                accepted();
            }
            return pushed;
        }
        state.messages.push(message);
        accepted();
        Ok(state.receiver())
    }

    /// As [`push`](Self::push), but where there is no room the message waits for it, and `waker` is taken: then a number
    /// comes back to ask by. Without a waker it is refused.
    ///
    /// # Errors
    /// The message, when the inbox is closed, or takes none.
    pub(crate) fn push_or_wait(
        &self,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Due), Unsent<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        if let Some(router) = state.router() {
            return Err(Unsent::Routed(message, router));
        }
        state.store_or_wait(message, waker, accepted)
    }

    /// As [`push_or_wait`](Self::push_or_wait), for a message that was not handed on. Until the inbox is empty, and its
    /// receiver has [seen that](Self::resume), no other one is.
    pub(crate) fn keep(
        &self,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Due), Unsent<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        state.some_wait(true);
        state.store_or_wait(message, waker, accepted)
    }

    /// Messages go on to this router from now on, when those that wait here have.
    pub(crate) fn route_to(&self, router: Arc<dyn Router<M>>) {
        self.state.lock().aside.get_or_insert_default().way = Way::Routed { router, some_wait: true };
    }

    /// Hands messages on again, if none waits here.
    pub(crate) fn resume(&self) {
        let mut state = self.state.lock();
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
    pub(crate) fn put_first(&self, messages: Vec<M>) -> Result<Due, Vec<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(messages);
        }
        let Some(aside) = state.aside.as_deref_mut() else { return Err(messages) };
        let Some(bounded) = aside.bounded.as_mut() else { return Err(messages) };
        aside.signals.iter_mut().for_each(|(before, _)| *before += messages.len() as i64);
        bounded.put_first(messages);
        state.some_wait(true);
        Ok(state.receiver())
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
        (state.everybody().other, state.bounded().map_or_else(Vec::new, Bounded::strand))
    }

    /// How many messages and signals wait here.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.untaken() + state.aside.as_deref().map_or(0, |aside| aside.signals.len())
    }

    /// The most messages that waited here at once; without a bound, that were taken out at once or wait now.
    pub(crate) fn high(&self) -> usize {
        let mut state = self.state.lock();
        match state.bounded() {
            Some(bounded) => bounded.high(),
            None => state.messages.len().max(state.longest as usize),
        }
    }

    /// Appends a signal, which always wakes the task (`wake_own` is false for an answer that comes from inside the
    /// process's own turn) and a receiver that waits elsewhere.
    ///
    /// # Errors
    /// The signal, when the inbox is closed.
    pub(crate) fn signal(&self, signal: Signal, wake_own: bool) -> Result<Due, Signal> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(signal);
        }
        state.append(signal);
        if !wake_own {
            return Ok(Due::default());
        }
        Ok(if planted!("signal_wakes_receiver_only") { state.receiver() } else { state.everybody() })
    }

    /// Appends the news of another's end. Only who reads the mailbox hears of it, so one that waits for something else is
    /// not woken, nor one that was woken and has not come yet. Nothing if it is closed.
    #[inline]
    pub(crate) fn down(&self, number: u64, pid: Pid, reason: &Exit, wake_own: bool) -> Option<Due> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        // Of a million of these each copy counts: the usual one is made in its place.
        match reason {
            Exit::Normal => state.append(Signal::Down { number, pid, reason: Exit::Normal }),
            _ => state.append(Signal::Down { number, pid, reason: reason.clone() }),
        }
        Some(if wake_own && !planted!("down_wakes_nobody") { state.receiver() } else { Due::default() })
    }

    /// As [`drain`](Self::drain), but if all there is is one message, and nothing unread in `taken`, that is returned.
    #[inline]
    pub(crate) fn drain_or_pop(&self, taken: &mut Option<Box<Taken<M>>>) -> (Option<M>, Admitted) {
        let mut state = self.state.lock();
        let is_only = state.messages.len() == 1 && state.aside.is_none();
        if !is_only || taken.as_deref().is_some_and(|taken| taken.len() != 0) {
            return (None, Self::drain_from(state, taken));
        }
        state.note_burst();
        let message = state.messages.pop_only();
        if !planted!("drain_does_not_wait") {
            state.waiting = Waiting::Own;
        }
        drop(state);
        if let Some(taken) = taken {
            taken.shrink();
        }
        (message, None)
    }

    /// Whom to wake for something that is not in the queue: a kill, a cancel.
    pub(crate) fn rouse(&self) -> Due {
        self.state.lock().everybody()
    }

    /// Moves all messages and signals to the receiver, who waits from now on with its task's own waker.
    pub(crate) fn drain(&self, taken: &mut Option<Box<Taken<M>>>) -> Admitted {
        Self::drain_from(self.state.lock(), taken)
    }

    fn drain_from(mut guard: LockGuard<'_, State<M>>, taken: &mut Option<Box<Taken<M>>>) -> Admitted {
        let state = &mut *guard;
        let mut senders = Vec::new();
        if !state.is_empty() {
            senders = state.drain_into(taken.get_or_insert_default());
        } else if let Some(taken) = taken {
            taken.shrink();
        }
        if !planted!("drain_does_not_wait") {
            state.waiting = Waiting::Own;
        }
        state.shrink();
        // What was let in is news for the receiver, who waits again.
        if senders.is_empty() { None } else { Some(Box::new((senders, state.receiver()))) }
    }

    /// The next message, if there is one, and who is to be told of its place. A single one is handed over; of several the
    /// rest moves to `front` at once, so that a burst costs one lock.
    pub(crate) fn pop(&self, front: &mut Front<M>) -> (Option<M>, Option<Relieved>) {
        let mut state = self.state.lock();
        (state.pop(front), state.take_relieved())
    }

    /// As [`pop`](Self::pop), but with nothing there the receiver waits: with its task's own waker, or with `other`. If it
    /// may wait `ahead`, and takes all there is, it does; then that stays true.
    #[inline]
    pub(crate) fn pop_or_wait(
        &self,
        front: &mut Front<M>,
        other: Option<Waker>,
        ahead: &mut bool,
    ) -> (Option<M>, Spare) {
        let mut state = self.state.lock();
        *ahead = *ahead && state.messages.len() == 1 && state.aside.is_none();
        if !*ahead {
            return self.take_or_wait(state, front, other, State::pop);
        }
        let message = state.messages.pop_only();
        if !planted!("ahead_does_not_wait") {
            state.waiting = Waiting::Own;
        }
        state.mark();
        (message, Spare { former: other, relieved: None })
    }

    /// Of a receiver that was set to wait ahead: whether, as far as is known, nothing has come.
    #[inline]
    pub(crate) fn is_still_empty(&self) -> bool {
        self.state.is_marked()
    }

    /// The task that was set to wait ahead does not.
    pub(crate) fn unwait(&self) {
        let mut state = self.state.lock();
        if matches!(state.waiting, Waiting::Own) {
            state.waiting = Waiting::Nobody;
        }
    }

    /// What came next of all that is not read: a message, or nothing and a `signal`, which is larger and rare. Else it
    /// waits as [`pop_or_wait`](Self::pop_or_wait).
    #[inline]
    pub(crate) fn next_or_wait(
        &self,
        front: &mut Front<M>,
        signal: &mut Option<Signal>,
        other: Option<Waker>,
    ) -> (Option<Option<M>>, Spare) {
        self.take_or_wait(self.state.lock(), front, other, |state, front| {
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
    pub(crate) fn next(&self, front: &mut Front<M>) -> Option<Result<M, Signal>> {
        let mut signal = None;
        let (next, _) = self.next_or_wait(front, &mut signal, None);
        next.map(|message| message.ok_or_else(|| signal.expect("it is one or the other")))
    }

    /// Moves all messages behind those of `front`; where there is a bound, takes out the one of this `number`, to be
    /// looked at, or the oldest if that is gone. With nothing there it waits as [`pop_or_wait`](Self::pop_or_wait).
    pub(crate) fn gather_or_wait(
        &self,
        front: &mut Front<M>,
        number: &mut u64,
        other: Option<Waker>,
    ) -> (Option<Gathered<M>>, Spare) {
        self.take_or_wait(self.state.lock(), front, other, |state, front| match state.bounded() {
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
        let mut state = self.state.lock();
        let place = state.bounded()?.settle(number)?;
        state.took_at(place);
        state.take_relieved()
    }

    /// A receiver took a message of its front that stood behind `passed` others; `left` are there now.
    pub(crate) fn passed_over(&self, passed: usize, left: usize) {
        if let Some(aside) = self.state.lock().aside.as_deref_mut() {
            aside.keep_apart(aside.taken - 1 - left as i64 + passed as i64);
        }
    }

    #[inline]
    fn take_or_wait<'a, R>(
        &'a self,
        mut state: LockGuard<'a, State<M>>,
        front: &mut Front<M>,
        other: Option<Waker>,
        take: impl FnOnce(&mut State<M>, &mut Front<M>) -> Option<R>,
    ) -> (Option<R>, Spare) {
        let taken = take(&mut state, front);
        if taken.is_some() {
            return (taken, Spare { former: other, relieved: state.take_relieved() });
        }
        if planted!("receiver_unlocks") {
            drop(state);
            state = self.state.lock();
        }
        state.shrink();
        let Some(other) = other else {
            state.waiting = Waiting::Own;
            return (None, Spare { former: None, relieved: None });
        };
        state.waiting = Waiting::Other;
        let former = state.aside.get_or_insert_default().other.replace(other);
        (None, Spare { former, relieved: None })
    }

    /// Takes back what a receiver took out and has not read.
    ///
    /// # Errors
    /// The messages, when the inbox is closed.
    pub(crate) fn put_back(&self, unread: VecDeque<M>) -> Result<(), VecDeque<M>> {
        if unread.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.closed {
            return Err(unread);
        }
        if state.bounded().is_some() {
            // Read once, and put aside: there is no place for it in the queue, where it would count again.
            return Err(unread);
        }
        if let Some(aside) = state.aside.as_deref_mut() {
            aside.taken -= unread.len() as i64;
        }
        state.messages.put_first(unread);
        Ok(())
    }

    /// Refuses everything from now on, and hands out what was there, if anything was. Whoever waits, or begins to before
    /// the end is known, is woken by [`rouse`](Self::rouse) once it is: sooner it would find nothing and wait again.
    #[inline]
    pub(crate) fn close(&self) -> Option<Remains<M>> {
        let mut state = self.state.lock();
        state.closed = true;
        let is_bare = state.aside.is_none() && state.messages.is_bare();
        (!is_bare).then(|| state.take_remains())
    }
}

impl<M> State<M> {
    /// All that is here, of an inbox that is closed.
    #[cold]
    fn take_remains(&mut self) -> Remains<M> {
        // Whom to wake stays: nobody has been told yet.
        let signals = self.aside.as_deref_mut().map(|aside| mem::take(&mut aside.signals));
        let way = self.aside.as_deref_mut().map(|aside| mem::replace(&mut aside.way, Way::Here));
        let watcher = self.bounded().and_then(Bounded::forget_watcher);
        let (heir, router) = match way {
            Some(Way::Left(heir)) => (Some(heir), None),
            Some(Way::Routed { router, .. }) => (None, Some(router)),
            Some(Way::Here) | None => (None, None),
        };
        Remains { messages: self.take_all(), heir, _rest: Held::new((signals, watcher, router)) }
    }

    /// Puts a signal behind all that is here.
    #[inline]
    fn append(&mut self, signal: Signal) {
        let untaken = self.untaken() as i64;
        let aside = self.aside.get_or_insert_default();
        let before = if planted!("signal_forgets_taken") { untaken } else { aside.taken + untaken };
        aside.signals.push_back((before, signal));
    }

    /// The wake that a message owes.
    #[inline]
    fn receiver(&mut self) -> Due {
        match mem::take(&mut self.waiting) {
            Waiting::Nobody => Due::default(),
            Waiting::Own => Due { own: true, other: None },
            Waiting::Other => Due { own: false, other: self.other() },
        }
    }

    /// The wakes that a signal owes.
    fn everybody(&mut self) -> Due {
        let other = match mem::take(&mut self.waiting) {
            Waiting::Other => self.other(),
            Waiting::Nobody | Waiting::Own => None,
        };
        Due { own: true, other }
    }

    fn other(&mut self) -> Option<Waker> {
        self.aside.as_deref_mut()?.other.take()
    }

    #[inline]
    fn bounded(&mut self) -> Option<&mut Bounded<M>> {
        self.aside.as_deref_mut()?.bounded.as_mut()
    }

    /// As [`Inbox::push_or_wait`], here.
    fn store_or_wait(
        &mut self,
        message: M,
        waker: &mut Option<Waker>,
        accepted: impl FnOnce(),
    ) -> Result<(Option<u64>, Due), Unsent<M>> {
        match self.bounded() {
            Some(bounded) => match bounded.push_or_wait(message, waker) {
                Ok(None) => {}
                Ok(number) => return Ok((number, Due::default())),
                Err(message) => return Err(Unsent::Full(message)),
            },
            None => self.messages.push(message),
        }
        accepted();
        Ok((None, self.receiver()))
    }

    /// Where a message goes that comes now, if not here.
    fn router(&self) -> Option<Arc<dyn Router<M>>> {
        match &self.aside.as_deref()?.way {
            Way::Routed { router, some_wait: false } => Some(Arc::clone(router)),
            Way::Routed { .. } | Way::Left(_) | Way::Here => None,
        }
    }

    fn some_wait(&mut self, yes: bool) {
        if let Some(Way::Routed { some_wait, .. }) = self.aside.as_deref_mut().map(|aside| &mut aside.way) {
            *some_wait = yes;
        }
    }

    /// As [`Inbox::push`], where there is a bound; out of the way of the others.
    #[cold]
    fn push_bounded(&mut self, message: M) -> Result<Due, Unsent<M>> {
        if let Some(router) = self.router() {
            return Err(Unsent::Routed(message, router));
        }
        match self.bounded().map(|bounded| bounded.push(message)) {
            Some(Pushed::Rejected(message)) => Err(Unsent::Full(message)),
            Some(Pushed::Newest(message)) => Err(Unsent::Dropped(message, Due::default())),
            Some(Pushed::Oldest(oldest)) => {
                self.took(1);
                match oldest {
                    Some(oldest) => Err(Unsent::Dropped(oldest, self.receiver())),
                    None => Ok(self.receiver()),
                }
            }
            Some(Pushed::Stored) | None => Ok(self.receiver()),
        }
    }

    /// How many messages are here.
    fn untaken(&self) -> usize {
        let bounded = self.aside.as_deref().and_then(|aside| aside.bounded.as_ref());
        self.messages.len() + bounded.map_or(0, Bounded::len)
    }

    fn take_all(&mut self) -> Vec<M> {
        match self.bounded() {
            Some(bounded) => bounded.take_all(),
            None => self.messages.take_all(),
        }
    }

    /// Hands over all there is; the senders whose messages came in for it are to be woken.
    fn drain_into(&mut self, taken: &mut Taken<M>) -> Vec<Waker> {
        if let Some(aside) = self.aside.as_deref_mut() {
            let (ahead, read) = (taken.given + taken.messages.len() as u64, aside.taken);
            taken.signals.extend(aside.signals.drain(..).map(|(before, signal)| {
                // Messages before it that were taken by another way are no concern of this receiver's.
                (ahead + u64::try_from(before - read).unwrap_or(0), signal)
            }));
        }
        self.took(self.untaken());
        match self.bounded() {
            Some(bounded) => bounded.drain_into(&mut taken.messages),
            None => {
                self.note_burst();
                self.messages.drain_into(&mut taken.messages);
                Vec::new()
            }
        }
    }

    /// Whom room that was made is news to.
    #[inline]
    fn take_relieved(&mut self) -> Option<Relieved> {
        self.bounded()?.take_relieved()
    }

    /// Remembers how many messages are about to be taken out at once.
    #[inline]
    fn note_burst(&mut self) {
        self.longest = self.longest.max(u32::try_from(self.messages.len()).unwrap_or(u32::MAX));
    }

    /// The next signal if no message came before it, for a receiver that has read `front` messages less than it took.
    fn pop_signal(&mut self, front: usize) -> Option<Signal> {
        let aside = self.aside.as_deref_mut()?;
        if aside.signals.front()?.0 > aside.taken - front as i64 {
            return None;
        }
        aside.signals.pop_front().map(|(_, signal)| signal)
    }

    /// The oldest message; `front` must be empty.
    #[inline]
    fn pop(&mut self, front: &mut Front<M>) -> Option<M> {
        if self.messages.len() > 1 {
            self.gather(front);
            return front.pop();
        }
        let message = match self.messages.pop_only() {
            Some(message) => message,
            None => match self.bounded().and_then(Bounded::pop) {
                Some(message) => message,
                None => {
                    front.shrink();
                    return None;
                }
            },
        };
        self.took(1);
        Some(message)
    }

    fn gather(&mut self, front: &mut Front<M>) -> Option<()> {
        if self.messages.len() == 0 {
            front.shrink();
            return None;
        }
        self.took(self.messages.len());
        self.note_burst();
        self.messages.drain_into(&mut front.make().queue);
        Some(())
    }

    #[inline]
    fn took(&mut self, messages: usize) {
        if let Some(aside) = self.aside.as_deref_mut() {
            aside.taken += messages as i64;
        }
    }

    /// Notes that the message at this place of a queue with a bound was taken.
    fn took_at(&mut self, place: usize) {
        if let Some(aside) = self.aside.as_deref_mut() {
            aside.taken += 1;
            aside.keep_apart(aside.taken - 1 + place as i64);
        }
    }

    fn is_empty(&self) -> bool {
        self.untaken() == 0 && self.has_no_signals()
    }

    fn has_no_signals(&self) -> bool {
        self.aside.as_deref().is_none_or(|aside| aside.signals.is_empty())
    }

    /// Gives back what a burst needed, when the last of it was read.
    fn shrink(&mut self) {
        self.messages.shrink();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::clock::Instant;
    use crate::process::exit::Reason;

    fn signal(inbox: &Inbox<u32>) {
        let cancel = Signal::Cancel { reason: Reason::from("now"), deadline: Instant::FAR };
        let _nobody = inbox.signal(cancel, true).expect("it is open");
    }

    /// What comes next: a message, or None for a signal.
    fn next(inbox: &Inbox<u32>, front: &mut Front<u32>) -> Option<u32> {
        inbox.next(front).expect("something is there").ok()
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
                    let _nobody = inbox.push(message, || {}).expect("there is room");
                }
                let mut number = 0;
                match inbox.gather_or_wait(&mut front, &mut number, None).0 {
                    Some(Gathered::Ahead) => {
                        let mut looked_at = 0;
                        assert_eq!(front.pick(&mut looked_at, &mut wants(picked)), Some(picked));
                        inbox.passed_over(looked_at, front.len());
                    }
                    Some(Gathered::One(mut message)) => {
                        while message != picked {
                            inbox.fill(number, message).expect("nobody took its place");
                            number += 1;
                            let Some(Gathered::One(next)) = inbox.gather_or_wait(&mut front, &mut number, None).0
                            else {
                                panic!("there are more")
                            };
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
