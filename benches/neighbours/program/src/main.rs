//! Runs the same work on procession and on other runtimes in turn. Prints the cost of an operation and the ratios.
//! `../README.md` explains the rows and the numbers.

mod actors;
mod apart;
mod chart;
mod csv;
mod latch;
mod options;
mod round;
mod table;
mod tasks;
mod verdict;
mod waits;
mod workload;

use std::process::ExitCode;

use options::Options;
use round::{Round, Runner, Sample};
use verdict::Row;
use workload::Workload;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Maximum that the option `--check` permits for the ratio of a basic row. The ratio is the cost of procession divided
/// by the lower of two costs: the cost of tokio, and the cost of async-executor.
const LIMIT: f64 = 1.5;

fn main() -> ExitCode {
    // If a result is wrong, an assertion panics in a task. Without this hook, the runtime would catch the panic, and
    // the measuring thread would wait forever for the missing operation.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
    let words: Vec<String> = std::env::args().skip(1).collect();
    if apart::does(&words) {
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(words.into_iter()) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let mut all = Vec::new();
    for workers in options.workers() {
        table::preamble(&options, workers);
        let mut rows = Vec::new();
        for workload in options.workloads() {
            for ops in options.sizes(workload) {
                let measured = measure(workload, ops, workers, &options);
                measured.iter().for_each(table::line);
                rows.extend(measured);
            }
        }
        all.push((workers, rows));
    }
    for (path, text) in [(&options.csv, csv::text as fn(&[_]) -> String), (&options.svg, chart::text)] {
        if let Some(path) = path
            && let Err(error) = std::fs::write(path, text(&all))
        {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    }
    conclude(&options, all.iter().flat_map(|(_, rows)| rows))
}

/// Runs all rounds of one workload. The runners take turns, so that a disturbance of the machine affects all runners.
/// Each round begins with a different runner, so that a runner does not always run directly after the same runner.
fn measure(workload: &'static Workload, ops: u64, workers: Option<usize>, options: &Options) -> Vec<Row> {
    let round = Round { ops, times: options.times(ops), workers };
    let runs: Vec<_> = workload.runs.iter().filter(|(runner, _)| options.wants(*runner)).collect();
    let mut samples: Vec<(Runner, Vec<Sample>)> = runs.iter().map(|(runner, _)| (*runner, Vec::new())).collect();
    for first in 0..options.rounds() {
        for turn in 0..runs.len() {
            let turn = (first + turn) % runs.len();
            let (runner, run) = runs[turn];
            let sample = if options.here { run(&round) } else { apart::run(workload, *runner, &round) };
            samples[turn].1.push(sample);
        }
    }
    workload.judged.iter().map(|judged| Row::new(workload, *judged, (ops, round.times), &samples)).collect()
}

/// Prints the rows that fail `--bars` or `--check`. Returns `FAILURE` if a row fails.
fn conclude<'a>(options: &Options, rows: impl Iterator<Item = &'a Row> + Clone) -> ExitCode {
    let mut failed = false;
    if options.bars {
        for row in rows.clone().filter(|row| !row.holds()) {
            failed = true;
            println!("{}: over its bar", row.name);
        }
    }
    if options.check {
        let slow = rows.filter_map(|row| Some((&row.name, row.ratio_to_better()?))).filter(|(_, ratio)| *ratio > LIMIT);
        for (name, ratio) in slow {
            failed = true;
            println!("{name}: {ratio:.2} × the better neighbour, more than {LIMIT}");
        }
    }
    // With `--quick` there are few operations and only three rounds, so the ratios are too inaccurate.
    if failed && !options.quick { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
