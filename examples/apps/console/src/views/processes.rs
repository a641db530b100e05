//! The table of processes.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::{App, COLUMNS};
use crate::model::Row;
use crate::views::{SELECTED, TITLE, draw_lines, duration, number, offset, short, tail};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let visible = usize::from(area.height).saturating_sub(2);
    let (column, is_descending) = COLUMNS[app.column];
    let direction = if is_descending != app.is_reversed { "largest first" } else { "smallest first" };
    let filter = if app.filter.is_empty() { String::new() } else { format!(", filter {}", app.filter) };
    let alive = number(app.processes.processes_alive);
    let mut lines = vec![
        Line::raw(format!("{alive} processes, by {column}, {direction}{filter}")),
        Line::styled(
            line(
                "PID",
                "NAME OR TYPE",
                "STATE",
                ["MAIL", "PEAK", "CMDS", "WAITS", last_title(column)].map(str::to_owned),
            ),
            TITLE,
        ),
    ];
    let rows = app.processes.rows.iter().enumerate().skip(offset(app.selected, visible)).take(visible);
    for (index, row) in rows {
        let text = row_text(row, column, app.processes.now_ns);
        lines.push(if index == app.selected { Line::styled(text, SELECTED) } else { Line::raw(text) });
    }
    if app.processes.rows.is_empty() {
        lines.push(Line::raw("no process"));
    }
    draw_lines(frame, area, lines);
}

/// The registered name or, without a name, the type.
pub(crate) fn label(row: &Row) -> &str {
    row.name.as_deref().unwrap_or(&row.type_name)
}

/// The state, with marks for a priority, a cancellation and a kill.
pub(super) fn state(row: &Row) -> String {
    let mut text = row.state.clone().unwrap_or_else(|| "New".into());
    text.push_str(match row.priority.as_str() {
        "High" => "+",
        "Low" => "-",
        _ => "",
    });
    text.push_str(match (row.is_killed, row.is_cancelled) {
        (true, _) => " K",
        (false, true) => " C",
        (false, false) => "",
    });
    text
}

/// Title of the last column. If the rows are sorted by a value that has no column in the table, the last column shows
/// this value.
fn last_title(order: &str) -> &'static str {
    match order {
        "monitors" => "MONS",
        "monitored_by" => "MON BY",
        "signals" => "SIGS",
        "steps" => "STEPS",
        "last_worker" => "WORKER",
        "waiting_since_ns" => "WAITED",
        "unread_since_ns" => "UNREAD",
        _ => "LINKS",
    }
}

fn last_value(row: &Row, order: &str, now_ns: u64) -> String {
    let age = |since: Option<u64>| {
        since.map_or_else(|| "-".to_owned(), |since| duration(Duration::from_nanos(now_ns.saturating_sub(since))))
    };
    match order {
        "monitors" => short(row.monitors),
        "monitored_by" => short(row.monitored_by),
        "signals" => short(row.signals),
        "steps" => short(row.steps),
        "last_worker" => row.last_worker.map_or_else(|| "-".to_owned(), |worker| worker.to_string()),
        "waiting_since_ns" => age(row.waiting_since_ns),
        "unread_since_ns" => age(row.unread_since_ns),
        _ => row.links.to_string(),
    }
}

fn row_text(row: &Row, order: &str, now_ns: u64) -> String {
    let [mail, peak, commands, waits] =
        [row.mailbox_len, row.mailbox_peak, row.yields, row.waits].map(|count| count.to_string());
    line(&row.pid, label(row), &state(row), [mail, peak, commands, waits, last_value(row, order, now_ns)])
}

fn line(pid: &str, label: &str, state: &str, counts: [String; 5]) -> String {
    let [mail, peak, commands, waits, last] = counts;
    format!(
        "{:<18} {:<18} {state:<12}{mail:>6}{peak:>6}{commands:>5}{waits:>6}{last:>7}",
        tail(pid, 18),
        tail(label, 18)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::app::{App, COLUMNS, View};
    use crate::views::tests::screen;

    #[test]
    fn the_table_shows_names_and_types_and_states_and_counts() {
        let mut app = App { view: View::Processes, ..App::new("socket".into()) };
        let row = json!({
            "pid": "<1-8f3a.0.1>", "name": "cache", "type_name": "app::Cache", "state": "Blocked", "priority": "High",
            "mailbox_len": 12_345, "mailbox_peak": 23_456, "yields": 3, "waits": 2, "links": 1, "is_cancelled": true,
        });
        let unnamed = json!({ "pid": "<1-8f3a.1.1>", "type_name": "a::very::long::path::to::a::module::Worker" });
        app.handle_reply("processes", Ok(json!({ "processes_alive": 2_000, "rows": [row, unnamed] })));
        let rows = screen(&app);
        assert_eq!(rows[2], "2,000 processes, by mailbox_len, largest first");
        assert_eq!(rows[3], "PID                NAME OR TYPE       STATE         MAIL  PEAK CMDS WAITS  LINKS");
        assert_eq!(rows[4], "<1-8f3a.0.1>       cache              Blocked+ C   12345 23456    3     2      1");
        assert!(rows[5].starts_with("<1-8f3a.1.1>       …a::module::Worker New"), "{}", rows[5]);
    }

    #[test]
    fn the_last_column_shows_the_figure_of_the_order() {
        let mut app = App { view: View::Processes, ..App::new("socket".into()) };
        let row = json!({
            "pid": "<1.0.1>", "steps": 1_234_567, "last_worker": 3, "monitors": 4, "monitored_by": 5, "signals": 6,
            "links": 7, "waiting_since_ns": 500_000_000, "unread_since_ns": null,
        });
        app.handle_reply("processes", Ok(json!({ "now_ns": 2_000_000_000_u64, "rows": [row] })));
        for (order, title, value) in [
            ("steps", "STEPS", "1.2 M"),
            ("last_worker", "WORKER", "3"),
            ("monitors", "MONS", "4"),
            ("monitored_by", "MON BY", "5"),
            ("signals", "SIGS", "6"),
            ("name", "LINKS", "7"),
            ("waiting_since_ns", "WAITED", "1.5 s"),
            ("unread_since_ns", "UNREAD", "-"),
        ] {
            app.column = COLUMNS.iter().position(|(name, _)| *name == order).unwrap();
            let rows = screen(&app);
            assert!(rows[3].ends_with(&format!(" {title}")) && rows[4].ends_with(&format!(" {value}")), "{rows:#?}");
        }
    }

    #[test]
    fn the_table_follows_the_selection() {
        let mut app = App { view: View::Processes, ..App::new("socket".into()) };
        let all: Vec<_> = (0..100).map(|index| json!({ "pid": format!("<1.{index}.1>") })).collect();
        app.handle_reply("processes", Ok(json!({ "rows": all })));
        assert!(screen(&app)[4].starts_with("<1.0.1>"));
        app.selected = 99;
        let rows = screen(&app);
        assert!(rows[21].starts_with("<1.99.1>") && rows[22].is_empty(), "{rows:#?}");
        app.handle_reply("processes", Ok(json!({ "rows": [] })));
        assert_eq!(screen(&app)[4], "no process");
    }
}
