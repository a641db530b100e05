//! The pending timers of one process. A process with timers has a table of the timers that were set and have not fired
//! yet. The exit of the process cancels these timers. The functions in `owned.rs` set the timers.

use crate::host::registry::Busy;
use crate::host::timer::{Key, Timers};
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::catch::drop_caught;
use crate::process::sparse_slab::SparseSlab;

/// Maximum number of slots that one call of [`Pending::deadlines`] reads. The call holds the lock of the table.
const PIECE: usize = 256;

/// Largest capacity that a table keeps allocated after a burst.
const KEEP: usize = 4096;

/// Identifies a timer in the table of one process. Timers of different processes may have equal identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PendingTimer {
    slot: usize,
    number: u64,
}

/// The pending timers of one process.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The entry of each timer. An entry contains the number of the timer. After the timer was set, the entry also
    /// contains the key and the deadline of the timer.
    timers: SparseSlab<(u64, Option<(Key, Instant)>), KEEP>,
    next_number: u64,
    closed: bool,
}

impl Pending {
    /// Reserves an entry for a timer. The caller sets the timer later. If the process has exited, this function
    /// returns a timer without an entry. A timer without an entry counts as cancelled.
    pub(crate) fn begin(&self) -> PendingTimer {
        let mut table = self.0.lock();
        let number = table.next_number;
        table.next_number += 1;
        if table.closed {
            return PendingTimer { slot: usize::MAX, number };
        }
        PendingTimer { slot: table.timers.insert((number, None)), number }
    }

