//! The explanation why processes do not run.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use crate::app::App;
use crate::model::Explanation;
use crate::views::{ALARM, TITLE};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = Vec::new();
    for finding in &app.explanation.findings {
        let texts = finding.lines.iter().enumerate();
        lines.extend(
            texts.map(|(at, text)| Line::styled(text.clone(), if at == 0 { ALARM } else { Default::default() })),
        );
        lines.push(Line::raw(""));
    }
    if lines.is_empty() {
        lines = vec![Line::styled("no finding", TITLE), Line::raw("")];
    }
    lines.extend(app.explanation.activity.iter().map(|text| Line::raw(text.clone())));
    let first = app.selected.min(row_count(&app.explanation).saturating_sub(1));
    frame.render_widget(Paragraph::new(lines.split_off(first)).wrap(Wrap { trim: false }), area);
}

/// Number of lines before long lines are wrapped.
pub(crate) fn row_count(explanation: &Explanation) -> usize {
    let findings = explanation.findings.iter().map(|finding| finding.lines.len() + 1).sum::<usize>();
    (if findings == 0 { 2 } else { findings }) + explanation.activity.len()
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyCode;
    use serde_json::json;

    use crate::app::{App, View};
    use crate::views::tests::screen;

    #[test]
    fn findings_and_activity_are_shown() {
        let mut app = App { view: View::Explain, ..App::new("socket".into()) };
        app.handle_reply("explain", Ok(json!({ "findings": [], "activity": ["1 process: 1 running"] })));
        assert_eq!(screen(&app)[2..5], ["no finding", "", "1 process: 1 running"]);
        let finding =
            json!({ "kind": "deadlock", "lines": ["deadlock of 2 processes:", "  <1.0.1> waits", "what to do: x"] });
        app.handle_reply("explain", Ok(json!({ "findings": [finding], "activity": ["2 processes", "running: y"] })));
        let expected =
            ["deadlock of 2 processes:", "  <1.0.1> waits", "what to do: x", "", "2 processes", "running: y"];
        assert_eq!(screen(&app)[2..8], expected);
        // The view scrolls down to the last line.
        (0..9).for_each(|_| drop(app.handle_key(KeyCode::Down.into())));
        assert_eq!(screen(&app)[2..4], ["running: y", ""]);
        app.handle_key(KeyCode::Up.into());
        assert_eq!(screen(&app)[2..4], ["2 processes", "running: y"]);
    }
}
