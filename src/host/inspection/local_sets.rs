//! The queues of the `LocalSet`s of a runtime. [`Host::explain`](crate::Host::explain) reads these queues, because the
//! scheduler has no access to them.

use crate::platform::sync::{Arc, Mutex, Weak};
use crate::process::pid::Pid;

/// Queue of a `LocalSet`.
pub(crate) trait LocalSetQueue: Send + Sync {
    /// Returns the number of runnable processes in the queue, and some of their pids. The length of the list of pids is
    /// at most `most`. Returns 0 if a thread runs the processes of the `LocalSet`.
    fn ready_without_thread(&self, most: usize) -> (usize, Vec<Pid>);
}

/// The queues of the `LocalSet`s of a runtime. Each `LocalSet` owns its queue.
#[derive(Default)]
pub(crate) struct LocalSets(Mutex<Vec<Weak<dyn LocalSetQueue>>>);

impl LocalSets {
    /// Adds a queue.
    pub(crate) fn add(&self, queue: Weak<dyn LocalSetQueue>) {
        let mut queues = self.0.lock();
        // The queues of dropped `LocalSet`s are removed when the list is full. Therefore an addition takes constant
        // time on average.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() != 0);
            let kept = 2 * queues.len();
            queues.shrink_to(kept);
        }
        queues.push(queue);
    }

    /// Returns the number of runnable processes that no thread runs, and some of their pids. The length of the list of
    /// pids is at most `most`.
    pub(crate) fn ready_without_thread(&self, most: usize) -> (usize, Vec<Pid>) {
        // This function may drop the last reference to a queue. Each queued process owns a reference to its queue, so a
        // queue without other references contains no process.
        let queues: Vec<Arc<dyn LocalSetQueue>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut count, mut pids) = (0, Vec::new());
        for queue in queues {
            let (ready, some) = queue.ready_without_thread(most - pids.len());
            count += ready;
            pids.extend(some);
        }
        (count, pids)
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    struct Queue(usize);

    impl LocalSetQueue for Queue {
        fn ready_without_thread(&self, _: usize) -> (usize, Vec<Pid>) {
            (self.0, Vec::new())
        }
    }

    #[test]
    fn the_list_contains_few_queues_of_dropped_sets() {
        let sets = LocalSets::default();
        let kept: Vec<Arc<dyn LocalSetQueue>> = (1..=3).map(|ready| Arc::new(Queue(ready)) as _).collect();
        kept.iter().for_each(|queue| sets.add(Arc::downgrade(queue)));
        for _ in 0..1_000 {
            let dropped: Arc<dyn LocalSetQueue> = Arc::new(Queue(100));
            sets.add(Arc::downgrade(&dropped));
        }
        assert_eq!(sets.ready_without_thread(5).0, 6);
        assert!(sets.0.lock().capacity() <= 16);
    }
}
