//! Conversion of functions into command handlers. A function can answer inline, return a future, block, or send a
//! stream of items.
//!
//! A function is registered directly with [`Builder::handle`](crate::Builder::handle),
//! [`handle_async`](crate::Builder::handle_async), [`handle_blocking`](crate::Builder::handle_blocking) or
//! [`handle_stream`](crate::Builder::handle_stream). The functions of this module return a handler as a value. Another
//! handler can wrap this value: see [`layer`].

// This folder imports `platform`, `process`, `observe` and `host`. The file `blocking.rs` also uses the constant
// function `is_large` of `task/body.rs`. The lookup of handlers is not in this folder: `host/dispatch.rs` finds the
// handler of a command by the type of the command.

pub(crate) mod blocking;
pub mod layer;
pub(crate) mod stream;

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::handler::blocking::is_large_future;
#[doc(no_inline)]
pub use crate::handler::layer::ConcurrencyLimit;
#[doc(no_inline)]
pub use crate::handler::layer::RateLimit;
#[doc(no_inline)]
pub use crate::handler::layer::Retry;
#[doc(no_inline)]
pub use crate::handler::layer::Timeout;
use crate::handler::stream::{StreamCompletion, StreamHandler};
use crate::host::dispatch::completion::{Completion, ReturnRoute, UntypedCompletion, WatchKeys, guarded};
use crate::host::dispatch::inline::{FutureAnswer, InlineCall};
use crate::host::dispatch::{AnyInline, Handler, InlineHandler};
use crate::host::job::blocking_pool::Job;
use crate::host::{Host, Phase};
use crate::platform::sync::Arc;
use crate::process::catch::{catch, drop_caught};
use crate::process::command::{Command, StreamCommand};
use crate::process::exit::{BoxError, Reason};
use crate::process::failure::Failure;
use crate::process::state::current::Current;

/// Return type of a handler function: the reply, or a `Result` whose error becomes the failure.
///
/// If the reply type of a command is itself a `Result`, the function may return this `Result`. In this case, an error
/// in this `Result` is part of the reply, and not a failure.
pub trait IntoReply<T> {
    /// Converts the return value into the reply or the failure.
    ///
    /// # Errors
    /// Returns the error of the function, converted by [`Failure::new`].
    fn into_answer(self) -> Result<T, Failure>;
}

impl<T> IntoReply<T> for T {
    fn into_answer(self) -> Result<T, Failure> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> IntoReply<T> for Result<T, E> {
    fn into_answer(self) -> Result<T, Failure> {
        self.map_err(Failure::new)
    }
}

/// Returns a handler that calls a function on the worker that has run the step of the process. The function must not
/// block. After the answer, the process runs another step in the same turn.
pub fn inline<C: Command, A: IntoReply<C::Reply>>(f: impl Fn(C) -> A + Send + Sync + 'static) -> impl Handler<C> {
    AnyInline::new(Inline(f))
}

struct Inline<F>(F);

impl<C: Command, A: IntoReply<C::Reply>, F: Fn(C) -> A + Send + Sync + 'static> Handler<C> for Inline<F> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        match guarded(|| (self.0)(command).into_answer()) {
            Ok(answer) => completion.finish(answer),
            Err(text) => completion.fail(Failure::Panicked(text)),
        }
    }
}

impl<C: Command, A: IntoReply<C::Reply>, F: Fn(C) -> A + Send + Sync + 'static> InlineHandler<C> for Inline<F> {
    #[inline]
    fn handle_inline(&self, command: C, call: InlineCall<'_, C>) {
        call.answer((self.0)(command).into_answer());
    }
}

