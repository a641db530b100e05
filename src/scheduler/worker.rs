//! Worker of the scheduler. A worker looks for tasks in a fixed order, runs the tasks, and parks when there are no
//! tasks.
//!
//! The file `worker/push.rs` queues tasks. The file `worker/search.rs` steals tasks. The file `queue.rs` owns the local
//! queues of the worker. The file `idle.rs` owns the state of parked and searching workers. `README.md` in this folder
//! explains why no wake-up is lost.

mod push;
mod rounds;
mod search;

use std::cell::{Cell, RefCell};
use std::collections::vec_deque::Drain;
use std::ops::Deref;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crate::observe::{Counter, OwnCounters, SlotGuard, WorkerState};
use crate::platform::poller::{Poller, Wait};
use crate::platform::preempt;
use crate::platform::random::Rng;
use crate::platform::sync::{Arc, CachePadded, NeverDropped, UniqueRc, planted, thread};
use crate::platform::unwind::contain;
use crate::scheduler::hooks::Hook;
use crate::scheduler::idle::Woken;
use crate::scheduler::queue::Queues;
use crate::scheduler::slot::{OWN_FUTURE, WorkerSlot};
use crate::scheduler::threads::TOO_MANY;
use crate::scheduler::worker::rounds::Rounds;
use crate::scheduler::{Scheduler, Task};

/// Every 61st time that a worker looks for a task, the worker first checks the timers, the sockets, the global queue
/// and the unattended slots. Otherwise a worker with many local tasks would never check these four sources.
const GLOBAL_EVERY: u32 = 61;
/// With LIFO order, a worker takes the oldest local task every 16th time that it looks for a task.
const OLDEST_EVERY: u32 = 16;
/// A worker numbers its attempts to find a task. If the number has this remainder modulo `OLDEST_EVERY`, the worker
/// takes the oldest local task. At an attempt with this remainder, the worker checks its local queues before the
/// priority queues: see `priority.rs`.
const OLDEST_AT: u32 = 8;

/// State of one worker. A thread acts as this worker after a call of [`act`](Self::act). While the thread acts as this
/// worker, the tasks that the thread wakes enter the local queues of this worker.
pub(crate) struct Worker<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    /// Address of the scheduler. A wake-up compares this address with the address of the woken task's scheduler.
    scheduler_address: usize,
    slot: usize,
    /// The counters of the slot.
    counters: OwnCounters,
    worker_slot: Arc<CachePadded<WorkerSlot>>,
    queues: Queues<T>,
    searching: Cell<bool>,
    /// Becomes true when a push wakes the worker. Becomes false when the worker ends its search, for example because it
    /// has found a task, or when the worker announces that it will park. A polled guest does not use this field: if a
    /// push wakes a polled guest, the guest does not begin a search.
    woken: Cell<bool>,
    /// Number of rounds in the next search.
    rounds: Rounds,
    /// True if the worker must still check for a missing timekeeper. This field becomes true when this worker wakes up
    /// and was the timekeeper. The field also becomes true when this worker ends its search because it must call wakers
    /// or a hook, if no other worker searches and the monitor is fast.
    kept_time: Cell<bool>,
    /// Whether the worker runs tasks only while an executor polls the worker. The executor may never poll the worker
    /// again.
    polled: Cell<bool>,
    /// Whether this worker has marked its slot as unattended: see `unattended.rs`.
    unattended: Cell<bool>,
    /// Buffer for the wakers that the poller returns. The worker reuses the memory of this vector.
    ready: Cell<Vec<Waker>>,
    shuffles: bool,
    rng: RefCell<Rng>,
    state: Cell<WorkerState>,
    /// The outer workers of this thread, outermost worker first. The thread acted as these workers before, and will act
    /// as these workers again later. Each entry contains a scheduler and a slot.
    outer: RefCell<Vec<(Arc<Scheduler<T>>, usize)>>,
}

/// The roles of a thread.
pub(crate) type Here<T> = NeverDropped<RefCell<Roles<T>>>;

/// The present roles of a thread in the schedulers of the task type `T`.
pub(crate) struct Roles<T: Task> {
    /// The thread acts as this worker.
    worker: Option<Rc<Worker<T>>>,
    /// The thread polls the own future of a guest that has no slot yet. The guest belongs to this scheduler. A thread
    /// that begins to act as a worker loses this role until it stops acting as the worker.
    #[cfg(feature = "net")]
    slotless: Option<Arc<Scheduler<T>>>,
}

