//! The pid table: from a pid to what it names, by index, with the generation checked under the slot's own lock.
//!
//! Sharded, so that threads that spawn at once rarely meet; each shard grows by chunks that never move (64, 128, 256 …
//! slots), so that a look-up takes no lock but the slot's. A slot whose generations are used up is retired.

use crate::process::pid::Pid;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, OnceLock};

/// Slots in a shard's first chunk; each later chunk is twice as large as the one before.
const FIRST: usize = if cfg!(procession_loom) { 1 } else { 64 };
const CHUNKS: usize = 26;
/// The last generation of a slot; two bits under the model checker, so that wrap-around happens.
const LAST_GENERATION: u32 = if cfg!(procession_loom) { 3 } else { u32::MAX };

/// What an index names, and in which generation.
#[derive(Debug)]
struct Slot<E: ?Sized> {
    state: Mutex<(u32, Option<Arc<E>>)>,
}

/// A slot that is free, and the generation of its next tenant.
type Free = (u32, u32);

/// What whoever spawns takes from.
#[derive(Debug)]
struct Fresh {
    free: Vec<Free>,
    /// Slots from here on were never used.
    next: u32,
}

/// What whoever ends gives to.
#[derive(Debug)]
struct Returned {
    free: Mutex<Vec<Free>>,
    /// How many those are, read without the lock to know whether it is worth taking.
    len: AtomicUsize,
}

#[derive(Debug)]
struct Shard<E: ?Sized> {
    chunks: [OnceLock<Box<[Slot<E>]>>; CHUNKS],
    /// Where slots are taken from …
    fresh: CachePadded<Mutex<Fresh>>,
    /// … and where they are given back to: apart, so that those who spawn and those who end meet only when the first
    /// have run out.
    returned: CachePadded<Returned>,
    /// Slots whose generations are used up.
    retired: AtomicUsize,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Relay<E: ?Sized> {
    node: u32,
    incarnation: u32,
    /// A power of two.
    shards: Box<[CachePadded<Shard<E>>]>,
}

impl<E: ?Sized> Shard<E> {
    fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            fresh: CachePadded(Mutex::new(Fresh { free: Vec::new(), next: 0 })),
            returned: CachePadded(Returned { free: Mutex::new(Vec::new()), len: AtomicUsize::new(0) }),
            retired: AtomicUsize::new(0),
        }
    }

    fn locate(index: usize) -> (usize, usize) {
        let chunk = (index / FIRST + 1).ilog2() as usize;
        (chunk, index - FIRST * ((1 << chunk) - 1))
    }

    fn slot(&self, index: usize) -> Option<&Slot<E>> {
        let (chunk, offset) = Self::locate(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Makes room for a slot that was never used. False when the table is full.
    fn grow(&self, index: usize) -> bool {
        let (chunk, _) = Self::locate(index);
        let make = || (0..FIRST << chunk).map(|_| Slot { state: Mutex::new((0, None)) }).collect();
        self.chunks.get(chunk).map(|chunk| chunk.get_or_init(make)).is_some()
    }

    /// A slot that nobody else has now. `None` when the table is full.
    fn reserve(&self) -> Option<Free> {
        let mut fresh = self.fresh.lock();
        if fresh.free.is_empty() && self.returned.len.load(Ordering::Relaxed) != 0 {
            let mut returned = self.returned.free.lock();
            std::mem::swap(&mut fresh.free, &mut returned);
            self.returned.len.store(0, Ordering::Relaxed);
        }
        if let Some(free) = fresh.free.pop() {
            return Some(free);
        }
        if !self.grow(fresh.next as usize) {
            return None;
        }
        let index = fresh.next;
        #[cfg(procession_bug = "relay_unlocks_early")]
        let mut fresh = {
            drop(fresh);
            self.fresh.lock()
        };
        fresh.next = index + 1;
        Some((index, 1))
    }

    /// How many slots are in use.
    fn len(&self) -> usize {
        let fresh = self.fresh.lock();
        let returned = self.returned.free.lock();
        fresh.next as usize - fresh.free.len() - returned.len() - self.retired.load(Ordering::Relaxed)
    }
}

impl<E: ?Sized> Relay<E> {
    /// A table with at least `shards` shards.
    pub(crate) fn new(node: u32, incarnation: u32, shards: usize) -> Self {
        let shards = shards.clamp(1, 1024).next_power_of_two();
        Self { node, incarnation, shards: (0..shards).map(|_| CachePadded(Shard::new())).collect() }
    }

    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    /// Whether a pid is of this runtime, in this incarnation.
    pub(crate) fn is_here(&self, pid: Pid) -> bool {
        pid.node() == self.node && pid.incarnation() == self.incarnation
    }

    fn split(&self, pid: Pid) -> (&Shard<E>, usize) {
        let index = pid.index() as usize;
        (&self.shards[index & (self.shards.len() - 1)], index / self.shards.len())
    }

    /// Takes a pid, has `make` build what it names, and publishes that. `hint` spreads callers over the shards.
    ///
    /// `None` when all pids are in use.
    pub(crate) fn insert(&self, hint: usize, make: impl FnOnce(Pid) -> Arc<E>) -> Option<Pid> {
        let which = hint & (self.shards.len() - 1);
        let shard = &self.shards[which];
        let (index, generation) = shard.reserve()?;
        let global = u32::try_from(index as usize * self.shards.len() + which).ok()?;
        let pid = Pid::new(self.node, self.incarnation, global, generation);
        let entry = make(pid);
        *shard.slot(index as usize).expect("it was reserved just now").state.lock() = (generation, Some(entry));
        Some(pid)
    }

    /// What this pid names, if it lives.
    #[inline]
    pub(crate) fn get(&self, pid: Pid) -> Option<Arc<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.split(pid);
        let state = shard.slot(index)?.state.lock();
        match &*state {
            #[cfg(not(procession_bug = "relay_ignores_generation"))]
            (generation, Some(entry)) if *generation == pid.generation() => Some(Arc::clone(entry)),
            #[cfg(procession_bug = "relay_ignores_generation")]
            (_, Some(entry)) => Some(Arc::clone(entry)),
            _ => None,
        }
    }

    /// Forgets a pid, which names nothing from now on. `None` if it did not.
    pub(crate) fn remove(&self, pid: Pid) -> Option<Arc<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.split(pid);
        let mut state = shard.slot(index)?.state.lock();
        if state.0 != pid.generation() {
            return None;
        }
        let entry = state.1.take()?;
        drop(state);
        // Nobody gets at the slot before it is in the list, and then under another generation.
        if pid.generation() == LAST_GENERATION && cfg!(not(procession_bug = "relay_never_retires")) {
            shard.retired.fetch_add(1, Ordering::Relaxed);
        } else {
            let mut returned = shard.returned.free.lock();
            returned.push((index as u32, pid.generation() + 1));
            shard.returned.len.store(returned.len(), Ordering::Relaxed);
        }
        Some(entry)
    }

    /// How many pids name something.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Everything that is named now. What comes or goes meanwhile may be missing or still be there.
    pub(crate) fn all(&self) -> Vec<Arc<E>> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            let used = shard.fresh.lock().next as usize;
            for index in 0..used {
                if let Some(slot) = shard.slot(index)
                    && let Some(entry) = &slot.state.lock().1
                {
                    all.push(Arc::clone(entry));
                }
            }
        }
        all
    }
}
