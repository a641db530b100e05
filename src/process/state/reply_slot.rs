//! Slot for one answer, under a small lock. The sender stores the answer and wakes the receiver. The sender can also
//! observe that the receiver has left. The slot does not count the references to the slot. The slot of a call is part
//! of a cell with two references (`context::call::answer`). A slot of the blocking pool or of a handler layer is inside
//! an `Arc`.
//!
//! The code does not use `futures::channel::oneshot`. A handler layer may call an inner handler. The inner handler then
//! has only a borrowed sender. With a borrowed `oneshot::Sender`, the inner handler could not wait until the receiver
//! leaves.
//!
//! No user code runs under the lock: wakers are cloned, woken and dropped only while the lock is not held.

use std::mem;
use std::task::{Poll, Waker};

use crate::platform::sync::atomic::{AtomicU8, Ordering};
use crate::platform::sync::{Lock, planted};
use crate::process::catch as panic;
use crate::process::watchers::{WatchKey, Watchers};

/// The way in which the sender wakes the receiver.
#[derive(Debug)]
pub(crate) enum Listener {
    /// The sender calls the function `wake_task` that the sender has passed to [`send`](ReplySlot::send).
    Task,
    Other(Waker),
}

/// Bits of [`ReplySlot::phase`].
mod bit {
    /// The slot contains an answer.
    pub(super) const FULL: u8 = 1;
    /// The receiver has taken the answer, or has left.
    pub(super) const OVER: u8 = 1 << 1;
    /// The sender wakes the receiver through the receiver's task.
    pub(super) const TASK: u8 = 1 << 2;
    /// The fields `listener` and `watchers` of the `State` may contain wakers.
    pub(super) const WAKERS: u8 = 1 << 3;
}

/// The answer is the first field, because a sender usually accesses only this field. The sender accesses the other
/// fields only if the bit [`WAKERS`](bit::WAKERS) is set.
#[derive(Debug)]
#[repr(C)]
struct State<T> {
    answer: Option<T>,
    /// Waker of the receiver, if the sender does not wake the receiver through the receiver's task.
    listener: Option<Waker>,
    /// Wakers that are woken if the receiver leaves or an answer is sent. The list is boxed, because it is rarely
    /// needed, and a boxed list takes only one word.
    watchers: Option<Box<Watchers>>,
}

impl<T> State<T> {
    #[inline(always)]
    fn empty() -> Self {
        Self { answer: None, listener: None, watchers: None }
    }
}

/// Slot for one answer.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReplySlot<T> {
    /// The state of the slot, as bits of the module [`bit`]. The phase is written only under the lock or with a `&mut`
    /// reference to the slot. No code relies on a read without the lock: such a read is only a hint. Therefore, all
    /// accesses are relaxed.
    phase: AtomicU8,
    state: Lock<State<T>>,
}

impl<T> ReplySlot<T> {
    /// Creates a slot. If `task_listens` is true, the sender wakes the receiver through the receiver's task.
    #[inline(always)]
    pub(crate) fn new(task_listens: bool) -> Self {
        let phase = if task_listens { bit::TASK } else { 0 };
        Self { phase: AtomicU8::new(phase), state: Lock::new(State::empty()) }
    }

    #[inline]
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Stores the answer, and wakes the receiver and the watchers. Calls `wake_task` if the receiver is woken through
    /// its task.
    ///
    /// # Errors
    /// Returns the answer if the receiver has left, or if an answer was sent before.
    #[inline]
    pub(crate) fn send(&self, answer: T, wake_task: impl FnOnce()) -> Result<(), T> {
        let mut state = self.state.lock();
        let phase = self.phase();
        if phase & (bit::FULL | bit::OVER) != 0 {
            drop(state);
            return Err(answer);
        }
        let has_wakers = phase & bit::WAKERS != 0;
        let (listener, watchers) =
            if has_wakers { (state.listener.take(), state.watchers.take()) } else { (None, None) };
        let wake = || {
            if phase & bit::TASK != 0 {
                wake_task();
            }
            listener.into_iter().for_each(panic::wake);
        };
        if planted!("reply_wakes_early") {
            drop(state);
            wake();
            self.state.lock().answer = Some(answer);
            self.set(bit::FULL);
            return Ok(());
        }
        state.answer = Some(answer);
        self.set(bit::FULL);
        drop(state);
        match watchers {
            None => wake(),
            // From now on, the slot refuses further answers, like a closed slot. Therefore, the watchers must be woken.
            Some(watchers) => panic::delay_wakers(|| {
                wake();
                watchers.into_wakers().for_each(panic::wake);
            }),
        }
        Ok(())
    }

    /// Sets how the sender wakes the receiver. If a later call of [`take`](Self::take) finds no answer, the sender of
    /// the answer will wake the receiver in this way.
    pub(crate) fn listen(&self, listener: Option<Listener>) {
        let mut state = self.state.lock();
        let phase = self.phase();
        if planted!("reply_keeps_listener") && (phase & bit::TASK != 0 || state.listener.is_some()) {
            return;
        }
        let (bits, waker) = match listener {
            Some(Listener::Task) => (bit::TASK, None),
            Some(Listener::Other(waker)) => (bit::WAKERS, Some(waker)),
            None => (0, None),
        };
        self.set(phase & !bit::TASK | bits);
        let former = mem::replace(&mut state.listener, waker);
        drop(state);
        drop(former);
    }

