//! The counters of a runtime, and `Counters`: a snapshot of the counters and of the sampled durations.
//!
//! The counters are always on and exact. Each worker and a few other threads write to separate blocks. All other
//! threads share some blocks. Therefore threads rarely contend for a cache line.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Sub;

use crate::observe::histogram::{Buckets, Histogram};
use crate::platform::sync::tally::Ordering::Relaxed;
use crate::platform::sync::tally::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::platform::sync::{Arc, CachePadded, thread_local};

/// Lists the counters once, for the enum of counters, the snapshot, and the operations on each field.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident => $field:ident,)*) => {
        /// A counter. The field of `Counters` with the same name documents its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($name,)*
        }

        const COUNTERS: usize = [$(Counter::$name),*].len();

        /// Snapshot of the counters of a runtime.
        ///
        /// Each count is exact and never decreases. The counts are read one after another while the runtime runs, so
        /// related counts may differ by the operations in progress. However, `exited` never exceeds `spawned`. Subtract
        /// an earlier snapshot from a later snapshot to get the counts between the two snapshots. `Display` prints one
        /// line with the counts that are not zero.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
            /// Time from ready to running, that is, how long a runnable process waited for a worker. Sampled at the
            /// rate `sampled_one_in`.
            pub scheduling_delay: Histogram,
            /// Duration of turns. A turn contains all steps of a process from one wait to the next wait. Sampled at the
            /// rate `sampled_one_in`.
            pub step_time: Histogram,
            /// Sampling rate of the two histograms. If the rate is `n`, one in `n` durations was measured. Default: 64.
            pub sampled_one_in: u32,
        }

        impl Counters {
            fn read(metrics: &Metrics) -> Self {
                let exited = metrics.exited();
                let all = Self {
                    $($field: metrics.sum(Counter::$name),)*
                    scheduling_delay: metrics.histogram(|block| &block.delay),
                    step_time: metrics.histogram(|block| &block.step),
                    sampled_one_in: metrics.sample_one_in,
                };
                Self { exited, ..all }
            }

            /// Returns the counts with their names, in the order of the fields.
            fn named(&self) -> [(&'static str, u64); COUNTERS] {
                [$((stringify!($field), self.$field)),*]
            }
        }

        /// Returns the counts between two snapshots of one runtime: `later - earlier`. Counters and differences wrap
        /// around at 2^64. If the snapshots are in the wrong order, the differences wrap below zero.
        impl Sub for Counters {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self {
                    $($field: self.$field.wrapping_sub(earlier.$field),)*
                    scheduling_delay: self.scheduling_delay - earlier.scheduling_delay,
                    step_time: self.step_time - earlier.step_time,
                    sampled_one_in: self.sampled_one_in,
                }
            }
        }
    };
}

counters! {
    /// Spawned processes. A process is counted when it gets its pid.
    Spawned => spawned,
    /// Exited processes. A process is counted during its exit. `spawned - exited` processes are alive.
    Exited => exited,
    /// Polls of a task by a worker. The scheduler counts each poll before the poll begins.
    Polls => polls,
    /// Steps of processes. One poll may contain several steps, because a process is stepped again if an answer arrives
    /// in the turn of its yield.
    Steps => steps,
    /// Polls that kept their worker for longer than
    /// [`Builder::long_step_threshold`](crate::Builder::long_step_threshold). The monitor thread counts a long poll
    /// while the poll still runs.
    LongSteps => long_steps,
    /// Number of attempts to steal from a victim. The searching worker counts each attempt. Each attempt is also
    /// counted as won, empty or retried.
    StealsTried => steals_tried,
    /// Number of attempts to steal that stole at least one task.
    StealsWon => steals_won,
    /// Number of attempts to steal that failed because the victim had no task to steal.
    StealsEmpty => steals_empty,
    /// Number of attempts to steal that failed because another thread won a race for the task.
    StealsRetried => steals_retried,
    /// Number of times that a worker parked. The worker counts each time before it sleeps.
    Parks => parks,
    /// Number of times that a parked worker was woken for work. The waking thread counts the wake-up.
    Wakes => wakes,
    /// Number of times that a worker moved a full batch of tasks from its local queue to the global queue.
    Overflows => overflows,
    /// Number of times that a process went to the back of the queue because its budget was spent.
    BudgetYields => budget_yields,
    /// Messages that a mailbox accepted. The sender counts the message.
    Messages => messages,
    /// Messages that were refused, and returned to the sender.
    Refused => refused,
    /// Messages that were accepted, but never read.
    DeadLetters => dead_letters,
    /// Messages that the policy of a full mailbox dropped: either a queued message in favor of a newer message, or the
    /// newest message. These messages are also counted as dead letters.
    DroppedByPolicy => dropped_by_policy,
    /// Commands that processes yielded. A command is counted when the process yields the command.
    Yields => yields,
    /// Answers that a yield accepted. The answering thread counts the answer.
    Completions => completions,
    /// Answers that arrived after the cancellation of their yield or the exit of their process.
    Discarded => discarded,
    /// Replies that arrived after the caller had stopped waiting.
    LateReplies => late_replies,
    /// Panics of processes, and of futures without a pid that run on the runtime.
    Panics => panics,
    /// Processes that failed, and whose exit no link, monitor, supervisor or join handle received. A cancelled or
    /// killed process is not counted.
    Unobserved => unobserved,
}

