//! One process in one piece of memory: its control block, which others refer to, and its machine, which whoever runs it is
//! alone with. A file with unsafe code: it takes the place of a task of async-task's beside a control block of its own, and
//! so a spawn is one allocation, a wake needs no reference, and a turn that goes on needs no locked operation (benches
//! `spawn`, `yield`).
//!
//! ```text
//!  Cell ┬ Shell ┬ Control ┬ Life     counts, run state, what kind of cell it is
//!       │       │         ├ Inbox    what others write
//!       │       │         └ Head
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
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, RawWaker, Waker};

use crate::address::Address;
use crate::control::{AnyControl, Control, Head};
use crate::counted::{Kind, Life, Own, Ready, Ref, Rooted, RunState, Schedule, Task, WAKER};
use crate::host::Blank;
use crate::mailbox;
use crate::me::Me;
use crate::process::exit::Exit;
use crate::process::panic::{self, Held};
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
    const KIND: &'static Kind = &Ref::<Self>::kind(Task {
        run: Self::run,
        cancel: Self::cancel,
        schedule: Self::schedule,
        part: offset_of!(Control<X::Message>, head),
    });

    /// # Safety
    /// `at` is the life of a cell of this type; the caller has the right to run it, and gives it up.
    unsafe fn run(at: NonNull<Life>) {
        /// The machine does not panic, for what is the user's is caught in there. If it did, nobody would ever run it.
        struct Unwound(Ready);
        // SAFETY: that is what the caller gives up.
        let whole = Unwound(unsafe { Ready::new(at) });
        // SAFETY: alive, for the right to run comes with a count. Nobody else has that right, so the machine is ours alone; it
        // is there, for it has hatched and not ended; and it stays where it is until it is dropped.
        let turned = unsafe {
            let cell = at.cast::<Self>().as_ref();
            cell.shell.control.life.run.begin();
            // Neither is counted: they are gone when this returns, and so is what could be cloned from them without.
            let waker = ManuallyDrop::new(Waker::from_raw(RawWaker::new(at.as_ptr().cast(), &WAKER)));
            let me = ManuallyDrop::new(Me::new(Ref::from_at(at.cast())));
            let machine = Pin::new_unchecked((*cell.machine.get()).assume_init_mut());
            task::turn(machine, &me, &mut Context::from_waker(&waker))
        };
        let Unwound(ready) = whole;
        match turned {
            Turned::Again => ready.schedule(true),
            Turned::Waits => ready.wait(),
            // SAFETY: as above, and this is its end.
            Turned::Over(outcome) => unsafe { Self::finish(ready, Some(outcome)) },
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn cancel(at: NonNull<Life>) {
        // SAFETY: as above.
        unsafe {
            let cell = at.cast::<Self>().as_ref();
            if !cell.schedule.is_here() {
                // On another thread than the only one that may drop it: it is leaked, with its count.
                return;
            }
            let me = ManuallyDrop::new(Me::new(Ref::from_at(at.cast())));
            task::give_up(Pin::new_unchecked((*cell.machine.get()).assume_init_mut()), &me);
            Self::finish(Ready::new(at), None);
        }
    }

    /// # Safety
    /// The right is to run a cell of this type, whose process has ended.
    unsafe fn finish(ready: Ready, outcome: Option<Result<X::Output, Exit>>) {
        let at = ready.into_at();
        // SAFETY: alive until its count is released, last of all. The machine is there, and is dropped once: from here on
        // nobody comes by a right to run it.
        unsafe {
            let cell = at.cast::<Self>().as_ref();
            cell.shell.control.life.run.end();
            (*cell.machine.get()).assume_init_drop();
            cell.shell.settle(outcome);
            Life::release(at);
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn schedule(at: NonNull<Life>, again: bool) {
        // SAFETY: as there. Once it is queued it may run, end, and be gone: so may the place.
        unsafe { at.cast::<Self>().as_ref().schedule.schedule(Ready::new(at), again) };
    }
}

impl<M, T> Shell<M, T> {
    /// The process has ended.
    fn settle(&self, outcome: Option<Result<T, Exit>>) {
        let outcome = Outcome::Over(outcome.map(Held::new));
        let mut current = self.outcome.lock();
        // What nobody wants is dropped without the lock, as a waker is woken.
        let former = match *current {
            Outcome::Awaited(_) => std::mem::replace(&mut *current, outcome),
            _ => outcome,
        };
        drop(current);
        if let Outcome::Awaited(Some(waker)) = former {
            panic::wake(waker);
        }
    }

    /// What it returned, once it has; nothing if that was lost.
    fn poll(&self, waker: &Waker) -> Poll<Option<Result<T, Exit>>> {
        // A clone is somebody's code.
        let waker = waker.clone();
        let mut current = self.outcome.lock();
        match &mut *current {
            Outcome::Over(outcome) => {
                let outcome = outcome.take();
                drop(current);
                Poll::Ready(outcome.map(Held::into_inner))
            }
            Outcome::Awaited(waiting) => {
                let former = waiting.replace(waker);
                drop(current);
                drop(former);
                Poll::Pending
            }
            Outcome::Detached => unreachable!("its handle detaches it when it goes"),
        }
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
    _cell: PhantomData<fn(Cell<X, S>)>,
}

impl<X: Machine, S> fmt::Debug for Embryo<X, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embryo")
    }
}

impl<X: Machine, S: Schedule> Embryo<X, S> {
    /// With a reference for the table.
    pub(crate) fn new(schedule: S, blank: Blank) -> (Ref<dyn AnyControl>, Self) {
        let make = |life, at| {
            // SAFETY: it becomes a part of what lives there, and stays that.
            let own = mailbox::Own::Task(unsafe { Own::new(at) });
            let shell = Shell { control: blank.fill(life, Some(own)), outcome: Lock::new(Outcome::Awaited(None)) };
            Cell { shell, schedule, machine: UnsafeCell::new(MaybeUninit::uninit()) }
        };
        // SAFETY: that is the kind of this cell, and three references are made of its three counts. A reference to the cell
        // is one to its control block, which is its beginning.
        unsafe {
            let at = Ref::<Cell<X, S>>::with(Cell::<X, S>::KIND, 3, RunState::active(), make).into_at().cast();
            let (table, run, handle) = (Ref::from_at(at), Ref::from_at(at), Ref::from_at(at));
            (Ref::<Control<X::Message>>::into_any(table), Self { run, handle, _cell: PhantomData })
        }
    }

    pub(crate) fn control(&self) -> &Ref<Control<X::Message>> {
        &self.handle
    }

    /// Puts the machine into its place: what is missing then is that it is queued.
    pub(crate) fn hatch(self, machine: X) -> (Joined<X::Output, X::Message>, Ready) {
        let at = self.run.into_at().cast::<Life>();
        // SAFETY: it is such a cell; nobody has the right to run it, for its state was active from the beginning, so nobody
        // is at the machine. From here on there is the one that is returned, with the count that was taken.
        let ready = unsafe {
            (*at.cast::<Cell<X, S>>().as_ref().machine.get()).write(machine);
            Ready::new(at)
        };
        (Joined { address: Address::new(self.handle), begun: true, _outcome: PhantomData }, ready)
    }
}

/// The reference of a handle, which is to hear what the process returns. Dropped, it detaches the process.
pub(crate) struct Joined<T, M: Send + 'static> {
    address: Address<M>,
    /// Then it leads to a shell; else there never was a process.
    begun: bool,
    _outcome: PhantomData<fn() -> T>,
}

// SAFETY: it hands out what the process returned, which was sent; and that to one that has it mutably.
unsafe impl<T: Send, M: Send + 'static> Send for Joined<T, M> {}

impl<T, M: Send + 'static> fmt::Debug for Joined<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Joined")
    }
}

impl<T, M: Send + 'static> Joined<T, M> {
    /// Of what never began: how it ended, its control block says.
    pub(crate) fn stillborn(control: Ref<Control<M>>) -> Self {
        Self { address: Address::new(control), begun: false, _outcome: PhantomData }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    #[inline]
    pub(crate) fn address(&self) -> &Address<M> {
        &self.address
    }

    #[inline]
    fn shell(&self) -> Option<&Shell<M, T>> {
        // SAFETY: `hatch` makes those that have begun, of cells that begin with such a shell; and a shell is laid out without
        // regard to what comes behind it.
        self.begun.then(|| unsafe { self.address.control().at().cast().as_ref() })
    }

    /// What it returned, once it has; nothing if that was lost with its runtime, or it never began.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Exit>>> {
        self.shell().map_or(Poll::Ready(None), |shell| shell.poll(cx.waker()))
    }
}

impl<T, M: Send + 'static> Drop for Joined<T, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(shell) = self.shell() {
            shell.detach();
        }
    }
}

impl Ready {
    /// The head of the process.
    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: there are no tasks but cells, and the part of a cell is that.
        unsafe { self.part() }
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
