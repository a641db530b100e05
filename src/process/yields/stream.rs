//! Streams. A stream is a command for which the handler sends several items and then one answer. The process first
//! pulls all items that were sent before the answer, and then receives the answer.
//!
//! The items are in the [buffer](crate::process::yields::buffer) of the command, under the lock of the table.

use std::mem;
use std::task::{Poll, Waker};

use crate::platform::sync::planted;
use crate::process::catch as panic;
use crate::process::event::Tag;
use crate::process::payload::Payload;
use crate::process::yields::table::{Phase, Slot};
use crate::process::yields::{Answer, AnswerTarget, Pulled, Sent, Yields};

impl Yields {
    /// Takes the item out of `item` and stores it in the buffer of the stream, if the buffer has room. If the buffer is
    /// full, registers `waker`, which is woken when the process has pulled an item.
    ///
    /// # Errors
    /// Returns an error if the stream accepts no more items. A stream accepts no more items after the stream was
    /// answered or cancelled, or after the process of the stream has exited.
    pub(crate) fn send(&self, tag: Tag, item: &mut Option<Payload>, waker: &Waker) -> Poll<Result<Sent, ()>> {
        // The waker is cloned outside the lock, because the clone runs user code. Therefore, the loop checks the buffer
        // again after the clone.
        let mut fresh = None;
        loop {
            let Some(mut guard) = self.table() else { return Poll::Ready(Err(())) };
            let slot = guard.find(tag).map(|(_, slot)| slot);
            let Some(Slot { phase: Phase::InFlight(target), buffer: Some(buffer), .. }) = slot else {
                return Poll::Ready(Err(()));
            };
            if buffer.has_room() {
                let Some(item) = item.take() else { return Poll::Ready(Ok(Sent::Nothing)) };
                let sent = match (buffer.push(item), &mut *target) {
                    (_, AnswerTarget::Event) => Sent::Notices(buffer.due(false)),
                    (true, AnswerTarget::Own) => Sent::Own,
                    // The waker is moved out and not cloned. The woken future pulls until it finds no item, and then
                    // registers its waker again. If the answer arrives before the future has registered its waker
                    // again, the answer wakes the task of the process. This wake-up of the task may be unnecessary, but
                    // the future finds the answer when it pulls.
                    (true, AnswerTarget::Other(_)) => match mem::replace(target, AnswerTarget::Own) {
                        AnswerTarget::Other(waker) => Sent::Other(waker),
                        _ => unreachable!("just seen"),
                    },
                    (false, _) | (true, AnswerTarget::Discard) => Sent::Nothing,
                };
                drop(guard);
                return Poll::Ready(Ok(sent));
            }
            if buffer.is_waited_with(waker) {
                return Poll::Pending;
            }
            if let Some(fresh) = fresh.take() {
                let former = buffer.wait_for_room(fresh);
                drop(guard);
                drop(former);
                return Poll::Pending;
            }
            drop(guard);
            fresh = Some(waker.clone());
        }
    }

    /// Pulls an item for a future. If there is neither an item nor an answer, stores `target` and returns `Wait`. If
    /// the tag is not in the table, returns `None`.
    pub(crate) fn pull(&self, tag: Tag, target: AnswerTarget) -> Option<Pulled> {
        let mut guard = self.table()?;
        let table = &mut guard;
        let (key, slot) = table.find(tag)?;
        let buffer = slot.buffer.as_mut()?;
        if let Some((item, sender)) = buffer.pop() {
            drop(guard);
            drop(target);
            sender.into_iter().for_each(panic::wake);
            return Some(Pulled::Item(item));
        }
        match &mut slot.phase {
            Phase::InFlight(former) => {
                if !planted!("stream_forgets_puller") {
                    buffer.wait();
                }
                let former = mem::replace(former, target);
                drop(guard);
                drop(former);
                Some(Pulled::Wait)
            }
            Phase::Answered(_) => {
                let Phase::Answered(answer) = table.remove(key).phase else { unreachable!("just seen") };
                Some(Pulled::End(answer))
            }
            Phase::Queued => None,
        }
    }

    /// Requests one more item for a hand-written process. Returns the number of notices that the caller must push into
    /// the mailbox of the process. If there is no stream with this tag, returns `None`.
    pub(crate) fn want(&self, tag: Tag) -> Option<usize> {
        let mut guard = self.table()?;
        let (_, slot) = guard.find(tag)?;
        let ended = !slot.is_in_flight();
        let buffer = slot.buffer.as_mut()?;
        buffer.want();
        Some(buffer.due(ended))
    }

    /// Takes out the item or the answer that a notice announced. If the buffer contains an item, takes the next item.
    /// If the buffer is empty, takes the answer. If the stream was cancelled after the notice was sent, returns `None`.
    pub(crate) fn collect_notice(&self, tag: Tag) -> Option<Result<Payload, Answer>> {
        let mut guard = self.table()?;
        let table = &mut guard;
        let (key, slot) = table.find(tag)?;
        let overtaken = planted!("stream_end_overtakes") && !slot.is_in_flight();
        if !overtaken && let Some((item, sender)) = slot.buffer.as_mut()?.pop() {
            drop(guard);
            sender.into_iter().for_each(panic::wake);
            return Some(Ok(item));
        }
        if slot.is_in_flight() {
            return None;
        }
        match table.remove(key).phase {
            Phase::Answered(answer) => Some(Err(answer)),
            Phase::InFlight(_) | Phase::Queued => None,
        }
    }
}
