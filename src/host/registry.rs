//! The pid table finds the entry of a pid. The index of the pid selects the slot. The table checks the generation of
//! the pid under the lock of the slot.
//!
//! The table has several shards. Therefore threads that spawn at the same time rarely contend. Each shard grows by
//! chunks: four chunks of 64 slots, four chunks of 128 slots, four chunks of 256 slots, and so on. A chunk never moves.
//! Therefore a look-up takes only the lock of the slot. When a slot has used all its generations, the slot is retired:
//! no later entry uses the slot.

pub(crate) mod attached;
pub(crate) mod groups;
mod listing;
pub(crate) mod names;
pub(crate) mod receiver;
pub(crate) mod target;

use std::fmt;

use crate::platform::prefetch::prefetch;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::tally::AtomicUsize as Tally;
use crate::platform::sync::{CachePadded, Lock, OnceLock, planted, thread};
use crate::process::pid::{Pid, RuntimeId};
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Number of slots in the smallest chunk of a shard.
const FIRST: usize = if cfg!(procession_loom) { 1 } else { 64 };
/// Number of consecutive chunks with the same size. After this number of chunks, the size of a chunk doubles. In a
/// large table, at least four fifths of the allocated slots have been used.
const CHUNKS_PER_SIZE: usize = if cfg!(procession_loom) { 1 } else { 4 };
/// Number of chunks that cover all 32-bit indices.
const CHUNKS: usize = 26 * CHUNKS_PER_SIZE;
/// The last generation of a slot. Under the model checker this number is small. Therefore a test can use all
/// generations of a slot.
const LAST_GENERATION: u32 = if cfg!(procession_loom) { 3 } else { u32::MAX };

/// The part of a pid that distinguishes the processes of one runtime. A `LocalId` consists of an index into the
/// table, and of a generation of the slot at this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl LocalId {
    /// Id that no entry ever has.
    pub(crate) const NOWHERE: Self = Self { index: u32::MAX, generation: 1 };
}

/// Converts the id to one word, for code that only stores and compares ids. No entry has an index close to `u32::MAX`.
/// Therefore the highest words belong to no entry.
impl From<LocalId> for u64 {
    #[inline]
    fn from(place: LocalId) -> Self {
        // `Pid` uses the same layout for this word.
        Self::from(place.generation) << 32 | Self::from(place.index)
    }
}

impl From<u64> for LocalId {
    fn from(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Entry of the pid table. While this value exists, this thread holds the lock of the entry's slot. Therefore the entry
/// stays in the table.
pub(crate) struct Listed<'a, E: ?Sized>(&'a Ref<E>);

impl<'a, E: ?Sized> Listed<'a, E> {
    pub(crate) fn entry(&self) -> &'a Ref<E> {
        self.0
    }
}

/// Returns the number that selects the shard of this thread in the pid table. The table reduces this number modulo the
/// number of shards.
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

/// Calls the closure `f`, which reserves a pid under a lock. The reservation may release the last reference to a host.
/// In this case, the drop of the host is delayed until `f` has returned.
pub(crate) fn defer_drops_of_hosts<R>(f: impl FnOnce() -> R) -> R {
    Current::with(|current| current.deferred.call_locked(f))
}

/// The shared value to which all entries of a table refer.
///
/// If all entries used one reference count, each spawn and each exit would contend for the cache line of this count.
/// Therefore only a few thousand entries share one reference count. Each entry holds one reference to the shared value.
/// The initial value of a reference count already includes the references of all entries that will share the count.
/// Therefore a spawn usually does not change the count.
pub(crate) trait EntryHost: Sized {
    /// Stock of references. All references of a stock share one reference count, and are already included in this
    /// count.
    type CountedRefs: fmt::Debug + 'static;

    /// Creates a stock of references to the same value. The stock has its own reference count.
    fn counted_refs(&self, count: u32) -> Self::CountedRefs;

    /// Takes one reference out of `stock`. Returns `None` if `stock` is empty, or if the references in `stock` point to
    /// a value other than `self`.
    fn take(&self, stock: &mut Self::CountedRefs) -> Option<Self>;

    /// Returns a single reference if the shards must not store a stock of references to this value. Otherwise returns
    /// `None`. A stored stock keeps the value alive until the stock is replaced or the table is closed.
    fn without_stock(&self) -> Option<Self> {
        None
    }
}

/// Entry of the pid table. The generation is stored in the entry. If the generation were stored in the slot, each idle
/// process would need more memory.
pub(crate) trait PidEntry {
    fn generation(&self) -> u32;
}

/// Error: another thread holds a lock, and the caller does not wait for this lock.
#[derive(Debug)]
pub(crate) struct Busy;

/// A slot of the table. The slot contains the entry with the index of the slot, if there is such an entry.
type Slot<E> = Lock<Option<Ref<E>>>;

