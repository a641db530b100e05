//! Functions as handlers: at once, as a future, on the blocking pool, or as a stream.
//!
//! [`Builder::handle`](crate::Builder::handle), [`handle_async`](crate::Builder::handle_async),
//! [`handle_blocking`](crate::Builder::handle_blocking) and [`handle_stream`](crate::Builder::handle_stream) register
//! these directly; here they are values, to be put inside other handlers: those of [`layer`].

pub(crate) mod blocking;
pub mod layer;
pub(crate) mod stream;

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

#[doc(no_inline)]
pub use crate::handler::layer::ConcurrencyLimit;
#[doc(no_inline)]
pub use crate::handler::layer::RateLimit;
#[doc(no_inline)]
pub use crate::handler::layer::Retry;
#[doc(no_inline)]
pub use crate::handler::layer::Timeout;
use crate::handler::stream::{Replier, StreamHandler};
use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::{Completion, ReturnRoute, UntypedCompletion};
use crate::host::dispatch::inline::{FutureAnswer, InlineCall};
use crate::host::job::blocking_pool::{Job, PoolRefusal};
use crate::platform::sync::Arc;
use crate::process::catch::{catch, drop_caught};
use crate::process::command::{Command, StreamCommand};
use crate::process::exit::{BoxError, Reason};
use crate::process::failure::Failure;
use crate::process::state::current::Current;

/// What a handler function may return: the reply, or a `Result` whose error becomes the failure.
///
/// A command whose reply is itself a `Result` is answered with that `Result`, errors included.
pub trait Answer<T> {
    /// The reply or the failure.
    ///
    /// # Errors
    /// What the function failed with, as [`Failure::Error`].
    fn into_answer(self) -> Result<T, Failure>;
}

impl<T> Answer<T> for T {
    fn into_answer(self) -> Result<T, Failure> {
        Ok(self)
    }
}

impl<T, E: Into<BoxError>> Answer<T> for Result<T, E> {
    fn into_answer(self) -> Result<T, Failure> {
        self.map_err(Failure::new)
    }
}

/// A function that answers at once, on the worker that stepped the process; the process is stepped again in the same
/// turn.
pub fn inline<C: Command, A: Answer<C::Reply>>(f: impl Fn(C) -> A + Send + Sync + 'static) -> impl Handler<C> {
    Inline(f)
}

struct Inline<F>(F);

impl<C: Command, A: Answer<C::Reply>, F: Fn(C) -> A + Send + Sync + 'static> Handler<C> for Inline<F> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        match catch(|| (self.0)(command).into_answer()) {
            Ok(answer) => completion.finish(answer),
            Err(text) => completion.fail(Failure::Panicked(text)),
        }
    }

    fn is_short(&self) -> bool {
        true
    }

    #[inline]
    fn handle_inline(&self, command: C, call: InlineCall<'_, C>) {
        call.answer((self.0)(command).into_answer());
    }
}

/// A function whose future the runtime runs.
///
/// The future is polled at once on the worker that stepped the process, before the next command of that step is
/// dispatched: if it answers without waiting, that costs no task, and the process is stepped again in the same turn. If
/// it waits, it is a task of its own from then on. So what it does before its first `await` must be short, as in any
/// handler; long work belongs behind an `await` or into [`blocking`].
///
/// It is dropped as soon as the command is cancelled, times out or its process ends: between two of its polls, even if
/// it is woken on another worker at that moment. What it holds is let go before its answer is known.
pub fn future<C, A, Fut>(f: impl Fn(C) -> Fut + Send + Sync + 'static) -> impl Handler<C>
where
    C: Command,
    A: Answer<C::Reply>,
    Fut: Future<Output = A> + Send + 'static,
{
    ByFuture(f)
}

struct ByFuture<F>(F);

impl<C, A, Fut, F> Handler<C> for ByFuture<F>
where
    C: Command,
    A: Answer<C::Reply>,
    Fut: Future<Output = A> + Send + 'static,
    F: Fn(C) -> Fut + Send + Sync + 'static,
{
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        match catch(|| (self.0)(command)) {
            Ok(future) => {
                let host = completion.host().clone();
                host.start(Working::new(FutureAnswer::<C>::Later(completion), future));
            }
            Err(text) => completion.fail(Failure::Panicked(text)),
        }
    }

    fn is_short(&self) -> bool {
        true
    }

    fn handle_inline(&self, command: C, call: InlineCall<'_, C>) {
        let future = (self.0)(command);
        let owed = call.owed();
        let host = owed.host().clone();
        host.start(Working::new(owed, future));
    }
}

