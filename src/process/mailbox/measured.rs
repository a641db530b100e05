//! Measurement of the time that a message spends in a mailbox.
//!
//! A mailbox measures at most one message at a time. In an unbounded mailbox, a message can be measured if the mailbox
//! is empty when the message arrives. A message that arrives at an empty mailbox is the oldest message until the
//! receiver takes out this message. If another operation inserts a message before this message, the measurement ends
//! without a result. Therefore, no operation has to track the position of the measured message, and most operations
//! need not check for a measured message. The measured times are still typical of all messages. A receiver takes out
//! all messages together, and then reads them in order. So the time from the arrival of a message until the receiver
//! reads the message is about equal for a measured message and for any other message.
//!
//! In a bounded mailbox, any message can be measured. The mailbox stores the number of the measured message.
//!
//! A message in the slot is not measured, because a receiver can read the slot without the lock. Therefore a measured
//! message is stored in the buffer.

use std::fmt;

/// The clock of a mailbox.
pub(crate) trait MessageClock {
    /// Returns a recent reading of the clock, in ns. The result is not 0.
    fn recent(&self) -> u64;

    /// Counts a message that can be measured. Returns whether the caller must call [`timer`](Self::timer).
    fn may_measure(&self) -> bool;

    /// Returns a timer if the message that arrives now must be measured.
    fn timer(&self) -> Option<MessageTimer>;
}

/// Records the time of one message when the receiver takes the message out. The closure may be called while the lock of
/// the mailbox is held.
pub(crate) struct MessageTimer(Box<dyn FnOnce() + Send>);

impl MessageTimer {
    pub(crate) fn new(record: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(record))
    }

    /// Records the time.
    #[cold]
    pub(super) fn record(self) {
        (self.0)();
    }
}

impl fmt::Debug for MessageTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageTimer")
    }
}

/// The times of the messages in one queue.
#[derive(Debug, Default)]
pub(super) struct MessageTimes {
    /// Timer of the oldest message, if the oldest message is measured.
    timer: Option<MessageTimer>,
    /// Time, in ns, of the first arrival of a message at the queue after the most recent removal of a message. The
    /// value is 0 if this time is not known.
    unread_since: u64,
}

