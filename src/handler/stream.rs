//! Streams: commands that are answered many times and end. What a handler sends with ([`Replier`]), what a body pulls
//! with ([`Replies`]).
//!
//! A stream is a yield like any other, with a buffer for its items beside its tag (`yields/buffer.rs`): a cancel, a
//! deadline, the death of the process reach it as they reach every yield.

use std::fmt;

use crate::host::Host;
use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::{Completion, ReturnRoute, Unwanted};
use crate::process::command::{StreamCommand, Streamed};
use crate::process::event::Tag;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;

/// Answers stream commands. Any closure `Fn(C, Replier<C>)` is one; it must not block, as a [`Handler`] must not. For
/// those that are futures see [`Builder::handle_stream`](crate::Builder::handle_stream).
pub trait StreamHandler<C: StreamCommand>: Send + Sync + 'static {
    /// Takes the command; whoever holds `replies` owes its items and its answer. A panic in here is a failure to the
    /// process that asked, and nothing else.
    fn handle(&self, command: C, replies: Replier<C>);
}

impl<C: StreamCommand, F> StreamHandler<C> for F
where
    F: Fn(C, Replier<C>) + Send + Sync + 'static,
{
    fn handle(&self, command: C, replies: Replier<C>) {
        self(command, replies);
    }
}

/// A stream handler as the dispatcher knows it.
pub(crate) struct ByStream<H>(pub(crate) H);

impl<C: StreamCommand, H: StreamHandler<C>> Handler<Streamed<C>> for ByStream<H> {
    fn handle(&self, Streamed(command): Streamed<C>, completion: Completion<C::Reply>) {
        self.0.handle(command, Replier { completion });
    }
}

/// The right to answer one stream: with items, then with the reply or a failure, from any thread.
///
/// Dropped unanswered it answers [`Failure::Abandoned`]. The process gets the items in the order in which they were
/// sent, each once, and the answer after the last of them, whatever the answer is.
pub struct Replier<C: StreamCommand> {
    completion: Completion<C::Reply>,
}

impl<C: StreamCommand> Replier<C> {
    /// Sends an item, as soon as the process has pulled so many that fewer than [`StreamCommand::BUFFER`] are waiting.
    ///
    /// Works on any executor, with `block_on` on a thread of its own too.
    ///
    /// # Errors
    /// [`Failure::Cancelled`], when nobody pulls any more: the process has ended, gave the stream up, or its deadline
    /// has passed. The item is dropped.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the item was not sent, and is dropped.
    pub async fn send(&mut self, item: C::Item) -> Result<(), Failure> {
        let mut item = Some(Payload::new(item));
        std::future::poll_fn(|cx| self.completion.poll_send(&mut item, cx)).await
    }

    /// Ends the stream with its reply.
    pub fn complete(self, last: C::Reply) {
        self.completion.complete(last);
    }

    /// Ends the stream with a failure.
    pub fn fail(self, failure: impl Into<Failure>) {
        self.completion.fail(failure);
    }

    /// Ends the stream.
    pub fn finish(self, answer: Result<C::Reply, Failure>) {
        self.completion.finish(answer);
    }

    /// Whether nobody pulls any more.
    pub fn is_cancelled(&self) -> bool {
        self.completion.is_cancelled()
    }

    /// Resolves when nobody pulls any more.
    pub fn cancelled(&self) -> Unwanted {
        self.completion.cancelled()
    }

    /// Whose stream this is.
    pub fn pid(&self) -> Pid {
        self.completion.pid()
    }

    /// Which yield of that process this is.
    pub fn tag(&self) -> Tag {
        self.completion.tag()
    }

    /// The host of that process.
    pub fn host(&self) -> &Host {
        self.completion.host()
    }

    pub(crate) fn way(&self) -> ReturnRoute {
        self.completion.way()
    }
}

impl<C: StreamCommand> fmt::Debug for Replier<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replier").field("pid", &self.pid()).field("tag", &self.tag()).finish()
    }
}
