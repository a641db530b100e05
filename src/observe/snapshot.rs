//! `RuntimeMetrics`: one snapshot of all metrics of a runtime, and the list of these metrics.
//!
//! The host reads the metrics and creates the snapshot. The Prometheus text and all other exports use the same list of
//! metrics. Therefore each export has the same names and help texts.

pub(crate) mod prometheus;
#[cfg(feature = "metrics")]
pub(crate) mod publish;
#[cfg(feature = "serde")]
mod serialize;

use std::borrow::Cow;
use std::fmt;
use std::ops::Sub;
use std::time::Duration;

use crate::observe::counters::Counters;
use crate::observe::distributions::{CommandTime, Distributions};
use crate::observe::histogram::Histogram;
use crate::observe::{ProcessState, WorkerState};
use crate::platform::clock::Instant;

/// Snapshot of all metrics of a runtime: see [`Host::metrics`](crate::Host::metrics).
///
/// A snapshot contains three kinds of metrics:
///
/// - [`counters`](Self::counters) are exact and only grow.
/// - [`distributions`](Self::distributions) are sampled durations.
/// - All other fields are *gauges*: they describe the moment of the snapshot. The runtime reads the gauges one after
///   another while it runs, so two gauges may belong to different moments.
///
/// `later - earlier` is a snapshot with the counts and the durations between the two snapshots. The gauges of this
/// difference are the gauges of the later snapshot. Both snapshots must belong to the same runtime.
///
/// `Display` prints all metrics on a page with one topic per line. [`to_prometheus`](Self::to_prometheus) returns the
/// Prometheus text format, and [`all_to_prometheus`](Self::all_to_prometheus) returns one text for several runtimes.
/// With the feature `serde`, a snapshot implements `Serialize`. With the feature `metrics`, a `MetricsPublisher` passes
/// snapshots to the recorder of the crate `metrics`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RuntimeMetrics {
    /// Time that the counters and the distributions cover. In a snapshot, this time begins with the start of the
    /// runtime. In a difference, this field is the time between the two snapshots. The time is measured on the clock of
    /// the runtime.
    pub elapsed: Duration,
    /// The exact counts.
    pub counters: Counters,
    /// The sampled durations.
    pub distributions: Distributions,
    /// The workers, in the order of their numbers. The list contains the worker threads, their replacements, and the
    /// guest threads that run tasks now. A simulation has no workers.
    pub workers: Vec<WorkerMetrics>,
    /// Number of tasks in the global queue. Threads outside the runtime add their tasks to this queue, and full local
    /// queues overflow into this queue. The number includes the tasks in the queues of vacant slots. A guest or a
    /// worker that leaves its slot may leave tasks in the queues of the slot. In a simulation, the value is the number
    /// of all runnable tasks.
    pub global_queue_depth: usize,
    /// Number of processes with high or low priority in the queues of these priorities.
    pub priority_queue_depth: usize,
    /// The processes by state, and their mailboxes.
    pub processes: ProcessMetrics,
    /// The blocking pool.
    pub blocking_pool: BlockingPoolMetrics,
    /// Number of timers that are set, for example by sleeps, deadlines and intervals.
    pub timers: usize,
    /// Number of sockets and other descriptors that are registered with the runtime: see the module `net`. The value is
    /// 0 without the feature `net`.
    pub sockets: usize,
    /// Memory of the data structures of this crate.
    pub memory: MemoryMetrics,
}

/// Metrics of one worker: see [`RuntimeMetrics::workers`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Number of the worker. An [`Observer`](crate::Observer) receives the same number for this worker.
    pub worker: usize,
    /// State of the worker. If a guest has returned to its executor and the queues of the guest still contain tasks,
    /// the state of the guest is `Searching`.
    pub state: WorkerState,
    /// Number of tasks in the local queue of the worker, including the task in the worker's `next` slot.
    pub local_queue_depth: usize,
}

