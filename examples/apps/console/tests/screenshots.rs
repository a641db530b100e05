//! Tests of the images in the folder `screenshots`, and of the images of the console in the folder `src/guide`. The
//! file `screenshots.json` beside this file contains the replies of a real program. The test plays these replies back,
//! draws the screens, and compares the screens with the images.
//!
//! After a change of a view, this command draws the images again:
//!
//!     SCREENSHOTS=draw cargo test -p procession-console --test screenshots
//!
//! `SCREENSHOTS=record` also replaces the replies by the replies of a new run of the program `console-demo`.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use procession_console::app::{App, View};
use procession_console::client::Target;
use procession_console::svg::render;
use procession_console::terminal::{Connection, refresh_with};
use procession_console::views::buffer;
use ratatui::crossterm::event::KeyCode;
use serde_json::{Value, json};

/// The images. Each entry contains the name of the image, the keys that open the view, the number of snapshots, and the
/// time between two snapshots in ms. Only one turn in 64 is measured, so the view of the workers needs a long time
/// between two snapshots.
const SCREENS: [(&str, &str, usize, u64); 9] = [
    ("overview", "", 80, 200),
    ("processes", "2", 2, 200),
    ("process", "/clerk-1\n\nm", 50, 200),
    ("trace", "t", 3, 50),
    ("waits", "4", 2, 200),
    ("workers", "5", 3, 4_000),
    ("explain", "6", 2, 200),
    ("tree", "8", 2, 200),
    ("registry", "9", 2, 200),
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        app.handle_key(if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) }.into());
    }
}

/// The program `console-demo`, which runs until the value is dropped.
struct Demo(Child, PathBuf);

impl Demo {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("procession-screenshots-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_console-demo"));
        command.arg(folder.join("socket")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        Self(child, folder)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// Runs `console-demo`, and records the replies for each image. Most snapshots affect only the charts and the measured
/// times of an image. The record of such a snapshot contains only the values that the image needs. If `is_short`, takes
/// as few snapshots as possible.
fn record(is_short: bool) -> Value {
    let demo = Demo::start();
    let mut connection = Connection::open(Target::Path(demo.1.join("socket"))).unwrap();
    // A view shows the clerk `clerk-1`. The supervisor starts the clerks on a worker, so this clerk may not exist yet.
    let clerk = || ("names", vec![("prefix", "clerk-1".into())]);
    while connection.request(clerk()).unwrap()["name_count"] != 1 {
        std::thread::yield_now();
    }
    let mut app = App::new("socket".into());
    let mut screens = Vec::new();
    for (name, keys, count, interval_ms) in SCREENS {
        let (count, interval_ms) = if is_short { (2, 0) } else { (count, interval_ms) };
        let mut snapshots = Vec::new();
        for key in keys.chars() {
            press(&mut app, &key.to_string());
            // The key Enter needs the reply to the previous key.
            snapshots.push(read(&mut app, &mut connection));
        }
        for _ in snapshots.len()..count {
            std::thread::sleep(Duration::from_millis(interval_ms));
            snapshots.push(read(&mut app, &mut connection));
        }
        let last = snapshots.len() - 1;
        for (at, snapshot) in snapshots.iter_mut().enumerate() {
            // The overview shows the rates between the last two snapshots, and the durations that were measured during
            // the last 30 intervals.
            if ![0, 1, 30].contains(&(last - at)) {
                snapshot.retain(|(request, _)| request != "hello");
                snapshot.iter_mut().for_each(|(request, reply)| *reply = pruned(request, reply));
            }
        }
        screens.push(json!({ "name": name, "snapshots": snapshots }));
    }
    Value::Array(screens)
}

/// One refresh of the console. Returns the requests and the replies.
fn read(app: &mut App, connection: &mut Connection) -> Vec<(String, Value)> {
    let mut replies = Vec::new();
    let is_chart = app.view == View::Process;
    refresh_with(app, |request| {
        let name = request.0;
        let reply = connection.request(request);
        replies.extend(reply.as_ref().ok().map(|reply| (name.to_owned(), short(name, reply, is_chart))));
        reply
    });
    replies
}

/// Shortens the reply of a live trace: removes the events that the chart of a process does not need.
fn short(request: &str, reply: &Value, is_chart: bool) -> Value {
    let mut reply = reply.clone();
    if request == "trace_events"
        && is_chart
        && let Some(events) = reply["events"].as_array_mut()
    {
        events.retain(|event| event["event"] == "received");
        events.iter_mut().for_each(|event| *event = json!({ "event": "received" }));
    }
    reply
}

fn pruned(request: &str, reply: &Value) -> Value {
    match request {
        "overview" => {
            let metrics = &reply["metrics"];
            let counters = json!({ "steps": metrics["counters"]["steps"] });
            json!({ "now_ns": reply["now_ns"], "metrics": { "elapsed_ns": metrics["elapsed_ns"], "counters": counters } })
        }
        "process" => {
            let info = &reply["info"];
            let info = json!({ "pid": info["pid"], "steps": info["steps"], "mailbox_len": info["mailbox_len"] });
            json!({ "now_ns": reply["now_ns"], "info": info })
        }
        "processes" => {
            let pid = |row: &Value| json!({ "pid": row["pid"] });
            json!({ "rows": reply["rows"].as_array().unwrap().iter().map(pid).collect::<Vec<_>>() })
        }
        "workers" => {
            let worker = |worker: &Value| {
                let mut worker = worker.clone();
                worker
                    .as_object_mut()
                    .unwrap()
                    .retain(|name, _| ["worker", "process", "polls"].contains(&name.as_str()));
                worker
            };
            let workers: Vec<_> = reply["workers"].as_array().unwrap().iter().map(worker).collect();
            json!({ "now_ns": reply["now_ns"], "workers": workers })
        }
        _ => reply.clone(),
    }
}

/// The path of an image. The README and the guide of the crate show two images. The published crate `procession`
/// contains the folder `src`, but no file of the package of the console.
fn path(name: &str) -> PathBuf {
    match name {
        "overview" | "waits" => folder().join(format!("../../../src/guide/console-{name}.svg")),
        _ => folder().join(format!("screenshots/{name}.svg")),
    }
}

/// Plays the recorded replies back. Returns the paths and the contents of the images.
fn draw(recorded: &Value) -> Vec<(PathBuf, String)> {
    let mut app = App::new("socket".into());
    let mut images = Vec::new();
    for (screen, (name, keys, ..)) in recorded.as_array().unwrap().iter().zip(SCREENS) {
        assert_eq!(screen["name"], name);
        let mut keys = keys.chars();
        for snapshot in screen["snapshots"].as_array().unwrap() {
            keys.next().into_iter().for_each(|key| press(&mut app, &key.to_string()));
            for reply in snapshot.as_array().unwrap() {
                app.handle_reply(reply[0].as_str().unwrap(), Ok(reply[1].clone()));
            }
        }
        let label = format!("The view {name} of the console, attached to the program console-demo");
        images.push((path(name), render(&buffer(&app), &label)));
    }
    assert_eq!(images.len(), SCREENS.len());
    images
}

/// The last reply to each request, for each image.
fn last_replies(recorded: &Value) -> Vec<(String, &Value)> {
    let mut replies = Vec::new();
    for screen in recorded.as_array().unwrap() {
        let snapshot = screen["snapshots"].as_array().unwrap().last().unwrap();
        for reply in snapshot.as_array().unwrap() {
            replies.push((format!("{}: {}", screen["name"], reply[0]), &reply[1]));
        }
    }
    replies
}

/// Asserts that two values have the same keys. Compares the rows of two lists only if both lists have the same set of
/// keys. For example, the keys of a worker's row depend on the state of the worker.
fn assert_same_keys(path: &str, recorded: &Value, fresh: &Value) {
    let keys = |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>());
    match (recorded, fresh) {
        (Value::Object(one), Value::Object(other)) => {
            assert_eq!(keys(recorded), keys(fresh), "{path}; record the replies again: see the top of this file");
            one.iter().for_each(|(key, value)| assert_same_keys(&format!("{path}.{key}"), value, &other[key]));
        }
        (Value::Array(one), Value::Array(other)) => {
            let is_uniform = |rows: &[Value]| rows.windows(2).all(|rows| keys(&rows[0]) == keys(&rows[1]));
            if let ([first, ..], [fresh_first, ..]) = (&one[..], &other[..])
                && is_uniform(one)
                && is_uniform(other)
            {
                assert_same_keys(&format!("{path}[]"), first, fresh_first);
            }
        }
        _ => {}
    }
}