    /// Stores the key of a timer that was set. Returns false if the timer has no entry. In this case the timer has
    /// fired, or was cancelled.
    pub(crate) fn set(&self, timer: PendingTimer, key: Key, at: Instant) -> bool {
        let mut table = self.0.lock();
        match table.timers.get_mut(timer.slot) {
            Some((number, known)) if *number == timer.number => {
                *known = Some((key, at));
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_there(&self, timer: PendingTimer) -> bool {
        self.0.lock().timers.get(timer.slot).is_some_and(|&(number, _)| number == timer.number)
    }

    /// Removes the entry of a timer. Returns the key and the deadline of the timer, if the timer is already set.
    /// Returns `None` if the entry was already removed. Therefore only one caller can end a timer.
    pub(crate) fn end(&self, timer: PendingTimer) -> Option<Option<(Key, Instant)>> {
        let mut table = self.0.lock();
        table.timers.get(timer.slot).filter(|(number, _)| *number == timer.number)?;
        let (_, set) = table.timers.remove(timer.slot);
        Some(set)
    }

    /// Returns whether at least one timer is reserved or set.
    ///
    /// # Errors
    /// Returns `Busy` if another thread holds the lock.
    pub(crate) fn has_any(&self) -> Result<bool, Busy> {
        Ok(!self.0.try_lock().ok_or(Busy)?.timers.is_empty())
    }

    /// Reads the deadlines of one part of the table. The part begins at the slot `from`. Returns the slot at which the
    /// next part begins, or `None` at the end of the table. A reserved timer that is not set yet has no deadline.
    ///
    /// # Errors
    /// Returns `Busy` if another thread holds the lock.
    pub(crate) fn deadlines(&self, from: usize, deadlines: &mut Vec<Instant>) -> Result<Option<usize>, Busy> {
        let table = self.0.try_lock().ok_or(Busy)?;
        let end = table.timers.capacity();
        let to = (from + PIECE).min(end);
        deadlines.extend((from..to).filter_map(|slot| Some(table.timers.get(slot)?.1?.1)));
        Ok((to < end).then_some(to))
    }

    /// Cancels all timers, and refuses new timers.
    pub(crate) fn close(&self, timers: &Timers) {
        let mut table = self.0.lock();
        table.closed = true;
        let pending = std::mem::take(&mut table.timers);
        drop(table);
        for (_, key) in pending.into_values() {
            let fire = key.and_then(|(key, _)| timers.cancel(key));
            let _ = drop_caught(fire);
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::host::timer::wheel::Wheel;
    use crate::platform::random::Rng;

    #[test]
    fn a_timer_that_has_ended_does_not_match_a_later_timer_in_its_slot() {
        let pending = Pending::default();
        assert!(!pending.has_any().unwrap());
        let ended = pending.begin();
        assert!(pending.has_any().unwrap() && pending.is_there(ended));
        assert_eq!(pending.end(ended), Some(None));
        assert!(!pending.has_any().unwrap());
        let later = pending.begin();
        assert_eq!(later.slot, ended.slot);
        assert!(!pending.is_there(ended) && !pending.set(ended, Key::NONE, Instant::FAR));
        assert_eq!(pending.end(ended), None);
        assert!(pending.is_there(later) && pending.set(later, Key::NONE, Instant::FAR));
        assert_eq!(pending.end(later), Some(Some((Key::NONE, Instant::FAR))));
    }

    /// 9.2b: the deadlines are read in pieces. A reserved timer has no deadline.
    #[test]
    fn the_deadlines_are_read_in_pieces() {
        for count in [0, 1, PIECE, PIECE + 1, 4 * PIECE] {
            let pending = Pending::default();
            for number in 0..count {
                let timer = pending.begin();
                assert!(number % 3 == 0 || pending.set(timer, Key::NONE, Instant::from_ns(number as u64)));
            }
            let (mut deadlines, mut from, mut pieces) = (Vec::new(), Some(0), 0);
            while let Some(start) = from {
                from = pending.deadlines(start, &mut deadlines).unwrap();
                pieces += 1;
                assert!(from.is_none_or(|next| next == pieces * PIECE), "{from:?} after {pieces}");
            }
            let capacity = pending.0.lock().timers.capacity();
            assert_eq!(pieces, capacity.div_ceil(PIECE).max(1));
            deadlines.sort_unstable();
            let expected = (0..count).filter(|number| number % 3 != 0).map(|number| Instant::from_ns(number as u64));
            assert!(deadlines.into_iter().eq(expected), "{count}");
        }
    }

    /// 4.7j: after a burst, the table frees memory although an older timer remains.
    #[test]
    fn the_memory_of_a_burst_is_freed_although_an_older_timer_remains() {
        let pending = Pending::default();
        let older = pending.begin();
        let burst: Vec<_> = (0..100_000).map(|_| pending.begin()).collect();
        for timer in burst {
            assert!(pending.end(timer).is_some());
        }
        assert!(pending.is_there(older));
        assert!(pending.0.lock().timers.capacity() <= KEEP);
    }

    /// 4.7j: after a burst, the wheel frees memory although some older entries remain.
    #[test]
    fn the_memory_of_a_burst_is_freed_although_older_entries_remain() {
        const BURST: u64 = 100_000;
        let mut rng = Rng::seeded(1);
        for how in ["due", "cancelled in order", "cancelled in reverse order", "cancelled in random order"] {
            let mut wheel = Wheel::new();
            let older = [1 << 20, 1 << 30, u64::MAX].map(|tick| wheel.insert(tick, 0));
            let mut burst: Vec<_> = (0..BURST).map(|n| wheel.insert(1_000 + n / 10, n)).collect();
            let full = wheel.bytes();
            match how {
                "due" => {
                    while !wheel.advance(1_000 + BURST, 64) {}
                    assert_eq!(std::iter::from_fn(|| wheel.pop(u64::MAX)).count() as u64, BURST);
                }
                "cancelled in reverse order" => burst.reverse(),
                "cancelled in random order" => {
                    for n in 1..burst.len() {
                        burst.swap(n, (rng.next() % (n as u64 + 1)) as usize);
                    }
                }
                _ => {}
            }
            if how != "due" {
                for handle in burst {
                    assert!(wheel.remove(handle).is_some());
                }
            }
            assert_eq!(wheel.len(), 3);
            assert!(wheel.bytes() < full / 10, "{how}: {} of {full} bytes", wheel.bytes());
            let kept = older.map(|handle| wheel.remove(handle).map(|(_, tick)| tick));
            assert_eq!(kept, [Some(1 << 20), Some(1 << 30), Some(u64::MAX)]);
        }
    }
}
