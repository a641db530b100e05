//! The right to run a process ([`RunnableProcess`]), and the waker of a process. This file contains unsafe code.
//!
//! There is one [`RunnableProcess`] for each process that is queued or runs, and none for a process that waits. The
//! thread that wakes a waiting process gets this right through the [run state](crate::process::state::run_state), and
//! queues the process. The right comes with one strong count, which belongs to the process until it exits. So neither a
//! wake-up nor a turn changes a count. Dropping the right cancels the process.

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

/// Operations of a cell. The owner of the right to run the cell calls them without knowing the type of the cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) run: unsafe fn(NonNull<Header>),
    pub(crate) cancel: unsafe fn(NonNull<Header>),
    pub(crate) schedule: unsafe fn(NonNull<Header>, WakeSource<'_>),
}

impl Task {
    /// Operations of a value that is no task. The run state of such a value never allows a run.
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

/// Scheduler of a process: where the process is queued when it must run.
pub(crate) trait Schedule: Clone + Send + Sync + 'static {
    /// Queues the process.
    fn schedule(self, ready: RunnableProcess, source: WakeSource<'_>);

    /// Returns whether the process may be run, and dropped, on this thread.
    fn is_here(&self) -> bool;
}

/// The right to run a process that is queued, or is about to be queued or run. It exists only from the start of the
/// process's machine to its finish. Its pointer has the provenance of the whole cell.
#[must_use = "dropping it ends the process"]
pub(crate) struct RunnableProcess(NonNull<Header>);

// SAFETY: a cell whose machine is `Send` may be run and dropped on any thread. A cell that is bound to a thread is
// queued by its `Schedule` for that thread only, and `cancel` asks `Schedule::is_here` before it drops anything.
unsafe impl Send for RunnableProcess {}

impl fmt::Debug for RunnableProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunnableProcess").field(&self.0).finish()
    }
}

impl RunnableProcess {
    /// # Safety
    /// `at` is the header of a task, with the provenance of the whole value. The caller owns the only right to run the
    /// task, and one of its strong counts, and hands over both.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Header>) -> Self {
        Self(at)
    }

    /// Returns the header. The caller then owns the right to run the process, and the count.
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

    /// Returns the `T` behind the header.
    ///
    /// # Safety
    /// A `T` follows the header, without padding.
    #[inline]
    pub(crate) unsafe fn behind<T>(&self) -> &T {
        // SAFETY: this owns one of the strong counts, so the value is alive while this is borrowed. A `T` follows the
        // header without padding, by contract. The pointer of a right has the provenance of the whole cell.
        unsafe { behind(self.0) }
    }

    /// Returns the waker of the process. It is borrowed, and owns no count.
    #[inline]
    pub(crate) fn waker(&self) -> Borrowed<'_, Waker> {
        // SAFETY: the functions of `WAKER` take the header of a task, and `self.0` points to the header of a task. The
        // waker owns no count: `Borrowed` never drops the waker, and borrows it from this right, which keeps the value
        // alive. A clone of the waker takes a count of its own.
        Borrowed::new(unsafe { Waker::from_raw(RawWaker::new(self.0.as_ptr().cast(), &WAKER)) })
    }

    /// Returns this right as a proof, for the mailbox of the process.
    #[inline]
    pub(crate) fn in_turn(&self) -> InTurn {
        InTurn::of_right()
    }

    /// Address of the header.
    #[inline]
    pub(crate) fn at(&self) -> *const () {
        self.0.as_ptr().cast()
    }

    /// Runs the process for one turn.
    #[inline]
    pub(crate) fn run(self) {
        let run = self.task().run;
        // SAFETY: `run` is the function for the value's own type, and the pointer has the provenance of the whole cell.
        // This is the right to run the process, with its count; `into_at` consumes both. The right exists, so the
        // machine was started and has not finished.
        unsafe { run(self.into_at()) };
    }

    /// Queues the process.
    #[inline]
    pub(crate) fn schedule(self, source: WakeSource<'_>) {
        let schedule = self.task().schedule;
        // SAFETY: `schedule` is the function for the value's own type, and the pointer has the provenance of the whole
        // cell. This is the right to run the process, with its count; `into_at` consumes both. The right exists, so the
        // machine was started and has not finished.
        unsafe { schedule(self.into_at(), source) };
    }

    /// Ends a turn: the process waits. If the process was woken during the turn, it is queued instead.
    #[inline]
    pub(crate) fn wait(self) {
        // SAFETY: `wait_as` requires an open slot only if the run state becomes *Open*. With `false` it does not.
        unsafe { self.wait_as(false) };
    }

    /// As [`wait`](Self::wait), with the run state *Open*: a sender may write the slot of the mailbox.
    ///
    /// # Safety
    /// The slot of the process's mailbox is open.
    #[inline]
    pub(crate) unsafe fn wait_open(self) {
        // SAFETY: `wait_as` requires that the slot of the mailbox is open; this function's caller guarantees that.
        unsafe { self.wait_as(true) };
    }

    /// # Safety
    /// If `open` is true, the slot of the process's mailbox is open.
    #[inline]
    unsafe fn wait_as(self, open: bool) {
        // Another thread may run the process as soon as the process waits, so the right is released before that.
        let at = ManuallyDrop::new(self).0;
        // SAFETY: the count of this right keeps the value alive until the process waits; nothing accesses the reference
        // after that. A task begins with its header, and the run state follows the header.
        let state = unsafe { behind::<RunState>(at) };
        // SAFETY: this was the right to run the process. The right is used again only if the process does not wait. If
        // `open` is true, the slot is open, by contract. The slot stays open: only a turn of the process closes it, or
        // a thread that has ended the *Open* run state before.
        if !unsafe { state.wait(open) } {
            Self(at).schedule(WakeSource::Turn);
        }
    }
}

