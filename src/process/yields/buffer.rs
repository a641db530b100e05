//! The buffered items of a stream. The handler has sent these items, and the process has not pulled these items yet.
//!
//! A buffer is plain data in a slot of the table of commands, and the lock of the table protects the buffer. A buffer
//! wakes no task. The methods of a buffer return the wakers that the caller must wake after the unlock.

use std::collections::VecDeque;
use std::task::Waker;

use crate::platform::sync::planted;
use crate::process::payload::Payload;

/// The buffered items of one stream. The handler has sent these items, and the process has not pulled these items yet.
///
/// A hand-written process is notified of items by *notices* in its mailbox. The process receives one notice for each
/// requested item that is in the buffer, and one notice for the end of the stream. A notice does not identify an item.
/// When the process reads a notice, the process takes the first item of the buffer. Therefore, the items keep their
/// order, and the end comes last. This is true even if the notices enter the mailbox in another order.
#[derive(Debug)]
pub(crate) struct Buffer {
    items: VecDeque<Payload>,
    /// Maximum number of items in the buffer.
    room: usize,
    /// Waker of the handler while the handler waits for room.
    sender: Option<Waker>,
    /// Whether the future of the process waits for an item. The flag is set when the future finds no item, and is
    /// cleared when the handler sends an item. The initial value is true.
    waits: bool,
    /// Number of requested items for which no notice was sent yet.
    wanted: usize,
    /// Number of items whose notice was sent but not read yet.
    noticed: usize,
    /// Whether the notice of the end of the stream was sent.
    end_noticed: bool,
}

impl Buffer {
    /// Creates a buffer with room for `room` items. If `room` is 0, the buffer has room for one item.
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

    /// Appends an item. Returns whether the future of the process waits. If the result is true, the caller must wake
    /// the future.
    #[must_use]
    pub(super) fn push(&mut self, item: Payload) -> bool {
        self.items.push_back(item);
        std::mem::take(&mut self.waits)
    }

    /// Takes out the first item. If the handler waits for room, also returns the waker of the handler.
    pub(super) fn pop(&mut self) -> Option<(Payload, Option<Waker>)> {
        let item = self.items.pop_front()?;
        self.noticed = self.noticed.saturating_sub(1);
        let sender = if planted!("stream_pull_forgets_sender") { None } else { self.sender.take() };
        Some((item, sender))
    }

    /// Records that the future of the process found no item and waits.
    pub(super) fn wait(&mut self) {
        self.waits = true;
    }

    /// Returns whether the handler already waits with this waker.
    pub(super) fn is_waited_with(&self, waker: &Waker) -> bool {
        self.sender.as_ref().is_some_and(|known| known.will_wake(waker))
    }

    /// Stores the waker of a handler that waits for room. Returns the previously stored waker.
    pub(super) fn wait_for_room(&mut self, waker: Waker) -> Option<Waker> {
        self.sender.replace(waker)
    }

    /// Takes out the handler's waker, because the stream accepts no more items. The caller must wake the handler.
    pub(super) fn take_waiting_sender(&mut self) -> Option<Waker> {
        self.sender.take()
    }

    /// Counts one more item that a hand-written process requests.
    pub(super) fn want(&mut self) {
        self.wanted = self.wanted.saturating_add(1);
    }

    /// Returns the number of notices that must be sent now, and counts these notices as sent. The caller sets `ended`
    /// to true if the stream has its answer.
    #[must_use]
    pub(super) fn due(&mut self, ended: bool) -> usize {
        let fresh = self.wanted.min(self.items.len() - self.noticed);
        self.wanted -= fresh;
        self.noticed += fresh;
        let end = ended && self.noticed == self.items.len() && !self.end_noticed;
        self.end_noticed |= end;
        fresh + usize::from(end)
    }

    /// Takes the items out of the buffer, because the process pulls no more items from this stream. The caller must
    /// drop the items, and must have taken the handler's waker before.
    pub(super) fn into_items(self) -> VecDeque<Payload> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes out the first item and converts it to a number.
    fn take(buffer: &mut Buffer) -> Option<u32> {
        buffer.pop().and_then(|(item, _)| item.downcast().ok())
    }

    #[test]
    fn the_buffer_keeps_the_order_of_items_and_never_exceeds_its_room() {
        for (room, holds) in [(0, 1), (1, 1), (3, 3)] {
            let mut buffer = Buffer::new(room);
            for n in 0..holds {
                assert!(buffer.has_room());
                // Only the first item finds a future that waits.
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
    fn each_pulled_item_and_the_end_of_the_stream_cause_one_notice() {
        let mut buffer = Buffer::new(8);
        buffer.want();
        assert_eq!(buffer.due(false), 0);
        let _ = buffer.push(Payload::new(1_u32));
        assert_eq!((buffer.due(false), buffer.due(false)), (1, 0));
        let _ = buffer.push(Payload::new(2_u32));
        // The process has not requested the second item yet. The notice of the end must come after the notice for the
        // second item.
        assert_eq!((buffer.due(false), buffer.due(true)), (0, 0));
        assert_eq!(take(&mut buffer), Some(1));
        assert_eq!(buffer.due(true), 0);
        buffer.want();
        buffer.want();
        assert_eq!((buffer.due(true), buffer.due(true)), (2, 0));
        assert_eq!((take(&mut buffer), take(&mut buffer)), (Some(2), None));
    }
}
