//! Reads the entries of a trace from the rings of a runtime.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use crate::observe::metrics::Metrics;
use crate::observe::trace::options::{Admission, Filter, FindLabel, Selection, TraceOptions};
use crate::observe::trace::ring::Ring;
use crate::observe::trace::timeline::Alive;
use crate::observe::trace::{CAPACITY, Recorder, TraceEntry, TraceEvent};
use crate::platform::sync::Arc;
use crate::platform::sync::tally::Ordering;

/// Number of records that a thread may write before the reader reads the ring again. Three quarters of the ring stay
/// free. Therefore a turn that begins below this limit does not overwrite records that the reader has not read.
pub(super) const PERMITTED: u64 = CAPACITY as u64 / 4;

/// Number of records per second that a thread may write on average. Without this limit, the thread of a trace needed a
/// fifth of a core for the events of one busy worker. Bursts of `PERMITTED` records are still possible.
const PER_SECOND: u64 = 50_000;

/// Reads the events of a runtime in the order of their times.
///
/// While a reader exists, the threads of the runtime record events. A thread records at most `PER_SECOND` events per
/// second, and bursts of at most `PERMITTED` events. The thread discards the events of all further turns, and counts
/// these turns. With a flight recorder, the thread overwrites its oldest events instead.
pub(crate) struct EntryReader {
    metrics: Arc<Metrics>,
    /// The progress of the reader in each ring.
    cursors: Vec<Cursor>,
    /// Entries that were read but not passed to the caller yet. The reader holds these entries back, because the rings
    /// may still contain entries with an earlier time.
    held: Vec<TraceEntry>,
    /// Time of the last call of `collect`.
    collected: u64,
    selection: Selection,
    find: Box<FindLabel>,
    /// Number of events that were passed to the caller.
    events: u64,
    /// Number of lost events that no entry has reported.
    lost: u64,
}

/// The progress of a reader in one ring.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// Number of the next record.
    next: u64,
    /// Number of discarded events that the reader knows.
    lost: u64,
    /// Number of overwritten records that no entry has reported.
    overwritten: u64,
}

impl EntryReader {
    /// Begins to read. `begin` makes the runtime record events, and returns the existing processes that the filter
    /// selects. `new` also returns these processes. `find` returns the label of a process.
    pub(crate) fn new(
        metrics: &Arc<Metrics>,
        (options, filter): (&TraceOptions, Filter),
        now: u64,
        find: Box<FindLabel>,
        begin: impl FnOnce(&Filter) -> BTreeMap<u64, Alive>,
    ) -> (Self, BTreeMap<u64, Alive>) {
        let recorder = metrics.recorder();
        recorder.changes.with(|()| {
            let cursor = |ring: &Ring| Cursor { next: ring.written(), lost: ring.lost(), overwritten: 0 };
            let cursors = recorder.rings().map(|ring| ring.get().map(cursor).unwrap_or_default()).collect();
            recorder.change_filters(|filters| filters.push(filter.clone()));
            recorder.sessions.fetch_add(1, Ordering::SeqCst);
            let alive = begin(&filter);
            let selection = Selection::new(options, filter, alive.keys().copied().collect());
            recorder.permit(PERMITTED);
            let metrics = Arc::clone(metrics);
            (Self { metrics, cursors, held: Vec::new(), collected: now, selection, find, events: 0, lost: 0 }, alive)
        })
    }

    /// Reads the records since the previous call, and frees their space for further records. Calls `each` for the
    /// entries that were recorded before the previous call. `now` is the present time.
    pub(super) fn collect(&mut self, now: u64, each: impl FnMut(TraceEntry, &Recorder)) {
        self.read();
        let until = mem::replace(&mut self.collected, now);
        let elapsed = Duration::from_nanos(now.saturating_sub(until));
        self.metrics.recorder().permit((elapsed.as_secs_f64() * PER_SECOND as f64) as u64);
        self.pass_on(until, each);
    }

    /// Passes all remaining entries to `each`.
    pub(super) fn finish(&mut self, each: impl FnMut(TraceEntry, &Recorder)) {
        self.read();
        self.pass_on(u64::MAX, each);
        for (ring, cursor) in self.metrics.recorder().rings().zip(&self.cursors) {
            self.lost += ring.get().map_or(0, Ring::lost) - cursor.lost + cursor.overwritten;
        }
        self.lost += self.selection.still_skipped();
    }

