//! Work-stealing scheduler: worker threads, guest threads, their queues, and the wake-up protocol.
//!
//! This folder imports `platform` and `observe`. `hooks.rs` also imports `process/catch.rs`, to run user code. The
//! scheduler is generic over the task type and does not know processes. Time comes from a [`Driver`]. The scheduler
//! relies on each task being in at most one queue at a time. The run state of the task guarantees this. `worker.rs`
//! defines the order in which a worker looks for work. `README.md` in the folder `scheduler` describes the protocols
//! and sketches their proof.

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
pub(crate) mod worker;

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use crate::observe::snapshot::SchedulerGauges;
use crate::observe::trace::timeline::Gauges;
use crate::observe::{Counter, Metrics, WorkerMetrics, WorkerState};
use crate::platform::poller::Poller;
use crate::platform::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::platform::sync::thread::LocalKey;
use crate::platform::sync::{Arc, CachePadded, Condvar, Event, Mutex, OnceLock, TallyLock, planted, thread};
pub(crate) use crate::scheduler::guest::{Budget, OwnWaker};
pub(crate) use crate::scheduler::hooks::{Hook, Hooks};
use crate::scheduler::idle::Idle;
pub(crate) use crate::scheduler::idle::SLOTS;
use crate::scheduler::injector::Injector;
use crate::scheduler::monitor::Monitor;
use crate::scheduler::priority::PriorityQueues;
pub(crate) use crate::scheduler::priority::Rank;
pub use crate::scheduler::queue::QueueOrder;
use crate::scheduler::queue::{Queues, Remote};
pub(crate) use crate::scheduler::slot::NOBODY;
use crate::scheduler::slot::WorkerSlot;
use crate::scheduler::threads::{STOP, WorkerThreads};
pub(crate) use crate::scheduler::worker::{Here, Local};

/// Unit of work that a scheduler runs.
pub(crate) trait Task: Sized + Send + 'static {
    /// Data that `begin` computes and `run` uses.
    type Begun;
    /// Called immediately before [`run`](Self::run). Returns the label of the task and the data for `run`. Observers
    /// and preemption requests use the label to identify the task.
    fn begin(&self) -> (u64, Self::Begun);

    /// Prefetches data that this task will touch. `ahead` is 0 if the worker takes the task's batch from the queue now,
    /// and 1 if the worker will take this batch next.
    fn lead(&self, _ahead: usize) {}

    /// Runs one turn.
    fn run(self, begun: Self::Begun);

    /// Thread-local with the worker of the current thread, for tasks of this type.
    fn current() -> &'static LocalKey<Here<Self>>;
}

/// Source of time of a scheduler: a clock and timers.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Guard of an alarm. Dropping it cancels the alarm.
    type Alarm: Send + 'static;

    /// Returns the time since a fixed moment.
    fn now(&self) -> Duration;

    /// Fires timers that are due, possibly not all of them. Returns the number of timers fired.
    fn fire_due(&self) -> usize;

    /// Returns the time until the nearest deadline. Returns zero if this deadline has passed, and `None` if there is no
    /// deadline. The call should be cheap if there is no deadline.
    fn wait(&self) -> Option<Duration>;

    /// Returns whether a deadline has passed at `now`, a time that [`now`](Self::now) returned.
    fn is_due(&self, now: Duration) -> bool;

    /// Returns the same time as [`wait`](Self::wait), for the timekeeper. The timekeeper checks the timers again when
    /// the returned time has elapsed. Until then, the driver [calls the scheduler](Scheduler::rearm) only for a new
    /// deadline that is before the end of the returned time. This promise ends with the call of
    /// [`keeps_no_time`](Self::keeps_no_time).
    fn keep_time(&self) -> Option<Duration>;

    /// Ends the promise of `keep_time`: until `keep_time` is called again, it is not certain that a thread checks the
    /// timers.
    fn keeps_no_time(&self);

    /// Wakes `waker` after the time `after`. No thread of the scheduler is needed for this.
    fn alarm(&self, waker: &Waker, after: Duration) -> Self::Alarm;

    /// Calls the wakers, which the poller has returned, and queues the woken tasks in the same order. Leaves the vector
    /// empty.
    fn wake_all(&self, ready: &mut Vec<Waker>);
}

/// How a task is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The task was spawned and has not run yet.
    New,
    /// The task was woken while it waited: it goes to the next slot.
    Woken,
    /// The task was woken while it waited, but is not urgent: it goes to the back of the queue.
    Behind,
    /// The task was woken during its own turn: it goes to the back of the queue.
    Yielded,
    /// The priority of the task is not normal: it goes to the queue of its priority.
    Ranked(Rank),
}

/// Limit of the delay of sockets. If the monitor notices a long step only after a longer time, another worker must
/// protect sockets from long steps.
const LONGEST_DELAY_OF_SOCKETS: Duration = Duration::from_millis(100);

