//! [`UnixListener`]: accepts connections on a path of the file system.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::registered::Registered;
use crate::net::unix::stream::UnixStream;
use crate::platform::poller::source::Direction;

/// A Unix domain socket that listens. Dropping the listener does not remove its path from the file system.
#[derive(Debug)]
pub struct UnixListener {
    io: Registered<mio::net::UnixListener>,
}

impl UnixListener {
    /// Opens a socket at `path` and listens, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Returns the error of the system, for example [`io::ErrorKind::AddrInUse`] if the path exists. Returns an error if
    /// the thread has no runtime, or if the runtime is a simulation.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let backend = Backend::current()?;
        Self::register(mio::net::UnixListener::bind(path)?, backend)
    }

    /// As [`bind`](Self::bind), on the runtime of `host`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_in(host: &Host, path: impl AsRef<Path>) -> io::Result<Self> {
        let backend = Backend::of(host)?;
        Self::register(mio::net::UnixListener::bind(path)?, backend)
    }

    fn register(io: mio::net::UnixListener, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Registers a listener of the standard library with the runtime of the calling thread, and makes it non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        let backend = Backend::current()?;
        listener.set_nonblocking(true)?;
        Self::register(mio::net::UnixListener::from_std(listener), backend)
    }

    /// Waits for a connection. Returns its stream and the address of the peer.
    ///
    /// # Errors
    /// As [`TcpListener::accept`](crate::net::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (io, address) = self.io.op(Direction::Read, mio::net::UnixListener::accept).await?;
        Ok((UnixStream::register(io, self.io.backend().clone())?, address))
    }

    /// The poll function of [`accept`](Self::accept). If several tasks call it, only the task that called it last is
    /// woken.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let (io, address) = ready!(self.io.poll_op(Direction::Read, cx, mio::net::UnixListener::accept))?;
        Poll::Ready(UnixStream::register(io, self.io.backend().clone()).map(|stream| (stream, address)))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().local_addr()
    }
}
