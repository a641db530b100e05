//! State of the searching and the sleeping workers, in one atomic *idle word*. This file also parks and wakes workers.
//!
//! This file does not know the queues. A thread that pushes tasks calls `wake_many` after its push. A worker that wants
//! to sleep calls `announce` and then checks every queue. A *polled* slot belongs to a guest that runs tasks only while
//! an executor polls the guest. `README.md` in this folder explains why no wake-up is lost.

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use crate::platform::delayed_wake;
use crate::platform::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::platform::sync::{CachePadded, Mutex, planted, thread};
use crate::platform::unwind::contain;

/// Number of worker slots of a scheduler, for worker threads and guest threads. Each slot has one bit in the idle word.
/// Under the model checker, this number is small, because each slot adds steps to every loop over the slots.
pub(crate) const SLOTS: usize = if cfg!(procession_loom) { 3 } else { 48 };
/// Number that each searching worker adds to the idle word. The number of searching workers is stored above the bits of
/// the sleeping slots.
const SEARCHER: u64 = 1 << SLOTS;
const SLEEPERS: u64 = SEARCHER - 1;

/// The idle word. The idle word contains the number of searching workers, and a bit for each sleeping slot.
///
/// ```text
///  63          48 47                     0
/// ┌──────────────┬────────────────────────┐
/// │  searchers   │  a bit per sleeper     │
/// └──────────────┴────────────────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn searchers(self) -> u64 {
        self.0 >> SLOTS
    }

    fn sleepers(self) -> u64 {
        self.0 & SLEEPERS
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} search, sleeping {:#b}", self.searchers(), self.sleepers())
    }
}

/// Result of a call that retracts an announcement.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// No push chose the worker. The worker woke up for another reason. For example, the worker saw work, or its sleep
    /// time was over. The worker is not counted as searching.
    ByItself,
    /// A push chose the worker. The worker is counted as searching, and must search.
    Chosen,
}

/// Slots whose sleeping workers must be woken.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chosen(u64);

impl Iterator for Chosen {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let slot = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

/// Specifies how the worker of a slot is woken.
#[derive(Debug, Default)]
enum Parker {
    #[default]
    Vacant,
    Thread(thread::Thread),
    /// For a [polled](Idle::announce_polled) slot, this variant contains the waker that the executor passed to the last
    /// poll. While the thread in the slot waits in the poller of the sockets, this variant contains the waker of the
    /// poller.
    Waker(Waker),
}

#[derive(Debug)]
struct ParkSlot {
    /// Whether the slot was woken. A thread that wakes the slot sets this token before it unparks the thread in the
    /// slot. The unpark alone is not enough: a process on the sleeping thread may itself call `park` and consume the
    /// unpark.
    token: AtomicBool,
    parker: Mutex<Parker>,
}

/// The words that a push reads, on one cache line.
#[derive(Debug)]
struct Words {
    /// The number of searching workers, and a bit for each sleeping slot that has a parked thread.
    word: AtomicU64,
    /// A bit for each polled slot whose guest sleeps.
    polled: AtomicU64,
}

/// State of all searching and sleeping workers of a scheduler.
#[derive(Debug)]
pub(crate) struct Idle {
    words: CachePadded<Words>,
    slots: Box<[ParkSlot]>,
    /// The number of the timekeeper's slot plus one. The value is 0 if there is no timekeeper.
    timekeeper: AtomicUsize,
}

impl Idle {
    pub(crate) fn new(slots: usize) -> Self {
        debug_assert!(slots <= SLOTS, "one bit each");
        let slot = || ParkSlot { token: AtomicBool::new(false), parker: Mutex::new(Parker::Vacant) };
        Self {
            words: CachePadded(Words { word: AtomicU64::new(0), polled: AtomicU64::new(0) }),
            slots: (0..slots).map(|_| slot()).collect(),
            timekeeper: AtomicUsize::new(0),
        }
    }

    fn load(&self) -> Word {
        Word(self.words.word.load(Ordering::SeqCst))
    }

    /// Returns whether the worker of this slot sleeps. The queues of a sleeping worker are empty.
    pub(crate) fn is_sleeping(&self, slot: usize) -> bool {
        (self.load().sleepers() | self.words.polled.load(Ordering::SeqCst)) & (1 << slot) != 0
    }

