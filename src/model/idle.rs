//! Models of the idle word, which records the searching and the sleeping workers. The idle word must ensure that no
//! worker sleeps forever while a task is runnable. The models use the real workers of the scheduler.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::model::{Waiter, join, spawn};
use crate::observe::Metrics;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::thread::LocalKey;
use crate::platform::sync::{Arc, Condvar, Mutex, thread, thread_local};
use crate::scheduler::{
    Driver, Here, Hooks, NO_LABEL, Options, Placement, QueueOrder, Rank, Roles, SLOTS, Scheduler, Task,
};

thread_local! {
    static CURRENT: Here<Job> = const { Here::new(RefCell::new(Roles::NONE)) };
}

/// A task that runs a closure once.
#[expect(missing_debug_implementations, reason = "of a model only")]
pub struct Job(Box<dyn FnOnce() + Send>);

impl Job {
    pub(super) fn new(f: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(f))
    }

    /// Runs the job on the calling thread.
    pub(super) fn run_now(self) {
        self.0();
    }
}

impl Task for Job {
    type Begun = ();

    fn begin(&self) -> (u64, ()) {
        (NO_LABEL, ())
    }

    fn run(self, (): ()) -> Option<(Self, Option<Rank>)> {
        self.0();
        None
    }

    fn current() -> &'static LocalKey<Here<Self>> {
        &CURRENT
    }
}

/// Driver with one timer. The timer is off, far in the future, or due.
#[derive(Default)]
pub(super) struct Timer {
    pub(super) due: AtomicUsize,
    fired: Option<Arc<Jobs>>,
    /// Counts how often a worker became the timekeeper, and how often the timekeeper read the deadline again.
    kept: Option<Arc<Jobs>>,
}

const OFF: usize = 0;
const FAR: usize = 1;
pub(super) const DUE: usize = 2;

impl Timer {
    /// Returns a timer whose deadline is far in the future. Each time the timer fires, the count in `fired` is
    /// incremented.
    pub(super) fn far(fired: Arc<Jobs>) -> Self {
        Self { due: AtomicUsize::new(FAR), fired: Some(fired), kept: None }
    }
}

impl Driver for Arc<Timer> {
    type Alarm = ();

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn fire_due(&self, _: &dyn Fn()) -> usize {
        let due = self.due.compare_exchange(DUE, OFF, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if let (true, Some(jobs)) = (due, &self.fired) {
            jobs.one_is_done();
        }
        usize::from(due)
    }

    fn wait(&self) -> Option<Duration> {
        match self.due.load(Ordering::SeqCst) {
            OFF => None,
            FAR => Some(Duration::MAX),
            _ => Some(Duration::ZERO),
        }
    }

    fn is_due(&self, _: Duration) -> bool {
        self.due.load(Ordering::SeqCst) == DUE
    }

    fn keep_time(&self) -> Option<Duration> {
        if let Some(kept) = &self.kept {
            kept.one_is_done();
        }
        Driver::wait(self)
    }

    fn stop_keeping_time(&self) {}

    fn alarm(&self, _: &Waker, _: Duration) {}

    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn()) {
        begin();
        ready.drain(..).for_each(Waker::wake);
    }
}

/// Counts the finished jobs, and wakes the thread that waits for the jobs.
pub(super) struct Jobs {
    done: AtomicUsize,
    waiter: Arc<Waiter>,
}

impl Jobs {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { done: AtomicUsize::new(0), waiter: Waiter::here() })
    }

    pub(super) fn one_is_done(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
        self.waiter.waker().wake();
    }

    pub(super) fn one(self: &Arc<Self>) -> Job {
        let jobs = Arc::clone(self);
        Job(Box::new(move || jobs.one_is_done()))
    }

    /// Returns the waker of the waiting thread, for a future that this thread polls.
    pub(super) fn waker(&self) -> Waker {
        self.waiter.waker()
    }

    /// Waits for one wake-up, unless `all` jobs are finished. Returns whether all jobs are finished.
    pub(super) fn wait_once(&self, all: usize) -> bool {
        let are_done = || self.done.load(Ordering::SeqCst) == all;
        if !are_done() {
            self.waiter.wait();
        }
        are_done()
    }

    /// Waits until `all` jobs are finished.
    pub(super) fn wait(&self, all: usize) {
        while self.done.load(Ordering::SeqCst) != all {
            self.waiter.wait();
        }
    }
}

