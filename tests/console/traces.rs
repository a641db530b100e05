//! Tests of section 9.6 of `tests/promises.md`: the live trace of one process.

use std::future::pending;
use std::sync::mpsc;

use procession::*;
use serde_json::{Value, json};

use crate::{Client, Folder, within};

/// Returns a runtime with one worker, and a client of the console of this runtime.
fn open(folder: &Folder) -> (Runtime, Client) {
    let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
    let client = Client::attach(&folder.socket());
    (rt, client)
}

/// Reads the events until the end of the trace. Returns the events and the last reply.
fn events(client: &mut Client) -> (Vec<Value>, Value) {
    let mut all = Vec::new();
    loop {
        let mut reply = client.ask(json!({ "request": "trace_events", "limit": 1_000 }));
        all.append(reply["events"].as_array_mut().unwrap());
        if !reply["ended"].is_null() && reply["unread"] == 0 {
            return (all, reply);
        }
        std::thread::yield_now();
    }
}

/// Waits until exactly `count` traces are active.
fn wait_for_traces(client: &mut Client, count: u64) {
    while client.ask(json!({ "request": "hello" }))["traces"] != count {
        std::thread::yield_now();
    }
}

/// Receives a number, and sends itself the next number, until the number is `last`.
async fn count(mut ctx: Context<u64>, last: u64) {
    let own = ctx.address();
    while let Ok(number) = ctx.receive().await {
        if number == last {
            return;
        }
        own.send(number + 1).unwrap();
    }
}

/// 9.6f: the trace of a process contains an event for each message that is sent to the process, and an event for each
/// message that the process receives. The events are in the order in which the events happened. If a process has sent the
/// message, the event of the send contains the pid of this process. The trace ends when the process exits.
#[test]
fn a_trace_contains_the_messages_and_states_of_one_process_in_order() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = open(&folder);
        let (tell, told) = mpsc::channel();
        let body = async move |ctx: Context<u64>| {
            tell.send(()).unwrap();
            count(ctx, 2).await;
        };
        let counter = rt.process().name("counter").spawn(body).unwrap();
        told.recv().unwrap();
        let pid = counter.pid().to_string();
        let reply = client.ask(json!({ "request": "trace", "pid": pid }));
        assert!(reply["label"].as_str().unwrap().starts_with("counter ("), "{reply}");
        assert_eq!(client.ask(json!({ "request": "hello" }))["traces"], 1);
        let to = counter.address().clone();
        // A call of `block_on` would also run processes on this thread. Without a call of `block_on`, only the worker
        // runs processes, so the order of the events is fixed.
        let other = rt.spawn(async move |_: Context| to.send(0).unwrap());
        let sender = other.pid().to_string();
        let (events, last) = events(&mut client);
        assert_eq!((&last["ended"], &last["lost"]), (&json!("exit"), &json!(0)));
        assert_eq!(last["event_count"], events.len());
        let messages: Vec<_> = events
            .iter()
            .filter(|event| ["sent", "received", "exited"].contains(&event["event"].as_str().unwrap()))
            .map(|event| (event["event"].as_str().unwrap(), event["from"].as_str()))
            .collect();
        let (other, own) = (Some(&*sender), Some(&*pid));
        let expected = [
            ("sent", other),
            ("received", None),
            ("sent", own),
            ("received", None),
            ("sent", own),
            ("received", None),
            ("exited", None),
        ];
        assert_eq!(messages, expected);
        assert!(events.iter().all(|event| event["to"].is_null() || event["to"] == *pid));
        assert!(events.is_sorted_by_key(|event| event["at_ns"].as_u64().unwrap()));
        let on_worker = |event: &&Value| event["worker"] == 0;
        assert!(events.iter().filter(on_worker).any(|event| event["event"] == "running"), "{events:?}");
        wait_for_traces(&mut client, 0);
        assert_eq!(client.fails(json!({ "request": "trace", "pid": pid })), "no_process");
    });
}

