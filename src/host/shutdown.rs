//! Shutdown of a runtime. This module changes the phase of the runtime, and cancels and kills the processes in order.
//!
//! A shutdown first cancels the top-level supervisors. When the top-level supervisors have exited, the shutdown cancels
//! the other processes. At the deadline, the shutdown kills the processes that have not exited. The future [`Shutdown`]
//! waits for the end of the shutdown. This module does not stop the worker threads.

pub(crate) mod report;

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures::future::FusedFuture;

use crate::host::control::{AnyControl, Head, Listening, flag, poll_news};
use crate::host::shared::Shared;
use crate::host::shutdown::report::{ShutdownReport, UnfinishedProcess};
use crate::host::timer::Fire;
use crate::host::timer::alarm::{self, Alarm};
use crate::host::{Host, Phase};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::platform::sync::atomic::Ordering;
use crate::process::catch::{delay_wakers, drop_caught, notify};
use crate::process::exit::Reason;
use crate::process::state::Ref;

/// Time for which a shutdown waits after the deadline. During this time, the workers finish short steps, and the killed
/// processes exit. If a killed process has exited when this time ends, the shutdown waits for this time once more.
/// Without this time, the shutdown could not distinguish a short step from a step that never returns.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_millis(10);

impl Host {
    /// Shuts the runtime down in an orderly way. The shutdown begins with this call. The runtime refuses new work from
    /// outside and cancels every process. During the shutdown, processes may still perform commands to clean up. The
    /// runtime keeps running until the last process has exited, or until the time `within` has passed. Then the runtime
    /// kills the processes that have not exited, and refuses all work. With `Duration::MAX`, the shutdown waits without
    /// a limit.
    ///
    /// The returned future resolves to a report that lists the killed processes. The future resolves when all processes
    /// have exited. At the deadline, the runtime kills the remaining processes. The future then resolves when the
    /// killed processes have exited, or when no killed process has exited for 10 ms. If the future is dropped, the
    /// runtime still kills the remaining processes at the deadline.
    ///
    /// Any thread can call `shutdown`, and a process can call `shutdown` in a step. The shutdown also cancels the
    /// calling process. Therefore the calling process should drop the future and return. If the calling process awaits
    /// the future instead, the shutdown kills this process at the deadline.
    ///
    /// When the future resolves, all processes have exited, with three exceptions. The first exception is a process
    /// whose step does not return. The second exception is a killed process that waits for a worker, because each
    /// worker is in a step that does not return. The third exception is a killed process that no thread runs. Either
    /// the process belongs to a [`LocalSet`](crate::LocalSet) whose owner does not run the set, or the runtime has no
    /// workers and no thread is inside [`Runtime::run`](crate::Runtime::run) or
    /// [`Runtime::block_on`](crate::Runtime::block_on). Without workers, call
    /// [`Runtime::shutdown`](crate::Runtime::shutdown), which runs the processes. The join handle, the links and the
    /// monitors of the last process may receive the exit shortly after the future resolves. A second call can make the
    /// deadline earlier, but not later. All callers get the same report. The shutdown does not stop the worker threads.
    /// Dropping the [`Runtime`](crate::Runtime) stops the worker threads. In a [`Simulation`](crate::Simulation) the
    /// deadline is a virtual time.
    ///
    /// ```
    /// # use procession::{Context, Exit, Host, Runtime};
    /// # use std::time::Duration;
    /// async fn stop_all(ctx: Context) {
    ///     drop(ctx.host().shutdown(Duration::from_secs(5)));
    /// }
    /// let rt = Runtime::new()?;
    /// let server = rt.spawn(async |mut ctx: Context| ctx.receive().await.map(drop));
    /// rt.spawn(stop_all);
    /// assert_eq!(rt.block_on(server).unwrap_err().to_string(), "cancelled: shutdown");
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    ///
    /// # Cancel safety
    /// The future is cancel safe: a later call of `shutdown` returns the same report.
    pub fn shutdown(&self, within: Duration) -> Shutdown {
        let deadline = self.now() + within;
        let is_earliest = self.begin_shutdown(deadline);
        if is_earliest && !self.is_shut_down() {
            // If the future is dropped, this timer ends the shutdown. The timer must not keep the state of the runtime
            // alive.
            let shared = Arc::downgrade(self.shared());
            let end = move || {
                if let Some(shared) = shared.upgrade() {
                    shared.end_shutdown(false);
                }
            };
            self.fire_at(deadline, Fire::Call(Box::new(end)));
        }
        // In virtual time, the future needs no alarm, because the timer in this function ends the shutdown and wakes
        // the future.
        let ring: Ring = if self.shared().clock.is_virtual() { |_, _| None } else { |at, w| Some(alarm::ring(at, w)) };
        Shutdown { ended: self.clone().ended_by(deadline, ring), report: None, is_over: false }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.shared().phase()
    }

