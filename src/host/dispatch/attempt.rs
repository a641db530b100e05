//! One handler that asks another: the answer comes to it, and it decides what the process hears.
//!
//! What is asked holds a completion of the same yield whose answer goes into a cell. Whoever asks holds the other end;
//! when that is dropped, or the yield itself is not wanted any more, the one that is asked sees its cancellation.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::FusedFuture;

use crate::host::dispatch::completion::{Completion, Layer, UntypedCompletion, Unwanted};
use crate::host::dispatch::{Handler, completion};
use crate::platform::sync::Arc;
use crate::process::catch::drop_caught;
use crate::process::command::Command;
use crate::process::failure::Failure;
use crate::process::state::oneshot::Oneshot;

/// What tells a handler that nobody waits for its answer, though its yield is in flight.
pub(crate) trait Gate: fmt::Debug + Send + Sync {
    /// Whether nobody waits.
    fn is_closed(&self) -> bool;

    /// True while somebody waits; then `watcher` will be woken when that ends.
    fn watch(&self, watcher: &Waker) -> bool;
}

/// What lies between one that asks and one that is asked.
struct Cell<T> {
    answer: Oneshot<Result<T, Failure>>,
    /// The gate of whoever asks, if it was asked itself.
    outer: Option<Arc<dyn Gate>>,
}

impl<T> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("closed", &self.answer.is_closed()).field("outer", &self.outer).finish()
    }
}

impl<T: Send> Gate for Cell<T> {
    fn is_closed(&self) -> bool {
        self.answer.is_closed() || self.outer.as_ref().is_some_and(|outer| outer.is_closed())
    }

    fn watch(&self, watcher: &Waker) -> bool {
        !self.answer.watch(watcher) && self.outer.as_ref().is_none_or(|outer| outer.watch(watcher))
    }
}

/// Sends an answer into the cell.
struct Asked<T> {
    cell: Arc<Cell<T>>,
    gate: Arc<dyn Gate>,
}

impl<T: Send + 'static> Layer<T> for Asked<T> {
    fn answer(self: Box<Self>, answer: Result<T, Failure>, slip: UntypedCompletion) {
        // The yield is whoever asks's to answer, and to be counted.
        drop(slip.release());
        if let Err(late) = self.cell.answer.send(answer) {
            let _ = drop_caught(late);
        }
    }

    fn later(self: Box<Self>, slip: UntypedCompletion) -> Box<dyn FnOnce(Failure)> {
        Box::new(move |failure| self.answer(Err(failure), slip))
    }

    fn gate(&self) -> Option<&Arc<dyn Gate>> {
        Some(&self.gate)
    }
}

/// The answer of a handler that another handler asks: see [`Completion::ask`].
#[must_use = "dropped, it tells the handler that nobody waits for its answer"]
pub struct Attempt<T> {
    cell: Option<Arc<Cell<T>>>,
    unwanted: Unwanted,
}

impl<T: Send + 'static> Completion<T> {
    /// Has `handler` answer, to whoever calls this and not to the process: what layers are made of that wait, ask again
    /// or ask several. The completion is still to be answered.
    ///
    /// The handler is called here and now, with a completion of the same yield.
    ///
    /// ```
    /// use procession::{Command, Completion, Handler};
    /// use std::sync::Arc;
    ///
    /// /// Asks the other handler where the one fails.
    /// struct Or<A, B>(A, Arc<B>);
    ///
    /// impl<C: Command + Clone, A: Handler<C>, B: Handler<C>> Handler<C> for Or<A, B> {
    ///     fn handle(&self, command: C, completion: Completion<C::Reply>) {
    ///         let first = completion.ask(&self.0, command.clone());
    ///         let other = Arc::clone(&self.1);
    ///         completion.host().clone().spawn_future(async move {
    ///             let answer = match first.await {
    ///                 Ok(reply) => Ok(reply),
    ///                 Err(_) => completion.ask(&*other, command).await,
    ///             };
    ///             completion.finish(answer);
    ///         });
    ///     }
    /// }
    /// # use procession::{Context, Runtime, handler};
    /// # #[derive(Clone)]
    /// # struct Ask;
    /// # impl Command for Ask { type Reply = u64; }
    /// # let either = Or(handler::inline(|_: Ask| Err("no")), Arc::new(handler::inline(|_: Ask| 7)));
    /// # let rt = Runtime::builder().handler(either).build()?;
    /// # assert_eq!(rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Ask).await))?, 7);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// What the handler answers: its failures, [`Failure::Panicked`] and [`Failure::Abandoned`] among them. And
    /// [`Failure::Cancelled`] as soon as the process does not wait any more.
    ///
    /// # Cancel safety
    /// Dropped, the attempt is over: the handler sees that, and a late answer is discarded. It sees at once, too, when
    /// the process gives the command up, however many handlers stand in between.
    pub fn ask<C, H>(&self, handler: &H, command: C) -> Attempt<T>
    where
        C: Command<Reply = T>,
        H: Handler<C> + ?Sized,
    {
        let cell = Arc::new(Cell { answer: Oneshot::new(), outer: self.gate().cloned() });
        let asked = Asked { gate: cell.clone(), cell: Arc::clone(&cell) };
        let inner = self.inner(Box::new(asked));
        let attempt = Attempt { cell: Some(cell), unwanted: self.cancelled() };
        completion::guarded(|| handler.handle(command, inner));
        attempt
    }
}

impl<T> Attempt<T> {
    fn end(&mut self) {
        if let Some(cell) = self.cell.take() {
            let _ = drop_caught(cell.answer.close());
        }
    }
}

impl<T> Future for Attempt<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(cell) = &this.cell else { return Poll::Pending };
        let answer = match cell.answer.poll(cx.waker()) {
            Poll::Ready(answer) => answer.unwrap_or(Err(Failure::Abandoned)),
            Poll::Pending if Pin::new(&mut this.unwanted).poll(cx).is_pending() => return Poll::Pending,
            Poll::Pending => Err(Failure::Cancelled),
        };
        this.end();
        Poll::Ready(answer)
    }
}

impl<T> FusedFuture for Attempt<T> {
    fn is_terminated(&self) -> bool {
        self.cell.is_none()
    }
}

impl<T> Drop for Attempt<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T> fmt::Debug for Attempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt<{}>", std::any::type_name::<T>())
    }
}
