//! The types `Exit` and `Reason`. An `Exit` says how a process exited, and a `Reason` is a short text in an exit. If a
//! body returns an error with `?`, the runtime searches the error and its sources for an exit.
//!
//! The failure of a command is a `Failure`, not an exit. The module `error` has the errors of refused operations.

use std::backtrace::Backtrace;
use std::borrow::Cow;
use std::error::Error;
use std::hash::{Hash, Hasher};
use std::{fmt, io};

use crate::platform::sync::Arc;
use crate::process::error::{InitError, NameError, NoProcess, SpawnErrorKind};
use crate::process::failure::{CallError, Failure};
use crate::process::pid::Pid;

/// Box for any error. A body that returns a `BoxError` as its error can use `?` on every error type that converts
/// into a `BoxError`.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Result type of a body that may return any error. If [`Exit`] implements `From` for all errors of a body, the body
/// may return `Result<T, Exit>` instead. The error must not contain an address of the body's own process: see
/// [`Exit::failed`].
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// How a process exited. `Exit` implements `Error`, and is cheap to clone.
///
/// If a body returns an error that contains an exit, the process exits with the contained exit. Errors of any type can
/// contain an exit. The documentation of [`failed`](Self::failed) lists the errors for which the process exits with
/// another exit.
///
/// ```
/// # use procession::{BoxError, Exit, Reason};
/// let error: BoxError = Exit::Cancelled(Reason::SHUTDOWN).into();
/// assert_eq!(Exit::failed(error), Exit::Cancelled(Reason::SHUTDOWN));
/// ```
///
/// Two exits are equal if they are the same variant with equal values. Two values of `Failed` or `InitFailed` are equal
/// if they hold the same error, or if `Display` writes the same text for both. The comparison ignores the types and the
/// sources of the errors, and the location and the backtrace of a panic.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Exit {
    /// The process finished.
    Normal,
    /// The initialization of the process failed. No step of the process ran.
    InitFailed(Arc<InitError>),
    /// The process returned an error.
    Failed(Arc<dyn Error + Send + Sync>),
    /// The process panicked with this message.
    Panicked(Reason),
    /// The process exited because of a request to exit. The reason is `Reason::REQUESTED`, `Reason::DEADLINE`,
    /// `Reason::SHUTDOWN`, `Reason::PARENT`, or a reason that the caller gave.
    Cancelled(Reason),
    /// The process was killed. A process cannot react to a kill.
    Killed,
    /// A linked process exited abnormally.
    Linked {
        /// The process that exited first. The chain of links starts at this process.
        origin: Pid,
        /// The exit of `origin`. The exit of `origin` is never `Linked`.
        reason: Arc<Exit>,
    },
    /// The process never started, because the spawn was refused. If a process returns the exit of a refused child, the
    /// process also exits with `Refused`. If a process returns a [`SpawnError`](crate::SpawnError), the exit is
    /// `Failed`.
    Refused(SpawnErrorKind),
    /// The exit is unknown, because the process did not exist or had already exited.
    NoProcess,
    /// The node of the process is unreachable.
    NodeDown,
}

