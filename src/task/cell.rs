//! The cell is the only allocation of a process. The cell contains the control block and the machine. All references to
//! the process share the control block. The thread that owns the right to run the process is the only thread that
//! accesses the machine.
//!
//! The cell replaces two separate objects, namely a task of the crate async-task and a control block. A cell needs
//! unsafe code. With the cell, a spawn makes one allocation, a wake-up changes no reference count, and a further turn
//! needs no locked instruction. As a result, the cost of a spawn and of a message is a quarter lower, and the cost of a
//! command is two fifths lower (benchmarks `spawn`, `ping-pong`, `yield`).
//!
//! ```text
//!  Cell ┬ CellBase ┬ JoinBlock ┬ Control ┬ Header   reference counts, operations of the cell's type
//!       │          │           │         ├ Head     run state, pid, flags, state
//!       │          │           │         └ Inbox    mailbox
//!       │          │           └ outcome            output or exit, for the join handle
//!       │          └ schedule                       how the process is queued
//!       └ machine                                   user's code and state, for the owner of the right to run
//! ```
//!
//! In the diagram, `Cell`, `CellBase`, `JoinBlock` and `Control` each begin with the block to their right. Therefore, a
//! pointer to the cell is also a pointer to its `CellBase`, its `JoinBlock`, its `Control` and its `Header`. Addresses
//! use the pointer as a [`Control`], and join handles use the pointer as a [`JoinBlock`].

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use crate::context::address::Address;
use crate::context::address::recipient::Takes;
use crate::context::me::SelfHandle;
use crate::host::ControlParts;
use crate::host::control::{AnyControl, Control, Head};
use crate::host::registry::Listed;
use crate::platform::sync::Lock;
use crate::process::catch as panic;
use crate::process::catch::Held;
use crate::process::exit::Exit;
use crate::process::state::wake_source::WakeSource;
use crate::process::state::{
    Borrowed, Clear, Header, HeaderFirst, Joiner, Ref, RunState, RunnableProcess, Schedule, Stepped, Task, VTable,
};
use crate::task;
use crate::task::{Machine, TurnOutcome, TypedMachine};

/// State of the outcome of a process.
enum Outcome<T> {
    /// The process has no outcome yet.
    Awaited {
        /// Waker of the task that awaits the join handle. The value is `None` if no task awaits the join handle.
        waker: Option<Waker>,
        /// Process that has polled the join handle with this waker. The wait-for graph reads this field.
        joiner: Joiner,
    },
    /// The join handle was dropped.
    Detached,
    /// The process has exited. The value is `None` if the outcome was taken, or if the process was dropped with its
    /// runtime and has no outcome.
    Over(Option<Held<Result<T, Exit>>>),
}

/// The part of a cell that the join handle of the process uses: the control block and the outcome.
#[repr(C)]
struct JoinBlock<M, T> {
    control: Control<M>,
    outcome: Lock<Outcome<T>>,
}

// SAFETY: the type is `repr(C)`, and its first field is its header. The function `clear` drops each of the other fields
// through a pointer that covers only this field. The function accesses no byte of the header.
unsafe impl<M> HeaderFirst for Control<M> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        // The pattern names every field. Therefore, if a field is added, this function does not compile until the
        // pattern names the new field. The author must then also drop the new field here. The wait record and the
        // source line have no destructor.
        let _all = |Self { header: _, head: _, inbox: _, first_wait: _, receive_line: _ }| ();
        // SAFETY: by contract, `this` points to a whole control block, so the fields of the control block are in
        // bounds.
        let inbox = unsafe { &raw mut (*this.as_ptr()).inbox };
        // SAFETY: by contract no reference to this field exists any more, and this `Clear` is the only `Clear` for the
        // field.
        let _inbox = unsafe { Clear::new(inbox) };
        // SAFETY: by contract, `this` points to a whole control block, so the fields of the control block are in
        // bounds.
        let head = unsafe { &raw mut (*this.as_ptr()).head };
        // SAFETY: by contract no reference to this field exists any more, and this `Clear` is the only `Clear` for the
        // field.
        drop(unsafe { Clear::new(head) });
    }
}

// SAFETY: the run state follows the header without padding, because the run state is the first field of the head. The
// assertion below checks both offsets. Control blocks are made only by `Ref::with`. A run state whose initial value is
// not *over* belongs to a cell. Only `RunnableProcess` changes an active run state to idle or open, and this change
// consumes the right to run. A control block contains one inbox, and this is the inbox of the process of this control
// block.
unsafe impl<M> Stepped for Control<M> {}
const _: () = assert!(offset_of!(Control<u8>, head) == size_of::<Header>() && offset_of!(Head, run) == 0);

