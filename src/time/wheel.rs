//! A hierarchical timing wheel: what is due when, in constant time for whoever comes and goes. Pure data: it knows no
//! clock, no lock and no waker; it is told what tick it is.
//!
//! After G. Varghese and T. Lauck, *Hashed and Hierarchical Timing Wheels* (1987), in the form where the slots are the digits
//! of the tick, in base 64: an entry is on the level of the highest digit in which its tick differs from now, in the slot of
//! that digit, and comes down when the time has come so near. So whatever is on a level is due before anything on a
//! higher one, and no slot is ever behind.

use std::collections::BTreeMap;
use std::mem;

use slab::Slab;

use crate::sync::planted;

/// Six bits of a tick for each level.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 6;
/// Ticks that the levels cover. What differs from now in a higher digit waits in a map.
const SPAN: u64 = 1 << (BITS * LEVELS as u32);
/// The list after those of all slots: what is due already.
const DUE: usize = LEVELS * SLOTS;
/// The number of no list: the entry is in the map.
const FAR: usize = DUE + 1;
const NOBODY: u32 = u32::MAX;

/// How many bits of a tick a slot does not tell apart.
const fn width(slot: usize) -> u32 {
    BITS * (slot / SLOTS) as u32
}

/// Which entry it is. A number is never used twice, so one that is gone is not mistaken for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    index: u32,
    number: u64,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    tick: u64,
    number: u64,
    /// The list that it is in, and its neighbours there.
    list: u16,
    before: u32,
    after: u32,
}

/// A list of entries, oldest first.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    /// No entry in here is due before this tick.
    nearest: u64,
}

const EMPTY: List = List { first: NOBODY, last: NOBODY, nearest: u64::MAX };

