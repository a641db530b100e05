//! Explanation of a runtime: the reasons why its processes do not run, and what the processes wait for.
//!
//! The host reads the state of the runtime, decides which reasons apply, and fills in this data. This module only
//! prints the data.

use std::fmt;
use std::time::Duration;

use crate::observe::ProcessState;
use crate::observe::inspection::wait_graph::Deadlock;
use crate::observe::inspection::{CommandCount, ProcessDetails, ProcessInfo, WaitsFor};
use crate::platform::clock::Instant;

/// Explanation of a runtime, with the reasons why its processes do not run: see
/// [`Host::explain`](crate::Host::explain).
///
/// `Display` prints the findings as a numbered list, and one line about all processes. Each finding states what to do:
///
/// ```text
/// 1 finding:
/// 1. the process <0.0.1> "cache" app::Cache has run one step on worker 0 for 1.2s; other threads run its queued tasks
///      the step was asked to yield, but does not check `should_yield`
///    what to do: move blocking calls to `spawn_blocking`, and call `should_yield` in long computations
/// 4 processes: 1 running, 0 ready, 3 waiting (2 for a message, 1 for an answer to a call)
/// running: <0.0.1> "cache" app::Cache: Running, mailbox 3 (peak 3)
/// ```
///
/// If there is no finding, the first line is `no finding`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The reasons why processes do not run, in the order of the variants of [`Finding`].
    pub findings: Vec<Finding>,
    /// The processes, by state and by the events that they wait for.
    pub activity: Activity,
}

impl Explanation {
    pub(crate) fn new(findings: Vec<Finding>, activity: Activity) -> Self {
        Self { findings, activity }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.findings.len() {
            0 => f.write_str("no finding")?,
            1 => f.write_str("1 finding:")?,
            count => write!(f, "{count} findings:")?,
        }
        for (at, finding) in self.findings.iter().enumerate() {
            write!(f, "\n{}. {}", at + 1, finding.to_string().replace('\n', "\n   "))?;
        }
        write!(f, "\n{}", self.activity)
    }
}

