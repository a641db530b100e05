//! Parses the command line.

use crate::round::Runner;
use crate::workload::{self, Workload};

const USAGE: &str = "\
usage: neighbours [NAME…] [--quick] [--check] [--bars] [--rounds N] [--ops N] [--growth] [--workers N[,N…]]
                  [--on RUNTIME]… [--here] [--csv FILE] [--svg FILE]
  NAME          the rows whose names begin so; all without one
  --quick       a twentieth of the operations, three rounds: shows that it runs, not how fast
  --check       exit status 1 when a row costs more than 1.5 × the better of tokio and async-executor; without a NAME the
                basic rows: spawn, message, command, yield; never with --quick
  --bars        exit status 1 when a row is over one of its bars; never with --quick
  --rounds N    rounds of each row
  --ops N       operations of each round
  --growth      each row with 1,000 operations, 10,000, … up to 10 million
  --workers N   that many workers, each number in a table of its own; as many as there are cores without it
  --on RUNTIME  only this one: procession, by-hand, tokio, async-executor, static-executor, actix, kameo, ractor
  --here        all rounds in this process, not each in one of its own: for a profiler
  --csv FILE    writes all that was measured
  --svg FILE    draws it";

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) check: bool,
    pub(crate) bars: bool,
    pub(crate) here: bool,
    pub(crate) csv: Option<String>,
    pub(crate) svg: Option<String>,
    growth: bool,
    names: Vec<String>,
    rounds: Option<usize>,
    ops: Option<u64>,
    workers: Vec<usize>,
    on: Vec<Runner>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value\n{USAGE}"));
            match word.as_str() {
                "--quick" => options.quick = true,
                "--check" => options.check = true,
                "--bars" => options.bars = true,
                "--here" => options.here = true,
                "--growth" => options.growth = true,
                "--rounds" => options.rounds = Some(number(&value()?)?),
                "--ops" => options.ops = Some(number(&value()?)? as u64),
                "--workers" => options.workers = value()?.split(',').map(number).collect::<Result<_, _>>()?,
                "--csv" => options.csv = Some(value()?),
                "--svg" => options.svg = Some(value()?),
                "--on" => {
                    let name = value()?;
                    let runner = Runner::ALL.into_iter().find(|runner| runner.name() == name);
                    options.on.push(runner.ok_or_else(|| format!("no runtime is called {name}\n{USAGE}"))?);
                }
                flag if flag.starts_with('-') => return Err(USAGE.to_owned()),
                name if workload::all().any(|workload| workload.name.starts_with(name)) => options.names.push(word),
                name => {
                    let known: Vec<_> = workload::all().map(|workload| workload.name).collect();
                    return Err(format!("no row is called {name}; there are {}\n{USAGE}", known.join(", ")));
                }
            }
        }
        Ok(options)
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = &'static Workload> {
        let wanted = |workload: &Workload| match &*self.names {
            [] => !self.check || workload::BASIC.contains(&workload.name),
            names => names.iter().any(|name| workload.name.starts_with(name.as_str())),
        };
        workload::all().filter(move |workload| wanted(workload))
    }

    pub(crate) fn wants(&self, runner: Runner) -> bool {
        self.on.is_empty() || self.on.contains(&runner)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 9 })
    }

    /// Returns the number of workers for each table. `None` means the default of the runtimes.
    pub(crate) fn workers(&self) -> Vec<Option<usize>> {
        if self.workers.is_empty() { vec![None] } else { self.workers.iter().copied().map(Some).collect() }
    }

    /// Returns the number of operations for each row of the workload.
    pub(crate) fn sizes(&self, workload: &Workload) -> Vec<u64> {
        if self.growth {
            return (3..=if self.quick { 4 } else { 7 }).map(|power| 10_u64.pow(power)).collect();
        }
        vec![self.ops.unwrap_or(if self.quick { workload.ops / 20 } else { workload.ops })]
    }

    /// Returns the number of times that a round repeats the work. With `--growth`, a round has at least 100,000
    /// operations in total.
    pub(crate) fn times(&self, ops: u64) -> u64 {
        if self.growth { (100_000 / ops).max(1) } else { 1 }
    }
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| format!("{text} is no number of times\n{USAGE}"))
}
