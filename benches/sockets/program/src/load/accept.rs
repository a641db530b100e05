//! Opens connections and reads each connection to the end of the stream. At most `OPEN` connections are open at a time.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;

use crate::load::{measure, warm_up};
use crate::row::MESSAGE;

/// Maximum number of connections that are open at a time.
const OPEN: usize = 32;

pub(super) fn run(server: SocketAddr, ops: u64) {
    let mut poll = Poll::new().expect("a descriptor is free");
    connect_all(&mut poll, server, warm_up(ops));
    measure(ops, || {
        connect_all(&mut poll, server, ops);
        Duration::ZERO
    });
}

fn connect_all(poll: &mut Poll, server: SocketAddr, ops: u64) {
    let mut events = Events::with_capacity(OPEN);
    let (mut begun, mut ended) = (0, 0);
    let mut open: Vec<_> = (0..OPEN).map(|_| None).collect();
    let mut next = |poll: &Poll, index: usize| {
        (begun < ops).then(|| {
            begun += 1;
            connect(poll, server, Token(index))
        })
    };
    for (index, slot) in open.iter_mut().enumerate() {
        *slot = next(poll, index);
    }
    while ended < ops {
        poll.poll(&mut events, None).expect("no signal arrives");
        for event in &events {
            let slot = &mut open[event.token().0];
            // The event may belong to the previous connection in this slot. In this case, the new connection is not
            // ready, and `has_ended` returns false.
            if slot.as_mut().is_some_and(Connection::has_ended) {
                ended += 1;
                // The old connection is closed before the new connection is opened, so that no further event of the old
                // connection arrives.
                *slot = None;
                *slot = next(poll, event.token().0);
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    received: usize,
}

fn connect(poll: &Poll, server: SocketAddr, token: Token) -> Connection {
    let mut stream = TcpStream::connect(server).expect("a port is free");
    // The close resets the connection, so the system does not reserve the port of the connection for a minute.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("it is a TCP socket");
    poll.registry().register(&mut stream, token, Interest::READABLE).expect("it is a new socket");
    Connection { stream, received: 0 }
}

impl Connection {
    /// Reads the bytes that have arrived. Returns true if the server has closed the connection.
    fn has_ended(&mut self) -> bool {
        let mut buf = [0; 2 * MESSAGE];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => {
                    assert_eq!(self.received, MESSAGE, "the server sends the reply");
                    return true;
                }
                Ok(count) => self.received += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
