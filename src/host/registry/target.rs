//! Destinations of a message: an address, a pid or a name.

use crate::host::control::Control;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Destination of a message. The compiler checks the message type of a typed address or [`Name`](crate::Name); for a
/// `Pid` or `&str` it is checked at the send.
///
/// A name is looked up at each send, in the host that sends. Therefore the message goes to the process that has the
/// name at that time.
pub trait Target<M>: Route<M> {}

#[allow(private_interfaces)]
mod sealed {
    use super::{Control, Pid, Ref};

    /// Destination of a message, borrowed from a target.
    pub enum Way<'a, M> {
        #[doc(hidden)]
        Here(&'a Ref<Control<M>>),
        #[doc(hidden)]
        Pid(Pid),
        #[doc(hidden)]
        Name(&'a str),
    }

    impl<M> std::fmt::Debug for Way<'_, M> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Way")
        }
    }

    pub trait Route<M> {
        #[doc(hidden)]
        fn way(&self) -> Way<'_, M>;
    }
}
pub(crate) use sealed::{Route, Way};

impl<M> Target<M> for Pid {}
impl<M> Route<M> for Pid {
    fn way(&self) -> Way<'_, M> {
        Way::Pid(*self)
    }
}

impl<M> Target<M> for &str {}
impl<M> Route<M> for &str {
    fn way(&self) -> Way<'_, M> {
        Way::Name(self)
    }
}

/// An owned [`Way`].
#[derive(Debug)]
pub(crate) enum Destination<M> {
    Here(Ref<Control<M>>),
    Pid(Pid),
    Name(Box<str>),
}

impl<M> Way<'_, M> {
    pub(crate) fn keep(&self) -> Destination<M> {
        match *self {
            Way::Here(control) => Destination::Here(control.clone()),
            Way::Pid(pid) => Destination::Pid(pid),
            Way::Name(name) => Destination::Name(name.into()),
        }
    }
}

impl<M> Destination<M> {
    pub(crate) fn way(&self) -> Way<'_, M> {
        match self {
            Destination::Here(control) => Way::Here(control),
            Destination::Pid(pid) => Way::Pid(*pid),
            Destination::Name(name) => Way::Name(name),
        }
    }
}
