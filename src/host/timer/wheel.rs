//! A hierarchical timer wheel. Insertion and removal take constant time. The wheel is a pure data structure: it has no
//! clock, no lock and no wakers. The caller passes the current tick.
//!
//! The wheel follows G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987). A tick is written in
//! base 64. Each digit has its own level, and each value of the digit has its own slot in this level. An entry belongs
//! to the level of the highest digit in which the tick of the entry differs from the current tick. The value of this
//! highest digit selects the slot. As the time of an entry approaches, the entry descends to lower levels. Therefore
//! all entries of a level are due before all entries of the higher levels, and no slot is in the past.
//!
//! A slot is a queue of positions, and not a linked list of the entries. A position contains the tick and the index of
//! an entry. Therefore the wheel can move an entry to a lower level without an access to the entry. An access to an
//! entry would cost a cache miss.
//!
//! If the position of a removed entry is the last position in the queue, the wheel drops the position immediately. Any
//! other position of a removed entry stays in the queue. The wheel drops the position of a removed entry when the
//! position reaches the head, or when half of the positions in the queue belong to removed entries.

mod list;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::mem;

use crate::host::timer::wheel::list::{EntryPosition, List};
use crate::platform::sync::planted;
use crate::process::sparse_slab::SparseSlab;

/// Number of bits in one digit of a tick. Each level covers one digit.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 6;
/// Number of ticks that all levels together cover. If an entry's tick differs from the current tick in a digit above
/// these levels, the entry waits in a map.
const SPAN: u64 = 1 << (BITS * LEVELS as u32);
/// Index of the list of due entries. The indices of the slots are lower.
const DUE: usize = LEVELS * SLOTS;
/// A list index with this value means that the entry is in the map `far`, and in no list.
const FAR: usize = DUE + 1;

/// Number of low bits of a tick that a slot ignores.
const fn width(slot: usize) -> u32 {
    BITS * (slot / SLOTS) as u32
}

/// Identifies an entry. No two entries have the same number. Therefore the handle of a removed entry matches no other
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    index: u32,
    /// The number, stored as two halves. Therefore the handle takes only 12 bytes, and `Key` can add a `u32` without
    /// padding.
    number: [u32; 2],
}

impl Handle {
    /// Handle that belongs to no entry.
    pub(crate) const NONE: Self = Self { index: u32::MAX, number: [u32::MAX; 2] };

    #[inline]
    pub(super) fn new(index: u32, number: u64) -> Self {
        Self { index, number: [(number >> 32) as u32, number as u32] }
    }

    /// Returns the index and the number.
    #[inline]
    pub(super) fn parts(self) -> (u32, u64) {
        (self.index, self.number())
    }

    #[inline]
    fn number(self) -> u64 {
        u64::from(self.number[0]) << 32 | u64::from(self.number[1])
    }
}

#[derive(Debug)]
struct Entry<T> {
    /// The value is `None` if the entry was removed, but the position of the entry is still in a list.
    item: Option<T>,
    tick: u64,
    number: u64,
}

/// After a burst, the wheel keeps this capacity for its entries, and for each list that is not empty.
const KEPT_ENTRIES: usize = 1_024;

