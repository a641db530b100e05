//! The supervision tree.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::TreeRow;
use crate::views::{ALARM, BOLD, SELECTED, draw_lines, duration, fit, number, offset, tail};

/// Deepest level that is indented further than the level above it.
const DEEPEST: usize = 8;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let tree = &app.tree;
    let mut lines = vec![Line::styled(format!("{:<26} {:<18} {:<9}RESTARTS", "NAME", "PID", "STATE"), BOLD)];
    // The last lines show the last exit of the selected child. If the server has left out rows, these last lines also
    // show the total number of rows.
    let visible = usize::from(area.height).saturating_sub(4);
    let rows = tree.rows.iter().enumerate().skip(offset(app.selected, visible)).take(visible);
    for (index, row) in rows {
        let text = fit(&text(row), area.width.into());
        lines.push(match index == app.selected {
            true => Line::styled(text, SELECTED),
            false if row.state == "down" => Line::styled(text, ALARM),
            false => Line::raw(text),
        });
    }
    if let Some(row) = tree.rows.get(app.selected) {
        let last = row.last.as_deref().unwrap_or("none");
        lines.extend([Line::raw(""), Line::raw(fit(&format!("last exit: {last}"), area.width.into()))]);
    } else {
        lines.push(Line::raw("no supervisor"));
    }
    if tree.row_count > tree.rows.len() as u64 {
        lines.push(Line::raw(format!("{} rows in total", number(tree.row_count))));
    }
    draw_lines(frame, area, lines);
}

fn text(row: &TreeRow) -> String {
    let indent = 2 * usize::try_from(row.depth).map_or(DEEPEST, |depth| depth.min(DEEPEST));
    let name = row.name.as_deref().unwrap_or("(no name)");
    let limits = row.supervisor.as_ref().map_or(String::new(), |supervisor| {
        let within = duration(Duration::from_nanos(supervisor.within_ns));
        format!(" {}, {} in {within}", supervisor.strategy, supervisor.max_restarts)
    });
    let pid = row.pid.as_deref().unwrap_or("-");
    let name = format!("{:indent$}{}", "", tail(name, 26 - indent));
    format!("{name:<26} {:<18} {:<9}{}{limits}", tail(pid, 18), row.state, row.restarts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    #[test]
    fn supervisors_and_children_are_shown_as_a_tree() {
        let mut app = App { view: View::Tree, ..App::new("socket".into()) };
        assert_eq!(screen(&app)[3], "no supervisor");
        let supervisor = json!({ "strategy": "one for one", "max_restarts": 3, "within_ns": 5_000_000_000_u64 });
        let rows = json!([
            { "depth": 0, "pid": "<1.0.1>", "name": "top", "state": "up", "supervisor": supervisor },
            { "depth": 1, "pid": "<1.2.1>", "name": "cache", "state": "up", "restarts": 2, "last": "failed: no disk" },
            { "depth": 1, "pid": null, "state": "down" },
        ]);
        app.handle_reply("supervision_tree", Ok(json!({ "rows": rows, "row_count": 3 })));
        app.selected = 1;
        let expected = [
            "NAME                       PID                STATE    RESTARTS",
            "top                        <1.0.1>            up       0 one for one, 3 in 5.0 s",
            "  cache                    <1.2.1>            up       2",
            "  (no name)                -                  down     0",
            "",
            "last exit: failed: no disk",
        ];
        assert_eq!(screen(&app)[2..8], expected);
    }
}
