//! Work-stealing scheduler: worker threads, guest threads, their queues, and the wake-up protocol.
//!
//! - A *worker* looks for tasks and runs them. Each worker has a numbered *slot*, and one thread at a time occupies the
//!   slot. This thread is either a thread of the scheduler, or a *guest*: a thread of the application.
//! - The *timekeeper* is the parked worker that wakes up at the nearest deadline.
//! - The *monitor* is a thread that detects *long steps*. During a long step, another thread runs the queued tasks of
//!   the blocked worker. This transfer of tasks is the *hand-over*.
//!
//! This folder imports `platform` and `observe`. The scheduler is generic over the task type and does not know
//! processes. A [`Driver`] provides the clock and the timers. A task must be in at most one queue at a time. The run
//! state of the task guarantees this rule.
//!
//! `worker.rs` defines the order in which a worker looks for tasks. `README.md` in the folder `scheduler` describes the
//! protocols and sketches their proof.

pub(crate) mod guest;
pub(crate) mod hooks;
pub(crate) mod idle;
pub(crate) mod injector;
pub(crate) mod monitor;
pub(crate) mod priority;
pub(crate) mod queue;
pub(crate) mod slot;
pub(crate) mod spawned;
#[cfg(all(test, not(procession_loom)))]
pub(crate) mod tests;
pub(crate) mod threads;
mod unattended;
pub(crate) mod worker;

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use crate::observe::snapshot::{CurrentStep, SchedulerGauges};
use crate::observe::trace::timeline::Gauges;
use crate::observe::{Counter, Metrics, WorkerMetrics, WorkerState};
use crate::platform::poller::Poller;
use crate::platform::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::platform::sync::thread::LocalKey;
use crate::platform::sync::{Arc, CachePadded, Condvar, Mutex, OnceLock, TallyLock, UniqueRc, planted, thread};
use crate::platform::unwind::contain;
pub(crate) use crate::scheduler::guest::{Budget, OwnWaker};
use crate::scheduler::guest::{WaitingGuest, WaitingGuests};
pub(crate) use crate::scheduler::hooks::{Hook, Hooks};
use crate::scheduler::idle::Idle;
pub(crate) use crate::scheduler::idle::SLOTS;
use crate::scheduler::injector::Injector;
use crate::scheduler::monitor::Monitor;
use crate::scheduler::priority::PriorityQueues;
pub(crate) use crate::scheduler::priority::Rank;
pub use crate::scheduler::queue::QueueOrder;
use crate::scheduler::queue::{Queues, Remote};
pub(crate) use crate::scheduler::slot::NO_LABEL;
use crate::scheduler::slot::{OWN_FUTURE, WorkerSlot};
use crate::scheduler::threads::{STOP, WorkerThreads};
use crate::scheduler::unattended::Unattended;
pub(crate) use crate::scheduler::worker::{Here, Roles, Worker};

/// Unit of work that a scheduler runs.
pub(crate) trait Task: Sized + Send + 'static {
    /// Data that [`begin`](Self::begin) computes for [`run`](Self::run).
    type Begun;
    /// Returns the label of the task and the data for [`run`](Self::run). The worker calls this method immediately
    /// before `run`. Observers and preemption requests use the label to identify the task.
    fn begin(&self) -> (u64, Self::Begun);

    /// Prefetches data that this task will use. A worker takes several tasks from the global queue together. The caller
    /// sets `ahead` to 0 if the worker takes this task now. The caller sets `ahead` to 1 if the next worker will
    /// probably take this task from the queue.
    fn lead(&self, _ahead: usize) {}

    /// Runs one turn of the task. If the task needs another turn and has not queued itself, returns the task, and the
    /// caller must queue the task. If the priority of the returned task is high or low, also returns this priority.
    #[must_use = "the caller must queue the returned task"]
    fn run(self, begun: Self::Begun) -> Option<(Self, Option<Rank>)>;

    /// Calls `poll`, which polls the own future of a guest.
    fn poll_own<R>(poll: impl FnOnce() -> R) -> R {
        poll()
    }

    /// Returns the thread-local for tasks of this type. The thread-local contains the current worker of the thread.
    fn current() -> &'static LocalKey<Here<Self>>;
}

