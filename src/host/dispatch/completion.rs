//! The right to answer one yield, exactly once.
//!
//! A completion is consumed by its answer; if it is dropped, it answers [`Failure::Abandoned`]. Several answers may
//! compete: a completion, `complete_yield`, a cancellation, the exit of the process. The process's table of yields
//! decides which one counts (`yields.rs`).

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::FusedFuture;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::dispatch::attempt::Gate;
use crate::observe::Counter;
use crate::platform::sync::{Arc, Mutex, thread};
use crate::process::catch::{catch, drop_caught};
use crate::process::event::{Answer, Tag};
use crate::process::exit::Reason;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::Current;
use crate::process::yields::Sent;

/// Reason of [`Failure::Panicked`] where the text of the panic is unknown.
const SOME_PANIC: Reason = Reason::new("a handler panicked");

/// A completion that was dropped during the call of a handler, and is kept until the call is over.
enum Kept {
    UntypedCompletion(UntypedCompletion),
    /// A completion whose answer passes through layers: a call that fails it.
    Layered(Box<dyn FnOnce(Failure)>),
}

/// Untyped part of a completion: the process and the tag of the yield. Dropping it answers [`Failure::Abandoned`].
pub(crate) struct UntypedCompletion(Option<(Ref<dyn AnyControl>, Tag)>);

impl UntypedCompletion {
    pub(crate) fn new(to: Ref<dyn AnyControl>, tag: Tag) -> Self {
        Self(Some((to, tag)))
    }

    fn parts(&self) -> (&Ref<dyn AnyControl>, Tag) {
        let (to, tag) = self.0.as_ref().expect("a slip is used once, by value");
        (to, *tag)
    }

    pub(crate) fn host(&self) -> &Host {
        self.parts().0.head().host()
    }

    /// Answers the yield. An answer that comes too late is counted and dropped.
    #[inline]
    pub(crate) fn finish(mut self, answer: Answer) {
        if let Some((to, tag)) = self.0.take() {
            answer_or_discard(&*to, tag, &mut Some(answer));
        }
    }

    /// Moves the right out of `self`, which then no longer answers when it is dropped.
    pub(crate) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Whether the process still waits for the answer.
    pub(crate) fn is_wanted(&self) -> bool {
        let (to, tag) = self.parts();
        to.head().yields().is_wanted(tag)
    }

    /// Does the same as [`is_wanted`](Self::is_wanted). If it returns true, `watcher` will be woken when the process
    /// stops waiting.
    pub(crate) fn watch(&self, watcher: &Waker) -> bool {
        let (to, tag) = self.parts();
        to.head().yields().watch(tag, watcher)
    }

    /// Sends an item of a stream. If the buffer is full, registers `waker`, which is woken when there is room.
    pub(crate) fn send(&self, item: &mut Option<Payload>, waker: &Waker) -> Poll<Result<(), Failure>> {
        let (to, tag) = self.parts();
        match to.head().yields().send(tag, item, waker) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(())) => return Poll::Ready(Err(Failure::Cancelled)),
            Poll::Ready(Ok(Sent::Nothing)) => {}
            Poll::Ready(Ok(Sent::Notices(count))) => to.notice(tag, count),
            Poll::Ready(Ok(Sent::Own)) => to.wake_or_note(),
            Poll::Ready(Ok(Sent::Other(waker))) => to.wake_other(waker),
        }
        Poll::Ready(Ok(()))
    }

    /// Identifies the yield as long as its process exists.
    fn identity(&self) -> (usize, u64) {
        let (to, tag) = self.parts();
        (to.identity(), tag.number)
    }

    /// Releases the right to answer a call whose caller no longer waits, and counts a late reply.
    pub(crate) fn late(self) {
        if let Some((to, _)) = self.release() {
            to.head().count(Counter::LateReplies);
        }
    }

    /// Releases the right to answer. Another caller may answer the yield by its tag.
    pub(super) fn release(mut self) -> Option<(Ref<dyn AnyControl>, Tag)> {
        self.0.take()
    }
}

fn answer_or_discard(to: &dyn AnyControl, tag: Tag, answer: &mut Option<Answer>) {
    if to.complete(tag, answer, false).is_err() {
        to.head().count(Counter::Discarded);
        let _ = drop_caught(answer.take());
    }
}

impl Drop for UntypedCompletion {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        let is_kept = Current::with(|current| {
            let is_kept = current.handler.keeps(|| self.identity());
            if is_kept {
                current.handler.keep(Box::new(Kept::UntypedCompletion(self.take())));
            }
            is_kept
        });
        if is_kept {
            return;
        }
        let Some((to, tag)) = self.0.take() else { return };
        answer_or_discard(&*to, tag, &mut Some(Err(Failure::Abandoned)));
    }
}

