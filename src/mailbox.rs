//! The event queue of one process: messages and signals in the order they came, and whom to wake for them.
//!
//! Senders push under a short lock and wake after it; the receiver swaps out everything that is there. Nothing of the
//! user's runs under the lock: not a waker, not a message's `Drop`. A closed inbox refuses what comes and hands it back.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use crate::process::event::Signal;
use crate::process::panic::{self, Held};
use crate::sync::{Lock, Mutex};

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

/// The capacity, in messages, that an empty mailbox keeps. What a burst needed beyond that is given back when its last
/// message is read and the receiver waits.
const KEEP: usize = 256;

/// The wakes that a push owes, to be done after the unlock.
#[must_use = "a wake that is not done is a lost wake-up"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    own: Option<Waker>,
    other: Option<Waker>,
}

impl Wakes {
    #[inline]
    pub(crate) fn wake(self) {
        if let Some(waker) = self.own {
            waker.wake();
        }
        if let Some(waker) = self.other {
            panic::wake(waker);
        }
    }
}

#[derive(Debug)]
struct State<M> {
    /// Oldest first.
    messages: Vec<M>,
    /// The waker of the process's task, once it has waited for the first time.
    own: Option<Waker>,
    aside: Option<Box<Aside<M>>>,
    waiting: Waiting,
    /// A wake was owed while there was no waker yet.
    missed: bool,
    closed: bool,
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
}

/// The messages of a mailbox that takes so many and no more. They are taken out one by one: what a receiver has read
/// ahead would not count.
#[derive(Debug)]
struct Bounded<M> {
    queue: VecDeque<M>,
    most: usize,
}

impl<M> Default for Aside<M> {
    fn default() -> Self {
        Self { taken: 0, signals: VecDeque::new(), other: None, bounded: None }
    }
}

/// What was in an inbox when it was closed.
#[derive(Debug)]
pub(crate) struct Remains<M> {
    pub(crate) messages: Vec<M>,
    /// Dropped with this: the signals that nobody heard, and the way back to the task.
    _rest: Held<(Option<VecDeque<(i64, Signal)>>, Option<Waker>)>,
}

/// What a receiver took out of its inbox and has not read yet.
///
/// Made at the first burst: an idle process pays a pointer for it. The lock is never taken; it makes the mailbox `Sync` for
/// messages that are only `Send`.
#[derive(Debug)]
pub(crate) struct Front<M>(Option<Box<Mutex<VecDeque<M>>>>);

impl<M> Default for Front<M> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M> Front<M> {
    #[inline]
    fn queue(&mut self) -> Option<&mut VecDeque<M>> {
        self.0.as_deref_mut().map(Mutex::get_mut)
    }

    fn make(&mut self) -> &mut VecDeque<M> {
        self.0.get_or_insert_with(|| Box::new(Mutex::new(VecDeque::new()))).get_mut()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<M> {
        self.queue()?.pop_front()
    }

    pub(crate) fn push_front(&mut self, message: M) {
        self.make().push_front(message);
    }

    #[inline]
    pub(crate) fn len(&mut self) -> usize {
        self.queue().map_or(0, |queue| queue.len())
    }

    pub(crate) fn take(&mut self) -> VecDeque<M> {
        self.queue().map(mem::take).unwrap_or_default()
    }

    /// Offers the messages from number `looked_at` on to `pick`, and takes out the first one that it takes. The others
    /// keep their places, also if `pick` panics on a later one; the one that it panics on is lost with it.
    pub(crate) fn pick<T>(&mut self, looked_at: &mut usize, pick: &mut impl FnMut(M) -> Result<T, M>) -> Option<T> {
        let front = self.queue()?;
        while *looked_at < front.len() {
            let message = front.remove(*looked_at)?;
            match pick(message) {
                Ok(picked) => return Some(picked),
                Err(message) => front.insert(*looked_at, message),
            }
            *looked_at += 1;
        }
        None
    }

    /// Gives back what a burst needed, when the last of it was read.
    fn shrink(&mut self) {
        if self.queue().is_some_and(|queue| queue.is_empty() && queue.capacity() > KEEP) {
            self.0 = None;
        }
    }
}

/// What a hand-written process took over and has not read yet.
#[derive(Debug)]
pub(crate) struct Taken<M> {
    pub(crate) messages: VecDeque<M>,
    /// Each with the number of messages before it.
    signals: VecDeque<(u64, Signal)>,
    /// How many messages the process was given so far.
    given: u64,
}

impl<M> Default for Taken<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), signals: VecDeque::new(), given: 0 }
    }
}

