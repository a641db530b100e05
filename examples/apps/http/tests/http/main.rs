//! Tests of the HTTP server. The clients of these tests write the bytes of the HTTP requests directly.

mod inputs;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use app_http::{Config, VISITS, Visit, server};
use futures::{AsyncReadExt, AsyncWriteExt};
use procession::net::{TcpListener, TcpStream};
use procession::{BoxError, Context, Runtime};

type Tested<T = ()> = Result<T, BoxError>;

/// Short time limit, for tests in which the server closes a slow or idle connection.
const SHORT: Duration = Duration::from_millis(50);
/// Time limit that no test reaches.
const LONG: Duration = Duration::from_secs(60);

/// Starts a runtime with a server. Returns the runtime and the address of the server.
fn started(config: Config) -> Tested<(Runtime, SocketAddr)> {
    let rt = Runtime::builder().workers(2).build()?;
    let listener = rt.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    rt.spawn(move |ctx: Context| server(ctx, listener, config));
    Ok((rt, address))
}

/// Number of processes of a server without connections. These are the server itself and the process that counts visits.
const OWN_PROCESSES: usize = 2;

/// Waits until the processes of all connections have exited.
async fn connections_exit(rt: &Runtime) -> Tested {
    let exit = rt.spawn(async |ctx: Context| {
        while ctx.host().processes_alive() > OWN_PROCESSES + 1 {
            ctx.yield_now().await;
        }
    });
    Ok(exit.await?)
}

/// Connects to the server and sends some bytes.
async fn sent(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Tested<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes.as_ref()).await?;
    Ok(stream)
}

/// Reads until the received text ends with `end`.
async fn read_until(stream: &mut TcpStream, end: &str) -> Tested<String> {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8(text)?)
}

