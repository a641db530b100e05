//! Unread messages and signals of a hand-written process. The process has taken these messages and signals out of the
//! inbox in one lock operation, and reads them without a lock.

use std::collections::VecDeque;
use std::mem;

use crate::process::event::{Signal, Tag};
use crate::process::mailbox::read_ahead::{Claim, KEEP, ReceiverTurn};
use crate::process::mailbox::signals::{Drained, Signals};
use crate::process::mailbox::slot::Slot;
use crate::process::state::current::InTurn;

/// Messages and signals that a hand-written process has taken out of the inbox and not read yet.
#[derive(Debug)]
pub(crate) struct Taken<M> {
    pub(crate) messages: VecDeque<M>,
    pub(super) signals: Drained,
    /// Number of messages that the process has read so far.
    given: u64,
    /// Tags of the answers that the process has read. The table of commands still contains the commands with these
    /// tags.
    pub(crate) read: Vec<Tag>,
    /// The claim that identifies the process as a receiver of the mailbox. The value is `None` until the mailbox gets a
    /// second receiver.
    pub(super) claim: Option<Claim>,
}

impl<M> Default for Taken<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), signals: Drained::default(), given: 0, read: Vec::new(), claim: None }
    }
}

impl<M> Taken<M> {
    pub(crate) fn len(&self) -> usize {
        self.messages.len() + self.signals.len()
    }

    /// Returns whether the mailbox of the process has no other receiver.
    pub(crate) fn is_only_receiver(&self) -> bool {
        self.claim.as_ref().is_none_or(Claim::is_alone)
    }

    /// Returns the proof that the process may take messages without the lock. The caller is in the turn of the process.
    /// Returns `None` if the process has [handed over](crate::process::mailbox::Inbox::hand_over) its mailbox, and has
    /// not become the receiver again. If the process has taken no messages so far, `taken` is `None`.
    #[inline]
    pub(crate) fn receiver_turn(taken: Option<&Self>, turn: InTurn) -> Option<ReceiverTurn> {
        ReceiverTurn::of(taken.and_then(|taken| taken.claim.as_ref()), turn)
    }

    /// Returns the next signal, if no unread message comes before this signal.
    pub(crate) fn pop_signal(&mut self) -> Option<Signal> {
        self.signals.pop(self.given)
    }

    /// Returns the number of messages that the process has taken so far. This number includes the messages that the
    /// process has not read yet.
    pub(super) fn ahead(&self) -> u64 {
        self.given + self.messages.len() as u64
    }

    pub(crate) fn pop(&mut self) -> Option<M> {
        let message = self.messages.pop_front()?;
        self.given += 1;
        Some(message)
    }

    /// Moves all unread messages and signals to the next receiver. Returns the messages, which the next receiver reads
    /// first. The signals return to `signals`, and keep their positions among the messages.
    pub(super) fn hand_over<N>(&mut self, signals: &mut Signals, slot: &Slot<N>) -> VecDeque<M> {
        signals.place(slot);
        signals.put_back(slot, &mut self.signals, self.given, self.messages.len());
        mem::take(&mut self.messages)
    }

