//! The monitor is a thread that detects long steps. A step is long if it takes longer than a threshold. The pause
//! between two checks of the monitor is half of the threshold. At each check, the monitor tests whether each worker is
//! still in the same step. If a step is long, the monitor starts a replacement thread, and other workers steal the
//! tasks in the queues of the blocked worker.
//!
//! Each worker counts its polls, and the monitor compares these counts. Therefore no step has to read a clock. The
//! monitor thread starts when the first task runs. While no worker runs tasks, the monitor sleeps without periodic
//! wake-ups.

use std::time::Duration;

use crate::observe::{Counter, WorkerState};
use crate::platform::sync::atomic::{AtomicU8, Ordering, fence};
use crate::platform::sync::{Arc, Condvar, planted, thread, wait_while};
use crate::scheduler::slot::OWN_FUTURE;
use crate::scheduler::threads::CountedThread;
use crate::scheduler::{LONGEST_DELAY, Scheduler, Task};

/// Shortest time between two checks.
const SHORTEST: Duration = Duration::from_millis(1);
/// If this number of successive checks find no busy worker, the monitor sleeps. A worker must later wake the monitor,
/// and this wake-up costs as much as the wake-up of another worker.
const GRACE: u32 = 10;
/// Pause after a check that found no busy worker, in multiples of the usual pause. The longer pause saves wake-ups of
/// the monitor thread. If a step begins after a check that found no busy worker, the monitor hands over this step after
/// at most 2 + [`LONG`] usual pauses: see [`bound`](Monitor::bound). With the value 1, the monitor took 23 % of the CPU
/// time in the row `pause` of the bench `sockets`.
const IDLE_PAUSES: u32 = 2;
/// A step counts as long if the monitor sees the same step in a first check and in this number of further checks. The
/// pause between two checks is the threshold divided by this number.
const LONG: u32 = 2;

/// Number of checks between two attempts to start a replacement thread, if the system refuses to start this thread.
const HIRE_EVERY: u32 = 16;

const ASLEEP: u8 = 0;
const AWAKE: u8 = 1;
/// The monitor is turned off. In this state, no worker wakes the monitor.
const OFF: u8 = 2;

/// State of the monitor. The condition variable of the monitor belongs to the lock of the worker threads.
#[derive(Debug)]
pub(super) struct Monitor {
    state: AtomicU8,
    bell: Condvar,
    pause: Duration,
}

impl Monitor {
    /// Creates the state of a monitor that detects steps longer than `threshold`. The monitor is off while there are no
    /// worker threads. If `threshold` is `None`, the monitor is always off.
    pub(super) fn new(threshold: Option<Duration>, workers: usize) -> Self {
        let state = if threshold.is_some() && workers != 0 { ASLEEP } else { OFF };
        let pause = threshold.map_or(SHORTEST, |threshold| (threshold / LONG).max(SHORTEST));
        Self { state: AtomicU8::new(state), bell: Condvar::new(), pause }
    }