    /// Begins a search if fewer than `present / 2` workers search. If no worker searches, the search begins even if
    /// `present / 2` is 0. Returns whether the search began.
    pub(crate) fn start_searching(&self, present: usize) -> bool {
        let most = (present as u64 / 2).max(1);
        let mut word = self.load();
        loop {
            if word.searchers() >= most {
                return false;
            }
            // All changes of this word are read-modify-write operations. A plain store could undo the change of another
            // thread.
            match self.words.word.compare_exchange_weak(word.0, word.0 + SEARCHER, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(now) => word = Word(now),
            }
        }
    }

    /// Ends the search of a worker. Returns true if no worker searches any more. In this case the caller must check
    /// every queue, and must wake another worker if there are more tasks. A worker that announces its sleep does not
    /// call this function, because the announcement ends the search.
    #[must_use]
    pub(crate) fn stop_searching(&self) -> bool {
        let was_last = Word(self.words.word.fetch_sub(SEARCHER, Ordering::SeqCst)).searchers() == 1;
        // Pairs with the fence in `wake_many`. Either this worker sees the pushed task, or the pushing thread sees that
        // this worker no longer searches.
        if !planted!("idle_stop_has_no_fence") {
            fence(Ordering::SeqCst);
        }
        was_last
    }

    /// Chooses the sleeping workers that must be woken after a push of `count` tasks. The number of needed workers is
    /// `count` minus the number of searching workers. Each chosen thread is counted as searching. If too few threads
    /// sleep, this function also chooses all polled slots whose guests sleep. The guest of a polled slot is not counted
    /// as searching, because the executor may never poll the guest again. The caller must [`wake`](Self::wake) all
    /// returned slots.
    pub(crate) fn wake_many(&self, count: usize) -> Chosen {
        // Pairs with the fence in `announce`. Either the worker that announces its sleep sees the pushed tasks, or this
        // thread sees the bit of that worker.
        if !planted!("idle_no_fence") {
            fence(Ordering::SeqCst);
        }
        let mut word = Word(self.words.word.load(Ordering::Relaxed));
        let mut polled = 0;
        loop {
            let lacks = (count as u64).saturating_sub(word.searchers());
            let more = lacks.min(u64::from(word.sleepers().count_ones()));
            if lacks > more {
                polled |= self.take_polled();
            }
            if more == 0 {
                return Chosen(polled);
            }
            // This function chooses the sleeping slots with the lowest numbers. The variable `more` is the number of
            // chosen slots. The variable `stay` contains the bits of all sleeping slots that continue to sleep.
            let stay = (0..more).fold(word.sleepers(), |left, _| left & (left - 1));
            let chosen = word.sleepers() & !stay;
            let searching = if planted!("idle_batch_counts_one") { 1 } else { more };
            let next = (word.0 & !chosen) + searching * SEARCHER;
            match self.words.word.compare_exchange_weak(word.0, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Chosen(chosen | polled),
                Err(now) => word = Word(now),
            }
        }
    }

    /// Clears the bits of all polled slots whose guests sleep, and returns these bits. Each of these guests checks
    /// every queue at its next poll.
    fn take_polled(&self) -> u64 {
        // Relaxed is enough: the fence of the caller pairs with the fence in `announce_polled`.
        let polled = self.words.polled.load(Ordering::Relaxed);
        if polled == 0 {
            return 0;
        }
        let taken = if planted!("idle_wakes_one_polled") { polled & polled.wrapping_neg() } else { polled };
        self.words.polled.fetch_and(!taken, Ordering::SeqCst) & taken
    }

    /// Announces that the worker of this slot will sleep. If `searching` is true, this call also ends the search of the
    /// worker. After this call, the caller must check every queue once more.
    pub(crate) fn announce(&self, slot: usize, searching: bool) {
        let mut word = self.load();
        loop {
            let next = (word.0 | 1 << slot) - if searching { SEARCHER } else { 0 };
            match self.words.word.compare_exchange_weak(word.0, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(now) => word = Word(now),
            }
        }
        // Pairs with the fence in `wake_many`. Either this worker sees the pushed tasks, or the pushing thread sees the
        // bit of this worker.
        if !planted!("idle_no_fence") {
            fence(Ordering::SeqCst);
        }
    }

