//! One answer, from one who is asked to one who asks, each of whom may leave first and be noticed.
//!
//! Mostly the asker is a process that asks in its turn, and waits for nothing else: then it leaves nothing to be woken, and
//! the answer costs no lock. It is put there, the asker's task is woken, and whoever answered has gone by then. Whoever waits
//! by another waker leaves that under a lock, which the answerer takes when the answer is there: one of the two finds what the
//! other left.
//!
//! It may be that the task waited itself when the request was sent, and another waits now: an answerer that has not seen that
//! wakes the task alone. So whoever takes over [holds](OwnerHalf::hold) what both share, and an answerer that is about to go sees
//! it, and tells by the lock as well.

use std::mem;
use std::ops::Deref;
use std::task::{Poll, Waker};

use crate::context::call::shared_cell::{OwnerHalf, PeerHalf};
use crate::platform::sync::Lock;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::process::catch as panic;

/// What both know of who asks.
pub(crate) trait CallParty {
    /// Wakes the asker's own task.
    fn wake(&self);
}

/// What the two ends share.
#[derive(Debug)]
pub(crate) struct Question<P> {
    party: P,
    /// The asker's task waits itself, and did when the request was sent.
    task_waits: AtomicBool,
    /// The asker has left. Set under the lock.
    is_closed: AtomicBool,
    listeners: Lock<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    asker: Option<Listener>,
    /// Of those who want to know that the asker has left: nearly always nobody, so that is one word.
    #[expect(clippy::box_collection, reason = "one word in each call, not three")]
    watchers: Option<Box<Vec<Waker>>>,
}

/// Who is to be woken when there is an answer.
#[derive(Debug)]
enum Listener {
    /// The asker's task.
    Task,
    Other(Waker),
}

/// The end of the one who asks, with what is its own.
pub(crate) struct ReplyReceiver<P, O, A>(OwnerHalf<Question<P>, O, A>);

/// The end of the one who answers.
pub(crate) struct ReplySender<P, O, A>(PeerHalf<Question<P>, O, A>);

impl<P: CallParty> Question<P> {
    #[inline(always)]
    fn new(party: P) -> Self {
        Self {
            party,
            task_waits: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            listeners: Lock::new(Listeners { asker: None, watchers: None }),
        }
    }

    /// There is an answer.
    #[inline]
    fn tell(&self) {
        // Relaxed: it was set before the request was sent, if it was.
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
    /// Both ends.
    #[inline(always)]
    pub(crate) fn new(party: impl FnOnce() -> P, own: impl FnOnce() -> O) -> (Self, ReplySender<P, O, A>) {
        let (owner, guest) = OwnerHalf::with_guest(|| Question::new(party()), own);
        (Self(owner), ReplySender(guest))
    }

    /// What both have, and what is its own.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&P, &mut O) {
        let (question, own) = self.0.parts();
        (&question.party, own)
    }

    pub(crate) fn party(&self) -> &P {
        &self.0.party
    }

    /// The request is about to be sent, in the turn of the asker's task, which waits for the answer itself.
    #[inline]
    pub(crate) fn task_waits(&self) {
        self.0.task_waits.store(true, Ordering::Relaxed);
    }

    /// Whether there is an answer, as far as is known.
    #[inline]
    pub(crate) fn seems_answered(&self) -> bool {
        self.0.seems_given()
    }

    /// The answer, if it is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<A> {
        self.0.take()
    }

    /// Takes the answer, or has `waker` woken when it comes, which is that of the asker's task in its turn if `is_task`.
    pub(crate) fn poll(&mut self, is_task: bool, waker: &Waker) -> Poll<A> {
        let did_wait = self.0.task_waits.load(Ordering::Relaxed);
        // If the answer has come and is not seen yet, the wake that follows it begins another turn, as this one is not over;
        // and that sees it.
        if !(did_wait && is_task) {
            // Outside the lock, for a clone of a waker is somebody's code, as its drop is.
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

    /// Leaves, unanswered.
    pub(crate) fn close(self) {
        let mut listeners = self.0.listeners.lock();
        self.0.is_closed.store(true, Ordering::Relaxed);
        let left = mem::take(&mut *listeners);
        drop(listeners);
        left.watchers.into_iter().flat_map(|watchers| *watchers).for_each(panic::wake);
    }
}

impl<P: CallParty, O, A> ReplySender<P, O, A> {
    /// One whom nobody asked.
    pub(crate) fn alone(party: P, own: impl FnOnce() -> O) -> Self {
        Self(PeerHalf::alone(|| Question::new(party), own))
    }

    /// Answers, and wakes whoever waits for it.
    ///
    /// # Errors
    /// This, and the answer, when nobody does any more.
    #[inline(always)]
    pub(crate) fn answer(self, answer: A) -> Result<(), (Self, A)> {
        // Whoever was told so sees it.
        if self.is_closed() {
            return Err((self, answer));
        }
        let left = self.0.leave(answer, Question::tell, Question::tell_listener);
        left.map_err(|(guest, answer)| (Self(guest), answer))
    }

    /// Whether an answer would be refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    /// The same; while it is not, `watcher` will be woken when the asker leaves.
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

    /// Does something to the party of one who was asked by nobody.
    ///
    /// # Errors
    /// This, if there is an asker.
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
