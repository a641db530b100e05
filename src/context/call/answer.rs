//! The two ends of the answer to one call: a [reply slot](ReplySlot) in a cell with two halves. The caller has the
//! [`ReplyReceiver`], and the callee has the [`ReplySender`]. Either end may be dropped first. The caller has a part of
//! the cell for itself, for the state of the request.
//!
//! Usually the caller is a process whose own task makes the call and then waits only for the answer. So the slot of a
//! call that is made in a turn of this task has the task as its listener from the start. Such a caller needs no lock to
//! wait, and none to take the answer if the callee has already dropped its half.

use std::ops::Deref;
use std::task::Waker;

use crate::platform::shared_cell::{Half, OwnerHalf};
use crate::process::state::reply_slot::{Listener, ReplySlot};

/// The data of the caller that both ends can access.
pub(crate) trait CallParty {
    /// Wakes the task of the calling process.
    fn wake(&self);
}

/// The part of the cell that both ends share.
pub(crate) struct Shared<P, A> {
    party: P,
    slot: ReplySlot<A>,
}

/// The part of the cell that only the caller's end accesses.
pub(crate) struct CallerPart<O> {
    /// Whether the listener is the task of the calling process.
    task_listens: bool,
    stage: O,
}

/// The caller's end. It includes the caller's own part of the cell.
pub(crate) struct ReplyReceiver<P, O, A>(OwnerHalf<Shared<P, A>, CallerPart<O>>);

/// The callee's end.
pub(crate) struct ReplySender<P, O, A>(Half<Shared<P, A>, CallerPart<O>>);

impl<P: CallParty, O, A> ReplyReceiver<P, O, A> {
    /// Makes both ends. If `task_listens` is set, the answer wakes the task of the calling process.
    #[inline(always)]
    pub(crate) fn new(
        task_listens: bool,
        party: impl FnOnce() -> P,
        stage: impl FnOnce() -> O,
    ) -> (Self, ReplySender<P, O, A>) {
        let shared = || Shared { party: party(), slot: ReplySlot::new(task_listens.then_some(Listener::Task)) };
        let (owner, peer) = OwnerHalf::with_peer(shared, || CallerPart { task_listens, stage: stage() });
        (Self(owner), ReplySender(peer))
    }

    /// Returns the part that both ends know, and the caller's own part.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&P, &mut O) {
        let (shared, own) = self.0.parts();
        (&shared.party, &mut own.stage)
    }

    pub(crate) fn party(&self) -> &P {
        &self.0.party
    }

    /// Has the answer wake `waker`. If `is_task` is set, `waker` is the waker of the caller's task, and this thread is
    /// in a step of that task. A [`take`](Self::take) that follows either returns the answer, or the answer will wake
    /// `waker`.
    pub(crate) fn listen(&mut self, is_task: bool, waker: &Waker) {
        let (shared, own) = self.0.parts();
        if is_task && own.task_listens {
            return;
        }
        shared.slot.listen(Some(if is_task { Listener::Task } else { Listener::Other(waker.clone()) }));
        own.task_listens = is_task;
    }

    /// Has the answer wake no task until the next [`listen`](Self::listen).
    pub(crate) fn listen_later(&mut self) {
        let (shared, own) = self.0.parts();
        if own.task_listens {
            own.task_listens = false;
            shared.slot.listen(None);
        }
    }

    /// Takes the answer, if it is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<A> {
        if !self.0.slot.may_be_full() {
            return None;
        }
        match self.0.value_if_alone() {
            Some(shared) => shared.slot.take_mut(),
            None => self.0.slot.take(),
        }
    }

    /// Ends the call without an answer, and wakes the watchers.
    pub(crate) fn close(&self) {
        drop(self.0.slot.close());
    }
}

impl<P: CallParty, O, A> ReplySender<P, O, A> {
    /// Makes the callee's end of a cell that has no caller.
    pub(crate) fn alone(party: P, stage: impl FnOnce() -> O) -> Self {
        let shared = || Shared { party, slot: ReplySlot::new(None) };
        Self(Half::alone(shared, || CallerPart { task_listens: false, stage: stage() }))
    }

    /// Stores the answer and wakes the caller.
    ///
    /// # Errors
    /// Returns this end and the answer if the caller has stopped waiting.
    #[inline(always)]
    pub(crate) fn answer(self, answer: A) -> Result<(), (Self, A)> {
        let shared = &*self.0;
        shared.slot.send(answer, || shared.party.wake()).map_err(|answer| (self, answer))
    }

    /// Returns whether the caller has stopped waiting. If so, an answer is refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.slot.is_closed()
    }

    /// Returns whether the caller has stopped waiting. If not, `watcher` is woken when the caller stops waiting.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        self.0.slot.watch(watcher)
    }

    /// Returns the caller data of a cell that has no caller.
    pub(crate) fn party_if_alone(&mut self) -> Option<&mut P> {
        self.0.value_if_alone().map(|shared| &mut shared.party)
    }
}

impl<P, O, A> Deref for ReplySender<P, O, A> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        &self.0.party
    }
}
