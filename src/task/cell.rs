//! The cell: one allocation for a process. It contains the control block, which all references share, and the machine,
//! which only the owner of the right to run accesses.
//!
//! The cell combines two objects that would otherwise be separate: a task of the crate async-task and a control block.
//! This needs unsafe code. A spawn is one allocation, a wake needs no reference count of its own, and a further turn
//! needs no locked instruction. In this way a spawn and a message cost a quarter less, and a yield costs two fifths
//! less (benchmarks `spawn`, `ping-pong`, `yield`).
//!
//! ```text
//!  Cell ┬ JoinBlock ┬ Control ┬ Header   reference counts, operations of the cell's type
//!       │           │         ├ Head     run state, pid, flags, state
//!       │           │         └ Inbox    mailbox
//!       │           └ outcome            output or exit, for the join handle
//!       ├ schedule                       how the process is queued
//!       └ machine                        user's code and state, for the owner of the right to run
//! ```
//!
//! `Cell`, `JoinBlock` and `Control` each begin with the block to their right in the diagram. So a pointer to the cell
//! is also a pointer to each of these blocks: addresses use it as a [`Control`], join handles as a [`JoinBlock`].

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use crate::context::address::Address;
use crate::context::address::recipient::Takes;
use crate::context::me::SelfHandle;
use crate::host::ControlParts;
use crate::host::control::{AnyControl, Control, Head};
use crate::platform::sync::Lock;
use crate::process::catch as panic;
use crate::process::catch::Held;
use crate::process::exit::Exit;
use crate::process::state::wake_order::WakeSource;
use crate::process::state::{
    Borrowed, Clear, Header, HeaderFirst, Ref, RunState, RunnableProcess, Schedule, Stepped, Task, VTable,
};
use crate::task;
use crate::task::{Machine, TurnOutcome};

/// State of the outcome of a process.
enum Outcome<T> {
    /// The process has no outcome yet. If a task waits for the join handle, the waker is the waker of that task.
    Awaited(Option<Waker>),
    /// The join handle was dropped.
    Detached,
    /// The process has exited. `None`: the outcome was lost with the runtime, or was taken.
    Over(Option<Held<Result<T, Exit>>>),
}

/// The part of a cell that its join handle uses: the control block and the outcome.
#[repr(C)]
struct JoinBlock<M, T> {
    control: Control<M>,
    outcome: Lock<Outcome<T>>,
}

// SAFETY: the type is `repr(C)`, and its first field is its header. `clear` drops each of the other fields through a
// pointer to that field alone, and accesses no byte of the header.
unsafe impl<M> HeaderFirst for Control<M> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        // The pattern names every field. If a field is added, this does not compile until the field is also dropped
        // here.
        let _all = |Self { life: _, head: _, inbox: _ }| ();
        // SAFETY: `this` points to a whole control block, by contract, so its fields are in bounds.
        let inbox = unsafe { &raw mut (*this.as_ptr()).inbox };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        let _inbox = unsafe { Clear::new(inbox) };
        // SAFETY: `this` points to a whole control block, by contract, so its fields are in bounds.
        let head = unsafe { &raw mut (*this.as_ptr()).head };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        drop(unsafe { Clear::new(head) });
    }
}

// SAFETY: the run state follows the header without padding: it is the first field of the head, and the assertion below
// checks both offsets. Control blocks are made only by `Ref::with`. If a run state is not over from the beginning, it
// belongs to a cell. Only `RunnableProcess` changes an active run state to idle or open, and this change consumes the
// right to run.
unsafe impl<M> Stepped for Control<M> {}
const _: () = assert!(offset_of!(Control<u8>, head) == size_of::<Header>() && offset_of!(Head, run) == 0);