/// A reason why processes of a runtime do not run: see [`Host::explain`](crate::Host::explain).
///
/// Not every finding is an error of the program. A full mailbox, a busy blocking pool and commands without an answer
/// are normal for a short time. If the same finding appears again a few seconds later, this finding explains why the
/// processes do not run.
///
/// `Display` prints the finding in one or more lines. The last line begins with `what to do:`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The runtime has no worker, and no thread is inside [`Runtime::run`](crate::Runtime::run) or
    /// [`Runtime::block_on`](crate::Runtime::block_on). Therefore no process runs, and no timer fires.
    NoThread {
        /// Number of processes that are alive. At least 1.
        processes: usize,
    },
    /// Processes of a [`LocalSet`](crate::LocalSet) are ready to run, but no thread runs the `LocalSet`. No future of
    /// [`LocalSet::run`](crate::LocalSet::run) is in progress, and no thread is inside
    /// [`LocalSet::block_on`](crate::LocalSet::block_on).
    ///
    /// A future of `run` is in progress from its first poll until it completes or is dropped. If an executor has polled
    /// a future of `LocalSet::run` and does not poll it again, there is no finding.
    LocalSetWithoutThread {
        /// Number of ready processes in all `LocalSet`s to which this finding applies. At least 1.
        count: usize,
        /// List of at most 20 of these processes.
        processes: Vec<ProcessInfo>,
    },
    /// Processes that wait for each other: see [`Host::wait_for_graph`](crate::Host::wait_for_graph). The runtime has
    /// read the processes of the deadlock twice, and has found the same waits both times.
    Deadlock(Deadlock),
    /// A worker has run one step for longer than [`Builder::long_step_threshold`](crate::Builder::long_step_threshold),
    /// or the step has called [`block_in_place`](crate::block_in_place). The step has not returned yet.
    ///
    /// The monitor thread detects a long step when the step has run for one to two times the threshold. The explanation
    /// does not contain a long step that returns before the monitor thread detects the step. If the threshold is
    /// `Duration::MAX`, or if the runtime has no workers, no long step is found. A long step of a process of a
    /// [`LocalSet`](crate::LocalSet) is not found either. In these cases, compare the field [`Activity::running`] of
    /// two explanations: a process that runs all the time is in both fields.
    BlockedWorker {
        /// Number of the worker. An [`Observer`](crate::Observer) receives the same number for this worker.
        worker: usize,
        /// Process that runs the step. `None` for a future without a pid, for example the future of an async handler,
        /// and for a process that exited before the runtime read the row of the process.
        process: Option<ProcessInfo>,
        /// Time at which the monitor has first seen the step. The step began at most one threshold earlier. If the step
        /// called `block_in_place`, this is the time of that call.
        since: Instant,
        /// Time from `since` to the explanation.
        lasts: Duration,
        /// Whether the runtime has as many active workers as requested. If this field is false, the number of
        /// [replacement threads](crate::Builder::max_replacement_threads) has reached its maximum, and fewer threads
        /// than requested run the other processes.
        is_replaced: bool,
        /// Whether the step has checked for the request to yield. The runtime asks a step to yield before it reports
        /// the step as a long step. `Some(true)`: after the request, the step has called
        /// [`should_yield`](crate::should_yield), or has polled a future that uses the budget of the turn, but the step
        /// has not ended. `Some(false)`: so far, the step has neither called `should_yield` nor polled a future that
        /// uses this budget. In this case, `Display` prints that the step does not check `should_yield`, but the step
        /// may still check later. `None` if the step called `block_in_place`, or if the step belongs to a future
        /// without a pid. See [`ProcessInfo::checks_yield`] for the earlier steps of the process.
        checks_yield: Option<bool>,
        /// Whether the step has called [`Runtime::block_on`](crate::Runtime::block_on), and this call has not returned.
        waits_in_block_on: bool,
    },
    /// All threads of the blocking pool run a job, and the pool has its maximum number of threads. A further job waits
    /// in the queue. If the queue is full, a job is refused.
    BusyBlockingPool {
        /// Number of threads.
        threads: usize,
        /// Number of jobs in the queue.
        queue_depth: usize,
        /// Maximum number of jobs in the queue.
        queue_capacity: usize,
    },
    /// Commands of one type that no handler has answered yet. Streams are not included, because the answer to a stream
    /// command ends the stream. Calls and sleeps of hand-written processes are not included either.
    UnansweredCommands {
        /// Type and number of the commands.
        commands: CommandCount,
        /// The oldest known command was performed at about this time, or earlier. The runtime reads two times, and
        /// `since` is the earlier of these two times. The first time is the earliest [yield of a measured
        /// command](CommandCount::measured_since). The second time is the earliest [start of a
        /// wait](ProcessInfo::waiting_since) of a process that has performed a command of this type and waits. The
        /// oldest command may be older than this time. The start of a wait may be too early, so this time may also be
        /// too early. `None` if both times are unknown.
        since: Option<Instant>,
        /// Time from `since` to the explanation. The oldest known command was performed at about this time before the
        /// explanation, or earlier.
        lasts: Option<Duration>,
    },
    /// A mailbox with a capacity is full. At most 16 mailboxes are listed, the longest mailboxes first.
    FullMailbox {
        /// Process that owns the mailbox.
        process: ProcessInfo,
        /// Capacity of the mailbox.
        capacity: usize,
        /// Number of sends that [wait for free space](crate::Address::send_wait) in the mailbox.
        waiting_senders: usize,
    },
    /// A mailbox that held at least 1,000 messages at the previous explanation, and holds more messages now. Between
    /// the two explanations, the process has not taken out the oldest message. At most 16 mailboxes are listed, the
    /// longest mailboxes first. A mailbox that has reached its capacity is a [`FullMailbox`](Self::FullMailbox)
    /// instead.
    ///
    /// The previous explanation is the last call of [`Host::explain`](crate::Host::explain) on any host of the runtime.
    /// If a console requests an explanation, the request also counts as a call of `explain`. The first explanation of a
    /// runtime has no finding of this type. At most 1,024 mailboxes are compared.
    ///
    /// If the process may have taken out the oldest message, the mailbox is not listed. For example, a receiver may
    /// have put back messages that the receiver had taken out and not read. After this, the runtime does not know
    /// whether the process has taken out the oldest message.
    GrowingMailbox {
        /// Process that owns the mailbox.
        process: ProcessInfo,
        /// Number of messages that were added since the previous explanation. At least 1.
        grown_by: usize,
        /// Time of the previous explanation.
        since: Instant,
        /// Time from `since` to this explanation.
        lasts: Duration,
    },
    /// A long mailbox: it holds at least 1,000 messages, has never been longer, and has not reached its capacity. The
    /// explanation has no proof that the mailbox grows. For example, there was no earlier explanation, the length has
    /// not increased, or the process may have taken messages out. At most 16 mailboxes are listed, the longest
    /// mailboxes first.
    LongMailbox {
        /// Process that owns the mailbox.
        process: ProcessInfo,
    },
    /// Processes that were [suspended](crate::Host::suspend) and not resumed.
    Suspended {
        /// Number of suspended processes. At least 1.
        count: usize,
        /// List of at most 20 suspended processes.
        processes: Vec<ProcessInfo>,
    },
    /// The runtime shuts down, and cancelled processes wait and do not exit.
    IgnoredCancellation {
        /// Time at which the shutdown kills the processes. `None` if the shutdown has no deadline.
        deadline: Option<Instant>,
        /// Number of cancelled processes that wait.
        count: usize,
        /// List of at most 20 cancelled processes that wait.
        processes: Vec<ProcessDetails>,
    },
    /// All processes wait, and nothing inside the runtime can make a process run. No process is runnable, no timer is
    /// set, and each command has its answer. The blocking pool has no job, no future without a pid is pending, and no
    /// socket is open.
    ///
    /// Only an event from outside the runtime can make a process run: a thread that sends a message, or a thread that
    /// wakes a future of another crate. If no thread outside the runtime sends a message or wakes a future, no process
    /// can ever run again. In a [`Simulation`](crate::Simulation), only the future that the simulation runs can make a
    /// process run.
    ///
    /// The finding is not an error if the processes wait for the next request from a thread of the program.
    NothingOutstanding {
        /// Number of processes that wait. At least 1.
        count: usize,
        /// List of at most 20 waiting processes, with the events that the processes wait for.
        processes: Vec<ProcessDetails>,
    },
}

