//! Memory blocks for processes, for the shared state of calls, and for payloads that are too large for inline storage.
//! Each block consists of whole cache lines. Each thread caches blocks, and exchanges groups of blocks with a global
//! depot.
//!
//! This file has unsafe code, because a special allocator makes a spawn cheaper. The allocation of memory takes most of
//! the time of a spawn. A block is often allocated on one thread and freed on another thread, and the allocators of
//! most systems are slow in this case. With this allocator, a spawn on two cores is a third cheaper (bench `spawn`).
//!
//! The design is the magazine layer of Bonwick and Adams ("Magazines and Vmem", USENIX 2001). A magazine is a group of
//! blocks. Each thread has two magazines for each block size, and at least one of these two magazines is full or empty.
//! Therefore, a thread accesses the depot only after many allocations in a row, or after many frees in a row. The depot
//! stores a bounded amount of memory in magazines. All further blocks return to the [slabs](slab) from which they were
//! cut, and the slabs return to the global allocator.
//!
//! Under `--cfg procession_plain_memory` and under the model checkers, all memory comes from the global allocator. The
//! flag `procession_plain_memory` is for sanitizers. A sanitizer detects a use after free only if the program returns
//! the freed memory to the global allocator.

#![allow(unsafe_code)]

pub(crate) mod slab;
pub(crate) mod slab_index;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::platform::alloc::slab::{Blocks, LINE, PREFETCHED, Slabs};
use crate::platform::sync::TallyLock;

/// Number of block sizes, in steps of one cache line. Larger blocks come from the global allocator.
const SIZES: usize = 16;
/// Number of blocks in a full magazine.
const ROUNDS: usize = 32;
/// Maximum number of bytes that the depot of one block size stores in magazines.
const KEPT: usize = 1 << 20;

/// Whether blocks are cached.
const KEEPS: bool = !cfg!(any(procession_plain_memory, procession_loom, procession_shuttle));

/// The free blocks of one size, except the free blocks in the caches of the threads.
struct Depot {
    /// Full magazines.
    magazines: Vec<Blocks>,
    slabs: Slabs,
}

/// The depots, indexed by block size.
static DEPOTS: [TallyLock<Depot>; SIZES] = {
    let mut depots = [const { TallyLock::new(Depot::of(0)) }; SIZES];
    let mut size = 1;
    while size < SIZES {
        // A constant must not run a destructor. The replaced depot is empty, so `forget` leaks nothing.
        std::mem::forget(std::mem::replace(&mut depots[size], TallyLock::new(Depot::of(size))));
        size += 1;
    }
    depots
};

/// Returns the size in bytes of a block of this size class.
#[inline]
const fn bytes(size: usize) -> usize {
    (size + 1) * LINE
}

impl Depot {
    const fn of(size: usize) -> Self {
        Self { magazines: Vec::new(), slabs: Slabs::new(bytes(size)) }
    }

    fn draw(&mut self) -> Blocks {
        self.magazines.pop().unwrap_or_else(|| self.slabs.draw(ROUNDS))
    }

    /// Takes back a magazine.
    ///
    /// # Safety
    /// The blocks have this size, were drawn from this depot, and belong to the caller.
    unsafe fn store(&mut self, blocks: Blocks, size: usize) {
        if blocks.count() == ROUNDS && self.magazines.len() < KEPT / (ROUNDS * bytes(size)) {
            self.magazines.push(blocks);
        } else {
            // SAFETY: `Slabs::give_back` needs blocks that were drawn from these slabs. By contract the blocks came
            // from this depot, and this depot draws all its blocks from these slabs.
            unsafe { self.slabs.give_back(blocks) };
        }
    }
}

/// The cached blocks of one thread for one block size. Because of the alignment, a value of this type lies in one cache
/// line.
#[repr(align(32))]
struct Shelf {
    loaded: Blocks,
    /// A magazine that is either full or empty.
    spare: Blocks,
}

impl Shelf {
    const EMPTY: Self = Self { loaded: Blocks::NONE, spare: Blocks::NONE };

