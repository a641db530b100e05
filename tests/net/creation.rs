//! Creation of sockets without a runtime, in a simulation, and after the runtime has ended.

use std::io::{Error, ErrorKind};
use std::net;

use futures::executor::block_on;
use procession::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use procession::*;

#[cfg(unix)]
use crate::unix::SocketPath;
use crate::{pair, with, within};

/// Returns the address of a Unix socket without a name.
#[cfg(unix)]
fn unnamed() -> std::os::unix::net::SocketAddr {
    std::os::unix::net::UnixDatagram::unbound().unwrap().local_addr().unwrap()
}

/// Returns a listener of the standard library. The file at the path of this listener is already removed.
#[cfg(unix)]
fn std_listener() -> std::os::unix::net::UnixListener {
    let path = SocketPath::new();
    std::os::unix::net::UnixListener::bind(&path).unwrap()
}

/// Calls the functions that create sockets, on the calling thread. Returns the errors of these calls.
async fn errors() -> Vec<Error> {
    let mut errors = vec![
        TcpListener::bind("127.0.0.1:0").await.unwrap_err(),
        TcpStream::connect("127.0.0.1:1").await.unwrap_err(),
        UdpSocket::bind("127.0.0.1:0").await.unwrap_err(),
        TcpSocket::new_v4().unwrap_err(),
        TcpSocket::new_v6().unwrap_err(),
        TcpListener::from_std(net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap_err(),
        UdpSocket::from_std(net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap_err(),
    ];
    #[cfg(unix)]
    {
        use procession::net::{Async, UnixDatagram, UnixListener, UnixStream};
        use procession::signal::unix::{SignalKind, signal};
        use std::os::unix::net::{UnixDatagram as StdDatagram, UnixStream as Std};
        errors.extend([
            UnixListener::bind("/nowhere/at/all").unwrap_err(),
            UnixStream::connect("/nowhere/at/all").await.unwrap_err(),
            UnixStream::pair().unwrap_err(),
            UnixStream::from_std(Std::pair().unwrap().0).unwrap_err(),
            UnixStream::connect_addr(&unnamed()).await.unwrap_err(),
            UnixListener::bind_addr(&unnamed()).unwrap_err(),
            UnixListener::from_std(std_listener()).unwrap_err(),
            UnixDatagram::bind("/nowhere/at/all").unwrap_err(),
            UnixDatagram::bind_addr(&unnamed()).unwrap_err(),
            UnixDatagram::pair().unwrap_err(),
            UnixDatagram::unbound().unwrap_err(),
            UnixDatagram::from_std(StdDatagram::unbound().unwrap()).unwrap_err(),
            Async::new(Std::pair().unwrap().0).unwrap_err(),
            signal(SignalKind::USER_DEFINED2).unwrap_err(),
        ]);
    }
    errors
}

/// 12.3a: without a runtime, each function that creates a socket fails. The error message states how the caller can
/// avoid the error.
#[test]
fn the_creation_of_a_socket_fails_without_a_runtime() {
    for error in block_on(errors()) {
        assert_eq!(
            error.to_string(),
            "there is no runtime on this thread: create the socket inside a process or inside `Runtime::block_on`, or \
             pass the host to the function with the suffix `_in`"
        );
    }
}

/// 12.3a: with the host of a runtime, a caller can create and use sockets on any thread.
#[test]
fn the_creation_of_a_socket_works_on_any_thread_with_a_host() {
    within(60, || {
        let rt = with(1);
        let host = rt.host();
        block_on(async {
            let listener = TcpListener::bind_in(host, "127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let stream = TcpStream::connect_in(host, address).await?;
            listener.accept().await?;
            drop(stream);
            TcpSocket::new_v4_in(host)?.connect(address).await?;
            TcpStream::from_std_in(host, net::TcpStream::connect(address)?)?;
            TcpListener::from_std_in(host, net::TcpListener::bind("127.0.0.1:0")?)?;
            UdpSocket::from_std_in(host, net::UdpSocket::bind("127.0.0.1:0")?)?;
            std::io::Result::Ok(())
        })
        .unwrap();
    });
}

/// 12.4c: after a runtime has ended, a bind and a connect with the host of this runtime fail. The failed bind creates
/// no file, and the failed connect opens no connection.
#[test]
fn a_socket_that_cannot_be_created_has_no_effect_outside_the_program() {
    within(60, || {
        let rt = with(1);
        let host = rt.host().clone();
        let socket = TcpSocket::new_v4_in(&host).unwrap();
        drop(rt);
        let is_unconnected = |accepted: std::io::Result<()>| {
            assert_eq!(accepted.expect_err("no connection").kind(), ErrorKind::WouldBlock);
        };
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        block_on(TcpStream::connect_in(&host, address)).unwrap_err();
        is_unconnected(listener.accept().map(drop));
        block_on(socket.connect(address)).unwrap_err();
        is_unconnected(listener.accept().map(drop));
        #[cfg(unix)]
        {
            use procession::net::{UnixDatagram, UnixListener, UnixStream};
            let path = SocketPath::new();
            let address = std::os::unix::net::SocketAddr::from_pathname(&path).unwrap();
            UnixListener::bind_in(&host, &path).unwrap_err();
            assert!(!path.as_ref().exists());
            UnixListener::bind_addr_in(&host, &address).unwrap_err();
            assert!(!path.as_ref().exists());
            UnixDatagram::bind_in(&host, &path).unwrap_err();
            assert!(!path.as_ref().exists());
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            block_on(UnixStream::connect_in(&host, &path)).unwrap_err();
            is_unconnected(listener.accept().map(drop));
            block_on(UnixStream::connect_addr_in(&host, &address)).unwrap_err();
            is_unconnected(listener.accept().map(drop));
        }
    });
}

/// Calls each function that creates a Unix socket on the runtime of `host`. Returns the errors of these calls.
#[cfg(unix)]
async fn unix_errors_in(host: &Host) -> Vec<Error> {
    use procession::net::{Async, UnixDatagram, UnixListener, UnixStream};
    use procession::signal::unix::{SignalKind, signal_in};
    use std::os::unix::net::{UnixDatagram as StdDatagram, UnixStream as Std};
    let path = SocketPath::new();
    vec![
        UnixListener::bind_in(host, &path).unwrap_err(),
        UnixListener::bind_addr_in(host, &unnamed()).unwrap_err(),
        UnixListener::from_std_in(host, std_listener()).unwrap_err(),
        UnixStream::connect_in(host, &path).await.unwrap_err(),
        UnixStream::connect_addr_in(host, &unnamed()).await.unwrap_err(),
        UnixStream::pair_in(host).unwrap_err(),
        UnixStream::from_std_in(host, Std::pair().unwrap().0).unwrap_err(),
        UnixDatagram::bind_in(host, &path).unwrap_err(),
        UnixDatagram::bind_addr_in(host, &unnamed()).unwrap_err(),
        UnixDatagram::unbound_in(host).unwrap_err(),
        UnixDatagram::pair_in(host).unwrap_err(),
        UnixDatagram::from_std_in(host, StdDatagram::unbound().unwrap()).unwrap_err(),
        Async::new_in(host, Std::pair().unwrap().0).unwrap_err(),
        signal_in(host, SignalKind::USER_DEFINED2).unwrap_err(),
    ]
}

/// 12.3a: with the host of a runtime, a caller can create and use Unix sockets on any thread.
#[test]
#[cfg(unix)]
fn the_creation_of_a_unix_socket_works_on_any_thread_with_a_host() {
    use futures::{AsyncReadExt, AsyncWriteExt};
    use procession::net::{Async, UnixDatagram, UnixListener, UnixStream};
    use std::os::unix::net::{UnixDatagram as StdDatagram, UnixStream as Std};
    async fn transfers(mut from: UnixStream, mut to: UnixStream) -> std::io::Result<()> {
        let mut buf = [0; 1];
        // The read begins to wait before the byte arrives. So the read completes only if the stream is registered with
        // the poller.
        let mut read = Box::pin(to.read_exact(&mut buf));
        assert!(futures::poll!(&mut read).is_pending());
        from.write_all(b"x").await?;
        read.await
    }
    async fn sends(from: UnixDatagram, to: UnixDatagram) -> std::io::Result<()> {
        let mut buf = [0; 1];
        let mut receive = Box::pin(to.recv(&mut buf));
        assert!(futures::poll!(&mut receive).is_pending());
        from.send(b"x").await?;
        assert_eq!(receive.await?, 1);
        Ok(())
    }
    within(60, || {
        let rt = with(1);
        let host = rt.host();
        block_on(async {
            let path = SocketPath::new();
            let listener = UnixListener::bind_in(host, &path)?;
            let address = listener.local_addr()?;
            let one = UnixStream::connect_in(host, &path).await?;
            transfers(one, listener.accept().await?.0).await?;
            let one = UnixStream::connect_addr_in(host, &address).await?;
            transfers(one, listener.accept().await?.0).await?;
            let listener = UnixListener::from_std_in(host, listener.into_std())?;
            let one = UnixStream::from_std_in(host, Std::connect(&path)?)?;
            transfers(one, listener.accept().await?.0).await?;
            drop(listener);
            std::fs::remove_file(&path)?;
            UnixListener::bind_addr_in(host, &address)?;
            let (one, other) = UnixStream::pair_in(host)?;
            transfers(one, other).await?;

            let (one, other) = UnixDatagram::pair_in(host)?;
            sends(one, other).await?;
            let (one, other) = StdDatagram::pair()?;
            sends(UnixDatagram::from_std_in(host, one)?, UnixDatagram::from_std_in(host, other)?).await?;
            let path = SocketPath::new();
            let other = UnixDatagram::bind_in(host, &path)?;
            let one = UnixDatagram::unbound_in(host)?;
            one.connect(&path)?;
            sends(one, other).await?;

            let (one, other) = Std::pair()?;
            one.set_nonblocking(true)?;
            let one = Async::new_in(host, one)?;
            std::io::Write::write_all(&mut &other, b"x")?;
            assert_eq!(one.read_with(|mut one| std::io::Read::read(&mut one, &mut [0; 1])).await?, 1);
            std::io::Result::Ok(())
        })
        .unwrap();
    });
}

/// 12.3a: in a simulation, each function that creates a socket fails. The test calls these functions inside a process,
/// and with the host of the simulation.
#[test]
fn the_creation_of_a_socket_fails_in_a_simulation() {
    check(0..3, async |host: Host| {
        let inside = host.spawn(async |_: Context| -> Result<_, Exit> { Ok(errors().await) });
        let mut errors = inside.await.unwrap();
        errors.push(TcpListener::bind_in(&host, "127.0.0.1:0").await.unwrap_err());
        errors.push(TcpStream::connect_in(&host, "127.0.0.1:1").await.unwrap_err());
        errors.push(UdpSocket::bind_in(&host, "127.0.0.1:0").await.unwrap_err());
        errors.push(TcpSocket::new_v4_in(&host).unwrap_err());
        #[cfg(unix)]
        errors.extend(unix_errors_in(&host).await);
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = "a simulation has no network: use a handler or a message in place of a socket";
            assert_eq!(error.to_string(), text);
        }
    });
}

/// 12.4c: after a runtime has ended, no socket can be created with the host of this runtime. This error does not depend
/// on whether the runtime had sockets. Operations on the sockets of this runtime fail too.
#[test]
fn the_creation_of_a_socket_fails_after_the_end_of_the_runtime() {
    within(60, || {
        for had_sockets in [false, true] {
            let rt = with(1);
            let host = rt.host().clone();
            let pair = had_sockets.then(|| rt.block_on(pair()).unwrap());
            drop(rt);
            let failed = |error: Error| {
                println!("{error}");
                assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
                assert!(error.to_string().ends_with("has shut down"), "{error}");
            };
            failed(block_on(TcpListener::bind_in(&host, "127.0.0.1:0")).unwrap_err());
            failed(block_on(UdpSocket::bind_in(&host, "127.0.0.1:0")).unwrap_err());
            let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
            failed(block_on(TcpStream::connect_in(&host, listener.local_addr().unwrap())).unwrap_err());
            #[cfg(unix)]
            {
                use procession::net::{UnixDatagram, UnixListener, UnixStream};
                let path = SocketPath::new();
                failed(UnixListener::bind_in(&host, &path).unwrap_err());
                failed(UnixListener::from_std_in(&host, std_listener()).unwrap_err());
                failed(UnixDatagram::bind_in(&host, &path).unwrap_err());
                failed(UnixStream::pair_in(&host).unwrap_err());
                failed(UnixDatagram::unbound_in(&host).unwrap_err());
                failed(UnixDatagram::pair_in(&host).unwrap_err());
            }
            let error = block_on(UdpSocket::bind_in(&host, "localhost:0")).unwrap_err();
            assert_eq!(error.to_string(), "the runtime has shut down, and its blocking pool accepts no more work");
            if let Some((one, other)) = pair {
                failed(block_on(one.readable()).unwrap_err());
                failed(one.try_write(b"x").unwrap_err());
                failed(block_on(futures::AsyncReadExt::read(&mut &other, &mut [0; 1])).unwrap_err());
                #[cfg(unix)]
                drop(one.into_std());
            }
        }
    });
}