// SAFETY: the type is `repr(C)`, and its first field, a control block, is `HeaderFirst`. The function `clear` calls
// `Control::clear`, which drops the fields of the control block except the header. Then `clear` drops the outcome
// through a pointer that covers only the outcome.
unsafe impl<M, T> HeaderFirst for JoinBlock<M, T> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        let _all = |Self { control: _, outcome: _ }| ();
        // SAFETY: by contract, `this` points to a whole join block, so the fields of the join block are in bounds.
        let outcome = unsafe { &raw mut (*this.as_ptr()).outcome };
        // SAFETY: by contract no reference to this field exists any more, and this `Clear` is the only `Clear` for the
        // field.
        let _outcome = unsafe { Clear::new(outcome) };
        // SAFETY: a join block begins with its control block, so `this` points to a whole control block. By contract,
        // code may have references to the header of the join block, but has no reference to any other field. The
        // control block is the first field of the join block, so this contract also holds for the fields of the control
        // block.
        unsafe { Control::<M>::clear(this.cast()) };
    }
}

/// The part of a cell that does not depend on the type of the machine. The compiler compiles the code of this part once
/// for each combination of message type, output type and schedule, and not once for each process type.
#[repr(C)]
struct CellBase<M, T, S> {
    join: JoinBlock<M, T>,
    schedule: S,
}

// SAFETY: the type is `repr(C)`, and its first field, a join block, is `HeaderFirst`. The function `clear` calls
// `JoinBlock::clear`, which drops the join block. Then `clear` drops the schedule through a pointer that covers only
// the schedule.
unsafe impl<M, T, S> HeaderFirst for CellBase<M, T, S> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        let _all = |Self { join: _, schedule: _ }| ();
        // SAFETY: by contract, `this` points to a whole base, so the fields of the base are in bounds.
        let schedule = unsafe { &raw mut (*this.as_ptr()).schedule };
        // SAFETY: by contract no reference to this field exists any more, and this `Clear` is the only `Clear` for the
        // field.
        let _schedule = unsafe { Clear::new(schedule) };
        // SAFETY: a base begins with its join block, so `this` points to a whole join block. By contract, code may have
        // references to the header of the base, but has no reference to any other field of the base. The join block is
        // the first field of the base, so this contract also holds for the fields of the join block.
        unsafe { JoinBlock::<M, T>::clear(this.cast()) };
    }
}

/// This type describes the memory of a cell. The code creates no value and no reference of this type. To access the
/// machine, a function creates a reference from a raw pointer.
#[repr(C)]
struct Cell<X: Machine, S> {
    base: CellBase<X::Message, X::Output, S>,
    /// The function [`create`] stores the machine in this field, and `Cell::finish` drops the machine. Between these
    /// two calls, the machine is pinned and does not move.
    machine: X,
}

/// The result of `enter`: the right to run a process, and references to the cell of this process.
///
/// `ready` is the right to run the process. The other fields are references to the cell. These references are valid
/// until `ready` is consumed or passed on.
struct Entered<'a, M: Send + 'static, T, S> {
    ready: RunnableProcess,
    base: &'a CellBase<M, T, S>,
    me: Borrowed<'a, SelfHandle<M>>,
    own: Borrowed<'a, Ref<dyn AnyControl>>,
}