pub(super) fn scheduler(workers: usize, timer: &Arc<Timer>) -> Arc<Scheduler<Job>> {
    let options = Options {
        workers,
        name: String::new(),
        stack_size: None,
        seed: 1,
        order: QueueOrder::Fifo,
        shuffle: false,
        around: None,
        hooks: Hooks::default(),
        observe: None,
        long_step: None,
        substitutes: 1,
    };
    Scheduler::new(options, Arc::clone(timer), Arc::new(Metrics::new(SLOTS))).expect("they are few")
}

pub(super) fn started(workers: usize) -> Arc<Scheduler<Job>> {
    let scheduler = scheduler(workers, &Arc::default());
    scheduler.start().expect("a model has threads");
    scheduler
}

/// Makes all workers leave. Parked workers are woken so that they can leave.
pub(super) fn stop(scheduler: &Scheduler<Job>) {
    scheduler.stop();
    assert!(scheduler.wait_stopped(Duration::MAX));
}

/// A task is pushed while a worker parks.
pub fn one_pusher() {
    let (scheduler, jobs) = (started(1), Jobs::new());
    // Without this `yield_now`, loom does not explore the executions in which the worker checks the queues before the
    // push. These executions test the fences of the scheduler.
    thread::yield_now();
    scheduler.schedule(jobs.one(), Placement::Woken);
    jobs.wait(1);
    stop(&scheduler);
}

/// Two tasks are pushed at the same time, while a worker parks.
pub fn two_pushers() {
    let (scheduler, jobs) = (started(1), Jobs::new());
    let job = jobs.one();
    let other = spawn(&scheduler, |scheduler| scheduler.schedule(job, Placement::Woken));
    scheduler.schedule(jobs.one(), Placement::Woken);
    jobs.wait(2);
    join(other);
    stop(&scheduler);
}

/// Returns two jobs. The first job does not return until the second job has run.
fn long_and_short(jobs: &Arc<Jobs>) -> (Job, Job) {
    let latch = Arc::new((Mutex::new(false), Condvar::new()));
    let (opens, waits) = (Arc::clone(&latch), latch);
    let all = Arc::clone(jobs);
    let long = Job(Box::new(move || {
        let mut open = waits.0.lock();
        while !*open {
            open = waits.1.wait(open).expect("never poisoned");
        }
        drop(open);
        all.one_is_done();
    }));
    let short = Job(Box::new(move || {
        *opens.0.lock() = true;
        opens.1.notify_all();
    }));
    (long, short)
}

/// Two jobs are pushed. The first job does not return until the second job is finished. The worker that finds the first
/// job must wake the next worker.
pub fn last_searcher() {
    let (scheduler, jobs) = (started(2), Jobs::new());
    let (long, short) = long_and_short(&jobs);
    // This `yield_now` lets both workers park before the pushes, without a preemption by loom. Loom explores only
    // executions with a limited number of preemptions.
    thread::yield_now();
    scheduler.schedule(long, Placement::Woken);
    scheduler.schedule(short, Placement::Woken);
    jobs.wait(1);
    stop(&scheduler);
}

/// A second job is pushed while the last searching worker takes a first job. Either this worker sees the second job, or
/// the pushing thread sees that no worker is searching.
///
/// Between the two pushes, the pushing thread yields, so that the searching worker runs. Loom limits the number of
/// preemptions, but a yield is not a preemption. Therefore, loom can use a preemption for the second push. With this
/// preemption, the second push happens after the worker has taken the first job, and before the search of the worker
/// ends.
pub fn push_against_last_searcher() {
    let (scheduler, jobs) = (started(2), Jobs::new());
    let (long, short) = long_and_short(&jobs);
    thread::yield_now();
    scheduler.schedule(long, Placement::Woken);
    thread::yield_now();
    scheduler.schedule(short, Placement::Woken);
    jobs.wait(1);
    stop(&scheduler);
}

/// A batch of two jobs is pushed while two workers park. When both jobs have finished, one more job is pushed.
pub fn batch() {
    let (scheduler, jobs) = (started(2), Jobs::new());
    let (long, short) = long_and_short(&jobs);
    thread::yield_now();
    scheduler.schedule_all(vec![long, short]);
    jobs.wait(1);
    scheduler.schedule(jobs.one(), Placement::Woken);
    jobs.wait(2);
    stop(&scheduler);
}

