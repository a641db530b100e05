//! Who is ready, and who of them is next: drawn from the seed.

use std::collections::VecDeque;
use std::fmt;
use std::task::Wake;

use crate::host::job::Job;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, Mutex};

/// What has a turn.
pub(super) enum Entry {
    Job(Job),
    /// The future that the simulation was given.
    Own(Arc<Own>),
}

/// What comes next.
pub(super) enum Next {
    Entry(Entry),
    /// The first timer that is due.
    Timer,
    Nothing,
}

/// What is ready, in the order in which it became so.
pub(super) struct Queue(Mutex<State>);

struct State {
    ready: VecDeque<Entry>,
    rng: Rng,
    /// How many choices there were, where there was one to make.
    drawn: u64,
    /// How many may be made by chance.
    most: u64,
    closed: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { ready, drawn, .. } = &*self.0.lock();
        f.debug_struct("Queue").field("ready", &ready.len()).field("drawn", drawn).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(rng: Rng) -> Self {
        Self(Mutex::new(State { ready: VecDeque::new(), rng, drawn: 0, most: u64::MAX, closed: false }))
    }

    /// Leaves so many choices to chance; whoever is ready for longest is next from there on.
    pub(super) fn limit(&self, most: u64) {
        self.0.lock().most = most;
    }

    /// How many choices there were.
    pub(super) fn drawn(&self) -> u64 {
        self.0.lock().drawn
    }

    /// Adds somebody who is ready; dropped, which is its end, where nobody will ever run it.
    pub(super) fn push(&self, entry: Entry) {
        let mut state = self.0.lock();
        if !state.closed {
            return state.ready.push_back(entry);
        }
        drop(state);
        drop(entry);
    }

    /// Takes one of those who are ready; or, if there is a timer that is due, perhaps that comes first: it does where
    /// nothing is left to chance.
    pub(super) fn next(&self, is_due: bool) -> Next {
        let state = &mut *self.0.lock();
        let count = state.ready.len() + usize::from(is_due);
        let by_chance = state.drawn < state.most;
        if count > 1 {
            state.drawn += 1;
            if by_chance {
                let chosen = state.rng.below(count);
                if chosen == state.ready.len() {
                    return Next::Timer;
                }
                state.ready.swap(0, chosen);
                return state.ready.pop_front().map_or(Next::Nothing, Next::Entry);
            }
        }
        if is_due {
            return Next::Timer;
        }
        state.ready.pop_front().map_or(Next::Nothing, Next::Entry)
    }

    /// Takes nobody any more.
    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }
}

/// The waker of the future that a simulation was given: it is ready once, however often it is woken.
pub(super) struct Own {
    queue: Arc<Queue>,
    is_queued: AtomicBool,
}

impl Own {
    /// Of a future that is ready.
    pub(super) fn ready(queue: &Arc<Queue>) -> Arc<Self> {
        let own = Arc::new(Self { queue: Arc::clone(queue), is_queued: AtomicBool::new(false) });
        own.wake_by_ref();
        own
    }

    /// It has its turn: from here on it can be woken again.
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
            self.queue.push(Entry::Own(Arc::clone(self)));
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    /// Three futures of which each turn of one makes it ready again; whose turns they were.
    fn order(seed: u64, most: u64) -> Vec<usize> {
        let queue = Arc::new(Queue::new(Rng::seeded(seed)));
        queue.limit(most);
        let all = [(); 3].map(|()| Own::ready(&queue));
        let turn = |_| {
            let Next::Entry(Entry::Own(own)) = queue.next(false) else { panic!("all are ready, always") };
            own.begin();
            own.wake_by_ref();
            own.wake_by_ref();
            all.iter().position(|one| Arc::ptr_eq(one, &own)).expect("one of them")
        };
        let turns = (0..30).map(turn).collect();
        assert_eq!(queue.drawn(), 30);
        // Whoever is in the queue holds it.
        queue.close();
        while let Next::Entry(_) = queue.next(false) {}
        turns
    }

    #[test]
    fn a_seed_is_an_order() {
        assert_eq!(order(1, u64::MAX), order(1, u64::MAX));
        assert_ne!(order(1, u64::MAX), order(2, u64::MAX));
        assert!((0..3).all(|one| order(1, u64::MAX).contains(&one)));
    }

    #[test]
    fn beyond_the_choices_the_first_is_next() {
        assert_eq!(order(1, 0), [0, 1, 2].repeat(10));
        let some = order(1, 7);
        assert_eq!(some[..7], order(1, u64::MAX)[..7]);
        assert!(some[7..].windows(4).all(|four| four[0] == four[3] && four[0] != four[1] && four[1] != four[2]));
    }
}
