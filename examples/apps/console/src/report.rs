//! The output for scripts: one snapshot of the program, as text or as JSON, and conditions on this snapshot.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Error;
use crate::model::{
    Explanation, Finding, Graph, Hello, Histogram, LastExits, Overview, Processes, Supervisor, Tree, TreeRow, Workers,
};
use crate::terminal::Connection;
use crate::trace;
use crate::views::{duration, number, processes_label, worker_state};

/// Number of processes in the report.
const ROWS: u64 = 20;

/// Number of rows of each table of names. With the longest texts, a reply with more rows could be too long.
const TABLE_ROWS: u64 = 200;

/// Maximum number of edges of the wait-for graph. An edge contains three texts. If the edge belongs to a deadlock, the
/// cycle of this deadlock contains a second copy of the edge. The number of deadlocks in the reply does not depend on
/// this limit.
const EDGES: u64 = 100;

/// Minimum age of a command without an answer, in ns. [`Condition::Finding`] ignores a younger command without an
/// answer.
const UNANSWERED: u64 = 1_000_000_000;

/// Condition of `--fail-if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The wait-for graph contains a deadlock.
    Deadlock,
    /// A worker is blocked: the step of the worker is long, or the step has called `block_in_place` and has not
    /// returned.
    BlockedWorker,
    /// A process has panicked since the start of the runtime.
    Panic,
    /// `Host::explain` returns a finding. A command without an answer counts only if the command is at least as old as
    /// [`UNANSWERED`].
    Finding,
    /// A supervisor has used up its restarts. If the supervisor must restart a child one more time, the supervisor
    /// exits.
    NoRestartsLeft,
}

impl Condition {
    /// All conditions.
    pub const ALL: [Self; 5] = [Self::Deadlock, Self::BlockedWorker, Self::Panic, Self::Finding, Self::NoRestartsLeft];

    /// Name of the condition on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::BlockedWorker => "blocked-worker",
            Self::Panic => "panic",
            Self::Finding => "finding",
            Self::NoRestartsLeft => "no-restarts-left",
        }
    }

    /// Returns whether the condition holds.
    ///
    /// # Errors
    /// Returns an error with the reason if the snapshot does not contain the value that the condition needs. Without
    /// this error, a missing value would count as 0.
    pub fn holds(self, snapshot: &Snapshot) -> Result<bool, String> {
        let json = &snapshot.json;
        match self {
            Self::Deadlock => {
                let count = json["wait_for_graph"]["deadlock_count"].as_u64();
                Ok(count.ok_or_else(|| not_sent("the number of deadlocks"))? != 0)
            }
            Self::BlockedWorker => {
                json["workers"]["workers"].as_array().ok_or_else(|| not_sent("the list of workers"))?;
                Ok(snapshot.workers.workers.iter().any(|worker| worker.state == "blocked"))
            }
            Self::Panic => {
                let panics = snapshot.overview.metrics.counters.get("panics");
                Ok(*panics.ok_or_else(|| not_sent("the number of panics"))? != 0)
            }
            Self::Finding => {
                json["explain"]["findings"].as_array().ok_or_else(|| not_sent("the list of findings"))?;
                Ok(snapshot.explanation.findings.iter().any(is_lasting))
            }
            Self::NoRestartsLeft => snapshot.has_no_restarts_left(),
        }
    }
}

/// Returns whether the finding shows a problem. A busy program always has some commands that are not answered yet.
fn is_lasting(finding: &Finding) -> bool {
    finding.kind != "unanswered_commands" || finding.lasts_ns.is_some_and(|lasts| lasts >= UNANSWERED)
}

fn not_sent(figure: &str) -> String {
    format!("the server does not send {figure}")
}

/// Snapshot of a program.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names of the fields are enough")]
pub struct Snapshot {
    pub hello: Hello,
    pub overview: Overview,
    pub processes: Processes,
    pub graph: Graph,
    pub workers: Workers,
    pub explanation: Explanation,
    pub exits: LastExits,
    /// Empty if the server does not know the request, or if the supervisors have not answered.
    pub tree: Tree,
    /// The lines of the trace. Empty without a trace.
    pub trace: Vec<String>,
    /// The replies. The keys are the names of the requests.
    pub json: Value,
}

