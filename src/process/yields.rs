//! The outstanding commands of one process, including its outstanding calls and sleeps. The table records the tag of
//! each command that waits for an answer, and the target of the answer. The table accepts one answer per tag. A command
//! on the *inline path* (`state/inline_command.rs`) is not in the table. The state diagram of a command is above
//! [`Phase`].
//!
//! Each command has a slot in the table. The state of a slot changes only under the lock. Therefore, the order of the
//! lock operations decides which of two concurrent answers is accepted. If an answer races with a cancellation, with a
//! deadline or with the exit of the process, this order also decides which of the two takes effect. When the deadline
//! of a command passes, the runtime answers the command through the same function that a handler uses. The number of a
//! tag is never issued twice. If a process chooses the same number again, the new tag gets another generation.
//! Therefore, a late answer finds no command, even if a newer command uses the same slot.
//!
//! There is one exception: while the answer state of a command is open, the completion of the command may answer
//! without the lock (`answer_state.rs`). A function that changes a slot under the lock first closes the answer state of
//! this slot. Therefore, an answer without the lock and a change under the lock cannot happen at the same time.
//!
//! A stream is a command with a `Buffer` for its items. The lock of the table also protects the buffer. The process
//! first pulls all items that were sent before the answer, and then receives the answer. No user code runs under the
//! lock.

mod answer_state;
pub(crate) mod buffer;
pub(crate) mod listing;
pub(crate) mod stream;
pub(crate) mod table;

use std::any::TypeId;
use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::task::Waker;

use once_cell::race::OnceBox;

use crate::platform::static_ref::Line;
use crate::platform::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::platform::sync::{Lock, LockGuard, planted};
use crate::process::catch as panic;
use crate::process::command::{Command, NamedCommand};
use crate::process::event::{Answer, Tag};
use crate::process::payload::Payload;
use crate::process::watchers::WatchKey;
use crate::process::yields::answer_state::{AnswerStates, Closed};
use crate::process::yields::buffer::Buffer;
use crate::process::yields::table::{KEEP, Phase, Slot, Table, TypesOf, YieldTypes, types_of};

/// Commands of one step that the caller takes out of the table in one lock operation.
pub(crate) type Batch = [Option<Yield>; 8];

/// A command that waits for its handler.
#[derive(Debug)]
pub(crate) struct Yield {
    pub(crate) tag: Tag,
    pub(crate) command: Payload,
}

/// Target of an answer.
#[derive(Debug)]
pub(crate) enum AnswerTarget {
    /// The mailbox of the process receives the answer as an event.
    Event,
    /// A future receives the answer. This future is polled with the waker of the process's own task.
    Own,
    /// A future receives the answer. The value is the waker with which this future is polled. This waker is not the
    /// waker of the process's own task.
    Other(Waker),
    /// The answer is dropped, because the command was detached.
    Discard,
}

/// Action that the closure `deliver` of [`Yields::complete`] must perform after an answer was accepted. Each action
/// except [`Discard`](Self::Discard) queues the process or wakes a future of the process.
#[must_use]
#[derive(Debug)]
pub(crate) enum Answered {
    /// Push the answer into the mailbox as an event with this tag.
    Event(Tag),
    /// Push this number of notices of the stream into the mailbox.
    Notices(usize),
    /// Wake the process's own task.
    Own,
    /// Call this waker.
    Other(Waker),
    /// Drop the answer, because the command was detached.
    Discard,
}

/// Action that the caller must take after it has sent an item of a stream.
#[must_use]
#[derive(Debug)]
pub(crate) enum Sent {
    /// Do nothing. The item is in the buffer, and no future waits for the item.
    Nothing,
    /// Push this number of notices into the mailbox.
    Notices(usize),
    /// Wake the process's own task.
    Own,
    /// Call this waker.
    Other(Waker),
}

