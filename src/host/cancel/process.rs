//! Cancels, kills or preempts a single process, or changes its priority. The pid identifies the process.

use std::time::Duration;

use crate::host::Host;
use crate::host::control::{AnyControl, Head};
use crate::host::timer::owned::call_at;
use crate::platform::clock::Instant;
use crate::process::error::NoProcess;
use crate::process::exit::Reason;
use crate::process::pid::Pid;
use crate::process::state::Ref;
use crate::process::state::priority::Priority;

impl Host {
    /// Asks a process to exit. If the process has not exited after the time `grace`, the runtime kills the process. If
    /// `grace` is zero, the process has no time to clean up. With [`Duration::MAX`], the runtime never kills the
    /// process.
    ///
    /// The process receives one cancel event. If the exit of the process was already requested, this call has no
    /// effect. Later, the process may also be cancelled in another way, for example by a [token](crate::CancelToken), a
    /// deadline or a [set](crate::JoinSet). This later cancellation sends no further event, but can kill the process
    /// earlier. During the grace period, the runtime still answers the commands of the process. Therefore the process
    /// can clean up.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if no process has this pid.
    pub fn cancel(&self, pid: Pid, reason: impl Into<Reason>, grace: Duration) -> Result<(), NoProcess> {
        let control = self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?;
        let deadline = self.now() + grace;
        self.cancel_until(&control, reason.into(), deadline);
        Ok(())
    }

    /// Asks a process to exit. If the process has not exited at `deadline`, the runtime kills the process. Does nothing
    /// if the exit of the process was already requested.
    pub(crate) fn cancel_until(&self, control: &Ref<dyn AnyControl>, reason: Reason, deadline: Instant) {
        if control.cancel(reason, deadline) {
            self.kill_at(control, deadline);
        }
    }

    /// Asks a process to exit, and kills the process at `deadline`. The kill happens at `deadline` even if another
    /// cancellation of the process has a later deadline.
    pub(crate) fn cancel_by(&self, control: &Ref<dyn AnyControl>, reason: Reason, deadline: Instant) {
        control.cancel(reason, deadline);
        self.kill_at(control, deadline);
    }

    /// Converts a deadline from the clock of this host to the clock of the process `of`. If the process belongs to
    /// another runtime, the process uses a different clock than this host. The conversion does not change the time that
    /// remains until the deadline.
    pub(crate) fn deadline_for(&self, of: &Head, deadline: Instant) -> Instant {
        let host = of.host();
        if deadline == Instant::FAR || std::ptr::eq(self.shared(), host.shared()) {
            return deadline;
        }
        host.now() + (deadline - self.now())
    }

    /// Kills a process. A killed process exits at its next scheduling point, and its outstanding yields are cancelled.
    /// A process cannot refuse a kill.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if no process has this pid.
    pub fn kill(&self, pid: Pid) -> Result<(), NoProcess> {
        self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?.kill();
        Ok(())
    }

    /// Asks a running process to end its turn, so that other processes can run. Returns whether a worker was running
    /// the process.
    ///
    /// The process learns of the request from [`should_yield`](crate::should_yield) or
    /// [`cooperative`](crate::cooperative()). Usually the request takes effect in the turn that is running when
    /// `preempt` is called: the next call of one of these functions reports the request, and `should_yield` then returns
    /// `true` until the turn ends. If this turn ends before such a call, the request may take effect in a later turn. A
    /// process that is not running needs no request.
    ///
    /// The request is cooperative. The request does not interrupt code that never calls `should_yield` or
    /// `cooperative`. The request does not reach a process that is not `Send`, because
    /// [`LocalSet::run`](crate::LocalSet::run) polls such processes inside one future. In a simulation this call
    /// returns `false`.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if no process has this pid.
    pub fn preempt(&self, pid: Pid) -> Result<bool, NoProcess> {
        let _lives = self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?;
        Ok((self.shared().preempt)(pid.word()))
    }

    /// Sets the priority of a process. The new priority has an effect the next time that the process becomes runnable.
    /// The priority has no effect on a process of a [`LocalSet`](crate::LocalSet), and no effect in a
    /// [`Simulation`](crate::Simulation).
    ///
    /// # Errors
    /// Returns [`NoProcess`] if no process has this pid.
    ///
    /// ```
    /// # use procession::observe::ProcessQuery;
    /// # use procession::{Context, Priority, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let job = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
    /// rt.set_priority(job.pid(), Priority::Low)?;
    /// assert_eq!(rt.processes(&ProcessQuery::new())[0].priority, Priority::Low);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn set_priority(&self, pid: Pid, priority: Priority) -> Result<(), NoProcess> {
        let control = self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?;
        if control.head().set_priority(priority) { Ok(()) } else { Err(NoProcess(pid)) }
    }

    /// Sets a timer that kills a process at `deadline`. The timer belongs to the process. Therefore, if the process
    /// exits before the deadline, the exit cancels the timer. Does nothing if the process already has a timer that
    /// kills the process at the same deadline or at an earlier deadline.
    fn kill_at(&self, control: &Ref<dyn AnyControl>, deadline: Instant) {
        if deadline == Instant::FAR || !control.head().record_kill_deadline(deadline) {
            return;
        }
        let weak = Ref::downgrade(control);
        call_at(control, deadline, move || {
            if let Some(control) = weak.upgrade() {
                control.kill();
            }
        });
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::{Context, Exit, Runtime};

    /// If a set cancels its processes repeatedly, the timers do not accumulate. A cancellation with an earlier deadline
    /// still sets a timer.
    #[test]
    fn repeated_cancellations_set_one_kill_timer() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let mut set = rt.join_set::<()>();
        set.spawn(async |_: Context| std::future::pending::<()>().await);
        for _ in 0..10 {
            set.cancel_all("test", Duration::from_secs(3_600));
        }
        assert_eq!(rt.shared().timers.len(), 1);
        set.cancel_all("test", Duration::from_millis(1));
        assert_eq!(rt.shared().timers.len(), 2);
        assert!(matches!(rt.block_on(set.join_next()), Some(Err(Exit::Killed))));
    }

    /// The timer that kills a process holds a reference to this process. Therefore the exit of the process must remove
    /// the timer.
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

    /// At the deadline of a cancel request, the runtime kills a process that ignores the request.
    #[test]
    fn a_cancelled_process_is_killed_at_the_deadline() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let handle = rt.spawn(async |ctx: Context| ctx.sleep(Duration::from_secs(3_600)).await);
        rt.block_on(handle.started()).unwrap();
        rt.cancel(handle.pid(), Reason::from("test"), Duration::from_millis(1)).unwrap();
        assert!(matches!(rt.block_on(handle), Err(Exit::Killed)));
    }
}
