//! Run times of processes. The code in this file finds the processes and the types of processes whose turns took the
//! most time.
//!
//! The runtime measures one turn in 64 for its distributions: see `metrics.rs`. A *window* is a period of time for
//! which a caller wants the run times. While a window is open, each measured turn is also added to the table of the
//! window. If no window is open, the worker reads only one counter and the type name for each measured turn. A turn
//! that is not measured has no cost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::platform::clock::Instant;
use crate::platform::sync::tally::{AtomicUsize, Ordering::Relaxed};
use crate::platform::sync::{Arc, TallyLock};
use crate::process::pid::Pid;

/// Maximum number of processes in a table.
const MAX_PROCESSES: usize = 4_096;

/// A measured turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MeasuredTurn {
    /// Pid of the process, as one word.
    pub(crate) process: u64,
    pub(crate) type_name: &'static str,
    /// Worker that ran the turn. `None` if the thread was in no slot.
    pub(crate) worker: Option<usize>,
    pub(crate) ns: u64,
}

/// The tables of the open windows of a runtime. While a window is open, a thread takes the lock for each measured turn.
/// A thread also takes the lock when it opens, empties or closes a table, or reads the size of the tables.
#[derive(Debug, Default)]
pub(crate) struct RunTimeTables {
    open_count: AtomicUsize,
    tables: TallyLock<OpenTables>,
}

#[derive(Debug, Default)]
struct OpenTables {
    /// Number of the table that was opened last.
    last_number: u64,
    tables: Vec<(u64, RunTimeTable)>,
}

impl RunTimeTables {
    /// Adds a turn to each open table.
    #[inline]
    pub(crate) fn add(&self, turn: impl FnOnce() -> MeasuredTurn) {
        if self.open_count.load(Relaxed) != 0 {
            let turn = turn();
            self.tables.with(|open| open.tables.iter_mut().for_each(|(_, table)| table.add(turn)));
        }
    }

    /// Returns the memory of the tables, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.tables.with(|open| open.tables.iter().map(|(_, table)| table.bytes()).sum())
    }

    /// Opens a table, and returns the number of the table.
    fn open(&self) -> u64 {
        self.tables.with(|open| {
            open.last_number += 1;
            open.tables.push((open.last_number, RunTimeTable::default()));
            self.open_count.store(open.tables.len(), Relaxed);
            open.last_number
        })
    }

    /// Returns the content of a table, and empties the table.
    fn take(&self, number: u64) -> RunTimeTable {
        self.tables.with(|open| {
            let table = open.tables.iter_mut().find(|(of, _)| *of == number);
            table.map(|(_, table)| std::mem::take(table)).unwrap_or_default()
        })
    }

    fn close(&self, number: u64) {
        let closed = self.tables.with(|open| {
            let at = open.tables.iter().position(|(of, _)| *of == number);
            let closed = at.map(|at| open.tables.swap_remove(at));
            self.open_count.store(open.tables.len(), Relaxed);
            closed
        });
        // The memory of a table is freed after the unlock.
        drop(closed);
    }
}

/// Reads the time, and the pids and names of processes.
pub(crate) trait RunTimeSource: Send + Sync {
    fn now(&self) -> Instant;
    /// Converts the word of a pid to the pid, and returns the registered name of the process.
    fn process(&self, word: u64) -> (Pid, Option<Cow<'static, str>>);
}

/// A window of time in which turns are added to a table. The drop closes the window.
pub(crate) struct RunTimeWindow {
    tables: Arc<RunTimeTables>,
    /// Number of the table.
    number: u64,
    begun: Instant,
    sampled_one_in: u32,
}

impl RunTimeWindow {
    pub(crate) fn open(tables: &Arc<RunTimeTables>, sampled_one_in: u32, now: Instant) -> Self {
        Self { number: tables.open(), tables: Arc::clone(tables), begun: now, sampled_one_in }
    }

