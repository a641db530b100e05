//! The workers, the processes that they run, and the busiest processes.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::app::App;
use crate::model::{RunTimeRow, RunTimes, Worker};
use crate::views::{ALARM, SELECTED, TITLE, draw_lines, duration, number, offset, tail};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let workers = &app.workers.workers;
    let replaced = workers.iter().filter(|worker| worker.is_replaced == Some(true)).count();
    let mut lines = vec![
        Line::raw(format!("{} workers requested, {replaced} replaced", app.workers.requested)),
        Line::styled(line("WORKER", "STATE", "QUEUE", "RUNS", "FOR AT LEAST"), TITLE),
    ];
    // At least half of the area is reserved for the busiest processes.
    let visible = if app.run_times.is_some() { usize::from(area.height) / 2 } else { area.height.into() };
    let visible = visible.saturating_sub(lines.len());
    for (index, worker) in workers.iter().enumerate().skip(offset(app.selected, visible)).take(visible) {
        let text = text(worker, app.busy_ns(worker.worker));
        lines.push(match worker.state.as_str() {
            _ if index == app.selected => Line::styled(text, SELECTED),
            "blocked" => Line::styled(text, ALARM),
            _ => Line::raw(text),
        });
    }
    lines.extend(app.run_times.iter().flat_map(busiest));
    draw_lines(frame, area, lines);
}

/// If the number of measured turns of a process is below this number, the view marks the run time of the process as
/// rough.
const ROUGH: u64 = 10;

/// The processes with the longest run times since the last snapshot. The percentage is relative to the time since the
/// last snapshot.
fn busiest(times: &RunTimes) -> Vec<Line<'static>> {
    let header = format!("{:<22}{:<32}{:>7}{:>10}{:>8}", "BUSIEST", "NAME OR TYPE", "RUN %", "TURNS/s", "WORKER");
    let row = |row: &RunTimeRow| {
        let seconds = (times.window_ns as f64 / 1e9).max(1e-9);
        let (percent, rate) = (row.run_time_ns as f64 / 1e7 / seconds, row.turns as f64 / seconds);
        // A few measured turns give only a rough estimate.
        let mark = if row.measured_turns < ROUGH { "~" } else { "" };
        let percent = format!("{mark}{percent:.1}");
        let label = tail(row.name.as_deref().unwrap_or(&row.type_name), 31);
        let worker = row.last_worker.map_or_else(|| "-".into(), |worker| worker.to_string());
        let rate = number(rate as u64);
        Line::raw(format!("{:<22}{label:<32}{percent:>7}{rate:>10}{worker:>8}", tail(&row.pid, 21)))
    };
    [Line::raw(""), Line::styled(header, TITLE)].into_iter().chain(times.processes.iter().map(row)).collect()
}

/// Returns the row of a worker. The worker has been in its present step for at least the time `busy_ns`.
pub(crate) fn text(worker: &Worker, busy_ns: Option<u64>) -> String {
    let runs = match (&worker.process, worker.polls) {
        (Some(pid), _) => pid,
        (None, Some(_)) => "a future",
        (None, None) => "",
    };
    let time = busy_ns.map(|ns| duration(Duration::from_nanos(ns))).unwrap_or_default();
    line(&worker.worker.to_string(), &state(worker), &worker.local_queue_depth.to_string(), runs, &time)
}

/// The state of a worker. If the worker is blocked, the text also states whether another thread does the work of this
/// worker.
pub(crate) fn state(worker: &Worker) -> String {
    let replaced = match worker.is_replaced {
        Some(true) => ", replaced",
        Some(false) if worker.state == "blocked" => ", not replaced",
        Some(false) | None => "",
    };
    format!("{}{replaced}", worker.state)
}

fn line(worker: &str, state: &str, queue: &str, runs: &str, time: &str) -> String {
    format!("{worker:<8}{state:<22}{queue:>6}  {runs:<24}{time}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyCode;
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    #[test]
    fn a_worker_is_shown_with_its_process_and_time() {
        let mut app = App { view: View::Workers, ..App::new("socket".into()) };
        for now in [1_000_000_000_u64, 4_000_000_000] {
            let blocked =
                json!({ "worker": 0, "state": "blocked", "local_queue_depth": 3, "process": "<1.0.1>", "polls": 9 });
            let (mut replaced, mut alone) = (blocked.clone(), blocked.clone());
            (replaced["worker"], replaced["is_replaced"], replaced["process"]) =
                (2.into(), true.into(), "<1.2.1>".into());
            (alone["worker"], alone["is_replaced"], alone["process"]) = (3.into(), false.into(), json!(null));
            let parked = json!({ "worker": 1, "state": "parked", "local_queue_depth": 0 });
            let workers = [blocked, parked, replaced, alone];
            app.handle_reply("workers", Ok(json!({ "now_ns": now, "requested": 2, "workers": workers })));
        }
        let rows = screen(&app);
        assert_eq!(
            rows[2..8],
            [
                "2 workers requested, 1 replaced",
                "WORKER  STATE                  QUEUE  RUNS                    FOR AT LEAST",
                "0       blocked                    3  <1.0.1>                 3.0 s",
                "1       parked                     0",
                "2       blocked, replaced          3  <1.2.1>                 3.0 s",
                "3       blocked, not replaced      3  a future                3.0 s",
            ]
        );
        // Enter shows the process of the selected worker.
        app.selected = 2;
        app.handle_key(KeyCode::Enter.into());
        assert_eq!((app.view, app.pid.as_deref()), (View::Process, Some("<1.2.1>")));
    }

    #[test]
    fn the_busiest_processes_are_below_the_workers() {
        let mut app = App { view: View::Workers, ..App::new("socket".into()) };
        let names = |app: &App| app.requests().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&app), ["hello", "workers"], "an older server does not collect run times");
        app.handle_reply("hello", Ok(json!({ "requests": ["workers", "run_times"] })));
        assert_eq!(names(&app), ["hello", "workers", "run_times"]);
        let rows = [
            json!({ "pid": "<1.0.1>", "name": "index", "turns": 3_008, "run_time_ns": 1_500_000_000, "measured_turns": 47, "last_worker": 1 }),
            json!({ "pid": "<1.1.1>", "type_name": "app::Clock", "turns": 64, "run_time_ns": 2_000_000, "measured_turns": 1 }),
        ];
        app.handle_reply("run_times", Ok(json!({ "window_ns": 2_000_000_000_u64, "processes": rows })));
        let lines = screen(&app);
        assert_eq!(
            lines[5..8],
            [
                "BUSIEST               NAME OR TYPE                      RUN %   TURNS/s  WORKER",
                "<1.0.1>               index                              75.0     1,504       1",
                "<1.1.1>               app::Clock                         ~0.1        32       -",
            ]
        );
        // When the console shows another view, the console ends the collection of run times.
        app.view = View::Overview;
        assert_eq!(names(&app), ["hello", "overview", "stop_run_times"]);
        app.handle_reply("stop_run_times", Ok(json!({})));
        assert_eq!(names(&app), ["hello", "overview"]);
    }
}
