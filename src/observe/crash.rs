//! The report of a process that failed while no link, monitor, supervisor or join handle received its exit.
//!
//! The host fills the report and decides when to print it. This module only formats and prints the report.

use std::borrow::Cow;
use std::fmt;

use crate::observe::exits::text_of_exit;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// Maximum number of linked processes that a report lists.
pub(crate) const MAX_LINKS: usize = 16;

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

/// Report of a failed process whose exit no link, monitor, supervisor or join handle received.
///
/// The runtime makes one report for each such process. Usually the runtime makes the report at the exit of the process.
/// If the process has a [`JoinHandle`](crate::JoinHandle), the runtime makes the report when the handle is dropped,
/// unless the handle has taken the exit. As in OTP, an exit on request is not a failure and is not reported. A process
/// exits on request if it is cancelled, if it is killed, or if it is linked to a cancelled or killed process.
///
/// By default the runtime prints the report to stderr, as one block of lines:
///
/// ```text
/// process <0.0.1> "cache" (app::Cache) failed, and no link, monitor, supervisor or join handle received its exit
///   exit:    panicked at src/cache.rs:41:9: boom
///   parent:  <0.0.7>
///   mailbox: 3 messages
///   links:   none
/// ```
///
/// To send the reports to another place or to silence them, use [`Builder::on_crash`](crate::Builder::on_crash). A
/// [`Simulation`](crate::Simulation) prints no report. In a [`check`](crate::check()), the run of the present seed
/// fails if no link, monitor, supervisor or join handle receives the exit of a failed process.
///
/// The panic hook of the program runs for every panic, before the runtime knows whether a link, monitor, supervisor or
/// join handle receives the exit. The hook of the standard library prints the thread, the location and the message.
/// With `RUST_BACKTRACE=1`, this hook also prints the backtrace. The report repeats the location and the message,
/// because the report and the output of the hook may go to different places. If a program replaces the hook after it
/// has built its first runtime, the report contains no location.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CrashReport {
    /// Pid of the process.
    pub pid: Pid,
    /// Registered name of the process at its exit. If the process had several names, this field is the name that the
    /// process registered first.
    pub name: Option<Cow<'static, str>>,
    /// Name of the type of the process's code: the type of the [`Process`](crate::Process), or of the function or
    /// closure of an async body.
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
    /// Whether more processes were linked than `links` contains.
    pub(crate) has_more_links: bool,
}

impl CrashReport {
    /// Returns the place in the source where the process panicked, as `file:line:column`. If a chain of links made the
    /// process exit, the result is the place where the first process of the chain panicked. Returns `None` if no
    /// process panicked, or if the place is unknown.
    pub fn location(&self) -> Option<&str> {
        self.exit.panic_location()
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
        let text = format!("{self}\n");
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
        writeln!(f, " ({}) failed, and no link, monitor, supervisor or join handle received its exit", self.type_name)?;
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
        if self.has_more_links { f.write_str(" …") } else { Ok(()) }
    }
}
