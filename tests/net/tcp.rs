//! TCP streams, their halves, listeners, and options.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Write};
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, TryStreamExt};
use procession::net::{TcpListener, TcpSocket, TcpStream};
use procession::*;

use crate::{on_two, pair, round_trip, serve};

/// 12.2a, 12.2e: a stream transfers bytes in both directions. `peek` leaves the bytes in the socket. At the end of the
/// stream, a read returns 0 bytes.
#[test]
fn a_stream_can_be_read_and_peeked_until_its_end() {
    on_two(async |_| {
        let (mut one, mut other) = pair().await?;
        let mut buf = [0; 8];
        assert_eq!(one.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(other.try_write(b"abc")?, 3);
        assert_eq!(one.peek(&mut buf).await?, 3);
        one.readable().await?;
        assert_eq!((one.try_read(&mut buf)?, &buf[..3]), (3, &b"abc"[..]));
        assert_eq!(one.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        one.writable().await?;
        assert_eq!(one.write_vectored(&[IoSlice::new(b"de"), IoSlice::new(b"f")]).await?, 3);
        let (mut first, mut second) = ([0; 1], [0; 2]);
        let mut bufs = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(other.read_vectored(&mut bufs).await?, 3);
        assert_eq!((first, second), (*b"d", *b"ef"));
        one.close().await?;
        assert_eq!(other.read(&mut buf).await?, 0);
        assert_eq!(other.try_read(&mut buf)?, 0, "the end stays");
        // The direction from `other` to `one` is still open.
        other.write_all(b"g").await?;
        one.flush().await?;
        assert_eq!(one.read(&mut buf).await?, 1);
        assert_eq!(one.peer_addr()?, other.local_addr()?);
        Ok(())
    });
}

/// 12.2e: if an operation has many buffers, one system call transfers only some of these buffers. The next write and
/// the next read do not wait for an event.
#[test]
fn a_vectored_transfer_of_many_buffers_continues_without_waiting() {
    on_two(async |_| {
        let (mut one, mut other) = pair().await?;
        let (mut written, mut read) = (0, 0);
        while written < 30_000 {
            let bufs = vec![IoSlice::new(b"0123456789"); (30_000 - written) / 10];
            written += one.write_vectored(&bufs).await?;
            assert_eq!(written % 10, 0, "the buffer of the system is large enough");
        }
        while read < 30_000 {
            let mut bytes = vec![0; 30_000 - read];
            let mut bufs: Vec<_> = bytes.chunks_mut(10).map(IoSliceMut::new).collect();
            read += other.read_vectored(&mut bufs).await?;
        }
        Ok(())
    });
}

/// 12.2a: two processes use the two halves of a stream. After these transfers, the two halves become one stream again.
#[test]
fn the_halves_of_a_stream_work_in_two_processes_and_reunite() {
    const BYTES: usize = 4 << 20;
    on_two(async |rt| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        rt.spawn(move |ctx: Context| serve(ctx, listener));
        let (mut read, mut write) = TcpStream::connect(address).await?.into_split();
        assert_eq!((read.peer_addr()?, write.peer_addr()?), (address, address));
        assert_eq!((read.local_addr()?, write.local_addr()?), (read.as_ref().local_addr()?, read.local_addr()?));
        assert_ne!(read.local_addr()?, address);
        let writer = rt.spawn(async move |_: Context| -> Result<_, Exit> {
            let part: Vec<u8> = (0..=u8::MAX).cycle().take(BYTES / 4).collect();
            for _ in 0..4 {
                write.write_all(&part).await?;
            }
            write.writable().await?;
            Ok(write)
        });
        let reader = rt.spawn(async move |_: Context| -> Result<_, Exit> {
            let mut all = vec![0; BYTES];
            read.read_exact(&mut all).await?;
            assert!(all.iter().enumerate().all(|(at, byte)| *byte == at as u8));
            Ok(read)
        });
        let (read, write) = (reader.await?, writer.await?);
        let (other_read, other_write) = TcpStream::connect(address).await?.into_split();
        let error = read.reunite(other_write).unwrap_err();
        let stream = error.0.reunite(write).unwrap();
        round_trip(&stream, b"together").await?;
        round_trip(&other_read.reunite(error.1).unwrap(), b"too").await?;
        Ok(())
    });
}

/// 12.2a: if the write half is dropped, the peer reads the end of the stream. The read half still receives.
#[test]
fn a_dropped_write_half_ends_one_direction() {
    on_two(async |_| {
        let (one, mut other) = pair().await?;
        let (mut read, write) = one.into_split();
        drop(write);
        let mut all = Vec::new();
        other.read_to_end(&mut all).await?;
        other.write_all(b"still open").await?;
        drop(other);
        read.read_to_end(&mut all).await?;
        assert_eq!(all, b"still open");
        assert_eq!(read.try_read(&mut [0; 1])?, 0);
        Ok(())
    });
}

/// 12.2a: if the write half is forgotten, the peer does not read the end of the stream. When the read half is dropped
/// too, the stream is closed. The write half has the vectored writes. The read half has the vectored reads and `peek`.
#[test]
fn a_forgotten_write_half_does_not_end_its_direction() {
    on_two(async |_| {
        let (one, mut other) = pair().await?;
        let (read, write) = one.into_split();
        write.as_ref().set_nodelay(true)?;
        assert_eq!(write.try_write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")])?, 2);
        let mut buf = [0; 8];
        other.read_exact(&mut buf[..2]).await?;
        write.forget();
        other.write_all(b"cd").await?;
        while read.peek(&mut buf).await? < 2 {}
        let (mut first, mut second) = ([0; 1], [0; 1]);
        let bufs = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(read.try_read_vectored(bufs)?, 2);
        assert_eq!((first, second), (*b"c", *b"d"));
        // The bytes that the peer has sent have already arrived. Nevertheless, the read of the peer does not return the
        // end of the stream.
        assert!(crate::poll_once(other.read(&mut buf)).is_none());
        drop(read);
        assert_eq!(other.read(&mut buf).await?, 0);
        Ok(())
    });
}

/// 12.2c: before the first call of `accept`, a listener queues 1,000 connections.
#[test]
#[cfg(target_os = "linux")]
fn a_listener_queues_a_thousand_connections() {
    let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("the limit of the system");
    // The system reduces a backlog to this limit.
    let count = limit.trim().parse().map_or(1_000, |limit: usize| limit.min(1_000));
    on_two(async move |_| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // If the queue were full, the system would drop the request, and `connect` would wait.
        let peers = (0..count).map(|_| std::net::TcpStream::connect(address)).collect::<Result<Vec<_>, _>>()?;
        for peer in peers {
            let (stream, address) = listener.accept().await?;
            assert_eq!((stream.peer_addr()?, peer.local_addr()?), (address, address));
        }
        Ok(())
    });
}

/// 12.2c: listeners, streams and sockets return their pending error, and lend their descriptor to other crates. With a
/// linger time of zero, the drop of a stream sends a reset.
#[test]
fn tcp_sockets_return_their_error_and_lend_their_descriptor() {
    on_two(async |_| {
        let (one, other) = pair().await?;
        assert_eq!(one.linger()?, None);
        one.set_zero_linger()?;
        assert_eq!(one.linger()?, Some(Duration::ZERO));
        assert!(other.take_error()?.is_none());
        drop(one);
        // The reset arrives when no process has a copy of the descriptor of `one` any more.
        let error = loop {
            match other.take_error()? {
                Some(error) => break error,
                None => crate::yield_now().await,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let listener = TcpListener::from_std(TcpListener::bind("127.0.0.1:0").await?.into_std())?;
        let address = listener.local_addr()?;
        assert!(listener.take_error()?.is_none() && listener.options().reuse_address()? != cfg!(windows));
        let socket = TcpSocket::new_v4()?;
        socket.set_zero_linger()?;
        assert_eq!(socket2::SockRef::from(&socket).linger()?, Some(Duration::ZERO));
        let stream = socket.connect(address).await?;
        assert_eq!(socket2::SockRef::from(&stream).linger()?, Some(Duration::ZERO));
        assert_eq!(socket2::SockRef::from(&listener).local_addr()?.as_socket(), Some(address));
        #[cfg(unix)]
        {
            use std::os::fd::{AsFd, AsRawFd};
            assert_eq!(stream.as_fd().as_raw_fd(), stream.as_raw_fd());
        }
        let (accepted, _) = listener.accept().await?;
        let mut bytes = [0; 3];
        let (first, second) = bytes.split_at_mut(1);
        let bufs = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
        assert_eq!(accepted.try_read_vectored(bufs).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(stream.try_write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"c")])?, 3);
        while accepted.peek(&mut [0; 3]).await? < 3 {}
        assert_eq!(accepted.try_read_vectored(bufs)?, 3);
        assert_eq!(&bytes, b"abc");
        Ok(())
    });
}

/// 12.2a: `incoming` returns the accepted connections. Several processes can accept from one listener, and each
/// connection is accepted by one of these processes.
#[test]
fn several_processes_accept_from_one_listener() {
    const EACH: usize = 20;
    on_two(async |rt| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
        let address = listener.local_addr()?;
        let acceptors: Vec<_> = (0..4)
            .map(|_| {
                let listener = Arc::clone(&listener);
                rt.spawn(async move |_: Context| -> Result<_, Exit> {
                    let mut streams = Vec::new();
                    for _ in 0..EACH {
                        let (stream, peer) = listener.accept().await?;
                        assert_eq!(stream.peer_addr()?, peer);
                        streams.push(stream);
                    }
                    Ok(streams.len())
                })
            })
            .collect();
        let mut streams = Vec::new();
        for _ in 0..4 * EACH {
            streams.push(TcpStream::connect(address).await?);
        }
        for acceptor in acceptors {
            assert_eq!(acceptor.await?, EACH);
        }
        let connect = TcpStream::connect(address);
        let (accepted, connected) = futures::join!(async { listener.incoming().next().await }, connect);
        assert_eq!(accepted.expect("a listener never ends")?.peer_addr()?, connected?.local_addr()?);
        let firsts: Vec<_> =
            futures::join!(async { listener.incoming().take(2).try_collect::<Vec<_>>().await }, async {
                (TcpStream::connect(address).await, TcpStream::connect(address).await)
            })
            .0?;
        assert_eq!(firsts.len(), 2);
        Ok(())
    });
}

