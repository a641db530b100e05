//! References from a future to the process that polls the future. A future holds such a reference while the future
//! waits for an external event.

use std::num::NonZeroU64;
use std::ops::Deref;

use crate::host::Host;
use crate::host::control::waits::{Place, Wait};
use crate::host::control::{AnyControl, Change};
use crate::host::registry::LocalId;
use crate::process::state::Ref;
use crate::process::state::current::Current;

/// Reference from a future to the process that polls the future.
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

    /// Returns the address of the control block. The address identifies the process as long as the reference exists.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.identity()
    }

    /// Returns whether this thread is stepping the process.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        Current::with(|current| current.steps(self.address()))
    }

    /// Returns whether the receiver of the process that this thread steps has taken a delivered message and has not
    /// requested the next message. The mailbox then still registers this receiver.
    pub(crate) fn has_taken_delivered() -> bool {
        Current::with(Current::has_taken_delivered)
    }

    /// Changes the number of external events that the process waits for.
    #[inline]
    pub(crate) fn wait_for(&self, change: Change) {
        self.head().wait_for(change, self.is_here());
    }

    /// Counts and records an external event that the process waits for. The returned place makes
    /// [`end_wait`](Self::end_wait) cheaper.
    #[inline]
    pub(crate) fn begin_wait(&self, wait: &Wait) -> Place {
        let (head, here) = (self.head(), self.is_here());
        head.wait_for(Change::More, here);
        head.begin_wait(wait, here)
    }

    /// Removes an external event from the count and from the records.
    #[inline]
    pub(crate) fn end_wait(&self, place: Place, wait: impl FnOnce() -> Wait) {
        let (head, here) = (self.head(), self.is_here());
        head.wait_for(Change::Less, here);
        head.end_wait(place, wait, here);
    }
}

/// Identifies the process that waits for a future such as [`Exited`](crate::future::Exited). This process has a record
/// of the wait. This wait is not included in the number of external events that the process waits for.
///
/// Such a future may be created outside a process, and may move from one process to another. Therefore the future looks
/// up its process at each poll that returns `Pending`.
#[derive(Debug, Default)]
pub(crate) struct RecordedWait {
    /// Word of the pid of the process that has the record.
    by: Option<NonZeroU64>,
}

impl RecordedWait {
    /// Records a wait of the process that this thread steps. `host` is any host of the runtime. If the process already
    /// has the record, this function takes no lock. Otherwise this function takes the lock of the process's slot in the
    /// pid table.
    pub(crate) fn begin(&mut self, host: &Host, wait: &Wait) {
        let table = &host.shared().pid_table;
        let pid = Current::with(Current::pid).filter(|pid| table.is_here(*pid));
        let by = pid.and_then(|pid| NonZeroU64::new(pid.word()));
        if by == self.by {
            return;
        }
        self.end(host, || *wait);
        if let Some(pid) = pid {
            let begin = |control: &Ref<dyn AnyControl>| {
                control.head().begin_wait(wait, Current::with(|current| current.steps(control.identity())));
                Ok(())
            };
            self.by = table.with(pid, begin).and(by);
        }
    }

    /// Removes the record of the wait, if a process has the record.
    #[inline]
    pub(crate) fn end(&mut self, host: &Host, wait: impl FnOnce() -> Wait) {
        if let Some(word) = self.by.take() {
            Self::remove(host, word, &wait());
        }
    }

    #[cold]
    fn remove(host: &Host, word: NonZeroU64, wait: &Wait) {
        let table = &host.shared().pid_table;
        table.with(table.pid(LocalId::from(word.get())), |control| {
            let here = Current::with(|current| current.steps(control.identity()));
            control.head().end_wait(Place::default(), || *wait, here);
            Ok(())
        });
    }
}

impl Deref for ProcessRef {
    type Target = Ref<dyn AnyControl>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