impl MessageTimes {
    /// Returns the time, in ns, of the first arrival of a message at the queue after the most recent removal of a
    /// message. Since this time, the queue has not been empty, and the receiver has taken out no message. Returns
    /// `None` if this time is not known.
    pub(super) fn unread_since(&self) -> Option<u64> {
        (self.unread_since != 0).then_some(self.unread_since)
    }

    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.timer.is_some()
    }

    /// Records that a message is about to be appended to the queue.
    #[inline]
    pub(super) fn appended(&mut self, clock: &impl MessageClock) {
        if self.unread_since == 0 {
            self.unread_since = clock.recent();
        }
    }

    /// Measures the message that is about to be appended to the empty queue.
    pub(super) fn measure(&mut self, timer: MessageTimer) {
        self.timer = Some(timer);
    }

    /// Records that the receiver has taken out the oldest message or all messages.
    #[inline]
    pub(super) fn taken(&mut self) {
        self.unread_since = 0;
        if let Some(timer) = self.timer.take() {
            timer.record();
        }
    }

    /// Forgets the times. Another message has become the oldest message, but the receiver has not taken out the
    /// previous oldest message.
    pub(super) fn reordered(&mut self) {
        *self = Self::default();
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use super::*;
    use crate::platform::random::Rng;
    use crate::platform::sync::{Arc, Mutex};
    use crate::process::mailbox::wakes::PendingSchedule;
    use crate::process::mailbox::{Inbox, MailboxCapacity, Own, ReadAhead, Reader, ReceiverTurn, Taken, Unsent};

    /// A process that is never woken, with a clock that measures some messages.
    struct Receiver {
        rng: RefCell<Rng>,
        now: Cell<u64>,
        /// Messages whose time was recorded.
        recorded: Arc<Mutex<Vec<u64>>>,
    }

    impl Own for Receiver {
        fn owns(&self, _: *const ()) -> bool {
            true
        }

        fn wake(&self) -> Option<PendingSchedule> {
            None
        }

        fn deliver(&self) -> Option<PendingSchedule> {
            None
        }

        fn recall(&self) -> bool {
            true
        }
    }

    impl MessageClock for Receiver {
        fn recent(&self) -> u64 {
            self.now.get()
        }

        fn may_measure(&self) -> bool {
            self.rng.borrow_mut().below(2) == 0
        }

        fn timer(&self) -> Option<MessageTimer> {
            let (now, recorded) = (self.now.get(), Arc::clone(&self.recorded));
            (self.rng.borrow_mut().below(4) != 0).then(|| MessageTimer::new(move || recorded.lock().push(now)))
        }
    }

    /// The receiver in this test: an async body or a hand-written process.
    enum Side {
        Body(ReadAhead<u64>),
        Raw(Option<Box<Taken<u64>>>),
    }

    impl Side {
        /// Returns whether the next message was already taken out of the mailbox.
        fn is_ahead(&mut self) -> bool {
            match self {
                Self::Body(front) => !front.is_empty(),
                Self::Raw(taken) => taken.as_deref().is_some_and(|taken| !taken.messages.is_empty()),
            }
        }

        fn next(&mut self, inbox: &Inbox<u64>, own: &Receiver) -> Option<u64> {
            let receiver_turn = ReceiverTurn::in_test();
            match self {
                Self::Body(front) => {
                    let reader = Reader::Task { receiver_turn, may_open_slot: true };
                    front.pop().or_else(|| inbox.receive_or_wait(own, front, reader).0)
                }
                Self::Raw(taken) => match taken.as_deref_mut().and_then(Taken::pop) {
                    Some(message) => Some(message),
                    None => {
                        let message = inbox.drain_or_pop(own, receiver_turn, taken).0;
                        message.or_else(|| taken.as_deref_mut()?.pop())
                    }
                },
            }
        }
    }

    fn check(side: &mut Side, bound: MailboxCapacity, seed: u64) -> usize {
        let own = Receiver { rng: RefCell::new(Rng::seeded(seed)), now: Cell::new(0), recorded: Arc::default() };
        let (inbox, mut rng, mut unread, mut times) = (Inbox::new(bound, None), Rng::seeded(!seed), VecDeque::new(), 0);
        // Time of the last operation that took a message out of the mailbox.
        let mut last_taken = 0;
        for now in 1..=100 {
            own.now.set(now);
            if rng.below(2) == 0 {
                match inbox.push(&own, now, || {}) {
                    Ok(_) => unread.push_back(now),
                    Err(Unsent::Dropped(oldest, _)) => {
                        unread.retain(|one| *one != oldest);
                        unread.push_back(now);
                    }
                    Err(_) => {}
                }
                assert!(own.recorded.lock().is_empty(), "the receiver has taken out nothing");
            } else {
                let is_ahead = side.is_ahead();
                let message = side.next(&inbox, &own);
                assert_eq!(message, unread.pop_front());
                let recorded = std::mem::take(&mut *own.recorded.lock());
                // In a bounded mailbox, the measured message need not be the oldest message. A process may take out all
                // messages together.
                let first = message.into_iter().chain(unread.iter().copied());
                let mut candidates = first.take(if bound == MailboxCapacity::Unbounded { 1 } else { usize::MAX });
                assert!(recorded.len() <= usize::from(!is_ahead));
                assert!(recorded.iter().all(|one| candidates.any(|candidate| candidate == *one)));
                let is_single = matches!(side, Side::Body(_)) || bound == MailboxCapacity::Unbounded;
                assert!(!is_single || recorded.iter().all(|one| Some(*one) == message));
                times += recorded.len();
                if !is_ahead {
                    last_taken = now;
                }
            }
            let figures = inbox.figures();
            if let Some(since) = figures.unread_since.filter(|_| figures.messages != 0) {
                let in_mailbox = unread.len() - figures.messages;
                assert!(unread[in_mailbox] <= since && last_taken <= since && since <= now);
            }
            assert!(figures.messages != 0 || figures.unread_since.is_none(), "{figures:?}");
            assert!(figures.messages < 2 || figures.unread_since.is_some() || last_taken > 0, "{figures:?}");
        }
        times
    }

    #[test]
    fn the_time_of_a_message_is_recorded_when_the_message_is_taken_out() {
        let bounds = [MailboxCapacity::Unbounded, MailboxCapacity::Reject(4), MailboxCapacity::DropOldest(4)];
        for bound in bounds {
            let mut times = [0, 0];
            for seed in 0..200 {
                times[0] += check(&mut Side::Body(ReadAhead::default()), bound, seed);
                times[1] += check(&mut Side::Raw(None), bound, seed);
            }
            assert!(times.iter().all(|times| *times > 500), "{times:?}");
        }
    }
}