/// Source of time of a scheduler: a clock and timers.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Guard of an alarm. Dropping the guard cancels the alarm.
    type Alarm: Send + 'static;

    /// Returns the time since a fixed moment.
    fn now(&self) -> Duration;

    /// Fires some or all of the due timers. Returns the number of fired timers. Calls `begin` before each call that may
    /// run user code. User code may block.
    fn fire_due(&self, begin: &dyn Fn()) -> usize;

    /// Returns the time until the nearest deadline. If this deadline has passed, returns zero. If there is no deadline,
    /// returns `None`. In this case, an implementation should return quickly.
    fn wait(&self) -> Option<Duration>;

    /// Returns whether a deadline has passed at the time `now`. The caller got this time from [`now`](Self::now).
    fn is_due(&self, now: Duration) -> bool;

    /// Returns the same value as [`wait`](Self::wait). The timekeeper calls this method, and promises to check the
    /// timers again when the returned time has elapsed. Therefore the driver must [call the
    /// scheduler](Scheduler::rearm) if a new deadline is earlier than the promised check. For a later deadline, no call
    /// is necessary. A call of [`stop_keeping_time`](Self::stop_keeping_time) ends the promise.
    fn keep_time(&self) -> Option<Duration>;

    /// Ends the promise of [`keep_time`](Self::keep_time). Until the next call of `keep_time`, no thread has promised
    /// to check the timers.
    fn stop_keeping_time(&self);

    /// Sets an alarm that calls `waker` when the duration `after` has elapsed. The alarm needs no thread of the
    /// scheduler.
    fn alarm(&self, waker: &Waker, after: Duration) -> Self::Alarm;

    /// Calls the wakers that the poller has returned, and queues the woken tasks in the order of the wakers. Leaves
    /// `ready` empty. Calls `begin` before the first call of a waker that may run user code.
    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn());
}

/// The reason why a task is queued. If a worker queues the task, the reason determines the queue and the position of
/// the task. All other threads put the task into a shared queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The task was spawned and has not run yet.
    New,
    /// The task was woken while it waited. The task is put into the *`next` slot* of the worker that queues the task.
    /// This slot holds the task that the worker runs next.
    Woken,
    /// The task was woken while it waited, but the task is not urgent. The task is added to the back of the deque of
    /// the worker that queues the task.
    Behind,
    /// The task was woken during its own turn. The task is added to the back of the deque of the worker that queues the
    /// task or, with LIFO order, to the back of the global queue.
    Yielded,
    /// The priority of the task is high or low. The task is added to the queue for this priority.
    Ranked(Rank),
}

/// Maximum time for which a ready socket or a due timer may wait for the monitor. If the monitor may need more time,
/// the previous timekeeper wakes another worker, which becomes the timekeeper.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
/// Callback for changes of worker states. The arguments are the slot and the new state of the worker. If a long step
/// blocks the worker, the third argument is the label of the task.
type Observe = Arc<dyn Fn(usize, WorkerState, Option<u64>) + Send + Sync>;

/// Configuration of a scheduler.
pub(crate) struct Options {
    pub(crate) workers: usize,
    /// Prefix of the names of the worker threads. A dash and a number follow the prefix.
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) order: QueueOrder,
    /// If true, about half of the new and woken tasks are added to the back of the deque instead of the `next` slot.
    /// This option is for tests.
    pub(crate) shuffle: bool,
    pub(crate) around: Option<Around>,
    pub(crate) hooks: Hooks,
    pub(crate) observe: Option<Observe>,
    /// Time after which a step is a long step. `None` disables the monitor.
    pub(crate) long_step: Option<Duration>,
    /// Maximum number of additional workers that replace blocked workers at the same time.
    pub(crate) substitutes: usize,
}

