//! The receive operations of a mailbox. If a pending operation is dropped, the receiver stays registered in the inbox.
//! The inspection must know that this receiver no longer waits for a message.
//!
//! A [`Receive`] does not implement `Drop`, so the inspection does not notice that a `Receive` is dropped. An
//! implementation of `Drop` would extend the borrow of the mailbox to the end of the scope. Programs that use the
//! mailbox after a `select` would not compile any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Cx, Poll};

use futures::future::FusedFuture;

use crate::context::mailbox::Mailbox;
use crate::process::exit::Exit;

/// A receive operation. The operation borrows the mailbox until the operation ends.
///
/// When the operation ends, the code sets the field of this value to `None`. Therefore the compiler can remove the code
/// that drops an ended operation.
#[derive(Debug)]
pub(super) struct Operation<'a, M: Send + 'static>(Option<&'a mut Mailbox<M>>);

impl<'a, M: Send + 'static> Operation<'a, M> {
    #[inline]
    pub(super) fn new(mailbox: &'a mut Mailbox<M>) -> Self {
        Self(Some(mailbox))
    }

    /// Calls `poll` to poll the operation. After the end of the operation, returns `Pending`.
    #[inline(always)]
    pub(super) fn poll<T>(&mut self, poll: impl FnOnce(&mut Mailbox<M>) -> Poll<T>) -> Poll<T> {
        let Some(mailbox) = self.0.as_deref_mut() else { return Poll::Pending };
        let polled = poll(mailbox);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<M: Send + 'static> Drop for Operation<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mailbox) = self.0.take() {
            mailbox.note_left();
        }
    }
}

/// Future of [`Mailbox::receive`]. The future resolves to the next message.
///
/// # Errors
/// The errors are listed at [`Mailbox::receive`].
///
/// # Cancel safety
/// This future is cancel safe. If the pending future is dropped, no message is lost.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Receive<'a, M: Send + 'static> {
    pub(super) mailbox: Option<&'a mut Mailbox<M>>,
}

impl<M: Send + 'static> Future for Receive<'_, M> {
    type Output = Result<M, Exit>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let Some(mailbox) = self.mailbox.as_deref_mut() else { return Poll::Pending };
        let received = mailbox.poll_receive(cx);
        if received.is_ready() {
            self.mailbox = None;
        }
        received
    }
}

impl<M: Send + 'static> FusedFuture for Receive<'_, M> {
    fn is_terminated(&self) -> bool {
        self.mailbox.is_none()
    }
}
