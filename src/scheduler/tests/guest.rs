//! Tests of guest threads, either in `block_on` or in a polled `run` future.

use crate::scheduler::tests::*;

/// Polls the future once, with a waker that counts its wake-ups.
fn poll_once<F: Future>(run: Pin<&mut F>, count: &Arc<Counting>) -> Poll<F::Output> {
    run.poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

#[test]
fn a_wake_up_reaches_another_guest_if_the_first_guest_is_dropped() {
    within(|| {
        let scheduler = started(0);
        let (first, second) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
        let mut one = Box::pin(scheduler.run(std::future::pending::<()>()));
        let mut two = Box::pin(scheduler.run(std::future::pending::<()>()));
        assert!(poll_once(one.as_mut(), &first).is_pending());
        assert!(poll_once(two.as_mut(), &second).is_pending());
        let ran = Flag::default();
        let set = ran.clone();
        scheduler.schedule(job(move || set.set()), Placement::Woken);
        let woken = (first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst));
        assert_eq!(woken, (1, 1), "both are woken, because either may never be polled again");
        drop(one);
        assert!(poll_once(two.as_mut(), &second).is_pending());
        assert!(ran.is_set());
    });
}

#[test]
fn a_dropped_guest_passes_its_tasks_on() {
    within(|| {
        let scheduler = started(0);
        let count = Arc::new(Counting::default());
        let inner = Arc::clone(&scheduler);
        let ran = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ran);
        // One poll does not run all tasks. Therefore, when the poll returns, the deque and the `next` slot still
        // contain tasks.
        let mut guest = Box::pin(scheduler.run(async move {
            for _ in 0..600 {
                let counter = Arc::clone(&counter);
                inner.schedule(job(move || one_more(&counter)), Placement::Woken);
            }
            std::future::pending::<()>().await;
        }));
        assert!(poll_once(guest.as_mut(), &count).is_pending());
        // The limit is 200 tasks, and the poll of the guest's own future counts as one task.
        assert_eq!(ran.load(Ordering::SeqCst), 199);
        drop(guest);
        assert_eq!(scheduler.gauges().global_queue_depth, 401);
        let rest = Arc::clone(&ran);
        scheduler.block_on(poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if rest.load(Ordering::SeqCst) == 600 { Poll::Ready(()) } else { Poll::Pending }
        }));
    });
}

/// A push chooses a sleeping guest. Therefore the guest counts as searching. At the same time, the guest's own future
/// is woken. This future waits for a task that only a worker can run.
#[test]
fn a_guest_is_not_counted_as_a_searching_thread_while_its_own_future_runs() {
    within(|| {
        let scheduler = started(0);
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let (inner, stored, ran) = (Arc::clone(&scheduler), Arc::clone(&waker), Flag::default());
        let guest = thread::spawn(move || {
            let mut polls = 0;
            let outer = Arc::clone(&inner);
            outer.block_on(poll_fn(move |cx| {
                polls += 1;
                if polls == 1 {
                    *stored.lock() = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                // The second task displaces the first task from the `next` slot, so a worker can take the first task.
                let sets = ran.clone();
                inner.schedule(job(move || sets.set()), Placement::Woken);
                inner.schedule(job(|| ()), Placement::Woken);
                ran.block();
                Poll::Ready(())
            }));
        });
        eventually("the guest sleeps", || asleep(&scheduler, 0));
        scheduler.set_workers(1);
        eventually("the worker sleeps", || asleep(&scheduler, 0) && asleep(&scheduler, 1));
        scheduler.notify();
        waker.lock().take().expect("polled").wake();
        guest.join().unwrap();
        end(&scheduler);
    });
}

/// The slot of the completed guest is vacant, even while the `run` future still exists. Another thread runs the task
/// that the guest's future woke last.
#[test]
fn a_completed_guest_keeps_no_tasks_and_no_slot() {
    within(|| {
        let scheduler = started(1);
        eventually("the worker sleeps", || asleep(&scheduler, 0));
        let ran = Flag::default();
        let (inner, set) = (Arc::clone(&scheduler), ran.clone());
        let mut guest =
            Box::pin(scheduler.run(async move { inner.schedule(job(move || set.set()), Placement::Woken) }));
        futures::executor::block_on(guest.as_mut());
        eventually("the task that the future has queued runs", || ran.is_set());
        assert_eq!(scheduler.present(), 1);
        drop(guest);
        end(&scheduler);
    });
}

/// Each of the two guests sets its own alarm, because it is possible that the other guest is never polled again.
#[test]
fn each_polled_guest_sets_its_own_alarm() {
    for polled_again in [false, true] {
        let driver = Moved::default();
        driver.0.armed.store(true, Ordering::SeqCst);
        let scheduler = started_with(options(0), driver.clone());
        let (first, second) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
        let done = Flag::default();
        let mut one = Box::pin(scheduler.run(done.wait()));
        let mut two = Box::pin(scheduler.run(std::future::pending::<()>()));
        assert!(poll_once(one.as_mut(), &first).is_pending());
        assert!(poll_once(two.as_mut(), &second).is_pending());
        assert_eq!(driver.0.alarms.load(Ordering::SeqCst), 2);
        assert_eq!(scheduler.idle.timekeeper(), None);
        if polled_again {
            done.set();
            assert!(poll_once(one.as_mut(), &first).is_ready());
        }
        drop(one);
        assert_eq!(second.0.load(Ordering::SeqCst), 1, "it is told");
        assert!(poll_once(two.as_mut(), &second).is_pending());
        assert_eq!(driver.0.alarms.load(Ordering::SeqCst), 3);
        driver.0.due.store(true, Ordering::SeqCst);
        assert!(poll_once(two.as_mut(), &second).is_pending());
        assert!(driver.0.fired.load(Ordering::SeqCst));
    }
}

/// A guest that waits for its own future sleeps, even after the workers have left.
#[test]
fn a_guest_sleeps_after_the_workers_were_stopped() {
    within(|| {
        let scheduler = started(1);
        let count = Arc::new(Counting::default());
        end(&scheduler);
        let mut guest = Box::pin(scheduler.run(std::future::pending::<()>()));
        for _ in 0..3 {
            assert!(poll_once(guest.as_mut(), &count).is_pending());
        }
        assert_eq!(count.0.load(Ordering::SeqCst), 0, "it asked to be polled again");
    });
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker on purpose");
    }
}

