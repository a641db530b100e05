//! The console server. The server answers the requests of consoles, which are programs that inspect this program over a
//! socket.
//!
//! The server has a separate thread, which waits for all sockets of the server at the same time. The server needs no
//! worker. Therefore, the server answers even while all workers are blocked. The server has only weak references to the
//! runtime. The page `guide/console.rs` describes the protocol.
//!
//! - `socket.rs` opens the sockets.
//! - `server.rs` waits for the sockets, and accepts clients.
//! - `client.rs` reads the requests of one client, and writes the replies.
//! - `request.rs` parses a request.
//! - `encoding.rs` encodes the replies.
//! - `reply.rs` builds the replies from the state of the runtime.
//! - `registered.rs` builds the replies about names, groups, timers and handlers.
//! - `tree.rs` asks the supervisors for the supervision tree.
//! - `action.rs` performs the actions that a console requests, for example a kill.
//! - `trace.rs` contains the live trace of a client.
//! - `later.rs` contains the type of a reply that comes later, for example after the answer of a supervisor.

mod action;
mod client;
mod encoding;
mod later;
mod registered;
mod reply;
mod request;
mod server;
mod socket;
mod trace;
mod tree;

use std::fmt;
use std::io::{Write, stderr};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::Host;
use crate::platform::sync::atomic::{AtomicBool, Ordering};
use crate::platform::sync::{Arc, Condvar, Mutex, thread, wait_while};
use crate::process::error::BuildError;
use crate::runtime::console::reply::Inspected;
use crate::runtime::console::server::{Server, ServerWaker};
use crate::runtime::console::socket::{Listener, SocketFile};
use crate::runtime::enqueue::Threads;
use crate::runtime::{Builder, Runtime};

/// Environment variable that contains the path of a socket.
const VARIABLE: &str = "PROCESSION_CONSOLE";

/// Minimum length of a token in bytes. A shorter token could be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Maximum time that the drop of a runtime waits for the server. The server ends when it has answered the request in
/// progress.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of the console server.
#[derive(Default)]
pub(super) struct ConsoleOptions {
    path: Option<PathBuf>,
    tcp: Option<(SocketAddr, String)>,
    actions: bool,
}

impl Builder {
    /// Opens a console socket at this path. A console, for example the program `procession-console`, attaches to the
    /// socket and inspects the runtime. Default: the path in the environment variable `PROCESSION_CONSOLE`, or no
    /// socket. This method needs the feature `console`, and works only on Unix.
    ///
    /// Only the user who runs the program, and root, can connect to the socket: the permissions of the file are 0600
    /// before the first client can connect. If the path exists, and is a socket without a server, the file is replaced.
    /// The drop of the runtime removes the file. Use a folder in which no other user can create files, for example
    /// `$XDG_RUNTIME_DIR`.
    ///
    /// The server has one thread, which waits for requests and needs no worker. Up to 8 consoles can attach to each
    /// socket at the same time. The server does not keep the runtime alive, and ends at the drop of the runtime. The
    /// guide page [`console`](crate::guide::console) describes the protocol and all limits.
    ///
    /// In the value of `PROCESSION_CONSOLE`, `%p` stands for the process id of the program, and `%n` stands for the
    /// [node number](Self::node) of the runtime. If the socket of the environment variable cannot be opened, the
    /// runtime prints the error to stderr, and runs without this socket.
    ///
    /// ```
    /// # use procession::Runtime;
    /// # #[cfg(unix)]
    /// # fn main() -> Result<(), procession::BuildError> {
    /// let path = std::env::temp_dir().join(format!("console-{}", std::process::id()));
    /// let rt = Runtime::builder().console(&path).build()?;
    /// assert!(path.exists());
    /// drop(rt);
    /// assert!(!path.exists());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(unix))]
    /// # fn main() {}
    /// ```
    pub fn console(mut self, path: impl Into<PathBuf>) -> Self {
        self.console.path = Some(path.into());
        self
    }

    /// Opens a console socket at this TCP address, in addition to the socket of [`console`](Self::console). Default: no
    /// TCP socket. With port 0, the system selects a port, which [`Runtime::console_address`] returns. This method
    /// needs the feature `console`.
    ///
    /// A client must send `token` before its first request. The token must have at least 16 bytes, and should be a
    /// random text. The connection is not encrypted: use a loopback address, and a tunnel for access over a network.
    pub fn console_tcp(mut self, address: impl Into<SocketAddr>, token: impl Into<String>) -> Self {
        self.console.tcp = Some((address.into(), token.into()));
        self
    }

