//! One process in one piece of memory: its control block, which others refer to, and its machine, which whoever runs it is
//! alone with. A file with unsafe code: it takes the place of a task of async-task's beside a control block of its own, and
//! so a spawn is one allocation, a wake needs no reference, and a turn that goes on needs no locked operation. A spawn is a
//! quarter cheaper by that, a message as well, and a yield by two fifths (benches `spawn`, `ping-pong`, `yield`).
//!
//! ```text
//!  Cell ┬ JoinBlock ┬ Control ┬ Header     counts, what kind of cell it is
//!       │       │         ├ Head     whether it is to be run, who it is, and what it does now
//!       │       │         └ Inbox    what others have for it
//!       │       └ outcome           for the handle
//!       ├ schedule                  where it is queued
//!       └ machine                   for who has the right to run it
//! ```
//!
//! Each is the first field of the one around it, so a reference to the cell is one to all of them; addresses know it as the
//! [`Control`], handles as the [`JoinBlock`].

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
use crate::context::me::Me;
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

/// What becomes of what a process returns.
enum Outcome<T> {
    /// Its handle is there, and perhaps waits.
    Awaited(Option<Waker>),
    /// Nobody wants it.
    Detached,
    /// It is there; or it was lost with the runtime, or is taken.
    Over(Option<Held<Result<T, Exit>>>),
}

/// A process as its handle knows it.
#[repr(C)]
struct JoinBlock<M, T> {
    control: Control<M>,
    outcome: Lock<Outcome<T>>,
}

// SAFETY: it is `repr(C)`, its first field is its life, and `clear` drops the other fields, each through a pointer to it alone.
unsafe impl<M> HeaderFirst for Control<M> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        // Names every field: one that is added must be dropped here, too.
        let _all = |Self { life: _, head: _, inbox: _ }| ();
        // SAFETY: `this` points to a whole control block, by contract, so its fields are in bounds.
        let inbox = unsafe { &raw mut (*this.as_ptr()).inbox };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        let _inbox = unsafe { Clear::new(inbox) };
        // SAFETY: as for the inbox, the block is whole and the field in bounds.
        let head = unsafe { &raw mut (*this.as_ptr()).head };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        drop(unsafe { Clear::new(head) });
    }
}

// SAFETY: the head follows the life without padding, which the assertion below checks, and begins with the run state: both
// types are `repr(C)`. The crate makes control blocks only by `Ref::with`.
unsafe impl<M> Stepped for Control<M> {}
const _: () = assert!(offset_of!(Control<u8>, head) == size_of::<Header>() && offset_of!(Head, run) == 0);

// SAFETY: it is `repr(C)`, and its first field, a control block, is `HeaderFirst`. `clear` drops the outcome through a pointer to it
// alone, and leaves the control block to that type's `clear`.
unsafe impl<M, T> HeaderFirst for JoinBlock<M, T> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        let _all = |Self { control: _, outcome: _ }| ();
        // SAFETY: `this` points to a whole shell, by contract, so its fields are in bounds.
        let outcome = unsafe { &raw mut (*this.as_ptr()).outcome };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        let _outcome = unsafe { Clear::new(outcome) };
        // SAFETY: a shell begins with its control block. What the contract says of the shell's fields holds for those of the
        // block.
        unsafe { Control::<M>::clear(this.cast()) };
    }
}

#[repr(C)]
struct Cell<X: Machine, S> {
    shell: JoinBlock<X::Message, X::Output>,
    schedule: S,
    /// There from `start` until it ends. It is pinned.
    machine: UnsafeCell<MaybeUninit<X>>,
}

// SAFETY: it is `repr(C)`, and its first field, a shell, is `HeaderFirst`. `clear` drops the schedule through a pointer to it alone,
// and leaves the shell to that type's `clear`. The machine is not dropped there: `finish` has dropped it, or it never came.
unsafe impl<X: Machine, S> HeaderFirst for Cell<X, S> {
    #[inline]
    unsafe fn clear(this: NonNull<Self>) {
        let _all = |Self { shell: _, schedule: _, machine: _ }| ();
        // SAFETY: `this` points to a whole cell, by contract, so its fields are in bounds.
        let schedule = unsafe { &raw mut (*this.as_ptr()).schedule };
        // SAFETY: no reference reaches this field any more, by contract, and this is the only `Clear` for it.
        let _schedule = unsafe { Clear::new(schedule) };
        // SAFETY: a cell begins with its shell. What the contract says of the cell's fields holds for those of the shell.
        unsafe { JoinBlock::<X::Message, X::Output>::clear(this.cast()) };
    }
}