/// The waker of the executor is user code, and a push calls this waker.
#[test]
fn a_panic_in_the_waker_of_an_executor_stops_no_worker() {
    within(|| {
        let scheduler = started(1);
        let mut guest = Box::pin(scheduler.run(std::future::pending::<()>()));
        let ran = Arc::new(AtomicUsize::new(0));
        let busy = Flag::default();
        let (inner, count, said) = (Arc::clone(&scheduler), Arc::clone(&ran), busy.clone());
        let release = Flag::default();
        let go = release.clone();
        scheduler.schedule(
            job(move || {
                said.set();
                go.block();
                for _ in 0..4 {
                    let count = Arc::clone(&count);
                    inner.schedule(job(move || one_more(&count)), Placement::Woken);
                }
            }),
            Placement::Woken,
        );
        eventually("the worker is busy", || busy.is_set());
        let polled = guest.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(PanickingWaker))));
        assert!(polled.is_pending());
        release.set();
        // The woken guest is dropped before its next poll. All tasks still run, on the worker.
        eventually("it was chosen", || !asleep(&scheduler, 1));
        drop(guest);
        eventually("all run", || ran.load(Ordering::SeqCst) == 4);
        end(&scheduler);
    });
}

#[test]
fn guests_beyond_the_number_of_slots_wait_for_a_slot() {
    within(|| {
        let scheduler = started(0);
        let count = Arc::new(Counting::default());
        let mut guests: Vec<_> = (0..=SLOTS).map(|_| Box::pin(scheduler.run(std::future::pending::<()>()))).collect();
        for guest in &mut guests {
            assert!(poll_once(guest.as_mut(), &count).is_pending());
        }
        assert_eq!((scheduler.present(), count.0.load(Ordering::SeqCst)), (SLOTS, 0));
        drop(guests.remove(0));
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "the guest was notified of the free place");
        assert!(poll_once(guests[SLOTS - 1].as_mut(), &count).is_pending());
        assert_eq!(scheduler.present(), SLOTS);
    });
}

/// Driver with one deadline. When the deadline has passed, the driver sets a flag. The tasks of a test advance the
/// clock of the driver.
#[derive(Clone, Default)]
struct Clocked(Arc<(AtomicU64, Mutex<Option<(Duration, Flag)>>)>);

impl Clocked {
    fn pass(&self, time: Duration) {
        self.0.0.fetch_add(time.as_micros() as u64, Ordering::SeqCst);
    }
}

impl Driver for Clocked {
    type Alarm = ();

