//! Queue of a bounded mailbox, and the list of the senders that wait for *room*, namely free space in the queue.
//!
//! A waiting sender stores its message in the list of waiting senders. A receiver that makes room *admits* the oldest
//! message of the list: the receiver moves this message into the queue in the same lock operation. Therefore, the
//! queue is full while a sender waits. After the unlock, the receiver wakes the sender of the admitted message.
//! Senders are admitted in the order in which they began to wait. The receiver itself wakes every admitted sender, so
//! a woken sender never has to wake another sender. A sender that stops waiting takes its message back, unless the
//! message was admitted.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::task::Waker;

use slab::Slab;

use crate::platform::sync::planted;
use crate::process::mailbox::measured::{MessageClock, MessageTimer, MessageTimes};
use crate::process::mailbox::read_ahead::{KEEP, free_burst};

/// Number of the first message of a queue. The numbers below `FIRST` are reserved for messages that are later inserted
/// before the first message.
const FIRST: u64 = 1 << 32;

/// Capacity of a mailbox, and the policy for a message that arrives at a full mailbox: see
/// [`ProcessBuilder::mailbox_capacity`](crate::ProcessBuilder::mailbox_capacity).
///
/// The capacity limits the number of unread messages in the mailbox. If
/// [`receive_where`](crate::Mailbox::receive_where) skips a message, this message counts as unread. A message that a
/// hand-written process has taken out of the mailbox for a step is not counted. Completions and other events are not
/// counted, and are never refused or dropped. [Urgent messages](crate::Address::send_urgent) are counted separately,
/// with the same limit. A capacity of 0 is treated as 1. In contrast, a
/// [`Limits::mailbox_capacity`](crate::Limits::mailbox_capacity) of 0 refuses every message.
///
/// With every policy, a sender can wait for free space in the mailbox with
/// [`Address::send_wait`](crate::Address::send_wait).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MailboxCapacity {
    /// The mailbox has no capacity limit and accepts every message. `Unbounded` is the default.
    #[default]
    Unbounded,
    /// A send to a full mailbox fails with [`SendErrorKind::Full`](crate::SendErrorKind::Full) and returns the message.
    Reject(usize),
    /// A send to a full mailbox succeeds, and the mailbox drops its oldest message. The dropped message becomes a [dead
    /// letter](crate::Host::dead_letters). The counter
    /// [`dropped_by_policy`](crate::observe::Counters::dropped_by_policy) counts the dropped message.
    DropOldest(usize),
    /// A send to a full mailbox succeeds, but the mailbox drops the message that was sent. As with
    /// [`DropOldest`](Self::DropOldest), the dropped message becomes a dead letter, and the counter `dropped_by_policy`
    /// counts the dropped message.
    DropNewest(usize),
}

impl MailboxCapacity {
    /// Returns the policy and the capacity. If the capacity is larger than `limit`, returns `limit` instead of the
    /// capacity. With a `limit`, an unbounded mailbox gets the policy `Reject`. With the `limit` 0, each mailbox gets
    /// the policy `Reject`. If there is neither a capacity nor a `limit`, returns `None`.
    #[inline]
    pub(crate) fn within(self, limit: Option<usize>) -> Option<(OverflowPolicy, usize)> {
        let bound = match self {
            Self::Unbounded => None,
            Self::Reject(most) => Some((OverflowPolicy::Reject, most.max(1))),
            Self::DropOldest(most) => Some((OverflowPolicy::DropOldest, most.max(1))),
            Self::DropNewest(most) => Some((OverflowPolicy::DropNewest, most.max(1))),
        };
        match (bound, limit) {
            (Some((policy, most)), Some(limit)) if (1..most).contains(&limit) => Some((policy, limit)),
            (None, Some(limit)) | (Some(_), Some(limit @ 0)) => Some((OverflowPolicy::Reject, limit)),
            (bound, _) => bound,
        }
    }
}

