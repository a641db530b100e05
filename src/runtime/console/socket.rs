//! The sockets of the console server. A Unix socket is a file, and only its owner can connect to it. A client of a TCP
//! socket must send a token.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use mio::event::Source;
#[cfg(unix)]
use mio::net::UnixListener;
use mio::net::{TcpListener, TcpStream};
use socket2::{SockRef, TcpKeepalive};

/// Idle time of a TCP connection after which the system asks the client whether it still exists.
const IDLE: Duration = Duration::from_secs(60);

/// Connection to a client.
pub(super) trait Stream: Read + Write + Source + Send {}
impl<S: Read + Write + Source + Send> Stream for S {}

/// Socket that accepts clients.
pub(super) struct Listener {
    socket: Socket,
    /// Token that a client must send before its first request.
    pub(super) token: Option<String>,
}

enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn tcp(at: SocketAddr, token: String) -> io::Result<Self> {
        Ok(Self { socket: Socket::Tcp(TcpListener::bind(at)?), token: Some(token) })
    }

    /// Creates a socket at this path. The returned guard removes the file.
    #[cfg(unix)]
    pub(super) fn unix(path: &Path) -> io::Result<(Self, SocketFile)> {
        let (socket, file) = bind(path)?;
        Ok((Self { socket: Socket::Unix(socket), token: None }, file))
    }

    #[cfg(not(unix))]
    pub(super) fn unix(_: &Path) -> io::Result<(Self, SocketFile)> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a console socket needs Unix; use `Builder::console_tcp`"))
    }

    /// Address of a TCP socket.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            #[cfg(unix)]
            Socket::Unix(_) => None,
        }
    }

    pub(super) fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.socket {
            Socket::Tcp(socket) => Box::new(accept_tcp(socket)?),
            #[cfg(unix)]
            Socket::Unix(socket) => Box::new(socket.accept()?.0),
        })
    }

    pub(super) fn source(&mut self) -> &mut dyn Source {
        match &mut self.socket {
            Socket::Tcp(socket) => socket,
            #[cfg(unix)]
            Socket::Unix(socket) => socket,
        }
    }
}

fn accept_tcp(socket: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = socket.accept()?;
    // Without this option, the system may delay a reply until the client acknowledges the previous reply.
    stream.set_nodelay(true)?;
    // A computer that sleeps or loses its network does not close its connections. Without this option, such clients
    // would count as attached until the program ends.
    SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
    Ok(stream)
}

fn keepalive() -> TcpKeepalive {
    let keepalive = TcpKeepalive::new().with_time(IDLE);
    // On all other systems, the interval and the number of retries keep the system's defaults.
    #[cfg(any(
        target_os = "linux",
        target_os = "android",
        target_os = "macos",
        target_os = "ios",
        target_os = "freebsd",
        target_os = "netbsd",
        windows
    ))]
    let keepalive = keepalive.with_interval(Duration::from_secs(10)).with_retries(3);
    keepalive
}

/// The file of a Unix socket. The drop removes the file, unless another server has replaced it.
#[cfg(unix)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

/// Without Unix sockets, there is no file.
#[cfg(not(unix))]
pub(super) enum SocketFile {}

#[cfg(unix)]
impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|present| present == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Binds a Unix socket, and sets the permissions of its file to 0600 before the first client can connect.
#[cfg(unix)]
fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    use std::os::unix::fs::PermissionsExt;

    use socket2::{Domain, SockAddr, Socket, Type};

    /// Number of clients that the system keeps until the server accepts them.
    const BACKLOG: i32 = 16;

    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::new(path)?;
    // The system refuses all clients until the call of `listen`.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((UnixListener::from_std(std::os::unix::net::UnixListener::from(socket)), file))
}

/// Removes the file if it is a socket without a server.
///
/// # Errors
/// Returns an error if the file is no socket, or if a server listens.
#[cfg(unix)]
fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;

    use socket2::{Domain, SockAddr, Socket, Type};

    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists and is no socket"));
        }
        Ok(_) => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A blocking connect would wait while the backlog of the server is full.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens at this socket")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::sync::thread;

    #[test]
    fn the_system_checks_whether_an_idle_tcp_client_exists() {
        let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = loop {
            match accept_tcp(&listener) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                accepted => break accepted.unwrap(),
            }
        };
        assert!(accepted.nodelay().unwrap() && SockRef::from(&accepted).keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            let options = SockRef::from(&accepted);
            let times = (options.tcp_keepalive_time().unwrap(), options.tcp_keepalive_interval().unwrap());
            assert_eq!(times, (IDLE, Duration::from_secs(10)));
            assert_eq!(options.tcp_keepalive_retries().unwrap(), 3);
        }
        drop(client);
    }
}
