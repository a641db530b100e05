//! Many sockets: many listeners, a shutdown with many connections, and many idle connections.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::*;

use crate::subprocess::{again, role};
use crate::{on_two, pair, patience, round_trip, serve, with, within};

/// 12.6e: a thousand listeners accept connections. Each listener has its own process.
#[test]
fn a_thousand_listeners_work() {
    raise_limit();
    on_two(async |rt| {
        let mut addresses = Vec::new();
        for _ in 0..1_000 {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?);
            rt.spawn(move |ctx: Context| serve(ctx, listener));
        }
        for address in addresses.iter().chain(addresses.iter().rev()) {
            round_trip(&TcpStream::connect(*address).await?, b"x").await?;
        }
        Ok(())
    });
}

/// 12.6d: a shutdown with 1,000 open connections returns, and all connections are closed. In the first run, each
/// process exits when the process is cancelled, so the shutdown kills no process. In the second run, the processes
/// ignore the cancellation, and the shutdown kills the processes at the deadline of the shutdown. In the second run,
/// one additional process sleeps until a time after the deadline. The shutdown kills this process too, so the sleep
/// never ends.
#[test]
fn a_shutdown_closes_a_thousand_connections() {
    raise_limit();
    // The sleep and the deadline use timers of the same runtime. So if the machine is slow, both timers fire late.
    let late = Duration::from_secs(10) * patience();
    for (obeys, grace) in [(true, Duration::from_secs(60) * patience()), (false, Duration::from_millis(100))] {
        within(120, move || {
            let rt = with(2);
            let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let cancelled = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&cancelled);
            rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                loop {
                    let (mut stream, _) = ctx.run_until_cancelled(listener.accept()).await??;
                    let count = Arc::clone(&count);
                    ctx.spawn(async move |ctx: Context| -> Result<(), Exit> {
                        stream.write_all(b"!").await?;
                        let mut buf = [0; 1];
                        if obeys {
                            let read = ctx.run_until_cancelled(stream.read(&mut buf)).await;
                            count.fetch_add(usize::from(read.is_err()), SeqCst);
                            read??;
                        } else {
                            stream.read_exact(&mut buf).await?;
                        }
                        Ok(())
                    });
                }
            });
            let mut peers = Vec::new();
            for _ in 0..1_000 {
                let mut peer = std::net::TcpStream::connect(address).unwrap();
                // After this read, the process of the connection has started.
                peer.read_exact(&mut [0; 1]).unwrap();
                peers.push(peer);
            }
            let has_slept = Arc::new(AtomicBool::new(false));
            let sets = Arc::clone(&has_slept);
            if !obeys {
                let sleeps = rt.spawn(async move |ctx: Context| {
                    ctx.sleep(grace + late).await;
                    sets.store(true, SeqCst);
                });
                block_on(sleeps.started()).unwrap();
            }
            let begun = Instant::now();
            let report = block_on(rt.shutdown(grace));
            let took = begun.elapsed();
            println!("obeys: {obeys}, grace {grace:?}: {took:?}, {} left", report.left.len());
            let ends = if obeys { (1_000, 0) } else { (0, 1_001) };
            assert_eq!((cancelled.load(SeqCst), report.left.len()), ends);
            assert!(obeys || took >= grace, "no process is killed before the deadline");
            assert!(!has_slept.load(SeqCst), "the processes were killed long after the deadline");
            for mut peer in peers {
                // The shutdown has closed the connection, so the peer reads the end of the stream or gets an error.
                assert!(matches!(peer.read(&mut [0; 1]), Ok(0) | Err(_)));
            }
            drop(rt);
        });
    }
}

/// Returns the resident memory of this program in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the resident memory");
    line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number") << 10
}

/// Raises the limit of open descriptors of this program to its hard limit. Returns the new limit.
#[allow(unsafe_code)]
fn raise_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes during the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is valid for reads during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    limit.rlim_cur as usize
}

