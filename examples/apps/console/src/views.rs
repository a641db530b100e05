//! Draws the state of the console. The functions only read the state, so tests can draw any state on a buffer.

mod exits;
pub(crate) mod explain;
mod overview;
pub(crate) mod process;
mod processes;
pub(crate) mod recording;
mod registry;
mod trace;
mod tree;
mod waits;
mod workers;

use std::time::Duration;

use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use ratatui::{Frame, Terminal};

use crate::app::{App, Prompt, View};
use crate::keys;
use crate::player::Player;

pub(crate) use processes::label as processes_label;
pub(crate) use workers::state as worker_state;

/// Titles of rows and columns.
const TITLE: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
/// Bars of charts.
const CHART: Style = Style::new().fg(Color::Green);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
        Constraint::Length(1),
    ];
    let [title, tabs, body, message, help] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(title_line(app), title);
    frame.render_widget(tab_line(app.view.tab()), tabs);
    match app.view {
        View::Overview => overview::draw(frame, body, app),
        View::Processes => processes::draw(frame, body, app),
        View::Process => process::draw(frame, body, app),
        View::Waits => waits::draw(frame, body, app),
        View::Workers => workers::draw(frame, body, app),
        View::Explain => explain::draw(frame, body, app),
        View::Exits => exits::draw(frame, body, app),
        View::Tree => tree::draw(frame, body, app),
        View::Registry => registry::draw(frame, body, app),
        View::Trace => trace::draw(frame, body, app),
    }
    frame.render_widget(message_line(app), message);
    frame.render_widget(Paragraph::new(keys::help(app.view)).style(DIM), help);
}

/// Returns the screen of 80 x 24 characters that [`draw`] draws.
pub fn buffer(app: &App) -> Buffer {
    buffer_with(|frame| draw(frame, app))
}

/// Returns the screen of 80 x 24 characters that shows the present moment of a recording.
pub fn player_buffer(player: &Player) -> Buffer {
    buffer_with(|frame| recording::draw(frame, player))
}

/// Returns a screen of 80 x 24 characters.
fn buffer_with(draw: impl FnOnce(&mut Frame<'_>)) -> Buffer {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(80, 24));
    let Ok(_) = terminal.draw(draw);
    terminal.backend().buffer().clone()
}

/// Returns the rows of a screen, without trailing spaces.
pub fn rows(buffer: &Buffer) -> Vec<String> {
    let Rect { width, height, .. } = buffer.area;
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn title_line(app: &App) -> Paragraph<'_> {
    let hello = &app.hello;
    let mut text = format!("{} (process {}), node {}", hello.program, hello.program_pid, hello.node);
    text.push_str(if hello.actions { ", actions on" } else { "" });
    text.push_str(if app.is_paused { ", PAUSED" } else { "" });
    Paragraph::new(Line::styled(text, TITLE))
}

fn tab_line(view: View) -> Paragraph<'static> {
    // The line has no room for a space between the number and the name of a view. The style separates them.
    let tab = |(index, one): (usize, &View)| {
        let style = if *one == view { SELECTED } else { Style::new() };
        [Span::styled(format!("{}", index + 1), TITLE), Span::styled(one.name(), style), Span::raw(" ")]
    };
    Paragraph::new(Line::from_iter(View::ALL.iter().enumerate().flat_map(tab)))
}

fn message_line(app: &App) -> Paragraph<'_> {
    match &app.prompt {
        Some(Prompt::Confirm { question, .. }) => Paragraph::new(format!("{question} (y/n)")).style(ALARM),
        Some(Prompt::Filter(text)) if app.message.is_none() => {
            let title = match app.view {
                View::Registry => "prefix of the names",
                _ => "filter (NAME type=TEXT state=STATE)",
            };
            Paragraph::new(format!("{title}: {text}_")).style(TITLE)
        }
        _ => {
            let text = app.error.as_ref().or(app.message.as_ref());
            Paragraph::new(text.map_or("", String::as_str)).style(ALARM)
        }
    }
}

