//! Execution trace. This file defines the events of a trace, and the recorder to which the threads of a runtime write.
//! A [`session`] converts the events to the format of Perfetto. A console reads the events without conversion.
//!
//! Each worker writes its events to a separate ring, without a lock and without I/O. All other threads share a few
//! rings, each with a lock. A reader copies the records out of the rings: see [`reader`]. If a worker produces events
//! faster than its limit, the worker discards the events of whole turns, and counts the discarded turns. Therefore a
//! trace neither stops a worker nor needs unbounded memory. With a flight recorder, a worker records events without a
//! limit. When the buffer of a worker is full, the worker overwrites the oldest events in the buffer: see [`flight`].
//!
//! The events of a process are recorded only while its flag `OBSERVED` is set. A runtime sets this flag only for a
//! trace, a flight recorder or an observer, for the log of last messages, or for a suspended process. In each turn, the
//! worker tests this flag together with the flag for a kill. Therefore a turn without a trace has no additional cost.
//! While a recorded turn runs, a mark is set on the thread that runs the turn. The code for messages and commands tests
//! this mark.

pub(crate) mod flight;
pub(crate) mod handle;
#[cfg(feature = "console")]
pub(crate) mod live;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod packets;
pub(crate) mod proto;
pub(crate) mod reader;
pub(crate) mod ring;
pub(crate) mod session;
pub(crate) mod timeline;

use std::cell::Cell;
use std::fmt;

use crate::observe::metrics::Metrics;
use crate::observe::states::{ProcessState, WorkerState};
use crate::observe::trace::flight::Flight;
use crate::observe::trace::names::Names;
use crate::observe::trace::options::Filter;
use crate::observe::trace::ring::{Record, Ring};
use crate::platform::clock::Instant;
use crate::platform::sync::tally::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::platform::sync::{CachePadded, OnceLock, TallyLock, thread_local};
use crate::process::state::skipped_turn::{SkipPeriod, SkippedTurn};

/// Default number of records in a ring. One record has 32 bytes.
const CAPACITY: usize = 1 << 14;
/// Number of rings that the threads outside the worker slots share.
const SHARED_RINGS: usize = 4;
/// Number of events by which a worker may exceed its limit in a turn. Therefore a turn that begins below the limit is
/// usually recorded as a whole.
const IN_TURN: u64 = 256;
/// After a turn, a worker may exceed its limit by this number of events to record wake-ups.
const AFTER_TURN: u64 = 2 * IN_TURN;

/// An event of a trace. The number `process` stands for a pid, without the parts that all pids of the runtime share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TraceEvent {
    /// The process entered this state. For `Running`, `detail` is true if the turn begins with a step. For `Idle`,
    /// `detail` is true if the process has received all its messages and waits for the next message. For all other
    /// states, `detail` is false.
    State { process: u64, to: ProcessState, detail: bool },
    /// The running process begins its first step, or another step of its turn.
    Step { process: u64 },
    /// The process was spawned. `parent` is the process that spawned the new process (0: outside any process). `label`
    /// is the number of the label of the process.
    Created { process: u64, parent: u64, label: u32 },
    /// The process has exited.
    Ended { process: u64, label: u32 },
    /// The worker in this slot entered this state.
    Worker { slot: u32, state: WorkerState },
    /// The worker stole tasks from this slot.
    Stolen { victim: u32 },
    /// The process has used up its budget, and moves to the back of the queue.
    Preempted { process: u64 },
    /// A mailbox of the process `to` accepted a message. `from` is the process that sent the message (0: outside any
    /// process).
    Sent { to: u64, from: u64 },
    /// The process received a message.
    Received { process: u64 },
    /// Messages of this process were dropped, reordered, or put back into the mailbox. From this event on, the trace
    /// does not know the order of the messages.
    Reordered { process: u64 },
    /// The process yielded a command.
    Yielded { process: u64, tag: u64 },
    /// The command of the process was answered.
    Completed { process: u64, tag: u64 },
    /// The thread had reached its limit, and has discarded whole turns and other events. `total` is the number of the
    /// discarded turns and events since the first trace of the runtime.
    Lost { total: u64 },
    /// The reader has skipped a change of the process's state, because the trace has reached its maximum rate.
    Skipped { process: u64 },
}