    /// Advances the runtime to `phase`. Does nothing if the runtime is already in a later phase.
    pub(crate) fn advance(&self, phase: Phase) {
        self.shared().advance(phase);
    }

    /// Returns true if every spawned process is counted as exited. A process is counted as exited before its exit is
    /// complete. Therefore the last process may still be finishing its exit.
    #[inline]
    pub(crate) fn all_ended(&self) -> bool {
        self.shared().metrics.all_ended()
    }

    pub(crate) fn shutdown_deadline(&self) -> Instant {
        Instant::from_ns(self.shared().deadline.load(Ordering::SeqCst))
    }

    /// Returns the processes that have not exited.
    pub(crate) fn alive(&self) -> Vec<Ref<dyn AnyControl>> {
        self.shared().alive()
    }

    /// Returns the processes that have not exited, with the state of each process.
    pub(crate) fn left(&self) -> Vec<UnfinishedProcess> {
        unfinished(&self.shared().pid_table.all())
    }

    /// Begins a shutdown: refuses work from outside, and cancels the top-level supervisors. Each supervisor terminates
    /// its children in the order that the supervisor defines. When the last top-level supervisor has exited, the
    /// runtime cancels the other unsupervised processes.
    ///
    /// A second call can make the deadline earlier, but not later. Returns true if the deadline is earlier than the
    /// deadlines of all previous calls.
    pub(crate) fn begin_shutdown(&self, deadline: Instant) -> bool {
        let former = self.shared().deadline.fetch_min(deadline.ns(), Ordering::SeqCst);
        self.advance(Phase::Closing);
        self.cancel_all(|head| head.has(flag::TOP_LEVEL));
        // This function sets the phase, and then reads the number of top-level supervisors. An exiting top-level
        // supervisor first decrements this number, and then reads the phase. Therefore, if this function reads a number
        // above zero, the last top-level supervisor reads the new phase and calls `shut_down_rest`.
        if self.shared().top_level_supervisors.load(Ordering::SeqCst) == 0 {
            self.shut_down_rest();
        }
        let is_earlier = deadline.ns() < former;
        if is_earlier {
            // The future of an earlier call has set an alarm for the previous deadline. It is possible that no worker
            // fires the timer of the new deadline. Therefore this notification causes a poll of the earlier future, and
            // this poll sets an alarm for the new deadline.
            notify(&self.shared().emptied);
        }
        is_earlier
    }

    /// Returns a future that resolves to true when every process has exited. At the deadline, the future resolves to
    /// false. `ring` sets an alarm that calls a waker after a given time. The alarm must not depend on a worker.
    fn ended_by<A: Unpin, R: Fn(Duration, Waker) -> A + Unpin>(self, deadline: Instant, ring: R) -> AllEnded<A, R> {
        AllEnded { host: self, listening: Listening::default(), deadline, killed: None, ring, alarm: None }
    }

