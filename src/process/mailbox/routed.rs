//! Mailboxes that forward their messages to other mailboxes. A [`Router`] forwards each message during the push, on the
//! sender's thread. A message waits in the forwarding mailbox only while the router cannot forward the message.

use std::any::Any;
use std::fmt;

use crate::platform::sync::Arc;

/// A router forwards the messages of a mailbox to other mailboxes.
pub(crate) trait Router<M>: fmt::Debug + Send + Sync {
    /// Forwards a message. If the message is accepted, calls `accepted` before the receiving process is queued.
    ///
    /// # Errors
    /// Returns the message if no process accepts it now.
    fn route(&self, message: M, accepted: &dyn Fn()) -> Result<(), Unrouted<M>>;

    /// Forwards an urgent message.
    ///
    /// # Errors
    /// Returns the message if no process accepts it now. An urgent message never waits for a process.
    fn route_urgent(&self, message: M) -> Result<(), M>;

    /// Returns true if no process accepts a message now.
    fn refuses(&self) -> bool;

    /// Returns true if no process accepts an urgent message now.
    fn refuses_urgent(&self) -> bool;

    /// Returns whether the forwarding mailbox stores a message that no process accepts.
    fn queues(&self) -> bool;

    /// Takes the messages that were unread when one of the target mailboxes was closed. The oldest message comes first.
    ///
    /// # Errors
    /// Returns the messages if there is no process that can read these messages.
    fn inherit(&self, unread: Vec<M>) -> Result<(), Vec<M>>;

    /// Returns the list of the processes to which the messages are forwarded. The mailbox does not know the type of
    /// this list.
    fn targets(&self) -> Box<dyn Any>;
}

/// A message that no process accepts now.
#[derive(Debug)]
pub(crate) enum Unrouted<M> {
    /// The message waits in the forwarding mailbox, if this mailbox has room.
    Later(M),
    /// The message waits if its sender can wait. Otherwise, the message is refused.
    Full(M),
}

/// Whether and when a mailbox forwards its messages to other mailboxes.
#[derive(Debug)]
pub(super) enum Forwarding<M> {
    /// The messages stay in this mailbox.
    Here,
    /// The messages are forwarded. While `some_wait` is true, new messages wait in this mailbox, because earlier
    /// messages may still wait there.
    Routed { router: Arc<dyn Router<M>>, some_wait: bool },
    /// When the mailbox is closed, its unread messages are forwarded to this router. `returned` contains the messages
    /// that a receiver has taken out and not read, and that cannot return to the queue. The oldest message comes first.
    Left { router: Arc<dyn Router<M>>, returned: Vec<M> },
    /// The mailbox is closed, and a router will take its unread messages and the returned messages.
    Closing { returned: Vec<M> },
}
