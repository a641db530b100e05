//! The receiver's half of a mailbox: messages that were taken out of the inbox under one lock, and are read without a
//! lock.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, Mutex, planted};
use crate::process::state::current::InTurn;

/// Capacity, in messages, that an empty mailbox keeps allocated. If a burst needed more memory, the whole buffer is
/// freed when the last message is read and the receiver waits.
pub(super) const KEEP: usize = 256;

/// Proves that its holder is the only thread that may take messages from the mailbox: see `mailbox::slot`.
///
/// A receiver gets the proof from its [`ReadAhead`], under the lock of the mailbox or in the turn of its process. It
/// does not keep the proof beyond that lock or turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiving(PhantomData<*const ()>);

impl Receiving {
    /// Proof of the thread that closes the mailbox. This thread holds the lock, in the last turn of the process.
    #[inline]
    pub(super) fn closing() -> Self {
        Self(PhantomData)
    }
}

/// Proves that the receiver of the mailbox is polled in the turn of its process, and that no other receiver can replace
/// this receiver before the turn ends. So the receiver may take a message without the lock, and may open the slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiverTurn {
    turn: InTurn,
}

impl ReceiverTurn {
    /// Proof of a hand-written process that reads its events, and whose mailbox has no other receiver.
    #[inline]
    pub(crate) fn of_events(turn: InTurn) -> Self {
        Self { turn }
    }

    #[inline]
    pub(super) fn turn(self) -> InTurn {
        self.turn
    }

    #[inline]
    pub(super) fn receiving(self) -> Receiving {
        Receiving(PhantomData)
    }
}

/// Mark in the number of a receiver on trial. The predecessor of this receiver may replace it at any time, under the
/// lock.
const TRIAL: u64 = 1 << 63;

/// Number of a receiver that never becomes the current one again.
const NEVER: u64 = TRIAL - 1;

/// Tells which receiver of a mailbox is the current one. Created when a mailbox gets its second receiver.
#[derive(Debug, Default)]
struct Receivers {
    /// Number of the current receiver. The first receiver has the number 0. This field changes under the lock of the
    /// mailbox; only the trial mark is removed without the lock, in the turn of the process.
    current: AtomicU64,
    /// The last number that was assigned.
    last: AtomicU64,
}

/// The claim of one receiver to its mailbox.
///
/// A mailbox has one current receiver. A receiver has no claim in two cases. Either its mailbox has had no other
/// receiver so far. Or it is the first receiver of its mailbox and the user cannot reach it, because another receiver
/// is current.
#[derive(Debug)]
pub(super) struct Claim {
    number: u64,
    receivers: Arc<Receivers>,
}

impl Claim {
    /// The claim of the first receiver of a mailbox.
    pub(super) fn first() -> Self {
        Self { number: 0, receivers: Arc::default() }
    }

    /// Returns whether this receiver is the current one. The answer holds until the lock of the mailbox is released.
    #[cold]
    #[inline(never)]
    fn is_current(&self) -> bool {
        // Relaxed: the lock orders this load after a change under the lock, and the turn of the process orders it after
        // a change in the turn.
        self.receivers.current.load(Ordering::Relaxed) & !TRIAL == self.number || planted!("replaced_receiver_takes")
    }

    /// Returns whether this receiver is the current one, and not on trial. Then only a thread in the turn of the
    /// process can replace it.
    #[cold]
    #[inline(never)]
    fn is_settled(&self) -> bool {
        self.receivers.current.load(Ordering::Relaxed) == self.number
    }

    /// Makes this receiver the current one. Returns whether another receiver was the current one.
    pub(super) fn make_current(&self) -> bool {
        self.receivers.current.swap(self.number, Ordering::Relaxed) != self.number
    }

    /// Makes a new receiver the current one, with `marks` on its number.
    fn succeed(&self, marks: u64) -> Self {
        // Relaxed: numbers only have to differ.
        let number = self.receivers.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.receivers.current.store(number | marks, Ordering::Relaxed);
        Self { number, receivers: Arc::clone(&self.receivers) }
    }
}

/// Trial of a receiver. The receiver is the current one during its trial. The trial ends when the receiver is
/// [confirmed](Self::confirm), or when its predecessor replaces it
/// ([`Inbox::end_trial`](crate::process::mailbox::Inbox::end_trial)).
#[derive(Debug)]
#[must_use = "the trial does not end by itself"]
pub(crate) struct Trial {
    receivers: Arc<Receivers>,
    number: u64,
    /// Value of [`Receivers::current`] before the trial, including marks.
    former: u64,
}

