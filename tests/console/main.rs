//! Tests of section 9.6 of `tests/promises.md`: the server to which consoles attach, over real sockets.

#![cfg(unix)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod actions;
mod churn;
mod idle;
#[path = "../it/subprocess.rs"]
mod subprocess;
mod traces;

use std::collections::BTreeSet;
use std::fs;
use std::future::pending;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use procession::*;
use serde_json::{Value, json};

use crate::subprocess::{ROLE, again_with, role};

/// Factor for all time limits, from the environment variable `TEST_PATIENCE`.
fn patience() -> u32 {
    std::env::var("TEST_PATIENCE").map_or(1, |times| times.parse().expect("a number"))
}

/// Runs `f` on a new thread. Fails if `f` has not returned within the time limit.
fn within(seconds: u64, f: impl FnOnce() + Send + 'static) {
    let (done, result) = mpsc::channel();
    let runner = std::thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match result.recv_timeout(Duration::from_secs(seconds) * patience()) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: not done after {seconds} s"),
        _ => runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

const TOKEN: &str = "0123456789abcdef";

/// Folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("procession-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("console")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Client of the server.
struct Client {
    reader: BufReader<Box<dyn Read>>,
    writer: Box<dyn Write>,
}

impl Client {
    /// Connects, and checks the greeting.
    fn attach(path: &Path) -> Self {
        let mut client = Self::connect(path);
        assert_eq!(client.line()["protocol"], "procession-console");
        client
    }

    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30) * patience())).unwrap();
        let writer = Box::new(stream.try_clone().unwrap());
        Self { reader: BufReader::new(Box::new(stream)), writer }
    }

    fn tcp(rt: &Runtime) -> Self {
        let stream = TcpStream::connect(rt.console_address().expect("a TCP socket")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30) * patience())).unwrap();
        let writer = Box::new(stream.try_clone().unwrap());
        Self { reader: BufReader::new(Box::new(stream)), writer }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).unwrap();
    }

    /// Reads a line. Returns `None` if the server has closed the connection.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            read => {
                read.unwrap();
                Some(serde_json::from_str(&line).expect("a line of JSON"))
            }
        }
    }

    fn line(&mut self) -> Value {
        self.next().expect("a line")
    }

    /// Sends a request, and returns the whole reply to this request.
    fn reply(&mut self, request: &Value) -> Value {
        self.send(format!("{request}\n").as_bytes());
        self.line()
    }

    /// Sends a request that succeeds.
    #[track_caller]
    fn ask(&mut self, request: Value) -> Value {
        let mut reply = self.reply(&request);
        assert!(reply["error"].is_null(), "{request}: {reply}");
        reply["ok"].take()
    }

    /// Sends a request that fails. Returns the kind of the error.
    #[track_caller]
    fn fails(&mut self, request: Value) -> String {
        let reply = self.reply(&request);
        assert!(reply["error"]["message"].is_string() && reply["ok"].is_null(), "{request}: {reply}");
        reply["error"]["kind"].as_str().expect("a kind").to_owned()
    }
}

/// Returns a runtime without workers, and a client of the console of this runtime.
fn lone(folder: &Folder) -> (Runtime, Client) {
    let rt = Runtime::builder().workers(0).console(folder.socket()).build().unwrap();
    let client = Client::attach(&folder.socket());
    (rt, client)
}

/// 9.6a: the file has the permissions 0600, and is removed with the runtime. If the program does not request a console,
/// the runtime creates no socket.
#[test]
fn the_socket_file_is_private_and_is_removed() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let file = fs::symlink_metadata(folder.socket()).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o7777, 0o600);
        assert_eq!(client.ask(json!({ "request": "hello" }))["actions"], false);
        drop(rt);
        assert!(client.next().is_none(), "the server ends with the runtime");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
        let closed = Runtime::builder().workers(0).build().unwrap();
        assert_eq!(closed.console_address(), None);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    });
}

#[test]
fn a_file_is_replaced_only_if_it_is_a_socket_without_a_server() {
    within(60, || {
        let folder = Folder::new();
        let build = || Runtime::builder().workers(0).console(folder.socket()).build();
        // The drop of a listener does not remove its file, so the file is then a socket without a server.
        drop(UnixListener::bind(folder.socket()).unwrap());
        let rt = build().unwrap();
        Client::attach(&folder.socket());
        let Err(BuildError::Console { at, error }) = build() else { panic!("two servers have the same socket") };
        assert_eq!((at, error.kind()), (folder.socket().display().to_string(), ErrorKind::AddrInUse));
        Client::attach(&folder.socket());
        drop(rt);
        fs::write(folder.socket(), "a file").unwrap();
        let Err(BuildError::Console { error, .. }) = build() else { panic!("a file was replaced") };
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(folder.socket()).unwrap(), b"a file");
        let missing = Runtime::builder().workers(0).console(folder.0.join("none").join("console")).build();
        assert!(missing.unwrap_err().to_string().contains("none/console cannot be opened"));
    });
}

/// The runtime must not remove the file of another server.
#[test]
fn a_runtime_removes_only_its_own_file() {
    let folder = Folder::new();
    let (rt, _) = lone(&folder);
    fs::remove_file(folder.socket()).unwrap();
    let _other = UnixListener::bind(folder.socket()).unwrap();
    drop(rt);
    assert!(folder.socket().exists());
}

#[test]
fn the_greeting_has_a_version_and_each_reply_has_the_id_of_its_request() {
    within(60, || {
        let folder = Folder::new();
        let _rt = Runtime::builder().workers(0).node(7).console(folder.socket()).build().unwrap();
        let mut client = Client::connect(&folder.socket());
        assert_eq!(client.line(), json!({ "protocol": "procession-console", "version": 1, "token_required": false }));
        let hello = client.ask(json!({ "request": "hello" }));
        assert_eq!((&hello["node"], &hello["program_pid"]), (&json!(7), &json!(std::process::id())));
        assert_eq!(hello["crate_version"], env!("CARGO_PKG_VERSION"));
        // The client sends several requests in one write. The server answers the requests in order.
        client.send(
            b"{\"id\": 1, \"request\": \"hello\"}\n{\"id\": \"b\", \"request\": \"none\"}\n{\"request\": \"hello\"}\n",
        );
        assert_eq!(client.line()["id"], 1);
        assert_eq!(client.line()["id"], "b");
        assert_eq!(client.line()["id"], Value::Null);
    });
}

