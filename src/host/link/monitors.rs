//! The processes that one process monitors. Each monitor has a number and a slot in a vector. The number of a monitor
//! contains the index of the slot. Therefore a parent of a hundred thousand children finds each monitor in constant
//! time.
//!
//! A monitor number consists of a slot index and a generation. No monitor number is issued twice. A slot that has used
//! all its generations is never used again.

use std::mem;
use std::ops::Range;

use crate::process::sparse_slab::LastQuarter;
use crate::process::state::Ref;

/// Number of slots that stay allocated after a burst of monitors.
const KEPT: usize = 64;

/// Value that is not the index of any slot.
const NONE: u32 = u32::MAX;
/// Value of `next` in the slot of a monitor whose `Down` event was not delivered yet.
const WATCHING: u32 = u32::MAX - 1;
/// Value of `next` in the slot of a monitor whose `Down` event was delivered, but not read.
const NOTIFIED: u32 = u32::MAX - 2;

/// The highest generation. A generation has 31 bits, because the highest bit of a monitor number marks the monitors of
/// groups.
const LAST: u32 = u32::MAX >> 1;

#[derive(Debug)]
pub(crate) struct Watched<E: ?Sized> {
    slots: Vec<MonitorSlot<E>>,
    /// Index of the slot that became free last, or [`NONE`].
    free: u32,
    taken: usize,
    /// Generation of new slots. This generation is higher than all generations of the freed slots.
    first: u32,
    /// Highest generation of the slots that became free.
    highest: u32,
    last_quarter: LastQuarter,
}

/// Slot of one monitor. A parent of a million children has a million slots. Therefore a slot must be small.
///
/// ```text
///            watch             notify             remove
///   free ──────────▶ watching ──────────▶ notified ──────▶ free
///     │                  └──────────────── remove ───────────▲
///     └──────────────── notify ───────────▶ notified
/// ```
#[derive(Debug)]
struct MonitorSlot<E: ?Sized> {
    generation: u32,
    /// In a free slot, this field is the index of the slot that became free before this slot. In any other slot, this
    /// field is [`WATCHING`] or [`NOTIFIED`].
    next: u32,
    /// Contains the monitored process if the table of the monitored process also contains the monitor. A monitor from
    /// `spawn_monitor` is stored outside the table of the child. In this case the value is `None`.
    watched: Option<Ref<E>>,
}

impl<E: ?Sized> MonitorSlot<E> {
    fn is_taken(&self) -> bool {
        matches!(self.next, WATCHING | NOTIFIED)
    }
}

impl<E: ?Sized> Default for Watched<E> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, taken: 0, first: 1, highest: 0, last_quarter: LastQuarter::default() }
    }
}

