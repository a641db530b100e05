//! Data of the inspection: rows about processes, the query that selects rows, and the details of one process.
//!
//! The host reads the state of the processes and fills in this data. This module only filters, orders and prints the
//! data.

pub(crate) mod increases;
pub(crate) mod last_messages;
pub(crate) mod ranking;
pub(crate) mod registered;
#[cfg(feature = "serde")]
mod serialize;
pub(crate) mod wait_graph;

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::observe::inspection::last_messages::{LastMessage, MessageCount};
use crate::observe::states::ProcessState;
use crate::platform::clock::Instant;
use crate::process::pid::Pid;
use crate::process::state::priority::Priority;

/// Row about one process: see [`Host::processes`](crate::Host::processes).
///
/// The runtime reads the fields one after the other, and the process may run in the meantime. Therefore, two fields of
/// a row may belong to different moments. For example, a row may contain the state `Idle` and a message that arrived
/// after the state was read. The fields `mailbox_len`, `signals` and `mailbox_peak` belong to one moment. The fields
/// `links`, `monitors` and `monitored_by` also belong to one moment. If the process waits, and no other thread acts on
/// the process, the row is exact.
///
/// `Display` prints the row as one line:
///
/// ```text
/// <0.0.1> "cache" app::Cache: Blocked, mailbox 3 (peak 10), yields 2, waits 1, links 1
/// ```
///
/// The line always contains `mailbox_len` and `mailbox_peak`. The line contains another count only if this count is not
/// zero. If the process [checks for requests to yield](Self::checks_yield), the line contains `checks should_yield`.
/// The line contains neither a time, nor the steps, nor the last worker.
///
/// With the feature `serde`, a row implements `Serialize`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Pid of the process.
    pub pid: Pid,
    /// Registered name of the process. If the process has several names, this field is the name that the process
    /// registered first.
    pub name: Option<Cow<'static, str>>,
    /// Type name of the process's code: the [`Process`](crate::Process) type, or the type of an async body's function
    /// or closure. An upgrade of the process does not change this name.
    pub type_name: &'static str,
    /// Parent: the process that spawned this process. `None` if code outside the processes of this runtime spawned this
    /// process. The parent may have exited.
    pub parent: Option<Pid>,
    /// State of the process. `None` if the process is new, that is, if it has not been queued yet.
    pub state: Option<ProcessState>,
    /// Time at which the process entered its present state `Blocked`, `Idle` or `Suspended`. `None` in all other
    /// states.
    ///
    /// At the end of a step, the runtime does not read the clock. Instead, the runtime records a time that the
    /// scheduler has read recently. Therefore the field may be too early, but is never too late. While workers run
    /// steps, the scheduler reads the clock twice per [long step threshold](crate::Builder::long_step_threshold), but
    /// at most once per millisecond. A worker also reads the clock when it wakes up. With a threshold of
    /// `Duration::MAX`, only the workers read the clock: when they park or wake up, when they check timers, and for one
    /// turn in 64. In a [`Simulation`](crate::Simulation), the field is exact.
    ///
    /// Each event that makes the process runnable ends the wait. If the process then waits for the same answer again, a
    /// new wait begins.
    pub waiting_since: Option<Instant>,
    /// Priority of the process.
    pub priority: Priority,
    /// Number of messages in the mailbox. A process may take several messages out of the mailbox together, and then
    /// read the messages one by one. The number includes neither the messages that the process has taken out, nor the
    /// messages of senders that wait for free space in a full mailbox.
    pub mailbox_len: usize,
    /// Number of events in the mailbox, for example exits and answers to yields. Messages are not counted.
    pub signals: usize,
    /// Largest number of messages in the mailbox so far: see
    /// [`Address::peak_mailbox_len`](crate::Address::peak_mailbox_len).
    pub mailbox_peak: usize,
    /// Since this time, the mailbox has not been empty, and the process has not taken out the oldest message. So the
    /// oldest message arrived at this time or earlier. This time has the same error as
    /// [`waiting_since`](Self::waiting_since): the time may be too early.
    ///
    /// `None` if the mailbox is empty, or if this time is not known. The runtime does not always record the time of an
    /// arrival at an empty mailbox. If the process takes no message and a second message arrives, the runtime records
    /// the time of the second arrival. The runtime does not record the time of the second arrival in two cases: a
    /// receiver has put messages back into the mailbox, or the mailbox is full and senders wait for free space. As in
    /// [`mailbox_len`](Self::mailbox_len), the messages that the process has taken out are not included.
    pub unread_since: Option<Instant>,
    /// Number of yields (commands) without an answer. The calls and sleeps of a hand-written process are also yields.
    /// While the process runs, the commands of its present turn may be missing from this number.
    pub yields: usize,
    /// Number of unfinished calls and sleeps of an async body. A future of another crate is not counted.
    pub waits: usize,
    /// Number of linked processes.
    pub links: usize,
    /// Number of monitors that the process has set on other processes. The number includes each monitor until the
    /// process reads the `Down` event or removes the monitor.
    pub monitors: usize,
    /// Number of monitors that other processes have set on this process. If the parent set a monitor at the spawn of
    /// this process, this monitor is not counted.
    pub monitored_by: usize,
    /// Number of steps that have ended so far. For an async body, each poll is a step. After an
    /// [upgrade](crate::Context::upgrade), the number includes the steps of the earlier body and of the new body.
    pub steps: u64,
    /// Number of the worker that ran the last ended step. An [`Observer`](crate::Observer) receives the same number for
    /// this worker. A thread inside [`Runtime::block_on`](crate::Runtime::block_on) or
    /// [`Runtime::run`](crate::Runtime::run) also has a number. `None` if the process has run no step, or if the thread
    /// of the last step had no number. In a [`Simulation`](crate::Simulation), the number is 0.
    pub last_worker: Option<usize>,
    /// Whether the process checks for requests to yield. The value is true if the process has called
    /// [`should_yield`](crate::should_yield), or has polled a future of [`cooperative`](crate::cooperative()), in at
    /// least one of its last 64 ended steps. The field does not say that the process yields. For a step in progress,
    /// see the field `checks_yield` of [`Finding::BlockedWorker`](crate::observe::Finding::BlockedWorker). That field
    /// also counts all other futures that use the [budget](crate::should_yield) of a turn.
    ///
    /// The runtime asks a process in a [long step](crate::Builder::long_step_threshold) to let other processes run. If
    /// this field is false, the code of the process probably does not notice the request. A process that runs only
    /// short steps does not need to check for requests. The other futures that use the budget also react to a request,
    /// but this field does not count these futures.
    pub checks_yield: bool,
    /// True if the exit of the process was requested, for example by [`Host::cancel`](crate::Host::cancel), and the
    /// process has not exited yet.
    pub is_cancelled: bool,
    /// True if the process was killed and has not exited yet.
    pub is_killed: bool,
}