    /// Frees the memory of a burst if the last message of the burst was read.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.messages.capacity() > KEEP && self.messages.is_empty() {
            self.messages = VecDeque::new();
        }
        self.signals.shrink();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    /// An inbox in which each message and each signal is a number.
    #[derive(Default)]
    struct Inbox {
        messages: Vec<u64>,
        signals: Signals,
        taken: Taken<u64>,
    }

    impl Inbox {
        fn signal(&mut self, slot: &Slot<u64>, number: u64) {
            self.signals.append(Signal::Notice(Tag::chosen(number as u32)), slot, self.messages.len());
        }

        /// Takes out all messages and signals, as `Locked::drain_into` does.
        fn drain(&mut self, slot: &Slot<u64>) {
            self.signals.place(slot);
            let ahead = self.taken.ahead();
            self.signals.drain(slot, &mut self.taken.signals, ahead);
            self.signals.took(self.messages.len());
            self.taken.messages.extend(self.messages.drain(..));
        }

        /// Returns the next message or signal.
        fn next(&mut self) -> Option<u64> {
            match self.taken.pop_signal() {
                Some(Signal::Notice(tag)) => Some(tag.number & !Tag::<()>::CHOSEN),
                Some(other) => panic!("{other:?}"),
                None => self.taken.pop(),
            }
        }
    }

    #[test]
    fn signals_keep_their_positions_when_the_inbox_is_drained() {
        // Eight items with growing numbers arrive. Bit n of `which` says whether item n is a signal. After every
        // `at_once` items, the inbox is drained, and then `reads` items are read.
        for (which, (at_once, reads)) in (0..256_u64).flat_map(|which| (1..4).map(move |n| (which, (n, n - 1)))) {
            let ((slot, _), mut inbox, mut read) = (Slot::new(), Inbox::default(), Vec::new());
            for number in 0..8 {
                if which & 1 << number == 0 {
                    inbox.messages.push(number)
                } else {
                    inbox.signal(&slot, number)
                }
                if number % at_once == at_once - 1 {
                    inbox.drain(&slot);
                    read.extend((0..reads).map_while(|_| inbox.next()));
                }
            }
            inbox.drain(&slot);
            read.extend(std::iter::from_fn(|| inbox.next()));
            assert_eq!(read, (0..8).collect::<Vec<_>>(), "{which:b} {at_once} {reads}");
        }
    }

    #[test]
    fn signals_keep_their_positions_when_another_receiver_takes_over() {
        // Eight items arrive. Bit n of `which` says whether item n is a signal. After `drained` items, the inbox is
        // drained, and then `reads` items are read. After two more items, another receiver takes over.
        let cases = (0..256_u64).flat_map(|which| (0..7).map(move |drained| (which, drained)));
        for (which, drained, reads) in cases.flat_map(|(which, at)| (0..=at).map(move |reads| (which, at, reads))) {
            let ((slot, _), mut inbox, mut read) = (Slot::new(), Inbox::default(), Vec::new());
            let mut front = VecDeque::new();
            for number in 0..8 {
                if number == drained {
                    inbox.drain(&slot);
                    read.extend((0..reads).map_while(|_| inbox.next()));
                }
                if which & 1 << number == 0 {
                    inbox.messages.push(number)
                } else {
                    inbox.signal(&slot, number)
                }
                if number == drained + 1 {
                    front = inbox.taken.hand_over(&mut inbox.signals, &slot);
                    assert_eq!(inbox.taken.len(), 0);
                }
            }
            inbox.signals.place(&slot);
            let mut messages = mem::take(&mut inbox.messages).into_iter();
            read.extend(std::iter::from_fn(|| match inbox.signals.pop(&slot, front.len()) {
                Some(Signal::Notice(tag)) => Some(tag.serial()),
                Some(other) => panic!("{other:?}"),
                None => front.pop_front().or_else(|| messages.next().inspect(|_| inbox.signals.took(1))),
            }));
            assert_eq!(read, (0..8).collect::<Vec<_>>(), "{which:b} {drained} {reads}");
        }
    }

    #[test]
    fn the_memory_of_a_burst_of_signals_is_freed() {
        let ((slot, _), mut inbox) = (Slot::new(), Inbox::default());
        for round in 0..3 {
            (0..40 * KEEP as u64).for_each(|number| inbox.signal(&slot, number));
            inbox.drain(&slot);
            assert_eq!(std::iter::from_fn(|| inbox.next()).count(), 40 * KEEP);
            // After the first round, one more signal follows the burst.
            if round != 0 {
                inbox.signal(&slot, 0);
                inbox.drain(&slot);
                assert_eq!(inbox.next(), Some(0));
            }
            inbox.taken.shrink();
            assert!(inbox.taken.signals.capacity() + inbox.signals.capacity() <= 2 * KEEP, "{round}");
        }
    }
}
