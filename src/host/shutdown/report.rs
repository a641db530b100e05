//! The report of a shutdown. The report is plain data. The code of the shutdown is in `shutdown.rs`.

use std::fmt;

use crate::observe::ProcessState;
use crate::process::pid::Pid;

/// Result of a shutdown: see [`Host::shutdown`](crate::Host::shutdown).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The processes that had not exited at the deadline. The shutdown has killed these processes.
    pub left: Vec<UnfinishedProcess>,
}

/// A process that had not exited at the deadline of a shutdown, and the state of this process at the deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfinishedProcess {
    /// Pid of the process.
    pub pid: Pid,
    /// State of the process at the deadline. The state `Running` means that a step of the process had not returned at
    /// the deadline.
    pub state: Option<ProcessState>,
    /// Number of commands, calls and sleeps that the process was waiting for.
    pub outstanding: usize,
}

impl fmt::Display for UnfinishedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was ", self.pid)?;
        match self.state {
            Some(ProcessState::Running) => f.write_str("in a step that did not return"),
            Some(ProcessState::Blocked) if self.outstanding == 1 => f.write_str("waiting for 1 command, call or sleep"),
            Some(ProcessState::Blocked) => write!(f, "waiting for {} commands, calls or sleeps", self.outstanding),
            // An idle process may wait for a message, for a socket, or for the wake-up of a future that another crate
            // has defined.
            Some(ProcessState::Idle) => f.write_str("waiting for a message or another event"),
            Some(ProcessState::Suspended) => f.write_str("suspended"),
            _ => f.write_str("waiting for a worker"),
        }
    }
}
