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
/// No slot: the end of the free list.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Held<E: ?Sized> {
    Free {
        next: u32,
    },
    /// A pid was given out, what it names is being made.
    Reserved,
    Here(Arc<E>),
    Retired,
}

#[derive(Debug)]
struct Slot<E: ?Sized> {
    state: Mutex<(u32, Held<E>)>,
}

#[derive(Debug)]
struct Free {
    head: u32,
    /// Slots from here on were never used.
    fresh: u32,
}

#[derive(Debug)]
struct Shard<E: ?Sized> {
    chunks: [OnceLock<Box<[Slot<E>]>>; CHUNKS],
    free: Mutex<Free>,
    live: AtomicUsize,
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
            free: Mutex::new(Free { head: NONE, fresh: 0 }),
            live: AtomicUsize::new(0),
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

    fn slot_or_grow(&self, index: usize) -> Option<&Slot<E>> {
        let (chunk, offset) = Self::locate(index);
        let make = || (0..FIRST << chunk).map(|_| Slot { state: Mutex::new((1, Held::Free { next: NONE })) }).collect();
        self.chunks.get(chunk)?.get_or_init(make).get(offset)
    }

    /// A free slot, now reserved, and its generation. `None` when the table is full.
    fn reserve(&self) -> Option<(usize, u32)> {
        let mut free = self.free.lock();
        if free.head != NONE {
            let index = free.head as usize;
            let slot = self.slot(index).expect("a slot in the free list exists");
            let mut state = slot.state.lock();
            let Held::Free { next } = state.1 else { unreachable!("a slot in the free list is free") };
            free.head = next;
            state.1 = Held::Reserved;
            return Some((index, state.0));
        }
        let index = free.fresh as usize;
        let slot = self.slot_or_grow(index)?;
        free.fresh += 1;
        let mut state = slot.state.lock();
        state.1 = Held::Reserved;
        Some((index, state.0))
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
        let global = u32::try_from(index * self.shards.len() + which).ok()?;
        let pid = Pid::new(self.node, self.incarnation, global, generation);
        let entry = make(pid);
        shard.live.fetch_add(1, Ordering::Relaxed);
        shard.slot(index).expect("reserved just now").state.lock().1 = Held::Here(entry);
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
            (generation, Held::Here(entry)) if *generation == pid.generation() => Some(Arc::clone(entry)),
            #[cfg(procession_bug = "relay_ignores_generation")]
            (_, Held::Here(entry)) => Some(Arc::clone(entry)),
            _ => None,
        }
    }

    /// Forgets a pid, which names nothing from now on. `None` if it did not.
    pub(crate) fn remove(&self, pid: Pid) -> Option<Arc<E>> {
        if !self.is_here(pid) {
            return None;
        }
        let (shard, index) = self.split(pid);
        let slot = shard.slot(index)?;
        // The free list's lock first, as in `reserve`: the slot may be taken again as soon as it says that it is free.
        let mut free = shard.free.lock();
        let mut state = slot.state.lock();
        if state.0 != pid.generation() || !matches!(state.1, Held::Here(_)) {
            return None;
        }
        let next = if state.0 == LAST_GENERATION {
            Held::Retired
        } else {
            state.0 += 1;
            let next = free.head;
            free.head = index as u32;
            Held::Free { next }
        };
        let Held::Here(entry) = std::mem::replace(&mut state.1, next) else { unreachable!("checked above") };
        drop((state, free));
        shard.live.fetch_sub(1, Ordering::SeqCst);
        Some(entry)
    }

    /// How many pids name something.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.live.load(Ordering::SeqCst)).sum()
    }

    /// Everything that is named now. What comes or goes meanwhile may be missing or still be there.
    pub(crate) fn all(&self) -> Vec<Arc<E>> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            let fresh = shard.free.lock().fresh as usize;
            for index in 0..fresh {
                if let Some(slot) = shard.slot(index) {
                    if let Held::Here(entry) = &slot.state.lock().1 {
                        all.push(Arc::clone(entry));
                    }
                }
            }
        }
        all
    }
}
