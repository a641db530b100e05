//! The table of [`Yields`](crate::process::yields::Yields). The table contains the phase and the watchers of each
//! command. The table also contains the tags that the process chose, and the commands that wait for the end of the
//! step.
//!
//! The lock of the table is in `Yields`.

use std::any::{TypeId, type_name};
use std::collections::btree_map::Entry::Occupied;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::task::Waker;

use crate::platform::sync::planted;
use crate::process::catch as panic;
use crate::process::command::Command;
use crate::process::event::Tag;
use crate::process::payload::Payload;
use crate::process::sparse_slab::SparseSlab;
use crate::process::watchers::Watchers;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::{Answer, AnswerTarget, Yield, YieldInfo};

/// State of a command.
///
/// ```text
///   start ──────────▶ InFlight ── complete, for an event ──────────────▶ Queued ─── collect ─────────────▶ gone
///   admit ──────────▶    │ │ └─── complete, for a future or a stream ──▶ Answered ─ poll, collect_notice ▶ gone
///   admit_answer ────────┼─┼──────────────────────────────────────────────▲ │
///                        │ └──── complete, if detached ─────────────────────┼──────────────────────────────▶ gone
///                        └────── cancel or close, in each state ────────────┴──────────────────────────────▶ gone
/// ```
///
/// The function `start` registers a command. The functions `admit` and `admit_answer` move a command from the inline
/// path of a turn (`state/inline_command.rs`) to the table. The command keeps its tag. If the process yields an inline
/// command and reads the answer in the same turn, the command does not enter the table. After a command was removed
/// from the table, an answer to this command is refused as late.
#[derive(Debug)]
pub(super) enum Phase {
    /// The command has no answer yet, or the command was answered without the lock and the answer state of the
    /// command is not closed yet.
    InFlight(AnswerTarget),
    /// The answer waits for a future or for a notice of the stream.
    Answered(Answer),
    /// The answer is in the mailbox as an event, or is being moved to the mailbox.
    Queued,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u64,
    pub(super) phase: Phase,
    /// Wakers of the futures that wait for the end of the command.
    pub(super) watchers: Watchers,
    /// The buffer of the items. Only a stream has a buffer.
    pub(super) buffer: Option<Box<Buffer>>,
    pub(super) types: TypesOf,
    /// Inspections show this data.
    pub(super) info: YieldInfo,
}

/// The reply type of a command, with the names of the reply type and of the command type.
#[derive(Debug)]
pub(super) struct YieldTypes {
    /// Id of the reply type.
    pub(super) reply: TypeId,
    /// Name of the reply type.
    pub(super) reply_name: &'static str,
    /// Name of the command type.
    pub(super) command_name: &'static str,
}

/// Function that returns the [`YieldTypes`] of a command. A slot stores this function, because a function pointer takes
/// only one word.
pub(super) type TypesOf = fn() -> YieldTypes;

/// Returns the [`YieldTypes`] of the command type `C`.
pub(super) fn types_of<C: Command>() -> YieldTypes {
    YieldTypes { reply: TypeId::of::<C::Reply>(), reply_name: type_name::<C::Reply>(), command_name: type_name::<C>() }
}

impl Slot {
    /// Creates the slot of a new command of the type `C`.
    #[inline]
    pub(super) fn in_flight<C: Command>(
        number: u64,
        target: AnswerTarget,
        buffer: Option<Buffer>,
        info: YieldInfo,
    ) -> Self {
        let buffer = buffer.map(Box::new);
        Self { buffer, info, ..Self::new(number, Phase::InFlight(target), types_of::<C>) }
    }

