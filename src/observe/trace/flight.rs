//! The flight recorder: its options, the requests to write a flight record, and the conversion of the rings to a
//! record.
//!
//! In a runtime with a flight recorder, the rings stay full: each new record overwrites the oldest record of the same
//! ring. A reader copies all rings, and converts the copies. The reader takes no lock that a worker waits for.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::observe::metrics::Metrics;
use crate::observe::trace::ring::{Record, Ring};
use crate::observe::trace::timeline::{Alive, Lookup, Timeline};
use crate::observe::trace::{CAPACITY, Recorder, TraceEntry, TraceEvent};
use crate::platform::sync::{Arc, Condvar, Mutex, OnceLock, thread, wait_while};
use crate::process::catch::catch;

/// Size of a record in a buffer, in bytes.
const RECORD: usize = 32;
/// Default size of a buffer, in bytes.
const DEFAULT: usize = 4 << 20;
/// Maximum number of records of a buffer.
const MOST: usize = 1 << 26;
/// Number of entries that are converted before their bytes are written. Because of this limit, the memory never
/// contains all bytes of a large record at the same time.
const CHUNK: usize = 1 << 12;
/// Number of further file numbers that the runtime tries if a file exists. Without this limit, a program that is
/// restarted again and again would fill the disk with records.
const MORE_NUMBERS: u32 = 100;

/// Function that is called after the runtime has written a record automatically.
type OnWritten = Arc<dyn Fn(&Path, &io::Result<FlightSummary>) + Send + Sync>;

/// Function that begins to watch for a signal. The argument is the function that requests a record. The watch ends when
/// the returned value is dropped.
pub(crate) type WatchSignal = Arc<dyn Fn(Box<dyn Fn() + Send>) -> io::Result<Box<dyn Any + Send>> + Send + Sync>;

/// Options of the flight recorder: see [`Builder::flight_recorder`](crate::Builder::flight_recorder).
///
/// A flight recorder keeps the last events of a runtime in memory, in one buffer for each worker. The events are the
/// events of an execution trace. A new event overwrites the oldest event of the same buffer.
/// [`Host::write_flight_record`](crate::Host::write_flight_record) writes the buffers to a file that Perfetto opens.
/// The page [`guide::tracing`](crate::guide::tracing#the-flight-recorder) shows how to use the flight recorder.
///
/// ```
/// # use procession::{Context, Runtime};
/// # use procession::observe::FlightRecorder;
/// # let dir = std::env::temp_dir().join(format!("procession-flight-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let recorder = FlightRecorder::new().buffer_size(1 << 20).folder(&dir).write_on_panic(true);
/// let rt = Runtime::builder().flight_recorder(recorder).build()?;
/// rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await))?;
/// let summary = rt.write_flight_record(dir.join("now.pftrace"))?;
/// assert!(summary.events > 0 && summary.overwritten == 0);
/// # drop(rt);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone)]
#[must_use = "the options have no effect until they are passed to a builder"]
pub struct FlightRecorder {
    records: usize,
    folder: PathBuf,
    on_panic: bool,
    on_blocked: bool,
    /// One function for each signal that requests a record. The module `net` provides the functions.
    on_signals: Vec<WatchSignal>,
    max_files: u32,
    on_written: OnWritten,
}

// The options contain functions. These functions are `Send` and `Sync`, and the runtime calls them through shared
// references. Therefore, if other code panics and the panic is caught, all options are still in a valid state.
impl UnwindSafe for FlightRecorder {}
impl RefUnwindSafe for FlightRecorder {}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder")
            .field("buffer_size", &(self.records * RECORD))
            .field("folder", &self.folder)
            .field("on_panic", &self.on_panic)
            .field("on_blocked_worker", &self.on_blocked)
            .field("on_signals", &self.on_signals.len())
            .field("max_files", &self.max_files)
            .finish_non_exhaustive()
    }
}