impl Drop for RunnableProcess {
    fn drop(&mut self) {
        // SAFETY: `cancel` is the function for the value's own type, and the pointer has the provenance of the whole
        // cell. This is the right to run the process, with its count; neither is used again. The right exists, so the
        // machine was started and has not finished.
        unsafe { (self.task().cancel)(self.0) };
    }
}

/// A process that was woken and must be queued. Dropping this value queues it, so it is dropped when no lock is held.
#[must_use = "it is queued when this is dropped"]
#[derive(Debug)]
pub(crate) struct PendingSchedule(Option<RunnableProcess>);

impl Drop for PendingSchedule {
    #[inline]
    fn drop(&mut self) {
        self.queue_as(WakeSource::Waiting(None));
    }
}

impl PendingSchedule {
    /// Wakes the process that this waker belongs to, if it is the waker of a process. If the process waited, the result
    /// must queue it. With `None`, the caller calls `wake` on the waker.
    #[inline]
    pub(crate) fn wake(waker: &Waker) -> Option<Self> {
        if !ptr::eq(waker.vtable(), &WAKER) {
            return None;
        }
        let at = NonNull::new(waker.data().cast_mut().cast())?;
        // SAFETY: only `RunnableProcess::waker`, and clones of its result, make wakers with this vtable. Their data is
        // the header of a task, with the provenance of the whole cell. The waker is borrowed, and keeps the cell alive.
        unsafe { wake_at(at, RunState::wake) }
    }

    /// Queues the process now. `place` is the scheduler handle of its host, which the caller keeps alive.
    #[cfg(not(procession_loom))]
    #[inline]
    pub(crate) fn queue(mut self, place: &SchedulerHandle) {
        self.queue_as(WakeSource::Waiting(Some(place)));
    }

    /// Queues the process now, behind the runnable ones.
    #[inline]
    pub(crate) fn queue_behind(mut self) {
        self.queue_as(WakeSource::Behind);
    }

    #[inline]
    fn queue_as(&mut self, source: WakeSource<'_>) {
        if let Some(ready) = self.0.take() {
            ready.schedule(source);
        }
    }

    /// The process, for code that only reads it.
    #[inline]
    pub(crate) fn process(&self) -> Option<&RunnableProcess> {
        self.0.as_ref()
    }
}

/// A value with a run state. It is either a task, or a value with the layout of a task whose run state is *Over* from
/// the beginning.
///
/// # Safety
/// The [`RunState`] of the value follows its header. Each value of this type is made by
/// [`Ref::with`](crate::process::state::Ref::with), which exposes the provenance of its memory. If the run state of a
/// value is not *Over* from the beginning, the value is a cell. Its run state is *Idle* or *Open* only while no
/// [`RunnableProcess`] for that cell exists.
pub(crate) unsafe trait Stepped: HeaderFirst {
    /// Wakes the process. If the process waited, the result must queue it.
    #[inline]
    fn wake(&self) -> Option<PendingSchedule> {
        // Makes a pointer to the whole cell. A reference to the beginning of the cell has no provenance for the rest,
        // but `Ref::with` has exposed this provenance.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        // SAFETY: the value is alive, because `self` is a reference to it. `Self` is `Stepped`. The pointer has the
        // exposed provenance of the whole value.
        unsafe { wake_at(at.expect("a reference is not null"), RunState::wake) }
    }

