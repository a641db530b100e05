//! Streams: commands that are answered with many items and then with a reply. A handler sends the items with a
//! [`StreamCompletion`], and a body pulls them with an [`ItemStream`](crate::future::ItemStream).
//!
//! A stream is a command that has a buffer for items in addition to its tag (`yields/buffer.rs`). Therefore, a
//! cancellation, a deadline and the exit of the process end a stream in the same way as any other command.

use std::fmt;

use crate::host::Host;
use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::{Completion, ReturnRoute, Unwanted};
use crate::process::command::{StreamCommand, Streamed};
use crate::process::event::Tag;
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::budget::BudgetPause;

/// Handler of a stream command. Every closure of the type `Fn(C, StreamCompletion<C>)` implements this trait. Like a
/// [`Handler`], a stream handler must not block. For functions that return a future, see
/// [`Builder::handle_stream`](crate::Builder::handle_stream).
pub trait StreamHandler<C: StreamCommand>: Send + Sync + 'static {
    /// Takes the command. The owner of `replies` must send the items and then the answer. If this call panics, the
    /// command fails. The panic has no other effect.
    fn handle(&self, command: C, replies: StreamCompletion<C>);
}

impl<C: StreamCommand, F> StreamHandler<C> for F
where
    F: Fn(C, StreamCompletion<C>) + Send + Sync + 'static,
{
    fn handle(&self, command: C, replies: StreamCompletion<C>) {
        self(command, replies);
    }
}

/// Adapter that implements [`Handler`] for a stream handler. With this adapter, the dispatcher can call the stream
/// handler.
pub(crate) struct ByStream<H>(pub(crate) H);

impl<C: StreamCommand, H: StreamHandler<C>> Handler<Streamed<C>> for ByStream<H> {
    fn handle(&self, Streamed(command): Streamed<C>, completion: Completion<C::Reply>) {
        self.0.handle(command, StreamCompletion { completion, pause: BudgetPause::default() });
    }
}

/// Handle that answers one stream, from any thread: first with items, then with the reply or a failure.
///
/// If the completion is dropped without an answer, the stream ends with [`Failure::Abandoned`]. The process receives
/// each item once, in the order of the sends. The process receives the answer after the last item, even if the answer
/// is a failure.
pub struct StreamCompletion<C: StreamCommand> {
    completion: Completion<C::Reply>,
    pause: BudgetPause,
}

impl<C: StreamCommand> StreamCompletion<C> {
    /// Sends an item. If [`StreamCommand::BUFFER`] items were sent and not pulled yet, this function waits until the
    /// process pulls an item. Each item takes one unit from the [budget](crate::should_yield) of the handler's turn.
    ///
    /// The future of `send` works on any executor, including a `block_on` on a thread outside the runtime.
    ///
    /// # Errors
    /// [`Failure::Cancelled`], if the stream is no longer wanted: the process has exited or has cancelled the stream,
    /// or the deadline of the stream has passed. In these cases, the item is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the item is dropped and not sent.
    pub async fn send(&mut self, item: C::Item) -> Result<(), Failure> {
        let mut item = Some(Payload::new(item));
        let Self { completion, pause } = self;
        std::future::poll_fn(|cx| pause.poll(cx, |cx| completion.poll_send(&mut item, cx))).await
    }

    /// Ends the stream with its reply.
    pub fn complete(self, last: C::Reply) {
        self.completion.complete(last);
    }

    /// Ends the stream with a failure.
    pub fn fail(self, failure: impl Into<Failure>) {
        self.completion.fail(failure);
    }

    /// Ends the stream with its reply or with a failure.
    pub fn finish(self, answer: Result<C::Reply, Failure>) {
        self.completion.finish(answer);
    }

    /// Returns whether the stream is no longer wanted.
    pub fn is_cancelled(&self) -> bool {
        self.completion.is_cancelled()
    }

    /// Returns a future that resolves when the stream is no longer wanted.
    pub fn cancelled(&self) -> Unwanted {
        self.completion.cancelled()
    }

    /// Returns the pid of the process that pulls the stream.
    pub fn pid(&self) -> Pid {
        self.completion.pid()
    }

    /// Returns the tag that identifies the stream among the outstanding commands of its process.
    pub fn tag(&self) -> Tag {
        self.completion.tag()
    }

    /// Returns the host of the process that pulls the stream.
    pub fn host(&self) -> &Host {
        self.completion.host()
    }

    pub(crate) fn return_route(&self) -> ReturnRoute {
        self.completion.return_route()
    }
}

impl<C: StreamCommand> fmt::Debug for StreamCompletion<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCompletion").field("pid", &self.pid()).field("tag", &self.tag()).finish()
    }
}
