//! [`UnixStream`]: a connection between two programs of one system.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use socket2::SockRef;
#[cfg(any(target_os = "linux", target_os = "android"))]
use socket2::{Domain, Socket, Type};

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::registered::{Registered, are_empty, size_of_all};
use crate::net::system;
use crate::net::tcp::stream::{end_of_stream, owned_io};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::net::unix::address::system_address;
use crate::net::unix::pauses::Pauses;
use crate::net::unix::split::{OwnedReadHalf, OwnedWriteHalf, into_halves};
use crate::platform::poller::source::Direction;

/// A connection over a Unix domain socket.
///
/// A `UnixStream` implements the traits of `futures::io` in the same way as [`TcpStream`](crate::net::TcpStream).
/// [`into_split`](Self::into_split) makes two halves for two processes.
///
/// To pass descriptors or credentials with `sendmsg` and `recvmsg`, register a stream of the standard library in an
/// [`Async`](crate::net::Async).
#[derive(Debug)]
pub struct UnixStream {
    io: Registered<system::UnixStream>,
}

impl UnixStream {
    /// Connects to the listener at `path`, on the runtime of the calling thread.
    ///
    /// On Linux, the future waits while the queue of the listener is full. Linux does not report when the queue has
    /// space again. Therefore the future tries again after a pause, which grows from 1 ms to 16 ms. Other systems
    /// return an error, for example [`io::ErrorKind::ConnectionRefused`].
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the attempt.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_on(Backend::current()?, &SocketAddr::from_pathname(path)?).await
    }

    /// Does the same as [`connect`](Self::connect), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`connect`](Self::connect).
    pub async fn connect_in(host: &Host, path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_on(Backend::of(host)?, &SocketAddr::from_pathname(path)?).await
    }

    /// Does the same as [`connect`](Self::connect), for any address. On Linux, the address can be a name in the
    /// abstract namespace.
    ///
    /// # Errors
    /// Fails under the same conditions as [`connect`](Self::connect).
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::connect_on(Backend::current()?, addr).await
    }

    /// Does the same as [`connect_addr`](Self::connect_addr), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`connect`](Self::connect).
    pub async fn connect_addr_in(host: &Host, addr: &SocketAddr) -> io::Result<Self> {
        Self::connect_on(Backend::of(host)?, addr).await
    }

    async fn connect_on(backend: Backend, addr: &SocketAddr) -> io::Result<Self> {
        let mut pauses = Pauses::new();
        loop {
            backend.ensure_open()?;
            match start_connect(addr) {
                // The queue of the listener is full, so the attempt has not begun.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => pauses.pause(&backend).await?,
                begun => return Self::register(begun?, backend)?.connected().await,
            }
        }
    }

    async fn connected(self) -> io::Result<Self> {
        let is_connected = |io: &system::UnixStream| match io.take_error()? {
            Some(error) => Err(error),
            None => io.peer_addr().map(drop).map_err(|error| match error.kind() {
                io::ErrorKind::NotConnected => io::ErrorKind::WouldBlock.into(),
                _ => error,
            }),
        };
        self.io.op(Direction::Write, is_connected).await?;
        Ok(self)
    }

    /// Makes two streams that are connected with each other, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn pair() -> io::Result<(Self, Self)> {
        Self::pair_on(Backend::current()?)
    }

    /// Does the same as [`pair`](Self::pair), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`pair`](Self::pair).
    pub fn pair_in(host: &Host) -> io::Result<(Self, Self)> {
        Self::pair_on(Backend::of(host)?)
    }

    fn pair_on(backend: Backend) -> io::Result<(Self, Self)> {
        let (one, other) = system::UnixStream::pair()?;
        Ok((Self::register(one, backend.clone())?, Self::register(other, backend)?))
    }

    pub(crate) fn register(io: system::UnixStream, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Registers a stream of the standard library with the runtime of the calling thread, and makes this stream
    /// non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Self::from_std_on(Backend::current()?, stream)
    }

    /// Does the same as [`from_std`](Self::from_std), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`from_std`](Self::from_std).
    pub fn from_std_in(host: &Host, stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Self::from_std_on(Backend::of(host)?, stream)
    }

    fn from_std_on(backend: Backend, stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::register(system::UnixStream::from_std(stream), backend)
    }

    /// Deregisters the stream and returns it as a stream of the standard library. The returned stream is still
    /// non-blocking.
    pub fn into_std(self) -> std::os::unix::net::UnixStream {
        self.io.into_inner().into()
    }

    /// Splits the stream into two halves, which own the stream together. Two processes can use the two halves.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        into_halves(self)
    }

    /// Waits until the stream can be read, or the peer has closed its side. When the future completes, the stream may
    /// already be unreadable again. A new stream counts as readable until a read returns [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn readable(&self) -> io::Result<()> {
        self.io.ready(Direction::Read).await
    }

    /// Waits until the stream can be written. When the future completes, the stream may already be unwritable again.
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.ready(Direction::Write).await
    }

    /// Reads without waiting. Returns the number of bytes, which is 0 at the end of the stream.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if there are no bytes now, or the error of the system. After `WouldBlock`,
    /// a further call may return `WouldBlock` again, even if bytes have arrived. The runtime may not have received the
    /// event of the system yet. Await [`readable`](Self::readable) before you call the function again.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.try_op(Direction::Read, |mut io| io.read(buf))
    }

    /// Does the same as [`try_read`](Self::try_read), but reads into several buffers, and fills the buffers in order.
    ///
    /// # Errors
    /// Fails under the same conditions as [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.io.try_op(Direction::Read, |mut io| io.read_vectored(bufs))
    }

    /// Writes without waiting. Returns the number of bytes that were written. A write of no bytes always returns 0.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if nothing can be written now, or the error of the system. After
    /// `WouldBlock`, a further call may return `WouldBlock` again, even if the stream can then be written. Await
    /// [`writable`](Self::writable) before you call the function again.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.io.try_op(Direction::Write, |mut io| io.write(buf))
    }

    /// Does the same as [`try_write`](Self::try_write), but writes from several buffers in order.
    ///
    /// # Errors
    /// Fails under the same conditions as [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if are_empty(bufs) {
            return Ok(0);
        }
        self.io.try_op(Direction::Write, |mut io| io.write_vectored(bufs))
    }

    /// Closes the read side, the write side, or both.
    ///
    /// # Errors
    /// Returns the error of the system, for example if the connection is already closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.io.io().shutdown(how)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().peer_addr()
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

/// Begins a connection to `addr`.
fn start_connect(addr: &SocketAddr) -> io::Result<system::UnixStream> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if addr.as_abstract_name().is_some() {
        // mio removes the last byte of an abstract name that begins with a zero byte.
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&system_address(addr)?)?;
        return Ok(system::UnixStream::from_std(socket.into()));
    }
    system::UnixStream::connect_addr(addr)
}

impl AsyncRead for &UnixStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Read, cx, |mut io| io.read(buf))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Read, cx, |mut io| io.read_vectored(bufs))
    }
}

impl AsyncWrite for &UnixStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.io.poll_transfer(Direction::Write, cx, buf.len(), |mut io| io.write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if are_empty(bufs) {
            return Poll::Ready(Ok(0));
        }
        let size = size_of_all(bufs.iter().map(|buf| buf.len()));
        self.io.poll_transfer(Direction::Write, cx, size, |mut io| io.write_vectored(bufs))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(end_of_stream(self.shutdown(Shutdown::Write)))
    }
}

lends_handle!(UnixStream, io.io());
owned_io!(UnixStream, read, write);
