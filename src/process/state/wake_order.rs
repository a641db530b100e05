//! How a woken task is queued: its place in the queues, and whether the task waited or had a turn before.

use std::any::Any;

use crate::platform::sync::Arc;

/// A handle of the scheduler that runs the tasks of a host. The host's own functions know its type.
pub(crate) type SchedulerHandle = Arc<dyn Any + Send + Sync>;

/// How a task that is woken now is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeOrder {
    /// By the rules of the queues: a worker puts a woken task into its next slot.
    NextSlot,
    /// At the back of the queue.
    Back,
    /// In a batch: the tasks are queued together when all of them are woken.
    Batch,
}

/// The state of a task before it is queued.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WakeSource<'a> {
    /// The task waited, or is new. If the caller owns a handle of the scheduler for the duration of the push, it passes
    /// this handle, so that the push need not clone one.
    Waiting(Option<&'a SchedulerHandle>),
    /// The task had a turn and continues: it either asked for another turn, or was woken during the turn.
    Turn,
}
