//! Selective receive: a receiver takes the first message that a closure accepts, and leaves the other messages in the
//! mailbox. [`Mailbox::receive_where`] looks at all messages. [`Mailbox::offer`] looks at the messages of a bounded
//! queue.

use std::panic::Location;
use std::task::{Context as Cx, Poll};

use crate::context::mailbox::Mailbox;
use crate::context::mailbox::receive::Operation;
use crate::host::control::Control;
use crate::process::exit::Exit;
use crate::process::mailbox::{Gathered, ReadAhead};

impl<M: Send + 'static> Mailbox<M> {
    /// Waits for the first message that `pick` accepts. To accept a message, `pick` returns `Ok` with a value, and this
    /// method returns this value. To skip a message, `pick` returns the message in an `Err`. A skipped message keeps
    /// its position in the mailbox.
    ///
    /// # Errors
    /// This method returns the same errors as [`receive`](Self::receive).
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no message is lost, and the skipped messages keep
    /// their order.
    #[track_caller]
    pub fn receive_where<T>(
        &mut self,
        mut pick: impl FnMut(M) -> Result<T, M>,
    ) -> impl Future<Output = Result<T, Exit>> {
        self.note_line(Some(Location::caller()));
        async move {
            let (mut looked_at, mut skips) = (LookedAt::default(), false);
            let mut pick = |message| pick(message).inspect_err(|_| skips = true);
            let mut operation = Operation::new(self);
            let poll = |cx: &mut Cx<'_>| operation.poll(|mailbox| mailbox.poll_where(cx, &mut pick, &mut looked_at));
            let picked = std::future::poll_fn(poll).await;
            drop(operation);
            if picked.is_ok() {
                if skips {
                    self.trace_reorder();
                }
                self.trace_receive();
            }
            picked
        }
    }

    fn poll_where<T>(
        &mut self,
        cx: &mut Cx<'_>,
        pick: &mut impl FnMut(M) -> Result<T, M>,
        looked_at: &mut LookedAt,
    ) -> Poll<Result<T, Exit>> {
        if self.is_spent(cx) {
            return Poll::Pending;
        }
        loop {
            if let Some((reason, _)) = self.me.control().head.cancel() {
                return Poll::Ready(Err(Exit::Cancelled(reason)));
            }
            if self.front.is_replaced() {
                return Poll::Ready(Err(self.refuse()));
            }
            if self.me.control().head.has_urgent()
                && let Some(picked) = self.pick_urgent(&mut looked_at.urgent, pick)
            {
                return Poll::Ready(Ok(picked));
            }
            if let Some(picked) = self.front.pick(&mut looked_at.ahead, pick) {
                if looked_at.ahead != 0 {
                    self.me.control().inbox.passed_over(looked_at.ahead, self.front.len());
                }
                return Poll::Ready(Ok(picked));
            }
            let (number, urgent) = (&mut looked_at.number, looked_at.urgent);
            let gather = |control: &Control<M>, front: &mut ReadAhead<M>, reader| {
                control.inbox.gather_or_wait(control, front, number, urgent, reader)
            };
            let poller = self.poller(cx);
            match self.take(poller, cx, true, gather) {
                Poll::Ready(Ok(Some(Gathered::Ahead) | None)) => {}
                Poll::Ready(Ok(Some(Gathered::One(message)))) => {
                    let place = ReservedPlace { control: self.me.control(), number: *number };
                    match pick(message) {
                        Ok(picked) => return Poll::Ready(Ok(picked)),
                        Err(message) => place.put_back(message),
                    }
                    *number += 1;
                }
                Poll::Ready(Err(exit)) => return Poll::Ready(Err(exit)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Passes the messages of a bounded queue to `take`, starting with the oldest message. If `take` returns the
    /// message in a [`NotTaken`], the message keeps its position in the queue. If `all` is false, this function returns
    /// at the first message that `take` returns. If `all` is true, the function continues with the next message after
    /// [`NotTaken::Continue`]. After [`NotTaken::Stop`], `take` gets no further message. The result is true if `take`
    /// has returned a message. If `all` is true or `take` has accepted all messages, the receiver is registered as
    /// waiting for the next message.
    pub(crate) fn offer(
        &mut self,
        cx: &mut Cx<'_>,
        all: bool,
        mut take: impl FnMut(M) -> Result<(), NotTaken<M>>,
    ) -> Result<bool, Exit> {
        let (mut number, mut left) = (0, false);
        loop {
            let gather = |control: &Control<M>, front: &mut ReadAhead<M>, reader| {
                // The mailbox of a pool contains no urgent messages, because the pool routes each urgent message to a
                // member.
                control.inbox.gather_or_wait(control, front, &mut number, usize::MAX, reader)
            };
            let poller = self.poller(cx);
            match self.take(poller, cx, true, gather) {
                Poll::Ready(Ok(Some(Gathered::One(message)))) => {
                    let place = ReservedPlace { control: self.me.control(), number };
                    let (message, next) = match take(message) {
                        Ok(()) => continue,
                        Err(NotTaken::Continue(message)) => (message, number + 1),
                        // No message has this number, so the next call of `gather_or_wait` finds no message. This call
                        // registers the receiver. After this call, `Self::take` checks whether the mailbox is cancelled
                        // or killed.
                        Err(NotTaken::Stop(message)) => (message, u64::MAX),
                    };
                    place.put_back(message);
                    if !all {
                        return Ok(true);
                    }
                    (number, left) = (next, true);
                }
                Poll::Ready(Ok(_)) => unreachable!("its queue has a bound and no urgent message"),
                Poll::Ready(Err(exit)) => return Err(exit),
                Poll::Pending => return Ok(left),
            }
        }
    }
}

/// A message that the closure of [`Mailbox::offer`] returns. The message keeps its position in the queue.
pub(crate) enum NotTaken<M> {
    /// The next message is passed to the closure.
    Continue(M),
    /// No later message is passed to the closure.
    Stop(M),
}

/// Progress of one selective receive. Because of this record, a selective receive passes each message to `pick` only
/// once.
#[derive(Debug, Default)]
struct LookedAt {
    /// Number of urgent messages that were already passed to `pick`.
    urgent: usize,
    /// Number of messages of the read-ahead buffer that were already passed to `pick`.
    ahead: usize,
    /// In a bounded queue, each message has a number. All messages with a number below this value were already passed
    /// to `pick`.
    number: u64,
}

/// The reserved position of a message in a bounded queue. The position is reserved while `pick` has the message. If
/// `pick` accepts the message or panics, this value is dropped, and this drop releases the position.
struct ReservedPlace<'a, M: Send + 'static> {
    control: &'a Control<M>,
    number: u64,
}

impl<M: Send + 'static> ReservedPlace<'_, M> {
    fn put_back(self, message: M) {
        let control = self.control;
        let refused = control.inbox.fill(self.number, message);
        std::mem::forget(self);
        match refused {
            Ok(()) => {}
            Err((message, true)) => control.drop_by_policy(message),
            Err((message, false)) => control.drop_unread([message].into()),
        }
    }
}

impl<M: Send + 'static> Drop for ReservedPlace<'_, M> {
    fn drop(&mut self) {
        if let Some(room_waiter) = self.control.inbox.settle(self.number) {
            self.control.wake_room_waiter(room_waiter);
        }
    }
}
