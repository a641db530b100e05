//! Defines [`ItemStream`], which an async body uses to read the items of a stream command. After the items, the
//! `ItemStream` returns the answer to the command. The buffer of the items is in `process::yields::buffer`.

use std::fmt;
use std::panic::Location;
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
use crate::process::state::budget::BudgetPause;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{AnswerTarget, Pulled};

/// Stream of the items of a stream command. [`SelfHandle::stream`](crate::SelfHandle::stream) returns this stream.
///
/// The stream ends after the last item, even if the answer is a failure. [`last`](Self::last) returns the answer.
#[must_use = "streams do nothing unless polled"]
pub struct ItemStream<C: StreamCommand> {
    body_yield: BodyYield<C>,
    /// The answer to the command. The field is set when all items have been pulled, or when the stream has failed.
    last: Option<Answer>,
    /// Without the budget, a body that pulls many items would occupy its worker for a long time.
    pause: BudgetPause,
}

impl<C: StreamCommand> ItemStream<C> {
    pub(crate) fn new(control: ProcessRef, command: C, line: &'static Location<'static>) -> Self {
        let body_yield = BodyYield::new(control, Payload::new(Streamed(command)), Some(line));
        Self { body_yield, last: None, pause: BudgetPause::default() }
    }

    /// Sets a time limit. The time limit starts when this method is called. If the answer does not arrive in time, the
    /// stream ends with [`Failure::TimedOut`], and the handler sees the cancellation. The process can still pull the
    /// items that the handler has sent before the time limit.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.body_yield.limit(time);
        self
    }

    /// Yields the command immediately. Without `start`, the first poll of the stream yields the command. If this method
    /// is called outside the process, the method has no effect, and the first poll in the process yields the command. A
    /// poll outside the process ends the stream with [`Failure::Outside`].
    pub fn start(mut self) -> Self {
        let _ = self.body_yield.launch(|| AnswerTarget::Own, Some(Buffer::new(C::BUFFER)));
        self
    }

    /// Waits for the answer to the stream command. This method drops the items that were not pulled.
    ///
    /// # Errors
    /// If the command fails, the error is the [`Failure`] of the command. The possible failures are listed at
    /// [`SelfHandle::perform`](crate::SelfHandle::perform).
    ///
    /// # Cancel safety
    /// This method is not cancel safe. If the future is dropped, the stream command is cancelled.
    pub async fn last(mut self) -> Result<C::Reply, Failure> {
        std::future::poll_fn(|cx| {
            while let Some(item) = std::task::ready!(self.poll_pull(cx)) {
                drop(item);
            }
            Poll::Ready(typed(self.last.take().unwrap_or(Err(Failure::Cancelled))))
        })
        .await
    }

    /// Pulls the next item. Takes one unit from the budget of the turn.
    fn poll_pull(&mut self, cx: &mut Context<'_>) -> Poll<Option<C::Item>> {
        let mut pause = std::mem::take(&mut self.pause);
        let polled = pause.poll(cx, |cx| self.poll_pull_free(cx));
        self.pause = pause;
        polled
    }

    fn poll_pull_free(&mut self, cx: &mut Context<'_>) -> Poll<Option<C::Item>> {
        if self.last.is_some() || self.body_yield.is_over() {
            return Poll::Ready(None);
        }
        let failure = match self.body_yield.launch(|| answer_target(cx), Some(Buffer::new(C::BUFFER))) {
            Ok(Some(_)) => return Poll::Pending,
            Ok(None) => {
                let tag = self.body_yield.flying().expect("it was launched and is not over");
                match self.body_yield.control().head().yields().pull(tag, answer_target(cx)) {
                    Some(Pulled::Wait) => return Poll::Pending,
                    Some(Pulled::Item(item)) => match item.downcast::<C::Item>() {
                        Ok(item) => return Poll::Ready(Some(item)),
                        Err(item) => unreachable!("a `{}` was sent by a typed completion", item.type_name()),
                    },
                    Some(Pulled::End(answer)) => {
                        self.body_yield.answered();
                        self.last = Some(answer);
                        return Poll::Ready(None);
                    }
                    None => Failure::Cancelled,
                }
            }
            Err(failure) => failure,
        };
        self.body_yield.end();
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
        self.body_yield.is_over()
    }
}

impl<C: StreamCommand> fmt::Debug for ItemStream<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ItemStream<{}>", std::any::type_name::<C>())
    }
}
