//! The destination of a message: an address, a pid or a name. This module also sends messages to destinations.

use std::any::type_name;

use crate::host::Host;
use crate::host::control::{AnyControl, Control};

use crate::observe::Counter;
use crate::process::error::{Addressee, SendError, SendErrorKind};
use crate::process::payload::Payload;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Destination of a message. For a typed address or a [`Name`](crate::Name), the compiler checks the message type. For
/// a `Pid` or a `&str`, the runtime checks the message type at each send.
///
/// The sending host looks up a name at each send. Therefore the message goes to the process that has the name at the
/// time of the send.
#[expect(private_bounds, reason = "only the crate has targets, and only the crate asks for their route")]
pub trait Target<M>: Route<M> {}

/// Destination of a message. This type borrows the destination from a target.
#[derive(Debug)]
pub(crate) enum DestinationRef<'a, M> {
    Here(&'a Ref<Control<M>>),
    Pid(Pid),
    Name(&'a str),
}

pub(crate) trait Route<M> {
    fn destination(&self) -> DestinationRef<'_, M>;
}

impl<M> Target<M> for Pid {}
impl<M> Route<M> for Pid {
    fn destination(&self) -> DestinationRef<'_, M> {
        DestinationRef::Pid(*self)
    }
}

impl<M> Target<M> for &str {}
impl<M> Route<M> for &str {
    fn destination(&self) -> DestinationRef<'_, M> {
        DestinationRef::Name(self)
    }
}

/// Destination of a message, as an owned [`DestinationRef`].
#[derive(Debug)]
pub(crate) enum Destination<M> {
    Here(Ref<Control<M>>),
    Pid(Pid),
    Name(Box<str>),
}

impl<M> DestinationRef<'_, M> {
    pub(crate) fn keep(&self) -> Destination<M> {
        match *self {
            DestinationRef::Here(control) => Destination::Here(control.clone()),
            DestinationRef::Pid(pid) => Destination::Pid(pid),
            DestinationRef::Name(name) => Destination::Name(name.into()),
        }
    }

    /// Returns a description of the receiver, for the error of a refused message.
    pub(crate) fn receiver(&self) -> Addressee {
        match *self {
            DestinationRef::Here(control) => Addressee::Process(control.head.pid()),
            DestinationRef::Pid(pid) => Addressee::Process(pid),
            DestinationRef::Name(name) => Addressee::Named(name.into()),
        }
    }
}

impl<M> Destination<M> {
    pub(crate) fn destination(&self) -> DestinationRef<'_, M> {
        match self {
            Destination::Here(control) => DestinationRef::Here(control),
            Destination::Pid(pid) => DestinationRef::Pid(*pid),
            Destination::Name(name) => DestinationRef::Name(name),
        }
    }
}

impl Host {
    /// Sends a message. This call never blocks.
    ///
    /// Messages from one sender to one receiver arrive in the order in which they were sent. If the receiver is on
    /// another node, `Ok` means only that the transport has accepted the message.
    ///
    /// # Errors
    /// Returns the message and one of these reasons for the refusal:
    ///
    /// - The process has exited or never existed.
    /// - The mailbox of the process is full.
    /// - The process accepts only messages of another type.
    /// - The runtime has shut down.
    pub fn send<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> Result<(), SendError<N>> {
        self.send_by(&to.destination(), message)
    }

