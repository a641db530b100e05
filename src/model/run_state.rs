//! Models of the run state of a process. A woken process is queued once, and checks its messages again.
//!
//! This file has unsafe code, because this file calls the unsafe functions of a run state. In a model, a run state does
//! not belong to the cell of a process, so each thread may change the run state.

#![allow(unsafe_code)]

use crate::model::{Waiter, join, spawn};
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Mutex};
use crate::process::state::RunState;

/// These functions are only for run states that do not belong to a cell. Without a cell, no memory access depends on
/// the run state.
impl RunState {
    #[must_use = "a process that is not queued again never runs again"]
    pub(super) fn model_wait(&self, open: bool) -> bool {
        // SAFETY: this run state belongs to no cell, so no memory access depends on the right to run the process. The
        // model itself asserts that at most one thread has the right to run the process.
        unsafe { self.wait(open) }
    }

    pub(super) fn model_end(&self) {
        // SAFETY: this run state belongs to no cell, so there is no outcome that a handle could take.
        unsafe { self.end() }
    }
}

/// A process that waits for two messages. No lock protects the messages, so only the run state makes the messages
/// visible to the process.
struct World {
    state: RunState,
    mail: [AtomicUsize; 2],
    /// Number of queue entries that refer to the process: at most 1.
    queued: Mutex<usize>,
    worker: Arc<Waiter>,
}

impl World {
    /// Creates a process that is queued for the first time.
    fn new() -> Arc<Self> {
        let (state, mail) = (RunState::active(), [0, 1].map(|_| AtomicUsize::new(0)));
        Arc::new(Self { state, mail, queued: Mutex::new(1), worker: Waiter::here() })
    }

    fn queue(&self) {
        let mut queued = self.queued.lock();
        *queued += 1;
        assert_eq!(*queued, 1, "it is queued twice");
        drop(queued);
        self.worker.waker().wake();
    }

    fn send(&self, to: usize) {
        self.mail[to].store(1, Ordering::Relaxed);
        if self.state.wake() {
            self.queue();
        }
    }

    /// Runs the process as a worker does, until both messages of the process have arrived.
    fn run(&self) {
        loop {
            while std::mem::take(&mut *self.queued.lock()) == 0 {
                self.worker.wait();
            }
            assert!(!self.state.begin(), "the process was not recalled, because no other thread reads its mailbox");
            if self.mail.iter().all(|mail| mail.load(Ordering::Relaxed) == 1) {
                return self.state.model_end();
            }
            if !self.state.model_wait(false) {
                self.queue();
            }
        }
    }
}

/// Two threads wake the process, before and during its first turn.
pub fn two_wakes() {
    let world = World::new();
    let senders = [0, 1].map(|to| spawn(&world, move |world| world.send(to)));
    world.run();
    senders.into_iter().for_each(join);
    assert!(!world.state.wake(), "it has ended");
}

/// One thread wakes the process twice.
pub fn a_wake_after_a_wake() {
    let world = World::new();
    let sender = spawn(&world, |world| [0, 1].into_iter().for_each(|to| world.send(to)));
    world.run();
    join(sender);
}
