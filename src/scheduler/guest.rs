//! Guest threads: application threads that also run tasks. A guest is either a thread in `block_on`, or a `run` future
//! that an executor polls. The second kind of guest is called a *polled guest*.
//!
//! A guest occupies a worker slot and uses the worker code of `worker.rs`. Each guest has its *own future*, namely the
//! argument of `block_on` or `run`. This file decides how a guest divides its time between its own future and tasks.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::platform::poller::{Poller, Wait};
use crate::platform::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use crate::platform::sync::{Arc, Mutex, OnceLock, UniqueRc, planted, this_thread, thread};
use crate::platform::unwind::contain;
use crate::scheduler::worker::WorkerGuard;
use crate::scheduler::{SLOTS, Scheduler, Task, Worker};

/// Maximum number of tasks that a polled guest runs in one poll.
const TASKS_PER_POLL: u32 = 200;
/// Time after which a poll of a polled guest ends. The guest reads the clock between tasks. Each poll adds a cost of
/// about one microsecond in the executor. This cost is one percent of 100 µs, so a larger value would save at most one
/// percent of the time. The other tasks of the executor wait at most for this time plus the duration of one task.
const TIME_PER_POLL: Duration = Duration::from_micros(100);
/// While tasks are short, a guest reads the clock once after this number of tasks. One reading can cost as much as a
/// fifth of a short task.
const TASKS_PER_READING: u32 = 16;
/// The tasks between two readings of the clock are short if their total time is less than this time.
const SHORT: Duration = Duration::from_micros(20);
/// Maximum number of successive polls of a guest's own future, if another thread wakes the future during each poll.
/// After these polls, one task runs.
const OWN_POLLS_IN_A_ROW: u32 = 16;
/// Maximum number of guests that are woken when one slot becomes vacant. This number is not smaller, because executors
/// may never poll some of these guests again.
const WAKES_PER_VACANCY: usize = SLOTS;
/// Maximum time for which a thread without a worker slot parks. Then the thread checks the timers and the sockets.
const PARK_WITHOUT_SLOT: Duration = Duration::from_secs(1);
/// Time after which a polled guest without work, or a thread without a worker slot, checks the poller again. A thread
/// without a slot uses this time if no other thread waits in the poller. A polled guest uses this time if the system
/// could not start the helper thread that waits in the poller. A polled guest also uses this time if all workers are
/// awake, and the monitor would notice a long step of these workers too late.
const POLL_WITHOUT_THREAD: Duration = Duration::from_millis(10);
/// If the own future of a thread in `block_on` wakes itself, this thread checks the sockets at most once in this time.
/// A check is a system call, so this thread should not check the sockets after each short poll of the future.
const SOCKETS_EVERY: Duration = Duration::from_micros(50);

/// Number of rounds in each search of a guest thread. A guest parks early, because its time belongs to the application.
const GUEST_ROUNDS: u32 = 1;

/// Decides after which tasks a guest reads the clock. The guest reads the clock after each long task, but less often
/// while tasks are short.
#[derive(Debug)]
struct Pace {
    /// Number of tasks since the last reading of the clock.
    tasks: u32,
    /// Number of tasks between two readings of the clock.
    stride: u32,
    last: Duration,
}

impl Pace {
    fn new(now: Duration) -> Self {
        Self { tasks: 0, stride: 1, last: now }
    }

    /// Counts a task that has run. If the clock must be read now, reads the clock and returns the time.
    #[inline]
    fn count_task(&mut self, now: impl FnOnce() -> Duration) -> Option<Duration> {
        self.tasks += 1;
        (self.tasks >= self.stride).then(|| self.read(now()))
    }

    fn read(&mut self, now: Duration) -> Duration {
        let short = now.saturating_sub(self.last) < SHORT;
        self.stride = if short { (2 * self.stride).min(TASKS_PER_READING) } else { 1 };
        self.tasks = 0;
        self.last = now;
        now
    }
}

/// Remaining number of tasks and remaining time of a guest. When the budget is over, the guest must return to its
/// executor.
#[derive(Debug)]
pub(crate) struct Budget {
    tasks: u32,
    until: Duration,
    pace: Pace,
}