/// 9.6b: the server replies with the metrics of the runtime, and with the rows and details of processes.
#[test]
fn the_server_replies_with_the_results_of_the_inspection() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let slow = rt.spawn(async |_: Context<u8>| pending::<()>().await);
        let named =
            rt.process().name("cache").spawn(async |mut ctx: Context<u8>| ctx.receive().await.map(drop)).unwrap();
        (0..3).for_each(|number| slow.send(number).unwrap());
        let overview = client.ask(json!({ "request": "overview" }));
        assert_eq!(overview["processes_alive"], 2);
        assert_eq!(
            overview["metrics"],
            serde_json::to_value(rt.metrics())
                .map(|mut metrics| {
                    metrics["elapsed_ns"] = overview["metrics"]["elapsed_ns"].clone();
                    metrics
                })
                .unwrap()
        );
        let rows = client.ask(json!({ "request": "processes", "order": "mailbox_len", "descending": true }));
        assert_eq!(
            rows["rows"][0],
            json!({
                "pid": slow.pid().to_string(), "name": null, "type_name": rows["rows"][0]["type_name"], "parent": null,
                "state": "Ready", "waiting_since_ns": null, "priority": "Normal", "mailbox_len": 3, "signals": 0,
                "mailbox_peak": 3, "unread_since_ns": rows["rows"][0]["unread_since_ns"], "yields": 0, "waits": 0,
                "links": 0, "monitors": 0, "monitored_by": 0, "steps": 0, "last_worker": null,
                "checks_yield": false, "is_cancelled": false, "is_killed": false,
            })
        );
        let mut pids = |fields: Value| {
            let mut request = json!({ "request": "processes" });
            request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let rows = client.ask(request);
            rows["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["pid"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let (first, second) = (slow.pid().to_string(), named.pid().to_string());
        assert_eq!(pids(json!({})), [first.clone(), second.clone()]);
        assert_eq!(pids(json!({ "order": "pid", "descending": true, "limit": 1 })).concat(), second);
        assert_eq!(pids(json!({ "name": "ach" })).concat(), second);
        assert_eq!(pids(json!({ "type": "the_server_replies" })), [first.clone(), second.clone()]);
        assert_eq!(pids(json!({ "state": "Ready", "min_mailbox_len": 3 })), [first]);
        assert!(pids(json!({ "state": "Blocked" })).is_empty());
        let details = client.ask(json!({ "request": "process", "pid": second }));
        assert_eq!((&details["names"], &details["info"]["name"]), (&json!(["cache"]), &json!("cache")));
        rt.kill(named.pid()).unwrap();
        rt.block_on(named).unwrap_err();
        assert_eq!(client.fails(json!({ "request": "process", "pid": second })), "no_process");
    });
}

#[test]
fn the_graph_of_waiting_processes_contains_edges_and_deadlocks() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        for (name, callee) in [("a", "b"), ("b", "a"), ("c", "a")] {
            let body = async move |ctx: Context<Reply<()>>| _ = ctx.call(callee, |reply: Reply<()>| reply).await;
            rt.process().name(name).spawn(body).unwrap();
        }
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        let graph = client.ask(json!({ "request": "wait_for_graph" }));
        assert_eq!((&graph["edge_count"], &graph["deadlock_count"]), (&json!(3), &json!(1)));
        let deadlock = &graph["deadlocks"][0];
        assert_eq!((&deadlock["cycle_len"], &deadlock["behind_len"]), (&json!(2), &json!(1)));
        let edge = &deadlock["cycle"][0];
        assert_eq!(edge["waits_for"]["kind"], "call");
        assert_eq!(edge["waits_for"]["pid"], edge["target"]);
        assert!(edge["waits_for"]["text"].as_str().unwrap().contains("tests/console/main.rs:"));
        let few = client.ask(json!({ "request": "wait_for_graph", "limit": 1 }));
        assert_eq!((few["edges"].as_array().unwrap().len(), &few["edge_count"]), (1, &json!(3)));
        let details = client.ask(json!({ "request": "process", "pid": edge["pid"] }));
        assert_eq!(details["waits_for"][0], edge["waits_for"]);
    });
}

/// 9.6b: the replies state three facts: whether a process checks for requests to yield, whether a process waits for a
/// closure on the blocking pool, and whether a mailbox grows.
#[test]
fn the_replies_contain_yield_checks_and_waits_for_the_blocking_pool_and_growing_mailboxes() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let (open, wait) = mpsc::channel::<()>();
        let waits = rt.spawn(async move |ctx: Context<u8>| {
            _ = should_yield();
            ctx.host().spawn_blocking(move || _ = wait.recv()).await
        });
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        let details = client.ask(json!({ "request": "process", "pid": waits.pid().to_string() }));
        assert_eq!(details["info"]["checks_yield"], true);
        let wait = &details["waits_for"][0];
        assert_eq!((&wait["kind"], &wait["pid"]), (&json!("blocking"), &Value::Null));
        assert!(wait["text"].as_str().unwrap().contains("tests/console/main.rs:"), "{wait}");
        for (messages, kind) in [(1_000, "long_mailbox"), (1, "growing_mailbox"), (0, "long_mailbox")] {
            (0..messages).for_each(|_| waits.send(0).unwrap());
            let explanation = client.ask(json!({ "request": "explain" }));
            let findings = explanation["findings"].as_array().unwrap();
            let kinds: Vec<_> = findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
            assert!(kinds.iter().filter(|kind| kind.ends_with("_mailbox")).eq([&kind]), "{explanation}");
            let grows = findings.iter().find(|finding| finding["kind"] == "growing_mailbox");
            assert!(grows.is_none_or(|finding| finding["lasts_ns"].as_u64().is_some()), "{explanation}");
        }
        drop(open);
        rt.block_on(waits).unwrap();
    });
}

