//! The right to run a process ([`RunnableProcess`]), and the waker of a process. This file contains unsafe code.
//!
//! For each process that is queued or running, there is one [`RunnableProcess`]. For a process that waits, there is no
//! [`RunnableProcess`]. The thread that wakes a waiting process obtains the right to run the process through the [run
//! state](crate::process::state::run_state), and queues the process. The [`RunnableProcess`] owns one strong count of
//! the process. While the process waits, the process itself owns this strong count. Therefore, neither a wake-up nor a
//! turn changes a reference count. If the [`RunnableProcess`] is dropped, the process is cancelled.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::{fmt, ptr};

use crate::platform::delayed_wake;
use crate::platform::sync::{Arc, Mutex};
use crate::process::state::current::{Current, InTurn};
#[cfg(not(procession_loom))]
use crate::process::state::wake_source::SchedulerHandle;
use crate::process::state::wake_source::WakeSource;
use crate::process::state::{Borrowed, Header, HeaderFirst, Ref, RunState};

/// Functions for one type of cell. A [`RunnableProcess`] does not know the type of its cell, and calls these functions
/// through the header of the cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    /// If the process needs another turn, returns the process.
    pub(crate) run: unsafe fn(NonNull<Header>) -> Option<RunnableProcess>,
    pub(crate) cancel: unsafe fn(NonNull<Header>),
    pub(crate) schedule: unsafe fn(NonNull<Header>, WakeSource<'_>),
    pub(crate) joiner: unsafe fn(NonNull<Header>) -> Option<Joiner>,
}

/// Process that awaits the join handle of another process. The value also identifies the most recent poll that has
/// returned `Pending`. The fields are narrow and wrap, because the value must fit into the padding of the field that
/// later stores the outcome. With wider fields, each process would need 8 more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Joiner {
    /// Index in the pid of the joiner. The joiner is the process that awaits the join handle.
    pub(crate) index: u32,
    /// Low bits of the generation in the pid of the joiner.
    pub(crate) generation: u16,
    /// How many times a poll of the join handle has returned `Pending` so far.
    polls: u8,
}

impl Joiner {
    /// Returns the value after one more poll that returns `Pending`. If a process polls, `by` is the word of the pid of
    /// this process (`Pid::word`). Otherwise, `by` is 0.
    #[inline]
    pub(crate) fn next(self, by: u64) -> Self {
        Self { index: by as u32, generation: (by >> 32) as u16, polls: self.polls.wrapping_add(1) }
    }

    /// Returns whether a process has made the most recent poll. In one case, the result is wrong: if the process has
    /// the index 0 and the low bits of its generation are 0, the result is false.
    pub(crate) fn is_process(self) -> bool {
        (self.index, self.generation) != (0, 0)
    }
}

impl Task {
    /// Functions in the header of a value that is not a task. The run state of a value that is not a task is always
    /// *Over*, so the runtime calls only the function `joiner`.
    pub(super) const NONE: Self = {
        unsafe fn no_turn(_: NonNull<Header>) -> Option<RunnableProcess> {
            unreachable!("it is no task")
        }
        unsafe fn never(_: NonNull<Header>) {
            unreachable!("it is no task")
        }
        unsafe fn nowhere(_: NonNull<Header>, _: WakeSource<'_>) {
            unreachable!("it is no task")
        }
        unsafe fn no_joiner(_: NonNull<Header>) -> Option<Joiner> {
            None
        }
        Self { run: no_turn, cancel: never, schedule: nowhere, joiner: no_joiner }
    };
}

/// Scheduler of a process. The scheduler decides in which queue the process is stored.
pub(crate) trait Schedule: Clone + Send + Sync + 'static {
    /// Queues the process.
    fn schedule(self, ready: RunnableProcess, source: WakeSource<'_>);

    /// Returns whether the process may be run, and dropped, on this thread.
    fn is_here(&self) -> bool;

    /// The thread that has run the exit of the process calls this function once.
    #[inline]
    fn note_exit(&self) {}
}

