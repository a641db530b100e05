//! Futures that wait for the start, the cancellation or the exit of a process.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::platform::sync::{Event, EventListener};
use crate::process::catch::{Guard, delay_wakers};

/// State of a future that listens to an event.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    listener: Option<EventListener>,
    guard: Guard,
}

impl Listening {
    /// Returns whether the future waits for a notification. The result is false before the first poll.
    pub(crate) fn is_active(&self) -> bool {
        self.listener.is_some()
    }

    /// Drops the listener. If the listener was notified after the last poll of the listener, the drop of the listener
    /// notifies another listener.
    fn stop(&mut self) {
        if let Some(listener) = self.listener.take() {
            delay_wakers(|| drop(listener));
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Calls `check` until `check` returns a value. After each failed check, the calling future waits for the next
/// notification of `event`.
pub(crate) fn poll_news<T>(
    event: &Event,
    listening: &mut Listening,
    cx: &mut Context<'_>,
    mut check: impl FnMut() -> Option<T>,
) -> Poll<T> {
    loop {
        if let Some(found) = check() {
            listening.stop();
            return Poll::Ready(found);
        }
        match &mut listening.listener {
            // After the registration of the listener, the loop calls `check` once more. This second call sees a change
            // that happened between the first call and the registration.
            None => listening.listener = Some(event.listen()),
            Some(waiting) => {
                if listening.guard.over(cx, |cx| Pin::new(waiting).poll(cx)).is_pending() {
                    return Poll::Pending;
                }
                listening.listener = None;
            }
        }
    }
}
