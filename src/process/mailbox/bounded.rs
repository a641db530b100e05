//! The queue of a mailbox that takes so many messages and no more, and the senders that wait for room in it.
//!
//! A sender that waits leaves its message here. Whoever makes room moves the oldest of those into the queue at once, under
//! the same lock, and wakes its sender to say so: while one waits there is no room, nobody overtakes it by waiting, and
//! there is no wake to be passed on. One that gives up takes its message back, if it is still here.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::task::Waker;

use crate::platform::sync::planted;

/// Number of the first message of a queue. Some may be put before it later.
const FIRST: u64 = 1 << 32;

/// How full a mailbox may get, and who loses then: see [`ProcessBuilder::mailbox`](crate::ProcessBuilder::mailbox).
///
/// What counts is what waits there unread; what [`receive_where`](crate::Mailbox::receive_where) passed over does, what a
/// hand-written process has taken over at the beginning of a step does not. Only messages count: completions and other
/// events are never refused and never dropped. 0 means 1.
///
/// To wait for room is the sender's choice ([`Address::send_wait`](crate::Address::send_wait)), whatever the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bound {
    /// As many as come.
    #[default]
    Unbounded,
    /// A send to a full mailbox is refused: [`Refusal::Full`](crate::Refusal::Full), with the message.
    Reject(usize),
    /// A send to a full mailbox drops the oldest message there: it goes to
    /// [dead letters](crate::Host::dead_letters), and is counted in
    /// [`dropped_by_policy`](crate::Counters::dropped_by_policy).
    DropOldest(usize),
    /// A send to a full mailbox succeeds, and its message is dropped, as above.
    DropNewest(usize),
}

impl Bound {
    /// The policy and the number, where the receiver may have no more than `limit` in any case.
    #[inline]
    pub(crate) fn within(self, limit: Option<usize>) -> Option<(Policy, usize)> {
        let bound = match self {
            Self::Unbounded => None,
            Self::Reject(most) => Some((Policy::Reject, most.max(1))),
            Self::DropOldest(most) => Some((Policy::DropOldest, most.max(1))),
            Self::DropNewest(most) => Some((Policy::DropNewest, most.max(1))),
        };
        match (bound, limit) {
            (Some((_, most)), Some(limit)) if limit < most => Some((Policy::Reject, limit)),
            (None, Some(limit)) => Some((Policy::Reject, limit)),
            (bound, _) => bound,
        }
    }
}

/// What happens to a message that there is no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Reject,
    DropOldest,
    DropNewest,
}

/// What became of a message that was pushed.
#[derive(Debug)]
pub(super) enum Pushed<M> {
    Stored,
    Rejected(M),
    /// It was dropped itself.
    Newest(M),
    /// It was stored, and this one dropped; nothing if the receiver is looking at that one.
    Oldest(Option<M>),
}

/// A sender that waits for room.
#[derive(Debug)]
struct Sender<M> {
    message: M,
    /// None once it was told that the receiver is gone.
    waker: Option<Waker>,
}

/// The messages that nobody has read.
///
/// They are numbered in the order in which they came, for a receiver that looks at one after the other without the lock;
/// what it is looking at leaves a hole, which counts.
#[derive(Debug)]
pub(super) struct Bounded<M> {
    queue: VecDeque<Option<M>>,
    /// The number of the oldest.
    first: u64,
    most: usize,
    policy: Policy,
    /// The most that there ever were.
    high: usize,
    /// By number, which is the order in which they came. While there are some the queue is full.
    senders: BTreeMap<u64, Sender<M>>,
    next_sender: u64,
    /// Whom room that was made is news to.
    relieved: Option<RoomWaiter>,
    /// Who looks for room, without a message that waits here.
    watcher: Option<Waker>,
    /// The receiver has taken a message, and was not back for another one.
    busy: bool,
}

/// Whom room in a mailbox is news to.
#[derive(Debug)]
pub(crate) enum RoomWaiter {
    /// A sender: its message was let in.
    Sender(Waker),
    /// One that may try again.
    Watcher(Waker),
}

