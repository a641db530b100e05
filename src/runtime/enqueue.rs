//! Implements the scheduler's traits [`Task`] for jobs and [`Driver`] for timers, and contains the functions that queue
//! jobs in the threaded runtime. The scheduler does not know the type of a process. Therefore, the functions of this
//! module read the priority of a process and pass this priority to the scheduler.

use std::cell::RefCell;
use std::task::Waker;
use std::time::Duration;

use crate::host::Host;
use crate::host::job::{Job, batch};
use crate::host::timer::Timers;
use crate::host::timer::alarm::{self, Alarm};
use crate::observe::Sampled;
use crate::observe::metrics::{SampledProcess, end_sampled_turn};
use crate::observe::run_times::MeasuredTurn;
use crate::observe::snapshot::SchedulerGauges;
use crate::platform::clock::Instant;
use crate::platform::poller::SocketWait;
use crate::platform::sync::thread::LocalKey;
use crate::platform::sync::{Arc, thread_local};
use crate::process::catch::catch;
use crate::process::state::RunnableProcess;
use crate::process::state::current::Current;
use crate::process::state::priority::Priority;
use crate::process::state::wake_source::{SchedulerHandle, WakeSource};
use crate::scheduler::{Driver, Here, NO_LABEL, Placement, Rank, Roles, Scheduler, Task};

thread_local! {
    static CURRENT: Here<Job> = const { Here::new(RefCell::new(Roles::NONE)) };
}

/// Records the duration of a turn that began at the time `begun`. The process may have exited.
#[cold]
fn measure_turn(host: &Host, begun: Instant) {
    let process = end_sampled_turn();
    let ns = host.now().ns().saturating_sub(begun.ns());
    let metrics = &host.shared().metrics;
    metrics.sample(Sampled::StepTime, ns);
    if let Some(SampledProcess { word, type_name }) = process {
        metrics.run_times().add(|| MeasuredTurn { process: word, type_name, worker: metrics.worker(), ns });
    }
}

impl Task for Job {
    /// The host of the process and the start time of the turn. The value is `None` if the turn is not measured.
    type Begun = Option<(Host, Instant)>;
    /// Returns the label of the process, namely the index and the generation of its pid in one number. If this turn is
    /// measured, also returns the host of the process and the start time of the turn. A future without a process has no
    /// label, and the turns of such a future are not measured.
    #[inline]
    fn begin(&self) -> (u64, Self::Begun) {
        match self {
            Self::Process(ready) => {
                let head = ready.head();
                (head.place().into(), head.running(|| ready.type_name()))
            }
            Self::Future(_) => (NO_LABEL, None),
        }
    }

    #[inline]
    fn lead(&self, ahead: usize) {
        batch::lead(self, ahead);
    }

    #[inline]
    fn run(self, sampled: Self::Begun) -> Option<(Self, Option<Rank>)> {
        let again = self.run_measured(sampled)?;
        // The process becomes ready here, and not in `run_measured`, because `run_here` queues the process with
        // `schedule`, and `schedule` makes the process ready.
        let (priority, _) = again.head().ready();
        Some((Self::Process(again), rank(priority)))
    }

    /// Polls the future of a guest thread with a new budget. The poll may happen inside a step, for example a step that
    /// calls `Runtime::block_on`, or a step of another runtime. The budget of this step may be spent. With a spent
    /// budget, the future would wake itself at each poll and make no progress. Therefore, each poll gets a new budget.
    fn poll_own<R>(poll: impl FnOnce() -> R) -> R {
        Current::with(|current| current.with_budget(poll))
    }

    fn current() -> &'static LocalKey<Here<Self>> {
        &CURRENT
    }
}

impl Job {
    /// Runs one turn of the job, and records the duration of the turn if the turn is measured. If the job is a process
    /// that needs another turn, returns the process. A future queues itself.
    #[inline]
    fn run_measured(self, sampled: <Self as Task>::Begun) -> Option<RunnableProcess> {
        let again = match self {
            Self::Process(ready) => ready.run(),
            Self::Future(runnable) => {
                let _ = Current::with(|current| current.without_turn(|| runnable.run()));
                None
            }
        };
        if let Some((host, begun)) = sampled {
            measure_turn(&host, begun);
        }
        again
    }

    /// Runs the job on this thread, outside the loop of a worker. If a process needs another turn, queues the process.
    /// If a process panics, its turn catches the panic. This function catches only the panic of a future without a
    /// process.
    pub(crate) fn run_here(self) {
        let _ = catch(|| {
            let (_, begun) = self.begin();
            if let Some(again) = self.run_measured(begun) {
                again.schedule(WakeSource::Turn);
            }
        });
    }
}

pub(crate) type Threads = Scheduler<Job>;

/// Driver of the scheduler. The driver gives the scheduler access to the timers.
pub(super) struct Time {
    pub(super) timers: Arc<Timers>,
}

