//! Slabs: larger pieces of the allocator's memory, cut into blocks of one size, each of which begins a cache line. A file with
//! unsafe code: where two processes share a line, each core waits for the other one at every step (bench `call-1000`), and an
//! allocator that is asked for aligned blocks one by one pads each of them.
//!
//! A slab is found from a block of it by a table, as for large objects in Bonwick's "The Slab Allocator" (USENIX 1994). If they
//! began at multiples of their length no table were needed, but many an allocator takes twice the memory for that (bench
//! `sleep` with mimalloc: half of the time was page faults). It is asked for those blocks only that no magazine has room for.
//! Slabs all of whose blocks are back go back to the allocator, but for some.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

use crate::platform::alloc::slab_index::Places;

/// A cache line. Sizes are multiples of this many bytes, and so is where a block begins.
pub(super) const LINE: usize = 64;

/// What an allocator makes of a slab: with what most put before it, or keep aside to align it.
const SPAN: usize = 16 << 10;

/// Slabs begin with a pair of lines.
const SLAB: Layout = match Layout::from_size_align(SPAN - 2 * LINE, 2 * LINE) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// A block that nobody uses: where the next one is.
struct Free(Option<NonNull<Free>>);

/// Blocks of one size that nobody uses.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    first: Option<NonNull<Free>>,
    count: usize,
}

// SAFETY: whoever has them is alone with them, and they belong to no thread.
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
        // SAFETY: what is in there is a block that `push` wrote.
        self.first = unsafe { first.as_ref().0 };
        self.count -= 1;
        Some(first.cast())
    }

    /// # Safety
    /// It is a block of that size, and the caller's.
    #[inline]
    pub(super) unsafe fn push(&mut self, block: NonNull<u8>) {
        let block = block.cast();
        // SAFETY: a block has room for a pointer, and is aligned for it.
        unsafe { block.write(Free(self.first)) };
        self.first = Some(block);
        self.count += 1;
    }
}

/// What a slab begins with.
struct Slab {
    /// The others of that size, in a ring.
    next: Cell<NonNull<Slab>>,
    previous: Cell<NonNull<Slab>>,
    /// What came back.
    back: Cell<Blocks>,
    /// How many were never given out: the last ones.
    fresh: Cell<usize>,
    /// How many are out.
    out: Cell<usize>,
}

const _: () = assert!(size_of::<Slab>() <= LINE);

impl Slab {
    fn has_some(&self) -> bool {
        self.fresh.get() > 0 || self.back.get().count > 0
    }
}

/// All slabs of one size. Each that it knows, in its ring or by a block that is out, is there.
pub(super) struct Slabs {
    all: Places<{ SLAB.size() }, { SLAB.align() }>,
    /// Of the ring: those that have something come before those that have nothing.
    first: Option<NonNull<Slab>>,
    /// How many are in the ring: a block of each is out.
    used: usize,
    /// Others that were used before: not so many, see [`spare`](Self::spare).
    unused: Blocks,
    /// Of a block, in bytes.
    size: usize,
}

// SAFETY: whoever has them is alone with all that nobody uses, and slabs belong to no thread.
unsafe impl Send for Slabs {}

impl Slabs {
    /// Of blocks of `size` bytes: a multiple of [`LINE`], and small.
    pub(super) const fn new(size: usize) -> Self {
        assert!(size > 0 && size.is_multiple_of(LINE) && size <= SPAN / 8);
        Self { all: Places::new(), first: None, used: 0, unused: Blocks::NONE, size }
    }

    /// Where the first block of a slab begins. Processors fetch lines in pairs: a block of such begins with one.
    const fn begin(&self) -> usize {
        if self.size.is_multiple_of(2 * LINE) { 2 * LINE } else { LINE }
    }

    /// How many blocks a slab has.
    pub(super) const fn blocks(&self) -> usize {
        (SLAB.size() - self.begin()) / self.size
    }