/// 12.2c: a `TcpSocket` sets options, and the system returns the same values.
#[test]
fn options_are_set_and_read_back() {
    on_two(async |_| {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuse_address(true)?;
        socket.set_nodelay(true)?;
        socket.set_send_buffer_size(64 << 10)?;
        socket.set_recv_buffer_size(32 << 10)?;
        socket.set_keepalive(Some(Duration::from_secs(77)))?;
        assert!(socket.options().reuse_address()? && socket.options().keepalive()?);
        // Linux may double a buffer size, because the kernel needs memory for its own data.
        assert!((64 << 10..=128 << 10).contains(&socket.options().send_buffer_size()?));
        assert!((32 << 10..=64 << 10).contains(&socket.options().recv_buffer_size()?));
        #[cfg(unix)]
        assert_eq!(socket.options().tcp_keepalive_time()?, Duration::from_secs(77));
        socket.set_keepalive(None)?;
        assert!(!socket.options().keepalive()?);
        socket.bind("127.0.0.1:0".parse().expect("an address"))?;
        let address = socket.local_addr()?;
        let listener = socket.listen(1)?;
        assert_eq!(listener.local_addr()?, address);
        listener.set_ttl(42)?;
        assert_eq!(listener.ttl()?, 42);

        let socket = TcpSocket::new_v4()?;
        socket.set_nodelay(true)?;
        let stream = socket.connect(address).await?;
        assert!(stream.nodelay()?);
        stream.set_nodelay(false)?;
        stream.set_ttl(41)?;
        assert_eq!((stream.nodelay()?, stream.ttl()?), (false, 41));
        stream.options().set_recv_buffer_size(64 << 10)?;
        assert!(stream.options().recv_buffer_size()? >= 64 << 10);
        listener.accept().await?;
        Ok(())
    });
}

