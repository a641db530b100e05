//! A session reads the rings of a runtime, and converts their records to the bytes of a trace.

use std::collections::BTreeMap;

use crate::observe::metrics::Metrics;
use crate::observe::trace::ring::Ring;
use crate::observe::trace::timeline::{Alive, Lookup, Timeline};
use crate::observe::trace::{CAPACITY, Recorder, TraceEntry, TraceEvent};
use crate::platform::sync::Arc;
use crate::platform::sync::tally::Ordering;

/// Number of records that a thread may write between two collections of the session. This limit leaves half of the ring
/// free for the remaining events of a turn that begins below the limit. Therefore these events do not overwrite
/// records.
pub(super) const PERMITTED: u64 = CAPACITY as u64 / 2;

/// Reads the events of a runtime in the order of their times.
///
/// While a session exists, the threads of the runtime record events. Between two calls of [`collect`](Self::collect), a
/// thread that has recorded `PERMITTED` events discards all further turns, and counts the discarded turns.
pub(crate) struct Session {
    metrics: Arc<Metrics>,
    /// The progress of the session in each ring.
    cursors: Vec<Cursor>,
    /// Entries that were read but not converted yet. They must wait, because the rings may still contain entries with
    /// an earlier time.
    held: Vec<TraceEntry>,
    /// Time of the last call of `collect`.
    collected: u64,
    timeline: Timeline,
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
    /// Begins a session. `begin` tells the runtime that events are recorded, and returns the processes that exist now.
    pub(crate) fn new(
        metrics: &Arc<Metrics>,
        title: &str,
        now: u64,
        lookup: Box<dyn Lookup>,
        begin: impl FnOnce() -> BTreeMap<u64, Alive>,
    ) -> Self {
        let recorder = metrics.recorder();
        recorder.changes.with(|()| {
            let cursor = |ring: &Ring| Cursor { next: ring.written(), lost: ring.lost() };
            let cursors = recorder.rings().map(|ring| ring.get().map(cursor).unwrap_or_default()).collect();
            recorder.sessions.fetch_add(1, Ordering::SeqCst);
            let timeline = Timeline::new(title, now, begin(), lookup);
            let session = Self { metrics: Arc::clone(metrics), cursors, held: Vec::new(), collected: now, timeline };
            session.permit();
            session
        })
    }

    /// Permits the threads to record further events.
    fn permit(&self) {
        for ring in self.metrics.recorder().rings().filter_map(|ring| ring.get()) {
            ring.permit(PERMITTED);
        }
    }

    /// Reads the records since the last call, and permits further records. Converts the entries that are older than the
    /// last call. `now` is the present time.
    pub(crate) fn collect(&mut self, now: u64) {
        self.read();
        self.permit();
        let until = std::mem::replace(&mut self.collected, now);
        self.convert(until);
        self.timeline.count(now);
        self.timeline.forget_dead();
    }

    /// Converts all remaining entries, and ends all slices.
    pub(crate) fn finish(&mut self, now: u64) {
        self.read();
        self.convert(u64::MAX);
        for (ring, cursor) in self.metrics.recorder().rings().zip(&self.cursors) {
            self.timeline.lost += ring.get().map_or(0, Ring::lost) - cursor.lost;
        }
        self.timeline.count(now);
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
            self.timeline.lost += overwritten;
        }
    }

    /// Converts the entries up to the time `until`.
    fn convert(&mut self, until: u64) {
        // The sort is stable, so the entries of one ring with the same time stay in order.
        self.held.sort_by_key(|entry| entry.at);
        let count = self.held.partition_point(|entry| entry.at <= until);
        let recorder: &Recorder = self.metrics.recorder();
        for entry in self.held.drain(..count) {
            self.timeline.add(entry, recorder);
        }
    }
}

impl Recorder {
    /// Ends a session. If no other session exists, calls `end`, which tells the runtime that no events are recorded.
    pub(crate) fn end_session(&self, end: impl FnOnce()) {
        self.changes.with(|()| {
            if self.sessions.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.overflow.with(Vec::clear);
                end();
            }
        });
    }

    /// Returns the text of a label.
    pub(super) fn text(&self, label: u32) -> String {
        self.labels.with(|labels| labels.text(label).to_owned())
    }
}
