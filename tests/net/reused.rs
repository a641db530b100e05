//! New sockets that get the descriptor number of an earlier socket. Each test runs in its own operating system process,
//! so that no other test opens a descriptor with this number.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::*;

use crate::subprocess::{again, role};
use crate::{poll_once, with, within};

/// Returns the descriptor number of a stream.
#[cfg(unix)]
fn number(stream: &TcpStream) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(stream)
}

#[cfg(windows)]
fn number(stream: &TcpStream) -> std::os::windows::io::RawSocket {
    std::os::windows::io::AsRawSocket::as_raw_socket(stream)
}

/// 12.3d: processes continuously open and close sockets. Some sockets are closed after the system has reported an event
/// for the socket, and before a worker has handled this event. A new socket with the same descriptor number gets only
/// the events of the new socket. No event is lost, and each read returns the bytes of the connection of the new socket.
/// An event of an earlier socket would only cause one more read of the new socket, and this test would not detect this
/// read. Therefore a unit test of the poller checks that no event of an earlier socket reaches a new socket.
#[test]
fn a_new_socket_gets_no_event_of_an_earlier_socket_with_the_same_number() {
    const ROUNDS: u32 = 150;
    const CLIENTS: u32 = 8;
    if role().is_none() {
        let ran = again(a_new_socket_gets_no_event_of_an_earlier_socket_with_the_same_number, "alone", 400);
        return print!("{}", ran.passed().stdout);
    }
    for workers in [1, 2, 4] {
        within(120, move || {
            let rt = with(workers);
            rt.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let served = Arc::new(AtomicUsize::new(0));
                let count = Arc::clone(&served);
                rt.spawn(async move |ctx: Context| -> Result<(), Exit> {
                    loop {
                        let (mut stream, _) = listener.accept().await?;
                        let count = Arc::clone(&count);
                        ctx.spawn(async move |_: Context| -> Result<(), Exit> {
                            let mut request = [0; 8];
                            // If a client closes its connection early, the process does not fail.
                            while stream.read_exact(&mut request).await.is_ok() {
                                stream.write_all(&request).await?;
                                count.fetch_add(1, SeqCst);
                            }
                            Ok(())
                        });
                    }
                });
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| {
                        rt.spawn(async move |ctx: Context| -> Result<_, Exit> {
                            let (mut early, mut numbers) = (0, BTreeSet::new());
                            for round in 0..ROUNDS {
                                let mut stream = TcpStream::connect(address).await?;
                                numbers.insert(number(&stream));
                                let mut request = [0; 8];
                                request[..4].copy_from_slice(&client.to_ne_bytes());
                                request[4..].copy_from_slice(&round.to_ne_bytes());
                                stream.write_all(&request).await?;
                                let mut answer = [0; 8];
                                if round % 3 == 0 {
                                    // The client drops this socket, possibly before the answer has arrived.
                                    if poll_once(stream.read(&mut answer)).is_none() {
                                        early += 1;
                                    }
                                    if round % 2 == 0 {
                                        ctx.yield_now().await;
                                    }
                                    continue;
                                }
                                stream.read_exact(&mut answer).await?;
                                assert_eq!(answer, request);
                                assert!(poll_once(stream.read(&mut answer)).is_none(), "an event of another socket");
                            }
                            Ok((early, numbers))
                        })
                    })
                    .collect();
                let (mut early, mut numbers) = (0, BTreeSet::new());
                for client in clients {
                    let (closed, used) = client.await.expect("the client");
                    early += closed;
                    numbers.extend(used);
                }
                let (requests, numbers, sockets) = (served.load(SeqCst), numbers.len(), ROUNDS * CLIENTS);
                println!("{workers} workers: {early} of {sockets} sockets closed early, {requests} requests");
                assert!(numbers < sockets as usize / 2, "{sockets} sockets had {numbers} different numbers");
                std::io::Result::Ok(())
            })
            .unwrap();
        });
    }
}

/// 12.3d: a new socket does not inherit the state of an earlier socket. The peer of the earlier socket has closed the
/// connection, but a read of a new socket with the same descriptor number waits.
#[test]
fn a_new_socket_does_not_inherit_the_closed_state_of_an_earlier_socket() {
    if role().is_none() {
        let ran = again(a_new_socket_does_not_inherit_the_closed_state_of_an_earlier_socket, "alone", 90);
        return print!("{}", ran.passed().stdout);
    }
    within(60, || {
        with(1)
            .block_on(async {
                let mut reused = 0;
                for _ in 0..200 {
                    let (mut one, other) = crate::pair().await?;
                    let former = number(&one);
                    drop(other);
                    assert_eq!(one.read(&mut [0; 1]).await?, 0);
                    drop(one);
                    let (mut one, mut other) = crate::pair().await?;
                    reused += u32::from(number(&one) == former);
                    let mut buf = [0; 1];
                    let mut read = Box::pin(one.read(&mut buf));
                    assert!(futures::poll!(&mut read).is_pending());
                    for _ in 0..3 {
                        crate::yield_now().await;
                        assert!(futures::poll!(&mut read).is_pending());
                    }
                    other.write_all(b"x").await?;
                    assert_eq!(read.await?, 1);
                }
                println!("{reused} of 200 sockets had the number of the earlier socket");
                assert!(reused > 100, "{reused} of 200 sockets had the number of the earlier socket");
                std::io::Result::Ok(())
            })
            .unwrap();
    });
}