impl fmt::Display for ProcessInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.pid)?;
        if let Some(name) = &self.name {
            write!(f, "{name:?} ")?;
        }
        match self.state {
            Some(state) => write!(f, "{}: {state:?}", self.type_name)?,
            None => write!(f, "{}: New", self.type_name)?,
        }
        write!(f, ", mailbox {} (peak {})", self.mailbox_len, self.mailbox_peak)?;
        let counts = [
            ("signals", self.signals),
            ("yields", self.yields),
            ("waits", self.waits),
            ("links", self.links),
            ("monitors", self.monitors),
            ("monitored by", self.monitored_by),
        ];
        counts.iter().filter(|(_, count)| *count != 0).try_for_each(|(name, count)| write!(f, ", {name} {count}"))?;
        if self.priority != Priority::Normal {
            write!(f, ", priority {:?}", self.priority)?;
        }
        f.write_str(if self.checks_yield { ", checks should_yield" } else { "" })?;
        f.write_str(if self.is_cancelled { ", cancelled" } else { "" })?;
        f.write_str(if self.is_killed { ", killed" } else { "" })
    }
}

/// Details of one process: see [`Host::process_details`](crate::Host::process_details).
///
/// The runtime reads each list at a different moment, and reads a long list in pieces. If the process adds or removes
/// an entry during the read, the list may or may not contain this entry. The length of a list may also differ from the
/// count in `info`. If the process waits, and no other thread acts on the process, the details are exact.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessDetails {
    /// Row of the process.
    pub info: ProcessInfo,
    /// Supervisor of the process, or the pool of which the process is a member. `None` if the process has no supervisor
    /// and is not a member of a pool.
    pub supervisor: Option<Pid>,
    /// Names of the process. The name that was registered first comes first.
    pub names: Vec<Cow<'static, str>>,
    /// Groups that the process is a member of, in alphabetical order.
    pub groups: Vec<Cow<'static, str>>,
    /// Linked processes, in ascending order.
    pub links: Vec<Pid>,
    /// Processes that this process monitors, in ascending order. If this process monitors another process several
    /// times, the list contains the other process several times. The list does not contain a child if the spawn of the
    /// child has set the monitor. The list also does not contain a process whose `Down` event was already delivered.
    pub monitors: Vec<Pid>,
    /// Processes that monitor this process, in ascending order. The list does not contain a monitor that was set by the
    /// spawn of this process.
    pub monitored_by: Vec<Pid>,
    /// Process that awaits the [`JoinHandle`](crate::JoinHandle) of this process. If several processes have polled the
    /// handle, this field is the process that polled the handle last. `None` if no process awaits the handle, or if
    /// code outside the processes has made the most recent poll of the handle.
    pub joined_by: Option<Pid>,
    /// Yields without an answer, by command type, in the order of the type names.
    pub yields: Vec<CommandCount>,
    /// Deadlines of the timers that belong to the process and have not fired, earliest first. A timer of the process
    /// sends a message, for example for [`send_after`](crate::SelfHandle::send_after), or kills the process after a
    /// cancel request. The list also contains the [deadline](crate::ProcessBuilder::deadline) of the process. A sleep
    /// of an async body is not in the list.
    pub timers: Vec<Instant>,
    /// Deadline of the process, which the process may have [inherited](crate::InheritedContext::deadline).
    pub deadline: Option<Instant>,
    /// Type names of the values that the process has [inherited](crate::InheritedContext::value).
    pub inherited_values: Vec<&'static str>,
    /// Events that the process waits for. The list contains only events that the runtime knows. For example, the list
    /// does not contain a future of another crate. Each event of the list makes the process ready, except the answer to
    /// a [started](crate::future::Call::start) call that was never polled. If the state of the process is not
    /// `Blocked`, `Idle` or `Suspended`, the list is empty. There is one exception: a step may wait in
    /// [`Runtime::block_on`](crate::Runtime::block_on) for a future. If this future waits for other processes, the list
    /// contains these waits. If the process is `Suspended`, some of its waits may have ended.
    ///
    /// If the answer to a call has arrived, the call stays in the list until the process polls or drops the future of
    /// the call.
    ///
    /// After the process has polled a join handle, the list contains the exit until the handle resolves or is dropped,
    /// or until another process polls the handle.
    pub waits_for: Vec<WaitsFor>,
    /// Time at which the process became ready. Only one wake-up in 64 is measured. With
    /// [`Builder::sample_every_step`](crate::Builder::sample_every_step), each wake-up is measured. `None` if the last
    /// wake-up was not measured, or if the process is not in the state `Ready`.
    pub ready_since: Option<Instant>,
    /// Step that a worker runs now. `None` if the process does not run. Always `None` in a
    /// [`Simulation`](crate::Simulation). Also always `None` for a process of a [`LocalSet`](crate::LocalSet): for the
    /// runtime, such a process is part of the future that a guest thread polls.
    pub step: Option<RunningStep>,
    /// Total running time of the steps so far, without the present step. [`Limits::time`](crate::Limits::time) explains
    /// which work is included in this time. The runtime measures this time only if the running time of the process is
    /// limited. Otherwise this field is `None`.
    pub run_time: Option<Duration>,
    /// The last messages and other events that the process accepted, oldest first. The list is empty if
    /// [`Builder::inspect`](crate::Builder::inspect) was not called, or if the [number of
    /// records](crate::observe::InspectOptions::last_messages) is 0. The list also contains messages that the process
    /// has not read yet.
    pub last_messages: Vec<LastMessage>,
    /// Number of messages and other events that the process accepted, by kind, largest number first. The list is empty
    /// under the same conditions as `last_messages`. The list has at most 16 entries: if a process accepts events of
    /// more kinds, the last kinds share the entry [`MessageKind::Other`]. The fields `last_messages` and
    /// `message_counts` belong to one moment.
    ///
    /// [`MessageKind::Other`]: crate::observe::MessageKind::Other
    pub message_counts: Vec<MessageCount>,
    /// Memory of the process in bytes. The number includes the control block with the future or the state of the
    /// process, the rarely used parts of the control block, the queue of the mailbox, the table of outstanding
    /// commands, and the records of the last messages.
    ///
    /// After a burst of commands, the table frees its memory, except 8 bytes for each of the first 524,280 commands
    /// that were outstanding at the same time. The process keeps this remaining memory until its end.
    ///
    /// The number does not include memory that the code, the messages and the commands of the process have allocated.
    /// The memory of the links, names, groups, timers and signals is not included either. The number also does not
    /// include the messages of senders that wait for free space, and the messages that the receiver has stashed or has
    /// taken out in advance. A future of more than 1 KiB is allocated separately, and is not included.
    pub memory: usize,
}

