//! The right to run a process, how one comes by it, and the waker by which others do. A file with unsafe code.
//!
//! There is one [`RunnableProcess`] for each process that is queued or runs, and none for one that waits. By the
//! [run state](crate::process::state::run_state) whoever wakes it comes by that right, and queues it. It comes with one of the counts, which
//! is the process's own until it ends: so neither a wake nor a turn counts anything. Whoever drops the right in place of
//! using it ends the process.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::{fmt, ptr};

use crate::process::state::current::{Current, InTurn};
#[cfg(not(procession_loom))]
use crate::process::state::wake_order::SchedulerHandle;
use crate::process::state::wake_order::WakeSource;
use crate::process::state::{Borrowed, Header, HeaderFirst, RunState};

/// What can be done with a cell by whoever has the right to run it, and does not know its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) run: unsafe fn(NonNull<Header>),
    pub(crate) cancel: unsafe fn(NonNull<Header>),
    pub(crate) schedule: unsafe fn(NonNull<Header>, WakeSource<'_>),
}

impl Task {
    /// Of what is no task, and never in a state in which it might be run.
    pub(super) const NONE: Self = {
        unsafe fn never(_: NonNull<Header>) {
            unreachable!("it is no task")
        }
        unsafe fn nowhere(_: NonNull<Header>, _: WakeSource<'_>) {
            unreachable!("it is no task")
        }
        Self { run: never, cancel: never, schedule: nowhere }
    };
}

/// Where a process is queued when it is to run.
pub(crate) trait Schedule: Clone + Send + Sync + 'static {
    /// Queues it.
    fn schedule(self, ready: RunnableProcess, source: WakeSource<'_>);

    /// Whether it may be run, and dropped, on this thread.
    fn is_here(&self) -> bool;
}

/// The right to run a process, which is queued, or about to be.
#[must_use = "dropping it ends the process"]
pub(crate) struct RunnableProcess(NonNull<Header>);

// SAFETY: a cell whose machine is `Send` may be run and dropped on any thread. A cell that is bound to a thread is queued by its
// `Schedule` for that thread only, and `cancel` asks `Schedule::is_here` before it drops anything.
unsafe impl Send for RunnableProcess {}

impl fmt::Debug for RunnableProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunnableProcess").field(&self.0).finish()
    }
}

