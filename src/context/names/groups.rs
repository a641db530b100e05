//! Groups of processes. A group is a name that several processes share. A process can send a message to all members of
//! a group. A process can also monitor a group, and receives an event when a member joins or leaves. This file contains
//! the public types and methods. The table of groups is in `host::registry::groups`.

use std::any::type_name;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::context::address::Address;
use crate::context::mailbox::Mailbox;
use crate::context::me::SelfHandle;
use crate::host::Host;
use crate::host::control::Control;
use crate::process::event::MonitorRef;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Name of a group of processes whose message type is `M`. A group name is usually a constant. Any number of processes
/// can join a group.
///
/// A group exists while the group has members or monitors. Therefore a program does not create a group explicitly. Each
/// host has its own groups.
///
/// ```
/// use procession::{Context, Exit, Group, Runtime};
///
/// const ROOM: Group<&str> = Group::new("room");
///
/// async fn guest(mut ctx: Context<&'static str>) -> Result<&'static str, Exit> {
///     ctx.join_group(ROOM);
///     ctx.mark_started();
///     ctx.receive().await
/// }
/// let rt = Runtime::new()?;
/// let guests = [rt.process().manual_start().spawn(guest)?, rt.process().manual_start().spawn(guest)?];
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
    /// Creates a typed group name from a text.
    pub const fn new(name: &'static str) -> Self {
        Self { name, marker: PhantomData }
    }

    /// Returns the text of the name.
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

impl<M> Hash for Group<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl<M> fmt::Display for Group<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

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

pub(crate) trait Sealed<M> {
    fn text(&self) -> &str;
}

/// Types that can be used as the name of a group whose members have the message type `M`. A group name is either a
/// `Group<M>` or a text.
#[expect(private_bounds, reason = "only the crate has such names, and only the crate reads their text")]
pub trait IntoGroup<M>: Sealed<M> {}

impl<M> IntoGroup<M> for Group<M> {}
impl<M> Sealed<M> for Group<M> {
    fn text(&self) -> &str {
        self.name
    }
}

impl<M> IntoGroup<M> for &str {}
impl<M> Sealed<M> for &str {
    fn text(&self) -> &str {
        self
    }
}

impl Host {
    /// Returns the members of a group. The result contains only the members with the message type `N`. The members are
    /// sorted by the time at which they joined the group. If a process joins or leaves the group during this call, the
    /// result may or may not contain the process. The result contains no process whose exit was already delivered to a
    /// link, a monitor or the [`Observer`](crate::Observer).
    pub fn members<N: Send + 'static>(&self, group: impl IntoGroup<N>) -> Vec<Address<N>> {
        let members = self.namespace().groups().members(group.text());
        members.into_iter().filter_map(|member| member.downcast().map(Address::new)).collect()
    }

    /// Sends a clone of a message to each member of a group: see [`members`](Self::members). Returns the number of
    /// members that have accepted the message.
    pub fn broadcast<N: Clone + Send + 'static>(&self, group: impl IntoGroup<N>, message: N) -> usize {
        self.members(group).into_iter().filter(|member| member.send(message.clone()).is_ok()).count()
    }
}

impl<M: Send + 'static> SelfHandle<M> {
    /// Adds this process to a group of its host. The process stays a member until the process exits or
    /// [leaves](Self::leave_group) the group. If this process is already a member or has exited, this method has no
    /// effect.
    pub fn join_group(&self, group: impl IntoGroup<M>) {
        join(self.control(), group.text());
    }

    /// Removes this process from a group. If this process is not a member, this method has no effect.
    pub fn leave_group(&self, group: impl IntoGroup<M>) {
        leave(self.control(), group.text());
    }

    /// Monitors a group of this host. Returns the reference of the monitor and the pids of the current members. The
    /// pids are in the order in which the members joined the group.
    ///
    /// After this call, an [`Event::Joined`](crate::Event::Joined) arrives for each process that joins the group. An
    /// [`Event::Left`](crate::Event::Left) arrives for each member that leaves the group or exits. Each monitor reports
    /// each change exactly once. A second call for the same group creates another monitor.
    ///
    /// All monitors of a group report the changes of the group in the same order. If a member sends messages and then
    /// leaves the group, the messages arrive before the `Left` event of the member. If a member exits, the `Left` event
    /// arrives before any other event about this exit.
    ///
    /// The method [`event`](crate::Mailbox::event) of the mailbox returns `Joined` and `Left` events. The method
    /// [`receive`](crate::Mailbox::receive) leaves `Joined` and `Left` events in the mailbox.
    ///
    /// A process can also monitor a group that has no members. When a process joins or leaves a group, each monitor of
    /// the group causes one event. The thread that makes the change puts this event into the mailbox of the monitoring
    /// process.
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
    ///         ctx.join_group(ROOM);
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
    /// Adds this mailbox to a group. If the mailbox belongs to a process, the process becomes the member: see
    /// [`SelfHandle::join_group`]. A mailbox of [`Host::mailbox`](crate::Host::mailbox) stays a member until it is
    /// dropped or leaves the group.
    pub fn join_group(&self, group: impl IntoGroup<M>) {
        join(self.control(), group.text());
    }

    /// Removes the process of this mailbox from a group: see [`SelfHandle::leave_group`].
    pub fn leave_group(&self, group: impl IntoGroup<M>) {
        leave(self.control(), group.text());
    }

    /// Monitors a group of this host: see [`SelfHandle::monitor_group`].
    pub fn monitor_group(&self, group: impl AsRef<str>) -> (MonitorRef, Vec<Pid>) {
        monitor(self.control(), group.as_ref())
    }
}

fn join<M: Send + 'static>(control: &Ref<Control<M>>, group: &str) {
    let head = &control.head;
    let lives = || !control.inbox.is_closed();
    head.host().namespace().groups().join(group.to_owned().into(), &control.any(), head.groups(), lives);
}

fn leave<M: Send + 'static>(control: &Ref<Control<M>>, group: &str) {
    let head = &control.head;
    head.host().namespace().groups().leave(group, head.pid(), head.groups());
}

fn monitor<M: Send + 'static>(control: &Ref<Control<M>>, group: &str) -> (MonitorRef, Vec<Pid>) {
    let head = &control.head;
    let process = control.any();
    let lives = || !control.inbox.is_closed();
    head.host().namespace().groups().watch(group.to_owned().into(), &process, head.groups(), lives)
}
