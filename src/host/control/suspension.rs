//! Suspends and resumes single processes, for debugging.
//!
//! A suspended process takes no step. The flags of a process have no free bit for a further flag, and suspensions are
//! rare. Therefore the runtime keeps a set of the suspended processes. A suspended process also has the flag
//! `OBSERVED`, so each turn of a suspended process takes the slow path. On the slow path, the turn checks the set
//! before each step. A turn of a process without the flag `OBSERVED` has no additional cost.
//!
//! # Ordering
//! - `suspend` adds the process to the set, sets `OBSERVED`, ends the
//!   [period](crate::process::state::skipped_turn) in which workers skip turns, and then wakes the process. The wake-up
//!   causes one more turn. This turn sees all these changes, and enters the state `Suspended`. An earlier turn may end
//!   without a check of the set, because this turn has loaded the flags for its last step before `OBSERVED` was set, or
//!   because the trace skips this turn.
//! - `resume` removes the process from the set and then wakes the process. The wake-up happens before the next turn
//!   begins. Therefore the next turn sees the changed set and runs a step of the process. A wake-up that arrived
//!   during the suspension is not lost, because each resumed process runs a step.
//! - While a process is in the set, the flag `OBSERVED` of the process is set. `suspend` adds the process and sets the
//!   flag under the lock of the set. To clear the flag, a thread takes the same lock, checks the set, and clears the
//!   flag before it releases the lock. If a thread cleared the flag before the check, a turn between the clearing and
//!   the check would run a step of a suspended process.
//! - `resume` does not clear the flag if a trace selects the process. This check runs under the lock of the traces, so
//!   no trace begins or ends between the check and the clearing of the flag. A thread that takes both locks takes the
//!   lock of the traces first.

pub(crate) mod set;

use crate::host::Host;
use crate::host::control::{AnyControl, Head, flag};
use crate::host::inspection::process;
use crate::process::error::NoProcess;
use crate::process::pid::Pid;
use crate::process::state::Ref;

impl Host {
    /// Suspends a process, for debugging. After the end of the present step, the process takes no further step until
    /// [`resume`](Self::resume) is called. A call of `suspend` does not wait for the end of the present step. This
    /// function corresponds to `sys:suspend` of Erlang/OTP.
    ///
    /// Messages, answers and expired timers of a suspended process are stored until the process is resumed. The time
    /// limits of the process still expire. A process that waits for the suspended process continues to wait. A
    /// suspended process can be [killed](Self::kill). A [cancellation](Self::cancel) takes effect when the process is
    /// resumed. If the deadline of the cancellation passes before the process is resumed, the process is killed. A
    /// shutdown does not resume the process.
    ///
    /// A suspended process has the state [`Suspended`](crate::observe::ProcessState::Suspended). An event makes the
    /// process [`Ready`](crate::observe::ProcessState::Ready) for a moment, until a worker finds that the process is
    /// suspended. The suspension has no effect on futures or a [`Mailbox`](crate::Mailbox) that the process has moved
    /// to other threads.
    ///
    /// Suspensions do not nest: even after several calls of `suspend`, one call of `resume` resumes the process. A
    /// process can suspend itself.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if no process has the pid, for example if the pid belongs to a mailbox without a process.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// use procession::observe::ProcessState;
    ///
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let echo = rt.spawn(async |mut ctx: Context<u64>| ctx.receive().await);
    /// rt.suspend(echo.pid())?;
    /// echo.address().send(7)?;
    /// # rt.block_on(rt.spawn(async |ctx: Context| ctx.yield_now().await))?;
    /// assert_eq!(rt.process_details(echo.pid()).unwrap().info.state, Some(ProcessState::Suspended));
    /// rt.resume(echo.pid())?;
    /// assert_eq!(rt.block_on(echo)?, 7);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn suspend(&self, pid: Pid) -> Result<(), NoProcess> {
        let (control, _) = self.suspendable(pid)?;
        let suspended = &self.shared().suspended;
        let observe = || {
            control.head().set(flag::OBSERVED);
            // A worker may skip turns without a check of the set until this period ends.
            self.shared().metrics.recorder().period().end();
        };
        if suspended.insert(pid, observe) {
            // If the process has exited in the meantime, the exit may have searched the set before the insertion.
            // Therefore this call removes the pid from the set.
            if self.shared().pid_table.get(pid).is_none() {
                suspended.remove(|| pid);
                return Err(NoProcess(pid));
            }
            control.wake();
        }
        Ok(())
    }

    /// Resumes a [suspended](Self::suspend) process. Does nothing if the process is not suspended.
    ///
    /// This call makes a worker run one step of the process. In this step, the process finds all events that have
    /// arrived since the suspension, in the order of their arrival.
    ///
    /// # Errors
    /// Returns [`NoProcess`] if no process has the pid.
    pub fn resume(&self, pid: Pid) -> Result<(), NoProcess> {
        let (control, type_name) = self.suspendable(pid)?;
        let shared = self.shared();
        if shared.suspended.remove(|| pid) {
            if !shared.observes_all() {
                let recorder = shared.metrics.recorder();
                recorder.between_sessions(|| {
                    if !recorder.selects(pid.word(), type_name) {
                        self.end_observation(control.head());
                    }
                });
            }
            control.wake();
        }
        Ok(())
    }

    /// Clears `OBSERVED` of a process, unless the process is suspended. The caller ensures that no observer and no
    /// trace selects the process. The caller has checked that the runtime does not [observe all
    /// processes](Shared::observes_all).
    pub(crate) fn end_observation(&self, head: &Head) {
        self.shared().suspended.unless_suspended(head.pid(), || head.unset(flag::OBSERVED));
    }

    /// Returns the control block of a process, and the name of the process's type.
    fn suspendable(&self, pid: Pid) -> Result<(Ref<dyn AnyControl>, &'static str), NoProcess> {
        let control = self.shared().pid_table.get(pid).ok_or(NoProcess(pid))?;
        let type_name = process(&control).map(|(_, type_name)| type_name).ok_or(NoProcess(pid))?;
        Ok((control, type_name))
    }
}
