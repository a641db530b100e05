//! `Priority`: an option of a process. The priorities of the runnable processes decide which process a worker runs
//! next.

/// Priority of a process among the runnable processes: see
/// [`ProcessBuilder::priority`](crate::ProcessBuilder::priority).
///
/// Processes of high priority run first, and processes of low priority run last, without starvation. If processes of
/// all three priorities are runnable, a worker runs 12 turns of high priority, 3 of normal priority and 1 of low
/// priority in every 16 turns. If no process of the selected priority is runnable, the worker takes a process of normal
/// priority. If no process of normal priority is runnable, the worker takes a process of high priority. If no process
/// of high priority is runnable, the worker takes a process of low priority. For example, if only processes of normal
/// and of low priority are runnable, one turn in 16 is a turn of low priority. If no other runnable process has high
/// priority, a runnable process of high priority waits for at most two turns. In every 61st search for a task, a worker
/// first checks the timers and the global queue, even if other processes are runnable. The global queue contains the
/// tasks that were queued by threads that are not workers. Processes of high or low priority run in the order in which
/// they were queued. Processes of normal priority run in the [local order](crate::QueueOrder) of their worker.
///
/// A process of higher priority does not interrupt a turn. There is no priority inheritance: if processes of higher
/// priority wait for a process, the priority of that process does not change. Processes of high or low priority wait in
/// queues that all workers share. A lock protects these queues. The shared queues are slower than the queues of normal
/// priority, and are intended for a small number of processes. A process does not pass its priority to the processes
/// that it wakes or spawns. The priority has no effect on the processes of a [`LocalSet`](crate::LocalSet), and no
/// effect in a [`Simulation`](crate::Simulation).
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
