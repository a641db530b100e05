//! The command line.

use crate::round::Runner;
use crate::workload::{ALL, Workload};

const USAGE: &str = "\
usage: neighbours [NAME…] [--quick] [--check] [--rounds N] [--ops N] [--on RUNTIME]…
  NAME          the rows whose names begin so; all without one
  --quick       a twentieth of the operations, three rounds: shows that it runs, not how fast
  --check       exit status 1 when a row costs more than 1.5 × the better neighbour; never with --quick
  --rounds N    rounds of each row
  --ops N       operations of each round
  --on RUNTIME  only this one: procession, tokio, async-executor";

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) check: bool,
    names: Vec<String>,
    rounds: Option<u64>,
    ops: Option<u64>,
    on: Vec<Runner>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value\n{USAGE}"));
            let number = |text: String| {
                let number = text.parse::<u64>().ok().filter(|&number| number > 0);
                number.ok_or_else(|| format!("{text} is no number of times\n{USAGE}"))
            };
            match word.as_str() {
                "--quick" => options.quick = true,
                "--check" => options.check = true,
                "--rounds" => options.rounds = Some(number(value()?)?),
                "--ops" => options.ops = Some(number(value()?)?),
                "--on" => {
                    let name = value()?;
                    let runner = Runner::ALL.into_iter().find(|runner| runner.name() == name);
                    options.on.push(runner.ok_or_else(|| format!("no runtime is called {name}\n{USAGE}"))?);
                }
                flag if flag.starts_with('-') => return Err(USAGE.to_owned()),
                name if ALL.iter().any(|workload| workload.name.starts_with(name)) => options.names.push(word),
                name => {
                    let known: Vec<_> = ALL.iter().map(|workload| workload.name).collect();
                    return Err(format!("no row is called {name}; there are {}\n{USAGE}", known.join(", ")));
                }
            }
        }
        Ok(options)
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = &'static Workload> {
        let wanted = |workload: &Workload| {
            self.names.is_empty() || self.names.iter().any(|name| workload.name.starts_with(name.as_str()))
        };
        ALL.iter().copied().filter(move |workload| wanted(workload))
    }

    pub(crate) fn wants(&self, runner: Runner) -> bool {
        self.on.is_empty() || self.on.contains(&runner)
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(if self.quick { 3 } else { 15 })
    }

    pub(crate) fn ops(&self, workload: &Workload) -> u64 {
        self.ops.unwrap_or(if self.quick { workload.ops / 20 } else { workload.ops })
    }
}