/// Error: the requested number of workers is larger than the number of slots. The number of slots is fixed, because the
/// idle word (`idle.rs`) has one bit for each slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWorkers {
    pub(crate) asked: usize,
    pub(crate) most: usize,
}

/// The default number of workers leaves at least this number of slots vacant, for guests and replacement threads.
const SPARE_SLOTS: usize = SLOTS / 6;

/// Returns the default number of workers. This number is the available parallelism of the machine, but at least 1 and
/// at most `SLOTS - SPARE_SLOTS`.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get).min(SLOTS - SPARE_SLOTS)
}

/// The vacant slots, and the guests that wait until a slot becomes vacant.
struct Vacancies<T: Task> {
    /// Each entry contains the number of a slot, and the owner's parts of the slot's queues.
    slots: Vec<(usize, Queues<T>)>,
    guests: WaitingGuests,
}

/// Wakes guests, because a slot is vacant. The caller must hold no lock, because a waker is user code. A panic of a
/// waker does not affect this thread.
fn wake_guests(guests: Vec<Waker>) {
    guests.into_iter().for_each(|guest| contain(|| guest.wake()));
}

/// Work-stealing scheduler for tasks of type `T`.
pub(crate) struct Scheduler<T: Task> {
    options: Options,
    driver: Arc<dyn ErasedDriver>,
    metrics: Arc<Metrics>,
    global: CachePadded<Injector<T>>,
    priorities: PriorityQueues<T>,
    /// The thieves' parts of the queues, indexed by slot. A vacant slot can have tasks.
    remotes: Box<[Remote<T>]>,
    /// Published states of the workers, indexed by slot.
    worker_slots: Box<[Arc<CachePadded<WorkerSlot>>]>,
    idle: Idle,
    unattended: Unattended,
    vacancies: Mutex<Vacancies<T>>,
    /// True if the scheduler could not add a worker because all slots were occupied.
    lacks_slot: AtomicBool,
    /// One more than the highest number of a slot that was ever occupied. A search skips the slots from this number on,
    /// because these slots were never occupied.
    reached: AtomicUsize,
    /// Number of occupied slots.
    present: AtomicUsize,
    /// Instructions to all workers, as bits: `STOP` and `TOO_MANY` of `threads.rs`.
    orders: AtomicUsize,
    worker_threads: Mutex<WorkerThreads<T>>,
    /// The running threads of the scheduler: see `CountedThread`. A thread looks up only its own entry. Therefore no
    /// protocol depends on this lock.
    counted_threads: TallyLock<Vec<usize>>,
    /// Notified when a thread of the scheduler exits.
    left: Condvar,
    /// Notified when a slot is assigned to a waiting thread, and when the scheduler stops.
    called: Condvar,
    monitor: Monitor,
    /// The poller of the sockets. The first socket opens the poller.
    poller: OnceLock<Arc<Poller>>,
    /// Whether the poller is open. This flag is set after the field `poller` was set. While this flag is set, the
    /// timekeeper waits in the poller.
    polls: AtomicBool,
    /// The runtime that owns this scheduler. The scheduler only stores this value and does not use it.
    #[cfg(feature = "net")]
    owner: OnceLock<Box<dyn std::any::Any + Send + Sync>>,
}

/// Object-safe form of [`Driver`], with boxed alarms.
trait ErasedDriver: Send + Sync {
    fn now(&self) -> Duration;
    fn fire_due(&self, begin: &dyn Fn()) -> usize;
    fn wait(&self) -> Option<Duration>;
    fn is_due(&self, now: Duration) -> bool;
    fn keep_time(&self) -> Option<Duration>;
    fn stop_keeping_time(&self);
    fn alarm(&self, waker: &Waker, after: Duration) -> Box<dyn Send>;
    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn());
}

impl<D: Driver> ErasedDriver for D {
    fn now(&self) -> Duration {
        Driver::now(self)
    }

    fn fire_due(&self, begin: &dyn Fn()) -> usize {
        Driver::fire_due(self, begin)
    }