impl Counters {
    /// Returns the fraction of the attempts to steal that stole a task, from 0 to 1. Returns 0 if there were no
    /// attempts.
    pub fn steal_success(&self) -> f64 {
        if self.steals_tried == 0 { 0.0 } else { self.steals_won as f64 / self.steals_tried as f64 }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut apart = "";
        for (name, count) in self.named().into_iter().filter(|&(_, count)| count != 0) {
            write!(f, "{apart}{name} {count}")?;
            apart = ", ";
        }
        for (name, histogram) in [("scheduling_delay", &self.scheduling_delay), ("step_time", &self.step_time)] {
            if let (Some(half), Some(most)) = (histogram.quantile(0.5), histogram.quantile(0.99)) {
                write!(f, "{apart}{name} p50 {half:?} p99 {most:?}")?;
                apart = ", ";
            }
        }
        if apart.is_empty() { f.write_str("nothing counted") } else { Ok(()) }
    }
}

/// The counters of one runtime.
///
/// Each worker has a *slot*. The thread that runs as the worker enters the slot, and counts in the slot's block with a
/// plain load and store. The counts are exact under two conditions: only one thread at a time is in a slot, and a
/// thread enters the slot only after it has synchronized with the previous thread. The hand-over of a worker to another
/// thread ensures both conditions. A thread that is in no slot may own a [separate block](CounterBlock), and then
/// counts in this block in the same way.
#[derive(Debug)]
pub(crate) struct Metrics {
    slots: Box<[CachePadded<Block>]>,
    /// Blocks for threads that are in no slot of this runtime. The first blocks belong to the [`CounterBlock`]s, and
    /// the last blocks are shared.
    outside: Box<[CachePadded<Block>]>,
    sample_one_in: u32,
}

#[derive(Debug)]
struct Block {
    counts: [AtomicU64; COUNTERS],
    delay: Buckets,
    step: Buckets,
}

/// Default sampling rate. A clock read costs as much as a spawn, so only one duration in 64 is measured.
const SAMPLE_ONE_IN: u32 = 64;
const _: () = assert!(SAMPLE_ONE_IN.is_power_of_two());

/// Maximum number of threads that are in no slot and own a block. An owning thread has one block in each runtime.
const OWNED_BLOCKS: usize = 8;
/// Number of blocks that all other threads share.
const SHARED_BLOCKS: usize = 4;

/// The exclusive right of a thread to write the blocks with this index. A thread with this right increments a counter
/// with a load and a store, without an atomic read-modify-write. An atomic read-modify-write would cost a quarter of
/// the time of an answer (bench `command-thread`).
struct CounterBlock(usize);

/// Bit set of the `CounterBlock`s that threads own.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl CounterBlock {
    fn take() -> Option<Self> {
        let next = |taken: usize| (taken.trailing_ones() < OWNED_BLOCKS as u32).then_some(taken | (taken + 1));
        // Acquire pairs with the release in `drop`, so that the counts of the last owner are visible. Therefore the
        // plain load and store lose no count.
        let taken = TAKEN.fetch_update(Ordering::Acquire, Relaxed, next).ok()?;
        Some(Self(taken.trailing_ones() as usize))
    }
}

