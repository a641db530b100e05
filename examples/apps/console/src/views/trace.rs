//! The live trace of one process. The newest event is the last line.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::trace::{Phase, Trace, line};
use crate::views::{ALARM, TITLE, draw_lines, fit, number};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Trace { phase, pid, start, events, event_count, lost, .. } = &app.trace;
    let state = match phase {
        Phase::Off | Phase::Wanted => "starts".to_owned(),
        Phase::Running => "runs".to_owned(),
        Phase::Ended(reason) => format!("ended: {reason}"),
    };
    let title = format!("{pid} {}", start.label);
    let counts = format!("{} events, {} lost; {state}", number(*event_count), number(*lost));
    let width = usize::from(area.width);
    let mut lines = vec![
        Line::raw(fit(&title, width)),
        Line::raw(fit(&counts, width)),
        Line::styled(format!("{:>12}  {:>6}  EVENT", "SECONDS", "WORKER"), TITLE),
    ];
    let visible = usize::from(area.height).saturating_sub(lines.len());
    for event in events.iter().skip(events.len().saturating_sub(visible)) {
        let text = fit(&line(event, start.now_ns), width);
        lines.push(if event.event == "lost" { Line::styled(text, ALARM) } else { Line::raw(text) });
    }
    draw_lines(frame, area, lines);
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use serde_json::json;

    use crate::app::{App, Effect, View};
    use crate::keys;
    use crate::views::tests::screen;

    #[test]
    fn the_newest_events_are_at_the_bottom() {
        let mut app = App { view: View::Process, pid: Some("<1.0.1>".into()), ..App::new("socket".into()) };
        assert_eq!(app.handle_key(KeyEvent::from(KeyCode::Char('t'))), Effect::Refresh);
        let names: Vec<_> = app.requests().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["hello", "trace", "trace_events"]);
        app.handle_reply("trace", Ok(json!({ "now_ns": 1_000, "label": "shop (app::Shop)" })));
        let event = |n: u64| json!({ "at_ns": 1_000 + 1_000 * n, "worker": 0, "event": "received" });
        let mut events: Vec<_> = (0..30).map(event).collect();
        events.push(json!({ "at_ns": 41_000, "worker": null, "event": "sent", "from": "<1.2.1>" }));
        let reply = json!({ "events": events, "unread": 0, "event_count": 1_031, "lost": 7, "ended": null });
        app.handle_reply("trace_events", Ok(reply));
        let rows = screen(&app);
        let expected = ["<1.0.1> shop (app::Shop)", "1,031 events, 7 lost; runs", "     SECONDS  WORKER  EVENT"];
        assert_eq!(rows[2..5], expected);
        assert_eq!(rows[5], "    0.000014       0  received");
        assert_eq!(rows[21], "    0.000040       -  sent           by <1.2.1>");
        assert!(rows[23].starts_with("q quit  p pause  t trace again") && keys::help(View::Trace).len() <= 80);
        // The console stops the trace when the console shows another view.
        assert_eq!(app.handle_key(KeyEvent::from(KeyCode::Esc)), Effect::Refresh);
        let names: Vec<_> = app.requests().iter().map(|(name, _)| *name).collect();
        assert_eq!((app.view, names), (View::Process, vec!["hello", "process", "stop_trace"]));
        app.handle_reply("stop_trace", Ok(json!({})));
        assert_eq!(app.requests().len(), 2);
    }
}
