//! The connection to the server: sends one request, and waits for its reply.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

/// Version of the protocol that this console knows.
const VERSION: u64 = 1;

/// Longest time until the server must have replied.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest line that the console accepts. A line of the server has at most 1 MiB.
const LONGEST_LINE: u64 = 8 << 20;

/// Socket of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Path of a Unix socket.
    Path(PathBuf),
    /// Address and token of a TCP socket.
    Tcp {
        /// Host and port.
        address: String,
        /// Token of the program.
        token: String,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Tcp { address, .. } => f.write_str(address),
        }
    }
}

/// Error of a request.
#[derive(Debug)]
pub enum Error {
    /// The connection has failed.
    Io(io::Error),
    /// The server uses a different protocol.
    Protocol(String),
    /// The server has refused the request.
    Refused {
        /// Kind of the error, for example `no_process`.
        kind: String,
        /// Explanation of the server.
        message: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "connection: {error}"),
            Self::Protocol(text) => write!(f, "protocol: {text}"),
            Self::Refused { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Error {
    /// Whether the server has refused the request. After a refusal, the connection can be used again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// Stream to the server.
trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// Connection to a program.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    next_id: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("next_id", &self.next_id).finish_non_exhaustive()
    }
}

/// Adds the usual cause of an error to the text of the error. Returns the error unchanged if the cause is not known.
fn explained(error: io::Error, is_path: bool) -> io::Error {
    use io::ErrorKind as Kind;
    let hint = match (error.kind(), is_path) {
        (Kind::NotFound, true) => "no program has opened this socket: start it with PROCESSION_CONSOLE=PATH",
        (Kind::ConnectionRefused, true) => "the program that has opened this socket has ended",
        (Kind::PermissionDenied, true) => "only root and the user of the program can open the socket",
        (Kind::ConnectionRefused, false) => "no program listens at this address: see Builder::console_tcp",
        (Kind::InvalidInput, false) => "--tcp needs HOST:PORT",
        (Kind::WouldBlock | Kind::TimedOut, _) => "the program has not answered within 10 s",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

/// Connects to one of the addresses of a host. All attempts together have the time limit [`TIMEOUT`].
fn connect_tcp(address: &str) -> io::Result<TcpStream> {
    let until = Instant::now() + TIMEOUT;
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl Client {
    /// Connects to a program, and checks the version of the protocol that the program uses. If the socket is a TCP
    /// socket, also sends the token.
    ///
    /// # Errors
    /// Returns an error if the program cannot be reached, refuses the client, or uses a different version of the
    /// protocol.
    pub fn connect(target: &Target) -> Result<Self, Error> {
        let (stream, token) = match target {
            Target::Path(path) => (connect_unix(path, TIMEOUT).map_err(|error| explained(error, true))?, None),
            Target::Tcp { address, token } => {
                let stream = connect_tcp(address).map_err(|error| explained(error, false))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                (Box::new(stream) as Box<dyn Stream>, Some(token))
            }
        };
        let mut client = Self { stream: BufReader::new(stream), next_id: 0 };
        let greeting = client.line()?;
        refused(&greeting)?;
        if greeting["protocol"] != "procession-console" {
            return Err(Error::Protocol("the server is no console server".into()));
        }
        if greeting["version"] != VERSION {
            let text = format!("the server speaks version {}, and this console version {VERSION}", greeting["version"]);
            return Err(Error::Protocol(text));
        }
        if greeting["token_required"] == true {
            let token = token.ok_or_else(|| Error::Protocol("the server needs a token".into()))?;
            client.request("authenticate", [("token", token.as_str().into())])?;
        }
        Ok(client)
    }

    /// Sends a request, and returns the field `ok` of its reply.
    ///
    /// # Errors
    /// Returns an error if the connection fails, or if the server refuses the request.
    pub fn request(
        &mut self,
        request: &str,
        fields: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<Value, Error> {
        self.next_id += 1;
        let mut line = Map::new();
        line.insert("id".into(), self.next_id.into());
        line.insert("request".into(), request.into());
        line.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let mut bytes = Value::Object(line).to_string();
        bytes.push('\n');
        self.stream.get_mut().write_all(bytes.as_bytes())?;
        let mut reply = self.line()?;
        refused(&reply)?;
        if reply["id"] != self.next_id {
            return Err(Error::Protocol(format!("the reply has the id {} instead of {}", reply["id"], self.next_id)));
        }
        Ok(reply["ok"].take())
    }

    fn line(&mut self) -> Result<Value, Error> {
        let mut line = Vec::new();
        (&mut self.stream).take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(|error| explained(error, false))?;
        match line.last() {
            None => {
                Err(Error::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "the program has closed the connection")))
            }
            Some(b'\n') => serde_json::from_slice(&line).map_err(|error| Error::Protocol(format!("no JSON: {error}"))),
            Some(_) => Err(Error::Protocol("a line is incomplete or too long".into())),
        }
    }
}

/// Returns the error that the reply contains.
fn refused(reply: &Value) -> Result<(), Error> {
    let text = |name: &str| reply["error"][name].as_str().unwrap_or_default().to_owned();
    if reply["error"].is_null() { Ok(()) } else { Err(Error::Refused { kind: text("kind"), message: text("message") }) }
}

/// Time between two attempts to connect.
#[cfg(unix)]
const PAUSE: Duration = Duration::from_millis(10);

/// Connects to a Unix socket within the time `limit`. While the program is suspended, for example by `SIGSTOP`, the
/// system queues only a few connections for the program. While this queue is full, a blocking connect waits without a
/// limit.
#[cfg(unix)]
fn connect_unix(path: &std::path::Path, limit: Duration) -> io::Result<Box<dyn Stream>> {
    use std::os::unix::net::UnixStream;

    use socket2::{Domain, SockAddr, Socket, Type};

    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let until = Instant::now() + limit;
    // While the queue is full, `connect` returns `WouldBlock` on Linux, and no event announces a free place in the
    // queue. Other systems refuse the connection.
    while let Err(error) = socket.connect(&address) {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the program accepts no client"));
        }
        std::thread::sleep(left.min(PAUSE));
    }
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(Box::new(stream))
}

#[cfg(not(unix))]
fn connect_unix(_: &std::path::Path, _: Duration) -> io::Result<Box<dyn Stream>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "a path needs Unix; use --tcp"))
}

