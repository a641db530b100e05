//! The runtime's counters: always on, exact, and without a contended cache line, since each worker writes a block of its
//! own, as do a few threads that are no workers; only when those are many they share some. Also the snapshot of it all, the
//! sampled durations included.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Sub;

use crate::observe::histogram::{Buckets, Histogram};
use crate::platform::sync::tally::Ordering::Relaxed;
use crate::platform::sync::tally::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::platform::sync::{Arc, CachePadded, thread_local};

/// Lists the counters once, for the enum that counts, the snapshot, and what is done field by field.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident => $field:ident,)*) => {
        /// What is counted; `Counters` has the meaning of each, under the same name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($name,)*
        }

        const COUNTERS: usize = [$(Counter::$name),*].len();

        /// What a runtime has counted since it began.
        ///
        /// Each count is exact, none ever decreases, and they are read one after another while everything runs: two
        /// that belong together may be apart by what was under way. No more have `exited` than were `spawned`, though.
        /// Subtract an earlier snapshot for what happened in between. `Display` gives one line with what is not zero.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $field: u64,)*
            /// From ready to running: how long processes waited for a worker. Sampled, one in `sampled_one_in`.
            pub scheduling_delay: Histogram,
            /// How long turns took: a process's steps from one wait to the next. Sampled, one in `sampled_one_in`.
            pub step_time: Histogram,
            /// The rate of the two histograms: one in so many was measured.
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

            /// The counts by name, in the order of the fields.
            fn named(&self) -> [(&'static str, u64); COUNTERS] {
                [$((stringify!($field), self.$field)),*]
            }
        }

        /// What was counted between two snapshots of one runtime, the later one first. Counts wrap around, as the
        /// counters themselves do after 2^64; in the wrong order the differences are as large as that.
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
    /// Processes that were spawned; counted when they get their pid.
    Spawned => spawned,
    /// Processes that ended; counted on their exit path. `spawned - exited` live.
    Exited => exited,
    /// Times that a worker polled a task; counted by the scheduler, before the poll.
    Polls => polls,
    /// Times that a process was stepped; several can happen in one poll, for answers that came at once.
    Steps => steps,
    /// Polls that kept their worker for longer than [`Builder::long_step`](crate::Builder::long_step); counted by the
    /// monitor, while they still do.
    LongSteps => long_steps,
    /// Attempts to steal from a victim; counted by the worker that searches. Each is won, empty or retried.
    StealsTried => steals_tried,
    /// Attempts that took at least one process.
    StealsWon => steals_won,
    /// Attempts that found nothing.
    StealsEmpty => steals_empty,
    /// Attempts that lost a race against another thread, and were made again.
    StealsRetried => steals_retried,
    /// Times that a worker went to sleep; counted by itself, before it sleeps.
    Parks => parks,
    /// Times that a sleeping worker was woken for work; counted by whoever wakes it.
    Wakes => wakes,
    /// Times that a full local queue sent a batch to the global one.
    Overflows => overflows,
    /// Times that a process went to the back of the queue as its budget was spent.
    BudgetYields => budget_yields,
    /// Messages that were accepted by a mailbox; counted by the sender.
    Messages => messages,
    /// Messages that were refused, and handed back to the sender.
    Refused => refused,
    /// Messages that were accepted and then could not be delivered.
    DeadLetters => dead_letters,
    /// Messages that were given up for others by the policy of a full mailbox, or as the newest; dead letters too.
    DroppedByPolicy => dropped_by_policy,
    /// Commands that processes yielded; counted when they are dispatched.
    Yields => yields,
    /// Answers that reached their process; counted by whoever answers.
    Completions => completions,
    /// Answers that came after the yield was cancelled or its process had ended.
    Discarded => discarded,
    /// Replies that came after the caller was gone.
    LateReplies => late_replies,
    /// Processes that panicked.
    Panics => panics,
    /// Processes that failed, and whose exit no link, monitor, supervisor or join handle received. A process that is
    /// cancelled or killed does not fail.
    Unobserved => unobserved,
}

impl Counters {
    /// Which part of the attempts to steal took something, between 0 and 1; 0 if there were none.
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
/// Each worker has a *slot*: whoever runs as that worker enters it, and then counts in the slot's own block with a plain
/// load and store. That is exact as long as one thread at a time is in a slot, and the next one enters after it has
/// synchronised with the one before, which the hand-over of the worker itself does. A thread that is in no slot counts in
/// the block of its [desk](CounterBlock), likewise, if it got one.
#[derive(Debug)]
pub(crate) struct Metrics {
    slots: Box<[CachePadded<Block>]>,
    /// For threads that entered no slot of this runtime: first those of the desks, then several that others share.
    outside: Box<[CachePadded<Block>]>,
    sample_one_in: u32,
}

#[derive(Debug)]
struct Block {
    counts: [AtomicU64; COUNTERS],
    delay: Buckets,
    step: Buckets,
}

/// One in so many is measured by default: a clock read costs as much as a spawn.
const SAMPLE_ONE_IN: u32 = 64;
const _: () = assert!(SAMPLE_ONE_IN.is_power_of_two());

/// So many threads of the program that are in no slot have a block to themselves in each runtime.
const DESKS: usize = 8;
/// How many blocks all the others share.
const SHARED: usize = 4;

/// The right of one thread at a time to write in the blocks of this number: so its counts need no atomic
/// read-modify-write, which would be one in four of an answer's (bench `command-thread`).
struct CounterBlock(usize);

/// Which desks are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl CounterBlock {
    fn take() -> Option<Self> {
        let next = |taken: usize| (taken.trailing_ones() < DESKS as u32).then_some(taken | (taken + 1));
        // Acquire pairs with the release in drop: what its last owner counted is there.
        let taken = TAKEN.fetch_update(Ordering::Acquire, Relaxed, next).ok()?;
        Some(Self(taken.trailing_ones() as usize))
    }
}

