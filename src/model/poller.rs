//! Models of waits in the poller. While a worker begins to wait in the poller, no event, no task and no wake-up is
//! lost.

use std::future::{Future, pending};
use std::pin::pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::model::idle::{self, DUE, Jobs, Timer, awaited, scheduler, stop};
use crate::model::{join, spawn};
use crate::platform::poller::Poller;
use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::{Arc, thread};
use crate::scheduler::{Placement, Scheduler};

/// Waker of an operation. The waker counts its wake-ups.
struct Operation(Arc<Jobs>);

impl Wake for Operation {
    fn wake(self: Arc<Self>) {
        self.0.one_is_done();
    }
}

impl Operation {
    fn waker(jobs: &Arc<Jobs>) -> Waker {
        Waker::from(Arc::new(Self(Arc::clone(jobs))))
    }
}

fn open(scheduler: &Arc<Scheduler<idle::Job>>) -> Arc<Poller> {
    let open = || Ok::<_, std::convert::Infallible>(Poller::new());
    Arc::clone(scheduler.open_poller(open).unwrap_or_else(|never| match never {}))
}

/// The first socket is registered while the only worker parks. Then the worker must wait in the poller and take the
/// event of the socket.
pub fn first_socket() {
    let (scheduler, jobs) = (idle::started(1), Jobs::new());
    // With this `yield_now`, the worker can check the queues before the socket is registered: see `idle::one_pusher`.
    thread::yield_now();
    open(&scheduler).report(Operation::waker(&jobs));
    jobs.wait(1);
    stop(&scheduler);
}

/// A task is pushed while the worker begins to wait in the poller.
pub fn push_against_poller() {
    let (scheduler, jobs) = (scheduler(1, &Arc::default()), Jobs::new());
    open(&scheduler);
    scheduler.start().expect("a model has threads");
    thread::yield_now();
    scheduler.schedule(jobs.one(), Placement::Woken);
    jobs.wait(1);
    stop(&scheduler);
}

/// The future of a guest is woken while the guest begins to wait in the poller. There is no worker thread.
pub fn guest_waits_in_poller() {
    let scheduler = scheduler(0, &Arc::default());
    open(&scheduler);
    let (job, future) = awaited();
    // The job runs on the spawned thread and not on a worker, so only the waker of the future can end the wait.
    let waker = spawn(&scheduler, |_| job.run_now());
    scheduler.block_on(pin!(future));
    join(waker);
}

