//! The limits on the resources of one process, and the meter of the resources that the process has used.
//!
//! The mailbox enforces the limit on messages. The task of the process updates the meter before and after each step.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::process::exit::Exit;

/// Limits on the steps, the running time and the queued messages of one process. Default: no limit.
///
/// The limits of a host apply to each process that is spawned on this host.
/// [`ProcessBuilder::limits`](crate::ProcessBuilder::limits) sets the limits of one process. If the host and the
/// builder both set a limit, the lower limit applies.
///
/// If a process exceeds its limit on steps or time, the process exits with [`Exit::Failed`]. The error of this exit is
/// a [`LimitExceeded`]. If the limit on messages is reached, a send fails with
/// [`SendErrorKind::Full`](crate::SendErrorKind::Full) and returns the message.
///
/// ```
/// # use procession::{Context, LimitExceeded, Limits, Runtime};
/// let rt = Runtime::new()?;
/// let endless = rt.process().limits(Limits::new().steps(100)).spawn(async |ctx: Context| {
///     loop {
///         ctx.yield_now().await;
///     }
///     #[expect(unreachable_code)]
///     ()
/// })?;
/// let exit = rt.block_on(endless).unwrap_err();
/// assert_eq!(exit.error::<LimitExceeded>(), Some(&LimitExceeded::Steps(100)));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    steps: Option<u64>,
    time: Option<Duration>,
    mail: Option<usize>,
}

impl Limits {
    /// Creates a set of limits that contains no limit.
    pub const fn new() -> Self {
        Self { steps: None, time: None, mail: None }
    }

    /// Sets the maximum number of steps. For an async body, each poll is a step.
    #[must_use]
    pub const fn steps(mut self, most: u64) -> Self {
        self.steps = Some(most);
        self
    }

    /// Sets the maximum running time of all steps together. A step is never interrupted. The process exits after the
    /// step that exceeds the limit. If this step is the last step of the process, the limit does not change the exit.
    /// In a [`Simulation`](crate::Simulation), steps take no time.
    ///
    /// After each step, the thread of the process passes the commands of this step to their handlers. The duration of
    /// this dispatch also counts. This duration contains the whole work of an [inline handler](crate::handler::inline),
    /// and the first poll of the future of an [async handler](crate::handler::future).
    #[must_use]
    pub const fn time(mut self, most: Duration) -> Self {
        self.time = Some(most);
        self
    }

    /// Sets the maximum number of messages that wait in the mailbox. If the mailbox has a larger
    /// [`MailboxCapacity`](crate::MailboxCapacity), this maximum replaces the capacity, and the policy does not change.
    /// An unbounded mailbox gets this maximum and the policy `Reject`. If the maximum is 0, the mailbox refuses every
    /// message, independently of the policy. In contrast, a `MailboxCapacity` of 0 is treated as 1. Messages that a
    /// hand-written process has taken out of the mailbox for a step are no longer counted.
    #[must_use]
    pub const fn mailbox_capacity(mut self, most: usize) -> Self {
        self.mail = Some(most);
        self
    }

    /// Combines two sets of limits. For each kind of limit, the lower limit applies. The result is boxed, because most
    /// processes have no limits. The `None` of an `Option<Box<_>>` takes only one word.
    #[inline]
    pub(crate) fn both(one: Option<&Self>, other: Option<Box<Self>>) -> Option<Box<Self>> {
        match (one, other) {
            (None, other) => other,
            (Some(one), other) => Some(Box::new(one.and(other.map_or(Self::new(), |other| *other)))),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Self {
            steps: tighter(self.steps, other.steps),
            time: tighter(self.time, other.time),
            mail: tighter(self.mail, other.mail),
        }
    }

    pub(crate) fn mail_limit(&self) -> Option<usize> {
        self.mail
    }

    /// Returns whether there is a limit on the steps or on their running time. If the steps or their running time are
    /// limited, each step must be counted or measured.
    pub(crate) fn limits_steps(&self) -> bool {
        self.steps.is_some() || self.time.is_some()
    }
}

/// Error with which a process fails if it exceeds a limit. The [`Exit::Failed`] of the process contains this error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitExceeded {
    /// The process needed another step after this number of steps.
    Steps(u64),
    /// The total running time of the steps exceeded this duration.
    Time(Duration),
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(most) => write!(f, "step limit of {most} exceeded; raise `Limits::steps`"),
            Self::Time(most) => write!(f, "running time limit of {most:?} exceeded; raise `Limits::time`"),
        }
    }
}

impl Error for LimitExceeded {}

/// Limits and running time of a limited process. Relaxed loads and stores suffice, because only the task of the
/// process changes the meter, and only during a turn of the process. The turns happen one after another.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    limits: Limits,
    /// Running time in nanoseconds.
    ran: AtomicU64,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// If the running time is limited, returns the total running time of the steps. This time includes the dispatch of
    /// the commands of these steps.
    pub(crate) fn run_time(&self) -> Option<Duration> {
        self.limits.time.map(|_| Duration::from_nanos(self.ran.load(Ordering::Relaxed)))
    }

    /// Checks whether another step may begin after this number of steps. Returns whether the caller must measure the
    /// duration of the step and pass this duration to [`ran`](Self::ran).
    ///
    /// # Errors
    /// Returns the exit of the process if the process has used all its steps.
    pub(crate) fn begin(&self, steps: impl FnOnce() -> u64) -> Result<bool, Exit> {
        match self.limits.steps {
            Some(most) if steps() >= most => Err(Exit::failed(LimitExceeded::Steps(most))),
            _ => Ok(self.limits.time.is_some()),
        }
    }

    /// Adds the duration of a step. The duration includes the dispatch of the step's commands.
    ///
    /// # Errors
    /// Returns the exit of the process if the total running time exceeds the limit.
    pub(crate) fn ran(&self, time: Duration) -> Result<(), Exit> {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let ran = self.ran.load(Ordering::Relaxed).saturating_add(ns);
        self.ran.store(ran, Ordering::Relaxed);
        match self.limits.time {
            Some(most) if Duration::from_nanos(ran) > most => Err(Exit::failed(LimitExceeded::Time(most))),
            _ => Ok(()),
        }
    }
}
