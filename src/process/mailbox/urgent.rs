//! Urgent messages of a mailbox. A receiver reads all urgent messages before any other message or signal, and even
//! before the messages in its read-ahead buffer. The design follows the priority messages of Erlang/OTP 28.
//!
//! A receiver reads its read-ahead buffer without the lock. Therefore each process has a flag that shows whether its
//! mailbox contains urgent messages. The flag changes only under the lock of the mailbox. Before a receiver reads its
//! buffer, the receiver loads this flag together with the cancellation flag.
//!
//! If a receiver finds the mark on the lock, the receiver need not check the flag. The push of an urgent message takes
//! the lock, and thus clears the mark. No receiver sets the mark while an urgent message is unread
//! ([`State::is_plain`]).
//!
//! # Lost wake-ups
//!
//! The sender stores the message, sets the flag and wakes the waiting receiver, all under the lock. A receiver that
//! loads the flag just before the push may miss the message. If it takes the lock after the push, it finds the
//! message before it registers itself as waiting. The receiver then loads the flag again.
//! If the receiver has registered itself before the push, the sender wakes the receiver.
//!
//! [`State::is_plain`]: crate::process::mailbox::locked::State::is_plain

use std::collections::VecDeque;
use std::mem;

use crate::platform::sync::Arc;
use crate::process::mailbox::bounded::without_empty_places;
use crate::process::mailbox::locked::Locked;
use crate::process::mailbox::routed::Forwarding;
use crate::process::mailbox::{Inbox, Own, ReadAhead, Unsent, Wakes};

