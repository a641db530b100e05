//! The last messages of a process, and the options that turn on their recording.
//!
//! The host records each message and each other event when the mailbox or the table of commands accepts the message or
//! the event. This module stores the records in a ring of a fixed size. A record contains no value of user code.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::observe::trace::flight::FlightRecorder;
use crate::platform::clock::Instant;
use crate::platform::sync::Lock;
use crate::process::event::Signal;
use crate::process::pid::Pid;

/// Default number of records for each process.
const DEFAULT: usize = 8;

/// Maximum number of records for each process.
const MOST: usize = 1024;

/// Maximum number of counts for each process.
const MAX_COUNTS: usize = 16;

/// Options of the inspection: see [`Builder::inspect`](crate::Builder::inspect). All these options are off by default.
///
/// With these options, the runtime records the last messages of each process. A message is recorded when the mailbox
/// accepts it, before the process reads it. A message is recorded even if an overflow policy drops it, because the
/// sender does not notice the drop. The runtime also records the other [kinds](MessageKind) of events. The records are
/// in [`ProcessDetails::last_messages`](crate::observe::ProcessDetails::last_messages), in each
/// [`CrashReport`](crate::CrashReport), and in each [`ExitRecord`](crate::observe::ExitRecord).
///
/// ```
/// # use procession::observe::{InspectOptions, MessageKind};
/// # use procession::{Context, Runtime};
/// let rt = Runtime::builder().workers(0).inspect(InspectOptions::new()).build()?;
/// let process = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await.map(drop));
/// process.send(7)?;
/// let details = rt.process_details(process.pid()).expect("the process has not run");
/// assert_eq!(details.last_messages[0].kind, MessageKind::Message { type_name: "u64" });
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Costs
/// Without these options, the runtime records nothing, and a process needs no additional memory. With these options:
///
/// - At its first event, a process allocates the memory of all its records: about 1 KiB for the default of 8 records,
///   and about 49 KiB for 1,024 records. Each record takes 48 bytes.
///   [`ProcessDetails::memory`](crate::observe::ProcessDetails::memory) includes this memory. The runtime frees the
///   records together with the process. Each [`ExitRecord`](crate::observe::ExitRecord) and each
///   [`CrashReport`](crate::CrashReport) contains a copy of the list.
/// - Each message and each turn takes a slower path, as in a runtime with an [`Observer`](crate::Observer). To add a
///   record, the runtime takes a lock of the process for a few instructions.
#[derive(Debug, Clone)]
#[must_use = "the options have no effect until they are passed to a builder"]
pub struct InspectOptions {
    last_messages: usize,
    flight: Option<FlightRecorder>,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl InspectOptions {
    /// Creates options that record the last 8 messages of each process.
    pub fn new() -> Self {
        Self { last_messages: DEFAULT, flight: None }
    }

    /// Sets the number of records for each process. Default: 8. The maximum is 1,024. A larger number has the same
    /// effect as 1,024. If the number is 0, the runtime records no message and no other event, and does not count these
    /// events.
    pub fn last_messages(mut self, count: usize) -> Self {
        self.last_messages = count.min(MOST);
        self
    }

    /// Also turns on the flight recorder, as [`Builder::flight_recorder`](crate::Builder::flight_recorder) does.
    /// Default: these options do not change the flight recorder of the builder. The flight recorder and the last
    /// messages are independent. The flight recorder keeps the events of all processes, for a short period. The last
    /// messages of each process are kept, even if the process receives nothing for a long time.
    pub fn flight_recorder(mut self, recorder: FlightRecorder) -> Self {
        self.flight = Some(recorder);
        self
    }

    /// Returns two options: the number of records that are kept for each process, and the flight recorder.
    pub(crate) fn into_parts(self) -> (usize, Option<FlightRecorder>) {
        (self.last_messages, self.flight)
    }
}

/// Kind of an event that a process accepted: see [`InspectOptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MessageKind {
    /// A message. A call is also a message: the caller sends the request to the callee.
    Message {
        /// Name of the process's message type.
        type_name: &'static str,
    },
    /// The answer to a command. For a hand-written process, the ends of its calls and sleeps are also answers, with a
    /// command type [`BuiltinCommand`](crate::BuiltinCommand). If an async body makes a call, the reply to this call is
    /// not recorded.
    Answer {
        /// Name of the type of the command. All commands that are identified by a name have the type
        /// [`NamedCommand`](crate::NamedCommand).
        command: &'static str,
    },
    /// A notice of a stream: the stream has an item that the process has requested, or the stream has ended.
    StreamNotice,
    /// A request to exit.
    Cancel,
    /// The exit of a monitored process.
    Down,
    /// The exit of a linked process. The process traps exits.
    Exit,
    /// A process has joined a monitored group.
    Joined,
    /// A process has left a monitored group.
    Left,
    /// All events of the remaining kinds. This kind occurs only in [`MessageCount`].
    Other,
}

