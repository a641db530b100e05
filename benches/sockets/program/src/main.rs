//! Runs the same server on procession, tokio, smol and Go in turn, and drives each server with the same client. Prints
//! the CPU time of the server for each operation. `../README.md` explains the rows and the numbers.

mod child;
mod go;
mod load;
mod options;
mod round;
mod row;
mod runner;
mod server;
mod table;

use std::process::ExitCode;

use options::Options;
use round::Sample;
use row::{Load, Row};
use runner::Runner;

fn main() -> ExitCode {
    // A panic in a task must terminate the program. Otherwise the client would wait forever for an answer of this task.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [server::FLAG, runner, service, workers] => server::run(runner, service, workers),
        [load::FLAG, row, ops, port] => load::run(row, ops, port),
        _ => match Options::parse(words.into_iter()) {
            Ok(options) => return compare(&options),
            Err(text) => {
                eprintln!("{text}");
                return ExitCode::from(2);
            }
        },
    }
    ExitCode::SUCCESS
}

/// Measures all rows and prints the table. Returns `FAILURE` if `--bars` was given and a row misses its goal.
fn compare(options: &Options) -> ExitCode {
    let mut runners: Vec<_> = Runner::ALL.into_iter().filter(|runner| options.wants(*runner)).collect();
    if runners.contains(&Runner::Go)
        && let Err(error) = go::build()
    {
        eprintln!("the row of Go was not measured: {error}");
        runners.retain(|runner| *runner != Runner::Go);
    }
    table::preamble(options, &runners);
    let mut missed = false;
    for row in options.rows() {
        if row.load == Load::Http
            && let Err(error) = load::find_wrk()
        {
            eprintln!("WARNING: the row {} was not measured: {error}", row.name);
            continue;
        }
        let samples = measure(row, &runners, options);
        missed |= table::print(row, &runners, &samples);
    }
    // With `--quick`, the ratios are inaccurate, so a missed goal does not change the exit status.
    if missed && options.bars && !options.quick { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs all rounds of a row. The runtimes take turns, so that a disturbance of the machine affects all runtimes. Each
/// round begins with a different runtime. Returns the samples of each runtime. A runtime without a program for this row
/// has no samples.
fn measure(row: &Row, runners: &[Runner], options: &Options) -> Vec<Vec<Sample>> {
    let mut samples = vec![Vec::new(); runners.len()];
    for first in 0..options.rounds() {
        for turn in 0..runners.len() {
            let turn = (first + turn) % runners.len();
            if runners[turn].serves(row.service) {
                samples[turn].push(round::run(row, runners[turn], options));
            }
        }
    }
    samples
}
