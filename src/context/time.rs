//! Sleeps and time limits on the clock of the runtime. A sleep sets a timer of `host::timer`, or reuses the timer of an
//! earlier sleep: see the module `reuse`.

pub(crate) mod deadline;
pub(crate) mod interval;
pub(crate) mod reuse;
pub(crate) mod send_after;

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

use crate::context::time::interval::Interval;
#[allow(unused_imports)]
use crate::context::time::reuse as spare;
use crate::context::time::reuse::SleepTimer;
use crate::host::control::Change;
use crate::host::refs::SleeperRef;
use crate::host::timer::Fire;
#[allow(unused_imports)]
use crate::host::timer::alarm;
use crate::host::timer::alarm::Alarm;
use crate::host::{Host, Phase};
use crate::platform::clock::{Instant, StdInstant};
use crate::platform::static_ref::Line;
use crate::process::catch as panic;
use crate::process::failure::Failure;
use crate::process::state::budget::BudgetPause;
use crate::process::state::current::Current;

/// Future that resolves at its deadline, and never earlier. If the future is dropped, the sleep is cancelled.
///
/// The duration of a sleep starts when the sleep is created. The timers tick once per millisecond, and a sleep ends at
/// the first tick at or after its deadline. A sleep with a duration of zero resolves at its first poll. In a process, a
/// sleep with a duration of zero takes one unit of the budget of the turn. If the budget is spent, the sleep first lets
/// other processes run. If the deadline is beyond the clock's range of 584 years, the sleep never resolves.
///
/// If the runtime has shut down, a sleep still resolves at its deadline. If the [`Simulation`](crate::Simulation) of a
/// sleep has ended, the sleep resolves immediately.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    sleeper: Sleeper,
    deadline: Instant,
    /// The timer that wakes this sleep. If an earlier sleep has set the timer, the timer may be due before the deadline
    /// of this sleep.
    timer: Option<SleepTimer>,
    /// True if the timer is an alarm of the alarm thread, which the whole program shares. A sleep uses the alarm thread
    /// if the timers of the runtime may never fire: after the runtime has shut down, or if the runtime has no workers.
    uses_alarm_thread: bool,
    over: bool,
    /// True if the duration of the sleep is longer than zero and the sleep was not polled yet.
    fresh: bool,
    /// True if the timer wakes the task of the process that owns this sleep.
    own: bool,
    /// True if the process counts this sleep as an external event for which the process waits.
    outstanding: bool,
    /// True if a reset has changed the deadline since the last poll, and the sleep has kept or moved its timer.
    moved: bool,
    /// Source line that created the sleep. Inspections show this line. The field takes 8 bytes.
    line: Line,
    /// Pause state of a sleep that ends without a wait. A sleep that ends without a wait takes a unit of the budget.
    pause: BudgetPause,
}

/// A sleep must be small, because an application may have a million sleeps.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Sleep>() == 64);

/// Owner of a sleep. The owner determines the clock.
pub(crate) enum Sleeper {
    Outside(Host),
    Process(SleeperRef),
}

impl Sleeper {
    fn host(&self) -> &Host {
        match self {
            Self::Outside(host) => host,
            Self::Process(control) => control.head().host(),
        }
    }

    /// Returns true if a sleep that is polled with `waker` may share timers with other sleeps of the same process. A
    /// sleep that shares timers may reuse the timer of an earlier sleep, and may keep its own timer for a later sleep.
    #[inline]
    fn passes_on(&self, waker: &Waker) -> bool {
        match self {
            Self::Outside(_) => false,
            Self::Process(process) => Current::with(|current| current.may_take_timer(process.address(), waker)),
        }
    }
}

impl Sleep {
    #[inline(always)]
    pub(crate) fn new(sleeper: Sleeper, deadline: Instant, line: Line) -> Self {
        Self {
            sleeper,
            deadline,
            timer: None,
            uses_alarm_thread: false,
            over: false,
            fresh: false,
            own: false,
            outstanding: false,
            moved: false,
            line,
            pause: BudgetPause::default(),
        }
    }

    /// Creates a sleep of the duration `time`, which starts at `now`.
    ///
    /// This function is inlined into its caller. Without the inlining, the caller would copy the returned `Sleep`. The
    /// loads of this copy would be wider than the stores that wrote the `Sleep`. The processor cannot forward stored
    /// bytes to a wider load, so the copy would be slow.
    #[inline(always)]
    pub(crate) fn for_time(sleeper: Sleeper, now: Instant, time: Duration, line: Line) -> Self {
        let mut sleep = Self::new(sleeper, now + time, line);
        sleep.fresh = !time.is_zero();
        sleep
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sets a new deadline. If the sleep has already ended, the sleep starts again, and ends at the new deadline. If a
    /// task waits for the sleep, the task is woken at the new deadline.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.over = false;
        self.fresh = false;
        if self.timer.is_some() && !self.may_keep_timer() {
            self.move_timer();
        }
        self.moved = self.timer.is_some();
    }

