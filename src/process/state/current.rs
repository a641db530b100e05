//! The state of the current thread ([`Current`]). The state records the budget of the turn, and the process whose step
//! the thread runs. The function [`Current::steps`] returns whether the thread runs a step of a given process.
//!
//! There is one `Current` for each thread. The runtime's own functions receive the `Current` as a parameter. If a
//! future, a waker or a destructor of the user calls the runtime, the called function obtains the `Current` with
//! [`Current::with`]. All fields are cells, because turns nest: a step may call `block_on`, and `block_on` runs other
//! processes on the same thread. Because turns nest, no content of a cell is borrowed while user code runs.
//! [`Current::enter`] saves the state of the outer turn, and the guard of the inner turn restores this state.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::task::{Poll, Waker};

use crate::platform::clock::Instant;
use crate::platform::preempt;
use crate::platform::sync::{NeverDropped, thread, thread_local, with_undropped};
use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::process::state::deferred::Deferred;
use crate::process::state::handler_call::{HandlerCall, InterruptedCall};
use crate::process::state::inline_command::{InlineCommand, Inlined};
use crate::process::state::kept_timer::KeptTimer;
use crate::process::state::runnable::PendingSchedule;
use crate::process::state::skipped_turn::SkippedTurn;
use crate::process::state::upgrade_request::{self, UpgradeRequest};

/// Budget of a turn, in units. Each message that a body receives or sends with `send_wait` takes one unit. Each call of
/// [`should_yield`] that returns `false` also takes one unit. A future that does not wait takes one unit too, for
/// example a sleep whose deadline has already passed.
pub(crate) const BUDGET: u32 = 128;

/// Bits of [`Current::budget`] that contain the remaining units.
const UNITS_LEFT: u32 = 0xFFFF;
/// Value of one unit in the upper bits of [`Current::budget`]. The upper bits count the units that the mailbox of the
/// process took.
const MAILBOX_UNIT: u32 = UNITS_LEFT + 1;

/// Value of [`Current::seen`] before the first clock reading. The value is later than every clock reading.
const UNSEEN: u64 = Instant::FAR.ns();

