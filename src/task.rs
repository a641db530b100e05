//! The turns and the exit of a process. A turn runs a step of the process's machine, which is a hand-written process or
//! an async body. Then the turn dispatches the commands that the step yielded. If handlers answer these commands within
//! the turn, the turn runs another step. `host/exit.rs` defines the order of the steps of an exit. This module
//! implements the exit steps that need the machine.
//!
//! The files of this folder import from `context`, and from all folders from which `context` imports. The code of this
//! folder chooses neither a worker nor a queue. If a process needs another turn, `cell.rs` returns the process to the
//! caller of the turn, and this caller queues the process.

pub(crate) mod body;
pub(crate) mod cell;
pub(crate) mod effects;
pub(crate) mod hand_written;
pub(crate) mod join;
pub(crate) mod monitored;
pub(crate) mod spawn;
pub(crate) mod upgrade;

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::context::me::SelfHandle;
use crate::context::step::Next;
use crate::host::control::{AnyControl, Control, Head, flag};
use crate::host::exit::ExitOwner;
use crate::observe::ProcessState;
use crate::observe::crash::LastState;
use crate::process::catch as panic;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::InitError;
use crate::process::exit::{Exit, Reason};
use crate::process::payload::Payload;
use crate::process::state::current::{Current, Ending, InTurn};
use crate::process::state::{Ref, RunnableProcess};
use crate::task::effects::{Around, StepPermit};

/// Maximum number of steps in one turn. A turn has more than one step only if handlers answer commands of the process
/// within the turn.
const ANSWERED_IN_TURN: u32 = 32;

/// The code that a task runs: a hand-written process or an async body. A machine is pinned, because the future of a
/// body must not move.
///
/// The future of a body may contain mutable references to its own fields. Under the rules of Tree Borrows, a shared
/// reference to the machine would forbid later writes through these mutable references. Therefore, after the first turn
/// has begun, each method gets a `Pin<&mut Self>`.
pub(crate) trait Machine {
    type Message: Send + 'static;
    type Output: Send + 'static;

    /// Returns the type name of the user's code. Messages about the process contain this name.
    fn name() -> &'static str;

    /// Returns the entry point of a process that has not begun its first turn. The name is empty if the process has
    /// no entry point.
    fn entry_name(&self) -> &str {
        ""
    }

    /// Whether the machine keeps a reference to its own process.
    const KEEPS_ITSELF: bool;

    /// Stores `own`, a reference to the machine's own process. This method is called before the first turn, and only if
    /// [`KEEPS_ITSELF`](Self::KEEPS_ITSELF) is true.
    fn keep(self: Pin<&mut Self>, own: Ref<Control<Self::Message>>);

    /// Returns the progress of the machine.
    fn progress(self: Pin<&mut Self>) -> Progress;

    /// Initializes the machine in its first turn. This method is called only if the progress of the machine is
    /// [`NeedsInit`](Progress::NeedsInit). If the initialization fails, [`close`](Self::close) does not call the user's
    /// code.
    fn init(self: Pin<&mut Self>, me: &SelfHandle<Self::Message>) -> Result<(), InitError>;

    fn step(
        self: Pin<&mut Self>,
        current: &Current,
        me: &SelfHandle<Self::Message>,
        cx: &mut Context<'_>,
    ) -> Result<Next<Self::Output>, Exit>;

    fn close(self: Pin<&mut Self>);

    /// Drops the user's state. If the process has taken messages out of its mailbox and has not read them, these
    /// messages become dead letters.
    fn clear(self: Pin<&mut Self>, me: &SelfHandle<Self::Message>);

    /// Notifies the parent, if the parent monitors the process from the start ([`Monitored`](monitored::Monitored)).
    /// This call is step 12 of the exit. Before this step, all linked processes and all other monitoring processes have
    /// received the exit.
    #[inline]
    fn ended(self: Pin<&mut Self>, _: &SelfHandle<Self::Message>, _: &Exit) {}
}

/// Progress of a [`Machine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The machine has not begun its first turn, and needs no [`init`](Machine::init).
    Fresh,
    /// The machine has not begun its first turn. The first turn must call [`init`](Machine::init).
    NeedsInit,
    /// The machine has begun its first turn.
    Begun,
    /// The machine was [cleared](Machine::clear).
    Gone,
}

impl Progress {
    fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh | Self::NeedsInit)
    }
}

/// Entry point and input of a process.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: std::borrow::Cow<'static, str>,
    pub(crate) input: Option<Payload>,
}

