//! The state that all hosts of a runtime share: phase, pid table, timers, counters, and the functions that queue jobs.
//! A threaded runtime and a simulation create this state with different [`Environment`]s. All other parts of the state
//! are the same.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::task::Waker;

use async_task::Runnable;

use crate::host::control::blocked_step::BlockedSteps;
use crate::host::control::forwarded::ForwardedReplies;
use crate::host::control::suspension::set::SuspendedProcesses;
use crate::host::control::{AnyControl, Control};
use crate::host::inspection::growth::LastSnapshot;
use crate::host::inspection::local_sets::LocalSets;
use crate::host::job::blocking_pool::Pool;
use crate::host::registry::PidTable;
use crate::host::shutdown::report::ShutdownReport;
use crate::host::timer::Timers;
use crate::host::{Deliver, Envelope, Host, PanicPolicy};
use crate::observe::crash::OnCrash;
use crate::observe::exits::ExitHistory;
use crate::observe::snapshot::SchedulerGauges;
use crate::observe::trace::timeline::Gauges;
use crate::observe::{Metrics, Observer};
use crate::platform::clock::Clock;
use crate::platform::poller::SocketWait;
use crate::platform::random::Rng;
use crate::platform::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::platform::sync::{Arc, Event, Mutex};
use crate::process::catch::Held;
use crate::process::pid::Pid;
use crate::process::sparse_slab::SparseSlab;
use crate::process::state::RunnableProcess;
use crate::process::state::wake_source::{SchedulerHandle, WakeSource};
use crate::process::{catch as panic, state as counted};

/// Phase of a runtime. A runtime never returns to an earlier phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Open,
    /// The runtime refuses work from outside, and runs the existing processes.
    Closing,
    /// The runtime refuses all work.
    Closed,
}

/// A unit of work in a queue of the scheduler.
#[derive(Debug)]
pub(crate) enum Job {
    Process(RunnableProcess),
    /// A future that has no pid. A future without a pid is an async handler, or a future from `spawn_future`.
    Future(Runnable<Held<Host>>),
}

impl Job {
    #[inline]
    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Process(ready) => ready.head().host(),
            Self::Future(runnable) => runnable.metadata().get(),
        }
    }
}

