//! The event queue of one process: messages and signals in the order they came, and whom to wake for them.
//!
//! Senders push under a short lock and wake after it; the receiver swaps out everything that is there. Nothing of the
//! user's runs under the lock: not a waker, not a message's `Drop`. A closed inbox refuses what comes and hands it back.

use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use crate::process::event::Signal;
use crate::process::panic::{self, Held};
use crate::sync::Mutex;

/// Who waits for the next message.
///
/// ```text
///          drain / receive finds nothing             push
///  Nobody ───────────────────────────────▶ Own | Other ────▶ Nobody, and the pusher owes one wake
/// ```
#[derive(Debug, Default)]
enum Waiting {
    /// The receiver has not looked since the last wake: it will find what is pushed now.
    #[default]
    Nobody,
    /// The process's own task.
    Own,
    /// A combinator, a lent thread, or a task of another executor, by its waker.
    Other(Waker),
}

/// The wakes that a push owes, to be done after the unlock.
#[must_use = "a wake that is not done is a lost wake-up"]
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    own: Option<Waker>,
    other: Option<Waker>,
}

impl Wakes {
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
    messages: VecDeque<M>,
    /// How many messages were taken out of `messages` so far: what places signals among messages.
    taken: u64,
    /// Each signal with the number of messages that came before it.
    #[expect(clippy::box_collection, reason = "most processes never get one: a word for each, not four")]
    signals: Option<Box<VecDeque<(u64, Signal)>>>,
    /// The waker of the process's task, once it has waited for the first time.
    own: Option<Waker>,
    waiting: Waiting,
    /// A wake was owed while there was no waker yet.
    missed: bool,
    closed: bool,
}

/// What was in an inbox when it was closed.
#[derive(Debug)]
pub(crate) struct Remains<M> {
    pub(crate) messages: VecDeque<M>,
    /// Dropped with this: the signals that nobody heard, and the way back to the task.
    #[expect(clippy::type_complexity, reason = "it is only dropped")]
    _rest: Held<(Option<Box<VecDeque<(u64, Signal)>>>, Option<Waker>)>,
}

/// What a receiver took out of its inbox and has not read yet.
///
/// Boxed, and made at the first burst: an idle process pays a pointer for it. The lock is never taken; it makes the
/// mailbox `Sync` for messages that are only `Send`.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "an idle process pays a pointer for it")]
pub(crate) struct Front<M>(Mutex<Option<Box<VecDeque<M>>>>);

impl<M> Default for Front<M> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<M> Front<M> {
    pub(crate) fn pop(&mut self) -> Option<M> {
        self.0.get_mut().as_deref_mut()?.pop_front()
    }

    pub(crate) fn push_front(&mut self, message: M) {
        self.0.get_mut().get_or_insert_default().push_front(message);
    }

    pub(crate) fn push_back(&mut self, message: M) {
        self.0.get_mut().get_or_insert_default().push_back(message);
    }

    pub(crate) fn len(&mut self) -> usize {
        self.0.get_mut().as_deref().map_or(0, VecDeque::len)
    }

    pub(crate) fn take(&mut self) -> VecDeque<M> {
        self.0.get_mut().take().map(|front| *front).unwrap_or_default()
    }

    /// Offers the messages from number `looked_at` on to `pick`, and takes out the first one that it takes. The others
    /// keep their places, also if `pick` panics on a later one; the one that it panics on is lost with it.
    pub(crate) fn pick<T>(&mut self, looked_at: &mut usize, pick: &mut impl FnMut(M) -> Result<T, M>) -> Option<T> {
        let front = self.0.get_mut().as_deref_mut()?;
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

    fn refill(&mut self, messages: &mut VecDeque<M>) {
        let front = self.0.get_mut().get_or_insert_default();
        if front.is_empty() {
            mem::swap(&mut **front, messages);
        } else {
            front.append(messages);
        }
    }
}

/// The shared half of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    state: Mutex<State<M>>,
}