/// Access to the machine of a process. In a build with debug assertions, the turn and the exit call the machine through
/// a trait object of this trait: see [`of_turn`]. An exit without a turn ([`give_up`]) uses a trait object in each build.
pub(crate) trait AnyMachine {
    /// Calls [`Machine::init`].
    fn init(&mut self) -> Result<(), InitError>;
    /// Calls [`Machine::step`]. If the step returns the output of the process, stores the output in the variable of
    /// [`TypedMachine`]. If the step fails, stores the exit in `failure`.
    fn step(&mut self, current: &Current, cx: &mut Context<'_>, failure: &mut Option<Exit>) -> StepResult;
    /// Drops the stored output. If the destructor of the output panics, catches the panic.
    fn drop_output(&mut self);
    /// Calls [`Machine::close`].
    fn close(&mut self);
    /// Calls [`Machine::clear`].
    fn clear(&mut self);
    /// Calls [`Machine::ended`].
    fn ended(&mut self, exit: &Exit);
}

/// The machine of a process, together with the type of the machine. The caller of the turn provides the variable for
/// the output of the process. Therefore, the return of a turn does not copy the output.
pub(crate) struct TypedMachine<'a, X: Machine> {
    machine: Pin<&'a mut X>,
    me: &'a SelfHandle<X::Message>,
    output: &'a mut Option<X::Output>,
}

impl<'a, X: Machine> TypedMachine<'a, X> {
    pub(crate) fn new(
        machine: Pin<&'a mut X>,
        me: &'a SelfHandle<X::Message>,
        output: &'a mut Option<X::Output>,
    ) -> Self {
        Self { machine, me, output }
    }
}

impl<X: Machine> AnyMachine for TypedMachine<'_, X> {
    #[inline]
    fn init(&mut self) -> Result<(), InitError> {
        self.machine.as_mut().init(self.me)
    }

    #[inline]
    fn step(&mut self, current: &Current, cx: &mut Context<'_>, failure: &mut Option<Exit>) -> StepResult {
        match self.machine.as_mut().step(current, self.me, cx) {
            Ok(Next::Wait) => StepResult::Waits,
            Ok(Next::Again) => StepResult::Again,
            Ok(Next::Done(output)) => {
                *self.output = Some(output);
                StepResult::Ended
            }
            Err(exit) => StepResult::failed(failure, exit),
        }
    }

    fn drop_output(&mut self) {
        let _ = drop_caught(self.output.take());
    }

    fn close(&mut self) {
        self.machine.as_mut().close();
    }

    fn clear(&mut self) {
        self.machine.as_mut().clear(self.me);
    }

    fn ended(&mut self, exit: &Exit) {
        self.machine.as_mut().ended(self.me, exit);
    }
}

/// Returns the argument of [`turn`] for a machine. In a build with debug assertions, the argument is a trait object.
/// Therefore, the compiler compiles the code of the turn and of the exit once in each crate, and not once for each
/// process type: a debug build of a program with 200 process types takes half of the CPU time.
#[cfg(debug_assertions)]
#[inline]
pub(crate) fn of_turn<'s, X: Machine>(machine: &'s mut TypedMachine<'_, X>) -> &'s mut dyn AnyMachine {
    machine
}

/// Returns the argument of [`turn`] for a machine. In a build without debug assertions, the argument has the type of
/// the machine. The compiler then inlines the code of the body into the code of the turn.
/// `benches/neighbours/README.md` states the cost of a trait object.
#[cfg(not(debug_assertions))]
#[inline]
pub(crate) fn of_turn<'s, 'm, X: Machine>(machine: &'s mut TypedMachine<'m, X>) -> &'s mut TypedMachine<'m, X> {
    machine
}

/// A turn of a process.
struct Turn<'a, A: ?Sized> {
    current: &'a Current,
    machine: &'a mut A,
    around: Around<'a>,
    /// Proof that this thread has the right to run the process.
    turn: InTurn,
    /// The exit of a process that has failed. If the process has ended and this field is `None`, the [`TypedMachine`]
    /// has stored the output of the process.
    failure: &'a mut Option<Exit>,
    /// Whether this turn owns the reference count that belonged to the pid table. When the exit removes the pid from
    /// the table, the turn takes over this count. If this field is true, the owner of the right to run the process
    /// releases this count together with the count of the right to run.
    left: bool,
}