// SAFETY: the type is `repr(C)`, and its first field, a control block, is `HeaderFirst`. `clear` drops the outcome
// through a pointer to it alone, and leaves the control block to that type's `clear`.
unsafe impl<M, T> HeaderFirst for JoinBlock<M, T> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        let _all = |Self { control: _, outcome: _ }| ();
        // SAFETY: `this` points to a whole join block, by contract, so its fields are in bounds.
        let outcome = unsafe { &raw mut (*this.as_ptr()).outcome };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        let _outcome = unsafe { Clear::new(outcome) };
        // SAFETY: a join block begins with its control block, so `this` points to a whole control block. By contract no
        // reference reaches the fields of the join block, and so none reaches those of the control block.
        unsafe { Control::<M>::clear(this.cast()) };
    }
}

#[repr(C)]
struct Cell<X: Machine, S> {
    shell: JoinBlock<X::Message, X::Output>,
    schedule: S,
    /// Initialized from `start` to `finish`. It is pinned: it does not move between these two calls.
    machine: UnsafeCell<MaybeUninit<X>>,
}

// SAFETY: the type is `repr(C)`, and its first field, a join block, is `HeaderFirst`. `clear` drops the schedule
// through a pointer to it alone, and leaves the join block to that type's `clear`. The machine is a `MaybeUninit`,
// which has no destructor: `finish` has dropped the machine, or `start` never stored one.
unsafe impl<X: Machine, S> HeaderFirst for Cell<X, S> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        let _all = |Self { shell: _, schedule: _, machine: _ }| ();
        // SAFETY: `this` points to a whole cell, by contract, so its fields are in bounds.
        let schedule = unsafe { &raw mut (*this.as_ptr()).schedule };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        let _schedule = unsafe { Clear::new(schedule) };
        // SAFETY: a cell begins with its join block, so `this` points to a whole join block. By contract no reference
        // reaches the fields of the cell, and so none reaches those of the join block.
        unsafe { JoinBlock::<X::Message, X::Output>::clear(this.cast()) };
    }
}

/// The right to run a cell, and the references to the cell that the owner of this right uses.
///
/// The other fields are valid until `ready` is consumed.
struct Entered<'a, X: Machine, S> {
    ready: RunnableProcess,
    cell: &'a Cell<X, S>,
    me: Borrowed<'a, SelfHandle<X::Message>>,
    own: Borrowed<'a, Ref<dyn AnyControl>>,
}

