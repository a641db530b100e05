//! The live trace of a console. Each client has at most one live trace, and this trace shows one process.
//!
//! Every 50 ms, the thread of the server collects the events into a buffer of at most 4,096 events. The client takes
//! the events out of this buffer. Therefore, even if a client never takes events out of the buffer, the memory of the
//! buffer is bounded. The trace ends when a limit is reached, when the process exits, or when the connection ends.

use std::time::Duration;

use serde_json::{Value, json};

use crate::host::Host;
use crate::host::registry::LocalId;
use crate::observe::trace::live::{LiveTrace, MAX_UNREAD};
use crate::observe::trace::{Lane, TraceEntry, TraceEvent};
use crate::observe::{ProcessState, TraceOptions};
use crate::platform::clock::Instant;
use crate::runtime::console::encoding::{Reply, list, no_process};
use crate::runtime::console::request::{Fault, FaultKind, TraceTarget};

/// Time between two collections of the events.
const INTERVAL: Duration = Duration::from_millis(50);

/// Reason why a trace has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    MaxEvents,
    MaxTime,
    Exit,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::MaxEvents => "max_events",
            Self::MaxTime => "max_ms",
            Self::Exit => "exit",
        }
    }
}

/// The trace of a client. The drop ends the trace.
pub(super) struct ConsoleTrace {
    live: LiveTrace,
    target: TraceTarget,
    /// Time at which the trace ends.
    until: Instant,
    /// Time of the next collection.
    next: Instant,
    end: Option<End>,
}

impl ConsoleTrace {
    /// Starts a trace, and stores the trace in `place`. The new trace replaces the previous trace of the client.
    /// Returns the reply.
    pub(super) fn start(host: &Host, target: TraceTarget, place: &mut Option<Self>) -> Reply {
        let TraceTarget { pid, max_events, max_rate, max_time } = target;
        let options = TraceOptions::new().process(pid).max_events(max_events).max_rate(max_rate);
        let (live, label) = host.start_live_trace(&options).ok_or_else(|| no_process(pid))?;
        let now = host.now();
        *place = Some(Self { live, target, until: now + max_time, next: now + INTERVAL, end: None });
        Ok(json!({
            "now_ns": now.ns(),
            "pid": pid.to_string(),
            "label": label,
            "max_events": max_events,
            "max_rate": max_rate,
            "max_ms": u64::try_from(max_time.as_millis()).unwrap_or(u64::MAX),
            "max_unread": MAX_UNREAD,
        }))
    }

    /// Time of the next call of [`collect`](Self::collect). `None` after the end of the trace.
    pub(super) fn next(&self) -> Option<Instant> {
        self.end.is_none().then(|| self.next.min(self.until))
    }

    /// Collects the events if the time of the next collection has come. Ends the trace if a limit is reached or the
    /// process has exited.
    pub(super) fn collect(&mut self, now: Instant) {
        if self.next().is_none_or(|next| now < next) {
            return;
        }
        self.next = now + INTERVAL;
        self.live.collect(now.ns());
        let end = match self.live.is_over() {
            true if self.live.counts().0 >= self.target.max_events => End::MaxEvents,
            true => End::Exit,
            false if now >= self.until => End::MaxTime,
            false => return,
        };
        self.end = Some(end);
        self.live.finish();
    }

    /// Takes the oldest events out of the buffer.
    pub(super) fn events(&mut self, host: &Host, limit: usize) -> Value {
        let rows = list(self.live.take(limit).map(|entry| row(host, entry)));
        let (event_count, lost) = self.live.counts();
        json!({
            "now_ns": host.now().ns(),
            "pid": self.target.pid.to_string(),
            "events": rows,
            "unread": self.live.unread(),
            "event_count": event_count,
            "lost": lost,
            "ended": self.end.map(End::name),
        })
    }

    /// Ends the trace of a client. Returns the reply.
    pub(super) fn stop(place: &mut Option<Self>) -> Reply {
        let mut trace = place.take().ok_or_else(no_trace)?;
        trace.live.finish();
        let (event_count, lost) = trace.live.counts();
        Ok(json!({ "event_count": event_count, "lost": lost }))
    }
}

pub(super) fn no_trace() -> Fault {
    Fault::new(FaultKind::NoTrace, "this console traces no process; the request `trace` starts a trace")
}

/// A row contains only the fields of its event.
fn row(host: &Host, TraceEntry { at, lane, event }: TraceEntry) -> Value {
    let worker = match (event, lane) {
        (TraceEvent::Worker { slot, .. }, _) => Some(slot),
        (_, Lane::Worker(slot)) => Some(slot.into()),
        (_, Lane::Outside(_)) => None,
    };
    let mut row = json!({ "at_ns": at, "worker": worker, "event": name(event) });
    // The number 0 means code that runs outside all processes.
    let pid = |word| (word != 0).then(|| host.shared().pid_table.pid(LocalId::from(word)).to_string());
    match event {
        TraceEvent::Sent { to, from } => (row["from"], row["to"]) = (pid(from).into(), pid(to).into()),
        TraceEvent::Created { parent, .. } => row["from"] = pid(parent).into(),
        TraceEvent::Yielded { tag, .. } | TraceEvent::Completed { tag, .. } => row["tag"] = tag.into(),
        TraceEvent::Lost { total } => row["count"] = total.into(),
        _ => {}
    }
    row
}

fn name(event: TraceEvent) -> &'static str {
    match event {
        TraceEvent::State { to: ProcessState::Ready, .. } => "ready",
        TraceEvent::State { to: ProcessState::Running, .. } => "running",
        TraceEvent::State { to: ProcessState::Blocked, .. } => "blocked",
        TraceEvent::State { to: ProcessState::Idle, .. } => "idle",
        TraceEvent::State { to: ProcessState::Complete, .. } => "complete",
        TraceEvent::State { to: ProcessState::Suspended, .. } => "suspended",
        TraceEvent::Step { .. } => "step",
        TraceEvent::Created { .. } => "spawned",
        TraceEvent::Ended { .. } => "exited",
        // In a trace of one process, this event always means that a worker is blocked.
        TraceEvent::Worker { .. } => "blocked_worker",
        TraceEvent::Stolen { .. } => "stolen",
        TraceEvent::Preempted { .. } => "preempted",
        TraceEvent::Sent { .. } => "sent",
        TraceEvent::Received { .. } => "received",
        TraceEvent::Reordered { .. } => "reordered",
        TraceEvent::Yielded { .. } => "yielded",
        TraceEvent::Completed { .. } => "completed",
        TraceEvent::Lost { .. } => "lost",
        TraceEvent::Skipped { .. } => "skipped",
    }
}
