//! Whose turn this thread is in: which process is being stepped, with what budget left.
//!
//! A future that was handed to a body asks here whether it is polled where it belongs, a completion asks whether it
//! answers the very process that is running, and [`should_yield`] asks for the budget. Turns nest, for a step may call
//! `block_on`, which may run other processes on the same thread.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use super::exit::Exit;
use super::pid::Pid;
use super::successor;
use crate::clock::Instant;
use crate::express::{self, Parcel};
use crate::preempt;
use crate::sync::{thread, thread_local};

/// How many messages a body may receive, and how often [`should_yield`] says no, in one turn.
pub(crate) const BUDGET: u32 = 128;

/// What this thread is doing. Cells of their own: each question costs a load.
struct Turn {
    /// The address of the control block: the identity of a process on this machine while it lives. 0 for nobody.
    control: Cell<usize>,
    /// The same, also while a handler's future is polled inside the turn.
    turns: Cell<usize>,
    pid: Cell<Option<Pid>>,
    /// Data and vtable of the task's own waker.
    waker: Cell<(usize, usize)>,
    budget: Cell<u32>,
    /// A moment of this turn, in ns of its runtime's clock; 0 while it has not looked.
    seen: Cell<u64>,
    /// Whether what futures of the process let go of is kept until the step ends.
    keeping: Cell<Keeping>,
    /// An answer came to the running process from inside its own turn.
    answered: Cell<bool>,
    /// The running process has asked to be stepped again behind the others.
    again: Cell<bool>,
    /// Replies were dropped while it unwinds or dies.
    orphaned: Cell<bool>,
    /// What is dropped on this thread belonged to a process that dies.
    dying: Cell<bool>,
}

thread_local! {
    static TURN: Turn = const {
        Turn {
            control: Cell::new(0),
            turns: Cell::new(0),
            pid: Cell::new(None),
            waker: Cell::new((0, 0)),
            budget: Cell::new(BUDGET),
            seen: Cell::new(0),
            keeping: Cell::new(Keeping::Nothing),
            answered: Cell::new(false),
            again: Cell::new(false),
            orphaned: Cell::new(false),
            dying: Cell::new(false),
        }
    };
    static ORPHANS: RefCell<Vec<Orphan>> = const { RefCell::new(Vec::new()) };
}

#[inline]
fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data() as usize, std::ptr::from_ref(waker.vtable()) as usize)
}

/// Begins a turn of the process with this control block; it ends when the guard is dropped.
#[inline]
pub(crate) fn enter(control: usize, pid: Pid, waker: &Waker) -> Guard {
    TURN.with(|turn| {
        // A handler's future that is polled aside is inside a turn as well.
        let outer = if turn.turns.get() == 0 { None } else { Some(Box::new(turn.save())) };
        turn.control.set(control);
        turn.turns.set(control);
        turn.pid.set(Some(pid));
        turn.waker.set(identity(waker));
        turn.budget.set(BUDGET);
        turn.seen.set(0);
        turn.keeping.set(Keeping::Ready);
        turn.answered.set(false);
        turn.again.set(false);
        turn.orphaned.set(false);
        Guard(outer)
    })
}

/// A turn that another one is nested in.
struct Outer {
    control: usize,
    turns: usize,
    pid: Option<Pid>,
    waker: (usize, usize),
    budget: u32,
    keeping: Keeping,
    answered: bool,
    again: bool,
    orphaned: bool,
    parcel: Option<Parcel>,
    successor: Option<Box<successor::Outer>>,
}

impl Turn {
    #[cold]
    fn save(&self) -> Outer {
        Outer {
            control: self.control.get(),
            turns: self.turns.get(),
            pid: self.pid.get(),
            waker: self.waker.get(),
            budget: self.budget.get(),
            keeping: self.keeping.get(),
            answered: self.answered.get(),
            again: self.again.get(),
            orphaned: self.orphaned.get(),
            parcel: express::take(),
            successor: successor::take(),
        }
    }