/// A polled guest checks the poller for events without blocking. At the same time, the worker begins to wait in the
/// poller. Then a socket becomes ready, and the guest is never polled again. The worker must take the event of the
/// socket.
pub fn guest_asks_against_worker() {
    let (scheduler, jobs) = (scheduler(1, &Arc::default()), Jobs::new());
    let poller = open(&scheduler);
    scheduler.start().expect("a model has threads");
    let mut guest = Box::pin(scheduler.run(pending::<()>()));
    assert!(guest.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    poller.report(Operation::waker(&jobs));
    jobs.wait(1);
    drop(guest);
    stop(&scheduler);
}

/// A guest in `block_on` begins to wait in the poller. Meanwhile, the future of this guest is woken, and a polled guest
/// checks the poller for events without blocking. The guest in `block_on` must poll its future, even if the polled
/// guest takes the event that should wake the guest in `block_on`.
pub fn guest_asks_against_guest() {
    // The model requests one worker, but does not start this worker. If the model requested no worker, a helper thread
    // would start.
    let scheduler = scheduler(1, &Arc::default());
    open(&scheduler);
    let (job, future) = awaited();
    let mut guest = Box::pin(scheduler.run(pending::<()>()));
    let asking = thread::spawn(move || {
        assert!(guest.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        std::mem::forget(guest);
    });
    let waker = spawn(&scheduler, |_| job.run_now());
    scheduler.block_on(pin!(future));
    join(asking);
    join(waker);
}

/// A thread outside the scheduler waits for a socket, and there is no worker. When this wait begins, a guest in
/// `block_on` may be the timekeeper and wait in the poller. The helper thread starts, and the guest leaves before the
/// event of the socket arrives. The outside thread must get the event, and the guest must see that its future is
/// complete.
pub fn helper_against_guest() {
    let scheduler = scheduler(0, &Arc::default());
    let poller = open(&scheduler);
    let (job, future) = awaited();
    let shared = Arc::clone(&scheduler);
    let outside = thread::spawn(move || {
        let jobs = Jobs::new();
        shared.ensure_poll_thread().expect("a model has threads");
        job.run_now();
        poller.report(Operation::waker(&jobs));
        jobs.wait(1);
    });
    scheduler.block_on(pin!(future));
    join(outside);
    stop(&scheduler);
}

/// The helper thread calls a waker. This waker stops the scheduler, and waits until the threads of the scheduler have
/// exited. In a real program, a waker that drops the last handle of a runtime does the same. The waker must not wait
/// for the exit of the helper thread itself.
pub fn helper_stops() {
    struct Last(Arc<Scheduler<idle::Job>>, Arc<Jobs>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            stop(&self.0);
            self.1.one_is_done();
        }
    }
    let (scheduler, jobs) = (scheduler(0, &Arc::default()), Jobs::new());
    let poller = open(&scheduler);
    scheduler.start_poll_thread().expect("a model has threads");
    poller.report(Waker::from(Arc::new(Last(Arc::clone(&scheduler), Arc::clone(&jobs)))));
    jobs.wait(1);
    assert!(scheduler.wait_stopped(Duration::MAX));
}

/// There is no worker. A guest in `block_on` is the timekeeper and leaves, while a polled guest goes to sleep. If the
/// polled guest sees that there is a timekeeper, the polled guest starts no helper thread. Then the leaving guest
/// must wake the polled guest, so that the polled guest starts the helper thread. Otherwise no thread would take the
/// event of the socket.
pub fn polled_guest_against_leaver() {
    let (scheduler, jobs) = (scheduler(0, &Arc::default()), Jobs::new());
    let poller = open(&scheduler);
    let (job, future) = awaited();
    let shared = Arc::clone(&scheduler);
    let leaver = thread::spawn(move || shared.block_on(pin!(future)));
    while !scheduler.has_timekeeper() {
        thread::yield_now();
    }
    job.run_now();
    let mut guest = Box::pin(scheduler.run(pending::<()>()));
    let waker = jobs.waker();
    assert!(guest.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    poller.report(Operation::waker(&jobs));
    poller.report(Operation::waker(&jobs));
    // The executor polls the guest only if the guest was woken. If the helper thread already waits in the poller, the
    // helper thread takes the events.
    while !jobs.wait_once(2) {
        assert!(guest.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    join(leaver);
    drop(guest);
    stop(&scheduler);
}

/// The requested number of workers becomes zero while a thread outside the scheduler begins to wait for a socket. The
/// two calls may take effect in either order. The outside thread must get the event of its socket.
pub fn last_worker_against_outside() {
    let scheduler = scheduler(1, &Arc::default());
    let poller = open(&scheduler);
    scheduler.start().expect("a model has threads");
    let shared = Arc::clone(&scheduler);
    let outside = thread::spawn(move || {
        let jobs = Jobs::new();
        shared.ensure_poll_thread().expect("a model has threads");
        poller.report(Operation::waker(&jobs));
        jobs.wait(1);
    });
    scheduler.set_workers(0);
    join(outside);
    stop(&scheduler);
}

/// The scheduler stops. Meanwhile, a polled guest checks the poller for events without blocking, and the worker begins
/// to wait in the poller. The worker must exit, even if the guest takes the event that should wake the worker.
pub fn guest_asks_against_stop() {
    let scheduler = scheduler(1, &Arc::default());
    open(&scheduler);
    scheduler.start().expect("a model has threads");
    let mut guest = Box::pin(scheduler.run(pending::<()>()));
    let asking = thread::spawn(move || {
        assert!(guest.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        std::mem::forget(guest);
    });
    stop(&scheduler);
    join(asking);
}

/// An earlier deadline is inserted while the timekeeper waits in the poller.
pub fn nearer_deadline_in_poller() {
    let jobs = Jobs::new();
    let timer = Arc::new(Timer::far(Arc::clone(&jobs)));
    let scheduler = scheduler(1, &timer);
    open(&scheduler);
    scheduler.start().expect("a model has threads");
    thread::yield_now();
    timer.due.swap(DUE, Ordering::SeqCst);
    scheduler.rearm();
    jobs.wait(1);
    stop(&scheduler);
}
