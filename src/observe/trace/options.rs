//! Options of a trace: the processes that the trace contains, and the limits of the trace.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::observe::states::{ProcessState, WorkerState};
use crate::observe::trace::{Lane, Recorder, TraceEntry, TraceEvent};
use crate::process::pid::Pid;

/// Length in ns of one period of the rate limit.
const SECOND: u64 = 1_000_000_000;
/// Maximum size of [`Selection::others`].
const OTHERS: usize = 1 << 16;
/// Maximum size of [`Selection::shown`].
const SHOWN: usize = 1 << 16;

/// Options of an execution trace: see [`Host::start_trace_with`](crate::Host::start_trace_with). By default, a trace
/// contains all processes, and its only limits are the limits of the workers.
///
/// ```
/// # use procession::{Context, Runtime};
/// # use procession::observe::TraceOptions;
/// let rt = Runtime::new()?;
/// let process = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
/// let options = TraceOptions::new().process(process.pid()).max_events(10_000).max_rate(1_000);
/// let trace = rt.start_trace_with(options, Vec::new())?;
/// process.send(7)?;
/// rt.block_on(process)?;
/// assert!(trace.finish()?.events > 0);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "the options have no effect until they are passed to `Host::start_trace_with`"]
pub struct TraceOptions {
    process: Option<Pid>,
    type_text: Option<Cow<'static, str>>,
    max_events: Option<u64>,
    max_rate: Option<u64>,
}

impl TraceOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts the trace to one process. The trace ends when the process exits. If the process has already exited,
    /// the trace ends immediately.
    pub fn process(mut self, pid: Pid) -> Self {
        self.process = Some(pid);
        self
    }

    /// Restricts the trace to the processes whose type name contains this text. The type name is the name that
    /// [`ProcessInfo::type_name`](crate::observe::ProcessInfo::type_name) contains.
    pub fn type_contains(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.type_text = Some(text.into());
        self
    }

    /// Sets the maximum number of events. Default: no limit. The trace ends after this number of events.
    pub fn max_events(mut self, count: u64) -> Self {
        self.max_events = Some(count);
        self
    }

    /// Sets the maximum number of events per second. Default: no limit. When the limit is reached, the trace skips
    /// turns until the next second begins. A turn that begins below the limit is recorded as a whole. Therefore, a
    /// second may contain a few more events than the maximum.
    /// [`TraceSummary::lost`](crate::observe::TraceSummary::lost) counts the skipped events.
    pub fn max_rate(mut self, events_per_second: u64) -> Self {
        self.max_rate = Some(events_per_second);
        self
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        self.process
    }

    /// Returns the selection of the processes. If the options contain a pid, `process` is the number of the process
    /// with this pid.
    pub(crate) fn filter(&self, process: Option<u64>) -> Filter {
        Filter { process, type_text: self.type_text.clone() }
    }
}

/// Selection of the processes of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Filter {
    process: Option<u64>,
    type_text: Option<Cow<'static, str>>,
}

impl Filter {
    /// Returns whether the filter selects all processes.
    pub(crate) fn is_empty(&self) -> bool {
        self.process.is_none() && self.type_text.is_none()
    }

    /// Returns whether the filter selects only the process with this number.
    pub(super) fn selects_only(&self, process: u64) -> bool {
        self.process == Some(process)
    }

    /// Returns whether the filter selects a process with this number and type.
    pub(crate) fn selects(&self, process: u64, type_name: &str) -> bool {
        self.process.is_none_or(|only| only == process)
            && self.type_text.as_ref().is_none_or(|text| type_name.contains(text.as_ref()))
    }
}

/// Decision whether a trace contains an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The trace contains the entry. `missing` is the number of missing events of the same lane before this entry.
    Taken { missing: u64 },
    /// The entry belongs to no process of the trace.
    Foreign,
    /// The entry is skipped, because the trace has reached its maximum rate.
    Skipped,
}

