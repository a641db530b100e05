//! Models of the replacement of a worker. While a worker is in a long step, its queues are handed over to another
//! thread. At the same time, the step may return. The queued tasks of the worker must run, and there must be no
//! surplus worker afterwards.

use crate::model::idle::{Job, Jobs, started, stop};
use crate::model::{Waiter, join};
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Condvar, Mutex, thread};
use crate::scheduler::Placement;

/// A step wakes another task and then waits for this task. Meanwhile, the queues of the worker are handed over to
/// another thread.
pub fn behind_a_long_step() {
    behind(Placement::Woken);
}

/// A step spawns a task, which stays in the worker's own queues, and then waits for this task. Meanwhile, the queues of
/// the worker are handed over to another thread.
pub fn spawned_by_a_long_step() {
    behind(Placement::New);
}

fn behind(how: Placement) {
    let (scheduler, jobs) = (started(1), Jobs::new());
    let latch = Arc::new((Mutex::new(false), Condvar::new()));
    let (begun, pushed, main) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Waiter::here());
    let long = {
        let (scheduler, jobs, latch) = (Arc::clone(&scheduler), Arc::clone(&jobs), Arc::clone(&latch));
        let (begun, pushed, main) = (Arc::clone(&begun), Arc::clone(&pushed), main.waker());
        Job::new(move || {
            begun.fetch_add(1, Ordering::SeqCst);
            main.wake_by_ref();
            let opens = Arc::clone(&latch);
            let short = Job::new(move || {
                *opens.0.lock() = true;
                opens.1.notify_all();
            });
            scheduler.schedule(short, how);
            pushed.fetch_add(1, Ordering::SeqCst);
            main.wake_by_ref();
            let mut open = latch.0.lock();
            while !*open {
                open = latch.1.wait(open).expect("never poisoned");
            }
            drop(open);
            jobs.one_is_done();
        })
    };
    scheduler.schedule(long, Placement::Woken);
    let until = |flag: &AtomicUsize| {
        while flag.load(Ordering::SeqCst) == 0 {
            main.wait();
        }
    };
    until(&begun);
    assert!(scheduler.hand_over(0, None), "its step does not return before that");
    until(&pushed);
    // In a real scheduler, the monitor thread calls this function at each check.
    scheduler.wake_for_handed_over_slot(0);
    jobs.wait(1);
    stop(&scheduler);
}

/// The queues of a worker are handed over to another thread while the step of the worker returns.
pub fn return_against_hand_over() {
    let (scheduler, jobs) = (started(1), Jobs::new());
    thread::yield_now();
    scheduler.schedule(jobs.one(), Placement::Woken);
    let handed = Arc::clone(&scheduler);
    let monitor = thread::spawn(move || handed.hand_over(0, None));
    scheduler.schedule(jobs.one(), Placement::Woken);
    jobs.wait(2);
    join(monitor);
    stop(&scheduler);
    assert_eq!(scheduler.active_and_handed_over().0, 1, "the worker, or its replacement, is active");
}

/// The monitor thread calls `hand_over` with the number of a step. The call compares this number with the worker's
/// current step. If the worker has already finished the step, the call must have no effect. The call must not count a
/// step as handed over, and must not make a worker leave. If the step returns after the comparison, the next step may
/// be handed over instead.
pub fn late_hand_over_against_return() {
    let (scheduler, jobs) = (started(1), Jobs::new());
    thread::yield_now();
    scheduler.schedule(jobs.one(), Placement::Woken);
    let handed = Arc::clone(&scheduler);
    // Before the first step of the worker, the poll count of the worker is 0.
    let monitor = thread::spawn(move || handed.hand_over(0, Some(0)));
    scheduler.schedule(jobs.one(), Placement::Woken);
    jobs.wait(2);
    let handed = join(monitor);
    stop(&scheduler);
    let (active, handed_over) = scheduler.active_and_handed_over();
    assert_eq!(active, 1, "the worker, or the thread that replaced it");
    assert!(handed_over <= usize::from(handed), "{handed_over} steps count as handed over");
}
