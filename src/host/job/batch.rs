//! Batches of tasks: the tasks that the timers of one tick wake, or that a worker takes from the injector.
//!
//! The memory of such tasks is often not in the cache, and the address of one cache line is stored in another. A task
//! that ran immediately would wait for its lines one after the other. Therefore a batch is prefetched step by step: the
//! waits of its tasks overlap.

use std::cell::RefCell;

use crate::host::shared::Job;
use crate::platform::prefetch::{TASK, prefetch};
use crate::platform::sync::thread_local;
use crate::process::state::current::Current;
use crate::process::state::wake_order::WakeOrder;

thread_local! {
    static CROWD: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// Runs `wake`, and queues the tasks that it wakes together when it returns, in the order of the wake-ups.
pub(crate) fn together<R>(wake: impl FnOnce() -> R) -> R {
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            release();
        }
    }
    let _release = Release;
    Current::with(|current| current.waking(WakeOrder::Batch, wake))
}

/// Adds a woken task to the batch of this thread.
#[cold]
pub(crate) fn join(task: Job) {
    let mut task = Some(task);
    let _ = CROWD.try_with(|crowd| crowd.borrow_mut().extend(task.take()));
    // The thread-local is gone if the thread is exiting. Then the task is scheduled immediately, without a batch.
    if let Some(task) = task {
        Current::with(|current| current.waking(WakeOrder::NextSlot, || task.schedule()));
    }
}

/// Queues the tasks of this thread's batch.
pub(crate) fn release() {
    // The batch is taken out first: scheduling may drop a task, which runs user code that may wake further tasks.
    let Ok(mut crowd) = CROWD.try_with(RefCell::take) else { return };
    crowd.iter().for_each(|task| lead(task, 1));
    crowd.iter().for_each(|task| lead(task, 0));
    Current::with(|current| current.waking(WakeOrder::NextSlot, || crowd.drain(..).for_each(Job::schedule)));
    let _ = CROWD.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.capacity() == 0 {
            *kept = crowd;
        }
    });
}

/// Prefetches the memory of a job that will run `ahead` batches from now. The first step prefetches the process, the
/// second one the data that the process points to. The second step reads memory that the first one has prefetched.
#[inline]
pub(crate) fn lead(job: &Job, ahead: usize) {
    match (ahead, job) {
        (0, Job::Process(ready)) => {
            let head = ready.head();
            head.host().shared().pid_table.prefetch(head.place());
            if let Some(yields) = head.yields_if_any() {
                prefetch(yields, size_of_val(yields));
            }
        }
        (1, Job::Process(ready)) => prefetch(ready.at(), TASK),
        (1, Job::Future(runnable)) => prefetch(runnable.metadata(), TASK),
        _ => {}
    }
}