/// The right to run a process. The process is queued, about to be queued, or running. A `RunnableProcess` exists only
/// while the process's *machine* exists. The machine is the user's code in the cell (`task/cell.rs`). The pointer in
/// this type has the provenance of the whole cell.
#[must_use = "dropping it ends the process"]
pub(crate) struct RunnableProcess(NonNull<Header>);

// SAFETY: a cell whose machine is `Send` may be run and dropped on any thread. If a cell is bound to a thread, the
// `Schedule` of the cell queues the cell only for that thread. Therefore, only that thread runs the cell. Before
// `cancel` drops any value, `cancel` calls `Schedule::is_here`. On any other thread, `is_here` returns false, and
// `cancel` drops nothing.
unsafe impl Send for RunnableProcess {}

impl fmt::Debug for RunnableProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunnableProcess").field(&self.0).finish()
    }
}

impl RunnableProcess {
    /// # Safety
    /// `at` points to the header of a task, and has the provenance of the whole allocation. The machine of the task was
    /// stored and has not been dropped. The caller owns the only right to run the task, and one of the strong counts of
    /// the task. The caller passes the right and the strong count to the result.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Header>) -> Self {
        Self(at)
    }

    /// Returns the header. The caller then owns the right to run the process and the strong count that belongs to
    /// this right.
    #[inline]
    pub(crate) fn into_at(self) -> NonNull<Header> {
        ManuallyDrop::new(self).0
    }

    #[inline]
    fn task(&self) -> &'static Task {
        &self.header().kind.task
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: a `RunnableProcess` owns one strong count, so the value is alive.
        unsafe { self.0.as_ref() }
    }

    /// Returns the `T` that follows the header.
    ///
    /// # Safety
    /// A `T` follows the header, without padding.
    #[inline]
    pub(crate) unsafe fn behind<T>(&self) -> &T {
        // SAFETY: a `RunnableProcess` owns one strong count, so the value is alive while `self` is borrowed. By
        // contract a `T` follows the header without padding. The pointer in a `RunnableProcess` has the provenance of
        // the whole cell.
        unsafe { behind(self.0) }
    }

    /// Returns the waker of the process. The waker is borrowed, and owns no strong count.
    #[inline]
    pub(crate) fn waker(&self) -> Borrowed<'_, Waker> {
        // SAFETY: the functions of `WAKER` accept the header of a task, and `self.0` points to the header of a task.
        // The waker owns no strong count, and `Borrowed` never drops the waker. The waker is borrowed from this
        // `RunnableProcess`, which keeps the value alive. A clone of the waker owns an additional strong count.
        Borrowed::new(unsafe { Waker::from_raw(RawWaker::new(self.0.as_ptr().cast(), &WAKER)) })
    }

    /// Returns a proof that this thread has the right to run the process. The mailbox of the process requires this
    /// proof. The proof does not borrow `self`. The caller uses the proof only for this process, and only while the
    /// caller has the right to run this process.
    #[inline]
    pub(crate) fn in_turn(&self) -> InTurn {
        InTurn::of_right()
    }

    /// Returns the name of the type of the process's code.
    pub(crate) fn type_name(&self) -> &'static str {
        self.type_name_fn()()
    }

    /// Returns the function that returns the name of the type of the process's code.
    #[inline]
    pub(crate) fn type_name_fn(&self) -> fn() -> &'static str {
        self.header().kind.type_name.unwrap_or(|| "")
    }

    /// Returns the address of the header.
    #[inline]
    pub(crate) fn at(&self) -> *const () {
        self.0.as_ptr().cast()
    }

    /// Runs the process for one turn. If the process needs another turn, returns the process. The caller must then
    /// queue the process behind the runnable processes, as [`schedule`](Self::schedule) does with [`WakeSource::Turn`].
    #[must_use = "dropping the returned process ends the process"]
    #[inline]
    pub(crate) fn run(self) -> Option<Self> {
        let run = self.task().run;
        // SAFETY: the function `run` belongs to the type of this value, and the pointer has the provenance of the whole
        // cell. The value `self` represents the right to run the process and owns one strong count, and `into_at`
        // consumes both. The right to run the process exists, so the process's machine was stored and has not
        // been dropped.
        unsafe { run(self.into_at()) }
    }

    /// Queues the process.
    #[inline]
    pub(crate) fn schedule(self, source: WakeSource<'_>) {
        let schedule = self.task().schedule;
        // SAFETY: the function `schedule` belongs to the type of this value, and the pointer has the provenance of the
        // whole cell. The value `self` represents the right to run the process and owns one strong count, and `into_at`
        // consumes both. The right to run the process exists, so the process's machine was stored and has not
        // been dropped.
        unsafe { schedule(self.into_at(), source) };
    }

    /// Ends a turn. If the process was woken during the turn, returns the process, because the process needs another
    /// turn. If the process was not woken, the process waits.
    #[must_use = "dropping the returned process ends the process"]
    #[inline]
    pub(crate) fn wait(self) -> Option<Self> {
        // SAFETY: `wait_as` requires an open slot only if its argument is `true`.
        unsafe { self.wait_as(false) }
    }

    /// Does the same as [`wait`](Self::wait), with one difference: if the process waits, its run state is *Open*, so
    /// that a sender may write the slot of the mailbox.
    ///
    /// # Safety
    /// The slot of the process's mailbox is open.
    #[must_use = "dropping the returned process ends the process"]
    #[inline]
    pub(crate) unsafe fn wait_open(self) -> Option<Self> {
        // SAFETY: `wait_as` requires that the slot of the mailbox is open, and the caller of this function guarantees
        // this condition.
        unsafe { self.wait_as(true) }
    }

    /// # Safety
    /// If `open` is true, the slot of the process's mailbox is open.
    #[inline]
    unsafe fn wait_as(self, open: bool) -> Option<Self> {
        // Another thread may run the process as soon as the process waits. Therefore `self` is consumed before the
        // process waits.
        let at = ManuallyDrop::new(self).0;
        // SAFETY: `self` was a `RunnableProcess`, which owns one strong count. This strong count keeps the value alive
        // until the process waits. After that point, no code accesses the value through this reference. A task begins
        // with its header, and the run state follows the header. The pointer in a `RunnableProcess` has the provenance
        // of the whole cell.
        let state = unsafe { behind::<RunState>(at) };
        // SAFETY: `RunState::wait` requires the right to run the process, and `self` was this right. A new
        // `RunnableProcess` is created only if `wait` returns false. In this case, `wait` has not released the right to
        // run the process. If `open` is true, the slot is open by contract. A slot is closed only by a turn of the
        // process, or by a thread that has first ended the run state *Open*. Therefore, the slot stays open as long as
        // the run state is *Open*.
        if unsafe { state.wait(open) } { None } else { Some(Self(at)) }
    }
}

