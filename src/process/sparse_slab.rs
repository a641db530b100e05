//! Frees memory of a table after a burst of entries, although some entries of the table remain in use.
//!
//! The entries of a table cannot move, because their indices identify them. Therefore only the vacant entries behind
//! the last used entry can be freed. To free these vacant entries, the table visits all its entries, and sorts its list
//! of vacant entries: the lowest indices come first.
//!
//! A table frees entries only if at most a quarter of its capacity is in use, and only in one of two cases. First case:
//! the last quarter of the indices is vacant. The capacity then decreases by at least a quarter. Second case: the last
//! entry is vacant, and the number of entries that were removed since the previous release of memory is at least a 16th
//! of the capacity. Therefore, in total, the releases of memory visit at most about 16 entries for each removed entry.
//!
//! The second case is necessary if some entries are always in use after a burst. A new entry uses the index that most
//! recently became vacant. Therefore, the used entries can stay in the last quarter of the indices. Each time that
//! the second case applies, the next new entry uses a low index instead.

use std::ops::Deref;

use slab::Slab;

/// Decides when a table frees its vacant entries.
#[derive(Debug, Default)]
pub(crate) struct LastQuarter {
    /// Index of the first entry in the last quarter of the capacity.
    start: usize,
    /// Number of used entries in the last quarter of the capacity.
    used: usize,
    /// Number of entries that must still be removed before the second case can apply: see the module's documentation.
    wait: usize,
}

impl LastQuarter {
    /// Records that the table now uses the entry with this index. `capacity` is the capacity of the table. A table
    /// grows only when it is full, and the new entry then has an index in the last quarter. If the capacity has
    /// grown, this function counts all used entries of the last quarter again.
    #[inline]
    pub(crate) fn add(&mut self, index: usize, capacity: usize, is_used: impl Fn(usize) -> bool) {
        if index >= self.start {
            self.add_to_quarter(capacity, is_used);
        }
    }

    fn add_to_quarter(&mut self, capacity: usize, is_used: impl Fn(usize) -> bool) {
        if start(capacity) == self.start {
            self.used += 1;
        } else {
            self.count(capacity, is_used);
        }
    }

    /// Records that the table no longer uses the entry with this index.
    #[inline]
    pub(crate) fn remove(&mut self, index: usize) {
        if index >= self.start {
            self.used -= 1;
        }
    }

    /// Returns whether the table must free its vacant entries. The table has just removed an entry, and at most a
    /// quarter of the capacity of the table is in use. After the table has freed the vacant entries behind its last
    /// used entry, the table calls [`freed`](Self::freed).
    pub(crate) fn must_free(&mut self, is_last_used: bool) -> bool {
        self.wait = self.wait.saturating_sub(1);
        self.used == 0 || self.wait == 0 && !is_last_used
    }

    /// Records that the table has freed the vacant entries behind its last used entry, and that `capacity` is the new
    /// capacity of the table.
    pub(crate) fn freed(&mut self, capacity: usize, is_used: impl Fn(usize) -> bool) {
        self.wait = capacity / 16;
        self.count(capacity, is_used);
    }

    fn count(&mut self, capacity: usize, is_used: impl Fn(usize) -> bool) {
        self.start = start(capacity);
        self.used = (self.start..capacity).filter(|&index| is_used(index)).count();
    }
}

fn start(capacity: usize) -> usize {
    capacity - capacity / 4
}

/// Slab that frees memory after a burst. A slab with a capacity of at most `KEPT` frees no memory.
#[derive(Debug)]
pub(crate) struct SparseSlab<T, const KEPT: usize> {
    slab: Slab<T>,
    last_quarter: LastQuarter,
}

impl<T, const KEPT: usize> Default for SparseSlab<T, KEPT> {
    fn default() -> Self {
        Self { slab: Slab::new(), last_quarter: LastQuarter::default() }
    }
}

