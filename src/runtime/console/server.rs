//! The thread of the console server. This thread waits for all sockets at the same time, accepts clients, and gives
//! each client a turn.
//!
//! mio reports only changes of a socket. Therefore, the server treats a client as ready until a turn of the client
//! blocks.

use std::io::{self, Write};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::platform::clock::{Clock, Instant};
use crate::platform::sync::Arc;
use crate::runtime::console::client::{Client, TurnResult};
use crate::runtime::console::encoding::refusal;
use crate::runtime::console::later::Later;
use crate::runtime::console::reply::{ClientSession, Inspected, greeting};
use crate::runtime::console::request::FaultKind;
use crate::runtime::console::socket::{Listener, Stream};

/// Maximum number of clients of one listener.
pub(super) const MAX_CLIENTS: usize = 8;

/// Maximum number of clients that a listener accepts before the server serves the attached clients again. This number
/// is below `MAX_CLIENTS`. Therefore, if at most half of the clients have sent the token, a new client gets a turn before
/// the server can close this client in favor of later clients.
const ACCEPTS: usize = MAX_CLIENTS / 2;

/// Pause after a failed accept. An accept fails, for example, if no descriptor is free.
const PAUSE: Duration = Duration::from_secs(1);

/// Token of the event with which [`ServerWaker`] wakes the thread.
const WAKE: Token = Token(usize::MAX);

/// Token of the first listener. The tokens of the clients begin at 0.
const FIRST_LISTENER: usize = usize::MAX / 2;

/// Maximum number of events that one wait returns.
const EVENTS: usize = 32;

pub(super) struct Server {
    poll: Poll,
    clock: Clock,
    listeners: Vec<Accepting>,
    clients: Slab<Connection>,
    /// Number of accepted clients.
    accepted: u64,
    inspected: Inspected,
    /// Wakes the thread when a reply that comes later may be complete.
    waker: Waker,
}

/// Wakes the thread of the server.
pub(super) struct ServerWaker(mio::Waker);

impl ServerWaker {
    pub(super) fn wake_thread(&self) {
        // The call fails only if the server has ended.
        let _ = self.0.wake();
    }
}

impl Wake for ServerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_thread();
    }
}

struct Accepting {
    listener: Listener,
    /// Time of the next attempt to accept. `None` if the server tries again only after the next event of the listener.
    next: Option<Instant>,
}

struct Connection {
    /// Number of the client. The clients are numbered in the order in which they were accepted.
    number: u64,
    client: Client<Box<dyn Stream>>,
    /// Index of the listener that accepted the client.
    listener: usize,
    is_ready: bool,
    /// The reply that the client waits for.
    later: Option<Later>,
    /// The trace and the run times of the client. When the connection ends, the trace and the window of run times also
    /// end.
    session: ClientSession,
}

impl Server {
    pub(super) fn new(
        listeners: Vec<Listener>,
        inspected: Inspected,
        clock: Clock,
    ) -> io::Result<(Self, Arc<ServerWaker>)> {
        let poll = Poll::new()?;
        let handle = Arc::new(ServerWaker(mio::Waker::new(poll.registry(), WAKE)?));
        let waker = Waker::from(Arc::clone(&handle));
        let mut accepting = Vec::new();
        for (index, mut listener) in listeners.into_iter().enumerate() {
            poll.registry().register(listener.source(), Token(FIRST_LISTENER + index), Interest::READABLE)?;
            accepting.push(Accepting { listener, next: None });
        }
        Ok((Self { poll, clock, listeners: accepting, clients: Slab::new(), accepted: 0, inspected, waker }, handle))
    }

