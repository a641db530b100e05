//! Memory for processes, for what both ends of a call share, and for payloads that are too large for their place: blocks that
//! were such before, kept by each thread and passed between threads by the handful. A file with unsafe code: what is made on
//! one thread often ends on another, which the allocators of most systems are slow at, and allocation is most of what a spawn
//! costs; two cores spawn a third cheaper by it (bench `spawn`).
//!
//! These are the magazines of Bonwick and Adams ("Magazines and Vmem", USENIX 2001): each thread has two for each size, of
//! which one is full or empty, so that it is only after so many spawns, or ends, in a row that it comes to the depot. What
//! is kept is bounded: the rest goes back to the global allocator, block by block, for that is how they came.
//!
//! Under `--cfg procession_plain_memory`, for the sanitizers, which see a use after free only if it is freed, and under the
//! model checkers, all comes from the global allocator.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::sync::TallyLock;

/// Sizes are multiples of this many bytes …
const GRAIN: usize = 32;
/// … and there are so many of them: what is larger is not kept.
const SIZES: usize = 32;
/// How many blocks a magazine holds.
const ROUNDS: usize = 32;
/// How many bytes of each size the depot keeps.
const KEPT: usize = 1 << 20;
/// Blocks are aligned as every allocator aligns what is that large.
const ALIGN: usize = 16;

/// Whether blocks are kept at all.
const KEEPS: bool = !cfg!(any(procession_plain_memory, procession_loom, procession_shuttle));

/// A block that is kept: where the next one is.
struct Free(Option<NonNull<Free>>);

/// Up to so many blocks of one size.
#[derive(Clone, Copy)]
struct Magazine {
    first: Option<NonNull<Free>>,
    rounds: usize,
}

// SAFETY: whoever has a magazine is alone with its blocks, which belong to no thread.
unsafe impl Send for Magazine {}

impl Magazine {
    const EMPTY: Self = Self { first: None, rounds: 0 };

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let first = self.first?;
        // SAFETY: what is in a magazine is a block that `push` wrote.
        self.first = unsafe { first.as_ref().0 };
        self.rounds -= 1;
        Some(first.cast())
    }

    /// # Safety
    /// It is a block of this size, and the caller's.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<u8>) {
        let block = block.cast();
        // SAFETY: a block has room for a pointer, and is aligned for it.
        unsafe { block.write(Free(self.first)) };
        self.first = Some(block);
        self.rounds += 1;
    }

    /// Gives all of it back to the allocator.
    fn empty(mut self, size: usize) {
        while let Some(block) = self.pop() {
            // SAFETY: that is how it came, see `fresh`.
            unsafe { dealloc(block.as_ptr(), of(size)) };
        }
    }
}

/// The layout of a block.
#[inline]
const fn of(size: usize) -> Layout {
    match Layout::from_size_align((size + 1) * GRAIN, ALIGN) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    }
}