impl TraceEvent {
    /// Returns the number of the process that the event belongs to.
    fn process(&self) -> Option<u64> {
        match *self {
            Self::Sent { to, .. } => Some(to),
            Self::State { process, .. }
            | Self::Step { process }
            | Self::Created { process, .. }
            | Self::Ended { process, .. }
            | Self::Preempted { process }
            | Self::Received { process }
            | Self::Reordered { process }
            | Self::Yielded { process, .. }
            | Self::Completed { process, .. }
            | Self::Skipped { process } => Some(process),
            Self::Worker { .. } | Self::Stolen { .. } | Self::Lost { .. } => None,
        }
    }
}

/// An event, its time in ns on the clock of the runtime, and the thread that recorded the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceEntry {
    pub(crate) at: u64,
    pub(crate) lane: Lane,
    pub(crate) event: TraceEvent,
}

/// Thread that recorded an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// The worker in this slot.
    Worker(u16),
    /// A thread outside the slots, by its number. All further threads share the largest number.
    Outside(u16),
}

/// First lane number of the threads outside the slots.
const FIRST_OUTSIDE: u16 = 1 << 8;

impl Lane {
    fn number(self) -> u16 {
        match self {
            Self::Worker(slot) => slot,
            Self::Outside(thread) => FIRST_OUTSIDE.saturating_add(thread),
        }
    }

    fn of(number: u16) -> Self {
        number.checked_sub(FIRST_OUTSIDE).map_or(Self::Worker(number), Self::Outside)
    }
}

const WORKER_STATES: [WorkerState; 4] =
    [WorkerState::Running, WorkerState::Searching, WorkerState::Parked, WorkerState::Blocked];

impl TraceEntry {
    /// Packs the entry. The second word contains the kind (8 bits), a small number (8 bits), the lane (16 bits) and a
    /// label (32 bits). The meaning of the last two words depends on the kind.
    fn pack(self) -> Record {
        let (kind, small, label, one, two) = match self.event {
            TraceEvent::State { process, to, detail } => (0, to as u8 | u8::from(detail) << 7, 0, process, 0),
            TraceEvent::Step { process } => (1, 0, 0, process, 0),
            TraceEvent::Created { process, parent, label } => (2, 0, label, process, parent),
            TraceEvent::Ended { process, label } => (3, 0, label, process, 0),
            TraceEvent::Worker { slot, state } => (4, state as u8, 0, u64::from(slot), 0),
            TraceEvent::Stolen { victim } => (5, 0, 0, u64::from(victim), 0),
            TraceEvent::Preempted { process } => (6, 0, 0, process, 0),
            TraceEvent::Lost { total } => (7, 0, 0, total, 0),
            TraceEvent::Sent { to, from } => (8, 0, 0, to, from),
            TraceEvent::Received { process } => (9, 0, 0, process, 0),
            TraceEvent::Reordered { process } => (10, 0, 0, process, 0),
            TraceEvent::Yielded { process, tag } => (11, 0, 0, process, tag),
            TraceEvent::Completed { process, tag } => (12, 0, 0, process, tag),
            TraceEvent::Skipped { process } => (13, 0, 0, process, 0),
        };
        let lane = u64::from(self.lane.number());
        [self.at, kind | u64::from(small) << 8 | lane << 16 | u64::from(label) << 32, one, two]
    }

    /// Returns the entry that was packed into this record. Returns `None` for a record that `pack` never returns.
    fn unpack([at, word, one, two]: Record) -> Option<Self> {
        let (small, label) = ((word >> 8) as u8, (word >> 32) as u32);
        let event = match word as u8 {
            0 => {
                let to = ProcessState::from_u8(small & 0x7f)?;
                TraceEvent::State { process: one, to, detail: small & 0x80 != 0 }
            }
            1 => TraceEvent::Step { process: one },
            2 => TraceEvent::Created { process: one, parent: two, label },
            3 => TraceEvent::Ended { process: one, label },
            4 => TraceEvent::Worker { slot: one as u32, state: *WORKER_STATES.get(usize::from(small))? },
            5 => TraceEvent::Stolen { victim: one as u32 },
            6 => TraceEvent::Preempted { process: one },
            7 => TraceEvent::Lost { total: one },
            8 => TraceEvent::Sent { to: one, from: two },
            9 => TraceEvent::Received { process: one },
            10 => TraceEvent::Reordered { process: one },
            11 => TraceEvent::Yielded { process: one, tag: two },
            12 => TraceEvent::Completed { process: one, tag: two },
            13 => TraceEvent::Skipped { process: one },
            _ => return None,
        };
        Some(Self { at, lane: Lane::of((word >> 16) as u16), event })
    }
}

