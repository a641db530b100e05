//! What is queued: a process that is to have a turn, or a future that is a task of async-task's; and how either gets there.

pub(crate) mod batch;
pub(crate) mod blocking_pool;

use async_task::{Runnable, ScheduleInfo};

use crate::host::Host;
use crate::host::job::batch as crowd;
use crate::process::state::current::Current;
use crate::process::state::wake_order::{WakeOrder, WakeSource};
use crate::process::state::{Ready, Schedule};

/// What is queued.
#[derive(Debug)]
pub(crate) enum Job {
    Process(Ready),
    /// A future without a pid: an async handler, or what came by `spawn_future`.
    Future(Runnable<Host>),
}

impl Job {
    #[inline]
    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Process(ready) => ready.head().host(),
            Self::Future(runnable) => runnable.metadata(),
        }
    }

    /// Queues it as one that was woken just now.
    #[inline]
    pub(crate) fn schedule(self) {
        match self {
            Self::Process(ready) => ready.schedule(WakeSource::Waiting(None)),
            Self::Future(runnable) => runnable.schedule(),
        }
    }
}

/// How every process is queued that may run on any worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anywhere;

impl Schedule for Anywhere {
    #[inline]
    fn schedule(self, ready: Ready, source: WakeSource<'_>) {
        queue(Job::Process(ready), source);
    }

    fn is_here(&self) -> bool {
        true
    }
}

/// The schedule function of every future: it takes up no room in the task.
#[inline]
pub(crate) fn schedule(runnable: Runnable<Host>, info: ScheduleInfo) {
    let source = if info.woken_while_running { WakeSource::Turn } else { WakeSource::Waiting(None) };
    queue(Job::Future(runnable), source);
}

/// Asks the host of a job where it goes.
#[inline]
fn queue(job: Job, source: WakeSource<'_>) {
    if matches!(source, WakeSource::Waiting(_)) && Current::with(Current::wake_order) == WakeOrder::Batch {
        return crowd::join(job);
    }
    let schedule = job.host().shared().schedule;
    schedule(job, source);
}
