//! Index of the slabs by address. The index finds the slab that contains a block.
//!
//! The address space is divided into windows. Each window is as long as a slab, so at most one slab begins in a window.
//! One byte per window stores the position at which the slab begins. An address before this position belongs to the
//! slab that begins in the previous window. A million processes occupy twenty thousand windows, and the bytes of these
//! windows stay in the cache. A hash table with one entry for each slab would not stay in the cache. With a hash table
//! of slabs, the bench `sleep` took 1.1 times as long.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of windows in a page.
const WINDOWS: usize = 256;

/// Marks a window in which no slab begins.
const NONE: u8 = u8::MAX;

/// Set of slabs of `LENGTH` bytes that begin at multiples of `UNIT` bytes.
#[derive(Debug)]
pub(super) struct Places<const LENGTH: usize, const UNIT: usize> {
    /// The pages that contain the beginning of a slab, indexed by page number.
    pages: HashMap<usize, Box<Page>, BuildHasherDefault<Hash>>,
}

#[derive(Debug)]
struct Page {
    /// For each window, the position at which a slab begins. The position is counted in units of `UNIT` bytes.
    begins: [u8; WINDOWS],
    /// Number of windows of this page in which a slab begins.
    count: usize,
}

impl Page {
    const EMPTY: Self = Self { begins: [NONE; WINDOWS], count: 0 };
}

impl<const LENGTH: usize, const UNIT: usize> Places<LENGTH, UNIT> {
    pub(super) const fn new() -> Self {
        assert!(LENGTH.div_ceil(UNIT) <= NONE as usize, "the position at which a slab begins must fit into one byte");
        Self { pages: HashMap::with_hasher(BuildHasherDefault::new()) }
    }

    /// Adds the slab that begins at this address.
    pub(super) fn insert(&mut self, slab: usize) {
        let (window, within) = (slab / LENGTH, slab % LENGTH);
        let page = self.pages.entry(window / WINDOWS).or_insert_with(|| Box::new(Page::EMPTY));
        page.begins[window % WINDOWS] = u8::try_from(within / UNIT).expect("the position of the slab fits into a byte");
        page.count += 1;
    }

    /// Removes the slab that begins at this address.
    pub(super) fn remove(&mut self, slab: usize) {
        let window = slab / LENGTH;
        let page = self.pages.get_mut(&(window / WINDOWS)).expect("it was noted");
        page.begins[window % WINDOWS] = NONE;
        page.count -= 1;
        if page.count == 0 {
            self.pages.remove(&(window / WINDOWS));
        }
    }

    /// Returns the address of the slab that contains `address`. The caller ensures that `address` is part of a slab.
    #[inline]
    pub(super) fn of(&self, address: usize) -> usize {
        let window = address / LENGTH;
        match self.begin(window) {
            Some(begin) if begin <= address => begin,
            _ => self.begin(window - 1).expect("the block is part of a slab"),
        }
    }

    #[inline]
    fn begin(&self, window: usize) -> Option<usize> {
        match self.pages.get(&(window / WINDOWS))?.begins[window % WINDOWS] {
            NONE => None,
            units => Some(window * LENGTH + usize::from(units) * UNIT),
        }
    }
}

/// Multiplicative hash of a page number (Knuth, "The Art of Computer Programming", volume 3, section 6.4). The high
/// half of the product is mixed well. The rotation moves the high half to the bits that the hash table uses.
#[derive(Debug, Default)]
struct Hash(u64);

impl Hasher for Hash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("pages have numbers");
    }

    #[inline]
    fn write_usize(&mut self, page: usize) {
        self.0 = (page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;

    #[test]
    fn the_index_finds_a_slab_from_each_of_its_addresses() {
        const LENGTH: usize = 16_256;
        const UNIT: usize = 128;
        let (mut places, mut chance) = (Places::<LENGTH, UNIT>::new(), Rng::seeded(1));
        // The slabs are adjacent, separated by gaps, or far apart.
        let (mut all, mut next) = (Vec::new(), 7 * UNIT);
        for _ in 0..if cfg!(miri) { 200 } else { 5_000 } {
            all.push(next);
            next += LENGTH + UNIT * [0, 1, chance.below(400), 1 << 20][chance.below(4)];
        }
        all.iter().for_each(|&slab| places.insert(slab));
        while !all.is_empty() {
            for &slab in all.iter().take(50) {
                let within = [0, UNIT, chance.below(LENGTH), LENGTH - 1];
                assert!(within.iter().all(|within| places.of(slab + within) == slab), "{slab}");
            }
            for _ in 0..100 {
                places.remove(all.swap_remove(chance.below(all.len())));
            }
        }
        assert!(places.pages.is_empty());
    }
}
