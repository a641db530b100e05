//! The right to answer one yield, exactly once.
//!
//! By type it can't be used twice; dropped, it answers for itself. Which of several answers counts (a completion
//! against `complete_yield`, against a cancel, against the death of the process) is decided under the lock of the
//! process's tag table, see `yields.rs`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::FusedFuture;

use crate::control::AnyControl;
use crate::host::Host;
use crate::observe::Counter;
use crate::process::event::Tag;
use crate::process::exit::Reason;
use crate::process::failure::Failure;
use crate::process::panic::{catch, drop_caught};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::sync::{Arc, thread};
use crate::yields::{Answer, Sent};

/// What becomes of a completion that is dropped on this thread.
struct Keeping {
    /// A handler runs: what it drops while it unwinds is kept, to be answered with the panic.
    on: Cell<bool>,
    /// The yield whose completion is kept in any case: its handler's future ends, perhaps with an error.
    own: Cell<Option<(usize, u64)>>,
    /// There is something in `KEPT`.
    any: Cell<bool>,
}

thread_local! {
    static KEEPING: Keeping =
        const { Keeping { on: Cell::new(false), own: Cell::new(None), any: Cell::new(false) } };
    static KEPT: RefCell<Vec<Slip>> = const { RefCell::new(Vec::new()) };
}

/// The untyped part of a completion: whom to answer, and which yield. Dropped, it answers `Abandoned`.
pub(crate) struct Slip(Option<(Arc<dyn AnyControl>, Tag)>);

impl Slip {
    pub(crate) fn new(to: Arc<dyn AnyControl>, tag: Tag) -> Self {
        Self(Some((to, tag)))
    }

    fn parts(&self) -> (&Arc<dyn AnyControl>, Tag) {
        let (to, tag) = self.0.as_ref().expect("a slip is used once, by value");
        (to, *tag)
    }

    /// Answers. What comes too late is counted and dropped.
    pub(crate) fn finish(mut self, answer: Answer) {
        if let Some((to, tag)) = self.0.take() {
            answer_or_discard(&*to, tag, answer);
        }
    }

    /// Whether somebody waits for the answer.
    pub(crate) fn is_wanted(&self) -> bool {
        let (to, tag) = self.parts();
        to.head().yields().is_wanted(tag)
    }

    /// As [`is_wanted`](Self::is_wanted); while it is, `watcher` will be woken when that ends.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let (to, tag) = self.parts();
        to.head().yields().watch(tag, watcher)
    }

    /// Sends an item of a stream, or leaves `waker` to be woken when there is room.
    pub(crate) fn send(&self, item: &mut Option<Payload>, waker: &Waker) -> Poll<Result<(), Failure>> {
        let (to, tag) = self.parts();
        match to.head().yields().send(tag, item, waker) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(())) => return Poll::Ready(Err(Failure::Cancelled)),
            Poll::Ready(Ok(Sent::Kept)) => {}
            Poll::Ready(Ok(Sent::Notices(count))) => to.notice(tag, count),
            Poll::Ready(Ok(Sent::Own)) => to.wake_or_note(),
            Poll::Ready(Ok(Sent::Other(waker))) => to.wake_other(waker),
        }
        Poll::Ready(Ok(()))
    }

    /// What tells this yield from any other while its process lives.
    fn identity(&self) -> (usize, u64) {
        let (to, tag) = self.parts();
        (Arc::as_ptr(to).cast::<()>() as usize, tag.number)
    }

    /// Gives up the right to answer a call that nobody waits for any more.
    pub(crate) fn late(self) {
        if let Some((to, _)) = self.release() {
            to.head().host().shared().metrics.add(Counter::LateReplies, 1);
        }
    }

    /// Gives up the right to answer; whoever knows the tag may.
    fn release(mut self) -> Option<(Arc<dyn AnyControl>, Tag)> {
        self.0.take()
    }
}

