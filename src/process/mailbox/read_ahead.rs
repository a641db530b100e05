//! The part of a mailbox that only the receiver uses. The receiver takes messages out of the inbox in one lock
//! operation, stores the messages in this part, and reads them without a lock. Without this part, each message would
//! need a separate lock operation. This part reduced the CPU time of the bench `counting` by 35 %.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, Mutex, planted};
use crate::process::state::current::InTurn;

/// Largest capacity, in messages, that an empty mailbox keeps allocated. If a burst needed a larger buffer, the whole
/// buffer is freed when the receiver has read the last message of the mailbox.
pub(super) const KEEP: usize = 256;

/// Frees the memory of an empty queue if its capacity is larger than [`KEEP`].
#[inline]
pub(super) fn free_burst<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > KEEP {
        *queue = VecDeque::new();
    }
}

/// Proof that a thread may take messages. The thread that has this value is the only thread that may take messages from
/// the mailbox: see `mailbox::slot`.
///
/// A receiver obtains the proof from its [`ReadAhead`] or its `Taken`, under the lock of the mailbox or in the turn of
/// its process. The thread that closes the mailbox obtains the proof from [`closing`](Self::closing).
/// The receiver does not keep the proof after the unlock or after the end of the turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiving(PhantomData<*const ()>);

impl Receiving {
    /// Returns the proof for the thread that closes the mailbox. This thread holds the lock, and has the right to run
    /// the process: either this is the last turn of the process, or the process is given up without a turn. If the
    /// mailbox belongs to no process, there is no turn: each receiver of this mailbox takes messages under the lock.
    #[inline]
    pub(super) fn closing(_: Option<InTurn>) -> Self {
        Self(PhantomData)
    }
}

/// Proves that the receiver of the mailbox is polled in the turn of its process. No other receiver can replace this
/// receiver before the turn ends. Therefore, the receiver may take a message without the lock, and may open the slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiverTurn {
    turn: InTurn,
}

impl ReceiverTurn {
    /// Returns the proof that the receiver with this claim is the current receiver. Returns `None` if another receiver
    /// is the current receiver, or if this receiver is in its trial period. A receiver without a claim is a first
    /// receiver, and always gets the proof. If another receiver has replaced this first receiver, the user cannot reach
    /// the first receiver: see [`Claim`].
    #[inline]
    pub(super) fn of(claim: Option<&Claim>, turn: InTurn) -> Option<Self> {
        claim.is_none_or(Claim::is_settled).then_some(Self { turn })
    }

    /// Returns the proof for the only receiver in a test or a model.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn in_test() -> Self {
        Self { turn: InTurn::in_test() }
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

/// Bit that is set in the number of the current receiver during its [`Trial`]. During the trial period, the previous
/// receiver may replace the current receiver at any time, under the lock.
const TRIAL: u64 = 1 << 63;

/// Special number of a receiver that never becomes the current receiver again.
const NEVER: u64 = TRIAL - 1;

/// Stores which receiver of a mailbox is the current receiver. A `Receivers` is created when a mailbox gets its second
/// receiver.
#[derive(Debug, Default)]
struct Receivers {
    /// Number of the current receiver. The first receiver has the number 0. The number changes only under the lock of
    /// the mailbox, with one exception: [`Trial::confirm`] runs in the turn of the process, and may clear the bit
    /// [`TRIAL`] without the lock.
    current: AtomicU64,
    /// The number that was most recently assigned to a receiver.
    last: AtomicU64,
}

/// The claim of a receiver: the number of this receiver, and a reference to the shared [`Receivers`] of the mailbox.
/// With its claim, a receiver can check whether another receiver is now the current receiver.
///
/// A mailbox has one current receiver. If a mailbox has had only one receiver so far, this receiver has no claim. The
/// first receiver may also have no claim after another receiver has replaced it. In this case, the user cannot reach
/// the first receiver.
#[derive(Debug)]
pub(super) struct Claim {
    number: u64,
    receivers: Arc<Receivers>,
}

impl Claim {
    /// Creates the claim of the first receiver of a mailbox.
    pub(super) fn first() -> Self {
        Self { number: 0, receivers: Arc::default() }
    }

    /// Returns whether this receiver is the current receiver. The result is valid until the lock of the mailbox is
    /// released.
    #[cold]
    #[inline(never)]
    fn is_current(&self) -> bool {
        // Relaxed is sufficient. If the number was changed under the lock, the lock orders this load after the change.
        // If the number was changed in a turn of the process, the change happens before this load, because the turns of
        // a process happen one after another.
        self.receivers.current.load(Ordering::Relaxed) & !TRIAL == self.number || planted!("replaced_receiver_takes")
    }

