//! Whose turn this thread is in: which process is being stepped, with what budget left.
//!
//! A future that was handed to a body asks here whether it is polled where it belongs, a completion asks whether it
//! answers the very process that is running, and [`should_yield`] asks for the budget. Turns nest, for a step may call
//! `block_on`, which may run other processes on the same thread.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use super::exit::Exit;
use super::pid::Pid;
use crate::sync::thread;

/// How many messages a body may receive, and how often [`should_yield`] says no, in one turn.
pub(crate) const BUDGET: u32 = 128;

#[derive(Clone, Copy)]
struct Turn {
    /// The address of the control block: the identity of a process on this machine while it lives.
    control: usize,
    pid: Option<Pid>,
    /// Data and vtable of the task's own waker.
    waker: (usize, usize),
    budget: u32,
    /// An answer came to the running process from inside its own turn.
    answered: bool,
    /// The running process has asked to be stepped again behind the others.
    again: bool,
}

const NOBODY: Turn = Turn { control: 0, pid: None, waker: (0, 0), budget: BUDGET, answered: false, again: false };

thread_local! {
    static TURN: Cell<Turn> = const { Cell::new(NOBODY) };
    static DYING: RefCell<Option<Exit>> = const { RefCell::new(None) };
    static ORPHANS: RefCell<Option<Vec<Orphan>>> = const { RefCell::new(None) };
}

fn change<T>(f: impl FnOnce(&mut Turn) -> T) -> T {
    TURN.with(|cell| {
        let mut turn = cell.get();
        let result = f(&mut turn);
        cell.set(turn);
        result
    })
}

fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data() as usize, waker.vtable() as *const _ as usize)
}

/// Begins a turn of the process with this control block; it ends when the guard is dropped.
pub(crate) fn enter(control: usize, pid: Pid, waker: &Waker) -> Guard {
    let turn = Turn { control, pid: Some(pid), waker: identity(waker), budget: BUDGET, answered: false, again: false };
    Guard(TURN.with(|cell| cell.replace(turn)))
}

/// Restores what this thread was doing before.
#[must_use]
pub(crate) struct Guard(Turn);

impl Drop for Guard {
    fn drop(&mut self) {
        TURN.with(|cell| cell.set(self.0));
    }
}

/// Whether this thread is stepping the process with this control block.
#[inline]
pub(crate) fn is_of(control: usize) -> bool {
    TURN.with(|cell| cell.get().control) == control
}

/// Who is being stepped on this thread.
pub(crate) fn pid() -> Option<Pid> {
    TURN.with(|cell| cell.get().pid)
}

/// Whether this is the waker of the task that is being stepped, as opposed to a combinator's.
pub(crate) fn is_own_waker(waker: &Waker) -> bool {
    TURN.with(|cell| cell.get().waker) == identity(waker)
}

/// Takes one from the budget; false when there was nothing left.
#[inline]
pub(crate) fn spend() -> bool {
    change(|turn| match turn.budget.checked_sub(1) {
        Some(left) => {
            turn.budget = left;
            true
        }
        None => false,
    })
}

/// Notes that the running process was answered in its own turn, so that it is stepped again without going round the
/// queues.
pub(crate) fn answered() {
    change(|turn| turn.answered = true);
}

/// Whether an answer came since this was asked last.
pub(crate) fn take_answered() -> bool {
    change(|turn| std::mem::take(&mut turn.answered))
}

/// Notes that the running process has woken itself to let others run.
pub(crate) fn again() {
    change(|turn| turn.again = true);
}

/// Whether the running process has asked to be stepped again.
pub(crate) fn wants_again() -> bool {
    TURN.with(|cell| cell.get().again)
}

/// Whether long work should let others run now: the turn's budget is spent.
///
/// Each call takes a little of the budget, so a loop that asks once per small piece of work is told `true` after a
/// bounded number of pieces. A body then awaits [`yield_now`](crate::Me::yield_now), a hand-written process returns
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
    pid().is_some() && !spend()
}

/// Runs `f` while whoever drops a [`Reply`](crate::Reply) on this thread is known to be dying for this reason.
pub(crate) fn dying<T>(exit: &Exit, f: impl FnOnce() -> T) -> T {
    struct Restore(Option<Exit>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let before = self.0.take();
            let _ = DYING.try_with(|cell| cell.replace(before));
        }
    }
    let _restore = Restore(DYING.try_with(|cell| cell.replace(Some(exit.clone()))).unwrap_or(None));
    f()
}

/// Why the process whose state is being dropped on this thread died.
pub(crate) fn dying_of() -> Option<Exit> {
    DYING.try_with(|cell| cell.borrow().clone()).unwrap_or(None)
}

/// A reply that was dropped while its process unwinds: it is told why as soon as that is known, or that it was only
/// dropped, if the panic was caught inside.
pub(crate) type Orphan = Box<dyn FnOnce(Option<&Exit>)>;

/// Runs one step and collects the replies that are dropped while it unwinds.
pub(crate) fn collecting_orphans<T>(f: impl FnOnce() -> T) -> (T, Vec<Orphan>) {
    let outer = ORPHANS.with(|cell| cell.replace(Some(Vec::new())));
    let result = f();
    let orphans = ORPHANS.with(|cell| cell.replace(outer));
    (result, orphans.unwrap_or_default())
}

/// Leaves a reply to [`collecting_orphans`].
///
/// # Errors
/// The reply, when this thread is not unwinding from a step.
pub(crate) fn orphan<T>(value: T, tell: impl FnOnce(T, Option<&Exit>) + 'static) -> Result<(), T>
where
    T: 'static,
{
    if !thread::panicking() {
        return Err(value);
    }
    let mut value = Some(value);
    let _ = ORPHANS.try_with(|cell| {
        if let Some(orphans) = cell.borrow_mut().as_mut() {
            if let Some(value) = value.take() {
                orphans.push(Box::new(move |exit| tell(value, exit)));
            }
        }
    });
    value.map_or(Ok(()), Err)
}