impl Default for FlightRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl FlightRecorder {
    /// Creates the default options: buffers of 4 MiB, and no automatic writing.
    pub fn new() -> Self {
        Self {
            records: DEFAULT / RECORD,
            folder: PathBuf::from("."),
            on_panic: false,
            on_blocked: false,
            on_signals: Vec::new(),
            max_files: 8,
            on_written: Arc::new(print_result),
        }
    }

    /// Sets the size of each buffer in bytes. Default: 4 MiB, which is 131,072 events. The size is rounded up to a
    /// power of two, and is at least 512 KiB and at most 2 GiB.
    ///
    /// Each worker, each guest thread and each replacement thread has a buffer. All other threads share up to four
    /// buffers. The build of the runtime allocates the buffers of the workers. Every other buffer is allocated at the
    /// first event of its thread. A turn in which a process receives and sends one message has about five events.
    /// Therefore, if a worker runs 5,000 turns per second, and each turn receives and sends one message, a buffer of 4
    /// MiB contains the events of about five seconds.
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.records = bytes.div_ceil(RECORD).clamp(CAPACITY, MOST).next_power_of_two();
        self
    }

    /// Sets whether the runtime writes a record when a process panics. Default: off.
    ///
    /// A thread of the flight recorder writes the file, so the process that panics does not wait for the file. The drop
    /// of the runtime waits until the file is written. If panics abort the program, no file is written.
    pub fn write_on_panic(mut self, on: bool) -> Self {
        self.on_panic = on;
        self
    }

    /// Sets whether the runtime writes a record when the monitor detects a worker in a [long
    /// step](crate::Builder::long_step_threshold). Default: off. A thread of the flight recorder writes the file. In
    /// the record, the long step is the last slice on the track of the worker that runs the step.
    pub fn write_on_blocked_worker(mut self, on: bool) -> Self {
        self.on_blocked = on;
        self
    }

    /// Sets the folder of the files that the runtime writes automatically or for a console. Default: the current folder
    /// of the program. The folder must exist. The name of a file contains the process id of the program, the node
    /// number of the runtime, a number and the cause, for example `flight-4711-1-1-panic.pftrace`.
    ///
    /// The runtime never overwrites a file in this folder. If a file exists, the runtime uses the next free number. For
    /// example, all runs of a restarted container have the same process id, but the container keeps the records of its
    /// earlier runs. If the next 100 numbers are also used, the runtime writes no file.
    pub fn folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.folder = path.into();
        self
    }

    /// Sets the maximum number of files that the runtime writes automatically or for consoles. Default: 8. There are
    /// three counters, each with this maximum: for panics and long steps, for signals, and for consoles. When a counter
    /// has reached the maximum, the runtime writes no further file for the causes of this counter. If several panics,
    /// long steps or signals occur before the thread of the flight recorder begins to write a file, the runtime writes
    /// only one file for all these events. The name of this file contains the cause that occurred first. The file
    /// counts only toward the counter of this cause.
    pub fn max_files(mut self, count: u32) -> Self {
        self.max_files = count;
        self
    }

    /// Sets the function that is called after the runtime has written a file automatically, or has failed to write the
    /// file. Default: prints one line to stderr. The thread of the flight recorder calls the function. A panic of the
    /// function is caught and ignored.
    pub fn on_written(mut self, f: impl Fn(&Path, &io::Result<FlightSummary>) + Send + Sync + 'static) -> Self {
        self.on_written = Arc::new(f);
        self
    }

    /// Adds a signal that requests a record.
    #[cfg(all(feature = "net", unix, not(any(procession_loom, procession_shuttle))))]
    pub(crate) fn add_signal(mut self, watch: WatchSignal) -> Self {
        self.on_signals.push(watch);
        self
    }

    pub(super) fn records(&self) -> usize {
        self.records
    }
}

fn print_result(path: &Path, result: &io::Result<FlightSummary>) {
    let text = match result {
        Ok(_) => format!("procession: wrote the flight record {}\n", path.display()),
        Err(error) => format!("procession: could not write the flight record {}: {error}\n", path.display()),
    };
    eprint!("{text}");
}