impl Snapshot {
    /// Reads all data of the report. `traced` contains the pid of a process and the duration of the trace of this
    /// process.
    ///
    /// # Errors
    /// Returns the error of a request.
    pub fn read(connection: &mut Connection, traced: Option<(&str, Duration)>) -> Result<Self, Error> {
        let trace = traced.map(|(pid, time)| trace::record(connection, pid, time)).transpose()?;
        let mut get = |request, fields: Vec<(&'static str, Value)>| connection.request((request, fields));
        let by_mailbox = vec![("order", "mailbox_len".into()), ("descending", true.into()), ("limit", ROWS.into())];
        let mut json = json!({
            "hello": get("hello", Vec::new())?,
            "overview": get("overview", Vec::new())?,
            "processes": get("processes", by_mailbox)?,
            "wait_for_graph": get("wait_for_graph", vec![("limit", EDGES.into())])?,
            "workers": get("workers", Vec::new())?,
            "explain": get("explain", Vec::new())?,
            "last_exits": get("last_exits", vec![("limit", ROWS.into())])?,
            "supervision_tree": answered(get("supervision_tree", Vec::new()))?,
            "names": known(get("names", vec![("limit", TABLE_ROWS.into())]))?,
            "groups": known(get("groups", vec![("limit", TABLE_ROWS.into())]))?,
            "timers": known(get("timers", Vec::new()))?,
            "handlers": known(get("handlers", vec![("limit", TABLE_ROWS.into())]))?,
        });
        if let Some(trace) = trace {
            json["trace"] = trace;
        }
        Self::parse(json).map_err(|error| Error::Protocol(error.to_string()))
    }

    /// Parses the replies. The keys of `json` are the names of the requests.
    ///
    /// # Errors
    /// Returns an error if a field has a wrong type.
    pub fn parse(json: Value) -> Result<Self, serde_json::Error> {
        Ok(Self {
            hello: serde_json::from_value(json["hello"].clone())?,
            overview: serde_json::from_value(json["overview"].clone())?,
            processes: serde_json::from_value(json["processes"].clone())?,
            graph: serde_json::from_value(json["wait_for_graph"].clone())?,
            workers: serde_json::from_value(json["workers"].clone())?,
            explanation: serde_json::from_value(json["explain"].clone())?,
            exits: serde_json::from_value(json["last_exits"].clone())?,
            tree: match &json["supervision_tree"] {
                Value::Null => Tree::default(),
                tree => serde_json::from_value(tree.clone())?,
            },
            trace: if json["trace"].is_null() { Vec::new() } else { trace::text(&json["trace"])? },
            json,
        })
    }

    /// The supervisors, with their rows in the supervision tree.
    fn supervisors(&self) -> impl Iterator<Item = (&TreeRow, &Supervisor)> {
        self.tree.rows.iter().filter_map(|row| Some((row, row.supervisor.as_ref()?)))
    }

    /// Returns whether the restart budget of a supervisor is used up.
    ///
    /// # Errors
    /// Returns an error if no known budget is used up and the budget of a supervisor is not known.
    fn has_no_restarts_left(&self) -> Result<bool, String> {
        if self.supervisors().any(|(_, supervisor)| supervisor.restarts_left == Some(0)) {
            return Ok(true);
        }
        let Tree { rows, row_count } = &self.tree;
        if self.json["supervision_tree"].is_null() {
            let is_known = self.hello.requests.iter().any(|request| request == "supervision_tree");
            let reason = if is_known { NO_ANSWER } else { "the server does not know the request `supervision_tree`" };
            return Err(reason.into());
        }
        // A supervisor that does not run has no budget. An older server does not send `is_supervisor`.
        let is_silent =
            |row: &&TreeRow| row.pid.is_some() && row.supervisor.is_none() && row.is_supervisor.unwrap_or(true);
        if let Some(row) = rows.iter().find(is_silent) {
            return Err(format!("the supervisor {} has not answered", label(row)));
        }
        if let Some((row, _)) = self.supervisors().find(|(_, supervisor)| supervisor.restarts_left.is_none()) {
            return Err(not_sent(&format!("the restart budget of the supervisor {}", label(row))));
        }
        match row_count.saturating_sub(rows.len() as u64) {
            0 => Ok(false),
            more => Err(format!("the reply leaves out {} rows of the supervision tree", number(more))),
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let Self { hello, overview, processes, workers, explanation, exits, .. } = self;
        let metrics = &overview.metrics;
        let mut text = String::new();
        line(&mut text, format_args!("{} (process {}), node {}", hello.program, hello.program_pid, hello.node));
        let count = |name: &str| metrics.counters.get(name).copied().unwrap_or_default();
        let [steps, messages, panics] = ["steps", "messages", "panics"].map(|name| number(count(name)));
        let up = duration(Duration::from_nanos(metrics.elapsed_ns));
        line(&mut text, format_args!("up {up}: {steps} steps, {messages} messages, {panics} panics"));
        for (name, histogram) in
            [("ready to run", &metrics.distributions.scheduling_delay), ("turn", &metrics.distributions.step_time)]
        {
            line(&mut text, format_args!("{name}: {}", percentiles(histogram)));
        }
        for worker in &workers.workers {
            let runs = worker.process.as_deref().map_or(String::new(), |pid| format!(", runs {pid}"));
            line(
                &mut text,
                format_args!(
                    "worker {}: {}, {} queued{runs}",
                    worker.worker,
                    worker_state(worker),
                    worker.local_queue_depth
                ),
            );
        }
        for (row, Supervisor { strategy, max_restarts, within_ns, restarts_left }) in self.supervisors() {
            let left = restarts_left.map_or_else(|| "?".to_owned(), number);
            let within = duration(Duration::from_nanos(*within_ns));
            let budget = format_args!("{left} of {max_restarts} restarts left in {within}");
            line(&mut text, format_args!("supervisor: {}: {strategy}, {budget}", label(row)));
        }
        line(&mut text, format_args!("{} processes, longest mailboxes first:", number(processes.processes_alive)));
        for row in &processes.rows {
            let state = row.state.as_deref().unwrap_or("New");
            line(
                &mut text,
                format_args!("  {} {}: {state}, mailbox {}", row.pid, processes_label(row), row.mailbox_len),
            );
        }
        for exit in &exits.exits {
            let label = exit.name.as_deref().unwrap_or(&exit.type_name);
            line(&mut text, format_args!("exited: {} {label}: {}", exit.pid, exit.exit));
        }
        line(&mut text, format_args!("{} findings", explanation.findings.len()));
        for found in explanation.findings.iter().flat_map(|finding| &finding.lines).chain(&explanation.activity) {
            line(&mut text, format_args!("  {found}"));
        }
        for event in &self.trace {
            line(&mut text, format_args!("{event}"));
        }
        text
    }
}

/// Reason why the server has refused the request for the supervision tree.
const NO_ANSWER: &str = "the supervisors have not answered in time; perhaps no worker is free";

/// Pid and name of a supervisor.
fn label(row: &TreeRow) -> String {
    format!("{} {}", row.pid.as_deref().unwrap_or("-"), row.name.as_deref().unwrap_or("(no name)"))
}

/// Appends a line. Each control character in the line becomes a space.
fn line(text: &mut String, line: fmt::Arguments<'_>) {
    text.push_str(&plain(&line.to_string()));
    text.push('\n');
}

/// Replaces each control character by a space. The inspected program chooses the names of its processes and the texts
/// of its exits. Without this function, the name of a process or the text of an exit could control the terminal, or
/// look like a further line of the report.
pub fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Returns null if an older server does not know the request. Otherwise returns the reply.
fn known(reply: Result<Value, Error>) -> Result<Value, Error> {
    match reply {
        Err(Error::Refused { kind, .. }) if kind == "unknown_request" => Ok(Value::Null),
        reply => reply,
    }
}

/// Returns null if the supervisors have not answered, for example because no worker is free. Otherwise returns the
/// reply.
fn answered(reply: Result<Value, Error>) -> Result<Value, Error> {
    match reply {
        Err(Error::Refused { kind, .. }) if kind == "no_answer" => Ok(Value::Null),
        reply => known(reply),
    }
}

fn percentiles(histogram: &Histogram) -> String {
    let at = |q| histogram.quantile(q).map_or("-".to_owned(), duration);
    format!("p50 {}, p99 {}, p99.9 {}", at(0.5), at(0.99), at(0.999))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use crate::client::Target;

    fn snapshot(deadlocks: u64, state: &str, panics: u64) -> Snapshot {
        let json = json!({
            "hello": { "program": "demo", "program_pid": 7, "node": 1, "requests": ["supervision_tree"] },
            "overview": { "metrics": { "elapsed_ns": 2_000_000_000, "counters": { "panics": panics, "steps": 1_000 } } },
            "processes": { "processes_alive": 1, "rows": [{ "pid": "<1.0.1>", "type_name": "app::Shop", "mailbox_len": 3 }] },
            "wait_for_graph": { "deadlock_count": deadlocks },
            "workers": { "workers": [{ "worker": 0, "state": state, "process": "<1.0.1>" }] },
            "explain": {
                "findings": vec![json!({ "lines": ["deadlock:", "  a waits"] }); deadlocks as usize],
                "activity": ["1 process"],
            },
            "last_exits": { "exits": [{ "pid": "<1.7.1>", "name": "cache", "exit": "killed" }] },
            "supervision_tree": { "rows": [], "row_count": 0 },
        });
        Snapshot::parse(json).unwrap()
    }

    /// The processes are deadlocked in pairs. Their names are as long as possible: the server would shorten longer names.
    #[cfg(unix)]
    #[test]
    fn many_deadlocks_with_long_names_are_read() {
        use procession::{Context, Reply, Runtime};

        let path = std::env::temp_dir().join(format!("procession-report-{}", std::process::id()));
        let rt = Runtime::builder().workers(0).console(&path).build().unwrap();
        for number in 0..600 {
            let callee = format!("{:01000}", number ^ 1);
            let body = async move |ctx: Context<Reply<()>>| _ = ctx.call(&*callee, |reply: Reply<()>| reply).await;
            drop(rt.process().name(format!("{number:01000}")).spawn(body).unwrap());
        }
        while rt.wait_for_graph().deadlocks.len() < 300 {
            rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        }
        let mut connection = Connection::open(Target::Path(path)).unwrap();
        let snapshot = Snapshot::read(&mut connection, None).unwrap();
        assert_eq!((snapshot.graph.edge_count, snapshot.graph.deadlock_count), (600, 300));
        assert_eq!(Condition::Deadlock.holds(&snapshot), Ok(true));
    }

    #[test]
    fn each_condition_depends_on_its_figure() {
        let holds = |snapshot: &Snapshot| Condition::ALL.map(|condition| condition.holds(snapshot).unwrap());
        assert_eq!(holds(&snapshot(0, "running", 0)), [false; 5]);
        assert_eq!(holds(&snapshot(1, "running", 0)), [true, false, false, true, false]);
        assert_eq!(holds(&snapshot(0, "blocked", 0)), [false, true, false, false, false]);
        assert_eq!(holds(&snapshot(0, "parked", 2)), [false, false, true, false, false]);
        for (left, expected) in [(1, false), (0, true)] {
            let snapshot = with_rows(&[supervisor("<1.5.1>", json!(left))], 1);
            assert_eq!(holds(&snapshot), [false, false, false, false, expected]);
            let line = format!("supervisor: <1.5.1> (no name): one for one, {left} of 3 restarts left in 5.0 s\n");
            assert!(snapshot.text().contains(&line), "{}", snapshot.text());
        }
    }

    /// Row of a supervisor in the supervision tree.
    fn supervisor(pid: &str, restarts_left: Value) -> Value {
        let within_ns = 5_000_000_000_u64;
        let supervisor = json!({
            "strategy": "one for one", "max_restarts": 3, "within_ns": within_ns, "restarts_left": restarts_left,
        });
        json!({ "pid": pid, "is_supervisor": true, "supervisor": supervisor })
    }

    fn with_rows(rows: &[Value], row_count: u64) -> Snapshot {
        let mut json = snapshot(0, "running", 0).json;
        json["supervision_tree"] = json!({ "rows": rows, "row_count": row_count });
        Snapshot::parse(json).unwrap()
    }

    #[test]
    fn a_budget_that_is_not_known_is_an_error() {
        let holds = |rows: &[Value], row_count| Condition::NoRestartsLeft.holds(&with_rows(rows, row_count));
        let (rich, poor) = (supervisor("<1.5.1>", json!(2)), supervisor("<1.6.1>", json!(0)));
        let silent = json!({ "pid": "<1.7.1>", "name": "jobs", "is_supervisor": true, "supervisor": null });
        let down = json!({ "pid": null, "name": "jobs", "is_supervisor": true, "supervisor": null });
        let child = json!({ "pid": "<1.8.1>", "is_supervisor": false, "supervisor": null });
        assert_eq!(holds(&[rich.clone(), child.clone(), down], 3), Ok(false));
        let error = |reason: &str| Err(reason.to_owned());
        let no_answer = error("the supervisor <1.7.1> jobs has not answered");
        assert_eq!(holds(&[rich.clone(), silent.clone()], 2), no_answer);
        assert_eq!(
            holds(&[rich.clone(), child.clone()], 1_002),
            error("the reply leaves out 1,000 rows of the supervision tree")
        );
        let old = supervisor("<1.9.1>", Value::Null);
        let no_budget = error("the server does not send the restart budget of the supervisor <1.9.1> (no name)");
        assert_eq!(holds(&[rich.clone(), old.clone()], 2), no_budget);
        assert!(
            with_rows(std::slice::from_ref(&old), 1).text().contains(": one for one, ? of 3 restarts left in 5.0 s\n")
        );
        // The condition holds if one budget is used up, even if other budgets are not known.
        assert_eq!(holds(&[silent, old, poor, rich], 1_000), Ok(true));
        // The reply of an older server does not state which children are supervisors.
        assert!(holds(&[json!({ "pid": "<1.8.1>", "supervisor": null })], 1).is_err());
    }

    #[test]
    fn a_command_that_was_performed_just_now_is_no_lasting_finding() {
        let holds = |kind: &str, lasts: Value| {
            let mut json = snapshot(0, "running", 0).json;
            json["explain"]["findings"] = json!([{ "kind": kind, "lasts_ns": lasts, "lines": [] }]);
            Condition::Finding.holds(&Snapshot::parse(json).unwrap()).unwrap()
        };
        assert!(!holds("unanswered_commands", json!(999_999_999)) && !holds("unanswered_commands", Value::Null));
        assert!(holds("unanswered_commands", json!(1_000_000_000)) && holds("deadlock", Value::Null));
    }

    #[test]
    fn a_condition_without_its_figure_is_an_error() {
        let error = |condition: Condition, request: &str| {
            let mut json = snapshot(0, "running", 0).json;
            json[request] = if request == "supervision_tree" { Value::Null } else { json!({}) };
            condition.holds(&Snapshot::parse(json).unwrap()).unwrap_err()
        };
        for (condition, request, expected) in [
            (Condition::Deadlock, "wait_for_graph", "the server does not send the number of deadlocks"),
            (Condition::BlockedWorker, "workers", "the server does not send the list of workers"),
            (Condition::Panic, "overview", "the server does not send the number of panics"),
            (Condition::Finding, "explain", "the server does not send the list of findings"),
            (Condition::NoRestartsLeft, "supervision_tree", NO_ANSWER),
        ] {
            assert_eq!(error(condition, request), expected);
        }
        let mut json = snapshot(0, "running", 0).json;
        (json["hello"]["requests"], json["supervision_tree"]) = (json!(["overview"]), Value::Null);
        let reason = Condition::NoRestartsLeft.holds(&Snapshot::parse(json).unwrap()).unwrap_err();
        assert_eq!(reason, "the server does not know the request `supervision_tree`");
    }

    #[test]
    fn the_value_is_null_for_a_request_that_an_older_server_does_not_know() {
        let refused = |kind: &str| Err(Error::Refused { kind: kind.into(), message: "no".into() });
        assert!(known(refused("unknown_request")).is_ok_and(|reply| reply.is_null()));
        assert!(known(refused("ended")).is_err() && answered(refused("ended")).is_err());
        assert!(["no_answer", "unknown_request"].iter().all(|kind| answered(refused(kind)).is_ok()));
        assert!(known(Ok(json!({ "name_count": 0 }))).is_ok_and(|reply| reply["name_count"] == 0));
    }

    #[test]
    fn the_text_contains_no_control_character_of_the_program() {
        let evil = "a\u{1b}]0;title\u{7}\r\nworker 9: running\u{9b}2J";
        let json = json!({
            "hello": { "program": evil, "program_pid": 7, "node": 1 },
            "overview": { "metrics": {} },
            "wait_for_graph": {},
            "processes": { "processes_alive": 1, "rows": [{ "pid": "<1.0.1>", "name": evil, "type_name": evil }] },
            "workers": { "workers": [{ "worker": 0, "state": evil, "process": evil }] },
            "explain": { "findings": [{ "lines": [evil] }], "activity": [evil] },
            "last_exits": { "exits": [{ "pid": evil, "name": evil, "exit": evil }] },
        });
        let text = Snapshot { trace: vec![evil.to_owned()], ..Snapshot::parse(json).unwrap() }.text();
        assert!(text.chars().all(|char| char == '\n' || !char.is_control()), "{text:?}");
        assert_eq!(text.lines().filter(|line| line.starts_with("worker ")).count(), 1, "{text}");
        assert_eq!(text.lines().last(), Some("a ]0;title   worker 9: running 2J"));
    }

    #[test]
    fn the_text_contains_the_program_and_the_processes_and_the_workers() {
        let text = snapshot(0, "running", 0).text();
        let expected = "demo (process 7), node 1\nup 2.0 s: 1,000 steps, 0 messages, 0 panics\n\
                        ready to run: p50 -, p99 -, p99.9 -\nturn: p50 -, p99 -, p99.9 -\n\
                        worker 0: running, 0 queued, runs <1.0.1>\n1 processes, longest mailboxes first:\n  \
                        <1.0.1> app::Shop: New, mailbox 3\nexited: <1.7.1> cache: killed\n0 findings\n  1 process\n";
        assert_eq!(text, expected);
        assert!(snapshot(1, "running", 0).text().ends_with("1 findings\n  deadlock:\n    a waits\n  1 process\n"));
    }
}
