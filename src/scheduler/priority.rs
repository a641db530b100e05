//! Queues of the tasks of high and low priority. This file also decides which priority comes first at each attempt of a
//! worker to find a task. All workers share these queues for two reasons. An urgent task should not wait for one
//! particular worker. A task of low priority may run on any core, even if the cache of another core contains the data
//! of the task.
//!
//! While both queues are empty, a check of both queues costs only one load.

use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::scheduler::injector::Injector;

/// A priority other than normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    High,
    Low,
}

/// A worker counts its attempts to find a task. If the count is a multiple of `LOW_EVERY`, the low priority comes
/// first. At the other multiples of `NORMAL_EVERY`, the normal priority comes first. At all other counts, the high
/// priority comes first.
const LOW_EVERY: u32 = 16;
const NORMAL_EVERY: u32 = 4;

/// The queues of the two priorities.
#[derive(Debug)]
pub(super) struct PriorityQueues<T> {
    high: Injector<T>,
    low: Injector<T>,
    /// Upper bound of the number of tasks in both queues.
    waiting: AtomicUsize,
}

impl<T> PriorityQueues<T> {
    pub(super) fn new() -> Self {
        Self { high: Injector::new(), low: Injector::new(), waiting: AtomicUsize::new(0) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Returns the number of tasks in both queues.
    pub(super) fn len(&self) -> usize {
        self.high.len() + self.low.len()
    }

    /// Appends a task.
    ///
    /// # Errors
    /// Returns the task if the queues are closed.
    pub(super) fn push(&self, rank: Rank, item: T) -> Result<(), T> {
        // The increment comes before the push, because a worker may take the task and decrement the number immediately
        // after the push.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let queue = if rank == Rank::High { &self.high } else { &self.low };
        let pushed = queue.push(item);
        if pushed.is_err() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        pushed
    }

    /// The worker numbers its attempts to find a task, and `look` is the number of the present attempt. If the high or
    /// the low priority comes first at this attempt, takes a task of this priority. Returns `None` if the normal
    /// priority comes first, or if the queue of the selected priority is empty.
    #[cold]
    pub(super) fn first(&self, look: u32) -> Option<T> {
        if look.is_multiple_of(LOW_EVERY) {
            self.take(&self.low)
        } else if look.is_multiple_of(NORMAL_EVERY) {
            None
        } else {
            self.take(&self.high)
        }
    }

    /// Takes the next task when there is no normal task. The high priority comes before the low priority.
    #[cold]
    pub(super) fn last(&self) -> Option<T> {
        self.take(&self.high).or_else(|| self.take(&self.low))
    }

    fn take(&self, queue: &Injector<T>) -> Option<T> {
        let item = queue.pop()?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(item)
    }

    pub(super) fn drain(&self, into: &mut Vec<T>) {
        into.extend(std::iter::from_fn(|| self.last()));
    }

    pub(super) fn close(&self) {
        self.high.close();
        self.low.close();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_priority_comes_first_in_its_share_of_the_attempts() {
        let priorities = PriorityQueues::new();
        assert!(priorities.is_empty() && priorities.last().is_none());
        for n in 0..16 {
            priorities.push(Rank::High, n).unwrap();
            priorities.push(Rank::Low, 100 + n).unwrap();
        }
        let taken: Vec<_> = (0..16).map(|look| priorities.first(look)).collect();
        assert_eq!(taken[..6], [Some(100), Some(0), Some(1), Some(2), None, Some(3)]);
        assert_eq!(taken.iter().filter(|taken| taken.is_none()).count(), 3);
        assert_eq!(taken.iter().flatten().filter(|&&taken| taken < 100).count(), 12);
        assert_eq!(priorities.last(), Some(12), "tasks of high priority run before tasks of low priority");
        let mut rest = Vec::new();
        priorities.drain(&mut rest);
        assert_eq!(rest, [13, 14, 15].into_iter().chain(101..116).collect::<Vec<_>>());
        priorities.close();
        assert_eq!((priorities.push(Rank::Low, 7), priorities.is_empty()), (Err(7), true));
    }
}