/// Prints `count` and the noun, with an `s` if the count is not 1.
fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Prints the pid, the name and the type of a process.
struct Named<'a>(&'a ProcessInfo);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.0.pid)?;
        if let Some(name) = &self.0.name {
            write!(f, "{name:?} ")?;
        }
        f.write_str(self.0.type_name)
    }
}

/// Prints one line for each process, with the events that the process waits for.
struct Waiting<'a> {
    processes: &'a [ProcessDetails],
    count: usize,
}

impl fmt::Display for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ProcessDetails { info, waits_for, .. } in self.processes {
            write!(f, "\n  {} waits for ", Named(info))?;
            let events: Vec<String> = waits_for.iter().map(WaitsFor::to_string).collect();
            f.write_str(if events.is_empty() { "an event that the runtime does not know" } else { "" })?;
            f.write_str(&events.join(", or for "))?;
        }
        write_omitted(f, self.count, self.processes.len())
    }
}

/// Prints how many of the `count` processes were not listed.
fn write_omitted(f: &mut fmt::Formatter<'_>, count: usize, listed: usize) -> fmt::Result {
    match count.saturating_sub(listed) {
        0 => Ok(()),
        more => write!(f, "\n  and {more} more"),
    }
}

/// Prints `count` and a text, and then one line for each listed process. `one` is the text for one process, and `many`
/// is the text for several processes.
fn write_listed(
    f: &mut fmt::Formatter<'_>,
    count: usize,
    processes: &[ProcessInfo],
    [one, many]: [&str; 2],
) -> fmt::Result {
    match count {
        1 => write!(f, "1 process {one}:")?,
        _ => write!(f, "{count} processes {many}:")?,
    }
    processes.iter().try_for_each(|process| write!(f, "\n  {process}"))?;
    write_omitted(f, count, processes.len())
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThread { processes } => {
                match processes {
                    1 => f.write_str("1 process is alive, but no thread runs it")?,
                    _ => write!(f, "{processes} processes are alive, but no thread runs them")?,
                }
                f.write_str(": there is no worker, and no thread is in `run` or `block_on`")?;
            }
            Self::LocalSetWithoutThread { count, processes } => {
                let one = "of a `LocalSet` is ready, but no thread runs it";
                let many = "of a `LocalSet` are ready, but no thread runs them";
                write_listed(f, *count, processes, [one, many])?;
            }
            Self::Deadlock(deadlock) => write!(f, "{deadlock}")?,
            Self::BlockedWorker { worker, process, lasts, is_replaced, checks_yield, waits_in_block_on, .. } => {
                match process {
                    Some(process) => write!(f, "the process {} has run one step", Named(process))?,
                    None => f.write_str("a future without a pid has run one step")?,
                }
                let others = if *is_replaced { "other threads run" } else { "no replacement thread runs" };
                write!(f, " on worker {worker} for {lasts:?}; {others} its queued tasks")?;
                f.write_str(match waits_in_block_on {
                    true => "\n  the step waits in `Runtime::block_on`",
                    false => reaction(*checks_yield),
                })?;
            }
            Self::BusyBlockingPool { threads, queue_depth, queue_capacity } => {
                let (threads, jobs) = (plural(*threads, "thread"), plural(*queue_depth, "job"));
                write!(f, "each of the {threads} of the blocking pool runs a job, and {jobs} ")?;
                f.write_str(if *queue_depth == 1 { "waits" } else { "wait" })?;
                let is_full = queue_depth >= queue_capacity;
                f.write_str(if is_full { "; the queue is full, so further jobs are refused" } else { "" })?;
            }
            Self::UnansweredCommands { commands: CommandCount { command, count, handler, .. }, lasts, .. } => {
                let (commands, have) = (plural(*count, "command"), if *count == 1 { "has" } else { "have" });
                write!(f, "{commands} {command} {have} no answer yet")?;
                let subject = if *count == 1 { "it was performed" } else { "the oldest was performed" };
                lasts.map_or(Ok(()), |lasts| write!(f, "; {subject} at least {lasts:?} ago"))?;
                handler.map_or(Ok(()), |handler| write!(f, "\n  handler: {handler}"))?;
            }
            Self::FullMailbox { process, capacity, waiting_senders } => {
                write!(f, "the mailbox of {} is full with {}", Named(process), plural(*capacity, "message"))?;
                write!(f, ", and {} for room; {}", waits(*waiting_senders), Receiving(process))?;
            }
            Self::GrowingMailbox { process, grown_by, lasts, .. } => {
                write!(f, "the mailbox of {} grew by {}", Named(process), plural(*grown_by, "message"))?;
                write!(f, " in {lasts:?} and holds {}, and the ", plural(process.mailbox_len, "message"))?;
                write!(f, "oldest message was not taken out; {}", Receiving(process))?;
            }
            Self::LongMailbox { process } => {
                write!(f, "the mailbox of {} holds {}", Named(process), plural(process.mailbox_len, "message"))?;
                write!(f, " and has never been longer; {}", Receiving(process))?;
            }
            Self::Suspended { count, processes } => {
                write_listed(f, *count, processes, ["is suspended", "are suspended"])?;
            }
            Self::IgnoredCancellation { count, processes, .. } => {
                let (subject, verb) = if *count == 1 { ("process", "waits") } else { ("processes", "wait") };
                write!(f, "the runtime shuts down, and {count} cancelled {subject} {verb} and did not exit:")?;
                write!(f, "{}", Waiting { processes, count: *count })?;
            }
            Self::NothingOutstanding { count, processes } => {
                let waiting = if *count == 1 { "1 process waits".into() } else { format!("{count} processes wait") };
                write!(f, "nothing is outstanding: {waiting}, and no timer, command, blocking job or socket of the ")?;
                write!(f, "runtime can make a process run:{}", Waiting { processes, count: *count })?;
            }
        }
        write!(f, "\nwhat to do: {}", self.advice())
    }
}

