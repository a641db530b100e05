//! The list of the counters of a runtime, and `Counters`: a snapshot of these counters.
//!
//! The code in `metrics.rs` increments the counters. This file only names the counters and documents them.

use std::fmt;
use std::ops::Sub;

/// Generates the enum of counters, the snapshot, and the operations on each field from one list of counters. The first
/// line of the documentation of a counter is also the help text of the counter in the Prometheus format.
macro_rules! counters {
    ($(#[doc = $help:literal] $(#[doc = $more:literal])* $name:ident => $field:ident,)*) => {
        /// A counter. The field of `Counters` with the same name documents the meaning of the counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($name,)*
        }

        /// Number of counters.
        pub(super) const COUNTERS: usize = [$(Counter::$name),*].len();

        /// Snapshot of the exact counts of a runtime: see [`Host::counters`](crate::Host::counters).
        ///
        /// Each count is exact and never decreases. The counts are read one after another while the runtime runs.
        /// Therefore, one count may include an operation in progress that a related count does not include. However,
        /// `exited` never exceeds `spawned`. To get the counts between two snapshots, subtract the earlier snapshot
        /// from the later snapshot. `Display` prints one line with the counts that are not zero. With the feature
        /// `serde`, a snapshot implements `Serialize`.
        ///
        /// [`Host::metrics`](crate::Host::metrics) returns these counts together with all other metrics.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counters {
            $(#[doc = $help] $(#[doc = $more])* pub $field: u64,)*
        }

        impl Counters {
            /// Calls `read` for each counter. The counter of exited processes is read first: see `Metrics::exited`.
            pub(super) fn read(read: impl Fn(Counter) -> u64) -> Self {
                let exited = read(Counter::Exited);
                let all = Self { $($field: read(Counter::$name),)* };
                Self { exited, ..all }
            }

            /// Returns the name, the help text and the value of each count, in the order of the fields.
            pub(super) fn named(&self) -> [(&'static str, &'static str, u64); COUNTERS] {
                [$((stringify!($field), $help.trim_ascii(), self.$field)),*]
            }
        }

        /// Returns the counts between two snapshots of one runtime: `later - earlier`. Counters and differences wrap
        /// around at 2^64. If the snapshots are in the wrong order, the differences wrap below zero.
        impl Sub for Counters {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($field: self.$field.wrapping_sub(earlier.$field),)* }
            }
        }
    };
}