impl<'a, X: Machine, S: Schedule> Cell<X, S> {
    const KIND: &'static VTable =
        &Ref::<Self>::kind(Task { run: Self::run, cancel: Self::cancel, schedule: Self::schedule });

    /// Takes over the right to run a cell.
    ///
    /// # Safety
    /// `at` points to the header of a cell of this type, with the provenance of the whole cell. The machine of the cell
    /// was started and has not finished. The caller owns the right to run the process and the reference count of this
    /// right, and gives up both. After `ready` is consumed, the caller does not use the other fields of the result.
    #[inline(always)]
    unsafe fn enter(at: NonNull<Header>) -> Entered<'a, X, S> {
        // SAFETY: `at` is the header of a task, with the provenance of the whole cell. The caller gives up the right to
        // run and the reference count of this right. `ready` takes both.
        let ready = unsafe { RunnableProcess::new(at) };
        // SAFETY: `at` is the header of a cell of this type, by contract. The cell is alive, because `ready` owns a
        // reference count, and the reference is not used after `ready` is consumed, by contract.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        // SAFETY: `at` is as for `enter`. `ready` keeps the cell alive until the last use of `me`, by contract.
        let me = unsafe { Self::me(at) };
        // SAFETY: `at` is as for `enter`. `ready` keeps the cell alive until the last use of `own`, by contract.
        let own = unsafe { Self::own(at) };
        Entered { ready, cell, me, own }
    }

    /// # Safety
    /// As for [`enter`](Self::enter), except the requirement on the fields of the result.
    unsafe fn run(at: NonNull<Header>) {
        // SAFETY: the requirements are those of this function. Each use of the other fields comes before `ready` is
        // consumed, at the end.
        let Entered { ready, cell, me, own } = unsafe { Self::enter(at) };
        if cell.shell.control.head.run.begin() {
            cell.shell.control.recalled(&ready);
        }
        // SAFETY: `ready` is the only right to run this process. It is consumed below, after the last use of `machine`.
        // No other reference to the machine exists, because each of them needs that right.
        let machine = unsafe { cell.machine() };
        let mut end = None;
        // `turn` catches panics of user code. If the runtime's own code panics, `ready` is dropped, and the process
        // exits.
        match task::turn(machine, &me, &own, &mut Context::from_waker(&ready.waker()), &mut end) {
            TurnOutcome::Again => ready.schedule(WakeSource::Turn),
            TurnOutcome::Waits => ready.wait(),
            // SAFETY: the slot is open. The turn returns `WaitsOpen` only if a waiting receiver noted that it waits
            // with an open slot. The receiver makes this note in the present turn, in one of two cases: it has opened
            // the slot under the mailbox's lock, or the mark of that lock shows that the slot is still open. The
            // receiver removes the note before it closes the slot. While the process is active, no other thread closes
            // its slot.
            TurnOutcome::WaitsOpen => unsafe { ready.wait_open() },
            // SAFETY: `ready` is the right to run this cell, and the turn has finished the process. `left` is true if
            // the turn handed over the reference count of the pid table.
            TurnOutcome::Over(left) => unsafe { Self::finish(ready, &mut end, left) },
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn cancel(at: NonNull<Header>) {
        // SAFETY: the requirements are those of this function. Each use of the other fields comes before `ready` is
        // consumed, at the end.
        let Entered { ready, cell, me, own } = unsafe { Self::enter(at) };
        if !cell.schedule.is_here() {
            // The machine is bound to another thread, and must not be dropped on this one. The machine and its
            // reference count are leaked.
            return std::mem::forget(ready);
        }
        // SAFETY: `ready` is the only right to run this process. It is consumed below, after the last use of `machine`.
        // No other reference to the machine exists, because each of them needs that right.
        let machine = unsafe { cell.machine() };
        let left = task::give_up(machine, &me, &own);
        // SAFETY: `ready` is the right to run this cell, and `give_up` has finished the process. `left` is true if
        // `give_up` handed over the reference count of the pid table.
        unsafe { Self::finish(ready, &mut None, left) };
    }

    /// # Safety
    /// The caller has the right to run the process, and uses the result only as long as it has that right. The caller
    /// has no other reference to the machine.
    #[expect(clippy::mut_from_ref, reason = "the holder of the right to run is the only user")]
    unsafe fn machine(&self) -> Pin<&mut X> {
        // SAFETY: the machine is accessed only with the right to run the process, and there is only one right. By
        // contract, the caller has this right for as long as it uses the result, and has no other reference to the
        // machine.
        let machine = unsafe { &mut *self.machine.get() };
        // SAFETY: `start` initializes the machine before it creates the first right to run. `finish` drops the machine
        // and consumes the last right to run, so no right exists for a machine that was dropped.
        let machine = unsafe { machine.assume_init_mut() };
        // SAFETY: the machine stays in the cell, which does not move, until `finish` drops it there.
        unsafe { Pin::new_unchecked(machine) }
    }

    /// The [`SelfHandle`] of the process. It owns no reference count.
    ///
    /// # Safety
    /// As for [`run`](Self::run). The result is used only while the caller has the right to run the process.
    #[inline]
    unsafe fn me(at: NonNull<Header>) -> Borrowed<'a, SelfHandle<X::Message>> {
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The reference
        // owns no count: `Borrowed` never drops it, and the caller, by contract, uses it only while the caller's right
        // keeps the cell alive.
        Borrowed::new(SelfHandle::new(unsafe { Ref::from_at(at.cast()) }))
    }

    /// The reference of the process to itself, without the type of its messages. It owns no reference count.
    ///
    /// # Safety
    /// As [`me`](Self::me).
    #[inline]
    unsafe fn own(at: NonNull<Header>) -> Borrowed<'a, Ref<dyn AnyControl>> {
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The reference
        // owns no count: `Borrowed` never drops it, and the caller, by contract, uses it only while the caller's right
        // keeps the cell alive.
        Borrowed::new(unsafe { Ref::<Control<X::Message>>::from_at(at.cast()) }.into_any())
    }

    /// Step 14 of an exit, the last one (see `host/exit.rs`): drops the machine, hands the outcome to the join handle,
    /// and releases the reference counts.
    ///
    /// # Safety
    /// `ready` is the right to run a cell of this type, whose process has exited. If `left` is true, the caller also
    /// hands over the reference count of the pid table.
    #[inline]
    unsafe fn finish(ready: RunnableProcess, outcome: &mut Option<Result<X::Output, Exit>>, left: bool) {
        let at = ready.into_at();
        // SAFETY: `at` is the header of a cell of this type, by contract. The cell is alive until its counts are
        // released below.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        // SAFETY: the machine is accessed only with the right to run the process. `ready` was the only right, and no
        // further one is made from it.
        let machine = unsafe { &mut *cell.machine.get() };
        // SAFETY: `start` initialized the machine; it is dropped only here, and not accessed afterwards.
        unsafe { machine.assume_init_drop() };
        // One count belongs to the right to run. If `left` is true, this function also releases the count of the pid
        // table.
        let counts = 1 + u32::from(left);
        // The only join handle owns a reference count. If the cell has no further count, the handle was dropped, and no
        // task can receive the outcome.
        if cell.shell.control.life.is_alone_with(counts) {
            cell.shell.discard(outcome);
        } else {
            cell.shell.settle(outcome);
        }
        // SAFETY: `ready` was the right to run the process, and was consumed. `settle` or `discard` made the last
        // access to the outcome on this side.
        unsafe { cell.shell.control.head.run.end() };
        // SAFETY: one count belonged to the right to run. If `left` is true, the other count is the count of the pid
        // table, which the caller handed over. The cell is not accessed after this call.
        unsafe { Header::release_many(at, counts) };
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn schedule(at: NonNull<Header>, source: WakeSource<'_>) {
        // SAFETY: `at` is the header of a cell of this type, by contract, and the caller's right keeps it alive. The
        // `Schedule` is cloned, because a queued process may run, exit and be freed on another thread before `schedule`
        // returns.
        let schedule = unsafe { at.cast::<Self>().as_ref() }.schedule.clone();
        // SAFETY: the caller gives up the right to run this task and its reference count: the new `RunnableProcess`
        // takes both.
        schedule.schedule(unsafe { RunnableProcess::new(at) }, source);
    }
}