impl<M> Inbox<M> {
    /// Appends an urgent message. If the message is accepted, calls `accepted` under the lock. The closure `accepted`
    /// sets the flag of the process.
    ///
    /// Urgent messages do not reduce the capacity for other messages. The number of urgent messages in a bounded
    /// mailbox is at most the capacity. With every policy, the mailbox rejects further urgent messages.
    ///
    /// # Errors
    /// Returns the message if the inbox is closed, if the inbox contains too many urgent messages, or if the message
    /// must be routed.
    #[cold]
    pub(crate) fn push_urgent(&self, own: &impl Own, message: M, accepted: impl FnOnce()) -> Result<Wakes, Unsent<M>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Unsent::Closed(message));
        }
        if let Some(Forwarding::Routed { router, .. }) = state.aside.as_deref().map(|aside| &aside.forwarding) {
            let router = Arc::clone(router);
            return Err(Unsent::Routed(message, router));
        }
        let most = state.bounded().map_or(usize::MAX, |bounded| bounded.most());
        if state.urgent_len() >= most {
            return Err(Unsent::Full(message));
        }
        let wakes = state.wakes_for_receiver(own);
        state.state.aside.get_or_insert_default().urgent.push_back(Some(message));
        state.record_with_urgent();
        accepted();
        Ok(wakes)
    }

    /// Returns why an urgent message would be refused now: see [`refuses`](Self::refuses).
    pub(crate) fn refuses_urgent(&self) -> Option<bool> {
        let mut state = self.lock();
        if state.closed {
            return Some(false);
        }
        if let Some(Forwarding::Routed { router, .. }) = state.aside.as_deref().map(|aside| &aside.forwarding) {
            let router = Arc::clone(router);
            drop(state);
            return router.refuses_urgent().then_some(true);
        }
        let most = state.bounded().map_or(usize::MAX, |bounded| bounded.most());
        (state.urgent_len() >= most).then_some(true)
    }

    /// Takes the next urgent message. If no urgent message is left, calls `none_left` under the lock. The closure
    /// `none_left` clears the flag of the process. Returns `None` if another receiver has replaced this receiver.
    #[cold]
    pub(crate) fn pop_urgent(&self, front: &mut ReadAhead<M>, none_left: impl FnOnce()) -> Option<M> {
        let mut state = self.lock();
        front.receiving()?;
        Self::pop_urgent_from(&mut state, none_left)
    }

    /// Takes the next urgent message in the same way as [`pop_urgent`](Self::pop_urgent), for a hand-written process
    /// that reads its events.
    #[cold]
    pub(crate) fn pop_urgent_event(&self, none_left: impl FnOnce()) -> Option<M> {
        Self::pop_urgent_from(&mut self.lock(), none_left)
    }

    fn pop_urgent_from(state: &mut Locked<'_, M>, none_left: impl FnOnce()) -> Option<M> {
        // Other messages may have arrived since the last urgent message.
        state.record_with_urgent();
        let message = state.state.aside.as_deref_mut().and_then(|aside| {
            // A place is empty while another receive operation inspects the message of the place. Empty places are
            // skipped and removed.
            while let Some(place) = aside.urgent.pop_front() {
                if place.is_some() {
                    return place;
                }
            }
            None
        });
        Self::settle_urgent_of(state, none_left);
        message
    }

    /// Takes out the urgent message at this position for inspection by the receiver. The place of the message stays
    /// empty until the receiver [puts back](Self::put_back_urgent) the message, or [drops the
    /// place](Self::drop_urgent_place).
    #[cold]
    pub(crate) fn look_at_urgent(&self, front: &mut ReadAhead<M>, place: usize) -> Option<M> {
        let mut state = self.lock();
        front.receiving()?;
        state.record_with_urgent();
        state.state.aside.as_deref_mut()?.urgent.get_mut(place)?.take()
    }

    /// Puts back an urgent message that the receiver has inspected.
    ///
    /// # Errors
    /// Returns the message if the inbox was closed.
    pub(crate) fn put_back_urgent(&self, place: usize, message: M) -> Result<(), M> {
        let mut state = self.lock();
        if state.closed {
            return Err(message);
        }
        let urgent = &mut state.state.aside.get_or_insert_default().urgent;
        match urgent.get_mut(place) {
            Some(empty @ None) => *empty = Some(message),
            // `pick` has received an urgent message through another receiver, so the places have moved.
            _ => urgent.insert(place.min(urgent.len()), Some(message)),
        }
        Ok(())
    }

    /// Removes the empty place of an urgent message that the receiver has taken. Calls `none_left` under the lock of
    /// the mailbox if there is no other urgent message.
    pub(crate) fn drop_urgent_place(&self, place: usize, none_left: impl FnOnce()) {
        let mut state = self.lock();
        if let Some(aside) = state.state.aside.as_deref_mut()
            && let Some(None) = aside.urgent.get(place)
        {
            aside.urgent.remove(place);
        }
        Self::settle_urgent_of(&mut state, none_left);
    }

    fn settle_urgent_of(state: &mut Locked<'_, M>, none_left: impl FnOnce()) {
        if state.urgent_len() == 0 {
            if let Some(aside) = state.state.aside.as_deref_mut() {
                // Frees the memory of a burst.
                aside.urgent = VecDeque::new();
            }
            none_left();
        }
    }

    /// Returns the number of unread urgent messages.
    pub(crate) fn urgent_len(&self) -> usize {
        self.lock().urgent_len()
    }

    /// Moves the urgent messages into the queue, before all other messages. The inbox is about to forward its messages
    /// to a router.
    pub(super) fn demote_urgent(state: &mut Locked<'_, M>) {
        if let Some(aside) = state.state.aside.as_deref_mut()
            && let Some(bounded) = aside.bounded.as_mut()
            && !aside.urgent.is_empty()
        {
            let urgent = without_empty_places(mem::take(&mut aside.urgent));
            aside.signals.came_before(urgent.len());
            bounded.put_first(urgent);
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::process::mailbox::MailboxCapacity;
    use crate::process::mailbox::wakes::NeverWoken;
    use crate::process::state::current::InTurn;

    #[test]
    fn the_urgent_messages_of_a_closed_mailbox_come_first() {
        let inbox = Inbox::new(MailboxCapacity::Unbounded, None);
        let before = inbox.figures().bytes;
        for message in 0..3_u64 {
            let _no_wakes = inbox.push(&NeverWoken, message, || {}).expect("it is open");
        }
        for message in 10..1_010 {
            let _no_wakes = inbox.push_urgent(&NeverWoken, message, || {}).expect("it is open");
        }
        let least = 1_000 * size_of::<u64>() + size_of::<crate::process::mailbox::locked::RareParts<u64>>();
        let bytes = inbox.figures().bytes - before;
        assert!((least..3 * least).contains(&bytes), "{bytes} bytes");
        assert_eq!((inbox.figures().messages, inbox.urgent_len()), (1_003, 1_000));
        let messages = inbox.close(Some(InTurn::in_test())).expect("it has contents").settle(&inbox);
        assert_eq!(messages, (10..1_010).chain(0..3).collect::<Vec<_>>());
    }

    #[test]
    fn the_memory_of_a_bounded_mailbox_includes_its_queue() {
        let inbox = Inbox::new(MailboxCapacity::Reject(1_000), None);
        let before = inbox.figures().bytes;
        for message in 0..1_000_u64 {
            let _no_wakes = inbox.push(&NeverWoken, message, || {}).expect("there is room");
        }
        let (bytes, least) = (inbox.figures().bytes - before, 1_000 * size_of::<Option<u64>>());
        assert!((least..3 * least).contains(&bytes), "{bytes} bytes");
    }
}
