//! Accepts connections of Unix sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::SocketAddr;

use mio::net::{UnixListener, UnixStream};
use socket2::SockRef;

/// Accepts a connection. Returns the stream and the address of the peer.
///
/// On Linux, the function does not call `accept` of mio. If the path of the peer has the maximum length of 108 bytes, mio
/// 1.2 panics, so any local client could end the process that accepts. If the peer has an abstract name, mio 1.2 returns
/// an unnamed address.
pub(crate) fn accept(listener: &UnixListener) -> io::Result<(UnixStream, SocketAddr)> {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return listener.accept();
    }
    let (socket, _) = SockRef::from(listener).accept()?;
    let stream = std::os::unix::net::UnixStream::from(OwnedFd::from(socket));
    stream.set_nonblocking(true)?;
    let address = stream.peer_addr()?;
    Ok((UnixStream::from_std(stream), address))
}
