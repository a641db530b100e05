//! Parses a line into a [`ConsoleRequest`]. A line is a JSON object. Unknown fields are ignored, so that a console can
//! be newer than the server.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::behaviour::supervisor::ChildId;
use crate::observe::{ProcessColumn, ProcessQuery, ProcessState};
use crate::process::pid::Pid;
use crate::process::state::priority::Priority;

/// Maximum number of rows in a list of a reply.
pub(super) const MAX_ROWS: usize = 1_000;

/// Maximum number of processes, and of types, in a reply with run times. If this reply were too long, its data would be
/// lost, because the server has already removed the data from the table.
const MAX_RUN_TIMES: usize = 100;

/// Maximum number of rows if the request contains no limit.
const DEFAULT_ROWS: usize = 50;

/// Time that a cancelled process gets before it is killed, if the request does not contain the time.
const DEFAULT_GRACE_MS: u64 = 5_000;

/// Longest reason of a cancellation, in bytes.
const LONGEST_REASON: usize = 1_000;

/// Limits of a trace: the field, the default, and the maximum.
const TRACE_LIMITS: [(&str, u64, u64); 3] =
    [("max_events", 1_000, 100_000), ("max_rate", 1_000, 10_000), ("max_ms", 60_000, 600_000)];

/// Error of a request. The reply contains the kind and the message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Malformed,
    RequestTooLong,
    UnknownRequest,
    InvalidArgument,
    TokenRequired,
    WrongToken,
    NoProcess,
    NoAnswer,
    ActionsOff,
    NoSupervisor,
    NoChild,
    StartFailed,
    NoFlightRecorder,
    FileLimit,
    Busy,
    WriteFailed,
    NoTrace,
    ReplyTooLong,
    TooManyClients,
    Ended,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "malformed",
            Self::RequestTooLong => "request_too_long",
            Self::UnknownRequest => "unknown_request",
            Self::InvalidArgument => "invalid_argument",
            Self::TokenRequired => "token_required",
            Self::WrongToken => "wrong_token",
            Self::NoProcess => "no_process",
            Self::NoAnswer => "no_answer",
            Self::ActionsOff => "actions_off",
            Self::NoSupervisor => "no_supervisor",
            Self::NoChild => "no_child",
            Self::StartFailed => "start_failed",
            Self::NoFlightRecorder => "no_flight_recorder",
            Self::FileLimit => "file_limit",
            Self::Busy => "busy",
            Self::WriteFailed => "write_failed",
            Self::NoTrace => "no_trace",
            Self::ReplyTooLong => "reply_too_long",
            Self::TooManyClients => "too_many_clients",
            Self::Ended => "ended",
        })
    }
}

impl Fault {
    pub(super) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// A parsed line.
pub(super) struct ParsedLine {
    /// The field `id`, which the reply repeats.
    pub(super) id: Value,
    pub(super) request: Result<ConsoleRequest, Fault>,
}

pub(super) enum ConsoleRequest {
    Authenticate { token: String },
    Hello,
    Overview,
    Processes(ProcessQuery),
    Process(Pid),
    WaitForGraph { limit: usize },
    Workers,
    Explain,
    SupervisionTree,
    LastExits { limit: usize },
    Names(Prefix),
    Groups(Prefix),
    Timers,
    Handlers { limit: usize },
    Trace(TraceTarget),
    TraceEvents { limit: usize },
    StopTrace,
    RunTimes { limit: usize },
    StopRunTimes,
    Action(Action),
}

/// Selects the first `limit` names that begin with `prefix`.
pub(super) struct Prefix {
    pub(super) prefix: String,
    pub(super) limit: usize,
}

/// The process that a trace shows, and the limits of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceTarget {
    pub(super) pid: Pid,
    pub(super) max_events: u64,
    /// Maximum number of events per second.
    pub(super) max_rate: u64,
    pub(super) max_time: Duration,
}

/// Request that changes the program.
pub(super) enum Action {
    Cancel { pid: Pid, reason: String, grace: Duration },
    Kill { pid: Pid },
    Suspend { pid: Pid },
    Resume { pid: Pid },
    SetPriority { pid: Pid, priority: Priority },
    SetWorkers { count: usize },
    RestartChild(RestartTarget),
    WriteFlightRecord,
}

/// The child that a console restarts.
pub(super) enum RestartTarget {
    /// The process with this pid. Its parent is the supervisor.
    Process(Pid),
    Child {
        supervisor: Pid,
        child: ChildId,
    },
}

/// Names of all requests, for consoles that support several versions.
pub(super) const REQUESTS: &[&str] = &[
    "authenticate",
    "hello",
    "overview",
    "processes",
    "process",
    "wait_for_graph",
    "workers",
    "explain",
    "last_exits",
    "supervision_tree",
    "names",
    "groups",
    "timers",
    "handlers",
    "trace",
    "trace_events",
    "stop_trace",
    "run_times",
    "stop_run_times",
    "cancel",
    "kill",
    "suspend",
    "resume",
    "set_priority",
    "set_workers",
    "restart_child",
    "write_flight_record",
];

