//! Floods of data, packets and connections. Each test runs on one worker, and the monitor starts no replacement thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream, UdpSocket};
use procession::*;

use crate::{echo, pair, within};

/// The budget of a turn. A process can perform at most this number of socket operations in one turn.
const TURN: u64 = 128;

/// After the timer or the socket of another process becomes ready, the flooded process has at most this number of turns
/// before the other process runs. A worker asks the poller for events and checks the timers in every 61st search for a
/// task. At most two more turns pass before the worker runs the waiting process.
const NOTICED: u64 = 61 + 2;

/// After this time, the timer of a message with a delay of one microsecond is certainly due. The timers round each
/// deadline up to the next millisecond.
const DUE: Duration = Duration::from_millis(2);

/// Operation that the flooded process repeats.
#[derive(Debug, Clone, Copy)]
enum Reads {
    Read,
    ReadableAndTry,
    Peek,
    Write,
}

/// Reads from a connection or writes to the connection, and counts the operations. The peer is the thread of [`flood`].
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

/// Starts a thread that connects to `address`, and sends or receives bytes as fast as the system permits.
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

/// 12.6c: a peer floods one connection. A second process that is runnable runs after at most one turn of the flooded
/// process, and this turn has at most 128 operations. The worker notices a due timer, or a ready socket of a second
/// connection, after at most 61 turns of the flooded process.
#[test]
fn a_flooded_connection_does_not_starve_other_work() {
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
                // Counts the operations of the flooded process in one of its turns. If the peer is slow, the measuring
                // process may run a hundred turns before the flooded process runs one turn.
                while worst[0] == 0 {
                    for _ in 0..100 {
                        let before = counted.load(SeqCst);
                        ctx.yield_now().await;
                        worst[0] = worst[0].max(since(before));
                    }
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
                    // This loop takes longer than the delay of the message, so the timer is due when this step ends.
                    let begun = std::time::Instant::now();
                    while begun.elapsed() < DUE {}
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
            // The flooded process runs at most one turn before the server answers. The flooded process runs at most one
            // more turn before the caller runs again.
            assert!(message <= 2 * TURN);
            assert!(timer <= NOTICED * TURN);
            // A round trip needs two ready sockets, one after the other.
            assert!(connection <= 2 * NOTICED * TURN);
            stop.store(true, SeqCst);
            block_on(other).unwrap();
            drop(rt);
            peer.join().unwrap();
        });
    }
}

/// 12.6c: neither a flood of UDP packets nor a flood of new connections starves a timer. The worker notices a due timer
/// after at most 61 turns of the flooded processes.
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
                // If the receiver was already dropped, the send may fail.
                let _ = sender.send_to(b"x", packets_to);
            }
        });
        let is_over = Arc::clone(&stop);
        let connections = std::thread::spawn(move || {
            while !is_over.load(SeqCst) {
                if let Ok(stream) = std::net::TcpStream::connect(address) {
                    // With this option, the close sends a reset, so the connection does not occupy its port afterwards.
                    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                }
            }
        });
        let count = Arc::new(AtomicU64::new(0));
        let received = Arc::clone(&count);
        rt.spawn(async move |_: Context| -> Result<(), Exit> {
            loop {
                socket.recv_from(&mut [0; 1]).await?;
                received.fetch_add(1, SeqCst);
            }
        });
        let accepted = Arc::clone(&count);
        rt.spawn(async move |_: Context| -> Result<(), Exit> {
            loop {
                listener.accept().await?;
                accepted.fetch_add(1, SeqCst);
            }
        });
        let ticks = rt.spawn(async move |mut ctx: Context<()>| -> Result<_, Exit> {
            let (mut worst, mut rounds, begin) = (0, 0, count.load(SeqCst));
            // The test continues until the flooded process has received data.
            while rounds < 50 || count.load(SeqCst) - begin < 100 {
                rounds += 1;
                ctx.yield_now().await;
                ctx.send_after(Duration::from_micros(1), ctx.pid(), ());
                // This loop takes longer than the delay of the message, so the timer is due when this step ends.
                let begun = std::time::Instant::now();
                while begun.elapsed() < DUE {}
                let before = count.load(SeqCst);
                ctx.receive().await?;
                worst = worst.max(count.load(SeqCst) - before);
            }
            Ok(worst)
        });
        let worst = block_on(ticks).unwrap();
        println!("{worst} packets and connections before a due timer");
        assert!(worst <= NOTICED * TURN);
        stop.store(true, SeqCst);
        packets.join().unwrap();
        connections.join().unwrap();
    });
}

