//! The yields of one process that are in flight: which tag waits for an answer, who is told when it comes, and that it
//! comes once.
//!
//! ```text
//!   start ──▶ InFlight ── complete ──▶ Answered ── collected ──▶ gone
//!                │                        │
//!                └────── cancel ──────────┴── cancel ──▶ gone: a later answer is handed back as spent
//! ```
//!
//! Whoever moves a slot out of `InFlight`, under the lock, decides the race between two answers, and between an answer
//! and a cancel, a deadline (which is an answer as any other) or the death of the process. A tag's number is never
//! issued twice, so an answer that comes late finds nothing, whatever the slot was used for since. A stream is a yield
//! with a `Buffer` for its items, decided under the same lock: what was sent before the answer is pulled before it. No
//! user code runs under the lock. [Plain](plain) yields are answered without it.

pub(crate) mod buffer;
pub(crate) mod lock_free;
pub(crate) mod stream;
pub(crate) mod table;

use std::any::TypeId;
use std::mem;
use std::task::Waker;

use once_cell::race::OnceBox;

use crate::platform::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::platform::sync::{Lock, LockGuard, planted};
use crate::process::catch as panic;
use crate::process::command::Command;
use crate::process::event::{Answer, Tag};
use crate::process::payload::Payload;
use crate::process::state::inline_command::Number;
use crate::process::yields::buffer::Buffer;
use crate::process::yields::lock_free::{ReplyType, Words};
use crate::process::yields::table::{Phase, Slot, Table, Watchers, reply_to};

/// Commands of one step that are dispatched together, under one lock of the table.
pub(crate) type Batch = [Option<Yield>; 8];

/// A command on its way to its handler.
#[derive(Debug)]
pub(crate) struct Yield {
    pub(crate) tag: Tag,
    pub(crate) command: Payload,
}

/// Who hears of the answer.
#[derive(Debug)]
pub(crate) enum AnswerTarget {
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
    /// Push the answer into the mailbox as an event.
    Event,
    /// Push so many notices of the stream into the mailbox.
    Notices(usize),
    /// Wake the task.
    Own,
    /// Wake this waker.
    Other(Waker),
    /// Drop the answer: nobody waits for it any more.
    Discard,
}

/// What the one who sent an item has to do now.
#[must_use]
#[derive(Debug)]
pub(crate) enum Sent {
    /// Nothing: the process comes when it likes.
    Nothing,
    /// Push so many notices into the mailbox.
    Notices(usize),
    /// Wake the task.
    Own,
    /// Wake this waker.
    Other(Waker),
}

/// What a future that pulls finds.
#[derive(Debug)]
pub(crate) enum Pulled {
    Item(Payload),
    /// All items were pulled, and this is the answer.
    End(Answer),
    /// Nothing yet.
    Wait,
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

impl Late {
    /// Of a tag that is not in flight, where so many were issued.
    fn of(tag: Tag, issued: u64) -> Self {
        if !tag.is_chosen() && tag.serial() < issued { Self::Spent } else { Self::Unknown }
    }
}

/// What became of a command that took the short way.
#[derive(Debug)]
pub(crate) enum InlineOutcome {
    Answered(Answer),
    /// Its handler waits for something itself: it is in flight, like any other.
    Flying(Tag),
    /// Its future was dropped on another thread, or in a nested turn: the thread's inline command was out of reach.
    GivenUp,
}

/// Of one process.
#[derive(Debug)]
pub(crate) struct Yields {
    /// Most processes never yield, or not yet. Made by the process itself before anybody else can know of a yield.
    parts: OnceBox<Parts>,
    /// How many answers are waited for, and how many of plain yields are not read yet; written under the lock, read without
    /// it.
    flying: AtomicU32,
    /// How many commands wait for the end of the step; written under the lock.
    pending: AtomicU32,
    /// Whether any answer is recalled. By the process itself, who reads it.
    recalled: AtomicBool,
    /// Whether one may have ended of those that are not dispatched yet.
    overtaken: AtomicBool,
    /// The process has had its last step: answers are discarded from now on, but what that step yielded is still dispatched.
    /// Set by the process itself.
    over: AtomicBool,
    /// Which yield was dispatched last, by the end of its number: those that come after it have higher ones.
    dispatched: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C)]
