//! What the rounds of a workload say: medians of what an operation cost each runner and of the ratios between them, and
//! whether ours is below its bars.

use std::time::Duration;

use crate::round::{Runner, Sample};
use crate::workload::Workload;

/// What a line of the table is about, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// User and system time of all threads, for an operation.
    Cpu,
    /// How long half of those who waited did so at most.
    Wait50,
    /// The same for 99 in a hundred.
    Wait99,
}

impl Quantity {
    /// What a line is called besides its workload.
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

/// Whom ours is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    One(Runner),
    /// The neighbour that needed least.
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

/// How much of a neighbour's ours may need at most.
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

/// A line of the table that a workload asks for, with its bars.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) quantity: Quantity,
    pub(crate) bars: &'static [Bar],
}

/// By CPU time, as most are.
pub(crate) const fn cpu(bars: &'static [Bar]) -> Judged {
    Judged { quantity: Quantity::Cpu, bars }
}

/// How many threads have something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One thing happens after the other: a second worker could only get in the way.
    Sequential,
    /// There is enough to do for a second worker: only rounds count in which both sides' took part.
    Parallel,
}

/// CPU time in wall time beyond which a second worker took part.
const TWO: f64 = 1.2;

/// What one runner needed for one operation, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Cost {
    pub(crate) runner: Runner,
    /// Of what the line is about.
    pub(crate) ns: f64,
    pub(crate) wall: f64,
    /// CPU time in wall time: how many cores it had.
    pub(crate) cores: f64,
    /// Ours in this one's, round by round: a machine that is slow for a second is slow for both.
    pub(crate) ratio: f64,
    /// In how many rounds both had a second worker.
    pub(crate) together: usize,
}

/// One line: one quantity of one workload on all its runners.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) quantity: Quantity,
    pub(crate) ops: u64,
    pub(crate) rounds: usize,
    pub(crate) shape: Shape,
    pub(crate) costs: Vec<Cost>,
    /// Steals, parks and wakes in 1,000 operations.
    pub(crate) counts: Option<[f64; 3]>,
    pub(crate) bars: &'static [Bar],
}

/// How a bar was met.
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
    /// `ops` are those of one time, which a round did `times` times.
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
            let both =
                |ours: &Sample, theirs: &Sample| cores(ours) > TWO && (cores(theirs) > TWO || !runner.is_parallel());
            let pairs: Vec<_> = ours.into_iter().flatten().zip(samples).collect();
            let together: Vec<_> = pairs.iter().copied().filter(|(ours, theirs)| both(ours, theirs)).collect();
            let few = workload.shape == Shape::Sequential || together.len() < enough(pairs.len());
            let counted = if few { &pairs } else { &together };
            Cost {
                runner: *runner,
                ns: median(samples.iter().map(of)),
                wall: median(samples.iter().map(|sample| nanos(sample.wall) / done)),
                cores: median(samples.iter().map(cores)),
                ratio: median(counted.iter().map(|(ours, theirs)| of(ours) / of(theirs))),
                together: together.len(),
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
            // The bars are for the allocator that programs have unless they choose another.
            bars: if cfg!(feature = "mimalloc") { &[] } else { judged.bars },
        }
    }

    pub(crate) fn cost(&self, runner: Runner) -> Option<&Cost> {
        self.costs.iter().find(|cost| cost.runner == runner)
    }

    fn neighbours(&self) -> impl Iterator<Item = &Cost> {
        self.costs.iter().filter(|cost| !cost.runner.is_ours())
    }

    /// The neighbour that needed least.
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

    /// Ours in that of the better of the two runtimes of tasks that every row has.
    pub(crate) fn ratio_to_better(&self) -> Option<f64> {
        [Runner::Tokio, Runner::AsyncExecutor]
            .into_iter()
            .filter_map(|one| self.ratio(Against::One(one)))
            .reduce(f64::max)
    }

    /// Whether a second worker had something to do and, too often, no core to do it on: theirs, or ours.
    pub(crate) fn is_starved(&self) -> bool {
        let starved = |cost: &Cost| cost.runner.is_parallel() && cost.together < enough(self.rounds);
        self.shape == Shape::Parallel && self.cost(Runner::Tokio).is_some_and(starved)
    }

    /// Its bars, those whose neighbour was measured.
    pub(crate) fn bars(&self) -> impl Iterator<Item = Met> {
        self.bars.iter().filter_map(|&bar| Some(Met { bar, ratio: self.ratio(bar.against)? }))
    }

    /// What a row that has bars must hold: them, or, where it was starved, at most what the best needs.
    pub(crate) fn holds(&self) -> bool {
        match self.ratio(Against::Best) {
            Some(ratio) if self.is_starved() && !self.bars.is_empty() => ratio <= 1.0,
            _ => self.bars().all(Met::is_met),
        }
    }
}

/// How many rounds of so many make a median.
fn enough(rounds: usize) -> usize {
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