/// Returns a handler that runs the future of a function.
///
/// The worker that has run the step of the process polls the future immediately, before the worker dispatches the next
/// command of this step. If the future completes in this first poll, the future is never queued, and the process runs
/// another step in the same turn. If the first poll does not complete the future, the future becomes a task. As in any
/// handler, the code before the first wait must be short, because this code delays the process that performed the
/// command. Move long computations to [`blocking`](fn@blocking).
///
/// The future is dropped if the command is cancelled or times out, or if the process of the command exits. If a poll of
/// the future is in progress, the future is dropped after this poll. The future is not polled again, even if another
/// wake-up arrives at the same time. When the future completes, the variables of the future are dropped before the
/// answer is delivered.
pub fn future<C, A, Fut>(f: impl Fn(C) -> Fut + Send + Sync + 'static) -> impl Handler<C>
where
    C: Command,
    A: IntoReply<C::Reply>,
    Fut: Future<Output = A> + Send + 'static,
{
    AnyInline::new(ByFuture(f))
}

struct ByFuture<F>(F);

impl<C, A, Fut, F> Handler<C> for ByFuture<F>
where
    C: Command,
    A: IntoReply<C::Reply>,
    Fut: Future<Output = A> + Send + 'static,
    F: Fn(C) -> Fut + Send + Sync + 'static,
{
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        if const { is_large_future::<Fut>() } {
            start_or_fail::<C, _>(guarded(|| boxed((self.0)(command))), completion);
        } else {
            start_or_fail::<C, _>(guarded(|| (self.0)(command)), completion);
        }
    }
}

/// Starts the future of a handler. If the function that creates the future has panicked, the command fails.
fn start_or_fail<C, Fut>(future: Result<Fut, Reason>, completion: Completion<C::Reply>)
where
    C: Command,
    Fut: Future<Output: IntoReply<C::Reply>> + Send + 'static,
{
    match future {
        Ok(future) => start(FutureAnswer::<C>::Later(completion), future),
        Err(text) => completion.fail(Failure::Panicked(text)),
    }
}

/// Starts the future of a handler. The calling thread runs the first poll.
fn start<W, Fut>(work: W, future: Fut)
where
    W: Work + Send + 'static,
    Fut: Future<Output: IntoReply<W::Output>> + Send + 'static,
{
    let host = work.host().clone();
    host.start(HandlerTask::new(work, future));
}

/// Boxes a large future when it is created. In a debug build, each move of a future that is not boxed needs a copy on
/// the stack.
fn boxed<Fut: Future>(future: Fut) -> Pin<Box<Fut>> {
    Box::into_pin(Box::new(future))
}

impl<C, A, Fut, F> InlineHandler<C> for ByFuture<F>
where
    C: Command,
    A: IntoReply<C::Reply>,
    Fut: Future<Output = A> + Send + 'static,
    F: Fn(C) -> Fut + Send + Sync + 'static,
{
    #[inline]
    fn handle_inline(&self, command: C, call: InlineCall<'_, C>) {
        if const { is_large_future::<Fut>() } {
            let future = boxed((self.0)(command));
            start(call.into_future_answer(), future);
        } else {
            let future = (self.0)(command);
            start(call.into_future_answer(), future);
        }
    }
}

/// Returns a handler that calls a function on the blocking pool, where the function may block. If the pool refuses the
/// call, the command fails with [`Failure::Overloaded`].
///
/// If the command is cancelled before the call begins, the function is not called. The exit of a process cancels its
/// commands. Therefore, if a process performs the command in its last step, the function is usually not called. If the
/// function must be called, the process must wait for the answer before the process exits.
pub fn blocking<C: Command, A: IntoReply<C::Reply>>(f: impl Fn(C) -> A + Send + Sync + 'static) -> impl Handler<C> {
    let f = Arc::new(f);
    move |command: C, completion: Completion<C::Reply>| {
        let host = completion.host().clone();
        host.run_blocking(Box::new(Blocking { f: Arc::clone(&f), command, completion }));
    }
}

struct Blocking<F, C: Command> {
    f: Arc<F>,
    command: C,
    completion: Completion<C::Reply>,
}

impl<C: Command, A: IntoReply<C::Reply>, F: Fn(C) -> A + Send + Sync> Job for Blocking<F, C> {
    fn run(self: Box<Self>) {
        let Self { f, command, completion } = *self;
        if completion.is_cancelled() {
            return;
        }
        match guarded(|| f(command).into_answer()) {
            Ok(answer) => completion.finish(answer),
            Err(text) => completion.fail(Failure::Panicked(text)),
        }
    }

    fn refuse(self: Box<Self>, failure: Failure) {
        let Self { command, completion, .. } = *self;
        let _ = drop_caught(command);
        completion.fail(failure);
    }

    fn is_wanted(&self) -> bool {
        !self.completion.is_cancelled()
    }
}

