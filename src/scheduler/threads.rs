//! The threads that are the scheduler's own: how many work, who stands in for whom, who comes and who goes.
//!
//! All of it is counted under one lock, which nobody takes while all goes well. Which thread works at which place does not
//! matter: one that comes back from a long step and finds its work done by another goes, not the other. The protocol
//! between the two is in `README.md`.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::observe::WorkerState;
use crate::platform::sync::atomic::Ordering;
use crate::platform::sync::{Arc, Mutex, MutexGuard, planted, this_thread, thread, wait_while, wait_within};
use crate::scheduler::{Local, SLOTS, Scheduler, Task, hooks};

/// How long a thread that has nothing to do any more waits to be called again: steps that block come in numbers.
const SPARE_FOR: Duration = Duration::from_millis(500);

/// How long a start that fails waits for the threads that it has started: they only run their hooks.
const STARTED_FOR: Duration = Duration::from_secs(1);

/// Orders for all workers, as bits: leave, and see whether there are too many of you.
pub(super) const STOP: usize = 1;
pub(super) const TOO_MANY: usize = 2;

/// Who works.
#[derive(Debug)]
pub(super) struct WorkerThreads<T: Task> {
    /// How many are to work.
    target: usize,
    /// How many do, or are about to.
    active: usize,
    /// How many are in a step during which others stand in for them.
    taken: usize,
    /// How many threads there are, that of the monitor included.
    threads: usize,
    /// How many of them have nothing to do.
    spare: usize,
    /// Places for those.
    calls: VecDeque<Local<T>>,
    /// How many workers were ever started, for their names.
    started: usize,
    pub(super) monitored: bool,
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
            stopping: false,
        }
    }
}

/// A thread that is counted, until it is over, also if it unwinds.
pub(super) struct RefCounted<T: Task>(Arc<Scheduler<T>>);

impl<T: Task> RefCounted<T> {
    pub(super) fn new(crew: &mut WorkerThreads<T>, scheduler: Arc<Scheduler<T>>) -> Self {
        crew.threads += 1;
        Self(scheduler)
    }
}

impl<T: Task> Drop for RefCounted<T> {
    fn drop(&mut self) {
        self.0.crew.lock().threads -= 1;
        self.0.left.notify_all();
    }
}

impl<T: Task> Scheduler<T> {
    /// Starts the worker threads.
    ///
    /// # Errors
    /// One could not be started. Those that were started have ended, unless a hook keeps one of them for a second.
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

    /// How many workers there are to be.
    pub(crate) fn workers(&self) -> usize {
        self.crew.lock().target
    }

    /// Has so many workers from now on, as many as fit at most. Those who are too many leave after the task that they run.
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
        self.notify();
    }

    /// Has one more worker, if there are too few; false if not, or if there can be no more.
    fn hire(self: &Arc<Self>) -> bool {
        let lacks = |crew: &WorkerThreads<T>| {
            // The number of substitutes is bounded, so that a thousand steps that block do not start a thousand threads. The
            // bound may be `usize::MAX`.
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
        // Vacating a place may wake somebody who waits for it: not under the lock.
        spare.into_iter().for_each(Local::leave);
        false
    }

    /// Has a thread work at this place: one that is there with nothing to do, or a new one.
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
        let counted = RefCounted::new(&mut crew, Arc::clone(self));
        crew.active += 1;
        crew.started += 1;
        // It must not be under the lock when what was to run there is dropped.
        drop(crew);
        let started = builder.spawn(move || {
            let mut work = || {
                let hooks = &counted.0.options.hooks;
                let mut next = at.lock().take();
                hooks::call(hooks.start.as_ref());
                while let Some(local) = next {
                    local.work();
                    next = counted.0.wait_for_call();
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

    /// Waits a while for a place to work at.
    fn wait_for_call(&self) -> Option<Local<T>> {
        let mut crew = self.crew.lock();
        crew.spare += 1;
        let mut over = false;
        while crew.calls.is_empty() && !crew.stopping && !over {
            (crew, over) = wait_within(&self.called, crew, SPARE_FOR);
        }
        crew.spare -= 1;
        crew.calls.pop_front()
    }

    /// Puts somebody in the place of a worker that is in a long step: still in the one with this number, if that is given.
    /// Returns whether that is so. Where nobody is to be had, those who are there come for its work.
    pub(crate) fn hand_over(self: &Arc<Self>, slot: usize, polls: Option<u64>) -> bool {
        let post = &self.posts[slot];
        let mut crew = self.crew.lock();
        if !post.take() {
            return false;
        }
        if polls.is_some_and(|polls| self.metrics.polls(slot) != polls) {
            // It has returned meanwhile, and another one has begun.
            post.give_back();
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

    /// The step during which somebody else was to stand in has returned. False if its worker is one too many now.
    pub(super) fn comes_back(&self, slot: usize) -> bool {
        let mut crew = self.crew.lock();
        self.posts[slot].resume();
        crew.taken -= 1;
        let room = crew.active < crew.target || planted!("handover_returns_anyway");
        crew.active += usize::from(room);
        // When all leave, each has to see that for itself.
        room || crew.stopping
    }

    /// How many work, and how many are away in long steps.
    #[cfg(procession_loom)]
    pub(crate) fn manned(&self) -> (usize, usize) {
        let crew = self.crew.lock();
        (crew.active, crew.taken)
    }

    /// Whether a sleeper wakes at the nearest deadline.
    #[cfg(procession_loom)]
    pub(crate) fn has_timekeeper(&self) -> bool {
        self.idle.timekeeper().is_some()
    }

    /// Whether the worker at this place is one too many; then it is counted out.
    pub(super) fn is_one_too_many(&self, slot: usize) -> bool {
        let mut crew = self.crew.lock();
        // One that was taken just now is counted out already, and will learn of that.
        let one_too_many = crew.active > crew.target && !self.posts[slot].is_taken();
        if one_too_many {
            crew.active -= 1;
            // Nobody takes it any more.
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

    /// The workers leave after the task that they run now.
    pub(crate) fn stop(&self) {
        self.orders.fetch_or(STOP, Ordering::SeqCst);
        self.crew.lock().stopping = true;
        self.called.notify_all();
        self.monitor.ring();
        (0..SLOTS).for_each(|slot| self.idle.wake(slot));
    }

    /// Waits until all workers have left; one that calls this is not waited for. False if the time is over first.
    pub(crate) fn wait_stopped(&self, within: Duration) -> bool {
        let here = usize::from(self.worker_threads.with(|threads| threads.contains(&this_thread())));
        wait_while(&self.left, self.crew.lock(), within, |crew| crew.threads > here)
    }
}
