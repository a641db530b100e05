//! [`UnixDatagram`]: packets between the programs of one system.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll};

use socket2::SockRef;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::registered::Registered;
use crate::net::system;
use crate::net::unix::address::system_address;
use crate::net::unix::pauses::Pauses;
use crate::platform::poller::source::Direction;

/// Whether the system reports an event when the queue of a connected receiver has space again.
const REPORTS_SPACE: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Returns whether the queue of the receiver is full. Linux then returns `EAGAIN`. macOS and the BSD systems return
/// `ENOBUFS`.
fn is_queue_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || !REPORTS_SPACE && error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Turns the error of a full queue into `WouldBlock`, on each system.
///
/// The caller applies this function to the result of `try_op`, not inside `try_op`. After a `WouldBlock` inside
/// `try_op`, the next operation would wait for an event, which macOS and the BSD systems do not report.
fn would_block_if_full(error: io::Error) -> io::Error {
    if is_queue_full(&error) { io::ErrorKind::WouldBlock.into() } else { error }
}

/// A Unix domain socket for packets. Dropping the socket does not remove its path from the file system.
///
/// All methods that send or receive take `&self`. So several processes can share a socket in an `Arc`.
#[derive(Debug)]
pub struct UnixDatagram {
    io: Registered<system::UnixDatagram>,
}

impl UnixDatagram {
    /// Opens a socket and binds it to `path`, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
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