/// Step that a worker runs now: see [`ProcessDetails::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningStep {
    /// Number of the worker. An [`Observer`](crate::Observer) receives the same number for this worker.
    pub worker: usize,
    /// Time at which the monitor has first seen this step, if the step is a
    /// [long step](crate::Builder::long_step_threshold). The step began at most one threshold earlier.
    pub blocked_since: Option<Instant>,
    /// True if the runtime has asked the process to let other processes run, and the process has not reacted. The
    /// runtime asks when the step has run for at least half of the [threshold](crate::Builder::long_step_threshold) of
    /// a long step. A process reacts when it calls [`should_yield`](crate::should_yield), or polls a future that uses
    /// the budget of the turn. If a step runs for a long time and this field stays true, the step does not call
    /// `should_yield`.
    pub is_asked_to_yield: bool,
}

/// Number of outstanding yields of one command type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandCount {
    /// Name of the command type. All commands that are identified by a name have the type
    /// [`NamedCommand`](crate::NamedCommand).
    pub command: &'static str,
    /// Number of yields without an answer. At least 1.
    pub count: usize,
    /// Time of the oldest yield without an answer, among the measured yields of this command type. An older yield may
    /// exist: only one yield in 64 is measured, and at most 64 yields of one process are measured at the same time.
    /// With [`Builder::sample_every_step`](crate::Builder::sample_every_step), each yield is measured. `None` if no
    /// yield is measured.
    pub measured_since: Option<Instant>,
    /// Source line that performed one of these commands, not necessarily the oldest command. The line calls
    /// [`SelfHandle::perform`](crate::SelfHandle::perform), [`StepOutput::perform`](crate::StepOutput::perform), or a
    /// similar method. `None` if no line is known.
    pub line: Option<&'static Location<'static>>,
    /// Name of the type of the registered handler. For a closure, the name contains the name of the function that
    /// defines the closure. A [layer](crate::layer) may wrap a handler that a function of the module
    /// [`handler`](crate::handler) returned. The name then contains the types of the layer and of the command, but not
    /// the function or closure of the inner handler. If several hosts have a handler of the command type, the field
    /// names the handler of any one of these hosts. `None` for a [`NamedCommand`](crate::NamedCommand), because the
    /// name of the command, and not the type of the command, selects the handler.
    pub handler: Option<&'static str>,
}

