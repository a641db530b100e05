//! The poller of the loom models. It has no system: a model reports events by [`Poller::report`].

use std::task::{Wake, Waker};
use std::time::Duration;

use crate::platform::poller::Wait;
use crate::platform::sync::{Arc, Condvar, Mutex, planted};

#[derive(Debug)]
pub(crate) struct Poller {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_used: bool,
    has_helper: bool,
    is_woken: bool,
    is_stopped: bool,
    ready: Vec<Waker>,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.state.lock().is_woken = true;
        self.changed.notify_all();
    }
}

impl Poller {
    pub(crate) fn new() -> Self {
        let shared = Arc::<Shared>::default();
        Self { waker: Waker::from(Arc::clone(&shared)), shared }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// As the call of the real poller. In a model, time does not pass: a wait with a time limit above zero has no limit.
    pub(crate) fn poll(&self, wait: Wait, ready: &mut Vec<Waker>) -> bool {
        let mut state = self.shared.state.lock();
        state.has_helper |= wait == Wait::Alone;
        let gives_up = wait == Wait::No || planted!("timekeeper_gives_up");
        while state.is_used && !gives_up && (wait == Wait::Alone || !state.has_helper) {
            state = self.shared.changed.wait(state).expect("never poisoned");
        }
        if state.is_used {
            return false;
        }
        state.is_used = true;
        if wait == Wait::No {
            // The system call of the real poller takes time, and the thread uses the poller during this time.
            drop(state);
            state = self.shared.state.lock();
        }
        let waits = !matches!(wait, Wait::No | Wait::For(Some(Duration::ZERO)));
        while waits && state.ready.is_empty() && !state.is_woken && !state.is_stopped {
            state = self.shared.changed.wait(state).expect("never poisoned");
        }
        state.is_used = false;
        if wait != Wait::No || planted!("asking_takes_wake_up") {
            state.is_woken = false;
        }
        ready.append(&mut state.ready);
        drop(state);
        self.shared.changed.notify_all();
        true
    }

    /// Reports that the operation of this waker can go on.
    pub(crate) fn report(&self, waker: Waker) {
        self.shared.state.lock().ready.push(waker);
        self.shared.changed.notify_all();
    }

    /// Ends the present wait, and all later waits immediately.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.changed.notify_all();
    }

    pub(crate) fn close(&self) -> Vec<Waker> {
        std::mem::take(&mut self.shared.state.lock().ready)
    }
}
