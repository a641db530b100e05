//! Renders a screen of the terminal as an SVG image. The documentation shows these images.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Width and height of a cell, and the margin around the screen, in pixels.
const CELL: (u16, u16) = (9, 18);
const MARGIN: u16 = 10;

/// Distance from the top of a cell to the base line of the text in the cell, in pixels.
const BASE: u16 = 14;

const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d6d9de";

/// Characters of a chart: bars whose heights are one to eight eighths of a cell.
const BARS: &str = "▁▂▃▄▅▆▇█";

/// Returns the image of a screen. `label` is a description of the image for readers who cannot see the image.
pub fn render(buffer: &Buffer, label: &str) -> String {
    let (columns, lines) = (buffer.area.width, buffer.area.height);
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, lines * CELL.1 + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\" \
         fill=\"{FOREGROUND}\" xml:space=\"preserve\">\n",
        escaped(label)
    );
    for line in 0..lines {
        let cells: Vec<&Cell> = (0..columns).map(|column| &buffer[(column, line)]).collect();
        let mut begin = 0;
        while begin < cells.len() {
            let end = (begin..cells.len()).find(|&at| !continues(cells[begin], cells[at])).unwrap_or(cells.len());
            run(&mut svg, &cells[begin..end], begin as u16, line);
            begin = end;
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Returns true if both cells have the same style and the same kind. There are two kinds of cells: bars of a chart, and
/// all other cells.
fn continues(one: &Cell, other: &Cell) -> bool {
    let is_bar = |cell: &Cell| BARS.contains(cell.symbol());
    one.style() == other.style() && is_bar(one) == is_bar(other)
}

/// Adds cells of the same style.
fn run(svg: &mut String, cells: &[&Cell], column: u16, line: u16) {
    let style = cells[0].style();
    let modifiers = style.add_modifier;
    let (x, y) = (MARGIN + column * CELL.0, MARGIN + line * CELL.1);
    let mut colour = colour(style.fg);
    if modifiers.contains(Modifier::REVERSED) {
        let width = cells.len() as u16 * CELL.0;
        let fill = colour.unwrap_or(FOREGROUND);
        add(svg, format_args!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{fill}\"/>", CELL.1));
        colour = Some(BACKGROUND);
    }
    let text: String = cells.iter().map(|cell| cell.symbol()).collect();
    let fill = colour.map_or(String::new(), |colour| format!(" fill=\"{colour}\""));
    if BARS.contains(cells[0].symbol()) {
        return bars(svg, &text, &fill, (x, y));
    }
    let bold = if modifiers.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if modifiers.contains(Modifier::DIM) { " opacity=\"0.65\"" } else { "" };
    for (at, word) in words(&text) {
        // The text gets exactly the width of its cells, even if the characters of the font are wider or narrower than a
        // cell.
        let (x, y) = (x + at * CELL.0, y + BASE);
        let length = word.chars().count() as u16 * CELL.0;
        let word = escaped(word);
        add(
            svg,
            format_args!(
                "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\"{fill}{bold}{dim}>\
                 {word}</text>"
            ),
        );
    }
}

/// Adds the bars of a chart. A font would leave gaps between the bars.
fn bars(svg: &mut String, text: &str, fill: &str, (x, y): (u16, u16)) {
    let mut path = String::new();
    for (at, bar) in text.chars().enumerate() {
        let eighths = BARS.chars().position(|one| one == bar).map_or(0, |at| at as u16 + 1);
        let height = eighths * CELL.1 / 8;
        let (left, bottom) = (x + at as u16 * CELL.0, y + CELL.1);
        let _ = write!(path, "M{left} {bottom}v-{height}h{}v{height}z", CELL.0);
    }
    add(svg, format_args!("<path d=\"{path}\"{fill}/>"));
}

fn add(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // A write to a `String` never fails.
    let _ = writeln!(svg, "{line}");
}

/// Splits a text at two or more spaces. Returns the parts with their columns.
fn words(text: &str) -> Vec<(u16, &str)> {
    let mut column = 0;
    let parts = text.split("  ").map(|part| {
        let at = column + (part.len() - part.trim_start().len());
        column += part.chars().count() + 2;
        (at as u16, part.trim())
    });
    parts.filter(|(_, part)| !part.is_empty()).collect()
}

fn colour(colour: Option<Color>) -> Option<&'static str> {
    match colour {
        Some(Color::Red) => Some("#f0707a"),
        Some(Color::Green) => Some("#8fc96b"),
        Some(Color::Cyan) => Some("#5cc5d6"),
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn texts_and_bars_and_styles_are_rendered_at_their_cells() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 2));
        buffer.set_string(0, 0, "a <b>  c", Style::new().add_modifier(Modifier::BOLD));
        buffer.set_string(10, 0, "R", Style::new().fg(Color::Red).add_modifier(Modifier::REVERSED));
        buffer.set_string(0, 1, "▁█", Style::new().fg(Color::Green));
        let svg = render(&buffer, "a \"label\"");
        for part in [
            "aria-label=\"a &quot;label&quot;\"",
            "<text x=\"10\" y=\"24\" textLength=\"45\" lengthAdjust=\"spacingAndGlyphs\" font-weight=\"bold\">a &lt;b&gt;<",
            "<text x=\"73\" y=\"24\" textLength=\"9\" lengthAdjust=\"spacingAndGlyphs\" font-weight=\"bold\">c<",
            "<rect x=\"100\" y=\"10\" width=\"9\" height=\"18\" fill=\"#f0707a\"/>",
            "fill=\"#16181d\">R<",
            "<path d=\"M10 46v-2h9v2zM19 46v-18h9v18z\" fill=\"#8fc96b\"/>",
        ] {
            assert!(svg.contains(part), "{part} is missing:\n{svg}");
        }
    }
}