/// Runs a handler. Returns its result with the completions that it dropped while it unwound, and the completion of its
/// `own` yield however it was dropped. The caller answers these completions.
fn keeping<T>(own: Option<(usize, u64)>, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<Vec<Kept>>) {
    let outer = Current::with(|current| current.handler.begin(own));
    let result = catch(f);
    let kept = Current::with(|current| current.handler.end(outer));
    let typed = |kept: Box<dyn Any>| *kept.downcast().unwrap_or_else(|_| unreachable!("only `Kept` is kept"));
    (result, kept.map(|kept| kept.into_iter().map(typed).collect()))
}

/// Fails the yields whose completions a handler dropped while it unwound.
#[cold]
fn fail<T>(kept: Vec<Kept>, result: &Result<T, Reason>) {
    let text = result.as_ref().err().cloned().unwrap_or(SOME_PANIC);
    for kept in kept {
        let failure = Failure::Panicked(text.clone());
        match kept {
            Kept::UntypedCompletion(slip) => slip.finish(Err(failure)),
            Kept::Layered(fail) => drop(catch(|| fail(failure))),
        }
    }
}

/// Runs a handler. If it panics, the yields whose completions it held fail with the text of the panic.
#[inline]
pub(crate) fn guarded(handle: impl FnOnce()) {
    let (result, kept) = keeping(None, handle);
    if let Some(kept) = kept {
        fail(kept, &result);
    }
}

/// Return route of a yield, for a task that works for the yield but does not hold its completion.
#[derive(Debug)]
pub(crate) struct ReturnRoute {
    to: Ref<dyn AnyControl>,
    tag: Tag,
}

impl ReturnRoute {
    pub(crate) fn host(&self) -> &Host {
        self.to.head().host()
    }

    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        if self.to.head().yields().watch(self.tag, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Runs a part of the task. A completion of this yield that is dropped meanwhile is returned, and does not answer
    /// [`Failure::Abandoned`]: the caller knows better how the task ended.
    pub(crate) fn keeping<T>(&self, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<UntypedCompletion>) {
        let own = (self.to.identity(), self.tag.number);
        let (result, kept) = keeping(Some(own), f);
        let Some(mut kept) = kept else { return (result, None) };
        let is_mine = |kept: &Kept| matches!(kept, Kept::UntypedCompletion(slip) if slip.identity() == own);
        let mine = kept.iter().position(is_mine).map(|at| kept.swap_remove(at));
        fail(kept, &result);
        match mine {
            Some(Kept::UntypedCompletion(slip)) => (result, Some(slip)),
            _ => (result, None),
        }
    }
}

/// The right to answer one yield, from any thread, at any time.
///
/// A completion that is dropped without an answer answers [`Failure::Abandoned`]. If the process has exited, or has
/// cancelled the yield, the answer is discarded and counted. It never reaches another process.
///
/// A completion keeps the memory of its process and of its runtime, and the runtime keeps its handlers. Therefore a
/// handler that stores completions in its own state forms a reference cycle. It should remove each completion whose
/// yield is [cancelled](Self::is_cancelled), and all of them when the runtime shuts down. Otherwise their memory is
/// never freed.
pub struct Completion<T> {
    slip: Option<UntypedCompletion>,
    layer: Option<Box<dyn Layer<T>>>,
    marker: PhantomData<fn(T)>,
}

/// A stage that an answer passes through before it reaches the process.
pub(super) trait Layer<T>: Send + Sync {
    fn answer(self: Box<Self>, answer: Result<T, Failure>, slip: UntypedCompletion);

    /// Returns a function that fails the completion later, when the panic of the handler that holds it is known.
    fn later(self: Box<Self>, slip: UntypedCompletion) -> Box<dyn FnOnce(Failure)>;

    /// The gate that tells, in addition to the yield itself, whether the answer is wanted.
    fn gate(&self) -> Option<&Arc<dyn Gate>>;
}

/// A closure that the answer passes through, and the layer that it passes through next.
struct Intercept<T, F> {
    /// Never locked: the lock makes this `Sync`.
    then: Mutex<F>,
    before: Option<Box<dyn Layer<T>>>,
}

impl<T, F> Layer<T> for Intercept<T, F>
where
    T: Send + 'static,
    F: FnOnce(Result<T, Failure>, Completion<T>) + Send + 'static,
{
    fn answer(self: Box<Self>, answer: Result<T, Failure>, slip: UntypedCompletion) {
        let Self { then, before } = *self;
        then.into_inner()(answer, Completion { slip: Some(slip), layer: before, marker: PhantomData });
    }

    fn later(self: Box<Self>, slip: UntypedCompletion) -> Box<dyn FnOnce(Failure)> {
        Box::new(move |failure| self.answer(Err(failure), slip))
    }

    fn gate(&self) -> Option<&Arc<dyn Gate>> {
        self.before.as_ref()?.gate()
    }
}

impl<T: Send + 'static> Completion<T> {
    pub(crate) fn new(slip: UntypedCompletion) -> Self {
        Self { slip: Some(slip), layer: None, marker: PhantomData }
    }