/// Event that a process waits for.
///
/// The field `line` is the source line that created the awaited future, for example the line of `ctx.receive()`. The
/// field is `None` if the line is not known. The line of a [`JoinHandle`](crate::JoinHandle) and of a future of another
/// crate is never known. The line takes 8 bytes in each future. The line of a message takes 8 bytes in the control
/// block of the process. The source line of a socket operation is not known.
///
/// This enum has no variant for two kinds of waits: the wait of a process for its own cancellation, and the wait for
/// the end of a call, for example [`Reply::closed`](crate::Reply::closed).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitsFor {
    /// The next message or other event in the mailbox.
    Message {
        /// Source line that called `receive`, or another method that receives. `None` for a hand-written process, and
        /// for a mailbox that is polled as a `Stream`.
        line: Option<&'static Location<'static>>,
    },
    /// The answers to commands of one type.
    Command(CommandCount),
    /// The answer to a call.
    Call {
        /// Process that must answer: the process that received the request, or the last process to which
        /// [`Reply::forward`](crate::Reply::forward) has passed the [`Reply`](crate::Reply). If a process has sent the
        /// `Reply` in a plain message, the runtime does not know the receiver of this message. The runtime also does
        /// not notice if a process moves the `Reply` to a thread, to a closure of
        /// [`spawn_blocking`](crate::Host::spawn_blocking) or to a command handler. In all these cases, this field
        /// still contains the process that sent or moved the `Reply`. `None` if the process that must answer is not
        /// known, for example if this process belongs to another node or to another runtime.
        callee: Option<Pid>,
        /// Whether the call has a [time limit](crate::future::Call::timeout). A hand-written process sets the time
        /// limit with [`set_timeout`](crate::StepOutput::set_timeout).
        is_limited: bool,
        /// Source line that made the call.
        line: Option<&'static Location<'static>>,
    },
    /// The ends of sleeps of an async body. A sleep has its own entry if its timer wakes the process directly. All
    /// other sleeps that were created with the [`SelfHandle`](crate::SelfHandle) of the process have one common entry.
    /// For example, the timer of a sleep inside `FuturesUnordered` does not wake the process directly, because
    /// `FuturesUnordered` polls its futures with its own wakers.
    ///
    /// If the process directly polls a sleep of [`Host::sleep`](crate::Host::sleep), this sleep has its own entry, but
    /// is not counted as a wait of the process. Therefore the number in the common entry may be too low, and the common
    /// entry may be missing. A sleep of `Host::sleep` inside a combinator with its own wakers is not listed.
    Sleep {
        /// Number of sleeps. At least 1.
        count: usize,
        /// Time at which the timer of the sleep fires, in whole milliseconds of the runtime's clock. A process can
        /// reuse the timer of a dropped sleep for its next sleep, if the next sleep ends later. Then `until` and `line`
        /// may belong to the dropped sleep, and the present sleep ends later. `None` in the common entry.
        until: Option<Instant>,
        /// Source line that created the sleep. If the sleep reuses the timer of a dropped sleep, the line may belong to
        /// the dropped sleep. `None` in the common entry.
        line: Option<&'static Location<'static>>,
    },
    /// The process waits for free space in the mailbox of another process: see
    /// [`Address::send_wait`](crate::Address::send_wait).
    Room {
        /// Process with the full mailbox.
        receiver: Pid,
        /// Whether the send has a [time limit](crate::future::SendWait::timeout).
        is_limited: bool,
        /// Source line that made the send.
        line: Option<&'static Location<'static>>,
    },
    /// The exit of a process, through a [`JoinHandle`](crate::JoinHandle) or [`Exited`](crate::future::Exited).
    Exit {
        /// Process that must exit.
        process: Pid,
        /// Source line that called [`exited`](crate::Address::exited). `None` for a `JoinHandle`.
        line: Option<&'static Location<'static>>,
    },
    /// The start of a process, through [`JoinHandle::started`](crate::JoinHandle::started).
    Start {
        /// Process that must start.
        process: Pid,
        /// Source line that called `started`.
        line: Option<&'static Location<'static>>,
    },
    /// The result of a closure on the blocking pool: see [`Host::spawn_blocking`](crate::Host::spawn_blocking). A
    /// command whose handler runs on the blocking pool is a [`Command`](Self::Command) instead.
    Blocking {
        /// Source line that called `spawn_blocking`.
        line: Option<&'static Location<'static>>,
    },
    /// A socket of the module `net`, or another descriptor, that must become ready. If several operations of the
    /// process wait for one direction of a descriptor, the list contains only one entry for this direction.
    ///
    /// A socket operation inside a combinator with its own wakers is not listed. If a process drops an operation of the
    /// `futures::io` traits or of a `poll_` function, the direction stays listed until the descriptor is ready. When
    /// the descriptor becomes ready, the process is still woken.
    Socket {
        /// The file descriptor. On Windows, this field is the socket handle.
        descriptor: u64,
        /// Whether the operation waits until it can write to the descriptor. Otherwise, the operation waits until it
        /// can read from the descriptor, or accept a connection.
        is_write: bool,
    },
}

