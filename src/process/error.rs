//! Errors of refused operations: a send, a spawn, a start, a yield, an answer, the build of a runtime.
//!
//! Most of them return the value that the operation did not consume. How a process exits is an `Exit`, and what a
//! command fails with is a `Failure`.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use crate::platform::sync::Mutex;
use crate::process::exit::BoxError;
use crate::process::failure::{CallError, Failure};
use crate::process::payload::Payload;
use crate::process::pid::Pid;

/// No process has this pid, or no longer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoProcess(pub Pid);

impl fmt::Display for NoProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no process {}", self.0)
    }
}

impl Error for NoProcess {}

/// Why a process did not get a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Another process has the name.
    Taken {
        /// The name.
        name: String,
        /// The process that has the name.
        holder: Pid,
    },
    /// The process that was to get the name has exited.
    NoProcess {
        /// The name.
        name: String,
        /// The process.
        pid: Pid,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { name, holder } => write!(f, "the name `{name}` is taken by {holder}"),
            Self::NoProcess { name, pid } => write!(f, "no name `{name}` for {pid}, which has ended"),
        }
    }
}

impl Error for NameError {}

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// No process has this pid, or no longer does.
    NoProcess,
    /// The mailbox of the process is full.
    Full,
    /// The process does not take messages of this type.
    WrongType {
        /// The type that the process takes.
        expected: &'static str,
    },
    /// The runtime has shut down.
    ShutDown,
}

impl fmt::Display for SendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CallError::from(*self).fmt(f)
    }
}

impl Error for SendErrorKind {}

/// A call is refused for the same reasons as its request.
impl From<SendErrorKind> for CallError {
    fn from(refusal: SendErrorKind) -> Self {
        match refusal {
            SendErrorKind::NoProcess => Self::NoProcess,
            SendErrorKind::Full => Self::Full,
            SendErrorKind::WrongType { expected } => Self::WrongType { expected },
            SendErrorKind::ShutDown => Self::ShutDown,
        }
    }
}

/// Error of a refused send. It contains the message.
///
/// It is `Sync` even for a message that is only `Send`, so it converts into a boxed error.
pub struct SendError<M> {
    refusal: SendErrorKind,
    /// Never locked. A `Mutex` of a type that is `Send` is `Sync`.
    message: Mutex<M>,
}

impl<M> SendError<M> {
    /// Creates a refusal. A [`Deliver`](crate::Deliver) uses it to return a package that it does not take.
    pub fn new(refusal: SendErrorKind, message: M) -> Self {
        Self { refusal, message: Mutex::new(message) }
    }

    /// Why the send was refused.
    pub fn refusal(&self) -> SendErrorKind {
        self.refusal
    }

    /// Returns the message that was refused.
    pub fn into_message(self) -> M {
        self.message.into_inner()
    }

    /// Converts the message with `f`: for example, into the value that it was made from, or was wrapped in.
    pub fn map<N>(self, f: impl FnOnce(M) -> N) -> SendError<N> {
        SendError::new(self.refusal, f(self.message.into_inner()))
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message refused: {}", self.refusal)
    }
}

impl<M> Error for SendError<M> {}

/// Why a spawn was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnErrorKind {
    /// The limit on the number of processes is reached. The value is the limit.
    Limit(usize),
    /// Another process has the name. The value is its pid.
    NameTaken(Pid),
    /// The first message of the process was refused, by its own mailbox or by the process that has the name.
    MessageRefused(SendErrorKind),
    /// The process was to be linked or monitored, but its builder belongs to a [`Host`](crate::Host), which has no
    /// process to link it with.
    NoParent,
    /// The [scope](crate::Scope) of the process is over.
    ScopeOver,
    /// The runtime has shut down.
    ShutDown,
}

