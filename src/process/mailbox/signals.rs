//! The signals of a mailbox, and the position of each signal among the messages. This file only counts messages, and
//! does not store them.

use std::collections::VecDeque;
use std::mem;

use crate::platform::sync::planted;
use crate::process::catch::drop_caught;
use crate::process::event::Signal;
use crate::process::mailbox::read_ahead::{KEEP, free_burst};
use crate::process::mailbox::slot::Slot;

/// Queue of signals, oldest first.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Number of messages that were taken out of the mailbox since this queue of signals was created. Messages from
    /// the slot are not counted. The positions of the signals refer to this number. A message that was read out of
    /// order is in some cases [not counted](Self::shift_signals_before). The positions of the later signals are then
    /// lower by one.
    taken: i64,
    waiting: VecDeque<(SignalPosition, Signal)>,
}

/// Position of a signal among the messages.
#[derive(Debug, Clone, Copy)]
enum SignalPosition {
    /// Preliminary position of a signal, computed when the signal is appended. The field `slot` is the number of
    /// messages that have been written into the slot so far. The field `others` counts the messages outside the slot.
    /// This count includes the messages that were already taken out, and the messages that are still queued.
    ///
    /// The sender of the signal cannot know the final position. The receiver reads the slot before all other messages,
    /// and another thread may write or read the slot at the same time. Therefore, the receiver computes the [final
    /// position](Signals::place).
    Behind { slot: u64, others: i64 },
    /// Final position of a signal. When this number of messages has been taken out of the mailbox, the signal is the
    /// next item.
    Number(i64),
}

impl SignalPosition {
    /// Returns the final position of a signal. The receiver must have computed this position before the call.
    fn number(self) -> i64 {
        match self {
            Self::Number(number) => number,
            Self::Behind { .. } => unreachable!("the receiver has computed the position of the signal"),
        }
    }

    /// Moves the signal behind `by` additional messages.
    fn shift(&mut self, by: i64) {
        match self {
            Self::Number(number) => *number += by,
            Self::Behind { others, .. } => *others += by,
        }
    }
}

impl Signals {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Appends a signal behind all messages. The parameter `others` is the number of queued messages outside the slot.
    #[inline]
    pub(super) fn append<M>(&mut self, signal: Signal, slot: &Slot<M>, others: usize) {
        let taken = if planted!("signal_forgets_taken") { 0 } else { self.taken };
        let place = SignalPosition::Behind { slot: slot.put_count(), others: taken + others as i64 };
        self.waiting.push_back((place, signal));
    }

    /// Computes the final positions of the signals that arrived since the last call. Before the receiver takes messages
    /// or puts messages back, the receiver calls this function.
    #[inline]
    pub(super) fn place<M>(&mut self, slot: &Slot<M>) {
        if !self.is_empty() {
            self.place_some(slot);
        }
    }

    #[cold]
    fn place_some<M>(&mut self, slot: &Slot<M>) {
        let (taken, from_slot, is_full) = (self.taken_with(slot), slot.taken(), slot.is_full());
        for (place, _) in self.waiting.iter_mut().rev() {
            let SignalPosition::Behind { slot, others } = *place else { break };
            let unread = match others - self.taken {
                // The receiver reads the slot before the unread messages of the queue. Therefore, the message in the
                // slot comes before the signal, even if this message arrived after the signal.
                unread @ 1.. if !planted!("slot_is_behind") => unread + i64::from(is_full),
                unread => unread + i64::from(slot > from_slot),
            };
            *place = SignalPosition::Number(taken + unread);
        }
    }

    /// Returns the number of messages that were taken out, including the messages from the slot.
    #[inline]
    fn taken_with<M>(&self, slot: &Slot<M>) -> i64 {
        self.taken + slot.taken() as i64
    }

    /// Counts messages that were taken from anywhere except the slot.
    #[inline]
    pub(super) fn took(&mut self, messages: usize) {
        self.taken += messages as i64;
    }

    /// Reduces the number of taken messages by the number of messages that a receiver puts back.
    pub(super) fn took_back(&mut self, messages: usize) {
        self.taken -= messages as i64;
    }

    /// Increases the positions of all signals by `messages`, because this number of messages is inserted before all
    /// other messages.
    pub(super) fn came_before(&mut self, messages: usize) {
        self.waiting.iter_mut().for_each(|(place, _)| place.shift(messages as i64));
    }

    /// Counts a message that a receiver picked out of the queue of a bounded mailbox. The parameter `passed` is the
    /// number of unread messages before this message.
    pub(super) fn took_at(&mut self, passed: usize) {
        self.taken += 1;
        self.shift_signals_before(self.taken - 1 + passed as i64);
    }

