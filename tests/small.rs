//! Small scenarios on two real workers, for Miri and the sanitizers. Each scenario tests one mechanism that has unsafe
//! code. The scenario uses this mechanism a few times from several threads. A scenario only checks results, because
//! Miri or the sanitizer reports memory errors. This file is a separate test binary, because Miri and
//! the sanitizers need a long time to compile and to start the binary `tests/it`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

// Under Miri, this binary also contains the random programs of `tests/it`.
#[cfg(miri)]
#[path = "it/hostile.rs"]
mod hostile;

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use procession::*;

/// Returns the builder of a runtime with two workers. Under Miri, each step takes a long time. The threshold for long
/// steps is infinite, so no step is a long step, and no replacement thread starts.
fn two_workers() -> Builder {
    Runtime::builder().workers(2).long_step_threshold(Duration::MAX)
}

/// Creates a runtime with two workers, and runs a scenario on this thread. The scenario owns the runtime and drops it
/// at the end.
fn run_on_two_workers<F: Future>(scenario: impl FnOnce(Runtime) -> F) {
    block_on(scenario(two_workers().build().expect("a runtime")));
}

async fn echo(mut ctx: Context<Reply<u64>>) -> Result<(), Exit> {
    for answer in 0.. {
        ctx.receive().await?.send(answer);
    }
    Ok(())
}

#[test]
fn processes_are_spawned_and_joined() {
    run_on_two_workers(async |rt| {
        let handles: Vec<_> = (0..4).map(|n| rt.spawn(async move |_: Context| Ok::<_, Exit>(vec![n; 3]))).collect();
        drop(rt.spawn(async |_: Context| Ok::<_, Exit>("detached")));
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.await.unwrap(), [n; 3]);
        }
    });
}

#[test]
fn two_senders_send_to_one_mailbox() {
    run_on_two_workers(async |rt| {
        let sum = rt.spawn(async |mut ctx: Context<String>| {
            let mut sum = 0;
            for _ in 0..8 {
                sum += ctx.receive().await?.len();
            }
            Ok::<_, Exit>(sum)
        });
        for _ in 0..2 {
            let to = sum.address().clone();
            drop(rt.spawn(async move |_: Context| (0..4).for_each(|_| to.send("four".to_owned()).unwrap())));
        }
        assert_eq!(sum.await.unwrap(), 32);
    });
}

#[test]
fn a_call_ends_with_an_answer_or_a_failure() {
    run_on_two_workers(async |rt| {
        let server = rt.spawn(echo);
        let to = server.address().clone();
        let client = rt.spawn(async move |_: Context| to.call(|reply| reply).await);
        let own = server.call(|reply| reply).await.unwrap();
        assert_eq!(own + client.await.unwrap(), 1);
        drop(server.call(|reply| reply).start());
        let (call, pid) = (server.call(|reply| reply).start(), server.pid());
        rt.kill(pid).unwrap();
        let _ = call.await;
        assert!(server.await.is_err());
    });
}

struct Double(u64);
impl Command for Double {
    type Reply = u64;
}

#[test]
fn another_thread_completes_or_abandons_a_command() {
    let handler = |Double(n): Double, completion: Completion<u64>| {
        std::thread::spawn(move || if n == 0 { drop(completion) } else { completion.complete(2 * n) });
    };
    let rt = two_workers().handler(handler).build().unwrap();
    let process = rt.spawn(async |ctx: Context| {
        let mut sum = 0;
        for n in 0..3 {
            sum += ctx.perform(Double(n)).await.unwrap_or(100);
            ctx.yield_now().await;
        }
        Ok::<_, Exit>(sum)
    });
    assert_eq!(block_on(process).unwrap(), 106);
}

#[test]
fn a_body_is_replaced_and_the_messages_are_kept() {
    run_on_two_workers(async |rt| {
        let process = rt.spawn(async |mut ctx: Context<String>| -> Result<String, Exit> {
            let first = ctx.receive().await?;
            let new = async move |mut ctx: Context<String>| Ok::<_, Exit>(first + &ctx.receive().await?);
            Err(ctx.upgrade(new).await.1)
        });
        process.send("one ".to_owned()).unwrap();
        process.send("other".to_owned()).unwrap();
        assert_eq!(process.await.unwrap(), "one other");
    });
}

