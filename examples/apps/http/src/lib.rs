//! An HTTP server with hyper 1. The server needs no runtime except procession, and each connection is a process.
//!
//! - The process [`server`] accepts connections. When the maximum number of connections is open, the process waits
//!   until a connection ends.
//! - The server closes a connection if the client does not send a complete request head in time. This time limit also
//!   applies between two requests.
//! - If a client sends its request body too slowly, the server responds with status 408.
//! - The server closes a connection if the client does not read the response.
//! - The server limits the sizes of the request head and of the request body.
//! - When the process [`server`] is cancelled, this process drops the listener. When the process of a connection is
//!   cancelled, the process of the connection answers the request in flight and then closes the connection. If the
//!   answer takes too long, the process closes the connection without an answer.
//! - The process [`VISITS`] answers calls from the connections, so the process `VISITS` exits after the process
//!   [`server`].

mod connection;
mod pages;
mod timer;

use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use procession::net::TcpListener;
use procession::{Context, Exit, JoinSet, Pid};

use crate::pages::visits;
pub use crate::pages::{VISITS, Visit};

/// Limits of the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Maximum number of open connections. Further connections wait in the queue of the system. The value 0 has the
    /// same effect as the value 1. Default: 1,000.
    pub max_connections: usize,
    /// Longest time until a request head is complete. The time begins at the start of the connection or at the end of
    /// the previous response. A value above one day has the same effect as one day. Default: 30 s.
    pub idle: Duration,
    /// Longest time until the body of a request is complete. Default: 30 s.
    pub body_time: Duration,
    /// Longest time during which the peer reads no byte of a response. Default: 30 s.
    pub write_stall: Duration,
    /// Longest time for which a connection continues after the process of the connection was cancelled. In this time,
    /// the process answers the request in flight. This time should be shorter than the grace period of the shutdown.
    /// Default: 8 s.
    pub drain: Duration,
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
            drain: Duration::from_secs(8),
            head_size: 8 << 10,
            headers: 64,
            body_size: 1 << 20,
        }
    }
}

/// Accepts connections until this process is cancelled. Then waits until all connections have ended. This function also
/// starts the process [`VISITS`].
///
/// # Errors
/// Returns [`Exit::Cancelled`] after a cancellation. Returns another error if a process already has the name
/// [`VISITS`].
pub async fn server(ctx: Context, listener: TcpListener, config: Config) -> Result<(), Exit> {
    let own = ctx.pid();
    ctx.process().name(VISITS).spawn(move |ctx: Context<Visit>| visits(ctx, own))?;
    let mut connections = ctx.join_set();
    // A cancellation drops the future of `accept` together with the listener. After this drop, the system refuses
    // further clients.
    let stopped = ctx.run_until_cancelled(accept(&ctx, listener, config, &mut connections)).await;
    // This loop cancels no connection. The shutdown of the runtime cancels the connections.
    while let Some(joined) = connections.join_next_with_pid().await {
        report(&joined);
    }
    stopped
}

async fn accept(ctx: &Context, listener: TcpListener, config: Config, connections: &mut JoinSet<()>) {
    loop {
        // Removes the connections that have ended. While clients wait, the `select` below never polls the set.
        while let Some(Some(joined)) = connections.join_next_with_pid().now_or_never() {
            report(&joined);
        }
        // `join_next` does not wait if the set is empty. So without `max`, the limit 0 would make this loop endless.
        while connections.len() >= config.max_connections.max(1) {
            connections.join_next_with_pid().await.iter().for_each(report);
        }
        let accepted = match connections.is_empty() {
            true => listener.accept().await,
            false => match select(pin!(listener.accept()), pin!(connections.join_next_with_pid())).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right((joined, _)) => {
                    joined.iter().for_each(report);
                    continue;
                }
            },
        };
        match accepted {
            Ok((stream, _)) => {
                let config = config.clone();
                connections.spawn(move |ctx: Context| connection::connection(ctx, stream, config));
            }
            Err(error) => {
                // For example, `accept` fails if no file descriptor is free. When a connection closes, its descriptor
                // becomes free.
                print_error(&format!("cannot accept a connection: {error}"));
                ctx.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Prints the failure of a connection, for example the panic of a handler. The join set receives the exit of each
/// connection, so the runtime itself does not report the failure.
fn report(joined: &(Pid, Result<(), Exit>)) {
    if let Some(text) = failure(joined) {
        print_error(&text);
    }
}

fn failure((pid, joined): &(Pid, Result<(), Exit>)) -> Option<String> {
    match joined {
        Err(exit @ (Exit::Failed(_) | Exit::Panicked(_))) => Some(format!("the connection {pid} has failed: {exit}")),
        _ => None,
    }
}

/// Prints a line on the standard error. Unlike `eprintln!`, this function does not panic if the reader of the standard
/// error has exited.
fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use procession::Runtime;

    use super::*;

    /// The server handles the end of a connection even if no further client connects.
    #[test]
    fn the_end_of_a_connection_is_handled_at_once() -> procession::Result {
        let rt = Runtime::builder().workers(0).build()?;
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let server = rt.spawn(async |ctx: Context| {
                let mut connections = ctx.join_set();
                connections.spawn(async |ctx: Context| ctx.yield_now().await);
                let accepted = accept(&ctx, listener, Config::default(), &mut connections);
                let _ = ctx.run_until_cancelled(accepted).await;
                Ok::<_, Exit>(connections.len())
            });
            server.started().await?;
            let exited = rt.spawn(async |ctx: Context| {
                // After the end of the connection, only this process and the server are alive.
                while ctx.host().processes_alive() > 2 {
                    ctx.yield_now().await;
                }
                // The server runs between two turns of this process, because the runtime has no workers.
                for _ in 0..3 {
                    ctx.yield_now().await;
                }
            });
            exited.await?;
            rt.cancel(server.pid(), "test", Duration::from_secs(60))?;
            assert_eq!(server.await?, 0);
            Ok(())
        })
    }

    #[test]
    fn only_the_failure_of_a_connection_is_reported() -> procession::Result {
        let rt = Runtime::new()?;
        let mut set = rt.join_set();
        set.spawn(async |ctx: Context| assert!(ctx.is_cancelled(), "a bug"));
        let joined = rt.block_on(set.join_next_with_pid()).ok_or("an exit")?;
        let text = failure(&joined).ok_or("a report")?;
        assert!(text.contains(&joined.0.to_string()) && text.contains("a bug"), "{text}");
        for exit in [Ok(()), Err(Exit::Killed), Err(Exit::Cancelled("test".into()))] {
            assert_eq!(failure(&(joined.0, exit)), None);
        }
        Ok(())
    }
}
