//! Errors of refused operations. Examples of operations that can be refused are a send, a spawn, a yield of a command,
//! an answer, and the build of a runtime.
//!
//! Most of these errors contain the value that the operation did not consume. The file `exit.rs` defines the exit of a
//! process, and the file `failure.rs` defines the failure of a command.

use std::any::type_name;
use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use crate::platform::sync::{Arc, Mutex};
use crate::process::exit::{BoxError, Exit};
use crate::process::pid::Pid;

/// Error of an operation on a process that has exited or that never existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoProcess(pub Pid);

impl fmt::Display for NoProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} has exited or never existed", self.0)
    }
}

impl Error for NoProcess {}

/// Reason why a process did not get a name.
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
    /// The process that should get the name has exited.
    Exited {
        /// The name.
        name: String,
        /// The process that has exited.
        pid: Pid,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { name, holder } => {
                write!(f, "the name `{name}` is taken by process {holder}; choose another name, or unregister it there")
            }
            Self::Exited { name, pid } => {
                write!(
                    f,
                    "process {pid} has exited and cannot take the name `{name}`; register it while the process runs"
                )
            }
        }
    }
}

impl Error for NameError {}

/// Reason why a message, a command or an answer was refused: see [`SendError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// No process has this pid or name. The process has exited, or it never existed.
    NoProcess,
    /// The mailbox of the process is full.
    Full,
    /// The value has the wrong type: the process does not accept the type of the message, or the type of the answer is
    /// not the reply type of the command.
    WrongType {
        /// Name of the type that the receiver accepts.
        expected: &'static str,
    },
    /// The runtime has shut down.
    ShutDown,
    /// The tag of a command cannot be used. Either a command with this tag is still in flight, or the tag was not
    /// created by [`Tag::chosen`](crate::Tag::chosen).
    TagInUse,
    /// The tag of an answer is unknown. The process never yielded a command with this tag. A tag that the process
    /// itself chose also becomes unknown when the process reads the answer or cancels the command.
    UnknownTag,
    /// An answer came too late: the command was already answered or cancelled.
    Spent,
    /// The mailbox had no free space within the [time limit](crate::future::SendWait::timeout) of the send.
    TimedOut,
}

impl fmt::Display for SendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("the process has exited or never existed"),
            Self::Full => f.write_str(
                "the mailbox is full; wait with `send_wait` (not possible for urgent messages), or raise its capacity",
            ),
            Self::WrongType { expected } => {
                write!(f, "the receiver takes values of type {expected}; send one of that type")
            }
            Self::ShutDown => f.write_str("the runtime has shut down"),
            Self::TagInUse => {
                f.write_str("the tag belongs to a command in flight, or is not from `Tag::chosen`; choose another tag")
            }
            Self::UnknownTag => {
                f.write_str("the process has no command with this tag; take pid and tag from `Completion::into_tag`")
            }
            Self::Spent => f.write_str("the command was already answered or cancelled; answer each command once"),
            Self::TimedOut => f.write_str("the mailbox had no free space within the time limit of the send"),
        }
    }
}

/// Receiver of a refused value, for the text of the error.
#[derive(Debug, Clone)]
pub(crate) enum Addressee {
    Unknown,
    /// The value is a message to a process.
    Process(Pid),
    /// The value is a message to the process that has this name.
    Named(Box<str>),
    /// The value is an answer to a command of a process.
    Yield(Pid),
    /// The value is a command of a process.
    Handler(Pid),
}