impl WaitsFor {
    /// Returns the process from which the event must come, for example the callee of a call. `None` if the event does
    /// not come from one known process.
    pub fn process(&self) -> Option<Pid> {
        match self {
            Self::Call { callee, .. } => *callee,
            Self::Room { receiver, .. } => Some(*receiver),
            Self::Exit { process, .. } | Self::Start { process, .. } => Some(*process),
            Self::Message { .. }
            | Self::Command(_)
            | Self::Sleep { .. }
            | Self::Blocking { .. }
            | Self::Socket { .. } => None,
        }
    }

    /// Returns the source line that created the awaited future. `None` if the line is not known.
    pub fn line(&self) -> Option<&'static Location<'static>> {
        match self {
            Self::Command(CommandCount { line, .. })
            | Self::Message { line }
            | Self::Call { line, .. }
            | Self::Sleep { line, .. }
            | Self::Room { line, .. }
            | Self::Exit { line, .. }
            | Self::Start { line, .. }
            | Self::Blocking { line } => *line,
            Self::Socket { .. } => None,
        }
    }
}

/// Prints the event, and the source line of the awaited future if the line is known, for example
/// `the answer to a call to <0.3.1> at src/shop.rs:41`.
impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { .. } => f.write_str("a message")?,
            Self::Command(CommandCount { command, count: 1, .. }) => write!(f, "the answer to a command {command}")?,
            Self::Command(CommandCount { command, count, .. }) => {
                write!(f, "the answers to {count} commands {command}")?;
            }
            Self::Sleep { count: 1, until: None, .. } => f.write_str("the end of a sleep")?,
            Self::Sleep { count: 1, until: Some(until), .. } => {
                write!(f, "the end of a sleep ({:?} after the start)", Duration::from_nanos(until.ns()))?;
            }
            Self::Sleep { count, .. } => write!(f, "the ends of {count} sleeps")?,
            Self::Exit { process, .. } => write!(f, "the exit of {process}")?,
            Self::Start { process, .. } => write!(f, "the start of {process}")?,
            Self::Call { callee, is_limited, .. } => {
                match callee {
                    Some(callee) => write!(f, "the answer to a call to {callee}")?,
                    None => f.write_str("the answer to a call")?,
                }
                f.write_str(if *is_limited { " with a time limit" } else { "" })?;
            }
            Self::Room { receiver, is_limited, .. } => {
                let limit = if *is_limited { " with a time limit" } else { "" };
                write!(f, "room in the mailbox of {receiver}{limit}")?;
            }
            Self::Blocking { .. } => f.write_str("the result of a closure on the blocking pool")?,
            Self::Socket { descriptor, is_write: false } => write!(f, "data from descriptor {descriptor}")?,
            Self::Socket { descriptor, is_write: true } => write!(f, "space to write to descriptor {descriptor}")?,
        }
        self.line().map_or(Ok(()), |line| write!(f, " at {}:{}", line.file(), line.line()))
    }
}

