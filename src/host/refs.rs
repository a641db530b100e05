//! References from a future to the process that polls the future. A future holds a reference to the process while the
//! future waits for an external event.
//!
//! A process often sleeps or sets a time limit directly after another sleep or time limit. When a sleep is dropped in a
//! step of its process, the thread of the step stores the reference until the step ends. If the same process begins
//! another sleep before the step ends, this sleep takes over the stored reference. The hand-over saves two changes of
//! the reference count. Each such change is an atomic read-modify-write operation. (With the hand-over, setting and
//! cancelling a time limit takes 0.89 of the CPU cycles that the same work takes without the hand-over.) A thread
//! stores at most one reference. The futures of calls do not hand over references, because a hand-over made calls more
//! expensive.

use std::num::NonZeroU64;
use std::ops::Deref;

use crate::host::Host;
use crate::host::control::waits::{Place, Wait};
use crate::host::control::{AnyControl, Change};
use crate::host::registry::LocalId;
use crate::platform::by_value::{ByValue, DropByValue};
use crate::platform::sync::{ThreadCell, thread_local};
use crate::process::state::Ref;
use crate::process::state::current::Current;

thread_local! {
    /// A sleep of this step, or of an outer step, has left this reference for the next sleep of the same process.
    /// [`Current::kept_reference`] contains the address of this process's control block.
    static KEPT: ThreadCell<Ref<dyn AnyControl>> = const { ThreadCell::new() };
}

/// Reference from a future to the process that polls the future.
#[derive(Debug)]
pub(crate) struct ProcessRef(Ref<dyn AnyControl>);

impl ProcessRef {
    #[inline]
    pub(crate) fn new(control: Ref<dyn AnyControl>) -> Self {
        Self(control)
    }

    /// Returns a reference to the process whose turn is running on this thread, if the process belongs to the runtime
    /// of `host`.
    #[inline]
    pub(crate) fn of_turn(host: &Host) -> Option<Self> {
        host.shared().pid_table.get(Current::with(Current::pid)?).map(Self)
    }

    /// Returns the address of the control block. The address identifies the process as long as the reference exists.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.identity()
    }

    /// Returns whether this thread runs a step of the process.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        is_stepped_here(self)
    }

    /// Returns true if a receiver may still be registered in the mailbox although no receive operation waits. The
    /// mailbox belongs to the process whose step this thread runs.
    pub(crate) fn has_stale_receiver() -> bool {
        Current::with(Current::has_stale_receiver)
    }

    /// Counts and records an external event that the process waits for. The returned place makes
    /// [`end_wait`](Self::end_wait) cheaper.
    #[inline]
    pub(crate) fn begin_wait(&self, wait: &Wait) -> Place {
        self.0.begin_wait(wait, true, self.is_here())
    }

    /// Removes an external event from the count and from the records.
    #[inline]
    pub(crate) fn end_wait(&self, place: Place, wait: impl FnOnce() -> Wait) {
        self.0.end_wait(place, wait, true, self.is_here());
    }
}

/// Returns whether this thread runs a step of the process with this control block.
#[inline]
pub(crate) fn is_stepped_here(control: &Ref<dyn AnyControl>) -> bool {
    Current::with(|current| current.steps(control.identity()))
}

/// Identifies the process that waits for a future such as [`Exited`](crate::future::Exited). This process has a record
/// of the wait. The number of external events that the process waits for does not include this wait.
///
/// A future such as `Exited` may be created outside a process, and may move from one process to another. Therefore, at
/// each poll that returns `Pending`, the future looks up the process that polls the future.
#[derive(Debug, Default)]
pub(crate) struct RecordedWait {
    /// Pid of the process that has the record, as one [word](crate::process::pid::Pid::word).
    by: Option<NonZeroU64>,
}

