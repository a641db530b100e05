//! The groups of a host: each name leads to all that have joined, in the order in which they did, and to those that watch
//! who comes and goes.
//!
//! As with the names a tenant keeps a list of its own, under whose lock both change, and its end comes here if it is
//! marked; the argument there holds here too. A group is there while it has members, or somebody watches it.
//!
//! Whoever changes a group puts the news of it into the mailboxes of the watchers before the lock of its shard is free, and
//! whoever begins to watch sees the members under that lock: so no change is missed, none is told twice, and all watchers
//! hear of them in one order. They are woken when the lock is free. An end comes here after its process has let go of all
//! that it held, so what it sent, by its last drops too, lies before its leave.

use std::collections::BTreeMap;

use crate::host::link::Linkable;
use crate::host::registry::names::{Text, hash};
use crate::platform::sync::{Arc, CachePadded, Mutex, planted};
use crate::process::event::{MonitorRef, Signal};
use crate::process::mailbox::Wakes;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// How many locks there are; the name of a group hashes to one of them.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

/// What one tenant has to do with groups, on its own side.
pub(crate) type Own = Mutex<Book>;

#[derive(Debug, Default)]
pub(crate) struct Book {
    /// The groups that it is in, each with its number there.
    member_of: BTreeMap<Text, u64>,
    /// The groups that it watches, by the numbers of its monitors.
    watches: BTreeMap<u64, Text>,
    /// How many monitors it has set.
    monitors: u64,
}

impl Book {
    /// Whether a change that was put into the mailbox and is read now is still wanted.
    pub(crate) fn watches(&self, number: u64) -> bool {
        self.watches.contains_key(&number)
    }
}

#[derive(Debug)]
struct Members<E: ?Sized> {
    /// By number, which is the order in which they came.
    members: BTreeMap<u64, Ref<E>>,
    next: u64,
    watchers: BTreeMap<MonitorRef, Ref<E>>,
    /// Its name as its watchers are told it.
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
    /// Puts a change into the mailboxes of all watchers. One that is closed takes nothing, and its end comes here.
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

    fn is_void(&self) -> bool {
        self.members.is_empty() && self.watchers.is_empty()
    }
}

/// The table.
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

    /// Adds a tenant that is marked and `lives`, which is asked under the locks. One that is in it already stays where
    /// it is; one that has ended is not added.
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

    /// Takes a tenant out, if it is in it.
    pub(crate) fn leave(&self, group: &str, pid: Pid, own: &Own) {
        let mut own = own.lock();
        let Some((group, number)) = own.member_of.remove_entry(group) else { return };
        let wakes = self.remove(&group, number, pid);
        drop(own);
        wakes.into_iter().for_each(Wakes::wake);
    }

    /// Has a tenant that is marked and `lives` told of each change from now on, and says who is in it now. One that has
    /// ended is told nothing.
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

    /// Tells a tenant of no change any more. False if it was not told of any.
    pub(crate) fn forget(&self, monitor: MonitorRef, own: &Own) -> bool {
        let mut own = own.lock();
        let Some(group) = own.watches.remove(&monitor.number()) else { return false };
        self.remove_watcher(&group, monitor);
        true
    }

    /// Takes a tenant that has ended out of all of them.
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

    /// Of a number that is in the list of its tenant, which is locked.
    fn remove(&self, group: &str, number: u64, pid: Pid) -> Vec<Wakes> {
        let mut shard = self.shard(group).lock();
        let Some(members) = shard.get_mut(group) else { return Vec::new() };
        let member = members.members.remove(&number);
        let wakes = members.tell(Change::Left, pid);
        // Nobody has a number there any more, so the next to join may begin anew.
        let emptied = if members.is_void() { shard.remove_entry(group) } else { None };
        drop(shard);
        drop((member, emptied));
        wakes
    }

    /// Of a monitor that is in the list of its tenant, which is locked.
    fn remove_watcher(&self, group: &str, monitor: MonitorRef) {
        let mut shard = self.shard(group).lock();
        let Some(members) = shard.get_mut(group) else { return };
        let watcher = members.watchers.remove(&monitor);
        if members.watchers.is_empty() {
            members.name = None;
        }
        let emptied = if members.is_void() { shard.remove_entry(group) } else { None };
        drop(shard);
        drop((watcher, emptied));
    }

    /// All that are in it now, in the order in which they joined.
    pub(crate) fn members(&self, group: &str) -> Vec<Ref<E>> {
        self.shard(group).lock().get(group).map_or_else(Vec::new, |group| group.members.values().cloned().collect())
    }
}
