//! Work in small pieces that lets others run in between: the wrapper that asks [`should_yield`](crate::should_yield).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::FusedFuture;
use pin_project_lite::pin_project;

use crate::process::state::current::Current;

/// Makes a piece of work one before which others may run: when the budget of the turn is spent, or the process is
/// [asked](crate::Host::preempt) to let others run, it waits until the process has been behind the others once.
///
/// A body that awaits one ready future after the other never comes to an end of its turn. Made of such pieces it can be
/// pre-empted between them; within one it can't. A piece that has to wait for something costs no budget. Outside a
/// process it is the future alone. A hand-written process gets the same by a [step](crate::Process::step) a piece and
/// [`Next::Again`](crate::Next::Again).
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
/// That of the future: nothing of it is lost by this.
pub fn cooperative<F: Future>(future: F) -> Cooperative<F> {
    Cooperative { future }
}

pin_project! {
    /// A piece of work before which others may run: see [`cooperative`].
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
        let polled = self.project().future.poll(cx);
        if polled.is_pending() {
            // Of many that are polled together and wait, the last would never come to its own turn otherwise.
            Current::with(Current::refund);
        }
        polled
    }
}

impl<F: FusedFuture> FusedFuture for Cooperative<F> {
    fn is_terminated(&self) -> bool {
        self.future.is_terminated()
    }
}
