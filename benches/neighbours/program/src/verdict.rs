//! Evaluates the rounds of a workload: medians of the cost and of the ratios, and whether procession meets its bars.

use std::time::Duration;

use crate::round::{Runner, Sample};
use crate::workload::Workload;

/// The quantity that a line of the table shows, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// User and system time of all threads, per operation.
    Cpu,
    /// Median of the waiting times.
    Wait50,
    /// 99th percentile of the waiting times.
    Wait99,
}

impl Quantity {
    /// Suffix of the row name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Cpu => "",
            Self::Wait50 => " p50",
            Self::Wait99 => " p99",
        }
    }

    fn of(self, sample: &Sample, ops: f64) -> f64 {
        let quantile =
            |percent: usize| sample.waits.get(sample.waits.len() * percent / 100).copied().unwrap_or_default();
        match self {
            Self::Cpu => nanos(sample.cpu) / ops,
            Self::Wait50 => nanos(quantile(50)),
            Self::Wait99 => nanos(quantile(99)),
        }
    }
}

/// The runtime with which a bar compares this crate. A bar is the maximum of a ratio: the cost of this crate, divided
/// by the cost of the other runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    One(Runner),
    /// The runtime with the lowest cost, apart from procession.
    Best,
}

impl Against {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One(runner) => runner.name(),
            Self::Best => "best",
        }
    }
}

/// Maximum ratio of the cost on procession to the cost on another runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bar {
    pub(crate) against: Against,
    pub(crate) most: f64,
}

pub(crate) const fn tokio(most: f64) -> Bar {
    Bar { against: Against::One(Runner::Tokio), most }
}

pub(crate) const fn actix(most: f64) -> Bar {
    Bar { against: Against::One(Runner::Actix), most }
}

pub(crate) const fn by_hand(most: f64) -> Bar {
    Bar { against: Against::One(Runner::ByHand), most }
}

pub(crate) const fn best(most: f64) -> Bar {
    Bar { against: Against::Best, most }
}

/// A quantity of a workload that the table shows, and the bars for this quantity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) quantity: Quantity,
    pub(crate) bars: &'static [Bar],
}

/// Returns a line that shows the CPU time. Most workloads have only this line.
pub(crate) const fn cpu(bars: &'static [Bar]) -> Judged {
    Judged { quantity: Quantity::Cpu, bars }
}

/// Number of threads that the work can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each operation starts after the previous operation has ended, so a second worker only adds cost.
    Sequential,
    /// The work can use a second worker. A round is used for the verdict only if procession and the compared runtime
    /// used a second worker.
    Parallel,
}

/// If the ratio of CPU time to wall time exceeds this threshold, the runtime used a second worker.
const PARALLEL_CORES: f64 = 1.2;

/// Cost of one operation on one runner, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) runner: Runner,
    /// Median of the quantity of the row.
    pub(crate) ns: f64,
    pub(crate) wall: f64,
    /// Ratio of CPU time to wall time: the number of cores in use.
    pub(crate) cores: f64,
    /// Median of the ratios of procession to this runner. Each ratio is computed within one round, so a slow phase of
    /// the machine affects procession and this runner equally.
    pub(crate) ratio: f64,
    /// Number of rounds in which both procession and this runner used a second worker. If this runner cannot use a
    /// second worker, the number of rounds in which procession used a second worker.
    pub(crate) parallel_rounds: usize,
}

/// Results of one workload: the values of one quantity, for all runners of the workload. A row is a line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) quantity: Quantity,
    pub(crate) ops: u64,
    pub(crate) rounds: usize,
    pub(crate) shape: Shape,
    pub(crate) costs: Vec<Cost>,
    /// Steals, parks and wakes per 1,000 operations.
    pub(crate) counts: Option<[f64; 3]>,
    pub(crate) bars: &'static [Bar],
}

/// A bar (the limit of a ratio), and the measured ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Met {
    pub(crate) bar: Bar,
    pub(crate) ratio: f64,
}

impl Met {
    pub(crate) fn is_met(self) -> bool {
        self.ratio <= self.bar.most
    }
}

