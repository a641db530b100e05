//! The queue of commands that wait because a limit is reached. The queue is bounded, and its order is first in, first
//! out. A cancelled command leaves the queue immediately. The owner of the queue protects the queue with a lock.

use std::any::type_name;
use std::collections::BTreeMap;
use std::task::{Context, Wake, Waker};

use futures::FutureExt;

use crate::host::dispatch::Handler;
use crate::host::dispatch::completion::{Completion, Unwanted, guarded};
use crate::host::job::blocking_pool::Overflow;
use crate::host::{Host, Phase};
use crate::platform::sync::{Arc, Weak};
use crate::process::catch::drop_caught;
use crate::process::command::{Command, name_of};
use crate::process::exit::Reason;
use crate::process::failure::Failure;

/// Capacity of a queue, and the policy for a full queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) queue: usize,
    pub(super) when_full: Overflow,
}

impl Default for Bound {
    fn default() -> Self {
        Self { queue: 100_000, when_full: Overflow::Reject }
    }
}

/// A waiting command whose type is erased.
pub(super) trait WaitingCommand: Send {
    fn host(&self) -> &Host;

    /// Returns whether the command is still wanted. If the result is true, `leaver` is woken when the command is no
    /// longer wanted.
    fn watch(&mut self, leaver: &Waker) -> bool;

    /// Returns whether the command is still wanted.
    fn is_wanted(&self) -> bool;

    /// Hands the command to its handler. `place`, for example a permit, is dropped when the handler has answered. If
    /// the command is not wanted, drops the command and `place`.
    fn run_or_drop(self: Box<Self>, place: Box<dyn Send>);

    fn refuse(self: Box<Self>, limit: String, queue: usize, displaced: bool);
}

/// A command and its handler.
pub(super) struct CommandWithHandler<H, C: Command> {
    inner: Arc<H>,
    command: C,
    completion: Completion<C::Reply>,
    /// Removes the command from its queue when the command is cancelled. `None` if the command is in no queue.
    unwanted: Option<Unwanted>,
}

impl<C: Command, H: Handler<C>> CommandWithHandler<H, C> {
    pub(super) fn new(inner: &Arc<H>, command: C, completion: Completion<C::Reply>) -> Self {
        Self { inner: Arc::clone(inner), command, completion, unwanted: None }
    }

    /// Hands the command to its handler immediately, without a wait in a queue. [`WaitingCommand::run_or_drop`] is the
    /// counterpart for a command that has waited.
    pub(super) fn run_immediately<P: Send + 'static>(self, place: P) {
        let Self { inner, command, completion, unwanted } = self;
        drop(unwanted);
        let completion = completion.intercept(move |answer, outer| {
            // The place is dropped before the answer is delivered.
            drop(place);
            outer.finish(answer);
        });
        inner.handle(command, completion);
    }
}

impl<C: Command, H: Handler<C>> WaitingCommand for CommandWithHandler<H, C> {
    fn host(&self) -> &Host {
        self.completion.host()
    }

    fn watch(&mut self, leaver: &Waker) -> bool {
        let unwanted = self.unwanted.insert(self.completion.cancelled());
        unwanted.poll_unpin(&mut Context::from_waker(leaver)).is_pending()
    }

    fn is_wanted(&self) -> bool {
        !self.completion.is_cancelled()
    }

    fn run_or_drop(self: Box<Self>, place: Box<dyn Send>) {
        if self.is_wanted() {
            let _ = guarded(|| self.run_immediately(place));
        } else {
            let _ = drop_caught(self);
        }
    }

    fn refuse(self: Box<Self>, limit: String, queue: usize, displaced: bool) {
        let Self { command, completion, .. } = *self;
        let _ = drop_caught(command);
        let command = name_of(type_name::<C>());
        completion.fail(Failure::Overloaded(Reason::from(match displaced {
            false => format!(
                "the {limit} for the command {command} is reached and its queue of {queue} has no room; raise the limit or \
                 `queue_capacity`"
            ),
            true => format!(
                "the {limit} for the command {command} is reached and a newer command displaced this one from its queue of \
                 {queue}; raise the limit or `queue_capacity`"
            ),
        })));
    }
}

/// The owner of a queue from which single commands can be removed.
pub(super) trait Leave: Send + Sync {
    /// Removes the command with this ticket from the queue, if the command is still in the queue.
    fn leave(&self, ticket: u64);
}