    /// Registers a top-level supervisor, which has no supervisor itself. Does nothing if the process is registered
    /// already. An upgraded process may make this call again, but the exit of the process ends only one registration.
    /// Only the process itself calls this function.
    pub(crate) fn register_top_level_supervisor(&self, supervisor: &dyn AnyControl) {
        if supervisor.head().has(flag::TOP_LEVEL) {
            return;
        }
        self.shared().top_level_supervisors.fetch_add(1, Ordering::SeqCst);
        supervisor.head().set(flag::TOP_LEVEL);
        // A shutdown may begin at the same time. `begin_shutdown` first sets the phase, and then searches for processes
        // with the flag `TOP_LEVEL`. This function first sets `TOP_LEVEL`, and then reads the phase. Therefore either
        // the shutdown finds this supervisor, or this function reads the new phase.
        if self.phase() != Phase::Open {
            supervisor.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    #[cold]
    pub(super) fn unregister_top_level_supervisor(&self) {
        if self.shared().top_level_supervisors.fetch_sub(1, Ordering::SeqCst) == 1 && self.phase() != Phase::Open {
            self.shut_down_rest();
        }
    }

    fn shut_down_rest(&self) {
        self.cancel_all(|head| !has_supervisor_here(head));
    }

    /// Cancels a process that was spawned during a shutdown. Does nothing if the shutdown will cancel the process
    /// later.
    pub(crate) fn cancel_late_spawn(&self, control: &Ref<dyn AnyControl>) {
        // The last top-level supervisor decrements the counter, and then searches the pid table for the other
        // processes. The caller has first added the process to the pid table. Therefore either the search of the
        // supervisor finds the process, or the load below reads 0.
        let trees_are_running = self.shared().top_level_supervisors.load(Ordering::SeqCst) != 0;
        if !trees_are_running && !has_supervisor_here(control.head()) {
            control.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
        }
    }

    fn cancel_all(&self, concerns: impl Fn(&Head) -> bool) {
        let alive = self.alive();
        delay_wakers(|| {
            for control in alive.iter().filter(|control| concerns(control.head())) {
                control.cancel(Reason::SHUTDOWN, self.shutdown_deadline());
            }
        });
    }

    /// Returns the report of the shutdown, if a shutdown has ended.
    pub(crate) fn shutdown_report(&self) -> Option<ShutdownReport> {
        self.shared().report.lock().clone()
    }

    /// Returns true if a shutdown has ended. The killed processes may not have exited yet.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shared().report.lock().is_some()
    }

    /// Refuses all work, and kills the processes that have not exited. Afterwards, the caller must run the queued tasks
    /// until no task is left.
    pub(crate) fn close_and_kill(&self) {
        self.shared().close_and_kill();
    }
}

impl Shared {
    #[inline]
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Open,
            1 => Phase::Closing,
            _ => Phase::Closed,
        }
    }

    fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    fn alive(&self) -> Vec<Ref<dyn AnyControl>> {
        let mut all = self.pid_table.all();
        all.retain(is_alive);
        all
    }

    fn close_and_kill(&self) {
        self.advance(Phase::Closed);
        self.pid_table.close();
        // If `kill` is called for a mailbox without a process, `kill` calls the waker of the mailbox's reader. A
        // foreign waker may block until a process has exited. Therefore the processes are killed before the mailboxes.
        let all = self.pid_table.all();
        let kill = |is_outside| {
            all.iter().filter(|control| control.head().is_outside() == is_outside).for_each(|control| control.kill());
        };
        delay_wakers(|| kill(false));
        kill(true);
        drop_each(all);
        // An attached receiver may be a host of another runtime, and the other runtime may hold a host of this runtime.
        // The drop of the receivers breaks this reference cycle.
        let nodes = mem::take(&mut *self.nodes.lock());
        nodes.into_values().for_each(|receiver| drop(drop_caught(receiver)));
        let wakers: Vec<Waker> = self.future_wakers.lock().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends a shutdown: refuses all work, kills the processes that have not exited, and returns the report. Only the
    /// first call creates the report. A later call would not find the killed processes, because the killed processes
    /// exit soon after the first call.
    fn end_shutdown(&self, all_ended: bool) -> ShutdownReport {
        let mut report = self.report.lock();
        if let Some(report) = &*report {
            return report.clone();
        }
        // Another thread may have begun a spawn before the shutdown, and may finish this spawn later. The report does
        // not list the spawned process, because the spawned process never ran.
        let all = if all_ended { Vec::new() } else { self.pid_table.all() };
        let left = unfinished(&all);
        let made = report.insert(ShutdownReport { left }).clone();
        drop(report);
        // The lock of the report is released before the kill, because a kill runs user code such as wakers.
        self.close_and_kill();
        notify(&self.emptied);
        drop_each(all);
        made
    }
}

/// Drops references to entries of the pid table. The caller holds no lock. The drop of the last reference to an entry
/// runs destructors of the user, so each panic is caught.
fn drop_each(all: Vec<Ref<dyn AnyControl>>) {
    all.into_iter().for_each(|control| drop(drop_caught(control)));
}