    #[cold]
    fn reload(&mut self, size: usize) -> Option<NonNull<u8>> {
        std::mem::swap(&mut self.loaded, &mut self.spare);
        if self.loaded.count() == 0 {
            self.loaded = DEPOTS[size].with(Depot::draw);
        }
        self.loaded.pop()
    }

    /// Makes room in `loaded`. The full magazine becomes the new `spare`. The previous `spare` moves to the depot if
    /// the previous `spare` is not empty.
    #[cold]
    fn unload(&mut self, size: usize) {
        let full = std::mem::replace(&mut self.spare, self.loaded);
        self.loaded = Blocks::NONE;
        if full.count() != 0 {
            // SAFETY: `store` needs blocks of this size from this depot. Each block in this cache was drawn from the
            // depot by `reload`, or was freed with a layout of this size. If a block was freed with a layout of this
            // size, `take` had drawn the block from this depot. The magazine was moved out of the cache, so no other
            // code uses the blocks of the magazine.
            DEPOTS[size].with(|depot| unsafe { depot.store(full, size) });
        }
    }
}

/// The caches of one thread, indexed by size.
struct ThreadCaches([Shelf; SIZES]);

impl Drop for ThreadCaches {
    fn drop(&mut self) {
        for (size, shelf) in self.0.iter().enumerate() {
            for blocks in [shelf.loaded, shelf.spare] {
                // SAFETY: `store` needs blocks of this size from this depot, and each cache contains only such blocks.
                // The thread is exiting, so no other code uses its caches.
                DEPOTS[size].with(|depot| unsafe { depot.store(blocks, size) });
            }
        }
    }
}

std::thread_local! {
    static THREAD_CACHES: RefCell<ThreadCaches> = const { RefCell::new(ThreadCaches([const { Shelf::EMPTY }; SIZES])) };
}

/// A value in a cached block. A `Kept` is like a `Box`, but the memory of a `Kept` comes from this allocator.
pub(crate) struct Kept<T>(NonNull<T>);

// SAFETY: a `Kept` is the only owner of its value, like a `Box`. Therefore, a `Kept` may be sent if its value may be
// sent. The memory of the block belongs to no thread, so the block may be freed on any thread.
unsafe impl<T: Send> Send for Kept<T> {}
// SAFETY: a shared `Kept` gives access only to `&T`, and `T: Sync` allows this access.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> Kept<T> {
    const LAYOUT: Layout = Layout::new::<T>();

    pub(crate) fn new(value: T) -> Self {
        let at = if Self::LAYOUT.size() == 0 {
            NonNull::dangling()
        } else {
            // SAFETY: `take` needs a layout whose size is not 0, and this branch excludes the size 0.
            unsafe { take(Self::LAYOUT) }.cast::<T>()
        };
        // SAFETY: `write` needs a pointer that is aligned and valid for writes. The block has the layout of a `T` and
        // has no other owner. For a type of size 0, a dangling aligned pointer is valid.
        unsafe { at.write(value) };
        Self(at)
    }

    pub(crate) fn into_inner(self) -> T {
        let block = Block(ManuallyDrop::new(self).0);
        // SAFETY: `read` needs a valid, aligned pointer to an initialized value, and `new` wrote this value. The value
        // is not used again at its old place, because `self` is not dropped and `Block` frees only the memory.
        unsafe { block.0.read() }
    }

    pub(crate) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).0
    }

    /// Takes back ownership of a value that [`into_raw`](Self::into_raw) released.
    ///
    /// # Safety
    /// `into_raw` of a `Kept<T>` returned `at`, and `at` was not passed to this function since then.
    pub(crate) unsafe fn from_raw(at: NonNull<T>) -> Self {
        Self(at)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // The guard frees the memory even if the drop of the value panics.
        let block = Block(self.0);
        // SAFETY: `drop_in_place` needs a valid, aligned pointer to an initialized value, and `new` wrote this value.
        // `self` is the only owner of the value and is being dropped, so the value is not used again.
        unsafe { block.0.drop_in_place() };
    }
}

