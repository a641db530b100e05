//! Lists the timers of sleeps, for inspection. The list is read in pieces, so that the lock of a wheel is held only
//! briefly.

use std::panic::Location;
use std::task::Waker;

use crate::host::timer::{Fire, TICK, Timers};
use crate::platform::clock::Instant;

/// Maximum number of timers that are read under one lock operation.
const PIECE: usize = 256;

impl Timers {
    /// Calls `visit` for each timer of a sleep. The arguments are the waker, the time at which the timer fires, and the
    /// source line that created the sleep. This call may miss a timer that is set or fires during the call. `visit`
    /// runs under the lock of a wheel, and must neither clone nor drop the waker.
    pub(crate) fn visit_sleeps(&self, mut visit: impl FnMut(&Waker, Instant, &'static Location<'static>)) {
        for shard in &self.shards {
            let mut from = Some(0);
            while let Some(begin) = from {
                from = shard.wheel.lock().visit(begin, PIECE, |tick, fire| {
                    if let Fire::Wake(waker, Some(line)) = fire {
                        visit(waker, Instant::from_ns(tick.saturating_mul(TICK)), line);
                    }
                });
            }
        }
    }
}

#[cfg(all(test, not(any(procession_loom, procession_shuttle))))]
mod tests {
    use super::*;
    use crate::platform::clock::Clock;

    #[test]
    fn each_sleep_is_listed_once_with_its_line() {
        const SLEEPS: u64 = 3 * PIECE as u64 + 7;
        let (timers, line) = (Timers::new(Clock::virtual_(), 2), Location::caller());
        let at = |ms| Instant::from_ns(ms * TICK);
        let wake = |line| Fire::Wake(Waker::noop().clone(), line);
        let keys: Vec<_> =
            (0..SLEEPS).map(|ms| timers.insert(Some(ms as usize % 4), at(ms), wake(Some(line))).0).collect();
        timers.insert(None, at(5), wake(None));
        timers.insert(None, at(5), Fire::Call(Box::new(|| ())));
        let listed = || {
            let mut dues = Vec::new();
            timers.visit_sleeps(|_, due, from| {
                assert_eq!(from, line);
                dues.push(due);
            });
            dues.sort_unstable();
            dues
        };
        assert_eq!(listed(), (0..SLEEPS).map(at).collect::<Vec<_>>());
        assert!(keys.into_iter().step_by(2).all(|key| timers.cancel(key).is_some()));
        assert_eq!(listed(), (1..SLEEPS).step_by(2).map(at).collect::<Vec<_>>());
    }
}