impl Budget {
    pub(crate) fn of_a_poll(now: Duration) -> Self {
        Self { tasks: TASKS_PER_POLL, until: now.saturating_add(TIME_PER_POLL), pace: Pace::new(now) }
    }

    /// Unlimited budget, for a thread in `block_on`.
    fn unlimited(now: Duration) -> Self {
        Self { tasks: u32::MAX, until: Duration::MAX, pace: Pace::new(now) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.tasks == 0
    }

    /// Counts a task that has run. Returns the time if the clock was read.
    #[inline]
    pub(crate) fn spend(&mut self, now: impl FnOnce() -> Duration) -> Option<Duration> {
        if self.until != Duration::MAX {
            self.tasks = self.tasks.saturating_sub(1);
        }
        let now = self.pace.count_task(now)?;
        if now >= self.until {
            self.tasks = 0;
        }
        Some(now)
    }

    /// Counts a poll of the guest's own future. The poll counts as one task. The duration of the poll does not affect
    /// how often the guest reads the clock.
    ///
    /// If the time of the budget is over, one task may still run. Otherwise, if each poll of the future took the whole
    /// time of the budget, no task would ever run.
    pub(crate) fn spend_own(&mut self, now: Duration) {
        self.tasks = self.tasks.saturating_sub(1);
        if now >= self.until {
            self.tasks = self.tasks.min(1);
        }
    }
}

/// The guest's own future was not woken after the start of its last poll.
const QUIET: u8 = 0;
/// The future was woken during its poll by the thread that polls the future. A future that yields wakes itself in this
/// way. One task runs before the next poll of the future.
const YIELDED: u8 = 1;
/// The future was woken in another way. The future is polled again before the next task runs.
const WOKEN: u8 = 2;

/// Records whether a guest's own future was woken.
#[derive(Debug)]
pub(crate) struct OwnWake {
    state: AtomicU8,
    /// The thread that polls the future now. The value is 0 between two polls.
    polled_on: AtomicUsize,
}

impl OwnWake {
    /// Creates the record for a future that was never polled. The initial state is `WOKEN`.
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(WOKEN), polled_on: AtomicUsize::new(0) }
    }

    /// Records a wake-up. Returns true if there was no other wake-up after the start of the last poll.
    pub(crate) fn wake(&self) -> bool {
        let yields = self.polled_on.load(Ordering::Relaxed) == this_thread();
        self.state.fetch_max(if yields { YIELDED } else { WOKEN }, Ordering::SeqCst) == QUIET
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.state.load(Ordering::SeqCst) != QUIET
    }

    /// Removes the record of earlier wake-ups, and then calls `poll`, which polls the future.
    pub(crate) fn poll<R>(&self, poll: impl FnOnce() -> R) -> R {
        self.polled_on.store(this_thread(), Ordering::Relaxed);
        self.state.swap(QUIET, Ordering::SeqCst);
        let polled = poll();
        self.polled_on.store(0, Ordering::Relaxed);
        polled
    }

    /// Returns whether the future must be polled before the next task. The parameter `polls` is the number of polls of
    /// the future since the last task. The parameter `tasks` is the number of tasks since the last poll of the future.
    pub(crate) fn comes_first(&self, polls: u32, tasks: u32) -> bool {
        match self.state.load(Ordering::SeqCst) {
            QUIET => false,
            YIELDED => tasks != 0,
            _ => tasks != 0 || polls < OWN_POLLS_IN_A_ROW,
        }
    }
}

/// Waker of the own future of a polled guest. The waker records the wake-up and wakes the executor that polls the
/// guest.
#[derive(Debug)]
pub(crate) struct OwnWaker {
    pub(crate) own: OwnWake,
    /// The waker of the executor. The clone of a `Waker` runs code of the executor, and the clone of an `Arc` does not.
    /// Therefore a wake-up clones only the `Arc` under the lock.
    outer: Mutex<Option<Arc<Waker>>>,
}

impl OwnWaker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { own: OwnWake::new(), outer: Mutex::new(None) })
    }

    pub(crate) fn set_outer(&self, waker: &Waker) {
        let mut outer = self.outer.lock();
        if outer.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        drop(outer);
        let fresh = Arc::new(waker.clone());
        outer = self.outer.lock();
        let former = outer.replace(fresh);
        drop(outer);
        drop(former);
    }
}