impl<T: Task> Roles<T> {
    pub(crate) const NONE: Self = Self {
        worker: None,
        #[cfg(feature = "net")]
        slotless: None,
    };

    #[inline]
    pub(super) fn worker(&self) -> Option<&Rc<Worker<T>>> {
        self.worker.as_ref()
    }

    /// Returns the scheduler of the guest without a slot, or of the worker.
    #[cfg(feature = "net")]
    pub(super) fn scheduler(&self) -> Option<&Arc<Scheduler<T>>> {
        self.slotless.as_ref().or(self.worker.as_ref().map(|worker| &worker.scheduler))
    }
}

/// Guard of a thread that acts as a worker. When the guard is dropped, the thread acts as its previous worker again. If
/// the thread had no previous worker, the thread does not act as a worker any more.
#[must_use]
pub(super) struct WorkerGuard<T: Task> {
    worker: Rc<Worker<T>>,
    outer: Roles<T>,
    _counting: SlotGuard,
    _preempt_guard: preempt::PreemptGuard,
}

impl<T: Task> Deref for WorkerGuard<T> {
    type Target = Worker<T>;

    fn deref(&self) -> &Worker<T> {
        &self.worker
    }
}

impl<T: Task> WorkerGuard<T> {
    /// Ends the role of this thread as the worker. Returns the worker, so that another thread can act as this worker.
    pub(super) fn stop_acting(self) -> UniqueRc<Worker<T>> {
        let worker = Rc::clone(&self.worker);
        drop(self);
        UniqueRc::claim(worker).expect("only this thread acts as the worker")
    }
}

impl<T: Task> Drop for WorkerGuard<T> {
    fn drop(&mut self) {
        let outer = std::mem::replace(&mut self.outer, Roles::NONE);
        let own = T::current().with(|here| here.replace(outer));
        drop((own, self.worker.outer.take()));
    }
}

impl<T: Task> std::fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("slot", &self.slot).field("searching", &self.searching).finish_non_exhaustive()
    }
}

/// After each use, a worker shrinks the capacity of its list of ready sockets to this number of wakers, if the capacity
/// is larger.
const READY_KEPT: usize = 1_024;