impl Exit {
    /// Returns the exit of a process that returned this error. If the error is an exit, or if one of its sources is an
    /// exit, the result is that exit. For example, a cancellation that passes through a `?` remains a cancellation. If
    /// neither the error nor one of its sources is an exit, the result is `Failed`.
    ///
    /// If the first exit among the sources of the error is `Failed` or `InitFailed`, the result is `Failed` with the
    /// whole error. The whole error contains more information than its sources. Some wrappers hide the error that they
    /// contain, and expose only the source of that error. Therefore, the source of a `Cancelled` is treated like the
    /// `Cancelled` itself. The exit of another process inside a `CallError` or a `Failure` is ignored.
    ///
    /// A failed process keeps its exit, and therefore the error, until the memory of the process is freed. An
    /// [`Address`](crate::Address) of the process keeps this memory and the runtime's handlers alive. Therefore, an
    /// error that contains an address of the failed process creates a reference cycle. The error, the memory of the
    /// process and the handlers are then never freed. For example, a [`SendError`](crate::SendError) contains the
    /// refused message, and the message may contain the address of its sender.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(exit) => return *exit,
            Err(error) => error,
        };
        let found = chain(&*error)
            // A `Failure` or a `CallError` contains only exits of other processes.
            .take_while(|e| !e.is::<Failure>() && !e.is::<CallError>())
            .find_map(|e| match e.downcast_ref::<Self>() {
                Some(exit) => Some(exit.clone()),
                None => e.downcast_ref::<ReasonText>().map(|text| Self::Cancelled(Reason(text.clone()))),
            });
        match found {
            None | Some(Self::Failed(_) | Self::InitFailed(_)) => Self::Failed(error.into()),
            Some(exit) => exit,
        }
    }

    /// Returns whether this exit is `Normal`. The exit `Normal` does not end the linked processes. But a linked process
    /// that traps exits receives the exit `Normal` as an event, like every other exit.
    pub fn is_normal(&self) -> bool {
        matches!(self, Self::Normal)
    }

    /// Returns the first error of type `E` among the causes of this exit. The first cause is the error that the process
    /// returned, or the `InitError`. Each further cause is the [`source`](std::error::Error::source) of the cause
    /// before it. The causes of a `Linked` exit are the causes of the exit of its `origin`.
    pub fn error<E: Error + 'static>(&self) -> Option<&E> {
        chain(self.source()?).find_map(|e| e.downcast_ref())
    }

    /// If this exit is `Linked`, returns the exit of its `origin`. Otherwise returns this exit.
    pub(crate) fn unlinked(&self) -> &Self {
        match self {
            Self::Linked { reason, .. } => reason,
            exit => exit,
        }
    }

    /// Returns whether the process failed. A cancellation and a kill are not failures, because each of the two happens
    /// on request. If a linked process was cancelled or killed, the resulting exit is not a failure either. OTP also
    /// reports no crash for the exits `shutdown` and `killed`.
    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::Normal | Self::Cancelled(_) | Self::Killed => false,
            Self::Linked { reason, .. } => reason.is_failure(),
            _ => true,
        }
    }

    /// Returns the location of the panic, as `file:line:column`. For a `Linked` exit, returns the location of the panic
    /// of its `origin`. Returns `None` if the process did not panic, or if the location is unknown.
    pub fn panic_location(&self) -> Option<&str> {
        match self {
            Self::Panicked(message) => message.location(),
            Self::Linked { reason, .. } => reason.panic_location(),
            _ => None,
        }
    }

    /// Returns the backtrace of the panic. For a `Linked` exit, returns the backtrace of the panic of its `origin`.
    /// Returns `None` if no backtrace was captured.
    ///
    /// If the code of a process panics and [`Backtrace::capture`] is enabled, the runtime captures a backtrace.
    /// `Backtrace::capture` is enabled if the environment variable `RUST_LIB_BACKTRACE` has a value other than `0`. If
    /// `RUST_LIB_BACKTRACE` is not set, `RUST_BACKTRACE` decides in the same way. By default, neither variable is set,
    /// and the runtime captures nothing. The standard library reads the variables at the first panic, and ignores later
    /// changes.
    ///
    /// The capture walks the stack, and makes a panic slower, usually by tens of microseconds. The first `Display` of a
    /// backtrace resolves the names of its functions. This can take several milliseconds. All clones of an exit share
    /// one backtrace. A backtrace takes about 60 bytes for each frame. After the first `Display`, a backtrace also
    /// holds the names of all functions in the backtrace, usually 10 to 50 KiB.
    pub fn panic_backtrace(&self) -> Option<&Backtrace> {
        match self {
            Self::Panicked(message) => message.backtrace(),
            Self::Linked { reason, .. } => reason.panic_backtrace(),
            _ => None,
        }
    }

    /// Returns a copy of this exit without the backtrace of the panic.
    pub(crate) fn without_backtrace(&self) -> Self {
        match self {
            Self::Panicked(message) => Self::Panicked(message.without_backtrace()),
            Self::Linked { origin, reason } if reason.panic_backtrace().is_some() => {
                Self::Linked { origin: *origin, reason: Arc::new(reason.without_backtrace()) }
            }
            exit => exit.clone(),
        }
    }

    /// Returns the error inside this exit. If an error reports the exit of another process, the source of that error is
    /// the error inside the exit. The source must not be the exit itself. Otherwise, `Exit::failed` would find the exit
    /// of the other process, and would use this exit as the exit of the failed process.
    pub(crate) fn source_of_other(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InitFailed(error) => Some(&**error),
            Self::Failed(error) => Some(&**error),
            Self::Linked { reason, .. } => reason.source_of_other(),
            _ => None,
        }
    }
}