/// Guard that frees a block. The value of the block is moved out or dropped before the guard is dropped.
struct Block<T>(NonNull<T>);

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        if Kept::<T>::LAYOUT.size() != 0 {
            // SAFETY: `give_back` needs a block that was taken for this layout and belongs to the caller. `Kept::new`
            // took the block for this layout. The value was moved out or dropped, so the block has no other user.
            unsafe { give_back(self.0.cast(), Kept::<T>::LAYOUT) };
        }
    }
}

/// Returns the number of bytes of all slabs. This number includes the blocks in use and the free blocks. Blocks from
/// the global allocator are not included.
pub(crate) fn bytes_held() -> usize {
    DEPOTS.iter().map(|depot| depot.with(|depot| depot.slabs.bytes())).sum()
}

/// Returns the block size for this layout. If blocks of this layout are not cached, returns `None`.
#[inline]
const fn size_of_layout(layout: Layout) -> Option<usize> {
    let size = layout.size().div_ceil(LINE).wrapping_sub(1);
    if KEEPS && layout.align() <= LINE && size < SIZES { Some(size) } else { None }
}

/// Allocates memory for this layout. If there is no memory, aborts the program, like `Box`.
///
/// # Safety
/// The size of the layout is not 0.
#[inline]
pub(crate) unsafe fn take(layout: Layout) -> NonNull<u8> {
    let Some(size) = size_of_layout(layout) else {
        // SAFETY: `alloc` needs a layout whose size is not 0. The caller guarantees that the size of the layout is not
        // 0.
        let block = unsafe { alloc(layout) };
        return NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout));
    };
    let block = THREAD_CACHES.try_with(|shelves| {
        let shelf = &mut shelves.borrow_mut().0[size];
        let block = shelf.loaded.pop().or_else(|| shelf.reload(size));
        // A burst of spawns takes blocks that are not in the cache of the processor. The next block is prefetched now,
        // so that the cache misses of this block overlap with the work of the present spawn (bench `spawn-inside`).
        if bytes(size) >= PREFETCHED {
            shelf.loaded.prefetch_first();
        }
        block
    });
    match block {
        Ok(Some(block)) => block,
        _ => take_from_depot(size),
    }
}

/// Takes a single block from the depot. While a thread exits, its caches may no longer exist. In this case, [`take`]
/// calls this function.
#[cold]
fn take_from_depot(size: usize) -> NonNull<u8> {
    DEPOTS[size].with(|depot| depot.slabs.draw(1)).pop().expect("`draw` returns at least one block")
}

/// Frees a block.
///
/// # Safety
/// The block was returned by [`take`] for this layout, and belongs to the caller.
#[inline]
pub(crate) unsafe fn give_back(block: NonNull<u8>, layout: Layout) {
    let Some(size) = size_of_layout(layout) else {
        // SAFETY: `dealloc` needs a block of the global allocator and the layout of its allocation. The layout has no
        // block size, so `take` got the block from `alloc` with this layout. The caller owns the block.
        return unsafe { dealloc(block.as_ptr(), layout) };
    };
    let kept = THREAD_CACHES.try_with(|shelves| {
        let shelf = &mut shelves.borrow_mut().0[size];
        if shelf.loaded.count() == ROUNDS {
            shelf.unload(size);
        }
        // SAFETY: the caller of `push` must own the block, and the block must have the block size of this list. The
        // caller owns the block. `take` allocated the block with this layout, so the block has the block size of this
        // list.
        unsafe { shelf.loaded.push(block) };
    });
    if kept.is_err() {
        // While the thread exits, its caches may no longer exist. In this case, the depot stores the block.
        let mut alone = Blocks::NONE;
        // SAFETY: `push` needs a block of the list's size that belongs to the caller. The caller owns the block. The
        // list is empty, so this block determines the size of the list.
        unsafe { alone.push(block) };
        // SAFETY: `store` needs blocks of this size from this depot. The list contains one block, and `take` drew this
        // block from this depot, possibly through the cache of a thread. The caller owns the block, and `alone` is not
        // used again.
        DEPOTS[size].with(|depot| unsafe { depot.store(alone, size) });
    }
}

