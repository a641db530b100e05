//! [`UnixDatagram`]: packets between the programs of one system.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::registered::Registered;
use crate::platform::poller::source::Direction;

/// A Unix domain socket for packets. Dropping the socket does not remove its path from the file system.
#[derive(Debug)]
pub struct UnixDatagram {
    io: Registered<mio::net::UnixDatagram>,
}

impl UnixDatagram {
    /// Opens a socket and binds it to `path`, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let backend = Backend::current()?;
        Self::register(mio::net::UnixDatagram::bind(path)?, backend)
    }

    /// As [`bind`](Self::bind), on the runtime of `host`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_in(host: &Host, path: impl AsRef<Path>) -> io::Result<Self> {
        let backend = Backend::of(host)?;
        Self::register(mio::net::UnixDatagram::bind(path)?, backend)
    }

    /// Opens a socket without a path. The socket can send. It cannot receive, because other sockets have no path to
    /// which they could send.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn unbound() -> io::Result<Self> {
        let backend = Backend::current()?;
        Self::register(mio::net::UnixDatagram::unbound()?, backend)
    }

    /// Makes two sockets that are connected with each other.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn pair() -> io::Result<(Self, Self)> {
        let backend = Backend::current()?;
        let (one, other) = mio::net::UnixDatagram::pair()?;
        Ok((Self::register(one, backend.clone())?, Self::register(other, backend)?))
    }

    fn register(io: mio::net::UnixDatagram, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Sets the path to which [`send`](Self::send) sends.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.io.io().connect(path)
    }

    /// Sends a packet to the connected socket. Returns the number of bytes that were sent.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.io.op(Direction::Write, |io| io.send(buf)).await
    }

    /// Receives a packet. Returns the number of bytes. If the packet is longer than `buf`, the rest of the packet is
    /// lost.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.op(Direction::Read, |io| io.recv(buf)).await
    }

    /// Sends a packet to the socket at `path`. Returns the number of bytes that were sent.
    ///
    /// If the queue of the receiver is full, the future waits. Linux reports no event when this queue has space again,
    /// unless the two sockets are [connected](Self::connect). So use connected sockets, or set a time limit for the
    /// future.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.io.op(Direction::Write, |io| io.send_to(buf, path)).await
    }

    /// Receives a packet. Returns the number of bytes and the address of the sender. If the packet is longer than
    /// `buf`, the rest of the packet is lost.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.op(Direction::Read, |io| io.recv_from(buf)).await
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().local_addr()
    }
}
