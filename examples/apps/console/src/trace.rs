//! The live trace of one process: the state of the trace in the console, the lines of the trace on the screen, and the
//! trace for scripts.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::app::Request;
use crate::client::Error;
use crate::model::{TraceEvent, TraceEvents, TraceStart};
use crate::terminal::Connection;

/// Number of events that the console keeps. A screen shows fewer.
const KEPT: usize = 1_000;

/// Number of events that one request asks for.
const PART: u64 = 1_000;

/// Longest time of a trace. The server refuses a longer time.
pub const LONGEST: Duration = Duration::from_secs(600);

/// Limits of a trace on the screen: the number of events, the number of events per second, and the duration in ms. The
/// server refuses a larger number of events and a longer duration.
const LIMITS: (u64, u64, u64) = (100_000, 1_000, LONGEST.as_millis() as u64);

/// Limits of a trace for scripts: the number of events, and the number of events per second.
const REPORT_LIMITS: (u64, u64) = (10_000, 10_000);

/// Time between two requests of a trace for scripts.
const PAUSE: Duration = Duration::from_millis(50);

/// State of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Phase {
    /// There is no trace.
    #[default]
    Off,
    /// The next request starts the trace.
    Wanted,
    /// The trace runs.
    Running,
    /// The trace has ended. The field contains the reason.
    Ended(String),
}

/// The trace on the screen.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names of the fields are enough")]
pub struct Trace {
    pub phase: Phase,
    pub pid: String,
    /// Maximum number of events per second.
    pub(crate) max_rate: u64,
    pub start: TraceStart,
    /// The last events, oldest first.
    pub events: VecDeque<TraceEvent>,
    pub event_count: u64,
    pub lost: u64,
    pub unread: u64,
    /// Time of the last reply.
    pub now_ns: u64,
    /// Number of events that the console has read.
    pub read: u64,
    /// Number of messages that the process has received, according to the events that the console has read.
    pub received: u64,
}

impl Trace {
    /// A new trace of a process.
    pub fn of(pid: &str) -> Self {
        Self { phase: Phase::Wanted, pid: pid.to_owned(), max_rate: LIMITS.1, ..Self::default() }
    }

    /// A new trace that measures the number of messages. The rate of this trace is the maximum rate that the server
    /// permits.
    pub fn to_measure(pid: &str) -> Self {
        Self { max_rate: REPORT_LIMITS.1, ..Self::of(pid) }
    }

    /// Returns the requests that the console sends while the screen shows the trace.
    pub fn requests(&self) -> Vec<Request> {
        match self.phase {
            Phase::Wanted => vec![start(&self.pid, (LIMITS.0, self.max_rate, LIMITS.2)), next_part()],
            Phase::Running => vec![next_part()],
            Phase::Off | Phase::Ended(_) => Vec::new(),
        }
    }

    /// Whether the trace has ended because it has reached a limit. A trace that has ended at a limit can begin again.
    pub fn has_reached_limit(&self) -> bool {
        matches!(&self.phase, Phase::Ended(reason) if [MAX_EVENTS, MAX_TIME].contains(&reason.as_str()))
    }

    /// Returns the request for the events that the last reply did not contain.
    pub fn further_request(&self) -> Option<Request> {
        (self.phase == Phase::Running && self.unread != 0).then(next_part)
    }

    /// Returns the request that ends a running trace. The console sends this request when the console shows another
    /// view.
    pub fn stop(&self) -> Option<Request> {
        (self.phase == Phase::Running).then(|| ("stop_trace", Vec::new()))
    }

    /// Stores the reply to a request.
    ///
    /// # Errors
    /// Returns an error if a field has a wrong type.
    pub fn store(&mut self, request: &str, value: Value) -> Result<(), serde_json::Error> {
        match request {
            "trace" => {
                self.start = serde_json::from_value(value)?;
                self.phase = Phase::Running;
            }
            "trace_events" => {
                let TraceEvents { now_ns, events, unread, event_count, lost, ended } = serde_json::from_value(value)?;
                self.read += events.len() as u64;
                self.received += events.iter().filter(|event| event.event == "received").count() as u64;
                self.now_ns = now_ns;
                self.events.extend(events);
                self.events.drain(..self.events.len().saturating_sub(KEPT));
                (self.event_count, self.lost, self.unread) = (event_count, lost, unread);
                if let Some(reason) = ended.filter(|_| unread == 0) {
                    self.phase = Phase::Ended(reason_text(&reason).to_owned());
                }
            }
            _ => *self = Self::default(),
        }
        Ok(())
    }

    /// Handles the refusal of a request. For example, the server refuses `trace_events` after a lost connection,
    /// because the trace has ended with the connection.
    pub fn refuse(&mut self, request: &str, message: String) {
        self.phase = if request == "stop_trace" { Phase::Off } else { Phase::Ended(message) };
    }
}

/// Returns whether the request belongs to the trace.
pub fn is_trace(request: &str) -> bool {
    ["trace", "trace_events", "stop_trace"].contains(&request)
}

fn start(pid: &str, (events, rate, ms): (u64, u64, u64)) -> Request {
    let limits = [("max_events", events), ("max_rate", rate), ("max_ms", ms)];
    let fields = limits.into_iter().map(|(name, limit)| (name, limit.into()));
    ("trace", std::iter::once(("pid", pid.into())).chain(fields).collect())
}

