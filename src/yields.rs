//! The yields of one process that are in flight: which tag waits for an answer, who is told when it comes, and that it
//! comes once.
//!
//! ```text
//!   start ──▶ InFlight ── complete ──▶ Answered ── collected ──▶ gone
//!                │                        │
//!                └────── cancel ──────────┴── cancel ──▶ gone: a later answer is handed back as spent
//! ```
//!
//! Whoever moves a slot out of `InFlight` under the lock decides the race between two answers, and between an answer
//! and a cancel or the death of the process. A tag's number is never issued twice, so an answer that comes late finds
//! nothing, whatever the slot was used for since. No user code runs under the lock.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

use slab::Slab;

use crate::process::command::Command;
use crate::process::event::Tag;
use crate::process::failure::Failure;
use crate::process::panic;
use crate::process::payload::Payload;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) type Answer = Result<Payload, Failure>;

/// A command on its way to its handler.
#[derive(Debug)]
pub(crate) struct Yield {
    pub(crate) tag: Tag,
    pub(crate) command: Payload,
}

/// Who hears of the answer.
#[derive(Debug)]
pub(crate) enum Ear {
    /// The process, as an event.
    Event,
    /// A future that is polled with the task's own waker.
    Own,
    /// A future that is polled with another one.
    Other(Waker),
    /// Nobody: the yield was detached.
    Nobody,
}

/// What the one who answered has to do now.
#[must_use]
#[derive(Debug)]
pub(crate) enum Answered {
    /// Push this answer into the mailbox as an event.
    Event(Answer),
    /// Wake the task.
    Own,
    /// Wake this waker.
    Other(Waker),
    /// Nothing; nobody waits for it any more, drop it.
    Unheard(Answer),
}

/// Why an answer was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// The tag was answered or cancelled before, or its process has ended.
    Spent,
    /// No yield ever had this tag.
    Unknown,
    /// The answer is not of the command's reply type.
    WrongType(&'static str),
}

#[derive(Debug)]
enum Phase {
    InFlight(Ear),
    /// A future will collect the answer.
    Answered(Answer),
    /// The answer waits in the mailbox as an event.
    Queued,
}

#[derive(Debug)]
struct Slot {
    number: u64,
    phase: Phase,
    /// Whoever wants to know that nobody waits for the answer any more.
    watchers: Vec<Waker>,
    reply: (TypeId, &'static str),
}

#[derive(Debug, Default)]
struct Table {
    slots: Slab<Slot>,
    issued: u64,
    /// Where the yields are whose tags the process chose itself.
    chosen: BTreeMap<u64, u32>,
    /// Yields made in this step, in order, until they are dispatched when it returns.
    pending: Vec<Yield>,
}

impl Table {
    fn find(&mut self, tag: Tag) -> Option<(usize, &mut Slot)> {
        let key = if tag.is_chosen() { *self.chosen.get(&tag.number)? } else { tag.key } as usize;
        self.slots.get_mut(key).filter(|slot| slot.number == tag.number).map(|slot| (key, slot))
    }

