//! Defines [`CallWait`], the future of a call whose request waits for free space in a full mailbox.

use std::any::type_name;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::context::address::Address;
use crate::context::address::send_wait::SendWait;
use crate::context::call::{Call, Reply, sent_elsewhere};
use crate::host::Host;
use crate::host::refs::ProcessRef;
use crate::host::registry::target::{Destination, Target};
use crate::process::failure::CallError;

/// Future of a call that waits for free space in a full mailbox. The future sends its request like a
/// [`SendWait`](crate::future::SendWait), and then waits for the reply like a [`Call`](crate::future::Call). The first
/// poll sends the request.
///
/// # Errors
/// - [`CallError::Send`] if the request is refused: see [`SendWait`](crate::future::SendWait);
/// - the other errors of a [`Call`](crate::future::Call).
///
/// # Cancel safety
/// This future is not cancel safe: if the future is dropped, the reply is lost. If the request still waits for free
/// space, the request is not sent. A request that has entered the mailbox stays there.
#[must_use = "futures do nothing unless polled"]
pub struct CallWait<M: Send + 'static, T> {
    // The order of the fields matters. The drop of the call closes the slot of the reply. Therefore the later drop of
    // the request, which contains the `Reply`, does not wake the caller.
    /// The wait for the reply. The field is `None` after the end of the future.
    call: Option<Call<T>>,
    /// The request. The field is `None` after the request has entered the mailbox.
    send: Option<SendWait<M>>,
}

impl<M: Send + 'static, T> fmt::Debug for CallWait<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallWait<{}, {}>", type_name::<M>(), type_name::<T>())
    }
}

impl<M: Send + 'static, T: Send + 'static> CallWait<M, T> {
    #[track_caller]
    pub(crate) fn new(
        host: &Host,
        calling_process: Option<ProcessRef>,
        to: Destination<M>,
        request: impl FnOnce(Reply<T>) -> M,
    ) -> Self {
        let callee = (host.word_of(&to.destination()), Location::caller());
        let (call, request) = sent_elsewhere(host, calling_process, callee, request);
        Self { call: Some(call), send: Some(SendWait::new(host.clone(), to, request)) }
    }

    /// Sets a time limit for the send and the reply together. The time limit starts when this method is called. If the
    /// reply does not arrive in time, the future fails with [`CallError::TimedOut`]. A second time limit replaces the
    /// first time limit.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.call = self.call.take().map(|call| call.timeout(time));
        if let Some(send) = &mut self.send {
            send.set_limited();
        }
        self
    }

    fn end(&mut self, answer: Result<T, CallError>) -> Poll<Result<T, CallError>> {
        // The call is dropped first: see the comment in `CallWait`.
        self.call = None;
        self.send = None;
        Poll::Ready(answer)
    }
}

impl<M: Send + 'static, T: Send + 'static> Future for CallWait<M, T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(call) = &mut this.call else { return Poll::Pending };
        if let Some(send) = &mut this.send {
            match Pin::new(send).poll(cx) {
                Poll::Ready(Ok(())) => {
                    this.send = None;
                    call.begin_measurement();
                }
                Poll::Ready(Err(refused)) => {
                    let ended = this.end(Err(CallError::Send(refused.kind())));
                    drop(refused);
                    return ended;
                }
                Poll::Pending if call.poll_limit(cx).is_ready() => return this.end(Err(CallError::TimedOut)),
                Poll::Pending => return Poll::Pending,
            }
        }
        match Pin::new(call).poll(cx) {
            Poll::Ready(answer) => this.end(answer),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<M: Send + 'static, T: Send + 'static> FusedFuture for CallWait<M, T> {
    fn is_terminated(&self) -> bool {
        self.call.is_none()
    }
}

impl Host {
    /// Returns a future that sends a request and resolves to the reply. If the mailbox is full, the future waits for
    /// free space: see [`Address::call_wait`].
    #[track_caller]
    pub fn call_wait<N: Send + 'static, T: Send + 'static>(
        &self,
        to: impl Target<N>,
        request: impl FnOnce(Reply<T>) -> N,
    ) -> CallWait<N, T> {
        CallWait::new(self, None, to.destination().keep(), request)
    }
}

impl<M: Send + 'static> Address<M> {
    /// Returns a future that sends a request and resolves to the reply, like [`call`](Self::call). If the mailbox is
    /// full, the future waits for free space, like [`send_wait`](Self::send_wait).
    ///
    /// ```
    /// # use procession::{CallError, Context, Exit, MailboxCapacity, Reply, Runtime, SendErrorKind};
    /// async fn squares(mut ctx: Context<(u64, Reply<u64>)>) -> Result<(), Exit> {
    ///     loop {
    ///         let (number, reply) = ctx.receive().await?;
    ///         reply.send(number * number);
    ///     }
    /// }
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let squares = rt.process().mailbox_capacity(MailboxCapacity::Reject(1)).spawn(squares)?;
    /// let first = squares.call(|reply| (2, reply)).start();
    /// // The first request fills the mailbox.
    /// let refused = rt.block_on(squares.call(|reply| (3, reply)).start());
    /// assert_eq!(refused, Err(CallError::Send(SendErrorKind::Full)));
    /// assert_eq!(rt.block_on(squares.call_wait(|reply| (4, reply)))?, 16);
    /// assert_eq!(rt.block_on(first)?, 4);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[track_caller]
    pub fn call_wait<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> M) -> CallWait<M, T> {
        let control = self.control();
        CallWait::new(control.head.host(), None, Destination::Here(control.clone()), request)
    }
}
