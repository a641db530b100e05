//! How a woken task is queued: its place in the queues, and whether the task waited or had a turn before.

use std::any::Any;

use crate::platform::sync::Arc;

/// A handle of the scheduler that runs the tasks of a host. The host's own functions know its type.
pub(crate) type SchedulerHandle = Arc<dyn Any + Send + Sync>;

/// Why a task is queued, which decides its place in the queues.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WakeSource<'a> {
    /// The task waited, or is new. A worker puts a woken task into its next slot. The caller may own a handle of the
    /// scheduler for the duration of the push. Then the push need not clone one.
    Waiting(Option<&'a SchedulerHandle>),
    /// The task waited, and is queued behind the runnable tasks: it waits for events that arrive in batches, and finds
    /// the whole batch when it runs.
    Behind,
    /// The task had a turn, and goes on: it asked for another turn, or was woken during the turn.
    Turn,
}
