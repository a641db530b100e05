//! Unix domain sockets.

#![allow(unsafe_code)]

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{UnixDatagram, UnixListener, UnixStream};
use procession::*;

use crate::on_two;

/// Path for a socket. When this value is dropped, the file at the path is removed.
pub(crate) struct SocketPath(PathBuf);

impl SocketPath {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("procession-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        Self(std::env::temp_dir().join(name))
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// 12.2a: each of several clients connects to the path of a listener, and gets back the bytes that the client sends.
/// After a client has shut down its write direction, the client reads the end of the stream.
#[test]
fn streams_connect_to_a_path() {
    on_two(async |rt| {
        let path = SocketPath::new();
        assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
        let listener = UnixListener::bind(&path)?;
        assert_eq!(UnixListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(listener.local_addr()?.as_pathname(), Some(path.as_ref()));
        rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
            loop {
                let (stream, _) = listener.accept().await?;
                ctx.spawn(async move |_: Context| -> Result<(), Exit> {
                    futures::io::copy(&stream, &mut &stream).await?;
                    Ok(())
                });
            }
        });
        for _ in 0..20 {
            let mut stream = UnixStream::connect(&path).await?;
            let mut back = vec![0; 300_000];
            // The client reads and writes concurrently. Without this concurrent read, the client and the server could
            // wait for each other. The reason is that Linux reports a Unix socket as writable only when the peer has
            // read three quarters of the buffer.
            let (mut reader, mut writer) = (&stream, &stream);
            futures::try_join!(writer.write_all(&[7; 300_000]), reader.read_exact(&mut back))?;
            stream.shutdown(Shutdown::Write)?;
            assert_eq!(stream.read(&mut back).await?, 0);
            assert_eq!(stream.peer_addr()?.as_pathname(), Some(path.as_ref()));
        }
        Ok(())
    });
}

/// 12.2a: a connected pair of streams supports conversions to the standard library and back, and operations that do not
/// wait.
#[test]
fn a_pair_of_streams_supports_conversions_and_operations_that_do_not_wait() {
    on_two(async |_| {
        let (one, mut other) = UnixStream::pair()?;
        let mut buf = [0; 8];
        assert_eq!(one.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        other.write_all(b"abc").await?;
        one.readable().await?;
        assert_eq!(one.try_read(&mut buf)?, 3);
        let mut one = UnixStream::from_std(one.into_std())?;
        assert!(crate::poll_once(one.read(&mut buf)).is_none());
        other.writable().await?;
        assert_eq!(other.try_write(b"d")?, 1);
        assert_eq!(one.read(&mut buf).await?, 1);
        drop(other);
        assert_eq!(one.read(&mut buf).await?, 0);
        assert_eq!(one.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        one.close().await?;
        Ok(())
    });
}

/// 12.2a: a datagram socket sends to a path, to its connected path, or to the other socket of a pair.
#[test]
fn datagrams_reach_the_socket_that_they_were_sent_to() {
    on_two(async |_| {
        let (path, answers) = (SocketPath::new(), SocketPath::new());
        let server = UnixDatagram::bind(&path)?;
        let client = UnixDatagram::bind(&answers)?;
        let mut buf = [0; 8];
        assert_eq!(client.send_to(b"abc", &path).await?, 3);
        let (count, from) = server.recv_from(&mut buf).await?;
        assert_eq!((count, from.as_pathname()), (3, Some(answers.as_ref())));
        server.connect(&answers)?;
        server.send(b"answer").await?;
        assert_eq!(client.recv(&mut buf).await?, 6);
        UnixDatagram::unbound()?.send_to(b"x", &path).await.unwrap_err();
        let (one, other) = UnixDatagram::pair()?;
        one.send(b"long packet").await?;
        assert_eq!((other.recv(&mut buf).await?, &buf), (8, b"long pac"));
        Ok(())
    });
}

/// 12.2a: two processes use the two halves of a Unix stream. After these transfers, the two halves become one stream
/// again. If the write half is dropped, the peer reads the end of the stream. If the write half is forgotten, the peer
/// does not read the end of the stream.
#[test]
fn the_halves_of_a_unix_stream_work_in_two_processes_and_reunite() {
    const BYTES: usize = 4 << 20;
    on_two(async |rt| {
        let (one, other) = UnixStream::pair()?;
        rt.spawn(async move |_: Context| -> Result<(), Exit> {
            futures::io::copy(&other, &mut &other).await?;
            Ok(())
        });
        let (mut read, mut write) = one.into_split();
        assert!(read.peer_addr()?.is_unnamed() && write.peer_addr()?.is_unnamed());
        assert!(read.local_addr()?.is_unnamed() && write.local_addr()?.is_unnamed());
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
        let (one, mut other) = UnixStream::pair()?;
        let (other_read, other_write) = one.into_split();
        let error = read.reunite(other_write).unwrap_err();
        let mut stream = error.0.reunite(write).unwrap();
        stream.write_all(b"together").await?;
        stream.read_exact(&mut [0; 8]).await?;

        // The two halves of the other stream are dropped one after the other.
        let mut buf = [0; 8];
        assert_eq!(error.1.try_write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")])?, 2);
        assert_eq!(other.read(&mut buf).await?, 2);
        error.1.forget();
        assert!(crate::poll_once(other.read(&mut buf)).is_none(), "no end of the stream");
        other.write_all(b"cd").await?;
        let (mut first, mut second) = ([0; 1], [0; 1]);
        let count = loop {
            other_read.readable().await?;
            let bufs = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            match other_read.try_read_vectored(bufs) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break result?,
            }
        };
        assert_eq!((count, first, second), (2, *b"c", *b"d"));
        drop(other_read);
        assert_eq!(other.read(&mut buf).await?, 0, "both halves are dropped");
        let (one, mut other) = UnixStream::pair()?;
        let (mut read, write) = one.into_split();
        drop(write);
        assert_eq!(other.read(&mut buf).await?, 0);
        other.write_all(b"e").await?;
        drop(other);
        let mut all = Vec::new();
        read.read_to_end(&mut all).await?;
        assert_eq!(all, b"e");
        Ok(())
    });
}

/// 12.2a: a datagram socket supports poll functions, operations that do not wait, and conversions to the standard
/// library.
#[test]
fn datagram_sockets_support_conversions_and_operations_that_do_not_wait() {
    on_two(async |_| {
        let path = SocketPath::new();
        let server = UnixDatagram::bind(&path)?;
        let mut buf = [0; 8];
        assert_eq!(server.try_recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        let client = UnixDatagram::unbound()?;
        client.peer_addr().unwrap_err();
        client.writable().await?;
        assert_eq!(client.try_send_to(b"a", &path)?, 1);
        assert_eq!(poll_fn(|cx| server.poll_recv(cx, &mut buf)).await?, 1);
        client.connect(&path)?;
        assert_eq!(client.peer_addr()?.as_pathname(), Some(path.as_ref()));
        assert_eq!(client.try_send(b"bc")?, 2);
        let (count, from) = poll_fn(|cx| server.poll_recv_from(cx, &mut buf)).await?;
        assert!(count == 2 && from.is_unnamed());
        assert_eq!(poll_fn(|cx| client.poll_send(cx, b"def")).await?, 3);
        assert_eq!(poll_fn(|cx| client.poll_send_to(cx, b"ghij", &path)).await?, 4);
        let mut counts = Vec::new();
        while counts.len() < 2 {
            server.readable().await?;
            match server.try_recv(&mut buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => counts.push(result?),
            }
        }
        assert_eq!(counts, [3, 4]);
        let server = UnixDatagram::from_std(server.into_std())?;
        // The socket was deregistered and registered again. The events of this socket must still arrive.
        let mut receive = Box::pin(server.recv(&mut buf));
        assert!(futures::poll!(&mut receive).is_pending());
        client.send(b"k").await?;
        assert_eq!(receive.await?, 1);
        assert!(server.take_error()?.is_none());
        server.options().set_recv_buffer_size(64 << 10)?;
        let (one, other) = UnixDatagram::pair()?;
        one.shutdown(Shutdown::Write)?;
        assert_eq!(one.send(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        drop(other);
        Ok(())
    });
}

/// 12.2a: a listener and a stream use a name in the abstract namespace, which needs no file.
#[test]
#[cfg(target_os = "linux")]
fn streams_connect_to_a_name_in_the_abstract_namespace() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    on_two(async |_| {
        let name = SocketPath::new();
        let address = SocketAddr::from_abstract_name(name.0.as_os_str().as_encoded_bytes())?;
        let listener = UnixListener::bind_addr(&address)?;
        assert_eq!(listener.local_addr()?.as_abstract_name(), address.as_abstract_name());
        let (connected, accepted) = futures::join!(UnixStream::connect_addr(&address), listener.accept());
        let (mut one, mut other) = (connected?, accepted?.0);
        one.write_all(b"x").await?;
        assert_eq!(other.read(&mut [0; 2]).await?, 1);
        assert!(!name.0.exists());
        Ok(())
    });
}

/// 12.2a: after the read side of a datagram socket was closed, the first receive operations return the queued packets.
/// Each later receive operation returns 0 bytes. A receive operation that already waits also returns 0 bytes, and so
/// does a receive operation of a socket whose read side was closed before the registration.
#[test]
fn a_receive_from_a_closed_datagram_socket_ends() {
    on_two(async |rt| {
        let mut buf = [0; 8];
        let (one, other) = UnixDatagram::pair()?;
        other.send(b"abc").await?;
        one.shutdown(Shutdown::Read)?;
        // Linux keeps the queued packet. macOS discards the packet.
        #[cfg(target_os = "linux")]
        assert_eq!(one.recv(&mut buf).await?, 3);
        for _ in 0..3 {
            assert_eq!(one.recv(&mut buf).await?, 0);
            let (count, from) = one.recv_from(&mut buf).await?;
            assert!(count == 0 && from.is_unnamed());
            one.readable().await?;
        }
        // The socket has reported the end, so the other functions report the end immediately.
        assert_eq!((one.try_recv(&mut buf)?, one.try_recv_from(&mut buf)?.0), (0, 0));
        assert_eq!(poll_fn(|cx| one.poll_recv(cx, &mut buf)).await?, 0);
        assert_eq!(poll_fn(|cx| one.poll_recv_from(cx, &mut buf)).await?.0, 0);
        // The write side is still open.
        one.send(b"de").await?;
        assert_eq!(other.recv(&mut buf).await?, 2);

        let (one, _other) = UnixDatagram::pair()?;
        let one = Arc::new(one);
        let (ready, is_ready) = futures::channel::oneshot::channel();
        let shared = Arc::clone(&one);
        let receives = rt.spawn(async move |_: Context| -> Result<_, Exit> {
            let mut buf = [0; 8];
            let mut receive = Box::pin(shared.recv(&mut buf));
            assert!(futures::poll!(&mut receive).is_pending());
            ready.send(()).expect("the test waits");
            Ok(receive.await?)
        });
        is_ready.await.expect("the process waits");
        one.shutdown(Shutdown::Both)?;
        assert_eq!(receives.await?, 0);

        let (one, _other) = std::os::unix::net::UnixDatagram::pair()?;
        one.shutdown(Shutdown::Read)?;
        assert_eq!(UnixDatagram::from_std(one)?.recv(&mut buf).await?, 0);
        Ok(())
    });
}

/// 12.2a: `accept` returns the abstract name of the peer. An abstract name may begin with a zero byte.
#[test]
#[cfg(target_os = "linux")]
fn accept_returns_the_abstract_name_of_the_peer() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::SocketAddr;

    /// Returns a new abstract name that begins with `prefix`.
    fn name(prefix: &[u8]) -> Vec<u8> {
        [prefix, SocketPath::new().0.as_os_str().as_encoded_bytes()].concat()
    }
    /// Connects a blocking stream that is bound to the name `from`. In the standard library, no function connects a
    /// stream that is bound to a name.
    fn connect(from: &[u8], to: &[u8]) -> std::io::Result<socket2::Socket> {
        let address = |name: &[u8]| socket2::SockAddr::unix(std::ffi::OsStr::from_bytes(&[b"\0", name].concat()));
        let stream = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        stream.bind(&address(from)?)?;
        stream.connect(&address(to)?)?;
        Ok(stream)
    }
    on_two(async |_| {
        for prefix in [&b""[..], b"\0", b"\0\0"] {
            let (server, one, other) = (name(prefix), name(prefix), name(prefix));
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&server)?)?;
            assert_eq!(listener.local_addr()?.as_abstract_name(), Some(&*server));
            let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&server)?).await?;
            assert_eq!(stream.peer_addr()?.as_abstract_name(), Some(&*server));
            assert!(listener.accept().await?.1.is_unnamed());
            let _connected = [connect(&one, &server)?, connect(&other, &server)?];
            assert_eq!(listener.accept().await?.1.as_abstract_name(), Some(&*one));
            assert_eq!(poll_fn(|cx| listener.poll_accept(cx)).await?.1.as_abstract_name(), Some(&*other));
        }
        Ok(())
    });
}