    /// Returns whether the slot contains an answer. The result may already be out of date.
    #[inline]
    pub(crate) fn may_be_full(&self) -> bool {
        self.phase() & bit::FULL != 0
    }

    /// Takes the answer out of the slot. Returns `None` if there is no answer. The check before the lock can miss an
    /// answer that is stored at the same time. In this case, the sender locks the slot after the most recent call of
    /// [`listen`](Self::listen). Therefore, the sender wakes the listener that this call has set.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        if !self.may_be_full() {
            return None;
        }
        let mut state = self.state.lock();
        self.set(bit::OVER);
        state.answer.take()
    }

    /// Takes the answer out of the slot without the lock. No lock is needed, because `&mut self` excludes all other
    /// users of the slot.
    #[inline]
    pub(crate) fn take_mut(&mut self) -> Option<T> {
        self.set(bit::OVER);
        self.state.get_mut().answer.take()
    }

    /// Takes the answer. If there is no answer yet, registers `waker`.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<T> {
        if !self.may_be_full() {
            self.listen(Some(Listener::Other(waker.clone())));
        }
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Records that the receiver leaves. From now on, answers are refused. This function wakes the watchers, and
    /// returns an answer that was sent and not taken.
    pub(crate) fn close(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.set(bit::OVER);
        let State { answer, listener, watchers } = mem::replace(&mut *state, State::empty());
        drop(state);
        panic::wake_each(watchers.into_iter().flat_map(|watchers| watchers.into_wakers()));
        // The drop of a waker runs user code.
        let _ = panic::drop_caught(listener);
        answer
    }

    /// Returns whether an answer would be refused now. The result may already be out of date.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() & (bit::FULL | bit::OVER) != 0
    }

    /// Returns the same result as [`is_closed`](Self::is_closed). If the result is false, this function stores
    /// `watcher` in the entry of `key`, and `watcher` is woken when the receiver leaves or an answer is sent.
    pub(crate) fn watch(&self, key: &mut WatchKey, watcher: &Waker) -> bool {
        let mut fresh = Some(watcher.clone());
        let is_closed = self.is_closed();
        let mut state = self.state.lock();
        let is_closed = if planted!("reply_watch_looks_early") { is_closed } else { self.is_closed() };
        if !is_closed {
            self.set(self.phase() | bit::WAKERS);
            let watchers = state.watchers.get_or_insert_default();
            fresh = fresh.take().and_then(|fresh| watchers.set(key, fresh));
        }
        drop(state);
        // If the slot is closed, `fresh` is the clone of `watcher`. Otherwise, `fresh` is the previous waker of the
        // entry.
        drop(fresh);
        is_closed
    }

    /// Removes the waker that [`watch`](Self::watch) has stored for `key`, if this waker was not woken.
    pub(crate) fn unwatch(&self, key: &mut WatchKey) {
        if !key.is_set() {
            return;
        }
        let mut state = self.state.lock();
        let former = state.watchers.as_mut().and_then(|watchers| watchers.remove(key));
        drop(state);
        // The drop of a waker runs user code.
        let _ = panic::drop_caught(former);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::AtomicU32;

    /// Waker that counts its calls.
    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Counter {
        fn waker(self: &Arc<Self>) -> Waker {
            Arc::clone(self).into()
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Sends `answer`, and returns the result and the number of calls of `wake_task`.
    fn send(slot: &ReplySlot<u64>, answer: u64) -> (Result<(), u64>, u32) {
        let mut wakes = 0;
        (slot.send(answer, || wakes += 1), wakes)
    }

    /// The answer wakes only the listener that was set last.
    #[test]
    fn the_answer_wakes_the_last_listener() {
        let [one, other] = [(); 2].map(|()| Arc::new(Counter::default()));
        let listens = |listener: &str| match listener {
            "task" => Some(Listener::Task),
            "one" => Some(Listener::Other(one.waker())),
            "other" => Some(Listener::Other(other.waker())),
            _ => None,
        };
        let cases: [(bool, &[&str], [u32; 3]); 9] = [
            (true, &[], [1, 0, 0]),
            (false, &[], [0, 0, 0]),
            (true, &["none"], [0, 0, 0]),
            (false, &["task"], [1, 0, 0]),
            (true, &["one"], [0, 1, 0]),
            (false, &["one", "other"], [0, 0, 1]),
            (false, &["one", "task"], [1, 0, 0]),
            (false, &["task", "one"], [0, 1, 0]),
            (true, &["one", "none"], [0, 0, 0]),
        ];
        for (task_listens, listeners, wakes) in cases {
            let slot = ReplySlot::new(task_listens);
            listeners.iter().for_each(|listener| slot.listen(listens(listener)));
            let before = [0, one.count(), other.count()];
            let (sent, task) = send(&slot, 5);
            assert_eq!(sent, Ok(()));
            let after = [task, one.count(), other.count()];
            assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), wakes, "{task_listens} {listeners:?}");
            drop(slot);
            assert_eq!([&one, &other].map(Arc::strong_count), [1, 1], "the slot keeps no waker");
        }
    }

    /// A slot accepts one answer. The answer is taken once, and all later answers are refused.
    #[test]
    fn a_slot_accepts_one_answer() {
        let takes: [fn(&mut ReplySlot<u64>) -> Option<u64>; 3] =
            [|slot| slot.take(), ReplySlot::take_mut, |slot| slot.close()];
        for take in takes {
            let mut slot = ReplySlot::new(true);
            assert!(!slot.may_be_full() && !slot.is_closed());
            assert_eq!(slot.take(), None);
            assert!(!slot.is_closed());
            assert_eq!(send(&slot, 5), (Ok(()), 1));
            assert!(slot.may_be_full() && slot.is_closed());
            assert_eq!(send(&slot, 6), (Err(6), 0));
            assert_eq!(take(&mut slot), Some(5));
            assert!(!slot.may_be_full() && slot.is_closed());
            assert_eq!((slot.take(), slot.take_mut(), slot.close()), (None, None, None));
            assert_eq!(send(&slot, 7), (Err(7), 0));
        }
        let slot = ReplySlot::new(true);
        assert_eq!(slot.close(), None);
        assert!(slot.is_closed());
        assert_eq!(send(&slot, 8), (Err(8), 0));
    }

    #[test]
    fn a_poll_registers_its_waker() {
        let [one, other] = [(); 2].map(|()| Arc::new(Counter::default()));
        let slot = ReplySlot::new(false);
        assert_eq!(slot.poll(&one.waker()), Poll::Pending);
        assert_eq!(slot.poll(&other.waker()), Poll::Pending);
        assert_eq!(Arc::strong_count(&one), 1, "the second waker replaces the first one");
        assert_eq!(send(&slot, 5), (Ok(()), 0));
        assert_eq!((one.count(), other.count()), (0, 1));
        assert_eq!(slot.poll(&one.waker()), Poll::Ready(5));
        assert_eq!(Arc::strong_count(&one), 1, "a poll that finds the answer stores no waker");
    }

    /// A watcher is woken when an answer is sent and when the receiver leaves. A watcher that was replaced or removed
    /// is not woken. A closed slot stores no watcher.
    #[test]
    fn a_watcher_is_woken_when_answers_are_refused() {
        let ends: [fn(&ReplySlot<u64>); 2] =
            [|slot| assert!(send(slot, 5).0.is_ok()), |slot| assert_eq!(slot.close(), None)];
        for end in ends {
            let [replaced, removed, woken, second, late] = [(); 5].map(|()| Arc::new(Counter::default()));
            let [mut key, mut removed_key, mut second_key, mut late_key] = [(); 4].map(|()| WatchKey::default());
            let slot = ReplySlot::new(false);
            assert!(!slot.watch(&mut key, &replaced.waker()));
            assert!(!slot.watch(&mut removed_key, &removed.waker()));
            assert!(!slot.watch(&mut key, &woken.waker()));
            assert!(!slot.watch(&mut second_key, &second.waker()));
            slot.unwatch(&mut removed_key);
            assert_eq!([&replaced, &removed, &woken, &second].map(Arc::strong_count), [1, 1, 2, 2]);
            end(&slot);
            assert_eq!([&replaced, &removed, &woken, &second].map(|waker| waker.count()), [0, 0, 1, 1]);
            assert!(slot.watch(&mut late_key, &late.waker()));
            slot.unwatch(&mut key);
            slot.unwatch(&mut late_key);
            assert_eq!([&replaced, &removed, &woken, &late].map(Arc::strong_count), [1; 4]);
        }
    }

    /// The drop of a listener does not wake the listener.
    #[test]
    fn a_receiver_that_leaves_is_not_woken() {
        let listener = Arc::new(Counter::default());
        let slot = ReplySlot::<u64>::new(false);
        slot.listen(Some(Listener::Other(listener.waker())));
        assert_eq!(slot.close(), None);
        assert_eq!((listener.count(), Arc::strong_count(&listener)), (0, 1));
    }

    /// 2.6d: the waker of the receiver panics when the waker is dropped. If the receiver leaves, the watcher is still
    /// woken.
    #[test]
    fn a_panic_in_the_drop_of_the_listener_does_not_lose_a_wake_up() {
        struct Bomb;
        impl Wake for Bomb {
            fn wake(self: Arc<Self>) {}
        }
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("the waker is dropped");
            }
        }
        let (slot, watcher) = (ReplySlot::<u64>::new(false), Arc::new(Counter::default()));
        assert!(!slot.watch(&mut WatchKey::default(), &watcher.waker()));
        slot.listen(Some(Listener::Other(Arc::new(Bomb).into())));
        assert_eq!(slot.close(), None);
        assert_eq!(watcher.count(), 1);
    }
}