    fn wait(&self) -> Option<Duration> {
        Driver::wait(self)
    }

    fn is_due(&self, now: Duration) -> bool {
        Driver::is_due(self, now)
    }

    fn keep_time(&self) -> Option<Duration> {
        Driver::keep_time(self)
    }

    fn stop_keeping_time(&self) {
        Driver::stop_keeping_time(self);
    }

    fn alarm(&self, waker: &Waker, after: Duration) -> Box<dyn Send> {
        Box::new(Driver::alarm(self, waker, after))
    }

    fn wake_all(&self, ready: &mut Vec<Waker>, begin: &dyn Fn()) {
        Driver::wake_all(self, ready, begin);
    }
}

impl<T: Task> fmt::Debug for Scheduler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("workers", &self.options.workers)
            .field("idle", &self.idle)
            .field("global", &self.global.len())
            .finish_non_exhaustive()
    }
}

impl<T: Task> Scheduler<T> {
    /// Creates a scheduler. [`start`](Self::start) starts its threads.
    ///
    /// # Errors
    /// Returns `TooManyWorkers` if `options.workers` is larger than the number of slots.
    pub(crate) fn new(
        options: Options,
        driver: impl Driver,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, TooManyWorkers> {
        if options.workers > SLOTS {
            return Err(TooManyWorkers { asked: options.workers, most: SLOTS });
        }
        let (mut vacant, remotes): (Vec<_>, Vec<_>) = (0..SLOTS)
            .map(|slot| {
                let (queues, remote) = Queues::new(options.order);
                ((slot, queues), remote)
            })
            .unzip();
        // The function `occupy` takes the last entry, so the last entry must be the lowest slot. The worker threads
        // start first, so they get the lowest slots. Guest threads get higher slots.
        vacant.reverse();
        Ok(Arc::new(Self {
            worker_threads: Mutex::new(WorkerThreads::new(options.workers)),
            counted_threads: TallyLock::new(Vec::new()),
            monitor: Monitor::new(options.long_step, options.workers),
            options,
            driver: Arc::new(driver),
            metrics,
            global: CachePadded(Injector::new()),
            priorities: PriorityQueues::new(),
            remotes: remotes.into(),
            worker_slots: (0..SLOTS).map(|_| Arc::new(CachePadded(WorkerSlot::new()))).collect(),
            idle: Idle::new(SLOTS),
            unattended: Unattended::new(),
            vacancies: Mutex::new(Vacancies { slots: vacant, guests: WaitingGuests::default() }),
            lacks_slot: AtomicBool::new(false),
            reached: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            orders: AtomicUsize::new(0),
            left: Condvar::new(),
            called: Condvar::new(),
            poller: OnceLock::new(),
            polls: AtomicBool::new(false),
            #[cfg(feature = "net")]
            owner: OnceLock::new(),
        }))
    }

    /// Occupies a vacant slot and returns the worker of this slot. The caller sets `is_guest` to true if a guest thread
    /// will occupy the slot. Returns `None` if all slots are occupied.
    fn occupy(self: &Arc<Self>, is_guest: bool) -> Option<UniqueRc<Worker<T>>> {
        let (slot, queues) = self.vacancies.lock().slots.pop()?;
        Some(self.occupy_slot(slot, queues, is_guest))
    }

    /// Occupies a slot for a guest, as [`occupy`](Self::occupy) does. If all slots are occupied, adds the guest to the
    /// list of waiting guests, and returns the number of the guest in this list. If the guest already waits, the caller
    /// passes this number in `waits`.
    fn occupy_or_wait(self: &Arc<Self>, waits: Option<u64>, guest: WaitingGuest) -> Result<UniqueRc<Worker<T>>, u64> {
        let mut vacancies = self.vacancies.lock();
        if let Some((slot, queues)) = vacancies.slots.pop() {
            let former = vacancies.guests.remove(waits);
            drop(vacancies);
            let worker = self.occupy_slot(slot, queues, true);
            // The drop of a waker is user code and may panic. So the drop comes after the release of the lock.
            contain(|| drop((former, guest)));
            return Ok(worker);
        }
        let (number, former) = vacancies.guests.add(waits, guest);
        drop(vacancies);
        contain(|| drop(former));
        Err(number)
    }

    fn occupy_slot(self: &Arc<Self>, slot: usize, queues: Queues<T>, is_guest: bool) -> UniqueRc<Worker<T>> {
        self.worker_slots[slot].initialize(is_guest);
        if self.unattended.slots() & 1 << slot != 0 {
            // The previous occupant has left tasks in the queues.
            self.unattended.set_marked(slot, false);
        }
        // This `fetch_max` on `reached` comes before the first push to the queues of this slot. Therefore, after a push
        // to these queues, a worker that checks all queues also checks the queues of this slot.
        self.reached.fetch_max(slot + 1, Ordering::SeqCst);
        self.present.fetch_add(1, Ordering::SeqCst);
        Worker::new(Arc::clone(self), slot, queues)
    }

    /// Makes a slot vacant. Wakes guest threads that wait for a slot.
    fn vacate(&self, slot: usize, queues: Queues<T>) {
        self.present.fetch_sub(1, Ordering::SeqCst);
        let mut vacancies = self.vacancies.lock();
        vacancies.slots.push((slot, queues));
        let guests = vacancies.guests.next_wakers();
        drop(vacancies);
        wake_guests(guests);
    }

    /// Removes a guest from the waiting guests. The guest may already have been woken because a slot is vacant. In this
    /// case the guest does not occupy this slot, and this function wakes the next guests instead.
    fn stop_waiting(&self, waits: Option<u64>) {
        let mut vacancies = self.vacancies.lock();
        let guest = vacancies.guests.remove(waits);
        let next = if guest.is_none() { vacancies.guests.next_wakers() } else { Vec::new() };
        drop(vacancies);
        contain(|| drop(guest));
        wake_guests(next);
    }

    fn present(&self) -> usize {
        self.present.load(Ordering::Relaxed)
    }

    /// Queues a task on the worker of this thread, if this worker belongs to the scheduler at `address`.
    ///
    /// # Errors
    /// Returns the task if this thread is not a worker of that scheduler.
    #[inline]
    pub(crate) fn schedule_here(address: usize, task: T, how: Placement) -> Result<(), T> {
        let mut task = Some(task);
        let push = |here: &Here<T>| match here.borrow().worker() {
            Some(worker) if worker.is_of(address) => task.take().is_some_and(|task| worker.push(task, how)),
            _ => false,
        };
        // The call of `notify_other` below may call a waker, and a waker is user code. Therefore the borrow of the
        // thread-local must end before this call.
        if T::current().try_with(push).unwrap_or(false)
            && let Some(worker) = Worker::<T>::here()
        {
            worker.notify_other();
        }
        task.map_or(Ok(()), Err)
    }

    /// Queues a task from a thread that is not a worker of this scheduler. A closed scheduler drops the task.
    pub(crate) fn schedule_elsewhere(&self, task: T, how: Placement) {
        // If the scheduler is closed, `share` returns the task, because the task will never run. When the task is
        // dropped here, its future is dropped too, and the task is terminated.
        drop(self.share(task, how));
    }

    /// Queues a task, from any thread.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn schedule(&self, task: T, how: Placement) {
        let address = std::ptr::from_ref(self) as usize;
        if let Err(task) = Self::schedule_here(address, task, how) {
            self.schedule_elsewhere(task, how);
        }
    }

