//! Clients that vanish, send wrong bytes, or read slowly.

use std::io;

use futures::{AsyncReadExt, AsyncWriteExt};

use super::{config, encode, simulate};
use crate::resp::Limits;
use crate::server::Config;

#[test]
fn a_client_that_vanishes_inside_a_command_leaves_no_process() {
    simulate(&config(2), async |world| {
        for bytes in ["", "*", "*2\r\n$3\r\nGET\r\n$5\r\nab", "GET", "SET a 1\r\nGET a\r\n"] {
            let mut client = world.connect();
            client.send(bytes).await;
            drop(client);
        }
        world.wait_for_clients(0).await;
        // The server has run the commands that were complete before the end of the stream.
        world.connect().ask("GET a", "$1\r\n1\r\n").await;
    });
}

/// A client may close its write direction before the client has read the reply, for example `printf 'PING\r\n' | nc`.
#[test]
fn a_client_that_closes_its_write_direction_gets_its_replies() {
    simulate(&config(2), async |world| {
        let mut client = world.connect_through(10);
        client.send("SET a 12345678\r\n").await;
        client.expect("+OK\r\n").await;
        client.send("GET a\r\nGET a\r\nGET a\r\n").await;
        client.pipe.close().await.expect("it closes");
        client.expect("$8\r\n12345678\r\n".repeat(3)).await;
        client.expect_end().await;
    });
}

#[test]
fn a_command_can_arrive_byte_by_byte() {
    simulate(&config(2), async |world| {
        let mut client = world.connect();
        for byte in [encode(&["SET", "a", "1"]), encode(&["GET", "a"])].concat() {
            client.send([byte]).await;
            world.sleep(60_000).await;
        }
        client.expect("+OK\r\n$1\r\n1\r\n").await;
    });
}

#[test]
fn a_protocol_error_ends_the_connection_after_the_replies() {
    simulate(&config(2), async |world| {
        for (bytes, text) in [
            ("*1\r\nPING\r\n", "expected '$', got 'P'"),
            ("*2000000000000\r\n", "invalid multibulk length"),
            ("*1\r\n$600000000\r\n", "invalid bulk length"),
            ("GET \"a\r\n", "unbalanced quotes in request"),
        ] {
            let mut client = world.connect();
            client.send(format!("SET a 1\r\nPING\r\n{bytes}PING\r\n")).await;
            client.expect(format!("+OK\r\n+PONG\r\n-ERR Protocol error: {text}\r\n")).await;
            client.expect_end().await;
        }
        for http in ["POST / HTTP/1.1\r\n\r\n", "Host: a\r\n\r\n"] {
            let mut client = world.connect();
            client.send(format!("{http}SET a 2\r\n")).await;
            client.expect_end().await;
        }
        world.connect().ask("GET a", "$1\r\n1\r\n").await;
    });
}

#[test]
fn the_server_closes_the_connection_after_the_quit_command() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.send("SET a 1\r\nQUIT\r\nSET a 2\r\n").await;
        client.expect("+OK\r\n+OK\r\n").await;
        client.expect_end().await;
        world.connect().ask("GET a", "$1\r\n1\r\n").await;
    });
}

/// A client writes a long pipeline before the client reads, and gets all replies. The server buffers the replies up to
/// a limit.
#[test]
fn a_client_may_write_a_pipeline_before_it_reads() {
    simulate(&config(2), async |world| {
        let mut client = world.connect_through(1_000);
        for n in 0..5_000 {
            client.send(encode(&["SET", &format!("key{n}"), "1"])).await;
        }
        client.expect("+OK\r\n".repeat(5_000)).await;
    });
}

/// A client that never reads its replies cannot fill the memory, because the server stops reading from this client.
#[test]
fn the_server_stops_reading_from_a_client_that_does_not_read() {
    let limits = Limits { output: 10_000, ..Limits::default() };
    simulate(&Config { limits, ..config(2) }, async |world| {
        let mut writer = world.connect();
        writer.send(encode(&["SET", "a", &"x".repeat(1_000)])).await;
        writer.expect("+OK\r\n").await;
        let mut client = world.connect_through(100);
        let mut sent = 0;
        // If a write does not complete within a minute of virtual time, the pipe is full.
        while let futures::future::Either::Left((written, _)) = futures::future::select(
            std::pin::pin!(client.pipe.write_all(b"GET a\r\n")),
            std::pin::pin!(world.host.sleep(std::time::Duration::from_secs(60))),
        )
        .await
        {
            written.expect("the server reads");
            sent += 1;
            assert!(sent < 10_000, "the server reads without bound");
        }
        assert!(sent >= 10, "{sent}");
        // The other clients must not wait for this client.
        writer.ask("APPEND b x", ":1\r\n").await;
        // When the client reads again, the server must continue to run the commands of this client.
        client.expect(format!("$1000\r\n{}\r\n", "x".repeat(1_000)).repeat(10)).await;
    });
}