/// Returns the number of the calling thread. The threads that record events outside the worker slots are numbered
/// consecutively.
fn thread_number() -> u16 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(u32::MAX) };
    }
    let number = NUMBER.try_with(|number| {
        if number.get() == u32::MAX {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    });
    // A thread that is exiting may have dropped its number. A thread that has dropped its number uses the largest
    // number.
    number.ok().and_then(|number| u16::try_from(number).ok()).unwrap_or(u16::MAX)
}

/// The rings of a runtime, and the labels of its processes. Each ring is allocated when its first event is recorded.
pub(crate) struct Recorder {
    /// Number of sessions that read the rings. A flight recorder counts as a session. Events are recorded only while
    /// this number is not 0.
    sessions: AtomicUsize,
    /// One ring for each worker slot. Only the thread in the slot writes to the ring. In a simulation, the worker slots
    /// have no rings. All threads of a simulation write to the first shared ring, so that events with the same virtual
    /// time stay in order.
    workers: Box<[OnceLock<Ring>]>,
    /// Rings that all other threads share. A thread holds the lock of a ring while it writes to the ring.
    shared: Box<[(TallyLock<()>, OnceLock<Ring>)]>,
    labels: TallyLock<Names>,
    /// The filter of each trace that runs.
    filters: TallyLock<Vec<Filter>>,
    /// Whether only the events of some processes are recorded.
    is_partial: AtomicBool,
    /// Until this period ends, a worker may discard turns without a complete check.
    period: CachePadded<SkipPeriod>,
    /// Whether the closure that was passed to [`paused`](Self::paused) runs. During this time, a call of `permit` has
    /// no effect.
    is_paused: AtomicBool,
    /// A thread holds this lock while it begins or ends a session. Therefore the flags of the processes agree with
    /// `sessions`.
    changes: TallyLock<()>,
    /// Functions that make room in the rings. Only a simulation has functions that make room, one function for each
    /// trace.
    overflow: TallyLock<Vec<Overflow>>,
    /// The flight recorder, if the runtime has one.
    flight: OnceLock<Flight>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// Function that makes room in the rings.
type Overflow = Box<dyn FnMut() + Send>;

impl Recorder {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            sessions: AtomicUsize::new(0),
            workers: (0..slots).map(|_| OnceLock::new()).collect(),
            shared: (0..SHARED_RINGS).map(|_| (TallyLock::new(()), OnceLock::new())).collect(),
            labels: TallyLock::new(Names::new()),
            filters: TallyLock::new(Vec::new()),
            is_partial: AtomicBool::new(false),
            period: CachePadded(SkipPeriod::new()),
            is_paused: AtomicBool::new(false),
            changes: TallyLock::new(()),
            overflow: TallyLock::new(Vec::new()),
            flight: OnceLock::new(),
        }
    }

    /// Returns whether at least one session reads the events.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // `Host::begin_reader` explains why this load is SeqCst.
        self.sessions.load(Ordering::SeqCst) != 0
    }

    /// Returns the number that identifies the label of a process. The label consists of the name of the process, the
    /// type of the process's code, and the entry point of the process.
    pub(crate) fn label(&self, name: Option<&str>, type_name: &'static str, entry: &str) -> u32 {
        self.labels.with(|labels| labels.number(name, type_name, entry))
    }

    /// Calls `f` with the type name of a label.
    fn with_type<R>(&self, label: u32, f: impl FnOnce(&str) -> R) -> R {
        self.labels.with(|labels| f(labels.type_name(label)))
    }

    /// Returns whether the events of a process with this number and type are recorded.
    pub(crate) fn selects(&self, process: u64, type_name: &str) -> bool {
        let selects = |filters: &mut Vec<Filter>| filters.iter().any(|filter| filter.selects(process, type_name));
        self.flight.get().is_some() || self.filters.with(selects)
    }

    /// Returns whether the exit of the process with this number ends a trace.
    pub(crate) fn ends_with(&self, process: u64) -> bool {
        self.filters.with(|filters| filters.iter().any(|filter| filter.selects_only(process)))
    }

    /// Returns whether only the events of some processes are recorded.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial.load(Ordering::Relaxed)
    }

    /// Calls `f`, which changes the list of the filters, and then updates `is_partial`.
    fn change_filters(&self, f: impl FnOnce(&mut Vec<Filter>)) {
        self.filters.with(|filters| {
            f(filters);
            let is_partial = self.flight.get().is_none() && filters.iter().all(|filter| !filter.is_empty());
            self.is_partial.store(is_partial, Ordering::Relaxed);
        });
        self.period.end();
    }

    /// The period in which a worker may discard turns without a complete check.
    #[inline]
    pub(crate) fn period(&self) -> &SkipPeriod {
        &self.period
    }

    /// Counts the turn that begins now as discarded, if the period of `skipped` is the present period. The caller is in
    /// the slot of `skipped`. The result is false if the period has ended. In this case, the caller does the [complete
    /// check](Metrics::discards_turn).
    #[inline]
    pub(crate) fn discards_again(&self, skipped: SkippedTurn) -> bool {
        let is_present = self.period.is(skipped.period);
        if let Some(ring) = self.workers.get(skipped.slot).filter(|_| is_present).and_then(OnceLock::get) {
            ring.lose();
            return true;
        }
        false
    }

    /// Adds a function that makes room in the rings when a limit is reached. Without a function that makes room, events
    /// are discarded at the limit. When the last trace ends, the functions are removed.
    pub(crate) fn on_overflow(&self, f: impl FnMut() + Send + 'static) {
        self.overflow.with(|all| all.push(Box::new(f)));
    }

    #[cold]
    fn make_room(&self) {
        // The functions call the user's writer, which is user code. Therefore no lock is held during these calls.
        let mut all = self.overflow.with(std::mem::take);
        all.iter_mut().for_each(|f| f());
        if self.has_traces() {
            self.overflow.with(|now| now.append(&mut all));
        }
    }

    /// Returns whether a trace runs.
    fn has_traces(&self) -> bool {
        self.trace_count() != 0
    }

    /// Returns the number of traces that run.
    pub(crate) fn trace_count(&self) -> usize {
        self.sessions.load(Ordering::SeqCst).saturating_sub(usize::from(self.flight.get().is_some()))
    }

    /// Returns whether a thread overwrites the oldest records of its ring when the ring is full. The events of a trace
    /// of a simulation are never overwritten.
    fn overwrites(&self) -> bool {
        self.flight.get().is_some() && !(self.workers.is_empty() && self.has_traces())
    }

    /// Creates a ring.
    fn new_ring(&self) -> Ring {
        let capacity = self.flight.get().map_or(CAPACITY, Flight::records);
        Ring::new(capacity, if self.overwrites() { u64::MAX } else { reader::PERMITTED })
    }

    /// Permits each thread to record `count` further events, as [`Ring::permit`] describes. The threads of a simulation
    /// always get the largest limit, because a simulation discards no event.
    fn permit(&self, count: u64) {
        if self.is_paused.load(Ordering::SeqCst) {
            return;
        }
        let (count, max_further) = match (self.overwrites(), self.workers.is_empty()) {
            (true, _) => (u64::MAX, u64::MAX),
            (false, true) => (reader::PERMITTED, reader::PERMITTED),
            (false, false) => (count, reader::PERMITTED),
        };
        self.rings().filter_map(OnceLock::get).for_each(|ring| ring.permit(count, max_further));
        self.period.end();
    }

    /// Calls `f` while the threads discard their events. A mark in the rings shows the number of discarded events. The
    /// runtime must have a flight recorder.
    fn paused<R>(&self, f: impl FnOnce() -> R) -> R {
        self.changes.with(|()| {
            self.is_paused.store(true, Ordering::SeqCst);
            self.rings().filter_map(OnceLock::get).for_each(Ring::pause);
            let result = f();
            self.is_paused.store(false, Ordering::SeqCst);
            self.permit(reader::PERMITTED);
            result
        })
    }

    /// Counts the flight recorder as a session.
    fn begin_flight(&self, flight: Flight) {
        self.changes.with(|()| {
            if self.flight.set(flight).is_ok() {
                self.change_filters(|_| ());
                self.sessions.fetch_add(1, Ordering::SeqCst);
                self.permit(reader::PERMITTED);
            }
        });
    }

    /// Calls `f` while no session begins or ends.
    pub(crate) fn between_sessions(&self, f: impl FnOnce()) {
        self.changes.with(|()| f());
    }

    /// Memory of the rings and the labels, in bytes. A ring stays allocated after the end of its trace.
    pub(crate) fn bytes(&self) -> usize {
        let places = size_of_val(&*self.workers) + size_of_val(&*self.shared);
        let rings: usize = self.rings().filter_map(OnceLock::get).map(Ring::bytes).sum();
        places + rings + self.labels.with(|labels| labels.bytes())
    }

    /// All rings.
    fn rings(&self) -> impl Iterator<Item = &OnceLock<Ring>> {
        self.workers.iter().chain(self.shared.iter().map(|(_, ring)| ring))
    }
}