counters! {
    /// Spawned processes.
    ///
    /// A process is counted when it gets its pid.
    Spawned => spawned,
    /// Exited processes.
    ///
    /// A process is counted during its exit. `spawned - exited` processes are alive.
    Exited => exited,
    /// Failed processes.
    ///
    /// A process is counted during its exit. A process fails if it panics, if it returns an error, or if its
    /// initialization fails. A process also fails if a link ends the process because another process failed. A
    /// cancelled or killed process has not failed.
    Failures => failures,
    /// Restarts of children by supervisors.
    ///
    /// The supervisor counts each restart before it starts the new instance. The replacement of a member of a
    /// [`Pool`](crate::Pool) is not counted.
    Restarts => restarts,
    /// Polls of a task by a worker.
    ///
    /// The scheduler counts each poll before the poll begins. A poll of a process is one turn of this process.
    Polls => polls,
    /// Steps of processes.
    ///
    /// The worker counts each step when the step returns. One poll may contain several steps. If the answer to a
    /// command arrives in the turn that yielded the command, the process takes another step in the same turn.
    Steps => steps,
    /// Polls that kept their worker for longer than the long-step threshold.
    ///
    /// [`Builder::long_step_threshold`](crate::Builder::long_step_threshold) sets the threshold. The monitor thread
    /// counts a long poll while the poll still runs.
    LongSteps => long_steps,
    /// Attempts to steal from a victim.
    ///
    /// The searching worker counts each attempt. Each attempt is also counted as won, empty or retried.
    StealsTried => steals_tried,
    /// Attempts to steal that stole at least one task.
    ///
    /// The searching worker counts the attempt.
    StealsWon => steals_won,
    /// Attempts to steal that failed because the victim had no task to steal.
    ///
    /// The searching worker counts the attempt.
    StealsEmpty => steals_empty,
    /// Attempts to steal that failed because another thread won a race for the task.
    ///
    /// The searching worker counts the attempt.
    StealsRetried => steals_retried,
    /// Number of times that a worker parked.
    ///
    /// The worker increments this counter before each sleep.
    Parks => parks,
    /// Number of times that a parked worker was woken for work.
    ///
    /// The waking thread counts the wake-up.
    Wakes => wakes,
    /// Wake-ups after which the woken worker found no task.
    ///
    /// The woken worker counts the wake-up when its search ends without a task, because other workers have taken the
    /// tasks. Each wake-up without work is also counted in `wakes`. A guest thread on which an executor polls
    /// [`Runtime::run`](crate::Runtime::run) does not count wake-ups without work.
    WakesWithoutWork => wakes_without_work,
    /// Number of times that a worker moved a full batch of tasks from its local queue to the global queue.
    ///
    /// The worker counts each batch of 128 tasks.
    Overflows => overflows,
    /// Number of times that a process went to the back of the queue because its budget was spent.
    ///
    /// The worker increments this counter during the turn of the process.
    BudgetYields => budget_yields,
    /// Messages that a mailbox accepted.
    ///
    /// The sender counts the message. The request of a call is also a message. A dead letter that a [mailbox for dead
    /// letters](crate::Host::dead_letters) receives is also a message.
    Messages => messages,
    /// Messages that were refused and returned to the sender.
    ///
    /// The sender counts the message.
    Refused => refused,
    /// Messages that were accepted, but never read.
    ///
    /// When the receiver exits, its unread messages are counted. A dead letter is counted only once, even if the owner
    /// of the mailbox for dead letters does not read this dead letter.
    DeadLetters => dead_letters,
    /// Messages that an overflow policy dropped, because the mailbox was full.
    ///
    /// The policy either drops the new message, or drops a queued message to make room for the new message. The sender
    /// counts the message. Each dropped message is also counted as a dead letter.
    DroppedByPolicy => dropped_by_policy,
    /// Commands that processes yielded.
    ///
    /// A command is counted when the process yields the command.
    Yields => yields,
    /// Accepted answers to commands that processes yielded.
    ///
    /// The answering thread counts the answer.
    Completions => completions,
    /// Answers that arrived after the yield was cancelled or the process had exited.
    ///
    /// The answering thread counts the answer.
    Discarded => discarded,
    /// Replies that arrived after the caller had stopped waiting.
    ///
    /// The replying thread counts the reply.
    LateReplies => late_replies,
    /// Panics of processes, and of futures that `spawn_future` runs.
    ///
    /// A panic of a handler is not counted. The panic is the answer to the command: see
    /// [`Failure::Panicked`](crate::Failure::Panicked). The thread that catches the panic counts the panic.
    Panics => panics,
    /// Failed processes whose exit no link, monitor, supervisor or join handle received.
    ///
    /// The thread that detects the unobserved exit counts the process. A cancelled or killed process is not counted.
    Unobserved => unobserved,
}

impl Counters {
    /// Returns the fraction of successful attempts to steal, from 0 to 1. Returns 0 if there were no attempts.
    pub fn steal_success(&self) -> f64 {
        if self.steals_tried == 0 { 0.0 } else { self.steals_won as f64 / self.steals_tried as f64 }
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut apart = "";
        for (name, _, count) in self.named().into_iter().filter(|&(_, _, count)| count != 0) {
            write!(f, "{apart}{name} {count}")?;
            apart = ", ";
        }
        if apart.is_empty() { f.write_str("nothing counted") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_own_field() {
        let counters = Counters::read(|counter| counter as u64);
        for (number, (name, help, count)) in counters.named().into_iter().enumerate() {
            assert_eq!(count, number as u64, "{name}");
            assert!(help.ends_with('.'), "{name}: {help}");
        }
        assert_eq!(Counter::Unobserved as usize, COUNTERS - 1);
    }

    #[test]
    fn only_counts_that_are_not_zero_are_printed() {
        let counts = [(Counter::Spawned, 1), (Counter::StealsTried, 4), (Counter::StealsWon, 3)];
        let read = |counter| counts.iter().find(|(which, _)| *which == counter).map_or(0, |&(_, count)| count);
        let counters = Counters::read(read);
        assert_eq!(counters.to_string(), "spawned 1, steals_tried 4, steals_won 3");
        assert_eq!(counters.steal_success(), 0.75);
        assert_eq!(Counters::default().to_string(), "nothing counted");
        assert_eq!(Counters::default().steal_success(), 0.0);
    }
}
