//! Measures the cost of traces, records and consoles. Two processes exchange messages on one worker, at the highest
//! rate. Each row of the table turns one kind of inspection on. `../README.md` explains the rows and the numbers.

mod client;
mod median;
mod row;

use std::process::ExitCode;

use median::Median;
use row::Row;

const USAGE: &str = "usage: inspection [--quick] [--rounds N] [WORD…]

  WORD        measures only the rows whose names contain one of these texts, for example '`process`'; default: all rows
  --quick     few messages and six rounds: shows that the program runs, not the cost
  --rounds N  rounds of each row, 6 to 1,000; default: 15";

/// The rounds of each row, the messages of each round, and the rows.
fn options(mut words: impl Iterator<Item = String>) -> Option<(usize, u64, Vec<Row>)> {
    let (mut rounds, mut is_quick, mut names) = (None, false, Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => is_quick = true,
            "--rounds" => rounds = Some(words.next()?.parse().ok().filter(|rounds| (6..=1_000).contains(rounds))?),
            option if option.starts_with('-') => return None,
            _ => names.push(word),
        }
    }
    let is_chosen = |row: &Row| names.is_empty() || names.iter().any(|name| row.name().contains(name.as_str()));
    let rows: Vec<_> = Row::ALL.into_iter().filter(is_chosen).collect();
    let (rounds, messages) = if is_quick { (rounds.unwrap_or(6), 100_000) } else { (rounds.unwrap_or(15), 10_000_000) };
    (!rows.is_empty()).then_some((rounds, messages, rows))
}

fn main() -> ExitCode {
    let Some((rounds, messages, rows)) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if std::env::var_os("PROCESSION_CONSOLE").is_some() {
        eprintln!("unset PROCESSION_CONSOLE, because this variable adds a console to each row");
        return ExitCode::from(2);
    }
    println!("{messages} messages in each of {rounds} rounds, on one worker\n");
    println!("| inspection | relative CPU time | 95 % interval |\n|---|---|---|");
    let mut ratios = vec![Vec::new(); rows.len()];
    for round in 0..rounds {
        // In each round, the program measures all rows in turn, and each round begins with a different row. So a change
        // of the machine's load affects all rows. Directly before each row, the program measures a run without
        // inspection. The row is compared with this run.
        for place in 0..rows.len() {
            let at = (round + place) % rows.len();
            let plain = Row::Nothing.measure(messages);
            ratios[at].push(rows[at].measure(messages) / plain);
        }
    }
    for (ratios, row) in ratios.into_iter().zip(rows) {
        let Median { median, low, high } = Median::of(ratios);
        println!("| {} | {median:.3} | {low:.3} to {high:.3} |", row.name());
    }
    ExitCode::SUCCESS
}