/// Kind of an event. The kind decides when the event may be discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The first event of a turn. If the limit is reached, this event and all other events of the turn are discarded.
    FirstOfTurn,
    /// An event that occurs during a recorded turn. The event is discarded only if the writer has already written
    /// `IN_TURN` records beyond its limit. The caller may hold a lock.
    InTurn,
    /// A wake-up. The event is discarded only if the writer has already written `AFTER_TURN` records beyond its limit.
    Wake,
    /// An event of a recorded turn: the beginning of a step, the change to the state `Blocked`, `Idle` or `Complete`,
    /// or the exit of a process. An exit that ends a trace also has this kind. The event is never discarded.
    NeverDiscarded,
}

impl Metrics {
    /// Checks whether the turn that begins now is discarded, because the worker on this thread has reached its limit
    /// and `may_discard` returns true. In this case, counts the turn as discarded. If the result is `None`, the turn
    /// may still not be recorded, for example because no session exists.
    #[inline]
    pub(crate) fn discards_turn(&self, may_discard: impl FnOnce() -> bool) -> Option<SkippedTurn> {
        let (recorder, slot) = (self.recorder(), self.worker()?);
        let ring = recorder.workers.get(slot)?.get()?;
        // The number is read before the conditions are checked: see `skipped_turn.rs`.
        let period = recorder.period.number();
        if !may_discard() || ring.has_room(EventKind::FirstOfTurn.reserve()) || !recorder.is_on() {
            return None;
        }
        ring.lose();
        Some(SkippedTurn { period, slot })
    }