/// Waker that removes a command from its queue when the command is cancelled.
struct RemoveWaker<L: Leave> {
    line: Weak<L>,
    ticket: u64,
}

impl<L: Leave + 'static> Wake for RemoveWaker<L> {
    fn wake(self: Arc<Self>) {
        if let Some(line) = self.line.upgrade() {
            line.leave(self.ticket);
        }
    }
}

/// The command that `join` gives back. The caller must unlock the queue, and then refuse or drop this command.
#[must_use]
pub(super) enum QueueAnswer {
    /// The new command, which is refused.
    Refused(Box<dyn WaitingCommand>),
    /// The oldest command. The new command has displaced the oldest command from the queue.
    Displaced(Box<dyn WaitingCommand>),
    /// The new command. The answer to the new command is no longer wanted.
    Unwanted(Box<dyn WaitingCommand>),
}

impl QueueAnswer {
    pub(super) fn refuse_or_drop(self, limit: impl FnOnce() -> String, queue: usize) {
        match self {
            Self::Refused(command) => command.refuse(limit(), queue, false),
            Self::Displaced(command) => command.refuse(limit(), queue, true),
            Self::Unwanted(command) => drop(drop_caught(command)),
        }
    }
}

/// A queue of commands.
#[derive(Default)]
pub(super) struct Line {
    waiting: BTreeMap<u64, Box<dyn WaitingCommand>>,
    tickets: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Appends a command. When the command is cancelled, [`Leave::leave`] of `owner` removes the command from the
    /// queue. The caller of this function holds the lock that `leave` takes. Therefore, `leave` cannot run before the
    /// command is in the queue.
    pub(super) fn join<L: Leave + 'static>(
        &mut self,
        mut command: Box<dyn WaitingCommand>,
        bound: Bound,
        owner: &Arc<L>,
    ) -> Option<QueueAnswer> {
        let is_full = self.waiting.len() >= bound.queue;
        if is_full && (bound.queue == 0 || bound.when_full == Overflow::Reject) {
            return Some(QueueAnswer::Refused(command));
        }
        let ticket = self.tickets;
        self.tickets += 1;
        if !command.watch(&Waker::from(Arc::new(RemoveWaker { line: Arc::downgrade(owner), ticket }))) {
            return Some(QueueAnswer::Unwanted(command));
        }
        let displaced = if is_full { self.pop() } else { None };
        self.waiting.insert(ticket, command);
        displaced.map(QueueAnswer::Displaced)
    }

    /// Returns the command that has waited longest.
    pub(super) fn first(&self) -> Option<&dyn WaitingCommand> {
        self.waiting.first_key_value().map(|(_, command)| &**command)
    }

    /// Removes the command that has waited longest.
    pub(super) fn pop(&mut self) -> Option<Box<dyn WaitingCommand>> {
        self.waiting.pop_first().map(|(_, command)| command)
    }

    /// Returns the host of the command that has waited longest. Commands whose runtime has shut down are ignored.
    pub(super) fn open_host(&self) -> Option<Host> {
        self.waiting.values().map(|command| command.host()).find(|host| host.phase() != Phase::Closed).cloned()
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Box<dyn WaitingCommand>> {
        self.waiting.remove(&ticket)
    }
}

/// Spawns a task that hands a waiting command to its handler. The calling thread itself does not call the handler,
/// because this thread may be delivering the answer to another command at this moment. If the runtime of the command
/// has shut down, the function drops the command and returns `false`.
pub(super) fn run_in_new_task(command: Box<dyn WaitingCommand>, place: impl FnOnce() -> Box<dyn Send>) -> bool {
    let host = command.host().clone();
    if host.phase() == Phase::Closed {
        let _ = drop_caught(command);
        return false;
    }
    let place = place();
    host.spawn_future(async move { command.run_or_drop(place) });
    true
}

/// Hands a waiting command to its handler. The calling task runs in the runtime of the host `here`. If the command
/// belongs to the same runtime, the calling task itself calls the handler. Therefore, commands that are due at the same
/// time keep their order. Separate tasks could run in any order. If the command belongs to another runtime, a [task of
/// that runtime](run_in_new_task) calls the handler.
pub(super) fn run_in_order(command: Box<dyn WaitingCommand>, here: &Host) {
    if Arc::ptr_eq(command.host().shared(), here.shared()) && here.phase() != Phase::Closed {
        command.run_or_drop(Box::new(()));
    } else {
        run_in_new_task(command, || Box::new(()));
    }
}
