//! Threads that lend themselves: as a future that somebody else polls, or blocking.

use std::future::Future;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

use super::worker::Seat;
use super::{Local, Scheduler, Task};
use crate::observe::WorkerState;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, EventListener, Mutex, thread};

/// How many tasks a lent thread runs before it lets its own executor have a turn.
const TASKS_PER_POLL: u32 = 200;
/// A lent thread searches once and sleeps: it is not ours to burn.
const LENT_ROUNDS: u32 = 1;

/// Notes that the lender's own future was woken, and wakes whoever polls the lender.
#[derive(Debug)]
struct OwnWaker {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl OwnWaker {
    fn new() -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(true), outer: Mutex::new(None) })
    }

    fn set_outer(&self, waker: &Waker) {
        let mut outer = self.outer.lock();
        if outer.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        drop(outer);
        let fresh = waker.clone();
        outer = self.outer.lock();
        let former = outer.replace(fresh);
        drop(outer);
        drop(former);
    }

    fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for OwnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            let outer = self.outer.lock().clone();
            if let Some(outer) = outer {
                outer.wake();
            }
        }
    }
}

/// A place among the workers, for as long as it is held.
struct Lender<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    local: Option<Local<T>>,
    /// It has said that it sleeps.
    asleep: bool,
    vacancy: Option<EventListener>,
    alarm: Option<Mutex<Box<dyn Send>>>,
}

impl<T: Task> Lender<T> {
    fn new(scheduler: Arc<Scheduler<T>>) -> Self {
        Self { scheduler, local: None, asleep: false, vacancy: None, alarm: None }
    }

    /// Takes a place, if there is one.
    fn arrive(&mut self, cx: &mut Context<'_>) {
        while self.local.is_none() {
            // A task that lends its worker's thread may wait for what it has just woken.
            Local::<T>::share_here();
            self.local = self.scheduler.occupy(true);
            if self.local.is_some() {
                self.vacancy = None;
                return;
            }
            match &mut self.vacancy {
                None => self.vacancy = Some(self.scheduler.vacancy.listen()),
                Some(listener) => match Pin::new(listener).poll(cx) {
                    Poll::Ready(()) => self.vacancy = None,
                    Poll::Pending => return,
                },
            }
        }
    }

    fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.alarm = None;
            if let Some(local) = &self.local {
                local.wake_up();
            }
        }
    }

    /// Gives the place back. Also when it was chosen for a wake just now: `wake_up` learns of that, and the worker's
    /// `leave` passes it on.
    fn leave(&mut self) {
        self.wake_up();
        if let Some(local) = self.local.take() {
            local.leave();
        }
    }

    /// Runs something that may wake tasks, as a task of this place.
    fn inside<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let Some(seated) = Seated::new(self) else { return f() };
        seated.enter_own_future();
        f()
    }

    /// Finds tasks and runs them, so many at most, and no more than one once `is_over`. How many it found.
    fn run_until(&mut self, most: u32, is_over: impl Fn() -> bool) -> u32 {
        let Some(seated) = Seated::new(self) else { return 0 };
        let mut count = 0;
        while let Some(task) = seated.find(LENT_ROUNDS) {
            seated.run(task);
            seated.has_run();
            count += 1;
            if count == most || is_over() {
                break;
            }
        }
        count
    }
}

/// A lender's thread at its place, until this is dropped.
struct Seated<'a, T: Task> {
    seat: Option<Seat<T>>,
    place: &'a mut Option<Local<T>>,
}

impl<'a, T: Task> Seated<'a, T> {
    fn new(lender: &'a mut Lender<T>) -> Option<Self> {
        let seat = lender.local.take()?.sit();
        Some(Self { seat: Some(seat), place: &mut lender.local })
    }
}

impl<T: Task> Deref for Seated<'_, T> {
    type Target = Local<T>;

    fn deref(&self) -> &Local<T> {
        self.seat.as_ref().expect("it is there until this is dropped")
    }
}

impl<T: Task> Drop for Seated<'_, T> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            seat.has_run();
            *self.place = Some(seat.rise());
        }
    }
}

impl<T: Task> Drop for Lender<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

pin_project! {
    /// A future that does what another does, and runs tasks wherever it is polled until that is done.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Run<T: Task, F> {
        #[pin]
        future: F,
        lender: Lender<T>,
        own: Arc<OwnWaker>,
    }
}

impl<T: Task, F: Future> Future for Run<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let lender = this.lender;
        lender.wake_up();
        lender.arrive(cx);
        this.own.set_outer(cx.waker());
        if let Some(local) = &lender.local {
            lender.scheduler.idle.parks_as_waker(local.slot(), cx.waker());
        }
        let waker = Waker::from(Arc::clone(this.own));
        let mut left = TASKS_PER_POLL;
        while left != 0 {
            if this.own.take() {
                let polled = lender.inside(|| this.future.as_mut().poll(&mut Context::from_waker(&waker)));
                if polled.is_ready() {
                    // Not only when it is dropped: nobody looks for work from here any more.
                    lender.leave();
                    return polled;
                }
            }
            let count = lender.run_until(left, || this.own.is_woken());
            left -= count.max(1);
            if count != 0 {
                continue;
            }
            let Some(local) = &lender.local else { return Poll::Pending };
            if local.may_sleep() {
                lender.asleep = true;
                if let Some(time) = local.time_to_keep() {
                    lender.alarm = Some(Mutex::new(lender.scheduler.driver.alarm(cx.waker(), time)));
                }
                // A wake of its own future does not pass through the idle word: it is seen here, or wakes the poller.
                if this.own.is_woken() {
                    lender.wake_up();
                    continue;
                }
                return Poll::Pending;
            }
        }
        if let Some(local) = &lender.local {
            // Until it is polled again it is in no step.
            local.enter(WorkerState::Parked);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Wakes a thread that blocks on a future.
struct Unpark {
    woken: AtomicBool,
    thread: thread::Thread,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

impl<T: Task> Scheduler<T> {
    /// Lends whatever thread polls this.
    pub(crate) fn run<F: Future>(self: &Arc<Self>, future: F) -> Run<T, F> {
        Run { future, lender: Lender::new(Arc::clone(self)), own: OwnWaker::new() }
    }

    /// Lends this thread until the future is done.
    pub(crate) fn block_on<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        let unpark = Arc::new(Unpark { woken: AtomicBool::new(true), thread: thread::current() });
        let waker = Waker::from(Arc::clone(&unpark));
        let mut lender = Lender::new(Arc::clone(self));
        loop {
            lender.arrive(&mut Context::from_waker(&waker));
            if let Some(local) = &lender.local {
                self.idle.parks_as_thread(local.slot());
            }
            if unpark.woken.swap(false, Ordering::SeqCst) {
                let polled = lender.inside(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            if lender.run_until(TASKS_PER_POLL, || unpark.woken.load(Ordering::SeqCst)) != 0 {
                continue;
            }
            let Some(local) = &lender.local else {
                // All places are taken: this thread waits for its own future, and for a place.
                Local::<T>::share_here();
                if !unpark.woken.load(Ordering::SeqCst) {
                    thread::park();
                }
                continue;
            };
            let slot = local.slot();
            if local.may_sleep() {
                lender.asleep = true;
                let time = lender.local.as_ref().and_then(|local| local.time_to_keep());
                if !unpark.woken.load(Ordering::SeqCst) {
                    self.idle.park(slot, time);
                }
                lender.wake_up();
            }
        }
    }
}