fn answer_or_discard(to: &dyn AnyControl, tag: Tag, answer: Answer) {
    let metrics = &to.head().host().shared().metrics;
    match to.complete(tag, answer, false) {
        Ok(()) => metrics.add(Counter::Completions, 1),
        Err((_, answer)) => {
            metrics.add(Counter::Discarded, 1);
            let _ = drop_caught(answer);
        }
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let kept = KEEPING.try_with(|keeping| {
            keeping.on.get() && (thread::panicking() || keeping.own.get() == Some(self.identity()))
        });
        let Some((to, tag)) = self.0.take() else { return };
        if kept.unwrap_or(false) {
            let mut slip = Some(Slip(Some((Arc::clone(&to), tag))));
            let _ = KEPT.try_with(|kept| {
                if let Ok(mut kept) = kept.try_borrow_mut() {
                    kept.extend(slip.take());
                    KEEPING.with(|keeping| keeping.any.set(true));
                }
            });
            match slip {
                None => return,
                Some(slip) => drop(slip.release()),
            }
        }
        answer_or_discard(&*to, tag, Err(Failure::Abandoned));
    }
}

/// Runs what a handler does; with the completions that it dropped while it unwound, and that of its `own` yield however
/// it was dropped, if there are any. Whoever calls this answers them.
fn keeping<T>(own: Option<(usize, u64)>, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<Vec<Slip>>) {
    let former =
        KEEPING.with(|keeping| (keeping.on.replace(true), keeping.own.replace(own), keeping.any.replace(false)));
    let (on, own, any) = former;
    // What stands there belongs to a handler that this one runs inside of.
    let others = if any { KEPT.with(|kept| kept.borrow().len()) } else { 0 };
    let result = catch(f);
    let some = KEEPING.with(|keeping| {
        keeping.on.set(on);
        keeping.own.set(own);
        keeping.any.replace(any)
    });
    (result, some.then(|| KEPT.with(|kept| kept.borrow_mut().split_off(others))))
}

/// Fails the yields whose completions a handler dropped while it unwound.
#[cold]
fn fail<T>(kept: Vec<Slip>, result: &Result<T, Reason>) {
    let text = result.as_ref().err().cloned().unwrap_or_else(|| Reason::from("a handler panicked"));
    for slip in kept {
        slip.finish(Err(Failure::Panicked(text.clone())));
    }
}

/// Runs a handler. If it panics, the yields whose completions it held fail with the panic's text.
#[inline]
pub(crate) fn guarded(handle: impl FnOnce()) {
    let (result, kept) = keeping(None, handle);
    if let Some(kept) = kept {
        fail(kept, &result);
    }
}

/// The way back of a yield for a task that works for it and does not hold its completion.
#[derive(Debug)]
pub(crate) struct Way {
    to: Arc<dyn AnyControl>,
    tag: Tag,
}

impl Way {
    pub(crate) fn host(&self) -> &Host {
        self.to.head().host()
    }

    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        if self.to.head().yields().watch(self.tag, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Runs a part of what the task does. A completion of this yield that is dropped meanwhile is handed out instead
    /// of being abandoned: whoever calls this knows better how it ended.
    pub(crate) fn keeping<T>(&self, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<Slip>) {
        let own = (Arc::as_ptr(&self.to).cast::<()>() as usize, self.tag.number);
        let (result, kept) = keeping(Some(own), f);
        let Some(mut kept) = kept else { return (result, None) };
        let mine = kept.iter().position(|slip| slip.identity() == own).map(|at| kept.swap_remove(at));
        fail(kept, &result);
        (result, mine)
    }
}

/// The right to answer one yield, from any thread, at any time.
///
/// Dropped unanswered it answers [`Failure::Abandoned`]. After its process died, or gave the yield up, the answer is
/// discarded and counted; it can never reach another process.
pub struct Completion<T> {
    slip: Option<Slip>,
    intercept: Option<Box<Interceptor<T>>>,
    marker: PhantomData<fn(T)>,
}

type Interceptor<T> = crate::sync::Mutex<Box<dyn FnOnce(Result<T, Failure>, Completion<T>) + Send>>;

impl<T: Send + 'static> Completion<T> {
    pub(crate) fn new(slip: Slip) -> Self {
        Self { slip: Some(slip), intercept: None, marker: PhantomData }
    }

    fn slip(&self) -> &Slip {
        self.slip.as_ref().expect("a completion is used once, by value")
    }

    /// Answers with a reply.
    pub fn complete(self, reply: T) {
        self.finish(Ok(reply));
    }

    /// Answers with a failure.
    pub fn fail(self, failure: impl Into<Failure>) {
        self.finish(Err(failure.into()));
    }