/// Returns the number of rows above the first visible row. With this number, the selected row is visible.
fn offset(selected: usize, visible: usize) -> usize {
    (selected + 1).saturating_sub(visible)
}

/// Draws lines. Lines that do not fit into the area are left out.
fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

/// A number with separators between the thousands.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with at most seven characters.
pub fn short(value: u64) -> String {
    match value {
        0..1_000_000 => number(value),
        1_000_000..1_000_000_000 => format!("{:.1} M", value as f64 / 1e6),
        _ => format!("{:.1} G", value as f64 / 1e9),
    }
}

/// A duration with three significant digits at most.
pub fn duration(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns if ns < 120e9 => (ns / 1e9, "s"),
        ns if ns < 7200e9 => (ns / 60e9, "min"),
        ns => (ns / 3600e9, "h"),
    };
    if value < 10.0 && unit != "ns" { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// Returns the end of a text, with at most `width` characters. The end of a type name is its most specific part.
pub fn tail(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    std::iter::once('…').chain(text.chars().skip(count + 1 - width)).take(width).collect()
}

/// Shortens a text to `width` characters. If the text ends with ` at ` and a source location, the end of this location
/// is kept.
pub fn fit(text: &str, width: usize) -> String {
    let length = |text: &str| text.chars().count();
    if length(text) <= width {
        return text.to_owned();
    }
    match text.rsplit_once(" at ") {
        Some((head, location)) if length(head) + 12 <= width => {
            format!("{head} at {}", tail(location, width - length(head) - 4))
        }
        _ => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the screen of 80 x 24 characters, without trailing spaces.
    pub(crate) fn screen(app: &App) -> Vec<String> {
        rows(&buffer(app))
    }

    #[test]
    fn each_view_has_a_title_and_tabs_and_keys() {
        for view in View::ALL {
            let mut app = App { view, ..App::new("socket".into()) };
            (app.hello.program, app.hello.program_pid) = ("demo".into(), 7);
            let rows = screen(&app);
            assert_eq!(rows[0], "demo (process 7), node 0");
            assert_eq!(rows[1], "1Overview 2Processes 3Process 4Waits 5Workers 6Explain 7Exits 8Tree 9Registry");
            assert!(rows[23].starts_with("q quit  p pause"), "{rows:#?}");
            app.message = Some("a message".into());
            assert_eq!(screen(&app)[22], "a message");
        }
    }

    #[test]
    fn large_numbers_are_short() {
        let numbers = [0, 999_999, 1_000_000, 123_456_789, 1_234_567_890].map(short);
        assert_eq!(numbers, ["0", "999,999", "1.0 M", "123.5 M", "1.2 G"]);
    }

    #[test]
    fn numbers_and_durations_and_texts_are_short() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        let times = [0, 999, 1_500, 12_345, 1_500_000, 2_500_000_000, 600_000_000_000, 7_200_000_000_000];
        let texts = times.map(|ns| duration(Duration::from_nanos(ns)));
        assert_eq!(texts, ["0 ns", "999 ns", "1.5 µs", "12 µs", "1.5 ms", "2.5 s", "10 min", "2.0 h"]);
        let edge = "a waits for b at src/a/long/path.rs:41";
        assert_eq!((fit(edge, 38), fit(edge, 30)), (edge.into(), "a waits for b at …g/path.rs:41".into()));
        assert_eq!((fit(edge, 16), fit("abcd", 3)), ("a waits for b a…".into(), "ab…".into()));
        assert_eq!((tail("abc", 3), tail("abcd", 3), tail("äöüß", 2)), ("abc".into(), "…cd".into(), "…ß".into()));
    }

    #[test]
    fn the_selected_row_is_visible() {
        assert_eq!((offset(0, 10), offset(9, 10), offset(10, 10), offset(3, 0)), (0, 0, 1, 4));
    }
}
