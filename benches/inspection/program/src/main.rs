//! Measures what traces, records and consoles cost. Two processes exchange messages on one worker, at the highest rate.
//! Each row of the table turns one kind of inspection on. `../README.md` explains the rows and the numbers.

mod client;
mod median;
mod row;

use std::process::ExitCode;

use median::Median;
use row::Row;

const USAGE: &str = "usage: inspection [--quick] [--rounds N]\n\n  --quick     few messages and three rounds: shows that the program runs, not the cost\n  --rounds N  rounds of each row; default: 15";

struct Options {
    rounds: usize,
    messages: u64,
}

fn options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { rounds: 15, messages: 10_000_000 };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options = Options { rounds: 3, messages: 100_000 },
            "--rounds" => options.rounds = words.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{} messages in each of {} rounds, on one worker\n", options.messages, options.rounds);
    println!("| inspection | relative CPU time | 95 % interval |\n|---|---|---|");
    let mut rounds = vec![Vec::new(); Row::ALL.len()];
    for _ in 0..options.rounds {
        // The rows take turns, so that a change of the machine's load affects all rows.
        let plain = row::plain(options.messages);
        for (ratios, row) in rounds.iter_mut().zip(Row::ALL) {
            ratios.push(row.measure(options.messages) / plain);
        }
    }
    for (ratios, row) in rounds.into_iter().zip(Row::ALL) {
        let Median { median, low, high } = Median::of(ratios);
        println!("| {} | {median:.3} | {low:.3} to {high:.3} |", row.name());
    }
    ExitCode::SUCCESS
}
