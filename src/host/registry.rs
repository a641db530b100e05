//! The pid table: from a pid to what it names, by index, with the generation checked under the slot's own lock.
//!
//! Sharded, so that threads that spawn at once rarely meet; each shard grows by chunks that never move (four of 64 slots,
//! four of 128, four of 256 …), so that a look-up takes no lock but the slot's. A slot whose generations are used up is
//! retired.

pub(crate) mod groups;
pub(crate) mod names;
pub(crate) mod receiver;
pub(crate) mod target;

use std::fmt;

use crate::platform::prefetch::prefetch;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::tally::AtomicUsize as Tally;
use crate::platform::sync::{CachePadded, Lock, OnceLock, planted};
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Slots in each of a shard's first chunks.
const FIRST: usize = if cfg!(procession_loom) { 1 } else { 64 };
/// After so many chunks of one size they are twice as large: of many slots a fifth was never used, at most.
const ALIKE: usize = if cfg!(procession_loom) { 1 } else { 4 };
/// Indices have 32 bits.
const CHUNKS: usize = 26 * ALIKE;
/// The last generation of a slot; two bits under the model checker, so that wrap-around happens.
const LAST_GENERATION: u32 = if cfg!(procession_loom) { 3 } else { u32::MAX };

/// The part of a pid that is not the runtime's: an index into the table, and which of its tenants is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl LocalId {
    /// One that nothing ever has.
    pub(crate) const NOWHERE: Self = Self { index: u32::MAX, generation: 1 };
}

/// In one word, for those who only pass it on. No index is as large as those of the highest words.
impl From<LocalId> for u64 {
    #[inline]
    fn from(place: LocalId) -> Self {
        // As a pid has them.
        Self::from(place.generation) << 32 | Self::from(place.index)
    }
}

