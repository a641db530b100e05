//! One scenario under many seeds; what fails is shrunk and told so that it can be run again.

use std::ops::Range;

use super::Simulation;
use crate::body::Outcome;
use crate::host::Host;
use crate::process::panic::catch;

/// So much of a trace is told.
const LINES: usize = 60;

/// Runs a scenario in a [`Simulation`] for each of these seeds, and panics for the first of them under which it fails:
/// its future ends with an error, or panics, or waits for what can never come.
///
/// The scenario may be an `async fn` or an async closure, which may borrow what it captures. Handlers and limits it brings
/// along: see [`Host::add_host`].
///
/// The failure is shrunk: of the choices that the seed made as few as possible are kept, and behind them whoever has been
/// ready for longest is next. The panic names the seed, how it is run again alone, and ends with the end of the trace.
/// Each of these runs tells of its own panics on stderr, as all do.
///
/// ```
/// use procession::{Context, Exit, Host, Reply, check};
///
/// enum Msg { Add(u64), Total(Reply<u64>) }
///
/// async fn counter(mut ctx: Context<Msg>) -> Result<(), Exit> {
///     let mut total = 0;
///     loop {
///         match ctx.receive().await? {
///             Msg::Add(n) => total += n,
///             Msg::Total(reply) => reply.send(total),
///         }
///     }
/// }
///
/// // Whichever of the two is first, the sum is the same.
/// check(0..100, async |host: Host| {
///     let counter = host.spawn(counter);
///     let (one, two) = (counter.address().clone(), counter.address().clone());
///     let adders = [host.spawn(move |_: Context| async move { one.send(Msg::Add(1)) }),
///                   host.spawn(move |_: Context| async move { two.send(Msg::Add(2)) })];
///     for adder in adders {
///         adder.await?;
///     }
///     assert_eq!(counter.call(Msg::Total).await?, 3);
///     Ok::<_, Exit>(())
/// });
/// ```
///
/// # Panics
/// If the scenario fails under one of the seeds.
#[track_caller]
pub fn check<T: Outcome>(seeds: Range<u64>, scenario: impl AsyncFn(Host) -> T) {
    for seed in seeds {
        if let Err(failed) = attempt(seed, u64::MAX, &scenario) {
            let (choices, failed) = shrink(seed, failed, &scenario);
            let Failed { why, trace, .. } = failed;
            let again = seed.saturating_add(1);
            panic!(
                "the scenario fails under seed {seed}: {why}\n\
                 again: `check({seed}..{again}, …)`; shrunk: `Simulation::new({seed}).choices({choices})`\n\
                 the end of its trace:\n{trace}"
            );
        }
    }
}

/// How a scenario failed.
struct Failed {
    why: String,
    /// How many choices there were until then.
    drawn: u64,
    trace: String,
}

fn attempt<T: Outcome>(seed: u64, choices: u64, scenario: &impl AsyncFn(Host) -> T) -> Result<(), Failed> {
    let mut simulation = Simulation::new(seed).choices(choices);
    let host = simulation.host().clone();
    let why = match catch(|| simulation.run(scenario(host)).into_result()) {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(exit)) => exit.to_string(),
        Err(panic) => format!("it panicked: {panic}"),
    };
    Err(Failed { why, drawn: simulation.drawn(), trace: simulation.last_of_trace(LINES) })
}

/// With how few choices it fails too.
fn shrink<T: Outcome>(seed: u64, first: Failed, scenario: &impl AsyncFn(Host) -> T) -> (u64, Failed) {
    // It fails with so many, and did not with one less than `passes`.
    let (mut fails, mut passes) = (first.drawn, 0);
    let mut failed = first;
    while passes < fails {
        let half = passes + (fails - passes) / 2;
        match attempt(seed, half, scenario) {
            Err(fewer) => (fails, failed) = (half, fewer),
            Ok(()) => passes = half + 1,
        }
    }
    (fails, failed)
}
