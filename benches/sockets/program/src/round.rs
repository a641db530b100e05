//! One round of a row. Starts a server and a client, and measures the CPU time of the server while the client works.

use std::process::Command;
use std::time::Duration;

use crate::child::Peer;
use crate::load;
use crate::options::Options;
use crate::row::Row;
use crate::runner::Runner;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Number of operations.
    pub(crate) ops: u64,
    /// CPU time of the server: user time and system time of all its threads.
    pub(crate) cpu: Duration,
    /// Elapsed time that the client has measured.
    pub(crate) wall: Duration,
    /// Median of the round trips. If the row does not measure round trips, the value is zero.
    pub(crate) median: Duration,
}

pub(crate) fn run(row: &Row, runner: Runner, options: &Options) -> Sample {
    let mut server = Peer::start(&mut runner.command(row.service, options.workers(), &options.under));
    let port: u16 = server.number();
    let program = std::env::current_exe().expect("a program knows where it is");
    let ops = options.ops(row).to_string();
    let mut client = Peer::start(Command::new(program).args([load::FLAG, row.name, &ops, &port.to_string()]));
    // After this line, the client has connected and has warmed up the server.
    client.line();
    let mut cpu = || {
        server.ask();
        Duration::from_nanos(server.number())
    };
    let before = cpu();
    client.ask();
    let (ops, wall, median) = (client.number(), client.number(), client.number());
    let cpu = cpu() - before;
    client.end();
    server.end();
    Sample { ops, cpu, wall: Duration::from_nanos(wall), median: Duration::from_nanos(median) }
}
