//! Batches of tasks: the tasks that the timers of one tick wake, or that a worker takes from the injector.
//!
//! The memory of such tasks is often not in the cache, and the address of one cache line is stored in another. A task
//! that ran immediately would wait for its lines one after the other. Therefore a batch is prefetched step by step: the
//! waits of its tasks overlap.

use crate::host::shared::Job;
use crate::platform::prefetch::{TASK, prefetch};
use crate::process::state::{PendingSchedule, RunnableProcess};

/// Queues the processes of a batch, in their order. The timers have prefetched the processes themselves.
pub(crate) fn queue(woken: Vec<PendingSchedule>) {
    woken.iter().filter_map(PendingSchedule::process).for_each(lead_data);
    drop(woken);
}

/// Prefetches the memory of a job that will run `ahead` batches from now. The first step prefetches the process, the
/// second one the data that the process points to. The second step reads memory that the first one has prefetched.
#[inline]
pub(crate) fn lead(job: &Job, ahead: usize) {
    match (ahead, job) {
        (0, Job::Process(ready)) => lead_data(ready),
        (1, Job::Process(ready)) => prefetch(ready.at(), TASK),
        (1, Job::Future(runnable)) => prefetch(runnable.metadata(), TASK),
        _ => {}
    }
}

/// Prefetches the data that a process points to.
#[inline]
fn lead_data(ready: &RunnableProcess) {
    let head = ready.head();
    head.host().shared().pid_table.prefetch(head.place());
    if let Some(yields) = head.yields_if_any() {
        prefetch(yields, size_of_val(yields));
    }
}