impl fmt::Display for SpawnErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(most) => write!(f, "the limit of {most} processes is reached"),
            Self::NameTaken(holder) => write!(f, "the name is taken by {holder}"),
            Self::MessageRefused(refusal) => write!(f, "its message was refused: {refusal}"),
            Self::ScopeOver => f.write_str("the scope is over"),
            Self::NoParent => f.write_str("no process spawns it that it could be tied to"),
            Self::ShutDown => f.write_str("the runtime has shut down"),
        }
    }
}

impl Error for SpawnErrorKind {}

/// Error of a refused spawn. It contains the body that was not spawned.
///
/// It is `Sync` even for a body that is only `Send`, so it converts into a boxed error.
pub struct SpawnError<B> {
    refusal: SpawnErrorKind,
    /// Never locked. A `Mutex` of a type that is `Send` is `Sync`. A body may be large, and the box keeps the `Result`
    /// of each spawn small.
    body: Mutex<Box<B>>,
}

impl<B> SpawnError<B> {
    pub(crate) fn new(refusal: SpawnErrorKind, body: B) -> Self {
        Self::boxed(refusal, Box::new(body))
    }

    pub(crate) fn boxed(refusal: SpawnErrorKind, body: Box<B>) -> Self {
        Self { refusal, body: Mutex::new(body) }
    }

    /// Why the spawn was refused.
    pub fn refusal(&self) -> &SpawnErrorKind {
        &self.refusal
    }

    /// Returns the body that was not spawned.
    pub fn into_body(self) -> B {
        *self.body.into_inner()
    }

    /// Converts the body with `f`: for example, into the value that it was made from, or was wrapped in.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> SpawnError<C> {
        SpawnError::new(self.refusal, f(*self.body.into_inner()))
    }
}

impl<B> fmt::Debug for SpawnError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

impl<B> fmt::Display for SpawnError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spawn refused: {}", self.refusal)
    }
}

impl<B> Error for SpawnError<B> {}

/// Why a process could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum InitError {
    /// The process has no entry method of this name.
    UnknownMethod {
        /// The requested name.
        method: String,
        /// The names of the existing entry methods.
        known: Vec<&'static str>,
    },
    /// The entry method does not take this input.
    WrongInput {
        /// The requested method.
        method: String,
        /// Name of the type that the method takes.
        expected: &'static str,
        /// Name of the type of the given input.
        found: &'static str,
    },
    /// The initialization of the process failed with this error.
    Failed(BoxError),
}

impl InitError {
    /// Creates `Failed` with this error. If the error is an `InitError` itself, returns it unchanged.
    pub fn failed(error: impl Into<BoxError>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::Failed(error),
        }
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMethod { method, known } if known.is_empty() => {
                write!(f, "unknown method `{method}`: there are none")
            }
            Self::UnknownMethod { method, known } => {
                write!(f, "unknown method `{method}`: there is `{}`", known.join("`, `"))
            }
            Self::WrongInput { method, expected, found } => {
                write!(f, "the method `{method}` takes {expected}, and was given {found}")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for InitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::UnknownMethod { .. } | Self::WrongInput { .. } => None,
        }
    }
}

impl From<BoxError> for InitError {
    fn from(error: BoxError) -> Self {
        Self::failed(error)
    }
}

impl From<io::Error> for InitError {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}

impl From<&str> for InitError {
    fn from(text: &str) -> Self {
        Self::failed(text)
    }
}

impl From<String> for InitError {
    fn from(text: String) -> Self {
        Self::failed(text)
    }
}

/// Error of a refused yield. Its tag is still in flight, or is not one that a process may choose. The error contains
/// the command.
///
/// It is `Sync` even for a command that is only `Send`, so it converts into a boxed error.
pub struct YieldError<C> {
    /// Never locked. A `Mutex` of a type that is `Send` is `Sync`.
    command: Mutex<C>,
}

impl<C> YieldError<C> {
    pub(crate) fn new(command: C) -> Self {
        Self { command: Mutex::new(command) }
    }

    /// Returns the command that was refused.
    pub fn into_command(self) -> C {
        self.command.into_inner()
    }
}

