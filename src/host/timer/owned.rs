//! Timers that belong to a process. Each timer of a process is stored in two places: in the timers of the runtime, and
//! in the timer table of the process (`pending.rs`).

use crate::host::control::AnyControl;
use crate::host::timer::Fire;
use crate::host::timer::pending::PendingTimer;
use crate::platform::clock::Instant;
use crate::process::catch::drop_caught;
use crate::process::state::Ref;

/// Reserves a timer of a process. If the process has exited, this function cancels the timer immediately.
pub(crate) fn begin(owner: &Ref<dyn AnyControl>) -> PendingTimer {
    let pending = owner.head().pending();
    let timer = pending.begin();
    // The first timer creates the table. At the same time, the process may exit, find no table, and close nothing. This
    // check handles this race. The exit first closes the mailbox, under the lock of the mailbox, and then looks up the
    // table. Therefore, if the mailbox is still open here, the exit closes the table later.
    if owner.is_closed() {
        pending.close(&owner.head().host().shared().timers);
    }
    timer
}

/// Sets a timer that [`begin`] has reserved for a process. If the timer was cancelled after its reservation, the timer
/// does not fire.
pub(crate) fn set(owner: &Ref<dyn AnyControl>, timer: PendingTimer, at: Instant, call: impl FnOnce() + Send + 'static) {
    let host = owner.head().host();
    let key = host.fire_at(at, Fire::Call(Box::new(call)));
    if !owner.head().pending().set(timer, key, at) {
        let _ = drop_caught(host.shared().timers.cancel(key));
    }
}

/// Calls a function at a deadline. If the process exits before the deadline, the function is not called.
pub(crate) fn call_at(owner: &Ref<dyn AnyControl>, at: Instant, call: impl FnOnce() + Send + 'static) -> PendingTimer {
    let timer = begin(owner);
    let own = owner.clone();
    set(owner, timer, at, move || {
        if own.head().pending().end(timer).is_some() {
            call();
        }
    });
    timer
}