struct Parts {
    table: Lock<Table>,
    /// Of plain yields: there are some, or were. Last, for those who answer read this and the process writes the table.
    words: OnceBox<Words>,
}

/// Changes a counter that is written under the lock alone: no other write comes in between.
fn count(counter: &AtomicU32, by: i32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}

/// Whether an answer is of this type.
fn check_type(answer: &Option<Answer>, reply: ReplyType) -> Result<(), Late> {
    let (expected, name) = reply();
    match answer {
        Some(Ok(payload)) if expected != TypeId::of::<Payload>() && payload.type_id() != expected => {
            Err(Late::WrongType(name))
        }
        _ => Ok(()),
    }
}

impl Yields {
    pub(crate) fn new() -> Self {
        Self {
            parts: OnceBox::new(),
            flying: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            recalled: AtomicBool::new(false),
            overtaken: AtomicBool::new(false),
            over: AtomicBool::new(false),
            // None: the first one has number 0.
            dispatched: AtomicU32::new(u32::MAX),
        }
    }

    fn table(&self) -> Option<LockGuard<'_, Table>> {
        Some(self.parts.get()?.table.lock())
    }

    fn parts(&self) -> &Parts {
        self.parts.get_or_init(Box::default)
    }

    #[inline]
    fn words(&self) -> Option<&Words> {
        self.parts.get()?.words.get()
    }

    /// Has later yields of commands be plain: see [`lock_free`].
    pub(crate) fn expect_many(&self) {
        self.parts().words.get_or_init(|| Box::new(Words::new()));
    }

    /// Takes a tag for a yield of `C`, or the one that was chosen. With a `command` it is dispatched at the end of the
    /// step, with a `buffer` it is a stream.
    ///
    /// # Errors
    /// The command, when the chosen tag is in flight.
    pub(crate) fn start<C: Command>(
        &self,
        ear: AnswerTarget,
        chosen: Option<Tag<C>>,
        command: Option<Payload>,
        buffer: Option<Buffer>,
    ) -> Result<Tag<C>, Option<Payload>> {
        let mut guard = self.parts().table.lock();
        let table = &mut *guard;
        if let Some(tag) = chosen
            && table.chosen.contains_key(&tag.number)
        {
            return Err(command);
        }
        let tag = match (self.words(), chosen) {
            (Some(words), None) if command.is_some() && buffer.is_none() && matches!(ear, AnswerTarget::Event) => {
                let number = table.issued;
                Tag::plain(number, table.plain().begin(words, number, reply_to::<C>))
            }
            _ => {
                let key = table.slots.vacant_key();
                let tag = chosen.unwrap_or_else(|| Tag::issued(table.issued, key));
                table.slots.insert(Slot::in_flight::<C>(tag.number, ear, buffer));
                if let Some(tag) = chosen {
                    table.chosen.insert(tag.number, key);
                }
                tag
            }
        };
        if chosen.is_none() {
            table.issued += 1;
        }
        count(&self.flying, 1);
        if let Some(command) = command {
            table.pending.push_back(Yield { tag: tag.erase(), command });
            count(&self.pending, 1);
        }
        Ok(tag)
    }

    /// Whether there is something to [take](Self::take_pending). The process's own thread alone makes it so.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Moves commands that were yielded into a batch, in order, and returns their number. The caller asks for each one whether
    /// it [was overtaken](Self::is_overtaken) when its turn comes: a command that was cancelled in its own step never
    /// reaches its handler.
    pub(crate) fn take_pending(&self, batch: &mut Batch) -> usize {
        let Some(mut table) = self.table() else { return 0 };
        let count = table.pending.len().min(batch.len());
        for (slot, pending) in batch.iter_mut().zip(table.pending.drain(..count)) {
            *slot = Some(pending);
        }
        self::count(&self.pending, -(count as i32));
        count
    }

    /// Whether a yield has ended before it was dispatched: in its step, or while the handlers of others ran. If not, it is
    /// dispatched now.
    #[inline]
    pub(crate) fn is_overtaken(&self, tag: Tag) -> bool {
        if tag.is_plain() {
            return !self.is_flying(tag);
        }
        let ended = self.overtaken.load(Ordering::Relaxed) && !self.is_wanted(tag);
        if tag.is_chosen() {
            // Its number does not say which come after it: they are all looked up.
            self.overtaken.store(true, Ordering::Relaxed);
        } else {
            self.dispatched.store(tag.number as u32, Ordering::Relaxed);
        }
        ended
    }

    /// What was taken is dispatched now: if nothing else is pending, none was overtaken.
    #[inline]
    pub(crate) fn forget_overtaken(&self) {
        if !self.has_pending() && self.overtaken.load(Ordering::Relaxed) {
            self.overtaken.store(false, Ordering::Relaxed);
        }
    }

    /// One that was in flight has ended; under the lock.
    fn ended(&self, tag: Tag) {
        count(&self.flying, -1);
        // Relaxed: what ends while it is dispatched may have been dispatched before. Those that are taken at once are not
        // so many that their numbers could come round.
        let ahead = (tag.number as u32).wrapping_sub(self.dispatched.load(Ordering::Relaxed)) as i32;
        if tag.is_chosen() || ahead > 0 {
            self.overtaken.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps what became of a command that took the short way.
    ///
    /// # Errors
    /// It was given up.
    pub(crate) fn keep(&self, number: Number, kept: InlineOutcome) -> Result<(), InlineOutcome> {
        let mut guard = self.parts().table.lock();
        let table = &mut *guard;
        if table.take_kept(number).is_some() && !planted!("yields_keep_what_was_given_up") {
            return Err(kept);
        }
        table.kept.push((number, kept));
        Ok(())
    }

    /// Takes out what was kept.
    pub(crate) fn take_kept(&self, number: Number) -> Option<InlineOutcome> {
        self.table()?.take_kept(number)
    }

    /// Gives up a command that took the short way and is not in reach; hands out what was kept.
    pub(crate) fn give_up(&self, number: Number) -> Option<InlineOutcome> {
        let mut guard = self.parts().table.lock();
        let table = &mut *guard;
        let kept = table.take_kept(number);
        if kept.is_none() {
            table.kept.push((number, InlineOutcome::GivenUp));
        }
        kept
    }

    /// Whether answers are waited for; if only plain ones are, they may be in the mailbox already.
    pub(crate) fn is_waiting(&self) -> bool {
        self.flying.load(Ordering::Relaxed) != 0
    }

    /// How many answers are waited for.
    pub(crate) fn outstanding(&self) -> usize {
        let queued = self.words().map_or(0, Words::queued);
        (self.flying.load(Ordering::Relaxed) as usize).saturating_sub(queued)
    }

    /// Answers a yield: exactly one answer to a tag gets `Ok`, after `taken` was called, before anybody can have read it. The
    /// answer is taken from where it is, if it is to wait here.
    ///
    /// # Errors
    /// Why it came too late, or is of the wrong type where `check` asks for that: it stays where it is.
    pub(crate) fn complete(
        &self,
        tag: Tag,
        answer: &mut Option<Answer>,
        check: bool,
        taken: impl FnOnce(),
    ) -> Result<Answered, Late> {
        debug_assert!(!tag.is_plain(), "there is a shorter way");
        if self.is_over() {
            return Err(Late::Spent);
        }
        let Some(mut guard) = self.table() else { return Err(Late::Unknown) };
        let table = &mut *guard;
        let issued = table.issued;
        let Some((key, slot)) = table.find(tag) else { return Err(Late::of(tag, issued)) };
        if !slot.is_in_flight() && !planted!("yields_complete_twice") {
            return Err(Late::Spent);
        }
        if check {
            check_type(answer, slot.reply)?;
        }
        let watchers = mem::take(&mut slot.watchers);
        let sender = match &mut slot.buffer {
            None => None,
            Some(buffer) => buffer.excuse(),
        };
        let Phase::InFlight(ear) = mem::replace(&mut slot.phase, Phase::Queued) else { unreachable!("checked above") };
        let mut keep = || Phase::Answered(answer.take().expect("whoever answers has an answer"));
        let answered = match (ear, &mut slot.buffer) {
            (AnswerTarget::Event, None) => Answered::Event,
            (AnswerTarget::Event, Some(buffer)) => {
                slot.phase = keep();
                Answered::Notices(buffer.due(true))
            }
            (AnswerTarget::Own, _) => {
                slot.phase = keep();
                Answered::Own
            }
            (AnswerTarget::Other(waker), _) => {
                slot.phase = keep();
                Answered::Other(waker)
            }
            (AnswerTarget::Nobody, _) => {
                drop(table.remove(key));
                Answered::Discard
            }
        };
        self.ended(tag);
        taken();
        drop(guard);
        watchers.wake();
        if let Some(sender) = sender {
            panic::wake(sender);
        }
        Ok(answered)
    }

    /// Collects a future's answer, or leaves word whom to tell. `None` when the tag is gone: cancelled from outside.
    pub(crate) fn poll(&self, tag: Tag, ear: AnswerTarget) -> Option<Result<Answer, ()>> {
        let mut guard = self.table()?;
        let table = &mut *guard;
        let (key, slot) = table.find(tag)?;
        match &mut slot.phase {
            Phase::Answered(_) => {
                let Phase::Answered(answer) = table.remove(key).phase else { unreachable!("just seen") };
                Some(Ok(answer))
            }
            Phase::InFlight(former) => {
                let ear = if planted!("yields_poll_forgets_waker") { ear } else { mem::replace(former, ear) };
                drop(guard);
                drop(ear);
                Some(Err(()))
            }
            Phase::Queued => None,
        }
    }

    /// Whether an answer that is read as an event is wanted: it was not cancelled while it waited. The place that its yield
    /// has in the table is free for another one when it is [collected](Self::collect).
    #[inline]
    pub(crate) fn is_to_be_read(&self, tag: Tag) -> bool {
        !self.recalled.load(Ordering::Relaxed) || !self.was_recalled(tag)
    }

    #[cold]
    fn was_recalled(&self, tag: Tag) -> bool {
        let Some(mut guard) = self.table() else { return false };
        let table = &mut *guard;
        let was = table.forget_recall(tag);
        self.recalled.store(!table.recalled.is_empty(), Ordering::Relaxed);
        was
    }

    /// Takes yields off the table whose answers were read as events.
    pub(crate) fn collect(&self, read: impl IntoIterator<Item = Tag>) {
        let Some(mut guard) = self.table() else { return };
        let table = &mut *guard;
        let (words, mut plain) = (self.words(), 0);
        for tag in read {
            // Nobody watches what was answered, and its answer is gone: there is nothing in it.
            let there = if tag.is_plain() {
                let there = words.is_some_and(|words| table.plain().collect(words, tag));
                plain += i32::from(there);
                there
            } else {
                let key = table.find(tag).map(|(key, _)| key);
                key.map(|key| table.remove(key)).is_some()
            };
            if !there {
                // SpawnSettings up after it was read.
                table.forget_recall(tag);
            }
        }
        count(&self.flying, -plain);
        self.recalled.store(!table.recalled.is_empty(), Ordering::Relaxed);
    }

    // ---- Giving up

    /// Lets the command run on; its answer goes nowhere.
    pub(crate) fn detach(&self, tag: Tag) {
        let Some(mut guard) = self.table() else { return };
        let table = &mut *guard;
        let Some((key, slot)) = table.find(tag) else { return };
        if let Phase::InFlight(ear) = &mut slot.phase {
            let former = mem::replace(ear, AnswerTarget::Nobody);
            drop(guard);
            drop(former);
        } else {
            let slot = table.remove(key);
            drop(guard);
            slot.release();
        }
    }

    /// Gives up a yield: its answer will be discarded, its handler sees the cancellation. False if there is no such
    /// yield in flight; an answer that was not read yet is not wanted any more either.
    pub(crate) fn cancel(&self, tag: Tag) -> bool {
        let Some(mut guard) = self.table() else { return false };
        let table = &mut *guard;
        if tag.is_plain() {
            let ended = self.words().and_then(|words| table.plain().cancel(words, tag));
            let Some((flying, watchers)) = ended else { return false };
            count(&self.flying, -1);
            if !flying {
                self.recall(table, tag);
            }
            drop(guard);
            watchers.wake();
            return flying;
        }
        let Some((key, _)) = table.find(tag) else { return false };
        let slot = table.remove(key);
        // Not dispatched yet, it is skipped when its turn comes; only a chosen tag may be another yield's by then.
        let position = match tag.is_chosen() {
            true => table.pending.iter().position(|pending| pending.tag == tag),
            false => None,
        };
        let undispatched = position.and_then(|at| table.pending.remove(at));
        if undispatched.is_some() {
            count(&self.pending, -1);
        }
        let flying = slot.is_in_flight();
        if flying {
            self.ended(tag);
        }
        if let Phase::Queued = slot.phase {
            self.recall(table, tag);
        }
        drop(guard);
        let _ = panic::drop_caught(undispatched);
        slot.release();
        flying || planted!("yields_cancel_always_wins")
    }

    /// The answer that waits in the mailbox, or is on its way to it, is not wanted any more.
    fn recall(&self, table: &mut Table, tag: Tag) {
        if !planted!("yields_cancel_forgets_event") {
            *table.recalled.entry(tag.number).or_default() += 1;
            self.recalled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether somebody still waits for the answer to this tag.
    pub(crate) fn is_wanted(&self, tag: Tag) -> bool {
        if tag.is_plain() {
            return self.is_flying(tag);
        }
        let Some(mut guard) = self.table() else { return false };
        let table = &mut *guard;
        table.find(tag).is_some_and(|(_, slot)| slot.is_in_flight())
    }

    /// As [`is_wanted`](Self::is_wanted); while it is, `watcher` will be woken when that ends: by an answer, a cancel,
    /// the end of the process.
    pub(crate) fn watch(&self, tag: Tag, watcher: &Waker) -> bool {
        // Cloned outside the lock, for a waker is somebody's code; so it may take a second look.
        let mut fresh = None;
        loop {
            let Some(mut guard) = self.table() else { return false };
            let table = &mut *guard;
            let watchers = match (tag.is_plain(), self.words()) {
                (true, Some(words)) => table.plain().watch(words, tag),
                (true, None) => None,
                (false, _) => {
                    table.find(tag).filter(|(_, slot)| slot.is_in_flight()).map(|(_, slot)| &mut slot.watchers)
                }
            };
            let Some(watchers) = watchers else { return false };
            if watchers.knows(watcher) {
                return true;
            }
            if let Some(fresh) = fresh.take() {
                watchers.add(fresh);
                return true;
            }
            drop(guard);
            fresh = Some(watcher.clone());
        }
    }

    /// The process has had its last step, and reads no answer any more. The yields of that step are still in flight, so that
    /// they are dispatched; their answers come too late.
    pub(crate) fn end_answers(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The process has ended: every yield is cancelled, and none can be answered from now on.
    pub(crate) fn close(&self) {
        let Some(mut guard) = self.table() else { return };
        let table = &mut *guard;
        let mut slots = mem::take(&mut table.slots);
        if planted!("yields_close_keeps_slots") {
            mem::swap(&mut table.slots, &mut slots);
        }
        let watchers = self.words().map(|words| table.plain().close(words));
        let pending = mem::take(&mut table.pending);
        let kept = mem::take(&mut table.kept);
        table.recalled.clear();
        table.chosen.clear();
        self.pending.store(0, Ordering::Relaxed);
        drop(guard);
        pending.into_iter().for_each(|pending| drop(panic::drop_caught(pending)));
        kept.into_iter().for_each(|kept| drop(panic::drop_caught(kept)));
        slots.into_all().for_each(Slot::release);
        watchers.into_iter().flatten().for_each(Watchers::wake);
    }
}
