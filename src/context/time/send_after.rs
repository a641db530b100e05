//! Timers that send a message once or periodically. A timer that sends a message belongs to the process that has set
//! the timer. When this process exits, the timer is cancelled. Each process has a table of its timers, which is defined
//! in `host::timer::pending`.

use std::time::Duration;

use crate::context::time::interval::{MissedTickBehavior, next};
use crate::host::control::{AnyControl, Head};
use crate::host::registry::target::{Destination, Target};
use crate::host::timer::owned::{begin, call_at, set};
use crate::host::timer::pending::PendingTimer;
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::catch::{catch, drop_caught};
use crate::process::error::SendErrorKind;
use crate::process::pid::Pid;
use crate::process::state::Ref;

/// Identifies a timer of one process. [`SelfHandle::cancel_timer`](crate::SelfHandle::cancel_timer) takes this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerRef {
    owner: Pid,
    timer: PendingTimer,
}

/// A timer that sends clones of a message periodically.
struct Repeat<N> {
    owner: Ref<dyn AnyControl>,
    timer: PendingTimer,
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
        let cloned = catch(|| self.message.get_mut().clone());
        if !pending.is_there(self.timer) {
            // The timer was cancelled during the clone, which is user code.
            let _ = drop_caught(cloned);
            return;
        }
        // An attached receiver may panic. The result of the send is then unknown, so the timer continues.
        let send = |message| {
            let refused = catch(|| host.send_by(&self.to.destination(), message));
            refused.map(|sent| {
                sent.map_err(|refused| {
                    let kind = refused.kind();
                    let _ = drop_caught(refused);
                    kind
                })
            })
        };
        let continues = match cloned.map(send) {
            Ok(Ok(Ok(()) | Err(SendErrorKind::Full)) | Err(_)) => true,
            // No process has the name now. If a process registers the name later, this process receives the next
            // messages.
            Ok(Ok(Err(SendErrorKind::NoProcess))) => matches!(self.to, Destination::Name(_)),
            _ => false,
        };
        if continues {
            let next = next(due, host.now(), self.every, MissedTickBehavior::Skip);
            self.set(next);
        } else {
            // The timer ends for one of two reasons. The message was refused permanently, for example because the
            // receiver has exited, or `clone` has panicked.
            pending.end(self.timer);
        }
    }
}

/// Sets a timer that sends a message at the time `at`. If the owner of the timer exits before this time, the message is
/// not sent.
pub(crate) fn send_at<N: Send + 'static>(
    owner: &Ref<dyn AnyControl>,
    at: Instant,
    to: impl Target<N>,
    message: N,
) -> TimerRef {
    let (to, host) = (to.destination().keep(), owner.head().host().clone());
    let timer = call_at(owner, at, move || {
        let _refused = host.send_by(&to.destination(), message);
    });
    TimerRef { owner: owner.head().pid(), timer }
}

/// Sets a timer that sends a clone of a message once per period. The period must not be zero. The first clone is sent
/// one period after this call.
pub(crate) fn send_every<N: Clone + Send + 'static>(
    owner: Ref<dyn AnyControl>,
    every: Duration,
    to: impl Target<N>,
    message: N,
) -> TimerRef {
    let timer = begin(&owner);
    let pid = owner.head().pid();
    let first = owner.head().host().now() + every;
    Repeat { owner, timer, to: to.destination().keep(), message: Mutex::new(message), every }.set(first);
    TimerRef { owner: pid, timer }
}

/// Cancels a timer, and returns the time that remained until the deadline of the timer. Returns `None` if the timer has
/// no entry in the table, or belongs to another process. The table also contains the timer for the deadline of the
/// process, and the timer that kills the process after a cancel request. No `TimerRef` identifies these timers.
///
/// The cancellation of a timer may race with the firing of the timer. The first of the two operations removes the entry
/// from the table. If the cancellation is first, the timer finds no entry and sends no message.
pub(crate) fn cancel(owner: &Head, timer: TimerRef) -> Option<Duration> {
    if timer.owner != owner.pid() {
        return None;
    }
    let set = owner.pending().end(timer.timer)?;
    // If the timer has no key yet, another thread is setting the timer at this moment. The other thread will find no
    // entry in the table, and will then cancel the timer.
    let cancelled = set.and_then(|(key, at)| Some((owner.host().shared().timers.cancel(key)?, at)));
    let left = cancelled.as_ref().map_or(Duration::ZERO, |&(_, at)| at - owner.host().now());
    let _ = drop_caught(cancelled);
    Some(left)
}
