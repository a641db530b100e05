//! Where tasks run: worker threads and lent ones, their queues, and who wakes whom.
//!
//! It is generic over what it runs and knows nothing of processes; time comes in as a [`Driver`]. What it relies on is
//! that a task is in one queue at a time, which its run state sees to. The order in which a worker looks for work is in
//! `worker.rs`, the protocols and their proofs in `README.md` beside it.

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

use crate::observe::{Counter, Metrics, WorkerState};
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::thread::LocalKey;
use crate::platform::sync::{Arc, CachePadded, Condvar, Event, Mutex, TallyLock, planted, thread};
pub(crate) use crate::scheduler::guest::{Budget, OwnWaker};
pub(crate) use crate::scheduler::hooks::Hooks;
use crate::scheduler::idle::Idle;
pub(crate) use crate::scheduler::idle::SLOTS;
use crate::scheduler::injector::Global;
use crate::scheduler::monitor::Monitor;
pub(crate) use crate::scheduler::priority::Rank;
use crate::scheduler::priority::Ranks;
pub use crate::scheduler::queue::LocalOrder;
use crate::scheduler::queue::{Queues, Remote};
pub(crate) use crate::scheduler::slot::NOBODY;
use crate::scheduler::slot::Post;
use crate::scheduler::threads::{Crew, STOP};
pub(crate) use crate::scheduler::worker::{Here, Local};

/// What a scheduler runs.
pub(crate) trait Task: Sized + Send + 'static {
    /// What is known when it is begun.
    type Begun;
    /// It is about to run: what it is called by those who watch, and what its run wants to know.
    fn begin(&self) -> (u64, Self::Begun);

    /// It will be taken out of the queue with the crowd that comes next but so many: has what it touches fetched by then.
    fn lead(&self, _ahead: usize) {}

    /// Runs one turn.
    fn run(self, begun: Self::Begun);

    /// Where a thread has the worker that it is, for tasks of this kind.
    fn current() -> &'static LocalKey<Here<Self>>;
}

/// Time, as a scheduler sees it; I/O can join here later.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Rings until it is dropped.
    type Alarm: Send + 'static;

    /// The time since a moment that stays the same.
    fn now(&self) -> Duration;

    /// Fires what is due; returns how many.
    fn turn(&self) -> usize;

    /// How long until the nearest deadline; a load if there is none.
    fn wait(&self) -> Option<Duration>;

    /// Whether a deadline has passed at this time, which [`now`](Self::now) has returned.
    fn is_due(&self, now: Duration) -> bool;

    /// As [`wait`](Self::wait), asked by the one who will look again then: the driver has the scheduler [told](Scheduler::rearm) of
    /// nearer deadlines alone, until that one says that it [keeps](Self::keeps_no_time) the time no more.
    fn keep_time(&self) -> Option<Duration>;

    /// Nobody is sure to look until somebody asks again.
    fn keeps_no_time(&self);

    /// Wakes `waker` after this time, without a thread of the scheduler's.
    fn alarm(&self, waker: &Waker, after: Duration) -> Self::Alarm;
}

/// Where a task goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// It was spawned, and has had no turn.
    New,
    /// Something woke it: it is to run soon.
    Woken,
    /// Something woke it that others need not wait for: behind them.
    Behind,
    /// It was woken while it ran: behind the others.
    Yielded,
    /// Whatever became of it, it is not one of the normal ones.
    Ranked(Rank),
}

type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;
/// Told of the states of workers; with the label of a task if that keeps its worker for long.
type Observe = Arc<dyn Fn(usize, WorkerState, Option<u64>) + Send + Sync>;

/// How a scheduler is made.
pub(crate) struct Options {
    pub(crate) workers: usize,
    /// Of the worker threads; a number follows.
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) order: LocalOrder,
    /// Shuffles slots and queues, for tests.
    pub(crate) shuffle: bool,
    pub(crate) around: Option<Around>,
    pub(crate) hooks: Hooks,
    pub(crate) observe: Option<Observe>,
    /// A step that keeps its worker longer than this is long; `None` if none is.
    pub(crate) long_step: Option<Duration>,
    /// How many workers may stand in for others at a time.
    pub(crate) substitutes: usize,
}

/// More workers were asked for than one state word has bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyWorkers {
    pub(crate) asked: usize,
    pub(crate) most: usize,
}

