//! The threads of the scheduler. This file decides how many threads work, and when threads start and exit. This file
//! also counts the threads that are blocked in long steps.
//!
//! All counts are under one lock, the *lock of the worker threads*. Workers rarely take this lock. Any thread may work
//! in any slot. A replacement thread may have taken over the work of a thread in a long step. When this step returns,
//! the thread of the step leaves the slot and the replacement thread stays. `README.md` in this folder describes the
//! protocol of the hand-over.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::observe::WorkerState;
use crate::observe::trace::{EventKind, TraceEvent};
use crate::platform::clock::Instant;
use crate::platform::poller::Wait;
use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::{Arc, Mutex, MutexGuard, UniqueRc, planted, this_thread, thread, wait_while, wait_within};
use crate::platform::unwind::contain;
use crate::scheduler::{SLOTS, Scheduler, Task, Worker, hooks};

/// Time that a thread without a slot waits for a new slot before the thread exits. Blocking steps often come in groups,
/// so the thread may be needed again soon.
const SPARE_FOR: Duration = Duration::from_millis(500);

/// If the function `start` fails, it waits at most this time for the exit of the threads that it has already started.
/// These threads run no tasks, only their hooks.
const STARTED_FOR: Duration = Duration::from_secs(1);

/// Instructions to all workers, as bits. `STOP` instructs every worker to leave its slot. `TOO_MANY` instructs every
/// worker to check whether there are too many workers.
pub(super) const STOP: usize = 1;
pub(super) const TOO_MANY: usize = 2;

/// Counts and spare slots of the worker threads.
#[derive(Debug)]
pub(super) struct WorkerThreads<T: Task> {
    /// Requested number of workers.
    target: usize,
    /// Number of workers that run or will start to run. A worker whose step was handed over is not included.
    active: usize,
    /// Number of workers whose current step was handed over.
    pub(super) handed_over: usize,
    /// Number of threads of the scheduler, including the threads of the monitor and of the poller.
    threads: usize,
    /// Number of threads that wait for a slot.
    spare: usize,
    /// Slots that were assigned to waiting threads, but that no waiting thread has taken yet.
    calls: VecDeque<UniqueRc<Worker<T>>>,
    /// Number of worker threads that were started so far. This number is part of the name of the next thread.
    started: usize,
    pub(super) monitored: bool,
    /// Whether the helper thread was started. The helper thread waits in the poller.
    has_poll_thread: bool,
    /// True if a thread outside the scheduler has ever waited for a socket. Also true if a step or a guest's own future
    /// has waited for a socket after its hand-over, or has called `block_in_place` while the poller was open.
    is_awaited: bool,
    pub(super) stopping: bool,
}

impl<T: Task> WorkerThreads<T> {
    pub(super) fn new(target: usize) -> Self {
        Self {
            target,
            active: 0,
            handed_over: 0,
            threads: 0,
            spare: 0,
            calls: VecDeque::new(),
            started: 0,
            monitored: false,
            has_poll_thread: false,
            is_awaited: false,
            stopping: false,
        }
    }

    /// Returns the number of workers that run or will start to run, and the requested number of workers.
    pub(super) fn active_and_target(&self) -> (usize, usize) {
        (self.active, self.target)
    }

    /// Returns true if the helper thread must be started, unless a guest waits in the poller. The result is true if the
    /// requested number of workers is 0, the helper thread was not started, and the scheduler is not stopping.
    fn needs_poll_thread(&self) -> bool {
        self.target == 0 && !self.has_poll_thread && !self.stopping
    }
}

/// Guard that counts one thread of the scheduler until this thread exits. If the thread panics, the guard is dropped
/// too.
pub(super) struct CountedThread<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    /// Number of the counted thread. The value is `None` until the counted thread begins to run.
    thread: Option<usize>,
}

impl<T: Task> CountedThread<T> {
    pub(super) fn new(worker_threads: &mut WorkerThreads<T>, scheduler: Arc<Scheduler<T>>) -> Self {
        worker_threads.threads += 1;
        Self { scheduler, thread: None }
    }

    /// Registers the calling thread as the counted thread. The thread must call this function before the thread runs
    /// user code. User code, for example a waker or a hook, may drop the last handle of the runtime on this thread. The
    /// drop then waits for the exit of all other counted threads, but not for the calling thread.
    pub(super) fn begins(&mut self) {
        let thread = this_thread();
        self.thread = Some(thread);
        self.scheduler.counted_threads.with(|threads| threads.push(thread));
    }
}

