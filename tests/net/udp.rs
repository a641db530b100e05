//! UDP sockets.

use std::io::ErrorKind;
use std::sync::Arc;

use procession::net::UdpSocket;
use procession::*;

use crate::on_two;

/// 12.2a: a socket sends packets to any address and to its connected address. `peek_from` leaves the packet in the
/// socket. If a packet is longer than the buffer of the receiver, the rest of the packet is lost.
#[test]
fn packets_go_to_addresses_and_to_the_connected_address() {
    on_two(async |_| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let (one_address, other_address) = (one.local_addr()?, other.local_addr()?);
        let mut buf = [0; 8];
        assert_eq!(other.try_recv_from(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.send_to(b"abcdefghij", other_address).await?, 10);
        assert_eq!(other.peek_from(&mut buf).await?, (8, one_address));
        assert_eq!(other.recv_from(&mut buf).await?, (8, one_address));
        assert_eq!(&buf, b"abcdefgh");
        assert_eq!(one.try_send_to(b"", other_address)?, 0);
        assert_eq!(other.recv_from(&mut buf).await?, (0, one_address));
        other.connect(one_address).await?;
        one.connect(other_address).await?;
        assert_eq!(one.peer_addr()?, other_address);
        assert_eq!(one.send(b"xyz").await?, 3);
        assert_eq!((other.recv(&mut buf).await?, &buf[..3]), (3, &b"xyz"[..]));
        let poll = std::future::poll_fn(|cx| one.poll_send_to(cx, b"p", other_address));
        assert!(poll.await.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) || cfg!(target_os = "linux"));
        other.options().set_broadcast(true)?;
        assert!(other.options().broadcast()?);
        Ok(())
    });
}

/// 12.2a, 12.2c: `send_to` takes an address, a text or a name. The operations of a connected socket exist as functions
/// that do not wait, and as poll functions. A socket can be converted into a socket of the standard library.
#[test]
fn a_connected_socket_has_operations_that_do_not_wait() {
    on_two(async |_| {
        let one = UdpSocket::bind("127.0.0.1:0").await?;
        let other = UdpSocket::bind("127.0.0.1:0").await?;
        let (one_address, other_address) = (one.local_addr()?, other.local_addr()?);
        let mut buf = [0; 8];
        one.writable().await?;
        assert_eq!(one.send_to(b"1", &other_address).await?, 1);
        assert_eq!(one.send_to(b"12", other_address.to_string()).await?, 2);
        assert_eq!(one.send_to(b"123", ("127.0.0.1", other_address.port())).await?, 3);
        let error = one.send_to(b"x", "127.0.0.1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        for count in 1..=3 {
            assert_eq!(other.recv_from(&mut buf).await?, (count, one_address));
        }
        one.connect(other_address).await?;
        other.connect(one_address).await?;
        assert_eq!(other.try_recv(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.try_send(b"abcd")?, 4);
        assert_eq!((other.peek(&mut buf).await?, &buf[..4]), (4, &b"abcd"[..]));
        assert_eq!(std::future::poll_fn(|cx| other.poll_recv(cx, &mut buf)).await?, 4);
        assert_eq!(std::future::poll_fn(|cx| one.poll_send(cx, b"efghi")).await?, 5);
        let count = loop {
            other.readable().await?;
            match other.try_recv(&mut buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => break result?,
            }
        };
        assert_eq!(count, 5);
        assert!(other.take_error()?.is_none());
        assert_eq!(socket2::SockRef::from(&other).r#type()?, socket2::Type::DGRAM);
        let other = UdpSocket::from_std(other.into_std())?;
        let mut receive = Box::pin(other.recv(&mut buf));
        assert!(futures::poll!(&mut receive).is_pending());
        one.send(b"j").await?;
        assert_eq!(receive.await?, 1);
        Ok(())
    });
}

/// 12.2a: a socket of the standard library can be converted into a socket of the runtime. Several processes can receive
/// from one socket, and each packet is received by one of these processes.
#[test]
fn several_processes_receive_from_one_socket() {
    const PACKETS: usize = 200;
    on_two(async |rt| {
        let socket = Arc::new(UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0")?)?);
        let address = socket.local_addr()?;
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let socket = Arc::clone(&socket);
                rt.spawn(async move |_: Context| -> Result<_, Exit> {
                    let (mut count, mut buf) = (0, [0; 1]);
                    while socket.recv_from(&mut buf).await?.0 != 0 {
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        let sender = UdpSocket::bind("127.0.0.1:0").await?;
        for _ in 0..PACKETS {
            sender.send_to(b"x", address).await?;
        }
        for _ in 0..4 {
            sender.send_to(b"", address).await?;
        }
        let mut total = 0;
        for receiver in receivers {
            total += receiver.await?;
        }
        assert_eq!(total, PACKETS);
        Ok(())
    });
}

/// 12.6b: if a packet is refused, only one operation of the socket fails. Later operations of the socket succeed.
#[test]
#[cfg(target_os = "linux")]
fn a_refused_packet_fails_only_one_operation() {
    on_two(async |_| {
        let gone = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let address = gone.local_addr()?;
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.connect(address).await?;
        assert!(crate::poll_once(socket.recv(&mut [0; 1])).is_none());
        drop(gone);
        // While a child process of another test holds a copy of the socket, the address cannot be bound.
        let mut again = std::net::UdpSocket::bind(address);
        while again.is_err() {
            crate::yield_now().await;
            again = std::net::UdpSocket::bind(address);
        }
        drop(again);
        let mut buf = [0; 8];
        for _ in 0..50 {
            socket.send(b"x").await?;
            assert_eq!(socket.recv(&mut buf).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        // After a new socket is bound to the address, the packets arrive at the new socket.
        let back = UdpSocket::bind(address).await?;
        socket.send(b"x").await?;
        assert_eq!(back.recv_from(&mut buf).await?, (1, socket.local_addr()?));
        back.send_to(b"yz", socket.local_addr()?).await?;
        assert_eq!(socket.recv(&mut buf).await?, 2);
        Ok(())
    });
}
