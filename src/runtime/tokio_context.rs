//! The context of a tokio runtime. The threads that run processes enter this context: see `Builder::tokio`. Without the
//! feature `tokio`, there is no context, and `within` only calls its argument.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
#[cfg(feature = "tokio")]
use tokio::runtime::Handle;

#[cfg(feature = "tokio")]
use crate::platform::sync::Arc;
use crate::process::pid::text::Simulated;
use crate::runtime::wrap_threads::WrapThread;

/// Context of a tokio runtime. The context is empty if `Builder::tokio` was not called.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokioContext {
    #[cfg(feature = "tokio")]
    handle: Option<Handle>,
}

impl TokioContext {
    #[cfg(feature = "tokio")]
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle: Some(handle) }
    }

    /// Calls `f` inside the context. When a thread exits, the destructors of its thread-locals run. If the thread-local
    /// of tokio is already destroyed, the thread cannot enter a context. In this case, calls `f` outside the context.
    #[inline]
    pub(crate) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(feature = "tokio")]
        if let Some(handle) = &self.handle
            && !Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
        {
            let _entered = handle.enter();
            return f();
        }
        f()
    }

    /// Calls `f` as [`within`](Self::within) does. If `f` waits, `f` blocks the thread. Even without a context, the
    /// calling thread may be inside a task of another tokio runtime. With the feature `tokio`, `f` never uses the
    /// budget of this task.
    pub(crate) fn within_blocking<R>(&self, f: impl FnOnce() -> R) -> R {
        self.within(|| {
            #[cfg(feature = "tokio")]
            return unconstrained(f);
            #[cfg(not(feature = "tokio"))]
            f()
        })
    }

    /// Wraps a future. The wrapper polls and drops the future inside the context.
    pub(crate) fn wrap_future<F: Future>(&self, future: F) -> FutureWithin<F> {
        FutureWithin { future: Some(future), context: self.clone() }
    }

    /// Returns a wrapper for the main function of a thread. The wrapper enters the context, and then calls `wrap`. If
    /// `wrap` is `None`, the wrapper itself calls the main function. If there is no context, returns `wrap` unchanged.
    pub(crate) fn wrap(&self, wrap: Option<WrapThread>) -> Option<WrapThread> {
        #[cfg(feature = "tokio")]
        if self.handle.is_some() {
            let context = self.clone();
            return Some(Arc::new(move |work| {
                context.within(|| match &wrap {
                    Some(wrap) => wrap(work),
                    None => work(),
                });
            }));
        }
        wrap
    }
}

/// Calls `f` without the budget of a task of tokio. Otherwise, if this thread is inside a task of tokio, the operations
/// of tokio in `f` would use the budget of this task. Tokio restores the budget only when the poll of the task ends,
/// but `f` blocks this poll until the operations complete.
#[cfg(feature = "tokio")]
fn unconstrained<R>(f: impl FnOnce() -> R) -> R {
    let mut f = Some(f);
    let call = std::future::poll_fn(|_| Poll::Ready(f.take().expect("polled once")()));
    let polled =
        std::pin::pin!(tokio::task::unconstrained(call)).poll(&mut Context::from_waker(std::task::Waker::noop()));
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("the future is always ready"),
    }
}

pin_project! {
    /// Future that is polled and dropped inside a context.
    pub(crate) struct FutureWithin<F> {
        #[pin]
        future: Option<F>,
        context: TokioContext,
    }

    impl<F> PinnedDrop for FutureWithin<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            this.context.within(|| this.future.set(None));
        }
    }
}

impl<F: Future> Future for FutureWithin<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // The poll may happen inside a simulation. The polled future and the tasks that the poll runs belong to the
        // runtime, and not to the simulation.
        let _pids = Simulated::enter(0);
        let future = this.future.as_pin_mut().expect("the future exists until the drop");
        this.context.within(|| future.poll(cx))
    }
}
