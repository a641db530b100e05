//! The names of a host. Each name belongs to at most one entry of the pid table.
//!
//! Each entry has a list of its own names. When the process of the entry exits, the exit releases these names. To
//! register or remove a name, a thread changes the table and this list. The thread holds the lock of the list during
//! both changes. No user code runs under a lock.
//!
//! A registration may race with the exit of the process that registers the name. The exit performs two steps:
//!
//! - The exit closes the mailbox.
//! - If the process has the flag `KNOWN`, the exit locks the list and releases the names.
//!
//! A registration performs three steps:
//!
//! - The registration sets `KNOWN`.
//! - The registration locks the list.
//! - If the mailbox is open, the registration adds the name. If the mailbox is closed, the registration fails.
//!
//! If the registration finds the mailbox open, the exit closes the mailbox later. Then the exit sees `KNOWN`, waits for
//! the lock of the list, and releases the new name. Therefore no name outlives the exit of its process. For a process
//! without names, the exit only has to load the flags.

mod own;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::host::registry::listing;
pub(crate) use crate::host::registry::names::own::OwnNames;
use crate::observe::Listing;
use crate::platform::sync::{CachePadded, Mutex, planted};
use crate::process::state::Ref;

/// Number of shards. Each shard has its own lock. The hash of a name selects the shard.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

pub(crate) type Text = Cow<'static, str>;

/// The names of one process. The control block of the process stores this value.
pub(crate) type Own = Mutex<OwnNames>;

/// The table of names.
#[derive(Debug)]
pub(crate) struct Names<E: ?Sized> {
    shards: [CachePadded<Mutex<BTreeMap<Text, Ref<E>>>>; SHARDS],
}

/// Reason why a name was not registered.
#[derive(Debug)]
pub(crate) enum Unclaimed<E: ?Sized, X> {
    /// Another process has the name.
    Taken(Ref<E>),
    /// The name is free, but the process could not be built, or has exited.
    Refused(X),
}

/// Error: the process has exited.
#[derive(Debug)]
pub(crate) struct Gone;

impl<E: ?Sized> Names<E> {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))) }
    }

    fn shard(&self, name: &str) -> &Mutex<BTreeMap<Text, Ref<E>>> {
        &self.shards[hash(name) as usize % SHARDS].0
    }

    /// Returns the process that has this name.
    pub(crate) fn get(&self, name: &str) -> Option<Ref<E>> {
        self.shard(name).lock().get(name).cloned()
    }

    /// Registers a free name for the process that `make` builds. `make` runs under the lock of the name's shard.
    /// Therefore, if several callers claim the name at the same time, only one caller builds a process. The caller of
    /// this function must add the name to the process's own list of names.
    ///
    /// # Errors
    /// Returns `Taken` if the name is taken, and `Refused` if `make` fails.
    pub(crate) fn claim<T, X>(
        &self,
        name: Text,
        make: impl FnOnce() -> Result<(Ref<E>, T), X>,
    ) -> Result<T, Unclaimed<E, X>> {
        let mut shard = self.shard(&name).lock();
        if let Some(holder) = shard.get(&name) {
            return Err(Unclaimed::Taken(holder.clone()));
        }
        if planted!("names_claim_unlocks") {
            drop(shard);
            shard = self.shard(&name).lock();
        }
        let (holder, made) = make().map_err(Unclaimed::Refused)?;
        let former = shard.insert(name, holder);
        drop(shard);
        drop(former);
        Ok(made)
    }

    /// Registers a name for a process that has the flag `KNOWN`. When this function calls `lives`, this function holds
    /// two locks: the lock of the list `own`, and the lock of the name's shard. `lives` returns true if the mailbox of
    /// the process is open. If the process already has the name, nothing changes.
    ///
    /// # Errors
    /// Returns `Taken` if another process has the name, and `Refused` if the process has exited.
    pub(crate) fn register(
        &self,
        name: Text,
        process: &Ref<E>,
        own: &Own,
        lives: impl Fn() -> bool,
    ) -> Result<(), Unclaimed<E, Gone>> {
        let early = planted!("names_register_looks_early") && lives();
        let lives = || early || lives();
        let mut own = own.lock();
        let taken = self.claim(name.clone(), || if lives() { Ok((process.clone(), ())) } else { Err(Gone) });
        match taken {
            Ok(()) => own.push(name),
            Err(Unclaimed::Taken(holder)) if holder.is_same(process) => {}
            Err(unclaimed) => return Err(unclaimed),
        }
        Ok(())
    }

    /// Removes a name of a process. Returns false if the process does not have this name.
    pub(crate) fn unregister(&self, name: &str, own: &Own) -> bool {
        let mut own = own.lock();
        let was_owned = own.remove(name);
        if was_owned {
            self.remove(name);
        }
        was_owned
    }

    /// Removes all names of an exited process. Returns the oldest name.
    pub(crate) fn release(&self, own: &Own) -> Option<Text> {
        let mut own = own.lock();
        for name in own.iter() {
            self.remove(name);
        }
        std::mem::take(&mut *own).first().cloned()
    }

    /// Lists the first `limit` names that begin with `prefix`, in the order of the names. `row` makes the row of a name
    /// from the holder of the name. `row` runs under the lock of a shard, and must take no lock.
    pub(crate) fn list<R>(&self, prefix: &str, limit: usize, row: impl Fn(&Text, &Ref<E>) -> R) -> Listing<R> {
        listing::list(self.shards.iter().map(|shard| &shard.0), prefix, limit, row)
    }

    /// Removes a name from the table. The caller holds the lock of the owner's list of names.
    fn remove(&self, name: &str) {
        let entry = self.shard(name).lock().remove_entry(name);
        drop(entry);
    }
}

/// Returns the hash of a name. The hash selects the shard. The function computes FNV-1a (Fowler, Noll, Vo), and then
/// combines the two halves of the result. If two names have the same hash, the only effect is that the two names share
/// a lock.
pub(super) fn hash(name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ hash >> 32
}
