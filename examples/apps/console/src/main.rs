//! A console for running programs. The library of this package describes the console.
//!
//!     PROCESSION_CONSOLE=$XDG_RUNTIME_DIR/app.console my-program &
//!     cargo run --release -p procession-console -- $XDG_RUNTIME_DIR/app.console

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;
use procession_console::app::App;
use procession_console::client::Target;
use procession_console::player::Player;
use procession_console::recording::Recording;
use procession_console::report::{Condition, Snapshot, plain};
use procession_console::terminal::{self, Connection};
use procession_console::trace::LONGEST as LONGEST_TRACE;

const HELP: &str = "\
Shows the processes, deadlocks and workers of a running program, or steps through a recording.

Usage: procession-console [OPTIONS] SOCKET
       procession-console [OPTIONS] --tcp HOST:PORT
       procession-console [OPTIONS] FILE.pftrace

  SOCKET               path of the program's console socket (Builder::console, or PROCESSION_CONSOLE)
  FILE.pftrace         recording: an execution trace, a flight record, or the record of a simulation
  --tcp HOST:PORT      TCP socket; the variable PROCESSION_CONSOLE_TOKEN contains the token
  --interval SECONDS   time between two snapshots, at most 86400 [1]
  --once               print one snapshot, or the summary of a recording, and exit
  --json               print the snapshot as JSON; includes --once
  --trace PID          trace this process, and print its events; includes --once; the trace ends after the time of
                       --interval (at most 600), after 10000 events, or when the process exits
  --fail-if CONDITION  exit with status 1 if the condition holds; includes --once, may be repeated
                       conditions: deadlock, blocked-worker (in a long step or in block_in_place), panic, finding,
                       no-restarts-left
  --help               this text

Exit status: 0, or 1 if a condition of --fail-if holds, or 2 after an error. If no condition holds, and the snapshot
does not contain the figures of a condition, this is an error.";

/// Source of the data that the console shows.
enum Source {
    Program(Target),
    Recording(PathBuf),
}

struct Options {
    source: Source,
    interval: Duration,
    is_once: bool,
    is_json: bool,
    trace: Option<String>,
    conditions: Vec<Condition>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Parses the command line. Returns `None` after `--help`.
fn options() -> Result<Option<Options>, Failure> {
    let (mut path, mut address): (Option<OsString>, Option<String>) = (None, None);
    let (mut interval, mut is_once, mut is_json, mut conditions) = (Duration::from_secs(1), false, false, Vec::new());
    let mut trace = None;
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Value(value) if path.is_none() => path = Some(value),
            Long("tcp") => address = Some(arguments.value()?.string()?),
            Long("interval") => interval = seconds(&arguments.value()?.string()?)?,
            Long("once") => is_once = true,
            Long("json") => is_json = true,
            Long("trace") => trace = Some(arguments.value()?.string()?),
            Long("fail-if") => conditions.push(condition(&arguments.value()?.string()?)?),
            Long("help") => return Ok(None),
            other => return Err(format!("{}; --help lists the options", other.unexpected()).into()),
        }
    }
    let source = match (path, address) {
        (Some(path), None) if Path::new(&path).is_dir() => {
            return Err(format!("{}: this is a folder; name a socket or a recording", path.display()).into());
        }
        // A socket is no regular file.
        (Some(path), None) if Path::new(&path).is_file() => Source::Recording(path.into()),
        (Some(path), None) => Source::Program(Target::Path(path.into())),
        (None, Some(address)) => {
            // A token on the command line would be visible to other users of the machine.
            let token = std::env::var("PROCESSION_CONSOLE_TOKEN");
            let token = token.map_err(|error| {
                format!(
                    "PROCESSION_CONSOLE_TOKEN: {error}; --tcp needs the token of Builder::console_tcp in this variable"
                )
            })?;
            Source::Program(Target::Tcp { address, token })
        }
        _ => return Err("name either a socket, a recording or --tcp; --help lists the options".into()),
    };
    if trace.is_some() && interval > LONGEST_TRACE {
        return Err(format!("--trace: --interval is longer than {} s", LONGEST_TRACE.as_secs()).into());
    }
    Ok(Some(Options { source, interval, is_once, is_json, trace, conditions }))
}

