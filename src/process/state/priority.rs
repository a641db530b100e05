//! `Priority`: the order in which a worker takes runnable processes.

/// Priority of a process among the runnable processes: see
/// [`ProcessBuilder::priority`](crate::ProcessBuilder::priority).
///
/// High priority comes first and low priority last, without starvation. Of 16 looks for work, a worker gives 12 to high
/// priority, 3 to normal priority and 1 to low priority, as long as processes of each class are runnable. A look that
/// finds no process of its class takes a normal one, or else a high one, or else a low one. So beside normal processes
/// alone, low ones get one turn in 16. Beside processes that are not high, a runnable high one waits for at most two
/// turns. Every 61st look is for tasks that were queued from outside the worker and for timers, whatever is runnable.
/// High and low processes run in the order in which they were queued, normal ones in the [local
/// order](crate::QueueOrder) of their worker.
///
/// A turn is not cut short for a process of higher priority. There is no priority inheritance: a process gains nothing
/// if processes of higher priority wait for it. High and low processes wait in queues that all workers share, under a
/// lock. This costs more than normal priority, and is meant for few processes. The priority of a process does not
/// extend to the processes that it wakes or spawns.
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
