//! Cooperative scheduling of async bodies. [`cooperative`] wraps a future; if the budget of the turn is spent, the
//! wrapper yields first. The budget itself is in `process::state::current`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

use crate::process::state::current::Current;

/// Wraps a future, so that other processes can run before the future is polled. If the budget of the turn is spent, or
/// the process was [asked to yield](crate::Host::preempt), the wrapper yields once before it polls the future.
///
/// If all futures that a body awaits are ready, the body never ends its turn. With this wrapper, the body can yield
/// before each wrapped future. The wrapper cannot yield within a future. A future that is pending costs no budget.
/// Outside a process, the wrapper has no effect. A hand-written process does not need this wrapper: each
/// [step](crate::Process::step) can do a part of the work and return [`Next::Again`](crate::Next::Again).
///
/// ```
/// # use procession::{Context, Exit, Runtime, cooperative};
/// async fn hash(block: u64) -> u64 {
///     block.wrapping_mul(0x9e37_79b9_7f4a_7c15)
/// }
/// async fn all(_: Context) -> Result<u64, Exit> {
///     let mut sum = 0_u64;
///     for block in 0..100_000 {
///         sum ^= cooperative(hash(block)).await;
///     }
///     Ok(sum)
/// }
/// # let rt = Runtime::new()?;
/// # rt.block_on(rt.spawn(all))?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Cancel safety
/// The returned future is as cancel safe as `future`.
pub fn cooperative<F: Future>(future: F) -> Cooperative<F> {
    Cooperative { future }
}

pin_project! {
    /// Future that first yields to other processes if the budget of the turn is spent: see [`cooperative`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Cooperative<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Cooperative<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        ready!(spend_budget(cx));
        let polled = self.project().future.poll(cx);
        refund_if_pending(&polled);
        polled
    }
}

/// Takes one unit from the budget of the turn. If the budget is spent, or the process was asked to yield, returns `Pending`
/// once.
pub(crate) fn spend_budget(cx: &Context<'_>) -> Poll<()> {
    let yields = Current::with(|current| {
        let yields = current.should_yield();
        if yields {
            current.note_again();
        }
        yields
    });
    if yields {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

/// Gives the unit of the budget back if the future is pending. Otherwise, if many futures are polled together and all are
/// pending, the last of these futures would never be polled.
pub(crate) fn refund_if_pending<R>(polled: &Poll<R>) {
    if polled.is_pending() {
        Current::with(Current::refund);
    }
}

impl<F: FusedFuture> FusedFuture for Cooperative<F> {
    fn is_terminated(&self) -> bool {
        self.future.is_terminated()
    }
}