impl<T> Outcome<T> {
    /// Takes the outcome for the join handle. `None` if the outcome was lost with its runtime.
    fn take(&mut self) -> Option<Result<T, Exit>> {
        match self {
            Self::Over(outcome) => outcome.take().map(Held::into_inner),
            Self::Awaited(_) => unreachable!("it has ended"),
            Self::Detached => unreachable!("its handle detaches it when it goes"),
        }
    }
}

impl<M, T> JoinBlock<M, T> {
    /// Drops the outcome, because the join handle is gone. Reports a failure that no link or monitor received.
    #[inline]
    fn discard(&self, outcome: &mut Option<Result<T, Exit>>) {
        if !matches!(outcome, Some(Ok(_))) {
            self.report_unobserved();
        }
        // An output without a destructor stays in place. Only a value with a destructor is moved, so that it can be
        // dropped.
        if std::mem::needs_drop::<T>() || matches!(outcome, Some(Err(_))) {
            drop(outcome.take().map(Held::new));
        }
    }

    /// Reports a failure of the process, unless a link, a monitor or the join handle received it.
    fn report_unobserved(&self) {
        let head = &self.control.head;
        head.host().report_unobserved(head);
    }

    /// Hands the outcome of a process that has exited to its join handle, and wakes the task that waits for it.
    fn settle(&self, outcome: &mut Option<Result<T, Exit>>) {
        let mut current = self.outcome.lock();
        // Both the drop of the outcome and the call of the waker run user code, so they happen without the lock.
        let Outcome::Awaited(waiting) = &mut *current else {
            drop(current);
            return self.discard(outcome);
        };
        let waiting = waiting.take();
        *current = Outcome::Over(outcome.take().map(Held::new));
        drop(current);
        if let Some(waker) = waiting {
            panic::wake(waker);
        }
    }