impl<X: Machine, S: Schedule> Cell<X, S> {
    const KIND: &'static VTable =
        &Ref::<Self>::kind(Task { run: Self::run, cancel: Self::cancel, schedule: Self::schedule });

    /// # Safety
    /// `at` is the life of a cell of this type, whose process has hatched and not ended; the caller has the right to run it,
    /// and gives it up.
    unsafe fn run(at: NonNull<Header>) {
        // SAFETY: the caller gives up its right to run this task, and the count that belongs to it: `ready` takes both.
        let ready = unsafe { RunnableProcess::new(at) };
        // SAFETY: `at` is the life of a cell of this type, by contract. It is alive, because `ready` owns a count.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        if cell.shell.control.head.run.begin() {
            cell.shell.control.recalled(&ready);
        }
        // SAFETY: `ready` is the only right to run this process. It is given up below, after the last use of `machine`.
        let machine = unsafe { cell.machine() };
        // SAFETY: `ready` keeps the cell alive, and is given up below, after the last use of `me`.
        let me = unsafe { Self::me(at) };
        // SAFETY: `ready` keeps the cell alive, and is given up below, after the last use of `own`.
        let own = unsafe { Self::own(at) };
        let mut end = None;
        // Panics of user code are caught in there. If the runtime's own code panics, the process ends, as its right is dropped.
        match task::turn(machine, &me, &own, &mut Context::from_waker(&ready.waker()), &mut end) {
            TurnOutcome::Again => ready.schedule(WakeSource::Turn),
            TurnOutcome::Waits => ready.wait(),
            // SAFETY: the turn has noted that its process waits for mail. The note is made, in the process's own turn, when its
            // slot is lent under the mailbox's lock, and is taken back before the slot is.
            TurnOutcome::WaitsOpen => unsafe { ready.wait_open() },
            // SAFETY: `ready` is the right to run this cell, and the turn has ended the process. `left` says whether the table's
            // count is left to it.
            TurnOutcome::Over(left) => unsafe { Self::finish(ready, &mut end, left) },
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn cancel(at: NonNull<Header>) {
        // SAFETY: the caller gives up its right to run this task, and the count that belongs to it: `ready` takes both.
        let ready = unsafe { RunnableProcess::new(at) };
        // SAFETY: `at` is the life of a cell of this type, by contract. It is alive, because `ready` owns a count.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        if !cell.schedule.is_here() {
            // This is not the only thread that may drop the machine: it is leaked, with its count.
            return std::mem::forget(ready);
        }
        // SAFETY: `ready` is the only right to run this process. It is given up below, after the last use of `machine`.
        let machine = unsafe { cell.machine() };
        // SAFETY: `ready` keeps the cell alive, and is given up below, after the last use of `me`.
        let me = unsafe { Self::me(at) };
        // SAFETY: `ready` keeps the cell alive, and is given up below, after the last use of `own`.
        let own = unsafe { Self::own(at) };
        let left = task::give_up(machine, &me, &own);
        // SAFETY: `ready` is the right to run this cell, and `give_up` has ended the process. `left` says whether the table's
        // count is left to it.
        unsafe { Self::finish(ready, &mut None, left) };
    }

    /// # Safety
    /// The caller has the right to run the process, and uses the result only as long as it has that right. It has no other
    /// reference to the machine.
    #[expect(clippy::mut_from_ref, reason = "whoever has the right to run it is alone with it")]
    unsafe fn machine(&self) -> Pin<&mut X> {
        // SAFETY: the machine is accessed only with the right to run the process, of which there is one. The caller has it for
        // as long as it uses the result.
        let machine = unsafe { &mut *self.machine.get() };
        // SAFETY: `start` initializes the machine before it makes the first right to run, and `finish`, which drops it, makes no
        // right again.
        let machine = unsafe { machine.assume_init_mut() };
        // SAFETY: the machine stays in the cell, which does not move, until `finish` drops it there.
        unsafe { Pin::new_unchecked(machine) }
    }