#[test]
fn a_kill_races_with_a_wake_up_and_a_message() {
    run_on_two_workers(async |rt| {
        for _ in 0..2 {
            let held = Arc::new(());
            let own = held.clone();
            let process = rt.spawn(async move |mut ctx: Context<Arc<()>>| {
                let _own = own;
                while ctx.receive().await.is_ok() {}
            });
            let (to, message) = (process.address().clone(), held.clone());
            let sender = rt.spawn(async move |_: Context| drop(to.send(message)));
            rt.kill(process.pid()).unwrap();
            assert!(matches!(process.await, Err(Exit::Killed)));
            sender.await.unwrap();
            assert_eq!(Arc::strong_count(&held), 1);
        }
    });
}

#[test]
fn links_and_monitors_report_an_exit() {
    run_on_two_workers(async |rt| {
        let first = rt.spawn(async |mut ctx: Context<()>| {
            ctx.receive().await?;
            Err::<(), _>(Exit::failed("on purpose"))
        });
        let pid = first.pid();
        let watcher = rt.spawn(async move |mut ctx: Context<()>| {
            let monitor = ctx.monitor(pid);
            ctx.receive().await?;
            Ok::<_, Exit>(monitor)
        });
        let linked = rt.spawn(async move |mut ctx: Context<()>| {
            ctx.link(pid)?;
            first.send(())?;
            ctx.receive().await
        });
        assert!(matches!(linked.await, Err(Exit::Linked { origin, .. }) if origin == pid));
        watcher.send(()).unwrap();
        assert!(watcher.await.is_ok());
    });
}

/// Changes a variable through a reference that is held across `await` points.
async fn count_to_three<M: Send + 'static>(me: &SelfHandle<M>) -> u32 {
    let mut count = 0;
    let count_up = &mut count;
    for _ in 0..3 {
        *count_up += 1;
        me.yield_now().await;
    }
    count
}

/// The runtime must create no shared reference to the future of a body, because the future contains a mutable reference
/// to its own variable.
#[test]
fn a_body_borrows_its_own_variable_while_it_waits() {
    run_on_two_workers(async |rt| {
        let parent = rt.spawn(async |ctx: Context<()>| {
            let body = async |ctx: Context<()>| Ok::<_, Exit>(count_to_three(&ctx).await);
            let (child, _monitor) = ctx.spawn_monitor(body);
            let child = child.await?;
            let limited = ctx.timeout(Duration::from_secs(3_600), count_to_three(&ctx)).await?;
            let cancellable = ctx.run_until_cancelled(cooperative(count_to_three(&ctx))).await?;
            let scoped = ctx.scope(async |scope| scope.spawn(body).await).await?;
            Ok::<_, Exit>([child, limited, cancellable, scoped])
        });
        assert_eq!(parent.await.unwrap(), [3; 4]);
        let replaced = rt.spawn(async |ctx: Context<()>| -> Result<u32, Exit> {
            Err(ctx.upgrade(async |ctx: Context<()>| Ok::<_, Exit>(count_to_three(&ctx).await)).await.1)
        });
        assert_eq!(replaced.await.unwrap(), 3);
    });
}

/// The functions of `tests/it` that the random programs call. Miri runs a test for minutes, so there are no time
/// limits.
#[cfg(miri)]
mod functions_of_it {
    use std::time::Duration;

    use procession::Runtime;

    pub(crate) fn within<T>(_seconds: u64, f: impl FnOnce() -> T) -> T {
        f()
    }

    pub(crate) fn patience() -> u32 {
        1_000
    }

    pub(crate) fn shut_down(rt: Runtime, within: Duration) {
        drop(futures::executor::block_on(rt.shutdown(within)));
        drop(rt);
    }
}
#[cfg(miri)]
pub(crate) use functions_of_it::{patience, shut_down, within};