impl RecordedWait {
    /// Records a wait of the process whose step this thread runs. `host` is any host of the runtime. If the process
    /// already has the record, this function takes no lock. Otherwise this function takes the lock of the process's
    /// slot in the pid table.
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
                control.begin_wait(wait, false, is_stepped_here(control));
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
            control.end_wait(Place::default(), || *wait, false, is_stepped_here(control));
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

/// Reference from a sleep to its process. A later sleep can take over the reference.
#[derive(Debug)]
pub(crate) struct SleeperRef(ByValue<Ref<dyn AnyControl>>);

impl SleeperRef {
    /// Returns a reference to the process with this control block. If this thread keeps a reference to this process,
    /// this function takes over the kept reference. Otherwise this function calls `control`, which returns a new
    /// reference.
    #[inline]
    pub(crate) fn of(address: usize, control: impl FnOnce() -> Ref<dyn AnyControl>) -> Self {
        let kept = Current::with(|current| take_kept(current, address));
        Self(ByValue::new(kept.unwrap_or_else(control)))
    }

    /// Drops the reference that this thread keeps for the process with this control block, if there is one. The task of
    /// the process calls this function at the end of each step.
    pub(crate) fn drop_kept(current: &Current, address: usize) {
        drop(take_kept(current, address));
    }

    /// Returns the address of the control block. The address identifies the process as long as the reference exists.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.identity()
    }

    /// Changes the number of external events that the process waits for.
    #[inline]
    pub(crate) fn wait_for(&self, change: Change) {
        self.head().wait_for(change, is_stepped_here(self));
    }
}

/// Takes out the reference that this thread keeps for the process with this control block.
#[inline]
fn take_kept(current: &Current, address: usize) -> Option<Ref<dyn AnyControl>> {
    if current.kept_reference.get() != address {
        return None;
    }
    current.kept_reference.set(0);
    KEPT.with(ThreadCell::take)
}

impl Deref for SleeperRef {
    type Target = Ref<dyn AnyControl>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DropByValue for Ref<dyn AnyControl> {
    /// Stores the reference for the next sleep if this thread runs a step of the process and stores no other reference.
    #[inline]
    fn drop_by_value(self) {
        let address = self.identity();
        let keeps = Current::with(|current| {
            let keeps = current.may_keep(address) && current.kept_reference.get() == 0;
            if keeps {
                current.kept_reference.set(address);
            }
            keeps
        });
        if keeps {
            KEPT.with(|kept| kept.put(self));
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::process::state::current::InTurn;
    use crate::{Address, Context, Runtime};

    /// Enters a turn of this process.
    fn in_turn<R>(process: &Address<u64>, f: impl FnOnce(&Current) -> R) -> R {
        Current::with(|current| {
            let _turn = current.enter(InTurn::in_test(), process.control().address(), process.pid(), || "test");
            f(current)
        })
    }

    fn of(process: &Address<u64>) -> SleeperRef {
        SleeperRef::of(process.control().address(), || process.control().any())
    }

    #[test]
    fn sleeps_of_one_step_share_a_reference() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let [one, other] = [0, 1].map(|_| rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await).address());
        let count = |of: &Address<u64>| of.control().count();
        let before = [count(&one), count(&other)];
        let foreign = of(&other);
        in_turn(&one, |current| {
            let first = of(&one);
            assert_eq!(count(&one), before[0] + 1);
            drop(first);
            assert_eq!(count(&one), before[0] + 1, "the reference is kept");
            let [second, third] = [of(&one), of(&one)];
            assert_eq!(count(&one), before[0] + 2, "the second sleep takes over the reference");
            drop((second, third));
            assert_eq!(count(&one), before[0] + 1, "the thread keeps at most one reference");
            drop(foreign);
            assert_eq!(count(&other), before[1], "no reference to a foreign process is kept");
            in_turn(&other, |current| {
                drop(of(&other));
                assert_eq!(count(&other), before[1], "there is no room for a reference of the nested step");
                assert!(current.end_keeping());
                SleeperRef::drop_kept(current, other.control().address());
            });
            assert_eq!(count(&one), before[0] + 1, "the nested step does not drop the reference of the outer step");
            assert!(current.end_keeping());
            SleeperRef::drop_kept(current, one.control().address());
            assert!(!current.end_keeping());
            drop(of(&one));
            assert_eq!(count(&one), before[0], "after the end of the step, no reference is kept");
        });
        drop(of(&one));
        assert_eq!(count(&one), before[0], "no reference is kept outside a turn");
        [one, other].iter().for_each(|process| rt.kill(process.pid()).unwrap());
    }
}
