//! Defines [`Envelope`] and the interface [`Deliver`]. The interface delivers messages to the pids of any node.

use crate::process::error::SendError;
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::current::Current;

/// A message in transit to a pid.
#[derive(Debug)]
#[non_exhaustive]
pub struct Envelope {
    /// Pid of the sender. `None` if the sender is not known.
    pub from: Option<Pid>,
    /// Pid of the receiver.
    pub to: Pid,
    /// The message.
    pub payload: Payload,
}

impl Envelope {
    /// Creates an envelope for `to`. If this thread runs a step of a process, this process is the sender.
    pub fn new(to: Pid, payload: Payload) -> Self {
        Self { from: Current::with(Current::pid), to, payload }
    }
}

/// Delivers envelopes to pids. This trait is the only routing interface of the runtime.
///
/// A [`Host`](crate::Host) delivers to the pids of its own runtime, and refuses all other envelopes. Other receivers
/// can be attached for another node ([`Host::attach_node`](crate::Host::attach_node)), or under a pid of this node
/// ([`Host::attach`](crate::Host::attach)).
pub trait Deliver: Send + Sync + 'static {
    /// Accepts the envelope, or returns the envelope. This function runs on the thread of the sender. Therefore the
    /// function must not block.
    ///
    /// # Errors
    /// Returns the reason for the refusal and the unchanged envelope. If the type of the message in the returned
    /// envelope differs from the type of the sent message, the sender panics.
    fn deliver(&self, package: Envelope) -> Result<(), SendError<Envelope>>;
}