/// 12.2c: the time of `set_keepalive` is rounded up to whole seconds. If the time is refused, the option stays
/// disabled.
#[test]
#[cfg(target_os = "linux")]
fn the_keepalive_time_is_rounded_up() {
    on_two(async |_| {
        let socket = TcpSocket::new_v4()?;
        socket.set_keepalive(Some(Duration::from_secs(1 << 40))).unwrap_err();
        assert!(!socket.options().keepalive()?);
        for (millis, seconds) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (1_900, 2), (77_000, 77)] {
            socket.set_keepalive(Some(Duration::from_millis(millis)))?;
            assert!(socket.options().keepalive()?);
            assert_eq!(socket.options().tcp_keepalive_time()?.as_secs(), seconds, "{millis} ms");
        }
        socket.set_keepalive(Some(Duration::MAX)).unwrap_err();
        assert!(socket.options().keepalive()?, "the earlier call has enabled the option");
        Ok(())
    });
}

/// 12.2c: with the option `SO_REUSEPORT`, two listeners can have the same address. Each connection is accepted by one
/// of the two listeners.
#[test]
#[cfg(target_os = "linux")]
fn two_listeners_share_a_port() {
    on_two(async |_| {
        let listen = |address: std::net::SocketAddr| -> std::io::Result<_> {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuse_port(true)?;
            socket.bind(address)?;
            socket.listen(16)
        };
        let one = listen("127.0.0.1:0".parse().expect("an address"))?;
        let other = listen(one.local_addr()?)?;
        assert_eq!(TcpListener::bind(one.local_addr()?).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        for _ in 0..20 {
            let (stream, accepted) = futures::join!(
                TcpStream::connect(one.local_addr()?),
                futures::future::select(Box::pin(one.accept()), Box::pin(other.accept()))
            );
            assert_eq!(accepted.factor_first().0?.1, stream?.local_addr()?);
        }
        Ok(())
    });
}

/// 12.2c: if a connection is refused, `connect` returns the error of the system. `connect` tries each address of a
/// list.
#[test]
fn a_refused_connection_returns_the_error_of_the_system() {
    on_two(async |_| {
        // This socket has a port but does not listen, so the system refuses a connection to this port.
        let silent = TcpSocket::new_v4()?;
        silent.bind("127.0.0.1:0".parse().expect("an address"))?;
        let refused = silent.local_addr()?;
        for _ in 0..100 {
            assert_eq!(TcpStream::connect(refused).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let error = TcpSocket::new_v4()?.connect(refused).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let stream = TcpStream::connect(&[refused, listener.local_addr()?][..]).await?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        let error = TcpStream::connect(Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "the name or the list has no address");
        Ok(())
    });
}

/// 12.2a: a socket of the standard library can be converted into a socket of the runtime, and a socket of the runtime
/// can be converted back.
#[test]
fn sockets_of_the_standard_library_convert_both_ways() {
    on_two(async |_| {
        let listener = TcpListener::from_std(std::net::TcpListener::bind("127.0.0.1:0")?)?;
        let mut peer = std::net::TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept().await?;
        peer.write_all(b"x")?;
        accepted.readable().await?;
        let std = accepted.into_std();
        std.set_nonblocking(false)?;
        let mut again = TcpStream::from_std(std)?;
        let mut buf = [0; 8];
        assert_eq!(again.read(&mut buf).await?, 1);
        // The stream was deregistered and registered again. The events of the stream must still arrive.
        assert!(crate::poll_once(again.read(&mut buf)).is_none());
        peer.write_all(b"yz")?;
        assert_eq!(again.read(&mut buf).await?, 2);
        Ok(())
    });
}

/// 12.2a: several futures wait for the same direction of a stream, and each of these futures gets a byte.
#[test]
fn several_futures_wait_for_one_direction() {
    on_two(async |rt| {
        let (one, mut other) = pair().await?;
        let one = Arc::new(one);
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let one = Arc::clone(&one);
                rt.spawn(async move |_: Context| -> Result<_, Exit> { Ok(crate::read_when_readable(&one).await?) })
            })
            .collect();
        for _ in 0..8 {
            other.write_all(b"x").await?;
        }
        for reader in waiting {
            assert_eq!(reader.await?, b'x');
        }
        Ok(())
    });
}

/// 12.2c: with the option `TCP_FASTOPEN_CONNECT`, the system opens the connection with the first write. `connect` does
/// not wait for the connection.
#[test]
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn a_connect_does_not_wait_if_the_first_write_opens_the_connection() {
    use std::os::fd::AsRawFd;
    on_two(async |_| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        for _ in 0..2 {
            let socket = TcpSocket::new_v4()?;
            let (on, size) = (1_i32, size_of::<i32>() as libc::socklen_t);
            // Without `TCP_FASTOPEN_NO_COOKIE`, the system uses `TCP_FASTOPEN_CONNECT` only if the system has a cookie
            // of the server.
            for option in [libc::TCP_FASTOPEN_CONNECT, libc::TCP_FASTOPEN_NO_COOKIE] {
                // SAFETY: the descriptor is open, and the value has the given size.
                let set = unsafe {
                    libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const on).cast(), size)
                };
                if set != 0 {
                    // The option is turned off on this system, or the kernel does not support the option.
                    eprintln!("no TCP fast open: {}", std::io::Error::last_os_error());
                    return Ok(());
                }
            }
            let mut stream = socket.connect(address).await?;
            stream.write_all(b"abc").await?;
            let (mut accepted, peer) = listener.accept().await?;
            assert_eq!(peer, stream.local_addr()?);
            let mut read = [0; 3];
            accepted.read_exact(&mut read).await?;
            assert_eq!(&read, b"abc");
        }
        Ok(())
    });
}

