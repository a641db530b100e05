//! Errors of commands and calls. `Failure` says why a command received no reply. `CallError` says why a call received
//! no reply.
//!
//! If a process returns one of these errors with `?`, the process exits with an `Exit::Failed` that contains the error.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use crate::platform::sync::{Arc, Mutex};
use crate::process::error::SendErrorKind;
use crate::process::exit::{BoxError, Exit, Reason, chain, is_same_error};
use crate::process::payload::Payload;
use crate::process::pid::Pid;

/// Reason why a command received no reply. A `Failure` is cheap to clone.
///
/// Two failures are equal if they are the same variant with equal values. Two values of `Error` are equal if they hold
/// the same error, or if `Display` writes the same text for both. The comparison ignores the types and the sources of
/// the errors, and the location of a panic.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Failure {
    /// No handler is registered for this command.
    NoHandler(Cow<'static, str>),
    /// The handler dropped its `Completion` without answering.
    Abandoned,
    /// The time limit of the command, or of a future in [`SelfHandle::timeout`](crate::SelfHandle::timeout), has
    /// passed.
    TimedOut,
    /// The command was cancelled.
    Cancelled,
    /// The handler panicked, with this message.
    Panicked(Reason),
    /// A future of a process was polled outside the turns of that process.
    Outside,
    /// The blocking pool or a layer refused the command, because the limit of the pool or the layer is reached and the
    /// queue is full. The blocking pool also refuses a command if the pool has no thread. The text names the pool or
    /// the layer, and the option that the user can change. With [`Overflow::DropOldest`](crate::Overflow::DropOldest),
    /// a command that already waits in the queue can also fail with `Overloaded`.
    Overloaded(Reason),
    /// The runtime has shut down, and the blocking pool accepts no more work.
    ShutDown,
    /// The handler answered with this error.
    Error(Arc<dyn Error + Send + Sync>),
}

impl Failure {
    /// Returns the failure of a command whose handler returned this error. If the error is a failure, or if one of its
    /// sources is a failure, the result is that failure. For example, the error may wrap the failure of a command that
    /// the handler itself performed. If neither the error nor one of its sources is a failure, the result is `Error`.
    ///
    /// If a source is the failure `Error`, the result is `Error` with the outermost error. The outermost error contains
    /// more information. A `CallError` or an `Exit` may contain a failure of another process. A failure inside a
    /// `CallError` or an `Exit` is ignored.
    pub fn new(error: impl Into<BoxError>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(failure) => return *failure,
            Err(error) => error,
        };
        let found = chain(&*error)
            // A `CallError` or an `Exit` contains only failures of other processes.
            .take_while(|e| !e.is::<CallError>() && !e.is::<Exit>())
            .find_map(|e| e.downcast_ref::<Self>());
        match found.cloned() {
            None | Some(Self::Error(_)) => Self::Error(error.into()),
            Some(failure) => failure,
        }
    }

    /// Returns the first error of type `E` among the handler's error and its sources.
    pub fn error<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Error(error) => chain(&**error).find_map(|e| e.downcast_ref()),
            _ => None,
        }
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NoHandler(one), Self::NoHandler(other)) => one == other,
            (Self::Panicked(one), Self::Panicked(other)) | (Self::Overloaded(one), Self::Overloaded(other)) => {
                one == other
            }
            (Self::Error(one), Self::Error(other)) => is_same_error(&**one, &**other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Eq for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHandler(command) => {
                write!(f, "no handler is registered for the command {command}; add one with `Builder::handler`")
            }
            Self::Abandoned => f.write_str("the handler dropped its `Completion` without an answer"),
            Self::TimedOut => f.write_str("the command was not answered before its deadline"),
            Self::Cancelled => f.write_str("the command was cancelled"),
            Self::Panicked(message) => write!(f, "the handler panicked{}: {message}", message.at()),
            Self::Outside => {
                f.write_str("a future of a process was polled outside its process; await it inside that process")
            }
            Self::Overloaded(reason) => write!(f, "overloaded: {reason}"),
            Self::ShutDown => f.write_str("the runtime has shut down, and its blocking pool accepts no more work"),
            Self::Error(error) => write!(f, "the handler failed: {error}"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // `Exit::failed` searches the sources for the exit of the failed process itself. The handler's error may
            // contain the exit of another process. Therefore, `Exit::failed` must not find that exit among the sources.
            Self::Error(error) => match error.downcast_ref::<Exit>() {
                Some(exit) => exit.source_of_other(),
                None => Some(&**error),
            },
            _ => None,
        }
    }
}

impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        Self::new(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

const _: () = assert!(size_of::<Failure>() <= 32);

/// Reason why a call received no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The request was refused, for this reason.
    Send(SendErrorKind),
    /// The owner of the [`Reply`](crate::Reply) exited before this owner replied. Usually, the owner is the called
    /// process.
    Died(Exit),
    /// The owner of the `Reply` dropped the `Reply` without an answer.
    Dropped,
    /// No process replied within the time limit.
    TimedOut,
    /// Too few of the called processes replied to a [`multi_call`](crate::Host::multi_call).
    NoQuorum(NoQuorum),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(SendErrorKind::Full) => {
                f.write_str("call refused: the mailbox is full; raise its `MailboxCapacity`, or wait with `call_wait`")
            }
            Self::Send(kind) => write!(f, "call refused: {kind}"),
            Self::Died(exit) => write!(f, "the called process exited before it replied: {exit}"),
            Self::Dropped => f.write_str("the called process dropped the `Reply` without an answer"),
            Self::TimedOut => f.write_str("the called process did not reply within the time limit of the call"),
            Self::NoQuorum(missed) => missed.fmt(f),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // `Exit::failed` searches the sources for the exit of the failed process itself. The exit in a `Died` is
            // the exit of the called process, not of the failed process. Therefore, `Exit::failed` must not find the
            // exit of the called process among the sources.
            Self::Died(exit) => exit.source_of_other(),
            _ => None,
        }
    }
}

/// The answers to a [`multi_call`](crate::Host::multi_call) that failed because too few processes replied:
/// [`CallError::NoQuorum`]. The original value and all its clones share the replies.
#[derive(Clone)]
pub struct NoQuorum {
    // The answers are behind an `Arc`, so that a `CallError` stays small. Each call moves a result through a reply
    // slot, and the result may be a `CallError`.
    answers: Arc<Answers>,
}

struct Answers {
    needed: usize,
    replied: usize,
    failures: Vec<(Pid, CallError)>,
    /// The replies, a `Vec<(Pid, T)>`, until [`take_replies`](NoQuorum::take_replies) takes them.
    replies: Mutex<Option<Payload>>,
}

const _: () = assert!(size_of::<CallError>() <= 32);

impl NoQuorum {
    pub(crate) fn new<T: Send + 'static>(
        needed: usize,
        replies: Vec<(Pid, T)>,
        failures: Vec<(Pid, CallError)>,
    ) -> Self {
        let replied = replies.len();
        let replies = Mutex::new(Some(Payload::new(replies)));
        Self { answers: Arc::new(Answers { needed, replied, failures, replies }) }
    }

    /// Returns the number of replies that the call needed.
    pub fn needed(&self) -> usize {
        self.answers.needed
    }

    /// Returns the number of processes that replied before the call failed.
    pub fn replied(&self) -> usize {
        self.answers.replied
    }

    /// Returns a list of the processes that did not reply. The list contains the pid of each process and the error of
    /// the call to this process. The processes are in the order of the calls. The list does not contain the processes
    /// whose reply was still possible when the call failed.
    pub fn failures(&self) -> &[(Pid, CallError)] {
        &self.answers.failures
    }

    /// Takes the replies that arrived before the multi-call failed, in the order of the calls. Returns `None` if the
    /// reply type of the call is not `T`, or if the replies were already taken.
    pub fn take_replies<T: Send + 'static>(&self) -> Option<Vec<(Pid, T)>> {
        Payload::take(&mut self.answers.replies.lock())
    }
}