impl<T, const KEPT: usize> SparseSlab<T, KEPT> {
    /// Stores a value and returns its index.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let index = self.slab.insert(value);
        self.last_quarter.add(index, self.slab.capacity(), |index| self.slab.contains(index));
        index
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slab.get_mut(index)
    }

    /// Takes out a value.
    ///
    /// # Panics
    /// Panics if there is no value at this index.
    #[inline]
    pub(crate) fn remove(&mut self, index: usize) -> T {
        let value = self.slab.remove(index);
        self.last_quarter.remove(index);
        let capacity = self.slab.capacity();
        if capacity > KEPT && self.slab.len() <= capacity / 4 {
            self.shrink(capacity);
        }
        value
    }

    #[cold]
    fn shrink(&mut self, capacity: usize) {
        if self.slab.is_empty() {
            *self = Self::default();
        } else if self.last_quarter.must_free(self.slab.contains(capacity - 1)) {
            self.slab.shrink_to_fit();
            self.last_quarter.freed(self.slab.capacity(), |index| self.slab.contains(index));
        }
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = T> {
        self.slab.into_iter().map(|(_, value)| value)
    }
}

impl<T, const KEPT: usize> Deref for SparseSlab<T, KEPT> {
    type Target = Slab<T>;

    #[inline]
    fn deref(&self) -> &Slab<T> {
        &self.slab
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::platform::random::Rng;

    /// 4.7j: entries are inserted and removed in random order. The counter of used entries in the last quarter stays
    /// exact, and the memory of the burst is freed at the end. In total, the releases of memory visit at most 16
    /// entries for each removed entry.
    #[test]
    fn the_releases_take_a_time_that_is_linear_in_the_number_of_removed_entries() {
        const BURST: usize = 100_000;
        let (mut slab, mut rng) = (SparseSlab::<usize, 0>::default(), Rng::seeded(1));
        let mut indices = Vec::new();
        let (mut processed, mut removed) = (0, 0);
        for step in 0..3 * BURST {
            if step < BURST || rng.below(4) == 0 {
                indices.push(slab.insert(step));
            } else if indices.len() > 3 {
                // The first three entries remain.
                let at = 3 + rng.below(indices.len() - 3);
                let former = slab.capacity();
                let _ = slab.remove(indices.swap_remove(at));
                removed += 1;
                processed += if slab.capacity() == former { 0 } else { former };
            }
            if step % 1_000 == 0 {
                let used = (slab.last_quarter.start..slab.capacity()).filter(|&index| slab.contains(index)).count();
                assert_eq!((slab.last_quarter.start, slab.last_quarter.used), (start(slab.capacity()), used));
            }
        }
        assert!(processed <= 16 * removed, "{processed} entries for {removed} removals");
        assert!(slab.capacity() <= 64, "{}", slab.capacity());
        assert_eq!(indices[..3].iter().map(|&index| slab.remove(index)).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// After half of the entries of a burst were removed, the other entries are removed from the last to the first. In
    /// total, the releases of memory visit at most 16 entries for each removed entry.
    #[test]
    fn removals_from_the_last_to_the_first_entry_take_linear_time() {
        const BURST: usize = 20_000;
        let mut slab = SparseSlab::<usize, 0>::default();
        (0..BURST).for_each(|n| assert_eq!(slab.insert(n), n));
        let first_half = 0..BURST / 2;
        let mut processed = 0;
        for index in first_half.clone().chain((first_half.end..BURST).rev()) {
            let former = slab.capacity();
            let _ = slab.remove(index);
            processed += if slab.capacity() == former { 0 } else { former };
        }
        assert!(processed <= 16 * BURST, "{processed} entries");
    }

    /// 4.7j: after a burst, each new entry is inserted before an older entry is removed. The memory of the burst is
    /// freed although some entries are always in use.
    #[test]
    fn the_memory_of_a_burst_is_freed_while_entries_overlap() {
        const BURST: usize = 100_000;
        for alive in [2, 50] {
            let mut slab = SparseSlab::<(), 0>::default();
            let mut indices: std::collections::VecDeque<_> = (0..BURST).map(|_| slab.insert(())).collect();
            for _ in 0..BURST {
                if indices.len() <= alive {
                    indices.push_back(slab.insert(()));
                }
                slab.remove(indices.pop_front().expect("some entries are in use"));
            }
            for _ in 0..6 * BURST {
                indices.push_back(slab.insert(()));
                slab.remove(indices.pop_front().expect("some entries are in use"));
            }
            assert!(slab.capacity() <= 4 * alive, "{} places for {alive} entries", slab.capacity());
        }
    }
}
