//! The replies of the server as data, and numbers that are computed from two replies. Unknown fields are ignored, and
//! missing fields have their default values, so the console works with older and newer servers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

/// Reply to `hello`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Hello {
    pub program: String,
    pub program_pid: u32,
    pub crate_version: String,
    pub node: u32,
    pub actions: bool,
    /// Names of the requests that the server knows.
    pub requests: Vec<String>,
}

/// Reply to `overview`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Overview {
    pub now_ns: u64,
    pub processes_alive: u64,
    pub metrics: Metrics,
}

/// Snapshot of all metrics of a runtime.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Metrics {
    pub elapsed_ns: u64,
    pub counters: BTreeMap<String, u64>,
    pub distributions: Distributions,
    pub workers: Vec<Worker>,
    pub global_queue_depth: u64,
    pub priority_queue_depth: u64,
    pub processes: BTreeMap<String, u64>,
    pub blocking_pool: BTreeMap<String, u64>,
    pub timers: u64,
    pub sockets: u64,
    pub memory: BTreeMap<String, u64>,
}

/// Sampled durations.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Distributions {
    pub scheduling_delay: Histogram,
    pub step_time: Histogram,
    pub mailbox_time: Histogram,
    pub call_time: Histogram,
    pub command_time: Vec<CommandTime>,
    pub sampled_one_in: u64,
    pub messages_sampled_one_in: u64,
}

/// Durations of the commands of one type.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct CommandTime {
    pub command: String,
    pub time: Histogram,
}

/// A distribution of durations. Each bucket is a pair of numbers: the upper bound of the bucket in ns, and the number
/// of durations in the bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Histogram {
    pub buckets: Vec<(u64, u64)>,
}

impl Histogram {
    /// The durations that were added since the distribution `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let before: BTreeMap<u64, u64> = earlier.buckets.iter().copied().collect();
        let left = |&(longest, count): &(u64, u64)| {
            (longest, count.saturating_sub(before.get(&longest).copied().unwrap_or_default()))
        };
        Self { buckets: self.buckets.iter().map(left).filter(|(_, count)| *count != 0).collect() }
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Upper bound of the quantile `q`, from 0 to 1. `None` if there are no durations.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let rank = (self.count() as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        bucket.map(|(longest, _)| Duration::from_nanos(*longest))
    }
}

/// Row about a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Row {
    pub pid: String,
    pub name: Option<String>,
    pub type_name: String,
    pub parent: Option<String>,
    pub state: Option<String>,
    pub waiting_since_ns: Option<u64>,
    pub priority: String,
    pub mailbox_len: u64,
    pub signals: u64,
    pub mailbox_peak: u64,
    pub unread_since_ns: Option<u64>,
    pub yields: u64,
    pub waits: u64,
    pub links: u64,
    pub monitors: u64,
    pub monitored_by: u64,
    pub steps: u64,
    pub last_worker: Option<u64>,
    pub checks_yield: bool,
    pub is_cancelled: bool,
    pub is_killed: bool,
}

/// Reply to `processes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Processes {
    pub now_ns: u64,
    pub processes_alive: u64,
    pub rows: Vec<Row>,
}

/// Event that a process waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct WaitsFor {
    pub kind: String,
    pub pid: Option<String>,
    pub text: String,
    /// Fields that only a newer server sends.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Number of outstanding commands of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct CommandCount {
    pub command: String,
    pub count: u64,
    pub measured_since_ns: Option<u64>,
    /// Fields that only a newer server sends.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Step that a worker runs now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct RunningStep {
    pub worker: u64,
    pub blocked_since_ns: Option<u64>,
    pub is_asked_to_yield: bool,
}

/// For one kind of event, the number of events that a process has accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct MessageCount {
    pub kind: String,
    pub type_name: Option<String>,
    pub count: u64,
    /// Fields that only a newer server sends.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One of the last events that a process has accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct LastMessage {
    pub kind: String,
    pub type_name: Option<String>,
    pub from: Option<String>,
    pub at_ns: u64,
    /// Fields that only a newer server sends.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Reply to `process`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Details {
    pub now_ns: u64,
    pub info: Row,
    pub supervisor: Option<String>,
    pub names: Vec<String>,
    pub groups: Vec<String>,
    pub links: Vec<String>,
    pub monitors: Vec<String>,
    pub monitored_by: Vec<String>,
    pub joined_by: Option<String>,
    pub yields: Vec<CommandCount>,
    pub timers_ns: Vec<u64>,
    pub deadline_ns: Option<u64>,
    pub inherited_values: Vec<String>,
    pub waits_for: Vec<WaitsFor>,
    pub ready_since_ns: Option<u64>,
    pub step: Option<RunningStep>,
    pub run_time_ns: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// The largest count comes first. Empty if the program does not record messages (`Builder::inspect`).
    pub message_counts: Vec<MessageCount>,
    /// The oldest event comes first. Empty if the program does not record messages.
    pub last_messages: Vec<LastMessage>,
    /// Fields that only a newer server sends. The view of the process shows these fields too.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Process that waits for another process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Edge {
    pub pid: String,
    pub name: Option<String>,
    pub type_name: String,
    pub target: String,
    pub waits_for: WaitsFor,
    pub in_block_on: bool,
}

