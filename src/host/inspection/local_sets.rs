//! The queues of the `LocalSet`s of a runtime. [`Host::explain`](crate::Host::explain) reads these queues, because the
//! scheduler does not know them.

use crate::platform::sync::{Arc, Mutex, Weak};
use crate::process::pid::Pid;

/// Queue of a `LocalSet`.
pub(crate) trait LocalSetQueue: Send + Sync {
    /// If no thread runs the processes of the `LocalSet`, calls the closure with each runnable process. The closure
    /// must not call user code.
    fn visit_undriven(&self, visit: &mut dyn FnMut(Pid));
}

/// The queues of the `LocalSet`s of a runtime. Each `LocalSet` owns its queue.
#[derive(Default)]
pub(crate) struct LocalSets(Mutex<Vec<Weak<dyn LocalSetQueue>>>);

impl LocalSets {
    /// Adds a queue. Removes the queues of the `LocalSet`s that were dropped.
    pub(crate) fn add(&self, queue: Weak<dyn LocalSetQueue>) {
        let mut queues = self.0.lock();
        queues.retain(|queue| queue.strong_count() != 0);
        queues.push(queue);
    }

    /// Calls the closure with each runnable process that no thread runs. The closure must not call user code.
    pub(crate) fn visit_undriven(&self, visit: &mut dyn FnMut(Pid)) {
        // The lock is not held while `visit` runs, because `visit` may take other locks. A queue that is dropped here
        // contains no process, unless its `LocalSet` was leaked.
        let queues: Vec<Arc<dyn LocalSetQueue>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| queue.visit_undriven(visit));
    }
}