/// Policy for a message that arrives at a full mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverflowPolicy {
    Reject,
    DropOldest,
    DropNewest,
}

/// Result of a push.
#[derive(Debug)]
pub(super) enum Pushed<M> {
    Stored,
    Rejected(M),
    /// The policy dropped the pushed message.
    Newest(M),
    /// The queue stored the pushed message, and the policy dropped the oldest message. The value is `None` if the
    /// receiver had already taken out the oldest message for inspection.
    Oldest(Option<M>),
}

/// The senders that wait for room, without their messages. This type does not depend on the type of the messages.
/// Therefore the map of the waiting senders is compiled once, and not once for each type of message.
#[derive(Debug, Default)]
struct Senders {
    /// The waiting senders, keyed by number. The order of the numbers is the order in which the senders began to wait.
    waiting: BTreeMap<u64, Sender>,
    next: u64,
}

/// A sender that waits for room.
#[derive(Debug)]
struct Sender {
    /// Index of the message in [`Bounded::waiting_messages`].
    message: usize,
    /// Waker of the sender. The value is `None` if the sender was already woken because the receiver has exited.
    waker: Option<Waker>,
}

impl Senders {
    /// Adds a sender, and returns its number.
    fn add(&mut self, message: usize, waker: Option<Waker>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, Sender { message, waker });
        number
    }

    /// Returns the waker of the sender with this number. Returns `None` if this sender does not wait.
    fn waker(&mut self, number: u64) -> Option<&mut Option<Waker>> {
        self.waiting.get_mut(&number).map(|sender| &mut sender.waker)
    }

    fn remove(&mut self, number: u64) -> Option<Sender> {
        self.waiting.remove(&number)
    }

    /// Removes the sender that has waited longest.
    fn pop_first(&mut self) -> Option<Sender> {
        self.waiting.pop_first().map(|(_, sender)| sender)
    }

    /// Takes the wakers of all senders. The senders stay in the list.
    fn take_wakers(&mut self) -> Vec<Waker> {
        self.waiting.values_mut().filter_map(|sender| sender.waker.take()).collect()
    }

    /// Calls `f` with the index of the message of each sender.
    fn for_each_message(&mut self, f: &mut dyn FnMut(&mut usize)) {
        self.waiting.values_mut().for_each(|sender| f(&mut sender.message));
    }

    fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// The unread messages, numbered in queue order.
///
/// With these numbers, a receiver can inspect one message after another without holding the lock. While the receiver
/// inspects a message, the place of this message in the queue is empty. The empty place counts as a message.
#[derive(Debug)]
pub(super) struct Bounded<M> {
    queue: VecDeque<Option<M>>,
    /// Number of the oldest message.
    first: u64,
    /// Number of messages that the receiver has taken while an older message was in the queue.
    taken_behind: u64,
    most: usize,
    policy: OverflowPolicy,
    /// Largest length that the queue has had, or that [`record`](Self::record) has recorded.
    high: usize,
    /// The waiting senders. While a sender waits and the mailbox is not closed, the queue is full.
    senders: Senders,
    /// The messages of the waiting senders.
    waiting_messages: Slab<M>,
    /// Task that has waited for room in the mailbox. The most recent `pop` or `settle` has made room, so the caller
    /// must wake this task.
    room_waiter: Option<RoomWaiter>,
    /// Waker of a task that waits for room and has stored no message in this mailbox.
    watcher: Option<Waker>,
    /// True after the receiver has taken a message, until the receiver requests the next message.
    busy: bool,
    times: MessageTimes,
    /// Number and timer of the measured message.
    measured: Option<(u64, MessageTimer)>,
}

/// A task that waited for room in a mailbox and must now be woken.
#[derive(Debug)]
pub(crate) enum RoomWaiter {
    /// Waker of a sender. The mailbox has stored the message of this sender.
    Sender(Waker),
    /// Waker of a task that waited for room. This task can now try to send again.
    Watcher(Waker),
}

