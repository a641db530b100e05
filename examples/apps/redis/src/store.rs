//! The data of one shard: a table of keys, and an index of the keys that expire. The methods take the current time as
//! an argument. This file depends on no process and on no protocol.

mod set;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use procession::Instant;

pub(crate) use set::{Random, Set};

pub(crate) type Bytes = Box<[u8]>;

/// A collection with at most this capacity keeps its memory.
const SMALL: usize = 32;

/// Value of a key. The three collections are boxed, so that an entry fits into one cache line.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "a box takes one word of the entry, a queue takes four")]
pub(crate) enum Value {
    String(Vec<u8>),
    List(Box<VecDeque<Bytes>>),
    Hash(Box<HashMap<Bytes, Bytes, FixedState>>),
    Set(Box<Set>),
}

impl Value {
    /// Returns the name of the value's type. The command `TYPE` returns this name.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
        }
    }

    /// Returns true if the value is a collection without elements. Redis deletes the key of an empty collection.
    fn is_empty(&self) -> bool {
        match self {
            Self::String(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Hash(hash) => hash.is_empty(),
            Self::Set(set) => set.len() == 0,
        }
    }

    /// Returns memory to the system if a collection uses only a small part of its memory.
    fn shrink(&mut self) {
        match self {
            Self::String(_) => {}
            Self::List(list) => {
                if let Some(capacity) = smaller_capacity(list.len(), list.capacity()) {
                    list.shrink_to(capacity);
                }
            }
            Self::Hash(hash) => {
                if let Some(capacity) = smaller_capacity(hash.len(), hash.capacity()) {
                    hash.shrink_to(capacity);
                }
            }
            Self::Set(set) => set.shrink(),
        }
    }
}

/// If a collection has a capacity above [`SMALL`] and uses less than an eighth of this capacity, returns the new
/// capacity of the collection. Otherwise returns `None`.
///
/// The new capacity is twice the number of elements. So the collection grows only after the number of elements has at
/// least doubled. The collection shrinks again only after half of the elements were removed. Therefore the average cost
/// of an operation is constant.
fn smaller_capacity(len: usize, capacity: usize) -> Option<usize> {
    (capacity > SMALL && len < capacity / 8).then_some(len * 2)
}

/// Type that a value can have. Some methods of [`Store`] are generic over this trait.
pub(crate) trait Kind: Sized {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn make(hasher: &FixedState) -> Value;
}

impl Kind for Vec<u8> {
    fn of(value: &mut Value) -> Option<&mut Self> {
        if let Value::String(it) = value { Some(it) } else { None }
    }
    fn make(_: &FixedState) -> Value {
        Value::String(Self::new())
    }
}

impl Kind for VecDeque<Bytes> {
    fn of(value: &mut Value) -> Option<&mut Self> {
        if let Value::List(it) = value { Some(it) } else { None }
    }
    fn make(_: &FixedState) -> Value {
        Value::List(Box::default())
    }
}

impl Kind for HashMap<Bytes, Bytes, FixedState> {
    fn of(value: &mut Value) -> Option<&mut Self> {
        if let Value::Hash(it) = value { Some(it) } else { None }
    }
    fn make(hasher: &FixedState) -> Value {
        Value::Hash(Box::new(Self::with_hasher(hasher.clone())))
    }
}

impl Kind for Set {
    fn of(value: &mut Value) -> Option<&mut Self> {
        if let Value::Set(it) = value { Some(it) } else { None }
    }
    fn make(hasher: &FixedState) -> Value {
        Value::Set(Box::new(Self::new(hasher.clone())))
    }
}

/// Error: the command expects a value of a different type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongType;

/// A key and its hash. The connection computes the hash, because the hash selects the shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
}

#[derive(Debug)]
struct Entry {
    key: Bytes,
    value: Value,
    expiry: Option<Expiry>,
}

/// The time at which a key expires, in milliseconds since the store was made. The field `number` makes each entry of
/// the index unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Expiry {
    at: u64,
    number: u64,
}

