//! Tests of calls of wakers that belong to no task.

use crate::scheduler::tests::*;

/// Driver with one timer. The waker of the timer blocks the worker that fires the timer. The waker waits until a task
/// in the queue of this worker has run.
struct Waits(Arc<(AtomicBool, Mutex<Option<Arc<Scheduler<Job>>>>)>);

impl Driver for Waits {
    type Alarm = ();

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn fire_due(&self, begin: &dyn Fn()) -> usize {
        let due = self.0.0.swap(false, Ordering::SeqCst);
        begin();
        let scheduler = self.0.1.lock().take();
        if let Some(scheduler) = scheduler.filter(|_| due) {
            let done = Flag::default();
            let sets = done.clone();
            scheduler.schedule(job(move || sets.set()), Placement::Woken);
            scheduler.block_on(done.wait());
        }
        usize::from(due)
    }

    fn wait(&self) -> Option<Duration> {
        self.0.0.load(Ordering::SeqCst).then_some(Duration::ZERO)
    }

    fn is_due(&self, _: Duration) -> bool {
        self.0.0.load(Ordering::SeqCst)
    }

    fn keep_time(&self) -> Option<Duration> {
        Driver::wait(self)
    }

    fn stop_keeping_time(&self) {}

    fn alarm(&self, _: &Waker, _: Duration) {}

    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn()) {
        begin();
        ready.drain(..).for_each(Waker::wake);
    }
}

#[test]
fn a_worker_ends_its_search_before_it_calls_a_waker() {
    within(|| {
        let timer = Arc::new((AtomicBool::new(false), Mutex::new(None)));
        let metrics = Arc::new(Metrics::new(SLOTS));
        let scheduler = Scheduler::new(options(0), Waits(Arc::clone(&timer)), metrics).unwrap();
        *timer.1.lock() = Some(Arc::clone(&scheduler));
        let worker = Worker::act(scheduler.occupy(false).unwrap());
        // The sleeping worker is woken and must search, but there is no task.
        assert!(worker.announce_sleep());
        scheduler.notify();
        worker.wake_up();
        timer.0.store(true, Ordering::SeqCst);
        assert!(worker.find(0).is_none());
        assert!(timer.1.lock().is_none(), "the timer has fired");
        worker.stop_acting().into_inner().leave();
    });
}

/// 4.2b: before the timekeeper calls wakers, the timekeeper wakes another worker only if the monitor is off or would
/// need too much time to notice a blocked waker.
#[test]
fn a_timekeeper_without_a_fast_monitor_wakes_a_worker_before_it_calls_wakers() {
    let long = LONGEST_DELAY * 2;
    for (long_step, needs_other) in [(Some(Duration::from_millis(20)), false), (Some(long), true), (None, true)] {
        let driver = Moved::default();
        driver.0.armed.store(true, Ordering::SeqCst);
        let options = Options { long_step, ..options(2) };
        let scheduler = Scheduler::<Job>::new(options, driver, Arc::new(Metrics::new(SLOTS))).unwrap();
        if long_step.is_some() {
            // No thread of the monitor starts, so only `worker` can wake the other worker.
            scheduler.has_a_monitor();
        }
        let worker = Worker::act(scheduler.occupy(false).unwrap());
        let parked = scheduler.occupy(false).unwrap();
        assert!(worker.announce_sleep() && parked.announce_sleep());
        assert_eq!(scheduler.idle.timekeeper(), Some(worker.slot()));
        worker.wake_up();
        worker.queue_ready(vec![Waker::noop().clone()]);
        assert_eq!(!scheduler.idle.is_sleeping(parked.slot()), needs_other, "{long_step:?}");
        // A step usually takes longer than the call of a waker. Therefore, if the monitor is fast, `worker` wakes the
        // other worker when `worker` finds a task. If the monitor is slow or off, the other worker is already awake.
        scheduler.schedule(job(|| ()), Placement::Woken);
        assert!(worker.find(0).is_some());
        assert!(!scheduler.idle.is_sleeping(parked.slot()), "{long_step:?}");
        parked.wake_up();
        parked.into_inner().leave();
        worker.stop_acting().into_inner().leave();
    }
}

/// 4.7a: the monitor does not treat two calls of wakers as one long step.
#[test]
fn each_call_of_wakers_has_its_own_step_number() {
    let scheduler = Scheduler::<Job>::new(options(1), Moved::default(), Arc::new(Metrics::new(SLOTS))).unwrap();
    // A guest occupies the slot, so a hand-over does not change the counts of worker threads.
    scheduler.worker_slots[0].initialize(true);
    let numbers = [(); 3].map(|()| {
        scheduler.worker_slots[0].begins_user_code();
        scheduler.step_number(0)
    });
    assert!(numbers.is_sorted_by(|one, other| one < other));
    let outdated = Some(numbers[1]);
    scheduler.worker_slots[0].begin();
    assert!(!scheduler.hand_over(0, outdated) && scheduler.hand_over(0, Some(numbers[2])));
}

/// 5.2c: when the monitor hands over a long step, the monitor may call the waker of an executor. The waker may wait
/// until the worker of the step reports its next state. The worker waits for the report of the monitor. Therefore the
/// monitor must report the step before it calls the waker.
#[test]
fn the_monitor_reports_a_long_step_before_it_calls_a_waker() {
    /// Waits for the report of the monitor, as the worker in slot 1 does.
    struct AwaitsReport(Arc<Scheduler<Job>>, Arc<Mutex<Vec<WorkerState>>>, AtomicUsize);

    impl Wake for AwaitsReport {
        fn wake(self: Arc<Self>) {
            self.0.await_report(1);
            assert_eq!(self.1.lock().last(), Some(&WorkerState::Blocked));
            self.2.fetch_add(1, Ordering::SeqCst);
        }
    }

    within(|| {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&reports);
        let observe: Observe = Arc::new(move |slot, state, _| {
            if slot == 1 {
                log.lock().push(state);
            }
        });
        let options = Options { observe: Some(observe), substitutes: 0, ..options(0) };
        let scheduler = started_with(options, Moved::default());
        let waker = Arc::new(AwaitsReport(Arc::clone(&scheduler), reports, AtomicUsize::new(0)));
        let mut guest = Box::pin(scheduler.run(std::future::pending::<()>()));
        assert!(guest.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker)))).is_pending());
        // Another guest runs a step in slot 1.
        let worker_slot = &scheduler.worker_slots[1];
        worker_slot.initialize(true);
        worker_slot.set_label(7);
        worker_slot.begin();
        let mut seen = None;
        (0..3).for_each(|_| assert!(scheduler.look_at(1, &mut seen)));
        assert!(worker_slot.is_handed_over());
        assert_eq!(waker.2.load(Ordering::SeqCst), 1);
        worker_slot.resume();
    });
}
