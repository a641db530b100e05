//! Records individual waiting times. Some rows measure waiting times instead of the cost of an operation.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Waiting times of the current round. Only one round runs at a time, so this value is a static variable.
pub(crate) struct Waits(Mutex<Vec<Duration>>);

/// The waiting times of the current work.
pub(crate) static WAITS: Waits = Waits(Mutex::new(Vec::new()));

impl Waits {
    /// Records a waiting time.
    pub(crate) fn add(&self, wait: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
    }

    /// Returns all waiting times since the last call, in ascending order.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut waits = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        waits.sort_unstable();
        waits
    }
}
