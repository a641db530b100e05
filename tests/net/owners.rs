//! Ownership of sockets: sockets in messages, sockets of another runtime, and sockets of killed processes.

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::*;

use crate::{echo, on_two, pair, round_trip, serve, with, within};

/// 12.3a: a process can send a socket to another process in a message. Before each send, a read of this socket was
/// polled and dropped.
#[test]
fn a_socket_can_be_sent_in_a_message() {
    on_two(async |rt| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        let user = rt.spawn(async move |mut ctx: Context<(TcpStream, Reply<TcpStream>)>| -> Result<(), Exit> {
            loop {
                let (stream, reply) = ctx.receive().await?;
                round_trip(&stream, b"from a process").await?;
                reply.send(stream);
            }
        });
        let mut stream = TcpStream::connect(address).await?;
        for _ in 0..100 {
            assert!(crate::poll_once(stream.read(&mut [0; 1])).is_none());
            stream = user.call(|reply| (stream, reply)).await?;
        }
        Ok(())
    });
}

/// 9.1c, 12.3b: if a process is killed inside a read, the socket of this read is closed, and the peer reads the end of
/// the stream. The socket is also closed if its process is killed in a write, in `accept`, or in `readable`.
#[test]
fn a_killed_process_closes_its_socket() {
    on_two(async |rt| {
        for way in 0..3 {
            let (mut one, mut other) = pair().await?;
            let (ready, is_ready) = futures::channel::oneshot::channel();
            let waits = rt.spawn(async move |_: Context| -> Result<(), Exit> {
                let mut buf = [0; 1];
                let mut read = Box::pin(async {
                    match way {
                        0 => one.read(&mut buf).await.map(drop),
                        1 => crate::read_when_readable(&one).await.map(drop),
                        _ => one.write_all(&vec![0; 64 << 20]).await,
                    }
                });
                assert!(futures::poll!(&mut read).is_pending());
                let _ = ready.send(());
                Ok(read.await?)
            });
            is_ready.await.expect("the process waits");
            assert_eq!(rt.metrics().sockets, 2);
            waits.abort();
            let mut all = Vec::new();
            other.read_to_end(&mut all).await?;
            assert!(matches!(waits.await, Err(Exit::Killed)));
            drop(other);
            assert_eq!(rt.metrics().sockets, 0);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (ready, is_ready) = futures::channel::oneshot::channel();
        let accepts = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            let mut accept = Box::pin(listener.accept());
            assert!(futures::poll!(&mut accept).is_pending());
            let _ = ready.send(());
            accept.await?;
            Ok(())
        });
        is_ready.await.expect("the process waits");
        accepts.abort();
        assert!(matches!(accepts.await, Err(Exit::Killed)));
        // While a child process of another test holds a copy of the listener, a connection still succeeds.
        while TcpStream::connect(address).await.is_ok() {}
        Ok(())
    });
}

/// 12.4a: a thread in `block_on` creates and uses sockets, even if workers occupy all 48 slots. The sockets belong to
/// the runtime of this `block_on`, also if a process of another runtime calls `block_on`.
#[test]
fn a_guest_without_a_slot_creates_sockets_of_its_runtime() {
    within(60, || {
        let full = Arc::new(with(48));
        full.block_on(async {
            let (one, two) = pair().await?;
            full.spawn(move |_: Context| echo(two));
            round_trip(&one, b"outside a slot").await
        })
        .unwrap();
        let (other, inner) = (with(2), Arc::clone(&full));
        let nested = other.spawn(async move |_: Context| inner.block_on(pair()));
        let (stream, _peer) = block_on(nested).unwrap();
        drop(full);
        let error = block_on(async { (&stream).read(&mut [0; 1]).await }).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
        // After `block_on`, the thread has no runtime.
        assert!(block_on(TcpListener::bind("127.0.0.1:0")).is_err());
    });
}

/// 12.4a: the future of `run` creates sockets, even if workers occupy all 48 slots. After a panic of the future of
/// `block_on`, the thread has no runtime.
#[test]
fn the_future_of_a_guest_without_a_slot_may_panic_or_be_polled_by_another_executor() {
    within(60, || {
        let full = with(48);
        let (one, _two) = block_on(full.run(pair())).unwrap();
        drop(one);
        let panics = std::panic::AssertUnwindSafe(|| full.block_on(async { panic!("in the future of `block_on`") }));
        std::panic::catch_unwind(panics).unwrap_err();
        assert!(block_on(TcpListener::bind("127.0.0.1:0")).is_err());
    });
}