impl Drop for RunnableProcess {
    fn drop(&mut self) {
        // SAFETY: the function `cancel` belongs to the type of this value, and the pointer has the provenance of the
        // whole cell. The value `self` represents the right to run the process and owns one strong count. After this
        // call, neither the right to run the process nor the strong count is used again. The right to run the process
        // exists, so the process's machine was stored and has not been dropped.
        unsafe { (self.task().cancel)(self.0) };
    }
}

/// A process that was woken and must be queued. When this value is dropped, the process is queued. Therefore, this
/// value must be dropped only when no lock is held.
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
    /// Returns whether the waker belongs to a process.
    #[inline]
    pub(crate) fn is_of_process(waker: &Waker) -> bool {
        ptr::eq(waker.vtable(), &WAKER)
    }

    /// Wakes the process of this waker, if the waker belongs to a process. If the process was waiting, returns a
    /// `PendingSchedule`, and the caller must queue the process. If the process was not waiting, or if the waker does
    /// not belong to a process, returns `None`. The caller then calls `wake` on the waker.
    #[inline]
    pub(crate) fn wake(waker: &Waker) -> Option<Self> {
        if !Self::is_of_process(waker) {
            return None;
        }
        let at = NonNull::new(waker.data().cast_mut().cast())?;
        // SAFETY: each waker with this vtable was either returned by `RunnableProcess::waker` or cloned from a waker
        // with this vtable. The data pointer of a waker with this vtable points to the header of a task, and has the
        // provenance of the whole cell. A task is `Stepped`. The waker is borrowed as long as this function runs, and
        // keeps the cell alive.
        unsafe { wake_at(at, RunState::wake) }
    }

    /// Queues the process. If the caller holds the lock of an event, the process is queued after the release of this
    /// lock: see [`delayed_wake`]. When the process is queued, an observer may be called, and an observer is user code.
    #[inline]
    fn queue_delayed(self) {
        let mut woken = Some(self);
        let _ = delayed_wake::collect_process(|| Waker::from(Arc::new(DelayedSchedule(Mutex::new(woken.take())))));
    }

    /// Queues the process now. The parameter `place` is the scheduler handle of the host of the process. The caller
    /// keeps this handle alive.
    #[cfg(not(procession_loom))]
    #[inline]
    pub(crate) fn queue(mut self, place: &SchedulerHandle) {
        self.queue_as(WakeSource::Waiting(Some(place)));
    }

    /// Queues the process now, behind the runnable processes.
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

    /// Returns the process. The caller reads the process, and does not run or queue the process.
    #[inline]
    pub(crate) fn process(&self) -> Option<&RunnableProcess> {
        self.0.as_ref()
    }
}

