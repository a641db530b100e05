//! What the crate promises, by behaviour: a file a behaviour. `tests/promises.md` says which test holds which promise.

// What the crate itself may not use, its tests may; a handle that is dropped detaches, which is often the point.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::let_underscore_future)]

mod aborts;
mod batches;
mod blocked;
mod cancel;
mod commands;
mod counters;
mod each_step;
mod embed;
mod erlang;
mod exit_storms;
mod fairness;
mod foreign;
mod giver;
mod groups;
mod hooks;
mod hostile;
mod hosts;
mod large;
mod layers;
mod links;
mod lives;
mod local;
mod mail;
mod misuse;
mod names;
mod options;
mod panics;
mod pools;
mod preemption;
mod priorities;
mod process;
mod reentrant;
mod refused;
mod scheduling;
mod scopes;
mod server;
mod simulation;
mod states;
mod storms;
mod streams;
mod subprocess;
mod supervisors;
#[cfg(unix)]
mod system;
mod time;
mod trees;
mod upgrades;
mod verdicts;
mod yields;

use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use procession::Runtime;

/// How many times as long as elsewhere everything may take here.
pub fn patience() -> u32 {
    std::env::var("TEST_PATIENCE").map_or(1, |times| times.parse().expect("a number"))
}

/// Runs `f` on a thread of its own and fails if it hangs: a lost wake must not hang the whole run. Where all is slower by
/// far, as under valgrind, `TEST_PATIENCE` says how many times as long it may take.
pub fn within<T: Send + 'static>(seconds: u64, f: impl FnOnce() -> T + Send + 'static) -> T {
    let seconds = seconds * u64::from(patience());
    let (done, result) = mpsc::channel();
    let runner = thread::Builder::new()
        .name(thread::current().name().unwrap_or("test").to_owned())
        .spawn(move || {
            let _ = done.send(f());
        })
        .expect("a thread for the test");
    match result.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => {
            let _ = runner.join();
            result
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs: not done after {seconds} s"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match runner.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it returns"),
        },
    }
}

/// For a runtime with one worker that nobody stands in for, though the machine keep it from its core for long: for tests
/// that count turns.
pub fn alone() -> procession::Builder {
    Runtime::builder().workers(1).long_step(Duration::MAX)
}

/// A runtime with two workers.
pub fn two() -> Runtime {
    Runtime::builder().workers(2).build().expect("a runtime")
}

/// Runs a future on a runtime with two workers, without lending the thread: what the workers don't do is not done.
pub fn on_workers<F>(f: impl FnOnce(procession::Host) -> F + Send + 'static) -> F::Output
where
    F: Future<Output: Send + 'static>,
{
    within(60, move || {
        let rt = two();
        futures::executor::block_on(f(rt.host().clone()))
    })
}

/// Runs a scenario as [`on_workers`] does, and in simulations: each seed is another order, and `SIMULATION_SEEDS` says of
/// how many there are to be.
pub fn everywhere(scenario: impl AsyncFn(procession::Host) + Send + 'static) {
    let seeds = std::env::var("SIMULATION_SEEDS").map_or(10, |seeds| seeds.parse().expect("a number"));
    within(60 + seeds, move || {
        {
            let rt = two();
            futures::executor::block_on(scenario(rt.host().clone()));
        }
        procession::check(0..seeds, scenario);
    });
}

/// Lets whatever else the thread drives have a turn.
pub async fn step_aside() {
    let mut aside = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut aside, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