    /// Records an event if a session exists and the limit of this thread permits the event. Returns whether the event
    /// was recorded. `event` returns the event and `at` returns the time. Both functions are called only if the event
    /// is recorded.
    #[cold]
    pub(crate) fn record(
        &self,
        kind: EventKind,
        event: impl FnOnce() -> TraceEvent,
        at: impl FnOnce() -> Instant,
    ) -> bool {
        let recorder = self.recorder();
        if !recorder.is_on() {
            return false;
        }
        if let Some(slot) = self.worker()
            && let Some(place) = recorder.workers.get(slot)
        {
            let ring = place.get_or_init(|| recorder.new_ring());
            return ring.write(kind.reserve(), Lane::Worker(slot as u16), kind, event, at);
        }
        self.record_in_shared_ring(kind, event, at)
    }

    /// Records an event of a thread outside the slots, or of a simulation.
    fn record_in_shared_ring(
        &self,
        kind: EventKind,
        event: impl FnOnce() -> TraceEvent,
        at: impl FnOnce() -> Instant,
    ) -> bool {
        let (recorder, is_simulated) = (self.recorder(), self.recorder().workers.is_empty());
        let (lane, index) = match self.worker() {
            Some(slot) => (Lane::Worker(slot as u16), 0),
            None if is_simulated => (Lane::Outside(thread_number()), 0),
            None => (Lane::Outside(thread_number()), usize::from(thread_number()) % SHARED_RINGS),
        };
        let (lock, place) = &recorder.shared[index];
        let ring = place.get_or_init(|| recorder.new_ring());
        // In a simulation, `make_room` calls the user's writer. Therefore `make_room` is not called for events that may
        // be recorded under a lock. A simulation never discards an event that may be recorded under a lock.
        let reserve = if is_simulated && kind == EventKind::InTurn { u64::MAX } else { kind.reserve() };
        if is_simulated && !ring.has_room(reserve) {
            recorder.make_room();
        }
        lock.with(|()| ring.write(reserve, lane, kind, event, at))
    }
}