/// The keys of a shard, with their values.
#[derive(Debug)]
pub(crate) struct Store {
    hasher: FixedState,
    begun: Instant,
    table: HashTable<Entry>,
    /// Index of the keys that expire, ordered by time. The value of an entry is the hash of the key.
    expiries: BTreeMap<Expiry, u64>,
    /// Number of the next [`Expiry`].
    next: u64,
    random: Random,
}

impl Store {
    /// Makes an empty store. The connections must also use this `hasher` to hash the keys of the commands. The random
    /// numbers of the store depend on `seed`.
    pub(crate) fn new(hasher: FixedState, now: Instant, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { hasher, begun: now, table: HashTable::new(), expiries: BTreeMap::new(), next: 0, random }
    }

    /// Returns a generator of random numbers. Each call returns a different generator.
    pub(crate) fn random(&mut self) -> Random {
        Random::new(self.random.number())
    }

    /// Returns the number of keys. The number includes each expired key that was not removed yet.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of keys that expire.
    pub(crate) fn expiring(&self) -> usize {
        self.expiries.len()
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self) {
        self.table = HashTable::new();
        self.expiries.clear();
    }

    fn ms(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_millis() as u64
    }

    /// Returns the entry of a key. If the key has expired, removes the key and returns `None`.
    fn find(&mut self, key: Key<'_>, now: Instant) -> Option<&mut Entry> {
        if !self.expiries.is_empty() {
            let ms = self.ms(now);
            let expiry = self.table.find(key.hash, |entry| *entry.key == *key.bytes)?.expiry;
            if expiry.is_some_and(|expiry| expiry.at < ms) {
                self.remove(key);
                return None;
            }
        }
        self.table.find_mut(key.hash, |entry| *entry.key == *key.bytes)
    }

    pub(crate) fn value(&mut self, key: Key<'_>, now: Instant) -> Option<&mut Value> {
        self.find(key, now).map(|entry| &mut entry.value)
    }

    /// Returns the value of a key, or `None` if the key does not exist.
    pub(crate) fn get<T: Kind>(&mut self, key: Key<'_>, now: Instant) -> Result<Option<&mut T>, WrongType> {
        self.value(key, now).map(|value| T::of(value).ok_or(WrongType)).transpose()
    }

    /// Returns the value of a key. If the key does not exist, inserts an empty value, which the caller must fill.
    pub(crate) fn get_or_make<T: Kind>(&mut self, key: Key<'_>, now: Instant) -> Result<&mut T, WrongType> {
        if self.find(key, now).is_none() {
            let value = T::make(&self.hasher);
            self.insert(key, value);
        }
        self.get(key, now).map(|value| value.expect("it was made above"))
    }

    /// Inserts a key that does not exist.
    fn insert(&mut self, key: Key<'_>, value: Value) {
        let entry = Entry { key: key.bytes.into(), value, expiry: None };
        self.table.insert_unique(key.hash, entry, |entry| hash(&self.hasher, &entry.key));
    }

    /// Sets a key to a string. Unless `keep_ttl` is set, the key no longer expires.
    pub(crate) fn set(&mut self, key: Key<'_>, now: Instant, bytes: &[u8], keep_ttl: bool) {
        let Some(entry) = self.find(key, now) else {
            return self.insert(key, Value::String(bytes.to_vec()));
        };
        match &mut entry.value {
            // The new value reuses the memory of the old value, unless most of this memory would be unused.
            Value::String(old) if old.capacity() / 4 <= bytes.len().max(64) => {
                old.clear();
                old.extend_from_slice(bytes);
            }
            other => *other = Value::String(bytes.to_vec()),
        }
        if !keep_ttl && let Some(expiry) = entry.expiry.take() {
            self.expiries.remove(&expiry);
        }
    }

    /// Removes a key, even if the key has expired. Returns the value of the key.
    fn remove(&mut self, key: Key<'_>) -> Option<Value> {
        let entry = self.table.find_entry(key.hash, |entry| *entry.key == *key.bytes).ok()?;
        let (Entry { value, expiry, .. }, _) = entry.remove();
        if let Some(expiry) = expiry {
            self.expiries.remove(&expiry);
        }
        self.shrink();
        Some(value)
    }

