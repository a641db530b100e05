//! Records of the operations that a process waits for. An operation with a record is a call, a send to a full mailbox,
//! a wait for a closure on the blocking pool, or a wait for another process. A wait for another process ends at the
//! start or at the exit of the other process. The records are for inspection only. No other code reads the records.
//!
//! Most processes wait for at most two operations that have a record. The [place](WaitRecord) of the first record is in
//! the control block of the process. The place of the second record is in the boxed part of the control block. Only the
//! thread that runs the process writes these two places. This thread needs no lock and no read-modify-write operation.
//! All [other records](MoreWaits) are in a table under a lock. If another thread removes one of the first two records,
//! this thread adds a negative count to the table, and does not write the place.
//!
//! The first place is not in the boxed part. Therefore, a process that only makes calls has no boxed part, and each
//! turn of the process accesses about three fewer cache lines.
//!
//! Three kinds of operation have no record, because a record for each such operation would cost more:
//!
//! - A sleep. The timer of the sleep contains the source line and the deadline, and the inspection reads the timers.
//! - The wait for a message. The control block contains the source line of the latest receive operation.
//! - A wait for a join handle. A record of a wait for a join handle made a spawn with a join 6 % more expensive.
//!   Instead, the process that must exit stores which process has polled the join handle: see
//!   [`Joiner`](crate::process::state::Joiner).

use std::collections::BTreeMap;
use std::panic::Location;

use crate::host::control::steps::StepBatches;
use crate::platform::static_ref::{AtomicStaticRef, Line};
use crate::platform::sync::tally::{AtomicU32, AtomicU64, Ordering, fence};
use crate::process::pid::Pid;

/// Kind of an operation that a process waits for. The low bits of [`WaitRecord::word`] contain the value of the kind.
/// The value 0 means that no record exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum WaitKind {
    /// A call without a time limit.
    Call = 1,
    /// A call with a time limit.
    LimitedCall,
    /// A send that waits for free space in a mailbox, without a time limit.
    Room,
    /// A send that waits for free space in a mailbox, with a time limit.
    LimitedRoom,
    Exit,
    Start,
    /// A wait for a closure on the blocking pool. A wait for a closure is not a wait for another process.
    Blocking,
}

const KINDS: [WaitKind; 7] = [
    WaitKind::Call,
    WaitKind::LimitedCall,
    WaitKind::Room,
    WaitKind::LimitedRoom,
    WaitKind::Exit,
    WaitKind::Start,
    WaitKind::Blocking,
];

/// Record of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) kind: WaitKind,
    /// [Word](Pid::word) of the other process's pid. The value is 0 if the other process is not known.
    pub(crate) process: u64,
    pub(crate) line: Line,
}

impl Wait {
    /// A wait for a closure on the blocking pool.
    pub(crate) fn blocking(line: &'static Location<'static>) -> Self {
        Self { kind: WaitKind::Blocking, process: 0, line: Some(line) }
    }

    #[inline]
    pub(crate) fn call(callee: u64, is_limited: bool, line: Line) -> Self {
        let kind = if is_limited { WaitKind::LimitedCall } else { WaitKind::Call };
        Self { kind, process: callee, line }
    }

    /// Returns whether the operation is a call. Among the operations that have a record, `Head::wait_for` counts only
    /// calls.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.kind, WaitKind::Call | WaitKind::LimitedCall)
    }

    /// Returns whether the operation has a time limit of its own.
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self.kind, WaitKind::LimitedCall | WaitKind::LimitedRoom)
    }

    /// Creates the record of an operation that waits for another process.
    #[inline]
    pub(crate) fn on(kind: WaitKind, process: Pid, line: Line) -> Self {
        Self { kind, process: process.word(), line }
    }
}

/// Number of bits that the kind of the wait occupies in [`WaitRecord::word`].
const KIND_BITS: u32 = 4;
const KIND: u32 = (1 << KIND_BITS) - 1;

/// Place for one record.
///
/// Only the thread that runs the process writes the place. The place is a sequence lock (Boehm, "Can Seqlocks Get Along
/// With Programming Language Memory Models?", MSPC 2012). A reader on another thread reads the word, then the two other
/// fields, and then the word again. In Boehm's sequence lock, the sequence number is odd during a write. Here, the
/// writer first removes the previous record, and then stores a new record with a new word.
///
/// Under a model checker, the fields are still standard atomics. No decision of the runtime depends on the fields.
#[derive(Debug)]
pub(crate) struct WaitRecord {
    process: AtomicU64,
    line: AtomicStaticRef<Location<'static>>,
    /// The low bits contain the kind of the record. The high bits contain the number of records so far.
    word: AtomicU32,
    /// Number of complete batches of steps of the process. The field does not belong to the record. The field is in
    /// this type, because the padding of this type has room for the field. A process has two places for records. Only
    /// the place of the first record uses the field `step_batches`.
    pub(super) step_batches: StepBatches,
}

