//! The details of one process.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use crate::app::App;
use crate::model::{Details, Row};
use crate::views::processes::state;
use crate::views::{BOLD, duration, number};

/// Maximum number of entries that are shown from a list.
const SHOWN: usize = 20;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let lines = match (&app.pid, &app.details) {
        (None, _) => vec![Line::raw("Select a process in the view Processes or Waits, and press Enter.")],
        (Some(pid), None) => vec![Line::raw(format!("process {pid} has exited"))],
        (Some(_), Some(details)) => lines(details),
    };
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn lines(details: &Details) -> Vec<Line<'static>> {
    let info = &details.info;
    let mut lines = vec![
        field("pid", info.pid.clone()),
        field("names", or_none(details.names.join(", "))),
        field("type", info.type_name.clone()),
        field("parent", info.parent.clone().unwrap_or_else(|| "none".into())),
        field("state", format!("{}{}, priority {}", state(info), waiting_time(details), info.priority)),
        field("mailbox", mailbox(details)),
        field("steps", steps(info)),
    ];
    for (index, wait) in details.waits_for.iter().take(SHOWN).enumerate() {
        lines.push(field(if index == 0 { "waits for" } else { "" }, wait.text.clone()));
    }
    let commands = details.yields.iter().map(|one| format!("{} × {}", one.count, one.command)).collect::<Vec<_>>();
    lines.extend([
        field("commands", list(&commands)),
        field("links", list(&details.links)),
        field("monitors", list(&details.monitors)),
        field("monitored by", list(&details.monitored_by)),
        field("joined by", details.joined_by.clone().unwrap_or_else(|| "none".into())),
        field("groups", list(&details.groups)),
        field("timers", times(details, &details.timers_ns)),
        field("deadline", times(details, details.deadline_ns.as_slice())),
    ]);
    lines
}

/// Returns the time for which the process has waited, as a text.
fn waiting_time(details: &Details) -> String {
    details.info.waiting_since_ns.map_or_else(String::new, |since| format!(" for {}", time_since(details, since)))
}

fn time_since(details: &Details, since: u64) -> String {
    duration(Duration::from_nanos(details.now_ns.saturating_sub(since)))
}

fn mailbox(details: &Details) -> String {
    let info = &details.info;
    let oldest = |since| format!(" (oldest about {} or more)", time_since(details, since));
    format!(
        "{} messages{}, {} signals, peak {}",
        number(info.mailbox_len),
        info.unread_since_ns.map_or_else(String::new, oldest),
        number(info.signals),
        number(info.mailbox_peak)
    )
}

/// Returns the number of steps and the worker of the last step, as a text.
fn steps(info: &Row) -> String {
    let worker = info.last_worker.map_or_else(String::new, |worker| format!(", the last on worker {worker}"));
    number(info.steps) + &worker
}

fn field(name: &str, value: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name:<14}"), BOLD), Span::raw(value)])
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}

fn list(values: &[String]) -> String {
    let more = if values.len() > SHOWN { " …" } else { "" };
    or_none(values.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ") + more)
}

/// Returns the times from now until the moments `at`, as a text.
fn times(details: &Details, at: &[u64]) -> String {
    let left = |at: &u64| format!("in {}", duration(Duration::from_nanos(at.saturating_sub(details.now_ns))));
    list(&at.iter().map(left).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    #[test]
    fn the_details_of_a_process_are_shown() {
        let mut app = App { view: View::Process, ..App::new("socket".into()) };
        assert_eq!(screen(&app)[2], "Select a process in the view Processes or Waits, and press Enter.");
        app.pid = Some("<1.0.1>".into());
        assert_eq!(screen(&app)[2], "process <1.0.1> has exited");
        let details = json!({
            "now_ns": 1_000_000_000,
            "info": {
                "pid": "<1.0.1>", "type_name": "app::Shop", "state": "Blocked", "waiting_since_ns": 250_000_000,
                "priority": "Normal", "mailbox_len": 7, "unread_since_ns": 980_000_000,
                "steps": 1_234, "last_worker": 1,
            },
            "names": ["shop", "market"],
            "links": ["<1.1.1>"],
            "joined_by": "<1.4.1>",
            "yields": [{ "command": "app::Fetch", "count": 2 }],
            "timers_ns": [3_500_000_000_u64],
            "waits_for": [
                { "kind": "call", "pid": "<1.2.1>", "text": "the answer to a call to <1.2.1> at src/shop.rs:41" },
                { "kind": "message", "text": "a message" },
            ],
        });
        app.handle_reply("process", Ok(details));
        let rows = screen(&app);
        let expected = [
            "pid           <1.0.1>",
            "names         shop, market",
            "type          app::Shop",
            "parent        none",
            "state         Blocked for 750 ms, priority Normal",
            "mailbox       7 messages (oldest about 20 ms or more), 0 signals, peak 0",
            "steps         1,234, the last on worker 1",
            "waits for     the answer to a call to <1.2.1> at src/shop.rs:41",
            "              a message",
            "commands      2 × app::Fetch",
            "links         <1.1.1>",
            "monitors      none",
            "monitored by  none",
            "joined by     <1.4.1>",
            "groups        none",
            "timers        in 2.5 s",
            "deadline      none",
        ];
        assert_eq!(rows[2..2 + expected.len()], expected);
    }
}