impl Drop for CounterBlock {
    fn drop(&mut self) {
        // After the drop, this thread counts in a shared block.
        let _ = HERE.try_with(|here| here.outside.set(Some(Outside::shared())));
        TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

/// The block in which a thread counts while the thread is in no slot.
#[derive(Debug, Clone, Copy)]
struct Outside {
    block: usize,
    /// Whether no other thread writes to the block.
    own: bool,
}

impl Outside {
    /// Returns the block of this thread.
    #[inline]
    fn here() -> Self {
        // If this thread is exiting and has dropped its thread-locals, it counts in a shared block.
        HERE.try_with(|here| here.outside.get().unwrap_or_else(|| Self::begin(&here.outside))).unwrap_or(Self::last())
    }

    #[cold]
    fn begin(outside: &Cell<Option<Self>>) -> Self {
        let own = OWNED_BLOCK.try_with(|desk| {
            let taken = CounterBlock::take();
            let own = taken.as_ref().map(|desk| Self { block: desk.0, own: true });
            desk.set(taken);
            own
        });
        let here = own.ok().flatten().unwrap_or_else(Self::shared);
        outside.set(Some(here));
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(16))]
struct CurrentSlot {
    /// Address of the metrics. The value is 0 if the thread is in no slot. A `SlotGuard` keeps the metrics alive.
    metrics: usize,
    slot: usize,
}

const NOWHERE: CurrentSlot = CurrentSlot { metrics: 0, slot: 0 };

/// Counting state of a thread.
struct Here {
    /// The slot of the worker that this thread runs as. Two runtimes may be nested on one thread, so the slot alone
    /// does not identify a counter.
    entered: Cell<CurrentSlot>,
    /// Number of calls of [`Metrics::tick`].
    ticks: Cell<u32>,
    /// The block that this thread uses while it is in no slot.
    outside: Cell<Option<Outside>>,
}

thread_local! {
    static HERE: Here =
        const { Here { entered: Cell::new(NOWHERE), ticks: Cell::new(0), outside: Cell::new(None) } };
    /// The block that this thread owns until it exits.
    static OWNED_BLOCK: Cell<Option<CounterBlock>> = const { Cell::new(None) };
}

/// Makes this thread count in its slot, until the guard is dropped. The guards of a thread are dropped in reverse
/// order.
#[derive(Debug)]
#[must_use]
pub(crate) struct SlotGuard {
    metrics: Arc<Metrics>,
    before: CurrentSlot,
    /// The guard is not `Send`, because it must be dropped on the thread that created it.
    _here: PhantomData<*const ()>,
}

impl Metrics {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| CachePadded(Block::new())).collect(),
            outside: (0..OWNED_BLOCKS + SHARED_BLOCKS).map(|_| CachePadded(Block::new())).collect(),
            sample_one_in: SAMPLE_ONE_IN,
        }
    }

    /// Measures every duration, instead of one duration in 64.
    pub(crate) fn exact(mut self) -> Self {
        self.sample_one_in = 1;
        self
    }

    /// Makes this thread count in the block of this slot. If no such slot exists, the thread counts as a thread in no
    /// slot.
    pub(crate) fn enter(self: &Arc<Self>, slot: usize) -> SlotGuard {
        let before = HERE.with(|here| here.entered.replace(CurrentSlot { metrics: self.address(), slot }));
        SlotGuard { metrics: Arc::clone(self), before, _here: PhantomData }
    }

    /// Returns the slot of this runtime that this thread is in.
    #[inline]
    pub(crate) fn worker(&self) -> Option<usize> {
        // If this thread is exiting and has dropped its thread-locals, it is no longer a worker.
        let entered = HERE.try_with(|here| here.entered.get()).unwrap_or(NOWHERE);
        (entered.metrics == self.address()).then_some(entered.slot)
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.write(n, Relaxed, |block| &block.counts[counter as usize]);
    }

    /// Adds `n` like [`add`](Self::add). The caller guarantees that this thread is in this slot of this runtime.
    #[inline]
    pub(crate) fn add_in(&self, slot: usize, counter: Counter, n: u64) {
        let cell = &self.slots[slot].counts[counter as usize];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Counts an exited process.
    #[inline]
    pub(crate) fn add_exited(&self) {
        // Release pairs with the fence in `exited`: a thread that sees this count also sees that the process was
        // counted as spawned.
        self.write(1, Ordering::Release, |block| &block.counts[Counter::Exited as usize]);
    }

    /// Returns the number of exited processes. If a caller calls this function first and then reads the number of
    /// spawned processes, the second number is at least as large as the first number.
    fn exited(&self) -> u64 {
        let exited = self.sum(Counter::Exited);
        fence(Ordering::SeqCst);
        exited
    }

    /// Records a scheduling delay: the time from ready to running.
    pub(crate) fn sample_delay(&self, ns: u64) {
        self.write(1, Relaxed, |block| block.delay.of(ns));
    }

    /// Records the duration of a turn.
    pub(crate) fn sample_step(&self, ns: u64) {
        self.write(1, Relaxed, |block| block.step.of(ns));
    }

    /// Returns whether the caller must measure a duration. The result is true once in 64 calls on the same thread.
    /// After [`exact`](Self::exact), the result is always true.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        let ticks = HERE.try_with(|here| here.ticks.replace(here.ticks.get().wrapping_add(1))).unwrap_or(1);
        // The rate is a power of two. A division here would be the most expensive instruction of a message.
        ticks & (self.sample_one_in - 1) == 0
    }

    /// Returns the number of polls that were counted in a slot.
    pub(crate) fn polls(&self, slot: usize) -> u64 {
        self.slots[slot].counts[Counter::Polls as usize].load(Ordering::Acquire)
    }

    /// Returns the number of processes that are alive. The result is exact if no process exited during one of the
    /// attempts to read the counters. Otherwise the result may be too high, but never too low.
    pub(crate) fn alive(&self) -> u64 {
        let spawned = || {
            let spawned = self.sum(Counter::Spawned);
            // The exited processes are counted again after this fence.
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
        Counters::read(self)
    }

    /// Adds to a counter in the block of this thread.
    #[inline]
    fn write<'a>(&'a self, n: u64, order: Ordering, cell: impl FnOnce(&'a Block) -> &'a AtomicU64) {
        let (block, own) = match self.worker().and_then(|slot| self.slots.get(slot)) {
            Some(block) => (block, true),
            None => {
                let outside = Outside::here();
                (&self.outside[outside.block], outside.own)
            }
        };
        let cell = cell(block);
        if own {
            // No other thread writes here, so no count is lost between the load and the store. Therefore no atomic
            // read-modify-write is needed.
            cell.store(cell.load(Relaxed).wrapping_add(n), order);
        } else {
            cell.fetch_add(n, order);
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.slots.iter().chain(&self.outside).map(|block| &block.0)
    }

    fn sum(&self, counter: Counter) -> u64 {
        self.blocks().fold(0, |sum, block| sum.wrapping_add(block.counts[counter as usize].load(Relaxed)))
    }

    fn histogram(&self, buckets: impl Fn(&Block) -> &Buckets) -> Histogram {
        self.blocks().map(buckets).sum()
    }

    #[inline]
    fn address(&self) -> usize {
        (&raw const *self).addr()
    }
}

/// Maximum number of times that [`difference`] reads two changing counters.
const ATTEMPTS: u32 = 16;

/// Returns the difference of two counters that only grow. `less` never exceeds `more`.
///
/// `less` is read before and after `more`. If both values of `less` are equal, the result is the exact difference at
/// the moment when `more` was read. If the two values of `less` differ, `more` may include additions that the first
/// value of `less` does not include, so the difference may be too high. In this case both counters are read again.
/// After several attempts, the lowest result is returned.
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
        debug_assert!(left.is_err() || left.is_ok_and(|left| left.metrics == self.metrics.address()));
    }
}

