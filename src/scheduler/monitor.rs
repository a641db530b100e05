//! The monitor: a thread that looks twice in each threshold whether a worker is still in the step that it was in, and has
//! another one take over from one that is. It reads the counters of polls, so a step reads no clock for it; it starts
//! with the first task and sleeps, without a tick, while nobody runs anything.

use std::time::Duration;

use crate::observe::{Counter, WorkerState};
use crate::platform::sync::atomic::{AtomicU8, Ordering, fence};
use crate::platform::sync::{Arc, Condvar, planted, thread, wait_while};
use crate::scheduler::slot::OWN_FUTURE;
use crate::scheduler::threads::RefCounted;
use crate::scheduler::{Scheduler, Task};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(1);
/// In how many looks in a row nobody must be seen at work before the monitor sleeps: waking it costs a worker as much as
/// waking another one.
const GRACE: u32 = 10;
/// A step that is seen so often after it was seen first is long: two looks apart lies one threshold.
const LONG: u32 = 2;

const ASLEEP: u8 = 0;
const AWAKE: u8 = 1;
/// There is none, and nobody need call it.
const OFF: u8 = 2;

/// Whether the monitor looks, and where it waits; its lock is that of the crew.
#[derive(Debug)]
pub(super) struct Monitor {
    state: AtomicU8,
    bell: Condvar,
    pause: Duration,
}

impl Monitor {
    /// One that notices steps longer than this, once there are workers; `None` for none at all.
    pub(super) fn new(threshold: Option<Duration>, workers: usize) -> Self {
        let state = if threshold.is_some() && workers != 0 { ASLEEP } else { OFF };
        let pause = threshold.map_or(SHORTEST, |threshold| (threshold / LONG).max(SHORTEST));
        Self { state: AtomicU8::new(state), bell: Condvar::new(), pause }
    }

    /// There are workers now.
    pub(super) fn enable(&self) {
        let _ = self.state.compare_exchange(OFF, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub(super) fn ring(&self) {
        self.bell.notify_all();
    }

    /// Whether somebody who begins to work has to call it.
    pub(super) fn is_asleep(&self) -> bool {
        // Pairs with the fence in `Scheduler::doze`: either this worker sees that the monitor sleeps, or the monitor sees
        // that this worker works.
        if !planted!("monitor_has_no_fence") {
            fence(Ordering::SeqCst);
        }
        self.state.load(Ordering::Relaxed) == ASLEEP
    }
}

/// What was seen of one place.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    polls: u64,
    /// In how many looks in a row since the first.
    times: u32,
}

impl<T: Task> Scheduler<T> {
    /// Somebody begins to work: the monitor has to look. Without a thread to be had there is none until the next call.
    #[cold]
    pub(super) fn call_monitor(self: &Arc<Self>) {
        let mut crew = self.crew.lock();
        if crew.stopping || self.monitor.state.load(Ordering::SeqCst) != ASLEEP {
            return;
        }
        self.monitor.state.store(AWAKE, Ordering::SeqCst);
        if std::mem::replace(&mut crew.monitored, true) {
            drop(crew);
            self.monitor.ring();
            return;
        }
        let counted = RefCounted::new(&mut crew, Arc::clone(self));
        drop(crew);
        let scheduler = Arc::clone(self);
        let name = format!("{}-monitor", self.options.name);
        if thread::Builder::new().name(name).spawn(move || scheduler.monitor(counted)).is_err() {
            self.crew.lock().monitored = false;
            self.monitor.state.store(ASLEEP, Ordering::SeqCst);
        }
    }

    /// The whole life of the monitor's thread.
    fn monitor(self: Arc<Self>, counted: RefCounted<T>) {
        let mut seen = vec![None; self.posts.len()];
        let mut quiet = 0;
        while self.pause() {
            let mut busy = false;
            for (slot, seen) in seen.iter_mut().enumerate().take(self.remotes().len()) {
                busy |= self.look_at(slot, seen);
            }
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet == GRACE {
                quiet = 0;
                self.doze();
            }
        }
        drop(counted);
    }

    /// Waits for the next look; false when it is time to leave.
    fn pause(&self) -> bool {
        !wait_while(&self.monitor.bell, self.crew.lock(), self.monitor.pause, |crew| !crew.stopping)
    }

    /// Sleeps until somebody works.
    fn doze(&self) {
        self.monitor.state.store(ASLEEP, Ordering::SeqCst);
        // Pairs with the fence in `Monitor::is_asleep`.
        if !planted!("monitor_has_no_fence") {
            fence(Ordering::SeqCst);
        }
        if self.posts.iter().any(|post| post.is_busy()) {
            self.monitor.state.store(AWAKE, Ordering::SeqCst);
            return;
        }
        let asleep = || self.monitor.state.load(Ordering::SeqCst) == ASLEEP;
        while !wait_while(&self.monitor.bell, self.crew.lock(), Duration::MAX, |crew| !crew.stopping && asleep()) {}
    }

    /// Has somebody come for what the step of a place that was taken pushed before it knew: nobody was told of what went to
    /// the next slot.
    pub(crate) fn rescue(&self, slot: usize) {
        if !self.remotes[slot].is_empty() && !planted!("handover_is_no_rescue") {
            self.notify();
        }
    }

    /// Looks at one place; true if somebody works there.
    fn look_at(self: &Arc<Self>, slot: usize, seen: &mut Option<Seen>) -> bool {
        let post = &self.posts[slot];
        if !post.is_busy() {
            *seen = None;
            return false;
        }
        if post.is_taken() {
            *seen = None;
            self.rescue(slot);
            return true;
        }
        let polls = self.metrics.polls(slot);
        match seen {
            Some(seen) if seen.polls == polls => {
                seen.times += 1;
                // It may be one that can let others run, if it is told.
                let label = post.label();
                post.ask(label);
                if seen.times >= LONG && self.hand_over(slot, Some(polls)) && label != OWN_FUTURE {
                    self.metrics.add(Counter::LongSteps, 1);
                    self.observe(slot, WorkerState::Blocked, Some(label));
                }
            }
            _ => *seen = Some(Seen { polls, times: 0 }),
        }
        true
    }

    /// For a model, whose thread is the monitor.
    #[cfg(procession_loom)]
    pub(crate) fn has_a_monitor(&self) {
        self.monitor.state.store(AWAKE, Ordering::SeqCst);
        self.crew.lock().monitored = true;
    }

    /// Sleeps until a worker works; for a model.
    #[cfg(procession_loom)]
    pub(crate) fn sleep_as_monitor(&self) {
        self.doze();
    }

    /// Begins to work at a free place; for a model.
    #[cfg(procession_loom)]
    pub(crate) fn begin_as_worker(self: &Arc<Self>) {
        let local = self.occupy(false).expect("no place is taken yet");
        local.enter(WorkerState::Running);
    }
}
