//! A time limit for the inner handler.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};

use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::Completion;
use crate::process::catch::drop_caught;
use crate::process::command::Command;
use crate::process::failure::Failure;

/// Fails a command with [`Failure::TimedOut`] if the inner handler has not answered in time. The handler then sees that
/// its answer is no longer wanted, and a late answer is discarded.
///
/// The time limit begins when the command reaches this layer. If the limit is zero, the handler is not called. If the
/// limit would end later than the clock can represent (584 years), there is no limit. In contrast,
/// [`Perform::timeout`](crate::future::Perform::timeout) is a limit of the process, and cancels the command in all
/// layers. If a command times out in this layer, an outer layer may retry the command.
#[derive(Debug, Clone)]
pub struct Timeout<H> {
    inner: H,
    time: Duration,
}

impl<H> Timeout<H> {
    /// Wraps `inner`. Each command may take at most `time`.
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
        let mut attempt = completion.call_handler(&self.inner, command);
        if let Some(answer) = (&mut attempt).now_or_never() {
            return completion.finish(answer);
        }
        host.spawn_future(async move {
            let answer = match select(attempt, sleep).await {
                Either::Left((answer, _)) => answer,
                Either::Right(((), attempt)) => {
                    // The handler sees the cancellation before the process receives the answer.
                    drop(attempt);
                    Err(Failure::TimedOut)
                }
            };
            completion.finish(answer);
        });
    }
}
