//! Builds the replies of the console server from the state of the runtime.
//!
//! The server holds a reference to the host only while it answers a request.

use std::time::Duration;

use serde_json::{Value, json};

use crate::host::registry::LocalId;
use crate::host::{Host, WeakHost};
use crate::observe::run_times::RunTimeWindow;
use crate::observe::snapshot::CurrentStep;
use crate::observe::{
    CommandCount, ExitRecord, Explanation, Finding, LastMessage, ProcessDetails, ProcessQuery, ProcessRunTime,
    RunTimes, RunningStep, TypeRunTime, WaitEdge, WaitForGraph, WaitsFor, WorkerMetrics,
};
use crate::platform::clock::Instant;
use crate::platform::sync::{Arc, Weak};
use crate::process::pid::Pid;
use crate::runtime::console::action::perform;
use crate::runtime::console::client::{Answer, MAX_REQUEST, Then};
use crate::runtime::console::encoding::{MAX_REPLY, Reply, encode, line, list, no_process, refusal};
use crate::runtime::console::later::{Later, Response};
use crate::runtime::console::request::{ConsoleRequest, Fault, FaultKind, MAX_ROWS, ParsedLine, REQUESTS};
use crate::runtime::console::trace::{ConsoleTrace, no_trace};
use crate::runtime::console::{registered, tree};
use crate::runtime::enqueue::Threads;

/// Version of the protocol. The version stays the same if a change only adds a request or a field.
const VERSION: u32 = 1;

/// Data that the server collects for a client between two requests of this client.
#[derive(Default)]
pub(super) struct ClientSession {
    pub(super) trace: Option<ConsoleTrace>,
    run_times: Option<RunTimeWindow>,
}

/// If a client does not request run times within this time, the server closes the client's window of run times. A
/// client may stop without closing its connection.
const MAX_WINDOW: Duration = Duration::from_secs(60);

impl ClientSession {
    /// Time from which [`close_window`](Self::close_window) closes the window.
    pub(super) fn window_end(&self) -> Option<Instant> {
        self.run_times.as_ref().map(|window| window.begun() + MAX_WINDOW)
    }

    /// Closes the window of run times if the client has not requested run times for a long time.
    pub(super) fn close_window(&mut self, now: Instant) {
        if self.window_end().is_some_and(|end| end <= now) {
            self.run_times = None;
        }
    }
}

/// The runtime that the server inspects.
pub(super) struct Inspected {
    host: WeakHost,
    threads: Weak<Threads>,
    allows_actions: bool,
}

/// The first line of a connection.
pub(super) fn greeting(needs_token: bool) -> Vec<u8> {
    line(&json!({ "protocol": "procession-console", "version": VERSION, "token_required": needs_token }))
        .unwrap_or_default()
}

impl Inspected {
    pub(super) fn new(host: &Host, threads: &Arc<Threads>, allows_actions: bool) -> Self {
        Self { host: host.downgrade(), threads: Arc::downgrade(threads), allows_actions }
    }

    /// Answers a line. `token` is the token that the client must send, or `None` if the client is trusted. If the reply
    /// comes later, returns the [`Later`] that the server must poll.
    pub(super) fn answer(
        &self,
        line: &[u8],
        token: Option<&str>,
        session: &mut ClientSession,
    ) -> (Answer, Option<Later>) {
        if line.len() > MAX_REQUEST {
            let message = format!("the request is longer than {MAX_REQUEST} bytes");
            return (Answer { reply: refusal(FaultKind::RequestTooLong, message), then: Then::Close }, None);
        }
        let ParsedLine { id, request } = ParsedLine::parse(line);
        let (reply, then) = match (token, request) {
            (Some(token), request) => check_token(token, request),
            (None, request) => match request.and_then(|request| self.respond(request, session)) {
                Ok(Response::Now(reply)) => (Ok(reply), Then::Continue),
                Ok(Response::Later(later)) => {
                    return (Answer { reply: Vec::new(), then: Then::Wait }, Some(later.with_id(id)));
                }
                Err(fault) => (Err(fault), Then::Continue),
            },
        };
        (Answer { reply: encode(id, reply), then }, None)
    }

