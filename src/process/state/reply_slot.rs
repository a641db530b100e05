//! Slot for one answer, under a small lock. The sender stores the answer and wakes the receiver. The sender can also
//! observe that the receiver has left. The slot does not count its references. The slot of a call is part of a cell
//! with two references (`context::call::answer`). A slot of the blocking pool or of a handler layer is inside an `Arc`.
//!
//! The code does not use `futures::channel::oneshot`. The attempt of a layer has only a borrowed sender, and a borrowed
//! `oneshot::Sender` cannot wait until its receiver leaves.
//!
//! No user code runs under the lock: wakers are cloned, woken and dropped only while the lock is not held.

use std::mem;
use std::task::{Poll, Waker};

use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::{Lock, planted};
use crate::process::catch as panic;

/// The way in which the sender wakes the receiver.
#[derive(Debug)]
pub(crate) enum Listener {
    /// The sender calls the function `wake_task` that it has passed to [`send`](ReplySlot::send).
    Task,
    Other(Waker),
}

/// No answer was sent, and the receiver has not left.
const EMPTY: u8 = 0;
const FULL: u8 = 1;
/// The receiver has taken the answer, or has left.
const OVER: u8 = 2;

#[derive(Debug)]
struct State<T> {
    answer: Option<T>,
    listener: Option<Listener>,
    /// Wakers that are woken if the receiver leaves before an answer is sent. The list is boxed, because it is rarely
    /// needed, and a boxed list takes only one word.
    #[expect(clippy::box_collection, reason = "one word in each call, not three")]
    watchers: Option<Box<Vec<Waker>>>,
}

impl<T> State<T> {
    #[inline(always)]
    fn empty(listener: Option<Listener>) -> Self {
        Self { answer: None, listener, watchers: None }
    }
}

/// Slot for one answer.
#[derive(Debug)]
pub(crate) struct ReplySlot<T> {
    state: Lock<State<T>>,
    /// [`EMPTY`], [`FULL`] or [`OVER`]. The phase is written only under the lock or with a `&mut` reference to the
    /// slot. No code relies on a read without the lock: such a read is only a hint. Therefore, all accesses are
    /// relaxed.
    phase: AtomicU8,
}

impl<T> ReplySlot<T> {
    #[inline(always)]
    pub(crate) fn new(listener: Option<Listener>) -> Self {
        Self { state: Lock::new(State::empty(listener)), phase: AtomicU8::new(EMPTY) }
    }

    #[inline]
    fn is(&self, phase: u8) -> bool {
        self.phase.load(Ordering::Relaxed) == phase
    }

    #[inline]
    fn set(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Stores the answer, and wakes the receiver. Calls `wake_task` if the listener is the task of the receiver.
    ///
    /// # Errors
    /// Returns the answer if the receiver has left, or if an answer was sent before.
    #[inline]
    pub(crate) fn send(&self, answer: T, wake_task: impl FnOnce()) -> Result<(), T> {
        let mut state = self.state.lock();
        if !self.is(EMPTY) {
            drop(state);
            return Err(answer);
        }
        let (listener, watchers) = (state.listener.take(), state.watchers.take());
        let wake = || match listener {
            Some(Listener::Task) => wake_task(),
            Some(Listener::Other(waker)) => panic::wake(waker),
            None => {}
        };
        if planted!("reply_wakes_early") {
            drop(state);
            wake();
            self.state.lock().answer = Some(answer);
            self.set(FULL);
            return Ok(());
        }
        state.answer = Some(answer);
        self.set(FULL);
        drop(state);
        wake();
        // The watchers are dropped last, because the destructor of a waker is user code and may panic.
        drop(watchers);
        Ok(())
    }

    /// Sets the listener. If a later call of [`take`](Self::take) finds that no answer was sent yet, the sender of the
    /// answer will wake this listener.
    pub(crate) fn listen(&self, listener: Option<Listener>) {
        if planted!("reply_keeps_listener") && self.state.lock().listener.is_some() {
            return;
        }
        let former = mem::replace(&mut self.state.lock().listener, listener);
        drop(former);
    }

    /// Returns whether the slot contains an answer. The result may already be out of date.
    #[inline]
    pub(crate) fn may_be_full(&self) -> bool {
        self.is(FULL)
    }

    /// Takes the answer out of the slot. Returns `None` if there is no answer. The check before the lock can miss an
    /// answer that is stored at the same time. The sender of the missed answer locks the slot after the last call of
    /// [`listen`](Self::listen). Therefore, this sender wakes the last listener.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        if !self.may_be_full() {
            return None;
        }
        let mut state = self.state.lock();
        self.set(OVER);
        state.answer.take()
    }

    /// Takes the answer out of the slot without the lock. No lock is needed, because `&mut self` excludes all other
    /// users of the slot.
    #[inline]
    pub(crate) fn take_mut(&mut self) -> Option<T> {
        self.set(OVER);
        self.state.get_mut().answer.take()
    }

    /// Takes the answer. If there is no answer yet, registers `waker`.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<T> {
        if !self.may_be_full() {
            self.listen(Some(Listener::Other(waker.clone())));
        }
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Records that the receiver leaves. From now on, answers are refused. This function wakes the watchers, and
    /// returns an answer that was sent and not taken.
    pub(crate) fn close(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.set(OVER);
        let State { answer, listener, watchers } = mem::replace(&mut *state, State::empty(None));
        drop(state);
        drop(listener);
        watchers.into_iter().flat_map(|watchers| *watchers).for_each(panic::wake);
        answer
    }

    /// Returns whether an answer would be refused now. The result may already be out of date.
    pub(crate) fn is_closed(&self) -> bool {
        !self.is(EMPTY)
    }

    /// Returns the same result as [`is_closed`](Self::is_closed). If the result is false, `watcher` is woken when the
    /// receiver leaves.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let mut fresh = Some(watcher.clone());
        let is_closed = self.is_closed();
        let mut state = self.state.lock();
        let is_closed = if planted!("reply_watch_looks_early") { is_closed } else { self.is_closed() };
        if !is_closed {
            let watchers = state.watchers.get_or_insert_default();
            if !watchers.iter().any(|known| known.will_wake(watcher)) {
                watchers.extend(fresh.take());
            }
        }
        drop(state);
        drop(fresh);
        is_closed
    }
}
