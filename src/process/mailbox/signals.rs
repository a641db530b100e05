//! The signals of a mailbox, and where each stands among its messages: those lie elsewhere, and are counted here.

use std::collections::VecDeque;
use std::mem;

use crate::platform::sync::planted;
use crate::process::catch::drop_caught;
use crate::process::event::Signal;
use crate::process::mailbox::read_ahead::KEEP;
use crate::process::mailbox::slot::Slot;

/// Oldest first.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// How many messages were taken out since this was made, not counting those in the slot.
    taken: i64,
    waiting: VecDeque<(SignalPosition, Signal)>,
}

/// Where a signal stands.
#[derive(Debug, Clone, Copy)]
enum SignalPosition {
    /// Behind so many that were ever put into the slot, as far as is known, and so many of the others that were ever taken or
    /// are here. A message may be on its way into the slot, or out of it, while a signal is appended; and that in the slot is
    /// read before all others. So it is for the receiver to say what this [comes to](Signals::place).
    Behind { slot: u64, others: i64 },
    /// So many will have been taken when all messages that came before it are.
    Number(i64),
}

impl SignalPosition {
    /// Of a signal that the receiver has looked at.
    fn number(self) -> i64 {
        match self {
            Self::Number(number) => number,
            Self::Behind { .. } => unreachable!("its receiver has placed it"),
        }
    }

    /// So many messages more before it.
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

    /// Puts one behind all that is there: the slot, and so many messages more.
    #[inline]
    pub(super) fn append<M>(&mut self, signal: Signal, slot: &Slot<M>, others: usize) {
        let taken = if planted!("signal_forgets_taken") { 0 } else { self.taken };
        let place = SignalPosition::Behind { slot: slot.put_so_far(), others: taken + others as i64 };
        self.waiting.push_back((place, signal));
    }

    /// Numbers those that came since the receiver was here last: before it takes anything, or gives it back.
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
                // That in the slot comes before these, whenever it came.
                unread @ 1.. if !planted!("slot_is_behind") => unread + i64::from(is_full),
                unread => unread + i64::from(slot > from_slot),
            };
            *place = SignalPosition::Number(taken + unread);
        }
    }

    /// How many messages were taken out so far, those from the slot included.
    #[inline]
    fn taken_with<M>(&self, slot: &Slot<M>) -> i64 {
        self.taken + slot.taken() as i64
    }

    /// Messages were taken, but not from the slot.
    #[inline]
    pub(super) fn took(&mut self, messages: usize) {
        self.taken += messages as i64;
    }

    /// Messages that were taken come back.
    pub(super) fn took_back(&mut self, messages: usize) {
        self.taken -= messages as i64;
    }

    /// Messages come before all that is there.
    pub(super) fn came_before(&mut self, messages: usize) {
        self.waiting.iter_mut().for_each(|(place, _)| place.shift(messages as i64));
    }

    /// A message was taken that stood behind `passed` others, of a queue with a bound.
    pub(super) fn took_at(&mut self, passed: usize) {
        self.taken += 1;
        self.keep_apart(self.taken - 1 + passed as i64);
    }

    /// A message was read that stood behind `passed` others, of those that were taken; `left` of these are there now.
    pub(super) fn passed_over<M>(&mut self, slot: &Slot<M>, passed: usize, left: usize) {
        self.keep_apart(self.taken_with(slot) - 1 - left as i64 + passed as i64);
    }

    /// The message of this number was read before some that came earlier: signals that came before it don't come nearer
    /// for that.
    fn keep_apart(&mut self, number: i64) {
        let earlier = self.waiting.iter_mut().take_while(|(place, _)| place.number() <= number);
        earlier.for_each(|(place, _)| place.shift(1));
    }

    /// The next one if no message came before it, for a receiver that has read so many less than it took.
    pub(super) fn pop<M>(&mut self, slot: &Slot<M>, unread: usize) -> Option<Signal> {
        if self.waiting.front()?.0.number() > self.taken_with(slot) - unread as i64 {
            return None;
        }
        self.waiting.pop_front().map(|(_, signal)| signal)
    }

    /// Hands all of them over, to a receiver that will have read so many messages when it comes to these.
    pub(super) fn drain<M>(&mut self, slot: &Slot<M>, to: &mut Drained, ahead: u64) {
        let taken = self.taken_with(slot);
        if to.waiting.is_empty() {
            // There may be many, and who sends the next waits for the lock meanwhile.
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

/// Signals that a receiver took over with the messages that came before them.
#[derive(Debug, Default)]
pub(super) struct Drained {
    waiting: VecDeque<(SignalPosition, Signal)>,
    /// How many messages had been taken out when these were, and how many of them this receiver will have read then.
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

/// Drops signals one by one. The destructor of an answer is the user's code and may panic. If two of them panicked in the
/// drop of the whole queue, the program would abort.
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

    /// The next one, if no message comes before it, for a receiver that has read so many.
    #[inline]
    pub(super) fn pop(&mut self, read: u64) -> Option<Signal> {
        // Messages before it that were taken by another way are no concern of this receiver's.
        let others = (self.waiting.front()?.0.number() - self.taken).max(0);
        if self.ahead + others as u64 > read {
            return None;
        }
        self.waiting.pop_front().map(|(_, signal)| signal)
    }

    /// Gives back what a burst needed, when the last of it was read.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.shrink_to(0);
        }
    }

    /// The same, if so many come next.
    fn shrink_to(&mut self, next: usize) {
        if self.waiting.capacity() > KEEP.max(4 * next) {
            self.waiting = VecDeque::new();
        }
    }
}