    /// Returns memory to the system if the table uses only a small part of its memory.
    fn shrink(&mut self) {
        if let Some(capacity) = smaller_capacity(self.table.len(), self.table.capacity()) {
            self.table.shrink_to(capacity, |entry| hash(&self.hasher, &entry.key));
        }
    }

    /// Removes a key. Returns true if the key existed and had not expired.
    pub(crate) fn delete(&mut self, key: Key<'_>, now: Instant) -> bool {
        self.find(key, now).is_some() && self.remove(key).is_some()
    }

    /// Updates a key after elements were removed from its value. A collection with few elements returns memory to the
    /// system. If the collection has no elements, the key is removed.
    pub(crate) fn trim(&mut self, key: Key<'_>, now: Instant) {
        match self.value(key, now) {
            Some(value) if value.is_empty() => _ = self.remove(key),
            Some(value) => value.shrink(),
            None => {}
        }
    }

    // ---- Expiry

    /// Returns the number of milliseconds until a key expires. Returns `None` if the key does not exist, and
    /// `Some(None)` if the key never expires.
    pub(crate) fn ttl(&mut self, key: Key<'_>, now: Instant) -> Option<Option<u64>> {
        let ms = self.ms(now);
        self.find(key, now).map(|entry| entry.expiry.map(|expiry| expiry.at.saturating_sub(ms)))
    }

    /// Sets the time after which an existing key expires. With `None`, the key no longer expires.
    pub(crate) fn expire(&mut self, key: Key<'_>, now: Instant, after_ms: Option<u64>) {
        let expiry = after_ms.map(|after| Expiry { at: self.ms(now).saturating_add(after), number: self.next });
        self.next += 1;
        let Some(entry) = self.find(key, now) else { return };
        let former = mem::replace(&mut entry.expiry, expiry);
        if let Some(former) = former {
            self.expiries.remove(&former);
        }
        if let Some(expiry) = expiry {
            self.expiries.insert(expiry, key.hash);
        }
    }

    /// Returns the time at which the next key expires. A key still exists during its last millisecond, `Expiry::at`.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let (expiry, _) = self.expiries.first_key_value()?;
        Some(self.begun + Duration::from_millis(expiry.at.saturating_add(1)))
    }

    /// Removes expired keys, but at most `most` keys.
    pub(crate) fn remove_expired(&mut self, now: Instant, most: usize) {
        let ms = self.ms(now);
        for _ in 0..most {
            let Some(first) = self.expiries.first_entry().filter(|first| first.key().at < ms) else { break };
            let (expiry, hash) = first.remove_entry();
            if let Ok(entry) = self.table.find_entry(hash, |entry| entry.expiry == Some(expiry)) {
                entry.remove();
            }
        }
        self.shrink();
    }
}