/// Metrics of all processes of a runtime: see [`RuntimeMetrics::processes`]. A mailbox without a process is not
/// included. A process that starts or exits during the call may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ProcessMetrics {
    /// Number of new processes, which have not been queued yet.
    pub new: usize,
    /// Number of processes in the state [`Ready`](ProcessState::Ready).
    pub ready: usize,
    /// Number of processes in the state [`Running`](ProcessState::Running).
    pub running: usize,
    /// Number of processes in the state [`Blocked`](ProcessState::Blocked).
    pub blocked: usize,
    /// Number of processes in the state [`Idle`](ProcessState::Idle).
    pub idle: usize,
    /// Number of processes in the state [`Suspended`](ProcessState::Suspended).
    pub suspended: usize,
    /// Number of messages in all mailboxes. See [`ProcessInfo::mailbox_len`](crate::observe::ProcessInfo::mailbox_len)
    /// for the messages that are not included.
    pub mailbox_messages: usize,
    /// Number of messages in the longest mailbox.
    pub longest_mailbox: usize,
    /// Number of signals in all mailboxes. A signal is an event that is not a message, for example an exit or an answer
    /// to a yield.
    pub mailbox_signals: usize,
    /// Number of yields (commands) without an answer.
    pub outstanding_yields: usize,
}

impl ProcessMetrics {
    /// Adds a process. `state` is `None` if the process is new, that is, if it has not been queued yet.
    pub(crate) fn add(&mut self, state: Option<ProcessState>, messages: usize, signals: usize, yields: usize) {
        *match state {
            None => &mut self.new,
            Some(ProcessState::Ready) => &mut self.ready,
            Some(ProcessState::Running) => &mut self.running,
            Some(ProcessState::Blocked) => &mut self.blocked,
            Some(ProcessState::Idle) => &mut self.idle,
            Some(ProcessState::Suspended) => &mut self.suspended,
            // An exited process is not counted, because the exit also removes the process from the pid table.
            Some(ProcessState::Complete) => return,
        } += 1;
        self.mailbox_messages += messages;
        self.longest_mailbox = self.longest_mailbox.max(messages);
        self.mailbox_signals += signals;
        self.outstanding_yields += yields;
    }

    fn by_state(&self) -> [(&'static str, usize); 6] {
        [
            ("new", self.new),
            ("ready", self.ready),
            ("running", self.running),
            ("blocked", self.blocked),
            ("idle", self.idle),
            ("suspended", self.suspended),
        ]
    }
}

/// Metrics of the blocking pool: see [`RuntimeMetrics::blocking_pool`]. All values are 0 in a simulation, which has no
/// blocking pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlockingPoolMetrics {
    /// Number of threads of the pool, including idle threads.
    pub threads: usize,
    /// Number of threads that run no job.
    pub idle_threads: usize,
    /// Number of jobs in the queue of the pool.
    pub queue_depth: usize,
}

/// Memory of the data structures of this crate in bytes: see [`RuntimeMetrics::memory`].
///
/// The values do not include the following memory:
///
/// - the local queues, the queue of the blocking pool, and the stacks of threads
/// - the messages that a receiver has taken out of the queue in advance or has stashed, the signals, and the messages
///   of senders that wait for free space
/// - a process state of more than 1 KiB, and a payload of more than 1 KiB
/// - the tables of names and groups, and the records of [`Host::last_exits`](crate::Host::last_exits)
/// - the last messages of each process: see [`InspectOptions`](crate::observe::InspectOptions). The field
///   [`ProcessDetails::memory`](crate::observe::ProcessDetails::memory) of one process includes the last messages and
///   the mailbox of this process.
/// - the copies of events, and the copies of the texts of these events. These copies exist only while a trace, a flight
///   record or a console reads the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryMetrics {
    /// Memory from which the crate allocates the blocks of processes, calls and payloads, including free blocks. All
    /// runtimes of the program share this memory, so each runtime reports the same value.
    pub blocks: usize,
    /// The pid table.
    pub pid_table: usize,
    /// The queues of the mailboxes of all processes, and of the mailboxes without a process. If a message owns further
    /// memory, for example a `Vec`, this memory is not included.
    pub mailboxes: usize,
    /// The timer wheels.
    pub timers: usize,
    /// The global queue.
    pub global_queue: usize,
    /// The counters, the distributions, and the open tables of [run times](crate::Host::sample_run_times). When a
    /// runtime ends, the memory of its counters stays allocated for the next runtime of the program. This value does
    /// not include the memory that ended runtimes have left.
    pub metrics: usize,
    /// The rings of events and the table of labels. All traces, the flight recorder and the consoles of a runtime share
    /// these rings and this table. A ring is allocated at the first recorded event of its thread, and stays allocated
    /// until the runtime ends. Without a flight recorder, a ring takes 512 KiB. With a flight recorder, see
    /// [`FlightRecorder::buffer_size`](crate::observe::FlightRecorder::buffer_size).
    pub traces: usize,
}