/// How many workers a machine is worth.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get).min(SLOTS)
}

/// The scheduler.
pub(crate) struct Scheduler<T: Task> {
    options: Options,
    driver: Arc<dyn ErasedDriver>,
    metrics: Arc<Metrics>,
    global: CachePadded<Global<T>>,
    ranks: Ranks<T>,
    /// Of every slot; those that nobody occupies are empty.
    remotes: Box<[Remote<T>]>,
    /// Of every slot.
    posts: Box<[Arc<CachePadded<Post>>]>,
    idle: Idle,
    /// Slots that no worker occupies, with the owner's end of their queues.
    vacant: Mutex<Vec<(usize, Queues<T>)>>,
    /// Told when a slot becomes vacant, for lenders that found none.
    vacancy: Event,
    /// Slots from here on were never occupied, and need not be looked at.
    reached: AtomicUsize,
    /// How many slots are occupied.
    present: AtomicUsize,
    /// What all workers are told: bits that `crew.rs` names.
    orders: AtomicUsize,
    crew: Mutex<Crew<T>>,
    /// The threads that are workers now. No protocol depends on the lock: a thread asks only for itself.
    worker_threads: TallyLock<Vec<usize>>,
    /// Told when a thread is over.
    left: Condvar,
    /// Told when there is a place for a thread that has nothing to do.
    called: Condvar,
    monitor: Monitor,
}

/// A [`Driver`] whose alarms are kept in a box.
trait ErasedDriver: Send + Sync {
    fn now(&self) -> Duration;
    fn turn(&self) -> usize;
    fn wait(&self) -> Option<Duration>;
    fn is_due(&self, now: Duration) -> bool;
    fn keep_time(&self) -> Option<Duration>;
    fn keeps_no_time(&self);
    fn alarm(&self, waker: &Waker, after: Duration) -> Box<dyn Send>;
}

impl<D: Driver> ErasedDriver for D {
    fn now(&self) -> Duration {
        Driver::now(self)
    }

    fn turn(&self) -> usize {
        Driver::turn(self)
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
    /// A scheduler whose threads are not started yet.
    ///
    /// # Errors
    /// More workers than there are slots.
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
        // The lowest number first: workers come before lent threads.
        vacant.reverse();
        Ok(Arc::new(Self {
            crew: Mutex::new(Crew::new(options.workers)),
            worker_threads: TallyLock::new(Vec::new()),
            monitor: Monitor::new(options.long_step, options.workers),
            options,
            driver: Arc::new(driver),
            metrics,
            global: CachePadded(Global::new()),
            ranks: Ranks::new(),
            remotes: remotes.into(),
            posts: (0..SLOTS).map(|_| Arc::new(CachePadded(Post::new()))).collect(),
            idle: Idle::new(SLOTS),
            vacant: Mutex::new(vacant),
            vacancy: Event::new(),
            reached: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            orders: AtomicUsize::new(0),
            left: Condvar::new(),
            called: Condvar::new(),
        }))
    }

    /// Takes a slot for the thread that will look for work from it; `None` when all are occupied.
    fn occupy(self: &Arc<Self>, lent: bool) -> Option<Local<T>> {
        let (slot, queues) = self.vacant.lock().pop()?;
        self.posts[slot].occupied(lent);
        // Before anything is pushed there: whoever looks at every queue before it sleeps sees it as it sees the push.
        self.reached.fetch_max(slot + 1, Ordering::SeqCst);
        self.present.fetch_add(1, Ordering::SeqCst);
        Some(Local::new(Arc::clone(self), slot, queues))
    }

    /// Gives a slot back.
    fn vacate(&self, slot: usize, queues: Queues<T>) {
        self.present.fetch_sub(1, Ordering::SeqCst);
        self.vacant.lock().push((slot, queues));
        self.vacancy.notify(1);
    }

    fn present(&self) -> usize {
        self.present.load(Ordering::Relaxed)
    }