/// Iterates over an error and its sources, starting with the outermost error. The iterator stops after 256 errors,
/// because a longer chain is probably cyclic.
pub(crate) fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&e| e.source()).take(256)
}

/// Returns whether two errors are the same error, or have the same text.
pub(super) fn is_same_error(one: &(dyn Error + 'static), other: &(dyn Error + 'static)) -> bool {
    std::ptr::addr_eq(one, other) || one.to_string() == other.to_string()
}

impl PartialEq for Exit {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::InitFailed(one), Self::InitFailed(other)) => is_same_error(&**one, &**other),
            (Self::Failed(one), Self::Failed(other)) => is_same_error(&**one, &**other),
            (Self::Panicked(one), Self::Panicked(other)) | (Self::Cancelled(one), Self::Cancelled(other)) => {
                one == other
            }
            (Self::Refused(one), Self::Refused(other)) => one == other,
            (Self::Linked { origin, reason }, Self::Linked { origin: other_origin, reason: other_reason }) => {
                origin == other_origin && reason == other_reason
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Eq for Exit {}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("exited normally"),
            Self::InitFailed(error) => write!(f, "initialization failed: {error}"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(message) => write!(f, "panicked{}: {message}", message.at()),
            Self::Cancelled(reason) => write!(f, "cancelled: {reason}"),
            Self::Killed => f.write_str("killed"),
            Self::Linked { origin, reason } => write!(f, "linked to process {origin}, which exited: {reason}"),
            Self::Refused(kind) => write!(f, "spawn refused: {kind}"),
            Self::NoProcess => f.write_str("no such process: it had exited before or never existed"),
            Self::NodeDown => f.write_str("the node of the process is unreachable"),
        }
    }
}

impl Error for Exit {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InitFailed(error) => Some(&**error),
            Self::Failed(error) => Some(&**error),
            Self::Cancelled(Reason(text)) => Some(text),
            Self::Linked { reason, .. } => Some(&**reason),
            // The text of a panic is not a source, because `failed` would convert this text into a `Cancelled`.
            Self::Panicked(_) => None,
            Self::Normal | Self::Killed | Self::Refused(_) | Self::NoProcess | Self::NodeDown => None,
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

impl From<&str> for Exit {
    fn from(text: &str) -> Self {
        Self::failed(text)
    }
}

impl From<String> for Exit {
    fn from(text: String) -> Self {
        Self::failed(text)
    }
}

impl From<InitError> for Exit {
    fn from(error: InitError) -> Self {
        Self::InitFailed(Arc::new(error))
    }
}

/// A short text in an [`Exit`] or a [`Failure`]. For example, the text is the reason of a cancellation, or the message
/// of a panic. A reason is cheap to clone. Two reasons are equal if their texts are equal.
#[derive(Clone)]
pub struct Reason(ReasonText);

/// Text of a reason. `ReasonText` implements `Error`, because a `ReasonText` is the source of an `Exit::Cancelled`. If
/// another error contains an `Exit::Cancelled`, `Exit::failed` may find only the `ReasonText` among the sources.
#[derive(Clone)]
enum ReasonText {
    Static(&'static str),
    Shared(Arc<str>),
    Panic(Arc<PanicText>),
}

/// Message, location and backtrace of a panic. The location has the form `file:line:column`.
struct PanicText {
    message: Box<str>,
    location: Box<str>,
    /// `None` if backtraces are not enabled.
    backtrace: Option<Backtrace>,
}

impl Reason {
    /// The process was cancelled because another process or the application requested the cancellation.
    pub const REQUESTED: Self = Self::new("requested");
    /// The process was cancelled because its deadline passed.
    pub const DEADLINE: Self = Self::new("deadline");
    /// The process was cancelled because its runtime shut down.
    pub const SHUTDOWN: Self = Self::new("shutdown");
    /// The process was cancelled because its parent process or its scope ended.
    pub const PARENT: Self = Self::new("parent");

