//! The set of the suspended processes of a runtime. The set does not know the flags of a process. Callers pass closures
//! that change a flag under the lock of the set: see `suspension.rs`.

use std::collections::BTreeSet;

use crate::platform::sync::Mutex;
use crate::platform::sync::tally::{AtomicUsize, Ordering};
use crate::process::pid::Pid;

/// The suspended processes of a runtime.
#[derive(Debug, Default)]
pub(crate) struct SuspendedProcesses {
    pids: Mutex<BTreeSet<Pid>>,
    /// Length of the set. A thread reads the length without the lock.
    len: AtomicUsize,
}

impl SuspendedProcesses {
    #[inline]
    pub(crate) fn contains(&self, pid: impl FnOnce() -> Pid) -> bool {
        !self.is_empty() && self.pids.lock().contains(&pid())
    }

    /// Returns whether no process of the runtime is suspended.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // A turn that reads the length has seen the flag `OBSERVED` before. Therefore the turn sees the length that
        // `suspend` has stored. SeqCst also orders `suspend` and `resume` on threads that do not synchronize otherwise.
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Adds a process, and calls `observe` under the lock. Returns false if the process was already in the set.
    pub(super) fn insert(&self, pid: Pid, observe: impl FnOnce()) -> bool {
        let mut pids = self.pids.lock();
        let is_new = pids.insert(pid);
        self.len.store(pids.len(), Ordering::SeqCst);
        observe();
        is_new
    }

    /// Removes a process that exits or is resumed. Returns false if the process was not in the set.
    #[inline]
    pub(crate) fn remove(&self, pid: impl FnOnce() -> Pid) -> bool {
        // `suspend` stores the length, and then locks the slot of the pid in the pid table. An exit locks this slot
        // before the exit calls this function. If the exit locks the slot after `suspend`, the exit sees the length.
        // Otherwise `suspend` does not find the pid. In this case, `suspend` itself removes the process from the set.
        !self.is_empty() && self.remove_pid(pid())
    }

    #[cold]
    fn remove_pid(&self, pid: Pid) -> bool {
        let mut pids = self.pids.lock();
        let was_suspended = pids.remove(&pid);
        self.len.store(pids.len(), Ordering::SeqCst);
        was_suspended
    }

    /// Calls `f` under the lock, if the process is not in the set. The function takes the lock even if the set is
    /// empty, because another thread may add the process at the same time.
    pub(super) fn unless_suspended(&self, pid: Pid, f: impl FnOnce()) {
        let pids = self.pids.lock();
        if !pids.contains(&pid) {
            f();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SuspendedProcesses;
    use crate::process::pid::Pid;

    #[test]
    fn a_pid_is_suspended_until_it_is_removed() {
        let set = SuspendedProcesses::default();
        let [one, two] = [1, 2].map(|index| Pid::new(1, 1, index, 1));
        assert!(!set.contains(|| unreachable!("the set is empty")));
        assert!(!set.remove(|| unreachable!("the set is empty")));
        let mut flags = 0;
        assert!(set.insert(one, || flags += 1));
        assert!(!set.insert(one, || flags += 1));
        set.unless_suspended(one, || flags += 10);
        set.unless_suspended(two, || flags += 100);
        assert_eq!((flags, set.contains(|| one), set.contains(|| two)), (102, true, false));
        assert_eq!((set.remove(|| two), set.remove(|| one), set.contains(|| one)), (false, true, false));
        set.unless_suspended(one, || flags += 1000);
        assert_eq!(flags, 1102);
    }
}
