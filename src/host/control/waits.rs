//! Records of the operations that a process waits for. Such an operation is a call, a send to a full mailbox, or a wait
//! for another process. A wait for another process ends at the start or at the exit of the other process. The records
//! are for inspection only. No other code reads the records.
//!
//! Most processes wait for at most two such operations. The [first two records](FirstWaits) of a process are in the
//! boxed part of its control block. Only the thread that steps the process writes the first two records. This thread
//! needs no lock and no read-modify-write operation. All [other records](MoreWaits) are in a table under a lock.
//! Another thread may remove one of the first two records. Such a thread writes the removal to the table, as a negative
//! count.
//!
//! A sleep has no record, because a record contains a source line. Each sleep would have to store its source line,
//! which takes 8 bytes. Each sleeping process would also need a boxed part of its control block. A wait for a join
//! handle has no record either, because such a record made a spawn with a join 6 % more expensive. Instead, the joined
//! process stores which process has polled its handle: see [`Joiner`](crate::process::state::Joiner).

use std::collections::BTreeMap;
use std::panic::Location;

use crate::platform::static_ref::AtomicStaticRef;
use crate::platform::sync::tally::{AtomicU32, AtomicU64, Ordering, fence};
use crate::process::pid::Pid;

/// Kind of an operation that a process waits for. The low bits of [`FirstWaits::words`] contain the value of the kind.
/// The value 0 means that no record exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum WaitKind {
    /// A call without a time limit.
    Call = 1,
    /// A call with a time limit.
    LimitedCall,
    /// A send that waits for room in a mailbox.
    Room,
    Exit,
    Start,
}

const KINDS: [WaitKind; 5] = [WaitKind::Call, WaitKind::LimitedCall, WaitKind::Room, WaitKind::Exit, WaitKind::Start];

/// Source line that created the future of an operation. The value is `None` if the line is not known.
pub(crate) type Line = Option<&'static Location<'static>>;

/// Record of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) kind: WaitKind,
    /// Word of the other process's pid. The value is 0 if the other process is not known.
    pub(crate) process: u64,
    pub(crate) line: Line,
}

impl Wait {
    #[inline]
    pub(crate) fn call(callee: u64, is_limited: bool, line: &'static Location<'static>) -> Self {
        let kind = if is_limited { WaitKind::LimitedCall } else { WaitKind::Call };
        Self { kind, process: callee, line: Some(line) }
    }

    /// Returns whether `Head::wait_for` counts operations of this kind.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.kind, WaitKind::Call | WaitKind::LimitedCall)
    }

    /// Creates the record of an operation on another process.
    #[inline]
    pub(crate) fn on(kind: WaitKind, process: Pid, line: Line) -> Self {
        Self { kind, process: process.word(), line }
    }
}

/// Number of bits of the kind in [`FirstWaits::words`].
const KIND_BITS: u32 = 4;
const KIND: u32 = (1 << KIND_BITS) - 1;

/// The first two records of a process, which are in the boxed part of its control block. The records need 40 bytes on a
/// 64-bit system.
///
/// Only the thread that steps the process writes the records. The records form a sequence lock (Boehm, "Can Seqlocks
/// Get Along With Programming Language Memory Models?", MSPC 2012). A reader on another thread reads the word of a
/// record, then the two other fields, and then the word again. In Boehm's sequence lock, the sequence number is odd
/// during a write. Here, the writer first removes the former record, and then stores a new record with a new word.
///
/// Under a model checker, the fields are still standard atomics. No decision of the runtime depends on the fields.
#[derive(Debug)]
pub(crate) struct FirstWaits {
    processes: [AtomicU64; PLACES],
    lines: [AtomicStaticRef<Location<'static>>; PLACES],
    /// The low bits of each word contain the kind of the record. The high bits contain the number of records so far.
    words: [AtomicU32; PLACES],
}

const PLACES: usize = 2;

/// Identifies a record in the first place. The default value identifies no record. Each record has a different value,
/// until the 28-bit number of the records wraps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(u32);

impl Default for Place {
    fn default() -> Self {
        // No kind has these low bits. Therefore no word of a record has this value.
        Self(u32::MAX)
    }
}

impl FirstWaits {
    pub(crate) const fn none() -> Self {
        Self {
            processes: [const { AtomicU64::new(0) }; PLACES],
            lines: [const { AtomicStaticRef::none() }; PLACES],
            words: [const { AtomicU32::new(0) }; PLACES],
        }
    }

    /// Stores a record in the first place, if the first place is free. The calling thread must step the process.
    #[inline]
    pub(crate) fn begin(&self, wait: &Wait) -> Option<Place> {
        self.begin_at(0, wait)
    }

    /// Stores a record in a place after the first place, if such a place is free. The calling thread must step the
    /// process.
    pub(crate) fn begin_later(&self, wait: &Wait) -> bool {
        (1..PLACES).any(|at| self.begin_at(at, wait).is_some())
    }

    #[inline]
    fn begin_at(&self, at: usize, wait: &Wait) -> Option<Place> {
        let word = self.words[at].load(Ordering::Relaxed);
        if word & KIND != 0 {
            return None;
        }
        // The release stores pair with the acquire loads in `read_at`. A reader that sees one of these new fields also
        // sees the removal of the former record. Therefore the second load of the word does not return the word of the
        // former record.
        self.processes[at].store(wait.process, Ordering::Release);
        self.lines[at].store(wait.line);
        let word = word.wrapping_add(1 << KIND_BITS) | wait.kind as u32;
        self.words[at].store(word, Ordering::Release);
        Some(Place(word))
    }