    /// Turns the monitor on, because there are worker threads now.
    pub(super) fn enable(&self) {
        let _ = self.state.compare_exchange(OFF, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns the maximum time until the monitor notices a long step. This time does not include the delays of the
    /// system's timers. Returns `None` if the monitor is off.
    pub(super) fn bound(&self) -> Option<Duration> {
        let is_on = self.state.load(Ordering::Relaxed) != OFF;
        is_on.then(|| self.pause.saturating_mul(IDLE_PAUSES + LONG))
    }

    /// Returns true if the monitor is on and notices a long step or a blocked waker within [`LONGEST_DELAY`].
    pub(super) fn is_fast(&self) -> bool {
        self.bound().is_some_and(|bound| bound <= LONGEST_DELAY)
    }

    pub(super) fn ring(&self) {
        self.bell.notify_all();
    }

    /// Returns whether a worker that begins to run tasks must wake the monitor.
    pub(super) fn is_asleep(&self) -> bool {
        // Pairs with the fence in `Scheduler::doze`. Either this worker sees that the monitor sleeps, or the monitor
        // sees that this worker is busy.
        if !planted!("monitor_has_no_fence") {
            fence(Ordering::SeqCst);
        }
        self.state.load(Ordering::Relaxed) == ASLEEP
    }
}

/// The observations of one worker in the last checks of the monitor.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    step: u64,
    /// Time of the first check that saw the step.
    since: Duration,
    /// Number of later checks that found the same step number.
    times: u32,
}

impl<T: Task> Scheduler<T> {
    /// Wakes or starts the monitor, because a worker begins to run tasks. If the thread of the monitor cannot be
    /// started, the next call tries to start this thread again.
    #[cold]
    pub(super) fn call_monitor(self: &Arc<Self>) {
        let mut worker_threads = self.worker_threads.lock();
        if worker_threads.stopping || self.monitor.state.load(Ordering::SeqCst) != ASLEEP {
            return;
        }
        self.monitor.state.store(AWAKE, Ordering::SeqCst);
        // While the monitor slept, the monitor did not update the time that the driver stores.
        let _ = self.driver.now();
        if std::mem::replace(&mut worker_threads.monitored, true) {
            drop(worker_threads);
            self.monitor.ring();
            return;
        }
        let counted = CountedThread::new(&mut worker_threads, Arc::clone(self));
        drop(worker_threads);
        let scheduler = Arc::clone(self);
        let name = format!("{}-mon", self.options.name);
        if thread::Builder::new().name(name).spawn(move || scheduler.monitor(counted)).is_err() {
            self.worker_threads.lock().monitored = false;
            self.monitor.state.store(ASLEEP, Ordering::SeqCst);
        }
    }

    /// Main function of the monitor's thread.
    fn monitor(self: Arc<Self>, mut counted: CountedThread<T>) {
        counted.begins();
        let mut seen = vec![None; self.worker_slots.len()];
        let mut quiet = 0;
        let (mut was_untimed, mut checks) = (false, 0_u32);
        while self.pause(if quiet == 0 { 1 } else { IDLE_PAUSES }) {
            // The driver stores this time. When a process begins to wait, it reads the stored time. A worker that
            // neither parks nor has timers does not update the stored time.
            let _ = self.driver.now();
            let mut busy = false;
            for (slot, seen) in seen.iter_mut().enumerate().take(self.remotes().len()) {
                busy |= self.look_at(slot, seen);
            }
            checks = checks.wrapping_add(1);
            if busy && checks.is_multiple_of(HIRE_EVERY) {
                // The system may have refused to start an earlier replacement thread.
                self.hire();
            }
            // A previous timekeeper may run many short steps without a pause. During this time the previous timekeeper
            // checks the timers and the poller only once in 61 tasks. Therefore, if two successive checks of the
            // monitor find that a timekeeper is missing, the monitor wakes a worker. This worker becomes the
            // timekeeper. After only one check that finds no timekeeper, the monitor does nothing, because the previous
            // timekeeper often sleeps again soon.
            let is_untimed = self.is_untimed();
            if busy && is_untimed && was_untimed {
                self.notify();
            }
            was_untimed = is_untimed;
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet == GRACE {
                quiet = 0;
                self.doze();
            }
        }
        drop(counted);
    }

    /// Waits until the next check. The waiting time is the usual pause between two checks, multiplied by `pauses`.
    /// Returns false if the scheduler is stopping.
    fn pause(&self, pauses: u32) -> bool {
        let time = self.monitor.pause.saturating_mul(pauses);
        !wait_while(&self.monitor.bell, self.worker_threads.lock(), time, |worker_threads| !worker_threads.stopping)
    }

    /// Sleeps until a worker runs tasks or the scheduler stops.
    fn doze(&self) {
        self.monitor.state.store(ASLEEP, Ordering::SeqCst);
        // Pairs with the fence in `Monitor::is_asleep`. Either this thread sees that a worker is busy, or the worker
        // sees that the monitor sleeps.
        if !planted!("monitor_has_no_fence") {
            fence(Ordering::SeqCst);
        }
        if self.worker_slots.iter().any(|worker_slot| worker_slot.is_busy()) {
            self.monitor.state.store(AWAKE, Ordering::SeqCst);
            return;
        }
        let asleep = || self.monitor.state.load(Ordering::SeqCst) == ASLEEP;
        while !wait_while(&self.monitor.bell, self.worker_threads.lock(), Duration::MAX, |worker_threads| {
            !worker_threads.stopping && asleep()
        }) {}
    }

