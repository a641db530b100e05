//! The right to run a process, how one comes by it, and the waker by which others do. A file with unsafe code.
//!
//! There is one [`Ready`] for each process that is queued or runs, and none for one that waits. By the
//! [run state](super::run_state) whoever wakes it comes by that right, and queues it. It comes with one of the counts, which
//! is the process's own until it ends: so neither a wake nor a turn counts anything. Whoever drops the right in place of
//! using it ends the process.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Borrowed, Life, Rooted, RunState};
use crate::process::placing::Comes;
#[cfg(not(procession_loom))]
use crate::process::placing::Station;
use crate::process::turn;

/// What can be done with a cell by whoever has the right to run it, and does not know its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) run: unsafe fn(NonNull<Life>),
    pub(crate) cancel: unsafe fn(NonNull<Life>),
    pub(crate) schedule: unsafe fn(NonNull<Life>, Comes<'_>),
}

impl Task {
    /// Of what is no task, and never in a state in which it might be run.
    pub(super) const NONE: Self = {
        unsafe fn never(_: NonNull<Life>) {
            unreachable!("it is no task")
        }
        unsafe fn nowhere(_: NonNull<Life>, _: Comes<'_>) {
            unreachable!("it is no task")
        }
        Self { run: never, cancel: never, schedule: nowhere }
    };
}

/// Where a process is queued when it is to run.
pub(crate) trait Schedule: Clone + Send + Sync + 'static {
    /// Queues it.
    fn schedule(self, ready: Ready, comes: Comes<'_>);

    /// Whether it may be run, and dropped, on this thread.
    fn is_here(&self) -> bool;
}

/// The right to run a process, which is queued, or about to be.
#[must_use = "dropping it ends the process"]
pub(crate) struct Ready(NonNull<Life>);

// SAFETY: what it leads to is `Send`; or is bound to a thread, and then its place sees to it that it is run there, and
// `cancel` looks.
unsafe impl Send for Ready {}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ready").field(&self.0).finish()
    }
}

impl Ready {
    /// # Safety
    /// It is a task, and nobody else has the right to run it. One of its counts is the process's own.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Life>) -> Self {
        Self(at)
    }

    /// The life of what it is the right to run, which it no longer is.
    #[inline]
    pub(crate) fn into_at(self) -> NonNull<Life> {
        ManuallyDrop::new(self).0
    }

    #[inline]
    fn task(&self) -> &'static Task {
        &self.life().kind.task
    }

    #[inline]
    fn life(&self) -> &Life {
        // SAFETY: the right to run comes with a count.
        unsafe { self.0.as_ref() }
    }

    /// What lies behind its life.
    ///
    /// # Safety
    /// That is a `T`.
    #[inline]
    pub(crate) unsafe fn behind<T>(&self) -> &T {
        // SAFETY: the right to run comes with a count; and says the caller.
        unsafe { behind(self.0) }
    }

    /// The waker of the process; not counted, as it is borrowed.
    #[inline]
    pub(crate) fn waker(&self) -> Borrowed<'_, Waker> {
        // SAFETY: the functions are those for a life. It is not counted, so it is not dropped either, and lives no longer than
        // the right, which comes with a count.
        Borrowed::new(unsafe { Waker::from_raw(RawWaker::new(self.0.as_ptr().cast(), &WAKER)) })
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
        // SAFETY: that right is this.
        unsafe { run(self.into_at()) };
    }

    /// Queues it.
    #[inline]
    pub(crate) fn schedule(self, comes: Comes<'_>) {
        let schedule = self.task().schedule;
        // SAFETY: that right is this.
        unsafe { schedule(self.into_at(), comes) };
    }

    /// It has run, and waits, `open` or not, if nobody has woken it meanwhile.
    #[inline]
    pub(crate) fn wait(self, open: bool) {
        // Once it waits another thread may run it: the right is given up before.
        let at = ManuallyDrop::new(self).0;
        // SAFETY: alive until it waits, for it has not ended; and if it does not the right is still ours.
        unsafe {
            if !behind::<RunState>(at).wait(open) {
                Self(at).schedule(Comes::Called);
            }
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: that right is this.
        unsafe { (self.task().cancel)(self.0) };
    }
}

