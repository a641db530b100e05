//! A session reads the rings of a runtime, and converts their records to the bytes of a trace.

use std::collections::BTreeMap;

use crate::observe::metrics::Metrics;
use crate::observe::trace::options::{Admission, Filter, Selection, TraceOptions};
use crate::observe::trace::ring::Ring;
use crate::observe::trace::timeline::{Alive, Lookup, Timeline};
use crate::observe::trace::{CAPACITY, Recorder, TraceEntry, TraceEvent};
use crate::platform::sync::Arc;
use crate::platform::sync::tally::Ordering;

/// Number of records that a thread may write until the session collects the next time. Three quarters of the ring stay
/// free, so that the events of a turn that was begun below this limit do not overwrite records.
pub(super) const PERMITTED: u64 = CAPACITY as u64 / 4;

/// Number of records by which each collection raises the limit of a thread, up to `PERMITTED`. A collection takes place
/// about 100 times per second. Therefore a thread that is always busy records about 50,000 events per second, and the
/// session needs less than a twentieth of one core for its events. A thread with pauses records bursts of `PERMITTED` events.
pub(super) const REFILL: u64 = PERMITTED / 8;

/// Time in ns after which a session without events writes an empty packet. Therefore the trace notices that its reader
/// has disconnected.
const SILENCE: u64 = 1_000_000_000;

/// Reads the events of a runtime in the order of their times.
///
/// While a session exists, the threads of the runtime record events. Between two calls of [`collect`](Self::collect), a
/// thread records at most `PERMITTED` events. It discards all further turns, and counts them. With a flight recorder,
/// the thread overwrites its oldest events instead.
pub(crate) struct Session {
    metrics: Arc<Metrics>,
    /// The progress of the session in each ring.
    cursors: Vec<Cursor>,
    /// Entries that were read but not converted yet. They must wait, because the rings may still contain entries with
    /// an earlier time.
    held: Vec<TraceEntry>,
    /// Time of the last call of `collect`.
    collected: u64,
    /// Time of the last packet.
    written: u64,
    timeline: Timeline,
    selection: Selection,
}

/// The progress of a session in one ring.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    /// Number of the next record.
    next: u64,
    /// Number of discarded events that the session knows.
    lost: u64,
}

impl Session {
    /// Begins a session. `begin` tells the runtime that events are recorded, and returns the processes that exist now
    /// and that the filter selects.
    pub(crate) fn new(
        metrics: &Arc<Metrics>,
        (options, filter): (&TraceOptions, Filter),
        title: &str,
        now: u64,
        lookup: Box<dyn Lookup>,
        begin: impl FnOnce(&Filter) -> BTreeMap<u64, Alive>,
    ) -> Self {
        let recorder = metrics.recorder();
        recorder.changes.with(|()| {
            let cursor = |ring: &Ring| Cursor { next: ring.written(), lost: ring.lost() };
            let cursors = recorder.rings().map(|ring| ring.get().map(cursor).unwrap_or_default()).collect();
            recorder.change_filters(|filters| filters.push(filter.clone()));
            recorder.sessions.fetch_add(1, Ordering::SeqCst);
            let alive = begin(&filter);
            let selection = Selection::new(options, filter, alive.keys().copied().collect());
            let timeline = Timeline::new(title, now, alive, lookup);
            recorder.permit(PERMITTED);
            Self {
                metrics: Arc::clone(metrics),
                cursors,
                held: Vec::new(),
                collected: now,
                written: now,
                timeline,
                selection,
            }
        })
    }

    /// Reads the records since the last call, and permits further records. Converts the entries that are older than the
    /// last call. `now` is the present time.
    pub(crate) fn collect(&mut self, now: u64) {
        self.read();
        self.metrics.recorder().permit(REFILL);
        let until = std::mem::replace(&mut self.collected, now);
        self.convert(until);
        self.count(now);
        self.timeline.forget_dead();
        if !self.bytes().is_empty() {
            self.written = now;
        } else if now.saturating_sub(self.written) >= SILENCE {
            self.written = now;
            self.timeline.beat(now);
        }
    }

    /// Returns whether the trace has reached one of its limits.
    pub(crate) fn is_over(&self) -> bool {
        self.selection.is_over(self.timeline.events)
    }

    /// Writes the values of the counters, which belong to the whole runtime.
    fn count(&mut self, now: u64) {
        if !self.selection.is_partial() {
            self.timeline.count(now);
        }
    }

    /// Converts all remaining entries, and ends all slices.
    pub(crate) fn finish(&mut self, now: u64) {
        self.read();
        self.convert(u64::MAX);
        for (ring, cursor) in self.metrics.recorder().rings().zip(&self.cursors) {
            self.timeline.lost += ring.get().map_or(0, Ring::lost) - cursor.lost;
        }
        self.timeline.lost += self.selection.still_skipped();
        self.count(now);
        self.timeline.finish(now, self.metrics.recorder());
    }

    /// Returns the bytes since the last call of [`clear`](Self::clear).
    pub(crate) fn bytes(&self) -> &[u8] {
        self.timeline.bytes()
    }

    pub(crate) fn clear(&mut self) {
        self.timeline.clear();
    }

    /// Returns the number of events that were converted, and the number of events that were lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.timeline.events, self.timeline.lost)
    }

    fn read(&mut self) {
        let recorder = self.metrics.recorder();
        for (ring, cursor) in recorder.rings().zip(&mut self.cursors) {
            let Some(ring) = ring.get() else { continue };
            let first = self.held.len();
            let (next, overwritten) = ring.read(cursor.next, |record| {
                let Some(mut entry) = TraceEntry::unpack(record) else { return };
                if let TraceEvent::Lost { total } = &mut entry.event {
                    // In a record, the number counts from the first trace. In an entry, the number counts from the last
                    // such event of this ring.
                    let known = std::mem::replace(&mut cursor.lost, *total);
                    *total -= known.min(*total);
                }
                self.held.push(entry);
            });
            cursor.next = next;
            match self.held.get(first).copied() {
                Some(TraceEntry { at, lane, .. }) if overwritten != 0 => {
                    self.held.insert(first, TraceEntry { at, lane, event: TraceEvent::Lost { total: overwritten } });
                }
                _ => self.timeline.lost += overwritten,
            }
        }
    }

    /// Converts the entries up to the time `until`.
    fn convert(&mut self, until: u64) {
        // The sort is stable, so the entries of one ring with the same time stay in order.
        self.held.sort_by_key(|entry| entry.at);
        let count = self.held.partition_point(|entry| entry.at <= until);
        let recorder: &Recorder = self.metrics.recorder();
        for entry in self.held.drain(..count) {
            if self.selection.is_over(self.timeline.events) {
                return;
            }
            match self.selection.admit(&entry, recorder) {
                Admission::Taken { missing } => {
                    if missing != 0 {
                        let event = TraceEvent::Lost { total: missing };
                        self.timeline.add(TraceEntry { event, ..entry }, recorder);
                    }
                    self.timeline.add(entry, recorder);
                }
                Admission::Foreign | Admission::Skipped => {}
            }
        }
    }

    /// Returns the filter of the session.
    pub(crate) fn filter(&self) -> Filter {
        self.selection.filter().clone()
    }
}

impl Recorder {
    /// Ends a session with this filter. Then calls `end`, which tells the runtime which processes are still recorded.
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

    /// Returns the text of a label.
    pub(super) fn text(&self, label: u32) -> String {
        self.labels.with(|labels| labels.text(label).to_owned())
    }
}