/// 12.2c: streams and listeners return their pending error, set options, and lend their descriptor to other crates.
#[test]
fn unix_sockets_set_options_and_lend_their_descriptors() {
    on_two(async |_| {
        let path = SocketPath::new();
        let listener = UnixListener::bind(&path)?;
        let stream = UnixStream::connect(&path).await?;
        assert!(listener.take_error()?.is_none() && stream.take_error()?.is_none());
        stream.options().set_send_buffer_size(32 << 10)?;
        assert!(stream.options().send_buffer_size()? >= 32 << 10);
        assert_eq!(listener.options().r#type()?, socket2::Type::STREAM);
        let datagram = UnixDatagram::unbound()?;
        for descriptor in [listener.as_fd(), stream.as_fd(), datagram.as_fd()] {
            assert_eq!(socket2::SockRef::from(&descriptor).domain()?, socket2::Domain::UNIX);
        }
        assert_eq!(stream.as_fd().as_raw_fd(), stream.as_raw_fd());
        assert_eq!(listener.as_fd().as_raw_fd(), listener.as_raw_fd());
        assert_eq!(datagram.as_fd().as_raw_fd(), datagram.as_raw_fd());
        let (mut first, mut second) = ([0; 1], [0; 2]);
        let (accepted, _) = listener.accept().await?;
        let bufs = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(accepted.try_read_vectored(bufs).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(stream.try_write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"c")])?, 3);
        while accepted.try_read_vectored(bufs).is_err() {
            accepted.readable().await?;
        }
        assert_eq!((first, second), (*b"a", *b"bc"));
        Ok(())
    });
}

