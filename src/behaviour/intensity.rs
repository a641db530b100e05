//! Restart intensity, namely a maximum number of restarts within a sliding window. Supervisors and pools use this
//! intensity.

use std::collections::VecDeque;
use std::time::Duration;

use crate::platform::clock::Instant;

/// Minimum delay between a start that failed immediately and the next start. Without this delay, a worker could spend
/// all its time on starts that the runtime refuses. In a simulation, the delay also lets the clock advance.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Counts the restarts within a sliding window. The limits correspond to `intensity` and `period` of OTP's
/// `supervisor`.
#[derive(Debug, Clone)]
pub(crate) struct Intensity {
    most: u32,
    within: Duration,
    /// Times of the restarts within the window, oldest first. The list never has more than `most` entries.
    restarts: VecDeque<Instant>,
}

impl Intensity {
    pub(crate) fn new(most: u32, within: Duration) -> Self {
        Self { most, within, restarts: VecDeque::new() }
    }

    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    pub(crate) fn within(&self) -> Duration {
        self.within
    }

    /// Returns the number of counted restarts in the window that ends at `now`.
    pub(crate) fn used(&self, now: Instant) -> u32 {
        // The list never has more entries than `most`, which is a `u32`.
        self.restarts.iter().filter(|&&restart| now - restart < self.within).count() as u32
    }

    /// If the maximum is not reached, counts a restart and returns true. If the maximum is reached, returns false.
    /// When the time `within` has passed after a restart, this restart is no longer counted.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        while self.restarts.front().is_some_and(|&first| now - first >= self.within) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.most as usize {
            return false;
        }
        self.restarts.push_back(now);
        true
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_limited_within_the_sliding_window() {
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let mut intensity = Intensity::new(2, Duration::from_millis(100));
        assert_eq!((intensity.most(), intensity.within()), (2, Duration::from_millis(100)));
        let asked = [0, 50, 99, 100, 120, 150, 151, 1_000, 1_000, 1_000].map(|ms| intensity.allows(at(ms)));
        assert_eq!(asked, [true, true, false, true, false, true, false, true, true, false]);
        // The restarts at 1,000 ms are no longer counted at 1,100 ms.
        assert_eq!([1_000, 1_099, 1_100].map(|ms| intensity.used(at(ms))), [2, 2, 0]);
        assert!(!Intensity::new(0, Duration::from_secs(1)).allows(at(0)));
        // If the window is zero, no restart is counted.
        let mut forgets = Intensity::new(1, Duration::ZERO);
        assert!(forgets.allows(at(5)) && forgets.allows(at(5)));
        assert_eq!(forgets.used(at(5)), 0);
    }
}
