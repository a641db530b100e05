//! The cell that the caller and the callee of one call share. The cell contains a [reply slot](ReplySlot) for the
//! answer. The caller has the [`ReplyReceiver`], and the callee has the [`ReplySender`]. Either of the two halves may
//! be dropped first. The cell also has a part that only the caller accesses. This part contains the state of the
//! request.
//!
//! Usually, the task of a process makes a call, and then waits only for the answer. Therefore, if a process makes a
//! call during a turn, the task of the process is immediately registered as the listener of the slot. The answer wakes
//! the listener. The registered task needs no lock to wait for the answer. If the callee has already dropped the
//! `ReplySender`, the task also needs no lock to take the answer.

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

    /// Registers `waker`: the answer will wake this waker. `is_task` is true if two conditions hold: this thread runs a
    /// step of the calling process, and `waker` is the waker of the process's task. If a [`take`](Self::take) after
    /// this call returns `None`, the answer will wake `waker`.
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

    /// Returns true if the caller no longer waits. If the caller still waits, registers `watcher` under `key`. The slot
    /// wakes `watcher` when the caller no longer waits.
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

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::Wake;

    use super::*;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::{AtomicU32, Ordering};

    /// Counts how often the task of the caller is woken.
    #[derive(Default)]
    struct Party(Rc<Cell<u32>>);

    impl CallParty for Party {
        fn wake(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type Receiver = ReplyReceiver<Party, u8, u64>;
    type Sender = ReplySender<Party, u8, u64>;

    /// Returns both halves of a cell, and the counter of the wake-ups of the task.
    fn cell(task_listens: bool) -> (Receiver, Sender, Rc<Cell<u32>>) {
        let wakes = Rc::new(Cell::new(0));
        let (receiver, sender) = ReplyReceiver::new(task_listens, || Party(Rc::clone(&wakes)), || 7);
        (receiver, sender, wakes)
    }

    /// The answer wakes the listener that was registered last.
    #[test]
    fn the_answer_wakes_the_last_listener() {
        #[derive(Debug, Clone, Copy)]
        enum Step {
            Task,
            Other,
            Later,
        }
        use Step::{Later, Other, Task};
        let cases: [(bool, &[Step], (u32, u32)); 11] = [
            (true, &[], (1, 0)),
            (false, &[], (0, 0)),
            (true, &[Task], (1, 0)),
            (false, &[Task], (1, 0)),
            (true, &[Other], (0, 1)),
            (true, &[Other, Task], (1, 0)),
            (false, &[Task, Other], (0, 1)),
            (true, &[Later], (0, 0)),
            (true, &[Later, Task], (1, 0)),
            (false, &[Other, Later], (0, 1)),
            (false, &[Task, Later], (0, 0)),
        ];
        for (task_listens, steps, expected) in cases {
            let (mut receiver, sender, wakes) = cell(task_listens);
            let other = Arc::new(Counter::default());
            let waker = Arc::clone(&other).into();
            for step in steps {
                match step {
                    Task => receiver.listen(true, &waker),
                    Other => receiver.listen(false, &waker),
                    Later => receiver.listen_later(),
                }
            }
            assert_eq!(receiver.take(), None);
            assert!(sender.answer(5).is_ok());
            assert_eq!((wakes.get(), other.0.load(Ordering::Relaxed)), expected, "{task_listens} {steps:?}");
            assert_eq!((receiver.take(), receiver.take()), (Some(5), None));
        }
    }

    /// If the caller no longer waits, the slot wakes the watcher of the callee, and `answer` returns the answer to the
    /// callee.
    #[test]
    fn a_closed_cell_refuses_the_answer() {
        let (receiver, sender, wakes) = cell(true);
        let (watcher, removed) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let [mut key, mut removed_key] = [(); 2].map(|()| WatchKey::default());
        assert!(!sender.watch(&mut key, &Arc::clone(&watcher).into()));
        assert!(!sender.watch(&mut removed_key, &Arc::clone(&removed).into()));
        sender.unwatch(&mut removed_key);
        assert!(!sender.is_closed());
        receiver.close();
        assert_eq!([&watcher, &removed].map(|waker| waker.0.load(Ordering::Relaxed)), [1, 0]);
        assert!(sender.is_closed() && sender.watch(&mut key, Waker::noop()));
        let (sender, answer) = sender.answer(5).map_err(|(sender, answer)| (sender.address(), answer)).unwrap_err();
        assert_eq!((answer, wakes.get()), (5, 0));
        assert_ne!(sender, 0);
    }

    /// The methods of each half give access to the parts that belong to this half. The callee's half is alone if the
    /// caller's half was dropped or never existed.
    #[test]
    fn the_halves_give_access_to_their_parts() {
        let (mut receiver, mut sender, wakes) = cell(false);
        *receiver.parts().1 += 1;
        assert_eq!(*receiver.parts().1, 8);
        assert!(Rc::ptr_eq(&receiver.parts().0.0, &wakes));
        assert!(Rc::ptr_eq(&receiver.party().0, &wakes) && Rc::ptr_eq(&(*sender).0, &wakes));
        assert!(sender.party_if_alone().is_none());
        drop(receiver);
        assert!(Rc::ptr_eq(&sender.party_if_alone().expect("the other half is dropped").0, &wakes));
        let mut alone = Sender::alone(Party(Rc::clone(&wakes)), || 7);
        assert!(alone.party_if_alone().is_some() && !alone.is_closed());
        let addresses = [alone.address(), sender.address()];
        assert_ne!(addresses[0], addresses[1]);
        drop((alone, sender));
        assert_eq!(Rc::strong_count(&wakes), 1);
    }
}
