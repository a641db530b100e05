//! The threads of the scheduler: how many threads work, how many are blocked in long steps, and when threads start and
//! exit.
//!
//! All counts are under one lock. No thread takes this lock in the normal case. It does not matter which thread works
//! in which slot. If a thread returns from a long step and another thread has taken over its work, the returning thread
//! leaves and the other thread stays. `README.md` in this folder describes the protocol of the hand-over.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::observe::WorkerState;
use crate::observe::trace::{TraceEvent, Urgency};
use crate::platform::clock::Instant;
use crate::platform::poller::Wait;
use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::{Arc, Mutex, MutexGuard, planted, this_thread, thread, wait_while, wait_within};
use crate::platform::unwind::contain;
use crate::scheduler::{Local, SLOTS, Scheduler, Task, hooks};

/// How long a thread without work waits for new employment. Blocking steps often come in groups, so the thread may be
/// needed again soon.
const SPARE_FOR: Duration = Duration::from_millis(500);

/// If `start` fails, it waits this long for the exit of the threads that it has started. These threads only run their
/// hooks.
const STARTED_FOR: Duration = Duration::from_secs(1);

/// Orders to all workers, as bits. `STOP` means: leave. `TOO_MANY` means: check whether there are too many workers.
pub(super) const STOP: usize = 1;
pub(super) const TOO_MANY: usize = 2;

/// Counts and spare slots of the worker threads.
#[derive(Debug)]
pub(super) struct WorkerThreads<T: Task> {
    /// Requested number of workers.
    target: usize,
    /// Number of workers that run or will start to run.
    active: usize,
    /// Number of workers whose current step was handed over.
    pub(super) taken: usize,
    /// Number of threads, including the thread of the monitor.
    threads: usize,
    /// Number of threads that wait for a slot.
    spare: usize,
    /// Slots that are assigned to these waiting threads.
    calls: VecDeque<Local<T>>,
    /// Number of worker threads ever started, for their names.
    started: usize,
    pub(super) monitored: bool,
    /// Whether the helper thread that waits in the poller was started.
    polled: bool,
    /// Whether a thread outside the scheduler has ever waited for a socket.
    is_awaited: bool,
    pub(super) stopping: bool,
}

impl<T: Task> WorkerThreads<T> {
    pub(super) fn new(target: usize) -> Self {
        Self {
            target,
            active: 0,
            taken: 0,
            threads: 0,
            spare: 0,
            calls: VecDeque::new(),
            started: 0,
            monitored: false,
            polled: false,
            is_awaited: false,
            stopping: false,
        }
    }

    /// Returns whether the scheduler has neither a worker nor a helper thread that waits in the poller.
    fn needs_poll_thread(&self) -> bool {
        self.target == 0 && !self.polled && !self.stopping
    }
}

/// Guard that counts a thread until the thread exits. A panic of the thread counts as an exit.
pub(super) struct CountedThread<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    /// Number of the counted thread, after this thread has begun to run.
    thread: Option<usize>,
}

impl<T: Task> CountedThread<T> {
    pub(super) fn new(crew: &mut WorkerThreads<T>, scheduler: Arc<Scheduler<T>>) -> Self {
        crew.threads += 1;
        Self { scheduler, thread: None }
    }

    /// Called by the counted thread before it runs any user code. A counted thread may drop the last handle of its
    /// runtime, for example in a waker or in a hook. The drop waits for the exit of all other counted threads.
    pub(super) fn begins(&mut self) {
        let thread = this_thread();
        self.thread = Some(thread);
        self.scheduler.counted_threads.with(|threads| threads.push(thread));
    }
}

impl<T: Task> Drop for CountedThread<T> {
    fn drop(&mut self) {
        // If the thread could not be started, another thread drops this guard.
        if let Some(exited) = self.thread {
            self.scheduler.counted_threads.with(|threads| threads.retain(|thread| *thread != exited));
        }
        self.scheduler.crew.lock().threads -= 1;
        self.scheduler.left.notify_all();
    }
}