/// The thread that pushes a task chooses to wake a sleeping guest thread, but this guest thread leaves. The worker must
/// take the task.
pub fn chosen_guest_leaves() {
    let (scheduler, jobs) = (scheduler(1, &Arc::default()), Jobs::new());
    // The guest occupies the lowest slot, so the push chooses the guest.
    let guest = scheduler.sleeping_guest();
    scheduler.start().expect("a model has threads");
    // With this `yield_now`, the worker can check the queues before the push, as in `one_pusher`.
    thread::yield_now();
    let job = jobs.one();
    let pusher = spawn(&scheduler, |scheduler| scheduler.schedule(job, Placement::Woken));
    drop(guest);
    jobs.wait(1);
    join(pusher);
    stop(&scheduler);
}

/// A guest thread that is the timekeeper leaves while a worker parks. The worker may have seen that the guest is the
/// timekeeper. Nevertheless, the worker must become the timekeeper.
pub fn timekeeper_leaves() {
    let kept = Jobs::new();
    let timer = Arc::new(Timer { due: AtomicUsize::new(FAR), fired: None, kept: Some(Arc::clone(&kept)) });
    let scheduler = scheduler(1, &timer);
    let guest = scheduler.sleeping_guest();
    let by_the_guest = kept.done.load(Ordering::SeqCst);
    scheduler.start().expect("a model has threads");
    // With this `yield_now`, the worker can check the queues before the guest leaves, as in `one_pusher`.
    thread::yield_now();
    drop(guest);
    while kept.done.load(Ordering::SeqCst) == by_the_guest {
        kept.waiter.wait();
    }
    stop(&scheduler);
}

/// A gate for jobs. Each job of the gate waits until [`open`](Gate::open) is called.
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { is_open: Mutex::new(false), opened: Condvar::new() })
    }

    /// Returns a job that increments `begun` when it begins, and `done` when it returns.
    fn job(self: &Arc<Self>, begun: &Arc<Jobs>, done: &Arc<Jobs>) -> Job {
        let (gate, begun, done) = (Arc::clone(self), Arc::clone(begun), Arc::clone(done));
        Job::new(move || {
            begun.one_is_done();
            let mut is_open = gate.is_open.lock();
            while !*is_open {
                is_open = gate.opened.wait(is_open).expect("never poisoned");
            }
            drop(is_open);
            done.one_is_done();
        })
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opened.notify_all();
    }
}

/// One of two workers is the timekeeper, and another thread pushes a job. This job does not return until a gate opens.
/// If the timekeeper runs the job, the other worker must become the timekeeper.
///
/// The deadline of the timer is far in the future and does not change. Therefore, no new deadline wakes the other
/// worker.
pub fn timekeeper_finds_work() {
    let kept = Jobs::new();
    let timer = Arc::new(Timer { due: AtomicUsize::new(FAR), fired: None, kept: Some(Arc::clone(&kept)) });
    let (scheduler, begun, done, gate) = (scheduler(2, &timer), Jobs::new(), Jobs::new(), Gate::new());
    scheduler.start().expect("a model has threads");
    // With this `yield_now`, the workers can check the queues before the push, as in `one_pusher`.
    thread::yield_now();
    scheduler.schedule(gate.job(&begun, &done), Placement::Woken);
    begun.wait(1);
    while !scheduler.has_timekeeper() {
        kept.waiter.wait();
    }
    gate.open();
    done.wait(1);
    stop(&scheduler);
}

/// An earlier deadline is inserted while one worker replaces another worker as the timekeeper. The timer must fire
/// before the running job returns.
pub fn nearer_deadline_against_hand_over() {
    let fired = Jobs::new();
    let timer = Arc::new(Timer { due: AtomicUsize::new(FAR), fired: Some(Arc::clone(&fired)), kept: None });
    let (scheduler, begun, done, gate) = (scheduler(2, &timer), Jobs::new(), Jobs::new(), Gate::new());
    scheduler.start().expect("a model has threads");
    thread::yield_now();
    scheduler.schedule(gate.job(&begun, &done), Placement::Woken);
    thread::yield_now();
    timer.due.swap(DUE, Ordering::SeqCst);
    scheduler.rearm();
    fired.wait(1);
    gate.open();
    done.wait(1);
    stop(&scheduler);
}