    /// Up to `most` blocks, at least one: no slab is begun as long as others have any.
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
                        // SAFETY: the offset is that of a block that was never used, so it lies within the slab.
                        unsafe { at.cast::<u8>().add(offset) }
                    }
                };
                // SAFETY: it is one of this size, and nobody uses it.
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

    /// Takes them back.
    ///
    /// # Safety
    /// They were [drawn](Self::draw) here.
    pub(super) unsafe fn give_back(&mut self, mut blocks: Blocks) {
        while let Some(block) = blocks.pop() {
            let address = block.addr().get();
            // SAFETY: it is part of that slab, which begins there.
            let at = unsafe { block.sub(address - self.all.of(address)) }.cast::<Slab>();
            let slab = self.slab(at);
            let had_some = slab.has_some();
            let mut back = slab.back.get();
            // SAFETY: the block is the caller's, and goes back where it was cut from.
            unsafe { back.push(block) };
            slab.back.set(back);
            slab.out.set(slab.out.get() - 1);
            if slab.out.get() == 0 {
                self.unlink(slab, at);
                self.used -= 1;
                // SAFETY: none of it is out, and it is in no ring: nobody knows it, and it is large enough for a block.
                unsafe { self.unused.push(at.cast()) };
                self.trim();
            } else if !had_some {
                self.unlink(slab, at);
                self.link(slab, at);
            }
        }
    }

    fn slab<'a>(&self, at: NonNull<Slab>) -> &'a Slab {
        // SAFETY: each that is known is there, was written by `begin_one`, and is looked at by whoever has `self` alone.
        unsafe { at.as_ref() }
    }

    /// How many that are not used stay, for what comes and goes in waves: those of a megabyte, and half as many as are used.
    const fn spare(&self) -> usize {
        (1 << 20) / SPAN + self.used / 2
    }

    /// Gives the others back to the allocator.
    fn trim(&mut self) {
        while self.unused.count > self.spare()
            && let Some(at) = self.unused.pop()
        {
            self.all.remove(at.addr().get());
            // SAFETY: it came so, and nobody else knows it.
            unsafe { dealloc(at.as_ptr(), SLAB) };
        }
    }

    fn begin_one(&mut self) -> NonNull<Slab> {
        let at = self.unused.pop().unwrap_or_else(|| {
            // SAFETY: `alloc` needs a layout with a size, and `SLAB` has one.
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
        // SAFETY: it is that large, and so aligned.
        unsafe { at.write(slab) };
        self.link(self.slab(at), at);
        at
    }

    /// Puts one that is in no ring before all others.
    fn link(&mut self, slab: &Slab, at: NonNull<Slab>) {
        let next = self.first.replace(at).unwrap_or(at);
        // Of one that is alone it is itself.
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
        /// How many have something, and how many have nothing.
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
            assert!(all.is_sorted_by(|one, next| one >= next), "one that has nothing comes before one that has");
            assert_eq!(all.len(), self.used);
            assert!(self.unused.count <= self.spare());
            let some = all.iter().filter(|&&some| some).count();
            (some, all.len() - some)
        }

        /// None of it is out.
        fn end(mut self) {
            assert_eq!(self.counted(), (0, 0));
            assert!(self.unused.count > 0);
            while let Some(at) = self.unused.pop() {
                // SAFETY: it came so, and nobody else knows it.
                unsafe { dealloc(at.as_ptr(), SLAB) };
            }
        }
    }

    /// How much of a block the tests fill: under Miri, which is slow, only the beginning.
    fn tested_bytes(slabs: &Slabs) -> usize {
        if cfg!(miri) { 8 } else { slabs.size }
    }

    /// Draws up to `most` blocks, and fills each with a byte of its own.
    fn draw(slabs: &mut Slabs, most: usize, out: &mut Vec<NonNull<u8>>) {
        let mut drawn = slabs.draw(most);
        assert!((1..=most).contains(&drawn.count()));
        while let Some(block) = drawn.pop() {
            // SAFETY: it has that size, and nobody else has it.
            unsafe { block.write_bytes(block.addr().get().div_euclid(LINE) as u8, tested_bytes(slabs)) };
            out.push(block);
        }
    }

    fn give_back(slabs: &mut Slabs, out: impl IntoIterator<Item = NonNull<u8>>) {
        let mut blocks = Blocks::NONE;
        for block in out {
            let filled = block.addr().get().div_euclid(LINE) as u8;
            // SAFETY: it has that size, and was filled.
            let written = unsafe { NonNull::slice_from_raw_parts(block, tested_bytes(slabs)).as_ref() };
            assert!(written.iter().all(|&byte| byte == filled), "somebody wrote there");
            // SAFETY: it was drawn, and is given back once.
            unsafe { blocks.push(block) };
        }
        // SAFETY: each block was drawn from these slabs, and is given back once.
        unsafe { slabs.give_back(blocks) };
    }

    #[test]
    fn blocks_begin_lines_and_none_is_part_of_another() {
        for size in (LINE..=1024).step_by(LINE) {
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
    #[cfg_attr(miri, ignore = "it takes the interpreter a minute, and uses what the other tests use")]
    fn what_was_used_goes_back_but_for_some() {
        let mut slabs = Slabs::new(1024);
        let mut out = Vec::new();
        while slabs.used < 400 {
            draw(&mut slabs, 1, &mut out);
        }
        // Those that stay are used again before the allocator is asked.
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
    fn a_slab_is_begun_only_when_all_others_have_nothing() {
        let mut slabs = Slabs::new(512);
        let (mut out, mut most) = (Vec::new(), 0);
        let mut chance = Rng::seeded(1);
        for round in 0..if cfg!(miri) { 200 } else { 20_000 } {
            // More and more, then less and less, and so again.
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
        assert!(most > 3 * slabs.blocks(), "only {most} at a time");
        give_back(&mut slabs, out);
        slabs.end();
    }
}
