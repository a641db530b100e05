//! The last abnormal exits, newest first.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::ExitRecord;
use crate::views::{SELECTED, TITLE, draw_lines, duration, fit, offset, tail};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = vec![Line::styled(format!("{:<8} {:<18} {:<16} EXIT", "AGO", "PID", "NAME OR TYPE"), TITLE)];
    // The last lines show the details of the selected exit.
    let visible = usize::from(area.height).saturating_sub(4);
    let rows = app.exits.exits.iter().enumerate().skip(offset(app.selected, visible)).take(visible);
    for (index, record) in rows {
        let text = fit(&row(record, app.exits.now_ns), area.width.into());
        lines.push(if index == app.selected { Line::styled(text, SELECTED) } else { Line::raw(text) });
    }
    match app.exits.exits.get(app.selected) {
        Some(record) => lines.extend(details(record, area.width.into())),
        None => lines.push(Line::raw("no abnormal exit")),
    }
    draw_lines(frame, area, lines);
}

fn row(record: &ExitRecord, now_ns: u64) -> String {
    let ago = duration(Duration::from_nanos(now_ns.saturating_sub(record.at_ns)));
    let label = record.name.as_deref().unwrap_or(&record.type_name);
    let exit = record.exit.lines().next().unwrap_or_default();
    format!("{ago:<8} {:<18} {:<16} {exit}", tail(&record.pid, 18), tail(label, 16))
}

/// The type, the number of unread messages, and the place of a panic.
fn details(record: &ExitRecord, width: usize) -> Vec<Line<'static>> {
    let unread = format!(": {} unread messages", record.mailbox_len);
    let mut lines = vec![String::new(), tail(&record.type_name, width.saturating_sub(unread.len())) + &unread];
    lines.extend(record.location.as_ref().map(|place| format!("at {}", tail(place, width.saturating_sub(3)))));
    lines.into_iter().map(Line::raw).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    #[test]
    fn exits_are_shown_with_their_age() {
        let mut app = App { view: View::Exits, ..App::new("socket".into()) };
        assert_eq!(screen(&app)[3], "no abnormal exit");
        let one = json!({
            "pid": "<1.0.1>", "name": "cache", "type_name": "app::Cache", "exit": "panicked at src/a.rs:1:2: boom",
            "location": "src/a.rs:1:2", "mailbox_len": 3, "at_ns": 1_000_000_000,
        });
        let two = json!({ "pid": "<1.1.1>", "type_name": "app::Shop", "exit": "killed", "at_ns": 0 });
        app.handle_reply("last_exits", Ok(json!({ "now_ns": 3_000_000_000_u64, "exits": [one, two] })));
        let expected = [
            "AGO      PID                NAME OR TYPE     EXIT",
            "2.0 s    <1.0.1>            cache            panicked at src/a.rs:1:2: boom",
            "3.0 s    <1.1.1>            app::Shop        killed",
            "",
            "app::Cache: 3 unread messages",
            "at src/a.rs:1:2",
        ];
        assert_eq!(screen(&app)[2..8], expected);
    }
}
