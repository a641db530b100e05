//! Model of the ring of trace records. A reader copies records while the writer overwrites these records. The reader
//! returns only whole records, in order, and counts the records that the reader does not return.

use crate::model::{join, spawn};
use crate::observe::trace::ring::Ring;
use crate::platform::sync::Arc;

/// Returns a ring that has space for two records and contains two records. The third record will overwrite the first
/// record.
fn full_ring() -> Arc<Ring> {
    let ring = Arc::new(Ring::new(2, u64::MAX));
    (0..2).for_each(|number| ring.push(record(number)));
    ring
}

/// Returns the record with this number. Each word of the record depends on the number.
fn record(number: u64) -> [u64; 4] {
    [number + 1, number + 10, number + 100, number + 1_000]
}

/// Reads the records from number `from` on. Returns the number of the next record.
fn read(ring: &Ring, from: u64) -> u64 {
    let mut returned = Vec::new();
    let (next, overwritten) = ring.read(from, |words| {
        let number = words[0] - 1;
        assert_eq!(words, record(number), "a record is whole");
        returned.push(number);
    });
    let first = from + overwritten;
    assert_eq!(returned, (first..next).collect::<Vec<_>>(), "each record is returned or counted");
    next
}

/// The reader copies the first two records while the writer overwrites these two records.
pub fn copy_against_overwriting() {
    let ring = full_ring();
    let writes = spawn(&ring, |ring| (2..4).for_each(|number| ring.push(record(number))));
    let next = read(&ring, 0);
    join(writes);
    assert_eq!(read(&ring, next), 4);
}