impl<E: ?Sized> Watched<E> {
    /// Reserves a slot for a new monitor.
    #[inline]
    pub(crate) fn vacant(&mut self) -> Vacant<'_, E> {
        if self.free == NONE {
            let index = u32::try_from(self.slots.len()).ok().filter(|&index| index < NOTIFIED);
            self.free = index.expect("the memory is full before a process has this number of monitors");
            self.slots.push(MonitorSlot { generation: self.first, next: NONE, watched: None });
        }
        Vacant { index: self.free, watched: self }
    }

    /// Returns the slot index of the monitor with this number. Returns `None` if no monitor has this number.
    #[inline]
    fn find(&self, number: u64) -> Option<usize> {
        let (index, generation) = ((number & u64::from(u32::MAX)) as usize, number >> 32);
        let slot = self.slots.get(index)?;
        (u64::from(slot.generation) == generation && slot.is_taken()).then_some(index)
    }

    /// Marks the `Down` event of a monitor as delivered. Returns false if the event was already delivered, or if no
    /// monitor has this number.
    #[inline]
    pub(crate) fn notify(&mut self, number: u64) -> bool {
        let Some(index) = self.find(number) else { return false };
        let slot = &mut self.slots[index];
        slot.watched = None;
        mem::replace(&mut slot.next, NOTIFIED) == WATCHING
    }

    /// Removes a monitor, whether or not its `Down` event was delivered. Returns false if no monitor has this number.
    #[inline]
    pub(crate) fn collect(&mut self, number: u64) -> bool {
        let Some(index) = self.find(number) else { return false };
        self.slots[index].watched = None;
        self.free(index);
        true
    }

    /// Removes a monitor whose `Down` event was not delivered. The result is `None` if no monitor has this number, or
    /// if the `Down` event of the monitor was delivered. The inner option contains the monitored process if the table
    /// of the monitored process also contains the monitor.
    #[inline]
    pub(crate) fn remove(&mut self, number: u64) -> Option<Option<Ref<E>>> {
        let index = self.find(number).filter(|&index| self.slots[index].next == WATCHING)?;
        let watched = self.slots[index].watched.take();
        self.free(index);
        Some(watched)
    }

    #[inline]
    fn free(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.next = self.free;
        if slot.generation < LAST {
            slot.generation += 1;
            self.free = index as u32;
        }
        self.highest = self.highest.max(slot.generation);
        self.taken -= 1;
        self.last_quarter.remove(index);
        let capacity = self.slots.capacity();
        if capacity > KEPT && self.taken <= capacity / 4 {
            self.give_back();
        }
    }

    /// Returns a number that belongs to no monitor. No later monitor will have this number.
    pub(crate) fn spend(&mut self) -> u64 {
        let number = self.vacant().notify();
        self.collect(number);
        number
    }

    /// Removes the free slots behind the last used slot, if [`LastQuarter::must_free`] returns true. This removal
    /// processes all slots.
    #[cold]
    fn give_back(&mut self) {
        // New slots begin with a generation that no freed slot has used. If this generation were too high, new slots
        // would have few generations left. Then this function does not remove the free slots.
        if self.highest >= LAST / 2 {
            return;
        }
        let is_last_used = self.slots.last().is_some_and(MonitorSlot::is_taken);
        if !self.last_quarter.must_free(is_last_used) {
            return;
        }
        self.first = self.highest;
        self.slots.truncate(self.slots.iter().rposition(MonitorSlot::is_taken).map_or(0, |last| last + 1));
        self.slots.shrink_to_fit();
        // The new monitors use the first free slots, so that the last slots soon become free again. No slot has used
        // all its generations, so each free slot can be used again.
        self.free = NONE;
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            if !slot.is_taken() {
                slot.next = mem::replace(&mut self.free, index as u32);
            }
        }
        self.last_quarter
            .freed(self.slots.capacity(), |index| self.slots.get(index).is_some_and(MonitorSlot::is_taken));
    }

    /// Returns the number of monitors. If the `Down` event of a monitor was delivered but not read, the monitor is
    /// still counted.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the monitored processes in these slots. If the table of a monitored process does not contain the
    /// monitor, this process is not included.
    pub(crate) fn in_slots(&self, slots: Range<usize>) -> impl Iterator<Item = &Ref<E>> {
        let Range { start, end } = slots;
        self.slots.iter().take(end).skip(start).filter_map(|slot| slot.watched.as_ref())
    }

    /// Returns the number and the monitored process of each monitor. If the table of a monitored process does not
    /// contain the monitor, this process is not included.
    pub(crate) fn into_watched(self) -> impl Iterator<Item = (u64, Ref<E>)> {
        (0..).zip(self.slots).filter_map(|(index, slot)| Some((number(index, slot.generation), slot.watched?)))
    }
}

/// A free slot for a new monitor. The functions that take the slot return the number of the monitor.
pub(crate) struct Vacant<'a, E: ?Sized> {
    watched: &'a mut Watched<E>,
    index: u32,
}

impl<E: ?Sized> Vacant<'_, E> {
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        number(self.index, self.watched.slots[self.index as usize].generation)
    }

    /// Takes the slot for a monitor. `watched` is the monitored process if the table of the monitored process also
    /// contains the monitor. If `spawn_monitor` sets the monitor, `watched` is `None`, because the child stores the
    /// monitor outside the table of the child.
    #[inline]
    pub(crate) fn watch(self, watched: Option<Ref<E>>) -> u64 {
        self.take(WATCHING, watched)
    }

    /// Takes the slot for a monitor on a process that does not exist. The caller immediately delivers the `Down` event,
    /// or removes the monitor.
    pub(crate) fn notify(self) -> u64 {
        self.take(NOTIFIED, None)
    }

    #[inline]
    fn take(self, state: u32, watched: Option<Ref<E>>) -> u64 {
        let number = self.number();
        let (index, Watched { slots, free, taken, last_quarter, .. }) = (self.index as usize, self.watched);
        *free = mem::replace(&mut slots[index].next, state);
        slots[index].watched = watched;
        *taken += 1;
        last_quarter.add(index, slots.capacity(), |index| slots.get(index).is_some_and(MonitorSlot::is_taken));
        number
    }
}

