//! The receiver's half of a mailbox: what was taken out of the inbox, under one lock, and is read from here without any.

use std::collections::VecDeque;
use std::mem;

use crate::sync::Mutex;

/// The capacity, in messages, that an empty mailbox keeps. What a burst needed beyond that is given back when its last
/// message is read and the receiver waits.
pub(super) const KEEP: usize = 256;

/// What a receiver took out of its inbox and has not read yet.
///
/// Made at the first burst: an idle process pays a pointer for it. The lock is never taken; it makes the mailbox `Sync` for
/// messages that are only `Send`.
#[derive(Debug)]
pub(crate) struct Front<M>(Option<Box<Mutex<Ahead<M>>>>);

#[derive(Debug)]
pub(super) struct Ahead<M> {
    pub(super) queue: VecDeque<M>,
    /// What was read, and put aside to be read again.
    stash: VecDeque<M>,
    /// So many of the queue come before any signal: whoever reads both need not look for one.
    clear: usize,
}

impl<M> Default for Front<M> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M> Front<M> {
    #[inline]
    fn queue(&mut self) -> Option<&mut VecDeque<M>> {
        self.0.as_deref_mut().map(|ahead| &mut ahead.get_mut().queue)
    }

    pub(super) fn make(&mut self) -> &mut Ahead<M> {
        let make = || Box::new(Mutex::new(Ahead { queue: VecDeque::new(), stash: VecDeque::new(), clear: 0 }));
        self.0.get_or_insert_with(make).get_mut()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// Whether it is known of the next message that it comes before any signal.
    #[inline]
    pub(crate) fn is_clear(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().clear != 0)
    }

    /// The next message, if it is known that it comes before any signal.
    #[inline]
    pub(crate) fn pop_clear(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        ahead.clear = ahead.clear.checked_sub(1)?;
        ahead.queue.pop_front()
    }

    /// No signal is there: what comes now comes after all of these.
    #[inline]
    pub(super) fn set_clear(&mut self) {
        if let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) {
            ahead.clear = ahead.queue.len();
        }
    }

    /// Puts a message aside, behind those that were before.
    pub(crate) fn stash(&mut self, message: M) {
        self.make().stash.push_back(message);
    }

    /// Puts what is aside before what is to be read; how many those are.
    pub(crate) fn unstash(&mut self) -> usize {
        let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) else { return 0 };
        let count = ahead.stash.len();
        ahead.clear = 0;
        ahead.stash.append(&mut ahead.queue);
        mem::swap(&mut ahead.stash, &mut ahead.queue);
        count
    }

    /// Whether all of it was read, but for what is put aside.
    #[inline]
    pub(crate) fn is_read(&mut self) -> bool {
        self.queue().is_none_or(|queue| queue.is_empty())
    }

    #[inline]
    pub(crate) fn len(&mut self) -> usize {
        self.queue().map_or(0, |queue| queue.len())
    }

    /// Everything, what was put aside too.
    pub(crate) fn take(&mut self) -> VecDeque<M> {
        self.unstash();
        self.queue().map(mem::take).unwrap_or_default()
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.as_deref_mut().map(Mutex::get_mut).is_none_or(|ahead| ahead.queue.is_empty() && ahead.stash.is_empty())
    }

    /// Offers the messages from number `looked_at` on to `pick`, and takes out the first one that it takes. The others
    /// keep their places, also if `pick` panics on a later one; the one that it panics on is lost with it.
    pub(crate) fn pick<T>(&mut self, looked_at: &mut usize, pick: &mut impl FnMut(M) -> Result<T, M>) -> Option<T> {
        let Ahead { queue: front, clear, .. } = self.0.as_deref_mut()?.get_mut();
        *clear = 0;
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
    pub(super) fn shrink(&mut self) {
        if self.queue().is_some_and(|queue| queue.is_empty() && queue.capacity() > KEEP) && self.is_empty() {
            self.0 = None;
        }
    }
}
