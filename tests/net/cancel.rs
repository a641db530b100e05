//! Socket operations whose futures are dropped before the operations complete, and wakers that panic.

use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use futures::{AsyncRead, AsyncReadExt, AsyncWriteExt, StreamExt};
use procession::net::{TcpListener, TcpStream, UdpSocket};
use procession::*;

use crate::{on_two, pair, poll_once, read_when_readable};

/// Writes bytes with the values 0, 1, 2 and so on, modulo 256. Each write has at most seven bytes. Before each write,
/// the function receives one item from the channel `dropped`. After each write, the function calls `yield_now` up to
/// two times.
async fn write_numbers(
    ctx: &Context,
    mut to: impl futures::AsyncWrite + Unpin,
    bytes: usize,
    mut dropped: mpsc::UnboundedReceiver<()>,
) -> std::io::Result<()> {
    let mut at = 0;
    while at < bytes {
        dropped.next().await.expect("the reader runs until the last byte");
        let count = (1 + at % 7).min(bytes - at);
        let part: Vec<u8> = (at..at + count).map(|n| n as u8).collect();
        to.write_all(&part).await?;
        at += count;
        for _ in 0..at % 3 {
            ctx.yield_now().await;
        }
    }
    Ok(())
}

/// 12.3c: if a read is dropped after one poll or because of a timeout, no bytes are lost. The writer writes each part
/// only after the reader has dropped a further read.
#[test]
fn a_dropped_read_loses_no_bytes() {
    const BYTES: usize = 20_000;
    on_two(async |rt| {
        let (one, mut other) = pair().await?;
        let (drops, is_dropped) = mpsc::unbounded();
        let writer = rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
            Ok(write_numbers(&ctx, one, BYTES, is_dropped).await?)
        });
        let reader = rt.spawn(async move |ctx: Context| -> Result<_, Exit> {
            let (mut at, mut dropped) = (0, 0_usize);
            let mut buf = [0; 5];
            while at < BYTES {
                let size = 1 + dropped % buf.len();
                let read = if dropped % 16 == 0 {
                    ctx.timeout(Duration::from_micros(20), other.read(&mut buf[..size])).await.ok()
                } else {
                    poll_once(other.read(&mut buf[..size]))
                };
                match read {
                    Some(count) => {
                        let count = count?;
                        assert_ne!(count, 0);
                        for byte in &buf[..count] {
                            assert_eq!(*byte, at as u8);
                            at += 1;
                        }
                    }
                    None => {
                        dropped += 1;
                        // The send fails if the writer has already written the last part and exited.
                        let _ = drops.unbounded_send(());
                        ctx.yield_now().await;
                    }
                }
            }
            Ok(dropped)
        });
        writer.await?;
        assert!(reader.await? >= BYTES / 7, "each part needs a dropped read");
        Ok(())
    });
}

/// 12.3c: if the future of a write or of a send is dropped before the future completes, no byte and no packet was sent.
/// The receiver gets exactly the bytes and the packets of the operations that completed.
#[test]
fn a_dropped_write_has_sent_nothing() {
    on_two(async |_| {
        let (mut one, mut other) = pair().await?;
        let (mut sent, mut received, mut dropped) = (0_usize, 0_usize, 0);
        let mut buf = vec![0; 60_000];
        while dropped < 50 {
            let part: Vec<u8> = (sent..sent + 20_000).map(|n| (n % 251) as u8).collect();
            match poll_once(one.write(&part)) {
                Some(count) => sent += count?,
                None => {
                    dropped += 1;
                    crate::yield_now().await;
                    // The receiver reads from time to time, so the write direction becomes ready several times.
                    while dropped % 5 == 0 && received < sent {
                        let count = other.read(&mut buf).await?;
                        let mut bytes = buf[..count].iter().enumerate();
                        assert!(bytes.all(|(at, byte)| *byte == ((received + at) % 251) as u8));
                        received += count;
                    }
                }
            }
        }
        one.close().await?;
        let mut rest = Vec::new();
        other.read_to_end(&mut rest).await?;
        assert!(rest.iter().enumerate().all(|(at, byte)| *byte == ((received + at) % 251) as u8));
        assert_eq!(received + rest.len(), sent);
        Ok(())
    });
}