/// Identifies one record that [`WaitRecord::begin`] has stored. The default value identifies no record. Two records
/// that were stored in the same place have different values, until the 28-bit number of the records wraps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(u32);

impl Default for Place {
    fn default() -> Self {
        // The low bits of this value are not the value of any kind. Therefore no word of a record is equal to this
        // value.
        Self(u32::MAX)
    }
}

impl WaitRecord {
    pub(crate) const fn none() -> Self {
        Self {
            process: AtomicU64::new(0),
            line: AtomicStaticRef::none(),
            word: AtomicU32::new(0),
            step_batches: StepBatches::new(),
        }
    }

    /// Stores a record, if the place is free. The caller must be in a step of the process.
    #[inline]
    pub(crate) fn begin(&self, wait: &Wait) -> Option<Place> {
        let word = self.word.load(Ordering::Relaxed);
        if word & KIND != 0 {
            return None;
        }
        // The release stores pair with the acquire loads in `read`. A reader that sees one of these new fields also
        // sees the removal of the previous record. Therefore the second load of the word does not return the word of
        // the previous record.
        self.process.store(wait.process, Ordering::Release);
        self.line.store(wait.line);
        let word = word.wrapping_add(1 << KIND_BITS) | wait.kind as u32;
        self.word.store(word, Ordering::Release);
        Some(Place(word))
    }

    /// Removes the record that [`begin`](Self::begin) has stored, if the record is still in this place. The caller must
    /// be in a step of the process.
    #[inline]
    pub(crate) fn end(&self, Place(word): Place) -> bool {
        let is_there = self.word.load(Ordering::Relaxed) == word;
        if is_there {
            self.word.store(word & !KIND, Ordering::Relaxed);
        }
        is_there
    }

    /// Removes the record if the record is equal to `wait`. The caller must be in a step of the process.
    pub(crate) fn end_equal(&self, wait: &Wait) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let is_equal = word & KIND == wait.kind as u32
            && self.process.load(Ordering::Relaxed) == wait.process
            && self.line.is(wait.line);
        if is_equal {
            self.word.store(word & !KIND, Ordering::Relaxed);
        }
        is_equal
    }

    /// Returns the record, and a number that changes with each new record.
    fn read(&self) -> (Option<Wait>, u32) {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let Some(kind) = KINDS.into_iter().find(|kind| *kind as u32 == word & KIND) else { return (None, word) };
            let wait = Wait { kind, process: self.process.load(Ordering::Acquire), line: self.line.load() };
            // The fence ensures that the second load of the word comes after the loads of the other fields.
            fence(Ordering::Acquire);
            if self.word.load(Ordering::Relaxed) == word {
                return (Some(wait), word);
            }
        }
    }
}

/// Table of the wait records of a process, without the records in the two [places](WaitRecord) of the process.
#[derive(Debug, Default)]
pub(crate) struct MoreWaits {
    /// For each record, the number of equal records in the table. A negative number -n means that n equal records in
    /// the [places](WaitRecord) are out of date: other threads have ended these operations, but cannot write the
    /// places.
    counts: BTreeMap<Wait, i32>,
    /// Number of changes of the table so far.
    changes: u32,
}

impl MoreWaits {
    fn add(&mut self, wait: Wait, change: i32) {
        self.changes = self.changes.wrapping_add(1);
        let count = self.counts.entry(wait).or_default();
        *count += change;
        if *count == 0 {
            self.counts.remove(&wait);
        }
    }

    /// Adds a record. If this thread runs a step of the process, the caller passes the places of the first two
    /// records in `here`. If another thread has removed the record in one of these places, the new record is stored
    /// in this place.
    pub(crate) fn begin(&mut self, wait: Wait, here: Option<[&WaitRecord; 2]>) {
        for place in here.into_iter().flatten() {
            if let Some(removed) = place.read().0
                && self.counts.get(&removed).is_some_and(|count| *count < 0)
                && place.end_equal(&removed)
            {
                self.add(removed, 1);
            }
            if place.begin(&wait).is_some() {
                return;
            }
        }
        self.add(wait, 1);
    }

    pub(crate) fn end(&mut self, wait: Wait) {
        self.add(wait, -1);
    }
}