/// Processes that can never run again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Deadlock {
    pub cycle: Vec<Edge>,
    pub behind: Vec<String>,
    pub behind_len: u64,
}

/// Reply to `wait_for_graph`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Graph {
    pub edges: Vec<Edge>,
    pub edge_count: u64,
    pub deadlocks: Vec<Deadlock>,
    pub deadlock_count: u64,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Worker {
    pub worker: u64,
    pub state: String,
    pub local_queue_depth: u64,
    pub process: Option<String>,
    pub polls: Option<u64>,
    pub blocked_since_ns: Option<u64>,
    /// Whether another thread does the work of this worker while this worker is blocked. An older server does not send
    /// this field.
    pub is_replaced: Option<bool>,
}

/// Reply to `workers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Workers {
    pub now_ns: u64,
    pub requested: u64,
    pub workers: Vec<Worker>,
}

/// A reason why processes do not run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Finding {
    pub kind: String,
    pub lasts_ns: Option<u64>,
    pub lines: Vec<String>,
}

/// Reply to `explain`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Explanation {
    pub findings: Vec<Finding>,
    pub activity: Vec<String>,
}

/// An abnormal exit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct ExitRecord {
    pub pid: String,
    pub name: Option<String>,
    pub type_name: String,
    pub exit: String,
    pub location: Option<String>,
    pub mailbox_len: u64,
    pub at_ns: u64,
}

/// Reply to `last_exits`. The newest exit comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct LastExits {
    pub now_ns: u64,
    pub exits: Vec<ExitRecord>,
}

/// Options of a supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Supervisor {
    pub strategy: String,
    pub max_restarts: u64,
    pub within_ns: u64,
    /// An older server does not send this field.
    pub restarts_left: Option<u64>,
}

/// A supervisor, or a child of a supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct TreeRow {
    pub depth: u64,
    pub pid: Option<String>,
    pub name: Option<String>,
    pub state: String,
    /// An older server does not send this field.
    pub is_supervisor: Option<bool>,
    pub restarts: u64,
    pub last: Option<String>,
    /// `None` if the row is no supervisor, or if the supervisor has not answered.
    pub supervisor: Option<Supervisor>,
}

/// Reply to `supervision_tree`. The rows of the children follow the row of their supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Tree {
    pub rows: Vec<TreeRow>,
    /// Number of all rows, including the rows that the reply leaves out.
    pub row_count: u64,
}

impl Tree {
    /// Returns a text about a child, and the fields that identify the child: the pid of the supervisor, and the name or
    /// the pid of the child. Returns `None` if the row has no supervisor, or if the child has neither a name nor a pid.
    pub fn child(&self, row: usize) -> Option<(String, [(&'static str, String); 2])> {
        let child = self.rows.get(row)?;
        // The rows of the children follow the row of their supervisor.
        let supervisor = self.rows[..row].iter().rev().find(|above| above.depth + 1 == child.depth)?;
        let key = match (&child.name, &child.pid) {
            (Some(name), _) => ("name", name.clone()),
            (None, pid) => ("pid", pid.clone()?),
        };
        Some((key.1.clone(), [("supervisor", supervisor.pid.clone()?), key]))
    }
}

/// A registered name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct NameRow {
    pub name: String,
    pub pid: String,
    pub type_name: String,
}

/// Reply to `names`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Names {
    pub rows: Vec<NameRow>,
    pub name_count: u64,
}

/// A group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct GroupRow {
    pub name: String,
    pub members: u64,
    pub first_members: Vec<String>,
    pub monitors: u64,
}

/// Reply to `groups`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Groups {
    pub rows: Vec<GroupRow>,
    pub group_count: u64,
}

/// A timer wheel with timers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Wheel {
    pub worker: Option<u64>,
    pub timers: u64,
    pub nearest_ns: Option<u64>,
}

/// Reply to `timers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Timers {
    pub now_ns: u64,
    pub timer_count: u64,
    pub wheel_count: u64,
    pub wheels: Vec<Wheel>,
}

/// Row about a handler of the first host, or about a type of outstanding commands. In the second case, the list of the
/// first host contains no handler for this type, and the field `kind` is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct HandlerRow {
    pub kind: String,
    pub command: String,
    pub outstanding: Option<u64>,
}

/// Reply to `handlers`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct Handlers {
    pub rows: Vec<HandlerRow>,
    pub handler_count: u64,
    pub others: Vec<HandlerRow>,
    pub other_count: u64,
}