    /// Returns whether this receiver is the current receiver and is not in its trial period. When the [`Trial`] of this
    /// receiver has ended, this receiver can be replaced only in the turn of the process.
    #[cold]
    #[inline(never)]
    fn is_settled(&self) -> bool {
        self.receivers.current.load(Ordering::Relaxed) == self.number
    }

    /// Returns whether this receiver is the current receiver and is in its trial period. The caller holds the lock of
    /// the mailbox.
    fn is_on_trial(&self) -> bool {
        self.receivers.current.load(Ordering::Relaxed) == self.number | TRIAL
    }

    /// Returns whether all other receivers of the mailbox were dropped.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.receivers) == 1
    }

    /// Records that this receiver is the current receiver. Returns whether another receiver was current before.
    pub(super) fn make_current(&self) -> bool {
        self.receivers.current.swap(self.number, Ordering::Relaxed) != self.number
    }

    /// Creates the claim of a new receiver, which becomes the current receiver. The bits `marks` are set in the stored
    /// number of the new receiver.
    fn succeed(&self, marks: u64) -> Self {
        // Relaxed is sufficient, because the numbers only have to differ.
        let number = self.receivers.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.receivers.current.store(number | marks, Ordering::Relaxed);
        Self { number, receivers: Arc::clone(&self.receivers) }
    }
}

/// Trial period of a new receiver. During the trial period, the new receiver is the current receiver. The trial period
/// ends when the new receiver is [confirmed](Self::confirm), or when the previous receiver becomes the current receiver
/// again ([`Inbox::end_trial`](crate::process::mailbox::Inbox::end_trial)).
#[derive(Debug)]
#[must_use = "the trial does not end by itself"]
pub(crate) struct Trial {
    receivers: Arc<Receivers>,
    number: u64,
    /// Value of [`Receivers::current`] before the trial period, including the marks in this value.
    former: u64,
}

impl Trial {
    /// Ends the trial period, and the new receiver stays the current receiver. The caller is in the turn of the
    /// process.
    pub(crate) fn confirm(&self, _: InTurn) {
        self.pass_to(self.number);
    }

    /// Ends the trial period, and the previous receiver becomes the current receiver again. The caller holds the lock
    /// of the mailbox. Returns false if the trial period had already ended.
    pub(super) fn end(&self) -> bool {
        self.pass_to(self.former)
    }

