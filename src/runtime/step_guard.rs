//! Records a step that calls `Runtime::block_on`. Also records the polls and wake-ups of the future that the step has
//! passed to `block_on`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::host::Host;
use crate::host::control::blocked_step::BlockedStep;
use crate::host::refs::ProcessRef;
use crate::platform::sync::Arc;

/// Guard of the record of a blocked step. The drop of the guard removes the record.
pub(super) struct StepGuard {
    process: ProcessRef,
    step: Arc<BlockedStep>,
}

impl StepGuard {
    /// Records that the step on this thread will block. Returns `None` if this thread runs no step of a process of this
    /// runtime.
    #[inline]
    pub(super) fn new(host: &Host) -> Option<Self> {
        ProcessRef::of_turn(host).map(Self::of_process)
    }

    #[cold]
    fn of_process(process: ProcessRef) -> Self {
        let head = process.head();
        let step = BlockedStep::new(head.pid(), process.waits().waits);
        head.host().shared().blocked_steps.add(&step);
        Self { process, step }
    }

    /// Polls the inner future, and records the poll.
    pub(super) fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>, cx: &Context<'_>) -> Poll<F::Output> {
        self.step.begin_poll();
        let waker = Waker::from(Arc::new(InnerWaker { step: Arc::clone(&self.step), thread: cx.waker().clone() }));
        let polled = future.poll(&mut Context::from_waker(&waker));
        if polled.is_pending() {
            self.step.end_poll(ProcessRef::has_stale_receiver());
        }
        polled
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        self.process.head().host().shared().blocked_steps.remove(&self.step);
    }
}

/// Waker of the inner future. The wake-up is recorded before the thread is woken.
struct InnerWaker {
    step: Arc<BlockedStep>,
    thread: Waker,
}

impl Wake for InnerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.step.wake();
        self.thread.wake_by_ref();
    }
}