/// Returns a line break, and a line about the reaction of a long step to the request to yield.
fn reaction(checks_yield: Option<bool>) -> &'static str {
    match checks_yield {
        Some(true) => "\n  the step checks `should_yield`, but does not end",
        Some(false) => "\n  the step was asked to yield, but does not check `should_yield`",
        None => "",
    }
}

/// Returns a text with the number of waiting sends and the verb, for example `2 sends wait`.
fn waits(senders: usize) -> String {
    format!("{} {}", plural(senders, "send"), if senders == 1 { "waits" } else { "wait" })
}

/// Prints the state of the process that owns a mailbox. If the state is `Blocked` or `Idle`, also prints "and does not
/// receive".
struct Receiving<'a>(&'a ProcessInfo);

impl fmt::Display for Receiving<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.state {
            Some(state @ (ProcessState::Blocked | ProcessState::Idle)) => {
                write!(f, "the process is {state:?} and does not receive")
            }
            Some(state) => write!(f, "the process is {state:?}"),
            None => f.write_str("the process is new"),
        }
    }
}

impl Finding {
    /// Returns the remedy for this finding.
    fn advice(&self) -> &'static str {
        match self {
            Self::NoThread { .. } => "poll `Runtime::run`, call `Runtime::block_on`, or set `Builder::workers`",
            Self::LocalSetWithoutThread { .. } => "poll `LocalSet::run`, or call `LocalSet::block_on`",
            Self::Deadlock(_) => {
                "set a time limit with `Call::timeout`, or let one of the processes answer with a message"
            }
            Self::BlockedWorker { waits_in_block_on: true, .. } => {
                "await the future in the body, instead of passing it to `Runtime::block_on`"
            }
            Self::BlockedWorker { checks_yield: Some(true), .. } => {
                "if `should_yield` returns true, end the step: await `yield_now`, or return `Next::Again`"
            }
            Self::BlockedWorker { is_replaced: true, .. } => {
                "move blocking calls to `spawn_blocking`, and call `should_yield` in long computations"
            }
            Self::BlockedWorker { .. } => {
                "move blocking calls to `spawn_blocking`, or raise `Builder::max_replacement_threads`"
            }
            Self::BusyBlockingPool { .. } => "make the jobs shorter, or raise `Builder::max_blocking_threads`",
            Self::UnansweredCommands { .. } => {
                "if the number stays, look for a handler that keeps the `Completion`, or set `Perform::timeout`"
            }
            Self::FullMailbox { process, .. }
            | Self::GrowingMailbox { process, .. }
            | Self::LongMailbox { process } => match process.state {
                Some(ProcessState::Blocked | ProcessState::Idle) => {
                    "read `Host::process_details` of the process to see what it waits for"
                }
                Some(ProcessState::Suspended) => "resume the process with `Host::resume`",
                _ => "if this lasts, make the senders slower, or share the work in a `Pool`",
            },
            Self::Suspended { .. } => "resume the processes with `Host::resume`",
            Self::IgnoredCancellation { .. } => {
                "await `cancelled` or `receive` together with the other event, or set time limits"
            }
            Self::NothingOutstanding { .. } => {
                "send a message from another thread; if no thread will send, no process can ever run again"
            }
        }
    }
}

