//! Delayed wake-ups of foreign wakers. A foreign waker is a waker that this crate did not create, so it is user code. A
//! thread that holds a lock must not call a foreign waker: the waker may poll its task directly, and the task may take
//! the same lock.
//!
//! The crate event-listener calls wakers while it holds the lock of its event. Therefore the code of this crate
//! notifies an event inside [`delay`], and also drops a listener inside it. Code that is about to call a foreign waker
//! first passes the waker to [`collect`].

use std::task::Waker;

use crate::platform::this_thread::THIS_THREAD;
use crate::platform::unwind::contain;

/// Calls `f`. Then calls the wakers that this thread has [collected](collect) during `f`. In nested calls, the
/// outermost call calls the wakers. `f` must not panic.
pub(crate) fn delay<R>(f: impl FnOnce() -> R) -> R {
    let begins = THIS_THREAD.with(|this| {
        let mut wakers = this.delayed.borrow_mut();
        let begins = wakers.is_none();
        wakers.get_or_insert_default();
        begins
    });
    let result = f();
    if begins {
        let wakers = THIS_THREAD.with(|this| this.delayed.take()).unwrap_or_default();
        wakers.into_iter().for_each(|waker| contain(|| waker.wake()));
    }
    result
}

/// If this thread is inside [`delay`], calls `waker`, stores the returned waker until the end of `delay`, and returns
/// true. Otherwise returns false, and the caller must call the waker.
#[must_use]
pub(crate) fn collect(waker: impl FnOnce() -> Waker) -> bool {
    // The model checkers drop a thread-local at the end of its thread.
    THIS_THREAD
        .try_with(|this| this.delayed.borrow_mut().as_mut().map(|wakers| wakers.push(waker())).is_some())
        .unwrap_or(false)
}

/// Calls a foreign waker, and catches a panic of the waker. Inside [`delay`], the call comes later.
pub(crate) fn wake(waker: Waker) {
    let mut waker = Some(waker);
    if !collect(|| waker.take().expect("called at most once")) {
        contain(|| waker.into_iter().for_each(Waker::wake));
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::cell::Cell;
    use std::task::Wake;

    use super::*;
    use crate::platform::sync::Arc;
    use crate::platform::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn the_outermost_call_wakes_the_collected_wakers() {
        let woken = Arc::new(Counts(AtomicUsize::new(0)));
        let wake = || {
            if !collect(|| Waker::from(Arc::clone(&woken))) {
                woken.0.fetch_add(1, SeqCst);
            }
        };
        let seen = Cell::new(Vec::new());
        let note = || {
            let mut list = seen.take();
            list.push(woken.0.load(SeqCst));
            seen.set(list);
        };
        delay(|| {
            wake();
            delay(wake);
            note();
        });
        note();
        wake();
        note();
        assert_eq!(seen.take(), [0, 2, 3]);
    }
}