/// Maximum number of entries that share one reference count.
const REFERENCES_PER_COUNT: u32 = 4096;

/// Part of a shard. Spawning threads take their slots from this part.
#[derive(Debug)]
struct Fresh<S> {
    /// Free slots of this shard. Each slot is stored with the generation of its next entry.
    free: Vec<LocalId>,
    /// Index of the first slot that was never used.
    next: u32,
    /// Stock of references for the next entries.
    stock: Option<S>,
    /// True after the table was closed. A closed table has no stock of references, because a stock would keep the table
    /// alive.
    closed: bool,
}

/// Part of a shard. Threads of other shards return slots to this part.
#[derive(Debug)]
struct ReturnedSlots {
    free: Lock<Vec<LocalId>>,
    /// Length of `free`. A thread reads this length without the lock, and takes the lock only if the length is not 0.
    len: AtomicUsize,
}

#[derive(Debug)]
struct Shard<E: ?Sized, H: EntryHost> {
    chunks: [OnceLock<Box<[Slot<E>]>>; CHUNKS],
    /// The slots that spawning threads take.
    fresh: CachePadded<Lock<Fresh<H::CountedRefs>>>,
    /// The slots that threads of other shards return. These slots have a separate lock. A thread of this shard takes
    /// this lock only when `fresh` has no free slot. Therefore threads of different shards rarely contend for this
    /// lock.
    returned: CachePadded<ReturnedSlots>,
    /// Number of slots that have used all their generations.
    retired: AtomicUsize,
}

/// The pid table. `E` is the type of the entries in the table. The entries refer to a value of the type `H`, which
/// contains the table.
#[derive(Debug)]
pub(crate) struct PidTable<E: ?Sized, H: EntryHost> {
    runtime: RuntimeId,
    shards: Box<[CachePadded<Shard<E, H>>]>,
    /// Binary logarithm of the number of shards.
    bits: u32,
}