impl Wake for OwnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.own.wake() {
            let outer = self.outer.lock().clone();
            if let Some(outer) = outer {
                outer.wake_by_ref();
            }
        }
    }
}

/// A guest and its worker slot. The guest leaves the slot when `leave` is called or when the guest is dropped.
struct GuestSlot<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    worker: Option<UniqueRc<Worker<T>>>,
    /// True for a guest in `block_on`, and false for a polled guest.
    is_thread: bool,
    /// True if the guest has announced that it sleeps and has not retracted the announcement yet.
    asleep: bool,
    /// Number of the guest in the list of waiting guests, if the guest waits for a vacant slot.
    waits: Option<u64>,
    alarm: Option<Mutex<Box<dyn Send>>>,
}

/// The guests that wait for a vacant slot, oldest first.
#[derive(Default)]
pub(super) struct WaitingGuests {
    /// The last number that was given to a guest. The value is 0 before the first guest.
    next: u64,
    guests: BTreeMap<u64, WaitingGuest>,
}

pub(super) struct WaitingGuest {
    waker: Waker,
    is_thread: bool,
}

impl WaitingGuests {
    /// Adds a guest, and returns its number. If the guest already has a number, the guest keeps this number. If the
    /// guest is still in the list, the call also returns the previous entry of the guest.
    pub(super) fn add(&mut self, number: Option<u64>, guest: WaitingGuest) -> (u64, Option<WaitingGuest>) {
        let number = number.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        (number, self.guests.insert(number, guest))
    }

    /// Removes a guest. Returns `None` if the guest is not in the list, because the guest was woken.
    pub(super) fn remove(&mut self, number: Option<u64>) -> Option<WaitingGuest> {
        number.and_then(|number| self.guests.remove(&number))
    }

    /// Removes the oldest guests, up to and including the first guest in `block_on`, and returns their wakers. An
    /// executor may never poll a polled guest again. In contrast, a woken thread in `block_on` always reacts: the
    /// thread tries to occupy a slot, or the thread leaves and wakes the next guests. If this function returned the
    /// wakers of all guests, each vacant slot would wake every waiting guest. Therefore this function returns at most
    /// [`WAKES_PER_VACANCY`] wakers. Suppose that a thread in `block_on` waits behind `WAKES_PER_VACANCY` or more
    /// polled guests. Then the thread gets no wake-up, and tries again after [`PARK_WITHOUT_SLOT`].
    pub(super) fn next_wakers(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while wakers.len() < WAKES_PER_VACANCY
            && let Some((_, WaitingGuest { waker, is_thread })) = self.guests.pop_first()
        {
            wakers.push(waker);
            if is_thread {
                break;
            }
        }
        wakers
    }
}

impl<T: Task> GuestSlot<T> {
    fn new(scheduler: Arc<Scheduler<T>>, is_thread: bool) -> Self {
        Self { scheduler, worker: None, is_thread, asleep: false, waits: None, alarm: None }
    }

    /// Occupies a slot, if the guest has no slot and a slot is vacant. If no slot is vacant, the waker of `cx` is
    /// called later, when a slot becomes vacant and no older guest waits.
    fn arrive(&mut self, cx: &mut Context<'_>) {
        if self.worker.is_some() {
            return;
        }
        // This thread may be a worker whose task calls `block_on`. The task may wait for another task in the local
        // queues of this worker. Therefore other workers and this guest steal from these queues.
        if self.is_thread {
            Worker::<T>::set_unattended_here(true);
        }
        // Usually a slot is vacant, so the waker need not be cloned.
        if self.waits.is_none() {
            self.worker = self.scheduler.occupy(true);
        }
        if self.worker.is_none() {
            let guest = WaitingGuest { waker: cx.waker().clone(), is_thread: self.is_thread };
            match self.scheduler.occupy_or_wait(self.waits.take(), guest) {
                Ok(worker) => self.worker = Some(worker),
                Err(number) => self.waits = Some(number),
            }
        }
    }

    fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.alarm = None;
            if let Some(worker) = &self.worker {
                worker.wake_up();
            }
        }
    }

    /// Makes the slot vacant. A push may have chosen this slot immediately before this call. In this case `wake_up`
    /// detects the choice, and `Worker::leave` wakes another worker.
    fn leave(&mut self) {
        if self.waits.is_some() {
            self.scheduler.stop_waiting(self.waits.take());
        }
        self.wake_up();
        if let Some(worker) = self.worker.take() {
            worker.into_inner().leave();
            self.scheduler.hire_after_guest_left();
        }
        if self.is_thread {
            Worker::<T>::set_unattended_here(false);
        }
    }

    /// Announces that this guest sleeps until the executor polls the guest again. Returns false if there is work for
    /// the guest.
    fn announce_sleep(&mut self, cx: &Context<'_>, own: &OwnWake) -> bool {
        // A guest without a slot waits for a slot and for its own future.
        let Some(worker) = &self.worker else { return true };
        let early = planted!("polled_guest_looks_early").then(|| self.scheduler.poller_has_no_thread());
        if !worker.announce_sleep() {
            return false;
        }
        self.asleep = true;
        let mut time = worker.time_if_unkept();
        // This check must come after the announcement. A timekeeper that leaves its slot after this check then sees
        // that this guest sleeps, and wakes this guest. After this wake-up, the guest repeats the check.
        let lacks_thread = early.unwrap_or_else(|| self.scheduler.poller_has_no_thread())
            && self.scheduler.start_poll_thread().is_err();
        if lacks_thread || self.scheduler.poller_lacks_monitor() {
            time = Some(time.map_or(POLL_WITHOUT_THREAD, |time| time.min(POLL_WITHOUT_THREAD)));
        }
        if let Some(time) = time {
            self.alarm = Some(Mutex::new(self.scheduler.driver.alarm(cx.waker(), time)));
        }
        // A wake-up of the guest's own future does not retract the announcement. Either this check sees the wake-up, or
        // the wake-up comes later and wakes the executor.
        if own.is_woken() {
            self.wake_up();
            return false;
        }
        true
    }

    /// Runs `f` while this thread acts as the guest's worker. Therefore the tasks that `f` wakes enter the queues of
    /// this worker. If the guest has no slot, only the creation of a socket uses the guest's scheduler.
    fn inside<R>(&mut self, f: impl FnOnce() -> R) -> R {
        #[cfg(feature = "net")]
        if self.worker.is_none() {
            return Worker::without_slot(&self.scheduler, f);
        }
        let Some(worker) = ActingGuest::new(self) else { return f() };
        worker.enter_own_future();
        f()
    }

    /// Checks the sockets without blocking. Does nothing if there is no poller, or if the last check was less than
    /// [`SOCKETS_EVERY`] ago. The parameter `last` is the time of the last check. Returns the new time of the last
    /// check.
    fn poll_sockets(&mut self, last: Duration) -> Duration {
        if self.scheduler.poller().is_none() {
            return last;
        }
        let now = self.scheduler.driver.now();
        if now.saturating_sub(last) < SOCKETS_EVERY {
            return last;
        }
        if let Some(worker) = ActingGuest::new(self) {
            worker.poll_sockets();
        }
        now
    }

    /// Wakes the tasks whose sockets are ready. These tasks enter the queues of the guest's worker.
    fn queue_ready(&mut self, ready: Vec<Waker>) {
        if !ready.is_empty()
            && let Some(worker) = ActingGuest::new(self)
        {
            worker.queue_ready(ready);
        }
    }

    /// Runs tasks until the budget is over, no task is found, or the guest's own future must be polled. Returns the
    /// number of tasks that have run.
    ///
    /// When this function reads the clock, it also fires the due timers, because the guest's own future may wait for a
    /// timer. A worker thread checks the timers less often, namely once in 61 tasks.
    fn run(&mut self, budget: &mut Budget, own: &OwnWake, polls: u32) -> u32 {
        let Some(worker) = ActingGuest::new(self) else { return 0 };
        let mut count = 0;
        while !budget.is_over() && !own.comes_first(polls, count) {
            let Some(task) = worker.find(GUEST_ROUNDS) else { break };
            worker.run(task);
            worker.end_any_hand_over();
            count += 1;
            if let Some(now) = budget.spend(|| worker.now()) {
                worker.fire_due(now);
            }
        }
        count
    }
}

