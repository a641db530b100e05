//! Timers that answer yields. These timers are used for the deadline of a yield and for the sleep of a hand-written
//! process. The timer sends its answer to the tag of the yield. If another answer is sent to the same tag, the table of
//! yields decides which answer takes effect. If the yield ends before the timer fires, the timer is cancelled.

use std::task::{Wake, Waker};

use crate::host::control::AnyControl;
use crate::host::timer::{Fire, Key, Timers};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::drop_caught;
use crate::process::event::{Answer, Tag};
use crate::process::state::Ref;

/// Answers a yield at this time, if the yield was not answered or cancelled before. If the time has already passed,
/// this function answers immediately. If the time is [`Instant::FAR`], this function never answers.
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
    // If the yield has already ended, `watch` drops the waker, and this drop cancels the timer.
    to.head().yields().watch(tag, &Waker::from(timer));
}

fn finish(to: &dyn AnyControl, tag: Tag, answer: Answer) {
    let mut answer = Some(answer);
    if to.complete(tag, &mut answer, false).is_err() {
        // The yield ended before the timer fired.
        let _ = drop_caught(answer);
    }
}

/// The timer of one yield, in the form of a waker. The table of yields stores this waker. When the yield ends, the
/// table wakes or drops this waker. When the last reference to the waker is dropped, the timer is cancelled.
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
