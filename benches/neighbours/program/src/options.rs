//! Parses the command line.

use crate::round::Runner;
use crate::workload::{self, Workload};

const USAGE: &str = "\
usage: neighbours [NAME…] [--quick] [--check] [--bars] [--rounds N] [--ops N] [--growth] [--workers N[,N…]]
                  [--on RUNTIME]… [--here] [--csv FILE] [--svg FILE]
  NAME          run the rows whose names begin with NAME; default: all rows
  --quick       run 1/20 of the operations in three rounds; the results only show that the program works
  --check       exit with status 1 if a row costs more than 1.5 times the cheaper of tokio and async-executor; without
                NAME, run only the basic rows: spawn, message, command, yield; not with --quick
  --bars        exit with status 1 if a row exceeds one of its bars; not with --quick
  --rounds N    number of rounds of each row
  --ops N       number of operations of each round
  --growth      run each row with 1,000 operations, 10,000, and so on up to 10 million
  --workers N   number of workers; each number of a list gets its own table; default: the number of cores
  --on RUNTIME  run only this runtime: procession, by-hand, tokio, async-executor, static-executor, actix, kameo, ractor
  --here        run all rounds in this process, for a profiler; by default, each round has its own process
  --csv FILE    write all measured values to FILE
  --svg FILE    draw the chart to FILE";

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
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
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
