//! Defines [`ItemStream`], the stream of a stream command in an async body. The stream returns the items and then the
//! answer. The buffer of the items is in `process::yields::buffer`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;

use crate::context::perform::{BodyYield, answer_target};
use crate::host::refs::ProcessRef;
use crate::process::command::{StreamCommand, Streamed};
use crate::process::event::{Answer, typed};
use crate::process::failure::Failure;
use crate::process::payload::Payload;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, Pulled};

/// Stream of the items of a stream command: see [`SelfHandle::stream`](crate::SelfHandle::stream).
///
/// The stream ends after the last item, even if the answer is a failure. [`last`](Self::last) returns the answer.
#[must_use = "streams do nothing unless polled"]
pub struct ItemStream<C: StreamCommand> {
    issue: BodyYield<C>,
    /// The answer. The field is set when all items have been pulled.
    last: Option<Answer>,
}

impl<C: StreamCommand> ItemStream<C> {
    pub(crate) fn new(control: ProcessRef, command: C) -> Self {
        Self { issue: BodyYield::new(control, Payload::new(Streamed(command))), last: None }
    }

    /// Sets a time limit. The time begins when this method is called. If the answer does not arrive in time, the stream
    /// ends with [`Failure::TimedOut`], and the handler is cancelled. Items that the handler sent before the limit can
    /// still be pulled.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.issue.limit(time);
        self
    }

    /// Yields the command now instead of at the first poll. If the caller is outside the process, this method has no
    /// effect, and the stream fails with [`Failure::Outside`] at the first poll.
    pub fn start(mut self) -> Self {
        let _ = self.issue.launch(|| AnswerTarget::Own, Some(Buffer::new(C::BUFFER)));
        self
    }

    /// Waits for the answer of the stream. Items that were not pulled are dropped.
    ///
    /// # Errors
    /// The failure of the handler, or one of the failures of [`SelfHandle::perform`](crate::SelfHandle::perform).
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future cancels the stream.
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
        let failure = match self.issue.launch(|| answer_target(cx), Some(Buffer::new(C::BUFFER))) {
            Ok(Some(_)) => return Poll::Pending,
            Ok(None) => {
                let tag = self.issue.flying().expect("it was launched and is not over");
                match self.issue.control().head().yields().pull(tag, answer_target(cx)) {
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

impl<C: StreamCommand> Unpin for ItemStream<C> {}

impl<C: StreamCommand> Stream for ItemStream<C> {
    type Item = C::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<C::Item>> {
        self.poll_pull(cx)
    }
}

impl<C: StreamCommand> FusedStream for ItemStream<C> {
    fn is_terminated(&self) -> bool {
        self.issue.is_over()
    }
}

impl<C: StreamCommand> fmt::Debug for ItemStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replies<{}>", std::any::type_name::<C>())
    }
}