/// Returns a stream handler that runs the future of a function, as [`future`] does. The future sends the items with its
/// [`StreamCompletion`]. If the future still owns the completion when the future returns an error or panics, the error
/// or the panic becomes the failure of the stream. If the future drops the completion without an answer, the stream
/// ends with [`Failure::Abandoned`].
///
/// The future must not wait after its answer (`complete`, `fail` or `finish`). After the answer, the stream is no
/// longer wanted. If the future then waits, the runtime drops the future without another poll. For work that continues
/// after the answer, spawn a process.
///
/// ```
/// # use futures::StreamExt;
/// # use procession::{Command, Context, Failure, StreamCompletion, Runtime, StreamCommand};
/// struct Count(u64);
/// impl Command for Count { type Reply = &'static str; }
/// impl StreamCommand for Count { type Item = u64; }
///
/// let rt = Runtime::builder()
///     .handle_stream(|c: Count, mut replies: StreamCompletion<Count>| async move {
///         for n in 0..c.0 {
///             replies.send(n).await?;
///         }
///         replies.complete("done");
///         Ok::<_, Failure>(())
///     })
///     .build()?;
/// let sum = rt.spawn(async |ctx: Context| {
///     let mut numbers = ctx.stream(Count(4));
///     let mut sum = 0;
///     while let Some(n) = numbers.next().await {
///         sum += n;
///     }
///     assert_eq!(numbers.last().await?, "done");
///     Ok::<_, Failure>(sum)
/// });
/// assert_eq!(rt.block_on(sum)?, 6);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn stream<C, A, Fut>(f: impl Fn(C, StreamCompletion<C>) -> Fut + Send + Sync + 'static) -> impl StreamHandler<C>
where
    C: StreamCommand,
    A: IntoReply<()>,
    Fut: Future<Output = A> + Send + 'static,
{
    move |command: C, replies: StreamCompletion<C>| {
        let return_route = replies.return_route();
        // If `f` panics, the unwinding drops the completion, and the dispatcher fails the command with this panic.
        if const { is_large_future::<Fut>() } {
            start(return_route, boxed(f(command, replies)));
        } else {
            start(return_route, f(command, replies));
        }
    }
}

/// The command that the future of a handler answers. An implementation reports whether the answer is still wanted, and
/// delivers the result.
trait Work {
    type Output;

    /// Called if the future is still pending after its first poll. The call happens inside the turn of the process.
    fn defer(&mut self);

    fn host(&self) -> &Host;

    /// Returns `Ready` if the answer is no longer wanted. Otherwise the task of `cx` is woken when the answer is no
    /// longer wanted.
    fn poll_cancelled(&self, keys: &mut WatchKeys, cx: &Context<'_>) -> Poll<()>;

    /// Removes the wakers that [`poll_cancelled`](Self::poll_cancelled) has stored for `keys`. The task calls this
    /// function when the task ends.
    fn unwatch(&self, keys: &mut WatchKeys);

    /// Calls `f`, which is code of the handler. If `f` drops the completion of this command without an answer, the
    /// completion is returned to the caller.
    fn keeping<T>(&self, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<UntypedCompletion>);

    fn finish(self, result: Result<Self::Output, Failure>, kept: Option<UntypedCompletion>);
}

impl<C: Command> Work for FutureAnswer<C> {
    type Output = C::Reply;

    fn defer(&mut self) {
        FutureAnswer::defer(self);
    }

    fn host(&self) -> &Host {
        FutureAnswer::host(self)
    }

    fn poll_cancelled(&self, keys: &mut WatchKeys, cx: &Context<'_>) -> Poll<()> {
        FutureAnswer::poll_cancelled(self, keys, cx)
    }

    fn unwatch(&self, keys: &mut WatchKeys) {
        FutureAnswer::unwatch(self, keys);
    }

    #[inline]
    fn keeping<R>(&self, f: impl FnOnce() -> R) -> (Result<R, Reason>, Option<UntypedCompletion>) {
        (guarded(f), None)
    }

    #[inline]
    fn finish(self, result: Result<C::Reply, Failure>, _: Option<UntypedCompletion>) {
        FutureAnswer::finish(self, result);
    }
}

impl Work for ReturnRoute {
    type Output = ();

    fn defer(&mut self) {}