/// 12.6b: a datagram socket does not receive, and its queue is full. A send to this socket pauses between its system
/// calls, and succeeds after this socket has received packets.
#[test]
#[cfg(target_os = "linux")]
fn a_send_to_a_full_socket_pauses() {
    on_two(async |rt| {
        let path = SocketPath::new();
        let receiver = UnixDatagram::bind(&path)?;
        // Each socket sends until the buffer of this socket or the queue of the receiver is full. If the first send of
        // a socket fails, the queue of the receiver is full.
        let (mut fillers, mut count) = (Vec::new(), 0);
        loop {
            let filler = std::os::unix::net::UnixDatagram::unbound()?;
            filler.set_nonblocking(true)?;
            let before = count;
            while filler.send_to(b"x", &path).is_ok() {
                count += 1;
            }
            if count == before {
                break;
            }
            fillers.push(filler);
        }
        let at = path.0.clone();
        let sending = rt.spawn(async move |_: Context| UnixDatagram::unbound()?.send_to(b"x", &at).await);
        let steps = || rt.process_details(sending.pid()).expect("it waits for the receiver").info.steps;
        let (before, begun) = (steps(), rt.now());
        rt.sleep(std::time::Duration::from_millis(200)).await;
        let (done, passed) = (steps() - before, (rt.now() - begun).as_millis() as u64);
        assert!(done <= 12 + passed / 4, "{done} steps in {passed} ms");
        for _ in 0..=count {
            receiver.recv(&mut [0; 1]).await?;
        }
        assert_eq!(sending.await?, 1);
        Ok(())
    });
}