impl<M> Bounded<M> {
    pub(super) fn new(policy: OverflowPolicy, most: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            first: FIRST,
            taken_behind: 0,
            most,
            policy,
            high: 0,
            senders: Senders::default(),
            waiting_messages: Slab::new(),
            room_waiter: None,
            watcher: None,
            busy: false,
            times: MessageTimes::default(),
            measured: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the memory of the queue, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Option<M>>()
    }

    pub(super) fn high(&self) -> usize {
        self.high
    }

    /// Returns two values. The first value is the capacity, or `None` if the queue is not full. The second value is the
    /// number of waiting senders. A queue with the capacity 0 is never reported as full, because its receiver cannot
    /// make room.
    pub(super) fn fullness(&self) -> (Option<usize>, usize) {
        ((self.most != 0 && !self.has_room()).then_some(self.most), self.senders.len())
    }

    fn has_room(&self) -> bool {
        self.queue.len() < self.most
    }

    /// Returns whether [`push`](Self::push) would reject a message now.
    pub(super) fn rejects(&self) -> bool {
        self.policy == OverflowPolicy::Reject && !self.has_room()
    }

    fn store(&mut self, message: M) {
        self.queue.push_back(Some(message));
        self.high = self.high.max(self.queue.len());
    }

    /// Stores a message in the queue. The sender of this message has not waited for room. The message is measured if no
    /// other message is measured and the clock selects this message. The message need not be the oldest message,
    /// because the queue knows the number of each message.
    fn store_timed(&mut self, message: M, clock: &impl MessageClock) {
        if self.measured.is_none()
            && clock.may_measure()
            && let Some(timer) = clock.timer()
        {
            self.measured = Some((self.first + self.queue.len() as u64, timer));
        }
        self.times.appended(clock);
        self.store(message);
    }

    /// Records that the receiver has taken out all messages with lower numbers than `first`.
    fn took(&mut self) {
        self.times.taken();
        let measured = self.measured.take_if(|(number, _)| *number < self.first);
        measured.into_iter().for_each(|(_, timer)| timer.record());
    }

    /// Returns the time, in ns, of the first arrival of a message at the queue after the most recent removal of a
    /// message: see [`MessageTimes::unread_since`].
    pub(super) fn unread_since(&self) -> Option<u64> {
        self.times.unread_since()
    }

    pub(super) fn push(&mut self, message: M, clock: &impl MessageClock) -> Pushed<M> {
        if self.has_room() {
            self.store_timed(message, clock);
            return Pushed::Stored;
        }
        match self.policy {
            OverflowPolicy::Reject => Pushed::Rejected(message),
            OverflowPolicy::DropNewest => Pushed::Newest(message),
            OverflowPolicy::DropOldest => {
                let oldest = self.queue.pop_front().flatten();
                self.first += 1;
                self.times.reordered();
                self.measured.take_if(|(number, _)| *number < self.first);
                self.store_timed(message, clock);
                Pushed::Oldest(oldest)
            }
        }
    }

    /// Stores the message. If there is no room, stores the message and the waker in the list of waiting senders, and
    /// returns the number of the waiting sender.
    ///
    /// # Errors
    /// Returns the message if there is no room and the message cannot wait. A message cannot wait if there is no waker
    /// or if the capacity is 0.
    pub(super) fn push_or_wait(
        &mut self,
        message: M,
        waker: &mut Option<Waker>,
        clock: &impl MessageClock,
    ) -> Result<Option<u64>, M> {
        if self.has_room() {
            self.store_timed(message, clock);
            return Ok(None);
        }
        if self.most == 0 || waker.is_none() {
            return Err(message);
        }
        Ok(Some(self.senders.add(self.waiting_messages.insert(message), waker.take())))
    }