    /// Returns whether the timer of this sleep also fits the new deadline. If the sleep keeps the timer, the timer
    /// wakes the process at the old deadline, and the process then polls the sleep again. The timer must not have fired
    /// before this turn.
    fn may_keep_timer(&self) -> bool {
        let (Sleeper::Process(process), Some(timer)) = (&self.sleeper, &self.timer) else { return false };
        self.own
            && timer.due() <= self.deadline
            && Current::with(|current| {
                let is_in_step = current.may_keep(process.address());
                if is_in_step {
                    current.saw(self.now());
                }
                is_in_step && current.has_seen_before(timer.due())
            })
    }

    /// Moves the timer and its waker to the new deadline. If the timer has already fired, its waker was called or will
    /// be called soon. In this case, the sleep has no timer any more.
    #[cold]
    fn move_timer(&mut self) {
        let Some(timer) = self.timer.take() else { return };
        if self.uses_alarm_thread {
            let waker = Alarm::of(timer.key()).into_waker();
            self.uses_alarm_thread = waker.is_some();
            self.timer = waker.map(|waker| {
                let key = alarm::ring(self.deadline - self.now(), waker).into_key();
                SleepTimer::new(key, self.deadline)
            });
            return;
        }
        let host = self.sleeper.host();
        let Some(fire) = host.shared().timers.cancel(timer.key()) else {
            return count(&self.sleeper, &mut self.outstanding, false);
        };
        let key = host.fire_at(self.deadline, fire);
        // The runtime may have cleared its timers before this timer was set. In this case, this timer never fires.
        if is_closed(host)
            && let Some(Fire::Wake(waker, _)) = host.shared().timers.cancel(key)
        {
            panic::wake(waker);
        }
        self.timer = Some(SleepTimer::new(key, self.deadline));
    }

    pub(crate) fn now(&self) -> Instant {
        self.sleeper.host().now()
    }

    /// Leaves the timer of this sleep for the next sleep of the process. Returns false if this sleep has no timer, or
    /// if the thread cannot keep the timer for the process.
    #[inline]
    fn passes_timer(&self) -> bool {
        match (&self.sleeper, &self.timer) {
            (Sleeper::Process(process), Some(timer)) => self.own && spare::keep(process, timer),
            _ => false,
        }
    }

    #[cold]
    fn cancel(&mut self) {
        count(&self.sleeper, &mut self.outstanding, false);
        let Some(timer) = self.timer.take() else { return };
        if std::mem::take(&mut self.uses_alarm_thread) {
            drop(Alarm::of(timer.key()));
        } else {
            self.sleeper.host().shared().timers.settle(timer.key(), timer.due());
        }
    }

    /// Takes over the timer that an earlier sleep has left. Returns false if no earlier sleep has left a timer, or if
    /// the timer is due after the deadline of this sleep. Also returns false if the timer may have fired before this
    /// turn.
    #[inline]
    fn take_over(&mut self) -> bool {
        let Sleeper::Process(process) = &self.sleeper else { return false };
        let Some(timer) = spare::take(process, self.deadline) else { return false };
        self.timer = Some(timer);
        self.own = true;
        // The process still counts the earlier sleep as an external event. This sleep takes over the count.
        self.outstanding = true;
        true
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The clock is not read here, because the deadline of a new sleep usually has not passed yet. If the deadline
        // has passed before the timer is set, the timer fires immediately.
        if self.fresh && self.sleeper.passes_on(cx.waker()) && self.take_over() {
            self.fresh = false;
            return Poll::Pending;
        }
        self.poll_timer(cx)
    }
}

