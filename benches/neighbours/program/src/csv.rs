//! Writes all results as CSV: one line for each runner of each row.

use std::fmt::Write as _;

use crate::verdict::Row;

const HEAD: &str = "workers,row,quantity,n,rounds,runtime,ns,wall_ns,cores,ours_to_theirs,rounds_both_parallel,starved,\
                    steals_per_1000,parks_per_1000,wakes_per_1000";

pub(crate) fn text(tables: &[(Option<usize>, Vec<Row>)]) -> String {
    let mut text = format!("{HEAD}\n");
    for (workers, row) in tables.iter().flat_map(|(workers, rows)| rows.iter().map(move |row| (workers, row))) {
        let workers = workers.unwrap_or_else(crate::round::workers);
        for cost in &row.costs {
            let counts = row.counts.filter(|_| cost.runner == crate::round::Runner::Procession);
            let counts = counts.map_or_else(|| ",,".to_owned(), |[s, p, w]| format!("{s:.3},{p:.3},{w:.3}"));
            let _ = writeln!(
                text,
                "{workers},{},{:?},{},{},{},{:.2},{:.2},{:.3},{:.4},{},{},{counts}",
                row.name,
                row.quantity,
                row.ops,
                row.rounds,
                cost.runner.name(),
                cost.ns,
                cost.wall,
                cost.cores,
                cost.ratio,
                cost.parallel_rounds,
                row.is_starved(),
            );
        }
    }
    text
}
