//! Section 9.4 of the specification: the publisher passes snapshots to the recorder of the crate `metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use procession::observe::MetricsPublisher;
use procession::*;

use crate::within;

/// The calls that a recorder received.
#[derive(Debug, Default)]
struct Book {
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    /// Number and sum of the recorded values of each histogram, by name.
    histograms: BTreeMap<String, (u64, f64)>,
    described: BTreeMap<String, (Option<Unit>, String)>,
}

/// Recorder that stores the values of all calls in a `Book`.
#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Book>>);

/// Handle of one metric. The handle records each call in the `Book`.
struct Figure(Notes, String);

impl metrics::CounterFn for Figure {
    fn increment(&self, _: u64) {
        unreachable!("the counters are published as absolute values");
    }

    fn absolute(&self, value: u64) {
        self.0.0.lock().unwrap().counters.insert(self.1.clone(), value);
    }
}

impl metrics::GaugeFn for Figure {
    fn increment(&self, _: f64) {
        unreachable!("the gauges are published as present values");
    }

    fn decrement(&self, _: f64) {
        unreachable!("the gauges are published as present values");
    }

    fn set(&self, value: f64) {
        self.0.0.lock().unwrap().gauges.insert(self.1.clone(), value);
    }
}

impl metrics::HistogramFn for Figure {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let mut book = self.0.0.lock().unwrap();
        let (number, sum) = book.histograms.entry(self.1.clone()).or_default();
        *number += count as u64;
        *sum += value * count as f64;
    }
}

impl Notes {
    fn figure(&self, key: &Key) -> Arc<Figure> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        Arc::new(Figure(self.clone(), format!("{}{labels}", key.name())))
    }

    fn describe(&self, key: &KeyName, unit: Option<Unit>, text: &SharedString) {
        let described = &mut self.0.lock().unwrap().described;
        assert!(described.insert(key.as_str().to_owned(), (unit, text.to_string())).is_none(), "described twice");
    }
}

impl Recorder for Notes {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, unit, &text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, unit, &text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, unit, &text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.figure(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.figure(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.figure(key))
    }
}

async fn yields(ctx: Context) {
    for _ in 1..10 {
        ctx.yield_now().await;
    }
}

/// 9.4b: the publisher passes the absolute values of the counters, the present values of the gauges, and the durations
/// since its previous call. The publisher describes each metric exactly once.
#[test]
fn a_snapshot_goes_to_the_recorder_of_the_metrics_facade() {
    let rt = Runtime::builder().workers(0).sample_every_step(true).build().unwrap();
    let (notes, mut publisher) = (Notes::default(), MetricsPublisher::new());
    for round in 1..=3 {
        rt.block_on(rt.spawn(yields)).unwrap();
        let snapshot = rt.metrics();
        metrics::with_local_recorder(&notes, || publisher.publish(&snapshot));
        let book = notes.0.lock().unwrap();
        assert_eq!(book.counters["procession_steps_total"], 10 * round);
        assert_eq!(book.gauges["procession_processes{state=idle}"], 0.0);
        assert_eq!(book.gauges["procession_messages_sampled_one_in"], 1.0);
        assert_eq!(book.gauges["procession_memory_bytes{structure=metrics}"], snapshot.memory.metrics as f64);
        let (count, sum) = book.histograms["procession_scheduling_delay_seconds"];
        assert_eq!(count, 10 * round);
        // Each duration is recorded as the upper bound of its bucket.
        let exact = snapshot.distributions.scheduling_delay.sum().as_secs_f64();
        assert!((exact..=exact * 1.26 + 1e-6).contains(&sum), "{sum} instead of {exact}");
        let (unit, text) = &book.described["procession_scheduling_delay_seconds"];
        assert_eq!(*unit, Some(Unit::Seconds));
        assert!(text.starts_with("Time from ready to running"), "{text}");
        assert_eq!(book.described["procession_memory_bytes"].0, Some(Unit::Bytes));
    }
}