/// The monitor thread goes to sleep while a worker begins to run a task. Either the monitor thread sees that the worker
/// runs a task, or the worker wakes the monitor thread.
pub fn monitor_sleeps_against_begin() {
    let scheduler = scheduler(1, &Arc::default());
    scheduler.has_a_monitor();
    let monitor = spawn(&scheduler, Scheduler::sleep_as_monitor);
    scheduler.begin_as_worker();
    join(monitor);
}

/// Returns a job, and a future that completes when the job has run.
pub(super) fn awaited() -> (Job, impl Future<Output = ()>) {
    let done = Arc::new(Mutex::new((false, None::<Waker>)));
    let answer = Arc::clone(&done);
    let job = Job(Box::new(move || {
        let waker = {
            let mut answer = answer.lock();
            answer.0 = true;
            answer.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }));
    let future = poll_fn(move |cx| {
        let mut done = done.lock();
        if done.0 {
            return Poll::Ready(());
        }
        done.1 = Some(cx.waker().clone());
        Poll::Pending
    });
    (job, future)
}

/// A guest thread parks in `block_on`, and another thread pushes a task at the same time. There is no worker thread.
pub fn guest_blocks() {
    let scheduler = scheduler(0, &Arc::default());
    let (job, future) = awaited();
    let pusher = spawn(&scheduler, |scheduler| scheduler.schedule(job, Placement::Woken));
    scheduler.block_on(future);
    join(pusher);
}

/// A polled guest (a guest that an executor polls) goes to sleep, and another thread pushes a task at the same time.
/// There is no worker thread.
pub fn guest_is_polled() {
    let scheduler = scheduler(0, &Arc::default());
    let (job, future) = awaited();
    let pusher = spawn(&scheduler, |scheduler| scheduler.schedule(job, Placement::Woken));
    let mut run = pin!(scheduler.run(future));
    let poller = Waiter::here();
    while run.as_mut().poll(&mut Context::from_waker(&poller.waker())).is_pending() {
        poller.wait();
    }
    join(pusher);
}

/// A task is pushed while two polled guests sleep. One of the guests is never polled again, so the other guest must run
/// the task.
pub fn guest_is_forgotten() {
    let scheduler = scheduler(0, &Arc::default());
    let mut forgotten = Box::pin(scheduler.run(pending::<()>()));
    assert!(forgotten.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(forgotten);
    let (job, future) = awaited();
    let mut run = pin!(scheduler.run(future));
    let poller = Waiter::here();
    assert!(run.as_mut().poll(&mut Context::from_waker(&poller.waker())).is_pending());
    let pusher = spawn(&scheduler, |scheduler| scheduler.schedule(job, Placement::Woken));
    // Both guests sleep. The second guest is polled only after the push has woken this guest.
    poller.wait();
    while run.as_mut().poll(&mut Context::from_waker(&poller.waker())).is_pending() {
        poller.wait();
    }
    join(pusher);
}

/// Two tasks are pushed while two guest threads are in `block_on`. Each guest leaves when its own task is finished.
/// Before a guest leaves, this guest can run both tasks.
pub fn two_guests() {
    let scheduler = scheduler(0, &Arc::default());
    let ((one, is_done), (another, other_is_done)) = (awaited(), awaited());
    let shared = Arc::clone(&scheduler);
    let guest = thread::spawn(move || shared.block_on(other_is_done));
    let pusher = spawn(&scheduler, |scheduler| {
        scheduler.schedule(one, Placement::Woken);
        scheduler.schedule(another, Placement::Woken);
    });
    scheduler.block_on(is_done);
    join(pusher);
    join(guest);
}

/// The worker parks until a deadline that is far in the future. At the same time, another thread inserts an earlier
/// deadline. The worker must wake up for the earlier deadline.
pub fn nearer_deadline() {
    let jobs = Jobs::new();
    let timer = Arc::new(Timer { due: AtomicUsize::new(FAR), fired: Some(Arc::clone(&jobs)), kept: None });
    let scheduler = scheduler(1, &timer);
    scheduler.start().expect("a model has threads");
    // With this `yield_now`, the worker can check the queues before the deadline is inserted, as in `one_pusher`.
    thread::yield_now();
    timer.due.swap(DUE, Ordering::SeqCst);
    scheduler.rearm();
    jobs.wait(1);
    stop(&scheduler);
}
