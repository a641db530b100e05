//! The program `wrk` sends HTTP requests, on connections that stay open.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::load::{connect, report, wait_for_driver};
use crate::row::HELLO;

/// Number of connections. Each connection has one request in flight.
const CONNECTIONS: &str = "50";

/// Script that prints the number of responses, the elapsed time in µs, and the number of errors.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/wrk.lua");

/// # Errors
/// Returns an error if the program `wrk` cannot be started.
pub(crate) fn find_wrk() -> io::Result<()> {
    let version = Command::new("wrk").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let install = |error: io::Error| io::Error::new(error.kind(), format!("cannot run `wrk`: {error}; install it"));
    version.map(drop).map_err(install)
}

pub(super) fn run(server: SocketAddr, seconds: u64) {
    check_response(&mut connect(server));
    run_wrk(server, 1);
    wait_for_driver();
    let (ops, elapsed) = run_wrk(server, seconds);
    report(ops, elapsed, Duration::ZERO);
}

/// Checks a response completely, because `wrk` checks only the status and the format.
fn check_response(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").expect("the server reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the server answers");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with(&format!("\r\n\r\n{HELLO}")), "{text}");
}

/// Returns the number of responses and the elapsed time.
fn run_wrk(server: SocketAddr, seconds: u64) -> (u64, Duration) {
    let mut wrk = Command::new("wrk");
    wrk.args(["--threads", "1", "--connections", CONNECTIONS, "--script", SCRIPT]);
    wrk.args([format!("--duration={seconds}s"), format!("http://{server}/")]);
    let output = wrk.output().expect("the driver has found the program");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().find_map(|line| line.strip_prefix("result "));
    let numbers: Vec<u64> = numbers.into_iter().flat_map(str::split_whitespace).flat_map(str::parse).collect();
    match numbers[..] {
        [ops, micros, 0] if ops > 0 => (ops, Duration::from_micros(micros)),
        _ => panic!("wrk failed: {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}