/// 12.3c: a read returns only the bytes before urgent data, although more bytes have arrived. The next read returns the
/// bytes that follow the urgent data.
#[test]
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn urgent_data_does_not_hide_the_bytes_behind_it() {
    use std::os::fd::AsRawFd;
    on_two(async |_| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut peer = std::net::TcpStream::connect(listener.local_addr()?)?;
        peer.set_nodelay(true)?;
        let (mut stream, _) = listener.accept().await?;
        let mut buf = [0; 64];
        // After this read, no event from the registration of the stream is pending.
        peer.write_all(b"0")?;
        assert_eq!(stream.read(&mut buf).await?, 1);
        for _ in 0..20 {
            peer.write_all(b"abc")?;
            // SAFETY: the descriptor is open, and the buffer has one byte.
            assert_eq!(unsafe { libc::send(peer.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) }, 1);
            peer.write_all(b"def")?;
            let mut all = Vec::new();
            while all.len() < 6 {
                let count = stream.read(&mut buf).await?;
                assert_ne!(count, 0);
                all.extend_from_slice(&buf[..count]);
                // Before the next read, the worker takes all present events from the poller.
                for _ in 0..200 {
                    crate::yield_now().await;
                }
            }
            assert_eq!(all, b"abcdef");
        }
        Ok(())
    });
}