type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
/// Callback for changes of worker states. Its arguments are the slot, the new state and, if a long step blocks the
/// worker, the label of the task.
type Observe = Arc<dyn Fn(usize, WorkerState, Option<u64>) + Send + Sync>;

/// Configuration of a scheduler.
pub(crate) struct Options {
    pub(crate) workers: usize,
    /// Prefix of the names of the worker threads; a dash and a number follow.
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) order: QueueOrder,
    /// Sends about half of the new and woken tasks to the back of the queue and not to the next slot. For tests.
    pub(crate) shuffle: bool,
    pub(crate) around: Option<Around>,
    pub(crate) hooks: Hooks,
    pub(crate) observe: Option<Observe>,
    /// Time after which a step is a long step. `None` disables the monitor.
    pub(crate) long_step: Option<Duration>,
    /// Maximum number of workers that replace blocked workers at the same time.
    pub(crate) substitutes: usize,
}

/// Error: more workers were requested than there are slots. There is one slot for each bit of the idle word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWorkers {
    pub(crate) asked: usize,
    pub(crate) most: usize,
}

/// Default number of workers: the available parallelism of the machine, between 1 and `SLOTS`.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get).min(SLOTS)
}

/// Work-stealing scheduler for tasks of type `T`.
pub(crate) struct Scheduler<T: Task> {
    options: Options,
    driver: Arc<dyn ErasedDriver>,
    metrics: Arc<Metrics>,
    global: CachePadded<Injector<T>>,
    priorities: PriorityQueues<T>,
    /// Thieves' ends of the queues, indexed by slot. The queues of vacant slots are empty.
    remotes: Box<[Remote<T>]>,
    /// Published states of the workers, indexed by slot.
    posts: Box<[Arc<CachePadded<WorkerSlot>>]>,
    idle: Idle,
    /// Vacant slots, each with the owner's end of its queues.
    vacant: Mutex<Vec<(usize, Queues<T>)>>,
    /// Notified when a slot becomes vacant. Guest threads that have no slot wait for this event.
    vacancy: Event,
    /// No slot from this number on was ever occupied. Therefore searches skip these slots.
    reached: AtomicUsize,
    /// Number of occupied slots.
    present: AtomicUsize,
    /// Orders to all workers: the bits `STOP` and `TOO_MANY` of `threads.rs`.
    orders: AtomicUsize,
    crew: Mutex<WorkerThreads<T>>,
    /// The counted threads that run now. No protocol depends on this lock: a thread looks up only its own entry.
    counted_threads: TallyLock<Vec<usize>>,
    /// Notified when a thread of the scheduler exits.
    left: Condvar,
    /// Notified when a slot is ready for a spare thread, and when the scheduler stops.
    called: Condvar,
    monitor: Monitor,
    /// The poller of the sockets. The first socket opens the poller.
    poller: OnceLock<Arc<Poller>>,
    /// Set after `poller`. From then on, the timekeeper waits in the poller.
    polls: AtomicBool,
    /// The runtime that this scheduler belongs to. The scheduler only stores it.
    #[cfg(feature = "net")]
    owner: OnceLock<Box<dyn std::any::Any + Send + Sync>>,
}

/// Object-safe form of [`Driver`], with boxed alarms.
trait ErasedDriver: Send + Sync {
    fn now(&self) -> Duration;
    fn fire_due(&self) -> usize;
    fn wait(&self) -> Option<Duration>;
    fn is_due(&self, now: Duration) -> bool;
    fn keep_time(&self) -> Option<Duration>;
    fn keeps_no_time(&self);
    fn alarm(&self, waker: &Waker, after: Duration) -> Box<dyn Send>;
    fn wake_all(&self, ready: &mut Vec<Waker>);
}

impl<D: Driver> ErasedDriver for D {
    fn now(&self) -> Duration {
        Driver::now(self)
    }

