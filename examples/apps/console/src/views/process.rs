//! Everything that the runtime knows about one process, and charts of the rates of this process.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};
use serde_json::{Map, Value};

use crate::app::App;
use crate::model::{CommandCount, Details, LastMessage, MessageCount, Row, RunningStep, WaitsFor};
use crate::trace::Phase;
use crate::views::processes::state;
use crate::views::{CHART, TITLE, duration, number, tail};

/// Maximum number of entries that are shown from a list.
const SHOWN: usize = 20;

/// Width of the names of the fields.
const NAME_WIDTH: usize = 14;

/// Width of the names and numbers beside the charts.
const LABEL_WIDTH: u16 = 26;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let text = match (&app.pid, &app.details) {
        (None, _) => "Select a process in the view Processes, Waits or Workers, and press Enter.".into(),
        (Some(pid), None) => format!("process {pid} has exited"),
        (Some(_), Some(details)) => return draw_details(frame, area, app, details),
    };
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
}

fn draw_details(frame: &mut Frame<'_>, area: Rect, app: &App, details: &Details) {
    let [top, charts] = Layout::vertical([Constraint::Min(0), Constraint::Length(3)]).areas(area);
    let mut lines = lines(details);
    let first = app.selected.min(lines.len().saturating_sub(1));
    frame.render_widget(Paragraph::new(lines.split_off(first)).wrap(Wrap { trim: false }), top);
    let rates = &app.rates;
    let messages = &rates.messages;
    let rows: [Rect; 3] = Layout::vertical([Constraint::Length(1); 3]).areas(charts);
    let mark = if messages.is_estimate { "~" } else { "" };
    chart(frame, rows[0], "steps/s", "", &rates.steps);
    chart(frame, rows[1], "mailbox", "", &rates.mailbox);
    chart(frame, rows[2], "messages/s", mark, &messages.rates);
    let hint = match (&app.trace.phase, messages.is_on) {
        (_, false) => "press m to measure the messages with a live trace",
        (Phase::Ended(reason), true) => reason,
        (_, true) if messages.rates.is_empty() => "the live trace begins",
        (_, true) => return,
    };
    let [_, right] = columns(rows[2]);
    frame.render_widget(Paragraph::new(hint), right);
}

fn columns(row: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Length(LABEL_WIDTH), Constraint::Min(0)]).areas(row)
}

/// Draws the newest value, and a chart of the newest values.
fn chart(frame: &mut Frame<'_>, row: Rect, name: &str, mark: &str, values: &VecDeque<u64>) {
    let [left, right] = columns(row);
    let last = values.back().map_or("-".to_owned(), |last| format!("{mark}{}", number(*last)));
    let label = vec![Span::styled(format!("{name:<NAME_WIDTH$}"), TITLE), Span::raw(format!("{last:>10}"))];
    frame.render_widget(Line::from(label), left);
    let newest: Vec<u64> = values.iter().rev().take(right.width.into()).rev().copied().collect();
    frame.render_widget(Sparkline::default().style(CHART).data(newest), right);
}

/// Number of lines before long lines are wrapped.
pub(crate) fn row_count(details: &Details) -> usize {
    lines(details).len()
}

/// The fields with a value, one after the other. The last line lists the fields without a value.
fn lines(details: &Details) -> Vec<Line<'static>> {
    let (present, absent): (Vec<_>, Vec<_>) = fields(details).into_iter().partition(|(_, value)| !value.is_empty());
    let mut lines = Vec::new();
    for (name, values) in present {
        let values = values.into_iter().enumerate();
        lines.extend(values.map(|(at, value)| field(if at == 0 { &name } else { "" }, value)));
    }
    let names: Vec<_> = absent.into_iter().map(|(name, _)| name).collect();
    lines.extend((!names.is_empty()).then(|| field("none", names.join(", "))));
    lines
}

fn field(name: &str, value: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name:<NAME_WIDTH$}"), TITLE), Span::raw(value)])
}