    /// Does the same as [`bind`](Self::bind), for any address. On Linux, the address can be a name in the abstract
    /// namespace, which needs no file.
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
        // mio removes the last byte of an abstract name that begins with a zero byte. Therefore the standard library
        // binds the socket.
        let bound = Self::from_std_on(backend, std::os::unix::net::UnixDatagram::bind_addr(addr)?);
        // If the registration fails, this code removes the file. Without the removal, each later bind would fail.
        bound.inspect_err(|_| drop(addr.as_pathname().map(std::fs::remove_file)))
    }

    /// Opens a socket without a path, on the runtime of the calling thread. The socket can send. The socket cannot
    /// receive, because the socket has no path to which other sockets could send.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn unbound() -> io::Result<Self> {
        let backend = Backend::current()?;
        Self::register(system::UnixDatagram::unbound()?, backend)
    }

    /// Does the same as [`unbound`](Self::unbound), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn unbound_in(host: &Host) -> io::Result<Self> {
        let backend = Backend::of(host)?;
        Self::register(system::UnixDatagram::unbound()?, backend)
    }

    /// Makes two sockets that are connected with each other, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn pair() -> io::Result<(Self, Self)> {
        Self::pair_on(Backend::current()?)
    }

    /// Does the same as [`pair`](Self::pair), on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn pair_in(host: &Host) -> io::Result<(Self, Self)> {
        Self::pair_on(Backend::of(host)?)
    }

    fn pair_on(backend: Backend) -> io::Result<(Self, Self)> {
        let (one, other) = system::UnixDatagram::pair()?;
        Ok((Self::register(one, backend.clone())?, Self::register(other, backend)?))
    }

    fn register(io: system::UnixDatagram, backend: Backend) -> io::Result<Self> {
        Ok(Self { io: Registered::new(io, backend)? })
    }

    /// Registers a socket of the standard library with the runtime of the calling thread, and makes this socket
    /// non-blocking.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn from_std(socket: std::os::unix::net::UnixDatagram) -> io::Result<Self> {
        Self::from_std_on(Backend::current()?, socket)
    }

    /// Does the same as [`from_std`](Self::from_std), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`bind`](Self::bind).
    pub fn from_std_in(host: &Host, socket: std::os::unix::net::UnixDatagram) -> io::Result<Self> {
        Self::from_std_on(Backend::of(host)?, socket)
    }

    fn from_std_on(backend: Backend, socket: std::os::unix::net::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::register(system::UnixDatagram::from_std(socket), backend)
    }

    /// Deregisters the socket and returns it as a socket of the standard library. The returned socket is still
    /// non-blocking.
    pub fn into_std(self) -> std::os::unix::net::UnixDatagram {
        self.io.into_inner().into()
    }

    /// Waits until the socket can receive a packet. When the future completes, the socket may already be unreadable
    /// again. A new socket counts as readable until a receive returns [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn readable(&self) -> io::Result<()> {
        self.io.ready(Direction::Read).await
    }

    /// Waits until the socket can send a packet. When the future completes, the socket may already be unwritable again.
    ///
    /// If [`try_send_to`](Self::try_send_to) fails because the queue of the receiver is full, do not use this function
    /// to wait for space in the queue. After each failed send to a full queue, Linux reports the socket as writable. A
    /// loop of `writable` and `try_send_to` would therefore use a whole core. Use [`send_to`](Self::send_to), which
    /// pauses between its attempts.
    ///
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.ready(Direction::Write).await
    }

    /// Sets the path to which [`send`](Self::send) sends.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.io.io().connect(path)
    }

    /// Does the same as [`connect`](Self::connect), for any address. On Linux, the address can be a name in the
    /// abstract namespace.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.options().connect(&system_address(addr)?)
    }

    /// Sends a packet to the connected socket. Returns the number of bytes that were sent. If the queue of the receiver
    /// is full, the future waits. Systems other than Linux report no event when the queue has space again. On these
    /// systems, the future tries again after a pause, as [`send_to`](Self::send_to) does.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        if REPORTS_SPACE {
            return self.io.op(Direction::Write, |io| io.send(buf)).await;
        }
        self.send_after_pauses(|io| io.send(buf)).await
    }

    /// Receives a packet. Returns the number of bytes. If the packet is longer than `buf`, the rest of the packet is
    /// lost.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.op(Direction::Read, |io| self.received(|| io.recv(buf))).await
    }

    /// Sends a packet to the socket at `path`. Returns the number of bytes that were sent.
    ///
    /// If the queue of the receiver is full, the future waits. The system reports no event when the queue has space
    /// again. Therefore the future tries again after a pause, which grows from 1 ms to 16 ms. If this delay matters on
    /// Linux, [connect](Self::connect) the socket and use [`send`](Self::send).
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.send_after_pauses(|io| io.send_to(buf, path)).await
    }

    /// Does the same as [`send_to`](Self::send_to), for any address. On Linux, the address can be a name in the
    /// abstract namespace. So a socket can answer the sender whose address [`recv_from`](Self::recv_from) has returned.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        let addr = system_address(addr)?;
        self.send_after_pauses(|io| SockRef::from(io).send_to(buf, &addr)).await
    }

    /// Sends a packet. While the queue of the receiver is full, pauses and tries again. After each failed send to a
    /// full queue, Linux reports this socket as writable. Therefore, if the future waited for this event, the future
    /// would repeat the system call without a pause.
    async fn send_after_pauses(&self, send: impl Fn(&system::UnixDatagram) -> io::Result<usize>) -> io::Result<usize> {
        let mut pauses = Pauses::new();
        loop {
            let send = |io: &system::UnixDatagram| match send(io) {
                Err(error) if is_queue_full(&error) => Ok(None),
                sent => sent.map(Some),
            };
            if let Some(count) = self.io.op(Direction::Write, send).await? {
                return Ok(count);
            }
            pauses.pause(self.io.backend()).await?;
        }
    }

    /// Receives a packet. Returns the number of bytes and the address of the sender. If the packet is longer than
    /// `buf`, the rest of the packet is lost.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.op(Direction::Read, |io| self.received_from(|| io.recv_from(buf))).await
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().local_addr()
    }

    /// Returns the address that [`connect`](Self::connect) has set, or the address of the other socket of a pair.
    ///
    /// # Errors
    /// Returns the error of the system, for example if the socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().peer_addr()
    }

    /// Closes the read side, the write side, or both. After this call, an operation on a closed side does not wait for
    /// the peer. When all packets are taken from the closed read side, each receive returns 0 bytes. Until the runtime
    /// gets the event of the system, [`try_recv`](Self::try_recv) and [`try_recv_from`](Self::try_recv_from) may still
    /// return [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// Returns the error of the system, for example if the socket is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.io.io().shutdown(how)
    }

    /// The poll function of [`send`](Self::send). If several tasks call this function or another poll function that
    /// sends, only the task that called last is woken. This function does not pause between attempts.
    ///
    /// # Errors
    /// Fails under the same conditions as [`send`](Self::send). If the queue of the receiver is full, macOS and the BSD
    /// systems return the error `ENOBUFS`. The reason is that these systems report no event when the queue has space
    /// again.
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Write, cx, |io| io.send(buf))
    }

    /// The poll function of [`recv`](Self::recv). If several tasks call this function or another poll function that
    /// receives, only the task that called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Read, cx, |io| self.received(|| io.recv(buf)))
    }

    /// The poll function of [`send_to`](Self::send_to). If several tasks call this function or another poll function
    /// that sends, only the task that called last is woken. This function does not pause between attempts: on Linux,
    /// while the queue of the receiver is full, the task is woken after each failed call.
    ///
    /// # Errors
    /// Fails under the same conditions as [`send_to`](Self::send_to). If the queue of the receiver is full, macOS and
    /// the BSD systems return the error `ENOBUFS`.
    pub fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], path: impl AsRef<Path>) -> Poll<io::Result<usize>> {
        let path = path.as_ref();
        self.io.poll_op(Direction::Write, cx, |io| io.send_to(buf, path))
    }

    /// The poll function of [`recv_from`](Self::recv_from). If several tasks call this function or another poll
    /// function that receives, only the task that called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.io.poll_op(Direction::Read, cx, |io| self.received_from(|| io.recv_from(buf)))
    }

    /// Sends a packet without waiting: see [`send`](Self::send).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if the packet cannot be sent now, or the error of the system. After
    /// `WouldBlock`, a further call may return `WouldBlock` again, even if the packet can then be sent. Await
    /// [`writable`](Self::writable) before you call the function again.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.io.try_op(Direction::Write, |io| io.send(buf)).map_err(would_block_if_full)
    }

    /// Receives a packet without waiting: see [`recv`](Self::recv).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if there is no packet now, or the error of the system. After `WouldBlock`,
    /// a further call may return `WouldBlock` again, even if a packet has arrived. The runtime may not have received
    /// the event of the system yet. Await [`readable`](Self::readable) before you call the function again.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.try_op(Direction::Read, |io| self.received(|| io.recv(buf)))
    }

    /// Sends a packet without waiting: see [`send_to`](Self::send_to). If the queue of the receiver is full, the caller
    /// must pause before the next attempt, because [`writable`](Self::writable) does not wait for space in this queue.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if the packet cannot be sent now, or the error of the system. After
    /// `WouldBlock`, a further call may return `WouldBlock` again, even if the packet can then be sent. The runtime may
    /// not have received the event of the system yet.
    pub fn try_send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.io.try_op(Direction::Write, |io| io.send_to(buf, path)).map_err(would_block_if_full)
    }

    /// Receives a packet without waiting: see [`recv_from`](Self::recv_from).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if there is no packet now, or the error of the system. After `WouldBlock`,
    /// a further call may return `WouldBlock` again, even if a packet has arrived. The runtime may not have received
    /// the event of the system yet. Await [`readable`](Self::readable) before you call the function again.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.try_op(Direction::Read, |io| self.received_from(|| io.recv_from(buf)))
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

    /// Calls `receive`. If the read side is closed and has no packet, returns 0 bytes.
    fn received(&self, receive: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        self.or_end(receive, || Ok(0))
    }

    /// Calls `receive`. If the read side is closed and has no packet, returns 0 bytes from an unnamed address.
    fn received_from(
        &self,
        receive: impl FnOnce() -> io::Result<(usize, SocketAddr)>,
    ) -> io::Result<(usize, SocketAddr)> {
        self.or_end(receive, || Ok((0, SocketAddr::from_pathname("")?)))
    }

    /// Calls `receive`. If the read side is closed and has no packet, returns the result of `end`.
    ///
    /// On Linux, a receive from a closed and empty socket returns `WouldBlock` if the socket is non-blocking. The
    /// system reports the close by only one event. Therefore, if a receive waited for a second event, the receive would
    /// wait forever.
    fn or_end<R>(&self, receive: impl FnOnce() -> io::Result<R>, end: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        // This check comes before the receive. In the other order, a packet could arrive after the receive and before
        // the close. The caller would then get the result of `end` before this packet.
        let is_closed = self.io.is_closed(Direction::Read);
        match receive() {
            Err(error) if is_closed && error.kind() == io::ErrorKind::WouldBlock => end(),
            received => received,
        }
    }
}

lends_handle!(UnixDatagram, io.io());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_each_system_the_error_of_a_full_queue_becomes_the_error_would_block() {
        let would_block = |code| {
            let error = would_block_if_full(io::Error::from_raw_os_error(code));
            error.kind() == io::ErrorKind::WouldBlock
        };
        // On Linux, `ENOBUFS` means that the system has no memory for the packet.
        let expected = [true, !REPORTS_SPACE, false];
        assert_eq!([libc::EAGAIN, libc::ENOBUFS, libc::ECONNREFUSED].map(would_block), expected);
    }
}
