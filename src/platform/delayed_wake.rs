//! Delayed wake-ups of foreign wakers. A foreign waker is a waker that this crate did not create, so a foreign waker is
//! user code. A thread that holds a lock must not call a foreign waker: the waker may poll its task directly, and the
//! task may take the same lock.
//!
//! The crate event-listener calls wakers while it holds the lock of its event. Therefore the code of this crate
//! notifies events and drops listeners inside [`delay`]. To call a foreign waker, the code passes the waker to [`wake`]
//! or [`wake_runner`], or first to [`collect`].
//!
//! A foreign waker may block until a process has run. Therefore, before a thread calls the first foreign waker, the
//! thread queues all processes that it has woken inside [`delay`]. A process needs an awake *runner*: a worker, a
//! guest or the driver of a `LocalSet`. Therefore the thread also wakes the runners before it calls the other foreign
//! wakers.

use std::mem;
use std::task::Waker;

use crate::platform::this_thread::THIS_THREAD;
use crate::platform::unwind::contain;

/// The wakers that a thread has collected inside [`delay`].
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    /// Wakers that queue a woken process.
    processes: Vec<Waker>,
    /// Wakers of runners. A runner runs the queued processes. A waker in this list wakes a worker that waits in the
    /// poller, or an executor that polls a guest or a `LocalSet`.
    runners: Vec<Waker>,
    /// Other foreign wakers.
    foreign: Vec<Waker>,
}

impl Delayed {
    pub(crate) const fn new() -> Self {
        Self { processes: Vec::new(), runners: Vec::new(), foreign: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.runners.is_empty() && self.foreign.is_empty()
    }
}

/// Calls `f`. After that, this function queues the processes that this thread has woken during `f`. Then the function
/// wakes the runners. In the last step, the function calls the other foreign wakers that this thread has
/// [collected](collect). If calls of `delay` are nested, only the outermost call performs these three steps. `f` must
/// not panic.
pub(crate) fn delay<R>(f: impl FnOnce() -> R) -> R {
    let begins = THIS_THREAD.with(|this| !this.delays.replace(true));
    let result = f();
    if begins && !ends_without_wakers() {
        wake_delayed();
    }
    result
}

/// If no waker was collected, ends the delay and returns true.
#[inline]
fn ends_without_wakers() -> bool {
    THIS_THREAD.with(|this| {
        let is_empty = this.delayed.borrow().is_empty();
        if is_empty {
            this.delays.set(false);
        }
        is_empty
    })
}

#[cold]
fn wake_delayed() {
    loop {
        // To queue a process, a thread may have to wake a runner. This thread is still inside `delay`, so this thread
        // collects the waker of the runner and calls this waker later.
        let (processes, last) = THIS_THREAD.with(|this| {
            let mut delayed = this.delayed.borrow_mut();
            let processes = mem::take(&mut delayed.processes);
            if !processes.is_empty() {
                return (processes, None);
            }
            this.delays.set(false);
            (processes, Some(mem::take(&mut *delayed)))
        });
        processes.into_iter().for_each(|waker| contain(|| waker.wake()));
        if let Some(Delayed { runners, foreign, .. }) = last {
            return runners.into_iter().chain(foreign).for_each(|waker| contain(|| waker.wake()));
        }
    }
}

/// If this thread is inside [`delay`], gets a foreign waker from the closure `waker`, stores this waker until the end
/// of `delay`, and returns true. Otherwise returns false, and the caller must call the waker.
#[must_use]
pub(crate) fn collect(waker: impl FnOnce() -> Waker) -> bool {
    store(|delayed| delayed.foreign.push(waker()))
}

/// Does the same as [`collect`], for a waker that queues a woken process.
#[must_use]
pub(crate) fn collect_process(waker: impl FnOnce() -> Waker) -> bool {
    store(|delayed| delayed.processes.push(waker()))
}

fn store(push: impl FnOnce(&mut Delayed)) -> bool {
    // The model checkers drop a thread-local at the end of its thread.
    let stored = THIS_THREAD.try_with(|this| {
        let delays = this.delays.get();
        if delays {
            push(&mut this.delayed.borrow_mut());
        }
        delays
    });
    stored.unwrap_or(false)
}

/// Calls a foreign waker, and catches a panic of the waker. If this thread is inside [`delay`], the waker is called
/// later.
pub(crate) fn wake(waker: Waker) {
    wake_or_store(waker, |delayed| &mut delayed.foreign);
}

/// Does the same as [`wake`], for the waker of a runner. If this thread is inside [`delay`], the waker is called
/// after all processes are queued, and before the other foreign wakers are called.
pub(crate) fn wake_runner(waker: Waker) {
    wake_or_store(waker, |delayed| &mut delayed.runners);
}

fn wake_or_store(waker: Waker, list: impl FnOnce(&mut Delayed) -> &mut Vec<Waker>) {
    let mut waker = Some(waker);
    if !store(|delayed| list(delayed).extend(waker.take())) {
        contain(|| waker.into_iter().for_each(Waker::wake));
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::cell::Cell;
    use std::task::Wake;

    use super::*;
    use crate::platform::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use crate::platform::sync::{Arc, Mutex};

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

    /// All processes are queued before the first foreign waker is called. Some foreign wakers are collected before the
    /// processes are queued, and some are collected while the processes are queued. The wakers of runners are
    /// collected later than the other foreign wakers, but are called earlier.
    #[test]
    fn processes_are_queued_and_runners_are_woken_before_foreign_wakers_are_called() {
        struct Calls(Mutex<Box<dyn FnMut() + Send>>);
        impl Wake for Calls {
            fn wake(self: Arc<Self>) {
                (self.0.lock())();
            }
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let waker = |name, then: fn(Waker, Waker)| {
            let push = |name| {
                let order = Arc::clone(&order);
                move || order.lock().push(name)
            };
            let calls = |f| Waker::from(Arc::new(Calls(Mutex::new(f))));
            let (last, runner) = (calls(Box::new(push("last"))), calls(Box::new(push("runner"))));
            let named = push(name);
            calls(Box::new(move || {
                named();
                then(last.clone(), runner.clone());
            }))
        };
        delay(|| {
            assert!(collect(|| waker("foreign", |_, _| ())));
            assert!(collect_process(|| {
                waker("process", |last, runner| {
                    wake(last);
                    wake_runner(runner);
                })
            }));
        });
        assert_eq!(*order.lock(), ["process", "runner", "foreign", "last"]);
    }
}
