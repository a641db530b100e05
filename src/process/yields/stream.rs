//! Yields that are answered many times: what was sent before the answer is pulled before it. An item is in the
//! [buffer](crate::process::yields::buffer) of its yield, which is under the lock of the table as all of it.

use std::mem;
use std::task::{Poll, Waker};

use crate::platform::sync::planted;
use crate::process::catch as panic;
use crate::process::event::Tag;
use crate::process::payload::Payload;
use crate::process::yields::table::{Phase, Slot};
use crate::process::yields::{Answer, AnswerTarget, Pulled, Sent, Yields};

impl Yields {
    /// Sends an item, or leaves `waker` to be woken when there is room. `item` is taken if it was sent.
    ///
    /// # Errors
    /// Nobody pulls any more: the stream was answered, given up, or its process has ended.
    pub(crate) fn send(&self, tag: Tag, item: &mut Option<Payload>, waker: &Waker) -> Poll<Result<Sent, ()>> {
        // Cloned outside the lock, for a waker is somebody's code; so it may take a second look.
        let mut fresh = None;
        loop {
            let Some(mut guard) = self.table() else { return Poll::Ready(Err(())) };
            let slot = guard.find(tag).map(|(_, slot)| slot);
            let Some(Slot { phase: Phase::InFlight(ear), buffer: Some(buffer), .. }) = slot else {
                return Poll::Ready(Err(()));
            };
            if buffer.has_room() {
                let Some(item) = item.take() else { return Poll::Ready(Ok(Sent::Nothing)) };
                let sent = match (buffer.push(item), &mut *ear) {
                    (_, AnswerTarget::Event) => Sent::Notices(buffer.due(false)),
                    (true, AnswerTarget::Own) => Sent::Own,
                    // Taken, not cloned: whoever is woken pulls until it finds nothing, and leaves its waker then. An
                    // answer that comes meanwhile wakes the task, which is once too often at most.
                    (true, AnswerTarget::Other(_)) => match mem::replace(ear, AnswerTarget::Own) {
                        AnswerTarget::Other(waker) => Sent::Other(waker),
                        _ => unreachable!("just seen"),
                    },
                    (false, _) | (true, AnswerTarget::Nobody) => Sent::Nothing,
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

    /// What a future that pulls finds; it waits if there is nothing. `None` when the tag is gone.
    pub(crate) fn pull(&self, tag: Tag, ear: AnswerTarget) -> Option<Pulled> {
        let mut guard = self.table()?;
        let table = &mut *guard;
        let (key, slot) = table.find(tag)?;
        let buffer = slot.buffer.as_mut()?;
        if let Some((item, sender)) = buffer.pop() {
            drop(guard);
            drop(ear);
            sender.into_iter().for_each(panic::wake);
            return Some(Pulled::Item(item));
        }
        match &mut slot.phase {
            Phase::InFlight(former) => {
                if !planted!("stream_forgets_puller") {
                    buffer.wait();
                }
                let former = mem::replace(former, ear);
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

    /// A hand-written process wants one item more. Returns how many notices its mailbox is due, or `None` when there is
    /// no such stream.
    pub(crate) fn want(&self, tag: Tag) -> Option<usize> {
        let mut guard = self.table()?;
        let (_, slot) = guard.find(tag)?;
        let ended = !slot.is_in_flight();
        let buffer = slot.buffer.as_mut()?;
        buffer.want();
        Some(buffer.due(ended))
    }

    /// What a notice stands for: the next item, or else the answer. `None` when the stream was given up meanwhile.
    pub(crate) fn collect_notice(&self, tag: Tag) -> Option<Result<Payload, Answer>> {
        let mut guard = self.table()?;
        let table = &mut *guard;
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