    /// Corrects the positions of signals after a message of the read-ahead buffer was read out of order. The parameter
    /// `passed` is the number of unread messages before this message. The parameter `left` is the number of messages
    /// that are still in the buffer.
    pub(super) fn passed_over<M>(&mut self, slot: &Slot<M>, passed: usize, left: usize) {
        self.shift_signals_before(self.taken_with(slot) - 1 - left as i64 + passed as i64);
    }

    /// Corrects the positions after a message was read out of order. The signals with a position of at most `number`
    /// are earlier than this message. The count of taken messages has grown by one, but the messages before an earlier
    /// signal are still unread. Therefore, the position of each earlier signal must also grow by one.
    ///
    /// A body that never reads its signals may have many earlier signals, and senders wait for the lock during this
    /// operation. If there are more earlier signals than later signals, this function corrects the later signals
    /// instead, and does not count the message. The position of each later signal then shrinks by one, because the
    /// message came before this signal.
    fn shift_signals_before(&mut self, number: i64) {
        let earlier = self.waiting.partition_point(|(place, _)| place.number() <= number);
        if earlier <= self.waiting.len() - earlier {
            self.waiting.range_mut(..earlier).for_each(|(place, _)| place.shift(1));
        } else {
            self.taken -= 1;
            self.waiting.range_mut(earlier..).for_each(|(place, _)| place.shift(-1));
        }
    }

    /// Returns the next signal if no message comes before this signal. The parameter `unread` is the number of messages
    /// that the receiver has taken and not read.
    pub(super) fn pop<M>(&mut self, slot: &Slot<M>, unread: usize) -> Option<Signal> {
        if self.waiting.front()?.0.number() > self.taken_with(slot) - unread as i64 {
            return None;
        }
        let (_, signal) = self.waiting.pop_front()?;
        free_burst(&mut self.waiting);
        Some(signal)
    }

    /// Removes the newest signal for which `is_unwanted` returns true. This function searches only the newest [`KEEP`]
    /// signals, because senders wait for the lock during the search.
    pub(super) fn remove_newest(&mut self, is_unwanted: impl Fn(&Signal) -> bool) -> Option<Signal> {
        let from_back = self.waiting.iter().rev().take(KEEP).position(|(_, signal)| is_unwanted(signal))?;
        let (_, signal) = self.waiting.remove(self.waiting.len() - 1 - from_back)?;
        free_burst(&mut self.waiting);
        Some(signal)
    }

    /// Moves all signals to `to`. The parameter `ahead` is the number of messages that the receiver has taken so far.
    /// This number includes the read messages and the unread messages.
    pub(super) fn drain<M>(&mut self, slot: &Slot<M>, to: &mut Drained, ahead: u64) {
        let taken = self.taken_with(slot);
        if to.waiting.is_empty() {
            // The two queues are swapped instead of copied, because there may be many signals, and senders wait for the
            // lock during this operation.
            to.shrink_to(self.waiting.len());
            mem::swap(&mut self.waiting, &mut to.waiting);
            (to.taken, to.ahead) = (taken, ahead);
            return;
        }
        for (place, signal) in self.waiting.drain(..) {
            let number = to.taken + (ahead - to.ahead) as i64 + (place.number() - taken).max(0);
            to.waiting.push_back((SignalPosition::Number(number), signal));
        }
    }
}

impl Signals {
    /// Moves the signals of `from` back to the front of the queue. The caller has [computed](Self::place) the final
    /// positions of the other signals. The parameter `read` is the number of messages that the receiver of `from` has
    /// read. The parameter `unread` is the number of messages that this receiver has taken and not read. The next
    /// receiver reads these messages first.
    pub(super) fn put_back<M>(&mut self, slot: &Slot<M>, from: &mut Drained, read: u64, unread: usize) {
        let base = self.taken_with(slot) - unread as i64;
        while let Some((place, signal)) = from.waiting.pop_back() {
            let others = (place.number() - from.taken).max(0);
            let after = (from.ahead as i64 + others - read as i64).max(0);
            self.waiting.push_front((SignalPosition::Number(base + after), signal));
        }
    }
}

/// Signals that a receiver took out of the mailbox. In the same operation, the receiver also took out the messages that
/// come before these signals.
#[derive(Debug, Default)]
pub(super) struct Drained {
    waiting: VecDeque<(SignalPosition, Signal)>,
    /// The fields `taken` and `ahead` use two different counts for the same position in the sequence of messages. The
    /// field `taken` contains the number of messages that had been taken out of the mailbox when the signals were taken
    /// out. The field `ahead` contains the number of messages that the receiver will have read when the receiver
    /// reaches this position.
    taken: i64,
    ahead: u64,
}

impl Drop for Signals {
    fn drop(&mut self) {
        drop_each(&mut self.waiting);
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        drop_each(&mut self.waiting);
    }
}