    /// Registers a waker for the outcome.
    ///
    /// # Errors
    /// Returns the outcome if the process has exited. In that case, no waker is registered. `None` inside the error
    /// means that the outcome was lost.
    fn await_with(&self, waker: &Waker) -> Result<(), Option<Result<T, Exit>>> {
        // `clone` and `drop` of a waker run user code: they happen without the lock.
        let waker = waker.clone();
        let mut current = self.outcome.lock();
        let Outcome::Awaited(waiting) = &mut *current else {
            let outcome = current.take();
            drop(current);
            return Err(outcome);
        };
        let former = waiting.replace(waker);
        drop(current);
        drop(former);
        Ok(())
    }

    /// Takes the outcome without the lock. `None` if the outcome was lost with its runtime.
    ///
    /// # Safety
    /// The process is over, and the caller has seen that with [`RunState::is_over`]. The caller has exclusive access to
    /// the only join handle of the process.
    #[inline]
    unsafe fn take_alone(&self) -> Option<Result<T, Exit>> {
        #[cfg(not(any(procession_loom, procession_shuttle)))]
        // SAFETY: the process accesses its outcome only before the release store in `RunState::end`, and the caller has
        // read that store with the acquire load in `is_over`. So the last unlock by the process happened before this
        // call. After that only the join handle accesses the outcome, and the caller has exclusive access to the
        // handle.
        let outcome = unsafe { self.outcome.alone(Outcome::take) };
        // Under the model checkers, `Lock` is a mutex of the model checker, which allows no access without locking.
        #[cfg(any(procession_loom, procession_shuttle))]
        let outcome = self.outcome.lock().take();
        outcome
    }

    /// Records that the join handle was dropped without taking the outcome. If the process has failed already, reports
    /// the failure.
    fn detach(&self) {
        let former = std::mem::replace(&mut *self.outcome.lock(), Outcome::Detached);
        if let Outcome::Over(outcome) = &former
            && !matches!(outcome.as_ref().map(Held::get), Some(Ok(_)))
        {
            self.report_unobserved();
        }
        drop(former);
    }
}

/// A process that has a pid and no machine yet. Other processes may already have references to it. If this value is
/// dropped, the process never starts.
pub(crate) struct ReservedProcess<X: Machine, S> {
    /// Owns the reference count of the right to run.
    run: Ref<Control<X::Message>>,
    handle: Ref<Control<X::Message>>,
    /// Reference for the machine, if it keeps one.
    own: Option<Ref<Control<X::Message>>>,
    _cell: PhantomData<fn(Cell<X, S>)>,
}

impl<X: Machine, S> fmt::Debug for ReservedProcess<X, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReservedProcess")
    }
}

impl<X: Machine, S: Schedule> ReservedProcess<X, S> {
    /// Creates the cell. Returns a reference for the pid table, and the reserved process.
    #[inline]
    pub(crate) fn new(schedule: S, blank: ControlParts) -> (Ref<dyn AnyControl>, Self) {
        let make = |life| {
            let shell =
                JoinBlock { control: blank.fill(life, RunState::active()), outcome: Lock::new(Outcome::Awaited(None)) };
            Cell { shell, schedule, machine: UnsafeCell::new(MaybeUninit::uninit()) }
        };
        let counts = 3 + u32::from(X::KEEPS_ITSELF);
        // SAFETY: `KIND` is the vtable of this type of cell, and `counts` is at least 1. `with` returns one reference,
        // and `into_at` passes its count to this function. This function already owns the other counts. The calls of
        // `count` below hand out all counts: three, and one more if the machine keeps a reference.
        let at = unsafe { Ref::<Cell<X, S>>::with(Cell::<X, S>::KIND, counts, make) }.into_at().cast();
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The number of
        // calls of `count` is the number of counts, and each call hands over one count.
        let count = || unsafe { Ref::<Control<X::Message>>::from_at(at) };
        let reserved = Self { run: count(), handle: count(), own: X::KEEPS_ITSELF.then(count), _cell: PhantomData };
        (count().into_any(), reserved)
    }