    #[inline]
    pub(super) fn new(number: u64, phase: Phase, types: TypesOf) -> Self {
        Self { number, phase, watchers: Watchers::default(), buffer: None, types, info: YieldInfo::default() }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.phase, Phase::InFlight(_))
    }

    /// Releases a slot that was removed from the table. The caller does not hold the lock. This function wakes the
    /// watchers and a handler that waits for room, and drops the answer and the items.
    pub(super) fn release(mut self) {
        panic::wake_each(self.take_wakers());
        self.drop_contents();
    }

    /// Releases several slots. A foreign waker may block until a process has run. This process may itself wait for one
    /// of the other commands in `slots`. Therefore this function wakes the tasks of all slots together.
    pub(super) fn release_all(slots: impl IntoIterator<Item = Self>) {
        let mut slots = Vec::from_iter(slots);
        panic::wake_each(slots.iter_mut().flat_map(Self::take_wakers));
        slots.into_iter().for_each(Self::drop_contents);
    }

    fn take_wakers(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let watchers = mem::take(&mut self.watchers);
        let sender = self.buffer.as_mut().and_then(|buffer| buffer.take_waiting_sender());
        watchers.into_wakers().chain(sender).filter(|_| !planted!("yields_cancel_forgets_watchers"))
    }

    fn drop_contents(self) {
        let _ = panic::drop_caught(self.phase);
        // Each item is dropped separately. Therefore, if the destructor of one item panics, the remaining items are
        // still dropped.
        let items = self.buffer.map(|buffer| buffer.into_items()).unwrap_or_default();
        items.into_iter().for_each(|item| drop(panic::drop_caught(item)));
    }
}

/// Capacity up to which the table frees no memory.
pub(super) const KEEP: usize = 4096;

/// The slots of all commands, by key. The first slot is stored inline. Most processes have only one command in flight
/// at a time, and the inline slot halves the memory of the tables of these processes.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Slots {
    first: Option<Slot>,
    others: SparseSlab<Slot, KEEP>,
}

impl Slots {
    #[inline]
    pub(super) fn insert(&mut self, slot: Slot) -> u32 {
        if self.first.is_none() {
            self.first = Some(slot);
            return 0;
        }
        self.others.insert(slot) as u32 + 1
    }

    /// Returns the slot with this key, if there is one.
    pub(super) fn get(&self, key: usize) -> Option<&Slot> {
        if key == 0 { self.first.as_ref() } else { self.others.get(key - 1) }
    }

    /// Returns a number that is greater than all keys.
    pub(super) fn key_limit(&self) -> usize {
        self.others.capacity() + 1
    }

    /// Returns the memory in bytes of all slots except the first slot. The first slot is part of this struct.
    pub(super) fn bytes(&self) -> usize {
        self.others.capacity() * size_of::<Option<Slot>>()
    }

    #[inline]
    fn get_mut(&mut self, key: u32) -> Option<&mut Slot> {
        if key == 0 { self.first.as_mut() } else { self.others.get_mut(key as usize - 1) }
    }

    /// Takes out an existing slot.
    #[inline]
    fn remove(&mut self, key: u32) -> Slot {
        if key == 0 {
            return self.first.take().expect("it is there");
        }
        self.others.remove(key as usize - 1)
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Slot> {
        self.first.into_iter().chain(self.others.into_values())
    }
}

/// Maximum number of commands of one process that are measured at the same time. At the end of each command, the
/// table searches the list of the measured commands. Without this limit, a step with very many commands would need
/// quadratic time.
const MOST_MEASURED: usize = 64;

/// The fields that every command uses are the first fields, so that these fields are in adjacent memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Table {
    pub(super) slots: Slots,
    /// Commands that were yielded in this step, in order. These commands are dispatched at the end of the step.
    pub(super) pending: VecDeque<Yield>,
    /// Number of commands with chosen tags that were cancelled since the last reset of this number. The function
    /// [`remove_cancelled`](Self::remove_cancelled) resets this number when the function searches the pending
    /// commands, and when no command is pending. Some of the cancelled commands may have been dispatched before they
    /// were cancelled.
    cancelled: usize,
    /// The measured commands. Each entry contains the number of a tag, and the time in ns at which the command was
    /// yielded. Only one command in 64 is measured. While no command is measured, this field is `None`.
    #[expect(
        clippy::box_collection,
        reason = "this vector rarely exists, and a box takes one word in each table instead of three"
    )]
    timed: Option<Box<Vec<(u64, u64)>>>,
    /// Number of slots of calls that a hand-written process has made.
    pub(super) calls: u32,
    /// Keys of the slots that [`find`](Self::find) looks up by the numbers of their tags. The first slot has no entry.
    pub(super) keys: BTreeMap<u64, u32>,
    /// Answers that the process no longer wants and has not received yet. Either the unwanted answer is already in the
    /// mailbox, or the command of this answer is on the inline path of a turn. The key is the number of a tag, and the
    /// value is the number of unwanted answers with this tag.
    pub(super) recalled: BTreeMap<u64, u32>,
}

