//! Streams: commands that are answered many times and end. What a handler sends with ([`Replier`]), what a body pulls
//! with ([`Replies`]).
//!
//! A stream is a yield like any other, with a buffer for its items beside its tag (`yields/buffer.rs`): a cancel, a
//! deadline, the death of the process reach it as they reach every yield.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;

use crate::dispatch::Handler;
use crate::dispatch::completion::{Completion, Unwanted, Way};
use crate::home::Home;
use crate::host::Host;
use crate::perform::{Issue, ear};
use crate::process::command::{StreamCommand, Streamed};
use crate::process::event::{Answer, Tag, typed};
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::yields::buffer::Buffer;
use crate::yields::{Ear, Pulled};

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

    pub(crate) fn way(&self) -> Way {
        self.completion.way()
    }
}

impl<C: StreamCommand> fmt::Debug for Replier<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replier").field("pid", &self.pid()).field("tag", &self.tag()).finish()
    }
}

/// The items of a stream on their way, and then its answer: see [`Me::stream`](crate::Me::stream).
///
/// As a `Stream` it ends after the last item, however the stream was answered: [`last`](Self::last) says how.
#[must_use = "streams do nothing unless polled"]
pub struct Replies<C: StreamCommand> {
    issue: Issue<C>,
    /// How it ended, once all items were pulled.
    last: Option<Answer>,
}

impl<C: StreamCommand> Replies<C> {
    pub(crate) fn new(control: Home, command: C) -> Self {
        Self { issue: Issue::new(control, Payload::new(Streamed(command))), last: None }
    }

    /// Ends with [`Failure::TimedOut`], and cancels the handler, unless the answer comes in this time, counted from
    /// now. What was sent before can still be pulled.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.issue.limit(time);
        self
    }

    /// Yields the command now, not at the first poll. Outside its process this does nothing: the poll says so.
    pub fn start(mut self) -> Self {
        let _ = self.issue.launch(|| Ear::Own, Some(Buffer::new(C::BUFFER)));
        self
    }

    /// Waits for the end of the stream. Items that were not pulled are dropped.
    ///
    /// # Errors
    /// As for a command: what the handler failed with, and the failures of [`Me::perform`](crate::Me::perform).
    ///
    /// # Cancel safety
    /// Dropped, the stream is given up.
    pub async fn last(mut self) -> Result<C::Reply, Failure> {
        std::future::poll_fn(|cx| {
            while let Some(item) = std::task::ready!(self.poll_pull(cx)) {
                drop(item);
            }
            Poll::Ready(typed(self.last.take().unwrap_or(Err(Failure::Cancelled))))
        })
        .await
    }

    fn poll_pull(&mut self, cx: &mut Context<'_>) -> Poll<Option<C::Item>> {
        if self.last.is_some() || self.issue.is_over() {
            return Poll::Ready(None);
        }
        let failure = match self.issue.launch(|| ear(cx), Some(Buffer::new(C::BUFFER))) {
            Ok(Some(_)) => return Poll::Pending,
            Ok(None) => {
                let tag = self.issue.flying().expect("it was launched and is not over");
                match self.issue.control().head().yields().pull(tag, ear(cx)) {
                    Some(Pulled::Wait) => return Poll::Pending,
                    Some(Pulled::Item(item)) => match item.downcast::<C::Item>() {
                        Ok(item) => return Poll::Ready(Some(item)),
                        Err(item) => unreachable!("a `{}` was sent by a typed replier", item.type_name()),
                    },
                    Some(Pulled::End(answer)) => {
                        self.issue.answered();
                        self.last = Some(answer);
                        return Poll::Ready(None);
                    }
                    None => Failure::Cancelled,
                }
            }
            Err(failure) => failure,
        };
        self.issue.end();
        self.last = Some(Err(failure));
        Poll::Ready(None)
    }
}

impl<C: StreamCommand> Unpin for Replies<C> {}

impl<C: StreamCommand> Stream for Replies<C> {
    type Item = C::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<C::Item>> {
        self.poll_pull(cx)
    }
}

impl<C: StreamCommand> FusedStream for Replies<C> {
    fn is_terminated(&self) -> bool {
        self.issue.is_over()
    }
}

impl<C: StreamCommand> fmt::Debug for Replies<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replies<{}>", std::any::type_name::<C>())
    }
}
