//! `Histogram`: a distribution of durations with a relative resolution of a quarter. `Buckets` counts the durations.
//!
//! `Metrics` decides which thread counts in which buckets, and when.

use std::fmt;
use std::iter::Sum;
use std::ops::Sub;
use std::time::Duration;

use crate::platform::sync::OnceLock;
use crate::platform::sync::tally::AtomicU64;
use crate::platform::sync::tally::Ordering::Relaxed;

/// Distribution of durations.
///
/// The histogram is log-linear, that is, each power of two of nanoseconds is divided into four buckets. Therefore, each
/// duration between one nanosecond and 584 years is recorded with an error of at most a quarter of the duration. There
/// are 252 buckets, which take two kilobytes. Each count wraps around at 2⁶⁴. The histogram keeps no sum of the
/// durations, so it has no mean. Use [`quantile`](Self::quantile) instead.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
}

impl Histogram {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &n| sum.wrapping_add(n))
    }

    /// Returns the `q`-quantile: a fraction `q` of the durations does not exceed the result. For example,
    /// `quantile(0.99)` is the 99th percentile. The result is the upper end of a bucket. Therefore the result is too
    /// long by at most a quarter. `q` is clamped to the range from 0 to 1. Returns `None` if there are no durations.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // For a NaN or a `q` below 0, the rank is 1.
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0_u64;
        let found = self.buckets.iter().position(|&n| {
            seen = seen.saturating_add(n);
            seen >= rank
        });
        found.map(|bucket| Duration::from_nanos(longest(bucket)))
    }
}

/// Returns the durations between two snapshots: `later - earlier`. Counts wrap around, as in `Counters`.
impl Sub for Histogram {
    type Output = Self;
    fn sub(mut self, earlier: Self) -> Self {
        for (n, before) in self.buckets.iter_mut().zip(&earlier.buckets) {
            *n = n.wrapping_sub(*before);
        }
        self
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.buckets.iter().enumerate().filter(|&(_, &n)| n != 0);
        f.debug_map().entries(filled.map(|(bucket, n)| (Duration::from_nanos(longest(bucket)), n))).finish()
    }
}

/// Returns the sum of the buckets of several threads.
impl<'a> Sum<&'a Buckets> for Histogram {
    fn sum<I: Iterator<Item = &'a Buckets>>(parts: I) -> Self {
        let mut buckets = vec![0_u64; BUCKETS].into_boxed_slice();
        for part in parts {
            for (sum, count) in buckets.iter_mut().zip(part.0.get().into_iter().flatten()) {
                *sum = sum.wrapping_add(count.load(Relaxed));
            }
        }
        Self { buckets }
    }
}

/// The buckets of a histogram to which threads still add durations. The buckets take two kilobytes. The memory is
/// allocated at the first duration, because a runtime has one `Buckets` for each possible worker.
#[derive(Debug)]
pub(crate) struct Buckets(OnceLock<Box<[AtomicU64]>>);

impl Buckets {
    pub(crate) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the counter for durations of this length.
    #[inline]
    pub(crate) fn of(&self, ns: u64) -> &AtomicU64 {
        let buckets = self.0.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        &buckets[bucket(ns)]
    }
}

/// Four buckets per power of two. The first two powers contain only the four values 0 to 3, and each of these values
/// has its own bucket.
const BUCKETS: usize = 4 + 62 * 4;

/// Returns the bucket of a duration. The position of the highest set bit and the next two bits select the bucket.
const fn bucket(ns: u64) -> usize {
    if ns < 4 {
        return ns as usize;
    }
    let power = ns.ilog2();
    let quarter = (ns >> (power - 2)) & 3;
    (power as usize - 1) * 4 + quarter as usize
}

/// Returns the longest duration of a bucket.
const fn longest(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let power = bucket / 4 + 1;
    let width = 1_u64 << (power - 2);
    // The sum of the lowest duration and the width would overflow for the last bucket, so 1 is subtracted before the
    // addition.
    (4 + bucket as u64 % 4) * width + (width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_duration_without_a_gap() {
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(longest(BUCKETS - 1), u64::MAX);
        for b in 0..BUCKETS {
            let end = longest(b);
            assert_eq!(bucket(end), b);
            if let Some(next) = end.checked_add(1) {
                assert_eq!(bucket(next), b + 1);
                assert!(longest(b + 1) - next <= next / 4, "bucket {} is too wide", b + 1);
            }
        }
    }

    #[test]
    fn quantiles_are_the_upper_ends_of_buckets() {
        let buckets = Buckets::new();
        for ms in 1..=100 {
            buckets.of(ms * 1_000_000).fetch_add(1, Relaxed);
        }
        let delays: Histogram = [&buckets].into_iter().sum();
        assert_eq!(delays.count(), 100);
        for (q, ms) in [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100), (9.0, 100), (-1.0, 1), (f64::NAN, 1)] {
            let found = delays.quantile(q).expect("there are some");
            let exact = Duration::from_millis(ms);
            assert!(found >= exact && found <= exact + exact / 4, "{q}: {found:?}");
        }
    }

    #[test]
    fn a_sum_of_buckets_prints_as_a_map() {
        let parts = [Buckets::new(), Buckets::new()];
        for (part, ns) in [(0, 1), (1, 1), (1, 5)] {
            parts[part].of(ns).fetch_add(1, Relaxed);
        }
        let sum: Histogram = parts.iter().sum();
        assert_eq!(format!("{sum:?}"), "{1ns: 2, 5ns: 1}");
    }
}
