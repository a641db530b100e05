//! The pid table: finds the entry of a pid by its index, and checks the generation under the lock of the slot.
//!
//! The table is sharded, so that threads that spawn at the same time rarely contend. Each shard grows by chunks that
//! never move (four of 64 slots, four of 128, four of 256 …), so a look-up takes only the lock of the slot. A slot
//! whose generations are exhausted is retired.

pub(crate) mod attached;
pub(crate) mod groups;
pub(crate) mod names;
pub(crate) mod receiver;
pub(crate) mod target;

use std::fmt;

use crate::platform::prefetch::prefetch;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::tally::AtomicUsize as Tally;
use crate::platform::sync::{CachePadded, Lock, OnceLock, planted, thread};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Number of slots in each of the smallest chunks of a shard.
const FIRST: usize = if cfg!(procession_loom) { 1 } else { 64 };
/// Number of consecutive chunks of one size. The next chunks are twice as large. In a large table, at most a fifth of
/// the allocated slots has never been used.
const CHUNKS_PER_SIZE: usize = if cfg!(procession_loom) { 1 } else { 4 };
/// Number of chunks that 32-bit indices need.
const CHUNKS: usize = 26 * CHUNKS_PER_SIZE;
/// The last generation of a slot. Under the model checker this number is small, so that a test can exhaust the
/// generations of a slot.
const LAST_GENERATION: u32 = if cfg!(procession_loom) { 3 } else { u32::MAX };

/// The part of a pid that distinguishes the processes of one runtime: an index into the table, and a generation of that
/// slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl LocalId {
    /// Id that no entry ever has.
    pub(crate) const NOWHERE: Self = Self { index: u32::MAX, generation: 1 };
}

/// Converts the id to one word, for code that only passes the id on. No entry has an index close to `u32::MAX`, so the
/// highest words denote no entry.
impl From<LocalId> for u64 {
    #[inline]
    fn from(place: LocalId) -> Self {
        // The word has the same layout as in `Pid`.
        Self::from(place.generation) << 32 | Self::from(place.index)
    }
}

