//! The messages of a mailbox without bound: one in its own place, and those that come while it is there in a buffer, which
//! changes places with that of the receiver.

use std::collections::VecDeque;
use std::mem;

use crate::process::mailbox::read_ahead::{KEEP, Receiving};
use crate::process::mailbox::slot::{Slot, SlotLoan};

/// What the slot had no room for. Most mailboxes never hold two at once: an idle process pays a pointer for it.
#[derive(Debug)]
pub(super) struct Buffer<M>(Option<Box<More<M>>>);

/// All of it, oldest first, for who holds the lock.
#[derive(Debug)]
pub(super) struct Queue<'a, M> {
    /// The oldest.
    first: &'a Slot<M>,
    lent: &'a mut SlotLoan,
    /// The others.
    buffer: &'a mut Buffer<M>,
}

#[derive(Debug)]
struct More<M>(Vec<M>);

impl<M> More<M> {
    /// Moves all of these behind the first, and that behind those that are there.
    fn drain_into(&mut self, first: Option<M>, front: &mut VecDeque<M>) {
        if front.is_empty() {
            let emptied = Vec::from(mem::take(front));
            *front = VecDeque::from(mem::replace(&mut self.0, emptied));
            if let Some(first) = first {
                front.push_front(first);
            }
        } else {
            front.extend(first);
            front.extend(self.0.drain(..));
        }
    }
}

impl<M> Buffer<M> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self(None)
    }

    #[inline]
    pub(super) fn behind<'a>(&'a mut self, first: &'a Slot<M>, lent: &'a mut SlotLoan) -> Queue<'a, M> {
        Queue { first, lent, buffer: self }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |more| more.0.len())
    }

    /// Gives back what a burst needed, when the last of it was read.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.0.as_ref().is_some_and(|more| more.0.capacity() > KEEP && more.0.is_empty()) {
            self.0 = None;
        }
    }
}

impl<M> Queue<'_, M> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_full()) + self.buffer.len()
    }

    /// Whether it holds nothing, not even memory.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        !self.first.is_full() && self.buffer.0.is_none()
    }

    /// Always inlined: a call costs a sender of bursts 20 of 216 instructions for each message (row `counting`, by hand).
    #[inline(always)]
    pub(super) fn push(&mut self, message: M) {
        // What is in the slot is older than all others.
        let rejected = if self.buffer.len() == 0 { self.first.put(self.lent, message) } else { Err(message) };
        if let Err(message) = rejected {
            self.buffer.0.get_or_insert_with(|| Box::new(More(Vec::new()))).0.push(message);
        }
    }

    /// The only one, if there is one at most.
    #[inline]
    pub(super) fn pop_only(&mut self, by: Receiving) -> Option<M> {
        debug_assert!(self.buffer.len() <= 1, "there are more");
        self.first.take(by).or_else(|| self.buffer.0.as_mut()?.0.pop())
    }

    pub(super) fn take_all(&mut self, by: Receiving) -> Vec<M> {
        let mut more = self.buffer.0.take().map_or_else(Vec::new, |more| more.0);
        if let Some(first) = self.first.take(by) {
            more.insert(0, first);
        }
        more
    }

    /// Puts messages before those that are there.
    pub(super) fn put_first(&mut self, by: Receiving, mut messages: VecDeque<M>) {
        messages.extend(self.take_all(by));
        for message in messages {
            self.push(message);
        }
    }

    /// The same by a receiver that was replaced: it may not take the message from the slot, which stays the oldest.
    pub(super) fn put_behind_first(&mut self, messages: VecDeque<M>) {
        let more = self.buffer.0.get_or_insert_with(|| Box::new(More(Vec::new())));
        more.0.splice(0..0, messages);
    }

    /// Moves all messages behind those that are there; two buffers change places where that does it.
    pub(super) fn drain_into(&mut self, by: Receiving, front: &mut VecDeque<M>) {
        let first = self.first.take(by);
        match &mut self.buffer.0 {
            Some(more) if !more.0.is_empty() => more.drain_into(first, front),
            _ => {
                if let Some(only) = first {
                    front.push_back(only);
                }
            }
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::platform::random::Rng;
    use crate::process::state::current::InTurn;

    /// Does what a mailbox does, by chance, to a queue and to a list.
    fn is_a_list<M: Debug + PartialEq>(message: impl Fn(u64) -> M) {
        let mut rng = Rng::seeded(7);
        let (slot, mut lent) = Slot::new();
        let by = Receiving::closing();
        let (mut buffer, mut front) = (Buffer::new(), VecDeque::new());
        let (mut list, mut number) = (VecDeque::new(), 0);
        for _ in 0..20_000 {
            // While it is lent, what comes goes past the slot.
            lent.lend(rng.below(4) == 0, InTurn::of_right());
            let mut queue = buffer.behind(&slot, &mut lent);
            match rng.below(8) {
                0..=3 => {
                    queue.push(message(number));
                    list.push_back(number);
                    number += 1;
                }
                4 if queue.len() <= 1 => {
                    let popped = front.pop_front().or_else(|| queue.pop_only(by));
                    assert_eq!(popped, list.pop_front().map(&message));
                }
                5 => queue.drain_into(by, &mut front),
                6 => {
                    let popped: Vec<_> = (0..3).map_while(|_| front.pop_front()).collect();
                    assert_eq!(popped, list.drain(..popped.len()).map(&message).collect::<Vec<_>>());
                }
                7 if rng.below(4) == 0 => queue.put_first(by, mem::take(&mut front)),
                _ => buffer.shrink(),
            }
            let queue = buffer.behind(&slot, &mut lent);
            assert_eq!(front.len() + queue.len(), list.len());
            assert!(!queue.is_bare() || queue.len() == 0);
        }
        let mut queue = buffer.behind(&slot, &mut lent);
        let all: Vec<_> = front.into_iter().chain(queue.take_all(by)).collect();
        assert_eq!(all, list.into_iter().map(message).collect::<Vec<_>>());
        assert!(queue.is_bare());
    }

    #[test]
    fn messages_stay_in_order_whatever_their_size() {
        is_a_list(|number| number as u8);
        is_a_list(|number| number);
        is_a_list(|number| number.to_string());
        is_a_list(|number| [number; 4]);
    }

    #[test]
    fn a_burst_pins_no_memory() {
        let ((slot, mut lent), mut buffer) = (Slot::new(), Buffer::new());
        let by = Receiving::closing();
        let fill = |buffer: &mut Buffer<u64>, lent: &mut SlotLoan| {
            (0..10_000).for_each(|message| buffer.behind(&slot, lent).push(message));
        };
        fill(&mut buffer, &mut lent);
        buffer.shrink();
        assert_eq!(buffer.behind(&slot, &mut lent).len(), 10_000, "they are still there");
        buffer.behind(&slot, &mut lent).drain_into(by, &mut VecDeque::new());
        assert_eq!(buffer.behind(&slot, &mut lent).len(), 0);
        fill(&mut buffer, &mut lent);
        let mut front = VecDeque::with_capacity(10_000);
        buffer.behind(&slot, &mut lent).drain_into(by, &mut front);
        buffer.shrink();
        assert!(buffer.behind(&slot, &mut lent).is_bare());
    }
}