/// Contents of a flight record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlightSummary {
    /// Number of events that the record contains.
    pub events: u64,
    /// Number of events that are missing, because newer events have overwritten them. The number includes all events
    /// that were overwritten since the runtime was built.
    pub overwritten: u64,
    /// Length of the last complete period: the record contains all events of this period. The period ends when the copy
    /// of the buffers begins. The record also contains earlier events of workers that had fewer events.
    pub complete: Duration,
}

/// Cause of a file that the runtime writes automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordCause {
    Panic,
    BlockedWorker,
    Signal,
}

impl RecordCause {
    fn name(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::BlockedWorker => "blocked",
            Self::Signal => "signal",
        }
    }
}

/// The flight recorder of a runtime: the options of the recorder, and the requests to the thread of the recorder.
pub(super) struct Flight {
    options: FlightRecorder,
    requests: Mutex<Requests>,
    changed: Condvar,
    /// The watches of the signals that request a record.
    watches: Mutex<Vec<Box<dyn Any + Send>>>,
}

#[derive(Debug, Default)]
struct Requests {
    /// Cause of the next file.
    pending: Option<RecordCause>,
    /// Number of files that were begun because of a panic or a long step.
    begun: u32,
    /// Number of files that were begun because of a signal.
    begun_by_signal: u32,
    has_thread: bool,
    /// The thread that writes the files. `None` before the thread runs.
    thread: Option<thread::ThreadId>,
    stop: bool,
    /// Number of files that were written for consoles.
    #[cfg(feature = "console")]
    for_consoles: u32,
    /// Whether a file for a console is being written.
    is_reserved: bool,
}

/// Reason why the runtime writes no flight record for a console.
#[cfg(feature = "console")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordRefusal {
    NoRecorder,
    MaxFiles,
    Busy,
    Ended,
}

#[cfg(feature = "console")]
impl fmt::Display for RecordRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRecorder => "the runtime has no flight recorder: see `Builder::flight_recorder`",
            Self::MaxFiles => "consoles have requested the maximum number of files: see `FlightRecorder::max_files`",
            Self::Busy => "a flight record is being written; try again later",
            Self::Ended => "the runtime is ending",
        })
    }
}

impl Requests {
    /// Returns the number of files that were begun because of this cause.
    fn begun_for(&mut self, cause: RecordCause) -> &mut u32 {
        match cause {
            RecordCause::Panic | RecordCause::BlockedWorker => &mut self.begun,
            RecordCause::Signal => &mut self.begun_by_signal,
        }
    }
}

impl Flight {
    pub(super) fn new(options: FlightRecorder) -> Self {
        Self { options, requests: Mutex::default(), changed: Condvar::new(), watches: Mutex::default() }
    }

    pub(super) fn records(&self) -> usize {
        self.options.records()
    }

    fn is_enabled(&self, cause: RecordCause) -> bool {
        match cause {
            RecordCause::Panic => self.options.on_panic,
            RecordCause::BlockedWorker => self.options.on_blocked,
            RecordCause::Signal => !self.options.on_signals.is_empty(),
        }
    }

    /// Requests a file. The lock is held only for a few instructions by each thread.
    fn request(&self, cause: RecordCause) {
        if self.is_enabled(cause) {
            let mut requests = self.requests.lock();
            if requests.has_thread && *requests.begun_for(cause) < self.options.max_files {
                requests.pending.get_or_insert(cause);
                drop(requests);
                self.changed.notify_all();
            }
        }
    }

    /// Waits for a request. Returns the cause of the request and the number of the file, or `None` if the runtime ends.
    fn next(&self) -> Option<(RecordCause, u32)> {
        let is_quiet = |requests: &mut Requests| requests.pending.is_none() && !requests.stop;
        while !wait_while(&self.changed, self.requests.lock(), Duration::from_secs(3600), is_quiet) {}
        let mut requests = self.requests.lock();
        let cause = requests.pending.take()?;
        let begun = requests.begun_for(cause);
        *begun += 1;
        Some((cause, *begun))
    }

