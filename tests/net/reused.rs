//! New sockets that get the descriptor number of an earlier socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::*;

use crate::{poll_once, with, within};

/// 12.3d: processes continuously open and close sockets. Some sockets are closed after the system has reported an event
/// for them, and before a worker has handled the event. A new socket with the same descriptor number gets only its own
/// events: no event is lost, and each read returns the bytes of its own connection.
#[test]
fn a_new_socket_gets_no_event_of_an_earlier_socket_with_the_same_number() {
    const ROUNDS: u32 = 150;
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
                let clients: Vec<_> = (0..8_u32)
                    .map(|client| {
                        rt.spawn(async move |ctx: Context| -> Result<u32, Exit> {
                            let mut early = 0;
                            for round in 0..ROUNDS {
                                let mut stream = TcpStream::connect(address).await?;
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
                            Ok(early)
                        })
                    })
                    .collect();
                let mut early = 0;
                for client in clients {
                    early += client.await.expect("the client");
                }
                println!("{workers} workers: {early} sockets were closed early, {} requests", served.load(SeqCst));
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
    within(60, || {
        with(1)
            .block_on(async {
                for _ in 0..200 {
                    let (mut one, other) = crate::pair().await?;
                    drop(other);
                    assert_eq!(one.read(&mut [0; 1]).await?, 0);
                    drop(one);
                    let (mut one, mut other) = crate::pair().await?;
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
                std::io::Result::Ok(())
            })
            .unwrap();
    });
}
