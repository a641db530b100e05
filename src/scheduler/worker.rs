//! What a worker does: look for work in the order below, run it, and sleep when there is none.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_deque::Steal;

use super::crew::TOO_MANY;
use super::hooks;
use super::idle::Woken;
use super::post::{OWN_FUTURE, Post};
use super::queue::{Pushed, Queues};
use super::{Placement, Scheduler, Task};
use crate::chance::Rng;
use crate::observe::{Counter, WorkerState};
use crate::preempt::Seat;
use crate::sync::{Arc, hint, planted, thread, thread_local};

/// How many tasks run from the slot in a row while others wait.
const SLOT_BUDGET: u8 = 16;
/// Every so many looks begin with the global queue and the timers, so that busy local queues starve neither.
const GLOBAL_EVERY: u32 = 61;
/// Where the newest is first, every so many looks take the oldest.
const OLDEST_EVERY: u32 = 16;
/// These are no looks that others have a right to, see `ranks.rs`.
const OLDEST_AT: u32 = 8;
/// How often a search passes over all victims.
const PASSES: u32 = 4;
/// Rounds of a search that follow each other at once; then the thread is yielded in between.
const TIGHT_ROUNDS: u32 = 4;
/// Rounds of a search before the worker sleeps.
const ROUNDS: u32 = if cfg!(procession_loom) { 1 } else { 16 };

thread_local! {
    /// The scheduler whose worker thread this is, by address; 0 for none.
    static WORKER_OF: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is a worker of the scheduler at this address.
pub(super) fn is_worker_thread(address: usize) -> bool {
    WORKER_OF.with(Cell::get) == address
}

/// A worker, as the thread that is it holds it. While a task runs it is in [`Task::current`], so that what the task
/// wakes finds its way into the local queues.
pub(crate) struct Local<T: Task> {
    scheduler: Arc<Scheduler<T>>,
    slot: usize,
    post: Arc<Post>,
    queues: Queues<T>,
    looks: u32,
    slot_budget: u8,
    searching: bool,
    /// It kept the time when it woke up, and has not passed that on.
    kept_time: bool,
    rng: Rng,
    state: WorkerState,
}

impl<T: Task> std::fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("slot", &self.slot).field("searching", &self.searching).finish_non_exhaustive()
    }
}

