//! The jobs of the scheduler. A job is a runnable process, or a runnable future in a task of `async-task`. The schedule
//! functions in this module pass a job to the scheduler of the job's host.

pub(crate) mod batch;
pub(crate) mod blocking_pool;

use async_task::{Runnable, ScheduleInfo};

use crate::host::Host;
pub(crate) use crate::host::shared::Job;
use crate::process::catch::Held;
use crate::process::state::wake_source::WakeSource;
use crate::process::state::{RunnableProcess, Schedule};

/// Schedule function of a process that may run on any worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anywhere;

impl Schedule for Anywhere {
    #[inline]
    fn schedule(self, ready: RunnableProcess, source: WakeSource<'_>) {
        queue(Job::Process(ready), source);
    }

    fn is_here(&self) -> bool {
        true
    }
}

/// Schedule function of every future. This function is passed to `async-task` as a function item, so the function takes
/// no space in the task.
#[inline]
pub(crate) fn schedule(runnable: Runnable<Held<Host>>, info: ScheduleInfo) {
    let source = if info.woken_while_running { WakeSource::Turn } else { WakeSource::Waiting(None) };
    queue(Job::Future(runnable), source);
}

/// Passes a job to the scheduler of the job's host.
#[inline]
fn queue(job: Job, source: WakeSource<'_>) {
    let schedule = job.host().shared().schedule;
    schedule(job, source);
}
