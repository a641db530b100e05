//! The rows of the table: the same work, written for each runtime in its own idiom.

mod command;
mod message;
mod spawn;
mod yields;

use crate::round::{Round, Runner, Sample};

/// One row. A runtime that has no such thing is left out of `runs`.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// How many operations a full round does: so many that it takes some tens of milliseconds.
    pub(crate) ops: u64,
    pub(crate) runs: &'static [(Runner, Run)],
}

/// Does one round and says what it cost.
type Run = fn(&Round) -> Sample;

pub(crate) const ALL: &[&Workload] = &[
    &spawn::OUTSIDE,
    &spawn::INSIDE,
    &message::PING_PONG,
    &message::COUNTING,
    &message::ONE_AND_EXIT,
    &command::INLINE,
    &command::TASK,
    &command::ASYNC,
    &command::THREAD,
    &yields::YIELD,
];
