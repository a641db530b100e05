//! A reply that comes later, for example the answer of a supervisor. Meanwhile, the server answers other clients.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::host::Host;
use crate::platform::clock::Instant;
use crate::process::catch::catch;
use crate::runtime::console::encoding::{Reply, encode, refusal_of};
use crate::runtime::console::request::FaultKind;

/// Response to a valid request.
pub(super) enum Response {
    Now(Value),
    /// The reply comes later.
    Later(Later),
}

/// A reply that comes later.
pub(super) struct Later {
    id: Value,
    reply: BoxFuture<'static, Reply>,
    pub(super) deadline: Instant,
    /// Message of the error. The client gets this error after the deadline.
    overdue: &'static str,
}

impl Later {
    /// `within` is the time until the deadline, after which the client gets an error with the message `overdue`.
    pub(super) fn new(
        host: &Host,
        within: Duration,
        overdue: &'static str,
        reply: impl Future<Output = Reply> + Send + 'static,
    ) -> Self {
        Self { id: Value::Null, reply: reply.boxed(), deadline: host.now() + within, overdue }
    }

    /// Sets the id of the request, which the reply repeats.
    pub(super) fn with_id(self, id: Value) -> Self {
        Self { id, ..self }
    }

    /// Returns the line of the reply. After the deadline, returns the line of an error. Returns `None` if the reply is
    /// not complete and the deadline has not passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Option<Vec<u8>> {
        // The reply may contain the text of an exit. User code formats the error in this text, and this code may panic.
        match catch(|| Pin::new(&mut self.reply).poll(cx)) {
            Ok(Poll::Ready(reply)) => return Some(encode(self.id.take(), reply)),
            Ok(Poll::Pending) => {}
            Err(_) => return Some(refusal_of(self.id.take(), FaultKind::NoAnswer, "the text of an exit panicked")),
        }
        (now >= self.deadline).then(|| refusal_of(self.id.take(), FaultKind::NoAnswer, self.overdue))
    }
}
