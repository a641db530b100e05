//! Measures one round: builds a runtime, does a tenth of the work to warm up the runtime, and then measures the work.
//! This file also configures the runtimes of all workloads.

use std::num::NonZero;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix::System;
use async_executor::{Executor, StaticExecutor};
use cpu_time::ProcessTime;
use futures_lite::future;
use procession::observe::Counters;

use crate::actors::{Actix, ByHand};
use crate::waits::WAITS;

/// Runtime that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    Procession,
    /// procession with hand-written processes.
    ByHand,
    Tokio,
    AsyncExecutor,
    StaticExecutor,
    Actix,
    Kameo,
    Ractor,
}

impl Runner {
    /// All runners, in the order of the table. procession is the first runner.
    pub(crate) const ALL: [Self; 8] = [
        Self::Procession,
        Self::ByHand,
        Self::Tokio,
        Self::AsyncExecutor,
        Self::StaticExecutor,
        Self::Actix,
        Self::Kameo,
        Self::Ractor,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Procession => "procession",
            Self::ByHand => "by-hand",
            Self::Tokio => "tokio",
            Self::AsyncExecutor => "async-executor",
            Self::StaticExecutor => "static-executor",
            Self::Actix => "actix",
            Self::Kameo => "kameo",
            Self::Ractor => "ractor",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Procession | Self::ByHand)
    }

    /// Returns whether the runner can use a second worker. Only actix cannot use a second worker, because actix has a
    /// single arbiter.
    pub(crate) fn is_parallel(self) -> bool {
        self != Self::Actix
    }
}

/// Cost of one round on one runner.
pub(crate) struct Sample {
    /// User and system time of all threads.
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    /// Steals, parks and wakes. Only procession has these counters.
    pub(crate) counts: Option<[u64; 3]>,
    /// Waiting times that the workload recorded, in ascending order.
    pub(crate) waits: Vec<Duration>,
}

pub(crate) struct Round {
    /// Number of operations of the work.
    pub(crate) ops: u64,
    /// Number of repetitions of the work. Short work is repeated, because the clocks are too coarse to measure a single
    /// repetition.
    pub(crate) times: u64,
    /// Number of workers of each runtime. `None` means the default of the runtime.
    pub(crate) workers: Option<usize>,
}

impl Round {
    /// Measures `work` on a procession runtime that `builder` builds. If the round specifies a number of workers, this
    /// number replaces the number that is set in `builder`.
    pub(crate) fn procession(&self, builder: procession::Builder, work: impl Fn(&procession::Runtime, u64)) -> Sample {
        let builder = match self.workers {
            Some(count) => builder.workers(count),
            None => builder,
        };
        let rt = builder.build().expect("threads can be started");
        self.warm_up(|ops| work(&rt, ops));
        let before = rt.counters();
        let sample = self.measure(|ops| work(&rt, ops));
        let Counters { steals_won, parks, wakes, .. } = rt.counters() - before;
        Sample { counts: Some([steals_won, parks, wakes]), ..sample }
    }

    /// Measures `work` on procession with hand-written processes.
    pub(crate) fn by_hand(&self, work: impl Fn(&ByHand, u64)) -> Sample {
        self.procession(procession::Runtime::builder(), |rt, n| work(&ByHand(rt.host().clone()), n))
    }

    /// Measures `work` on tokio's multi-thread runtime without I/O driver and time driver. The measuring thread enters
    /// the runtime before the work begins.
    pub(crate) fn tokio(&self, work: impl Fn(&tokio::runtime::Runtime, u64)) -> Sample {
        self.tokio_built(&mut tokio::runtime::Builder::new_multi_thread(), work)
    }

    /// Measures `work` on tokio's multi-thread runtime with the time driver.
    pub(crate) fn tokio_with_time(&self, work: impl Fn(&tokio::runtime::Runtime, u64)) -> Sample {
        self.tokio_built(tokio::runtime::Builder::new_multi_thread().enable_time(), work)
    }

    fn tokio_built(
        &self,
        builder: &mut tokio::runtime::Builder,
        work: impl Fn(&tokio::runtime::Runtime, u64),
    ) -> Sample {
        let rt = builder.worker_threads(self.workers()).build().expect("threads can be started");
        let _entered = rt.enter();
        self.warm_up(|ops| work(&rt, ops));
        self.measure(|ops| work(&rt, ops))
    }

    /// Measures `work` on an executor. The field `workers` sets the number of threads that drive the executor.
    pub(crate) fn async_executor(&self, work: impl Fn(&Arc<Executor<'static>>, u64)) -> Sample {
        let executor = Arc::new(Executor::new());
        let driven = Arc::clone(&executor);
        let _threads = DriverThreads::new(self.workers(), move |stopped| {
            let _closed = future::block_on(driven.run(stopped.recv()));
        });
        self.warm_up(|ops| work(&executor, ops));
        self.measure(|ops| work(&executor, ops))
    }

    /// Measures `work` on an executor that is leaked and therefore never freed. An executor that is never freed does
    /// not need a list of its tasks.
    pub(crate) fn static_executor(&self, work: impl Fn(&&'static StaticExecutor, u64)) -> Sample {
        let executor = Executor::new().leak();
        let _threads = DriverThreads::new(self.workers(), move |stopped| {
            let _closed = future::block_on(executor.run(stopped.recv()));
        });
        self.warm_up(|ops| work(&executor, ops));
        self.measure(|ops| work(&executor, ops))
    }

    /// Measures `work` on one arbiter of actix, which is one thread.
    pub(crate) fn actix(&self, work: impl Fn(&Actix, u64)) -> Sample {
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runner = System::new();
            tell.send(System::current()).expect("it is waited for");
            runner.run().expect("nothing fails");
        });
        let system = told.recv().expect("it starts");
        let on = Actix(system.arbiter().clone());
        self.warm_up(|ops| work(&on, ops));
        let sample = self.measure(|ops| work(&on, ops));
        system.stop();
        thread.join().expect("no actor panics");
        sample
    }

    /// Measures `work` without a runtime. The work itself starts the threads that it needs.
    pub(crate) fn bare(&self, work: impl Fn(u64)) -> Sample {
        self.warm_up(&work);
        self.measure(work)
    }

    fn warm_up(&self, work: impl Fn(u64)) {
        work((self.ops / 10).max(1));
        // The last operation opens the latch before the task of this operation is freed and before the workers park.
        // During the following sleep, the task is freed and the workers park.
        thread::sleep(Duration::from_millis(1));
        drop(WAITS.take());
    }

    fn measure(&self, work: impl Fn(u64)) -> Sample {
        let (cpu, wall) = (ProcessTime::now(), Instant::now());
        for _ in 0..self.times {
            work(self.ops);
        }
        let (cpu, wall) = (cpu.elapsed(), wall.elapsed());
        Sample { cpu, wall, counts: None, waits: WAITS.take() }
    }

    fn workers(&self) -> usize {
        self.workers.unwrap_or_else(workers)
    }
}

/// Default number of workers of each runtime.
pub(crate) fn workers() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Threads that drive an executor. The drop of this value stops and joins these threads.
struct DriverThreads {
    stop: Option<async_channel::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl DriverThreads {
    fn new(workers: usize, run: impl Fn(async_channel::Receiver<()>) + Clone + Send + 'static) -> Self {
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let threads = (0..workers)
            .map(|_| {
                let (run, stopped) = (run.clone(), stopped.clone());
                thread::spawn(move || run(stopped))
            })
            .collect();
        Self { stop: Some(stop), threads }
    }
}

impl Drop for DriverThreads {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            thread.join().expect("no task panics");
        }
    }
}
