//! What the scheduler runs: a task with its metadata, a process's or that of a future; how it comes into the queues, and
//! how it is run.

use std::any::Any;

use async_task::{Runnable, ScheduleInfo};

use crate::clock::Instant;
use crate::crowd;
use crate::host::{Host, Meta};
use crate::process::panic::catch;
use crate::process::placing::{self, Placing};
use crate::process::priority::Priority;
use crate::scheduler::{Here, NOBODY, Placement, Rank, Scheduler, Task};
use crate::sync::thread::LocalKey;
use crate::sync::{Arc, thread_local};

thread_local! {
    static CURRENT: Here<Runnable<Meta>> = const { Here::new(None) };
}

impl Task for Runnable<Meta> {
    /// If this turn is measured: whose it is, and when it began.
    type Begun = Option<(Host, Instant)>;

    #[inline]
    fn begin(&self) -> (u64, Self::Begun) {
        match self.metadata().process() {
            Some(head) => (head.place().into(), head.running()),
            None => (NOBODY, None),
        }
    }

    #[inline]
    fn lead(&self, ahead: usize) {
        crowd::lead(self, ahead);
    }

    fn run(self, sampled: Self::Begun) {
        Runnable::run(self);
        if let Some((host, begun)) = sampled {
            let time = host.now().ns().saturating_sub(begun.ns());
            host.shared().metrics.sample_step(time);
        }
    }

    fn current() -> &'static LocalKey<Here<Self>> {
        &CURRENT
    }
}

pub(crate) type Threads = Scheduler<Runnable<Meta>>;

/// The schedule function of the threaded runtime.
pub(crate) fn schedule(runnable: Runnable<Meta>, info: ScheduleInfo) {
    let (host, priority) = match runnable.metadata() {
        Meta::Process(control) => {
            let head = control.head();
            (head.host(), head.ready())
        }
        Meta::Future(host) => (host, Priority::Normal),
    };
    let home = host.shared().home;
    let how = match priority {
        Priority::Normal if info.woken_while_running => Placement::Yielded,
        Priority::Normal if placing::now() == Placing::Behind => Placement::Behind,
        Priority::Normal => Placement::Woken,
        Priority::High => Placement::Ranked(Rank::High),
        Priority::Low => Placement::Ranked(Rank::Low),
    };
    // On a worker its own reference to the scheduler is used: counting another one would put all workers on one
    // cache line.
    if let Err(runnable) = Threads::schedule_here(home, runnable, how) {
        schedule_elsewhere(runnable, how);
    }
}

/// From a thread that is no worker of this runtime.
#[cold]
fn schedule_elsewhere(runnable: Runnable<Meta>, how: Placement) {
    // Kept over the push: once that is done the task may run, end, and let go of its runtime.
    let place = Arc::clone(&runnable.metadata().host().shared().place);
    match place.downcast::<Threads>() {
        Ok(threads) => threads.schedule_elsewhere(runnable, how),
        Err(_) => unreachable!("this schedule function is given out with threads as its place"),
    }
}

/// The same for many at once.
pub(crate) fn schedule_all(place: &Arc<dyn Any + Send + Sync>, runnables: Vec<Runnable<Meta>>) {
    for process in runnables.iter().filter_map(|runnable| runnable.metadata().process()) {
        let priority = process.ready();
        debug_assert_eq!(priority, Priority::Normal, "no batch is of another");
    }
    match Arc::clone(place).downcast::<Threads>() {
        Ok(threads) => threads.schedule_all(runnables),
        Err(_) => unreachable!("this schedule function is given out with threads as its place"),
    }
}

/// Runs a task outside the workers. What panics there is no process's, for those are caught in their task.
pub(crate) fn run_task(task: Runnable<Meta>) {
    let _ = catch(|| {
        let (_, begun) = task.begin();
        Task::run(task, begun);
    });
}