    /// Queues a task in a queue that all workers share, and wakes a worker.
    ///
    /// # Errors
    /// Returns the task if the scheduler is closed.
    fn share(&self, task: T, how: Placement) -> Result<(), T> {
        self.put_where_all_look(task, how)?;
        self.notify();
        Ok(())
    }

    fn put_where_all_look(&self, task: T, how: Placement) -> Result<(), T> {
        match how {
            Placement::Ranked(rank) => self.priorities.push(rank, task),
            Placement::New | Placement::Woken | Placement::Behind | Placement::Yielded => self.global.push(task),
        }
    }

    /// Queues the tasks in the global queue, from any thread. This function takes the lock of the queue only one time,
    /// and adds all tasks under this lock. This call wakes parked threads: at most the number of tasks minus the number
    /// of searching workers. If too few threads are parked, this call also wakes all sleeping polled guests. A closed
    /// scheduler drops the tasks.
    pub(crate) fn schedule_all(&self, mut tasks: Vec<T>) {
        let count = tasks.len();
        self.global.append(&mut tasks);
        if tasks.is_empty() {
            self.notify_many(count);
        }
        // If the global queue is closed, the tasks are still in the vector. These tasks will never run, so this line
        // drops them.
        drop(tasks);
    }

    fn notify_many(&self, count: usize) {
        for slot in self.idle.wake_many(count) {
            self.metrics.add(Counter::Wakes, 1);
            self.idle.wake(slot);
        }
    }

