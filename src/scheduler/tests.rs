//! Tests of the scheduler. The tasks are closures, and each test itself advances the clock.

pub(crate) mod guest;
mod steals;
mod turns;
mod wakers;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake};

use crate::platform::sync::atomic::{AtomicBool, AtomicU64};
use crate::scheduler::*;

/// A task. The function runs the turn of the task. If the function returns a task with a priority, this other task is
/// the next turn of the task.
pub(super) struct Job(Box<dyn FnOnce() -> Option<(Job, Option<Rank>)> + Send>);

thread_local! {
    static CURRENT: Here<Job> = const { Here::new(RefCell::new(Roles::NONE)) };
}

impl Task for Job {
    type Begun = ();

    fn begin(&self) -> (u64, ()) {
        (NO_LABEL, ())
    }

    fn run(self, (): ()) -> Option<(Self, Option<Rank>)> {
        (self.0)()
    }

    fn current() -> &'static LocalKey<Here<Self>> {
        &CURRENT
    }
}

fn job(f: impl FnOnce() + Send + 'static) -> Job {
    Job(Box::new(move || {
        f();
        None
    }))
}

/// Runs a task that needs only one turn.
fn run(task: Job) {
    assert!(task.run(()).is_none(), "the task has one turn");
}

fn one_more(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::SeqCst);
}

/// A test that takes longer than this time fails, because it probably hangs.
const HANGS: Duration = Duration::from_secs(20);
/// Maximum real time that a timekeeper sleeps before it checks the test's clock.
const TICK: Duration = Duration::from_millis(20);

/// Driver with one deadline. The test advances the clock of the driver.
#[derive(Clone, Default)]
struct Moved(Arc<MovedInner>);

#[derive(Default)]
struct MovedInner {
    armed: AtomicBool,
    due: AtomicBool,
    fired: AtomicBool,
    /// Number of alarms that were set.
    alarms: AtomicUsize,
    /// When the worker in slot 0 of this scheduler has announced that it will park, the next call of
    /// [`wait`](Driver::wait) hands over the tasks of this worker.
    hands_over: Mutex<Option<Arc<Scheduler<Job>>>>,
}

impl Driver for Moved {
    type Alarm = ();

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn fire_due(&self, _: &dyn Fn()) -> usize {
        let fires = self.0.due.load(Ordering::SeqCst) && self.0.armed.swap(false, Ordering::SeqCst);
        if fires {
            self.0.fired.store(true, Ordering::SeqCst);
        }
        usize::from(fires)
    }

    fn wait(&self) -> Option<Duration> {
        let has_announced =
            |scheduler: &mut Arc<Scheduler<Job>>| scheduler.worker_slots[0].is_busy() && scheduler.idle.is_sleeping(0);
        if let Some(scheduler) = self.0.hands_over.lock().take_if(has_announced) {
            assert!(scheduler.replace(0, None));
        }
        let due = self.0.due.load(Ordering::SeqCst);
        self.0.armed.load(Ordering::SeqCst).then_some(if due { Duration::ZERO } else { TICK })
    }

    fn is_due(&self, _: Duration) -> bool {
        Driver::wait(self).is_some_and(|wait| wait.is_zero())
    }

    fn keep_time(&self) -> Option<Duration> {
        Driver::wait(self)
    }

    fn stop_keeping_time(&self) {}

    /// Counts the alarm and sets no real alarm, because each test itself polls its guests.
    fn alarm(&self, _: &Waker, _: Duration) {
        self.0.alarms.fetch_add(1, Ordering::SeqCst);
    }

    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn()) {
        begin();
        ready.drain(..).for_each(Waker::wake);
    }
}

fn options(workers: usize) -> Options {
    Options {
        workers,
        name: "w".into(),
        stack_size: None,
        seed: 1,
        order: QueueOrder::Fifo,
        shuffle: false,
        around: None,
        hooks: Hooks::default(),
        observe: None,
        long_step: None,
        substitutes: 4,
    }
}

