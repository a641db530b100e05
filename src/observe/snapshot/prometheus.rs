//! The Prometheus text format, version 0.0.4, of a snapshot.
//!
//! The format is defined in "Exposition formats" of the Prometheus documentation. Each figure has a line with its help
//! text, a line with its type, and one line per value.

use std::fmt::{self, Write};

use crate::observe::histogram::Histogram;
use crate::observe::snapshot::{Family, RuntimeMetrics, Value};

/// Bounds of the exported buckets, as binary logarithms of a number of ns. The bounds are from 256 ns to 69 s, and each
/// bound is 4 times the previous bound. The histogram has more buckets. Not all buckets are exported, because
/// Prometheus keeps a separate time series for each exported bucket.
const BOUNDS: std::ops::RangeInclusive<u32> = 8..=36;
const STEP: usize = 2;

impl RuntimeMetrics {
    /// Returns all figures in the Prometheus text format, for the answer to a scrape. The content type of the answer is
    /// `text/plain; version=0.0.4`.
    ///
    /// Each name begins with `procession_`. The help texts of the counters and of most distributions are the first
    /// lines of the documentation of the fields. The names of counters end with `_total`, durations are in seconds, and
    /// distributions are histograms with 15 buckets. The count of a histogram is the number of *measured* durations:
    /// see [`Distributions::sampled_one_in`](crate::observe::Distributions::sampled_one_in) and
    /// [`Distributions::messages_sampled_one_in`](crate::observe::Distributions::messages_sampled_one_in). The gauges
    /// `procession_sampled_one_in` and `procession_messages_sampled_one_in` export both values.
    ///
    /// Export snapshots of the whole run. Do not export differences of snapshots, because Prometheus computes rates
    /// itself.
    ///
    /// ```
    /// let rt = procession::Runtime::builder().workers(0).build()?;
    /// let text = rt.metrics().to_prometheus();
    /// assert!(text.contains("# TYPE procession_spawned_total counter\nprocession_spawned_total 0\n"));
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for family in self.families() {
            write_family(&mut text, &family).expect("a String accepts all text");
        }
        text
    }
}

fn write_family(text: &mut String, Family { name, help, samples }: &Family<'_>) -> fmt::Result {
    let Some((_, _, first)) = samples.first() else { return Ok(()) };
    let kind = match first {
        Value::Counter(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Histogram(_) => "histogram",
    };
    let help = escape(help, false);
    writeln!(text, "# HELP procession_{name} {help}\n# TYPE procession_{name} {kind}")?;
    for (label, of, value) in samples {
        let label = if label.is_empty() { String::new() } else { format!("{label}=\"{}\"", escape(of, true)) };
        let braced = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        match value {
            Value::Counter(value) => writeln!(text, "procession_{name}{braced} {value}")?,
            Value::Gauge(value) => writeln!(text, "procession_{name}{braced} {value}")?,
            Value::Histogram(histogram) => {
                let label = if label.is_empty() { label } else { format!("{label},") };
                write_buckets(text, name, &label, histogram)?;
                let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
                writeln!(text, "procession_{name}_sum{braced} {sum}\nprocession_{name}_count{braced} {count}")?;
            }
        }
    }
    Ok(())
}

/// Writes the cumulative buckets. `label` is empty or ends with a comma.
fn write_buckets(text: &mut String, name: &str, label: &str, histogram: &Histogram) -> fmt::Result {
    let mut buckets = histogram.buckets().peekable();
    let mut count = 0_u64;
    for bound in BOUNDS.step_by(STEP) {
        // The last bucket below a power of two ends immediately before this power. Therefore no bucket of the histogram
        // extends across a bound.
        let longest = std::time::Duration::from_nanos((1 << bound) - 1);
        while let Some((_, more)) = buckets.next_if(|&(end, _)| end <= longest) {
            count = count.wrapping_add(more);
        }
        writeln!(text, "procession_{name}_bucket{{{label}le=\"{}\"}} {count}", longest.as_secs_f64())?;
    }
    writeln!(text, "procession_{name}_bucket{{{label}le=\"+Inf\"}} {}", histogram.count())
}

/// Escapes a help text, or the value of a label if `quotes` is true.
fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::histogram::Buckets;
    use crate::platform::sync::tally::Ordering;

    #[test]
    fn a_difference_in_the_wrong_order_is_also_written() {
        let histogram = |durations: &[u64]| -> Histogram {
            let buckets = Buckets::new();
            durations.iter().for_each(|&ns| _ = buckets.of(ns).0.fetch_add(1, Ordering::Relaxed));
            [&buckets].into_iter().sum()
        };
        let difference = histogram(&[]) - histogram(&[1, 1_000]);
        let mut text = String::new();
        write_buckets(&mut text, "a", "", &difference).expect("a String accepts all text");
        assert!(text.ends_with(&format!("le=\"+Inf\"}} {}\n", u64::MAX - 1)), "{text}");
    }

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(escape("a \"b\"\n\\c", true), "a \\\"b\\\"\\n\\\\c");
        assert_eq!(escape("a \"b\"\n\\c", false), "a \"b\"\\n\\\\c");
        let mut text = String::new();
        let sample = ("of", "x\"y".into(), Value::Gauge(1.5));
        write_family(&mut text, &Family::new("a".into(), "Help.", [sample])).expect("a String accepts all text");
        assert_eq!(text, "# HELP procession_a Help.\n# TYPE procession_a gauge\nprocession_a{of=\"x\\\"y\"} 1.5\n");
    }

    #[test]
    fn a_figure_without_a_value_is_not_written() {
        let mut text = String::new();
        write_family(&mut text, &Family::new("a".into(), "Help.", [])).expect("a String accepts all text");
        assert_eq!(text, "");
    }
}
