//! A handler can call another handler: the outer handler calls the inner handler. The outer handler receives the answer
//! of the inner handler. The outer handler decides which answer the process receives.
//!
//! The inner handler gets a completion of the same yield. However, an answer through this completion is stored in a
//! one-shot cell. The outer handler holds the receiving end of the cell, the [`HandlerCall`]. If the outer handler
//! drops the `HandlerCall`, or the process cancels the yield, the inner handler can see that the completion of the
//! inner handler is cancelled.

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
use crate::process::state::reply_slot::ReplySlot;
use crate::process::watchers::WatchKey;

/// With a gate, a handler can check whether the caller of the handler has stopped waiting. The caller may stop waiting
/// before the yield is answered.
pub(crate) trait Gate: fmt::Debug + Send + Sync {
    /// Returns true if the caller has stopped waiting.
    fn is_closed(&self) -> bool;

    /// Returns true if the caller still waits. In this case, `watcher` is called when the caller stops waiting. All
    /// calls with the same `keys` must be calls on the same gate.
    fn watch(&self, keys: &mut GateKeys, watcher: &Waker) -> bool;

    /// Removes the wakers that [`watch`](Self::watch) has stored for `keys`.
    fn unwatch(&self, keys: &mut GateKeys);
}

/// The entries of one future in the lists of wakers of several gates. These gates are one gate and all outer gates of
/// this gate. Each gate has one list of wakers, and the future has one entry in each list.
#[derive(Debug, Default)]
pub(crate) struct GateKeys {
    own: WatchKey,
    outer: Option<Box<Self>>,
}

/// The one-shot channel between an outer handler and an inner handler.
struct Cell<T> {
    answer: ReplySlot<Result<T, Failure>>,
    /// Gate of the outer handler. The value is `Some` if another handler has called the outer handler.
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

    fn watch(&self, keys: &mut GateKeys, watcher: &Waker) -> bool {
        !self.answer.watch(&mut keys.own, watcher)
            && self.outer.as_ref().is_none_or(|outer| outer.watch(keys.outer.get_or_insert_default(), watcher))
    }

    fn unwatch(&self, keys: &mut GateKeys) {
        self.answer.unwatch(&mut keys.own);
        if let (Some(outer), Some(keys)) = (&self.outer, &mut keys.outer) {
            outer.unwatch(keys);
        }
    }
}

/// The sending end of the one-shot cell. The completion of the inner handler owns the sending end.
struct Asked<T> {
    cell: Arc<Cell<T>>,
    gate: Arc<dyn Gate>,
}

impl<T: Send + 'static> Layer<T> for Asked<T> {
    fn answer(self: Box<Self>, answer: Result<T, Failure>, untyped: UntypedCompletion) {
        // The answer of the inner handler does not answer the yield. The outer handler answers the yield later, and
        // only this later answer is counted.
        drop(untyped.release());
        if let Err(late) = self.cell.answer.send(answer, || ()) {
            let _ = drop_caught(late);
        }
    }

    fn later(self: Box<Self>, untyped: UntypedCompletion) -> Box<dyn FnOnce(Failure)> {
        Box::new(move |failure| self.answer(Err(failure), untyped))
    }

    fn gate(&self) -> Option<&Arc<dyn Gate>> {
        Some(&self.gate)
    }
}

/// Future that resolves to the answer of an inner handler: see [`Completion::call_handler`].
#[must_use = "if this future is dropped, the inner handler sees that its answer is no longer needed"]
pub struct HandlerCall<T> {
    cell: Option<Arc<Cell<T>>>,
    unwanted: Unwanted,
}

impl<T: Send + 'static> Completion<T> {
    /// Calls `handler`, and returns a future that resolves to the handler's answer. The process does not receive this
    /// answer. The caller of this method must still answer the completion `self`. With this method, a layer can wait
    /// for an answer, retry, or call several handlers.
    ///
    /// The handler runs immediately, on this thread, with a completion of the same yield.
    ///
    /// ```
    /// use procession::{Command, Completion, Handler};
    /// use std::sync::Arc;
    ///
    /// /// Calls the second handler if the first handler fails.
    /// struct Or<A, B>(A, Arc<B>);
    ///
    /// impl<C: Command + Clone, A: Handler<C>, B: Handler<C>> Handler<C> for Or<A, B> {
    ///     fn handle(&self, command: C, completion: Completion<C::Reply>) {
    ///         let first = completion.call_handler(&self.0, command.clone());
    ///         let other = Arc::clone(&self.1);
    ///         completion.host().clone().spawn_future(async move {
    ///             let answer = match first.await {
    ///                 Ok(reply) => Ok(reply),
    ///                 Err(_) => completion.call_handler(&*other, command).await,
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
    /// If the handler fails, the future resolves to the failure of the handler, for example [`Failure::Panicked`] or
    /// [`Failure::Abandoned`]. If the process stops waiting for the command, the future resolves to
    /// [`Failure::Cancelled`].
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call. The completion of the called handler then reports the cancellation, and a
    /// late answer is discarded. If the process cancels the command, the completion of the called handler also reports
    /// the cancellation. Other handlers between the process and the called handler do not change this behaviour.
    pub fn call_handler<C, H>(&self, handler: &H, command: C) -> HandlerCall<T>
    where
        C: Command<Reply = T>,
        H: Handler<C> + ?Sized,
    {
        let cell = Arc::new(Cell { answer: ReplySlot::new(false), outer: self.gate().cloned() });
        let asked = Asked { gate: cell.clone(), cell: Arc::clone(&cell) };
        let inner = self.inner(Box::new(asked));
        let attempt = HandlerCall { cell: Some(cell), unwanted: self.cancelled() };
        let _ = completion::guarded(|| handler.handle(command, inner));
        attempt
    }
}

impl<T> HandlerCall<T> {
    fn end(&mut self) {
        if let Some(cell) = self.cell.take() {
            let _ = drop_caught(cell.answer.close());
            self.unwanted.end();
        }
    }
}

impl<T> Future for HandlerCall<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(cell) = &this.cell else { return Poll::Pending };
        let answer = match cell.answer.poll(cx.waker()) {
            Poll::Ready(answer) => answer,
            Poll::Pending if Pin::new(&mut this.unwanted).poll(cx).is_pending() => return Poll::Pending,
            Poll::Pending => Err(Failure::Cancelled),
        };
        this.end();
        Poll::Ready(answer)
    }
}

impl<T> FusedFuture for HandlerCall<T> {
    fn is_terminated(&self) -> bool {
        self.cell.is_none()
    }
}

impl<T> Drop for HandlerCall<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T> fmt::Debug for HandlerCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HandlerCall<{}>", std::any::type_name::<T>())
    }
}
