//! The receiver's half of a mailbox: what was taken out of the inbox, under one lock, and is read from here without any.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, Mutex, planted};
use crate::process::state::current::InTurn;

/// The capacity, in messages, that an empty mailbox keeps. What a burst needed beyond that is given back when its last
/// message is read and the receiver waits.
pub(super) const KEEP: usize = 256;

/// Proves that its holder is the one thread that may take messages from the mailbox: see `mailbox::slot`.
///
/// A receiver gets it from its [`ReadAhead`], under the lock of the mailbox or in the turn of its process. It is not kept after
/// that lock or turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiving(PhantomData<*const ()>);

impl Receiving {
    /// For the thread that closes the mailbox, which holds its lock, in the last turn of the process.
    #[inline]
    pub(super) fn closing() -> Self {
        Self(PhantomData)
    }
}

/// Proves that the receiver of the mailbox is polled in the turn of its process, and that no other receiver can take its
/// place before the turn is over. So it may take a message without the lock, and lend the slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiverTurn {
    turn: InTurn,
}

impl ReceiverTurn {
    /// For a hand-written process that reads its events, and whose mailbox has no other receiver.
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

/// Marks the number of a receiver on trial: it may lose its place to its predecessor at any time, under the lock.
const TRIAL: u64 = 1 << 63;

/// The number of a receiver that is never again the current one.
const NEVER: u64 = TRIAL - 1;

/// Which receiver of a mailbox is the current one. It is made when a mailbox gets its second receiver.
#[derive(Debug, Default)]
struct Receivers {
    /// The number of the current receiver. The first one has the number 0. It changes under the lock of the mailbox.
    current: AtomicU64,
    /// The last number that was given out.
    last: AtomicU64,
}

/// The claim of one receiver to its mailbox.
///
/// A mailbox has one current receiver. A receiver without a claim is the only one that its mailbox has had so far, or the
/// first one, which is out of the user's reach while another one is current.
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

    /// Whether this receiver is the current one. The answer holds until the lock of the mailbox is released.
    #[cold]
    #[inline(never)]
    fn is_current(&self) -> bool {
        // Relaxed: the lock orders this after the change, as does the turn, for changes that are made in it.
        self.receivers.current.load(Ordering::Relaxed) & !TRIAL == self.number || planted!("replaced_receiver_takes")
    }

    /// Whether, besides, only a thread in the turn of the process can change that.
    #[cold]
    #[inline(never)]
    fn is_settled(&self) -> bool {
        self.receivers.current.load(Ordering::Relaxed) == self.number
    }

    /// Makes this receiver the current one. True if another one was.
    pub(super) fn make_current(&self) -> bool {
        self.receivers.current.swap(self.number, Ordering::Relaxed) != self.number
    }

    /// Makes a new receiver the current one, with these marks on its number.
    fn succeed(&self, marks: u64) -> Self {
        // Relaxed: numbers only have to differ.
        let number = self.receivers.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.receivers.current.store(number | marks, Ordering::Relaxed);
        Self { number, receivers: Arc::clone(&self.receivers) }
    }
}

/// A receiver that is the current one on trial: [confirmed](Self::confirm), or replaced by its predecessor
/// ([`Inbox::end_trial`](crate::process::mailbox::Inbox::end_trial)).
#[derive(Debug)]
#[must_use = "the trial does not end by itself"]
pub(crate) struct Trial {
    receivers: Arc<Receivers>,
    number: u64,
    /// What was current before, with its marks.
    former: u64,
}

impl Trial {
    /// The receiver keeps its place. In the turn of its process.
    pub(crate) fn confirm(&self, _: InTurn) {
        self.pass_to(self.number);
    }

    /// The predecessor gets its place back, under the lock of the mailbox. False if neither is current any more.
    pub(super) fn end(&self) -> bool {
        self.pass_to(self.former)
    }