/// Column by which [`ProcessQuery`] orders the rows. Each column is a field of [`ProcessInfo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProcessColumn {
    /// Orders by [`ProcessInfo::pid`].
    Pid,
    /// Orders by [`ProcessInfo::name`]. A process without a name comes before all processes with a name.
    Name,
    /// Orders by [`ProcessInfo::type_name`].
    TypeName,
    /// Orders by [`ProcessInfo::state`]. The order is: new processes, `Ready`, `Running`, `Blocked`, `Idle`,
    /// `Suspended`.
    State,
    /// Orders by [`ProcessInfo::waiting_since`]. The ascending order begins with the longest wait, and ends with the
    /// processes that do not wait.
    WaitingSince,
    /// Orders by [`ProcessInfo::priority`].
    Priority,
    /// Orders by [`ProcessInfo::mailbox_len`].
    MailboxLen,
    /// Orders by [`ProcessInfo::signals`].
    Signals,
    /// Orders by [`ProcessInfo::mailbox_peak`].
    MailboxPeak,
    /// Orders by [`ProcessInfo::unread_since`]. The ascending order begins with the longest time, and ends with the
    /// processes whose time is not known.
    UnreadSince,
    /// Orders by [`ProcessInfo::yields`].
    Yields,
    /// Orders by [`ProcessInfo::waits`].
    Waits,
    /// Orders by [`ProcessInfo::links`].
    Links,
    /// Orders by [`ProcessInfo::monitors`].
    Monitors,
    /// Orders by [`ProcessInfo::monitored_by`].
    MonitoredBy,
    /// Orders by [`ProcessInfo::steps`].
    Steps,
    /// Orders by [`ProcessInfo::last_worker`]. A process without a last worker comes before all other processes.
    LastWorker,
}

