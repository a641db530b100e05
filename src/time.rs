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

/// Keeps a process counted as waiting for something beside its yields.
#[derive(Debug)]
pub(crate) struct Outstanding(Arc<dyn AnyControl>);

impl Outstanding {
    pub(crate) fn new(control: Arc<dyn AnyControl>) -> Self {
        control.head().wait_for_one_more();
        Self(control)
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.head().wait_for_one_less();
    }
}

/// Resolves when its time has come, never before; dropped, it is cancelled.
///
/// The time runs from the moment it was made, and is told in ticks of a millisecond: a sleep ends at the first tick that is
/// not before its time. A duration of zero is over at once; one that ends beyond the clock's 584 years never is.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    host: Host,
    deadline: Instant,
    key: Option<Key>,
    /// Rings instead, once the runtime has shut down and nobody looks at its timers.
    alarm: Option<Alarm>,
    /// The process that sleeps, if it is one.
    process: Option<Arc<dyn AnyControl>>,
    outstanding: Option<Outstanding>,
    over: bool,
}

impl Sleep {
    pub(crate) fn new(host: Host, deadline: Instant, process: Option<Arc<dyn AnyControl>>) -> Self {
        Self { host, deadline, key: None, alarm: None, process, outstanding: None, over: false }
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
    }

    pub(crate) fn now(&self) -> Instant {
        self.host.now()
    }

    fn stop(&mut self) {
        self.outstanding = None;
        if let Some(key) = self.key.take() {
            drop(self.host.shared().timers.cancel(key));
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
        if this.host.now() >= this.deadline {
            this.stop();
            this.over = true;
            return Poll::Ready(());
        }
        if this.host.phase() == Phase::Closed {
            let rest = this.deadline.saturating_duration_since(this.host.now());
            this.alarm = Some(alarm::ring(rest, cx.waker().clone()));
            return Poll::Pending;
        }
        let armed = match this.key {
            Some(key) => this.host.shared().timers.update(key, cx.waker()),
            None => false,
        };
        if !armed {
            if this.outstanding.is_none() {
                this.outstanding = this.process.clone().map(Outstanding::new);
            }
            this.key = Some(this.host.fire_at(this.deadline, Fire::Wake(cx.waker().clone())));
            if this.host.phase() == Phase::Closed {
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
        Sleep::new(self.clone(), self.now() + time, None)
    }
}