/// All records of a process at one moment.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) waits: Vec<Wait>,
    /// These numbers change with each new record. If two snapshots contain equal numbers and equal records, each record
    /// existed during the whole time between the two snapshots.
    pub(crate) generation: (u64, u32),
}

impl Waits {
    /// Reads all records: the records in the two places of `first`, and the records in the table. The caller holds the
    /// lock of `more`.
    pub(crate) fn read(first: [Option<&WaitRecord>; 2], more: Option<&MoreWaits>) -> Self {
        let [(one, first), (other, second)] = first.map(|place| place.map_or((None, 0), WaitRecord::read));
        let words = u64::from(second) << 32 | u64::from(first);
        let waits = [one, other].into_iter().flatten();
        let Some(more) = more else { return Self { waits: waits.collect(), generation: (words, 0) } };
        let mut counts = more.counts.clone();
        waits.for_each(|wait| *counts.entry(wait).or_default() += 1);
        let repeated = |(wait, count): (Wait, i32)| (0..count).map(move |_| wait);
        Self { waits: counts.into_iter().flat_map(repeated).collect(), generation: (words, more.changes) }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::sync::thread;

    fn line(number: u64) -> Line {
        static LINES: [&Location<'static>; 2] = [here(), here()];
        Some(LINES[number as usize % 2])
    }

    #[track_caller]
    const fn here() -> &'static Location<'static> {
        Location::caller()
    }

    fn call(number: u64) -> Wait {
        Wait { kind: WaitKind::Call, process: number, line: line(number) }
    }

    /// Stores the record in one of the two places, or in the table.
    fn begin(places: [&WaitRecord; 2], more: &mut MoreWaits, wait: Wait) {
        if places.iter().all(|place| place.begin(&wait).is_none()) {
            more.begin(wait, Some(places));
        }
    }

    fn read(places: [&WaitRecord; 2], more: &MoreWaits) -> Vec<Wait> {
        Waits::read(places.map(Some), Some(more)).waits
    }

    #[test]
    fn a_second_record_does_not_replace_the_first_record() {
        let record = WaitRecord::none();
        let place = record.begin(&call(1)).expect("it is free");
        assert!(record.begin(&call(2)).is_none() && !record.end_equal(&call(2)));
        assert_eq!(record.read().0, Some(call(1)));
        assert!(record.end(place) && !record.end(place) && !record.end(Place::default()));
        assert_eq!(record.read().0, None);
    }

    #[test]
    fn equal_records_have_different_generations() {
        let record = WaitRecord::none();
        let place = record.begin(&call(1)).expect("it is free");
        let before = Waits::read([Some(&record), None], None);
        assert!(record.end(place) && record.begin(&call(1)).is_some() && !record.end(place));
        let after = Waits::read([Some(&record), None], None);
        assert_eq!(before.waits, after.waits);
        assert_ne!(before.generation, after.generation);
    }

    #[test]
    fn the_next_record_uses_the_place_of_a_record_that_another_thread_removed() {
        let (one, other, mut more) = (WaitRecord::none(), WaitRecord::none(), MoreWaits::default());
        let places = [&one, &other];
        for (removed, kept) in [(1, 2), (2, 1)] {
            begin(places, &mut more, call(1));
            begin(places, &mut more, call(2));
            more.end(call(removed));
            assert_eq!(read(places, &more), [call(kept)]);
            begin(places, &mut more, call(3));
            assert_eq!(read(places, &more), [call(kept), call(3)]);
            assert!(more.counts.is_empty());
            for wait in [call(kept), call(3)] {
                assert!(places.iter().any(|place| place.end_equal(&wait)));
            }
        }
    }

    #[test]
    fn records_without_room_are_in_the_table() {
        let (one, other, mut more) = (WaitRecord::none(), WaitRecord::none(), MoreWaits::default());
        let places = [&one, &other];
        for number in [1, 1, 2, 2] {
            begin(places, &mut more, call(number));
        }
        assert_eq!(read(places, &more), [1, 1, 2, 2].map(call));
        assert!(one.end_equal(&call(1)) && !one.end_equal(&call(1)) && !other.end_equal(&call(2)));
        more.end(call(2));
        assert_eq!(read(places, &more), [1, 2].map(call));
    }

    /// 9.2c: a reader on another thread never mixes the fields of two records.
    #[test]
    fn a_reader_never_mixes_two_records() {
        let record = WaitRecord::none();
        let done = crate::platform::sync::tally::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200_000 {
                    let place = record.begin(&call(number)).expect("it is free");
                    assert!(record.end(place));
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                record.read().0.into_iter().for_each(|wait| assert_eq!(wait, call(wait.process)));
            }
        });
    }
}
