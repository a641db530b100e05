//! Memory for processes, for what both ends of a call share, and for payloads that are too large for their place: blocks of
//! whole cache lines, kept by each thread and passed between threads by the handful. A file with unsafe code: what is made on
//! one thread often ends on another, which the allocators of most systems are slow at, and allocation is most of what a spawn
//! costs; two cores spawn a third cheaper by it (bench `spawn`).
//!
//! These are the magazines of Bonwick and Adams ("Magazines and Vmem", USENIX 2001): each thread has two for each size, of
//! which one is full or empty, so that it is only after so many spawns, or ends, in a row that it comes to the depot. What
//! is kept is bounded: the rest goes back to the [slabs](slab) that it was cut from, and they to the global allocator.
//!
//! Under `--cfg procession_plain_memory`, for the sanitizers, which see a use after free only if it is freed, and under the
//! model checkers, all comes from the global allocator.

#![allow(unsafe_code)]

pub(crate) mod slab;
pub(crate) mod slab_index;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::platform::alloc::slab::{Blocks, LINE, Slabs};
use crate::platform::sync::TallyLock;

/// There are so many sizes, each a line larger than the one before: what is larger is not kept.
const SIZES: usize = 16;
/// How many blocks a magazine holds.
const ROUNDS: usize = 32;
/// How many bytes of each size are kept in magazines that no thread has.
const KEPT: usize = 1 << 20;

/// Whether blocks are kept at all.
const KEEPS: bool = !cfg!(any(procession_plain_memory, procession_loom, procession_shuttle));

/// What no thread has of one size.
struct Depot {
    /// Full ones.
    magazines: Vec<Blocks>,
    slabs: Slabs,
}

/// By size.
static DEPOTS: [TallyLock<Depot>; SIZES] = {
    let mut depots = [const { TallyLock::new(Depot::of(0)) }; SIZES];
    let mut size = 1;
    while size < SIZES {
        // No constant drops anything; there is nothing in it.
        std::mem::forget(std::mem::replace(&mut depots[size], TallyLock::new(Depot::of(size))));
        size += 1;
    }
    depots
};

/// How many bytes a block of that size has.
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

    /// # Safety
    /// They are of this size, and came from here.
    unsafe fn store(&mut self, blocks: Blocks, size: usize) {
        if blocks.count() == ROUNDS && self.magazines.len() < KEPT / (ROUNDS * bytes(size)) {
            self.magazines.push(blocks);
        } else {
            // SAFETY: the caller promises that the blocks have this depot's size, and were drawn from its slabs.
            unsafe { self.slabs.give_back(blocks) };
        }
    }
}

/// What a thread keeps of one size: half a cache line, wherever the linker puts the first.
#[repr(align(32))]
struct Shelf {
    loaded: Blocks,
    /// Full, or empty.
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

    /// The loaded one is full.
    #[cold]
    fn unload(&mut self, size: usize) {
        let full = std::mem::replace(&mut self.spare, self.loaded);
        self.loaded = Blocks::NONE;
        if full.count() != 0 {
            // SAFETY: it has blocks of that size that came from there.
            DEPOTS[size].with(|depot| unsafe { depot.store(full, size) });
        }
    }
}

/// What a thread keeps.
struct Shelves([Shelf; SIZES]);

impl Drop for Shelves {
    fn drop(&mut self) {
        for (size, shelf) in self.0.iter().enumerate() {
            for blocks in [shelf.loaded, shelf.spare] {
                // SAFETY: they are of that size, and came from there.
                DEPOTS[size].with(|depot| unsafe { depot.store(blocks, size) });
            }
        }
    }
}

std::thread_local! {
    static SHELVES: RefCell<Shelves> = const { RefCell::new(Shelves([const { Shelf::EMPTY }; SIZES])) };
}

/// A value in such a block: a `Box`, but for where its memory comes from.
pub(crate) struct Kept<T>(NonNull<T>);

// SAFETY: a `Kept` is the only owner of its value, as a `Box` is. The block may be given back on any thread.
unsafe impl<T: Send> Send for Kept<T> {}
// SAFETY: a shared `Kept` gives access to nothing but `&T`.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> Kept<T> {
    const LAYOUT: Layout = Layout::new::<T>();

    pub(crate) fn new(value: T) -> Self {
        let at = if Self::LAYOUT.size() == 0 {
            NonNull::dangling()
        } else {
            // SAFETY: `take` needs a layout with a size. The branch excludes the size 0.
            unsafe { take(Self::LAYOUT) }.cast::<T>()
        };
        // SAFETY: the block has the layout of a `T` and has no other owner. For a type without a size, a dangling pointer is
        // valid.
        unsafe { at.write(value) };
        Self(at)
    }

    pub(crate) fn into_inner(self) -> T {
        let block = Block(ManuallyDrop::new(self).0);
        // SAFETY: the value is there, and is not dropped there.
        unsafe { block.0.read() }
    }

    pub(crate) fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// That is where another one was that was [taken apart](Self::into_raw), and is the caller's.
    pub(crate) unsafe fn from_raw(at: NonNull<T>) -> Self {
        Self(at)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // SpawnSettings back also if the value's drop panics.
        let block = Block(self.0);
        // SAFETY: it is there, and not looked at again.
        unsafe { block.0.drop_in_place() };
    }
}

/// The block of a value that is gone, or about to be.
struct Block<T>(NonNull<T>);

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        if Kept::<T>::LAYOUT.size() != 0 {
            // SAFETY: `Kept::new` took the block for this layout. The value is gone, so the block has no other user.
            unsafe { give_back(self.0.cast(), Kept::<T>::LAYOUT) };
        }
    }
}

