//! Messages that are sent when the time has come: once, or again and again. They belong to the process that asked for
//! them, and go with it.

use std::time::Duration;

use crate::context::time::interval::{Missed, next};
use crate::host::control::{AnyControl, Head};
pub use crate::host::timer::pending::TimerRef;
use crate::host::timer::pending::{begin, call_at, set};
use crate::host::{Destination, Target};
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::Refusal;
use crate::process::state::Ref;

/// A message that is sent again and again.
struct Repeat<N> {
    owner: Ref<dyn AnyControl>,
    timer: TimerRef,
    to: Destination<N>,
    message: Mutex<N>,
    every: Duration,
}

impl<N: Clone + Send + 'static> Repeat<N> {
    fn set(self, due: Instant) {
        let owner = self.owner.clone();
        set(&owner, self.timer, due, move || self.fire(due));
    }

    fn fire(mut self, due: Instant) {
        let pending = self.owner.head().pending();
        if !pending.is_there(self.timer) {
            return;
        }
        let host = self.owner.head().host();
        let sent = catch(|| self.message.get_mut().clone()).map(|message| host.send_by(&self.to.way(), message));
        let goes_on = match sent.map(|sent| sent.map_err(|refused| refused.refusal())) {
            Ok(Ok(()) | Err(Refusal::Full)) => true,
            // Whoever has the name next hears of it.
            Ok(Err(Refusal::NoProcess)) => matches!(self.to, Destination::Name(_)),
            _ => false,
        };
        if goes_on {
            let next = next(due, host.now(), self.every, Missed::Skip);
            self.set(next);
        } else {
            // Nobody is there any more, or the message can't be cloned.
            pending.end(self.timer);
        }
    }
}

/// Sends a message at a moment, unless the process has ended by then.
pub(crate) fn send_at<N: Send + 'static>(
    owner: &Ref<dyn AnyControl>,
    at: Instant,
    to: impl Target<N>,
    message: N,
) -> TimerRef {
    let (to, host) = (to.way().keep(), owner.head().host().clone());
    call_at(owner, at, move || {
        let _refused = host.send_by(&to.way(), message);
    })
}

/// Sends clones of a message, the first at a moment, then again and again.
pub(crate) fn send_every<N: Clone + Send + 'static>(
    owner: Ref<dyn AnyControl>,
    every: Duration,
    to: impl Target<N>,
    message: N,
) -> TimerRef {
    assert!(!every.is_zero(), "an interval needs a period longer than zero");
    let timer = begin(&owner);
    let first = owner.head().host().now() + every;
    Repeat { owner, timer, to: to.way().keep(), message: Mutex::new(message), every }.set(first);
    timer
}

/// Takes a timer back, and says what was left of it. Whoever ends it in the table decides: one that is just firing finds
/// itself ended, and sends nothing.
pub(crate) fn cancel(owner: &Head, timer: TimerRef) -> Option<Duration> {
    let set = owner.pending().end(timer)?;
    // One that is set at this moment is taken back by whoever sets it.
    let cancelled = set.and_then(|(key, at)| Some((owner.host().shared().timers.cancel(key)?, at)));
    let left = cancelled.as_ref().map_or(Duration::ZERO, |&(_, at)| at - owner.host().now());
    let _ = drop_caught(cancelled);
    Some(left)
}
