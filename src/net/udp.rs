//! [`UdpSocket`]: a UDP socket.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use socket2::SockRef;

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::registered::Registered;
use crate::net::resolve::{ToSocketAddrs, address, resolve, unresolved};
use crate::net::system;
use crate::platform::poller::source::Direction;

/// A UDP socket.
///
/// All methods take `&self`. So several processes can share a socket in an `Arc`.
#[derive(Debug)]
pub struct UdpSocket {
    io: Registered<system::UdpSocket>,
}

impl UdpSocket {
    /// Opens a socket and binds it to `addr`, on the runtime of the calling thread. If `addr` names several addresses,
    /// the socket uses the first address that can be bound. With port 0, the system chooses a port.
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
            match system::UdpSocket::bind(address) {
                Ok(io) => return Ok(Self { io: Registered::new(io, backend)? }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a resolution is not empty"))
    }

    /// Registers a socket of the standard library with the runtime of the calling thread, and makes this socket
    /// non-blocking.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        let backend = Backend::current()?;
        socket.set_nonblocking(true)?;
        Ok(Self { io: Registered::new(system::UdpSocket::from_std(socket), backend)? })
    }

    /// Does the same as [`from_std`](Self::from_std), with the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`from_std`](Self::from_std).
    pub fn from_std_in(host: &Host, socket: std::net::UdpSocket) -> io::Result<Self> {
        let backend = Backend::of(host)?;
        socket.set_nonblocking(true)?;
        Ok(Self { io: Registered::new(system::UdpSocket::from_std(socket), backend)? })
    }

    /// Deregisters the socket and returns it as a socket of the standard library. The returned socket is still
    /// non-blocking.
    pub fn into_std(self) -> std::net::UdpSocket {
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
    /// # Errors
    /// Returns an error if the runtime has ended.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.ready(Direction::Write).await
    }

