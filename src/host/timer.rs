//! The timers of a runtime: one timer wheel for each worker, and one timer wheel for all other threads. Each wheel has
//! its own lock.
//!
//! This module has no thread and never blocks. One thread of the scheduler is the timekeeper. This thread calls
//! `keep_time`, and promises to check the timers after the returned time. The other workers call `wait`, and promise
//! nothing. `wait` returns the time until the earliest deadline. When this deadline has passed, a worker calls
//! `fire_due_batch`, which checks all wheels. Therefore a blocked worker does not delay the timers of its wheel.

pub(crate) mod alarm;
pub(crate) mod backoff;
pub(crate) mod owned;
pub(crate) mod pending;
mod sleeping;
#[cfg(test)]
mod tests;
pub(crate) mod wheel;

use std::task::Waker;
use std::time::Duration;
use std::{fmt, mem};

use crate::host::timer::wheel::{Handle, Wheel};
use crate::platform::clock::{Clock, Instant};
use crate::platform::prefetch::{TASK, prefetch};
use crate::platform::static_ref::Line;
use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::platform::sync::{CachePadded, Lock, planted};
use crate::process::catch::{catch, drop_caught};
use crate::process::state::PendingSchedule;

/// Resolution of the timers in ns. Each deadline is rounded up to a multiple of this value. Therefore no timer fires
/// early.
const TICK: u64 = 1_000_000;

/// Maximum result of [`Timers::recent`]: 292 years. A process stores this time and a flag in one word.
const MAX_RECENT: u64 = (1 << 63) - 2;

/// Action of a timer. If the action panics, the panic is caught and ignored.
pub(crate) enum Fire {
    /// Wakes a task. If a sleep has set the timer, the line is the source line that created the sleep. Inspections show
    /// this line.
    Wake(Waker, Line),
    /// Calls a function.
    Call(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for Fire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wake(..) => "Wake",
            Self::Call(_) => "Call",
        })
    }
}

impl Fire {
    /// Performs the action. If the action wakes a waiting process, this function adds the process to `woken`. If the
    /// action must call a waker that does not belong to a waiting process, this function adds the waker to `wakers`,
    /// and does not call the waker. The caller of this function calls these wakers later: see [`wake_last`].
    ///
    /// The function of a [`Call`](Self::Call) may run user code. This code may wait for a process of the list `woken`.
    /// Therefore `run` first queues the processes in `woken`, then calls `begin`, and then calls the function.
    #[inline]
    fn run(self, woken: &mut Vec<PendingSchedule>, wakers: &mut Vec<Waker>, begin: &dyn Fn()) {
        match self {
            Self::Wake(waker, _) => match PendingSchedule::wake(&waker) {
                // The drop of this waker runs no user code, because the waiting process keeps its own task cell alive.
                Some(process) => woken.push(process),
                None => wakers.push(waker),
            },
            Self::Call(call) => {
                woken.clear();
                begin();
                let _ = catch(call);
            }
        }
    }
}

/// Calls the wakers in `wakers`. These wakers do not belong to waiting processes. Therefore they may run user code, and
/// this code may wait for any process of the batch. For this reason, the function first queues the processes in
/// `woken`. The function also calls `begin` before it calls the wakers. If `wakers` is empty, the function does
/// nothing.
#[inline]
fn wake_last(woken: &mut Vec<PendingSchedule>, wakers: Vec<Waker>, begin: &dyn Fn()) {
    if !wakers.is_empty() {
        woken.clear();
        begin();
        wakers.into_iter().for_each(|waker| _ = catch(|| waker.wake()));
    }
}

/// Key of a timer. The caller passes the key to `cancel`. A `Timers` never gives the same key to two timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    shard: u32,
    handle: Handle,
}

impl Key {
    /// Key that belongs to no timer.
    pub(crate) const NONE: Self = Self { shard: 0, handle: Handle::NONE };

    /// Returns the key as two words, for code that only stores the key.
    #[inline]
    pub(crate) fn pack(self) -> [u64; 2] {
        let (index, number) = self.handle.parts();
        [u64::from(self.shard) << 32 | u64::from(index), number]
    }

    /// Returns the key that [`pack`](Self::pack) stored in these words.
    #[inline]
    pub(crate) fn unpack([high, number]: [u64; 2]) -> Self {
        Self { shard: (high >> 32) as u32, handle: Handle::new(high as u32, number) }
    }
}