    /// Returns whether the sender with this number still waits. If the sender still waits, this function swaps the
    /// stored waker of the sender with `waker`. Then `waker` contains the previous waker of the sender.
    pub(super) fn still_waits(&mut self, number: u64, waker: &mut Option<Waker>) -> bool {
        match self.senders.waker(number) {
            Some(stored) => {
                mem::swap(stored, waker);
                true
            }
            None => false,
        }
    }

    /// Removes a sender from the list of waiting senders. If the sender was still in the list, its message was not
    /// admitted. In this case, returns the message and the sender's waker.
    pub(super) fn give_up(&mut self, number: u64) -> Option<(M, Option<Waker>)> {
        let Sender { message, waker } = self.senders.remove(number)?;
        Some((self.take_waiting(message), waker))
    }

    /// Takes the message of a sender that was removed from the list of waiting senders.
    fn take_waiting(&mut self, message: usize) -> M {
        let message = self.waiting_messages.remove(message);
        // A slab keeps the memory of its removed messages.
        if self.waiting_messages.capacity() > KEEP && self.waiting_messages.len() < self.waiting_messages.capacity() / 4
        {
            self.shrink_waiting();
        }
        message
    }

    /// Frees the memory that the removed messages of a burst of waiting senders have left.
    #[cold]
    fn shrink_waiting(&mut self) {
        let mut fewer = Slab::with_capacity(self.waiting_messages.len());
        let waiting = &mut self.waiting_messages;
        self.senders.for_each_message(&mut |message| *message = fewer.insert(waiting.remove(*message)));
        self.waiting_messages = fewer;
    }

    /// Takes the waker of the task that waits for room. This function is called after the inbox was closed. The caller
    /// drops the waker without a call of `wake`, because the next send of that task finds that the inbox is closed.
    pub(super) fn take_watcher(&mut self) -> Option<Waker> {
        self.watcher.take()
    }

    /// Takes the wakers of the waiting senders. The caller wakes the senders to notify them that the receiver has
    /// exited. The messages of the senders stay in the list until the senders take their messages back.
    pub(super) fn take_sender_wakers(&mut self) -> Vec<Waker> {
        if planted!("bounded_close_does_not_wake") {
            return Vec::new();
        }
        self.senders.take_wakers()
    }

    /// If there is room, admits the sender that has waited longest. Returns the waker of this sender.
    fn admit(&mut self) -> Option<Waker> {
        if !self.has_room() {
            return None;
        }
        let Sender { message, waker } = self.senders.pop_first()?;
        let message = self.take_waiting(message);
        self.store(message);
        waker
    }

    /// Takes the task that has waited for room in the mailbox. The most recent [`pop`](Self::pop) or
    /// [`settle`](Self::settle) has made room, so the caller must wake this task.
    pub(super) fn take_room_waiter(&mut self) -> Option<RoomWaiter> {
        self.room_waiter.take()
    }

    fn admit_next(&mut self) {
        self.busy = true;
        self.room_waiter = self.admit().map(RoomWaiter::Sender).or_else(|| self.watcher_of_room());
    }

    /// If there is room, takes the waker of the task that waits for room.
    fn watcher_of_room(&mut self) -> Option<RoomWaiter> {
        if self.has_room() { self.watcher.take().map(RoomWaiter::Watcher) } else { None }
    }

    pub(super) fn pop(&mut self) -> Option<M> {
        self.busy = false;
        let message = self.queue.pop_front()?;
        self.first += 1;
        self.took();
        free_burst(&mut self.queue);
        if !planted!("bounded_pop_admits_no_sender") {
            self.admit_next();
        }
        message
    }

    /// Returns the number of queued messages, plus one while the receiver handles a message.
    pub(super) fn load(&self) -> usize {
        self.queue.len() + usize::from(self.busy)
    }

    /// Returns a number that changes when the receiver takes out messages, and when the policy drops the oldest
    /// message.
    pub(super) fn taken(&self) -> u64 {
        self.first.wrapping_add(self.taken_behind)
    }