    /// If the run state of the process is *Open*, wakes the process, because the caller has a message for it. The
    /// result must then queue the process.
    #[inline]
    fn deliver(&self) -> Option<PendingSchedule> {
        // Makes a pointer to the whole cell, as in `wake`.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        // SAFETY: the value is alive, because `self` is a reference to it. `Self` is `Stepped`. The pointer has the
        // exposed provenance of the whole value.
        unsafe { wake_at(at.expect("a reference is not null"), RunState::deliver) }
    }

    /// As [`RunState::recall`].
    fn recall(&self) -> bool {
        // SAFETY: the value is alive, because `self` is a reference to it, and its run state follows its header. `Self`
        // covers both.
        unsafe { behind::<RunState>(NonNull::from(self).cast()) }.recall()
    }
}

/// Returns the `T` behind a header.
///
/// # Safety
/// The value is alive until the last use of the result. A `T` follows its header, without padding, within the memory
/// that `at` has the provenance of.
#[inline]
unsafe fn behind<'a, T>(at: NonNull<Header>) -> &'a T {
    const { assert!(align_of::<T>() <= align_of::<Header>()) };
    // SAFETY: the `T` that follows the header belongs to the same allocation, by contract, so the address is in bounds.
    let behind = unsafe { at.add(1) };
    // SAFETY: a `T` is there, and lives long enough, by contract. The `T` is aligned: its alignment is at most the
    // alignment of a header.
    unsafe { behind.cast().as_ref() }
}

/// Wakes a process by a transition of its run state, which says whether the process must be queued.
///
/// # Safety
/// The value is alive and [`Stepped`], and `at` has the provenance of all of it. `wake` is [`RunState::wake`] or
/// [`RunState::deliver`].
#[inline]
unsafe fn wake_at(at: NonNull<Header>, wake: impl FnOnce(&RunState) -> bool) -> Option<PendingSchedule> {
    // SAFETY: by contract, the value is alive and `Stepped`, and `at` has the provenance of all of it. So the run state
    // follows the header, within that memory.
    let must_queue = wake(unsafe { behind::<RunState>(at) });
    // SAFETY: the transition returned true only if it made a process that waited active. So there was no right to run
    // it, and this is the only one. The strong count that belongs to the right is the one that the process kept while
    // it waited. The pointer has the provenance of the whole cell, by contract.
    must_queue.then(|| PendingSchedule(Some(unsafe { RunnableProcess::new(at) })))
}

/// Waker of a process: a counted reference to its header, for every type of cell.
static WAKER: RawWakerVTable = {
    fn life(at: *const ()) -> NonNull<Header> {
        NonNull::new(at.cast_mut().cast()).expect("a waker leads to the life of a cell")
    }
    unsafe fn clone(at: *const ()) -> RawWaker {
        // SAFETY: a waker owns a strong count, or is borrowed from the right to run, which owns one: the value is
        // alive.
        unsafe { life(at).as_ref() }.retain();
        RawWaker::new(at, &WAKER)
    }
    unsafe fn wake(at: *const ()) {
        // SAFETY: `at` is the data of this waker, which owns a count until it is dropped in the next statement.
        unsafe { wake_by_ref(at) };
        // SAFETY: `wake` consumes the waker, so its count is released here, once.
        unsafe { drop(at) };
    }
    unsafe fn wake_by_ref(at: *const ()) {
        // If a process wakes itself in its own turn, the wake-up is noted, and performed when the turn ends.
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
        // SAFETY: a waker owns a strong count, or is borrowed from the right to run, which owns one: the value is
        // alive. Wakers are made for tasks only, which are `Stepped`, with a pointer to all of the cell.
        std::mem::drop(unsafe { wake_at(life(at), RunState::wake) });
    }
    unsafe fn drop(at: *const ()) {
        // SAFETY: a waker that is dropped owns a strong count, which is released here. A borrowed waker is never
        // dropped.
        unsafe { Header::release(life(at)) };
    }
    RawWakerVTable::new(clone, wake, wake_by_ref, drop)
};