impl Driver for Time {
    type Alarm = Alarm;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.timers.now().ns())
    }

    fn fire_due(&self, begin: &dyn Fn()) -> usize {
        Current::with(|current| {
            current.without_turn(|| {
                let mut woken = Vec::new();
                let fired = self.timers.fire_due_batch(&mut woken, begin);
                batch::queue(woken);
                fired
            })
        })
    }

    fn wait(&self) -> Option<Duration> {
        self.timers.wait()
    }

    fn is_due(&self, now: Duration) -> bool {
        self.timers.nearest().is_some_and(|at| at.ns() <= now.as_nanos() as u64)
    }

    fn keep_time(&self) -> Option<Duration> {
        self.timers.keep_time()
    }

    fn stop_keeping_time(&self) {
        self.timers.stop_keeping_time();
    }

    fn alarm(&self, waker: &Waker, after: Duration) -> Alarm {
        alarm::ring(after, waker.clone())
    }

    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn()) {
        Current::with(|current| current.without_turn(|| batch::wake_all(ready, begin)));
    }
}

/// Stores a weak reference to the host in the scheduler. A socket finds the scheduler through the worker, and then
/// finds the host through the scheduler.
#[cfg_attr(not(feature = "net"), expect(unused_variables, reason = "only sockets need it"))]
pub(crate) fn set_owner(threads: &Threads, host: &Host) {
    #[cfg(feature = "net")]
    threads.set_owner(host.downgrade());
}

/// Returns the scheduler's name of a priority, if the priority is not normal.
#[inline]
fn rank(priority: Priority) -> Option<Rank> {
    match priority {
        Priority::Normal => None,
        Priority::High => Some(Rank::High),
        Priority::Low => Some(Rank::Low),
    }
}

/// Queues a job of the threaded runtime.
pub(crate) fn to_threads(job: Job, source: WakeSource<'_>) {
    let (host, (priority, is_new)) = match &job {
        Job::Process(ready) => (ready.head().host(), ready.head().ready()),
        Job::Future(runnable) => (runnable.metadata().get(), (Priority::Normal, false)),
    };
    let scheduler_address = host.shared().scheduler_address;
    let how = match (rank(priority), source) {
        (Some(rank), _) => Placement::Ranked(rank),
        (None, WakeSource::Turn) => Placement::Yielded,
        (None, WakeSource::Behind) => Placement::Behind,
        (None, WakeSource::Waiting(_)) if is_new => Placement::New,
        (None, WakeSource::Waiting(_)) => Placement::Woken,
    };
    // A worker queues the job through its own reference to the scheduler. If each push cloned a shared reference, all
    // workers would write to the cache line of the reference count.
    if let Err(job) = Threads::schedule_here(scheduler_address, job, how) {
        let kept = if let WakeSource::Waiting(kept) = source { kept } else { None };
        to_threads_elsewhere(job, how, kept);
    }
}

/// Queues a job of this runtime. The caller is not a worker of this runtime.
#[cold]
fn to_threads_elsewhere(job: Job, how: Placement, kept: Option<&SchedulerHandle>) {
    let own;
    let place = match kept {
        Some(place) => place,
        // The reference `own` must outlive the push. After the push, the job may run to its end. Then `own` may be the
        // last reference to the runtime.
        None => {
            own = Arc::clone(&job.host().shared().place);
            &own
        }
    };
    match place.downcast_ref::<Threads>() {
        Some(threads) => threads.schedule_elsewhere(job, how),
        None => unreachable!("a scheduler handle of a runtime contains its threads"),
    }
}

/// Queues a batch of new jobs under one lock. The jobs are spawned with normal priority. If an observer has already
/// changed the priority of a process, the new priority has an effect only after the first turn of this process.
pub(crate) fn all_to_threads(place: &SchedulerHandle, jobs: Vec<Job>) {
    for job in &jobs {
        if let Job::Process(ready) = job {
            let _ = ready.head().ready();
        }
    }
    match place.downcast_ref::<Threads>() {
        Some(threads) => threads.schedule_all(jobs),
        None => unreachable!("a scheduler handle of a runtime contains its threads"),
    }
}

/// Reads the gauges of the scheduler, for example the lengths of its queues.
pub(crate) fn gauges_of_threads(place: &SchedulerHandle) -> SchedulerGauges {
    match place.downcast_ref::<Threads>() {
        Some(threads) => threads.gauges(),
        None => unreachable!("a scheduler handle of a runtime contains its threads"),
    }
}

/// Calls the closure with each operation that waits for a socket of the scheduler.
pub(crate) fn visit_sockets_of_threads(place: &SchedulerHandle, visit: &mut dyn FnMut(SocketWait<'_>)) {
    let threads = place.downcast_ref::<Threads>();
    if let Some(poller) = threads.and_then(|threads| threads.poller()) {
        poller.visit_waiters(visit);
    }
}
