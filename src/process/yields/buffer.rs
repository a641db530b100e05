//! What a stream has sent and its process has not pulled yet: plain data, under the lock of the tag table that it
//! stands in. It wakes nobody; what it returns says who is to be woken after the unlock.

use std::collections::VecDeque;
use std::task::Waker;

use crate::platform::sync::planted;
use crate::process::payload::Payload;

/// The items of one stream on their way from its handler to its process.
///
/// A hand-written process hears of items by *notices* in its mailbox: one for each item that it has pulled and that is
/// there, one for the end. A notice does not say what it stands for. Whichever is read first takes what is first in
/// the buffer, so the items keep their order and the end comes after them, however notices overtake each other on their
/// way into the mailbox.
#[derive(Debug)]
pub(crate) struct Buffer {
    items: VecDeque<Payload>,
    /// How many items wait here at most.
    room: usize,
    /// The handler, if it waits for room.
    sender: Option<Waker>,
    /// The process's future has looked and found nothing, and was not woken since.
    waits: bool,
    /// How many items were pulled that have no notice yet.
    wanted: usize,
    /// How many notices of items are on their way.
    noticed: usize,
    /// The notice of the end is on its way.
    end_noticed: bool,
}

impl Buffer {
    /// A buffer with room for so many items; for one at least.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            items: VecDeque::new(),
            room: room.max(1),
            sender: None,
            waits: true,
            wanted: 0,
            noticed: 0,
            end_noticed: false,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.items.len() < self.room
    }

    /// Takes an item in. True if the process's future waits, which the caller now wakes.
    #[must_use]
    pub(super) fn push(&mut self, item: Payload) -> bool {
        self.items.push_back(item);
        std::mem::take(&mut self.waits)
    }

    /// Takes the first item out; with the handler, if it waits for the room that there is now.
    pub(super) fn pop(&mut self) -> Option<(Payload, Option<Waker>)> {
        let item = self.items.pop_front()?;
        self.noticed = self.noticed.saturating_sub(1);
        let sender = if planted!("stream_pull_forgets_sender") { None } else { self.sender.take() };
        Some((item, sender))
    }

    /// Notes that the process's future found nothing and waits.
    pub(super) fn wait(&mut self) {
        self.waits = true;
    }

    /// Whether the handler waits with this waker already.
    pub(super) fn is_waited_with(&self, waker: &Waker) -> bool {
        self.sender.as_ref().is_some_and(|known| known.will_wake(waker))
    }

    /// Has the handler wait; returns the waker that it waited with before.
    pub(super) fn wait_for_room(&mut self, waker: Waker) -> Option<Waker> {
        self.sender.replace(waker)
    }

    /// The handler need not wait any more: nothing else is taken in.
    pub(super) fn excuse(&mut self) -> Option<Waker> {
        self.sender.take()
    }

    /// One item more is wanted by events.
    pub(super) fn want(&mut self) {
        self.wanted = self.wanted.saturating_add(1);
    }

    /// How many notices are due now that were not before.
    #[must_use]
    pub(super) fn due(&mut self, ended: bool) -> usize {
        let fresh = self.wanted.min(self.items.len() - self.noticed);
        self.wanted -= fresh;
        self.noticed += fresh;
        let end = ended && self.noticed == self.items.len() && !self.end_noticed;
        self.end_noticed |= end;
        fresh + usize::from(end)
    }

    /// What is left of a buffer that nobody pulls from any more: items to be dropped, a handler to be woken.
    pub(super) fn into_parts(self) -> (VecDeque<Payload>, Option<Waker>) {
        (self.items, self.sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that come out, in order.
    fn take(buffer: &mut Buffer) -> Option<u32> {
        buffer.pop().and_then(|(item, _)| item.downcast().ok())
    }

    #[test]
    fn items_come_out_in_order_and_room_is_exact() {
        for (room, holds) in [(0, 1), (1, 1), (3, 3)] {
            let mut buffer = Buffer::new(room);
            for n in 0..holds {
                assert!(buffer.has_room());
                // Only the first finds somebody who waits.
                assert_eq!(buffer.push(Payload::new(n)), n == 0);
            }
            assert!(!buffer.has_room());
            for n in 0..holds {
                assert_eq!(take(&mut buffer), Some(n));
                assert!(buffer.has_room());
            }
            assert_eq!(take(&mut buffer), None);
        }
    }

    #[test]
    fn each_pulled_item_and_the_end_have_one_notice() {
        let mut buffer = Buffer::new(8);
        buffer.want();
        assert_eq!(buffer.due(false), 0);
        let _ = buffer.push(Payload::new(1_u32));
        assert_eq!((buffer.due(false), buffer.due(false)), (1, 0));
        let _ = buffer.push(Payload::new(2_u32));
        // The second one is not pulled: nor does the end come before it.
        assert_eq!((buffer.due(false), buffer.due(true)), (0, 0));
        assert_eq!(take(&mut buffer), Some(1));
        assert_eq!(buffer.due(true), 0);
        buffer.want();
        buffer.want();
        assert_eq!((buffer.due(true), buffer.due(true)), (2, 0));
        assert_eq!((take(&mut buffer), take(&mut buffer)), (Some(2), None));
    }
}
