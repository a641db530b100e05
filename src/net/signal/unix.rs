//! The signals of Unix. A stream yields one item when a signal arrives.
//!
//! The crate `signal-hook` installs a signal handler. The handler writes one byte to a socket. The poller of the
//! runtime then wakes the process that waits for the other end of this socket.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use signal_hook::SigId;
use signal_hook::consts as number;

use crate::host::Host;
use crate::net::Async;

/// A kind of signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SignalKind(i32);

impl SignalKind {
    /// `SIGALRM`.
    pub const ALARM: Self = Self(number::SIGALRM);
    /// `SIGCHLD`: a child process of the program has changed its state.
    pub const CHILD: Self = Self(number::SIGCHLD);
    /// `SIGHUP`: the terminal was closed. Servers often use this signal as a request to reload their configuration.
    pub const HANGUP: Self = Self(number::SIGHUP);
    /// `SIGINT`: Ctrl-C.
    pub const INTERRUPT: Self = Self(number::SIGINT);
    /// `SIGPIPE`: a write to a pipe without a reader. The standard library makes the program ignore this signal.
    pub const PIPE: Self = Self(number::SIGPIPE);
    /// `SIGQUIT`.
    pub const QUIT: Self = Self(number::SIGQUIT);
    /// `SIGTERM`: a request to end the program.
    pub const TERMINATE: Self = Self(number::SIGTERM);
    /// `SIGUSR1`.
    pub const USER_DEFINED1: Self = Self(number::SIGUSR1);
    /// `SIGUSR2`.
    pub const USER_DEFINED2: Self = Self(number::SIGUSR2);
    /// `SIGWINCH`: the size of the terminal has changed.
    pub const WINDOW_CHANGE: Self = Self(number::SIGWINCH);

    /// Returns the kind whose number in the operating system is `number`. Does not check whether the number exists:
    /// [`signal`] refuses a number that does not exist.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Returns the number of this kind in the operating system.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// Stream that yields an item when a signal of one kind arrives: see [`signal`].
///
/// The operating system merges signals of one kind that arrive in quick succession. So one item means one or more
/// signals.
#[derive(Debug)]
pub struct Signal {
    arrivals: Async<UnixStream>,
    handler: SigId,
}

/// Returns a stream of the signals of one kind that arrive from now on. The stream uses the runtime of the calling
/// thread.
///
/// The first call for a kind installs a handler, which stays installed until the program ends. So after the first call,
/// the default effect of this kind of signal never occurs again, even after the [`Signal`] was dropped.
///
/// Each `Signal` uses two descriptors of the program. The time of this call, and the time of the signal handler, is in
/// proportion to the number of `Signal` values. If many processes need the same signal, one process should own the
/// `Signal` and send a message to the other processes, for example through a group.
///
/// # Errors
/// Returns an error if the handler cannot be installed: the kind does not exist, or the signal is `SIGKILL`, `SIGSTOP`,
/// `SIGILL`, `SIGFPE` or `SIGSEGV`. Returns an error if the thread has no runtime, or if the runtime is a simulation.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let (arrivals, handler) = register(kind, |stream| non_blocking(stream).and_then(Async::new))?;
    Ok(Signal { arrivals, handler })
}

/// Does the same as [`signal`], on the runtime of `host`.
///
/// # Errors
/// Fails under the same conditions as [`signal`].
pub fn signal_in(host: &Host, kind: SignalKind) -> io::Result<Signal> {
    let (arrivals, handler) = register(kind, |stream| Async::new_in(host, non_blocking(stream)?))?;
    Ok(Signal { arrivals, handler })
}

fn non_blocking(stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Registers a signal handler that writes to one end of a new socket. `new` takes the other end. If `new` fails, this
/// function registers no handler.
pub(super) fn register<T>(kind: SignalKind, new: impl FnOnce(UnixStream) -> io::Result<T>) -> io::Result<(T, SigId)> {
    if number::FORBIDDEN.contains(&kind.0) {
        let text = format!("a program cannot handle signal {}", kind.0);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (reader, writer) = UnixStream::pair()?;
    let reader = new(reader)?;
    // The writes of the handler do not block. If the socket is full, the handler drops its byte. Nevertheless, no
    // wake-up is lost, because the bytes in the full socket already wake the reader.
    let handler = signal_hook::low_level::pipe::register(kind.0, writer)?;
    Ok((reader, handler))
}

impl Signal {
    /// Waits for the next arrival of a signal.
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the next call still reports the signal that arrived.
    pub async fn recv(&mut self) -> io::Result<()> {
        self.arrivals.read_with(take_all).await
    }
}

/// Reads all bytes that the handler has written.
fn take_all(mut stream: &UnixStream) -> io::Result<()> {
    let mut bytes = [0; 64];
    let mut result = Err(io::ErrorKind::WouldBlock.into());
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                result = Ok(());
                if count < bytes.len() {
                    return result;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return result,
            Err(error) => return Err(error),
        }
    }
}

impl Stream for Signal {
    type Item = ();

    /// Returns `None` after the runtime has ended.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.arrivals.poll_read_with(cx, take_all).map(Result::ok)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.handler);
    }
}