impl RunnableProcess {
    /// # Safety
    /// `at` is the life of a task, with the provenance of the whole value. The caller has the only right to run it, and one of
    /// its strong counts, and hands over both.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Header>) -> Self {
        Self(at)
    }

    /// The life of what it is the right to run, which it no longer is.
    #[inline]
    pub(crate) fn into_at(self) -> NonNull<Header> {
        ManuallyDrop::new(self).0
    }

    #[inline]
    fn task(&self) -> &'static Task {
        &self.life().kind.task
    }

    #[inline]
    fn life(&self) -> &Header {
        // SAFETY: this owns one of the strong counts, so the value is alive.
        unsafe { self.0.as_ref() }
    }

    /// What lies behind its life.
    ///
    /// # Safety
    /// That is a `T`.
    #[inline]
    pub(crate) unsafe fn behind<T>(&self) -> &T {
        // SAFETY: this owns one of the strong counts, so the value is alive while this is borrowed. A `T` follows the life, by
        // contract.
        unsafe { behind(self.0) }
    }

    /// The waker of the process; not counted, as it is borrowed.
    #[inline]
    pub(crate) fn waker(&self) -> Borrowed<'_, Waker> {
        // SAFETY: the functions of `WAKER` take the life of a task, which this is. The waker owns no count: `Borrowed` never drops
        // it, and it is borrowed from this right, which keeps the value alive. A clone of it takes a count of its own.
        Borrowed::new(unsafe { Waker::from_raw(RawWaker::new(self.0.as_ptr().cast(), &WAKER)) })
    }

    /// This right as a proof, for the mailbox of the process.
    #[inline]
    pub(crate) fn in_turn(&self) -> InTurn {
        InTurn::of_right()
    }

    /// Where it is.
    #[inline]
    pub(crate) fn at(&self) -> *const () {
        self.0.as_ptr().cast()
    }

    /// Runs it for a turn.
    #[inline]
    pub(crate) fn run(self) {
        let run = self.task().run;
        // SAFETY: the function is that of the value's own type. This is the right to run it, and is given up by `into_at`.
        unsafe { run(self.into_at()) };
    }

    /// Queues it.
    #[inline]
    pub(crate) fn schedule(self, source: WakeSource<'_>) {
        let schedule = self.task().schedule;
        // SAFETY: the function is that of the value's own type. This is the right to run it, and is given up by `into_at`.
        unsafe { schedule(self.into_at(), source) };
    }

    /// The process has run, and waits, unless it was woken meanwhile: then it is queued.
    #[inline]
    pub(crate) fn wait(self) {
        // SAFETY: `wait_as` requires a lent slot only of a process that becomes open; with `false` this one does not.
        unsafe { self.wait_as(false) };
    }

    /// As [`wait`](Self::wait), open for a message.
    ///
    /// # Safety
    /// The process has lent the slot of its mailbox in this turn, and has not taken it back.
    #[inline]
    pub(crate) unsafe fn wait_open(self) {
        // SAFETY: `wait_as` requires that the slot of the mailbox is lent; this function's caller guarantees that.
        unsafe { self.wait_as(true) };
    }

    /// # Safety
    /// If `open`, as for [`wait_open`](Self::wait_open).
    #[inline]
    unsafe fn wait_as(self, open: bool) {
        // Once the process waits another thread may run it: this gives up the right before.
        let at = ManuallyDrop::new(self).0;
        // SAFETY: the count of this right keeps the value alive until the process waits; nothing accesses the reference after
        // that. A task begins with its life, which its run state follows.
        let state = unsafe { behind::<RunState>(at) };
        // SAFETY: this was the right to run the process. It is used again only if the process does not wait. If `open`, the
        // slot is lent, by contract; it stays so, because only a turn of the process takes it back, or a thread that has
        // changed the run state so that the process is not open.
        if !unsafe { state.wait(open) } {
            Self(at).schedule(WakeSource::Turn);
        }
    }
}

impl Drop for RunnableProcess {
    fn drop(&mut self) {
        // SAFETY: the function is that of the value's own type. This is the right to run it, and is not used again.
        unsafe { (self.task().cancel)(self.0) };
    }
}

/// A process that was woken, and is queued when this is dropped: when no lock is held, that is.
#[must_use = "it is queued when this is dropped"]
#[derive(Debug)]
pub(crate) struct PendingSchedule(NonNull<Header>);

// SAFETY: an `PendingSchedule` gives access to nothing but, once, a `RunnableProcess`, which may be sent: so the thread that it is sent to can do
// nothing more than one to which the `RunnableProcess` was sent.
unsafe impl Send for PendingSchedule {}

impl Drop for PendingSchedule {
    #[inline]
    fn drop(&mut self) {
        RunnableProcess(self.0).schedule(WakeSource::Waiting(None));
    }
}

impl PendingSchedule {
    /// Queues it now, in the place of its host, which the caller keeps.
    #[cfg(not(procession_loom))]
    #[inline]
    pub(crate) fn queue(self, place: &SchedulerHandle) {
        let at = ManuallyDrop::new(self).0;
        RunnableProcess(at).schedule(WakeSource::Waiting(Some(place)));
    }
}

/// A value with a run state: a task, or something that looks like one and is over from the beginning.
///
/// # Safety
/// Its [`RunState`] follows its life. Each value of this type is made by [`Ref::with`](crate::process::state::Ref::with), which exposes the
/// provenance of its memory. A run state that is not over from the beginning belongs to a cell, and is idle or open only while
/// no [`RunnableProcess`] for that cell exists.
pub(crate) unsafe trait Stepped: HeaderFirst {
    /// Wakes the process: if it waits, it is to be queued.
    #[inline]
    fn wake(&self) -> Option<PendingSchedule> {
        // All of the cell, to which a reference to its beginning does not lead; `Ref::with` has exposed it.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        // SAFETY: the value is alive, because `self` is a reference to it. The pointer has the exposed provenance of all of it.
        unsafe { wake_at(at.expect("a reference is not null")) }
    }