    /// Main function of the thread.
    fn run(&self, label: &str, write: impl Fn(&Path) -> io::Result<FlightSummary>) {
        self.requests.lock().thread = Some(thread::current().id());
        while let Some((cause, number)) = self.next() {
            let (path, result) = self.write_new(label, number, cause.name(), &write);
            let _ = catch(|| (self.options.on_written)(&path, &result));
        }
    }

    /// Calls `write` with the path of the file with this number. If the file exists, repeats the call with the next
    /// number. Returns the path of the last call.
    fn write_new(
        &self,
        label: &str,
        first: u32,
        cause: &str,
        write: impl Fn(&Path) -> io::Result<FlightSummary>,
    ) -> (PathBuf, io::Result<FlightSummary>) {
        let mut number = first;
        loop {
            let path = self.path(label, number, cause);
            let result = write(&path);
            let exists = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
            if !exists || number - first >= MORE_NUMBERS {
                return (path, result);
            }
            number += 1;
        }
    }

    fn path(&self, label: &str, number: u32, cause: &str) -> PathBuf {
        self.options.folder.join(format!("flight-{}-{label}-{number}-{cause}.pftrace", std::process::id()))
    }

    /// Reserves the next file for a console. Returns its number.
    #[cfg(feature = "console")]
    fn reserve(&self) -> Result<u32, RecordRefusal> {
        let mut requests = self.requests.lock();
        if requests.stop {
            return Err(RecordRefusal::Ended);
        }
        if requests.is_reserved {
            return Err(RecordRefusal::Busy);
        }
        if requests.for_consoles >= self.options.max_files {
            return Err(RecordRefusal::MaxFiles);
        }
        requests.is_reserved = true;
        Ok(requests.for_consoles + 1)
    }

    /// Ends the reservation.
    #[cfg(feature = "console")]
    fn release(&self, is_written: bool) {
        let mut requests = self.requests.lock();
        requests.is_reserved = false;
        requests.for_consoles += u32::from(is_written);
        drop(requests);
        self.changed.notify_all();
    }

    fn has_ended(&self) {
        self.requests.lock().has_thread = false;
        self.changed.notify_all();
    }

    /// Waits until all requested files are written and the thread has ended. The user's function (see `on_written`) may
    /// drop the runtime. In this case, the thread itself makes this call, so the call does not wait for the thread. The
    /// thread then ends after the user's function has returned.
    fn stop(&self) {
        // The drop of a watch may wait for another thread. Therefore this function releases the lock before it drops
        // the watches.
        let watches = std::mem::take(&mut *self.watches.lock());
        drop(watches);
        self.requests.lock().stop = true;
        self.changed.notify_all();
        let here = thread::current().id();
        let runs =
            |requests: &mut Requests| requests.is_reserved || (requests.has_thread && requests.thread != Some(here));
        while !wait_while(&self.changed, self.requests.lock(), Duration::from_secs(3600), runs) {}
    }
}

impl Recorder {
    /// Begins to keep the last events. A second call has no effect.
    pub(crate) fn keep_last_events(&self, options: FlightRecorder) {
        self.begin_flight(Flight::new(options));
    }

    /// Returns whether the events are kept for a flight record.
    pub(crate) fn keeps_last_events(&self) -> bool {
        self.flight.get().is_some()
    }

    /// Returns whether this cause makes the runtime write a record.
    pub(crate) fn is_enabled(&self, cause: RecordCause) -> bool {
        self.flight.get().is_some_and(|flight| flight.is_enabled(cause))
    }

    /// If the runtime has a flight recorder, allocates the rings of the first `workers` slots. Without this allocation,
    /// a worker would have to wait for the memory of a large ring at its first event.
    pub(crate) fn allocate_buffers(&self, workers: usize) {
        if self.keeps_last_events() {
            for place in self.workers.iter().take(workers) {
                place.get_or_init(|| self.new_ring());
            }
        }
    }

