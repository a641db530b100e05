//! What can be seen from outside while processes run: the states of processes and workers, the `Observer` that hears of
//! their changes, and the counters. It only tells; nothing here decides anything.

pub(crate) mod histogram;
pub(crate) mod metrics;

use std::fmt;

pub use crate::observe::histogram::Histogram;
pub use crate::observe::metrics::Counters;
pub(crate) use crate::observe::metrics::{Counter, Metrics, SlotGuard};
use crate::platform::clock::Instant;
use crate::process::exit::Exit;
use crate::process::pid::Pid;

/// What a process is doing.
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
/// Any event and any foreign wake makes a blocked or an idle process ready: the two names only say whether yields are
/// outstanding. An async body is the exception for messages: one that does not await its mailbox is not polled for them,
/// and finds them there when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum State {
    /// Waiting for a worker.
    Ready,
    /// On a worker.
    Running,
    /// Waiting for an event, with yields outstanding.
    Blocked,
    /// Waiting for an event, with nothing outstanding.
    Idle,
    /// Ended.
    Complete,
}

impl State {
    /// The state with this number, as `state as u8` gives it.
    #[inline]
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        [State::Ready, State::Running, State::Blocked, State::Idle, State::Complete].get(usize::from(number)).copied()
    }
}

/// One process went from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition {
    /// Which process.
    pub pid: Pid,
    /// The state that it left; `None` if it is new.
    pub from: Option<State>,
    /// The state that it is in now.
    pub to: State,
    /// On which worker this happened; `None` if on a thread that is not one, as a send from outside is.
    pub worker: Option<usize>,
    /// When.
    pub at: Instant,
}

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WorkerState {
    /// Running processes.
    Running,
    /// Looking for work.
    Searching,
    /// Asleep until somebody has work for it.
    Parked,
    /// In a step that keeps it longer than it should, or that said so by [`block_in_place`](crate::block_in_place); a
    /// substitute may stand in for it. The monitor's thread tells of it: that may come after what the worker does next.
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
        write!(f, "{pid} {exit}")?;
        match exit.panic_location() {
            Some(location) => write!(f, " (at {location})"),
            None => Ok(()),
        }
    }
}

/// Hears of everything that happens in a runtime, while it happens.
///
/// Its methods are called on whichever thread the change happens on, several at once, in the middle of the scheduler's
/// work: keep them short, and never block in them. For one process the calls come in the order of its changes. A panic
/// in one is caught and goes no further.
///
/// ```
/// # use procession::{Observer, State, Transition};
/// # use std::sync::atomic::{AtomicUsize, Ordering};
/// #[derive(Default)]
/// struct Ended(AtomicUsize);
///
/// impl Observer for Ended {
///     fn transition(&self, t: &Transition) {
///         if t.to == State::Complete {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
#[expect(unused_variables, reason = "the names are for whoever writes an observer")]
pub trait Observer: Send + Sync + 'static {
    /// A process went from one state to another.
    fn transition(&self, t: &Transition) {}

    /// A worker went to this state.
    fn worker(&self, worker: usize, state: WorkerState, at: Instant) {}

    /// A step has kept this worker for longer than [`Builder::long_step`](crate::Builder::long_step), and still does: that
    /// of this process, or of a future without a pid. Called on the monitor's thread, once for a step. It is in this state
    /// until the step returns: [`WorkerState::Blocked`].
    fn blocked(&self, worker: usize, pid: Option<Pid>, at: Instant) {}

    /// A process panicked, with this message. This is what a runtime does about a panic unless it was built with another
    /// policy: the process ends, and its observer is told.
    fn panicked(&self, pid: Pid, message: &str) {}
}