/// 9.6b: the replies about many deadlocked processes are shorter than the limit of a reply.
#[test]
fn the_replies_about_long_cycles_are_bounded() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        for at in 0..3_000 {
            let (ring, place) = (at / 1_000, at % 1_000);
            let callee = format!("{ring}-{}", (place + 1) % 1_000);
            let body = async move |ctx: Context<Reply<()>>| _ = ctx.call(&*callee, |reply: Reply<()>| reply).await;
            rt.process().name(format!("{ring}-{place}")).spawn(body).unwrap();
        }
        while rt.wait_for_graph().deadlocks.len() < 3 {
            rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        }
        let graph = client.ask(json!({ "request": "wait_for_graph", "limit": 1_000 }));
        assert_eq!((&graph["edge_count"], &graph["deadlock_count"]), (&json!(3_000), &json!(3)));
        for deadlock in graph["deadlocks"].as_array().unwrap() {
            assert_eq!((&deadlock["cycle_len"], deadlock["cycle"].as_array().unwrap().len()), (&json!(1_000), 333));
        }
        let explanation = client.ask(json!({ "request": "explain" }));
        let findings = explanation["findings"].as_array().unwrap();
        assert_eq!(explanation["finding_count"], json!(findings.len()));
        let deadlocks: Vec<&Value> = findings.iter().filter(|finding| finding["kind"] == "deadlock").collect();
        assert_eq!(deadlocks.len(), 3);
        let texts: Vec<String> = rt.explain().findings.iter().map(ToString::to_string).collect();
        for (finding, text) in findings.iter().zip(texts).filter(|(finding, _)| finding["kind"] == "deadlock") {
            let lines: Vec<&str> =
                finding["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
            let all: Vec<&str> = text.lines().collect();
            let [kept @ .., omitted, advice] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!((kept, advice), (&all[..kept.len()], all.last().unwrap()));
            assert_eq!(*omitted, format!("  and {} more", all.len() - 1 - kept.len()));
        }
    });
}

/// 9.5g, 9.6b: with `Builder::inspect`, the details of a process contain at most 100 of the last messages of the
/// process. The record of an exit contains at most 8 of these messages.
#[test]
fn the_last_messages_are_returned() {
    within(60, || {
        let folder = Folder::new();
        let options = observe::InspectOptions::new().last_messages(1000);
        let rt = Runtime::builder().workers(0).inspect(options).console(folder.socket()).build().unwrap();
        let mut client = Client::attach(&folder.socket());
        let body = async |mut ctx: Context<u8>| -> Result<(), Exit> {
            ctx.receive().await?;
            Err(Exit::failed("no disk"))
        };
        let process = rt.spawn(body);
        (0..200).for_each(|number| process.send(number).unwrap());
        let pid = process.pid().to_string();
        let details = client.ask(json!({ "request": "process", "pid": pid }));
        let messages = details["last_messages"].as_array().unwrap();
        let last = json!({ "kind": "Message", "type_name": "u8", "from": null, "at_ns": messages[99]["at_ns"] });
        assert_eq!((messages.len(), &messages[99]), (100, &last));
        assert!(last["at_ns"].as_u64().unwrap() >= messages[0]["at_ns"].as_u64().unwrap());
        assert_eq!(details["message_counts"], json!([{ "kind": "Message", "type_name": "u8", "count": 200 }]));
        rt.block_on(process).unwrap_err();
        let exits = client.ask(json!({ "request": "last_exits" }));
        assert_eq!(exits["exits"][0]["last_messages"], Value::from(messages[92..].to_vec()));
    });
}

/// 9.6b: the server replies with the findings of the explanation, and with the last abnormal exits.
#[test]
fn the_explanation_and_the_last_exits_are_returned() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        assert_eq!(client.ask(json!({ "request": "explain" }))["findings"], json!([]));
        assert_eq!(client.ask(json!({ "request": "last_exits" }))["exits"], json!([]));
        let failed = |text: &'static str| {
            let body = async move |_: Context<u8>| Err::<(), _>(text);
            let handle = rt.process().name("cache").spawn(body).unwrap();
            handle.send(1).unwrap();
            let pid = handle.pid().to_string();
            rt.block_on(handle).unwrap_err();
            pid
        };
        let (_, second) = (failed("no disk"), failed("no net"));
        let last = client.ask(json!({ "request": "last_exits", "limit": 1 }));
        let exit = &last["exits"][0];
        assert_eq!((last["exits"].as_array().unwrap().len(), &exit["pid"]), (1, &json!(second)));
        assert_eq!((&exit["name"], &exit["exit"]), (&json!("cache"), &json!("failed: no net")));
        assert_eq!((&exit["mailbox_len"], &exit["location"]), (&json!(1), &Value::Null));
        assert_eq!(client.ask(json!({ "request": "last_exits" }))["exits"].as_array().unwrap().len(), 2);
        let _waits = rt.spawn(async |_: Context| pending::<()>().await);
        let explanation = client.ask(json!({ "request": "explain" }));
        assert_eq!(explanation["findings"][0]["kind"], "no_thread");
        let text = rt.explain();
        let lines: Vec<_> = text.findings[0].to_string().lines().map(str::to_owned).collect();
        assert_eq!(explanation["findings"][0]["lines"], json!(lines));
        assert_eq!(explanation["activity"][0], text.activity.to_string().lines().next().unwrap());
    });
}

/// 2.5a, 9.6b: the names of the host are listed by prefix, with a limit.
#[test]
fn the_names_are_listed_by_prefix() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let waits = async |_: Context| pending::<()>().await;
        let all: Vec<_> = (0..30).map(|n| rt.process().name(format!("n{n:02}")).spawn(waits).unwrap()).collect();
        let reply = client.ask(json!({ "request": "names", "prefix": "n1", "limit": 2 }));
        let names = |reply: &Value| -> Vec<String> {
            let rows = reply["rows"].as_array().unwrap();
            rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!((names(&reply), &reply["name_count"]), (vec!["n10".into(), "n11".into()], &json!(10)));
        let row = &reply["rows"][0];
        assert_eq!(row["pid"], all[10].pid().to_string());
        assert!(row["type_name"].as_str().unwrap().contains("the_names_are_listed"), "{row}");
        let whole = client.ask(json!({ "request": "names" }));
        assert_eq!((names(&whole).len(), names(&whole).is_sorted(), &whole["name_count"]), (30, true, &json!(30)));
        rt.kill(all[10].pid()).unwrap();
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        let less = client.ask(json!({ "request": "names", "prefix": "n10" }));
        assert_eq!((&less["rows"], &less["name_count"]), (&json!([]), &json!(0)));
        assert_eq!(client.fails(json!({ "request": "names", "limit": 1001 })), "invalid_argument");
    });
}