/// Guard of a thread that acts as the worker of a guest.
struct ActingGuest<'a, T: Task> {
    guard: Option<WorkerGuard<T>>,
    place: &'a mut Option<UniqueRc<Worker<T>>>,
}

impl<'a, T: Task> ActingGuest<'a, T> {
    fn new(guest: &'a mut GuestSlot<T>) -> Option<Self> {
        let guard = Worker::act(guest.worker.take()?);
        Some(Self { guard: Some(guard), place: &mut guest.worker })
    }
}

impl<T: Task> Deref for ActingGuest<'_, T> {
    type Target = Worker<T>;

    fn deref(&self) -> &Worker<T> {
        self.guard.as_ref().expect("the worker exists until this value is dropped")
    }
}

impl<T: Task> Drop for ActingGuest<'_, T> {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.end_any_hand_over();
            *self.place = Some(guard.stop_acting());
        }
    }
}

impl<T: Task> Drop for GuestSlot<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

pin_project! {
    /// Future that polls the guest's own future. Each poll of this future also runs tasks. This future completes when
    /// the guest's own future completes.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Run<T: Task, F> {
        #[pin]
        future: F,
        guest: GuestSlot<T>,
        own: Arc<OwnWaker>,
        // Number of polls of the guest's own future since the last task. One poll of `Run` may poll the guest's own
        // future several times.
        polls: u32,
    }
}

