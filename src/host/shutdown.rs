//! Shutdown of a runtime: its phase, and the order in which processes are cancelled and killed.
//!
//! A shutdown cancels the top-level supervisors first, and the other processes when the supervisors have exited. At the
//! deadline the runtime kills the processes that are left. This module does not stop the worker threads.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::host::control::{AnyControl, Head, Listening, flag, poll_news};
use crate::host::{Host, Phase};
use crate::observe::ProcessState;
use crate::platform::clock::Instant;
use crate::platform::sync::atomic::Ordering;
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Result of a shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The processes that had not exited at the deadline and were killed then.
    pub left: Vec<UnfinishedProcess>,
}

/// A process that had not exited at the deadline of a shutdown, and its state at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfinishedProcess {
    /// Pid of the process.
    pub pid: Pid,
    /// State of the process; `Running` for a process whose step did not return.
    pub state: Option<ProcessState>,
    /// Number of answers that the process was waiting for.
    pub outstanding: usize,
}

impl fmt::Display for UnfinishedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was ", self.pid)?;
        match self.state {
            Some(ProcessState::Running) => f.write_str("in a step that did not return"),
            Some(ProcessState::Blocked) => write!(f, "waiting for {} answers", self.outstanding),
            Some(ProcessState::Idle) => f.write_str("waiting for a message"),
            _ => f.write_str("waiting for a worker"),
        }
    }
}