/// Error of a refused message, command or answer. The error contains the refused value.
///
/// The error is `Sync` even if the value is only `Send`. Therefore, the error converts into a boxed error. The
/// conversion into an [`Exit`] drops the value. Therefore, [`Exit::error`] finds the error under the type
/// `SendError<()>`:
///
/// ```
/// # use procession::{Context, Exit, Pid, Runtime, SendError, SendErrorKind};
/// # let rt = Runtime::builder().workers(0).build()?;
/// let late = rt.spawn(async |ctx: Context| -> Result<(), Exit> {
///     let gone = ctx.spawn(async |_: Context<u8>| {});
///     let pid = gone.pid();
///     gone.await?;
///     Ok(ctx.send(pid, 7_u8)?)
/// });
/// let exit = rt.block_on(late).unwrap_err();
/// assert_eq!(exit.error().map(SendError::<()>::kind), Some(SendErrorKind::NoProcess));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// The conversion into a boxed error keeps the value. Suppose that a body returns
/// [`procession::Result`](crate::Result), and that the refused value contains an address of the process that runs this
/// body. If the body returns the error with `?`, this creates a reference cycle: see [`Exit::failed`]. To avoid the
/// cycle, return `Result<T, Exit>` from the body, or return only the [`kind`](Self::kind).
pub struct SendError<M> {
    kind: SendErrorKind,
    to: Addressee,
    /// Function that returns the name of the value's type. The function remains available after a conversion that drops
    /// the value.
    value_type: fn() -> &'static str,
    /// The mutex is never locked. The mutex makes the error `Sync`, because a `Mutex` of a `Send` type is `Sync`.
    message: Mutex<M>,
}

impl<M> SendError<M> {
    /// Creates the error of a refused value. An implementation of [`Deliver`](crate::Deliver) calls this function to
    /// return an envelope that the implementation does not accept.
    pub fn new(kind: SendErrorKind, message: M) -> Self {
        Self { kind, to: Addressee::Unknown, value_type: type_name::<M>, message: Mutex::new(message) }
    }

    /// Sets the receiver of the value. The text of the error names this receiver.
    pub(crate) fn to(mut self, to: Addressee) -> Self {
        self.to = to;
        self
    }

    /// Sets the function that returns the type name of the value. The text of the error contains this name.
    pub(crate) fn value_type(mut self, name: fn() -> &'static str) -> Self {
        self.value_type = name;
        self
    }

    /// Returns the reason of the refusal.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// Returns the refused message, command or answer.
    pub fn into_message(self) -> M {
        self.message.into_inner()
    }

    /// Converts the refused value with `f`. For example, `f` extracts a message from its envelope.
    pub fn map<N>(self, f: impl FnOnce(M) -> N) -> SendError<N> {
        SendError::new(self.kind, f(self.message.into_inner())).to(self.to)
    }

    /// Drops the value and keeps the rest of the error.
    fn into_empty(self) -> SendError<()> {
        let Self { kind, to, value_type, message } = self;
        drop(message);
        SendError { kind, to, value_type, message: Mutex::new(()) }
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("kind", &self.kind).field("to", &self.to).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, value_type) = (&self.kind, (self.value_type)());
        match &self.to {
            Addressee::Unknown => write!(f, "message of type {value_type} refused: ")?,
            Addressee::Process(pid) => write!(f, "message of type {value_type} to process {pid} refused: ")?,
            Addressee::Named(name) => {
                write!(f, "message of type {value_type} to process `{name}` refused: ")?;
                if *kind == SendErrorKind::NoProcess {
                    return f.write_str("no process of this host has the name; register it first");
                }
            }
            Addressee::Yield(pid) => write!(f, "answer to a command of process {pid} refused: ")?,
            Addressee::Handler(pid) => write!(f, "command {value_type} of process {pid} refused: ")?,
        }
        kind.fmt(f)
    }
}

impl<M> Error for SendError<M> {}