impl<C> fmt::Debug for YieldError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("YieldError").finish_non_exhaustive()
    }
}

impl<C> fmt::Display for YieldError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("yield refused: its tag is in flight, or not one that can be chosen")
    }
}

impl<C> Error for YieldError<C> {}

/// Why an answer to a yield that is identified by pid and tag was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompleteRefusal {
    /// No process has this pid, or no longer does.
    NoProcess,
    /// The process never made a yield with this tag. A tag that the process chose itself is also unknown after its
    /// answer was read, or its yield was cancelled.
    UnknownTag,
    /// The yield with this tag was already answered or cancelled.
    Spent,
    /// The answer does not have the reply type of the command.
    WrongType {
        /// Name of the command's reply type.
        expected: &'static str,
    },
}

impl fmt::Display for CompleteRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("no such process"),
            Self::UnknownTag => f.write_str("the process made no yield with this tag"),
            Self::Spent => f.write_str("the yield was answered already, or cancelled"),
            Self::WrongType { expected } => write!(f, "the command wants a reply of type {expected}"),
        }
    }
}

impl Error for CompleteRefusal {}

/// Error of a refused answer to a yield that is identified by pid and tag. It contains the answer.
#[derive(Debug)]
pub struct CompleteError {
    refusal: CompleteRefusal,
    answer: Result<Payload, Failure>,
}

impl CompleteError {
    pub(crate) fn new(refusal: CompleteRefusal, answer: Result<Payload, Failure>) -> Self {
        Self { refusal, answer }
    }

    /// Why the answer was refused.
    pub fn refusal(&self) -> CompleteRefusal {
        self.refusal
    }

    /// Returns the answer that was refused.
    pub fn into_answer(self) -> Result<Payload, Failure> {
        self.answer
    }
}

impl fmt::Display for CompleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answer refused: {}", self.refusal)
    }
}

impl Error for CompleteError {}

