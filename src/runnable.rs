//! What the scheduler runs: a process, or a future that is a task of async-task's; how it comes into the queues, and how it
//! is run.

use std::any::Any;

use async_task::{Runnable, ScheduleInfo};

use crate::cell::{Ready, Schedule};
use crate::clock::Instant;
use crate::crowd;
use crate::host::Host;
use crate::process::panic::catch;
use crate::process::placing::{self, Placing};
use crate::process::priority::Priority;
use crate::scheduler::{Here, NOBODY, Placement, Rank, Scheduler, Task};
use crate::sync::thread::LocalKey;
use crate::sync::{Arc, thread_local};

thread_local! {
    static CURRENT: Here<Job> = const { Here::new(None) };
}

/// What is queued.
#[derive(Debug)]
pub(crate) enum Job {
    Process(Ready),
    /// A future without a pid: an async handler, or what came by `spawn_future`.
    Future(Runnable<Host>),
}

impl Job {
    #[inline]
    fn host(&self) -> &Host {
        match self {
            Self::Process(ready) => ready.head().host(),
            Self::Future(runnable) => runnable.metadata(),
        }
    }

    /// Queues it as one that was woken just now.
    #[inline]
    pub(crate) fn schedule(self) {
        match self {
            Self::Process(ready) => ready.schedule(false),
            Self::Future(runnable) => runnable.schedule(),
        }
    }

    /// Runs it on this thread, outside the workers. What panics there is no process's, for those are caught in their turn.
    pub(crate) fn run_here(self) {
        let _ = catch(|| {
            let (_, begun) = self.begin();
            Task::run(self, begun);
        });
    }
}

/// How every process is queued that may run on any worker.
#[derive(Debug)]
pub(crate) struct Anywhere;

impl Schedule for Anywhere {
    #[inline]
    fn schedule(&self, ready: Ready, again: bool) {
        queue(Job::Process(ready), again);
    }

    fn is_here(&self) -> bool {
        true
    }
}

/// The schedule function of every future: it takes up no room in the task.
#[inline]
pub(crate) fn schedule(runnable: Runnable<Host>, info: ScheduleInfo) {
    queue(Job::Future(runnable), info.woken_while_running);
}

/// Asks the host of a job where it goes.
#[inline]
fn queue(job: Job, again: bool) {
    if placing::now() == Placing::Together && !again {
        return crowd::join(job);
    }
    let schedule = job.host().shared().schedule;
    schedule(job, again);
}

impl Task for Job {
    /// If this turn is measured: whose it is, and when it began.
    type Begun = Option<(Host, Instant)>;

    #[inline]
    fn begin(&self) -> (u64, Self::Begun) {
        match self {
            Self::Process(ready) => {
                let head = ready.head();
                (head.place().into(), head.running())
            }
            Self::Future(_) => (NOBODY, None),
        }
    }

    #[inline]
    fn lead(&self, ahead: usize) {
        crowd::lead(self, ahead);
    }

    #[inline]
    fn run(self, sampled: Self::Begun) {
        match self {
            Self::Process(ready) => ready.run(),
            Self::Future(runnable) => drop(runnable.run()),
        }
        if let Some((host, begun)) = sampled {
            let time = host.now().ns().saturating_sub(begun.ns());
            host.shared().metrics.sample_step(time);
        }
    }

    fn current() -> &'static LocalKey<Here<Self>> {
        &CURRENT
    }
}

pub(crate) type Threads = Scheduler<Job>;

/// Where jobs of the threaded runtime go.
pub(crate) fn to_threads(job: Job, again: bool) {
    let (host, priority) = match &job {
        Job::Process(ready) => (ready.head().host(), ready.head().ready()),
        Job::Future(runnable) => (runnable.metadata(), Priority::Normal),
    };
    let home = host.shared().home;
    let how = match priority {
        Priority::Normal if again => Placement::Yielded,
        Priority::Normal if placing::now() == Placing::Behind => Placement::Behind,
        Priority::Normal => Placement::Woken,
        Priority::High => Placement::Ranked(Rank::High),
        Priority::Low => Placement::Ranked(Rank::Low),
    };
    // On a worker its own reference to the scheduler is used: counting another one would put all workers on one
    // cache line.
    if let Err(job) = Threads::schedule_here(home, job, how) {
        to_threads_elsewhere(job, how);
    }
}

/// From a thread that is no worker of this runtime.
#[cold]
fn to_threads_elsewhere(job: Job, how: Placement) {
    // Kept over the push: once that is done the job may run, end, and let go of its runtime.
    let place = Arc::clone(&job.host().shared().place);
    match place.downcast::<Threads>() {
        Ok(threads) => threads.schedule_elsewhere(job, how),
        Err(_) => unreachable!("this function is given out with threads as its place"),
    }
}

/// The same for many at once.
pub(crate) fn all_to_threads(place: &Arc<dyn Any + Send + Sync>, jobs: Vec<Job>) {
    for job in &jobs {
        if let Job::Process(ready) = job {
            let priority = ready.head().ready();
            debug_assert_eq!(priority, Priority::Normal, "no batch is of another");
        }
    }
    match Arc::clone(place).downcast::<Threads>() {
        Ok(threads) => threads.schedule_all(jobs),
        Err(_) => unreachable!("this function is given out with threads as its place"),
    }
}
