//! The workers, and the processes that they run.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::Worker;
use crate::views::{ALARM, BOLD, draw_lines, duration};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = vec![
        Line::raw(format!("{} workers requested", app.workers.requested)),
        Line::styled(format!("{:<8}{:<11}{:>6}  {:<24}{}", "WORKER", "STATE", "QUEUE", "RUNS", "FOR AT LEAST"), BOLD),
    ];
    for worker in &app.workers.workers {
        let text = text(worker, app.busy_ns(worker.worker));
        lines.push(if worker.state == "blocked" { Line::styled(text, ALARM) } else { Line::raw(text) });
    }
    draw_lines(frame, area, lines);
}

/// `busy_ns` is the time for which the worker has been in the same step at least.
pub(crate) fn text(worker: &Worker, busy_ns: Option<u64>) -> String {
    let runs = match (&worker.process, worker.polls) {
        (Some(pid), _) => pid,
        (None, Some(_)) => "a future",
        (None, None) => "",
    };
    let time = busy_ns.map(|ns| duration(Duration::from_nanos(ns))).unwrap_or_default();
    let Worker { worker: number, state, local_queue_depth: queue, .. } = worker;
    format!("{number:<8}{state:<11}{queue:>6}  {runs:<24}{time}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    #[test]
    fn a_worker_is_shown_with_its_process_and_time() {
        let mut app = App { view: View::Workers, ..App::new("socket".into()) };
        for now in [1_000_000_000_u64, 4_000_000_000] {
            let blocked =
                json!({ "worker": 0, "state": "blocked", "local_queue_depth": 3, "process": "<1.0.1>", "polls": 9 });
            let parked = json!({ "worker": 1, "state": "parked", "local_queue_depth": 0 });
            app.handle_reply("workers", Ok(json!({ "now_ns": now, "requested": 2, "workers": [blocked, parked] })));
        }
        let rows = screen(&app);
        assert_eq!(
            rows[2..6],
            [
                "2 workers requested",
                "WORKER  STATE       QUEUE  RUNS                    FOR AT LEAST",
                "0       blocked         3  <1.0.1>                 3.0 s",
                "1       parked          0",
            ]
        );
    }
}