/// The name and the lines of each field. A field without a value has no line.
fn fields(details: &Details) -> Vec<(String, Vec<String>)> {
    let info = &details.info;
    let memory = details.memory_bytes.map(|bytes| format!("{} bytes", number(bytes)));
    let run_time = details.run_time_ns.map(|ns| duration(Duration::from_nanos(ns)));
    let known = [
        ("pid", vec![info.pid.clone()]),
        ("names", list(&details.names)),
        ("type", vec![info.type_name.clone()]),
        ("parent", info.parent.iter().cloned().collect()),
        ("supervisor", details.supervisor.iter().cloned().collect()),
        ("state", vec![state_text(details)]),
        ("waits for", details.waits_for.iter().take(SHOWN).map(|wait| wait_text(details, wait)).collect()),
        ("mailbox", vec![mailbox(details)]),
        ("steps", vec![steps(info)]),
        ("run time", run_time.into_iter().collect()),
        ("memory", memory.into_iter().collect()),
        ("commands", list(&details.yields.iter().map(|one| command(details, one)).collect::<Vec<_>>())),
        ("links", list(&details.links)),
        ("monitors", list(&details.monitors)),
        ("monitored by", list(&details.monitored_by)),
        ("joined by", details.joined_by.iter().cloned().collect()),
        ("groups", list(&details.groups)),
        ("timers", times(details, &details.timers_ns)),
        ("deadline", times(details, details.deadline_ns.as_slice())),
        ("values", list(&details.inherited_values)),
        ("messages", list(&details.message_counts.iter().map(|one| message_count(details, one)).collect::<Vec<_>>())),
        ("last events", details.last_messages.iter().rev().take(SHOWN).map(|last| message(details, last)).collect()),
    ];
    let known = known.into_iter().map(|(name, lines)| (name.to_owned(), lines));
    let other = details.other.iter().map(|(key, value)| {
        let text = any_text(details.now_ns, key, value);
        (tail(&any_name(key), NAME_WIDTH - 1), text.into_iter().collect())
    });
    known.chain(other).collect()
}

/// The state, the time in this state, and the priority.
fn state_text(details: &Details) -> String {
    let info = &details.info;
    let mut text = state(info);
    if let Some(since) = info.waiting_since_ns.or(details.ready_since_ns) {
        text.push_str(&format!(" for {}", time_since(details.now_ns, since)));
    }
    if let Some(RunningStep { worker, blocked_since_ns, is_asked_to_yield }) = &details.step {
        text.push_str(&format!(" on worker {worker}"));
        if let Some(since) = blocked_since_ns {
            text.push_str(&format!(", in this step for at least {}", time_since(details.now_ns, *since)));
        }
        text.push_str(if *is_asked_to_yield { ", has not reacted to a request to yield" } else { "" });
    }
    text.push_str(&format!(", priority {}", info.priority));
    text
}

fn wait_text(details: &Details, wait: &WaitsFor) -> String {
    wait.text.clone() + &further_text(details, &wait.text, &wait.other)
}

fn command(details: &Details, one: &CommandCount) -> String {
    let CommandCount { command, count, measured_since_ns, other } = one;
    let age = |since| format!(" for at least {}", time_since(details.now_ns, since));
    let age = measured_since_ns.map_or_else(String::new, age);
    format!("{count} × {command}{age}{}", further_text(details, command, other))
}

/// Returns the number of events of one kind, for example `3 × message app::Get`.
fn message_count(details: &Details, one: &MessageCount) -> String {
    let kind = message_kind(&one.kind, one.type_name.as_deref());
    format!("{} × {kind}{}", number(one.count), further_text(details, &kind, &one.other))
}

/// Returns one event of the process and the age of the event, for example `message app::Get from <1.2.1>, 20 ms ago`.
fn message(details: &Details, one: &LastMessage) -> String {
    let from = one.from.as_ref().map_or_else(String::new, |pid| format!(" from {pid}"));
    let kind = message_kind(&one.kind, one.type_name.as_deref());
    let text = format!("{kind}{from}, {} ago", time_since(details.now_ns, one.at_ns));
    text.clone() + &further_text(details, &text, &one.other)
}

fn message_kind(kind: &str, type_name: Option<&str>) -> String {
    match (kind, type_name) {
        ("Message", Some(name)) => format!("message {name}"),
        ("Answer", Some(name)) => format!("answer to {name}"),
        ("StreamNotice", _) => "notice of a stream".into(),
        ("Cancel", _) => "cancellation".into(),
        ("Down", _) => "exit of a monitored process".into(),
        ("Exit", _) => "exit of a linked process".into(),
        ("Joined", _) => "join of a group".into(),
        ("Left", _) => "leave of a group".into(),
        ("Other", _) => "other events".into(),
        (kind, name) => [kind, name.unwrap_or("")].join(" ").trim_end().into(),
    }
}

