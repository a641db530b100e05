//! Timers for hyper that use the clock of the runtime.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use procession::SelfHandle;

/// Creates timers for the process of a connection.
pub(crate) struct ProcessTimer(pub(crate) SelfHandle);

struct ProcessSleep(procession::future::Sleep);

impl Future for ProcessSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Sleep for ProcessSleep {}

impl Timer for ProcessTimer {
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(ProcessSleep(self.0.sleep(time)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}
