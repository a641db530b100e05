//! The rows of the table. Each workload is written in the idiom of each runtime.

mod big;
mod call;
mod chain;
mod chameneos;
mod command;
mod command_thread;
mod counting;
mod create_one_exit;
mod crowd;
mod fib;
mod links;
mod ping_pong;
mod ring;
mod server;
mod spawn;
mod throughput;
mod timers;
mod wake_idle;
mod yields;

use crate::round::{Round, Runner, Sample};
use crate::verdict::{Judged, Shape};

/// Work that several runners do, with one implementation for each runner. The table has one
/// [`Row`](crate::verdict::Row) for each measured quantity of the workload.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Number of operations of a full round.
    pub(crate) ops: u64,
    pub(crate) shape: Shape,
    /// The lines of the table for this workload, usually one.
    pub(crate) judged: &'static [Judged],
    /// The runners with their implementations. If a runner has no implementation of this workload, the list does not
    /// contain this runner.
    pub(crate) runs: &'static [(Runner, Run)],
}

/// Runs one round and returns its cost.
type Run = fn(&Round) -> Sample;

/// Builds the list `runs` from up to three implementations of the work. The first implementation is for procession. The
/// optional implementation `tasks` uses [`Tasks`](crate::tasks::Tasks), and the optional implementation `actors` uses
/// [`Actors`](crate::actors::Actors). With `built:`, the function for procession receives the round, and configures the
/// builder of the runtime.
macro_rules! runs {
    (built: $built:expr $(, by_hand: $by_hand:expr)? $(, tasks: $tasks:expr)? $(, actors: $actors:expr)?) => {
        &[
            ($crate::round::Runner::Procession, $built),
            $(($crate::round::Runner::ByHand, $by_hand),)?
            $(
                ($crate::round::Runner::Tokio, |round| round.tokio(|_, n| $tasks(&$crate::tasks::Tokio, n))),
                ($crate::round::Runner::AsyncExecutor, |round| round.async_executor($tasks)),
                ($crate::round::Runner::StaticExecutor, |round| round.static_executor($tasks)),
            )?
            $(
                ($crate::round::Runner::ByHand, |round| round.by_hand($actors)),
                ($crate::round::Runner::Actix, |round| round.actix($actors)),
                ($crate::round::Runner::Kameo, |round| round.tokio(|_, n| $actors(&$crate::actors::Kameo, n))),
                ($crate::round::Runner::Ractor, |round| round.tokio(|_, n| $actors(&$crate::actors::Ractor, n))),
            )?
        ]
    };
    ($ours:expr $(, tasks: $tasks:expr)? $(, actors: $actors:expr)?) => {
        runs!(built: |round| round.procession(::procession::Runtime::builder(), $ours) $(, tasks: $tasks)? $(, actors: $actors)?)
    };
}
use runs;

/// All workloads, in the order of the table.
pub(crate) const ALL: &[&[Workload]] = &[
    ping_pong::WORKLOADS,
    ring::WORKLOADS,
    counting::WORKLOADS,
    create_one_exit::WORKLOADS,
    throughput::WORKLOADS,
    big::WORKLOADS,
    chameneos::WORKLOADS,
    fib::WORKLOADS,
    yields::WORKLOADS,
    spawn::WORKLOADS,
    chain::WORKLOADS,
    call::WORKLOADS,
    wake_idle::WORKLOADS,
    crowd::WORKLOADS,
    command::WORKLOADS,
    command_thread::WORKLOADS,
    timers::WORKLOADS,
    links::WORKLOADS,
    server::WORKLOADS,
];

/// The basic rows. `--check` measures these rows if no row is named.
pub(crate) const BASIC: &[&str] = &[
    "ping-pong",
    "counting",
    "create-1-exit",
    "yield",
    "spawn-outside",
    "spawn-inside",
    "command-inline",
    "command-task",
    "command-async",
    "command-thread",
];

pub(crate) fn all() -> impl Iterator<Item = &'static Workload> {
    ALL.iter().copied().flatten()
}
