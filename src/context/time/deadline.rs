//! Answers that a timer gives: the deadline of a yield, and the sleep of a hand-written process. The timer answers the
//! tag like any other sender of an answer, so the table of yields decides which answer counts. The timer is cancelled
//! when the yield ends before it fires.

use std::task::{Wake, Waker};

use crate::host::control::AnyControl;
use crate::host::timer::{Fire, Key, Timers};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::drop_caught;
use crate::process::event::{Answer, Tag};
use crate::process::state::Ref;

/// Answers a yield at this time, unless it was answered or cancelled before. A time that has passed answers
/// immediately; [`Instant::FAR`] never answers.
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
    let timer = Arc::new(Timer { timers: Arc::clone(&host.shared().timers), key });
    // If the yield is over already, `watch` drops the waker, which cancels the timer.
    to.head().yields().watch(tag, &Waker::from(timer));
}

fn finish(to: &dyn AnyControl, tag: Tag, answer: Answer) {
    let mut answer = Some(answer);
    if to.complete(tag, &mut answer, false).is_err() {
        // The yield was over before the timer fired.
        let _ = drop_caught(answer);
    }
}

/// The timer of one yield, as a waker that watches the yield. The table of yields wakes or drops it when the yield
/// ends. The last drop cancels the timer.
struct Timer {
    timers: Arc<Timers>,
    key: Key,
}

impl Wake for Timer {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Timer {
    fn drop(&mut self) {
        drop(self.timers.cancel(self.key));
    }
}
