//! Defines [`Interval`], which ticks periodically. An interval contains a `Sleep`, and resets this `Sleep` after each
//! tick.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::stream::FusedStream;

use crate::context::time::Sleep;
use crate::platform::clock::Instant;

/// Maximum delay of a tick. A tick with a longer delay counts as missed.
const TOLERANCE: Duration = Duration::from_millis(5);

/// Policy for missed ticks. A tick is missed if the tick becomes due while the program does not await the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// The interval returns all missed ticks immediately, in sequence. After the missed ticks, the interval follows the
    /// original schedule again. `Burst` is the default.
    #[default]
    Burst,
    /// The interval skips missed ticks. The next tick is due one period after the program has received the late tick.
    /// The runtime rounds the deadline of each timer up to a whole millisecond, so each tick of the interval may be
    /// slightly late. A tick that is late by at most 5 ms, and by at most one period, does not delay the next tick.
    Delay,
    /// The interval skips missed ticks. The next tick is due at the next time of the original schedule.
    Skip,
}

/// Interval that ticks once per period. [`SelfHandle::interval`](crate::SelfHandle::interval) returns an interval.
///
/// An interval is also a `Stream` of ticks. This stream never ends.
#[must_use = "an interval does nothing unless it is awaited"]
pub struct Interval {
    sleep: Sleep,
    every: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Creates an interval. The period must not be zero.
    pub(crate) fn new(first: Sleep, every: Duration) -> Self {
        Self { sleep: first, every, missed: MissedTickBehavior::default() }
    }

    /// Sets the policy for missed ticks. Default: [`MissedTickBehavior::Burst`].
    pub fn missed_tick_behavior(mut self, policy: MissedTickBehavior) -> Self {
        self.missed = policy;
        self
    }

    /// Waits for the next tick. Returns the time at which the tick was due.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the pending future is dropped, no tick is lost.
    pub async fn tick(&mut self) -> Instant {
        std::future::poll_fn(|cx| self.poll_tick(cx)).await
    }

    fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        // Late ticks are ready immediately. The sleep of a late tick takes a unit of the budget, so a body that awaits
        // only late ticks does not occupy the worker forever.
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        self.sleep.reset(next(due, self.sleep.now(), self.every, self.missed));
        Poll::Ready(due)
    }
}

/// Returns the time of the next tick. The previous tick was due at `due`, and the program received the previous tick at
/// `now`.
pub(crate) fn next(due: Instant, now: Instant, every: Duration, missed: MissedTickBehavior) -> Instant {
    match missed {
        MissedTickBehavior::Burst => due + every,
        MissedTickBehavior::Delay if now - due > TOLERANCE.min(every) => now + every,
        MissedTickBehavior::Delay => due + every,
        MissedTickBehavior::Skip => {
            let late = (now - due).as_nanos() % every.as_nanos();
            // `late` is the time that has passed since the last tick of the schedule. `rest` is the remaining time
            // until the next tick of the schedule.
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
    fn each_policy_for_missed_ticks_computes_the_next_tick() {
        let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
        let ms = Duration::from_millis;
        for (due, now, burst, delay, skip) in [
            (10, 10, 20, 20, 20),
            (10, 13, 20, 20, 20),
            (10, 15, 20, 20, 20),
            (10, 16, 20, 26, 20),
            (10, 20, 20, 30, 30),
            (10, 47, 20, 57, 50),
            (10, 9, 20, 20, 20),
        ] {
            let next = |policy| next(at(due), at(now), ms(10), policy);
            assert_eq!(
                (next(MissedTickBehavior::Burst), next(MissedTickBehavior::Delay), next(MissedTickBehavior::Skip)),
                (at(burst), at(delay), at(skip))
            );
        }
        // A period that is shorter than the tolerance.
        for (now, delay) in [(11, 12), (12, 12), (13, 15), (14, 16)] {
            assert_eq!(next(at(10), at(now), ms(2), MissedTickBehavior::Delay), at(delay));
        }
        assert_eq!(next(at(10), at(10), Duration::MAX, MissedTickBehavior::Skip), Instant::FAR);
    }
}