/// The replies to one batch exceed the limit of a shard. The shard returns the replies in several parts, and the client
/// gets the replies in order.
#[test]
fn a_batch_with_long_replies_is_run_in_parts() {
    for shards in [1, 3] {
        simulate(&config(shards), async |world| {
            let mut client = world.connect_through(1 << 20);
            let value = "x".repeat(100_000);
            for key in ["a", "b", "c", "d"] {
                client.send(encode(&["SET", key, &value])).await;
                client.expect("+OK\r\n").await;
            }
            let one = format!("$100000\r\n{value}\r\n");
            let mut pipeline = Vec::new();
            let mut expected = String::new();
            for n in 0..12 {
                let count = n.to_string();
                pipeline.extend(encode(&["MGET", "a", "b", "nokey", "c", "d"]));
                expected += &format!("*5\r\n{one}{one}$-1\r\n{one}{one}");
                pipeline.extend(encode(&["APPEND", "n", &count[..1]]));
                expected += &format!(":{}\r\n", n + 1);
                pipeline.extend(encode(&["PING", &count]));
                expected += &format!("${}\r\n{count}\r\n", count.len());
                pipeline.extend(encode(&["DEL", "x", "n0", "a0"]));
                expected += ":0\r\n";
            }
            client.send(pipeline).await;
            client.expect(expected).await;
        });
    }
}

#[test]
fn a_client_above_the_limit_is_refused() {
    simulate(&Config { max_connections: 2, ..config(1) }, async |world| {
        let (mut one, mut two) = (world.connect(), world.connect());
        one.ask("PING", "+PONG\r\n").await;
        two.ask("PING", "+PONG\r\n").await;
        let mut three = world.connect();
        three.expect("-ERR max number of clients reached\r\n").await;
        three.expect_end().await;
        drop(one);
        // A new client is accepted after the process of the dropped connection has exited.
        loop {
            let mut next = world.connect();
            next.send("PING\r\n").await;
            let mut byte = [0];
            next.pipe.read_exact(&mut byte).await.expect("the server replies");
            if byte == *b"+" {
                return;
            }
            world.sleep(1).await;
        }
    });
}

/// While the listener sleeps after a failed `accept`, a client vanishes and another client connects. When the listener
/// accepts the second client, the listener no longer counts the first client.
#[test]
fn a_vanished_client_is_not_counted_even_if_other_clients_wait() {
    simulate(&Config { max_connections: 1, ..config(1) }, async |world| {
        let mut one = world.connect();
        one.ask("PING", "+PONG\r\n").await;
        world.backlog.push(Err(io::Error::other("no more file descriptors")));
        world.sleep(1).await;
        drop(one);
        world.sleep(1).await;
        world.connect().ask("PING", "+PONG\r\n").await;
    });
}

/// `accept` fails, for example, if no file descriptor is free.
#[test]
fn a_failed_accept_is_repeated_after_a_pause() {
    simulate(&config(1), async |world| {
        let begun = world.host.now();
        for _ in 0..3 {
            world.backlog.push(Err(io::Error::other("no more file descriptors")));
        }
        world.connect().ask("PING", "+PONG\r\n").await;
        assert_eq!((world.host.now() - begun).as_millis(), 150);
    });
}

#[test]
fn a_client_can_be_killed_by_its_number() {
    simulate(&config(1), async |world| {
        let mut one = world.connect();
        one.ask("CLIENT ID", ":1\r\n").await;
        let mut two = world.connect();
        two.ask("CLIENT SETNAME two", "+OK\r\n").await;
        two.send("CLIENT LIST\r\n").await;
        let list = two.bulk().await;
        assert!(list.contains("id=1 addr=test:1 name= ") && list.contains("id=2 addr=test:1 name=two "), "{list}");
        two.ask("CLIENT KILL ID 1", ":1\r\n").await;
        one.expect_end().await;
        two.ask("CLIENT KILL ID 1000", ":0\r\n").await;
        two.ask("CLIENT KILL ID 2", ":0\r\n").await;
        two.ask("PING", "+PONG\r\n").await;
    });
}

#[test]
fn the_list_of_clients_is_filtered() {
    simulate(&config(1), async |world| {
        let mut one = world.connect();
        one.ask("CLIENT ID", ":1\r\n").await;
        let mut two = world.connect();
        two.ask("CLIENT ID", ":2\r\n").await;
        one.ask("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n").await;
        for (filter, expected) in [
            ("", &[1, 2][..]),
            ("TYPE normal", &[2]),
            ("TYPE PubSub", &[1]),
            ("TYPE replica", &[]),
            ("ID 2 -1 1 7 2", &[2, 1, 2]),
        ] {
            two.send(format!("CLIENT LIST {filter}\r\n")).await;
            let list = two.bulk().await;
            let lines: Vec<_> = list.lines().collect();
            assert_eq!(lines.len(), expected.len(), "{list}");
            assert!(lines.iter().zip(expected).all(|(line, id)| line.starts_with(&format!("id={id} "))), "{list}");
        }
        two.ask("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'\r\n").await;
        two.ask("CLIENT LIST ID x", "-ERR Invalid client ID\r\n").await;
        two.ask("CLIENT LIST foo", "-ERR syntax error\r\n").await;
    });
}

/// During a shutdown, a connection sends the replies to the commands that it has read.
#[test]
fn a_shutdown_answers_the_commands_that_were_read() {
    simulate(&config(2), async |world| {
        let mut client = world.connect_through(8);
        client.ask("SET a 1", "+OK\r\n").await;
        let ask_and_stop = async {
            client.send("GET a\r\nGET a\r\nGET a\r\n").await;
            world.sleep(1).await;
            let listener = world.host.whereis("listener").expect("it runs");
            world.host.cancel(listener, "test", std::time::Duration::from_secs(10)).expect("it runs");
            world.sleep(1).await;
        };
        ask_and_stop.await;
        client.expect("$1\r\n1\r\n".repeat(3)).await;
        client.expect_end().await;
    });
}
