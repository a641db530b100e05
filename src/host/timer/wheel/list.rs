//! A list of the timer wheel: the queue of a slot, or the queue of the due entries.

use std::collections::VecDeque;

/// Capacity that an empty list keeps allocated.
const KEPT: usize = 16;

/// Position of an entry in a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPosition {
    pub(super) tick: u64,
    pub(super) index: u32,
}

/// List of positions. The oldest position comes first.
#[derive(Debug)]
pub(super) struct List {
    pub(super) places: VecDeque<EntryPosition>,
    /// Approximate number of positions of removed entries. If an entry is removed during a descent, the removal may be
    /// counted in the wrong list: see `Wheel::remove`.
    pub(super) dead: usize,
    /// Lower bound of the ticks of all entries in the list.
    pub(super) nearest: u64,
}

impl List {
    pub(super) const EMPTY: Self = Self { places: VecDeque::new(), dead: 0, nearest: u64::MAX };

    pub(super) fn push(&mut self, place: EntryPosition) {
        self.places.push_back(place);
        self.nearest = self.nearest.min(place.tick);
    }

    /// Takes the oldest position. If the list is empty afterwards, this function resets the list.
    pub(super) fn pop(&mut self) -> Option<EntryPosition> {
        let place = self.places.pop_front();
        if self.places.is_empty() {
            self.clear();
        }
        place
    }

    pub(super) fn clear(&mut self) {
        (self.dead, self.nearest) = (0, u64::MAX);
        match self.places.capacity() {
            ..=KEPT => self.places.clear(),
            _ => self.places = VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_keeps_memory_for_a_few_positions() {
        let mut list = List::EMPTY;
        for (count, keeps) in [(3, true), (KEPT, true), (KEPT + 1, false), (1_000, false)] {
            (0..count).for_each(|n| list.push(EntryPosition { tick: n as u64, index: 0 }));
            while list.pop().is_some() {}
            assert_eq!((list.places.capacity() > 0, list.nearest), (keeps, u64::MAX), "{count}");
        }
    }
}
