//! Batches of tasks. The tasks of a batch were woken by the timers of one tick, or were taken from the injector by one
//! worker.
//!
//! The memory of these tasks is often not in the cache. Each task needs several cache lines, and each line contains the
//! address of the next line. Without a prefetch, a worker would wait for each of these lines, one after the other. This
//! module prefetches the lines of a batch in steps. Therefore the cache misses of different tasks overlap.

use std::task::Waker;

use crate::host::shared::Job;
use crate::platform::prefetch::{TASK, prefetch};
use crate::process::catch::catch;
use crate::process::state::{PendingSchedule, RunnableProcess};

/// Queues the processes of a batch in their order, and prefetches the data to which each process points. The timers
/// have already prefetched the memory of the processes themselves.
pub(crate) fn queue(woken: Vec<PendingSchedule>) {
    woken.iter().filter_map(PendingSchedule::process).for_each(lead_data);
    drop(woken);
}

/// Wakes the tasks of these wakers. First, this function queues the woken processes in the order of their wakers. Then
/// this function calls the wakers that do not belong to waiting processes, also in the order of the wakers. The
/// function calls `begin` before the first of these wakers. The function leaves `ready` empty.
///
/// If `ready` contains only one waker, and the waker belongs to a waiting process, the process is stored in the
/// worker's `next` slot. A process that was woken by a message is stored in the same way. In all other cases, the woken
/// processes are appended to the queue. If several processes were stored in the `next` slot one after the other, the
/// last of these processes would run first.
pub(crate) fn wake_all(ready: &mut Vec<Waker>, begin: &dyn Fn()) {
    if let [waker] = &ready[..]
        && let Some(process) = PendingSchedule::wake(waker)
    {
        drop(process);
        return ready.clear();
    }
    let mut woken = Vec::with_capacity(ready.len());
    ready.retain(|waker| match PendingSchedule::wake(waker) {
        Some(process) => {
            woken.push(process);
            false
        }
        None => true,
    });
    for process in &woken {
        process.process().into_iter().for_each(|process| prefetch(process.at(), TASK));
    }
    woken.into_iter().for_each(PendingSchedule::queue_behind);
    // The other wakers do not belong to waiting processes. A waker that belongs to no waiting process may run user
    // code, and this code may wait for any process of the batch. Therefore the processes are queued first.
    if !ready.is_empty() {
        begin();
        ready.drain(..).for_each(|waker| _ = catch(|| waker.wake()));
    }
}

/// Prefetches memory of a job.
///
/// If `ahead` is 1, the job runs in the next batch. The function then prefetches the process or the future itself. If
/// `ahead` is 0, the job runs in this batch. The function then prefetches the data to which the process points. To find
/// this data, the function reads the memory of the process, which the call with `ahead` = 1 has prefetched.
#[inline]
pub(crate) fn lead(job: &Job, ahead: usize) {
    match (ahead, job) {
        (0, Job::Process(ready)) => lead_data(ready),
        (1, Job::Process(ready)) => prefetch(ready.at(), TASK),
        (1, Job::Future(runnable)) => prefetch(runnable.metadata(), TASK),
        _ => {}
    }
}

/// Prefetches the data to which a process points.
#[inline]
fn lead_data(ready: &RunnableProcess) {
    let head = ready.head();
    head.host().shared().pid_table.prefetch(head.place());
    if let Some(yields) = head.yields_if_any() {
        prefetch(yields, size_of_val(yields));
    }
}
