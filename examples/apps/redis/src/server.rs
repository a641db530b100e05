//! The server: its settings, the table of its clients, and its processes.
//!
//! ```text
//! server (supervisor)
//! ├─ shards (supervisor)
//! │  ├─ shard 0 …            each owns a part of the keys
//! └─ listener                accepts clients, and owns their connections
//!    └─ connection …         one process per client
//! ```
//!
//! A shutdown stops the listener first. The connections then finish the commands that they have read. Meanwhile, the
//! shards still run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write as _};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use futures::future::{Either, select};
use futures::{AsyncRead, AsyncWrite, AsyncWriteExt, FutureExt};
use procession::net::{TcpListener, TcpStream};
use procession::{Child, Context, Exit, Host, Instant, JoinSet, Pid, Server as _, Supervisor};
use socket2::TcpKeepalive;

use crate::connection::serve;
use crate::pubsub::{Mail, Unread};
use crate::resp::Limits;
use crate::session::Session;
use crate::shard::{Execute, Shard};

/// Longest time that a connection may take to finish its commands when the server stops.
const GRACE: Duration = Duration::from_secs(3);
/// Pause after a failed `accept`. For example, `accept` fails if no file descriptor is free.
const PAUSE: Duration = Duration::from_millis(50);

/// Idle time after which the system checks whether the computer of a client still exists. Redis has the same default.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port that `INFO` returns.
    pub port: u16,
    /// Number of shards.
    pub shards: usize,
    /// Maximum number of clients. A further client gets an error and is disconnected.
    pub max_connections: usize,
    /// Limits of each connection.
    pub limits: Limits,
    /// Seed of the hash of the keys. The default is a random number, so that a client cannot choose keys with equal
    /// hashes.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 7379,
            shards: 1,
            max_connections: 10_000,
            limits: Limits::default(),
            seed: RandomState::new().build_hasher().finish(),
        }
    }
}

/// Source of clients. The source is a listening socket, or a queue of pipes in a test.
pub trait Listener: Send + Sync + 'static {
    /// Connection to a client.
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Waits for the next client. Returns the connection and the address of the client. The future must be cancel safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Socket, String)>> + Send;
}

impl Listener for TcpListener {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, String)> {
        let (socket, peer) = Self::accept(self).await?;
        // Each write is a complete answer, so the write should not wait for further bytes. If `set_nodelay` fails, the
        // client has vanished, and the first read also fails.
        let _ = socket.set_nodelay(true);
        // If the computer of a client vanishes, the server gets no end of the stream. Without keepalive, the process of
        // this client would never exit.
        let _ = socket.options().set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
        Ok((socket, peer.to_string()))
    }
}

/// Returns the process that runs the server.
pub fn server<L: Listener>(host: &Host, config: Config, listener: L) -> Supervisor {
    let server = Arc::new(Server::new(host, config));
    let listener = Arc::new(listener);
    let shards = Arc::clone(&server);
    Supervisor::one_for_one().add(Child::process("shards", move || supervisor_of_shards(&shards))).add(
        Child::new("listener", move |ctx| listen(ctx, Arc::clone(&server), Arc::clone(&listener))).shutdown(GRACE * 2),
    )
}

/// Name of the process of a shard.
pub(crate) fn shard_name(shard: usize) -> String {
    format!("shard {shard}")
}

fn supervisor_of_shards(server: &Arc<Server>) -> Supervisor {
    let mut supervisor = Supervisor::one_for_one().intensity(10, Duration::from_secs(1));
    for shard in 0..server.config.shards {
        let body = |ctx: Context<Execute>, hasher| {
            let shard = Shard::new(hasher, ctx.now(), ctx.random());
            shard.serve(ctx)
        };
        supervisor = supervisor.add(Child::with_args(shard_name(shard), server.hasher(), body));
    }
    supervisor
}