impl From<u64> for LocalId {
    fn from(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Which shard of the pid table this thread uses, of those that there are.
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

/// What the tenants of a table refer to, all of them to the same.
///
/// If all counted on one word, every spawn and every end would fight for its cache line: some thousands that
/// begin together share a count, and are counted together.
pub(crate) trait Lane: Sized {
    /// Some of one count.
    type CountedRefs: fmt::Debug;

    /// So many of the same, with a count of their own.
    fn stock(&self, count: u32) -> Self::CountedRefs;

    /// One of them, if they are of the same as this and there are some.
    fn take(&self, stock: &mut Self::CountedRefs) -> Option<Self>;
}

/// What a pid names. It knows its generation itself: an idle process pays for a slot too.
pub(crate) trait PidEntry {
    fn generation(&self) -> u32;
}

/// What an index names.
type Slot<E> = Lock<Option<Ref<E>>>;

/// How many tenants share the count of a lane.
const SHARE: u32 = 4096;

/// What whoever spawns takes from.
#[derive(Debug)]
struct Fresh<S> {
    /// Free slots of this shard, and the generations of their next tenants.
    free: Vec<LocalId>,
    /// Slots from here on were never used.
    next: u32,
    /// What the next tenants refer to.
    lane: Option<S>,
    /// No lane is kept here any more: it would keep the table itself.
    closed: bool,
}

/// What whoever ends elsewhere gives to.
#[derive(Debug)]
struct Returned {
    free: Lock<Vec<LocalId>>,
    /// How many those are, read without the lock to know whether it is worth taking.
    len: AtomicUsize,
}

#[derive(Debug)]
struct Shard<E: ?Sized, L: Lane> {
    chunks: [OnceLock<Box<[Slot<E>]>>; CHUNKS],
    /// Where slots are taken from …
    fresh: CachePadded<Lock<Fresh<L::CountedRefs>>>,
    /// … and where they are given back to by threads that take from another shard: apart, so that they meet those who take
    /// from this one only when these have run out.
    returned: CachePadded<Returned>,
    /// Slots whose generations are used up.
    retired: AtomicUsize,
}

/// The table of tenants `E`, which refer to `L`, which the table is part of.
#[derive(Debug)]
pub(crate) struct PidTable<E: ?Sized, L: Lane> {
    node: u32,
    incarnation: u32,
    shards: Box<[CachePadded<Shard<E, L>>]>,
    /// The number of shards is two to this.
    bits: u32,
}

/// In which chunk a slot is, and where there.
#[inline]
fn locate(index: usize) -> (usize, usize) {
    let doubled = (index / (FIRST * ALIKE) + 1).ilog2() as usize;
    let within = index - FIRST * ALIKE * ((1 << doubled) - 1);
    (doubled * ALIKE + (within >> doubled) / FIRST, within & (slots_of(doubled * ALIKE) - 1))
}

const fn slots_of(chunk: usize) -> usize {
    FIRST << (chunk / ALIKE)
}

impl<E: ?Sized + PidEntry, L: Lane> Shard<E, L> {
    fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            fresh: CachePadded(Lock::new(Fresh { free: Vec::new(), next: 0, lane: None, closed: false })),
            returned: CachePadded(Returned { free: Lock::new(Vec::new()), len: AtomicUsize::new(0) }),
            retired: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot<E>> {
        let (chunk, offset) = locate(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Makes room for a slot that was never used. False when the table is full.
    fn grow(&self, index: usize) -> bool {
        let (chunk, _) = locate(index);
        let make = || (0..slots_of(chunk)).map(|_| Lock::new(None)).collect();
        self.chunks.get(chunk).map(|chunk| chunk.get_or_init(make)).is_some()
    }

    /// Takes over what was given back from elsewhere, if nothing else is free.
    #[inline]
    fn fetch(&self, fresh: &mut Fresh<L::CountedRefs>) {
        if fresh.free.is_empty() && self.returned.len.load(Ordering::Relaxed) != 0 {
            let mut returned = self.returned.free.lock();
            std::mem::swap(&mut fresh.free, &mut returned);
            self.returned.len.store(0, Ordering::Relaxed);
        }
    }

    /// A slot that nobody else has now, and the lane of its tenant. `None` when the table is full.
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
        let mut stock = wanted.stock(if fresh.closed { 1 } else { SHARE });
        let lane = wanted.take(&mut stock).expect("there is one");
        let spent = if fresh.closed { Some(stock) } else { fresh.lane.replace(stock) };
        // It may be the last of a host, whose end is somebody's code.
        drop(fresh);
        drop(spent);
        Some((place, lane))
    }

    /// Gives a slot back, for the next of these generations.
    #[inline]
    fn give_back(&self, place: LocalId, here: bool) {
        if here {
            return self.fresh.lock().free.push(place);
        }
        let mut returned = self.returned.free.lock();
        returned.push(place);
        self.returned.len.store(returned.len(), Ordering::Relaxed);
    }

    /// How many slots are in use.
    fn len(&self) -> usize {
        let fresh = self.fresh.lock();
        let returned = self.returned.free.lock();
        fresh.next as usize - fresh.free.len() - returned.len() - self.retired.load(Ordering::Relaxed)
    }
}

impl<E: ?Sized + PidEntry, L: Lane> PidTable<E, L> {
    /// A table with at least `shards` shards.
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

    /// Whether a pid is of this runtime, in this incarnation.
    #[inline]
    pub(crate) fn is_here(&self, pid: Pid) -> bool {
        pid.is_of(self.node, self.incarnation)
    }

    #[inline]
    fn locally(&self, index: u32) -> (&Shard<E, L>, usize) {
        let index = index as usize;
        (&self.shards[index & (self.shards.len() - 1)], index >> self.bits)
    }

    /// The pid of a place in this table.
    #[inline]
    pub(crate) fn pid(&self, place: LocalId) -> Pid {
        Pid::new(self.node, self.incarnation, place.index, place.generation)
    }

    /// Takes a pid, has `make` build what it names, and publishes that. `hint` selects the shard, so that threads use
    /// different ones; `lane` is what it is to refer to.
    ///
    /// `None` when all pids are in use.
    #[inline]
    pub(crate) fn insert<T>(&self, hint: usize, lane: &L, make: impl FnOnce(LocalId, L) -> (Ref<E>, T)) -> Option<T> {
        let which = hint & (self.shards.len() - 1);
        let (place, lane) = self.shards[which].reserve(lane)?;
        let place = self.globally(place, which)?;
        let (entry, made) = make(place, lane);
        let (shard, index) = self.locally(place.index);
        *shard.slot(index).expect("it was reserved just now").lock() = Some(entry);
        Some(made)
    }

    /// A place of a shard as one of the table, if there is such a one.
    #[inline]
    fn globally(&self, place: LocalId, which: usize) -> Option<LocalId> {
        let index = u32::try_from((place.index as usize) << self.bits | which).ok()?;
        Some(LocalId { index, ..place })
    }

    /// Keeps no lane for later tenants any more.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut fresh = shard.fresh.lock();
            fresh.closed = true;
            let lane = fresh.lane.take();
            drop(fresh);
            drop(lane);
        }
    }

    /// Has the slot of a tenant fetched into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, place: LocalId) {
        let (shard, index) = self.locally(place.index);
        if let Some(slot) = shard.slot(index) {
            prefetch(slot, size_of_val(slot));
        }
    }

