//! One process in one piece of memory: its control block, which others refer to, and its machine, which whoever runs it is
//! alone with. A file with unsafe code: it takes the place of a task of async-task's beside a control block of its own, and
//! so a spawn is one allocation, a wake needs no reference, and a turn that goes on needs no locked operation. A spawn is a
//! quarter cheaper by that, a message as well, and a yield by two fifths (benches `spawn`, `ping-pong`, `yield`).
//!
//! ```text
//!  Cell ┬ Shell ┬ Control ┬ Life     counts, what kind of cell it is
//!       │       │         ├ Head     whether it is to be run, who it is, and what it does now
//!       │       │         └ Inbox    what others have for it
//!       │       └ outcome           for the handle
//!       ├ schedule                  where it is queued
//!       └ machine                   for who has the right to run it
//! ```
//!
//! Each is the first field of the one around it, so a reference to the cell is one to all of them; addresses know it as the
//! [`Control`], handles as the [`Shell`].

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use crate::address::Address;
use crate::control::{AnyControl, Control, Head};
use crate::counted::{Borrowed, Kind, Life, Ready, Ref, Rooted, RunState, Schedule, Stepped, Task};
use crate::host::Blank;
use crate::me::Me;
use crate::process::exit::Exit;
use crate::process::panic::{self, Held};
use crate::process::placing::Comes;
use crate::recipient::Takes;
use crate::sync::Lock;
use crate::task::{self, Machine, Turned};

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
struct Shell<M, T> {
    control: Control<M>,
    outcome: Lock<Outcome<T>>,
}

// SAFETY: `repr(C)`, and its first field is its life.
unsafe impl<M> Rooted for Control<M> {}

// SAFETY: its head follows at once, and begins with its run state, as both are `repr(C)`.
unsafe impl<M> Stepped for Control<M> {}
const _: () = assert!(offset_of!(Control<u8>, head) == size_of::<Life>() && offset_of!(Head, run) == 0);

// SAFETY: `repr(C)`, and a control block is `Rooted`.
unsafe impl<M, T> Rooted for Shell<M, T> {}

#[repr(C)]
struct Cell<X: Machine, S> {
    shell: Shell<X::Message, X::Output>,
    schedule: S,
    /// There from `hatch` until it ends. It is pinned.
    machine: UnsafeCell<MaybeUninit<X>>,
}

// SAFETY: `repr(C)`, and a shell is `Rooted`.
unsafe impl<X: Machine, S> Rooted for Cell<X, S> {}

impl<X: Machine, S: Schedule> Cell<X, S> {
    const KIND: &'static Kind =
        &Ref::<Self>::kind(Task { run: Self::run, cancel: Self::cancel, schedule: Self::schedule });

    /// # Safety
    /// `at` is the life of a cell of this type, whose process has hatched and not ended; the caller has the right to run it,
    /// and gives it up.
    unsafe fn run(at: NonNull<Life>) {
        // SAFETY: that right.
        let ready = unsafe { Ready::new(at) };
        // SAFETY: alive, for the right comes with a count.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        if cell.shell.control.head.run.begin() {
            cell.shell.control.recalled();
        }
        // SAFETY: nobody else has the right to run it.
        let machine = unsafe { cell.machine() };
        // SAFETY: the same.
        let me = unsafe { Self::me(at) };
        // SAFETY: the same.
        let own = unsafe { Self::own(at) };
        let mut end = None;
        // What panics in there is not the user's, for that is caught. If it ever does, the process ends, as its right is dropped.
        match task::turn(machine, &me, &own, &mut Context::from_waker(&ready.waker()), &mut end) {
            Turned::Again => ready.schedule(Comes::FromTurn),
            Turned::Waits => ready.wait(false),
            Turned::WaitsOpen => ready.wait(true),
            // SAFETY: it is the right to run this cell, and that is its end.
            Turned::Over(left) => unsafe { Self::finish(ready, &mut end, left) },
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn cancel(at: NonNull<Life>) {
        // SAFETY: that right.
        let ready = unsafe { Ready::new(at) };
        // SAFETY: alive, for the right comes with a count.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        if !cell.schedule.is_here() {
            // On another thread than the only one that may drop it: it is leaked, with its count.
            return std::mem::forget(ready);
        }
        // SAFETY: nobody else has the right to run it.
        let machine = unsafe { cell.machine() };
        // SAFETY: the same.
        let me = unsafe { Self::me(at) };
        // SAFETY: the same.
        let own = unsafe { Self::own(at) };
        let left = task::give_up(machine, &me, &own);
        // SAFETY: it is the right to run this cell, and that was its end.
        unsafe { Self::finish(ready, &mut None, left) };
    }

