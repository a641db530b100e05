//! Answers that come with the time: the deadline of a yield, and the sleep of a hand-written process. The timer answers
//! the tag as anybody else might, so the tag table decides which answer counts; it is taken back when the yield ends
//! otherwise.

use std::task::{Wake, Waker};

use crate::host::control::AnyControl;
use crate::host::timer::{Fire, Key, Timers};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::catch::drop_caught;
use crate::process::event::{Answer, Tag};
use crate::process::state::Ref;

/// Answers a yield at this moment, unless it was answered or given up by then. What is due at the far end of time never
/// comes.
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
    // Spent already, it lets go of the timer at once.
    to.head().yields().watch(tag, &Waker::from(timer));
}

fn finish(to: &dyn AnyControl, tag: Tag, answer: Answer) {
    let mut answer = Some(answer);
    if to.complete(tag, &mut answer, false).is_err() {
        // It was too late itself.
        let _ = drop_caught(answer);
    }
}

/// A timer that stands for one yield. It is watched by: whoever ends the yield wakes this, and so lets go of it.
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