impl<T: Task> Drop for CountedThread<T> {
    fn drop(&mut self) {
        // If the counted thread could not be started, the number is `None`. In this case, the thread that called
        // `spawn` drops this guard.
        if let Some(exited) = self.thread {
            self.scheduler.counted_threads.with(|threads| threads.retain(|thread| *thread != exited));
        }
        self.scheduler.worker_threads.lock().threads -= 1;
        self.scheduler.left.notify_all();
    }
}

impl<T: Task> Scheduler<T> {
    /// Starts the worker threads.
    ///
    /// # Errors
    /// Returns the error of the system if a thread cannot be started. In this case, this function stops the other
    /// threads and waits up to one second for their exit. A thread may run longer than this time, because its hooks are
    /// user code.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        for _ in 0..self.options.workers {
            let Some(worker) = self.occupy(false) else { unreachable!("there are at least as many slots as workers") };
            if let Err((error, worker)) = self.employ(self.worker_threads.lock(), worker) {
                drop(worker);
                self.stop();
                self.wait_stopped(STARTED_FOR);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the requested number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.worker_threads.lock().target
    }

    /// Sets the requested number of workers. The maximum is the number of slots. Surplus workers leave after their
    /// current task.
    pub(crate) fn set_workers(self: &Arc<Self>, count: usize) {
        let mut worker_threads = self.worker_threads.lock();
        worker_threads.target = count.min(SLOTS);
        let too_many = worker_threads.active > worker_threads.target;
        if worker_threads.target != 0 && self.options.long_step.is_some() {
            self.monitor.enable();
        }
        drop(worker_threads);
        if too_many {
            self.orders.fetch_or(TOO_MANY, Ordering::SeqCst);
            (0..SLOTS).for_each(|slot| self.idle.wake(slot));
        }
        while self.hire() {}
        if self.poller().is_some() {
            let worker_threads = self.worker_threads.lock();
            let is_awaited = worker_threads.is_awaited;
            if worker_threads.needs_poll_thread() && (is_awaited || self.idle.timekeeper().is_none()) {
                drop(worker_threads);
                // If the helper thread cannot be started, the guests check the poller themselves.
                let _ = self.start_poll_thread();
            }
        }
        self.notify();
    }

    /// Returns true if the runtime has no workers, the poller is open, and no thread uses the poller. A thread also
    /// counts as a user of the poller if it is about to wait in the poller.
    pub(super) fn poller_has_no_thread(&self) -> bool {
        self.poller().is_some() && self.idle.timekeeper().is_none() && self.worker_threads.lock().needs_poll_thread()
    }

    /// Returns whether the helper thread waits in the poller.
    pub(super) fn has_poll_thread(&self) -> bool {
        self.worker_threads.lock().has_poll_thread
    }

    /// Returns true if two conditions hold: only awake workers check the poller, and the monitor would notice a long
    /// step of these workers too late.
    pub(super) fn poller_lacks_monitor(&self) -> bool {
        let is_left_to_workers = || {
            let worker_threads = self.worker_threads.lock();
            worker_threads.target != 0 && !worker_threads.has_poll_thread
        };
        self.poller().is_some() && !self.monitor.is_fast() && self.idle.timekeeper().is_none() && is_left_to_workers()
    }

    /// Ensures that a thread waits in the poller. Called before a thread outside the scheduler waits for a socket.
    ///
    /// A guest in `block_on` may be the timekeeper and wait in the poller. However, this guest may leave while the
    /// calling thread still waits for the socket. Therefore, if there are no workers, the helper thread is needed even
    /// if there is a timekeeper. The helper thread is also needed if all workers are blocked.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started.
    #[cfg(any(feature = "net", procession_loom))]
    pub(crate) fn ensure_poll_thread(self: &Arc<Self>) -> io::Result<()> {
        self.ensure_poll_thread_if(|worker_threads| worker_threads.active == 0)
    }

    /// Ensures that a thread waits in the poller while the calling thread is blocked in a step that was handed over.
    /// Does nothing if the poller is not open. The helper thread is needed in two cases: there are no workers, or all
    /// workers are blocked and have no replacement threads.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started.
    pub(crate) fn ensure_poll_thread_beside_blocked_step(self: &Arc<Self>) -> io::Result<()> {
        if self.poller().is_none() {
            return Ok(());
        }
        self.ensure_poll_thread_if(|worker_threads| worker_threads.active == 0)
    }

