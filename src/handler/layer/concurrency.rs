//! A limit of how many commands the handler inside has at once.

use std::fmt;

use crate::handler::layer::waiters::{Bound, Leave, Line, Turn, send_off};
use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::Completion;
use crate::host::job::blocking_pool::WhenFull;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::drop_caught;
use crate::process::command::Command;

/// Gives the handler inside so many commands at once and no more; the others wait their turn, first come, first served.
///
/// A place is taken until the handler has answered, or has dropped its completion: also by a command that was given up
/// meanwhile, for the handler may still be at work on it. (One that [takes its tag](Completion::into_tag) gives its place
/// back then.) A command that is given up while it waits leaves the queue at once.
///
/// When as many wait as may, a command fails with a [`LayerRefusal`](crate::handler::layer::LayerRefusal). A clone shares the limit, so
/// that several commands can.
pub struct ConcurrencyLimit<H> {
    inner: Arc<H>,
    most: usize,
    bound: Bound,
    places: Arc<Permits>,
}

impl<H> ConcurrencyLimit<H> {
    /// Gives `inner` at most `most` commands at once; 0 means 1. Up to 100,000 wait.
    pub fn new(inner: H, most: usize) -> Self {
        Self { inner: Arc::new(inner), most: most.max(1), bound: Bound::default(), places: Arc::default() }
    }

    /// How many commands may wait for a place.
    #[must_use]
    pub fn queue(mut self, most: usize) -> Self {
        self.bound.queue = most;
        self
    }

    /// Which command is refused when as many wait as may.
    #[must_use]
    pub fn when_full(mut self, policy: WhenFull) -> Self {
        self.bound.when_full = policy;
        self
    }
}

impl<H> Clone for ConcurrencyLimit<H> {
    fn clone(&self) -> Self {
        let Self { inner, most, bound, places } = self;
        Self { inner: Arc::clone(inner), most: *most, bound: *bound, places: Arc::clone(places) }
    }
}

impl<H: fmt::Debug> fmt::Debug for ConcurrencyLimit<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.places.state.lock();
        let (taken, waiting) = (state.taken, state.line.len());
        drop(state);
        f.debug_struct("ConcurrencyLimit")
            .field("inner", &self.inner)
            .field("most", &self.most)
            .field("bound", &self.bound)
            .field("taken", &taken)
            .field("waiting", &waiting)
            .finish()
    }
}

#[derive(Default)]
struct Permits {
    state: Mutex<State>,
}

/// While somebody waits, all places are taken: one that is given back goes to the first in the line.
#[derive(Default)]
struct State {
    taken: usize,
    line: Line,
}

impl Permits {
    /// Gives a place back, or to the next.
    fn release(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.line.pop();
                if next.is_none() {
                    state.taken -= 1;
                }
                next
            };
            // A loop, for at the end of a runtime nobody takes it, however many wait.
            let Some(next) = next else { return };
            if send_off(next, || Box::new(Permit(Arc::clone(self)))) {
                return;
            }
        }
    }
}

impl Leave for Permits {
    fn leave(&self, ticket: u64) {
        let left = self.state.lock().line.remove(ticket);
        let _ = drop_caught(left);
    }
}

/// The right to be at work.
struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<C: Command, H: Handler<C>> Handler<C> for ConcurrencyLimit<H> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        let turn = Turn { inner: Arc::clone(&self.inner), command, completion };
        let mut state = self.places.state.lock();
        if state.taken < self.most {
            state.taken += 1;
            drop(state);
            return turn.go_at_once(Permit(Arc::clone(&self.places)));
        }
        let turned = state.line.join(Box::new(turn), self.bound, &self.places);
        drop(state);
        if let Some(turned) = turned {
            turned.away(|| format!("{} at once", self.most), self.bound.queue);
        }
    }
}