impl<T: Task> Worker<T> {
    pub(super) fn new(scheduler: Arc<Scheduler<T>>, slot: usize, queues: Queues<T>) -> UniqueRc<Self> {
        // The seed contains the number of times that workers of this slot have looked for a task. So each worker of
        // this slot gets a different random sequence.
        let slot_seed = (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(queues.looks()) << 32;
        let rng = Rng::seeded(scheduler.options.seed ^ slot_seed);
        let scheduler_address = Arc::as_ptr(&scheduler) as usize;
        UniqueRc::new(Self {
            worker_slot: Arc::clone(&scheduler.worker_slots[slot]),
            scheduler_address,
            slot,
            counters: scheduler.metrics.counters_of(slot),
            queues,
            searching: Cell::new(false),
            woken: Cell::new(false),
            rounds: Rounds::new(),
            kept_time: Cell::new(false),
            polled: Cell::new(false),
            unattended: Cell::new(false),
            ready: Cell::default(),
            shuffles: scheduler.options.shuffle,
            rng: RefCell::new(rng),
            state: Cell::new(WorkerState::Parked),
            outer: RefCell::default(),
            scheduler,
        })
    }

    /// Makes this thread act as the worker until the returned guard is dropped.
    pub(super) fn act(worker: UniqueRc<Self>) -> WorkerGuard<T> {
        let _counting = worker.scheduler.metrics.enter(worker.slot);
        let _preempt_guard = worker.worker_slot.preempt_word().assign_to_thread();
        let worker = worker.share();
        let mut own = Roles::NONE;
        own.worker = Some(Rc::clone(&worker));
        let outer = T::current().with(|here| here.replace(own));
        if let Some(outer) = outer.worker() {
            let mut all = outer.outer.borrow().clone();
            all.push((Arc::clone(&outer.scheduler), outer.slot));
            worker.outer.replace(all);
        }
        WorkerGuard { worker, outer, _counting, _preempt_guard }
    }

    /// Returns the current worker of this thread.
    #[inline]
    pub(super) fn here() -> Option<Rc<Self>> {
        T::current().with(|here| here.borrow().worker().cloned())
    }

    /// Runs `f`. During this call, the thread does not act as a worker. Therefore the tasks that `f` wakes enter a
    /// shared queue. The woken tasks must not enter the local queues, because a long time may pass until this worker
    /// checks its local queues.
    fn without_worker<R>(f: impl FnOnce() -> R) -> R {
        struct Back<T: Task>(Roles<T>);
        impl<T: Task> Drop for Back<T> {
            fn drop(&mut self) {
                let roles = std::mem::replace(&mut self.0, Roles::NONE);
                T::current().with(|here| here.replace(roles));
            }
        }
        let _back = Back(T::current().with(|here| here.replace(Roles::NONE)));
        f()
    }

    /// Runs `f`, which polls the own future of a guest of this scheduler. The guest has no slot yet. If `f` creates a
    /// socket, the socket belongs to this scheduler.
    ///
    /// If the thread acts as a worker, it still does so during `f`. For example, `f` may call `block_in_place`, which
    /// hands over this worker.
    #[cfg(feature = "net")]
    pub(super) fn without_slot<R>(scheduler: &Arc<Scheduler<T>>, f: impl FnOnce() -> R) -> R {
        struct Back<T: Task>(Option<Arc<Scheduler<T>>>);
        impl<T: Task> Drop for Back<T> {
            fn drop(&mut self) {
                let own = T::current().with(|here| std::mem::replace(&mut here.borrow_mut().slotless, self.0.take()));
                drop(own);
            }
        }
        let own = Arc::<Scheduler<T>>::clone(scheduler);
        let _back = Back(T::current().with(|here| here.borrow_mut().slotless.replace(own)));
        f()
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns whether the current step of this worker was handed over.
    #[cfg(feature = "net")]
    pub(super) fn is_handed_over(&self) -> bool {
        self.worker_slot.is_handed_over()
    }

    #[inline]
    pub(super) fn is_of(&self, address: usize) -> bool {
        self.scheduler_address == address
    }

    /// Wakes another worker if a local queue or the global queue contains a task. This check includes the `next` slot.
    /// Called before this thread waits.
    fn share(&self) {
        if !self.queues.is_empty() || self.scheduler.global.len() != 0 {
            self.scheduler.notify();
        }
    }

    /// Hands over the tasks of this thread's worker to other threads. If a step on this thread waits in `block_on`,
    /// this thread also acts as an outer worker. This function hands over the tasks of the outer worker too. Called
    /// before this thread blocks. Does nothing if this thread does not act as a worker.
    pub(crate) fn hand_over_here() {
        let Some(worker) = Self::here() else { return };
        let outer = worker.outer.borrow().clone();
        for (scheduler, slot) in outer.into_iter().chain([(Arc::clone(&worker.scheduler), worker.slot)]) {
            // A guest's own future is not a step. Therefore a hand-over during a poll of this future is not reported.
            if scheduler.hand_over(slot, None) && scheduler.worker_slots[slot].label() != OWN_FUTURE {
                scheduler.observe(slot, WorkerState::Blocked, None);
                scheduler.trace_worker(slot, WorkerState::Blocked);
            }
            // The blocking code may wait for a socket. If the helper thread cannot be started now, the operation of
            // this socket tries to start the helper thread again, and returns the error of this second attempt.
            let _ = scheduler.ensure_poll_thread_beside_blocked_step();
        }
    }

    /// Calls [`share`](Self::share) on the current worker of this thread, if there is one. This worker may belong to
    /// any scheduler.
    pub(super) fn share_here() {
        if let Some(worker) = Self::here() {
            worker.share();
        }
    }

    /// Takes a task without a search. The code of this function defines the order in which a worker looks for tasks.
    #[inline]
    fn look(&self) -> Option<T> {
        let looks = self.queues.count_look();
        if looks.is_multiple_of(GLOBAL_EVERY) {
            // At every 61st attempt, the timers, the sockets, the global queue and the unattended slots come first,
            // even if local tasks wait.
            self.fire_due_timers();
            self.poll_sockets();
            let task = if looks.is_multiple_of(2) {
                self.take_unattended().or_else(|| self.take_global())
            } else {
                self.take_global().or_else(|| self.take_unattended())
            };
            if task.is_some() {
                return task;
            }
        }
        // At fixed values of `looks`, a task of high or low priority comes first.
        if !self.scheduler.priorities.is_empty()
            && let Some(task) = self.scheduler.priorities.first(looks)
        {
            return Some(task);
        }
        if self.queues.is_lifo()
            && looks % OLDEST_EVERY == OLDEST_AT
            && let Some(task) = self.queues.pop_oldest()
        {
            return Some(task);
        }
        if let Some(task) = self.queues.next() {
            return Some(task);
        }
        self.look_further()
    }

    #[inline(never)]
    fn look_further(&self) -> Option<T> {
        // The global queue contains tasks that other threads pushed, and tasks that overflowed a local queue.
        if let Some(task) = self.take_global() {
            return Some(task);
        }
        // This call fires the due timers. The tasks that the timers wake enter the queues of this worker.
        self.fire_due_timers();
        if self.polled.get() {
            // A polled guest never waits in the poller. Therefore a polled guest checks the poller each time that it
            // finds its local queues and the global queue empty.
            self.poll_sockets();
        }
        self.queues.next().or_else(|| self.take_ranked())
    }

    /// Asks the poller for ready sockets, without blocking. Queues the waiting tasks of these sockets on this worker.
    /// Does nothing if another thread uses the poller.
    pub(super) fn poll_sockets(&self) {
        if let Some(poller) = self.scheduler.poller() {
            let mut ready = self.ready.take();
            poller.poll(Wait::No, &mut ready);
            self.queue_ready(ready);
        }
    }

    /// Wakes the tasks whose sockets are ready, in the order of `ready`. These tasks enter the queues of this worker.
    pub(super) fn queue_ready(&self, mut ready: Vec<Waker>) {
        if !ready.is_empty() {
            self.call_wakers(|begin| self.scheduler.driver.wake_all(&mut ready, begin));
            contain(|| ready.clear());
            ready.shrink_to(READY_KEPT);
        }
        self.ready.set(ready);
    }

    fn take_ranked(&self) -> Option<T> {
        if self.scheduler.priorities.is_empty() { None } else { self.scheduler.priorities.last() }
    }

    fn take_global(&self) -> Option<T> {
        let refill = |more: Drain<'_, T>| self.queues.refill(more);
        self.scheduler.global.take(self.scheduler.present(), T::lead, refill)
    }

    /// Fires due timers. The tasks that the timers wake enter the queues of this worker.
    fn fire_due_timers(&self) {
        if self.scheduler.driver.wait().is_some_and(|wait| wait.is_zero()) {
            self.call_wakers(|begin| _ = self.scheduler.driver.fire_due(begin));
        }
    }

    /// Fires the timers that are due at the time `now`, as `fire_due_timers` does. A guest calls this function when the
    /// guest has read the clock between two tasks.
    #[inline]
    pub(super) fn fire_due(&self, now: Duration) {
        if self.scheduler.driver.is_due(now) {
            self.call_wakers(|begin| _ = self.scheduler.driver.fire_due(begin));
        }
    }

    /// Calls `wake`, which calls wakers. A waker is user code: it may panic, and it may block. The argument of `wake`
    /// is a function. Before `wake` calls the first waker, `wake` calls this function. From this call on, this worker
    /// counts as running until it enters another state.
    fn call_wakers(&self, wake: impl FnOnce(&dyn Fn())) {
        contain(|| wake(&|| self.begin_user_code()));
    }

    /// Prepares this worker for calls of wakers or of a hook, which may block. If the call of a waker or of a hook
    /// blocks, the monitor must hand over the tasks of this worker. While a worker searches, a push wakes no other
    /// worker. Therefore the search of this worker ends. If this worker was the timekeeper, it may have to wake another
    /// worker, which becomes the timekeeper. Most batches of wakers take less time than the wake-up of another worker.
    /// Therefore, if the monitor is [fast](super::monitor::Monitor::is_fast), this worker relies on the monitor during
    /// the calls.
    #[cold]
    fn begin_user_code(&self) {
        let scheduler = &self.scheduler;
        // The label is set before the state, as in `run`.
        self.worker_slot.begins_user_code();
        self.enter(WorkerState::Running);
        let searched = self.searching.take();
        if searched {
            self.woken.set(false);
        }
        let ends_search = searched && scheduler.idle.stop_searching();
        let must_check = self.kept_time.take() || ends_search;
        // If the monitor is fast, `has_found` makes this check when this worker finds a task.
        let may_wait = scheduler.monitor.is_fast();
        self.kept_time.set(must_check && may_wait);
        let lacks_timekeeper = || must_check && !may_wait && scheduler.needs_timekeeper();
        if ends_search && scheduler.has_tasks() || lacks_timekeeper() {
            scheduler.notify();
        }
    }

    /// Returns the next task. The task comes from a local queue, from a shared queue, or from a search of at most
    /// `rounds` rounds.
    #[inline]
    pub(super) fn find(&self, rounds: u32) -> Option<T> {
        let task = self.look().or_else(|| self.search(rounds))?;
        if self.searching.get() || self.kept_time.get() {
            self.has_found();
        }
        Some(task)
    }

    /// Ends the search of this worker and wakes other workers if this is necessary. Called when this worker has found a
    /// task, and was searching or was the timekeeper before. A guest also calls this function before it polls its own
    /// future.
    #[cold]
    fn has_found(&self) {
        self.woken.set(false);
        let lacks_timekeeper = || self.scheduler.needs_timekeeper() && !planted!("idle_finder_wakes_no_timekeeper");
        if self.searching.take() && self.scheduler.idle.stop_searching() {
            // No other worker searches now. During the search of this worker, no push woke a worker. Therefore this
            // worker checks now whether there are more tasks. A thread that pushes a task after this point itself wakes
            // a worker. During the search of this worker, a previous timekeeper could not wake a worker either.
            // Therefore this worker also checks whether a timekeeper is needed.
            let is_needed = self.scheduler.has_work() || lacks_timekeeper();
            if is_needed && !planted!("idle_last_searcher_does_not_notify") {
                self.scheduler.notify();
            }
        }
        if self.kept_time.take() && lacks_timekeeper() {
            // This worker may run a long task and not check the timers for a long time. Therefore this worker wakes
            // another worker, which becomes the timekeeper.
            self.scheduler.notify();
        }
    }

    /// Runs a task. If the task needs another turn, queues the task again. The task itself catches the panics of its
    /// process. This function catches all other panics, so that the worker continues.
    #[inline]
    pub(super) fn run(&self, task: T) {
        let (label, begun) = task.begin();
        // The label is set before the state, because the monitor reads the label of a worker that runs.
        self.worker_slot.set_label(label);
        self.enter(WorkerState::Running);
        self.counters.add(Counter::Polls, 1);
        let mut again = None;
        contain(|| again = task.run(begun));
        if let Some((task, rank)) = again
            && self.push_again(task, rank)
        {
            self.notify_other();
        }
    }

    #[inline]
    pub(super) fn enter(&self, state: WorkerState) {
        if self.state.get() != state {
            self.change(state);
        }
    }

    #[cold]
    fn change(&self, state: WorkerState) {
        let former = self.state.replace(state);
        if state == WorkerState::Running {
            self.worker_slot.begin();
            if self.scheduler.monitor.is_asleep() {
                self.scheduler.call_monitor();
            }
        } else if former == WorkerState::Running && !self.worker_slot.rest() {
            // The monitor has marked the step as handed over, but perhaps has not reported the step yet.
            self.scheduler.await_report(self.slot);
        }
        if self.scheduler.options.observe.is_some() {
            Self::without_worker(|| self.scheduler.observe(self.slot, state, None));
        }
        self.scheduler.trace_worker(self.slot, state);
    }

    /// Ends the hand-over after the step of this worker has returned. Returns false if this worker must leave its slot.
    #[cold]
    pub(super) fn return_from_hand_over(&self) -> bool {
        self.scheduler.await_report(self.slot);
        // The observer may have received another state of this worker after `Running`. In this case the field `state`
        // does not change.
        if self.state.get() == WorkerState::Running {
            self.state.set(WorkerState::Blocked);
        }
        if self.worker_slot.has_guest() {
            self.scheduler.end_guest_hand_over(self.slot);
            return true;
        }
        self.scheduler.end_hand_over(self.slot)
    }

    /// Prepares this guest for a poll of its own future.
    pub(super) fn enter_own_future(&self) {
        // The future is user code and may block. Therefore the guest must not count as searching during the poll. If
        // the guest was the timekeeper, it may have to wake another worker, which becomes the timekeeper.
        if self.searching.get() || self.kept_time.get() {
            self.has_found();
        }
        // The label is set before the state, as in `run`.
        self.worker_slot.set_label(OWN_FUTURE);
        self.enter(WorkerState::Running);
    }

    /// Ends the hand-over of the last step, if there was a hand-over. Called when a task or a guest's own future has
    /// returned.
    pub(super) fn end_any_hand_over(&self) {
        if self.worker_slot.is_handed_over() {
            let _stays = self.return_from_hand_over();
        }
    }

    /// Marks this slot as polled. The worker of a polled slot runs tasks only while an executor polls the guest. The
    /// caller passes the waker of the executor in `waker`.
    pub(super) fn mark_polled(&self, waker: &Waker) {
        self.polled.set(true);
        self.set_unattended(false);
        self.scheduler.idle.parks_as_waker(self.slot, waker);
    }

    /// Marks the slot as unattended, or removes this mark: see `unattended.rs`.
    fn set_unattended(&self, is_unattended: bool) {
        if self.unattended.replace(is_unattended) != is_unattended {
            self.scheduler.unattended.set_marked(self.slot, is_unattended);
        }
    }

    /// Calls [`set_unattended`](Self::set_unattended) on the current worker of this thread, if there is one. Called
    /// when a nested `block_on` begins or ends on this thread. During a nested `block_on`, this thread takes no tasks
    /// from the queues of its outer worker. If `is_unattended` is true, also calls [`share`](Self::share).
    pub(super) fn set_unattended_here(is_unattended: bool) {
        if let Some(worker) = Self::here() {
            worker.set_unattended(is_unattended);
            if is_unattended {
                worker.share();
            }
        }
    }

    /// Announces that this worker will park: the first part of [`announce_sleep`](Self::announce_sleep).
    fn announce(&self) {
        let scheduler = &self.scheduler;
        if self.polled.get() {
            // A polled guest does not become the timekeeper, because the executor may never poll the guest again.
            return scheduler.idle.announce_polled(self.slot, self.searching.take());
        }
        // The worker tries to become the timekeeper before the announcement. Otherwise this worker would be parked for
        // a moment while there is no timekeeper. If a thread inserted a new earliest deadline at this moment, the
        // thread would wake a parked worker without need.
        if scheduler.idle.keep_time(self.slot) {
            let _ = scheduler.driver.keep_time();
        }
        scheduler.idle.announce(self.slot, self.searching.take());
        // The first attempt fails if another worker is the timekeeper. Perhaps that worker ended its role before the
        // announcement, and woke no worker because this worker counted as searching. Therefore this worker checks once
        // more. After the announcement, either this worker sees that there is no timekeeper, or the previous timekeeper
        // sees that this worker sleeps.
        if scheduler.is_untimed() && !planted!("idle_timekeeper_is_checked_once") && scheduler.idle.keep_time(self.slot)
        {
            let _ = scheduler.driver.keep_time();
        }
    }

    /// Announces that this worker will park, and then checks every queue and the timers once more. Returns true if
    /// there is no work and the worker may sleep.
    pub(super) fn announce_sleep(&self) -> bool {
        let scheduler = &self.scheduler;
        if self.woken.take() {
            scheduler.metrics.add(Counter::WakesWithoutWork, 1);
        }
        self.announce();
        // This function does not check whether the scheduler is stopping, because a stop sets the tokens of all slots.
        if scheduler.has_work() && !planted!("idle_no_second_look") {
            self.wake_up();
            // The task may have been pushed while this worker was still counted as a searching worker. A push during a
            // search wakes no worker. Therefore this worker searches again. When this worker finds a task, this worker
            // wakes the next worker.
            self.searching.set(self.searching.get() || scheduler.idle.start_searching(scheduler.present()));
            if !self.searching.get() {
                // Enough workers search already, and one of them will find the task. Until a searching worker finds the
                // task, this worker repeats its attempt to sleep. The yield lets a searching worker use this core.
                thread::yield_now();
            }
            return false;
        }
        scheduler.metrics.add(Counter::Parks, 1);
        self.enter(WorkerState::Parked);
        true
    }

    /// Retracts the announcement that this worker will park.
    pub(super) fn wake_up(&self) {
        if self.polled.get() {
            return self.scheduler.idle.retract_polled(self.slot);
        }
        if self.scheduler.idle.retract(self.slot) == Woken::Chosen {
            self.searching.set(true);
            self.woken.set(true);
        }
        if self.stop_keeping_time() {
            self.kept_time.set(true);
        }
    }

    /// If this worker is the timekeeper, ends this role and returns true. Otherwise returns false.
    fn stop_keeping_time(&self) -> bool {
        let scheduler = &self.scheduler;
        if scheduler.idle.timekeeper() != Some(self.slot) {
            return false;
        }
        // At this point no other worker can become the timekeeper, because this worker still has the role. If this
        // worker ended the role before this call, the call could erase the deadline that a new timekeeper has
        // published.
        scheduler.driver.stop_keeping_time();
        scheduler.idle.stop_keeping_time(self.slot)
    }

    /// Returns how long this worker may park. The timekeeper may park until the nearest deadline. For other workers,
    /// the result is `None`: they may park without a limit.
    pub(super) fn time_to_keep(&self) -> Option<Duration> {
        // A thread may have inserted an earlier deadline after this worker became the timekeeper.
        if self.scheduler.idle.timekeeper() == Some(self.slot) { self.scheduler.driver.keep_time() } else { None }
    }

    /// Returns the time until the nearest deadline. Returns `None` if there is no deadline, or if there is a
    /// timekeeper. A guest that runs as a polled future calls this function after it has announced that it will sleep.
    /// If the timekeeper ends its role after this call, the timekeeper sees that this guest sleeps, and wakes this
    /// guest.
    pub(super) fn time_if_unkept(&self) -> Option<Duration> {
        if self.scheduler.idle.timekeeper().is_some() { None } else { self.scheduler.driver.wait() }
    }

    pub(super) fn now(&self) -> Duration {
        self.scheduler.driver.now()
    }

    /// If tasks may be left, a polled guest calls this function before the guest returns to its executor. Ends the
    /// search of the guest. The executor may never poll the guest again. Therefore, if the queues of the guest or the
    /// global queue contain a task, this function wakes another worker. If the queues of the guest are not empty, this
    /// function also marks the slot as unattended, so that busy workers steal from the slot.
    #[cold]
    pub(super) fn return_to_executor(&self) {
        if self.searching.take() && self.scheduler.idle.stop_searching() && self.scheduler.has_work() {
            self.scheduler.notify();
        }
        self.enter(WorkerState::Parked);
        self.set_unattended(!self.queues.is_empty());
        self.share();
    }

    /// Runs tasks on this thread until the worker must leave its slot, and then leaves the slot. Called on a worker
    /// thread.
    pub(super) fn work(worker: UniqueRc<Self>) {
        let worker = Self::act(worker);
        let scheduler = &worker.scheduler;
        scheduler.idle.parks_as_thread(worker.slot);
        scheduler.options.hooks.occupied(worker.slot);
        worker.serve();
        worker.stop_acting().into_inner().leave();
    }

    /// Runs tasks until the worker must leave its slot.
    fn serve(&self) {
        loop {
            // Perhaps the monitor has handed over the last step just when this step returned. Therefore this check is
            // necessary even if the worker has not run a task since the last check.
            if self.worker_slot.is_handed_over() && !self.return_from_hand_over() {
                return;
            }
            if self.scheduler.orders() != 0 && self.must_leave() {
                return;
            }
            match self.find(self.rounds.get()) {
                Some(task) => self.run(task),
                None => self.sleep(),
            }
        }
    }

    #[cold]
    fn must_leave(&self) -> bool {
        let scheduler = &self.scheduler;
        scheduler.is_stopping() || scheduler.orders() & TOO_MANY != 0 && scheduler.leave_if_surplus(self.slot)
    }

    /// Parks until there may be work.
    #[cold]
    fn sleep(&self) {
        if self.worker_slot.is_handed_over() {
            return;
        }
        let scheduler = &self.scheduler;
        let hooks = &scheduler.options.hooks;
        // A hook may block. Therefore no hook runs after the announcement. After the announcement, a push may choose
        // this worker, or this worker may be the timekeeper.
        self.call_hook(hooks.park.as_ref());
        // If the hook has blocked, the monitor may have handed over the tasks of this worker.
        let sleeps = !self.worker_slot.is_handed_over() && self.announce_sleep();
        if sleeps && self.worker_slot.is_handed_over() {
            // The monitor has handed over the tasks after the first check. The announcement has ended the state BUSY,
            // so no hand-over can follow. This worker must not park, because it must end the hand-over first.
            self.wake_up();
        } else if sleeps {
            let mut ready = self.ready.take();
            let began = scheduler.driver.now();
            let in_poller = Self::without_worker(|| self.park(&mut ready));
            let slept = scheduler.driver.now().saturating_sub(began);
            self.wake_up();
            // A wait in the poller counts as a long sleep in two cases: the poller has returned ready operations, or no
            // push has chosen this worker. A longer search before the sleep would then only have checked the poller
            // more often. The second case includes an event of a socket for which no operation waits.
            let counts_as_long = in_poller && (!ready.is_empty() || !self.woken.get());
            if counts_as_long {
                self.rounds.shorten();
            } else {
                self.rounds.adapt(slept);
            }
            if hooks.unpark.is_none() {
                self.queue_ready(ready);
            } else {
                // The hook below may block, so the tasks must not wait in the queues of this worker.
                Self::without_worker(|| self.queue_ready(ready));
            }
        }
        self.call_hook(hooks.unpark.as_ref());
    }

    /// Calls the hook, if there is one. The hook may block. Therefore this function first prepares the worker, in the
    /// same way as before the call of a waker.
    fn call_hook(&self, hook: Option<&Hook>) {
        if let Some(hook) = hook {
            self.begin_user_code();
            Self::without_worker(|| hook());
        }
    }

    /// Parks the thread until the slot is woken. The timekeeper parks at most until the nearest deadline. If the poller
    /// is open, the timekeeper waits in the poller. The poller then appends the wakers of the ready operations to
    /// `ready`. This function may return spuriously. Returns false if the thread has parked outside the poller. If the
    /// slot was already woken, the timekeeper returns true without a wait.
    pub(super) fn park(&self, ready: &mut Vec<Waker>) -> bool {
        let scheduler = &self.scheduler;
        let time = self.time_to_keep();
        if let Some(poller) = scheduler.poller()
            && scheduler.idle.timekeeper() == Some(self.slot)
            && self.wait_in_poller(poller, time, ready)
        {
            return true;
        }
        scheduler.idle.park(self.slot, time);
        false
    }

    /// Waits in the poller. Returns false if another thread already waits in the poller, or if the system returned an
    /// error. In both cases, this thread has not waited.
    fn wait_in_poller(&self, poller: &Poller, time: Option<Duration>, ready: &mut Vec<Waker>) -> bool {
        let idle = &self.scheduler.idle;
        // From this line on, a wake-up of this slot wakes the poller. If another thread has already woken this slot,
        // this thread sees the token in the next line and does not wait.
        idle.parks_as_waker(self.slot, poller.waker());
        let is_woken = idle.is_woken(self.slot) && !planted!("poller_ignores_token");
        let waited = is_woken || poller.poll(Wait::For(time), ready);
        idle.parks_as_thread(self.slot);
        waited
    }

    /// Leaves the slot. Wakes another worker in each of these cases:
    /// - There are tasks in the queues of the slot or in the global queue.
    /// - This worker was counted as a searching worker.
    /// - The runtime has no timekeeper.
    ///
    /// The queued tasks stay in the queues of the slot, where other workers steal them. The next occupant of the slot
    /// continues with these tasks. If the tasks moved to the global queue instead, the order of the tasks would change.
    /// In a runtime without workers, some tasks would then never run during a sequence of short calls of `block_on`.
    pub(super) fn leave(self) {
        let scheduler = Arc::clone(&self.scheduler);
        let leaves_tasks = !self.queues.is_empty();
        // When the scheduler stops, the tasks move to the global queue. If the global queue is closed, the tasks are
        // dropped below.
        let mut rest = if scheduler.is_stopping() { self.queues.drain() } else { Vec::new() };
        scheduler.global.append(&mut rest);
        scheduler.idle.leaves(self.slot);
        let _ = self.stop_keeping_time();
        let searched = self.searching.take();
        if searched {
            let _last = scheduler.idle.stop_searching();
        }
        // The call of `vacate` below makes the slot vacant. An observer must not see a vacant slot in the state running
        // or searching. Therefore the state changes to parked before the call of `vacate`.
        self.enter(WorkerState::Parked);
        self.set_unattended(!self.queues.is_empty());
        if self.worker_slot.has_guest() && self.worker_slot.is_handed_over() {
            // The monitor has handed over the guest's own future just when the poll of this future returned.
            scheduler.end_guest_hand_over(self.slot);
        }
        let Worker { slot, queues, .. } = self;
        scheduler.vacate(slot, queues);
        drop(rest);
        // A guest that was the timekeeper may have ended this role before this call, because each wake-up ends the
        // role. Therefore the following condition checks whether there is a timekeeper now.
        let passes_on = (searched || scheduler.global.len() != 0) && !planted!("idle_leaver_does_not_notify");
        if leaves_tasks || passes_on || scheduler.is_untimed() {
            scheduler.notify();
        }
    }
}
