//! The cell that the caller and the callee of one call share. The cell contains a [reply slot](ReplySlot) for the
//! answer. The caller has the [`ReplyReceiver`], and the callee has the [`ReplySender`]. The caller or the callee may
//! drop its half first. The cell also has a part that only the caller accesses. This part contains the state of the
//! request.
//!
//! Usually, the task of a process makes a call, and then waits only for the answer. Therefore, a call in a turn of a
//! process immediately registers the task of the process as the listener of the slot. The answer wakes the listener.
//! The registered task needs no lock to wait for the answer. If the callee has already dropped its half, the task also
//! needs no lock to take the answer.

use std::ops::Deref;
use std::task::Waker;

use crate::platform::shared_cell::{Half, OwnerHalf};
use crate::process::state::reply_slot::{Listener, ReplySlot};
use crate::process::watchers::WatchKey;

/// The caller's data. Both halves of the cell can access this data.
pub(crate) trait CallParty {
    /// Wakes the task of the calling process.
    fn wake(&self);
}

/// The part of the cell that both halves share.
///
/// The callee accesses the counter of the cell, the data of the caller, and the answer. If the answer has at most 16
/// bytes, the counter, the data and the answer are in one cache line.
#[repr(C)]
pub(crate) struct Shared<P, A> {
    party: P,
    slot: ReplySlot<A>,
}

/// The part of the cell that only the caller's half accesses.
pub(crate) struct CallerPart<O> {
    /// Whether the listener is the task of the calling process.
    task_listens: bool,
    stage: O,
}

/// The caller's half of the cell. The caller's half has access to the whole cell.
pub(crate) struct ReplyReceiver<P, O, A>(OwnerHalf<Shared<P, A>, CallerPart<O>>);

/// The callee's half of the cell. The callee's half has access only to the shared part of the cell.
pub(crate) struct ReplySender<P, O, A>(Half<Shared<P, A>, CallerPart<O>>);

impl<P: CallParty, O, A> ReplyReceiver<P, O, A> {
    /// Creates the cell and both halves. If `task_listens` is true, the answer wakes the task of the calling process.
    #[inline(always)]
    pub(crate) fn new(
        task_listens: bool,
        party: impl FnOnce() -> P,
        stage: impl FnOnce() -> O,
    ) -> (Self, ReplySender<P, O, A>) {
        let shared = || Shared { party: party(), slot: ReplySlot::new(task_listens) };
        let (owner, peer) = OwnerHalf::with_peer(shared, || CallerPart { task_listens, stage: stage() });
        (Self(owner), ReplySender(peer))
    }

    /// Returns the shared data of the caller, and the state that only the caller accesses.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&P, &mut O) {
        let (shared, own) = self.0.parts();
        (&shared.party, &mut own.stage)
    }

    pub(crate) fn party(&self) -> &P {
        &self.0.party
    }

    /// Registers `waker`: the answer will wake this waker. `is_task` is true if `waker` is the waker of the calling
    /// process's task, and this thread runs a step of this process. If a [`take`](Self::take) after this call returns
    /// `None`, the answer will wake `waker`.
    pub(crate) fn listen(&mut self, is_task: bool, waker: &Waker) {
        let (shared, own) = self.0.parts();
        if is_task && own.task_listens {
            return;
        }
        shared.slot.listen(Some(if is_task { Listener::Task } else { Listener::Other(waker.clone()) }));
        own.task_listens = is_task;
    }

    /// Removes the task as the listener. The answer wakes no task until the next call of [`listen`](Self::listen).
    pub(crate) fn listen_later(&mut self) {
        let (shared, own) = self.0.parts();
        if own.task_listens {
            own.task_listens = false;
            shared.slot.listen(None);
        }
    }

    /// Takes the answer. Returns `None` if the answer has not arrived.
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

    /// Closes the slot: the caller no longer waits for the answer. Wakes each waker that [`watch`](ReplySender::watch)
    /// has registered.
    pub(crate) fn close(&self) {
        drop(self.0.slot.close());
    }
}

impl<P: CallParty, O, A> ReplySender<P, O, A> {
    /// Creates the callee's half of a cell that has no caller's half.
    pub(crate) fn alone(party: P, stage: impl FnOnce() -> O) -> Self {
        let shared = || Shared { party, slot: ReplySlot::new(false) };
        Self(Half::alone(shared, || CallerPart { task_listens: false, stage: stage() }))
    }

    /// Stores the answer and wakes the caller.
    ///
    /// # Errors
    /// Returns this half and the answer if the caller no longer waits.
    #[inline(always)]
    pub(crate) fn answer(self, answer: A) -> Result<(), (Self, A)> {
        let shared = &*self.0;
        shared.slot.send(answer, || shared.party.wake()).map_err(|answer| (self, answer))
    }

    /// Returns true if the caller no longer waits. In this case, the slot refuses an answer.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.slot.is_closed()
    }

    /// Returns true if the caller no longer waits. If the caller still waits, registers `watcher` with `key`, and the
    /// slot wakes `watcher` when the caller no longer waits.
    pub(crate) fn watch(&self, key: &mut WatchKey, watcher: &Waker) -> bool {
        self.0.slot.watch(key, watcher)
    }

    /// Removes the waker that [`watch`](Self::watch) has stored for `key`.
    pub(crate) fn unwatch(&self, key: &mut WatchKey) {
        self.0.slot.unwatch(key);
    }

    /// Returns the address of the cell. The address identifies the call as long as this half exists.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(&*self.0).addr()
    }

    /// Returns the data of the caller if the callee's half is the only half of the cell.
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
