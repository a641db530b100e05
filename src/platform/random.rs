//! Random numbers: a function that gets a seed from the system, and the generator that all other code uses.
//!
//! No other file gets random numbers from the system. Therefore, if a simulation chooses the seed, the seed determines
//! all random choices.

#![allow(clippy::disallowed_types)]

use std::hash::{BuildHasher, RandomState};

/// Returns a number that differs between runs and between calls. Do not use the number for secrets.
pub(crate) fn seed() -> u64 {
    // The standard library gets its random keys from the system once per thread, and changes the keys at each call of
    // `new`.
    RandomState::new().hash_one(0_u8)
}

/// SplitMix64: Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014, figure 17. The state
/// of the generator is one word. The generator accepts any seed, and returns every value once in 2^64 calls.
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

    /// Returns a number below `n`. If `n` is 0, returns 0.
    ///
    /// The algorithm is from Lemire, *Fast random integer generation in an interval*, 2019. This function omits the
    /// rejection step of the algorithm. As a result, the probabilities of two numbers may differ by 2^-64. This
    /// difference does not matter for a scheduler.
    #[inline]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_returns_the_published_sequence() {
        let mut rng = Rng::seeded(1_234_567);
        let drawn = [(); 3].map(|()| rng.next());
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_method_named_below_returns_every_number_less_than_n_and_no_other_number() {
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
    fn two_seeds_from_the_system_are_different() {
        assert_ne!(seed(), seed());
    }
}
