//! Type erasure for the future of `Runtime::block_on`. The code that runs tasks in `block_on` uses the future only
//! through a trait object. Therefore, the compiler compiles this code once, and not once for each type of future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// A future that can be dropped in place through a trait object.
pub(super) trait DropFuture: Future<Output = ()> {
    /// Drops the future, but does not free its memory. The future is not polled again.
    fn drop_future(self: Pin<&mut Self>);
}

pin_project! {
    /// A future that writes its output to a place of the caller.
    pub(super) struct OwnFuture<'a, F: Future> {
        #[pin]
        future: Option<F>,
        output: &'a mut Option<F::Output>,
    }
}

impl<'a, F: Future> OwnFuture<'a, F> {
    pub(super) fn new(future: F, output: &'a mut Option<F::Output>) -> Self {
        Self { future: Some(future), output }
    }
}

impl<F: Future> Future for OwnFuture<'_, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let Some(future) = this.future.as_pin_mut() else { unreachable!("a dropped future is not polled") };
        match future.poll(cx) {
            Poll::Ready(output) => {
                **this.output = Some(output);
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<F: Future> DropFuture for OwnFuture<'_, F> {
    fn drop_future(self: Pin<&mut Self>) {
        self.project().future.set(None);
    }
}

/// Guard that drops a future. The memory of the future is freed later, by the caller that owns the memory.
pub(super) struct DropGuard<'a>(pub(super) Pin<&'a mut dyn DropFuture>);

impl Drop for DropGuard<'_> {
    fn drop(&mut self) {
        self.0.as_mut().drop_future();
    }
}