/// Hashes a key.
pub(crate) fn hash(hasher: &FixedState, key: &[u8]) -> u64 {
    use std::hash::BuildHasher;
    hasher.hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use procession::Simulation;

    fn key(bytes: &[u8]) -> Key<'_> {
        Key { bytes, hash: hash(&FixedState::with_seed(7), bytes) }
    }

    #[test]
    fn an_entry_fits_into_a_cache_line() {
        assert!(size_of::<Entry>() <= 64, "{}", size_of::<Entry>());
    }

    #[test]
    fn a_key_expires_after_its_last_millisecond() {
        let begun = Simulation::new(0).now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut store = Store::new(FixedState::with_seed(7), begun, 1);
        store.set(key(b"a"), begun, b"1", false);
        store.expire(key(b"a"), begun, Some(10));
        assert_eq!(store.next_expiry(), Some(at(11)));
        assert_eq!(store.ttl(key(b"a"), at(10)), Some(Some(0)));
        assert_eq!(store.ttl(key(b"a"), at(11)), None);
        assert_eq!((store.len(), store.expiring()), (0, 0));
    }

    #[test]
    fn expired_keys_are_removed_in_bounded_pieces() {
        let begun = Simulation::new(0).now();
        let mut store = Store::new(FixedState::with_seed(7), begun, 1);
        for n in 0..100_u8 {
            store.set(key(&[n]), begun, b"", false);
            store.expire(key(&[n]), begun, Some(5));
        }
        store.set(key(b"stays"), begun, b"", false);
        let late = begun + Duration::from_millis(6);
        store.remove_expired(late, 60);
        assert_eq!((store.len(), store.expiring()), (41, 40));
        store.remove_expired(late, 60);
        assert_eq!((store.len(), store.expiring(), store.next_expiry()), (1, 0, None));
    }

    /// There are three ways to remove a key: a command, the search for an expired key, and the timer of the shard.
    #[test]
    fn the_table_of_keys_shrinks_after_most_keys_were_removed() {
        const COUNT: u32 = 10_000;
        let begun = Simulation::new(0).now();
        let late = begun + Duration::from_millis(6);
        let removals: [&dyn Fn(&mut Store, u32); 3] = [
            &|store, n| assert!(store.delete(key(&n.to_be_bytes()), begun)),
            &|store, n| assert!(store.value(key(&n.to_be_bytes()), late).is_none()),
            &|store, _| store.remove_expired(late, 1),
        ];
        for removal in removals {
            let mut store = Store::new(FixedState::with_seed(7), begun, 1);
            for n in 0..COUNT {
                store.set(key(&n.to_be_bytes()), begun, b"", false);
                if n >= 10 {
                    store.expire(key(&n.to_be_bytes()), begun, Some(5));
                }
            }
            let (mut capacity, mut shrunk) = (store.table.capacity(), 0);
            for n in 10..COUNT {
                removal(&mut store, n);
                // A removal can also reduce the capacity by one, although the table keeps its size.
                shrunk += u32::from(store.table.capacity() < capacity / 2);
                capacity = store.table.capacity();
            }
            assert_eq!(store.len(), 10);
            assert!(capacity <= 100, "{capacity}");
            assert!((1..=10).contains(&shrunk), "{shrunk}");
            for n in 0..10_u32 {
                assert!(store.value(key(&n.to_be_bytes()), late).is_some());
            }
        }
    }

    #[test]
    fn a_collection_shrinks_after_most_elements_were_removed() {
        const COUNT: u32 = 10_000;
        let now = Simulation::new(0).now();
        let mut store = Store::new(FixedState::with_seed(7), now, 1);
        let bytes = |n: u32| Bytes::from(n.to_be_bytes());
        for n in 0..COUNT {
            store.get_or_make::<VecDeque<Bytes>>(key(b"list"), now).expect("a list").push_back(bytes(n));
            store.get_or_make::<HashMap<_, _, _>>(key(b"hash"), now).expect("a hash").insert(bytes(n), bytes(n));
            store.get_or_make::<Set>(key(b"set"), now).expect("a set").insert(&bytes(n));
        }
        for n in 0..COUNT - 10 {
            store.get_or_make::<VecDeque<Bytes>>(key(b"list"), now).expect("a list").pop_front();
            store.get_or_make::<HashMap<_, Bytes, _>>(key(b"hash"), now).expect("a hash").remove(&bytes(n));
            store.get_or_make::<Set>(key(b"set"), now).expect("a set").remove(&bytes(n));
            [b"list", b"hash", &b"set"[..]].into_iter().for_each(|name| store.trim(key(name), now));
        }
        let list = store.get_or_make::<VecDeque<Bytes>>(key(b"list"), now).expect("a list");
        assert!(list.len() == 10 && list.capacity() <= 100, "{}", list.capacity());
        let hash = store.get_or_make::<HashMap<_, Bytes, _>>(key(b"hash"), now).expect("a hash");
        assert!(hash.len() == 10 && hash.capacity() <= 100, "{}", hash.capacity());
        assert!((COUNT - 10..COUNT).all(|n| hash.contains_key(&bytes(n))));
        let set = store.get_or_make::<Set>(key(b"set"), now).expect("a set");
        assert!(set.len() == 10 && set.capacity() <= 100, "{}", set.capacity());
    }
}