/// Accepts clients and owns their connections. If this process is cancelled, the process cancels the connections and
/// waits until all connections have ended.
async fn listen<L: Listener>(ctx: Context<()>, server: Arc<Server>, listener: Arc<L>) -> Result<(), Exit> {
    let mut connections = ctx.join_set();
    let accepted = accept_all(&ctx, &server, &*listener, &mut connections);
    let stopped = ctx.run_until_cancelled(accepted).await;
    connections.cancel_all("the server stops", GRACE);
    connections.join_all().await;
    stopped
}

async fn accept_all<L: Listener>(ctx: &Context<()>, server: &Arc<Server>, listener: &L, connections: &mut JoinSet<()>) {
    loop {
        let accepted = match connections.is_empty() {
            true => listener.accept().await,
            false => match select(pin!(listener.accept()), pin!(connections.join_next())).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right((joined, _)) => {
                    joined.iter().for_each(report);
                    continue;
                }
            },
        };
        // Removes the connections that have ended. While clients wait, `select` never polls `join_next`.
        while let Some(Some(joined)) = connections.join_next().now_or_never() {
            report(&joined);
        }
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                print_error(&format!("no client can be accepted: {error}"));
                ctx.sleep(PAUSE).await;
                continue;
            }
        };
        if connections.len() >= server.config.max_connections {
            drop(ctx.host().spawn(move |_: Context| refuse(socket)));
            continue;
        }
        let server = Arc::clone(server);
        match ctx.process().spawn(move |ctx: Context<Mail>| serve(ctx, socket, peer, server)) {
            Ok(connection) => _ = connections.insert(connection),
            Err(error) => print_error(&format!("no process for a client: {error}")),
        }
    }
}

/// Prints the failure of a connection. The `JoinSet` of the connections receives the exit of each connection, so the
/// runtime does not report the failure.
fn report(joined: &Result<(), Exit>) {
    if let Err(exit @ (Exit::Failed(_) | Exit::Panicked(_))) = joined {
        print_error(&format!("a connection has failed: {exit}"));
    }
}

/// Prints a line on the standard error. Unlike `eprintln!`, this function does not panic if the reader of the standard
/// error has ended. A panic of the listener would end all connections.
fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

async fn refuse<S: AsyncWrite + Unpin>(mut socket: S) {
    let _ = socket.write_all(b"-ERR max number of clients reached\r\n").await;
    let _ = socket.close().await;
}

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Server {
    config: Config,
    hasher: FixedState,
    host: Host,
    begun: Instant,
    clients: Mutex<BTreeMap<u64, Client>>,
    unread: Unread,
    connections: AtomicU64,
    commands: AtomicUsize,
}

/// Entry of a client in the reply to `CLIENT LIST`.
#[derive(Debug)]
struct Client {
    pid: Pid,
    peer: String,
    begun: Instant,
    name: Vec<u8>,
    channels: usize,
    resp3: bool,
}

impl Client {
    /// Appends the line of this client to the reply to `CLIENT LIST`.
    fn push_line(&self, id: u64, now: Instant, text: &mut String) {
        let Self { peer, channels, .. } = self;
        let (name, age) = (String::from_utf8_lossy(&self.name), (now - self.begun).as_secs());
        let (flags, resp) = (if *channels > 0 { 'P' } else { 'N' }, if self.resp3 { 3 } else { 2 });
        let _ = writeln!(
            text,
            "id={id} addr={peer} name={name} age={age} flags={flags} db=0 sub={channels} psub=0 resp={resp}"
        );
    }
}

/// Numbers in the reply to `INFO`.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) uptime: Duration,
    pub(crate) clients: usize,
    pub(crate) connections: u64,
    pub(crate) commands: usize,
    pub(crate) processes: usize,
}