impl MemoryMetrics {
    /// Returns the sum of all values, in bytes.
    pub fn total(&self) -> usize {
        self.by_structure().iter().map(|(_, bytes)| bytes).sum()
    }

    fn by_structure(&self) -> [(&'static str, usize); 7] {
        [
            ("blocks", self.blocks),
            ("pid_table", self.pid_table),
            ("mailboxes", self.mailboxes),
            ("timers", self.timers),
            ("global_queue", self.global_queue),
            ("metrics", self.metrics),
            ("traces", self.traces),
        ]
    }
}

/// Values that the scheduler reads.
#[derive(Debug, Default)]
pub(crate) struct SchedulerGauges {
    pub(crate) workers: Vec<WorkerMetrics>,
    /// The steps that the workers run now.
    pub(crate) steps: Vec<CurrentStep>,
    /// Requested number of workers.
    pub(crate) worker_target: usize,
    /// Whether the requested number of workers is active. A worker in a blocked step is not active, but the replacement
    /// of this worker is active.
    pub(crate) is_complete: bool,
    /// Number of sockets that are registered with the poller.
    pub(crate) sockets: usize,
    pub(crate) global_queue_depth: usize,
    pub(crate) priority_queue_depth: usize,
    /// Memory of the global queue in bytes.
    pub(crate) global_queue_bytes: usize,
}

/// Step that a worker runs now.
#[derive(Debug)]
pub(crate) struct CurrentStep {
    pub(crate) worker: usize,
    /// Pid of the process, as one word. `None` for a future without a pid.
    pub(crate) process: Option<u64>,
    /// Number of polls of this worker. If two snapshots contain the same number, the worker is still in the same step.
    #[cfg_attr(not(feature = "console"), expect(dead_code, reason = "only the console shows this number"))]
    pub(crate) polls: u64,
    /// True if the step polls the guest thread's own future and does not run a process.
    pub(crate) is_own_future: bool,
    /// Time at which the monitor or the step itself first reported that the step blocks. `None` if neither the monitor
    /// nor the step has reported that the step blocks, and always `None` for the guest thread's own future.
    pub(crate) blocked_since: Option<Instant>,
    /// True if the runtime has asked the process to let other processes run, and the process has not reacted yet.
    pub(crate) is_asked_to_yield: bool,
    /// True if the step has reacted to the monitor's last request to yield. `None` for a future without a pid, and for
    /// a step that the monitor has not reported as blocked.
    pub(crate) checks_yield: Option<bool>,
}

impl WorkerMetrics {
    pub(crate) fn new(worker: usize, state: WorkerState, local_queue_depth: usize) -> Self {
        Self { worker, state, local_queue_depth }
    }
}

const WORKER_STATES: [(&str, WorkerState); 4] = [
    ("running", WorkerState::Running),
    ("searching", WorkerState::Searching),
    ("parked", WorkerState::Parked),
    ("blocked", WorkerState::Blocked),
];

impl RuntimeMetrics {
    /// Returns the throughput in steps per second: the number of steps of all processes, divided by
    /// [`elapsed`](Self::elapsed). Returns 0 if no time has passed.
    ///
    /// The throughput of a short interval is usually more useful than the throughput since the start of the runtime. To
    /// get the throughput of an interval, subtract an earlier snapshot first.
    pub fn throughput(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.counters.steps as f64 / seconds }
    }

    /// Returns the success rate of stealing, from 0 to 1: the fraction of the attempts that stole a task. Returns 0 if
    /// there were no attempts. This is [`Counters::steal_success`].
    pub fn steal_success(&self) -> f64 {
        self.counters.steal_success()
    }

