//! Runs one scenario under many seeds. If the scenario fails under a seed, the check shrinks the failure and reports
//! how to repeat the failure.

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::observe::{FlightRecorder, InspectOptions};
use crate::platform::random::Rng;
use crate::platform::sync::Arc;
use crate::process::catch::catch;
use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::runtime::simulation::Simulation;
use crate::runtime::simulation::trace::Trace;
use crate::task::body::ProcessOutput;

/// Number of lines of the trace in a report.
const LINES: usize = 60;
/// If this constant is n, the check runs about one in n passing seeds a second time.
const REPEATED_ONE_IN: u64 = 100;
/// Line of a report. A report contains this line if nothing receives the exit of a failed process and the run has no
/// other failure.
const ONLY_IN_CHECK: &str =
    "\nonly a check reports this failure: `Simulation::run` does not report an exit that nothing receives";
/// Maximum number of turns after the scenario has ended. In these turns, processes receive the exits that are still
/// pending.
const TURNS_AFTER: u32 = 1 << 12;

/// Runs a scenario in a [`Simulation`], once for each of these seeds. Panics at the first seed under which the scenario
/// fails.
///
/// The scenario fails under a seed if one of the following is true:
/// - The future of the scenario resolves to an error, or panics.
/// - The future can never complete (see [`Simulation::run`]).
/// - A process fails with an error or a panic, and no link, monitor, supervisor or join handle receives the exit of
///   this process. A join handle receives the exit when the join handle resolves. The cancellation or kill of a process
///   is not a failure. After the end of the scenario, the runnable processes still run, so that they can receive
///   pending exits. If a process fails only in these last turns, this failure does not fail the scenario.
/// - The scenario behaves differently in a second run with the same seed. Possible causes are real time, other threads
///   or a randomly seeded map. To detect that a second run behaves differently, the check runs some seeds twice: each
///   failing seed, the first seed, and about one in a hundred of the other seeds.
///
/// The type [`Check`] has options. Each run of the scenario must be independent of earlier runs. For example, a run
/// must not change captured state that influences later runs.
///
/// The scenario may be an `async fn` or an async closure. The future of an async closure may borrow from the variables
/// that the closure has captured. A scenario can add its own handlers and limits with [`Host::add_host`].
///
/// The check shrinks a failure: the check searches for the smallest number of random choices with which the scenario
/// still fails. After these choices, the next process is always the process that has been runnable for the longest
/// time. The panic message names the seed, says how to run only this seed, and ends with the last lines of the trace.
/// Each run of the scenario prints its panics on stderr. The runs for shrinking also print their panics.
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
/// // The sum is the same in either order of the two messages.
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
/// Panics if the scenario fails under one of the seeds. If a process has failed, the message names the process. If the
/// process panicked, the message also contains the location of the panic.
#[track_caller]
pub fn check<T: ProcessOutput>(seeds: Range<u64>, scenario: impl AsyncFn(Host) -> T) {
    Check::new(seeds).run(scenario);
}

/// A check with options: see [`check`].
///
/// ```
/// use procession::{Check, Context, Host};
///
/// // The handle is dropped, so nothing receives the exit of the process.
/// Check::new(0..10).allow_unobserved_exits().run(async |host: Host| {
///     drop(host.spawn(async |_: Context| Err::<(), _>("a failure that does not matter")));
/// });
/// ```
#[derive(Debug, Clone)]
#[must_use = "it checks nothing before `run`"]
pub struct Check {
    seeds: Range<u64>,
    allow_unobserved: bool,
    deadlock_after: Option<u64>,
    inspect: Option<InspectOptions>,
    flight_record: Option<PathBuf>,
}

impl Check {
    /// Creates a check of these seeds, with default options.
    pub fn new(seeds: Range<u64>) -> Self {
        Self { seeds, allow_unobserved: false, deadlock_after: None, inspect: None, flight_record: None }
    }

    /// Ignores unobserved failures. A failure is unobserved if no link, monitor, supervisor or join handle receives the
    /// exit of the failed process. By default, an unobserved failure fails the scenario.
    pub fn allow_unobserved_exits(mut self) -> Self {
        self.allow_unobserved = true;
        self
    }

    /// Sets the limit of [`Simulation::deadlock_after`] for each run.
    pub fn deadlock_after(mut self, steps: u64) -> Self {
        self.deadlock_after = Some(steps);
        self
    }