fn started_with(options: Options, driver: Moved) -> Arc<Scheduler<Job>> {
    let scheduler = Scheduler::new(options, driver, Arc::new(Metrics::new(SLOTS))).unwrap();
    scheduler.start().unwrap();
    scheduler
}

fn started(workers: usize) -> Arc<Scheduler<Job>> {
    started_with(options(workers), Moved::default())
}

/// Runs a test on a separate thread. A test that hangs fails.
fn within(f: impl FnOnce() + Send + 'static) {
    let here = thread::current();
    let thread = thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        here.unpark();
        result
    });
    for _ in 0..HANGS.as_millis() {
        if thread.is_finished() {
            if let Ok(Err(panic)) | Err(panic) = thread.join() {
                resume_unwind(panic);
            }
            return;
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    panic!("it hangs");
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        thread::park_timeout(Duration::from_micros(500));
    }
    panic!("never: {what}");
}

fn asleep<T: Task>(scheduler: &Scheduler<T>, slot: usize) -> bool {
    scheduler.idle.is_sleeping(slot)
}

fn end(scheduler: &Arc<Scheduler<Job>>) {
    scheduler.stop();
    assert!(scheduler.wait_stopped(HANGS / 2));
}

/// A flag that a future can wait for.
#[derive(Clone, Default)]
struct Flag(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Flag {
    fn set(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        let waker = self.0.1.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_set(&self) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    /// Blocks this thread until the flag is set. The thread runs no tasks during this time.
    fn block(&self) {
        futures::executor::block_on(self.wait());
    }

    fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        let flag = self.clone();
        poll_fn(move |cx| {
            *flag.0.1.lock() = Some(cx.waker().clone());
            if flag.is_set() { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn every_task_from_another_thread_runs() {
    within(|| {
        for workers in [1, 2] {
            let scheduler = started(workers);
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..100_000 {
                let ran = Arc::clone(&ran);
                scheduler.schedule(job(move || one_more(&ran)), Placement::Woken);
            }
            eventually("all run", || ran.load(Ordering::SeqCst) == 100_000);
            end(&scheduler);
        }
    });
}

#[test]
fn the_last_woken_task_runs_first_and_the_other_tasks_run_in_order() {
    within(|| {
        let scheduler = started(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (all, done) = (Arc::clone(&order), Flag::default());
        let set = done.clone();
        let inner = Arc::clone(&scheduler);
        scheduler.schedule(
            job(move || {
                for n in 0..4 {
                    let order = Arc::clone(&all);
                    inner.schedule(job(move || order.lock().push(n)), Placement::Woken);
                }
                let order = Arc::clone(&all);
                inner.schedule(job(move || order.lock().push(5)), Placement::Yielded);
                let last = move || {
                    all.lock().push(4);
                    set.set();
                };
                inner.schedule(job(last), Placement::Yielded);
            }),
            Placement::Woken,
        );
        done.block();
        assert_eq!(*order.lock(), [3, 0, 1, 2, 5, 4]);
        end(&scheduler);
    });
}

#[test]
fn no_second_worker_is_woken_if_two_tasks_wake_each_other() {
    within(|| {
        let scheduler = started(2);
        eventually("both sleep", || asleep(&scheduler, 0) && asleep(&scheduler, 1));
        fn play(scheduler: &Arc<Scheduler<Job>>, left: usize, done: Flag) {
            if left == 0 {
                return done.set();
            }
            let again = Arc::clone(scheduler);
            scheduler.schedule(job(move || play(&again, left - 1, done)), Placement::Woken);
        }
        let done = Flag::default();
        play(&scheduler, 100_000, done.clone());
        eventually("the game ends", || done.is_set());
        let wakes = scheduler.metrics.counters().wakes;
        assert!(wakes < 100, "{wakes} wakes");
        end(&scheduler);
    });
}

/// Pushes one task at a time to a scheduler that has no other work. If a wake-up is lost, the test hangs.
#[test]
fn an_idle_scheduler_wakes_a_worker_for_every_push() {
    within(|| {
        let pushes = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
        for workers in [1, 2] {
            let scheduler = started(workers);
            for _ in 0..pushes {
                let done = Flag::default();
                let set = done.clone();
                scheduler.schedule(job(move || set.set()), Placement::Woken);
                done.block();
            }
            end(&scheduler);
        }
    });
}

/// Number of tasks that fit into the local queues, for each placement. If the local queues are full, the next task is
/// added to the batch. New tasks also fill the queue of new tasks, which has the same capacity as the deque.
const FULL: [(Placement, usize); 2] = [(Placement::Woken, 4_096), (Placement::New, 2 * 4_096)];
const BATCH: usize = 128;

#[test]
fn all_tasks_run_even_if_they_overflow_a_local_queue() {
    within(|| {
        let counts =
            |full| [full - 1, full, full + 1, full + 44, full + BATCH - 1, full + BATCH, full + BATCH + 1, 20_000];
        for (how, spawned) in FULL.into_iter().flat_map(|(how, full)| counts(full).map(|spawned| (how, spawned))) {
            let scheduler = started(1);
            let ran = Arc::new(AtomicUsize::new(0));
            let (inner, count) = (Arc::clone(&scheduler), Arc::clone(&ran));
            scheduler.schedule(
                job(move || {
                    for _ in 0..spawned {
                        let count = Arc::clone(&count);
                        inner.schedule(job(move || one_more(&count)), how);
                    }
                }),
                Placement::Woken,
            );
            eventually("all run", || ran.load(Ordering::SeqCst) == spawned);
            end(&scheduler);
        }
    });
}

#[test]
fn a_drain_after_a_stop_returns_the_tasks_that_did_not_run() {
    within(|| {
        let scheduler = started(1);
        let alive = Arc::new(());
        let stopped = Flag::default();
        let go = stopped.clone();
        let (inner, counted) = (Arc::clone(&scheduler), Arc::clone(&alive));
        let ready = Flag::default();
        let said = ready.clone();
        scheduler.schedule(
            job(move || {
                for _ in 0..1_000 {
                    let counted = Arc::clone(&counted);
                    inner.schedule(job(move || drop(counted)), Placement::Woken);
                }
                said.set();
                drop(counted);
                go.block();
            }),
            Placement::Woken,
        );
        eventually("it holds 1000", || ready.is_set());
        scheduler.stop();
        stopped.set();
        assert!(scheduler.wait_stopped(HANGS / 2));
        let rest = scheduler.drain();
        assert_eq!((rest.len(), Arc::strong_count(&alive)), (1_000, 1_001));
        drop(rest);
        assert_eq!((scheduler.drain().len(), Arc::strong_count(&alive)), (0, 1));
    });
}

#[test]
fn a_worker_can_stop_its_own_scheduler() {
    within(|| {
        let scheduler = started(2);
        let inner = Arc::clone(&scheduler);
        let heard = Flag::default();
        let said = heard.clone();
        scheduler.schedule(
            job(move || {
                inner.stop();
                assert!(inner.wait_stopped(HANGS / 2));
                said.set();
            }),
            Placement::Woken,
        );
        heard.block();
        assert!(scheduler.wait_stopped(HANGS / 2));
    });
}

/// A hook of a worker thread is user code, so the hook may drop the last handle of the runtime. When the thread calls
/// this stop hook, the worker of this thread has already left its slot.
#[test]
fn a_stop_hook_can_wait_for_its_own_scheduler() {
    within(|| {
        let place = Arc::new(Mutex::new(None::<Arc<Scheduler<Job>>>));
        let (inner, result) = (Arc::clone(&place), Flag::default());
        let stopped = result.clone();
        let stop: Hook = Arc::new(move || {
            let scheduler = inner.lock().take();
            if let Some(scheduler) = scheduler {
                assert!(scheduler.wait_stopped(HANGS / 2));
                stopped.set();
            }
        });
        let scheduler = started_with(
            Options { hooks: Hooks { stop: Some(stop), ..Hooks::default() }, ..options(1) },
            Moved::default(),
        );
        *place.lock() = Some(Arc::clone(&scheduler));
        scheduler.stop();
        result.block();
        assert!(scheduler.wait_stopped(HANGS / 2));
    });
}

/// 12.4b: the helper thread that waits in the poller calls the wakers of other executors. Such a waker may drop the
/// last handle of the runtime, and this drop must not wait for the helper thread.
#[test]
#[cfg(all(feature = "net", not(miri)))]
fn a_waker_on_the_helper_thread_can_stop_the_scheduler_and_wait_for_its_end() {
    use crate::platform::poller::source::Direction;

    struct Last {
        scheduler: Mutex<Option<Arc<Scheduler<Job>>>>,
        stopped: Flag,
    }
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            let Some(scheduler) = self.scheduler.lock().take() else { return };
            scheduler.stop();
            assert!(scheduler.wait_stopped(HANGS / 2));
            self.stopped.set();
        }
    }
    within(|| {
        let scheduler = started(0);
        let poller = Arc::clone(scheduler.open_poller(Poller::open).expect("free descriptors"));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let mut registered =
            mio::net::UdpSocket::bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let source = poller.register(&mut registered, 0).expect("it can be registered");
        let Poll::Ready(Ok(seen)) = source.check(Direction::Read) else { panic!("a new source is ready") };
        source.clear(Direction::Read, seen);
        let stopped = Flag::default();
        let last = Last { scheduler: Mutex::new(Some(Arc::clone(&scheduler))), stopped: stopped.clone() };
        assert!(source.poll_ready(Direction::Read, &Waker::from(Arc::new(last))).is_pending());
        scheduler.start_poll_thread().expect("a thread");
        socket.send_to(b"x", registered.local_addr().expect("an address")).expect("it is sent");
        stopped.block();
        assert!(scheduler.wait_stopped(HANGS / 2));
        poller.deregister(&mut registered, &source);
    });
}

#[test]
fn a_worker_survives_a_panic() {
    within(|| {
        let scheduler = started(1);
        let done = Flag::default();
        let set = done.clone();
        scheduler.schedule(job(|| panic!("on purpose")), Placement::Woken);
        scheduler.schedule(job(move || set.set()), Placement::Woken);
        eventually("the next one runs", || done.is_set());
        end(&scheduler);
    });
}

#[test]
fn a_number_of_workers_above_the_number_of_slots_is_refused() {
    let refused = Scheduler::<Job>::new(options(SLOTS + 1), Moved::default(), Arc::new(Metrics::new(SLOTS)));
    assert_eq!(refused.unwrap_err(), TooManyWorkers { asked: SLOTS + 1, most: SLOTS });
}

#[test]
fn a_task_can_use_the_method_block_on_of_its_own_scheduler_and_of_another_scheduler() {
    within(|| {
        let (one, two) = (started(1), started(1));
        let (inner_one, inner_two) = (Arc::clone(&one), Arc::clone(&two));
        let done = Flag::default();
        let set = done.clone();
        one.schedule(
            job(move || {
                let (same, other) = (Flag::default(), Flag::default());
                let (set_same, set_other) = (same.clone(), other.clone());
                inner_one.schedule(job(move || set_same.set()), Placement::Woken);
                inner_one.block_on(same.wait());
                inner_two.schedule(job(move || set_other.set()), Placement::Woken);
                inner_two.block_on(other.wait());
                set.set();
            }),
            Placement::Woken,
        );
        two.block_on(done.wait());
        end(&one);
        end(&two);
    });
}

/// The worker that owns the batch is blocked, because its current task waits for the tasks in the batch.
#[test]
fn a_task_can_wait_for_all_tasks_that_it_has_spawned() {
    within(|| {
        let counts = |full| [10, full, full + 44, full + BATCH + 16];
        for (how, spawned) in FULL.into_iter().flat_map(|(how, full)| counts(full).map(|spawned| (how, spawned))) {
            let scheduler = started(1);
            let inner = Arc::clone(&scheduler);
            let done = Flag::default();
            let set = done.clone();
            scheduler.schedule(
                job(move || {
                    let left = Arc::new(AtomicUsize::new(spawned));
                    let all = Flag::default();
                    for _ in 0..spawned {
                        let (left, all) = (Arc::clone(&left), all.clone());
                        let count = move || {
                            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                                all.set();
                            }
                        };
                        inner.schedule(job(count), how);
                    }
                    inner.block_on(all.wait());
                    set.set();
                }),
                Placement::Woken,
            );
            eventually("the outer task returns", || done.is_set());
            end(&scheduler);
        }
    });
}

/// The woken task is in the `next` slot of the worker that woke the task. No other worker was woken for this task.
#[test]
fn a_task_of_one_scheduler_can_wait_inside_another_scheduler_for_a_task_of_the_first_scheduler() {
    within(|| {
        let (one, two) = (started(2), started(0));
        eventually("both sleep", || asleep(&one, 0) && asleep(&one, 1));
        let done = Flag::default();
        let (inner, set) = (Arc::clone(&one), done.clone());
        one.schedule(
            job(move || {
                eventually("the other sleeps", || asleep(&inner, 0) || asleep(&inner, 1));
                let woken = Flag::default();
                let set_woken = woken.clone();
                inner.schedule(job(move || set_woken.set()), Placement::Woken);
                two.block_on(woken.wait());
                set.set();
            }),
            Placement::Woken,
        );
        eventually("it returns", || done.is_set());
        end(&one);
    });
}

/// 4.2b: if the previous timekeeper runs short tasks without a pause, the monitor wakes another worker, which becomes
/// the timekeeper.
#[test]
fn another_worker_becomes_the_timekeeper_while_the_former_timekeeper_is_busy() {
    /// Task that queues itself again until a worker is the timekeeper.
    fn run_until_timed(scheduler: &Arc<Scheduler<Job>>, done: Flag) {
        if scheduler.idle.timekeeper().is_some() {
            return done.set();
        }
        let again = Arc::clone(scheduler);
        scheduler.schedule(job(move || run_until_timed(&again, done)), Placement::Yielded);
    }
    within(|| {
        let driver = Moved::default();
        driver.0.armed.store(true, Ordering::SeqCst);
        // The time until the deadline is longer than the bound of this monitor. Therefore the previous timekeeper wakes
        // no worker. Only the monitor can wake another worker.
        let scheduler = started_with(Options { long_step: Some(Duration::from_millis(2)), ..options(2) }, driver);
        let both_sleep = || asleep(&scheduler, 0) && asleep(&scheduler, 1);
        // A push wakes the worker in slot 0. So the test first waits until this worker is the timekeeper.
        while scheduler.idle.timekeeper() != Some(0) || !both_sleep() {
            eventually("both workers sleep", both_sleep);
            [1, 0].into_iter().for_each(|slot| scheduler.idle.wake(slot));
            thread::yield_now();
            eventually("both workers sleep", both_sleep);
        }
        let done = Flag::default();
        let (again, sets) = (Arc::clone(&scheduler), done.clone());
        scheduler.schedule(job(move || run_until_timed(&again, sets)), Placement::Woken);
        eventually("another worker is the timekeeper", || done.is_set());
        end(&scheduler);
    });
}

/// 4.7d, 4.5f: a worker announces that it will park. Then the monitor hands over the tasks of this worker, for example
/// because the hook before the announcement took a long time. The monitor then wakes another worker. The first worker
/// ends the hand-over before it parks.
#[test]
fn a_worker_does_not_park_while_its_tasks_are_handed_over() {
    within(|| {
        let driver = Moved::default();
        let hooks = Hooks { park: Some(Arc::new(|| ())), ..Hooks::default() };
        let scheduler = started_with(Options { hooks, substitutes: 0, ..options(1) }, driver.clone());
        for _ in 0..3 {
            eventually("the worker sleeps", || asleep(&scheduler, 0));
            *driver.0.hands_over.lock() = Some(Arc::clone(&scheduler));
            scheduler.idle.wake(0);
            eventually("the step was handed over", || driver.0.hands_over.lock().is_none());
            eventually("the hand-over has ended", || !scheduler.worker_slots[0].is_handed_over());
        }
        end(&scheduler);
    });
}

/// 4.2a: with equal probability, each of the seven victims is the first victim of a steal.
#[test]
fn victims_come_in_random_order() {
    let scheduler = Scheduler::<Job>::new(options(8), Moved::default(), Arc::new(Metrics::new(SLOTS))).unwrap();
    let mut workers: Vec<_> = (0..8).map(|_| scheduler.occupy(false).unwrap()).collect();
    let thief = workers.pop().unwrap();
    let hits: Arc<Vec<AtomicU64>> = Arc::new((0..7).map(|_| AtomicU64::new(0)).collect());
    for _ in 0..700 {
        for (number, worker) in workers.iter().enumerate() {
            if scheduler.remotes[number].is_empty() {
                let hits = Arc::clone(&hits);
                let job = job(move || {
                    hits[number].fetch_add(1, Ordering::SeqCst);
                });
                assert!(!worker.push(job, Placement::Yielded), "it is alone there");
            }
        }
        run(thief.steal(1).unwrap());
    }
    let hits: Vec<_> = hits.iter().map(|hits| hits.load(Ordering::SeqCst)).collect();
    assert!(hits.iter().all(|&hits| (50..150).contains(&hits)), "{hits:?}");
}

/// 9.1b: a wake-up counts as a wake-up without work if the woken worker finds no task, because another thread has taken
/// the task.
#[test]
fn a_wake_up_without_work_is_counted_by_the_woken_worker() {
    let scheduler = Scheduler::<Job>::new(options(1), Moved::default(), Arc::new(Metrics::new(SLOTS))).unwrap();
    let worker = scheduler.occupy(false).unwrap();
    let counts = || {
        let counters = scheduler.metrics.counters();
        (counters.wakes, counters.wakes_without_work, counters.parks)
    };
    let states = || scheduler.gauges().workers.iter().map(|worker| worker.state).collect::<Vec<_>>();
    assert_eq!((states(), scheduler.gauges().global_queue_depth), (vec![WorkerState::Searching], 0));
    // The worker parks, and no push wakes this worker.
    assert!(worker.find(1).is_none() && worker.announce_sleep());
    assert_eq!((counts(), states()), ((0, 0, 1), vec![WorkerState::Parked]));
    worker.wake_up();
    assert!(worker.find(1).is_none() && worker.announce_sleep());
    assert_eq!(counts(), (0, 0, 2));
    for round in 1..4 {
        // The worker finds the task for which it was woken.
        scheduler.schedule_elsewhere(job(|| {}), Placement::Woken);
        assert_eq!((counts(), scheduler.gauges().global_queue_depth), ((2 * round - 1, round - 1, 2 * round), 1));
        worker.wake_up();
        run(worker.find(1).unwrap());
        assert!(worker.find(1).is_none() && worker.announce_sleep());
        // Another thread takes the task for which the worker was woken.
        scheduler.schedule_elsewhere(job(|| {}), Placement::Woken);
        run(scheduler.global.pop().unwrap());
        worker.wake_up();
        assert!(worker.find(1).is_none() && worker.announce_sleep());
        assert_eq!(counts(), (2 * round, round, 2 * round + 2));
    }
}
