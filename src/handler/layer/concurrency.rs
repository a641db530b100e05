//! A limit on the number of commands that the inner handler works on at the same time.

use std::fmt;

use crate::handler::layer::waiters::{Bound, CommandWithHandler, Leave, Line, run_in_new_task};
use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::Completion;
use crate::host::job::blocking_pool::Overflow;
use crate::platform::sync::{Arc, Mutex};
use crate::process::catch::drop_caught;
use crate::process::command::Command;

/// Limits the number of commands that the inner handler works on at the same time. Further commands wait in a queue, in
/// the order of their arrival.
///
/// Each command needs a permit, and holds the permit until the handler answers or drops the completion. A cancellation
/// does not release the permit, because the handler may still work on the command. If a handler [takes the
/// tag](Completion::into_tag), the permit is released immediately. If a waiting command is cancelled, the command
/// leaves the queue immediately.
///
/// If the queue is full, a command fails with [`Failure::Overloaded`](crate::Failure::Overloaded). Clones of a layer
/// share one limit. Therefore, one limit can apply to several types of commands, or to the commands of several runtimes
/// of a program. The command that has waited longest gets a released permit. A task in the runtime of this command then
/// hands the command to the inner handler. Therefore each runtime that shares the limit must have a worker, or another
/// thread must drive this runtime. Otherwise a command of this runtime may get a permit, but then wait until this
/// runtime runs or shuts down. Meanwhile the commands of the other runtimes may wait too.
pub struct ConcurrencyLimit<H> {
    inner: Arc<H>,
    most: usize,
    bound: Bound,
    places: Arc<Permits>,
}

impl<H> ConcurrencyLimit<H> {
    /// Wraps `inner`, which gets at most `most` commands at the same time. If `most` is 0, the limit is 1. By default,
    /// up to 100,000 further commands wait in the queue.
    pub fn new(inner: H, most: usize) -> Self {
        Self { inner: Arc::new(inner), most: most.max(1), bound: Bound::default(), places: Arc::default() }
    }

    /// Sets the maximum number of commands that wait for a permit. Default: 100,000.
    #[must_use]
    pub fn queue_capacity(mut self, most: usize) -> Self {
        self.bound.queue = most;
        self
    }

    /// Sets which command is refused when the queue is full. Default: [`Overflow::Reject`].
    #[must_use]
    pub fn overflow(mut self, policy: Overflow) -> Self {
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

/// A command waits only while all permits are taken. Therefore, if commands wait, the first command in the queue gets a
/// released permit.
#[derive(Default)]
struct State {
    taken: usize,
    line: Line,
}

impl Permits {
    /// Releases a permit, or hands the permit to the next command in the queue.
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
            // If the runtime of the next command has shut down, `run_in_new_task` drops this command, and the loop
            // continues with the command that follows.
            let Some(next) = next else { return };
            if run_in_new_task(next, || Box::new(Permit(Arc::clone(self)))) {
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

/// The permit of one command.
struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<C: Command, H: Handler<C>> Handler<C> for ConcurrencyLimit<H> {
    fn handle(&self, command: C, completion: Completion<C::Reply>) {
        let command = CommandWithHandler::new(&self.inner, command, completion);
        let mut state = self.places.state.lock();
        if state.taken < self.most {
            state.taken += 1;
            drop(state);
            return command.run_immediately(Permit(Arc::clone(&self.places)));
        }
        let rejected = state.line.join(Box::new(command), self.bound, &self.places);
        drop(state);
        if let Some(rejected) = rejected {
            rejected.refuse_or_drop(|| format!("concurrency limit of {}", self.most), self.bound.queue);
        }
    }
}