    /// Wakes a worker after a push, if no worker is searching.
    fn notify(&self) {
        self.notify_many(1);
    }

    /// Requests that the task with this label yields. Returns false if no worker runs this task now.
    pub(crate) fn preempt(&self, label: u64) -> bool {
        self.worker_slots[..self.reached.load(Ordering::SeqCst)].iter().any(|worker_slot| worker_slot.ask(label))
    }

    /// Wakes the timekeeper, if there is one. Before the helper thread calls wakers, the helper thread calls this
    /// function. The timekeeper then waits in the poller, which the helper thread has left. Without a timekeeper, this
    /// call is not necessary: each worker that is awake checks the poller before it parks.
    pub(super) fn wake_timekeeper(&self) {
        if let Some(slot) = self.idle.timekeeper() {
            self.idle.wake(slot);
        }
    }

    /// Wakes the timekeeper, or any worker if there is no timekeeper. This function is called in two cases: a new
    /// deadline is earlier than all other deadlines, or the poller was opened. In the first case, the timekeeper would
    /// sleep past the new deadline. In the second case, the timekeeper has parked its thread and does not wait in the
    /// poller.
    pub(crate) fn rearm(&self) {
        match self.idle.timekeeper() {
            Some(_) if planted!("rearm_forgets_timekeeper") => {}
            Some(slot) => self.idle.wake(slot),
            // A worker that is awake checks the timers before it parks. If all workers are parked, no worker has seen
            // the new deadline. Therefore one worker must wake up.
            None => self.notify(),
        }
    }

    /// Returns true if a deadline or an open poller exists and no worker is the timekeeper.
    fn is_untimed(&self) -> bool {
        (self.poller().is_some() || self.driver.wait().is_some()) && self.idle.timekeeper().is_none()
    }

    /// Called, for example, by a worker that was the timekeeper and has found work. Returns whether this worker must
    /// wake another worker, which then becomes the timekeeper.
    ///
    /// The previous timekeeper checks the timers and the poller between its tasks, so only a long step delays these
    /// checks. If the monitor is on, the monitor notices the long step within the time [`bound`](Monitor::bound), and
    /// wakes another worker. This other worker then becomes the timekeeper. Therefore the previous timekeeper must wake
    /// another worker only in these three cases: a deadline lies within the bound; there is a poller and the bound is
    /// longer than `LONGEST_DELAY`; or the monitor is off and there is a deadline or a poller.
    fn needs_timekeeper(&self) -> bool {
        let Some(bound) = self.monitor.bound() else { return self.is_untimed() };
        let is_needed =
            self.driver.wait().is_some_and(|wait| wait <= bound) || bound > LONGEST_DELAY && self.poller().is_some();
        is_needed && self.idle.timekeeper().is_none()
    }

