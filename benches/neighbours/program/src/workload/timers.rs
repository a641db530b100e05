//! Timers: many concurrent sleeps, timers that are cancelled before they fire, and the lateness of sleeps. tokio uses
//! its own timers, and async-executor uses the timers of async-io. An operation is one timer.

use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use async_executor::Executor;
use futures_lite::future::poll_fn;
use procession::Runtime;

use super::Workload;
use crate::latch::DONE;
use crate::round::{Round, Runner};
use crate::tasks::{Tasks, Tokio};
use crate::verdict::{Judged, Quantity, Shape, best, cpu, tokio};
use crate::waits::WAITS;

/// Builds `runs`: the first function is for procession, and the second function is for the other runtimes.
macro_rules! runs {
    ($ours:expr, $theirs:expr) => {
        &[
            (Runner::Procession, |round| round.procession(procession::Runtime::builder(), $ours)),
            (Runner::Tokio, |round: &Round| round.tokio_with_time(|_, n| $theirs(&Tokio, n))),
            (Runner::AsyncExecutor, |round| round.async_executor($theirs)),
        ]
    };
}

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "sleep",
        ops: 1_000_000,
        shape: Shape::Parallel,
        judged: &[cpu(&[best(0.60)])],
        runs: runs!(ours_sleep, sleep),
    },
    Workload {
        name: "timer-fire",
        ops: 1_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[best(0.60)])],
        runs: runs!(ours_fire, fire),
    },
    Workload {
        name: "timer-cancel",
        ops: 2_000_000,
        shape: Shape::Sequential,
        judged: &[cpu(&[best(0.30)])],
        runs: runs!(ours_cancel, cancel),
    },
    Workload {
        name: "lateness",
        ops: 20_000,
        shape: Shape::Sequential,
        judged: &[
            Judged { quantity: Quantity::Wait50, bars: &[tokio(1.00)] },
            Judged { quantity: Quantity::Wait99, bars: &[tokio(1.00)] },
        ],
        runs: runs!(ours_late, late),
    },
];

/// A task runtime with timers.
trait Timers: Tasks {
    fn sleep(time: Duration) -> impl Future + Send;
}

impl Timers for Tokio {
    fn sleep(time: Duration) -> impl Future + Send {
        tokio::time::sleep(time)
    }
}

impl Timers for Arc<Executor<'static>> {
    fn sleep(time: Duration) -> impl Future + Send {
        async_io::Timer::after(time)
    }
}

/// Returns the i-th number of a pseudorandom sequence. All numbers are less than `below`. The sequence is the same in
/// each round.
fn scattered(i: u64, below: u64) -> u64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % below
}

// ---- A million concurrent sleeps, each in its own task. All sleeps are due within two seconds, and about 500 sleeps
// are due in each millisecond.

fn nap(i: u64, n: u64) -> Duration {
    Duration::from_micros(scattered(i, n * 2))
}

fn ours_sleep(rt: &Runtime, n: u64) {
    DONE.close(n);
    drop(rt.spawn(async move |ctx: procession::Context| {
        for i in 0..n {
            drop(ctx.spawn(async move |ctx: procession::Context| {
                ctx.sleep(nap(i, n)).await;
                DONE.count_down();
            }));
        }
    }));
    DONE.wait();
}

fn sleep<T: Timers>(on: &T, n: u64) {
    DONE.close(n);
    let inside = on.clone();
    on.spawn(async move {
        for i in 0..n {
            inside.spawn(async move {
                T::sleep(nap(i, n)).await;
                DONE.count_down();
            });
        }
    });
    DONE.wait();
}

// ---- The same timers without the tasks. One task creates all timers. All timers share one waker, which counts the
// timers that fire. When all timers have fired, the task drops the timers.

struct CountingWaker;

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        DONE.count_down();
    }
}

/// Returns a delay of at least one second. The task needs this time to create all timers before the first timer is due.
fn alarm(i: u64, n: u64) -> Duration {
    Duration::from_secs(1) + nap(i, n)
}

/// Polls all sleeps once.
fn poll_all<F: Future>(sleeps: impl Iterator<Item = F>) -> Vec<Pin<Box<F>>> {
    let waker = Waker::from(Arc::new(CountingWaker));
    let mut live: Vec<_> = sleeps.map(Box::pin).collect();
    for sleep in &mut live {
        if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            // On a slow runtime, this timer is due before the loop polls the timer for the first time. A timer that is
            // due before the first poll does not call the waker.
            DONE.count_down();
        }
    }
    live
}