/// The state of this thread.
///
/// The type is aligned to a cache line, because each message and each step read several fields. Without the alignment,
/// the linker might place a field across two cache lines, and a turn would then take 10 % longer.
#[repr(align(64))]
pub(crate) struct Current {
    /// Address of the control block of the process whose code runs now. The address identifies a process of this
    /// program as long as the process is alive. The value 0 means no process.
    process: Cell<usize>,
    /// Address of the control block of the process whose turn runs on this thread. In contrast to `process`, this field
    /// is also set while the turn polls the future of a handler.
    turn: Cell<usize>,
    pid: Cell<Option<Pid>>,
    /// Function that returns the name of the type of the process's code.
    code: Cell<fn() -> &'static str>,
    /// The remaining units of the turn, and the number of units that the mailbox of the process has taken: see
    /// [`UNITS_LEFT`] and [`MAILBOX_UNIT`].
    budget: Cell<u32>,
    /// Whether this thread polls a future of the runtime other than the body of a process: see
    /// [`with_budget`](Current::with_budget).
    polls_future: Cell<bool>,
    /// If this field is true, the next new future makes progress even if the budget is spent: see
    /// [`skips_pause`](Current::skips_pause).
    skips_pause: Cell<bool>,
    /// Events of this turn, as bits of [`note`]. The field is one byte wide. If the field were wider, a write might
    /// store only one byte of the field. The processor cannot forward one stored byte to a later read of the whole
    /// field, so this read would be slow.
    notes: Cell<u8>,
    /// True if the present step has checked whether it should yield. If the value is true, the note
    /// [`STEP_END`](note::STEP_END) is set.
    checks_yield: Cell<bool>,
    mailbox: Cell<MailboxNote>,
    /// Address of the `Head` of the process that ends on this thread. While this field is not 0, all values that are
    /// dropped on this thread belong to the process that ends. The value 0 means that no process ends.
    ends: Cell<usize>,
    /// Number of unread messages of the process in `ends` that were dropped so far.
    unread: Cell<usize>,
    /// The first clock reading of this turn, in nanoseconds of the runtime's clock. Before the first clock reading, the
    /// value is [`UNSEEN`].
    seen: Cell<u64>,
    /// The command of this turn that is on the inline path.
    pub(crate) inline: InlineCommand,
    /// The timer that the last sleep of this step left for the next sleep of the same process.
    pub(crate) timer: KeptTimer,
    /// Address of the control block to which the kept reference of this thread refers: see `host/refs.rs`. The value 0
    /// means that no reference is kept.
    pub(crate) kept_reference: Cell<usize>,
    /// The handler call that this thread runs.
    pub(crate) handler: HandlerCall,
    /// The request of the body that the current turn polls. With this request, the body asks its task to replace the
    /// body with other code.
    pub(crate) upgrade: UpgradeRequest,
    /// Deferred calls of user code. A deferred call runs when the outermost call returns.
    pub(crate) deferred: Deferred,
    /// The shard of the registries that this thread uses. The value `usize::MAX` means that the thread has not chosen a
    /// shard yet.
    pub(crate) shard: Cell<usize>,
    /// The incarnation of the simulation that this thread runs. The value 0 means no simulation.
    pub(crate) simulation: Cell<u32>,
    /// Pid and code name of the process that this thread drops outside any turn. If a panic aborts the program during
    /// the drop, the message of the abort names this process.
    pub(crate) dropped: Cell<Option<(Pid, &'static str)>>,
    /// A clock reading in ns, if the process has received all its messages and begins to wait for the next message. The
    /// clock was read before the mailbox was checked. Otherwise `None`. Only a trace reads this value.
    emptied_at: Cell<Option<u64>>,
    /// See [`last_skipped`](Current::last_skipped).
    last_skipped: Cell<SkippedTurn>,
    replies: NeverDropped<RefCell<Vec<DroppedReply>>>,
    /// If true, dropped replies are not stored: see [`block`](Self::block) and [`drop_others`](Self::drop_others).
    blocks: Cell<bool>,
    /// Saved states of the outer turns while a nested turn runs. The last entry is the state of the innermost outer
    /// turn.
    outer: NeverDropped<RefCell<Vec<Outer>>>,
}

/// Bits of [`Current::notes`]. Most steps set none of these bits.
mod note {
    /// A sleep of the process may leave a timer and a reference to the process for a later sleep. Until the step ends,
    /// a later sleep of the same process can reuse the timer and the reference. A reply that the step drops is stored.
    /// The note is set while the code of the process runs, and not set while the commands of the process are
    /// dispatched.
    pub(super) const KEEPS: u8 = 1;
    /// The process received an answer in its own turn.
    pub(super) const ANSWERED: u8 = 1 << 1;
    /// The process requested another step. Other processes may run before this step.
    pub(super) const AGAIN: u8 = 1 << 2;
    /// The runtime has work at the end of the step: replies were dropped during a step or an exit of the process, or
    /// the step has checked whether it should yield.
    pub(super) const STEP_END: u8 = 1 << 3;
    /// The process woke its own task.
    pub(super) const WOKEN: u8 = 1 << 4;
    /// No sleep may leave its timer for the next sleep. Either the steps of the process are counted, or the clock of
    /// the process is virtual.
    pub(super) const NO_TIMER: u8 = 1 << 5;
    /// The events of this turn are recorded for a trace.
    pub(super) const TRACED: u8 = 1 << 6;
    /// The events of this turn are not recorded for a trace, because the worker has reached the limit of the trace.
    pub(super) const SKIPPED: u8 = 1 << 7;
}

/// State of the mailbox when the receiver most recently checked the mailbox in this turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MailboxNote {
    /// The receiver does not wait, or the receiver waits while the slot is closed.
    Nothing,
    /// A sender delivered a message into the slot, and the receiver took this message. The mailbox still registers the
    /// receiver as waiting, although the receiver has not requested the next message yet.
    Delivered,
    /// The receiver requested a message, and waits while the slot is open to senders.
    Waits,
    /// The pending receive operation of the registered receiver was dropped. The slot is closed, or was opened in an
    /// earlier turn.
    Left,
    /// The receive operation of the registered receiver opened the slot in this turn, and was then dropped.
    LeftOpen,
}

thread_local! {
    static CURRENT: Current = const {
        Current {
            process: Cell::new(0),
            turn: Cell::new(0),
            pid: Cell::new(None),
            code: Cell::new(unknown),
            budget: Cell::new(BUDGET),
            polls_future: Cell::new(false),
            skips_pause: Cell::new(false),
            notes: Cell::new(0),
            checks_yield: Cell::new(false),
            mailbox: Cell::new(MailboxNote::Nothing),
            ends: Cell::new(0),
            unread: Cell::new(0),
            seen: Cell::new(UNSEEN),
            inline: InlineCommand::new(),
            timer: KeptTimer::new(),
            kept_reference: Cell::new(0),
            handler: HandlerCall::new(),
            upgrade: UpgradeRequest::new(),
            deferred: Deferred::new(),
            shard: Cell::new(usize::MAX),
            simulation: Cell::new(0),
            dropped: Cell::new(None),
            emptied_at: Cell::new(None),
            last_skipped: Cell::new(SkippedTurn::NONE),
            replies: NeverDropped::new(RefCell::new(Vec::new())),
            blocks: Cell::new(false),
            outer: NeverDropped::new(RefCell::new(Vec::new())),
        }
    };
}

fn unknown() -> &'static str {
    "unknown"
}

