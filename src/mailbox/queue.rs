//! The messages of a mailbox without bound: one in its own place, and those that come while it is there in a buffer, which
//! changes places with that of the receiver.

use std::collections::VecDeque;
use std::mem;

use super::front::KEEP;
use super::slot::Slot;

/// Oldest first.
#[derive(Debug)]
pub(super) struct Queue<M> {
    /// The oldest, unless messages are too large for it; when nothing is here, nothing waits.
    first: Slot<M>,
    /// The others. Most mailboxes never hold two at once: an idle process pays a pointer for it.
    more: Option<Box<More<M>>>,
}

#[derive(Debug)]
struct More<M>(Vec<M>);

impl<M> Queue<M> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { first: Slot::new(), more: None }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_full()) + self.more.as_ref().map_or(0, |more| more.0.len())
    }

    /// Whether it holds nothing, not even memory.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        !self.first.is_full() && self.more.is_none()
    }

    #[inline]
    pub(super) fn push(&mut self, message: M) {
        if let Err(message) = self.first.put(message) {
            self.more().push(message);
        }
    }

    fn more(&mut self) -> &mut Vec<M> {
        &mut self.more.get_or_insert_with(|| Box::new(More(Vec::new()))).0
    }

    /// The only one, if there is one at most.
    #[inline]
    pub(super) fn pop_only(&mut self) -> Option<M> {
        self.first.take().or_else(|| self.more.as_mut()?.0.pop())
    }

    pub(super) fn take_all(&mut self) -> Vec<M> {
        let mut more = self.more.take().map_or_else(Vec::new, |more| more.0);
        if let Some(first) = self.first.take() {
            more.insert(0, first);
        }
        more
    }

    /// Puts messages before those that are there.
    pub(super) fn put_first(&mut self, mut messages: VecDeque<M>) {
        messages.extend(self.take_all());
        for message in messages {
            self.push(message);
        }
    }

    /// Moves all messages behind those that are there; two buffers change places where that does it.
    pub(super) fn drain_into(&mut self, front: &mut VecDeque<M>) {
        let first = self.first.take();
        match &mut self.more {
            Some(more) if front.is_empty() => {
                let emptied = Vec::from(mem::take(front));
                *front = VecDeque::from(mem::replace(&mut more.0, emptied));
                if let Some(first) = first {
                    front.push_front(first);
                }
            }
            Some(more) => {
                front.extend(first);
                front.extend(more.0.drain(..));
            }
            None => front.extend(first),
        }
    }

    /// Gives back what a burst needed, when the last of it was read.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.more.as_ref().is_some_and(|more| more.0.capacity() > KEEP && more.0.is_empty()) {
            self.more = None;
        }
    }
}
