//! Reads all figures of the runtime into one snapshot.

use crate::host::Host;
use crate::host::control::Head;
use crate::host::inspection::process;
use crate::observe::snapshot::{MemoryMetrics, ProcessMetrics, RuntimeMetrics, SchedulerGauges};
use crate::observe::{Sampled, is_sampled_turn};
use crate::platform::alloc;
use crate::process::event::Tag;

impl Head {
    /// Measures a yield of this process that has just entered the table of yields, if this thread runs a sampled turn.
    #[inline]
    pub(crate) fn measure_yield(&self, tag: Tag) {
        if is_sampled_turn() {
            self.yields().measure(tag, self.host().sampled_now());
        }
    }
}

impl Host {
    /// Returns the present time in ns if this thread runs a sampled turn, and 0 otherwise. The calls and commands that
    /// begin now are measured if the result is not 0.
    #[inline]
    pub(crate) fn sampled_now(&self) -> u64 {
        if is_sampled_turn() { self.sampling_now() } else { 0 }
    }

    #[cold]
    fn sampling_now(&self) -> u64 {
        self.now().ns().max(1)
    }

    /// Records the time of a call that began at `since`, a result of [`sampled_now`](Self::sampled_now) that is not 0.
    #[cold]
    pub(crate) fn sample_call(&self, since: u64) {
        self.shared().metrics.sample(Sampled::CallTime, self.now().ns().saturating_sub(since));
    }

    /// Records the time of a command that was yielded at `since`, a result of [`sampled_now`](Self::sampled_now) that is
    /// not 0.
    #[cold]
    pub(crate) fn sample_command(&self, command: &'static str, since: u64) {
        self.shared().metrics.sample_command(command, self.now().ns().saturating_sub(since));
    }

    /// Returns a snapshot of all figures of the runtime: the exact counters, the sampled durations, the depths of the
    /// queues, the workers and processes by state, the mailboxes, and the memory of the crate. The figures include all
    /// hosts of the runtime. Subtract an earlier snapshot to get the counts and durations between the two snapshots.
    ///
    /// The call can be made on any thread, also in a step, and never stops a worker. The call reads each entry of the
    /// pid table under the lock of the entry, and takes about 50 ns per process. Therefore, call it every few seconds,
    /// for example for a monitoring system. If you need only the exact counts, for example in a test, call
    /// [`counters`](Self::counters). The duration of that call does not depend on the number of processes.
    ///
    /// ```
    /// # use procession::{Context, Runtime};
    /// let rt = Runtime::builder().workers(0).build()?;
    /// let before = rt.metrics();
    /// let slow = rt.spawn(async |_: Context<u8>| std::future::pending::<()>().await);
    /// slow.send(1)?;
    /// let since = rt.metrics() - before;
    /// assert_eq!((since.counters.messages, since.processes.mailbox_messages), (1, 1));
    /// println!("{since}");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn metrics(&self) -> RuntimeMetrics {
        let shared = self.shared();
        let SchedulerGauges { workers, global_queue_depth, priority_queue_depth, global_queue_bytes } =
            (shared.gauges)(&shared.place);
        let mut processes = ProcessMetrics::default();
        shared.pid_table.visit(|control| {
            if let Some((head, _)) = process(control) {
                let figures = control.mailbox_figures();
                let yields = head.yields_if_any().map_or(0, |yields| yields.outstanding());
                processes.add(head.state(), figures.messages, figures.signals, yields);
            }
            Ok(())
        });
        RuntimeMetrics {
            counters: shared.metrics.counters(),
            distributions: shared.metrics.distributions(),
            // The time is read after the counters. Therefore the counted operations lie within this time.
            elapsed: std::time::Duration::from_nanos(self.now().ns()),
            workers,
            global_queue_depth,
            priority_queue_depth,
            processes,
            blocking_pool: shared.pool.as_ref().map(|pool| pool.figures()).unwrap_or_default(),
            timers: shared.timers.len(),
            memory: MemoryMetrics {
                blocks: alloc::bytes_held(),
                pid_table: shared.pid_table.bytes(),
                timers: shared.timers.bytes(),
                global_queue: global_queue_bytes,
                metrics: shared.metrics.bytes(),
            },
        }
    }
}