    fn pass_to(&self, number: u64) -> bool {
        let current = &self.receivers.current;
        current.compare_exchange(self.number | TRIAL, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// What a receiver took out of its inbox and has not read yet.
///
/// It is made at the first burst, or with a claim: an idle process pays a pointer for it. The lock is not needed to receive;
/// it makes the mailbox `Sync` for messages that are only `Send`.
#[derive(Debug)]
pub(crate) struct ReadAhead<M>(Option<Box<Mutex<Ahead<M>>>>);

#[derive(Debug)]
pub(super) struct Ahead<M> {
    pub(super) queue: VecDeque<M>,
    /// What was read, and put aside to be read again.
    stash: VecDeque<M>,
    /// So many of the queue come before any signal: whoever reads both need not look for one.
    clear: usize,
    /// None for the first receiver of a mailbox.
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

    /// That of a new receiver, which replaces the one that has `claim`.
    pub(super) fn replacing(claim: &Claim) -> Self {
        Self(Some(Ahead::new(Some(claim.succeed(0)))))
    }

    /// Makes a new receiver the current one, on trial. What this one has read ahead, or put aside, is moved to the new one.
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

    /// This receiver is never again the current one.
    pub(super) fn renounce(&mut self) {
        let claim = &mut self.make().claim;
        claim.get_or_insert_with(Claim::first).number = NEVER;
    }

    /// The right of this receiver to take messages, for who holds the lock of the mailbox. None if it was replaced.
    #[inline]
    pub(super) fn receiving(&mut self) -> Option<Receiving> {
        (!self.is_replaced()).then_some(Receiving(PhantomData))
    }

    /// The same in the turn of its process; also none on trial.
    #[inline]
    pub(crate) fn seat(&mut self, turn: InTurn) -> Option<ReceiverTurn> {
        let claim = self.0.as_deref_mut().and_then(|ahead| ahead.get_mut().claim.as_ref());
        claim.is_none_or(Claim::is_settled).then_some(ReceiverTurn { turn })
    }

    /// The same, if all that was taken out was read, but for what is put aside.
    #[inline]
    pub(crate) fn seat_if_read(&mut self, turn: InTurn) -> Option<ReceiverTurn> {
        match self.0.as_deref_mut().map(Mutex::get_mut) {
            None => Some(ReceiverTurn { turn }),
            Some(ahead) if !ahead.queue.is_empty() => None,
            Some(ahead) => ahead.claim.as_ref().is_none_or(Claim::is_settled).then_some(ReceiverTurn { turn }),
        }
    }

    /// Whether another receiver has taken the place of this one.
    #[inline]
    pub(crate) fn is_replaced(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().is_replaced())
    }

    /// The same for who cannot have it mutably.
    pub(crate) fn was_replaced(&self) -> bool {
        self.0.as_deref().is_some_and(|ahead| ahead.lock().is_replaced())
    }

    /// The next message, for the first receiver of a mailbox while it has no claim; none for another one, which asks
    /// [`pop`](Self::pop) instead. A message of a burst costs 233 instructions with it and 237 without: no register has to
    /// be saved for the call that checks a claim.
    #[inline]
    pub(crate) fn pop_of_first(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.claim.is_some() {
            return None;
        }
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// The next message; none for a receiver that was replaced.
    pub(crate) fn pop(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.is_replaced() {
            return None;
        }
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// Whether it is known of the next message that it comes before any signal.
    #[inline]
    pub(crate) fn is_clear(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().clear != 0)
    }

    /// The next message, if it is known that it comes before any signal.
    #[inline]
    pub(crate) fn pop_clear(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.is_replaced() {
            return None;
        }
        ahead.clear = ahead.clear.checked_sub(1)?;
        ahead.queue.pop_front()
    }

    /// No signal is there: what comes now comes after all of these.
    #[inline]
    pub(super) fn set_clear(&mut self) {
        if let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) {
            ahead.clear = ahead.queue.len();
        }
    }

    /// Puts a message aside, behind those that were before.
    pub(crate) fn stash(&mut self, message: M) {
        self.make().stash.push_back(message);
    }

    /// Puts what is aside before what is to be read; how many those are.
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

    /// Everything, what was put aside too.
    pub(crate) fn take(&mut self) -> VecDeque<M> {
        self.unstash();
        self.queue().map(mem::take).unwrap_or_default()
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.as_deref_mut().map(Mutex::get_mut).is_none_or(|ahead| ahead.queue.is_empty() && ahead.stash.is_empty())
    }

    /// Offers the messages from number `looked_at` on to `pick`, and takes out the first one that it takes. The others
    /// keep their places, also if `pick` panics on a later one; the one that it panics on is lost with it.
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

    /// Gives back what a burst needed, when the last of it was read.
    pub(super) fn shrink(&mut self) {
        if self.queue().is_some_and(|queue| queue.is_empty() && queue.capacity() > KEEP) && self.is_empty() {
            let claim = self.0.take().and_then(|mut ahead| ahead.get_mut().claim.take());
            self.0 = claim.map(|claim| Ahead::new(Some(claim)));
        }
    }
}
