//! Whose turn this thread is in: which process is being stepped, with what budget left.
//!
//! A future that was handed to a body asks here whether it is polled where it belongs, a completion asks whether it
//! answers the very process that is running, and [`should_yield`] asks for the budget. Turns nest, for a step may call
//! `block_on`, which may run other processes on the same thread.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::task::Waker;

use crate::platform::clock::Instant;
use crate::platform::preempt;
use crate::platform::sync::{Lasting, thread, thread_local};
use crate::process::exit::Exit;
use crate::process::pid::Pid;
use crate::process::state::inline_lane::Parcel;
use crate::process::state::{inline_lane as express, successor};

/// How many messages a body may receive, and how often [`should_yield`] says no, in one turn.
pub(crate) const BUDGET: u32 = 128;

/// Later than all that a clock tells.
const UNSEEN: u64 = Instant::FAR.ns();

/// What this thread is doing. Cells of their own: each question costs a load.
///
/// One cache line: where the linker puts a thread-local without that, a field that lies across two lines costs a turn a
/// tenth.
#[repr(align(64))]
struct Turn {
    /// The address of the control block: the identity of a process on this machine while it lives. 0 for nobody.
    control: Cell<usize>,
    /// The same, also while a handler's future is polled inside the turn.
    turns: Cell<usize>,
    pid: Cell<Option<Pid>>,
    /// Returns the name of the code that runs the process.
    code: Cell<fn() -> &'static str>,
    /// Data and vtable of the task's own waker.
    waker: Cell<(usize, usize)>,
    budget: Cell<u32>,
    /// A moment of this turn, in ns of its runtime's clock; [`UNSEEN`] while it has not looked.
    seen: Cell<u64>,
    /// What happened in this turn: bits of [`note`]. A byte, as what is written to a part of a wider word and then read as
    /// that is waited for.
    notes: Cell<u8>,
    /// What is known of the mailbox.
    mail: Cell<u8>,
    /// What is dropped on this thread belonged to a process that dies.
    dying: Cell<bool>,
}

/// Bits of what is noted in a turn: most steps leave none of them.
mod note {
    /// Futures of the process may keep what they let go of until the step ends.
    pub(super) const KEEPS: u8 = 1;
    /// One of them did.
    pub(super) const KEPT: u8 = 1 << 1;
    /// An answer came to the running process from inside its own turn.
    pub(super) const ANSWERED: u8 = 1 << 2;
    /// The running process has asked to be stepped again behind the others.
    pub(super) const AGAIN: u8 = 1 << 3;
    /// Replies were dropped while it unwinds or dies.
    pub(super) const ORPHANED: u8 = 1 << 4;
    /// The running process has woken itself.
    pub(super) const WOKEN: u8 = 1 << 5;
    /// No timer may be passed on: the steps of the running process are counted, or its clock is virtual.
    pub(super) const NO_TIMER: u8 = 1 << 6;
}

/// What is noted of the mailbox: its receiver waits, …
mod mail {
    /// … and has taken the message that was delivered, but has not asked for the next.
    pub(super) const DELIVERED: u8 = 1;
    /// … and has asked, with its slot lent.
    pub(super) const ASKED: u8 = 1 << 1;
}

impl Turn {
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
        let notes = self.notes.get();
        self.notes.set(notes & !note);
        notes & note != 0
    }
}

thread_local! {
    static TURN: Turn = const {
        Turn {
            control: Cell::new(0),
            turns: Cell::new(0),
            pid: Cell::new(None),
            code: Cell::new(unknown),
            waker: Cell::new((0, 0)),
            budget: Cell::new(BUDGET),
            seen: Cell::new(UNSEEN),
            notes: Cell::new(0),
            mail: Cell::new(0),
            dying: Cell::new(false),
        }
    };
    static ORPHANS: RefCell<Vec<Orphan>> = const { RefCell::new(Vec::new()) };
    /// The turns that this one is nested in.
    static OUTER: Lasting<RefCell<Vec<Outer>>> = const { Lasting::new(RefCell::new(Vec::new())) };
}

fn unknown() -> &'static str {
    "unknown"
}

#[inline]
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data() as usize, std::ptr::from_ref(waker.vtable()) as usize)
}

