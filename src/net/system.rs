//! The sockets of the operating system. All other files of `net` import the types of mio from this file. If a simulated
//! network is added to the crate, each type of this file will be either a socket of the system or a simulated socket. A
//! simulated network must then also replace the calls of `socket2` and of the standard library that create sockets:
//! these calls are in `tcp/socket.rs`, in the folder `unix` and in `platform/poller/unix_accept.rs`.

#[cfg(unix)]
use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, RawFd};

pub(crate) use mio::event::Source as SystemSocket;
pub(crate) use mio::net::{TcpListener, TcpStream, UdpSocket};
#[cfg(unix)]
pub(crate) use mio::net::{UnixDatagram, UnixListener, UnixStream};
#[cfg(unix)]
use mio::unix::SourceFd;
#[cfg(unix)]
use mio::{Interest, Registry, Token};

/// A value whose file descriptor can be registered with the poller.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Descriptor<T>(pub(crate) T);

#[cfg(unix)]
impl<T: AsFd> AsRawFd for Descriptor<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(unix)]
impl<T: AsFd> SystemSocket for Descriptor<T> {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.as_raw_fd()).deregister(registry)
    }
}
