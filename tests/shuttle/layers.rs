//! Tests of handler layers: a process cancels its commands or is killed while these commands are queued or retried.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::channel::oneshot;
use procession::handler::{ConcurrencyLimit, Retry};
use procession::*;
use shuttle::thread;

use crate::builder;

#[derive(Clone)]
struct Ask;
impl Command for Ask {
    type Reply = ();
}

/// Waits until another thread has sent a message.
async fn wait_for_another_thread() {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || tell.send(()));
    let _ = told.await;
}

scenarios! {
    /// With a concurrency limit of one, at most one command runs at a time. If a command is cancelled or its process is
    /// killed, each of the other commands still runs.
    fn a_concurrency_limit_runs_all_commands() {
        let running = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&running);
        let asked = handler::future(move |Ask| {
            struct Runs(Arc<AtomicUsize>);
            impl Drop for Runs {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, SeqCst);
                }
            }
            assert_eq!(counts.fetch_add(1, SeqCst), 0, "two at once");
            let runs = Runs(Arc::clone(&counts));
            async move {
                wait_for_another_thread().await;
                drop(runs);
            }
        });
        let rt = builder(2).handler(ConcurrencyLimit::new(asked, 1)).build().unwrap();
        let asks = async |ctx: Context<()>| ctx.perform(Ask).await;
        let (killed, stays) = (rt.spawn(asks), rt.spawn(asks));
        let leaves = rt.spawn(async |ctx: Context<()>| {
            let mut one = ctx.perform(Ask);
            let _ = futures::poll!(&mut one);
            thread::spawn(move || drop(one));
            ctx.perform(Ask).await
        });
        killed.abort();
        assert!(matches!(rt.block_on(killed), Ok(()) | Err(Exit::Killed)));
        rt.block_on(stays).unwrap();
        rt.block_on(leaves).unwrap();
    }

    /// Another thread answers a command with a failure. The command is retried until it succeeds or its process is
    /// killed.
    fn a_kill_races_with_a_retry() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&tries);
        let fails = move |Ask, completion: Completion<()>| {
            let n = counts.fetch_add(1, SeqCst);
            thread::spawn(move || if n % 2 == 0 { completion.fail(Failure::Abandoned) } else { completion.complete(()) });
        };
        let rt = builder(2).handler(Retry::new(fails, 3, Duration::ZERO)).build().unwrap();
        let asks = async |ctx: Context<()>| ctx.perform(Ask).await;
        let (killed, stays) = (rt.spawn(asks), rt.spawn(asks));
        killed.abort();
        assert!(matches!(rt.block_on(killed), Ok(()) | Err(Exit::Killed)));
        rt.block_on(stays).unwrap();
        assert!(tries.load(SeqCst) >= 1);
    }
}
