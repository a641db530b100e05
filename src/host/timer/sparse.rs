//! Frees the memory of a slab of timers after a burst, although some timers of the slab remain.
//!
//! The entries of a slab cannot move, because their indices identify them. Therefore only the vacant entries behind the
//! last timer can be freed.

use slab::Slab;

/// Counts the freed entries of one slab, and decides when the slab frees memory.
#[derive(Debug, Default)]
pub(super) struct SparseSlab {
    /// Number of entries that must be freed before the slab frees memory again. Freeing memory takes a time that is
    /// linear in the capacity. The slab frees memory each time that a quarter of its entries was removed, so the number
    /// of these times is logarithmic in the size of a burst.
    wait: usize,
}

impl SparseSlab {
    /// Frees the memory of vacant entries, if at most a quarter of the slab is in use. The caller has removed `count`
    /// entries. A slab with a capacity of at most `kept` frees no memory.
    #[inline]
    pub(super) fn freed<T>(&mut self, slab: &mut Slab<T>, count: usize, kept: usize) {
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

#[cfg(test)]
mod tests {
    use crate::host::timer::wheel::Wheel;
    use crate::platform::random::Rng;

    /// 4.7j: after a burst, the wheel frees memory although some older entries remain.
    #[test]
    fn the_memory_of_a_burst_is_freed_although_older_entries_remain() {
        const BURST: u64 = 100_000;
        let mut rng = Rng::seeded(1);
        for how in ["due", "cancelled in order", "cancelled in reverse order", "cancelled in random order"] {
            let mut wheel = Wheel::new();
            let older = [1 << 20, 1 << 30, u64::MAX].map(|tick| wheel.insert(tick, 0));
            let mut burst: Vec<_> = (0..BURST).map(|n| wheel.insert(1_000 + n / 10, n)).collect();
            let full = wheel.bytes();
            match how {
                "due" => {
                    while !wheel.advance(1_000 + BURST, 64) {}
                    assert_eq!(std::iter::from_fn(|| wheel.pop(u64::MAX)).count() as u64, BURST);
                }
                "cancelled in reverse order" => burst.reverse(),
                "cancelled in random order" => {
                    for n in 1..burst.len() {
                        burst.swap(n, (rng.next() % (n as u64 + 1)) as usize);
                    }
                }
                _ => {}
            }
            if how != "due" {
                for handle in burst {
                    assert!(wheel.remove(handle).is_some());
                }
            }
            assert_eq!(wheel.len(), 3);
            assert!(wheel.bytes() < full / 10, "{how}: {} of {full} bytes", wheel.bytes());
            let kept = older.map(|handle| wheel.remove(handle).map(|(_, tick)| tick));
            assert_eq!(kept, [Some(1 << 20), Some(1 << 30), Some(u64::MAX)]);
        }
    }
}