/// 12.3c: if the future that sends a Unix datagram is dropped before the future completes, no packet was sent.
#[test]
#[cfg(unix)]
fn a_dropped_send_has_sent_no_packet() {
    on_two(async |_| {
        let (one, other) = net::UnixDatagram::pair()?;
        let (mut sent, mut received, mut dropped) = (0_u32, 0_u32, 0);
        let mut buf = [0; 8];
        while dropped < 50 {
            match poll_once(one.send(&sent.to_ne_bytes())) {
                Some(count) => {
                    assert_eq!(count?, 4);
                    sent += 1;
                }
                None => {
                    dropped += 1;
                    crate::yield_now().await;
                    while dropped % 5 == 0 && received < sent {
                        assert_eq!(other.recv(&mut buf).await?, 4);
                        assert_eq!(buf[..4], received.to_ne_bytes());
                        received += 1;
                    }
                }
            }
        }
        while received < sent {
            other.recv(&mut buf).await?;
            assert_eq!(buf[..4], received.to_ne_bytes());
            received += 1;
        }
        assert_eq!(other.try_recv(&mut buf).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        Ok(())
    });
}

/// 12.3c: a dropped `accept` loses no connection, and a dropped `recv_from` loses no packet.
#[test]
fn a_dropped_accept_loses_no_connection() {
    const COUNT: usize = 200;
    on_two(async |rt| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
        let address = listener.local_addr()?;
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let packets_to = socket.local_addr()?;
        let connects = rt.spawn(async move |ctx: Context| -> Result<_, Exit> {
            let sender = UdpSocket::bind("127.0.0.1:0").await?;
            let mut streams = Vec::new();
            for n in 0..COUNT {
                streams.push(TcpStream::connect(address).await?);
                sender.send_to(&[n as u8], packets_to).await?;
                for _ in 0..n % 3 {
                    ctx.yield_now().await;
                }
            }
            Ok(streams)
        });
        let (mut accepted, mut received) = (Vec::new(), 0);
        while accepted.len() < COUNT || received < COUNT {
            if let Some(stream) = poll_once(listener.accept()) {
                accepted.push(stream?);
            }
            let mut buf = [0; 1];
            if let Some(packet) = poll_once(socket.recv_from(&mut buf)) {
                packet?;
                assert_eq!(buf[0], received as u8);
                received += 1;
            }
            crate::yield_now().await;
        }
        assert_eq!(connects.await?.len(), COUNT);
        Ok(())
    });
}

/// 12.3c: several futures wait for one socket. If one future is dropped, the other futures still wait, and the socket
/// drops the waker of the dropped future.
#[test]
fn a_dropped_future_does_not_disturb_the_other_futures() {
    on_two(async |rt| {
        let (one, mut other) = pair().await?;
        let one = Arc::new(one);
        let token = Arc::new(());
        let (ready, is_ready) = futures::channel::oneshot::channel();
        let reader = Arc::clone(&one);
        let waits = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            let mut read = Box::pin(read_when_readable(&reader));
            assert!(futures::poll!(&mut read).is_pending());
            let _ = ready.send(());
            read.await?;
            Ok(())
        });
        is_ready.await.expect("the process waits");
        struct Flag(#[expect(dead_code)] Arc<()>);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {}
        }
        for _ in 0..100 {
            let waker = std::task::Waker::from(Arc::new(Flag(Arc::clone(&token))));
            let mut dropped = Box::pin(read_when_readable(&one));
            assert!(dropped.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            drop(waker);
            assert_eq!(Arc::strong_count(&token), 2);
            drop(dropped);
            assert_eq!(Arc::strong_count(&token), 1, "the socket keeps the waker");
        }
        other.write_all(b"x").await?;
        waits.await?;
        Ok(())
    });
}

/// Waker that panics. A field selects whether `wake` panics or the drop of the waker panics.
struct Panics {
    in_wake: bool,
    called: std::sync::mpsc::Sender<()>,
}

impl std::task::Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.called.send(());
        assert!(!self.in_wake, "in a waker, on purpose");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(self.in_wake || std::thread::panicking(), "in the drop of a waker, on purpose");
    }
}

/// 12.6b: a waker that panics stops neither the worker nor the helper thread. For one batch of events, each of these
/// threads may call several wakers that panic.
#[test]
fn a_panicking_waker_disturbs_no_other_operation() {
    for workers in [0, 1] {
        crate::within(60, move || {
            let rt = crate::with(workers);
            let host = rt.host();
            futures::executor::block_on(async {
                let listener = TcpListener::bind_in(host, "127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let mut pairs = Vec::new();
                for _ in 0..4 {
                    pairs.push((TcpStream::connect_in(host, address).await?, listener.accept().await?.0));
                }
                let (called, calls) = std::sync::mpsc::channel();
                for in_wake in [true, false, true, false] {
                    for (one, _) in &mut pairs {
                        let waker = std::task::Waker::from(Arc::new(Panics { in_wake, called: called.clone() }));
                        let mut cx = std::task::Context::from_waker(&waker);
                        assert!(std::pin::Pin::new(&mut *one).poll_read(&mut cx, &mut [0; 1]).is_pending());
                        // After this line, the socket holds the last reference to the waker.
                        drop(waker);
                    }
                    for (_, other) in &mut pairs {
                        other.write_all(b"x").await?;
                    }
                    (0..pairs.len()).for_each(|_| calls.recv().expect("the sender is here"));
                    for (one, _) in &mut pairs {
                        one.read_exact(&mut [0; 1]).await?;
                    }
                }
                std::io::Result::Ok(())
            })
            .unwrap();
        });
    }
}
