//! Asking again after a failure, later and later.

use std::fmt;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select;

use crate::dispatch::Handler;
use crate::dispatch::attempt::Attempt;
use crate::dispatch::completion::Completion;
use crate::process::command::Command;
use crate::process::failure::Failure;
use crate::process::panic::catch;
use crate::sync::Arc;

/// Asks the handler inside again when it failed, after a wait that doubles each time.
///
/// What is retried is a failure of an attempt: [`Failure::Error`], [`Failure::Panicked`], [`Failure::TimedOut`] (of a
/// [`Timeout`](super::Timeout) inside) and [`Failure::Abandoned`]; [`when`](Self::when) says otherwise. Never retried is
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
    first: Duration,
    ceiling: Duration,
    jitter: bool,
    retries: Option<Arc<dyn Fn(&Failure) -> bool + Send + Sync>>,
}

impl<H> Retry<H> {
    /// Asks `inner` again up to `times` times: after `wait`, then twice that, four times that, and so on, up to a minute
    /// each. The first attempt is not counted; with 0 there is no other.
    pub fn new(inner: H, times: u32, wait: Duration) -> Self {
        let ceiling = Duration::from_secs(60).max(wait);
        let policy = Policy { times, first: wait, ceiling, jitter: false, retries: None };
        Self { inner: Arc::new(inner), policy }
    }

    /// The longest wait.
    #[must_use]
    pub fn ceiling(mut self, most: Duration) -> Self {
        self.policy.ceiling = most;
        self
    }

    /// Draws each wait evenly from between zero and its full length, so that those who failed together don't come back
    /// together: the *full jitter* of Brooker, *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015.
    #[must_use]
    pub fn jitter(mut self) -> Self {
        self.policy.jitter = true;
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
        let Policy { times, first, ceiling, jitter, .. } = &self.policy;
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("times", times)
            .field("wait", first)
            .field("ceiling", ceiling)
            .field("jitter", jitter)
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

    /// How long to wait after so many retries, with a number to draw from.
    fn wait(&self, retried: u32, random: impl FnOnce() -> u64) -> Duration {
        let factor = 1_u32.checked_shl(retried).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.ceiling);
        if !self.jitter {
            return full;
        }
        let ns = u64::try_from(full.as_nanos()).unwrap_or(u64::MAX);
        let drawn = (u128::from(random()) * (u128::from(ns) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX))
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
            let wait = self.policy.wait(self.retried, || host.random());
            select(host.sleep(wait), self.completion.cancelled()).await;
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

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    fn policy(first: u64, ceiling: u64) -> Policy {
        let ms = Duration::from_millis;
        Policy { times: 9, first: ms(first), ceiling: ms(ceiling), jitter: false, retries: None }
    }

    #[test]
    fn waits_double_up_to_the_ceiling() {
        let waits = |policy: Policy| [0, 1, 2, 3, 31, 32, u32::MAX].map(|n| policy.wait(n, || 0).as_millis());
        assert_eq!(waits(policy(10, 60)), [10, 20, 40, 60, 60, 60, 60]);
        assert_eq!(waits(policy(0, 60)), [0; 7]);
        assert_eq!(waits(policy(10, 0)), [0; 7]);
        let endless = Policy { first: Duration::MAX, ceiling: Duration::MAX, ..policy(0, 0) };
        assert_eq!(endless.wait(9, || 0), Duration::MAX);
    }

    #[test]
    fn jitter_draws_from_zero_to_the_full_wait() {
        let policy = Policy { jitter: true, ..policy(10, 60) };
        let draws = [0, 1 << 63, u64::MAX].map(|random| policy.wait(1, || random).as_millis());
        assert_eq!(draws, [0, 10, 20]);
        let endless = Policy { first: Duration::MAX, ceiling: Duration::MAX, ..policy };
        assert_eq!(endless.wait(0, || u64::MAX), Duration::from_nanos(u64::MAX));
    }
}