impl MessageKind {
    /// Returns the kind of a signal, and the process that the signal is about. Returns `None` for an answer, because
    /// the answer is recorded when the command is completed.
    pub(crate) fn of(signal: &Signal) -> Option<(Self, Option<Pid>)> {
        Some(match signal {
            Signal::Completed(_) => return None,
            Signal::Notice(_) => (Self::StreamNotice, None),
            Signal::Cancel { .. } => (Self::Cancel, None),
            Signal::Down { pid, .. } => (Self::Down, Some(*pid)),
            Signal::Exit { from, .. } => (Self::Exit, Some(*from)),
            Signal::Joined { pid, .. } => (Self::Joined, Some(*pid)),
            Signal::Left { pid, .. } => (Self::Left, Some(*pid)),
        })
    }

    /// Returns the name of the variant.
    #[cfg(feature = "serde")]
    fn name(self) -> &'static str {
        match self {
            Self::Message { .. } => "Message",
            Self::Answer { .. } => "Answer",
            Self::StreamNotice => "StreamNotice",
            Self::Cancel => "Cancel",
            Self::Down => "Down",
            Self::Exit => "Exit",
            Self::Joined => "Joined",
            Self::Left => "Left",
            Self::Other => "Other",
        }
    }

    /// Returns the type of the message or of the command.
    pub fn type_name(self) -> Option<&'static str> {
        match self {
            Self::Message { type_name } | Self::Answer { command: type_name } => Some(type_name),
            _ => None,
        }
    }
}

/// Prints the kind, for example `message app::Msg` or `answer to app::Fetch`.
impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { type_name } => write!(f, "message {type_name}"),
            Self::Answer { command } => write!(f, "answer to {command}"),
            Self::StreamNotice => f.write_str("notice of a stream"),
            Self::Cancel => f.write_str("cancellation"),
            Self::Down => f.write_str("exit of a monitored process"),
            Self::Exit => f.write_str("exit of a linked process"),
            Self::Joined => f.write_str("join of a group"),
            Self::Left => f.write_str("leave of a group"),
            Self::Other => f.write_str("other events"),
        }
    }
}

/// Record of a message, or of another event, that a process accepted: see [`InspectOptions`].
///
/// `Display` prints the record as one line:
///
/// ```text
/// message app::Msg from <0.0.7> (12.5s after the start)
/// ```
///
/// With the feature `serde`, a record implements `Serialize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastMessage {
    /// Kind of the event.
    pub kind: MessageKind,
    /// For a message: the process whose step sent the message. For an exit, a join or a leave: the process that exited,
    /// joined or left. `None` if the runtime does not know the process. For example, a thread outside the processes has
    /// sent the message, a timer has sent the message, or the sender had waited for free space in the mailbox. Always
    /// `None` for an answer, a notice of a stream, and a cancellation.
    pub from: Option<Pid>,
    /// Time at which the mailbox accepted the event. A worker does not read the clock for a record. Therefore this time
    /// has the same error as [`ProcessInfo::waiting_since`](crate::observe::ProcessInfo::waiting_since): the time may
    /// be too early, usually by less than half of the [long step threshold](crate::Builder::long_step_threshold). A
    /// thread that is not a worker reads the clock. In a [`Simulation`](crate::Simulation), the time is exact.
    pub at: Instant,
}

impl fmt::Display for LastMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at.ns());
        match (self.kind, self.from) {
            (kind @ (MessageKind::Message { .. } | MessageKind::Answer { .. }), Some(from)) => {
                write!(f, "{kind} from {from}")?;
            }
            (kind, Some(from)) => write!(f, "{kind}: {from}")?,
            (kind, None) => write!(f, "{kind}")?,
        }
        write!(f, " ({at:?} after the start)")
    }
}

/// For one kind of event, the number of events that a process accepted: see
/// [`ProcessDetails::message_counts`](crate::observe::ProcessDetails::message_counts).
///
/// With the feature `serde`, a count implements `Serialize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageCount {
    /// Kind of the events.
    pub kind: MessageKind,
    /// Number of events since the start of the process. At least 1.
    pub count: u64,
}

/// The last messages of one process.
#[derive(Debug)]
pub(crate) struct MessageLog(Lock<Records>);

#[derive(Debug)]
struct Records {
    /// The last records, oldest first. `new` allocates the memory for all records, so that `add` allocates no memory
    /// for records. A caller of `add` may hold the lock of a mailbox.
    last: VecDeque<LastMessage>,
    capacity: usize,
    /// Counts by kind, in the order of the first event of each kind. The last count may have the kind `Other`.
    counts: Vec<MessageCount>,
}