/// Saved state of an outer turn while a nested turn runs.
struct Outer {
    process: usize,
    turn: usize,
    pid: Option<Pid>,
    code: fn() -> &'static str,
    budget: u32,
    notes: u8,
    checks_yield: bool,
    mailbox: MailboxNote,
    inline: Option<Inlined>,
    upgrade: Option<Box<upgrade_request::Saved>>,
    handler: InterruptedCall,
    ends: usize,
    unread: usize,
    replies: Vec<DroppedReply>,
    blocks: bool,
}

/// Guard of a turn. When the guard is dropped, the turn ends. If the turn is nested in an outer turn, the guard then
/// restores the state of the outer turn.
#[must_use]
pub(crate) struct Guard<'a> {
    current: &'a Current,
    nested: bool,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.nested {
            return self.current.restore();
        }
        self.current.process.set(0);
        self.current.turn.set(0);
        self.current.pid.set(None);
    }
}

/// Proves that this thread has the right to run a process. The thread is in a turn of this process, is about to begin a
/// turn of this process, or ends the process without a turn.
///
/// The proof stays on the thread that created the proof, and is not kept after the turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InTurn(PhantomData<*const ()>);

impl InTurn {
    /// Creates the proof. Only [`RunnableProcess`](super::RunnableProcess), which is the right to run a process, calls
    /// this function. Files outside the folder `state` cannot call this function.
    #[inline]
    pub(super) fn of_right() -> Self {
        Self(PhantomData)
    }

    /// Creates the proof in a test or a model, in which one thread represents the process.
    #[cfg(any(test, procession_loom))]
    pub(crate) fn in_test() -> Self {
        Self(PhantomData)
    }
}

impl Current {
    /// Calls `f` with the state of this thread.
    #[inline]
    pub(crate) fn with<R>(f: impl FnOnce(&Self) -> R) -> R {
        with_undropped(&CURRENT, f)
    }

    /// Calls `f` with the state of this thread. Returns `None` if the state was already dropped. Code that may run
    /// while the thread exits must call this function, and not [`with`](Self::with). The state is dropped only under
    /// the model checkers.
    pub(crate) fn try_with<R>(f: impl FnOnce(&Self) -> R) -> Option<R> {
        CURRENT.try_with(f).ok()
    }

    // ---- Turns

