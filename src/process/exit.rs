//! How a process ended: `Exit`, the `Reason` texts in it, and how an exit is found again inside whatever error a body
//! let out with `?`. What a command was answered is a `Failure`, not an exit; what was refused is neither.

use std::borrow::Cow;
use std::error::Error;
use std::hash::{Hash, Hasher};
use std::{fmt, io};

use crate::platform::sync::Arc;
use crate::process::error::{InitError, NameError, NoProcess, SendError, SpawnError, YieldError};
use crate::process::failure::{CallError, Failure};
use crate::process::pid::Pid;

/// Any error at all: whatever converts into this may leave a body through `?`.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// For bodies where any error may occur; where only ours do, `Result<T, Exit>` says it all.
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// How a process ended; an `Error`, cheap to clone.
///
/// A body that lets an exit out with `?`, whatever error type it was wrapped in on the way, ends with that exit:
///
/// ```
/// # use procession::{BoxError, Exit, Reason};
/// let error: BoxError = Exit::Cancelled(Reason::SHUTDOWN).into();
/// assert!(matches!(Exit::failed(error), Exit::Cancelled(reason) if reason == Reason::SHUTDOWN));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Exit {
    /// It was done.
    Normal,
    /// Its `init` failed; no step ever ran.
    InitFailed(Arc<InitError>),
    /// It returned an error.
    Failed(Arc<dyn Error + Send + Sync>),
    /// It panicked, with this message.
    Panicked(Reason),
    /// It was asked to end, and did: `Reason::REQUESTED`, `DEADLINE`, `SHUTDOWN`, `PARENT`, or what the caller gave.
    Cancelled(Reason),
    /// It was ended without being asked.
    Killed,
    /// A process that it was linked to ended abnormally.
    Linked {
        /// The first to die, however long the chain of links from there.
        origin: Pid,
        /// How that one ended; never `Linked` itself.
        reason: Arc<Exit>,
    },
    /// It never began: the spawn was refused.
    Refused(Reason),
    /// There was no such process, or it had ended already, so that how it did is not known.
    NoProcess,
    /// Its node can't be reached any more.
    NodeDown,
}

impl Exit {
    /// The exit of a process that returned this error: `Failed`, unless the error is an exit or one is found among its
    /// sources; then that one, as a cancel that passed through a `?` is still a cancel.
    ///
    /// An exit that only says `Failed` or `InitFailed` is left inside what was wrapped around it, which tells more. A
    /// `Reason` among the sources counts as `Cancelled`: some wrappers show the source of what they hold, and not
    /// the thing itself. The exit of another process that a `CallError` tells of is not taken for one's own.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(exit) => return *exit,
            Err(error) => error,
        };
        let found = chain(&*error)
            // What lies beneath these two ended somebody else.
            .take_while(|e| !e.is::<Failure>() && !e.is::<CallError>())
            .find_map(|e| match e.downcast_ref::<Self>() {
                Some(exit) => Some(exit.clone()),
                None => e.downcast_ref::<Reason>().cloned().map(Self::Cancelled),
            });
        match found {
            None | Some(Self::Failed(_) | Self::InitFailed(_)) => Self::Failed(error.into()),
            Some(exit) => exit,
        }
    }

    /// Whether it is `Normal`. A linked process hears of any other.
    pub fn is_normal(&self) -> bool {
        matches!(self, Self::Normal)
    }

    /// The first error of this type among what caused it: the error that the process returned, or one that this was
    /// wrapped around, or the `InitError`, also of the linked process that died first.
    pub fn error<E: Error + 'static>(&self) -> Option<&E> {
        chain(self.source()?).find_map(|e| e.downcast_ref())
    }

    /// Whether the process failed, rather than ended because another one asked for that: a cancellation and a kill are no
    /// failures, nor is the end of a process that was linked to a cancelled or killed one. OTP reports no crash for the
    /// exits `shutdown` and `killed` either.
    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::Normal | Self::Cancelled(_) | Self::Killed => false,
            Self::Linked { reason, .. } => reason.is_failure(),
            _ => true,
        }
    }

    /// Where the panic happened that ended the process, or the first process of a chain of links: `file:line:column`.
    /// `None` if it is no panic, or if the location is not known.
    pub(crate) fn panic_location(&self) -> Option<&str> {
        match self {
            Self::Panicked(message) => message.location(),
            Self::Linked { reason, .. } => reason.panic_location(),
            _ => None,
        }
    }

    /// The error that somebody else's process ended with, leaving out the exit itself: who hears of it must not be
    /// taken for the one that ended.
    pub(crate) fn beneath(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InitFailed(error) => Some(&**error),
            Self::Failed(error) => Some(&**error),
            Self::Linked { reason, .. } => reason.beneath(),
            _ => None,
        }
    }
}

