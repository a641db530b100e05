//! Finds the processes for which a count has increased most in a window of time.
//!
//! At the start of a window, the sampler stores one count for each process, and not the row of the process. At the end
//! of the window, the sampler reads the processes again, and keeps only the first rows.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use crate::observe::inspection::ProcessInfo;
use crate::observe::inspection::ranking::FirstRows;
use crate::platform::clock::Instant;

/// Count in the row of a process. An [`IncreaseSampler`] measures the increase of this count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcessCount {
    /// The count in [`ProcessInfo::steps`].
    Steps,
    /// The count in [`ProcessInfo::mailbox_len`].
    MailboxLen,
    /// The count in [`ProcessInfo::signals`].
    Signals,
    /// The count in [`ProcessInfo::yields`].
    Yields,
    /// The count in [`ProcessInfo::waits`].
    Waits,
    /// The count in [`ProcessInfo::links`].
    Links,
    /// The count in [`ProcessInfo::monitors`].
    Monitors,
    /// The count in [`ProcessInfo::monitored_by`].
    MonitoredBy,
}

impl ProcessCount {
    fn of(self, row: &ProcessInfo) -> u64 {
        match self {
            Self::Steps => row.steps,
            Self::MailboxLen => row.mailbox_len as u64,
            Self::Signals => row.signals as u64,
            Self::Yields => row.yields as u64,
            Self::Waits => row.waits as u64,
            Self::Links => row.links as u64,
            Self::Monitors => row.monitors as u64,
            Self::MonitoredBy => row.monitored_by as u64,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::MailboxLen => "messages in the mailbox",
            Self::Signals => "signals",
            Self::Yields => "yields",
            Self::Waits => "waits",
            Self::Links => "links",
            Self::Monitors => "monitors",
            Self::MonitoredBy => "monitoring processes",
        }
    }
}

/// Reads the time and the rows of the processes.
pub(crate) trait RowSource: Send + Sync {
    fn now(&self) -> Instant;
    /// Returns about the number of processes.
    fn len(&self) -> usize;
    /// Calls `visit` with the row of each process. The caller holds a lock of the process during the call of `visit`.
    fn rows(&self, visit: &mut dyn FnMut(ProcessInfo));
}

/// Finds the processes for which a count has increased most in a window of time: see
/// [`Host::sample_increases`](crate::Host::sample_increases).
#[must_use = "the sampler returns nothing until `take` is called"]
pub struct IncreaseSampler {
    source: Box<dyn RowSource>,
    count: ProcessCount,
    begun: Instant,
    /// The pid word and the count of each process at the start of the window, in the order of the pid words.
    at_start: Vec<(u64, u64)>,
}

impl IncreaseSampler {
    pub(crate) fn new(source: Box<dyn RowSource>, count: ProcessCount) -> Self {
        let mut sampler = Self { begun: source.now(), source, count, at_start: Vec::new() };
        sampler.take(0);
        sampler
    }

    /// Returns the increases since the last call, or since the creation of the sampler, and starts a new window. The
    /// result contains at most `limit` processes.
    ///
    /// Like [`Host::processes`](crate::Host::processes), the call reads the entire pid table. The call may be made on
    /// any thread, and never stops a worker. During the call, the sampler stores at most `limit` rows. In addition, the
    /// sampler needs 32 bytes for each process. If the number of processes grows during the call, the sampler may need
    /// up to 64 bytes for each process.
    pub fn take(&mut self, limit: usize) -> Increases {
        let (count, at_start) = (self.count, std::mem::take(&mut self.at_start));
        let count_at_start = |pid: u64| {
            let at = at_start.binary_search_by_key(&pid, |&(pid, _)| pid);
            at.map_or(0, |at| at_start[at].1)
        };
        let now = self.source.now();
        // The list should not grow while the lock of a process is held.
        self.at_start.reserve(self.source.len());
        let mut first = FirstRows::new(limit);
        self.source.rows(&mut |row| {
            let (pid, at_end) = (row.pid.word(), count.of(&row));
            self.at_start.push((pid, at_end));
            let by = at_end.saturating_sub(count_at_start(pid));
            if by != 0 {
                first.add(Ranked { key: (Reverse(by), pid), row });
            }
        });
        self.at_start.sort_unstable();
        self.at_start.shrink_to_fit();
        let window = now - std::mem::replace(&mut self.begun, now);
        let increase = |Ranked { key: (Reverse(by), _), row }| Increase { by, process: row };
        Increases { window, count, processes: first.into_sorted().map(increase).collect() }
    }
}

impl fmt::Debug for IncreaseSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncreaseSampler")
            .field("count", &self.count)
            .field("begun", &self.begun)
            .field("processes", &self.at_start.len())
            .finish_non_exhaustive()
    }
}

/// A row with its place in the order of the result: the largest increase first, and equal increases in the order of the
/// pid words.
struct Ranked {
    key: (Reverse<u64>, u64),
    row: ProcessInfo,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Ranked {}

/// Increases of a count in a window of time, for each process: see
/// [`Host::sample_increases`](crate::Host::sample_increases).
///
/// `Display` prints one line about the window and one line for each process:
///
/// ```text
/// increases of messages in the mailbox in a window of 2s
/// +950: <0.0.1> "index" app::index: Ready, mailbox 1250 (peak 1250)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Increases {
    /// Length of the window.
    pub window: Duration,
    /// The count whose increases were measured.
    pub count: ProcessCount,
    /// The processes with the largest increases, largest increase first. Processes without an increase are not listed.
    pub processes: Vec<Increase>,
}

/// Increase of a count for one process: see [`Increases::processes`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Increase {
    /// Difference between the count at the end of the window and the count at the start of the window. If the process
    /// started within the window, the count at the start is 0.
    pub by: u64,
    /// The row of the process at the end of the window.
    pub process: ProcessInfo,
}

impl fmt::Display for Increases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "increases of {} in a window of {:?}", self.count.noun(), self.window)?;
        self.processes.iter().try_for_each(|Increase { by, process }| write!(f, "\n+{by}: {process}"))
    }
}