    /// Begins a turn of the process with this control block. The turn ends when the guard is dropped. The function
    /// `code` returns the name of the type of the process's code. The proof `turn` belongs to this process, so
    /// [`in_step`](Self::in_step) may return this proof again until the guard is dropped.
    #[inline]
    pub(crate) fn enter(&self, _turn: InTurn, process: usize, pid: Pid, code: fn() -> &'static str) -> Guard<'_> {
        let nested = self.is_busy();
        if nested {
            self.save();
        }
        self.process.set(process);
        self.turn.set(process);
        self.pid.set(Some(pid));
        self.code.set(code);
        self.budget.set(BUDGET);
        self.seen.set(UNSEEN);
        self.notes.set(note::KEEPS);
        self.mailbox.set(MailboxNote::Nothing);
        Guard { current: self, nested }
    }

    /// Runs `f` as code that belongs to no turn. If a step blocks in `Runtime::block_on`, its thread runs other tasks
    /// of the runtime inside the turn of this step. The tasks without a process, the due timers and the wakers of
    /// sockets must not use the state of this turn. For example, if such a task drops a reply, the reply must not be
    /// kept until the end of the step. The reason is that the step may wait for this reply.
    #[inline]
    pub(crate) fn without_turn<T>(&self, f: impl FnOnce() -> T) -> T {
        if self.is_busy() { self.interrupt_turn(f) } else { f() }
    }

    /// Returns whether this thread is in a turn, ends a process, or runs a handler. If the result is true and another
    /// turn begins on this thread, the new turn must save and restore the state of this thread.
    ///
    /// The function reads `turn`, and not `process`. While a turn polls the future of a handler, the field `process`
    /// is 0 and the field `turn` is set. A process may also end outside any turn. In this case, only `ends` is set,
    /// and a destructor of this process may run other processes. The future of a handler may also be polled outside
    /// any turn, and may run processes in `Runtime::block_on`.
    #[inline]
    fn is_busy(&self) -> bool {
        self.turn.get() | self.ends.get() | usize::from(self.handler.is_running()) != 0
    }

    #[cold]
    fn interrupt_turn<T>(&self, f: impl FnOnce() -> T) -> T {
        self.save();
        let _turn = Guard { current: self, nested: true };
        self.process.set(0);
        self.turn.set(0);
        self.pid.set(None);
        self.notes.set(0);
        self.mailbox.set(MailboxNote::Nothing);
        f()
    }

    #[cold]
    fn save(&self) {
        let outer = Outer {
            process: self.process.get(),
            turn: self.turn.get(),
            pid: self.pid.get(),
            code: self.code.get(),
            budget: self.budget.get(),
            notes: self.notes.get(),
            checks_yield: self.checks_yield.replace(false),
            mailbox: self.mailbox.get(),
            inline: self.inline.take(),
            upgrade: self.upgrade.save(),
            handler: self.handler.interrupt(),
            ends: self.ends.replace(0),
            unread: self.unread.replace(0),
            replies: self.replies.take(),
            blocks: self.blocks.replace(false),
        };
        self.outer.borrow_mut().push(outer);
    }

    #[cold]
    fn restore(&self) {
        let outer = {
            let mut outers = self.outer.borrow_mut();
            let outer = outers.pop();
            if outers.is_empty() {
                // The memory of the list is freed here, because the end of the thread does not free this memory.
                *outers = Vec::new();
            }
            outer
        };
        let outer = outer.expect("saved when the turn began");
        self.process.set(outer.process);
        self.turn.set(outer.turn);
        self.pid.set(outer.pid);
        self.code.set(outer.code);
        self.budget.set(outer.budget);
        // The inner turn may have read the clock of another runtime, so the recorded time is no longer valid.
        self.seen.set(UNSEEN);
        self.notes.set(outer.notes);
        self.checks_yield.set(outer.checks_yield);
        self.mailbox.set(outer.mailbox);
        self.inline.restore(outer.inline);
        self.upgrade.restore(outer.upgrade);
        self.handler.resume(outer.handler);
        self.ends.set(outer.ends);
        self.unread.set(outer.unread);
        self.blocks.set(outer.blocks);
        let left = self.replies.replace(outer.replies);
        // Usually this list is empty, because the inner turn has already taken the replies that were dropped in the
        // inner turn.
        left.into_iter().for_each(|tell| tell(None));
    }

    /// Returns whether this thread runs a step of the process with this control block.
    #[inline]
    pub(crate) fn steps(&self, process: usize) -> bool {
        self.process.get() == process
    }

    /// If this thread [runs a step](Self::steps) of the process with this control block, returns the proof that
    /// [`enter`](Self::enter) received for this turn.
    #[inline]
    pub(crate) fn in_step(&self, process: usize) -> Option<InTurn> {
        self.steps(process).then_some(InTurn(PhantomData))
    }

    /// Returns whether this thread is in a turn of the process with this control block. If the turn polls the future of
    /// a handler, this poll is part of the turn. This function ignores the outer turns. If this function returns true,
    /// an answer to the process needs no wake-up.
    #[inline]
    pub(crate) fn is_in_turn_of(&self, process: usize) -> bool {
        self.turn.get() == process
    }

    /// Returns whether this thread runs a turn of the process with this control block. This function also checks the
    /// outer turns, because the present turn may be nested in an outer turn.
    pub(crate) fn is_in_any_turn_of(&self, process: usize) -> bool {
        self.is_in_turn_of(process) || self.outer.borrow().iter().any(|outer| outer.turn == process)
    }

    /// Returns the storage of the inline command if this thread is in a turn of the process with this control block.
    /// The check is necessary, because a tag identifies a command only within the process of the command.
    #[inline]
    pub(crate) fn inline_of(&self, process: usize) -> Option<&InlineCommand> {
        self.is_in_turn_of(process).then_some(&self.inline)
    }

    /// Runs `f` as code outside any process. The futures that `f` polls, and the messages that `f` sends, do not belong
    /// to the process of the current turn. `f` takes no units from the budget of this turn.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a Current, usize, Option<Pid>, u32, bool);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.process.set(self.1);
                self.0.pid.set(self.2);
                self.0.budget.set(self.3);
                self.0.polls_future.set(self.4);
            }
        }
        let (process, pid) = (self.process.replace(0), self.pid.replace(None));
        let _back = Back(self, process, pid, self.budget.get(), self.polls_future.replace(false));
        f()
    }

    /// Calls `poll` with a new budget. `poll` polls a future of the runtime other than the body of a process. Such a
    /// future is an async handler, a future of `spawn_future`, or the future of `block_on` or `run`.
    ///
    /// After the poll, the runtime runs other tasks, so each poll gets a new budget. A future that another executor
    /// polls outside the runtime has no budget, because no function of the runtime could refill this budget.
    pub(crate) fn with_budget<T>(&self, poll: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a Current, bool);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.polls_future.set(self.1);
            }
        }
        self.budget.set(BUDGET);
        let _back = Back(self, self.polls_future.replace(true));
        poll()
    }

    /// Returns the pid of the process whose step this thread runs.
    #[inline]
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid.get()
    }

    /// Returns the pid of the process whose step this thread runs, and the name of the code of this process.
    pub(crate) fn running(&self) -> Option<(Pid, &'static str)> {
        self.pid.get().map(|pid| (pid, (self.code.get())()))
    }

    /// Returns whether `waker` is the waker of the task whose step this thread runs. Any other waker belongs to a
    /// combinator.
    #[inline]
    pub(crate) fn is_own_waker(&self, waker: &Waker) -> bool {
        // The data pointer of a process's waker is the address of the control block. Outside a step, the address in
        // `process` is 0, and no waker of a process has this data pointer.
        self.steps(waker.data() as usize) && PendingSchedule::is_of_process(waker)
    }

    // ---- Notes of a turn

    #[inline]
    fn has(&self, note: u8) -> bool {
        self.notes.get() & note != 0
    }

    #[inline]
    fn note(&self, note: u8) {
        self.notes.set(self.notes.get() | note);
    }

    #[inline]
    fn take(&self, note: u8) -> bool {
        // In most calls the note is not set, and the field is not written.
        let is_set = self.has(note);
        if is_set {
            self.notes.set(self.notes.get() & !note);
        }
        is_set
    }

    /// Records that the process received an answer in its own turn. The turn then runs another step of the process,
    /// so the process needs no wake-up.
    #[inline]
    pub(crate) fn note_answered(&self) {
        self.note(note::ANSWERED);
    }

    /// Returns whether the process received an answer since the previous call of this function.
    #[inline]
    pub(crate) fn take_answered(&self) -> bool {
        self.take(note::ANSWERED)
    }

    /// Records that the process woke its own task. After this turn, the process gets another turn.
    #[inline]
    pub(crate) fn note_woken(&self) {
        self.note(note::WOKEN);
    }

    /// Clears two notes: the note that the process woke its own task, and the note that the process received an answer.
    /// Returns whether one of these notes was set. If so, the process gets another turn.
    #[inline]
    pub(crate) fn take_again(&self) -> bool {
        self.take(note::WOKEN | note::ANSWERED)
    }

    /// Records that the process requested another step, and that other processes may run before this step.
    #[inline]
    pub(crate) fn note_again(&self) {
        self.note(note::AGAIN);
    }

    /// Records a pause of the future that this thread polls. The future pauses because the budget is spent. If the
    /// future is the body of a process, the process requests another step. A pause of any other future changes no
    /// note of the turn.
    pub(crate) fn note_pause(&self) {
        if self.pid.get().is_some() {
            self.note_again();
        }
    }

    /// Returns whether the process requested another step in this turn.
    #[inline]
    pub(crate) fn wants_again(&self) -> bool {
        self.has(note::AGAIN)
    }

    /// Returns whether the process requested another step in this turn, and has also woken its own task. The two notes
    /// can differ: if a step polls [`yield_now`](crate::SelfHandle::yield_now) with a foreign waker, the request does
    /// not wake the task.
    #[inline]
    pub(crate) fn runs_again(&self) -> bool {
        const BOTH: u8 = note::AGAIN | note::WOKEN;
        self.notes.get() & BOTH == BOTH
    }

    /// Records that the trace must contain the events of this turn.
    pub(crate) fn note_traced(&self) {
        self.note(note::TRACED);
    }

    /// Records the end of a traced turn. If the process has received all its messages and waits for the next message,
    /// `emptied_at` is the clock reading before the check of the mailbox, in ns.
    pub(crate) fn note_emptied(&self, emptied_at: Option<u64>) {
        self.emptied_at.set(emptied_at);
    }

    /// Returns the value that [`note_emptied`](Self::note_emptied) has recorded at the end of this traced turn.
    pub(crate) fn emptied_at(&self) -> Option<u64> {
        self.emptied_at.get()
    }

    /// Returns whether the events of this turn are recorded for a trace. The result stays the same after the turn,
    /// until the next turn on this thread begins.
    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.has(note::TRACED)
    }

    /// Records that the trace must not contain the events of this turn, because the worker has reached the limit of the
    /// trace. The [last skipped turn](Self::last_skipped) is this turn or an earlier turn of the same period.
    #[inline]
    pub(crate) fn note_skipped(&self) {
        self.note(note::SKIPPED);
    }

    /// Returns the last turn that was skipped after a complete check, while this thread was in its present worker slot.
    #[inline]
    pub(crate) fn last_skipped(&self) -> SkippedTurn {
        self.last_skipped.get()
    }

    /// Sets the last skipped turn, and returns the previous one. A thread that enters or leaves a worker slot also
    /// calls this function.
    #[inline]
    pub(crate) fn replace_last_skipped(&self, skipped: SkippedTurn) -> SkippedTurn {
        self.last_skipped.replace(skipped)
    }

    /// Returns the number of the period of the last skipped turn, if the events of this turn are not recorded
    /// ([`note_skipped`](Self::note_skipped)). A busy worker does not record most turns. Therefore, an event of an
    /// unrecorded turn should cost only this check.
    #[inline]
    pub(crate) fn skipped_in() -> Option<u64> {
        let skipped = |current: &Self| {
            (current.has(note::SKIPPED) && current.pid.get().is_some()).then(|| current.last_skipped.get().period)
        };
        Self::try_with(skipped).flatten()
    }

    // ---- The mailbox of the process

    /// Records that the receiver took a delivered message. The receiver is still registered for the next message.
    #[inline]
    pub(crate) fn note_delivered(&self) {
        self.mailbox.set(MailboxNote::Delivered);
    }

    /// Returns whether the receiver took a delivered message and has not checked the mailbox since then.
    #[inline]
    pub(crate) fn has_taken_delivered(&self) -> bool {
        self.mailbox.get() == MailboxNote::Delivered
    }

    /// Records that a pending receive operation was dropped. The receiver is still registered.
    pub(crate) fn note_left(&self) {
        self.mailbox.set(match self.mailbox.get() {
            MailboxNote::Delivered => MailboxNote::Delivered,
            MailboxNote::Waits | MailboxNote::LeftOpen => MailboxNote::LeftOpen,
            MailboxNote::Nothing | MailboxNote::Left => MailboxNote::Left,
        });
    }

    /// Returns true if a receiver may still be registered in the mailbox although no receive operation waits.
    #[inline]
    pub(crate) fn has_stale_receiver(&self) -> bool {
        !matches!(self.mailbox.get(), MailboxNote::Nothing | MailboxNote::Waits)
    }

    /// Records the state of the receiver. If `waits` is true, the receiver requested a message, and waits while the
    /// slot is open.
    #[inline]
    pub(crate) fn note_waits_for_message(&self, waits: bool) {
        self.mailbox.set(if waits { MailboxNote::Waits } else { MailboxNote::Nothing });
    }

    /// Returns whether the receiver has opened the slot in this turn, and is still registered.
    #[inline]
    pub(crate) fn waits_for_message(&self) -> bool {
        matches!(self.mailbox.get(), MailboxNote::Waits | MailboxNote::LeftOpen)
    }

    /// Deletes the note about the mailbox. Each receive operation on the mailbox of the process begins with this call.
    #[inline]
    pub(crate) fn looks_into_mailbox(&self) {
        self.mailbox.set(MailboxNote::Nothing);
    }

    // ---- Time

    /// Records a clock reading. If this turn has already recorded a clock reading, this function does nothing.
    #[inline]
    pub(crate) fn saw(&self, now: Instant) {
        if self.seen.get() == UNSEEN {
            self.seen.set(now.ns());
        }
    }

    /// Returns whether this turn has recorded a clock reading ([`saw`](Self::saw)) that is earlier than `at`.
    #[inline]
    pub(crate) fn has_seen_before(&self, at: Instant) -> bool {
        self.seen.get() < at.ns()
    }

    /// In this turn, the sleeps of the process must not leave a timer for a later sleep. If a sleep left its timer, the
    /// timer would stay set, and might cause an unnecessary wake-up of the process.
    pub(crate) fn forbid_kept_timers(&self) {
        self.note(note::NO_TIMER);
    }

    /// Returns whether a sleep may reuse a timer of the process with this control block. The sleep is polled with
    /// `waker`. The result is true if four conditions hold: the thread runs a step of the process, `waker` is the waker
    /// of the process's task, the steps of the process are not counted, and the clock of the process is real.
    #[inline]
    pub(crate) fn may_take_timer(&self, process: usize, waker: &Waker) -> bool {
        self.steps(process) && self.is_own_waker(waker) && !self.has(note::NO_TIMER)
    }

    /// Begins the period in which a sleep of the process may leave a timer and a reference to the process on this
    /// thread. A reply that is dropped in this period is stored. The call of [`end_keeping`](Self::end_keeping) ends
    /// this period.
    #[inline]
    pub(crate) fn begin_keeping(&self) {
        self.note(note::KEEPS);
    }

    /// Ends the period in which a sleep may leave a timer and a reference to the process. Returns whether the
    /// thread-local state holds a timer or a reference that a sleep has left. If this thread keeps a timer of this
    /// process, the caller cancels this timer. If this thread keeps a reference of this process, the caller drops this
    /// reference.
    #[inline]
    pub(crate) fn end_keeping(&self) -> bool {
        self.notes.set(self.notes.get() & !note::KEEPS);
        self.timer.is_kept() || self.kept_reference.get() != 0
    }

    /// Returns whether a sleep of the process with this control block may leave a timer and a reference to the process
    /// on this thread.
    #[inline]
    pub(crate) fn may_keep(&self, process: usize) -> bool {
        self.steps(process) && self.has(note::KEEPS)
    }

    // ---- The budget

    /// Takes one unit from the budget. Returns false if the budget is used up.
    #[inline]
    pub(crate) fn spend(&self) -> bool {
        if self.is_spent() {
            return false;
        }
        self.budget.set(self.budget.get() - 1);
        true
    }

    /// Does the same as [`spend`](Self::spend), for the mailbox of the process. The unit counts as progress of this
    /// mailbox: see [`has_received`](Self::has_received).
    #[inline]
    pub(crate) fn spend_for_mailbox(&self) -> bool {
        if self.is_spent() {
            return false;
        }
        self.budget.set(self.budget.get() - 1 + MAILBOX_UNIT);
        true
    }

    /// Returns whether the mailbox of the process has taken a unit in this turn.
    pub(crate) fn has_received(&self) -> bool {
        self.budget.get() >= MAILBOX_UNIT
    }

    /// Returns whether no unit of the budget is left.
    #[inline]
    fn is_spent(&self) -> bool {
        self.budget.get() & UNITS_LEFT == 0
    }

    /// Returns whether the code that runs on this thread takes units from a budget.
    #[inline]
    pub(crate) fn has_budget(&self) -> bool {
        self.pid.get().is_some() || self.polls_future.get()
    }

    /// Takes one unit from the budget for an operation of a future. Returns `Pending` if the budget is spent or the
    /// process was asked to yield. Otherwise returns whether a unit was taken. Without a budget, no unit is taken.
    pub(crate) fn poll_spend(&self) -> Poll<bool> {
        if !self.has_budget() {
            return Poll::Ready(false);
        }
        let yields = if self.pid.get().is_some() { self.should_yield() } else { !self.spend() };
        if yields { Poll::Pending } else { Poll::Ready(true) }
    }

    /// Returns whether a new future makes progress although the budget is spent. If the budget is spent, the results of
    /// successive calls on a thread alternate between false and true. The next result is stored for the thread, and not
    /// for the turn. Therefore, a call in another turn changes the next result. The only effect is that a different
    /// future pauses first.
    pub(crate) fn skips_pause(&self) -> bool {
        self.is_spent() && self.replace_skips_pause(!self.skips_pause.get())
    }

    /// Sets the next result of [`skips_pause`](Self::skips_pause), and returns the previous value. Each simulation has
    /// its own value, so that a run does not depend on earlier runs on the same thread.
    pub(crate) fn replace_skips_pause(&self, skips: bool) -> bool {
        self.skips_pause.replace(skips)
    }

    /// Gives back one unit that [`poll_spend`](Self::poll_spend) took.
    pub(crate) fn refund(&self) {
        let budget = self.budget.get();
        if budget & UNITS_LEFT < BUDGET {
            self.budget.set(budget + 1);
        }
    }

    /// Records a yield check in the code of the process: a call of [`should_yield`], or a poll of a future of
    /// [`cooperative`](crate::cooperative()). The other futures that take units of the budget do not call this
    /// function, because the call would make these futures slower.
    #[inline]
    pub(crate) fn note_yield_check(&self) {
        // Without this condition, a yield check in a handler, or in a destructor that runs outside a step, would set
        // the note `STEP_END`. The note would then still be set after the end of the turn.
        if self.has(note::KEEPS) && self.pid.get().is_some() {
            self.checks_yield.set(true);
            self.note(note::STEP_END);
        }
    }

    /// Implements the function [`should_yield`].
    pub(crate) fn should_yield(&self) -> bool {
        let Some(pid) = self.pid() else { return false };
        if preempt::take(pid.word()) {
            self.budget.set(self.budget.get() & !UNITS_LEFT);
        }
        !self.spend()
    }

    // ---- Replies that are dropped with a process

    /// Begins a period in which all values that are dropped on this thread belong to a process that ends. The period
    /// ends when the guard is dropped. The caller then calls [`take_step_end`](Self::take_step_end).
    #[inline]
    pub(crate) fn ending(&self, head: usize) -> Ending<'_> {
        Ending { current: self, outer: (self.ends.replace(head), self.unread.replace(0)) }
    }

    /// Counts messages that a process has accepted and not read. The messages are counted only if this thread currently
    /// [ends](Self::ending) this process.
    pub(crate) fn count_unread(&self, head: usize, messages: usize) {
        if self.ends.get() == head {
            self.unread.set(self.unread.get() + messages);
        }
    }

    /// Takes the events that must be handled at the end of a step or of the process. At the end of most steps, there is
    /// no event to handle.
    #[inline]
    pub(crate) fn take_step_end(&self) -> Option<StepEnd> {
        self.take(note::STEP_END).then(|| self.step_end())
    }

    #[cold]
    fn step_end(&self) -> StepEnd {
        StepEnd { checks_yield: self.checks_yield.take(), dropped_replies: self.replies.take() }
    }

    /// Begins a period in which a function of this crate blocks this thread. The period ends when the guard is dropped.
    /// If the step has dropped a reply, the blocking function may wait for the caller of this reply. Therefore, `block`
    /// notifies the callers of the dropped replies now, and a reply that the step drops in the period is not stored.
    /// During an unwinding or an exit, the exit is already certain, so this function does nothing.
    #[inline]
    pub(crate) fn block(&self) -> UnstoredReplies {
        let is_step = self.turn.get() != 0 && self.ends.get() == 0 && !thread::panicking();
        UnstoredReplies { outer: is_step.then(|| self.block_step()) }
    }

    /// Begins a period in which a reply that this thread drops is not stored, because the reply does not belong to the
    /// step. The period ends when the guard is dropped.
    #[inline]
    pub(crate) fn drop_others(&self) -> UnstoredReplies {
        UnstoredReplies { outer: Some(self.blocks.replace(true)) }
    }

    #[cold]
    fn block_step(&self) -> bool {
        // The functions below call wakers of the user, and these wakers may drop further replies. Therefore the flag is
        // set first.
        let outer = self.blocks.replace(true);
        let dropped = self.replies.take();
        dropped.into_iter().for_each(|tell| tell(None));
        outer
    }

    /// Stores a dropped reply for [`take_step_end`](Self::take_step_end). A reply that a step drops is stored, because
    /// the step may end the process: a body drops its local variables before the exit of the process is known. A reply
    /// is also stored if this thread drops the values of a process that ends. A reply that a handler drops between two
    /// steps is not stored, because the process may get no further step.
    ///
    /// # Errors
    /// Returns the reply if it was not stored.
    pub(crate) fn keep_dropped_reply<T: 'static>(
        &self,
        reply: T,
        tell: impl FnOnce(T, Option<&Exit>) + 'static,
    ) -> Result<(), T> {
        let in_step = || {
            let waits = self.blocks.get() && !thread::panicking();
            self.pid.get().is_some() && self.has(note::KEEPS) && !waits
        };
        if self.ends.get() == 0 && !in_step() {
            return Err(reply);
        }
        self.replies.borrow_mut().push(Box::new(move |exit| tell(reply, exit)));
        self.note(note::STEP_END);
        Ok(())
    }
}