fn number(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::process::event::MonitorRef;
    use crate::process::pid::Pid;

    #[test]
    fn a_notified_monitor_stays_until_it_is_collected() {
        let mut watched = Watched::default();
        let (one, other) = (watched.vacant().watch(Some(Ref::counted(1))), watched.vacant().notify());
        assert!(watched.notify(one) && !watched.notify(one) && !watched.notify(other) && !watched.notify(0));
        assert!(watched.remove(one).is_none() && watched.collect(one) && !watched.collect(one));
        let again = watched.vacant().watch(Some(Ref::counted(2)));
        assert!(again != one && !watched.notify(one) && watched.collect(other));
        let third = watched.vacant().watch(Some(Ref::counted(3)));
        assert_eq!(watched.remove(again).flatten().map(|two| **two), Some(2));
        assert!(watched.remove(again).is_none());
        assert_eq!(watched.into_watched().map(|(number, three)| (number, **three)).collect::<Vec<_>>(), [(third, 3)]);
    }

    #[test]
    fn a_monitor_that_the_child_carries_has_no_watched_reference() {
        let mut watched = Watched::<u8>::default();
        let (one, other) = (watched.vacant().watch(None), watched.vacant().watch(None));
        assert!(watched.notify(one) && !watched.notify(one) && watched.remove(one).is_none() && watched.collect(one));
        assert!(matches!(watched.remove(other), Some(None)) && !watched.notify(other));
        let third = watched.vacant().watch(None);
        assert!(third != one && third != other && watched.into_watched().next().is_none());
    }

    #[test]
    fn no_number_is_issued_twice() {
        let mut watched = Watched::<u8>::default();
        let mut issued = BTreeSet::new();
        for burst in [1, 3, 2 * KEPT, 1, KEPT + 1, 5] {
            for _ in 0..3 {
                let numbers: Vec<u64> = (0..burst).map(|_| watched.vacant().notify()).collect();
                assert!(numbers.iter().all(|&number| issued.insert(number)));
                assert!(issued.insert(watched.spend()));
                numbers.iter().for_each(|&number| assert!(watched.collect(number)));
                assert!(issued.iter().all(|&number| !watched.collect(number)));
            }
        }
        assert!(watched.slots.len() <= KEPT);
    }

    /// 4.7j: after a burst, the slots are freed although older monitors remain. The monitors of each burst get new
    /// numbers, and the older monitors stay valid.
    #[test]
    fn the_slots_of_a_burst_are_freed_although_older_monitors_remain() {
        let mut watched = Watched::<u8>::default();
        let mut issued = BTreeSet::new();
        let older: Vec<u64> = (0..3).map(|_| watched.vacant().watch(None)).collect();
        for is_reversed in [false, true, false] {
            let mut numbers: Vec<u64> = (0..100_000).map(|_| watched.vacant().notify()).collect();
            assert!(numbers.iter().all(|&number| issued.insert(number)));
            if is_reversed {
                numbers.reverse();
            }
            assert!(numbers.iter().all(|&number| watched.collect(number)));
            assert!(watched.slots.len() <= KEPT, "{} slots", watched.slots.len());
            assert!(watched.slots.capacity() <= 2 * KEPT && watched.len() == 3);
            assert!(numbers.iter().all(|&number| !watched.collect(number)));
        }
        assert!(watched.notify(older[0]) && matches!(watched.remove(older[1]), Some(None)));
        assert!(older.iter().map(|&number| watched.collect(number)).eq([true, false, true]));
    }

    /// The slots before a slot with a monitor cannot be freed, even if the slot with the monitor is near the end of the
    /// vector. The next monitor uses the first of these slots.
    #[test]
    fn a_free_slot_near_the_front_is_used_first() {
        let mut watched = Watched::<u8>::default();
        let numbers: Vec<u64> = (0..1_000).map(|_| watched.vacant().watch(None)).collect();
        let (last, burst) = numbers.split_last().unwrap();
        let behind: Vec<u64> = (0..1_000).map(|_| watched.vacant().watch(None)).collect();
        assert!(burst.iter().chain(&behind).all(|&number| watched.collect(number)));
        assert_eq!(watched.slot_count(), 1_000);
        let next = watched.vacant().watch(None);
        assert!(watched.collect(*last));
        assert_eq!(watched.slot_count(), 1);
        assert!(watched.collect(next));
    }

    #[test]
    fn a_slot_with_exhausted_generations_is_not_reused() {
        let mut watched = Watched::<u8> { first: LAST, ..Watched::default() };
        let numbers: Vec<u64> = (0..=KEPT).map(|_| watched.vacant().notify()).collect();
        let pid = Pid::new(1, 0, 7, 2);
        assert!(numbers.iter().all(|&number| !MonitorRef::new(pid, number).is_of_group()));
        assert!(numbers.iter().all(|&number| watched.collect(number)));
        let next = watched.vacant().notify();
        assert!(!numbers.contains(&next) && numbers.iter().all(|&number| !watched.collect(number)));
        assert!(watched.collect(next));
    }
}
