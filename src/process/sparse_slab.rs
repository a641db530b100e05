//! Frees the memory of a table after a burst, although some entries of the table remain in use.
//!
//! The entries of a table cannot move, because their indices identify them. Therefore only the vacant entries behind
//! the last used entry can be freed. To free them, the table processes all its entries. So it frees entries only if at
//! most a quarter of its capacity is in use and the last quarter is vacant. Each time, the capacity decreases by at
//! least a quarter. Therefore all these operations together take a time that is linear in the size of the burst.

use std::ops::Deref;

use slab::Slab;

/// Number of the used entries in the last quarter of a table.
#[derive(Debug, Default)]
pub(crate) struct LastQuarter {
    start: usize,
    used: usize,
}

impl LastQuarter {
    /// Counts an entry that the table uses now. `capacity` is the capacity of the table. If the capacity has grown,
    /// counts all used entries of the last quarter again. Before the capacity can grow, the table uses its last entry,
    /// which is in the last quarter. Therefore the usual case is one comparison.
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

    /// Subtracts an entry that the table uses no longer.
    #[inline]
    pub(crate) fn remove(&mut self, index: usize) {
        if index >= self.start {
            self.used -= 1;
        }
    }

    #[inline]
    pub(crate) fn is_vacant(&self) -> bool {
        self.used == 0
    }

    /// Counts the used entries of the last quarter of a table with this capacity.
    pub(crate) fn count(&mut self, capacity: usize, is_used: impl Fn(usize) -> bool) {
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
        if capacity > KEPT && self.last_quarter.is_vacant() && self.slab.len() <= capacity / 4 {
            self.shrink();
        }
        value
    }

    #[cold]
    fn shrink(&mut self) {
        if self.slab.is_empty() {
            *self = Self::default();
        } else {
            self.slab.shrink_to_fit();
            self.last_quarter.count(self.slab.capacity(), |index| self.slab.contains(index));
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

    /// 4.7j: each entry is inserted and removed in random order. The number of the used entries in the last quarter is
    /// exact, each release of memory frees at least a quarter, and the memory of the burst is freed in the end.
    #[test]
    fn each_release_frees_at_least_a_quarter() {
        const BURST: usize = 100_000;
        let (mut slab, mut rng) = (SparseSlab::<usize, 0>::default(), Rng::seeded(1));
        let mut indices = Vec::new();
        let mut releases = 0;
        for step in 0..3 * BURST {
            let former = slab.capacity();
            if step < BURST || rng.below(4) == 0 {
                indices.push(slab.insert(step));
            } else if indices.len() > 3 {
                // The first three entries remain.
                let at = 3 + rng.below(indices.len() - 3);
                let _ = slab.remove(indices.swap_remove(at));
                let now = slab.capacity();
                assert!(now == former || now <= former - former / 4, "{former} to {now}");
                releases += usize::from(now != former);
            }
            if step % 1_000 == 0 {
                let used = (slab.last_quarter.start..slab.capacity()).filter(|&index| slab.contains(index)).count();
                assert_eq!((slab.last_quarter.start, slab.last_quarter.used), (start(slab.capacity()), used));
            }
        }
        assert!(releases > 3 && slab.capacity() <= 64, "{releases} releases to {}", slab.capacity());
        assert_eq!(indices[..3].iter().map(|&index| slab.remove(index)).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
