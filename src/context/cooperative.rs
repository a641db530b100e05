//! Cooperative scheduling of async bodies. The function [`cooperative`] wraps a future. If the budget of the turn is
//! spent, the wrapper first yields to other processes, and polls the future later. The budget is in
//! `process::state::current`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

use crate::process::state::budget::BudgetPause;

/// Wraps a future, so that other processes can run before the future is polled. If the [budget](crate::should_yield) of
/// the turn is spent, or the process was [asked to yield](crate::Host::preempt), the wrapper first yields once. Then
/// the wrapper polls the future.
///
/// A body that awaits only ready futures never ends its turn, and other processes on the same worker cannot run. This
/// wrapper ends the turn when the budget is spent. The wrapper can yield before a poll of the future, but not during a
/// poll. A pending future uses no budget. The future of an async handler also has a budget. A future of
/// [`Host::spawn_future`](crate::Host::spawn_future), [`Runtime::run`](crate::Runtime::run) or
/// [`Runtime::block_on`](crate::Runtime::block_on) also has a budget. If an executor outside the runtime polls the
/// future, the wrapper has no effect.
///
/// If a step blocks its thread to wait for a future, the step must use [`Runtime::block_on`](crate::Runtime::block_on).
/// A `block_on` function of another crate never refills the budget of the turn. Therefore, a spent budget stays spent.
/// Each wrapped future then needs one more poll, and the other processes of the worker do not run.
///
/// A hand-written process does not need this wrapper. Each [step](crate::Process::step) can do a part of the work and
/// return [`Next::Again`](crate::Next::Again).
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
    Cooperative { future, pause: BudgetPause::default() }
}

pin_project! {
    /// Future that [`cooperative`] returns. If the budget of the turn is spent, this future first yields to other
    /// processes.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Cooperative<F> {
        #[pin]
        future: F,
        pause: BudgetPause,
    }
}

impl<F: Future> Future for Cooperative<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.pause.poll_as_yield_check(cx, |cx| this.future.poll(cx))
    }
}

impl<F: FusedFuture> FusedFuture for Cooperative<F> {
    fn is_terminated(&self) -> bool {
        self.future.is_terminated()
    }
}