/// Timers, ordered by deadline. Deadlines are counted in ticks of 1 ms. Timers with the same wheel and the same tick
/// fire in the order of their insertion.
///
/// A timer never fires early, and fires at most once. If `cancel` returns the action of a timer, this timer never
/// fires. A timer with the deadline [`Instant::FAR`] also never fires, but can be cancelled. `insert`, `update` and
/// `cancel` take constant time.
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Clock,
    /// One shard for each worker, and a last shard that all other threads share.
    shards: Box<[CachePadded<Shard>]>,
    /// Time in ns: a thread has promised to check the timers at this time or earlier. The value is `u64::MAX` if no
    /// thread has promised to check the timers.
    promised: CachePadded<AtomicU64>,
    /// Earliest deadline in ns that was reported to a thread. A later cancellation of the timer does not change this
    /// value. The value is `u64::MAX` if the reported deadline has passed.
    reported: CachePadded<AtomicU64>,
    /// Time of a recent clock reading, in ns: see [`recent`](Self::recent).
    recent: CachePadded<AtomicU64>,
    /// Time in ns. A clock reading replaces `recent` only if the reading is later than `recent` by more than this time.
    recent_slack: u64,
}

#[derive(Debug)]
struct Shard {
    /// Earliest deadline in ns. The value is `u64::MAX` if no timer of the wheel will fire. A thread writes this value
    /// only while the thread holds the lock of the wheel. Therefore the value is up to date when no thread holds this
    /// lock. A thread reads this value without the lock.
    nearest: AtomicU64,
    wheel: Lock<Wheel<Fire>>,
}

impl Shard {
    fn publish(&self, nearest: Option<u64>) {
        let nearest = nearest.map_or(Instant::FAR.ns(), |tick| tick.saturating_mul(TICK));
        self.nearest.store(nearest, Ordering::SeqCst);
    }
}

/// Metrics of one wheel.
#[cfg(feature = "console")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WheelFigures {
    /// Worker of the wheel. The value is `None` for the wheel that all threads without their own wheel share.
    pub(crate) worker: Option<usize>,
    /// Number of timers.
    pub(crate) timers: usize,
    /// Lower bound of the deadlines: no timer of the wheel fires earlier. The value is `None` if no timer of the wheel
    /// will fire.
    pub(crate) nearest: Option<Instant>,
}

/// Maximum number of entries that a thread processes under the lock of a wheel before the thread releases the lock.
const BATCH: usize = 64;

impl Timers {
    /// Creates timers for this number of workers.
    pub(crate) fn new(clock: Clock, workers: usize) -> Self {
        let shard = || Shard { nearest: AtomicU64::new(Instant::FAR.ns()), wheel: Lock::new(Wheel::new()) };
        let shards = (0..=workers).map(|_| CachePadded(shard())).collect();
        let word = |value| CachePadded(AtomicU64::new(value));
        let recent_slack = if clock.is_virtual() { 0 } else { TICK };
        Self { clock, shards, promised: word(u64::MAX), reported: word(u64::MAX), recent: word(0), recent_slack }
    }

    /// Returns the clock that the timers use.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads the clock that the timers use. After this call, [`recent`](Self::recent) is at most [`TICK`] earlier than
    /// the result.
    pub(crate) fn now(&self) -> Instant {
        let now = self.clock.now();
        // Each turn that ends in a wait reads `recent`. Because writes are rare, the cache line of `recent` stays in
        // the caches of all cores. A model checker would have to explore each value that a relaxed load can return, and
        // no protocol depends on the value. Therefore a model does not change `recent`.
        if now.ns().saturating_sub(self.recent.load(Ordering::Relaxed)) > self.recent_slack
            && !cfg!(any(procession_loom, procession_shuttle))
        {
            self.recent.fetch_max(now.ns().min(MAX_RECENT), Ordering::Relaxed);
        }
        now
    }

    /// Returns the time of a recent clock reading, without a new clock reading. In a simulation, the result is the
    /// present time. In a runtime, the scheduler reads the clock in these situations:
    ///
    /// - A worker parks or wakes up.
    /// - A worker checks the timers while a timer exists.
    /// - A worker begins a sampled turn.
    /// - The monitor thread checks the workers.
    #[inline]
    pub(crate) fn recent(&self) -> Instant {
        Instant::from_ns(self.recent.load(Ordering::Relaxed))
    }

