//! The place at which a task is queued. The place depends on the reason: the task waited, or the task had a turn and
//! needs another turn.

use std::any::Any;

use crate::platform::sync::Arc;

/// A handle of the scheduler that runs the tasks of a host. Only the functions of the host know the type of this
/// handle.
pub(crate) type SchedulerHandle = Arc<dyn Any + Send + Sync>;

/// Reason why a task is queued. The reason determines the place of the task in the queues.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WakeSource<'a> {
    /// The task waited, or is new. A worker that queues the task usually puts the task into the `next` slot of this
    /// worker. If the caller has a handle of the scheduler, the variant contains this handle. Then the task is queued
    /// without a clone of the handle.
    Waiting(Option<&'a SchedulerHandle>),
    /// The task waited, and is queued behind the tasks that are already runnable. This order is for tasks that wait for
    /// batches of events: when such a task runs, it finds the whole batch.
    Behind,
    /// The task had a turn and needs another turn. Either the task requested another turn, or the task was woken during
    /// the turn.
    Turn,
}