    /// Answers.
    pub fn finish(mut self, answer: Result<T, Failure>) {
        let Some(slip) = self.slip.take() else { return };
        match self.intercept.take() {
            None => slip.finish(answer.map(Payload::new)),
            Some(then) => then.into_inner()(answer, Completion::new(slip)),
        }
    }

    /// A completion whose answer passes through `then` first: what layers are made of.
    ///
    /// `then` runs on the thread that answers. It is also told of [`Failure::Abandoned`] when the new completion is
    /// dropped.
    pub fn intercept(self, then: impl FnOnce(Result<T, Failure>, Completion<T>) + Send + 'static) -> Completion<T> {
        let mut outer = self;
        let slip = outer.slip.take();
        let then: Box<dyn FnOnce(Result<T, Failure>, Completion<T>) + Send> = match outer.intercept.take() {
            None => Box::new(then),
            Some(before) => Box::new(move |answer, completion: Completion<T>| {
                then(answer, Completion { slip: completion.release(), intercept: Some(before), marker: PhantomData })
            }),
        };
        Completion { slip, intercept: Some(Box::new(crate::sync::Mutex::new(then))), marker: PhantomData }
    }

    fn release(mut self) -> Option<Slip> {
        self.slip.take()
    }

    /// Whose yield this is.
    pub fn pid(&self) -> Pid {
        self.slip().parts().0.head().pid()
    }

    /// Which yield of that process this is.
    pub fn tag(&self) -> Tag {
        self.slip().parts().1
    }

    /// The host of that process.
    pub fn host(&self) -> &Host {
        self.slip().parts().0.head().host()
    }

    /// Gives up this handle for its (pid, tag) form: the yield stays in flight, and whoever knows the two answers it
    /// by [`Host::complete_yield`]. Nothing answers `Abandoned` any more.
    pub fn into_tag(mut self) -> (Pid, Tag) {
        let parts = (self.pid(), self.tag());
        if let Some(slip) = self.slip.take() {
            drop(slip.release());
        }
        parts
    }

    /// Whether the answer would be discarded: the process has ended, or gave the yield up.
    pub fn is_cancelled(&self) -> bool {
        !self.slip().is_wanted()
    }

    /// Resolves when the answer is not wanted any more.
    pub fn cancelled(&self) -> Unwanted {
        let (to, tag) = self.slip().parts();
        Unwanted { yielded: Some((Arc::clone(to), tag)) }
    }

    /// Sends an item of a stream, or leaves the waker to be woken when there is room.
    pub(crate) fn poll_send(&self, item: &mut Option<Payload>, cx: &Context<'_>) -> Poll<Result<(), Failure>> {
        self.slip().send(item, cx.waker())
    }

    /// The way back of this yield, without the right to answer it.
    pub(crate) fn way(&self) -> Way {
        let (to, tag) = self.slip().parts();
        Way { to: Arc::clone(to), tag }
    }

    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        if self.slip().watch(cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if let Some(then) = self.intercept.take()
            && let Some(slip) = self.slip.take()
        {
            // A layer hears of it, and decides what its own caller hears.
            let outer = Completion { slip: Some(slip), intercept: None, marker: PhantomData };
            let failure = if thread::panicking() {
                Failure::Panicked(Reason::from("a handler panicked"))
            } else {
                Failure::Abandoned
            };
            drop(catch(|| then.into_inner()(Err(failure), outer)));
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Completion");
        if let Some((to, tag)) = self.slip.as_ref().and_then(|slip| slip.0.as_ref()) {
            debug.field("pid", &to.head().pid()).field("tag", tag);
        }
        debug.finish()
    }
}

/// Resolves when the answer to a yield is not wanted any more: see [`Completion::cancelled`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Unwanted {
    yielded: Option<(Arc<dyn AnyControl>, Tag)>,
}

impl Future for Unwanted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &self.yielded {
            Some((to, tag)) if to.head().yields().watch(*tag, cx.waker()) => Poll::Pending,
            _ => {
                self.yielded = None;
                Poll::Ready(())
            }
        }
    }
}

impl FusedFuture for Unwanted {
    fn is_terminated(&self) -> bool {
        self.yielded.is_none()
    }
}
