//! [`UnixListener`]: accepts connections on a path of the file system.

use std::fmt;
use std::io;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use socket2::SockRef;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::registered::{Operations, Registered};
use crate::net::system;
use crate::net::unix::stream::UnixStream;
use crate::platform::poller::source::Direction;
use crate::platform::poller::unix_accept::accept;

/// A Unix domain socket that listens. Dropping the listener does not remove its path from the file system.
#[derive(Debug)]
pub struct UnixListener {
    io: Registered<system::UnixListener>,
}

impl UnixListener {
    /// Opens a socket at `path` and listens, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Returns the error of the system, for example [`io::ErrorKind::AddrInUse`] if the path exists. Returns an error
    /// if the thread has no runtime, or if the runtime is a simulation.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_on(Backend::current()?, &SocketAddr::from_pathname(path)?)
    }

    /// Does the same as [`bind`](Self::bind), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn bind_in(host: &Host, path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_on(Backend::of(host)?, &SocketAddr::from_pathname(path)?)
    }

    /// Does the same as [`bind`](Self::bind), for any address. On Linux, the address can be a name in the
    /// abstract namespace, which needs no file.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::bind_on(Backend::current()?, addr)
    }

    /// Does the same as [`bind_addr`](Self::bind_addr), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn bind_addr_in(host: &Host, addr: &SocketAddr) -> io::Result<Self> {
        Self::bind_on(Backend::of(host)?, addr)
    }

    fn bind_on(backend: Backend, addr: &SocketAddr) -> io::Result<Self> {
        backend.ensure_open()?;
        let bound = Self::register(bind(addr)?, backend);
        // If the registration fails, this code removes the file. Without the removal, each later bind would fail.
        bound.inspect_err(|_| drop(addr.as_pathname().map(std::fs::remove_file)))
    }

    fn register(io: system::UnixListener, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Registers a listener of the standard library with the runtime of the calling thread, and makes this listener
    /// non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        Self::from_std_on(Backend::current()?, listener)
    }

    /// Does the same as [`from_std`](Self::from_std), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`from_std`](Self::from_std).
    pub fn from_std_in(host: &Host, listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        Self::from_std_on(Backend::of(host)?, listener)
    }

    fn from_std_on(backend: Backend, listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::register(system::UnixListener::from_std(listener), backend)
    }

    /// Deregisters the listener and returns it as a listener of the standard library. The returned listener is still
    /// non-blocking.
    pub fn into_std(self) -> std::os::unix::net::UnixListener {
        self.io.into_inner().into()
    }

    /// Waits for a connection. Returns the stream of the connection and the address of the peer.
    ///
    /// # Errors
    /// Fails under the same conditions as [`TcpListener::accept`](crate::net::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (io, address) = self.io.op(Direction::Read, accept).await?;
        Ok((UnixStream::register(io, self.io.backend().clone())?, address))
    }

    /// The poll function of [`accept`](Self::accept). If several tasks call this function, only the task that called
    /// last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let (io, address) = ready!(self.io.poll_op(Direction::Read, cx, accept))?;
        Poll::Ready(UnixStream::register(io, self.io.backend().clone()).map(|stream| (stream, address)))
    }

    /// Returns a stream of the accepted connections. After the end of the runtime, the stream yields one error and then
    /// ends. After any other error, the stream continues: see [`accept`](Self::accept). Several streams can wait for
    /// one listener.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, operations: Operations::new(&self.io), is_over: false }
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().local_addr()
    }

    /// Returns the pending error of the socket (`SO_ERROR`), and clears this error.
    ///
    /// # Errors
    /// Returns the error of the system if the socket has no option `SO_ERROR`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.io().take_error()
    }

    /// Returns a `SockRef` of the crate `socket2`, which sets options of the socket, for example buffer sizes.
    pub fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.io())
    }
}

lends_handle!(UnixListener, io.io());

/// Stream of the connections of a listener: see [`UnixListener::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a> {
    listener: &'a UnixListener,
    operations: Operations<'a, system::UnixListener>,
    /// True if the stream has yielded the error that reports the end of the runtime.
    is_over: bool,
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("listener", self.listener).finish_non_exhaustive()
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let accepted = ready!(self.operations.poll(Direction::Read, cx, accept));
        let socket = &self.listener.io;
        let stream = accepted.and_then(|(io, _)| UnixStream::register(io, socket.backend().clone()));
        self.is_over = stream.is_err() && socket.has_ended();
        Poll::Ready(Some(stream))
    }
}

/// Creates a listener for `addr`.
fn bind(addr: &SocketAddr) -> io::Result<system::UnixListener> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if addr.as_abstract_name().is_some() {
        // mio removes the last byte of an abstract name that begins with a zero byte.
        let io = std::os::unix::net::UnixListener::bind_addr(addr)?;
        io.set_nonblocking(true)?;
        return Ok(system::UnixListener::from_std(io));
    }
    system::UnixListener::bind_addr(addr)
}
