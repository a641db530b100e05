use std::io::{BufRead, BufReader, ErrorKind, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Token of the console's TCP socket.
pub(crate) const TOKEN: &str = "the cost of inspection";

/// Attaches a console. Returns when the server has accepted the token.
pub(crate) fn attach(address: SocketAddr) -> Result<Client> {
    let stream = TcpStream::connect(address)?;
    // Without the option `TCP_NODELAY`, the system might delay a request until the server has acknowledged the previous
    // bytes.
    stream.set_nodelay(true)?;
    let mut client = Client { stream: BufReader::new(stream), line: String::new() };
    client.stream.read_line(&mut client.line)?;
    client.ask(&request("authenticate", &format!(r#", "token": "{TOKEN}""#)))?;
    Ok(client)
}

fn request(name: &str, fields: &str) -> String {
    format!("{{\"request\": \"{name}\"{fields}}}\n")
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
        if self.stream.read_line(&mut self.line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        assert!(self.line.contains(r#""ok""#), "the request {request} failed: {}", self.line);
        Ok(())
    }

    /// Sends the request once. Then starts a thread that repeats the request, at most once per interval, until the
    /// client is stopped.
    pub(crate) fn repeat(mut self, name: &str, fields: &str, interval: Duration) -> Repeated {
        let request = request(name, fields);
        self.ask(&request).expect("the console replies");
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let thread = std::thread::spawn(move || {
            let (mut count, begin) = (0, Instant::now());
            let mut at = begin;
            while !stopped.load(Ordering::Relaxed) {
                at = Instant::now().max(at + interval);
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                self.ask(&request).expect("the console replies");
                count += 1;
            }
            f64::from(count) / begin.elapsed().as_secs_f64()
        });
        Repeated { stop, thread }
    }
}

/// Client that repeats a request.
pub(crate) struct Repeated {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Repeated {
    /// Stops the client. Returns the number of requests per second.
    pub(crate) fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client does not panic")
    }
}
