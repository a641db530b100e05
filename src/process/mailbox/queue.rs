//! Messages of an unbounded mailbox. The oldest message may be in the slot, and all other messages are in a buffer. The
//! receiver has a second buffer. If the receiver's buffer is empty, the receiver swaps the two buffers, and thus takes
//! all messages out of the mailbox's buffer.

use std::collections::VecDeque;
use std::mem;

use crate::process::mailbox::measured::{MessageClock, MessageTimer, MessageTimes};
use crate::process::mailbox::read_ahead::{KEEP, Receiving};
use crate::process::mailbox::slot::{Slot, SlotAccess};

/// The messages that are not in the slot. Most mailboxes never contain two messages at a time. Therefore, the buffer is
/// boxed, and the buffer of an idle process takes only one pointer.
#[derive(Debug)]
pub(super) struct Buffer<M>(Option<Box<More<M>>>);

/// View of all queued messages, oldest first, for the holder of the lock.
#[derive(Debug)]
pub(super) struct Queue<'a, M> {
    /// Slot that may contain the oldest message.
    first: &'a Slot<M>,
    access: &'a mut SlotAccess,
    /// Buffer of the other messages.
    buffer: &'a mut Buffer<M>,
}

#[derive(Debug)]
struct More<M> {
    messages: Vec<M>,
    times: MessageTimes,
}

impl<M> More<M> {
    fn new() -> Box<Self> {
        Box::new(Self { messages: Vec::new(), times: MessageTimes::default() })
    }

    /// Appends the message `first` to `front`, and then moves all messages of this buffer to the back of `front`.
    fn drain_into(&mut self, first: Option<M>, front: &mut VecDeque<M>) {
        self.times.taken();
        if front.is_empty() {
            let emptied = Vec::from(mem::take(front));
            *front = VecDeque::from(mem::replace(&mut self.messages, emptied));
            if let Some(first) = first {
                front.push_front(first);
            }
        } else {
            if let Some(first) = first {
                front.push_back(first);
            }
            let mut taken = VecDeque::from(mem::take(&mut self.messages));
            front.append(&mut taken);
            // The buffer keeps its memory for the next messages.
            self.messages = Vec::from(taken);
        }
    }
}

impl<M> Buffer<M> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self(None)
    }

    #[inline]
    pub(super) fn behind<'a>(&'a mut self, first: &'a Slot<M>, access: &'a mut SlotAccess) -> Queue<'a, M> {
        Queue { first, access, buffer: self }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |more| more.messages.len())
    }

    /// Returns the allocated memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |more| size_of::<More<M>>() + more.messages.capacity() * size_of::<M>())
    }

    /// Returns the time, in ns, at which a message was first stored in the buffer after the most recent removal of a
    /// message: see [`MessageTimes::unread_since`].
    pub(super) fn unread_since(&self) -> Option<u64> {
        self.0.as_ref()?.times.unread_since()
    }

    /// Appends a message. The buffer must be empty. The message is stored in the slot if possible. This function is not
    /// inlined. Therefore, the path for the further messages of a burst needs fewer registers. The functions for the
    /// rare cases are called last (tail calls). Therefore this function needs no stack frame.
    #[inline(never)]
    fn push_while_empty(&mut self, first: &Slot<M>, access: &mut SlotAccess, message: M, clock: &impl MessageClock) {
        if !first.is_full() && clock.may_measure() {
            return self.measure_or_push(first, access, message, clock);
        }
        if let Err(message) = first.put(access, message) {
            self.push_to_buffer(message, clock);
        }
    }

    /// Appends a message that may be measured. The slot and the buffer must be empty.
    #[cold]
    #[inline(never)]
    fn measure_or_push(&mut self, first: &Slot<M>, access: &mut SlotAccess, message: M, clock: &impl MessageClock) {
        if let Some(timer) = clock.timer() {
            self.push_measured(message, timer, clock);
        } else if let Err(message) = first.put(access, message) {
            self.push_to_buffer(message, clock);
        }
    }

    /// Appends a message to the buffer, because the slot does not accept the message.
    #[inline(never)]
    fn push_to_buffer(&mut self, message: M, clock: &impl MessageClock) {
        let more = self.0.get_or_insert_with(More::new);
        more.times.appended(clock);
        more.messages.push(message);
    }

    /// Appends a message to the empty queue, and measures the time of the message in the mailbox.
    #[cold]
    #[inline(never)]
    fn push_measured(&mut self, message: M, timer: MessageTimer, clock: &impl MessageClock) {
        let more = self.0.get_or_insert_with(More::new);
        more.times.appended(clock);
        more.times.measure(timer);
        more.messages.push(message);
    }

    /// Records that the receiver has taken out the measured message, which was the only message in the buffer. Frees
    /// the memory of the buffer, because a message that is not measured usually needs only the slot.
    #[cold]
    fn end_measurement(&mut self) {
        if let Some(more) = &mut self.0.take() {
            more.times.taken();
        }
    }

    /// Frees the memory of a burst after the last message of the burst was taken.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.0.as_ref().is_some_and(|more| more.messages.capacity() > KEEP && more.messages.is_empty()) {
            self.0 = None;
        }
    }
}

