//! Commands that wait for a limit: the oldest first, a bounded number of them, each free to leave at any moment.

use std::any::type_name;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::task::{Context, Wake, Waker};

use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::{Completion, guarded};
use crate::host::job::blocking_pool::WhenFull;
use crate::host::{Host, Phase};
use crate::platform::sync::{Arc, Weak};
use crate::process::catch::drop_caught;
use crate::process::command::Command;
use crate::process::failure::Failure;

/// Why a limit refused a command: the error inside its [`Failure::Error`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerRefusal {
    /// The limit is reached, and as many commands wait for it as may.
    Full {
        /// What the command is.
        command: &'static str,
        /// The limit, in words.
        limit: String,
        /// How many may wait.
        queue: usize,
    },
    /// It waited, and gave way to a newer command: see [`WhenFull::DropOldest`].
    Displaced {
        /// What the command is.
        command: &'static str,
        /// The limit, in words.
        limit: String,
        /// How many may wait.
        queue: usize,
    },
}

impl fmt::Display for LayerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { command, limit, queue } => {
                write!(f, "the limit of {limit} is reached for {command}, and no more than {queue} may wait")
            }
            Self::Displaced { command, limit, queue } => {
                write!(f, "the limit of {limit} is reached for {command}, and this one gave way: {queue} may wait")
            }
        }
    }
}

impl Error for LayerRefusal {}

/// How many may wait, and who is refused then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) queue: usize,
    pub(super) when_full: WhenFull,
}

impl Default for Bound {
    fn default() -> Self {
        Self { queue: 100_000, when_full: WhenFull::Refuse }
    }
}

/// A command that waits, whatever its type.
pub(super) trait Waiting: Send {
    fn host(&self) -> &Host;

    /// True while the command is wanted; then `leaver` will be woken when that ends.
    fn watch(&self, leaver: &Waker) -> bool;

    /// Hands it to its handler. `place` is let go when that has answered.
    fn go(self: Box<Self>, place: Box<dyn Send>);

    fn refuse(self: Box<Self>, limit: String, queue: usize, displaced: bool);
}

/// A command before its handler.
pub(super) struct Turn<H, C: Command> {
    pub(super) inner: Arc<H>,
    pub(super) command: C,
    pub(super) completion: Completion<C::Reply>,
}

impl<C: Command, H: Handler<C>> Turn<H, C> {
    /// As [`Waiting::go`], for one that never waited.
    pub(super) fn go_at_once<P: Send + 'static>(self, place: P) {
        let Self { inner, command, completion } = self;
        let completion = completion.intercept(move |answer, outer| {
            // What it holds is let go before its answer is known.
            drop(place);
            outer.finish(answer);
        });
        inner.handle(command, completion);
    }
}

impl<C: Command, H: Handler<C>> Waiting for Turn<H, C> {
    fn host(&self) -> &Host {
        self.completion.host()
    }

    fn watch(&self, leaver: &Waker) -> bool {
        self.completion.poll_cancelled(&Context::from_waker(leaver)).is_pending()
    }

    fn go(self: Box<Self>, place: Box<dyn Send>) {
        if !self.completion.is_cancelled() {
            guarded(|| self.go_at_once(place));
        }
    }

    fn refuse(self: Box<Self>, limit: String, queue: usize, displaced: bool) {
        let Self { command, completion, .. } = *self;
        let _ = drop_caught(command);
        let command = type_name::<C>();
        completion.fail(Failure::new(match displaced {
            false => LayerRefusal::Full { command, limit, queue },
            true => LayerRefusal::Displaced { command, limit, queue },
        }));
    }
}

/// Where there is a line to leave.
pub(super) trait Leave: Send + Sync {
    /// Takes this one out of the line, if it is still there.
    fn leave(&self, ticket: u64);
}

/// Woken when a command that waits is given up.
struct Leaver<L: Leave> {
    line: Weak<L>,
    ticket: u64,
}

impl<L: Leave + 'static> Wake for Leaver<L> {
    fn wake(self: Arc<Self>) {
        if let Some(line) = self.line.upgrade() {
            line.leave(self.ticket);
        }
    }
}

/// What became of a command that did not join the line; whoever joined it does this, after the unlock.
#[must_use]
pub(super) enum QueueAnswer {
    /// This one is refused.
    Refused(Box<dyn Waiting>),
    /// This one gave way to it.
    Displaced(Box<dyn Waiting>),
    /// Nobody waits for it any more.
    Unwanted(Box<dyn Waiting>),
}

impl QueueAnswer {
    pub(super) fn away(self, limit: impl FnOnce() -> String, queue: usize) {
        match self {
            Self::Refused(turn) => turn.refuse(limit(), queue, false),
            Self::Displaced(turn) => turn.refuse(limit(), queue, true),
            Self::Unwanted(turn) => drop(drop_caught(turn)),
        }
    }
}

/// The line itself, to be put under a lock.
#[derive(Default)]
pub(super) struct Line {
    waiting: BTreeMap<u64, Box<dyn Waiting>>,
    tickets: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts a command at the end. It leaves by [`Leave::leave`] of `whose` as soon as it is given up: that takes the lock
    /// that this is called under, so it can't come before the command is in its place.
    pub(super) fn join<L: Leave + 'static>(
        &mut self,
        turn: Box<dyn Waiting>,
        bound: Bound,
        whose: &Arc<L>,
    ) -> Option<QueueAnswer> {
        let is_full = self.waiting.len() >= bound.queue;
        if is_full && (bound.queue == 0 || bound.when_full == WhenFull::Refuse) {
            return Some(QueueAnswer::Refused(turn));
        }
        let ticket = self.tickets;
        self.tickets += 1;
        if !turn.watch(&Waker::from(Arc::new(Leaver { line: Arc::downgrade(whose), ticket }))) {
            return Some(QueueAnswer::Unwanted(turn));
        }
        let displaced = if is_full { self.pop() } else { None };
        self.waiting.insert(ticket, turn);
        displaced.map(QueueAnswer::Displaced)
    }

    /// The one that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Box<dyn Waiting>> {
        self.waiting.pop_first().map(|(_, turn)| turn)
    }

    /// The host of the command that has waited longest, of those whose runtime has not shut down.
    pub(super) fn open_host(&self) -> Option<Host> {
        self.waiting.values().map(|turn| turn.host()).find(|host| host.phase() != Phase::Closed).cloned()
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Box<dyn Waiting>> {
        self.waiting.remove(&ticket)
    }
}

/// Has a task hand a command that waited to its handler: not this thread, which may be just answering another one. False
/// when there is nothing that would run it.
pub(super) fn send_off(turn: Box<dyn Waiting>, place: impl FnOnce() -> Box<dyn Send>) -> bool {
    let host = turn.host().clone();
    if host.phase() == Phase::Closed {
        let _ = drop_caught(turn);
        return false;
    }
    let place = place();
    host.spawn_future(async move { turn.go(place) });
    true
}

/// Hands a command that waited to its handler here, in a task of the same runtime: those that are due at once go in their
/// order, where tasks of their own would be run in any. One of another runtime is [sent off](send_off) there.
pub(super) fn go_in_order(turn: Box<dyn Waiting>, here: &Host) {
    if Arc::ptr_eq(turn.host().shared(), here.shared()) && here.phase() != Phase::Closed {
        turn.go(Box::new(()));
    } else {
        send_off(turn, || Box::new(()));
    }
}
