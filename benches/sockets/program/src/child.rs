//! A child process of the driver. The child process answers each line of the driver with a line.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};
use std::str::FromStr;

pub(crate) struct Peer {
    child: Child,
    /// Input of the child process. The value is `None` after the driver has closed the input.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
            eprintln!("{}: {error}", command.get_program().display());
            exit(101)
        });
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        Self { child, input, output }
    }

    /// Returns the next line of the output of the child process. If the child process has failed, this program exits.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(count) if count > 0 => line,
            _ => {
                eprintln!("a child process failed: {:?}", self.child.wait());
                exit(101)
            }
        }
    }

    pub(crate) fn number<T: FromStr>(&mut self) -> T {
        let line = self.line();
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is not a number"))
    }

    /// Sends a line that asks the child process for the next line.
    pub(crate) fn ask(&mut self) {
        let input = self.input.as_mut().expect("only `end` closes it");
        input.write_all(b"\n").expect("the child process reads its input");
    }

    /// Closes the input of the child process, and waits until the child process has exited.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        let status = self.child.wait().expect("the child process was not waited for before");
        assert!(status.success(), "a child process failed: {status}");
    }
}

/// Prints a line and flushes the output. The child processes use this function.
pub(crate) fn say(text: impl Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).expect("the driver reads the output");
}

/// Waits for a line from the driver. Returns false if the driver has closed the input.
pub(crate) fn wait_for_line() -> bool {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).is_ok_and(|count| count > 0)
}