/// 2.5e, 9.6b: the groups of the host are listed with their first members.
#[test]
fn the_groups_are_listed_with_their_first_members() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let member = async |ctx: Context<u8>| {
            ctx.join_group("jobs.many");
            pending::<()>().await;
        };
        let members: Vec<_> = (0..10).map(|_| rt.spawn(member)).collect();
        let watcher = rt.spawn(async |ctx: Context| {
            let _ = ctx.monitor_group("jobs.empty");
            pending::<()>().await;
        });
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        let reply = client.ask(json!({ "request": "groups", "prefix": "jobs." }));
        let first: Vec<_> = members.iter().take(8).map(|one| one.pid().to_string()).collect();
        let rows = json!([
            { "name": "jobs.empty", "members": 0, "first_members": [], "monitors": 1 },
            { "name": "jobs.many", "members": 10, "first_members": first, "monitors": 0 },
        ]);
        assert_eq!((&reply["rows"], &reply["group_count"]), (&rows, &json!(2)));
        let one = client.ask(json!({ "request": "groups", "limit": 1 }));
        assert_eq!((&one["rows"], &one["group_count"]), (&json!([rows[0]]), &json!(2)));
        assert_eq!(client.ask(json!({ "request": "groups", "prefix": "k" }))["group_count"], 0);
        drop(watcher);
    });
}

/// 9.6b: each timer wheel is listed with its number of timers and its nearest deadline.
#[test]
fn the_timer_wheels_are_listed_with_their_nearest_deadlines() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let empty = client.ask(json!({ "request": "timers" }));
        assert_eq!((&empty["timer_count"], &empty["wheels"]), (&json!(0), &json!([])));
        let _setter = rt.spawn(async |ctx: Context<u8>| {
            for hours in [3, 1, 2] {
                ctx.send_after(Duration::from_secs(hours * 3_600), ctx.pid(), 0_u8);
            }
            pending::<()>().await;
        });
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        let reply = client.ask(json!({ "request": "timers" }));
        let wheel = &reply["wheels"][0];
        assert_eq!((&reply["timer_count"], reply["wheels"].as_array().unwrap().len()), (&json!(3), 1));
        assert_eq!(wheel["timers"], 3);
        let [begun, nearest] = [&empty["now_ns"], &wheel["nearest_ns"]].map(|time| time.as_u64().unwrap());
        let hour = 3_600_000_000_000;
        assert!((begun + hour..begun + 2 * hour).contains(&nearest), "{nearest}");
    });
}

/// 9.6b: a client collects run times. The first request begins the collection, and each further request returns the run
/// times since the previous request.
#[test]
fn the_run_times_of_processes_are_collected_between_two_requests() {
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(0).sample_every_step(true).console(folder.socket()).build().unwrap();
        let mut client = Client::attach(&folder.socket());
        let request = json!({ "request": "run_times", "limit": 5 });
        let first = client.ask(request.clone());
        assert_eq!((&first["processes"], &first["sampled_one_in"]), (&json!([]), &json!(1)));
        let turns = |rt: &Runtime| {
            let process = rt.process().name("yields").spawn(async |ctx: Context| ctx.yield_now().await).unwrap();
            let pid = process.pid().to_string();
            rt.block_on(process).unwrap();
            pid
        };
        let pid = turns(&rt);
        let second = client.ask(request.clone());
        let row = &second["processes"][0];
        assert_eq!((&row["pid"], &row["turns"], &row["last_worker"]), (&json!(pid), &json!(2), &json!(0)));
        assert_eq!(second["types"][0]["turns"], 2);
        assert_eq!(row["run_time_ns"], second["run_time_ns"]);
        assert!(second["window_ns"].as_u64() >= row["run_time_ns"].as_u64(), "{second}");
        client.ask(json!({ "request": "stop_run_times" }));
        turns(&rt);
        assert_eq!(client.ask(request)["processes"], json!([]), "the collection begins again");
    });
}

/// 9.6b: the reply lists the handlers. For each handler, the reply contains the number of unanswered commands of the
/// type that the handler handles.
#[test]
fn the_handlers_are_listed_with_their_outstanding_commands() {
    struct Ask;
    impl Command for Ask {
        type Reply = u8;
    }
    struct Quick;
    impl Command for Quick {
        type Reply = u8;
    }
    within(60, || {
        let folder = Folder::new();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (asked, named) = (Arc::clone(&kept), Arc::new(Mutex::new(Vec::new())));
        let named_kept = Arc::clone(&named);
        let builder = Runtime::builder()
            .workers(0)
            .handler(move |_: Ask, completion: Completion<u8>| asked.lock().unwrap().push(completion))
            .handle(|_: Quick| 7)
            .handler_named("print", move |_: NamedCommand, completion| named_kept.lock().unwrap().push(completion));
        let rt = builder.console(folder.socket()).build().unwrap();
        let mut client = Client::attach(&folder.socket());
        let ask = |rt: &Runtime| rt.spawn(async |ctx: Context| ctx.perform(Ask).await);
        let handles = [ask(&rt), ask(&rt)];
        let print = rt.spawn(async |ctx: Context| ctx.perform(NamedCommand::new("print")).await.map(drop));
        rt.block_on(rt.spawn(async |ctx: Context| ctx.perform(Quick).await)).unwrap();
        let reply = client.ask(json!({ "request": "handlers" }));
        let row = |kind: &str, end: &str, outstanding: Value| {
            let rows = reply["rows"].as_array().unwrap();
            let is_it = |row: &&Value| row["kind"] == kind && row["command"].as_str().unwrap().ends_with(end);
            rows.iter().any(|row| is_it(&row) && row["outstanding"] == outstanding)
        };
        assert!(row("type", "::Ask", json!(2)) && row("type", "::Quick", json!(0)), "{reply}");
        assert!(row("name", "print", Value::Null), "{reply}");
        assert_eq!(reply["handler_count"], reply["rows"].as_array().unwrap().len());
        let others = reply["others"].as_array().unwrap();
        assert!(
            others
                .iter()
                .any(|row| { row["command"].as_str().unwrap().ends_with("::NamedCommand") && row["outstanding"] == 1 }),
            "{reply}"
        );
        let one = client.ask(json!({ "request": "handlers", "limit": 1 }));
        assert_eq!((one["rows"].as_array().unwrap().len(), &one["handler_count"]), (1, &reply["handler_count"]));
        // A stored completion keeps the runtime alive.
        kept.lock().unwrap().drain(..).for_each(|completion| completion.complete(1));
        named.lock().unwrap().clear();
        handles.into_iter().for_each(|handle| drop(rt.block_on(handle)));
        drop(rt.block_on(print));
        let done = client.ask(json!({ "request": "handlers" }));
        assert!(done["rows"].as_array().unwrap().iter().all(|row| row["outstanding"] == 0 || row["kind"] != "type"));
    });
}

