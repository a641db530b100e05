//! How a woken task is queued. This module records the place of the task in the queues, and whether the task waited or
//! had a turn before.

use std::any::Any;

use crate::platform::sync::Arc;

/// A handle of the scheduler that runs the tasks of a host. The host's own functions know the type of this handle.
pub(crate) type SchedulerHandle = Arc<dyn Any + Send + Sync>;

/// Reason why a task is queued. The reason decides the place of the task in the queues.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WakeSource<'a> {
    /// The task waited, or is new. A worker puts a woken task into its next slot. If the caller owns a handle of the
    /// scheduler during the push, the push does not have to clone a handle.
    Waiting(Option<&'a SchedulerHandle>),
    /// The task waited, and is queued behind the runnable tasks. This order is for tasks that wait for events in
    /// batches, because the task then finds the whole batch when it runs.
    Behind,
    /// The task had a turn and continues. Either the task asked for another turn, or it was woken during the turn.
    Turn,
}