/// Queues a job in the scheduler of its host. The `WakeSource` states whether the job was waiting before the call, or
/// has just finished a turn.
pub(crate) type Enqueue = fn(Job, WakeSource<'_>);
/// Queues many new jobs in a scheduler. [`Environment::place`] is the handle of this scheduler.
pub(crate) type EnqueueAll = fn(&SchedulerHandle, Vec<Job>);
/// Returns the current metrics of a scheduler. [`Environment::place`] is the handle of this scheduler.
pub(crate) type ReadGauges = fn(&SchedulerHandle) -> SchedulerGauges;

/// Calls the closure with each operation that waits for a socket. [`Environment::place`] is the handle of the
/// scheduler. The closure must not call user code.
pub(crate) type VisitSockets = fn(&SchedulerHandle, &mut dyn FnMut(SocketWait<'_>));

/// The parts of the state that differ between a threaded runtime and a simulation.
pub(crate) struct Environment {
    pub(crate) pid_table: PidTable<dyn AnyControl, Host>,
    pub(crate) clock: Clock,
    pub(crate) timers: Arc<Timers>,
    /// Thread pool for blocking work. A simulation has no thread pool, and runs blocking work as an ordinary task.
    pub(crate) pool: Option<Pool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) on_panic: PanicPolicy,
    /// Function that receives the crash report of an unobserved exit. For each exit that is counted as `unobserved`,
    /// the runtime calls this function one time. The function runs on the thread that detects the unobserved exit.
    pub(crate) on_crash: OnCrash,
    /// The last abnormal exits.
    pub(crate) exits: ExitHistory,
    /// Number of messages that the runtime records for each process. The value 0 means that the runtime records no
    /// messages. Only a simulation changes this number, before its first spawn.
    pub(crate) last_messages: AtomicUsize,
    pub(crate) schedule: Enqueue,
    pub(crate) schedule_all: EnqueueAll,
    pub(crate) gauges: ReadGauges,
    pub(crate) visit_sockets: VisitSockets,
    /// Handle of the scheduler. `schedule` uses the handle to find the queues of the scheduler.
    pub(crate) place: SchedulerHandle,
    /// Address of the scheduler. A thread compares this address with the address of the thread's own scheduler. If the
    /// addresses are equal, the thread works for this runtime.
    pub(crate) scheduler_address: usize,
    /// Calls its argument inside the context of the tokio runtime that the processes use. If the processes use no tokio
    /// runtime, this function only calls its argument.
    pub(crate) within_context: Box<dyn Fn(&mut dyn FnMut()) + Send + Sync>,
    /// Function that is called after a timer with a new earliest deadline was added. The function notifies the thread
    /// that waits for the earliest deadline.
    pub(crate) rearm: Box<dyn Fn() + Send + Sync>,
    /// Returns whether the runtime has at least one worker. Without a worker, only guests fire timers.
    pub(crate) has_workers: Box<dyn Fn() -> bool + Send + Sync>,
    /// Function that asks a running process to end its turn. The argument is the pid of the process, as one
    /// [word](crate::Pid::word). The function returns false if no worker is running this process.
    pub(crate) preempt: Box<dyn Fn(u64) -> bool + Send + Sync>,
    /// Function that returns values for the counter tracks of a trace. Only the scheduler knows these values.
    pub(crate) trace_gauges: Box<dyn Fn() -> Gauges + Send + Sync>,
    pub(crate) chance: Mutex<Rng>,
}

/// Threshold for the capacity of the list [`Shared::future_wakers`]. Up to this capacity, the list frees no memory.
const KEPT_FUTURE_WAKERS: usize = 4096;

/// The state that all hosts of a runtime share.
pub(crate) struct Shared {
    environment: Environment,
    pub(crate) phase: AtomicU8,
    /// Time in ns at which a shutdown kills the processes that have not exited.
    pub(crate) deadline: AtomicU64,
    /// Report of the shutdown. The value is `None` until the shutdown has ended. Every caller of [`Host::shutdown`]
    /// gets this report.
    pub(crate) report: Mutex<Option<ShutdownReport>>,
    /// List of wakers. The list has one waker for each pending future that belongs to no process. The runtime calls
    /// these wakers when the runtime enters the phase `Closed`.
    pub(crate) future_wakers: Mutex<SparseSlab<Waker, KEPT_FUTURE_WAKERS>>,
    /// Event of a shutdown. The runtime notifies this event in three cases: the last process has exited, a call has set
    /// an earlier deadline, or the shutdown has ended.
    pub(crate) emptied: Event,
    /// Number of running top-level supervisors. A top-level supervisor has no supervisor itself.
    pub(crate) top_level_supervisors: AtomicUsize,
    pub(crate) dead_letter_mailboxes: Mutex<Vec<counted::Weak<Control<Envelope>>>>,
    pub(crate) nodes: Mutex<BTreeMap<u32, Arc<dyn Deliver>>>,
    pub(crate) blocked_steps: BlockedSteps,
    pub(crate) suspended: SuspendedProcesses,
    pub(crate) forwarded: Arc<ForwardedReplies>,
    pub(crate) local_sets: LocalSets,
    /// The lengths of the long mailboxes at the last call of [`Host::explain`].
    pub(crate) mailbox_snapshot: LastSnapshot,
}

impl Shared {
    /// Records that a blocked step of the process `by` may wait for the exit of the process `target`.
    pub(crate) fn note_join(&self, by: Pid, target: Pid) {
        self.blocked_steps.note_join(by, target, |pid| self.pid_table.with(pid, |_| Ok(())).is_some());
    }

    /// Creates the state of a new runtime.
    pub(crate) fn new(environment: Environment) -> Self {
        panic::install_panic_hook();
        Self {
            environment,
            phase: AtomicU8::new(0),
            deadline: AtomicU64::new(u64::MAX),
            report: Mutex::default(),
            future_wakers: Mutex::default(),
            emptied: Event::new(),
            top_level_supervisors: AtomicUsize::new(0),
            dead_letter_mailboxes: Mutex::default(),
            nodes: Mutex::default(),
            blocked_steps: BlockedSteps::default(),
            suspended: SuspendedProcesses::default(),
            forwarded: Arc::default(),
            local_sets: LocalSets::default(),
            mailbox_snapshot: LastSnapshot::default(),
        }
    }

    /// Returns whether each process has the flag `OBSERVED` from its spawn to its exit. This is true if the runtime has
    /// an observer or records the last messages of each process.
    #[inline]
    pub(crate) fn observes_all(&self) -> bool {
        // Each spawn calls this function. Therefore the code evaluates both conditions without a branch.
        self.observer.is_some() | (self.last_messages.load(Ordering::Relaxed) != 0)
    }
}

impl Deref for Shared {
    type Target = Environment;

    #[inline]
    fn deref(&self) -> &Environment {
        &self.environment
    }
}