    pub(crate) fn control(&self) -> &Ref<Control<X::Message>> {
        &self.handle
    }

    /// Stores the machine, and returns the right to run. The caller queues the process.
    #[inline]
    pub(crate) fn start(self, machine: X) -> (Joined<X::Output, X::Message>, RunnableProcess) {
        let at = self.run.into_at().cast::<Header>();
        // SAFETY: `new` made a cell of this type, and `run` owned one of its counts, which now belongs to this
        // function.
        let cell = unsafe { at.cast::<Cell<X, S>>().as_ref() };
        // SAFETY: the machine is accessed only with the right to run the process. No right exists yet: the run state
        // was active from the beginning, so no wake creates one.
        unsafe { (*cell.machine.get()).write(machine) };
        if let Some(own) = self.own {
            // SAFETY: no right to run exists before the end of this function, which creates the first one. So this
            // function has exclusive access. The machine was stored above.
            unsafe { cell.machine() }.keep(own);
        }
        // SAFETY: a cell is a task, and `at` has the provenance of the whole cell. This is the first right to run it:
        // the run state is active, so no wake creates a second one. The reference count is the one that `run` owned.
        (Joined::new(self.handle, JoinStage::Begun), unsafe { RunnableProcess::new(at) })
    }
}

/// Reference of a join handle to its process. It returns the outcome once. Dropping it detaches the process.
pub(crate) struct Joined<T, M: Send + 'static> {
    address: Address<M>,
    stage: JoinStage,
    _outcome: PhantomData<fn() -> T>,
}

/// Progress of a join handle. It has the size of a word. If it were a byte, copying it with a wider load would miss
/// store forwarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum JoinStage {
    /// The spawn was refused: there is no process, and no outcome.
    StartRefused,
    /// The process was started. From this stage on, the address leads to a join block.
    Begun,
    /// A waker is registered for the outcome.
    Waits,
    /// The outcome was taken, or was lost with its runtime.
    Answered,
}

// SAFETY: a `Joined` gives out only a `T`, and only to a caller with a mutable reference. The `T` may be sent because
// `T: Send`. The address may be sent for every `M: Send`.
unsafe impl<T: Send, M: Send + 'static> Send for Joined<T, M> {}

impl<T, M: Send + 'static> fmt::Debug for Joined<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Joined")
    }
}

impl<T, M: Send + 'static> Joined<T, M> {
    #[inline]
    fn new(control: Ref<Control<M>>, stage: JoinStage) -> Self {
        Self { address: Address::new(control), stage, _outcome: PhantomData }
    }

    /// Handle of a refused spawn. Its exit is in the control block.
    pub(crate) fn for_refused_spawn(control: Ref<Control<M>>) -> Self {
        Self::new(control, JoinStage::StartRefused)
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.stage != JoinStage::StartRefused
    }

    #[inline]
    pub(crate) fn address(&self) -> &Address<M> {
        &self.address
    }

    #[inline]
    fn shell(&self) -> Option<&JoinBlock<M, T>> {
        // SAFETY: only `start` makes a handle that has begun, with a cell whose message and output types are `M` and
        // `T`. That cell begins with a `JoinBlock<M, T>`; both types are `repr(C)`. The address owns a count, which
        // keeps the cell alive, and its pointer has the provenance of the whole cell.
        self.has_begun().then(|| unsafe { self.address.control().at().cast().as_ref() })
    }

    /// Polls for the outcome. Returns `None` if the outcome was lost with its runtime, or if the spawn was refused.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Exit>>> {
        let Some(shell) = self.shell() else { return Poll::Ready(None) };
        // If the process has exited already, neither a waker nor a lock is needed. This case is common.
        let outcome = if shell.control.head.run.is_over() {
            // SAFETY: the line above saw that the process is over. This is its only join handle, and it is borrowed
            // mutably.
            unsafe { shell.take_alone() }
        } else {
            match shell.await_with(cx.waker()) {
                Ok(()) => {
                    self.stage = JoinStage::Waits;
                    return Poll::Pending;
                }
                Err(outcome) => outcome,
            }
        };
        self.stage = JoinStage::Answered;
        Poll::Ready(outcome)
    }
}

