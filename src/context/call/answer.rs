//! A oneshot channel for the answer to one call. The caller has the [`ReplyReceiver`], and the callee has the
//! [`ReplySender`]. Either end may be dropped first. The other end can detect the drop. The memory management is in
//! `shared_cell`.
//!
//! Usually the caller is a process whose own task sends the request and then waits only for the answer. In this case,
//! the caller sets `task_waits` before the send, and the callee answers without a lock. The callee stores the answer,
//! wakes the task of the caller, and releases its half of the cell. If the caller waits with another waker, the caller
//! stores this waker under a lock. After the callee has stored the answer, the callee takes the same lock. Therefore
//! either the callee finds the waker, or the caller finds the answer.
//!
//! A caller can change its waker: when the request was sent, the caller waited with the waker of its task, and now the
//! caller waits with another waker. If the callee has not seen the change, the callee wakes only the task. Therefore a
//! caller that changes its waker also [holds](OwnerHalf::hold) the cell. When the callee releases its half, the callee
//! detects the hold, and then also searches for the waker under the lock.

use std::mem;
use std::ops::Deref;
use std::task::{Poll, Waker};

use crate::platform::shared_cell::{OwnerHalf, PeerHalf};
use crate::platform::sync::Lock;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::process::catch as panic;

/// The data of the caller that both ends of the channel can access.
pub(crate) trait CallParty {
    /// Wakes the task of the calling process.
    fn wake(&self);
}

/// The part of the cell that both ends share.
#[derive(Debug)]
pub(crate) struct AnswerChannel<P> {
    party: P,
    /// Whether the task of the caller waits with its own waker. The caller sets this flag before the request is sent.
    /// Only the caller writes this flag.
    task_waits: AtomicBool,
    /// Whether the caller has stopped waiting. The flag is written under the lock.
    is_closed: AtomicBool,
    listeners: Lock<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    asker: Option<Listener>,
    /// Wakers that are woken when the caller stops waiting. Because the list is rarely needed, the list is boxed, and
    /// the field takes only one word.
    #[expect(clippy::box_collection, reason = "one word in each call, not three")]
    watchers: Option<Box<Vec<Waker>>>,
}

/// How the callee wakes the caller when the answer is in the cell.
#[derive(Debug)]
enum Listener {
    /// The callee wakes the task of the calling process.
    Task,
    Other(Waker),
}

/// The caller's end of the channel. This end includes the part of the cell that only the caller uses.
pub(crate) struct ReplyReceiver<P, O, A>(OwnerHalf<AnswerChannel<P>, O, A>);

/// The callee's end of the channel.
pub(crate) struct ReplySender<P, O, A>(PeerHalf<AnswerChannel<P>, O, A>);

impl<P: CallParty> AnswerChannel<P> {
    #[inline(always)]
    fn new(party: P) -> Self {
        Self {
            party,
            task_waits: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            listeners: Lock::new(Listeners { asker: None, watchers: None }),
        }
    }

    /// Notifies the caller that the answer is in the cell.
    #[inline]
    fn tell(&self) {
        // Relaxed suffices. The caller sets the flag before the caller sends the request, and the callee has received
        // the request. If the caller has cleared the flag since then, a stale `true` only causes one unnecessary
        // wake-up of the task. After `poll` has cleared the flag, `poll` calls `hold`. If `hold` comes before the
        // `compare_exchange` in `leave`, then `leave` calls `tell_listener`. If `hold` comes after the
        // `compare_exchange`, the same `poll` takes the answer.
        if self.task_waits.load(Ordering::Relaxed) { self.party.wake() } else { self.tell_listener() }
    }

    fn tell_listener(&self) {
        let listener = self.listeners.lock().asker.take();
        match listener {
            Some(Listener::Task) => self.party.wake(),
            Some(Listener::Other(waker)) => panic::wake(waker),
            None => {}
        }
    }
}

impl<P: CallParty, O, A> ReplyReceiver<P, O, A> {
    /// Makes both ends of a channel.
    #[inline(always)]
    pub(crate) fn new(party: impl FnOnce() -> P, own: impl FnOnce() -> O) -> (Self, ReplySender<P, O, A>) {
        let (owner, guest) = OwnerHalf::with_peer(|| AnswerChannel::new(party()), own);
        (Self(owner), ReplySender(guest))
    }

