//! Reads the sleeps of processes. A sleep is recorded only in its timer. Therefore only a visit of all timers finds the
//! sleeps of one process. In return, a sleep needs no record in its process.

use std::collections::BTreeMap;
use std::panic::Location;

use crate::host::Host;
use crate::host::inspection::process;
use crate::platform::clock::Instant;
use crate::process::pid::Pid;
use crate::process::state::PendingSchedule;

/// A sleep that waits for its timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingSleep {
    /// Time at which the timer fires.
    pub(super) due: Instant,
    pub(super) line: &'static Location<'static>,
}

/// Sleeps of one process. The earliest sleep comes first.
#[derive(Debug)]
pub(super) struct SleepsOfProcess {
    /// Number of steps of the process before the timers were read.
    steps: u64,
    sleeps: Vec<WaitingSleep>,
}

impl SleepsOfProcess {
    /// Returns the sleeps, if the process has run no step since the timers were read. Otherwise some sleeps may have
    /// ended. `steps` is the present number of steps.
    pub(super) fn at(&self, steps: u64) -> &[WaitingSleep] {
        if self.steps == steps { &self.sleeps } else { &[] }
    }
}

/// Sleeps of processes, by pid.
pub(super) type Sleeps = BTreeMap<Pid, SleepsOfProcess>;

impl Host {
    /// Reads the sleeps of these processes. The list contains only sleeps whose timers wake the tasks of the processes
    /// directly. A sleep inside a combinator with its own waker, for example `FuturesUnordered`, is missing.
    ///
    /// A timer contains the address of a process's task, and not the pid. If the caller finds a process with this pid
    /// after this call, the process was alive during this call. Therefore no other process had the same address.
    pub(super) fn read_sleeps(&self, pids: &[Pid]) -> Sleeps {
        let table = &self.shared().pid_table;
        let may_sleep = |pid: &Pid| {
            let address = table.with(*pid, |control| {
                let waits = process(control).and_then(|(head, _)| head.state()).is_some_and(|state| state.is_waiting());
                Ok(waits.then(|| (control.identity(), control.steps())))
            });
            let (address, steps) = address??;
            Some((address, (*pid, SleepsOfProcess { steps, sleeps: Vec::new() })))
        };
        let mut found: BTreeMap<usize, (Pid, SleepsOfProcess)> = pids.iter().filter_map(may_sleep).collect();
        if found.is_empty() {
            return Sleeps::new();
        }
        self.shared().timers.visit_sleeps(|waker, due, line| {
            if PendingSchedule::is_of_process(waker)
                && let Some((_, sleeps)) = found.get_mut(&(waker.data() as usize))
            {
                sleeps.sleeps.push(WaitingSleep { due, line });
            }
        });
        let sorted = |(pid, mut sleeps): (Pid, SleepsOfProcess)| {
            sleeps.sleeps.sort_unstable();
            (pid, sleeps)
        };
        found.into_values().map(sorted).collect()
    }
}
