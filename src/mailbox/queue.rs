//! The messages of a mailbox without bound: one in its own place, and those that come while it is there in a buffer, which
//! changes places with that of the receiver.

use std::collections::VecDeque;
use std::mem;

use super::front::KEEP;
use super::slot::Slot;

/// Oldest first.
#[derive(Debug)]
pub(super) struct Queue<M> {
    /// The oldest. If messages fit in here at all, there are others only while it is full.
    first: Slot<M>,
    /// The others. Most mailboxes never hold two at once: an idle process pays a pointer for it.
    more: Option<Box<More<M>>>,
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
        debug_assert!(self.len() <= 1, "there are more");
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
            Some(more) if !more.0.is_empty() => more.drain_into(first, front),
            _ => {
                if let Some(only) = first {
                    front.push_back(only);
                }
            }
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

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::chance::Rng;

    /// Does what a mailbox does, by chance, to a queue and to a list.
    fn is_a_list<M: Debug + PartialEq>(message: impl Fn(u64) -> M) {
        let mut rng = Rng::seeded(7);
        let (mut queue, mut front) = (Queue::new(), VecDeque::new());
        let (mut list, mut number) = (VecDeque::new(), 0);
        for _ in 0..20_000 {
            match rng.below(8) {
                0..=3 => {
                    queue.push(message(number));
                    list.push_back(number);
                    number += 1;
                }
                4 if queue.len() <= 1 => {
                    let popped = front.pop_front().or_else(|| queue.pop_only());
                    assert_eq!(popped, list.pop_front().map(&message));
                }
                5 => queue.drain_into(&mut front),
                6 => {
                    let popped: Vec<_> = (0..3).map_while(|_| front.pop_front()).collect();
                    assert_eq!(popped, list.drain(..popped.len()).map(&message).collect::<Vec<_>>());
                }
                7 if rng.below(4) == 0 => queue.put_first(mem::take(&mut front)),
                _ => queue.shrink(),
            }
            assert_eq!(front.len() + queue.len(), list.len());
            assert!(!queue.is_bare() || queue.len() == 0);
        }
        let all: Vec<_> = front.into_iter().chain(queue.take_all()).collect();
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
        let mut queue = Queue::new();
        (0..10_000_u64).for_each(|message| queue.push(message));
        queue.shrink();
        assert_eq!(queue.len(), 10_000, "they are still there");
        queue.drain_into(&mut VecDeque::new());
        assert_eq!(queue.len(), 0);
        (0..10_000_u64).for_each(|message| queue.push(message));
        let mut front = VecDeque::with_capacity(10_000);
        queue.drain_into(&mut front);
        queue.shrink();
        assert!(queue.is_bare());
    }
}