impl<T: ?Sized> Ref<T> {
    /// Returns the process that awaits the join handle of this process, if there is such a process.
    ///
    /// # Safety
    /// The value is an entry of the pid table, and stays in the table during the call.
    pub(crate) unsafe fn joiner(&self) -> Option<Joiner> {
        let joiner = self.header().kind.task.joiner;
        // SAFETY: the function `joiner` belongs to the type of this value. The reference keeps the value alive during
        // the call, and the pointer of the reference has the provenance of the whole allocation. By contract the value
        // stays in the table.
        unsafe { joiner(self.at().cast()) }
    }
}

/// Trait of the values that contain a run state. Each value is a task or has the layout of a task. If the value is not
/// a task, the run state of the value is *Over* from the beginning.
///
/// # Safety
/// The [`RunState`] of the value follows the header of the value. Each value of this type is created by
/// [`Ref::with`](crate::process::state::Ref::with), which exposes the provenance of the memory. A value whose initial
/// run state is not *Over* is a cell. The run state of a cell is *Idle* or *Open* only while no [`RunnableProcess`] for
/// this cell exists. The value contains at most one inbox, which is the inbox of the process of this value.
pub(crate) unsafe trait Stepped: HeaderFirst {
    /// Returns whether the address is inside this value.
    #[inline]
    fn contains(&self, address: *const ()) -> bool
    where
        Self: Sized,
    {
        address.addr().wrapping_sub(ptr::from_ref(self).addr()) < size_of::<Self>()
    }

    /// Wakes the process. If the process was waiting, this function returns a `PendingSchedule` with the process, and
    /// the caller must queue the process.
    #[inline]
    fn wake(&self) -> Option<PendingSchedule> {
        // The pointer must have the provenance of the whole cell. A reference to the beginning of the cell has no
        // provenance for the rest of the cell. Therefore, the pointer uses the provenance that `Ref::with` has exposed.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        // SAFETY: the value is alive, because `self` is a reference to the value. `Self` is `Stepped`. The pointer has
        // the exposed provenance of the whole allocation.
        unsafe { wake_at(at.expect("a reference is not null"), RunState::wake) }
    }