impl Drop for CounterBlock {
    fn drop(&mut self) {
        // What this thread counts from here on is counted among others'.
        let _ = HERE.try_with(|here| here.outside.set(Some(Outside::shared())));
        TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

/// Where a thread counts that is in no slot.
#[derive(Debug, Clone, Copy)]
struct Outside {
    block: usize,
    /// Nobody else writes there.
    own: bool,
}

impl Outside {
    /// Of this thread.
    #[inline]
    fn here() -> Self {
        // A thread that is ending, and has no locals any more, counts among others.
        HERE.try_with(|here| here.outside.get().unwrap_or_else(|| Self::begin(&here.outside))).unwrap_or(Self::last())
    }

    #[cold]
    fn begin(outside: &Cell<Option<Self>>) -> Self {
        let own = DESK.try_with(|desk| {
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
        Self { block: DESKS + THREADS.fetch_add(1, Relaxed) % SHARED, own: false }
    }

    const fn last() -> Self {
        Self { block: DESKS + SHARED - 1, own: false }
    }
}

/// Within a cache line, wherever the linker puts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(16))]
struct Entered {
    /// The address of the metrics, which a `SlotGuard` keeps alive; 0 for none.
    metrics: usize,
    slot: usize,
}

const NOWHERE: Entered = Entered { metrics: 0, slot: 0 };

/// Where this thread counts.
struct Here {
    /// The slot of the runtime whose worker this thread is. Two runtimes may be nested on one thread, so the slot alone does not
    /// identify a counter.
    entered: Cell<Entered>,
    /// Number of calls of [`Metrics::tick`].
    ticks: Cell<u32>,
    /// The block that this thread uses while it is in no slot.
    outside: Cell<Option<Outside>>,
}

thread_local! {
    static HERE: Here =
        const { Here { entered: Cell::new(NOWHERE), ticks: Cell::new(0), outside: Cell::new(None) } };
    /// Kept for as long as the thread lives.
    static DESK: Cell<Option<CounterBlock>> = const { Cell::new(None) };
}

/// While it lives, this thread counts in its slot. Guards of one thread are dropped in the reverse order.
#[derive(Debug)]
#[must_use]
pub(crate) struct SlotGuard {
    metrics: Arc<Metrics>,
    before: Entered,
    /// Must be dropped where it was made.
    _here: PhantomData<*const ()>,
}

impl Metrics {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| CachePadded(Block::new())).collect(),
            outside: (0..DESKS + SHARED).map(|_| CachePadded(Block::new())).collect(),
            sample_one_in: SAMPLE_ONE_IN,
        }
    }

    /// Measures every time, where it would be one in 64.
    pub(crate) fn exact(mut self) -> Self {
        self.sample_one_in = 1;
        self
    }

    /// Makes this thread count in that slot. With a slot that there is not it counts in a shared block.
    pub(crate) fn enter(self: &Arc<Self>, slot: usize) -> SlotGuard {
        let before = HERE.with(|here| here.entered.replace(Entered { metrics: self.address(), slot }));
        SlotGuard { metrics: Arc::clone(self), before, _here: PhantomData }
    }

    /// The slot of this runtime that this thread is in.
    #[inline]
    pub(crate) fn worker(&self) -> Option<usize> {
        // When the thread is ending and its locals are gone, it is no worker any more.
        let entered = HERE.try_with(|here| here.entered.get()).unwrap_or(NOWHERE);
        (entered.metrics == self.address()).then_some(entered.slot)
    }

    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.write(n, Relaxed, |block| &block.counts[counter as usize]);
    }

