//! What a worker does: look for work in the order below, run it, and sleep when there is none.

use std::cell::{Cell, RefCell};
use std::collections::vec_deque::Drain;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use crossbeam_deque::Steal;

use crate::observe::{Counter, SlotGuard, WorkerState};
use crate::platform::preempt;
use crate::platform::random::Rng;
use crate::platform::sync::{Arc, CachePadded, NeverDropped, hint, planted, this_thread, thread};
use crate::scheduler::idle::Woken;
use crate::scheduler::queue::{Pushed, Queues};
use crate::scheduler::slot::{OWN_FUTURE, WorkerSlot};
use crate::scheduler::threads::TOO_MANY;
use crate::scheduler::{Placement, Scheduler, Task, hooks};

/// Every so many looks begin with the global queue and the timers, so that busy local queues starve neither.
const GLOBAL_EVERY: u32 = 61;
/// Where the newest is first, every so many looks take the oldest.
const OLDEST_EVERY: u32 = 16;
/// These are no looks that others have a right to, see `priorities.rs`.
const OLDEST_AT: u32 = 8;
/// How often a search passes over all victims.
const PASSES: u32 = 4;
/// Rounds of a search that follow each other at once; then the thread is yielded in between.
const TIGHT_ROUNDS: u32 = 4;
/// Rounds of a search before the worker sleeps, at most: while searches find something, or would have.
const ROUNDS: u32 = if cfg!(any(procession_loom, procession_shuttle)) { 1 } else { 16 };
/// A sleep shorter than this cost more than a longer search would have.
const SHORT_SLEEP: Duration = Duration::from_micros(50);

/// A worker. The thread that is it [sits](Self::sit) there while it works, so that what its tasks wake finds its way into
/// the local queues.
pub(crate) struct Local<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    /// The scheduler's address, by which those who wake a task ask whether this is theirs.
    home: usize,
    slot: usize,
    post: Arc<CachePadded<WorkerSlot>>,
    queues: Queues<T>,
    looks: Cell<u32>,
    searching: Cell<bool>,
    /// How many rounds it searches before it sleeps.
    rounds: Cell<u32>,
    /// It kept the time when it woke up, and has not passed that on.
    kept_time: Cell<bool>,
    /// It runs tasks only while an executor polls it, and may never be polled again.
    polled: Cell<bool>,
    shuffles: bool,
    rng: RefCell<Rng>,
    state: Cell<WorkerState>,
}

/// Which worker a thread is, if it is one.
pub(crate) type Here<T> = NeverDropped<RefCell<Option<Rc<Local<T>>>>>;