    /// Returns the start of the window.
    #[cfg(feature = "console")]
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the run times since the start of the window, and starts a new window.
    pub(crate) fn take(&mut self, source: &dyn RunTimeSource, limit: usize) -> RunTimes {
        let (table, now) = (self.tables.take(self.number), source.now());
        let window = now - std::mem::replace(&mut self.begun, now);
        table.report(window, self.sampled_one_in, limit, |word| source.process(word))
    }
}

impl Drop for RunTimeWindow {
    fn drop(&mut self) {
        self.tables.close(self.number);
    }
}

/// Collects the run times of processes: see [`Host::sample_run_times`](crate::Host::sample_run_times). Dropping the
/// sampler ends the collection.
#[must_use = "dropping the sampler ends the collection"]
pub struct RunTimeSampler {
    source: Box<dyn RunTimeSource>,
    window: RunTimeWindow,
}

impl RunTimeSampler {
    pub(crate) fn new(source: Box<dyn RunTimeSource>, window: RunTimeWindow) -> Self {
        Self { source, window }
    }

    /// Returns the run times since the last call, or since the creation of the sampler, and starts a new window. The
    /// result contains at most `limit` processes and at most `limit` types.
    pub fn take(&mut self, limit: usize) -> RunTimes {
        self.window.take(&*self.source, limit)
    }
}

impl fmt::Debug for RunTimeSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The tables are not printed. The writer of the output is user code, and must not run under the lock of the
        // tables.
        f.debug_struct("RunTimeSampler").field("begun", &self.window.begun).finish_non_exhaustive()
    }
}

/// Sums of the measured turns.
#[derive(Debug, Default)]
pub(crate) struct RunTimeTable {
    /// Sums by process. If there are too many processes, the processes with the shortest times are removed.
    processes: BTreeMap<u64, ProcessSum>,
    types: BTreeMap<&'static str, Sum>,
    all: Sum,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    turns: u64,
    ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct ProcessSum {
    sum: Sum,
    type_name: &'static str,
    last_worker: Option<usize>,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.turns += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    /// Estimates the number and the total time of all turns from the measured turns.
    fn estimate(self, one_in: u32) -> (u64, Duration) {
        let one_in = u64::from(one_in);
        (self.turns.saturating_mul(one_in), Duration::from_nanos(self.ns.saturating_mul(one_in)))
    }
}

impl RunTimeTable {
    fn add(&mut self, MeasuredTurn { process, type_name, worker, ns }: MeasuredTurn) {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&process) {
            self.remove_shortest();
        }
        let new = || ProcessSum { sum: Sum::default(), type_name, last_worker: None };
        let row = self.processes.entry(process).or_insert_with(new);
        row.sum.add(ns);
        row.last_worker = worker;
        self.types.entry(type_name).or_default().add(ns);
        self.all.add(ns);
    }

    /// Removes the processes with the shortest times, namely half of all processes. One removal takes linear time and
    /// frees half of the table, so the amortized cost of a turn is small.
    #[cold]
    fn remove_shortest(&mut self) {
        let mut times: Vec<(u64, u64)> = self.processes.iter().map(|(process, row)| (row.sum.ns, *process)).collect();
        let half = times.len() / 2;
        let middle = *times.select_nth_unstable(half).1;
        self.processes.retain(|process, row| (row.sum.ns, *process) >= middle);
    }

    fn bytes(&self) -> usize {
        self.processes.len() * size_of::<(u64, ProcessSum)>() + self.types.len() * size_of::<(&str, Sum)>()
    }

