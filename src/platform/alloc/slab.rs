//! Slabs: large pieces of memory from the global allocator. Each slab is cut into blocks of one size, and each block
//! begins at the start of a cache line.
//!
//! This file has unsafe code, because this file manages raw memory. Safe code could get an aligned block only from a
//! general allocator, which would add padding to each block. A slab aligns its blocks to cache lines without padding.
//! The alignment is necessary. If two processes shared a cache line, the cores of these processes would wait for each
//! other at every step (bench `call-1000`).
//!
//! An index maps the address of a block to the slab of this block. Bonwick's "The Slab Allocator" (USENIX 1994) uses an
//! index of addresses for large objects. If each slab began at a multiple of its length, no index would be needed.
//! However, many allocators need twice the memory for slabs that are aligned to their length. For example, with slabs
//! that are aligned to their length and the allocator mimalloc, page faults took half of the time of the bench `sleep`.
//! The index is needed for blocks that return to their slab, but not for blocks that stay in a magazine. If all blocks
//! of a slab are free, the slab returns to the allocator. However, a limited number of spare slabs stays allocated.
//!
//! In an experiment, the magazines took single blocks from the system's allocator, and there were no slabs. With this
//! simpler allocator, the CPU time was 1.31 times higher in the bench `create-1-exit`, and 1.24 times higher in
//! `spawn-inside`. Therefore this file stays.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

use crate::platform::alloc::slab_index::Places;
use crate::platform::prefetch::prefetch;

/// Size of a cache line in bytes. Block sizes and block addresses are multiples of this size.
pub(super) const LINE: usize = 64;

/// Number of bytes of a block that [`Blocks::prefetch_first`] prefetches.
pub(super) const PREFETCHED: usize = 4 * LINE;

/// Number of bytes that most allocators use for one slab. This number includes the allocator's header or padding.
const SPAN: usize = 16 << 10;

/// Layout of a slab. A slab begins at the start of a pair of cache lines.
const SLAB: Layout = match Layout::from_size_align(SPAN - 2 * LINE, 2 * LINE) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// Content of a free block, namely a pointer to the next free block of the list.
struct Free(Option<NonNull<Free>>);

/// List of free blocks of one size.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    first: Option<NonNull<Free>>,
    count: usize,
}

// SAFETY: the list has exclusive access to its blocks. The blocks are plain memory and are not bound to a thread, so
// the list may move to another thread.
unsafe impl Send for Blocks {}

impl Blocks {
    pub(super) const NONE: Self = Self { first: None, count: 0 };

    #[inline]
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let first = self.first?;
        // SAFETY: the pointer is valid and aligned, and points to a `Free` that `push` wrote. The list has owned the
        // block since then, so no other code has changed the `Free`.
        self.first = unsafe { first.as_ref().0 };
        self.count -= 1;
        Some(first.cast())
    }

    /// Prefetches the first [`PREFETCHED`] bytes of the block that the next call of [`pop`](Self::pop) returns. The
    /// blocks of this list have at least this size.
    #[inline]
    pub(super) fn prefetch_first(&self) {
        if let Some(first) = self.first {
            prefetch(first.as_ptr(), PREFETCHED);
        }
    }

    /// Adds a block.
    ///
    /// # Safety
    /// The block has the size of this list, and belongs to the caller.
    #[inline]
    pub(super) unsafe fn push(&mut self, block: NonNull<u8>) {
        let block = block.cast();
        // SAFETY: `write` needs a pointer that is aligned and valid for writes. The caller owns the block. A block is
        // at least as large as a cache line, and is aligned to a cache line.
        unsafe { block.write(Free(self.first)) };
        self.first = Some(block);
        self.count += 1;
    }
}

/// Header of a slab.
struct Slab {
    /// The next and the previous slab in the ring of slabs of this size.
    next: Cell<NonNull<Slab>>,
    previous: Cell<NonNull<Slab>>,
    /// Free blocks that have already been in use.
    back: Cell<Blocks>,
    /// Number of blocks that have never been in use since the slab was created. These blocks are the last blocks of the
    /// slab.
    fresh: Cell<usize>,
    /// Number of blocks in use.
    out: Cell<usize>,
}

const _: () = assert!(size_of::<Slab>() <= LINE);

impl Slab {
    fn has_some(&self) -> bool {
        self.fresh.get() > 0 || self.back.get().count > 0
    }
}