/// Processes of a runtime, by state and by the events that they wait for: see [`Explanation::activity`].
///
/// A process that waits for several kinds of events is counted for each kind. The runtime reads the processes one after
/// the other while they run, so the counts of two states may belong to different moments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Activity {
    /// Number of processes.
    pub processes: usize,
    /// The processes that a thread runs now.
    pub running: Vec<ProcessInfo>,
    /// Number of processes that wait for a worker. The number includes new processes, which have not been queued yet.
    pub ready: usize,
    /// Number of suspended processes.
    pub suspended: usize,
    /// Number of processes that wait for an event.
    pub waiting: usize,
    /// Number of processes that wait for a message.
    pub for_message: usize,
    /// Number of processes that wait for an answer to a command. For a hand-written process, the end of a sleep is also
    /// an answer to a command.
    pub for_command: usize,
    /// Number of processes that wait for an answer to a call.
    pub for_call: usize,
    /// Number of async bodies that wait for the end of a sleep.
    pub for_sleep: usize,
    /// Number of async bodies that wait for free space in the mailbox of another process.
    pub for_room: usize,
    /// Number of async bodies that wait for the start or the exit of another process.
    pub for_process: usize,
    /// Number of async bodies that wait for the result of a closure on the
    /// [blocking pool](crate::Host::spawn_blocking).
    pub for_blocking: usize,
    /// Number of processes that wait until a socket, or another descriptor, becomes ready: see
    /// [`WaitsFor::Socket`](crate::observe::WaitsFor::Socket).
    pub for_socket: usize,
    /// Number of processes that wait only for events that the runtime does not know, for example for a future of
    /// another crate.
    pub for_unknown: usize,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, running, ready, waiting, suspended, .. } = self;
        let noun = if *processes == 1 { "process" } else { "processes" };
        write!(f, "{processes} {noun}: {} running, {ready} ready, {waiting} waiting", running.len())?;
        let kinds = [
            ("a message", self.for_message),
            ("an answer to a command", self.for_command),
            ("an answer to a call", self.for_call),
            ("the end of a sleep", self.for_sleep),
            ("room in a mailbox", self.for_room),
            ("the start or the exit of a process", self.for_process),
            ("a closure on the blocking pool", self.for_blocking),
            ("a socket", self.for_socket),
            ("an event that the runtime does not know", self.for_unknown),
        ];
        let kinds: Vec<String> = kinds
            .iter()
            .filter(|(_, count)| *count != 0)
            .map(|(event, count)| format!("{count} for {event}"))
            .collect();
        if !kinds.is_empty() {
            write!(f, " ({})", kinds.join(", "))?;
        }
        if *suspended != 0 {
            write!(f, ", {suspended} suspended")?;
        }
        running.iter().try_for_each(|process| write!(f, "\nrunning: {process}"))
    }
}
