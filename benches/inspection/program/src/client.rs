use std::io::{BufRead, BufReader, ErrorKind, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Token of the console's TCP socket.
pub(crate) const TOKEN: &str = "the cost of inspection";

/// Attaches a console. Returns when the server has accepted the token.
pub(crate) fn attach(address: SocketAddr) -> Result<Client> {
    let stream = BufReader::new(TcpStream::connect(address)?);
    let mut client = Client { stream, line: String::new() };
    client.stream.read_line(&mut client.line)?;
    client.ask(&format!(r#"{{"request": "authenticate", "token": "{TOKEN}"}}"#))?;
    Ok(client)
}

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Client {
    /// Sends a request and reads its reply.
    fn ask(&mut self, request: &str) -> Result<()> {
        self.line.clear();
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.stream.get_mut().write_all(b"\n")?;
        if self.stream.read_line(&mut self.line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        assert!(self.line.contains(r#""ok""#), "the request {request} failed: {}", self.line);
        Ok(())
    }

    /// Sends the request in equal intervals, on a new thread, until the server closes the connection. The thread returns
    /// the number of replies.
    pub(crate) fn repeat(mut self, request: &'static str, interval: Duration) -> JoinHandle<u64> {
        let request = format!(r#"{{"request": "{request}"}}"#);
        std::thread::spawn(move || {
            let (mut count, mut at) = (0, Instant::now());
            while self.ask(&request).is_ok() {
                count += 1;
                at += interval;
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
            }
            count
        })
    }
}
