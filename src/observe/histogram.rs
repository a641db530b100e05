//! `Histogram`: how many durations there were of which length, to within a quarter of it; and the buckets that they are
//! counted in. Who counts where, and when, is for `Metrics` to say.

use std::fmt;
use std::iter::Sum;
use std::ops::Sub;
use std::time::Duration;

use crate::platform::sync::OnceLock;
use crate::platform::sync::tally::AtomicU64;
use crate::platform::sync::tally::Ordering::Relaxed;

/// How many durations there were of which length.
///
/// Log-linear: each power of two of nanoseconds is divided into four buckets, so a duration is known to a quarter
/// of its own size, from a nanosecond to 584 years.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
}

impl Histogram {
    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &n| sum.wrapping_add(n))
    }

    /// A duration that this part of them did not exceed: `quantile(0.99)` is the 99th percentile. It is the upper end of
    /// a bucket, at most a quarter too long. `q` is taken to be between 0 and 1; `None` if there are no durations.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // A NaN becomes rank 1 here, as does anything below.
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
        let mut seen = 0_u64;
        let found = self.buckets.iter().position(|&n| {
            seen = seen.saturating_add(n);
            seen >= rank
        });
        found.map(|bucket| Duration::from_nanos(longest(bucket)))
    }
}

/// The durations that came between two snapshots, the later one first; wraps around as `Counters` do.
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

/// The sum of what several threads wrote, each in its own place.
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

/// The counts of a histogram while it is written. They take two kilobytes, and none before the first is counted: a
/// runtime has a block of them for every worker that it might have.
#[derive(Debug)]
pub(crate) struct Buckets(OnceLock<Box<[AtomicU64]>>);

impl Buckets {
    pub(crate) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Where durations of this length are counted.
    #[inline]
    pub(crate) fn of(&self, ns: u64) -> &AtomicU64 {
        let buckets = self.0.get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        &buckets[bucket(ns)]
    }
}

/// Four buckets to a power of two; the first two powers have only four values together, a bucket for each.
const BUCKETS: usize = 4 + 62 * 4;

/// The bucket of a length: its three leading binary digits are the address.
const fn bucket(ns: u64) -> usize {
    if ns < 4 {
        return ns as usize;
    }
    let power = ns.ilog2();
    let quarter = (ns >> (power - 2)) & 3;
    (power as usize - 1) * 4 + quarter as usize
}

/// The longest duration of a bucket.
const fn longest(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let power = bucket / 4 + 1;
    let width = 1_u64 << (power - 2);
    // The lowest of the bucket plus its width would overflow in the last one.
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
    fn quantiles_are_upper_ends() {
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
    fn parts_add_up_and_read_as_a_map() {
        let parts = [Buckets::new(), Buckets::new()];
        for (part, ns) in [(0, 1), (1, 1), (1, 5)] {
            parts[part].of(ns).fetch_add(1, Relaxed);
        }
        let sum: Histogram = parts.iter().sum();
        assert_eq!(format!("{sum:?}"), "{1ns: 2, 5ns: 1}");
    }
}