impl<M> Taken<M> {
    pub(crate) fn len(&self) -> usize {
        self.messages.len() + self.signals.len()
    }

    /// The next signal, if no message came before it.
    pub(crate) fn pop_signal(&mut self) -> Option<Signal> {
        let (before, _) = self.signals.front()?;
        if *before > self.given {
            return None;
        }
        self.signals.pop_front().map(|(_, signal)| signal)
    }

    pub(crate) fn pop(&mut self) -> Option<M> {
        let message = self.messages.pop_front()?;
        self.given += 1;
        Some(message)
    }

    fn take_from(&mut self, state: &mut State<M>) {
        if let Some(aside) = state.aside.as_deref_mut() {
            let (ahead, taken) = (self.given + self.messages.len() as u64, aside.taken);
            self.signals.extend(aside.signals.drain(..).map(|(before, signal)| {
                // Messages before it that were taken by another way are no concern of this receiver's.
                (ahead + u64::try_from(before - taken).unwrap_or(0), signal)
            }));
        }
        state.took(state.untaken());
        state.empty_into(&mut self.messages);
    }

    /// Gives back what a burst needed, when the last of it was read.
    #[inline]
    fn shrink(&mut self) {
        if self.messages.capacity() > KEEP && self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
    }
}

/// Moves all messages behind those that are there; two buffers change places where that does it.
fn refill<M>(front: &mut VecDeque<M>, messages: &mut Vec<M>) {
    if front.is_empty() {
        let emptied = Vec::from(mem::take(front));
        *front = VecDeque::from(mem::replace(messages, emptied));
    } else {
        front.extend(messages.drain(..));
    }
}

/// The shared half of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    state: Lock<State<M>>,
}

/// A message that was not taken.
#[derive(Debug)]
pub(crate) enum Unsent<M> {
    Closed(M),
    Full(M),
}

impl<M> Inbox<M> {
    /// With `most`, no more than so many messages wait here.
    #[inline]
    pub(crate) fn new(most: Option<usize>) -> Self {
        let bounded =
            |most| Box::new(Aside { bounded: Some(Bounded { queue: VecDeque::new(), most }), ..Aside::default() });
        Self {
            state: Lock::new(State {
                messages: Vec::new(),
                own: None,
                aside: most.map(bounded),
                waiting: Waiting::Nobody,
                missed: false,
                closed: false,
            }),
        }
    }

    /// Stores the waker of the process's task, when it returns from its first turn to wait: one that never waits needs
    /// none. True if a wake was owed meanwhile, which the caller now owes itself.
    #[must_use]
    pub(crate) fn set_own(&self, waker: Waker) -> bool {
        let mut state = self.state.lock();
        state.own = Some(waker);
        mem::take(&mut state.missed)
    }

    /// The wake of the process's task alone.
    pub(crate) fn wake_own(&self) -> Wakes {
        let own = self.state.lock().own();
        Wakes { own, other: None }
    }

