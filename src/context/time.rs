//! Sleeps and timeouts on the runtime's clock. A sleep sets a timer in `host::timer`, or reuses the timer of an earlier
//! sleep (`reuse`).

pub(crate) mod deadline;
pub(crate) mod interval;
pub(crate) mod reuse;
pub(crate) mod send_after;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

#[allow(unused_imports)]
use crate::context::time::reuse as spare;
use crate::context::time::reuse::Timer;
use crate::host::control::Change;
use crate::host::refs::ProcessRef;
use crate::host::timer::Fire;
#[allow(unused_imports)]
use crate::host::timer::alarm;
use crate::host::timer::alarm::Alarm;
use crate::host::{Host, Phase};
use crate::platform::clock::{Instant, StdInstant};
use crate::process::failure::Failure;
use crate::process::state::current::Current;

/// Future that resolves at its deadline, and never earlier. Dropping the future cancels the sleep.
///
/// The duration of a sleep begins when the sleep is created. The timers tick once per millisecond. A sleep ends at the
/// first tick that is at or after its deadline. A sleep with a duration of zero resolves at its first poll. If the
/// deadline is beyond the clock's range of 584 years, the sleep never resolves. If the runtime of the sleep has shut
/// down, the sleep still resolves at its deadline. If the [`Simulation`](crate::Simulation) of the sleep has ended, the
/// sleep resolves immediately.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    sleeper: Sleeper,
    deadline: Instant,
    /// The timer of this sleep. If an earlier sleep has set the timer, the timer may be due before the deadline of this
    /// sleep.
    timer: Option<Timer>,
    /// True if the timer is an alarm of the program's alarm thread. The sleep uses this thread after the runtime has
    /// shut down, because the timers of the runtime no longer fire.
    rings: bool,
    over: bool,
    /// True if the duration of the sleep is above zero and the sleep was not polled yet.
    fresh: bool,
    /// True if the timer wakes the task of the sleeping process.
    own: bool,
    /// True if the process counts this sleep as an external event that it waits for.
    outstanding: bool,
}

/// The size matters because an application may have a million sleeps.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Sleep>() == 56);

/// Owner of a sleep. The owner determines the clock.
pub(crate) enum Sleeper {
    Outside(Host),
    Process(ProcessRef),
}

impl Sleeper {
    fn host(&self) -> &Host {
        match self {
            Self::Outside(host) => host,
            Self::Process(control) => control.head().host(),
        }
    }

    /// Returns whether a sleep that is polled with this waker may reuse timers. Such a sleep may reuse the timer of an
    /// earlier sleep, and may leave its own timer behind for a later sleep.
    #[inline]
    fn passes_on(&self, waker: &Waker) -> bool {
        match self {
            Self::Outside(_) => false,
            Self::Process(home) => Current::with(|current| current.may_take_timer(home.address(), waker)),
        }
    }
}

impl Sleep {
    #[inline(always)]
    pub(crate) fn new(sleeper: Sleeper, deadline: Instant) -> Self {
        Self { sleeper, deadline, timer: None, rings: false, over: false, fresh: false, own: false, outstanding: false }
    }

