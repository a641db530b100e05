//! One round: a fresh runtime, the work once in small to warm it up, the work once with the clocks running. What a
//! runtime is, and with how many threads, is decided here for all workloads.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_executor::Executor;
use cpu_time::ProcessTime;
use futures_lite::future;
use procession::Counters;

/// Whom the work is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Procession,
    Tokio,
    AsyncExecutor,
}

impl Runner {
    /// All, in the order in which they take their turns and stand in the table; ours first.
    pub(crate) const ALL: [Self; 3] = [Self::Procession, Self::Tokio, Self::AsyncExecutor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Procession => "procession",
            Self::Tokio => "tokio",
            Self::AsyncExecutor => "async-executor",
        }
    }
}

/// What one round of one runner cost.
pub(crate) struct Sample {
    /// User and system time of all threads.
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    /// What was counted meanwhile; ours alone counts.
    pub(crate) counters: Option<Counters>,
}

pub(crate) struct Round {
    /// How many operations it does.
    pub(crate) ops: u64,
}

impl Round {
    /// On procession. Its number of workers is the default one.
    pub(crate) fn procession(&self, builder: procession::Builder, work: impl Fn(&procession::Runtime, u64)) -> Sample {
        let rt = builder.build().expect("threads can be started");
        self.warm_up(|ops| work(&rt, ops));
        let before = rt.counters();
        let sample = self.measure(|ops| work(&rt, ops));
        Sample { counters: Some(rt.counters() - before), ..sample }
    }

    /// On tokio's multi-thread runtime, without its drivers: nothing here needs a clock or a socket.
    pub(crate) fn tokio(&self, work: impl Fn(&tokio::runtime::Runtime, u64)) -> Sample {
        let rt = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers())
            .build()
            .expect("threads can be started");
        self.warm_up(|ops| work(&rt, ops));
        self.measure(|ops| work(&rt, ops))
    }

    /// On an executor that is driven by as many threads.
    pub(crate) fn async_executor(&self, work: impl Fn(&Arc<Executor<'static>>, u64)) -> Sample {
        let driven = Driven::new();
        self.warm_up(|ops| work(&driven.executor, ops));
        self.measure(|ops| work(&driven.executor, ops))
    }

    fn warm_up(&self, work: impl Fn(u64)) {
        work((self.ops / 10).max(1));
        // The last operation tells us before its own task is buried, and before the workers have gone to sleep.
        thread::sleep(Duration::from_millis(1));
    }

    fn measure(&self, work: impl Fn(u64)) -> Sample {
        let (cpu, wall) = (ProcessTime::now(), Instant::now());
        work(self.ops);
        Sample { cpu: cpu.elapsed(), wall: wall.elapsed(), counters: None }
    }
}

/// As many as ours has by default.
pub(crate) fn workers() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// An executor and its threads.
struct Driven {
    executor: Arc<Executor<'static>>,
    stop: Option<async_channel::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Driven {
    fn new() -> Self {
        let executor = Arc::new(Executor::new());
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let threads = (0..workers())
            .map(|_| {
                let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
                thread::spawn(move || {
                    let _closed = future::block_on(executor.run(stopped.recv()));
                })
            })
            .collect();
        Self { executor, stop: Some(stop), threads }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            thread.join().expect("no task panics");
        }
    }
}
