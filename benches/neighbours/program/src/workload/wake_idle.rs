//! Latency of a message from another thread to an idle runtime: the time until the receiver of the message runs. An
//! operation is one message to an idle runtime.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use procession::{Context, Runtime};

use super::{Workload, runs};
use crate::actors::{Actor, Actors, Then};
use crate::latch::DONE;
use crate::tasks::Tasks;
use crate::verdict::{Judged, Quantity, Shape, tokio};
use crate::waits::WAITS;

pub(super) const WORKLOADS: &[Workload] = &[Workload {
    name: "wake-idle",
    ops: 2_000,
    shape: Shape::Sequential,
    judged: &[
        Judged { quantity: Quantity::Wait50, bars: &[tokio(0.90)] },
        Judged { quantity: Quantity::Wait99, bars: &[tokio(0.90)] },
    ],
    runs: runs!(ours, tasks: tasks, actors: actors),
}];

/// Pause before each message. The pause is long enough for all workers to park.
const IDLE: Duration = Duration::from_micros(300);

fn awake(sent: Instant) {
    WAITS.add(sent.elapsed());
    DONE.count_down();
}

/// Repeats `n` times: pauses until the runtime is idle, then sends a message.
fn each(n: u64, send: impl Fn(Instant)) {
    for _ in 0..n {
        thread::sleep(IDLE);
        DONE.close(1);
        send(Instant::now());
        DONE.wait();
    }
}

fn ours(rt: &Runtime, n: u64) {
    let sleeper = rt.spawn(async |mut ctx: Context<Instant>| {
        while let Ok(sent) = ctx.receive().await {
            awake(sent);
        }
    });
    each(n, |now| sleeper.send(now).expect("it waits"));
    sleeper.abort();
}

fn tasks<T: Tasks>(on: &T, n: u64) {
    let (sender, mut receiver) = T::channel();
    on.spawn(async move {
        while let Some(sent) = T::receive(&mut receiver).await {
            awake(sent);
        }
    });
    each(n, |now| T::send(&sender, now));
}

struct Sleeper;

impl Actor for Sleeper {
    type Message = Instant;

    fn handle(&mut self, sent: Instant) -> Then {
        awake(sent);
        Then::Next
    }
}

fn actors<A: Actors>(on: &A, n: u64) {
    let (tell, told) = mpsc::channel();
    on.enter(move |on| tell.send(on.spawn(Sleeper)).expect("it is waited for"));
    let sleeper = told.recv().expect("it starts");
    each(n, |now| A::tell::<Sleeper>(&sleeper, now));
}
