//! A flood on one connection. The tests count steps on one worker without replacement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream, UdpSocket};
use procession::*;

use crate::{echo, within};

/// Operations of a process in one turn: its budget.
const TURN: u64 = 128;

/// A worker asks the poller and the timers in every 61st search, so at most after this number of turns of the flooded
/// process. Two more turns pass until the other process runs: the tests count the flooded process only.
const NOTICED: u64 = 61 + 2;

/// How the flooded process reads.
#[derive(Debug, Clone, Copy)]
enum Reads {
    Read,
    ReadableAndTry,
    Peek,
    Write,
}

/// Reads from, or writes to, a connection whose peer is a thread that never waits for this runtime. Counts its operations.
async fn flooded(stream: TcpStream, reads: Reads, count: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Result<(), Exit> {
    let mut buf = [0; 64];
    while !stop.load(SeqCst) {
        match reads {
            Reads::Read => drop((&stream).read(&mut buf).await?),
            Reads::Peek => drop(stream.peek(&mut buf).await?),
            Reads::Write => drop((&stream).write(&buf).await?),
            Reads::ReadableAndTry => {
                stream.readable().await?;
                let _ = stream.try_read(&mut buf);
            }
        }
        count.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// A thread that sends to, or receives from, an address as fast as the system permits.
fn flood(address: std::net::SocketAddr, reads: Reads) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut bytes = vec![0; 64 << 10];
        loop {
            let done = match reads {
                Reads::Write => std::io::Read::read(&mut stream, &mut bytes).is_ok_and(|count| count != 0),
                _ => std::io::Write::write_all(&mut stream, &bytes).is_ok(),
            };
            if !done {
                return;
            }
        }
    })
}

/// 12.6c: while a connection is flooded, another process runs after one turn of the flooded process, and its turn has at
/// most 128 operations. A timer, and a ready socket of another connection, is noticed after at most 61 such turns.
#[test]
fn a_flood_starves_no_other_connection_timer_or_message() {
    for reads in [Reads::Read, Reads::ReadableAndTry, Reads::Peek, Reads::Write] {
        within(120, move || {
            let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
            let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
            let address = listener.local_addr().unwrap();
            let peer = flood(address, reads);
            let (stream, _) = block_on(listener.accept()).unwrap();
            let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let other = {
                let (count, stop) = (Arc::clone(&count), Arc::clone(&stop));
                rt.spawn(move |_: Context| flooded(stream, reads, count, stop))
            };
            while count.load(SeqCst) < 1_000 {
                std::thread::yield_now();
            }
            let counted = Arc::clone(&count);
            let measured = rt.spawn(async move |mut ctx: Context<()>| -> Result<_, Exit> {
                let since = |before: u64| counted.load(SeqCst) - before;
                let mut worst = [0; 4];
                // Operations of the flooded process in one of its turns.
                for _ in 0..100 {
                    let before = counted.load(SeqCst);
                    ctx.yield_now().await;
                    worst[0] = worst[0].max(since(before));
                }
                let server = ctx.spawn(async |mut ctx: Context<Reply<()>>| -> Result<(), Exit> {
                    loop {
                        ctx.receive().await?.send(());
                    }
                });
                for _ in 0..100 {
                    let before = counted.load(SeqCst);
                    server.call(|reply| reply).await?;
                    worst[1] = worst[1].max(since(before));
                }
                for _ in 0..20 {
                    ctx.send_after(Duration::from_micros(1), ctx.pid(), ());
                    // The timer is due when this step ends.
                    let begun = std::time::Instant::now();
                    while begun.elapsed() < Duration::from_micros(100) {}
                    let before = counted.load(SeqCst);
                    ctx.receive().await?;
                    worst[2] = worst[2].max(since(before));
                }
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let (one, two) = futures::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
                let (mut one, two) = (one?, two?.0);
                ctx.spawn(move |_: Context| echo(two));
                for _ in 0..20 {
                    let before = counted.load(SeqCst);
                    one.write_all(b"x").await?;
                    one.read_exact(&mut [0; 1]).await?;
                    worst[3] = worst[3].max(since(before));
                }
                Ok(worst)
            });
            let [turn, message, timer, connection] = block_on(measured).unwrap();
            println!("{reads:?}: operations: turn {turn}, message {message}, timer {timer}, round trip {connection}");
            assert!(turn <= TURN);
            // A turn of the flooded process passes at most before the answer, and one before the caller runs again.
            assert!(message <= 2 * TURN);
            assert!(timer <= NOTICED * TURN);
            // Two sockets become ready, one after the other.
            assert!(connection <= 2 * NOTICED * TURN);
            stop.store(true, SeqCst);
            block_on(other).unwrap();
            drop(rt);
            peer.join().unwrap();
        });
    }
}

/// 12.6c: a flood of packets on a UDP socket, and a flood of connections, starve no timer.
#[test]
fn a_flood_of_packets_or_connections_starves_no_timer() {
    within(120, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (socket, listener) = block_on(async {
            let socket = UdpSocket::bind_in(rt.host(), "127.0.0.1:0").await?;
            std::io::Result::Ok((socket, TcpListener::bind_in(rt.host(), "127.0.0.1:0").await?))
        })
        .unwrap();
        let (packets_to, address) = (socket.local_addr().unwrap(), listener.local_addr().unwrap());
        let is_over = Arc::clone(&stop);
        let packets = std::thread::spawn(move || {
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            while !is_over.load(SeqCst) {
                // The receiver may be gone.
                let _ = sender.send_to(b"x", packets_to);
            }
        });
        let is_over = Arc::clone(&stop);
        let connections = std::thread::spawn(move || {
            while !is_over.load(SeqCst) {
                if let Ok(stream) = std::net::TcpStream::connect(address) {
                    // The close sends a reset, so no port stays occupied.
                    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                }
            }
        });
        rt.spawn(async move |_: Context| -> Result<(), Exit> {
            loop {
                socket.recv_from(&mut [0; 1]).await?;
            }
        });
        rt.spawn(async move |_: Context| -> Result<(), Exit> {
            loop {
                listener.accept().await?;
            }
        });
        let ticks = rt.spawn(async |ctx: Context| -> Result<(), Exit> {
            for _ in 0..50 {
                ctx.sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        });
        block_on(ticks).unwrap();
        stop.store(true, SeqCst);
        packets.join().unwrap();
        connections.join().unwrap();
    });
}