    /// What a process acts by; not counted.
    ///
    /// # Safety
    /// As [`run`](Self::run): it is used no longer than the caller has the right to run it.
    #[inline]
    unsafe fn me<'a>(at: NonNull<Header>) -> Borrowed<'a, Me<X::Message>> {
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The reference owns no
        // count: `Borrowed` never drops it, and the caller, by contract, uses it while its own right keeps the cell alive.
        Borrowed::new(Me::new(unsafe { Ref::from_at(at.cast()) }))
    }

    /// The same for whoever does not know the type of its messages.
    ///
    /// # Safety
    /// As [`me`](Self::me).
    #[inline]
    unsafe fn own<'a>(at: NonNull<Header>) -> Borrowed<'a, Ref<dyn AnyControl>> {
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. The reference owns no
        // count: `Borrowed` never drops it, and the caller, by contract, uses it while its own right keeps the cell alive.
        Borrowed::new(unsafe { Ref::<Control<X::Message>>::from_at(at.cast()) }.into_any())
    }

    /// The last that is done with it: its machine is dropped, the handle is told.
    ///
    /// # Safety
    /// `ready` is the right to run a cell of this type, whose process has ended. If `left` is true the caller also hands over the
    /// count of the pid table.
    #[inline]
    unsafe fn finish(ready: RunnableProcess, outcome: &mut Option<Result<X::Output, Exit>>, left: bool) {
        let at = ready.into_at();
        // SAFETY: `at` is the life of a cell of this type, by contract. It is alive until its counts are released below.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        // SAFETY: the machine is accessed only with the right to run the process. `ready` was the only one, and none is made from
        // it.
        let machine = unsafe { &mut *cell.machine.get() };
        // SAFETY: `start` initialized the machine; it is dropped here only, and not accessed afterwards.
        unsafe { machine.assume_init_drop() };
        // The process's own, and that of the table, if it is left.
        let counts = 1 + u32::from(left);
        // Its handle, of which there is one, has a count: alone with it, nobody hears what it returned.
        if cell.shell.control.life.is_alone_with(counts) {
            cell.shell.discard(outcome);
        } else {
            cell.shell.settle(outcome);
        }
        // SAFETY: `ready` was the right to run the process, and has been consumed. `settle` or `discard` was the last access to
        // the outcome on this side.
        unsafe { cell.shell.control.head.run.end() };
        // SAFETY: one count belonged to the right to run; the other one is the table's, which `left` leaves to this function. The
        // cell is not accessed after this.
        unsafe { Header::release_many(at, counts) };
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn schedule(at: NonNull<Header>, source: WakeSource<'_>) {
        // SAFETY: `at` is the life of a cell of this type, by contract, and the caller's right keeps it alive. A process that is
        // queued may run and end, and its cell may be freed, before `schedule` returns: hence the clone.
        let schedule = unsafe { at.cast::<Self>().as_ref() }.schedule.clone();
        // SAFETY: the caller gives up its right to run this task, with its count: the new `RunnableProcess` takes both.
        schedule.schedule(unsafe { RunnableProcess::new(at) }, source);
    }
}

impl<T> Outcome<T> {
    /// What it returned, for its handle; nothing if that was lost.
    fn take(&mut self) -> Option<Result<T, Exit>> {
        match self {
            Self::Over(outcome) => outcome.take().map(Held::into_inner),
            Self::Awaited(_) => unreachable!("it has ended"),
            Self::Detached => unreachable!("its handle detaches it when it goes"),
        }
    }
}

impl<M, T> JoinBlock<M, T> {
    /// The handle is gone: it takes neither what the process returned nor how it failed.
    #[inline]
    fn discard(&self, outcome: &mut Option<Result<T, Exit>>) {
        if !matches!(outcome, Some(Ok(_))) {
            self.report_unobserved();
        }
        // Most that need no drop are not moved for it.
        if std::mem::needs_drop::<T>() || matches!(outcome, Some(Err(_))) {
            drop(outcome.take().map(Held::new));
        }
    }

    /// No handle receives how the process failed.
    fn report_unobserved(&self) {
        let head = &self.control.head;
        head.host().report_unobserved(head);
    }

