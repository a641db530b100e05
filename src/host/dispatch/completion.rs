//! Defines completions. A completion is a one-shot handle: it answers one yield, at most once.
//!
//! An answer consumes the completion. If a completion is dropped without an answer, its yield fails with
//! [`Failure::Abandoned`].
//!
//! Several events may compete for one yield: an answer through the completion, a call of `complete_yield`, a
//! cancellation, and the exit of the process. The table of yields (`yields.rs`) decides which event takes effect.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::FusedFuture;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::dispatch::attempt::{Gate, GateKeys};
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
use crate::process::state::handler_call::{OuterCall, YieldId};
use crate::process::watchers::WatchKey;
use crate::process::yields::{Answerer, Sent};

/// Reason in [`Failure::Panicked`] if the text of the panic is unknown.
const SOME_PANIC: Reason = Reason::new("a handler panicked");

/// A completion that a handler dropped while the handler was running. The thread stores the completion until the
/// handler has returned or panicked.
enum Kept {
    UntypedCompletion(UntypedCompletion),
    /// A function that answers a completion with a failure. The failure passes through the layers of the completion.
    Layered(Box<dyn FnOnce(Failure)>),
}

impl Kept {
    /// Returns true if this is a completion of the yield `own` and has no layers.
    fn answers(&self, own: YieldId) -> bool {
        matches!(self, Self::UntypedCompletion(untyped) if untyped.identity() == own)
    }
}

/// Untyped part of a completion. This part contains the process and the tag of the yield. If this value is dropped
/// without an answer, the yield fails with [`Failure::Abandoned`].
pub(crate) struct UntypedCompletion(Option<(Ref<dyn AnyControl>, Tag)>);

impl UntypedCompletion {
    pub(crate) fn new(to: Ref<dyn AnyControl>, tag: Tag) -> Self {
        Self(Some((to, tag)))
    }

    fn parts(&self) -> (&Ref<dyn AnyControl>, Tag) {
        let (to, tag) = self.0.as_ref().expect("a completion is used once, by value");
        (to, *tag)
    }

    /// Returns the process that waits for the answer.
    pub(crate) fn process(&self) -> &Ref<dyn AnyControl> {
        self.parts().0
    }

    /// Returns the number in the tag of the yield.
    pub(crate) fn number(&self) -> u64 {
        self.parts().1.number
    }

    pub(crate) fn host(&self) -> &Host {
        self.process().head().host()
    }

    /// Answers the yield. A late answer is counted and dropped.
    #[inline]
    pub(crate) fn finish(mut self, answer: Answer) {
        if let Some((to, tag)) = self.0.take() {
            answer_or_discard(&*to, tag, &mut Some(answer));
        }
    }

    /// Moves the process and the tag out of `self` into a new value. A later drop of `self` has no effect.
    pub(crate) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Returns true if the process still waits for the answer.
    pub(crate) fn is_wanted(&self) -> bool {
        let (to, tag) = self.parts();
        to.head().yields().is_wanted(tag)
    }

    /// Returns true if the process still waits for the answer. In this case, `watcher` is called when the process stops
    /// waiting.
    pub(crate) fn watch(&self, key: &mut WatchKey, watcher: &Waker) -> bool {
        let (to, tag) = self.parts();
        to.head().yields().watch(tag, key, watcher)
    }

    /// Removes the waker that [`watch`](Self::watch) has stored for `key`.
    pub(crate) fn unwatch(&self, key: &mut WatchKey) {
        let (to, tag) = self.parts();
        to.head().yields().unwatch(tag, key);
    }

    /// Sends an item of a stream. If the buffer is full, this function registers `waker`. When the buffer has free
    /// space again, this waker is called.
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

    /// Returns a value that identifies the yield. The value is unique as long as the process exists.
    fn identity(&self) -> YieldId {
        let (to, tag) = self.parts();
        (to.identity(), tag.number)
    }

    /// Consumes the completion of a call whose caller no longer waits. Counts a late reply.
    pub(crate) fn late(self) {
        if let Some((to, _)) = self.release() {
            to.head().count(Counter::LateReplies);
        }
    }