/// Begins a turn of the process with this control block; it ends when the guard is dropped. `code` returns the name of the
/// type that runs the process.
#[inline]
pub(crate) fn enter(control: usize, pid: Pid, code: fn() -> &'static str, waker: &Waker) -> Guard {
    // A handler's future that is polled aside is inside a turn as well.
    let nested = TURN.with(|turn| turn.turns.get() != 0);
    if nested {
        save();
    }
    TURN.with(|turn| {
        turn.control.set(control);
        turn.turns.set(control);
        turn.pid.set(Some(pid));
        turn.code.set(code);
        turn.waker.set(identity(waker));
        turn.budget.set(BUDGET);
        turn.seen.set(UNSEEN);
        turn.notes.set(note::KEEPS);
        turn.mail.set(0);
    });
    Guard { nested }
}

/// A turn that another one is nested in.
struct Outer {
    control: usize,
    turns: usize,
    pid: Option<Pid>,
    code: fn() -> &'static str,
    waker: (usize, usize),
    budget: u32,
    notes: u8,
    mail: u8,
    parcel: Option<Parcel>,
    successor: Option<Box<successor::Outer>>,
}

#[cold]
fn save() {
    let outer = TURN.with(|turn| Outer {
        control: turn.control.get(),
        turns: turn.turns.get(),
        pid: turn.pid.get(),
        code: turn.code.get(),
        waker: turn.waker.get(),
        budget: turn.budget.get(),
        notes: turn.notes.get(),
        mail: turn.mail.get(),
        parcel: express::take(),
        successor: successor::take(),
    });
    OUTER.with(|outers| outers.borrow_mut().push(outer));
}

#[cold]
fn restore() {
    let outer = OUTER.with(|outers| {
        let mut outers = outers.borrow_mut();
        let outer = outers.pop();
        if outers.is_empty() {
            // It is not dropped with the thread.
            *outers = Vec::new();
        }
        outer
    });
    let outer = outer.expect("saved when the turn began");
    TURN.with(|turn| {
        turn.control.set(outer.control);
        turn.turns.set(outer.turns);
        turn.pid.set(outer.pid);
        turn.code.set(outer.code);
        turn.waker.set(outer.waker);
        turn.budget.set(outer.budget);
        // Another runtime's time, perhaps.
        turn.seen.set(UNSEEN);
        turn.notes.set(outer.notes);
        turn.mail.set(outer.mail);
    });
    express::restore(outer.parcel);
    successor::restore(outer.successor);
}

/// Restores what this thread was doing before: nothing, most of the time.
#[must_use]
pub(crate) struct Guard {
    nested: bool,
}

impl Guard {
    /// The process whose turn this guard holds.
    #[inline]
    pub(crate) fn here(&self) -> InTurn {
        InTurn(PhantomData)
    }
}

/// Proves that this thread has the right to run a process: it is in a turn of that process, or is about to begin one.
///
/// It stays on its thread, and is not kept beyond the turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InTurn(PhantomData<*const ()>);

impl InTurn {
    /// Only for the type that represents the right to run (`counted::Ready`), and for models of it.
    #[inline]
    pub(crate) fn of_right() -> Self {
        Self(PhantomData)
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if self.nested {
            return restore();
        }
        TURN.with(|turn| {
            turn.control.set(0);
            turn.turns.set(0);
            turn.pid.set(None);
            turn.waker.set((0, 0));
        });
    }
}

/// Whether this thread is stepping the process with this control block.
#[inline]
pub(crate) fn is_of(control: usize) -> bool {
    TURN.with(|turn| turn.control.get()) == control
}

/// The same as a proof.
#[inline]
pub(crate) fn here(control: usize) -> Option<InTurn> {
    is_of(control).then_some(InTurn(PhantomData))
}

/// Whether this thread is in the turn of the process with this control block, be it in a handler's future: then an
/// answer to it needs no wake.
#[inline]
pub(crate) fn is_within(control: usize) -> bool {
    TURN.with(|turn| turn.turns.get()) == control
}

/// From here, or from [the beginning](enter), to [`ends_keeping`], futures of the process whose turn this is may keep
/// something on this thread.
#[inline]
pub(crate) fn begins_keeping() {
    TURN.with(|turn| turn.note(note::KEEPS));
}

