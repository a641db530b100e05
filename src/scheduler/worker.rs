//! Worker of the scheduler: it looks for tasks in a fixed order, runs them, and parks when there are no tasks.
//!
//! `queue.rs` owns the local queues of the worker, and `idle.rs` the state of parked and searching workers. `README.md`
//! in this folder explains why no wake-up is lost.

use std::cell::{Cell, RefCell};
use std::collections::vec_deque::Drain;
use std::ops::Deref;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crossbeam_deque::Steal;

use crate::observe::{Counter, SlotGuard, WorkerState};
use crate::platform::poller::{Poller, Wait};
use crate::platform::preempt;
use crate::platform::random::Rng;
use crate::platform::sync::{Arc, CachePadded, NeverDropped, hint, planted, thread};
use crate::platform::unwind::contain;
use crate::scheduler::idle::Woken;
use crate::scheduler::queue::{Pushed, Queues};
use crate::scheduler::slot::{OWN_FUTURE, WorkerSlot};
use crate::scheduler::threads::TOO_MANY;
use crate::scheduler::{Placement, Scheduler, Task, hooks};

/// Every 61st time that a worker looks for a task, it checks the global queue and the timers first. So busy local
/// queues starve neither of them.
const GLOBAL_EVERY: u32 = 61;
/// With LIFO order, a worker takes the oldest local task every 16th time that it looks for a task.
const OLDEST_EVERY: u32 = 16;
/// The position of this turn among the 16. In this turn no priority queue comes first, see `priority.rs`.
const OLDEST_AT: u32 = 8;
/// Number of passes over all victims in one round of a search.
const PASSES: u32 = 4;
/// A search begins with this number of rounds without a pause. After each later round, the thread yields.
const TIGHT_ROUNDS: u32 = 4;
/// Maximum number of rounds of a search before the worker parks. A failed search that is followed by a long sleep
/// halves the number of rounds of the next search.
const ROUNDS: u32 = if cfg!(any(procession_loom, procession_shuttle)) { 1 } else { 16 };
/// If a sleep was shorter than this time, the next search has all rounds: a longer search would have cost less than
/// this sleep.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

/// A worker. A thread that acts as this worker first [sits](Self::sit) in the slot. While the thread sits there, tasks
/// that it wakes go to the local queues.
pub(crate) struct Local<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    /// Address of the scheduler. A wake-up compares it with the scheduler of the woken task.
    home: usize,
    slot: usize,
    post: Arc<CachePadded<WorkerSlot>>,
    queues: Queues<T>,
    looks: Cell<u32>,
    searching: Cell<bool>,
    /// A push has woken the worker, and the worker has not found a task since then. A polled slot does not use this
    /// field, because it does not search after a wake-up.
    woken: Cell<bool>,
    /// Number of rounds that the next search has.
    rounds: Cell<u32>,
    /// The worker was the timekeeper when it woke up, and has not yet checked that there is another timekeeper.
    kept_time: Cell<bool>,
    /// The worker runs tasks only while an executor polls it. The executor may never poll it again.
    polled: Cell<bool>,
    /// The wakers that the poller returned, until their tasks are queued. The worker reuses the memory of this vector.
    ready: Cell<Vec<Waker>>,
    shuffles: bool,
    rng: RefCell<Rng>,
    state: Cell<WorkerState>,
}

/// The worker that a thread acts as, or `None`.
pub(crate) type Here<T> = NeverDropped<RefCell<Option<Rc<Local<T>>>>>;

/// Guard of a thread that acts as a worker. When the guard is dropped, the thread acts as its previous worker again, if
/// it had one.
#[must_use]
pub(super) struct WorkerGuard<T: Task> {
    local: Rc<Local<T>>,
    outer: Option<Rc<Local<T>>>,
    _counting: SlotGuard,
    _asked: preempt::PreemptGuard,
}

impl<T: Task> Deref for WorkerGuard<T> {
    type Target = Local<T>;

    fn deref(&self) -> &Local<T> {
        &self.local
    }
}