    fn remove(&mut self, key: usize) -> Slot {
        let slot = self.slots.remove(key);
        if slot.number & Tag::<Payload>::CHOSEN != 0 {
            self.chosen.remove(&slot.number);
        }
        slot
    }
}

/// The tag table. Boxed: most processes never yield, or not yet.
#[derive(Debug)]
pub(crate) struct Yields {
    table: Mutex<Option<Box<Table>>>,
    /// How many answers are waited for; changed under the lock, read without it.
    outstanding: AtomicU32,
    /// How many commands wait for the end of the step.
    pending: AtomicU32,
    /// Whether there ever was a yield. Set by the process itself before anybody else can know of one.
    used: AtomicBool,
}

impl Yields {
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::new(None),
            outstanding: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            used: AtomicBool::new(false),
        }
    }

    /// Takes a tag for a yield of `C`, or the one that was chosen.
    ///
    /// # Errors
    /// The chosen tag is in flight.
    pub(crate) fn start<C: Command>(&self, ear: Ear, chosen: Option<Tag<C>>) -> Result<Tag<C>, Ear> {
        self.used.store(true, Ordering::Relaxed);
        let mut guard = self.table.lock();
        let table = guard.get_or_insert_default();
        if let Some(tag) = chosen
            && table.chosen.contains_key(&tag.number)
        {
            return Err(ear);
        }
        let key = table.slots.vacant_key() as u32;
        let tag = chosen.unwrap_or_else(|| Tag::issued(table.issued, key));
        match chosen {
            Some(tag) => drop(table.chosen.insert(tag.number, key)),
            None => table.issued += 1,
        }
        table.slots.insert(Slot {
            number: tag.number,
            phase: Phase::InFlight(ear),
            watchers: Vec::new(),
            reply: (TypeId::of::<C::Reply>(), std::any::type_name::<C::Reply>()),
        });
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Ok(tag)
    }

    /// Leaves a command to be dispatched at the end of the step.
    pub(crate) fn defer(&self, tag: Tag, command: Payload) {
        let mut guard = self.table.lock();
        guard.get_or_insert_default().pending.push(Yield { tag, command });
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// The commands that this step yielded and that are still wanted, in order. Cheap when there is none.
    pub(crate) fn take_pending(&self) -> Vec<Yield> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut guard = self.table.lock();
        self.pending.store(0, Ordering::Relaxed);
        guard.as_deref_mut().map(|table| mem::take(&mut table.pending)).unwrap_or_default()
    }

    /// Gives the buffer of [`take_pending`](Self::take_pending) back.
    pub(crate) fn reuse(&self, mut buffer: Vec<Yield>) {
        buffer.clear();
        let mut guard = self.table.lock();
        if let Some(table) = guard.as_deref_mut()
            && table.pending.capacity() == 0
        {
            mem::swap(&mut table.pending, &mut buffer);
        }
    }

    /// How many answers are waited for.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed) as usize
    }

    /// Answers a yield: exactly one answer to a tag gets `Ok`.
    ///
    /// # Errors
    /// The answer and why it came too late, or is of the wrong type where `check` asks for that.
    pub(crate) fn complete(&self, tag: Tag, answer: Answer, check: bool) -> Result<Answered, (Late, Answer)> {
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return Err((Late::Unknown, answer)) };
        let issued = table.issued;
        let Some((key, slot)) = table.find(tag) else {
            let known = !tag.is_chosen() && tag.number < issued;
            return Err((if known { Late::Spent } else { Late::Unknown }, answer));
        };
        #[cfg(not(procession_bug = "yields_complete_twice"))]
        if !matches!(slot.phase, Phase::InFlight(_)) {
            return Err((Late::Spent, answer));
        }
        if check
            && slot.reply.0 != TypeId::of::<Payload>()
            && let Ok(payload) = &answer
            && payload.type_id() != slot.reply.0
        {
            return Err((Late::WrongType(slot.reply.1), answer));
        }
        let watchers = mem::take(&mut slot.watchers);
        let Phase::InFlight(ear) = mem::replace(&mut slot.phase, Phase::Queued) else { unreachable!("checked above") };
        let answered = match ear {
            Ear::Event => Answered::Event(answer),
            Ear::Own => {
                slot.phase = Phase::Answered(answer);
                Answered::Own
            }
            Ear::Other(waker) => {
                slot.phase = Phase::Answered(answer);
                Answered::Other(waker)
            }
            Ear::Nobody => {
                drop(table.remove(key));
                Answered::Unheard(answer)
            }
        };
        self.outstanding.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
        drop(watchers);
        Ok(answered)
    }

    /// Collects a future's answer, or leaves word whom to tell. `None` when the tag is gone: cancelled from outside.
    pub(crate) fn poll(&self, tag: Tag, ear: Ear) -> Option<Result<Answer, ()>> {
        let mut guard = self.table.lock();
        let table = guard.as_deref_mut()?;
        let (key, slot) = table.find(tag)?;
        match &mut slot.phase {
            Phase::Answered(_) => {
                let Phase::Answered(answer) = table.remove(key).phase else { unreachable!("just seen") };
                Some(Ok(answer))
            }
            Phase::InFlight(former) => {
                #[cfg(not(procession_bug = "yields_poll_forgets_waker"))]
                let ear = mem::replace(former, ear);
                drop(guard);
                drop(ear);
                Some(Err(()))
            }
            Phase::Queued => None,
        }
    }

    /// Takes an event's answer off the table; false when it was cancelled and is not wanted any more.
    pub(crate) fn collect(&self, tag: Tag) -> bool {
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return false };
        let Some((key, _)) = table.find(tag) else { return false };
        let slot = table.remove(key);
        drop(guard);
        drop(slot);
        true
    }

    /// Lets the command run on; its answer goes nowhere.
    pub(crate) fn detach(&self, tag: Tag) {
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return };
        let Some((key, slot)) = table.find(tag) else { return };
        if let Phase::InFlight(ear) = &mut slot.phase {
            let former = mem::replace(ear, Ear::Nobody);
            drop(guard);
            drop(former);
        } else {
            let slot = table.remove(key);
            drop(guard);
            drop(slot);
        }
    }

    /// Gives up a yield: its answer will be discarded, its handler sees the cancellation. False if there is no such
    /// yield in flight.
    pub(crate) fn cancel(&self, tag: Tag) -> bool {
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return false };
        let Some((key, _)) = table.find(tag) else { return false };
        let slot = table.remove(key);
        let position = table.pending.iter().position(|pending| pending.tag == tag);
        let undispatched = position.map(|at| table.pending.remove(at));
        let flying = matches!(slot.phase, Phase::InFlight(_)) || cfg!(procession_bug = "yields_cancel_always_wins");
        if flying {
            self.outstanding.fetch_sub(1, Ordering::Relaxed);
        }
        drop(guard);
        let Slot { phase, watchers, .. } = slot;
        let _ = panic::drop_caught((undispatched, phase));
        #[cfg(not(procession_bug = "yields_cancel_forgets_watchers"))]
        for watcher in watchers {
            panic::wake(watcher);
        }
        flying
    }

    /// Whether somebody still waits for the answer to this tag.
    pub(crate) fn is_wanted(&self, tag: Tag) -> bool {
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return false };
        table.find(tag).is_some_and(|(_, slot)| matches!(slot.phase, Phase::InFlight(_)))
    }

    /// As [`is_wanted`](Self::is_wanted); while it is, `watcher` will be woken when that ends by a cancel.
    pub(crate) fn watch(&self, tag: Tag, watcher: &Waker) -> bool {
        let fresh = watcher.clone();
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return false };
        let Some((_, slot)) = table.find(tag) else { return false };
        if !matches!(slot.phase, Phase::InFlight(_)) {
            return false;
        }
        let known = slot.watchers.iter_mut().find(|known| known.will_wake(watcher));
        let former = match known {
            Some(_) => Some(fresh),
            None => {
                slot.watchers.push(fresh);
                None
            }
        };
        drop(guard);
        drop(former);
        true
    }

    /// The process has ended: every yield is cancelled, and none can be answered from now on.
    pub(crate) fn close(&self) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let mut guard = self.table.lock();
        let Some(table) = guard.as_deref_mut() else { return };
        let slots = mem::take(&mut table.slots);
        #[cfg(procession_bug = "yields_close_keeps_slots")]
        let slots = mem::replace(&mut table.slots, slots);
        let pending = mem::take(&mut table.pending);
        table.chosen.clear();
        drop(guard);
        let _ = panic::drop_caught(pending);
        for (_, slot) in slots {
            let _ = panic::drop_caught(slot.phase);
            for watcher in slot.watchers {
                panic::wake(watcher);
            }
        }
    }
}
