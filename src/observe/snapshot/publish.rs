//! Passes snapshots to the facade of the crate `metrics`. The program attaches an exporter of its choice to the facade.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit};

use crate::observe::snapshot::{Family, RuntimeMetrics, Value, check_labels};

/// Passes snapshots of one runtime to the recorder of the crate `metrics`. Needs the feature `metrics`.
///
/// The names and the help texts are the same as in the [Prometheus format](RuntimeMetrics::to_prometheus). The
/// publisher publishes counters as absolute values, and gauges as their present values. If a worker has ended, the
/// gauge of this worker becomes 0. For a distribution, the publisher records the durations that were measured after the
/// previous call of [`publish`](Self::publish). Each duration is recorded as the upper bound of its bucket, in seconds.
/// The publisher remembers the recorded durations, so use one publisher for the whole run.
///
/// Pass the snapshots in the order in which they were taken. If several threads publish, each thread must lock the
/// publisher before it takes its snapshot. A snapshot may be older than the snapshot of the previous call. In this
/// case, the publisher still passes the counters and gauges of the older snapshot to the recorder. But the publisher
/// records no durations, because the earlier calls have already recorded all durations of the older snapshot.
///
/// The publisher uses the recorder that is installed at the time of the call, and never installs a recorder. Install
/// the recorder before the first call. The publisher cannot detect that no recorder is installed. Therefore a recorder
/// that is installed later does not receive the descriptions and the durations of the earlier calls.
///
/// If a program has several runtimes, use one publisher for each runtime, with different [labels](Self::labels).
///
/// ```
/// use procession::observe::MetricsPublisher;
///
/// let rt = procession::Runtime::builder().workers(0).build()?;
/// let mut publisher = MetricsPublisher::new();
/// // Call this every few seconds:
/// publisher.publish(&rt.metrics());
/// # Ok::<(), procession::BuildError>(())
/// ```
#[derive(Default)]
pub struct MetricsPublisher {
    /// Labels of all metrics.
    labels: Vec<Label>,
    /// The number of recorded durations in each bucket of each distribution. The key of a distribution consists of the
    /// name and the label of the distribution. The key of a bucket is the upper bound of the bucket.
    published: BTreeMap<(String, String), BTreeMap<Duration, u64>>,
    /// Names and labels of the gauges that the previous call published. A gauge without a label is not in this set.
    gauges: BTreeSet<(String, &'static str, String)>,
    /// Names of the families that were described.
    described: BTreeSet<String>,
}

impl fmt::Debug for MetricsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsPublisher").finish_non_exhaustive()
    }
}

static METADATA: Metadata<'static> = Metadata::new("procession", Level::INFO, Some(module_path!()));

impl MetricsPublisher {
    /// Creates a publisher that has published nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets labels that all metrics of this publisher have, for example the name of the runtime. Each label is a pair
    /// of a name and a value. Default: none.
    ///
    /// ```
    /// # use procession::observe::MetricsPublisher;
    /// let publisher = MetricsPublisher::new().labels(&[("runtime", "io")]);
    /// ```
    ///
    /// # Panics
    /// Panics if a name is invalid: see [`RuntimeMetrics::to_prometheus_with`].
    #[must_use = "this method returns the publisher"]
    pub fn labels(mut self, labels: &[(&str, &str)]) -> Self {
        check_labels(labels);
        self.labels = labels.iter().map(|(name, value)| Label::new(name.to_string(), value.to_string())).collect();
        self
    }

    /// Passes all metrics of the snapshot to the installed recorder. The snapshot must cover the whole run, that is, it
    /// must not be a difference of snapshots.
    pub fn publish(&mut self, snapshot: &RuntimeMetrics) {
        let families = snapshot.families();
        metrics::with_recorder(|recorder| {
            for family in &families {
                // A family without a value is described later, because its kind is not known yet.
                if !family.samples.is_empty() && self.described.insert(family.name.clone()) {
                    describe(recorder, family);
                }
            }
            let former = std::mem::take(&mut self.gauges);
            families.iter().for_each(|family| self.publish_family(recorder, family));
            for (name, label, of) in former.difference(&self.gauges) {
                recorder.register_gauge(&self.key(name, label, of), &METADATA).set(0.0);
            }
        });
    }

    fn publish_family(&mut self, recorder: &dyn Recorder, Family { name, samples, .. }: &Family<'_>) {
        for (label, of, value) in samples {
            let key = self.key(name, label, of);
            match value {
                Value::Counter(value) => recorder.register_counter(&key, &METADATA).absolute(*value),
                Value::Gauge(value) => {
                    recorder.register_gauge(&key, &METADATA).set(*value);
                    if !label.is_empty() {
                        self.gauges.insert((name.clone(), label, of.to_string()));
                    }
                }
                Value::Histogram(now) => {
                    let published = self.published.entry((name.clone(), of.to_string())).or_default();
                    let histogram = recorder.register_histogram(&key, &METADATA);
                    for (time, count) in now.buckets() {
                        let before = published.entry(time).or_default();
                        // The snapshot may be older than the previous snapshot, so a count may be smaller than before.
                        let since = count.saturating_sub(*before);
                        *before += since;
                        if since != 0 {
                            histogram.record_many(time.as_secs_f64(), since as usize);
                        }
                    }
                }
            }
        }
    }

    fn key(&self, name: &str, label: &'static str, of: &str) -> Key {
        let mut labels = self.labels.clone();
        if !label.is_empty() {
            labels.push(Label::new(label, of.to_owned()));
        }
        Key::from_parts(format!("procession_{name}"), labels)
    }
}

fn describe(recorder: &dyn Recorder, Family { name, help, samples }: &Family<'_>) {
    let unit = match name {
        name if name.ends_with("_seconds") => Unit::Seconds,
        name if name.ends_with("_bytes") => Unit::Bytes,
        _ => Unit::Count,
    };
    let (key, help) = (KeyName::from(format!("procession_{name}")), (*help).into());
    match samples.first() {
        Some((_, _, Value::Counter(_))) => recorder.describe_counter(key, Some(unit), help),
        Some((_, _, Value::Gauge(_))) => recorder.describe_gauge(key, Some(unit), help),
        Some((_, _, Value::Histogram(_))) => recorder.describe_histogram(key, Some(unit), help),
        None => {}
    }
}
