//! Tasks that come in a crowd: whom the timers of one moment wake, whom a worker takes from the queue of all. What they wait
//! with lies in main memory, a line here and there, and where each line is only the one before it tells. Run as they come,
//! each would wait for its lines one after the other; so the whole crowd is led up step by step, and waits once for each.

use std::cell::RefCell;

use crate::host::job::Job;
use crate::platform::prefetch::{TASK, prefetch};
use crate::platform::sync::thread_local;
use crate::process::state::current::Current;
use crate::process::state::wake_order::WakeOrder;

thread_local! {
    static CROWD: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// Queues what `wake` wakes when all of it is woken, in that order.
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

/// Keeps a task that is woken so.
#[cold]
pub(crate) fn join(task: Job) {
    let mut task = Some(task);
    let _ = CROWD.try_with(|crowd| crowd.borrow_mut().extend(task.take()));
    // The thread-local is gone if the thread ends just now: then the task does not wait for the others.
    if let Some(task) = task {
        Current::with(|current| current.waking(WakeOrder::NextSlot, || task.schedule()));
    }
}

/// Queues all that this thread keeps.
pub(crate) fn release() {
    // Out of reach first: a task that nobody takes any more is dropped there, and that is somebody's code.
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

/// Has what a job touches fetched that comes next but so many crowds: the process itself first, then what that leads to.
/// Each is looked at when the step before it was made.
#[inline]
pub(crate) fn lead(job: &Job, ahead: usize) {
    match (ahead, job) {
        (0, Job::Process(ready)) => {
            let head = ready.head();
            head.host().shared().relay.prefetch(head.place());
            if let Some(yields) = head.yields_if_any() {
                prefetch(yields, size_of_val(yields));
            }
        }
        (1, Job::Process(ready)) => prefetch(ready.at(), TASK),
        (1, Job::Future(runnable)) => prefetch(runnable.metadata(), TASK),
        _ => {}
    }
}