    /// Starts the helper thread if a thread has waited for a socket before, and all workers are blocked now. After the
    /// monitor has handed over a step, the monitor calls this function.
    #[cfg(any(feature = "net", procession_loom))]
    pub(super) fn ensure_poll_thread_after_hand_over(self: &Arc<Self>) {
        let worker_threads = self.worker_threads.lock();
        let is_needed = worker_threads.is_awaited && worker_threads.active == 0;
        drop(worker_threads);
        if is_needed && self.poller().is_some() {
            // Without the helper thread, a worker checks the sockets again only when a step returns.
            let _ = self.start_poll_thread();
        }
    }

    /// Starts the helper thread if there are no workers, or if `is_needed` returns true. Also records that a thread
    /// waits for a socket.
    fn ensure_poll_thread_if(self: &Arc<Self>, is_needed: impl FnOnce(&WorkerThreads<T>) -> bool) -> io::Result<()> {
        let mut worker_threads = self.worker_threads.lock();
        // The function `set_workers` changes the requested number of workers under this lock, and later reads the flag
        // `is_awaited`. Therefore either this function sees the new number, or `set_workers` sees the flag.
        worker_threads.is_awaited = !planted!("outside_wait_is_not_noted");
        let is_left_to_guest = planted!("guest_polls_for_outside") && self.idle.timekeeper().is_some();
        let is_needed = worker_threads.needs_poll_thread() || is_needed(&worker_threads);
        drop(worker_threads);
        // The function `start_poll_thread` does nothing if the helper thread already runs, or if the scheduler is
        // stopping.
        if is_needed && !is_left_to_guest { self.start_poll_thread() } else { Ok(()) }
    }

