//! How long to wait before the next try: longer each time, up to a ceiling, and never quite the same.

use std::time::Duration;

/// Waits that grow from the first to a ceiling, and begin anew after a stable time.
///
/// Each is drawn evenly from between zero and its full length, so that those who failed together do not come back
/// together: the *full jitter* of Brooker, *Exponential Backoff And Jitter*, AWS Architecture Blog, 2015.
///
/// ```
/// # use std::time::Duration;
/// # use procession::Backoff;
/// // 10 ms, 20 ms, 40 ms … 1 s at most; from the first again after a life of a minute.
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
    /// From `first`, twice as long each time, to `most`, which holds also if it is the shorter one. Reset after ten times
    /// `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, factor: 2, jitter: true, reset_after: most.saturating_mul(10) }
    }

    /// How many times longer each wait is than the one before (2). With 1, or 0, all are as long as the first.
    #[must_use]
    pub const fn factor(mut self, factor: u32) -> Self {
        self.factor = factor;
        self
    }

    /// Whether each wait is drawn (it is), or has its full length.
    #[must_use]
    pub const fn jitter(mut self, on: bool) -> Self {
        self.jitter = on;
        self
    }

    /// The longest wait.
    #[must_use]
    pub(crate) const fn ceiling(mut self, most: Duration) -> Self {
        self.most = most;
        self
    }

    /// How long what was tried must have gone well for the next wait to be the first again.
    #[must_use]
    pub const fn reset_after(mut self, stable: Duration) -> Self {
        self.reset_after = stable;
        self
    }

    /// Whether what went well for so long was stable.
    pub(crate) fn is_stable(&self, lived: Duration) -> bool {
        lived >= self.reset_after
    }

    /// The wait after so many others in a row, with a number to draw from.
    pub(crate) fn wait(&self, before: u32, random: impl FnOnce() -> u64) -> Duration {
        let factor = if self.factor > 1 { self.factor.saturating_pow(before) } else { 1 };
        let full = self.first.saturating_mul(factor).min(self.most);
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
    fn waits_grow_up_to_the_ceiling() {
        let waits = |backoff: Backoff| [0, 1, 2, 3, 31, 32, u32::MAX].map(|n| backoff.wait(n, || 0).as_millis());
        assert_eq!(waits(plain(MS(10), MS(60))), [10, 20, 40, 60, 60, 60, 60]);
        assert_eq!(waits(plain(MS(10), MS(100)).factor(3)), [10, 30, 90, 100, 100, 100, 100]);
        assert_eq!(waits(plain(MS(0), MS(60))), [0; 7]);
        assert_eq!(waits(plain(MS(10), MS(0))), [0; 7]);
        for factor in [0, 1] {
            assert_eq!(waits(plain(MS(10), MS(60)).factor(factor)), [10; 7]);
        }
        assert_eq!(plain(Duration::MAX, Duration::MAX).wait(9, || 0), Duration::MAX);
    }

    #[test]
    fn jitter_draws_from_zero_to_the_full_wait() {
        let backoff = Backoff::new(MS(10), MS(60));
        let draws = [0, 1 << 63, u64::MAX].map(|random| backoff.wait(1, || random).as_millis());
        assert_eq!(draws, [0, 10, 20]);
        let endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(endless.wait(0, || u64::MAX), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn a_stable_life_begins_anew() {
        let backoff = Backoff::new(MS(10), MS(100));
        assert!(!backoff.is_stable(MS(999)) && backoff.is_stable(MS(1_000)));
        assert!(backoff.reset_after(Duration::ZERO).is_stable(Duration::ZERO));
        assert!(!Backoff::new(MS(1), Duration::MAX).is_stable(Duration::from_secs(1_000_000)));
    }
}
