//! The supervision tree.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::{Supervisor, TreeRow};
use crate::views::{ALARM, SELECTED, TITLE, draw_lines, duration, fit, number, offset, tail};

/// Deepest level with its own indentation. Deeper levels have the same indentation as this level.
const DEEPEST: usize = 8;

/// Width of the column of names.
const NAME_WIDTH: usize = 24;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let tree = &app.tree;
    let mut lines = vec![Line::styled(line("NAME", "PID", "STATE", "RESTARTS", "LEFT"), TITLE)];
    // The last lines show the last exit of the selected child. If the server has left out rows, these last lines also
    // show the total number of rows.
    let visible = usize::from(area.height).saturating_sub(4);
    let rows = tree.rows.iter().enumerate().skip(offset(app.selected, visible)).take(visible);
    for (index, row) in rows {
        let text = fit(&text(row), area.width.into());
        lines.push(match index == app.selected {
            true => Line::styled(text, SELECTED),
            false if row.state == "stopped" || has_no_budget(row) => Line::styled(text, ALARM),
            false => Line::raw(text),
        });
    }
    if let Some(row) = tree.rows.get(app.selected) {
        let strategy = row.supervisor.as_ref().map_or(String::new(), |supervisor| format!("{}; ", supervisor.strategy));
        let last = row.last.as_deref().unwrap_or("none");
        lines.extend([Line::raw(""), Line::raw(fit(&format!("{strategy}last exit: {last}"), area.width.into()))]);
    } else {
        lines.push(Line::raw("no supervisor"));
    }
    if tree.row_count > tree.rows.len() as u64 {
        lines.push(Line::raw(format!("{} rows in total", number(tree.row_count))));
    }
    draw_lines(frame, area, lines);
}

/// Whether this supervisor exits if the supervisor must restart a child one more time.
fn has_no_budget(row: &TreeRow) -> bool {
    row.supervisor.as_ref().is_some_and(|supervisor| supervisor.restarts_left == Some(0))
}

fn text(row: &TreeRow) -> String {
    let indent = 2 * usize::try_from(row.depth).map_or(DEEPEST, |depth| depth.min(DEEPEST));
    let name = row.name.as_deref().unwrap_or("(no name)");
    let left = row.supervisor.as_ref().map_or(String::new(), |supervisor| {
        let Supervisor { max_restarts, within_ns, restarts_left, .. } = supervisor;
        let within = duration(Duration::from_nanos(*within_ns));
        let left = restarts_left.map_or_else(|| "?".into(), |left| left.to_string());
        format!("{left} of {max_restarts} in {within}")
    });
    let name = format!("{:indent$}{}", "", tail(name, NAME_WIDTH - indent));
    line(&name, tail(row.pid.as_deref().unwrap_or("-"), 18).as_str(), &row.state, &row.restarts.to_string(), &left)
}

fn line(name: &str, pid: &str, state: &str, restarts: &str, left: &str) -> String {
    format!("{name:<NAME_WIDTH$} {pid:<18} {state:<11}{restarts:>8}  {left}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use ratatui::style::Color;
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::buffer;
    use crate::views::tests::screen;

    #[test]
    fn supervisors_and_children_are_shown_as_a_tree_with_their_budgets() {
        let mut app = App { view: View::Tree, ..App::new("socket".into()) };
        assert_eq!(screen(&app)[3], "no supervisor");
        let supervisor = |left: Option<u64>| {
            json!({
                "strategy": "rest for one", "max_restarts": 3, "within_ns": 5_000_000_000_u64, "restarts_left": left,
            })
        };
        let rows = json!([
            { "depth": 0, "pid": "<1.0.1>", "name": "top", "state": "running", "supervisor": supervisor(Some(1)) },
            {
                "depth": 1, "pid": "<1.2.1>", "name": "cache", "state": "running", "restarts": 2,
                "last": "failed: no disk",
            },
            { "depth": 1, "pid": null, "state": "stopped" },
            { "depth": 0, "pid": "<1.4.1>", "name": "spent", "state": "running", "supervisor": supervisor(Some(0)) },
            { "depth": 0, "pid": "<1.5.1>", "name": "older", "state": "running", "supervisor": supervisor(None) },
        ]);
        app.handle_reply("supervision_tree", Ok(json!({ "rows": rows, "row_count": 5 })));
        app.selected = 1;
        let expected = [
            "NAME                     PID                STATE      RESTARTS  LEFT",
            "top                      <1.0.1>            running           0  1 of 3 in 5.0 s",
            "  cache                  <1.2.1>            running           2",
            "  (no name)              -                  stopped           0",
            "spent                    <1.4.1>            running           0  0 of 3 in 5.0 s",
            "older                    <1.5.1>            running           0  ? of 3 in 5.0 s",
            "",
            "last exit: failed: no disk",
        ];
        assert_eq!(screen(&app)[2..10], expected);
        app.selected = 0;
        assert_eq!(screen(&app)[9], "rest for one; last exit: none");
        // A stopped child and a supervisor without a budget are red.
        let colours = [3, 5, 6].map(|row| buffer(&app)[(0, row)].fg);
        assert_eq!(colours, [Color::Reset, Color::Red, Color::Red]);
    }
}