/// Whether something may have been kept, which the caller then lets go of.
#[inline]
pub(crate) fn ends_keeping() -> bool {
    TURN.with(|turn| {
        let notes = turn.notes.get();
        turn.notes.set(notes & !(note::KEEPS | note::KEPT));
        notes & note::KEPT != 0
    })
}

/// Whether a future of the process with this control block may keep something on this thread; it does, then.
#[inline]
pub(crate) fn keeps_of(control: usize) -> bool {
    TURN.with(|turn| {
        let keeps = turn.control.get() == control && turn.has(note::KEEPS);
        if keeps {
            turn.note(note::KEPT);
        }
        keeps
    })
}

/// Runs `f` as nobody: what it polls and sends is not the process's whose turn this may be.
pub(crate) fn aside<T>(f: impl FnOnce() -> T) -> T {
    struct Back(usize, Option<Pid>, (usize, usize));
    impl Drop for Back {
        fn drop(&mut self) {
            TURN.with(|turn| {
                turn.control.set(self.0);
                turn.pid.set(self.1);
                turn.waker.set(self.2);
            });
        }
    }
    let _back = TURN.with(|turn| Back(turn.control.replace(0), turn.pid.replace(None), turn.waker.replace((0, 0))));
    f()
}

/// The pid of the process in whose turn this thread is.
#[inline]
pub(crate) fn pid() -> Option<Pid> {
    TURN.with(|turn| turn.pid.get())
}

/// The pid of the process in whose turn this thread is, and the name of its code. This works at any time, also while the
/// thread ends.
pub(crate) fn running() -> Option<(Pid, &'static str)> {
    TURN.try_with(|turn| turn.pid.get().map(|pid| (pid, (turn.code.get())()))).ok().flatten()
}

/// Whether this is the waker of the task that is being stepped, as opposed to a combinator's.
#[inline]
pub(crate) fn is_own_waker(waker: &Waker) -> bool {
    TURN.with(|turn| turn.waker.get()) == identity(waker)
}

/// Forbids the running process to pass a timer on from one sleep to the next: such a timer wakes the process once too often,
/// and stays set for longer than any of the sleeps needs it.
pub(crate) fn keeps_no_timer() {
    TURN.with(|turn| turn.note(note::NO_TIMER));
}

/// Whether what wakes the process with this control block may be passed on from future to future: this thread is stepping
/// it, this is the waker of its task, its steps are not counted, and its clock is real.
#[inline]
pub(crate) fn passes_on(control: usize, waker: &Waker) -> bool {
    TURN.with(|turn| turn.control.get() == control && turn.waker.get() == identity(waker) && !turn.has(note::NO_TIMER))
}

/// Takes one from the budget; false when there was nothing left.
#[inline]
pub(crate) fn spend() -> bool {
    TURN.with(|turn| match turn.budget.get().checked_sub(1) {
        Some(left) => {
            turn.budget.set(left);
            true
        }
        None => false,
    })
}

/// Gives back what [`should_yield`] took.
pub(crate) fn refund() {
    TURN.with(|turn| turn.budget.set((turn.budget.get() + 1).min(BUDGET)));
}

/// Notes that it is this late; the first time in a turn is what counts.
#[inline]
pub(crate) fn saw(now: Instant) {
    TURN.with(|turn| {
        if turn.seen.get() == UNSEEN {
            turn.seen.set(now.ns());
        }
    });
}

/// Whether this turn has [seen](saw) a moment before that one.
#[inline]
pub(crate) fn has_seen_before(at: Instant) -> bool {
    TURN.with(|turn| turn.seen.get()) < at.ns()
}

/// Notes that the receiver of the running process's mailbox took a delivered message, and still waits for the next one.
#[inline]
pub(crate) fn took_delivered() {
    TURN.with(|turn| turn.mail.set(mail::DELIVERED));
}

/// Whether the receiver took a delivered message, and has not looked into the mailbox since.
#[inline]
pub(crate) fn has_taken_delivered() -> bool {
    TURN.with(|turn| turn.mail.get() & mail::DELIVERED != 0)
}

/// Notes whether the receiver of the running process's mailbox has asked for mail, and waits, with its slot lent.
#[inline]
pub(crate) fn waits_for_mail(yes: bool) {
    TURN.with(|turn| turn.mail.set(if yes { mail::ASKED } else { 0 }));
}