fn time_since(now_ns: u64, since_ns: u64) -> String {
    duration(Duration::from_nanos(now_ns.saturating_sub(since_ns)))
}

fn mailbox(details: &Details) -> String {
    let info = &details.info;
    let oldest = |since| format!(" (oldest: at least about {})", time_since(details.now_ns, since));
    format!(
        "{} messages{}, {} signals, peak {}",
        number(info.mailbox_len),
        info.unread_since_ns.map_or_else(String::new, oldest),
        number(info.signals),
        number(info.mailbox_peak)
    )
}

/// Returns the number of steps, the worker of the last step, and whether the process checks for requests to yield.
fn steps(info: &Row) -> String {
    let worker = info.last_worker.map_or_else(String::new, |worker| format!(", the last on worker {worker}"));
    number(info.steps) + &worker + if info.checks_yield { ", checks should_yield" } else { "" }
}

/// Returns one line with the first values. Returns no line if there are no values.
fn list(values: &[String]) -> Vec<String> {
    let more = if values.len() > SHOWN { " …" } else { "" };
    let text = values.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ") + more;
    if values.is_empty() { Vec::new() } else { vec![text] }
}

/// Returns one line that contains, for each time in `at`, the duration from now until this time. Returns no line if
/// `at` is empty.
fn times(details: &Details, at: &[u64]) -> Vec<String> {
    list(&at.iter().map(|at| time_until(details.now_ns, *at)).collect::<Vec<_>>())
}

fn time_until(now_ns: u64, at_ns: u64) -> String {
    format!("in {}", duration(Duration::from_nanos(at_ns.saturating_sub(now_ns))))
}

/// The text about fields that this console does not know. If `text` already contains the value of a field, this field
/// is left out.
fn further_text(details: &Details, text: &str, other: &Map<String, Value>) -> String {
    let texts = other.iter().filter_map(|(key, value)| {
        let value = any_text(details.now_ns, key, value).filter(|value| !contains(text, without_column(value)))?;
        Some(format!(", {} {value}", any_name(key)))
    });
    texts.collect()
}

/// Returns whether the text contains the value, and no further digit follows the value.
fn contains(text: &str, value: &str) -> bool {
    text.match_indices(value).any(|(at, _)| !text[at + value.len()..].starts_with(|next: char| next.is_ascii_digit()))
}

/// If the value is a place in a source file, returns the place without the column. The text of a wait contains only the
/// file and the line. Returns any other value unchanged.
fn without_column(value: &str) -> &str {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    match value.rsplit_once(':') {
        Some((place, column)) if is_number(column) && place.rsplit(':').next().is_some_and(is_number) => place,
        _ => value,
    }
}

/// The name of a field that this console does not know.
fn any_name(key: &str) -> String {
    let key = ["_since_ns", "_ns", "_bytes"].iter().find_map(|unit| key.strip_suffix(unit)).unwrap_or(key);
    key.strip_prefix("is_").unwrap_or(key).replace('_', " ")
}