/// Starts a flooded connection of a runtime. Returns the connection and the thread of the peer.
fn flooded_pair(rt: &Runtime) -> (TcpStream, std::thread::JoinHandle<()>) {
    let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
    let peer = flood(listener.local_addr().unwrap(), Reads::Read);
    (block_on(listener.accept()).unwrap().0, peer)
}

/// Reads from a flooded connection without end.
async fn drain(stream: TcpStream, count: Arc<AtomicU64>) {
    let never = Arc::new(AtomicBool::new(false));
    flooded(stream, Reads::Read, count, never).await.unwrap();
}

/// 12.6c: a future of `spawn_future` reads from a flooded connection. The runtime has only one worker, and
/// this worker also runs processes in the meantime.
#[test]
fn a_flooded_future_without_a_process_does_not_starve_processes() {
    within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let (stream, peer) = flooded_pair(&rt);
        let count = Arc::new(AtomicU64::new(0));
        rt.spawn_future(drain(stream, Arc::clone(&count)));
        while count.load(SeqCst) < 1_000 {
            std::thread::yield_now();
        }
        block_on(rt.spawn(async |_: Context| ())).unwrap();
        drop(rt);
        peer.join().unwrap();
    });
}

/// 12.6c: the inner future of `block_on` reads from a flooded connection. A time limit for the reads still expires.
#[test]
fn a_time_limit_expires_beside_reads_from_a_flooded_connection() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let (stream, peer) = flooded_pair(&rt);
        let reads = Box::pin(drain(stream, Arc::default()));
        drop(rt.block_on(futures::future::select(rt.sleep(Duration::from_millis(20)), reads)));
        drop(rt);
        peer.join().unwrap();
    });
}

/// 12.6c: an async handler reads from a flooded connection. The time limit of the command still expires.
#[test]
fn the_time_limit_of_a_command_expires_while_its_handler_is_flooded() {
    struct Drain(TcpStream);
    impl Command for Drain {
        type Reply = ();
    }
    within(60, || {
        let rt = Runtime::builder().workers(0).handle_async(|command: Drain| drain(command.0, Arc::default())).build();
        let rt = rt.unwrap();
        let (stream, peer) = flooded_pair(&rt);
        let body = rt.spawn(async move |ctx: Context| {
            Ok::<_, Exit>(ctx.perform(Drain(stream)).timeout(Duration::from_millis(20)).await)
        });
        assert!(matches!(rt.block_on(body).unwrap(), Err(Failure::TimedOut)));
        drop(rt);
        peer.join().unwrap();
    });
}

/// 4.6b: one future of a body spends the whole budget of each turn. A socket operation in a second future of the body
/// pauses only once and then completes.
#[test]
fn a_socket_operation_completes_while_another_future_spends_the_budget() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().unwrap();
        let body = rt.spawn(async |_: Context| -> Result<(), Exit> {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            let done = AtomicBool::new(false);
            let greedy = async {
                while !done.load(SeqCst) {
                    cooperative(std::future::ready(())).await;
                }
            };
            let modest = async {
                let ends = async {
                    socket.writable().await?;
                    let (mut one, _other) = pair().await?;
                    one.write_all(b"1").await?;
                    socket.send_to(b"1", socket.local_addr()?).await
                };
                let sent = ends.await;
                done.store(true, SeqCst);
                sent
            };
            let ((), sent) = futures::join!(greedy, modest);
            assert_eq!(sent?, 1);
            Ok(())
        });
        rt.block_on(body).unwrap();
    });
}
