//! A process's reference to itself, as its futures hold one each. What one of them lets go of inside a step is kept until
//! the step ends, for the next: one command after the other, one time limit after the other count no references.

use std::cell::Cell;
use std::ops::Deref;

use crate::host::control::{AnyControl, Change};
use crate::host::Host;
use crate::platform::sync::{ThreadCell, thread_local};
use crate::process::state::{Ref, current as turn};

/// Room for a reference that a thread has to spare.
pub(crate) struct Spare {
    /// Whose it is, by its identity; 0 for nobody's, when there is none.
    of: Cell<usize>,
    control: ThreadCell<Ref<dyn AnyControl>>,
}

impl Spare {
    pub(crate) const fn new() -> Self {
        Self { of: Cell::new(0), control: ThreadCell::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.of.get() == 0
    }

    #[inline]
    fn take(&self) -> Option<Ref<dyn AnyControl>> {
        self.of.set(0);
        self.control.take()
    }

    /// Takes it if it is one to the process with this identity.
    #[inline]
    pub(crate) fn take_of(&self, identity: usize) -> Option<Ref<dyn AnyControl>> {
        if self.of.get() == identity { self.take() } else { None }
    }

    /// Puts one there, where none is.
    #[inline]
    pub(crate) fn put(&self, control: Ref<dyn AnyControl>) {
        self.of.set(control.identity());
        self.control.put(control);
    }
}

thread_local! {
    static SPARE: Spare = const { Spare::new() };
}

/// Where a future belongs: the process that it works for.
#[derive(Debug)]
pub(crate) struct Home(Option<Ref<dyn AnyControl>>);

impl Home {
    /// That of the process whose control block is at `address`; `control` counts a reference if there is none to spare.
    #[inline]
    pub(crate) fn new(address: usize, control: impl FnOnce() -> Ref<dyn AnyControl>) -> Self {
        Self(Some(Self::spare(address).unwrap_or_else(control)))
    }

    #[inline]
    fn spare(address: usize) -> Option<Ref<dyn AnyControl>> {
        SPARE.with(|spare| spare.take_of(address))
    }

    /// That of the process whose turn this is, if it is one of this runtime's.
    #[inline]
    pub(crate) fn of_turn(host: &Host) -> Option<Self> {
        let (address, pid) = turn::current()?;
        let relay = &host.shared().relay;
        if !relay.is_here(pid) {
            return None;
        }
        Self::spare(address).or_else(|| relay.get(pid)).map(|control| Self(Some(control)))
    }

    /// The identity of the process while it lives.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.identity()
    }

    /// Whether this thread is stepping it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        turn::is_of(self.address())
    }

    /// Lets go of it in a step of its process, which [may keep](turn::keeps_of) it and has said so.
    #[inline]
    pub(crate) fn keep(&mut self) {
        SPARE.with(|spare| {
            if spare.is_empty() {
                self.0.take().into_iter().for_each(|control| spare.put(control));
            }
        });
    }

    /// Has the process count what it waits for.
    #[inline]
    pub(crate) fn wait_for(&self, change: Change) {
        self.head().wait_for(change, self.is_here());
    }
}

impl Deref for Home {
    type Target = Ref<dyn AnyControl>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Home {
    #[inline]
    fn drop(&mut self) {
        if self.0.as_ref().is_some_and(|control| turn::keeps_of(control.identity())) {
            self.keep();
        }
    }
}

/// The step of the process with this control block ends: nothing of it stays with this thread.
pub(crate) fn leave(address: usize) {
    drop(Home::spare(address));
}