impl Table {
    /// Inserts the slot of a command that [`find`](Self::find) looks up by the number of its tag.
    pub(super) fn insert_by_number(&mut self, slot: Slot) {
        let number = slot.number;
        let key = self.slots.insert(slot);
        // The first slot needs no entry in the map, because `key_of` compares the number with the number of the first
        // slot. A search of the map would cost more.
        if key != 0 {
            self.keys.insert(Tag::<Payload>::without_generation(number), key);
        }
    }

    /// Returns the key of the slot whose tag has this number. The search ignores the generation of a chosen tag.
    #[inline]
    pub(super) fn key_of(&self, number: u64) -> Option<u32> {
        let number = Tag::<Payload>::without_generation(number);
        match &self.slots.first {
            Some(first) if Tag::<Payload>::without_generation(first.number) == number => Some(0),
            _ => self.keys.get(&number).copied(),
        }
    }

    /// Returns the slot of a command.
    pub(super) fn find(&mut self, tag: Tag) -> Option<(u32, &mut Slot)> {
        let key = if tag.is_looked_up() { self.key_of(tag.number)? } else { tag.key };
        self.slots.get_mut(key).filter(|slot| tag.refers_to(slot.number)).map(|slot| (key, slot))
    }

    /// Counts the cancellations since the last removal. If this count exceeds half the number of pending commands, this
    /// function removes the cancelled commands with chosen tags from the pending commands. The caller has cancelled a
    /// command with a chosen tag. The caller drops the returned commands after the unlock, because the drop runs user
    /// code.
    ///
    /// If each cancellation searched the pending commands, many cancellations would take quadratic time. This
    /// function takes constant time on average.
    pub(super) fn remove_cancelled(&mut self) -> VecDeque<Yield> {
        if self.pending.is_empty() {
            self.cancelled = 0;
            return VecDeque::new();
        }
        self.cancelled += 1;
        if self.cancelled <= self.pending.len() / 2 {
            return VecDeque::new();
        }
        self.cancelled = 0;
        let pending = mem::take(&mut self.pending);
        let (left, removed) = pending.into_iter().partition(|yielded| !self.is_cancelled(yielded.tag));
        self.pending = left;
        removed
    }

    /// Returns true if the pending command with this tag has a chosen tag and was cancelled.
    fn is_cancelled(&self, tag: Tag) -> bool {
        let slot = || self.slots.get(self.key_of(tag.number)? as usize);
        tag.is_chosen() && !slot().is_some_and(|slot| tag.refers_to(slot.number))
    }

    /// Removes one record of an unwanted answer with this tag. Returns whether there was a record.
    pub(super) fn forget_recall(&mut self, tag: Tag) -> bool {
        let Occupied(mut recalled) = self.recalled.entry(tag.number) else { return false };
        *recalled.get_mut() -= 1;
        if *recalled.get() == 0 {
            recalled.remove();
        }
        true
    }

    /// Begins to measure the command with this number, which was yielded at the time `since`. Does nothing if
    /// [`MOST_MEASURED`] commands are already measured.
    pub(super) fn measure(&mut self, number: u64, since: u64) {
        let timed = self.timed.get_or_insert_default();
        if timed.len() < MOST_MEASURED {
            timed.push((number, since));
        }
    }

