//! Ring of trace records. One thread at a time writes to a ring, and this thread never waits. Other threads copy the
//! newest records out of the ring.
//!
//! All words of the ring are atomics, so the ring needs no unsafe code. A writer may overwrite a record while a reader
//! copies this record. The reader detects that a record was overwritten in the same way as the reader of a sequence
//! lock.

use crate::platform::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::platform::sync::atomic::{AtomicU64, fence};
use crate::platform::sync::{CachePadded, planted};

/// Number of words of a record.
pub(crate) const WORDS: usize = 4;
/// A record. `TraceEntry::pack` defines the meaning of the words.
pub(crate) type Record = [u64; WORDS];

/// Ring of records with one writer.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[[AtomicU64; WORDS]]>,
    /// The words that only the writer changes. These words are in a separate cache line.
    writer: CachePadded<Writer>,
    /// Limit of the number of written records. When the writer has written this number of records, the writer discards
    /// further events. Only readers change this limit.
    limit: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    /// Number of records that were written.
    written: AtomicU64,
    /// Number of events that were discarded at the limit.
    lost: AtomicU64,
    /// The value of `lost` at the last call of [`Ring::report_lost`].
    reported: AtomicU64,
}

impl Ring {
    /// Creates an empty ring. `capacity` is a power of two.
    pub(crate) fn new(capacity: usize, limit: u64) -> Self {
        debug_assert!(capacity.is_power_of_two());
        let slots = (0..capacity).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        let writer = Writer { written: AtomicU64::new(0), lost: AtomicU64::new(0), reported: AtomicU64::new(0) };
        Self { slots, writer: CachePadded(writer), limit: AtomicU64::new(limit) }
    }

    /// Number of bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Returns whether the writer may write another record. The writer may exceed its limit by `reserve` records.
    #[inline]
    pub(super) fn has_room(&self, reserve: u64) -> bool {
        self.writer.written.load(Relaxed) < self.limit.load(Relaxed).saturating_add(reserve)
    }

    /// Writes a record over the oldest record. The caller is the only writer.
    #[inline]
    pub(crate) fn push(&self, record: Record) {
        let number = self.writer.written.load(Relaxed);
        // Pairs with the acquire fence in `read`. The loop below stores the words of the record. If a reader has copied
        // one of these words, the reader's second load of `written` returns `number` or more. The reader then discards
        // the record that these words overwrite.
        if !planted!("trace_writer_has_no_fence") {
            fence(Release);
        }
        for (cell, word) in self.slot(number).iter().zip(record) {
            cell.store(word, Relaxed);
        }
        // Release pairs with the first load in `read`, so that a reader copies whole records.
        self.writer.written.store(number + 1, Release);
    }

    /// Counts an event that was discarded. The caller is the only writer.
    #[inline]
    pub(super) fn lose(&self) {
        self.writer.lost.store(self.lost() + 1, Relaxed);
    }

    /// Number of events that were discarded at the limit.
    #[inline]
    pub(super) fn lost(&self) -> u64 {
        self.writer.lost.load(Relaxed)
    }

    /// Returns the number of all discarded events, if at least one event was discarded since the last call. Otherwise
    /// returns `None`. The caller is the only writer.
    pub(super) fn report_lost(&self) -> Option<u64> {
        let lost = self.lost();
        let is_new = self.writer.reported.load(Relaxed) != lost;
        self.writer.reported.store(lost, Relaxed);
        is_new.then_some(lost)
    }

    /// Number of records that were written.
    pub(super) fn written(&self) -> u64 {
        self.writer.written.load(Acquire)
    }

    /// Raises the limit by `count`. After the call, the limit permits at most `max_further` further records. The limit
    /// is a token bucket.
    pub(super) fn permit(&self, count: u64, max_further: u64) {
        let written = self.written();
        let limit = self.limit.load(Relaxed).max(written).saturating_add(count);
        self.limit.store(limit.min(written.saturating_add(max_further)), Relaxed);
    }

    /// Sets the limit to 0. The writer then discards further events, until [`permit`](Self::permit) raises the limit.
    pub(super) fn pause(&self) {
        self.limit.store(0, Relaxed);
    }