impl Trial {
    /// Ends the trial: the receiver stays the current one. Called in the turn of its process.
    pub(crate) fn confirm(&self, _: InTurn) {
        self.pass_to(self.number);
    }

    /// Ends the trial: the predecessor becomes the current receiver again. The caller holds the lock of the mailbox.
    /// Returns false if the receiver is not on trial any more.
    pub(super) fn end(&self) -> bool {
        self.pass_to(self.former)
    }

    fn pass_to(&self, number: u64) -> bool {
        let current = &self.receivers.current;
        current.compare_exchange(self.number | TRIAL, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Read-ahead buffer of a receiver: messages that it took out of its inbox and has not read yet.
///
/// The buffer is allocated at the first burst, or together with a claim, so an idle process pays one pointer for it. A
/// receiver reads the buffer without locking the mutex. The mutex makes the mailbox `Sync` for messages that are only
/// `Send`.
#[derive(Debug)]
pub(crate) struct ReadAhead<M>(Option<Box<Mutex<Ahead<M>>>>);

#[derive(Debug)]
pub(super) struct Ahead<M> {
    pub(super) queue: VecDeque<M>,
    /// Messages that were read and put aside, to be read again later.
    stash: VecDeque<M>,
    /// Number of messages at the head of `queue` that come before any signal. Before each of these messages, a receiver
    /// of messages and signals need not check for a signal.
    clear: usize,
    /// `None` for the first receiver of a mailbox, unless the receiver has renounced ([`ReadAhead::renounce`]).
    claim: Option<Claim>,
}

impl<M> Ahead<M> {
    fn new(claim: Option<Claim>) -> Box<Mutex<Self>> {
        Box::new(Mutex::new(Self { queue: VecDeque::new(), stash: VecDeque::new(), clear: 0, claim }))
    }

    #[inline]
    fn is_replaced(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.is_current())
    }
}

impl<M> Default for ReadAhead<M> {
    fn default() -> Self {
        Self(None)
    }
}

impl<M> ReadAhead<M> {
    #[inline]
    fn queue(&mut self) -> Option<&mut VecDeque<M>> {
        self.0.as_deref_mut().map(|ahead| &mut ahead.get_mut().queue)
    }

    pub(super) fn make(&mut self) -> &mut Ahead<M> {
        self.0.get_or_insert_with(|| Ahead::new(None)).get_mut()
    }

    /// Creates the buffer of a new receiver, which replaces the receiver that has `claim`.
    pub(super) fn replacing(claim: &Claim) -> Self {
        Self(Some(Ahead::new(Some(claim.succeed(0)))))
    }

    /// Makes a new receiver the current one, on trial. If this receiver has read messages ahead or put messages aside,
    /// these messages move to the new receiver.
    pub(super) fn replace_on_trial(&mut self) -> (Self, Trial) {
        let mut ahead = self.0.take().unwrap_or_else(|| Ahead::new(None));
        let claim = ahead.get_mut().claim.take();
        let first = claim.is_none().then(Claim::first);
        let present = claim.as_ref().or(first.as_ref()).unwrap_or_else(|| unreachable!("it is one or the other"));
        let former = present.receivers.current.load(Ordering::Relaxed);
        let next = present.succeed(TRIAL);
        let trial = Trial { receivers: Arc::clone(&next.receivers), number: next.number, former };
        ahead.get_mut().claim = Some(next);
        self.0 = claim.map(|claim| Ahead::new(Some(claim)));
        (Self(Some(ahead)), trial)
    }

    /// Ensures that this receiver never becomes the current one again.
    pub(super) fn renounce(&mut self) {
        let claim = &mut self.make().claim;
        claim.get_or_insert_with(Claim::first).number = NEVER;
    }

    /// Returns the right of this receiver to take messages, for a caller that holds the lock of the mailbox. Returns
    /// `None` if the receiver was replaced.
    #[inline]
    pub(super) fn receiving(&mut self) -> Option<Receiving> {
        (!self.is_replaced()).then_some(Receiving(PhantomData))
    }

    /// As [`receiving`](Self::receiving), for a caller in the turn of the process that does not hold the lock. Also
    /// returns `None` for a receiver on trial.
    #[inline]
    pub(crate) fn seat(&mut self, turn: InTurn) -> Option<ReceiverTurn> {
        let claim = self.0.as_deref_mut().and_then(|ahead| ahead.get_mut().claim.as_ref());
        claim.is_none_or(Claim::is_settled).then_some(ReceiverTurn { turn })
    }

    /// As [`seat`](Self::seat), but also returns `None` if the buffer contains unread messages. Messages that are put
    /// aside do not count as unread.
    #[inline]
    pub(crate) fn seat_if_read(&mut self, turn: InTurn) -> Option<ReceiverTurn> {
        match self.0.as_deref_mut().map(Mutex::get_mut) {
            None => Some(ReceiverTurn { turn }),
            Some(ahead) if !ahead.queue.is_empty() => None,
            Some(ahead) => ahead.claim.as_ref().is_none_or(Claim::is_settled).then_some(ReceiverTurn { turn }),
        }
    }

    /// Returns whether another receiver has replaced this one.
    #[inline]
    pub(crate) fn is_replaced(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().is_replaced())
    }

    /// As [`is_replaced`](Self::is_replaced), for a caller that has no mutable access.
    pub(crate) fn was_replaced(&self) -> bool {
        self.0.as_deref().is_some_and(|ahead| ahead.lock().is_replaced())
    }

    /// Returns the next message, if the receiver is the first one of its mailbox and has no claim. A receiver with a
    /// claim gets `None`, and calls [`pop`](Self::pop) instead. With this function a message of a burst costs 233
    /// instructions instead of 237, because no register has to be saved for the call that checks a claim.
    #[inline]
    pub(crate) fn pop_of_first(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.claim.is_some() {
            return None;
        }
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// Returns the next message, or `None` if this receiver was replaced.
    pub(crate) fn pop(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.is_replaced() {
            return None;
        }
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// Returns whether the next message is known to come before any signal.
    #[inline]
    pub(crate) fn is_clear(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().clear != 0)
    }

    /// Returns the next message, if it is known to come before any signal.
    #[inline]
    pub(crate) fn pop_clear(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.is_replaced() {
            return None;
        }
        ahead.clear = ahead.clear.checked_sub(1)?;
        ahead.queue.pop_front()
    }

    /// Notes that the mailbox has no signal: a signal that arrives now comes after all messages of this buffer.
    #[inline]
    pub(super) fn set_clear(&mut self) {
        if let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) {
            ahead.clear = ahead.queue.len();
        }
    }

    /// Puts a message aside, behind the messages that were put aside before.
    pub(crate) fn stash(&mut self, message: M) {
        self.make().stash.push_back(message);
    }

    /// Moves the messages that were put aside to the front of the unread messages. Returns their number.
    pub(crate) fn unstash(&mut self) -> usize {
        let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) else { return 0 };
        let count = ahead.stash.len();
        ahead.clear = 0;
        ahead.stash.append(&mut ahead.queue);
        mem::swap(&mut ahead.stash, &mut ahead.queue);
        count
    }