impl Sleep {
    /// Polls the sleep like [`poll`](Future::poll), but does not pause if the budget is spent.
    pub(crate) fn poll_without_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.pause.skip();
        Pin::new(self).poll(cx)
    }

    #[inline(never)]
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.over {
            return Poll::Pending;
        }
        let own = self.sleeper.passes_on(cx.waker());
        if !std::mem::take(&mut self.fresh) {
            let now = self.now();
            if now >= self.deadline {
                // If the sleep has a timer, and was not reset since the last poll, the sleep has already waited. A
                // sleep that has already waited needs no pause. Any other sleep takes a unit of the budget. Suppose
                // that a body only awaits sleeps, and that the deadlines of these sleeps have already passed. Without
                // the budget, the turn of this body would never end.
                if (self.timer.is_none() || self.moved) && self.pause.spend(cx).is_pending() {
                    return Poll::Pending;
                }
                self.cancel();
                self.over = true;
                return Poll::Ready(());
            }
            self.moved = false;
            if own {
                Current::with(|current| current.saw(now));
            }
        }
        let is_set = own
            && match self.timer {
                // If this check returns true, the timer wakes this task, and has not fired before this turn. If the
                // timer has fired during this turn, its wake-up causes another turn.
                Some(timer) => self.own && Current::with(|current| current.has_seen_before(timer.due())),
                None => self.take_over(),
            };
        if is_set {
            // A shutdown of the runtime clears the timers, but also kills this process. A killed process is not polled
            // again, so this sleep needs no check for a shutdown.
            return Poll::Pending;
        }
        self.own = false;
        let host = self.sleeper.host();
        let has_shut_down = is_closed(host);
        if has_shut_down || has_no_timekeeper(host) {
            return self.poll_alarm(has_shut_down, cx);
        }
        if self.uses_alarm_thread {
            // The timer is an alarm that an earlier poll has set. An alarm is not a timer of the runtime.
            self.cancel();
        }
        let host = self.sleeper.host();
        if !self.timer.is_some_and(|timer| host.shared().timers.update(timer.key(), cx.waker())) {
            // The clone of a foreign waker may panic. Therefore the sleep is counted after the clone.
            let fire = Fire::Wake(cx.waker().clone(), self.line);
            count(&self.sleeper, &mut self.outstanding, true);
            let key = host.fire_at(self.deadline, fire);
            self.timer = Some(SleepTimer::new(key, self.deadline));
            if is_closed(host) {
                // The runtime has shut down, and may have cleared its timers before this timer was set. In this case,
                // this timer never fires. Therefore this line wakes the task, and the task polls the sleep again.
                cx.waker().wake_by_ref();
            }
        }
        self.own = own;
        Poll::Pending
    }

    /// Polls the sleep if the timers of the runtime may never fire. Sets an alarm of the alarm thread. If the runtime
    /// has shut down and its clock is virtual, ends the sleep instead.
    #[cold]
    fn poll_alarm(&mut self, has_shut_down: bool, cx: &mut Context<'_>) -> Poll<()> {
        self.cancel();
        if has_shut_down && self.sleeper.host().shared().clock.is_virtual() {
            // The virtual clock no longer advances, so the sleep would never reach its deadline.
            self.over = true;
            return Poll::Ready(());
        }
        let key = alarm::ring(self.deadline - self.now(), cx.waker().clone()).into_key();
        self.timer = Some(SleepTimer::new(key, self.deadline));
        self.uses_alarm_thread = true;
        Poll::Pending
    }
}

/// Returns true if the runtime has shut down, and its timers may never fire. A simulation fires its timers until the
/// simulation is dropped, even after a shutdown.
fn is_closed(host: &Host) -> bool {
    host.phase() == Phase::Closed && !host.shared().clock.is_simulated()
}

/// Returns true if the runtime has no worker, and this thread is not a guest thread of the runtime. In this case, the
/// timers of the runtime may never fire.
fn has_no_timekeeper(host: &Host) -> bool {
    let shared = host.shared();
    shared.metrics.worker().is_none() && !(shared.has_workers)()
}

/// Sets whether the process counts a sleep as an external event for which the process waits. `is_counted` is the field
/// [`outstanding`](Sleep::outstanding) of the sleep. This function updates the field.
fn count(sleeper: &Sleeper, is_counted: &mut bool, outstanding: bool) {
    if let Sleeper::Process(control) = sleeper
        && outstanding != *is_counted
    {
        *is_counted = outstanding;
        control.wait_for(if outstanding { Change::More } else { Change::Less });
    }
}

