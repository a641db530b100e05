//! The overview: rates, delays, processes, workers, queues and memory.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Sparkline;

use crate::app::App;
use crate::model::Histogram;
use crate::views::{ALARM, CHART, TITLE, draw_lines, duration, number, short};

/// Counters that are shown as rates and as totals.
const RATES: [(&str, &str); 13] = [
    ("steps", "steps"),
    ("messages", "messages"),
    ("spawned", "spawned"),
    ("exited", "exited"),
    ("yields", "commands"),
    ("completions", "completions"),
    ("parks", "parks"),
    ("wakes", "wakes"),
    ("refused", "refused"),
    ("dropped_by_policy", "dropped"),
    ("dead_letters", "dead letters"),
    ("late_replies", "late replies"),
    ("panics", "panics"),
];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let [chart_title, chart, columns] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(3), Constraint::Min(0)]).areas(area);
    let [left, right] = Layout::horizontal([Constraint::Length(34), Constraint::Min(0)]).areas(columns);
    let rate = number(app.interval.rate("steps") as u64);
    draw_lines(frame, chart_title, vec![Line::styled(format!("{rate} steps per second"), TITLE)]);
    let newest: Vec<u64> = app.history.iter().rev().take(chart.width.into()).rev().copied().collect();
    frame.render_widget(Sparkline::default().style(CHART).data(newest), chart);
    draw_lines(frame, left, rates(app));
    draw_lines(frame, right, figures(app));
}

/// Counters that are 0 in a program without faults.
const FAULTS: [&str; 5] = ["refused", "dropped_by_policy", "dead_letters", "panics", "long_steps"];

fn rates(app: &App) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(format!("{:<13}{:>8}{:>10}", "Counts", "per s", "total"), TITLE)];
    let total = |counter: &str| app.overview.metrics.counters.get(counter).copied().unwrap_or_default();
    for (counter, title) in RATES.into_iter().chain([("long_steps", "long steps")]) {
        let rate = app.interval.rate(counter);
        let rate = if rate < 10.0 { format!("{rate:.1}") } else { short(rate as u64) };
        let text = format!("{title:<13}{rate:>8}{:>10}", short(total(counter)));
        let is_alarm = total(counter) != 0 && FAULTS.contains(&counter);
        lines.push(if is_alarm { Line::styled(text, ALARM) } else { Line::raw(text) });
    }
    lines.push(Line::raw(format!("{:<13}{:>6.0} %", "steal success", app.interval.steal_success())));
    lines
}

fn figures(app: &App) -> Vec<Line<'static>> {
    let metrics = &app.overview.metrics;
    let mut lines = vec![Line::styled(format!("{:<12}{:>9}{:>9}{:>9}", "Times", "p50", "p99", "p99.9"), TITLE)];
    let interval = &app.interval;
    let times = [
        ("ready to run", &interval.delay),
        ("turn", &interval.step),
        ("in mailbox", &interval.mailbox),
        ("call", &interval.call),
    ];
    for (title, histogram) in times {
        lines.push(Line::raw(percentiles(title, histogram)));
    }
    let count = |map: &std::collections::BTreeMap<String, u64>, name: &str| map.get(name).copied().unwrap_or_default();
    let processes = |name| count(&metrics.processes, name);
    let workers = |state: &str| metrics.workers.iter().filter(|worker| worker.state == state).count();
    let local: u64 = metrics.workers.iter().map(|worker| worker.local_queue_depth).sum();
    let pool = |name| count(&metrics.blocking_pool, name);
    let memory: u64 = metrics.memory.values().sum();
    lines.push(Line::raw(""));
    let suspended = match processes("suspended") {
        0 => String::new(),
        count => format!(", {} suspended", number(count)),
    };
    lines.push(Line::styled(format!("Processes {}{suspended}", number(app.overview.processes_alive)), TITLE));
    lines.push(Line::raw(format!(
        "ready {}  running {}  blocked {}  idle {}",
        processes("ready"),
        processes("running"),
        processes("blocked"),
        processes("idle")
    )));
    lines.push(Line::raw(format!(
        "messages {}  longest mailbox {}",
        processes("mailbox_messages"),
        processes("longest_mailbox")
    )));
    lines.push(Line::raw(format!(
        "commands {}  timers {}  sockets {}",
        processes("outstanding_yields"),
        metrics.timers,
        metrics.sockets
    )));
    lines.push(Line::styled(format!("Workers {}", metrics.workers.len()), TITLE));
    lines.push(Line::raw(format!(
        "running {}  searching {}  parked {}  blocked {}",
        workers("running"),
        workers("searching"),
        workers("parked"),
        workers("blocked")
    )));
    lines.push(Line::raw(format!(
        "queues: local {local}  global {}  priority {}",
        metrics.global_queue_depth, metrics.priority_queue_depth
    )));
    lines.push(Line::raw(format!(
        "blocking pool: threads {}  idle {}  queued {}",
        pool("threads"),
        pool("idle_threads"),
        pool("queue_depth")
    )));
    lines.push(Line::raw(format!("memory {} KiB", number(memory >> 10))));
    lines
}