    /// Announces that the guest of a polled slot will sleep, as [`announce`](Self::announce) does for a thread. The
    /// executor may never poll this guest again. Therefore a push that wakes one sleeping polled guest wakes all
    /// sleeping polled guests.
    pub(crate) fn announce_polled(&self, slot: usize, searching: bool) {
        self.words.polled.fetch_or(1 << slot, Ordering::SeqCst);
        if searching {
            self.words.word.fetch_sub(SEARCHER, Ordering::SeqCst);
        }
        // Pairs with the fence in `wake_many`, as the fence in `announce` does.
        fence(Ordering::SeqCst);
    }

    /// Retracts the announcement for a polled slot. Called when the guest of the slot is awake.
    pub(crate) fn retract_polled(&self, slot: usize) {
        self.words.polled.fetch_and(!(1 << slot), Ordering::SeqCst);
        self.slots[slot].token.store(false, Ordering::SeqCst);
    }

    /// Retracts the announcement for this slot. Called when the worker of the slot is awake. The result states whether
    /// a push has chosen the worker. A chosen worker must search.
    pub(crate) fn retract(&self, slot: usize) -> Woken {
        let bit = 1 << slot;
        let former = self.words.word.fetch_and(!bit, Ordering::SeqCst);
        self.slots[slot].token.store(false, Ordering::SeqCst);
        if former & bit != 0 { Woken::ByItself } else { Woken::Chosen }
    }

    /// Sets the token of a slot and wakes the worker of this slot. The caller is, for example, a pushing thread that
    /// has chosen the worker, or a thread that has inserted a deadline.
    pub(crate) fn wake(&self, slot: usize) {
        let slot = &self.slots[slot];
        slot.token.store(true, Ordering::SeqCst);
        let waker = {
            let mut parker = slot.parker.lock();
            match &*parker {
                Parker::Vacant => Parker::Vacant,
                Parker::Thread(thread) => {
                    thread.unpark();
                    Parker::Vacant
                }
                // The waker is moved out of the slot, because a clone would run user code under the lock. The next poll
                // sets the waker again.
                Parker::Waker(_) => std::mem::take(&mut *parker),
            }
        };
        if let Parker::Waker(waker) = waker {
            // A waker is user code and may panic. The panic must not unwind through the caller, because the caller may
            // be in the middle of a push. The caller may also hold the lock of an `Event`. In this case, `delayed_wake`
            // calls the waker after the release of the lock.
            delayed_wake::wake_runner(waker);
        }
    }

    /// Registers the calling thread. A later `wake` of this slot unparks this thread.
    pub(crate) fn parks_as_thread(&self, slot: usize) {
        self.set_parker(slot, Parker::Thread(thread::current()));
    }

    /// Registers `waker`. A later `wake` of this slot calls `waker`.
    pub(crate) fn parks_as_waker(&self, slot: usize, waker: &Waker) {
        let known = matches!(&*self.slots[slot].parker.lock(), Parker::Waker(known) if known.will_wake(waker));
        if !known {
            self.set_parker(slot, Parker::Waker(waker.clone()));
        }
    }

    /// Records that this slot has neither a thread nor a waker any more.
    pub(crate) fn leaves(&self, slot: usize) {
        self.set_parker(slot, Parker::Vacant);
    }

    fn set_parker(&self, slot: usize, parker: Parker) {
        let former = std::mem::replace(&mut *self.slots[slot].parker.lock(), parker);
        // The drop of a waker is user code and may panic. The panic must not unwind through the caller. Suppose that
        // the caller is leaving its slot. After an unwind, this slot would never become vacant.
        contain(|| drop(former));
    }

    /// Returns whether the token of this slot is set.
    pub(crate) fn is_woken(&self, slot: usize) -> bool {
        self.slots[slot].token.load(Ordering::SeqCst)
    }

    /// Parks the thread until the slot is woken, or until the duration `time` has passed. If the slot was already
    /// woken, the function returns immediately. The function may also return spuriously.
    pub(crate) fn park(&self, slot: usize, time: Option<Duration>) {
        if self.is_woken(slot) {
            return;
        }
        match time {
            None => thread::park(),
            Some(time) => thread::park_timeout(time),
        }
    }