fn next_part() -> Request {
    ("trace_events", vec![("limit", PART.into())])
}

const MAX_EVENTS: &str = "the maximum number of events";
const MAX_TIME: &str = "the maximum time";

fn reason_text(reason: &str) -> &str {
    match reason {
        "max_events" => MAX_EVENTS,
        "max_ms" => MAX_TIME,
        "exit" => "the process has exited",
        other => other,
    }
}

/// Returns the line that shows an event. `start_ns` is the time at which the trace began.
pub fn line(event: &TraceEvent, start_ns: u64) -> String {
    let TraceEvent { at_ns, worker, event, from, tag, count } = event;
    let seconds = at_ns.saturating_sub(start_ns) as f64 / 1e9;
    let worker = worker.map_or_else(|| "-".to_owned(), |worker| worker.to_string());
    let about = match (event.as_str(), from, tag, count) {
        ("sent", Some(from), ..) => format!("by {from}"),
        ("sent", None, ..) => "by code outside the processes".to_owned(),
        (_, _, Some(tag), _) => format!("command {tag}"),
        (_, _, _, Some(count)) => format!("{count} events"),
        _ => String::new(),
    };
    format!("{seconds:>12.6}  {worker:>6}  {event:<14} {about}").trim_end().to_owned()
}

/// Traces a process for this time. Returns all events, with the counts of the last reply.
///
/// # Errors
/// Returns the error of a request.
pub fn record(connection: &mut Connection, pid: &str, time: Duration) -> Result<Value, Error> {
    let (max_events, max_rate) = REPORT_LIMITS;
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let started = connection.request(start(pid, (max_events, max_rate, ms)))?;
    let mut events = Vec::new();
    loop {
        let mut reply = connection.request(next_part())?;
        if let Value::Array(part) = reply["events"].take() {
            events.extend(part);
        }
        if !reply["ended"].is_null() && reply["unread"] == 0 {
            return Ok(json!({
                "pid": pid,
                "label": started["label"],
                "start_ns": started["now_ns"],
                "events": events,
                "event_count": reply["event_count"],
                "lost": reply["lost"],
                "ended": reply["ended"],
            }));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the lines that show the result of [`record`].
///
/// # Errors
/// Returns an error if a field has a wrong type.
pub fn text(recorded: &Value) -> Result<Vec<String>, serde_json::Error> {
    let TraceEvents { events, event_count, lost, ended, .. } = serde_json::from_value(recorded.clone())?;
    let field = |name: &str| recorded[name].as_str().unwrap_or_default().to_owned();
    let ended = ended.as_deref().map_or("", reason_text);
    let (pid, label) = (field("pid"), field("label"));
    let title = format!("trace of {pid} {label}: {event_count} events, {lost} lost; ended: {ended}");
    let start = recorded["start_ns"].as_u64().unwrap_or_default();
    Ok(std::iter::once(title).chain(events.iter().map(|event| line(event, start))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_starts_and_receives_events_and_ends() {
        let mut trace = Trace::of("<1.0.1>");
        let names = |trace: &Trace| trace.requests().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!((names(&trace), trace.stop()), (vec!["trace", "trace_events"], None));
        trace.store("trace", json!({ "now_ns": 1_000, "label": "shop (app::Shop)" })).unwrap();
        assert_eq!((names(&trace), trace.stop()), (vec!["trace_events"], Some(("stop_trace", vec![]))));
        let many: Vec<_> = (0..1_001).map(|at| json!({ "at_ns": at, "event": "received" })).collect();
        trace.store("trace_events", json!({ "events": many, "unread": 1, "ended": "exit", "lost": 3 })).unwrap();
        assert_eq!((trace.events.len(), trace.events[0].at_ns, trace.lost), (KEPT, 1, 3));
        assert_eq!((trace.received, trace.has_reached_limit()), (1_001, false));
        assert_eq!(trace.phase, Phase::Running);
        trace.store("trace_events", json!({ "events": [], "unread": 0, "ended": "exit" })).unwrap();
        assert_eq!((trace.phase.clone(), names(&trace)), (Phase::Ended("the process has exited".into()), vec![]));
        // When the connection ends, the server forgets the trace.
        trace = Trace { phase: Phase::Running, ..trace };
        trace.refuse("trace_events", "no trace".into());
        assert_eq!(trace.phase, Phase::Ended("no trace".into()));
    }

    #[test]
    fn an_event_has_one_line_with_its_time_and_its_worker() {
        let text = |event: Value| line(&serde_json::from_value(event).unwrap(), 1_000_000_000);
        let sent = json!({ "at_ns": 2_500_000_000_u64, "worker": 3, "event": "sent", "from": "<1.0.1>" });
        assert_eq!(text(sent), "    1.500000       3  sent           by <1.0.1>");
        let outside = json!({ "at_ns": 1_000_001_000, "worker": null, "event": "sent", "from": null });
        assert_eq!(text(outside), "    0.000001       -  sent           by code outside the processes");
        let yielded = json!({ "at_ns": 1_000_000_000, "worker": 0, "event": "yielded", "tag": 7 });
        assert_eq!(text(yielded), "    0.000000       0  yielded        command 7");
        assert_eq!(text(json!({ "event": "lost", "count": 12 })), "    0.000000       -  lost           12 events");
        assert_eq!(text(json!({ "event": "idle", "worker": 0 })), "    0.000000       0  idle");
    }
}