impl<M> Bounded<M> {
    pub(super) fn new(policy: Policy, most: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            first: FIRST,
            most,
            policy,
            high: 0,
            senders: BTreeMap::new(),
            next_sender: 0,
            relieved: None,
            watcher: None,
            busy: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn high(&self) -> usize {
        self.high
    }

    fn has_room(&self) -> bool {
        self.queue.len() < self.most
    }

    /// Whether a push would be refused.
    pub(super) fn rejects(&self) -> bool {
        self.policy == Policy::Reject && !self.has_room()
    }

    fn store(&mut self, message: M) {
        self.queue.push_back(Some(message));
        self.high = self.high.max(self.queue.len());
    }

    pub(super) fn push(&mut self, message: M) -> Pushed<M> {
        if self.has_room() {
            self.store(message);
            return Pushed::Stored;
        }
        match self.policy {
            Policy::Reject => Pushed::Rejected(message),
            Policy::DropNewest => Pushed::Newest(message),
            Policy::DropOldest => {
                let oldest = self.queue.pop_front().flatten();
                self.first += 1;
                self.store(message);
                Pushed::Oldest(oldest)
            }
        }
    }

    /// Stores the message, or leaves it with a waker until there is room: then Some, a number to ask by.
    ///
    /// # Errors
    /// The message, when there is no room and no waker, or never will be.
    pub(super) fn push_or_wait(&mut self, message: M, waker: &mut Option<Waker>) -> Result<Option<u64>, M> {
        if self.has_room() {
            self.store(message);
            return Ok(None);
        }
        if self.most == 0 || waker.is_none() {
            return Err(message);
        }
        let number = self.next_sender;
        self.next_sender += 1;
        self.senders.insert(number, Sender { message, waker: waker.take() });
        Ok(Some(number))
    }

    /// Whether a sender still waits: then by this waker from now on, and the former one comes back in its place.
    pub(super) fn still_waits(&mut self, number: u64, waker: &mut Option<Waker>) -> bool {
        match self.senders.get_mut(&number) {
            Some(sender) => {
                mem::swap(&mut sender.waker, waker);
                true
            }
            None => false,
        }
    }

    /// The message of a sender that waits no longer, if it was not admitted.
    pub(super) fn give_up(&mut self, number: u64) -> Option<(M, Option<Waker>)> {
        self.senders.remove(&number).map(|sender| (sender.message, sender.waker))
    }

    /// Who looks for room will find the inbox closed.
    pub(super) fn forget_watcher(&mut self) -> Option<Waker> {
        self.watcher.take()
    }

    /// Those that wait, to be told that the receiver is gone. Their messages stay for them.
    pub(super) fn strand(&mut self) -> Vec<Waker> {
        if planted!("bounded_strands_nobody") {
            return Vec::new();
        }
        self.senders.values_mut().filter_map(|sender| sender.waker.take()).collect()
    }

    /// Lets the sender in that has waited longest, if there is room.
    fn admit(&mut self) -> Option<Waker> {
        if !self.has_room() {
            return None;
        }
        let (_, Sender { message, waker }) = self.senders.pop_first()?;
        self.store(message);
        waker
    }

    /// Who is to be told of the room that the last [`pop`](Self::pop) or [`settle`](Self::settle) made.
    pub(super) fn take_relieved(&mut self) -> Option<RoomWaiter> {
        self.relieved.take()
    }

    fn relieve(&mut self) {
        self.busy = true;
        self.relieved = self.admit().map(RoomWaiter::Sender).or_else(|| self.watcher.take().map(RoomWaiter::Watcher));
    }

    pub(super) fn pop(&mut self) -> Option<M> {
        self.busy = false;
        let message = self.queue.pop_front()?;
        self.first += 1;
        if !planted!("bounded_pop_admits_nobody") {
            self.relieve();
        }
        message
    }

    /// How many messages wait, and whether the receiver has one in hand.
    pub(super) fn load(&self) -> usize {
        self.queue.len() + usize::from(self.busy)
    }

    /// How many messages were taken, in all.
    pub(super) fn taken(&self) -> u64 {
        self.first
    }

    /// Has whoever makes room next tell this waker; the former one comes back in its place.
    pub(super) fn watch(&mut self, waker: &mut Option<Waker>) {
        mem::swap(&mut self.watcher, waker);
    }

    /// Puts messages before all others, whether there is room for them or not.
    pub(super) fn put_first(&mut self, messages: Vec<M>) {
        self.first -= messages.len() as u64;
        for message in messages.into_iter().rev() {
            self.queue.push_front(Some(message));
        }
        self.high = self.high.max(self.queue.len());
    }

    /// Moves all messages out, and lets in as many senders as there is room for then.
    pub(super) fn drain_into(&mut self, queue: &mut VecDeque<M>) -> Vec<Waker> {
        self.first += self.queue.len() as u64;
        queue.extend(self.queue.drain(..).flatten());
        std::iter::from_fn(|| self.admit()).collect()
    }

    /// All messages of a queue that is closed.
    pub(super) fn take_all(&mut self) -> Vec<M> {
        self.first += self.queue.len() as u64;
        mem::take(&mut self.queue).into_iter().flatten().collect()
    }

    /// Takes out the message of this number, or the oldest if that is gone, to be looked at: it leaves a hole, to be
    /// [settled](Self::settle) or filled again. `number` becomes its own.
    pub(super) fn look(&mut self, number: &mut u64) -> Option<M> {
        *number = (*number).max(self.first);
        let place = usize::try_from(*number - self.first).ok()?;
        let message = self.queue.get_mut(place).and_then(Option::take);
        self.busy &= message.is_some();
        message
    }

    fn hole(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get(place).is_some_and(Option::is_none).then_some(place)
    }

    /// Puts a message back into its hole.
    ///
    /// # Errors
    /// The message, when the hole was dropped meanwhile as the oldest.
    pub(super) fn fill(&mut self, number: u64, message: M) -> Result<(), M> {
        match self.hole(number) {
            Some(place) => {
                self.queue[place] = Some(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    /// Removes the hole of a message that was taken. Its place, if it was not dropped as the oldest before.
    pub(super) fn settle(&mut self, number: u64) -> Option<usize> {
        let place = self.hole(number)?;
        self.queue.remove(place);
        self.relieve();
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_of_bound_and_limit_holds() {
        use Policy::{DropNewest, DropOldest, Reject};
        let table = [
            (Bound::Unbounded, None, None),
            (Bound::Unbounded, Some(3), Some((Reject, 3))),
            (Bound::Reject(0), None, Some((Reject, 1))),
            (Bound::Reject(5), Some(0), Some((Reject, 0))),
            (Bound::DropOldest(0), Some(1), Some((DropOldest, 1))),
            (Bound::DropOldest(2), Some(2), Some((DropOldest, 2))),
            (Bound::DropNewest(9), Some(2), Some((Reject, 2))),
            (Bound::DropNewest(usize::MAX), None, Some((DropNewest, usize::MAX))),
        ];
        for (bound, limit, within) in table {
            assert_eq!(bound.within(limit), within, "{bound:?} {limit:?}");
        }
    }

    #[test]
    fn a_hole_counts_and_may_be_dropped() {
        let mut queue = Bounded::new(Policy::DropOldest, 2);
        for message in 0..2 {
            assert!(matches!(queue.push(message), Pushed::Stored));
        }
        let mut number = 0;
        assert_eq!(queue.look(&mut number), Some(0));
        assert!(matches!(queue.push(2), Pushed::Oldest(None)));
        assert_eq!((queue.fill(number, 0), queue.settle(number), queue.len()), (Err(0), None, 2));
        assert_eq!((queue.look(&mut number), number), (Some(1), FIRST + 1));
        queue.fill(number, 1).expect("it is there");
        number += 1;
        assert_eq!((queue.look(&mut number), queue.settle(number)), (Some(2), Some(1)));
        assert_eq!((queue.pop(), queue.pop(), queue.high()), (Some(1), None, 2));
    }

    #[test]
    fn senders_are_let_in_as_they_came() {
        let mut queue = Bounded::new(Policy::DropNewest, 1);
        let waker = || Some(Waker::noop().clone());
        let mut waits = |message| queue.push_or_wait(message, &mut waker());
        assert_eq!([waits(0), waits(1), waits(2), waits(3)], [Ok(None), Ok(Some(0)), Ok(Some(1)), Ok(Some(2))]);
        assert_eq!(queue.push_or_wait(4, &mut None), Err(4));
        assert_eq!(queue.give_up(1).map(|(message, _)| message), Some(2));
        assert_eq!((queue.pop(), queue.take_relieved().is_some()), (Some(0), true));
        assert!(!queue.still_waits(0, &mut None) && queue.still_waits(2, &mut waker()));
        let mut all = VecDeque::new();
        assert_eq!((queue.drain_into(&mut all).len(), all, queue.pop(), queue.pop()), (1, [1].into(), Some(3), None));
        assert_eq!(Bounded::new(Policy::Reject, 0).push_or_wait(1, &mut waker()), Err(1));
    }
}
