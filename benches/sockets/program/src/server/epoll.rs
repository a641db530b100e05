//! The server without a runtime: one thread waits for all connections. The CPU time of this server is the cost of the
//! system calls. All servers have this cost.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::row::Service;
use crate::server::{ECHO_BUFFER, REPLY, SINK_BUFFER, answer_driver};

/// Token of the listener. The token of a connection is the index of the connection.
const LISTENER: Token = Token(usize::MAX);

struct Server {
    service: Service,
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buf: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    total: u64,
}

impl Server {
    fn serve(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.poll.poll(&mut events, None)?;
            for event in &events {
                if event.token() == LISTENER {
                    self.accept()?;
                } else if let Some(connection) = &mut self.connections[event.token().0]
                    && !connection.goes_on(self.service, event.is_read_closed(), &mut self.buf)?
                {
                    self.connections[event.token().0] = None;
                    self.free.push(event.token().0);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            if self.service == Service::Reply {
                stream.write_all(&REPLY)?;
                continue;
            }
            let index = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            self.connections[index] = Some(Connection { stream, total: 0 });
        }
    }
}

impl Connection {
    /// Reads the bytes that have arrived. Returns false at the end of the stream. If `is_closed` is true, the end of
    /// the stream has already arrived, and no further event announces this end.
    fn goes_on(&mut self, service: Service, is_closed: bool, buf: &mut [u8]) -> io::Result<bool> {
        loop {
            let count = match self.stream.read(buf) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(_) => return Ok(false),
            };
            self.total += count as u64;
            match service {
                Service::Echo if count > 0 => self.stream.write_all(&buf[..count])?,
                Service::Sink if count == 0 => self.stream.write_all(&self.total.to_le_bytes())?,
                _ => {}
            }
            if count == 0 {
                return Ok(false);
            }
            // If a read does not fill the buffer, the next byte causes an event.
            if count < buf.len() && !is_closed {
                return Ok(true);
            }
        }
    }
}

pub(super) fn run(service: Service) {
    let poll = Poll::new().expect("a descriptor is free");
    let mut listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port is free");
    let port = listener.local_addr().expect("the listener is bound").port();
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).expect("it is a new socket");
    let buf = vec![0; if service == Service::Sink { SINK_BUFFER } else { ECHO_BUFFER }];
    let server = Server { service, poll, listener, connections: Vec::new(), free: Vec::new(), buf };
    std::thread::spawn(|| server.serve().expect("no system call fails"));
    answer_driver(port);
}