/// All slabs of one size. A slab is allocated and has an initialized header if one of two conditions holds: the slab is
/// in the ring, or a block of the slab is in use.
pub(super) struct Slabs {
    all: Places<{ SLAB.size() }, { SLAB.align() }>,
    /// First slab of the ring. Slabs with free blocks come before slabs without free blocks.
    first: Option<NonNull<Slab>>,
    /// Number of slabs in the ring. Each slab in the ring has a block in use.
    used: usize,
    /// Spare slabs. A spare slab has no block in use. The function [`spare`](Self::spare) returns the maximum number of
    /// spare slabs.
    unused: Blocks,
    /// Block size in bytes.
    size: usize,
}

// SAFETY: a `Slabs` has exclusive access to the headers and the free blocks of its slabs. The users of blocks do not
// access the headers or the free blocks. The memory belongs to no thread.
unsafe impl Send for Slabs {}

impl Slabs {
    /// Creates slabs of blocks of `size` bytes. `size` must be a multiple of [`LINE`], and at most an eighth of `SPAN`.
    pub(super) const fn new(size: usize) -> Self {
        assert!(size > 0 && size.is_multiple_of(LINE) && size <= SPAN / 8);
        Self { all: Places::new(), first: None, used: 0, unused: Blocks::NONE, size }
    }

    /// Returns the number of bytes of all slabs.
    pub(super) const fn bytes(&self) -> usize {
        (self.used + self.unused.count) * SLAB.size()
    }

    /// Returns the offset of the first block in a slab. Processors fetch cache lines in pairs. Therefore, if the block
    /// size is a whole number of pairs, the first block begins at the start of a pair.
    const fn begin(&self) -> usize {
        if self.size.is_multiple_of(2 * LINE) { 2 * LINE } else { LINE }
    }

    /// Returns the number of blocks in a slab.
    pub(super) const fn blocks(&self) -> usize {
        (SLAB.size() - self.begin()) / self.size
    }

    /// Takes at least one block and at most `most` blocks. A call begins a new slab only for its first block, and only
    /// if no slab has a free block.
    pub(super) fn draw(&mut self, most: usize) -> Blocks {
        let mut drawn = Blocks::NONE;
        while drawn.count < most {
            let at = match self.first {
                Some(first) if self.slab(first).has_some() => first,
                _ if drawn.count > 0 => break,
                _ => self.begin_one(),
            };
            let slab = self.slab(at);
            let mut back = slab.back.get();
            while drawn.count < most {
                let block = match back.pop() {
                    Some(block) => block,
                    None if slab.fresh.get() == 0 => break,
                    None => {
                        let offset = self.begin() + (self.blocks() - slab.fresh.get()) * self.size;
                        slab.fresh.set(slab.fresh.get() - 1);
                        // SAFETY: `add` needs an offset within the allocation. `offset` is the offset of a block that
                        // was never given out, and all blocks of the slab lie within the allocation of the slab.
                        unsafe { at.cast::<u8>().add(offset) }
                    }
                };
                // SAFETY: `push` needs a block of the list's size that belongs to the caller. The block has the size of
                // these slabs, and is free.
                unsafe { drawn.push(block) };
                slab.out.set(slab.out.get() + 1);
            }
            slab.back.set(back);
            if !slab.has_some() {
                self.first = Some(slab.next.get());
            }
        }
        drawn
    }

    /// Takes back blocks.
    ///
    /// # Safety
    /// The blocks were [drawn](Self::draw) from these slabs, and belong to the caller.
    pub(super) unsafe fn give_back(&mut self, mut blocks: Blocks) {
        while let Some(block) = blocks.pop() {
            let address = block.addr().get();
            // SAFETY: `sub` needs a result within the same allocation. By contract the block is part of a slab of
            // `self`, and `of` returns the address at which this slab begins.
            let at = unsafe { block.sub(address - self.all.of(address)) }.cast::<Slab>();
            let slab = self.slab(at);
            let had_some = slab.has_some();
            let mut back = slab.back.get();
            // SAFETY: `push` needs a block of the list's size that belongs to the caller. By contract the block was
            // drawn from this slab, and the block was just popped from `blocks`.
            unsafe { back.push(block) };
            slab.back.set(back);
            slab.out.set(slab.out.get() - 1);
            if slab.out.get() == 0 {
                self.unlink(slab, at);
                self.used -= 1;
                // SAFETY: `push` needs a block of the list's size that belongs to the caller. All entries of this list
                // are whole slabs, and a slab is aligned to a cache line. No block of this slab is in use, and the slab
                // was removed from the ring. Therefore, only `self` owns the slab.
                unsafe { self.unused.push(at.cast()) };
                self.trim();
            } else if !had_some {
                self.unlink(slab, at);
                self.link(slab, at);
            }
        }
    }

