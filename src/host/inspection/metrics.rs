//! Reads all metrics of the runtime into one snapshot.

use crate::host::Host;
use crate::host::control::Head;
use crate::host::inspection::process;
use crate::observe::snapshot::{MemoryMetrics, ProcessMetrics, RuntimeMetrics};
use crate::observe::{Sampled, is_sampled_turn};
use crate::platform::alloc;
use crate::process::event::Tag;
use crate::process::mailbox::MessageTimer;

impl Head {
    /// Measures a yield of this process, if this thread runs a sampled turn. The caller has just added the yield to the
    /// table of yields.
    #[inline]
    pub(crate) fn measure_yield(&self, tag: Tag) {
        if is_sampled_turn() {
            self.yields().measure(tag, self.host().sampled_now());
        }
    }
}

impl Host {
    /// Returns the present time in ns if this thread runs a sampled turn, and 0 otherwise. If the result is not 0, the
    /// caller measures the calls and commands that begin now.
    #[inline]
    pub(crate) fn sampled_now(&self) -> u64 {
        if is_sampled_turn() { self.sampling_now() } else { 0 }
    }

    #[cold]
    fn sampling_now(&self) -> u64 {
        self.now().ns().max(1)
    }

    /// Decides whether to measure the time that a message stays in its mailbox. Returns a timer if the decision is yes.
    /// The caller has already called [`skips_message`](crate::observe::skips_message), which has returned false.
    #[cold]
    pub(crate) fn message_timer(&self) -> Option<MessageTimer> {
        let shared = self.shared();
        // If a thread outside the run of a simulation sends a message to the simulation, the message is not measured.
        // The sampling state of a thread outside the run depends on the other messages of this thread, but equal runs
        // of a simulation must measure the same messages.
        if shared.timers.clock().is_virtual() && shared.metrics.worker().is_none() {
            return None;
        }
        if !shared.metrics.measures_message() {
            return None;
        }
        // The timer may be dropped under the lock of the mailbox. This drop never releases the last reference to the
        // host, because the control block of the mailbox also holds a reference.
        let (since, host) = (self.sampling_now(), self.clone());
        Some(MessageTimer::new(move || {
            host.shared().metrics.sample(Sampled::MailboxTime, host.now().ns().saturating_sub(since));
        }))
    }

    /// Records the duration of a call that began at the time `since`. `since` is a result of
    /// [`sampled_now`](Self::sampled_now), and is not 0.
    #[cold]
    pub(crate) fn sample_call(&self, since: u64) {
        self.shared().metrics.sample(Sampled::CallTime, self.now().ns().saturating_sub(since));
    }

    /// Records the duration of a command that was yielded at the time `since`. `since` is a result of
    /// [`sampled_now`](Self::sampled_now), and is not 0.
    #[cold]
    pub(crate) fn sample_command(&self, command: &'static str, since: u64) {
        self.shared().metrics.sample_command(command, self.now().ns().saturating_sub(since));
    }

    /// Returns a snapshot of all metrics of the runtime. The metrics include all hosts of the runtime. The snapshot
    /// contains:
    ///
    /// - the exact counters and the sampled durations;
    /// - the lengths of the queues;
    /// - the workers and the processes, by state;
    /// - the messages and signals in the mailboxes;
    /// - the memory that the crate uses.
    ///
    /// To get the counts and durations of a period, take a snapshot at its beginning and a snapshot at its end. Then
    /// subtract the earlier snapshot from the later snapshot.
    ///
    /// Any thread can make this call, even during a step. The call never stops a worker.
    ///
    /// The call locks and reads each entry of the pid table, and takes about 50 ns for each process. Therefore, call
    /// `metrics` only every few seconds, for example for a monitoring system. If you need only the exact counts, for
    /// example in a test, call [`counters`](Self::counters). The duration of `counters` does not depend on the number
    /// of processes.
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
        let gauges = (shared.gauges)(&shared.place);
        let (mut processes, mut mailboxes) = (ProcessMetrics::default(), 0);
        shared.pid_table.visit(|control| {
            let figures = control.mailbox_figures();
            mailboxes += figures.bytes;
            if let Some((head, _)) = process(control) {
                let yields = head.yields_if_any().map_or(0, |yields| yields.outstanding());
                processes.add(head.state(), figures.messages, figures.signals, yields);
            }
            Ok(())
        });
        RuntimeMetrics {
            counters: shared.metrics.counters(),
            distributions: shared.metrics.distributions(),
            // The time is read after the counters. Therefore all counted operations have happened before this time.
            elapsed: std::time::Duration::from_nanos(self.now().ns()),
            workers: gauges.workers,
            global_queue_depth: gauges.global_queue_depth,
            priority_queue_depth: gauges.priority_queue_depth,
            processes,
            blocking_pool: shared.pool.as_ref().map(|pool| pool.figures()).unwrap_or_default(),
            timers: shared.timers.len(),
            sockets: gauges.sockets,
            memory: MemoryMetrics {
                blocks: alloc::bytes_held(),
                pid_table: shared.pid_table.bytes(),
                mailboxes,
                timers: shared.timers.bytes(),
                global_queue: gauges.global_queue_bytes,
                metrics: shared.metrics.bytes(),
                traces: shared.metrics.recorder().bytes(),
            },
        }
    }
}