fn ours_fire(rt: &Runtime, n: u64) {
    DONE.close(n);
    let (send, receive) = mpsc::channel();
    drop(rt.spawn(async move |ctx: procession::Context| {
        let live = poll_all((0..n).map(|i| ctx.host().sleep(alarm(i, n))));
        send.send(live).expect("it is received");
    }));
    DONE.wait();
    drop(receive.recv());
}

fn fire<T: Timers>(on: &T, n: u64) {
    DONE.close(n);
    let (send, receive) = mpsc::channel();
    on.spawn(async move {
        let live = poll_all((0..n).map(|i| T::sleep(alarm(i, n))));
        send.send(live).expect("it is received");
    });
    DONE.wait();
    drop(receive.recv());
}

// ---- Timers with a delay of some seconds are set and cancelled, while 1,000 other timers wait. A program sets and
// cancels a timer in this way when an operation completes before the timeout of the operation.

const LIVE: u64 = 1_000;

fn limit(i: u64) -> Duration {
    Duration::from_millis(1_000 + scattered(i, 9_000))
}

/// Polls the sleep once, and then drops the sleep.
async fn poll_and_drop(sleep: impl Future) {
    let mut sleep = pin!(sleep);
    poll_fn(|cx| {
        assert!(sleep.as_mut().poll(cx).is_pending(), "it takes a second at least");
        Poll::Ready(())
    })
    .await;
}

/// Polls all sleeps once.
async fn start<F: Future>(sleeps: impl Iterator<Item = F>) -> Vec<Pin<Box<F>>> {
    let mut live: Vec<_> = sleeps.map(Box::pin).collect();
    poll_fn(|cx| {
        assert!(live.iter_mut().all(|sleep| sleep.as_mut().poll(cx).is_pending()), "they take an hour");
        Poll::Ready(())
    })
    .await;
    live
}

/// Returns a delay of more than an hour.
fn long(i: u64) -> Duration {
    Duration::from_secs(3_600 + i)
}

fn ours_cancel(rt: &Runtime, n: u64) {
    DONE.close(1);
    drop(rt.spawn(async move |ctx: procession::Context| {
        let live = start((0..LIVE).map(|i| ctx.sleep(long(i)))).await;
        for i in 0..n {
            poll_and_drop(ctx.sleep(limit(i))).await;
        }
        drop(live);
        DONE.count_down();
    }));
    DONE.wait();
}

fn cancel<T: Timers>(on: &T, n: u64) {
    DONE.close(1);
    on.spawn(async move {
        let live = start((0..LIVE).map(|i| T::sleep(long(i)))).await;
        for i in 0..n {
            poll_and_drop(T::sleep(limit(i))).await;
        }
        drop(live);
        DONE.count_down();
    });
    DONE.wait();
}

// ---- Lateness of sleeps in a runtime that is mostly idle: 100 tasks sleep for some milliseconds, repeatedly.
// procession and tokio have ticks of a millisecond, so their average lateness is at least half a millisecond. async-io
// uses the exact deadline.

const SLEEPERS: u64 = 100;

fn short(i: u64) -> Duration {
    Duration::from_micros(1_000 + scattered(i, 9_000))
}

fn wake(due: Instant) {
    let late = Instant::now().checked_duration_since(due);
    WAITS.add(late.expect("no sleep ends early"));
}

fn ours_late(rt: &Runtime, n: u64) {
    DONE.close(SLEEPERS);
    for sleeper in 0..SLEEPERS {
        drop(rt.spawn(async move |ctx: procession::Context| {
            for i in (sleeper..n).step_by(SLEEPERS as usize) {
                let due = Instant::now() + short(i);
                ctx.sleep(short(i)).await;
                wake(due);
            }
            DONE.count_down();
        }));
    }
    DONE.wait();
}

fn late<T: Timers>(on: &T, n: u64) {
    DONE.close(SLEEPERS);
    for sleeper in 0..SLEEPERS {
        on.spawn(async move {
            for i in (sleeper..n).step_by(SLEEPERS as usize) {
                let due = Instant::now() + short(i);
                T::sleep(short(i)).await;
                wake(due);
            }
            DONE.count_down();
        });
    }
    DONE.wait();
}