/// If a reply has a new field, the recorded replies do not contain this field. The images then show screens that the
/// present program never shows.
#[test]
fn the_recorded_replies_have_the_same_keys_as_fresh_replies() {
    // If `SCREENSHOTS` is set, the test of the images may replace the recorded replies at the same time.
    if std::env::var_os("SCREENSHOTS").is_some() {
        return;
    }
    let recorded: Value = serde_json::from_slice(&std::fs::read(recorded_replies()).unwrap()).unwrap();
    let fresh = record(true);
    let fresh: BTreeMap<_, _> = last_replies(&fresh).into_iter().collect();
    let mut compared = 0;
    for (request, reply) in last_replies(&recorded) {
        if let Some(fresh) = fresh.get(&request) {
            assert_same_keys(&request, reply, fresh);
            compared += 1;
        }
    }
    assert!(compared >= 2 * SCREENS.len(), "only {compared} replies were compared");
}

fn recorded_replies() -> PathBuf {
    folder().join("tests/screenshots.json")
}

/// 9.4c: the images in the documentation show the screens that the console draws.
#[test]
fn the_images_show_the_screens_of_the_console() {
    let mode = std::env::var("SCREENSHOTS").unwrap_or_default();
    let recorded = recorded_replies();
    if mode == "record" {
        std::fs::write(&recorded, format!("{}\n", record(false))).unwrap();
    }
    let recorded: Value = serde_json::from_slice(&std::fs::read(recorded).unwrap()).unwrap();
    for (path, drawn) in draw(&recorded) {
        if !mode.is_empty() {
            std::fs::write(&path, &drawn).unwrap();
        }
        let image = std::fs::read_to_string(&path).unwrap();
        let is_equal = image == drawn;
        assert!(is_equal, "{} differs; the command at the top of this file draws the images again", path.display());
    }
}
