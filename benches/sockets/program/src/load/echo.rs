//! Echo requests of 64 bytes. Each connection has at most one request in flight.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::load::{REQUEST, connect, measure, warm_up};
use crate::row::MESSAGE;

/// Sends requests on one connection. The client waits in `read` and needs no poller.
pub(super) fn on_one_connection(server: SocketAddr, ops: u64) {
    let mut stream = connect(server);
    (0..warm_up(ops)).for_each(|_| round_trip(&mut stream));
    measure(ops, || {
        (0..ops).for_each(|_| round_trip(&mut stream));
        Duration::ZERO
    });
}

pub(super) fn round_trip(stream: &mut TcpStream) {
    let mut answer = [0; MESSAGE];
    stream.write_all(&REQUEST).expect("the server reads");
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(answer, REQUEST, "the server sends another message back");
}

pub(super) fn on_many_connections(server: SocketAddr, connections: usize, ops: u64) {
    let mut client = Client::new(server, connections);
    client.run(warm_up(ops));
    measure(ops, || {
        client.run(ops);
        Duration::ZERO
    });
}

/// Client whose single thread waits for all connections.
struct Client {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
}

struct Connection {
    stream: mio::net::TcpStream,
    /// Number of received bytes of the answer.
    received: usize,
    answer: [u8; MESSAGE],
}

impl Client {
    fn new(server: SocketAddr, connections: usize) -> Self {
        let poll = Poll::new().expect("a descriptor is free");
        let connections = (0..connections).map(|index| Connection::open(server, &poll, Token(index))).collect();
        Self { poll, events: Events::with_capacity(1024), connections }
    }

    /// Sends `ops` requests, and waits for all answers.
    fn run(&mut self, ops: u64) {
        let (mut sent, mut answered) = (0, 0);
        for connection in &mut self.connections {
            if sent < ops {
                sent += 1;
                connection.send();
            }
        }
        while answered < sent {
            self.poll.poll(&mut self.events, None).expect("no signal arrives");
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                if connection.receives() {
                    answered += 1;
                    if sent < ops {
                        sent += 1;
                        connection.send();
                    }
                }
            }
        }
    }
}

impl Connection {
    fn open(server: SocketAddr, poll: &Poll, token: Token) -> Self {
        let mut stream = connect(server);
        // When the answer arrives, the server has accepted the connection. Without this round trip, the accept queue of
        // the listener could overflow.
        round_trip(&mut stream);
        stream.set_nonblocking(true).expect("it is a socket");
        let mut stream = mio::net::TcpStream::from_std(stream);
        poll.registry().register(&mut stream, token, Interest::READABLE).expect("it is a new socket");
        Self { stream, received: 0, answer: [0; MESSAGE] }
    }

    fn send(&mut self) {
        // The connection has no other request in flight, so the buffer of the socket is empty.
        let count = self.stream.write(&REQUEST).expect("the buffer of the socket is empty");
        assert_eq!(count, MESSAGE, "the buffer of the socket is empty");
    }

    /// Reads the available bytes of the answer. Returns true if the answer is complete.
    fn receives(&mut self) -> bool {
        loop {
            match self.stream.read(&mut self.answer[self.received..]) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(count) => self.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
            if self.received == MESSAGE {
                assert_eq!(self.answer, REQUEST, "the server sends another message back");
                self.received = 0;
                return true;
            }
        }
    }
}