    /// Sets whether consoles may change the program. Default: off. With this option, a console can cancel, kill,
    /// suspend and resume processes, and change priorities and the number of workers. A console can also restart
    /// children of supervisors, and write flight records to the folder of
    /// [`FlightRecorder::folder`](crate::observe::FlightRecorder::folder). Without this option, the server refuses
    /// these requests, and consoles can only inspect the program. This method needs the feature `console`.
    pub fn console_actions(mut self, on: bool) -> Self {
        self.console.actions = on;
        self
    }
}

impl Runtime {
    /// Returns the address of the TCP socket of [`Builder::console_tcp`]. Returns `None` if the runtime has no TCP
    /// socket for a console. This method needs the feature `console`.
    pub fn console_address(&self) -> Option<SocketAddr> {
        self.console.as_ref()?.address
    }
}

/// Handle of a running server. The drop of the handle ends the server.
pub(super) struct Console {
    state: Arc<State>,
    waker: Arc<ServerWaker>,
    address: Option<SocketAddr>,
    /// The file of the Unix socket. The drop removes the file.
    _file: Option<SocketFile>,
}

/// State that the handle shares with the thread of the server.
#[derive(Default)]
struct State {
    stop: AtomicBool,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl State {
    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Guard of the server's thread. The drop of the guard reports the end of the thread, even after a panic.
struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.has_ended.lock() = true;
        self.0.ended.notify_all();
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Console {
    /// Opens the sockets that the options and the environment variable name, and starts the server. Returns `None` if
    /// there is no open socket.
    ///
    /// # Errors
    /// Returns an error if the token is too short, or if a socket of the builder cannot be opened.
    pub(super) fn open(
        options: ConsoleOptions,
        host: &Host,
        threads: &Arc<Threads>,
    ) -> Result<Option<Self>, BuildError> {
        let ConsoleOptions { path, tcp, actions } = options;
        let (mut listeners, mut file, mut address) = (Vec::new(), None, None);
        if let Some((at, token)) = tcp {
            if token.len() < SHORTEST_TOKEN {
                return Err(BuildError::Invalid("the token of the console has fewer than 16 bytes"));
            }
            let listener = Listener::tcp(at, token).map_err(|error| failed(at.to_string(), error))?;
            address = listener.address();
            listeners.push(listener);
        }
        let from_environment = path.is_none();
        if let Some(path) = path.or_else(|| path_from_environment(host.node())) {
            match Listener::unix(&path).map_err(|error| failed(path.display().to_string(), error)) {
                Ok((listener, created)) => {
                    listeners.push(listener);
                    file = Some(created);
                }
                // A broken pipe must not panic here, because the program continues without this socket of the console.
                Err(error) if from_environment => _ = writeln!(stderr(), "procession: {VARIABLE}: {error}"),
                Err(error) => return Err(error),
            }
        }
        if listeners.is_empty() {
            return Ok(None);
        }
        let state = Arc::new(State::default());
        let inspected = Inspected::new(host, threads, actions);
        let (server, waker) = Server::new(listeners, inspected, host.shared().clock.clone())?;
        let running = Running(Arc::clone(&state));
        thread::Builder::new().name("procession-console".into()).spawn(move || {
            let running = running;
            server.run(|| running.0.is_stopping());
        })?;
        Ok(Some(Self { state, waker, address, _file: file }))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        self.waker.wake_thread();
        wait_while(&self.state.ended, self.state.has_ended.lock(), STOP_TIMEOUT, |has_ended| !*has_ended);
    }
}

fn failed(at: String, error: std::io::Error) -> BuildError {
    BuildError::Console { at, error }
}

/// Returns the path in the environment variable. Replaces `%p` by the process id of the program, and `%n` by the node
/// number of the runtime.
fn path_from_environment(node: u32) -> Option<PathBuf> {
    let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
    Some(match value.into_string() {
        Ok(text) => text.replace("%p", &std::process::id().to_string()).replace("%n", &node.to_string()).into(),
        // A path that is not UTF-8 is used unchanged.
        Err(path) => path.into(),
    })
}