    /// Records the length of the mailbox. `len` includes the urgent messages.
    pub(super) fn record(&mut self, len: usize) {
        self.high = self.high.max(len);
    }

    /// Returns the capacity.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Registers the waker of a task that waits for room. When this function returns, `waker` contains the previously
    /// registered waker.
    pub(super) fn watch(&mut self, waker: &mut Option<Waker>) {
        mem::swap(&mut self.watcher, waker);
    }

    /// Inserts messages before all queued messages, even if the mailbox then exceeds its capacity.
    pub(super) fn put_first(&mut self, mut messages: Vec<M>) {
        self.first -= messages.len() as u64;
        self.times.reordered();
        while let Some(message) = messages.pop() {
            self.queue.push_front(Some(message));
        }
        self.high = self.high.max(self.queue.len());
    }

    /// Moves all messages out of the queue, and then admits waiting senders until the queue is full. The mailbox now
    /// has room, so the caller must wake the returned tasks. These tasks are the admitted senders and, if there is
    /// still room, the task that waits for room.
    pub(super) fn drain_into(&mut self, queue: &mut VecDeque<M>) -> Vec<RoomWaiter> {
        self.first += self.queue.len() as u64;
        self.took();
        while let Some(place) = self.queue.pop_front() {
            if let Some(message) = place {
                queue.push_back(message);
            }
        }
        free_burst(&mut self.queue);
        let mut room_waiters = Vec::new();
        while let Some(waker) = self.admit() {
            room_waiters.push(RoomWaiter::Sender(waker));
        }
        room_waiters.extend(self.watcher_of_room());
        room_waiters
    }

    /// Takes all messages of a closed queue.
    pub(super) fn take_all(&mut self) -> Vec<M> {
        self.first += self.queue.len() as u64;
        self.times.reordered();
        self.measured = None;
        without_empty_places(mem::take(&mut self.queue))
    }

    /// Takes out the message with this number for inspection by the receiver. If the queue no longer contains that
    /// message, takes out the oldest message. Sets `number` to the number of the message that was taken out. The place
    /// of the message stays in the queue and is empty. The caller must later either [remove](Self::settle) or
    /// [fill](Self::fill) the empty place.
    pub(super) fn look(&mut self, number: &mut u64) -> Option<M> {
        *number = (*number).max(self.first);
        let place = usize::try_from(*number - self.first).ok();
        let message = place.and_then(|place| self.queue.get_mut(place)).and_then(Option::take);
        self.busy &= message.is_some();
        message
    }

    fn hole(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get(place).is_some_and(Option::is_none).then_some(place)
    }

    /// Puts a message back into its empty place in the queue. The function [`look`](Self::look) has taken out this
    /// message.
    ///
    /// # Errors
    /// Returns the message if the queue no longer contains the empty place. There are two possible reasons: the
    /// overflow policy has removed the empty place, because this place belonged to the oldest message, or the queue was
    /// closed.
    pub(super) fn fill(&mut self, number: u64, message: M) -> Result<(), M> {
        match self.hole(number) {
            Some(place) => {
                self.queue[place] = Some(message);
                Ok(())
            }
            None => Err(message),
        }
    }

    /// Removes the empty place of a message that the receiver has read. Returns the position of the empty place.
    /// Returns `None` if the queue no longer contains the empty place, for the reasons given at [`fill`](Self::fill).
    pub(super) fn settle(&mut self, number: u64) -> Option<usize> {
        let place = self.hole(number)?;
        self.queue.remove(place);
        free_burst(&mut self.queue);
        // If the removed place was the first place of the queue, the numbers of the messages do not change. Otherwise,
        // the number of each message behind the removed place is now lower by one.
        if place == 0 {
            self.times.taken();
            self.first += 1;
        } else {
            self.taken_behind += 1;
        }
        match &mut self.measured {
            Some((measured, _)) if *measured > number => *measured -= u64::from(place != 0),
            measured => {
                measured.take_if(|(measured, _)| *measured == number).into_iter().for_each(|(_, timer)| timer.record());
            }
        }
        self.admit_next();
        Some(place)
    }
}

