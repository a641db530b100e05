//! Addresses of Unix sockets, and connections to a listener whose queue is full.

use futures::StreamExt;
use procession::net::{UnixDatagram, UnixListener, UnixStream};

use crate::unix::SocketPath;
use crate::{on_two, poll_once, with, within};

/// 12.2a: a datagram socket with a name in the abstract namespace receives a packet, and the receiver of the packet can
/// answer this packet.
#[test]
#[cfg(target_os = "linux")]
fn datagrams_reach_a_name_in_the_abstract_namespace() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    on_two(async |rt| {
        let names = [SocketPath::new(), SocketPath::new()];
        let address = |name: &SocketPath| SocketAddr::from_abstract_name(name.as_ref().as_os_str().as_encoded_bytes());
        let server_address = address(&names[0])?;
        let server = UnixDatagram::bind_addr(&server_address)?;
        let client = UnixDatagram::bind_addr_in(rt.host(), &address(&names[1])?)?;
        let mut buf = [0; 8];
        assert_eq!(client.send_to_addr(b"abc", &server_address).await?, 3);
        let (count, from) = server.recv_from(&mut buf).await?;
        assert_eq!((count, from.as_abstract_name()), (3, address(&names[1])?.as_abstract_name()));
        assert_eq!(server.send_to_addr(b"answer", &from).await?, 6);
        assert_eq!(client.recv(&mut buf).await?, 6);
        client.connect_addr(&server_address)?;
        assert_eq!(client.peer_addr()?.as_abstract_name(), server_address.as_abstract_name());
        client.send(b"x").await?;
        assert_eq!(server.recv(&mut buf).await?, 1);
        Ok(())
    });
}

/// 12.2a: `bind_addr`, `send_to_addr` and `connect_addr` of a datagram socket also take an address with a path. An
/// unnamed address is refused.
#[test]
fn datagrams_reach_an_address_with_a_path() {
    on_two(async |_| {
        let path = SocketPath::new();
        let address = std::os::unix::net::SocketAddr::from_pathname(&path)?;
        let server = UnixDatagram::bind_addr(&address)?;
        let client = UnixDatagram::unbound()?;
        client.send_to_addr(b"abc", &address).await?;
        client.connect_addr(&address)?;
        client.send(b"de").await?;
        let mut buf = [0; 8];
        assert_eq!([server.recv(&mut buf).await?, server.recv(&mut buf).await?], [3, 2]);
        let unnamed = UnixDatagram::unbound()?.local_addr()?;
        UnixDatagram::unbound()?.send_to_addr(b"x", &unnamed).await.unwrap_err();
        drop(server);
        UnixDatagram::bind_addr(&address).unwrap_err();
        assert!(path.as_ref().exists(), "the file of the first socket stays");
        Ok(())
    });
}

/// 12.2a: if the queue of a listener is full, a connection waits until the listener accepts another connection. The
/// listener has a path or a name in the abstract namespace.
#[test]
#[cfg(target_os = "linux")]
fn a_connection_waits_while_the_queue_of_the_listener_is_full() {
    use procession::net::socket2::{Domain, SockAddr, Socket, Type};

    for is_abstract in [false, true] {
        on_two(async move |rt| {
            let path = SocketPath::new();
            let name = path.as_ref().to_str().expect("the path is a text");
            let name = if is_abstract { format!("\0{name}") } else { name.to_owned() };
            let listener = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            listener.bind(&SockAddr::unix(&name)?)?;
            listener.listen(1)?;
            let listener = UnixListener::from_std(listener.into())?;
            let address = listener.local_addr()?;
            let mut queued = Vec::new();
            while let Some(stream) = poll_once(UnixStream::connect_addr(&address)) {
                queued.push(stream?);
            }
            assert!(!queued.is_empty());
            let mut connects = Box::pin(UnixStream::connect_addr(&address));
            assert!(poll_once(&mut connects).is_none());
            // After 20 ms, the future has tried to connect again. The queue is still full.
            assert!(rt.timeout(std::time::Duration::from_millis(20), &mut connects).await.is_err());
            listener.accept().await?;
            connects.await?;
            Ok(())
        });
    }
}

/// 12.4c: while a connection waits for space in the queue of a listener, the runtime is dropped. The connection then
/// fails.
#[test]
#[cfg(target_os = "linux")]
fn a_waiting_connection_fails_when_its_runtime_is_dropped() {
    use procession::net::socket2::{Domain, SockAddr, Socket, Type};

    within(60, || {
        let rt = with(1);
        let host = rt.host().clone();
        let path = SocketPath::new();
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let mut queued = Vec::new();
        while let Some(stream) = poll_once(UnixStream::connect_in(&host, &path)) {
            queued.push(stream.unwrap());
        }
        let mut connects = Box::pin(UnixStream::connect_in(&host, &path));
        assert!(poll_once(&mut connects).is_none());
        drop(rt);
        let error = futures::executor::block_on(connects).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "{error}");
    });
}

/// 12.2a: the stream of `incoming` yields each connection of a listener. After the end of the runtime, the stream
/// yields one error and then ends.
#[test]
fn the_stream_of_unix_connections_ends_after_the_runtime() {
    within(60, || {
        let path = SocketPath::new();
        let rt = with(1);
        let listener = UnixListener::bind_in(rt.host(), &path).unwrap();
        let mut incoming = listener.incoming();
        rt.block_on(async {
            let (_client, accepted) = futures::join!(UnixStream::connect(&path), incoming.next());
            accepted.expect("the runtime has not ended").map(drop)
        })
        .unwrap();
        drop(rt);
        let items: Vec<_> = futures::executor::block_on(incoming.take(3).collect());
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].as_ref().unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    });
}
