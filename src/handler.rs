//! Functions as handlers: at once, as a future, or on the blocking pool.
//!
//! [`Builder::handle`](crate::Builder::handle), [`handle_async`](crate::Builder::handle_async) and
//! [`handle_blocking`](crate::Builder::handle_blocking) register these directly; here they are values, to be put
//! inside other handlers.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::dispatch::Handler;
use crate::dispatch::completion::Completion;
use crate::process::command::Command;
use crate::process::exit::BoxError;
use crate::process::failure::Failure;
use crate::process::panic::catch;
use crate::sync::{Arc, Mutex};

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
    move |command: C, completion: Completion<C::Reply>| match catch(|| f(command).into_answer()) {
        Ok(answer) => completion.finish(answer),
        Err(text) => completion.fail(Failure::Panicked(text)),
    }
}

/// A function whose future the runtime runs as a task of its own; it is dropped when the command is cancelled or its
/// process ends.
pub fn future<C, A, Fut>(f: impl Fn(C) -> Fut + Send + Sync + 'static) -> impl Handler<C>
where
    C: Command,
    A: Answer<C::Reply>,
    Fut: Future<Output = A> + Send + 'static,
{
    move |command: C, completion: Completion<C::Reply>| match catch(|| f(command)) {
        Ok(future) => {
            let host = completion.host().clone();
            // A runtime that takes no futures any more drops it, and with it the completion.
            host.spawn_future(Answering { completion: Some(completion), future });
        }
        Err(text) => completion.fail(Failure::Panicked(text)),
    }
}

/// A function that may block, on the blocking pool. When the pool's queue is full the command fails at once.
pub fn blocking<C: Command, A: Answer<C::Reply>>(f: impl Fn(C) -> A + Send + Sync + 'static) -> impl Handler<C> {
    let f = Arc::new(f);
    move |command: C, completion: Completion<C::Reply>| {
        let f = Arc::clone(&f);
        let host = completion.host().clone();
        // Shared with the job, so that a refused one can be answered with the reason.
        let held = Arc::new(Mutex::new(Some(completion)));
        let job = Arc::clone(&held);
        let run = Box::new(move || {
            let Some(completion) = job.lock().take().filter(|completion| !completion.is_cancelled()) else { return };
            match catch(|| f(command).into_answer()) {
                Ok(answer) => completion.finish(answer),
                Err(text) => completion.fail(Failure::Panicked(text)),
            }
        });
        if let Err(refused) = host.shared().pool.run(run) {
            if let Some(completion) = held.lock().take() {
                completion.fail(Failure::new(
                    "the blocking pool takes no more work: its queue is full, or the runtime has shut down",
                ));
            }
            drop(refused);
        }
    }
}

pin_project! {
    /// Runs a handler's future until it answers or nobody waits for the answer any more.
    struct Answering<T, Fut> {
        completion: Option<Completion<T>>,
        #[pin]
        future: Fut,
    }
}

impl<T, A, Fut> Future for Answering<T, Fut>
where
    T: Send + 'static,
    A: Answer<T>,
    Fut: Future<Output = A>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let Some(completion) = this.completion else { return Poll::Ready(()) };
        let future = this.future;
        let answer = match catch(|| future.poll(cx).map(Answer::into_answer)) {
            Ok(Poll::Pending) => {
                if completion.poll_cancelled(cx).is_pending() {
                    return Poll::Pending;
                }
                Err(Failure::Cancelled)
            }
            Ok(Poll::Ready(answer)) => answer,
            Err(text) => Err(Failure::Panicked(text)),
        };
        if let Some(completion) = this.completion.take() {
            completion.finish(answer);
        }
        Poll::Ready(())
    }
}
