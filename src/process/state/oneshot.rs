//! One value from one sender to one receiver, each of whom may leave first and be noticed.
//!
//! A small lock around plain data. `futures::channel::oneshot` does not let a sender that is only borrowed, as that of a
//! layer's attempt is, wait for its receiver to leave; hence our own. The answer to a call has one more: see `answer.rs`.

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
    /// Set under the lock when the value is put there, read without it as a hint.
    sent: AtomicBool,
}

impl<T> Oneshot<T> {
    pub(crate) fn new() -> Self {
        Self { state: Lock::new(State::Empty { receiver: None, watchers: Vec::new() }), sent: AtomicBool::new(false) }
    }

    /// Puts the value there, and wakes the receiver.
    ///
    /// # Errors
    /// The value, when the receiver has left or a value came before.
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

    /// Takes the value, or leaves the waker to be woken. `None` inside when it was taken before.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        // Outside the lock, for a clone of a waker is somebody's code; and not at all when the value seems to be there.
        let fresh = if self.sent.load(Ordering::Relaxed) { None } else { Some(waker.clone()) };
        let former = {
            let mut state = self.state.lock();
            match &mut *state {
                State::Empty { receiver, .. } => match fresh {
                    Some(fresh) => receiver.replace(fresh),
                    None => unreachable!("what was sent is under the lock"),
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

    /// The receiver leaves: what comes now is refused. Returns a value that was there.
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

    /// Whether a value would be refused.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(*self.state.lock(), State::Empty { .. })
    }

    /// As [`is_closed`](Self::is_closed); while it is not, `watcher` will be woken when the receiver leaves.
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
