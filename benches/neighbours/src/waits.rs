//! How long somebody waited, one by one: for rows whose verdict is not what an operation costs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kept until the round is over. One at a time is in use, as with the latch.
pub(crate) struct Waits(Mutex<Vec<Duration>>);

/// Where the work puts them.
pub(crate) static WAITS: Waits = Waits(Mutex::new(Vec::new()));

impl Waits {
    /// One more.
    pub(crate) fn add(&self, wait: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
    }

    /// All since the last call, in ascending order.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut waits = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waits.sort_unstable();
        waits
    }
}