    /// Wakes the process if its run state is *Open*. The caller has a message for the process. If this function returns
    /// a `PendingSchedule`, the caller must queue the process.
    #[inline]
    fn deliver(&self) -> Option<PendingSchedule> {
        // The pointer must have the provenance of the whole cell, as in `wake`.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        // SAFETY: the value is alive, because `self` is a reference to the value. `Self` is `Stepped`. The pointer has
        // the exposed provenance of the whole allocation.
        unsafe { wake_at(at.expect("a reference is not null"), RunState::deliver) }
    }

    /// Recalls the process: see [`RunState::recall`].
    fn recall(&self) -> bool {
        // SAFETY: the value is alive, because `self` is a reference to the value. The run state follows the header of
        // the value. The reference `self` covers both the header and the run state.
        unsafe { behind::<RunState>(NonNull::from(self).cast()) }.recall()
    }
}

/// Returns the `T` that follows a header.
///
/// # Safety
/// The value is alive until the last use of the result. A `T` follows the header without padding. The provenance of
/// `at` covers this `T`.
#[inline]
unsafe fn behind<'a, T>(at: NonNull<Header>) -> &'a T {
    const { assert!(align_of::<T>() <= align_of::<Header>()) };
    // SAFETY: by contract the `T` that follows the header belongs to the same allocation, so the address is in bounds.
    let behind = unsafe { at.add(1) };
    // SAFETY: by contract a `T` is at this address and lives long enough. The `T` is aligned, because its alignment is
    // at most the alignment of a header.
    unsafe { behind.cast().as_ref() }
}

/// Wakes a process with the transition `wake` of its run state. The transition returns whether the process must be
/// queued.
///
/// # Safety
/// The value is alive and [`Stepped`], and `at` has the provenance of the whole allocation. The caller passes
/// [`RunState::wake`] or [`RunState::deliver`] in `wake`.
#[inline]
unsafe fn wake_at(at: NonNull<Header>, wake: impl FnOnce(&RunState) -> bool) -> Option<PendingSchedule> {
    // SAFETY: by contract the value is alive and `Stepped`, and `at` has the provenance of the whole allocation.
    // Therefore, the run state follows the header, within the memory of the value.
    let must_queue = wake(unsafe { behind::<RunState>(at) });
    // SAFETY: the transition returned true only if the transition changed the process from waiting to active. A value
    // that is not a task always has the run state *Over*. This value was in another run state, so this value is a task.
    // A waiting process has no `RunnableProcess`, so the new `RunnableProcess` is the only one. A `RunnableProcess`
    // owns a strong count. The process kept this strong count while it waited. The machine of a waiting process was
    // stored, and is dropped only after the process has stopped waiting. By contract the pointer has the provenance of
    // the whole cell.
    must_queue.then(|| PendingSchedule(Some(unsafe { RunnableProcess::new(at) })))
}

/// Waker that queues a process that is already woken.
struct DelayedSchedule(Mutex<Option<PendingSchedule>>);

impl Wake for DelayedSchedule {
    fn wake(self: Arc<Self>) {
        let woken = self.0.lock().take();
        drop(woken);
    }
}

