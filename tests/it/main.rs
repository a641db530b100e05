//! Integration tests of the crate, one file per behaviour. `tests/promises.md` lists the promises of the crate. The doc
//! comment of a test cites the numbers of the promises that the test verifies.

// The lints below restrict the crate, not its tests. Many tests drop a handle on purpose, to detach the process.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::let_underscore_future)]

mod aborts;
mod batches;
mod blocked;
mod cancel;
mod commands;
mod counters;
mod crashes;
mod deadlocks;
mod each_step;
mod embed;
mod erlang;
mod exit_storms;
mod exits;
mod explain;
mod fairness;
mod foreign;
mod full_mailboxes;
mod giver;
mod groups;
mod growth;
mod hooks;
mod hostile;
mod hosts;
mod inspected_churn;
mod inspected_user_code;
mod inspection;
mod joins;
mod large;
mod last_messages;
mod layers;
mod links;
mod lives;
mod local;
mod mail;
mod messages;
mod metrics;
mod misuse;
mod multi_calls;
mod names;
mod options;
mod panics;
mod pools;
mod preemption;
mod priorities;
mod process;
#[cfg(feature = "metrics")]
mod publisher;
mod reentrant;
mod refused;
mod runtimes;
mod scheduling;
mod scopes;
mod server;
mod shutdowns;
mod simulation;
#[cfg(feature = "tracing")]
mod spans;
mod states;
mod storms;
mod streams;
mod subprocess;
mod supervisors;
mod suspension;
#[cfg(unix)]
mod system;
mod time;
mod traces;
mod trees;
mod unanswered;
mod upgrades;
mod urgent;
mod values;
mod verdicts;
mod waits;
mod yield_checks;
mod yields;

use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use procession::Runtime;

/// Factor by which the tests multiply each of their time limits. The environment variable `TEST_PATIENCE` sets the
/// factor. The default factor is 1.
pub fn patience() -> u32 {
    std::env::var("TEST_PATIENCE").map_or(1, |times| times.parse().expect("a number"))
}

/// Runs `f` on a new thread and returns the result of `f`. The time limit is `seconds`, multiplied by the factor
/// [`patience`]. The test fails if `f` has not returned within this time limit. Because of this limit, a lost wake-up
/// cannot block the whole test run forever. Slow environments, for example valgrind, set `TEST_PATIENCE`.
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

/// Returns the builder of a runtime with one worker that never gets a replacement thread. Tests that count turns use
/// this builder. The operating system may suspend the worker for a long time, and the monitor would report this time as
/// a long step. Therefore `long_step_threshold` is infinite.
pub fn alone() -> procession::Builder {
    Runtime::builder().workers(1).long_step_threshold(Duration::MAX)
}

/// Shuts a runtime down and drops the runtime. The drop waits for the threads of the runtime.
pub fn shut_down(rt: Runtime, within: Duration) -> procession::ShutdownReport {
    let report = futures::executor::block_on(rt.shutdown(within));
    drop(rt);
    report
}

/// Returns a runtime with two workers.
pub fn two() -> Runtime {
    Runtime::builder().workers(2).build().expect("a runtime")
}

/// Runs a future on a thread that is not a guest thread, while a runtime with two workers exists. Only the workers run
/// processes.
pub fn on_workers<F>(f: impl FnOnce(procession::Host) -> F + Send + 'static) -> F::Output
where
    F: Future<Output: Send + 'static>,
{
    within(60, move || {
        let rt = two();
        futures::executor::block_on(f(rt.host().clone()))
    })
}

/// Runs a scenario on a runtime with two workers, like [`on_workers`]. After that, runs the scenario in one simulation
/// for each seed in `0..n`. Each seed produces a different order of execution. The environment variable
/// `SIMULATION_SEEDS` sets `n`. The default of `n` is 10.
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

/// Returns `Pending` once, so that the thread can first run every other runnable task.
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
