//! `Histogram`: a distribution of durations. The error of a recorded duration is at most a quarter of the duration.
//! `Buckets` counts the durations.
//!
//! `Metrics` decides which thread adds a duration to which `Buckets`, and when.

use std::fmt;
use std::iter::Sum;
use std::ops::Sub;
use std::time::Duration;

use crate::platform::sync::OnceLock;
use crate::platform::sync::tally::AtomicU64;
use crate::platform::sync::tally::Ordering::Relaxed;

/// Distribution of durations.
///
/// The histogram is log-linear: it divides the range from one power of two to the next power, in nanoseconds, into four
/// buckets. Therefore, the error of each recorded duration is at most a quarter of the duration. The longest possible
/// duration is 584 years. There are 252 buckets, which take two kilobytes. Each count and the sum wrap around at 2⁶⁴.
///
/// `Display` prints the number of durations and three quantiles, for example `4096, p50 1.023µs, p99 4.095µs, p99.9
/// 8.191µs`. With the feature `serde`, a histogram implements `Serialize`.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
    /// Sum of the durations, in ns.
    sum: u64,
}

impl Histogram {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &n| sum.wrapping_add(n))
    }

    /// Returns the exact sum of the durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the exact mean of the durations. Returns `None` if there are no durations.
    pub fn mean(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.sum.checked_div(self.count())?))
    }

    /// Returns the buckets that contain durations, in ascending order. Each item consists of the upper bound of a
    /// bucket, and the number of durations in this bucket. The bucket includes its upper bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|&(_, &n)| n != 0);
        filled.map(|(bucket, &n)| (Duration::from_nanos(longest(bucket)), n))
    }

    /// Returns the `q`-quantile. At least the fraction `q` of the durations is shorter than or equal to the result. For
    /// example, `quantile(0.99)` is the 99th percentile. The result is the upper bound of a bucket. Therefore the
    /// result may be larger than the exact quantile, by at most a quarter of the exact quantile. `q` is clamped to the
    /// range from 0 to 1. Returns `None` if there are no durations.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // The product may be a little larger than the exact value. For example, 0.07 × 100 is 7.000000000000001.
        // Therefore the product is reduced before it is rounded up. For a NaN or a `q` below 0, the rank is 1.
        let rank = ((q * count as f64 * (1.0 - f64::EPSILON)).ceil() as u64).clamp(1, count);
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
        self.sum = self.sum.wrapping_sub(earlier.sum);
        self
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count())?;
        for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
            if let Some(quantile) = self.quantile(q) {
                write!(f, ", {name} {quantile:?}")?;
            }
        }
        Ok(())
    }
}

/// Returns the sum of the buckets of several threads.
impl<'a> Sum<&'a Buckets> for Histogram {
    fn sum<I: Iterator<Item = &'a Buckets>>(parts: I) -> Self {
        let mut all = Self { buckets: vec![0; BUCKETS].into(), sum: 0 };
        for Cells { counts, sum } in parts.filter_map(|part| part.0.get().map(Box::as_ref)) {
            for (all, count) in all.buckets.iter_mut().zip(counts) {
                *all = all.wrapping_add(count.load(Relaxed));
            }
            all.sum = all.sum.wrapping_add(sum.load(Relaxed));
        }
        all
    }
}

/// The buckets of a histogram. Threads add durations to these buckets. The buckets take two kilobytes. For each duration
/// in `Sampled`, a runtime has one `Buckets` for each worker slot and one for each block of the threads outside the
/// slots. For the command times, a runtime has one `Buckets` for each command type. To save memory, the buckets are
/// allocated when the first duration is added.
#[derive(Debug)]
pub(crate) struct Buckets(OnceLock<Box<Cells>>);

#[derive(Debug)]
struct Cells {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Buckets {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the counter of the bucket that contains this duration, and the sum of all durations. The caller adds 1
    /// to the counter and the duration to the sum.
    #[inline]
    pub(crate) fn of(&self, ns: u64) -> (&AtomicU64, &AtomicU64) {
        let cells = || Box::new(Cells { counts: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) });
        let cells = self.0.get_or_init(cells);
        (&cells.counts[bucket(ns)], &cells.sum)
    }

    /// Number of bytes that the buckets take on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.0.get().map_or(0, |cells| size_of_val(&**cells))
    }
}

/// The values 0 to 3 have one bucket each. From each power of two above 3 to the next power, there are four buckets.
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

/// Returns the upper bound of a bucket: the longest duration that the bucket can contain.
const fn longest(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let power = bucket / 4 + 1;
    let width = 1_u64 << (power - 2);
    // For the last bucket, the sum of the lower bound and the width would overflow. Therefore 1 is subtracted from the
    // width before the addition.
    (4 + bucket as u64 % 4) * width + (width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(buckets: &Buckets, ns: u64) {
        let (bucket, sum) = buckets.of(ns);
        bucket.fetch_add(1, Relaxed);
        sum.fetch_add(ns, Relaxed);
    }

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
            record(&buckets, ms * 1_000_000);
        }
        let delays: Histogram = [&buckets].into_iter().sum();
        assert_eq!(delays.count(), 100);
        for (q, ms) in [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100), (9.0, 100), (-1.0, 1), (f64::NAN, 1)] {
            let found = delays.quantile(q).expect("there are some");
            let exact = Duration::from_millis(ms);
            assert!(found >= exact && found <= exact + exact / 4, "{q}: {found:?}");
        }
        // A product such as 0.07 × 100 is a little larger than the exact value.
        for n in 1..=100_u32 {
            let found = delays.quantile(f64::from(n) / 100.0).expect("there are some");
            let exact = Duration::from_millis(n.into());
            assert!(found >= exact && found <= exact + exact / 4, "{n}: {found:?}");
        }
    }

    #[test]
    fn a_sum_of_buckets_prints_as_a_map() {
        let parts = [Buckets::new(), Buckets::new()];
        for (part, ns) in [(0, 1), (1, 1), (1, 5)] {
            record(&parts[part], ns);
        }
        let sum: Histogram = parts.iter().sum();
        assert_eq!(format!("{sum:?}"), "{1ns: 2, 5ns: 1}");
        assert_eq!((sum.sum(), sum.mean()), (Duration::from_nanos(7), Some(Duration::from_nanos(2))));
        assert_eq!(sum.to_string(), "3, p50 1ns, p99 5ns, p99.9 5ns");
        let between = sum.clone() - [&parts[0]].into_iter().sum();
        assert_eq!((between.count(), between.sum()), (2, Duration::from_nanos(6)));
        let none = sum.clone() - sum;
        assert_eq!((none.to_string().as_str(), none.mean()), ("0", None));
    }
}