impl From<u64> for LocalId {
    fn from(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Number that selects the shard of this thread in the pid table. The table reduces this number modulo the number of
/// shards.
#[inline]
pub(crate) fn own() -> usize {
    static THREADS: Tally = Tally::new(0);
    Current::with(|current| {
        if current.shard.get() == usize::MAX {
            current.shard.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        current.shard.get()
    })
}

/// The shared value that all entries of a table refer to.
///
/// If all entries used one reference count, every spawn and every exit would contend for its cache line. Therefore
/// several thousand entries share one count, and the references of these entries are counted in advance.
pub(crate) trait Lane: Sized {
    /// Pre-counted references that share one count.
    type CountedRefs: fmt::Debug;

    /// Creates pre-counted references to the same value, with a separate reference count.
    fn stock(&self, count: u32) -> Self::CountedRefs;

    /// Takes one pre-counted reference. Returns `None` if the references refer to another value than `self`, or if no
    /// reference is left.
    fn take(&self, stock: &mut Self::CountedRefs) -> Option<Self>;
}

/// Entry of the pid table. The entry stores its own generation. A generation in the slot would cost more memory for
/// each idle process.
pub(crate) trait PidEntry {
    fn generation(&self) -> u32;
}

/// Another thread holds a lock that the caller does not wait for.
#[derive(Debug)]
pub(crate) struct Busy;

/// The entry at an index, if there is one.
type Slot<E> = Lock<Option<Ref<E>>>;

/// Number of entries that share one reference count.
const REFERENCES_PER_COUNT: u32 = 4096;

/// The part of a shard from which spawning threads take slots.
#[derive(Debug)]
struct Fresh<S> {
    /// Free slots of this shard. Each slot is stored with the generation of its next entry.
    free: Vec<LocalId>,
    /// Index of the first slot that was never used.
    next: u32,
    /// Pre-counted references for the next entries.
    lane: Option<S>,
    /// Set when the table is closed. A closed table stores no pre-counted references, because these references would
    /// keep the table alive.
    closed: bool,
}

/// The part of a shard to which threads of other shards return slots.
#[derive(Debug)]
struct ReturnedSlots {
    free: Lock<Vec<LocalId>>,
    /// Length of `free`. A thread reads this length without the lock, to decide whether it must take the lock.
    len: AtomicUsize,
}

#[derive(Debug)]
struct Shard<E: ?Sized, L: Lane> {
    chunks: [OnceLock<Box<[Slot<E>]>>; CHUNKS],
    /// The slots that spawning threads take.
    fresh: CachePadded<Lock<Fresh<L::CountedRefs>>>,
    /// The slots that threads of other shards return. These slots have a separate lock. Therefore the threads of other
    /// shards contend with the threads of this shard only when `fresh` has no free slots.
    returned: CachePadded<ReturnedSlots>,
    /// Number of slots whose generations are exhausted.
    retired: AtomicUsize,
}

/// The pid table with entries `E`. The entries refer to `L`, which contains the table.
#[derive(Debug)]
pub(crate) struct PidTable<E: ?Sized, L: Lane> {
    node: u32,
    incarnation: u32,
    shards: Box<[CachePadded<Shard<E, L>>]>,
    /// Binary logarithm of the number of shards.
    bits: u32,
}

/// Returns the index of the chunk that contains a slot, and the offset of the slot in this chunk.
#[inline]
fn locate(index: usize) -> (usize, usize) {
    let doubled = (index / (FIRST * CHUNKS_PER_SIZE) + 1).ilog2() as usize;
    let within = index - FIRST * CHUNKS_PER_SIZE * ((1 << doubled) - 1);
    (doubled * CHUNKS_PER_SIZE + (within >> doubled) / FIRST, within & (slots_of(doubled * CHUNKS_PER_SIZE) - 1))
}

const fn slots_of(chunk: usize) -> usize {
    FIRST << (chunk / CHUNKS_PER_SIZE)
}

impl<E: ?Sized + PidEntry, L: Lane> Shard<E, L> {
    fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            fresh: CachePadded(Lock::new(Fresh { free: Vec::new(), next: 0, lane: None, closed: false })),
            returned: CachePadded(ReturnedSlots { free: Lock::new(Vec::new()), len: AtomicUsize::new(0) }),
            retired: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot<E>> {
        let (chunk, offset) = locate(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Allocates the chunk of a slot that was never used. Returns false if the table is full.
    fn grow(&self, index: usize) -> bool {
        let (chunk, _) = locate(index);
        let make = || (0..slots_of(chunk)).map(|_| Lock::new(None)).collect();
        self.chunks.get(chunk).map(|chunk| chunk.get_or_init(make)).is_some()
    }

    /// Takes over the slots that other threads returned, if no other slot is free.
    #[inline]
    fn fetch(&self, fresh: &mut Fresh<L::CountedRefs>) {
        if fresh.free.is_empty() && self.returned.len.load(Ordering::Relaxed) != 0 {
            let mut returned = self.returned.free.lock();
            std::mem::swap(&mut fresh.free, &mut returned);
            self.returned.len.store(0, Ordering::Relaxed);
        }
    }

    /// Reserves a slot, and takes a pre-counted reference for its entry. Returns `None` if the table is full.
    fn reserve(&self, wanted: &L) -> Option<(LocalId, L)> {
        let mut fresh = self.fresh.lock();
        self.fetch(&mut fresh);
        let place = match fresh.free.pop() {
            Some(free) => free,
            None if !self.grow(fresh.next as usize) => return None,
            None => {
                let index = fresh.next;
                if planted!("relay_unlocks_early") {
                    drop(fresh);
                    fresh = self.fresh.lock();
                }
                fresh.next = index + 1;
                LocalId { index, generation: 1 }
            }
        };
        if let Some(lane) = fresh.lane.as_mut().and_then(|stock| wanted.take(stock)) {
            return Some((place, lane));
        }
        let mut stock = wanted.stock(if fresh.closed { 1 } else { REFERENCES_PER_COUNT });
        let lane = wanted.take(&mut stock).expect("there is one");
        let spent = if fresh.closed { Some(stock) } else { fresh.lane.replace(stock) };
        // The dropped references may be the last references to a host, and the drop of a host runs user code. Therefore
        // the references are dropped after the unlock.
        drop(fresh);
        drop(spent);
        Some((place, lane))
    }

    /// Puts a free slot back into the shard, together with the generation of the slot's next entry.
    #[inline]
    fn give_back(&self, place: LocalId, here: bool) {
        if here {
            return self.fresh.lock().free.push(place);
        }
        let mut returned = self.returned.free.lock();
        returned.push(place);
        self.returned.len.store(returned.len(), Ordering::Relaxed);
    }

    /// Number of slots in use.
    fn len(&self) -> usize {
        let fresh = self.fresh.lock();
        let returned = self.returned.free.lock();
        fresh.next as usize - fresh.free.len() - returned.len() - self.retired.load(Ordering::Relaxed)
    }
}

/// Calls `f` for the entry of a slot, under the lock of the slot. If `f` fails, unlocks the slot and tries again.
fn try_slot<E: ?Sized, R>(slot: &Slot<E>, mut f: impl FnMut(&Ref<E>) -> Result<R, Busy>) -> Option<R> {
    loop {
        let entry = slot.lock();
        if let Ok(result) = f(entry.as_ref()?) {
            return Some(result);
        }
        drop(entry);
        thread::yield_now();
    }
}

impl<E: ?Sized + PidEntry, L: Lane> PidTable<E, L> {
    /// Creates a table with at least `shards` shards: the next power of two, from 1 to 1024.
    pub(crate) fn new(node: u32, incarnation: u32, shards: usize) -> Self {
        let shards = shards.clamp(1, 1024).next_power_of_two();
        let bits = shards.trailing_zeros();
        Self { node, incarnation, shards: (0..shards).map(|_| CachePadded(Shard::new())).collect(), bits }
    }

    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Whether a pid belongs to this runtime, in this incarnation.
    #[inline]
    pub(crate) fn is_here(&self, pid: Pid) -> bool {
        pid.is_of(self.node, self.incarnation)
    }

    #[inline]
    fn shard_and_index(&self, index: u32) -> (&Shard<E, L>, usize) {
        let index = index as usize;
        (&self.shards[index & (self.shards.len() - 1)], index >> self.bits)
    }

    /// Pid of the entry with this id.
    #[inline]
    pub(crate) fn pid(&self, place: LocalId) -> Pid {
        Pid::new(self.node, self.incarnation, place.index, place.generation)
    }

    /// Reserves a pid, builds the entry with `make`, and publishes the entry. `hint` selects the shard, so that threads
    /// use different shards. `lane` is the value that the entry refers to.
    ///
    /// Returns `None` if all pids are in use.
    #[inline]
    pub(crate) fn insert<T>(&self, hint: usize, lane: &L, make: impl FnOnce(LocalId, L) -> (Ref<E>, T)) -> Option<T> {
        let which = hint & (self.shards.len() - 1);
        let (place, lane) = self.shards[which].reserve(lane)?;
        let place = self.place_in_table(place, which)?;
        let (entry, made) = make(place, lane);
        let (shard, index) = self.shard_and_index(place.index);
        *shard.slot(index).expect("it was reserved just now").lock() = Some(entry);
        Some(made)
    }

    /// Converts an id within a shard to an id within the table. Returns `None` if the index does not fit into 32 bits.
    #[inline]
    fn place_in_table(&self, place: LocalId, which: usize) -> Option<LocalId> {
        let index = u32::try_from((place.index as usize) << self.bits | which).ok()?;
        Some(LocalId { index, ..place })
    }

    /// Drops the pre-counted references. After this call, the table stores no pre-counted references.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut fresh = shard.fresh.lock();
            fresh.closed = true;
            let lane = fresh.lane.take();
            drop(fresh);
            drop(lane);
        }
    }

    /// Prefetches the slot of an entry into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, place: LocalId) {
        let (shard, index) = self.shard_and_index(place.index);
        if let Some(slot) = shard.slot(index) {
            prefetch(slot, size_of_val(slot));
        }
    }

    /// The entry of this pid, if there is one.
    #[inline]
    pub(crate) fn get(&self, pid: Pid) -> Option<Ref<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.shard_and_index(pid.index());
        let slot = shard.slot(index)?.lock();
        match &*slot {
            Some(entry) if entry.generation() == pid.generation() || planted!("relay_ignores_generation") => {
                Some(entry.clone())
            }
            _ => None,
        }
    }

    /// Removes the entry of a pid and returns it. Returns `None` if the pid has no entry. `hint` is the value that the
    /// caller passes to [`insert`](Self::insert).
    #[inline]
    pub(crate) fn remove(&self, hint: usize, pid: Pid) -> Option<Ref<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.shard_and_index(pid.index());
        let entry = shard.slot(index)?.lock().take_if(|entry| entry.generation() == pid.generation())?;
        // No other thread can reserve the slot until the code below puts the slot back with the next generation.
        if pid.generation() == LAST_GENERATION && !planted!("relay_never_retires") {
            shard.retired.fetch_add(1, Ordering::Relaxed);
            return Some(entry);
        }
        let here = (hint ^ pid.index() as usize) & (self.shards.len() - 1) == 0;
        shard.give_back(LocalId { index: index as u32, generation: pid.generation() + 1 }, here);
        Some(entry)
    }