/// 12.6b: an error of a datagram socket ends only one operation. After the error, a send to a receiver with a full
/// queue waits until the receiver has received packets. The send does not repeat its system call without a pause.
#[test]
#[cfg(target_os = "linux")]
fn after_an_error_a_send_to_a_full_socket_still_waits() {
    let rt = crate::within(60, || {
        let rt = Runtime::builder().workers(1).long_step_threshold(std::time::Duration::MAX).build().unwrap();
        let both = rt.spawn(async |ctx: Context| -> Result<_, Exit> {
            let path = SocketPath::new();
            let receiver = UnixDatagram::bind(&path)?;
            let (sender, peer) = UnixDatagram::pair()?;
            assert!(crate::poll_once(sender.recv(&mut [0; 1])).is_none());
            // The peer connects to a third socket, so the system discards the packet in the queue of the peer. The
            // sender then gets an error. The system reports this error and a closed socket in the same way.
            sender.send(b"lost").await?;
            peer.connect(&path)?;
            assert_eq!(sender.recv(&mut [0; 1]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
            let sent = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&sent);
            let at = path.0.clone();
            let sending = ctx.spawn(async move |_: Context| -> Result<(), Exit> {
                for _ in 0..2_000 {
                    sender.send_to(b"x", &at).await?;
                    count.fetch_add(1, SeqCst);
                }
                Ok(())
            });
            // Suppose that a send to the full socket repeated its system call inside one poll. Then the only worker
            // would never run this process again.
            let mut last = 0;
            while last == 0 || sent.load(SeqCst) != last {
                last = sent.load(SeqCst);
                for _ in 0..100 {
                    ctx.yield_now().await;
                }
            }
            assert!(last < 2_000, "the socket is never full");
            for _ in 0..2_000 {
                receiver.recv(&mut [0; 1]).await?;
            }
            sending.await
        });
        futures::executor::block_on(both).unwrap();
        rt
    });
    drop(rt);
}

/// 12.3c: a read of a Unix stream stops after a message with a descriptor, although more bytes have arrived. The next
/// read returns these bytes.
#[test]
fn a_passed_descriptor_does_not_hide_the_bytes_behind_it() {
    on_two(async |_| {
        let (peer, stream) = std::os::unix::net::UnixStream::pair()?;
        let mut stream = UnixStream::from_std(stream)?;
        let mut buf = [0; 64];
        for _ in 0..20 {
            send_with_descriptor(&peer, b"abc")?;
            std::io::Write::write_all(&mut &peer, b"def")?;
            let mut all = Vec::new();
            while all.len() < 6 {
                let count = stream.read(&mut buf).await?;
                all.extend_from_slice(&buf[..count]);
                for _ in 0..200 {
                    crate::yield_now().await;
                }
            }
            assert_eq!(all, b"abcdef");
        }
        Ok(())
    });
}

/// 12.6b: a client with a path of the maximum length connects. This path has no zero byte at its end. The listener
/// accepts the client, and returns the whole path.
#[test]
#[cfg(target_os = "linux")]
fn accept_works_for_a_client_with_a_path_of_the_maximum_length() {
    on_two(async |_| {
        let server = SocketPath::new();
        let listener = UnixListener::bind(&server)?;
        let mut bytes = SocketPath::new().0.clone().into_os_string().into_encoded_bytes();
        bytes.resize(108, b'x');
        // SAFETY: a `sockaddr_un` consists of integers, for which zero is valid.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        address.sun_path = std::array::from_fn(|at| bytes[at] as libc::c_char);
        let path = SocketPath(String::from_utf8(bytes).expect("the path is ASCII").into());
        let client = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the address is valid during the call, and has the stated length.
        let bound = unsafe { libc::bind(client.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        client.connect(&socket2::SockAddr::unix(&server)?)?;
        let (_, peer) = listener.accept().await?;
        assert_eq!(peer.as_pathname(), Some(path.as_ref()));
        Ok(())
    });
}

/// Sends bytes together with a copy of the descriptor of `stream`.
fn send_with_descriptor(stream: &std::os::unix::net::UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; 8];
    // SAFETY: a `msghdr` consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: `CMSG_SPACE` only computes a size and accesses no memory.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
    // SAFETY: the message is valid and has a control buffer of the stated length.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: the control buffer has room for one header and one descriptor, and is aligned for the header.
    let header = unsafe { &mut *header };
    header.cmsg_level = libc::SOL_SOCKET;
    header.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: `CMSG_LEN` only computes a length and accesses no memory.
    header.cmsg_len = unsafe { libc::CMSG_LEN(4) } as _;
    // SAFETY: the data of the header has room for one descriptor.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the data of the header has room for one descriptor. `write_unaligned` needs no alignment.
    unsafe { data.cast::<i32>().write_unaligned(stream.as_raw_fd()) };
    // SAFETY: all pointers in the message are valid during the call.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, 0) };
    if sent < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
