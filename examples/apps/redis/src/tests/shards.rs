//! Shards that fail, and commands that use several shards.

use super::{config, encode, simulate};
use crate::resp::Limits;
use crate::server::Config;

/// A shard that fails is restarted without its keys. The other shards keep their keys, and the connections continue.
#[test]
fn a_failed_shard_loses_only_its_keys() {
    simulate(&config(2), async |world| {
        let mut client = world.connect();
        for n in 0..100 {
            client.ask(&format!("SET key{n} 1"), "+OK\r\n").await;
        }
        let shard = world.host.whereis("shard 0").expect("it runs");
        world.host.kill(shard).expect("it runs");
        world.host.exited(shard).await;
        client.send("DBSIZE\r\n").await;
        let mut reply = [0; 5];
        futures::AsyncReadExt::read_exact(&mut client.pipe, &mut reply).await.expect("the server replies");
        let left = String::from_utf8_lossy(&reply[1..3]).trim().parse::<u32>().expect("a number");
        assert!((20..80).contains(&left), "{left}");
        for n in 0..100 {
            client.ask(&format!("SET key{n} 1"), "+OK\r\n").await;
        }
        client.ask("DBSIZE", ":100\r\n").await;
    });
}

/// A shard is killed at a time at which it may have commands of a client. For each command that the shard loses, the
/// client gets an error. The connection continues.
#[test]
fn the_client_gets_an_error_for_each_command_that_a_failed_shard_loses() {
    simulate(&config(1), async |world| {
        let mut client = world.connect();
        client.ask("SET a 1", "+OK\r\n").await;
        client.send(encode(&["GET", "a"]).repeat(3)).await;
        // The seed decides whether the kill happens before the shard receives the commands, while the shard holds the
        // commands, or after the shard has returned the commands.
        world.host.kill(world.host.whereis("shard 0").expect("it runs")).expect("it runs");
        for _ in 0..3 {
            let mut kind = [0];
            futures::AsyncReadExt::read_exact(&mut client.pipe, &mut kind).await.expect("the server replies");
            match &kind {
                b"$" => client.expect_either("1\r\n1\r\n", "-1\r\n").await,
                _ => client.expect("ERR the shard of this key has failed, and its keys are lost\r\n").await,
            }
        }
        client.ask("SET a 2", "+OK\r\n").await;
    });
}

#[test]
fn commands_with_several_keys_span_the_shards() {
    for shards in [1, 2, 5] {
        simulate(&config(shards), async |world| {
            let mut client = world.connect();
            let keys: Vec<_> = (0..50).map(|n| format!("key{n}")).collect();
            let pairs: Vec<_> = keys.iter().flat_map(|key| [key.as_str(), &key[3..]]).collect();
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            client.send(encode(&[&["MSET"], &*pairs].concat())).await;
            client.send(encode(&["LPUSH", "list", "a"])).await;
            client.send(encode(&[&["MGET", "list", "none"], &*keys].concat())).await;
            let values: String = keys.iter().map(|key| format!("${}\r\n{}\r\n", key.len() - 3, &key[3..])).collect();
            client.expect(format!("+OK\r\n:1\r\n*52\r\n$-1\r\n$-1\r\n{values}")).await;
            client.ask("DBSIZE", ":51\r\n").await;
            client.ask("MGET key1 none key2", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n").await;
            client.ask("PING\r\nMGET key2 key1", "+PONG\r\n*2\r\n$1\r\n2\r\n$1\r\n1\r\n").await;
            client.send(encode(&[&["EXISTS", "none", "key1"], &*keys].concat())).await;
            client.send(encode(&[&["DEL", "key1", "none"], &keys[..30]].concat())).await;
            client.expect(":51\r\n:30\r\n").await;
            client.ask("DBSIZE", ":21\r\n").await;
            client.ask("FLUSHALL", "+OK\r\n").await;
            client.ask("DBSIZE", ":0\r\n").await;
        });
    }
}

/// The commands of one client for one key take effect in the order in which the client sends these commands, even if
/// commands for other keys are between these commands.
#[test]
fn the_order_of_a_pipeline_is_kept() {
    simulate(&config(4), async |world| {
        let mut client = world.connect();
        let (mut pipeline, mut expected) = (Vec::new(), String::new());
        for n in 0..200 {
            let (key, other) = (format!("key{}", n % 7), format!("key{}", (n + 3) % 7));
            let value = n.to_string();
            pipeline.extend(encode(&["SET", &key, &value]));
            pipeline.extend(encode(&["MGET", &key, "nokey", &key]));
            pipeline.extend(encode(&["ECHO", &value]));
            pipeline.extend(encode(&["MSET", &other, "x", &key, "y"]));
            pipeline.extend(encode(&["GET", &key]));
            pipeline.extend(encode(&["DEL", &key, &other]));
            pipeline.extend(encode(&["DBSIZE"]));
            let bulk = format!("${}\r\n{value}\r\n", value.len());
            expected += &format!("+OK\r\n*3\r\n{bulk}$-1\r\n{bulk}{bulk}+OK\r\n$1\r\ny\r\n:2\r\n:0\r\n");
        }
        client.send(pipeline).await;
        client.expect(expected).await;
    });
}

/// A shard returns the message when the replies reach 256 KiB, but never in the middle of a command. Therefore, if a
/// command has several keys, the shard handles all these keys before the shard runs a command of another client.
#[test]
fn a_command_with_several_keys_is_atomic_in_one_shard() {
    let limits = Limits { output: 1_000, ..Limits::default() };
    simulate(&Config { limits, ..config(1) }, async |world| {
        let mut writer = world.connect_through(1 << 20);
        let value = "x".repeat(200_000);
        for key in ["a", "b", "c", "d"] {
            writer.send(encode(&["SET", key, &value])).await;
            writer.expect("+OK\r\n").await;
        }
        // The replies of the first two keys exceed 256 KiB. The client reads no reply before the keys were changed.
        let mut reader = world.connect_through(100);
        reader.send("MGET a b c d\r\n").await;
        world.sleep(1).await;
        writer.send("MSET a 1 b 1 c 1 d 1\r\n").await;
        writer.expect("+OK\r\n").await;
        reader.expect(format!("*4\r\n{}", format!("$200000\r\n{value}\r\n").repeat(4))).await;
        // The reply to `GET` and the reply for the first key of `MSET` together exceed 256 KiB. The shard still runs
        // `MSET` for the other keys.
        let value = "x".repeat((256 << 10) - 13);
        writer.send(encode(&["SET", "a", &value])).await;
        writer.expect("+OK\r\n").await;
        reader.send("GET a\r\nMSET b 2 c 2 d 2\r\n").await;
        world.sleep(1).await;
        writer.ask("MGET b c d", "*3\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\n2\r\n").await;
        reader.expect(format!("${}\r\n{value}\r\n+OK\r\n", value.len())).await;
    });
}