    #[inline]
    pub(crate) fn len(&mut self) -> usize {
        self.queue().map_or(0, |queue| queue.len())
    }

    /// Takes out all messages, including messages that were put aside.
    pub(crate) fn take(&mut self) -> VecDeque<M> {
        self.unstash();
        self.queue().map(mem::take).unwrap_or_default()
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.as_deref_mut().map(Mutex::get_mut).is_none_or(|ahead| ahead.queue.is_empty() && ahead.stash.is_empty())
    }

    /// Offers the messages from position `looked_at` on to `pick`, and removes the first message that `pick` accepts.
    /// The other messages keep their places. If `pick` panics, the message that `pick` was called with is lost.
    pub(crate) fn pick<T>(&mut self, looked_at: &mut usize, pick: &mut impl FnMut(M) -> Result<T, M>) -> Option<T> {
        let Ahead { queue: front, clear, .. } = self.0.as_deref_mut()?.get_mut();
        *clear = 0;
        while *looked_at < front.len() {
            let message = front.remove(*looked_at)?;
            match pick(message) {
                Ok(picked) => return Some(picked),
                Err(message) => front.insert(*looked_at, message),
            }
            *looked_at += 1;
        }
        None
    }

    /// Frees the memory that a burst needed, if its last message was read.
    pub(super) fn shrink(&mut self) {
        if self.queue().is_some_and(|queue| queue.is_empty() && queue.capacity() > KEEP) && self.is_empty() {
            let claim = self.0.take().and_then(|mut ahead| ahead.get_mut().claim.take());
            self.0 = claim.map(|claim| Ahead::new(Some(claim)));
        }
    }
}
