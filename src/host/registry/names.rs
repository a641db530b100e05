//! The names of a host: each name belongs to at most one entry of the pid table.
//!
//! Each entry has a list of its own names, and the exit of its process releases these names. The table and the list
//! change together, under the lock of the list. No user code runs under a lock.
//!
//! Registration races with the exit of the process. The exit first closes the mailbox. Then the exit releases the
//! names, if the process has the flag `KNOWN`. A registration sets `KNOWN`, locks the list, and then checks whether the
//! mailbox is open. If the mailbox is open, the exit closes it later, sees `KNOWN`, and waits for the lock of the list.
//! If the mailbox is closed, the registration fails. Therefore no name outlives the exit of its process, and the exit
//! of a process without names costs only one load.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::platform::sync::{CachePadded, Mutex, planted};
use crate::process::state::Ref;

/// Number of shards, each with its own lock. The hash of a name selects the shard.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

pub(crate) type Text = Cow<'static, str>;

/// The names of one process, stored in its control block.
pub(crate) type Own = Mutex<Vec<Text>>;

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
    /// The name is free, but the process could not be built or has exited.
    Refused(X),
}

/// The process has exited.
#[derive(Debug)]
pub(crate) struct Gone;

impl<E: ?Sized> Names<E> {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))) }
    }

    fn shard(&self, name: &str) -> &Mutex<BTreeMap<Text, Ref<E>>> {
        &self.shards[hash(name) as usize % SHARDS].0
    }

    /// The process that has this name.
    pub(crate) fn get(&self, name: &str) -> Option<Ref<E>> {
        self.shard(name).lock().get(name).cloned()
    }

    /// Registers a free name for the process that `make` builds. `make` runs under the lock. Therefore, if several
    /// callers claim the name at the same time, only one caller builds a process. The caller adds the name to the list
    /// of the process.
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

    /// Registers a name for a process that has the flag `KNOWN`. This function calls `lives` while it holds two locks,
    /// namely the lock of the list `own` and the lock of the name's shard. `lives` returns whether the mailbox of the
    /// process is open. If the process already has the name, nothing changes.
    ///
    /// # Errors
    /// Returns an error if another process has the name, or if the process has exited.
    pub(crate) fn register(
        &self,
        name: Text,
        tenant: &Ref<E>,
        own: &Own,
        lives: impl Fn() -> bool,
    ) -> Result<(), Unclaimed<E, Gone>> {
        let early = planted!("names_register_looks_early") && lives();
        let lives = || early || lives();
        let mut own = own.lock();
        let taken = self.claim(name.clone(), || if lives() { Ok((tenant.clone(), ())) } else { Err(Gone) });
        match taken {
            Ok(()) => own.push(name),
            Err(Unclaimed::Taken(holder)) if holder.is_same(tenant) => {}
            Err(unclaimed) => return Err(unclaimed),
        }
        Ok(())
    }

    /// Removes a name of a process. Returns false if the process does not have this name.
    pub(crate) fn unregister(&self, name: &str, own: &Own) -> bool {
        let mut own = own.lock();
        let Some(place) = own.iter().position(|owned| owned == name) else { return false };
        // The removal must keep the order, because the first name of the list is the oldest name.
        own.remove(place);
        self.remove(name);
        true
    }

    /// Removes all names of a process that has exited. Returns the oldest name.
    pub(crate) fn release(&self, own: &Own) -> Option<Text> {
        let mut own = own.lock();
        for name in own.iter() {
            self.remove(name);
        }
        std::mem::take(&mut *own).into_iter().next()
    }

    /// Removes a name from the table. The caller holds the lock of the list that contains the name.
    fn remove(&self, name: &str) {
        let entry = self.shard(name).lock().remove_entry(name);
        drop(entry);
    }
}

/// Shard hash of a name: FNV-1a (Fowler, Noll, Vo). If two names have the same hash, the only effect is that both names
/// use the same lock.
pub(super) fn hash(name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ hash >> 32
}