    fn fire_due(&self) -> usize {
        Driver::fire_due(self)
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

    fn keeps_no_time(&self) {
        Driver::keeps_no_time(self);
    }

    fn alarm(&self, waker: &Waker, after: Duration) -> Box<dyn Send> {
        Box::new(Driver::alarm(self, waker, after))
    }

    fn wake_all(&self, ready: &mut Vec<Waker>) {
        Driver::wake_all(self, ready);
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
        // `occupy` takes the last entry. In reversed order the worker threads get the lowest slots, because they start
        // first. Guest threads get the slots above them.
        vacant.reverse();
        Ok(Arc::new(Self {
            crew: Mutex::new(WorkerThreads::new(options.workers)),
            counted_threads: TallyLock::new(Vec::new()),
            monitor: Monitor::new(options.long_step, options.workers),
            options,
            driver: Arc::new(driver),
            metrics,
            global: CachePadded(Injector::new()),
            priorities: PriorityQueues::new(),
            remotes: remotes.into(),
            posts: (0..SLOTS).map(|_| Arc::new(CachePadded(WorkerSlot::new()))).collect(),
            idle: Idle::new(SLOTS),
            vacant: Mutex::new(vacant),
            vacancy: Event::new(),
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

    /// Occupies a vacant slot for the thread that will work in it. `lent` is true for a guest thread. Returns `None` if
    /// all slots are occupied.
    fn occupy(self: &Arc<Self>, lent: bool) -> Option<Local<T>> {
        let (slot, queues) = self.vacant.lock().pop()?;
        self.posts[slot].occupied(lent);
        // This store comes before the first push to the queues of this slot. A worker that sees such a push and then
        // checks all queues includes this slot.
        self.reached.fetch_max(slot + 1, Ordering::SeqCst);
        self.present.fetch_add(1, Ordering::SeqCst);
        Some(Local::new(Arc::clone(self), slot, queues))
    }

    /// Makes a slot vacant and notifies one guest thread that waits for a slot.
    fn vacate(&self, slot: usize, queues: Queues<T>) {
        self.present.fetch_sub(1, Ordering::SeqCst);
        self.vacant.lock().push((slot, queues));
        self.vacancy.notify(1);
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
        let push = |here: &Here<T>| match &*here.borrow() {
            Some(local) if local.is_of(address) => task.take().is_some_and(|task| local.push(task, how)),
            _ => false,
        };
        // `tell` may call a waker, which is user code. The thread-local must not be borrowed during this call.
        if T::current().try_with(push).unwrap_or(false)
            && let Some(local) = Local::<T>::here()
        {
            local.tell();
        }
        task.map_or(Ok(()), Err)
    }

    /// Queues a task, from a thread that is not one of this scheduler's workers. A closed scheduler drops the task.
    pub(crate) fn schedule_elsewhere(&self, task: T, how: Placement) {
        // A closed scheduler returns the task and will never run it. Dropping the task drops its future and so
        // terminates the task.
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

    /// Queues the tasks in the global queue under one lock, from any thread. Wakes up to one parked worker for each
    /// task, minus the number of searching workers. A closed scheduler drops the tasks.
    pub(crate) fn schedule_all(&self, mut tasks: Vec<T>) {
        let count = tasks.len();
        self.global.append(&mut tasks);
        if tasks.is_empty() {
            self.notify_many(count);
        }
        // A closed global queue leaves the tasks in the vector. They will never run, so they are dropped, as in
        // `schedule_elsewhere`.
        drop(tasks);
    }

    fn notify_many(&self, count: usize) {
        for slot in self.idle.wake_many(count) {
            self.metrics.add(Counter::Wakes, 1);
            self.idle.wake(slot);
        }
    }

    /// Wakes a worker after a push, unless a worker searches already.
    fn notify(&self) {
        self.notify_many(1);
    }

    /// Asks the task with this label to yield. Returns false if no worker runs it now.
    pub(crate) fn preempt(&self, label: u64) -> bool {
        self.posts[..self.reached.load(Ordering::SeqCst)].iter().any(|post| post.ask(label))
    }

    /// Called after a deadline was inserted that is earlier than all other deadlines, and after the poller was opened.
    /// Wakes the timekeeper, because the timekeeper has parked until the former earliest deadline, or outside the
    /// poller.
    pub(crate) fn rearm(&self) {
        match self.idle.timekeeper() {
            Some(_) if planted!("rearm_forgets_timekeeper") => {}
            Some(slot) => self.idle.wake(slot),
            // Workers that are awake look at the timers before they park. If all workers are parked, none of them has
            // seen the deadline.
            None => self.notify(),
        }
    }

    /// Returns whether there is a deadline or an open poller, but no timekeeper.
    fn is_untimed(&self) -> bool {
        (self.poller().is_some() || self.driver.wait().is_some()) && self.idle.timekeeper().is_none()
    }

    /// Called for a worker that was the timekeeper and has found work. Returns whether this worker must wake another
    /// worker, which then becomes the timekeeper.
    ///
    /// The former timekeeper checks the timers and the poller between its tasks, so only a long step delays these
    /// checks. If the monitor is on, it notices the long step within its [bound](Monitor::bound), hands the tasks over,
    /// and wakes another worker, which becomes the timekeeper. So this function returns true only in three cases: a
    /// deadline lies within the bound, there is a poller and the bound is long, or the monitor is off.
    fn needs_timekeeper(&self) -> bool {
        let Some(bound) = self.monitor.bound() else { return self.is_untimed() };
        let is_needed = self.driver.wait().is_some_and(|wait| wait <= bound)
            || bound > LONGEST_DELAY_OF_SOCKETS && self.poller().is_some();
        is_needed && self.idle.timekeeper().is_none()
    }

    /// Returns the scheduler whose worker the calling thread acts as.
    #[cfg(feature = "net")]
    pub(crate) fn here() -> Option<Arc<Self>> {
        Local::<T>::here().map(|local| Arc::clone(local.scheduler()))
    }

    /// Returns whether the calling thread acts as a worker of this scheduler.
    #[cfg(feature = "net")]
    pub(crate) fn is_here(&self) -> bool {
        let address = std::ptr::from_ref(self) as usize;
        T::current().try_with(|here| here.borrow().as_ref().is_some_and(|local| local.is_of(address))).unwrap_or(false)
    }

    /// Stores the runtime that this scheduler belongs to.
    #[cfg(feature = "net")]
    pub(crate) fn set_owner(&self, owner: impl std::any::Any + Send + Sync) {
        let _ = self.owner.set(Box::new(owner));
    }

    /// Returns the value of [`set_owner`](Self::set_owner), if it has this type.
    #[cfg(feature = "net")]
    pub(crate) fn owner<O: 'static>(&self) -> Option<&O> {
        self.owner.get()?.downcast_ref()
    }

    /// Returns the poller if it is open.
    #[inline]
    pub(crate) fn poller(&self) -> Option<&Arc<Poller>> {
        if self.polls.load(Ordering::SeqCst) { self.poller.get() } else { None }
    }

    /// Returns the poller. If the poller is not open yet, opens it. The timekeeper then waits in the poller.
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
        // Because of this lock, only one poller is opened, and the end of the runtime sees the poller.
        let crew = self.crew.lock();
        if self.poller.get().is_none() {
            let poller = open()?;
            if crew.stopping {
                // The runtime has already closed its poller, or had no poller. No thread will wait in the new poller.
                poller.close();
            }
            let _ = self.poller.set(Arc::new(poller));
        }
        self.polls.store(true, Ordering::SeqCst);
        drop(crew);
        // `rearm` executes a fence and then reads the timekeeper. A worker becomes the timekeeper, executes a fence in
        // `announce`, and then reads `polls`. So either this thread sees the timekeeper and wakes it, or the timekeeper
        // sees `polls` and waits in the poller.
        if !planted!("poller_opens_quietly") {
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

    /// Thieves' ends of the queues of all slots that were ever occupied.
    fn remotes(&self) -> &[Remote<T>] {
        &self.remotes[..self.reached.load(Ordering::SeqCst)]
    }

    fn is_stopping(&self) -> bool {
        self.orders() & STOP != 0
    }

    /// Returns the orders to all workers; 0 if there are none.
    fn orders(&self) -> usize {
        self.orders.load(Ordering::SeqCst)
    }

    /// Removes and returns all queued tasks. Called after [`stop`](Self::stop).
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = self.global.drain().into();
        self.priorities.drain(&mut all);
        self.remotes.iter().for_each(|remote| remote.drain(&mut all));
        all
    }

    /// Closes the global queue and the priority queues: later pushes to them fail.
    pub(crate) fn close(&self) {
        self.global.close();
        self.priorities.close();
    }

    /// Reads the depths of the queues and the states of the workers, one after another.
    pub(crate) fn gauges(&self) -> SchedulerGauges {
        let reached = self.reached.load(Ordering::SeqCst);
        let vacant: Vec<usize> = self.vacant.lock().iter().map(|(slot, _)| *slot).collect();
        let occupied = (0..reached).filter(|slot| !vacant.contains(slot));
        SchedulerGauges {
            workers: occupied
                .map(|slot| WorkerMetrics::new(slot, self.state_of(slot), self.remotes[slot].len()))
                .collect(),
            global_queue_depth: self.global.len(),
            priority_queue_depth: self.priorities.len(),
            global_queue_bytes: self.global.bytes(),
        }
    }

    /// Returns the state of the worker in this slot.
    fn state_of(&self, slot: usize) -> WorkerState {
        let post = &self.posts[slot];
        if post.is_taken() {
            WorkerState::Blocked
        } else if post.is_busy() {
            WorkerState::Running
        } else if self.idle.is_sleeping(slot) {
            WorkerState::Parked
        } else {
            WorkerState::Searching
        }
    }

    /// Returns the values of the counter tracks of a trace that the scheduler knows.
    pub(crate) fn trace_gauges(&self) -> Gauges {
        Gauges {
            queued_global: self.global.len() as u64,
            queued_local: self.remotes().iter().map(|remote| remote.len() as u64).sum(),
            replaced: self.crew.lock().taken as u64,
            sockets: self.poller().map_or(0, |poller| poller.len() as u64),
            ..Gauges::default()
        }
    }
}
