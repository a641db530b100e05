//! Host names and addresses.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use procession::net::{TcpListener, TcpStream, UdpSocket, lookup_host, lookup_host_in};
use procession::*;

use crate::{on_two, with, within};

/// 12.2c: a name is resolved on the blocking pool. An address needs no lookup, even if the caller passes the address as
/// text.
#[test]
fn names_and_addresses_are_resolved() {
    on_two(async |_| {
        let found: Vec<SocketAddr> = lookup_host("localhost:80").await?.collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
        assert_eq!(lookup_host(("localhost", 81)).await?.next().unwrap().port(), 81);
        assert_eq!(lookup_host((String::from("127.0.0.1"), 82)).await?.next().unwrap().port(), 82);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        for _ in 0..3 {
            // `localhost` may also have an IPv6 address, which refuses the connection. `connect` then tries the IPv4
            // address.
            TcpStream::connect(("localhost", port)).await?;
            TcpStream::connect(format!("127.0.0.1:{port}")).await?;
            TcpStream::connect((IpAddr::from([127, 0, 0, 1]), port)).await?;
            TcpStream::connect(&*vec![listener.local_addr()?]).await?;
        }
        UdpSocket::bind("localhost:0").await?;
        Ok(())
    });
}

/// 12.2c: an invalid address is an error. The error message names the address, and no lookup starts.
#[test]
fn the_error_for_an_invalid_address_contains_the_address() {
    on_two(async |_| {
        let defect = async |text: &str| {
            let error = TcpStream::connect(text).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}: {error}");
            println!("{text:?}: {error}");
            let error = error.to_string();
            error.strip_prefix(&format!("`{text}` is ")).expect("the error names the address").to_owned()
        };
        for text in ["", "localhost", "127.0.0.1", "localhost:", "::1", "::1:80", "[::1]"] {
            let expected = "not a socket address: it must end with a colon and a port number, and an IPv6 address needs \
                 brackets";
            assert_eq!(defect(text).await, expected);
        }
        for (text, port) in [
            ("localhost:65536", "65536"),
            ("localhost:99999", "99999"),
            ("localhost:http", "http"),
            ("localhost:-1", "-1"),
            ("127.0.0.1:65536", "65536"),
            ("[::1]:65536", "65536"),
        ] {
            let expected = format!("not a socket address: the port `{port}` is not a number up to 65535");
            assert_eq!(defect(text).await, expected);
        }
        for text in ["http://localhost:80", "https://localhost", "tcp://127.0.0.1:80/path"] {
            let expected = "a URL, not a socket address: pass only the host and the port, as in `localhost:80`";
            assert_eq!(defect(text).await, expected);
        }
        let error = TcpStream::connect("host.invalid:80").await.unwrap_err();
        println!("{error}");
        assert!(error.to_string().starts_with("cannot look up `host.invalid`: "), "{error}");
        TcpListener::bind("192.0.2.1:0").await.unwrap_err();
        Ok(())
    });
}

/// 12.2c: after the end of the runtime, all operations of a socket fail with the same kind of error, even the
/// operations that look up a name.
#[test]
fn after_the_end_of_the_runtime_a_name_and_an_address_give_the_same_kind_of_error() {
    within(60, || {
        let rt = with(0);
        let socket = futures::executor::block_on(UdpSocket::bind_in(rt.host(), "127.0.0.1:0")).unwrap();
        drop(rt);
        futures::executor::block_on(async {
            let errors = [
                socket.send_to(b"x", "localhost:9").await.unwrap_err(),
                socket.send(b"x").await.unwrap_err(),
                socket.connect("localhost:9").await.unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
            }
        });
    });
}

/// 12.2c: without a runtime, the lookup of a name fails. An address needs no runtime.
#[test]
fn the_lookup_of_a_name_needs_a_runtime() {
    within(60, || {
        let error = futures::executor::block_on(lookup_host("localhost:80")).unwrap_err();
        assert!(error.to_string().starts_with("there is no runtime on this thread"), "{error}");
        assert!(futures::executor::block_on(lookup_host("127.0.0.1:80")).is_ok());
        let rt = with(1);
        let host = rt.host().clone();
        // The blocking pool of this host looks up the name.
        let socket = futures::executor::block_on(UdpSocket::bind_in(&host, "localhost:0")).unwrap();
        assert!(socket.local_addr().unwrap().ip().is_loopback());
        let found = futures::executor::block_on(lookup_host_in(&host, "localhost:80")).unwrap();
        assert!(found.into_iter().all(|address| address.ip().is_loopback()));
        let simulation = Simulation::new(1);
        let simulated = lookup_host_in(simulation.host(), "localhost:80");
        assert!(futures::executor::block_on(simulated).is_err());
    });
}
