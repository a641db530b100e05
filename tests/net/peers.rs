//! Peers that reset their connection, close only one direction of the connection, are slow, or stop reading.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::time::Duration;

use futures::executor::block_on;
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::observe::WorkerState;
use procession::*;

use crate::subprocess::{again_with, role};
use crate::{on_two, pair, round_trip, serve, with, within};

/// 12.6b: if a peer resets its connection, a read and a write of this connection fail. Other connections continue.
#[test]
fn a_reset_ends_only_its_connection() {
    on_two(async |rt| {
        let (healthy, partner) = pair().await?;
        rt.spawn(move |_: Context| crate::echo(partner));
        for waits in [true, false] {
            let (mut one, other) = pair().await?;
            let reader = rt.spawn(async move |_: Context| -> Result<_, Exit> {
                let error = loop {
                    if let Err(error) = one.read(&mut [0; 1]).await {
                        break error.kind();
                    }
                };
                // After the reset, a write fails and a read returns 0 bytes. Neither operation waits.
                let write = one.write(b"x").await.expect_err("the connection is reset").kind();
                Ok((error, write, one.read(&mut [0; 1]).await.ok()))
            });
            if waits {
                round_trip(&healthy, b"in between").await?;
            }
            // With this option, the drop of the stream sends a reset.
            other.options().set_linger(Some(Duration::ZERO))?;
            drop(other);
            assert_eq!(reader.await?, (ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, Some(0)));
            round_trip(&healthy, b"still there").await?;
        }
        Ok(())
    });
}

/// 12.6b: a reset wakes a process that waits in a write, and the write fails.
#[test]
fn a_reset_wakes_a_waiting_write() {
    on_two(async |rt| {
        let (mut one, other) = pair().await?;
        let (ready, is_ready) = futures::channel::oneshot::channel();
        let writer = rt.spawn(async move |_: Context| -> Result<_, Exit> {
            let bytes = vec![0; 64 << 20];
            let mut write = Box::pin(one.write_all(&bytes));
            assert!(futures::poll!(&mut write).is_pending());
            let _ = ready.send(());
            Ok(write.await.expect_err("the peer never reads").kind())
        });
        is_ready.await.expect("the process waits");
        other.options().set_linger(Some(Duration::ZERO))?;
        drop(other);
        let kind = writer.await?;
        assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind:?}");
        Ok(())
    });
}

/// 12.6b: after one side has shut down its write direction, the other direction still transfers data.
#[test]
fn a_half_closed_connection_still_transfers_data_in_the_other_direction() {
    on_two(async |rt| {
        let (mut one, mut other) = pair().await?;
        one.shutdown(Shutdown::Write)?;
        let sender = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            assert_eq!(other.read(&mut [0; 8]).await?, 0);
            for part in 0..100_u8 {
                other.write_all(&[part; 100_000]).await?;
            }
            Ok(())
        });
        let mut all = Vec::new();
        one.read_to_end(&mut all).await?;
        assert_eq!(all.len(), 10_000_000);
        sender.await?;
        // A shutdown of the read direction wakes a read that already waits.
        let (one, _other) = pair().await?;
        let mut buf = [0; 1];
        let mut reference = &one;
        let mut read = Box::pin(reference.read(&mut buf));
        assert!(futures::poll!(&mut read).is_pending());
        one.shutdown(Shutdown::Read)?;
        assert_eq!(read.await?, 0);
        Ok(())
    });
}

/// 12.6b: one peer sends single bytes, and gets these bytes back in order. When the peer sends a byte, both workers are
/// parked. When a peer sends one byte per minute, both workers are also parked at each byte. Between two bytes, the
/// server serves another connection.
#[test]
fn an_idle_runtime_serves_single_bytes() {
    use std::io::{Read, Write};
    within(60, || {
        let rt = with(2);
        let listener = block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        let mut slow = std::net::TcpStream::connect(address).unwrap();
        slow.set_nodelay(true).unwrap();
        let mut fast = std::net::TcpStream::connect(address).unwrap();
        let mut back = [0; 1_000];
        for byte in 0..=u8::MAX {
            fast.write_all(&[byte; 1_000]).unwrap();
            fast.read_exact(&mut back).unwrap();
            assert_eq!(back, [byte; 1_000]);
            while rt.metrics().workers_in(WorkerState::Parked) != 2 {
                std::thread::yield_now();
            }
            slow.write_all(&[byte]).unwrap();
            slow.read_exact(&mut back[..1]).unwrap();
            assert_eq!(back[0], byte);
        }
    });
}

