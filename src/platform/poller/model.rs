//! The poller of the loom models. It calls no system: a model reports its events with [`ModelPoller::report`].

use std::task::{Wake, Waker};
use std::time::Duration;

use crate::platform::poller::Wait;
use crate::platform::sync::{Arc, Condvar, Mutex, planted};

#[derive(Debug)]
pub(crate) struct ModelPoller {
    shared: Arc<SharedState>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_used: bool,
    has_helper: bool,
    /// Whether the system has an event of a wake-up that no call has taken yet.
    has_event: bool,
    /// Whether a call other than the wait of the timekeeper has taken the event of a wake-up.
    is_woken: bool,
    is_stopped: bool,
    ready: Vec<Waker>,
}

impl Wake for SharedState {
    fn wake(self: Arc<Self>) {
        self.state.lock().has_event = true;
        self.changed.notify_all();
    }
}

impl ModelPoller {
    pub(crate) fn new() -> Self {
        let shared = Arc::<SharedState>::default();
        Self { waker: Waker::from(Arc::clone(&shared)), shared }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Like the function of the real poller. In a model, no time passes, so a wait with a time limit above zero has no
    /// limit.
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
            // The real poller makes a system call here, which takes time. During this time, the thread still uses the
            // poller.
            drop(state);
            state = self.shared.state.lock();
        }
        let waits = !matches!(wait, Wait::No | Wait::For(Some(Duration::ZERO)));
        let is_timekeeper = matches!(wait, Wait::For(_));
        let mut is_over = is_timekeeper && std::mem::take(&mut state.is_woken);
        while waits && !is_over && state.ready.is_empty() && !state.has_event && !state.is_stopped {
            state = self.shared.changed.wait(state).expect("never poisoned");
        }
        is_over = std::mem::take(&mut state.has_event);
        state.is_woken |= is_over && !is_timekeeper && !planted!("asking_takes_wake_up");
        state.is_used = false;
        ready.append(&mut state.ready);
        drop(state);
        self.shared.changed.notify_all();
        true
    }

    /// Reports that the operation of this waker can continue.
    pub(crate) fn report(&self, waker: Waker) {
        self.shared.state.lock().ready.push(waker);
        self.shared.changed.notify_all();
    }

    /// Ends the present wait. After this call, each later wait returns immediately.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.changed.notify_all();
    }

    pub(crate) fn close(&self) -> Vec<Waker> {
        std::mem::take(&mut self.shared.state.lock().ready)
    }
}