/// These tests run only on Linux, because on other systems a connect fails while the queue of the server is full.
#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    fn socket() -> Socket {
        Socket::new(Domain::UNIX, Type::STREAM, None).unwrap()
    }

    /// Opens a socket whose queue is full, and calls `f` with the server.
    fn with_full_queue(name: &str, f: impl FnOnce(&Path, &Socket)) {
        let path = std::env::temp_dir().join(format!("procession-client-{name}-{}", std::process::id()));
        let (server, address) = (socket(), SockAddr::unix(&path).unwrap());
        server.bind(&address).unwrap();
        server.listen(1).unwrap();
        let mut clients = Vec::new();
        loop {
            let client = socket();
            client.set_nonblocking(true).unwrap();
            match client.connect(&address) {
                Ok(()) => clients.push(client),
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        f(&path, &server);
        std::fs::remove_file(&path).unwrap();
    }

    /// Connects on another thread, so that the test fails if the connect never returns.
    fn connect(path: &Path, limit: Duration) -> mpsc::Receiver<io::Result<()>> {
        let (tell, told) = mpsc::channel();
        let path = path.to_owned();
        std::thread::spawn(move || tell.send(connect_unix(&path, limit).map(drop)));
        told
    }

    #[test]
    fn a_connect_to_a_stopped_program_has_a_time_limit() {
        with_full_queue("stopped", |path, _| {
            let connected =
                connect(path, Duration::from_millis(50)).recv_timeout(TIMEOUT).expect("the time limit has passed");
            let error = explained(connected.unwrap_err(), true);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(error.to_string().ends_with("; the program has not answered within 10 s"), "{error}");
        });
    }

    #[test]
    fn a_connect_succeeds_as_soon_as_the_program_accepts_a_client() {
        with_full_queue("continued", |path, server| {
            let connecting = connect(path, TIMEOUT);
            let _client = server.accept().unwrap();
            connecting.recv_timeout(TIMEOUT).unwrap().unwrap();
        });
    }
}