    /// Appends a message.
    ///
    /// # Errors
    /// The message, when the inbox is closed or full.
    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<Wakes, Unsent<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        #[cfg(procession_bug = "push_unlocks")]
        let mut state = {
            drop(state);
            self.state.lock()
        };
        match state.bounded() {
            Some(bounded) if bounded.queue.len() >= bounded.most => return Err(Unsent::Full(message)),
            Some(bounded) => bounded.queue.push_back(message),
            None => state.messages.push(message),
        }
        Ok(state.receiver())
    }

    /// Appends a signal, which always wakes the task (`wake_own` is false for an answer that comes from inside the
    /// process's own turn) and a receiver that waits elsewhere.
    ///
    /// # Errors
    /// The signal, when the inbox is closed.
    pub(crate) fn signal(&self, signal: Signal, wake_own: bool) -> Result<Wakes, Signal> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(signal);
        }
        let untaken = state.untaken() as i64;
        let aside = state.aside.get_or_insert_default();
        let before = aside.taken + untaken;
        #[cfg(procession_bug = "signal_forgets_taken")]
        let before = untaken;
        aside.signals.push_back((before, signal));
        if !wake_own {
            return Ok(Wakes::default());
        }
        #[cfg(procession_bug = "signal_wakes_receiver_only")]
        return Ok(state.receiver());
        #[cfg(not(procession_bug = "signal_wakes_receiver_only"))]
        Ok(state.everybody())
    }

    /// Whom to wake for something that is not in the queue: a kill, a cancel.
    pub(crate) fn rouse(&self) -> Wakes {
        self.state.lock().everybody()
    }

    /// Moves all messages and signals to the receiver, who waits from now on with its task's own waker.
    pub(crate) fn drain(&self, taken: &mut Option<Box<Taken<M>>>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.is_empty() {
            taken.get_or_insert_default().take_from(state);
        } else if let Some(taken) = taken {
            taken.shrink();
        }
        #[cfg(not(procession_bug = "drain_does_not_wait"))]
        {
            state.waiting = Waiting::Own;
        }
        state.shrink();
        #[cfg(procession_bug = "drain_forgets_missed")]
        {
            state.missed = false;
        }
    }

    /// The next message, if there is one. A single one is handed over; of several the rest moves to `front` at once,
    /// so that a burst costs one lock.
    pub(crate) fn pop(&self, front: &mut Front<M>) -> Option<M> {
        self.state.lock().pop(front)
    }

    /// As [`pop`](Self::pop), but with nothing there the receiver waits: with its task's own waker, or with `other`.
    /// Returns the waker that is no longer waited with, to be dropped after the unlock.
    #[inline]
    pub(crate) fn pop_or_wait(&self, front: &mut Front<M>, other: Option<Waker>) -> (Option<M>, Option<Waker>) {
        self.take_or_wait(front, other, State::pop)
    }

    /// Moves all messages behind those of `front`. Some if there were any, else it waits as
    /// [`pop_or_wait`](Self::pop_or_wait).
    pub(crate) fn gather_or_wait(&self, front: &mut Front<M>, other: Option<Waker>) -> (Option<()>, Option<Waker>) {
        self.take_or_wait(front, other, State::gather)
    }

    #[inline]
    fn take_or_wait<R>(
        &self,
        front: &mut Front<M>,
        other: Option<Waker>,
        take: impl FnOnce(&mut State<M>, &mut Front<M>) -> Option<R>,
    ) -> (Option<R>, Option<Waker>) {
        let mut state = self.state.lock();
        let taken = take(&mut state, front);
        if taken.is_some() {
            return (taken, other);
        }
        #[cfg(procession_bug = "receiver_unlocks")]
        let mut state = {
            drop(state);
            self.state.lock()
        };
        state.shrink();
        let Some(other) = other else {
            state.waiting = Waiting::Own;
            return (None, None);
        };
        state.waiting = Waiting::Other;
        (None, state.aside.get_or_insert_default().other.replace(other))
    }

    /// The next signal if no message came before it, for a receiver that has read `front` messages less than it took.
    pub(crate) fn pop_signal(&self, front: usize) -> Option<Signal> {
        let mut state = self.state.lock();
        let aside = state.aside.as_deref_mut()?;
        if aside.signals.front()?.0 > aside.taken - front as i64 {
            return None;
        }
        aside.signals.pop_front().map(|(_, signal)| signal)
    }

    /// Takes back what a receiver took out and has not read.
    ///
    /// # Errors
    /// The messages, when the inbox is closed.
    pub(crate) fn put_back(&self, mut unread: VecDeque<M>) -> Result<(), VecDeque<M>> {
        if unread.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.closed {
            return Err(unread);
        }
        if let Some(aside) = state.aside.as_deref_mut() {
            aside.taken -= unread.len() as i64;
        }
        unread.extend(state.take_all());
        match state.bounded() {
            Some(bounded) => bounded.queue = unread,
            None => state.messages = unread.into(),
        }
        Ok(())
    }

    /// Refuses everything from now on, and hands out what was there. Whoever waits, or begins to before the end is
    /// known, is woken by [`rouse`](Self::rouse) once it is: sooner it would find nothing and wait again.
    pub(crate) fn close(&self) -> Remains<M> {
        let mut state = self.state.lock();
        state.closed = true;
        // Whom to wake stays: nobody has been told yet.
        let signals = state.aside.as_deref_mut().map(|aside| mem::take(&mut aside.signals));
        let own = state.own.take();
        Remains { messages: state.take_all(), _rest: Held::new((signals, own)) }
    }
}

