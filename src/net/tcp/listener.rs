//! [`TcpListener`]: accepts TCP connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use socket2::SockRef;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::registered::{Operations, Registered};
use crate::net::resolve::{ToSocketAddrs, resolve, unresolved};
use crate::net::system;
use crate::net::tcp::socket::TcpSocket;
use crate::net::tcp::stream::TcpStream;
use crate::platform::poller::source::Direction;

/// Backlog of a listener that [`TcpListener::bind`] opens. tokio uses the same number.
const BACKLOG: u32 = 1_024;

/// A listening TCP socket.
///
/// Several processes can accept from one listener: share the listener in an `Arc`. See the [module](crate::net) for an
/// example.
#[derive(Debug)]
pub struct TcpListener {
    io: Registered<system::TcpListener>,
}

impl TcpListener {
    /// Opens a socket that listens on `addr`, on the runtime of the calling thread. If `addr` names several addresses,
    /// uses the first address that can be bound. With port 0, the system chooses a port, which
    /// [`local_addr`](Self::local_addr) returns.
    ///
    /// On Unix, the address can be bound again immediately after the listener was closed (`SO_REUSEADDR`). The system
    /// queues up to 1,024 connections until [`accept`](Self::accept) takes these connections. The number 1,024 is the
    /// listen backlog, and the system may reduce the backlog. Use [`TcpSocket`](crate::net::TcpSocket) for another
    /// backlog or other options.
    ///
    /// # Errors
    /// Returns the error of the system or of the name lookup. Returns an error if the thread has no runtime, or if the
    /// runtime is a simulation.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_on(Backend::current()?, addr).await
    }

    /// Does the same as [`bind`](Self::bind), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub async fn bind_in(host: &Host, addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_on(Backend::of(host)?, addr).await
    }

    async fn bind_on(backend: Backend, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for address in resolve(unresolved(&addr), || backend.host()).await? {
            match TcpSocket::listening(address, BACKLOG, backend.clone()) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a resolution is not empty"))
    }

    pub(crate) fn register(io: system::TcpListener, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Registers a listener of the standard library with the runtime of the calling thread, and makes this listener
    /// non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        let backend = Backend::current()?;
        listener.set_nonblocking(true)?;
        Self::register(system::TcpListener::from_std(listener), backend)
    }

    /// Does the same as [`from_std`](Self::from_std), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`from_std`](Self::from_std).
    pub fn from_std_in(host: &Host, listener: std::net::TcpListener) -> io::Result<Self> {
        let backend = Backend::of(host)?;
        listener.set_nonblocking(true)?;
        Self::register(system::TcpListener::from_std(listener), backend)
    }

    /// Deregisters the listener and returns it as a listener of the standard library. The returned listener is still
    /// non-blocking.
    pub fn into_std(self) -> std::net::TcpListener {
        self.io.into_inner().into()
    }

    /// Waits for a connection. Returns the stream of the connection and the address of the peer.
    ///
    /// Several calls can wait at the same time. Each connection is returned by only one of these calls.
    ///
    /// # Errors
    /// Returns the error of the system, for example if no descriptor is free (`EMFILE`). The listener remains usable
    /// after an error. While the cause of the error persists, each call fails immediately. So after an error, a loop
    /// must pause before it calls `accept` again.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (io, address) = self.io.op(Direction::Read, system::TcpListener::accept).await?;
        Ok((TcpStream::register(io, self.io.backend().clone())?, address))
    }

    /// The poll function of [`accept`](Self::accept). If several tasks call this function, only the task that called
    /// last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let (io, address) = ready!(self.io.poll_op(Direction::Read, cx, system::TcpListener::accept))?;
        Poll::Ready(TcpStream::register(io, self.io.backend().clone()).map(|stream| (stream, address)))
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

    /// Returns the time to live of outgoing IPv4 packets.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.io().ttl()
    }

    /// Sets the time to live of outgoing IPv4 packets. Accepted connections inherit this value.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.io().set_ttl(ttl)
    }

    /// Returns the pending error of the socket (`SO_ERROR`), and clears this error.
    ///
    /// # Errors
    /// Returns the error of the system if the socket has no option `SO_ERROR`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.io().take_error()
    }

    /// Returns a `SockRef` of the crate `socket2`. Its methods set further options of the socket.
    pub fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.io())
    }
}

lends_handle!(TcpListener, io.io());

/// Stream of the connections of a listener: see [`TcpListener::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    operations: Operations<'a, system::TcpListener>,
    /// True if the stream has already yielded the error for the end of the runtime.
    is_over: bool,
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("listener", self.listener).finish_non_exhaustive()
    }
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let accepted = ready!(self.operations.poll(Direction::Read, cx, system::TcpListener::accept));
        let socket = &self.listener.io;
        let stream = accepted.and_then(|(io, _)| TcpStream::register(io, socket.backend().clone()));
        self.is_over = stream.is_err() && socket.has_ended();
        Poll::Ready(Some(stream))
    }
}