/// Function that returns the label of a process. Returns `None` if the process does not exist.
pub(crate) type FindLabel = dyn Fn(u64) -> Option<u32> + Send;

/// The processes that are known to belong to a trace, and the state of the limits of the trace.
#[derive(Debug)]
pub(super) struct Selection {
    filter: Filter,
    max_events: u64,
    max_rate: u64,
    /// The selected processes that were alive at the beginning of the trace or were spawned later. The set is used only
    /// if the filter is not empty.
    processes: BTreeSet<u64>,
    /// Processes that the filter does not select. A process whose spawn event was discarded is looked up at its next
    /// event.
    others: BTreeSet<u64>,
    /// Time of the last entry, in whole seconds, and the number of entries that were taken in this second.
    second: (u64, u64),
    /// State of each lane. Empty if the rate is not limited.
    lanes: BTreeMap<u16, LaneLimit>,
    /// Processes whose states the trace shows. Empty if the rate is not limited. The trace never skips the end of a
    /// process in this set.
    shown: BTreeSet<u64>,
    /// True if the trace contains only one process, and this process has exited.
    is_over: bool,
}

/// State of the rate limit on one lane.
#[derive(Debug, Clone, Copy, Default)]
struct LaneLimit {
    /// The selected process whose turn runs on the lane.
    turn: Option<u64>,
    /// Whether the events of the lane are skipped.
    skips: bool,
    /// Number of skipped events that no entry has reported.
    missing: u64,
}

impl Selection {
    pub(super) fn new(options: &TraceOptions, filter: Filter, processes: BTreeSet<u64>) -> Self {
        Self {
            is_over: filter.process.is_some() && processes.is_empty(),
            filter,
            max_events: options.max_events.unwrap_or(u64::MAX),
            max_rate: options.max_rate.unwrap_or(u64::MAX),
            processes,
            others: BTreeSet::new(),
            second: (0, 0),
            lanes: BTreeMap::new(),
            shown: BTreeSet::new(),
        }
    }

    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns whether the trace contains only some processes.
    pub(super) fn is_partial(&self) -> bool {
        !self.filter.is_empty()
    }

    /// Returns whether a trace with this number of events has reached its end.
    pub(super) fn is_over(&self, events: u64) -> bool {
        self.is_over || events >= self.max_events
    }

    /// Returns whether the trace contains this entry. The caller passes the entries in the order of their times. `find`
    /// returns the label of a process that exists.
    pub(super) fn admit(&mut self, entry: &TraceEntry, recorder: &Recorder, find: &FindLabel) -> Admission {
        if self.is_partial() && !self.selects(entry, recorder, find) {
            Admission::Foreign
        } else if self.max_rate == u64::MAX {
            Admission::Taken { missing: 0 }
        } else {
            self.limit(entry)
        }
    }

    /// Returns whether the entry belongs to a selected process.
    fn selects(&mut self, entry: &TraceEntry, recorder: &Recorder, find: &FindLabel) -> bool {
        match entry.event {
            TraceEvent::Created { process, label, .. } => self.add(process, Some(label), recorder),
            TraceEvent::Ended { process, .. } => {
                self.others.remove(&process);
                let selects = self.processes.remove(&process);
                self.is_over |= selects && self.filter.process.is_some();
                selects
            }
            TraceEvent::Worker { state, .. } => state == WorkerState::Blocked,
            TraceEvent::Lost { .. } => true,
            _ => entry.event.process().is_some_and(|process| self.knows(process, recorder, find)),
        }
    }

    fn has_selected_type(&self, process: u64, label: u32, recorder: &Recorder) -> bool {
        recorder.with_type(label, |type_name| self.filter.selects(process, type_name))
    }

    /// Adds a process to the set of the selected processes or to the set of the other processes. `label` is the label
    /// of the process, or `None` if the process does not exist. Returns whether the filter selects the process.
    fn add(&mut self, process: u64, label: Option<u32>, recorder: &Recorder) -> bool {
        let selects = label.is_some_and(|label| self.has_selected_type(process, label, recorder));
        if selects {
            self.processes.insert(process);
        } else {
            // The events of an exit may be lost, so the set could grow without end.
            if self.others.len() >= OTHERS {
                self.others.clear();
            }
            self.others.insert(process);
        }
        selects
    }

