//! Frees the memory of a slab after a burst, although some entries of the slab remain in use.
//!
//! The entries of a slab cannot move, because their indices identify them. Therefore only the vacant entries behind the
//! last used entry can be freed.

use slab::Slab;

/// Counts the freed entries of one slab, and decides when the slab frees memory.
#[derive(Debug, Default)]
pub(crate) struct SparseSlab {
    /// Number of entries that must be freed before the slab frees memory again. Freeing memory takes a time that is
    /// linear in the capacity. The slab frees memory each time that a quarter of its entries was removed, so the number
    /// of these times is logarithmic in the size of a burst.
    wait: usize,
}

impl SparseSlab {
    /// Frees the memory of vacant entries, if at most a quarter of the slab is in use. The caller has removed `count`
    /// entries. A slab with a capacity of at most `kept` frees no memory.
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
            return;
        }
        // The slab may have lost many entries since it last freed memory, while more than a quarter was in use.
        self.wait = self.wait.min(slab.len() / 4).saturating_sub(count);
        // If the last entry is in use, no memory can be freed.
        if self.wait == 0 && !slab.contains(slab.capacity() - 1) {
            slab.shrink_to_fit();
            self.wait = slab.len() / 4;
        }
    }
}