    /// If the calling thread polls the own future of a guest without a slot, returns the scheduler of this guest. If
    /// the thread acts as a worker, returns the scheduler of this worker. If both conditions are true, the inner one of
    /// the two calls decides.
    #[cfg(feature = "net")]
    pub(crate) fn here() -> Option<Arc<Self>> {
        T::current().with(|here| here.borrow().scheduler().cloned())
    }

    /// If the calling thread acts as a worker of this scheduler, returns whether the step of this worker was handed
    /// over. A thread whose step was handed over is blocked or will block. Otherwise returns `None`.
    #[cfg(feature = "net")]
    pub(crate) fn is_handed_over_here(&self) -> Option<bool> {
        let address = std::ptr::from_ref(self) as usize;
        let check = |here: &Here<T>| {
            let here = here.borrow();
            here.worker().filter(|worker| worker.is_of(address)).map(|worker| worker.is_handed_over())
        };
        T::current().try_with(check).unwrap_or(None)
    }

    /// Stores the runtime that owns this scheduler.
    #[cfg(feature = "net")]
    pub(crate) fn set_owner(&self, owner: impl std::any::Any + Send + Sync) {
        let _ = self.owner.set(Box::new(owner));
    }

    /// Returns the value that [`set_owner`](Self::set_owner) has stored, if this value has the type `O`.
    #[cfg(feature = "net")]
    pub(crate) fn owner<O: 'static>(&self) -> Option<&O> {
        self.owner.get()?.downcast_ref()
    }

    /// Returns the poller of the sockets. Returns `None` if the poller is not open.
    #[inline]
    pub(crate) fn poller(&self) -> Option<&Arc<Poller>> {
        if self.polls.load(Ordering::SeqCst) { self.poller.get() } else { None }
    }

    /// Returns the poller of the sockets. If the poller is not open yet, this call opens the poller. From then on, the
    /// timekeeper waits in the poller.
    ///
    /// # Errors
    /// Returns the error of `open`.
    #[cfg(any(feature = "net", procession_loom))]
    pub(crate) fn open_poller<E>(
        self: &Arc<Self>,
        open: impl FnOnce() -> Result<Poller, E>,
    ) -> Result<&Arc<Poller>, E> {
        if let Some(poller) = self.poller() {
            return Ok(poller);
        }
        // This lock has two purposes. Because of the lock, only one thread opens a poller. The lock also orders this
        // code and a concurrent stop of the scheduler: either this thread sees `stopping`, or the function `stop` sees
        // the open poller.
        let worker_threads = self.worker_threads.lock();
        if self.poller.get().is_none() {
            let poller = open()?;
            if worker_threads.stopping {
                // The scheduler is stopping, so no thread will wait in the new poller.
                poller.close();
            }
            let _ = self.poller.set(Arc::new(poller));
        }
        self.polls.store(true, Ordering::SeqCst);
        drop(worker_threads);
        // This thread has set the flag `polls`. The function `rearm` executes a fence and then reads the timekeeper.
        // Another worker may become the timekeeper at the same time. That worker executes a fence in `announce` and
        // then reads `polls`. Either this thread sees the timekeeper and wakes the timekeeper, or the timekeeper sees
        // `polls` and waits in the poller.
        if !planted!("poller_opens_without_rearm") {
            self.rearm();
        }
        Ok(self.poller.get().expect("set above"))
    }

    /// Returns whether a task is queued or a timer is due.
    fn has_work(&self) -> bool {
        self.has_tasks() || self.driver.wait().is_some_and(|wait| wait.is_zero())
    }

    /// Returns whether any queue has a task.
    fn has_tasks(&self) -> bool {
        self.global.len() != 0
            || !(self.priorities.is_empty() || planted!("ranks_are_overlooked"))
            || self.remotes().iter().any(|remote| !remote.is_empty())
    }

    /// Returns the thieves' parts of the queues of all slots that were ever occupied.
    fn remotes(&self) -> &[Remote<T>] {
        &self.remotes[..self.reached.load(Ordering::SeqCst)]
    }

    fn is_stopping(&self) -> bool {
        self.orders() & STOP != 0
    }

    /// Returns the current instructions to the workers (`STOP`, `TOO_MANY`), or 0 if there are none.
    fn orders(&self) -> usize {
        self.orders.load(Ordering::SeqCst)
    }

    /// Removes and returns all queued tasks. The caller must have called [`stop`](Self::stop) before this call.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = self.global.drain().into();
        self.priorities.drain(&mut all);
        self.remotes.iter().for_each(|remote| remote.drain(&mut all));
        all
    }

    /// Closes the global queue and the priority queues. Later pushes to these queues fail.
    pub(crate) fn close(&self) {
        self.global.close();
        self.priorities.close();
    }

    /// Reads the lengths of the queues and the states of the workers. The values are read one after another, so they
    /// may belong to different moments.
    pub(crate) fn gauges(&self) -> SchedulerGauges {
        let reached = self.reached.load(Ordering::SeqCst);
        let vacant: Vec<usize> = self.vacancies.lock().slots.iter().map(|(slot, _)| *slot).collect();
        let left = vacant.iter().map(|&slot| self.remotes[slot].len()).sum::<usize>();
        let occupied = (0..reached).filter(|slot| !vacant.contains(slot));
        let (active, worker_target) = self.worker_threads.lock().active_and_target();
        SchedulerGauges {
            workers: occupied
                .map(|slot| WorkerMetrics::new(slot, self.state_of(slot), self.remotes[slot].len()))
                .collect(),
            steps: (0..reached).filter_map(|slot| self.current_step(slot)).collect(),
            worker_target,
            is_complete: active >= worker_target,
            sockets: self.poller().map_or(0, |poller| poller.len()),
            global_queue_depth: self.global.len() + left,
            priority_queue_depth: self.priorities.len(),
            global_queue_bytes: self.global.bytes(),
        }
    }

    /// Returns the step that the worker in this slot runs.
    fn current_step(&self, slot: usize) -> Option<CurrentStep> {
        let worker_slot = &self.worker_slots[slot];
        if !worker_slot.is_busy() {
            return None;
        }
        let (report, label) = (worker_slot.blocked_report(), worker_slot.label());
        let is_own_future = label == OWN_FUTURE;
        let process = (label < OWN_FUTURE).then_some(label);
        let polls = self.metrics.polls(slot);
        let is_asked_to_yield = worker_slot.preempt_word().is_requested(label);
        // If the blocked step has returned in the meantime, the label and the request may belong to a later step.
        let report = report.filter(|_| !is_own_future && worker_slot.blocked_report() == report);
        // A request is removed only by `should_yield` or by the budget of the process.
        let was_asked = process.is_some() && report.is_some_and(|report| report.was_asked);
        Some(CurrentStep {
            worker: slot,
            process,
            polls,
            is_own_future,
            blocked_since: report.map(|report| report.since),
            is_asked_to_yield,
            checks_yield: was_asked.then_some(!is_asked_to_yield),
        })
    }

    /// Returns the state of the worker in this slot.
    fn state_of(&self, slot: usize) -> WorkerState {
        let worker_slot = &self.worker_slots[slot];
        // A guest's own future is no step, so a hand-over during a poll of this future does not count as a long step.
        if worker_slot.is_handed_over() && worker_slot.label() != OWN_FUTURE {
            WorkerState::Blocked
        } else if worker_slot.is_busy() {
            WorkerState::Running
        } else if self.idle.is_sleeping(slot) {
            WorkerState::Parked
        } else {
            WorkerState::Searching
        }
    }

    /// Returns the scheduler's values for the counter tracks of a trace.
    pub(crate) fn trace_gauges(&self) -> Gauges {
        Gauges {
            queued_global: self.global.len() as u64,
            queued_local: self.remotes().iter().map(|remote| remote.len() as u64).sum(),
            replaced: self.worker_threads.lock().handed_over as u64,
            sockets: self.poller().map_or(0, |poller| poller.len() as u64),
            ..Gauges::default()
        }
    }
}