impl Server {
    pub(crate) fn new(host: &Host, config: Config) -> Self {
        let config = Config { shards: config.shards.clamp(1, usize::from(u16::MAX)), ..config };
        Self {
            hasher: FixedState::with_seed(config.seed),
            config,
            host: host.clone(),
            begun: host.now(),
            clients: Mutex::default(),
            unread: Unread::default(),
            connections: AtomicU64::new(0),
            commands: AtomicUsize::new(0),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn hasher(&self) -> FixedState {
        self.hasher.clone()
    }

    pub(crate) fn unread(&self) -> &Unread {
        &self.unread
    }

    pub(crate) fn count_commands(&self, count: usize) {
        self.commands.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            uptime: self.host.now() - self.begun,
            clients: self.with_clients(|clients| clients.len()),
            connections: self.connections.load(Ordering::Relaxed),
            commands: self.commands.load(Ordering::Relaxed),
            processes: self.host.processes_alive(),
        }
    }

    // ---- Clients

    fn with_clients<T>(&self, f: impl FnOnce(&mut BTreeMap<u64, Client>) -> T) -> T {
        f(&mut self.clients.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a client to the table. The drop of the returned value removes the client.
    pub(crate) fn register_client(self: &Arc<Self>, pid: Pid, peer: String) -> Registration {
        let id = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let begun = self.host.now();
        let client = Client { pid, peer, begun, name: Vec::new(), channels: 0, resp3: false };
        self.with_clients(|clients| clients.insert(id, client));
        Registration { server: Arc::clone(self), id }
    }

    /// Copies the state of a client from the session of the client into the table.
    pub(crate) fn update_client(&self, session: &Session) {
        self.with_clients(|clients| {
            if let Some(client) = clients.get_mut(&session.id) {
                client.name.clone_from(&session.name);
                client.channels = session.channels.len();
                client.resp3 = session.resp3;
            }
        });
    }

    /// Returns the lines of `CLIENT LIST` for some clients. The argument of `is_wanted` is true if the client has
    /// subscribed to a channel.
    pub(crate) fn list_clients(&self, is_wanted: impl Fn(bool) -> bool) -> String {
        let (now, mut text) = (self.host.now(), String::new());
        self.with_clients(|clients| {
            for (id, client) in clients.iter().filter(|(_, client)| is_wanted(client.channels > 0)) {
                client.push_line(*id, now, &mut text);
            }
        });
        text
    }

    /// Returns the lines of `CLIENT LIST` for the clients with these ids, in the order of the ids. Ignores an id that
    /// no client has.
    pub(crate) fn list_clients_by_id(&self, ids: impl IntoIterator<Item = u64>) -> String {
        let (now, mut text) = (self.host.now(), String::new());
        self.with_clients(|clients| {
            for id in ids {
                if let Some(client) = clients.get(&id) {
                    client.push_line(id, now, &mut text);
                }
            }
        });
        text
    }

    /// Disconnects a client. Returns false if there is no client with this id.
    pub(crate) fn kill_client(&self, id: u64) -> bool {
        let pid = self.with_clients(|clients| clients.get(&id).map(|client| client.pid));
        pid.is_some_and(|pid| self.host.kill(pid).is_ok())
    }
}

/// Entry of a client in the table. The drop of this value removes the client from the table.
#[derive(Debug)]
pub(crate) struct Registration {
    server: Arc<Server>,
    id: u64,
}

impl Registration {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Most clients have no entry in `unread`. If a client has no channels, this function does not lock `unread`.
        if let Some(client) = self.server.with_clients(|clients| clients.remove(&self.id))
            && client.channels > 0
        {
            self.server.unread.remove(client.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use procession::Runtime;

    use super::*;

    #[test]
    fn an_accepted_socket_finds_a_client_that_has_vanished() -> procession::Result {
        let rt = Runtime::new()?;
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let _client = TcpStream::connect(listener.local_addr()?).await?;
            let (socket, _) = Listener::accept(&listener).await?;
            assert!(socket.options().keepalive()?);
            #[cfg(target_os = "linux")]
            assert_eq!(socket.options().tcp_keepalive_time()?, KEEPALIVE);
            Ok(())
        })
    }
}