fn percentiles(title: &str, histogram: &Histogram) -> String {
    let at = |q| histogram.quantile(q).map_or("-".to_owned(), |time: Duration| duration(time));
    format!("{title:<12}{:>9}{:>9}{:>9}", at(0.5), at(0.99), at(0.999))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::app::App;
    use crate::views::tests::screen;

    #[test]
    fn the_overview_shows_rates_and_delays_and_gauges() {
        let overview = |seconds: u64, steps: u64| {
            json!({
                "now_ns": seconds * 1_000_000_000, "processes_alive": 1_234,
                "metrics": {
                    "elapsed_ns": seconds * 1_000_000_000,
                    "counters": { "steps": steps, "panics": 1, "steals_tried": 4, "steals_won": 1, "long_steps": 2 },
                    "distributions": {
                        "scheduling_delay": { "buckets": [[1_500, 10]] },
                        "mailbox_time": { "buckets": [[2_500, 10]] },
                    },
                    "workers": [{ "state": "blocked" }, { "state": "parked", "local_queue_depth": 3 }],
                    "processes": { "blocked": 1_230, "running": 4, "longest_mailbox": 77 },
                    "blocking_pool": { "threads": 5 }, "timers": 9, "memory": { "blocks": 3_072_000 },
                },
            })
        };
        let mut app = App::new("socket".into());
        app.handle_reply("overview", Ok(overview(1, 1_000)));
        let rows = screen(&app).join("\n");
        for text in ["1,000 steps per second", "Processes 1,234", "blocked 1230", "25 %"] {
            assert!(rows.contains(text), "{text} is missing:\n{rows}");
        }
        for (title, time) in [("ready to run", "1.5 µs"), ("in mailbox", "2.5 µs")] {
            assert!(rows.lines().any(|row| row.contains(title) && row.contains(time)), "{title} is missing:\n{rows}");
        }
        app.handle_reply("overview", Ok(overview(3, 5_000)));
        let rows = screen(&app).join("\n");
        for text in
            ["2,000 steps per second", "longest mailbox 77", "parked 1  blocked 1", "local 3", "timers 9", "3,000 KiB"]
        {
            assert!(rows.contains(text), "{text} is missing:\n{rows}");
        }
        // The total is the number since the start of the program.
        for row in
            ["steps           2,000     5,000", "panics            0.0         1", "long steps        0.0         2"]
        {
            assert!(rows.lines().any(|line| line.starts_with(row)), "{row} is missing:\n{rows}");
        }
        assert!(!rows.contains("1.5 µs"), "the durations of the first interval are shown again:\n{rows}");
        assert!(rows.contains('█'), "the chart is empty:\n{rows}");
    }
}