    /// Requests a record from the thread of the flight recorder. This function does not wait until the file is written.
    pub(crate) fn request_record(&self, cause: RecordCause) {
        if let Some(flight) = self.flight.get() {
            flight.request(cause);
        }
    }

    /// Reserves the next file for a console. Returns its number.
    #[cfg(feature = "console")]
    pub(crate) fn reserve_file(&self) -> Result<u32, RecordRefusal> {
        self.flight.get().ok_or(RecordRefusal::NoRecorder)?.reserve()
    }

    /// Writes the reserved file with this number. If the file exists, uses the next number. `label` is a part of the
    /// file name. `write` creates and writes the file. Also returns the path of the file.
    #[cfg(feature = "console")]
    pub(crate) fn write_reserved(
        &self,
        label: &str,
        number: u32,
        write: impl Fn(&Path) -> io::Result<FlightSummary>,
    ) -> (PathBuf, io::Result<FlightSummary>) {
        let flight = self.flight.get().expect("a runtime without a flight recorder reserves no file");
        flight.write_new(label, number, "console", write)
    }

    /// Ends the reservation. A file that was not written does not count toward the maximum number of files.
    #[cfg(feature = "console")]
    pub(crate) fn release_file(&self, is_written: bool) {
        if let Some(flight) = self.flight.get() {
            flight.release(is_written);
        }
    }

    /// Waits until the requested records are written, and ends the thread of the flight recorder.
    pub(crate) fn stop_writer(&self) {
        if let Some(flight) = self.flight.get() {
            flight.stop();
        }
    }
}

impl Metrics {
    /// If the options enable a cause of a record: starts the thread that writes the requested records, and begins to
    /// watch for the signals of the options. The thread and the watches end after [`Recorder::stop_writer`]. `label` is
    /// a part of the file names.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started, or if a signal cannot be watched.
    pub(crate) fn start_record_writer(
        self: &Arc<Self>,
        label: String,
        write: impl Fn(&Path) -> io::Result<FlightSummary> + Send + 'static,
    ) -> io::Result<()> {
        let Some(flight) = self.recorder().flight.get() else { return Ok(()) };
        let causes = [RecordCause::Panic, RecordCause::BlockedWorker, RecordCause::Signal];
        if !causes.into_iter().any(|cause| flight.is_enabled(cause)) {
            return Ok(());
        }
        flight.requests.lock().has_thread = true;
        let metrics = Arc::clone(self);
        let run = move || {
            if let Some(flight) = metrics.recorder().flight.get() {
                flight.run(&label, write);
                flight.has_ended();
            }
        };
        let started = thread::Builder::new().name("procession-flight".into()).spawn(run);
        if started.is_err() {
            flight.has_ended();
        }
        started?;
        for watch in &flight.options.on_signals {
            // The watch must not keep the metrics alive, because the metrics own the watch.
            let metrics = Arc::downgrade(self);
            let request = move || {
                if let Some(metrics) = metrics.upgrade() {
                    metrics.recorder().request_record(RecordCause::Signal);
                }
            };
            let watch = watch(Box::new(request))?;
            flight.watches.lock().push(watch);
        }
        Ok(())
    }
}

/// A copy of the rings of a runtime, in the order of the times of the events.
pub(crate) struct FlightCopy {
    entries: Vec<TraceEntry>,
    /// Time at which the copy began. The copy contains no events from after this time.
    now: u64,
    /// Start of the complete period: the copy contains all events from this time to `now`.
    complete_since: u64,
    /// Number of records that newer records had overwritten before the reader copied these records.
    overwritten: u64,
}

/// Copy of one ring.
struct RingCopy {
    records: Vec<Record>,
    /// Number of records that newer records had overwritten before the reader copied these records.
    overwritten: u64,
}