/// Returns whether an entry of the pid table is a process that has not exited.
fn is_alive(control: &Ref<dyn AnyControl>) -> bool {
    let head = control.head();
    !head.is_outside() && !head.has_ended()
}

/// Returns the processes that have not exited, with the state of each process.
fn unfinished(all: &[Ref<dyn AnyControl>]) -> Vec<UnfinishedProcess> {
    let row = |control: &Ref<dyn AnyControl>| {
        let head = control.head();
        UnfinishedProcess { pid: head.pid(), state: head.state(), outstanding: head.outstanding() }
    };
    all.iter().filter(|control| is_alive(control)).map(row).collect()
}

/// Function that sets an alarm. The alarm calls the waker when this duration has passed.
type Ring = fn(Duration, Waker) -> Option<Alarm>;

/// Future of [`Host::shutdown`]. The future resolves to the report of the shutdown.
///
/// # Cancel safety
/// The future is cancel safe: the shutdown continues after the future was dropped.
pub struct Shutdown {
    ended: AllEnded<Option<Alarm>, Ring>,
    /// The report of the shutdown. This field is set if the shutdown has killed processes.
    report: Option<ShutdownReport>,
    is_over: bool,
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("deadline", &self.ended.deadline).finish_non_exhaustive()
    }
}

impl Future for Shutdown {
    type Output = ShutdownReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ShutdownReport> {
        let this = &mut *self;
        loop {
            let all_ended = ready!(Pin::new(&mut this.ended).poll(cx));
            if let Some(report) = &this.report {
                this.is_over = true;
                return Poll::Ready(report.clone());
            }
            let report = this.ended.host.shared().end_shutdown(all_ended);
            if report.left.is_empty() {
                this.is_over = true;
                return Poll::Ready(report);
            }
            // The killed processes exit now. The documentation of `Host::shutdown` lists the exceptions.
            this.report = Some(report);
            this.ended.kills();
        }
    }
}

impl FusedFuture for Shutdown {
    fn is_terminated(&self) -> bool {
        self.is_over
    }
}

/// The future of [`Host::ended_by`].
struct AllEnded<A, R> {
    host: Host,
    listening: Listening,
    deadline: Instant,
    /// Number of killed processes that had not exited at the last check. The value is `None` until the future finds
    /// that the shutdown has killed processes. If the value is not `None`, the future waits for the exits of the killed
    /// processes.
    killed: Option<usize>,
    ring: R,
    alarm: Option<A>,
}

impl<A, R> AllEnded<A, R> {
    /// Makes the future wait for the exits of the killed processes. The wait ends if no killed process has exited for
    /// the time [`SHUTDOWN_GRACE`]. This time begins at the deadline, or at the first poll after the deadline.
    fn kills(&mut self) {
        self.deadline = self.host.now().max(self.deadline.min(self.host.shutdown_deadline())) + SHUTDOWN_GRACE;
        self.killed = Some(self.host.alive().len());
    }

    /// If a killed process has exited since the last check, extends the wait and returns true. Otherwise returns false.
    fn prolongs(&mut self, now: Instant) -> bool {
        let left = self.host.alive().len();
        let has_exited = self.killed.is_some_and(|before| left < before);
        if has_exited {
            self.killed = Some(left);
            self.deadline = now + SHUTDOWN_GRACE;
        }
        has_exited
    }
}

impl<A: Unpin, R: Fn(Duration, Waker) -> A + Unpin> Future for AllEnded<A, R> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let this = &mut *self;
        let host = &this.host;
        // A spawn may have been in progress when the shutdown began. The spawned process may already have a pid, but
        // may not be counted as spawned yet. The check of `alive` finds the spawned process. The later exit of the
        // spawned process notifies this future.
        let has_killed = this.killed.is_some();
        let ended = || {
            let is_over = !has_killed && host.shared().report.lock().is_some();
            (is_over || (host.all_ended() && host.alive().is_empty())).then_some(is_over)
        };
        if let Poll::Ready(is_over) = poll_news(&host.shared().emptied, &mut this.listening, cx, ended) {
            return Poll::Ready(!is_over);
        }
        // Another call of `begin_shutdown` may have set an earlier deadline.
        let mut deadline = if has_killed { this.deadline } else { this.deadline.min(host.shutdown_deadline()) };
        let now = host.now();
        if now >= deadline {
            if !this.prolongs(now) {
                return Poll::Ready(false);
            }
            deadline = this.deadline;
        }
        // Each poll sets a new alarm for the deadline, because the previous alarm may hold an outdated waker. The new
        // alarm replaces the previous alarm.
        this.alarm = Some((this.ring)(deadline - now, cx.waker().clone()));
        Poll::Pending
    }
}