/// Reason why a spawn or an upgrade was refused: see [`SpawnError`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnErrorKind {
    /// The limit on the number of processes is reached. The value is the limit.
    Limit(usize),
    /// Another process has the name. The value is the pid of that process. OTP's supervisor returns `already_started`
    /// in this case.
    NameTaken(Pid),
    /// The supervisor already has a child with this name. At present, no instance of the child runs. OTP's supervisor
    /// returns `already_present` in this case.
    AlreadyPresent,
    /// The supervisor of the new child is exiting.
    SupervisorExiting,
    /// The first message was refused, either by the mailbox of the new process or by the process that already has the
    /// name.
    MessageRefused(SendErrorKind),
    /// A link or a monitor was requested, but the builder belongs to a [`Host`](crate::Host). A host is not a process.
    /// Therefore, a host cannot have links or monitors.
    NoParent,
    /// The [scope](crate::Scope) of the process has ended.
    ScopeOver,
    /// The runtime has shut down.
    ShutDown,
    /// The new code of an [upgrade](crate::StepOutput::upgrade) did not start. The value of this variant is the exit of
    /// the new code. The exit is [`Exit::InitFailed`] or [`Exit::Panicked`], or [`Exit::Failed`] if the output of the
    /// new code has the wrong type.
    StartFailed(Arc<Exit>),
}

impl fmt::Display for SpawnErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(most) if *most == u32::MAX as usize => write!(f, "all {most} pids are in use"),
            Self::Limit(most) => write!(f, "the process limit of {most} is reached; raise `max_processes`"),
            Self::NameTaken(holder) => {
                write!(f, "the name is taken by process {holder}; choose another name, or use `spawn_or_send`")
            }
            Self::AlreadyPresent => f.write_str(
                "the supervisor already has a child with this name, and the child does not run; restart the child",
            ),
            Self::SupervisorExiting => f.write_str("the supervisor is exiting"),
            Self::MessageRefused(kind) => write!(f, "the first message was refused: {kind}"),
            Self::NoParent => f.write_str(
                "a link or monitor needs a parent process, but a host made this spawn; spawn from inside a process",
            ),
            Self::ScopeOver => f.write_str("the scope is over; spawn before its body returns"),
            Self::ShutDown => f.write_str("the runtime has shut down"),
            Self::StartFailed(exit) => write!(f, "the new code did not start: {exit}"),
        }
    }
}

/// Error of a refused spawn or upgrade. The error contains the body or the process that did not start.
///
/// The error is `Sync` even if the body is only `Send`. Therefore, the error converts into a boxed error. The
/// conversion into an [`Exit`] drops the body. Therefore, [`Exit::error`] finds the error under the type
/// `SpawnError<()>`.
pub struct SpawnError<B> {
    kind: SpawnErrorKind,
    /// Name of the type of the body. The name remains available after a conversion that drops the body.
    body_type: &'static str,
    /// The mutex is never locked. The mutex makes the error `Sync`, because a `Mutex` of a `Send` type is `Sync`. A
    /// body may be large. The box keeps the `Result` of a spawn small.
    body: Mutex<Box<B>>,
}

impl<B> SpawnError<B> {
    pub(crate) fn new(kind: SpawnErrorKind, body: B) -> Self {
        Self::boxed(kind, Box::new(body))
    }

    pub(crate) fn boxed(kind: SpawnErrorKind, body: Box<B>) -> Self {
        Self { kind, body_type: type_name::<B>(), body: Mutex::new(body) }
    }

    /// Returns the reason of the refusal.
    pub fn kind(&self) -> &SpawnErrorKind {
        &self.kind
    }

    /// Returns the body or the process that did not start.
    pub fn into_body(self) -> B {
        *self.body.into_inner()
    }

    /// Converts the body with `f`. For example, `f` extracts a body from its wrapper.
    pub fn map<C>(self, f: impl FnOnce(B) -> C) -> SpawnError<C> {
        SpawnError::new(self.kind, f(*self.body.into_inner()))
    }

    /// Separates the body from the error. The error keeps the name of the type of the body.
    pub(crate) fn split(self) -> (SpawnError<()>, Box<B>) {
        let Self { kind, body_type, body } = self;
        (SpawnError { kind, body_type, body: Mutex::new(Box::new(())) }, body.into_inner())
    }

    /// Returns the exit of a process that returns this error.
    fn into_exit(self) -> Exit {
        let (error, body) = self.split();
        drop(body);
        match error {
            SpawnError { kind: SpawnErrorKind::StartFailed(exit), .. } => Arc::unwrap_or_clone(exit),
            error => Exit::failed(error),
        }
    }
}