    /// Starts the helper thread. The helper thread waits in the poller until the scheduler stops. A scheduler without
    /// workers needs the helper thread, because a polled guest cannot wait in the poller. The executor of the guest
    /// parks the thread of the guest.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started.
    pub(crate) fn start_poll_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut worker_threads = self.worker_threads.lock();
        if worker_threads.has_poll_thread || worker_threads.stopping {
            return Ok(());
        }
        worker_threads.has_poll_thread = true;
        let mut counted = CountedThread::new(&mut worker_threads, Arc::clone(self));
        drop(worker_threads);
        let scheduler = Arc::clone(self);
        let name = format!("{}-poller", self.options.name);
        let started = thread::Builder::new().name(name).spawn(move || {
            counted.begins();
            scheduler.poll_until_stop();
            drop(counted);
        });
        if let Err(error) = started {
            self.worker_threads.lock().has_poll_thread = false;
            return Err(error);
        }
        Ok(())
    }

    /// Main function of the helper thread, which waits in the poller.
    fn poll_until_stop(&self) {
        let Some(poller) = self.poller() else { return };
        let mut ready = Vec::new();
        // If the system returns an error, the poller is unusable, and the helper thread exits.
        while !self.is_stopping() && poller.poll(Wait::Alone, &mut ready) {
            // A waker is user code. If a waker panics, the helper thread must continue. If a waker blocks, the
            // timekeeper must wait in the poller during this time. The timekeeper sleeps outside the poller, because
            // the helper thread was in the poller. Therefore this thread wakes the timekeeper before it calls the first
            // waker.
            contain(|| self.driver.wake_all(&mut ready, &|| self.wake_timekeeper()));
            contain(|| ready.clear());
        }
    }

    /// Adds the workers that could not be added while all slots were occupied. A guest calls this function after it has
    /// left its slot.
    pub(super) fn hire_after_guest_left(self: &Arc<Self>) {
        if self.lacks_slot.load(Ordering::SeqCst) {
            self.lacks_slot.store(false, Ordering::SeqCst);
            while self.hire() {}
        }
    }

    /// Adds one active worker if there are too few active workers. Returns false if there are enough active workers, or
    /// if no worker can be added.
    pub(super) fn hire(self: &Arc<Self>) -> bool {
        let lacks = |worker_threads: &WorkerThreads<T>| {
            // The bound `substitutes` limits the number of replacement threads. Otherwise a thousand blocking steps
            // would start a thousand threads. The bound may be `usize::MAX`.
            worker_threads.active < worker_threads.target
                && worker_threads.active + worker_threads.handed_over
                    < worker_threads.target.saturating_add(self.options.substitutes)
                && !worker_threads.stopping
        };
        if !lacks(&self.worker_threads.lock()) {
            return false;
        }
        let vacant = self.occupy(false).or_else(|| {
            // A guest first makes its slot vacant, and then reads this flag. Therefore, either the second call of
            // `occupy` finds the slot of this guest, or the guest sees the flag.
            self.lacks_slot.store(true, Ordering::SeqCst);
            self.occupy(false)
        });
        let Some(worker) = vacant else { return false };
        let worker_threads = self.worker_threads.lock();
        let spare = if lacks(&worker_threads) {
            match self.employ(worker_threads, worker) {
                Ok(()) => return true,
                Err((_, worker)) => worker,
            }
        } else {
            drop(worker_threads);
            Some(worker)
        };
        // The function `leave` may call the waker of a guest that waits for a slot, and a waker is user code. Therefore
        // the lock was released before this call.
        spare.into_iter().for_each(|worker| worker.into_inner().leave());
        false
    }

    /// Assigns this slot to a thread. If a thread without a slot waits, this thread gets the slot. Otherwise a new
    /// thread is started.
    fn employ(
        self: &Arc<Self>,
        mut worker_threads: MutexGuard<'_, WorkerThreads<T>>,
        worker: UniqueRc<Worker<T>>,
    ) -> Result<(), (io::Error, Option<UniqueRc<Worker<T>>>)> {
        if worker_threads.spare > worker_threads.calls.len() {
            worker_threads.calls.push_back(worker);
            worker_threads.active += 1;
            self.called.notify_one();
            return Ok(());
        }
        let mut builder = thread::Builder::new().name(format!("{}-{}", self.options.name, worker_threads.started));
        if let Some(size) = self.options.stack_size {
            builder = builder.stack_size(size);
        }
        let place = Arc::new(Mutex::new(Some(worker)));
        let (at, around) = (Arc::clone(&place), self.options.around.clone());
        let mut counted = CountedThread::new(&mut worker_threads, Arc::clone(self));
        worker_threads.active += 1;
        worker_threads.started += 1;
        // The closure owns `counted`. If the thread cannot be started, the closure is dropped with `counted`, and the
        // destructor of `counted` takes the lock of the worker threads. Therefore the lock must be released here.
        drop(worker_threads);
        let started = builder.spawn(move || {
            counted.begins();
            let mut work = || {
                let hooks = &counted.scheduler.options.hooks;
                let mut next = at.lock().take();
                hooks::call(hooks.start.as_ref());
                while let Some(worker) = next {
                    Worker::work(worker);
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
                let mut worker_threads = self.worker_threads.lock();
                worker_threads.active -= 1;
                worker_threads.started -= 1;
                drop(worker_threads);
                let worker = place.lock().take();
                Err((error, worker))
            }
        }
    }

    /// Waits at most the time `SPARE_FOR` until a slot is assigned to this thread. Returns `None` if no slot was
    /// assigned in this time, or if the scheduler stops.
    fn wait_for_slot(&self) -> Option<UniqueRc<Worker<T>>> {
        let mut worker_threads = self.worker_threads.lock();
        worker_threads.spare += 1;
        let mut over = false;
        while worker_threads.calls.is_empty() && !worker_threads.stopping && !over {
            (worker_threads, over) = wait_within(&self.called, worker_threads, SPARE_FOR);
        }
        worker_threads.spare -= 1;
        worker_threads.calls.pop_front()
    }

    /// Hands the tasks of the worker in `slot` over to other threads, because the current step of the worker is long or
    /// will block. Returns whether the step was handed over. If `step` is given and differs from the
    /// [number](Self::step_number) of the worker's step, this function does nothing. If no replacement thread can be
    /// started, the other workers steal the tasks.
    pub(crate) fn hand_over(self: &Arc<Self>, slot: usize, step: Option<u64>) -> bool {
        let is_handed_over = self.replace(slot, step);
        if is_handed_over {
            self.notify();
        }
        is_handed_over
    }

    /// The part of [`hand_over`](Self::hand_over) without the wake-up of another worker. This function calls no waker
    /// of another executor.
    pub(super) fn replace(self: &Arc<Self>, slot: usize, step: Option<u64>) -> bool {
        let worker_slot = &self.worker_slots[slot];
        let mut worker_threads = self.worker_threads.lock();
        // This thread compares the step's number before it calls `mark_handed_over`, because this thread cannot undo
        // this call: the worker reads the state without this lock. Suppose that this thread undid `mark_handed_over`.
        // If the worker had already seen HANDED_OVER, the worker would end a hand-over that was never counted. If the
        // worker had called `rest` in the meantime, the slot would stay BUSY although the worker runs no task. The step
        // may return between the comparison and `mark_handed_over`. In this case, this thread hands over the next step
        // of the worker instead. This error causes an unnecessary change of threads, but all counts stay correct.
        if step.is_some_and(|step| self.step_number(slot) != step) {
            if planted!("handover_is_undone") && worker_slot.mark_handed_over() {
                worker_slot.resume();
                worker_slot.begin();
            }
            return false;
        }
        // If the step was already handed over, the step has been blocked since the earlier hand-over.
        if step.is_none() && !worker_slot.is_handed_over() {
            worker_slot.set_blocked_since(self.driver.now(), false);
        }
        if !worker_slot.mark_handed_over() {
            return false;
        }
        self.unattended.set_handed_over(slot, true);
        if !worker_slot.has_guest() {
            worker_threads.active -= 1;
            worker_threads.handed_over += 1;
        }
        drop(worker_threads);
        if !planted!("handover_starts_no_worker") {
            self.hire();
        }
        true
    }

    /// Ends the hand-over of a guest after the step of the guest has returned.
    pub(super) fn end_guest_hand_over(&self, slot: usize) {
        let _worker_threads = self.worker_threads.lock();
        self.worker_slots[slot].resume();
        self.unattended.set_handed_over(slot, false);
    }

    /// Ends a hand-over after the step has returned. Returns false if the worker must leave its slot because there are
    /// enough other workers.
    pub(super) fn end_hand_over(&self, slot: usize) -> bool {
        let mut worker_threads = self.worker_threads.lock();
        self.worker_slots[slot].resume();
        self.unattended.set_handed_over(slot, false);
        worker_threads.handed_over -= 1;
        let room = worker_threads.active < worker_threads.target || planted!("handover_returns_anyway");
        worker_threads.active += usize::from(room);
        // If the scheduler is stopping, the result is true. The worker then continues, sees that the scheduler is
        // stopping, and leaves its slot.
        room || worker_threads.stopping
    }

    /// Returns the number of active workers, and the number of workers in long steps that were handed over.
    #[cfg(procession_loom)]
    pub(crate) fn active_and_handed_over(&self) -> (usize, usize) {
        let worker_threads = self.worker_threads.lock();
        (worker_threads.active, worker_threads.handed_over)
    }

    /// Returns whether there is a timekeeper.
    #[cfg(procession_loom)]
    pub(crate) fn has_timekeeper(&self) -> bool {
        self.idle.timekeeper().is_some()
    }

    /// Returns whether the worker in this slot is surplus and must leave. A surplus worker does not count as active
    /// after this call.
    pub(super) fn leave_if_surplus(&self, slot: usize) -> bool {
        let mut worker_threads = self.worker_threads.lock();
        // If the last step of this worker was handed over before this thread took the lock, the worker does not count
        // as active any more. In this case this function must not decrement the number of active workers again.
        let one_too_many = worker_threads.active > worker_threads.target && !self.worker_slots[slot].is_handed_over();
        if one_too_many {
            worker_threads.active -= 1;
            // After this line, no other thread can hand over this slot, because the state of the slot is FREE.
            self.worker_slots[slot].resume();
        }
        if worker_threads.active <= worker_threads.target {
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

    /// Writes an event to the traces. The event says that the worker on this thread has stolen tasks from the slot
    /// `victim`.
    pub(super) fn trace_steal(&self, victim: usize) {
        self.trace(TraceEvent::Stolen { victim: victim as u32 });
    }

    fn trace(&self, event: TraceEvent) {
        if self.metrics.recorder().is_on() {
            let now = || Instant::from_ns(self.driver.now().as_nanos() as u64);
            self.metrics.record(EventKind::InTurn, || event, now);
        }
    }

    /// Stops the scheduler: all workers leave their slots after their current task, and all threads of the scheduler
    /// exit. Does not wait for the threads.
    pub(crate) fn stop(&self) {
        self.orders.fetch_or(STOP, Ordering::SeqCst);
        self.worker_threads.lock().stopping = true;
        self.called.notify_all();
        self.monitor.ring();
        if let Some(poller) = self.poller() {
            poller.stop();
        }
        (0..SLOTS).for_each(|slot| self.idle.wake(slot));
    }

    /// Waits until all threads of the scheduler have exited. If the calling thread is one of these threads, waits only
    /// for the other threads. Returns false if the threads have not exited within the time `within`.
    pub(crate) fn wait_stopped(&self, within: Duration) -> bool {
        let is_counted = |threads: &mut Vec<usize>| threads.contains(&this_thread());
        let here = usize::from(!planted!("stop_waits_for_own_thread") && self.counted_threads.with(is_counted));
        wait_while(&self.left, self.worker_threads.lock(), within, |worker_threads| worker_threads.threads > here)
    }
}
