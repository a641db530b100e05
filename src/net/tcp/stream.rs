//! [`TcpStream`]: a TCP connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use socket2::SockRef;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::registered::{Registered, are_empty, size_of_all};
use crate::net::resolve::{ToSocketAddrs, resolve, unresolved};
use crate::net::system;
use crate::net::tcp::split::{OwnedReadHalf, OwnedWriteHalf, into_halves};
use crate::platform::poller::source::Direction;

/// A TCP connection.
///
/// The stream implements [`AsyncRead`] and [`AsyncWrite`] of the crate `futures`. `&TcpStream` also implements
/// `AsyncRead` and `AsyncWrite`, so one process can read and write at the same time. [`into_split`](Self::into_split)
/// makes two halves for two processes.
///
/// For each direction, `AsyncRead` and `AsyncWrite` wake only the task that polled last. If several tasks must wait for
/// one direction, use [`readable`](Self::readable) and [`try_read`](Self::try_read), or [`writable`](Self::writable)
/// and [`try_write`](Self::try_write).
///
/// `AsyncWrite::close` (or `AsyncWriteExt::close`) closes the write side and sends the end of the stream to the peer,
/// as [`shutdown`](Self::shutdown) does. `flush` does nothing, because the stream has no buffer of its own. A write of
/// no bytes returns 0 immediately.
#[derive(Debug)]
pub struct TcpStream {
    io: Registered<system::TcpStream>,
}