/// 12.7b: a server has up to 10,000 idle connections, each with its own process. The test prints the memory that the
/// server needs for each connection. With 10,000 connections, the test fails if this memory reaches 1,500 bytes. If the
/// hard limit of descriptors is too low for 10,000 connections, the test prints a warning. With fewer connections, each
/// connection has a larger share of the fixed part of the memory, so the bound is 10,000 bytes. The server runs in a
/// second operating system process, and the clients run in a third operating system process. Each of these two
/// processes raises its limit of descriptors.
#[test]
fn ten_thousand_idle_connections_need_little_memory() {
    const ADDRESS: &str = "PROCESSION_ADDRESS";
    if role().is_none() {
        let ran = again(ten_thousand_idle_connections_need_little_memory, "server", 300);
        ran.passed();
        let is_result = |line: &&str| line.contains(" idle connections");
        let lines: String = ran.stdout.split_inclusive('\n').filter(is_result).collect();
        // If the test passes, the test program hides the text of `println!`, but does not hide the text of `write!`.
        write!(std::io::stderr(), "{lines}").unwrap();
        return;
    }
    let limit = raise_limit();
    let count = limit.saturating_sub(200).min(10_000);
    if role().as_deref() == Some("clients") {
        let address: SocketAddr = std::env::var(ADDRESS).unwrap().parse().unwrap();
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(b"x").unwrap();
            clients.push(client);
        }
        // After the server has measured its memory, the server closes the first connection.
        clients[0].read_exact(&mut [0; 1]).unwrap_err();
        for client in clients.iter_mut().rev().take(100) {
            client.write_all(b"y").unwrap();
            client.read_exact(&mut [0; 1]).unwrap();
        }
        return;
    }
    // The test program has printed the name of the test without a line feed. This call prints the missing line feed.
    println!();
    assert!(count > 0, "a limit of {limit} descriptors permits no connection");
    if count < 10_000 {
        println!("WARNING: a limit of {limit} descriptors permits only {count} idle connections instead of 10,000");
    }
    let rt = with(2);
    let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    block_on(async {
        let (one, other) = futures::join!(TcpStream::connect_in(rt.host(), address), listener.accept());
        drop((one.unwrap(), other.unwrap()));
    });
    let before = resident();
    let (idle, is_idle) = std::sync::mpsc::channel();
    let first = rt.spawn(async move |ctx: Context| -> Result<_, Exit> {
        let mut first = None;
        for _ in 0..count {
            let (mut stream, _) = listener.accept().await?;
            let idle = idle.clone();
            let process = ctx.spawn(async move |_: Context| -> Result<(), Exit> {
                let mut buf = [0; 1];
                stream.read_exact(&mut buf).await?;
                let _ = idle.send(());
                drop(idle);
                stream.read_exact(&mut buf).await?;
                stream.write_all(&buf).await?;
                Ok(())
            });
            let pid = process.pid();
            first.get_or_insert(pid);
        }
        Ok(first)
    });
    let clients = std::thread::spawn(move || {
        let test = ten_thousand_idle_connections_need_little_memory;
        let ran = crate::subprocess::again_with(test, "clients", 280, |command| {
            command.env(ADDRESS, address.to_string());
        });
        ran.passed();
    });
    for _ in 0..count {
        is_idle.recv().unwrap();
    }
    let bytes = (resident() - before) / count;
    println!("{count} idle connections: {bytes} bytes of memory each");
    assert!(bytes < if count == 10_000 { 1_500 } else { 10_000 }, "{bytes} bytes");
    let first = block_on(first).unwrap().unwrap();
    rt.host().kill(first).unwrap();
    clients.join().unwrap();
}

/// 12.6b: while 500 connections are idle, one active connection makes its round trips. After these round trips, each
/// idle connection receives a byte.
#[test]
fn an_active_connection_works_among_many_idle_connections() {
    on_two(async |rt| {
        let mut idle = Vec::new();
        for _ in 0..500 {
            idle.push(pair().await?);
        }
        let idle = Arc::new(idle);
        let readers: Vec<_> = (0..idle.len())
            .map(|n| {
                let idle = Arc::clone(&idle);
                rt.spawn(async move |_: Context| -> Result<_, Exit> { Ok((&idle[n].0).read(&mut [0; 1]).await?) })
            })
            .collect();
        let (one, other) = pair().await?;
        rt.spawn(move |_: Context| crate::echo(one));
        for trip in 0..200 {
            round_trip(&other, &[trip]).await?;
        }
        for (_, other) in &*idle {
            (&*other).write_all(b"x").await?;
        }
        for reader in readers {
            assert_eq!(reader.await?, 1);
        }
        Ok(())
    });
}