    /// Sets the address to which [`send`](Self::send) sends. If `addr` names several addresses, the socket uses the
    /// first address that the system accepts. This function sends no packet, so the function can succeed even if the
    /// address is unreachable. After this call, the socket accepts only packets from this address. A receive may still
    /// return packets that arrived before this call, even if these packets came from a different address.
    /// [`recv_from`](Self::recv_from) also returns the address of the sender.
    ///
    /// # Errors
    /// Returns the error of the system or of the name lookup.
    pub async fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        let mut last = None;
        for address in resolve(unresolved(&addr), || self.io.backend().host()).await? {
            match self.io.io().connect(address) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("a resolution is not empty"))
    }

    /// Sends a packet to the address that [`connect`](Self::connect) has set. Returns the number of bytes that were
    /// sent.
    ///
    /// # Errors
    /// Returns the error of the system. The error may concern an earlier packet, for example a packet that the peer
    /// has refused.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.io.op(Direction::Write, |io| io.send(buf)).await
    }

    /// Receives a packet. Returns the number of bytes. If the packet is longer than `buf`, the rest of the packet is
    /// lost.
    ///
    /// # Errors
    /// Returns the error of the system. On Windows, returns an error if the packet is longer than `buf`.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.op(Direction::Read, |io| io.recv(buf)).await
    }

    /// Sends a packet to `target`. If `target` names several addresses, sends to the first address. Returns the number
    /// of bytes that were sent.
    ///
    /// A target of the type [`SocketAddr`] needs no lookup. If the target is a text, each call parses the text. If the
    /// target is a name, each call looks up the name.
    ///
    /// # Errors
    /// Returns the error of the system or of the name lookup.
    pub async fn send_to(&self, buf: &[u8], target: impl ToSocketAddrs) -> io::Result<usize> {
        let target = match address(&target) {
            Some(address) => address,
            None => resolve(unresolved(&target), || self.io.backend().host()).await?[0],
        };
        self.io.op(Direction::Write, |io| io.send_to(buf, target)).await
    }

    /// Receives a packet. Returns the number of bytes and the address of the sender. If the packet is longer than
    /// `buf`, the rest of the packet is lost.
    ///
    /// # Errors
    /// Returns the error of the system. On Windows, returns an error if the packet is longer than `buf`.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.op(Direction::Read, |io| io.recv_from(buf)).await
    }

    /// Reads a packet, but leaves the packet in the socket. So the next receive returns the same packet. Returns the
    /// number of bytes and the address of the sender.
    ///
    /// # Errors
    /// Returns the error of the system. On Windows, returns an error if the packet is longer than `buf`.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.op(Direction::Read, |io| io.peek_from(buf)).await
    }

    /// Reads a packet from the connected address, but leaves the packet in the socket. So the next receive returns the
    /// same packet. Returns the number of bytes.
    ///
    /// # Errors
    /// Returns the error of the system. On Windows, returns an error if the packet is longer than `buf`.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.op(Direction::Read, |io| io.peek(buf)).await
    }

    /// The poll function of [`send`](Self::send). If several tasks call this function or
    /// [`poll_send_to`](Self::poll_send_to), only the task that called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Write, cx, |io| io.send(buf))
    }

    /// The poll function of [`recv`](Self::recv). If several tasks call this function or
    /// [`poll_recv_from`](Self::poll_recv_from), only the task that called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Read, cx, |io| io.recv(buf))
    }

    /// The poll function of [`recv_from`](Self::recv_from). If several tasks call this function or
    /// [`poll_recv`](Self::poll_recv), only the task that called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.io.poll_op(Direction::Read, cx, |io| io.recv_from(buf))
    }

    /// The poll function of [`send_to`](Self::send_to). If several tasks call this function or
    /// [`poll_send`](Self::poll_send), only the task that called last is woken.
    ///
    /// # Errors
    /// Fails under the same conditions as [`send_to`](Self::send_to).
    pub fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        self.io.poll_op(Direction::Write, cx, |io| io.send_to(buf, target))
    }

    /// Sends a packet without waiting: see [`send`](Self::send).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if the packet cannot be sent now, or the error of the system. After
    /// `WouldBlock`, a further call may return `WouldBlock` again, even if the packet can then be sent. Await
    /// [`writable`](Self::writable) before you call the function again.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.io.try_op(Direction::Write, |io| io.send(buf))
    }

    /// Receives a packet without waiting: see [`recv`](Self::recv).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if there is no packet now, or the error of the system. After `WouldBlock`,
    /// a further call may return `WouldBlock` again, even if a packet has arrived. The runtime may not have received
    /// the event of the system yet. Await [`readable`](Self::readable) before you call the function again.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.try_op(Direction::Read, |io| io.recv(buf))
    }

    /// Sends a packet without waiting: see [`send_to`](Self::send_to).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if the packet cannot be sent now, or the error of the system. After
    /// `WouldBlock`, a further call may return `WouldBlock` again, even if the packet can then be sent. Await
    /// [`writable`](Self::writable) before you call the function again.
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.io.try_op(Direction::Write, |io| io.send_to(buf, target))
    }

    /// Receives a packet without waiting: see [`recv_from`](Self::recv_from).
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] if there is no packet now, or the error of the system. After `WouldBlock`,
    /// a further call may return `WouldBlock` again, even if a packet has arrived. The runtime may not have received
    /// the event of the system yet. Await [`readable`](Self::readable) before you call the function again.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.try_op(Direction::Read, |io| io.recv_from(buf))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().local_addr()
    }

    /// Returns the address that [`connect`](Self::connect) has set.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.io().peer_addr()
    }

    /// Returns the pending error of the socket (`SO_ERROR`), and clears this error. The error may mean, for example,
    /// that the peer has refused an earlier packet.
    ///
    /// # Errors
    /// Returns the error of the system if the socket has no option `SO_ERROR`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.io().take_error()
    }

    /// Returns a `SockRef` of the crate `socket2`, which sets further options of the socket: broadcast, multicast, time
    /// to live, and buffer sizes.
    pub fn options(&self) -> SockRef<'_> {
        SockRef::from(self.io.io())
    }
}

lends_handle!(UdpSocket, io.io());