/// Guard of a period in which dropped replies are not stored: see [`Current::block`] and [`Current::drop_others`].
#[must_use]
pub(crate) struct UnstoredReplies {
    /// Value of [`Current::blocks`] before the period. `None` outside a step.
    outer: Option<bool>,
}

impl Drop for UnstoredReplies {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            Current::with(|current| current.blocks.set(outer));
        }
    }
}

/// Guard of a period that [`Current::ending`] has begun. The period ends when the guard is dropped.
#[must_use]
pub(crate) struct Ending<'a> {
    current: &'a Current,
    outer: (usize, usize),
}

impl Ending<'_> {
    /// Returns the number of messages that were counted as unread.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        self.current.unread.get()
    }
}

impl Drop for Ending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.current.ends.set(self.outer.0);
        self.current.unread.set(self.outer.1);
    }
}

/// Events of a step: see [`Current::take_step_end`].
#[must_use]
pub(crate) struct StepEnd {
    /// True if the step has checked whether it should yield.
    pub(crate) checks_yield: bool,
    /// The replies that were dropped during the step or the exit.
    pub(crate) dropped_replies: Vec<DroppedReply>,
}

/// A reply that was dropped in a step of a process or during the exit of the process. When the exit of the process is
/// known, the runtime calls this function with the exit. The function then passes the exit to the task that waits for
/// the reply. If the process continues after the step, the runtime calls this function with `None`.
pub(crate) type DroppedReply = Box<dyn FnOnce(Option<&Exit>)>;

