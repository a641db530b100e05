//! The table behind [`Yields`](crate::process::yields::Yields), pure data: what became of each yield, who watches it, which tags the process
//! chose itself, and which commands wait for the end of the step.

use std::any::{TypeId, type_name};
use std::collections::btree_map::Entry::Occupied;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use slab::Slab;

use crate::platform::sync::planted;
use crate::process::catch as panic;
use crate::process::command::Command;
use crate::process::event::Tag;
use crate::process::payload::Payload;
use crate::process::state::inline_command::Number;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::lock_free::{Plain, ReplyType};
use crate::process::yields::{Answer, AnswerTarget, InlineOutcome, Yield};

#[derive(Debug)]
pub(super) enum Phase {
    InFlight(AnswerTarget),
    /// A future will collect the answer, or a notice of the stream.
    Answered(Answer),
    /// The answer waits in the mailbox as an event.
    Queued,
}

/// Whoever wants to know that nobody waits for the answer any more: mostly nobody, or one.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    first: Option<Waker>,
    #[expect(clippy::box_collection, reason = "rarely there: a word for each yield, not three")]
    more: Option<Box<Vec<Waker>>>,
}

impl Watchers {
    pub(super) fn knows(&self, watcher: &Waker) -> bool {
        let more = self.more.iter().flat_map(|more| more.iter());
        self.first.iter().chain(more).any(|known| known.will_wake(watcher))
    }

    pub(super) fn add(&mut self, watcher: Waker) {
        match self.first {
            None => self.first = Some(watcher),
            Some(_) => self.more.get_or_insert_default().push(watcher),
        }
    }

    #[inline]
    pub(super) fn wake(self) {
        if let Some(first) = self.first {
            panic::wake(first);
            self.more.into_iter().flat_map(|more| *more).for_each(panic::wake);
        }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u64,
    pub(super) phase: Phase,
    pub(super) watchers: Watchers,
    /// What its items wait in, if it is a stream.
    pub(super) buffer: Option<Box<Buffer>>,
    pub(super) reply: ReplyType,
}

/// What the reply to a `C` is.
pub(super) fn reply_to<C: Command>() -> (TypeId, &'static str) {
    (TypeId::of::<C::Reply>(), type_name::<C::Reply>())
}

impl Slot {
    /// Of a yield of `C` that begins.
    #[inline]
    pub(super) fn in_flight<C: Command>(number: u64, ear: AnswerTarget, buffer: Option<Buffer>) -> Self {
        Self {
            number,
            phase: Phase::InFlight(ear),
            watchers: Watchers::default(),
            buffer: buffer.map(Box::new),
            reply: reply_to::<C>,
        }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.phase, Phase::InFlight(_))
    }

    /// Lets go of it, outside the lock: whoever waits for this yield to end is told, what is left is dropped.
    pub(super) fn release(self) {
        let _ = panic::drop_caught(self.phase);
        if !planted!("yields_cancel_forgets_watchers") {
            self.watchers.wake();
        }
        if let Some(buffer) = self.buffer {
            let (items, sender) = buffer.into_parts();
            // One by one, so that a panic in the drop of one leaves the others theirs.
            items.into_iter().for_each(|item| drop(panic::drop_caught(item)));
            let sender = sender.filter(|_| !planted!("yields_cancel_forgets_watchers"));
            sender.into_iter().for_each(panic::wake);
        }
    }
}

/// Those of all yields, by key. One lies here itself: most processes have one yield in flight, and what they need for it is
/// half as much so.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Slots {
    first: Option<Slot>,
    others: Slab<Slot>,
}

impl Slots {
    /// The key that the next one will have.
    #[inline]
    pub(super) fn vacant_key(&self) -> u32 {
        if self.first.is_none() { 0 } else { self.others.vacant_key() as u32 + 1 }
    }

    #[inline]
    pub(super) fn insert(&mut self, slot: Slot) -> u32 {
        if self.first.is_none() {
            self.first = Some(slot);
            return 0;
        }
        self.others.insert(slot) as u32 + 1
    }

    #[inline]
    fn get_mut(&mut self, key: u32) -> Option<&mut Slot> {
        if key == 0 { self.first.as_mut() } else { self.others.get_mut(key as usize - 1) }
    }

    /// Takes one out that is there.
    #[inline]
    fn remove(&mut self, key: u32) -> Slot {
        if key == 0 { self.first.take().expect("it is there") } else { self.others.remove(key as usize - 1) }
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Slot> {
        self.first.into_iter().chain(self.others.into_iter().map(|(_, slot)| slot))
    }
}

/// What each yield needs comes first, in one piece.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Table {
    pub(super) issued: u64,
    pub(super) slots: Slots,
    plain: Option<Box<Plain>>,
    /// Where the yields are whose tags the process chose itself.
    pub(super) chosen: BTreeMap<u64, u32>,
    /// Yields made in this step, in order, until they are dispatched when it returns.
    pub(super) pending: VecDeque<Yield>,
    /// What became of commands that took the short way and were not answered, or not claimed, in the turn in which they
    /// came.
    pub(super) kept: Vec<(Number, InlineOutcome)>,
    /// Answers that wait in the mailbox as events and are not wanted any more: by their numbers, of which those that the
    /// process chooses may come again.
    pub(super) recalled: BTreeMap<u64, u32>,
}

impl Table {
    /// Of a process that has plain yields, or begins with them.
    #[inline]
    pub(super) fn plain(&mut self) -> &mut Plain {
        self.plain.get_or_insert_default()
    }

    /// The slot of a yield that is not plain.
    pub(super) fn find(&mut self, tag: Tag) -> Option<(u32, &mut Slot)> {
        let key = if tag.is_chosen() { *self.chosen.get(&tag.number)? } else { tag.key };
        self.slots.get_mut(key).filter(|slot| slot.number == tag.number).map(|slot| (key, slot))
    }

    pub(super) fn forget_recall(&mut self, tag: Tag) -> bool {
        let Occupied(mut recalled) = self.recalled.entry(tag.number) else { return false };
        *recalled.get_mut() -= 1;
        if *recalled.get() == 0 {
            recalled.remove();
        }
        true
    }

    pub(super) fn take_kept(&mut self, number: Number) -> Option<InlineOutcome> {
        let at = self.kept.iter().position(|(of, _)| *of == number)?;
        Some(self.kept.swap_remove(at).1)
    }

    #[inline]
    pub(super) fn remove(&mut self, key: u32) -> Slot {
        let slot = self.slots.remove(key);
        if slot.number & Tag::<Payload>::CHOSEN != 0 {
            self.chosen.remove(&slot.number);
        }
        slot
    }
}