impl ParsedLine {
    pub(super) fn parse(line: &[u8]) -> Self {
        match serde_json::from_slice(line) {
            Ok(Value::Object(mut fields)) => {
                let id = fields.remove("id").unwrap_or(Value::Null);
                Self { id, request: ConsoleRequest::parse(&Arguments(fields)) }
            }
            Ok(_) => Self::malformed("the line is no JSON object"),
            Err(error) => Self::malformed(&format!("the line is no JSON: {error}")),
        }
    }

    fn malformed(message: &str) -> Self {
        Self { id: Value::Null, request: Err(Fault::new(FaultKind::Malformed, message)) }
    }
}

impl ConsoleRequest {
    fn parse(arguments: &Arguments) -> Result<Self, Fault> {
        let name = arguments.text("request")?.ok_or_else(|| missing("request"))?;
        Ok(match name {
            "authenticate" => Self::Authenticate { token: arguments.required_text("token")?.to_owned() },
            "hello" => Self::Hello,
            "overview" => Self::Overview,
            "processes" => Self::Processes(query(arguments)?),
            "process" => Self::Process(arguments.pid()?),
            "wait_for_graph" => Self::WaitForGraph { limit: arguments.limit()? },
            "workers" => Self::Workers,
            "explain" => Self::Explain,
            "supervision_tree" => Self::SupervisionTree,
            "last_exits" => Self::LastExits { limit: arguments.limit()? },
            "names" => Self::Names(Prefix::parse(arguments)?),
            "groups" => Self::Groups(Prefix::parse(arguments)?),
            "timers" => Self::Timers,
            "handlers" => Self::Handlers { limit: arguments.limit()? },
            "trace" => Self::Trace(TraceTarget::parse(arguments)?),
            "trace_events" => Self::TraceEvents { limit: arguments.limit()? },
            "stop_trace" => Self::StopTrace,
            "run_times" => Self::RunTimes { limit: arguments.limit()?.min(MAX_RUN_TIMES) },
            "stop_run_times" => Self::StopRunTimes,
            "cancel" => Self::Action(Action::cancel(arguments)?),
            "kill" => Self::Action(Action::Kill { pid: arguments.pid()? }),
            "suspend" => Self::Action(Action::Suspend { pid: arguments.pid()? }),
            "resume" => Self::Action(Action::Resume { pid: arguments.pid()? }),
            "set_priority" => Self::Action(Action::SetPriority {
                pid: arguments.pid()?,
                priority: choose(arguments.required_text("priority")?, "priority", PRIORITIES)?,
            }),
            "set_workers" => {
                let count = arguments.number("count")?.ok_or_else(|| missing("count"))?;
                Self::Action(Action::SetWorkers { count: usize::try_from(count).unwrap_or(usize::MAX) })
            }
            "restart_child" => Self::Action(Action::RestartChild(RestartTarget::parse(arguments)?)),
            "write_flight_record" => Self::Action(Action::WriteFlightRecord),
            _ => return Err(Fault::new(FaultKind::UnknownRequest, format!("unknown request {name:?}"))),
        })
    }
}

impl Prefix {
    fn parse(arguments: &Arguments) -> Result<Self, Fault> {
        let prefix = arguments.text("prefix")?.unwrap_or_default().to_owned();
        Ok(Self { prefix, limit: arguments.limit()? })
    }
}

impl Action {
    fn cancel(arguments: &Arguments) -> Result<Self, Fault> {
        let reason = arguments.text("reason")?.unwrap_or("cancelled by a console");
        if reason.len() > LONGEST_REASON {
            return Err(invalid("reason", format!("the text has more than {LONGEST_REASON} bytes")));
        }
        let grace = Duration::from_millis(arguments.number("grace_ms")?.unwrap_or(DEFAULT_GRACE_MS));
        Ok(Self::Cancel { pid: arguments.pid()?, reason: reason.to_owned(), grace })
    }
}

impl TraceTarget {
    fn parse(arguments: &Arguments) -> Result<Self, Fault> {
        let [max_events, max_rate, max_ms] = TRACE_LIMITS.map(|limit| arguments.trace_limit(limit));
        let max_time = Duration::from_millis(max_ms?);
        Ok(Self { pid: arguments.pid()?, max_events: max_events?, max_rate: max_rate?, max_time })
    }
}