impl<X: Machine, S: Schedule> Cell<X, S> {
    /// The table of functions for this type of cell. The function `clear` of this table drops only the base.
    /// [`finish`](Self::finish) drops the machine earlier.
    const KIND: &'static VTable = &Ref::<CellBase<X::Message, X::Output, S>>::kind(
        Layout::new::<Self>(),
        Task {
            run: Self::run,
            cancel: Self::cancel,
            schedule: CellBase::<X::Message, X::Output, S>::schedule,
            joiner: JoinBlock::<X::Message, X::Output>::joiner_at,
        },
        Some(X::name),
    );

    /// # Safety
    /// `at` points to the header of a cell of the type `Cell<X, S>`. The pointer `at` has the provenance of the whole
    /// cell. The caller owns the right to run the process and the reference count of this right, and passes both to
    /// this function. The function [`create`] has stored the machine of the cell, and [`finish`](Self::finish) has not
    /// dropped the machine. If the result is `Some`, the result contains the right to run the process and the reference
    /// count of this right.
    unsafe fn run(at: NonNull<Header>) -> Option<RunnableProcess> {
        // SAFETY: a `Cell` is `repr(C)` and begins with its base, so `at` points to the header of a cell that begins
        // with a `CellBase<X::Message, X::Output, S>`. The caller of this function guarantees the other requirements of
        // `enter`. This function uses the other fields of the result only before it consumes or returns `ready`.
        let Entered { ready, base, me, own } = unsafe { CellBase::<X::Message, X::Output, S>::enter(at) };
        let control = &base.join.control;
        control.begin_turn(&ready);
        // SAFETY: by contract, the machine is stored, `at` points to the header of a cell of this type, and `at` has
        // the provenance of the whole cell. A reference to the machine needs the right to run this process. The value
        // `ready` is the only right to run this process, so no other reference to the machine exists. The value `ready`
        // is consumed or returned below, after the last use of the reference `machine`.
        let mut machine = unsafe { Self::machine(at) };
        let (progress, mut output, mut failure) = (machine.as_mut().progress(), None, None);
        // The function `turn` catches panics of user code. If the runtime's own code panics, `ready` is dropped, and
        // the process exits.
        let mut typed = TypedMachine::new(machine, &me, &mut output);
        let outcome = task::turn(task::of_turn(&mut typed), progress, &control.head, &own, &ready, &mut failure);
        match outcome {
            TurnOutcome::Again => Some(ready),
            TurnOutcome::Waits => ready.wait(),
            // SAFETY: the slot is open. The turn returns `WaitsOpen` only if a receiver has noted that it waits with an
            // open slot. The receiver makes this note in the present turn. At this time, the receiver has opened the
            // slot under the mailbox's lock, or the mark of this lock shows that the slot is still open. The receiver
            // removes the note before it closes the slot. While the process is active, no other thread closes its slot.
            TurnOutcome::WaitsOpen => unsafe { ready.wait_open() },
            // SAFETY: `finish` requires the right to run the process of a cell of this type, and `ready` is the right
            // to run this process. The turn has ended the process, and the reference in `typed` is not used any more.
            // If `left` is true, the turn has taken over the reference count that the pid table owned, and `finish`
            // gets this count.
            TurnOutcome::Over(left) => unsafe {
                Self::finish(ready, &mut output, failure, left);
                None
            },
        }
    }

    /// # Safety
    /// The requirements of [`run`](Self::run).
    unsafe fn cancel(at: NonNull<Header>) {
        // SAFETY: a `Cell` is `repr(C)` and begins with its base, so `at` points to the header of a cell that begins
        // with a `CellBase<X::Message, X::Output, S>`. The caller of this function guarantees the other requirements of
        // `enter`. This function uses the other fields of the result only before it consumes `ready`.
        let Entered { ready, base, me, own } = unsafe { CellBase::<X::Message, X::Output, S>::enter(at) };
        if !base.schedule.is_here() {
            // The machine belongs to another thread, and must not be dropped on this thread. Therefore, the machine and
            // the reference count of the right to run are leaked.
            return std::mem::forget(ready);
        }
        // SAFETY: by contract, the machine is stored, `at` points to the header of a cell of this type, and `at` has
        // the provenance of the whole cell. A reference to the machine needs the right to run this process. The value
        // `ready` is the only right to run this process, so no other reference to the machine exists. The value `ready`
        // is consumed below, after the last use of the reference `machine`.
        let mut machine = unsafe { Self::machine(at) };
        let (progress, mut output) = (machine.as_mut().progress(), None);
        let mut typed = TypedMachine::new(machine, &me, &mut output);
        let left = task::give_up(&mut typed, progress, &base.join.control.head, &own, ready.in_turn());
        // SAFETY: `finish` requires the right to run the process of a cell of this type, and `ready` is the right to
        // run this process. The call of `give_up` has ended the process, and the reference in `typed` is not used any
        // more. If `left` is true, `give_up` has taken over the reference count that the pid table owned, and `finish`
        // gets this count.
        unsafe { Self::finish(ready, &mut output, None, left) };
    }

    /// Returns a pointer to the memory of the machine. `at` points to the header of a cell of this type. The result has
    /// the provenance of `at`.
    #[inline]
    fn machine_at(at: NonNull<Header>) -> *mut X {
        at.as_ptr().cast::<u8>().wrapping_add(offset_of!(Self, machine)).cast()
    }

    /// # Safety
    /// `at` points to the header of a cell of this type, and has the provenance of the whole cell. The function
    /// [`create`] has stored the machine, and [`finish`](Self::finish) has not dropped the machine. The caller has
    /// exclusive access to the machine: either the caller has the right to run the process and uses the result only
    /// while the caller has the right to run the process, or no right to run the process exists yet. The caller has no
    /// other reference to the machine.
    #[inline]
    unsafe fn machine<'a>(at: NonNull<Header>) -> Pin<&'a mut X> {
        let machine = Self::machine_at(at);
        // SAFETY: by contract, `at` points to the header of a cell of this type, and has the provenance of the whole
        // cell. By contract, the machine is stored, and the caller has exclusive access to the machine.
        let machine = unsafe { &mut *machine };
        // SAFETY: the cell does not move, and the machine stays in the cell until `finish` drops the machine there.
        unsafe { Pin::new_unchecked(machine) }
    }

    /// Step 14, the last step of an exit (see `host/exit.rs`). Drops the machine, and calls [`CellBase::finish`].
    ///
    /// # Safety
    /// `ready` is the right to run the process of a cell of this type, and this process has exited. If `left` is true,
    /// the caller also passes a second reference count to this function, namely the count that the pid table owned. The
    /// caller uses no reference to the machine any more.
    #[inline]
    unsafe fn finish(ready: RunnableProcess, output: &mut Option<X::Output>, failure: Option<Exit>, left: bool) {
        // The value `ready` is consumed before the machine is dropped. If the destructor of the machine panicked while
        // `ready` existed, the drop of `ready` would use the machine again.
        let at = ready.into_at();
        let machine = Self::machine_at(at);
        // SAFETY: by contract, `at` points to the header of a cell of this type. The pointer in a `RunnableProcess` has
        // the provenance of the whole cell. The machine is accessed only with the right to run the process. The value
        // `ready` was the only right to run this process, and no second `RunnableProcess` is created from `ready`. By
        // contract, the caller uses no reference to the machine any more. `create` initialized the machine. The machine
        // is dropped only here, and is not accessed afterwards.
        unsafe { machine.drop_in_place() };
        // SAFETY: this function has received the right to run the process and the reference counts. This function
        // passes the right to run the process and the counts to `CellBase::finish`. A cell of this type begins with
        // such a base.
        unsafe { CellBase::<X::Message, X::Output, S>::finish(at, output, failure, left) };
    }
}

