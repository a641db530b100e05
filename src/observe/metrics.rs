//! The metrics of a runtime: exact counters and sampled durations.
//!
//! The counters are exact and cannot be turned off. Each worker has its own counters. A few other threads own a block
//! of counters. The remaining threads share some blocks. Therefore two threads rarely write to the same cache line.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::observe::counters::{Counter, Counters};
use crate::observe::distributions::{CommandTime, Distributions, Sampled, SampledBuckets};
use crate::observe::histogram::Buckets;
use crate::observe::metrics::sampling::MAX_SAMPLED;
use crate::observe::metrics::slot_counts::{Counts, SlotCounts};
use crate::observe::run_times::RunTimeTables;
use crate::observe::trace::Recorder;
use crate::observe::trace::flight::FlightRecorder;
use crate::platform::sync::tally::Ordering::Relaxed;
use crate::platform::sync::tally::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::platform::sync::{Arc, CachePadded, TallyLock, thread_local};
use crate::process::state::current::Current;
use crate::process::state::skipped_turn::SkippedTurn;

mod sampling;
mod slot_counts;

pub(crate) use crate::observe::metrics::sampling::{
    SampledProcess, Sampling, begin_sampled_turn, end_sampled_turn, is_sampled_turn, skips_message,
};

/// The counters of one runtime.
///
/// Each worker has a *slot* with counters. The thread that acts as the worker enters the slot, and increments these
/// counters with a plain load and a plain store. The counts are exact under two conditions: only one thread at a time
/// is in a slot, and a thread enters a slot only after it has synchronized with the previous thread in the slot. The
/// scheduler ensures both conditions when another thread enters a slot. A thread that is in no slot may own a [separate
/// block](CounterBlock). While a thread with a separate block is in no slot, the thread increments the counters of this
/// block in the same way.
#[derive(Debug)]
pub(crate) struct Metrics {
    slots: SlotCounts,
    /// Sampled durations of the threads in slots, in the order of the slots.
    durations: Box<[SampledBuckets]>,
    /// Blocks for threads that are in no slot of this runtime. The first blocks belong to the [`CounterBlock`]s, and
    /// the last blocks are shared.
    outside: Box<[CachePadded<Block>]>,
    /// Times of commands, by the name of the command type. The lock is taken only for a sampled command.
    commands: TallyLock<BTreeMap<&'static str, Arc<Buckets>>>,
    /// One duration in `sample_one_in` is measured.
    sample_one_in: u32,
    /// Largest [position](Metrics::tick) at which a call is measured.
    max_measured_position: u32,
    run_times: Arc<RunTimeTables>,
    recorder: Recorder,
}

/// Counters and sampled durations of one or more threads. These threads have no slot in this runtime.
#[derive(Debug)]
struct Block {
    counts: Counts,
    durations: SampledBuckets,
}

/// Result of [`Metrics::add_step`] on a thread that is in no slot.
pub(crate) const NO_WORKER: u8 = u8::MAX;

/// Default sampling rate. A clock read costs as much as a spawn, so only one duration in 64 is measured.
const SAMPLE_ONE_IN: u32 = 64;

/// Default sampling rate of the messages that can be measured. The rate is a power of two, because the sampling takes
/// the distance to the next measured message from the high bits of a position: see [`Metrics::measures_message`].
const SAMPLE_MESSAGES_ONE_IN: u32 = 256;
const _: () = assert!(SAMPLE_MESSAGES_ONE_IN.is_power_of_two());

/// Fractional part of the golden ratio, multiplied by 2^32 and rounded to an odd number.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// Maximum number of threads that are in no slot and own a block. A thread that is in no slot and owns a block owns one
/// block index. Therefore, in each runtime, the thread owns the block with this index.
const OWNED_BLOCKS: usize = 8;
/// Number of blocks that all other threads share.
const SHARED_BLOCKS: usize = 4;

/// Ownership of the blocks with this index: only the thread that owns this value writes to these blocks. This thread
/// needs only a load and a store to increment a counter. An atomic read-modify-write would take a quarter of the time
/// that an answer to a command takes (bench `command-thread`).
struct CounterBlock(usize);

