//! A session reads the entries of a trace, and converts them to the bytes of a trace.

use std::collections::BTreeMap;

use crate::observe::trace::Recorder;
use crate::observe::trace::options::Filter;
use crate::observe::trace::reader::EntryReader;
use crate::observe::trace::timeline::{Alive, Lookup, Timeline};

/// Time in ns after which a session without events writes an empty packet. If the receiver of the bytes has
/// disconnected, this write fails, and the trace ends.
const SILENCE: u64 = 1_000_000_000;

/// Converts the entries that a reader returns.
pub(crate) struct Session {
    reader: EntryReader,
    timeline: Timeline,
    /// Time of the last packet.
    written: u64,
}

impl Session {
    /// Begins a session. `alive` contains the processes that existed when the reader began.
    pub(crate) fn new(
        (reader, alive): (EntryReader, BTreeMap<u64, Alive>),
        title: &str,
        now: u64,
        lookup: Box<dyn Lookup>,
    ) -> Self {
        Self { reader, timeline: Timeline::new(title, now, alive, lookup), written: now }
    }

    /// Reads the records since the previous call, and permits further records. Converts only the entries that were
    /// recorded before the previous call, and keeps the newer entries for a later call. `now` is the present time.
    pub(crate) fn collect(&mut self, now: u64) {
        let Self { reader, timeline, .. } = self;
        reader.collect(now, |entry, recorder| timeline.add(entry, recorder));
        self.count(now);
        self.timeline.forget_dead(self.reader.recorder());
        if !self.bytes().is_empty() {
            self.written = now;
        } else if now.saturating_sub(self.written) >= SILENCE {
            self.written = now;
            self.timeline.beat(now);
        }
    }

    /// Returns whether the trace has reached one of its limits.
    pub(crate) fn is_over(&self) -> bool {
        self.reader.is_over()
    }

    /// Writes the values of the counters. A trace of only some processes has no counters, because the counters belong
    /// to the whole runtime.
    fn count(&mut self, now: u64) {
        if !self.reader.is_partial() {
            self.timeline.count(now);
        }
    }

    /// Converts all remaining entries, and ends all slices.
    pub(crate) fn finish(&mut self, now: u64) {
        let Self { reader, timeline, .. } = self;
        reader.finish(|entry, recorder| timeline.add(entry, recorder));
        self.count(now);
        self.timeline.finish(now, self.reader.recorder());
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
        (self.timeline.events, self.timeline.lost + self.reader.lost())
    }

    /// Returns the filter of the session.
    pub(crate) fn filter(&self) -> Filter {
        self.reader.filter()
    }
}

impl Recorder {
    /// Returns the text of a label.
    pub(crate) fn text(&self, label: u32) -> String {
        self.labels.with(|labels| labels.text(label).to_owned())
    }
}