impl<M: Send + 'static, T, S: Schedule> CellBase<M, T, S> {
    /// Allocates a cell, and creates its base. The memory of the machine stays uninitialized. The strong count begins
    /// at 3: one count each for the pid table, the join handle and the right to run the process. If `keeps_itself` is
    /// true, the strong count begins at 4, with one count for the machine. The caller owns these counts.
    ///
    /// # Safety
    /// `kind` is the vtable of a cell that begins with a base of this type.
    #[inline(always)]
    unsafe fn allocate(kind: &'static VTable, keeps_itself: bool, schedule: S, parts: ControlParts) -> NonNull<Header> {
        let make = |header| {
            let control = parts.fill(header, RunState::active());
            Self { join: JoinBlock { control, outcome: Lock::new(Outcome::new()) }, schedule }
        };
        // SAFETY: `kind` is the vtable of a cell that begins with a base of this type, and the number of reference
        // counts is at least 1. `with` returns a reference that owns one reference count, and the caller of `with` owns
        // the other reference counts. `into_at` converts the reference to a pointer without releasing the reference
        // count that the reference owns. Therefore, the caller of this function owns all reference counts.
        unsafe { Ref::with(kind, 3 + u32::from(keeps_itself), make) }.into_at().cast()
    }

    /// Takes over the right to run the process of a cell.
    ///
    /// # Safety
    /// `at` points to the header of a cell, and this cell begins with a base of this type. The pointer `at` has the
    /// provenance of the whole cell. The caller owns the right to run the process and the reference count of this
    /// right, and passes both to this function. After `ready` is consumed or passed on, the caller does not use the
    /// other fields of the result.
    #[inline(always)]
    unsafe fn enter<'a>(at: NonNull<Header>) -> Entered<'a, M, T, S> {
        // SAFETY: the pointer `at` points to the header of a task and has the provenance of the whole cell. The caller
        // passes two things to this function: the right to run the process, and the reference count of this right. The
        // new `RunnableProcess` takes both.
        let ready = unsafe { RunnableProcess::new(at) };
        // SAFETY: by contract, `at` points to the header of a cell that begins with a base of this type. The cell is
        // alive, because `ready` owns a reference count. By contract, the reference to the base is not used after
        // `ready` is consumed.
        let base = unsafe { at.cast::<Self>().as_ref() };
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The closure is
        // called for `me` and for `own`. These references own no reference count. `from_at` needs no reference count,
        // because `Borrowed` never drops the two references, and `ready` owns a reference count until the last use of
        // the two references.
        let control = || unsafe { Ref::<Control<M>>::from_at(at.cast()) };
        let (me, own) = (Borrowed::new(SelfHandle::new(control())), Borrowed::new(control().into_any()));
        Entered { ready, base, me, own }
    }

    /// The last part of step 14 of an exit (see `host/exit.rs`). Passes the outcome to the join handle, and releases
    /// the reference counts.
    ///
    /// # Safety
    /// `at` points to the header of a cell, and this cell begins with a base of this type. The pointer `at` has the
    /// provenance of the whole cell. The process of this cell has exited. The caller passes the right to run the
    /// process and the reference count of this right to this function. If `left` is true, the caller also passes a
    /// second reference count, namely the count that the pid table owned.
    #[inline]
    unsafe fn finish(at: NonNull<Header>, output: &mut Option<T>, failure: Option<Exit>, left: bool) {
        // SAFETY: by contract, `at` points to the header of a cell that begins with a base of this type. The cell is
        // alive until its reference counts are released below.
        let Self { join, schedule } = unsafe { at.cast::<Self>().as_ref() };
        schedule.note_exit();
        // One reference count belongs to the right to run the process. If `left` is true, this function also releases
        // the reference count that the pid table owned.
        let counts = 1 + u32::from(left);
        // The join handle owns a reference count. If the number of references is exactly `counts`, the handle was
        // dropped, and no task can receive the outcome.
        if join.control.header.is_alone_with(counts) {
            join.discard(output, failure);
        } else {
            join.settle(output, failure);
        }
        // The call `end_exit` increments the number of completed exits in the metrics. The call comes after `settle`,
        // which wakes the task that awaits the join handle.
        join.control.head.host().shared().metrics.end_exit();
        // SAFETY: `end` requires the right to run the process. The caller has passed the right to run the process to
        // this function, and no `RunnableProcess` of the process exists any more. Therefore no other code can use the
        // right to run the process. This function does not access the outcome after `settle` or `discard`.
        unsafe { join.control.head.run.end() };
        // SAFETY: one reference count belonged to the right to run the process. If `left` is true, the other reference
        // count is the count that the pid table owned. The caller passed this count to this function. The cell is not
        // accessed after this call.
        unsafe { Header::release_many(at, counts) };
    }

    /// # Safety
    /// The requirements of [`Cell::run`], for a cell that begins with a base of this type.
    unsafe fn schedule(at: NonNull<Header>, source: WakeSource<'_>) {
        // SAFETY: by contract, `at` points to the header of a cell that begins with a base of this type, and the cell
        // is alive, because the caller has the right to run the process. The `Schedule` is cloned, because a queued
        // process may run, exit and be freed on another thread before `schedule` returns.
        let schedule = unsafe { at.cast::<Self>().as_ref() }.schedule.clone();
        // SAFETY: the caller of this function passes the right to run this task, and the reference count that belongs
        // to this right. The new `RunnableProcess` takes over this right and this count.
        schedule.schedule(unsafe { RunnableProcess::new(at) }, source);
    }
}

