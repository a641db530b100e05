//! The process groups of a host: each group has members, in the order in which they joined, and monitors that are
//! notified of changes.
//!
//! Each process has a list of its own memberships and monitors. The table and the list change together, under the lock
//! of the list. The exit releases the list if the process has the flag `KNOWN`. `names.rs` explains why no name
//! outlives the exit of its process. The same argument holds for memberships. A group exists while it has members or
//! monitors.
//!
//! A change of a group is put into the mailboxes of the monitoring processes before the lock of the shard is released.
//! A new monitor reads the members under the same lock. Therefore a monitor misses no change and gets no change twice,
//! and all monitors see the changes in the same order. The processes are woken after the lock is released. When a
//! process exits, it leaves its groups after its state was dropped. Therefore all messages of the process, including
//! messages from its destructors, precede the leave notice.

use std::collections::BTreeMap;

use crate::host::link::Linkable;
use crate::host::registry::names::{Text, hash};
use crate::platform::sync::{Arc, CachePadded, Mutex, planted};
use crate::process::event::{MonitorRef, Signal};
use crate::process::mailbox::Wakes;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Number of shards, each with its own lock. The hash of the group name selects the shard.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

/// The memberships and monitors of one process, stored in its control block.
pub(crate) type Own = Mutex<Memberships>;

#[derive(Debug, Default)]
pub(crate) struct Memberships {
    /// The groups that the process is a member of, each with its member number.
    member_of: BTreeMap<Text, u64>,
    /// The groups that the process monitors, by monitor number.
    watches: BTreeMap<u64, Text>,
    /// Number of group monitors that the process has set.
    monitors: u64,
}

impl Memberships {
    /// The groups that the process is a member of, in the order of their names.
    pub(crate) fn member_of(&self) -> impl Iterator<Item = &Text> {
        self.member_of.keys()
    }

    /// Whether the monitor is still set. If the monitor is not set, a change notice of the monitor is dropped when the
    /// process reads this notice from the mailbox.
    pub(crate) fn watches(&self, number: u64) -> bool {
        self.watches.contains_key(&number)
    }
}

#[derive(Debug)]
struct Members<E: ?Sized> {
    /// Members, keyed by number. The numbers increase in the order in which the members joined.
    members: BTreeMap<u64, Ref<E>>,
    next: u64,
    watchers: BTreeMap<MonitorRef, Ref<E>>,
    /// Name of the group in the notices to its monitors.
    name: Option<Arc<str>>,
}

impl<E: ?Sized> Default for Members<E> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), next: 0, watchers: BTreeMap::new(), name: None }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Joined,
    Left,
}

impl<E: Linkable + ?Sized> Members<E> {
    /// Puts a change into the mailboxes of all monitoring processes. If a mailbox is closed, it refuses the change, and
    /// the exit of its process removes the monitor later.
    fn tell(&self, change: Change, pid: Pid) -> Vec<Wakes> {
        let Some(name) = &self.name else { return Vec::new() };
        let signal = |number, group| match change {
            Change::Joined => Signal::Joined { number, group, pid },
            Change::Left => Signal::Left { number, group, pid },
        };
        let tell =
            |(monitor, watcher): (&MonitorRef, &Ref<E>)| watcher.put(signal(monitor.number(), Arc::clone(name))).ok();
        self.watchers.iter().filter_map(tell).collect()
    }

    fn is_unused(&self) -> bool {
        self.members.is_empty() && self.watchers.is_empty()
    }
}

/// The table of groups.
#[derive(Debug)]
pub(crate) struct Groups<E: ?Sized> {
    shards: [Shard<E>; SHARDS],
}

type Shard<E> = CachePadded<Mutex<BTreeMap<Text, Members<E>>>>;

