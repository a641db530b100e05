//! What is printed: medians over the rounds, of what an operation costs and of the ratios between runners.

use std::time::Duration;

use procession::Counters;

use crate::options::Options;
use crate::round::{Runner, Sample, workers};
use crate::workload::Workload;

/// What one runner needed for one operation, in nanoseconds.
struct Cost {
    runner: Runner,
    cpu: f64,
    wall: f64,
    /// Our CPU time in this one's, round by round: a machine that is slow for a second is slow for both.
    ratio: Option<f64>,
}

/// One workload on all its runners.
pub(crate) struct Row {
    name: &'static str,
    costs: Vec<Cost>,
    /// Steals, parks and wakes in 1,000 operations.
    counts: Option<[f64; 3]>,
}

impl Row {
    pub(crate) fn new(workload: &Workload, ops: u64, samples: &[(Runner, Vec<Sample>)]) -> Self {
        let per_op = |samples: &[Sample], time: fn(&Sample) -> Duration| {
            median(samples.iter().map(|sample| time(sample).as_nanos() as f64 / ops as f64))
        };
        let ours = samples.iter().find(|(runner, _)| *runner == Runner::Procession).map(|(_, samples)| samples);
        let costs = samples.iter().map(|(runner, samples)| Cost {
            runner: *runner,
            cpu: per_op(samples, |sample| sample.cpu),
            wall: per_op(samples, |sample| sample.wall),
            ratio: ours.map(|ours| {
                median(ours.iter().zip(samples).map(|(ours, theirs)| ours.cpu.div_duration_f64(theirs.cpu)))
            }),
        });
        let counted: Vec<&Counters> =
            samples.iter().flat_map(|(_, samples)| samples).filter_map(|sample| sample.counters.as_ref()).collect();
        let per_thousand = |count: fn(&Counters) -> u64| {
            median(counted.iter().map(|counters| count(counters) as f64 * 1_000.0 / ops as f64))
        };
        let counts = (!counted.is_empty())
            .then(|| [per_thousand(|c| c.steals_won), per_thousand(|c| c.parks), per_thousand(|c| c.wakes)]);
        Self { name: workload.name, costs: costs.collect(), counts }
    }

    fn cost(&self, runner: Runner) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.runner == runner)
    }

    fn ratio(&self, to: Runner) -> Option<f64> {
        self.cost(to)?.ratio
    }

    /// Our CPU time in that of the neighbour who needed less.
    pub(crate) fn ratio_to_better(&self) -> Option<f64> {
        neighbours().filter_map(|runner| self.ratio(runner)).reduce(f64::max)
    }
}

fn neighbours() -> impl Iterator<Item = Runner> {
    Runner::ALL.into_iter().filter(|&runner| runner != Runner::Procession)
}

/// What the numbers below were measured on.
pub(crate) fn preamble(options: &Options) {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let rounds = options.rounds();
    println!("workers: {}, {os} {arch}, medians of {rounds} interleaved rounds, ns per operation", workers());
    if options.quick {
        println!("quick: too few operations to be quoted");
    }
    if cfg!(debug_assertions) {
        println!("built without optimisation: use --release");
    }
    println!();
}

pub(crate) fn head() {
    let group = |title: &str, columns: usize| format!(" | {title:<width$}", width = columns * WIDTH - 1);
    print!("{:<NAME$}", "");
    print!("{}", group("CPU", Runner::ALL.len()));
    print!("{}", group("CPU, ours : theirs", Runner::ALL.len()));
    print!("{}", group("wall", Runner::ALL.len()));
    println!("{}", group("ours, in 1,000", 3));

    print!("{:<NAME$}", "");
    cells(Runner::ALL.iter().map(|runner| short(*runner).to_owned()));
    cells(neighbours().map(|runner| short(runner).to_owned()).chain(["better".to_owned()]));
    cells(Runner::ALL.iter().map(|runner| short(*runner).to_owned()));
    cells(["steals", "parks", "wakes"].into_iter().map(str::to_owned));
    println!();
}

pub(crate) fn line(row: &Row) {
    let ns = |cost: fn(&Cost) -> f64| Runner::ALL.iter().map(move |&runner| number(row.cost(runner).map(cost), 1));
    let ratios = neighbours().map(|runner| row.ratio(runner)).chain([row.ratio_to_better()]);
    print!("{:<NAME$}", row.name);
    cells(ns(|cost| cost.cpu));
    cells(ratios.map(|ratio| number(ratio, 2)));
    cells(ns(|cost| cost.wall));
    cells((0..3).map(|i| number(row.counts.map(|counts| counts[i]), 2)));
    println!();
}

const NAME: usize = 15;
const WIDTH: usize = 9;

fn cells(texts: impl Iterator<Item = String>) {
    print!(" |");
    for text in texts {
        print!("{text:>WIDTH$}");
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn short(runner: Runner) -> &'static str {
    match runner {
        Runner::Procession => "ours",
        Runner::Tokio => "tokio",
        Runner::AsyncExecutor => "async-ex",
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
