//! Finds the processes for which a count has increased most in a time window.

use crate::host::Host;
use crate::host::inspection::select;
use crate::observe::inspection::increases::RowSource;
use crate::observe::{IncreaseSampler, ProcessCount, ProcessInfo, ProcessQuery};
use crate::platform::clock::Instant;

impl RowSource for Host {
    fn now(&self) -> Instant {
        Host::now(self)
    }

    fn len(&self) -> usize {
        self.shared().pid_table.len()
    }

    fn rows(&self, visit: &mut dyn FnMut(ProcessInfo)) {
        let all = ProcessQuery::new();
        self.shared().pid_table.visit(|control| {
            if let Some(row) = select(control, &all)? {
                visit(row);
            }
            Ok(())
        });
    }
}

impl Host {
    /// Returns a sampler that measures how much one count, for example the number of steps, increases for each process.
    /// [`IncreaseSampler::take`] returns the processes with the largest increases in a time window, like
    /// `recon:proc_window` in Erlang. For example, the sampler finds the processes with the most steps, or the processes
    /// whose mailboxes have grown most.
    ///
    /// To find the processes with the most run time, call [`sample_run_times`](Self::sample_run_times).
    ///
    /// The sampler compares the counts at the start and at the end of the window. Between the start and the end, the
    /// sampler does no work, and needs 16 bytes for each process. A process that starts within the window counts from 0.
    /// A process that exits before the call of `take` is not in the result. The sampler reads the processes of all hosts
    /// of the runtime, and reads each process at a different moment, as [`processes`](Self::processes) does.
    ///
    /// ```
    /// # use procession::observe::ProcessCount;
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let slow = rt.spawn(async |_: Context<u8>| std::future::pending::<()>().await);
    /// let mut sampler = rt.sample_increases(ProcessCount::MailboxLen);
    /// for number in 0..3 {
    ///     slow.send(number)?;
    /// }
    /// let increases = sampler.take(10);
    /// assert_eq!((increases.processes[0].process.pid, increases.processes[0].by), (slow.pid(), 3));
    /// println!("{increases}");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn sample_increases(&self, count: ProcessCount) -> IncreaseSampler {
        IncreaseSampler::new(Box::new(self.clone()), count)
    }
}