/// Result of a turn.
#[derive(Debug)]
pub(crate) enum TurnOutcome {
    Waits,
    /// The process waits for a message, and its mailbox slot is open to senders.
    WaitsOpen,
    /// The process needs another turn.
    Again,
    /// The process has exited. If the `bool` is true, the turn has taken over the reference count that the pid table
    /// owned. The caller must release this count: see [`Turn::left`](Turn::left).
    Over(bool),
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepResult {
    Waits,
    Again,
    Ended,
}

impl StepResult {
    fn failed(failure: &mut Option<Exit>, exit: Exit) -> Self {
        *failure = Some(exit);
        Self::Ended
    }
}

impl<'a, A: AnyMachine + ?Sized> Turn<'a, A> {
    #[inline]
    fn new(
        current: &'a Current,
        machine: &'a mut A,
        head: &'a Head,
        own: &'a Ref<dyn AnyControl>,
        turn: InTurn,
        failure: &'a mut Option<Exit>,
    ) -> Self {
        Self { current, machine, around: Around::new(current, head, own), turn, failure, left: false }
    }

    fn head(&self) -> &'a Head {
        self.around.head()
    }

    fn init(&mut self) -> Result<(), Exit> {
        let Self { machine, around, .. } = self;
        around.init(&mut || machine.init())
    }

    /// Runs one step within the limits of the process, and dispatches the commands that the step yielded.
    #[inline]
    fn step(&mut self, flags: u16, cx: &mut Context<'_>) -> StepResult {
        let begun = if flags & flag::LIMITED == 0 {
            None
        } else {
            match self.around.begin_metered() {
                Ok(begun) => begun,
                Err(exit) => return StepResult::failed(self.failure, exit),
            }
        };
        // The step stores an outcome in the variables that the caller of `turn` provides. If the closure returned the
        // outcome, each step would copy memory of the size of an outcome, although most steps have no outcome.
        let stepped = catch(|| self.machine.step(self.current, cx, self.failure));
        // The call of `leave` comes before the dispatch. Therefore, if a handler drops a reply, the reply is not
        // stored, and the waiting caller is notified immediately.
        self.around.leave();
        let stepped = match stepped {
            // If the last step has dropped replies, these replies stay stored until step 7 of the exit.
            Ok(StepResult::Ended) => StepResult::Ended,
            Ok(stepped) => {
                self.around.end_step(None);
                stepped
            }
            Err(text) => StepResult::failed(self.failure, self.around.unwound(text)),
        };
        self.around.count_step();
        if stepped == StepResult::Ended {
            self.around.dispatch_last();
        } else {
            self.around.dispatch();
        }
        // If the limit of the running time ends the process here, `end_step` has already notified the callers of the
        // dropped replies.
        match begun {
            Some(begun) if stepped != StepResult::Ended => match self.around.end_metered(begun) {
                Ok(()) => stepped,
                Err(exit) => StepResult::failed(self.failure, exit),
            },
            _ => stepped,
        }
    }

    /// Runs the exit of the process: see `host/exit.rs` for the steps of an exit. Returns the final exit. If the user's
    /// code panics during this call, the panic replaces `exit`.
    fn end(&mut self, exit: Exit) -> Exit {
        let Self { current, around, turn, .. } = *self;
        let (machine, left) = (&mut *self.machine, &mut self.left);
        let mut owner = Exiting { current, machine, around, turn, left, ending: None, unread: 0 };
        around.own().run_exit(around.head(), &mut owner, exit)
    }

    /// Runs the exit of a process whose last step has returned.
    #[inline]
    fn end_stepped(&mut self) {
        if let Some(exit) = self.failure.take() {
            *self.failure = Some(self.end(exit));
            return;
        }
        match self.end(Exit::Normal) {
            Exit::Normal => {}
            exit => {
                self.machine.drop_output();
                *self.failure = Some(exit);
            }
        }
    }
}

/// A process during its exit.
struct Exiting<'t, 'a, A: ?Sized> {
    current: &'a Current,
    machine: &'t mut A,
    around: Around<'a>,
    turn: InTurn,
    /// The field [`Turn::left`] of the turn.
    left: &'t mut bool,
    /// While this field is `Some`, this thread stores each dropped [`Reply`](crate::Reply). Therefore, the waiting
    /// caller is notified of the exit.
    ending: Option<Ending<'a>>,
    /// Number of messages that the process did not read.
    unread: usize,
}

impl<A: AnyMachine + ?Sized> ExitOwner for Exiting<'_, '_, A> {
    #[inline]
    fn in_turn(&self) -> Option<InTurn> {
        Some(self.turn)
    }

