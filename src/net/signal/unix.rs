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
use crate::platform::sync::Arc;
use crate::platform::sync::atomic::{AtomicBool, Ordering};

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
    // This field is dropped first. In the other order, the handler could write to a socket without a reader.
    registration: Registration,
    arrivals: Async<UnixStream>,
}

/// The registration of a signal handler. Dropping this value ends the registration.
///
/// The handler sets the flag and then writes a byte to the socket. Between `fork` and `exec`, a child of this program
/// has a copy of the memory and of the handlers, and shares the socket. If a signal arrives in a child between `fork`
/// and `exec`, the handler sets the copy of the flag in the child, and writes a byte that the parent reads. Therefore a
/// byte counts as an arrival only if the flag of this program is set.
#[derive(Debug)]
pub(super) struct Registration {
    has_arrived: Arc<AtomicBool>,
    actions: [SigId; 2],
}

impl Registration {
    /// Returns the flag that the handler sets before it writes a byte.
    pub(super) fn has_arrived(&self) -> &Arc<AtomicBool> {
        &self.has_arrived
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.actions.into_iter().for_each(|action| _ = signal_hook::low_level::unregister(action));
    }
}

/// Returns a stream of the signals of one kind that arrive from now on. The stream uses the runtime of the calling
/// thread.
///
/// The first call for a kind installs a handler, which stays installed until the program ends. So after the first call,
/// the default effect of this kind of signal never occurs again, even after the [`Signal`] was dropped.
///
/// Each `Signal` uses two descriptors of the program. The run times of this call and of the signal handler grow in
/// proportion to the number of `Signal` values. If many processes need the same signal, one process should own the
/// `Signal` and send a message to the other processes, for example through a group.
///
/// # Errors
/// Returns an error if the handler cannot be installed: the kind does not exist, or the signal is `SIGKILL`, `SIGSTOP`,
/// `SIGILL`, `SIGFPE` or `SIGSEGV`. Returns an error if the thread has no runtime, or if the runtime is a simulation.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let (arrivals, registration) = register(kind, Async::new)?;
    Ok(Signal { registration, arrivals })
}

/// Does the same as [`signal`], on the runtime of `host`.
///
/// # Errors
/// Fails under the same conditions as [`signal`].
pub fn signal_in(host: &Host, kind: SignalKind) -> io::Result<Signal> {
    let (arrivals, registration) = register(kind, |stream| Async::new_in(host, stream))?;
    Ok(Signal { registration, arrivals })
}

/// Registers a signal handler that writes to one end of a new socket. `new` takes the other end. If `new` fails, this
/// function registers no handler.
pub(super) fn register<T>(
    kind: SignalKind,
    new: impl FnOnce(UnixStream) -> io::Result<T>,
) -> io::Result<(T, Registration)> {
    if number::FORBIDDEN.contains(&kind.0) {
        let text = format!("a program cannot handle signal {}", kind.0);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (reader, writer) = UnixStream::pair()?;
    let reader = new(reader)?;
    // The actions of a signal run in the order of their registration. So the flag is set before the reader can read the
    // byte.
    let has_arrived = Arc::new(AtomicBool::new(false));
    let flag = signal_hook::flag::register(kind.0, Arc::clone(&has_arrived))?;
    // The writes of the handler do not block. If the socket is full, the handler drops its byte. Nevertheless, no
    // wake-up is lost, because the bytes in the full socket already wake the reader.
    let written = signal_hook::low_level::pipe::register(kind.0, writer);
    let written = written.inspect_err(|_| _ = signal_hook::low_level::unregister(flag))?;
    Ok((reader, Registration { has_arrived, actions: [flag, written] }))
}

impl Signal {
    /// Waits for the next arrival of a signal.
    ///
    /// # Errors
    /// Returns an error if the runtime has ended, or if other code has removed the handler.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the next call still reports the signal that arrived.
    pub async fn recv(&mut self) -> io::Result<()> {
        self.arrivals.read_with(|stream| take_arrival(stream, self.registration.has_arrived())).await
    }
}

/// Reads the bytes that the handler has written, until this function finds an arrival that was not reported yet. The
/// flag `has_arrived` is true if there is an arrival that was not reported yet.
///
/// # Errors
/// Returns `WouldBlock` if there is no arrival that was not reported yet. Returns an error if the handler has closed
/// its end of the socket.
fn take_arrival(mut stream: &UnixStream, has_arrived: &AtomicBool) -> io::Result<()> {
    let mut bytes = [0; 64];
    loop {
        if stream.read(&mut bytes)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the handler of the signal was removed"));
        }
        // The rest of the bytes may belong to the same arrival. In this case, the next call ignores these bytes.
        if has_arrived.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
    }
}

impl Stream for Signal {
    type Item = ();

    /// Returns `None` after the runtime has ended, or after other code has removed the handler.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let has_arrived = self.registration.has_arrived();
        self.arrivals.poll_read_with(cx, |stream| take_arrival(stream, has_arrived)).map(Result::ok)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_end_of_the_socket_is_an_error_and_a_byte_without_a_signal_is_ignored() {
        let (reader, mut writer) = UnixStream::pair().expect("free descriptors");
        reader.set_nonblocking(true).expect("an open socket");
        let has_arrived = AtomicBool::new(false);
        let take = || take_arrival(&reader, &has_arrived).map_err(|error| error.kind());
        assert_eq!(take(), Err(io::ErrorKind::WouldBlock));
        writer.write_all(b"x").expect("space for one byte");
        assert_eq!(take(), Err(io::ErrorKind::WouldBlock));
        has_arrived.store(true, Ordering::SeqCst);
        writer.write_all(&[0; 100]).expect("space for the bytes");
        assert_eq!([take(), take()], [Ok(()), Err(io::ErrorKind::WouldBlock)]);
        drop(writer);
        assert_eq!(take(), Err(io::ErrorKind::UnexpectedEof));
    }
}