/// 9.4c: the reply lists the supervisors and their children, with the restarts of the children. For each supervisor,
/// the reply also contains the restart budget.
#[test]
fn the_supervision_tree_is_listed_from_the_top() {
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
        let (tell, told) = mpsc::channel();
        let child = move |name: &'static str| {
            let tell = tell.clone();
            Child::new(name, move |mut ctx: Context<()>| {
                let tell = tell.clone();
                async move {
                    tell.send(ctx.pid()).unwrap();
                    ctx.receive().await?;
                    Err::<(), _>(Exit::failed("no disk"))
                }
            })
        };
        let (outer, inner) = (child("outer"), child.clone());
        let below = move || Supervisor::one_for_all().intensity(5, Duration::from_secs(3_600)).add(inner("inner"));
        let top = Supervisor::one_for_one()
            .intensity(3, Duration::from_secs(3_600))
            .add(outer)
            .add(Child::process("below", below));
        let top = rt.process().name("top").spawn_process(top).unwrap();
        rt.block_on(top.started()).unwrap();
        let first: Pid = told.recv().unwrap();
        rt.send(first, ()).unwrap();
        (0..2).for_each(|_| _ = told.recv().unwrap());
        let mut client = Client::attach(&folder.socket());
        let rows = client.ask(json!({ "request": "supervision_tree" }));
        let text = |row: &Value| {
            let name = row["name"].as_str().unwrap_or("-");
            let supervisor = &row["supervisor"];
            let budget =
                ["strategy", "max_restarts", "recent_restarts", "restarts_left"].map(|field| &supervisor[field]);
            let budget: String = budget.into_iter().map(|value| format!(" {value}")).collect();
            format!("{} {name} {}{budget}", row["depth"], row["restarts"])
        };
        let rows: Vec<_> = rows["rows"].as_array().unwrap().iter().map(text).collect();
        let expected = [
            "0 top 0 \"one for one\" 3 1 2",
            "1 outer 1 null null null null",
            "1 below 0 \"one for all\" 5 0 5",
            "2 inner 0 null null null null",
        ];
        assert_eq!(rows, expected);
    });
}

/// 9.6c: if one supervisor does not answer, the reply still contains the other supervisors.
#[test]
fn a_silent_supervisor_hides_no_other_supervisor() {
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
        let start = |name: &'static str| {
            let receives = async |mut ctx: Context<()>| ctx.receive().await;
            let below = move || Supervisor::one_for_one().add(Child::unnamed(receives));
            let below = Child::process(format!("below {name}"), below);
            let top = rt.process().name(name).spawn_process(Supervisor::one_for_one().add(below)).unwrap();
            rt.block_on(top.started()).unwrap();
            top
        };
        let tops = ["silent", "partial", "whole"].map(start);
        let child = rt.block_on(rt.supervision_tree(&tops[1])).unwrap().children[0].pid.unwrap();
        for pid in [tops[0].pid(), child] {
            rt.suspend(pid).unwrap();
        }
        let rows = Client::attach(&folder.socket()).ask(json!({ "request": "supervision_tree" }));
        let text = |row: &Value| {
            let text = |field: &str| row[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {} {}", row["depth"], text("name"), text("state"), row["supervisor"]["strategy"])
        };
        let rows: Vec<_> = rows["rows"].as_array().unwrap().iter().map(text).collect();
        let whole = ["0 whole running \"one for one\"", "1 below whole running \"one for one\"", "2 - running null"];
        let partial = ["0 partial running \"one for one\"", "1 below partial running null"];
        assert_eq!(rows, [&["0 silent unknown null"][..], &partial, &whole].concat());
        for pid in [tops[0].pid(), child] {
            rt.resume(pid).unwrap();
        }
    });
}

/// 9.6c: the reply contains at most 1,000 rows of the supervision tree. The server only counts the children that exceed
/// this limit, and does not create the texts of the exits of these children.
#[test]
fn the_children_beyond_the_limit_are_only_counted() {
    const CHILDREN: usize = 1_100;
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);
    impl std::fmt::Display for Counted {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fetch_add(1, Ordering::SeqCst);
            f.write_str("counted")
        }
    }
    impl std::error::Error for Counted {}
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
        let (texts, starts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let child = |_| {
            let (texts, starts, has_failed) = (Arc::clone(&texts), Arc::clone(&starts), Mutex::new(false));
            Child::unnamed(move |mut ctx: Context<()>| {
                let (texts, starts) = (Arc::clone(&texts), Arc::clone(&starts));
                let fails = !std::mem::replace(&mut *has_failed.lock().unwrap(), true);
                async move {
                    ctx.yield_now().await;
                    if fails {
                        return Err(Exit::failed(Counted(texts)));
                    }
                    starts.fetch_add(1, Ordering::SeqCst);
                    ctx.receive().await
                }
            })
        };
        let top = Supervisor::one_for_one().intensity(u32::MAX, Duration::from_secs(1));
        let top = rt.spawn_process((0..CHILDREN).map(child).fold(top, Supervisor::add));
        rt.block_on(top.started()).unwrap();
        while starts.load(Ordering::SeqCst) < CHILDREN {
            std::thread::yield_now();
        }
        let before = texts.load(Ordering::SeqCst);
        let reply = Client::attach(&folder.socket()).ask(json!({ "request": "supervision_tree" }));
        assert_eq!(reply["rows"].as_array().unwrap().len(), 1_000);
        assert_eq!(reply["row_count"], CHILDREN + 1);
        assert_eq!(texts.load(Ordering::SeqCst) - before, 999);
    });
}

/// 9.6c: the reply does not contain the rows of the supervision tree below the maximum depth of 64. However,
/// `row_count` also counts these rows.
#[test]
fn the_rows_below_the_maximum_depth_are_only_counted() {
    fn chain(levels: usize) -> Supervisor {
        let top = Supervisor::one_for_one();
        let name = format!("level {levels}");
        if levels == 0 { top } else { top.add(Child::process(name, move || chain(levels - 1))) }
    }
    within(60, || {
        for (levels, rows) in [(64, 65), (68, 65)] {
            let folder = Folder::new();
            let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
            let top = rt.spawn_process(chain(levels));
            rt.block_on(top.started()).unwrap();
            let reply = Client::attach(&folder.socket()).ask(json!({ "request": "supervision_tree" }));
            assert_eq!(reply["rows"].as_array().unwrap().len(), rows);
            assert_eq!(reply["row_count"], levels + 1);
        }
    });
}