    /// Creates a sleep of this duration, counted from `now`. The function is inlined into the caller. Without inlining,
    /// the returned `Sleep` would be copied with wider loads than the stores that wrote the `Sleep`. The processor
    /// cannot forward stored bytes to a wider load, so the copy would be slow.
    #[inline(always)]
    pub(crate) fn for_time(sleeper: Sleeper, now: Instant, time: Duration) -> Self {
        let mut sleep = Self::new(sleeper, now + time);
        sleep.fresh = !time.is_zero();
        sleep
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sets another deadline. If the sleep has already ended, the sleep starts again and ends at the new deadline.
    pub fn reset(&mut self, deadline: Instant) {
        self.stop();
        self.deadline = deadline;
        self.over = false;
        self.fresh = false;
    }

    pub(crate) fn now(&self) -> Instant {
        self.sleeper.host().now()
    }

    fn stop(&mut self) {
        if self.passes_timer() {
            self.outstanding = false;
        } else {
            self.cancel();
        }
        self.timer = None;
    }

    /// If this sleep has a timer and the process may keep the timer, leaves the timer behind for the next sleep of the
    /// process. Returns true if the timer was left behind.
    #[inline]
    fn passes_timer(&self) -> bool {
        match (&self.sleeper, &self.timer) {
            (Sleeper::Process(home), Some(timer)) => self.own && spare::keep(home, timer),
            _ => false,
        }
    }

    #[cold]
    fn cancel(&mut self) {
        self.count(false);
        let Some(timer) = self.timer.take() else { return };
        if std::mem::take(&mut self.rings) {
            drop(Alarm::of(timer.key()));
        } else {
            self.sleeper.host().shared().timers.settle(timer.key(), timer.due());
        }
    }

    /// Takes over the kept timer of an earlier sleep. The timer must be due at or before the deadline of this sleep.
    /// Returns true if this sleep now uses the timer of an earlier sleep.
    #[inline]
    fn take_over(&mut self) -> bool {
        let Sleeper::Process(home) = &self.sleeper else { return false };
        let Some(timer) = spare::take(home, self.deadline) else { return false };
        self.timer = Some(timer);
        self.own = true;
        // The process has counted the earlier sleep as an external event. From here on, this count belongs to the
        // present sleep.
        self.outstanding = true;
        true
    }

    /// If `outstanding` is true, the process counts this sleep as an external event that the process waits for. If
    /// `outstanding` is false, the process stops counting this sleep.
    fn count(&mut self, outstanding: bool) {
        if let Sleeper::Process(control) = &self.sleeper
            && outstanding != self.outstanding
        {
            self.outstanding = outstanding;
            control.wait_for(if outstanding { Change::More } else { Change::Less });
        }
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The deadline of a new sleep has not passed yet, so the clock is not read. If the deadline passes before the
        // timer is set, the timer fires immediately.
        if self.fresh && self.sleeper.passes_on(cx.waker()) && self.take_over() {
            self.fresh = false;
            return Poll::Pending;
        }
        self.poll_timer(cx)
    }
}

impl Sleep {
    #[inline(never)]
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.over {
            return Poll::Pending;
        }
        let own = self.sleeper.passes_on(cx.waker());
        if !std::mem::take(&mut self.fresh) {
            let now = self.now();
            if now >= self.deadline {
                self.cancel();
                self.over = true;
                return Poll::Ready(());
            }
            if own {
                Current::with(|current| current.saw(now));
            }
        }
        let is_set = own
            && match self.timer {
                // The timer wakes this task. If the timer has already fired, it has fired during this turn, and then
                // causes another turn.
                Some(timer) => self.own && Current::with(|current| current.has_seen_before(timer.due())),
                None => self.take_over(),
            };
        if is_set {
            // If a shutdown of the runtime has cleared the timers, the shutdown has also killed this process. Therefore
            // this process is not polled again.
            return Poll::Pending;
        }
        self.own = false;
        if self.sleeper.host().phase() == Phase::Closed {
            self.cancel();
            if self.sleeper.host().shared().clock.is_virtual() {
                // The virtual clock no longer advances, so the sleep would wait forever.
                self.over = true;
                return Poll::Ready(());
            }
            let key = alarm::ring(self.deadline - self.now(), cx.waker().clone()).into_key();
            self.timer = Some(Timer::new(key, self.deadline));
            self.rings = true;
            return Poll::Pending;
        }
        let timers = &self.sleeper.host().shared().timers;
        if !self.timer.is_some_and(|timer| timers.update(timer.key(), cx.waker())) {
            self.count(true);
            let host = self.sleeper.host();
            let key = host.fire_at(self.deadline, Fire::Wake(cx.waker().clone()));
            self.timer = Some(Timer::new(key, self.deadline));
            if host.phase() == Phase::Closed {
                // A shutdown may have cleared the timers before this timer was set. Therefore this line wakes the task,
                // so that the task polls the sleep again.
                cx.waker().wake_by_ref();
            }
        }
        self.own = own;
        Poll::Pending
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
    /// Future with a time limit: see [`SelfHandle::timeout`](crate::SelfHandle::timeout).
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
    pub(crate) fn new(future: F, sleep: Sleep) -> Self {
        Self { future, sleep }
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // The future is polled before the timer. If both are ready because of a late poll, the output is not lost.
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Failure::TimedOut))
    }
}

impl Host {
    /// Converts an instant of this runtime's clock to an instant of the standard library. For example, a program can
    /// pass the result to tokio as a deadline.
    ///
    /// The conversion back gives the same instant. The two clocks differ by at most the time of one clock reading,
    /// about 50 ns. Returns `None` if `at` means *never*. The method also returns `None` in a
    /// [`Simulation`](crate::Simulation), because its virtual clock has no relation to real time.
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

    /// Converts an instant of the standard library to an instant of this runtime's clock: see
    /// [`instant_to_std`](Self::instant_to_std).
    ///
    /// An instant before the start of the runtime is converted to the start of the runtime. Returns `None` in a
    /// [`Simulation`](crate::Simulation).
    pub fn instant_from_std(&self, at: StdInstant) -> Option<Instant> {
        self.shared().timers.clock().instant_of_std(at)
    }

    /// Returns a sleep on the runtime's clock. The sleep can be awaited in a process, in a thread or in another
    /// executor. The time begins when this method is called.
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::for_time(Sleeper::Outside(self.clone()), self.now(), time)
    }
}
