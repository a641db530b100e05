//! The Prometheus text format, version 0.0.4, of a snapshot.
//!
//! The format is defined in "Exposition formats" of the Prometheus documentation. Each metric has a line with its help
//! text, a line with its type, and one line per value.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use crate::observe::histogram::Histogram;
use crate::observe::snapshot::{Family, RuntimeMetrics, Value, check_labels};

/// Bounds of the exported buckets: the binary logarithms of durations in ns. The bounds are from 256 ns to 69 s, and
/// each bound is 4 times the previous bound. The histogram has more buckets. Not all buckets are exported, because
/// Prometheus keeps a separate time series for each exported bucket.
const BOUNDS: std::ops::RangeInclusive<u32> = 8..=36;
const STEP: usize = 2;

impl RuntimeMetrics {
    /// Returns all metrics in the Prometheus text format, for the answer to a scrape. The content type of the answer is
    /// `text/plain; version=0.0.4`.
    ///
    /// Each name begins with `procession_`. The help texts of the counters and of most distributions are the first
    /// lines of the documentation of the fields. The names of counters end with `_total`, durations are in seconds, and
    /// distributions are histograms with 15 buckets. The count of a histogram is the number of *measured* durations:
    /// see [`Distributions::sampled_one_in`](crate::observe::Distributions::sampled_one_in) and
    /// [`Distributions::messages_sampled_one_in`](crate::observe::Distributions::messages_sampled_one_in). The gauges
    /// `procession_sampled_one_in` and `procession_messages_sampled_one_in` export both values.
    ///
    /// If a program has several runtimes, use [`all_to_prometheus`](Self::all_to_prometheus).
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
        self.to_prometheus_with(&[])
    }

    /// Returns all metrics in the Prometheus text format, as [`to_prometheus`](Self::to_prometheus) does. Each sample
    /// also has these labels. Each label is a pair of a name and a value. The values may be any texts.
    ///
    /// ```
    /// let rt = procession::Runtime::builder().workers(0).build()?;
    /// let text = rt.metrics().to_prometheus_with(&[("runtime", "io")]);
    /// assert!(text.contains("\nprocession_spawned_total{runtime=\"io\"} 0\n"));
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// Panics if a name does not match `[a-zA-Z_][a-zA-Z0-9_]*`, begins with `__`, occurs twice, or is one of the names
    /// that the crate uses: `command`, `le`, `state`, `structure` and `worker`.
    pub fn to_prometheus_with(&self, labels: &[(&str, &str)]) -> String {
        Self::all_to_prometheus(&[(labels, self)])
    }

    /// Returns the metrics of several runtimes as one text in the Prometheus text format. Each sample has the labels of
    /// its snapshot.
    ///
    /// Do not concatenate the texts of two snapshots instead. In a valid text, each metric has only one line with its
    /// type, and all samples of the metric follow this line.
    ///
    /// All runtimes of a program report the same value of [`MemoryMetrics::blocks`](crate::observe::MemoryMetrics), so
    /// do not add up these values.
    ///
    /// ```
    /// # use procession::Runtime;
    /// use procession::observe::RuntimeMetrics;
    ///
    /// # let io = Runtime::builder().workers(0).build()?;
    /// # let jobs = Runtime::builder().workers(0).build()?;
    /// let (io, jobs) = (io.metrics(), jobs.metrics());
    /// let text = RuntimeMetrics::all_to_prometheus(&[(&[("runtime", "io")], &io), (&[("runtime", "jobs")], &jobs)]);
    /// let spawned = "# TYPE procession_spawned_total counter\n\
    ///                procession_spawned_total{runtime=\"io\"} 0\n\
    ///                procession_spawned_total{runtime=\"jobs\"} 0\n";
    /// assert!(text.contains(spawned));
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    ///
    /// # Panics
    /// Panics if a label is invalid: see [`to_prometheus_with`](Self::to_prometheus_with). Also panics if two snapshots
    /// have the same labels, because the samples of these snapshots could not be distinguished.
    pub fn all_to_prometheus(snapshots: &[(&[(&str, &str)], &Self)]) -> String {
        let labels = snapshots.iter().map(|(labels, _)| *labels);
        labels.clone().for_each(check_labels);
        check_distinct(labels.clone());
        let all: Vec<_> = snapshots.iter().map(|(_, snapshot)| snapshot.families()).collect();
        let labels: Vec<_> = labels.map(text_of_labels).collect();
        let mut text = String::new();
        // All snapshots have the same families in the same order. A family may have no samples in some snapshots.
        for index in 0..all.first().map_or(0, Vec::len) {
            let samples = labels.iter().zip(&all).map(|(labels, families)| (labels.as_str(), &families[index]));
            write_family(&mut text, samples).expect("a String accepts all text");
        }
        text
    }
}