/// 4.7h: a step calls `block_on` of another runtime, all slots of this other runtime are in use, and the future of this
/// `block_on` calls `block_in_place`. Then another thread runs the other processes of the step's worker.
#[test]
fn block_in_place_in_a_guest_without_a_slot_hands_over_the_outer_worker() {
    within(60, || {
        let full = Arc::new(with(48));
        let rt = Runtime::builder().workers(1).long_step_threshold(Duration::MAX).build().unwrap();
        let step = rt.spawn(async move |ctx: Context| {
            let (ran, has_run) = std::sync::mpsc::channel();
            ctx.spawn(async move |_: Context| ran.send(()));
            full.block_on(async { block_in_place(|| has_run.recv()) })
        });
        block_on(step).expect("the other process runs");
    });
}

/// 12.4a: the processes of a `LocalSet` create and use sockets.
#[test]
fn processes_of_a_local_set_use_sockets() {
    within(60, || {
        let rt = with(1);
        let set = rt.local_set();
        let used = set.spawn(async |ctx: Context| -> Result<(), Exit> {
            let (one, two) = pair().await?;
            ctx.spawn(move |_: Context| echo(two));
            Ok(round_trip(&one, b"from a local process").await?)
        });
        set.block_on(used).unwrap();
    });
}

/// 12.4c: two runtimes in one program have separate pollers. A process of one runtime can use a socket of the other
/// runtime until the other runtime ends.
#[test]
fn a_process_can_use_a_socket_of_another_runtime() {
    within(60, || {
        let (one, other) = (with(1), with(1));
        let (listener, address) = one
            .block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                std::io::Result::Ok((listener, address))
            })
            .unwrap();
        one.spawn(move |ctx: Context| serve(ctx, listener));
        // The stream belongs to the runtime `one`, and a process of the runtime `other` uses the stream.
        let stream = block_on(TcpStream::connect_in(one.host(), address)).unwrap();
        let used = other.spawn(async move |_: Context| -> Result<_, Exit> {
            for round in 0..200_u8 {
                round_trip(&stream, &[round; 10]).await?;
            }
            let own = TcpStream::connect(address).await?;
            for round in 0..200_u8 {
                round_trip(&own, &[round; 10]).await?;
            }
            Ok((stream, own))
        });
        let (stream, own) = block_on(used).unwrap();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let waits = other.spawn(async move |_: Context| -> Result<(), Exit> {
            let mut buf = [0; 1];
            let mut read = Box::pin(async { (&stream).read(&mut buf).await });
            assert!(futures::poll!(&mut read).is_pending());
            ready.send(()).expect("the test waits");
            let error = read.await.expect_err("the runtime of the socket ends");
            assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
            assert_eq!(error.to_string(), "the runtime of this socket has shut down");
            Ok(())
        });
        is_ready.recv().unwrap();
        drop(one);
        block_on(waits).unwrap();
        // The socket `own` still works. The socket at the other end of this connection was closed when the runtime
        // `one` ended.
        let end = other.block_on(async { (&own).read(&mut [0; 1]).await });
        assert!(matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    });
}

/// 12.3a: a socket outlives the process that created the socket.
#[test]
fn a_socket_outlives_its_creator() {
    on_two(async |rt| {
        let made = rt.spawn(async |_: Context| -> Result<_, Exit> { Ok(pair().await?) });
        let (one, other) = made.await?;
        rt.spawn(move |_: Context| echo(one));
        round_trip(&other, b"abc").await?;
        (&other).close().await?;
        assert_eq!((&other).read(&mut [0; 1]).await?, 0);
        Ok(())
    });
}

/// 12.3b: sockets are unwind safe, like the sockets of the standard library: a closure for `catch_unwind` can capture a
/// socket.
#[test]
fn sockets_are_unwind_safe() {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    fn check<T: UnwindSafe + RefUnwindSafe>() {}
    check::<TcpListener>();
    check::<TcpStream>();
    check::<net::TcpSocket>();
    check::<net::UdpSocket>();
    check::<net::OwnedReadHalf>();
    check::<net::OwnedWriteHalf>();
    check::<net::Incoming<'_>>();
    #[cfg(unix)]
    {
        check::<net::UnixListener>();
        check::<net::UnixStream>();
        check::<net::UnixDatagram>();
        check::<net::unix::OwnedReadHalf>();
        check::<net::unix::OwnedWriteHalf>();
        check::<net::unix::Incoming<'_>>();
        check::<net::Async<std::os::unix::net::UnixStream>>();
        check::<signal::unix::Signal>();
    }
}