/// Selects and orders the rows that [`Host::processes`](crate::Host::processes) returns. By default, a query selects
/// all processes and orders the rows by pid.
///
/// A process is selected if it satisfies all conditions of the query.
///
/// ```
/// # use procession::observe::{ProcessColumn, ProcessQuery, ProcessState};
/// // The five blocked processes with the longest mailboxes.
/// let query = ProcessQuery::new().state(ProcessState::Blocked).descending(ProcessColumn::MailboxLen).limit(5);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a query selects nothing until it is passed to `Host::processes`"]
pub struct ProcessQuery {
    state: Option<ProcessState>,
    name: Option<Cow<'static, str>>,
    type_name: Option<Cow<'static, str>>,
    min_mailbox_len: usize,
    order: Option<(ProcessColumn, bool)>,
    limit: Option<usize>,
}

impl ProcessQuery {
    /// Creates a query that selects all processes, in the order of their pids.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only processes in this state.
    pub fn state(mut self, state: ProcessState) -> Self {
        self.state = Some(state);
        self
    }

    /// Selects only processes with a name that contains this text. To find the process with an exact name, use
    /// [`Host::whereis`](crate::Host::whereis).
    pub fn name_contains(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(text.into());
        self
    }

    /// Selects only processes whose type name contains this text.
    pub fn type_contains(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.type_name = Some(text.into());
        self
    }

    /// Selects only processes with at least this number of messages in the mailbox.
    pub fn min_mailbox_len(mut self, least: usize) -> Self {
        self.min_mailbox_len = least;
        self
    }

    /// Orders the rows by a column, smallest value first. Rows with equal values are ordered by pid.
    pub fn ascending(mut self, column: ProcessColumn) -> Self {
        self.order = Some((column, false));
        self
    }

    /// Orders the rows by a column, largest value first. Rows with equal values are ordered by pid.
    pub fn descending(mut self, column: ProcessColumn) -> Self {
        self.order = Some((column, true));
        self
    }

    /// Returns at most this number of rows: the first rows in the order of the query. Default: no limit.
    pub fn limit(mut self, most: usize) -> Self {
        self.limit = Some(most);
        self
    }

    /// Returns whether the query selects a process with this state and type name.
    pub(crate) fn selects(&self, state: Option<ProcessState>, type_name: &str) -> bool {
        self.state.is_none_or(|wanted| state == Some(wanted))
            && self.type_name.as_deref().is_none_or(|text| type_name.contains(text))
    }

    /// Returns the text that a name of the process must contain.
    pub(crate) fn name_text(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the minimum number of messages in the mailbox.
    pub(crate) fn least_mailbox_len(&self) -> usize {
        self.min_mailbox_len
    }
}