    pub(crate) fn send_by<N: Send + 'static>(
        &self,
        destination: &DestinationRef<'_, N>,
        message: N,
    ) -> Result<(), SendError<N>> {
        self.try_send_by(destination, message).map_err(|(refusal, message)| {
            self.shared().metrics.add(Counter::Refused, 1);
            SendError::new(refusal, message).to(destination.receiver())
        })
    }

    /// Returns the pid of the process that would receive a message now, as one [word](Pid::word). Returns 0 if no
    /// process of this host has this name, or if the process belongs to another runtime.
    #[inline]
    pub(crate) fn word_of<N>(&self, destination: &DestinationRef<'_, N>) -> u64 {
        match destination {
            // The index and the generation identify a process only within the runtime of the process.
            DestinationRef::Here(control) if std::ptr::eq(&**control.head.host().shared(), &**self.shared()) => {
                control.head.place().into()
            }
            DestinationRef::Here(_) => 0,
            DestinationRef::Pid(pid) if self.shared().pid_table.is_here(*pid) => pid.word(),
            DestinationRef::Pid(_) => 0,
            DestinationRef::Name(name) => {
                self.namespace().names().get(name).map_or(0, |control| control.head().place().into())
            }
        }
    }

    /// Sends a message as [`send_by`](Self::send_by) does, but does not count a refusal. The caller must count a
    /// refusal.
    pub(crate) fn try_send_by<N: Send + 'static>(
        &self,
        destination: &DestinationRef<'_, N>,
        message: N,
    ) -> Result<(), (SendErrorKind, N)> {
        match destination {
            DestinationRef::Here(control) => control.push(message),
            DestinationRef::Pid(pid) => match self.shared().pid_table.get(*pid) {
                Some(control) => control.deliver_typed(message),
                None => self.send_away(*pid, message),
            },
            DestinationRef::Name(name) => match self.namespace().names().get(name) {
                Some(control) => control.deliver_typed(message),
                None => Err((self.gone(), message)),
            },
        }
    }

    /// Sends an urgent message. This call never blocks. The receiver reads the urgent message before all its unread
    /// messages and events: see [`Address::send_urgent`](crate::Address::send_urgent).
    ///
    /// A receiver on another node, or an [attached](Self::attach) receiver, gets the message as a normal message.
    ///
    /// # Errors
    /// Returns the message and the reason for the refusal, as [`send`](Self::send) does.
    pub fn send_urgent<N: Send + 'static>(&self, to: impl Target<N>, message: N) -> Result<(), SendError<N>> {
        let destination = to.destination();
        let sent = match &destination {
            DestinationRef::Here(control) => control.push_urgent(message),
            DestinationRef::Pid(pid) => match self.shared().pid_table.get(*pid) {
                Some(control) => control.deliver_urgent_typed(message),
                None => self.send_away(*pid, message),
            },
            DestinationRef::Name(name) => match self.namespace().names().get(name) {
                Some(control) => control.deliver_urgent_typed(message),
                None => Err((self.gone(), message)),
            },
        };
        sent.map_err(|(refusal, message)| {
            self.shared().metrics.add(Counter::Refused, 1);
            SendError::new(refusal, message).to(destination.receiver())
        })
    }

    fn send_away<N: Send + 'static>(&self, pid: Pid, message: N) -> Result<(), (SendErrorKind, N)> {
        self.deliver_away(pid, Payload::new(message)).map_err(|(refusal, payload)| (refusal, back(payload)))
    }
}

impl dyn AnyControl {
    /// Delivers a message whose type is known at compile time.
    pub(crate) fn deliver_typed<N: Send + 'static>(&self, message: N) -> Result<(), (SendErrorKind, N)> {
        match self.as_any().downcast_ref::<Control<N>>() {
            Some(control) => control.push(message),
            None => self.deliver(Payload::new(message)).map_err(|(refusal, payload)| (refusal, back(payload))),
        }
    }
}

impl dyn AnyControl {
    /// Delivers an urgent message whose type is known at compile time.
    fn deliver_urgent_typed<N: Send + 'static>(&self, message: N) -> Result<(), (SendErrorKind, N)> {
        match self.as_any().downcast_ref::<Control<N>>() {
            Some(control) => control.push_urgent(message),
            None => self.deliver_urgent(Payload::new(message)).map_err(|(refusal, payload)| (refusal, back(payload))),
        }
    }
}

/// Converts a refused message back to the type that the sender sent.
///
/// # Panics
/// Panics if a `Deliver` of the user returns a message of another type.
fn back<N: Send + 'static>(payload: Payload) -> N {
    payload.downcast::<N>().unwrap_or_else(|payload| {
        let (found, sent) = (payload.type_name(), type_name::<N>());
        panic!("a `Deliver` refused a message of type {sent}, but returned one of type {found}; return the envelope unchanged")
    })
}
