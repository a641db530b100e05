//! One-shot channel: one value from one sender to one receiver, under a small lock. The sender can observe that the
//! receiver was closed.
//!
//! `futures::channel::oneshot` is not used, because a borrowed sender of that channel cannot wait until the receiver is
//! closed. An attempt of a layer has only a borrowed sender. The answer to a call uses a different channel: see
//! `answer.rs`.

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
    /// The receiver took the value, or it was closed.
    Over,
}

#[derive(Debug)]
pub(crate) struct Oneshot<T> {
    state: Lock<State<T>>,
    /// Whether a value was sent. The flag is set under the lock when the value is stored, and is read without the lock
    /// as a hint.
    sent: AtomicBool,
}

impl<T> Oneshot<T> {
    pub(crate) fn new() -> Self {
        Self { state: Lock::new(State::Empty { receiver: None, watchers: Vec::new() }), sent: AtomicBool::new(false) }
    }

    /// Stores the value, and wakes the receiver.
    ///
    /// # Errors
    /// Returns the value if the receiver was closed or if a value was already sent.
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

    /// Takes the value, or registers the waker. Returns `Ready(None)` if the value was already taken or the receiver
    /// was closed.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        // The waker is cloned outside the lock, because the clone runs user code. If the flag says that a value was
        // sent, the waker is not cloned.
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

    /// Closes the receiver, so that later values are refused. If a value was already stored, returns this value.
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

    /// Returns whether a send would be refused.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(*self.state.lock(), State::Empty { .. })
    }

    /// Returns the same result as [`is_closed`](Self::is_closed). If the result is false, `watcher` is woken when the
    /// receiver is closed.
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