/// Converts the offset of a slot to the position of the slot in its chunk. Slots with consecutive offsets are in
/// different cache lines: the distance between their positions is at least eight slots. Processes that are spawned one
/// after the other often run at the same time, on different workers. If the slots of these processes were in one cache
/// line, the look-ups of these processes would move the cache line between the cores of the workers. (Benchmark `big`,
/// on two cores: this layout takes 0.95 of the CPU time that consecutive slots take.) Under loom, a chunk may have
/// fewer than 64 slots.
#[inline]
fn spread(offset: usize) -> usize {
    if FIRST < 64 { offset } else { offset & !63 | (offset & 7) << 3 | !offset >> 3 & 7 }
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

impl<E: ?Sized + PidEntry, H: EntryHost> Shard<E, H> {
    fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            fresh: CachePadded(Lock::new(Fresh { free: Vec::new(), next: 0, stock: None, closed: false })),
            returned: CachePadded(ReturnedSlots { free: Lock::new(Vec::new()), len: AtomicUsize::new(0) }),
            retired: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot<E>> {
        let (chunk, offset) = locate(index);
        self.chunks.get(chunk)?.get()?.get(spread(offset))
    }

    /// Allocates the chunk of a slot that was never used. Returns false if the table is full.
    fn grow(&self, index: usize) -> bool {
        let (chunk, _) = locate(index);
        let make = || (0..slots_of(chunk)).map(|_| Lock::new(None)).collect();
        self.chunks.get(chunk).map(|chunk| chunk.get_or_init(make)).is_some()
    }

    /// Moves the returned slots to `fresh` if `fresh` has no free slot.
    #[inline]
    fn fetch(&self, fresh: &mut Fresh<H::CountedRefs>) {
        if fresh.free.is_empty() && self.returned.len.load(Ordering::Relaxed) != 0 {
            let mut returned = self.returned.free.lock();
            std::mem::swap(&mut fresh.free, &mut returned);
            self.returned.len.store(0, Ordering::Relaxed);
        }
    }

    /// Reserves a slot, and takes a reference for the entry of this slot from the stock. Returns `None` if the table is
    /// full.
    fn reserve(&self, wanted: &H) -> Option<(LocalId, H)> {
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
        if let Some(host) = fresh.stock.as_mut().and_then(|stock| wanted.take(stock)) {
            return Some((place, host));
        }
        if let Some(host) = wanted.without_stock() {
            return Some((place, host));
        }
        let mut stock = wanted.counted_refs(if fresh.closed { 1 } else { REFERENCES_PER_COUNT });
        let host = wanted.take(&mut stock).expect("there is one");
        let spent = if fresh.closed { Some(stock) } else { fresh.stock.replace(stock) };
        // When the last reference to a host is dropped, user code runs. The value `spent` may contain the last
        // references to a host, so this function drops `spent` after the unlock. A spawn with a name reserves the pid
        // of the process under the lock of the name: see `defer_drops_of_hosts`.
        drop(fresh);
        if let Some(spent) = spent {
            Current::with(|current| current.deferred.call(|| drop(spent)));
        }
        Some((place, host))
    }

    /// Puts a free slot back into the shard. `place` contains the generation of the next entry in this slot.
    #[inline]
    fn give_back(&self, place: LocalId, here: bool) {
        if here {
            return self.fresh.lock().free.push(place);
        }
        let mut returned = self.returned.free.lock();
        returned.push(place);
        self.returned.len.store(returned.len(), Ordering::Relaxed);
    }

    /// Returns the number of slots in use.
    fn len(&self) -> usize {
        let fresh = self.fresh.lock();
        let returned = self.returned.free.lock();
        fresh.next as usize - fresh.free.len() - returned.len() - self.retired.load(Ordering::Relaxed)
    }
}

/// Calls `f` for the entry of a slot, under the lock of the slot. Each time `f` returns `Busy`, this function unlocks
/// the slot and calls `f` again.
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

impl<E: ?Sized + PidEntry, H: EntryHost> PidTable<E, H> {
    /// Creates a table. The number of shards is `shards`, limited to the range from 1 to 1024, and rounded up to a
    /// power of two.
    pub(crate) fn new(node: u32, incarnation: u32, shards: usize) -> Self {
        let shards = shards.clamp(1, 1024).next_power_of_two();
        let bits = shards.trailing_zeros();
        let runtime = RuntimeId::new(node, incarnation);
        Self { runtime, shards: (0..shards).map(|_| CachePadded(Shard::new())).collect(), bits }
    }

    pub(crate) fn node(&self) -> u32 {
        self.runtime.node()
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.runtime.incarnation()
    }

    /// Returns true if the pid belongs to this runtime, in this incarnation.
    #[inline]
    pub(crate) fn is_here(&self, pid: Pid) -> bool {
        pid.is_of(self.runtime)
    }

    #[inline]
    fn shard_and_index(&self, index: u32) -> (&Shard<E, H>, usize) {
        let index = index as usize;
        (&self.shards[index & (self.shards.len() - 1)], index >> self.bits)
    }

    /// Returns the pid of the entry with this id.
    #[inline]
    pub(crate) fn pid(&self, place: LocalId) -> Pid {
        Pid::in_runtime(self.runtime, place.index, place.generation)
    }

    /// Reserves a pid. The caller then builds the entry and passes the entry to [`publish`](Self::publish). `hint`
    /// selects the shard. Different threads pass different hints, so that the threads use different shards. `host` is
    /// the value to which the entry will refer.
    ///
    /// Returns `None` if all pids are in use.
    #[inline]
    pub(crate) fn reserve(&self, hint: usize, host: &H) -> Option<(LocalId, H)> {
        let which = hint & (self.shards.len() - 1);
        let (place, host) = self.shards[which].reserve(host)?;
        Some((self.place_in_table(place, which)?, host))
    }

    /// Publishes the entry of a pid that [`reserve`](Self::reserve) has reserved.
    #[inline(always)]
    pub(crate) fn publish(&self, place: LocalId, entry: Ref<E>) {
        let (shard, index) = self.shard_and_index(place.index);
        *shard.slot(index).expect("it was reserved just now").lock() = Some(entry);
    }

    /// Converts an id within a shard to an id within the table. Returns `None` if the index does not fit into 32 bits.
    #[inline]
    fn place_in_table(&self, place: LocalId, which: usize) -> Option<LocalId> {
        let index = u32::try_from((place.index as usize) << self.bits | which).ok()?;
        Some(LocalId { index, ..place })
    }

    /// Drops the references that the shards store for new entries. A closed table stores no such references any more.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut fresh = shard.fresh.lock();
            fresh.closed = true;
            let stock = fresh.stock.take();
            drop(fresh);
            // The stock may contain the last references to a host, and the drop of a host runs user code.
            if let Some(stock) = stock {
                Current::with(|current| current.deferred.call(|| drop(stock)));
            }
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

    /// Returns the entry of this pid, if there is one.
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

    /// Removes the entry of a pid and returns the entry. Returns `None` if the pid has no entry. `hint` is the value
    /// that the caller passes to [`reserve`](Self::reserve).
    #[inline]
    pub(crate) fn remove(&self, hint: usize, pid: Pid) -> Option<Ref<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.shard_and_index(pid.index());
        let entry = shard.slot(index)?.lock().take_if(|entry| entry.generation() == pid.generation())?;
        // The slot is empty now, but no other thread can reserve the slot yet. The code below puts the slot back into
        // the shard, with the next generation of the slot.
        if pid.generation() == LAST_GENERATION && !planted!("relay_never_retires") {
            shard.retired.fetch_add(1, Ordering::Relaxed);
            return Some(entry);
        }
        let here = (hint ^ pid.index() as usize) & (self.shards.len() - 1) == 0;
        shard.give_back(LocalId { index: index as u32, generation: pid.generation() + 1 }, here);
        Some(entry)
    }

    /// Returns the number of pids that have an entry.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Returns the memory of the table in bytes. The memory of the entries is not included.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |shard: &CachePadded<Shard<E, H>>| {
            let chunks = shard.chunks.iter().filter_map(OnceLock::get);
            let slots: usize = chunks.map(|chunk| size_of_val(&**chunk)).sum();
            let free = shard.fresh.lock().free.capacity() + shard.returned.free.lock().capacity();
            size_of_val(shard) + slots + free * size_of::<LocalId>()
        };
        self.shards.iter().map(bytes).sum()
    }

    /// Calls `f` for the entry of a pid, under the lock of the entry's slot. Returns `None` if the pid has no entry.
    ///
    /// `f` only borrows the entry. Therefore the caller never drops the last reference to the entry. `f` must be short.
    /// `f` must not wait for a lock whose holder may look up pids. While `f` returns [`Busy`], this function calls `f`
    /// again, and unlocks the slot between the calls.
    pub(crate) fn with<R>(&self, pid: Pid, mut f: impl FnMut(&Ref<E>) -> Result<R, Busy>) -> Option<R> {
        self.with_listed(pid, |listed| f(listed.entry()))
    }

    /// Calls `f` for the entry of a pid, as [`with`](Self::with) does. The argument of `f` proves that the entry is in
    /// the table.
    pub(crate) fn with_listed<R>(&self, pid: Pid, mut f: impl FnMut(Listed<'_, E>) -> Result<R, Busy>) -> Option<R> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.shard_and_index(pid.index());
        let slot = shard.slot(index)?;
        let read = |entry: &Ref<E>| (entry.generation() == pid.generation()).then(|| f(Listed(entry))).transpose();
        try_slot(slot, read).flatten()
    }

    /// Calls `f` for each entry of the table, as [`with`](Self::with) does. If an entry is inserted or removed during
    /// the call, `f` may or may not be called for this entry. The thread holds at most one lock of the table at a time.
    pub(crate) fn visit(&self, mut f: impl FnMut(&Ref<E>) -> Result<(), Busy>) {
        self.visit_listed(|listed| f(listed.entry()));
    }

    /// Calls `f` for each entry of the table, as [`visit`](Self::visit) does. The argument of `f` proves that the entry
    /// is in the table.
    pub(crate) fn visit_listed(&self, mut f: impl FnMut(Listed<'_, E>) -> Result<(), Busy>) {
        for shard in &self.shards {
            let used = shard.fresh.lock().next as usize;
            for slot in (0..used).filter_map(|index| shard.slot(index)) {
                try_slot(slot, |entry| f(Listed(entry)));
            }
        }
    }

    /// Returns the pid of the entry with this index.
    pub(crate) fn pid_at(&self, index: u32) -> Option<Pid> {
        let (shard, at) = self.shard_and_index(index);
        let generation = try_slot(shard.slot(at)?, |entry| Ok(entry.generation()))?;
        Some(self.pid(LocalId { index, generation }))
    }

    /// Returns all entries of the table. If an entry is inserted or removed during the call, the result may or may not
    /// contain this entry.
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

    impl EntryHost for Anywhere {
        type CountedRefs = ();

        fn counted_refs(&self, _: u32) {}

        fn take(&self, (): &mut ()) -> Option<Self> {
            Some(Self)
        }
    }

    type Table = PidTable<RefCounted<LocalId>, Anywhere>;

    fn insert(table: &Table, hint: usize) -> Pid {
        let (place, _) = table.reserve(hint, &Anywhere).expect("there is room");
        table.publish(place, Ref::counted(place));
        table.pid(place)
    }

    fn remove(table: &Table, hint: usize, pid: Pid) {
        assert!(table.remove(hint, pid).is_some(), "{pid} names nothing");
        assert!(table.get(pid).is_none());
    }

    #[test]
    fn slots_with_consecutive_offsets_are_in_different_cache_lines() {
        let positions: BTreeSet<_> = (0..128).map(spread).collect();
        assert!(positions.into_iter().eq(0..128), "each slot has its own position");
        for offset in 0..127 {
            assert!(spread(offset).abs_diff(spread(offset + 1)) * size_of::<Slot<u8>>() >= 64, "{offset}");
        }
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

    /// 9.2c: the walk takes no reference to an entry. Therefore the walk never drops the last reference. The drop of an
    /// entry may run user code, but never happens on the thread of the walk.
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

    /// 9.2c: while a walk waits for a busy lock of a process, the walk does not hold the lock of the slot.
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
            // The table has four shards. The indices of the first shard are the multiples of four.
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
