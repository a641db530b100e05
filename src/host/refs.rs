//! A process's reference to itself. Each future of the process that waits for something outside holds one.

use std::ops::Deref;

use crate::host::Host;
use crate::host::control::{AnyControl, Change};
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// The process that a future works for.
#[derive(Debug)]
pub(crate) struct Home(Ref<dyn AnyControl>);

impl Home {
    #[inline]
    pub(crate) fn new(control: Ref<dyn AnyControl>) -> Self {
        Self(control)
    }

    /// That of the process whose turn this is, if it is one of this runtime's.
    #[inline]
    pub(crate) fn of_turn(host: &Host) -> Option<Self> {
        host.shared().relay.get(Current::with(Current::pid)?).map(Self)
    }

    /// The identity of the process while it lives.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.identity()
    }

    /// Whether this thread is stepping it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        Current::with(|current| current.steps(self.address()))
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
        &self.0
    }
}
