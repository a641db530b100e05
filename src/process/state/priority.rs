//! `Priority`: the class that decides when a worker runs a runnable process.

/// Priority of a process among the runnable processes: see
/// [`ProcessBuilder::priority`](crate::ProcessBuilder::priority).
///
/// Processes of high priority run first, and processes of low priority run last, without starvation. If processes of
/// each class are runnable, a worker takes 12 of 16 processes from the class high, 3 from normal and 1 from low. If
/// there is no process of the selected class, the worker takes a process of normal priority. If there is no process of
/// normal priority either, the worker takes a process of high priority, and then of low priority. For example, if only
/// normal and low processes are runnable, low processes get one turn in 16. If no other runnable process has high
/// priority, a runnable process of high priority waits for at most two turns. Every 61st time that a worker searches
/// for a task, the worker checks the timers and the tasks that were queued from outside the worker, even if other
/// processes are runnable. Processes of high or low priority run in the order in which they were queued. Processes of
/// normal priority run in the [local order](crate::QueueOrder) of their worker.
///
/// A process of higher priority does not interrupt a turn. There is no priority inheritance: if processes of higher
/// priority wait for a process, the priority of that process does not change. Processes of high or low priority wait in
/// queues that all workers share, under a lock. These queues cost more than normal priority, and are intended for few
/// processes. A process does not pass its priority to the processes that it wakes or spawns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// The process runs last, but does not starve.
    Low,
    /// The process runs with the default priority.
    #[default]
    Normal,
    /// The process runs first.
    High,
}