impl RingCopy {
    /// Copies all rings. The copies are unpacked later. The copy must be fast, because the workers write further
    /// records in the meantime.
    fn all(recorder: &Recorder) -> Vec<Self> {
        let copy = |ring: &Ring| {
            let mut records = Vec::new();
            let (_, overwritten) = ring.read(0, |record| records.push(record));
            Self { records, overwritten }
        };
        recorder.rings().filter_map(OnceLock::get).map(copy).collect()
    }

    /// Returns true if the ring had records that are older than `now`, and if all these records were overwritten.
    fn is_too_late(&self, now: u64) -> bool {
        let mut entries = self.records.iter().filter_map(|record| TraceEntry::unpack(*record));
        self.overwritten != 0 && entries.next().is_none_or(|entry| entry.at > now)
    }
}

impl FlightCopy {
    /// Copies the rings. `now` returns the present time.
    ///
    /// During the copy, each worker continues to write its ring. If the system suspends this thread during the copy, a
    /// busy worker may overwrite all records that this worker wrote before the copy began. In this case, the rings are
    /// copied again, and the workers discard their events during the second copy.
    pub(crate) fn new(recorder: &Recorder, now: impl Fn() -> u64) -> Self {
        let copy_all = || (now(), RingCopy::all(recorder));
        let (mut begun, mut copies) = copy_all();
        if copies.iter().any(|ring| ring.is_too_late(begun)) {
            drop(copies);
            (begun, copies) = recorder.paused(copy_all);
        }
        Self::join(begun, copies)
    }

    /// Merges the records of all rings in the order of their times. `now` is the time at which the copy began.
    fn join(now: u64, copies: Vec<RingCopy>) -> Self {
        let mut copy = Self { entries: Vec::new(), now, complete_since: 0, overwritten: 0 };
        for RingCopy { records, overwritten } in copies {
            let first = copy.entries.len();
            copy.entries.extend(records.into_iter().filter_map(TraceEntry::unpack));
            if overwritten == 0 {
                continue;
            }
            copy.overwritten += overwritten;
            let begin = copy.entries.get(first).copied();
            copy.complete_since = copy.complete_since.max(begin.map_or(now, |entry| entry.at));
            if let Some(TraceEntry { at, lane, .. }) = begin {
                copy.entries.insert(first, TraceEntry { at, lane, event: TraceEvent::Lost { total: overwritten } });
            }
        }
        // The rings are copied one after the other. Without this line, the last rings would contain later events than
        // the first rings.
        copy.entries.retain(|entry| entry.at <= now);
        // The sort is stable, so the entries of one ring with the same time stay in order.
        copy.entries.sort_by_key(|entry| entry.at);
        copy
    }

    /// Returns the processes that have a track in the record.
    pub(crate) fn processes(&self) -> BTreeSet<u64> {
        let process = |entry: &TraceEntry| match entry.event {
            TraceEvent::State { process, .. } | TraceEvent::Step { process } => Some(process),
            _ => None,
        };
        self.entries.iter().filter_map(process).collect()
    }

    /// Converts the copy, and calls `write` with the bytes. `labels` contains the labels of the living processes,
    /// because the events of their spawns may be overwritten.
    ///
    /// # Errors
    /// Returns the first error of `write`.
    pub(crate) fn convert(
        self,
        recorder: &Recorder,
        title: &str,
        labels: BTreeMap<u64, u32>,
        lookup: Box<dyn Lookup>,
        mut write: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<FlightSummary> {
        let alive = |label| Alive { label, state: None, is_mailbox_empty: false };
        let mut processes: BTreeMap<_, _> =
            labels.into_iter().map(|(process, label)| (process, alive(label))).collect();
        for entry in &self.entries {
            // The label of an exited process is known only from the event of its exit.
            if let TraceEvent::Ended { process, label } = entry.event {
                processes.entry(process).or_insert(alive(label));
            }
        }
        let begun = self.entries.first().map_or(self.now, |entry| entry.at);
        let mut timeline = Timeline::new(title, begun, processes, lookup);
        timeline.no_arrows_before(self.complete_since);
        let mut pass_on = |timeline: &mut Timeline| {
            let written = write(timeline.bytes());
            timeline.clear();
            written
        };
        for entries in self.entries.chunks(CHUNK) {
            entries.iter().for_each(|entry| timeline.add(*entry, recorder));
            pass_on(&mut timeline)?;
        }
        timeline.count(self.now);
        timeline.finish(self.now, recorder);
        pass_on(&mut timeline)?;
        let complete = Duration::from_nanos(self.now.saturating_sub(self.complete_since));
        Ok(FlightSummary { events: timeline.events, overwritten: self.overwritten, complete })
    }
}

#[cfg(all(test, feature = "console", not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::observe::trace::Lane;