    /// Queues a task on the worker that this thread is, if it is one of the scheduler at `address`.
    ///
    /// # Errors
    /// The task, when it is not.
    #[inline]
    pub(crate) fn schedule_here(address: usize, task: T, how: Placement) -> Result<(), T> {
        let mut task = Some(task);
        let push = |here: &Here<T>| match &*here.borrow() {
            Some(local) if local.is_of(address) => task.take().is_some_and(|task| local.push(task, how)),
            _ => false,
        };
        // Whoever is told may run code of its own, which must not find this borrowed.
        if T::current().try_with(push).unwrap_or(false)
            && let Some(local) = Local::<T>::here()
        {
            local.tell();
        }
        task.map_or(Ok(()), Err)
    }

    /// Queues a task, on a thread that is none of its workers.
    pub(crate) fn schedule_elsewhere(&self, task: T, how: Placement) {
        // If nobody will ever run it, its future is dropped, which is its end.
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

    /// Queues a task where all workers look, and wakes one.
    ///
    /// # Errors
    /// The task, when the scheduler is closed.
    fn share(&self, task: T, how: Placement) -> Result<(), T> {
        self.put_where_all_look(task, how)?;
        self.notify();
        Ok(())
    }

    fn put_where_all_look(&self, task: T, how: Placement) -> Result<(), T> {
        match how {
            Placement::Ranked(rank) => self.ranks.push(rank, task),
            Placement::New | Placement::Woken | Placement::Behind | Placement::Yielded => self.global.push(task),
        }
    }

    /// Queues many tasks under one lock, from any thread, and wakes as many workers, if so many sleep.
    pub(crate) fn schedule_all(&self, mut tasks: Vec<T>) {
        let count = tasks.len();
        self.global.append(&mut tasks);
        if tasks.is_empty() {
            self.notify_many(count);
        }
        // As in `schedule_elsewhere`: what is left is dropped where it would never run.
        drop(tasks);
    }

    fn notify_many(&self, count: usize) {
        for slot in self.idle.wake_many(count) {
            self.metrics.add(Counter::Wakes, 1);
            self.idle.wake(slot);
        }
    }

    /// Work was pushed: wakes somebody to look for it, unless somebody looks already.
    fn notify(&self) {
        self.notify_many(1);
    }

    /// Asks a task to let others run; false if it runs nowhere.
    pub(crate) fn preempt(&self, label: u64) -> bool {
        self.posts[..self.reached.load(Ordering::SeqCst)].iter().any(|post| post.ask(label))
    }

    /// The nearest deadline came nearer: whoever sleeps until the former one has to look again.
    pub(crate) fn rearm(&self) {
        match self.idle.timekeeper() {
            Some(_) if planted!("rearm_forgets_timekeeper") => {}
            Some(slot) => self.idle.wake(slot),
            // Those who are awake look at the timers before they sleep. If all sleep, none of them has looked.
            None => self.notify(),
        }
    }

    /// Whether there is a deadline and no sleeper that keeps the time.
    fn is_untimed(&self) -> bool {
        self.driver.wait().is_some() && self.idle.timekeeper().is_none()
    }

    /// Whether there is anything to do: a task in a queue, or a timer that is due.
    fn has_work(&self) -> bool {
        self.has_tasks() || self.driver.wait().is_some_and(|wait| wait.is_zero())
    }

    /// Whether a task is in any queue.
    fn has_tasks(&self) -> bool {
        self.global.len() != 0
            || !(self.ranks.is_empty() || planted!("ranks_are_overlooked"))
            || self.remotes().iter().any(|remote| !remote.is_empty())
    }

    /// What others see of the slots that were ever occupied.
    fn remotes(&self) -> &[Remote<T>] {
        &self.remotes[..self.reached.load(Ordering::SeqCst)]
    }

    fn is_stopping(&self) -> bool {
        self.orders() & STOP != 0
    }

    /// What all workers are told; 0 for nothing.
    fn orders(&self) -> usize {
        self.orders.load(Ordering::SeqCst)
    }

    /// Takes everything that is queued anywhere, after [`stop`](Self::stop).
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all: Vec<T> = self.global.drain().into();
        self.ranks.drain(&mut all);
        self.remotes.iter().for_each(|remote| remote.drain(&mut all));
        all
    }

    /// Drops whatever is queued from now on.
    pub(crate) fn close(&self) {
        self.global.close();
        self.ranks.close();
    }

    /// How many tasks wait in the global queue, and how many in all local ones.
    #[expect(dead_code, reason = "the depth of queues is counted when the inspector comes")]
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.global.len(), self.remotes.iter().map(Remote::len).sum())
    }
}