impl<T: Task> Scheduler<T> {
    /// Starts the worker threads.
    ///
    /// # Errors
    /// Returns the error of a thread that could not be started. The threads that were started before have exited,
    /// unless a hook keeps one of them for more than a second.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        for _ in 0..self.options.workers {
            let Some(local) = self.occupy(false) else { unreachable!("there are as many slots as workers at least") };
            if let Err((error, local)) = self.employ(self.crew.lock(), local) {
                drop(local);
                self.stop();
                self.wait_stopped(STARTED_FOR);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the requested number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.crew.lock().target
    }

    /// Sets the requested number of workers, at most the number of slots. Surplus workers leave after their current
    /// task.
    pub(crate) fn set_workers(self: &Arc<Self>, count: usize) {
        let mut crew = self.crew.lock();
        crew.target = count.min(SLOTS);
        let too_many = crew.active > crew.target;
        if crew.target != 0 && self.options.long_step.is_some() {
            self.monitor.enable();
        }
        drop(crew);
        if too_many {
            self.orders.fetch_or(TOO_MANY, Ordering::SeqCst);
            (0..SLOTS).for_each(|slot| self.idle.wake(slot));
        }
        while self.hire() {}
        if self.poller().is_some() {
            let crew = self.crew.lock();
            let is_awaited = crew.is_awaited;
            if crew.needs_poll_thread() && (is_awaited || self.idle.timekeeper().is_none()) {
                drop(crew);
                // If the helper thread cannot be started, the guests ask the poller.
                let _ = self.start_poll_thread();
            }
        }
        self.notify();
    }

    /// Returns whether the poller is open, but neither a worker nor the helper thread will wait in it.
    pub(super) fn poller_has_no_thread(&self) -> bool {
        self.poller().is_some() && self.idle.timekeeper().is_none() && self.crew.lock().needs_poll_thread()
    }

    /// Called before a thread outside the scheduler waits for a socket. Ensures that a thread waits in the poller.
    ///
    /// A guest in `block_on` may wait in the poller now, but this guest may leave while the calling thread still waits
    /// for its socket. So without workers, the helper thread is needed even if there is a timekeeper.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started.
    #[cfg(any(feature = "net", procession_loom))]
    pub(crate) fn is_awaited_outside(self: &Arc<Self>) -> io::Result<()> {
        let mut crew = self.crew.lock();
        // `set_workers` changes the requested number under this lock, and then reads this flag. So one of the two
        // functions sees the value that the other function has stored.
        crew.is_awaited = !planted!("outside_wait_is_not_noted");
        let is_left_to_guest = planted!("guest_polls_for_outside") && self.idle.timekeeper().is_some();
        let needs_thread = crew.needs_poll_thread() && !is_left_to_guest;
        drop(crew);
        if needs_thread { self.start_poll_thread() } else { Ok(()) }
    }

