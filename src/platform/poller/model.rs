//! The poller of the loom models. This poller does not call the operating system: a model reports events with
//! [`ModelPoller::report`]. This poller uses the locks of the real poller (`turn.rs`).

use std::task::{Wake, Waker};
use std::time::Duration;

use crate::platform::poller::turn::{Called, Turns};
use crate::platform::poller::{SocketWait, Wait};
use crate::platform::sync::{Arc, Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct ModelPoller {
    turns: Turns<()>,
    system: Arc<ModelSystem>,
    waker: Waker,
}

/// The state that the operating system stores for the real poller.
#[derive(Debug, Default)]
struct ModelSystem {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// True after a wake-up, until a call has taken the event of this wake-up.
    has_event: bool,
    ready: Vec<Waker>,
}

impl Wake for ModelSystem {
    fn wake(self: Arc<Self>) {
        self.state.lock().has_event = true;
        self.changed.notify_all();
    }
}

impl ModelPoller {
    pub(crate) fn new() -> Self {
        let system = Arc::<ModelSystem>::default();
        Self { turns: Turns::new(()), waker: Waker::from(Arc::clone(&system)), system }
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Works like `poll` of the real poller. In a model, no time passes. Therefore a wait ends only with an event,
    /// unless its time limit is zero.
    pub(crate) fn poll(&self, wait: Wait, ready: &mut Vec<Waker>) -> bool {
        self.turns.call(wait, |(), limit| {
            let mut state = self.system.state.lock();
            while limit != Some(Duration::ZERO) && state.ready.is_empty() && !state.has_event {
                state = self.system.changed.wait(state).expect("never poisoned");
            }
            ready.append(&mut state.ready);
            Called::Events { woken: std::mem::take(&mut state.has_event) }
        })
    }

    /// Reports an event: the operation to which this waker belongs can continue.
    pub(crate) fn report(&self, waker: Waker) {
        self.system.state.lock().ready.push(waker);
        self.system.changed.notify_all();
    }

    /// Ends the current wait. After this call, each later wait returns immediately.
    pub(crate) fn stop(&self) {
        self.turns.stop();
        self.waker.wake_by_ref();
    }

    pub(crate) fn len(&self) -> usize {
        self.system.state.lock().ready.len()
    }

    pub(crate) fn visit_waiters(&self, _: &mut dyn FnMut(SocketWait<'_>)) {}

    pub(crate) fn close(&self) -> Vec<Waker> {
        std::mem::take(&mut self.system.state.lock().ready)
    }
}