impl MessageLog {
    /// Creates an empty log for `capacity` records. `capacity` must be at least 1.
    pub(crate) fn new(capacity: usize) -> Self {
        Self(Lock::new(Records {
            last: VecDeque::with_capacity(capacity),
            capacity,
            counts: Vec::with_capacity(MAX_COUNTS / 4),
        }))
    }

    /// Adds a record. If the log is full, this function drops the oldest record.
    pub(crate) fn add(&self, record: LastMessage) {
        let mut records = self.0.lock();
        if records.last.len() >= records.capacity {
            records.last.pop_front();
        }
        records.last.push_back(record);
        records.count(record.kind);
    }

    /// Returns the records, oldest first, and the counts, largest first.
    pub(crate) fn read(&self) -> (Vec<LastMessage>, Vec<MessageCount>) {
        let (last, mut counts) = {
            let records = self.0.lock();
            (records.last.iter().copied().collect(), records.counts.clone())
        };
        counts.sort_by_key(|count| std::cmp::Reverse(count.count));
        (last, counts)
    }

    /// Returns the records, oldest first.
    pub(crate) fn last(&self) -> Vec<LastMessage> {
        self.0.lock().last.iter().copied().collect()
    }

    /// Returns the memory of the log in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.0.lock();
        size_of::<Self>()
            + records.last.capacity() * size_of::<LastMessage>()
            + records.counts.capacity() * size_of::<MessageCount>()
    }
}

impl Records {
    fn count(&mut self, kind: MessageKind) {
        let found = self.counts.iter().position(|one| one.kind == kind);
        // The last count is for all remaining kinds.
        let at = found.or_else(|| self.counts.len().checked_sub(MAX_COUNTS).map(|_| MAX_COUNTS - 1));
        match at {
            Some(at) => self.counts[at].count += 1,
            None => {
                let kind = if self.counts.len() == MAX_COUNTS - 1 { MessageKind::Other } else { kind };
                self.counts.push(MessageCount { kind, count: 1 });
            }
        }
    }
}

#[cfg(feature = "serde")]
mod serialize {
    use serde::ser::{Serialize, SerializeStruct, Serializer};

    use super::{LastMessage, MessageCount};

    /// Writes a struct with the fields `kind` (the name of the variant), `type_name` (the type of the message or of the
    /// command, or null), `from`, and `at_ns` (in nanoseconds since the start of the runtime).
    impl Serialize for LastMessage {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut row = serializer.serialize_struct("LastMessage", 4)?;
            row.serialize_field("kind", self.kind.name())?;
            row.serialize_field("type_name", &self.kind.type_name())?;
            row.serialize_field("from", &self.from)?;
            row.serialize_field("at_ns", &self.at.ns())?;
            row.end()
        }
    }

    /// Writes a struct with the fields `kind` (the name of the variant), `type_name` (the type of the message or of the
    /// command, or null), and `count`.
    impl Serialize for MessageCount {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut row = serializer.serialize_struct("MessageCount", 3)?;
            row.serialize_field("kind", self.kind.name())?;
            row.serialize_field("type_name", &self.kind.type_name())?;
            row.serialize_field("count", &self.count)?;
            row.end()
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_last_records_and_at_most_16_counts() {
        let log = MessageLog::new(2);
        let bytes = log.bytes();
        let names: Vec<&'static str> = (0..20).map(|number| &*format!("command {number}").leak()).collect();
        for (at, command) in names.iter().enumerate() {
            log.add(LastMessage { kind: MessageKind::Answer { command }, from: None, at: Instant::from_ns(at as u64) });
        }
        log.add(LastMessage { kind: MessageKind::Cancel, from: None, at: Instant::from_ns(20) });
        log.add(LastMessage { kind: MessageKind::Answer { command: names[3] }, from: None, at: Instant::from_ns(21) });
        let (last, counts) = log.read();
        assert_eq!(last, log.last());
        assert_eq!(last.iter().map(|one| one.at.ns()).collect::<Vec<_>>(), [20, 21]);
        assert_eq!(counts.len(), MAX_COUNTS);
        // 15 kinds have their own count. The other 5 commands and the cancellation share a count.
        assert_eq!(counts[0], MessageCount { kind: MessageKind::Other, count: 6 });
        assert_eq!(counts[1], MessageCount { kind: MessageKind::Answer { command: names[3] }, count: 2 });
        assert_eq!(counts.iter().map(|count| count.count).sum::<u64>(), 22);
        // The list of counts grows up to its maximum length. The records need no further memory.
        assert!(log.bytes() <= bytes + MAX_COUNTS * size_of::<MessageCount>());
    }

    /// The documentation of `InspectOptions` states this size.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_record_takes_48_bytes() {
        assert_eq!(size_of::<LastMessage>(), 48);
    }
}