#[cfg(all(test, not(any(procession_plain_memory, procession_loom, procession_shuttle))))]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::platform::sync::{Arc, thread};

    /// Layout of the largest block size. No other test uses this size.
    const LARGEST: Layout = match Layout::from_size_align(SIZES * LINE, 8) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    fn obtain() -> NonNull<u8> {
        // SAFETY: `take` needs a size that is not 0, and `LARGEST` has 1024 bytes.
        unsafe { take(LARGEST) }
    }

    fn give(block: NonNull<u8>) {
        // SAFETY: the tests obtain each block with `take` for this layout, and free each block once.
        unsafe { give_back(block, LARGEST) };
    }

    #[test]
    fn every_layout_fits_into_its_block() {
        for wanted in 1..=SIZES * LINE {
            let layout = Layout::from_size_align(wanted, 8).expect("it is small");
            let size = size_of_layout(layout).expect("it is small");
            assert!((wanted..wanted + LINE).contains(&bytes(size)));
        }
        let beyond = [(SIZES * LINE + 1, 8), (64, 2 * LINE), (0, 1)];
        assert!(beyond.iter().all(|&(bytes, align)| {
            size_of_layout(Layout::from_size_align(bytes, align).expect("it is a layout")).is_none()
        }));
    }

    /// All checks of the depot are in one test, because parallel tests would use the same depot.
    #[test]
    fn blocks_are_reused_and_the_depot_is_bounded() {
        let block = obtain();
        give(block);
        assert_eq!(obtain(), block, "the last one that was given back is warm");
        give(block);

        // One thread allocates blocks and another thread frees these blocks, repeatedly. A block must never have two
        // owners.
        for _ in 0..if cfg!(miri) { 10 } else { 100 } {
            let taken: Vec<usize> = (0..ROUNDS + 1).map(|_| obtain().as_ptr() as usize).collect();
            for &address in &taken {
                let block = NonNull::new(address as *mut usize).expect("it was taken");
                // SAFETY: the block was taken above and was not freed. The block has room for a word, and is aligned to
                // a cache line.
                unsafe { block.write(address) };
            }
            let gives = move || {
                for address in taken {
                    let block = NonNull::new(address as *mut usize).expect("it was taken");
                    // SAFETY: the word was written above, and the block was not freed since then.
                    assert_eq!(unsafe { block.read() }, address, "the block has a second owner");
                    give(block.cast());
                }
            };
            thread::scope(|threads| threads.spawn(gives).join()).expect("no block had a second owner");
        }

        let kept = || DEPOTS[SIZES - 1].with(|depot| depot.magazines.len());
        let most = KEPT / (ROUNDS * SIZES * LINE);
        let all: BTreeSet<_> = (0..(most + 4) * ROUNDS).map(|_| obtain()).collect();
        assert_eq!(all.len(), (most + 4) * ROUNDS, "a block was given out twice");
        assert_eq!(kept(), 0);
        all.into_iter().for_each(give);
        assert_eq!(kept(), most);
    }

    #[test]
    fn a_value_is_dropped_once_and_its_block_is_reused() {
        struct Panics(#[expect(dead_code, reason = "dropped")] Arc<()>, [u64; 40]);
        impl Drop for Panics {
            fn drop(&mut self) {
                assert_eq!(self.1[0], 0, "on purpose");
            }
        }
        let told = Arc::new(());
        let kept = |number| Kept::new(Panics(Arc::clone(&told), [number; 40]));
        let block = kept(0).into_raw();
        // SAFETY: `into_raw` returned this pointer just now, and the pointer is used once.
        drop(unsafe { Kept::from_raw(block) });
        assert!(catch_unwind(AssertUnwindSafe(|| drop(kept(1)))).is_err());
        assert_eq!(Arc::strong_count(&told), 1);
        let last = kept(0);
        assert_eq!(last.0, block, "the block of a value whose drop panicked is also free again");
        drop(last.into_inner());
        assert_eq!(Arc::strong_count(&told), 1);

        #[derive(Debug, PartialEq)]
        #[repr(align(64))]
        struct Nothing;
        assert_eq!(Kept::new(Nothing).into_inner(), Nothing);
    }
}