    /// Makes the worker of this slot the timekeeper, if there is no timekeeper. Returns whether this worker became the
    /// timekeeper.
    pub(crate) fn keep_time(&self, slot: usize) -> bool {
        self.timekeeper.compare_exchange(0, slot + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// If the worker of this slot is the timekeeper, ends this role and returns true. Otherwise returns false.
    pub(crate) fn stop_keeping_time(&self, slot: usize) -> bool {
        self.timekeeper.compare_exchange(slot + 1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Returns the slot of the timekeeper. The timekeeper sleeps at most until the nearest deadline.
    pub(crate) fn timekeeper(&self) -> Option<usize> {
        // Pairs with the fence in `announce`. The function `rearm` calls this function after a deadline was inserted.
        // Either the timekeeper sees the deadline after its announcement, or this load sees the timekeeper.
        fence(Ordering::SeqCst);
        self.timekeeper.load(Ordering::SeqCst).checked_sub(1)
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::platform::sync::Arc;

    #[test]
    fn the_masks_do_not_overlap() {
        assert_eq!(SLEEPERS & SEARCHER, 0);
        assert_eq!(SLEEPERS.count_ones() as usize, SLOTS);
        let word = Word(3 * SEARCHER + 0b101);
        assert_eq!((word.searchers(), word.sleepers()), (3, 0b101));
        assert_eq!(format!("{word:?}"), "3 search, sleeping 0b101");
    }

    /// 4.5b: at most half of the workers search at the same time, but one worker may always search.
    #[test]
    fn at_most_half_of_the_workers_search_but_one_worker_may_always_search() {
        let idle = Idle::new(4);
        assert!(idle.start_searching(1) && !idle.start_searching(3) && idle.start_searching(4));
        assert!(!idle.start_searching(5));
        assert!(!idle.stop_searching());
        assert!(idle.stop_searching());
    }

    /// 4.5c: a push of one task chooses one sleeping worker. If another worker already searches, the push chooses no
    /// worker.
    #[test]
    fn a_push_of_one_task_chooses_a_sleeping_worker_only_if_no_worker_searches() {
        let idle = Idle::new(4);
        let wake_one = || idle.wake_many(1).next();
        assert_eq!(wake_one(), None);
        idle.announce(1, false);
        idle.announce(2, false);
        assert!(idle.is_sleeping(1) && idle.is_sleeping(2) && !idle.is_sleeping(0));
        assert_eq!(wake_one(), Some(1));
        assert_eq!(wake_one(), None, "the chosen one searches");
        assert_eq!(idle.retract(1), Woken::Chosen);
        assert!(idle.stop_searching());
        assert_eq!(idle.retract(2), Woken::ByItself);
    }

    #[test]
    fn a_push_of_many_tasks_chooses_one_sleeping_worker_for_each_task_that_has_no_searching_worker() {
        let idle = Idle::new(8);
        assert_eq!(idle.wake_many(3).count(), 0);
        [1, 2, 4, 7].into_iter().for_each(|slot| idle.announce(slot, false));
        assert!(idle.start_searching(8));
        assert_eq!((idle.wake_many(0).count(), idle.wake_many(1).count()), (0, 0));
        assert_eq!(idle.wake_many(3).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(idle.load().searchers(), 3);
        assert_eq!(idle.wake_many(usize::MAX).collect::<Vec<_>>(), [4, 7]);
        assert_eq!((idle.load().searchers(), idle.load().sleepers()), (5, 0));
    }

    #[test]
    fn a_push_wakes_all_polled_slots_if_there_are_too_few_parked_threads() {
        let idle = Idle::new(8);
        [0, 5].into_iter().for_each(|slot| idle.announce_polled(slot, false));
        idle.announce(3, false);
        assert!([0, 3, 5].into_iter().all(|slot| idle.is_sleeping(slot)));
        assert_eq!(idle.wake_many(1).collect::<Vec<_>>(), [3]);
        assert_eq!(idle.wake_many(1).count(), 0, "the chosen thread searches");
        assert_eq!(idle.retract(3), Woken::Chosen);
        assert!(idle.stop_searching());
        assert_eq!(idle.wake_many(1).collect::<Vec<_>>(), [0, 5]);
        assert_eq!((idle.load().searchers(), idle.is_sleeping(0)), (0, false));
        // In this test, the guests of the slots 0 and 5 are not polled again after their wake-up. The next push must
        // not assume that these two guests will run the new task.
        idle.announce_polled(6, false);
        assert_eq!(idle.wake_many(1).collect::<Vec<_>>(), [6]);
        idle.announce(3, false);
        idle.announce_polled(6, false);
        assert_eq!(idle.wake_many(2).collect::<Vec<_>>(), [3, 6]);
        assert_eq!(idle.load().searchers(), 1);
        assert!(idle.start_searching(8));
        idle.announce_polled(0, true);
        assert_eq!(idle.load().searchers(), 1);
        idle.announce_polled(5, false);
        idle.retract_polled(5);
        assert!(idle.is_sleeping(0) && !idle.is_sleeping(5));
        idle.retract_polled(0);
        assert!(!idle.is_sleeping(0));
    }

    /// Waker that counts its wake-ups. The waker panics at the second wake-up.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl std::task::Wake for Bell {
        fn wake(self: Arc<Self>) {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) == 0, "woken twice");
        }
    }

    #[test]
    fn a_worker_ends_its_search_when_it_announces_its_sleep() {
        let idle = Idle::new(4);
        assert!(idle.start_searching(8) && idle.start_searching(8));
        idle.announce(3, true);
        assert_eq!((idle.load().searchers(), idle.load().sleepers()), (1, 0b1000));
        idle.announce(0, false);
        assert_eq!((idle.load().searchers(), idle.load().sleepers()), (1, 0b1001));
        assert_eq!(idle.retract(3), Woken::ByItself);
        assert_eq!((idle.load().searchers(), idle.load().sleepers()), (1, 0b0001));
    }

    #[test]
    fn a_slot_that_was_woken_does_not_park() {
        let idle = Idle::new(2);
        idle.parks_as_thread(0);
        idle.leaves(0);
        assert!(!idle.is_woken(0));
        // The slot has no thread, so this call unparks no thread.
        idle.wake(0);
        assert!(idle.is_woken(0) && !idle.is_woken(1));
        idle.park(0, None);
        idle.announce(0, false);
        assert_eq!(idle.retract(0), Woken::ByItself);
        assert!(!idle.is_woken(0), "the wake was for that sleep");
        idle.park(0, Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_parked_thread_is_unparked() {
        let idle = Arc::new(Idle::new(1));
        for round in 0..40 {
            let sleeps = Arc::clone(&idle);
            let sleeper = thread::spawn(move || {
                sleeps.parks_as_thread(0);
                sleeps.announce(0, false);
                while !sleeps.is_woken(0) {
                    sleeps.park(0, None);
                }
                let woken = sleeps.retract(0);
                sleeps.leaves(0);
                woken
            });
            while !idle.is_sleeping(0) {
                thread::yield_now();
            }
            // In half of the rounds, the thread has probably parked before the wake-up.
            (0..round % 2 * 10).for_each(|_| thread::yield_now());
            assert_eq!(idle.wake_many(1).next(), Some(0));
            idle.wake(0);
            assert_eq!(sleeper.join().expect("no panic"), Woken::Chosen);
            assert!(idle.stop_searching());
        }
    }

    #[test]
    fn a_waker_is_woken_once_each_time_that_it_is_set() {
        let (idle, bell) = (Idle::new(2), Arc::new(Bell::default()));
        let rung = || bell.0.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&bell));
        let held = Arc::strong_count(&bell);
        idle.parks_as_waker(1, &waker);
        idle.parks_as_waker(1, &waker);
        assert_eq!((rung(), Arc::strong_count(&bell)), (0, held + 1));
        idle.wake(0);
        assert_eq!(rung(), 0);
        idle.wake(1);
        idle.wake(1);
        assert_eq!((rung(), Arc::strong_count(&bell)), (1, held));
        // The panic of this wake-up is caught.
        idle.parks_as_waker(1, &waker);
        idle.wake(1);
        assert_eq!(rung(), 2);
        idle.parks_as_waker(1, &waker);
        idle.leaves(1);
        idle.wake(1);
        assert_eq!((rung(), Arc::strong_count(&bell)), (2, held));
        // Another waker replaces the first waker.
        idle.parks_as_waker(1, &waker);
        idle.parks_as_waker(1, Waker::noop());
        assert_eq!(Arc::strong_count(&bell), held);
    }

    #[test]
    fn only_one_slot_is_the_timekeeper() {
        let idle = Idle::new(3);
        assert_eq!(idle.timekeeper(), None);
        assert!(idle.keep_time(0) && !idle.keep_time(0) && !idle.keep_time(2));
        assert_eq!(idle.timekeeper(), Some(0));
        assert!(!idle.stop_keeping_time(2) && idle.stop_keeping_time(0) && !idle.stop_keeping_time(0));
        assert!(idle.keep_time(2));
        assert_eq!(idle.timekeeper(), Some(2));
    }
}