    /// Returns the first `limit` processes and the first `limit` types, longest time first. `process` converts
    /// the word of a pid to the pid and the registered name.
    pub(crate) fn report(
        self,
        window: Duration,
        sampled_one_in: u32,
        limit: usize,
        process: impl Fn(u64) -> (Pid, Option<Cow<'static, str>>),
    ) -> RunTimes {
        let mut processes: Vec<_> = self.processes.into_iter().collect();
        processes.sort_unstable_by(|(one, a), (other, b)| b.sum.ns.cmp(&a.sum.ns).then(one.cmp(other)));
        let process_row = |(word, ProcessSum { sum, type_name, last_worker }): (u64, ProcessSum)| {
            let ((pid, name), (turns, run_time)) = (process(word), sum.estimate(sampled_one_in));
            ProcessRunTime { pid, name, type_name, turns, run_time, measured_turns: sum.turns, last_worker }
        };
        let mut types: Vec<_> = self.types.into_iter().collect();
        types.sort_unstable_by(|(one, a), (other, b)| b.ns.cmp(&a.ns).then(one.cmp(other)));
        let type_row = |(type_name, sum): (&'static str, Sum)| {
            let (turns, run_time) = sum.estimate(sampled_one_in);
            TypeRunTime { type_name, turns, run_time, measured_turns: sum.turns }
        };
        let (turns, run_time) = self.all.estimate(sampled_one_in);
        RunTimes {
            window,
            turns,
            run_time,
            processes: processes.into_iter().take(limit).map(process_row).collect(),
            types: types.into_iter().take(limit).map(type_row).collect(),
            sampled_one_in,
        }
    }
}

/// Run times in a window of time: see [`Host::sample_run_times`](crate::Host::sample_run_times).
///
/// `Display` prints one line about the window and one line for each process. The percentage of a process is its share
/// of the total run time:
///
/// ```text
/// 1.2s of run time in a window of 2s
/// <0.0.1> "index" app::index: 75.0 %, 900ms in 64 turns, last on worker 1
/// <0.1.1> app::clock: 25.0 %, 300ms in 128 turns, last on worker 0
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunTimes {
    /// Length of the window.
    pub window: Duration,
    /// Estimated number of turns of all processes. A turn begins when a worker takes the process from a queue. A turn
    /// ends when the process waits, yields or exits.
    pub turns: u64,
    /// Estimated run time of all processes. This time may be longer than the window, for three reasons. Several threads
    /// run at the same time. The value is an estimate. The whole duration of a turn is added to the window in which the
    /// turn ends.
    pub run_time: Duration,
    /// The processes with the longest run times, longest first.
    pub processes: Vec<ProcessRunTime>,
    /// The types with the longest run times, longest first. The row of a type includes the run times of all processes
    /// of this type, even of the processes that the sampler has removed.
    pub types: Vec<TypeRunTime>,
    /// Sampling rate. If the rate is `n`, one turn in `n` was measured. Default: 64. With
    /// [`Builder::sample_every_step`](crate::Builder::sample_every_step), the number is 1.
    pub sampled_one_in: u32,
}

/// Run time of one process: see [`RunTimes::processes`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessRunTime {
    /// Pid of the process.
    pub pid: Pid,
    /// Registered name of the process. If the process has several names, this field is the name that the process
    /// registered first. `None` if the process has no name or has exited.
    pub name: Option<Cow<'static, str>>,
    /// Name of the type of the process's code.
    pub type_name: &'static str,
    /// Estimated number of turns: the number of measured turns, multiplied by [`RunTimes::sampled_one_in`].
    pub turns: u64,
    /// Estimated run time: the time of the measured turns, multiplied by [`RunTimes::sampled_one_in`].
    pub run_time: Duration,
    /// Number of turns that were measured. With `n` measured turns of similar length, the standard error of `turns` and
    /// of `run_time` is about `1 / √n` of their values. The error is larger if the window is short and many processes
    /// run in a fixed order.
    pub measured_turns: u64,
    /// Number of the worker that ran the last measured turn. A thread inside
    /// [`Runtime::block_on`](crate::Runtime::block_on) or [`Runtime::run`](crate::Runtime::run) also has a number. An
    /// [`Observer`](crate::Observer) receives the same number for this worker. `None` if the thread had no number.
    pub last_worker: Option<usize>,
}

/// Run time of all processes of one type: see [`RunTimes::types`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeRunTime {
    /// Name of the type of the code.
    pub type_name: &'static str,
    /// Estimated number of turns.
    pub turns: u64,
    /// Estimated run time.
    pub run_time: Duration,
    /// Number of turns that were measured: see [`ProcessRunTime::measured_turns`].
    pub measured_turns: u64,
}