/// Returns whether a supervisor or a pool of the same runtime stops this process during a shutdown. The parent of a
/// process is always a process of the same runtime. Therefore, if a supervised process has no parent, the supervisor of
/// this process belongs to another runtime, and does not take part in the shutdown.
fn has_supervisor_here(head: &Head) -> bool {
    head.has(flag::SUPERVISED) && head.parent().is_some()
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::platform::sync::Mutex;

    /// The clock of a simulation moves only when the test advances the clock.
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
        // The first poll is late, as if the call of `begin_shutdown` had taken 20 ms.
        assert!(poll_after(ms(20)).is_pending());
        // This poll happens before the deadline, as if the exit of a process had woken the future.
        assert!(poll_after(ms(29)).is_pending());
        host.begin_shutdown(deadline + ms(9));
        assert!(poll_after(ms(0)).is_pending());
        assert_eq!(poll_after(ms(1)), Poll::Ready(false));
        assert_eq!(*alarms.lock(), [ms(30), ms(1), ms(1)]);
        // The earlier deadline of two shutdowns applies.
        let mut later = Box::pin(host.ended_by(deadline + ms(9), |_, _| ()));
        assert_eq!(later.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(false));
    }

    /// Each exit of a killed process prolongs the wait of a shutdown.
    #[test]
    fn a_shutdown_waits_while_killed_processes_exit() {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let clock = host.shared().clock.clone();
        let [first, _last] = [(); 2].map(|()| host.spawn(async |_: crate::Context| std::future::pending::<()>().await));
        let deadline = host.now();
        host.begin_shutdown(deadline);
        let mut ended = Box::pin(host.clone().ended_by(deadline, |_, _| ()));
        ended.kills();
        let mut poll_after = |time| {
            clock.advance(time);
            ended.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        assert!(poll_after(SHUTDOWN_GRACE - Duration::from_nanos(1)).is_pending());
        host.kill(first.pid()).unwrap();
        assert!(simulation.run(first).is_err());
        assert!(poll_after(Duration::from_nanos(1)).is_pending());
        assert!(poll_after(SHUTDOWN_GRACE - Duration::from_nanos(1)).is_pending());
        assert_eq!(poll_after(Duration::from_nanos(1)), Poll::Ready(false));
    }

    /// A call of `shutdown` sets no timer if a previous call had the same deadline or an earlier deadline, or if the
    /// shutdown has ended.
    #[test]
    fn only_an_earlier_deadline_of_a_shutdown_sets_a_timer() {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let _lives = host.spawn(async |_: crate::Context| std::future::pending::<()>().await);
        let timers = || host.shared().timers.len();
        let second = Duration::from_secs(1);
        let before = timers();
        for (within, expected) in [(9, 1), (10, 1), (8, 2), (8, 2)] {
            drop(host.shutdown(second * within));
            assert_eq!(timers() - before, expected);
        }
        assert_eq!(simulation.run(host.shutdown(second)).left.len(), 1);
        let after = timers();
        drop(host.shutdown(Duration::ZERO));
        assert_eq!(timers(), after);
    }

    /// The future of the shutdown is polled for the first time long after the deadline.
    #[test]
    fn a_shutdown_that_is_polled_late_waits_for_the_killed_processes() {
        let mut simulation = Simulation::new(1);
        let host = simulation.host().clone();
        let killed = host.spawn(async |_: crate::Context| std::future::pending::<()>().await);
        let mut shutdown = host.shutdown(Duration::from_millis(50));
        host.shared().clock.advance(Duration::from_secs(1));
        // This poll kills the process. The process exits in its next turn.
        assert!(Pin::new(&mut shutdown).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(!killed.is_finished());
        let report = simulation.run(shutdown);
        assert_eq!(report.left.len(), 1);
        assert!(killed.is_finished() && host.alive().is_empty());
    }
}