    /// The process has ended.
    fn settle(&self, outcome: &mut Option<Result<T, Exit>>) {
        let mut current = self.outcome.lock();
        // What nobody wants is dropped without the lock, as a waker is woken.
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

    /// Leaves a waker for when it has returned.
    ///
    /// # Errors
    /// What it returned, if it has; nothing if that was lost.
    fn await_with(&self, waker: &Waker) -> Result<(), Option<Result<T, Exit>>> {
        // A clone is somebody's code, as is a drop.
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

    /// What it returned, if it is over; nothing if that was lost.
    ///
    /// # Safety
    /// The process is over, and the caller has seen that by [`RunState::is_over`]. The caller has the process's handle, and has
    /// it to itself.
    #[inline]
    unsafe fn take_alone(&self) -> Option<Result<T, Exit>> {
        #[cfg(not(any(procession_loom, procession_shuttle)))]
        // SAFETY: the process accesses its outcome only before it says that it is over, which the caller has seen with an
        // acquire load. Only the handle accesses it after that, and the caller has the handle to itself.
        let outcome = unsafe { self.outcome.alone(Outcome::take) };
        // The model checkers' lock sees to it that there is nobody else.
        #[cfg(any(procession_loom, procession_shuttle))]
        let outcome = self.outcome.lock().take();
        outcome
    }

    /// The handle goes, and has taken nothing.
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

/// A process whose machine is still missing, known to others already. Dropped, it is one that never began.
pub(crate) struct ReservedProcess<X: Machine, S> {
    /// That of the process itself.
    run: Ref<Control<X::Message>>,
    handle: Ref<Control<X::Message>>,
    /// That of the machine, if it keeps one.
    own: Option<Ref<Control<X::Message>>>,
    _cell: PhantomData<fn(Cell<X, S>)>,
}

impl<X: Machine, S> fmt::Debug for ReservedProcess<X, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReservedProcess")
    }
}

impl<X: Machine, S: Schedule> ReservedProcess<X, S> {
    /// With a reference for the table.
    #[inline]
    pub(crate) fn new(schedule: S, blank: ControlParts) -> (Ref<dyn AnyControl>, Self) {
        let make = |life| {
            let shell =
                JoinBlock { control: blank.fill(life, RunState::active()), outcome: Lock::new(Outcome::Awaited(None)) };
            Cell { shell, schedule, machine: UnsafeCell::new(MaybeUninit::uninit()) }
        };
        let counts = 3 + u32::from(X::KEEPS_ITSELF);
        // SAFETY: `KIND` is the kind of this cell. `into_at` and `count` hand out `counts` references: three, and one more if the
        // machine keeps one.
        let at = unsafe { Ref::<Cell<X, S>>::with(Cell::<X, S>::KIND, counts, make) }.into_at().cast();
        // SAFETY: a cell begins with its control block, and `at` has the provenance of the whole cell. `count` is called as often
        // as there are counts, and each call hands over one of them.
        let count = || unsafe { Ref::<Control<X::Message>>::from_at(at) };
        let embryo = Self { run: count(), handle: count(), own: X::KEEPS_ITSELF.then(count), _cell: PhantomData };
        (count().into_any(), embryo)
    }

    pub(crate) fn control(&self) -> &Ref<Control<X::Message>> {
        &self.handle
    }

    /// Puts the machine into its place: what is missing then is that it is queued.
    #[inline]
    pub(crate) fn start(self, machine: X) -> (Joined<X::Output, X::Message>, RunnableProcess) {
        let at = self.run.into_at().cast::<Header>();
        // SAFETY: `new` has made a cell of this type, and `run` owned one of its counts, which now belongs to this function.
        let cell = unsafe { at.cast::<Cell<X, S>>().as_ref() };
        // SAFETY: the machine is accessed only with the right to run the process. None exists yet: the run state was active from
        // the beginning, so no wake makes one.
        unsafe { (*cell.machine.get()).write(machine) };
        if let Some(own) = self.own {
            // SAFETY: this function is about to make the first right to run, so it has it until then. The machine is there.
            unsafe { cell.machine() }.keep(own);
        }
        // SAFETY: a cell is a task. This is the first right to run it, and the run state, which is active, lets no wake make a
        // second one. The count is the one that `run` owned.
        (Joined::new(self.handle, JoinStage::Begun), unsafe { RunnableProcess::new(at) })
    }
}

/// The reference of a handle, which is to hear what the process returns. Dropped, it detaches the process.
pub(crate) struct Joined<T, M: Send + 'static> {
    address: Address<M>,
    stage: JoinStage,
    _outcome: PhantomData<fn() -> T>,
}

/// How far a handle has come. A whole word, so that it is moved as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum JoinStage {
    /// There never was a process.
    StartRefused,
    /// From here on its address leads to a shell.
    Begun,
    /// What it returned is to come with a wake.
    Waits,
    /// It has come.
    Answered,
}