/// An error and its sources, outermost first. It gives up on a chain so long that it must be a circle.
pub(crate) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&e| e.source()).take(256)
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("ended normally"),
            Self::InitFailed(error) => write!(f, "could not start: {error}"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Cancelled(reason) => write!(f, "cancelled: {reason}"),
            Self::Killed => f.write_str("killed"),
            Self::Linked { origin, reason } => write!(f, "linked to {origin}, which ended: {reason}"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::NoProcess => f.write_str("no such process"),
            Self::NodeDown => f.write_str("its node is down"),
        }
    }
}

impl Error for Exit {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InitFailed(error) => Some(&**error),
            Self::Failed(error) => Some(&**error),
            Self::Cancelled(reason) => Some(reason),
            Self::Linked { reason, .. } => Some(&**reason),
            // The text of a panic or a refusal is a `Reason` too, but not a source: there it would say `Cancelled`.
            Self::Panicked(_) | Self::Refused(_) => None,
            Self::Normal | Self::Killed | Self::NoProcess | Self::NodeDown => None,
        }
    }
}

impl From<BoxError> for Exit {
    fn from(error: BoxError) -> Self {
        Self::failed(error)
    }
}

impl From<io::Error> for Exit {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}

impl From<Failure> for Exit {
    fn from(failure: Failure) -> Self {
        Self::failed(failure)
    }
}

impl From<CallError> for Exit {
    fn from(error: CallError) -> Self {
        Self::failed(error)
    }
}

impl From<NoProcess> for Exit {
    fn from(error: NoProcess) -> Self {
        Self::failed(error)
    }
}

impl From<NameError> for Exit {
    fn from(error: NameError) -> Self {
        Self::failed(error)
    }
}

impl From<InitError> for Exit {
    fn from(error: InitError) -> Self {
        Self::InitFailed(Arc::new(error))
    }
}

/// `Failed` with the `Refusal`; the message is dropped.
impl<M> From<SendError<M>> for Exit {
    fn from(error: SendError<M>) -> Self {
        Self::failed(error.refusal())
    }
}

/// `Failed` with the `SpawnRefusal`; the body is dropped.
impl<B> From<SpawnError<B>> for Exit {
    fn from(error: SpawnError<B>) -> Self {
        Self::failed(*error.refusal())
    }
}

/// `Failed` with the text of the error; the command is dropped.
impl<C> From<YieldError<C>> for Exit {
    fn from(error: YieldError<C>) -> Self {
        Self::failed(error.to_string())
    }
}

/// A short text that is itself an `Error`: the `source()` of `Exit::Cancelled`, by which it is found inside any other
/// error. Cheap to clone, compared by its text.
#[derive(Clone)]
pub struct Reason(Text);

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
    Panic(Arc<PanicText>),
}

/// The message of a panic, and where it happened: `file:line:column`.
struct PanicText {
    message: Box<str>,
    location: Box<str>,
}

impl Reason {
    /// Cancelled, because somebody asked for it.
    pub const REQUESTED: Self = Self::new("requested");
    /// Cancelled, because its deadline had passed.
    pub const DEADLINE: Self = Self::new("deadline");
    /// Cancelled, because its runtime shut down.
    pub const SHUTDOWN: Self = Self::new("shutdown");
    /// Cancelled, because the process or scope that it belonged to ended.
    pub const PARENT: Self = Self::new("parent");

    /// A reason with a fixed text; it allocates nothing.
    pub const fn new(text: &'static str) -> Self {
        Self(Text::Static(text))
    }

