//! The groups of a host: each name leads to all that have joined, in the order in which they did.
//!
//! As with the names a tenant keeps a list of its own, under whose lock both change, and its end comes here
//! if it is marked; the argument there holds here too. A group is there while it has members.

use std::collections::BTreeMap;

use super::names::{Text, hash};
use crate::sync::{Arc, CachePadded, Mutex};

/// How many locks there are; the name of a group hashes to one of them.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

/// The groups that one tenant is in, on its own side, each with its number there.
pub(crate) type Own = Mutex<BTreeMap<Text, u64>>;

#[derive(Debug)]
struct Members<E: ?Sized> {
    /// By number, which is the order in which they came.
    members: BTreeMap<u64, Arc<E>>,
    next: u64,
}

impl<E: ?Sized> Default for Members<E> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), next: 0 }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Groups<E: ?Sized> {
    shards: [CachePadded<Mutex<BTreeMap<Text, Members<E>>>>; SHARDS],
}

impl<E: ?Sized> Groups<E> {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))) }
    }

    fn shard(&self, group: &str) -> &Mutex<BTreeMap<Text, Members<E>>> {
        &self.shards[hash(group) as usize % SHARDS].0
    }

    /// Adds a tenant that is marked and `lives`, which is asked under the locks. One that is in it already stays where
    /// it is; one that has ended is not added.
    pub(crate) fn join(&self, group: Text, tenant: &Arc<E>, own: &Own, lives: impl Fn() -> bool) {
        let mut own = own.lock();
        if own.contains_key(&group) {
            return;
        }
        let mut shard = self.shard(&group).lock();
        if !lives() {
            return;
        }
        let members = shard.entry(group.clone()).or_default();
        let number = members.next;
        members.next += 1;
        members.members.insert(number, Arc::clone(tenant));
        drop(shard);
        own.insert(group, number);
    }

    /// Takes a tenant out, if it is in it.
    pub(crate) fn leave(&self, group: &str, own: &Own) {
        let mut own = own.lock();
        if let Some((group, number)) = own.remove_entry(group) {
            self.remove(&group, number);
        }
    }

    /// Takes a tenant that has ended out of all of them.
    pub(crate) fn release(&self, own: &Own) {
        let mut own = own.lock();
        while let Some((group, number)) = own.pop_first() {
            self.remove(&group, number);
        }
    }

    /// Of a number that is in the list of its tenant, which is locked.
    fn remove(&self, group: &str, number: u64) {
        let mut shard = self.shard(group).lock();
        let Some(members) = shard.get_mut(group) else { return };
        let member = members.members.remove(&number);
        // Nobody has a number there any more, so the next to join may begin anew.
        let emptied = if members.members.is_empty() { shard.remove_entry(group) } else { None };
        drop(shard);
        drop((member, emptied));
    }

    /// All that are in it now, in the order in which they joined.
    pub(crate) fn members(&self, group: &str) -> Vec<Arc<E>> {
        self.shard(group).lock().get(group).map_or_else(Vec::new, |group| group.members.values().cloned().collect())
    }
}