    /// The same for who knows that it is in that slot of this runtime.
    #[inline]
    pub(crate) fn add_in(&self, slot: usize, counter: Counter, n: u64) {
        let cell = &self.slots[slot].counts[counter as usize];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds to those that ended.
    #[inline]
    pub(crate) fn add_exited(&self) {
        // Release pairs with the fence in `exited`: whoever sees it counted sees that it was spawned.
        self.write(1, Ordering::Release, |block| &block.counts[Counter::Exited as usize]);
    }

    /// How many ended. Who reads that first reads no fewer that were spawned.
    fn exited(&self) -> u64 {
        let exited = self.sum(Counter::Exited);
        fence(Ordering::SeqCst);
        exited
    }

    /// A process ran that had become ready so long ago.
    pub(crate) fn sample_delay(&self, ns: u64) {
        self.write(1, Relaxed, |block| block.delay.of(ns));
    }

    /// A step took so long.
    pub(crate) fn sample_step(&self, ns: u64) {
        self.write(1, Relaxed, |block| block.step.of(ns));
    }

    /// Whether to measure this time: once in 64 calls on this thread, or always if so built.
    #[inline]
    pub(crate) fn tick(&self) -> bool {
        let ticks = HERE.try_with(|here| here.ticks.replace(here.ticks.get().wrapping_add(1))).unwrap_or(1);
        // One in a power of two: a division here would be the dearest instruction of a message.
        ticks & (self.sample_one_in - 1) == 0
    }

    /// How many polls were counted in a slot.
    pub(crate) fn polls(&self, slot: usize) -> u64 {
        self.slots[slot].counts[Counter::Polls as usize].load(Ordering::Acquire)
    }

    /// How many processes live. It is exact if no process ended while one of the attempts read the counters; otherwise it
    /// may be too high, but it is never too low.
    pub(crate) fn alive(&self) -> u64 {
        let spawned = || {
            let spawned = self.sum(Counter::Spawned);
            // The ended processes are counted again after this.
            fence(Ordering::SeqCst);
            spawned
        };
        difference(|| self.exited(), spawned)
    }

    /// Whether every process that was spawned has ended. Those that ended are counted first: what is spawned meanwhile
    /// makes the answer no, never yes.
    pub(crate) fn all_ended(&self) -> bool {
        self.alive() == 0
    }

    /// What was counted so far.
    pub(crate) fn counters(&self) -> Counters {
        Counters::read(self)
    }

    /// Adds to a cell of the block that is this thread's.
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
            // No other thread writes here, so nothing is lost between the load and the store; and no atomic
            // read-modify-write is paid for.
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

    fn address(&self) -> usize {
        (&raw const *self).addr()
    }
}

/// How often [`difference`] reads two counters that change.
const ATTEMPTS: u32 = 16;

/// The difference of two counters that only grow, `less` never beyond `more`.
///
/// `less` is read before and after `more`. If both values are equal, the result is exact: it is the difference at some moment
/// in between. Otherwise `more` may include additions that `less` does not, and the result would be too high, so both are
/// read again. After several attempts the lowest result holds.
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
        // Fails only when the thread is ending and has no slot to go back to.
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
    fn nothing_counted_says_so() {
        let counters = Metrics::new(0).counters();
        assert_eq!(counters.to_string(), "nothing counted");
        assert_eq!(counters.steal_success(), 0.0);
        assert_eq!((counters.step_time.count(), counters.step_time.quantile(0.5)), (0, None));
    }

    #[test]
    fn a_difference_is_read_again_if_the_lesser_counter_changes_meanwhile() {
        let (ended, begun) = (Cell::new(3), Cell::new(5));
        let mut busy = 2;
        let more = || {
            // Between the reads, some begin and end.
            if busy != 0 {
                busy -= 1;
                begun.set(begun.get() + 10);
                ended.set(ended.get() + 10);
            }
            begun.get()
        };
        assert_eq!(difference(|| ended.get(), more), 2);
        // If that never stops, the result is too high by no more than what ended during one attempt.
        let more = || {
            begun.set(begun.get() + 10);
            ended.set(ended.get() + 10);
            begun.get()
        };
        assert_eq!(difference(|| ended.get(), more), 12);
    }

    #[test]
    fn entering_is_nested_and_belongs_to_one_runtime() {
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
    fn a_slot_that_there_is_not_counts_in_the_shared_block() {
        let metrics = Arc::new(Metrics::new(1));
        let _guard = metrics.enter(7);
        metrics.add(Counter::Polls, 2);
        assert_eq!((metrics.worker(), metrics.counters().polls), (Some(7), 2));
    }

    /// Two in slots; of the others some have desks and some have none, and those that come later get them again.
    #[test]
    fn counts_are_exact_with_several_threads() {
        const EACH: u64 = 5_000;
        const THREADS: usize = 2 + DESKS + SHARED + 2;
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
    fn a_desk_is_one_threads_at_a_time() {
        let held: Vec<_> = std::iter::from_fn(CounterBlock::take).collect();
        let numbers: std::collections::BTreeSet<_> = held.iter().map(|desk| desk.0).collect();
        assert!(numbers.len() == held.len() && numbers.iter().all(|number| *number < DESKS));
    }

    #[test]
    fn snapshots_subtract_also_where_a_counter_wraps() {
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
    fn one_in_64_is_measured_unless_exact() {
        let metrics = Metrics::new(0);
        assert_eq!((0..640).filter(|_| metrics.tick()).count(), 10);
        assert_eq!(metrics.counters().sampled_one_in, 64);
        let metrics = metrics.exact();
        assert!((0..640).all(|_| metrics.tick()));
        assert_eq!(metrics.counters().sampled_one_in, 1);
    }
}