impl<M> State<M> {
    /// The wake that a message owes.
    #[inline]
    fn receiver(&mut self) -> Wakes {
        match mem::take(&mut self.waiting) {
            Waiting::Nobody => Wakes::default(),
            Waiting::Own => Wakes { own: self.own(), other: None },
            Waiting::Other => Wakes { own: None, other: self.other() },
        }
    }

    /// The wakes that a signal owes.
    fn everybody(&mut self) -> Wakes {
        let other = match mem::take(&mut self.waiting) {
            Waiting::Other => self.other(),
            Waiting::Nobody | Waiting::Own => None,
        };
        Wakes { own: self.own(), other }
    }

    fn other(&mut self) -> Option<Waker> {
        self.aside.as_deref_mut()?.other.take()
    }

    /// The waker of the task. Before its first wait there is none: then the task is queued or runs, and looks for what
    /// it missed before it waits.
    #[inline]
    fn own(&mut self) -> Option<Waker> {
        if self.own.is_none() {
            self.missed = true;
        }
        self.own.clone()
    }

    #[inline]
    fn bounded(&mut self) -> Option<&mut Bounded<M>> {
        self.aside.as_deref_mut()?.bounded.as_mut()
    }

    /// How many messages are here.
    fn untaken(&self) -> usize {
        let bounded = self.aside.as_deref().and_then(|aside| aside.bounded.as_ref());
        self.messages.len() + bounded.map_or(0, |bounded| bounded.queue.len())
    }

    fn take_all(&mut self) -> Vec<M> {
        match self.bounded() {
            Some(bounded) => mem::take(&mut bounded.queue).into(),
            None => mem::take(&mut self.messages),
        }
    }

    fn empty_into(&mut self, queue: &mut VecDeque<M>) {
        match self.bounded() {
            Some(bounded) => queue.append(&mut bounded.queue),
            None => refill(queue, &mut self.messages),
        }
    }

    /// The oldest message; `front` must be empty.
    #[inline]
    fn pop(&mut self, front: &mut Front<M>) -> Option<M> {
        if self.messages.len() > 1 {
            self.gather(front);
            return front.pop();
        }
        let message = match self.messages.pop() {
            Some(message) => message,
            None => match self.bounded().and_then(|bounded| bounded.queue.pop_front()) {
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
        let untaken = self.untaken();
        if untaken == 0 {
            front.shrink();
            return None;
        }
        self.took(untaken);
        self.empty_into(front.make());
        Some(())
    }

    #[inline]
    fn took(&mut self, messages: usize) {
        if let Some(aside) = self.aside.as_deref_mut() {
            aside.taken += messages as i64;
        }
    }

    fn is_empty(&self) -> bool {
        self.untaken() == 0 && self.aside.as_deref().is_none_or(|aside| aside.signals.is_empty())
    }

    /// Gives back what a burst needed, when the last of it was read.
    fn shrink(&mut self) {
        if self.messages.capacity() > KEEP && self.messages.is_empty() {
            self.messages = Vec::new();
        }
    }
}
