//! The timers that one process has set and that have not fired.

use slab::Slab;

use crate::host::Host;
use crate::host::control::AnyControl;
use crate::host::timer::{Fire, Key};
use crate::platform::clock::Instant;
use crate::platform::sync::Mutex;
use crate::process::catch::drop_caught;
use crate::process::state::Ref;

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
    pub(crate) fn begin(&self) -> TimerRef {
        let mut table = self.0.lock();
        let number = table.next_number;
        table.next_number += 1;
        if table.closed {
            return TimerRef { slot: usize::MAX, number };
        }
        TimerRef { slot: table.timers.insert((number, None)), number }
    }

    /// The timer is set. False if it is over already, by whatever way.
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

    /// Ends a timer; its key and when it is due, if it is set. `None` if it is over: whoever gets it is the one who ended it.
    pub(crate) fn end(&self, timer: TimerRef) -> Option<Option<(Key, Instant)>> {
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
pub(crate) fn begin(owner: &Ref<dyn AnyControl>) -> TimerRef {
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
pub(crate) fn set(owner: &Ref<dyn AnyControl>, timer: TimerRef, at: Instant, call: impl FnOnce() + Send + 'static) {
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
