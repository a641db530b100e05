//! Observation of a runtime: the states of processes and workers, the `Observer`, the counters, the histograms, the
//! traces, and the data of inspections.
//!
//! This folder imports `platform` and `process`. The code of this folder only collects and reports data, and makes no
//! scheduling decisions.

pub(crate) mod counters;
pub(crate) mod crash;
pub(crate) mod distributions;
pub(crate) mod exits;
pub(crate) mod explanation;
pub(crate) mod histogram;
pub(crate) mod inspection;
pub(crate) mod metrics;
pub(crate) mod run_times;
pub(crate) mod snapshot;
#[cfg(feature = "tracing")]
mod spans;
pub(crate) mod states;
pub(crate) mod trace;

pub(crate) use crate::observe::counters::Counter;
pub use crate::observe::counters::Counters;
pub use crate::observe::crash::CrashReport;
pub(crate) use crate::observe::distributions::Sampled;
pub use crate::observe::distributions::{CommandTime, Distributions};
pub use crate::observe::exits::ExitRecord;
pub use crate::observe::explanation::{Activity, Explanation, Finding};
pub use crate::observe::histogram::Histogram;
pub use crate::observe::inspection::increases::{Increase, IncreaseSampler, Increases, ProcessCount};
pub use crate::observe::inspection::last_messages::{InspectOptions, LastMessage, MessageCount, MessageKind};
pub use crate::observe::inspection::registered::{GroupInfo, Listing, NameInfo};
pub use crate::observe::inspection::wait_graph::{Deadlock, WaitEdge, WaitForGraph};
pub use crate::observe::inspection::{
    CommandCount, ProcessColumn, ProcessDetails, ProcessInfo, ProcessQuery, RunningStep, WaitsFor,
};
pub(crate) use crate::observe::metrics::{Metrics, OwnCounters, Sampling, SlotGuard, is_sampled_turn, skips_message};
pub use crate::observe::run_times::{ProcessRunTime, RunTimeSampler, RunTimes, TypeRunTime};
#[cfg(feature = "metrics")]
pub use crate::observe::snapshot::publish::MetricsPublisher;
pub use crate::observe::snapshot::{BlockingPoolMetrics, MemoryMetrics, ProcessMetrics, RuntimeMetrics, WorkerMetrics};
#[cfg(feature = "tracing")]
pub use crate::observe::spans::TracingObserver;
pub use crate::observe::states::{ProcessState, WorkerState};
pub use crate::observe::trace::flight::{FlightRecorder, FlightSummary};
pub use crate::observe::trace::handle::{Trace, TraceSummary};
pub use crate::observe::trace::options::TraceOptions;
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// A change of a process's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// The process.
    pub pid: Pid,
    /// The previous state. `None` if the process is new.
    pub from: Option<ProcessState>,
    /// The new state.
    pub to: ProcessState,
    /// The worker whose thread made the change. `None` if another thread made the change, for example a thread outside
    /// the runtime that sent a message.
    pub worker: Option<usize>,
    /// Time of the change.
    pub at: Instant,
}