impl RunTimes {
    /// Returns `run_time` divided by the total [run time](Self::run_time). If `run_time` comes from a row of this
    /// `RunTimes`, the result is between 0 and 1. Returns 0 if no turn was measured.
    pub fn share(&self, run_time: Duration) -> f64 {
        let all = self.run_time.as_secs_f64();
        if all > 0.0 { run_time.as_secs_f64() / all } else { 0.0 }
    }
}

impl fmt::Display for RunTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of run time in a window of {:?}", self.run_time, self.window)?;
        self.processes.iter().try_for_each(|row| {
            write!(f, "\n{} ", row.pid)?;
            if let Some(name) = &row.name {
                write!(f, "{name:?} ")?;
            }
            let (share, turns) = (100.0 * self.share(row.run_time), row.turns);
            write!(f, "{}: {share:.1} %, {:?} in {turns} turns", row.type_name, row.run_time)?;
            row.last_worker.map_or(Ok(()), |worker| write!(f, ", last on worker {worker}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(process: u64, type_name: &'static str, ns: u64) -> MeasuredTurn {
        MeasuredTurn { process, type_name, worker: Some(process as usize % 2), ns }
    }

    fn report(table: RunTimeTable, limit: usize) -> RunTimes {
        let pid = |word| (Pid::new(0, 0, word as u32, 1), None);
        table.report(Duration::from_secs(1), 64, limit, pid)
    }

    #[test]
    fn a_report_contains_the_turns_since_the_window_opened_or_since_the_last_report() {
        let tables = Arc::new(RunTimeTables::default());
        let add = |process, ns| tables.add(|| turn(process, "a", ns));
        let times = |number| -> Vec<u64> {
            report(tables.take(number), 9).processes.iter().map(|row| row.run_time.as_nanos() as u64 / 64).collect()
        };
        tables.add(|| unreachable!("no window is open"));
        let one = RunTimeWindow::open(&tables, 64, Instant::from_ns(0));
        add(1, 10);
        let other = RunTimeWindow::open(&tables, 64, Instant::from_ns(0));
        add(1, 20);
        add(2, 5);
        assert_eq!((times(one.number), times(other.number)), (vec![30, 5], vec![20, 5]));
        add(2, 7);
        drop(one);
        add(2, 1);
        assert_eq!(times(other.number), [8]);
        drop(other);
        tables.add(|| unreachable!("no window is open"));
    }

    #[test]
    fn a_report_has_the_longest_times_of_processes_and_types() {
        let mut table = RunTimeTable::default();
        for (process, type_name, ns) in [(1, "a", 10), (2, "b", 30), (3, "a", 25), (2, "b", 1), (4, "c", 2)] {
            table.add(turn(process, type_name, ns));
        }
        let times = report(table, 2);
        let rows: Vec<_> = times.processes.iter().map(|row| (row.pid.index(), row.measured_turns, row.turns)).collect();
        assert_eq!(rows, [(2, 2, 128), (3, 1, 64)]);
        assert_eq!(times.processes[0].last_worker, Some(0));
        let types: Vec<_> = times.types.iter().map(|row| (row.type_name, row.run_time.as_nanos(), row.turns)).collect();
        assert_eq!(types, [("a", 35 * 64, 128), ("b", 31 * 64, 128)]);
        assert_eq!((times.turns, times.run_time.as_nanos()), (5 * 64, 68 * 64));
        assert_eq!(times.share(times.run_time), 1.0);
        assert_eq!(report(RunTimeTable::default(), 2).share(Duration::from_secs(1)), 0.0);
    }

    #[test]
    fn a_full_table_keeps_the_processes_with_the_longest_times() {
        let mut table = RunTimeTable::default();
        let long = MAX_PROCESSES as u64;
        for _ in 0..3 {
            table.add(turn(long, "long", 1_000));
        }
        for process in 0..10 * MAX_PROCESSES as u64 {
            if process != long {
                table.add(turn(process, "short", process % 7));
            }
            assert!(table.processes.len() <= MAX_PROCESSES);
        }
        let times = report(table, 1);
        assert_eq!((times.processes[0].pid.index(), times.processes[0].measured_turns), (long as u32, 3));
        assert_eq!(times.turns, 64 * (10 * MAX_PROCESSES as u64 + 2));
    }
}
