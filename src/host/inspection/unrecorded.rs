//! Reads the sleeps and the socket operations of processes. A sleep is recorded only in a timer, and a socket operation
//! is recorded only in a socket. The timer or the socket contains the waker of the process. Therefore the code must
//! visit all timers and all sockets to find the waits of one process. The advantage is that these waits need no record
//! in the process.

use std::collections::BTreeMap;
use std::panic::Location;
use std::task::Waker;

use crate::host::Host;
use crate::host::inspection::process;
use crate::platform::clock::Instant;
use crate::platform::poller::SocketWait;
use crate::process::pid::Pid;
use crate::process::state::PendingSchedule;

/// A sleep whose timer has not fired yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitingSleep {
    /// Time at which the timer fires.
    pub(super) due: Instant,
    pub(super) line: &'static Location<'static>,
}

/// A socket that some operations of a process wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AwaitedSocket {
    pub(super) descriptor: u64,
    /// True if the operations wait until the socket is writable, and false if they wait until the socket is readable.
    pub(super) is_write: bool,
}

/// Waits of one process for timers and for sockets.
#[derive(Debug, Default)]
pub(super) struct UnrecordedWaits {
    /// Number of steps of the process before the timers and the sockets were read.
    steps: u64,
    /// The earliest sleep comes first.
    sleeps: Vec<WaitingSleep>,
    sockets: Vec<AwaitedSocket>,
}

impl UnrecordedWaits {
    /// Returns the waits, if the process has run no step since the timers and the sockets were read. If the process has
    /// run a step, some waits may have ended, and the lists are empty. `steps` is the present number of steps.
    pub(super) fn at(&self, steps: u64) -> (&[WaitingSleep], &[AwaitedSocket]) {
        if self.steps == steps { (&self.sleeps, &self.sockets) } else { (&[], &[]) }
    }
}

/// Waits of processes for timers and for sockets, by pid.
pub(super) type WaitsByProcess = BTreeMap<Pid, UnrecordedWaits>;

/// Addresses of the tasks that wait for sockets, in ascending order.
#[derive(Debug, Default)]
pub(super) struct SocketWaiters(Vec<usize>);

impl SocketWaiters {
    /// Returns whether the process with this address waits for a socket.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.0.binary_search(&address).is_ok()
    }
}

impl Host {
    /// Reads which processes wait for sockets. The result is exact only for a process that was alive during this call,
    /// and has run no step since this call.
    pub(super) fn read_socket_waiters(&self) -> SocketWaiters {
        let mut addresses = Vec::new();
        (self.shared().visit_sockets)(&self.shared().place, &mut |SocketWait { waker, .. }| {
            addresses.extend(PendingSchedule::is_of_process(waker).then(|| waker.data() as usize));
        });
        addresses.sort_unstable();
        SocketWaiters(addresses)
    }

    /// Reads the sleeps and the socket operations of these processes. The lists contain only timers and sockets that
    /// wake the tasks of the processes directly. The lists do not contain a sleep or a socket operation inside a
    /// combinator with its own waker, for example `FuturesUnordered`.
    ///
    /// A timer and a socket contain the address of a process's task, and not the pid. The caller knew the pid before
    /// this call. If the caller finds the process after this call, the process was alive during the whole call.
    /// Therefore no other task had the address of this process during the call.
    pub(super) fn read_unrecorded_waits(&self, pids: &[Pid]) -> WaitsByProcess {
        let table = &self.shared().pid_table;
        let may_wait = |pid: &Pid| {
            let address = table.with(*pid, |control| {
                let waits = process(control).and_then(|(head, _)| head.state()).is_some_and(|state| state.is_waiting());
                Ok(waits.then(|| (control.identity(), control.steps())))
            });
            let (address, steps) = address??;
            Some((address, (*pid, UnrecordedWaits { steps, ..UnrecordedWaits::default() })))
        };
        let mut found: BTreeMap<usize, (Pid, UnrecordedWaits)> = pids.iter().filter_map(may_wait).collect();
        if found.is_empty() {
            return WaitsByProcess::new();
        }
        let mut add = |waker: &Waker, record: &dyn Fn(&mut UnrecordedWaits)| {
            if PendingSchedule::is_of_process(waker)
                && let Some((_, waits)) = found.get_mut(&(waker.data() as usize))
            {
                record(waits);
            }
        };
        self.shared().timers.visit_sleeps(|waker, due, line| {
            add(waker, &|waits| waits.sleeps.push(WaitingSleep { due, line }));
        });
        (self.shared().visit_sockets)(&self.shared().place, &mut |SocketWait { waker, descriptor, is_write }| {
            add(waker, &|waits| waits.sockets.push(AwaitedSocket { descriptor, is_write }));
        });
        let sorted = |(pid, mut waits): (Pid, UnrecordedWaits)| {
            waits.sleeps.sort_unstable();
            waits.sockets.sort_unstable();
            // Several operations of a process can wait for one direction of a socket.
            waits.sockets.dedup();
            (pid, waits)
        };
        found.into_values().map(sorted).collect()
    }
}