/// Drops signals one by one. The destructor of an answer is user code and may panic. If the queue were dropped as a
/// whole and two of these destructors panicked, the program would abort.
fn drop_each(signals: &mut VecDeque<(SignalPosition, Signal)>) {
    while let Some((_, signal)) = signals.pop_front() {
        let _ = drop_caught(signal);
    }
}

#[cfg(all(test, not(procession_loom)))]
impl Signals {
    pub(super) fn capacity(&self) -> usize {
        self.waiting.capacity()
    }
}

#[cfg(all(test, not(procession_loom)))]
impl Drained {
    pub(super) fn capacity(&self) -> usize {
        self.waiting.capacity()
    }
}

impl Drained {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the next signal if no message comes before this signal. The parameter `read` is the number of messages
    /// that the receiver has read.
    #[inline]
    pub(super) fn pop(&mut self, read: u64) -> Option<Signal> {
        // The result of the subtraction is negative if messages before the signal have left the mailbox and this
        // receiver has not read these messages. This receiver never reads these messages, so a negative result is
        // replaced by 0.
        let others = (self.waiting.front()?.0.number() - self.taken).max(0);
        if self.ahead + others as u64 > read {
            return None;
        }
        self.waiting.pop_front().map(|(_, signal)| signal)
    }

    /// Frees the memory of a burst of signals if all signals of the burst were read.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.shrink_to(0);
        }
    }

    /// Frees the memory of a burst. The memory is freed if the capacity of the queue is more than four times `next` and
    /// more than [`KEEP`].
    fn shrink_to(&mut self, next: usize) {
        if self.waiting.capacity() > KEEP.max(4 * next) {
            self.waiting = VecDeque::new();
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;
    use crate::process::event::Tag;

    fn signal(number: u64) -> Signal {
        Signal::Notice(Tag::chosen(number as u32))
    }

    /// Returns the number of this signal.
    fn number_of(signal: &Signal) -> u64 {
        match signal {
            Signal::Notice(tag) => tag.number & !Tag::<()>::CHOSEN,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn signals_keep_their_positions_when_messages_are_picked() {
        let mut rng = Rng::seeded(3);
        for round in 0..20_000 {
            let ((slot, _), mut signals) = (Slot::<u64>::new(), Signals::default());
            // The mailbox gets twelve messages and signals. The receiver has stashed and unstashed the oldest messages.
            // These messages are in `front`, and `front` contains at most `ahead` messages.
            let (is_signal, ahead) = (rng.below(1 << 12), rng.below(5));
            let mut items: Vec<u64> = (0..12).collect();
            let (mut queue, mut front) = (VecDeque::new(), VecDeque::new());
            for &number in &items {
                if is_signal & 1 << number == 0 {
                    queue.push_back(number);
                } else {
                    signals.append(signal(number), &slot, queue.len());
                }
                signals.place(&slot);
                if front.len() < ahead
                    && let Some(message) = queue.pop_front()
                {
                    signals.took(1);
                    front.push_back(message);
                }
            }
            for _ in 0..rng.below(6) {
                let unread = front.len() + queue.len();
                if unread == 0 {
                    break;
                }
                let place = rng.below(unread);
                let picked = if let Some(message) = front.remove(place) {
                    signals.passed_over(&slot, place, front.len());
                    message
                } else {
                    let place = place - front.len();
                    let message = queue.remove(place).expect("it is unread");
                    signals.took_at(place);
                    message
                };
                items.retain(|item| *item != picked);
            }
            let read = std::iter::from_fn(|| match signals.pop(&slot, front.len()) {
                Some(signal) => Some(number_of(&signal)),
                None => front.pop_front().or_else(|| queue.pop_front().inspect(|_| signals.took(1))),
            });
            assert_eq!(read.collect::<Vec<_>>(), items, "round {round}");
        }
    }

    /// A body that never reads its signals may receive selectively. The cost of a receive must not depend on the number
    /// of unread signals.
    #[test]
    fn a_picked_message_does_not_change_the_positions_of_many_earlier_signals() {
        let ((slot, _), mut signals) = (Slot::<u64>::new(), Signals::default());
        (0..20).for_each(|number| signals.append(signal(number), &slot, 0));
        signals.append(signal(20), &slot, 9);
        signals.place(&slot);
        signals.took_at(4);
        let positions = signals.waiting.iter().map(|(place, _)| place.number()).collect::<Vec<_>>();
        assert_eq!(positions, [vec![0; 20], vec![8]].concat());
        assert_eq!([(); 21].map(|()| signals.pop(&slot, 0).map(|signal| number_of(&signal)))[19..], [Some(19), None]);
        signals.took(8);
        assert_eq!(signals.pop(&slot, 0).map(|signal| number_of(&signal)), Some(20));
    }
}