    /// Turns on [`Simulation::inspect`] for each run. The scenario can then read the last messages of a process, for
    /// example with [`Host::process_details`] or [`Host::last_exits`]. Default: off. If the options contain a flight
    /// recorder, each run uses this flight recorder, and [`flight_record`](Self::flight_record) writes the record of
    /// this flight recorder.
    pub fn inspect(mut self, options: InspectOptions) -> Self {
        self.inspect = Some(options);
        self
    }

    /// Writes the [flight record](crate::observe::FlightRecorder) of a failing seed to a new file at this path.
    /// Default: off. After the check has shrunk a failure, the check runs the scenario once more with a flight
    /// recorder. The record ends when the scenario ends. The times in the record are virtual. By default, a passing
    /// seed runs without a flight recorder.
    ///
    /// ```should_panic
    /// use procession::{Check, Context, Host};
    ///
    /// # let path = std::env::temp_dir().join(format!("procession-check-{}.pftrace", std::process::id()));
    /// Check::new(0..10).flight_record(&path).run(async |host: Host| {
    ///     host.spawn(async |_: Context| Err::<(), _>("this process always fails")).await
    /// });
    /// ```
    pub fn flight_record(mut self, path: impl Into<PathBuf>) -> Self {
        self.flight_record = Some(path.into());
        self
    }

    /// Runs the scenario under each seed.
    ///
    /// # Panics
    /// Panics if the scenario fails under one of the seeds: see [`check`].
    pub fn run<T: ProcessOutput>(self, scenario: impl AsyncFn(Host) -> T) {
        for seed in self.seeds.clone() {
            let run = self.attempt(seed, u64::MAX, None, &scenario);
            if run.failure.is_none() && !self.repeats(seed) {
                continue;
            }
            if let Some(difference) = run.difference(&self.attempt(seed, u64::MAX, None, &scenario)) {
                let failed = run.failure.map(|why| format!("\nthe first run fails: {why}")).unwrap_or_default();
                panic!(
                    "the scenario is not deterministic: two runs under seed {seed} differ in {difference}\n\
                     real time, other threads, a randomly seeded map, or state that is kept between two runs can cause this\n\
                     again: `{}`{failed}",
                    self.again(seed)
                );
            }
            if run.failure.is_some() {
                let (choices, Run { failure, trace, only_in_check, .. }) = self.shrink(seed, run, &scenario);
                let record = self.record(seed, choices, &scenario);
                panic!(
                    "the scenario fails under seed {seed}: {}\n\
                     again: `{}`; shrunk: `{}`{}\n\
                     {record}the end of its trace:\n{}",
                    failure.unwrap_or_default(),
                    self.again(seed),
                    self.shrunk(seed, choices),
                    if only_in_check { ONLY_IN_CHECK } else { "" },
                    trace.last(LINES)
                );
            }
        }
    }

    /// Returns the code that runs only this seed, with the options that change the result.
    fn again(&self, seed: u64) -> String {
        let seeds = seed..seed.saturating_add(1);
        let unobserved = if self.allow_unobserved { ".allow_unobserved_exits()" } else { "" };
        match self.options() {
            options if unobserved.is_empty() && options.is_empty() => format!("check({seeds:?}, …)"),
            options => format!("Check::new({seeds:?}){unobserved}{options}.run(…)"),
        }
    }

    /// Returns the code that creates the simulation of a shrunk run.
    fn shrunk(&self, seed: u64, choices: u64) -> String {
        format!("Simulation::new({seed}).random_choices({choices}){}", self.options())
    }

    /// Returns the code that sets the options of each simulation.
    fn options(&self) -> String {
        let limit = self.deadlock_after.map(|steps| format!(".deadlock_after({steps})")).unwrap_or_default();
        let inspect = if self.inspect.is_some() { ".inspect(…)" } else { "" };
        limit + inspect
    }

    /// Returns whether the check runs this seed twice even if the seed passes.
    fn repeats(&self, seed: u64) -> bool {
        seed == self.seeds.start || Rng::seeded(seed).next().is_multiple_of(REPEATED_ONE_IN)
    }

