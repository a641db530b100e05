//! The names of a host: each leads to one tenant at most.
//!
//! A tenant keeps a list of its own names, so that its end finds them; the table and that list change together under the
//! lock of the list. Nothing of the user's runs under a lock.
//!
//! Registering races the end of the tenant, which closes its mailbox first and releases its names then, if it is marked
//! as one that may have some. Whoever registers marks it, takes the list's lock and looks whether the mailbox is open. If
//! it is, its end comes later, sees the mark, and waits for the list; if it is not, nothing is registered. So a name
//! never outlives the end of its holder, and an end without names pays a load.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::platform::sync::{CachePadded, Mutex, planted};
use crate::process::state::Ref;

/// How many locks there are; a name hashes to one of them.
const SHARDS: usize = if cfg!(procession_loom) { 1 } else { 16 };

pub(crate) type Text = Cow<'static, str>;

/// The names of one tenant, on its own side.
pub(crate) type Own = Mutex<Vec<Text>>;

/// The table.
#[derive(Debug)]
pub(crate) struct Names<E: ?Sized> {
    shards: [CachePadded<Mutex<BTreeMap<Text, Ref<E>>>>; SHARDS],
}

/// Why a name was not given.
#[derive(Debug)]
pub(crate) enum Unclaimed<E: ?Sized, X> {
    /// This one has it.
    Taken(Ref<E>),
    /// Whoever was to have it can't.
    Refused(X),
}

/// It has ended.
#[derive(Debug)]
pub(crate) struct Gone;

impl<E: ?Sized> Names<E> {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| CachePadded(Mutex::new(BTreeMap::new()))) }
    }

    fn shard(&self, name: &str) -> &Mutex<BTreeMap<Text, Ref<E>>> {
        &self.shards[hash(name) as usize % SHARDS].0
    }

    /// Who has this name.
    pub(crate) fn get(&self, name: &str) -> Option<Ref<E>> {
        self.shard(name).lock().get(name).cloned()
    }

    /// Gives a name that is free to what `make` builds, under the lock: of several that claim it one builds. Its list is
    /// the caller's affair.
    ///
    /// # Errors
    /// It is taken, or `make` refused.
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

    /// Gives a name to a tenant that is there, is marked, and `lives`, which is asked under the locks. One that has it
    /// already keeps it.
    ///
    /// # Errors
    /// Another one has it, or the tenant has ended.
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

    /// Takes a name from the tenant that has it; false if it does not.
    pub(crate) fn unregister(&self, name: &str, own: &Own) -> bool {
        let mut own = own.lock();
        let Some(place) = own.iter().position(|owned| owned == name) else { return false };
        own.swap_remove(place);
        self.remove(name);
        true
    }

    /// Takes all its names from a tenant that has ended.
    pub(crate) fn release(&self, own: &Own) {
        let mut own = own.lock();
        for name in own.drain(..) {
            self.remove(&name);
        }
    }

    /// Of a name that is in the list of its tenant, which is locked.
    fn remove(&self, name: &str) {
        let entry = self.shard(name).lock().remove_entry(name);
        drop(entry);
    }
}

/// Which shard of a table a name goes to: FNV-1a (Fowler, Noll, Vo). Whoever finds names that collide finds names that
/// share a lock, and nothing else.
pub(super) fn hash(name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ hash >> 32
}
