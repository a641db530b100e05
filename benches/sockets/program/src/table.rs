//! Prints the table. Each line is printed as soon as its row has been measured.

use std::time::Duration;

use crate::options::Options;
use crate::round::Sample;
use crate::row::{Load, ROUND_TRIP_GOAL, Row};
use crate::runner::Runner;

const NAME: usize = 12;
const WIDTH: usize = 8;

/// Prints the machine, the number of rounds, and the header of the table.
pub(crate) fn preamble(options: &Options, runners: &[Runner]) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "workers: {}, cores: {cores}, {} {}, medians of {} interleaved rounds, CPU of the server in µs per operation",
        options.workers(),
        std::env::consts::OS,
        std::env::consts::ARCH,
        options.rounds()
    );
    if options.quick {
        println!("quick: do not quote these results, because there are too few operations");
    }
    if cfg!(debug_assertions) {
        println!("built without optimisation: use --release");
    }
    let group = |title: &str, columns: usize| print!(" | {title:<width$}", width = (columns * WIDTH).max(1) - 1);
    print!("\n{:<NAME$}{:>WIDTH$}", "", "");
    group("CPU", runners.len());
    group("ours : theirs", others(runners).count());
    group("operations per second", runners.len());
    println!(" | goal: CPU time at most this multiple of tokio");
    print!("{:<NAME$}{:>WIDTH$}", "", "n");
    cells(runners.iter().map(|runner| short(*runner).to_owned()));
    cells(others(runners).map(|(_, runner)| short(runner).to_owned()));
    cells(runners.iter().map(|runner| short(*runner).to_owned()));
    println!();
}

/// Prints the lines of a row. Returns true if procession misses a goal in one of these lines.
pub(crate) fn print(row: &Row, runners: &[Runner], samples: &[Vec<Sample>]) -> bool {
    let cpu = |sample: &Sample| micros(sample.cpu) / sample.ops as f64;
    let mut missed = line(row.name, row.goal, runners, samples, cpu);
    if row.load == Load::Pause {
        let (name, goal) = (format!("{} p50", row.name), Some(ROUND_TRIP_GOAL));
        missed |= line(&name, goal, runners, samples, |sample| micros(sample.median));
    }
    missed
}

fn line(
    name: &str,
    goal: Option<f64>,
    runners: &[Runner],
    samples: &[Vec<Sample>],
    cost: impl Fn(&Sample) -> f64,
) -> bool {
    let ratios: Vec<_> =
        others(runners).map(|(at, runner)| (runner, ratio(&samples[0], &samples[at], &cost))).collect();
    let rate = |sample: &Sample| sample.ops as f64 / sample.wall.as_secs_f64();
    let ops = median(samples.iter().flatten().map(|sample| sample.ops as f64));
    print!("{name:<NAME$}{:>WIDTH$}", number(ops, 0));
    cells(samples.iter().map(|samples| number(median(samples.iter().map(&cost)), 2)));
    cells(ratios.iter().map(|(_, ratio)| number(*ratio, 2)));
    cells(samples.iter().map(|samples| number(median(samples.iter().map(rate)), 0)));
    let tokio = ratios.iter().find(|(runner, _)| *runner == Runner::Tokio);
    let missed = match (tokio, goal) {
        (Some((_, Some(ratio))), Some(goal)) => {
            let missed = *ratio > goal;
            print!(
                " | {ratio:.2} {} {goal:.1} {}",
                if missed { '>' } else { '≤' },
                if missed { "MISSED" } else { "met" }
            );
            missed
        }
        _ => false,
    };
    println!();
    missed
}

/// Returns the runtimes that are compared with procession, and their indices in `runners`. Returns no runtime if
/// procession is not selected.
fn others(runners: &[Runner]) -> impl Iterator<Item = (usize, Runner)> {
    let compares = runners.first() == Some(&Runner::Procession);
    runners.iter().copied().enumerate().skip(1).filter(move |_| compares)
}

/// Returns the median of the ratios of all rounds, or `None` if the other runtime has no samples.
fn ratio(ours: &[Sample], theirs: &[Sample], cost: impl Fn(&Sample) -> f64) -> Option<f64> {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| cost(ours) / cost(theirs)))
}

fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len().checked_sub(1)?;
    Some((numbers[last / 2] + numbers[numbers.len() / 2]) / 2.0)
}

/// Formats a number. If the runtime has no program for this row, the text is `-`.
fn number(number: Option<f64>, digits: usize) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn cells(texts: impl Iterator<Item = String>) {
    print!(" |");
    for text in texts {
        print!("{text:>WIDTH$}");
    }
}

/// Returns the name of the runtime, short enough for a column.
fn short(runner: Runner) -> &'static str {
    if runner == Runner::Procession { "ours" } else { runner.name() }
}