    /// Returns whether the filter selects a process. If the process is not known, its spawn was discarded.
    fn knows(&mut self, process: u64, recorder: &Recorder, find: &FindLabel) -> bool {
        if self.processes.contains(&process) {
            return true;
        }
        // A filter without a type selects one process, which is known from the beginning of the trace.
        let is_new = self.filter.type_text.is_some() && !self.others.contains(&process);
        is_new && self.add(process, find(process), recorder)
    }

    /// If the event is the exit of a process that the filter selects, adds the process. The selection decides only
    /// later whether the trace contains the entries from before the exit. At that time, the process no longer exists,
    /// so a lookup does not find the process.
    pub(super) fn find_ended(&mut self, event: &TraceEvent, recorder: &Recorder) {
        if let TraceEvent::Ended { process, label } = *event
            && self.is_partial()
            && self.has_selected_type(process, label, recorder)
        {
            self.others.remove(&process);
            self.processes.insert(process);
        }
    }

    /// Returns false if the event belongs to a process that the filter can never select.
    pub(super) fn may_admit(&self, event: &TraceEvent) -> bool {
        match (self.filter.process, event.process()) {
            (Some(only), Some(process)) => only == process,
            _ => true,
        }
    }

    /// Number of skipped events that no later entry has reported.
    pub(super) fn still_skipped(&self) -> u64 {
        self.lanes.values().map(|lane| lane.missing).sum()
    }