    /// The message of a panic that happened at this location.
    pub(crate) fn panic(message: &str, location: String) -> Self {
        Self(Text::Panic(Arc::new(PanicText { message: message.into(), location: location.into() })))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Shared(text) => text,
            Text::Panic(panic) => &panic.message,
        }
    }

    fn location(&self) -> Option<&str> {
        match &self.0 {
            Text::Panic(panic) => Some(&panic.location),
            Text::Static(_) | Text::Shared(_) => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Error for Reason {}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Reason {}

impl Hash for Reason {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialEq<str> for Reason {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Reason {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self(Text::Shared(text.into()))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(Text::Shared(text.into()))
    }
}

impl From<Cow<'static, str>> for Reason {
    fn from(text: Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::new(text),
            Cow::Owned(text) => text.into(),
        }
    }
}

const _: () = assert!(size_of::<Exit>() <= 32 && size_of::<Reason>() <= 24);

#[cfg(test)]
mod tests {
    use super::*;

    /// Wraps an error as `#[from]` does: the error is the source.
    #[derive(Debug)]
    struct While(BoxError);

    /// Wraps an error as `anyhow` and `#[error(transparent)]` do: the error's source is the source.
    #[derive(Debug)]
    struct Like(BoxError);

    /// Its own source, for ever.
    #[derive(Debug)]
    struct Circle;

    impl fmt::Display for While {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while testing")
        }
    }

    impl fmt::Display for Like {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl fmt::Display for Circle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("circle")
        }
    }

    impl Error for While {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    impl Error for Like {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.source()
        }
    }

    impl Error for Circle {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    fn io_error() -> io::Error {
        io::Error::other("disk")
    }

    fn linked(reason: Exit) -> Exit {
        Exit::Linked { origin: Pid::new(1, 0, 7, 2), reason: Arc::new(reason) }
    }

    fn cancelled() -> Exit {
        Exit::Cancelled(Reason::new("bye"))
    }

    /// Variant and text, to compare by.
    fn told(exit: &Exit) -> String {
        format!("{:?}/{exit}", std::mem::discriminant(exit))
    }

    #[test]
    fn exits_read_as_plain_english() {
        let unknown = InitError::UnknownMethod { method: "go".into(), known: vec!["run", "stop"] };
        for (exit, text) in [
            (Exit::Normal, "ended normally"),
            (Exit::from(unknown), "could not start: unknown method `go`: there is `run`, `stop`"),
            (Exit::from(io_error()), "failed: disk"),
            (Exit::Panicked("index".into()), "panicked: index"),
            (Exit::Cancelled(Reason::SHUTDOWN), "cancelled: shutdown"),
            (Exit::Killed, "killed"),
            (linked(Exit::Killed), "linked to <1.7.2>, which ended: killed"),
            (Exit::Refused("no room".into()), "refused: no room"),
            (Exit::NoProcess, "no such process"),
            (Exit::NodeDown, "its node is down"),
        ] {
            assert_eq!(exit.to_string(), text);
            assert_eq!(exit.is_normal(), text == "ended normally");
        }
    }

    #[test]
    fn an_exit_is_found_again_in_what_it_was_wrapped_in() {
        for exit in [
            Exit::Normal,
            Exit::Panicked("p".into()),
            cancelled(),
            Exit::Killed,
            linked(Exit::Killed),
            Exit::Refused("r".into()),
            Exit::NoProcess,
            Exit::NodeDown,
        ] {
            let boxed = || BoxError::from(exit.clone());
            for wrapped in [boxed(), While(boxed()).into(), While(While(boxed()).into()).into()] {
                assert_eq!(told(&Exit::failed(wrapped)), told(&exit));
            }
        }
    }

    #[test]
    fn a_cancel_is_found_also_where_only_its_reason_shows() {
        let like = || Like(cancelled().into());
        for wrapped in [BoxError::from(like()), While(like().into()).into(), Like(like().into()).into()] {
            assert_eq!(told(&Exit::failed(wrapped)), told(&cancelled()));
        }
        for other in [Exit::Panicked("p".into()), Exit::Refused("r".into()), Exit::Killed] {
            assert!(matches!(Exit::failed(Like(other.into())), Exit::Failed(_)));
        }
    }

    #[test]
    fn any_other_error_is_a_failure() {
        for error in [BoxError::from("x"), io_error().into(), While(io_error().into()).into(), Circle.into()] {
            let text = format!("failed: {error}");
            let exit = Exit::from(error);
            assert!(matches!(exit, Exit::Failed(_)));
            assert_eq!(exit.to_string(), text);
        }
        assert_eq!(Exit::failed(String::from("text")).to_string(), "failed: text");
    }

    #[test]
    fn what_was_wrapped_around_a_failed_exit_is_kept() {
        let exit = Exit::failed(While(Exit::from(io_error()).into()));
        assert_eq!(exit.to_string(), "failed: while testing");
        assert_eq!(exit.error::<io::Error>().map(ToString::to_string), Some("disk".into()));
        assert_eq!(Exit::failed(Exit::from(io_error())).to_string(), "failed: disk");
    }

    #[test]
    fn the_exit_of_another_process_is_not_taken_for_ones_own() {
        let failures = [
            Exit::from(CallError::Died(cancelled())),
            Exit::failed(Like(CallError::Died(cancelled()).into())),
            Exit::failed(While(CallError::Died(linked(Exit::Killed)).into())),
            Exit::from(Failure::Error(Arc::new(cancelled()))),
            Exit::from(Failure::Error(Arc::new(While(cancelled().into())))),
            Exit::failed(Like(Failure::Error(Arc::new(cancelled())).into())),
            Exit::from(Failure::Cancelled),
            Exit::from(NoProcess(Pid::new(1, 0, 7, 2))),
        ];
        for exit in failures {
            assert!(matches!(exit, Exit::Failed(_)), "{exit:?}");
        }
        let died = Exit::from(CallError::Died(Exit::from(io_error())));
        assert!(died.error::<CallError>().is_some() && died.error::<io::Error>().is_some());
    }

    #[test]
    fn errors_are_found_by_type() {
        let exit = Exit::failed(While(io_error().into()));
        assert!(exit.error::<While>().is_some() && exit.error::<io::Error>().is_some());
        assert!(exit.error::<fmt::Error>().is_none() && Exit::Killed.error::<io::Error>().is_none());
        let init = Exit::from(InitError::failed(io_error()));
        assert!(init.error::<InitError>().is_some() && init.error::<io::Error>().is_some());
        assert!(linked(init).error::<InitError>().is_some());
        assert_eq!(cancelled().error::<Reason>(), Some(&Reason::from("bye")));
        assert!(Exit::failed(Circle).error::<io::Error>().is_none());
    }

    #[test]
    fn the_location_of_a_panic_travels_with_the_exit() {
        let panicked = Exit::Panicked(Reason::panic("boom", "src/x.rs:1:2".into()));
        assert_eq!((panicked.to_string(), panicked.panic_location()), ("panicked: boom".into(), Some("src/x.rs:1:2")));
        assert_eq!(linked(panicked.clone()).panic_location(), Some("src/x.rs:1:2"));
        assert_eq!(Exit::failed(BoxError::from(panicked)).panic_location(), Some("src/x.rs:1:2"));
        assert_eq!(Exit::Panicked("boom".into()).panic_location(), None);
        assert_eq!(Reason::panic("boom", String::new()), Reason::from("boom"));
    }

    #[test]
    fn an_end_on_request_is_no_failure() {
        for asked in [Exit::Normal, cancelled(), Exit::Killed, linked(Exit::Killed), linked(cancelled())] {
            assert!(!asked.is_failure(), "{asked}");
        }
        for failed in [Exit::from(io_error()), Exit::Panicked("p".into()), linked(Exit::NoProcess), Exit::NodeDown] {
            assert!(failed.is_failure(), "{failed}");
        }
    }

    #[test]
    fn reasons_compare_by_text() {
        assert_eq!(Reason::new("deadline"), Reason::DEADLINE);
        assert_eq!(Reason::from(String::from("parent")), Reason::PARENT);
        assert_ne!(Reason::REQUESTED, Reason::SHUTDOWN);
        assert_eq!(Reason::from("x"), "x");
        assert_eq!(Reason::from(Cow::Borrowed("x")), *"x");
        assert_eq!(format!("{0} {0:?} {0:>4}", Reason::new("x")), "x \"x\"    x");
    }
}
