//! Errors of commands and calls: `Failure` is the answer to a command without a reply, `CallError` is the result of a
//! call without a reply.
//!
//! They are values. A process that returns one of them with `?` exits with an `Exit::Failed` that contains it.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use crate::platform::sync::Arc;
use crate::process::exit::{BoxError, Exit, Reason, chain};

/// Why a command was not answered with its reply. It is cheap to clone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Failure {
    /// No handler is registered for this command.
    NoHandler(Cow<'static, str>),
    /// The handler dropped its `Completion` without answering.
    Abandoned,
    /// The deadline of the command passed before the answer.
    TimedOut,
    /// The command was cancelled.
    Cancelled,
    /// The handler panicked, with this message.
    Panicked(Reason),
    /// A future of a process was polled outside the turns of that process.
    Outside,
    /// The handler answered with this error.
    Error(Arc<dyn Error + Send + Sync>),
}

impl Failure {
    /// Returns the failure of a handler that returned this error. This is `Error`, unless the error is a failure or has
    /// one among its sources: then it is that failure. A source is a failure, for example, if a handler returns the
    /// failure of a command of its own.
    ///
    /// If the failure among the sources is an `Error`, the result is `Error` with the outer error, which contains more
    /// information.
    pub fn new(error: impl Into<BoxError>) -> Self {
        let error = match error.into().downcast::<Self>() {
            Ok(failure) => return *failure,
            Err(error) => error,
        };
        let found = chain(&*error).find_map(|e| e.downcast_ref::<Self>());
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHandler(command) => write!(f, "no handler for the command {command}"),
            Self::Abandoned => f.write_str("the handler never answered"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Cancelled => f.write_str("the command was cancelled"),
            Self::Panicked(text) => write!(f, "the handler panicked: {text}"),
            Self::Outside => f.write_str("polled outside its process"),
            Self::Error(error) => write!(f, "the handler failed: {error}"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The exit of a process inside the handler's error is not the exit of the caller. `Exit::failed` must not
            // find it among the sources.
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

/// Why a call was not answered with its reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// The called process does not exist, or no longer does.
    NoProcess,
    /// The called process does not take messages of this type.
    WrongType {
        /// The type that the process takes.
        expected: &'static str,
    },
    /// The mailbox of the called process is full.
    Full,
    /// The runtime has shut down.
    ShutDown,
    /// The called process exited before it replied.
    Died(Exit),
    /// The called process dropped the `Reply`.
    Dropped,
    /// The called process did not reply in time.
    TimedOut,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => f.write_str("no such process"),
            Self::WrongType { expected } => write!(f, "the process takes messages of type {expected}"),
            Self::Full => f.write_str("the mailbox is full"),
            Self::ShutDown => f.write_str("the runtime has shut down"),
            Self::Died(exit) => write!(f, "the process ended before it replied: {exit}"),
            Self::Dropped => f.write_str("the process dropped the reply"),
            Self::TimedOut => f.write_str("no reply in time"),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The exit of the called process is not the exit of the caller. `Exit::failed` must not find it among the
            // sources.
            Self::Died(exit) => exit.source_of_other(),
            _ => None,
        }
    }
}

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
    fn failures_and_call_errors_read_as_plain_english() {
        for (failure, text) in [
            (Failure::NoHandler("Fetch".into()), "no handler for the command Fetch"),
            (Failure::Abandoned, "the handler never answered"),
            (Failure::TimedOut, "timed out"),
            (Failure::Cancelled, "the command was cancelled"),
            (Failure::Panicked("index".into()), "the handler panicked: index"),
            (Failure::Outside, "polled outside its process"),
            (Failure::from("disk"), "the handler failed: disk"),
        ] {
            assert_eq!(failure.to_string(), text);
        }
        for (error, text) in [
            (CallError::NoProcess, "no such process"),
            (CallError::WrongType { expected: "u8" }, "the process takes messages of type u8"),
            (CallError::Full, "the mailbox is full"),
            (CallError::ShutDown, "the runtime has shut down"),
            (CallError::Died(Exit::Killed), "the process ended before it replied: killed"),
            (CallError::Dropped, "the process dropped the reply"),
            (CallError::TimedOut, "no reply in time"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_failure_in_an_error_comes_out_flat() {
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
}
