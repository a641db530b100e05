//! Ticks at equal distances.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;

use crate::context::time::Sleep;
use crate::platform::clock::Instant;

/// What becomes of ticks that nobody waited for in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missed {
    /// They come one right after the other, until it has caught up.
    #[default]
    Burst,
    /// They are lost, and the next one comes a whole period after the late one.
    Delay,
    /// They are lost, and the next one comes when it would have come anyway.
    Skip,
}

/// Ticks again and again, from one period after it was made: see [`Me::interval`](crate::Me::interval).
///
/// As a `Stream` it never ends.
#[must_use = "an interval does nothing unless it is awaited"]
pub struct Interval {
    sleep: Sleep,
    every: Duration,
    missed: Missed,
}

impl Interval {
    pub(crate) fn new(first: Sleep, every: Duration) -> Self {
        assert!(!every.is_zero(), "an interval needs a period longer than zero");
        Self { sleep: first, every, missed: Missed::default() }
    }

    /// What becomes of ticks that nobody waited for in time.
    pub fn missed(mut self, policy: Missed) -> Self {
        self.missed = policy;
        self
    }

    /// Resolves at the next tick, with the moment at which that was due.
    ///
    /// # Cancel safety
    /// Dropped, no tick is lost.
    pub async fn tick(&mut self) -> Instant {
        std::future::poll_fn(|cx| self.poll_tick(cx)).await
    }

    fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        std::task::ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        self.sleep.reset(next(due, self.sleep.now(), self.every, self.missed));
        Poll::Ready(due)
    }
}

/// When the tick after the one of `due` comes, which was seen at `now`.
pub(crate) fn next(due: Instant, now: Instant, every: Duration, missed: Missed) -> Instant {
    match missed {
        Missed::Burst => due + every,
        Missed::Delay => now + every,
        Missed::Skip => {
            let late = (now - due).as_nanos() % every.as_nanos();
            // Late by less than a period: the rest of it is still to come.
            let rest = every - Duration::from_nanos(u64::try_from(late).unwrap_or(u64::MAX));
            now.max(due) + rest
        }
    }
}

impl Stream for Interval {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.poll_tick(cx).map(Some)
    }
}

impl FusedStream for Interval {
    fn is_terminated(&self) -> bool {
        false
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval").field("every", &self.every).field("next", &self.sleep.deadline()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_tick_by_each_policy() {
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let ms = Duration::from_millis;
        for (due, now, burst, delay, skip) in [
            (10, 10, 20, 20, 20),
            (10, 13, 20, 23, 20),
            (10, 20, 20, 30, 30),
            (10, 47, 20, 57, 50),
            (10, 9, 20, 19, 20),
        ] {
            let next = |policy| next(at(due), at(now), ms(10), policy);
            assert_eq!(
                (next(Missed::Burst), next(Missed::Delay), next(Missed::Skip)),
                (at(burst), at(delay), at(skip))
            );
        }
        assert_eq!(next(at(10), at(10), Duration::MAX, Missed::Skip), Instant::FAR);
    }
}