impl<B> fmt::Debug for SpawnError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<B> fmt::Display for SpawnError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, body_type, .. } = self;
        match kind {
            SpawnErrorKind::StartFailed(_) => write!(f, "upgrade to {body_type} refused: {kind}"),
            // The user's body is inside a closure of this crate. The type name of this closure does not help the reader
            // of the message.
            _ if body_type.starts_with("procession::") && body_type.contains("{{closure}}") => {
                write!(f, "spawn refused: {kind}")
            }
            _ => write!(f, "spawn of {body_type} refused: {kind}"),
        }
    }
}

impl<B> Error for SpawnError<B> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            SpawnErrorKind::StartFailed(exit) => Some(&**exit),
            _ => None,
        }
    }
}

/// The conversion drops the refused value. [`Exit::error`] finds the error under the type `SendError<()>`.
impl<M> From<SendError<M>> for Exit {
    fn from(error: SendError<M>) -> Self {
        Self::failed(error.into_empty())
    }
}

/// The conversion drops the body. [`Exit::error`] finds the error under the type `SpawnError<()>`. A
/// [`SpawnErrorKind::StartFailed`] becomes the exit that it contains.
impl<B> From<SpawnError<B>> for Exit {
    fn from(error: SpawnError<B>) -> Self {
        error.into_exit()
    }
}

impl From<BuildError> for Exit {
    fn from(error: BuildError) -> Self {
        Self::failed(error)
    }
}

/// Reason why a process could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum InitError {
    /// The process has no entry point with this name.
    UnknownEntry {
        /// The requested name.
        entry: String,
        /// The names of the existing entry points.
        known: Vec<&'static str>,
    },
    /// The entry point does not accept an input of this type.
    WrongInput {
        /// The requested entry point.
        entry: String,
        /// Name of the type that the entry point accepts.
        expected: &'static str,
        /// Name of the type of the given input.
        found: &'static str,
    },
    /// The initialization of the process failed with this error.
    Failed(BoxError),
}