/// 9.6c: if the `Display` of the error of a child panics, only the request that formats this error fails. The server
/// continues.
#[test]
fn the_console_server_continues_if_a_panic_interrupts_the_formatting_of_an_exit() {
    #[derive(Debug)]
    struct Broken;
    impl std::fmt::Display for Broken {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("on purpose");
        }
    }
    impl std::error::Error for Broken {}
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
        let (tell, told) = mpsc::channel();
        let child = Child::new("broken", move |mut ctx: Context<()>| {
            let tell = tell.clone();
            async move {
                tell.send(ctx.pid()).unwrap();
                let _ = ctx.receive().await;
                Err::<(), _>(Exit::failed(Broken))
            }
        });
        let top = rt.spawn_process(Supervisor::one_for_one().add(child));
        rt.block_on(top.started()).unwrap();
        rt.send::<()>(told.recv().unwrap(), ()).unwrap();
        told.recv().unwrap();
        let mut client = Client::attach(&folder.socket());
        assert_eq!(client.fails(json!({ "request": "supervision_tree" })), "no_answer");
        client.ask(json!({ "request": "overview" }));
        Client::attach(&folder.socket()).ask(json!({ "request": "overview" }));
    });
}

/// If no worker can run the supervisor, the request for the supervision tree fails. While the server waits for the
/// supervisor, other clients get their replies.
#[test]
fn a_request_to_silent_supervisors_delays_no_other_client() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        assert_eq!(client.ask(json!({ "request": "supervision_tree" }))["rows"], json!([]));
        let top = rt.spawn_process(Supervisor::one_for_one());
        rt.block_on(top.started()).unwrap();
        client.send(b"{\"id\": 1, \"request\": \"supervision_tree\"}\n{\"id\": 2, \"request\": \"hello\"}\n");
        Client::attach(&folder.socket()).ask(json!({ "request": "overview" }));
        let reply = client.line();
        assert_eq!((&reply["id"], &reply["error"]["kind"]), (&json!(1), &json!("no_answer")));
        assert_eq!(client.line()["id"], 2);
        client.send(b"{\"request\": \"supervision_tree\"}\n");
        drop(rt);
        // The server may read the request after the drop of the runtime has removed the supervisor. In this case, the
        // tree in the reply is empty.
        let reply = client.next();
        assert!(
            reply.as_ref().is_none_or(|reply| !reply["error"].is_null() || reply["ok"]["rows"] == json!([])),
            "{reply:?}"
        );
    });
}

/// 9.6c: the server answers while all workers are blocked. The answer names the process that each worker runs.
#[test]
fn the_server_answers_while_all_workers_are_blocked() {
    within(60, || {
        let folder = Folder::new();
        let builder = Runtime::builder().workers(2).max_replacement_threads(0).console(folder.socket());
        let rt = builder.long_step_threshold(Duration::MAX).build().unwrap();
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().unwrap();
        let (tell, told) = mpsc::channel();
        let blocked: Vec<_> = (0..2)
            .map(|_| {
                let (gate, tell) = (Arc::clone(&gate), tell.clone());
                rt.spawn(async move |_: Context| {
                    tell.send(()).unwrap();
                    drop(gate.lock());
                })
            })
            .collect();
        (0..2).for_each(|_| told.recv().unwrap());
        let mut client = Client::attach(&folder.socket());
        for _ in 0..2 {
            let reply = client.ask(json!({ "request": "workers" }));
            assert_eq!(reply["requested"], 2);
            let rows = reply["workers"].as_array().unwrap();
            let running: BTreeSet<_> =
                rows.iter().filter_map(|row| row["process"].as_str().map(str::to_owned)).collect();
            assert_eq!(running, blocked.iter().map(|one| one.pid().to_string()).collect());
        }
        let rows = client.ask(json!({ "request": "processes", "state": "Running" }));
        assert_eq!(rows["rows"].as_array().unwrap().len(), 2);
        for request in ["names", "groups", "timers", "handlers", "last_exits", "run_times", "run_times"] {
            client.ask(json!({ "request": request }));
        }
        for process in &blocked {
            let pid = process.pid().to_string();
            let details = client.ask(json!({ "request": "process", "pid": pid }));
            assert_eq!((&details["info"]["pid"], &details["info"]["state"]), (&json!(pid), &json!("Running")));
            assert!(details["step"]["worker"].is_u64(), "{details}");
        }
        let overview = client.ask(json!({ "request": "overview" }));
        assert_eq!(overview["metrics"]["processes"]["running"], 2);
        let explanation = client.ask(json!({ "request": "explain" }));
        assert!(!explanation["activity"].as_array().unwrap().is_empty(), "{explanation}");
        assert_eq!(client.ask(json!({ "request": "wait_for_graph" }))["edge_count"], 0);
        drop(held);
        blocked.into_iter().for_each(|one| rt.block_on(one).unwrap());
    });
}

/// 9.4c: the row of a worker in a long step states whether a replacement thread has taken over the queues of this
/// worker.
#[test]
fn a_blocked_worker_is_replaced_if_a_replacement_is_permitted() {
    within(60, || {
        for (replacements, expected) in [(1, true), (0, false)] {
            let folder = Folder::new();
            let builder = Runtime::builder().workers(1).max_replacement_threads(replacements).console(folder.socket());
            let rt = builder.build().unwrap();
            let (open, gate) = mpsc::channel::<()>();
            let process = rt.spawn(async move |_: Context| _ = gate.recv());
            let mut client = Client::attach(&folder.socket());
            let blocked = loop {
                let reply = client.ask(json!({ "request": "workers" }));
                let mut rows = reply["workers"].as_array().unwrap().clone();
                rows.retain(|row| row["state"] == "blocked" && !row["blocked_since_ns"].is_null());
                // The replacement starts shortly after the report of the long step.
                if rows.first().is_some_and(|row| row["is_replaced"] == expected) {
                    break rows.remove(0);
                }
                std::thread::yield_now();
            };
            assert_eq!(blocked["process"], process.pid().to_string());
            drop(open);
            rt.block_on(process).unwrap();
        }
    });
}

#[test]
fn malformed_requests_are_answered_and_the_connection_continues() {
    within(60, || {
        let folder = Folder::new();
        let (_rt, mut client) = lone(&folder);
        for line in ["", "{", "7", "null", "{\"request\": \"processes\", \"limit\": \"x\"}", "\u{0}", "{\"a\":"] {
            client.send(format!("{line}\n").as_bytes());
            let kind = client.line()["error"]["kind"].as_str().unwrap().to_owned();
            assert!(["malformed", "invalid_argument"].contains(&kind.as_str()), "{line}: {kind}");
        }
        client.send(b"\xff\xfe\n");
        assert_eq!(client.line()["error"]["kind"], "malformed");
        let nested = "[".repeat(10_000);
        client.send(format!("{nested}\n").as_bytes());
        assert_eq!(client.line()["error"]["kind"], "malformed");
        assert_eq!(client.fails(json!({ "request": "dance" })), "unknown_request");
        client.ask(json!({ "request": "overview" }));
    });
}