impl<E: Linkable + ?Sized> Groups<E> {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))) }
    }

    fn shard(&self, group: &str) -> &Mutex<BTreeMap<Text, Members<E>>> {
        &self.shards[hash(group) as usize % SHARDS].0
    }

    /// Adds a process that has the flag `KNOWN`. `lives` is called under the locks and tells whether the mailbox of the
    /// process is open. If the process is a member already, it keeps its position. If the process has exited, the
    /// process is not added.
    pub(crate) fn join(&self, group: Text, tenant: &Ref<E>, own: &Own, lives: impl Fn() -> bool) {
        let mut own = own.lock();
        if own.member_of.contains_key(&group) {
            return;
        }
        let mut shard = self.shard(&group).lock();
        if !lives() {
            return;
        }
        let members = shard.entry(group.clone()).or_default();
        let number = members.next;
        members.next += 1;
        members.members.insert(number, tenant.clone());
        let wakes = members.tell(Change::Joined, tenant.pid());
        drop(shard);
        own.member_of.insert(group, number);
        drop(own);
        wakes.into_iter().for_each(Wakes::wake);
    }

    /// Removes a process from a group, if it is a member.
    pub(crate) fn leave(&self, group: &str, pid: Pid, own: &Own) {
        let mut own = own.lock();
        let Some((group, number)) = own.member_of.remove_entry(group) else { return };
        let wakes = self.remove(&group, number, pid);
        drop(own);
        wakes.into_iter().for_each(Wakes::wake);
    }

    /// Sets a monitor on a group, for a process that has the flag `KNOWN`. Returns the monitor and the current members.
    /// If the process has exited, it gets no notices.
    pub(crate) fn watch(
        &self,
        group: Text,
        tenant: &Ref<E>,
        own: &Own,
        lives: impl Fn() -> bool,
    ) -> (MonitorRef, Vec<Pid>) {
        let mut own = own.lock();
        own.monitors += 1;
        let monitor = MonitorRef::of_group(tenant.pid(), own.monitors);
        let mut shard = self.shard(&group).lock();
        let pids = |members: &Members<E>| members.members.values().map(|member| member.pid()).collect();
        let present = shard.get(&group).map_or_else(Vec::new, pids);
        if planted!("groups_look_before_watching") {
            drop(shard);
            shard = self.shard(&group).lock();
        }
        if lives() {
            let members = shard.entry(group.clone()).or_default();
            members.name.get_or_insert_with(|| Arc::from(&*group));
            members.watchers.insert(monitor, tenant.clone());
            drop(shard);
            own.watches.insert(monitor.number(), group);
        }
        (monitor, present)
    }

    /// Removes a monitor. Returns false if the monitor is not set.
    pub(crate) fn forget(&self, monitor: MonitorRef, own: &Own) -> bool {
        let mut own = own.lock();
        let Some(group) = own.watches.remove(&monitor.number()) else { return false };
        self.remove_watcher(&group, monitor);
        true
    }

    /// Removes a process that has exited from all groups, and removes all monitors that the process has set.
    pub(crate) fn release(&self, pid: Pid, own: &Own) {
        let mut own = own.lock();
        while let Some((number, group)) = own.watches.pop_first() {
            self.remove_watcher(&group, MonitorRef::new(pid, number));
        }
        let mut wakes = Vec::new();
        while let Some((group, number)) = own.member_of.pop_first() {
            wakes.extend(self.remove(&group, number, pid));
        }
        drop(own);
        wakes.into_iter().for_each(Wakes::wake);
    }

    /// Removes a member. The caller holds the lock of the list that contains the number.
    fn remove(&self, group: &str, number: u64, pid: Pid) -> Vec<Wakes> {
        let mut shard = self.shard(group).lock();
        let Some(members) = shard.get_mut(group) else { return Vec::new() };
        let member = members.members.remove(&number);
        let wakes = members.tell(Change::Left, pid);
        // A group without members and monitors is removed. If a group with the same name is created later, the numbers
        // of the new members may start from 0 again.
        let emptied = if members.is_unused() { shard.remove_entry(group) } else { None };
        drop(shard);
        drop((member, emptied));
        wakes
    }

    /// Removes a monitor. The caller holds the lock of the list that contains the monitor.
    fn remove_watcher(&self, group: &str, monitor: MonitorRef) {
        let mut shard = self.shard(group).lock();
        let Some(members) = shard.get_mut(group) else { return };
        let watcher = members.watchers.remove(&monitor);
        if members.watchers.is_empty() {
            members.name = None;
        }
        let emptied = if members.is_unused() { shard.remove_entry(group) } else { None };
        drop(shard);
        drop((watcher, emptied));
    }

    /// Members of a group, in the order in which they joined.
    pub(crate) fn members(&self, group: &str) -> Vec<Ref<E>> {
        self.shard(group).lock().get(group).map_or_else(Vec::new, |group| group.members.values().cloned().collect())
    }
}
