//! Runs each round in its own operating system process, so that the heap of earlier rounds does not affect the round.
//! The program starts itself as a child process, describes the round in the arguments, and reads the result from the
//! output of the child process.

use std::process::{Command, Stdio, exit};
use std::time::Duration;

use crate::round::{Round, Runner, Sample};
use crate::workload::{self, Workload};

/// Argument that makes this program run one round.
const ROUND: &str = "--round";

/// Runs one round in a child process. If the child process fails, the child process prints the reason, and this
/// function ends the program.
pub(crate) fn run(workload: &Workload, runner: Runner, round: &Round) -> Sample {
    let program = std::env::current_exe().expect("a program knows where it is");
    let workers = round.workers.map(|count| count.to_string());
    let output = Command::new(program)
        .args([ROUND, workload.name, runner.name(), &round.ops.to_string(), &round.times.to_string()])
        .args(workers)
        .stderr(Stdio::inherit())
        .output()
        .expect("a process can be started");
    let sample = str::from_utf8(&output.stdout).ok().and_then(read);
    sample.filter(|_| output.status.success()).unwrap_or_else(|| {
        eprintln!("{} on {}: {}", workload.name, runner.name(), output.status);
        exit(101)
    })
}

/// Runs the measurement round that the arguments of the program describe, and prints the result. Returns false if the
/// arguments describe no round.
pub(crate) fn does(words: &[String]) -> bool {
    let [flag, name, runner, ops, times, workers @ ..] = words else { return false };
    if flag != ROUND {
        return false;
    }
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let workers = workers.first().map(|count| number(count) as usize);
    let round = Round { ops: number(ops), times: number(times), workers };
    let workload = workload::all().find(|workload| workload.name == name).expect("a row");
    let run = workload.runs.iter().find(|(one, _)| one.name() == runner).expect("a runtime that has it").1;
    print!("{}", format_sample(&run(&round)));
    true
}

/// Formats a sample as three lines: the times in nanoseconds, the counters, the waiting times.
fn format_sample(sample: &Sample) -> String {
    fn line(numbers: impl Iterator<Item = u128>) -> String {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ") + "\n"
    }
    line([sample.cpu, sample.wall].iter().map(Duration::as_nanos))
        + &line(sample.counts.iter().flatten().map(|&count| count.into()))
        + &line(sample.waits.iter().map(Duration::as_nanos))
}

fn read(text: &str) -> Option<Sample> {
    let mut lines = text.lines().map(|line| line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>());
    let (times, counts, waits) = (lines.next()?.ok()?, lines.next()?.ok()?, lines.next()?.ok()?);
    let [cpu, wall] = *times else { return None };
    Some(Sample {
        cpu: Duration::from_nanos(cpu),
        wall: Duration::from_nanos(wall),
        counts: counts.try_into().ok(),
        waits: waits.into_iter().map(Duration::from_nanos).collect(),
    })
}
