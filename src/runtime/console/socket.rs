//! The sockets of the console server. A Unix socket is a file, and only the owner of the file can connect to the
//! socket. A client of a TCP socket must send a token.

#[cfg(unix)]
use std::fs::Metadata;
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
#[cfg(unix)]
use socket2::{Domain, SockAddr, Socket as Socket2, Type};
use socket2::{SockRef, TcpKeepalive};

#[cfg(unix)]
use crate::platform::poller::unix_accept::accept;

/// Idle time of a TCP connection after which the system sends a keep-alive probe to the client.
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
            Socket::Unix(socket) => Box::new(accept(socket)?.0),
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
    // A computer that sleeps or loses its network does not close its connections. Without this option, a client on a
    // computer that sleeps or has lost its network would count as attached until the program ends.
    SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
    Ok(stream)
}

fn keepalive() -> TcpKeepalive {
    let keepalive = TcpKeepalive::new().with_time(IDLE);
    // On all other systems, the interval and the number of retries are the system's defaults.
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

/// The file of a Unix socket. The drop removes the file, unless another server has replaced the file.
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
    /// Binds a socket to a temporary name in the folder of `path`. The name is short, because the length of a socket's
    /// path is limited.
    fn temporary(socket: &Socket2, path: &Path) -> io::Result<Self> {
        /// Number of different names.
        const NAMES: u32 = 1 << 12;

        let process = std::process::id();
        for number in 0..NAMES {
            let path = path.with_file_name(format!(".{:03x}", process.wrapping_add(number) % NAMES));
            let address = SockAddr::unix(&path).map_err(|_| {
                let text = "the path is too long: the folder needs room for a temporary name of four bytes";
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
            match socket.bind(&address) {
                // A different server uses this name at this moment, or a server has ended and has not removed its file.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => {
                    bound?;
                    return Ok(Self { identity: identity(&path)?, path });
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "the folder has no free temporary name for a socket"))
    }

    /// Gives the file a second name. Fails if a file with this name exists.
    fn link(&self, path: &Path) -> io::Result<Self> {
        std::fs::hard_link(&self.path, path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => error,
            kind => io::Error::new(kind, format!("the file system cannot link the socket to its name: {error}")),
        })?;
        Ok(Self { path: path.to_owned(), identity: self.identity })
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
    std::fs::symlink_metadata(path).map(|file| identity_of(&file))
}

#[cfg(unix)]
fn identity_of(file: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino())
}

/// Creates a Unix socket that listens at `path`. Its file has the permissions 0600 before the first client can connect.
///
/// Two programs may open the same path at the same time. Between `bind` and `listen`, a socket refuses clients, like
/// the socket of an ended program. Therefore the socket first listens at a temporary name. Then the socket gets its
/// final name, unless another program has created a file with the final name. Tools such as `ss` show the temporary
/// name.
#[cfg(unix)]
fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    use std::os::unix::fs::PermissionsExt;

    /// Maximum number of connections that the operating system queues until the server accepts them.
    const BACKLOG: i32 = 16;

    // Returns an error if the path is too long for a client.
    let _ = SockAddr::unix(path)?;
    let socket = Socket2::new(Domain::UNIX, Type::STREAM, None)?;
    let temporary = SocketFile::temporary(&socket, path)?;
    std::fs::set_permissions(&temporary.path, std::fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    remove_stale(path, &temporary.path.with_extension("old"))?;
    let file = match temporary.link(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(in_use()),
        file => file?,
    };
    Ok((UnixListener::from_std(std::os::unix::net::UnixListener::from(socket)), file))
}

/// Removes the file if the file is a socket without a server. `aside` is a name that no other program uses.
///
/// # Errors
/// Returns an error if the file is no socket, or if a server listens.
#[cfg(unix)]
fn remove_stale(path: &Path, aside: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;

    let stale = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            let text = match file.file_type() {
                kind if kind.is_symlink() => "the path is a symbolic link; give the path of the socket itself",
                kind if kind.is_dir() => "the path is a folder; give the path of a file in this folder",
                _ => "the file exists and is no socket",
            };
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(file) => identity_of(&file),
    };
    let socket = Socket2::new(Domain::UNIX, Type::STREAM, None)?;
    // A blocking connect would wait while the backlog of the server is full.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => remove_if_identical(path, stale, aside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
            let text = format!("the path is a socket to which the server cannot connect: {error}");
            Err(io::Error::new(error.kind(), text))
        }
        _ => Err(in_use()),
    }
}

/// Removes the file if the file has this identity. Between a check of the identity and a removal, another program could
/// replace the file. Therefore this function first renames the file to `aside`, and then checks the identity. If the
/// file is the socket of another program, the function restores the name. If a third program has created a file with
/// this name in the meantime, the name is not restored.
#[cfg(unix)]
fn remove_if_identical(path: &Path, stale: (u64, u64), aside: &Path) -> io::Result<()> {
    match std::fs::rename(path, aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    let restored = if identity(aside)? == stale { Ok(()) } else { std::fs::hard_link(aside, path).and(Err(in_use())) };
    std::fs::remove_file(aside)?;
    restored
}

#[cfg(unix)]
fn in_use() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another server listens at this socket")
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use crate::platform::sync::atomic::{AtomicUsize, Ordering};
    use crate::platform::sync::thread;

    /// Two threads open the same path at the same time. In every second round, the path is a socket without a server.
    #[cfg(unix)]
    #[test]
    fn only_one_of_two_concurrent_servers_gets_a_path() {
        use std::os::unix::net::{UnixListener, UnixStream};

        let folder = std::env::temp_dir().join(format!("procession-socket-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("console");
        for round in 0..500 {
            if round % 2 == 0 {
                drop(UnixListener::bind(&path).unwrap());
            }
            let started = AtomicUsize::new(0);
            let open = || {
                started.fetch_add(1, Ordering::SeqCst);
                while started.load(Ordering::SeqCst) != 2 {
                    std::hint::spin_loop();
                }
                Listener::unix(&path)
            };
            let opened = thread::scope(|scope| [scope.spawn(open), scope.spawn(open)].map(|one| one.join().unwrap()));
            UnixStream::connect(&path).unwrap();
            let ([Ok(_), Err(error)] | [Err(error), Ok(_)]) = &opened else { panic!("not one server: round {round}") };
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        }
        // This call fails if the folder contains a file.
        std::fs::remove_dir(&folder).unwrap();
    }

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