    /// Number of pids that have an entry.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Memory of the table in bytes, without its entries.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |shard: &CachePadded<Shard<E, L>>| {
            let chunks = shard.chunks.iter().filter_map(OnceLock::get);
            let slots: usize = chunks.map(|chunk| size_of_val(&**chunk)).sum();
            let free = shard.fresh.lock().free.capacity() + shard.returned.free.lock().capacity();
            size_of_val(shard) + slots + free * size_of::<LocalId>()
        };
        self.shards.iter().map(bytes).sum()
    }

    /// Calls `f` for the entry of a pid, under the lock of its slot. Returns `None` if the pid has no entry. Because the
    /// entry is borrowed, the caller never drops the last reference to it. `f` must be short, and must not wait for a
    /// lock whose holder may look up pids. While `f` returns [`Busy`], this function calls `f` again. Between the
    /// calls, this thread does not hold the lock.
    pub(crate) fn with<R>(&self, pid: Pid, mut f: impl FnMut(&Ref<E>) -> Result<R, Busy>) -> Option<R> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.shard_and_index(pid.index());
        let slot = shard.slot(index)?;
        let read = |entry: &Ref<E>| (entry.generation() == pid.generation()).then(|| f(entry)).transpose();
        try_slot(slot, read).flatten()
    }

    /// Calls `f` for each entry of the table, as [`with`](Self::with) does. If an entry is inserted or removed during
    /// the call, `f` may or may not be called for this entry. The thread holds at most one lock of the table at a time.
    pub(crate) fn visit(&self, mut f: impl FnMut(&Ref<E>) -> Result<(), Busy>) {
        for shard in &self.shards {
            let used = shard.fresh.lock().next as usize;
            for slot in (0..used).filter_map(|index| shard.slot(index)) {
                try_slot(slot, &mut f);
            }
        }
    }

    /// All entries of the table. If an entry is inserted or removed during the call, the result may or may not contain
    /// this entry.
    pub(crate) fn all(&self) -> Vec<Ref<E>> {
        let mut all = Vec::with_capacity(self.len());
        self.visit(|entry| {
            all.push(entry.clone());
            Ok(())
        });
        all
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::platform::random::Rng;
    use crate::process::state::RefCounted;

    impl PidEntry for RefCounted<LocalId> {
        fn generation(&self) -> u32 {
            self.generation
        }
    }

    struct Anywhere;

    impl Lane for Anywhere {
        type CountedRefs = ();

        fn stock(&self, _: u32) {}

        fn take(&self, (): &mut ()) -> Option<Self> {
            Some(Self)
        }
    }

    type Table = PidTable<RefCounted<LocalId>, Anywhere>;

    fn insert(table: &Table, hint: usize) -> Pid {
        let make = |place, _| (Ref::counted(place), table.pid(place));
        table.insert(hint, &Anywhere, make).expect("there is room")
    }

    fn remove(table: &Table, hint: usize, pid: Pid) {
        assert!(table.remove(hint, pid).is_some(), "{pid} names nothing");
        assert!(table.get(pid).is_none());
    }

    #[test]
    fn threads_of_different_shards_never_get_the_same_slot() {
        let table = Table::new(0, 0, 4);
        let (mut live, mut all, mut chance) = (Vec::new(), BTreeSet::new(), Rng::seeded(1));
        for round in 0..40_000 {
            let hint = chance.below(3);
            // The number of entries grows for 2,000 rounds, and then shrinks for 2,000 rounds.
            if live.is_empty() || chance.below(10) < if round % 4_000 < 2_000 { 6 } else { 4 } {
                let pid = insert(&table, hint);
                assert!(all.insert(pid), "{pid} was there before");
                live.push(pid);
            } else {
                remove(&table, hint, live.swap_remove(chance.below(live.len())));
            }
        }
        let indices: BTreeSet<_> = live.iter().map(|pid| pid.index()).collect();
        assert_eq!(indices.len(), live.len());
        assert!(live.iter().all(|&pid| table.get(pid).is_some_and(|place| table.pid(**place) == pid)));
        assert_eq!(table.len(), live.len());
    }

    /// 9.2c: the walk takes no reference. Therefore the walk never drops the last reference to an entry, and the drop of
    /// an entry never runs user code on the thread of the walk.
    #[test]
    fn a_walk_visits_each_entry_once_and_takes_no_reference() {
        let table = Table::new(0, 0, 4);
        let mut pids: Vec<Pid> = (0..1_000).map(|hint| insert(&table, hint)).collect();
        let removed = pids.split_off(600);
        removed.iter().for_each(|&pid| remove(&table, 1, pid));
        let mut visited = Vec::new();
        table.visit(|entry| {
            assert_eq!(entry.count(), 1, "only the table refers to the entry");
            visited.push(table.pid(***entry));
            Ok(())
        });
        visited.sort_unstable();
        pids.sort_unstable();
        assert_eq!(visited, pids);
        assert_eq!(table.with(pids[0], |entry| Ok(entry.count())), Some(1));
        assert_eq!(table.with(removed[0], |_| Ok(())), None);
    }

    /// 9.2c: a walk that finds a lock of a process busy does not hold the lock of the slot while it waits.
    #[test]
    fn a_walk_unlocks_the_slot_of_a_busy_process() {
        let table = Table::new(0, 0, 1);
        let pid = insert(&table, 0);
        let mut attempts = 0;
        let result = table.with(pid, |entry| {
            attempts += 1;
            if attempts < 3 { Err(Busy) } else { Ok(entry.index) }
        });
        assert_eq!((result, attempts), (Some(pid.index()), 3));
        let mut is_first = true;
        thread::scope(|scope| {
            let table = &table;
            let result = table.with(pid, |_| {
                if std::mem::take(&mut is_first) {
                    scope.spawn(move || remove(table, 0, pid));
                }
                Err::<(), _>(Busy)
            });
            assert_eq!(result, None, "the walk continues until the process has exited");
        });
    }

    #[test]
    fn a_slot_that_another_thread_returned_is_reused() {
        let table = Table::new(0, 0, 4);
        for _ in 0..10_000 {
            let pid = insert(&table, 0);
            // The indices of the first of four shards are the multiples of four.
            assert!(pid.index() < 4 * 2, "slot {} for one at a time", pid.index());
            remove(&table, 1, pid);
        }
    }

    #[test]
    fn each_index_has_its_own_slot_and_few_slots_are_unused() {
        let (mut next, mut room) = ((0, 0), slots_of(0));
        for index in 0..100_000 {
            assert_eq!(locate(index), next);
            assert!(room - index <= index / CHUNKS_PER_SIZE + FIRST, "{room} slots for {index}");
            next.1 += 1;
            if next.1 == slots_of(next.0) {
                next = (next.0 + 1, 0);
                room += slots_of(next.0);
            }
        }
        assert!(locate(u32::MAX as usize).0 < CHUNKS);
    }
}
