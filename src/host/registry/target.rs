//! Whom a message is for, as its sender says it.

use crate::host::control::Control;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Whom to send to: a typed address or [`Name`](crate::Name) is checked by the compiler, a `Pid` or `&str` at the send.
///
/// A name is looked up in the host that sends, at each send, so it leads to whoever has it then.
pub trait Target<M>: Route<M> {}

#[allow(private_interfaces)]
mod sealed {
    use super::{Control, Pid, Ref};

    /// Where a message for a target goes.
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

/// A [`Way`] for later.
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
