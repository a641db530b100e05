//! The actions: requests that change the program.
//!
//! For the action `restart_child`, the server needs an answer of the supervisor. For the action `write_flight_record`,
//! a separate thread writes a file. Therefore, the replies to these two actions come later.

use std::io;
use std::time::Duration;

use futures::channel::oneshot;
use serde_json::json;

use crate::behaviour::supervisor::{ChildId, SupervisorMessage};
use crate::host::Host;
use crate::host::trace::flight::{RecordRefusal, RequestedRecord};
use crate::observe::FlightSummary;
use crate::platform::sync::{Arc, thread};
use crate::process::error::SendErrorKind;
use crate::process::exit::Exit;
use crate::process::failure::CallError;
use crate::process::pid::Pid;
use crate::runtime::console::encoding::{Reply, no_process};
use crate::runtime::console::later::{Later, Response};
use crate::runtime::console::request::{Action, Fault, FaultKind, RestartTarget};
use crate::runtime::enqueue::Threads;

/// Maximum time that a supervisor may need to restart a child. By default, a child may need up to 5 s of this time to
/// exit.
const RESTART_TIMEOUT: Duration = Duration::from_secs(8);

/// Maximum time that the write of a flight record may need.
const WRITE_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) fn perform(host: &Host, threads: &Arc<Threads>, action: Action) -> Result<Response, Fault> {
    let done = match action {
        Action::Cancel { pid, reason, grace } => host.cancel(pid, reason, grace),
        Action::Kill { pid } => host.kill(pid),
        Action::Suspend { pid } => host.suspend(pid),
        Action::Resume { pid } => host.resume(pid),
        Action::SetPriority { pid, priority } => host.set_priority(pid, priority),
        Action::SetWorkers { count } => {
            threads.set_workers(count);
            return Ok(Response::Now(json!({ "workers": threads.workers() })));
        }
        Action::RestartChild(restarted) => return restart(host, restarted).map(Response::Later),
        Action::WriteFlightRecord => return write_flight_record(host).map(Response::Later),
    };
    done.map(|()| Response::Now(json!({}))).map_err(|error| no_process(error.0))
}

fn restart(host: &Host, restarted: RestartTarget) -> Result<Later, Fault> {
    let (supervisor, child) = match restarted {
        RestartTarget::Child { supervisor, child } => (supervisor, child),
        RestartTarget::Process(pid) => {
            let no_parent = || Fault::new(FaultKind::NoSupervisor, format!("process {pid} has no supervisor"));
            (host.parent(pid).ok_or_else(|| no_process(pid))?.ok_or_else(no_parent)?, ChildId::Pid(pid))
        }
    };
    // A process that accepts messages of any type would accept the request, and would never answer the request.
    if !host.has_message_type::<SupervisorMessage>(supervisor).ok_or_else(|| no_process(supervisor))? {
        return Err(Fault::new(FaultKind::NoSupervisor, format!("process {supervisor} is not a supervisor")));
    }
    let overdue = "the supervisor has not answered in time; the child may still be restarted";
    let restarted = host.call(supervisor, |reply| SupervisorMessage::RestartChild(child, reply));
    Ok(Later::new(host, RESTART_TIMEOUT, overdue, async move { restart_reply(supervisor, restarted.await) }))
}

fn restart_reply(supervisor: Pid, answer: Result<Result<Pid, Exit>, CallError>) -> Reply {
    let (kind, message) = match answer {
        Ok(Ok(pid)) => return Ok(json!({ "pid": pid.to_string() })),
        Ok(Err(Exit::NoProcess)) => {
            (FaultKind::NoChild, format!("the supervisor {supervisor} has no such child, or is exiting"))
        }
        Ok(Err(exit)) => (FaultKind::StartFailed, format!("the child has not started: {exit}")),
        Err(CallError::Send(SendErrorKind::NoProcess)) => return Err(no_process(supervisor)),
        Err(error) => (FaultKind::NoAnswer, error.to_string()),
    };
    Err(Fault::new(kind, message))
}

fn write_flight_record(host: &Host) -> Result<Later, Fault> {
    let record = host.request_flight_record().map_err(|error| {
        let kind = match error {
            RecordRefusal::NoRecorder => FaultKind::NoFlightRecorder,
            RecordRefusal::MaxFiles => FaultKind::FileLimit,
            RecordRefusal::Busy => FaultKind::Busy,
            RecordRefusal::Ended => FaultKind::Ended,
        };
        Fault::new(kind, error.to_string())
    })?;
    let (tell, told) = oneshot::channel();
    let write = move || _ = tell.send(write_reply(record));
    let started = thread::Builder::new().name("procession-flight".into()).spawn(write);
    started.map_err(|error| Fault::new(FaultKind::WriteFailed, format!("no thread can be started: {error}")))?;
    let panicked = || Err(Fault::new(FaultKind::WriteFailed, "the thread that writes the file has panicked"));
    let overdue = "the flight record is not written in time; the program continues to write it";
    Ok(Later::new(host, WRITE_TIMEOUT, overdue, async move { told.await.unwrap_or_else(|_| panicked()) }))
}

fn write_reply(record: RequestedRecord) -> Reply {
    let (path, written): (_, io::Result<FlightSummary>) = record.write();
    let path = path.display().to_string();
    let FlightSummary { events, overwritten, complete } =
        written.map_err(|error| Fault::new(FaultKind::WriteFailed, format!("{path}: {error}")))?;
    let complete_ns = u64::try_from(complete.as_nanos()).unwrap_or(u64::MAX);
    Ok(json!({ "path": path, "events": events, "overwritten": overwritten, "complete_ns": complete_ns }))
}