/// A newer version of the console may send fields that this server does not know. The server ignores these fields.
#[test]
fn unknown_fields_of_a_request_are_ignored() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let _waits = [(); 2].map(|()| rt.spawn(async |_: Context| pending::<()>().await));
        let keys = |reply: &Value| reply.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let plain = client.ask(json!({ "request": "overview" }));
        let more = client.ask(json!({ "request": "overview", "colour": 1 }));
        assert_eq!((keys(&more), &more["processes_alive"]), (keys(&plain), &json!(2)));
        let unknown = json!({ "limits": [1, null], "id": "an object" });
        let reply = client.reply(&json!({ "request": "processes", "limit": 1, "id": 7, "colour": unknown }));
        assert_eq!((&reply["id"], &reply["error"]), (&json!(7), &Value::Null));
        assert_eq!(reply["ok"]["rows"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn a_request_that_is_too_long_ends_only_its_connection() {
    within(60, || {
        let folder = Folder::new();
        let (_rt, mut other) = lone(&folder);
        let mut client = Client::attach(&folder.socket());
        // The server may close the connection before all bytes are sent.
        let _ = client.writer.write_all(&vec![b'x'; 1 << 20]);
        assert_eq!(client.line()["error"]["kind"], "request_too_long");
        assert!(client.next().is_none());
        other.ask(json!({ "request": "hello" }));
    });
}

/// 9.6d: a client that never reads its replies delays no other client and no worker.
#[test]
fn a_client_that_never_reads_delays_no_other_client() {
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(1).console(folder.socket()).build().unwrap();
        let many: Vec<_> = (0..1_000).map(|_| rt.spawn(async |_: Context| pending::<()>().await)).collect();
        let deaf = UnixStream::connect(folder.socket()).unwrap();
        deaf.set_nonblocking(true).unwrap();
        // The client sends requests until a write would block. The reason is that the server reads no more requests
        // until the client reads a reply.
        let mut sent = 0;
        let mut others = Client::attach(&folder.socket());
        loop {
            match (&deaf).write(b"{\"request\": \"processes\", \"limit\": 1000}\n") {
                Ok(count) => sent += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
            assert!(sent < 100 << 20, "the server reads without a limit");
            others.ask(json!({ "request": "hello" }));
        }
        let rows = others.ask(json!({ "request": "processes", "limit": 1000 }));
        assert_eq!(rows["rows"].as_array().unwrap().len(), many.len());
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
    });
}

#[test]
fn eight_clients_attach_at_once_and_the_ninth_is_refused() {
    within(60, || {
        let folder = Folder::new();
        let (_rt, first) = lone(&folder);
        let mut clients = vec![first];
        clients.extend((1..8).map(|_| Client::attach(&folder.socket())));
        for client in &mut clients {
            client.ask(json!({ "request": "overview" }));
        }
        let mut refused = Client::connect(&folder.socket());
        assert_eq!(refused.line()["error"]["kind"], "too_many_clients");
        assert!(refused.next().is_none());
        clients.pop();
        // The server detects the end of the connection some time after `clients.pop`.
        while Client::connect(&folder.socket()).line()["protocol"].is_null() {
            std::thread::yield_now();
        }
        clients.iter_mut().for_each(|client| drop(client.ask(json!({ "request": "hello" }))));
    });
}

/// 9.6a: a TCP client must send the token first.
#[test]
fn a_tcp_client_needs_the_token() {
    within(60, || {
        let folder = Folder::new();
        let builder = Runtime::builder().workers(0).console(folder.socket()).console_tcp(([127, 0, 0, 1], 0), TOKEN);
        let rt = builder.build().unwrap();
        for (request, kind) in [
            (json!({ "request": "processes" }), "token_required"),
            (json!({ "request": "dance" }), "token_required"),
            (json!({ "request": "authenticate", "token": "0123456789abcdeF" }), "wrong_token"),
            (json!({ "request": "authenticate", "token": "" }), "wrong_token"),
        ] {
            let mut client = Client::tcp(&rt);
            assert_eq!(client.line()["token_required"], true);
            assert_eq!(client.fails(request), kind);
            assert!(client.next().is_none(), "{kind}: the connection is still open");
        }
        let mut client = Client::tcp(&rt);
        assert_eq!(client.line()["token_required"], true);
        client.ask(json!({ "request": "authenticate", "token": TOKEN }));
        client.ask(json!({ "request": "overview" }));
        Client::attach(&folder.socket()).ask(json!({ "request": "overview" }));
        let short = Runtime::builder().workers(0).console_tcp(([127, 0, 0, 1], 0), "secret").build();
        assert!(matches!(short, Err(BuildError::Invalid(_))));
    });
}

/// 9.6a: clients that do not send the token cannot prevent other clients from attaching. If a new client exceeds the
/// maximum number of clients, the server closes a connection. This connection is the oldest of the connections whose
/// clients have not sent the token. The server never closes the connection of a client that has sent the token.
#[test]
fn a_new_tcp_client_replaces_the_oldest_client_that_has_not_sent_the_token() {
    within(60, || {
        let rt = Runtime::builder().workers(0).console_tcp(([127, 0, 0, 1], 0), TOKEN).build().unwrap();
        let connect = || {
            let mut client = Client::tcp(&rt);
            assert_eq!(client.line()["token_required"], true);
            client
        };
        let authenticate = |client: &mut Client| {
            client.ask(json!({ "request": "authenticate", "token": TOKEN }));
        };
        let mut silent: Vec<_> = (0..8).map(|_| connect()).collect();
        let mut trusted = Vec::new();
        for _ in 0..4 {
            let mut client = connect();
            authenticate(&mut client);
            trusted.push(client);
            assert!(silent.remove(0).next().is_none(), "the oldest client is still connected");
        }
        // The remaining four silent clients are still connected.
        silent.iter_mut().for_each(authenticate);
        trusted.extend(silent);
        assert_eq!(Client::tcp(&rt).line()["error"]["kind"], "too_many_clients");
        trusted.iter_mut().for_each(|client| drop(client.ask(json!({ "request": "overview" }))));
    });
}

/// 9.6e: the server refuses actions, unless the program allows actions.
#[test]
fn actions_are_refused_by_default() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let target = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
        let pid = target.pid().to_string();
        for action in [
            json!({ "request": "kill", "pid": pid }),
            json!({ "request": "cancel", "pid": pid }),
            json!({ "request": "suspend", "pid": pid }),
            json!({ "request": "resume", "pid": pid }),
            json!({ "request": "set_priority", "pid": pid, "priority": "High" }),
            json!({ "request": "set_workers", "count": 3 }),
            json!({ "request": "restart_child", "pid": pid }),
            json!({ "request": "write_flight_record" }),
        ] {
            assert_eq!(client.fails(action), "actions_off");
        }
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        assert_eq!(rt.processes_alive(), 1);
        assert_eq!(client.ask(json!({ "request": "workers" }))["requested"], 0);
    });
}

