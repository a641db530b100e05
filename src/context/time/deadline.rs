//! Timers that answer yields. Such a timer implements the deadline of a yield, or the sleep of a hand-written process.
//! When the timer fires, the timer answers the yield. If the handler also sends an answer, the table of yields accepts
//! only the first of the two answers. If the yield ends before the timer fires, the timer is cancelled.

use std::task::{Wake, Waker};

use crate::host::control::AnyControl;
use crate::host::timer::{Fire, Key, Timers};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::drop_caught;
use crate::process::event::{Answer, Tag};
use crate::process::state::Ref;
use crate::process::watchers::WatchKey;
use crate::process::yields::Answerer;

/// Sets a timer that answers a yield at the time `at`. If this time has already passed, this function answers the yield
/// immediately. If the yield was already answered or cancelled at this time, the timer has no effect. If the time is
/// [`Instant::FAR`], no timer is set.
pub(crate) fn answer_at(to: &Ref<dyn AnyControl>, tag: Tag, at: Instant, answer: Answer) {
    if at == Instant::FAR {
        return;
    }
    let host = to.head().host();
    if at <= host.now() {
        return finish(&**to, tag, answer);
    }
    let whom = to.clone();
    let key = host.fire_at(at, Fire::Call(Box::new(move || finish(&*whom, tag, answer))));
    let timer = Arc::new(YieldTimer { timers: Arc::clone(&host.shared().timers), key });
    // The table of yields stores the waker until the yield ends. If the yield has already ended, `watch` drops the
    // waker, and this drop cancels the timer.
    to.head().yields().watch(tag, &mut WatchKey::default(), &Waker::from(timer));
}

fn finish(to: &dyn AnyControl, tag: Tag, answer: Answer) {
    let mut answer = Some(answer);
    if to.complete(tag, &mut answer, Answerer::Runtime).is_err() {
        // The yield ended before the timer fired, so the answer is dropped.
        let _ = drop_caught(answer);
    }
}

/// The timer of one yield, which implements `Wake`. The table of yields stores the waker of this timer. When the yield
/// ends, the table wakes or drops the waker. When the last clone of the waker is dropped, the timer is cancelled.
struct YieldTimer {
    timers: Arc<Timers>,
    key: Key,
}

impl Wake for YieldTimer {
    fn wake(self: Arc<Self>) {}
}

impl Drop for YieldTimer {
    fn drop(&mut self) {
        drop(self.timers.cancel(self.key));
    }
}