    fn pass_to(&self, number: u64) -> bool {
        let current = &self.receivers.current;
        current.compare_exchange(self.number | TRIAL, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Read-ahead buffer of a receiver. The receiver has taken the messages in this buffer out of its inbox, and has not
/// read them yet.
///
/// The buffer is allocated at the first burst or together with a claim. Therefore, the buffer of an idle process takes
/// only one pointer. A receiver reads the buffer without locking the mutex. The mutex makes the mailbox `Sync` for
/// messages that are only `Send`.
#[derive(Debug)]
pub(crate) struct ReadAhead<M>(Option<Box<Mutex<Ahead<M>>>>);

#[derive(Debug)]
pub(super) struct Ahead<M> {
    pub(super) queue: VecDeque<M>,
    /// Messages that the receiver has read and put aside. The receiver reads these messages again later.
    stash: VecDeque<M>,
    /// Number of messages at the head of `queue` that come before all signals. The receiver reads these messages
    /// without a check for signals.
    clear: usize,
    /// Claim of the receiver. The value is `None` for the first receiver of a mailbox, unless [`ReadAhead::renounce`]
    /// was called for this receiver.
    claim: Option<Claim>,
    /// This flag is set when a receive operation pauses because the budget is spent. The flag is cleared when a later
    /// receive operation continues although the budget is spent. The field is here and not in the `Mailbox`, because a
    /// `Mailbox` must be small.
    has_paused: bool,
    /// Whether a receive operation has paused since the last call of [`ReadAhead::begin_poll`].
    paused_in_poll: bool,
    /// Number of messages at the head of `stash` that the replaced receiver has put aside before the trial period of
    /// this receiver.
    inherited_stash: usize,
    /// The [`TrialPlace`] of this receiver, if this receiver began with a trial period.
    own_trial_place: Option<TrialPlace<M>>,
    /// If another receiver has replaced this receiver for a trial period, this field contains the [`TrialPlace`] of the
    /// other receiver.
    successor_trial_place: Option<TrialPlace<M>>,
}

/// Place for unread messages. If a receiver is dropped during its trial period, the receiver stores its unread messages
/// here. The receiver that was replaced takes the messages. Therefore the messages keep their order, and are kept even
/// if the mailbox is full.
type TrialPlace<M> = Arc<Mutex<Unread<M>>>;

/// The unread messages of a receiver that was dropped during its trial period.
#[derive(Debug)]
struct Unread<M> {
    queue: VecDeque<M>,
    stash: VecDeque<M>,
}

impl<M> Ahead<M> {
    fn new(claim: Option<Claim>) -> Box<Mutex<Self>> {
        Box::new(Mutex::new(Self {
            queue: VecDeque::new(),
            stash: VecDeque::new(),
            clear: 0,
            claim,
            has_paused: false,
            paused_in_poll: false,
            inherited_stash: 0,
            own_trial_place: None,
            successor_trial_place: None,
        }))
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

    /// Creates the buffer of a new receiver. The new receiver replaces the receiver that has `claim`, and reads the
    /// messages in `queue` first.
    pub(super) fn replacing(claim: &Claim, queue: VecDeque<M>) -> Self {
        let mut ahead = Ahead::new(Some(claim.succeed(0)));
        ahead.get_mut().queue = queue;
        Self(Some(ahead))
    }

    /// Creates the buffer of a new receiver. The new receiver becomes the current receiver, and its trial period
    /// begins. The unread messages of the old receiver, and the messages that the old receiver put aside, move to the
    /// new receiver.
    pub(super) fn replace_on_trial(&mut self) -> (Self, Trial) {
        let mut ahead = self.0.take().unwrap_or_else(|| Ahead::new(None));
        let claim = ahead.get_mut().claim.take();
        let first = claim.is_none().then(Claim::first);
        let present = claim.as_ref().or(first.as_ref()).unwrap_or_else(|| unreachable!("one of the two claims exists"));
        let former = present.receivers.current.load(Ordering::Relaxed);
        let next = present.succeed(TRIAL);
        let trial = Trial { receivers: Arc::clone(&next.receivers), number: next.number, former };
        let new = ahead.get_mut();
        let place = Arc::new(Mutex::new(Unread { queue: VecDeque::new(), stash: VecDeque::new() }));
        new.claim = Some(next);
        // The replaced receiver may also be in a trial period. In this case, the replaced receiver keeps its
        // `TrialPlace`.
        let own_trial_place = new.own_trial_place.replace(Arc::clone(&place));
        let inherited_stash = mem::replace(&mut new.inherited_stash, new.stash.len());
        let mut former = Ahead::new(claim);
        former.get_mut().inherited_stash = inherited_stash;
        former.get_mut().own_trial_place = own_trial_place;
        former.get_mut().successor_trial_place = Some(place);
        self.0 = Some(former);
        (Self(Some(ahead)), trial)
    }

    /// If this receiver is in its trial period, stores its unread messages for the replaced receiver, and returns true.
    /// The caller holds the lock of the mailbox.
    pub(super) fn store_in_trial_place(&mut self) -> bool {
        let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) else { return false };
        let is_on_trial = ahead.claim.as_ref().is_some_and(Claim::is_on_trial);
        // If the replaced receiver was dropped, no receiver can take the messages.
        let is_shared = |place: &&TrialPlace<M>| is_on_trial && Arc::strong_count(place) > 1;
        let Some(place) = ahead.own_trial_place.as_ref().filter(is_shared) else { return false };
        let mut place = place.lock();
        // The messages in `own_stash` were put aside by the receiver in its trial period. Therefore, the replaced
        // receiver reads these messages again.
        let mut own_stash = ahead.stash.split_off(ahead.inherited_stash.min(ahead.stash.len()));
        place.queue.append(&mut own_stash);
        place.queue.append(&mut ahead.queue);
        place.stash.append(&mut ahead.stash);
        true
    }

    /// Takes the unread messages that a successor of this receiver stored in the `TrialPlace`. These messages are older
    /// than the messages of this receiver.
    pub(super) fn take_from_trial_place(&mut self) {
        let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) else { return };
        if let Some(place) = ahead.successor_trial_place.take() {
            let mut unread = place.lock();
            mem::swap(&mut unread.queue, &mut ahead.queue);
            ahead.queue.append(&mut unread.queue);
            mem::swap(&mut unread.stash, &mut ahead.stash);
            ahead.stash.append(&mut unread.stash);
            ahead.clear = 0;
        }
    }

    /// Ensures that this receiver never becomes the current receiver again.
    pub(super) fn renounce(&mut self) {
        let claim = &mut self.make().claim;
        claim.get_or_insert_with(Claim::first).number = NEVER;
    }

    /// Returns the proof that this receiver may take messages. The caller holds the lock of the mailbox. Returns `None`
    /// if the receiver was replaced.
    #[inline]
    pub(super) fn receiving(&mut self) -> Option<Receiving> {
        (!self.is_replaced()).then_some(Receiving(PhantomData))
    }

    /// Returns the proof that this receiver may take messages without the lock. The caller is in the turn of the
    /// process. Returns `None` if the receiver was replaced, or if the receiver is still in its trial period.
    #[inline]
    pub(crate) fn receiver_turn(&mut self, turn: InTurn) -> Option<ReceiverTurn> {
        ReceiverTurn::of(self.0.as_deref_mut().and_then(|ahead| ahead.get_mut().claim.as_ref()), turn)
    }

    /// If the buffer contains unread messages, returns `None`. Otherwise returns the same result as
    /// [`receiver_turn`](Self::receiver_turn). Messages that were put aside do not count as unread messages.
    #[inline]
    pub(crate) fn receiver_turn_if_read(&mut self, turn: InTurn) -> Option<ReceiverTurn> {
        match self.0.as_deref_mut().map(Mutex::get_mut) {
            None => Some(ReceiverTurn { turn }),
            Some(ahead) if !ahead.queue.is_empty() => None,
            Some(ahead) => ReceiverTurn::of(ahead.claim.as_ref(), turn),
        }
    }

    /// Returns true after a receive operation has paused, until a later receive operation continues although the budget
    /// is spent.
    #[inline]
    pub(crate) fn has_paused(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().has_paused)
    }

    /// Records whether a receive operation has paused.
    pub(crate) fn set_paused(&mut self, has_paused: bool) {
        let ahead = self.make();
        ahead.has_paused = has_paused;
        ahead.paused_in_poll |= has_paused;
    }

    /// Begins a poll. After this poll, the caller calls [`has_paused_in_poll`](Self::has_paused_in_poll).
    pub(crate) fn begin_poll(&mut self) {
        if let Some(ahead) = self.0.as_deref_mut() {
            ahead.get_mut().paused_in_poll = false;
        }
    }

    /// Returns whether a receive operation has paused in this poll.
    pub(crate) fn has_paused_in_poll(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().paused_in_poll)
    }

