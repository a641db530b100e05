//! Receivers of envelopes: the interface through which a message reaches a pid of any node.

use crate::process::error::SendError;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::current::Current;

/// A message in transit to a pid.
#[derive(Debug)]
#[non_exhaustive]
pub struct Envelope {
    /// Pid of the sender, if it is known.
    pub from: Option<Pid>,
    /// Pid of the receiver.
    pub to: Pid,
    /// The message.
    pub payload: Payload,
}

impl Envelope {
    /// Creates an envelope for `to`. The sender is the process that this thread steps, if there is one.
    pub fn new(to: Pid, payload: Payload) -> Self {
        Self { from: Current::with(Current::pid), to, payload }
    }
}

/// Delivers envelopes to pids. The runtime has no routing interface besides this trait.
///
/// A [`Host`](crate::Host) is a receiver for the pids of its runtime. Other receivers are attached for other nodes
/// ([`Host::attach_node`](crate::Host::attach_node)) or under a pid of this node
/// ([`Host::attach`](crate::Host::attach)).
pub trait Deliver: Send + Sync + 'static {
    /// Accepts the envelope, or returns it. The function runs on the sender's thread, so it must not block.
    ///
    /// # Errors
    /// Returns the reason for the refusal and the unchanged envelope. The sender panics if the envelope contains a
    /// message of another type.
    fn deliver(&self, package: Envelope) -> Result<(), SendError<Envelope>>;
}