impl<T, M: Send + 'static> Drop for Joined<T, M> {
    #[inline]
    fn drop(&mut self) {
        // The drop of the handle races with the exit of the process. Either the drop finds the outcome, or the exit
        // finds that the handle was dropped. In each case, exactly one of the two reports a failure.
        if matches!(self.stage, JoinStage::Begun | JoinStage::Waits)
            && let Some(shell) = self.shell()
        {
            shell.detach();
        }
    }
}

impl RunnableProcess {
    /// Head of the control block of the process.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: every task is a cell, which begins with a `repr(C)` control block. There the head follows the header
        // without padding, as the assertion below `Stepped for Control` checks.
        unsafe { self.behind() }
    }
}

impl<M: Send + 'static> Ref<Control<M>> {
    /// Another reference, without the type of the messages.
    #[inline]
    pub(crate) fn any(&self) -> Ref<dyn AnyControl> {
        self.clone().into_any()
    }

    #[inline]
    pub(crate) fn into_any(self) -> Ref<dyn AnyControl> {
        let at: NonNull<dyn AnyControl> = self.into_at();
        // SAFETY: `at` is the pointer of `self` with its type erased, and `self` handed over its count.
        unsafe { Ref::from_at(at) }
    }
}

impl<M: Send + 'static> Ref<Control<M>> {
    /// Converts `self` into a reference to a process that takes messages of the type `A`.
    pub(crate) fn taking<A: Send + 'static>(self) -> Ref<dyn Takes<A>>
    where
        M: From<A>,
    {
        let at: NonNull<dyn Takes<A>> = self.into_at();
        // SAFETY: `at` is the pointer of `self` with its type erased, and `self` handed over its count.
        unsafe { Ref::from_at(at) }
    }
}

impl Ref<dyn AnyControl> {
    pub(crate) fn of(other: Ref<impl AnyControl>) -> Self {
        let at: NonNull<dyn AnyControl> = other.into_at();
        // SAFETY: `at` is the pointer of `other` with its type erased, and `other` handed over its count.
        unsafe { Ref::from_at(at) }
    }

    /// Returns the typed reference, if `M` is the message type of the process.
    pub(crate) fn downcast<M: Send + 'static>(self) -> Option<Ref<Control<M>>> {
        if !self.as_any().is::<Control<M>>() {
            return None;
        }
        // SAFETY: the value is a `Control<M>`, as the check above found, and `self` handed over its count.
        Some(unsafe { Ref::from_at(self.into_at().cast()) })
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::context::step::{Events, Next, Process, StepOutput};
    use crate::host::job::Anywhere;
    use crate::task::Raw;
    use crate::task::body::{AsyncBody, ProcessOutput};

    /// Checks the exact sizes in bytes of idle processes. A program may have a million idle processes, so each new
    /// field costs a million times its size.
    #[test]
    fn an_idle_process_is_small() {
        async fn idle(mut ctx: Context<u64>) {
            while ctx.receive().await.is_ok() {}
        }
        fn body<Fut: Future<Output: ProcessOutput> + Send>(_: fn(Context<u64>) -> Fut) -> usize {
            size_of::<Cell<AsyncBody<u64, fn(Context<u64>) -> Fut, Fut>, Anywhere>>()
        }
        struct ByHand;
        impl Process for ByHand {
            type Message = u64;
            type Output = ();
            fn step(&mut self, _: Events<'_, u64>, _: &mut StepOutput<'_, u64>) -> Result<Next<()>, Exit> {
                Ok(Next::Wait)
            }
        }
        assert_eq!(size_of::<Control<u64>>(), 128);
        assert_eq!(body(idle), 224);
        assert_eq!(size_of::<Cell<Raw<ByHand>, Anywhere>>(), 184);
    }
}
