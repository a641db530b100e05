//! A time limit for the handler inside.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};

use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::Completion;
use crate::process::catch::drop_caught;
use crate::process::command::Command;
use crate::process::failure::Failure;

/// Fails with [`Failure::TimedOut`] what the handler inside has not answered in time. The handler sees then that nobody
/// waits any more, and its late answer is discarded.
///
/// The time runs from when the command reaches this layer. With zero the handler never hears of it; one that ends beyond
/// the clock's 584 years is no limit. [`Perform::timeout`](crate::Perform::timeout) is the limit of whoever asks: it cuts
/// through all layers, where this one is a failure that a layer around it may retry.
#[derive(Debug, Clone)]
pub struct Timeout<H> {
    inner: H,
    time: Duration,
}

impl<H> Timeout<H> {
    /// Allows `inner` so much time for each command.
    pub fn new(inner: H, time: Duration) -> Self {
        Self { inner, time }
    }
}

impl<C: Command, H: Handler<C>> Handler<C> for Timeout<H> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        if self.time.is_zero() {
            let _ = drop_caught(command);
            return completion.fail(Failure::TimedOut);
        }
        let host = completion.host().clone();
        let sleep = host.sleep(self.time);
        let mut attempt = completion.ask(&self.inner, command);
        if let Some(answer) = (&mut attempt).now_or_never() {
            return completion.finish(answer);
        }
        host.spawn_future(async move {
            let answer = match select(attempt, sleep).await {
                Either::Left((answer, _)) => answer,
                Either::Right(((), attempt)) => {
                    // The handler is told before the process.
                    drop(attempt);
                    Err(Failure::TimedOut)
                }
            };
            completion.finish(answer);
        });
    }
}
