//! Observation of a runtime: the states of processes and workers, the `Observer` that is notified of their changes, and
//! the counters.
//!
//! This module only reports. It takes no scheduling decisions.

pub(crate) mod histogram;
pub(crate) mod metrics;

use std::fmt;

pub use crate::observe::histogram::Histogram;
pub use crate::observe::metrics::Counters;
pub(crate) use crate::observe::metrics::{Counter, Metrics, SlotGuard};
use crate::platform::clock::Instant;
use crate::platform::sync::Arc;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// State of a process.
///
/// ```text
///           spawn             a worker takes it
///   (new) ────────▶ Ready ─────────────────────▶ Running ──── done, failed, killed, panicked ───▶ Complete
///                     ▲  ▲                        │  │  │
///                     │  └─ again, woken meanwhile┘  │  │
///                     │ any event, any foreign wake  │  │
///                     ├───────────── Blocked ◀───────┘  │   yields outstanding
///                     └───────────── Idle ◀─────────────┘   nothing outstanding
/// ```
///
/// Any event and any wake-up makes a blocked or an idle process ready. The two states differ only in whether yields are
/// outstanding. Messages to an async body are an exception: a body that does not await its mailbox is not polled for
/// messages. It finds them when it awaits its mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProcessState {
    /// The process waits for a worker.
    Ready,
    /// A worker runs the process.
    Running,
    /// The process waits for an event, and has outstanding yields.
    Blocked,
    /// The process waits for an event, and has no outstanding yields.
    Idle,
    /// The process has exited.
    Complete,
}

impl ProcessState {
    /// Returns the state with this number, as `state as u8` gives it.
    #[inline]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        [ProcessState::Ready, ProcessState::Running, ProcessState::Blocked, ProcessState::Idle, ProcessState::Complete]
            .get(usize::from(number))
            .copied()
    }
}

/// A change of a process's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// The process.
    pub pid: Pid,
    /// The previous state; `None` for a new process.
    pub from: Option<ProcessState>,
    /// The new state.
    pub to: ProcessState,
    /// The worker on which the change happened. `None` on another thread: for example, if a thread outside the runtime
    /// sends a message.
    pub worker: Option<usize>,
    /// Time of the change.
    pub at: Instant,
}

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WorkerState {
    /// The worker runs processes.
    Running,
    /// The worker searches for work.
    Searching,
    /// The worker sleeps until it is woken for new work.
    Parked,
    /// The worker is in a step that takes too long, or that called [`block_in_place`](crate::block_in_place). A
    /// replacement thread may take over its queues. For a long step, the monitor thread reports this state, so the
    /// report may arrive after later changes of the worker.
    Blocked,
}

/// A process failed, and no link, monitor, supervisor or join handle received its exit.
#[derive(Debug, Clone)]
pub(crate) struct Unobserved {
    pub(crate) pid: Pid,
    pub(crate) exit: Exit,
}

impl Unobserved {
    /// The process that failed first, if links passed its exit on.
    pub(crate) fn origin(&self) -> Pid {
        if let Exit::Linked { origin, .. } = self.exit { origin } else { self.pid }
    }
}

impl fmt::Display for Unobserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, exit } = self;
        write!(f, "{pid} {exit}")
    }
}

/// Receives all changes in a runtime while they happen.
///
/// Its methods are called on the thread on which the change happens, concurrently, and in the middle of the scheduler's
/// work. Keep them short, and never block in them. For one process, the calls follow the order of its changes. A panic
/// in a method is caught and ignored.
///
/// An `Arc` of an observer and a `&'static` reference to one are observers too, so the application can read the
/// observer that it gave to the builder.
///
/// ```
/// # use procession::{Observer, ProcessState, Transition};
/// # use std::sync::atomic::{AtomicUsize, Ordering};
/// #[derive(Default)]
/// struct Ended(AtomicUsize);
///
/// impl Observer for Ended {
///     fn transition(&self, t: &Transition) {
///         if t.to == ProcessState::Complete {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[expect(unused_variables, reason = "the names are for whoever writes an observer")]
pub trait Observer: Send + Sync + 'static {
    /// The state of a process changed.
    fn transition(&self, t: &Transition) {}

    /// The state of a worker changed to `state`.
    fn worker(&self, worker: usize, state: WorkerState, at: Instant) {}

    /// A step has run for longer than [`Builder::long_step_threshold`](crate::Builder::long_step_threshold), and still runs. `pid` is its
    /// process, or `None` for a future without a pid. The monitor thread calls this, once per step. Until the step
    /// returns, the state of the worker is [`WorkerState::Blocked`].
    fn blocked(&self, worker: usize, pid: Option<Pid>, at: Instant) {}

    /// A process panicked with this message. By default, a panic has two effects: the process exits, and its observer
    /// is notified. The builder of the runtime can set another policy.
    fn panicked(&self, pid: Pid, message: &str) {}
}

/// Implements the trait for a pointer to an observer. It forwards every method of the trait.
macro_rules! observe_through {
    ($($pointer:ty),*) => {$(
        impl<T: Observer + ?Sized> Observer for $pointer {
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
        }
    )*};
}
observe_through!(Arc<T>, &'static T);