impl RestartTarget {
    fn parse(arguments: &Arguments) -> Result<Self, Fault> {
        let pid = arguments.optional_pid("pid")?;
        let child = match (arguments.text("name")?, pid) {
            (Some(_), Some(_)) => return Err(invalid("name", "the request also contains a pid".into())),
            (Some(name), None) => ChildId::Name(name.to_owned().into()),
            (None, Some(pid)) => ChildId::Pid(pid),
            (None, None) => return Err(missing("pid")),
        };
        match (arguments.optional_pid("supervisor")?, child) {
            (Some(supervisor), child) => Ok(Self::Child { supervisor, child }),
            (None, ChildId::Pid(pid)) => Ok(Self::Process(pid)),
            (None, ChildId::Name(_)) => Err(missing("supervisor")),
        }
    }
}

fn query(arguments: &Arguments) -> Result<ProcessQuery, Fault> {
    let mut query = ProcessQuery::new().limit(arguments.limit()?);
    if let Some(state) = arguments.text("state")? {
        query = query.state(choose(state, "state", STATES)?);
    }
    if let Some(text) = arguments.text("name")? {
        query = query.name_contains(text.to_owned());
    }
    if let Some(text) = arguments.text("type")? {
        query = query.type_contains(text.to_owned());
    }
    if let Some(least) = arguments.number("min_mailbox_len")? {
        query = query.min_mailbox_len(usize::try_from(least).unwrap_or(usize::MAX));
    }
    let column = arguments.text("order")?.map_or(Ok(ProcessColumn::Pid), |name| choose(name, "order", COLUMNS))?;
    Ok(if arguments.flag("descending")? { query.descending(column) } else { query.ascending(column) })
}

/// A column has the same name as the corresponding field in the rows of the reply.
const COLUMNS: &[(&str, ProcessColumn)] = &[
    ("pid", ProcessColumn::Pid),
    ("name", ProcessColumn::Name),
    ("type_name", ProcessColumn::TypeName),
    ("state", ProcessColumn::State),
    ("waiting_since_ns", ProcessColumn::WaitingSince),
    ("priority", ProcessColumn::Priority),
    ("mailbox_len", ProcessColumn::MailboxLen),
    ("signals", ProcessColumn::Signals),
    ("mailbox_peak", ProcessColumn::MailboxPeak),
    ("unread_since_ns", ProcessColumn::UnreadSince),
    ("yields", ProcessColumn::Yields),
    ("waits", ProcessColumn::Waits),
    ("links", ProcessColumn::Links),
    ("monitors", ProcessColumn::Monitors),
    ("monitored_by", ProcessColumn::MonitoredBy),
    ("steps", ProcessColumn::Steps),
    ("last_worker", ProcessColumn::LastWorker),
];

const STATES: &[(&str, ProcessState)] = &[
    ("Ready", ProcessState::Ready),
    ("Running", ProcessState::Running),
    ("Blocked", ProcessState::Blocked),
    ("Idle", ProcessState::Idle),
    ("Suspended", ProcessState::Suspended),
];

const PRIORITIES: &[(&str, Priority)] =
    &[("Low", Priority::Low), ("Normal", Priority::Normal), ("High", Priority::High)];

/// Returns the value whose name is `text`.
fn choose<T: Copy>(text: &str, argument: &str, values: &[(&str, T)]) -> Result<T, Fault> {
    values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        invalid(argument, format!("{text:?} is none of {}", names.join(", ")))
    })
}

fn missing(argument: &str) -> Fault {
    invalid(argument, "the field is missing".into())
}

fn invalid(argument: &str, message: String) -> Fault {
    Fault::new(FaultKind::InvalidArgument, format!("field `{argument}`: {message}"))
}

/// The fields of a request. A field with the value `null` counts as missing.
struct Arguments(Map<String, Value>);

