//! The queue of runnable tasks of a simulation. A random number generator chooses the next task. The seed of the
//! simulation initializes the generator.

use std::collections::VecDeque;
use std::fmt;
use std::task::Wake;

use crate::host::job::Job;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, Mutex};

/// A runnable task.
pub(super) enum ReadyEntry {
    Job(Job),
    /// The future that the simulation runs.
    Own(Arc<Own>),
}

/// Next action of the simulation.
pub(super) enum Next {
    Entry(ReadyEntry),
    /// The simulation fires the first due timer.
    Timer,
    Nothing,
}

/// The runnable tasks. While the choices are random, the tasks are in any order. After the last random choice, the
/// tasks are in the order in which they became runnable.
pub(super) struct ReadyQueue(Mutex<State>);

struct State {
    /// Each task is stored with its number. Tasks are numbered in the order in which they became runnable.
    ready: VecDeque<(u64, ReadyEntry)>,
    /// Number of tasks that became runnable so far.
    pushed: u64,
    rng: Rng,
    /// Number of choices so far. A choice is counted only if the choice has at least two candidates.
    drawn: u64,
    /// Maximum number of random choices.
    most: u64,
    closed: bool,
}

impl fmt::Debug for ReadyQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ready, drawn) = {
            let State { ready, drawn, .. } = &*self.0.lock();
            (ready.len(), *drawn)
        };
        // The formatter is user code, so the formatter must not run under the lock.
        f.debug_struct("ReadyQueue").field("ready", &ready).field("drawn", &drawn).finish_non_exhaustive()
    }
}

impl State {
    /// Removes the first task.
    fn pop(&mut self) -> Next {
        self.ready.pop_front().map_or(Next::Nothing, |(_, entry)| Next::Entry(entry))
    }

    /// Sorts the tasks by their numbers if no later choice is random.
    fn sort_if_not_random(&mut self) {
        if self.drawn >= self.most {
            self.ready.make_contiguous().sort_unstable_by_key(|&(number, _)| number);
        }
    }
}

impl ReadyQueue {
    pub(super) fn new(rng: Rng) -> Self {
        Self(Mutex::new(State { ready: VecDeque::new(), pushed: 0, rng, drawn: 0, most: u64::MAX, closed: false }))
    }

    /// Returns the number of runnable tasks, and the memory of the queue in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let ready = &self.0.lock().ready;
        (ready.len(), ready.capacity() * size_of::<(u64, ReadyEntry)>())
    }

    /// Limits the number of random choices. After this number of choices, the next task is always the task that has
    /// been runnable for the longest time.
    pub(super) fn limit(&self, most: u64) {
        let state = &mut *self.0.lock();
        state.most = most;
        state.sort_if_not_random();
    }

    /// Returns the number of choices so far.
    pub(super) fn drawn(&self) -> u64 {
        self.0.lock().drawn
    }

    /// Queues a runnable task. If the queue is closed, the task will never run, and this function drops the task after
    /// the release of the lock. If the dropped task is a process, the process exits.
    pub(super) fn push(&self, entry: ReadyEntry) {
        let mut state = self.0.lock();
        if !state.closed {
            let number = state.pushed;
            state.pushed += 1;
            return state.ready.push_back((number, entry));
        }
        drop(state);
        drop(entry);
    }

    /// Chooses the next task or timer, and removes a chosen task from the queue. `is_due` says whether a timer is due.
    /// A due timer is one of the candidates of a random choice. If the choice is not random, a due timer is chosen
    /// before all tasks.
    pub(super) fn next(&self, is_due: bool) -> Next {
        let state = &mut *self.0.lock();
        let count = state.ready.len() + usize::from(is_due);
        let by_chance = state.drawn < state.most;
        if count > 1 {
            state.drawn += 1;
            if by_chance {
                let chosen = state.rng.below(count);
                if chosen == state.ready.len() {
                    state.sort_if_not_random();
                    return Next::Timer;
                }
                // A swap is cheaper than a removal in the middle, but changes the order of the queue.
                state.ready.swap(0, chosen);
                let next = state.pop();
                state.sort_if_not_random();
                return next;
            }
        }
        if is_due { Next::Timer } else { state.pop() }
    }

    /// Closes the queue. Tasks that are pushed later are dropped.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }
}

/// Waker of the future that the simulation runs. If the future is woken several times before its next poll, the future
/// is queued only once.
pub(super) struct Own {
    queue: Arc<ReadyQueue>,
    is_queued: AtomicBool,
}

impl Own {
    /// Creates the waker of the future, and queues the future.
    pub(super) fn ready(queue: &Arc<ReadyQueue>) -> Arc<Self> {
        let own = Arc::new(Self { queue: Arc::clone(queue), is_queued: AtomicBool::new(false) });
        own.wake_by_ref();
        own
    }

    /// Records that a poll of the future begins. After this call, a wake-up queues the future again.
    pub(super) fn begin(&self) {
        self.is_queued.store(false, Ordering::SeqCst);
    }
}

impl Wake for Own {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            self.queue.push(ReadyEntry::Own(Arc::clone(self)));
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    /// Runs three futures, and returns the order of their turns. Each future wakes itself in each of its turns.
    fn order(seed: u64, most: u64) -> Vec<usize> {
        let queue = Arc::new(ReadyQueue::new(Rng::seeded(seed)));
        queue.limit(most);
        let all = [(); 3].map(|()| Own::ready(&queue));
        let turn = |_| {
            let Next::Entry(ReadyEntry::Own(own)) = queue.next(false) else { panic!("all are ready, always") };
            own.begin();
            own.wake_by_ref();
            own.wake_by_ref();
            all.iter().position(|one| Arc::ptr_eq(one, &own)).expect("one of them")
        };
        let turns = (0..30).map(turn).collect();
        assert_eq!(queue.drawn(), 30);
        // Each queued entry owns a reference to the queue. The loop removes the entries to break this cycle.
        queue.close();
        while let Next::Entry(_) = queue.next(false) {}
        turns
    }

    #[test]
    fn a_seed_determines_the_order() {
        assert_eq!(order(1, u64::MAX), order(1, u64::MAX));
        assert_ne!(order(1, u64::MAX), order(2, u64::MAX));
        assert!((0..3).all(|one| order(1, u64::MAX).contains(&one)));
    }

    #[test]
    fn after_the_last_random_choice_the_oldest_task_runs_first() {
        assert_eq!(order(1, 0), [0, 1, 2].repeat(10));
        let some = order(1, 7);
        assert_eq!(some[..7], order(1, u64::MAX)[..7]);
        assert!(some[7..].windows(4).all(|four| four[0] == four[3] && four[0] != four[1] && four[1] != four[2]));
    }
}