/// Whether it has.
#[inline]
pub(crate) fn is_waiting_for_mail() -> bool {
    TURN.with(|turn| turn.mail.get() & mail::ASKED != 0)
}

/// Whoever looks into the mailbox of the running process now takes back what was noted of it.
#[inline]
pub(crate) fn looks_for_mail() {
    TURN.with(|turn| turn.mail.set(0));
}

/// Notes that the running process was answered in its own turn, so that it is stepped again without going round the
/// queues.
#[inline]
pub(crate) fn answered() {
    TURN.with(|turn| turn.note(note::ANSWERED));
}

/// Whether an answer came since this was asked last.
#[inline]
pub(crate) fn take_answered() -> bool {
    TURN.with(|turn| turn.take(note::ANSWERED))
}

/// Notes that the running process has woken its task itself: it has another turn.
#[inline]
pub(crate) fn woken() {
    TURN.with(|turn| turn.note(note::WOKEN));
}

/// Whether it has.
#[inline]
pub(crate) fn take_woken() -> bool {
    TURN.with(|turn| turn.take(note::WOKEN))
}

/// Notes that the running process has woken itself to let others run.
#[inline]
pub(crate) fn again() {
    TURN.with(|turn| turn.note(note::AGAIN));
}

/// Whether the running process has asked to be stepped again.
#[inline]
pub(crate) fn wants_again() -> bool {
    TURN.with(|turn| turn.has(note::AGAIN))
}

/// Whether long work should let others run now: the turn's budget is spent, or somebody asks for it: the runtime, of a step
/// that takes longer than half of [`Builder::long_step`](crate::Builder::long_step), or whoever calls
/// [`Host::preempt`](crate::Host::preempt). Then it says so until the turn is over.
///
/// Each call takes a little of the budget, so a loop that asks once per small piece of work is told `true` after a
/// bounded number of pieces (128). A body then awaits [`yield_now`](crate::Me::yield_now), a hand-written process returns
/// [`Next::Again`](crate::Next::Again). Outside a process it always says `false`.
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
pub fn should_yield() -> bool {
    let Some(pid) = pid() else { return false };
    if preempt::take(pid.word()) {
        TURN.with(|turn| turn.budget.set(0));
    }
    !spend()
}

/// From here until the guard is dropped, what is dropped on this thread belonged to a process that dies. Whoever begins
/// this ends it by [`take_orphans`].
#[inline]
pub(crate) fn dying() -> Dying {
    Dying(TURN.with(|turn| turn.dying.replace(true)))
}

/// Ends what [`dying`] began.
#[must_use]
pub(crate) struct Dying(bool);

impl Drop for Dying {
    fn drop(&mut self) {
        TURN.with(|turn| turn.dying.set(self.0));
    }
}

/// A reply that was dropped while its process unwinds or dies: it is told why as soon as that is known, or that it was
/// only dropped, if the panic was caught inside.
pub(crate) type Orphan = Box<dyn FnOnce(Option<&Exit>)>;

/// The replies that were dropped while the step that has just ended unwound, or the process died. Cheap when there are
/// none.
#[inline]
pub(crate) fn take_orphans() -> Option<Vec<Orphan>> {
    TURN.with(|turn| turn.has(note::ORPHANED) && turn.take(note::ORPHANED)).then(|| ORPHANS.with(RefCell::take))
}

/// Leaves a reply to [`take_orphans`].
///
/// # Errors
/// The reply, when this thread neither unwinds from a step nor buries a process.
pub(crate) fn orphan<T: 'static>(value: T, tell: impl FnOnce(T, Option<&Exit>) + 'static) -> Result<(), T> {
    let expected = TURN.try_with(|turn| turn.dying.get() || (thread::panicking() && turn.pid.get().is_some()));
    if !expected.unwrap_or(false) {
        return Err(value);
    }
    let mut value = Some(value);
    let _ = ORPHANS.try_with(|orphans| {
        if let Some(value) = value.take() {
            orphans.borrow_mut().push(Box::new(move |exit| tell(value, exit)));
        }
    });
    TURN.with(|turn| turn.note(note::ORPHANED));
    value.map_or(Ok(()), Err)
}