// SAFETY: a `Joined` gives out only a `T`, which may be sent because `T: Send`, and only to a caller that has it mutably. The
// address may be sent for every `M: Send`.
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

    /// Of what never began: how it ended, its control block says.
    pub(crate) fn stillborn(control: Ref<Control<M>>) -> Self {
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
        // SAFETY: only `start` makes a handle that has begun, with a cell whose message and output types are `M` and `T`. Such a
        // cell begins with a `JoinBlock<M, T>`; both are `repr(C)`. The address owns a count, which keeps the cell alive, and its
        // pointer has the provenance of the whole cell.
        self.has_begun().then(|| unsafe { self.address.control().at().cast().as_ref() })
    }

    /// What it returned, once it has; nothing if that was lost with its runtime, or it never began.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Exit>>> {
        let Some(shell) = self.shell() else { return Poll::Ready(None) };
        // Most that are asked for when they have ended need no waker.
        let outcome = if shell.control.head.run.is_over() {
            // SAFETY: the process was seen to be over in the line above. This is its only handle, and it is borrowed mutably.
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
        // Whether the process has ended or not: either this finds how, or its end finds that the handle is gone. One of the
        // two reports a failure.
        if matches!(self.stage, JoinStage::Begun | JoinStage::Waits)
            && let Some(shell) = self.shell()
        {
            shell.detach();
        }
    }
}

impl RunnableProcess {
    /// The head of the process.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: every task is a cell, and in a cell the head follows the life: both are fields of a `repr(C)` control block.
        unsafe { self.behind() }
    }
}

impl<M: Send + 'static> Ref<Control<M>> {
    /// The same for whoever does not know the type of its messages.
    #[inline]
    pub(crate) fn any(&self) -> Ref<dyn AnyControl> {
        self.clone().into_any()
    }

    #[inline]
    pub(crate) fn into_any(self) -> Ref<dyn AnyControl> {
        let at: NonNull<dyn AnyControl> = self.into_at();
        // SAFETY: `at` points to the value of `self`, of which it has only forgotten the type, and `self` handed over its count.
        unsafe { Ref::from_at(at) }
    }
}

impl<M: Send + 'static> Ref<Control<M>> {
    /// The same for whoever knows it as one that takes `A`.
    pub(crate) fn taking<A: Send + 'static>(self) -> Ref<dyn Takes<A>>
    where
        M: From<A>,
    {
        let at: NonNull<dyn Takes<A>> = self.into_at();
        // SAFETY: `at` points to the value of `self`, of which it has only forgotten the type, and `self` handed over its count.
        unsafe { Ref::from_at(at) }
    }
}

impl Ref<dyn AnyControl> {
    pub(crate) fn of(other: Ref<impl AnyControl>) -> Self {
        let at: NonNull<dyn AnyControl> = other.into_at();
        // SAFETY: `at` points to the value of `other`, of which it has only forgotten the type, and `other` handed over its count.
        unsafe { Ref::from_at(at) }
    }

    /// The typed reference, if it takes messages of this type.
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
    use crate::task::body::{AsyncBody, BodyFuture};

    /// The parts of an idle process, to the byte: whoever adds a field here adds it a million times.
    #[test]
    fn an_idle_process_is_small() {
        async fn idle(mut ctx: Context<u64>) {
            while ctx.receive().await.is_ok() {}
        }
        fn body<Fut: BodyFuture>(_: fn(Context<u64>) -> Fut) -> usize {
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
        assert_eq!(size_of::<Control<u64>>(), 120);
        assert_eq!(body(idle), 216);
        assert_eq!(size_of::<Cell<Raw<ByHand>, Anywhere>>(), 176);
    }
}
