//! The process groups of a host. A group has members and monitors. The order of the members is the order in which the
//! members joined. The monitors are notified of each change. A group exists while it has members or monitors.
//!
//! Each process has a list of its own memberships and monitors. To change a membership or a monitor, a thread changes
//! the table and the list of the process. The thread holds the lock of the list during both changes. When a process
//! with the flag `KNOWN` exits, the exit removes all memberships and monitors in the list of the process. No membership
//! outlives the exit of its process. `names.rs` contains the proof for names, and the same proof holds for memberships.
//!
//! A thread that changes a group locks the shard of the group. Before the thread releases this lock, the thread puts a
//! notice of the change into the mailboxes of the monitoring processes. Code that sets a new monitor reads the members
//! under the same lock. Therefore a monitor misses no change and gets no change twice, and all monitors see the changes
//! in the same order. The thread wakes the monitoring processes after the unlock.
//!
//! When a process exits, the runtime first drops the state of the process, and then removes the process from its
//! groups. The destructors of the state may send messages. Therefore all messages of the process are sent before the
//! notice that the process has left.

use std::collections::BTreeMap;

use crate::host::link::Linkable;
use crate::host::registry::listing;
use crate::host::registry::names::{Text, hash};
use crate::observe::{GroupInfo, Listing};
use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{Arc, CachePadded, Mutex, planted};
use crate::process::catch::delay_wakers;
use crate::process::event::{MonitorRef, Signal};
use crate::process::mailbox::Wakes;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Number of shards. Each shard has its own lock. The hash of the group name selects the shard.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

/// Maximum number of members that are read under one lock operation.
const PIECE: usize = if cfg!(procession_loom) { 1 } else { 256 };

/// Maximum number of members that a row of the inspection shows for one group.
const LISTED: usize = 8;

/// The memberships and monitors of one process. The control block of the process stores this value.
pub(crate) type Own = Mutex<Memberships>;

#[derive(Debug, Default)]
pub(crate) struct Memberships {
    /// The groups that the process is a member of. Each group is stored with the member number of the process.
    member_of: BTreeMap<Text, u64>,
    /// The groups that the process monitors, keyed by monitor number.
    watches: BTreeMap<u64, Text>,
    /// Number of group monitors that the process has ever set.
    monitors: u64,
}

impl Memberships {
    /// Returns the groups that the process is a member of, in the order of their names.
    pub(crate) fn member_of(&self) -> impl Iterator<Item = &Text> {
        self.member_of.keys()
    }

    /// Returns true if the monitor is still set. The mailbox may still contain notices of a removed monitor. The
    /// process drops a notice of a removed monitor when the process takes the notice out of the mailbox.
    pub(crate) fn watches(&self, number: u64) -> bool {
        self.watches.contains_key(&number)
    }
}

#[derive(Debug)]
struct Members<E: ?Sized> {
    /// Members, keyed by member number. A later member has a higher number. No number is used twice. The pid is
    /// stored here, so that the code that lists the pids reads only this map.
    members: BTreeMap<u64, (Pid, Ref<E>)>,
    watchers: BTreeMap<MonitorRef, Ref<E>>,
    /// Name of the group, for the notices to its monitors.
    name: Option<Arc<str>>,
}

impl<E: ?Sized> Default for Members<E> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), watchers: BTreeMap::new(), name: None }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Joined,
    Left,
}

impl<E: Linkable + ?Sized> Members<E> {
    /// Puts a notice of a change into the mailboxes of all monitoring processes. A closed mailbox refuses the notice.
    /// In this case, the exit of the monitoring process removes the monitor later.
    fn notify(&self, change: Change, pid: Pid) -> Vec<Wakes> {
        let Some(name) = &self.name else { return Vec::new() };
        let signal = |number, group| match change {
            Change::Joined => Signal::Joined { number, group, pid },
            Change::Left => Signal::Left { number, group, pid },
        };
        let notify =
            |(monitor, watcher): (&MonitorRef, &Ref<E>)| watcher.put(signal(monitor.number(), Arc::clone(name))).ok();
        self.watchers.iter().filter_map(notify).collect()
    }

    fn is_unused(&self) -> bool {
        self.members.is_empty() && self.watchers.is_empty()
    }
}

/// Wakes the monitoring processes. The caller holds no lock. A foreign waker may block until one of the processes has
/// run. Therefore all processes are queued first.
fn perform(wakes: Vec<Wakes>) {
    delay_wakers(|| wakes.into_iter().for_each(Wakes::wake));
}

/// The table of groups.
#[derive(Debug)]
pub(crate) struct Groups<E: ?Sized> {
    shards: [Shard<E>; SHARDS],
    /// Next member number. All groups share this counter. Therefore no number is used twice, even if a group is removed
    /// and created again.
    next: AtomicU64,
}

type Shard<E> = CachePadded<Mutex<BTreeMap<Text, Members<E>>>>;