impl<T: Task, F: Future> Future for Run<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let (guest, own, polls) = (this.guest, &this.own.own, this.polls);
        guest.wake_up();
        guest.arrive(cx);
        this.own.set_outer(cx.waker());
        if let Some(worker) = &guest.worker {
            worker.mark_polled(cx.waker());
        }
        let waker = Waker::from(Arc::clone(this.own));
        let mut budget = Budget::of_a_poll(guest.scheduler.driver.now());
        while !budget.is_over() {
            if own.is_woken() {
                *polls = polls.saturating_add(1);
                let poll = || this.future.as_mut().poll(&mut Context::from_waker(&waker));
                let polled = catch_unwind(AssertUnwindSafe(|| guest.inside(|| T::poll_own(|| own.poll(poll)))));
                if !matches!(polled, Ok(Poll::Pending)) {
                    // The future has completed or has panicked, so no more tasks will run in this slot. Therefore the
                    // guest leaves its slot now, and does not keep the slot until this `Run` is dropped.
                    guest.leave();
                    return polled.unwrap_or_else(|panic| resume_unwind(panic));
                }
                budget.spend_own(guest.scheduler.driver.now());
            }
            if guest.run(&mut budget, own, *polls) != 0 {
                *polls = 0;
                continue;
            }
            if budget.is_over() || own.is_woken() {
                continue;
            }
            if guest.announce_sleep(cx, own) {
                return Poll::Pending;
            }
            budget.spend_own(guest.scheduler.driver.now());
        }
        if let Some(worker) = &guest.worker {
            worker.return_to_executor();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Waker of a thread that blocks on a future.
struct Unpark {
    own: OwnWake,
    thread: thread::Thread,
    /// Whether the thread waits in the poller or is about to wait there.
    is_in_poller: AtomicBool,
    /// Waker that wakes the thread in the poller. Set before `is_in_poller`.
    poller: OnceLock<Waker>,
}

impl Unpark {
    fn new() -> Arc<Self> {
        let is_in_poller = AtomicBool::new(false);
        Arc::new(Self { own: OwnWake::new(), thread: thread::current(), is_in_poller, poller: OnceLock::new() })
    }

    /// Calls `park` if the future was not woken. If there is a poller, `park` may wait in the poller.
    fn park(&self, poller: Option<&Arc<Poller>>, park: impl FnOnce()) {
        if let Some(poller) = poller {
            self.poller.get_or_init(|| poller.waker().clone());
            self.is_in_poller.store(!planted!("guest_in_poller_is_not_noted"), Ordering::Relaxed);
            // Pairs with the fence in `wake_by_ref`. Either this thread sees that the future was woken, or
            // `wake_by_ref` sees `is_in_poller` and wakes the poller.
            fence(Ordering::SeqCst);
        }
        if !self.own.is_woken() {
            park();
        }
        self.is_in_poller.store(false, Ordering::Relaxed);
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.own.wake() {
            self.thread.unpark();
            // Pairs with the fence in `park`.
            fence(Ordering::SeqCst);
            if self.is_in_poller.load(Ordering::Relaxed) {
                self.poller.get().into_iter().for_each(Waker::wake_by_ref);
            }
        }
    }
}

impl<T: Task> Scheduler<T> {
    /// Wraps `future` in a future that also runs tasks. The tasks run on the thread that polls the returned future.
    pub(crate) fn run<F: Future>(self: &Arc<Self>, future: F) -> Run<T, F> {
        Run { future, guest: GuestSlot::new(Arc::clone(self), false), own: OwnWaker::new(), polls: 0 }
    }

    /// Returns a guest that occupies a slot and has announced that it sleeps. The guest leaves its slot when the guest
    /// is dropped. Only models call this function.
    #[cfg(procession_loom)]
    pub(crate) fn sleeping_guest(self: &Arc<Self>) -> Box<dyn std::any::Any> {
        let mut guest = GuestSlot::new(Arc::clone(self), false);
        guest.arrive(&mut Context::from_waker(Waker::noop()));
        guest.asleep = guest.worker.as_ref().is_some_and(|worker| worker.announce_sleep());
        assert!(guest.asleep, "there is nothing to do");
        Box::new(guest)
    }

    /// Returns the current time of the clock that measures a [`Budget`].
    pub(crate) fn time(&self) -> Duration {
        self.driver.now()
    }

    /// Fires the timers that are due at the time `now`. A guest without a slot calls this function. This function
    /// catches the panics of wakers.
    pub(crate) fn fire_due(&self, now: Duration) {
        if self.driver.is_due(now) {
            contain(|| _ = self.driver.fire_due(&|| ()));
        }
    }

    /// Returns true if there is a poller and no thread waits in the poller, neither a timekeeper nor the helper thread.
    fn poller_lacks_waiter(&self) -> bool {
        self.poller().is_some() && self.idle.timekeeper().is_none() && !self.has_poll_thread()
    }

    /// Checks the sockets without blocking, if no thread waits in the poller. A guest without a slot calls this
    /// function.
    fn check_sockets(&self) {
        if let Some(poller) = self.poller().filter(|_| self.poller_lacks_waiter()) {
            let mut ready = Vec::new();
            poller.poll(Wait::No, &mut ready);
            contain(|| self.driver.wake_all(&mut ready, &|| ()));
        }
    }

    /// Runs tasks on this thread until the future completes.
    pub(crate) fn block_on<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        let unpark = Unpark::new();
        let own = &unpark.own;
        let waker = Waker::from(Arc::clone(&unpark));
        let mut guest = GuestSlot::new(Arc::clone(self), true);
        let mut budget = Budget::unlimited(self.driver.now());
        let mut polls = 0_u32;
        let mut polled_sockets = Duration::ZERO;
        loop {
            guest.arrive(&mut Context::from_waker(&waker));
            if let Some(worker) = &guest.worker {
                self.idle.parks_as_thread(worker.slot());
            }
            if own.is_woken() {
                polls = polls.saturating_add(1);
                let poll = || future.as_mut().poll(&mut Context::from_waker(&waker));
                let polled = guest.inside(|| T::poll_own(|| own.poll(poll)));
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            if guest.run(&mut budget, own, polls) != 0 {
                polls = 0;
                continue;
            }
            if own.is_woken() {
                // A future that wakes itself may keep this thread busy without a task. Like a worker, this thread
                // checks the sockets every 61st time that it looks for a task. But between two attempts to find a task,
                // this thread polls the future, and each poll may take a long time. Therefore this thread also checks
                // the sockets here, at most once in each period `SOCKETS_EVERY`.
                polled_sockets = guest.poll_sockets(polled_sockets);
                continue;
            }
            let Some(worker) = &guest.worker else {
                // All slots are occupied. Therefore this thread waits for a slot and for its own future. Each of the
                // threads in the slots may be blocked in a step that itself waits for a slot. In this case none of
                // these threads checks the timers and the sockets. Therefore this thread checks the timers and the
                // sockets.
                Worker::<T>::share_here();
                if !own.is_woken() {
                    let most = if self.poller_lacks_waiter() { POLL_WITHOUT_THREAD } else { PARK_WITHOUT_SLOT };
                    thread::park_timeout(self.driver.wait().map_or(most, |time| time.min(most)));
                    self.fire_due(self.driver.now());
                    self.check_sockets();
                }
                continue;
            };
            if worker.announce_sleep() {
                let mut ready = Vec::new();
                // Only the timekeeper waits in the poller. Any other guest parks its thread outside the poller, and a
                // wake-up of its future must not wake the worker that waits in the poller. The role of this slot cannot
                // change before `wake_up`. If a thread opens the poller after this line, `rearm` wakes the slot of the
                // timekeeper.
                let poller = self.poller().filter(|_| self.idle.timekeeper() == Some(worker.slot()));
                unpark.park(poller, || {
                    worker.park(&mut ready);
                });
                // The driver stores this time. When a process begins to wait, it reads the stored time.
                let _ = self.driver.now();
                worker.wake_up();
                guest.queue_ready(ready);
            }
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(1);

    #[test]
    fn the_clock_is_read_after_each_long_task_and_less_often_while_tasks_are_short() {
        let mut now = Duration::ZERO;
        let mut pace = Pace::new(now);
        let mut readings = |tasks: u32, takes: Duration| {
            let read = |_: &u32| {
                now += takes;
                pace.count_task(|| now).is_some()
            };
            (1..=tasks).filter(read).collect::<Vec<_>>()
        };
        assert_eq!(readings(4, SHORT), [1, 2, 3, 4]);
        assert_eq!(readings(47, STEP), [1, 3, 7, 15, 31, 47]);
        // The tasks become long. The next reading of the clock still comes after 16 tasks. From then on, the clock is
        // read after each task.
        assert_eq!(readings(19, SHORT), [16, 17, 18, 19]);
    }

    #[test]
    fn a_budget_is_over_when_its_tasks_or_its_time_are_used_up() {
        let mut now = STEP;
        let mut tasks = |takes: Duration| {
            let mut budget = Budget::of_a_poll(now);
            let spend = |_: &u32| {
                now += takes;
                let _ = budget.spend(|| now);
                budget.is_over()
            };
            (1..=2 * TASKS_PER_POLL).find(spend)
        };
        assert_eq!(tasks(Duration::ZERO), Some(TASKS_PER_POLL));
        assert_eq!(tasks(TIME_PER_POLL), Some(1));
        assert_eq!(tasks(TIME_PER_POLL / 4), Some(4));
        // After the time of a guest is over, tasks may still run until the guest next reads the clock.
        assert!(tasks(STEP).is_some_and(|tasks| (100..100 + TASKS_PER_READING).contains(&tasks)));
        // Even if the first poll of the guest's own future takes very long, the budget still allows one task.
        let mut own = Budget::of_a_poll(now);
        own.spend_own(now + 2 * TIME_PER_POLL);
        assert!(!own.is_over());
        own.spend_own(now + 2 * TIME_PER_POLL);
        assert!(own.is_over());
        let mut endless = Budget::unlimited(now);
        assert!((0..10_000).all(|_| endless.spend(|| now).is_none() || !endless.is_over()));
    }

    #[test]
    fn a_vacant_slot_wakes_the_oldest_guests_until_one_of_them_is_a_thread() {
        let mut guests = WaitingGuests::default();
        for is_thread in [false, false, true, true, false] {
            let _ = guests.add(None, WaitingGuest { waker: Waker::noop().clone(), is_thread });
        }
        assert_eq!([3, 1, 1, 0].map(|_| guests.next_wakers().len()), [3, 1, 1, 0]);
        for _ in 0..=WAKES_PER_VACANCY {
            let _ = guests.add(None, WaitingGuest { waker: Waker::noop().clone(), is_thread: false });
        }
        assert_eq!([WAKES_PER_VACANCY, 1].map(|_| guests.next_wakers().len()), [WAKES_PER_VACANCY, 1]);
    }
}