    /// Makes another completion of this yield, whose answer goes only to `layer`.
    pub(super) fn inner(&self, layer: Box<dyn Layer<T>>) -> Self {
        let (to, tag) = self.slip().parts();
        Self { slip: Some(UntypedCompletion::new(to.clone(), tag)), layer: Some(layer), marker: PhantomData }
    }

    pub(super) fn gate(&self) -> Option<&Arc<dyn Gate>> {
        self.layer.as_ref()?.gate()
    }

    fn slip(&self) -> &UntypedCompletion {
        self.slip.as_ref().expect("a completion is used once, by value")
    }

    /// Answers the yield with a reply.
    pub fn complete(self, reply: T) {
        self.finish(Ok(reply));
    }

    /// Answers the yield with a failure.
    pub fn fail(self, failure: impl Into<Failure>) {
        self.finish(Err(failure.into()));
    }

    /// Answers the yield with a reply or a failure.
    pub fn finish(mut self, answer: Result<T, Failure>) {
        let Some(slip) = self.slip.take() else { return };
        match self.layer.take() {
            None => slip.finish(answer.map(Payload::new)),
            Some(layer) => layer.answer(answer, slip),
        }
    }

    /// Returns a completion whose answer passes through `then` before it reaches the process. Layers are built with it.
    ///
    /// `then` runs on the thread that answers. It also receives [`Failure::Abandoned`] when the new completion is
    /// dropped, and [`Failure::Panicked`] when the handler that holds it panics.
    pub fn intercept(mut self, then: impl FnOnce(Result<T, Failure>, Completion<T>) + Send + 'static) -> Completion<T> {
        let layer = Intercept { then: Mutex::new(then), before: self.layer.take() };
        Completion { slip: self.slip.take(), layer: Some(Box::new(layer)), marker: PhantomData }
    }

    /// Pid of the process that made the yield.
    pub fn pid(&self) -> Pid {
        self.slip().parts().0.head().pid()
    }

    /// Tag of the yield.
    pub fn tag(&self) -> Tag {
        self.slip().parts().1
    }

    /// Host of the process that made the yield.
    pub fn host(&self) -> &Host {
        self.slip().parts().0.head().host()
    }

    /// Converts the completion to the pid and the tag. The yield stays in flight, and [`Host::complete_yield`] answers
    /// it. Nothing answers [`Failure::Abandoned`] in its place.
    pub fn into_tag(mut self) -> (Pid, Tag) {
        let parts = (self.pid(), self.tag());
        if let Some(slip) = self.slip.take() {
            drop(slip.release());
        }
        parts
    }

    /// Whether the answer would be discarded: the process has exited, or cancelled the yield.
    pub fn is_cancelled(&self) -> bool {
        !self.slip().is_wanted() || self.gate().is_some_and(|gate| gate.is_closed())
    }

    /// Returns a future that resolves when the answer is not wanted any more.
    pub fn cancelled(&self) -> Unwanted {
        let (to, tag) = self.slip().parts();
        Unwanted { yielded: Some((to.clone(), tag)), gate: self.gate().cloned() }
    }

    /// Sends an item of a stream. If the buffer is full, registers the waker, which is woken when there is room.
    pub(crate) fn poll_send(&self, item: &mut Option<Payload>, cx: &Context<'_>) -> Poll<Result<(), Failure>> {
        self.slip().send(item, cx.waker())
    }

    /// Return route of this yield, without the right to answer it.
    pub(crate) fn way(&self) -> ReturnRoute {
        let (to, tag) = self.slip().parts();
        ReturnRoute { to: to.clone(), tag }
    }

    pub(crate) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        if self.slip().watch(cx.waker()) && self.gate().is_none_or(|gate| gate.watch(cx.waker())) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        let (Some(layer), Some(slip)) = (self.layer.take(), self.slip.take()) else { return };
        // The layer receives the failure and decides what its own caller receives. While the handler unwinds, the code
        // that runs the handler will know how it ended: then the failure is deferred.
        if !thread::panicking() {
            return drop(catch(|| layer.answer(Err(Failure::Abandoned), slip)));
        }
        let fail = layer.later(slip);
        Current::with(|current| {
            if current.handler.is_running() {
                current.handler.keep(Box::new(Kept::Layered(fail)));
            } else {
                drop(catch(|| fail(Failure::Panicked(SOME_PANIC))));
            }
        });
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

/// Future that resolves when the answer to a yield is not wanted any more: see [`Completion::cancelled`].
///
/// # Cancel safety
/// Dropping it changes nothing.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Unwanted {
    yielded: Option<(Ref<dyn AnyControl>, Tag)>,
    gate: Option<Arc<dyn Gate>>,
}

impl Future for Unwanted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &self.yielded {
            Some((to, tag))
                if to.head().yields().watch(*tag, cx.waker())
                    && self.gate.as_ref().is_none_or(|gate| gate.watch(cx.waker())) =>
            {
                Poll::Pending
            }
            _ => {
                self.yielded = None;
                self.gate = None;
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
