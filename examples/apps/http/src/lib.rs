//! An HTTP server with hyper 1, without another runtime. Each connection is a process.
//!
//! - The process [`server`] accepts connections. At the limit of connections it waits until one of them ends.
//! - A connection that sends no complete request head in time is closed, also between two requests. A connection that
//!   sends its body too slowly gets status 408. A connection that does not read its response is closed.
//! - The sizes of the request head and of the body are limited.
//! - At a cancellation, [`server`] drops the listener. Each connection answers its request in flight and closes.

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
    /// Maximum number of open connections. The system queues further connections. Default: 1,000.
    pub max_connections: usize,
    /// Longest time until a request head is complete, since the start of the connection or the previous response.
    /// Default: 30 s.
    pub idle: Duration,
    /// Longest time until the body of a request is complete. Default: 30 s.
    pub body_time: Duration,
    /// Longest time in which the peer reads no byte of a response. Default: 30 s.
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

/// Accepts connections until this process is cancelled. Then waits for the connections.
///
/// # Errors
/// [`Exit::Cancelled`] after a cancellation.
pub async fn server(ctx: Context, listener: TcpListener, config: Config) -> Result<(), Exit> {
    let mut connections = ctx.join_set();
    // A cancellation drops this future, and the listener with it. Further clients are then refused.
    let stopped = ctx.run_until_cancelled(accept(&ctx, listener, config, &mut connections)).await;
    // The shutdown cancels the connections, too.
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
                // For example, no file descriptor is free. A connection that closes frees one.
                eprintln!("cannot accept a connection: {error}");
                ctx.sleep(Duration::from_millis(100)).await;
            }
        }
        // Removes the connections that have ended. An error means that a handler has panicked: the runtime reports it.
        while let Some(Some(_)) = connections.join_next().now_or_never() {}
    }
}
