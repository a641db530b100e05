//! Rows about the names and groups of a host.

use std::borrow::Cow;

use crate::process::pid::Pid;

/// The first rows of a list, and the number of all entries: see [`Host::names`](crate::Host::names).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing<T> {
    /// The first rows. The number of rows is at most the limit that was passed to the call.
    pub rows: Vec<T>,
    /// Number of all entries that the call selected, including the entries beyond the limit. If an entry was added or
    /// removed during the call, the number may include or exclude this entry.
    pub count: usize,
}

/// Row about one registered name: see [`Host::names`](crate::Host::names).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameInfo {
    /// The name.
    pub name: Cow<'static, str>,
    /// Process that has the name.
    pub pid: Pid,
    /// Name of the type of the process's code: see [`ProcessInfo::type_name`](crate::observe::ProcessInfo::type_name).
    /// Empty if the name belongs to a mailbox outside a process, or to a kept mailbox of a child.
    pub type_name: &'static str,
}

/// Row about one group: see [`Host::groups`](crate::Host::groups). All fields of a row belong to one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupInfo {
    /// Name of the group.
    pub name: Cow<'static, str>,
    /// Number of members. A group without members exists while it has monitors.
    pub members: usize,
    /// The first members, in the order in which they joined. At most 8 members.
    pub first_members: Vec<Pid>,
    /// Number of monitors that are set on the group.
    pub monitors: usize,
}
