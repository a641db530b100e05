//! Accepts connections of Unix sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;

use mio::net::{UnixListener, UnixStream};
use socket2::SockRef;

/// Accepts a connection. Returns the stream and the address of the peer.
///
/// On Linux, the function does not call `accept` of mio. If the path of the peer has the maximum length of 108 bytes,
/// mio 1.2 panics. Any local client could therefore end the process that accepts the connection. If the peer has an
/// abstract name, mio 1.2 returns an unnamed address.
pub(crate) fn accept(listener: &UnixListener) -> io::Result<(UnixStream, SocketAddr)> {
    // On Android with 32-bit x86, the system may not allow `accept4`, which socket2 calls.
    if !cfg!(any(target_os = "linux", all(target_os = "android", not(target_arch = "x86")))) {
        return listener.accept();
    }
    let (socket, _) = SockRef::from(listener).accept()?;
    let stream = std::os::unix::net::UnixStream::from(OwnedFd::from(socket));
    stream.set_nonblocking(true)?;
    let address = stream.peer_addr()?;
    Ok((UnixStream::from_std(stream), address))
}
