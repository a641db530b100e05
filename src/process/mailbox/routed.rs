//! A mailbox whose messages are for others: they go on to a [`Router`] at the push, on the sender's thread, and wait here
//! only while none of those takes them.

use std::fmt;

use crate::platform::sync::Arc;

/// Whoever the messages of a mailbox go on to.
pub(crate) trait Router<M>: fmt::Debug + Send + Sync {
    /// Hands a message on. If it is taken, `accepted` is called before anybody can have read it.
    ///
    /// # Errors
    /// The message, which nobody takes now.
    fn route(&self, message: M, accepted: &dyn Fn()) -> Result<(), Unrouted<M>>;

    /// Takes the mail that one of those has left unread, oldest first.
    ///
    /// # Errors
    /// The mail, when there is nobody left to read it.
    fn inherit(&self, unread: Vec<M>) -> Result<(), Vec<M>>;
}

/// A message that nobody takes now.
#[derive(Debug)]
pub(crate) enum Unrouted<M> {
    /// It waits in the mailbox, if there is room.
    Later(M),
    /// It waits nowhere, unless its sender can.
    Full(M),
}

/// What becomes of the messages of a mailbox, beside being read.
#[derive(Debug)]
pub(super) enum Forwarding<M> {
    /// Nothing.
    Here,
    /// They are handed on, unless some wait here that came before.
    Routed { router: Arc<dyn Router<M>>, some_wait: bool },
    /// What is left unread is handed on.
    Left(Arc<dyn Router<M>>),
}