/// Which size that is, if blocks of it are kept.
#[inline]
const fn size_of_layout(layout: Layout) -> Option<usize> {
    let size = layout.size().div_ceil(LINE).wrapping_sub(1);
    if KEEPS && layout.align() <= LINE && size < SIZES { Some(size) } else { None }
}

/// Memory for this. It is aborted if there is none, as for a `Box`.
///
/// # Safety
/// The layout has a size.
#[inline]
pub(crate) unsafe fn take(layout: Layout) -> NonNull<u8> {
    let Some(size) = size_of_layout(layout) else {
        // SAFETY: `alloc` needs a layout with a size, which the caller promises.
        let block = unsafe { alloc(layout) };
        return NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout));
    };
    let block = SHELVES.try_with(|shelves| {
        let shelf = &mut shelves.borrow_mut().0[size];
        shelf.loaded.pop().or_else(|| shelf.reload(size))
    });
    // The thread ends: one for it alone.
    let block = block.unwrap_or_else(|_| DEPOTS[size].with(|depot| depot.slabs.draw(1)).pop());
    block.expect("what is drawn has blocks")
}

/// Takes it back.
///
/// # Safety
/// It was [taken](take) for this layout, and is the caller's.
#[inline]
pub(crate) unsafe fn give_back(block: NonNull<u8>, layout: Layout) {
    let Some(size) = size_of_layout(layout) else {
        // SAFETY: `take` got the block from `alloc` with this layout, because the layout has no size class. The caller owns
        // it.
        return unsafe { dealloc(block.as_ptr(), layout) };
    };
    let kept = SHELVES.try_with(|shelves| {
        let shelf = &mut shelves.borrow_mut().0[size];
        if shelf.loaded.count() == ROUNDS {
            shelf.unload(size);
        }
        // SAFETY: the caller owns the block, which `take` took for this layout, so it has the size of this shelf.
        unsafe { shelf.loaded.push(block) };
    });
    if kept.is_err() {
        // The thread ends.
        let mut alone = Blocks::NONE;
        // SAFETY: the caller owns the block, which `take` took for this layout, and the list is empty.
        unsafe { alone.push(block) };
        // SAFETY: the list has one block, of this size, which came from this depot.
        DEPOTS[size].with(|depot| unsafe { depot.store(alone, size) });
    }
}

#[cfg(all(test, not(any(procession_plain_memory, procession_loom, procession_shuttle))))]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::platform::sync::{Arc, thread};

    /// A size that no other test has.
    const LARGEST: Layout = match Layout::from_size_align(SIZES * LINE, 8) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    fn obtain() -> NonNull<u8> {
        // SAFETY: `LARGEST` is a layout with a size.
        unsafe { take(LARGEST) }
    }

    fn give(block: NonNull<u8>) {
        // SAFETY: the tests take all they give back for that, and give each back once.
        unsafe { give_back(block, LARGEST) };
    }

    #[test]
    fn each_layout_has_room_in_its_size() {
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

    /// In one test, for they share what is kept of that size.
    #[test]
    fn blocks_come_back_and_no_more_are_kept_than_that() {
        let block = obtain();
        give(block);
        assert_eq!(obtain(), block, "the last one that was given back is warm");
        give(block);

        // What one thread takes and another one gives back goes round: nobody has a block that somebody else has.
        for _ in 0..100 {
            let taken: Vec<usize> = (0..ROUNDS + 1).map(|_| obtain().as_ptr() as usize).collect();
            for &address in &taken {
                let block = NonNull::new(address as *mut usize).expect("it was taken");
                // SAFETY: the block was taken above, has room for a word, and is aligned to a cache line.
                unsafe { block.write(address) };
            }
            let gives = move || {
                for address in taken {
                    let block = NonNull::new(address as *mut usize).expect("it was taken");
                    // SAFETY: the word was written above, and the block was not given back since.
                    assert_eq!(unsafe { block.read() }, address, "somebody else has it");
                    give(block.cast());
                }
            };
            thread::scope(|threads| threads.spawn(gives).join()).expect("nobody else had any of them");
        }

        let kept = || DEPOTS[SIZES - 1].with(|depot| depot.magazines.len());
        let most = KEPT / (ROUNDS * SIZES * LINE);
        let all: BTreeSet<_> = (0..(most + 4) * ROUNDS).map(|_| obtain()).collect();
        assert_eq!(all.len(), (most + 4) * ROUNDS, "one was given out twice");
        assert_eq!(kept(), 0);
        all.into_iter().for_each(give);
        assert_eq!(kept(), most);
    }

    #[test]
    fn a_value_is_dropped_once_and_its_block_kept() {
        struct Panics(#[expect(dead_code, reason = "dropped")] Arc<()>, [u64; 40]);
        impl Drop for Panics {
            fn drop(&mut self) {
                assert_eq!(self.1[0], 0, "on purpose");
            }
        }
        let told = Arc::new(());
        let kept = |number| Kept::new(Panics(Arc::clone(&told), [number; 40]));
        let block = kept(0).into_raw();
        // SAFETY: `into_raw` returned the pointer just now, and it is used once.
        drop(unsafe { Kept::from_raw(block) });
        assert!(catch_unwind(AssertUnwindSafe(|| drop(kept(1)))).is_err());
        assert_eq!(Arc::strong_count(&told), 1);
        let last = kept(0);
        assert_eq!(last.0, block, "also of one whose drop panicked");
        drop(last.into_inner());
        assert_eq!(Arc::strong_count(&told), 1);

        #[derive(Debug, PartialEq)]
        #[repr(align(64))]
        struct Nothing;
        assert_eq!(Kept::new(Nothing).into_inner(), Nothing);
    }
}