    /// # Safety
    /// The caller has the right to run it, and uses what it gets no longer than it has that.
    #[expect(clippy::mut_from_ref, reason = "whoever has the right to run it is alone with it")]
    unsafe fn machine(&self) -> Pin<&mut X> {
        // SAFETY: alone with it, says the caller.
        let machine = unsafe { &mut *self.machine.get() };
        // SAFETY: it is there between `hatch` and `finish`.
        let machine = unsafe { machine.assume_init_mut() };
        // SAFETY: it stays where it is until it is dropped there.
        unsafe { Pin::new_unchecked(machine) }
    }

    /// What a process acts by; not counted.
    ///
    /// # Safety
    /// As [`run`](Self::run): it is used no longer than the caller has the right to run it.
    #[inline]
    unsafe fn me<'a>(at: NonNull<Life>) -> Borrowed<'a, Me<X::Message>> {
        // SAFETY: a cell begins with its control block. This is not counted, so it is not dropped either.
        Borrowed::new(Me::new(unsafe { Ref::from_at(at.cast()) }))
    }

    /// The same for whoever does not know the type of its messages.
    ///
    /// # Safety
    /// As [`me`](Self::me).
    #[inline]
    unsafe fn own<'a>(at: NonNull<Life>) -> Borrowed<'a, Ref<dyn AnyControl>> {
        // SAFETY: a cell begins with its control block. This is not counted, so it is not dropped either.
        Borrowed::new(unsafe { Ref::<Control<X::Message>>::from_at(at.cast()) }.into_any())
    }