impl<T: Task> Local<T> {
    pub(super) fn new(scheduler: Arc<Scheduler<T>>, slot: usize, queues: Queues<T>) -> Self {
        let rng = Rng::seeded(scheduler.options.seed ^ (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            post: Arc::clone(&scheduler.posts[slot]),
            scheduler,
            slot,
            queues,
            looks: 0,
            slot_budget: SLOT_BUDGET,
            searching: false,
            kept_time: false,
            rng,
            state: WorkerState::Parked,
        }
    }

    pub(super) fn scheduler(&self) -> &Arc<Scheduler<T>> {
        &self.scheduler
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// This thread looks whether whom it runs here is asked to let others run, until what is returned is dropped.
    pub(super) fn sit(&self) -> Seat {
        self.post.asked().sit()
    }

    pub(super) fn is_of(&self, address: usize) -> bool {
        Arc::as_ptr(&self.scheduler) as usize == address
    }

    /// Queues a task that the running one woke, spawned, or is.
    #[inline]
    pub(super) fn push(&mut self, task: T, how: Placement) {
        if self.post.is_taken() || matches!(how, Placement::Ranked(_)) {
            self.push_away(task, how);
            return;
        }
        let to_slot = how == Placement::Woken && !(self.scheduler.options.shuffle && self.rng.below(2) == 0);
        let alone = self.queues.is_empty();
        let pushed = match how {
            Placement::Woken if to_slot => self.queues.push_next(task),
            Placement::Woken => self.queues.push_back(task),
            Placement::Yielded if self.queues.is_lifo() => return self.push_behind(task, alone),
            Placement::Yielded | Placement::Ranked(_) => self.queues.push_again(task),
        };
        match pushed {
            // It runs here as soon as this task returns. Waking a second worker for it costs more than it gains.
            Pushed::ToSlot => {}
            // One that yields to nobody needs nobody's help either.
            Pushed::ToDeque if alone => {}
            // Somebody was told when the first of these came, and whoever finds one of them tells the next.
            Pushed::ToDeque if self.queues.waiting() > 2 => {}
            Pushed::ToDeque => self.scheduler.notify(),
            Pushed::BatchFull => {
                self.scheduler.metrics.add(Counter::Overflows, 1);
                self.queues.overflow(&self.scheduler.global);
                self.scheduler.notify();
            }
        }
    }

    /// Queues a task behind all that waits here, where the newest is first: that is in the queue that all share. One that
    /// yields to nobody needs nobody's help: this worker comes to it.
    #[cold]
    fn push_behind(&mut self, task: T, alone: bool) {
        match self.scheduler.global.push(task) {
            Ok(()) if alone => {}
            Ok(()) => self.scheduler.notify(),
            Err(task) => self.queues.keep(task),
        }
    }

    /// Queues a task where all look: it is not a normal one, or the running step is long, and nobody looks here for some
    /// time.
    #[cold]
    fn push_away(&mut self, task: T, how: Placement) {
        if let Err(task) = self.scheduler.share(task, how) {
            // As in `Scheduler::schedule`, save that its drop may wake others, who must find this worker at home.
            self.queues.keep(task);
        }
    }

    /// Has the others look at what it holds, in the slot too: its thread is about to wait for something.
    fn share(&mut self) {
        if !self.queues.is_empty() {
            self.scheduler.notify();
        }
    }

    /// Has somebody else take over what this thread, if it is a worker, holds: it is about to block.
    pub(crate) fn hand_over_here() {
        let current = T::current();
        let Ok(Some(local)) = current.try_with(Cell::take) else { return };
        let (scheduler, slot) = (Arc::clone(&local.scheduler), local.slot);
        current.with(|current| current.set(Some(local)));
        if scheduler.hand_over(slot, None) {
            scheduler.observe(slot, WorkerState::Blocked, None);
        }
    }

    /// The worker that this thread is, whatever scheduler's, [shares](Self::share).
    pub(super) fn share_here() {
        let current = T::current();
        if let Ok(Some(mut outer)) = current.try_with(Cell::take) {
            outer.share();
            current.with(|current| current.set(Some(outer)));
        }
    }

    /// The order in which a worker looks for work that is near.
    fn look(mut self: Box<Self>) -> (Box<Self>, Option<T>) {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(GLOBAL_EVERY) {
            // Now and then the global queue and the timers first, whatever waits here.
            self = self.turn_driver();
            if let Some(task) = self.take_global() {
                return (self, Some(task));
            }
        }
        // Those who are not normal, at the looks that are theirs.
        if !self.scheduler.ranks.is_empty()
            && let Some(task) = self.scheduler.ranks.first(self.looks)
        {
            return (self, Some(task));
        }
        if self.queues.is_lifo()
            && self.looks % OLDEST_EVERY == OLDEST_AT
            && let Some(task) = self.queues.pop_oldest()
        {
            return (self, Some(task));
        }
        // What the last task woke, within the budget that such tasks share.
        if let Some(task) = self.next_from_slot() {
            return (self, Some(task));
        }
        // What waits here, in its order.
        if let Some(task) = self.queues.pop() {
            self.slot_budget = SLOT_BUDGET;
            return (self, Some(task));
        }
        // What came from outside, or was too much for somebody.
        if let Some(task) = self.take_global() {
            return (self, Some(task));
        }
        // What is due: it wakes tasks into the queues of this worker.
        self = self.turn_driver();
        let task = self.queues.pop_slot().or_else(|| self.queues.pop()).or_else(|| self.take_ranked());
        (self, task)
    }

    fn next_from_slot(&mut self) -> Option<T> {
        if self.slot_budget > 0 {
            let task = self.queues.pop_slot()?;
            self.slot_budget -= 1;
            return Some(task);
        }
        self.slot_budget = SLOT_BUDGET;
        let task = self.queues.pop_slot()?;
        if self.queues.nothing_behind() {
            // Nobody waits: a pair that plays alone goes on, and wakes no second worker.
            return Some(task);
        }
        // Behind the others for once. Somebody has been told of those already.
        if self.queues.push_back(task) == Pushed::BatchFull {
            self.scheduler.metrics.add(Counter::Overflows, 1);
            self.queues.overflow(&self.scheduler.global);
        }
        None
    }

    fn take_ranked(&self) -> Option<T> {
        if self.scheduler.ranks.is_empty() { None } else { self.scheduler.ranks.last() }
    }

    fn take_global(&mut self) -> Option<T> {
        self.scheduler.global.take(&self.queues, self.scheduler.present())
    }

    /// Fires what is due. It runs as a task does, so that what it wakes goes to the queues of this worker.
    fn turn_driver(self: Box<Self>) -> Box<Self> {
        if self.scheduler.driver.wait().is_none_or(|wait| !wait.is_zero()) {
            return self;
        }
        let scheduler = Arc::clone(&self.scheduler);
        self.away(|| scheduler.driver.turn()).0
    }

    /// Runs something while this worker stands in [`Task::current`].
    pub(super) fn away<R>(self: Box<Self>, f: impl FnOnce() -> R) -> (Box<Self>, Option<R>) {
        let current = T::current();
        let outer = current.with(|current| current.replace(Some(self)));
        let result = catch_unwind(AssertUnwindSafe(f));
        let local = current.with(|current| current.replace(outer)).expect("whoever takes the worker out puts it back");
        (local, result.ok())
    }

    /// Passes over all others that are awake, in random order, up to four times; takes half of what one has, and on
    /// the last pass what is in its slot.
    fn steal(&mut self, passes: u32) -> Option<T> {
        let scheduler = Arc::clone(&self.scheduler);
        let metrics = &scheduler.metrics;
        let remotes = scheduler.remotes();
        let (count, others) = (remotes.len(), remotes.len() - 1);
        for pass in 0..passes {
            let last = pass + 1 == passes;
            // Round from a random one. Those that were never occupied do not count: whoever comes after them would be first
            // nearly always.
            let start = self.rng.below(others);
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
            if !lost_a_race && !last && remotes.iter().all(super::Remote::is_empty) {
                return None;
            }
        }
        None
    }

    #[cfg(test)]
    pub(super) fn steal_once(&mut self) -> Option<T> {
        self.steal(PASSES)
    }

    /// The next task, from near or from far; `rounds` says how long to search.
    pub(super) fn find(mut self: Box<Self>, rounds: u32) -> (Box<Self>, Option<T>) {
        let (local, mut task) = self.look();
        self = local;
        if task.is_none() {
            task = self.search(rounds);
        }
        if task.is_some() && std::mem::take(&mut self.searching) && self.scheduler.idle.stop_searching() {
            // The last one that searched has found something: where that was there may be more.
            if !planted!("idle_last_searcher_keeps_quiet") {
                self.scheduler.notify();
            }
        }
        if task.is_some() && std::mem::take(&mut self.kept_time) && self.scheduler.is_untimed() {
            // It may be long before this one looks at the timers again: another sleeper keeps the time.
            self.scheduler.notify();
        }
        (self, task)
    }

    fn search(&mut self, rounds: u32) -> Option<T> {
        self.enter(WorkerState::Searching);
        if !self.searching {
            self.searching = self.scheduler.idle.start_searching(self.scheduler.present());
            if !self.searching {
                return None;
            }
        }
        for round in 0..rounds {
            if let Some(task) = self.steal(PASSES).or_else(|| self.take_global()).or_else(|| self.take_ranked()) {
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
    pub(super) fn run(mut self: Box<Self>, task: T) -> Box<Self> {
        self.enter(WorkerState::Running);
        let (label, begun) = task.begin();
        self.post.set_label(label);
        self.scheduler.metrics.add(Counter::Polls, 1);
        self.away(|| task.run(begun)).0
    }

    #[inline]
    pub(super) fn enter(&mut self, state: WorkerState) {
        if self.state != state {
            self.change(state);
        }
    }

    #[cold]
    fn change(&mut self, state: WorkerState) {
        let former = std::mem::replace(&mut self.state, state);
        if state == WorkerState::Running {
            self.post.begin();
            if self.scheduler.monitor.is_asleep() {
                self.scheduler.call_monitor();
            }
        } else if former == WorkerState::Running {
            self.post.rest();
        }
        self.scheduler.observe(self.slot, state, None);
    }

    /// Somebody stood in for this worker during its last step. False if that one stays, and this one has to go.
    #[cold]
    pub(super) fn come_back(&mut self) -> bool {
        self.state = WorkerState::Blocked;
        if self.post.is_lent() {
            self.post.resume();
            return true;
        }
        self.scheduler.comes_back(self.slot)
    }

    /// What is run next is its lender's own future.
    pub(super) fn enter_own_future(&mut self) {
        self.enter(WorkerState::Running);
        self.post.set_label(OWN_FUTURE);
    }

    /// What its lender ran has returned.
    pub(super) fn has_run(&mut self) {
        if self.post.is_taken() {
            let _stays = self.come_back();
        }
    }

    /// Says that it goes to sleep and looks at every queue once more; true if there really is nothing.
    pub(super) fn may_sleep(&mut self) -> bool {
        let scheduler = Arc::clone(&self.scheduler);
        // Before it sleeps: otherwise who sets one timer after the other would wake it for each, as one that has not
        // looked at the time.
        if scheduler.idle.keep_time(self.slot) {
            let _ = scheduler.driver.keep_time();
        }
        scheduler.idle.announce(self.slot, std::mem::take(&mut self.searching));
        // A stop needs no look: it sets the tokens of all.
        if scheduler.has_work() && !planted!("idle_no_second_look") {
            self.wake_up();
            // What is there may have come while this one counted as searching, and then nobody was told of it: it
            // searches again, so that it wakes the next when it finds the first of it.
            self.searching = self.searching || scheduler.idle.start_searching(scheduler.present());
            if !self.searching {
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
    pub(super) fn wake_up(&mut self) {
        if self.scheduler.idle.retract(self.slot) == Woken::Chosen {
            self.searching = true;
        }
        self.kept_time |= self.stop_keeping_time();
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
    pub(super) fn time_to_keep(&self) -> Option<std::time::Duration> {
        // The deadline may have come nearer since this one took the office.
        if self.scheduler.idle.timekeeper() == Some(self.slot) { self.scheduler.driver.keep_time() } else { None }
    }

    /// The whole life of a worker thread.
    pub(super) fn work(self: Box<Self>) {
        let mut local = self;
        let scheduler = Arc::clone(&local.scheduler);
        let _counting = scheduler.metrics.enter(local.slot);
        let _seat = local.sit();
        WORKER_OF.with(|of| of.set(Arc::as_ptr(&scheduler) as usize));
        scheduler.idle.parks_as_thread(local.slot);
        scheduler.options.hooks.seated(local.slot);
        loop {
            let orders = scheduler.orders();
            if orders != 0
                && (scheduler.is_stopping() || orders & TOO_MANY != 0 && scheduler.is_one_too_many(local.slot))
            {
                break;
            }
            let (found, task) = local.find(ROUNDS);
            local = found;
            let found = task.is_some();
            if let Some(task) = task {
                local = local.run(task);
            }
            // Also of one that found nothing: its last step may have been taken for long just when it returned.
            if local.post.is_taken() && !local.come_back() {
                break;
            }
            if !found && local.may_sleep() {
                hooks::call(scheduler.options.hooks.park.as_ref());
                scheduler.idle.park(local.slot, local.time_to_keep());
                local.wake_up();
                hooks::call(scheduler.options.hooks.unpark.as_ref());
            }
        }
        WORKER_OF.with(|of| of.set(0));
        local.leave();
    }

    /// Leaves the slot: what is queued here goes to all, and a wake that was meant for this one to somebody else.
    #[expect(clippy::boxed_local, reason = "whoever calls it has it in a box")]
    pub(super) fn leave(mut self: Box<Self>) {
        let scheduler = Arc::clone(&self.scheduler);
        let mut rest = self.queues.drain();
        let brought = !rest.is_empty();
        scheduler.global.append(&mut rest);
        scheduler.idle.leaves(self.slot);
        let _ = self.stop_keeping_time();
        let searched = std::mem::take(&mut self.searching);
        if searched {
            let _last = scheduler.idle.stop_searching();
        }
        // Whoever watches sees nobody run or search where nobody is.
        self.enter(WorkerState::Parked);
        let Local { slot, queues, .. } = *self;
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