    /// Main function of the thread. Returns when `is_stopping` returns true after a wake-up.
    pub(super) fn run(mut self, is_stopping: impl Fn() -> bool) {
        let mut events = Events::with_capacity(EVENTS);
        while !is_stopping() {
            match self.poll.poll(&mut events, self.wait()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let _ = writeln!(io::stderr(), "procession: the console server ends: {error}");
                    return;
                }
                Ok(()) => {}
            }
            let now = self.clock.now();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(number) if number >= FIRST_LISTENER => {
                        self.listeners[number - FIRST_LISTENER].next = Some(now)
                    }
                    Token(number) => {
                        if let Some(connection) = self.clients.get_mut(number) {
                            connection.is_ready = true;
                        }
                    }
                }
            }
            self.accept_due(now);
            self.serve(now);
        }
    }

    /// Returns the time until the next action that needs no event, for example an action at a deadline. Returns `None`
    /// if the server waits only for events.
    fn wait(&self) -> Option<Duration> {
        if self.clients.iter().any(|(_, connection)| connection.is_ready) {
            return Some(Duration::ZERO);
        }
        let clients = self.clients.iter().map(|(_, connection)| connection);
        let deadlines = clients.clone().filter_map(|connection| connection.client.deadline());
        let traces = clients.clone().filter_map(|connection| connection.session.trace.as_ref()?.next());
        let windows = clients.clone().filter_map(|connection| connection.session.window_end());
        let replies = clients.filter_map(|connection| connection.later.as_ref()).map(|later| later.deadline);
        let next = deadlines
            .chain(replies)
            .chain(traces)
            .chain(windows)
            .chain(self.listeners.iter().filter_map(|accepting| accepting.next))
            .min()?;
        Some(next - self.clock.now())
    }

    fn accept_due(&mut self, now: Instant) {
        for index in 0..self.listeners.len() {
            if self.listeners[index].next.is_some_and(|at| at <= now) {
                self.listeners[index].next = self.accept(index, now);
            }
        }
    }

    /// Accepts the waiting clients, but at most [`ACCEPTS`] clients. If the server must try to accept again without an
    /// event, returns the time of this next attempt. Without the limit, the server would serve no client while a
    /// program connects again and again.
    fn accept(&mut self, index: usize, now: Instant) -> Option<Instant> {
        for _ in 0..ACCEPTS {
            match self.listeners[index].listener.accept() {
                Ok(stream) => self.connect(index, stream, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Some(now + PAUSE),
            }
        }
        Some(now)
    }

    /// Adds a client. If the listener has its maximum number of clients, closes the oldest client that has not sent the
    /// token. Without this rule, clients that do not know the token could take all places. If all clients are trusted,
    /// refuses the new client with an error.
    fn connect(&mut self, index: usize, mut stream: Box<dyn Stream>, now: Instant) {
        let present = self.clients.iter().filter(|(_, connection)| connection.listener == index);
        if present.clone().count() >= MAX_CLIENTS {
            let untrusted = present.filter(|(_, connection)| !connection.client.is_trusted());
            let untrusted = untrusted.map(|(key, connection)| (connection.number, key));
            let Some((_, oldest)) = untrusted.min() else {
                let text = format!("{MAX_CLIENTS} clients are attached; detach one of them");
                // The buffer of a new socket has space for this line, so the write does not block. If the client has
                // closed the connection, the error does not matter.
                let _ = stream.write(&refusal(FaultKind::TooManyClients, text));
                return;
            };
            let mut replaced = self.clients.remove(oldest);
            let _ = self.poll.registry().deregister(&mut replaced.client.stream);
        }
        let needs_token = self.listeners[index].listener.token.is_some();
        let entry = self.clients.vacant_entry();
        let interest = Interest::READABLE | Interest::WRITABLE;
        // If the client cannot be registered, the drop of the stream closes the connection.
        if self.poll.registry().register(&mut stream, Token(entry.key()), interest).is_ok() {
            let client = Client::new(stream, greeting(needs_token), !needs_token, now);
            self.accepted += 1;
            entry.insert(Connection {
                number: self.accepted,
                client,
                listener: index,
                is_ready: true,
                later: None,
                session: ClientSession::default(),
            });
        }
    }

    /// Gives each ready client a turn, and drops the clients that have ended or whose deadline has passed.
    fn serve(&mut self, now: Instant) {
        let Self { poll, listeners, clients, inspected, waker, .. } = self;
        let mut cx = Context::from_waker(waker);
        clients.retain(|_, connection| {
            let Connection { client, listener, is_ready, later, session, number: _ } = connection;
            session.close_window(now);
            if let Some(trace) = &mut session.trace {
                trace.collect(now);
            }
            if let Some(reply) = later.as_mut().and_then(|later| later.poll(&mut cx, now)) {
                (*later, *is_ready) = (None, true);
                client.complete(reply);
            }
            if *is_ready {
                let token = listeners[*listener].listener.token.as_deref();
                let answer = |line: &[u8], is_trusted: bool| {
                    let (answer, next) = inspected.answer(line, token.filter(|_| !is_trusted), session);
                    *later = next;
                    answer
                };
                let turn = client.turn(now, answer);
                *is_ready = turn == TurnResult::Again;
                if turn == TurnResult::Ended {
                    let _ = poll.registry().deregister(&mut client.stream);
                    return false;
                }
            }
            if client.deadline().is_some_and(|deadline| deadline <= now) {
                let _ = poll.registry().deregister(&mut client.stream);
                return false;
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::Runtime;

    /// Creates a server with one TCP listener. Returns the address of the listener.
    fn server(rt: &Runtime) -> (Server, SocketAddr) {
        let listener = Listener::tcp(([127, 0, 0, 1], 0).into(), "token".to_owned()).unwrap();
        let address = listener.address().unwrap();
        let inspected = Inspected::new(&rt.host, &rt.threads, false);
        (Server::new(vec![listener], inspected, rt.host.shared().clock.clone()).unwrap().0, address)
    }

    #[test]
    fn a_listener_accepts_a_limited_number_of_clients_in_one_round() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (mut server, address) = server(&rt);
        let clients: Vec<_> = (0..2 * ACCEPTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let now = server.clock.now();
        assert_eq!(server.accept(0, now), Some(now));
        assert_eq!(server.clients.len(), ACCEPTS);
        // The second round accepts the remaining clients, and the third round finds no client.
        let _ = server.accept(0, now);
        assert_eq!(server.accept(0, now), None);
        drop(clients);
    }

    /// 9.6a: while an attached client sends no request, the server waits for an event without a time limit. Therefore
    /// an idle console causes no periodic work.
    #[test]
    fn an_idle_client_sets_no_timer() {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (mut server, address) = server(&rt);
        assert_eq!(server.wait(), None);
        let mut client = TcpStream::connect(address).unwrap();
        client.set_nonblocking(true).unwrap();
        let now = server.clock.now();
        while server.clients.is_empty() {
            let _ = server.accept(0, now);
        }
        let requests = [r#"{"request":"authenticate","token":"token"}"#, r#"{"request":"overview"}"#];
        // A client must send its token within a time limit.
        assert!(server.wait().is_some());
        client.write_all(requests.join("\n").as_bytes()).unwrap();
        client.write_all(b"\n").unwrap();
        // The client receives the greeting and two replies.
        let (mut lines, mut buffer) = (0, [0; 4_096]);
        while lines < 3 {
            server.clients.iter_mut().for_each(|(_, connection)| connection.is_ready = true);
            server.serve(now);
            if let Ok(read) = client.read(&mut buffer) {
                assert_ne!(read, 0, "the server has closed the connection");
                lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count();
            }
        }
        while server.clients.iter().any(|(_, connection)| connection.is_ready) {
            server.serve(now);
        }
        assert_eq!((server.wait(), server.clients.len()), (None, 1));
    }
}