impl<E: Linkable + ?Sized> Groups<E> {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))), next: AtomicU64::new(0) }
    }

    fn shard(&self, group: &str) -> &Mutex<BTreeMap<Text, Members<E>>> {
        &self.shards[hash(group) as usize % SHARDS].0
    }

    /// Adds a process to a group. The process has the flag `KNOWN`. When this function calls `lives`, this function
    /// holds two locks: the lock of the list `own`, and the lock of the group's shard. `lives` returns true if the
    /// mailbox of the process is open. If the process is already a member, the position of the process does not change.
    /// If the process has exited, this function does not add the process.
    pub(crate) fn join(&self, group: Text, process: &Ref<E>, own: &Own, lives: impl Fn() -> bool) {
        let mut own = own.lock();
        if own.member_of.contains_key(&group) {
            return;
        }
        let mut shard = self.shard(&group).lock();
        if !lives() {
            return;
        }
        let members = shard.entry(group.clone()).or_default();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        members.members.insert(number, (process.pid(), process.clone()));
        let wakes = members.notify(Change::Joined, process.pid());
        drop(shard);
        own.member_of.insert(group, number);
        drop(own);
        perform(wakes);
    }

    /// Removes a process from a group, if the process is a member.
    pub(crate) fn leave(&self, group: &str, pid: Pid, own: &Own) {
        let mut own = own.lock();
        let Some((group, number)) = own.member_of.remove_entry(group) else { return };
        let wakes = self.remove(&group, number, pid);
        drop(own);
        perform(wakes);
    }

    /// Sets a monitor on a group, for a process that has the flag `KNOWN`. Returns the monitor and the current members.
    /// If the process has exited, the monitor sends no notices.
    pub(crate) fn watch(
        &self,
        group: Text,
        process: &Ref<E>,
        own: &Own,
        lives: impl Fn() -> bool,
    ) -> (MonitorRef, Vec<Pid>) {
        let mut own = own.lock();
        own.monitors += 1;
        let monitor = MonitorRef::of_group(process.pid(), own.monitors);
        let mut shard = self.shard(&group).lock();
        let pids = |members: &Members<E>| members.members.values().map(|(pid, _)| *pid).collect();
        let present = shard.get(&group).map_or_else(Vec::new, pids);
        if planted!("groups_look_before_watching") {
            drop(shard);
            shard = self.shard(&group).lock();
        }
        if lives() {
            let members = shard.entry(group.clone()).or_default();
            members.name.get_or_insert_with(|| Arc::from(&*group));
            members.watchers.insert(monitor, process.clone());
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

    /// Removes an exited process from all its groups, and removes all its monitors.
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
        perform(wakes);
    }

    /// Removes a member. The caller holds the lock of the list of the process `pid`.
    fn remove(&self, group: &str, number: u64, pid: Pid) -> Vec<Wakes> {
        let mut shard = self.shard(group).lock();
        let Some(members) = shard.get_mut(group) else { return Vec::new() };
        let member = members.members.remove(&number);
        let wakes = members.notify(Change::Left, pid);
        // A group without members and monitors is removed.
        let emptied = if members.is_unused() { shard.remove_entry(group) } else { None };
        drop(shard);
        drop((member, emptied));
        wakes
    }

    /// Removes a monitor. The caller holds the lock of the monitoring process's list.
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

    /// Lists the first `limit` groups whose names begin with `prefix`, in the order of the names.
    pub(crate) fn list(&self, prefix: &str, limit: usize) -> Listing<GroupInfo> {
        let row = |name: &Text, group: &Members<E>| GroupInfo {
            name: name.clone(),
            members: group.members.len(),
            first_members: group.members.values().take(LISTED).map(|(pid, _)| *pid).collect(),
            monitors: group.watchers.len(),
        };
        listing::list(self.shards.iter().map(|shard| &shard.0), prefix, limit, row)
    }

    /// Returns the members of a group, in the order in which they joined. The function reads the members in pieces, and
    /// holds the lock of the shard only for one piece. If a process joins or leaves the group during the call, the
    /// result may or may not contain the process.
    pub(crate) fn members(&self, group: &str) -> Vec<Ref<E>> {
        let (mut found, mut next, mut end) = (Vec::new(), 0, None);
        loop {
            let shard = self.shard(group).lock();
            let Some(group) = shard.get(group) else { return found };
            // A process that leaves and joins again gets a new number. The result contains only members with numbers
            // below `end`, and `end` is the value of the counter `self.next` when the first piece was read. Therefore a
            // membership that begins after the first piece was read is not listed, even if the group is removed and
            // created again between two pieces. `Relaxed` is enough: a new member of this group takes its number under the lock of
            // the shard. Therefore the number of each member that exists under this lock is below the value of the
            // counter.
            let end = *end.get_or_insert_with(|| self.next.load(Ordering::Relaxed));
            let piece = group.members.range(next..end.max(next)).take(PIECE);
            let before = found.len();
            for (number, (_, member)) in piece {
                found.push(member.clone());
                next = number + 1;
            }
            if found.len() < before + PIECE {
                return found;
            }
        }
    }
}