    /// Wakes a worker if tasks wait in a slot whose step was handed over. The step may have put a task into the `next`
    /// slot at the moment of the hand-over. A push to the `next` slot wakes no worker, so this task would wait for the
    /// end of the step.
    pub(crate) fn wake_for_handed_over_slot(&self, slot: usize) {
        if !self.remotes[slot].is_empty() && !planted!("handover_wakes_no_thief") {
            self.notify();
        }
    }

    /// Returns a number that changes in two cases: the worker begins a step, or the worker begins to call wakers or a
    /// hook.
    pub(super) fn step_number(&self, slot: usize) -> u64 {
        self.metrics.polls(slot) + self.worker_slots[slot].user_calls()
    }

    /// Checks the worker in one slot. Returns whether the worker is busy.
    pub(super) fn look_at(self: &Arc<Self>, slot: usize, seen: &mut Option<Seen>) -> bool {
        let worker_slot = &self.worker_slots[slot];
        if !worker_slot.is_busy() {
            *seen = None;
            return false;
        }
        if worker_slot.is_handed_over() {
            *seen = None;
            self.wake_for_handed_over_slot(slot);
            return true;
        }
        let step = self.step_number(slot);
        match seen {
            Some(seen) if seen.step == step => {
                seen.times += 1;
                let label = worker_slot.label();
                if seen.times < LONG {
                    // The code of the step may check for this preemption request, and may then yield. If the request
                    // still exists when the step counts as long, the step did not check for the request during the last
                    // half of the threshold.
                    worker_slot.ask(label);
                } else {
                    worker_slot.set_blocked_since(seen.since, true);
                    let report = worker_slot.report.lock();
                    let is_handed_over = self.replace(slot, Some(step));
                    if is_handed_over && label != OWN_FUTURE {
                        self.metrics.add(Counter::LongSteps, 1);
                        // This event is recorded before the callback runs. The callback may request a flight record,
                        // and this record then contains the event.
                        self.trace_worker(slot, WorkerState::Blocked);
                        self.observe(slot, WorkerState::Blocked, Some(label));
                    }
                    drop(report);
                    if is_handed_over {
                        // This call may call the waker of another executor. Therefore the call comes after the release
                        // of the lock.
                        self.notify();
                        #[cfg(any(feature = "net", procession_loom))]
                        self.ensure_poll_thread_after_hand_over();
                    }
                }
            }
            _ => *seen = Some(Seen { step, since: self.driver.now(), times: 0 }),
        }
        true
    }

    /// Waits until the monitor has reported a long step. After the worker of the step has seen that the step was handed
    /// over, the worker calls this function. The next report of the worker then comes after the report of the monitor.
    pub(super) fn await_report(&self, slot: usize) {
        if self.options.observe.is_some() || self.metrics.recorder().is_on() {
            drop(self.worker_slots[slot].report.lock());
        }
    }

    /// Makes the calling thread the monitor. Only models and tests call this function.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn has_a_monitor(&self) {
        self.monitor.state.store(AWAKE, Ordering::SeqCst);
        self.worker_threads.lock().monitored = true;
    }

    /// Sleeps as the monitor does, until a worker runs tasks. Only models call this function.
    #[cfg(procession_loom)]
    pub(crate) fn sleep_as_monitor(&self) {
        self.doze();
    }

    /// Occupies a slot and begins to run tasks there. Only models call this function.
    #[cfg(procession_loom)]
    pub(crate) fn begin_as_worker(self: &Arc<Self>) {
        let worker = self.occupy(false).expect("no place is taken yet");
        worker.enter(WorkerState::Running);
    }
}
