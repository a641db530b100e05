//! Tests with clients on real connections. The clients send random bytes, send long request heads, or vanish.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngSeed, TestRunner};

use super::*;

/// Returns a runner for a property. The seed is fixed, so that a test has the same result in each run. The environment
/// variables `PROPTEST_CASES` and `PROPTEST_RNG_SEED` select other cases.
fn runner(cases: u32) -> TestRunner {
    let is_set = |name| std::env::var_os(name).is_some();
    let mut settings = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if !is_set("PROPTEST_CASES") {
        settings.cases = cases;
    }
    if !is_set("PROPTEST_RNG_SEED") {
        settings.rng_seed = RngSeed::Fixed(1);
    }
    TestRunner::new(settings)
}

/// Correct requests for pages that respond without a delay.
const REQUESTS: &[&str] = &[
    HELLO,
    "GET /visits HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
    "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
    "GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
];

/// Random bytes, or requests in which some bytes are replaced by other bytes.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![2 => select(&b"\r\n :;,0123456789abcdefx/"[..]), 1 => any::<u8>()];
    let replaced = vec((any::<Index>(), byte), 0..4);
    let requests = (vec(select(REQUESTS), 1..4), replaced).prop_map(|(requests, replaced)| {
        let mut bytes = requests.concat().into_bytes();
        replaced.into_iter().for_each(|(index, byte)| *index.get_mut(&mut bytes) = byte);
        bytes
    });
    prop_oneof![3 => requests, 1 => vec(any::<u8>(), 0..300)]
}

/// The way in which a client ends its connection.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The client closes its socket and does not read the response. If the client has not read a response that has
    /// arrived, the system of the client resets the connection.
    Drop,
    /// The client closes its write direction, and reads until the server closes the connection.
    Read,
}

/// Sends the first `count` bytes of an input, and ends the connection.
async fn vanish(address: SocketAddr, bytes: &[u8], count: usize, end: End) -> Tested {
    let mut stream = TcpStream::connect(address).await?;
    // The write fails if the server has closed the connection.
    let _ = stream.write_all(&bytes[..count]).await;
    if let End::Read = end {
        let _ = stream.close().await;
        read_all(&mut stream).await;
    }
    Ok(())
}

/// 12.6b: clients that send random bytes or vanish affect only their own connections.
#[test]
fn the_server_survives_random_bytes_and_clients_that_vanish() -> Tested {
    let (rt, address) = started(Config { idle: 2 * LONG, body_time: 2 * LONG, ..Config::default() })?;
    let mut other = rt.block_on(sent(address, HELLO))?;
    rt.block_on(read_until(&mut other, "hello\n"))?;
    let other = futures::lock::Mutex::new(other);
    let end = prop_oneof![Just(End::Drop), Just(End::Read)];
    runner(200).run(&(input(), any::<Index>(), end), |(bytes, count, end)| {
        let count = count.index(bytes.len() + 1);
        let checked = rt.block_on(async {
            vanish(address, &bytes, count, end).await?;
            let mut other = other.lock().await;
            other.write_all(HELLO.as_bytes()).await?;
            read_until(&mut other, "hello\n").await
        });
        checked.map(drop).map_err(|error| TestCaseError::fail(error.to_string()))
    })?;
    drop(other);
    rt.block_on(connections_exit(&rt))
}

/// The server refuses each request head that has too many bytes or too many fields, and no other request head.
#[test]
fn the_server_refuses_each_request_head_above_the_limits() -> Tested {
    const SIZE: usize = 1_000;
    const FIELDS: usize = 8;
    let (rt, address) = started(Config { head_size: SIZE, headers: FIELDS, ..Config::default() })?;
    let lengths = prop_oneof![vec(0_usize..300, 0..12), vec(0_usize..5_000, 0..3)];
    runner(100).run(&lengths, |lengths| {
        let fields: String = lengths.iter().map(|length| format!("b: {}\r\n", "x".repeat(*length))).collect();
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        let is_refused = head.len() > SIZE || lengths.len() + 1 > FIELDS;
        let expected = if is_refused { "HTTP/1.1 431 Request Header Fields Too Large" } else { "HTTP/1.1 200 OK" };
        let found = rt.block_on(status(address, head)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(found, expected);
        Ok(())
    })?;
    rt.block_on(connections_exit(&rt))
}
