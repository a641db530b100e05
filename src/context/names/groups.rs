//! Groups: a name for many processes. The table is `pid_table::groups`; here is what a user says of it.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use crate::context::address::Address;
use crate::context::mailbox::Mailbox;
use crate::context::me::Me;
use crate::host::Host;
use crate::host::control::Control;
use crate::process::event::MonitorRef;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// A name for as many processes as join it, which take messages of type `M`; to be written down once.
///
/// A group is there while it has members; a host has groups of its own.
///
/// ```
/// use procession::{Context, Exit, Group, Runtime};
///
/// const ROOM: Group<&str> = Group::new("room");
///
/// async fn guest(mut ctx: Context<&'static str>) -> Result<&'static str, Exit> {
///     ctx.join(ROOM);
///     ctx.ready();
///     ctx.receive().await
/// }
/// let rt = Runtime::new()?;
/// let guests = [rt.process().ready_by_hand().spawn(guest)?, rt.process().ready_by_hand().spawn(guest)?];
/// for guest in &guests {
///     rt.block_on(guest.started())?;
/// }
/// assert_eq!(rt.broadcast(ROOM, "dinner"), 2);
/// for guest in guests {
///     assert_eq!(rt.block_on(guest)?, "dinner");
/// }
/// assert!(rt.members(ROOM).is_empty());
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Group<M> {
    name: &'static str,
    marker: PhantomData<fn(M)>,
}

impl<M> Group<M> {
    /// The typed face of this text.
    pub const fn new(name: &'static str) -> Self {
        Self { name, marker: PhantomData }
    }

    /// The text.
    pub const fn as_str(self) -> &'static str {
        self.name
    }
}

impl<M> Clone for Group<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Group<M> {}

impl<M> PartialEq for Group<M> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<M> Eq for Group<M> {}

impl<M> AsRef<str> for Group<M> {
    fn as_ref(&self) -> &str {
        self.name
    }
}

impl<M> fmt::Debug for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group<{}>({:?})", type_name::<M>(), self.name)
    }
}

mod sealed {
    pub trait Sealed<M> {
        #[doc(hidden)]
        fn text(&self) -> &str;
    }
}
use sealed::Sealed;

/// What a group of processes that take messages of type `M` can be called: a [`Group`] of that type, or a text.
pub trait GroupName<M>: Sealed<M> {}

impl<M> GroupName<M> for Group<M> {}
impl<M> Sealed<M> for Group<M> {
    fn text(&self) -> &str {
        self.name
    }
}

impl<M> GroupName<M> for &str {}
impl<M> Sealed<M> for &str {
    fn text(&self) -> &str {
        self
    }
}

impl Host {
    /// The members of a group that take messages of type `N`, in the order in which they joined. Whoever joins or leaves
    /// meanwhile may be among them or not; nobody whose end was heard of is.
    pub fn members<N: Send + 'static>(&self, group: impl GroupName<N>) -> Vec<Address<N>> {
        let members = self.namespace().groups().members(group.text());
        members.into_iter().filter_map(|member| member.downcast().map(Address::new)).collect()
    }

    /// Sends a message to each [member](Self::members) of a group; says how many took it.
    pub fn broadcast<N: Clone + Send + 'static>(&self, group: impl GroupName<N>, message: N) -> usize {
        self.members(group).into_iter().filter(|member| member.send(message.clone()).is_ok()).count()
    }
}

impl<M: Send + 'static> Me<M> {
    /// Joins a group of its host, until this process ends or [leaves](Self::leave) it. Joined twice, it is in it once;
    /// one that has ended joins nothing.
    pub fn join(&self, group: impl GroupName<M>) {
        let head = &self.control().head;
        let lives = || !self.control().inbox.is_closed();
        head.host().namespace().groups().join(group.text().to_owned().into(), &self.any(), head.groups(), lives);
    }

    /// Leaves a group; nothing if it was not in it.
    pub fn leave(&self, group: impl GroupName<M>) {
        let head = &self.control().head;
        head.host().namespace().groups().leave(group.text(), head.pid(), head.groups());
    }

    /// Monitors a group of its host: returns who is in it now, in the order in which they joined, and has this process
    /// told from then on by an [`Event::Joined`](crate::Event::Joined) of each that joins it and an
    /// [`Event::Left`](crate::Event::Left) of each that leaves it or ends. No change is missed or told twice. Set again, it
    /// is one more monitor, which tells by itself.
    ///
    /// All who monitor a group hear of its changes in the same order. What a process sent before it left arrives before
    /// that is told, and its leave before any other news of its end. Such events wait for
    /// [`event`](crate::Mailbox::event), a receive leaves them where they are.
    ///
    /// A group need not have members to be monitored. Each change takes time in proportion to those who monitor it, on
    /// the thread of whoever joins or leaves.
    ///
    /// ```
    /// use procession::{Context, Event, Exit, Group, Runtime};
    ///
    /// const ROOM: Group<()> = Group::new("room");
    ///
    /// async fn doorman(mut ctx: Context) -> Result<(), Exit> {
    ///     let (_, mut present) = ctx.monitor_group(ROOM);
    ///     assert!(present.is_empty());
    ///     let guest = ctx.spawn(async |mut ctx: Context<()>| {
    ///         ctx.join(ROOM);
    ///         ctx.receive().await
    ///     });
    ///     loop {
    ///         match ctx.event().await {
    ///             Event::Joined { pid, .. } => {
    ///                 present.push(pid);
    ///                 guest.send(())?;
    ///             }
    ///             Event::Left { pid, .. } => {
    ///                 assert_eq!(present, [pid]);
    ///                 return Ok(());
    ///             }
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// let rt = Runtime::new()?;
    /// rt.block_on(rt.spawn(doorman))?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn monitor_group(&self, group: impl AsRef<str>) -> (MonitorRef, Vec<Pid>) {
        monitor(self.control(), group.as_ref())
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// As [`Me::monitor_group`].
    pub fn monitor_group(&self, group: impl AsRef<str>) -> (MonitorRef, Vec<Pid>) {
        monitor(self.control(), group.as_ref())
    }
}

fn monitor<M: Send + 'static>(control: &Ref<Control<M>>, group: &str) -> (MonitorRef, Vec<Pid>) {
    let head = &control.head;
    let tenant = control.any();
    let lives = || !control.inbox.is_closed();
    head.host().namespace().groups().watch(group.to_owned().into(), &tenant, head.groups(), lives)
}
