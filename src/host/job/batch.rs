//! Batches of tasks. A batch contains either the tasks that the timers of one tick wake, or the tasks that a worker
//! takes from the injector.
//!
//! The memory of these tasks is often not in the cache. Each task needs several cache lines, and each line contains the
//! address of the next line. If a worker ran the tasks without a prefetch, each task would wait for its lines one after
//! the other. This module prefetches a batch step by step, so that the cache misses of different tasks overlap.

use std::task::Waker;

use crate::host::shared::Job;
use crate::platform::prefetch::{TASK, prefetch};
use crate::process::catch::catch;
use crate::process::state::{PendingSchedule, RunnableProcess};

/// Queues the processes of a batch in their order, and prefetches the data that each process points to. The timers have
/// already prefetched the memory of the processes themselves.
pub(crate) fn queue(woken: Vec<PendingSchedule>) {
    woken.iter().filter_map(PendingSchedule::process).for_each(lead_data);
    drop(woken);
}

/// Wakes the tasks of these wakers, and queues the processes among them in their order. Leaves `ready` empty.
///
/// A single process goes to the next slot of its worker, as after a message. Several processes go to the back of the
/// queue: in the next slot, the last one would run first.
pub(crate) fn wake_all(ready: &mut Vec<Waker>) {
    if let [waker] = &ready[..] {
        waker.wake_by_ref();
        return ready.clear();
    }
    let mut woken = Vec::with_capacity(ready.len());
    for waker in ready.drain(..) {
        match PendingSchedule::wake(&waker) {
            Some(process) => woken.push(process),
            None => {
                // This waker is not a waker of a process that waits. It may run user code that waits for one of the
                // processes before it, so these processes are queued first.
                queue_in_order(&mut woken);
                let _ = catch(|| waker.wake());
            }
        }
    }
    queue_in_order(&mut woken);
}

fn queue_in_order(woken: &mut Vec<PendingSchedule>) {
    for process in &*woken {
        process.process().into_iter().for_each(|process| prefetch(process.at(), TASK));
    }
    woken.drain(..).for_each(PendingSchedule::queue_behind);
}

/// Prefetches memory of a job. If `ahead` is 1, the job runs in the next batch, and the function prefetches the process
/// or the future. If `ahead` is 0, the job runs in this batch, and the function prefetches the data that the process
/// points to. For this purpose, the function reads memory that the earlier call has prefetched.
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