    /// Applies the limit of the rate. A turn is either taken or skipped as a whole, so that its slices nest. Some
    /// events belong to no turn of a selected process. Examples are messages of other processes, messages of threads
    /// that run no process, and spawns by futures on a worker. Each event that belongs to no turn of a selected process
    /// is taken or skipped individually.
    fn limit(&mut self, entry: &TraceEntry) -> Admission {
        let second = entry.at / SECOND;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        let has_room = self.second.1 < self.max_rate;
        let is_partial = self.is_partial();
        let lane = self.lanes.entry(entry.lane.number()).or_default();
        let begins_turn = matches!(entry.event, TraceEvent::State { to: ProcessState::Running, .. });
        if begins_turn {
            lane.turn = entry.event.process();
        }
        let is_single =
            is_partial || matches!(entry.lane, Lane::Outside(_)) || matches!(entry.event, TraceEvent::Created { .. });
        if begins_turn || (is_single && lane.turn.is_none()) {
            lane.skips = !has_room;
        }
        let mut is_end = false;
        match entry.event {
            TraceEvent::State { process, to, .. } => {
                is_end = to == ProcessState::Complete && self.shown.contains(&process);
                if !begins_turn && lane.turn == Some(process) {
                    lane.turn = None;
                }
            }
            TraceEvent::Ended { process, .. } => is_end = self.shown.remove(&process),
            // The lost events may contain the end of the turn.
            TraceEvent::Lost { .. } => lane.turn = None,
            _ => {}
        }
        if lane.skips && !is_end {
            // A `Lost` entry reports `total` lost events. Any other entry is one event.
            lane.missing += if let TraceEvent::Lost { total } = entry.event { total } else { 1 };
            return Admission::Skipped;
        }
        if let TraceEvent::State { process, .. } | TraceEvent::Created { process, .. } = entry.event {
            // The events of an exit may be lost. Without this limit, the set could grow without end.
            if self.shown.len() >= SHOWN {
                self.shown.clear();
            }
            self.shown.insert(process);
        }
        self.second.1 += 1;
        Admission::Taken { missing: if lane.skips { 0 } else { std::mem::take(&mut lane.missing) } }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;

    fn entry(at: u64, lane: u16, event: TraceEvent) -> TraceEntry {
        TraceEntry { at, lane: Lane::Worker(lane), event }
    }

    fn begins(process: u64) -> TraceEvent {
        TraceEvent::State { process, to: ProcessState::Running, detail: true }
    }

    #[test]
    fn the_limit_of_the_rate_skips_whole_turns() {
        let recorder = Recorder::new(1);
        let options = TraceOptions::new().max_rate(2);
        let mut selection = Selection::new(&options, Filter::default(), BTreeSet::new());
        let mut admit = |at, lane, event| selection.admit(&entry(at, lane, event), &recorder, &|_| None);
        let taken = Admission::Taken { missing: 0 };
        assert_eq!(admit(0, 0, begins(1)), taken);
        assert_eq!(admit(1, 0, TraceEvent::Received { process: 1 }), taken);
        // The turn began below the limit, so the turn is recorded as a whole.
        assert_eq!(admit(2, 0, TraceEvent::Received { process: 1 }), taken);
        assert_eq!(admit(3, 0, begins(2)), Admission::Skipped);
        assert_eq!(admit(4, 1, begins(3)), Admission::Skipped);
        // The next second begins in the middle of a skipped turn.
        assert_eq!(admit(SECOND, 0, TraceEvent::Received { process: 2 }), Admission::Skipped);
        assert_eq!(admit(SECOND, 0, begins(1)), Admission::Taken { missing: 2 });
        assert_eq!(admit(SECOND, 1, begins(3)), Admission::Taken { missing: 1 });
        assert_eq!(admit(SECOND, 1, begins(3)), Admission::Skipped);
    }

    #[test]
    fn a_skipped_entry_of_lost_events_counts_all_its_events() {
        let recorder = Recorder::new(1);
        let options = TraceOptions::new().max_rate(1);
        let mut selection = Selection::new(&options, Filter::default(), BTreeSet::new());
        let mut admit = |at, event| selection.admit(&entry(at, 0, event), &recorder, &|_| None);
        assert_eq!(admit(0, begins(1)), Admission::Taken { missing: 0 });
        assert_eq!(admit(1, begins(2)), Admission::Skipped);
        assert_eq!(admit(2, TraceEvent::Lost { total: 100 }), Admission::Skipped);
        assert_eq!(selection.still_skipped(), 101);
    }

    #[test]
    fn a_turn_on_a_thread_outside_the_slots_is_recorded_as_a_whole() {
        let recorder = Recorder::new(1);
        let options = TraceOptions::new().max_rate(1);
        let mut selection = Selection::new(&options, Filter::default(), BTreeSet::new());
        let mut admit = |at, event| {
            let entry = TraceEntry { at, lane: Lane::Outside(0), event };
            selection.admit(&entry, &recorder, &|_| None)
        };
        let (taken, sent) = (Admission::Taken { missing: 0 }, TraceEvent::Sent { to: 2, from: 1 });
        let blocked = |process| TraceEvent::State { process, to: ProcessState::Blocked, detail: false };
        assert_eq!([admit(0, begins(1)), admit(1, sent), admit(2, blocked(1))], [taken; 3]);
        assert_eq!([admit(3, begins(1)), admit(4, blocked(1))], [Admission::Skipped; 2]);
        // The next second begins in the middle of a skipped turn.
        assert_eq!([admit(5, begins(2)), admit(SECOND, sent), admit(SECOND, blocked(2))], [Admission::Skipped; 3]);
        // The thread now runs no process.
        assert_eq!(admit(SECOND, sent), Admission::Taken { missing: 5 });
        assert_eq!(admit(SECOND, sent), Admission::Skipped);
    }

    #[test]
    fn a_spawn_in_a_turn_is_taken_or_skipped_with_its_turn() {
        let recorder = Recorder::new(1);
        let options = TraceOptions::new().max_rate(1);
        let mut selection = Selection::new(&options, Filter::default(), BTreeSet::new());
        let mut admit = |at, event| selection.admit(&entry(at, 0, event), &recorder, &|_| None);
        let created = |process| TraceEvent::Created { process, parent: 1, label: 0 };
        let (taken, received) = (Admission::Taken { missing: 0 }, TraceEvent::Received { process: 1 });
        let blocked = TraceEvent::State { process: 1, to: ProcessState::Blocked, detail: false };
        assert_eq!([admit(0, begins(1)), admit(1, created(2)), admit(2, received), admit(3, blocked)], [taken; 4]);
        assert_eq!(admit(4, begins(1)), Admission::Skipped);
        // The next second begins in the middle of a skipped turn.
        let rest = [created(3), received, blocked].map(|event| admit(SECOND, event));
        assert_eq!(rest, [Admission::Skipped; 3]);
        // The limit also applies to spawns outside the turns.
        assert_eq!(admit(SECOND, created(4)), Admission::Taken { missing: 4 });
        assert_eq!(admit(SECOND, created(5)), Admission::Skipped);
    }

    /// Returns a selection of the processes 1 and 2 with this maximum rate.
    fn partial(max_rate: u64) -> Selection {
        let options = TraceOptions::new().type_contains("Cache").max_rate(max_rate);
        Selection::new(&options, options.filter(None), BTreeSet::from([1, 2]))
    }

    #[test]
    fn a_lane_continues_after_a_skipped_turn_if_other_processes_run_on_it() {
        let (recorder, mut selection) = (Recorder::new(1), partial(2));
        let mut admit = |at, event| selection.admit(&entry(at, 0, event), &recorder, &|_| None);
        let taken = Admission::Taken { missing: 0 };
        let ready = TraceEvent::State { process: 1, to: ProcessState::Ready, detail: false };
        let sent = TraceEvent::Sent { to: 2, from: 3 };
        assert_eq!([admit(0, begins(1)), admit(1, ready)], [taken; 2]);
        assert_eq!([admit(2, begins(1)), admit(3, ready), admit(4, sent)], [Admission::Skipped; 3]);
        // Only the process 3 runs on the lane. The process 3 does not belong to the trace, so no turn begins.
        assert_eq!(admit(SECOND, begins(3)), Admission::Foreign);
        assert_eq!(admit(SECOND, sent), Admission::Taken { missing: 3 });
        assert_eq!(admit(SECOND, sent), taken);
        assert_eq!(admit(SECOND, sent), Admission::Skipped, "the rate also limits the messages of other processes");
    }

    #[test]
    fn the_end_of_a_process_is_never_skipped() {
        let (recorder, mut selection) = (Recorder::new(1), partial(1));
        let mut admit = |at, event| selection.admit(&entry(at, 0, event), &recorder, &|_| None);
        let taken = Admission::Taken { missing: 0 };
        let complete = |process| TraceEvent::State { process, to: ProcessState::Complete, detail: false };
        assert_eq!(admit(0, TraceEvent::State { process: 1, to: ProcessState::Ready, detail: false }), taken);
        assert_eq!(admit(1, begins(1)), Admission::Skipped);
        assert_eq!(admit(2, complete(1)), taken);
        assert_eq!(admit(3, TraceEvent::Ended { process: 1, label: 0 }), taken);
        // The trace shows no event of the process 2.
        assert_eq!(admit(4, begins(2)), Admission::Skipped);
        assert_eq!(admit(5, complete(2)), Admission::Skipped);
        assert_eq!(admit(6, TraceEvent::Ended { process: 2, label: 0 }), Admission::Skipped);
        assert_eq!((selection.still_skipped(), selection.shown.len()), (4, 0));
    }

    #[test]
    fn a_filter_selects_by_number_and_by_a_part_of_the_type() {
        let options = TraceOptions::new().type_contains("Cache");
        assert!(options.filter(None).selects(1, "app::Cache") && !options.filter(None).selects(1, "app::Store"));
        assert!(options.filter(Some(1)).selects(1, "app::Cache") && !options.filter(Some(2)).selects(1, "app::Cache"));
        assert!(Filter::default().is_empty() && !options.filter(None).is_empty());
    }
}