/// # Safety
/// The layout has a size.
unsafe fn fresh(layout: Layout) -> NonNull<u8> {
    // SAFETY: says the caller.
    let block = unsafe { alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Full magazines, by size.
static DEPOT: [TallyLock<Vec<Magazine>>; SIZES] = [const { TallyLock::new(Vec::new()) }; SIZES];

/// What a thread keeps of one size: half a cache line, wherever the linker puts the first.
#[repr(align(32))]
struct Shelf {
    loaded: Magazine,
    /// Full, or empty.
    spare: Magazine,
}

impl Shelf {
    const EMPTY: Self = Self { loaded: Magazine::EMPTY, spare: Magazine::EMPTY };

    #[cold]
    fn reload(&mut self, size: usize) -> Option<NonNull<u8>> {
        std::mem::swap(&mut self.loaded, &mut self.spare);
        if self.loaded.rounds == 0 {
            self.loaded = DEPOT[size].with(Vec::pop)?;
        }
        self.loaded.pop()
    }

    /// The loaded one is full.
    #[cold]
    fn unload(&mut self, size: usize) {
        let full = std::mem::replace(&mut self.spare, self.loaded);
        self.loaded = Magazine::EMPTY;
        if full.rounds != 0 {
            store(full, size);
        }
    }
}

/// Puts a magazine into the depot, if that has room.
fn store(full: Magazine, size: usize) {
    let most = KEPT / (ROUNDS * of(size).size());
    let stored = DEPOT[size].with(|depot| {
        let has_room = depot.len() < most;
        if has_room {
            depot.push(full);
        }
        has_room
    });
    if !stored {
        full.empty(size);
    }
}

/// What a thread keeps.
struct Shelves([Shelf; SIZES]);

impl Drop for Shelves {
    fn drop(&mut self) {
        for (size, shelf) in self.0.iter().enumerate() {
            shelf.loaded.empty(size);
            shelf.spare.empty(size);
        }
    }
}

std::thread_local! {
    static SHELVES: RefCell<Shelves> = const { RefCell::new(Shelves([const { Shelf::EMPTY }; SIZES])) };
}

/// A value in such a block: a `Box`, but for where its memory comes from.
pub(crate) struct Kept<T>(NonNull<T>);

// SAFETY: as of a `Box`.
unsafe impl<T: Send> Send for Kept<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> Kept<T> {
    const LAYOUT: Layout = Layout::new::<T>();

    pub(crate) fn new(value: T) -> Self {
        let at = if Self::LAYOUT.size() == 0 {
            NonNull::dangling()
        } else {
            // SAFETY: it has a size.
            unsafe { take(Self::LAYOUT) }.cast::<T>()
        };
        // SAFETY: it is memory for a `T`.
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
        // Given back also if the value's drop panics.
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
            // SAFETY: `Kept::new` took it.
            unsafe { give_back(self.0.cast(), Kept::<T>::LAYOUT) };
        }
    }
}

/// Which size that is, if blocks of it are kept.
#[inline]
const fn size_of_layout(layout: Layout) -> Option<usize> {
    let size = layout.size().div_ceil(GRAIN).wrapping_sub(1);
    if KEEPS && layout.align() <= ALIGN && size < SIZES { Some(size) } else { None }
}

/// Memory for this. It is aborted if there is none, as for a `Box`.
///
/// # Safety
/// The layout has a size.
#[inline]
pub(crate) unsafe fn take(layout: Layout) -> NonNull<u8> {
    let Some(size) = size_of_layout(layout) else {
        // SAFETY: says the caller.
        return unsafe { fresh(layout) };
    };
    let kept = SHELVES.try_with(|shelves| {
        let shelf = &mut shelves.borrow_mut().0[size];
        shelf.loaded.pop().or_else(|| shelf.reload(size))
    });
    // SAFETY: none of the sizes is zero.
    kept.ok().flatten().unwrap_or_else(|| unsafe { fresh(of(size)) })
}

/// Takes it back.
///
/// # Safety
/// It was [taken](take) for this layout, and is the caller's.
#[inline]
pub(crate) unsafe fn give_back(block: NonNull<u8>, layout: Layout) {
    let Some(size) = size_of_layout(layout) else {
        // SAFETY: that is how it came.
        return unsafe { dealloc(block.as_ptr(), layout) };
    };
    let kept = SHELVES.try_with(|shelves| {
        let shelf = &mut shelves.borrow_mut().0[size];
        if shelf.loaded.rounds == ROUNDS {
            shelf.unload(size);
        }
        // SAFETY: says the caller.
        unsafe { shelf.loaded.push(block) };
    });
    if kept.is_err() {
        // The thread ends.
        // SAFETY: that is how it came.
        unsafe { dealloc(block.as_ptr(), of(size)) };
    }
}

#[cfg(all(test, not(any(procession_plain_memory, procession_loom, procession_shuttle))))]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::sync::{Arc, thread};

    /// A size that no other test has.
    const LARGEST: Layout = match Layout::from_size_align(SIZES * GRAIN, 8) {
        Ok(layout) => layout,
        Err(_) => unreachable!(),
    };

    fn obtain() -> NonNull<u8> {
        // SAFETY: it has a size.
        unsafe { take(LARGEST) }
    }

    fn give(block: NonNull<u8>) {
        // SAFETY: the tests take all they give back for that, and give each back once.
        unsafe { give_back(block, LARGEST) };
    }

    #[test]
    fn each_layout_has_room_in_its_size() {
        for bytes in 1..=SIZES * GRAIN {
            let layout = Layout::from_size_align(bytes, 8).expect("it is small");
            let size = size_of_layout(layout).expect("it is small");
            assert!(of(size).size() >= bytes && of(size).size() < bytes + GRAIN);
        }
        let beyond = [(SIZES * GRAIN + 1, 8), (64, 2 * ALIGN), (0, 1)];
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
                // SAFETY: there is room for it.
                unsafe { block.write(address) };
            }
            let gives = move || {
                for address in taken {
                    let block = NonNull::new(address as *mut usize).expect("it was taken");
                    // SAFETY: written above.
                    assert_eq!(unsafe { block.read() }, address, "somebody else has it");
                    give(block.cast());
                }
            };
            thread::scope(|threads| threads.spawn(gives).join()).expect("nobody else had any of them");
        }

        let kept = || DEPOT[SIZES - 1].with(|depot| depot.len());
        let most = KEPT / (ROUNDS * SIZES * GRAIN);
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
        // SAFETY: it was taken apart just now.
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
