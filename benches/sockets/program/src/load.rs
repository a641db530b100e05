//! The process of the client, which is the same for all servers. The client connects to the server, warms up the
//! server, and prints a line. After the driver has sent a line, the client does the work. Then the client prints the
//! number of operations, the elapsed time, and the median of the round trips. The times are in nanoseconds.

mod accept;
mod echo;
mod http;
mod pause;
mod stream;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(crate) use http::find_wrk;

use crate::child::{say, wait_for_line};
use crate::row::{Load, MESSAGE, ROWS};

/// Command-line argument that makes this program run as a client.
pub(crate) const FLAG: &str = "--load";

/// Bytes of a request to an echo server.
const REQUEST: [u8; MESSAGE] = *b"0123456789abcdef0123456789ABCDEFghijklmnopqrstuvwxyzGHIJKLMNOPQR";

pub(crate) fn run(row: &str, ops: &str, port: &str) {
    let row = ROWS.iter().find(|one| one.name == row).expect("a row");
    let ops = ops.parse().expect("a number of operations");
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("a port")));
    match row.load {
        Load::Echo { connections: 1 } => echo::on_one_connection(server, ops),
        Load::Echo { connections } => echo::on_many_connections(server, connections, ops),
        Load::Pause => pause::run(server, ops),
        Load::Accept => accept::run(server, ops),
        Load::Stream => stream::run(server, ops),
        Load::Http => http::run(server, ops),
    }
}

/// Informs the driver that the server is warm. Waits until the driver has read the CPU time of the server, and then
/// measures `work`. `work` returns the median of the round trips, or zero.
fn measure(ops: u64, work: impl FnOnce() -> Duration) {
    wait_for_driver();
    let begun = Instant::now();
    let median = work();
    report(ops, begun.elapsed(), median);
}

fn wait_for_driver() {
    say("ready");
    assert!(wait_for_line(), "the driver starts the work");
}

fn report(ops: u64, elapsed: Duration, median: Duration) {
    say(ops);
    say(elapsed.as_nanos());
    say(median.as_nanos());
}

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("the server listens");
    stream.set_nodelay(true).expect("it is a TCP socket");
    stream
}

/// Returns the number of operations of the warm-up.
fn warm_up(ops: u64) -> u64 {
    (ops / 10).max(1)
}