/// Why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Another handler for this command is registered already.
    DuplicateHandler(Cow<'static, str>),
    /// The number of workers exceeds the maximum of one runtime, which is 48.
    TooManyWorkers {
        /// Requested number of workers.
        asked: usize,
        /// Maximum number of workers.
        most: usize,
    },
    /// An option has no meaning. The text says why.
    Invalid(&'static str),
    /// An operation of the operating system failed: for example, the start of a thread.
    Io(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateHandler(command) => write!(f, "two handlers for the command {command}"),
            Self::TooManyWorkers { asked, most } => write!(f, "{asked} workers asked for, {most} at most"),
            Self::Invalid(why) => write!(f, "invalid option: {why}"),
            Self::Io(error) => write!(f, "the system refused: {error}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for BuildError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::process::exit::Exit;

    fn pid() -> Pid {
        Pid::new(1, 0, 7, 2)
    }

    #[test]
    fn refusals_read_as_plain_english() {
        let method = || String::from("go");
        let table: &[(&dyn fmt::Display, &str)] = &[
            (&NoProcess(pid()), "no process <1.7.2>"),
            (&SendError::new(SendErrorKind::NoProcess, ()), "message refused: no such process"),
            (&SendError::new(SendErrorKind::Full, ()), "message refused: the mailbox is full"),
            (
                &SendError::new(SendErrorKind::WrongType { expected: "u8" }, ()),
                "message refused: the process takes messages of type u8",
            ),
            (&SendError::new(SendErrorKind::ShutDown, ()), "message refused: the runtime has shut down"),
            (&SpawnError::new(SpawnErrorKind::Limit(9), ()), "spawn refused: the limit of 9 processes is reached"),
            (&SpawnError::new(SpawnErrorKind::NameTaken(pid()), ()), "spawn refused: the name is taken by <1.7.2>"),
            (
                &SpawnError::new(SpawnErrorKind::MessageRefused(SendErrorKind::Full), ()),
                "spawn refused: its message was refused: the mailbox is full",
            ),
            (&NameError::Taken { name: method(), holder: pid() }, "the name `go` is taken by <1.7.2>"),
            (&NameError::NoProcess { name: method(), pid: pid() }, "no name `go` for <1.7.2>, which has ended"),
            (&SpawnError::new(SpawnErrorKind::ShutDown, ()), "spawn refused: the runtime has shut down"),
            (&InitError::UnknownMethod { method: method(), known: vec![] }, "unknown method `go`: there are none"),
            (
                &InitError::UnknownMethod { method: method(), known: vec!["a", "b"] },
                "unknown method `go`: there is `a`, `b`",
            ),
            (
                &InitError::WrongInput { method: method(), expected: "u8", found: "()" },
                "the method `go` takes u8, and was given ()",
            ),
            (&InitError::from("disk"), "disk"),
            (
                &CompleteError::new(CompleteRefusal::NoProcess, Err(Failure::TimedOut)),
                "answer refused: no such process",
            ),
            (&CompleteRefusal::WrongType { expected: "u8" }, "the command wants a reply of type u8"),
            (&YieldError::new(()), "yield refused: its tag is in flight, or not one that can be chosen"),
            (&CompleteRefusal::UnknownTag, "the process made no yield with this tag"),
            (&CompleteRefusal::Spent, "the yield was answered already, or cancelled"),
            (&BuildError::DuplicateHandler("Fetch".into()), "two handlers for the command Fetch"),
            (&BuildError::TooManyWorkers { asked: 9, most: 4 }, "9 workers asked for, 4 at most"),
            (&BuildError::Invalid("no budget"), "invalid option: no budget"),
            (&BuildError::from(io::Error::other("disk")), "the system refused: disk"),
        ];
        for (error, text) in table {
            assert_eq!(error.to_string(), *text);
        }
    }

    #[test]
    fn a_refused_value_is_returned() {
        let error = SendError::new(SendErrorKind::Full, Cell::new(7)).map(Cell::into_inner).map(|n| n + 1);
        assert_eq!((error.refusal(), error.into_message()), (SendErrorKind::Full, 8));
        let error = SpawnError::new(SpawnErrorKind::Limit(1), "body").map(str::len);
        assert_eq!((*error.refusal(), error.into_body()), (SpawnErrorKind::Limit(1), 4));
        assert_eq!(YieldError::new(5).into_command(), 5);
        let error = CompleteError::new(CompleteRefusal::Spent, Ok(Payload::new(5_u8)));
        assert_eq!(error.refusal(), CompleteRefusal::Spent);
        let answer = error.into_answer().expect("it was a reply");
        assert_eq!(answer.downcast::<u8>().expect("of this type"), 5);
    }

    #[test]
    fn refusals_fit_a_boxed_error_for_messages_that_are_only_send() {
        let boxed = BoxError::from(SendError::new(SendErrorKind::Full, Cell::new(1)));
        assert_eq!(format!("{boxed:?}"), "SendError { refusal: Full, .. }");
        let _ = BoxError::from(SpawnError::new(SpawnErrorKind::ShutDown, Cell::new(1)));
        let _ = BoxError::from(YieldError::new(Cell::new(1)));
        // A message that is not `'static` can't be boxed, but it still converts into an exit.
        let short = String::from("x");
        let exit = Exit::from(SendError::new(SendErrorKind::Full, short.as_str()));
        assert_eq!(exit.error::<SendErrorKind>(), Some(&SendErrorKind::Full));
        let exit = Exit::from(SpawnError::new(SpawnErrorKind::Limit(3), short.as_str()));
        assert_eq!(exit.error::<SpawnErrorKind>(), Some(&SpawnErrorKind::Limit(3)));
    }

    #[test]
    fn an_init_error_in_an_init_error_comes_out_flat() {
        let inner = InitError::UnknownMethod { method: "go".into(), known: vec![] };
        assert!(matches!(InitError::failed(inner), InitError::UnknownMethod { .. }));
        assert!(matches!(InitError::from(io::Error::other("disk")), InitError::Failed(_)));
    }
}