/// Bit set of the `CounterBlock`s that threads own.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl CounterBlock {
    fn take() -> Option<Self> {
        let next = |taken: usize| (taken.trailing_ones() < OWNED_BLOCKS as u32).then_some(taken | (taken + 1));
        // Acquire pairs with the release in `drop`. Therefore this thread sees the counts that the previous owner has
        // written, so the plain loads and plain stores of this thread lose no count.
        let taken = TAKEN.fetch_update(Ordering::Acquire, Relaxed, next).ok()?;
        Some(Self(taken.trailing_ones() as usize))
    }
}

impl Drop for CounterBlock {
    fn drop(&mut self) {
        // After the drop, this thread uses a shared block.
        let _ = HERE.try_with(|here| here.outside.set(Some(Outside::shared())));
        TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

/// The counter block that a thread uses while the thread is in no slot.
#[derive(Debug, Clone, Copy)]
struct Outside {
    block: usize,
    /// True if only this thread writes to the block.
    own: bool,
}

impl Outside {
    /// Returns the block of this thread.
    #[inline]
    fn here() -> Self {
        // If this thread is exiting and has dropped its thread-locals, this thread uses a shared block.
        HERE.try_with(|here| here.outside.get().unwrap_or_else(|| Self::begin(&here.outside))).unwrap_or(Self::last())
    }

    #[cold]
    fn begin(outside: &Cell<Option<Self>>) -> Self {
        let own = OWNED_BLOCK.try_with(|owned_block| {
            let taken = CounterBlock::take();
            let own = taken.as_ref().map(|block| Self { block: block.0, own: true });
            owned_block.set(taken);
            own
        });
        let here = own.ok().flatten().unwrap_or_else(Self::shared);
        outside.set(Some(here));
        let _ = HERE.try_with(|here| here.ticks.set(first_tick()));
        here
    }

    fn shared() -> Self {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        Self { block: OWNED_BLOCKS + THREADS.fetch_add(1, Relaxed) % SHARED_BLOCKS, own: false }
    }

    const fn last() -> Self {
        Self { block: OWNED_BLOCKS + SHARED_BLOCKS - 1, own: false }
    }
}

/// The alignment keeps the value within one cache line, regardless of the address that the linker chooses.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct CurrentSlot {
    /// Address of the metrics. The value is 0 if the thread is in no slot. A `SlotGuard` keeps the metrics alive.
    metrics: usize,
    slot: usize,
    /// The counters of the slot.
    counts: Option<&'static Counts>,
}

const NOWHERE: CurrentSlot = CurrentSlot { metrics: 0, slot: 0, counts: None };

/// State of a thread for the counters and the sampling.
struct Here {
    /// The slot that this thread is in. Two runtimes may be nested on one thread, so the number of the slot alone does
    /// not identify a counter.
    entered: Cell<CurrentSlot>,
    /// Number of the next call of [`Metrics::tick`]: see [`first_tick`].
    ticks: Cell<u32>,
    /// Number of messages to count until the next message that may be measured. The number includes this next message.
    /// The value is 0 if this thread has counted no message.
    messages_left: Cell<u32>,
    /// Index of the present distance. A *distance* is the number of counted messages from one measured message to the
    /// next.
    distances: Cell<u32>,
    /// Number of the sampled turns that this thread runs. A turn may run inside another turn.
    sampled_turns: Cell<usize>,
    /// The processes of the sampled turns that this thread runs, outermost turn first.
    sampled: Cell<[Option<SampledProcess>; MAX_SAMPLED]>,
    /// The block that this thread uses while the thread is in no slot.
    outside: Cell<Option<Outside>>,
}

thread_local! {
    static HERE: Here =
        const {
            Here {
                entered: Cell::new(NOWHERE),
                // The call with this number is not measured: see `first_tick`.
                ticks: Cell::new(1),
                messages_left: Cell::new(0),
                distances: Cell::new(0),
                sampled_turns: Cell::new(0),
                sampled: Cell::new([None; MAX_SAMPLED]),
                outside: Cell::new(None),
            }
        };
    /// The block that this thread owns until the thread exits.
    static OWNED_BLOCK: Cell<Option<CounterBlock>> = const { Cell::new(None) };
}

/// Returns the number that a thread gives to its first call of [`Metrics::tick`]. Different threads begin with
/// different numbers, and these numbers are evenly distributed. Suppose that all threads began with the same number,
/// and that the call with this number were measured. If only new threads woke a process, each wake-up of this process
/// would then be measured.
fn first_tick() -> u32 {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    (THREADS.fetch_add(1, Relaxed) as u32).wrapping_mul(0x85eb_ca6b)
}

/// Guard of a thread that is in a slot. The thread uses the counters of this slot until the guard is dropped. A thread
/// must drop its guards in the reverse order of their creation.
#[derive(Debug)]
#[must_use]
pub(crate) struct SlotGuard {
    metrics: Arc<Metrics>,
    before: CurrentSlot,
    /// The last skipped turn in the slot `before`.
    last_skipped: SkippedTurn,
    /// The guard is not `Send`, because the guard must be dropped on the thread that created the guard.
    _here: PhantomData<*const ()>,
}

impl Metrics {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: SlotCounts::take(slots),
            durations: (0..slots).map(|_| SampledBuckets::new()).collect(),
            outside: (0..OWNED_BLOCKS + SHARED_BLOCKS).map(|_| CachePadded(Block::new())).collect(),
            commands: TallyLock::new(BTreeMap::new()),
            sample_one_in: SAMPLE_ONE_IN,
            max_measured_position: u32::MAX / SAMPLE_ONE_IN,
            run_times: Arc::default(),
            recorder: Recorder::new(slots),
        }
    }

    /// The recorder of execution traces.
    #[inline]
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The tables of run times.
    #[inline]
    pub(crate) fn run_times(&self) -> &Arc<RunTimeTables> {
        &self.run_times
    }

    /// Returns the sampling rate. If the rate is `n`, one duration in `n` is measured.
    pub(crate) fn sampled_one_in(&self) -> u32 {
        self.sample_one_in
    }

    /// Sets whether every duration is measured, instead of one duration in 64.
    pub(crate) fn sample_every(mut self, every: bool) -> Self {
        self.sample_one_in = if every { 1 } else { SAMPLE_ONE_IN };
        self.max_measured_position = u32::MAX / self.sample_one_in;
        self
    }

    /// Makes all threads record their trace events in one ring. Therefore events with the same time stay in order.
    pub(crate) fn in_order(mut self) -> Self {
        self.recorder = Recorder::new(0);
        self
    }

    /// Makes the recorder keep the last events, if a flight recorder is given.
    pub(crate) fn keep_last_events(self, options: Option<FlightRecorder>) -> Self {
        if let Some(options) = options {
            self.recorder.keep_last_events(options);
        }
        self
    }

    /// Makes this thread use the counters of this slot.
    ///
    /// # Panics
    /// Panics if no slot has this number.
    pub(crate) fn enter(self: &Arc<Self>, slot: usize) -> SlotGuard {
        let entered = CurrentSlot { metrics: self.address(), slot, counts: Some(self.slots[slot]) };
        let before = HERE.with(|here| here.entered.replace(entered));
        // The last skipped turn belongs to the slot that the thread was in until now.
        let last_skipped = Current::with(|current| current.replace_last_skipped(SkippedTurn::NONE));
        SlotGuard { metrics: Arc::clone(self), before, last_skipped, _here: PhantomData }
    }

    /// If this thread is in a slot of this runtime, calls `f` with the number and the counters of the slot.
    #[inline]
    fn in_slot<R>(&self, f: impl FnOnce(usize, &Counts) -> R) -> Option<R> {
        let here = |here: &Here| match here.entered.get() {
            CurrentSlot { metrics, slot, counts: Some(counts) } if metrics == self.address() => Some(f(slot, counts)),
            _ => None,
        };
        // If this thread is exiting and has dropped its thread-locals, this thread is no longer a worker.
        HERE.try_with(here).ok().flatten()
    }

    /// Returns the number of this thread's slot in this runtime. Returns `None` if the thread is in no slot of this
    /// runtime.
    #[inline]
    pub(crate) fn worker(&self) -> Option<usize> {
        self.in_slot(|slot, _| slot)
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let added = self.in_slot(|_, counts| add_to(counts.of(counter), n, true, Relaxed));
        if added.is_none() {
            self.add_outside(counter, n);
        }
    }

    /// Does the same as [`add`](Self::add), for a thread that is in no slot of this runtime.
    #[inline(never)]
    fn add_outside(&self, counter: Counter, n: u64) {
        let (block, own) = self.block_outside();
        add_to(block.counts.of(counter), n, own, Relaxed);
    }

    /// Counts a step. Returns the slot of this thread, or [`NO_WORKER`] if the thread is in no slot.
    #[inline]
    pub(crate) fn add_step(&self) -> u8 {
        let worker = self.in_slot(|slot, counts| {
            add_to(counts.of(Counter::Steps), 1, true, Relaxed);
            slot as u8
        });
        worker.unwrap_or_else(|| {
            self.add_outside(Counter::Steps, 1);
            NO_WORKER
        })
    }

    /// Returns the counters of a slot, for the thread that is in this slot.
    ///
    /// # Panics
    /// Panics if no slot has this number.
    pub(crate) fn counters_of(&self, slot: usize) -> OwnCounters {
        OwnCounters(self.slots[slot])
    }

    /// Counts an exited process.
    #[inline]
    pub(crate) fn add_exited(&self) {
        // Release pairs with the fence in `exited`. A thread that reads this incremented counter also sees that the
        // process was counted as spawned.
        self.add_release(|counts| counts.of(Counter::Exited));
    }

    /// Returns the number of exited processes. A caller may call this function first and then read the number of
    /// spawned processes. In this order, the number of spawned processes is at least as large as the number of exited
    /// processes.
    fn exited(&self) -> u64 {
        let exited = self.sum(Counter::Exited);
        fence(Ordering::SeqCst);
        exited
    }

    /// Increments the number of ended exits. For the same exit, an earlier call of [`add_exited`](Self::add_exited) has
    /// incremented the number of begun exits. The thread that runs the exit first wakes the task that awaits the join
    /// handle, and then calls this function.
    #[inline]
    pub(crate) fn end_exit(&self) {
        // Release pairs with the acquire loads in `is_between_exits`. A thread that reads this incremented counter also
        // sees the wake-up, and the increment in `add_exited`.
        self.add_release(|counts| &counts.ended_exits);
    }

    /// Returns true only if there was a moment during this call at which no exit was in progress. An exit is in
    /// progress between [`add_exited`](Self::add_exited) and [`end_exit`](Self::end_exit).
    ///
    /// The number of begun exits and the number of ended exits only grow, and there are never more ended exits than
    /// begun exits. The function first reads the number of ended exits. If the two numbers are equal, they were equal
    /// at a moment between the two reads.
    pub(crate) fn is_between_exits(&self) -> bool {
        let add = |sum: u64, counts: &Counts| sum.wrapping_add(counts.ended_exits.load(Ordering::Acquire));
        let ended = self.all_counts().fold(0, add);
        ended == self.sum(Counter::Exited)
    }

    /// Records a duration.
    pub(crate) fn sample(&self, what: Sampled, ns: u64) {
        let (durations, own) = match self.worker() {
            Some(slot) => (&self.durations[slot], true),
            None => {
                let (block, own) = self.block_outside();
                (&block.durations, own)
            }
        };
        let (bucket, sum) = durations.of(what).of(ns);
        add_to(bucket, 1, own, Relaxed);
        add_to(sum, ns, own, Relaxed);
    }

    /// Records the time of a command of this type.
    pub(crate) fn sample_command(&self, command: &'static str, ns: u64) {
        let new = || Arc::new(Buckets::new());
        let buckets = self.commands.with(|commands| Arc::clone(commands.entry(command).or_insert_with(new)));
        let (bucket, sum) = buckets.of(ns);
        add_to(bucket, 1, false, Relaxed);
        add_to(sum, ns, false, Relaxed);
    }

    /// Returns whether the caller must measure a duration. The result is true for about one of 64 calls on the same
    /// thread. After [`sample_every`](Self::sample_every), the result is always true.
    ///
    /// The distance between two measured calls varies. If the distance were constant, and two processes woke each other
    /// in turn, only one of the two processes would ever be measured. The call with the number `k` has the position
    /// `k * GOLDEN_RATIO` modulo 2^32. The call is measured if its position is at most `max_measured_position`. In the
    /// long run, the positions are uniformly distributed. The positions of every n-th call are also uniformly
    /// distributed (Weyl's equidistribution theorem).
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        let ticks = HERE.try_with(|here| here.ticks.replace(here.ticks.get().wrapping_add(1))).unwrap_or(1);
        ticks.wrapping_mul(GOLDEN_RATIO) <= self.max_measured_position
    }

    /// Decides whether a message is measured. The caller calls this function only after [`skips_message`] has returned
    /// false for this message. About one in 256 of the counted messages is measured. After
    /// [`sample_every`](Self::sample_every), each message is measured. A thread that sends to several runtimes has one
    /// count for the messages to all these runtimes.
    ///
    /// The distance between two consecutive measured messages is uniformly distributed between 1 and 512. The distance
    /// varies for the reason that [`tick`](Self::tick) describes. Without `sample_every`, the first counted message of
    /// a thread is not measured, because a process may receive all its messages from new threads.
    #[cold]
    pub(crate) fn measures_message(&self) -> bool {
        let measures = |here: &Here| {
            if self.sample_one_in == 1 {
                here.messages_left.set(1);
                return true;
            }
            let is_first = here.messages_left.get() == 0;
            let index = if is_first { first_tick() } else { here.distances.get().wrapping_add(1) };
            here.distances.set(index);
            let position = index.wrapping_mul(GOLDEN_RATIO);
            // The largest distance is twice the rate, so the mean distance is the rate plus one half.
            here.messages_left.set(1 + (position >> (u32::BITS - (2 * SAMPLE_MESSAGES_ONE_IN).ilog2())));
            !is_first
        };
        HERE.try_with(measures).unwrap_or(false)
    }

    /// Returns the number of polls that were counted in a slot.
    pub(crate) fn polls(&self, slot: usize) -> u64 {
        self.slots[slot].of(Counter::Polls).load(Ordering::Acquire)
    }

    /// Returns the number of processes that are alive. This function makes several attempts to read the counters. If no
    /// process exits during one of these attempts, the result is exact. Otherwise the result may be too high, but never
    /// too low.
    pub(crate) fn alive(&self) -> u64 {
        let spawned = || {
            let spawned = self.sum(Counter::Spawned);
            // `difference` reads the number of exited processes again after this fence.
            fence(Ordering::SeqCst);
            spawned
        };
        difference(|| self.exited(), spawned)
    }

    /// Returns whether every spawned process has exited. A spawn during this call may change the result to false, but
    /// not to true.
    pub(crate) fn all_ended(&self) -> bool {
        self.alive() == 0
    }

    /// Returns a snapshot of the counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters::read(|counter| if counter == Counter::Exited { self.exited() } else { self.sum(counter) })
    }

    /// Returns a snapshot of the distributions.
    pub(crate) fn distributions(&self) -> Distributions {
        let by_command = self.commands.with(|commands| commands.clone());
        let commands = by_command.iter().map(|(command, buckets)| CommandTime::new(command, buckets)).collect();
        let messages_one_in = if self.sample_one_in == 1 { 1 } else { SAMPLE_MESSAGES_ONE_IN };
        Distributions::read(self.all_durations(), commands, self.sample_one_in, messages_one_in)
    }

    /// Returns the number of bytes of the counters, the distributions and the tables of run times. The result does not
    /// include the bytes of the recorder: see [`Recorder::bytes`].
    pub(crate) fn bytes(&self) -> usize {
        let slots = self.slots.len() * (size_of::<&Counts>() + size_of::<CachePadded<Counts>>());
        let blocks = slots + size_of_val(&*self.durations) + size_of_val(&*self.outside);
        let commands: usize = self.commands.with(|commands| commands.values().map(|buckets| buckets.bytes()).sum());
        let blocks = blocks + self.run_times.bytes();
        blocks + commands + self.all_durations().map(SampledBuckets::bytes).sum::<usize>()
    }

    /// Adds 1 to a counter of this thread. The store has the ordering `Release`. `counter` selects the counter.
    #[inline]
    fn add_release(&self, counter: impl Fn(&Counts) -> &AtomicU64) {
        let added = self.in_slot(|_, counts| add_to(counter(counts), 1, true, Ordering::Release));
        if added.is_none() {
            let (block, own) = self.block_outside();
            add_to(counter(&block.counts), 1, own, Ordering::Release);
        }
    }

    /// Returns the block of this thread. The second value is true if only this thread writes to the block. The thread
    /// is in no slot of this runtime.
    fn block_outside(&self) -> (&Block, bool) {
        let outside = Outside::here();
        (&self.outside[outside.block], outside.own)
    }

    fn all_counts(&self) -> impl Iterator<Item = &Counts> {
        let outside = self.outside.iter().map(|block| &block.counts);
        self.slots.iter().map(|counts| &counts.0).chain(outside)
    }

    fn all_durations(&self) -> impl Iterator<Item = &SampledBuckets> + Clone {
        self.durations.iter().chain(self.outside.iter().map(|block| &block.durations))
    }

    fn sum(&self, counter: Counter) -> u64 {
        self.all_counts().fold(0, |sum, counts| sum.wrapping_add(counts.of(counter).load(Relaxed)))
    }

    #[inline]
    fn address(&self) -> usize {
        (&raw const *self).addr()
    }
}