/// Reads until the server closes or resets the connection. If the server closes a connection before the server has read
/// all bytes, the system resets the connection.
async fn read_all(stream: &mut TcpStream) -> String {
    let (mut text, mut buf) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buf).await {
        text.extend_from_slice(&buf[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Sends the bytes. Returns the first line of the response.
async fn status(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Tested<String> {
    let mut stream = sent(address, bytes).await?;
    let text = read_until(&mut stream, "\r\n").await?;
    Ok(text.trim_end().to_owned())
}

const HELLO: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// 12.2e: hyper serves requests on a stream of procession, through the traits of `futures::io`.
#[test]
fn one_connection_serves_many_requests() -> Tested {
    let (rt, address) = started(Config::default())?;
    rt.block_on(async {
        let mut stream = sent(address, HELLO).await?;
        let text = read_until(&mut stream, "\r\n\r\nhello\n").await?;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        for visit in 1..=3 {
            stream.write_all(b"GET /visits HTTP/1.1\r\nhost: a\r\n\r\n").await?;
            read_until(&mut stream, &format!("\r\n\r\nvisit {visit}\n")).await?;
        }
        stream.write_all(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc").await?;
        read_until(&mut stream, "\r\n\r\nabc").await?;
        assert_eq!(status(address, "GET /none HTTP/1.1\r\nhost: a\r\n\r\n").await?, "HTTP/1.1 404 Not Found");
        Ok(())
    })
}

/// The page `/metrics` shows the metrics of the runtime in the text format of Prometheus.
#[test]
fn the_metrics_page_counts_the_processes_of_the_server() -> Tested {
    let (rt, address) = started(Config::default())?;
    rt.block_on(async {
        let mut spawned = Vec::new();
        for _ in 0..2 {
            let mut stream = sent(address, "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
            let text = read_all(&mut stream).await;
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.contains("content-type: text/plain; version=0.0.4\r\n"), "{text}");
            let count = text.lines().find_map(|line| line.strip_prefix("procession_spawned_total "));
            spawned.push(count.ok_or("no counter of spawned processes")?.parse::<u64>()?);
        }
        // Each connection is a separate process.
        assert!(spawned[0] < spawned[1], "{spawned:?}");
        Ok(())
    })
}

/// A response with status 405 names the methods of the page. The response to `HEAD` has the header of the response to
/// `GET`, and no body.
#[test]
fn each_page_accepts_its_methods() -> Tested {
    let (rt, address) = started(Config::default())?;
    rt.block_on(async {
        for (page, wrong, methods) in [("/", "POST", "GET, HEAD"), ("/echo", "GET", "POST"), ("/echo", "HEAD", "POST")]
        {
            let mut stream = sent(address, format!("{wrong} {page} HTTP/1.1\r\nhost: a\r\n\r\n")).await?;
            let head = read_until(&mut stream, "\r\n\r\n").await?;
            assert!(head.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{head}");
            assert!(head.contains(&format!("allow: {methods}\r\n")), "{head}");
        }
        let mut stream = sent(address, "HEAD / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let text = read_all(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("content-length: 6\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n"), "{text}");
        Ok(())
    })
}

#[test]
fn a_connection_above_the_limit_waits_until_another_connection_ends() -> Tested {
    let (rt, address) = started(Config { max_connections: 1, ..Config::default() })?;
    rt.block_on(async {
        let mut first = sent(address, HELLO).await?;
        read_until(&mut first, "hello\n").await?;
        let mut second = sent(address, HELLO).await?;
        first.write_all(HELLO.as_bytes()).await?;
        read_until(&mut first, "hello\n").await?;
        assert_eq!(rt.processes_alive(), OWN_PROCESSES + 1);
        drop(first);
        read_until(&mut second, "hello\n").await?;
        Ok(())
    })
}

/// The limit 0 has the same effect as the limit 1.
#[test]
fn a_server_with_a_limit_of_zero_connections_accepts_one_connection() -> Tested {
    let (rt, address) = started(Config { max_connections: 0, ..Config::default() })?;
    rt.block_on(async {
        read_until(&mut sent(address, HELLO).await?, "hello\n").await?;
        read_until(&mut sent(address, HELLO).await?, "hello\n").await?;
        assert!(rt.shutdown(LONG).await.left.is_empty());
        Ok(())
    })
}

#[test]
fn the_server_accepts_the_longest_possible_idle_time() -> Tested {
    let (rt, address) = started(Config { idle: Duration::MAX, ..Config::default() })?;
    rt.block_on(async {
        read_until(&mut sent(address, HELLO).await?, "hello\n").await?;
        Ok(())
    })
}

#[test]
fn an_idle_connection_is_closed() -> Tested {
    let (rt, address) = started(Config { idle: SHORT, ..Config::default() })?;
    rt.block_on(async {
        // The first client sends nothing. The second client sends half of a request head. The third client sends a
        // complete request and then nothing.
        assert_eq!(read_all(&mut sent(address, "").await?).await, "");
        assert_eq!(read_all(&mut sent(address, "GET / HT").await?).await, "");
        let text = read_all(&mut sent(address, HELLO).await?).await;
        assert!(text.ends_with("\r\n\r\nhello\n"), "{text}");
        Ok(())
    })
}

/// The time limit of a request head begins with the connection, and a byte of the head does not prolong the time limit.
/// After each byte, the client waits for half of the time limit. The server closes the connection before the head is
/// complete.
#[test]
fn a_head_that_arrives_byte_by_byte_is_refused() -> Tested {
    let idle = 2 * SHORT;
    let (rt, address) = started(Config { idle, ..Config::default() })?;
    let client = rt.spawn(async move |ctx: Context| {
        let mut stream = sent(address, "").await?;
        for byte in HELLO.as_bytes() {
            if stream.write_all(&[*byte]).await.is_err() {
                return Tested::Ok(());
            }
            // The server sends no byte, so this read waits until the time limit of the read passes or the connection is
            // closed.
            match ctx.timeout(idle / 2, stream.read(&mut [0])).await {
                Err(_) => {}
                Ok(Ok(0) | Err(_)) => return Ok(()),
                Ok(Ok(_)) => return Err("the server has sent a response".into()),
            }
        }
        Err("the server has read the whole head".into())
    });
    rt.block_on(client)?;
    rt.block_on(connections_exit(&rt))
}

#[test]
fn a_body_that_is_too_slow_or_too_long_is_refused() -> Tested {
    let (rt, address) = started(Config { body_time: SHORT, body_size: 10, ..Config::default() })?;
    rt.block_on(async {
        let post = |length: usize| format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n12345");
        assert_eq!(status(address, post(6)).await?, "HTTP/1.1 408 Request Timeout");
        assert_eq!(status(address, post(11)).await?, "HTTP/1.1 413 Payload Too Large");
        let chunked = "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nb\r\n12345678901\r\n";
        assert_eq!(status(address, chunked).await?, "HTTP/1.1 413 Payload Too Large");
        assert_eq!(status(address, post(5)).await?, "HTTP/1.1 200 OK");
        Ok(())
    })
}

#[test]
fn a_request_head_that_is_too_long_is_refused() -> Tested {
    let (rt, address) = started(Config { head_size: 1_000, headers: 4, ..Config::default() })?;
    rt.block_on(async {
        let with = |fields: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let refused = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(status(address, with(&format!("b: {}\r\n", "x".repeat(1_000)))).await?, refused);
        assert_eq!(status(address, with(&"b: c\r\n".repeat(4))).await?, refused);
        assert_eq!(status(address, with(&"b: c\r\n".repeat(3))).await?, "HTTP/1.1 200 OK");
        Ok(())
    })
}

#[test]
fn a_connection_is_closed_if_its_client_does_not_read_the_response() -> Tested {
    const SIZE: usize = 32 << 20;
    let (rt, address) = started(Config { write_stall: SHORT, body_size: SIZE, ..Config::default() })?;
    rt.block_on(async {
        let head = format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {SIZE}\r\n\r\n");
        let mut stream = sent(address, head).await?;
        stream.write_all(&vec![b'x'; SIZE]).await?;
        // The response is longer than the buffers of the system. The client reads no byte of the response before the
        // process of the connection has exited.
        connections_exit(&rt).await?;
        assert!(read_all(&mut stream).await.len() < SIZE);
        Ok(())
    })
}

#[test]
fn a_shutdown_answers_the_request_in_flight() -> Tested {
    let (rt, address) = started(Config { idle: 2 * LONG, ..Config::default() })?;
    rt.block_on(async {
        let mut silent = sent(address, "").await?;
        let mut idle = sent(address, HELLO).await?;
        read_until(&mut idle, "hello\n").await?;
        let head = "POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
        let mut stream = sent(address, head).await?;
        // The server sends this line when the handler of the request waits for the body of the request.
        read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await?;
        let client = async {
            // When the system refuses a new connection, the server has dropped its listener.
            while TcpStream::connect(address).await.is_ok() {}
            assert_eq!(read_all(&mut silent).await, "");
            assert_eq!(read_all(&mut idle).await, "");
            stream.write_all(b"abc").await?;
            let text = read_all(&mut stream).await;
            assert!(text.contains("200 OK") && text.ends_with("\r\n\r\nabc"), "{text}");
            Tested::Ok(())
        };
        let (report, checked) = futures::future::join(rt.shutdown(LONG), client).await;
        assert!(report.left.is_empty(), "{report:?}");
        checked
    })
}

/// While a shutdown waits for a request in flight, the process that counts visits still answers.
#[test]
fn visits_are_counted_until_the_last_connection_has_ended() -> Tested {
    let (rt, address) = started(Config { idle: 2 * LONG, ..Config::default() })?;
    rt.block_on(async {
        let head = "POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
        let mut stream = sent(address, head).await?;
        read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await?;
        let client = async {
            while TcpStream::connect(address).await.is_ok() {}
            assert_eq!(rt.call(VISITS, Visit).await?, 1);
            stream.write_all(b"abc").await?;
            let text = read_all(&mut stream).await;
            assert!(text.ends_with("\r\n\r\nabc"), "{text}");
            Tested::Ok(())
        };
        let (report, checked) = futures::future::join(rt.shutdown(LONG), client).await;
        assert!(report.left.is_empty(), "{report:?}");
        checked
    })
}

/// A request whose head is not complete does not delay a shutdown.
#[test]
fn an_incomplete_head_does_not_delay_a_shutdown() -> Tested {
    let (rt, address) = started(Config { idle: 2 * LONG, drain: 2 * LONG, ..Config::default() })?;
    rt.block_on(async {
        let mut stream = sent(address, "GET / HT").await?;
        // A second client connects after the first client, and the server answers the second client. So the server has
        // almost certainly read the incomplete head of the first client. If the server has not read this head, the
        // connection of the first client is idle, and the test also passes.
        read_until(&mut sent(address, HELLO).await?, "hello\n").await?;
        let report = rt.shutdown(LONG).await;
        assert!(report.left.is_empty(), "{report:?}");
        assert_eq!(read_all(&mut stream).await, "");
        Ok(())
    })
}

/// The rest of a long response is written during a shutdown.
#[test]
fn a_shutdown_completes_the_response_that_is_being_written() -> Tested {
    const SIZE: usize = 32 << 20;
    let (rt, address) = started(Config { body_size: SIZE, ..Config::default() })?;
    rt.block_on(async {
        let head = format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {SIZE}\r\n\r\n");
        let mut stream = sent(address, head).await?;
        stream.write_all(&vec![b'x'; SIZE]).await?;
        // The response is longer than the buffers of the system, so the server has not written the whole response.
        let head = read_until(&mut stream, "\r\n\r\n").await?;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let client = async {
            while TcpStream::connect(address).await.is_ok() {}
            read_all(&mut stream).await
        };
        let (report, body) = futures::future::join(rt.shutdown(LONG), client).await;
        assert!(report.left.is_empty(), "{report:?}");
        assert_eq!(body.len(), SIZE);
        Ok(())
    })
}

/// A client that never completes its request delays a shutdown only by the time `drain`.
#[test]
fn an_incomplete_request_delays_a_shutdown_only_for_a_limited_time() -> Tested {
    let config = Config { idle: 2 * LONG, body_time: 2 * LONG, drain: SHORT, ..Config::default() };
    let (rt, address) = started(config)?;
    rt.block_on(async {
        let mut body =
            sent(address, "POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n")
                .await?;
        read_until(&mut body, "HTTP/1.1 100 Continue\r\n\r\n").await?;
        let report = rt.shutdown(LONG).await;
        assert!(report.left.is_empty(), "{report:?}");
        assert_eq!(read_all(&mut body).await, "");
        Ok(())
    })
}
