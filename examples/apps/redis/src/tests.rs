//! Tests of the whole server. The clients use pipes in memory, in a simulation. No test waits for real time, and the
//! processes run in a different order for each seed.

mod clients;
mod expiry;
mod inputs;
mod pipe;
mod pubsub;
pub(crate) mod random;
mod replies;
mod shards;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::{Host, Simulation};

use crate::server::{Config, Listener, server};
use pipe::{Pipe, pipe};

/// Clients that the server has not accepted yet.
#[derive(Clone, Default)]
struct Backlog(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: VecDeque<io::Result<Pipe>>,
    waker: Option<Waker>,
}

impl Backlog {
    fn push(&self, accepted: io::Result<Pipe>) {
        let mut state = self.0.lock().expect("no panic");
        state.waiting.push_back(accepted);
        state.waker.take().into_iter().for_each(Waker::wake);
    }
}

impl Listener for Backlog {
    type Socket = Pipe;

    async fn accept(&self) -> io::Result<(Pipe, String)> {
        let accepted = std::future::poll_fn(|cx| {
            let mut state = self.0.lock().expect("no panic");
            match state.waiting.pop_front() {
                Some(accepted) => Poll::Ready(accepted),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        });
        Ok((accepted.await?, "test:1".into()))
    }
}

/// A running server in a simulation.
struct World {
    host: Host,
    backlog: Backlog,
}

impl World {
    fn connect(&self) -> Client {
        self.connect_through(64 << 10)
    }

    /// Connects through a pipe that holds this number of bytes in each direction.
    fn connect_through(&self, capacity: usize) -> Client {
        let (ours, theirs) = pipe(capacity);
        self.backlog.push(Ok(theirs));
        Client { pipe: ours }
    }

    /// Waits for a duration of virtual time.
    async fn sleep(&self, ms: u64) {
        self.host.sleep(Duration::from_millis(ms)).await;
    }

    /// Waits until `count` clients are connected.
    async fn wait_for_clients(&self, count: usize) {
        let mut client = self.connect();
        loop {
            let info = client.info().await;
            if info.contains(&format!("connected_clients:{}\r\n", count + 1)) {
                return;
            }
            self.sleep(1).await;
        }
    }
}

/// Runs a scenario with a server, under several seeds. After the scenario, a shutdown must end all processes of the
/// server in time.
fn simulate(config: &Config, scenario: impl AsyncFn(&World)) {
    for seed in 0..8 {
        let mut simulation = Simulation::new(seed);
        let world = World { host: simulation.host().clone(), backlog: Backlog::default() };
        let server = simulation.spawn_process(server(&world.host, config.clone(), world.backlog.clone()));
        simulation.run(async {
            server.started().await.expect("the server starts");
            scenario(&world).await;
        });
        let report = simulation.shutdown(Duration::from_secs(60));
        assert!(report.left.is_empty(), "seed {seed}: {report:?}");
    }
}

fn config(shards: usize) -> Config {
    Config { shards, seed: 1, ..Config::default() }
}

/// A client that checks the bytes that the client receives.
struct Client {
    pipe: Pipe,
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.pipe.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Receives exactly these bytes.
    async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let mut rest = expected.as_ref();
        let mut piece = vec![0; 64 << 10];
        while !rest.is_empty() {
            let most = piece.len().min(rest.len());
            let count = self.pipe.read(&mut piece[..most]).await.expect("the server has not vanished");
            let (expected, after) = rest.split_at(count.max(1));
            assert_eq!(String::from_utf8_lossy(&piece[..count]), String::from_utf8_lossy(expected));
            rest = after;
        }
    }

    /// Receives one of two texts. The two texts must differ in their first byte.
    async fn expect_either(&mut self, one: &str, other: &str) {
        let mut first = [0];
        self.pipe.read_exact(&mut first).await.expect("the server replies");
        let expected = if one.starts_with(char::from(first[0])) { one } else { other };
        self.expect(&expected[1..]).await;
    }

    /// Sends an inline command, and checks the reply.
    async fn ask(&mut self, command: &str, reply: &str) {
        self.send(format!("{command}\r\n")).await;
        let context = format!("after {command:?}: ");
        let expected = reply.as_bytes();
        let mut received = vec![0; expected.len()];
        self.pipe.read_exact(&mut received).await.expect("the server replies");
        assert_eq!(String::from_utf8_lossy(&received), reply, "{context}");
    }

    /// Checks that the server closes the connection.
    async fn expect_end(&mut self) {
        let count = self.pipe.read(&mut [0]).await.expect("the server has closed in order");
        assert_eq!(count, 0, "the server has sent a further byte");
    }

    /// Receives a bulk string and returns this string.
    async fn bulk(&mut self) -> String {
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n") {
            let mut byte = [0];
            self.pipe.read_exact(&mut byte).await.expect("the server replies");
            header.push(byte[0]);
        }
        let header = String::from_utf8_lossy(&header[1..header.len() - 2]).into_owned();
        let mut text = vec![0; header.parse::<usize>().expect("a length") + 2];
        self.pipe.read_exact(&mut text).await.expect("the server replies");
        text.truncate(text.len() - 2);
        String::from_utf8(text).expect("a text")
    }

    async fn info(&mut self) -> String {
        self.send("INFO\r\n").await;
        self.bulk().await
    }
}

/// Encodes a command as an array of its words.
fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}