/// The counters of one slot, for the thread that is in this slot. The thread needs no lookup to increment these
/// counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnCounters(&'static Counts);

impl OwnCounters {
    /// Adds `n` like [`Metrics::add`]. The caller guarantees that this thread is in the slot.
    #[inline]
    pub(crate) fn add(self, counter: Counter, n: u64) {
        add_to(self.0.of(counter), n, true, Relaxed);
    }
}

/// Adds `n` to a cell. `own` is true if only this thread writes to the cell.
#[inline]
fn add_to(cell: &AtomicU64, n: u64, own: bool, order: Ordering) {
    if own {
        // No other thread writes to the cell, so no count is lost between the load and the store. Therefore no atomic
        // read-modify-write is needed.
        cell.store(cell.load(Relaxed).wrapping_add(n), order);
    } else {
        cell.fetch_add(n, order);
    }
}

/// Maximum number of times that [`difference`] reads two changing counters.
const ATTEMPTS: u32 = 16;

/// Returns the difference of two counters that only grow. `less` never exceeds `more`.
///
/// `less` is read before and after `more`. If both values of `less` are equal, the result is the exact difference at
/// the moment when `more` was read. If the two values of `less` differ, `more` minus the first value of `less` may be
/// too high, because `less` may have grown before `more` was read. In this case both counters are read again. After
/// `ATTEMPTS` attempts, the lowest difference is returned.
fn difference(mut less: impl FnMut() -> u64, mut more: impl FnMut() -> u64) -> u64 {
    let mut lowest = u64::MAX;
    let mut before = less();
    for _ in 0..ATTEMPTS {
        let difference = more().wrapping_sub(before);
        let after = less();
        if after == before {
            return difference;
        }
        lowest = lowest.min(difference);
        before = after;
    }
    lowest
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        // The access fails only if this thread is exiting and has dropped its thread-locals.
        let left = HERE.try_with(|here| here.entered.replace(self.before));
        let _ = Current::try_with(|current| current.replace_last_skipped(self.last_skipped));
        debug_assert!(left.is_err() || left.is_ok_and(|left| left.metrics == self.metrics.address()));
    }
}

