//! The handle of a trace, and the thread that writes the trace.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use crate::observe::trace::session::Session;
use crate::platform::clock::Clock;
use crate::platform::sync::{Arc, Condvar, Mutex, this_thread, thread, wait_within};
use crate::process::catch::{catch, drop_caught};

/// Time between two collections of the events.
const INTERVAL: Duration = Duration::from_millis(10);

/// Number of events in a finished trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSummary {
    /// Number of events that the trace contains.
    pub events: u64,
    /// Number of turns and other events that are missing from the trace. If a worker skipped a whole turn, the turn
    /// counts as one event. An event is missing for one of these reasons:
    /// - A worker reached its limit.
    /// - The trace reached its [maximum rate](crate::observe::TraceOptions::max_rate).
    /// - In a runtime with a [flight recorder](crate::Builder::flight_recorder), the thread of the trace read the event
    ///   too late: newer events had already overwritten this event.
    pub lost: u64,
}

/// A running execution trace: see [`Host::start_trace`](crate::Host::start_trace).
///
/// Dropping the handle ends the trace and ignores the errors of the writer. [`finish`](Self::finish) also ends the
/// trace, and returns the first error.
#[must_use = "dropping the handle ends the trace"]
pub struct Trace {
    shared: Arc<HandleState>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("has_ended", &self.has_ended()).finish_non_exhaustive()
    }
}

/// State that the handle shares with the thread that writes the trace. A simulation has no separate thread that writes
/// the trace.
struct HandleState {
    state: Mutex<State>,
    /// Notified when the state changes.
    changed: Condvar,
    clock: Clock,
}

struct State {
    /// `None` while the thread uses the collector, and after the end of the trace.
    collector: Option<Collector>,
    has_thread: bool,
    stop: bool,
    /// Number of the thread that uses the collector. Only this thread calls the writer. `None` if no thread uses the
    /// collector.
    writes: Option<usize>,
    /// The result of the trace, after its end.
    result: Option<io::Result<TraceSummary>>,
    has_ended: bool,
}

/// Collects the events of a session, and passes their bytes to the writer of the trace.
pub(crate) struct Collector {
    session: Session,
    writer: Box<dyn Write + Send>,
    /// Stops the recording of events.
    end: Box<dyn FnOnce() + Send>,
}

impl Collector {
    pub(crate) fn new(session: Session, writer: Box<dyn Write + Send>, end: Box<dyn FnOnce() + Send>) -> Self {
        Self { session, writer, end }
    }

    /// Collects and writes the events.
    fn collect(&mut self, clock: &Clock) -> io::Result<()> {
        self.session.collect(clock.now().ns());
        self.write()
    }

    /// Writes the remaining events, and ends the recording. `written` is the result of the last call of
    /// [`collect`](Self::collect).
    fn finish(mut self, written: io::Result<()>, clock: &Clock) -> io::Result<TraceSummary> {
        let written = written.and_then(|()| {
            self.session.finish(clock.now().ns());
            self.write()?;
            guarded(|| self.writer.flush())
        });
        let Self { session, writer, end } = self;
        end();
        let _ = drop_caught(writer);
        let (events, lost) = session.counts();
        written.map(|()| TraceSummary { events, lost })
    }

    fn write(&mut self) -> io::Result<()> {
        let Self { session, writer, .. } = self;
        let written = guarded(|| writer.write_all(session.bytes()));
        session.clear();
        written
    }
}

/// Calls user code. A panic becomes an error.
fn guarded(f: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch(f).unwrap_or_else(|panic| Err(io::Error::other(panic.as_str().to_owned())))
}

impl Trace {
    /// Starts a thread that writes the events.
    ///
    /// # Errors
    /// Returns the error of the system if the thread cannot be started.
    pub(crate) fn with_thread(collector: Collector, clock: Clock) -> io::Result<Self> {
        let trace = Self::new(collector, clock, true);
        let shared = Arc::clone(&trace.shared);
        let started = thread::Builder::new().name("procession-trace".into()).spawn(move || shared.run());
        if let Err(error) = started {
            trace.shared.state.lock().has_thread = false;
            return Err(error);
        }
        Ok(trace)
    }

