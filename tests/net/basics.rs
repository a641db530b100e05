//! TCP echo servers with different numbers of workers.

use std::io::{Result, Write};
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::{Context, Exit, Runtime};

use crate::{pair, round_trip, within};

async fn echo(stream: TcpStream) -> std::result::Result<(), Exit> {
    futures::io::copy(&stream, &mut &stream).await?;
    Ok(())
}

async fn serve(ctx: Context, listener: TcpListener) -> std::result::Result<(), Exit> {
    loop {
        let (stream, _) = listener.accept().await?;
        ctx.spawn(move |_: Context| echo(stream));
    }
}

fn round_trips(rt: &Runtime, clients: usize) -> Result<()> {
    rt.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        let handles: Vec<_> = (0..clients)
            .map(|n| {
                rt.spawn(async move |_: Context| -> std::result::Result<(), Exit> {
                    let mut stream = TcpStream::connect(address).await?;
                    for round in 0..100_u32 {
                        let sent = [n as u8, round as u8, 3, 4];
                        stream.write_all(&sent).await?;
                        let mut read = [0; 4];
                        stream.read_exact(&mut read).await?;
                        assert_eq!(read, sent);
                    }
                    Ok(())
                })
            })
            .collect();
        for handle in handles {
            handle.await.map_err(std::io::Error::other)?;
        }
        Ok(())
    })
}

/// 12.2a: on workers, each of many TCP clients gets back the bytes that the client sends.
#[test]
fn many_connections_echo_on_workers() {
    let rt = Runtime::builder().workers(2).build().unwrap();
    round_trips(&rt, 50).unwrap();
}

/// 12.4a: in a runtime without workers, sockets work on a thread inside `block_on`.
#[test]
fn connections_echo_in_a_runtime_without_workers() {
    let rt = Runtime::builder().workers(0).build().unwrap();
    round_trips(&rt, 10).unwrap();
}

#[test]
fn a_connection_echoes_with_one_worker() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    round_trips(&rt, 1).unwrap();
    std::io::stdout().flush().unwrap();
}

/// 12.5a: a process reads a file on the blocking pool. While the closure of the pool is blocked, the only worker serves
/// a connection.
#[test]
fn a_file_is_read_on_the_blocking_pool() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let (served, is_served) = std::sync::mpsc::channel();
        let reads = rt.spawn(async move |ctx: Context| -> std::result::Result<_, Exit> {
            let read = ctx.host().spawn_blocking(move || {
                is_served.recv().expect("a connection was served");
                std::fs::read(file!())
            });
            Ok(read.await??)
        });
        let body = rt.spawn(async move |ctx: Context| -> std::result::Result<(), Exit> {
            let (one, other) = pair().await?;
            ctx.spawn(move |_: Context| echo(other));
            for trip in 0..10 {
                round_trip(&one, &[trip]).await?;
            }
            served.send(()).expect("the closure waits");
            Ok(())
        });
        futures::executor::block_on(body).unwrap();
        assert!(futures::executor::block_on(reads).unwrap().starts_with(b"//! TCP echo servers"));
    });
}
