//! The same work on procession and on its neighbours, in interleaved rounds of one run; prints what an operation costs
//! and the ratios. `README.md` says what the rows do and how to read them.

mod latch;
mod options;
mod round;
mod table;
mod workload;

use std::process::ExitCode;

use options::Options;
use round::{Round, Runner, Sample};
use table::Row;
use workload::Workload;

/// How much dearer than the better neighbour a row may be before `--check` fails.
const LIMIT: f64 = 1.5;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let workloads = options.workloads();
    table::preamble(&options);
    table::head();
    let mut slow = Vec::new();
    for workload in workloads {
        let row = measure(workload, &options);
        table::line(&row);
        slow.extend(row.ratio_to_better().filter(|&ratio| ratio > LIMIT).map(|ratio| (workload.name, ratio)));
    }
    if slow.is_empty() || !options.check {
        return ExitCode::SUCCESS;
    }
    for (name, ratio) in &slow {
        println!("{name}: {ratio:.2} × the better neighbour, more than {LIMIT}");
    }
    // With few operations and three rounds a ratio says nothing.
    if options.quick { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All rounds of one workload: each runner in turn, again and again, so that whatever disturbs the machine disturbs
/// them alike.
fn measure(workload: &'static Workload, options: &Options) -> Row {
    let round = Round { ops: options.ops(workload) };
    let runs = || workload.runs.iter().filter(|(runner, _)| options.wants(*runner));
    let mut samples: Vec<(Runner, Vec<Sample>)> = runs().map(|(runner, _)| (*runner, Vec::new())).collect();
    for _ in 0..options.rounds() {
        for ((_, run), (_, samples)) in runs().zip(&mut samples) {
            samples.push(run(&round));
        }
    }
    Row::new(workload, round.ops, &samples)
}
