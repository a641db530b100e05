//! Waiting: sleeps and timeouts on the runtime's clock.

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
use crate::platform::clock::Instant;
use crate::process::failure::Failure;
use crate::process::state::current::Current;

/// Resolves when its time has come, never before; dropped, it is cancelled.
///
/// The time runs from the moment it was made, and is told in ticks of a millisecond: a sleep ends at the first tick that is
/// not before its time. A duration of zero is over at once; one that ends beyond the clock's 584 years never is. Where its
/// runtime was dropped it sleeps on; the time of a [`Simulation`](crate::Simulation) ends with it, and all sleeps do.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    sleeper: Sleeper,
    deadline: Instant,
    /// Due at the deadline, or before if it was another's.
    timer: Option<Timer>,
    /// The timer is that of an alarm: the runtime has shut down, and nobody looks at its own.
    rings: bool,
    over: bool,
    /// It was made for some time from now, and not polled yet.
    fresh: bool,
    /// Its timer wakes the task of its process.
    own: bool,
    /// The process counts it among what it waits for.
    outstanding: bool,
}

/// A million of them are held at once.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Sleep>() == 56);

/// Who sleeps, and so on which clock.
pub(crate) enum Sleeper {
    Anybody(Host),
    Process(ProcessRef),
}

impl Sleeper {
    fn host(&self) -> &Host {
        match self {
            Self::Anybody(host) => host,
            Self::Process(control) => control.head().host(),
        }
    }

    /// Whether the timers of its sleeps are passed on.
    #[inline]
    fn passes_on(&self, waker: &Waker) -> bool {
        match self {
            Self::Anybody(_) => false,
            Self::Process(home) => Current::with(|current| current.may_take_timer(home.address(), waker)),
        }
    }
}

impl Sleep {
    #[inline(always)]
    pub(crate) fn new(sleeper: Sleeper, deadline: Instant) -> Self {
        Self { sleeper, deadline, timer: None, rings: false, over: false, fresh: false, own: false, outstanding: false }
    }

    /// For so long, from now. A part of the sleeper's code: what it returns would be moved in larger pieces than it was
    /// written in, and waited for.
    #[inline(always)]
    pub(crate) fn for_time(sleeper: Sleeper, now: Instant, time: Duration) -> Self {
        let mut sleep = Self::new(sleeper, now + time);
        sleep.fresh = !time.is_zero();
        sleep
    }

    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Has it end at another moment instead, also when it was over.
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

    /// Leaves its timer to the next sleep, if it has one and may.
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

    /// Has the timer of the sleep before it, if that will do.
    #[inline]
    fn take_over(&mut self) -> bool {
        let Sleeper::Process(home) = &self.sleeper else { return false };
        let Some(timer) = spare::take(home, self.deadline) else { return false };
        self.timer = Some(timer);
        self.own = true;
        // The one before it was, and still is.
        self.outstanding = true;
        true
    }

    /// Has its process count it among what it waits for, or no longer.
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
        // One that has just begun is not over, and needs no look at the clock; if it is after all its timer fires at once.
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
                // It wakes this very task, and has not fired, or has since this turn began.
                Some(timer) => self.own && Current::with(|current| current.has_seen_before(timer.due())),
                None => self.take_over(),
            };
        if is_set {
            // If the runtime has shut down, its timers may be cleared: but then this process is condemned, and polled no more.
            return Poll::Pending;
        }
        self.own = false;
        if self.sleeper.host().phase() == Phase::Closed {
            self.cancel();
            if self.sleeper.host().shared().clock.is_virtual() {
                // Nobody moves it any more: whoever waited would for ever.
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
                // The timers may have been cleared just before: it looks again, and is not forgotten.
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
    /// A future with a time limit: see [`Me::timeout`](crate::Me::timeout).
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
        // The future first: what is there in time is not thrown away because the clock was looked at late.
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Failure::TimedOut))
    }
}

impl Host {
    /// Sleeps on the runtime's clock, wherever it is awaited.
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::for_time(Sleeper::Anybody(self.clone()), self.now(), time)
    }
}