    #[cold]
    fn restore(&self, outer: Outer) {
        self.control.set(outer.control);
        self.turns.set(outer.turns);
        self.pid.set(outer.pid);
        self.waker.set(outer.waker);
        self.budget.set(outer.budget);
        // Another runtime's time, perhaps.
        self.seen.set(0);
        self.keeping.set(outer.keeping);
        self.answered.set(outer.answered);
        self.again.set(outer.again);
        self.orphaned.set(outer.orphaned);
        express::restore(outer.parcel);
        successor::restore(outer.successor);
    }
}

/// Restores what this thread was doing before: nothing, most of the time.
#[must_use]
pub(crate) struct Guard(Option<Box<Outer>>);

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        TURN.with(|turn| match self.0.take() {
            None => {
                turn.control.set(0);
                turn.turns.set(0);
                turn.pid.set(None);
                turn.waker.set((0, 0));
            }
            Some(outer) => turn.restore(*outer),
        });
    }
}

/// Whether this thread is stepping the process with this control block.
#[inline]
pub(crate) fn is_of(control: usize) -> bool {
    TURN.with(|turn| turn.control.get()) == control
}

/// Whether this thread is in the turn of the process with this control block, be it in a handler's future: then an
/// answer to it needs no wake.
#[inline]
pub(crate) fn is_within(control: usize) -> bool {
    TURN.with(|turn| turn.turns.get()) == control
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeping {
    /// Nobody would let go of it.
    Nothing,
    Ready,
    Something,
}

/// From here, or from [the beginning](enter), to [`ends_keeping`], futures of the process whose turn this is may keep
/// something on this thread.
#[inline]
pub(crate) fn begins_keeping() {
    TURN.with(|turn| turn.keeping.set(Keeping::Ready));
}

/// Whether something may have been kept, which the caller then lets go of.
#[inline]
pub(crate) fn ends_keeping() -> bool {
    TURN.with(|turn| turn.keeping.replace(Keeping::Nothing)) == Keeping::Something
}

/// Whether a future of the process with this control block may keep something on this thread; it does, then.
#[inline]
pub(crate) fn keeps_of(control: usize) -> bool {
    TURN.with(|turn| {
        let keeps = turn.control.get() == control && turn.keeping.get() != Keeping::Nothing;
        if keeps {
            turn.keeping.set(Keeping::Something);
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

/// Who is being stepped on this thread.
#[inline]
pub(crate) fn pid() -> Option<Pid> {
    TURN.with(|turn| turn.pid.get())
}

/// Whether this is the waker of the task that is being stepped, as opposed to a combinator's.
#[inline]
pub(crate) fn is_own_waker(waker: &Waker) -> bool {
    TURN.with(|turn| turn.waker.get()) == identity(waker)
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
        if turn.seen.get() == 0 {
            turn.seen.set(now.ns());
        }
    });
}

/// Whether this turn has [seen](saw) a moment before that one.
#[inline]
pub(crate) fn has_seen_before(at: Instant) -> bool {
    let seen = TURN.with(|turn| turn.seen.get());
    seen != 0 && seen < at.ns()
}

/// Notes that the running process was answered in its own turn, so that it is stepped again without going round the
/// queues.
#[inline]
pub(crate) fn answered() {
    TURN.with(|turn| turn.answered.set(true));
}

/// Whether an answer came since this was asked last.
#[inline]
pub(crate) fn take_answered() -> bool {
    TURN.with(|turn| turn.answered.take())
}

/// Notes that the running process has woken itself to let others run.
#[inline]
pub(crate) fn again() {
    TURN.with(|turn| turn.again.set(true));
}

/// Whether the running process has asked to be stepped again.
#[inline]
pub(crate) fn wants_again() -> bool {
    TURN.with(|turn| turn.again.get())
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
    TURN.with(|turn| turn.orphaned.take()).then(|| ORPHANS.with(RefCell::take))
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
    TURN.with(|turn| turn.orphaned.set(true));
    value.map_or(Ok(()), Err)
}