impl Block {
    fn new() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), delay: Buckets::new(), step: Buckets::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::sync::thread;

    #[test]
    fn each_counter_has_its_own_field() {
        let metrics = Metrics::new(1);
        metrics.add(Counter::Spawned, 1);
        metrics.add(Counter::StealsTried, 4);
        metrics.add(Counter::StealsWon, 3);
        metrics.add(Counter::Panics, 5);
        let counters = metrics.counters();
        let filled: Vec<_> = counters.named().into_iter().filter(|&(_, n)| n != 0).collect();
        assert_eq!(filled, [("spawned", 1), ("steals_tried", 4), ("steals_won", 3), ("panics", 5)]);
        assert_eq!(counters.to_string(), "spawned 1, steals_tried 4, steals_won 3, panics 5");
        assert_eq!(counters.steal_success(), 0.75);
        assert_eq!(Counter::Unobserved as usize, COUNTERS - 1);
    }

    #[test]
    fn empty_counters_print_as_nothing_counted() {
        let counters = Metrics::new(0).counters();
        assert_eq!(counters.to_string(), "nothing counted");
        assert_eq!(counters.steal_success(), 0.0);
        assert_eq!((counters.step_time.count(), counters.step_time.quantile(0.5)), (0, None));
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
        let counted = |block: &Block| block.counts[Counter::Steps as usize].load(Relaxed);
        assert_eq!(
            (counted(&one.slots[1]), one.outside.iter().map(|block| counted(block)).sum::<u64>(), one.counters().steps),
            (100, 10, 110)
        );
        assert_eq!(counted(&two.slots[0]), 1);
        assert_eq!(thread::scope(|s| s.spawn(|| one.worker()).join().expect("no panic")), None);
        drop(outer);
        assert_eq!(workers(), (None, None));
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn a_thread_in_a_missing_slot_counts_outside_the_slots() {
        let metrics = Arc::new(Metrics::new(1));
        let _guard = metrics.enter(7);
        metrics.add(Counter::Polls, 2);
        assert_eq!((metrics.worker(), metrics.counters().polls), (Some(7), 2));
    }

    /// Two threads are in slots. Some of the other threads own blocks, and some of them share a block. Later threads
    /// use the same blocks again.
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
                            metrics.sample_delay(n);
                        }
                    });
                }
            });
        }
        let (counters, all) = (metrics.counters(), 2 * THREADS as u64 * EACH);
        assert_eq!((counters.messages, counters.yields), (all, 2 * all));
        assert_eq!((counters.scheduling_delay.count(), counters.step_time.count()), (all, 0));
    }

    #[test]
    fn a_counter_block_has_one_owner_at_a_time() {
        let held: Vec<_> = std::iter::from_fn(CounterBlock::take).collect();
        let numbers: std::collections::BTreeSet<_> = held.iter().map(|desk| desk.0).collect();
        assert!(numbers.len() == held.len() && numbers.iter().all(|number| *number < OWNED_BLOCKS));
    }

    #[test]
    fn snapshots_can_be_subtracted_even_if_a_counter_wraps() {
        let metrics = Arc::new(Metrics::new(1));
        let _guard = metrics.enter(0);
        metrics.add(Counter::Wakes, u64::MAX - 1);
        metrics.sample_step(5);
        let before = metrics.counters();
        metrics.add(Counter::Wakes, 5);
        metrics.sample_step(1_000);
        let between = metrics.counters() - before;
        assert_eq!((between.wakes, between.parks), (5, 0));
        assert_eq!((between.step_time.count(), between.scheduling_delay.count()), (1, 0));
        assert_eq!(between.step_time.quantile(0.0), Some(Duration::from_nanos(1_023)));
        assert_eq!(between.to_string(), "wakes 5, step_time p50 1.023µs p99 1.023µs");
    }

    #[test]
    fn one_duration_in_64_is_measured_unless_the_metrics_are_exact() {
        let metrics = Metrics::new(0);
        assert_eq!((0..640).filter(|_| metrics.tick()).count(), 10);
        assert_eq!(metrics.counters().sampled_one_in, 64);
        let metrics = metrics.exact();
        assert!((0..640).all(|_| metrics.tick()));
        assert_eq!(metrics.counters().sampled_one_in, 1);
    }
}