impl<T> Outcome<T> {
    fn new() -> Self {
        Self::Awaited { waker: None, joiner: Joiner::default() }
    }

    /// Takes the outcome for the join handle. Returns `None` if the process was dropped with its runtime.
    fn take(&mut self) -> Option<Result<T, Exit>> {
        match self {
            Self::Over(outcome) => outcome.take().map(Held::into_inner),
            Self::Awaited { .. } => unreachable!("it has ended"),
            Self::Detached => unreachable!("the drop of the handle detaches the outcome"),
        }
    }
}

impl<M, T> JoinBlock<M, T> {
    /// Drops the outcome, because the join handle was dropped. If the process failed and no link or monitor received
    /// the exit, reports the failure.
    #[inline]
    fn discard(&self, output: &mut Option<T>, failure: Option<Exit>) {
        if output.is_none() {
            self.report_unobserved();
            drop(failure.map(Held::new));
        }
        // An output without a destructor stays in its place, because a move would only copy the output.
        if std::mem::needs_drop::<T>() {
            drop(output.take().map(Held::new));
        }
    }

    /// Reports a failure of the process, if no link, monitor or join handle has received the exit.
    fn report_unobserved(&self) {
        let head = &self.control.head;
        head.host().report_unobserved(head);
    }

    /// Passes the outcome of an exited process to the join handle, and wakes the task that awaits the join handle.
    fn settle(&self, output: &mut Option<T>, failure: Option<Exit>) {
        let mut current = self.outcome.lock();
        // The destructor of the outcome is user code, and the waker is user code. Therefore, both are called without
        // the lock.
        let Outcome::Awaited { waker, .. } = &mut *current else {
            drop(current);
            return self.discard(output, failure);
        };
        let waiting = waker.take();
        let outcome = failure.map_or_else(|| output.take().map(Ok), |exit| Some(Err(exit)));
        *current = Outcome::Over(outcome.map(Held::new));
        drop(current);
        if let Some(waker) = waiting {
            panic::wake(waker);
        }
    }

