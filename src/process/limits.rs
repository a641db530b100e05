//! What one process may use, and the count of what it did.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::platform::sync::atomic::{AtomicU64, Ordering};
use crate::process::exit::Exit;

/// What one process may use of steps, time and mail; without a number it is not limited.
///
/// A host gives its limits to each process that begins there, [`ProcessBuilder::limits`](crate::ProcessBuilder::limits)
/// gives some to one: where both say something the tighter holds. A process that goes beyond its steps or its time ends
/// [`Exit::Failed`] with a [`LimitExceeded`] inside; a message beyond its mail is refused with
/// [`Refusal::Full`](crate::Refusal::Full), and handed back.
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
    /// None.
    pub const fn new() -> Self {
        Self { steps: None, time: None, mail: None }
    }

    /// How often it may be stepped: exactly so many times. For an async body a step is a poll.
    #[must_use]
    pub const fn steps(mut self, most: u64) -> Self {
        self.steps = Some(most);
        self
    }

    /// How long its steps may take together. It ends after the step that went beyond: no step is broken off. In a
    /// [`Simulation`](crate::Simulation) steps take no time.
    #[must_use]
    pub const fn time(mut self, most: Duration) -> Self {
        self.time = Some(most);
        self
    }

    /// How many messages may wait in its mailbox. With 0 it takes none. What a hand-written process has taken over at the
    /// beginning of a step does not count any more.
    #[must_use]
    pub const fn mail(mut self, most: usize) -> Self {
        self.mail = Some(most);
        self
    }

    /// The tighter of both, each by itself. Most processes are not limited: nothing is a null pointer.
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

    pub(crate) fn most_mail(&self) -> Option<usize> {
        self.mail
    }

    /// Whether there is something to count at each step.
    pub(crate) fn concern_steps(&self) -> bool {
        self.steps.is_some() || self.time.is_some()
    }
}

/// A process used more than it may: found in its [`Exit::Failed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitExceeded {
    /// It wanted another step after so many.
    Steps(u64),
    /// Its steps took longer than this together.
    Time(Duration),
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(most) => write!(f, "it may be stepped {most} times and wanted more"),
            Self::Time(most) => write!(f, "it may run for {most:?} and ran longer"),
        }
    }
}

impl Error for LimitExceeded {}

/// What a limited process did so far; its task alone counts.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    limits: Limits,
    steps: AtomicU64,
    /// In ns.
    ran: AtomicU64,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts a step that is about to begin; true if it is to be [timed](Self::ran).
    ///
    /// # Errors
    /// It has had its last one.
    pub(crate) fn begin(&self) -> Result<bool, Exit> {
        if let Some(most) = self.limits.steps {
            let steps = self.steps.load(Ordering::Relaxed);
            if steps >= most {
                return Err(Exit::failed(LimitExceeded::Steps(most)));
            }
            self.steps.store(steps + 1, Ordering::Relaxed);
        }
        Ok(self.limits.time.is_some())
    }

    /// Counts what a step took.
    ///
    /// # Errors
    /// That was too much.
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
