//! One value from one sender to one receiver, each of whom may leave first and be noticed.
//!
//! A small lock around plain data. `futures::channel::oneshot` does not let a sender that is only borrowed, as a
//! [`Reply`](crate::Reply) inside a message is, wait for its receiver to leave; hence our own.

use std::mem;
use std::task::{Poll, Waker};

use crate::process::panic;
use crate::sync::Lock;
use crate::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
enum State<T, W> {
    Empty {
        receiver: Option<W>,
        watchers: Vec<Waker>,
    },
    Full(Option<T>),
    /// The receiver took the value, or left.
    Over,
}

/// `W` is how its receiver is woken.
#[derive(Debug)]
pub(crate) struct Oneshot<T, W = Waker> {
    state: Lock<State<T, W>>,
    /// Set under the lock when the value is put there, read without it as a hint.
    sent: AtomicBool,
}

impl<T, W> Oneshot<T, W> {
    pub(crate) fn new() -> Self {
        Self { state: Lock::new(State::Empty { receiver: None, watchers: Vec::new() }), sent: AtomicBool::new(false) }
    }

    /// Puts the value there. Whom that is news to is the caller's to wake.
    ///
    /// # Errors
    /// The value, when the receiver has left or a value came before.
    #[inline(always)]
    pub(crate) fn put(&self, value: T) -> Result<Option<W>, T> {
        let mut state = self.state.lock();
        let State::Empty { receiver, watchers } = &mut *state else { return Err(value) };
        // Each by itself: to move the whole of it would be to wait for what was written of it just now.
        let (receiver, watchers) = (receiver.take(), mem::take(watchers));
        *state = State::Full(Some(value));
        self.sent.store(true, Ordering::Relaxed);
        drop(state);
        drop(watchers);
        Ok(receiver)
    }

    /// Whether the value is there, as far as is known.
    #[inline]
    pub(crate) fn seems_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    /// The value, if it was sent and not taken, for the last who has this.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<T> {
        match self.state.get_mut() {
            State::Full(value) => value.take(),
            State::Empty { .. } | State::Over => None,
        }
    }

    /// Takes the value, or leaves what `receiver` makes to be woken. `None` inside when it was taken before.
    pub(crate) fn poll_with(&self, receiver: impl FnOnce() -> W) -> Poll<Option<T>> {
        // Outside the lock, for a clone of a waker is somebody's code; and not at all when the value seems to be there.
        let fresh = if self.seems_sent() { None } else { Some(receiver()) };
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

impl<T> Oneshot<T> {
    /// As [`put`](Self::put), and wakes the receiver.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        self.put(value)?.into_iter().for_each(panic::wake);
        Ok(())
    }

    /// As [`poll_with`](Self::poll_with).
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        self.poll_with(|| waker.clone())
    }
}