    /// The last that is done with it: its machine is dropped, the handle is told.
    ///
    /// # Safety
    /// The right is to run this cell, whose process has ended; and if so, the count of the table is left to it.
    #[inline]
    unsafe fn finish(ready: Ready, outcome: &mut Option<Result<X::Output, Exit>>, left: bool) {
        let at = ready.into_at();
        // SAFETY: alive until that count is released.
        let cell = unsafe { at.cast::<Self>().as_ref() };
        // SAFETY: nobody else has the right to run it, and nobody will.
        let machine = unsafe { &mut *cell.machine.get() };
        // SAFETY: it is there, and not looked at again.
        unsafe { machine.assume_init_drop() };
        // The process's own, and that of the table, if it is left.
        let counts = 1 + u32::from(left);
        // Its handle, of which there is one, has a count: alone with it, nobody hears what it returned.
        if cell.shell.control.life.is_alone_with(counts) {
            Shell::<X::Message, X::Output>::discard(outcome);
        } else {
            cell.shell.settle(outcome);
        }
        cell.shell.control.head.run.end();
        // SAFETY: these counts; and nothing of the cell is looked at after this.
        unsafe { Life::release_many(at, counts) };
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn schedule(at: NonNull<Life>, comes: Comes<'_>) {
        // SAFETY: alive, for the right comes with a count. Once it is queued it may run, end, and be gone: hence the clone.
        let schedule = unsafe { at.cast::<Self>().as_ref() }.schedule.clone();
        // SAFETY: that right.
        schedule.schedule(unsafe { Ready::new(at) }, comes);
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

impl<M, T> Shell<M, T> {
    /// Nobody wants what it returned.
    #[inline]
    fn discard(outcome: &mut Option<Result<T, Exit>>) {
        // Most that need no drop are not moved for it.
        if std::mem::needs_drop::<T>() || matches!(outcome, Some(Err(_))) {
            drop(outcome.take().map(Held::new));
        }
    }

    /// The process has ended.
    fn settle(&self, outcome: &mut Option<Result<T, Exit>>) {
        let mut current = self.outcome.lock();
        // What nobody wants is dropped without the lock, as a waker is woken.
        let Outcome::Awaited(waiting) = &mut *current else {
            drop(current);
            return Self::discard(outcome);
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
    /// It is over, and was seen to be; and nobody is at it but the caller, which has its handle.
    #[inline]
    unsafe fn take_alone(&self) -> Option<Result<T, Exit>> {
        #[cfg(not(any(procession_loom, procession_shuttle)))]
        // SAFETY: its process had it for the last time before it said that it is over. Who is left is the handle.
        let outcome = unsafe { self.outcome.alone(Outcome::take) };
        // The model checkers' lock sees to it that there is nobody else.
        #[cfg(any(procession_loom, procession_shuttle))]
        let outcome = self.outcome.lock().take();
        outcome
    }

    fn detach(&self) {
        let former = std::mem::replace(&mut *self.outcome.lock(), Outcome::Detached);
        drop(former);
    }
}

/// A process whose machine is still missing, known to others already. Dropped, it is one that never began.
pub(crate) struct Embryo<X: Machine, S> {
    /// That of the process itself.
    run: Ref<Control<X::Message>>,
    handle: Ref<Control<X::Message>>,
    /// That of the machine, if it keeps one.
    own: Option<Ref<Control<X::Message>>>,
    _cell: PhantomData<fn(Cell<X, S>)>,
}

impl<X: Machine, S> fmt::Debug for Embryo<X, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embryo")
    }
}

impl<X: Machine, S: Schedule> Embryo<X, S> {
    /// With a reference for the table.
    #[inline]
    pub(crate) fn new(schedule: S, blank: Blank) -> (Ref<dyn AnyControl>, Self) {
        let make = |life| {
            let shell =
                Shell { control: blank.fill(life, RunState::active()), outcome: Lock::new(Outcome::Awaited(None)) };
            Cell { shell, schedule, machine: UnsafeCell::new(MaybeUninit::uninit()) }
        };
        let counts = 3 + u32::from(X::KEEPS_ITSELF);
        // SAFETY: that is the kind of this cell, and as many references are made of it.
        let at = unsafe { Ref::<Cell<X, S>>::with(Cell::<X, S>::KIND, counts, make) }.into_at().cast();
        // SAFETY: a reference to the cell is one to its control block, which is its beginning; and it is one of the counts.
        let count = || unsafe { Ref::<Control<X::Message>>::from_at(at) };
        let embryo = Self { run: count(), handle: count(), own: X::KEEPS_ITSELF.then(count), _cell: PhantomData };
        (count().into_any(), embryo)
    }

    pub(crate) fn control(&self) -> &Ref<Control<X::Message>> {
        &self.handle
    }

    /// Puts the machine into its place: what is missing then is that it is queued.
    #[inline]
    pub(crate) fn hatch(self, machine: X) -> (Joined<X::Output, X::Message>, Ready) {
        let at = self.run.into_at().cast::<Life>();
        // SAFETY: it is such a cell, and counted.
        let cell = unsafe { at.cast::<Cell<X, S>>().as_ref() };
        // SAFETY: nobody has the right to run it, for its state was active from the beginning, so nobody is at the machine.
        unsafe { (*cell.machine.get()).write(machine) };
        if let Some(own) = self.own {
            // SAFETY: the same.
            unsafe { cell.machine() }.keep(own);
        }
        // SAFETY: the one that there is from here on, with the count that was taken.
        (Joined::new(self.handle, Stage::Begun), unsafe { Ready::new(at) })
    }
}

/// The reference of a handle, which is to hear what the process returns. Dropped, it detaches the process.
pub(crate) struct Joined<T, M: Send + 'static> {
    address: Address<M>,
    stage: Stage,
    _outcome: PhantomData<fn() -> T>,
}

/// How far a handle has come. A whole word, so that it is moved as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Stage {
    /// There never was a process.
    Stillborn,
    /// From here on its address leads to a shell.
    Begun,
    /// What it returned is to come with a wake.
    Waits,
    /// It has come.
    Answered,
}

// SAFETY: it hands out what the process returned, which was sent; and that to one that has it mutably.
unsafe impl<T: Send, M: Send + 'static> Send for Joined<T, M> {}

impl<T, M: Send + 'static> fmt::Debug for Joined<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Joined")
    }
}