    /// Creates a reason with a fixed text. This function does not allocate.
    pub const fn new(text: &'static str) -> Self {
        Self(ReasonText::Static(text))
    }

    /// Creates a reason with the message, the location and the backtrace of a panic.
    pub(crate) fn panic(message: &str, location: String, backtrace: Option<Backtrace>) -> Self {
        Self(ReasonText::Panic(Arc::new(PanicText { message: message.into(), location: location.into(), backtrace })))
    }

    /// Returns the text of this reason.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the location of a panic as the text ` at file:line:column`. If the location is unknown, the text is
    /// empty.
    pub(super) fn at(&self) -> PanicLocation<'_> {
        PanicLocation(self.location())
    }

    fn location(&self) -> Option<&str> {
        match &self.0 {
            ReasonText::Panic(panic) => Some(&panic.location),
            ReasonText::Static(_) | ReasonText::Shared(_) => None,
        }
    }

    fn backtrace(&self) -> Option<&Backtrace> {
        match &self.0 {
            ReasonText::Panic(panic) => panic.backtrace.as_ref(),
            ReasonText::Static(_) | ReasonText::Shared(_) => None,
        }
    }

    /// Returns a copy of this reason without the backtrace of the panic.
    fn without_backtrace(&self) -> Self {
        match &self.0 {
            ReasonText::Panic(panic) if panic.backtrace.is_some() => {
                Self::panic(&panic.message, panic.location.clone().into(), None)
            }
            _ => self.clone(),
        }
    }
}

/// Location of a panic in the form that [`Reason::at`] writes.
pub(super) struct PanicLocation<'a>(Option<&'a str>);

impl fmt::Display for PanicLocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(location) => write!(f, " at {location}"),
            None => Ok(()),
        }
    }
}

impl ReasonText {
    fn as_str(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
            Self::Panic(panic) => &panic.message,
        }
    }
}

impl fmt::Display for ReasonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ReasonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Error for ReasonText {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
        Self(ReasonText::Shared(text.into()))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(ReasonText::Shared(text.into()))
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

    /// A wrapper like the wrappers that `#[from]` generates: the source of the wrapper is the wrapped error.
    #[derive(Debug)]
    struct SourceWrapper(BoxError);

    /// A wrapper like the wrappers of `anyhow` and `#[error(transparent)]`: the source of the wrapper is the source of
    /// the wrapped error.
    #[derive(Debug)]
    struct TransparentWrapper(BoxError);

    /// An error that is its own source.
    #[derive(Debug)]
    struct Circle;