/// The wheel. Ticks have no unit here.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    entries: Slab<Entry<T>>,
    lists: Box<[List; DUE + 1]>,
    /// For each level, which of its slots are not empty.
    occupied: [u64; LEVELS],
    /// What is due in another span than this one, by tick and number.
    far: BTreeMap<(u64, u64), u32>,
    /// The slot that is on its way down: there was not the time to finish it.
    descending: Option<usize>,
    /// All that is due up to here has been found.
    now: u64,
    next_number: u64,
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Slab::new(),
            lists: Box::new([EMPTY; DUE + 1]),
            occupied: [0; LEVELS],
            far: BTreeMap::new(),
            descending: None,
            now: 0,
            next_number: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number that the next entry will have; those that are there have lower ones.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Adds an item that is due at `tick`, be that past. The last tick of all never comes.
    ///
    /// # Panics
    /// With 2^32 - 1 entries.
    pub(crate) fn insert(&mut self, tick: u64, item: T) -> Handle {
        let number = self.next_number;
        self.next_number += 1;
        let index = self.entries.insert(Entry { item, tick, number, list: 0, before: NOBODY, after: NOBODY });
        let index = u32::try_from(index).ok().filter(|&index| index != NOBODY).expect("fewer than 2^32 timers");
        let list = match self.descending {
            // Behind those that are on their way down from where it would have been among them.
            Some(slot) if tick >> width(slot) <= self.now >> width(slot) => slot,
            _ => self.place(tick),
        };
        self.append(index, list);
        Handle { index, number }
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        (entry.number == handle.number).then_some(&mut entry.item)
    }

    /// Takes an item out, with the tick at which it was due. `None` if it is gone.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<(T, u64)> {
        let entry = self.entries.get(handle.index as usize)?;
        if entry.number != handle.number && !planted!("timers_cancel_ignores_number") {
            return None;
        }
        self.unlink(handle.index);
        let Entry { item, tick, .. } = self.entries.remove(handle.index as usize);
        self.shrink();
        Some((item, tick))
    }

    /// No entry is due before this tick; when it has come, [`advance`](Self::advance) finds something, unless that was
    /// removed. `None` if there is nothing that will ever be due.
    pub(crate) fn nearest(&self) -> Option<u64> {
        let lists = [Some(DUE), self.descending, self.first_slot().map(|(_, slot)| slot)];
        let near = lists.into_iter().flatten().map(|list| self.lists[list].nearest).min();
        match near {
            Some(tick) if tick != u64::MAX => Some(tick),
            _ => self.far.first_key_value().map(|(&(tick, _), _)| tick).filter(|&tick| tick != u64::MAX),
        }
    }

    /// Finds what is due at `now`, for [`pop`](Self::pop). It touches some `budget` entries; false if that was not
    /// enough, and it has to be called again.
    pub(crate) fn advance(&mut self, now: u64, mut budget: usize) -> bool {
        loop {
            if let Some(slot) = self.descending {
                // Down to where the time is counted finer, or to what is due. It is not among the occupied any more.
                while self.lists[slot].first != NOBODY {
                    if budget == 0 {
                        return false;
                    }
                    budget -= 1;
                    let first = self.lists[slot].first;
                    self.unlink(first);
                    self.file(first);
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
                        self.file(first);
                        self.bring_near(&mut budget);
                    }
                    _ => break,
                },
            }
        }
        self.now = self.now.max(now);
        // What is of the span that this has come into is no longer far.
        self.bring_near(&mut budget)
    }

    /// Files what is of the present span. False if the budget did not allow that.
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
            self.file(first);
        }
        true
    }

    /// The next item that was found due and has a lower number than `newer`: by tick, and within one in the order in
    /// which they were added.
    pub(crate) fn pop(&mut self, newer: u64) -> Option<T> {
        let first = self.lists[DUE].first;
        let entry = self.entries.get(first as usize).filter(|_| first != NOBODY)?;
        if entry.number >= newer {
            return None;
        }
        self.unlink(first);
        let Entry { item, .. } = self.entries.remove(first as usize);
        self.shrink();
        Some(item)
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        *self.lists = [EMPTY; DUE + 1];
        self.occupied = [0; LEVELS];
        self.far.clear();
        self.descending = None;
        mem::take(&mut self.entries).into_iter().map(|(_, entry)| entry.item).collect()
    }

    // ---- Levels and slots

    /// The slot that is due first, with its first tick.
    fn first_slot(&self) -> Option<(u64, usize)> {
        let level = self.occupied.iter().position(|&occupied| occupied != 0)?;
        let digit = u64::from(self.occupied[level].trailing_zeros());
        let width = BITS * level as u32;
        let above = self.now & !((SLOTS as u64) << width).wrapping_sub(1);
        Some((above | digit << width, level * SLOTS + digit as usize))
    }

    /// The list in which what is due at `tick` belongs now.
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

    /// Puts an entry where it belongs now.
    fn file(&mut self, index: u32) {
        self.append(index, self.place(self.entries[index as usize].tick));
    }

    fn append(&mut self, index: u32, list: usize) {
        let entry = &mut self.entries[index as usize];
        entry.list = list as u16;
        if list == FAR {
            self.far.insert((entry.tick, entry.number), index);
            return;
        }
        let filed = &mut self.lists[list];
        let last = mem::replace(&mut filed.last, index);
        filed.nearest = filed.nearest.min(entry.tick);
        (entry.before, entry.after) = (last, NOBODY);
        match last {
            NOBODY => filed.first = index,
            last => self.entries[last as usize].after = index,
        }
        if list != DUE && self.descending != Some(list) {
            self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        let &Entry { list, before, after, tick, number, .. } = &self.entries[index as usize];
        let list = list as usize;
        if list == FAR {
            self.far.remove(&(tick, number));
            return;
        }
        match before {
            NOBODY => self.lists[list].first = after,
            before => self.entries[before as usize].after = after,
        }
        match after {
            NOBODY => self.lists[list].last = before,
            after => self.entries[after as usize].before = before,
        }
        if self.lists[list].first == NOBODY {
            self.vacate(list);
        }
    }

    fn vacate(&mut self, list: usize) {
        self.lists[list] = EMPTY;
        // One on its way down is not among the occupied ones any more, and its bit may be another's.
        if list != DUE && self.descending != Some(list) {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    /// Gives back what a burst needed.
    fn shrink(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > 1_024 {
            self.entries = Slab::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Rng;
    use std::collections::BTreeMap;

    /// All that is due at `now`, in order.
    fn due(wheel: &mut Wheel<u64>, now: u64) -> Vec<u64> {
        while !wheel.advance(now, 7) {}
        std::iter::from_fn(|| wheel.pop(u64::MAX)).collect()
    }

    #[test]
    fn entries_come_in_order_and_never_early() {
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

    #[test]
    fn what_is_past_is_due_at_once() {
        let mut wheel = Wheel::new();
        due(&mut wheel, 100);
        wheel.insert(0, 1);
        wheel.insert(100, 2);
        assert_eq!((wheel.nearest(), due(&mut wheel, 100)), (Some(0), vec![1, 2]));
    }

    #[test]
    fn the_last_tick_of_all_never_comes() {
        let mut wheel = Wheel::new();
        let never = wheel.insert(u64::MAX, 1);
        wheel.insert(u64::MAX - 1, 2);
        assert_eq!((wheel.nearest(), due(&mut wheel, u64::MAX - 2)), (Some(u64::MAX - 1), vec![]));
        assert_eq!((due(&mut wheel, u64::MAX - 1), wheel.nearest()), (vec![2], None));
        assert_eq!(wheel.remove(never), Some((1, u64::MAX)));
    }

    #[test]
    fn each_level_comes_down_to_the_tick() {
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
    fn a_handle_outlives_its_entry_without_harm() {
        let mut wheel = Wheel::new();
        let first = wheel.insert(5, 1);
        assert_eq!(wheel.get_mut(first), Some(&mut 1));
        assert_eq!(wheel.remove(first), Some((1, 5)));
        let second = wheel.insert(5, 2);
        assert_eq!((wheel.remove(first), wheel.get_mut(first)), (None, None));
        assert_eq!((due(&mut wheel, 5), wheel.remove(second)), (vec![2], None));
    }

    #[test]
    fn what_is_newer_waits_and_keeps_its_place() {
        let mut wheel = Wheel::new();
        wheel.insert(1, 1);
        let newer = wheel.next_number();
        assert!(wheel.advance(2, 1));
        wheel.insert(0, 2);
        assert_eq!((wheel.pop(newer), wheel.pop(newer), wheel.pop(newer + 1)), (Some(1), None, Some(2)));
    }

    #[test]
    fn what_comes_during_a_descent_goes_behind_what_was_there() {
        let mut wheel = Wheel::new();
        for item in 0..4 {
            wheel.insert(70, item);
        }
        // Down to the finest level, three of them; and then to what is due, one of them.
        for (now, budget, item) in [(69, 3, 4), (70, 2, 5)] {
            assert!(!wheel.advance(now, budget));
            wheel.insert(70, item);
        }
        wheel.insert(3, 6);
        assert_eq!((wheel.nearest(), due(&mut wheel, 70)), (Some(3), (0..7).collect()));
        assert_eq!((wheel.nearest(), wheel.len(), wheel.occupied), (None, 0, [0; LEVELS]));
    }

    #[test]
    fn an_entry_takes_no_more_than_its_share() {
        // Beside an item of 24 bytes, which is what a timer has.
        assert!(size_of::<Entry<[u64; 3]>>() <= 64, "{}", size_of::<Entry<[u64; 3]>>());
    }

    /// Against a sorted map, over times of every size, in steps of every size.
    #[test]
    fn it_agrees_with_a_sorted_map() {
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
                        // What is past comes in the order in which it was added.
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
}