impl Arguments {
    fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        self.read(name, "a text", Value::as_str)
    }

    fn required_text(&self, name: &str) -> Result<&str, Fault> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Fault> {
        self.read(name, "a whole number of at least 0", Value::as_u64)
    }

    fn flag(&self, name: &str) -> Result<bool, Fault> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn pid(&self) -> Result<Pid, Fault> {
        self.optional_pid("pid")?.ok_or_else(|| missing("pid"))
    }

    fn optional_pid(&self, name: &str) -> Result<Option<Pid>, Fault> {
        let parse = |text: &str| text.parse::<Pid>().map_err(|error| invalid(name, format!("{error}")));
        self.text(name)?.map(parse).transpose()
    }

    fn limit(&self) -> Result<usize, Fault> {
        match self.number("limit")? {
            None => Ok(DEFAULT_ROWS),
            Some(limit) if limit <= MAX_ROWS as u64 => Ok(limit as usize),
            Some(limit) => Err(invalid("limit", format!("{limit} is more than {MAX_ROWS}"))),
        }
    }

    fn trace_limit(&self, (name, default, most): (&str, u64, u64)) -> Result<u64, Fault> {
        match self.number(name)?.unwrap_or(default) {
            limit if (1..=most).contains(&limit) => Ok(limit),
            limit => Err(invalid(name, format!("{limit} is not between 1 and {most}"))),
        }
    }

    fn read<'a, T>(
        &'a self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| invalid(name, format!("the value is not {kind}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &str) -> (String, String) {
        let fault = ParsedLine::parse(line.as_bytes()).request.err().expect("a fault");
        (fault.kind.to_string(), fault.message)
    }

    #[test]
    fn a_fault_names_the_field_and_the_permitted_values() {
        for (line, kind, message) in [
            ("", "malformed", "the line is no JSON: EOF while parsing a value at line 1 column 0"),
            ("[]", "malformed", "the line is no JSON object"),
            ("{}", "invalid_argument", "field `request`: the field is missing"),
            (r#"{"request": 1}"#, "invalid_argument", "field `request`: the value is not a text"),
            (r#"{"request": "dance"}"#, "unknown_request", "unknown request \"dance\""),
            (r#"{"request": "process"}"#, "invalid_argument", "field `pid`: the field is missing"),
            (
                r#"{"request": "kill", "pid": "7"}"#,
                "invalid_argument",
                "field `pid`: not a pid: it must stand between `<` and `>`",
            ),
            (r#"{"request": "processes", "limit": 1001}"#, "invalid_argument", "field `limit`: 1001 is more than 1000"),
            (
                r#"{"request": "processes", "limit": -1}"#,
                "invalid_argument",
                "field `limit`: the value is not a whole number of at least 0",
            ),
            (
                r#"{"request": "processes", "state": "ready"}"#,
                "invalid_argument",
                "field `state`: \"ready\" is none of Ready, Running, Blocked, Idle, Suspended",
            ),
            (
                r#"{"request": "processes", "descending": 1}"#,
                "invalid_argument",
                "field `descending`: the value is not true or false",
            ),
            (r#"{"request": "set_workers"}"#, "invalid_argument", "field `count`: the field is missing"),
            (
                r#"{"request": "trace", "pid": "<1.2.3>", "max_rate": 0}"#,
                "invalid_argument",
                "field `max_rate`: 0 is not between 1 and 10000",
            ),
            (r#"{"request": "restart_child"}"#, "invalid_argument", "field `pid`: the field is missing"),
            (
                r#"{"request": "restart_child", "name": "a"}"#,
                "invalid_argument",
                "field `supervisor`: the field is missing",
            ),
            (
                r#"{"request": "restart_child", "name": "a", "pid": "<1.2.3>"}"#,
                "invalid_argument",
                "field `name`: the request also contains a pid",
            ),
        ] {
            assert_eq!(fault(line), (kind.into(), message.into()), "{line}");
        }
        let long = format!(r#"{{"request": "cancel", "pid": "<1.2.3>", "reason": "{}"}}"#, "x".repeat(1_001));
        assert_eq!(fault(&long).1, "field `reason`: the text has more than 1000 bytes");
    }

    #[test]
    fn the_id_is_kept_and_unknown_fields_are_ignored() {
        let line = ParsedLine::parse(br#"{"id": "a", "request": "workers", "colour": "red", "limit": null}"#);
        assert_eq!(line.id, "a");
        assert!(matches!(line.request, Ok(ConsoleRequest::Workers)));
        assert_eq!(ParsedLine::parse(br#"{"id": 7}"#).id, 7);
        assert_eq!(ParsedLine::parse(b"{").id, Value::Null);
    }

    #[test]
    fn each_name_in_the_list_of_requests_is_known() {
        for name in REQUESTS {
            let request = ParsedLine::parse(format!(r#"{{"request": "{name}"}}"#).as_bytes()).request;
            assert!(!matches!(request, Err(Fault { kind: FaultKind::UnknownRequest, .. })), "{name}");
        }
    }

    #[test]
    fn a_trace_has_default_limits() {
        let line = ParsedLine::parse(br#"{"request": "trace", "pid": "<1.2.3>", "max_events": 100000}"#);
        let Ok(ConsoleRequest::Trace(TraceTarget { pid, max_events, max_rate, max_time })) = line.request else {
            panic!("a trace")
        };
        let limits = (max_events, max_rate, max_time.as_secs());
        assert_eq!((pid.to_string(), limits), ("<1.2.3>".into(), (100_000, 1_000, 60)));
    }

    #[test]
    fn a_cancel_request_has_default_values() {
        let line = ParsedLine::parse(br#"{"request": "cancel", "pid": "<1.2.3>"}"#);
        let Ok(ConsoleRequest::Action(Action::Cancel { pid, reason, grace })) = line.request else {
            panic!("a cancel")
        };
        assert_eq!(
            (pid.to_string(), reason.as_str(), grace.as_secs()),
            ("<1.2.3>".into(), "cancelled by a console", 5)
        );
    }
}