/// Panics if two lists contain the same labels, in any order. A label with an empty value has the same meaning as a
/// missing label.
fn check_distinct<'a>(all: impl Iterator<Item = &'a [(&'a str, &'a str)]>) {
    let mut known = BTreeSet::new();
    for labels in all {
        let set: BTreeSet<_> = labels.iter().filter(|(_, value)| !value.is_empty()).collect();
        assert!(known.insert(set), "two snapshots have the same labels {labels:?}");
    }
}

/// Returns the labels in the text format, without the braces.
fn text_of_labels(labels: &[(&str, &str)]) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value, true))).collect();
    labels.join(",")
}

/// Writes a metric of several snapshots. Each snapshot has labels, in the text format.
fn write_family<'a>(
    text: &mut String,
    snapshots: impl Iterator<Item = (&'a str, &'a Family<'a>)> + Clone,
) -> fmt::Result {
    let mut of_samples = snapshots.clone().filter_map(|(_, family)| Some((family, family.samples.first()?)));
    let Some((Family { name, help, .. }, (_, _, first))) = of_samples.next() else { return Ok(()) };
    let kind = match first {
        Value::Counter(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Histogram(_) => "histogram",
    };
    let help = escape(help, false);
    writeln!(text, "# HELP procession_{name} {help}\n# TYPE procession_{name} {kind}")?;
    snapshots.clone().try_for_each(|(labels, family)| write_samples(text, labels, family))
}

fn write_samples(text: &mut String, labels: &str, Family { name, samples, .. }: &Family<'_>) -> fmt::Result {
    for (label, of, value) in samples {
        let own = if label.is_empty() { String::new() } else { text_of_labels(&[(label, of)]) };
        let comma = if labels.is_empty() || own.is_empty() { "" } else { "," };
        let labels = format!("{labels}{comma}{own}");
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        match value {
            Value::Counter(value) => writeln!(text, "procession_{name}{braced} {value}")?,
            Value::Gauge(value) => writeln!(text, "procession_{name}{braced} {value}")?,
            Value::Histogram(histogram) => {
                let labels = if labels.is_empty() { labels } else { format!("{labels},") };
                write_buckets(text, name, &labels, histogram)?;
                let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
                writeln!(text, "procession_{name}_sum{braced} {sum}\nprocession_{name}_count{braced} {count}")?;
            }
        }
    }
    Ok(())
}

/// Writes the cumulative buckets. `labels` is empty or ends with a comma.
fn write_buckets(text: &mut String, name: &str, labels: &str, histogram: &Histogram) -> fmt::Result {
    let mut buckets = histogram.buckets().peekable();
    let mut count = 0_u64;
    for bound in BOUNDS.step_by(STEP) {
        // Immediately before each power of two, a bucket of the histogram ends. Therefore no bucket extends across a
        // bound.
        let longest = std::time::Duration::from_nanos((1 << bound) - 1);
        while let Some((_, more)) = buckets.next_if(|&(end, _)| end <= longest) {
            count = count.wrapping_add(more);
        }
        writeln!(text, "procession_{name}_bucket{{{labels}le=\"{}\"}} {count}", longest.as_secs_f64())?;
    }
    writeln!(text, "procession_{name}_bucket{{{labels}le=\"+Inf\"}} {}", histogram.count())
}

/// Escapes a text. `quotes` is true for the value of a label, and false for a help text.
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
        let family = Family::new("a".into(), "Help.", [sample]);
        write_family(&mut text, [("", &family)].into_iter()).expect("a String accepts all text");
        assert_eq!(text, "# HELP procession_a Help.\n# TYPE procession_a gauge\nprocession_a{of=\"x\\\"y\"} 1.5\n");
    }

    #[test]
    fn a_figure_without_a_value_is_not_written() {
        let mut text = String::new();
        let none = Family::new("a".into(), "Help.", []);
        write_family(&mut text, [("", &none)].into_iter()).expect("a String accepts all text");
        assert_eq!(text, "");
        // Another snapshot may have a value.
        let one = Family::new("a".into(), "Help.", [("", "".into(), Value::Counter(7))]);
        let snapshots = [("of=\"1\"", &none), ("of=\"2\"", &one), ("of=\"3\"", &none)];
        write_family(&mut text, snapshots.into_iter()).expect("a String accepts all text");
        assert_eq!(text, "# HELP procession_a Help.\n# TYPE procession_a counter\nprocession_a{of=\"2\"} 7\n");
    }
}