/// A thread as a worker; where that worker was before, it is again when this is dropped.
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
    /// Leaves it, for another thread to take.
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
            rounds: Cell::new(ROUNDS),
            kept_time: Cell::new(false),
            polled: Cell::new(false),
            shuffles: scheduler.options.shuffle,
            rng: RefCell::new(rng),
            state: Cell::new(WorkerState::Parked),
            scheduler,
        }
    }

    /// Makes this thread the worker, until what is returned is dropped.
    pub(super) fn sit(self) -> WorkerGuard<T> {
        let _counting = self.scheduler.metrics.enter(self.slot);
        let _asked = self.post.asked().sit();
        let local = Rc::new(self);
        let outer = T::current().with(|here| here.replace(Some(Rc::clone(&local))));
        WorkerGuard { local, outer, _counting, _asked }
    }

    /// The worker that this thread is.
    #[inline]
    pub(super) fn here() -> Option<Rc<Self>> {
        T::current().with(|here| here.borrow().clone())
    }

    /// Runs what is no task as no worker: what it wakes goes where all look, for nobody may look here for long.
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

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    #[inline]
    pub(super) fn is_of(&self, address: usize) -> bool {
        self.home == address
    }

    /// Queues a task that the running one woke, spawned, or is. True if others have to be [told](Self::tell) of it.
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
            Placement::Ranked(_) => return self.push_away(task, how),
        };
        match pushed {
            // It runs here as soon as this task returns. Waking a second worker for it costs more than it gains.
            Pushed::ToSlot => false,
            // Somebody was told when the first of these came, and whoever finds one of them tells the next.
            Pushed::ToDeque(3..) => false,
            // One that yields to nobody needs nobody's help either.
            Pushed::ToDeque(1) if self.queues.slot_is_empty() => false,
            Pushed::ToDeque(_) => true,
            Pushed::BatchFull => {
                self.overflow();
                true
            }
        }
    }

    /// Has others come for what is queued here.
    #[cold]
    pub(super) fn tell(&self) {
        self.scheduler.notify();
    }

    /// A batch of arrivals is full.
    #[cold]
    fn overflow(&self) {
        self.scheduler.metrics.add(Counter::Overflows, 1);
        self.queues.overflow(&self.scheduler.global);
    }

    /// Queues a task behind all that waits here, where the newest is first: that is in the queue that all share. One that
    /// yields to nobody needs nobody's help: this worker comes to it.
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

    /// Queues a task while somebody stands in for this worker, for it is in a long step. What was woken is wanted soon, and
    /// goes where all look before they search. What is spawned comes in numbers: it stays, for thieves to take many at once
    /// without a lock (bench `spawn-inside` 0.86).
    #[cold]
    fn push_for_others(&self, task: T, how: Placement) -> bool {
        if how != Placement::New {
            return self.push_away(task, how);
        }
        if self.queues.push_back(task) == Pushed::BatchFull {
            self.overflow();
        }
        true
    }

    /// Queues a task where all look: it is not a normal one, or nobody looks here for some time.
    #[cold]
    fn push_away(&self, task: T, how: Placement) -> bool {
        match self.scheduler.put_where_all_look(task, how) {
            Ok(()) => true,
            Err(task) => {
                // As in `Scheduler::schedule_elsewhere`, save that its drop may wake others, who must find this worker at home.
                self.queues.keep(task);
                false
            }
        }
    }

    /// Has the others look at what it holds, in the slot too: its thread is about to wait for something.
    fn share(&self) {
        if !self.queues.is_empty() {
            self.scheduler.notify();
        }
    }

    /// Has somebody else take over what this thread, if it is a worker, holds: it is about to block.
    pub(crate) fn hand_over_here() {
        let Some(local) = Self::here() else { return };
        if local.scheduler.hand_over(local.slot, None) {
            local.scheduler.observe(local.slot, WorkerState::Blocked, None);
        }
    }

    /// The worker that this thread is, whatever scheduler's, [shares](Self::share).
    pub(super) fn share_here() {
        if let Some(local) = Self::here() {
            local.share();
        }
    }

    /// The order in which a worker looks for work that is near.
    #[inline]
    fn look(&self) -> Option<T> {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        if looks.is_multiple_of(GLOBAL_EVERY) {
            // Now and then the global queue and the timers first, whatever waits here.
            self.turn_driver();
            if let Some(task) = self.take_global() {
                return Some(task);
            }
        }
        // Those who are not normal, at the looks that are theirs.
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
        // What waits here.
        if let Some(task) = self.queues.next() {
            return Some(task);
        }
        self.look_further()
    }

    #[inline(never)]
    fn look_further(&self) -> Option<T> {
        // What came from outside, or was too much for somebody.
        if let Some(task) = self.take_global() {
            return Some(task);
        }
        // What is due: it wakes tasks into the queues of this worker.
        self.turn_driver();
        self.queues.next().or_else(|| self.take_ranked())
    }

    fn take_ranked(&self) -> Option<T> {
        if self.scheduler.priorities.is_empty() { None } else { self.scheduler.priorities.last() }
    }

    fn take_global(&self) -> Option<T> {
        let refill = |more: Drain<'_, T>| self.queues.refill(more);
        self.scheduler.global.take(self.scheduler.present(), T::lead, refill)
    }

    /// Fires what is due; what that wakes goes to the queues of this worker.
    fn turn_driver(&self) {
        if self.scheduler.driver.wait().is_some_and(|wait| wait.is_zero()) {
            if self.searching.get() {
                self.ends_search();
            }
            // As a task's: a waker is user code.
            let _ = catch_unwind(AssertUnwindSafe(|| self.scheduler.driver.turn()));
        }
    }

    /// Passes over all others that are awake, in random order, up to four times; takes half of what one has, and on
    /// the last pass what is in its slot.
    fn steal(&self, passes: u32) -> Option<T> {
        let scheduler = &self.scheduler;
        let metrics = &scheduler.metrics;
        let remotes = scheduler.remotes();
        let (count, others) = (remotes.len(), remotes.len() - 1);
        for pass in 0..passes {
            let last = pass + 1 == passes;
            // Round from a random one. Those that were never occupied do not count: whoever comes after them would be first
            // nearly always.
            let start = self.rng.borrow_mut().below(others);
            let mut lost_a_race = false;
            for victim in (start..others).chain(0..start).map(|n| (self.slot + 1 + n) % count) {
                let remote = &remotes[victim];
                if remote.is_empty() || scheduler.idle.is_sleeping(victim) {
                    continue;
                }
                metrics.add(Counter::StealsTried, 1);
                let mut stolen = remote.steal_half(&self.queues);
                if last && stolen.is_empty() {
                    // The victim is about to run this one itself: only for want of anything else.
                    stolen = remote.steal_slot();
                }
                match stolen {
                    Steal::Success(task) => {
                        metrics.add(Counter::StealsWon, 1);
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

    #[cfg(test)]
    pub(super) fn steal_once(&self) -> Option<T> {
        self.steal(PASSES)
    }

    /// The next task, from near or from far; `rounds` says how long to search.
    #[inline]
    pub(super) fn find(&self, rounds: u32) -> Option<T> {
        let task = self.look().or_else(|| self.search(rounds))?;
        if self.searching.get() || self.kept_time.get() {
            self.has_found();
        }
        Some(task)
    }

    /// It has come from sleep, or from far, and found something.
    #[cold]
    fn has_found(&self) {
        if self.searching.take() && self.scheduler.idle.stop_searching() {
            // The last one that searched has found something, and every push kept still for it. What comes from now on is
            // told by whoever pushes it; what is there already is seen here.
            if self.scheduler.has_work() && !planted!("idle_last_searcher_keeps_quiet") {
                self.scheduler.notify();
            }
        }
        if self.kept_time.take() && self.scheduler.is_untimed() && !planted!("idle_keeper_keeps_quiet") {
            // It may be long before this worker looks at the timers again: another worker is woken to keep the time.
            self.scheduler.notify();
        }
    }

    /// Ends its search before it calls wakers, which are user code and may block: a searcher that blocks keeps others from
    /// searching, and every push relies on it.
    #[cold]
    fn ends_search(&self) {
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
            if round < TIGHT_ROUNDS {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        None
    }

    /// Runs a task. A panic that gets here is no process's, for those are caught in their task: the worker lives on.
    #[inline]
    pub(super) fn run(&self, task: T) {
        self.enter(WorkerState::Running);
        let (label, begun) = task.begin();
        self.post.set_label(label);
        self.scheduler.metrics.add_in(self.slot, Counter::Polls, 1);
        let _ = catch_unwind(AssertUnwindSafe(|| task.run(begun)));
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
    }

    /// Somebody stood in for this worker during its last step. False if that one stays, and this one has to go.
    #[cold]
    pub(super) fn come_back(&self) -> bool {
        self.state.set(WorkerState::Blocked);
        if self.post.is_lent() {
            self.post.resume();
            return true;
        }
        self.scheduler.comes_back(self.slot)
    }

    /// What is run next is its lender's own future.
    pub(super) fn enter_own_future(&self) {
        self.enter(WorkerState::Running);
        self.post.set_label(OWN_FUTURE);
    }

    /// What its lender ran has returned.
    pub(super) fn has_run(&self) {
        if self.post.is_taken() {
            let _stays = self.come_back();
        }
    }

    /// This place runs tasks only while an executor polls it with this waker.
    pub(super) fn is_polled_with(&self, waker: &Waker) {
        self.polled.set(true);
        self.scheduler.idle.parks_as_waker(self.slot, waker);
    }

    /// Says that this place sleeps.
    fn announce(&self) {
        let scheduler = &self.scheduler;
        if self.polled.get() {
            // It does not keep the time for the others, because it may never be polled again.
            return scheduler.idle.announce_polled(self.slot, self.searching.take());
        }
        // Before it sleeps: otherwise each timer that is set in a row of timers would wake it, as a worker that has not
        // looked at the time.
        if scheduler.idle.keep_time(self.slot) {
            let _ = scheduler.driver.keep_time();
        }
        scheduler.idle.announce(self.slot, self.searching.take());
        // The former timekeeper may have given the time up since, and told no other place, because this one counted as
        // searching. After the announcement one of the two sees the other.
        if scheduler.is_untimed() && !planted!("idle_office_is_left_empty") && scheduler.idle.keep_time(self.slot) {
            let _ = scheduler.driver.keep_time();
        }
    }

    /// Says that it goes to sleep and looks at every queue once more; true if there really is nothing.
    pub(super) fn may_sleep(&self) -> bool {
        let scheduler = &self.scheduler;
        self.announce();
        // A stop needs no look: it sets the tokens of all.
        if scheduler.has_work() && !planted!("idle_no_second_look") {
            self.wake_up();
            // What is there may have come while this one counted as searching, and then nobody was told of it: it
            // searches again, so that it wakes the next when it finds the first of it.
            self.searching.set(self.searching.get() || scheduler.idle.start_searching(scheduler.present()));
            if !self.searching.get() {
                // Or it comes round until one of those who search already has it, who may need this core for that.
                thread::yield_now();
            }
            return false;
        }
        scheduler.metrics.add(Counter::Parks, 1);
        self.enter(WorkerState::Parked);
        true
    }

    /// Takes back that it sleeps.
    pub(super) fn wake_up(&self) {
        if self.polled.get() {
            return self.scheduler.idle.retract_polled(self.slot);
        }
        if self.scheduler.idle.retract(self.slot) == Woken::Chosen {
            self.searching.set(true);
        }
        if self.stop_keeping_time() {
            self.kept_time.set(true);
        }
    }

    /// Gives up to keep the time; true if it did.
    fn stop_keeping_time(&self) -> bool {
        let scheduler = &self.scheduler;
        if scheduler.idle.timekeeper() != Some(self.slot) {
            return false;
        }
        // First, while nobody else can have begun: what that one says stays.
        scheduler.driver.keeps_no_time();
        scheduler.idle.stop_keeping_time(self.slot)
    }

    /// How long this one may sleep: until the nearest deadline if it keeps the time.
    pub(super) fn time_to_keep(&self) -> Option<Duration> {
        // The deadline may have come nearer since this one took the office.
        if self.scheduler.idle.timekeeper() == Some(self.slot) { self.scheduler.driver.keep_time() } else { None }
    }

    /// How long until the nearest deadline, unless a sleeping thread keeps the time. A polled place asks after it has
    /// announced that it sleeps. A thread that gives the time up later then sees that this place sleeps, and wakes it.
    pub(super) fn time_if_unkept(&self) -> Option<Duration> {
        if self.scheduler.idle.timekeeper().is_some() { None } else { self.scheduler.driver.wait() }
    }

    pub(super) fn now(&self) -> Duration {
        self.scheduler.driver.now()
    }

    /// The clock was read between two tasks: fires what is due.
    #[inline]
    pub(super) fn fire_due(&self, now: Duration) {
        self.scheduler.fire_due(now);
    }

    /// A polled place returns to its executor before it has run out of tasks. The executor may never poll it again: so it
    /// does not count as searching, and other places are told of what is in its queues.
    #[cold]
    pub(super) fn pause(&self) {
        if self.searching.take() && self.scheduler.idle.stop_searching() && self.scheduler.has_work() {
            self.scheduler.notify();
        }
        self.enter(WorkerState::Parked);
        self.share();
    }

    /// The whole life of a worker thread.
    pub(super) fn work(self) {
        let local = self.sit();
        let scheduler = &local.scheduler;
        scheduler.worker_threads.with(|threads| threads.push(this_thread()));
        scheduler.idle.parks_as_thread(local.slot);
        scheduler.options.hooks.seated(local.slot);
        local.serve();
        scheduler.worker_threads.with(|threads| threads.retain(|thread| *thread != this_thread()));
        local.rise().leave();
    }

    /// Runs tasks until it is told to go.
    fn serve(&self) {
        loop {
            // Also of one that found nothing: its last step may have been taken for long just when it returned.
            if self.post.is_taken() && !self.come_back() {
                return;
            }
            if self.scheduler.orders() != 0 && self.is_told_to_go() {
                return;
            }
            match self.find(self.rounds.get()) {
                Some(task) => self.run(task),
                None => self.sleep(),
            }
        }
    }

    #[cold]
    fn is_told_to_go(&self) -> bool {
        let scheduler = &self.scheduler;
        scheduler.is_stopping() || scheduler.orders() & TOO_MANY != 0 && scheduler.is_one_too_many(self.slot)
    }

    /// Sleeps until there may be something to do.
    #[cold]
    fn sleep(&self) {
        if self.post.is_taken() || !self.may_sleep() {
            return;
        }
        let scheduler = &self.scheduler;
        Self::aside(|| {
            hooks::call(scheduler.options.hooks.park.as_ref());
            let began = scheduler.driver.now();
            scheduler.idle.park(self.slot, self.time_to_keep());
            self.learn(scheduler.driver.now().saturating_sub(began));
            self.wake_up();
            hooks::call(scheduler.options.hooks.unpark.as_ref());
        });
    }

    /// It searched, found nothing, and slept so long. To search for as long as a sleep costs is at most twice what is best
    /// (Karlin, Li, Manasse and Owicki, "Empirical Studies of Competitive Spinning for a Shared-Memory Multiprocessor", 1991);
    /// and where it was in vain again and again it is halved.
    fn learn(&self, slept: Duration) {
        let rounds = self.rounds.get();
        self.rounds.set(if slept < SHORT_SLEEP { ROUNDS } else { (rounds / 2).max(1) });
    }

    /// Leaves the slot: what is queued here goes to all, and a wake that was meant for this one to somebody else.
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
        // Whoever watches sees nobody run or search where nobody is.
        self.enter(WorkerState::Parked);
        let Local { slot, queues, .. } = self;
        scheduler.vacate(slot, queues);
        drop(rest);
        // A lender gives the time-keeping up whenever it is polled: not whether this one did it just now is asked, but
        // whether anybody does.
        let passes_on = searched && !planted!("idle_leaver_keeps_wake");
        if brought || passes_on || scheduler.is_untimed() {
            scheduler.notify();
        }
    }
}
