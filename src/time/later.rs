//! Messages that are sent when the time has come: once, or again and again. They belong to the process that asked for
//! them, and go with it.

use std::time::Duration;

use slab::Slab;

use super::interval::{Missed, next};
use super::timers::{Fire, Key};
use crate::clock::Instant;
use crate::control::{AnyControl, Head};
use crate::counted::Ref;
use crate::host::{Destination, Host, Target};
use crate::process::panic::{catch, drop_caught};
use crate::process::refusal::Refusal;
use crate::sync::Mutex;

/// Names a timer of one process, for [`Me::cancel_timer`](crate::Me::cancel_timer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerRef {
    slot: usize,
    number: u64,
}

/// The timers of one process that are not over.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Each with its number, and once it is set with its key and when it is due.
    timers: Slab<(u64, Option<(Key, Instant)>)>,
    next_number: u64,
    closed: bool,
}

impl Pending {
    /// A place for a timer that will be set; one that nothing will come of, when the process has ended.
    fn begin(&self) -> TimerRef {
        let mut table = self.0.lock();
        let number = table.next_number;
        table.next_number += 1;
        if table.closed {
            return TimerRef { slot: usize::MAX, number };
        }
        TimerRef { slot: table.timers.insert((number, None)), number }
    }

    /// The timer is set. False if it is over already, by whatever way.
    fn set(&self, timer: TimerRef, key: Key, at: Instant) -> bool {
        let mut table = self.0.lock();
        match table.timers.get_mut(timer.slot) {
            Some((number, known)) if *number == timer.number => {
                *known = Some((key, at));
                true
            }
            _ => false,
        }
    }

    fn is_there(&self, timer: TimerRef) -> bool {
        self.0.lock().timers.get(timer.slot).is_some_and(|&(number, _)| number == timer.number)
    }

    /// Ends a timer; its key and when it is due, if it is set. `None` if it is over: whoever gets it is the one who ended it.
    fn end(&self, timer: TimerRef) -> Option<Option<(Key, Instant)>> {
        let mut table = self.0.lock();
        table.timers.get(timer.slot).filter(|(number, _)| *number == timer.number)?;
        Some(table.timers.remove(timer.slot).1)
    }

    /// Ends all of them, and those to come.
    pub(crate) fn close(&self, host: &Host) {
        let mut table = self.0.lock();
        table.closed = true;
        let timers = std::mem::take(&mut table.timers);
        drop(table);
        for (_, (_, key)) in timers {
            let fire = key.and_then(|(key, _)| host.shared().timers.cancel(key));
            let _ = drop_caught(fire);
        }
    }
}

/// Begins a timer of a process. A timer of a process that has ended is over at once.
fn begin(owner: &Ref<dyn AnyControl>) -> TimerRef {
    let pending = owner.head().pending();
    let timer = pending.begin();
    // The first timer makes the table, so the end of the process may have found no table to close. The end closes the
    // mailbox, under its lock, before it looks for the table: if the mailbox is still open here, the end finds the table.
    if owner.is_closed() {
        pending.close(owner.head().host());
    }
    timer
}

/// Sets a timer of a process, or takes it back if that has become superfluous meanwhile.
fn set(owner: &Ref<dyn AnyControl>, timer: TimerRef, at: Instant, call: impl FnOnce() + Send + 'static) {
    let host = owner.head().host();
    let key = host.fire_at(at, Fire::Call(Box::new(call)));
    if !owner.head().pending().set(timer, key, at) {
        let _ = drop_caught(host.shared().timers.cancel(key));
    }
}

/// Has something called at a moment, unless the process has ended by then.
pub(crate) fn call_at(owner: &Ref<dyn AnyControl>, at: Instant, call: impl FnOnce() + Send + 'static) -> TimerRef {
    let timer = begin(owner);
    let own = owner.clone();
    set(owner, timer, at, move || {
        if own.head().pending().end(timer).is_some() {
            call();
        }
    });
    timer
}

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
