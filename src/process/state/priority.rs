//! `Priority`: which of the ready processes a worker takes first.

/// Who is run first among those who are ready: [`ProcessBuilder::priority`](crate::ProcessBuilder::priority).
///
/// High ones come first and low ones last, and nobody starves: of 16 looks for work a worker gives 12 to those of high
/// priority, 3 to normal ones and 1 to low ones, as long as there are some of each. What a class has no use for goes to
/// the next, high before normal before low. So beside normal ones alone, low ones get one turn in 16; and a high one that
/// is ready waits, beside others that are not high, for at most two turns. (Every 61st look is for what came from outside
/// and for timers, whatever waits.) Within a class, who has waited longest is next.
///
/// A turn is not cut short for anybody, nor does a process that others of higher priority wait for gain by that. High and
/// low ones wait in queues that all workers share, under a lock: that costs more than being normal, and is meant for
/// few. What they wake or spawn is as normal as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Last, but not never.
    Low,
    /// What a process is if nothing is said.
    #[default]
    Normal,
    /// First.
    High,
}
