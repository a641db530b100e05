//! The report of a failed process. An observer receives the report of each failure. If no link, monitor, supervisor or
//! join handle receives the exit, the report is also printed.
//!
//! The host fills the report and decides when the report is printed. This module only formats and prints the report.

use std::backtrace::Backtrace;
use std::borrow::Cow;
use std::fmt;

use crate::observe::exits::text_of_exit;
use crate::observe::inspection::last_messages::LastMessage;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// Maximum number of linked processes that a report lists.
pub(crate) const MAX_LINKS: usize = 16;

/// Maximum number of lines of a backtrace in the text of a report. Most frames have two lines.
const MAX_BACKTRACE_LINES: usize = 200;

/// Function that receives crash reports.
pub(crate) type OnCrash = Box<dyn Fn(&CrashReport) + Send + Sync>;

/// Data about an exited process, without the exit itself. The observer and the crash report use this data.
#[derive(Debug)]
pub(crate) struct LastState {
    /// Name of the process at its exit. If the process had several names, this field is the name that the process
    /// registered first.
    pub(crate) name: Option<Cow<'static, str>>,
    /// Name of the type of the process's code.
    pub(crate) type_name: &'static str,
    /// Number of messages that the process did not read.
    pub(crate) unread: usize,
}

/// Data about a process that exited abnormally. A normal exit must be fast, so the runtime does not collect this data
/// for a normal exit.
#[derive(Debug)]
pub(crate) struct AbnormalState {
    pub(crate) last: LastState,
    /// Pids of linked processes, at most [`MAX_LINKS`] + 1. The report lists at most [`MAX_LINKS`] of these pids. The
    /// list is empty if the exit is not a failure.
    pub(crate) links: Vec<Pid>,
    /// The last messages of the process, oldest first.
    pub(crate) last_messages: Vec<LastMessage>,
}

/// Report of a failed process. A failure is a panic, an error, a failed initialization, or an exit that a link has
/// propagated from a failed process. As in OTP, an exit on request is not a failure and is not reported. A process
/// exits on request if it is cancelled, if it is killed, or if it is linked to a cancelled or killed process.
///
/// The runtime passes the report of each failure to [`Observer::crashed`](crate::Observer::crashed), on the thread on
/// which the process exits. This method must not block. A panic of the method is caught and ignored.
/// `observe::TracingObserver` (feature `tracing`) reports an event with the text of the report.
///
/// If no link, monitor, supervisor or join handle receives the exit, the runtime also passes the report to the function
/// of [`Builder::on_crash`](crate::Builder::on_crash). By default, this function prints the report to stderr, as one
/// block of lines. The runtime calls this function once for each process whose failure is unobserved, usually at the
/// exit of the process. If the process has a [`JoinHandle`](crate::JoinHandle), the runtime does not call this function
/// before the handle is dropped. If the handle has returned the exit, the runtime does not call this function at all. A
/// failure is unobserved if no link, monitor, supervisor or join handle receives the exit. An unobserved failure
/// reaches both the observer and the function. If the observer and the function write to the same log, the log contains
/// the failure twice.
///
/// The text of the report is the same for the observer, for `TracingObserver`, and for the function of `on_crash`. On
/// stderr, a note follows the text:
///
/// ```text
/// process <0.0.1> "cache" (app::Cache) failed
///   exit:    panicked at src/cache.rs:41:9: boom
///   parent:  <0.0.7>
///   mailbox: 3 messages
///   links:   none
///   note:    no link, monitor, supervisor or join handle received this exit
/// ```
///
/// With [`Builder::inspect`](crate::Builder::inspect), the report also contains the last messages of the process,
/// oldest first. If a backtrace was [captured](Exit::panic_backtrace), the report contains its first 200 lines.
///
/// To send the printed reports to another place or to silence them, use
/// [`Builder::on_crash`](crate::Builder::on_crash). A [`Simulation`](crate::Simulation) prints no report. In a
/// [`check`](crate::check()), an unobserved failure makes the run of the current seed fail.
///
/// The panic hook of the program runs for every panic, before the runtime knows whether a link, monitor, supervisor or
/// join handle receives the exit. The hook of the standard library prints the thread, the location and the message.
/// With `RUST_BACKTRACE=1`, this hook also prints the backtrace. The report repeats these data, because the program may
/// write the report and the output of the hook to different places. With `RUST_LIB_BACKTRACE=1` and without
/// `RUST_BACKTRACE`, only the report contains the backtrace. The runtime adds its own panic hook. If the program later
/// installs another panic hook, and that hook does not call the hook of the runtime, the report contains no location
/// and no backtrace.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CrashReport {
    /// Pid of the process.
    pub pid: Pid,
    /// Registered name of the process at its exit. If the process had several names, this field is the name that the
    /// process registered first.
    pub name: Option<Cow<'static, str>>,
    /// Type name of the process's code: the [`Process`](crate::Process) type, or the type of an async body's function
    /// or closure.
    pub type_name: &'static str,
    /// Parent: the process that spawned this process. `None` if code outside the processes of the runtime spawned this
    /// process.
    pub parent: Option<Pid>,
    /// The exit.
    pub exit: Exit,
    /// Number of messages that the process had accepted and did not read. These messages become dead letters.
    pub mailbox_len: usize,
    /// The processes that were linked with the process at its exit. The list contains at most 16 processes.
    pub links: Vec<Pid>,
    /// The last messages and other events that the process accepted, oldest first. The list also contains messages that
    /// the process has not read, but does not state which messages are unread. The list is empty if
    /// [`Builder::inspect`](crate::Builder::inspect) was not called, or if the [number of
    /// records](crate::observe::InspectOptions::last_messages) is 0.
    pub last_messages: Vec<LastMessage>,
    /// Whether the process was linked with more processes than `links` contains.
    pub(crate) has_more_links: bool,
}