/// Removes the empty places from a queue. A place is empty if a receive operation has taken the message of the place
/// out for inspection.
pub(super) fn without_empty_places<M>(mut places: VecDeque<Option<M>>) -> Vec<M> {
    // Iterator adapters would add several functions that the compiler compiles for each message type.
    let mut messages = Vec::with_capacity(places.len());
    while let Some(place) = places.pop_front() {
        if let Some(message) = place {
            messages.push(message);
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::mailbox::wakes::NeverWoken;

    #[test]
    fn the_lower_of_the_capacity_and_the_limit_applies() {
        use OverflowPolicy::{DropNewest, DropOldest, Reject};
        let table = [
            (MailboxCapacity::Unbounded, None, None),
            (MailboxCapacity::Unbounded, Some(3), Some((Reject, 3))),
            (MailboxCapacity::Reject(0), None, Some((Reject, 1))),
            (MailboxCapacity::Reject(5), Some(0), Some((Reject, 0))),
            (MailboxCapacity::DropOldest(0), Some(1), Some((DropOldest, 1))),
            (MailboxCapacity::DropOldest(2), Some(2), Some((DropOldest, 2))),
            (MailboxCapacity::DropOldest(2), Some(0), Some((Reject, 0))),
            (MailboxCapacity::DropNewest(9), Some(2), Some((DropNewest, 2))),
            (MailboxCapacity::DropNewest(usize::MAX), None, Some((DropNewest, usize::MAX))),
        ];
        for (bound, limit, within) in table {
            assert_eq!(bound.within(limit), within, "{bound:?} {limit:?}");
        }
    }

    #[test]
    fn the_length_of_the_queue_includes_the_empty_place_of_a_message() {
        let mut queue = Bounded::new(OverflowPolicy::DropOldest, 2);
        for message in 0..2 {
            assert!(matches!(queue.push(message, &NeverWoken), Pushed::Stored));
        }
        let mut number = 0;
        assert_eq!(queue.look(&mut number), Some(0));
        assert!(matches!(queue.push(2, &NeverWoken), Pushed::Oldest(None)));
        assert_eq!((queue.fill(number, 0), queue.settle(number), queue.len()), (Err(0), None, 2));
        assert_eq!((queue.look(&mut number), number), (Some(1), FIRST + 1));
        queue.fill(number, 1).expect("it is there");
        number += 1;
        assert_eq!((queue.look(&mut number), queue.settle(number)), (Some(2), Some(1)));
        assert_eq!((queue.pop(), queue.pop(), queue.high()), (Some(1), None, 2));
    }

    /// A receiver takes messages out with `look` and `settle`, and another process returns them. Even after many
    /// repetitions, the first message has the number `FIRST`.
    #[test]
    fn returned_messages_get_their_former_numbers_again() {
        let mut queue = Bounded::new(OverflowPolicy::Reject, 4);
        (0..3).for_each(|message| assert!(matches!(queue.push(message, &NeverWoken), Pushed::Stored)));
        for _ in 0..10 {
            let mut number = 0;
            let taken: Vec<_> = std::iter::from_fn(|| {
                let message = queue.look(&mut number)?;
                assert_eq!(queue.settle(number), Some(0));
                Some(message)
            })
            .collect();
            assert_eq!((&taken[..], queue.first), (&[0, 1, 2][..], FIRST + 3));
            queue.put_first(taken);
            assert_eq!(queue.first, FIRST);
        }
        // The counter of taken messages also counts a message that was not the oldest message.
        let mut number = FIRST + 1;
        let before = queue.taken();
        assert_eq!((queue.look(&mut number), queue.settle(number)), (Some(1), Some(1)));
        assert_ne!(queue.taken(), before);
    }

    /// 4.7j: the memory of a burst of waiting senders is freed, even if one sender of the burst still waits. The
    /// messages of the senders that still wait are admitted in the order in which these senders began to wait.
    #[test]
    fn the_memory_of_a_burst_of_waiting_senders_is_freed() {
        const BURST: u64 = 10_000;
        let mut queue = Bounded::new(OverflowPolicy::Reject, 1);
        let wait = |queue: &mut Bounded<u64>, message: u64| {
            queue.push_or_wait(message, &mut Some(Waker::noop().clone()), &NeverWoken).expect("the message can wait")
        };
        assert_eq!(wait(&mut queue, 0), None);
        let numbers: Vec<_> = (1..=BURST).map(|message| wait(&mut queue, message).expect("it waits")).collect();
        assert!(queue.waiting_messages.capacity() >= BURST as usize);
        for (message, number) in (1..).zip(&numbers) {
            if message % 1_000 != 0 {
                assert_eq!(queue.give_up(*number).expect("it still waits").0, message);
            }
        }
        assert!(queue.waiting_messages.capacity() <= KEEP, "{}", queue.waiting_messages.capacity());
        let admitted: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(admitted, (0..=BURST).step_by(1_000).collect::<Vec<_>>());
        assert_eq!(queue.fullness(), (None, 0));
        assert!(queue.give_up(numbers[999]).is_none(), "this sender was admitted");
    }

    #[test]
    fn a_queue_that_may_hold_no_message_is_never_full() {
        let mut queue = Bounded::new(OverflowPolicy::Reject, 0);
        assert!(matches!(queue.push(1, &NeverWoken), Pushed::Rejected(1)));
        assert_eq!(
            (queue.fullness(), Bounded::<u64>::new(OverflowPolicy::Reject, 1).fullness()),
            ((None, 0), (None, 0))
        );
    }

    /// 4.7j: the memory of a burst is freed, even if a hand-written process takes out all messages in one operation.
    /// This also holds if each message is received selectively.
    #[test]
    fn the_memory_of_a_burst_is_freed() {
        let mut queue = Bounded::new(OverflowPolicy::Reject, 10_000);
        let fill = |queue: &mut Bounded<u64>| {
            (0..10_000).for_each(|message| assert!(matches!(queue.push(message, &NeverWoken), Pushed::Stored)));
        };
        fill(&mut queue);
        assert_eq!(queue.drain_into(&mut VecDeque::new()).len(), 0);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
        fill(&mut queue);
        let mut number = 0;
        while queue.look(&mut number).is_some() {
            assert_eq!(queue.settle(number), Some(0));
        }
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn senders_are_admitted_in_arrival_order() {
        let mut queue = Bounded::new(OverflowPolicy::DropNewest, 1);
        let waker = || Some(Waker::noop().clone());
        let mut waits = |message| queue.push_or_wait(message, &mut waker(), &NeverWoken);
        assert_eq!([waits(0), waits(1), waits(2), waits(3)], [Ok(None), Ok(Some(0)), Ok(Some(1)), Ok(Some(2))]);
        assert_eq!(queue.push_or_wait(4, &mut None, &NeverWoken), Err(4));
        assert_eq!(queue.give_up(1).map(|(message, _)| message), Some(2));
        assert_eq!((queue.pop(), queue.take_room_waiter().is_some()), (Some(0), true));
        assert!(!queue.still_waits(0, &mut None) && queue.still_waits(2, &mut waker()));
        let mut all = VecDeque::new();
        assert_eq!((queue.drain_into(&mut all).len(), all, queue.pop(), queue.pop()), (1, [1].into(), Some(3), None));
        assert_eq!(Bounded::new(OverflowPolicy::Reject, 0).push_or_wait(1, &mut waker(), &NeverWoken), Err(1));
    }
}