impl Row {
    /// Evaluates the samples. `ops` is the number of operations of one repetition, and a round has `times` repetitions.
    pub(crate) fn new(
        workload: &Workload,
        judged: Judged,
        (ops, times): (u64, u64),
        samples: &[(Runner, Vec<Sample>)],
    ) -> Self {
        let done = (ops * times) as f64;
        let of = |sample: &Sample| judged.quantity.of(sample, done);
        let ours = samples.iter().find(|(runner, _)| *runner == Runner::Procession).map(|(_, samples)| samples);
        let costs = samples.iter().map(|(runner, samples)| {
            let both = |ours: &Sample, theirs: &Sample| {
                cores(ours) > PARALLEL_CORES && (cores(theirs) > PARALLEL_CORES || !runner.is_parallel())
            };
            let pairs: Vec<_> = ours.into_iter().flatten().zip(samples).collect();
            let both_parallel: Vec<_> = pairs.iter().copied().filter(|(ours, theirs)| both(ours, theirs)).collect();
            let few = workload.shape == Shape::Sequential || both_parallel.len() < min_parallel_rounds(pairs.len());
            let counted = if few { &pairs } else { &both_parallel };
            Cost {
                runner: *runner,
                ns: median(samples.iter().map(of)),
                wall: median(samples.iter().map(|sample| nanos(sample.wall) / done)),
                cores: median(samples.iter().map(cores)),
                ratio: median(counted.iter().map(|(ours, theirs)| of(ours) / of(theirs))),
                parallel_rounds: both_parallel.len(),
            }
        });
        let counted: Vec<_> = ours.into_iter().flatten().filter_map(|sample| sample.counts).collect();
        let per_thousand = |which: usize| median(counted.iter().map(|counts| counts[which] as f64 * 1_000.0 / done));
        let counts = (!counted.is_empty()).then(|| [0, 1, 2].map(per_thousand));
        Self {
            name: format!("{}{}", workload.name, judged.quantity.suffix()),
            quantity: judged.quantity,
            ops,
            rounds: samples.first().map_or(0, |(_, samples)| samples.len()),
            shape: workload.shape,
            costs: costs.collect(),
            counts,
            // The bars apply to the system's allocator. Programs use this allocator by default.
            bars: if cfg!(feature = "mimalloc") { &[] } else { judged.bars },
        }
    }

    pub(crate) fn cost(&self, runner: Runner) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.runner == runner)
    }

    fn neighbours(&self) -> impl Iterator<Item = &Cost> {
        self.costs.iter().filter(|cost| !cost.runner.is_ours())
    }

    /// Returns the cost of the cheapest of the other runtimes.
    pub(crate) fn best(&self) -> Option<&Cost> {
        self.neighbours().min_by(|a, b| a.ns.total_cmp(&b.ns))
    }

    pub(crate) fn ratio(&self, against: Against) -> Option<f64> {
        let cost = match against {
            Against::One(runner) => self.cost(runner),
            Against::Best => self.best(),
        };
        self.cost(Runner::Procession).and(cost).map(|cost| cost.ratio)
    }

    /// Returns the higher of two ratios: the ratio of procession to tokio, and the ratio of procession to
    /// async-executor.
    pub(crate) fn ratio_to_better(&self) -> Option<f64> {
        [Runner::Tokio, Runner::AsyncExecutor]
            .into_iter()
            .filter_map(|one| self.ratio(Against::One(one)))
            .reduce(f64::max)
    }

    /// Returns whether the row is *starved*: too few rounds used a second worker, so the ratios of the row are
    /// unreliable. Only a row with parallel work can be starved. The function counts the rounds in which procession and
    /// tokio both used a second worker.
    pub(crate) fn is_starved(&self) -> bool {
        let starved =
            |cost: &Cost| cost.runner.is_parallel() && cost.parallel_rounds < min_parallel_rounds(self.rounds);
        self.shape == Shape::Parallel && self.cost(Runner::Tokio).is_some_and(starved)
    }

    /// Returns the bars whose runtime was measured, with their ratios.
    pub(crate) fn bars(&self) -> impl Iterator<Item = Met> {
        self.bars.iter().filter_map(|&bar| Some(Met { bar, ratio: self.ratio(bar.against)? }))
    }

    /// Returns whether the row meets its bars. For a starved row with bars, a different rule applies. Such a row meets
    /// its bars if the ratio of procession to the best other runtime is at most 1.0.
    pub(crate) fn holds(&self) -> bool {
        match self.ratio(Against::Best) {
            Some(ratio) if self.is_starved() && !self.bars.is_empty() => ratio <= 1.0,
            _ => self.bars().all(Met::is_met),
        }
    }
}

/// Minimum number of parallel rounds for a median.
fn min_parallel_rounds(rounds: usize) -> usize {
    rounds.div_ceil(3).max(1)
}

fn cores(sample: &Sample) -> f64 {
    nanos(sample.cpu) / nanos(sample.wall)
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
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
