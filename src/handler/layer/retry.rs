//! Asking again after a failure, later and later.

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{FusedFuture, select};

use crate::host::dispatch::Handler;
use crate::host::dispatch::attempt::Attempt;
use crate::host::dispatch::completion::Completion;
use crate::host::timer::backoff::Backoff;
use crate::platform::sync::Arc;
use crate::process::catch::catch;
use crate::process::command::Command;
use crate::process::failure::Failure;

/// Asks the handler inside again when it failed, after a wait that doubles each time.
///
/// What is retried is a failure of an attempt: [`Failure::Error`], [`Failure::Panicked`], [`Failure::TimedOut`] (of a
/// [`Timeout`](crate::handler::layer::Timeout) inside) and [`Failure::Abandoned`]; [`when`](Self::when) says otherwise. Never retried is
/// what can't get better, [`Failure::NoHandler`] and the like, nor anything once nobody waits for the answer. When all
/// attempts have failed the process hears the last failure.
///
/// The handler must bear being asked twice for the same thing: one that timed out or panicked may have done it.
#[derive(Clone)]
pub struct Retry<H> {
    inner: Arc<H>,
    policy: Policy,
}

#[derive(Clone)]
struct Policy {
    times: u32,
    backoff: Backoff,
    retries: Option<Arc<dyn Fn(&Failure) -> bool + Send + Sync>>,
}

impl<H> Retry<H> {
    /// Asks `inner` again up to `times` times: after `wait`, then twice that, four times that, and so on, up to a minute
    /// each. The first attempt is not counted; with 0 there is no other. With a `wait` of zero other tasks still run between
    /// two attempts.
    pub fn new(inner: H, times: u32, wait: Duration) -> Self {
        let backoff = Backoff::new(wait, Duration::from_secs(60).max(wait)).jitter(false);
        let policy = Policy { times, backoff, retries: None };
        Self { inner: Arc::new(inner), policy }
    }

    /// The longest wait.
    #[must_use]
    pub fn ceiling(mut self, most: Duration) -> Self {
        self.policy.backoff = self.policy.backoff.ceiling(most);
        self
    }

    /// Draws each wait, as a [`Backoff`] does, so that those who failed together don't come back together.
    #[must_use]
    pub fn jitter(mut self) -> Self {
        self.policy.backoff = self.policy.backoff.jitter(true);
        self
    }

    /// Retries the failures for which this says so, in place of those above.
    #[must_use]
    pub fn when(mut self, retries: impl Fn(&Failure) -> bool + Send + Sync + 'static) -> Self {
        self.policy.retries = Some(Arc::new(retries));
        self
    }
}

impl<H: fmt::Debug> fmt::Debug for Retry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Policy { times, backoff, .. } = &self.policy;
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("times", times)
            .field("backoff", backoff)
            .finish_non_exhaustive()
    }
}

impl Policy {
    fn retries(&self, failure: &Failure) -> bool {
        use Failure::{Abandoned, Error, Panicked, TimedOut};
        match &self.retries {
            Some(retries) => retries(failure),
            None => matches!(failure, Error(_) | Panicked(_) | TimedOut | Abandoned),
        }
    }
}

/// A command that may be asked again.
struct Asking<H, C: Command> {
    inner: Arc<H>,
    policy: Policy,
    command: C,
    completion: Completion<C::Reply>,
    retried: u32,
}

impl<C: Command + Clone, H: Handler<C>> Asking<H, C> {
    fn ask(&self) -> Attempt<C::Reply> {
        self.completion.ask(&*self.inner, self.command.clone())
    }

    /// Whether this failure is not the last word.
    fn retries(&self, failure: &Failure) -> bool {
        self.retried < self.policy.times && !self.completion.is_cancelled() && self.policy.retries(failure)
    }

    /// Asks until there is a last word.
    async fn go_on(mut self, mut attempt: Attempt<C::Reply>) {
        loop {
            let answer = attempt.await;
            // The predicate and the clone are the user's.
            match catch(|| answer.as_ref().err().is_some_and(|failure| self.retries(failure))) {
                Ok(true) => drop(answer),
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
            attempt = match catch(|| self.ask()) {
                Ok(attempt) => attempt,
                Err(text) => return self.completion.fail(Failure::Panicked(text)),
            };
        }
    }
}

/// Waits for `wait`, and returns `Pending` at least once.
///
/// A wait of zero is over at its first poll. If every attempt fails at once as well, a loop of such attempts and waits would
/// never return from its poll, so that the worker could not run a timer, a kill or a shutdown between two attempts.
async fn pause(mut wait: impl FusedFuture + Unpin) {
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
        let asking = Asking { inner, policy, command, completion, retried: 0 };
        let attempt = asking.ask();
        let mut asked = Box::pin(asking.go_on(attempt));
        // Answered at once, or failed for good: no task.
        if asked.as_mut().now_or_never().is_none() {
            host.spawn_future(asked);
        }
    }
}