    /// Registers a waker for the outcome. `by` is the pid word of the process that polls the join handle, or 0.
    ///
    /// # Errors
    /// If the process has exited, returns the outcome and registers no waker. If the process was dropped with its
    /// runtime, the error contains `None`.
    fn await_with(&self, waker: &Waker, by: u64) -> Result<(), Option<Result<T, Exit>>> {
        // The functions `clone` and `drop` of a waker run user code, so both are called without the lock.
        let waker = waker.clone();
        let mut current = self.outcome.lock();
        let Outcome::Awaited { waker: waiting, joiner } = &mut *current else {
            let outcome = current.take();
            drop(current);
            return Err(outcome);
        };
        let former = waiting.replace(waker);
        *joiner = joiner.next(by);
        drop(current);
        drop(former);
        Ok(())
    }

    /// # Safety
    /// `at` points to the header of a cell, and this cell begins with a join block of this type. The pointer `at` has
    /// the provenance of the whole cell. The cell is alive during the call, and its entry stays in the pid table during
    /// the call. Therefore the process is not over, and no thread calls [`take_alone`](Self::take_alone) before this
    /// call returns. So this call may lock the outcome.
    unsafe fn joiner_at(at: NonNull<Header>) -> Option<Joiner> {
        // SAFETY: by contract, `at` points to the header of a cell that begins with a join block of this type, and the
        // cell is alive. By contract, `joiner` may lock the outcome.
        unsafe { at.cast::<Self>().as_ref() }.joiner()
    }

    /// Returns the process that awaits the join handle.
    fn joiner(&self) -> Option<Joiner> {
        match &*self.outcome.lock() {
            Outcome::Awaited { waker: Some(_), joiner } if joiner.is_process() => Some(*joiner),
            _ => None,
        }
    }

    /// Takes the outcome without the lock. Returns `None` if the process was dropped with its runtime.
    ///
    /// # Safety
    /// The caller has called [`RunState::is_over`], and the result was true. The caller has exclusive access to the
    /// only join handle of the process.
    #[inline]
    unsafe fn take_alone(&self) -> Option<Result<T, Exit>> {
        #[cfg(not(any(procession_loom, procession_shuttle)))]
        // SAFETY: the process accesses its outcome only before the release store in `RunState::end`. The caller has
        // read the stored value with the acquire load in `is_over`. Therefore, the last unlock by the process happened
        // before this call. After the store, only the join handle accesses the outcome, and the caller has exclusive
        // access to the handle.
        let outcome = unsafe { self.outcome.alone(Outcome::take) };
        // Under the model checkers, `Lock` is a mutex of the model checker. This mutex allows no access without
        // locking.
        #[cfg(any(procession_loom, procession_shuttle))]
        let outcome = self.outcome.lock().take();
        outcome
    }

    /// Records that the join handle was dropped and did not take the outcome. If the process has already failed,
    /// reports the failure.
    fn detach(&self) {
        let former = std::mem::replace(&mut *self.outcome.lock(), Outcome::Detached);
        match former {
            // Usually, no waker is registered, and nothing is dropped.
            Outcome::Awaited { waker, .. } => drop(waker),
            Outcome::Detached => {}
            Outcome::Over(outcome) => {
                if !matches!(outcome.as_ref().map(Held::get), Some(Ok(_))) {
                    self.report_unobserved();
                }
                drop(outcome);
            }
        }
    }
}

/// A new process that is not queued yet.
pub(crate) struct Created<T, M: Send + 'static> {
    pub(crate) joined: Joined<T, M>,
    /// The right to run the process. The owner must queue the process.
    pub(crate) ready: RunnableProcess,
}