    fn respond(&self, request: ConsoleRequest, session: &mut ClientSession) -> Result<Response, Fault> {
        let (Some(host), Some(threads)) = (self.host.upgrade(), self.threads.upgrade()) else {
            return Err(Fault::new(FaultKind::Ended, "the runtime has shut down"));
        };
        match request {
            ConsoleRequest::SupervisionTree => Ok(Response::Later(tree::supervision_tree(host))),
            ConsoleRequest::Action(_) if !self.allows_actions => {
                let message = "actions are off; the program turns them on with `Builder::console_actions`";
                Err(Fault::new(FaultKind::ActionsOff, message))
            }
            ConsoleRequest::Action(action) => perform(&host, &threads, action),
            ConsoleRequest::Trace(target) => ConsoleTrace::start(&host, target, &mut session.trace).map(Response::Now),
            ConsoleRequest::TraceEvents { limit } => match &mut session.trace {
                Some(trace) => Ok(Response::Now(trace.events(&host, limit))),
                None => Err(no_trace()),
            },
            ConsoleRequest::StopTrace => ConsoleTrace::stop(&mut session.trace).map(Response::Now),
            ConsoleRequest::RunTimes { limit } => {
                let window = session.run_times.get_or_insert_with(|| host.open_run_time_window());
                Ok(Response::Now(run_times(&host, window, limit)))
            }
            ConsoleRequest::StopRunTimes => {
                session.run_times = None;
                Ok(Response::Now(json!({})))
            }
            request => self.reply(&host, &threads, request).map(Response::Now),
        }
    }

    fn reply(&self, host: &Host, threads: &Threads, request: ConsoleRequest) -> Reply {
        match request {
            // A trusted client needs no token.
            ConsoleRequest::Authenticate { .. } => Ok(json!({})),
            ConsoleRequest::Hello => Ok(self.hello(host)),
            ConsoleRequest::Overview => overview(host),
            ConsoleRequest::Processes(query) => processes(host, &query),
            ConsoleRequest::Process(pid) => match host.process_details(pid) {
                Some(details) => process(host, details),
                None => Err(no_process(pid)),
            },
            ConsoleRequest::WaitForGraph { limit } => Ok(wait_for_graph(host, host.wait_for_graph(), limit)),
            ConsoleRequest::Workers => workers(host, threads),
            ConsoleRequest::Explain => Ok(explanation(host)),
            ConsoleRequest::LastExits { limit } => last_exits(host, limit),
            ConsoleRequest::Names(prefix) => Ok(registered::names(host, &prefix)),
            ConsoleRequest::Groups(prefix) => Ok(registered::groups(host, &prefix)),
            ConsoleRequest::Timers => Ok(registered::timers(host)),
            ConsoleRequest::Handlers { limit } => Ok(registered::handlers(host, limit)),
            ConsoleRequest::SupervisionTree
            | ConsoleRequest::Trace(_)
            | ConsoleRequest::TraceEvents { .. }
            | ConsoleRequest::StopTrace
            | ConsoleRequest::RunTimes { .. }
            | ConsoleRequest::StopRunTimes
            | ConsoleRequest::Action(_) => unreachable!("`respond` answers them"),
        }
    }

    fn hello(&self, host: &Host) -> Value {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        json!({
            "program": program,
            "program_pid": std::process::id(),
            "crate_version": env!("CARGO_PKG_VERSION"),
            "node": host.node(),
            "now_ns": host.now().ns(),
            "actions": self.allows_actions,
            "traces": host.trace_count(),
            "requests": REQUESTS,
            "max_request_bytes": MAX_REQUEST,
            "max_reply_bytes": MAX_REPLY,
            "max_rows": MAX_ROWS,
        })
    }
}

