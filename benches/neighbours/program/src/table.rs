//! Prints the table. Each line is printed when its row has been measured.

use crate::options::Options;
use crate::round::{Runner, workers};
use crate::verdict::{Against, Cost, Row, Shape};

const NAME: usize = 15;
const WIDTH: usize = 8;

/// Columns that show the ratio of procession to another runtime.
const RATIOS: [(&str, Against); 3] =
    [("tokio", Against::One(Runner::Tokio)), ("actix", Against::One(Runner::Actix)), ("best", Against::Best)];

/// Runners whose wall time and cores are printed. The CSV file contains these columns for all runners.
const BESIDE: [Runner; 2] = [Runner::Procession, Runner::Tokio];

/// Prints the machine, the allocator and the number of rounds, and the head of the table.
pub(crate) fn preamble(options: &Options, workers_wanted: Option<usize>) {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let allocator = if cfg!(feature = "mimalloc") { "mimalloc" } else { "the system's allocator" };
    let (cores, rounds) = (workers(), options.rounds());
    let workers = workers_wanted.unwrap_or(cores);
    println!(
        "workers: {workers}, cores: {cores}, {os} {arch}, {allocator}, medians of {rounds} interleaved rounds, ns per operation"
    );
    if options.quick {
        println!("quick: do not quote these results, because there are too few operations");
    }
    if cfg!(debug_assertions) {
        println!("built without optimisation: use --release");
    }
    println!();
    head();
}

fn head() {
    let group = |title: &str, columns: usize| print!(" | {title:<width$}", width = columns * WIDTH - 1);
    print!("{:<NAME$}{:>WIDTH$}", "", "");
    group("CPU", Runner::ALL.len());
    group("ours : theirs", RATIOS.len());
    group("wall", BESIDE.len());
    group("cores", BESIDE.len());
    group("ours, in 1,000", 3);
    println!(" | bars");

    print!("{:<NAME$}{:>WIDTH$}", "", "n");
    cells(Runner::ALL.map(|runner| short(runner).to_owned()));
    cells(RATIOS.map(|(name, _)| name.to_owned()));
    cells(BESIDE.map(|runner| short(runner).to_owned()));
    cells(BESIDE.map(|runner| short(runner).to_owned()));
    cells(["steals", "parks", "wakes"].map(str::to_owned));
    println!(" |");
}

pub(crate) fn line(row: &Row) {
    let of = |runner: Runner, number: fn(&Cost) -> f64| row.cost(runner).map(number);
    print!("{:<NAME$}{:>WIDTH$}", row.name, row.ops);
    cells(Runner::ALL.map(|runner| number(of(runner, |cost| cost.ns), 1)));
    cells(RATIOS.map(|(_, against)| number(row.ratio(against), 2)));
    cells(BESIDE.map(|runner| number(of(runner, |cost| cost.wall), 1)));
    cells(BESIDE.map(|runner| number(of(runner, |cost| cost.cores), 2)));
    cells([0, 1, 2].map(|i| number(row.counts.map(|counts| counts[i]), 2)));
    println!(" | {}", bars(row));
}

/// A *bar* is the maximum of a ratio. Formats each bar of the row as `tokio 0.47 ≤ 0.55 met`. If the row is parallel,
/// adds the number of parallel rounds.
fn bars(row: &Row) -> String {
    let mut words: Vec<_> = row
        .bars()
        .map(|met| {
            let (name, sign, word) = match met.is_met() {
                true => (met.bar.against.name(), '≤', "met"),
                false => (met.bar.against.name(), '>', "MISSED"),
            };
            format!("{name} {:.2} {sign} {:.2} {word}", met.ratio, met.bar.most)
        })
        .collect();
    if let (Shape::Parallel, Some(tokio)) = (row.shape, row.cost(Runner::Tokio)) {
        let starved = if row.is_starved() { "starved: " } else { "" };
        words.push(format!("{starved}both ran in parallel in {} of {} rounds", tokio.parallel_rounds, row.rounds));
    }
    words.join(", ")
}

fn cells<const N: usize>(texts: [String; N]) {
    print!(" |");
    for text in texts {
        print!("{text:>WIDTH$}");
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "-".to_owned(),
        // Long times are printed without fractions.
        Some(value) if value >= 10_000.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.digits$}"),
    }
}

/// Name of the runner, short enough for a column.
fn short(runner: Runner) -> &'static str {
    match runner {
        Runner::Procession => "ours",
        Runner::AsyncExecutor => "async-ex",
        Runner::StaticExecutor => "static",
        other => other.name(),
    }
}