impl InitError {
    /// Returns `Failed` with this error. If the error is already an `InitError`, returns that error unchanged.
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
            Self::UnknownEntry { entry, known } if known.is_empty() => {
                write!(f, "unknown entry point `{entry}`: the process has none; spawn it without one")
            }
            Self::UnknownEntry { entry, known } => {
                write!(f, "unknown entry point `{entry}`; use one of `{}`", known.join("`, `"))
            }
            Self::WrongInput { entry, expected, found } => {
                write!(
                    f,
                    "entry point `{entry}` takes input of type {expected}, not {found}; pass that type to `input`"
                )
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl Error for InitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::UnknownEntry { .. } | Self::WrongInput { .. } => None,
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

/// Reason why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Another handler is already registered for this command.
    DuplicateHandler(Cow<'static, str>),
    /// The requested number of workers is larger than 48, the maximum of one runtime.
    TooManyWorkers {
        /// Requested number of workers.
        asked: usize,
        /// Maximum number of workers.
        most: usize,
    },
    /// An option has an invalid value, or cannot be used on this system. The text gives the reason.
    Invalid(&'static str),
    /// An operation of the operating system failed, for example the start of a thread.
    Io(io::Error),
    /// The socket of the console cannot be opened. This variant needs the feature `console`.
    #[cfg(feature = "console")]
    Console {
        /// Path or address of the socket.
        at: String,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateHandler(command) => {
                write!(f, "two handlers are registered for the command {command}; register one per host")
            }
            Self::TooManyWorkers { asked, most } => {
                write!(f, "{asked} workers are more than the {most} of one runtime; lower `Builder::workers`")
            }
            Self::Invalid(why) => write!(f, "invalid option: {why}"),
            Self::Io(error) => write!(f, "the operating system could not start the runtime: {error}"),
            #[cfg(feature = "console")]
            Self::Console { at, error } => write!(f, "the console socket {at} cannot be opened: {error}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            #[cfg(feature = "console")]
            Self::Console { error, .. } => Some(error),
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

    fn pid() -> Pid {
        Pid::new(1, 0, 7, 2)
    }

    /// The test `messages` of `tests/it` prints the texts of all errors.
    #[test]
    fn a_refusal_names_the_value_and_the_receiver() {
        let refused = |to| SendError::new(SendErrorKind::ShutDown, 7_u8).to(to).to_string();
        for (to, text) in [
            (Addressee::Unknown, "message of type u8 refused: the runtime has shut down"),
            (Addressee::Process(pid()), "message of type u8 to process <1.7.2> refused: the runtime has shut down"),
            (
                Addressee::Named("cache".into()),
                "message of type u8 to process `cache` refused: the runtime has shut down",
            ),
            (Addressee::Yield(pid()), "answer to a command of process <1.7.2> refused: the runtime has shut down"),
            (Addressee::Handler(pid()), "command u8 of process <1.7.2> refused: the runtime has shut down"),
        ] {
            assert_eq!(refused(to), text);
        }
        let spawn = SpawnError::new(SpawnErrorKind::ShutDown, 7_u8);
        assert_eq!(spawn.to_string(), "spawn of u8 refused: the runtime has shut down");
        let upgrade = SpawnError::new(SpawnErrorKind::StartFailed(Exit::Killed.into()), 7_u8);
        assert_eq!(upgrade.to_string(), "upgrade to u8 refused: the new code did not start: killed");
        assert!(upgrade.source().is_some_and(|source| source.is::<Exit>()) && spawn.source().is_none());
    }

    #[test]
    fn a_refused_value_is_returned() {
        let error = SendError::new(SendErrorKind::Full, Cell::new(7)).map(Cell::into_inner).map(|n| n + 1);
        assert_eq!((error.kind(), error.into_message()), (SendErrorKind::Full, 8));
        let error = SpawnError::new(SpawnErrorKind::Limit(1), "body").map(str::len);
        assert_eq!((error.kind().clone(), error.into_body()), (SpawnErrorKind::Limit(1), 4));
    }

    #[test]
    fn an_error_with_a_value_that_is_not_sync_converts_into_a_boxed_error() {
        let boxed = BoxError::from(SendError::new(SendErrorKind::Full, Cell::new(1)));
        assert_eq!(format!("{boxed:?}"), "SendError { kind: Full, to: Unknown, .. }");
        let _ = BoxError::from(SpawnError::new(SpawnErrorKind::ShutDown, Cell::new(1)));
        // An error whose message is not `'static` cannot be boxed. Nevertheless, an error whose message is not
        // `'static` converts into an exit.
        let short = String::from("x");
        let error = SendError::new(SendErrorKind::Full, short.as_str()).to(Addressee::Process(pid()));
        let (text, exit) = (error.to_string(), Exit::from(error));
        let found: &SendError<()> = exit.error().unwrap();
        assert_eq!((found.kind(), found.to_string()), (SendErrorKind::Full, text));
        let error = SpawnError::new(SpawnErrorKind::Limit(3), short.as_str());
        let (text, exit) = (error.to_string(), Exit::from(error));
        let found: &SpawnError<()> = exit.error().unwrap();
        assert_eq!((found.kind(), found.to_string()), (&SpawnErrorKind::Limit(3), text));
        let kind = SpawnErrorKind::StartFailed(Exit::failed("disk").into());
        let exit = Exit::from(SpawnError::new(kind, short.as_str()));
        assert_eq!(exit, Exit::failed("disk"));
    }

    #[test]
    fn a_nested_init_error_is_returned_unwrapped() {
        let inner = InitError::UnknownEntry { entry: "go".into(), known: vec![] };
        assert!(matches!(InitError::failed(inner), InitError::UnknownEntry { .. }));
        assert!(matches!(InitError::from(io::Error::other("disk")), InitError::Failed(_)));
    }
}
