//! Reference of a process to itself. Each future of the process that waits for an external event holds such a
//! reference.

use std::ops::Deref;

use crate::host::Host;
use crate::host::control::{AnyControl, Change};
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Reference of a future to the process that polls it.
#[derive(Debug)]
pub(crate) struct ProcessRef(Ref<dyn AnyControl>);

impl ProcessRef {
    #[inline]
    pub(crate) fn new(control: Ref<dyn AnyControl>) -> Self {
        Self(control)
    }

    /// Returns a reference to the process whose turn is running on this thread, if that process belongs to this
    /// runtime.
    #[inline]
    pub(crate) fn of_turn(host: &Host) -> Option<Self> {
        host.shared().pid_table.get(Current::with(Current::pid)?).map(Self)
    }

    /// Address of the control block. The address identifies the process as long as the reference exists.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.identity()
    }

    /// Whether this thread is stepping the process.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        Current::with(|current| current.steps(self.address()))
    }

    /// Changes the number of external events that the process waits for.
    #[inline]
    pub(crate) fn wait_for(&self, change: Change) {
        self.head().wait_for(change, self.is_here());
    }
}

impl Deref for ProcessRef {
    type Target = Ref<dyn AnyControl>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