    /// What this pid names, if it lives.
    #[inline]
    pub(crate) fn get(&self, pid: Pid) -> Option<Ref<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.locally(pid.index());
        let slot = shard.slot(index)?.lock();
        match &*slot {
            Some(entry) if entry.generation() == pid.generation() || planted!("relay_ignores_generation") => {
                Some(entry.clone())
            }
            _ => None,
        }
    }

    /// Forgets a pid, which names nothing from now on. `None` if it did not. `hint` is what the caller
    /// [inserts](Self::insert) with.
    #[inline]
    pub(crate) fn remove(&self, hint: usize, pid: Pid) -> Option<Ref<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.locally(pid.index());
        let entry = shard.slot(index)?.lock().take_if(|entry| entry.generation() == pid.generation())?;
        // Nobody gets at the slot before it is in the list, and then under another generation.
        if pid.generation() == LAST_GENERATION && !planted!("relay_never_retires") {
            shard.retired.fetch_add(1, Ordering::Relaxed);
            return Some(entry);
        }
        let here = (hint ^ pid.index() as usize) & (self.shards.len() - 1) == 0;
        shard.give_back(LocalId { index: index as u32, generation: pid.generation() + 1 }, here);
        Some(entry)
    }

    /// How many pids name something.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Everything that is named now. What comes or goes meanwhile may be missing or still be there.
    pub(crate) fn all(&self) -> Vec<Ref<E>> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            let used = shard.fresh.lock().next as usize;
            for index in 0..used {
                if let Some(slot) = shard.slot(index)
                    && let Some(entry) = &*slot.lock()
                {
                    all.push(entry.clone());
                }
            }
        }
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
    fn threads_of_different_shards_never_get_one_slot_twice() {
        let table = Table::new(0, 0, 4);
        let (mut live, mut all, mut chance) = (Vec::new(), BTreeSet::new(), Rng::seeded(1));
        for round in 0..40_000 {
            let hint = chance.below(3);
            // The number of live tenants grows for 2,000 rounds, and then shrinks for 2,000.
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

    #[test]
    fn a_slot_that_another_thread_gives_back_is_used_again() {
        let table = Table::new(0, 0, 4);
        for _ in 0..10_000 {
            let pid = insert(&table, 0);
            // Of four shards the first one has each fourth index.
            assert!(pid.index() < 4 * 2, "slot {} for one at a time", pid.index());
            remove(&table, 1, pid);
        }
    }

    #[test]
    fn each_index_has_a_slot_of_its_own_and_few_are_never_used() {
        let (mut next, mut room) = ((0, 0), slots_of(0));
        for index in 0..100_000 {
            assert_eq!(locate(index), next);
            assert!(room - index <= index / ALIKE + FIRST, "{room} slots for {index}");
            next.1 += 1;
            if next.1 == slots_of(next.0) {
                next = (next.0 + 1, 0);
                room += slots_of(next.0);
            }
        }
        assert!(locate(u32::MAX as usize).0 < CHUNKS);
    }
}
