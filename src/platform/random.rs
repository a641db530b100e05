//! Where chance enters: a seed from the system, and the generator that everything else draws from. No other file may
//! ask the system for chance, so that a simulation which hands out its own seed decides everything.

#![allow(clippy::disallowed_types)]

use std::hash::{BuildHasher, RandomState};

/// A number that differs from run to run and from call to call. Not for secrets.
pub(crate) fn seed() -> u64 {
    // Std seeds the keys from the system once a thread and changes them at each `new`.
    RandomState::new().hash_one(0_u8)
}

/// SplitMix64: Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014, figure 17. One word of
/// state, any seed will do, every value comes once in 2^64 draws.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 if `n` is 0.
    ///
    /// Lemire, *Fast random integer generation in an interval*, 2019, without the rejection step: a number is at most
    /// n / 2^64 likelier than another, which no choice of a scheduler can feel.
    #[inline]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = Rng::seeded(1_234_567);
        let drawn = [(); 3].map(|()| rng.next());
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut rng = Rng::seeded(1);
        let mut hits = [0; 7];
        for _ in 0..7_000 {
            hits[rng.below(7)] += 1;
        }
        assert!(hits.iter().all(|&n| (800..1_200).contains(&n)), "{hits:?}");
        assert_eq!((rng.below(1), rng.below(0)), (0, 0));
        assert!(rng.below(usize::MAX) < usize::MAX);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
