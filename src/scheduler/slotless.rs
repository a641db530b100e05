//! The scheduler of a guest that has no worker slot yet. Such a guest polls its own future, but its thread does not act
//! as a worker. In this future, a new socket must still find its scheduler.

use std::any::Any;
use std::cell::RefCell;

use crate::platform::sync::{Arc, NeverDropped, thread_local, with_undropped};

type AnyScheduler = Arc<dyn Any + Send + Sync>;

/// A guest without a slot whose own future is polled.
struct Slotless {
    scheduler: AnyScheduler,
    /// Address of the worker that the thread acts as, or `None` if the thread does not act as a worker. This worker
    /// belongs to an outer call, for example to a step that called `block_on`.
    worker: Option<usize>,
}

thread_local! {
    /// The innermost guest without a slot whose own future this thread polls.
    static SLOTLESS: NeverDropped<RefCell<Option<Slotless>>> = const { NeverDropped::new(RefCell::new(None)) };
}

/// Guard that restores the previous value of the thread-local.
struct Restored(Option<Slotless>);

impl Drop for Restored {
    fn drop(&mut self) {
        replace(self.0.take());
    }
}

fn replace(slotless: Option<Slotless>) -> Option<Slotless> {
    with_undropped(&SLOTLESS, |cell| cell.replace(slotless))
}

/// Runs `f`, which polls the own future of a guest without a slot. During the call, [`scheduler_here`] returns the
/// scheduler of this guest. `worker` is the address of the worker that the thread acts as.
///
/// The thread still acts as this worker. For example, the future may call `block_in_place`, and this call hands over
/// the worker of the outer step.
pub(super) fn with_scheduler<R>(scheduler: AnyScheduler, worker: Option<usize>, f: impl FnOnce() -> R) -> R {
    let _restored = Restored(replace(Some(Slotless { scheduler, worker })));
    f()
}

/// Returns the scheduler of the guest without a slot whose own future this thread polls. `worker` is the address of the
/// worker that the thread acts as now. If the thread has begun to act as a worker since the poll began, the result is
/// `None`, because this worker is the innermost one.
pub(super) fn scheduler_here(worker: Option<usize>) -> Option<AnyScheduler> {
    with_undropped(&SLOTLESS, |cell| {
        let slotless = cell.borrow();
        slotless.as_ref().filter(|slotless| slotless.worker == worker).map(|slotless| Arc::clone(&slotless.scheduler))
    })
}