/// Creates the cell of a new process. Also returns the reference for the pid table.
#[inline(always)]
pub(crate) fn create<X: Machine, S: Schedule>(
    machine: X,
    schedule: S,
    parts: ControlParts,
) -> (Ref<dyn AnyControl>, Created<X::Output, X::Message>) {
    // SAFETY: `KIND` is the vtable of a cell that begins with a `CellBase<X::Message, X::Output, S>`.
    let at =
        unsafe { CellBase::<X::Message, X::Output, S>::allocate(Cell::<X, S>::KIND, X::KEEPS_ITSELF, schedule, parts) };
    // SAFETY: `at` points to the header of a new cell of this type, and has the provenance of the whole cell. Therefore
    // the place is in the memory of the cell, and is aligned for a machine. No other code accesses the machine, because
    // the machine is accessed only with the right to run the process. This right does not exist yet: the run state was
    // active from the beginning, and a wake-up of an active process does not create the right to run the process.
    unsafe { Cell::<X, S>::machine_at(at).write(machine) };
    if X::KEEPS_ITSELF {
        // SAFETY: `at` points to the header of a cell of this type, and has the provenance of the whole cell. The
        // machine was stored above. The end of this function creates the first right to run the process. No right to
        // run the process exists earlier. Therefore this function has exclusive access to the machine.
        let machine = unsafe { Cell::<X, S>::machine(at) };
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The call of
        // `allocate` has created a reference count for the machine.
        machine.keep(unsafe { Ref::from_at(at.cast()) });
    }
    // SAFETY: `at` points to the header of a cell that `allocate` has created. The machine is stored, and no right to
    // run the process exists yet. No value owns the counts of the results yet.
    unsafe { Created::new(at) }
}

impl<T, M: Send + 'static> Created<T, M> {
    /// Returns the first references to a new process, and the reference for the pid table.
    ///
    /// # Safety
    /// `at` points to the header of a cell, and has the provenance of the whole cell. [`CellBase::allocate`] has
    /// created the cell. The cell has the message type `M` and the output type `T`. Its machine is stored. This
    /// function is called once for the cell.
    #[inline]
    unsafe fn new(at: NonNull<Header>) -> (Ref<dyn AnyControl>, Self) {
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The call of
        // `allocate` has created a reference count for the pid table and another reference count for the join handle.
        // The closure is called twice, and each call uses one of these reference counts.
        let count = || unsafe { Ref::<Control<M>>::from_at(at.cast()) };
        let (entry, handle) = (count(), count());
        // SAFETY: a cell is a task, and `at` has the provenance of the whole cell. This call creates the first right to
        // run the task. The run state is active, and a wake-up of an active process creates no second right to run the
        // task. The call of `allocate` has created a reference count for the right to run the task.
        let ready = unsafe { RunnableProcess::new(at) };
        (entry.into_any(), Self { joined: Joined::new(handle, JoinStage::Begun), ready })
    }
}

/// The reference of a join handle to its process. The join handle takes the outcome through this reference, at most
/// once. If the reference is dropped, the process is detached.
pub(crate) struct Joined<T, M: Send + 'static> {
    address: Address<M>,
    stage: JoinStage,
    _outcome: PhantomData<fn() -> T>,
}

/// Progress of a join handle. This type has the size of a word. If the type had the size of a byte, the code would
/// store one byte and copy the handle with a wider load. The processor cannot forward one stored byte to a wider load,
/// so this load would be slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum JoinStage {
    /// The spawn was refused: there is no process, and no outcome.
    StartRefused,
    /// The process was started. From this stage on, the address points to a join block.
    Begun,
    /// A waker is registered for the outcome.
    Waits,
    /// The outcome was taken, or the process was dropped with its runtime.
    Answered,
}

// SAFETY: a caller can take only one value of the process out of a `Joined`, namely the outcome, a `T`. For this
// operation, the caller needs a mutable reference to the `Joined`. The `T` may be sent because `T: Send`. The address
// may be sent for every `M: Send`.
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

    /// Creates the reference for the handle of a refused spawn. The control block contains the exit.
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
    fn join_block(&self) -> Option<&JoinBlock<M, T>> {
        // SAFETY: the address points to a cell if `has_begun` returns true. Only `Created::new` creates a `Joined` for
        // which `has_begun` returns true, and the cell of this `Joined` has the message type `M` and the output type
        // `T`. The cell begins with a `JoinBlock<M, T>`, and both types are `repr(C)`. The address owns a reference
        // count that keeps the cell alive, and the pointer of the address has the provenance of the whole cell.
        self.has_begun().then(|| unsafe { self.address.control().at().cast().as_ref() })
    }

    /// Returns whether the next poll resolves.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.join_block().is_none_or(|join| join.control.head.run.is_over())
    }

    /// Polls for the outcome. Resolves to `None` if the process was dropped with its runtime, or if the spawn was
    /// refused. If this thread runs a step of a process, and this process belongs to the same runtime, `by` is the pid
    /// word of this process. Otherwise `by` is 0.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, by: u64) -> Poll<Option<Result<T, Exit>>> {
        let Some(join) = self.join_block() else { return Poll::Ready(None) };
        // If the process has already exited, neither a waker nor a lock is needed. This case is common.
        let outcome = if join.control.head.run.is_over() {
            // SAFETY: the check above has found that the process is over. `self` belongs to the only join handle of the
            // process, and `self` is borrowed mutably.
            unsafe { join.take_alone() }
        } else {
            match join.await_with(cx.waker(), by) {
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
        // The drop of the handle and the exit of the process may happen at the same time. Either the drop finds the
        // outcome, or the exit finds that the handle was dropped. In both cases, a failure is reported exactly once.
        if matches!(self.stage, JoinStage::Begun | JoinStage::Waits)
            && let Some(join) = self.join_block()
        {
            join.detach();
        }
    }
}