impl FusedFuture for Sleep {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl Drop for Sleep {
    #[inline]
    fn drop(&mut self) {
        if !self.passes_timer() && self.timer.is_some() {
            self.cancel();
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

pin_project! {
    /// Future with a time limit. [`SelfHandle::timeout`](crate::SelfHandle::timeout) returns this future.
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
        // Whether the sleep is over.
        is_late: bool,
        pause: BudgetPause,
    }
}

impl<F> Timeout<F> {
    pub(crate) fn new(future: F, sleep: Sleep) -> Self {
        Self { future, sleep, is_late: false, pause: BudgetPause::default() }
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The future is polled before the timer. A late poll may find that both the future and the timer are ready. In
        // this case, the output of the future is returned.
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if !*this.is_late {
            ready!(Pin::new(this.sleep).poll(cx));
            *this.is_late = true;
        }
        // If the budget of the turn is spent, the future may have paused although its result is ready. In this case,
        // the future is polled once more in the next turn.
        this.pause.spend(cx).map(|_| Err(Failure::TimedOut))
    }
}

impl Host {
    /// Converts an instant of the runtime's clock to an instant of the standard library. For example, a program can use
    /// the result as a deadline in tokio.
    ///
    /// [`instant_from_std`](Self::instant_from_std) converts the result back to the same instant. On Linux, the result
    /// may be slightly too early. The error is at most the duration of two clock readings, usually less than 100 ns. On
    /// other systems, the result is exact. Returns `None` if `at` is the largest instant, which means *never*, or if
    /// the standard library cannot represent `at`. Also returns `None` in a [`Simulation`](crate::Simulation), because
    /// a virtual clock has no relation to real time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// let rt = procession::Runtime::builder().workers(0).build()?;
    /// let deadline = rt.now() + Duration::from_secs(1);
    /// let std = rt.instant_to_std(deadline).expect("a real clock");
    /// assert!(std > std::time::Instant::now());
    /// assert_eq!(rt.instant_from_std(std), Some(deadline));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn instant_to_std(&self, at: Instant) -> Option<StdInstant> {
        self.shared().timers.clock().to_std(at)
    }

    /// Converts an instant of the standard library to an instant of the runtime's clock.
    /// [`instant_to_std`](Self::instant_to_std) is the inverse conversion.
    ///
    /// If `at` is before the start of the runtime, the result is the start of the runtime. Returns `None` in a
    /// [`Simulation`](crate::Simulation).
    pub fn instant_from_std(&self, at: StdInstant) -> Option<Instant> {
        self.shared().timers.clock().instant_of_std(at)
    }

    /// Returns a future that resolves when the duration `time` has passed. The duration starts when this method is
    /// called. A process, a thread, or a task of an executor outside the runtime can await this future.
    ///
    /// The workers and the guest threads of the runtime fire its timers. If the runtime has no workers, a sleep on any
    /// other thread uses the alarm thread of the program. If the number of workers is later
    /// [set](crate::Runtime::set_workers) to 0, a sleep that already waits does not change to the alarm thread. The
    /// waiting sleep resolves only when the runtime has a worker or a guest thread again, or when the runtime is
    /// dropped.
    #[track_caller]
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::for_time(Sleeper::Outside(self.clone()), self.now(), time, Some(Location::caller()))
    }

    /// Returns a future that resolves at the time `at`: see [`sleep`](Self::sleep).
    #[track_caller]
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        Sleep::new(Sleeper::Outside(self.clone()), at, Some(Location::caller()))
    }

    /// Runs `future` with a time limit, as [`SelfHandle::timeout`](crate::SelfHandle::timeout) does. This method also
    /// works outside processes.
    ///
    /// ```
    /// # use procession::{Failure, Runtime};
    /// # use std::time::Duration;
    /// let rt = Runtime::new()?;
    /// let late = rt.block_on(rt.timeout(Duration::from_millis(1), std::future::pending::<()>()));
    /// assert!(matches!(late, Err(Failure::TimedOut)));
    /// # Ok::<(), procession::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::TimedOut`] if the time limit passes before `future` is ready.
    ///
    /// # Cancel safety
    /// The returned future is as cancel safe as `future`. After the time limit, `future` is dropped together with the
    /// returned future.
    #[track_caller]
    pub fn timeout<F: Future>(
        &self,
        time: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Failure>> + use<F> {
        Timeout::new(future, self.sleep(time))
    }

    /// Returns an interval that ticks once per period. The first tick is due one period after this call.
    ///
    /// # Panics
    /// Panics if the period is zero.
    #[track_caller]
    pub fn interval(&self, every: Duration) -> Interval {
        self.interval_at(self.now() + every, every)
    }

    /// Returns an interval that ticks once per period. The first tick is due at the time `first`. If this time has
    /// already passed, the first tick is due immediately.
    ///
    /// # Panics
    /// Panics if the period is zero.
    #[track_caller]
    pub fn interval_at(&self, first: Instant, every: Duration) -> Interval {
        assert!(!every.is_zero(), "the period of an interval is zero; pass a period longer than zero");
        Interval::new(self.sleep_until(first), every)
    }

    /// Returns a sleep that ends when a time limit expires. Inspections do not list this sleep as an event that a
    /// process waits for.
    pub(crate) fn limit(&self, time: Duration) -> Sleep {
        Sleep::for_time(Sleeper::Outside(self.clone()), self.now(), time, None)
    }
}