    /// If the check has a path for a flight record, repeats a run and writes the flight record of the run to this path.
    /// Returns a line for the report.
    fn record<T: ProcessOutput>(&self, seed: u64, choices: u64, scenario: &impl AsyncFn(Host) -> T) -> String {
        let Some(path) = &self.flight_record else { return String::new() };
        let path = path.display();
        match self.attempt(seed, choices, self.flight_record.as_deref(), scenario).recorded {
            Ok(()) => format!("its flight record: {path}\n"),
            Err(error) => format!("its flight record {path} could not be written: {error}\n"),
        }
    }

    /// Runs the scenario once. If `record` is a path, writes the flight record of the run to this path.
    fn attempt<T: ProcessOutput>(
        &self,
        seed: u64,
        choices: u64,
        record: Option<&Path>,
        scenario: &impl AsyncFn(Host) -> T,
    ) -> Run {
        let mut simulation = Simulation::new(seed).random_choices(choices);
        if let Some(steps) = self.deadlock_after {
            simulation = simulation.deadlock_after(steps);
        }
        if let Some(options) = &self.inspect {
            simulation = simulation.inspect(options.clone());
        }
        if record.is_some() {
            // If the options above contain a flight recorder, this call has no effect.
            simulation = simulation.flight_recorder(FlightRecorder::new());
        }
        let host = simulation.host().clone();
        let mut failure = match catch(|| simulation.run(scenario(host)).into_result().map(drop)) {
            Ok(result) => result.err().map(|exit| exit.to_string()),
            Err(panic) => Some(format!("it {}", Exit::Panicked(panic))),
        };
        let recorded = record.map_or(Ok(()), |path| simulation.write_flight_record(path).map(drop));
        let (drawn, trace) = (simulation.drawn(), Arc::clone(&simulation.trace));
        let unobserved = Arc::clone(&simulation.unobserved);
        trace.close();
        // At the end of the scenario, a runnable process may still have to receive an exit. The result of the check
        // must not depend on whether this process has already run. Therefore, the runnable processes run now.
        simulation.settle(TURNS_AFTER);
        let late = trace.take_late();
        // Processes can also fail during the drop of the simulation. For example, the drop of a process can panic.
        drop(simulation);
        // If a process failed only after the scenario had ended, the cause may be the end of the scenario. Such a
        // failure is ignored.
        let counts = |(origin, _): &(Pid, String)| !self.allow_unobserved && !late.contains(origin);
        let unobserved = std::mem::take(&mut *unobserved.lock());
        let only_in_check = failure.is_none();
        for (_, exit) in unobserved.into_iter().filter(counts) {
            let failure = failure.get_or_insert_default();
            let apart = if failure.is_empty() { "" } else { "; " };
            let _ = write!(failure, "{apart}no link, monitor, supervisor or join handle receives an exit: {exit}");
        }
        Run { failure, drawn, trace, recorded, only_in_check }
    }

    /// Finds by bisection the smallest number of random choices with which the scenario still fails. Returns this
    /// number and the run with this number of choices.
    fn shrink<T: ProcessOutput>(&self, seed: u64, first: Run, scenario: &impl AsyncFn(Host) -> T) -> (u64, Run) {
        // Invariant: the scenario fails with `fails` random choices, and passes with `passes - 1` random choices.
        let (mut fails, mut passes) = (first.drawn, 0);
        let mut failed = first;
        while passes < fails {
            let half = passes + (fails - passes) / 2;
            let run = self.attempt(seed, half, None, scenario);
            match run.failure {
                Some(_) => (fails, failed) = (half, run),
                None => passes = half + 1,
            }
        }
        (fails, failed)
    }
}

/// One run of a scenario.
struct Run {
    /// Text of the failure. `None` means that the scenario passed.
    failure: Option<String>,
    /// Number of choices that were made until the end of the scenario.
    drawn: u64,
    trace: Arc<Trace>,
    /// True if `Simulation::run` reports no failure. If the run still counts as failed, there is only one reason: a
    /// process failed, and nothing receives its exit.
    only_in_check: bool,
    /// Result of writing the flight record.
    recorded: io::Result<()>,
}

impl Run {
    /// Returns the difference between this run and a second run with the same seed.
    fn difference(&self, second: &Self) -> Option<String> {
        if let Some(difference) = self.trace.difference(&second.trace) {
            return Some(difference);
        }
        let result = |run: &Self| run.failure.clone().unwrap_or("it passes".into());
        let differs = self.failure.is_some() != second.failure.is_some();
        differs.then(|| format!("their result\n  first run:  {}\n  second run: {}", result(self), result(second)))
    }
}