/// An observer of a runtime. The runtime calls the observer for every state change, at the moment of the change.
///
/// The thread that makes the change calls a method of the observer, and waits until the method returns. Therefore keep
/// the methods short, and never block in them. Several threads may call the methods at the same time. The calls for one
/// process have the same order as the changes of the process. The runtime catches and ignores a panic in a method.
///
/// An `Arc` of an observer and a `&'static` reference to an observer also implement this trait. Therefore an
/// application can pass an `Arc` to the builder, and read the observer through another `Arc`.
///
/// ```
/// # use procession::{Exit, Observer, Pid};
/// # use std::sync::atomic::{AtomicUsize, Ordering};
/// #[derive(Default)]
/// struct Failures(AtomicUsize);
///
/// impl Observer for Failures {
///     fn ended(&self, pid: Pid, name: Option<&str>, type_name: &'static str, exit: &Exit) {
///         if !exit.is_normal() {
///             println!("{pid} {} ended: {exit}", name.unwrap_or(type_name));
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[expect(unused_variables, reason = "the names document the parameters")]
pub trait Observer: Send + Sync + 'static {
    /// A process was spawned. `type_name` is the type name of the process's code: the [`Process`](crate::Process) type,
    /// or the type of an async body's function or closure. `name` is the name that the
    /// [builder](crate::ProcessBuilder::name) of the process registered. The process has not run yet, so `name` is
    /// never a name that the process itself has registered. For each process, the runtime calls this method first,
    /// before the runtime calls [`transition`](Self::transition).
    fn started(&self, pid: Pid, name: Option<&str>, type_name: &'static str) {}

    /// A process has failed. The report contains the exit, the pid, the name, the type and the parent of the process,
    /// the number of its unread messages, at most 16 linked processes, and the last messages. The runtime calls this
    /// method even if a supervisor, a link, a monitor or a join handle receives the exit. An unobserved failure also
    /// reaches the function of [`Builder::on_crash`](crate::Builder::on_crash), with the same text: see
    /// [`CrashReport`]. The runtime does not call this method for a normal exit, a cancellation or a kill. The next
    /// call for this process is [`ended`](Self::ended).
    fn crashed(&self, report: &CrashReport) {}

    /// A process has exited. The mailbox of the process is closed, the state of the process is dropped, and the pid and
    /// the names of the process are released. `name` is the name of the process. If the process had several names,
    /// `name` is the name that the process registered first. Links, monitors and the join handle receive the exit after
    /// this call. This call is the last call for the process, after the transition to [`ProcessState::Complete`].
    fn ended(&self, pid: Pid, name: Option<&str>, type_name: &'static str, exit: &Exit) {}

    /// The state of a process changed.
    fn transition(&self, t: &Transition) {}

    /// The state of a worker changed to `state`. The worker calls this method, with one exception: the monitor thread
    /// reports [`WorkerState::Blocked`] for a long step. If the step returns during this call, the worker waits until
    /// this method and [`blocked`](Self::blocked) have returned. Therefore these two methods must not wait for this
    /// worker.
    fn worker(&self, worker: usize, state: WorkerState, at: Instant) {}

    /// A step has run for longer than the [long-step threshold](crate::Builder::long_step_threshold), and has not
    /// returned yet. `pid` is the process of the step. `pid` is `None` for a future without a pid, for a waker of
    /// another executor, and for a function of [`Builder::on_thread_park`](crate::Builder::on_thread_park) or
    /// [`on_thread_unpark`](crate::Builder::on_thread_unpark). The monitor thread calls this method once per step.
    /// Until the step returns, the state of the worker is [`WorkerState::Blocked`].
    fn blocked(&self, worker: usize, pid: Option<Pid>, at: Instant) {}

    /// A process panicked with this message. The process exits after the panic.
    /// [`Builder::on_panic`](crate::Builder::on_panic) determines what the runtime does in addition to this exit.
    fn panicked(&self, pid: Pid, message: &str) {}

    /// A child of this supervisor has exited, and the supervisor is about to restart the child. `child` is the name of
    /// the child, or `number n` for a child without a name. `exit` is the exit of the last instance. The supervisor
    /// calls this method during a step of the supervisor. If the strategy also restarts other children, the supervisor
    /// calls the method for each of these children.
    fn restarted(&self, supervisor: Pid, child: &str, exit: &Exit) {}
}

/// Implements the trait for a pointer to an observer, and forwards every method of the trait.
macro_rules! observe_through {
    ($($pointer:ty),*) => {$(
        impl<T: Observer + ?Sized> Observer for $pointer {
            fn started(&self, pid: Pid, name: Option<&str>, type_name: &'static str) {
                (**self).started(pid, name, type_name);
            }

            fn crashed(&self, report: &CrashReport) {
                (**self).crashed(report);
            }

            fn ended(&self, pid: Pid, name: Option<&str>, type_name: &'static str, exit: &Exit) {
                (**self).ended(pid, name, type_name, exit);
            }

            fn transition(&self, t: &Transition) {
                (**self).transition(t);
            }

            fn worker(&self, worker: usize, state: WorkerState, at: Instant) {
                (**self).worker(worker, state, at);
            }

            fn blocked(&self, worker: usize, pid: Option<Pid>, at: Instant) {
                (**self).blocked(worker, pid, at);
            }

            fn panicked(&self, pid: Pid, message: &str) {
                (**self).panicked(pid, message);
            }

            fn restarted(&self, supervisor: Pid, child: &str, exit: &Exit) {
                (**self).restarted(supervisor, child, exit);
            }
        }
    )*};
}
observe_through!(Arc<T>, &'static T);
