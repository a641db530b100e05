//! `Priority`: the order in which a worker takes runnable processes.

/// Priority of a process among the runnable processes: see
/// [`ProcessBuilder::priority`](crate::ProcessBuilder::priority).
///
/// High priority comes first and low priority last, without starvation. Of 16 searches for work, a worker makes 12 for
/// high priority, 3 for normal priority and 1 for low priority, as long as processes of each class are runnable. If a
/// search finds no process of its class, the worker takes a normal process, or else a high one, or else a low one. So
/// if only normal and low processes are runnable, low processes get one turn in 16. If no other runnable process has
/// high priority, a runnable process of high priority waits for at most two turns. Every 61st search is for timers and
/// for tasks that were queued from outside the worker, whatever else is runnable. Processes of high or low priority run
/// in the order in which they were queued. Processes of normal priority run in the [local order](crate::QueueOrder) of
/// their worker.
///
/// A process of higher priority does not interrupt a turn. There is no priority inheritance: if processes of higher
/// priority wait for a process, its priority does not change. Processes of high or low priority wait in queues that all
/// workers share, under a lock. This costs more than normal priority, and is meant for few processes. The priority of a
/// process does not extend to the processes that it wakes or spawns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Runs last, but does not starve.
    Low,
    /// Default priority.
    #[default]
    Normal,
    /// Runs first.
    High,
}