/// Result of a pull by a future.
#[derive(Debug)]
pub(crate) enum Pulled {
    Item(Payload),
    /// The answer of the stream, after all items were pulled.
    End(Answer),
    /// There is neither an item nor an answer yet.
    Wait,
}

/// Source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answerer {
    /// The completion that the handler of the command received, or the `Reply` of a call. The answer has the reply type
    /// of the command. If the command has an answer state, the command was dispatched before its completion was
    /// created.
    Completion,
    /// Like `Completion`, but this answer always needs the lock.
    Observed,
    /// Another part of the runtime, for example the timer of a deadline. It is possible that the command was not
    /// dispatched yet. The answer has the reply type of the command.
    Runtime,
    /// Code of the application that knows the tag of the command. The answer may have a wrong type.
    Application,
}

/// Data of a yield. Only inspections read this data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct YieldInfo {
    /// Source line of the yield, if the line is known.
    pub(crate) line: Line,
    /// `Some` if the yield is a call of a hand-written process.
    pub(crate) call: Option<CallInfo>,
}

/// Data of a call that a hand-written process has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallInfo {
    /// Word of the callee's pid. The value is 0 if the callee is not known.
    pub(crate) callee: u64,
    /// Whether the process has set a time limit for the call.
    pub(crate) is_limited: bool,
}

impl YieldInfo {
    /// Creates the data of a yield that is not a call.
    pub(crate) fn at(line: Line) -> Self {
        Self { line, call: None }
    }
}

/// Reason why an answer was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    /// The command was already answered or cancelled, or its process accepts no more answers.
    Spent,
    /// No command ever had this tag. A chosen tag that is not in the table is also unknown.
    Unknown,
    /// The answer has the wrong type. The value is the name of the command's reply type.
    WrongType(&'static str),
}

/// The commands of one process.
#[derive(Debug)]
pub(crate) struct Yields {
    /// The table is allocated when the first command enters the table, because most processes never yield a command.
    /// Normally the process itself allocates the table, before another thread can know the tag of a command in the
    /// table. The cancellation of an inline command may also allocate the table.
    table: OnceBox<SharedTable>,
    /// Number of the next command. Only the process itself writes this number.
    issued: AtomicU64,
    /// Number of commands that were yielded, minus the number of commands that ended under the lock. The number wraps.
    /// The difference between this number and `SharedTable::answers` is the number of commands that wait for an answer.
    /// This number is written under the lock and read without the lock.
    flying: AtomicU32,
    /// Number of commands that will be dispatched at the end of the step. This number is written under the lock.
    pending: AtomicU32,
    /// Whether some answers must be discarded when they arrive. The flag is written under the lock. Only the process
    /// itself reads the flag, without the lock. An old value of the flag does no harm. Another thread sets the flag
    /// only for a command on the inline path. Such a command is checked under the lock when the command moves to the
    /// table.
    recalled: AtomicBool,
    /// Whether a pending command may already have ended, for example because it was cancelled.
    overtaken: AtomicBool,
    /// Whether the process has run its last step. After the last step, answers are discarded, but the commands of the
    /// step are still dispatched. The process itself sets this flag.
    over: AtomicBool,
    /// Low 32 bits of the number of the last dispatched command. Later commands have higher numbers.
    dispatched: AtomicU32,
}

/// The table with its lock, and the answer states. The lock does not protect the answer states.
///
/// A thread that answers without the lock writes only the state of the command and the field `answers`. The field
/// `answers` should not be in a cache line that the process uses for each command. Therefore, `answers` is the last
/// field, behind the rarely used fields of the table.
#[derive(Debug, Default)]
#[repr(C)]
struct SharedTable {
    states: AnswerStates,
    lock: Lock<Table>,
    /// Number of answers that were accepted without the lock. The number wraps.
    answers: AtomicU32,
}

/// The locked table of a process.
struct LockedTable<'a> {
    guard: LockGuard<'a, Table>,
    states: &'a AnswerStates,
}

