//! One-shot channel: one value from one sender to one receiver, under a small lock. The sender can observe that the
//! receiver has left.
//!
//! `futures::channel::oneshot` is not used: there a borrowed sender cannot wait for its receiver to leave, and the
//! sender of a layer's attempt is borrowed. The answer to a call has its own channel: see `answer.rs`.

use std::mem;
use std::task::{Poll, Waker};

use crate::platform::sync::Lock;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::process::catch as panic;

#[derive(Debug)]
enum State<T> {
    Empty {
        receiver: Option<Waker>,
        watchers: Vec<Waker>,
    },
    Full(Option<T>),
    /// The receiver took the value, or left.
    Over,
}

#[derive(Debug)]
pub(crate) struct Oneshot<T> {
    state: Lock<State<T>>,
    /// Set under the lock when the value is stored. It is read without the lock, as a hint.
    sent: AtomicBool,
}

impl<T> Oneshot<T> {
    pub(crate) fn new() -> Self {
        Self { state: Lock::new(State::Empty { receiver: None, watchers: Vec::new() }), sent: AtomicBool::new(false) }
    }

    /// Stores the value, and wakes the receiver.
    ///
    /// # Errors
    /// Returns the value if the receiver has left or a value was sent before.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        let mut state = self.state.lock();
        let State::Empty { receiver, watchers } = &mut *state else { return Err(value) };
        let (receiver, watchers) = (receiver.take(), mem::take(watchers));
        *state = State::Full(Some(value));
        self.sent.store(true, Ordering::Relaxed);
        drop(state);
        drop(watchers);
        receiver.into_iter().for_each(panic::wake);
        Ok(())
    }

    /// Takes the value, or registers the waker. Returns `Ready(None)` if the value was taken before or the receiver has
    /// left.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        // The waker is cloned outside the lock, because the clone runs user code. If the value seems to be there, the
        // waker is not cloned.
        let fresh = if self.sent.load(Ordering::Relaxed) { None } else { Some(waker.clone()) };
        let former = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Empty { receiver, .. } => match fresh {
                    Some(fresh) => receiver.replace(fresh),
                    None => unreachable!("a sent value is under the lock"),
                },
                State::Full(value) => {
                    let value = value.take();
                    *state = State::Over;
                    drop(state);
                    return Poll::Ready(value);
                }
                State::Over => return Poll::Ready(None),
            }
        };
        drop(former);
        Poll::Pending
    }

    /// The receiver leaves: later values are refused. Returns the value if it was stored before.
    pub(crate) fn close(&self) -> Option<T> {
        let former = mem::replace(&mut *self.state.lock(), State::Over);
        match former {
            State::Empty { watchers, receiver } => {
                watchers.into_iter().for_each(panic::wake);
                drop(receiver);
                None
            }
            State::Full(value) => value,
            State::Over => None,
        }
    }

    /// Returns whether a value would be refused.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(*self.state.lock(), State::Empty { .. })
    }

    /// As [`is_closed`](Self::is_closed). If this returns false, `watcher` is woken when the receiver leaves.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let fresh = watcher.clone();
        let mut state = self.state.lock();
        let State::Empty { watchers, .. } = &mut *state else { return true };
        if watchers.iter().any(|known| known.will_wake(watcher)) {
            drop(state);
            drop(fresh);
        } else {
            watchers.push(fresh);
        }
        false
    }
}