impl Ring {
    /// Writes an event if the ring has room. Returns whether the event was written. The caller is the only writer.
    #[inline]
    fn write(
        &self,
        reserve: u64,
        lane: Lane,
        kind: EventKind,
        event: impl FnOnce() -> TraceEvent,
        at: impl FnOnce() -> Instant,
    ) -> bool {
        if !self.has_room(reserve) {
            self.lose();
            return false;
        }
        let at = at().ns();
        if kind == EventKind::FirstOfTurn
            && let Some(total) = self.report_lost()
        {
            self.push(TraceEntry { at, lane, event: TraceEvent::Lost { total } }.pack());
        }
        self.push(TraceEntry { at, lane, event: event() }.pack());
        true
    }
}

impl EventKind {
    /// Number of records that the writer may write beyond its limit.
    fn reserve(self) -> u64 {
        match self {
            Self::FirstOfTurn => 0,
            Self::InTurn => IN_TURN,
            Self::Wake => AFTER_TURN,
            Self::NeverDiscarded => u64::MAX,
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::sync::Arc;
    use crate::process::state::current::Current;

    #[test]
    fn a_packed_entry_is_unpacked_without_loss() {
        let (process, parent) = (0xdead_beef_0000_0007, 0xffff_ffff_1234_5678);
        let states = [ProcessState::Ready, ProcessState::Running, ProcessState::Complete, ProcessState::Suspended];
        let events = states
            .into_iter()
            .flat_map(|to| [true, false].map(|detail| TraceEvent::State { process, to, detail }))
            .chain(WORKER_STATES.into_iter().map(|state| TraceEvent::Worker { slot: 47, state }))
            .chain([
                TraceEvent::Step { process },
                TraceEvent::Created { process, parent, label: u32::MAX },
                TraceEvent::Ended { process, label: 3 },
                TraceEvent::Stolen { victim: 5 },
                TraceEvent::Preempted { process },
                TraceEvent::Lost { total: u64::MAX },
                TraceEvent::Sent { to: process, from: parent },
                TraceEvent::Received { process },
                TraceEvent::Reordered { process },
                TraceEvent::Yielded { process, tag: u64::MAX },
                TraceEvent::Completed { process, tag: 1 << 63 },
                TraceEvent::Skipped { process },
            ]);
        for event in events {
            for lane in [Lane::Worker(0), Lane::Worker(47), Lane::Outside(0), Lane::Outside(9_000)] {
                let entry = TraceEntry { at: u64::MAX - 1, lane, event };
                assert_eq!(TraceEntry::unpack(entry.pack()), Some(entry));
            }
        }
        assert_eq!(TraceEntry::unpack([0, 200, 0, 0]), None);
    }

    /// A thread counts a discarded turn in the ring of its present slot, although it was in another slot before.
    #[test]
    fn the_last_skipped_turn_belongs_to_the_present_slot() {
        let metrics = Arc::new(Metrics::new(2));
        let recorder = metrics.recorder();
        recorder.sessions.fetch_add(1, Ordering::SeqCst);
        let rings = [0, 1].map(|slot| recorder.workers[slot].get_or_init(|| Ring::new(1, 0)));
        let discards_again = || Current::with(|current| recorder.discards_again(current.last_skipped()));
        let begin = || {
            assert!(!discards_again());
            let skipped = metrics.discards_turn(|| true).expect("the ring has no room");
            Current::with(|current| current.replace_last_skipped(skipped));
            assert!(discards_again());
        };
        let outer = metrics.enter(0);
        begin();
        let inner = metrics.enter(1);
        begin();
        drop(inner);
        assert!(discards_again());
        drop(outer);
        assert!(!discards_again());
        assert_eq!(rings.map(Ring::lost), [3, 2]);
    }

    #[test]
    fn the_numbers_of_worker_states_are_their_positions() {
        assert!(WORKER_STATES.iter().enumerate().all(|(number, state)| *state as usize == number));
    }
}
