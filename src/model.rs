//! Models for the model checker: each model runs a protocol of this crate on two or three threads.
//!
//! These models are compiled only under `--cfg procession_loom`, for `tests/loom.rs`. `tests/loom.rs` states how far
//! each model is explored. The file also lists the planted bugs that the models must detect. The models use the crate's
//! own types, and add only threads and assertions. A lost wake-up causes a deadlock, and the model checker reports each
//! deadlock.

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
pub mod poller;
pub mod room;
pub mod run_state;
pub mod slots;
pub mod stream;
pub mod timers;
pub mod trace_ring;

use std::task::{Wake, Waker};

use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, thread};

/// Executor of one task. The thread that created the executor waits for wake-ups.
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

    /// Waits for a wake-up. If a wake-up has arrived since the last call, returns immediately.
    fn wait(&self) {
        while !self.woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        // A store would not be sufficient here: in loom, the `swap` in `wait` might not see this store.
        self.woken.swap(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Starts a thread that uses shared state.
fn spawn<S: 'static, T: 'static>(shared: &Arc<S>, f: impl FnOnce(&S) -> T + 'static) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

fn join<T>(thread: thread::JoinHandle<T>) -> T {
    thread.join().expect("a panic in a model ends the whole of it")
}