impl CrashReport {
    /// Returns the place in the source where the process panicked, as `file:line:column`. If a chain of links made the
    /// process exit, the result is the place where the first process of the chain panicked. Returns `None` if no
    /// process panicked, or if the place is unknown.
    pub fn location(&self) -> Option<&str> {
        self.exit.panic_location()
    }

    /// Returns the backtrace of the panic, if the runtime has [captured](Exit::panic_backtrace) a backtrace. By
    /// default, the runtime captures no backtrace.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.exit.panic_backtrace()
    }

    /// Returns the process that failed first. If links caused the exit of this process, the result is the first process
    /// of the chain of links.
    pub(crate) fn origin(&self) -> Pid {
        if let Exit::Linked { origin, .. } = self.exit { origin } else { self.pid }
    }

    /// Returns one line of text that contains the pid and the exit. The exit contains the location of a panic.
    pub(crate) fn summary(&self) -> String {
        format!("{} {}", self.pid, self.exit)
    }

    /// Prints the report to stderr with one write, so that reports of several threads do not mix.
    pub(crate) fn print(&self) {
        let text = format!("{self}\n  note:    no link, monitor, supervisor or join handle received this exit\n");
        eprint!("{text}");
    }
}

/// Writes several lines, without a line break at the end.
impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        writeln!(f, " ({}) failed", self.type_name)?;
        writeln!(f, "  exit:    {}", text_of_exit(&self.exit).replace('\n', "\n           "))?;
        match self.parent {
            Some(parent) => writeln!(f, "  parent:  {parent}")?,
            None => writeln!(f, "  parent:  none")?,
        }
        let plural = if self.mailbox_len == 1 { "" } else { "s" };
        writeln!(f, "  mailbox: {} message{plural}", self.mailbox_len)?;
        f.write_str("  links:  ")?;
        if self.links.is_empty() {
            f.write_str(" none")?;
        }
        self.links.iter().try_for_each(|pid| write!(f, " {pid}"))?;
        f.write_str(if self.has_more_links { " …" } else { "" })?;
        if !self.last_messages.is_empty() {
            f.write_str("\n  last messages:")?;
            self.last_messages.iter().try_for_each(|message| write!(f, "\n    {message}"))?;
        }
        self.backtrace().map_or(Ok(()), |backtrace| write_backtrace(f, backtrace))
    }
}

fn write_backtrace(f: &mut fmt::Formatter<'_>, backtrace: &Backtrace) -> fmt::Result {
    f.write_str("\n  backtrace:")?;
    let text = backtrace.to_string();
    let mut lines = text.trim_end().lines();
    lines.by_ref().take(MAX_BACKTRACE_LINES).try_for_each(|line| write!(f, "\n  {line}"))?;
    match lines.count() {
        0 => Ok(()),
        omitted => write!(f, "\n    … {omitted} more lines"),
    }
}