/// A function that may block, on the blocking pool; one whose command is cancelled before it begins never runs. When
/// the pool refuses it the command fails with a [`PoolRefusal`].
pub fn blocking<C: Command, A: Answer<C::Reply>>(f: impl Fn(C) -> A + Send + Sync + 'static) -> impl Handler<C> {
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

impl<C: Command, A: Answer<C::Reply>, F: Fn(C) -> A + Send + Sync> Job for Blocking<F, C> {
    fn run(self: Box<Self>) {
        let Self { f, command, completion } = *self;
        if completion.is_cancelled() {
            return;
        }
        match catch(|| f(command).into_answer()) {
            Ok(answer) => completion.finish(answer),
            Err(text) => completion.fail(Failure::Panicked(text)),
        }
    }

    fn refuse(self: Box<Self>, refusal: PoolRefusal) {
        let Self { command, completion, .. } = *self;
        let _ = drop_caught(command);
        completion.fail(Failure::new(refusal));
    }

    fn is_wanted(&self) -> bool {
        !self.completion.is_cancelled()
    }
}

/// A function whose future sends the items of a stream: as [`future`], with a [`Replier`]. If the future ends with an
/// error, or panics, while it holds the replier, the stream ends with that; if it ends and has dropped the replier
/// unanswered, with [`Failure::Abandoned`].
///
/// ```
/// # use futures::StreamExt;
/// # use procession::{Command, Context, Failure, Replier, Runtime, StreamCommand};
/// struct Count(u64);
/// impl Command for Count { type Reply = &'static str; }
/// impl StreamCommand for Count { type Item = u64; }
///
/// let rt = Runtime::builder()
///     .handle_stream(|c: Count, mut replies: Replier<Count>| async move {
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
pub fn stream<C, A, Fut>(f: impl Fn(C, Replier<C>) -> Fut + Send + Sync + 'static) -> impl StreamHandler<C>
where
    C: StreamCommand,
    A: Answer<()>,
    Fut: Future<Output = A> + Send + 'static,
{
    move |command: C, replies: Replier<C>| {
        let way = replies.way();
        // A panic in here is the dispatcher's to answer: the replier is dropped while it unwinds.
        let future = f(command, replies);
        let host = way.host().clone();
        host.start(Working::new(way, future));
    }
}

/// What a handler's future works for: it knows when nobody waits any more, and what to do with the result.
trait Work {
    type Output;

    /// It was polled for the first time, inside the turn of the process, and is not done.
    fn defer(&mut self);

    fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()>;

    /// Runs something of the handler's, with its completion if it was dropped unanswered there.
    fn keeping<T>(&self, f: impl FnOnce() -> T) -> (Result<T, Reason>, Option<UntypedCompletion>);

    fn finish(self, result: Result<Self::Output, Failure>, kept: Option<UntypedCompletion>);
}

impl<C: Command> Work for FutureAnswer<C> {
    type Output = C::Reply;

    fn defer(&mut self) {
        FutureAnswer::defer(self);
    }

    fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        FutureAnswer::poll_cancelled(self, cx)
    }

    fn keeping<R>(&self, f: impl FnOnce() -> R) -> (Result<R, Reason>, Option<UntypedCompletion>) {
        (catch(f), None)
    }

    fn finish(self, result: Result<C::Reply, Failure>, _: Option<UntypedCompletion>) {
        FutureAnswer::finish(self, result);
    }
}

impl Work for ReturnRoute {
    type Output = ();

    fn defer(&mut self) {}

    fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        ReturnRoute::poll_cancelled(self, cx)
    }

    fn keeping<R>(&self, f: impl FnOnce() -> R) -> (Result<R, Reason>, Option<UntypedCompletion>) {
        ReturnRoute::keeping(self, f)
    }

    fn finish(self, result: Result<(), Failure>, kept: Option<UntypedCompletion>) {
        if let (Err(failure), Some(slip)) = (result, kept) {
            slip.finish(Err(failure));
        }
    }
}

pin_project! {
    /// Runs a handler's future until it is done or nobody waits for the answer any more.
    struct Working<W, Fut> {
        work: Option<W>,
        #[pin]
        future: Option<Fut>,
        // It has waited, and will be woken when the command is cancelled.
        waits: bool,
    }

    impl<W, Fut> PinnedDrop for Working<W, Fut> {
        fn drop(this: Pin<&mut Self>) {
            // A panic here must not leave async-task's hands.
            let _ = catch(|| this.project().future.set(None));
        }
    }
}

impl<W, Fut> Working<W, Fut> {
    fn new(work: W, future: Fut) -> Self {
        Self { work: Some(work), future: Some(future), waits: false }
    }
}

impl<W, A, Fut> Future for Working<W, Fut>
where
    W: Work,
    A: Answer<W::Output>,
    Fut: Future<Output = A>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(work) = this.work else { return Poll::Ready(()) };
        let has_waited = std::mem::replace(this.waits, true);
        let (mut result, mut kept) = (Err(Failure::Cancelled), None);
        // Woken perhaps because it is cancelled: then it is not polled again.
        if !has_waited || work.poll_cancelled(cx).is_pending() {
            let future = this.future.as_mut();
            let poll = || future.as_pin_mut().map_or(Poll::Pending, |future| future.poll(cx).map(Answer::into_answer));
            match work.keeping(|| Current::with(|current| current.outside(poll))) {
                (Ok(Poll::Pending), slip) => {
                    // Its completion was dropped on the way: that is an answer, whatever it does yet.
                    drop(slip);
                    if !has_waited {
                        work.defer();
                    }
                    if has_waited || work.poll_cancelled(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                (Ok(Poll::Ready(answer)), slip) => (result, kept) = (answer, slip),
                (Err(text), slip) => (result, kept) = (Err(Failure::Panicked(text)), slip),
            }
        }
        // What it holds is let go before its answer is known.
        let (_, held) = work.keeping(|| this.future.set(None));
        if let Some(work) = this.work.take() {
            work.finish(result, kept.or(held));
        }
        Poll::Ready(())
    }
}