/// Waker of a process. The waker is a counted reference to the header of the process's cell. The functions of the waker
/// work for each type of cell.
static WAKER: RawWakerVTable = {
    fn header(at: *const ()) -> NonNull<Header> {
        NonNull::new(at.cast_mut().cast()).expect("a waker points to the header of a cell")
    }
    unsafe fn clone(at: *const ()) -> RawWaker {
        // SAFETY: the value is alive, because a waker owns a strong count, or is borrowed from a `RunnableProcess` that
        // owns a strong count.
        unsafe { header(at).as_ref() }.retain();
        RawWaker::new(at, &WAKER)
    }
    unsafe fn wake(at: *const ()) {
        // SAFETY: the pointer `at` is the data pointer of this waker. The waker owns a count until the next statement
        // drops the waker.
        unsafe { wake_by_ref(at) };
        // SAFETY: `wake` consumes the waker, so the count of the waker is released here, once.
        unsafe { drop(at) };
    }
    unsafe fn wake_by_ref(at: *const ()) {
        // If a process wakes itself in its own turn, the wake-up is only recorded, and is performed at the end of the
        // turn.
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
        // SAFETY: the value is alive, because a waker owns a strong count, or is borrowed from a `RunnableProcess` that
        // owns a strong count. A waker is created only for a task. Each task has the type `Stepped`. The pointer covers
        // the whole cell.
        if let Some(woken) = unsafe { wake_at(header(at), RunState::wake) } {
            woken.queue_delayed();
        }
    }
    unsafe fn drop(at: *const ()) {
        // SAFETY: a waker that is dropped owns a strong count, and this count is released here. A borrowed waker is
        // never dropped.
        unsafe { Header::release(header(at)) };
    }
    RawWakerVTable::new(clone, wake, wake_by_ref, drop)
};

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;
    use crate::{Context, Exit, Runtime};

    /// Spawns processes that wait. Each process stores its number in `ran` after the process was woken. Returns the
    /// wakers of the processes.
    fn waiting(rt: &Runtime, ran: &Arc<Mutex<Vec<usize>>>) -> Vec<Waker> {
        let wakers = Arc::new(Mutex::new(Vec::new()));
        for number in 0..3 {
            let (wakers, ran) = (Arc::clone(&wakers), Arc::clone(ran));
            let process = rt.spawn(async move |_: Context| {
                let mut waits = true;
                let waited = poll_fn(|cx| {
                    if !std::mem::take(&mut waits) {
                        return Poll::Ready(());
                    }
                    wakers.lock().push(cx.waker().clone());
                    Poll::Pending
                });
                waited.await;
                ran.lock().push(number);
                Ok::<_, Exit>(())
            });
            drop(process);
        }
        rest(rt);
        let mut wakers = wakers.lock();
        std::mem::take(&mut *wakers)
    }

    /// Runs the processes until all processes wait.
    fn rest(rt: &Runtime) {
        for _ in 0..10 {
            rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await)).expect("it exits");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs Tree Borrows because of crossbeam's epochs; `.ci/run long` includes this test")]
    fn a_waker_of_a_waiting_process_returns_the_process_once() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let ran = Arc::new(Mutex::new(Vec::new()));
        let wakers = waiting(&rt, &ran);
        assert!(!PendingSchedule::is_of_process(Waker::noop()) && PendingSchedule::wake(Waker::noop()).is_none());
        for waker in &wakers {
            assert!(PendingSchedule::is_of_process(waker));
            let woken = PendingSchedule::wake(waker).expect("the process waits");
            assert!(PendingSchedule::wake(waker).is_none(), "it is woken already");
            assert!(woken.process().is_some_and(|process| process.waker().will_wake(waker)));
        }
        rest(&rt);
        assert_eq!(ran.lock().len(), wakers.len());
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs Tree Borrows because of crossbeam's epochs; `.ci/run long` includes this test")]
    fn processes_that_are_queued_behind_each_other_run_in_this_order() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        let ran = Arc::new(Mutex::new(Vec::new()));
        let wakers = waiting(&rt, &ran);
        rt.block_on(async {
            for waker in &wakers {
                PendingSchedule::wake(waker).expect("the process waits").queue_behind();
            }
        });
        rest(&rt);
        assert_eq!(*ran.lock(), [0, 1, 2]);
    }

    #[test]
    fn a_joiner_identifies_the_process_that_has_made_the_last_poll() {
        let none = Joiner::default();
        assert!(!none.is_process());
        for (index, generation) in [(7, 0x1234), (7, 0), (0, 1)] {
            let last = none.next(u64::from(index) | 0xabcd_0000_0000_0000 | u64::from(generation) << 32);
            assert_eq!((last.index, last.generation), (index, generation));
            assert!(last.is_process() && last != last.next(u64::from(index) | u64::from(generation) << 32));
            assert!(!last.next(0).is_process());
        }
    }
}