impl RunnableProcess {
    /// Returns the head of the control block of the process.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: every task is a cell, and a cell begins with a `repr(C)` control block. In the control block, the
        // head follows the header without padding, as the assertion below `Stepped for Control` checks.
        unsafe { self.behind() }
    }
}

impl Listed<'_, dyn AnyControl> {
    /// Returns the process that awaits the join handle of this process, if there is such a process.
    pub(crate) fn joiner(&self) -> Option<Joiner> {
        // SAFETY: this thread holds the lock of the slot that contains the entry. An exit takes this lock to remove the
        // entry (step 6 in `host/exit.rs`), and ends the run state afterwards (`CellBase::finish`). Therefore the
        // process is not over before this call returns, and the unlocks in this call happen before
        // `JoinBlock::take_alone`.
        unsafe { self.entry().joiner() }
    }
}

impl<M: Send + 'static> Ref<Control<M>> {
    /// Returns another reference to the process, without the type of the messages.
    #[inline]
    pub(crate) fn any(&self) -> Ref<dyn AnyControl> {
        self.clone().into_any()
    }

    #[inline]
    pub(crate) fn into_any(self) -> Ref<dyn AnyControl> {
        let at: NonNull<dyn AnyControl> = self.into_at();
        // SAFETY: the pointer `at` is the pointer in `self`, with another type. The call of `into_at` has passed the
        // reference count of `self` to this function, and the new reference takes over this count. If `self` owns no
        // count (second condition of `from_at`), the new reference owns no count either, and this condition then
        // applies to the new reference.
        unsafe { Ref::from_at(at) }
    }

    /// Converts `self` into a reference of the type `Ref<dyn Takes<A>>`. Through the new reference, the process takes
    /// messages of the type `A`.
    pub(crate) fn taking<A: Send + 'static>(self) -> Ref<dyn Takes<A>>
    where
        M: From<A>,
    {
        let at: NonNull<dyn Takes<A>> = self.into_at();
        // SAFETY: the pointer `at` is the pointer in `self`, with another type. The call of `into_at` has passed the
        // reference count of `self` to this function, and the new reference takes over this count.
        unsafe { Ref::from_at(at) }
    }
}

impl Ref<dyn AnyControl> {
    pub(crate) fn of(other: Ref<impl AnyControl>) -> Self {
        let at: NonNull<dyn AnyControl> = other.into_at();
        // SAFETY: the pointer `at` is the pointer in `other`, with another type. The call of `into_at` has passed the
        // reference count of `other` to this function, and the new reference takes over this count.
        unsafe { Ref::from_at(at) }
    }

    /// Returns the typed reference. Returns `None` if `M` is not the message type of the process.
    pub(crate) fn downcast<M: Send + 'static>(self) -> Option<Ref<Control<M>>> {
        if !self.as_any().is::<Control<M>>() {
            return None;
        }
        // SAFETY: the check above has found that the value is a `Control<M>`. `into_at` passes the reference count of
        // `self` to this function, and the new reference takes over this count.
        Some(unsafe { Ref::from_at(self.into_at().cast()) })
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::context::step::{Events, Next, Process, StepOutput};
    use crate::host::job::Anywhere;
    use crate::task::body::{AsyncBody, ProcessOutput};
    use crate::task::hand_written::Raw;

    /// Checks the exact sizes in bytes of idle processes. The size matters because a program may have a million idle
    /// processes.
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
        assert_eq!(size_of::<Control<u64>>(), 160);
        assert_eq!(body(idle), 256);
        assert_eq!(size_of::<Cell<Raw<ByHand>, Anywhere>>(), 216);
    }
}
