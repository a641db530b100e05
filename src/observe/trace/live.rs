//! The live trace of a process. A live trace has no thread and no writer. The owner of the trace takes the events out
//! of a bounded buffer.

use std::collections::VecDeque;
use std::fmt;

use crate::observe::trace::reader::EntryReader;
use crate::observe::trace::{TraceEntry, TraceEvent};

/// Maximum number of events that the owner has not taken. An event has 40 bytes.
pub(crate) const MAX_UNREAD: usize = 4_096;

/// Function that stops the recording.
type Stop = Box<dyn FnOnce() + Send>;

/// A live trace. The drop ends the trace.
pub(crate) struct LiveTrace {
    reader: EntryReader,
    unread: Unread,
    /// `None` after the end of the trace.
    stop: Option<Stop>,
}

impl fmt::Debug for LiveTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTrace").field("unread", &self.unread.entries.len()).finish_non_exhaustive()
    }
}

impl LiveTrace {
    /// Creates a live trace. The function `stop` ends the recording of events.
    pub(crate) fn new(reader: EntryReader, stop: Stop) -> Self {
        Self { reader, unread: Unread::default(), stop: Some(stop) }
    }

    /// Reads the new records of the rings. Adds to the buffer the events that were recorded before the previous call.
    /// `now` is the present time in ns. Between two calls, a worker records at most 4,096 events.
    pub(crate) fn collect(&mut self, now: u64) {
        let Self { reader, unread, .. } = self;
        reader.collect(now, |entry, _| unread.push(entry));
    }

    /// Returns whether the trace has reached its maximum number of events, or the process has exited.
    pub(crate) fn is_over(&self) -> bool {
        self.reader.is_over()
    }

    /// Collects the remaining events, and stops the recording. A second call has no effect.
    pub(crate) fn finish(&mut self) {
        if let Some(stop) = self.stop.take() {
            let Self { reader, unread, .. } = self;
            reader.finish(|entry, _| unread.push(entry));
            stop();
        }
    }

    /// Takes the oldest events, at most `limit`.
    pub(crate) fn take(&mut self, limit: usize) -> impl Iterator<Item = TraceEntry> {
        let entries = &mut self.unread.entries;
        entries.drain(..limit.min(entries.len()))
    }

    /// Returns the number of events that can be taken.
    pub(crate) fn unread(&self) -> usize {
        self.unread.entries.len()
    }

    /// Returns the number of events of the trace, including the events that were discarded because the buffer was full.
    /// Also returns the number of lost events.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.reader.events(), self.unread.lost + self.reader.lost())
    }
}

impl Drop for LiveTrace {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

/// The events that the owner has not taken.
#[derive(Debug, Default)]
struct Unread {
    entries: VecDeque<TraceEntry>,
    /// Number of events that were discarded after the last entry, because the buffer was full.
    discarded: u64,
    /// Number of all lost events.
    lost: u64,
}

impl Unread {
    fn push(&mut self, entry: TraceEntry) {
        if let TraceEvent::Skipped { .. } = entry.event {
            // A later entry `Lost` reports the number of skipped events.
            return;
        }
        // Number of lost events that this entry reports. These events never reached this buffer.
        let known = if let TraceEvent::Lost { total } = entry.event { total } else { 0 };
        self.lost += known;
        // One place stays free for the entry that reports the number of discarded events.
        if self.entries.len() + 1 >= MAX_UNREAD {
            let new = u64::from(known == 0);
            self.lost += new;
            self.discarded += known + new;
            return;
        }
        if self.discarded != 0 {
            let event = TraceEvent::Lost { total: std::mem::take(&mut self.discarded) };
            self.entries.push_back(TraceEntry { event, ..entry });
        }
        self.entries.push_back(entry);
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::observe::trace::Lane;

    fn entry(at: u64, event: TraceEvent) -> TraceEntry {
        TraceEntry { at, lane: Lane::Worker(0), event }
    }

    #[test]
    fn a_full_buffer_discards_and_counts_the_newest_events() {
        let received = TraceEvent::Received { process: 1 };
        let mut unread = Unread::default();
        (0..5_000).for_each(|at| unread.push(entry(at, received)));
        unread.push(entry(5_000, TraceEvent::Lost { total: 7 }));
        assert_eq!(unread.entries.len(), MAX_UNREAD - 1);
        assert_eq!((unread.discarded, unread.lost), (912, 912));
        unread.entries.drain(..2);
        unread.push(entry(6_000, received));
        let last: Vec<_> = unread.entries.iter().rev().take(3).copied().collect();
        let lost = entry(6_000, TraceEvent::Lost { total: 912 });
        assert_eq!(last, [entry(6_000, received), lost, entry(4_094, received)]);
        assert_eq!((unread.entries.len(), unread.lost), (MAX_UNREAD - 1, 912));
        assert!(size_of::<TraceEntry>() <= 40);
    }
}