/// 12.2a: two `incoming` streams of one listener wait for a connection. After one of these streams was dropped, the
/// other stream still gets a connection.
#[test]
fn several_incoming_streams_wait_for_one_listener() {
    on_two(async |rt| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
        let shared = Arc::clone(&listener);
        let waits = rt.spawn(async move |_: Context| {
            let accepted = shared.incoming().next().await.expect("the runtime has not ended");
            accepted.map(drop)
        });
        let is_waiting = || {
            let details = rt.process_details(waits.pid()).expect("it waits for a connection");
            details.info.state == Some(observe::ProcessState::Idle)
        };
        while !is_waiting() {
            crate::yield_now().await;
        }
        // The `incoming` stream on the next line begins to wait after the `incoming` stream of the process. The stream
        // on the next line is dropped before the client connects.
        assert!(crate::poll_once(listener.incoming().next()).is_none());
        let _client = TcpStream::connect(listener.local_addr()?).await?;
        waits.await?;
        Ok(())
    });
}

/// 12.4c: after the end of the runtime, the stream of `incoming` yields one error and then ends.
#[test]
fn the_stream_of_connections_ends_after_the_runtime() {
    crate::within(60, || {
        let rt = crate::with(1);
        let listener = futures::executor::block_on(TcpListener::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
        drop(rt);
        let items: Vec<_> = futures::executor::block_on(listener.incoming().take(3).collect());
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].as_ref().unwrap_err().kind(), ErrorKind::NotConnected);
    });
}