/// Answers the first request of a client that must send a token.
fn check_token(token: &str, request: Result<ConsoleRequest, Fault>) -> (Reply, Then) {
    match request {
        Ok(ConsoleRequest::Authenticate { token: sent }) if is_equal(sent.as_bytes(), token.as_bytes()) => {
            (Ok(json!({})), Then::Trust)
        }
        Ok(ConsoleRequest::Authenticate { .. }) => {
            (Err(Fault::new(FaultKind::WrongToken, "the token is wrong")), Then::Close)
        }
        _ => {
            let message = "the first request must be `authenticate` with the token of `Builder::console_tcp`";
            (Err(Fault::new(FaultKind::TokenRequired, message)), Then::Close)
        }
    }
}

fn overview(host: &Host) -> Reply {
    let metrics = value(&host.metrics())?;
    Ok(json!({ "now_ns": host.now().ns(), "processes_alive": host.processes_alive(), "metrics": metrics }))
}

fn processes(host: &Host, query: &ProcessQuery) -> Reply {
    let rows = value(&host.processes(query))?;
    Ok(json!({ "now_ns": host.now().ns(), "processes_alive": host.processes_alive(), "rows": rows }))
}

fn process(host: &Host, details: ProcessDetails) -> Reply {
    let yields = details.yields.iter().map(|CommandCount { command, count, measured_since, line, handler }| {
        json!({
            "command": command,
            "count": count,
            "measured_since_ns": measured_since.map(Instant::ns),
            "line": line.map(ToString::to_string),
            "handler": handler,
        })
    });
    let step = details.step.map(|RunningStep { worker, blocked_since, is_asked_to_yield, .. }| {
        let blocked_since_ns = blocked_since.map(Instant::ns);
        json!({ "worker": worker, "blocked_since_ns": blocked_since_ns, "is_asked_to_yield": is_asked_to_yield })
    });
    Ok(json!({
        "now_ns": host.now().ns(),
        "info": value(&details.info)?,
        "supervisor": details.supervisor.map(|pid| pid.to_string()),
        "names": list(details.names),
        "groups": list(details.groups),
        "links": list(details.links.iter().map(Pid::to_string)),
        "monitors": list(details.monitors.iter().map(Pid::to_string)),
        "monitored_by": list(details.monitored_by.iter().map(Pid::to_string)),
        "joined_by": details.joined_by.map(|pid| pid.to_string()),
        "yields": list(yields),
        "timers_ns": list(details.timers.into_iter().map(Instant::ns)),
        "deadline_ns": details.deadline.map(Instant::ns),
        "inherited_values": list(details.inherited_values),
        "waits_for": list(details.waits_for.iter().map(wait)),
        "ready_since_ns": details.ready_since.map(Instant::ns),
        "step": step,
        "run_time_ns": details.run_time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        "memory_bytes": details.memory,
        "last_messages": value(&newest(&details.last_messages, MAX_MESSAGES))?,
        "message_counts": value(&details.message_counts)?,
    }))
}

/// The first request for run times opens the window. Therefore, the reply to this first request covers only a very
/// short time.
fn run_times(host: &Host, window: &mut RunTimeWindow, limit: usize) -> Value {
    let RunTimes { window, turns, run_time, processes, types, sampled_one_in, .. } = window.take(host, limit);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let process = |row: ProcessRunTime| {
        json!({
            "pid": row.pid.to_string(),
            "name": row.name,
            "type_name": row.type_name,
            "turns": row.turns,
            "run_time_ns": ns(row.run_time),
            "measured_turns": row.measured_turns,
            "last_worker": row.last_worker,
        })
    };
    let type_row = |TypeRunTime { type_name, turns, run_time, measured_turns, .. }: TypeRunTime| {
        let run_time_ns = ns(run_time);
        json!({
            "type_name": type_name, "turns": turns, "run_time_ns": run_time_ns, "measured_turns": measured_turns,
        })
    };
    json!({
        "now_ns": host.now().ns(),
        "window_ns": ns(window),
        "turns": turns,
        "run_time_ns": ns(run_time),
        "sampled_one_in": sampled_one_in,
        "processes": list(processes.into_iter().map(process)),
        "types": list(types.into_iter().map(type_row)),
    })
}