    /// Advances a virtual clock. Afterwards, [`recent`](Self::recent) returns the new time.
    ///
    /// # Panics
    /// Panics if the clock is a real clock.
    pub(crate) fn advance(&self, time: Duration) {
        self.clock.advance(time);
        let _ = self.now();
    }

    /// Adds a timer to the wheel of the given worker. If `worker` is `None`, the function adds the timer to the wheel
    /// that all other threads share.
    ///
    /// Returns the key of the timer, and whether the caller must notify a thread. The caller must notify a thread if
    /// the following conditions are both true:
    ///
    /// - The new deadline is the earliest deadline.
    /// - No thread has promised to check the timers by this deadline.
    pub(crate) fn insert(&self, worker: Option<usize>, at: Instant, fire: Fire) -> (Key, bool) {
        let others = self.shards.len() - 1;
        let which = worker.filter(|&worker| worker < others).unwrap_or(others);
        let shard = &self.shards[which];
        let tick = if at == Instant::FAR { u64::MAX } else { at.ns().div_ceil(TICK) };
        let due = tick.saturating_mul(TICK);
        let mut wheel = shard.wheel.lock();
        let handle = wheel.insert(tick, fire);
        let first_here = due < shard.nearest.load(Ordering::Relaxed);
        if first_here {
            shard.nearest.store(due, Ordering::SeqCst);
        }
        drop(wheel);
        // Two threads may insert two timers on two wheels at the same time. In this case, the call with the earlier
        // deadline returns true.
        //
        // The SeqCst accesses pair with the accesses in `keep_time`. Either `keep_time` reads the `nearest` that was
        // stored above, or this call reads the `promised` that `keep_time` has stored. With a weaker ordering, each
        // thread could miss the store of the other thread, and the timer would fire late.
        let earlier = first_here
            && due < self.promised.load(Ordering::SeqCst)
            && self.shards.iter().all(|other| other.nearest.load(Ordering::SeqCst) >= due);
        if earlier {
            self.reported.fetch_min(due, Ordering::Relaxed);
        }
        (Key { shard: which as u32, handle }, earlier)
    }

    /// Cancels a timer and returns the action of the timer. Returns `None` if the timer has fired, is firing now, or
    /// was already cancelled.
    pub(crate) fn cancel(&self, key: Key) -> Option<Fire> {
        let shard = &self.shards[key.shard as usize];
        let mut wheel = shard.wheel.lock();
        let (fire, tick) = wheel.remove(key.handle)?;
        if tick.saturating_mul(TICK) <= shard.nearest.load(Ordering::Relaxed) {
            shard.publish(wheel.nearest());
        }
        drop(wheel);
        Some(fire)
    }

    /// Cancels a timer whose deadline is `at`, if the timer has not fired yet. This call takes no lock if the timer has
    /// fired and all other timers of the wheel have later deadlines.
    #[inline]
    pub(crate) fn settle(&self, key: Key, at: Instant) {
        // No timer in the wheel has a deadline before `nearest`. The caller has inserted its timer before this call.
        // Therefore this load returns the value of `nearest` at the end of this insertion, or a newer value.
        let nearest = self.shards[key.shard as usize].nearest.load(Ordering::SeqCst);
        if nearest <= at.ns().div_ceil(TICK).saturating_mul(TICK) {
            drop(self.cancel(key));
        }
    }

    /// Replaces the waker of a timer. Returns true if the timer will call the new waker. Returns false if the timer has
    /// fired, was cancelled, or calls a function.
    pub(crate) fn update(&self, key: Key, waker: &Waker) -> bool {
        let shard = &self.shards[key.shard as usize];
        match shard.wheel.lock().get_mut(key.handle) {
            Some(Fire::Wake(old, _)) if old.will_wake(waker) => return true,
            Some(Fire::Wake(..)) => {}
            _ => return false,
        }
        // The clone and the drop of a waker run user code. Therefore this function clones and drops wakers without
        // the lock.
        let mut spare = waker.clone();
        let mut wheel = shard.wheel.lock();
        let Some(Fire::Wake(old, _)) = wheel.get_mut(key.handle) else {
            // The timer has fired between the two lock operations, and has called the old waker.
            return planted!("timers_update_is_always_in_time");
        };
        mem::swap(old, &mut spare);
        drop(wheel);
        true
    }