/// The timer wheel. The caller chooses the unit of a tick.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    entries: SparseSlab<Entry<T>, KEPT_ENTRIES>,
    /// Number of entries that were not removed.
    live: usize,
    lists: Box<[List; DUE + 1]>,
    /// One word for each level, with one bit for each slot of the level. The bit is set if the slot is not empty.
    occupied: [u64; LEVELS],
    /// Entries with a tick that no level covers, and entries with the tick `u64::MAX`. The map is ordered by tick and
    /// number. If the budget of `advance` was too small to move an entry to its list, the entry stays in the map. All
    /// entries in the lists come before all entries in the map.
    far: BTreeMap<(u64, u64), u32>,
    /// The slot whose entries are moving to lower levels. The value is `Some` if the budget of the last `advance` was
    /// too small for the whole slot.
    descending: Option<usize>,
    /// The current tick. The wheel has already found all entries that are due at this tick or earlier.
    now: u64,
    next_number: u64,
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: SparseSlab::default(),
            live: 0,
            lists: Box::new([List::EMPTY; DUE + 1]),
            occupied: [0; LEVELS],
            far: BTreeMap::new(),
            descending: None,
            now: 0,
            next_number: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Returns the memory of the entries and their positions, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        /// Type with the same layout as an entry of a slab.
        #[expect(dead_code, reason = "it is only measured")]
        enum Room<T> {
            Vacant(usize),
            Occupied(T),
        }
        let places: usize = self.lists.iter().map(|list| list.places.capacity()).sum();
        self.entries.capacity() * size_of::<Room<Entry<T>>>() + places * size_of::<EntryPosition>()
    }

    /// Returns the number of the next entry. All existing entries have lower numbers.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns the lowest number of all entries that will become due. Removed entries and entries with the tick
    /// `u64::MAX` never become due. The time of this function is linear in the number of entries.
    pub(crate) fn oldest_number(&self) -> Option<u64> {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.item.is_some() && entry.tick != u64::MAX);
        waiting.map(|(_, entry)| entry.number).min()
    }

    /// Adds an item that is due at `tick`. The tick may be in the past. An item with the tick `u64::MAX` is never due.
    ///
    /// # Panics
    /// Panics if there are 2^32 entries.
    pub(crate) fn insert(&mut self, tick: u64, item: T) -> Handle {
        let number = self.next_number;
        self.next_number += 1;
        let index = self.entries.insert(Entry { item: Some(item), tick, number });
        let index = u32::try_from(index).expect("at most 2^32 timers");
        self.live += 1;
        // If the map contains an older entry that is due at this tick or earlier, the new entry is inserted into the
        // map, behind the older entry. Otherwise `nearest` and `pop` could overlook the older entry.
        let list = match self.far.first_key_value() {
            Some((&(first, _), _)) if first <= tick => FAR,
            _ => self.list_of(tick),
        };
        match list {
            FAR => drop(self.far.insert((tick, number), index)),
            list => self.append(list, EntryPosition { tick, index }),
        }
        Handle::new(index, number)
    }

    /// Calls `visit` with the tick and the item of at most `count` entries, beginning at the index `from`. Returns the
    /// index at which the next call begins, or `None` if there are no further entries.
    pub(super) fn visit(&self, from: usize, count: usize, mut visit: impl FnMut(u64, &T)) -> Option<usize> {
        let to = (from + count).min(self.entries.capacity());
        for entry in (from..to).filter_map(|index| self.entries.get(index)) {
            if let Some(item) = &entry.item {
                visit(entry.tick, item);
            }
        }
        (to < self.entries.capacity()).then_some(to)
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.number == handle.number() { entry.item.as_mut() } else { None }
    }

    /// Removes an item. Returns the item and its tick. Returns `None` if the item is not in the wheel any more.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<(T, u64)> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.number != handle.number() && !planted!("timers_cancel_ignores_number") {
            return None;
        }
        let (item, tick, number) = (entry.item.take()?, entry.tick, entry.number);
        self.live -= 1;
        if !self.far.is_empty() && self.far.remove(&(tick, number)).is_some() {
            self.free(handle.index);
            return Some((item, tick));
        }
        // During a descent, the removed entry may already have moved from the descending slot to another list. In this
        // case, the code below increments the count `dead` of the descending slot, although the entry is now in the
        // other list. The count of the descending slot stays wrong until this slot becomes empty or is swept.
        let list = self.list_of(tick);
        let List { places, dead, .. } = &mut self.lists[list];
        let is_newest = places.back().is_some_and(|newest| newest.index == handle.index);
        if is_newest {
            places.pop_back();
        } else {
            *dead += 1;
        }
        let (dead, left) = (*dead, places.len());
        if is_newest {
            self.free(handle.index);
        }
        match left {
            0 => self.vacate(list),
            _ if dead * 2 >= left => self.sweep(list),
            _ => {}
        }
        Some((item, tick))
    }

    /// Returns a lower bound of the ticks of all entries. If the entry with this tick still exists,
    /// [`advance`](Self::advance) finds the entry at this tick. Returns `None` if no entry will ever be due.
    pub(crate) fn nearest(&self) -> Option<u64> {
        let lists = [Some(DUE), self.descending, self.first_slot().map(|(_, slot)| slot)];
        let near = lists.into_iter().flatten().map(|list| self.lists[list].nearest).min();
        match near {
            Some(tick) if tick != u64::MAX => Some(tick),
            _ => self.far.first_key_value().map(|(&(tick, _), _)| tick).filter(|&tick| tick != u64::MAX),
        }
    }

    /// Finds the entries that are due at `now`. [`pop`](Self::pop) then returns these entries. The function processes
    /// about `budget` entries. Returns false if the budget was too small for all due entries. The caller must then call
    /// the function again.
    pub(crate) fn advance(&mut self, now: u64, mut budget: usize) -> bool {
        loop {
            if let Some(slot) = self.descending {
                // Moves the entries to lower levels or to the due list. `occupied` does not contain the descending
                // slot.
                while !self.lists[slot].places.is_empty() {
                    if budget == 0 {
                        return false;
                    }
                    budget -= 1;
                    // If no entry of the slot was removed, this loop does not access the entries.
                    let some_are_dead = self.lists[slot].dead > 0;
                    let Some(place) = self.lists[slot].pop() else { break };
                    if some_are_dead && self.entries[place.index as usize].item.is_none() {
                        self.free(place.index);
                    } else {
                        self.append(self.place(place.tick), place);
                    }
                }
                self.descending = None;
            }
            match self.first_slot() {
                Some((start, slot)) if start <= now => {
                    self.now = start;
                    self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
                    self.descending = Some(slot);
                }
                Some(_) => break,
                None => match self.far.first_key_value() {
                    Some((&(tick, _), &first)) if tick & !(SPAN - 1) <= now && tick != u64::MAX => {
                        if budget == 0 {
                            return false;
                        }
                        budget -= 1;
                        self.now = self.now.max(tick & !(SPAN - 1));
                        self.far.pop_first();
                        self.append(self.place(tick), EntryPosition { tick, index: first });
                        self.bring_near(&mut budget);
                    }
                    _ => break,
                },
            }
        }
        self.now = self.now.max(now);
        // The levels may now cover the ticks of some entries in the map. The call below moves these entries from the
        // map to their lists.
        self.bring_near(&mut budget)
    }

    /// Moves entries from the map to the lists of the levels, if the levels cover the ticks of these entries. Returns
    /// false if the budget was too small.
    fn bring_near(&mut self, budget: &mut usize) -> bool {
        while let Some((&(tick, _), &first)) = self.far.first_key_value() {
            if tick == u64::MAX || tick ^ self.now >= SPAN && tick > self.now {
                break;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.far.pop_first();
            self.append(self.place(tick), EntryPosition { tick, index: first });
        }
        true
    }

    /// Reads the first `count` due entries in advance. Therefore the cache misses of these entries overlap.
    pub(crate) fn touch(&self, count: usize) {
        let next = self.lists[DUE].places.iter().take(count);
        let numbers = next.filter_map(|place| self.entries.get(place.index as usize)).map(|entry| entry.number);
        black_box(numbers.fold(0, |all, number| all ^ number));
    }

    /// Takes the next due item whose number is lower than `newer`. Items are returned in the order of their ticks.
    /// Items with the same tick are returned in the order of their insertion.
    pub(crate) fn pop(&mut self, newer: u64) -> Option<T> {
        loop {
            let &EntryPosition { index, .. } = self.lists[DUE].places.front()?;
            let entry = self.entries.get_mut(index as usize).expect("a position belongs to an entry");
            if entry.number >= newer {
                return None;
            }
            let item = entry.item.take();
            self.lists[DUE].pop();
            self.free(index);
            if item.is_some() {
                self.live -= 1;
                return item;
            }
        }
    }

    /// Removes all items.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        *self.lists = [List::EMPTY; DUE + 1];
        self.live = 0;
        self.occupied = [0; LEVELS];
        self.far.clear();
        self.descending = None;
        mem::take(&mut self.entries).into_values().filter_map(|entry| entry.item).collect()
    }

    // ---- Levels and slots

    /// Returns the next slot that becomes due, with the first tick of this slot.
    fn first_slot(&self) -> Option<(u64, usize)> {
        let level = self.occupied.iter().position(|&occupied| occupied != 0)?;
        let digit = u64::from(self.occupied[level].trailing_zeros());
        let width = BITS * level as u32;
        let above = self.now & !((SLOTS as u64) << width).wrapping_sub(1);
        Some((above | digit << width, level * SLOTS + digit as usize))
    }

    /// Returns the index of the list for an entry with this `tick`. The index depends on the current tick of the wheel.
    fn place(&self, tick: u64) -> usize {
        let differs = self.now ^ tick;
        if tick == u64::MAX || (differs >= SPAN && tick > self.now) {
            FAR
        } else if tick <= self.now {
            DUE
        } else {
            let level = (differs.ilog2() / BITS) as usize;
            level * SLOTS + (tick >> (BITS * level as u32)) as usize % SLOTS
        }
    }

    /// Returns the list for an entry with this tick. An entry that is not in the map `far` is in this list, except for
    /// some entries during a descent: see `remove`. If the tick lies in the descending slot or before this slot, the
    /// result is the list of the descending slot. Therefore a new entry is stored behind the older entries.
    fn list_of(&self, tick: u64) -> usize {
        match self.descending {
            Some(slot) if tick >> width(slot) <= self.now >> width(slot) => slot,
            _ => self.place(tick),
        }
    }

    fn append(&mut self, list: usize, place: EntryPosition) {
        self.lists[list].push(place);
        // `occupied` does not contain a descending slot, because `advance` handles the descending slot separately.
        if list != DUE && self.descending != Some(list) {
            self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
        }
    }

    /// Drops the positions of removed entries from a list, and frees these entries.
    fn sweep(&mut self, list: usize) {
        let mut places = mem::take(&mut self.lists[list].places);
        let mut nearest = u64::MAX;
        places.retain(|place| {
            let is_live = self.entries[place.index as usize].item.is_some();
            if is_live {
                nearest = nearest.min(place.tick);
            } else {
                self.entries.remove(place.index as usize);
            }
            is_live
        });
        let left = places.len();
        places.shrink_to(KEPT_ENTRIES.max(4 * left));
        self.lists[list] = List { places, dead: 0, nearest };
        if left == 0 {
            self.vacate(list);
        }
    }

    fn vacate(&mut self, list: usize) {
        self.lists[list].clear();
        // The bit set `occupied` never contains the descending slot (see `append`). Therefore this slot has no bit to
        // clear.
        if list != DUE && self.descending != Some(list) {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    /// Frees a removed entry that has no position in a list any more.
    fn free(&mut self, index: u32) {
        self.entries.remove(index as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::platform::random::Rng;

    /// Returns all items that are due at `now`, in order.
    fn due(wheel: &mut Wheel<u64>, now: u64) -> Vec<u64> {
        while !wheel.advance(now, 7) {}
        std::iter::from_fn(|| wheel.pop(u64::MAX)).collect()
    }

    #[test]
    fn entries_become_due_in_order_and_never_early() {
        let mut wheel = Wheel::new();
        assert_eq!((wheel.nearest(), due(&mut wheel, 5)), (None, vec![]));
        for (tick, item) in [(30, 1), (10, 2), (20, 3), (10, 4), (6, 5)] {
            wheel.insert(tick, item);
        }
        assert_eq!((wheel.nearest(), wheel.len()), (Some(6), 5));
        assert_eq!((due(&mut wheel, 5), due(&mut wheel, 6)), (vec![], vec![5]));
        assert_eq!(wheel.nearest(), Some(10));
        assert_eq!((due(&mut wheel, 20), due(&mut wheel, 29), due(&mut wheel, 31)), (vec![2, 4, 3], vec![], vec![1]));
        assert_eq!((wheel.nearest(), wheel.len()), (None, 0));
    }

    /// An incremental traversal visits each entry once, including an entry that is due and was not popped.
    #[test]
    fn a_visit_in_pieces_sees_each_entry_once() {
        let mut wheel = Wheel::new();
        let handles: Vec<_> = (0..10).map(|item| wheel.insert(10 * item, item)).collect();
        [0, 4, 9].into_iter().for_each(|removed| _ = wheel.remove(handles[removed]));
        while !wheel.advance(20, 7) {}
        let (capacity, mut seen) = (wheel.entries.capacity(), Vec::new());
        for from in (0..capacity).step_by(3) {
            let next = wheel.visit(from, 3, |tick, item| seen.push((tick, *item)));
            assert_eq!(next, (from + 3 < capacity).then_some(from + 3));
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 5, 6, 7, 8].map(|item| (10 * item, item)));
    }

    #[test]
    fn an_entry_in_the_past_is_due_immediately() {
        let mut wheel = Wheel::new();
        due(&mut wheel, 100);
        wheel.insert(0, 1);
        wheel.insert(100, 2);
        assert_eq!((wheel.nearest(), due(&mut wheel, 100)), (Some(0), vec![1, 2]));
    }

    #[test]
    fn the_last_tick_is_never_due() {
        let mut wheel = Wheel::new();
        let never = wheel.insert(u64::MAX, 1);
        wheel.insert(u64::MAX - 1, 2);
        assert_eq!((wheel.nearest(), due(&mut wheel, u64::MAX - 2)), (Some(u64::MAX - 1), vec![]));
        assert_eq!((due(&mut wheel, u64::MAX - 1), wheel.nearest()), (vec![2], None));
        assert_eq!(wheel.remove(never), Some((1, u64::MAX)));
    }

    #[test]
    fn entries_of_each_level_descend_to_their_tick() {
        let mut wheel = Wheel::new();
        let ticks: Vec<u64> = (0..LEVELS as u32 + 2)
            .flat_map(|n| [1 << (BITS * n), (1 << (BITS * n)) + 1, (65 << (BITS * n)) - 1])
            .collect();
        for &tick in &ticks {
            wheel.insert(tick, tick);
        }
        let mut sorted = ticks;
        sorted.sort_unstable();
        sorted.dedup();
        for tick in sorted {
            assert_eq!(wheel.nearest(), Some(tick));
            assert!(due(&mut wheel, tick - 1).is_empty(), "{tick} came early");
            assert!(due(&mut wheel, tick).iter().all(|&item| item == tick));
        }
        assert_eq!(wheel.len(), 0);
    }

    #[test]
    fn a_handle_of_a_removed_entry_matches_no_other_entry() {
        let mut wheel = Wheel::new();
        let first = wheel.insert(5, 1);
        assert_eq!(wheel.get_mut(first), Some(&mut 1));
        assert_eq!(wheel.remove(first), Some((1, 5)));
        let second = wheel.insert(5, 2);
        assert_eq!((wheel.remove(first), wheel.get_mut(first)), (None, None));
        assert_eq!((due(&mut wheel, 5), wheel.remove(second)), (vec![2], None));
    }

    #[test]
    fn newer_entries_wait_and_keep_their_order() {
        let mut wheel = Wheel::new();
        wheel.insert(1, 1);
        let newer = wheel.next_number();
        assert!(wheel.advance(2, 1));
        wheel.insert(0, 2);
        assert_eq!((wheel.pop(newer), wheel.pop(newer), wheel.pop(newer + 1)), (Some(1), None, Some(2)));
    }

    #[test]
    fn entries_that_are_added_during_a_descent_go_behind_older_entries() {
        let mut wheel = Wheel::new();
        for item in 0..4 {
            wheel.insert(70, item);
        }
        // The first call moves three entries to the lowest level. The second call moves the other two entries to this
        // level, and then begins the descent of their slot to the due list.
        for (now, budget, item) in [(69, 3, 4), (70, 2, 5)] {
            assert!(!wheel.advance(now, budget));
            wheel.insert(70, item);
        }
        wheel.insert(3, 6);
        assert_eq!((wheel.nearest(), due(&mut wheel, 70)), (Some(3), (0..7).collect()));
        assert_eq!((wheel.nearest(), wheel.len(), wheel.occupied), (None, 0, [0; LEVELS]));
    }

    #[test]
    fn a_descent_from_each_level_keeps_the_order_of_one_tick() {
        for level in 1..LEVELS as u32 {
            let mut wheel = Wheel::new();
            // The digit of this level and all lower digits of the tick are 1. Therefore the tick is not in the first
            // slot of any of these levels.
            let tick = (0..=level).map(|n| 1 << (BITS * n)).sum();
            for item in 0..4 {
                wheel.insert(tick, item);
            }
            assert!(!wheel.advance(tick - 1, 1), "some entries are left at level {level}");
            wheel.insert(tick, 4);
            assert_eq!(due(&mut wheel, tick), [0, 1, 2, 3, 4], "level {level}");
        }
    }

    #[test]
    fn removed_entries_are_soon_freed() {
        let mut wheel = Wheel::new();
        let mut handles: Vec<_> = (0..4_000).map(|n| wheel.insert(50 + n % 3_000, n)).collect();
        // Each round removes the first entry, the last entry or a random entry.
        let mut rng = Rng::seeded(3);
        while !handles.is_empty() {
            let at = [0, handles.len() - 1, rng.below(handles.len())][rng.below(3)];
            assert!(wheel.remove(handles.swap_remove(at)).is_some());
            let places: usize = wheel.lists.iter().map(|list| list.places.len()).sum();
            assert_eq!((places, wheel.len()), (wheel.entries.len(), handles.len()));
            assert!(places <= 2 * handles.len(), "{places} places of {}", handles.len());
        }
        assert_eq!((wheel.nearest(), wheel.occupied, wheel.entries.capacity()), (None, [0; LEVELS], 0));
    }

    #[test]
    fn a_handle_consists_of_an_index_and_a_number() {
        for (index, number) in [(7, 1 << 40 | 9), (0, 3), (u32::MAX - 1, u64::MAX >> 1)] {
            assert_eq!(Handle::new(index, number).parts(), (index, number));
        }
    }

    #[test]
    fn the_memory_includes_the_entries_and_their_positions() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.bytes(), 0);
        for item in 0..1_000_u64 {
            let _handle = wheel.insert(5, item);
        }
        let least = 1_000 * (size_of::<Entry<u64>>() + size_of::<EntryPosition>());
        assert!((least..3 * least).contains(&wheel.bytes()), "{} bytes", wheel.bytes());
    }

    #[test]
    fn the_oldest_number_is_the_number_of_an_entry_that_becomes_due() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.oldest_number(), None);
        let _never = wheel.insert(u64::MAX, 0);
        assert_eq!(wheel.oldest_number(), None);
        let handles = [9, 5, 7].map(|tick| wheel.insert(tick, tick));
        assert_eq!(wheel.oldest_number(), Some(1));
        assert!(wheel.remove(handles[0]).is_some());
        assert_eq!(wheel.oldest_number(), Some(2));
    }

    /// This test adds and removes entries during unfinished descents.
    #[test]
    fn a_descent_in_parts_neither_loses_nor_duplicates_entries() {
        for seed in 0..200 {
            let mut rng = Rng::seeded(seed);
            let (mut wheel, mut waiting, mut handles) = (Wheel::new(), BTreeMap::new(), Vec::new());
            // In every second run, the entries of the map `far` become due.
            let mut now = if seed % 2 == 0 { 0 } else { SPAN - 20_000 };
            due(&mut wheel, now);
            for item in 0..600_u64 {
                match rng.below(4) {
                    0 | 1 => {
                        let far = if rng.below(16) == 0 { SPAN } else { 0 };
                        let tick = now + far + (rng.next() >> (63 - rng.below(14)));
                        waiting.insert(item, tick);
                        handles.push((wheel.insert(tick, item), item));
                    }
                    2 if !handles.is_empty() => {
                        let (handle, item) = handles.swap_remove(rng.below(handles.len()));
                        assert_eq!(wheel.remove(handle).map(|(item, _)| item), waiting.remove(&item).map(|_| item));
                    }
                    _ => {
                        now += rng.below(40) as u64 * rng.below(40) as u64;
                        let done = wheel.advance(now, rng.below(5));
                        while let Some(item) = wheel.pop(u64::MAX) {
                            assert!(waiting.remove(&item).expect("once") <= now, "seed {seed}: {item} is early");
                        }
                        assert!(!done || waiting.values().all(|&tick| tick > now), "seed {seed}");
                    }
                }
                let nearest = wheel.nearest().unwrap_or(u64::MAX);
                assert!(waiting.values().all(|&tick| nearest <= tick), "seed {seed}");
                assert_eq!(wheel.len(), waiting.len());
            }
            due(&mut wheel, u64::MAX - 1);
            assert_eq!((wheel.len(), wheel.entries.len(), wheel.occupied), (0, 0, [0; LEVELS]), "seed {seed}");
        }
    }

    /// Compares the wheel with a sorted map. The ticks and the time steps range from very small to very large.
    #[test]
    fn the_wheel_agrees_with_a_sorted_map() {
        for seed in 0..300 {
            let mut rng = Rng::seeded(seed);
            let (mut wheel, mut model, mut handles) = (Wheel::new(), BTreeMap::new(), Vec::new());
            let mut now = if seed % 3 == 0 { rng.next() >> rng.below(64) } else { 0 };
            due(&mut wheel, now);
            for item in 0..400 {
                match rng.below(5) {
                    0..3 => {
                        let ahead = rng.next() >> (63 - rng.below(40));
                        let tick = now.saturating_add(ahead).saturating_sub(rng.below(3) as u64);
                        // Entries in the past become due in the order of their insertion.
                        model.insert((tick.max(now), item), tick);
                        handles.push((wheel.insert(tick, item), tick.max(now), item));
                    }
                    3 if !handles.is_empty() => {
                        let (handle, tick, item) = handles.swap_remove(rng.below(handles.len()));
                        let removed = wheel.remove(handle).map(|(_, tick)| tick);
                        assert_eq!(removed, model.remove(&(tick, item)), "seed {seed}");
                    }
                    _ => {
                        let nearest = wheel.nearest();
                        assert!(nearest.is_none_or(|nearest| {
                            model.first_key_value().is_none_or(|(&(tick, _), _)| nearest <= tick)
                        }));
                        now = match rng.below(3) {
                            0 => nearest.unwrap_or(now).max(now),
                            1 => now.saturating_add(rng.below(100) as u64),
                            _ => now.saturating_add(rng.next() >> (63 - rng.below(38))),
                        };
                        let later = model.split_off(&(now.saturating_add(1), 0));
                        let expected: Vec<u64> =
                            mem::replace(&mut model, later).into_keys().map(|(_, item)| item).collect();
                        assert_eq!(due(&mut wheel, now), expected, "seed {seed} at {now}");
                    }
                }
                assert_eq!(wheel.len(), model.len());
            }
            due(&mut wheel, u64::MAX - 1);
            assert_eq!(wheel.len(), 0, "seed {seed}");
        }
    }
    #[test]
    fn a_handle_finds_its_entry_for_large_numbers() {
        let mut wheel = Wheel::new();
        wheel.next_number = 5 << 32 | 7;
        let first = wheel.insert(9, 1);
        assert_eq!(wheel.next_number(), 5 << 32 | 8);
        assert_eq!((first.number(), wheel.get_mut(first)), (5 << 32 | 7, Some(&mut 1)));
        assert_eq!(wheel.remove(first), Some((1, 9)));
        // The number of `second` has the same low half as the number of `first`. Both entries have the same index.
        wheel.next_number = 7;
        let second = wheel.insert(9, 2);
        assert_eq!((first.index, wheel.remove(first), wheel.remove(second)), (second.index, None, Some((2, 9))));
    }

    #[test]
    fn a_descent_frees_removed_entries() {
        let mut wheel = Wheel::new();
        let handles: Vec<_> = (0..10).map(|n| wheel.insert(70, n)).collect();
        assert_eq!(wheel.remove(handles[4]), Some((4, 70)));
        assert_eq!((wheel.len(), wheel.entries.len()), (9, 10), "its place is still in the list");
        assert!(wheel.advance(69, 100));
        assert_eq!((wheel.len(), wheel.entries.len()), (9, 9));
    }

    #[test]
    fn entries_of_the_map_are_moved_within_the_budget() {
        for budget in 0..5 {
            let mut wheel = Wheel::new();
            for n in 0..5 {
                let _handle = wheel.insert(3 * SPAN + n, n);
            }
            assert!(!wheel.advance(3 * SPAN, budget));
            assert_eq!(wheel.far.len(), 5 - budget);
            assert_eq!((due(&mut wheel, 3 * SPAN + 1), wheel.nearest()), (vec![0, 1], Some(3 * SPAN + 2)));
        }
    }

    /// 7.1c: the budget is too small to move all entries of one tick out of the map. The next entries go behind the
    /// entries in the map. After the moved entries were removed, `nearest` finds the entries in the map.
    #[test]
    fn newer_entries_go_behind_the_entries_of_the_map() {
        for budget in 1..4 {
            let mut wheel = Wheel::new();
            let handles = [0, 1, 2, 3].map(|n| wheel.insert(SPAN + 5, n));
            assert!(!wheel.advance(SPAN, budget));
            wheel.insert(SPAN + 9, 5);
            wheel.insert(SPAN + 5, 4);
            for handle in &handles[..budget] {
                assert!(wheel.remove(*handle).is_some());
            }
            assert_eq!(wheel.nearest(), Some(SPAN + 5));
            assert_eq!(due(&mut wheel, SPAN + 5), Vec::from_iter(budget as u64..5));
            assert_eq!((wheel.nearest(), due(&mut wheel, SPAN + 9)), (Some(SPAN + 9), vec![5]));
        }
    }

    #[test]
    fn a_drain_removes_entries_from_every_list() {
        let mut wheel = Wheel::new();
        // The entries are in different places. One entry is due, one entry is on the lowest level, and two entries are
        // on higher levels. One entry is in the map `far`, and the last entry is never due.
        let ticks = [1, 9, 70, 5_000, 2 * SPAN, u64::MAX];
        let handles = ticks.map(|tick| wheel.insert(tick, tick));
        assert!(wheel.advance(3, 100));
        assert_eq!(wheel.remove(handles[2]), Some((70, 70)));
        let mut all = wheel.drain();
        all.sort_unstable();
        assert_eq!(all, [1, 9, 5_000, 2 * SPAN, u64::MAX]);
        assert_eq!((wheel.len(), wheel.nearest(), wheel.occupied), (0, None, [0; LEVELS]));
        wheel.insert(80, 80);
        assert_eq!((due(&mut wheel, 79), due(&mut wheel, 80)), (vec![], vec![80]));
    }
}
