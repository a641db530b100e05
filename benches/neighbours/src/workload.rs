//! The rows of the table: the same work, written for each runtime in its own idiom.

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

/// One piece of work.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// How many operations a full round does.
    pub(crate) ops: u64,
    pub(crate) shape: Shape,
    /// The lines that it gives, most often one.
    pub(crate) judged: &'static [Judged],
    /// A runtime that has no such thing is left out.
    pub(crate) runs: &'static [(Runner, Run)],
}

/// Does one round and says what it cost.
type Run = fn(&Round) -> Sample;

/// `runs` of work that is written up to three times: for ours, over [`Tasks`](crate::tasks::Tasks), over
/// [`Actors`](crate::actors::Actors). `built:` is for ours with a builder of its own.
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

/// All of them, as they stand in the table: a file, and a line here.
pub(crate) const ALL: &[&[Workload]] = &[
    ping_pong::ROWS,
    ring::ROWS,
    counting::ROWS,
    create_one_exit::ROWS,
    throughput::ROWS,
    big::ROWS,
    chameneos::ROWS,
    fib::ROWS,
    yields::ROWS,
    spawn::ROWS,
    chain::ROWS,
    call::ROWS,
    wake_idle::ROWS,
    crowd::ROWS,
    command::ROWS,
    command_thread::ROWS,
    timers::ROWS,
    links::ROWS,
    server::ROWS,
];

/// What everything else is made of, and must not be far behind anybody: `--check` without a name is for these.
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
