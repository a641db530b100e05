//! [`TcpSocket`]: a TCP socket whose options can be set before it listens or connects.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::host::Host;
use crate::net::backend::Backend;
use crate::net::handle::lends_handle;
use crate::net::system;
use crate::net::tcp::listener::TcpListener;
use crate::net::tcp::stream::TcpStream;

/// A TCP socket that does not listen and is not connected. Set the options of the socket, and then call
/// [`listen`](Self::listen) or [`connect`](Self::connect).
///
/// ```
/// # use procession::net::TcpSocket;
/// # let rt = procession::Runtime::new()?;
/// # rt.block_on(async {
/// let socket = TcpSocket::new_v4()?;
/// socket.set_reuse_address(true)?;
/// socket.bind("127.0.0.1:0".parse().expect("a valid address"))?;
/// let listener = socket.listen(128)?;
/// # drop(listener);
/// # std::io::Result::Ok(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct TcpSocket {
    socket: Socket,
    backend: Backend,
}

impl TcpSocket {
    /// Opens a socket for IPv4, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the thread has no runtime, or if the runtime is a
    /// simulation.
    pub fn new_v4() -> io::Result<Self> {
        Self::open(Domain::IPV4, Backend::current()?)
    }

    /// Opens a socket for IPv6, on the runtime of the calling thread.
    ///
    /// # Errors
    /// Fails under the same conditions as [`new_v4`](Self::new_v4).
    pub fn new_v6() -> io::Result<Self> {
        Self::open(Domain::IPV6, Backend::current()?)
    }

    /// Opens a socket for IPv4, on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`new_v4`](Self::new_v4).
    pub fn new_v4_in(host: &Host) -> io::Result<Self> {
        Self::open(Domain::IPV4, Backend::of(host)?)
    }

    /// Opens a socket for IPv6, on the runtime of `host`.
    ///
    /// # Errors
    /// Fails under the same conditions as [`new_v4`](Self::new_v4).
    pub fn new_v6_in(host: &Host) -> io::Result<Self> {
        Self::open(Domain::IPV6, Backend::of(host)?)
    }

    fn open(domain: Domain, backend: Backend) -> io::Result<Self> {
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, backend })
    }

    /// Opens a socket that listens on `address`.
    pub(crate) fn listening(address: SocketAddr, backlog: u32, backend: Backend) -> io::Result<TcpListener> {
        let socket = Self::open(Domain::for_address(address), backend)?;
        // On Windows, `SO_REUSEADDR` would let another program take the address of a listener.
        #[cfg(not(windows))]
        socket.set_reuse_address(true)?;
        socket.bind(address)?;
        socket.listen(backlog)
    }

    /// Sets whether the address can be bound while the system still keeps closed connections of this address
    /// (`SO_REUSEADDR`).
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_reuse_address(&self, on: bool) -> io::Result<()> {
        self.socket.set_reuse_address(on)
    }

    /// Sets whether several sockets can be bound to one address (`SO_REUSEPORT`). The system then distributes the
    /// connections among these sockets.
    ///
    /// # Errors
    /// Returns the error of the system.
    #[cfg(all(unix, not(any(target_os = "solaris", target_os = "illumos", target_os = "cygwin"))))]
    pub fn set_reuse_port(&self, on: bool) -> io::Result<()> {
        self.socket.set_reuse_port(on)
    }

    /// Sets whether small packets are sent immediately (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.socket.set_tcp_nodelay(on)
    }

    /// Sets the size of the send buffer in bytes. The system may round this size.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_send_buffer_size(&self, size: usize) -> io::Result<()> {
        self.socket.set_send_buffer_size(size)
    }

    /// Sets the size of the receive buffer in bytes. The system may round this size.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_recv_buffer_size(&self, size: usize) -> io::Result<()> {
        self.socket.set_recv_buffer_size(size)
    }

    /// Sets how long a connection must be idle before the system checks whether the peer still exists. The time is
    /// rounded up to whole seconds, and is at least one second. `None` disables this check.
    ///
    /// # Errors
    /// Returns the error of the system, for example if the time is too long (Linux allows at most 32,767 seconds). If
    /// this call fails, the call does not change whether the check is enabled.
    pub fn set_keepalive(&self, after: Option<Duration>) -> io::Result<()> {
        let Some(after) = after else { return self.socket.set_keepalive(false) };
        let was_enabled = self.socket.keepalive()?;
        let set = self.socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(whole_seconds(after)));
        // `set_tcp_keepalive` enables the check before it sets the time.
        set.inspect_err(|_| drop(self.socket.set_keepalive(was_enabled)))
    }

    /// Sets `SO_LINGER` to zero: see [`TcpStream::set_zero_linger`].
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.socket.set_linger(Some(Duration::ZERO))
    }

    /// Returns a `SockRef` of the crate `socket2`. Its methods set further options of the socket.
    pub fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }

    /// Binds the socket to a local address.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.socket.bind(&addr.into())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns the error of the system. Returns an error if the address is not an IP address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = self.socket.local_addr()?;
        address.as_socket().ok_or_else(|| io::Error::other("the socket has no IP address"))
    }

    /// Makes the socket listen, and returns the listener. The system queues up to `backlog` connections until `accept`
    /// takes these connections. The system may limit `backlog`.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        TcpListener::register(system::TcpListener::from_std(self.socket.into()), self.backend)
    }

    /// Connects to `addr`.
    ///
    /// # Errors
    /// Returns the error of the system.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future ends the attempt.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        self.backend.ensure_open()?;
        let is_pending = match self.socket.connect(&addr.into()) {
            // At this point, the connection is established, or the option `TCP_FASTOPEN_CONNECT` is set. With this
            // option, the first write opens the connection. A wait for the connection before this write would never
            // end.
            Ok(()) => false,
            Err(error) if is_in_progress(&error) => true,
            Err(error) => return Err(error),
        };
        let stream = TcpStream::register(system::TcpStream::from_std(self.socket.into()), self.backend)?;
        if is_pending { stream.connected().await } else { Ok(stream) }
    }
}

lends_handle!(TcpSocket, socket);

/// Rounds a time up to whole seconds, and to at least one second. The options of most systems count whole seconds, and
/// zero is not allowed.
fn whole_seconds(time: Duration) -> Duration {
    let partial = u64::from(time.subsec_nanos() != 0);
    Duration::from_secs(time.as_secs().saturating_add(partial).max(1))
}

/// Returns true if this error of a non-blocking `connect` means that the attempt is in progress. On Unix, `WouldBlock`
/// (`EAGAIN`) means that the attempt has not begun.
fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        error.raw_os_error() == Some(libc::EINPROGRESS)
    }
    #[cfg(not(unix))]
    {
        error.kind() == io::ErrorKind::WouldBlock
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_einprogress_means_that_a_connection_attempt_has_begun() {
        let errors = [libc::EINPROGRESS, libc::EAGAIN, libc::ECONNREFUSED];
        let begun = errors.map(|code| is_in_progress(&io::Error::from_raw_os_error(code)));
        assert_eq!(begun, [true, false, false]);
    }
}