    /// Returns whether the trace has reached one of its limits.
    pub(super) fn is_over(&self) -> bool {
        self.selection.is_over(self.events)
    }

    /// Returns whether the trace contains only some processes.
    pub(super) fn is_partial(&self) -> bool {
        self.selection.is_partial()
    }

    /// Returns the number of events that were passed to the caller. `Lost` events are not counted.
    #[cfg(feature = "console")]
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of lost events that no entry has reported.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the filter of the trace.
    pub(crate) fn filter(&self) -> Filter {
        self.selection.filter().clone()
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        self.metrics.recorder()
    }

    fn read(&mut self) {
        let Self { metrics, cursors, held, selection, .. } = self;
        let recorder: &Recorder = metrics.recorder();
        for (ring, cursor) in recorder.rings().zip(cursors) {
            let Some(ring) = ring.get() else { continue };
            let first = held.len();
            let (next, overwritten) = ring.read(cursor.next, |record| {
                let Some(mut entry) = TraceEntry::unpack(record) else { return };
                if let TraceEvent::Lost { total } = &mut entry.event {
                    // A `Lost` record in the ring counts all events that were discarded since the first trace. A `Lost`
                    // entry of this reader counts only the events that were discarded since the previous `Lost` record
                    // of this ring.
                    let known = cursor.lost;
                    cursor.lost = known.max(*total);
                    *total -= known.min(*total);
                    // If `total` is now 0, all events that this record counts were lost before this reader began.
                    if *total == 0 {
                        return;
                    }
                }
                // With a flight recorder, the rings contain the events of all processes. The reader of a trace of one
                // process keeps only the events of this process.
                if selection.may_admit(&entry.event) {
                    selection.find_ended(&entry.event, recorder);
                    held.push(entry);
                }
            });
            cursor.next = next;
            cursor.overwritten += overwritten;
            // If all new records were overwritten, the next entry of this ring reports these records.
            if cursor.overwritten != 0
                && let Some(TraceEntry { at, lane, .. }) = held.get(first).copied()
            {
                let total = mem::take(&mut cursor.overwritten);
                held.insert(first, TraceEntry { at, lane, event: TraceEvent::Lost { total } });
            }
        }
    }

    /// Passes the entries up to the time `until` to `each`.
    fn pass_on(&mut self, until: u64, mut each: impl FnMut(TraceEntry, &Recorder)) {
        // The sort is stable, so the entries of one ring with the same time stay in order.
        self.held.sort_by_key(|entry| entry.at);
        let count = self.held.partition_point(|entry| entry.at <= until);
        let recorder: &Recorder = self.metrics.recorder();
        for entry in self.held.drain(..count) {
            if self.selection.is_over(self.events) {
                return;
            }
            match self.selection.admit(&entry, recorder, &*self.find) {
                Admission::Taken { missing } => {
                    if missing != 0 {
                        each(TraceEntry { event: TraceEvent::Lost { total: missing }, ..entry }, recorder);
                    }
                    self.events += u64::from(!matches!(entry.event, TraceEvent::Lost { .. }));
                    each(entry, recorder);
                }
                Admission::Skipped => {
                    if let TraceEvent::State { process, .. } = entry.event {
                        each(TraceEntry { event: TraceEvent::Skipped { process }, ..entry }, recorder);
                    }
                }
                Admission::Foreign => {}
            }
        }
    }
}

impl Recorder {
    /// Ends one session that has this filter. Then calls `end`. The function `end` updates which processes the runtime
    /// records.
    pub(crate) fn end_session(&self, filter: &Filter, end: impl FnOnce()) {
        self.changes.with(|()| {
            self.change_filters(|filters| {
                if let Some(index) = filters.iter().position(|one| one == filter) {
                    filters.swap_remove(index);
                }
            });
            self.sessions.fetch_sub(1, Ordering::SeqCst);
            if !self.has_traces() {
                self.overflow.with(Vec::clear);
                self.permit(PERMITTED);
            }
            end();
        });
    }
}
