//! Retries of a command that failed, with exponential backoff.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{FusedFuture, select};

use crate::host::dispatch::Handler;
use crate::host::dispatch::attempt::HandlerCall;
use crate::host::dispatch::completion::Completion;
use crate::host::timer::backoff::Backoff;
use crate::platform::sync::Arc;
use crate::process::catch::{catch, drop_caught};
use crate::process::command::Command;
use crate::process::failure::Failure;

/// Retries a command that failed in the inner handler. The wait before a retry is twice as long as the previous wait,
/// up to a maximum.
///
/// By default, a command is retried after the following failures: [`Failure::Error`], [`Failure::Panicked`],
/// [`Failure::TimedOut`] (from an inner [`Timeout`](crate::handler::layer::Timeout)), [`Failure::Overloaded`] and
/// [`Failure::Abandoned`]. After a failure that another attempt cannot change, for example [`Failure::NoHandler`], the
/// command is not retried. [`when`](Self::when) replaces this default choice. If the answer of a command is no longer
/// wanted, the command is never retried. When all attempts have failed, the process receives the last failure.
///
/// The handler must tolerate that a command is repeated: an attempt that timed out or panicked may already have had an
/// effect.
#[derive(Clone)]
pub struct Retry<H> {
    inner: Arc<H>,
    policy: RetryPolicy,
}

#[derive(Clone)]
struct RetryPolicy {
    times: u32,
    backoff: Backoff,
    retries: Option<Arc<dyn Fn(&Failure) -> bool + Send + Sync>>,
}

impl<H> Retry<H> {
    /// Retries a command in `inner` up to `times` times. The first wait is `wait`, and each further wait is twice as
    /// long as the wait before. No wait is longer than one minute, unless `wait` itself is longer than one minute. If
    /// `wait` is longer than one minute, all waits have the length `wait`. The first attempt is no retry: if `times` is
    /// 0, the command is never retried. Even if `wait` is zero, other tasks run between two attempts.
    pub fn new(inner: H, times: u32, wait: Duration) -> Self {
        let backoff = Backoff::new(wait, Duration::from_secs(60).max(wait)).jitter(false);
        let policy = RetryPolicy { times, backoff, retries: None };
        Self { inner: Arc::new(inner), policy }
    }

    /// Sets the maximum wait. Default: one minute, or the first wait if the first wait is longer.
    #[must_use]
    pub fn ceiling(mut self, most: Duration) -> Self {
        self.policy.backoff = self.policy.backoff.ceiling(most);
        self
    }

    /// Makes each wait random, as a [`Backoff`] does. The length is uniformly distributed between zero and the length
    /// that the wait has without jitter. Therefore, if many commands fail at the same time, their retries happen at
    /// different times. Default: off.
    #[must_use]
    pub fn jitter(mut self) -> Self {
        self.policy.backoff = self.policy.backoff.jitter(true);
        self
    }

    /// Retries a command after the failures for which `retries` returns `true`. This function replaces the default
    /// choice.
    #[must_use]
    pub fn when(mut self, retries: impl Fn(&Failure) -> bool + Send + Sync + 'static) -> Self {
        self.policy.retries = Some(Arc::new(retries));
        self
    }
}

impl<H: fmt::Debug> fmt::Debug for Retry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RetryPolicy { times, backoff, .. } = &self.policy;
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("times", times)
            .field("backoff", backoff)
            .finish_non_exhaustive()
    }
}

impl RetryPolicy {
    fn retries(&self, failure: &Failure) -> bool {
        use Failure::{Abandoned, Error, Overloaded, Panicked, TimedOut};
        match &self.retries {
            Some(retries) => retries(failure),
            None => matches!(failure, Error(_) | Panicked(_) | Overloaded(_) | TimedOut | Abandoned),
        }
    }
}

/// A command that may be retried.
struct RetriableCommand<H, C: Command> {
    inner: Arc<H>,
    policy: RetryPolicy,
    command: C,
    completion: Completion<C::Reply>,
    retried: u32,
}

impl<C: Command + Clone, H: Handler<C>> RetriableCommand<H, C> {
    fn start_attempt(&self) -> HandlerCall<C::Reply> {
        self.completion.call_handler(&*self.inner, self.command.clone())
    }

    /// Returns whether another attempt follows this failure.
    fn retries(&self, failure: &Failure) -> bool {
        self.retried < self.policy.times && !self.completion.is_cancelled() && self.policy.retries(failure)
    }

    /// Awaits the attempt, and retries until an attempt succeeds or no further attempt follows. Then answers the
    /// command.
    async fn finish_with_retries(mut self, mut attempt: HandlerCall<C::Reply>) {
        loop {
            let answer = attempt.await;
            // The predicate is user code and may panic. The clone of the command, which follows below, may also panic.
            match catch(|| answer.as_ref().err().is_some_and(|failure| self.retries(failure))) {
                // The error is a value of the user, and the drop of the error may panic.
                Ok(true) => drop(drop_caught(answer)),
                Ok(false) => return self.completion.finish(answer),
                Err(text) => return self.completion.fail(Failure::Panicked(text)),
            }
            let host = self.completion.host();
            let wait = self.policy.backoff.wait(self.retried, || host.random());
            pause(select(host.sleep(wait), self.completion.cancelled())).await;
            if self.completion.is_cancelled() {
                return;
            }
            self.retried += 1;
            attempt = match catch(|| self.start_attempt()) {
                Ok(attempt) => attempt,
                Err(text) => return self.completion.fail(Failure::Panicked(text)),
            };
        }
    }
}

/// Waits for `wait`, and returns `Pending` at least once.
///
/// A wait of zero completes in its first poll. If every attempt also failed immediately, the loop of attempts and waits
/// would never return from its poll. The worker could then not process a timer, a kill or a shutdown between two
/// attempts.
pub(super) async fn pause(mut wait: impl FusedFuture + Unpin) {
    let mut is_first = true;
    poll_fn(|cx| {
        let is_over = wait.is_terminated() || wait.poll_unpin(cx).is_ready();
        match (is_over, std::mem::take(&mut is_first)) {
            (false, _) => Poll::Pending,
            (true, false) => Poll::Ready(()),
            (true, true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await;
}

impl<C: Command + Clone, H: Handler<C>> Handler<C> for Retry<H> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        let host = completion.host().clone();
        let (inner, policy) = (Arc::clone(&self.inner), self.policy.clone());
        let retriable = RetriableCommand { inner, policy, command, completion, retried: 0 };
        let attempt = retriable.start_attempt();
        let mut future = Box::pin(retriable.finish_with_retries(attempt));
        // A command that is answered in the first poll needs no task.
        if future.as_mut().now_or_never().is_none() {
            host.spawn_future(future);
        }
    }
}
