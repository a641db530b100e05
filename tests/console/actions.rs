//! Tests of section 9.6 of `tests/promises.md`: the actions that the server does not answer immediately.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use procession::observe::FlightRecorder;
use procession::*;
use serde_json::{Value, json};

use crate::{Client, Folder, within};

/// Returns a runtime with one worker, and a client of the console of this runtime. The console allows actions.
fn active(folder: &Folder) -> (Runtime, Client) {
    let rt = Runtime::builder().workers(1).console(folder.socket()).console_actions(true).build().unwrap();
    let client = Client::attach(&folder.socket());
    (rt, client)
}

/// 9.6e: a console restarts a child of a supervisor. The request identifies the child by the pid of the child, or by
/// the supervisor and the name of the child.
#[test]
fn a_child_is_restarted_by_its_pid_or_by_its_name() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = active(&folder);
        let (tell, told) = mpsc::channel();
        let child = Child::new("store", move |mut ctx: Context<()>| {
            let tell = tell.clone();
            async move {
                tell.send(ctx.pid()).unwrap();
                ctx.receive().await
            }
        });
        // The intensity of the supervisor does not limit the restarts that a console requests.
        let top = rt.spawn_process(Supervisor::one_for_one().intensity(0, Duration::from_secs(60)).add(child));
        let first = told.recv().unwrap();
        rt.block_on(top.started()).unwrap();
        let supervisor = top.pid().to_string();
        let mut restart = |fields: Value| {
            let mut request = json!({ "request": "restart_child" });
            request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let pid = client.ask(request)["pid"].as_str().unwrap().to_owned();
            assert_eq!(pid, told.recv().unwrap().to_string());
            pid
        };
        let second = restart(json!({ "pid": first.to_string() }));
        assert_ne!(second, first.to_string());
        assert!(rt.process_details(first).is_none(), "the former instance has exited");
        let third = restart(json!({ "pid": second, "supervisor": supervisor }));
        let fourth = restart(json!({ "name": "store", "supervisor": supervisor }));
        assert!(third != second && fourth != third);
        assert!(told.try_recv().is_err(), "the child was restarted once more");
        assert_eq!(rt.whereis("store").map(|pid| pid.to_string()), Some(fourth));
    });
}

#[test]
fn the_reply_to_a_failed_restart_states_the_reason() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = active(&folder);
        let has_started = Arc::new(AtomicBool::new(false));
        let once = Child::unnamed(move |ctx: Context<()>| {
            let is_first = !has_started.swap(true, Ordering::SeqCst);
            async move {
                if !is_first {
                    return Err::<(), _>(Exit::failed("no disk"));
                }
                ctx.mark_started();
                std::future::pending().await
            }
        });
        let once =
            once.restart(RestartPolicy::Temporary).shutdown(Duration::ZERO).options(ProcessBuilder::manual_start);
        let top = rt.spawn_process(Supervisor::one_for_one().add(once));
        rt.block_on(top.started()).unwrap();
        let child = rt.block_on(rt.supervision_tree(&top)).unwrap().children[0].pid.unwrap();
        let other = rt.spawn(async |_: Context| std::future::pending::<()>().await);
        let [top, child, other] = [top.pid(), child, other.pid()].map(|pid| pid.to_string());
        let gone = rt.spawn(async |_: Context| ());
        let gone_pid = gone.pid().to_string();
        rt.block_on(gone).unwrap();
        let mut restart = |fields: Value| {
            let mut request = json!({ "request": "restart_child" });
            request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            client.fails(request)
        };
        for (fields, kind) in [
            (json!({ "pid": gone_pid }), "no_process"),
            (json!({ "pid": child, "supervisor": gone_pid }), "no_process"),
            (json!({ "pid": other }), "no_supervisor"),
            (json!({ "pid": top }), "no_supervisor"),
            (json!({ "pid": child, "supervisor": other }), "no_supervisor"),
            (json!({ "pid": other, "supervisor": top }), "no_child"),
            (json!({ "name": "store", "supervisor": top }), "no_child"),
            (json!({ "pid": child }), "start_failed"),
            (json!({ "pid": child }), "no_process"),
        ] {
            assert_eq!(restart(fields.clone()), kind, "{fields}");
        }
    });
}

/// Returns a runtime and a client of the console of this runtime. The flight recorder of the runtime writes to the
/// folder.
fn recording(socket: &Path, folder: &Path) -> (Runtime, Client) {
    let recorder = FlightRecorder::new().buffer_size(0).folder(folder).max_files(2);
    let builder = Runtime::builder().workers(1).console(socket).console_actions(true).flight_recorder(recorder);
    let rt = builder.build().unwrap();
    rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).unwrap();
    let client = Client::attach(socket);
    (rt, client)
}

/// 9.6e: a console writes a flight record only to the folder that the program has chosen.
#[test]
fn a_flight_record_is_written_to_the_folder_of_the_program() {
    within(60, || {
        let (folder, records) = (Folder::new(), Folder::new());
        let (rt, mut client) = recording(&folder.socket(), &records.0);
        let chosen = folder.0.join("mine.pftrace");
        for number in 1..=2 {
            // The protocol defines no field `path` for this request, so the server ignores the field.
            let reply = client.ask(json!({ "request": "write_flight_record", "path": chosen }));
            let name = format!("flight-{}-{}-{number}-console.pftrace", std::process::id(), rt.node());
            assert_eq!(reply["path"].as_str(), records.0.join(&name).to_str());
            assert!(reply["events"].as_u64().unwrap() > 0 && reply["overwritten"] == 0, "{reply}");
            assert!(fs::metadata(records.0.join(name)).unwrap().len() > 0);
        }
        assert_eq!(client.fails(json!({ "request": "write_flight_record" })), "file_limit");
        assert_eq!(fs::read_dir(&records.0).unwrap().count(), 2);
        assert!(!chosen.exists());
    });
}

#[test]
fn a_flight_record_that_cannot_be_written_causes_an_error() {
    within(60, || {
        let (folder, records) = (Folder::new(), Folder::new());
        let missing = records.0.join("missing");
        let (_rt, mut client) = recording(&folder.socket(), &missing);
        (0..3).for_each(|_| assert_eq!(client.fails(json!({ "request": "write_flight_record" })), "write_failed"));
        fs::create_dir(&missing).unwrap();
        client.ask(json!({ "request": "write_flight_record" }));
        let other = Folder::new();
        let (_rt, mut client) = active(&other);
        assert_eq!(client.fails(json!({ "request": "write_flight_record" })), "no_flight_recorder");
    });
}