    /// Calls `each` for each record whose number is at least `from`. Returns the number of the next record, and the
    /// number of records that were overwritten before they were read.
    pub(crate) fn read(&self, from: u64, mut each: impl FnMut(Record)) -> (u64, u64) {
        let end = self.written();
        let begin = from.max(end.saturating_sub(self.slots.len() as u64));
        let copies: Vec<Record> = (begin..end)
            .map(|number| {
                let slot = self.slot(number);
                std::array::from_fn(|word| slot[word].load(Relaxed))
            })
            .collect();
        // Pairs with the fence in `push`.
        if !planted!("trace_reader_has_no_fence") {
            fence(Acquire);
        }
        // The writer may be writing the record with the number `written` now. This record overwrites an older record in
        // the same slot of the ring. Therefore the copy of this older record is not valid either.
        let written = self.writer.written.load(Relaxed) + u64::from(!planted!("trace_reads_torn_record"));
        let valid = written.saturating_sub(self.slots.len() as u64).clamp(begin, end);
        copies.into_iter().skip((valid - begin) as usize).for_each(&mut each);
        (end, valid - from.min(valid))
    }

    #[inline]
    fn slot(&self, number: u64) -> &[AtomicU64; WORDS] {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::sync::thread;

    fn read(ring: &Ring, from: u64) -> (Vec<u64>, u64, u64) {
        let mut records = Vec::new();
        let (next, lost) = ring.read(from, |record| records.push(record[0]));
        (records, next, lost)
    }

    #[test]
    fn a_ring_returns_the_newest_records_and_counts_the_overwritten_records() {
        let ring = Ring::new(4, u64::MAX);
        assert_eq!(read(&ring, 0), (vec![], 0, 0));
        (0..3).for_each(|n| ring.push([n; WORDS]));
        assert_eq!(read(&ring, 0), (vec![0, 1, 2], 3, 0));
        (3..6).for_each(|n| ring.push([n; WORDS]));
        assert_eq!(read(&ring, 3), (vec![3, 4, 5], 6, 0));
        // The slot of record 2 may be written now, so the reader returns only three records.
        assert_eq!(read(&ring, 0), (vec![3, 4, 5], 6, 3));
    }

    #[test]
    fn a_writer_discards_events_beyond_the_limit() {
        let ring = Ring::new(8, 2);
        ring.push([0; WORDS]);
        assert!(ring.has_room(0));
        ring.push([1; WORDS]);
        assert!(!ring.has_room(0) && ring.has_room(1));
        assert_eq!(ring.report_lost(), None);
        ring.lose();
        assert_eq!((ring.lost(), ring.report_lost(), ring.report_lost()), (1, Some(1), None));
        ring.permit(3, 8);
        assert!(ring.has_room(0));
    }

    #[test]
    fn the_limit_is_a_token_bucket() {
        let ring = Ring::new(16, 4);
        let room = || {
            let mut count = 0;
            while ring.has_room(0) {
                ring.push([0; WORDS]);
                count += 1;
            }
            count
        };
        assert_eq!(room(), 4);
        ring.permit(1, 4);
        assert_eq!(room(), 1);
        (0..3).for_each(|_| ring.permit(1, 4));
        assert_eq!(room(), 3);
        (0..9).for_each(|_| ring.permit(1, 4));
        assert_eq!(room(), 4);
        // A call of `permit` permits `count` further records, even if the writer has exceeded the previous limit.
        ring.push([0; WORDS]);
        ring.permit(2, 4);
        assert_eq!(room(), 2);
        // An infinite limit becomes finite again.
        ring.permit(u64::MAX, u64::MAX);
        assert!(ring.has_room(0));
        ring.permit(1, 4);
        assert_eq!(room(), 4);
    }

    /// A reader that runs concurrently with the writer never returns a mixture of two records. Each record is either
    /// returned once, in order, or counted as overwritten.
    #[test]
    fn a_concurrent_reader_returns_only_whole_records() {
        const COUNT: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let ring = Ring::new(8, u64::MAX);
        thread::scope(|s| {
            s.spawn(|| (0..COUNT).for_each(|n| ring.push([n, n * 3, !n, n ^ 0x5555])));
            let (mut next, mut returned, mut overwritten) = (0, 0, 0);
            while next < COUNT {
                let mut expected = None;
                let (then, lost) = ring.read(next, |record| {
                    let n = record[0];
                    assert_eq!(record, [n, n * 3, !n, n ^ 0x5555]);
                    assert!(expected.is_none_or(|expected| expected == n) && n >= next);
                    expected = Some(n + 1);
                    returned += 1;
                });
                assert!(expected.is_none_or(|expected| expected == then));
                (next, overwritten) = (then, overwritten + lost);
            }
            assert_eq!(returned + overwritten, COUNT);
        });
    }
}