/// 9.6e: allowed actions change the program.
#[test]
fn allowed_actions_are_performed() {
    within(60, || {
        let folder = Folder::new();
        let rt = Runtime::builder().workers(0).console(folder.socket()).console_actions(true).build().unwrap();
        let mut client = Client::attach(&folder.socket());
        assert_eq!(client.ask(json!({ "request": "hello" }))["actions"], true);
        let body = async |mut ctx: Context| ctx.receive().await.map(drop);
        let (cancelled, killed) = (rt.spawn(body), rt.spawn(body));
        let (first, second) = (cancelled.pid().to_string(), killed.pid().to_string());
        client.ask(json!({ "request": "set_priority", "pid": first, "priority": "High" }));
        let row = client.ask(json!({ "request": "process", "pid": first }));
        assert_eq!(row["info"]["priority"], "High");
        client.ask(json!({ "request": "suspend", "pid": first }));
        rt.block_on(rt.spawn(async |_: Context| ())).unwrap();
        assert_eq!(client.ask(json!({ "request": "process", "pid": first }))["info"]["state"], "Suspended");
        let suspended = client.ask(json!({ "request": "processes", "state": "Suspended" }));
        assert_eq!(suspended["rows"].as_array().unwrap().len(), 1);
        assert_eq!(client.ask(json!({ "request": "overview" }))["metrics"]["processes"]["suspended"], 1);
        client.ask(json!({ "request": "resume", "pid": first }));
        client.ask(json!({ "request": "cancel", "pid": first, "reason": "no need", "grace_ms": 60_000 }));
        client.ask(json!({ "request": "kill", "pid": second }));
        let exit = rt.block_on(cancelled).unwrap_err();
        assert!(exit.to_string().contains("no need"), "{exit}");
        assert!(matches!(rt.block_on(killed), Err(Exit::Killed)));
        for request in ["kill", "suspend", "resume"] {
            assert_eq!(client.fails(json!({ "request": request, "pid": second })), "no_process");
        }
        client.ask(json!({ "request": "set_workers", "count": 1 }));
        assert_eq!(client.ask(json!({ "request": "workers" }))["requested"], 1);
        // The new worker runs the process.
        let (tell, told) = mpsc::channel();
        drop(rt.spawn(async move |_: Context| tell.send(()).unwrap()));
        told.recv().unwrap();
    });
}

#[test]
fn two_runtimes_have_two_consoles() {
    within(60, || {
        let folders = [Folder::new(), Folder::new()];
        let mut both: Vec<_> = folders.iter().map(lone).collect();
        for (count, (rt, _)) in both.iter().enumerate() {
            (0..count).for_each(|_| drop(rt.spawn(async |_: Context| pending::<()>().await)));
        }
        for (count, (rt, client)) in both.iter_mut().enumerate() {
            assert_eq!(client.ask(json!({ "request": "hello" }))["node"], rt.node());
            assert_eq!(client.ask(json!({ "request": "overview" }))["processes_alive"], count);
        }
        let (rt, mut ended) = both.remove(0);
        drop(rt);
        assert!(ended.next().is_none());
        both[0].1.ask(json!({ "request": "overview" }));
    });
}

/// The server has only weak references to the runtime. A host may outlive the runtime, but the server ends with the
/// runtime.
#[test]
fn the_server_ends_with_the_runtime_while_clients_are_attached() {
    within(60, || {
        let folder = Folder::new();
        let (rt, mut client) = lone(&folder);
        let host = rt.host().clone();
        let mut busy = Client::attach(&folder.socket());
        busy.send("{\"request\": \"overview\"}\n".repeat(300).as_bytes());
        drop(rt);
        assert!(client.next().is_none());
        assert!(UnixStream::connect(folder.socket()).is_err());
        drop(host);
    });
}

/// 9.6a: if the environment variable `PROCESSION_CONSOLE` is set, the runtime opens a socket at the path of the
/// variable. If the runtime cannot open the socket, the program continues.
#[test]
fn an_environment_variable_opens_a_socket() {
    if let Some(prefix) = role() {
        let path = |node: u32| PathBuf::from(format!("{prefix}-{}-{node}", std::process::id()));
        let [one, other] = [1, 2].map(|node| Runtime::builder().workers(0).node(node).build().unwrap());
        let twice = Runtime::builder().workers(0).node(2).build().unwrap();
        for rt in [&one, &other] {
            let mut client = Client::attach(&path(rt.node()));
            assert_eq!(client.ask(json!({ "request": "hello" }))["node"], rt.node());
            assert_eq!(client.fails(json!({ "request": "set_workers", "count": 1 })), "actions_off");
        }
        drop((one, other, twice));
        return;
    }
    let folder = Folder::new();
    let prefix = folder.socket().display().to_string();
    let ran = again_with(an_environment_variable_opens_a_socket, &prefix, 60, |command| {
        command.env("PROCESSION_CONSOLE", format!("{prefix}-%p-%n"));
    });
    ran.passed();
    assert!(ran.stderr.contains("procession: PROCESSION_CONSOLE: the console socket"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

/// 9.6a: the environment variable contains a path at which no socket can be opened. The program continues, even if
/// stderr is a pipe that has no reader.
#[test]
fn a_broken_pipe_behind_stderr_does_not_stop_the_program() {
    const TEST: &str = "a_broken_pipe_behind_stderr_does_not_stop_the_program";
    if role().is_some() {
        drop(Runtime::builder().workers(0).build().unwrap());
        return println!("built");
    }
    within(60, || {
        let folder = Folder::new();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture", "--test-threads=1"]).env(ROLE, "");
        command.env("PROCESSION_CONSOLE", folder.0.join("absent").join("socket"));
        let output = command.stdin(Stdio::null()).stderr(writer).output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("built"), "{output:?}");
    });
}
