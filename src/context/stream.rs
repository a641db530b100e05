//! The items of a stream command, as its process pulls them.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;

use crate::context::perform::{BodyYield, ear};
use crate::host::refs::ProcessRef;
use crate::process::command::{StreamCommand, Streamed};
use crate::process::event::{Answer, typed};
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, Pulled};

/// The items of a stream on their way, and then its answer: see [`Me::stream`](crate::Me::stream).
///
/// As a `Stream` it ends after the last item, however the stream was answered: [`last`](Self::last) says how.
#[must_use = "streams do nothing unless polled"]
pub struct Replies<C: StreamCommand> {
    issue: BodyYield<C>,
    /// How it ended, once all items were pulled.
    last: Option<Answer>,
}

impl<C: StreamCommand> Replies<C> {
    pub(crate) fn new(control: ProcessRef, command: C) -> Self {
        Self { issue: BodyYield::new(control, Payload::new(Streamed(command))), last: None }
    }

    /// Ends with [`Failure::TimedOut`], and cancels the handler, unless the answer comes in this time, counted from
    /// now. What was sent before can still be pulled.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.issue.limit(time);
        self
    }

    /// Yields the command now, not at the first poll. Outside its process this does nothing: the poll says so.
    pub fn start(mut self) -> Self {
        let _ = self.issue.launch(|| AnswerTarget::Own, Some(Buffer::new(C::BUFFER)));
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