    /// Removes the record that [`begin`](Self::begin) stored in the first place, if the record is still there. The
    /// calling thread must step the process.
    #[inline]
    pub(crate) fn end(&self, Place(word): Place) -> bool {
        let is_there = self.words[0].load(Ordering::Relaxed) == word;
        if is_there {
            self.words[0].store(word & !KIND, Ordering::Relaxed);
        }
        is_there
    }

    /// Removes a record that is equal to `wait`, if such a record exists. The calling thread must step the process.
    pub(crate) fn end_equal(&self, wait: &Wait) -> bool {
        (0..PLACES).any(|at| self.end_at(at, wait))
    }

    fn end_at(&self, at: usize, wait: &Wait) -> bool {
        let word = self.words[at].load(Ordering::Relaxed);
        let is_equal = word & KIND == wait.kind as u32
            && self.processes[at].load(Ordering::Relaxed) == wait.process
            && self.lines[at].is(wait.line);
        if is_equal {
            self.words[at].store(word & !KIND, Ordering::Relaxed);
        }
        is_equal
    }

    /// Returns the records, and a number that changes with each new record.
    fn read(&self) -> ([Option<Wait>; PLACES], u64) {
        let [(one, first), (other, second)] = [self.read_at(0), self.read_at(1)];
        ([one, other], u64::from(second) << 32 | u64::from(first))
    }

    fn read_at(&self, at: usize) -> (Option<Wait>, u32) {
        loop {
            let word = self.words[at].load(Ordering::Acquire);
            let Some(kind) = KINDS.into_iter().find(|kind| *kind as u32 == word & KIND) else { return (None, word) };
            let wait = Wait { kind, process: self.processes[at].load(Ordering::Acquire), line: self.lines[at].load() };
            // The fence keeps the second load of the word after the loads of the other fields.
            fence(Ordering::Acquire);
            if self.words[at].load(Ordering::Relaxed) == word {
                return (Some(wait), word);
            }
        }
    }
}

/// Table of all records of a process after the [first two records](FirstWaits).
#[derive(Debug, Default)]
pub(crate) struct MoreWaits {
    /// Number of records that are equal to the key. A negative number counts removals of records that are still in
    /// [`FirstWaits`].
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

    /// Adds a record. If this thread steps the process, the caller passes the first two records of the process in
    /// `here`. If another thread has removed one of these two records, the new record is stored in its place.
    pub(crate) fn begin(&mut self, wait: Wait, here: Option<&FirstWaits>) {
        if let Some(place) = here {
            for first in place.read().0.into_iter().flatten() {
                let is_over = self.counts.get(&first).is_some_and(|count| *count < 0);
                if is_over && place.end_equal(&first) {
                    self.add(first, 1);
                }
            }
            if place.begin(&wait).is_some() || place.begin_later(&wait) {
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
    /// Numbers that change with each new record. If two readings have equal numbers and equal records, each record
    /// existed during the whole time between the readings.
    pub(crate) generation: (u64, u32),
}

impl Waits {
    /// Reads all records. The caller holds the lock of `more`.
    pub(crate) fn read(first: &FirstWaits, more: Option<&MoreWaits>) -> Self {
        let (waits, words) = first.read();
        let waits = waits.into_iter().flatten();
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

    #[test]
    fn a_third_record_replaces_no_other_record() {
        let first = FirstWaits::none();
        let place = first.begin(&call(1)).expect("it is free");
        assert!(first.begin_later(&call(2)) && first.begin(&call(3)).is_none() && !first.begin_later(&call(3)));
        assert!(!first.end_equal(&call(3)) && first.end(place) && !first.end(place) && !first.end(Place::default()));
        assert_eq!(first.read().0, [None, Some(call(2))]);
    }

    #[test]
    fn equal_records_have_different_generations() {
        let first = FirstWaits::none();
        let place = first.begin(&call(1)).expect("it is free");
        let before = Waits::read(&first, None);
        assert!(first.end(place) && first.begin(&call(1)).is_some() && !first.end(place));
        let after = Waits::read(&first, None);
        assert_eq!(before.waits, after.waits);
        assert_ne!(before.generation, after.generation);
    }

    #[test]
    fn a_first_record_that_another_thread_removed_makes_room_for_the_next_record() {
        let (first, mut more) = (FirstWaits::none(), MoreWaits::default());
        assert!(first.begin(&call(1)).is_some() && first.begin_later(&call(2)));
        more.end(call(1));
        assert_eq!(Waits::read(&first, Some(&more)).waits, [call(2)]);
        assert!(first.begin(&call(3)).is_none());
        more.begin(call(3), Some(&first));
        assert_eq!(Waits::read(&first, Some(&more)).waits, [call(2), call(3)]);
        assert!(more.counts.is_empty() && first.end_equal(&call(3)) && first.end_equal(&call(2)));
    }

    #[test]
    fn records_without_room_are_in_the_table() {
        let (first, mut more) = (FirstWaits::none(), MoreWaits::default());
        for number in [1, 1, 2, 2] {
            if first.begin(&call(number)).is_none() && !first.begin_later(&call(number)) {
                more.begin(call(number), Some(&first));
            }
        }
        assert_eq!(Waits::read(&first, Some(&more)).waits, [1, 1, 2, 2].map(call));
        assert!(first.end_equal(&call(1)) && !first.end_equal(&call(2)));
        more.end(call(2));
        assert_eq!(Waits::read(&first, Some(&more)).waits, [1, 2].map(call));
    }

    /// 9.2c: a reader on another thread never mixes the fields of two records.
    #[test]
    fn a_reader_never_mixes_two_records() {
        let first = FirstWaits::none();
        let done = crate::platform::sync::tally::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..200_000 {
                    let place = first.begin(&call(number)).expect("it is free");
                    assert!(first.end(place));
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                first.read().0.into_iter().flatten().for_each(|wait| assert_eq!(wait, call(wait.process)));
            }
        });
    }
}