impl Block {
    fn new() -> Self {
        Self { counts: Counts::new(), durations: SampledBuckets::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::sync::thread;

    #[test]
    fn an_exit_is_in_progress_until_its_end_is_counted() {
        let metrics = Arc::new(Metrics::new(1));
        assert!(metrics.is_between_exits());
        let slot = metrics.enter(0);
        metrics.add_exited();
        assert!(!metrics.is_between_exits());
        // When the exit begins, the thread increments a counter of a slot. When the exit ends, the thread increments a
        // counter of a block.
        drop(slot);
        metrics.end_exit();
        assert!(metrics.is_between_exits());
    }

    #[test]
    fn a_difference_is_read_again_if_the_smaller_counter_changes() {
        let (ended, begun) = (Cell::new(3), Cell::new(5));
        let mut busy = 2;
        let more = || {
            // Processes start and exit between the reads.
            if busy != 0 {
                busy -= 1;
                begun.set(begun.get() + 10);
                ended.set(ended.get() + 10);
            }
            begun.get()
        };
        assert_eq!(difference(|| ended.get(), more), 2);
        // If the counters change during every attempt, the result is too high by at most the number of exits during one
        // attempt.
        let more = || {
            begun.set(begun.get() + 10);
            ended.set(ended.get() + 10);
            begun.get()
        };
        assert_eq!(difference(|| ended.get(), more), 12);
    }

    #[test]
    fn slots_can_be_nested_and_belong_to_one_runtime() {
        let (one, two) = (Arc::new(Metrics::new(2)), Arc::new(Metrics::new(2)));
        let workers = || (one.worker(), two.worker());
        assert_eq!(workers(), (None, None));
        let outer = one.enter(1);
        assert_eq!(workers(), (Some(1), None));
        {
            let _inner = two.enter(0);
            assert_eq!(workers(), (None, Some(0)));
            one.add(Counter::Steps, 10);
            two.add(Counter::Steps, 1);
            let _again = one.enter(0);
            assert_eq!(workers(), (Some(0), None));
        }
        assert_eq!(workers(), (Some(1), None));
        one.add(Counter::Steps, 100);
        let counted = |counts: &Counts| counts.of(Counter::Steps).load(Relaxed);
        assert_eq!(
            (
                counted(one.slots[1]),
                one.outside.iter().map(|block| counted(&block.counts)).sum::<u64>(),
                one.counters().steps
            ),
            (100, 10, 110)
        );
        assert_eq!(counted(two.slots[0]), 1);
        assert_eq!(thread::scope(|s| s.spawn(|| one.worker()).join().expect("no panic")), None);
        drop(outer);
        assert_eq!(workers(), (None, None));
        assert_eq!(Arc::strong_count(&one), 1);
    }

    /// Two threads are in slots. Some of the other threads own blocks, and some share blocks. The threads of the second
    /// round use the blocks of the first round again.
    #[test]
    fn counts_are_exact_with_several_threads() {
        const EACH: u64 = 5_000;
        const THREADS: usize = 2 + OWNED_BLOCKS + SHARED_BLOCKS + 2;
        let metrics = Arc::new(Metrics::new(2));
        for _ in 0..2 {
            thread::scope(|s| {
                for thread in 0..THREADS {
                    let metrics = &metrics;
                    s.spawn(move || {
                        let _guard = (thread < 2).then(|| metrics.enter(thread));
                        for n in 0..EACH {
                            metrics.add(Counter::Messages, 1);
                            metrics.add(Counter::Yields, 2);
                            metrics.sample(Sampled::SchedulingDelay, n);
                        }
                    });
                }
            });
        }
        let (counters, all) = (metrics.counters(), 2 * THREADS as u64 * EACH);
        assert_eq!((counters.messages, counters.yields), (all, 2 * all));
        let distributions = metrics.distributions();
        assert_eq!((distributions.scheduling_delay.count(), distributions.step_time.count()), (all, 0));
        let sum = 2 * THREADS as u64 * (0..EACH).sum::<u64>();
        assert_eq!(distributions.scheduling_delay.sum(), Duration::from_nanos(sum));
    }

    #[test]
    fn a_counter_block_has_one_owner_at_a_time() {
        let held: Vec<_> = std::iter::from_fn(CounterBlock::take).collect();
        let numbers: std::collections::BTreeSet<_> = held.iter().map(|block| block.0).collect();
        assert!(numbers.len() == held.len() && numbers.iter().all(|number| *number < OWNED_BLOCKS));
    }

    #[test]
    fn snapshots_can_be_subtracted_even_if_a_counter_wraps() {
        let metrics = Arc::new(Metrics::new(1));
        let _guard = metrics.enter(0);
        metrics.add(Counter::Wakes, u64::MAX - 1);
        metrics.sample(Sampled::StepTime, 5);
        let before = (metrics.counters(), metrics.distributions());
        metrics.add(Counter::Wakes, 5);
        metrics.sample(Sampled::StepTime, 1_000);
        let counters = metrics.counters() - before.0;
        assert_eq!((counters.wakes, counters.parks, counters.to_string().as_str()), (5, 0, "wakes 5"));
        let between = metrics.distributions() - before.1;
        assert_eq!((between.step_time.count(), between.scheduling_delay.count()), (1, 0));
        assert_eq!(between.step_time.quantile(0.0), Some(Duration::from_nanos(1_023)));
    }

    #[test]
    fn one_duration_in_64_is_measured_unless_the_metrics_are_exact() {
        let metrics = Metrics::new(0);
        // For each period, the test counts the measured calls by `call % period`. All these counts are almost equal.
        for period in [2_usize, 3, 8, 64] {
            let mut measured = vec![0; period];
            (0..64_000).filter(|_| metrics.tick()).for_each(|call: usize| measured[call % period] += 1);
            let expected = 1_000 / period;
            assert!(measured.iter().all(|count| (expected - 5..=expected + 5).contains(count)), "{measured:?}");
        }
        assert_eq!(metrics.distributions().sampled_one_in, 64);
        let metrics = metrics.sample_every(true);
        assert!((0..640).all(|_| metrics.tick()));
        assert_eq!(metrics.distributions().sampled_one_in, 1);
    }
}