    fn host(&self) -> &Host {
        ReturnRoute::host(self)
    }

    fn poll_cancelled(&self, keys: &mut WatchKeys, cx: &Context<'_>) -> Poll<()> {
        ReturnRoute::poll_cancelled(self, keys, cx)
    }

    fn unwatch(&self, keys: &mut WatchKeys) {
        ReturnRoute::unwatch(self, keys);
    }

    fn keeping<R>(&self, f: impl FnOnce() -> R) -> (Result<R, Reason>, Option<UntypedCompletion>) {
        ReturnRoute::keeping(self, f)
    }

    fn finish(self, result: Result<(), Failure>, kept: Option<UntypedCompletion>) {
        if let (Err(failure), Some(untyped)) = (result, kept) {
            untyped.finish(Err(failure));
        }
    }
}

pin_project! {
    /// Runs the future of a handler until the future completes, or until the answer is no longer wanted.
    struct HandlerTask<W, Fut> {
        work: Option<W>,
        #[pin]
        future: Option<Fut>,
        // Whether the future was polled before. If the future was polled before, a cancellation of the command wakes
        // the task.
        waits: bool,
        // Keys of the wakers that this task has registered with the command. A cancellation of the command calls these
        // wakers.
        keys: WatchKeys,
    }

    impl<W, Fut> PinnedDrop for HandlerTask<W, Fut> {
        fn drop(this: Pin<&mut Self>) {
            // The destructor of the future may panic. This panic must not unwind into the crate `async-task`.
            let _ = catch(|| this.project().future.set(None));
        }
    }
}

impl<W, Fut> HandlerTask<W, Fut> {
    fn new(work: W, future: Fut) -> Self {
        Self { work: Some(work), future: Some(future), waits: false, keys: WatchKeys::default() }
    }
}

impl<W, A, Fut> Future for HandlerTask<W, Fut>
where
    W: Work,
    A: IntoReply<W::Output>,
    Fut: Future<Output = A>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(work) = this.work else { return Poll::Ready(()) };
        let has_waited = std::mem::replace(this.waits, true);
        let (mut result, mut kept) = (Err(Failure::Cancelled), None);
        // If a cancellation caused the wake-up, the future is not polled again. The future is also not polled again
        // after the runtime has ended. Without this rule, a future could wake itself forever. If the process of the
        // command also cannot exit, the drop of the runtime would never end.
        let mut is_over = || work.host().phase() == Phase::Closed || work.poll_cancelled(this.keys, cx).is_ready();
        if !has_waited || !is_over() {
            let mut polled = Poll::Pending;
            let (outcome, untyped) = work.keeping(|| {
                Current::with(|current| {
                    let future = this.future.as_mut();
                    let poll = || match future.as_pin_mut() {
                        Some(future) => future.poll(cx).map(IntoReply::into_answer),
                        None => Poll::Pending,
                    };
                    polled = current.outside(|| current.with_budget(poll));
                    // One call of `keeping` for the poll and for the drop is faster than two calls. But if the poll has
                    // stored completions, these completions are answered before the destructor of the future runs.
                    if polled.is_ready() && !current.handler.has_kept() {
                        this.future.set(None);
                    }
                });
            });
            match (polled, outcome) {
                (Poll::Pending, Ok(())) => {
                    // If the future dropped its completion in this poll, `untyped` contains this completion. When
                    // `untyped` is dropped here, the command is answered with `Abandoned`. The later result of the
                    // future cannot change this answer.
                    drop(untyped);
                    if !has_waited {
                        work.defer();
                    }
                    if has_waited || work.poll_cancelled(this.keys, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                // The answer of a completed future is delivered even if the drop of the future panics.
                (Poll::Ready(answer), _) => (result, kept) = (answer, untyped),
                (Poll::Pending, Err(text)) => (result, kept) = (Err(Failure::Panicked(text)), untyped),
            }
        }
        // The variables of each future are dropped before the answer of the future is delivered. Most completed futures
        // were already dropped directly after their last poll.
        if this.future.is_some() {
            let (_, held) = work.keeping(|| this.future.set(None));
            kept = kept.or(held);
        }
        work.unwatch(this.keys);
        if let Some(work) = this.work.take() {
            work.finish(result, kept);
        }
        Poll::Ready(())
    }
}
