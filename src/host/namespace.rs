//! The namespace of a host. The namespace contains the name, the command handlers and the limits of the host. The
//! namespace also contains the names and the groups of the host's processes.
//!
//! Several hosts may share one runtime, and each host has its own namespace. [`HostBuilder`](crate::HostBuilder) builds
//! the namespace. The handlers do not change after the build. The names and the groups change while the host runs. `E`
//! is the control block of a process.

pub(crate) mod builder;

use crate::host::dispatch::table::Dispatcher;
use crate::host::link::Linkable;
use crate::host::registry::groups::Groups;
use crate::host::registry::names::Names;
use crate::platform::sync::CachePadded;
use crate::platform::sync::atomic::{AtomicUsize, Ordering};
use crate::process::error::SpawnErrorKind;
use crate::process::limits::Limits;

/// The state of a host that the other hosts of the runtime do not share.
#[derive(Debug)]
pub(crate) struct Namespace<E: ?Sized> {
    dispatcher: Dispatcher<E>,
    limits: Option<Limits>,
    /// Maximum number of processes in this host at one time. `usize::MAX` means no limit.
    most: usize,
    /// Number of processes in this host. If `most` is `usize::MAX`, this count does not change.
    alive: CachePadded<AtomicUsize>,
    names: Names<E>,
    groups: Groups<E>,
}

impl<E: Linkable + ?Sized> Namespace<E> {
    pub(crate) fn new(dispatcher: Dispatcher<E>, limits: Option<Limits>, most: usize) -> Self {
        let alive = CachePadded(AtomicUsize::new(0));
        Self { dispatcher, limits, most, alive, names: Names::new(), groups: Groups::new() }
    }

    pub(crate) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    pub(crate) fn names(&self) -> &Names<E> {
        &self.names
    }

    pub(crate) fn groups(&self) -> &Groups<E> {
        &self.groups
    }

    /// Returns the name of the host. The first host of a runtime has an empty name.
    pub(crate) fn name(&self) -> &str {
        self.dispatcher.host()
    }

    /// Returns whether this is the namespace of the first host of a runtime.
    pub(crate) fn is_first(&self) -> bool {
        self.name().is_empty()
    }

    #[inline]
    pub(crate) fn dispatcher(&self) -> &Dispatcher<E> {
        &self.dispatcher
    }

    /// Counts a new process.
    ///
    /// # Errors
    /// Returns [`SpawnErrorKind::Limit`] if the host already has the maximum number of processes.
    #[inline]
    pub(crate) fn enter(&self) -> Result<(), SpawnErrorKind> {
        if self.most == usize::MAX {
            return Ok(());
        }
        let more = |alive| (alive < self.most).then_some(alive + 1);
        match self.alive.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(SpawnErrorKind::Limit(self.most)),
        }
    }

    /// Subtracts one process from the count. The caller calls this function when a counted process has exited, or
    /// when the spawn of a counted process has failed.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.most != usize::MAX {
            self.alive.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
