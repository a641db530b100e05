//! One moment of a recording: the present event, the counters, the threads, and the processes.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::player::Player;
use crate::recording::{Kind, TrackKind};
use crate::views::{ALARM, DIM, SELECTED, TITLE, draw_lines, duration, fit, number, offset, tail};

const HELP: &str = "q quit  n/p step  N/P 100  g/G start/end  ↑↓ choose process  f/b its next/prev";

/// Draws the whole screen.
pub(crate) fn draw(frame: &mut Frame<'_>, player: &Player) {
    let rows = [Constraint::Length(3), Constraint::Min(0), Constraint::Length(1), Constraint::Length(1)];
    let [head, body, message, help] = Layout::vertical(rows).areas(frame.area());
    let width = usize::from(head.width);
    draw_lines(
        frame,
        head,
        vec![
            Line::styled(fit(&title(player), width), TITLE),
            Line::raw(fit(&present(player), width)),
            Line::raw(fit(&counters(player), width)),
        ],
    );
    let height = usize::from(body.height);
    let mut lines = threads(player, width);
    // The processes get at least half of the area.
    lines.truncate((height / 2).max(1));
    let room = height.saturating_sub(lines.len());
    lines.extend(processes(player, width, room));
    draw_lines(frame, body, lines);
    frame.render_widget(Paragraph::new(player.message.unwrap_or_default()).style(ALARM), message);
    frame.render_widget(Paragraph::new(HELP).style(DIM), help);
}

fn title(player: &Player) -> String {
    let recording = &player.recording;
    let mut text = format!("recording of {}: {} events", recording.title, number(recording.events.len() as u64));
    if recording.left_out != 0 {
        text.push_str(&format!(", {} left out", number(recording.left_out)));
    }
    if recording.incomplete_bytes != 0 {
        text.push_str(", cut off");
    }
    text
}

/// The present event.
fn present(player: &Player) -> String {
    let recording = &player.recording;
    let Some(event) = player.present() else { return "no event".into() };
    let after = duration(Duration::from_nanos(event.at - recording.begin_ns()));
    let track = player.track(event.track as usize);
    let name = match track.kind {
        TrackKind::Process => track.pid(),
        TrackKind::Lane | TrackKind::Counter | TrackKind::Group => &track.name,
    };
    let text = match event.kind {
        Kind::Begin => format!("{} begins {}", recording.text(event.name), recording.note(event)),
        Kind::End => match recording.events.get(event.link as usize) {
            Some(begin) => format!("{} ends {}", recording.text(begin.name), recording.note(begin)),
            None => "end".into(),
        },
        Kind::Instant => format!("{} {}", recording.text(event.name), recording.note(event)),
        Kind::Counter => event.value.to_string(),
    };
    format!("event {} at +{after}, {name}: {}", number(player.position() as u64), text.trim_end())
}

/// The counters that are not 0.
fn counters(player: &Player) -> String {
    let values = player.recording.of_kind(TrackKind::Counter).filter_map(|track| {
        let value = player.count(track).filter(|value| *value != 0)?;
        Some(format!("{} {}", player.track(track).name, number(value)))
    });
    values.collect::<Vec<_>>().join("  ")
}

fn threads(player: &Player, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(format!("{:<12} {:<12}RUNS", "THREAD", "FOR"), TITLE)];
    for track in player.recording.of_kind(TrackKind::Lane) {
        let slices: Vec<_> = player.open(track).collect();
        let age = slices.first().map_or(String::new(), |open| duration(Duration::from_nanos(open.age_ns)));
        let names: Vec<_> = slices.iter().rev().map(|open| format!("{} {}", open.name, open.note)).collect();
        let text = format!("{:<12} {age:<12}{}", player.track(track).name, names.join(", "));
        lines.push(Line::raw(fit(text.trim_end(), width)));
    }
    lines
}

fn processes(player: &Player, width: usize, height: usize) -> Vec<Line<'static>> {
    let alive = player.alive();
    let count = number(alive.len() as u64);
    let mut lines = vec![Line::styled(
        format!("{:<22} {:<9} {:<8} NAME OR TYPE ({count} processes)", "PID", "STATE", "FOR"),
        TITLE,
    )];
    let row = |track: usize, state: &str, age: &str| {
        let process = player.track(track);
        let room = width.saturating_sub(42);
        // The label begins with the name of the process, and the type follows in parentheses.
        let label =
            if process.label().contains(" (") { fit(process.label(), room) } else { tail(process.label(), room) };
        format!("{:<22} {state:<9} {age:<8} {label}", tail(process.pid(), 22))
    };
    let chosen = player.chosen.filter(|chosen| !alive.contains(chosen));
    if let Some(chosen) = chosen {
        lines.push(Line::styled(row(chosen, "none", ""), SELECTED));
    }
    let visible = height.saturating_sub(lines.len());
    let at = player.chosen.and_then(|chosen| alive.iter().position(|track| *track == chosen)).unwrap_or(0);
    for &track in alive.iter().skip(offset(at, visible)).take(visible) {
        let text = match player.open(track).next() {
            Some(state) => row(track, state.name, &duration(Duration::from_nanos(state.age_ns))),
            None => row(track, "-", ""),
        };
        lines.push(if player.chosen == Some(track) { Line::styled(text, SELECTED) } else { Line::raw(text) });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::tests::recording;
    use crate::views::{player_buffer, rows};

    fn screen(player: &Player) -> Vec<String> {
        rows(&player_buffer(player))
    }

    #[test]
    fn a_moment_shows_the_event_and_the_threads_and_the_processes() {
        let mut player = Player::new(recording());
        let is_third_send = |player: &Player| {
            let event = player.present().unwrap();
            player.recording.text(event.name) == "send" && player.now_ns() - player.recording.begin_ns() > 14_000_000
        };
        while !is_third_send(&player) {
            player.seek(player.position() + 1);
        }
        let rows = screen(&player);
        assert!(rows[0].starts_with("recording of "), "{rows:#?}");
        assert!(rows[1].contains("at +15 ms, worker 0: send <"), "{rows:#?}");
        assert!(rows[4].starts_with("worker 0     0 ns        pong ("), "{rows:#?}");
        let process = |name: &str| rows.iter().find(|row| row.starts_with('<') && row.contains(name)).unwrap();
        assert!(process("pong (").contains(" running   0 ns "), "{rows:#?}");
        assert!(process("ping (").contains(" idle      5.0 ms "), "{rows:#?}");
        assert_eq!(rows[23], HELP);
    }
}