impl LockedTable<'_> {
    /// Returns the slot of a command, and closes the answer state of the command. After this call, the command can be
    /// answered only under the lock.
    fn find(&mut self, tag: Tag) -> Option<(u32, &mut Slot)> {
        let (key, slot) = self.guard.find(tag)?;
        if self.states.close(tag) == Closed::Answered {
            slot.phase = Phase::Queued;
        }
        Some((key, slot))
    }
}

impl Deref for LockedTable<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.guard
    }
}

impl DerefMut for LockedTable<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.guard
    }
}

/// Adds `by` to a counter. The counter is written only under the lock. Therefore, no other thread writes the counter
/// between the load and the store.
fn count(counter: &AtomicU32, by: i32) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add_signed(by), Ordering::Relaxed);
}

/// Checks that an answer has the expected reply type. A failure is always accepted. If the reply of the command is
/// untyped, every reply is accepted.
fn check_type(answer: &Option<Answer>, types: TypesOf) -> Result<(), Late> {
    let YieldTypes { reply, reply_name, .. } = types();
    match answer {
        Some(Ok(payload)) if reply != TypeId::of::<Payload>() && payload.type_id() != reply => {
            Err(Late::WrongType(reply_name))
        }
        _ => Ok(()),
    }
}

impl Yields {
    pub(crate) fn new() -> Self {
        Self {
            table: OnceBox::new(),
            issued: AtomicU64::new(0),
            flying: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            recalled: AtomicBool::new(false),
            overtaken: AtomicBool::new(false),
            over: AtomicBool::new(false),
            // No command has been dispatched yet, and the first command will have the number 0. Therefore, the initial
            // value is the number before 0: `u32::MAX`.
            dispatched: AtomicU32::new(u32::MAX),
        }
    }