/// 12.6b: if a peer stops reading, a write to this peer waits, and other connections continue. The write completes when
/// the peer reads again.
#[test]
fn a_stalled_peer_delays_only_the_writer_of_its_connection() {
    const BYTES: usize = 32 << 20;
    on_two(async |rt| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        let (mut one, mut other) = pair().await?;
        let (ready, is_ready) = futures::channel::oneshot::channel();
        let writer = rt.spawn(async move |_: Context| -> Result<(), Exit> {
            let bytes = vec![9; BYTES];
            let mut write = Box::pin(one.write_all(&bytes));
            assert!(futures::poll!(&mut write).is_pending());
            let _ = ready.send(());
            write.await?;
            one.close().await?;
            Ok(())
        });
        is_ready.await.expect("the process waits");
        let stream = TcpStream::connect(address).await?;
        for trip in 0..100 {
            round_trip(&stream, &[trip; 1_000]).await?;
        }
        let mut all = Vec::new();
        other.read_to_end(&mut all).await?;
        assert_eq!(all.len(), BYTES);
        writer.await
    });
}

/// 12.6b: clients connect, and reset their connections before the server calls `accept`. The listener still accepts
/// later connections.
#[test]
fn clients_that_vanish_before_accept_do_not_disturb_the_listener() {
    on_two(async |rt| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        for _ in 0..50 {
            let stream = std::net::TcpStream::connect(address)?;
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        }
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        round_trip(&TcpStream::connect(address).await?, b"abc").await?;
        Ok(())
    });
}

/// 12.6b: the program of a peer is killed while its connection is open. The read of the server on this connection
/// returns the end of the stream, or fails because of a reset. Another connection continues.
#[test]
fn a_killed_peer_ends_only_its_connection() {
    const ADDRESS: &str = "PROCESSION_ADDRESS";
    if role().is_some() {
        let mut stream = std::net::TcpStream::connect(std::env::var(ADDRESS).expect("the address")).unwrap();
        std::io::Write::write_all(&mut stream, b"half a mess").unwrap();
        std::io::Read::read_exact(&mut stream, &mut [0; 1]).unwrap();
        std::process::abort();
    }
    on_two(async |rt| {
        let (healthy, partner) = pair().await?;
        rt.spawn(move |_: Context| crate::echo(partner));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let peer = std::thread::spawn(move || {
            again_with(a_killed_peer_ends_only_its_connection, "peer", 50, |command| {
                command.env(ADDRESS, address);
            })
            .died();
        });
        let (mut stream, _) = listener.accept().await?;
        let mut message = [0; 12];
        stream.read_exact(&mut message[..11]).await?;
        round_trip(&healthy, b"before").await?;
        stream.write_all(b"x").await?;
        // The last byte of the message never arrives.
        let error = stream.read_exact(&mut message[11..]).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
        round_trip(&healthy, b"after").await?;
        peer.join().expect("the peer was killed");
        Ok(())
    });
}

/// 12.6b: a peer sends nothing, so the time limit of a read from this peer expires. While this read waits, a second
/// connection is served. After the time limit has expired, the connection of the silent peer still works.
#[test]
fn a_read_from_a_silent_peer_times_out_and_delays_no_other_connection() {
    on_two(async |rt| {
        let (healthy, partner) = pair().await?;
        rt.spawn(move |_: Context| crate::echo(partner));
        let (mut one, mut other) = pair().await?;
        let limited = rt.spawn(async move |ctx: Context| -> Result<_, Exit> {
            let mut buf = [0; 8];
            for _ in 0..5 {
                assert!(ctx.timeout(Duration::from_millis(10), one.read(&mut buf)).await.is_err(), "no byte was sent");
            }
            Ok(one)
        });
        for trip in 0..100 {
            round_trip(&healthy, &[trip; 100]).await?;
        }
        let mut one = limited.await?;
        other.write_all(b"late").await?;
        let mut buf = [0; 4];
        one.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"late");
        Ok(())
    });
}