    /// Returns the number of tasks in the local queues of all workers.
    pub fn local_queue_depth(&self) -> usize {
        self.workers.iter().map(|worker| worker.local_queue_depth).sum()
    }

    /// Returns the number of workers in this state.
    pub fn workers_in(&self, state: WorkerState) -> usize {
        self.workers.iter().filter(|worker| worker.state == state).count()
    }

    /// Lists all metrics.
    fn families(&self) -> Vec<Family<'_>> {
        let mut all = Vec::new();
        for (name, help, count) in self.counters.named() {
            all.push(Family::new(format!("{name}_total"), help, [("", "".into(), Value::Counter(count))]));
        }
        for (name, help, histogram) in self.distributions.named() {
            let value = Value::Histogram(histogram);
            all.push(Family::new(format!("{name}_seconds"), help, [("", "".into(), value)]));
        }
        let by_command = self.distributions.command_time.iter();
        let by_command = by_command.map(|one| ("command", one.command.into(), Value::Histogram(&one.time)));
        all.push(Family::new("command_time_seconds".into(), CommandTime::HELP, by_command));
        let gauge = |name: &str, help, value| Family::new(name.into(), help, [("", "".into(), Value::Gauge(value))]);
        let count = |name: &str, help, value: usize| gauge(name, help, value as f64);
        let labeled = |name: &str, help, label, samples: &[(&'static str, usize)]| {
            let sample = |&(of, value): &(&'static str, usize)| (label, of.into(), Value::Gauge(value as f64));
            Family::new(name.into(), help, samples.iter().map(sample))
        };
        let states = WORKER_STATES.map(|(name, state)| (name, self.workers_in(state)));
        let by_worker = self
            .workers
            .iter()
            .map(|worker| ("worker", worker.worker.to_string().into(), Value::Gauge(worker.local_queue_depth as f64)));
        let Self { processes, blocking_pool: pool, memory, .. } = self;
        all.extend([
            gauge("elapsed_seconds", "Time that the counters cover.", self.elapsed.as_secs_f64()),
            gauge(
                "sampled_one_in",
                "Sampling rate of the distributions except mailbox_time: one in this number of durations is measured.",
                f64::from(self.distributions.sampled_one_in),
            ),
            gauge(
                "messages_sampled_one_in",
                "Sampling rate of mailbox_time: about one in this number of messages is measured.",
                f64::from(self.distributions.messages_sampled_one_in),
            ),
            labeled("workers", "Workers by state.", "state", &states),
            Family::new("local_queue_depth".into(), "Tasks in the local queue of a worker.", by_worker),
            count(
                "global_queue_depth",
                "Tasks in the global queue, and tasks that guest threads left behind when `run` or `block_on` returned.",
                self.global_queue_depth,
            ),
            count("priority_queue_depth", "Processes in the priority queues.", self.priority_queue_depth),
            labeled("processes", "Processes by state.", "state", &processes.by_state()),
            count("mailbox_messages", "Messages in all mailboxes.", processes.mailbox_messages),
            count("longest_mailbox", "Messages in the longest mailbox.", processes.longest_mailbox),
            count("mailbox_signals", "Events other than messages, in all mailboxes.", processes.mailbox_signals),
            count("outstanding_yields", "Commands without an answer.", processes.outstanding_yields),
            count("blocking_threads", "Threads of the blocking pool.", pool.threads),
            count("blocking_idle_threads", "Threads of the blocking pool that run no job.", pool.idle_threads),
            count("blocking_queue_depth", "Jobs in the queue of the blocking pool.", pool.queue_depth),
            count("timers", "Timers that are set.", self.timers),
            count("sockets", "Sockets and other descriptors that are registered with the runtime.", self.sockets),
            labeled("memory_bytes", "Memory of the crate's own structures.", "structure", &memory.by_structure()),
        ]);
        all
    }
}

/// Label names that the metrics of this crate use.
const OWN_LABELS: [&str; 5] = ["command", "le", "state", "structure", "worker"];

/// Checks the labels that a program adds to all samples.
///
/// # Panics
/// Panics if a name is invalid in the Prometheus text format, is already used by the crate as a label, or occurs twice.
fn check_labels(labels: &[(&str, &str)]) {
    for (index, (name, _)) in labels.iter().enumerate() {
        let is_letter = |char: char| char.is_ascii_alphabetic() || char == '_';
        let is_valid = name.starts_with(is_letter)
            && name.chars().all(|char| is_letter(char) || char.is_ascii_digit())
            && !name.starts_with("__");
        assert!(is_valid, "the name of the label {name:?} is not valid in the Prometheus text format");
        assert!(!OWN_LABELS.contains(name), "the figures already have the label {name:?}");
        assert!(labels[..index].iter().all(|(other, _)| other != name), "the label {name:?} occurs twice");
    }
}

/// A metric with a name and a help text. The metric has several values if the metric has a label.
struct Family<'a> {
    /// Name without the prefix of the crate.
    name: String,
    help: &'static str,
    samples: Vec<Sample<'a>>,
}

