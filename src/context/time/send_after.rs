//! Messages that a timer sends once or periodically. The timer belongs to the process that has set the timer. When this
//! process exits, the timer is cancelled. The table of a process's timers is in `host::timer::pending`.

use std::time::Duration;

use crate::context::time::interval::{MissedTickBehavior, next};
use crate::host::control::{AnyControl, Head};
use crate::host::registry::target::{Destination, Target};
use crate::host::timer::owned::{begin, call_at, set};
pub use crate::host::timer::pending::TimerRef;
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::SendErrorKind;
use crate::process::state::Ref;

/// A message that is sent periodically.
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
        let continues = match sent.map(|sent| sent.map_err(|refused| refused.kind())) {
            Ok(Ok(()) | Err(SendErrorKind::Full)) => true,
            // If a process registers the name later, this process receives the next messages.
            Ok(Err(SendErrorKind::NoProcess)) => matches!(self.to, Destination::Name(_)),
            _ => false,
        };
        if continues {
            let next = next(due, host.now(), self.every, MissedTickBehavior::Skip);
            self.set(next);
        } else {
            // This line is reached if the receiver has exited, the message was refused for another reason, or the
            // `clone` of the message panicked.
            pending.end(self.timer);
        }
    }
}

/// Sends a message at this time, if the process has not exited before this time.
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

/// Sends clones of a message once per period. The period must not be zero. The first clone is sent one period after
/// this call.
pub(crate) fn send_every<N: Clone + Send + 'static>(
    owner: Ref<dyn AnyControl>,
    every: Duration,
    to: impl Target<N>,
    message: N,
) -> TimerRef {
    let timer = begin(&owner);
    let first = owner.head().host().now() + every;
    Repeat { owner, timer, to: to.way().keep(), message: Mutex::new(message), every }.set(first);
    timer
}

/// Cancels a timer, and returns the time that was left. If the cancellation races with the firing of the timer, the
/// operation that comes first removes the entry from the table. If the cancellation is first, the timer finds no entry
/// when the timer fires, and sends no message.
pub(crate) fn cancel(owner: &Head, timer: TimerRef) -> Option<Duration> {
    let set = owner.pending().end(timer)?;
    // If the timer has no key yet, another thread is in the middle of setting the timer. That thread will find no
    // entry, and will then cancel the timer.
    let cancelled = set.and_then(|(key, at)| Some((owner.host().shared().timers.cancel(key)?, at)));
    let left = cancelled.as_ref().map_or(Duration::ZERO, |&(_, at)| at - owner.host().now());
    let _ = drop_caught(cancelled);
    Some(left)
}