    #[inline]
    fn close(&mut self, exit: &mut Exit) {
        if self.current.steps(self.around.address()) {
            self.current.begin_keeping();
        }
        if let Err(text) = catch(|| self.machine.close()) {
            let _ = drop_caught(std::mem::replace(exit, self.around.panicked(text)));
        }
    }

    #[inline]
    fn drop_state(&mut self, exit: &mut Exit) {
        let Self { current, around, .. } = *self;
        self.ending = Some(current.ending(around.head().address()));
        // A process may be dropped outside its own turns, for example in the turn of another process. In this case, the
        // timer and the inline command of this thread do not belong to the dropped process.
        let in_turn = current.steps(around.address());
        if let Err(text) = catch(|| self.machine.clear()) {
            let _ = drop_caught(std::mem::replace(exit, around.panicked(text)));
        }
        if in_turn {
            if current.inline.is_busy() && current.inline.offered().is_none() {
                let _ = drop_caught(current.inline.take());
            }
            around.leave();
            if around.head().yields_if_any().is_some() {
                // `close` and the destructors of the state may have yielded commands. If a handler of these commands
                // drops a reply, this reply does not belong to the process.
                let _handlers = current.ending(0);
                around.dispatch_last();
            }
        }
    }

    #[inline]
    fn take_entry(&mut self, entry: Option<Ref<dyn AnyControl>>) {
        *self.left = entry.map(std::mem::forget).is_some();
    }

    #[inline]
    fn notify_callers(&mut self, exit: &Exit) {
        self.unread = self.ending.as_ref().map_or(0, Ending::unread);
        // The notification may run a waker of the user. If this waker drops a reply, this reply belongs to another
        // process.
        self.ending = None;
        self.around.end_step(Some(exit));
    }

    #[cold]
    fn close_timers(&mut self, exit: &Exit, close: &dyn Fn()) {
        let ending = self.current.ending(self.around.head().address());
        close();
        drop(ending);
        self.around.end_step(Some(exit));
    }

    #[inline]
    fn last_state(&self, name: Option<std::borrow::Cow<'static, str>>) -> Option<LastState> {
        Some(LastState { name, type_name: self.around.type_name(), unread: self.unread })
    }

    #[inline]
    fn notify_monitor(&mut self, exit: &Exit) {
        self.machine.ended(exit);
    }

    #[inline]
    fn may_be_awaited(&self) -> bool {
        self.around.references() > 1 + usize::from(*self.left)
    }
}

/// Runs a turn of a process. If the process fails, stores its exit in `failure`. `progress` is the present progress of
/// the machine. `own` refers to the process, and `head` is the head of this process. The function [`of_turn`] returns
/// the argument for `machine`.
#[inline]
pub(crate) fn turn<A: AnyMachine + ?Sized>(
    machine: &mut A,
    progress: Progress,
    head: &Head,
    own: &Ref<dyn AnyControl>,
    ready: &RunnableProcess,
    failure: &mut Option<Exit>,
) -> TurnOutcome {
    let (turn, waker) = (ready.in_turn(), ready.waker());
    let cx = &mut Context::from_waker(&waker);
    Current::with(|current| {
        let mut this = Turn::new(current, machine, head, own, turn, failure);
        let _guard = current.enter(turn, this.around.address(), this.head().pid(), ready.type_name_fn());
        let polled = this.run(progress, cx);
        while current.upgrade.is_pending() {
            // A destructor, or a step that has failed, has requested an upgrade. The request must not stay on the
            // thread. Otherwise the next body that runs on this thread would be replaced because of this request. The
            // destructor of the dropped request may make another request.
            current.upgrade.forget();
        }
        match polled {
            Poll::Ready(()) => {
                if current.inline.is_busy() {
                    // A destructor or a waker has yielded an inline command after the last dispatch.
                    let _ = drop_caught(current.inline.take());
                }
                TurnOutcome::Over(this.left)
            }
            Poll::Pending => {
                if current.has_stale_receiver() {
                    this.around.own().end_stale_wait(current.has_taken_delivered(), turn);
                }
                if current.inline.is_busy() {
                    this.around.keep_answer();
                }
                // An observer may have answered a command of the process after the last step.
                if current.take_again() {
                    TurnOutcome::Again
                } else if current.waits_for_message() {
                    TurnOutcome::WaitsOpen
                } else {
                    TurnOutcome::Waits
                }
            }
        }
    })
}