    /// Returns whether another receiver has replaced this receiver.
    #[inline]
    pub(crate) fn is_replaced(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().is_replaced())
    }

    /// Returns the same result as [`is_replaced`](Self::is_replaced), for a caller that has no mutable access.
    pub(crate) fn was_replaced(&self) -> bool {
        self.0.as_deref().is_some_and(|ahead| ahead.lock().is_replaced())
    }

    /// Returns the next message if the receiver is the first receiver of its mailbox and has no claim. If the receiver
    /// has a claim, this function returns `None`, and the caller must call [`pop`](Self::pop) instead. This function
    /// contains no call that checks a claim. Without a call that checks a claim, the function need not save registers.
    /// This saves 4 of the 237 instructions for each message of a burst.
    #[inline]
    pub(crate) fn pop_of_first(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.claim.is_some() {
            return None;
        }
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// Returns the next message. Returns `None` if this receiver was replaced or if the buffer is empty.
    pub(crate) fn pop(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.is_replaced() {
            return None;
        }
        ahead.clear = ahead.clear.saturating_sub(1);
        ahead.queue.pop_front()
    }

    /// Returns whether the receiver may read the next message without a check for signals. If the result is true, the
    /// next message is known to come before all signals.
    #[inline]
    pub(crate) fn is_clear(&mut self) -> bool {
        self.0.as_deref_mut().is_some_and(|ahead| ahead.get_mut().clear != 0)
    }

    /// Returns the next message if this message is known to come before all signals.
    #[inline]
    pub(crate) fn pop_clear(&mut self) -> Option<M> {
        let ahead = self.0.as_deref_mut()?.get_mut();
        if ahead.is_replaced() {
            return None;
        }
        ahead.clear = ahead.clear.checked_sub(1)?;
        ahead.queue.pop_front()
    }

    /// Records that the mailbox contains no signal. A signal that arrives later comes after all messages of this
    /// buffer.
    #[inline]
    pub(super) fn set_clear(&mut self) {
        if let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) {
            ahead.clear = ahead.queue.len();
        }
    }

    /// Puts a message aside, behind the messages that were put aside earlier.
    pub(crate) fn stash(&mut self, message: M) {
        self.make().stash.push_back(message);
    }

    /// Moves the messages that were put aside to the front of the unread messages. Returns the number of moved
    /// messages.
    pub(crate) fn unstash(&mut self) -> usize {
        let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) else { return 0 };
        let count = ahead.stash.len();
        (ahead.clear, ahead.inherited_stash) = (0, 0);
        if count > ahead.queue.len() {
            ahead.stash.append(&mut ahead.queue);
            mem::swap(&mut ahead.stash, &mut ahead.queue);
        } else {
            // A body may unstash one message after each message of a burst. Therefore, the cost must not depend on the
            // length of the longer queue.
            while let Some(message) = ahead.stash.pop_back() {
                ahead.queue.push_front(message);
            }
        }
        count
    }

    #[inline]
    pub(crate) fn len(&mut self) -> usize {
        self.queue().map_or(0, |queue| queue.len())
    }

    /// Takes out all messages, including the messages that were put aside.
    pub(crate) fn take(&mut self) -> VecDeque<M> {
        self.take_from_trial_place();
        self.unstash();
        self.queue().map(mem::take).unwrap_or_default()
    }

    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.as_deref_mut().map(Mutex::get_mut).is_none_or(|ahead| {
            ahead.queue.is_empty() && ahead.stash.is_empty() && ahead.successor_trial_place.is_none()
        })
    }

    /// Calls `pick` with one message after another, starting at the position `looked_at`, and removes the first message
    /// that `pick` accepts. The other messages keep their positions. If `pick` panics, the message that was passed to
    /// `pick` is lost.
    pub(crate) fn pick<T>(&mut self, looked_at: &mut usize, pick: &mut impl FnMut(M) -> Result<T, M>) -> Option<T> {
        let Ahead { queue, clear, .. } = self.0.as_deref_mut()?.get_mut();
        *clear = 0;
        while *looked_at < queue.len() {
            let message = queue.swap_remove_back(*looked_at)?;
            let gap = Gap { queue, at: *looked_at };
            match pick(message) {
                Ok(picked) => return Some(picked),
                Err(message) => gap.fill(message),
            }
            *looked_at += 1;
        }
        None
    }

    /// Frees the memory of a burst if the last message of the burst was read.
    pub(super) fn shrink(&mut self) {
        let Some(ahead) = self.0.as_deref_mut().map(Mutex::get_mut) else { return };
        let (queue, stash) = (&ahead.queue, &ahead.stash);
        if queue.is_empty() && stash.is_empty() && queue.capacity().max(stash.capacity()) > KEEP {
            // The stash is empty, so it contains no inherited message.
            let (own, successor) = (ahead.own_trial_place.take(), ahead.successor_trial_place.take());
            let claim = ahead.claim.take();
            self.0 = None;
            if claim.is_some() || successor.is_some() {
                let mut ahead = Ahead::new(claim);
                ahead.get_mut().own_trial_place = own;
                ahead.get_mut().successor_trial_place = successor;
                self.0 = Some(ahead);
            }
        }
    }
}

/// Gap in a queue. A receiver has taken a message out of the gap to inspect the message. During the inspection, the
/// last message of the queue is in the gap. Therefore, each inspection moves only two messages. All other messages of
/// the queue stay where they are. When the gap is dropped, the last message returns to the end of the queue.
struct Gap<'a, M> {
    queue: &'a mut VecDeque<M>,
    at: usize,
}

impl<M> Gap<'_, M> {
    /// Puts the inspected message back into the gap.
    fn fill(self, message: M) {
        let last = self.queue.len();
        self.queue.push_back(message);
        self.queue.swap(self.at, last);
        // Both messages are in their places, so the destructor must not move a message.
        mem::forget(self);
    }
}

impl<M> Drop for Gap<'_, M> {
    fn drop(&mut self) {
        if self.at < self.queue.len()
            && let Some(last) = self.queue.remove(self.at)
        {
            self.queue.push_back(last);
        }
    }
}