fn wait(waits_for: &WaitsFor) -> Value {
    let kind = match waits_for {
        WaitsFor::Message { .. } => "message",
        WaitsFor::Command(_) => "command",
        WaitsFor::Call { .. } => "call",
        WaitsFor::Sleep { .. } => "sleep",
        WaitsFor::Room { .. } => "room",
        WaitsFor::Exit { .. } => "exit",
        WaitsFor::Start { .. } => "start",
        WaitsFor::Blocking { .. } => "blocking",
        WaitsFor::Socket { .. } => "socket",
    };
    let until = if let WaitsFor::Sleep { until, .. } = waits_for { *until } else { None };
    json!({
        "kind": kind,
        "pid": waits_for.process().map(|pid| pid.to_string()),
        "line": waits_for.line().map(ToString::to_string),
        "until_ns": until.map(Instant::ns),
        "text": waits_for.to_string(),
    })
}

fn edge(edge: &WaitEdge) -> Value {
    json!({
        "pid": edge.pid.to_string(),
        "name": edge.name,
        "type_name": edge.type_name,
        "target": edge.target.to_string(),
        "waits_for": wait(&edge.waits_for),
        "in_block_on": edge.in_block_on,
    })
}

/// `limit` bounds each of four numbers: the edges, the deadlocks, the rows of all cycles together, and the processes in
/// all fields `behind` together. Each cycle gets an equal share of the rows and of the processes in `behind`.
fn wait_for_graph(host: &Host, graph: WaitForGraph, limit: usize) -> Value {
    let WaitForGraph { edges, deadlocks } = graph;
    let share = (limit / deadlocks.len().max(1)).max(1);
    let deadlock_rows = deadlocks.iter().take(limit).map(|deadlock| {
        json!({
            "cycle": list(deadlock.cycle.iter().take(share).map(edge)),
            "cycle_len": deadlock.cycle.len(),
            "behind": list(deadlock.behind.iter().take(share).map(Pid::to_string)),
            "behind_len": deadlock.behind.len(),
        })
    });
    json!({
        "now_ns": host.now().ns(),
        "edges": list(edges.iter().take(limit).map(edge)),
        "edge_count": edges.len(),
        "deadlocks": list(deadlock_rows),
        "deadlock_count": deadlocks.len(),
    })
}

fn workers(host: &Host, threads: &Threads) -> Reply {
    let gauges = threads.gauges();
    let row = |worker: &WorkerMetrics| {
        let mut row = value(worker)?;
        let step = gauges.steps.iter().find(|step| step.worker == worker.worker);
        if let Some(CurrentStep { process, polls, blocked_since, .. }) = step {
            let pid = process.map(|word| host.shared().pid_table.pid(LocalId::from(word)).to_string());
            row["process"] = pid.into();
            row["polls"] = (*polls).into();
            row["blocked_since_ns"] = blocked_since.map(Instant::ns).into();
            // `Finding::BlockedWorker` has the same flag.
            row["is_replaced"] = (blocked_since.is_some() && gauges.is_complete).into();
        }
        Ok(row)
    };
    let rows: Result<Vec<Value>, Fault> = gauges.workers.iter().map(row).collect();
    Ok(json!({ "now_ns": host.now().ns(), "requested": threads.workers(), "workers": rows? }))
}

/// Maximum number of findings in a reply.
const MAX_FINDINGS: usize = 100;

/// Maximum number of lines of all findings in a reply. Each finding gets an equal share of the lines.
const MAX_FINDING_LINES: usize = 500;

/// Returns the lines of a finding. If the finding has more than `max` lines, returns only the first lines and the last
/// line. The last line says what to do.
fn finding_lines(finding: &Finding, max: usize) -> Vec<String> {
    let text = finding.to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.len() > max {
        let kept = max.saturating_sub(2);
        let omitted = lines.len() - 1 - kept;
        lines.drain(kept..kept + omitted);
        lines.insert(kept, format!("  and {omitted} more"));
    }
    lines
}