    /// Creates a trace without a thread. The returned function writes the events. The recorder calls this function when
    /// a ring has no room.
    pub(crate) fn without_thread(collector: Collector, clock: Clock) -> (Self, impl FnMut() + Send + 'static) {
        let trace = Self::new(collector, clock, false);
        let shared = Arc::clone(&trace.shared);
        (trace, move || shared.collect_here())
    }

    fn new(collector: Collector, clock: Clock, has_thread: bool) -> Self {
        let state =
            State { collector: Some(collector), has_thread, stop: false, writes: None, result: None, has_ended: false };
        Self { shared: Arc::new(HandleState { state: Mutex::new(state), changed: Condvar::new(), clock }) }
    }

    /// Returns whether the trace has ended. A trace ends before [`finish`](Self::finish) if the writer of the trace has
    /// failed, or if the trace has reached a limit of its [options](crate::observe::TraceOptions).
    pub fn has_ended(&self) -> bool {
        self.shared.state.lock().has_ended
    }

    /// Ends the trace and writes its remaining events. This call blocks the thread until the writer has written the
    /// events.
    ///
    /// # Errors
    /// Returns the first error of the writer. After this error, the trace contains no further events. If the writer of
    /// the trace calls this method itself, the method does not block, and returns an error of the kind `WouldBlock`.
    /// The trace then ends after the writer has returned.
    pub fn finish(self) -> io::Result<TraceSummary> {
        self.shared.end()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        drop(self.shared.end());
    }
}

impl HandleState {
    /// Main function of the thread.
    fn run(&self) {
        let mut state = self.state.lock();
        let Some(mut collector) = state.collector.take() else { return };
        let mut written = Ok(());
        while !state.stop && written.is_ok() && !collector.session.is_over() {
            (state, _) = wait_within(&self.changed, state, INTERVAL);
            state.writes = Some(this_thread());
            drop(state);
            written = collector.collect(&self.clock);
            state = self.state.lock();
        }
        state.writes = Some(this_thread());
        drop(state);
        self.set_result(collector.finish(written, &self.clock));
    }

    /// Collects the events on this thread. Ends the trace if the writer fails, or if the trace has reached a limit.
    fn collect_here(&self) {
        let mut state = self.state.lock();
        let Some(mut collector) = state.collector.take() else { return };
        state.writes = Some(this_thread());
        drop(state);
        let written = collector.collect(&self.clock);
        let mut state = self.state.lock();
        // If another thread has called `end` during the collection, that thread waits until this thread has ended the
        // trace.
        if written.is_ok() && !collector.session.is_over() && !state.stop {
            state.collector = Some(collector);
            state.writes = None;
            return;
        }
        drop(state);
        self.set_result(collector.finish(written, &self.clock));
    }

    fn set_result(&self, result: io::Result<TraceSummary>) {
        let mut state = self.state.lock();
        (state.result, state.has_ended, state.writes) = (Some(result), true, None);
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the trace. Returns the result of the trace, or an error if an earlier call has already returned the result.
    fn end(&self) -> io::Result<TraceSummary> {
        let mut state = self.state.lock();
        state.stop = true;
        if !state.has_thread
            && let Some(collector) = state.collector.take()
        {
            state.writes = Some(this_thread());
            drop(state);
            self.set_result(collector.finish(Ok(()), &self.clock));
            state = self.state.lock();
        }
        self.changed.notify_all();
        if state.writes == Some(this_thread()) {
            // The writer of the trace has called this function, so the trace ends after the writer has returned.
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the writer of a trace cannot wait for its end"));
        }
        while !state.has_ended {
            (state, _) = wait_within(&self.changed, state, Duration::from_secs(3600));
        }
        state.result.take().unwrap_or_else(|| Err(io::Error::other("the trace has ended")))
    }
}
