//! Finds the processes that use the most time in a time window.

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
    /// Begins to collect the run times of the processes. The result is a sampler that returns the processes with the
    /// most run time in a time window, like `recon:proc_window` in Erlang.
    ///
    /// Run time is elapsed time, not CPU time. The runtime measures one turn in 64, and estimates the time of the other
    /// turns. With [`Builder::sample_every_step`](crate::Builder::sample_every_step), the runtime measures each turn.
    /// The full length of a turn is added to the window in which the turn ends. Therefore a step in progress is not
    /// included: to find such a step, call [`explain`](Self::explain). Futures without a pid are not counted, for
    /// example the futures of async handlers. If a turn calls [`Runtime::block_on`](crate::Runtime::block_on), the time
    /// of this turn contains the turns that run inside `block_on`. The collection includes the processes of all hosts
    /// of the runtime. In a [`Simulation`](crate::Simulation), turns take no time, so only the number of turns is
    /// useful.
    ///
    /// For each measured turn, the runtime takes a lock, and searches one table for each sampler. A sampler keeps at
    /// most 4,096 processes. If a full sampler must add a process, the sampler first removes half of its processes,
    /// namely the processes with the shortest times. If a removed process is added again, the time of the process
    /// begins at zero. Because a sampler keeps at most 4,096 processes, [`take`](crate::observe::RunTimeSampler::take)
    /// sorts at most 4,096 processes, even after a long window.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().workers(0).sample_every_step(true).build()?;
    /// let mut sampler = rt.sample_run_times();
    /// let sums = async |ctx: Context| {
    ///     for _ in 0..10 {
    ///         std::hint::black_box((0..10_000_u64).sum::<u64>());
    ///         ctx.yield_now().await;
    ///     }
    /// };
    /// let process = rt.process().name("sums").spawn(sums)?;
    /// let pid = process.pid();
    /// rt.block_on(process)?;
    /// # rt.block_on(rt.spawn(async |_: Context| ()))?;
    /// let times = sampler.take(10);
    /// assert!(times.processes.iter().any(|row| row.pid == pid && row.turns == 11));
    /// println!("{times}");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn sample_run_times(&self) -> RunTimeSampler {
        RunTimeSampler::new(Box::new(self.clone()), self.open_run_time_window())
    }

    /// Opens a [`RunTimeWindow`], which collects run times from now on. The window does not keep the host alive.
    pub(crate) fn open_run_time_window(&self) -> RunTimeWindow {
        let metrics = &self.shared().metrics;
        RunTimeWindow::open(metrics.run_times(), metrics.sampled_one_in(), self.now())
    }
}
