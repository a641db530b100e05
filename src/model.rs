//! What the model checker explores: the protocols of this crate, each in a world of two or three threads.
//!
//! It is here only under `--cfg procession_loom`, for `tests/loom.rs`, which says how far each is explored and under
//! which planted bug it must fail. The worlds are built from the crate's own types; what stands here is only who does
//! what, and what must have come of it. A wake that is lost is a deadlock, which the checker reports itself.

pub mod answer;
pub mod cancel;
pub mod completion;
pub mod counts;
pub mod groups;
pub mod handover;
pub mod idle;
pub mod links;
pub mod mailbox;
pub mod names;
pub mod room;
pub mod run_state;
pub mod slots;
pub mod stream;
pub mod timers;

use std::task::{Wake, Waker};

use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, thread};

/// Whoever waits on the thread that made it: an executor of one task.
struct Waiter {
    woken: AtomicBool,
    thread: thread::Thread,
}

impl Waiter {
    fn here() -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(false), thread: thread::current() })
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Returns after a wake that came since it last did.
    fn wait(&self) {
        while !self.woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        // Not a plain store, which loom would let a swap overlook that comes after it.
        self.woken.swap(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Starts a thread on what several share.
fn spawn<S: 'static, T: 'static>(shared: &Arc<S>, f: impl FnOnce(&S) -> T + 'static) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("a panic in a model ends the whole of it")
}
