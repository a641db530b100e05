//! Waiting: sleeps and timeouts on the runtime's clock.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

pub(crate) mod alarm;
pub(crate) mod interval;
pub(crate) mod later;
pub(crate) mod timers;
pub(crate) mod wheel;

use self::alarm::Alarm;
use self::timers::{Fire, Key};
use crate::clock::Instant;
use crate::control::AnyControl;
use crate::host::{Host, Phase};
use crate::process::failure::Failure;
use crate::sync::Arc;

/// Resolves when its time has come, never before; dropped, it is cancelled.
///
/// The time runs from the moment it was made, and is told in ticks of a millisecond: a sleep ends at the first tick that is
/// not before its time. A duration of zero is over at once; one that ends beyond the clock's 584 years never is.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    sleeper: Sleeper,
    deadline: Instant,
    key: Option<Key>,
    /// Rings instead, once the runtime has shut down and nobody looks at its timers.
    alarm: Option<Box<Alarm>>,
    over: bool,
    /// It was made for some time from now, and not polled yet.
    fresh: bool,
    /// The process counts it among what it waits for.
    outstanding: bool,
}

/// Who sleeps, and so on which clock.
pub(crate) enum Sleeper {
    Anybody(Host),
    Process(Arc<dyn AnyControl>),
}

impl Sleeper {
    fn host(&self) -> &Host {
        match self {
            Self::Anybody(host) => host,
            Self::Process(control) => control.head().host(),
        }
    }
}

impl Sleep {
    pub(crate) fn new(sleeper: Sleeper, deadline: Instant) -> Self {
        Self { sleeper, deadline, key: None, alarm: None, over: false, fresh: false, outstanding: false }
    }

    /// For so long, from now.
    pub(crate) fn for_time(sleeper: Sleeper, time: Duration) -> Self {
        let deadline = sleeper.host().now() + time;
        let mut sleep = Self::new(sleeper, deadline);
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
        self.alarm = None;
        self.deadline = deadline;
        self.over = false;
        self.fresh = false;
    }

    pub(crate) fn now(&self) -> Instant {
        self.sleeper.host().now()
    }

    fn stop(&mut self) {
        self.count(false);
        if let Some(key) = self.key.take() {
            drop(self.sleeper.host().shared().timers.cancel(key));
        }
    }

    /// Has its process count it among what it waits for, or no longer.
    fn count(&mut self, outstanding: bool) {
        if let Sleeper::Process(control) = &self.sleeper
            && outstanding != self.outstanding
        {
            self.outstanding = outstanding;
            match outstanding {
                true => control.head().wait_for_one_more(),
                false => control.head().wait_for_one_less(),
            }
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.over {
            return Poll::Pending;
        }
        // One that has just begun is not over, and needs no look at the clock; if it is after all it fires at once.
        if !std::mem::take(&mut this.fresh) && this.now() >= this.deadline {
            this.stop();
            this.over = true;
            return Poll::Ready(());
        }
        if this.sleeper.host().phase() == Phase::Closed {
            this.alarm = Some(Box::new(alarm::ring(this.deadline - this.now(), cx.waker().clone())));
            return Poll::Pending;
        }
        let armed = match this.key {
            Some(key) => this.sleeper.host().shared().timers.update(key, cx.waker()),
            None => false,
        };
        if !armed {
            this.count(true);
            let host = this.sleeper.host();
            this.key = Some(host.fire_at(this.deadline, Fire::Wake(cx.waker().clone())));
            if host.phase() == Phase::Closed {
                // The timers may have been cleared just before: it looks again, and is not forgotten.
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl FusedFuture for Sleep {
    fn is_terminated(&self) -> bool {
        self.over
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.stop();
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
        Sleep::for_time(Sleeper::Anybody(self.clone()), time)
    }
}