/// Returns whether the running process should let other processes run now.
///
/// The function returns `true` for one of three reasons:
///
/// - The budget of the turn is used up.
/// - The step has taken longer than half of [`Builder::long_step_threshold`](crate::Builder::long_step_threshold), and
///   the runtime has asked the process to let other processes run.
/// - [`Host::preempt`](crate::Host::preempt) was called.
///
/// After the first `true`, the function returns `true` until the turn ends. There are two exceptions: the step calls
/// [`block_on`](crate::Runtime::block_on), or polls a future of this crate that took a unit and then waits.
///
/// The budget of a turn is 128 units, and each call takes one unit. Therefore, a loop that calls the function once for
/// each small piece of work gets `true` after at most 128 pieces. An async body then awaits
/// [`yield_now`](crate::SelfHandle::yield_now). A hand-written process returns [`Next::Again`](crate::Next::Again).
/// Outside a process, the function always returns `false`.
///
/// Almost all futures of this crate also take a unit if they do not wait. Examples are a receive, a send with
/// [`send_wait`](crate::Address::send_wait), a socket operation, an item of a stream, a sleep whose time has passed,
/// the join of a process that has exited, and a refused call. If the budget is used up, each of these futures is
/// pending until the next turn, although the result of the future is ready. Therefore a single poll of one of these
/// futures, for example with `now_or_never`, may miss the result.
///
/// ```
/// # use procession::{Context, Exit};
/// async fn sum(ctx: Context) -> Result<u64, Exit> {
///     let mut sum = 0;
///     for n in 0..10_000_u64 {
///         sum += n;
///         if procession::should_yield() {
///             ctx.yield_now().await;
///         }
///     }
///     Ok(sum)
/// }
/// # let rt = procession::Runtime::new()?;
/// # assert_eq!(rt.block_on(rt.spawn(sum))?, 49_995_000);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "if the result is true, the process should end its turn, for example with `yield_now`"]
pub fn should_yield() -> bool {
    Current::with(|current| {
        current.note_yield_check();
        current.should_yield()
    })
}