/// Ends a process that never gets another turn, because its runtime has ended. The exit of the process is `Cancelled`
/// with `Reason::SHUTDOWN`. Returns true if this call has taken over the reference count that the pid table owned. In
/// this case the caller must release this count.
///
/// `progress` is the present progress of the machine. `own` refers to the process, and `head` is the head of this
/// process.
pub(crate) fn give_up(
    machine: &mut dyn AnyMachine,
    progress: Progress,
    head: &Head,
    own: &Ref<dyn AnyControl>,
    turn: InTurn,
) -> bool {
    Current::with(|current| {
        let mut failure = None;
        let mut this = Turn::new(current, machine, head, own, turn, &mut failure);
        if progress != Progress::Gone {
            let _guard = panic::set_abort_process(this.head().pid(), this.around.type_name());
            // A step of another process may drop the runtime of this process. This step may already have dropped
            // replies. These replies do not belong to this exit.
            current.without_turn(|| drop(this.end(Exit::Cancelled(Reason::SHUTDOWN))));
        }
        this.left
    })
}

impl<A: AnyMachine + ?Sized> Turn<'_, A> {
    /// Ends the process with an exit that does not come from a step of the process.
    #[cold]
    fn end_with(&mut self, exit: Exit) -> Poll<()> {
        *self.failure = Some(self.end(exit));
        Poll::Ready(())
    }

    /// Ends the turn of a suspended process.
    #[cold]
    fn end_suspended_turn(&self) -> Poll<()> {
        // An observer may have yielded a command for the process.
        self.around.dispatch();
        self.around.leave();
        self.around.end_step(None);
        Poll::Pending
    }

    /// Records that the process waits.
    #[inline]
    fn enter_wait(&self, flags: u16) {
        let head = self.head();
        let state = if head.is_waiting() { ProcessState::Blocked } else { ProcessState::Idle };
        if flags & flag::OBSERVED == 0 {
            head.enter_wait(flags, state);
        } else {
            self.around.enter_observed_wait(flags, state);
        }
    }

    #[inline]
    fn run(&mut self, progress: Progress, cx: &mut Context<'_>) -> Poll<()> {
        let this = self;
        let mut fresh = progress.is_fresh();
        let mut answered = 0;
        loop {
            let mut flags = this.head().flags();
            // Each turn must test whether the process was killed. One branch tests the flags `KILLED` and `OBSERVED`
            // together, so the test of `OBSERVED` has no additional cost.
            if flags & (flag::KILLED | flag::OBSERVED) == 0 {
                this.head().enter_unseen(ProcessState::Running);
            } else if answered == 0 && this.around.skips_turn(&mut flags) {
                // No event of this turn is recorded.
            } else {
                match this.around.permit_step(&mut flags, answered == 0, fresh) {
                    StepPermit::Step => {}
                    StepPermit::Suspended => return this.end_suspended_turn(),
                    StepPermit::Exit(exit) => return this.end_with(exit),
                }
            }
            if std::mem::take(&mut fresh) {
                if progress == Progress::NeedsInit
                    && let Err(exit) = this.init()
                {
                    return this.end_with(exit);
                }
                flags = this.head().flags();
                if flags & (flag::KILLED | flag::OBSERVED) != 0 {
                    match this.around.permit_step(&mut flags, false, false) {
                        StepPermit::Step => {}
                        StepPermit::Suspended => return this.end_suspended_turn(),
                        StepPermit::Exit(exit) => return this.end_with(exit),
                    }
                }
            }
            let stepped = this.step(flags, cx);
            // `has_begun` loads the flags again, because a failed upgrade may have cleared `MANUAL_START` in this step.
            if flags & flag::STARTED == 0 && stepped != StepResult::Ended {
                this.around.has_begun();
            }
            match stepped {
                StepResult::Ended => {
                    this.end_stepped();
                    return Poll::Ready(());
                }
                StepResult::Again => {
                    this.current.note_woken();
                    return Poll::Pending;
                }
                StepResult::Waits if !this.current.take_answered() => {
                    if !this.current.runs_again() {
                        this.enter_wait(flags);
                    }
                    return Poll::Pending;
                }
                StepResult::Waits => {
                    answered += 1;
                    if answered == ANSWERED_IN_TURN {
                        this.head().host().count_budget_yield();
                    } else if !this.current.wants_again() {
                        this.current.begin_keeping();
                        continue;
                    }
                    // Other tasks run before the next step, because the turn was long or the process has yielded.
                    this.current.note_woken();
                    return Poll::Pending;
                }
            }
        }
    }
}