    fn now(&self) -> Duration {
        Duration::from_micros(self.0.0.load(Ordering::SeqCst))
    }

    fn fire_due(&self, _: &dyn Fn()) -> usize {
        let now = Driver::now(self);
        let fires = self.0.1.lock().take_if(|(due, _)| *due <= now);
        fires.iter().for_each(|(_, flag)| flag.set());
        usize::from(fires.is_some())
    }

    fn wait(&self) -> Option<Duration> {
        let now = Driver::now(self);
        self.0.1.lock().as_ref().map(|(due, _)| due.saturating_sub(now))
    }

    fn is_due(&self, now: Duration) -> bool {
        self.0.1.lock().as_ref().is_some_and(|&(due, _)| due <= now)
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

/// Queues `count` tasks. Each task takes `time`. Returns the counter of tasks that have begun.
fn tasks_that_take(clock: &Clocked, scheduler: &Scheduler<Job>, time: Duration, count: usize) -> Arc<AtomicUsize> {
    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..count {
        let (clock, begun) = (clock.clone(), Arc::clone(&begun));
        let task = move || {
            one_more(&begun);
            clock.pass(time);
        };
        scheduler.schedule(job(task), Placement::Woken);
    }
    begun
}

fn clocked() -> (Clocked, Arc<Scheduler<Job>>) {
    let clock = Clocked::default();
    let scheduler = Scheduler::new(options(0), clock.clone(), Arc::new(Metrics::new(SLOTS))).unwrap();
    (clock, scheduler)
}

#[test]
fn a_poll_of_a_guest_ends_when_the_time_limit_of_the_poll_is_over() {
    let (clock, scheduler) = clocked();
    let count = Arc::new(Counting::default());
    for (time, most) in [(1, 116), (50, 2), (1_000, 1)] {
        let begun = tasks_that_take(&clock, &scheduler, Duration::from_micros(time), 600);
        let mut guest = Box::pin(scheduler.run(std::future::pending::<()>()));
        let mut polls = 0;
        while begun.load(Ordering::SeqCst) < 600 {
            let (before, rung) = (begun.load(Ordering::SeqCst), count.0.load(Ordering::SeqCst));
            assert!(poll_once(guest.as_mut(), &count).is_pending());
            let ran = begun.load(Ordering::SeqCst) - before;
            assert!((1..=most).contains(&ran), "{ran} tasks of {time} µs in one poll");
            polls += 1;
            assert!(before + ran == 600 || count.0.load(Ordering::SeqCst) > rung, "it asks to be polled again");
        }
        assert!(polls >= 600 / most);
    }
}

/// Each poll of the future takes 1 ms, and one poll of the guest may take only 0.1 ms. In each of its polls, the future
/// is woken, either by itself or by another thread. If another thread wakes the future, the guest polls the future 16
/// times without a task in between. Then the time of this poll of the guest is over. At the next poll of the guest, the
/// guest polls the future for the seventeenth time, and then runs a task.
#[test]
fn a_long_future_that_is_always_woken_does_not_starve_tasks() {
    within(|| {
        for (itself, polls_per_task) in [(true, 1), (false, 17)] {
            let (clock, scheduler) = clocked();
            let count = Arc::new(Counting::default());
            let begun = tasks_that_take(&clock, &scheduler, Duration::ZERO, 20);
            let (mut polls, time) = (0, clock.clone());
            let own_polls = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&own_polls);
            let mut guest = Box::pin(scheduler.run(poll_fn(move |cx| -> Poll<()> {
                one_more(&counter);
                time.pass(Duration::from_millis(1));
                let waker = cx.waker().clone();
                if itself {
                    waker.wake()
                } else {
                    thread::spawn(move || waker.wake()).join().unwrap()
                }
                Poll::Pending
            })));
            while begun.load(Ordering::SeqCst) < 20 {
                assert!(poll_once(guest.as_mut(), &count).is_pending());
                polls += 1;
                assert!(polls <= 20 * polls_per_task, "tasks are starved");
            }
            assert_eq!(own_polls.load(Ordering::SeqCst), 20 * polls_per_task);
        }
    });
}

/// A worker thread checks the timers only once in 61 tasks, but a guest checks the timers more often.
#[test]
fn a_guest_runs_no_task_after_its_timer_has_fired() {
    within(|| {
        for blocks in [true, false] {
            let (clock, scheduler) = clocked();
            let begun = tasks_that_take(&clock, &scheduler, Duration::from_millis(3), 100);
            let due = Flag::default();
            *clock.0.1.lock() = Some((Duration::from_millis(20), due.clone()));
            if blocks {
                scheduler.block_on(due.wait());
            } else {
                futures::executor::block_on(scheduler.run(due.wait()));
            }
            // The seventh task ends at 21 ms.
            assert_eq!(begun.load(Ordering::SeqCst), 7);
        }
    });
}

/// Another thread wakes the future while the future is polled.
#[test]
fn after_a_wake_up_by_another_thread_the_future_is_polled_before_any_task() {
    within(|| {
        for blocks in [true, false] {
            let (clock, scheduler) = clocked();
            let begun = tasks_that_take(&clock, &scheduler, Duration::ZERO, 10);
            let mut polls = 0;
            let ready_at_the_third = poll_fn(move |cx| {
                polls += 1;
                let waker = cx.waker().clone();
                thread::spawn(move || waker.wake()).join().unwrap();
                if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
            });
            if blocks {
                scheduler.block_on(ready_at_the_third);
            } else {
                futures::executor::block_on(scheduler.run(ready_at_the_third));
            }
            assert_eq!(begun.load(Ordering::SeqCst), 0);
        }
    });
}

/// A future that wakes itself has yielded, so a task runs next. If another thread wakes a future repeatedly, this
/// future must not occupy the thread of the guest all the time.
#[test]
fn tasks_run_even_if_a_future_is_always_woken() {
    within(|| {
        for itself in [true, false] {
            let (clock, scheduler) = clocked();
            let begun = tasks_that_take(&clock, &scheduler, Duration::ZERO, 20);
            let mut polls = 0;
            let polls = scheduler.block_on(poll_fn(move |cx| {
                polls += 1;
                let waker = cx.waker().clone();
                if itself {
                    waker.wake();
                } else {
                    thread::spawn(move || waker.wake()).join().unwrap();
                }
                if begun.load(Ordering::SeqCst) == 20 { Poll::Ready(polls) } else { Poll::Pending }
            }));
            assert_eq!(polls, if itself { 21 } else { 16 * 20 + 1 });
        }
    });
}

/// The executor never polls the forgotten guest again. The forgotten guest either sleeps or has woken its executor. In
/// both cases, another guest runs the tasks of the forgotten guest and receives the wake-ups.
#[test]
fn a_forgotten_guest_delays_no_task() {
    within(|| {
        for queued in [0, 600] {
            let driver = Moved::default();
            driver.0.armed.store(true, Ordering::SeqCst);
            let scheduler = started_with(options(0), driver.clone());
            let ran = Arc::new(AtomicUsize::new(0));
            let (inner, counter) = (Arc::clone(&scheduler), Arc::clone(&ran));
            let mut forgotten = Box::pin(scheduler.run(async move {
                for _ in 0..queued {
                    let counter = Arc::clone(&counter);
                    inner.schedule(job(move || one_more(&counter)), Placement::Woken);
                }
                std::future::pending::<()>().await;
            }));
            assert!(poll_once(forgotten.as_mut(), &Arc::new(Counting::default())).is_pending());
            std::mem::forget(forgotten);
            let (inner, counter) = (Arc::clone(&scheduler), Arc::clone(&ran));
            let done = Flag::default();
            let is_done = done.wait();
            let other = thread::spawn(move || inner.block_on(is_done));
            eventually("the other guest sleeps", || asleep(&scheduler, 1));
            assert_eq!(ran.load(Ordering::SeqCst), queued, "the other guest has found the tasks of the first guest");
            // The guest in `block_on` is the timekeeper, and wakes up for each push.
            driver.0.due.store(true, Ordering::SeqCst);
            eventually("the deadline is seen", || driver.0.fired.load(Ordering::SeqCst));
            for pushed in 1..=3 {
                let counter = Arc::clone(&counter);
                scheduler.schedule(job(move || one_more(&counter)), Placement::Woken);
                eventually("each pushed task runs", || ran.load(Ordering::SeqCst) == queued + pushed);
            }
            done.set();
            other.join().unwrap();
        }
    });
}

#[test]
fn guest_threads_can_run_all_tasks_without_workers() {
    within(|| {
        let scheduler = started(0);
        for blocking in [true, false] {
            let done = Flag::default();
            let set = done.clone();
            scheduler.schedule(job(move || set.set()), Placement::Woken);
            if blocking {
                scheduler.block_on(done.wait());
            } else {
                futures::executor::block_on(scheduler.run(done.wait()));
            }
            assert_eq!(scheduler.present(), 0);
        }
    });
}
