//! Exponential backoff: computes the delay before the next attempt. The delays grow up to a maximum, with jitter. This
//! module does not wait for the delays.

use std::time::Duration;

/// Sequence of delays that grow up to a maximum. After a stable period, the sequence starts again at the first delay.
///
/// Each delay is random, with a uniform distribution between zero and the full length of this delay. Therefore
/// processes that failed together do not restart together. The name of this method is *full jitter*: see Brooker,
/// *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015.
///
/// ```
/// # use std::time::Duration;
/// # use procession::Backoff;
/// // At most 10 ms, 20 ms, 40 ms and so on, up to 1 s. After a run of a minute, again at most 10 ms.
/// let backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1)).reset_after(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    factor: u32,
    jitter: bool,
    reset_after: Duration,
}

impl Backoff {
    /// Creates a backoff. The full length of the first delay is `first`, and the full length doubles with each further
    /// delay, up to `most`. If `most` is shorter than `first`, the full length of each delay is `most`. The backoff has
    /// jitter. After a stable period of ten times `most`, the backoff starts again at `first`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, factor: 2, jitter: true, reset_after: most.saturating_mul(10) }
    }

    /// Sets the ratio of each delay to the previous delay. Default: 2. With a ratio of 1 or 0, all delays have the full
    /// length of the first delay.
    #[must_use]
    pub const fn factor(mut self, factor: u32) -> Self {
        self.factor = factor;
        self
    }

    /// Sets whether the delays have jitter. With jitter, each delay is random. Without jitter, each delay has its full
    /// length. Default: random.
    #[must_use]
    pub const fn jitter(mut self, on: bool) -> Self {
        self.jitter = on;
        self
    }

    /// Sets the maximum delay.
    #[must_use]
    pub(crate) const fn ceiling(mut self, most: Duration) -> Self {
        self.most = most;
        self
    }

    /// Sets the length of a stable period. After a run of at least this length, the next delay is the first delay
    /// again. Default: ten times the maximum delay.
    #[must_use]
    pub const fn reset_after(mut self, stable: Duration) -> Self {
        self.reset_after = stable;
        self
    }

    /// Returns true if a run of this length is stable.
    pub(crate) fn is_stable(&self, lived: Duration) -> bool {
        lived >= self.reset_after
    }

    /// Returns the next delay. `before` is the number of delays since the last stable period. The closure `random`
    /// returns a random number for the jitter.
    pub(crate) fn wait(&self, before: u32, random: impl FnOnce() -> u64) -> Duration {
        const SECOND: u128 = 1_000_000_000;
        let factor = u128::from(self.factor.max(1)).saturating_pow(before);
        let ns = self.first.as_nanos().saturating_mul(factor).min(self.most.as_nanos());
        // The number of seconds fits into a `u64`, because the delay is not longer than `most`.
        let full = Duration::new((ns / SECOND) as u64, (ns % SECOND) as u32);
        if !self.jitter {
            return full;
        }
        let ns = u64::try_from(full.as_nanos()).unwrap_or(u64::MAX);
        let drawn = (u128::from(random()) * (u128::from(ns) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX))
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn plain(first: Duration, most: Duration) -> Backoff {
        Backoff::new(first, most).jitter(false)
    }

    #[test]
    fn delays_grow_up_to_the_maximum() {
        let waits = |backoff: Backoff| [0, 1, 2, 3, 31, 32, u32::MAX].map(|n| backoff.wait(n, || 0).as_millis());
        assert_eq!(waits(plain(MS(10), MS(60))), [10, 20, 40, 60, 60, 60, 60]);
        assert_eq!(waits(plain(MS(10), MS(100)).factor(3)), [10, 30, 90, 100, 100, 100, 100]);
        assert_eq!(waits(plain(MS(0), MS(60))), [0; 7]);
        assert_eq!(waits(plain(MS(10), MS(0))), [0; 7]);
        for factor in [0, 1] {
            assert_eq!(waits(plain(MS(10), MS(60)).factor(factor)), [10; 7]);
        }
        assert_eq!(plain(Duration::MAX, Duration::MAX).wait(9, || 0), Duration::MAX);
        // The growth does not stop when the power of the factor exceeds 32 bits.
        assert_eq!(plain(Duration::from_nanos(1), Duration::from_secs(60)).wait(40, || 0), Duration::from_secs(60));
    }

    #[test]
    fn jittered_delays_range_from_zero_to_the_full_delay() {
        let backoff = Backoff::new(MS(10), MS(60));
        let draws = [0, 1 << 63, u64::MAX].map(|random| backoff.wait(1, || random).as_millis());
        assert_eq!(draws, [0, 10, 20]);
        let endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(endless.wait(0, || u64::MAX), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn a_stable_run_resets_the_backoff() {
        let backoff = Backoff::new(MS(10), MS(100));
        assert!(!backoff.is_stable(MS(999)) && backoff.is_stable(MS(1_000)));
        assert!(backoff.reset_after(Duration::ZERO).is_stable(Duration::ZERO));
        assert!(!Backoff::new(MS(1), Duration::MAX).is_stable(Duration::from_secs(1_000_000)));
    }
}