/// A process that was woken, and is queued when this is dropped: when no lock is held, that is.
#[must_use = "it is queued when this is dropped"]
#[derive(Debug)]
pub(crate) struct Owed(NonNull<Life>);

// SAFETY: as `Ready`, which it stands for.
unsafe impl Send for Owed {}

impl Drop for Owed {
    #[inline]
    fn drop(&mut self) {
        Ready(self.0).schedule(Comes::FromRest(None));
    }
}

impl Owed {
    /// Queues it now, in the place of its host, which the caller keeps.
    #[cfg(not(procession_loom))]
    #[inline]
    pub(crate) fn queue(self, place: &Station) {
        let at = ManuallyDrop::new(self).0;
        Ready(at).schedule(Comes::FromRest(Some(place)));
    }
}

/// A value with a run state: a task, or something that looks like one and is over from the beginning.
///
/// # Safety
/// What is behind its life begins with its [`RunState`]; and there is no value of this type but in a [`Ref`](super::Ref).
pub(crate) unsafe trait Stepped: Rooted {
    /// Wakes the process: if it waits, it is to be queued.
    #[inline]
    fn wake(&self) -> Option<Owed> {
        // All of the cell, to which a reference to its beginning does not lead; `Ref::with` has exposed it.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        // SAFETY: it is counted, and has a run state.
        unsafe { wake_at(at.expect("a reference is not null")) }
    }

    /// Wakes the process if it is open, for the caller has a message for it; it is to be queued.
    #[inline]
    fn deliver(&self) -> Option<Owed> {
        // As above.
        let at = NonNull::new(ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr()));
        let at = at.expect("a reference is not null");
        // SAFETY: it is counted, and has a run state.
        unsafe { behind::<RunState>(at) }.deliver().then(|| Owed(at))
    }

    /// As [`RunState::recall`].
    fn recall(&self) -> bool {
        // SAFETY: it is counted, and has a run state.
        unsafe { behind::<RunState>(NonNull::from(self).cast()) }.recall()
    }
}

/// What lies behind a life.
///
/// # Safety
/// It is alive; and that is a `T`.
#[inline]
unsafe fn behind<'a, T>(at: NonNull<Life>) -> &'a T {
    const { assert!(align_of::<T>() <= align_of::<Life>()) };
    // SAFETY: that is a `T`, which lies within what lives there, says the caller.
    let behind = unsafe { at.add(1) };
    // SAFETY: the same.
    unsafe { behind.cast().as_ref() }
}

/// # Safety
/// It is alive, and the pointer one to all of it; and it is [`Stepped`].
#[inline]
unsafe fn wake_at(at: NonNull<Life>) -> Option<Owed> {
    // SAFETY: says the caller.
    unsafe { behind::<RunState>(at) }.wake().then(|| Owed(at))
}

/// The waker of a process that is run: a counted reference, whatever the type of the cell.
static WAKER: RawWakerVTable = {
    fn life(at: *const ()) -> NonNull<Life> {
        NonNull::new(at.cast_mut().cast()).expect("a waker leads to the life of a cell")
    }
    unsafe fn clone(at: *const ()) -> RawWaker {
        // SAFETY: a waker has one of the counts, or is borrowed from whoever runs it.
        unsafe { life(at).as_ref() }.retain();
        RawWaker::new(at, &WAKER)
    }
    unsafe fn wake(at: *const ()) {
        // SAFETY: it is the caller's.
        unsafe { wake_by_ref(at) };
        // SAFETY: and is gone after this.
        unsafe { drop(at) };
    }
    unsafe fn wake_by_ref(at: *const ()) {
        if turn::is_within(at as usize) {
            // By itself, in its own turn: noted for the end of that.
            return turn::woken();
        }
        // SAFETY: as above.
        std::mem::drop(unsafe { wake_at(life(at)) });
    }
    unsafe fn drop(at: *const ()) {
        // SAFETY: as above, and a waker is dropped once.
        unsafe { Life::release(life(at)) };
    }
    RawWakerVTable::new(clone, wake, wake_by_ref, drop)
};
