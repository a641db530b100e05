//! The event queue of one process: messages and signals in the order they came, and whom to wake for them.
//!
//! Senders push under a short lock and wake under it; the receiver swaps out everything that is there. Nothing of the
//! user's runs under the lock: not a waker, not a message's `Drop`; and what was woken is queued after it. A closed inbox
//! refuses what comes and hands it back. One with a bound keeps its messages in a queue of another kind: see `bounded`.
//!
//! A message to a process that waits for one takes no lock. Whoever waits for mail, and has none, lends the mailbox's `slot`
//! to whoever wakes it: that one is alone with the process, puts the message there, and queues it; the process takes it out
//! in its turn. It waits for the next one all the while: until somebody comes by the lock, which leaves a mark on it, it knows
//! [at a glance](Inbox::glance) that nothing has come, and need not look under the lock. Whoever has found it waiting there
//! has woken it, and a task that is woken while it runs is run again.
//!
//! A receiver that takes a delivered message still waits for the next one. The turn notes this
//! (`process::state::current`). The next look into the mailbox removes the note. If the note is still there when the turn
//! ends, the body waits for something else, and a message must not wake it ([`Inbox::unwait`]).

pub(crate) mod bounded;
pub(crate) mod drained;
pub(crate) mod locked;
pub(crate) mod queue;
pub(crate) mod read_ahead;
pub(crate) mod receiver;
pub(crate) mod routed;
pub(crate) mod sender;
pub(crate) mod signals;
pub(crate) mod slot;
pub(crate) mod wakes;

use std::task::Waker;

use crate::platform::sync::Lock;
pub use crate::process::mailbox::bounded::Bound;
use crate::process::mailbox::bounded::Bounded;
pub(crate) use crate::process::mailbox::bounded::RoomWaiter;
pub(crate) use crate::process::mailbox::drained::Taken;
pub(crate) use crate::process::mailbox::locked::{ClosedContents, Unsent};
use crate::process::mailbox::locked::{Locked, RareParts, State, Waiting};
use crate::process::mailbox::queue::Buffer;
pub(crate) use crate::process::mailbox::read_ahead::{ReadAhead, ReceiverTurn, Trial};
pub(crate) use crate::process::mailbox::receiver::{Gathered, Glance, Reader, Spare};
pub(crate) use crate::process::mailbox::routed::{Router, Unrouted};
use crate::process::mailbox::slot::Slot;
pub(crate) use crate::process::mailbox::wakes::{Own, Wakes};

/// The shared half of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    /// Room for the oldest message.
    slot: Slot<M>,
    state: Lock<State<M>>,
}

impl<M> Inbox<M> {
    /// For messages without bound, or with this one, of which nothing is to be got round by `limit`.
    #[inline(always)]
    pub(crate) fn new(bound: Bound, limit: Option<usize>) -> Self {
        let bounded =
            |(policy, most)| Box::new(RareParts { bounded: Some(Bounded::new(policy, most)), ..RareParts::default() });
        // First, and not in the midst of what is written in its place.
        let aside = bound.within(limit).map(bounded);
        let (slot, lent) = Slot::new();
        Self {
            slot,
            state: Lock::new(State {
                buffer: Buffer::new(),
                lent,
                aside,
                waiting: Waiting::Nobody,
                closed: false,
                longest: 0,
            }),
        }
    }

    #[inline]
    fn lock(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock() }
    }

    /// The same for its receiver: there may be one that sends without end.
    #[inline]
    fn lock_to_receive(&self) -> Locked<'_, M> {
        Locked { slot: &self.slot, state: self.state.lock_patiently() }
    }

    /// How many messages its receiver has before it, the one in hand included; and a number that grows with each that it
    /// takes. Of an inbox with a bound.
    pub(crate) fn load(&self) -> (usize, u64) {
        self.state.lock().bounded().map_or((0, 0), |bounded| (bounded.load(), bounded.taken()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Of an inbox that was closed, whose process has ended: the waker of the receiver, and those of the senders that wait.
    ///
    /// The receiver may not wait by that waker any more, because it has waited as the task of the process since. The waker is
    /// taken nevertheless: it may refer to the process itself, whose memory would never be freed.
    pub(crate) fn disperse(&self) -> (Option<Waker>, Vec<Waker>) {
        let mut state = self.state.lock();
        (state.other(), state.bounded().map_or_else(Vec::new, Bounded::strand))
    }

    /// Takes the waker of a receiver that has found the process ended, after [`disperse`](Self::disperse).
    #[cold]
    pub(crate) fn forget_reader(&self) -> Option<Waker> {
        self.state.lock().other()
    }

    /// How many messages and signals wait here.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.untaken() + state.aside.as_deref().map_or(0, |aside| aside.signals.len())
    }

    /// The most messages that waited here at once; without a bound, that were taken out at once or wait now.
    pub(crate) fn high(&self) -> usize {
        let mut state = self.lock();
        match state.bounded() {
            Some(bounded) => bounded.high(),
            // One that was delivered was alone, or was counted with those that came behind it.
            None => state.messages().len().max(state.longest as usize).max(usize::from(self.slot.taken() != 0)),
        }
    }

    /// Refuses everything from now on, and hands out what was there, if anything was. Whoever waits, or begins to before
    /// the end is known, is woken by [`disperse`](Self::disperse) once it is: sooner it would find nothing and wait again.
    #[inline]
    pub(crate) fn close(&self) -> Option<ClosedContents<M>> {
        let mut state = self.lock();
        state.closed = true;
        let is_bare = state.aside.is_none() && state.messages().is_bare();
        (!is_bare).then(|| state.take_remains())
    }
}