/// 9.6f: a trace ends after its maximum number of events, or after its maximum duration. If the events of the process
/// exceed the maximum rate of the trace, the trace skips whole turns.
#[test]
fn the_limits_of_a_trace_end_the_trace() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = open(&folder);
        let counter = rt.spawn(async |ctx| count(ctx, u64::MAX).await);
        let pid = counter.pid().to_string();
        counter.send(0).unwrap();
        client.ask(json!({ "request": "trace", "pid": pid, "max_events": 10, "max_rate": 10_000 }));
        let (ten, last) = events(&mut client);
        assert_eq!((&last["ended"], &last["event_count"]), (&json!("max_events"), &json!(10)));
        assert_eq!(ten.iter().filter(|event| event["event"] != "lost").count(), 10);
        // A new trace of a client replaces the previous trace of this client.
        client.ask(json!({ "request": "trace", "pid": pid, "max_rate": 1, "max_ms": 200, "max_events": 100_000 }));
        let (few, last) = events(&mut client);
        assert_eq!(last["ended"], "max_ms");
        // If the events exceed the maximum rate, the trace skips whole turns. A turn has about 100 events, and the
        // process has thousands of events in 200 ms.
        assert!(few.len() < 1_000 && last["lost"].as_u64().unwrap() > 100, "{} {last}", few.len());
        wait_for_traces(&mut client, 0);
        rt.kill(counter.pid()).unwrap();
    });
}

/// 9.6f: the server stores at most 4,096 events that the client has not taken. The server discards and counts the other
/// events.
#[test]
fn the_number_of_events_that_a_client_has_not_taken_is_bounded() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = open(&folder);
        let counter = rt.spawn(async |ctx| count(ctx, u64::MAX).await);
        let pid = counter.pid().to_string();
        counter.send(0).unwrap();
        client.ask(json!({ "request": "trace", "pid": pid, "max_rate": 10_000, "max_events": 10_000 }));
        // When the trace ends, the server closes the session of the trace. Until the server has closed the session, the
        // client takes no event.
        wait_for_traces(&mut client, 0);
        let mut reply = client.ask(json!({ "request": "trace_events", "limit": 1_000 }));
        assert_eq!((&reply["ended"], &reply["event_count"]), (&json!("max_events"), &json!(10_000)));
        let mut taken = reply["events"].as_array().unwrap().len();
        assert_eq!(taken, 1_000);
        assert!(reply["lost"].as_u64().unwrap() >= 10_000 - 4_096, "{reply}");
        while reply["unread"] != 0 {
            reply = client.ask(json!({ "request": "trace_events", "limit": 1_000 }));
            taken += reply["events"].as_array().unwrap().len();
        }
        assert!(taken <= 4_096, "{taken}");
        rt.kill(counter.pid()).unwrap();
    });
}

/// 9.6f: each console has its own trace. The trace ends when the connection of the console closes, or when the console
/// requests the end.
#[test]
fn a_trace_ends_with_its_connection() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = open(&folder);
        let [one, two] = [(); 2].map(|()| rt.spawn(async |ctx| count(ctx, 1).await));
        let idle = rt.spawn(async |_: Context| pending::<()>().await);
        let [first, second, third] = [one.pid(), two.pid(), idle.pid()].map(|pid| pid.to_string());
        let mut others = [(); 2].map(|()| Client::attach(&folder.socket()));
        client.ask(json!({ "request": "trace", "pid": first }));
        others[0].ask(json!({ "request": "trace", "pid": second }));
        others[1].ask(json!({ "request": "trace", "pid": third }));
        assert_eq!(client.ask(json!({ "request": "hello" }))["traces"], 3);
        drop(idle);
        let [mut other, gone] = others;
        drop(gone);
        wait_for_traces(&mut client, 2);
        other.ask(json!({ "request": "stop_trace" }));
        assert_eq!(client.ask(json!({ "request": "hello" }))["traces"], 1);
        assert_eq!(other.fails(json!({ "request": "trace_events" })), "no_trace");
        assert_eq!(other.fails(json!({ "request": "stop_trace" })), "no_trace");
        other.ask(json!({ "request": "trace", "pid": second }));
        one.send(1).unwrap();
        two.send(1).unwrap();
        for (console, pid) in [(&mut client, first), (&mut other, second)] {
            let (events, last) = events(console);
            assert_eq!((&last["pid"], &last["ended"]), (&json!(pid), &json!("exit")));
            let to: Vec<_> = events.iter().filter_map(|event| event["to"].as_str()).collect();
            assert_eq!(to, [&*pid]);
            assert!(events.iter().all(|event| event["event"] != "sent" || event["from"].is_null()));
        }
        drop((client, other));
        wait_for_traces(&mut Client::attach(&folder.socket()), 0);
    });
}

/// A client can trace a process of a runtime without workers. The end of the runtime ends the trace.
#[test]
fn the_end_of_a_runtime_ends_its_traces() {
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(0).console(folder.socket()).build().unwrap();
        let mut client = Client::attach(&folder.socket());
        let counter = rt.spawn(async |ctx| count(ctx, 1).await);
        client.ask(json!({ "request": "trace", "pid": counter.pid().to_string() }));
        let host = rt.host().clone();
        drop(rt);
        assert!(client.next().is_none());
        drop(host);
    });
}
