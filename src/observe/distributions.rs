//! The list of the sampled durations of a runtime, and `Distributions`: a snapshot of these durations.
//!
//! `metrics.rs` decides which durations are sampled. This file only names the distributions and documents them.

use std::ops::Sub;

use crate::observe::histogram::{Buckets, Histogram};

/// Generates the enum of durations, the snapshot, and the operations on each field from one list of distributions. The
/// first line of the documentation of a distribution is also the help text of the distribution in the Prometheus
/// format.
macro_rules! distributions {
    ($(#[doc = $help:literal] $(#[doc = $more:literal])* $name:ident => $field:ident,)*) => {
        /// A sampled duration. The field of `Distributions` with the same name documents the meaning of the duration.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Sampled {
            $($name,)*
        }

        /// The buckets of all distributions of one thread.
        #[derive(Debug)]
        pub(super) struct SampledBuckets([Buckets; [$(Sampled::$name),*].len()]);

        /// Distributions of durations in a runtime: see [`Host::metrics`](crate::Host::metrics).
        ///
        /// The durations are sampled, because the measurement of a duration costs more than most operations of a
        /// process. With a sampling interval of `n`, about one duration in `n` is measured. A distribution contains
        /// only the measured durations. Therefore [`Histogram::count`] is the number of measured durations.
        ///
        /// To get the durations between two snapshots, subtract the earlier snapshot from the later snapshot.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Distributions {
            $(#[doc = $help] $(#[doc = $more])* pub $field: Histogram,)*
            /// For each command type, the time from the yield of a command until its answer is accepted. The list is in
            /// the order of the type names.
            ///
            /// The time includes the run of the handler. If the handler is blocking, the time also includes the wait
            /// for a thread of the blocking pool. If the [step time](Self::step_time) of a turn is measured, the
            /// runtime also measures the commands that the process yields in this turn. At most 64 commands of one
            /// process are measured at the same time. A cancelled or detached command is not recorded. All named
            /// commands have the type [`NamedCommand`](crate::NamedCommand). The list contains a command type as soon
            /// as one command of this type was measured.
            pub command_time: Vec<CommandTime>,
            /// Sampling interval of all distributions except `mailbox_time`. If the value is n, the runtime measures
            /// one of n durations. Default: 64. With [`Builder::sample_every_step`](crate::Builder::sample_every_step),
            /// the interval is 1.
            pub sampled_one_in: u32,
            /// Sampling interval of [`mailbox_time`](Self::mailbox_time): if the value is n, the runtime measures about
            /// one in n of the measurable messages. Default: 256. With
            /// [`Builder::sample_every_step`](crate::Builder::sample_every_step), the interval is 1.
            pub messages_sampled_one_in: u32,
        }

        impl Distributions {
            /// Sums up the buckets of all threads.
            pub(super) fn read<'a>(
                threads: impl Iterator<Item = &'a SampledBuckets> + Clone,
                command_time: Vec<CommandTime>,
                sampled_one_in: u32,
                messages_sampled_one_in: u32,
            ) -> Self {
                Self {
                    $($field: threads.clone().map(|thread| thread.of(Sampled::$name)).sum(),)*
                    command_time,
                    sampled_one_in,
                    messages_sampled_one_in,
                }
            }

            /// Returns the name, the help text and the values of each distribution, in the order of the fields. The
            /// distributions by command type are not included.
            pub(super) fn named(&self) -> [(&'static str, &'static str, &Histogram); [$(Sampled::$name),*].len()] {
                [$((stringify!($field), $help.trim_ascii(), &self.$field)),*]
            }
        }

        /// Returns the durations between two snapshots of one runtime: `later - earlier`.
        impl Sub for Distributions {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self {
                    $($field: self.$field - earlier.$field,)*
                    command_time: since(self.command_time, earlier.command_time),
                    sampled_one_in: self.sampled_one_in,
                    messages_sampled_one_in: self.messages_sampled_one_in,
                }
            }
        }
    };
}

distributions! {
    /// Time from ready to running, that is, how long a runnable process waited for a worker.
    ///
    /// The time begins when a process becomes runnable, and ends when a worker takes the process out of a queue. The
    /// decision to measure is made when the process becomes runnable.
    SchedulingDelay => scheduling_delay,
    /// Duration of turns.
    ///
    /// A turn contains all steps of a process from one wait to the next wait. The worker measures the duration of a
    /// turn only if it also measures the scheduling delay of this turn.
    StepTime => step_time,
    /// Time from the acceptance of a message by a mailbox until the process takes the message out.
    ///
    /// In a mailbox with a [capacity](crate::MailboxCapacity), any message can be measured, but only one message at a
    /// time. In any other mailbox, only a message that arrives while the mailbox is empty can be measured. A busy
    /// process takes all messages out of a mailbox without a capacity together, and then reads the messages in order. A
    /// later message waits in the mailbox for a shorter time, but then waits until the process has read the earlier
    /// messages. So for any message, the time from its arrival until the process reads the message is about as long as
    /// the measured time.
    ///
    /// The runtime measures about one in [`messages_sampled_one_in`](Self::messages_sampled_one_in) of the measurable
    /// messages. With `sample_every_step`, the runtime measures each measurable message, unless the sender also sends
    /// to another runtime.
    ///
    /// An urgent message is not measured. If a message is dropped while it is in the mailbox, its time is not recorded.
    MailboxTime => mailbox_time,
    /// Time from the send of a request until the caller takes the reply.
    ///
    /// If the step time of a turn is measured, the runtime also measures the calls that an async body makes in this
    /// turn. A call is recorded when it ends. A call also ends when the callee exits or drops the reply. If the caller
    /// stops the call earlier, for example because of a time limit, the call is not recorded.
    CallTime => call_time,
}

/// Distribution of the times of one command type: see [`Distributions::command_time`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandTime {
    /// Name of the command type.
    pub command: &'static str,
    /// Distribution of the time from the yield of a command until its answer is accepted.
    pub time: Histogram,
}

impl CommandTime {
    /// Help text of the distributions in the Prometheus format.
    pub(super) const HELP: &'static str = "Time from when a process performs a command until the answer is accepted.";

    pub(super) fn new(command: &'static str, time: &Buckets) -> Self {
        Self { command, time: std::iter::once(time).sum() }
    }
}

/// Subtracts, for each command type, the earlier distribution from the later distribution.
fn since(mut later: Vec<CommandTime>, earlier: Vec<CommandTime>) -> Vec<CommandTime> {
    for before in earlier {
        if let Some(now) = later.iter_mut().find(|now| now.command == before.command) {
            now.time = now.time.clone() - before.time;
        }
    }
    later
}

impl SampledBuckets {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Buckets::new()))
    }

    #[inline]
    pub(super) fn of(&self, what: Sampled) -> &Buckets {
        &self.0[what as usize]
    }

    /// Number of bytes that the buckets take on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Buckets::bytes).sum()
    }
}