    /// Returns the time at which the command with this number was yielded, if the command is measured.
    pub(super) fn since(&self, number: u64) -> Option<u64> {
        self.timed.as_ref()?.iter().find(|&&(timed, _)| timed == number).map(|&(_, since)| since)
    }

    /// Returns whether at least one command is measured.
    #[inline]
    pub(super) fn measures_any(&self) -> bool {
        self.timed.is_some()
    }

    /// Ends the measurement of the command with this number. If the command was measured, calls `measured` with the
    /// name of the command type and the time at which the command was yielded.
    #[cold]
    #[inline(never)]
    pub(super) fn report(&mut self, number: u64, types: TypesOf, measured: &dyn Fn(&'static str, u64)) {
        if let Some(since) = self.take_since(number) {
            measured(types().command_name, since);
        }
    }

    /// Ends the measurement of the command with this number. If the command was measured, returns the time at which the
    /// command was yielded.
    #[cold]
    #[inline(never)]
    fn take_since(&mut self, number: u64) -> Option<u64> {
        let timed = self.timed.as_mut()?;
        let at = timed.iter().position(|&(timed, _)| timed == number)?;
        let (_, since) = timed.swap_remove(at);
        if timed.is_empty() {
            self.timed = None;
        }
        Some(since)
    }

    #[inline]
    pub(super) fn remove(&mut self, key: u32) -> Slot {
        let slot = self.slots.remove(key);
        self.calls -= u32::from(slot.info.call.is_some());
        if self.measures_any() {
            let _ = self.take_since(slot.number);
        }
        if key != 0 && slot.number & Tag::<Payload>::LOOKED_UP != 0 {
            self.keys.remove(&Tag::<Payload>::without_generation(slot.number));
        }
        slot
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::{AtomicU32, Ordering};
    use crate::process::command::NamedCommand;
    use crate::process::watchers::WatchKey;
    use crate::process::yields::tests::start;
    use crate::process::yields::{Answerer, Batch, Yields};

    #[test]
    fn a_removed_yield_is_no_longer_measured() {
        let mut table = Table::default();
        let numbers = [1, 2, 3];
        let keys = numbers.map(|number| {
            let key = table.slots.insert(Slot::in_flight::<NamedCommand>(
                number,
                AnswerTarget::Event,
                None,
                YieldInfo::default(),
            ));
            if number != 3 {
                table.measure(number, 100 * number);
            }
            key
        });
        assert_eq!(numbers.map(|number| table.since(number)), [Some(100), Some(200), None]);
        assert_eq!((table.take_since(1), table.take_since(1), table.take_since(3)), (Some(100), None, None));
        assert!(table.timed.is_some());
        keys.into_iter().for_each(|key| drop(table.remove(key)));
        assert!(table.timed.is_none());
        // The removal of the command with the number 2 has ended the measurement of this command.
        assert_eq!(table.take_since(2), None);
    }

    #[test]
    fn few_commands_are_measured_at_the_same_time() {
        let mut table = Table::default();
        let numbers = 0..2 * MOST_MEASURED as u64;
        numbers.clone().for_each(|number| table.measure(number, 1));
        let measured: Vec<_> = numbers.filter(|number| table.since(*number).is_some()).collect();
        assert_eq!(measured, (0..MOST_MEASURED as u64).collect::<Vec<_>>());
    }

    #[test]
    fn the_memory_of_a_burst_of_undispatched_commands_is_freed() {
        let yields = Yields::new();
        for _ in 0..=2 * KEEP {
            let _tag = start(&yields);
        }
        let capacity = || yields.table().expect("a command was yielded").pending.capacity();
        assert!(capacity() > KEEP);
        while yields.take_pending(&mut Batch::default()) != 0 {}
        assert_eq!(capacity(), 0);
        // A few commands are not a burst.
        let _tag = start(&yields);
        assert_eq!(yields.take_pending(&mut Batch::default()), 1);
        assert!(capacity() > 0);
    }

    #[test]
    fn few_cancelled_commands_with_a_chosen_tag_wait_for_their_dispatch() {
        let yields = Yields::new();
        let kept = start(&yields);
        for _ in 0..100 {
            let (chosen, command) = (Tag::<NamedCommand>::chosen(7), Some(Payload::new(())));
            let tag = yields
                .start(AnswerTarget::Event, Some(chosen), command, None, YieldInfo::default())
                .expect("the tag is free")
                .erase();
            assert!(yields.cancel(tag));
            let table = yields.table().expect("a command was yielded");
            assert!(table.pending.len() <= 3, "{} commands wait", table.pending.len());
        }
        let mut batch = Batch::default();
        let count = yields.take_pending(&mut batch);
        assert!(count >= 1 && batch[0].as_ref().is_some_and(|first| first.tag == kept));
    }

    #[test]
    fn a_measured_command_reports_its_start_with_its_answer() {
        let yields = Yields::new();
        let reported = std::cell::Cell::new(None);
        for since in [3, 5] {
            let command = Some(Payload::new(()));
            let tag = yields
                .start::<NamedCommand>(AnswerTarget::Own, None, command, None, YieldInfo::default())
                .expect("no tag")
                .erase();
            yields.measure(tag, since);
            let report = |name, since| reported.set(Some((name, since)));
            let answer = &mut Some(Ok(Payload::new(())));
            yields.complete(tag, answer, Answerer::Completion, |_| {}, &report, |_, _| {}).unwrap();
            assert_eq!(reported.take(), Some((type_name::<NamedCommand>(), since)));
        }
    }

    /// Waker that counts its wake-ups.
    struct Watcher(AtomicU32);

    impl std::task::Wake for Watcher {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_watcher_that_watches_again_is_stored_once() {
        let (yields, watcher) = (Yields::new(), Arc::new(Watcher(AtomicU32::new(0))));
        let (tag, waker) = (start(&yields), Waker::from(Arc::clone(&watcher)));
        let (held, mut key) = (Arc::strong_count(&watcher), WatchKey::default());
        for _ in 0..3 {
            assert!(yields.watch(tag, &mut key, &waker));
            assert_eq!(Arc::strong_count(&watcher), held + 1);
        }
        assert!(yields.watch(tag, &mut key, Waker::noop()));
        assert_eq!(Arc::strong_count(&watcher), held);
    }

    #[test]
    fn a_watcher_that_leaves_is_not_woken() {
        let (yields, watcher) = (Yields::new(), Arc::new(Watcher(AtomicU32::new(0))));
        let (tag, waker) = (start(&yields), Waker::from(Arc::clone(&watcher)));
        let mut keys = [(); 3].map(|()| WatchKey::default());
        assert!(keys.iter_mut().all(|key| yields.watch(tag, key, &waker)));
        yields.unwatch(tag, &mut keys[0]);
        yields.unwatch(tag, &mut keys[0]);
        assert!(yields.cancel(tag));
        assert_eq!(watcher.0.load(Ordering::Relaxed), 2);
        // The next command has the same slot.
        let (next, mut key) = (start(&yields), WatchKey::default());
        assert!(next.key == tag.key && yields.watch(next, &mut key, &waker));
        let held = Arc::strong_count(&watcher);
        keys.iter_mut().for_each(|key| yields.unwatch(tag, key));
        assert_eq!(Arc::strong_count(&watcher), held);
    }

    #[test]
    fn a_process_wakes_the_watchers_of_all_its_commands_when_it_ends() {
        let (yields, watcher) = (Yields::new(), Arc::new(Watcher(AtomicU32::new(0))));
        let tags = [(); 3].map(|()| start(&yields));
        for tag in tags {
            assert!(yields.watch(tag, &mut WatchKey::default(), &Waker::from(Arc::clone(&watcher))));
        }
        yields.close();
        assert_eq!((watcher.0.load(Ordering::Relaxed), Arc::strong_count(&watcher)), (3, 1));
        assert!(tags.into_iter().all(|tag| !yields.contains(tag)));
    }
}
