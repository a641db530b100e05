//! Replies to commands, compared byte by byte.

mod recorded;

use futures::AsyncReadExt;

use super::{Client, config, encode, simulate};

/// A command, and its reply in version 2 of the protocol. If the reply in version 3 differs, the third field contains
/// the reply in version 3.
type Row = (&'static str, &'static str, Option<&'static str>);

const GROUPS: &[&[Row]] =
    &[recorded::STRINGS, recorded::KEYS, recorded::LISTS, recorded::HASHES, recorded::SETS, recorded::CONNECTION];

const END: &str = "$5\r\n\u{1}end\u{1}\r\n";

/// Receives all bytes before the reply to `ECHO`. The argument of this `ECHO` marks the end.
async fn receive(client: &mut Client) -> String {
    client.send(encode(&["ECHO", "\u{1}end\u{1}"])).await;
    let mut received = Vec::new();
    while !received.ends_with(END.as_bytes()) {
        let mut piece = [0; 1000];
        let count = client.pipe.read(&mut piece).await.expect("the server replies");
        assert!(count > 0, "the server has closed the connection");
        received.extend_from_slice(&piece[..count]);
    }
    received.truncate(received.len() - END.len());
    String::from_utf8(received).expect("a text")
}

async fn use_version_3(client: &mut Client) {
    client.send("HELLO 3\r\n").await;
    assert!(receive(client).await.starts_with("%7\r\n$6\r\nserver\r\n"));
}

/// The replies are equal to the replies of Redis 7.0.15. The test uses both versions of the protocol, with one shard
/// and with several shards.
#[test]
fn the_replies_equal_the_replies_of_redis() {
    for shards in [1, 3] {
        simulate(&config(shards), async |world| {
            for resp3 in [false, true] {
                for group in GROUPS {
                    let mut client = world.connect();
                    client.ask("FLUSHALL", "+OK\r\n").await;
                    if resp3 {
                        use_version_3(&mut client).await;
                    }
                    for (command, version2, version3) in *group {
                        if resp3 && command.starts_with("HELLO") {
                            continue;
                        }
                        client.send(format!("{command}\r\n")).await;
                        let expected = if resp3 { version3.unwrap_or(version2) } else { version2 };
                        assert_eq!(
                            receive(&mut client).await,
                            expected,
                            "{command}, {shards} shards, version 3: {resp3}"
                        );
                    }
                }
            }
        });
    }
}

/// These replies were not recorded from the real server. Instead, the replies follow the source of Redis 7.0.15.
#[test]
fn rare_options_get_the_replies_of_redis() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        let long = "x".repeat(200);
        let cut = format!("-ERR unknown subcommand '{}'. Try CLIENT HELP.\r\n", &long[..128]);
        for (command, reply) in [
            ("SET k v EX 10 EX 20", "+OK\r\n"),
            ("TTL k", ":20\r\n"),
            ("SET k v PX 10 PX 20000", "+OK\r\n"),
            ("TTL k", ":20\r\n"),
            ("SET k v EX 10 PX 10 EX 10", "-ERR syntax error\r\n"),
            ("CONFIG GET [s]ave", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
            ("CONFIG SET x", "-ERR wrong number of arguments for 'config|set' command\r\n"),
            ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command\r\n"),
            ("COMMAND LIST x", "-ERR syntax error\r\n"),
            (&format!("CLIENT {long}"), &cut),
        ] {
            client.ask(command, reply).await;
        }
    });
}

/// The real Redis 7.0.15 sends the same replies. Redis 7.2 checks all options before Redis applies the first option.
#[test]
fn the_hello_command_applies_its_options_in_order() {
    const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        for (command, reply) in [
            ("HELLO 3 AUTH alice x", WRONGPASS),
            ("HELLO 3 AUTH alice x FOO", WRONGPASS),
            ("HELLO 3 AUTH alice x AUTH default y", WRONGPASS),
            ("HELLO 3 AUTH default x AUTH alice y", WRONGPASS),
            ("HELLO 3 AUTH default x FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n"),
            ("HELLO 2 SETNAME bob FOO", "-ERR Syntax error in HELLO option 'FOO'\r\n"),
            ("CLIENT GETNAME", "$3\r\nbob\r\n"),
            ("HELLO 3 SETNAME eve AUTH alice y", WRONGPASS),
            ("CLIENT GETNAME", "$3\r\neve\r\n"),
        ] {
            client.send(format!("{command}\r\n")).await;
            assert_eq!(receive(&mut client).await, reply, "{command}");
        }
        client.send("CLIENT LIST\r\n").await;
        assert!(receive(&mut client).await.contains(" name=eve "));
        client.send("HELLO 3 AUTH default x\r\n").await;
        assert!(receive(&mut client).await.starts_with("%7\r\n"));
    });
}

/// If a client sends the same commands as one pipeline, the client gets the same replies.
#[test]
fn a_pipeline_gets_the_same_replies_as_single_commands() {
    for shards in [1, 3] {
        simulate(&config(shards), async |world| {
            for group in GROUPS {
                let mut client = world.connect();
                client.ask("FLUSHALL", "+OK\r\n").await;
                let commands: String = group.iter().map(|(command, ..)| format!("{command}\r\n")).collect();
                client.send(commands).await;
                let expected: String = group.iter().map(|(_, reply, _)| *reply).collect();
                assert_eq!(receive(&mut client).await, expected);
            }
        });
    }
}