/// 9.4b: each metric of a publisher has the labels of the publisher. Therefore one recorder distinguishes the metrics
/// of two runtimes.
#[test]
fn the_labels_of_a_publisher_distinguish_two_runtimes() {
    let notes = [Notes::default(), Notes::default()];
    let mut snapshots = [2, 3].map(|processes| {
        let rt = Runtime::builder().workers(1).sample_every_step(true).build().unwrap();
        (0..processes).for_each(|_| rt.block_on(rt.spawn(yields)).unwrap());
        rt.metrics()
    });
    let publishers = ["io", "jobs"].map(|name| MetricsPublisher::new().labels(&[("runtime", name), ("zone", "b")]));
    let left = snapshots[0].workers[0].worker;
    for (at, mut publisher) in publishers.into_iter().enumerate() {
        metrics::with_local_recorder(&notes[at], || publisher.publish(&snapshots[at]));
        // A gauge that becomes 0 also has the labels.
        snapshots[at].workers.clear();
        metrics::with_local_recorder(&notes[at], || publisher.publish(&snapshots[at]));
    }
    for (at, (name, processes)) in [("io", 2), ("jobs", 3)].into_iter().enumerate() {
        let book = notes[at].0.lock().unwrap();
        let labels = format!("runtime={name},zone=b");
        assert_eq!(book.counters[&format!("procession_spawned_total{{{labels}}}")], processes);
        assert_eq!(book.histograms[&format!("procession_scheduling_delay_seconds{{{labels}}}")].0, 10 * processes);
        assert_eq!(book.gauges[&format!("procession_local_queue_depth{{{labels},worker={left}}}")], 0.0);
        let names = book.counters.keys().chain(book.gauges.keys()).chain(book.histograms.keys());
        names.for_each(|name| assert!(name.contains(&labels), "{name}"));
    }
    assert!(std::panic::catch_unwind(|| MetricsPublisher::new().labels(&[("state", "x")])).is_err());
}

/// 9.4b: a metric that has no value at the first call of the publisher is described when the metric gets its first
/// value.
#[test]
fn a_figure_is_described_when_it_gets_its_first_value() {
    struct Late;
    impl Command for Late {
        type Reply = ();
    }
    struct Asks(bool);
    impl Process for Asks {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: Events<'_, ()>, out: &mut StepOutput<'_, ()>) -> Result<Next<()>, Exit> {
            if !std::mem::replace(&mut self.0, true) {
                out.perform(Late);
            }
            if events.count() == 0 { Ok(Next::Wait) } else { Ok(Next::Done(())) }
        }
    }
    let rt = Runtime::builder().workers(0).sample_every_step(true).handle(|_: Late| ()).build().unwrap();
    let (notes, mut publisher) = (Notes::default(), MetricsPublisher::new());
    for is_described in [false, true, true] {
        let snapshot = rt.metrics();
        metrics::with_local_recorder(&notes, || publisher.publish(&snapshot));
        let described = notes.0.lock().unwrap().described.contains_key("procession_command_time_seconds");
        assert_eq!(described, is_described);
        rt.block_on(rt.spawn_process(Asks(false))).unwrap();
    }
}

/// 9.4b: the publisher receives an older snapshot after a newer one. Nevertheless, the publisher records no duration
/// twice and skips no later duration.
#[test]
fn an_older_snapshot_adds_no_durations() {
    within(60, || {
        let rt = Runtime::builder().workers(0).sample_every_step(true).build().unwrap();
        let (notes, mut publisher) = (Notes::default(), MetricsPublisher::new());
        let snapshots = [(); 3].map(|()| {
            rt.block_on(rt.spawn(yields)).unwrap();
            rt.metrics()
        });
        for (index, durations) in [(1, 20), (0, 20), (1, 20), (2, 30), (0, 30)] {
            metrics::with_local_recorder(&notes, || publisher.publish(&snapshots[index]));
            assert_eq!(notes.0.lock().unwrap().histograms["procession_scheduling_delay_seconds"].0, durations);
        }
    });
}

/// 9.4b: if a worker is no longer in the snapshot, its gauge becomes 0.
#[test]
fn the_gauge_of_a_removed_worker_becomes_zero() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    let (notes, mut publisher) = (Notes::default(), MetricsPublisher::new());
    let mut snapshot = rt.metrics();
    let mut left = snapshot.workers.pop().expect("a worker");
    left.local_queue_depth = 5;
    for depth in [5, 0, 0, 5] {
        let mut snapshot = snapshot.clone();
        if depth != 0 {
            snapshot.workers.push(left.clone());
        }
        metrics::with_local_recorder(&notes, || publisher.publish(&snapshot));
        let gauge = format!("procession_local_queue_depth{{worker={}}}", left.worker);
        assert_eq!(notes.0.lock().unwrap().gauges[&gauge], f64::from(depth));
    }
}

/// 9.4b: the crate installs no recorder. Without a recorder, the publisher has no effect.
#[test]
fn the_publisher_installs_no_recorder() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    MetricsPublisher::new().publish(&rt.metrics());
    // A program can install only one recorder. The installation succeeds, so the crate has installed no recorder.
    metrics::set_global_recorder(metrics::NoopRecorder).unwrap();
}