    /// Consumes this completion without an answer. The yield stays in flight, and other code may answer the yield by
    /// its tag.
    pub(super) fn release(mut self) -> Option<(Ref<dyn AnyControl>, Tag)> {
        self.0.take()
    }
}

fn answer_or_discard(to: &dyn AnyControl, tag: Tag, answer: &mut Option<Answer>) {
    if to.complete(tag, answer, Answerer::Completion).is_err() {
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

/// Takes the completions that a handler has dropped while the handler was running. The caller must send an answer
/// through each of these completions.
#[cold]
fn take_kept(current: &Current, outer: OuterCall) -> Vec<Kept> {
    let typed = |kept: Box<dyn Any>| *kept.downcast().unwrap_or_else(|_| unreachable!("only `Kept` is kept"));
    current.handler.take_since(outer).into_iter().map(typed).collect()
}

/// Fails the yields of the stored completions in `kept`.
#[cold]
fn fail<T>(kept: Vec<Kept>, result: &Result<T, Reason>) {
    let failure = match result {
        Err(text) => Failure::Panicked(text.clone()),
        // The thread was already unwinding before the call, and the handler itself did not panic.
        Ok(_) if thread::panicking() => Failure::Abandoned,
        Ok(_) => Failure::Panicked(SOME_PANIC),
    };
    for kept in kept {
        let failure = failure.clone();
        match kept {
            Kept::UntypedCompletion(untyped) => untyped.finish(Err(failure)),
            Kept::Layered(fail) => drop(catch(|| fail(failure))),
        }
    }
}

/// Runs a handler, or a part of a handler. If `handle` holds completions and panics, the yields of these completions
/// fail with the text of the panic.
///
/// # Errors
/// Returns the text of the panic if `handle` panics.
#[inline]
pub(crate) fn guarded<T>(handle: impl FnOnce() -> T) -> Result<T, Reason> {
    Current::with(|current| guarded_on(current, handle))
}

/// Does the same as [`guarded`]. `current` is the state of this thread. The documentation of
/// `Dispatcher::dispatch_inline` explains why the attribute is `inline(always)`.
#[inline(always)]
pub(super) fn guarded_on<T>(current: &Current, handle: impl FnOnce() -> T) -> Result<T, Reason> {
    let outer = current.handler.begin();
    let result = catch(handle);
    if current.handler.end(outer) {
        fail_kept(current, outer, &result);
    }
    result
}

/// Fails each command whose completion was stored during a call. There is one exception: an outer call of
/// [`ReturnRoute::keeping`] may have to return one of the stored completions. If the call did not panic, this
/// completion remains stored.
#[cold]
fn fail_kept<T>(current: &Current, outer: OuterCall, result: &Result<T, Reason>) {
    let (own, unwinds) = (current.handler.own(), result.is_err() || thread::panicking());
    let kept = take_kept(current, outer).into_iter();
    let (left, failed): (Vec<_>, Vec<_>) = kept.partition(|kept| !unwinds && own.is_some_and(|own| kept.answers(own)));
    left.into_iter().for_each(|kept| current.handler.keep(Box::new(kept)));
    fail(failed, result);
}

/// Process and tag of a yield. While a task computes the answer to the yield, the task holds this value instead of the
/// completion.
#[derive(Debug)]
pub(crate) struct ReturnRoute {
    to: Ref<dyn AnyControl>,
    tag: Tag,
}

impl ReturnRoute {
    pub(crate) fn host(&self) -> &Host {
        self.to.head().host()
    }

    pub(crate) fn poll_cancelled(&self, keys: &mut WatchKeys, cx: &Context<'_>) -> Poll<()> {
        if keys.watch(&self.to, self.tag, None, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Removes the wakers that [`poll_cancelled`](Self::poll_cancelled) has stored for `keys`.
    pub(crate) fn unwatch(&self, keys: &mut WatchKeys) {
        keys.unwatch(&self.to, self.tag, None);
    }

    /// Runs `f`, which is a part of the task that computes the answer to the yield. If `f` drops a completion of this
    /// yield, the yield does not fail with [`Failure::Abandoned`]. Instead, this function returns the completion. The
    /// caller must answer the yield, because only the caller knows how the task ended.
    pub(crate) fn keeping<T>(&self, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<UntypedCompletion>) {
        let own = (self.to.identity(), self.tag.number);
        let (outer, other) = Current::with(|current| (current.handler.begin(), current.handler.replace_own(Some(own))));
        let result = catch(f);
        let kept = Current::with(|current| {
            current.handler.replace_own(other);
            current.handler.end(outer).then(|| take_kept(current, outer))
        });
        let Some(mut kept) = kept else { return (result, None) };
        let mine = kept.iter().position(|kept| kept.answers(own)).map(|at| kept.swap_remove(at));
        fail(kept, &result);
        match mine {
            Some(Kept::UntypedCompletion(untyped)) => (result, Some(untyped)),
            _ => (result, None),
        }
    }
}

/// A one-shot handle that answers one yield, from any thread, at any time.
///
/// If a completion is dropped without an answer, the yield fails with [`Failure::Abandoned`]. If the process has exited
/// or has cancelled the yield, the answer is discarded and counted. An answer never reaches another process.
///
/// A completion holds references to a process and to the runtime of this process, and the runtime owns the handlers.
/// Therefore a handler that stores completions in its own state forms a reference cycle. To free the memory, a handler
/// that stores completions should remove each completion whose yield is [cancelled](Self::is_cancelled). When the
/// runtime shuts down, the handler should remove all its completions.
pub struct Completion<T> {
    untyped: Option<UntypedCompletion>,
    layer: Option<Box<dyn Layer<T>>>,
    marker: PhantomData<fn(T)>,
}

/// A stage between a handler and the process. An answer first passes through this stage, and then reaches the process.
pub(super) trait Layer<T>: Send + Sync {
    fn answer(self: Box<Self>, answer: Result<T, Failure>, untyped: UntypedCompletion);

    /// Returns a function that fails the completion. The caller calls this function later, when the panic text of the
    /// handler is known.
    fn later(self: Box<Self>, untyped: UntypedCompletion) -> Box<dyn FnOnce(Failure)>;

    /// Returns the gate of the handler that waits for this answer, if a handler waits. The answer is wanted only if
    /// this gate is open and the yield is not cancelled.
    fn gate(&self) -> Option<&Arc<dyn Gate>>;
}

/// A layer that passes the answer to the closure `then`, together with a completion. The answer to this completion
/// passes through the layer `before`.
struct Intercept<T, F> {
    /// The mutex is never locked. The mutex only makes this type `Sync`.
    then: Mutex<F>,
    before: Option<Box<dyn Layer<T>>>,
}

impl<T, F> Layer<T> for Intercept<T, F>
where
    T: Send + 'static,
    F: FnOnce(Result<T, Failure>, Completion<T>) + Send + 'static,
{
    fn answer(self: Box<Self>, answer: Result<T, Failure>, untyped: UntypedCompletion) {
        let Self { then, before } = *self;
        let outer = Completion { untyped: Some(untyped), layer: before, marker: PhantomData };
        // The closure `then` is a part of the handler, but the code that answers the completion calls this closure. A
        // panic of the closure must not unwind the code that answers. Therefore `guarded` catches the panic.
        let _ = guarded(|| then.into_inner()(answer, outer));
    }

    fn later(self: Box<Self>, untyped: UntypedCompletion) -> Box<dyn FnOnce(Failure)> {
        Box::new(move |failure| self.answer(Err(failure), untyped))
    }

    fn gate(&self) -> Option<&Arc<dyn Gate>> {
        self.before.as_ref()?.gate()
    }
}

impl<T: Send + 'static> Completion<T> {
    pub(crate) fn new(untyped: UntypedCompletion) -> Self {
        Self { untyped: Some(untyped), layer: None, marker: PhantomData }
    }

    /// Returns a second completion of this yield. The answer to the new completion goes only to `layer`.
    pub(super) fn inner(&self, layer: Box<dyn Layer<T>>) -> Self {
        let (to, tag) = self.untyped().parts();
        Self { untyped: Some(UntypedCompletion::new(to.clone(), tag)), layer: Some(layer), marker: PhantomData }
    }

    pub(super) fn gate(&self) -> Option<&Arc<dyn Gate>> {
        self.layer.as_ref()?.gate()
    }

    fn untyped(&self) -> &UntypedCompletion {
        self.untyped.as_ref().expect("a completion is used once, by value")
    }

    /// Answers the yielded command with `reply`.
    pub fn complete(self, reply: T) {
        self.finish(Ok(reply));
    }

    /// Answers the yielded command with `failure`.
    pub fn fail(self, failure: impl Into<Failure>) {
        self.finish(Err(failure.into()));
    }

    /// Answers the yielded command with a reply or a failure.
    pub fn finish(mut self, answer: Result<T, Failure>) {
        let Some(untyped) = self.untyped.take() else { return };
        match self.layer.take() {
            None => untyped.finish(answer.map(Payload::new)),
            Some(layer) => layer.answer(answer, untyped),
        }
    }

    /// Returns a new completion of the same yield. The closure `then` receives the answer to the new completion. The
    /// closure also receives the original completion (`self`), and decides which answer the process receives. Layers
    /// use this method.
    ///
    /// `then` runs on the thread that answers the new completion. If the new completion is dropped without an answer,
    /// `then` receives [`Failure::Abandoned`]. If a handler holds the new completion and panics, `then` receives
    /// [`Failure::Panicked`]. If `then` holds the original completion and panics, the yield fails with
    /// [`Failure::Panicked`]. The panic does not unwind the code that answers the new completion.
    pub fn intercept(mut self, then: impl FnOnce(Result<T, Failure>, Completion<T>) + Send + 'static) -> Completion<T> {
        let layer = Intercept { then: Mutex::new(then), before: self.layer.take() };
        Completion { untyped: self.untyped.take(), layer: Some(Box::new(layer)), marker: PhantomData }
    }

    /// Returns the pid of the process that has yielded the command.
    pub fn pid(&self) -> Pid {
        self.untyped().parts().0.head().pid()
    }

    /// Returns the tag of the yield.
    pub fn tag(&self) -> Tag {
        self.untyped().parts().1
    }

    /// Returns the host of the process that has yielded the command.
    pub fn host(&self) -> &Host {
        self.untyped().parts().0.head().host()
    }

    /// Converts the completion into the pid of its process and the tag of its yield. The yield stays in flight until
    /// [`Host::complete_yield`] answers the yield, the process cancels the yield, or the process exits. After this
    /// call, the yield has no completion. Therefore the yield cannot fail because a completion is dropped.
    pub fn into_tag(mut self) -> (Pid, Tag) {
        let parts = (self.pid(), self.tag());
        if let Some(untyped) = self.untyped.take() {
            drop(untyped.release());
        }
        parts
    }

    /// Returns true if an answer would be discarded, for one of these reasons:
    ///
    /// - The process has exited.
    /// - The process no longer waits for the answer, because the process has cancelled the yield.
    /// - Another handler has called the handler that holds this completion, and the calling handler has stopped
    ///   waiting.
    pub fn is_cancelled(&self) -> bool {
        !self.untyped().is_wanted() || self.gate().is_some_and(|gate| gate.is_closed())
    }

    /// Returns a future that resolves when no code waits for the answer any more.
    pub fn cancelled(&self) -> Unwanted {
        let (to, tag) = self.untyped().parts();
        let watch = Watch { to: to.clone(), tag, gate: self.gate().cloned(), keys: WatchKeys::default() };
        Unwanted { watch: Some(watch) }
    }

    /// Sends an item of a stream. If the buffer is full, this function registers the waker of `cx`. When the buffer
    /// has free space again, this waker is called.
    pub(crate) fn poll_send(&self, item: &mut Option<Payload>, cx: &Context<'_>) -> Poll<Result<(), Failure>> {
        self.untyped().send(item, cx.waker())
    }

    /// Returns the process and the tag of this yield. The returned value cannot answer the yield.
    pub(crate) fn return_route(&self) -> ReturnRoute {
        let (to, tag) = self.untyped().parts();
        ReturnRoute { to: to.clone(), tag }
    }

    pub(crate) fn poll_cancelled(&self, keys: &mut WatchKeys, cx: &Context<'_>) -> Poll<()> {
        let (to, tag) = self.untyped().parts();
        if keys.watch(to, tag, self.gate(), cx.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Removes the wakers that [`poll_cancelled`](Self::poll_cancelled) has stored for `keys`. The caller is about to
    /// answer. If no layer receives the answer, the answer ends the command, and thus removes all wakers of the
    /// command. In this case, this function does nothing, and takes no lock.
    pub(crate) fn unwatch(&self, keys: &mut WatchKeys) {
        if self.layer.is_some() {
            let (to, tag) = self.untyped().parts();
            keys.unwatch(to, tag, self.gate());
        }
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        let (Some(layer), Some(untyped)) = (self.layer.take(), self.untyped.take()) else { return };
        // The layer receives the failure, and decides which answer is passed on. During the unwinding of a handler, the
        // text of the panic is not known yet. Therefore this code stores the function `fail`. The caller of the handler
        // calls `fail` when the text is known.
        if !thread::panicking() {
            return drop(catch(|| layer.answer(Err(Failure::Abandoned), untyped)));
        }
        let fail = layer.later(untyped);
        Current::with(|current| {
            if current.handler.is_running() {
                current.handler.keep(Box::new(Kept::Layered(fail)));
            } else {
                // No handler has panicked. The panicking code is a process, a waker or a thread that owns the
                // completion.
                drop(catch(|| fail(Failure::Abandoned)));
            }
        });
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Completion");
        if let Some((to, tag)) = self.untyped.as_ref().and_then(|untyped| untyped.0.as_ref()) {
            debug.field("pid", &to.head().pid()).field("tag", tag);
        }
        debug.finish()
    }
}

/// The entries of one future in several lists of wakers: the list of a yield, and the list of each gate of a
/// completion.
#[derive(Debug, Default)]
pub(crate) struct WatchKeys {
    yielded: WatchKey,
    gates: Option<Box<GateKeys>>,
}

impl WatchKeys {
    /// Returns true if the answer to the yield is still wanted. In this case, `watcher` is called when the answer is no
    /// longer wanted.
    fn watch(&mut self, to: &Ref<dyn AnyControl>, tag: Tag, gate: Option<&Arc<dyn Gate>>, watcher: &Waker) -> bool {
        to.head().yields().watch(tag, &mut self.yielded, watcher)
            && gate.is_none_or(|gate| gate.watch(self.gates.get_or_insert_default(), watcher))
    }

    fn unwatch(&mut self, to: &Ref<dyn AnyControl>, tag: Tag, gate: Option<&Arc<dyn Gate>>) {
        to.head().yields().unwatch(tag, &mut self.yielded);
        if let (Some(gate), Some(keys)) = (gate, &mut self.gates) {
            gate.unwatch(keys);
        }
    }
}

/// The yield that an [`Unwanted`] watches. The drop of a `Watch` removes the wakers of the future from all lists.
#[derive(Debug)]
struct Watch {
    to: Ref<dyn AnyControl>,
    tag: Tag,
    gate: Option<Arc<dyn Gate>>,
    keys: WatchKeys,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.keys.unwatch(&self.to, self.tag, self.gate.as_ref());
    }
}

/// Future that resolves when no code waits for the answer to a yield any more: see [`Completion::cancelled`].
///
/// # Cancel safety
/// Dropping the future has no effect on the yield. After the drop, a cancellation of the yield no longer wakes the task
/// that has polled the future. Therefore a task must keep the future between two polls.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Unwanted {
    /// The value is `None` after the end of the future.
    watch: Option<Watch>,
}

impl Unwanted {
    /// Ends the future. Afterwards, the command stores no waker of this future.
    pub(super) fn end(&mut self) {
        self.watch = None;
    }
}

impl Future for Unwanted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(Watch { to, tag, gate, keys }) = &mut self.watch
            && keys.watch(to, *tag, gate.as_ref(), cx.waker())
        {
            return Poll::Pending;
        }
        self.end();
        Poll::Ready(())
    }
}

impl FusedFuture for Unwanted {
    fn is_terminated(&self) -> bool {
        self.watch.is_none()
    }
}
