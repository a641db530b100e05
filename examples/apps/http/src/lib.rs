//! An HTTP server with hyper 1. The server needs no runtime except procession, and each connection is a process.
//!
//! - The process [`server`] accepts connections. When the maximum number of connections is open, the process waits
//!   until a connection ends.
//! - The server closes a connection if the client does not send a complete request head in time. This time limit also
//!   applies between two requests.
//! - If a client sends its request body too slowly, the server responds with status 408.
//! - The server closes a connection if the client does not read the response.
//! - The server limits the sizes of the request head and of the request body.
//! - When the process [`server`] is cancelled, it drops the listener. When the process of a connection is cancelled, it
//!   answers the request in flight and then closes the connection.

mod connection;
mod pages;
mod timer;

use std::time::Duration;

use futures::FutureExt;
use procession::net::TcpListener;
use procession::{Context, Exit, JoinSet};

pub use crate::pages::{VISITS, Visit, visits};

/// Limits of the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Maximum number of open connections. Further connections wait in the queue of the system. Default: 1,000.
    pub max_connections: usize,
    /// Longest time until a request head is complete. The time begins at the start of the connection or at the end of
    /// the previous response. Default: 30 s.
    pub idle: Duration,
    /// Longest time until the body of a request is complete. Default: 30 s.
    pub body_time: Duration,
    /// Longest time during which the peer reads no byte of a response. Default: 30 s.
    pub write_stall: Duration,
    /// Maximum number of bytes of a request head. Default: 8 KiB.
    pub head_size: usize,
    /// Maximum number of header fields of a request. Default: 64.
    pub headers: usize,
    /// Maximum number of bytes of a request body. Default: 1 MiB.
    pub body_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        let time = Duration::from_secs(30);
        Self {
            max_connections: 1_000,
            idle: time,
            body_time: time,
            write_stall: time,
            head_size: 8 << 10,
            headers: 64,
            body_size: 1 << 20,
        }
    }
}

/// Accepts connections until this process is cancelled. Then waits until all connections have ended.
///
/// # Errors
/// [`Exit::Cancelled`] after a cancellation.
pub async fn server(ctx: Context, listener: TcpListener, config: Config) -> Result<(), Exit> {
    let mut connections = ctx.join_set();
    // A cancellation drops the future of `accept` together with the listener. After this drop, the system refuses
    // further clients.
    let stopped = ctx.run_until_cancelled(accept(&ctx, listener, config, &mut connections)).await;
    // `join_all` cancels no connection. The shutdown of the runtime cancels the connections.
    connections.join_all().await;
    stopped
}

async fn accept(ctx: &Context, listener: TcpListener, config: Config, connections: &mut JoinSet<()>) {
    loop {
        while connections.len() >= config.max_connections {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let config = config.clone();
                connections.spawn(move |ctx: Context| connection::connection(ctx, stream, config));
            }
            Err(error) => {
                // For example, `accept` fails if no file descriptor is free. When a connection closes, its descriptor
                // becomes free.
                eprintln!("cannot accept a connection: {error}");
                ctx.sleep(Duration::from_millis(100)).await;
            }
        }
        // Removes the connections that have ended. If a handler has panicked, the runtime reports the panic, so this
        // loop ignores the error.
        while let Some(Some(_)) = connections.join_next().now_or_never() {}
    }
}