    fn slab<'a>(&self, at: NonNull<Slab>) -> &'a Slab {
        // SAFETY: `begin_one` wrote the header of each slab. `self` calls this function only for three kinds of slabs:
        // a slab in the ring, a slab with a block in use, and a slab that `begin_one` has just initialized. A slab of
        // each of these three kinds is allocated. All fields of a header are `Cell`s, and headers are accessed only
        // through shared references. Only one thread at a time accesses the headers, because each access needs a
        // reference to `self`, and the type of `self` is not `Sync`.
        unsafe { at.as_ref() }
    }

    /// Returns the maximum number of spare slabs. The spare slabs may take one megabyte, plus half of the memory of the
    /// slabs in use. Spare slabs save allocations if the number of blocks varies.
    const fn spare(&self) -> usize {
        (1 << 20) / SPAN + self.used / 2
    }

    /// Frees the spare slabs that exceed the maximum number of spare slabs.
    fn trim(&mut self) {
        while self.unused.count > self.spare()
            && let Some(at) = self.unused.pop()
        {
            self.all.remove(at.addr().get());
            // SAFETY: `dealloc` needs a pointer from `alloc` with this layout, and `begin_one` got the pointer from
            // this `alloc`. No block of the slab is in use, and no list or index refers to the slab any more.
            unsafe { dealloc(at.as_ptr(), SLAB) };
        }
    }

    fn begin_one(&mut self) -> NonNull<Slab> {
        let at = self.unused.pop().unwrap_or_else(|| {
            // SAFETY: `alloc` needs a layout whose size is not 0, and the size of `SLAB` is not 0.
            let at = unsafe { alloc(SLAB) };
            let at = NonNull::new(at).unwrap_or_else(|| handle_alloc_error(SLAB));
            self.all.insert(at.addr().get());
            at
        });
        let at = at.cast();
        self.used += 1;
        let slab = Slab {
            next: Cell::new(at),
            previous: Cell::new(at),
            back: Cell::new(Blocks::NONE),
            fresh: Cell::new(self.blocks()),
            out: Cell::new(0),
        };
        // SAFETY: `write` needs a pointer that is aligned and valid for writes. The memory has the layout `SLAB`, which
        // is larger than a header and more strictly aligned. Only `self` owns the memory.
        unsafe { at.write(slab) };
        self.link(self.slab(at), at);
        at
    }

    /// Inserts a slab at the front of the ring. The slab must not be in the ring yet.
    fn link(&mut self, slab: &Slab, at: NonNull<Slab>) {
        let next = self.first.replace(at).unwrap_or(at);
        // If the slab is the only slab in the ring, `next` is the slab itself.
        slab.previous.set(at);
        let previous = self.slab(next).previous.replace(at);
        slab.next.set(next);
        slab.previous.set(previous);
        self.slab(previous).next.set(at);
    }