impl<M> Inbox<M> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                messages: VecDeque::new(),
                taken: 0,
                signals: None,
                own: None,
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
    /// The message, when the inbox is closed.
    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<Wakes, M> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(message);
        }
        #[cfg(procession_bug = "push_unlocks")]
        let mut state = {
            drop(state);
            self.state.lock()
        };
        state.messages.push_back(message);
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
        let before = state.taken + state.messages.len() as u64;
        #[cfg(procession_bug = "signal_forgets_taken")]
        let before = state.messages.len() as u64;
        state.signals.get_or_insert_default().push_back((before, signal));
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
    pub(crate) fn drain(&self, messages: &mut VecDeque<M>, signals: &mut VecDeque<(u64, Signal)>) {
        let mut state = self.state.lock();
        state.taken += state.messages.len() as u64;
        if messages.is_empty() {
            mem::swap(messages, &mut state.messages);
        } else {
            messages.append(&mut state.messages);
        }
        if let Some(fresh) = state.signals.as_deref_mut() {
            if signals.is_empty() {
                mem::swap(signals, fresh);
            } else {
                signals.append(fresh);
            }
        }
        #[cfg(not(procession_bug = "drain_does_not_wait"))]
        {
            state.waiting = Waiting::Own;
        }
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
    pub(crate) fn pop_or_wait(&self, front: &mut Front<M>, other: Option<Waker>) -> (Option<M>, Option<Waker>) {
        let mut state = self.state.lock();
        let message = state.pop(front);
        if message.is_some() {
            return (message, other);
        }
        #[cfg(procession_bug = "receiver_unlocks")]
        let mut state = {
            drop(state);
            self.state.lock()
        };
        let waiting = match other {
            Some(waker) => Waiting::Other(waker),
            None => Waiting::Own,
        };
        match mem::replace(&mut state.waiting, waiting) {
            Waiting::Other(former) => (None, Some(former)),
            Waiting::Nobody | Waiting::Own => (None, None),
        }
    }

    /// The next signal if no message came before it, for a receiver that has read `front` messages less than it took.
    pub(crate) fn pop_signal(&self, front: usize) -> Option<Signal> {
        let mut state = self.state.lock();
        let delivered = state.taken - front as u64;
        let signals = state.signals.as_deref_mut()?;
        if signals.front()?.0 > delivered {
            return None;
        }
        signals.pop_front().map(|(_, signal)| signal)
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
        state.taken -= unread.len() as u64;
        unread.append(&mut state.messages);
        state.messages = unread;
        Ok(())
    }

    /// Refuses everything from now on, and hands out what was there. Whoever waits, or begins to before the end is
    /// known, is woken by [`rouse`](Self::rouse) once it is: sooner it would find nothing and wait again.
    pub(crate) fn close(&self) -> Remains<M> {
        let mut state = self.state.lock();
        state.closed = true;
        let own = state.own.take();
        Remains { messages: mem::take(&mut state.messages), _rest: Held::new((state.signals.take(), own)) }
    }
}

impl<M> State<M> {
    /// The wake that a message owes.
    #[inline]
    fn receiver(&mut self) -> Wakes {
        match mem::take(&mut self.waiting) {
            Waiting::Nobody => Wakes::default(),
            Waiting::Own => Wakes { own: self.own(), other: None },
            Waiting::Other(waker) => Wakes { own: None, other: Some(waker) },
        }
    }

    /// The wakes that a signal owes.
    fn everybody(&mut self) -> Wakes {
        let other = match mem::take(&mut self.waiting) {
            Waiting::Other(waker) => Some(waker),
            Waiting::Nobody | Waiting::Own => None,
        };
        Wakes { own: self.own(), other }
    }

    /// The waker of the task. Before its first wait there is none: then the task is queued or runs, and looks for what
    /// it missed before it waits.
    fn own(&mut self) -> Option<Waker> {
        if self.own.is_none() {
            self.missed = true;
        }
        self.own.clone()
    }

    fn pop(&mut self, front: &mut Front<M>) -> Option<M> {
        let message = self.messages.pop_front()?;
        self.taken += 1;
        if !self.messages.is_empty() {
            self.taken += self.messages.len() as u64;
            front.refill(&mut self.messages);
        }
        Some(message)
    }
}