impl<T, M: Send + 'static> Joined<T, M> {
    #[inline]
    fn new(control: Ref<Control<M>>, stage: Stage) -> Self {
        Self { address: Address::new(control), stage, _outcome: PhantomData }
    }

    /// Of what never began: how it ended, its control block says.
    pub(crate) fn stillborn(control: Ref<Control<M>>) -> Self {
        Self::new(control, Stage::Stillborn)
    }

    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.stage != Stage::Stillborn
    }

    #[inline]
    pub(crate) fn address(&self) -> &Address<M> {
        &self.address
    }

    #[inline]
    fn shell(&self) -> Option<&Shell<M, T>> {
        // SAFETY: `hatch` makes those that have begun, of cells that begin with such a shell; and a shell is laid out without
        // regard to what comes behind it.
        self.has_begun().then(|| unsafe { self.address.control().at().cast().as_ref() })
    }

    /// What it returned, once it has; nothing if that was lost with its runtime, or it never began.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Exit>>> {
        let Some(shell) = self.shell() else { return Poll::Ready(None) };
        // Most that are asked for when they have ended need no waker.
        let outcome = if shell.control.head.run.is_over() {
            // SAFETY: it is over, and this is its handle, of which there is one; it is polled and dropped by one at a time.
            unsafe { shell.take_alone() }
        } else {
            match shell.await_with(cx.waker()) {
                Ok(()) => {
                    self.stage = Stage::Waits;
                    return Poll::Pending;
                }
                Err(outcome) => outcome,
            }
        };
        self.stage = Stage::Answered;
        Poll::Ready(outcome)
    }
}

impl<T, M: Send + 'static> Drop for Joined<T, M> {
    #[inline]
    fn drop(&mut self) {
        // What it did not ask for may stay where it is, if it does not matter when that is dropped.
        let stays = match self.stage {
            Stage::Begun => !std::mem::needs_drop::<T>(),
            Stage::Waits => false,
            Stage::Stillborn | Stage::Answered => true,
        };
        if !stays && let Some(shell) = self.shell() {
            shell.detach();
        }
    }
}

impl Ready {
    /// The head of the process.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: there are no tasks but cells, and behind the life of a cell is that.
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
        // SAFETY: the same value, whose count was taken just now.
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
        // SAFETY: the same value, whose count was taken just now.
        unsafe { Ref::from_at(at) }
    }
}

impl Ref<dyn AnyControl> {
    pub(crate) fn of(other: Ref<impl AnyControl>) -> Self {
        let at: NonNull<dyn AnyControl> = other.into_at();
        // SAFETY: the same value, whose count was taken just now.
        unsafe { Ref::from_at(at) }
    }

    /// The typed reference, if it takes messages of this type.
    pub(crate) fn downcast<M: Send + 'static>(self) -> Option<Ref<Control<M>>> {
        if !self.as_any().is::<Control<M>>() {
            return None;
        }
        // SAFETY: it is a `Control<M>`, and its count was taken just now.
        Some(unsafe { Ref::from_at(self.into_at().cast()) })
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::*;
    use crate::body::{AsyncBody, BodyFuture};
    use crate::context::Context;
    use crate::job::Anywhere;
    use crate::process::{Events, Next, Process, StepOutput};
    use crate::task::Raw;

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