impl TcpStream {
    /// Connects to `addr`, on the runtime of the calling thread. If `addr` names several addresses, tries these
    /// addresses in order until a connection is established.
    ///
    /// The time limit of this operation is the time limit of the system. To set a shorter limit, use
    /// [`SelfHandle::timeout`](crate::SelfHandle::timeout).
    ///
    /// # Errors
    /// Returns the error of the system for the last address that was tried, for example
    /// [`io::ErrorKind::ConnectionRefused`], or the error of the name lookup. Returns an error if the thread has no
    /// runtime, or if the runtime is a simulation.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the attempt.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::connect_on(Backend::current()?, addr).await
    }

    /// Does the same as [`connect`](Self::connect), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`connect`](Self::connect).
    pub async fn connect_in(host: &Host, addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::connect_on(Backend::of(host)?, addr).await
    }

    async fn connect_on(backend: Backend, addr: impl ToSocketAddrs) -> io::Result<Self> {
        let mut last = None;
        for address in resolve(unresolved(&addr), || backend.host()).await? {
            let attempt = async {
                backend.ensure_open()?;
                let io = system::TcpStream::connect(address)?;
                Self::register(io, backend.clone())?.connected().await
            };
            match attempt.await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a resolution is not empty"))
    }

    /// Waits until the connection is established.
    pub(crate) async fn connected(self) -> io::Result<Self> {
        let is_connected = |io: &system::TcpStream| {
            if let Some(error) = io.take_error()? {
                return Err(error);
            }
            match io.peer_addr() {
                // The connection is not established yet, although an event may have arrived.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
                result => result.map(drop),
            }
        };
        self.io.op(Direction::Write, is_connected).await?;
        Ok(self)
    }

    pub(crate) fn register(io: system::TcpStream, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Registers a stream of the standard library with the runtime of the calling thread, and makes this stream
    /// non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        let backend = Backend::current()?;
        stream.set_nonblocking(true)?;
        Self::register(system::TcpStream::from_std(stream), backend)
    }

    /// Does the same as [`from_std`](Self::from_std), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`from_std`](Self::from_std).
    pub fn from_std_in(host: &Host, stream: std::net::TcpStream) -> io::Result<Self> {
        let backend = Backend::of(host)?;
        stream.set_nonblocking(true)?;
        Self::register(system::TcpStream::from_std(stream), backend)
    }

    /// Deregisters the stream and returns it as a stream of the standard library. The returned stream is still
    /// non-blocking.
    pub fn into_std(self) -> std::net::TcpStream {
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
    /// the next call may return `WouldBlock` again although bytes have arrived, because the runtime may not have
    /// received the event of the system yet. Await [`readable`](Self::readable) before you call the function again.
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
    /// `WouldBlock`, the next call may return `WouldBlock` again although the stream can be written. Await
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

    /// Reads bytes, but leaves the bytes in the socket. So the next read returns the same bytes. Returns the number of
    /// bytes, which is 0 at the end of the stream.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.op(Direction::Read, |io| io.peek(buf)).await
    }

    /// Closes the read side, the write side, or both. If the write side is closed, the peer reads the end of the
    /// stream.
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

    /// Returns whether the stream sends small packets immediately.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.io().nodelay()
    }

    /// Sets whether the stream sends small packets immediately (`TCP_NODELAY`). Default: off, so the system may collect
    /// small writes into one packet.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.io.io().set_nodelay(on)
    }

    /// Returns the time to live of outgoing IPv4 packets.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.io().ttl()
    }

    /// Sets the time to live of outgoing IPv4 packets.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.io().set_ttl(ttl)
    }

    /// Returns the time limit for sending the unsent bytes after the stream was dropped (`SO_LINGER`). `None` means
    /// that the system chooses this time limit, and that the drop does not wait.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.options().linger()
    }

    /// Sets `SO_LINGER` to zero: when the stream is dropped, the system discards the unsent bytes and sends a reset to
    /// the peer. Afterwards, another socket can immediately use the address of the stream.
    ///
    /// There is no function that sets `SO_LINGER` to a longer time. With a longer time, the drop of the stream would
    /// block the thread until the bytes are sent or the time has passed.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.options().set_linger(Some(Duration::ZERO))
    }

    /// Returns the pending error of the socket (`SO_ERROR`), and clears this error.
    ///
    /// # Errors
    /// Returns the error of the system if the socket has no option `SO_ERROR`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.io().take_error()
    }

    /// Returns a `SockRef` of the crate `socket2`. Its methods set further options of the socket.
    ///
    /// ```
    /// # use procession::net::{TcpListener, TcpStream};
    /// # use std::time::Duration;
    /// use procession::net::socket2::TcpKeepalive;
    ///
    /// # let rt = procession::Runtime::new()?;
    /// # rt.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// stream.options().set_recv_buffer_size(64 << 10)?;
    /// let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));
    /// stream.options().set_tcp_keepalive(&keepalive)?;
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.io())
    }
}

impl AsyncRead for &TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_transfer(Direction::Read, cx, buf.len(), |mut io| io.read(buf))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let size = size_of_all(bufs.iter().map(|buf| buf.len()));
        self.io.poll_transfer(Direction::Read, cx, size, |mut io| io.read_vectored(bufs))
    }
}

impl AsyncWrite for &TcpStream {
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

/// Turns the error `NotConnected` into success. This error means that the stream is already closed, for example after a
/// reset by the peer.
pub(crate) fn end_of_stream(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}

/// Implements the traits of `futures::io` for a type. Each method calls the method with the same name of the shared
/// reference (`&$type`).
macro_rules! owned_io {
    ($type:ty, read $(, $write:tt)?) => {
        impl futures::io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut &*self).poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut &*self).poll_read_vectored(cx, bufs)
            }
        }
        $($crate::net::tcp::stream::owned_io!($type, $write);)?
    };
    ($type:ty, write) => {
        impl futures::io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut &*self).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                std::pin::Pin::new(&mut &*self).poll_write_vectored(cx, bufs)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::pin::Pin::new(&mut &*self).poll_flush(cx)
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                std::pin::Pin::new(&mut &*self).poll_close(cx)
            }
        }
    };
}
pub(crate) use owned_io;

lends_handle!(TcpStream, io.io());
owned_io!(TcpStream, read, write);
