//! Names of processes. A name is a text that identifies a process in its host. This file contains the public types and
//! methods. The table of names is in `host::registry::names`.

pub(crate) mod groups;

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::context::mailbox::Mailbox;
use crate::context::me::SelfHandle;
use crate::host::Host;
use crate::host::control::Control;
use crate::host::registry::names::Unclaimed;
use crate::host::registry::target::{DestinationRef, Route, Target};
use crate::process::error::NameError;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Name of a process whose message type is `M`. A name is usually a constant.
///
/// Each send looks up the name. Therefore, a send also reaches a process that was restarted under the same name. A name
/// belongs to at most one process of a host at a time. Each host has its own names.
///
/// ```
/// use procession::{Context, Exit, Name, Reply, Runtime};
///
/// enum Msg { Add(u64), Get(Reply<u64>) }
/// const COUNTER: Name<Msg> = Name::new("counter");
///
/// async fn counter(mut ctx: Context<Msg>) -> Result<(), Exit> {
///     let mut sum = 0;
///     loop {
///         match ctx.receive().await? {
///             Msg::Add(n) => sum += n,
///             Msg::Get(reply) => reply.send(sum),
///         }
///     }
/// }
/// let rt = Runtime::new()?;
/// let _ = rt.process().name(COUNTER).spawn(counter)?;
/// rt.send(COUNTER, Msg::Add(2))?;
/// assert_eq!(rt.block_on(rt.call(COUNTER, Msg::Get))?, 2);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Name<M> {
    name: &'static str,
    marker: PhantomData<fn(M)>,
}

impl<M> Name<M> {
    /// Creates a typed name from a text.
    pub const fn new(name: &'static str) -> Self {
        Self { name, marker: PhantomData }
    }

    /// Returns the text of the name.
    pub const fn as_str(self) -> &'static str {
        self.name
    }
}

impl<M> Clone for Name<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Name<M> {}

impl<M> PartialEq for Name<M> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<M> Eq for Name<M> {}

impl<M> Hash for Name<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl<M> fmt::Debug for Name<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name<{}>({:?})", type_name::<M>(), self.name)
    }
}

impl<M> fmt::Display for Name<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<M> AsRef<str> for Name<M> {
    fn as_ref(&self) -> &str {
        self.name
    }
}

impl<M> From<Name<M>> for Cow<'static, str> {
    fn from(name: Name<M>) -> Self {
        Cow::Borrowed(name.name)
    }
}

impl<M> Target<M> for Name<M> {}
impl<M> Route<M> for Name<M> {
    fn destination(&self) -> DestinationRef<'_, M> {
        DestinationRef::Name(self.name)
    }
}

mod sealed {
    pub trait Sealed<M> {}
}
use sealed::Sealed;

/// Types that can be used as the name of a process with the message type `M`. A process name is either a `Name<M>` or a
/// text.
pub trait IntoName<M>: Sealed<M> + Into<Cow<'static, str>> + AsRef<str> {}

macro_rules! process_names {
    ($($name:ty),*) => {$(
        impl<M> Sealed<M> for $name {}
        impl<M> IntoName<M> for $name {}
    )*};
}
process_names!(Name<M>, &'static str, String, Cow<'static, str>);

impl Host {
    /// Returns the pid of the process that has this name in this host. The name is a text or a [`Name`]. Returns `None`
    /// if no process has the name.
    pub fn whereis(&self, name: impl AsRef<str>) -> Option<Pid> {
        self.namespace().names().get(name.as_ref()).map(|holder| holder.head().pid())
    }
}

fn register<M: Send + 'static>(control: &Ref<Control<M>>, name: Cow<'static, str>) -> Result<(), NameError> {
    let head = &control.head;
    let (host, pid) = (head.host(), head.pid());
    let process = control.any();
    let lives = || !control.inbox.is_closed();
    host.namespace().names().register(name.clone(), &process, head.names(), lives).map_err(
        |unclaimed| match unclaimed {
            Unclaimed::Taken(holder) => NameError::Taken { name: name.into(), holder: holder.head().pid() },
            Unclaimed::Refused(_) => NameError::Exited { name: name.into(), pid },
        },
    )
}

fn unregister<M: Send + 'static>(control: &Control<M>, name: &str) -> bool {
    control.head.host().namespace().names().unregister(name, control.head.names())
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Gives this process a name in its host. The process keeps the name until the process exits or
    /// [unregisters](Self::unregister) the name. A process can have several names. If this process already has the
    /// name, this method has no effect.
    ///
    /// When a process exits, the runtime first releases the names of the process. Links, monitors and join handles
    /// receive the exit afterwards.
    ///
    /// # Errors
    /// Fails with [`NameError::Taken`] if another process has the name. This error contains the pid of the other
    /// process. Fails with [`NameError::Exited`] if this process has exited.
    pub fn register(&self, name: impl IntoName<M>) -> Result<(), NameError> {
        register(self.control(), name.into())
    }

    /// Releases a name of this process. Returns false if the process does not have the name.
    pub fn unregister(&self, name: impl IntoName<M>) -> bool {
        unregister(self.control(), name.as_ref())
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// Gives this mailbox a name: see [`SelfHandle::register`]. A mailbox that belongs to no process can also have a
    /// name.
    ///
    /// # Errors
    /// This method returns the same errors as [`SelfHandle::register`].
    pub fn register(&self, name: impl IntoName<M>) -> Result<(), NameError> {
        register(self.control(), name.into())
    }

    /// Releases a name of this mailbox. Returns false if the mailbox does not have the name.
    pub fn unregister(&self, name: impl IntoName<M>) -> bool {
        unregister(self.control(), name.as_ref())
    }
}