/// Longest time between two snapshots: one day. The sum of a longer time and the present time could exceed the range of
/// the clock.
const LONGEST_INTERVAL: Duration = Duration::from_secs(86_400);

fn seconds(text: &str) -> Result<Duration, Failure> {
    let interval = text.parse().map(Duration::try_from_secs_f64);
    match interval {
        Ok(Ok(interval)) if (Duration::from_millis(100)..=LONGEST_INTERVAL).contains(&interval) => Ok(interval),
        _ => Err(format!("--interval: {text} is no number of seconds from 0.1 to 86400").into()),
    }
}

fn condition(text: &str) -> Result<Condition, Failure> {
    let found = Condition::ALL.into_iter().find(|condition| condition.name() == text);
    found.ok_or_else(|| {
        let names = Condition::ALL.map(Condition::name).join(", ");
        format!("--fail-if: unknown condition {text}; the conditions are {names}").into()
    })
}

fn open(path: &Path, options: &Options) -> Result<ExitCode, Failure> {
    if !options.conditions.is_empty() || options.trace.is_some() {
        return Err("--fail-if and --trace need a running program".into());
    }
    let recording = Recording::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if options.is_json {
        print(&format!("{:#}\n", recording.summary()))?;
    } else if options.is_once {
        print(&recording.summary_text())?;
    } else {
        check_terminal()?;
        terminal::play(&mut Player::new(recording))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// # Errors
/// Returns an error if the output is no terminal, for example if the console runs in a pipe or in CI.
fn check_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        return Ok(());
    }
    Err("the output is no terminal; use --once, --json or --fail-if".into())
}

fn run(options: Options) -> Result<ExitCode, Failure> {
    let target = match &options.source {
        Source::Recording(path) => return open(path, &options),
        Source::Program(target) => target.clone(),
    };
    let title = target.to_string();
    let is_screen = !options.is_once && !options.is_json && options.conditions.is_empty() && options.trace.is_none();
    if is_screen {
        check_terminal()?;
    }
    let mut connection = Connection::open(target).map_err(|error| format!("{title}: {error}"))?;
    if is_screen {
        terminal::run(&mut connection, &mut App::new(title), options.interval)?;
        return Ok(ExitCode::SUCCESS);
    }
    let traced = options.trace.as_deref().map(|pid| (pid, options.interval));
    let snapshot = Snapshot::read(&mut connection, traced).map_err(|error| format!("{title}: {error}"))?;
    print(&if options.is_json { format!("{:#}\n", snapshot.json) } else { snapshot.text() })?;
    Ok(check(&options.conditions, &snapshot))
}

/// Checks the conditions of `--fail-if`. If one condition holds, this condition decides the exit status, even if other
/// conditions cannot be checked.
fn check(conditions: &[Condition], snapshot: &Snapshot) -> ExitCode {
    let (mut holds, mut is_unknown) = (false, false);
    for condition in conditions {
        let name = condition.name();
        match condition.holds(snapshot) {
            Ok(false) => {}
            Ok(true) => {
                print_error(&format!("{name} holds"));
                holds = true;
            }
            Err(reason) => {
                print_error(&plain(&format!("{name} could not be checked: {reason}")));
                is_unknown = true;
            }
        }
    }
    match (holds, is_unknown) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// Prints a text. If the program that reads the output has exited, for example `head -1`, the rest of the text is
/// dropped. In this case, the macro `print!` would panic.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "procession-console: {text}");
}

fn main() -> ExitCode {
    let ran = match options() {
        Ok(Some(options)) => run(options),
        Ok(None) => print(&format!("{HELP}\n")).map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        Err(error) => Err(error),
    };
    ran.unwrap_or_else(|error| {
        print_error(&plain(&error.to_string()));
        ExitCode::from(2)
    })
}