    fn unlink(&mut self, slab: &Slab, at: NonNull<Slab>) {
        let (next, previous) = (slab.next.get(), slab.previous.get());
        self.slab(previous).next.set(next);
        self.slab(next).previous.set(previous);
        if self.first == Some(at) {
            self.first = (next != at).then_some(next);
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;

    impl Slabs {
        /// Returns the number of slabs with free blocks and the number of slabs without free blocks.
        fn counted(&self) -> (usize, usize) {
            let mut all = Vec::new();
            let mut at = self.first;
            while let Some(one) = at {
                let slab = self.slab(one);
                assert_eq!(self.slab(slab.next.get()).previous.get(), one);
                assert_eq!(slab.fresh.get() + slab.back.get().count + slab.out.get(), self.blocks());
                all.push(slab.has_some());
                at = Some(slab.next.get()).filter(|&next| Some(next) != self.first);
            }
            assert!(
                all.is_sorted_by(|one, next| one >= next),
                "a slab without a free block comes before a slab with a free block"
            );
            assert_eq!(all.len(), self.used);
            assert!(self.unused.count <= self.spare());
            let some = all.iter().filter(|&&some| some).count();
            (some, all.len() - some)
        }

        /// Checks that no block is in use, and frees the spare slabs.
        fn end(mut self) {
            assert_eq!(self.counted(), (0, 0));
            assert!(self.unused.count > 0);
            while let Some(at) = self.unused.pop() {
                // SAFETY: `begin_one` got the slab from `alloc` with this layout, and no block of the slab is in use.
                unsafe { dealloc(at.as_ptr(), SLAB) };
            }
        }
    }

    /// Returns the number of bytes that the tests fill in a block. Under Miri, only the first bytes are filled, because
    /// Miri is slow.
    fn tested_bytes(slabs: &Slabs) -> usize {
        if cfg!(miri) { 8 } else { slabs.size }
    }

    /// Takes up to `most` blocks, and fills each block with a byte that depends on the address of the block.
    fn draw(slabs: &mut Slabs, most: usize, out: &mut Vec<NonNull<u8>>) {
        let mut drawn = slabs.draw(most);
        assert!((1..=most).contains(&drawn.count()));
        while let Some(block) = drawn.pop() {
            // SAFETY: the block has at least `tested_bytes` bytes. The block was taken out of the free list just now,
            // so the block has no other owner.
            unsafe { block.write_bytes(block.addr().get().div_euclid(LINE) as u8, tested_bytes(slabs)) };
            out.push(block);
        }
    }

    fn give_back(slabs: &mut Slabs, out: impl IntoIterator<Item = NonNull<u8>>) {
        let mut blocks = Blocks::NONE;
        for block in out {
            let filled = block.addr().get().div_euclid(LINE) as u8;
            // SAFETY: the block has at least `tested_bytes` bytes, `draw` filled these bytes, and the block has no
            // other owner.
            let written = unsafe { NonNull::slice_from_raw_parts(block, tested_bytes(slabs)).as_ref() };
            assert!(written.iter().all(|&byte| byte == filled), "another owner wrote to the block");
            // SAFETY: the block was drawn from slabs of this size, and is given back once.
            unsafe { blocks.push(block) };
        }
        // SAFETY: each block was drawn from these slabs, and is given back once.
        unsafe { slabs.give_back(blocks) };
    }

    #[test]
    fn blocks_begin_at_cache_lines_and_do_not_overlap() {
        // Miri is slow. Therefore, under Miri, the test uses only every third size.
        for size in (LINE..=1024).step_by(if cfg!(miri) { 3 * LINE } else { LINE }) {
            let mut slabs = Slabs::new(size);
            let (count, mut all) = (2 * slabs.blocks() + 1, Vec::new());
            while all.len() < count {
                draw(&mut slabs, count - all.len(), &mut all);
            }
            assert_eq!(slabs.counted(), (1, 2), "of {size} bytes");
            let mut places: Vec<_> = all.iter().map(|block| block.addr().get()).collect();
            places.sort_unstable();
            let together = if size.is_multiple_of(2 * LINE) { 2 * LINE } else { LINE };
            assert!(places.iter().all(|place| place.is_multiple_of(together)));
            assert!(places.windows(2).all(|two| two[1] - two[0] >= size));
            assert!(slabs.blocks() * size + 2 * LINE + size > SLAB.size(), "{size} bytes leave a block unused");
            give_back(&mut slabs, all);
            slabs.end();
        }
    }

    #[test]
    #[cfg_attr(
        miri,
        ignore = "the interpreter needs one minute for this test, and the other tests cover the same code"
    )]
    fn unused_slabs_are_freed_except_the_spare_slabs() {
        let mut slabs = Slabs::new(1024);
        let mut out = Vec::new();
        while slabs.used < 400 {
            draw(&mut slabs, 1, &mut out);
        }
        // Spare slabs are used again before new slabs are allocated.
        let half = out.split_off(out.len() / 2);
        give_back(&mut slabs, half);
        assert_eq!((slabs.used, slabs.unused.count), (200, 64 + 100));
        while slabs.used < 300 {
            draw(&mut slabs, 1, &mut out);
        }
        assert_eq!(slabs.unused.count, 64);
        give_back(&mut slabs, out);
        assert_eq!((slabs.used, slabs.unused.count), (0, 64));
        slabs.end();
    }

    #[test]
    fn a_new_slab_is_used_only_if_the_other_slabs_have_no_free_block() {
        let mut slabs = Slabs::new(512);
        let (mut out, mut most) = (Vec::new(), 0);
        let mut chance = Rng::seeded(1);
        for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
            // The test alternates between two phases of 1,000 rounds. In the first phase, the test draws more blocks
            // than the test gives back. In the second phase, the test draws fewer blocks than the test gives back.
            let grows = round % 2_000 < 1_000;
            if chance.below(10) < if grows { 6 } else { 4 } {
                let (had, (some, nothing)) = (out.len(), slabs.counted());
                draw(&mut slabs, 1 + chance.below(40), &mut out);
                let begun = if some == 0 { 1 } else { 0 };
                assert_eq!(slabs.counted().0 + slabs.counted().1, some + nothing + begun);
                assert!(out.len() > had);
            } else {
                for _ in 0..chance.below(41).min(out.len()) {
                    let one = out.swap_remove(chance.below(out.len()));
                    give_back(&mut slabs, [one]);
                }
            }
            most = most.max(out.len());
        }
        assert!(most > 3 * slabs.blocks(), "at most {most} blocks are in use at the same time");
        give_back(&mut slabs, out);
        slabs.end();
    }
}
