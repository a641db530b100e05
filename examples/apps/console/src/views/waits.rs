//! The wait-for graph: deadlocks first, then the edges.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::{Deadlock, Edge};
use crate::views::{ALARM, SELECTED, TITLE, draw_lines, fit, offset, tail};

/// Width of the column with the names of the waiting processes.
const LABEL_WIDTH: usize = 28;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let graph = &app.graph;
    let height = usize::from(area.height);
    let mut lines = match graph.deadlock_count {
        0 => vec![Line::styled("no deadlock", TITLE)],
        1 => vec![Line::styled("1 deadlock", ALARM)],
        count => vec![Line::styled(format!("{count} deadlocks"), ALARM)],
    };
    for deadlock in &graph.deadlocks {
        lines.extend(describe(deadlock, area.width.into()));
    }
    // At least a third of the area is reserved for the edges.
    let most = (height * 2 / 3).max(1);
    if lines.len() > most {
        lines.truncate(most.saturating_sub(1));
        lines.push(Line::raw("…"));
    }
    lines.push(Line::styled(
        format!("{} processes wait for another process", waiting(&graph.edges, graph.edge_count)),
        TITLE,
    ));
    let visible = height.saturating_sub(lines.len());
    let edges = graph.edges.iter().enumerate().skip(offset(app.selected, visible)).take(visible);
    for (index, edge) in edges {
        let text = row(&edge.pid, &row_label(edge), &edge.waits_for.kind, &edge.target);
        lines.push(if index == app.selected { Line::styled(text, SELECTED) } else { Line::raw(text) });
    }
    draw_lines(frame, area, lines);
}

/// The number of waiting processes. A process may have several edges. If the server has sent only a part of the edges,
/// the number is not known.
fn waiting(edges: &[Edge], edge_count: u64) -> String {
    let pids: std::collections::BTreeSet<&str> = edges.iter().map(|edge| edge.pid.as_str()).collect();
    if edge_count > edges.len() as u64 { format!("more than {}", pids.len()) } else { pids.len().to_string() }
}

/// Returns two lines for each process of the cycle, because one line with all parts would be too long.
fn describe(deadlock: &Deadlock, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for edge in &deadlock.cycle {
        let in_block_on = if edge.in_block_on { ", in block_on" } else { "" };
        lines.push(Line::raw(format!("  {} {}{in_block_on}", edge.pid, label(edge))));
        lines.push(Line::raw(fit(&format!("    waits for {}", edge.waits_for.text), width)));
    }
    if deadlock.behind_len != 0 {
        let shown: Vec<&str> = deadlock.behind.iter().take(4).map(String::as_str).collect();
        let more = if deadlock.behind.len() > shown.len() { " …" } else { "" };
        let text = format!("  behind them {}: {}{more}", deadlock.behind_len, shown.join(", "));
        lines.push(Line::raw(text));
    }
    lines
}

/// Returns a row of the table of edges, without the source line. The view of the process shows the source line.
fn row(pid: &str, label: &str, kind: &str, target: &str) -> String {
    format!("{:<22} {label:<LABEL_WIDTH$} {kind:<6} {}", tail(pid, 22), tail(target, 22))
}

/// Returns the name of the waiting process, and whether the process waits in a step that has called `block_on`.
fn row_label(edge: &Edge) -> String {
    let end = if edge.in_block_on { ", in block_on" } else { "" };
    tail(label(edge), LABEL_WIDTH - end.len()) + end
}

fn label(edge: &Edge) -> &str {
    edge.name.as_deref().unwrap_or(&edge.type_name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::app::{App, View};
    use crate::views::tests::screen;

    fn edge(from: u32, name: &str, to: u32) -> Value {
        let text = format!("the answer to a call to <1.{to}.1> at src/shop.rs:41");
        let waits_for = json!({ "kind": "call", "pid": format!("<1.{to}.1>"), "text": text });
        json!({ "pid": format!("<1.{from}.1>"), "name": name, "target": format!("<1.{to}.1>"), "waits_for": waits_for })
    }

    #[test]
    fn deadlocks_and_edges_are_shown() {
        let mut app = App { view: View::Waits, ..App::new("socket".into()) };
        assert_eq!(screen(&app)[2..4], ["no deadlock", "0 processes wait for another process"]);
        let (mut one, two, three) = (edge(1, "shop", 2), edge(2, "bank", 1), edge(3, "guest", 1));
        one["in_block_on"] = true.into();
        let deadlock = json!({ "cycle": [one, two], "behind": ["<1.3.1>"], "behind_len": 1 });
        let graph =
            json!({ "edges": [one, two, three], "edge_count": 3, "deadlocks": [deadlock], "deadlock_count": 1 });
        app.handle_reply("wait_for_graph", Ok(graph));
        let rows = screen(&app);
        let expected = [
            "1 deadlock",
            "  <1.1.1> shop, in block_on",
            "    waits for the answer to a call to <1.2.1> at src/shop.rs:41",
            "  <1.2.1> bank",
            "    waits for the answer to a call to <1.1.1> at src/shop.rs:41",
            "  behind them 1: <1.3.1>",
            "3 processes wait for another process",
            "<1.1.1>                shop, in block_on            call   <1.2.1>",
            "<1.2.1>                bank                         call   <1.1.1>",
        ];
        assert_eq!(rows[2..11], expected);
    }

    #[test]
    fn a_long_deadlock_leaves_room_for_edges() {
        let mut app = App { view: View::Waits, ..App::new("socket".into()) };
        let edges: Vec<_> = (0..50).map(|from| edge(from, "ring", (from + 1) % 50)).collect();
        let deadlock = json!({ "cycle": edges, "behind": [], "behind_len": 0 });
        let graph = json!({ "edges": edges, "edge_count": 90, "deadlocks": [deadlock], "deadlock_count": 1 });
        app.handle_reply("wait_for_graph", Ok(graph));
        let rows = screen(&app);
        assert_eq!((rows[14].as_str(), rows[15].as_str()), ("…", "more than 50 processes wait for another process"));
        app.selected = 49;
        assert!(screen(&app)[21].starts_with("<1.49.1>               ring"));
    }
}