fn explanation(host: &Host) -> Value {
    let Explanation { findings, activity } = host.explain();
    let max_lines = MAX_FINDING_LINES / findings.len().clamp(1, MAX_FINDINGS);
    let finding = |finding: &Finding| {
        let kind = match finding {
            Finding::NoThread { .. } => "no_thread",
            Finding::LocalSetWithoutThread { .. } => "local_set_without_thread",
            Finding::Deadlock(_) => "deadlock",
            Finding::BlockedWorker { .. } => "blocked_worker",
            Finding::BusyBlockingPool { .. } => "busy_blocking_pool",
            Finding::UnansweredCommands { .. } => "unanswered_commands",
            Finding::FullMailbox { .. } => "full_mailbox",
            Finding::GrowingMailbox { .. } => "growing_mailbox",
            Finding::LongMailbox { .. } => "long_mailbox",
            Finding::Suspended { .. } => "suspended",
            Finding::IgnoredCancellation { .. } => "ignored_cancellation",
            Finding::NothingOutstanding { .. } => "nothing_outstanding",
        };
        let lasts = match finding {
            Finding::BlockedWorker { lasts, .. } | Finding::GrowingMailbox { lasts, .. } => Some(*lasts),
            Finding::UnansweredCommands { lasts, .. } => *lasts,
            _ => None,
        };
        let lasts = lasts.map(|lasts| u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX));
        json!({ "kind": kind, "lasts_ns": lasts, "lines": list(finding_lines(finding, max_lines)) })
    };
    json!({
        "now_ns": host.now().ns(),
        "findings": list(findings.iter().take(MAX_FINDINGS).map(finding)),
        "finding_count": findings.len(),
        "activity": list(activity.to_string().lines()),
    })
}

/// Maximum number of last messages in the details of a process.
const MAX_MESSAGES: usize = 100;

/// Maximum number of last messages in the record of an exit.
const MAX_MESSAGES_OF_EXIT: usize = 8;

/// Returns the newest `most` messages.
fn newest(messages: &[LastMessage], most: usize) -> &[LastMessage] {
    &messages[messages.len().saturating_sub(most)..]
}

/// The newest exit comes first.
fn last_exits(host: &Host, limit: usize) -> Reply {
    let exits = host.last_exits();
    let row = |record: &ExitRecord| {
        Ok(json!({
            "pid": record.pid.to_string(),
            "name": record.name,
            "type_name": record.type_name,
            "parent": record.parent.map(|pid| pid.to_string()),
            "exit": record.exit.to_string(),
            "location": record.location(),
            "mailbox_len": record.mailbox_len,
            "at_ns": record.at.ns(),
            "last_messages": value(&newest(&record.last_messages, MAX_MESSAGES_OF_EXIT))?,
        }))
    };
    let rows: Result<Vec<Value>, Fault> = exits.iter().rev().take(limit).map(row).collect();
    Ok(json!({ "now_ns": host.now().ns(), "exits": rows? }))
}

fn value(of: &impl serde::Serialize) -> Reply {
    serde_json::to_value(of).map_err(|error| Fault::new(FaultKind::ReplyTooLong, error.to_string()))
}

/// Compares two texts in a time that does not depend on the position of the first difference.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::run_times::RunTimeTables;

    #[test]
    fn tokens_are_equal_only_if_all_their_bytes_are_equal() {
        assert!(is_equal(b"secret", b"secret"));
        assert!(!is_equal(b"secret", b"secreT") && !is_equal(b"secret", b"secret1") && !is_equal(b"", b"secret"));
    }

    #[test]
    fn the_window_of_a_client_without_requests_is_closed() {
        let tables: Arc<RunTimeTables> = Arc::default();
        let at = |seconds| Instant::from_ns(0) + Duration::from_secs(seconds);
        let mut session = ClientSession::default();
        assert_eq!(session.window_end(), None);
        session.run_times = Some(RunTimeWindow::open(&tables, 64, at(7)));
        assert_eq!(session.window_end(), Some(at(67)));
        session.close_window(at(66));
        assert!(session.run_times.is_some());
        session.close_window(at(67));
        assert!(session.run_times.is_none());
        tables.add(|| unreachable!("no window is open"));
    }
}
