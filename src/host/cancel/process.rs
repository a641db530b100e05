//! Cancels, kills and preempts a single process, by its pid.

use std::time::Duration;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::timer::owned::call_at;
use crate::platform::clock::Instant;
use crate::process::error::NoProcess;
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::Ref;

impl Host {
    /// Requests that a process exits, and kills it if it has not exited after `grace`.
    ///
    /// The process receives one cancel event. Only the first request has an effect. A later request neither sends an
    /// event nor changes the deadline. The runtime answers commands during the grace period as usual, so the process
    /// can clean up.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if the pid names no process.
    pub fn cancel(&self, pid: Pid, reason: impl Into<Reason>, grace: Duration) -> Result<(), NoProcess> {
        let control = self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?;
        let deadline = self.now() + grace;
        self.cancel_until(&control, reason.into(), deadline);
        Ok(())
    }

    /// Requests that a process exits, and kills it at `deadline`. Does nothing if the exit of the process was requested
    /// before.
    pub(crate) fn cancel_until(&self, control: &Ref<dyn AnyControl>, reason: Reason, deadline: Instant) {
        if control.cancel(reason, deadline) {
            self.kill_at(control, deadline);
        }
    }

    /// Terminates a process at its next scheduling point, and cancels its outstanding yields. The process cannot refuse
    /// a kill.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if the pid names no process.
    pub fn kill(&self, pid: Pid) -> Result<(), NoProcess> {
        self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?.kill();
        Ok(())
    }

    /// Asks a running process to let other processes run. Returns whether a worker was running the process.
    ///
    /// [`should_yield`](crate::should_yield) and [`cooperative`](crate::cooperative()) report the request once, in the
    /// turn that was running at the time of the call. A process that is not running needs no request. If the process
    /// ends its turn at the moment of the call, the request may take effect in its next turn.
    ///
    /// The request is cooperative. Code that calls neither `should_yield` nor `cooperative` is not interrupted. The
    /// request does not reach a process that is not `Send`, because [`LocalSet::run`](crate::LocalSet::run) polls these
    /// processes inside one future. In a simulation this call returns `false`.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if the pid names no process.
    pub fn preempt(&self, pid: Pid) -> Result<bool, NoProcess> {
        let _lives = self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?;
        Ok((self.shared().preempt)(pid.word()))
    }

    /// Kills a process at `deadline`, unless the process has exited before the deadline. The timer belongs to the
    /// process. Therefore the exit of the process cancels the timer, even if the deadline is far away.
    pub(crate) fn kill_at(&self, control: &Ref<dyn AnyControl>, deadline: Instant) {
        if deadline == Instant::FAR {
            return;
        }
        let condemned = Ref::downgrade(control);
        call_at(control, deadline, move || {
            if let Some(control) = condemned.upgrade() {
                control.kill();
            }
        });
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::{Context, Exit, Runtime};

    /// The kill timer refers to the process. Therefore the timer must not stay set after the process has exited.
    #[test]
    fn an_exit_cancels_the_kill_timer_of_a_cancel() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        for grace in [Duration::MAX, Duration::from_secs(86_400), Duration::from_secs(1)] {
            let handle = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
            let control = Ref::downgrade(&handle.address().control().any());
            rt.block_on(handle.started()).unwrap();
            rt.cancel(handle.pid(), Reason::from("test"), grace).unwrap();
            assert!(rt.block_on(handle).is_err());
            assert_eq!(rt.shared().timers.len(), 0, "{grace:?}");
            assert!(control.upgrade().is_none());
        }
    }

    /// The deadline of a cancel request kills a process that ignores the request.
    #[test]
    fn a_cancelled_process_is_killed_at_the_deadline() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let handle = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3_600)).await);
        rt.block_on(handle.started()).unwrap();
        rt.cancel(handle.pid(), Reason::from("test"), Duration::from_millis(1)).unwrap();
        assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
    }
}