    impl fmt::Display for SourceWrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while testing")
        }
    }

    impl fmt::Display for TransparentWrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl fmt::Display for Circle {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("circle")
        }
    }

    impl Error for SourceWrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    impl Error for TransparentWrapper {
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

    /// Returns the variant and the text of an exit, so that tests can compare them.
    fn variant_and_text(exit: &Exit) -> String {
        format!("{:?}/{exit}", std::mem::discriminant(exit))
    }

    #[test]
    fn the_texts_of_exits_are_plain_english() {
        let unknown = InitError::UnknownEntry { entry: "go".into(), known: vec!["run", "stop"] };
        for (exit, text) in [
            (Exit::Normal, "exited normally"),
            (Exit::from(unknown), "initialization failed: unknown entry point `go`; use one of `run`, `stop`"),
            (Exit::from(io_error()), "failed: disk"),
            (Exit::Panicked("index".into()), "panicked: index"),
            (Exit::Panicked(Reason::panic("index", "src/x.rs:1:2".into(), None)), "panicked at src/x.rs:1:2: index"),
            (Exit::Cancelled(Reason::SHUTDOWN), "cancelled: shutdown"),
            (Exit::Killed, "killed"),
            (linked(Exit::Killed), "linked to process <1.7.2>, which exited: killed"),
            (Exit::Refused(SpawnErrorKind::ShutDown), "spawn refused: the runtime has shut down"),
            (Exit::NoProcess, "no such process: it had exited before or never existed"),
            (Exit::NodeDown, "the node of the process is unreachable"),
        ] {
            assert_eq!(exit.to_string(), text);
            assert_eq!(exit.is_normal(), text == "exited normally");
        }
    }

    #[test]
    fn an_exit_is_found_inside_its_wrappers() {
        for exit in [
            Exit::Normal,
            Exit::Panicked("p".into()),
            cancelled(),
            Exit::Killed,
            linked(Exit::Killed),
            Exit::Refused(SpawnErrorKind::ShutDown),
            Exit::NoProcess,
            Exit::NodeDown,
        ] {
            let boxed = || BoxError::from(exit.clone());
            for wrapped in [boxed(), SourceWrapper(boxed()).into(), SourceWrapper(SourceWrapper(boxed()).into()).into()]
            {
                assert_eq!(variant_and_text(&Exit::failed(wrapped)), variant_and_text(&exit));
            }
        }
    }

    #[test]
    fn a_cancellation_is_found_inside_a_transparent_wrapper() {
        let like = || TransparentWrapper(cancelled().into());
        for wrapped in
            [BoxError::from(like()), SourceWrapper(like().into()).into(), TransparentWrapper(like().into()).into()]
        {
            assert_eq!(variant_and_text(&Exit::failed(wrapped)), variant_and_text(&cancelled()));
        }
        for other in [Exit::Panicked("p".into()), Exit::Refused(SpawnErrorKind::ShutDown), Exit::Killed] {
            assert!(matches!(Exit::failed(TransparentWrapper(other.into())), Exit::Failed(_)));
        }
    }

    #[test]
    fn an_error_without_an_exit_becomes_a_failed_exit() {
        for error in [BoxError::from("x"), io_error().into(), SourceWrapper(io_error().into()).into(), Circle.into()] {
            let text = format!("failed: {error}");
            let exit = Exit::from(error);
            assert!(matches!(exit, Exit::Failed(_)));
            assert_eq!(exit.to_string(), text);
        }
        assert_eq!(Exit::failed(String::from("text")).to_string(), "failed: text");
    }

    #[test]
    fn the_wrapper_of_a_failed_exit_stays_in_the_exit() {
        let exit = Exit::failed(SourceWrapper(Exit::from(io_error()).into()));
        assert_eq!(exit.to_string(), "failed: while testing");
        assert_eq!(exit.error::<io::Error>().map(ToString::to_string), Some("disk".into()));
        assert_eq!(Exit::failed(Exit::from(io_error())).to_string(), "failed: disk");
    }

    #[test]
    fn the_exit_of_another_process_is_not_the_exit_of_the_caller() {
        let failures = [
            Exit::from(CallError::Died(cancelled())),
            Exit::failed(TransparentWrapper(CallError::Died(cancelled()).into())),
            Exit::failed(SourceWrapper(CallError::Died(linked(Exit::Killed)).into())),
            Exit::from(Failure::Error(Arc::new(cancelled()))),
            Exit::from(Failure::Error(Arc::new(SourceWrapper(cancelled().into())))),
            Exit::failed(TransparentWrapper(Failure::Error(Arc::new(cancelled())).into())),
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
    fn an_error_inside_an_exit_is_found_by_its_type() {
        let exit = Exit::failed(SourceWrapper(io_error().into()));
        assert!(exit.error::<SourceWrapper>().is_some() && exit.error::<io::Error>().is_some());
        assert!(exit.error::<fmt::Error>().is_none() && Exit::Killed.error::<io::Error>().is_none());
        let init = Exit::from(InitError::failed(io_error()));
        assert!(init.error::<InitError>().is_some() && init.error::<io::Error>().is_some());
        assert!(linked(init).error::<InitError>().is_some());
        assert!(Exit::failed(Circle).error::<io::Error>().is_none());
    }

    #[test]
    fn the_exit_contains_the_location_of_the_panic() {
        let panicked = Exit::Panicked(Reason::panic("boom", "src/x.rs:1:2".into(), None));
        assert_eq!(
            (panicked.to_string(), panicked.panic_location()),
            ("panicked at src/x.rs:1:2: boom".into(), Some("src/x.rs:1:2"))
        );
        assert_eq!(linked(panicked.clone()).panic_location(), Some("src/x.rs:1:2"));
        assert_eq!(Exit::failed(BoxError::from(panicked)).panic_location(), Some("src/x.rs:1:2"));
        assert_eq!(Exit::Panicked("boom".into()).panic_location(), None);
        assert_eq!(Reason::panic("boom", String::new(), None), Reason::from("boom"));
    }

    #[test]
    fn an_exit_after_a_request_is_not_a_failure() {
        for asked in [Exit::Normal, cancelled(), Exit::Killed, linked(Exit::Killed), linked(cancelled())] {
            assert!(!asked.is_failure(), "{asked}");
        }
        for failed in [Exit::from(io_error()), Exit::Panicked("p".into()), linked(Exit::NoProcess), Exit::NodeDown] {
            assert!(failed.is_failure(), "{failed}");
        }
    }

    #[test]
    fn exits_are_compared_by_variant_and_text() {
        let different = [
            Exit::Normal,
            Exit::from(InitError::failed(io_error())),
            Exit::from(io_error()),
            Exit::failed("tape"),
            Exit::Panicked("disk".into()),
            Exit::Cancelled("disk".into()),
            Exit::Refused(SpawnErrorKind::ShutDown),
            Exit::Refused(SpawnErrorKind::Limit(1)),
            Exit::Killed,
            linked(Exit::Killed),
            linked(cancelled()),
            Exit::Linked { origin: Pid::new(1, 0, 7, 3), reason: Arc::new(Exit::Killed) },
            Exit::NoProcess,
            Exit::NodeDown,
        ];
        for (i, one) in different.iter().enumerate() {
            for (j, other) in different.iter().enumerate() {
                assert_eq!(one == other, i == j, "{one} and {other}");
            }
            assert_eq!(*one, one.clone());
        }
        assert_eq!(Exit::from(io_error()), Exit::failed("disk"));
        assert_eq!(Exit::Panicked(Reason::panic("boom", "x.rs:1:2".into(), None)), Exit::Panicked("boom".into()));
    }

    #[test]
    fn reasons_are_compared_by_text() {
        assert_eq!(Reason::new("deadline"), Reason::DEADLINE);
        assert_eq!(Reason::from(String::from("parent")), Reason::PARENT);
        assert_ne!(Reason::REQUESTED, Reason::SHUTDOWN);
        assert_eq!(Reason::from("x"), "x");
        assert_eq!(Reason::from(Cow::Borrowed("x")), *"x");
        assert_eq!(format!("{0} {0:?} {0:>4}", Reason::new("x")), "x \"x\"    x");
    }
}