impl<T: Task> WorkerGuard<T> {
    /// Leaves the slot. Returns the worker, so that another thread can use it.
    pub(super) fn rise(self) -> Local<T> {
        let local = Rc::clone(&self.local);
        drop(self);
        Rc::into_inner(local).expect("one thread sits there, and has left")
    }
}

impl<T: Task> Drop for WorkerGuard<T> {
    fn drop(&mut self) {
        let own = T::current().with(|here| here.replace(self.outer.take()));
        drop(own);
    }
}

impl<T: Task> std::fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("slot", &self.slot).field("searching", &self.searching).finish_non_exhaustive()
    }
}

impl<T: Task> Local<T> {
    pub(super) fn new(scheduler: Arc<Scheduler<T>>, slot: usize, queues: Queues<T>) -> Self {
        let rng = Rng::seeded(scheduler.options.seed ^ (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let home = Arc::as_ptr(&scheduler) as usize;
        Self {
            post: Arc::clone(&scheduler.posts[slot]),
            home,
            slot,
            queues,
            looks: Cell::new(0),
            searching: Cell::new(false),
            woken: Cell::new(false),
            rounds: Cell::new(ROUNDS),
            kept_time: Cell::new(false),
            polled: Cell::new(false),
            ready: Cell::default(),
            shuffles: scheduler.options.shuffle,
            rng: RefCell::new(rng),
            state: Cell::new(WorkerState::Parked),
            scheduler,
        }
    }

    /// Makes this thread act as the worker, until the returned guard is dropped.
    pub(super) fn sit(self) -> WorkerGuard<T> {
        let _counting = self.scheduler.metrics.enter(self.slot);
        let _asked = self.post.asked().sit();
        let local = Rc::new(self);
        let outer = T::current().with(|here| here.replace(Some(Rc::clone(&local))));
        WorkerGuard { local, outer, _counting, _asked }
    }

    /// Returns the worker that this thread acts as.
    #[inline]
    pub(super) fn here() -> Option<Rc<Self>> {
        T::current().with(|here| here.borrow().clone())
    }

    /// Runs `f` while this thread acts as no worker. `f` is not a task. Tasks that `f` wakes go to a shared queue,
    /// because this worker may not check its local queues for a long time.
    fn aside<R>(f: impl FnOnce() -> R) -> R {
        struct Back<T: Task>(Option<Rc<Local<T>>>);
        impl<T: Task> Drop for Back<T> {
            fn drop(&mut self) {
                T::current().with(|here| here.replace(self.0.take()));
            }
        }
        let _back = Back(T::current().with(|here| here.take()));
        f()
    }

    #[cfg(feature = "net")]
    pub(super) fn scheduler(&self) -> &Arc<Scheduler<T>> {
        &self.scheduler
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    #[inline]
    pub(super) fn is_of(&self, address: usize) -> bool {
        self.home == address
    }

    /// Queues a task. It is either the running task itself, or a task that the running task woke or spawned. Returns
    /// true if the caller must [wake](Self::tell) another worker.
    #[inline]
    #[must_use]
    pub(super) fn push(&self, task: T, how: Placement) -> bool {
        if self.post.is_taken() {
            return self.push_for_others(task, how);
        }
        let pushed = match how {
            Placement::New | Placement::Woken if self.shuffles && self.rng.borrow_mut().below(2) == 0 => {
                self.queues.push_back(task)
            }
            Placement::Behind => self.queues.push_back(task),
            Placement::New => self.queues.push_new(task),
            Placement::Woken => self.queues.push_next(task),
            Placement::Yielded if self.queues.is_lifo() => return self.push_behind(task),
            Placement::Yielded => self.queues.push_again(task),
            Placement::Ranked(_) => return self.push_shared(task, how),
        };
        match pushed {
            // This worker runs the task as soon as the current task returns. The cost of waking a second worker for it
            // is higher than the gain.
            Pushed::ToSlot => false,
            // The push of the first of these tasks has woken a worker. When a worker finds one of these tasks, it wakes
            // the next worker.
            Pushed::ToDeque(3..) => false,
            // It is the only queued task. This worker runs it next and needs no help.
            Pushed::ToDeque(1) if self.queues.slot_is_empty() => false,
            Pushed::ToDeque(_) => true,
            Pushed::BatchFull => {
                self.overflow();
                true
            }
        }
    }

    /// Wakes another worker, which can take tasks that are queued here.
    #[cold]
    pub(super) fn tell(&self) {
        self.scheduler.notify();
    }

    /// Moves a full batch to the global queue.
    #[cold]
    fn overflow(&self) {
        self.scheduler.metrics.add(Counter::Overflows, 1);
        self.queues.overflow(&self.scheduler.global);
    }

    /// With LIFO order, queues a task behind all local tasks, that is, in the global queue. Returns false if no other
    /// task waits here: this worker then takes the task itself.
    #[cold]
    fn push_behind(&self, task: T) -> bool {
        let alone = self.queues.is_empty();
        match self.scheduler.global.push(task) {
            Ok(()) => !alone,
            Err(task) => {
                self.queues.keep(task);
                false
            }
        }
    }

    /// Queues a task while this worker is in a long step that was handed over. A woken task is urgent, so it goes to a
    /// shared queue: workers check the shared queues before they search. A spawned task stays in the local queue.
    /// Often many tasks are spawned at once, and thieves take several at a time from the deque without a lock (bench
    /// `spawn-inside` 0.86).
    #[cold]
    fn push_for_others(&self, task: T, how: Placement) -> bool {
        if how != Placement::New {
            return self.push_shared(task, how);
        }
        if self.queues.push_back(task) == Pushed::BatchFull {
            self.overflow();
        }
        true
    }

    /// Queues a task in a shared queue, either because its priority is not normal or because this worker does not check
    /// its local queues for some time.
    #[cold]
    fn push_shared(&self, task: T, how: Placement) -> bool {
        match self.scheduler.put_where_all_look(task, how) {
            Ok(()) => true,
            Err(task) => {
                // The scheduler is closed. Here the task is not dropped, unlike in `Scheduler::schedule_elsewhere`. The
                // drop would run user code while the thread-local is borrowed.
                self.queues.keep(task);
                false
            }
        }
    }

    /// Wakes another worker if any task is queued here, including a task in the next slot. Called when this thread is
    /// about to wait.
    fn share(&self) {
        if !self.queues.is_empty() {
            self.scheduler.notify();
        }
    }

    /// Hands over the tasks of the worker that this thread acts as. Does nothing if the thread acts as no worker.
    /// Called when the thread is about to block.
    pub(crate) fn hand_over_here() {
        let Some(local) = Self::here() else { return };
        if local.scheduler.hand_over(local.slot, None) {
            local.scheduler.observe(local.slot, WorkerState::Blocked, None);
            local.scheduler.trace_worker(local.slot, WorkerState::Blocked);
        }
    }

    /// Calls [`share`](Self::share) on the worker that this thread acts as, if there is one. This worker may belong to
    /// any scheduler.
    pub(super) fn share_here() {
        if let Some(local) = Self::here() {
            local.share();
        }
    }

    /// Takes a task without a search. Defines the order in which a worker looks for tasks.
    #[inline]
    fn look(&self) -> Option<T> {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        if looks.is_multiple_of(GLOBAL_EVERY) {
            // This time, the timers, the sockets and the global queue come first, even if local tasks wait.
            self.turn_driver();
            self.poll_sockets();
            if let Some(task) = self.take_global() {
                return Some(task);
            }
        }
        // Tasks of the other priorities come first at fixed values of `looks`.
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
        // Tasks that were queued from outside, and tasks that overflowed a local queue.
        if let Some(task) = self.take_global() {
            return Some(task);
        }
        // Due timers. The tasks that the timers wake go to the queues of this worker.
        self.turn_driver();
        if self.polled.get() {
            // A polled slot never waits in the poller. So it asks the poller each time that it finds no local task.
            self.poll_sockets();
        }
        self.queues.next().or_else(|| self.take_ranked())
    }

    /// Asks the poller without waiting, and queues the tasks of the ready sockets on this worker. Does nothing if
    /// another thread uses the poller.
    fn poll_sockets(&self) {
        if let Some(poller) = self.scheduler.poller() {
            let mut ready = self.ready.take();
            poller.poll(Wait::No, &mut ready);
            self.queue_ready(ready);
        }
    }

    /// Wakes the tasks whose sockets are ready, in the order of `ready`. These tasks go to the queues of this worker.
    pub(super) fn queue_ready(&self, mut ready: Vec<Waker>) {
        if !ready.is_empty() {
            if self.searching.get() {
                self.ends_search();
            }
            // A waker is user code. If it panics, the worker must go on.
            contain(|| self.scheduler.driver.wake_all(&mut ready));
            contain(|| ready.clear());
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

    /// Fires due timers. The tasks that the timers wake go to the queues of this worker.
    fn turn_driver(&self) {
        if self.scheduler.driver.wait().is_some_and(|wait| wait.is_zero()) {
            if self.searching.get() {
                self.ends_search();
            }
            // A waker is user code. If it panics, the worker must go on.
            contain(|| {
                self.scheduler.driver.fire_due();
            });
        }
    }

    /// Passes up to `passes` times over all other workers that are not parked. Each pass begins at a random worker. The
    /// thief takes half of the tasks of one victim. In the last pass, it also takes the task in the victim's next slot
    /// if it finds no other task there.
    pub(super) fn steal(&self, passes: u32) -> Option<T> {
        let (scheduler, metrics) = (&self.scheduler, &self.scheduler.metrics);
        let remotes = scheduler.remotes();
        let (count, others) = (remotes.len(), remotes.len() - 1);
        for pass in 0..passes {
            let (last, mut lost_a_race) = (pass + 1 == passes, false);
            // The random start is a slot below `reached`. If higher slots were possible, the search would nearly always
            // begin at the first worker after them.
            let start = self.rng.borrow_mut().below(others);
            for victim in (start..others).chain(0..start).map(|n| (self.slot + 1 + n) % count) {
                let remote = &remotes[victim];
                if remote.is_empty() || scheduler.idle.is_sleeping(victim) {
                    continue;
                }
                metrics.add(Counter::StealsTried, 1);
                let mut stolen = remote.steal_half(&self.queues);
                if last && stolen.is_empty() {
                    // The victim itself would run this task next, so a thief takes it only if it finds no other task.
                    stolen = remote.steal_slot();
                }
                match stolen {
                    Steal::Success(task) => {
                        metrics.add(Counter::StealsWon, 1);
                        scheduler.trace_steal(victim);
                        return Some(task);
                    }
                    Steal::Empty => metrics.add(Counter::StealsEmpty, 1),
                    Steal::Retry => {
                        metrics.add(Counter::StealsRetried, 1);
                        lost_a_race = true;
                    }
                }
            }
            if !lost_a_race && !last && remotes.iter().all(crate::scheduler::Remote::is_empty) {
                return None;
            }
        }
        None
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

    /// Called when this worker has found a task and was searching or was the timekeeper before.
    #[cold]
    fn has_found(&self) {
        self.woken.set(false);
        let lacks_timekeeper = || self.scheduler.needs_timekeeper() && !planted!("idle_keeper_keeps_quiet");
        if self.searching.take() && self.scheduler.idle.stop_searching() {
            // This was the last searching worker. During its search, no push woke a worker, so it checks for their
            // tasks here. A push after this point wakes a worker itself. A timekeeper that found work also woke no
            // worker.
            let is_needed = self.scheduler.has_work() || lacks_timekeeper();
            if is_needed && !planted!("idle_last_searcher_keeps_quiet") {
                self.scheduler.notify();
            }
        }
        if self.kept_time.take() && lacks_timekeeper() {
            // It may be long before this worker checks the timers again. Therefore it wakes another worker to become
            // the timekeeper.
            self.scheduler.notify();
        }
    }

    /// Ends the search before wakers are called. A waker is user code and may block. A searching worker that blocks
    /// would keep other workers from searching, although every push relies on its search.
    #[cold]
    fn ends_search(&self) {
        self.woken.set(false);
        if self.searching.take() && self.scheduler.idle.stop_searching() && self.scheduler.has_tasks() {
            self.scheduler.notify();
        }
    }

    #[cold]
    fn search(&self, rounds: u32) -> Option<T> {
        self.enter(WorkerState::Searching);
        if !self.searching.get() {
            self.searching.set(self.scheduler.idle.start_searching(self.scheduler.present()));
            if !self.searching.get() {
                return None;
            }
        }
        for round in 0..rounds {
            if let Some(task) = self.steal(PASSES).or_else(|| self.take_global()).or_else(|| self.take_ranked()) {
                self.rounds.set(ROUNDS);
                return Some(task);
            }
            if self.scheduler.is_stopping() {
                return None;
            }
            // In a search of only one round, the worker does not ask the poller: the worker parks next. If it is then
            // the timekeeper, it takes the events from the poller.
            if rounds > 1 && self.scheduler.poller().is_some() {
                self.poll_sockets();
                if let Some(task) = self.queues.next() {
                    return Some(task);
                }
                if !self.searching.get() {
                    // The calls of the wakers ended the search of this worker, but no woken task is in the queues of
                    // this worker.
                    return None;
                }
            }
            if round < TIGHT_ROUNDS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        None
    }

    /// Runs a task. The task catches the panics of its process. A panic that reaches this function does not belong to a
    /// process, and the worker goes on.
    #[inline]
    pub(super) fn run(&self, task: T) {
        self.enter(WorkerState::Running);
        let (label, begun) = task.begin();
        self.post.set_label(label);
        self.scheduler.metrics.add_in(self.slot, Counter::Polls, 1);
        contain(|| task.run(begun));
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
            self.post.begin();
            if self.scheduler.monitor.is_asleep() {
                self.scheduler.call_monitor();
            }
        } else if former == WorkerState::Running {
            self.post.rest();
        }
        if self.scheduler.options.observe.is_some() {
            Self::aside(|| self.scheduler.observe(self.slot, state, None));
        }
        self.scheduler.trace_worker(self.slot, state);
    }

    /// Called when the last step of this worker was handed over to another thread. Returns false if this worker must
    /// leave its slot.
    #[cold]
    pub(super) fn return_from_hand_over(&self) -> bool {
        self.state.set(WorkerState::Blocked);
        if self.post.is_lent() {
            self.post.resume();
            return true;
        }
        self.scheduler.comes_back(self.slot)
    }

    /// Called before a guest's own future is polled.
    pub(super) fn enter_own_future(&self) {
        // The future is user code and may block. So the guest must not count as searching during the poll. If the guest
        // was the timekeeper, another thread must be able to take this role.
        if self.searching.get() || self.kept_time.get() {
            self.has_found();
        }
        self.enter(WorkerState::Running);
        self.post.set_label(OWN_FUTURE);
    }

    /// Called when a task or a guest's own future has returned.
    pub(super) fn has_run(&self) {
        if self.post.is_taken() {
            let _stays = self.return_from_hand_over();
        }
    }

    /// Marks this slot as polled: the slot runs tasks only while an executor polls it, with this waker.
    pub(super) fn is_polled_with(&self, waker: &Waker) {
        self.polled.set(true);
        self.scheduler.idle.parks_as_waker(self.slot, waker);
    }

    /// Announces that this worker will park.
    fn announce(&self) {
        let scheduler = &self.scheduler;
        if self.polled.get() {
            // A polled slot does not become the timekeeper, because it may never be polled again.
            return scheduler.idle.announce_polled(self.slot, self.searching.take());
        }
        // The worker tries to become the timekeeper before the announcement, because otherwise there may be no
        // timekeeper. Each insertion of an earliest deadline would then wake a parked worker.
        if scheduler.idle.keep_time(self.slot) {
            let _ = scheduler.driver.keep_time();
        }
        scheduler.idle.announce(self.slot, self.searching.take());
        // The former timekeeper may have stopped since then without waking a worker, because this worker counted as
        // searching. After the announcement, either this worker sees that there is no timekeeper, or the former
        // timekeeper sees that this worker sleeps.
        if scheduler.is_untimed() && !planted!("idle_office_is_left_empty") && scheduler.idle.keep_time(self.slot) {
            let _ = scheduler.driver.keep_time();
        }
    }

    /// Announces that this worker will park, and then checks every queue and the timers once more. Returns true if
    /// there is no work.
    pub(super) fn may_sleep(&self) -> bool {
        let scheduler = &self.scheduler;
        if self.woken.take() {
            scheduler.metrics.add(Counter::WakesWithoutWork, 1);
        }
        self.announce();
        // A stop of the scheduler needs no check here, because it sets the tokens of all slots.
        if scheduler.has_work() && !planted!("idle_no_second_look") {
            self.wake_up();
            // The work may have been pushed while this worker counted as searching. Such a push wakes no worker.
            // Therefore this worker searches again, and wakes the next worker when it finds a task.
            self.searching.set(self.searching.get() || scheduler.idle.start_searching(scheduler.present()));
            if !self.searching.get() {
                // Enough workers search already. This worker tries again until one of the searching workers has the
                // task. The searching worker may need this core.
                thread::yield_now();
            }
            return false;
        }
        scheduler.metrics.add(Counter::Parks, 1);
        self.enter(WorkerState::Parked);
        true
    }

    /// Retracts the announcement.
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

    /// Stops being the timekeeper. Returns true if this worker was the timekeeper, and false otherwise.
    fn stop_keeping_time(&self) -> bool {
        let scheduler = &self.scheduler;
        if scheduler.idle.timekeeper() != Some(self.slot) {
            return false;
        }
        // This call comes first, while no other worker can have become the timekeeper. A later call would erase the
        // deadline that a new timekeeper has published.
        scheduler.driver.keeps_no_time();
        scheduler.idle.stop_keeping_time(self.slot)
    }

    /// Returns how long this worker may park. The timekeeper may park until the nearest deadline. Other workers may
    /// park without limit (`None`).
    pub(super) fn time_to_keep(&self) -> Option<Duration> {
        // A nearer deadline may have been inserted since this worker became the timekeeper.
        if self.scheduler.idle.timekeeper() == Some(self.slot) { self.scheduler.driver.keep_time() } else { None }
    }

    /// Returns the time until the nearest deadline. Returns `None` if there is no deadline, or if a thread is the
    /// timekeeper. A polled slot calls this after its announcement. If a thread stops being the timekeeper after this
    /// call, it sees that this slot sleeps, and wakes it.
    pub(super) fn time_if_unkept(&self) -> Option<Duration> {
        if self.scheduler.idle.timekeeper().is_some() { None } else { self.scheduler.driver.wait() }
    }

    pub(super) fn now(&self) -> Duration {
        self.scheduler.driver.now()
    }

    /// Fires due timers. Called when the clock was read between two tasks.
    #[inline]
    pub(super) fn fire_due(&self, now: Duration) {
        self.scheduler.fire_due(now);
    }

    /// Called when a polled guest returns to its executor with tasks left. The executor may never poll the guest again.
    /// Therefore the guest ends its search, and wakes another worker if the guest's queues are not empty.
    #[cold]
    pub(super) fn pause(&self) {
        if self.searching.take() && self.scheduler.idle.stop_searching() && self.scheduler.has_work() {
            self.scheduler.notify();
        }
        self.enter(WorkerState::Parked);
        self.share();
    }

    /// Works in this slot until the worker must leave it, and then leaves it. Called on a worker thread.
    pub(super) fn work(self) {
        let local = self.sit();
        let scheduler = &local.scheduler;
        scheduler.idle.parks_as_thread(local.slot);
        scheduler.options.hooks.seated(local.slot);
        local.serve();
        local.rise().leave();
    }

    /// Runs tasks until the worker must leave its slot.
    fn serve(&self) {
        loop {
            // This check is also needed if the worker found no task: the last step may have been handed over just when
            // it returned.
            if self.post.is_taken() && !self.return_from_hand_over() {
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
        if self.post.is_taken() || !self.may_sleep() {
            return;
        }
        let scheduler = &self.scheduler;
        let mut ready = self.ready.take();
        Self::aside(|| {
            hooks::call(scheduler.options.hooks.park.as_ref());
            let began = scheduler.driver.now();
            self.park(&mut ready);
            // If a socket ended this sleep, the task of the socket became runnable only through the poller. So a longer
            // search before this sleep would not have found this task.
            let slept = scheduler.driver.now().saturating_sub(began);
            self.learn(if ready.is_empty() { slept } else { Duration::MAX });
            self.wake_up();
            hooks::call(scheduler.options.hooks.unpark.as_ref());
        });
        self.queue_ready(ready);
    }

    /// Parks the thread until the slot is woken. The timekeeper parks at most until the nearest deadline. If the poller
    /// is open, the timekeeper waits in the poller, and appends the wakers of the ready operations to `ready`. May
    /// return spuriously.
    pub(super) fn park(&self, ready: &mut Vec<Waker>) {
        let scheduler = &self.scheduler;
        let time = self.time_to_keep();
        if let Some(poller) = scheduler.poller()
            && scheduler.idle.timekeeper() == Some(self.slot)
            && self.park_in(poller, time, ready)
        {
            return;
        }
        scheduler.idle.park(self.slot, time);
    }

    /// Waits in the poller. Returns false if this thread has not waited, because another thread waits in the poller.
    fn park_in(&self, poller: &Poller, time: Option<Duration>, ready: &mut Vec<Waker>) -> bool {
        let idle = &self.scheduler.idle;
        // After this line, `wake` wakes the poller. If `wake` has already set the token, this thread sees the token
        // below.
        idle.parks_as_waker(self.slot, poller.waker());
        let is_woken = idle.is_woken(self.slot) && !planted!("poller_ignores_token");
        let waited = is_woken || poller.poll(Wait::For(time), ready);
        idle.parks_as_thread(self.slot);
        waited
    }

    /// Sets the number of rounds of the next search. Called when a search found nothing and the worker then slept for
    /// `slept`. If a search lasts as long as the cost of one sleep, the total cost is at most twice the optimum
    /// (Karlin, Li, Manasse and Owicki, "Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor",
    /// 1991). Before a long sleep the search was useless, so the number of rounds is halved.
    fn learn(&self, slept: Duration) {
        let rounds = self.rounds.get();
        self.rounds.set(if slept < SHORT_SLEEP { ROUNDS } else { (rounds / 2).max(1) });
    }

    /// Leaves the slot. Moves the queued tasks to the global queue, and passes a pending wake-up on to another worker.
    pub(super) fn leave(self) {
        let scheduler = Arc::clone(&self.scheduler);
        let mut rest = self.queues.drain();
        let brought = !rest.is_empty();
        scheduler.global.append(&mut rest);
        scheduler.idle.leaves(self.slot);
        let _ = self.stop_keeping_time();
        let searched = self.searching.take();
        if searched {
            let _last = scheduler.idle.stop_searching();
        }
        // The call of `vacate` below makes the slot vacant. An observer must not see a vacant slot in the state running
        // or searching.
        self.enter(WorkerState::Parked);
        let Local { slot, queues, .. } = self;
        scheduler.vacate(slot, queues);
        drop(rest);
        // A guest stops being the timekeeper each time it wakes up, possibly before this call. Therefore this condition
        // asks whether there is a timekeeper now, not whether this worker has just stopped.
        let passes_on = searched && !planted!("idle_leaver_keeps_wake");
        if brought || passes_on || scheduler.is_untimed() {
            scheduler.notify();
        }
    }
}