impl Host {
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.shared().phase.load(Ordering::SeqCst) {
            0 => Phase::Open,
            1 => Phase::Closing,
            _ => Phase::Closed,
        }
    }

    /// Moves on to `phase`; never back to an earlier phase.
    pub(crate) fn advance(&self, phase: Phase) {
        self.shared().phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    /// Whether every spawned process has been counted as exited. For the last of them, the steps of the exit after the
    /// count may still be running.
    #[inline]
    pub(crate) fn all_ended(&self) -> bool {
        self.shared().metrics.all_ended()
    }

    pub(crate) fn shutdown_deadline(&self) -> Instant {
        Instant::from_ns(self.shared().deadline.load(Ordering::SeqCst))
    }

    /// The processes that have not exited.
    pub(crate) fn alive(&self) -> Vec<Ref<dyn AnyControl>> {
        let mut all = self.shared().pid_table.all();
        all.retain(|control| !control.head().has(flag::OUTSIDE) && !control.head().has_ended());
        all
    }

    /// The processes that have not exited, with the state of each.
    pub(crate) fn left(&self) -> Vec<UnfinishedProcess> {
        let alive = self.alive();
        let left = alive.iter().map(|control| {
            let head = control.head();
            UnfinishedProcess { pid: head.pid(), state: head.state(), outstanding: head.outstanding() }
        });
        left.collect()
    }

    /// Refuses work from outside and cancels the processes. Top-level supervisors are cancelled first; each terminates
    /// its children in its own order. The other unsupervised processes are cancelled when the last top-level supervisor
    /// has exited.
    ///
    /// A repeated call can only bring the deadline forward.
    pub(crate) fn begin_shutdown(&self, deadline: Instant) {
        self.shared().deadline.fetch_min(deadline.ns(), Ordering::SeqCst);
        self.advance(Phase::Closing);
        self.cancel_all(|head| head.has(flag::ROOT));
        // The count of roots is read after the phase is set. An exiting root decrements the count before it reads the
        // phase. Therefore if this reads a count above zero, the last root reads the new phase and calls
        // `shut_down_rest`.
        if self.shared().roots.load(Ordering::SeqCst) == 0 {
            self.shut_down_rest();
        }
    }

    /// Returns a future that resolves to true when every process has exited, or to false at the deadline. `ring` sets
    /// an alarm that wakes the waker after this time. The alarm must not depend on a worker.
    pub(crate) fn ended_by<A: Unpin, R: Fn(Duration, Waker) -> A + Unpin>(
        self,
        deadline: Instant,
        ring: R,
    ) -> impl Future<Output = bool> {
        AllEnded { host: self, listening: Listening::default(), deadline, ring, alarm: None }
    }

    /// Registers a supervisor that has no supervisor itself.
    pub(crate) fn register_root(&self, root: &dyn AnyControl) {
        self.shared().roots.fetch_add(1, Ordering::SeqCst);
        root.head().set(flag::ROOT);
        // `begin_shutdown` sets the phase before it looks for roots. This sets `ROOT` before it reads the phase.
        // Therefore a shutdown that starts now either finds the root or is seen here.
        if self.phase() != Phase::Open {
            root.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    #[cold]
    pub(super) fn unregister_root(&self) {
        if self.shared().roots.fetch_sub(1, Ordering::SeqCst) == 1 && self.phase() != Phase::Open {
            self.shut_down_rest();
        }
    }

    fn shut_down_rest(&self) {
        self.cancel_all(|head| !head.has(flag::SUPERVISED));
    }

    fn cancel_all(&self, concerns: impl Fn(&Head) -> bool) {
        for control in self.alive().iter().filter(|control| concerns(control.head())) {
            control.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    /// Refuses all work and kills the processes that are left. The caller then runs the queued tasks until no task is
    /// left.
    pub(crate) fn condemn(&self) {
        self.advance(Phase::Closed);
        self.shared().pid_table.close();
        for control in self.shared().pid_table.all() {
            control.kill();
        }
        let futures: Vec<Waker> = self.shared().futures.lock().iter().map(|(_, waker)| waker.clone()).collect();
        futures.into_iter().for_each(Waker::wake);
    }
}

/// The future of [`Host::ended_by`].
struct AllEnded<A, R> {
    host: Host,
    listening: Listening,
    deadline: Instant,
    ring: R,
    alarm: Option<A>,
}

impl<A: Unpin, R: Fn(Duration, Waker) -> A + Unpin> Future for AllEnded<A, R> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        let host = &this.host;
        // A process that was being spawned when the shutdown began may have a pid and not be counted as spawned yet.
        // The second check finds it. It exits later and notifies this future then.
        let ended = || (host.all_ended() && host.alive().is_empty()).then_some(());
        if poll_news(&host.shared().emptied, &mut this.listening, cx, ended).is_ready() {
            return Poll::Ready(true);
        }
        // Another call of `begin_shutdown` may have set an earlier deadline.
        let deadline = this.deadline.min(host.shutdown_deadline());
        let now = host.now();
        if now >= deadline {
            return Poll::Ready(false);
        }
        // Each poll sets a new alarm for the deadline, whatever woke this future. It replaces the former alarm, which
        // may have the waker of an earlier poll.
        this.alarm = Some((this.ring)(deadline - now, cx.waker().clone()));
        Poll::Pending
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::platform::sync::Mutex;

    /// The clock of a simulation moves only when the test advances it.
    #[test]
    fn the_alarm_of_a_shutdown_is_set_for_its_deadline() {
        let ms = Duration::from_millis;
        let simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let clock = host.shared().clock.clone();
        let _lives = host.spawn(async |_: crate::Context| std::future::pending::<()>().await);
        clock.advance(ms(3));
        let deadline = host.now() + ms(50);
        host.begin_shutdown(deadline);
        let alarms = Mutex::new(Vec::new());
        let mut ended = Box::pin(host.clone().ended_by(deadline, |after, _| alarms.lock().push(after)));
        let mut poll_after = |time| {
            clock.advance(time);
            ended.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        // The first poll happens late, as after a `begin_shutdown` that took long.
        assert!(poll_after(ms(20)).is_pending());
        // A wake-up before the deadline, as after the exit of a process.
        assert!(poll_after(ms(29)).is_pending());
        host.begin_shutdown(deadline + ms(9));
        assert!(poll_after(ms(0)).is_pending());
        assert_eq!(poll_after(ms(1)), Poll::Ready(false));
        assert_eq!(*alarms.lock(), [ms(30), ms(1), ms(1)]);
        // The earlier deadline of two shutdowns applies.
        let mut later = Box::pin(host.ended_by(deadline + ms(9), |_, _| ()));
        assert_eq!(later.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(false));
    }
}
