//! The report of a process that failed while no link, monitor, supervisor or join handle received its exit.
//!
//! The host fills it and decides when it is due. This module only formats and prints it.

use std::borrow::Cow;
use std::fmt;

use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// Maximum number of linked processes that a report lists.
pub(crate) const MAX_LINKS: usize = 16;

/// Function that receives crash reports.
pub(crate) type OnCrash = Box<dyn Fn(&CrashReport) + Send + Sync>;

/// What the observer and a crash report receive about a process, beside its exit.
#[derive(Debug)]
pub(crate) struct LastState {
    /// The name that it registered first, of those that it had at its exit.
    pub(crate) name: Option<Cow<'static, str>>,
    /// Name of the type of its code.
    pub(crate) type_name: &'static str,
    /// Number of messages that it did not read.
    pub(crate) unread: usize,
}

/// Report of a failed process whose exit no link, monitor, supervisor or join handle received.
///
/// The runtime makes one such report for each of these exits: when the process exits, or when its
/// [`JoinHandle`](crate::JoinHandle) is dropped later without taking the exit. An exit on request is no failure: a
/// cancellation, a kill, or a link to a process that was cancelled or killed is not reported, as in OTP.
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
/// [`Builder::on_crash`](crate::Builder::on_crash) sends the reports elsewhere or silences them. In a
/// [`Simulation`](crate::Simulation) nothing is printed: such an exit fails the seed of a [`check`](crate::check()).
///
/// The panic hook of the program runs for every panic, before the runtime knows whether the exit is received. The hook
/// of the standard library prints the thread, the location, the message and, with `RUST_BACKTRACE=1`, the backtrace.
/// The report repeats the location and the message, because it may be written to another place. A program that replaces
/// the hook after its first runtime was built removes the location from the report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CrashReport {
    /// Pid of the process.
    pub pid: Pid,
    /// Registered name of the process at its exit. If it had several names, the one that it registered first.
    pub name: Option<Cow<'static, str>>,
    /// Name of the type of its code: the type of the [`Process`](crate::Process), or of the function or closure of an
    /// async body.
    pub type_name: &'static str,
    /// The process whose step spawned it. `None` if a thread outside the processes of the runtime did.
    pub parent: Option<Pid>,
    /// The exit.
    pub exit: Exit,
    /// Number of messages that the process had accepted and did not read. They become dead letters.
    pub mailbox_len: usize,
    /// The processes that were linked with it at its exit; at most 16 of them.
    pub links: Vec<Pid>,
}

impl CrashReport {
    /// Returns the place in the source where the process panicked, as `file:line:column`. If links passed the exit on,
    /// it is the place where the first process of the chain panicked. `None` if no process panicked, or if the place is
    /// unknown.
    pub fn location(&self) -> Option<&str> {
        self.exit.panic_location()
    }

    /// The process that failed first, if links passed its exit on.
    pub(crate) fn origin(&self) -> Pid {
        if let Exit::Linked { origin, .. } = self.exit { origin } else { self.pid }
    }

    /// Pid and exit, in one line. The exit names the location of a panic.
    pub(crate) fn summary(&self) -> String {
        format!("{} {}", self.pid, self.exit)
    }

    /// Prints the report to stderr with one write, so that reports of several threads do not mix.
    pub(crate) fn print(&self) {
        let text = format!("{self}\n");
        eprint!("{text}");
    }
}

/// Several lines, without a line break at the end.
impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        writeln!(f, " ({}) failed, and no link, monitor, supervisor or join handle received its exit", self.type_name)?;
        writeln!(f, "  exit:    {}", self.exit.to_string().replace('\n', "\n           "))?;
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
        if self.links.len() == MAX_LINKS { f.write_str(" …") } else { Ok(()) }
    }
}
