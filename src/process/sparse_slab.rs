//! Frees the memory of a table after a burst, although some entries of the table remain in use.
//!
//! The entries of a table cannot move, because their indices identify them. Therefore only the vacant entries behind
//! the last used entry can be freed.

use slab::Slab;

/// Decides when a table frees its vacant entries.
///
/// To free entries, the table processes all its entries. Therefore it frees entries only if its last quarter is vacant.
/// So all these calls together take a time that is linear in the size of a burst.
#[derive(Debug)]
pub(crate) struct VacantEntries {
    /// Number of entries that must be removed before the last quarter is checked again.
    wait: u32,
    /// The used entry that the last check has found. While this entry is in use, no memory can be freed.
    last_used: u32,
}

impl Default for VacantEntries {
    fn default() -> Self {
        Self { wait: 0, last_used: u32::MAX }
    }
}

impl VacantEntries {
    /// Returns whether the table must free the vacant entries behind its last used entry. The caller has removed
    /// `count` entries. Now at most a quarter of the table is in use. The table has `len` used entries and a
    /// `capacity` of at most 2^32 entries.
    #[cold]
    pub(crate) fn must_be_freed(
        &mut self,
        count: usize,
        len: usize,
        capacity: usize,
        is_used: impl Fn(usize) -> bool,
    ) -> bool {
        // The table may have lost many entries since the last check, while more than a quarter was in use.
        let wait = u32::try_from(len / 4).unwrap_or(u32::MAX);
        self.wait = self.wait.min(wait).saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        let quarter = capacity - capacity / 4..capacity;
        let last_used = self.last_used as usize;
        if self.wait > 0 || quarter.contains(&last_used) && is_used(last_used) {
            return false;
        }
        self.wait = wait;
        match quarter.rev().find(|&index| is_used(index)) {
            Some(index) => {
                self.last_used = index as u32;
                false
            }
            None => true,
        }
    }
}

/// Frees the memory of a slab after a burst.
#[derive(Debug, Default)]
pub(crate) struct SparseSlab(VacantEntries);

impl SparseSlab {
    /// Frees the memory of vacant entries, if at most a quarter of the slab is in use and the last quarter of the slab
    /// is vacant. The caller has removed `count` entries. A slab with a capacity of at most `kept` frees no memory.
    #[inline]
    pub(crate) fn freed<T>(&mut self, slab: &mut Slab<T>, count: usize, kept: usize) {
        if slab.capacity() > kept && slab.len() <= slab.capacity() / 4 {
            self.shrink(slab, count);
        }
    }

    #[cold]
    fn shrink<T>(&mut self, slab: &mut Slab<T>, count: usize) {
        if slab.is_empty() {
            *slab = Slab::new();
        } else if self.0.must_be_freed(count, slab.len(), slab.capacity(), |index| slab.contains(index)) {
            slab.shrink_to_fit();
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;

    /// 4.7j: a slab loses the entries of a burst in random order. The slab is not shrunk while a used entry is in its
    /// last quarter.
    #[test]
    fn each_shrink_frees_at_least_a_quarter() {
        const BURST: usize = 100_000;
        let (mut slab, mut sparse, mut rng) = (Slab::new(), SparseSlab::default(), Rng::seeded(1));
        let mut indices: Vec<usize> = (0..BURST).map(|n| slab.insert(n)).collect();
        let (mut former, mut shrinks) = (slab.capacity(), 0);
        while indices.len() > 3 {
            // The first three entries remain. A new entry now and then uses the entry that was freed last.
            let at = 3 + rng.below(indices.len() - 3);
            let index = indices.swap_remove(at);
            let _ = slab.remove(index);
            sparse.freed(&mut slab, 1, 0);
            let now = slab.capacity();
            assert!(now == former || now <= former - former / 4, "{former} to {now}");
            shrinks += usize::from(now != former);
            former = now;
            if rng.below(4) == 0 {
                indices.push(slab.insert(0));
                former = slab.capacity();
            }
        }
        assert!(shrinks > 3 && slab.capacity() <= 4, "{shrinks} shrinks to {}", slab.capacity());
    }
}
