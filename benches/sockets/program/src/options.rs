//! Parses the command line.

use crate::row::{ROWS, Row};
use crate::runner::Runner;

const USAGE: &str = "\
usage: sockets [NAME…] [--quick] [--bars] [--rounds N] [--ops N] [--workers N] [--on RUNTIME]… [--under COMMAND]
  NAME             run the rows whose names begin with NAME; default: all rows
  --quick          run 1/20 of the operations in three rounds; the results only show that the program works
  --bars           exit with status 1 if a row misses its goal; not with --quick
  --rounds N       number of rounds of each row; default: 9
  --ops N          number of operations of each round; in the row http, the duration of each round in seconds
  --workers N      number of workers of each server; default: 2
  --on RUNTIME     run only this runtime: procession, guest, tokio, smol, go, epoll
  --under COMMAND  run each server under this command, for example `strace -c -f`";

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) bars: bool,
    pub(crate) under: Vec<String>,
    names: Vec<String>,
    rounds: Option<usize>,
    ops: Option<u64>,
    workers: Option<usize>,
    on: Vec<Runner>,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--quick" => options.quick = true,
                "--bars" => options.bars = true,
                "--rounds" => options.rounds = Some(number(&value()?)?),
                "--ops" => options.ops = Some(number(&value()?)? as u64),
                "--workers" => options.workers = Some(number(&value()?)?),
                "--under" => options.under = value()?.split_whitespace().map(str::to_owned).collect(),
                "--on" => {
                    let name = value()?;
                    let runner = Runner::ALL.into_iter().find(|runner| runner.name() == name);
                    options.on.push(runner.ok_or_else(|| format!("no runtime is called {name}\n{USAGE}"))?);
                }
                flag if flag.starts_with('-') => return Err(USAGE.to_owned()),
                name if ROWS.iter().any(|row| row.name.starts_with(name)) => options.names.push(word),
                name => {
                    return Err(format!("no row is called {name}; there are {:?}\n{USAGE}", ROWS.map(|row| row.name)));
                }
            }
        }
        Ok(options)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static Row> {
        // The name `echo-1` is also the beginning of `echo-1000`. Therefore a word that is the whole name of a row
        // selects only this row.
        let is_whole = move |name: &str| ROWS.iter().any(|row| row.name == name);
        let names =
            move |row: &Row, name: &str| if is_whole(name) { row.name == name } else { row.name.starts_with(name) };
        let wanted = move |row: &Row| self.names.is_empty() || self.names.iter().any(|name| names(row, name));
        ROWS.iter().filter(move |row| wanted(row))
    }

    pub(crate) fn wants(&self, runner: Runner) -> bool {
        self.on.is_empty() || self.on.contains(&runner)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 9 })
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.unwrap_or(2)
    }

    pub(crate) fn ops(&self, row: &Row) -> u64 {
        self.ops.unwrap_or(if self.quick { (row.ops / 20).max(1) } else { row.ops })
    }
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| format!("{text} is no number of times\n{USAGE}"))
}