    /// Wakes the process if it is open, for the caller has a message for it; it is to be queued.
    #[inline]
    fn deliver(&self) -> Option<PendingSchedule> {
        // As above.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        let at = at.expect("a reference is not null");
        // SAFETY: the value is alive, because `self` is a reference to it, and its run state follows its life.
        unsafe { behind::<RunState>(at) }.deliver().then(|| PendingSchedule(at))
    }

    /// As [`RunState::recall`].
    fn recall(&self) -> bool {
        // SAFETY: the value is alive, because `self` is a reference to it, and its run state follows its life. `Self` covers both.
        unsafe { behind::<RunState>(NonNull::from(self).cast()) }.recall()
    }
}

/// What lies behind a life.
///
/// # Safety
/// The value is alive for as long as the result is used, or until the last use of it. A `T` follows its life, without padding,
/// within the memory that `at` has the provenance of.
#[inline]
unsafe fn behind<'a, T>(at: NonNull<Header>) -> &'a T {
    const { assert!(align_of::<T>() <= align_of::<Header>()) };
    // SAFETY: the `T` that follows the life belongs to the same allocation, by contract, so the address is in bounds.
    let behind = unsafe { at.add(1) };
    // SAFETY: a `T` is there, and lives long enough, by contract. It is aligned: its alignment is no larger than that of a life.
    unsafe { behind.cast().as_ref() }
}

/// # Safety
/// The value is alive and [`Stepped`], and `at` has the provenance of all of it.
#[inline]
unsafe fn wake_at(at: NonNull<Header>) -> Option<PendingSchedule> {
    // SAFETY: the value is alive, and its run state follows its life, as of each `Stepped` value.
    unsafe { behind::<RunState>(at) }.wake().then(|| PendingSchedule(at))
}

/// The waker of a process that is run: a counted reference, whatever the type of the cell.
static WAKER: RawWakerVTable = {
    fn life(at: *const ()) -> NonNull<Header> {
        NonNull::new(at.cast_mut().cast()).expect("a waker leads to the life of a cell")
    }
    unsafe fn clone(at: *const ()) -> RawWaker {
        // SAFETY: a waker owns a strong count, or is borrowed from the right to run, which owns one: the value is alive.
        unsafe { life(at).as_ref() }.retain();
        RawWaker::new(at, &WAKER)
    }
    unsafe fn wake(at: *const ()) {
        // SAFETY: `at` is the data of this waker, which owns a count until it is dropped in the next statement.
        unsafe { wake_by_ref(at) };
        // SAFETY: `wake` consumes the waker, so its count is given up here, once.
        unsafe { drop(at) };
    }
    unsafe fn wake_by_ref(at: *const ()) {
        // A wake-up of a process in its own turn is noted, and done when the turn ends.
        let is_noted = Current::with(|current| {
            let is_own = current.is_in_turn_of(at as usize);
            if is_own {
                current.note_woken();
            }
            is_own
        });
        if is_noted {
            return;
        }
        // SAFETY: a waker owns a strong count, or is borrowed from the right to run, which owns one: the value is alive. Wakers are
        // made for tasks only, which are `Stepped`, with a pointer to all of the cell.
        std::mem::drop(unsafe { wake_at(life(at)) });
    }
    unsafe fn drop(at: *const ()) {
        // SAFETY: a waker that is dropped owns a strong count, which it gives up here: one that is borrowed is never dropped.
        unsafe { Header::release(life(at)) };
    }
    RawWakerVTable::new(clone, wake, wake_by_ref, drop)
};
