//! The pending timers of one process. Each process has a table of the timers that it has set and that have not fired.
//! The exit of the process cancels them.

use slab::Slab;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::timer::{Fire, Key};
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::catch::drop_caught;
use crate::process::state::Ref;

/// Identifies a timer of one process, for [`SelfHandle::cancel_timer`](crate::SelfHandle::cancel_timer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerRef {
    slot: usize,
    number: u64,
}

/// The pending timers of one process.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Number of each timer. When the timer is set, also its key and its deadline.
    timers: Slab<(u64, Option<(Key, Instant)>)>,
    next_number: u64,
    closed: bool,
}

impl Pending {
    /// Reserves an entry for a timer that will be set. If the process has exited, the returned timer is already over.
    pub(crate) fn begin(&self) -> TimerRef {
        let mut table = self.0.lock();
        let number = table.next_number;
        table.next_number += 1;
        if table.closed {
            return TimerRef { slot: usize::MAX, number };
        }
        TimerRef { slot: table.timers.insert((number, None)), number }
    }

    /// Stores the key of a timer that was set. Returns false if the timer is over already.
    pub(crate) fn set(&self, timer: TimerRef, key: Key, at: Instant) -> bool {
        let mut table = self.0.lock();
        match table.timers.get_mut(timer.slot) {
            Some((number, known)) if *number == timer.number => {
                *known = Some((key, at));
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_there(&self, timer: TimerRef) -> bool {
        self.0.lock().timers.get(timer.slot).is_some_and(|&(number, _)| number == timer.number)
    }

    /// Removes a timer. Returns its key and deadline, if it is set. `None` if the timer is over: only one caller gets
    /// it.
    pub(crate) fn end(&self, timer: TimerRef) -> Option<Option<(Key, Instant)>> {
        let mut table = self.0.lock();
        table.timers.get(timer.slot).filter(|(number, _)| *number == timer.number)?;
        Some(table.timers.remove(timer.slot).1)
    }

    /// Cancels all timers, and refuses new ones.
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

/// Reserves a timer of a process. A timer of a process that has exited is over immediately.
pub(crate) fn begin(owner: &Ref<dyn AnyControl>) -> TimerRef {
    let pending = owner.head().pending();
    let timer = pending.begin();
    // The first timer creates the table, so the exit may have found no table to close. The exit closes the mailbox,
    // under its lock, before it looks for the table. If the mailbox is still open here, the exit finds the table.
    if owner.is_closed() {
        pending.close(owner.head().host());
    }
    timer
}

/// Sets a timer of a process. If the timer is over meanwhile, it is cancelled.
pub(crate) fn set(owner: &Ref<dyn AnyControl>, timer: TimerRef, at: Instant, call: impl FnOnce() + Send + 'static) {
    let host = owner.head().host();
    let key = host.fire_at(at, Fire::Call(Box::new(call)));
    if !owner.head().pending().set(timer, key, at) {
        let _ = drop_caught(host.shared().timers.cancel(key));
    }
}

/// Calls a function at a deadline, unless the process has exited by then.
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
