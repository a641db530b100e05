//! What a command or a call was answered with when it was not the reply: `Failure` and `CallError`. They travel as
//! data; a process that lets one out with `?` ends `Exit::Failed` with it inside.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use crate::platform::sync::Arc;
use crate::process::exit::{BoxError, Exit, Reason, chain};

/// Why a command was not answered with its reply; cheap to clone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Failure {
    /// No handler is registered for this command.
    NoHandler(Cow<'static, str>),
    /// The handler dropped its `Completion` without answering.
    Abandoned,
    /// The deadline of the command passed first.
    TimedOut,
    /// The command was cancelled.
    Cancelled,
    /// The handler panicked, with this message.
    Panicked(Reason),
    /// A future of a process was polled outside that process.
    Outside,
    /// The handler answered with this error.
    Error(Arc<dyn Error + Send + Sync>),
}

impl Failure {
    /// The failure of a handler that returned this error: `Error`, unless the error is a failure or one is found among
    /// its sources, as when a handler passes on what its own command was answered; then that one. A `Failure::Error`
    /// is left inside what was wrapped around it, which tells more.
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

    /// The first error of this type among what the handler answered with: its error, or one that this was wrapped
    /// around.
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
            // An exit that a handler met is not the exit of whoever asked the handler: it must not be found as such.
            Self::Error(error) => match error.downcast_ref::<Exit>() {
                Some(exit) => exit.beneath(),
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

/// Why a call was not replied to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such process.
    NoProcess,
    /// It does not take messages of this type.
    WrongType {
        /// The type that it takes.
        expected: &'static str,
    },
    /// Its mailbox is full.
    Full,
    /// The runtime has shut down.
    ShutDown,
    /// It ended before it replied, like this.
    Died(Exit),
    /// It dropped the `Reply`.
    Dropped,
    /// It did not reply in time.
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
            // The exit of who was called is not the exit of the caller: it must not be found as such.
            Self::Died(exit) => exit.beneath(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct While(BoxError);

    impl fmt::Display for While {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("while testing")
        }
    }

    impl Error for While {
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
        for error in [timed_out(), While(timed_out()).into(), While(While(timed_out()).into()).into()] {
            assert!(matches!(Failure::new(error), Failure::TimedOut));
        }
        assert!(matches!(Failure::new(Failure::from("x")), Failure::Error(e) if e.to_string() == "x"));
        let wrapped = Failure::new(While(Failure::from(io::Error::other("disk")).into()));
        assert_eq!(wrapped.to_string(), "the handler failed: while testing");
        assert!(wrapped.error::<While>().is_some() && wrapped.error::<io::Error>().is_some());
        assert!(wrapped.error::<fmt::Error>().is_none() && Failure::Abandoned.error::<io::Error>().is_none());
    }
}