    /// Fires all timers that are due at the time of the call, and returns the number of fired timers. If a timer is
    /// inserted during the call, this call does not fire the timer. Therefore the call ends even if the function of a
    /// timer inserts the timer again.
    ///
    /// Several threads may call this function at the same time. These threads share the work.
    pub(crate) fn fire_due(&self) -> usize {
        self.fire_at_most(usize::MAX, &mut Vec::new(), &|| ())
    }

    /// Fires due timers as [`fire_due`](Self::fire_due) does, but at most about `BATCH` timers of each wheel.
    ///
    /// A worker calls this function, runs the woken tasks, and then calls this function again. The other due timers
    /// stay in their wheels until a later call. Therefore the queues contain only a few woken tasks, and the memory of
    /// each task is still in the cache when the task runs.
    ///
    /// On return, `woken` contains processes in the order of the timers that have woken them. The caller must queue
    /// these processes. All other woken tasks are already queued. This function calls `begin` before each call that may
    /// run user code.
    pub(crate) fn fire_due_batch(&self, woken: &mut Vec<PendingSchedule>, begin: &dyn Fn()) -> usize {
        self.fire_at_most(BATCH, woken, begin)
    }

    /// Fires due timers as [`fire_due`](Self::fire_due) does, but at most one timer of each wheel.
    pub(crate) fn fire_one_of_each_wheel(&self) -> usize {
        self.fire_at_most(1, &mut Vec::new(), &|| ())
    }

    /// Fires the due timers of all wheels, at most about `most` timers of each wheel. Returns the number of fired
    /// timers.
    fn fire_at_most(&self, most: usize, woken: &mut Vec<PendingSchedule>, begin: &dyn Fn()) -> usize {
        let now = self.now();
        self.shards.iter().map(|shard| Self::fire_shard(shard, now, most, woken, begin)).sum()
    }

    /// Fires timers of one wheel in batches, until `most` timers have fired. Only timers that are due at the time `now`
    /// fire. A batch is taken out under the lock of the wheel. The timers of the batch fire after the lock is released,
    /// because a timer may run user code. A timer that is inserted during this call does not fire in this call.
    fn fire_shard(
        shard: &Shard,
        now: Instant,
        most: usize,
        woken: &mut Vec<PendingSchedule>,
        begin: &dyn Fn(),
    ) -> usize {
        if shard.nearest.load(Ordering::SeqCst) > now.ns() {
            return 0;
        }
        let batch = BATCH.min(most);
        let (mut fired, mut newer) = (0, None);
        loop {
            let mut wheel = shard.wheel.lock();
            // Each new timer has a higher number than all earlier timers. Therefore a timer with this number or a
            // higher number was inserted after the start of this call.
            let newer = *newer.get_or_insert(wheel.next_number());
            let done = wheel.advance(now.ns() / TICK, BATCH);
            wheel.touch(BATCH);
            let fires: Vec<Fire> = std::iter::from_fn(|| wheel.pop(newer)).take(batch).collect();
            let nearest = wheel.nearest();
            let wheel = Some(wheel).filter(|_| !planted!("timers_turn_publishes_late"));
            shard.publish(nearest);
            drop(wheel);
            fired += fires.len();
            let last = fired >= most || done && fires.len() < batch;
            for fire in &fires {
                if let Fire::Wake(waker, _) = fire {
                    prefetch(waker.data(), TASK);
                }
            }
            woken.reserve(fires.len());
            let mut wakers = Vec::new();
            for fire in fires {
                fire.run(woken, &mut wakers, begin);
            }
            wake_last(woken, wakers, begin);
            if last {
                return fired;
            }
        }
    }

    /// Returns the earliest deadline in ns, or `u64::MAX` if there is no deadline.
    fn nearest_ns(&self) -> u64 {
        // SeqCst is needed here and at the stores of `nearest`. One thread inserts a timer, and then checks whether
        // another thread sleeps. The sleeping thread first announces its sleep, and then reads `nearest`. With a weaker
        // ordering, each of these threads could miss the store of the other thread.
        let nearest = self.shards.iter().map(|shard| shard.nearest.load(Ordering::SeqCst)).min();
        nearest.unwrap_or(u64::MAX)
    }

