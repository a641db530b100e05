//! Finds the processes that use the most time in a window of time.

use std::borrow::Cow;

use crate::host::Host;
use crate::host::inspection::first_name;
use crate::host::registry::LocalId;
use crate::observe::RunTimeSampler;
use crate::observe::run_times::{RunTimeSource, RunTimeWindow};
use crate::platform::clock::Instant;
use crate::process::pid::Pid;

impl RunTimeSource for Host {
    fn now(&self) -> Instant {
        Host::now(self)
    }

    fn process(&self, word: u64) -> (Pid, Option<Cow<'static, str>>) {
        let table = &self.shared().pid_table;
        let pid = table.pid(LocalId::from(word));
        (pid, table.with(pid, |control| first_name(control.head())).flatten())
    }
}

impl Host {
    /// Begins to collect the run times of the processes, to find the processes that use the most time in a window of
    /// time. The model is `proc_window` of Erlang's `recon`.
    ///
    /// The run times are estimates from the measured turns. The runtime measures one turn in 64, or each turn with
    /// [`Builder::sample_every_step`](crate::Builder::sample_every_step). A turn is counted when it ends. Futures
    /// without a pid, for example of async handlers, are not counted. The collection includes the processes of all
    /// hosts of the runtime. In a [`Simulation`](crate::Simulation), turns take no time, so only their number is useful.
    ///
    /// While a sampler exists, each measured turn takes a lock and searches a table. A sampler keeps at most 4,096
    /// processes: if there are more, it forgets the processes with the shortest times. Therefore the cost of a call
    /// depends neither on the number of processes nor on the length of the window. Several samplers can exist at once.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// # use std::time::Duration;
    /// let rt = Runtime::builder().workers(0).sample_every_step(true).build()?;
    /// let mut sampler = rt.sample_run_times();
    /// let sums = async |ctx: Context| {
    ///     for _ in 0..10 {
    ///         std::hint::black_box((0..10_000_u64).sum::<u64>());
    ///         ctx.yield_now().await;
    ///     }
    /// };
    /// let pid = rt.block_on(rt.spawn(async move |ctx: Context| {
    ///     let child = ctx.process().name("sums").spawn(sums).unwrap();
    ///     let pid = child.pid();
    ///     child.await.map(|()| pid)
    /// }))??;
    /// let times = sampler.take(10);
    /// assert!(times.processes.iter().any(|row| row.pid == pid && row.turns == 11));
    /// println!("{times}");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn sample_run_times(&self) -> RunTimeSampler {
        RunTimeSampler::new(Box::new(self.clone()), self.open_run_time_window())
    }

    /// Opens a table of run times that does not keep the host alive.
    pub(crate) fn open_run_time_window(&self) -> RunTimeWindow {
        let metrics = &self.shared().metrics;
        RunTimeWindow::open(metrics.run_times(), metrics.sampled_one_in(), self.now())
    }
}