impl<M> Queue<'_, M> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_full()) + self.buffer.len()
    }

    /// Returns whether the queue contains no message and owns no allocated memory.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        !self.first.is_full() && self.buffer.0.is_none()
    }

    /// Appends a message. This function is always inlined. Without inlining, a sender of bursts would need 216
    /// instructions per message, and 20 of these instructions would belong to the call. Both numbers were measured by
    /// hand with the bench `counting`.
    #[inline(always)]
    pub(super) fn push(&mut self, message: M, clock: &impl MessageClock) {
        // The message in the slot must be the oldest message, so a message is written into the slot only while the
        // buffer is empty.
        match &mut self.buffer.0 {
            Some(more) if !more.messages.is_empty() => more.messages.push(message),
            _ => self.buffer.push_while_empty(self.first, self.access, message, clock),
        }
    }

    /// Appends a message to the empty queue, and measures the time of the message in the mailbox.
    pub(super) fn push_measured(&mut self, message: M, timer: MessageTimer, clock: &impl MessageClock) {
        self.buffer.push_measured(message, timer, clock);
    }

    /// Takes the oldest message. The queue must contain at most one message.
    #[inline]
    pub(super) fn pop_only(&mut self, by: Receiving) -> Option<M> {
        debug_assert!(self.buffer.len() <= 1, "there are more");
        self.first.take(by).or_else(|| {
            let more = self.buffer.0.as_mut()?;
            let message = more.messages.pop();
            if more.times.is_measured() {
                self.buffer.end_measurement();
            } else {
                more.times.taken();
            }
            message
        })
    }

    pub(super) fn take_all(&mut self, by: Receiving) -> Vec<M> {
        let mut more = self.buffer.0.take().map_or_else(Vec::new, |more| more.messages);
        if let Some(first) = self.first.take(by) {
            more.insert(0, first);
        }
        more
    }

    /// Inserts messages before all queued messages.
    pub(super) fn put_first(&mut self, by: Receiving, mut messages: VecDeque<M>) {
        messages.append(&mut VecDeque::from(self.take_all(by)));
        if let Some(first) = messages.pop_front() {
            let rest = match self.first.put(self.access, first) {
                Ok(()) => messages.into(),
                Err(first) => {
                    messages.push_front(first);
                    Vec::from(messages)
                }
            };
            if !rest.is_empty() {
                self.buffer.0 = Some(Box::new(More { messages: rest, times: MessageTimes::default() }));
            }
        }
    }

    /// Inserts the messages that a replaced receiver had taken out of the mailbox. A replaced receiver must not read
    /// the slot. Therefore, a message in the slot stays the first message, and the inserted messages follow this
    /// message directly. In contrast, [`put_first`](Self::put_first) inserts messages before all queued messages.
    pub(super) fn put_behind_first(&mut self, messages: VecDeque<M>) {
        let more = self.buffer.0.get_or_insert_with(More::new);
        more.times.reordered();
        let mut all = Vec::with_capacity(messages.len() + more.messages.len());
        all.append(&mut Vec::from(messages));
        all.append(&mut more.messages);
        more.messages = all;
    }

    /// Moves all messages to the back of `front`. If `front` is empty, the two buffers are swapped, and only the
    /// message in the slot is copied.
    pub(super) fn drain_into(&mut self, by: Receiving, front: &mut VecDeque<M>) {
        let first = self.first.take(by);
        match &mut self.buffer.0 {
            Some(more) if !more.messages.is_empty() => more.drain_into(first, front),
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
    use crate::process::mailbox::wakes::NeverWoken;
    use crate::process::state::current::InTurn;

    /// Applies the same random mailbox operations to a queue and to a list, and compares the results.
    fn behaves_like_a_list<M: Debug + PartialEq>(message: impl Fn(u64) -> M) {
        let mut rng = Rng::seeded(7);
        let (slot, mut access) = Slot::new();
        let by = Receiving::closing(Some(InTurn::in_test()));
        let (mut buffer, mut front) = (Buffer::new(), VecDeque::new());
        let (mut list, mut number) = (VecDeque::new(), 0);
        for _ in 0..20_000 {
            // While the slot is open, messages are stored in the buffer.
            access.set_open(rng.below(4) == 0, InTurn::in_test());
            let mut queue = buffer.behind(&slot, &mut access);
            match rng.below(8) {
                0..=3 => {
                    queue.push(message(number), &NeverWoken);
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
            let queue = buffer.behind(&slot, &mut access);
            assert_eq!(front.len() + queue.len(), list.len());
            assert!(!queue.is_bare() || queue.len() == 0);
        }
        let mut queue = buffer.behind(&slot, &mut access);
        let all: Vec<_> = front.into_iter().chain(queue.take_all(by)).collect();
        assert_eq!(all, list.into_iter().map(message).collect::<Vec<_>>());
        assert!(queue.is_bare());
    }

    #[test]
    fn messages_of_every_size_stay_in_order() {
        behaves_like_a_list(|number| number as u8);
        behaves_like_a_list(|number| number);
        behaves_like_a_list(|number| number.to_string());
        behaves_like_a_list(|number| [number; 4]);
    }

    /// 4.7j: the memory of a burst is freed after the burst was read.
    #[test]
    fn the_memory_of_a_burst_is_freed() {
        let ((slot, mut access), mut buffer) = (Slot::new(), Buffer::new());
        let by = Receiving::closing(Some(InTurn::in_test()));
        let fill = |buffer: &mut Buffer<u64>, access: &mut SlotAccess| {
            (0..10_000).for_each(|message| buffer.behind(&slot, access).push(message, &NeverWoken));
        };
        fill(&mut buffer, &mut access);
        buffer.shrink();
        assert_eq!(buffer.behind(&slot, &mut access).len(), 10_000, "they are still there");
        buffer.behind(&slot, &mut access).drain_into(by, &mut VecDeque::new());
        assert_eq!(buffer.behind(&slot, &mut access).len(), 0);
        fill(&mut buffer, &mut access);
        let mut front = VecDeque::with_capacity(10_000);
        buffer.behind(&slot, &mut access).drain_into(by, &mut front);
        buffer.shrink();
        assert!(buffer.behind(&slot, &mut access).is_bare());
    }
}