    #[test]
    fn files_for_consoles_are_written_one_at_a_time_and_their_number_is_bounded() {
        let recorder = Recorder::new(1);
        assert_eq!(recorder.reserve_file(), Err(RecordRefusal::NoRecorder));
        recorder.keep_last_events(FlightRecorder::new().folder("records").max_files(2));
        assert_eq!(recorder.reserve_file(), Ok(1));
        assert_eq!(recorder.reserve_file(), Err(RecordRefusal::Busy));
        recorder.release_file(false);
        assert_eq!(recorder.reserve_file(), Ok(1));
        recorder.release_file(true);
        assert_eq!(recorder.reserve_file(), Ok(2));
        recorder.release_file(true);
        assert_eq!(recorder.reserve_file(), Err(RecordRefusal::MaxFiles));
        recorder.stop_writer();
        assert_eq!(recorder.reserve_file(), Err(RecordRefusal::Ended));
    }

    /// The copying thread may be suspended between the first reading of the clock and the copy.
    #[test]
    fn the_rings_are_copied_again_if_all_records_from_before_the_copy_are_overwritten() {
        let recorder = Recorder::new(1);
        recorder.keep_last_events(FlightRecorder::new().buffer_size(0));
        let ring = recorder.workers[0].get_or_init(|| recorder.new_ring());
        let entry = |at| TraceEntry { at, lane: Lane::Worker(0), event: TraceEvent::Step { process: 7 } };
        let readings = Cell::new(0);
        let now = || {
            readings.set(readings.get() + 1);
            if readings.get() == 1 {
                assert!(ring.has_room(0));
                (0..20_000).for_each(|_| ring.push(entry(2).pack()));
                return 1;
            }
            // During the second copy, the worker writes no further record.
            assert!(!ring.has_room(0));
            3
        };
        let copy = FlightCopy::new(&recorder, now);
        assert_eq!((readings.get(), copy.now, copy.complete_since), (2, 3, 2));
        // The reader does not read the slot that a writer may be writing.
        assert_eq!(copy.entries.len() as u64 - 1, (1 << 14) - 1);
        assert_eq!(copy.entries[0].event, TraceEvent::Lost { total: copy.overwritten });
        assert!(copy.overwritten > 3_000 && ring.has_room(0));
    }

    #[test]
    fn a_record_gets_the_next_number_if_its_file_exists() {
        let flight = Flight::new(FlightRecorder::new().folder("records"));
        let summary = FlightSummary { events: 1, overwritten: 0, complete: Duration::ZERO };
        let written = |used| {
            let tries = Cell::new(0);
            let (path, result) = flight.write_new("1", 2, "panic", |_| {
                tries.set(tries.get() + 1);
                if tries.get() <= used { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(summary) }
            });
            assert_eq!(path, flight.path("1", 1 + tries.get(), "panic"));
            (tries.get(), result.is_ok())
        };
        assert_eq!(
            [written(0), written(3), written(100), written(200)],
            [(1, true), (4, true), (101, true), (101, false)]
        );
        let (path, result) = flight.write_new("1", 2, "panic", |_| Err(io::ErrorKind::NotFound.into()));
        assert_eq!((path, result.is_ok()), (flight.path("1", 2, "panic"), false));
    }
}