    /// Starts the helper thread, which waits in the poller until the scheduler stops. Needed for a scheduler without
    /// workers: a polled guest cannot wait in the poller, because its executor parks the thread.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started.
    pub(crate) fn start_poll_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut crew = self.crew.lock();
        if crew.polled || crew.stopping {
            return Ok(());
        }
        crew.polled = true;
        let mut counted = CountedThread::new(&mut crew, Arc::clone(self));
        drop(crew);
        let scheduler = Arc::clone(self);
        let name = format!("{}-poller", self.options.name);
        let started = thread::Builder::new().name(name).spawn(move || {
            counted.begins();
            scheduler.poll_until_stop();
            drop(counted);
        });
        if let Err(error) = started {
            self.crew.lock().polled = false;
            return Err(error);
        }
        Ok(())
    }

    /// Main function of the helper thread, which waits in the poller.
    fn poll_until_stop(&self) {
        let Some(poller) = self.poller() else { return };
        let mut ready = Vec::new();
        // If the system returns an error, the poller is unusable, and the thread exits.
        while !self.is_stopping() && poller.poll(Wait::Alone, &mut ready) {
            // A waker is user code. If it panics, the helper thread must continue.
            contain(|| self.driver.wake_all(&mut ready));
            contain(|| ready.clear());
        }
    }

    /// Employs one more worker if there are too few. Returns false if there are enough workers, or if no more can be
    /// employed.
    fn hire(self: &Arc<Self>) -> bool {
        let lacks = |crew: &WorkerThreads<T>| {
            // The number of replacement threads is bounded, so that a thousand blocking steps do not start a thousand
            // threads. The bound may be `usize::MAX`.
            crew.active < crew.target
                && crew.active + crew.taken < crew.target.saturating_add(self.options.substitutes)
                && !crew.stopping
        };
        if !lacks(&self.crew.lock()) {
            return false;
        }
        let Some(local) = self.occupy(false) else { return false };
        let crew = self.crew.lock();
        let spare = if lacks(&crew) {
            match self.employ(crew, local) {
                Ok(()) => return true,
                Err((_, local)) => local.map(|local| *local),
            }
        } else {
            drop(crew);
            Some(local)
        };
        // Leaving a slot may call the waker of a thread that waits for a slot. So it happens after the lock was
        // released.
        spare.into_iter().for_each(Local::leave);
        false
    }

    /// Employs a thread in this slot: either a waiting thread or a new one.
    fn employ(
        self: &Arc<Self>,
        mut crew: MutexGuard<'_, WorkerThreads<T>>,
        local: Local<T>,
    ) -> Result<(), (io::Error, Option<Box<Local<T>>>)> {
        if crew.spare > crew.calls.len() {
            crew.calls.push_back(local);
            crew.active += 1;
            self.called.notify_one();
            return Ok(());
        }
        let mut builder = thread::Builder::new().name(format!("{}-{}", self.options.name, crew.started));
        if let Some(size) = self.options.stack_size {
            builder = builder.stack_size(size);
        }
        let place = Arc::new(Mutex::new(Some(local)));
        let (at, around) = (Arc::clone(&place), self.options.around.clone());
        let mut counted = CountedThread::new(&mut crew, Arc::clone(self));
        crew.active += 1;
        crew.started += 1;
        // The closure owns `counted`. If the start fails, the closure is dropped, and the drop of `counted` takes this
        // lock. So the lock must be released here.
        drop(crew);
        let started = builder.spawn(move || {
            counted.begins();
            let mut work = || {
                let hooks = &counted.scheduler.options.hooks;
                let mut next = at.lock().take();
                hooks::call(hooks.start.as_ref());
                while let Some(local) = next {
                    local.work();
                    next = counted.scheduler.wait_for_slot();
                }
                hooks::call(hooks.stop.as_ref());
            };
            match around {
                Some(around) => around(&mut work),
                None => work(),
            }
            drop(counted);
        });
        match started {
            Ok(_) => Ok(()),
            Err(error) => {
                let mut crew = self.crew.lock();
                crew.active -= 1;
                crew.started -= 1;
                drop(crew);
                let local = place.lock().take().map(Box::new);
                Err((error, local))
            }
        }
    }

    /// Waits for a slot to work in, for at most `SPARE_FOR`. Returns `None` if no slot was assigned in this time, or if
    /// the scheduler stops.
    fn wait_for_slot(&self) -> Option<Local<T>> {
        let mut crew = self.crew.lock();
        crew.spare += 1;
        let mut over = false;
        while crew.calls.is_empty() && !crew.stopping && !over {
            (crew, over) = wait_within(&self.called, crew, SPARE_FOR);
        }
        crew.spare -= 1;
        crew.calls.pop_front()
    }

    /// Hands the tasks of the worker in `slot` over to another thread, because its step is long. If `polls` is given
    /// and differs from the worker's poll count, does nothing. Returns whether a step was handed over. If no other
    /// thread can be employed, the present workers steal the tasks.
    pub(crate) fn hand_over(self: &Arc<Self>, slot: usize, polls: Option<u64>) -> bool {
        let post = &self.posts[slot];
        let mut crew = self.crew.lock();
        // The poll count is compared before `take`, because nothing can undo `take`: the worker reads the state without
        // this lock. Suppose that `take` were undone. If the worker had already seen TAKEN, it would count its return
        // from a hand-over that was never counted. If it had called `rest` meanwhile, the slot would stay BUSY. If the
        // step returns between the comparison and `take`, the next step is handed over instead. This costs a change of
        // threads, but all counts stay correct.
        if polls.is_some_and(|polls| self.metrics.polls(slot) != polls) {
            if planted!("handover_is_undone") && post.take() {
                post.resume();
                post.begin();
            }
            return false;
        }
        if !post.take() {
            return false;
        }
        if !post.is_lent() {
            crew.active -= 1;
            crew.taken += 1;
        }
        drop(crew);
        if !planted!("handover_finds_nobody") {
            self.hire();
        }
        self.notify();
        true
    }

    /// Called when a step that was handed over has returned. Returns false if its worker must leave because there are
    /// enough other workers.
    pub(super) fn comes_back(&self, slot: usize) -> bool {
        let mut crew = self.crew.lock();
        self.posts[slot].resume();
        crew.taken -= 1;
        let room = crew.active < crew.target || planted!("handover_returns_anyway");
        crew.active += usize::from(room);
        // If the scheduler stops, the result is true, because each worker leaves by itself when it sees that the
        // scheduler stops.
        room || crew.stopping
    }

    /// Returns the number of active workers, and the number of workers in long steps that were handed over.
    #[cfg(procession_loom)]
    pub(crate) fn active_and_taken(&self) -> (usize, usize) {
        let crew = self.crew.lock();
        (crew.active, crew.taken)
    }

    /// Returns whether there is a timekeeper.
    #[cfg(procession_loom)]
    pub(crate) fn has_timekeeper(&self) -> bool {
        self.idle.timekeeper().is_some()
    }

    /// Returns whether the worker in this slot is surplus. If the worker is surplus, this call stops counting it as
    /// active.
    pub(super) fn leave_if_surplus(&self, slot: usize) -> bool {
        let mut crew = self.crew.lock();
        // If the step of this worker was handed over just now, the worker is already not counted as active. It learns
        // of the hand-over when the step returns.
        let one_too_many = crew.active > crew.target && !self.posts[slot].is_taken();
        if one_too_many {
            crew.active -= 1;
            // No hand-over of this slot can happen any more.
            self.posts[slot].resume();
        }
        if crew.active <= crew.target {
            self.orders.fetch_and(!TOO_MANY, Ordering::SeqCst);
        }
        one_too_many
    }

    pub(super) fn observe(&self, slot: usize, state: WorkerState, task: Option<u64>) {
        if let Some(observe) = &self.options.observe {
            observe(slot, state, task);
        }
    }

    /// Records the state of the worker in this slot for the traces.
    pub(super) fn trace_worker(&self, slot: usize, state: WorkerState) {
        self.trace(TraceEvent::Worker { slot: slot as u32, state });
    }

    /// Records for the traces that the worker of this thread has stolen tasks.
    pub(super) fn trace_steal(&self, victim: usize) {
        self.trace(TraceEvent::Stolen { victim: victim as u32 });
    }

    fn trace(&self, event: TraceEvent) {
        if self.metrics.recorder().is_on() {
            let now = || Instant::from_ns(self.driver.now().as_nanos() as u64);
            self.metrics.record(Urgency::InTurn, || event, now);
        }
    }

    /// Orders all workers to leave after their current task.
    pub(crate) fn stop(&self) {
        self.orders.fetch_or(STOP, Ordering::SeqCst);
        self.crew.lock().stopping = true;
        self.called.notify_all();
        self.monitor.ring();
        if let Some(poller) = self.poller() {
            poller.stop();
        }
        (0..SLOTS).for_each(|slot| self.idle.wake(slot));
    }

    /// Waits until all threads of the scheduler have exited, except the calling thread. Returns false if the threads
    /// have not exited within the time `within`.
    pub(crate) fn wait_stopped(&self, within: Duration) -> bool {
        let is_counted = |threads: &mut Vec<usize>| threads.contains(&this_thread());
        let here = usize::from(!planted!("thread_waits_for_itself") && self.counted_threads.with(is_counted));
        wait_while(&self.left, self.crew.lock(), within, |crew| crew.threads > here)
    }
}