/// The value of a field that this console does not know. The suffix of the name states the unit. Returns `None` if the
/// value is empty.
fn any_text(now_ns: u64, key: &str, value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::Bool(value) => if *value { "yes" } else { "no" }.into(),
        Value::String(text) => text.clone(),
        Value::Number(value) => match value.as_u64() {
            Some(ns) if key.ends_with("since_ns") => format!("for {}", time_since(now_ns, ns)),
            Some(ns) if key.ends_with("deadline_ns") || key.ends_with("until_ns") => time_until(now_ns, ns),
            Some(ns) if key.ends_with("_ns") => duration(Duration::from_nanos(ns)),
            Some(bytes) if key.ends_with("_bytes") => format!("{} bytes", number(bytes)),
            Some(count) => number(count),
            None => value.to_string(),
        },
        Value::Array(values) => {
            let texts: Vec<_> = values.iter().filter_map(|value| any_text(now_ns, key, value)).collect();
            list(&texts).pop()?
        }
        Value::Object(fields) => {
            let texts = fields.iter().filter_map(|(key, value)| {
                any_text(now_ns, key, value).map(|value| format!("{} {value}", any_name(key)))
            });
            texts.collect::<Vec<_>>().join(" ")
        }
    };
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyCode;
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    fn app() -> App {
        App { view: View::Process, pid: Some("<1.0.1>".into()), ..App::new("socket".into()) }
    }

    #[test]
    fn without_details_the_view_states_the_reason() {
        let mut app = app();
        assert_eq!(screen(&app)[2], "process <1.0.1> has exited");
        app.pid = None;
        let text = "Select a process in the view Processes, Waits or Workers, and press Enter.";
        assert_eq!(screen(&app)[2], text);
    }

    #[test]
    fn the_details_of_a_process_are_shown() {
        let mut app = app();
        let details = json!({
            "now_ns": 1_000_000_000,
            "info": {
                "pid": "<1.0.1>", "type_name": "app::Shop", "state": "Blocked", "waiting_since_ns": 250_000_000,
                "parent": "<1.9.1>", "priority": "Normal", "mailbox_len": 7, "unread_since_ns": 980_000_000,
                "steps": 1_234, "last_worker": 1, "checks_yield": true,
            },
            "supervisor": "<1.8.1>",
            "names": ["shop", "market"],
            "links": ["<1.1.1>"],
            "joined_by": "<1.4.1>",
            "yields": [{ "command": "app::Fetch", "count": 2, "measured_since_ns": 400_000_000 }],
            "timers_ns": [3_500_000_000_u64],
            "inherited_values": ["app::Request"],
            "run_time_ns": 12_000_000,
            "memory_bytes": 1_024,
            "message_counts": [
                { "kind": "Message", "type_name": "app::Order", "count": 1_200 },
                { "kind": "Answer", "type_name": "app::Fetch", "count": 3 },
                { "kind": "Joined", "type_name": null, "count": 1 },
            ],
            "last_messages": [
                { "kind": "Down", "type_name": null, "from": "<1.3.1>", "at_ns": 800_000_000 },
                { "kind": "Message", "type_name": "app::Order", "from": null, "at_ns": 980_000_000 },
            ],
            "waits_for": [
                { "kind": "call", "pid": "<1.2.1>", "text": "the answer to a call to <1.2.1> at src/shop.rs:41" },
                { "kind": "message", "text": "a message" },
            ],
        });
        app.handle_reply("process", Ok(details));
        let first = screen(&app);
        let expected = [
            "pid           <1.0.1>",
            "names         shop, market",
            "type          app::Shop",
            "parent        <1.9.1>",
            "supervisor    <1.8.1>",
            "state         Blocked for 750 ms, priority Normal",
            "waits for     the answer to a call to <1.2.1> at src/shop.rs:41",
            "              a message",
            "mailbox       7 messages (oldest: at least about 20 ms), 0 signals, peak 0",
            "steps         1,234, the last on worker 1, checks should_yield",
            "run time      12 ms",
            "memory        1,024 bytes",
            "commands      2 × app::Fetch for at least 600 ms",
            "links         <1.1.1>",
            "joined by     <1.4.1>",
            "timers        in 2.5 s",
            "values        app::Request",
        ];
        assert_eq!(first[2..2 + expected.len()], expected);
        (0..expected.len()).for_each(|_| drop(app.handle_key(KeyCode::Down.into())));
        let expected = [
            "messages      1,200 × message app::Order, 3 × answer to app::Fetch, 1 × join of",
            "a group",
            "last events   message app::Order, 20 ms ago",
            "              exit of a monitored process from <1.3.1>, 200 ms ago",
        ];
        assert_eq!(screen(&app)[2..2 + expected.len()], expected);
        // The charts hide the last line. The keys scroll to this line.
        (0..99).for_each(|_| drop(app.handle_key(KeyCode::Down.into())));
        assert_eq!(screen(&app)[2..4], ["none          monitors, monitored by, groups, deadline", ""]);
        assert!(screen(&app)[19].starts_with("steps/s"));
    }

    #[test]
    fn the_step_of_a_running_process_is_shown() {
        let mut app = app();
        let step = json!({ "worker": 3, "blocked_since_ns": 500_000_000, "is_asked_to_yield": true });
        let info = json!({ "pid": "<1.0.1>", "state": "Running", "priority": "High" });
        app.handle_reply("process", Ok(json!({ "now_ns": 2_000_000_000_u64, "info": info, "step": step })));
        let text = screen(&app)[4..6].join(" ");
        let expected = "state         Running+ on worker 3, in this step for at least 1.5 s, has not reacted to \
            a request to yield, priority High";
        assert_eq!(text, expected);
    }

    #[test]
    fn fields_of_a_newer_server_are_shown_with_their_units() {
        let mut app = app();
        let details = json!({
            "now_ns": 1_000_000_000,
            "info": { "pid": "<1.0.1>", "steps": 1 },
            "waits_for": [
                {
                    "kind": "sleep", "text": "the end of a sleep at src/a.rs:7", "line": "src/a.rs:7:13",
                    "deadline_ns": 3_000_000_000_u64, "since_ns": 500_000_000, "colour": null,
                },
            ],
            "keeps_time": true,
            "last_orders": [{ "type": "app::Get", "count": 3 }, { "type": "app::Put", "count": 1_000 }],
            "idle_time_ns": 1_500,
            "stack_bytes": 2_048,
            "nothing": [],
        });
        app.handle_reply("process", Ok(details));
        let text = screen(&app).join("\n");
        for row in [
            "waits for     the end of a sleep at src/a.rs:7, deadline in 2.0 s, since for 500 ms",
            "keeps time    yes",
            "last orders   count 3 type app::Get, count 1,000 type app::Put",
            "idle time     1.5 µs",
            "stack         2,048 bytes",
        ] {
            let row = row.get(..80).unwrap_or(row).trim_end();
            assert!(text.contains(row), "{row} is missing:\n{text}");
        }
        let none = text.split("none  ").nth(1).unwrap();
        assert!(none.contains("nothing") && !none.contains("colour"), "{text}");
    }

    #[test]
    fn the_rates_are_shown_as_charts() {
        let mut app = app();
        app.hello.requests = vec!["trace".into()];
        let read = |app: &mut App, second: u64, steps: u64, mailbox_len: u64| {
            let info = json!({ "pid": "<1.0.1>", "steps": steps, "mailbox_len": mailbox_len });
            app.handle_reply("process", Ok(json!({ "now_ns": second * 1_000_000_000, "info": info })));
        };
        read(&mut app, 1, 100, 8);
        read(&mut app, 2, 1_300, 4);
        let rows = screen(&app);
        assert_eq!(rows[19], "steps/s            1,200  █");
        assert_eq!(rows[20], "mailbox                4  █▄");
        assert_eq!(rows[21], "messages/s             -  press m to measure the messages with a live trace");
        let names = |app: &App| app.requests().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&app), ["hello", "process"]);
        app.handle_key(KeyCode::Char('m').into());
        assert_eq!(names(&app), ["hello", "process", "trace", "trace_events"]);
        app.handle_reply("trace", Ok(json!({ "now_ns": 2_000_000_000_u64 })));
        let events = |app: &mut App, second: u64, count: u64, lost: u64, ended: Option<&str>| {
            let events = vec![json!({ "event": "received" }); count as usize];
            let reply = json!({ "now_ns": second * 1_000_000_000, "events": events, "lost": lost, "ended": ended });
            app.handle_reply("trace_events", Ok(reply));
        };
        events(&mut app, 3, 1, 0, None);
        assert_eq!(screen(&app)[21], "messages/s             -  the live trace begins");
        events(&mut app, 4, 10, 0, None);
        events(&mut app, 5, 10, 30, Some("max_events"));
        assert_eq!(screen(&app)[21], "messages/s           ~40  ▂█");
        // A trace that has reached a limit begins again.
        assert_eq!(names(&app), ["hello", "process", "trace", "trace_events"]);
        app.handle_reply("trace", Ok(json!({})));
        assert_eq!(names(&app), ["hello", "process", "trace_events"]);
        // The measurement ends when the user presses the key again, or leaves the view.
        app.handle_key(KeyCode::Char('m').into());
        assert_eq!(names(&app), ["hello", "process", "stop_trace"]);
        app.handle_key(KeyCode::Char('m').into());
        app.handle_reply("trace", Ok(json!({})));
        app.handle_key(KeyCode::Char('2').into());
        assert_eq!(names(&app), ["hello", "processes", "stop_trace"]);
        assert!(!app.rates.messages.is_on);
    }
}
