//! TCP echo server: one process for each connection.
//!
//!     cargo run --features net --example echo              a server, and a client that checks the answers
//!     cargo run --features net --example echo -- 4000      a server on local port 4000: try `nc 127.0.0.1 4000`
//!
//! Ctrl-C stops the server. The server then cancels the processes of the connections and waits until these processes
//! have exited.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::{Context, Exit, Result, Runtime, signal};

/// Longest time that the shutdown waits for the processes.
const GRACE: Duration = Duration::from_secs(5);

/// Sends back the bytes of one connection, until the peer closes its write direction or this process is cancelled.
async fn connection(ctx: Context, mut stream: TcpStream) -> Result<(), Exit> {
    let mut buf = vec![0; 8 << 10];
    loop {
        let count = ctx.run_until_cancelled(stream.read(&mut buf)).await??;
        if count == 0 {
            return Ok(());
        }
        ctx.run_until_cancelled(stream.write_all(&buf[..count])).await??;
    }
}

async fn server(ctx: Context, listener: TcpListener) -> Result<(), Exit> {
    loop {
        match ctx.run_until_cancelled(listener.accept()).await? {
            Ok((stream, _)) => {
                // An error means that the client has already disconnected.
                let _ = stream.set_nodelay(true);
                // Keepalive detects a client whose computer has vanished.
                let _ = stream.options().set_keepalive(true);
                ctx.spawn(move |ctx: Context| connection(ctx, stream));
            }
            Err(error) => {
                // For example, `accept` fails if no file descriptor is free. When a connection closes, its descriptor
                // becomes free. Unlike `eprintln!`, this line does not panic if stderr is a broken pipe.
                let _ = writeln!(io::stderr(), "cannot accept a connection: {error}");
                ctx.sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Sends lines, and checks that the server sends each line back.
async fn client(port: u16) -> Result<(), Exit> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    for number in 0..1_000 {
        let line = format!("line {number}\n");
        stream.write_all(line.as_bytes()).await?;
        let mut answer = vec![0; line.len()];
        stream.read_exact(&mut answer).await?;
        assert_eq!(answer, line.as_bytes());
    }
    Ok(())
}

fn main() -> Result {
    let port: Option<u16> = std::env::args().nth(1).map(|port| port.parse()).transpose()?;
    let rt = Runtime::new()?;
    rt.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or(0))).await?;
        let address = listener.local_addr()?;
        println!("listening on {address}");
        rt.spawn(move |ctx: Context| server(ctx, listener));
        if port.is_some() {
            signal::ctrl_c().await?;
        } else {
            rt.spawn(move |_: Context| client(address.port())).await?;
            println!("1,000 lines came back");
        }
        let report = rt.shutdown(GRACE).await;
        println!("{} processes did not end in time", report.left.len());
        Ok(())
    })
}