    /// Returns the earliest deadline, or `None` if no timer will fire.
    pub(crate) fn nearest(&self) -> Option<Instant> {
        Some(Instant::from_ns(self.nearest_ns())).filter(|&at| at != Instant::FAR)
    }

    /// Returns the time until the earliest deadline. Returns zero if the deadline has passed, and `None` if no timer
    /// will fire.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.nearest().map(|at| at - self.now())
    }

    /// Returns the time after which the caller must check the timers. With this call, the caller promises to make this
    /// check. A call of [`wait`](Self::wait) does not promise to check the timers.
    ///
    /// An earlier call may have reported a deadline that has not passed yet. In this case, the returned time ends at
    /// this deadline or earlier, even if the timer of this deadline was cancelled. The reason is that many programs
    /// repeatedly set a timeout and cancel this timeout. If a program repeatedly sets and cancels timeouts of one
    /// second, the thread wakes at most one time per second, and does not wake for each timeout.
    pub(crate) fn keep_time(&self) -> Option<Duration> {
        let now = self.now();
        let mut reported = self.reported.load(Ordering::Relaxed);
        if reported <= now.ns() {
            reported = u64::MAX;
            self.reported.store(reported, Ordering::Relaxed);
        }
        loop {
            let nearest = self.nearest_ns();
            self.promised.store(nearest.min(reported), Ordering::SeqCst);
            // Another thread may have inserted a timer with an earlier deadline before the store to `promised` became
            // visible. In this case, the other thread sends no notification. Therefore this loop reads the deadlines
            // again.
            if self.nearest_ns() >= nearest || planted!("timers_keeper_looks_once") {
                let promised = nearest.min(reported);
                return (promised != u64::MAX).then(|| Instant::from_ns(promised) - now);
            }
        }
    }

    /// Withdraws the promise that a thread checks the timers.
    pub(crate) fn stop_keeping_time(&self) {
        self.promised.store(u64::MAX, Ordering::SeqCst);
    }

    /// Returns the number of the next timer on the last wheel. A simulation uses only this wheel.
    pub(crate) fn next_number(&self) -> u64 {
        self.shards[self.shards.len() - 1].wheel.lock().next_number()
    }

    /// Returns the lowest number of all timers that will fire on the last wheel. Returns `u64::MAX` if no timer will
    /// fire.
    pub(crate) fn oldest_number(&self) -> u64 {
        self.shards[self.shards.len() - 1].wheel.lock().oldest_number().unwrap_or(u64::MAX)
    }

    /// Returns the number of timers.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.wheel.lock().len()).sum()
    }

    /// Returns the metrics of each wheel. This function takes constant time for each wheel. To list all deadlines, the
    /// function would have to hold the spin lock of a wheel for a time that is linear in the number of timers.
    #[cfg(feature = "console")]
    pub(crate) fn wheels(&self) -> Vec<WheelFigures> {
        let others = self.shards.len() - 1;
        let figures = |(worker, shard): (usize, &CachePadded<Shard>)| {
            let wheel = shard.wheel.lock();
            let (timers, nearest) = (wheel.len(), shard.nearest.load(Ordering::Relaxed));
            drop(wheel);
            let nearest = Some(Instant::from_ns(nearest)).filter(|&at| at != Instant::FAR);
            WheelFigures { worker: (worker != others).then_some(worker), timers, nearest }
        };
        self.shards.iter().enumerate().map(figures).collect()
    }

    /// Returns the memory of the timers in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.wheel.lock().bytes()).sum()
    }

    /// Drops all timers. This function calls the wakers in the timers, but drops the functions in the timers without
    /// a call.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut wheel = shard.wheel.lock();
            let fires = wheel.drain();
            shard.publish(wheel.nearest());
            drop(wheel);
            for fire in fires {
                let _ = match fire {
                    // The task of this waker must be polled again. In this poll, the task ends its sleep or changes to
                    // another clock.
                    Fire::Wake(waker, _) => catch(|| waker.wake()),
                    Fire::Call(call) => drop_caught(call),
                };
            }
        }
    }
}