/// The order of the elements of a hash or a set is undefined, so the test compares the elements without their order.
#[test]
fn hashes_and_sets_return_all_their_elements() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.ask("HSET h a 1 b 2 c 3", ":3\r\n").await;
        client.ask("SADD s x y z", ":3\r\n").await;
        for (resp3, map, set) in [(false, "*6", "*3"), (true, "%3", "~3")] {
            if resp3 {
                use_version_3(&mut client).await;
            }
            for (command, header, expected) in
                [("HGETALL h", map, ["a1", "b2", "c3"]), ("SMEMBERS s", set, ["x", "y", "z"])]
            {
                client.send(format!("{command}\r\n")).await;
                let reply = receive(&mut client).await;
                let mut lines = reply.split("\r\n");
                assert_eq!(lines.next(), Some(header));
                let elements: String = lines.filter(|line| !line.starts_with('$')).collect();
                let width = expected[0].len();
                let mut found: Vec<_> =
                    (0..elements.len()).step_by(width).map(|at| &elements[at..at + width]).collect();
                found.sort_unstable();
                assert_eq!(found, expected);
            }
        }
    });
}

#[test]
fn spop_removes_random_members_and_returns_them() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..20 {
            client.ask("SADD s a b c d e", ":5\r\n").await;
            let mut popped = String::new();
            for (command, header) in [("SPOP s", ""), ("SPOP s 3", "*3\r\n"), ("SPOP s 7", "*1\r\n")] {
                client.send(format!("{command}\r\n")).await;
                let reply = receive(&mut client).await;
                let members = reply.strip_prefix(header).expect("the header");
                popped.extend(members.split("\r\n").filter(|line| !line.starts_with('$')));
                client.ask("SCARD s", &format!(":{}\r\n", 5 - popped.len())).await;
            }
            let mut sorted: Vec<_> = popped.chars().collect();
            sorted.sort_unstable();
            assert_eq!(sorted, ['a', 'b', 'c', 'd', 'e']);
            orders.insert(popped);
        }
        assert!(orders.len() >= 10, "{orders:?}");
    });
}

/// The programs `redis-cli` and `redis-benchmark` send these commands when the programs connect to a server.
#[test]
fn the_server_describes_itself() {
    simulate(&config(2), async |world| {
        let mut client = world.connect();
        client.send("COMMAND INFO get\r\n").await;
        let get = "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n\
                   *3\r\n+@read\r\n+@string\r\n+@fast\r\n*0\r\n*0\r\n*0\r\n";
        assert_eq!(receive(&mut client).await, get);
        client.send("COMMAND DOCS echo nosuch\r\n").await;
        let echo = "*2\r\n$4\r\necho\r\n*6\r\n$7\r\nsummary\r\n$21\r\nEcho the given string\r\n\
                    $5\r\nsince\r\n$5\r\n1.0.0\r\n$5\r\ngroup\r\n$10\r\nconnection\r\n";
        assert_eq!(receive(&mut client).await, echo);
        client.send("COMMAND COUNT\r\n").await;
        let count: usize = receive(&mut client).await[1..].trim().parse().expect("a number");
        for command in ["COMMAND", "COMMAND INFO", "COMMAND LIST"] {
            client.send(format!("{command}\r\n")).await;
            assert!(receive(&mut client).await.starts_with(&format!("*{count}\r\n")), "{command}");
        }
        client.send("HELLO 3\r\n").await;
        let hello = "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n\
                     $2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                     $7\r\nmodules\r\n*0\r\n";
        assert_eq!(receive(&mut client).await, hello);
        client.send("SET a 1\r\nSET b 1 EX 10\r\nINFO keyspace\r\n").await;
        let keyspace = "# Keyspace\r\ndb0:keys=2,expires=1,avg_ttl=0\r\n";
        let expected = format!("+OK\r\n+OK\r\n={}\r\ntxt:{keyspace}\r\n", keyspace.len() + 4);
        assert_eq!(receive(&mut client).await, expected);
        client.send("INFO server\r\n").await;
        let server = receive(&mut client).await;
        assert!(server.contains("# Server\r\nredis_version:7.0.15\r\n") && !server.contains("# Clients"), "{server}");
    });
}

#[test]
fn the_reply_to_info_has_the_fields_for_redis_cli_stat() {
    simulate(&config(2), async |world| {
        let mut client = world.connect();
        client.ask("SET a 1", "+OK\r\n").await;
        let info = client.info().await;
        for line in [
            "connected_clients:1",
            "blocked_clients:0",
            "loading:0",
            "rdb_bgsave_in_progress:0",
            "aof_rewrite_in_progress:0",
            "total_connections_received:1",
            "total_commands_processed:2",
            "db0:keys=1,expires=0,avg_ttl=0",
        ] {
            assert!(info.lines().any(|found| found == line), "{line} is not in {info}");
        }
    });
}