/// The name and the value of a label, and the value of the metric. If the name of the label is empty, there is no
/// label.
type Sample<'a> = (&'static str, Cow<'a, str>, Value<'a>);

enum Value<'a> {
    Counter(u64),
    Gauge(f64),
    Histogram(&'a Histogram),
}

impl<'a> Family<'a> {
    fn new(name: String, help: &'static str, samples: impl IntoIterator<Item = Sample<'a>>) -> Self {
        Self { name, help, samples: samples.into_iter().collect() }
    }
}

/// `later - earlier` contains the counts and the durations between two snapshots of one runtime, and the gauges of the
/// later snapshot.
impl Sub for RuntimeMetrics {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            counters: self.counters - earlier.counters,
            distributions: self.distributions - earlier.distributions,
            ..self
        }
    }
}

/// Writes `topic: name value, name value, …` and a line break.
fn line(f: &mut fmt::Formatter<'_>, topic: &str, values: &[(&str, usize)]) -> fmt::Result {
    write!(f, "{topic}:")?;
    for (number, (name, value)) in values.iter().enumerate() {
        write!(f, "{} {name} {value}", if number == 0 { "" } else { "," })?;
    }
    writeln!(f)
}

impl fmt::Display for RuntimeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "elapsed: {:?}, {:.1} steps per second", self.elapsed, self.throughput())?;
        writeln!(f, "counters: {}", self.counters)?;
        writeln!(f, "steal success: {:.1} %", 100.0 * self.steal_success())?;
        for (name, _, histogram) in self.distributions.named() {
            writeln!(f, "{name}: {histogram}")?;
        }
        for CommandTime { command, time } in &self.distributions.command_time {
            writeln!(f, "command_time of {command}: {time}")?;
        }
        let Distributions { sampled_one_in, messages_sampled_one_in, .. } = &self.distributions;
        writeln!(f, "sampled: one in {sampled_one_in}, messages: one in {messages_sampled_one_in}")?;
        line(f, "workers", &WORKER_STATES.map(|(name, state)| (name, self.workers_in(state))))?;
        let (global, priority, local) = (self.global_queue_depth, self.priority_queue_depth, self.local_queue_depth());
        line(f, "queues", &[("global", global), ("priority", priority), ("local", local)])?;
        let ProcessMetrics { mailbox_messages, longest_mailbox, mailbox_signals, outstanding_yields, .. } =
            self.processes;
        line(f, "processes", &self.processes.by_state())?;
        line(
            f,
            "mailboxes",
            &[("messages", mailbox_messages), ("longest", longest_mailbox), ("signals", mailbox_signals)],
        )?;
        let BlockingPoolMetrics { threads, idle_threads, queue_depth } = self.blocking_pool;
        line(f, "blocking pool", &[("threads", threads), ("idle", idle_threads), ("queued", queue_depth)])?;
        line(f, "outstanding", &[("yields", outstanding_yields), ("timers", self.timers)])?;
        line(f, "sockets", &[("registered", self.sockets)])?;
        line(f, "memory in bytes", &self.memory.by_structure())
    }
}