impl fmt::Debug for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, replied, failures) = (self.needed(), self.replied(), self.failures());
        f.debug_struct("NoQuorum")
            .field("needed", &needed)
            .field("replied", &replied)
            .field("failures", &failures)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answers { needed, replied, failures, .. } = &*self.answers;
        write!(f, "{replied} of the {needed} needed replies arrived")?;
        match &failures[..] {
            [] => f.write_str("; too few processes were called"),
            [(pid, error)] => write!(f, "; process {pid}: {error}"),
            [(pid, error), others @ ..] => write!(f, "; process {pid}: {error}; {} more failed", others.len()),
        }
    }
}

/// The replies are not compared, because their type is not known.
impl PartialEq for NoQuorum {
    fn eq(&self, other: &Self) -> bool {
        self.needed() == other.needed() && self.replied() == other.replied() && self.failures() == other.failures()
    }
}

impl Eq for NoQuorum {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct SourceWrapper(BoxError);

    impl fmt::Display for SourceWrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while testing")
        }
    }

    impl Error for SourceWrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }

    #[test]
    fn the_texts_of_failures_and_call_errors_are_plain_english() {
        for (failure, text) in [
            (Failure::Abandoned, "the handler dropped its `Completion` without an answer"),
            (Failure::TimedOut, "the command was not answered before its deadline"),
            (Failure::Panicked("index".into()), "the handler panicked: index"),
            (
                Failure::Panicked(Reason::panic("index", "a.rs:1:2".into(), None)),
                "the handler panicked at a.rs:1:2: index",
            ),
            (Failure::from("disk"), "the handler failed: disk"),
        ] {
            assert_eq!(failure.to_string(), text);
        }
        for (error, text) in [
            (CallError::Send(SendErrorKind::ShutDown), "call refused: the runtime has shut down"),
            (CallError::Died(Exit::Killed), "the called process exited before it replied: killed"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn failures_are_compared_by_variant_and_text() {
        let different = [
            Failure::NoHandler("disk".into()),
            Failure::NoHandler("Fetch".into()),
            Failure::Abandoned,
            Failure::TimedOut,
            Failure::Cancelled,
            Failure::Panicked("disk".into()),
            Failure::Outside,
            Failure::Overloaded("disk".into()),
            Failure::ShutDown,
            Failure::from("disk"),
            Failure::from("tape"),
        ];
        for (i, one) in different.iter().enumerate() {
            for (j, other) in different.iter().enumerate() {
                assert_eq!(one == other, i == j, "{one} and {other}");
            }
        }
        assert_eq!(Failure::from("disk"), Failure::from(io::Error::other("disk")));
        assert_eq!(CallError::Died(Exit::failed("disk")), CallError::Died(Exit::failed(io::Error::other("disk"))));
        assert_ne!(CallError::Dropped, CallError::TimedOut);
    }

    #[test]
    fn a_failure_inside_an_error_is_returned_unwrapped() {
        let timed_out = || BoxError::from(Failure::TimedOut);
        for error in
            [timed_out(), SourceWrapper(timed_out()).into(), SourceWrapper(SourceWrapper(timed_out()).into()).into()]
        {
            assert!(matches!(Failure::new(error), Failure::TimedOut));
        }
        assert!(matches!(Failure::new(Failure::from("x")), Failure::Error(e) if e.to_string() == "x"));
        let wrapped = Failure::new(SourceWrapper(Failure::from(io::Error::other("disk")).into()));
        assert_eq!(wrapped.to_string(), "the handler failed: while testing");
        assert!(wrapped.error::<SourceWrapper>().is_some() && wrapped.error::<io::Error>().is_some());
        assert!(wrapped.error::<fmt::Error>().is_none() && Failure::Abandoned.error::<io::Error>().is_none());
    }
    #[test]
    fn the_failure_of_another_process_is_not_the_failure_of_the_command() {
        let exit = || Exit::failed(Failure::TimedOut);
        for error in [
            BoxError::from(exit()),
            CallError::Died(exit()).into(),
            SourceWrapper(exit().into()).into(),
            SourceWrapper(CallError::Died(exit()).into()).into(),
        ] {
            let text = error.to_string();
            assert!(matches!(Failure::new(error), Failure::Error(e) if e.to_string() == text), "{text}");
        }
        let died = Failure::new(CallError::Died(exit()));
        assert_eq!(died.error::<CallError>(), Some(&CallError::Died(exit())));
    }
}
