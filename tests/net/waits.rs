//! The inspection lists the sockets that a process waits for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join3, select};
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream, UdpSocket};
use procession::observe::WaitsFor;
use procession::{Context, Pid, Runtime};

use crate::within;

/// Returns the descriptor of the socket as a number. On Windows, returns the handle.
#[cfg(unix)]
fn number(socket: &impl std::os::fd::AsRawFd) -> u64 {
    socket.as_raw_fd().try_into().expect("it is open")
}

#[cfg(windows)]
fn number(socket: &impl std::os::windows::io::AsRawSocket) -> u64 {
    socket.as_raw_socket()
}

/// Runs all ready processes on this thread. The runtime has no workers.
fn settle(rt: &Runtime) {
    rt.block_on(rt.spawn(async |_: Context| ())).expect("it does not fail");
    rt.block_on(rt.process().priority(procession::Priority::Low).spawn(async |_: Context| ()).expect("there is room"))
        .expect("it does not fail");
}

fn waits_for(rt: &Runtime, pid: Pid) -> Vec<WaitsFor> {
    rt.process_details(pid).expect("it is alive").waits_for
}

/// Returns the descriptors that the process waits for. The flag of a descriptor is true if the process waits until the
/// descriptor is writable.
fn sockets(rt: &Runtime, pid: Pid) -> BTreeSet<(u64, bool)> {
    let socket = |wait| match wait {
        WaitsFor::Socket { descriptor, is_write } => (descriptor, is_write),
        other => panic!("{other}"),
    };
    waits_for(rt, pid).into_iter().map(socket).collect()
}

async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let one = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("it listens");
    (one, listener.accept().await.expect("a connection").0)
}

/// 9.2b, 12.2a: the details of a process list each socket that the process waits for, with the direction. The
/// explanation counts the process. After a socket has become ready, the details no longer list this socket.
#[test]
fn the_details_contain_each_socket_that_a_process_waits_for() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().expect("no threads");
        let (listener, udp, (stream, mut peer)) = rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
            (Arc::new(listener), udp, connected().await)
        });
        let [accepts, receives, reads] = [number(&*listener), number(&udp), number(&stream)];
        let accepting = Arc::clone(&listener);
        let process = rt.spawn(async move |_: Context| {
            let (mut stream, mut byte, mut datagram) = (stream, [0; 1], [0; 1]);
            // Two futures wait for the same listener.
            let accepts = join(accepting.accept(), accepting.accept());
            _ = join3(accepts, udp.recv_from(&mut datagram), stream.read(&mut byte)).await;
        });
        settle(&rt);
        let pid = process.pid();
        assert_eq!(sockets(&rt, pid), [(accepts, false), (receives, false), (reads, false)].into());
        assert_eq!(waits_for(&rt, pid).len(), 3, "the listener is listed once");
        let text = waits_for(&rt, pid)[0].to_string();
        assert_eq!(text, format!("data from descriptor {}", accepts.min(receives).min(reads)));
        let activity = rt.explain().activity;
        assert_eq!((activity.waiting, activity.for_socket, activity.for_unknown), (1, 1, 0));
        assert!(activity.to_string().contains("1 for a socket"), "{activity}");
        // The byte makes the stream ready. The process then waits only for the other two sockets.
        rt.block_on(peer.write_all(b"x")).expect("the stream is open");
        while sockets(&rt, pid).contains(&(reads, false)) {
            rt.block_on(rt.sleep(Duration::from_millis(1)));
        }
        settle(&rt);
        assert_eq!(sockets(&rt, pid), [(accepts, false), (receives, false)].into());
    });
}

/// 9.2b: if a process fills the send buffer of a connection, the list of waits shows that the process waits to write.
/// If the process drops a read of the `futures::io` traits, the socket keeps the waker of the process. Therefore the
/// list of waits contains the socket until the socket is ready. If the process drops the future of a method of the
/// socket, such as `readable`, the list no longer contains the socket.
#[test]
fn the_details_contain_the_direction_of_a_socket_wait() {
    within(60, || {
        let rt = Runtime::builder().workers(0).build().expect("no threads");
        let (stream, peer) = rt.block_on(connected());
        let number = number(&stream);
        let writes = rt.spawn(async move |_: Context| {
            let mut stream = stream;
            let chunk = vec![0; 1 << 20];
            while stream.write_all(&chunk).await.is_ok() {}
        });
        let waits = loop {
            settle(&rt);
            let waits = waits_for(&rt, writes.pid());
            if !waits.is_empty() {
                break waits;
            }
        };
        assert_eq!(waits, [WaitsFor::Socket { descriptor: number, is_write: true }]);
        assert_eq!(waits[0].to_string(), format!("space to write to descriptor {number}"));
        drop(peer);
        rt.block_on(writes).expect("the write fails, because the peer is gone");

        let (mut stream, mut peer) = rt.block_on(connected());
        let number = self::number(&stream);
        let stops = rt.spawn(async move |mut ctx: Context<u8>| {
            let mut byte = [0; 1];
            // A new socket counts as ready until the system reports that the socket has no data.
            assert!(stream.try_read(&mut byte).is_err());
            // After the first message, the process drops `readable`. The second message ends the plain receive. After
            // the third message, the process drops the read.
            _ = select(Box::pin(stream.readable()), Box::pin(ctx.receive())).await;
            _ = ctx.receive().await;
            _ = select(stream.read(&mut byte), Box::pin(ctx.receive())).await;
            ctx.receive().await
        });
        let is_listed =
            || waits_for(&rt, stops.pid()).contains(&WaitsFor::Socket { descriptor: number, is_write: false });
        let mut listed = Vec::new();
        settle(&rt);
        listed.push(is_listed());
        for message in 1..=3 {
            stops.send(message).expect("it is alive");
            settle(&rt);
            listed.push(is_listed());
        }
        assert_eq!(listed, [true, false, true, true]);
        rt.block_on(peer.write_all(b"x")).expect("the stream is open");
        while is_listed() {
            rt.block_on(rt.sleep(Duration::from_millis(1)));
        }
        settle(&rt);
        assert!(matches!(waits_for(&rt, stops.pid())[..], [WaitsFor::Message { .. }]));
    });
}
