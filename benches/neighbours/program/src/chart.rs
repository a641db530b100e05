//! The bar chart of the README. Each row shows procession, tokio and the best other runtime. The costs are relative to
//! tokio.

use std::fmt::Write as _;

use crate::round::{Runner, workers};
use crate::verdict::{Cost, Quantity, Row};

/// Sizes in pixels. The first four sizes are the width of the column of names, the length of tokio's bar, the height of
/// a bar, and the height of a row including the gap between two rows.
const LEFT: f64 = 130.0;
const UNIT: f64 = 330.0;
const BAR: f64 = 11.0;
const ROW: f64 = 3.0 * BAR + 12.0;
const TOP: f64 = 58.0;
const WIDTH: f64 = 830.0;

/// Maximum length of a bar in the chart, as a multiple of the length of tokio's bar. A longer bar is cut off, but the
/// label of the bar still shows the number.
const MAX_PART: f64 = 1.5;

const STYLE: &str = "\
text { fill: #1f2328; font: 12px system-ui, sans-serif }
.faint { fill: #656d76; font-size: 10px }
.card { fill: #ffffff }
.ours { fill: #1a7f64 }
.tokio { fill: #8250df }
.best { fill: #b08800 }
line { stroke: #656d76; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .faint { fill: #8d96a0 }
  .card { fill: #0d1117 }
  .ours { fill: #3fb950 }
  .tokio { fill: #a371f7 }
  .best { fill: #d29922 }
}";

/// Draws the first table. Rows without a result of tokio are omitted.
pub(crate) fn text(tables: &[(Option<usize>, Vec<Row>)]) -> String {
    let Some((wanted, rows)) = tables.first() else { return String::new() };
    let rows: Vec<_> = rows.iter().filter(|row| row.cost(Runner::Tokio).is_some()).collect();
    let height = TOP + ROW * rows.len() as f64 + 8.0;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' role='img'>\n\
         <title>CPU time per operation, procession and its neighbours</title>\n<style>\n{STYLE}\n</style>\n\
         <rect class='card' width='{WIDTH}' height='{height}' rx='8'/>\n"
    );
    let cores = wanted.unwrap_or_else(workers);
    let _ = writeln!(
        svg,
        "<text x='12' y='20'>CPU time per operation, in tokio's; {cores} workers; shorter is better</text>"
    );
    for (x, class, name) in
        [(12.0, "ours", "procession"), (112.0, "tokio", "tokio"), (182.0, "best", "best other neighbour")]
    {
        let _ = writeln!(
            svg,
            "<rect class='{class}' x='{x}' y='32' width='10' height='10'/><text x='{}' y='41'>{name}</text>",
            x + 15.0
        );
    }
    let _ = writeln!(svg, "<line x1='{0}' x2='{0}' y1='{TOP}' y2='{1}'/>", LEFT + UNIT, height - 8.0);
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let _ =
            writeln!(svg, "<text x='{}' y='{}' text-anchor='end'>{}</text>", LEFT - 8.0, y + 1.5 * BAR + 4.0, row.name);
        let other = row.costs.iter().filter(|cost| !cost.runner.is_ours() && cost.runner != Runner::Tokio);
        let other = other.min_by(|a, b| a.ns.total_cmp(&b.ns));
        let tokio = row.cost(Runner::Tokio);
        let bars = [("ours", row.cost(Runner::Procession)), ("tokio", tokio), ("best", other)];
        for (place, (class, cost)) in bars.into_iter().enumerate() {
            if let (Some(cost), Some(tokio)) = (cost, tokio) {
                bar(&mut svg, y + BAR * place as f64, class, cost, cost.ns / tokio.ns, row.quantity);
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, y: f64, class: &str, cost: &Cost, part: f64, quantity: Quantity) {
    let width = (part.min(MAX_PART) * UNIT).max(1.0);
    let cut = if part > MAX_PART { "… " } else { "" };
    let what = if quantity == Quantity::Cpu { "" } else { " wall" };
    let name = if class == "best" { cost.runner.name() } else { "" };
    let ns = if cost.ns < 10_000.0 { format!("{:.0} ns", cost.ns) } else { format!("{:.1} µs", cost.ns / 1_000.0) };
    let _ = writeln!(svg, "<rect class='{class}' x='{LEFT}' y='{y}' width='{width:.1}' height='{}'/>", BAR - 1.0);
    let _ = writeln!(
        svg,
        "<text class='faint' x='{:.1}' y='{}'>{cut}{part:.2} · {ns}{what} {name}</text>",
        LEFT + width + 5.0,
        y + BAR - 2.0
    );
}