    /// Returns the data that both ends share, and the data that only the caller uses.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&P, &mut O) {
        let (question, own) = self.0.parts();
        (&question.party, own)
    }

    pub(crate) fn party(&self) -> &P {
        &self.0.party
    }

    /// Records that the task of the caller waits with its own waker. The caller calls this in a step of its task,
    /// before the request is sent.
    #[inline]
    pub(crate) fn task_waits(&self) {
        self.0.task_waits.store(true, Ordering::Relaxed);
    }

    /// Returns whether there is an answer. The result may be out of date.
    #[inline]
    pub(crate) fn may_be_answered(&self) -> bool {
        self.0.may_have_item()
    }

    /// Takes the answer, if the answer is in the cell.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<A> {
        self.0.take()
    }

    /// Takes the answer. If there is no answer, registers `waker` to be woken when the answer is in the cell. If
    /// `is_task` is true, `waker` is the waker of the caller's task, and this thread is in a step of that task.
    pub(crate) fn poll(&mut self, is_task: bool, waker: &Waker) -> Poll<A> {
        let did_wait = self.0.task_waits.load(Ordering::Relaxed);
        // If the task still waits with its own waker, no listener is needed. If `take` misses an answer, the callee
        // wakes the task afterwards. This wake-up happens during the turn of the task or later, so it causes another
        // turn, and that turn takes the answer.
        if !(did_wait && is_task) {
            // `clone` and `drop` of a waker run user code. Therefore both are called without the lock.
            let listener = if is_task { Listener::Task } else { Listener::Other(waker.clone()) };
            let former = self.0.listeners.lock().asker.replace(listener);
            drop(former);
            if did_wait {
                self.0.task_waits.store(false, Ordering::Relaxed);
                self.0.hold();
            }
        }
        self.0.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Ends the call without an answer, and wakes the watchers.
    pub(crate) fn close(self) {
        let mut listeners = self.0.listeners.lock();
        self.0.is_closed.store(true, Ordering::Relaxed);
        let left = mem::take(&mut *listeners);
        drop(listeners);
        left.watchers.into_iter().flat_map(|watchers| *watchers).for_each(panic::wake);
    }
}

impl<P: CallParty, O, A> ReplySender<P, O, A> {
    /// Makes the callee's end of a channel that has no caller.
    pub(crate) fn alone(party: P, own: impl FnOnce() -> O) -> Self {
        Self(PeerHalf::alone(|| AnswerChannel::new(party), own))
    }

    /// Stores the answer and wakes the caller.
    ///
    /// # Errors
    /// Returns this end and the answer if the caller has stopped waiting.
    #[inline(always)]
    pub(crate) fn answer(self, answer: A) -> Result<(), (Self, A)> {
        // Relaxed suffices. A callee that was woken as a watcher sees the store in `close`. In all other cases, this
        // load may miss the store. If the owner half is already dropped, `leave` returns the answer. If the owner half
        // still exists, `leave` succeeds, and the owner half later drops the answer with the cell.
        if self.is_closed() {
            return Err((self, answer));
        }
        let left = self.0.leave(answer, AnswerChannel::tell, AnswerChannel::tell_listener);
        left.map_err(|(guest, answer)| (Self(guest), answer))
    }

    /// Returns whether the caller has stopped waiting. After that, an answer is refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    /// Returns whether the caller has stopped waiting. If the caller still waits, `watcher` is woken when the caller
    /// stops waiting.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let fresh = watcher.clone();
        let mut listeners = self.0.listeners.lock();
        if self.is_closed() {
            drop(listeners);
            return true;
        }
        let watchers = listeners.watchers.get_or_insert_default();
        if !watchers.iter().any(|known| known.will_wake(watcher)) {
            watchers.push(fresh);
        }
        false
    }

    /// Applies `f` to the caller data of a cell that has no caller, and drops the cell.
    ///
    /// # Errors
    /// Returns this end if there is a caller.
    pub(crate) fn finish<R>(self, f: impl FnOnce(&mut P) -> R) -> Result<R, Self> {
        self.0.finish(|question| f(&mut question.party)).map_err(Self)
    }
}

impl<P, O, A> Deref for ReplySender<P, O, A> {
    type Target = P;

    #[inline]
    fn deref(&self) -> &P {
        &self.0.party
    }
}