/// Run time of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct RunTimeRow {
    pub pid: String,
    pub name: Option<String>,
    pub type_name: String,
    pub turns: u64,
    pub run_time_ns: u64,
    pub measured_turns: u64,
    pub last_worker: Option<u64>,
}

/// Reply to `run_times`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct RunTimes {
    pub window_ns: u64,
    pub run_time_ns: u64,
    pub processes: Vec<RunTimeRow>,
}

/// Reply to `trace`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct TraceStart {
    pub now_ns: u64,
    pub label: String,
}

/// An event of a live trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct TraceEvent {
    pub at_ns: u64,
    pub worker: Option<u64>,
    pub event: String,
    pub from: Option<String>,
    pub tag: Option<u64>,
    pub count: Option<u64>,
}

/// Reply to `trace_events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the protocol documents the fields")]
pub struct TraceEvents {
    pub now_ns: u64,
    pub events: Vec<TraceEvent>,
    pub unread: u64,
    pub event_count: u64,
    pub lost: u64,
    pub ended: Option<String>,
}

/// The difference of two replies to `overview`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// Time between the two replies.
    pub seconds: f64,
    /// Increase of each counter per second.
    pub rates: BTreeMap<String, f64>,
    /// The scheduling delays between the two replies.
    pub delay: Histogram,
    /// The durations of turns between the two replies.
    pub step: Histogram,
    /// The waiting times in mailboxes, for the messages that were taken between the two replies.
    pub mailbox: Histogram,
    /// The durations of calls between the two replies.
    pub call: Histogram,
}

impl Interval {
    /// Returns the interval between two snapshots. If `earlier` is `None`, the interval begins with the start of the
    /// runtime.
    pub fn between(earlier: Option<&Metrics>, later: &Metrics) -> Self {
        let none = Metrics::default();
        let earlier = earlier.unwrap_or(&none);
        let seconds = later.elapsed_ns.saturating_sub(earlier.elapsed_ns) as f64 / 1e9;
        let rate = |(name, count): (&String, &u64)| {
            let before = earlier.counters.get(name).copied().unwrap_or_default();
            let per_second = if seconds > 0.0 { count.saturating_sub(before) as f64 / seconds } else { 0.0 };
            (name.clone(), per_second)
        };
        let (now, before) = (&later.distributions, &earlier.distributions);
        Self {
            seconds,
            rates: later.counters.iter().map(rate).collect(),
            delay: now.scheduling_delay.since(&before.scheduling_delay),
            step: now.step_time.since(&before.step_time),
            mailbox: now.mailbox_time.since(&before.mailbox_time),
            call: now.call_time.since(&before.call_time),
        }
    }

    /// Rate of a counter per second.
    pub fn rate(&self, counter: &str) -> f64 {
        self.rates.get(counter).copied().unwrap_or_default()
    }

    /// Percentage of the steal attempts that succeeded.
    pub fn steal_success(&self) -> f64 {
        let tried = self.rate("steals_tried");
        if tried == 0.0 { 0.0 } else { 100.0 * self.rate("steals_won") / tried }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(u64, u64)]) -> Histogram {
        Histogram { buckets: buckets.to_vec() }
    }

    #[test]
    fn quantiles_are_the_bounds_of_buckets() {
        let all = histogram(&[(10, 50), (100, 49), (1_000, 1)]);
        let at = |q| all.quantile(q).map(|time| time.as_nanos());
        assert_eq!(
            (at(0.0), at(0.5), at(0.51), at(0.99), at(1.0)),
            (Some(10), Some(10), Some(100), Some(100), Some(1_000))
        );
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn an_interval_contains_only_its_own_counts() {
        let metrics = |seconds: u64, steps, buckets| Metrics {
            elapsed_ns: seconds * 1_000_000_000,
            counters: [("steps".to_owned(), steps)].into(),
            distributions: Distributions { step_time: histogram(buckets), ..Distributions::default() },
            ..Metrics::default()
        };
        let (one, two) = (metrics(1, 100, &[(5, 3), (9, 1)]), metrics(3, 500, &[(5, 3), (9, 4)]));
        let interval = Interval::between(Some(&one), &two);
        assert_eq!((interval.seconds, interval.rate("steps"), interval.rate("none")), (2.0, 200.0, 0.0));
        assert_eq!(interval.step, histogram(&[(9, 3)]));
        assert_eq!(Interval::between(None, &one).rate("steps"), 100.0);
        assert_eq!(Interval::between(Some(&one), &one).rate("steps"), 0.0);
        let fewer = metrics(4, 50, &[]);
        assert_eq!(Interval::between(Some(&one), &fewer).rate("steps"), 0.0);
    }

    #[test]
    fn missing_and_unknown_fields_are_accepted() {
        let row: Row = serde_json::from_str(r#"{"pid": "<1.2.3>", "state": null, "colour": "red"}"#).unwrap();
        assert_eq!((row.pid.as_str(), row.state), ("<1.2.3>", None));
    }
}