    fn table(&self) -> Option<LockedTable<'_>> {
        Some(self.lock(self.table.get()?))
    }

    fn lock<'a>(&'a self, table: &'a SharedTable) -> LockedTable<'a> {
        LockedTable { guard: table.lock.lock(), states: &table.states }
    }

    /// Locks the table. If there is no table yet, allocates the table first. If two threads call this function at the
    /// same time, both threads use the same table.
    fn own_table(&self) -> LockedTable<'_> {
        self.lock(self.table.get_or_init(Box::default))
    }

    /// Issues the number of a new command. The tag of a command on the inline path is [`Tag::inline`] of this number.
    /// Such a command is not in the table.
    #[inline]
    pub(crate) fn issue(&self) -> u64 {
        let number = self.issued.load(Ordering::Relaxed);
        self.issued.store(number + 1, Ordering::Relaxed);
        number
    }

    /// Registers a command of the type `C`, and returns its tag. The tag is the `chosen` tag or a new tag. If `command`
    /// is `Some`, the command is dispatched at the end of the step. If `buffer` is `Some`, the command is a stream.
    ///
    /// # Errors
    /// Returns `command` if another command with the chosen tag is already in the table.
    pub(crate) fn start<C: Command>(
        &self,
        target: AnswerTarget,
        chosen: Option<Tag<C>>,
        command: Option<Payload>,
        buffer: Option<Buffer>,
        info: YieldInfo,
    ) -> Result<Tag<C>, Option<Payload>> {
        let mut guard = self.own_table();
        let table = &mut guard;
        if let Some(tag) = chosen
            && table.key_of(tag.number).is_some()
        {
            return Err(command);
        }
        table.calls += u32::from(info.call.is_some());
        let tag = match chosen {
            Some(tag) => {
                let tag = tag.with_generation(self.issue());
                table.insert_by_number(Slot::in_flight::<C>(tag.number, target, buffer, info));
                tag
            }
            None => {
                let number = self.issue();
                // The answer of a stream and the answer for a future are stored in the slot, so these answers need
                // the lock. For a sleep or a call, `command` is `None`. An answer state would not make a sleep or a
                // call faster, because a timer answers a sleep, and each call has its own cell.
                let has_state = command.is_some() && buffer.is_none() && matches!(target, AnswerTarget::Event);
                let slot = Slot::in_flight::<C>(number, target, buffer, info);
                let tag = Tag::issued(number, table.slots.insert(slot));
                if has_state {
                    table.states.open(tag.erase());
                }
                tag
            }
        };
        count(&self.flying, 1);
        if let Some(command) = command {
            table.pending.push_back(Yield { tag: tag.erase(), command });
            self.note_pending(tag.erase());
        }
        Ok(tag)
    }

    /// Moves a command from the inline path to the table. If no handler has taken the command yet, `command` is `Some`,
    /// and the command is dispatched before all later commands. If the command was cancelled while it was on the inline
    /// path, the command does not enter the table, and the function returns false.
    pub(crate) fn admit<C: Command>(
        &self,
        tag: Tag<C>,
        target: AnswerTarget,
        command: Option<Payload>,
        line: Line,
    ) -> bool {
        let mut guard = self.own_table();
        let table = &mut guard;
        if self.was_cancelled_inline(table, tag.erase()) {
            drop(guard);
            drop((target, command));
            return false;
        }
        table.insert_by_number(Slot::in_flight::<C>(tag.number, target, None, YieldInfo::at(line)));
        count(&self.flying, 1);
        match command {
            Some(command) => {
                table.pending.push_front(Yield { tag: tag.erase(), command });
                self.note_pending(tag.erase());
            }
            None => self.dispatched.store(tag.number as u32, Ordering::Relaxed),
        }
        true
    }

    /// Begins to measure a command that has just entered the table. `since` is the time in ns at which the command was
    /// yielded. The caller is the process itself, and no handler can answer the command yet. If the command is not in
    /// the table, this function does nothing.
    #[cold]
    pub(crate) fn measure(&self, tag: Tag, since: u64) {
        if let Some(mut table) = self.table()
            && let Some((_, slot)) = table.find(tag)
        {
            let number = slot.number;
            table.measure(number, since);
        }
    }

    /// Moves the answer of an inline command into the table. This function is called if the turn ends before the future
    /// of the command has read the answer.
    ///
    /// # Errors
    /// Returns the answer if the command was cancelled before this call.
    pub(crate) fn admit_answer(&self, tag: Tag, answer: Answer) -> Result<(), Answer> {
        let mut guard = self.own_table();
        let table = &mut guard;
        if self.was_cancelled_inline(table, tag) {
            return Err(answer);
        }
        table.insert_by_number(Slot::new(tag.number, Phase::Answered(answer), types_of::<NamedCommand>));
        Ok(())
    }

    /// Returns whether a command was cancelled while it was on the inline path. Another thread or a nested turn may
    /// have cancelled the command.
    fn was_cancelled_inline(&self, table: &mut Table, tag: Tag) -> bool {
        let was = table.forget_recall(tag) && !planted!("yields_admit_what_was_cancelled");
        self.recalled.store(!table.recalled.is_empty(), Ordering::Relaxed);
        was
    }

    /// Returns whether there are commands that [`take_pending`](Self::take_pending) can take. Only the process's own
    /// thread adds commands.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Moves commands of the step into a batch, in order, and returns the number of these commands. Before the caller
    /// dispatches a command, the caller checks whether the command [has already ended](Self::is_overtaken). Therefore,
    /// a command that is yielded and cancelled in the same step never reaches its handler.
    pub(crate) fn take_pending(&self, batch: &mut Batch) -> usize {
        let Some(mut table) = self.table() else { return 0 };
        let count = table.pending.len().min(batch.len());
        for (slot, pending) in batch.iter_mut().zip(table.pending.drain(..count)) {
            *slot = Some(pending);
        }
        if table.pending.is_empty() && table.pending.capacity() > KEEP {
            table.pending = VecDeque::new();
        }
        self::count(&self.pending, -(count as i32));
        count
    }

    /// Returns whether a command ended before its dispatch. The command may have ended in the step that created it, or
    /// while the handlers of earlier commands ran. If the result is false, the caller dispatches the command now.
    #[inline]
    pub(crate) fn is_overtaken(&self, tag: Tag) -> bool {
        let ended = self.overtaken.load(Ordering::Relaxed) && !self.is_wanted(tag);
        if tag.is_chosen() {
            // The process chose the number of this tag. Therefore, a comparison with this number does not show which
            // commands were yielded later. The flag `overtaken` is set, so that each pending command is looked up in
            // the table before its dispatch.
            self.overtaken.store(true, Ordering::Relaxed);
        } else {
            self.dispatched.store(tag.number as u32, Ordering::Relaxed);
        }
        ended
    }

    /// After a dispatch, clears the flag `overtaken` if no other command is pending. Only a pending command can end
    /// before its dispatch.
    #[inline]
    pub(crate) fn forget_overtaken(&self) {
        if !self.has_pending() && self.overtaken.load(Ordering::Relaxed) {
            self.overtaken.store(false, Ordering::Relaxed);
        }
    }

    /// Counts a command that will be dispatched at the end of the step. The caller holds the lock.
    fn note_pending(&self, tag: Tag) {
        count(&self.pending, 1);
        // Calls, sleeps and inline commands also take numbers, but most of these numbers do not change `dispatched`.
        // Therefore, the 32-bit difference between the number of a new command and `dispatched` may wrap. In this case,
        // each pending command is looked up before its dispatch.
        if !tag.is_chosen() && !self.is_undispatched(tag) {
            self.overtaken.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a command that has ended. The caller holds the lock.
    fn ended(&self, tag: Tag) {
        count(&self.flying, -1);
        // Relaxed is sufficient. The process can read an old value of the flag only if the command ends concurrently
        // with the dispatch of the command. In this case, the effect is the same as if the command had ended after its
        // dispatch.
        if tag.is_chosen() || self.is_undispatched(tag) {
            self.overtaken.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a command was yielded after the last dispatched command. The tag of the command is not a chosen
    /// tag. The result may be wrong if the number of the command and the number of the last dispatched command differ
    /// by 2³¹ or more.
    fn is_undispatched(&self, tag: Tag) -> bool {
        (tag.number as u32).wrapping_sub(self.dispatched.load(Ordering::Relaxed)) as i32 > 0
    }

    /// Returns whether at least one command waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.outstanding() != 0
    }

    /// Returns the number of commands that wait for an answer. The result is exact if no command is yielded or answered
    /// during this call.
    pub(crate) fn outstanding(&self) -> usize {
        // The number of answers is read first. A command is counted in `flying` before the command is answered.
        // Therefore, `flying` minus the number of answers is negative only if the processor reorders the two loads.
        let answered = self.table.get().map_or(0, |table| table.answers.load(Ordering::Relaxed));
        let outstanding = self.flying.load(Ordering::Relaxed).wrapping_sub(answered);
        usize::try_from(outstanding as i32).unwrap_or(0)
    }

    /// Returns the reason why an answer is refused. The tag of the answer is not in the table.
    fn late(&self, tag: Tag) -> Late {
        // Relaxed is sufficient. A thread receives a tag only after the process has issued the number of the tag. The
        // transfer of the tag orders this load after the write of `issued`.
        let was_issued = !tag.is_chosen() && tag.serial() < self.issued.load(Ordering::Relaxed);
        if was_issued { Late::Spent } else { Late::Unknown }
    }

    /// Answers a command. At most one answer to a tag is accepted with `Ok`. This function calls `taken` before another
    /// thread can read the answer. If the command is measured, this function calls `measured` with the name of the
    /// command type and the time at which the command was yielded. If the table must store the answer, this function
    /// moves the answer out of `answer`.
    ///
    /// If the answer is accepted, this function calls `deliver`, and passes the action that `deliver` must perform.
    /// Unless this action is [`Answered::Discard`], `deliver` queues the process or wakes a future of the process.
    /// After that, this function wakes the tasks that wait for the end of the command. The waker of a waiting task may
    /// be foreign, and a foreign waker may block until the process has run. Therefore, these tasks are woken after the
    /// call of `deliver`.
    ///
    /// # Errors
    /// Returns the reason why the answer was refused. If the answer comes from the application, an answer of a wrong
    /// type is also refused. A refused answer stays in `answer`.
    pub(crate) fn complete(
        &self,
        tag: Tag,
        answer: &mut Option<Answer>,
        from: Answerer,
        taken: impl FnOnce(&dyn Fn() -> &'static str),
        measured: &dyn Fn(&'static str, u64),
        deliver: impl FnOnce(Answered, &mut Option<Answer>),
    ) -> Result<(), Late> {
        if self.is_over() {
            return Err(Late::Spent);
        }
        let Some(shared) = self.table.get() else { return Err(Late::Unknown) };
        if from == Answerer::Completion && shared.states.answer(tag) {
            shared.answers.fetch_add(1, Ordering::Relaxed);
            // This path does not hold the lock that protects the name of the command. No caller on this path records
            // the name: an observed process passes `Answerer::Observed`.
            taken(&|| "");
            deliver(Answered::Event(tag), answer);
            return Ok(());
        }
        let mut guard = self.lock(shared);
        let table = &mut guard;
        let Some((key, slot)) = table.find(tag) else { return Err(self.late(tag)) };
        if !slot.is_in_flight() && !planted!("yields_complete_twice") {
            return Err(Late::Spent);
        }
        if from == Answerer::Application {
            check_type(answer, slot.types)?;
        }
        // The tag that the application passed may have no generation.
        let tag = Tag::of_slot(slot.number, key);
        let (types, watchers) = (slot.types, mem::take(&mut slot.watchers));
        let sender = match &mut slot.buffer {
            None => None,
            Some(buffer) => buffer.take_waiting_sender(),
        };
        let Phase::InFlight(target) = mem::replace(&mut slot.phase, Phase::Queued) else {
            unreachable!("checked above")
        };
        let mut keep = || Phase::Answered(answer.take().expect("the caller passes an answer"));
        let answered = match (target, &mut slot.buffer) {
            (AnswerTarget::Event, None) => Answered::Event(tag),
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
            (AnswerTarget::Discard, _) => {
                drop(table.remove(key));
                Answered::Discard
            }
        };
        if table.measures_any() {
            table.report(tag.number, types, measured);
        }
        self.ended(tag);
        taken(&|| types().command_name);
        drop(guard);
        deliver(answered, answer);
        if !watchers.is_empty() || sender.is_some() {
            panic::wake_each(watchers.into_wakers().chain(sender));
        }
        Ok(())
    }

    /// Takes the answer for a future. If there is no answer yet, stores `target` as the target of the answer. Returns
    /// `None` if the tag is not in the table. In this case, code outside the future has cancelled the command.
    pub(crate) fn poll(&self, tag: Tag, target: AnswerTarget) -> Option<Result<Answer, ()>> {
        let mut guard = self.table()?;
        let table = &mut guard;
        let (key, slot) = table.find(tag)?;
        match &mut slot.phase {
            Phase::Answered(_) => {
                let Phase::Answered(answer) = table.remove(key).phase else { unreachable!("just seen") };
                Some(Ok(answer))
            }
            Phase::InFlight(former) => {
                let target = if planted!("yields_poll_forgets_waker") { target } else { mem::replace(former, target) };
                drop(guard);
                drop(target);
                Some(Err(()))
            }
            Phase::Queued => None,
        }
    }

    /// The process reads the answer to this command as an event. Returns whether the process still wants the answer. If
    /// the command was cancelled while the answer was in the mailbox, the process does not want the answer. If the
    /// command was not cancelled, its slot stays occupied until the command is [collected](Self::collect).
    #[inline]
    pub(crate) fn wants_answer(&self, tag: Tag) -> bool {
        !self.recalled.load(Ordering::Relaxed) || !self.was_recalled(tag)
    }

    #[cold]
    fn was_recalled(&self, tag: Tag) -> bool {
        let Some(mut guard) = self.table() else { return false };
        let table = &mut guard;
        let was = table.forget_recall(tag);
        self.recalled.store(!table.recalled.is_empty(), Ordering::Relaxed);
        was
    }

    /// Removes the commands with the tags `read` from the table. The process has read the answers to these commands
    /// as events.
    pub(crate) fn collect(&self, read: impl IntoIterator<Item = Tag>) {
        let Some(mut guard) = self.table() else { return };
        let table = &mut guard;
        for tag in read {
            match table.find(tag).map(|(key, _)| key) {
                // The slot of an answered command contains no watchers, and the answer was moved to the mailbox.
                // Therefore, no user code runs under the lock when the slot is dropped.
                Some(key) => drop(table.remove(key)),
                // The command was cancelled after its answer was read.
                None => drop(table.forget_recall(tag)),
            }
        }
        self.recalled.store(!table.recalled.is_empty(), Ordering::Relaxed);
    }

    // ---- Cancellation

    /// Detaches a command. The command continues, and its answer will be discarded.
    pub(crate) fn detach(&self, tag: Tag) {
        let Some(mut guard) = self.table() else { return };
        let table = &mut guard;
        let Some((key, slot)) = table.find(tag) else { return };
        if let Phase::InFlight(target) = &mut slot.phase {
            let former = mem::replace(target, AnswerTarget::Discard);
            drop(guard);
            drop(former);
        } else {
            let slot = table.remove(key);
            drop(guard);
            slot.release();
        }
    }

    /// Cancels a command. The answer to the command will be discarded, and the handler observes the cancellation.
    /// Returns whether the command was in flight. If the command was already answered and the answer was not read yet,
    /// the answer is also discarded. If the command is on the inline path of another thread or another turn, the
    /// cancellation takes effect when the command [moves to the table](Self::admit).
    pub(crate) fn cancel(&self, tag: Tag) -> bool {
        // A process has no table if all its commands so far took the inline path. The cancellation of an inline command
        // then allocates the table, because `admit` must find the record of the cancellation.
        let table = if tag.is_inline() { Some(self.own_table()) } else { self.table() };
        let Some(mut guard) = table else { return false };
        let table = &mut guard;
        let Some((key, _)) = table.find(tag) else {
            if tag.is_inline() {
                self.recall(table, tag);
            }
            return false;
        };
        let slot = table.remove(key);
        // A command that was not dispatched yet will not be dispatched, because its tag is no longer in the table. A
        // process may cancel very many commands with the same chosen tag before their dispatch. Therefore,
        // `remove_cancelled` counts the cancellations. If the number of cancellations exceeds half the number of
        // pending commands, `remove_cancelled` removes the cancelled commands with chosen tags.
        let undispatched = if tag.is_chosen() { table.remove_cancelled() } else { VecDeque::new() };
        count(&self.pending, -(undispatched.len() as i32));
        let flying = slot.is_in_flight();
        if flying {
            self.ended(tag);
        }
        if let Phase::Queued = slot.phase {
            self.recall(table, Tag::of_slot(slot.number, key));
        }
        drop(guard);
        undispatched.into_iter().for_each(|yielded| drop(panic::drop_caught(yielded)));
        slot.release();
        flying || planted!("yields_cancel_always_wins")
    }

    /// Records that the answer to a command must be discarded when the answer arrives.
    fn recall(&self, table: &mut Table, tag: Tag) {
        if !planted!("yields_cancel_forgets_event") {
            *table.recalled.entry(tag.number).or_default() += 1;
            self.recalled.store(true, Ordering::Relaxed);
        }
    }

    /// Adds the current generation to a tag that the process chose. The result refers to the command that has this tag
    /// now. Returns `None` if no command has the chosen tag now. Returns any other tag unchanged.
    pub(crate) fn with_current_generation(&self, tag: Tag) -> Option<Tag> {
        if !tag.is_chosen() {
            return Some(tag);
        }
        let mut table = self.table()?;
        let (key, slot) = table.find(tag)?;
        Some(Tag::of_slot(slot.number, key))
    }

    /// Records that the process has set a time limit for a yield. Inspections show the time limit of a call.
    pub(crate) fn note_limit(&self, tag: Tag) {
        let Some(mut table) = self.table() else { return };
        // A call has no answer state, so the state of the command is not closed here.
        if let Some((_, Slot { info: YieldInfo { call: Some(call), .. }, .. })) = table.guard.find(tag) {
            call.is_limited = true;
        }
    }

    /// Returns whether a command with this tag still waits for its answer.
    pub(crate) fn is_wanted(&self, tag: Tag) -> bool {
        let is_open = self.table.get().is_some_and(|table| table.states.is_open(tag));
        is_open || self.table().is_some_and(|mut table| table.find(tag).is_some_and(|(_, slot)| slot.is_in_flight()))
    }

    /// Returns whether the table contains a command with this tag. The command may be answered or unanswered.
    pub(crate) fn contains(&self, tag: Tag) -> bool {
        self.table().is_some_and(|mut table| table.find(tag).is_some())
    }

    /// Returns the same result as [`is_wanted`](Self::is_wanted). If the result is true, this function stores `watcher`
    /// in the entry of `key`, and `watcher` is woken when the command ends. A command ends with its answer, its
    /// cancellation or the exit of the process. All calls with the same `key` must have the same tag.
    pub(crate) fn watch(&self, tag: Tag, key: &mut WatchKey, watcher: &Waker) -> bool {
        // The waker is cloned outside the lock, because the clone runs user code. Therefore, the loop checks the slot
        // again after the clone.
        let mut fresh = None;
        loop {
            let Some(mut guard) = self.table() else { return false };
            let Some((_, slot)) = guard.find(tag).filter(|(_, slot)| slot.is_in_flight()) else { return false };
            let watchers = &mut slot.watchers;
            if watchers.knows(key, watcher) {
                return true;
            }
            if let Some(fresh) = fresh.take() {
                let former = watchers.set(key, fresh);
                drop(guard);
                drop(former);
                return true;
            }
            drop(guard);
            fresh = Some(watcher.clone());
        }
    }

    /// Removes the waker that [`watch`](Self::watch) has stored for `key`, if the command has not ended.
    pub(crate) fn unwatch(&self, tag: Tag, key: &mut WatchKey) {
        if !key.is_set() {
            return;
        }
        let Some(mut guard) = self.table() else { return };
        let former = guard.find(tag).and_then(|(_, slot)| slot.watchers.remove(key));
        drop(guard);
        // The drop of a waker runs user code.
        let _ = panic::drop_caught(former);
    }

    /// Refuses all answers from now on. This function is called after the last step of the process, because the process
    /// reads no more answers. This function does not cancel commands, so the runtime still dispatches the commands of
    /// the last step.
    pub(crate) fn end_answers(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Cancels all outstanding commands. The exit of the process calls this function. After this call, no command can
    /// be answered.
    pub(crate) fn close(&self) {
        let Some(mut guard) = self.table() else { return };
        let table = &mut guard;
        let mut slots = mem::take(&mut table.slots);
        table.calls = 0;
        if planted!("yields_close_keeps_slots") {
            mem::swap(&mut table.slots, &mut slots);
        }
        if !planted!("yields_close_keeps_states") {
            table.states.close_all();
        }
        let pending = mem::take(&mut table.pending);
        table.recalled.clear();
        table.keys.clear();
        self.pending.store(0, Ordering::Relaxed);
        drop(guard);
        pending.into_iter().for_each(|pending| drop(panic::drop_caught(pending)));
        Slot::release_all(slots.into_all());
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests;
